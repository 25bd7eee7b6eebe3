package tenure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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

// TestAttemptNumbersNeverRepeat: also where leaders die during an attempt that was a retry.
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
		"fails":              {errors.New("half done"), AbandonedRerun, RunFailed, "level=ERROR msg=\"task failed\""},
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
				require.Equal(g, c.status == RunFailed, strings.Contains(log.String(), "ERROR"), log.String())
				require.Equal(g, c.status, g.told(EventTaskFailed, EventTaskInterrupted)[0].State)
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
