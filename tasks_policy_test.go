package tenure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

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
				if c.task.Overlap == OverlapSkip {
					require.Equal(g, int64(1), a.status().Skipped, "it is told when it happens")
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

// TestTaskFailures: errors, panics and runtime.Goexit are recorded, told and retried; none ends the
// term.
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
				finished := g.told(EventTaskFailed)
				require.Len(g, finished, 3)
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

// TestTimeout: it bounds an attempt, and one that does not heed it is told of, once.
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
		require.Empty(g, g.told(EventOverrun))
		g.pass(20 * time.Minute)
		overran := g.told(EventOverrun)
		require.Len(g, overran, 1)
		require.Equal(g, "evil", overran[0].Task)
		require.ErrorContains(g, overran[0].Err, "evil")
		close(release)
		g.pass(time.Second)
		list, err := a.Tasks(context.Background())
		require.NoError(g, err)
		require.Equal(g, RunSucceeded, list[0].Last.State)
		require.Equal(g, RunFailed, list[1].Last.State)
		require.Equal(g, context.DeadlineExceeded.Error(), list[1].Last.Error)
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
