package tenure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

func TestEventsOfATermInOrder(t *testing.T) {
	inElection(t, func(o *Options) { o.Election.Role = "cleanup" }, func(s *election) {
		s.store.hold("other", time.Second)
		fails := s.after(midTerm, func() error { return errBroken })
		terms := 0
		s.run(func(ctx context.Context, term Term) error {
			if terms++; terms > 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			return fails(ctx, term)
		})
		s.at(5 * time.Second)
		s.store.on(on("renew", fate{err: errNetwork}))
		s.at(11 * time.Second)
		s.store.on(func(storeCall) fate { return fate{} })
		s.at(time.Minute)
		require.NoError(s, s.stop())
		var told []string
		for _, e := range s.events {
			require.Equal(s, "cleanup", e.Role)
			require.Equal(s, "me", e.InstanceID)
			require.Zero(s, e.Dropped)
			if e.Type == EventElectionWaiting {
				e.Subject = e.Reason
			}
			told = append(told, fmt.Sprintf("%s %d %s", e.Type, e.Token, e.Subject))
		}
		require.Equal(s, []string{
			"election_started 0 ", "leader_changed 1 other", "election_waiting 0 lease", "term_began 2 ", "leader_changed 2 me",
			"work_failed 2 ", "term_ended 2 ", "election_waiting 0 penalty", "lease_released 2 ",
			"term_began 3 ", "leader_changed 3 me", "redis_down 0 ", "renewal_failed 3 ", "work_failed 3 ", "term_ended 3 ", "election_waiting 0 penalty",
			"lease_released 3 ", "redis_up 0 ", "term_began 4 ", "leader_changed 4 me", "term_ended 4 ", "lease_released 4 ",
		}, told)
	})
}

// observed collects what one observer is told, and fails when it is told two things at once.
func observed(t *testing.T, b *eventBus, call func(Event)) (told func() []Event, stop func()) {
	var mu sync.Mutex
	var events []Event
	stop = b.observe(func(e Event) {
		if !mu.TryLock() {
			t.Error("called while it was being called")
			return
		}
		defer mu.Unlock()
		events = append(events, e)
		call(e)
	})
	return func() []Event { mu.Lock(); defer mu.Unlock(); return events }, stop
}

// inBubble runs act with an event bus; what observers hold up must be released.
func inBubble(t *testing.T, act func(*testing.T, *eventBus)) {
	synctest.Test(t, func(t *testing.T) { act(t, newEventBus("me")) })
}

func TestObserverHearsInOrderOneAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		told, _ := observed(t, b, func(Event) { time.Sleep(time.Millisecond) })
		var publishing sync.WaitGroup
		for publisher := range 10 {
			publishing.Go(func() {
				for i := range 50 {
					b.publish(Event{Attempt: publisher, Count: i})
				}
			})
		}
		publishing.Wait()
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 500)
		next := make(map[int]int)
		for _, e := range told() {
			require.Equal(t, next[e.Attempt], e.Count, "of one publisher, in order")
			next[e.Attempt]++
		}
	})
}

// TestEventTimesAreInTheOrderOfDelivery: many publishers at once, and no event is older than the
// one before it.
func TestEventTimesAreInTheOrderOfDelivery(t *testing.T) {
	b := newEventBus("me")
	told, _ := observed(t, b, func(Event) {})
	events := 20_000
	if testing.Short() || simnet.Race { // each costs ten times as much
		events = 2_000
	}
	var publishing sync.WaitGroup
	for range 8 {
		publishing.Go(func() {
			for range events {
				b.publish(Event{})
			}
		})
	}
	publishing.Wait()
	require.NoError(t, b.flush(time.Now().Add(time.Minute)))
	before := time.Time{}
	for _, e := range told() {
		require.False(t, e.Time.Before(before), "%v after %v", e.Time, before)
		before = e.Time
	}
}

func TestObserverThatDoesNotKeepUpMissesTheOldest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		blocked := make(chan struct{})
		told, _ := observed(t, b, func(Event) { <-blocked })
		b.publish(Event{Count: -1})
		synctest.Wait() // it blocks
		const more = 10
		for i := range observerBacklog + more {
			b.publish(Event{Count: i})
		}
		close(blocked)
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1+observerBacklog)
		require.Equal(t, more, told()[1].Count)
		require.Equal(t, more, told()[1].Dropped)
		require.Zero(t, told()[2].Dropped)
	})
}

// TestFloodOfHearsayHidesNothing: anybody who may publish can send hints of changes without end.
// What this process did itself is delivered.
func TestFloodOfHearsayHidesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		blocked := make(chan struct{})
		told, _ := observed(t, b, func(Event) { <-blocked })
		b.publish(Event{Count: -1})
		synctest.Wait() // it blocks
		flood := func() {
			for range 2 * observerBacklog {
				b.publish(Event{Type: EventInstanceDown, Remote: true})
			}
		}
		for i := range observerBacklog {
			b.publish(Event{Count: i})
			if i < 10 {
				flood()
			}
		}
		flood()
		close(blocked)
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1+observerBacklog)
		for i, e := range told()[1:] {
			require.False(t, e.Remote)
			require.Equal(t, i, e.Count, "in order")
		}
		b.publish(Event{})
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Equal(t, 22*observerBacklog, told()[1].Dropped+told()[1+observerBacklog].Dropped)
	})
}

func TestObserverThatPanicsOrExitsHearsTheRest(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic(errBroken) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *eventBus) {
				told, _ := observed(t, b, func(e Event) {
					if e.Count%2 == 1 {
						fail()
					}
				})
				for i := range 5 {
					b.publish(Event{Count: i})
				}
				require.NoError(t, b.flush(time.Now().Add(time.Second)))
				require.Len(t, told(), 5)
			})
		})
	}
}

func TestObserverStopsItself(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		var stop func()
		var told func() []Event
		ready := make(chan struct{})
		told, stop = observed(t, b, func(Event) { <-ready; stop(); stop() })
		for range 5 {
			b.publish(Event{})
		}
		close(ready)
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1)
		b.publish(Event{})
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1)
		require.Empty(t, b.observers)
	})
}

// TestEventOfOneRoleOfMany: an event of one role looks at the observers of that role, and at those
// of everything, however many roles there are. What all elections share reaches all.
func TestEventOfOneRoleOfMany(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		const many = 1000
		var heard atomic.Int64
		hears := func(Event) { heard.Add(1) }
		b.observe(hears)
		var stops []func()
		for i := range many {
			stops = append(stops, electionBus{b, fmt.Sprint("role-", i)}.observe(hears))
		}
		looked := func(roles ...string) int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(slices.Collect(b.concerned(roles)))
		}
		for _, test := range []struct {
			publish func()
			looked  int
			heard   int64
		}{
			{func() { electionBus{b, "role-1"}.publish(Event{}) }, looked("role-1"), 2},
			{func() { electionBus{b, "another"}.publish(Event{}) }, looked("another"), 1},
			{func() { b.publish(Event{}) }, looked(), 1},
			{func() { b.notice(store.Notice{Kind: store.SubscriptionLost}) }, looked(b.observed()...), many + 1},
		} {
			heard.Store(0)
			test.publish()
			require.NoError(t, b.flush(time.Now().Add(time.Second)))
			require.Equal(t, test.heard, heard.Load())
			require.EqualValues(t, test.heard, test.looked)
		}
		for _, stop := range stops {
			stop()
		}
		require.Equal(t, 1, looked(b.observed()...))
	})
}

func TestFlushIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		blocked := make(chan struct{})
		observed(t, b, func(Event) { <-blocked })
		b.publish(Event{})
		began := time.Now()
		require.ErrorIs(t, b.flush(began.Add(time.Second)), ErrDrainTimeout)
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, b.flush(began), ErrDrainTimeout, "a deadline that has passed")
		close(blocked)
		synctest.Wait()
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
	})
}

func TestPublishingGoesOnWhileAFlushWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		told, _ := observed(t, b, func(Event) { time.Sleep(time.Microsecond) })
		var busy sync.WaitGroup
		for range 4 {
			busy.Go(func() {
				for range 200 {
					b.publish(Event{})
					time.Sleep(time.Microsecond)
				}
			})
			busy.Go(func() {
				for range 200 {
					if err := b.flush(time.Now().Add(time.Microsecond)); err != nil {
						assert.ErrorIs(t, err, ErrDrainTimeout)
					}
				}
			})
		}
		busy.Wait()
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 4*200)
	})
}

// An observer that blocks for ever, in whatever event, delays no renewal and no end of a term.
func TestBlockedObserverDelaysNothing(t *testing.T) {
	inElection(t, nil, func(s *election) {
		blocked := make(chan struct{})
		defer close(blocked)
		var calls atomic.Int32
		s.loop.bus.observe(func(Event) { calls.Add(1); <-blocked })
		s.run(s.honest(0))
		s.at(time.Minute)
		renewals := s.store.made("renew")
		require.Len(s, renewals, 20)
		for i, renewal := range renewals {
			require.Equal(s, time.Duration(i+1)*electionRenew, renewal.at)
		}
		require.NoError(s, s.Resign(context.Background()))
		require.Equal(s, time.Minute, s.now())
		require.EqualValues(s, 1, calls.Load())
	})
}

// Run returns when every observer has heard what there was to report.
func TestRunFlushesEvents(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.loop.bus.observe(func(e Event) {
			<-time.After(100 * time.Millisecond)
			s.note("%s", e.Type)
		})
		s.run(s.honest(0))
		require.NoError(s, s.stop())
		require.Contains(s, s.noted(), "lease_released")
	})
}

// logged renders one event as a line of text, without its time.
func logged(e Event) string {
	var out bytes.Buffer
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	logEvents(slog.New(handler))(e)
	return strings.TrimSpace(out.String())
}

func TestLogLines(t *testing.T) {
	for _, test := range []struct {
		event Event
		line  string
	}{
		{Event{Type: EventTermBegan, InstanceID: "me", Role: "r", Token: 7}, `level=INFO msg="acquired leadership" instance=me role=r token=7`},
		{Event{Type: EventTermEnded, InstanceID: "me", Token: 7, Reason: "lost", Err: ErrLost}, `level=WARN msg="leadership ended" instance=me token=7 reason=lost error="tenure: leadership lost"`},
		{Event{Type: EventTermEnded, InstanceID: "me", Token: 7, Reason: "failed", Err: ErrWorkFailed}, `level=WARN msg="leadership ended" instance=me token=7 reason=failed error="tenure: leader work failed"`},
		{Event{Type: EventTermEnded, InstanceID: "me", Token: 7, Reason: "stopped", Err: ErrStopped}, `level=INFO msg="leadership ended" instance=me token=7 reason=stopped`},
		{Event{Type: EventTermEnded, InstanceID: "me", Token: 7, Reason: "resigned", Err: ErrResigned}, `level=INFO msg="leadership ended" instance=me token=7 reason=resigned`},
		{
			Event{Type: EventTermEnded, InstanceID: "me", Token: 7, Reason: "resigned", Err: fmt.Errorf("leader work f: %w", ErrResigned)},
			`level=INFO msg="leadership ended" instance=me token=7 reason=resigned error="leader work f: tenure: leadership resigned"`,
		},
		{Event{Type: EventTransferFailed, InstanceID: "me", Token: 7, Subject: "you", Err: errBroken}, `level=WARN msg="transfer failed, this instance leads on" instance=me token=7 subject=you error="the disk is full"`},
		{
			Event{Type: EventTransferFailed, InstanceID: "me", Token: 7, Subject: "you", Reason: "preempt", Err: errBroken},
			`level=INFO msg="no better candidate takes the lease, this instance leads on" instance=me token=7 subject=you reason=preempt error="the disk is full"`,
		},
		{Event{Type: EventLeaseReclaimed, InstanceID: "me", Token: 7}, `level=WARN msg="redis had lost the lease, taken back" instance=me token=7`},
		{
			Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "hold", Time: time.Unix(-27, 0), Until: time.Unix(0, 0).UTC()},
			`level=INFO msg="waiting: redis has restarted, failed over or lost data, next election possible in 27s" instance=me reason=hold until=1970-01-01T00:00:00.000Z`,
		},
		{
			Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "young", Took: 3 * time.Second, Time: time.Unix(-27, -3e8), Until: time.Unix(0, 0).UTC()},
			`level=INFO msg="waiting: redis is 3s old, first election possible in 27s" instance=me took=3s reason=young until=1970-01-01T00:00:00.000Z`,
		},
		{
			Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "empty", Time: time.Unix(0, -25e7), Until: time.Unix(0, 0).UTC()},
			`level=INFO msg="waiting: redis knows nothing of this role, leaders are asked to renew, first election possible in 250ms" instance=me reason=empty until=1970-01-01T00:00:00.000Z`,
		},
		{
			Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "vanished", Time: time.Unix(-5, 0), Until: time.Unix(0, 0).UTC()},
			`level=INFO msg="waiting: the lease vanished before its end, next election possible in 5s" instance=me reason=vanished until=1970-01-01T00:00:00.000Z`,
		},
		{Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "lease"}, `level=INFO msg="waiting: another instance leads" instance=me reason=lease`},
		{Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "foreign"}, `level=INFO msg="waiting: another program holds the lease" instance=me reason=foreign`},
		{Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "penalty"}, `level=INFO msg="standing back after a term of its own" instance=me reason=penalty`},
		{Event{Type: EventElectionWaiting, InstanceID: "me", Reason: "unhealthy"}, `level=INFO msg="standing back: the health check fails" instance=me reason=unhealthy`},
		{Event{Type: EventHistoryUnread, InstanceID: "me"}, `level=WARN msg="redis does not report its history, a failover may be missed: grant +info" instance=me`},
		{Event{Type: EventLeaderChanged, InstanceID: "me"}, `level=INFO msg="nobody leads" instance=me`},
		{
			Event{Type: EventLeaderChanged, InstanceID: "me", Subject: "me", Former: "you", Reason: "lapsed", Token: 7},
			`level=WARN msg="leader changed, the former one is gone and has not given its lease back" instance=me token=7 subject=me former=you reason=lapsed`,
		},
		{Event{Type: EventLeaderChanged, InstanceID: "me", Subject: "you", Former: "me"}, `level=INFO msg="leader changed" instance=me subject=you former=me`},
		{Event{Type: EventLeaseReleased, InstanceID: "me", Token: 7}, `level=INFO msg="released leadership" instance=me token=7`},
		{Event{Type: EventLeaderChanged, InstanceID: "me", Subject: "x\n\x1b[31m"}, `level=INFO msg="leader changed" instance=me subject="x\n\x1b[31m"`},
		{Event{Type: EventRenewalFailed, InstanceID: "me", Err: errBroken}, `level=ERROR msg="failed to renew leadership" instance=me error="the disk is full"`},
		{Event{Type: EventRedisDown, InstanceID: "me", Err: errBroken}, `level=WARN msg="redis gives no usable answer" instance=me error="the disk is full"`},
		{Event{Type: EventRedisUp, InstanceID: "me"}, `level=INFO msg="redis answers again" instance=me`},
		{Event{Type: EventElectionMisconfigured, InstanceID: "me"}, `level=ERROR msg=misconfigured instance=me`},
		{Event{Type: EventRedisClockStepped, InstanceID: "me", Step: time.Hour}, `level=WARN msg="the clock of redis stepped" instance=me step=1h0m0s`},
		{Event{Type: EventWorkFailed, InstanceID: "me"}, `level=ERROR msg="leader work failed" instance=me`},
		{Event{Type: EventWorkOverrun, InstanceID: "me", Task: "t"}, `level=ERROR msg="work ignores the end of its context" instance=me task=t`},
		{Event{Type: EventCallsStuck, InstanceID: "me", Count: 16}, `level=ERROR msg="calls to redis hang" instance=me count=16`},
		{Event{Type: EventInstanceRegistered, InstanceID: "me"}, `level=INFO msg="registered instance" instance=me`},
		{Event{Type: EventDeregistrationFailed, InstanceID: "me"}, `level=WARN msg="deregistration failed, the record is left to be swept" instance=me`},
		{Event{Type: EventWorkDone, InstanceID: "me", Work: "main.warm"}, `level=INFO msg="leader work is done, the term goes on" instance=me work=main.warm`},
		{Event{Type: EventHeartbeatFailed, InstanceID: "me"}, `level=WARN msg="heartbeat failed" instance=me`},
		{Event{Type: EventInstanceJoined, InstanceID: "me", Subject: "x"}, `level=INFO msg="instance joined" instance=me subject=x`},
		{Event{Type: EventInstanceDrifted, InstanceID: "me", Subject: "x"}, `level=WARN msg="instance drifted" instance=me subject=x`},
		{Event{Type: EventInstanceRecovered, InstanceID: "me", Subject: "x"}, `level=INFO msg="instance recovered" instance=me subject=x`},
		{Event{Type: EventInstanceDown, InstanceID: "me", Subject: "x"}, `level=ERROR msg="removing stale instance" instance=me subject=x`},
		{Event{Type: EventInstanceLeft, InstanceID: "me", Subject: "x"}, `level=INFO msg="instance left" instance=me subject=x`},
		{Event{Type: EventInstanceDown, InstanceID: "me", Subject: "x", Remote: true}, `level=DEBUG msg="removing stale instance" instance=me subject=x`},
		{Event{Type: EventInstanceDuplicated, InstanceID: "me"}, `level=ERROR msg="another living process uses this instance ID" instance=me`},
		{Event{Type: EventMetricsFailed, InstanceID: "me"}, `level=WARN msg="metrics failed" instance=me`},
		{Event{Type: EventSweepFailed, InstanceID: "me"}, `level=WARN msg="sweep failed" instance=me`},
		{Event{Type: EventSweepHeld, InstanceID: "me", Count: 9}, `level=ERROR msg="too many instances are silent at once, holding the rest" instance=me count=9`},
		{Event{Type: EventTaskStarted, InstanceID: "me", Task: "t", Attempt: 2}, `level=DEBUG msg="task started" instance=me task=t attempt=2`},
		{
			Event{Type: EventTaskFinished, InstanceID: "me", Task: "t", Slot: time.Unix(0, 0).UTC(), Took: time.Second},
			`level=INFO msg="task finished" instance=me task=t slot=1970-01-01T00:00:00.000Z took=1s`,
		},
		{Event{Type: EventTaskAttemptFailed, InstanceID: "me", Err: errBroken}, `level=WARN msg="task attempt failed, another follows" instance=me error="the disk is full"`},
		{Event{Type: EventTaskFailed, InstanceID: "me", Err: errBroken}, `level=ERROR msg="task failed" instance=me error="the disk is full"`},
		{Event{Type: EventTaskFailed, InstanceID: "me", State: RunAbandoned}, `level=ERROR msg="task abandoned" instance=me`},
		{Event{Type: EventTaskCanceled, InstanceID: "me", Err: ErrCanceled}, `level=INFO msg="task canceled" instance=me error="tenure: run canceled"`},
		{Event{Type: EventTaskInterrupted, InstanceID: "me", Err: errBroken}, `level=INFO msg="task interrupted" instance=me error="the disk is full"`},
		{Event{Type: EventTaskSkipped, InstanceID: "me"}, `level=WARN msg="task slots skipped" instance=me`},
		{Event{Type: EventTasksHeld, InstanceID: "me", Count: 1, Err: errBroken}, `level=WARN msg="too few instances are active, no task starts" instance=me count=1 error="the disk is full"`},
		{Event{Type: EventTasksReleased, InstanceID: "me", Count: 2}, `level=INFO msg="enough instances are active, tasks start again" instance=me count=2`},
		{Event{Type: EventTaskBlocked, InstanceID: "me", Dropped: 3}, `level=ERROR msg="task stands still" instance=me dropped=3`},
		{Event{Type: "of another version", InstanceID: "me"}, ""},
	} {
		require.Equal(t, test.line, logged(test.event))
	}
}

// TestPanicsAreLoggedWithTheirStack: where the panic was stands in the record of the failure, and
// in that alone.
func TestPanicsAreLoggedWithTheirStack(t *testing.T) {
	panicked := &PanicError{Value: "oops", Stack: []byte("goroutine 1")}
	for _, kind := range []EventType{EventTaskAttemptFailed, EventTaskFailed, EventTaskBlocked, EventWorkFailed} {
		require.Contains(t, logged(Event{Type: kind, Err: panicked}), `stack="goroutine 1"`)
		require.Contains(t, logged(Event{Type: kind, Err: fmt.Errorf("cache: %w", panicked)}), `stack="goroutine 1"`)
		require.NotContains(t, logged(Event{Type: kind, Err: &PanicError{}}), "stack", "runtime.Goexit leaves none")
		require.NotContains(t, logged(Event{Type: kind, Err: errors.New("no")}), "stack")
	}
	require.NotContains(t, logged(Event{Type: EventTermEnded, Err: panicked}), "stack", "it was logged before")
}

// TestEveryEventIsLogged: every event there is has a line, so that none is forgotten when one is
// added, and one whose name is a fault is logged at Warn or above.
func TestEveryEventIsLogged(t *testing.T) {
	fault := regexp.MustCompile(`fail|down|lost|stuck|refused|unread|slow|tardy|skipped|blocked|held|overrun|misconfigured|duplicate|drifted|step`)
	source, err := os.ReadFile("events.go")
	require.NoError(t, err)
	declared := regexp.MustCompile(`EventType = "([a-z_]+)"`).FindAllSubmatch(source, -1)
	require.NotEmpty(t, declared)
	for _, event := range declared {
		level, message := logLine(Event{Type: EventType(event[1])})
		require.NotEmpty(t, message, "%s", event[1])
		if fault.Match(event[1]) {
			require.GreaterOrEqual(t, level, slog.LevelWarn, "%s", event[1])
		}
	}
}

// slowHandler is a slog.Handler that takes its time, and keeps the messages.
type slowHandler struct {
	slog.Handler
	election *election
	takes    time.Duration
}

func (h slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h slowHandler) Handle(_ context.Context, r slog.Record) error {
	<-time.After(h.takes)
	h.election.note("%s %s", r.Level, r.Message)
	return errors.New("the log is full")
}

func TestRepeatedErrorsAreOneRecordEach(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.loop.bus.observe(logEvents(slog.New(slowHandler{election: s})))
		s.run()
		s.store.on(on("", fate{err: errNetwork}))
		s.at(5 * time.Minute)
		s.store.on(nil)
		s.at(6 * time.Minute)
		s.store.hold("other", time.Hour)
		s.at(7 * time.Minute)
		require.NoError(s, s.stop())
		var lines []string
		for _, line := range s.noted() {
			if !strings.HasPrefix(line, "release") {
				lines = append(lines, line)
			}
		}
		require.Equal(s, []string{
			"INFO takes part in the election", "INFO acquired leadership", "INFO leader changed",
			"WARN redis gives no usable answer", "ERROR failed to renew leadership", "WARN leadership ended",
			"INFO standing back after a term of its own",
			"INFO nobody leads", "INFO redis answers again", "INFO acquired leadership", "INFO leader changed",
			"WARN leadership ended", "INFO leader changed", "INFO standing back after a term of its own", "INFO waiting: another instance leads",
		}, lines)
	})
}

func TestSlowLoggerDelaysNothing(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.loop.bus.observe(logEvents(slog.New(slowHandler{election: s, takes: 10 * time.Minute})))
		s.run(s.honest(0))
		s.at(time.Minute)
		require.Len(s, s.store.made("renew"), 20)
		err := s.stop()
		require.ErrorIs(s, err, ErrDrainTimeout)
		require.ErrorContains(s, err, "an observer of events")
		require.Equal(s, time.Minute+electionDrain, s.now())
		require.True(s, s.store.free())
	})
}

// Everything here sleeps in virtual time.

// canaryPassword is the password of Redis.
const canaryPassword = "canary-password-5f0c"

// canaries gathers the nonces that go to Redis, and every text that comes out of the process.
type canaries struct {
	mu     sync.Mutex
	nonces map[string]bool
	said   bytes.Buffer
}

// sent keeps the nonce of a lease script: ARGV 2 of acquire, renew and release, 5, 8 and so on of
// renew_all, with an error that repeats as much of the command as Redis does if it does not know
// it.
func (c *canaries) sent(cmd string, args []string, unknown bool) string {
	if !strings.HasPrefix(cmd, "EVAL") || len(args) < 5 || !strings.HasSuffix(args[4], ":term") {
		return ""
	}
	keys, _ := strconv.Atoi(args[1])
	if keys < 3 || len(args) < keys+4 { // others have fewer arguments
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if roles := keys / 3; roles > 1 && len(args) == 2+keys+4+3*roles {
		for i := range roles {
			c.nonces[args[keys+6+3*i]] = true
		}
	} else {
		c.nonces[args[keys+3]] = true
	}
	if !unknown {
		return ""
	}
	// Redis ends the list after 128 bytes: with short names the nonce is among them.
	return fmt.Sprintf("ERR unknown command '%s', with args beginning with: '%s'", strings.ToLower(cmd), strings.Join(args, "' '"))
}

// Write makes it the sink of a log.
func (c *canaries) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.Write(p)
}

// hears keeps what a value shows of itself, in every way that a program may print it.
func (c *canaries) hears(values ...any) {
	for _, value := range values {
		fmt.Fprintf(c, "%v\n%+v\n", value, value)
		if text, err := json.Marshal(value); err == nil {
			fmt.Fprintf(c, "%s\n", text)
		}
		slog.New(slog.NewJSONHandler(c, nil)).Info("value", "it", value)
	}
}

// TestNoSecretIsTold: nonces and the password of Redis are in no log, event, status, record, hint
// or error, whatever goes wrong, and a nonce lies nowhere in Redis but in the term hash.
func TestNoSecretIsTold(t *testing.T) {
	c := &canaries{nonces: map[string]bool{}}
	inCluster(t, func(w *cluster) {
		w.redis.Do(func(m *miniredis.Miniredis) { m.RequireAuth(canaryPassword) })
		var unknown atomic.Bool
		listen := func() {
			w.redis.Intercept(func(_, cmd string, args []string) string { return c.sent(cmd, args, unknown.Load()) })
		}
		listen()
		logger := slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelDebug}))
		password := func(o *redis.Options) { o.Password = canaryPassword }
		setup := func(o *Options) {
			o.Logger = logger
			o.ShutdownTimeout = 5 * time.Second
			o.Registry.Metadata = map[string]string{"zone": "a"}
		}
		panics := errors.New("a task that panics")
		join := func(name string) *instance {
			m := w.on(name, password, setup)
			m.Observe(func(e Event) { c.hears(e) })
			_, err := m.AddRole("cleanup", ElectionOptions{LeaseTTL: 10 * time.Second})
			require.NoError(t, err)
			require.NoError(t, m.Tasks().Register(Task{Name: "t", Schedule: Every(7 * time.Second), Run: func(_ context.Context, run TaskRun) error {
				c.hears(run)
				panic(panics)
			}}))
			return m.start(func(ctx context.Context, term Term) error {
				c.hears(term, ctx)
				<-ctx.Done()
				c.hears(context.Cause(ctx))
				return ctx.Err()
			})
		}
		look := func(m *instance) {
			ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
			defer cancel()
			term, _ := m.Elector().Term()
			leader, err := m.Elector().Leader(ctx)
			c.hears(m.Elector().Status(), term, leader, err)
			instances, err := m.Registry().Instances(ctx, InstanceQuery{})
			c.hears(instances, err)
			tasks, err := m.Tasks().List(ctx)
			c.hears(tasks, err)
			runs, err := m.Tasks().Runs(ctx, "t", 10)
			c.hears(runs, err)
		}
		a, b := join("a"), join("b")
		stranger := w.net.Client("stranger", password)
		wire := stranger.Subscribe(w.Context(), "tenure:events", "tenure:leader:events")
		hints := wire.Channel(redis.WithChannelHealthCheckInterval(0))
		listened := make(chan struct{})
		go func() { // ends with the subscription
			defer close(listened)
			for message := range hints {
				c.hears(message.Payload)
			}
		}()
		calm := func() {
			w.pass(30 * time.Second)
			look(a)
			look(b)
		}
		calm()
		nothing := func() {}
		for _, trouble := range []struct {
			name       string
			begin, end func()
		}{
			{"unknown command", func() { unknown.Store(true) }, func() { unknown.Store(false) }},
			{"no rights", func() { w.forbid("tenure:leader:term") }, listen},
			{"refused", func() { w.refuse("tenure:leader:term", "ERR something quite else") }, listen},
			{
				"foreign key",
				func() {
					w.redis.Do(func(m *miniredis.Miniredis) { m.Del("tenure:leader"); m.HSet("tenure:leader", "a", "b") })
				},
				func() { w.redis.Del("tenure:leader") },
			},
			{
				"bad token",
				func() { w.redis.Do(func(m *miniredis.Miniredis) { m.HSet("tenure:leader:term", "token", "NaN") }) },
				func() { w.redis.Do(func(m *miniredis.Miniredis) { m.HDel("tenure:leader:term", "token") }) },
			},
			{
				"wrong password",
				func() {
					w.redis.Do(func(m *miniredis.Miniredis) { m.RequireAuth("another") })
					w.net.Cut("a")
					w.net.Cut("b")
				},
				func() { w.redis.Do(func(m *miniredis.Miniredis) { m.RequireAuth(canaryPassword) }) },
			},
			{"frozen", func() { w.redis.Pause(15 * time.Second) }, nothing},
			{"flush", w.redis.FlushAll, nothing},
			{"del", func() { w.redis.Del("tenure:leader") }, nothing},
			{"resign", func() { _, _ = a.Elector().Resign(w.Context()), b.Elector().Resign(w.Context()) }, nothing},
		} {
			fmt.Fprintf(c, "trouble: %s\n", trouble.name)
			trouble.begin()
			w.pass(12 * time.Second)
			look(a)
			look(b)
			trouble.end()
			calm()
		}

		w.redis.Do(func(m *miniredis.Miniredis) {
			for _, key := range m.Keys() {
				if strings.HasSuffix(key, ":term") {
					continue
				}
				switch m.Type(key) {
				case "string":
					text, _ := m.Get(key)
					c.hears(key, text)
				case "hash":
					fields, _ := m.HKeys(key)
					for _, field := range fields {
						c.hears(key, field, m.HGet(key, field))
					}
				case "stream":
					entries, _ := m.Stream(key)
					c.hears(key, entries)
				case "set":
					members, _ := m.Members(key)
					c.hears(key, members)
				}
			}
		})
		for _, m := range []*instance{a, b} {
			_, err := m.stop()
			c.hears(err)
		}
		_ = wire.Close()
		_ = stranger.Close()
		<-listened
		_, err := NewElector(w.net.Client("a", password), ElectorOptions{Namespace: "{", Election: ElectionOptions{LeaseTTL: 1}})
		c.hears(err)
	})

	said := c.said.String()
	require.Greater(t, len(c.nonces), 10)
	require.Greater(t, len(said), 10_000)
	for _, sign := range []string{"misconfigured", "unknown command", "panics", "vacant", "leadership ended", "WRONGTYPE", "BADTERM"} {
		require.Contains(t, said, sign, "the test shows nothing unless it got that far")
	}
	for nonce := range c.nonces {
		require.Regexp(t, `^[0-9a-f]{32}$`, nonce)
		if at := strings.Index(said, nonce); at >= 0 {
			t.Fatalf("a nonce was told: …%s", said[max(0, at-300):at+40])
		}
	}
	if at := strings.Index(said, canaryPassword); at >= 0 {
		t.Fatalf("the password was told: …%s", said[max(0, at-300):at+40])
	}
}

// TestHostileErrorIsLogged: an error whose methods panic costs its text, not its line.
func TestHostileErrorIsLogged(t *testing.T) {
	for _, kind := range []EventType{EventTaskFailed, EventWorkFailed} {
		line := logged(Event{Type: kind, Err: (*OptionError)(nil)})
		require.Contains(t, line, `error="the Error method of the error failed"`)
	}
}

// TestObserveCalls: every call of a script is reported, a renewal with what was left of its term.
func TestObserveCalls(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		var mu sync.Mutex
		calls := make(map[string][]Call)
		a.ObserveCalls(func(Call) { panic("an observer") })
		a.ObserveCalls(func(Call) { runtime.Goexit() }) // as t.FailNow does
		stop := a.ObserveCalls(func(call Call) {
			mu.Lock()
			defer mu.Unlock()
			calls[call.Name] = append(calls[call.Name], call)
		})
		require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(time.Minute))))
		a.start()
		c.pass(2 * time.Minute)
		c.net.Partition("a", simnet.Both, a.opts.Election.LeaseTTL)
		c.pass(2 * a.opts.Election.LeaseTTL)
		mu.Lock()
		seen := maps.Clone(calls)
		clear(calls)
		mu.Unlock()
		for _, name := range []string{"acquire", "renew", "beat", "look", "open_task", "claim_task", "finish_task"} {
			require.NotEmpty(c, seen[name], name)
		}
		belief, failed := a.Guarantees().Belief, 0
		for _, call := range seen["renew"] {
			require.Equal(c, a.Elector().Role(), call.Role)
			if call.Err != nil {
				failed++
				require.ErrorIs(c, call.Err, ErrUnreachable)
				require.Zero(c, call.Margin)
				continue
			}
			require.Greater(c, call.Margin, belief-2*a.opts.Election.RenewInterval-time.Second)
			require.Less(c, call.Margin, belief)
		}
		require.Positive(c, failed)
		require.GreaterOrEqual(c, len(seen["renew"]), 11)
		stop()
		clear(calls)
		c.pass(time.Minute)
		require.Empty(c, calls)
		_, err := a.stop()
		require.NoError(c, err)
	})
}

// TestHangingObserverOfCalls: it delays nobody. What it does not take is dropped beyond its
// backlog, and counted, and Run says that it still runs.
func TestHangingObserverOfCalls(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		hangs := make(chan struct{})
		var taken, dropped, seen atomic.Int64
		a.ObserveCalls(func(call Call) {
			<-hangs
			taken.Add(1)
			dropped.Add(int64(call.Dropped))
		})
		a.ObserveCalls(func(Call) { seen.Add(1) })
		a.start()
		c.pass(time.Minute)
		term, leads := a.Elector().Term()
		require.True(c, leads)
		for range callBacklog {
			a.calls.ended(Call{Name: "beat"})
		}
		c.pass(10 * time.Minute)
		require.True(c, term.Valid())
		require.Greater(c, seen.Load(), int64(callBacklog))
		_, err := a.stop()
		var drain *DrainError
		require.ErrorAs(c, err, &drain)
		require.Equal(c, []string{"an observer of calls"}, drain.Running)
		close(hangs)
		synctest.Wait()
		require.EqualValues(c, callBacklog+1, taken.Load())
		a.calls.ended(Call{Name: "beat"}) // which says how many were dropped
		synctest.Wait()
		require.Equal(c, seen.Load(), taken.Load()+dropped.Load())
	})
}
