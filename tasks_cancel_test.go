package tenure

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCancel: a run is ended from any process, by the hint or without it, and is not run again.
func TestCancel(t *testing.T) {
	for name, heard := range map[string]bool{"heard": true, "hint lost": false} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 3}}
				task.Run = func(ctx context.Context, run TaskRun) error {
					g.note("#%d", run.Attempt)
					<-ctx.Done()
					g.note("ends: %v", context.Cause(ctx))
					return ctx.Err()
				}
				a, b := g.leader("a", task), g.member("b")
				require.ErrorIs(g, b.Cancel(g.Context(), "t"), ErrNotFound, "nothing runs")
				require.ErrorIs(g, b.Cancel(g.Context(), "none"), ErrNotFound)
				require.ErrorIs(g, b.Cancel(g.Context(), "no name"), ErrMisconfigured)
				g.pass(time.Hour + 10*time.Minute)
				require.NoError(g, b.Cancel(g.Context(), "t"))
				if heard {
					a.hears("t")
					g.pass(0)
				} else {
					g.pass(time.Minute)
				}
				noted := g.noted()
				require.Len(g, noted, 2)
				require.Contains(g, noted[1], "ends: "+ErrCanceled.Error())
				status := b.status()
				require.False(g, status.Running)
				require.Equal(g, RunCanceled, status.Last.State)
				require.Equal(g, "tenure: run canceled: context canceled", status.Last.Error)
				require.Zero(g, status.Failures)
				runs, err := b.Runs(g.Context(), "t", 10)
				require.NoError(g, err)
				require.Len(g, runs, 1)
				require.Equal(g, RunCanceled, runs[0].State)
				told := g.told(EventTaskCanceled, EventTaskFailed, EventTaskAttemptFailed, EventTaskInterrupted)
				require.Len(g, told, 1)
				require.Equal(g, EventTaskCanceled, told[0].Type)
				require.ErrorIs(g, told[0].Err, ErrCanceled)
				require.ErrorIs(g, told[0].Err, context.Canceled)
				require.ErrorIs(g, b.Cancel(g.Context(), "t"), ErrNotFound, "it has ended")
				g.pass(time.Hour - g.now()%time.Hour)
				require.Equal(g, []string{"2h0m0s #1"}, g.noted(), "the next slot")
				a.end()
				require.Equal(g, RunInterrupted, b.status().Last.State)
				require.NoError(g, b.Cancel(g.Context(), "t"), "it waits to be run again")
				require.Equal(g, RunCanceled, b.status().Last.State)
				g.noted()
				a.begin()
				g.pass(10 * time.Minute)
				require.Empty(g, g.noted())
				a.end()
			})
		})
	}
}

// TestCancelBetweenAttempts: the run ends at once, and its event says why.
func TestCancelBetweenAttempts(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", g.badTask(RetryPolicy{Attempts: 3, Backoff: time.Hour, MaxBackoff: time.Hour}))
		g.pass(time.Minute)
		require.True(g, a.status().Running)
		require.NoError(g, a.Cancel(g.Context(), "t"))
		g.pass(time.Second)
		require.Equal(g, RunCanceled, a.status().Last.State)
		told := g.told(EventTaskCanceled)
		require.Len(g, told, 1)
		require.ErrorIs(g, told[0].Err, ErrCanceled)
		g.pass(2 * time.Hour)
		require.Len(g, g.noted(), 1)
		a.end()
	})
}

// TestCancelOfADeadLeader: the next leader does not run it again, and reports that.
func TestCancelOfADeadLeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute)}
		a := g.leader("a", task)
		g.pass(time.Hour + time.Minute)
		a.crash()
		b := g.member("b", task)
		require.NoError(g, b.Cancel(g.Context(), "t"))
		b.begin()
		g.pass(time.Minute)
		g.noted()
		require.Equal(g, RunCanceled, b.status().Last.State)
		told := g.told(EventTaskCanceled)
		require.NotEmpty(g, told)
		require.ErrorIs(g, told[len(told)-1].Err, ErrCanceled)
		g.pass(30 * time.Minute)
		require.Empty(g, g.noted())
		b.end()
	})
}

// TestCancelThatIsIgnored: it is reported like any other end of a context that work ignores, and
// the run has succeeded if it says so.
func TestCancelThatIsIgnored(t *testing.T) {
	for err, state := range map[error]RunState{nil: RunSucceeded, errBroken: RunCanceled} {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: func(context.Context, TaskRun) error {
				time.Sleep(20 * time.Minute)
				return err
			}})
			g.pass(time.Hour + time.Minute)
			require.NoError(g, a.Cancel(g.Context(), "t"))
			g.pass(10 * time.Minute)
			require.Len(g, g.told(EventWorkOverrun), 1)
			g.pass(10 * time.Minute)
			require.Equal(g, state, a.status().Last.State)
			if err != nil {
				canceled := g.told(EventTaskCanceled)
				require.Len(g, canceled, 1)
				require.True(g, errors.Is(canceled[0].Err, errBroken) && errors.Is(canceled[0].Err, ErrCanceled))
			}
			a.end()
		})
	}
}
