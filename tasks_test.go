package tenure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
	"github.com/tenure-go/tenure/internal/store"
)

func noTask(context.Context, TaskRun) error { return nil }

// TestCronErrorOnce: what is wrong with a spec is said once, and the spec is named once.
func TestCronErrorOnce(t *testing.T) {
	s := newTasks(memstore.NewTasks(readClock), newEventBus("i"), "i")
	err := s.Register(Task{Name: "t", Schedule: Cron("61 * * * *"), Run: noTask})
	require.ErrorContains(t, err, `Task.Schedule = "cron 61 * * * *": `)
	require.Equal(t, 1, strings.Count(err.Error(), "61 * * * *"), "%v", err)
	_, err = ParseCron("61 * * * *")
	require.ErrorContains(t, err, `cron spec "61 * * * *": `)
}

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
			with(func(t *Task) { t.Name = "." }), with(func(t *Task) { t.Name = ".." }),
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

	list, err := s.List(t.Context())
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
	list, err := s.List(t.Context())
	require.ErrorIs(t, err, ErrTruncated)
	require.Len(t, list, maxTasks+1)
	require.Equal(t, "z", list[maxTasks].Name)

	runs, err := s.Runs(t.Context(), "t0001", 0)
	require.NoError(t, err)
	require.Empty(t, runs)
	_, err = s.Runs(t.Context(), "no name", 1)
	require.ErrorIs(t, err, ErrMisconfigured)
}

// TestListNamed: all tasks are listed by name, however many are registered nowhere, or those whose
// names begin as is asked. Of a listing that is not whole it is the first that are there.
func TestListNamed(t *testing.T) {
	ctx := t.Context()
	db := memstore.NewTasks(readClock)
	s := newTasks(db, newEventBus("i"), "i")
	const many = 3*maxTasks + 5
	for i := range many {
		_, err := db.Open(ctx, fmt.Sprintf("t%04d", i), store.TaskOpen{Token: 5})
		require.NoError(t, err)
	}
	for _, name := range []string{"t0007", "t00070", "z"} {
		require.NoError(t, s.Register(Task{Name: name, Schedule: Every(time.Hour), Run: noTask}))
	}
	all, err := s.ListNamed(ctx, "", many+2)
	require.NoError(t, err)
	require.Len(t, all, many+2)
	require.True(t, slices.IsSortedFunc(all, func(a, b TaskStatus) int { return strings.Compare(a.Name, b.Name) }))
	require.True(t, all[7].Known)
	require.EqualValues(t, 5, all[7].Token, "one that is registered has its record")
	require.Equal(t, TaskStatus{Name: "z", Known: true, Schedule: "every 1h0m0s"}, all[many+1])

	names := func(prefix string, limit int) (names []string, err error) {
		list, err := s.ListNamed(ctx, prefix, limit)
		for _, status := range list {
			names = append(names, status.Name)
		}
		return names, err
	}
	got, err := names("t000", 100)
	require.NoError(t, err)
	require.Equal(t, []string{"t0000", "t0001", "t0002", "t0003", "t0004", "t0005", "t0006", "t0007", "t00070", "t0008", "t0009"}, got)
	got, err = names("t000", 2)
	require.ErrorIs(t, err, ErrTruncated)
	require.Equal(t, []string{"t0000", "t0001"}, got)
	for prefix, limit := range map[string]int{"a": 5, "T0": 5, "t0001x": 5, "t": 0, "z": -1} {
		got, err = names(prefix, limit)
		require.NoError(t, err)
		require.Empty(t, got)
	}
	got, err = names("z", math.MaxInt)
	require.NoError(t, err)
	require.Equal(t, []string{"z"}, got)
}

// TestTasksListingOfManyRegistered: registered tasks take no place from the others, however many
// there are.
func TestTasksListingOfManyRegistered(t *testing.T) {
	onRedis(t, func(t *testing.T, client *redis.Client) {
		ctx := t.Context()
		var c checker
		db := newRedisStore(client, &c, Options{Namespace: "tasks"})
		s := newTasks(db, newEventBus("i"), "i")
		index := store.Keys("tasks").Tasks()
		for i := range maxTasks + 5 {
			name := fmt.Sprintf("t%04d", i)
			require.NoError(t, s.Register(Task{Name: name, Schedule: Every(time.Hour), Run: noTask}))
			require.NoError(t, client.SAdd(ctx, index, name).Err())
		}
		require.NoError(t, client.SAdd(ctx, index, "orphan-1", "orphan-2").Err())
		list, err := s.List(ctx)
		require.NoError(t, err)
		require.Len(t, list, maxTasks+7)
		require.Equal(t, "orphan-1", list[0].Name)
		require.False(t, list[0].Known)
		require.Equal(t, "orphan-2", list[1].Name)
		require.True(t, list[2].Known)
	})
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
		require.NoError(t, s.Pause(ctx, "t009", ""))
		require.ErrorIs(t, s.Pause(ctx, "t007", ""), ErrMisconfigured)
		list, err := s.List(ctx)
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
	opts := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}
	clientopts.Set(opts, "DialerRetries", 1)
	client := redis.NewClient(opts)
	defer client.Close()
	var c checker
	s := newTasks(newRedisStore(client, &c, Options{Namespace: "tasks"}), newEventBus("i"), "i")
	ctx := context.Background()
	_, err := s.List(ctx)
	require.ErrorIs(t, err, ErrUnreachable)
	_, err = s.Runs(ctx, "t", 1)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorIs(t, s.Pause(ctx, "t", ""), ErrUnreachable)
	_, _, _, err = s.store.Records(ctx, []string{"t"})
	require.ErrorIs(t, err, ErrUnreachable)
}

// TestMiddleware: each task runs within all of it, the first outermost, and what that returns is
// the result of the attempt. What is no middleware is refused, and nothing is registered.
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

// TestHistoryOfATask: a task may say how many of its runs are kept, and the history of one that has
// not run for long goes.
func TestHistoryOfATask(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), History: 2, Run: g.run(0)}, Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)})
		a.keepFor = 90 * time.Minute
		a.begin()
		g.pass(5*time.Hour + time.Second)
		for name, kept := range map[string]int{"t": 2, "u": 5} {
			runs, err := a.Runs(context.Background(), name, 100)
			require.NoError(g, err)
			require.Len(g, runs, kept)
		}
		a.end()
		g.pass(90 * time.Minute)
		runs, err := a.Runs(context.Background(), "u", 100)
		require.NoError(g, err)
		require.Empty(g, runs)
	})
	s := newTasks(nil, newEventBus("a"), "a")
	err := s.Register(Task{Name: "t", History: 1001, Schedule: OnDemand(), Run: func(context.Context, TaskRun) error { return nil }})
	require.ErrorContains(t, err, "Task.History")
	_, err = NewStandalone(Options{Namespace: "app", Tasks: TaskOptions{HistoryExpiry: time.Second}})
	require.ErrorContains(t, err, "Tasks.HistoryExpiry")
}

// TestHistoryExpires: by Redis itself, so long after the last run.
func TestHistoryExpires(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Tasks.HistoryExpiry = time.Hour })
		require.NoError(c, a.Tasks().Register(a.counts("t", Every(10*time.Minute))))
		a.start()
		c.pass(25 * time.Minute)
		var left time.Duration
		c.redis.Do(func(m *miniredis.Miniredis) { left = m.TTL("tenure:task:t:runs") })
		require.Greater(c, left, 50*time.Minute)
		require.LessOrEqual(c, left, time.Hour)
	})
}

// TestHistoryHeedsTheOptions: how many runs are kept is the leader's option.
func TestHistoryHeedsTheOptions(t *testing.T) {
	for keep, want := range map[int]int{0: 12, 7: 7, -1: 0} {
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

// TestP10_LostReplyOfClaim: the same claim is asked again until it is answered, and runs once.
func TestP10_LostReplyOfClaim(t *testing.T) {
	for name, fate := range map[string]taskFate{"no reply": taskMute, "no request": taskLost, "late reply": taskHung, "late request": taskLate} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
				a.store.on(befalls("claim", 3, fate))
				a.begin()
				g.pass(time.Hour + 20*time.Second)
				require.Len(g, g.noted(), 1)
				require.Equal(g, "a-1", a.status().Last.ID)
				require.Equal(g, RunSucceeded, a.status().Last.State)
				failed := g.told(EventTaskBlocked)
				require.Len(g, failed, 1, "a row of failures is reported once")
				require.ErrorIs(g, failed[0].Err, ErrUnreachable)
				close(a.store.healed)
				g.pass(time.Hour)
				require.Len(g, g.noted(), 1)
				a.end()
				runs, err := a.Runs(context.Background(), "t", 10)
				require.NoError(g, err)
				require.Len(g, runs, 2)
			})
		})
	}
}

// TestP10_ClaimAtTheEndOfTheTerm: a claim whose answer did not come in time is given back, and a
// late one is refused: the slot is run by the next leader as if nobody had claimed it, even with
// AbandonedFail.
func TestP10_ClaimAtTheEndOfTheTerm(t *testing.T) {
	for name, fate := range map[string]taskFate{"no reply": taskMute, "no request": taskLost, "late reply": taskHung, "late request": taskLate} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: AbandonedFail}
				a := g.member("a", task)
				a.store.on(befalls("claim", always, fate))
				a.begin()
				g.pass(time.Hour + time.Second)
				a.stop()
				g.pass(time.Minute) // lead has given up on the claim
				close(a.store.healed)
				synctest.Wait()
				a.end()
				require.Empty(g, g.noted())
				require.False(g, a.status().Running)
				if fate == taskMute {
					require.Equal(g, RunInterrupted, a.status().Last.State)
				}
				b := g.leader("b", task)
				g.pass(time.Minute)
				require.Equal(g, []string{"1h1m1s t 1h0m0s #1 starts"}, g.noted())
				require.Equal(g, RunSucceeded, b.status().Last.State)
				b.end()
			})
		})
	}
}

// TestP10_TermIsCheckedLast: a reader notices the end of the term while the claim is under way: the
// task does not start.
func TestP10_TermIsCheckedLast(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: AbandonedFail}
		a := g.member("a", task)
		a.store.on(func(op string, _ int) taskFate {
			if op == "claim" {
				a.t.lease.Store(nil) // as leading() does; the context is cancelled later
			}
			return taskFine
		})
		a.begin()
		g.pass(time.Hour + time.Second)
		require.Empty(g, g.noted())
		require.NoError(g, a.t.ctx.Err())
		require.Empty(g, a.ended, "lead waits for the context")
		a.end()
		b := g.leader("b", task)
		g.pass(time.Second)
		require.Equal(g, []string{"1h0m1s t 1h0m0s #1 starts"}, g.noted())
		b.end()
	})
}

// TestP10_TermIsCheckedInTheLastMoment: it ends between the loop's decision and the start.
func TestP10_TermIsCheckedInTheLastMoment(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(0)})
		term, _ := TermFrom(a.t.ctx)
		l := newTaskLoop(a.t.ctx, a.t.tasks.ctx, a.roleTasks, term)
		l.add(a.known()[0])
		task := l.tasks[0]
		record := store.TaskRecord{Due: "x", Next: 1e9, Spec: task.spec, Run: "left behind"}
		answer := func(verdict string) {
			task.machine.Step()
			task.machine.Answer(task.machine.Sent(), store.TaskReply{Verdict: verdict, Record: record})
		}
		answer(store.TaskOK)
		question := task.machine.Step().Question
		question.Ask(task.Schedule)
		require.False(g, task.machine.Answered(question))
		answer(store.TaskClaimed)
		a.t.lease.Store(nil)
		l.note(task)
		synctest.Wait()
		l.turn()
		require.Empty(g, g.noted())
		finished := g.told(EventTaskInterrupted)
		require.Len(g, finished, 1)
		require.ErrorIs(g, finished[0].Err, ErrNotLeader)
		require.Equal(g, store.RunReturned, task.machine.Calling().Ask.(store.TaskFinish).Status, "it is given back")
	})
}

// TestP10_FencedLeader: an old leader that goes on claims nothing and ends nothing.
func TestP10_FencedLeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute)}
		idle := Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)}
		old := g.leader("old", task, idle)
		g.pass(70 * time.Minute)
		g.noted()
		b := g.leader("new", task, idle)
		g.pass(time.Minute)
		require.Equal(g, []string{"1h10m0s t 1h0m0s #2 starts"}, g.noted())
		g.pass(22 * time.Minute) // the old run has ended, the new one has not
		status, err := b.List(context.Background())
		require.NoError(g, err)
		require.True(g, status[0].Running)
		require.Equal(g, "new", status[0].Last.InstanceID)
		g.pass(60 * time.Minute)
		require.Equal(g, []string{"2h0m0s t 2h0m0s #1 starts", "2h0m0s u 2h0m0s #1 starts"}, sortedTrace(g.noted()))
		fenced := g.told(EventTaskBlocked)
		require.Len(g, fenced, 2)
		for _, e := range fenced {
			require.Equal(g, "old", e.InstanceID)
			require.ErrorIs(g, e.Err, ErrFenced)
		}
		old.end()
		b.end()
	})
}

// TestFenceAfterTheTerm: a leader that was frozen hears of the end of its term when the next one
// has taken its runs over. That it may not end them is as it should be, and nothing that somebody
// has to look at.
func TestFenceAfterTheTerm(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute)}
		old := g.leader("old", task)
		g.pass(70 * time.Minute)
		b := g.leader("new", task)
		g.pass(time.Second)
		old.end()
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "1h10m0s t 1h0m0s #2 starts", "1h10m1s t 1h0m0s #1 is told to stop"}, g.noted())
		require.Len(g, g.told(EventTaskInterrupted), 1)
		require.Empty(g, g.told(EventTaskBlocked))
		require.NoError(g, old.status().Err)
		b.end()
	})
}

// TestOrphan: a task that no leader knows keeps its record, and goes on where it was when one does.
func TestOrphan(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}
		a := g.leader("a", task)
		g.pass(90 * time.Minute)
		a.end()
		b := g.leader("b")
		g.pass(90 * time.Minute)
		status := b.status()
		require.False(g, status.Known)
		require.Equal(g, "every 1h0m0s", status.Schedule)
		require.Equal(g, 2*time.Hour, status.Next.Sub(g.began))
		require.Equal(g, RunSucceeded, status.Last.State)
		require.Equal(g, int64(1001), status.Token)
		g.noted()
		require.NoError(g, b.Register(task))
		synctest.Wait()
		require.Equal(g, []string{"3h0m0s t 3h0m0s #1 starts"}, g.noted(), "Register wakes the loop")
		require.True(g, b.status().Known)
		b.end()
	})
}

// TestTaskIgnoresTheEnd: lead waits for what ignores its context, and reports it once.
func TestTaskIgnoresTheEnd(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		release := make(chan struct{})
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: func(context.Context, TaskRun) error {
			<-release
			return nil
		}})
		g.pass(90 * time.Minute)
		a.stop()
		g.pass(overrunAfter - time.Millisecond)
		require.Empty(g, g.told(EventWorkOverrun))
		g.pass(time.Hour)
		overran := g.told(EventWorkOverrun)
		require.Len(g, overran, 1)
		require.Equal(g, "t", overran[0].Task)
		require.Equal(g, int64(1001), overran[0].Token)
		require.Empty(g, a.ended)
		close(release)
		synctest.Wait()
		require.Len(g, a.ended, 1)
		require.Equal(g, RunSucceeded, a.status().Last.State, "its end is recorded, however late")
	})
}

// TestTaskFailsAtTheEnd: an error after the end of the term is no failure of the task.
func TestTaskFailsAtTheEnd(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 9}, Run: func(ctx context.Context, _ TaskRun) error {
			<-ctx.Done()
			return errors.New("half done")
		}})
		g.pass(90 * time.Minute)
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.State)
		require.Equal(g, "half done", a.status().Last.Error)
		require.Len(g, g.told(EventTaskStarted), 1)
	})
}

// TestIdleCost: without tasks nothing is asked, with one that sleeps a record is read once a
// minute.
func TestIdleCost(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a")
		g.pass(24 * time.Hour)
		require.Zero(g, a.store.calls.Load())
		a.end()
		b := g.leader("b", Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(0)}, Task{Name: "u", Schedule: Every(25 * time.Hour), Run: g.run(0)})
		g.pass(2 * time.Hour)
		require.InDelta(g, 120, b.store.calls.Load(), 6)
		b.end()
	})
}

// TestP10_OnNetwork: a daily task on a Redis behind a network that delays, loses and repeats
// requests, with leaders that come and

// TestPause: slots pass without a run, a run that is owed waits.
func TestPause(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		ctx := context.Background()
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute), RunOnElection: true}
		a := g.leader("a", task)
		g.pass(time.Minute)
		a.end()
		require.Equal(g, []string{"0s t 0s #1 starts", "1m0s t 0s #1 is told to stop"}, g.noted())
		require.NoError(g, a.Pause(ctx, "t", ""))
		require.ErrorIs(g, a.Pause(ctx, "u", ""), ErrNotFound)
		require.ErrorIs(g, a.Resume(ctx, "no name"), ErrMisconfigured)
		b := g.leader("b", task)
		g.pass(150 * time.Minute)
		require.Empty(g, g.noted())
		require.True(g, b.status().Paused)
		require.NoError(g, b.Resume(ctx, "t"))
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"2h32m0s t 0s #2 starts"}, append(g.noted(), "")[:1])
		b.end()

		require.NoError(g, b.Pause(ctx, "t", ""))
		task.Name, task.Schedule = "t", Every(time.Hour)
		c := g.leader("c", task)
		g.pass(90 * time.Minute)
		require.NotContains(g, g.noted(), "starts")
		c.end()
	})
}

// TestP10_ACrashBetweenClaimAndStart: nobody can tell whether the run began. With AbandonedRerun
// the next leader runs the slot, as the attempt after the one that may have been; with
// AbandonedFail it is not run again.
func TestP10_ACrashBetweenClaimAndStart(t *testing.T) {
	for policy, want := range map[AbandonedPolicy][]string{AbandonedRerun: {"1h1m0s t 1h0m0s #2 starts"}, AbandonedFail: {}} {
		inTaskCluster(t, func(g *taskCluster) {
			task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: policy}
			a := g.member("a", task)
			a.store.on(befalls("claim", always, taskMute))
			a.begin()
			g.pass(time.Hour + time.Second)
			require.True(g, a.status().Running, "claimed")
			a.crash()
			close(a.store.healed)
			g.pass(59 * time.Second)
			require.Empty(g, g.noted())
			b := g.leader("b", task)
			g.pass(time.Minute)
			require.Equal(g, want, append([]string{}, g.noted()...))
			runs, err := b.Runs(context.Background(), "t", 10)
			require.NoError(g, err)
			require.Equal(g, RunAbandoned, runs[len(runs)-1].State)
			b.end()
		})
	}
}
