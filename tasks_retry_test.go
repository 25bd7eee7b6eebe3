package tenure

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/schedule"
)

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
