package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/store"
	"github.com/tenure-go/tenure/tenuretest"
)

// recorder keeps the values of histograms.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) Record(m *Metric, value float64, labels ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprint(m.Name, " ", value, " ", strings.Join(labels, ",")))
}

func (*recorder) Forget(string) {}

func (r *recorder) recorded() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, r.lines = r.lines, nil
	return lines
}

// scrape is what is collected of a metric, by its labels.
func scrape(t *testing.T, s *Source, of *Metric) map[string]float64 {
	found := map[string]float64{}
	s.Collect(t.Context(), func(m *Metric, value float64, labels ...string) {
		if m == of {
			found[strings.Join(labels, ",")] = value
		}
	})
	return found
}

func watchStandalone(t *testing.T) (*tenure.Coordinator, *Source, *recorder) {
	t.Helper()
	c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	r := &recorder{}
	s := Watch(c, r)
	t.Cleanup(s.Close)
	return c, s, r
}

// TestWhatIsRecorded: of a task when a slot began that was due, and how long what was timed here
// took; of a renewal what was left of the term.
func TestWhatIsRecorded(t *testing.T) {
	_, s, r := watchStandalone(t)
	slot := time.Now()
	for _, e := range []tenure.Event{
		{Type: tenure.EventTaskStarted, Task: "t", Attempt: 1, Slot: slot, Took: time.Second},
		{Type: tenure.EventTaskStarted, Task: "t", Attempt: 2, Slot: slot, Took: 2 * time.Second},
		{Type: tenure.EventTaskStarted, Task: "t", Attempt: 1, Slot: slot, Took: 3 * time.Second, Trigger: "x"},
		{Type: tenure.EventTaskStarted, Task: "t", Attempt: 1, Took: 4 * time.Second},
		{Type: tenure.EventTaskFinished, Task: "t", Attempt: 1, Slot: slot, Took: 5 * time.Second, State: tenure.RunSucceeded},
		{Type: tenure.EventTaskFailed, Task: "t", Attempt: 1, Slot: slot, State: tenure.RunAbandoned},
		{Type: tenure.EventTaskAttemptFailed, Task: "t", Attempt: 1, Slot: slot, Took: 6 * time.Second},
		{Type: tenure.EventTaskCanceled, Task: "t", Attempt: 2, Slot: slot, Took: 7 * time.Second},
	} {
		s.event(e)
	}
	took := TaskDuration.Name
	require.Equal(t, []string{TaskLateness.Name + " 1 t", took + " 5 t", took + " 6 t", took + " 7 t"}, r.recorded())
	s.call(tenure.Call{Name: "renew", Took: time.Second, Margin: 6 * time.Second})
	s.call(tenure.Call{Name: "renew", Took: time.Second})
	s.call(tenure.Call{Name: "acquire", Took: time.Second, Margin: 6 * time.Second})
	call := RedisCall.Name + " 1 "
	require.Equal(t, []string{call + "renew", RenewSafety.Name + " 6 default", call + "renew", call + "acquire"}, r.recorded())
}

// TestWhatIsCounted, from 0 on: removals by this process, and what was dropped of events and of
// calls.
func TestWhatIsCounted(t *testing.T) {
	_, s, _ := watchStandalone(t)
	for _, m := range []*Metric{ClockSteps, InstancesRemoved, EventsDropped} {
		require.Equal(t, map[string]float64{"": 0}, scrape(t, s, m), m.Name)
	}
	s.event(tenure.Event{Type: tenure.EventInstanceDown})
	s.event(tenure.Event{Type: tenure.EventInstanceDown, Remote: true})
	s.event(tenure.Event{Type: tenure.EventInstanceDown, Remote: true})
	s.event(tenure.Event{Type: tenure.EventRedisClockStepped, Time: time.Now(), Dropped: 3})
	s.call(tenure.Call{Name: "beat", Dropped: 4})
	s.call(tenure.Call{Name: "renew", Err: errors.New("away")})
	s.call(tenure.Call{Name: "renew"})
	require.Equal(t, map[string]float64{"beat": 0, "renew": 1}, scrape(t, s, RedisCallErrors))
	require.Zero(t, scrape(t, s, RightsMissing)["info"])
	s.event(tenure.Event{Type: tenure.EventHistoryUnread})
	require.InDelta(t, 1, scrape(t, s, RightsMissing)["info"], 0)
	require.InDelta(t, 1, scrape(t, s, InstancesRemoved)[""], 0)
	require.InDelta(t, 1, scrape(t, s, ClockSteps)[""], 0)
	require.InDelta(t, 7, scrape(t, s, EventsDropped)[""], 0)
}

// TestSlotsAndAttemptsAreCounted: those that were passed over, and those that failed and were
// followed by another.
func TestSlotsAndAttemptsAreCounted(t *testing.T) {
	_, s, _ := watchStandalone(t)
	s.event(tenure.Event{Type: tenure.EventTaskSkipped, Task: "t", Count: 3})
	s.event(tenure.Event{Type: tenure.EventTaskSkipped, Task: "t", Count: 2})
	require.InDelta(t, 5, scrape(t, s, TaskSkipped)["t"], 0)
	s.event(tenure.Event{Type: tenure.EventTaskAttemptFailed, Task: "t", Attempt: 1})
	require.InDelta(t, 1, scrape(t, s, TaskRetries)["t"], 0)
}

// TestStepOfTheClockIsCountedOnce: each role sees it by itself, and so do the tasks. Not each sees
// each step: a role may have been added later, or Redis may have been out of its reach.
func TestStepOfTheClockIsCountedOnce(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // which nobody asks
	defer func() { require.NoError(t, client.Close()) }()
	c, err := tenure.New(client, tenure.Options{Namespace: "shop"})
	require.NoError(t, err)
	_, err = c.AddRole("slow", tenure.ElectionOptions{LeaseTTL: time.Hour})
	require.NoError(t, err)
	s := Watch(c, &recorder{})
	defer s.Close()
	at := time.Now()
	for _, e := range []struct {
		after time.Duration
		role  string
		tasks int64
		want  float64
	}{
		{0, "", 0, 1}, {time.Second, "export", 0, 1}, {time.Second, "export", 7, 1}, {20 * time.Second, "ingest", 0, 1},
		{time.Second, "", 0, 2}, {time.Second, "export", 0, 2}, {time.Second, "", 0, 3}, // within a lease: who sees a second one says so
		{time.Hour, "ingest", 0, 4}, {time.Second, "export", 0, 4}, // that no other role has seen before
		{time.Hour / 2, "slow", 0, 4}, // it asks so seldom
	} {
		at = at.Add(e.after)
		s.event(tenure.Event{Type: tenure.EventRedisClockStepped, Role: e.role, Token: e.tasks, Time: at})
		require.InDelta(t, e.want, s.totals()[series{ClockSteps, ""}], 0, "%+v", e)
	}
}

// TestHeartbeatAge is since Redis last took one.
func TestHeartbeatAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, _ := watchStandalone(t)
		time.Sleep(time.Hour)
		s.call(tenure.Call{Name: "beat", Err: errors.New("away")})
		s.call(tenure.Call{Name: "renew"}) // says nothing of heartbeats
		require.InDelta(t, 3600, scrape(t, s, HeartbeatAge)[""], 0)
		s.call(tenure.Call{Name: "beat"})
		time.Sleep(time.Minute)
		require.InDelta(t, 60, scrape(t, s, HeartbeatAge)[""], 0)
	})
}

// TestWhatOnlyTheLeaderSays: the leader of the default role says how many instances it has counted
// and holds, in that term.
func TestWhatOnlyTheLeaderSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{Namespace: "shop", InstanceID: "a"})
		export, err := c.AddRole("export", tenure.ElectionOptions{})
		require.NoError(t, err)
		for name, role := range map[string]string{"own": "", "other": "export"} {
			require.NoError(t, c.Tasks().Register(tenure.Task{Name: name, Role: role, Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
		}
		s := Watch(c, &recorder{})
		defer s.Close()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		synctest.Wait()
		control.Lead()
		export.SetEligible(false)
		time.Sleep(time.Minute)
		require.True(t, c.IsLeader())
		require.False(t, export.IsLeader())
		say := func() {
			s.event(tenure.Event{Type: tenure.EventClusterChanged, Counts: &tenure.Counts{Active: 3, Down: 1}})
			s.event(tenure.Event{Type: tenure.EventSweepHeld, Count: 4, Time: time.Now()})
		}
		say()
		said := func() string {
			instances, held := scrape(t, s, Instances), scrape(t, s, SweepHeld)
			return fmt.Sprint(instances["active"], instances["down"], len(instances), held)
		}
		require.Equal(t, "3 1 6 map[:4]", said())
		s.event(tenure.Event{Type: tenure.EventTermEnded, Role: "export"})
		require.Equal(t, "3 1 6 map[:4]", said())
		time.Sleep(c.Options().Registry.DownAfter)
		require.Equal(t, "map[:0]", fmt.Sprint(scrape(t, s, SweepHeld)))
		say()
		s.event(tenure.Event{Type: tenure.EventTermEnded})
		require.Equal(t, "0 0 0 map[:0]", said(), "the next term has not counted yet")
		term, _ := c.Elector().Term()
		require.InDelta(t, float64(term.Token), scrape(t, s, TermToken)["default"], 0)
		require.Equal(t, map[string]float64{"own": 0}, scrape(t, s, TaskLastSuccess), "it leads no other role, and none has run")
		stop()
		require.NoError(t, <-ended)
		require.Empty(t, scrape(t, s, ClusterHealthy))
		require.Equal(t, "0 0 0 map[]", said())
	})
}

// TestGapThatIsHeardOfTwice begins with the first event. Once it is known that somebody leads, the
// event that says so late adds nothing.
func TestGapThatIsHeardOfTwice(t *testing.T) {
	_, s, _ := watchStandalone(t)
	at := func(seconds int) time.Time { return time.Now().Add(time.Duration(seconds) * time.Second) }
	nobody, somebody := tenure.Event{Type: tenure.EventLeaderChanged}, tenure.Event{Type: tenure.EventLeaderChanged, Subject: "b"}
	unowned := func() float64 { return s.counters[series{Unowned, ""}] }
	nobody.Time = at(-20)
	s.event(nobody)
	nobody.Time = at(-5)
	s.event(nobody)
	somebody.Time = at(0)
	s.event(somebody)
	require.InDelta(t, 20, unowned(), 1)
	s.unled[""] = gap{since: at(-100), led: true}
	s.event(somebody)
	require.InDelta(t, 20, unowned(), 1)
}

// TestForgottenTaskTakesNothingAlong: a role of the same name goes on, and nothing of the task
// stays in memory.
func TestForgottenTaskTakesNothingAlong(t *testing.T) {
	_, s, _ := watchStandalone(t)
	s.event(tenure.Event{Type: tenure.EventTermEnded, Role: "t", Reason: "expired"})
	s.event(tenure.Event{Type: tenure.EventTaskAttemptFailed, Task: "t", Attempt: 1, Took: time.Second})
	s.event(tenure.Event{Type: tenure.EventTaskSlow, Task: "t", Attempt: 1})
	for range 2 {
		s.forget(nil)
	}
	require.Equal(t, map[series]float64{{LeadershipChanges, "t" + between + "expired"}: 1}, s.counters)
	require.Empty(t, s.tasks)
	require.Empty(t, s.timed)
	require.Empty(t, s.hung)
}

// TestTasksThatNobodyCollectsAreBounded: a service that names its tasks anew, and that nobody
// scrapes, does not grow for as long as it lives. Tasks that are registered are kept.
func TestTasksThatNobodyCollectsAreBounded(t *testing.T) {
	c, s, _ := watchStandalone(t)
	require.NoError(t, c.Tasks().Register(tenure.Task{Name: "stays", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
	count := func(name string) {
		s.event(tenure.Event{Type: tenure.EventTaskAttemptFailed, Task: name, Attempt: 1, Took: time.Second})
		s.event(tenure.Event{Type: tenure.EventTaskSlow, Task: name, Attempt: 1})
	}
	count("stays")
	for i := range 3 * maxGone {
		count(fmt.Sprint("order-", i))
	}
	for name, kept := range map[string]int{"tasks": len(s.tasks), "counters": len(s.counters) / 2, "timed": len(s.timed), "hung": len(s.hung)} {
		require.LessOrEqual(t, kept, maxGone+1, name)
	}
	require.InDelta(t, 1, s.counters[series{TaskRetries, "stays"}], 0)
}

// TestGapsOfTheHistory: of the term before ours it must be known when it ended, and by a clock that
// was not set back since. After Close nothing is read.
func TestGapsOfTheHistory(t *testing.T) {
	for name, tt := range map[string]struct {
		ended, began int // ms after the beginning of the one before
		token        int64
		recorded     int
	}{
		"a gap":           {1000, 3000, 8, 1},
		"end not known":   {-1, 3000, 8, 0},
		"clock set back":  {1000, 500, 8, 0},
		"of another term": {1000, 3000, 9, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := miniredis.RunT(t)
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			defer client.Close()
			at := func(ms int) string { return fmt.Sprint(1_000_000_000_000 + ms) }
			add := func(values ...string) {
				_, err := server.XAdd("shop:leader:terms", "*", values)
				require.NoError(t, err)
			}
			add("event", "began", "token", "7", "holder", "b", "at", at(0))
			if tt.ended >= 0 {
				add("event", "ended", "token", "7", "holder", "b", "at", at(tt.ended), "reason", "resigned")
			}
			add("event", "began", "token", "8", "holder", "a", "at", at(tt.began))
			c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a"})
			require.NoError(t, err)
			r := &recorder{}
			s := Watch(c, r)
			s.readHistory("", tt.token)
			require.Len(t, r.recorded(), tt.recorded)
			s.Close()
			s.tookOver(tenure.Event{Token: 8})
			require.Zero(t, s.readers)
		})
	}
}

// TestAnswers: each sign alone says that Redis gives no usable answer, but for a health check.
func TestAnswers(t *testing.T) {
	sick := tenure.ElectionStatus{Err: fmt.Errorf("%w: sick", tenure.ErrWorkFailed)}
	require.True(t, answers(tenure.ElectionStatus{}, false))
	require.True(t, answers(sick, false))
	require.False(t, answers(sick, true))
	require.False(t, answers(tenure.ElectionStatus{}, true))
	require.False(t, answers(tenure.ElectionStatus{Err: tenure.ErrUnreachable}, false))
}

// TestTokenOfTheLeader is that of a follower too.
func TestTokenOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, leads := cluster.New(tenure.Options{Namespace: "shop", InstanceID: "a"})
		b, _ := cluster.New(tenure.Options{Namespace: "shop", InstanceID: "b"})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		for _, c := range []*tenure.Coordinator{a, b} {
			go func() { ended <- c.Run(ctx) }() // ends with stop
		}
		synctest.Wait()
		leads.Lead()
		time.Sleep(time.Minute)
		term, leading := a.Elector().Term()
		require.True(t, leading)
		for _, c := range []*tenure.Coordinator{a, b} {
			s := Watch(c, &recorder{})
			require.Equal(t, map[string]float64{"default": float64(term.Token)}, scrape(t, s, TermToken))
			s.Close()
		}
		stop()
		require.NoError(t, errors.Join(<-ended, <-ended))
	})
}

// TestTasksAmongThousands: a list that was cut off has the tasks of this process all the same.
func TestTasksAmongThousands(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	for i := range 1001 {
		_, err := server.SetAdd("shop:tasks", fmt.Sprint("other-", i))
		require.NoError(t, err)
	}
	c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	require.NoError(t, c.Tasks().Register(tenure.Task{Name: "t", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
	_, err = c.Tasks().List(t.Context())
	require.ErrorIs(t, err, tenure.ErrTruncated)
	s := Watch(c, &recorder{})
	defer s.Close()
	found := map[string]float64{}
	s.ofTasks(t.Context(), []string{"t"}, map[string]bool{"": true}, map[series]float64{}, func(m *Metric, value float64, labels ...string) {
		if m == TaskPaused {
			found[strings.Join(labels, ",")] = value
		}
	})
	require.Equal(t, map[string]float64{"t": 0}, found)
}

// TestHoldOfAnotherLeader: a new leader reports the hold that the one before it has begun, so that
// an alert goes on.
func TestHoldOfAnotherLeader(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	require.NoError(t, server.Set("shop:beats:hold", "1700000000000 0 4 another"))
	c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	s := Watch(c, &recorder{})
	defer s.Close()
	held := func() (n float64) {
		s.registry(t.Context(), true, func(m *Metric, value float64, _ ...string) {
			if m == SweepHeld {
				n = value
			}
		})
		return n
	}
	require.InDelta(t, 4, held(), 0)
	server.Del("shop:beats:hold")
	require.Zero(t, held())
}

// TestRefusals: a right is missing as long as something lacks it.
func TestRefusals(t *testing.T) {
	bad := fmt.Errorf("the last call: %w", &store.Error{Kind: tenure.ErrMisconfigured, Refused: true})
	wrong := &store.Error{Kind: tenure.ErrMisconfigured}
	for name, tt := range map[string]struct {
		status  tenure.ElectionStatus
		unread  bool
		missing string
	}{
		"nothing":         {},
		"scripts":         {status: tenure.ElectionStatus{Err: bad}, missing: "scripts"},
		"INFO":            {unread: true, missing: "info"},
		"INFO once more":  {status: tenure.ElectionStatus{HistoryWitness: true}, unread: true},
		"subscription":    {status: tenure.ElectionStatus{Subscription: tenure.Subscription{Err: bad}}, missing: "subscribe"},
		"no own hints":    {status: tenure.ElectionStatus{Subscription: tenure.Subscription{Err: bad, Active: true}}, missing: "publish"},
		"no right helps":  {status: tenure.ElectionStatus{Err: wrong, Subscription: tenure.Subscription{Err: wrong}}},
		"down, not wrong": {status: tenure.ElectionStatus{Err: tenure.ErrUnreachable, Subscription: tenure.Subscription{Err: tenure.ErrUnreachable}}},
	} {
		missing := map[string]bool{}
		refusals(tt.status, tt.unread, missing)
		want := map[string]bool{}
		if tt.missing != "" {
			want[tt.missing] = true
		}
		require.Equal(t, want, missing, name)
	}
}
