package tenure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

func noTask(context.Context, TaskRun) error { return nil }

// TestRegisterRefuses: all problems at once, each with field, value and reason.
func TestRegisterRefuses(t *testing.T) {
	s := newTasks(memstore.NewTasks(readClock), newEventBus("i"), "i")
	good := Task{Name: "t", Schedule: Every(time.Hour), Run: noTask}
	with := func(change func(*Task)) Task {
		task := good
		change(&task)
		return task
	}
	own := func(next func(time.Time) time.Time) Schedule { return ownSchedule{next, "own"} }
	for field, tasks := range map[string][]Task{
		"Task.Name": {
			with(func(t *Task) { t.Name = "" }), with(func(t *Task) { t.Name = "a b" }), with(func(t *Task) { t.Name = "a:b" }),
			with(func(t *Task) { t.Name = "\x1b[31m" }), with(func(t *Task) { t.Name = strings.Repeat("x", 10_000) }),
		},
		"Task.Run": {with(func(t *Task) { t.Run = nil })},
		"Task.Schedule": {
			with(func(t *Task) { t.Schedule = nil }),
			with(func(t *Task) { t.Schedule = Every(0) }), with(func(t *Task) { t.Schedule = Every(-time.Hour) }),
			with(func(t *Task) { t.Schedule = Every(time.Millisecond) }), with(func(t *Task) { t.Schedule = Every(time.Second + time.Microsecond) }),
			with(func(t *Task) { t.Schedule = Every(math.MaxInt64) }),
			with(func(t *Task) { t.Schedule = Cron("") }), with(func(t *Task) { t.Schedule = Cron("61 * * * *") }),
			with(func(t *Task) { t.Schedule = Cron("CRON_TZ=Nowhere/City 0 * * * *") }), with(func(t *Task) { t.Schedule = Cron("@every 5m") }),
			with(func(t *Task) { t.Schedule = own(func(time.Time) time.Time { panic("no") }) }),
			with(func(t *Task) { t.Schedule = own(func(after time.Time) time.Time { return after }) }),
			with(func(t *Task) { t.Schedule = (*ownSchedule)(nil) }), with(func(t *Task) { t.Schedule = ownSchedule{next: func(time.Time) time.Time { return time.Time{} }} }),
		},
		"Task.Timeout":          {with(func(t *Task) { t.Timeout = -1 }), with(func(t *Task) { t.Timeout = math.MaxInt64 })},
		"Task.Jitter":           {with(func(t *Task) { t.Jitter = -1 }), with(func(t *Task) { t.Jitter = 25 * time.Hour }), with(func(t *Task) { t.Jitter = time.Hour })},
		"Task.Grace":            {with(func(t *Task) { t.Grace = -1 }), with(func(t *Task) { t.Grace = math.MaxInt64 })},
		"Task.InitialDelay":     {with(func(t *Task) { t.InitialDelay = -1 }), with(func(t *Task) { t.InitialDelay = math.MaxInt64 })},
		"Task.Overlap":          {with(func(t *Task) { t.Overlap = "Skip" }), with(func(t *Task) { t.Overlap = "run_once" })},
		"Task.Missed":           {with(func(t *Task) { t.Missed = "once" }), with(func(t *Task) { t.Missed = "queue" })},
		"Task.Abandoned":        {with(func(t *Task) { t.Abandoned = "skip" }), with(func(t *Task) { t.Abandoned = "\x1b" })},
		"Task.MaxCatchUp":       {with(func(t *Task) { t.MaxCatchUp = -1 }), with(func(t *Task) { t.MaxCatchUp = 10001 })},
		"Task.Retry.Attempts":   {with(func(t *Task) { t.Retry.Attempts = -1 }), with(func(t *Task) { t.Retry.Attempts = 1001 })},
		"Task.Retry.Backoff":    {with(func(t *Task) { t.Retry.Backoff = -1 })},
		"Task.Retry.MaxBackoff": {with(func(t *Task) { t.Retry.MaxBackoff = time.Millisecond }), with(func(t *Task) { t.Retry.MaxBackoff = -1 })},
	} {
		for i, task := range tasks {
			err := s.Register(task)
			require.ErrorIs(t, err, ErrMisconfigured, "%s %d", field, i)
			var problem *OptionError
			require.ErrorAs(t, err, &problem)
			require.Equal(t, field, problem.Field, "%d: %v", i, err)
			require.Less(t, len(err.Error()), 600)
		}
	}
	err := s.Register(Task{Overlap: "twice"})
	for _, field := range []string{"Task.Name", "Task.Run", "Task.Schedule", "Task.Overlap"} {
		require.ErrorContains(t, err, field)
	}
	require.NoError(t, s.Register(good))
	require.ErrorContains(t, s.Register(good), "registered already")
	require.NoError(t, s.Register(with(func(t *Task) { t.Name, t.Schedule = "u", Cron("CRON_TZ=Europe/Berlin 30 2 * * *") })))
	require.NoError(t, s.Register(with(func(t *Task) { t.Name, t.Schedule = "v", own(func(time.Time) time.Time { return time.Time{} }) })))
	require.NoError(t, s.Register(with(func(t *Task) { t.Name, t.Retry.Backoff = "w", time.Hour })))
	require.Equal(t, time.Hour, s.known()[3].Retry.MaxBackoff)

	list, err := s.Tasks(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 4)
	require.Equal(t, TaskStatus{Name: "t", Known: true, Schedule: "every 1h0m0s"}, list[0])
	require.Equal(t, "cron CRON_TZ=Europe/Berlin 30 2 * * *", list[1].Schedule)
}

func TestTasksListing(t *testing.T) {
	db := memstore.NewTasks(readClock)
	s := newTasks(db, newEventBus("i"), "i")
	for i := range maxTasks + 5 {
		_, err := db.Open(t.Context(), fmt.Sprintf("t%04d", i), store.TaskOpen{Token: 5})
		require.NoError(t, err)
	}
	require.NoError(t, s.Register(Task{Name: "z", Schedule: Every(time.Hour), Run: noTask}))
	list, err := s.Tasks(t.Context())
	require.ErrorIs(t, err, ErrTruncated)
	require.Len(t, list, maxTasks+1)
	require.Equal(t, "z", list[maxTasks].Name)

	runs, err := s.Runs(t.Context(), "t0001", 0)
	require.NoError(t, err)
	require.Empty(t, runs)
	_, err = s.Runs(t.Context(), "no name", 1)
	require.ErrorIs(t, err, ErrMisconfigured)
}

// TestTasksOnRedis: one bad record is its own problem.
func TestTasksOnRedis(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		ctx := t.Context()
		var c checker
		db, keys := newRedisStore(client, &c, Options{Namespace: "tasks"}), store.Keys("tasks")
		s := newTasks(db, newEventBus("i"), "i")
		for i := range 150 {
			_, err := db.Open(ctx, fmt.Sprintf("t%03d", i), store.TaskOpen{Token: 5})
			require.NoError(t, err)
		}
		require.NoError(t, client.Del(ctx, keys.Task("t007")).Err())
		require.NoError(t, client.Set(ctx, keys.Task("t007"), "x", 0).Err())
		require.NoError(t, client.HSet(ctx, keys.Task("t008"), "next", "soon").Err())
		require.NoError(t, s.Pause(ctx, "t009"))
		require.ErrorIs(t, s.Pause(ctx, "t007"), ErrMisconfigured)
		list, err := s.Tasks(ctx)
		require.NoError(t, err)
		require.Len(t, list, 150)
		for i, status := range list {
			require.Equal(t, i == 7 || i == 8, errors.Is(status.Err, ErrMisconfigured), "%v", status)
			require.Equal(t, i == 9, status.Paused)
		}
		require.NoError(t, s.Resume(ctx, "t009"))
	})
}

// onRedis runs fn on miniredis and on a real Redis.
func onRedis(t *testing.T, fn func(t *testing.T, client *redis.Client)) {
	open := func(t *testing.T, opts *redis.Options) *redis.Client {
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		fn(t, open(t, &redis.Options{Addr: m.Addr()}))
	})
	t.Run("redis", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a redis-server")
		}
		fn(t, open(t, redistest.Start(t).Options()))
	})
}

// TestTaskStoreUnreachable: every call says that nothing is known.
func TestTaskStoreUnreachable(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	var c checker
	s := newTasks(newRedisStore(client, &c, Options{Namespace: "tasks"}), newEventBus("i"), "i")
	ctx := context.Background()
	_, err := s.Tasks(ctx)
	require.ErrorIs(t, err, ErrUnreachable)
	_, err = s.Runs(ctx, "t", 1)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorIs(t, s.Pause(ctx, "t"), ErrUnreachable)
	_, _, err = s.store.Records(ctx, []string{"t"})
	require.ErrorIs(t, err, ErrUnreachable)
}

// TestMiddleware: each task runs within all of it, the first outermost, and what that returns is the
// result of the attempt. What is no middleware is refused, and nothing is registered.
func TestMiddleware(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		around := func(name string) func(TaskFunc) TaskFunc {
			return func(next TaskFunc) TaskFunc {
				return func(ctx context.Context, run TaskRun) error {
					g.note("%s %s", name, run.Task)
					return errors.Join(next(ctx, run), errBroken)
				}
			}
		}
		a := g.member("a")
		a.wraps = []func(TaskFunc) TaskFunc{around("outer"), around("inner")}
		require.NoError(g, a.Register(Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}))
		a.begin()
		g.pass(61 * time.Minute)
		require.Equal(g, []string{"1h0m0s outer t", "1h0m0s inner t", "1h0m0s t 1h0m0s #1 starts"}, g.noted())
		require.Equal(g, RunFailed, a.status().Last.State)

		b := g.member("b")
		for _, bad := range []func(TaskFunc) TaskFunc{
			func(TaskFunc) TaskFunc { return nil }, func(TaskFunc) TaskFunc { panic("no") },
		} {
			b.wraps = []func(TaskFunc) TaskFunc{around("outer"), bad}
			err := b.Register(Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
			require.ErrorIs(g, err, ErrMisconfigured)
			require.ErrorContains(g, err, "Tasks.Middleware[1]")
		}
		require.Empty(g, b.known())
	})
}

// TestHistoryHeedsTheOptions: how many runs are kept is the leader's option.
func TestHistoryHeedsTheOptions(t *testing.T) {
	for keep, want := range map[int]int{0: 100, 7: 7, -1: 0} {
		t.Run(strconv.Itoa(keep), func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				var c checker
				o := TaskOptions{History: keep}.complete(&c, "Tasks.")
				require.NoError(g, c.err())
				a := g.member("a", Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)})
				a.keep = store.Keep(o.History)
				a.begin()
				g.pass(150 * time.Minute)
				runs, err := a.Runs(g.Context(), "t", 1000)
				require.NoError(g, err)
				require.Len(g, runs, want)
			})
		})
	}
}
