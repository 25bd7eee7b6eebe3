package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/telemetry"
	"github.com/tenure-go/tenure/tenuretest"
)

type nowhere struct{}

func (nowhere) Record(*telemetry.Metric, float64, ...string) {}
func (nowhere) Forget(string)                                {}

// watched is a coordinator on a miniredis, and what watches it.
func watched(t *testing.T, o tenure.ElectionOptions) (*tenure.Coordinator, *telemetry.Source) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a", Election: o})
	require.NoError(t, err)
	s := telemetry.Watch(c, nowhere{})
	t.Cleanup(s.Close)
	return c, s
}

// counts counts what is recorded.
type counts struct{ n atomic.Int64 }

func (c *counts) Record(*telemetry.Metric, float64, ...string) { c.n.Add(1) }
func (*counts) Forget(string)                                  {}

// TestNothingIsRecordedAfterClose: a source that is closed is not told of anything more.
func TestNothingIsRecordedAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := tenure.NewStandalone(tenure.Options{})
		require.NoError(t, err)
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "t", Schedule: tenure.Every(time.Second), Run: func(context.Context, tenure.TaskRun) error { return nil },
		}))
		recorded := new(counts)
		s := telemetry.Watch(c, recorded)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		time.Sleep(time.Minute)
		s.Close()
		synctest.Wait()
		before := recorded.n.Load()
		require.NotZero(t, before)
		time.Sleep(time.Minute)
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, before, recorded.n.Load())
	})
}

// TestRedisDownBehindAHealthCheck: a role whose health check fails hides no Redis that is down, be
// it the same role or another.
func TestRedisDownBehindAHealthCheck(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a", ShutdownTimeout: time.Second})
	require.NoError(t, err)
	_, err = c.AddRole("sick", tenure.ElectionOptions{Health: func(context.Context) error { return errors.New("sick") }})
	require.NoError(t, err)
	s := telemetry.Watch(c, nowhere{})
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	require.Eventually(t, func() bool {
		return gauge(s, telemetry.RedisUp) == 0
	}, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// TestNoRightIsMissingBeforeItIsRefused: a candidate that has only looked who leads, because it is
// not healthy, has not asked for INFO, so that nobody has refused it.
func TestNoRightIsMissingBeforeItIsRefused(t *testing.T) {
	c, s := watched(t, tenure.ElectionOptions{
		LeaseTTL: time.Second, RenewInterval: 200 * time.Millisecond, Health: func(context.Context) error { return errors.New("sick") },
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	require.Eventually(t, func() bool { return !c.Elector().Status().LastAnswer.IsZero() }, time.Minute, 10*time.Millisecond)
	require.Zero(t, gauge(s, telemetry.RightsMissing, "info"))
	require.InDelta(t, 1, gauge(s, telemetry.RedisUp), 0)
	stop()
	require.NoError(t, <-ended)
}

// TestOtherFaultsAreNoMissingRights: no right helps if the password is wrong, or if something else
// has written the key of the lease.
func TestOtherFaultsAreNoMissingRights(t *testing.T) {
	for name, spoil := range map[string]func(server *miniredis.Miniredis){
		"password": func(server *miniredis.Miniredis) { server.RequireAuth("another") },
		"key": func(server *miniredis.Miniredis) {
			_, err := server.Push("shop:leader", "of something else")
			require.NoError(t, err)
		},
	} {
		server := miniredis.RunT(t)
		spoil(server)
		options := &redis.Options{Addr: server.Addr(), MaxRetries: -1}
		if name == "password" {
			options.Password = "wrong"
		}
		client := redis.NewClient(options)
		c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a", ShutdownTimeout: time.Second})
		require.NoError(t, err)
		s := telemetry.Watch(c, nowhere{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		require.Eventually(t, func() bool { return errors.Is(c.Elector().Status().Err, tenure.ErrMisconfigured) }, time.Minute, 10*time.Millisecond, name)
		require.Eventually(t, func() bool {
			hints := c.Elector().Status().Subscription
			return hints.Active || hints.Err != nil
		}, time.Minute, 10*time.Millisecond, name)
		up := map[string]float64{"password": 0, "key": 1}[name]
		require.InDelta(t, up, gauge(s, telemetry.RedisUp), 0, "%s: Redis that finds a key of something else has answered", name)
		for _, right := range []string{"info", "publish", "subscribe", "scripts"} {
			require.Zero(t, gauge(s, telemetry.RightsMissing, right), "%s: %s", name, right)
		}
		server.SetError("LOADING Redis is loading the dataset in memory")
		require.Eventually(t, func() bool { return gauge(s, telemetry.RedisUp) == 0 }, time.Minute, 10*time.Millisecond, name)
		stop()
		if err := <-ended; err != nil { // of the last words
			t.Log(err)
		}
		s.Close()
		require.NoError(t, client.Close())
	}
}

// TestRedisUpWithoutAnElection: a process that is in the registry only goes by its heartbeats.
func TestRedisUpWithoutAnElection(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	c, err := tenure.New(client, tenure.Options{
		Namespace: "shop", InstanceID: "a", NoDefaultRole: true, ShutdownTimeout: time.Minute,
		Registry: tenure.RegistryOptions{HeartbeatInterval: 100 * time.Millisecond},
	})
	require.NoError(t, err)
	s := telemetry.Watch(c, nowhere{})
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	require.Eventually(t, func() bool { return c.State() == tenure.InstanceActive }, time.Minute, 10*time.Millisecond)
	require.InDelta(t, 1, gauge(s, telemetry.RedisUp), 0)
	server.SetError("LOADING Redis is loading the dataset in memory")
	require.Eventually(t, func() bool { return gauge(s, telemetry.RedisUp) == 0 }, time.Minute, 10*time.Millisecond)
	server.SetError("")
	require.Eventually(t, func() bool { return gauge(s, telemetry.RedisUp) == 1 }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// answering is a hook that answers each command with an error of Redis, once there is one.
type answering struct {
	redis.Hook
	text atomic.Pointer[string]
	only string // the command that it answers; "": each
}

// redisError is an error that Redis has answered with.
type redisError string

func (e redisError) Error() string { return string(e) }

func (redisError) RedisError() {}

func (a *answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answering) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if text := a.text.Load(); text != nil && *text != "" && (a.only == "" || a.only == cmd.Name()) {
			cmd.SetErr(redisError(*text))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (a *answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRightThatOnlyHeartbeatsLack: a right is missing, too, if no election needs it, until it was
// not refused any more for a while.
func TestRightThatOnlyHeartbeatsLack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(simnet.Options{})
		defer net.Close()
		net.NewServer(simnet.Addr, simnet.ServerOptions{})
		client, said := net.Client("a", nil), new(answering)
		client.AddHook(said)
		say := func(text string) { said.text.Store(&text) }
		c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a", NoDefaultRole: true})
		require.NoError(t, err)
		s := telemetry.Watch(c, nowhere{})
		defer s.Close()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		missing := func() float64 {
			time.Sleep(time.Minute)
			synctest.Wait()
			return gauge(s, telemetry.RightsMissing, "scripts")
		}
		require.Zero(t, missing())
		say("LOADING Redis is loading the dataset in memory")
		require.Zero(t, missing())
		refused := "NOPERM this user has no permissions to run the 'evalsha' command"
		say(refused)
		require.InDelta(t, 1, missing(), 0)
		say("")
		require.InDelta(t, 1, missing(), 0, "other calls may need it")
		time.Sleep(8 * time.Minute)
		require.Zero(t, missing())
		stop()
		require.NoError(t, <-ended)
	})
}

// TestRightThatOnlyTheListOfTasksLacks: without it a leader says nothing of its tasks, and an alert
// takes them for tasks that no leader has registered. No script needs it.
func TestRightThatOnlyTheListOfTasksLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(simnet.Options{})
		defer net.Close()
		net.NewServer(simnet.Addr, simnet.ServerOptions{})
		client, said := net.Client("a", nil), &answering{only: "sscan"}
		client.AddHook(said)
		c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(t, err)
		require.NoError(t, c.Tasks().Register(tenure.Task{Name: "t", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
		s := telemetry.Watch(c, nowhere{})
		defer s.Close()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		time.Sleep(2 * time.Minute)
		require.True(t, c.IsLeader())
		require.Zero(t, gauge(s, telemetry.TaskOverdue, "t"))
		require.Zero(t, gauge(s, telemetry.RightsMissing, "scripts"))
		refused := "NOPERM this user has no permissions to run the 'sscan' command"
		said.text.Store(&refused)
		require.InDelta(t, -1, gauge(s, telemetry.TaskOverdue, "t"), 0, "nothing is said of it")
		require.InDelta(t, 1, gauge(s, telemetry.RightsMissing, "scripts"), 0)
		stop()
		require.NoError(t, <-ended)
	})
}

// TestHandOverWithinAMillisecond: Redis's history has whole milliseconds. A hand-over that begins
// and ends within one is the best there is, not one that nobody has measured.
func TestHandOverWithinAMillisecond(t *testing.T) {
	server := miniredis.RunT(t)
	run := func(id string, sink telemetry.Sink) (c *tenure.Coordinator, stop func()) {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: id})
		require.NoError(t, err)
		s := telemetry.Watch(c, sink)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		stop = sync.OnceFunc(func() {
			cancel()
			require.NoError(t, <-ended)
			s.Close()
			require.NoError(t, client.Close())
		})
		t.Cleanup(stop)
		return c, stop
	}
	first, took := make(gaps, 1), make(gaps, 1)
	a, stop := run("a", first)
	require.Eventually(t, a.IsLeader, time.Minute, time.Millisecond)
	b, _ := run("b", took)
	require.Eventually(t, func() bool { return b.Elector().Status().Leader == "a" }, time.Minute, time.Millisecond)
	server.SetTime(time.Now()) // from now on it stands still
	stop()
	select {
	case gap := <-took:
		require.Less(t, gap, time.Minute.Seconds()) // 0, unless the first process was slow to send its release
	case <-time.After(time.Minute):
		t.Fatal("the hand-over was not measured")
	}
	require.Empty(t, first, "nobody has led before")
}

// histories counts what reads the history of a role.
type histories struct {
	redis.Hook
	on, most, all atomic.Int64
}

func (*histories) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*histories) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *histories) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "xrevrange" {
			return next(ctx, cmd)
		}
		h.all.Add(1)
		h.most.Store(max(h.on.Add(1), h.most.Load()))
		defer h.on.Add(-1)
		return next(ctx, cmd)
	}
}

// TestHistoriesOfManyRoles: a process that begins to lead many roles at one moment reads the
// history of each, few at once: its client is that of the elections.
func TestHistoriesOfManyRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := simnet.New(simnet.Options{})
		defer net.Close()
		net.NewServer(simnet.Addr, simnet.ServerOptions{})
		client := net.Client("a", nil)
		var reads histories
		client.AddHook(&reads)
		c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a", NoDefaultRole: true})
		require.NoError(t, err)
		const roles = 100
		for i := range roles {
			_, err := c.AddRole(fmt.Sprint("role-", i), tenure.ElectionOptions{})
			require.NoError(t, err)
		}
		s := telemetry.Watch(c, nowhere{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		time.Sleep(time.Minute)
		stop()
		require.NoError(t, <-ended)
		s.Close()
		require.EqualValues(t, roles, reads.all.Load())
		require.LessOrEqual(t, reads.most.Load(), int64(4))
	})
}

// gaps takes what is recorded of failovers.
type gaps chan float64

func (g gaps) Forget(string) {}

func (g gaps) Record(m *telemetry.Metric, value float64, _ ...string) {
	if m == telemetry.Failover {
		g <- value
	}
}

// gauge is the value of a series; -1: there is none.
func gauge(s *telemetry.Source, of *telemetry.Metric, labels ...string) float64 {
	found := -1.0
	s.Collect(context.Background(), func(m *telemetry.Metric, value float64, has ...string) {
		if m == of && slices.Equal(labels, has) {
			found = value
		}
	})
	return found
}

// durations counts what is recorded of how long attempts took, by task.
type durations struct {
	mu    sync.Mutex
	tasks map[string]int
}

func (d *durations) Forget(task string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.tasks, task)
}

func (d *durations) Record(m *telemetry.Metric, _ float64, labels ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m == telemetry.TaskDuration {
		d.tasks[labels[0]]++
	}
}

// TestAttemptIsTimedOnce: a run that ends between two attempts, because it is canceled or its term
// is over, names the attempt before again, which took no second time.
func TestAttemptIsTimedOnce(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	d := durations{tasks: make(map[string]int)}
	s := telemetry.Watch(c, &d)
	defer s.Close()
	for _, name := range []string{"canceled", "stopped"} {
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: name, Schedule: tenure.OnDemand(), RunOnElection: true, Abandoned: tenure.AbandonedFail,
			Retry: tenure.RetryPolicy{Attempts: 2, Backoff: time.Hour},
			Run:   func(context.Context, tenure.TaskRun) error { return errors.New("sick") },
		}))
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	for _, name := range []string{"canceled", "stopped"} {
		require.Eventually(t, func() bool { return gauge(s, telemetry.TaskRetries, name) == 1 }, time.Minute, 10*time.Millisecond)
	}
	require.NoError(t, c.Tasks().Cancel(t.Context(), "canceled"))
	require.Eventually(t, func() bool { return gauge(s, telemetry.TaskRuns, "canceled", "canceled") == 1 }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	require.InDelta(t, 1, gauge(s, telemetry.TaskRuns, "stopped", "failed"), 0)
	require.Equal(t, map[string]int{"canceled": 1, "stopped": 1}, d.tasks)
}

// TestUnownedEndsWithRun: a process whose Run has ended hears of no leader, and counts no longer.
func TestUnownedEndsWithRun(t *testing.T) {
	c, s := watched(t, tenure.ElectionOptions{Ineligible: true})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	unowned := func() float64 { return gauge(s, telemetry.Unowned, "default") }
	require.Eventually(t, func() bool { return unowned() > 0 }, time.Minute, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	at := unowned()
	require.Never(t, func() bool { return unowned() > at }, 100*time.Millisecond, 10*time.Millisecond)
}

// TestFailuresAreCountedFromZero: what a leader finds abandoned when its term begins is an increase
// of a series that was there before, or no alert would see it.
func TestFailuresAreCountedFromZero(t *testing.T) {
	c, s := watched(t, tenure.ElectionOptions{})
	require.NoError(t, c.Tasks().Register(tenure.Task{
		Name: "rates", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil },
	}))
	for _, state := range []tenure.RunState{tenure.RunFailed, tenure.RunAbandoned} {
		require.Zero(t, gauge(s, telemetry.TaskRuns, "rates", string(state)), "it does not lead")
	}
	require.Zero(t, gauge(s, telemetry.TaskOverrun, "rates"), "it does not lead")
}

// TestTaskHangsUntilItsAttemptEnds: the count of attempts that hang grows once, whether they hang
// for an hour or for a month, and slots that OverlapSkip passes over are not late.
func TestTaskHangsUntilItsAttemptEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{Namespace: "shop", InstanceID: "a"})
		s := telemetry.Watch(c, nowhere{})
		goOn := make(chan struct{})
		run := func(context.Context, tenure.TaskRun) error { <-goOn; return nil }
		require.NoError(t, c.Tasks().Register(tenure.Task{Name: "rates", Schedule: tenure.Every(time.Hour), Run: run}))
		require.NoError(t, c.Tasks().Register(tenure.Task{Name: "asked", Schedule: tenure.OnDemand(), Run: run}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		synctest.Wait()
		require.InDelta(t, -1, gauge(s, telemetry.TaskHanging, "rates"), 0, "it does not lead")
		control.Lead()
		time.Sleep(time.Hour)
		_, err := c.Tasks().Trigger(t.Context(), "asked")
		require.NoError(t, err)
		hanging := func() string {
			synctest.Wait()
			return fmt.Sprint(gauge(s, telemetry.TaskHanging, "rates"), gauge(s, telemetry.TaskHanging, "asked"))
		}
		time.Sleep(59 * time.Minute)
		require.Equal(t, "0 0", hanging())
		time.Sleep(5*time.Hour + 30*time.Minute)
		require.Equal(t, "1 1", hanging())
		require.InDelta(t, 1, gauge(s, telemetry.TaskOverrun, "rates"), 0)
		require.Zero(t, gauge(s, telemetry.TaskOverdue, "rates"))
		close(goOn)
		require.Equal(t, "0 0", hanging())
		stop()
		require.NoError(t, <-ended)
		s.Close()
	})
}

// TestTaskThatStandsStillIsOverdue: whether its schedule fails or its record cannot be read, no
// slot of it is known to be late, and no alert would say that it does not run. Of a record that
// cannot be read nothing else is said: that the task never succeeded would be made up.
func TestTaskThatStandsStillIsOverdue(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	c, err := tenure.New(client, tenure.Options{Namespace: "shop", InstanceID: "a", Election: tenure.ElectionOptions{
		Safety: tenure.SafetyOptions{RestartGuard: -1},
	}})
	require.NoError(t, err)
	s := telemetry.Watch(c, nowhere{})
	t.Cleanup(s.Close)
	var ill illSchedule
	nothing := func(context.Context, tenure.TaskRun) error { return nil }
	require.NoError(t, c.Tasks().Register(tenure.Task{Name: "well", Schedule: tenure.Every(time.Hour), Run: nothing}))
	require.NoError(t, c.Tasks().Register(tenure.Task{Name: "spoilt", Schedule: tenure.Every(time.Hour), RunOnElection: true, Run: nothing}))
	require.NoError(t, c.Tasks().Register(tenure.Task{Name: "ill", Schedule: &ill, Run: nothing}))
	ill.Store(true)
	stands := make(chan struct{}, 1)
	defer c.Observe(func(e tenure.Event) {
		if e.Type == tenure.EventTaskBlocked && e.Task == "ill" {
			stands <- struct{}{}
		}
	})()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	require.Eventually(t, func() bool { return gauge(s, telemetry.TaskRuns, "spoilt", "succeeded") == 1 }, time.Minute, 10*time.Millisecond)
	require.Zero(t, gauge(s, telemetry.TaskOverdue, "spoilt"))
	require.NotZero(t, gauge(s, telemetry.TaskLastSuccess, "spoilt"))
	server.Del("shop:task:spoilt")
	require.NoError(t, server.Set("shop:task:spoilt", "of something else"))
	require.InDelta(t, 1, gauge(s, telemetry.TaskOverdue, "spoilt"), 0)
	<-stands
	require.InDelta(t, 1, gauge(s, telemetry.TaskOverdue, "ill"), 0)
	require.InDelta(t, -1, gauge(s, telemetry.TaskLastSuccess, "spoilt"), 0)
	require.Zero(t, gauge(s, telemetry.TaskOverdue, "well"))
	require.NoError(t, c.Tasks().Pause(t.Context(), "ill", ""))
	require.Zero(t, gauge(s, telemetry.TaskOverdue, "ill"), "nobody waits for a task that is paused")
	stop()
	require.NoError(t, <-ended)
}

// illSchedule fails once it is ill.
type illSchedule struct{ atomic.Bool }

func (*illSchedule) Identity() string { return "ill" }

func (s *illSchedule) Next(after time.Time) time.Time {
	if s.Load() {
		panic("ill")
	}
	return after.Add(time.Hour)
}

// TestRoleNamedDefault: a role of that name, which may come while the process runs, shares no
// series with the default role.
func TestRoleNamedDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{Namespace: "shop", InstanceID: "a"})
		s := telemetry.Watch(c, nowhere{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		control.Lead()
		control.Depose()
		synctest.Wait()
		require.InDelta(t, 1, gauge(s, telemetry.LeadershipChanges, "default", "lost"), 0)
		_, err := c.AddRole("default", tenure.ElectionOptions{})
		require.NoError(t, err)
		control.Lead("default")
		synctest.Wait()
		require.InDelta(t, 0, gauge(s, telemetry.Leader, "default"), 0)
		require.InDelta(t, 1, gauge(s, telemetry.Leader, "role:default"), 0)
		require.InDelta(t, 1, gauge(s, telemetry.LeadershipChanges, "default", "lost"), 0)
		require.InDelta(t, 0, gauge(s, telemetry.LeadershipChanges, "role:default", "lost"), 0)
		stop()
		require.NoError(t, <-ended)
		s.Close()
	})
}

// TestUnregisteredTasksAreForgotten: their series end, when the last that they count was collected.
func TestUnregisteredTasksAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{Namespace: "shop", InstanceID: "a"})
		d := durations{tasks: make(map[string]int)}
		s := telemetry.Watch(c, &d)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		control.Lead()
		task := func(name string) tenure.Task {
			return tenure.Task{Name: name, Schedule: tenure.Every(time.Minute), Run: func(context.Context, tenure.TaskRun) error {
				time.Sleep(10 * time.Second)
				return nil
			}}
		}
		series := func() map[string]int {
			found := make(map[string]int)
			s.Collect(t.Context(), func(m *telemetry.Metric, _ float64, labels ...string) {
				if len(m.Labels) > 0 && m.Labels[0] == "task" {
					found[labels[0]]++
				}
			})
			return found
		}
		for range 3 {
			require.NoError(t, c.Tasks().Register(task("stays")))
			require.NoError(t, c.Tasks().Register(task("goes")))
			time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(5*time.Minute + time.Second))) // a run is on
			require.Equal(t, series()["stays"], series()["goes"])
			runs := gauge(s, telemetry.TaskRuns, "goes", "succeeded")
			require.InDelta(t, runs, d.tasks["goes"], 0)
			require.NoError(t, c.Tasks().Unregister(t.Context(), "goes"))
			require.NoError(t, c.Tasks().Unregister(t.Context(), "stays"))
			synctest.Wait()
			require.InDelta(t, runs+1, gauge(s, telemetry.TaskRuns, "goes", "succeeded"), 0, "the run that was on")
			require.NoError(t, c.Tasks().Register(task("stays"))) // it may come back at once
			require.Zero(t, series()["goes"])
			require.NotZero(t, series()["stays"])
			require.InDelta(t, runs+1, gauge(s, telemetry.TaskRuns, "stays", "succeeded"), 0)
			require.NotContains(t, d.tasks, "goes")
			require.NoError(t, c.Tasks().Unregister(t.Context(), "stays"))
			require.NotEmpty(t, series())
			require.Empty(t, series())
			require.Empty(t, d.tasks)
		}
		stop()
		require.NoError(t, <-ended)
		s.Close()
	})
}
