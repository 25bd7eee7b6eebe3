package tenure

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
		var calls atomic.Int64
		own := ownSchedule{func(after time.Time) time.Time { calls.Add(1); return after.Truncate(time.Minute).Add(time.Minute) }, "own"}
		task := Task{Name: "t", Schedule: own, Missed: MissedRunAll, MaxCatchUp: 2000, Run: noTask}
		a := g.leader("a", task)
		g.pass(90 * time.Second)
		a.end()
		g.pass(1000 * time.Minute)
		calls.Store(0)
		b := g.leader("b", task)
		g.pass(time.Second)
		require.Len(g, g.told(EventTaskStarted), 1001)
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
