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
		g.pass(10 * time.Minute)
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
	l := newTaskLoop(s, live.ctx, live.tasks.ctx, term)
	l.shared.Clock.Learn(0, 0, now.UnixMilli())
	due := now.Add(-10_000 * time.Minute).Truncate(time.Minute).UnixMilli()
	for _, r := range s.known() {
		record := store.TaskRecord{Due: strconv.FormatInt(due, 10), Next: due, Spec: r.spec, Token: 1}
		l.add(r)
		machine := l.tasks[len(l.tasks)-1].machine
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
		schedule := Cron(spec)
		for range 3 {
			next := schedule.Next(at)
			if next.IsZero() {
				return // refused, or it has ended
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
