package tenure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// schedule is one of the application's own.
type ownSchedule struct {
	next func(time.Time) time.Time
	text string
}

func (s ownSchedule) Next(after time.Time) time.Time { return s.next(after) }

func (s ownSchedule) Identity() string { return s.text }

// hangingSchedule is one whose Next blocks while it is told to.
type hangingSchedule struct {
	hang    atomic.Bool
	release chan struct{}
	every   time.Duration
}

func (s *hangingSchedule) Next(after time.Time) time.Time {
	if s.hang.Load() {
		<-s.release
	}
	return after.Truncate(s.every).Add(s.every)
}

func (s *hangingSchedule) Identity() string { return "hanging" }

// TestHungSchedule: a Next that hangs costs its task and nothing else: the loop goes on, and so
// does the task when it returns.
func TestHungSchedule(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		own := &hangingSchedule{release: make(chan struct{}), every: time.Hour}
		a := g.leader("a", Task{Name: "t", Run: g.run(0), Schedule: own}, Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(90 * time.Minute)
		require.Len(g, g.noted(), 2)
		own.hang.Store(true)
		g.pass(24 * time.Hour)
		noted := g.noted()
		require.Len(g, noted, 24, "the other task goes on: %v", noted)
		require.NoError(g, a.stuck())
		failed := g.told(EventTaskBlocked)
		require.Len(g, failed, 1)
		require.Equal(g, "t", failed[0].Task)
		require.ErrorIs(g, failed[0].Err, ErrMisconfigured)
		require.ErrorContains(g, failed[0].Err, "has not returned within 1s")
		require.Less(g, failed[0].Time.Sub(g.began), 2*time.Hour+2*nextBound)
		require.Equal(g, 1, a.schedules.count())

		a.end() // and does not wait for it
		g.pass(time.Minute)
		a.begin()
		g.pass(90 * time.Minute)
		require.Len(g, g.told(EventTaskBlocked), 2, "once a term")
		require.Equal(g, 1, a.schedules.count(), "no further call is made")
		g.noted()

		own.hang.Store(false)
		close(own.release)
		g.pass(time.Second)
		require.Zero(g, a.schedules.count())
		require.Len(g, g.noted(), 1, "the task goes on")
		a.end()
	})
}

// TestSlowSchedule: a Next that takes half a second each time is slow, and no more.
func TestSlowSchedule(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		slow := ownSchedule{func(after time.Time) time.Time {
			if g.now() > 0 {
				time.Sleep(nextBound * 3 / 4)
			}
			return after.Truncate(time.Hour).Add(time.Hour)
		}, "slow"}
		task := Task{Name: "t", Schedule: slow, Run: g.run(0), Missed: MissedRunAll}
		a := g.leader("a", task)
		g.pass(90 * time.Minute)
		a.end()
		g.noted()
		g.pass(20 * time.Hour)
		b := g.leader("b", task)
		g.pass(10*time.Minute + schedule.LookEvery/2) // the schedule is asked again with each look at the record
		require.Len(g, g.noted(), 20)
		require.Empty(g, g.told(EventTaskBlocked))
		b.end()
	})
}

// TestRegisterIsBounded: a schedule that hangs from the start is refused.
func TestRegisterIsBounded(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		own := &hangingSchedule{release: make(chan struct{}), every: time.Hour}
		own.hang.Store(true)
		err := a.Register(Task{Name: "t", Schedule: own, Run: g.run(0)})
		require.ErrorIs(g, err, ErrMisconfigured)
		require.ErrorContains(g, err, "have not returned within 1s")
		require.Equal(g, nextBound, g.now())
		require.Equal(g, 1, a.schedules.count())
		close(own.release)
	})
}

// TestP11_RunSaysThatAScheduleHangs: it is left behind, and Run says so.
func TestP11_RunSaysThatAScheduleHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := NewStandalone(Options{InstanceID: "i"})
		require.NoError(t, err)
		own := &hangingSchedule{release: make(chan struct{}), every: time.Hour}
		require.NoError(t, c.Tasks().Register(Task{Name: "t", Schedule: own, Run: noTask}))
		own.hang.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- c.Run(ctx) }() // awaited below
		time.Sleep(time.Hour)
		require.True(t, c.IsLeader(), "a schedule that hangs costs no leadership")
		stopped := time.Now()
		cancel()
		err = <-ran
		require.ErrorIs(t, err, ErrDrainTimeout)
		require.ErrorContains(t, err, "a Next of a task's Schedule")
		require.LessOrEqual(t, time.Since(stopped), c.opts.ShutdownTimeout)
		close(own.release)
	})
}

// TestLongWalksDoNotStopTheLoop: after a long outage the loop looks at its mailbox between the
// walks of its schedules.
func TestLongWalksDoNotStopTheLoop(t *testing.T) {
	s := newTasks(memstore.NewTasks(readClock), newEventBus("i"), "i")
	now := time.Now()
	for n := range 200 {
		require.NoError(t, s.Register(Task{Name: fmt.Sprint("t", n), Schedule: Cron("* * * * *"), Missed: MissedRunAll, MaxCatchUp: schedule.MaxSteps, Run: noTask}))
	}
	live := begin(t.Context(), Term{Token: 1}, lease.Lease{Sent: readClock(), Life: time.Hour}, func() {})
	defer live.end(ErrStopped)
	term, _ := TermFrom(live.ctx)
	l := newTaskLoop(live.ctx, live.tasks.ctx, s.roleTasks, term)
	s.loops(true)
	l.shared.Clock.Learn(0, 0, now.UnixMilli())
	due := now.Add(-10_000 * time.Minute).Truncate(time.Minute).UnixMilli()
	l.register()
	for _, task := range l.tasks {
		record := store.TaskRecord{Due: strconv.FormatInt(due, 10), Next: due, Spec: task.spec, Token: 1}
		machine := task.machine
		machine.Step()
		machine.Answer(machine.Sent(), store.TaskReply{Verdict: store.TaskOK, Record: record})
	}
	seen := make(map[string]bool)
	decided := func() int {
		for _, t := range l.tasks {
			if t.machine.Calling() != nil {
				seen[t.Name] = true
			}
		}
		return len(seen)
	}
	l.turn() // looks where the records stand
	require.Zero(t, decided())
	wait, finished := l.turn()
	require.Zero(t, wait)
	require.False(t, finished)
	first := decided()
	require.Positive(t, first)
	require.Less(t, first, 200, "one turn takes as long as all walks together")
	for turns := 0; decided() < 200 && turns < 1000; turns++ {
		l.turn()
	}
	require.Equal(t, 200, decided())
}

// TestBrokenSchedule: a Next that panics, or ends its goroutine, costs its task and nothing else.
func TestBrokenSchedule(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("broken") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				var broken atomic.Bool
				a := g.leader("a", Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)},
					Task{Name: "t", Run: g.run(0), Schedule: ownSchedule{func(after time.Time) time.Time {
						if broken.Load() {
							fail()
						}
						return after.Add(time.Hour)
					}, "own"}})
				g.pass(90 * time.Minute)
				require.Len(g, g.noted(), 2)
				broken.Store(true)
				g.pass(2 * time.Hour)
				require.Equal(g, []string{"2h0m0s u 2h0m0s #1 starts", "3h0m0s u 3h0m0s #1 starts"}, g.noted())
				failed := g.told(EventTaskBlocked)
				require.Len(g, failed, 1)
				require.Equal(g, "t", failed[0].Task)
				require.ErrorIs(g, failed[0].Err, ErrMisconfigured)
				var panicked *PanicError
				require.ErrorAs(g, failed[0].Err, &panicked)
				broken.Store(false)
				a.end()
				b := g.leader("b", Task{Name: "t", Run: g.run(0), Schedule: ownSchedule{func(after time.Time) time.Time { return after.Add(time.Hour) }, "own"}})
				g.pass(time.Second)
				require.Equal(g, []string{"3h30m0s t 3h0m0s #1 starts"}, g.noted(), "the slots were kept")
				b.end()
			})
		})
	}
}

// TestScheduleThatFailsDuringARun: as long as the task stands still its status says why, though
// calls about its record have answers, and the run that is on can be canceled.
func TestScheduleThatFailsDuringARun(t *testing.T) {
	for name, c := range map[string]struct {
		hangs bool
		hint  bool
	}{"hangs": {true, true}, "hangs, no hint": {true, false}, "broken": {false, true}, "broken, no hint": {false, false}} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				own := &hangingSchedule{release: make(chan struct{}), every: time.Hour}
				var broken atomic.Bool
				a := g.leader("a", Task{Name: "t", Run: g.run(5 * time.Hour), Schedule: ownSchedule{func(after time.Time) time.Time {
					if broken.Load() {
						panic("broken")
					}
					return own.Next(after)
				}, "own"}})
				g.pass(90 * time.Minute)
				own.hang.Store(c.hangs)
				broken.Store(!c.hangs)
				g.pass(time.Hour)
				require.ErrorIs(g, a.status().Err, ErrMisconfigured)
				require.Len(g, g.noted(), 1)
				b := g.member("b")
				if c.hint {
					require.NoError(g, a.Cancel(g.Context(), "t"))
					g.pass(time.Second)
				} else {
					require.NoError(g, b.Cancel(g.Context(), "t"))
					g.pass(time.Minute + time.Second)
				}
				require.Len(g, g.told(EventTaskCanceled), 1)
				require.Equal(g, RunCanceled, a.status().Last.State)
				g.pass(2 * time.Hour)
				require.ErrorIs(g, a.status().Err, ErrMisconfigured)
				require.Len(g, g.told(EventTaskBlocked), 1)
				if c.hangs {
					own.hang.Store(false)
					close(own.release)
				} else {
					require.NoError(g, a.Reschedule("t", Every(time.Hour)))
				}
				g.pass(time.Second)
				require.NoError(g, a.status().Err, "it goes on")
				a.end()
			})
		})
	}
}

// TestScheduleBrokenFromTheStart: it has no first slot in this term, and the record stays as it
// was.
func TestScheduleBrokenFromTheStart(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var broken atomic.Bool
		a := g.member("a", Task{Name: "t", Run: g.run(0), Schedule: ownSchedule{func(after time.Time) time.Time {
			if broken.Load() {
				panic("broken")
			}
			return after.Add(time.Hour)
		}, "own"}})
		broken.Store(true)
		a.begin()
		g.pass(24 * time.Hour)
		require.Len(g, g.told(EventTaskBlocked), 1)
		require.True(g, a.status().Next.IsZero())
		a.end()
	})
}

// TestScheduleThatEnds: it has no further slot, and is asked for none.
func TestScheduleThatEnds(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		once := ownSchedule{func(after time.Time) time.Time {
			if due := g.began.Add(time.Hour); after.Before(due) {
				return due
			}
			return time.Time{}
		}, "once"}
		task := Task{Name: "t", Schedule: once, Run: g.run(0)}
		a := g.leader("a", task)
		g.pass(24 * time.Hour)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts"}, g.noted())
		require.True(g, a.status().Next.IsZero())
		a.end()
		b := g.leader("b", task)
		g.pass(24 * time.Hour)
		require.Empty(g, g.noted())
		b.end()
	})
}

// TestTwoTermsOfOneScheduler: the same process leads again.
func TestTwoTermsOfOneScheduler(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(90 * time.Minute)
		a.end()
		g.pass(time.Hour)
		a.begin()
		g.pass(time.Hour)
		a.end()
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "2h30m0s t 2h0m0s #1 starts", "3h0m0s t 3h0m0s #1 starts"}, g.noted())
	})
}

// TestHungSchedulesStopNoOther: as many as may be asked at a time hang; the next one is asked all
// the same.
func TestHungSchedulesStopNoOther(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		own := func() *hangingSchedule { return &hangingSchedule{release: make(chan struct{}), every: time.Hour} }
		var hung []*hangingSchedule
		var tasks []Task
		for _, name := range []string{"a", "b", "c", "d"} {
			hung = append(hung, own())
			tasks = append(tasks, Task{Name: name, Run: g.run(0), Schedule: hung[len(hung)-1]})
		}
		m := g.leader("a", append(tasks, Task{Name: "healthy", Run: g.run(0), Schedule: own()})...)
		g.pass(90 * time.Minute)
		g.noted()
		for _, s := range hung {
			s.hang.Store(true)
		}
		g.pass(24 * time.Hour)
		require.GreaterOrEqual(g, len(g.noted()), 24)
		for _, s := range hung {
			s.hang.Store(false)
			close(s.release)
		}
		g.pass(time.Second)
		m.end()
	})
}

// FuzzSchedule: a cron specification is refused, or its slots increase strictly from wherever they
// are asked for.
func FuzzSchedule(f *testing.F) {
	for _, spec := range []string{"0 0 * * *", "*/5 * * * *", "@hourly", "CRON_TZ=Europe/Berlin 30 2 * * *", "0 0 30 2 *", "", "* * * * * *", "TZ= * * * * *"} {
		f.Add(spec, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, spec string, from int64) {
		at := time.Unix(from%4_000_000_000, 0)
		schedule, err := ParseCron(spec)
		if err != nil {
			require.ErrorIs(t, err, ErrMisconfigured)
			return
		}
		for range 3 {
			next := schedule.Next(at)
			if next.IsZero() {
				return // it has ended
			}
			require.True(t, next.After(at), "%q after %v gives %v", spec, at, next)
			at = next
		}
	})
}

// FuzzTask: a task that is accepted has a schedule that moves on and policies within bounds; one
// that is not says which field.
func FuzzTask(f *testing.F) {
	f.Add("cleanup", "@daily", int64(0), int64(0), int64(0), int64(0), int64(0), 0, 0, uint8(0))
	f.Add("a.b-c_d", "", int64(100*time.Millisecond), int64(time.Second), int64(time.Hour), int64(time.Millisecond), int64(time.Minute), 1000, 1000, uint8(4))
	f.Add("bad name", "CRON_TZ=Europe/Berlin 30 2 29 2 *", int64(1), int64(-1), int64(25*time.Hour), int64(1), int64(-1), -1, 1<<40, uint8(255))
	f.Add("x", "0 0 30 2 *", int64(1<<63-1), int64(1<<63-1), int64(-1<<63), int64(1<<63-1), int64(1<<63-1), 1001, -1, uint8(1))
	run := func(context.Context, TaskRun) error { return nil }
	f.Fuzz(func(t *testing.T, name, spec string, period, timeout, jitter, backoff, maxBackoff int64, attempts, catchUp int, policies uint8) {
		task := Task{
			Name: name, Schedule: Every(time.Duration(period)), Run: run, Timeout: time.Duration(timeout), Jitter: time.Duration(jitter), MaxCatchUp: catchUp,
			Overlap:   []OverlapPolicy{"", OverlapSkip, OverlapQueue, "x"}[policies&3],
			Missed:    []MissedPolicy{MissedRunOnce, MissedSkip, MissedRunAll, "x"}[policies>>2&3],
			Abandoned: []AbandonedPolicy{"", AbandonedRerun, AbandonedFail, "x"}[policies>>4&3],
			Retry:     RetryPolicy{Attempts: attempts, Backoff: time.Duration(backoff), MaxBackoff: time.Duration(maxBackoff)},
		}
		if spec != "" {
			task.Schedule = Cron(spec)
		}
		s := newTasks(memstore.NewTasks(readClock), newEventBus("x"), "x")
		if err := s.Register(task); err != nil {
			require.ErrorIs(t, err, ErrMisconfigured)
			require.Empty(t, s.known())
			var problem *OptionError
			require.True(t, errors.As(err, &problem) && strings.HasPrefix(problem.Field, "Task.") && problem.Reason != "")
			return
		}
		require.ErrorIs(t, s.Register(task), ErrMisconfigured, "a name is taken once")
		r := s.known()[0]
		slot := time.UnixMilli(1_700_000_000_000).UTC()
		for range 5 {
			next := r.Schedule.Next(slot)
			if next.IsZero() {
				break
			}
			require.True(t, next.After(slot), "%v, then %v", slot, next)
			delay := delayOf(r.Task, next.UnixMilli())
			require.True(t, delay == 0 || 0 < delay && delay < r.Jitter, "%v of %v", delay, r.Jitter)
			slot = next
		}
		require.True(t, 1 <= r.Retry.Attempts && r.Retry.Attempts <= 1000)
		require.True(t, time.Millisecond <= r.Retry.Backoff && r.Retry.Backoff <= r.Retry.MaxBackoff && r.Retry.MaxBackoff <= maxPeriod)
		require.True(t, r.MaxCatchUp > 0 && r.Timeout >= 0)
	})
}

// TestParseCron: a spec that a user has typed is answered at once, with what is wrong with it.
func TestParseCron(t *testing.T) {
	s, err := ParseCron("CRON_TZ=Europe/Berlin  30 2 * *  1-5")
	require.NoError(t, err)
	require.Equal(t, Cron("CRON_TZ=Europe/Berlin 30 2 * * 1-5").Identity(), s.Identity(), "space says nothing")
	require.NotEqual(t, Cron("30 2 * * 1-5").Identity(), s.Identity())
	after := time.Date(2026, 7, 3, 12, 0, 0, 0, time.UTC)
	require.Equal(t, time.Date(2026, 7, 6, 0, 30, 0, 0, time.UTC), s.Next(after).UTC())
	for _, spec := range []string{"", "61 * * * *", "* * * *", "CRON_TZ=Nowhere/City 0 * * * *", "@every 5m", "0 0 30 2 *"} {
		s, err := ParseCron(spec)
		require.ErrorIs(t, err, ErrMisconfigured, spec)
		require.ErrorContains(t, err, spec)
		require.Nil(t, s)
	}
}

// TestWrappedCronThatIsWrong: a schedule of the application that asks a Cron, to leave out
// holidays, is refused for a bad expression as the Cron itself is. Else its task would never be
// due.
func TestWrappedCronThatIsWrong(t *testing.T) {
	const spec, reason = "0 0 3 * * ?", "6 fields, want 5" // of Quartz
	wrapped := func(s Schedule) Schedule { return ownSchedule{s.Next, "holidays " + s.Identity()} }
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: wrapped(Cron("0 3 * * *")), Run: g.run(0)})
		err := a.Register(Task{Name: "u", Schedule: wrapped(Cron(spec)), Run: g.run(0)})
		require.ErrorIs(g, err, ErrMisconfigured)
		require.ErrorContains(g, err, reason)
		require.ErrorContains(g, a.Reschedule("t", wrapped(Cron(spec))), reason)
		err = a.Register(Task{Name: "u", Schedule: Cron(spec), Run: g.run(0)})
		require.ErrorContains(g, err, reason)
		require.Equal(g, 1, strings.Count(err.Error(), "Task.Schedule"), "said once")
		require.Equal(g, "cron "+spec, Cron(spec).Identity())
	})
}

// TestMissed: what becomes of the slots of an outage.
func TestMissed(t *testing.T) {
	for name, c := range map[string]struct {
		task    Task
		outage  time.Duration
		want    []string
		skipped int64
	}{
		"run once":                   {Task{}, 3*time.Hour + 20*time.Minute, []string{"4h50m0s t 4h0m0s #1 starts", "5h0m0s t 5h0m0s #1 starts"}, 2},
		"run once, none":             {Task{}, 20 * time.Minute, []string{"2h0m0s t 2h0m0s #1 starts"}, 0},
		"skip":                       {Task{Missed: MissedSkip}, 3*time.Hour + 20*time.Minute, []string{"5h0m0s t 5h0m0s #1 starts"}, 3},
		"skip, a failover":           {Task{Missed: MissedSkip}, 150*time.Minute + 50*time.Second, []string{"4h0m50s t 4h0m0s #1 starts"}, 2},
		"run all":                    {Task{Missed: MissedRunAll}, 3*time.Hour + 20*time.Minute, []string{"4h50m0s t 2h0m0s #1 starts", "4h50m0s t 3h0m0s #1 starts", "4h50m0s t 4h0m0s #1 starts", "5h0m0s t 5h0m0s #1 starts"}, 0},
		"run all, bounded":           {Task{Missed: MissedRunAll, MaxCatchUp: 2}, 3*time.Hour + 20*time.Minute, []string{"4h50m0s t 3h0m0s #1 starts", "4h50m0s t 4h0m0s #1 starts", "5h0m0s t 5h0m0s #1 starts"}, 1},
		"with a run at the election": {Task{RunOnElection: true}, 3*time.Hour + 20*time.Minute, []string{"4h50m0s t 4h0m0s #1 starts", "5h0m0s t 5h0m0s #1 starts"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				c.task.Name, c.task.Schedule, c.task.Run = "t", Every(time.Hour), g.run(0)
				a := g.leader("a", c.task)
				g.pass(90 * time.Minute)
				a.end()
				require.Contains(g, g.noted(), "1h0m0s t 1h0m0s #1 starts")
				g.pass(c.outage)
				b := g.leader("b", c.task)
				g.pass(30*time.Minute - time.Second)
				require.Equal(g, c.want, g.noted())
				require.Equal(g, c.skipped, b.status().Skipped)
				var told int64
				for _, e := range g.told(EventTaskSkipped) {
					require.Equal(g, 2*time.Hour, e.Slot.Sub(g.began))
					told += int64(e.Count)
				}
				require.Equal(g, c.skipped, told)
			})
		})
	}
}

// TestOverlap: what becomes of a slot that is due while the run before it is on.
func TestOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		task    Task
		want    []string
		skipped int64
	}{
		"skip":           {Task{}, []string{"1h0m0s t 1h0m0s #1 starts", "4h0m0s t 4h0m0s #1 starts"}, 2},
		"skip, run all":  {Task{Missed: MissedRunAll}, []string{"1h0m0s t 1h0m0s #1 starts", "4h0m0s t 4h0m0s #1 starts"}, 2},
		"queue":          {Task{Overlap: OverlapQueue}, []string{"1h0m0s t 1h0m0s #1 starts", "3h30m0s t 3h0m0s #1 starts"}, 1},
		"queue, skipped": {Task{Overlap: OverlapQueue, Missed: MissedSkip}, []string{"1h0m0s t 1h0m0s #1 starts", "3h30m0s t 3h0m0s #1 starts"}, 1},
		"queue, run all": {Task{Overlap: OverlapQueue, Missed: MissedRunAll}, []string{"1h0m0s t 1h0m0s #1 starts", "3h30m0s t 3h0m0s #1 starts"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				c.task.Name, c.task.Schedule, c.task.Run = "t", Every(time.Hour), g.run(150*time.Minute)
				a := g.leader("a", c.task)
				g.pass(2*time.Hour + time.Second)
				if c.task.Overlap != OverlapQueue { // OverlapSkip is the default
					require.Equal(g, int64(1), a.status().Skipped, "it is reported when it happens")
				}
				g.pass(2*time.Hour + time.Second)
				require.Equal(g, c.want, g.noted())
				require.Equal(g, c.skipped, a.status().Skipped)
				a.end()
			})
		})
	}
}

// TestOverlapWithLateRun: what comes due during a rerun, or during a run that is caught up on, is
// not lost to OverlapSkip.
func TestOverlapWithLateRun(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(40 * time.Minute)}
		a := g.leader("a", task)
		g.pass(90 * time.Minute)
		a.crash()
		g.noted()
		b := g.leader("b", task)
		g.pass(2 * time.Hour)
		require.Equal(g, []string{"1h30m0s t 1h0m0s #2 starts", "2h10m0s t 2h0m0s #1 starts", "3h0m0s t 3h0m0s #1 starts"}, g.noted())
		require.Zero(g, b.status().Skipped)
		b.end()
	})
}

// TestAbandoned: what becomes of a run whose leader died, or lost its term.
func TestAbandoned(t *testing.T) {
	for name, c := range map[string]struct {
		policy AbandonedPolicy
		crash  bool
		want   []string
		first  RunState
	}{
		"rerun after a crash":           {AbandonedRerun, true, []string{"2h0m0s t 1h0m0s #2 starts", "2h30m0s t 2h0m0s #1 starts"}, RunAbandoned},
		"rerun after a hand-over":       {AbandonedRerun, false, []string{"2h0m0s t 1h0m0s #2 starts", "2h30m0s t 2h0m0s #1 starts"}, RunInterrupted},
		"mark failed after a crash":     {AbandonedFail, true, []string{"2h0m0s t 2h0m0s #1 starts"}, RunAbandoned},
		"mark failed after a hand-over": {AbandonedFail, false, []string{"2h0m0s t 2h0m0s #1 starts"}, RunFailed},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute), Abandoned: c.policy}
				a := g.leader("a", task)
				g.pass(75 * time.Minute)
				if c.crash {
					a.crash()
				} else {
					a.end()
				}
				require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "1h15m0s t 1h0m0s #1 is told to stop"}, g.noted())
				require.Equal(g, c.crash, a.status().Running)
				g.pass(45 * time.Minute)
				b := g.leader("b", task)
				g.pass(59 * time.Minute)
				noted := g.noted()
				require.Equal(g, c.want, noted[:min(len(noted), len(c.want))])
				runs, err := b.Runs(context.Background(), "t", 10)
				require.NoError(g, err)
				require.Equal(g, c.first, runs[len(runs)-1].State)
				require.Equal(g, "a", runs[len(runs)-1].InstanceID)
				require.Equal(g, int64(1001), runs[len(runs)-1].Token)
				b.end()
			})
		})
	}
}

// TestAbandonedForGood: a run that takes its leaders down with it is not repeated for ever.
func TestAbandonedForGood(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(time.Hour)}
		last := g.leader("m", task)
		g.pass(24*time.Hour + time.Minute)
		for n := range 5 {
			last.crash()
			last = g.leader(fmt.Sprint("m", n), task)
			g.pass(time.Minute)
		}
		require.Equal(g, []string{"24h0m0s t 24h0m0s #1 starts", "24h1m0s t 24h0m0s #1 is told to stop",
			"24h1m0s t 24h0m0s #2 starts", "24h2m0s t 24h0m0s #2 is told to stop",
			"24h2m0s t 24h0m0s #3 starts", "24h3m0s t 24h0m0s #3 is told to stop"}, g.noted())
		require.Equal(g, RunAbandoned, last.status().Last.State)
		require.False(g, last.status().Running)
		g.pass(24 * time.Hour)
		require.Equal(g, []string{"48h0m0s t 48h0m0s #1 starts"}, g.noted()[:1])
		last.end()
	})
}

// TestTaskFailures: errors, panics and runtime.Goexit are recorded, reported and retried; none ends
// the term.
func TestTaskFailures(t *testing.T) {
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		fail func()
		err  error
		text string
	}{
		"error":   {func() {}, bad, "bad"},
		"panic":   {func() { panic(bad) }, bad, "tenure: panic: bad\ngoroutine "},
		"goexit":  {runtime.Goexit, nil, "tenure: callback ended its goroutine"},
		"hostile": {func() {}, hostileError{}, "the Error method of the error failed"},
		"long":    {func() {}, errors.New(strings.Repeat("long", 25_000)), "longlong"},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 3, Backoff: time.Minute, MaxBackoff: 90 * time.Second}}
				task.Run = func(_ context.Context, run TaskRun) error {
					g.note("#%d", run.Attempt)
					c.fail()
					return c.err
				}
				a := g.leader("a", task)
				g.pass(time.Hour + 2*time.Minute)
				require.True(g, a.status().Running, "it waits for its next attempt")
				g.pass(48 * time.Minute)
				require.Equal(g, []string{"1h0m0s #1", "1h1m0s #2", "1h2m30s #3"}, g.noted())
				last := a.status().Last
				require.Equal(g, RunFailed, last.State)
				require.Equal(g, 3, last.Attempt)
				require.True(g, strings.HasPrefix(last.Error, c.text), last.Error)
				require.LessOrEqual(g, len(last.Error), store.MaxTaskText)
				history, err := a.Runs(context.Background(), "t", 10)
				require.NoError(g, err)
				require.Len(g, history, 1)
				require.Equal(g, store.RunError(last.Error), history[0].Error)
				require.Len(g, g.told(EventTaskFailed), 1, "once a run")
				finished := g.told(EventTaskAttemptFailed, EventTaskFailed)
				require.Len(g, finished, 3)
				require.Equal(g, time.Minute, finished[0].Until.Sub(finished[0].Time))
				require.Equal(g, EventTaskFailed, finished[2].Type)
				for i, e := range finished {
					require.Equal(g, i+1, e.Attempt)
					require.Equal(g, time.Hour, e.Slot.Sub(g.began))
					if c.err == nil {
						var panicked *PanicError
						require.ErrorAs(g, e.Err, &panicked)
						require.Nil(g, panicked.Value)
					} else {
						require.ErrorIs(g, e.Err, c.err)
					}
				}
				require.NoError(g, a.t.ctx.Err())
				a.end()
			})
		})
	}
}

type hostileError struct{}

func (hostileError) Error() string { panic("no text") }

// TestRetryEndsWithTheTerm: a run that waits for its next attempt goes to the next leader.
func TestRetryEndsWithTheTerm(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 5, Backoff: 10 * time.Minute, MaxBackoff: time.Hour}}
		task.Run = func(_ context.Context, run TaskRun) error {
			g.note("#%d", run.Attempt)
			if run.Attempt < 3 {
				return errors.New("bad")
			}
			return nil
		}
		a := g.leader("a", task)
		g.pass(65 * time.Minute)
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.State)
		require.Equal(g, "bad", a.status().Last.Error)
		b := g.leader("b", task)
		g.pass(30 * time.Minute)
		require.Equal(g, []string{"1h0m0s #1", "1h10m0s #2", "1h30m0s #3"}, g.noted(), "a hand-over does not shorten a pause")
		require.Equal(g, RunSucceeded, b.status().Last.State)
		b.end()
	})
}

// TestTimeout: it bounds an attempt, and one that does not heed it is reported, once.
func TestTimeout(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		release := make(chan struct{})
		a := g.leader("a",
			Task{Name: "good", Schedule: Every(time.Hour), Timeout: time.Minute, Run: g.run(time.Hour)},
			Task{Name: "evil", Schedule: Every(time.Hour), Timeout: time.Minute, Run: func(context.Context, TaskRun) error {
				<-release
				return nil
			}})
		g.pass(time.Hour + time.Minute + overrunAfter - time.Millisecond)
		require.Equal(g, []string{"1h0m0s good 1h0m0s #1 starts", "1h1m0s good 1h0m0s #1 is told to stop"}, g.noted())
		require.Empty(g, g.told(EventWorkOverrun))
		g.pass(20 * time.Minute)
		overran := g.told(EventWorkOverrun)
		require.Len(g, overran, 1)
		require.Equal(g, "evil", overran[0].Task)
		require.ErrorContains(g, overran[0].Err, "evil")
		close(release)
		g.pass(time.Second)
		list, err := a.List(context.Background())
		require.NoError(g, err)
		require.Equal(g, RunSucceeded, list[0].Last.State)
		require.Equal(g, RunFailed, list[1].Last.State)
		require.Equal(g, "timeout of 1m0s: context deadline exceeded", list[1].Last.Error)
		a.end()
	})
}

// TestRunOnElection: once a term, besides the schedule.
func TestRunOnElection(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), RunOnElection: true}
		a := g.leader("a", task)
		g.pass(90 * time.Minute)
		a.end()
		b := g.leader("b", task)
		g.pass(40 * time.Minute)
		b.end()
		require.Equal(g, []string{"0s t 0s #1 starts", "1h0m0s t 1h0m0s #1 starts", "1h30m0s t 1h30m0s #1 starts", "2h0m0s t 2h0m0s #1 starts"}, g.noted())

		// One that was interrupted is run again, which is what the next election asks for as well.
		task.Run = g.run(10 * time.Minute)
		c := g.leader("c", task)
		g.pass(5 * time.Minute)
		c.end()
		g.pass(5 * time.Minute)
		d := g.leader("d", task)
		g.pass(30 * time.Minute)
		d.end()
		require.Equal(g, []string{"2h10m0s t 2h10m0s #1 starts", "2h15m0s t 2h10m0s #1 is told to stop", "2h20m0s t 2h10m0s #2 starts"}, g.noted())
	})
}

// TestFirstSlot: InitialDelay is for a task without a record, and counts from its first leader.
func TestFirstSlot(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		tasks := []Task{
			{Name: "a", Schedule: Every(time.Hour), Run: g.run(0)},
			{Name: "b", Schedule: Every(time.Hour), InitialDelay: 10 * time.Second, Run: g.run(0)},
			{Name: "c", Schedule: Cron("0 * * * *"), Run: g.run(0)},
			{Name: "d", Schedule: Cron("0 * * * *"), InitialDelay: 2 * time.Hour, Run: g.run(0)},
		}
		g.pass(30 * time.Minute)
		a := g.leader("a", tasks...)
		g.pass(time.Minute)
		a.end()
		b := g.leader("b", tasks...)
		g.pass(3 * time.Hour)
		b.end()
		require.Equal(g, []string{
			"30m10s b 30m10s #1 starts",
			"1h0m0s c 1h0m0s #1 starts",
			"1h30m0s a 1h30m0s #1 starts", "1h30m10s b 1h30m10s #1 starts",
			"2h0m0s c 2h0m0s #1 starts",
			"2h30m0s a 2h30m0s #1 starts", "2h30m10s b 2h30m10s #1 starts",
			"3h0m0s c 3h0m0s #1 starts", "3h0m0s d 3h0m0s #1 starts",
			"3h30m0s a 3h30m0s #1 starts", "3h30m10s b 3h30m10s #1 starts",
		}, sortedTrace(g.noted()))
	})
}

// TestTriggerBeforeTheFirstSlot: a run that is triggered leaves the first slot where it is, also
// for the next leader.
func TestTriggerBeforeTheFirstSlot(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Minute), InitialDelay: 3 * time.Hour, Run: g.run(0)}
		a := g.leader("a", task)
		g.pass(10 * time.Minute)
		_, err := a.Trigger(context.Background(), "t")
		require.NoError(g, err)
		g.pass(20 * time.Minute)
		a.end()
		b := g.leader("b", task)
		g.pass(2*time.Hour + 31*time.Minute + time.Second)
		b.end()
		require.Equal(g, []string{"10m0s t 10m0s #1 starts", "3h0m0s t 3h0m0s #1 starts", "3h1m0s t 3h1m0s #1 starts"}, g.noted())
	})
}

// TestChangedSchedule: a new schedule counts from now; what was owed under the old one stays, and
// Every stays in step.
func TestChangedSchedule(t *testing.T) {
	for name, c := range map[string]struct {
		before, after Schedule
		outage        time.Duration
		want          string
	}{
		"cron":                   {Cron("0 2 * * *"), Cron("0 3 * * *"), 0, "27h0m0s t 27h0m0s #1 starts"},
		"cron, owed":             {Cron("0 2 * * *"), Cron("0 3 * * *"), 24 * time.Hour, "28h0m0s t 26h0m0s #1 starts"},
		"every, in step":         {Every(2 * time.Hour), Every(3 * time.Hour), 0, "7h0m0s t 7h0m0s #1 starts"},
		"every, overdue":         {Every(2 * time.Hour), Every(time.Hour), 90 * time.Minute, "5h30m0s t 5h30m0s #1 starts"},
		"every, due at once":     {Every(2 * time.Hour), Every(100 * time.Minute), -10 * time.Minute, "3h50m0s t 3h50m0s #1 starts"},
		"every, before it ran":   {Every(48 * time.Hour), Every(6 * time.Hour), 0, "10h0m0s t 10h0m0s #1 starts"},
		"every, never postponed": {Every(5 * time.Hour), Every(6 * time.Hour), 0, "5h0m0s t 5h0m0s #1 starts"},
		"to cron":                {Every(48 * time.Hour), Cron("0 3 * * *"), 0, "27h0m0s t 27h0m0s #1 starts"},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: c.before, Run: g.run(0)})
				g.pass(4*time.Hour + min(c.outage, 0))
				a.end()
				g.noted()
				g.pass(max(c.outage, 0))
				b := g.leader("b", Task{Name: "t", Schedule: c.after, Run: g.run(0)})
				g.pass(30 * time.Hour)
				require.Equal(g, c.want, g.noted()[0])
				require.Equal(g, c.after.Identity(), b.status().Schedule)
				b.end()
			})
		})
	}
}

// TestJitter: it delays a slot by what follows from its name and time, so that a failover does not
// change it.
func TestJitter(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Jitter: 30 * time.Minute, Run: g.run(0)}
		var total time.Duration
		for n := 1; n <= 20; n++ {
			due := time.Duration(n) * time.Hour
			delay := delayOf(task, g.began.Add(due).UnixMilli())
			total += delay
			a := g.leader("a", task)
			g.pass(due + delay/2 - g.now())
			a.end()
			a = g.leader("b", task)
			g.pass(due + delay - time.Millisecond - g.now())
			require.Empty(g, g.noted())
			g.pass(4 * time.Millisecond)
			require.Len(g, g.noted(), 1)
			a.end()
		}
		require.InDelta(g, 15, total.Minutes()/20, 6)
	})
}

// TestHungSchedulesMakeRoom: as many as are asked at a time hang, and are found out in one turn.
// The others are asked right then, and not when something else wakes the loop.
func TestHungSchedulesMakeRoom(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		never := make(chan struct{})
		a := g.member("a")
		for i := range maxConsulted {
			hang := atomic.Bool{}
			hangs := ownSchedule{text: fmt.Sprint("hangs ", i), next: func(after time.Time) time.Time {
				if hang.Load() {
					<-never
				}
				return after.Add(time.Minute)
			}}
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("h", i), Schedule: hangs, Run: noTask}))
			hang.Store(true)
		}
		good := ownSchedule{text: "good", next: func(after time.Time) time.Time { return after.Add(time.Second) }}
		require.NoError(g, a.Register(Task{Name: "good", Schedule: good, Run: g.run(0)}))
		a.begin()
		g.pass(10 * time.Second)
		require.NotEmpty(g, g.noted(), "it runs while the others hang")
		close(never)
		g.pass(time.Minute)
	})
}

// TestManyOwnSchedules: as many schedules of the application are asked at a time as may be, and the
// others in turn. All of them get their answers, slot after slot.
func TestManyOwnSchedules(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		const tasks, takes = 3 * maxConsulted, 400 * time.Millisecond
		a := g.member("a")
		on, most := 0, 0
		for n := range tasks {
			name := fmt.Sprintf("t%02d", n)
			slow := ownSchedule{text: name, next: func(after time.Time) time.Time {
				if g.now() > 0 {
					g.lock(func() { on++; most = max(most, on) })
					time.Sleep(takes)
					g.lock(func() { on-- })
				}
				return after.Truncate(time.Minute).Add(time.Minute)
			}}
			require.NoError(g, a.Register(Task{Name: name, Schedule: slow, Run: g.run(0)}))
		}
		g.pass(time.Second)
		a.begin()
		g.pass(10*time.Minute + 30*time.Second)
		a.end()
		g.pass(time.Minute)
		require.Equal(g, maxConsulted, most)
		ran := make(map[string]int)
		for _, line := range g.noted() {
			ran[strings.Fields(line)[1]]++
		}
		require.Len(g, ran, tasks)
		for name, runs := range ran {
			require.Equal(g, 10, runs, name)
		}
		require.Empty(g, g.told(EventTaskBlocked))
	})
}

// TestSchedulesThatHungReturn: one that was found to hang makes room once, however it ends: it
// answers at last, or its task is unregistered. No more are asked at a time for that.
func TestSchedulesThatHungReturn(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		release := make(chan struct{})
		for n := range maxConsulted {
			s := &hangingSchedule{release: release, every: time.Hour}
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("h", n), Schedule: s, Run: noTask}))
			s.hang.Store(true)
		}
		g.pass(time.Second)
		a.begin()
		g.pass(5 * time.Second)
		require.Len(g, g.told(EventTaskBlocked), maxConsulted)
		for n := range maxConsulted / 2 {
			require.NoError(g, a.Unregister(context.Background(), fmt.Sprint("h", n)))
		}
		close(release)
		g.pass(time.Second)

		on, most := 0, 0
		var leads atomic.Bool
		for n := range 3 * maxConsulted {
			slow := ownSchedule{text: fmt.Sprint(n), next: func(after time.Time) time.Time {
				if leads.Load() { // and not Register
					g.lock(func() { on++; most = max(most, on) })
					time.Sleep(nextBound / 4)
					g.lock(func() { on-- })
				}
				return after.Truncate(time.Minute).Add(time.Minute)
			}}
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("t", n), Schedule: slow, Run: noTask}))
		}
		leads.Store(true)
		g.pass(10 * time.Minute)
		a.end()
		g.pass(time.Minute)
		require.Equal(g, maxConsulted, most)
	})
}

// TestScheduleWaitsItsTurn: a schedule that has waited for its turn is asked before one that comes
// at the moment in which there is room again. It waits once, however often its task has news.
func TestScheduleWaitsItsTurn(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		never := make(chan struct{})
		defer close(never)
		m := g.member("m")
		for n := range maxConsulted + 2 {
			s := &hangingSchedule{release: never, every: time.Hour}
			require.NoError(g, m.Register(Task{Name: fmt.Sprint("t", n), Schedule: s, Run: noTask}))
			s.hang.Store(true)
		}
		live := begin(background, Term{Token: 1}, lease.Lease{Sent: readClock(), Life: time.Hour}, func() {})
		defer live.end(ErrStopped)
		term, _ := TermFrom(live.ctx)
		l := newTaskLoop(live.ctx, live.tasks.ctx, m.roleTasks, term)
		m.loops(true)
		l.shared.Clock.Learn(0, 0, time.Now().UnixMilli())
		l.register()
		hangs, waits, comes := l.tasks[0], l.tasks[maxConsulted], l.tasks[maxConsulted+1]
		read := func(t *leadTask) {
			t.machine.Step()
			t.machine.Answer(t.machine.Sent(), store.TaskReply{Verdict: store.TaskOK, Record: store.TaskRecord{Spec: t.spec, Token: 1}})
		}
		for _, t := range l.tasks[:maxConsulted+1] {
			read(t)
		}
		l.turn()
		synctest.Wait() // all have been called
		for range 2 {
			l.now += nextBound / 2
			l.touch(waits)
			l.turn()
			require.Equal(g, []*leadTask{waits}, l.asking)
		}
		read(comes)
		for _, t := range l.tasks[1:maxConsulted] { // they are looked at later
			t.question.at += nextBound
		}
		l.now += nextBound / 2
		l.touch(hangs)
		l.touch(comes)
		wait, _ := l.turn()
		require.True(g, hangs.question.hangs)
		require.Zero(g, wait, "there is room")
		require.Equal(g, []*leadTask{waits, comes}, l.asking)
		l.turn()
		require.NotNil(g, waits.question)
		require.Nil(g, comes.question)
		require.Equal(g, []*leadTask{comes}, l.asking)
	})
}
