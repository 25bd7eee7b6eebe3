package tenure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// badTask fails in each attempt, and notes it.
func (g *taskCluster) badTask(retry RetryPolicy) Task {
	return Task{Name: "t", Schedule: Every(24 * time.Hour), RunOnElection: true, Retry: retry, Run: func(_ context.Context, run TaskRun) error {
		g.note("#%d", run.Attempt)
		return errBroken
	}}
}

// TestAttemptsAreInAll: the attempts of a run, and the pauses between them, are those of all its
// leaders together.
func TestAttemptsAreInAll(t *testing.T) {
	for name, leave := range map[string]func(*taskInstance){"hand-over": (*taskInstance).end, "crash": (*taskInstance).crash} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := g.badTask(RetryPolicy{Attempts: 3, Backoff: 10 * time.Minute, MaxBackoff: 10 * time.Minute})
				task.RunOnElection, task.Schedule = false, Every(time.Hour)
				g.leader("first", task).end()
				g.pass(time.Hour)
				for n := range 2 {
					m := g.leader(fmt.Sprint("m", n), task)
					g.pass(time.Minute)
					leave(m)
				}
				last := g.leader("last", task)
				g.pass(50 * time.Minute)
				numbers := []string{"1h0m0s #1", "1h10m0s #2", "1h20m0s #3"}
				if name == "crash" { // the second one may have begun: its number is passed over
					numbers = []string{"1h0m0s #1", "1h10m0s #3", "1h20m0s #4"}
				}
				require.Equal(g, numbers, g.noted())
				require.Equal(g, RunFailed, last.status().Last.State)
				last.end()
			})
		})
	}
}

// TestManyHandOversAreNoMoreAttempts: fifty leaders in fifty minutes make no more attempts than
// one.
func TestManyHandOversAreNoMoreAttempts(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := g.badTask(RetryPolicy{Attempts: 3, Backoff: 7 * time.Minute, MaxBackoff: 7 * time.Minute})
		task.RunOnElection, task.Schedule = false, Every(time.Hour)
		g.leader("first", task).end()
		g.pass(time.Hour)
		for n := range 50 {
			m := g.leader(fmt.Sprint("m", n), task)
			g.pass(time.Minute)
			m.end()
		}
		require.Equal(g, []string{"1h0m0s #1", "1h7m0s #2", "1h14m0s #3"}, g.noted())
	})
}

// TestAttemptNumbersNeverRepeat: also if leaders die during an attempt that was a retry.
func TestAttemptNumbersNeverRepeat(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		seen := map[int]bool{}
		task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 100, Backoff: time.Second, MaxBackoff: time.Second}}
		task.Run = func(ctx context.Context, run TaskRun) error {
			require.False(g, seen[run.Attempt], "attempt %d twice", run.Attempt)
			seen[run.Attempt] = true
			if run.Attempt%3 == 0 {
				<-ctx.Done() // the leader dies during this one
			}
			return errBroken
		}
		g.leader("first", task).end()
		g.pass(time.Hour)
		for n := range 2 {
			m := g.leader(fmt.Sprint("m", n), task)
			g.pass(time.Minute)
			m.crash()
		}
		last := g.leader("last", task)
		g.pass(time.Minute)
		require.Greater(g, len(seen), 6)
		last.end()
	})
}

// TestRetryIsNotedFirst: no attempt begins before Redis has heard of it, for the next leader could
// not know of it.
func TestRetryIsNotedFirst(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", g.badTask(RetryPolicy{Attempts: 3, Backoff: time.Second}))
		a.store.on(befalls("retry", 4, taskMute))
		a.begin()
		g.pass(time.Second)
		require.Equal(g, []string{"0s #1"}, g.noted())
		g.pass(time.Minute)
		require.Len(g, g.noted(), 2)
		require.Equal(g, 3, a.status().Last.Attempt)
		a.end()
	})
	inTaskCluster(t, func(g *taskCluster) { // a newer leader has the record: nothing is tried again
		a := g.leader("a", g.badTask(RetryPolicy{Attempts: 3, Backoff: time.Second}))
		g.token += 1000
		_, err := g.local.Open(context.Background(), "t", store.TaskOpen{Token: g.token})
		require.NoError(g, err)
		g.pass(time.Minute)
		require.Len(g, g.noted(), 2, "the one that was noted before")
		require.Len(g, g.told(EventTaskBlocked), 1)
		a.end()
	})
	inTaskCluster(t, func(g *taskCluster) { // the term ends while it is noted
		a := g.member("a", g.badTask(RetryPolicy{Attempts: 3, Backoff: time.Minute}))
		a.store.on(befalls("retry", always, taskLost))
		a.begin()
		g.pass(10 * time.Second)
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.State)
		b := g.leader("b", g.badTask(RetryPolicy{Attempts: 3, Backoff: time.Minute}))
		g.pass(49 * time.Second)
		require.Len(g, g.noted(), 1)
		g.pass(2 * time.Second)
		require.Equal(g, []string{"1m0s #2"}, g.noted())
		b.end()
	})
}

// TestFailsWhileItFinishes: a task that fails after a voluntary end, while it may finish, has
// failed; the next leader tries again.
func TestFailsWhileItFinishes(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		policy   AbandonedPolicy
		status   RunState
		next     []string
	}{
		"attempts left":              {3, AbandonedRerun, RunInterrupted, []string{"2m30s #2"}},
		"none left":                  {1, AbandonedRerun, RunFailed, nil},
		"attempts left, mark failed": {3, AbandonedFail, RunFailed, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := g.badTask(RetryPolicy{Attempts: c.attempts, Backoff: time.Minute})
				task.Abandoned = c.policy
				bad := task.Run
				task.Run = func(ctx context.Context, run TaskRun) error {
					time.Sleep(90 * time.Second)
					require.NoError(g, ctx.Err())
					return bad(ctx, run)
				}
				a := g.leader("a", task)
				g.pass(time.Minute)
				a.t.retire(ErrResigned)
				g.pass(time.Minute)
				require.Len(g, a.ended, 1)
				require.Equal(g, []string{"1m30s #1"}, g.noted())
				require.Equal(g, c.status, a.status().Last.State)
				task.Run, task.RunOnElection = bad, false
				b := g.leader("b", task)
				g.pass(time.Minute)
				require.Equal(g, c.next, g.noted())
				b.end()
			})
		})
	}
}

// TestDeployLogsNoError: a task that heeds its context is interrupted, which is no failure; one
// that fails then is.
func TestDeployLogsNoError(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		policy AbandonedPolicy
		status RunState
		logged string
	}{
		"heeds":              {nil, AbandonedRerun, RunInterrupted, "level=INFO msg=\"task interrupted\""},
		"fails":              {errors.New("half done"), AbandonedRerun, RunFailed, "level=WARN msg=\"task attempt failed, another follows\""},
		"heeds, mark failed": {nil, AbandonedFail, RunFailed, "level=ERROR msg=\"task failed\""},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				var log strings.Builder
				a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Abandoned: c.policy, Run: func(ctx context.Context, _ TaskRun) error {
					<-ctx.Done()
					if c.err != nil {
						return c.err
					}
					return fmt.Errorf("query: %w", ctx.Err())
				}})
				a.bus.observe(logEvents(slog.New(slog.NewTextHandler(&log, nil))))
				a.begin()
				g.pass(90 * time.Minute)
				a.end()
				synctest.Wait()
				require.Contains(g, log.String(), c.logged)
				require.Equal(g, c.policy == AbandonedFail, strings.Contains(log.String(), "ERROR"), log.String())
				require.Equal(g, c.status == RunFailed, strings.Contains(log.String(), "WARN") || strings.Contains(log.String(), "ERROR"), log.String())
				require.Equal(g, c.status, g.told(EventTaskAttemptFailed, EventTaskFailed, EventTaskInterrupted)[0].State)
			})
		})
	}
}

// TestAbandonedIsReported: a run that is given up is an event and a line at Error.
func TestAbandonedIsReported(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute), Abandoned: AbandonedFail}
		a := g.leader("a", task)
		g.pass(70 * time.Minute)
		a.crash()
		var log strings.Builder
		b := g.member("b", task)
		b.bus.observe(logEvents(slog.New(slog.NewTextHandler(&log, nil))))
		b.begin()
		g.pass(time.Second)
		var told []Event
		for _, e := range g.told(EventTaskFailed) {
			if errors.Is(e.Err, ErrAbandoned) {
				told = append(told, e)
			}
		}
		require.Len(g, told, 1)
		require.Equal(g, RunAbandoned, told[0].State)
		require.Equal(g, time.Hour, told[0].Slot.Sub(g.began))
		require.Equal(g, int64(1001), told[0].Token)
		require.Contains(g, log.String(), "level=ERROR msg=\"task abandoned\"")
		require.Contains(g, b.status().Last.Error, "did not report its end")
		b.end()
	})
}

// TestPoisonIsRunRarely: a task that takes its leaders down with it is not run again because of
// RunOnElection.
func TestPoisonIsRunRarely(t *testing.T) {
	for policy, deaths := range map[AbandonedPolicy]int{AbandonedRerun: schedule.MaxCrashes, AbandonedFail: schedule.MaxCrashes} {
		inTaskCluster(t, func(g *taskCluster) {
			begun, poison := 0, true
			task := Task{Name: "t", Schedule: Every(time.Hour), RunOnElection: true, Abandoned: policy, Run: func(ctx context.Context, _ TaskRun) error {
				begun++
				if poison {
					<-ctx.Done()
				}
				return nil
			}}
			died := 0
			for n := range 20 {
				m := g.leader(fmt.Sprint("m", n), task)
				g.pass(time.Minute)
				if begun > died { // the process dies of it
					died++
					m.crash()
				} else {
					m.end()
				}
			}
			require.Equal(g, deaths, died)

			// Its next slot runs it again; once that has come to its end it is a task like any
			// other.
			poison, begun = false, 0
			m := g.leader("healthy", task)
			g.pass(time.Hour)
			require.Equal(g, 1, begun)
			m.end()
			g.leader("next", task).end()
			require.Equal(g, 2, begun)
		})
	}
}

// TestSkipWithJitter: what jitter has put off is overlapped only if it would start while the run
// before it is on.
func TestSkipWithJitter(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		const takes = 30 * time.Second
		task := Task{Name: "t", Schedule: Every(time.Minute), Jitter: 50 * time.Second, Run: g.run(takes)}
		a := g.leader("a", task)
		g.pass(10*time.Hour + 50*time.Second)
		want, until := 0, time.Duration(0)
		for slot := time.Minute; slot <= 10*time.Hour; slot += time.Minute {
			if starts := slot + delayOf(task, g.began.Add(slot).UnixMilli()); starts > until {
				want, until = want+1, starts+takes
			}
		}
		require.Greater(g, want, 540)
		require.InDelta(g, want, len(g.noted()), 2)
		require.InDelta(g, 600-want, int(a.status().Skipped), 2)
		a.end()
	})
}

// TestRunAllCatchesUpAndIsDone: after an outage a task that is slower than its interval catches up
// on what was missed, and then is as it was before.
func TestRunAllCatchesUpAndIsDone(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	for _, takes := range []time.Duration{30 * time.Second, 55 * time.Second, 61 * time.Second, 150 * time.Second} {
		for _, missed := range []MissedPolicy{MissedRunOnce, MissedRunAll} {
			t.Run(fmt.Sprint(takes, missed), func(t *testing.T) {
				inTaskCluster(t, func(g *taskCluster) {
					var lag atomic.Int64
					task := Task{Name: "t", Schedule: Every(time.Minute), Missed: missed, MaxCatchUp: 50, Run: func(ctx context.Context, run TaskRun) error {
						lag.Store(int64(time.Since(run.Slot)))
						return g.run(takes)(ctx, run)
					}}
					a := g.leader("a", task)
					g.pass(3*time.Hour + time.Second)
					before := len(g.noted())
					a.end()
					skipped := a.status().Skipped
					g.noted()
					g.pass(2*time.Hour - time.Second)
					b := g.leader("b", task)
					g.pass(30 * time.Minute)
					if missed == MissedRunAll {
						require.GreaterOrEqual(g, time.Duration(lag.Load()), 20*time.Minute)
					}
					g.pass(48 * time.Hour)
					require.Less(g, time.Duration(lag.Load()), 5*time.Second, "it is still late")
					if takes < time.Minute {
						lost := b.status().Skipped - skipped
						require.Equal(g, map[MissedPolicy]int64{MissedRunOnce: 119, MissedRunAll: 70}[missed], lost, "what came due meanwhile was caught up on")
					}
					g.noted()
					g.pass(3 * time.Hour)
					require.InDelta(g, before, len(g.noted()), 2)
					b.end()
				})
			})
		}
	}
}

// TestCatchUpWalksOnce: the missed slots are walked through once, not again for each of them.
func TestCatchUpWalksOnce(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var calls, runs atomic.Int64
		own := ownSchedule{func(after time.Time) time.Time { calls.Add(1); return after.Truncate(time.Minute).Add(time.Minute) }, "own"}
		task := Task{Name: "t", Schedule: own, Missed: MissedRunAll, MaxCatchUp: 2000, Run: func(context.Context, TaskRun) error { runs.Add(1); return nil }}
		a := g.leader("a", task)
		g.pass(90 * time.Second)
		a.end()
		g.pass(1000 * time.Minute)
		calls.Store(0)
		b := g.leader("b", task)
		g.pass(time.Second)
		require.EqualValues(g, 1001, runs.Load()) // an observer may miss some of so many events
		require.Less(g, calls.Load(), int64(5000))
		b.end()
	})
}

// withInterval is a schedule of the application's with a method that tenure knows nothing of.
type withInterval struct{ ownSchedule }

func (withInterval) Interval() time.Duration { return 5 * time.Minute }

// TestNoMethodReplacesNext: of a schedule of the application's nothing counts but Next and String.
func TestNoMethodReplacesNext(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		nightly := withInterval{ownSchedule{func(after time.Time) time.Time {
			return after.Add(21 * time.Hour).Truncate(24 * time.Hour).Add(3 * time.Hour)
		}, "nightly"}}
		task := Task{Name: "t", Schedule: nightly, Missed: MissedRunAll, Run: g.run(0)}
		a := g.leader("a", task)
		g.pass(50 * time.Hour)
		a.end()
		g.pass(48 * time.Hour)
		b := g.leader("b", task)
		g.pass(time.Hour)
		require.Equal(g, []string{"3h0m0s t 3h0m0s #1 starts", "27h0m0s t 27h0m0s #1 starts", "98h0m0s t 51h0m0s #1 starts",
			"98h0m0s t 75h0m0s #1 starts", "99h0m0s t 99h0m0s #1 starts"}, g.noted())
		b.end()
	})
}

// TestOwedSlotStandsAlone: what was owed under the old schedule is run by Missed; the new one
// begins now.
func TestOwedSlotStandsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		before, after Schedule
		missed        MissedPolicy
		want          []string
		skipped       int64
	}{
		"cron":        {Cron("0 2 * * *"), Cron("*/10 * * * *"), MissedRunAll, []string{"6h0m1s t 2h0m0s #1 starts", "6h10m0s t 6h10m0s #1 starts"}, 0},
		"skip":        {Cron("0 2 * * *"), Cron("*/10 * * * *"), MissedSkip, []string{"6h10m0s t 6h10m0s #1 starts"}, 1},
		"every":       {Every(2 * time.Hour), Every(3 * time.Minute), MissedRunAll, []string{"6h0m1s t 2h0m0s #1 starts", "6h3m0s t 6h3m0s #1 starts", "6h6m0s t 6h6m0s #1 starts", "6h9m0s t 6h9m0s #1 starts"}, 0},
		"cron, every": {Cron("0 2 * * *"), Every(7 * time.Minute), MissedRunOnce, []string{"6h0m1s t 2h0m0s #1 starts", "6h5m0s t 6h5m0s #1 starts"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: c.before, Missed: c.missed, Run: g.run(0)})
				g.pass(time.Hour)
				a.end()
				g.pass(5*time.Hour + time.Second)
				b := g.leader("b", Task{Name: "t", Schedule: c.after, Missed: c.missed, Run: g.run(0)})
				g.pass(11*time.Minute - time.Second)
				require.Equal(g, c.want, rounded(g.noted()))
				require.Equal(g, c.skipped, b.status().Skipped)
				require.Equal(g, b.known()[0].spec, g.saved().Spec)
				b.end()
			})
		})
	}
}

// TestEndedScheduleComesBack: a list of dates that was extended goes on with the next term.
func TestEndedScheduleComesBack(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		dates := func(hours ...int) Task {
			return Task{Name: "t", Run: g.run(0), Missed: MissedRunAll, Schedule: ownSchedule{func(after time.Time) time.Time {
				for _, h := range hours {
					if at := g.began.Add(time.Duration(h) * time.Hour); at.After(after) {
						return at
					}
				}
				return time.Time{}
			}, "holidays"}}
		}
		a := g.leader("a", dates(1, 2))
		g.pass(4 * time.Hour)
		a.end()
		b := g.leader("b", dates(1, 2, 3, 30, 40))
		g.pass(72 * time.Hour)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "2h0m0s t 2h0m0s #1 starts", "30h0m0s t 30h0m0s #1 starts",
			"40h0m0s t 40h0m0s #1 starts"}, g.noted(), "3h was not in force")
		b.end()
	})
}

// TestOutdatedRun: a run that was left behind long ago is run again only if Missed asks for its
// slot.
func TestOutdatedRun(t *testing.T) {
	for name, c := range map[string]struct {
		missed MissedPolicy
		crash  bool
		outage time.Duration
		rerun  bool
	}{
		"skip, soon":            {MissedSkip, false, 50 * time.Second, true},
		"skip, late":            {MissedSkip, false, 5 * time.Minute, false},
		"skip, months":          {MissedSkip, false, 60*24*time.Hour - time.Hour, false},
		"skip, a crash":         {MissedSkip, true, 2 * time.Hour, true},
		"skip, a crash, long":   {MissedSkip, true, 30 * time.Hour, false},
		"once, a slot later":    {MissedRunOnce, false, 25 * time.Hour, true},
		"once, two slots later": {MissedRunOnce, false, 49 * time.Hour, false},
		"once, crash, months":   {MissedRunOnce, true, 60 * 24 * time.Hour, false},
		"all, months":           {MissedRunAll, true, 60 * 24 * time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(24 * time.Hour), Missed: c.missed, Run: g.run(30 * time.Minute)}
				a := g.leader("a", task)
				g.pass(24*time.Hour + 15*time.Minute)
				if c.crash {
					a.crash()
				} else {
					a.end()
				}
				g.noted()
				g.pass(c.outage)
				b := g.leader("b", task)
				g.pass(time.Second)
				rerun := fmt.Sprintf("%v t 24h0m0s #2 starts", 24*time.Hour+15*time.Minute+c.outage)
				if c.rerun {
					require.Contains(g, g.noted(), rerun)
				} else {
					require.NotContains(g, g.noted(), rerun)
					require.NotEmpty(g, g.told(EventTaskSkipped))
				}
				g.pass(24 * time.Hour)
				require.NotEmpty(g, g.noted(), "the task goes on")
				b.end()
			})
		})
	}
}

// TestOutdatedRunHasFailed: a run that was interrupted, or given back, and that is not run again
// has failed. That is reported once, whoever leads later.
func TestOutdatedRunHasFailed(t *testing.T) {
	for name, task := range map[string]Task{"skip": {Missed: MissedSkip}, "too late": {StartingDeadline: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task.Name, task.Schedule, task.Run = "t", Every(7*24*time.Hour), g.run(30*time.Minute)
				a := g.leader("a", task)
				g.pass(7*24*time.Hour + 15*time.Minute)
				a.end()
				require.Equal(g, RunInterrupted, a.status().Last.State)
				g.pass(time.Hour)
				for range 3 {
					b := g.leader("b", task)
					g.pass(time.Minute)
					b.end()
				}
				failed := g.told(EventTaskFailed)
				require.Len(g, failed, 1)
				require.ErrorIs(g, failed[0].Err, ErrAbandoned)
				require.ErrorContains(g, failed[0].Err, "too late to run it again")
				require.Equal(g, RunAbandoned, failed[0].State)
				require.Len(g, g.told(EventTaskSkipped), 1)
				status := a.status()
				require.Equal(g, RunAbandoned, status.Last.State)
				require.Equal(g, failed[0].Err.Error(), status.Last.Error)
				require.Equal(g, 1, status.Failures)
				runs, err := a.Runs(g.Context(), "t", 5)
				require.NoError(g, err)
				require.Equal(g, []RunState{RunAbandoned, RunInterrupted}, []RunState{runs[0].State, runs[1].State})
				record, err := a.TaskScheduler.store.Record(g.Context(), "t")
				require.NoError(g, err)
				require.Zero(g, record.Record.Crashes, "no leader has died of it")
				require.ErrorIs(g, a.Cancel(g.Context(), "t"), ErrNotFound)
			})
		})
	}
}

// TestLaterSlotsStandForARunThatWaits: a run whose next attempt is due in a day, and whose leader
// has gone, is given up once Missed asks for none of its slot. The task does not stand still until
// then, only to give it up.
func TestLaterSlotsStandForARunThatWaits(t *testing.T) {
	for name, c := range map[string]struct {
		missed MissedPolicy
		crash  bool
		want   []string
	}{
		"skip":         {MissedSkip, false, []string{"2h0m0s 2h0m0s #1"}},
		"once":         {MissedRunOnce, false, []string{"3h0m0s 3h0m0s #1"}},
		"once, crash":  {MissedRunOnce, true, []string{"3h0m0s 3h0m0s #1"}},
		"all":          {MissedRunAll, false, []string{"25h0m0s 1h0m0s #2"}},
		"own schedule": {MissedRunOnce, false, []string{"3h0m0s 3h0m0s #1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				day := 24 * time.Hour
				task := Task{Name: "t", Schedule: Every(time.Hour), Missed: c.missed, Retry: RetryPolicy{Attempts: 2, Backoff: day, MaxBackoff: day}}
				if name == "own schedule" {
					task.Schedule = ownSchedule{func(after time.Time) time.Time { return after.Add(time.Hour) }, "own"}
				}
				task.Run = func(_ context.Context, run TaskRun) error {
					g.note("%v #%d", run.Slot.Sub(g.began), run.Attempt)
					return errBroken
				}
				a := g.leader("a", task)
				g.at(time.Hour + 10*time.Minute)
				if c.crash {
					a.crash()
				} else {
					a.end()
				}
				g.noted()
				b := g.leader("b", task)
				g.at(25*time.Hour + 10*time.Minute)
				require.Equal(g, c.want, g.noted()[:1])
				b.end()
			})
		})
	}
}

// TestGrace: under MissedSkip a slot may start so late, by default as late as a failover makes it.
func TestGrace(t *testing.T) {
	for name, c := range map[string]struct {
		grace, ttl, late time.Duration
		runs             bool
	}{
		"default":             {0, 30 * time.Second, 59 * time.Second, true},
		"default, later":      {0, 30 * time.Second, 61 * time.Second, false},
		"a long lease":        {0, 2 * time.Minute, 149 * time.Second, true},
		"a long lease, later": {0, 2 * time.Minute, 151 * time.Second, false},
		"named":               {10 * time.Minute, 30 * time.Second, 9 * time.Minute, true},
		"named short":         {time.Second, 30 * time.Second, 2 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				of, err := NewStandalone(Options{InstanceID: "i", Election: ElectionOptions{LeaseTTL: c.ttl}})
				require.NoError(g, err)
				task := Task{Name: "t", Schedule: Every(time.Hour), Missed: MissedSkip, Grace: c.grace, Run: g.run(0)}
				a := g.leader("a", task)
				g.pass(30 * time.Minute)
				a.end()
				b := g.member("b")
				b.grace = of.tasks.grace
				require.NoError(g, b.Register(task))
				g.pass(30*time.Minute + c.late)
				b.begin()
				g.pass(time.Second)
				require.Equal(g, c.runs, len(g.noted()) == 1)
				b.end()
			})
		})
	}
}

// TestTwoVersionsLeadByTurns: of two cron specs the one that is not due leads at each slot of the
// other. The task runs all the same, once a day, and each change is reported.
func TestTwoVersionsLeadByTurns(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		old := Task{Name: "t", Schedule: Cron("0 2 * * *"), Run: g.run(0)}
		young := Task{Name: "t", Schedule: Cron("30 2 * * *"), Run: g.run(0)}
		until := func(at time.Duration) { g.pass(at - g.now()) }
		a := g.leader("old", old)
		for day := range 7 {
			d := time.Duration(day) * 24 * time.Hour
			until(d + time.Hour + 59*time.Minute)
			a.end()
			b := g.leader("young", young)
			until(d + 2*time.Hour + 29*time.Minute)
			b.end()
			a = g.leader("old", old)
		}
		until(7 * 24 * time.Hour)
		require.Len(g, g.noted(), 7)
		require.Zero(g, a.status().Skipped)
		require.Len(g, g.told(EventTaskChanged), 14)
		a.end()
	})
}

// TestOneChangeDropsASlot: a deploy, and one that takes it back, run nothing that neither version
// asked for.
func TestOneChangeDropsASlot(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		g.leader("a", Task{Name: "t", Schedule: Cron("0 5 * * *"), Run: g.run(0)}).end()
		g.leader("b", Task{Name: "t", Schedule: Cron("0 6 * * *"), Run: g.run(0)}).end()
		c := g.leader("c", Task{Name: "t", Schedule: Cron("0 5 * * *"), Run: g.run(0)})
		g.pass(48 * time.Hour)
		require.Equal(g, []string{"5h0m0s t 5h0m0s #1 starts", "29h0m0s t 29h0m0s #1 starts"}, g.noted())
		c.end()
	})
}

// TestNoRetry: a run that says so has failed for good, whoever wraps its error, and the next slot
// runs.
func TestNoRetry(t *testing.T) {
	for name, wrapped := range map[string]error{
		"plain":         NoRetry(errBroken),
		"wrapped":       fmt.Errorf("middleware: %w", NoRetry(errBroken)),
		"of RetryAfter": NoRetry(RetryAfter(errBroken, time.Second)),
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := g.badTask(RetryPolicy{Attempts: 5, Backoff: time.Second})
				bad := task.Run
				task.RunOnElection, task.Schedule = false, Every(time.Hour)
				task.Run = func(ctx context.Context, run TaskRun) error {
					_ = bad(ctx, run)
					return wrapped
				}
				a := g.leader("a", task)
				g.pass(2*time.Hour + time.Minute)
				require.Equal(g, []string{"1h0m0s #1", "2h0m0s #1"}, g.noted())
				require.Empty(g, g.told(EventTaskAttemptFailed))
				failed := g.told(EventTaskFailed)
				require.Len(g, failed, 2)
				require.ErrorIs(g, failed[0].Err, errBroken)
				require.Equal(g, RunFailed, a.status().Last.State)
				require.Contains(g, a.status().Last.Error, errBroken.Error())
				a.end()
			})
		})
	}
}

// TestNoRetryOfARunThatIsCut: it is not run again by the next leader.
func TestNoRetryOfARunThatIsCut(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: func(ctx context.Context, run TaskRun) error {
			g.note("#%d", run.Attempt)
			<-ctx.Done()
			return NoRetry(ctx.Err())
		}}
		a := g.leader("a", task)
		g.pass(time.Hour + time.Minute)
		a.end()
		require.Equal(g, RunFailed, a.status().Last.State)
		b := g.leader("b", task)
		g.pass(time.Minute)
		require.Equal(g, []string{"1h0m0s #1"}, g.noted())
		b.end()
	})
}

// TestRetryAfter: the next attempt comes when it is asked for, also by another leader, and counts
// as any other.
func TestRetryAfter(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := g.badTask(RetryPolicy{Attempts: 3, Backoff: time.Second, MaxBackoff: time.Second})
		bad := task.Run
		task.RunOnElection = false
		task.Run = func(ctx context.Context, run TaskRun) error {
			return RetryAfter(bad(ctx, run), 5*time.Minute)
		}
		a := g.leader("a", task)
		g.pass(24*time.Hour + 6*time.Minute)
		require.Equal(g, []string{"24h0m0s #1", "24h5m0s #2"}, g.noted())
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.State)
		b := g.leader("b", task)
		g.pass(time.Hour)
		require.Equal(g, []string{"24h10m0s #3"}, g.noted())
		require.Equal(g, RunFailed, b.status().Last.State)
		attempts := g.told(EventTaskAttemptFailed)
		require.Len(g, attempts, 2)
		require.Equal(g, 5*time.Minute, attempts[0].Until.Sub(attempts[0].Time))
		require.Len(g, g.told(EventTaskFailed), 1)
		b.end()
	})
}

// TestRetryErrors: they are nil for nil, match what they wrap, keep its text, and are bounded.
func TestRetryErrors(t *testing.T) {
	require.NoError(t, NoRetry(nil))
	require.NoError(t, RetryAfter(nil, time.Second))
	for _, err := range []error{NoRetry(errBroken), RetryAfter(errBroken, time.Second)} {
		require.ErrorIs(t, err, errBroken)
		require.EqualError(t, err, errBroken.Error())
	}
	for asked, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Millisecond, 0: time.Millisecond, time.Minute: time.Minute, 1000 * 24 * time.Hour: schedule.LongestRetry,
	} {
		never, after := retryWanted(RetryAfter(errBroken, asked))
		require.False(t, never)
		require.Equal(t, want, after)
	}
	never, after := retryWanted(hostileTreeError{})
	require.False(t, never)
	require.Zero(t, after)
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = retryWanted(nil) }), "most runs succeed")
}

// hostileTreeError panics if it is asked what it is.
type hostileTreeError struct{ error }

func (hostileTreeError) As(any) bool { panic("no type") }

// TestTimeoutIsNamed: the error of an attempt that returned after its timeout names it and matches
// what the context says. That of one which had returned before is as it was.
func TestTimeoutIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(context.Context) error
		text string
	}{
		"error of the context": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "timeout of 5s: context deadline exceeded"},
		"its cause":            {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, "timeout of 5s"},
		"an error of its own":  {func(ctx context.Context) error { <-ctx.Done(); return errBroken }, "timeout of 5s: " + errBroken.Error()},
		"not to be retried":    {func(ctx context.Context) error { <-ctx.Done(); return NoRetry(errBroken) }, "timeout of 5s: " + errBroken.Error()},
		"before it":            {func(context.Context) error { return errBroken }, errBroken.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Timeout: 5 * time.Second, Run: func(ctx context.Context, _ TaskRun) error {
					return c.run(ctx)
				}})
				g.pass(time.Hour + time.Minute)
				require.Equal(g, c.text, a.status().Last.Error)
				failed := g.told(EventTaskFailed)
				require.Len(g, failed, 1)
				require.EqualError(g, failed[0].Err, c.text)
				require.Equal(g, name != "before it", errors.Is(failed[0].Err, context.DeadlineExceeded))
				a.end()
			})
		})
	}
}

// TestContextOfAnAttemptEnds: once the task has returned nothing is kept of its context, and what
// it has started with that ends. A term may have thousands of runs.
func TestContextOfAnAttemptEnds(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var ran []context.Context
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: func(ctx context.Context, _ TaskRun) error {
			require.NoError(g, ctx.Err())
			g.lock(func() { ran = append(ran, ctx) })
			return nil
		}})
		g.pass(3*time.Hour + time.Minute)
		g.lock(func() {
			require.Len(g, ran, 3)
			for _, ctx := range ran {
				require.Error(g, ctx.Err())
			}
		})
		a.end()
	})
}

// TestLatenessIsOfSlots: how late a run began is said of the first attempt at a slot; an attempt
// that is tried again, or a run that was triggered, is not late.
func TestLatenessIsOfSlots(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 2, Backoff: time.Minute}, Run: func(_ context.Context, run TaskRun) error {
			if run.Attempt == 1 {
				return errBroken
			}
			return nil
		}}
		a := g.leader("a", task)
		g.pass(30 * time.Minute)
		_, err := a.Trigger(g.Context(), "t")
		require.NoError(g, err)
		g.pass(15 * time.Minute)
		a.end()
		g.pass(20 * time.Minute)
		a.begin()
		g.pass(10 * time.Minute)
		a.end()
		var late []string
		for _, e := range g.told(EventTaskStarted) {
			late = append(late, fmt.Sprintf("#%d %v", e.Attempt, e.Took.Round(time.Minute)))
		}
		require.Equal(g, []string{"#1 0s", "#2 0s", "#1 5m0s", "#2 0s"}, late)
	})
}
