package tenure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// TestLostRecord: a record that is gone goes on where the leader knows it was.
func TestLostRecord(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(20 * time.Minute)})
		lose := func() { g.local.Change(func(records map[string]*store.TaskRecord) { clear(records) }) }
		g.pass(70 * time.Minute)
		lose() // during a run
		g.pass(30 * time.Minute)
		require.Equal(g, 2*time.Hour, a.status().Next.Sub(g.began))
		failed := g.told(EventTaskBlocked)
		require.Len(g, failed, 1)
		require.ErrorIs(g, failed[0].Err, ErrNotFound)
		lose()
		g.pass(50 * time.Minute)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "2h0m0s t 2h0m0s #1 starts"}, g.noted())
		require.Equal(g, 3*time.Hour, a.status().Next.Sub(g.began))
		a.end()
	})
}

// TestRecordMovesUnderTheLeader: what somebody else writes there is taken up, and nothing is run
// twice.
func TestRecordMovesUnderTheLeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		move := func(d time.Duration) {
			g.local.Change(func(records map[string]*store.TaskRecord) {
				r := records["t"]
				r.Next = g.began.Add(d).UnixMilli()
				r.Due = strconv.FormatInt(r.Next, 10)
			})
		}
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(90 * time.Minute)})
		g.pass(time.Hour - time.Second)
		move(70 * time.Minute) // the claim of the first slot finds another one
		g.pass(10*time.Minute + 2*time.Second)
		require.Equal(g, []string{"1h10m0s t 1h10m0s #1 starts"}, g.noted())
		g.pass(59*time.Minute + 57*time.Second)
		move(130*time.Minute + time.Second) // so does what is to pass the second one over, during the run
		g.pass(10 * time.Second)
		require.Equal(g, int64(1), a.status().Skipped)
		require.Equal(g, 3*time.Hour+10*time.Minute+time.Second, a.status().Next.Sub(g.began))
		g.pass(time.Hour)
		require.Equal(g, []string{"3h10m1s t 3h10m1s #1 starts"}, g.noted())
		a.end()
	})
}

// TestSickRecord: a record that somebody has to fix is told of once, tried rarely, and does not
// touch the other tasks.
func TestSickRecord(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		a.store.on(func(op string, _ int) taskFate { return taskSick })
		a.begin()
		g.pass(time.Hour)
		failed := g.told(EventTaskBlocked)
		require.Len(g, failed, 1)
		require.ErrorIs(g, failed[0].Err, ErrMisconfigured)
		require.InDelta(g, 720, a.store.calls.Load(), 10)
		require.ErrorIs(g, a.status().Err, ErrMisconfigured, "the leader says what keeps its task from going on")
		a.store.on(nil)
		g.pass(schedule.LongestPause)
		require.NoError(g, a.status().Err)
		require.False(g, a.status().Next.IsZero(), "it goes on soon after the repair")
		g.pass(2 * time.Hour)
		require.NotEmpty(g, g.noted())
		a.end()
	})
}

// TestHungCalls: calls that never return are bounded in number, told of, and do not stop the
// scheduler from going on later.
func TestHungCalls(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}, Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(30 * time.Minute)
		a.store.on(func(string, int) taskFate { return taskLate })
		g.pass(90 * time.Minute)
		require.Equal(g, maxCalls, a.calls.count())
		stuck := g.told(EventCallsStuck)
		require.Len(g, stuck, 1)
		require.Equal(g, maxCalls, stuck[0].Count)
		a.stop()
		g.pass(schedule.CallBound + schedule.FinishBound + time.Second)
		require.Len(g, a.ended, 1, "lead does not wait for ever")
		require.NoError(g, <-a.ended)

		// The next term of this process finds all of them taken.
		a.begin()
		g.pass(time.Minute)
		require.Len(g, g.told(EventCallsStuck), 2)
		a.store.on(nil)
		close(a.store.healed)
		g.pass(10 * time.Second)
		require.Len(g, g.noted(), 2)
		require.Zero(g, a.calls.count())
		a.end()
	})
}

// TestManyTasks: more tasks than calls may be in flight.
func TestManyTasks(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		for n := range 200 {
			require.NoError(g, a.Register(Task{Name: "t" + string(rune('a'+n%26)) + string(rune('a'+n/26)), Schedule: Every(time.Hour), Run: g.run(0)}))
		}
		a.begin()
		g.pass(time.Hour + time.Millisecond)
		require.Len(g, g.noted(), 200)
		require.Empty(g, g.told(EventCallsStuck))
		a.end()
	})
}

// farTasks is a store at a distance, in virtual time.
type farTasks struct{ store.Tasks }

func (s farTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	time.Sleep(200 * time.Millisecond)
	return s.Tasks.Claim(ctx, name, c)
}

func (s farTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	time.Sleep(200 * time.Millisecond)
	return s.Tasks.Finish(ctx, name, f)
}

// TestTasksTakeTurnsAtTheCalls: if calls are the bottleneck, every task has its share, whatever
// its place, and it is reported.
func TestTasksTakeTurnsAtTheCalls(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		g.store = farTasks{g.local} // 80 calls a second, for the 200 that there would be
		a := g.member("a")
		runs := make([]int, 100)
		for n := range runs {
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("t", n), Schedule: Every(time.Second), Run: func(context.Context, TaskRun) error {
				g.lock(func() { runs[n]++ })
				return nil
			}}))
		}
		a.begin()
		g.pass(2 * time.Minute)
		require.Greater(g, slices.Min(runs), 40)
		require.Less(g, slices.Max(runs)-slices.Min(runs), 6)
		tardy := g.told(EventTaskTardy)
		require.Len(g, tardy, 1, "once, until there are calls enough")
		require.Greater(g, tardy[0].Took, tardyAfter)
		require.Equal(g, g.token, tardy[0].Token)
		a.end()
	})
}

// TestFinishCannotBeTold: lead gives up after a while, and the next leader finds the run.
func TestFinishCannotBeTold(t *testing.T) {
	for name, fate := range map[string]taskFate{"refused": taskLost, "no reply": taskLate} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
				g.pass(time.Hour + time.Second)
				a.store.on(func(op string, _ int) taskFate { return fate })
				g.pass(10 * time.Minute) // as long as the term lasts it is tried
				require.True(g, a.status().Running)
				g.pass(2 * time.Hour)
				require.Len(g, g.noted(), 1, "the next slot waits for that")
				a.stop()
				g.pass(schedule.FinishBound - time.Millisecond)
				require.Empty(g, a.ended)
				g.pass(schedule.CallBound + 2*time.Millisecond)
				require.Len(g, a.ended, 1)
				close(a.store.healed)
			})
		})
	}
}

// TestFinishIsRepeated: what Redis did not answer is asked again while the term lasts, and after
// it.
func TestFinishIsRepeated(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
		a.store.on(befalls("finish", 3, taskMute))
		g.pass(time.Hour + 2*time.Minute)
		require.Equal(g, RunSucceeded, a.status().Last.State)
		g.pass(58*time.Minute + time.Second)
		a.store.on(befalls("finish", 3, taskLost))
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.State)
	})
}

// TestSkipWhileRunEnds: a run that ends while something else is being asked about the task waits
// for its turn.
func TestSkipWhileRunEnds(t *testing.T) {
	for _, end := range []bool{false, true} {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Hour + time.Second)})
			a.store.on(befalls("plan", 2, taskLost))
			g.pass(2*time.Hour + 100*time.Millisecond)
			if end {
				a.end()
				require.Equal(g, RunInterrupted, a.status().Last.State)
				return
			}
			g.pass(2 * time.Second)
			require.Equal(g, RunSucceeded, a.status().Last.State)
			require.Equal(g, int64(1), a.status().Skipped)
			a.end()
		})
	}
}
