package tenure

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// These tests hold P8 for tasks: on a voluntary end running tasks may finish while the lease is
// kept, on any other end not.

// drains is a task that begins with the term, takes a while unless its context is done before, and
// notes what it sees.
func (m *instance) drains(takes time.Duration) Task {
	return Task{Name: "report", Schedule: Every(time.Hour), RunOnElection: true, Run: func(ctx context.Context, run TaskRun) error {
		term, _ := TermFrom(ctx)
		m.cluster.note("task #%d begins leader=%v valid=%v", run.Attempt, m.IsLeader(), term.Valid())
		var err error
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			err = ctx.Err()
		}
		m.cluster.note("task #%d ends leader=%v valid=%v holder=%s %s", run.Attempt, m.IsLeader(), term.Valid(), m.cluster.holder("tenure:leader"), causes(context.Cause(ctx)))
		return err
	}}
}

func TestP8_RunningTasksFinishOnAVoluntaryEnd(t *testing.T) {
	const shutdown = 60 * time.Second
	for name, end := range map[string]func(*instance){
		"resign":      func(m *instance) { go func() { _ = m.Elector().Resign(context.Background()) }() },
		"stop of Run": func(m *instance) { m.halt(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a", func(o *Options) { o.ShutdownTimeout = shutdown })
				require.NoError(c, a.Tasks().Register(a.drains(40*time.Second))) // for longer than the lease of 10 s
				idle := a.counts("idle", Every(time.Second))
				require.NoError(c, a.Tasks().Register(idle))
				a.start(a.works("work", 0))
				c.pass(10 * time.Second)
				c.noted()
				end(a)
				c.pass(time.Millisecond)
				require.False(c, a.IsLeader())
				require.Equal(c, []string{"a work drained"}, c.noted(), "leader work ends at once, no task starts")
				c.pass(30 * time.Second)
				require.Equal(c, "a", c.holder("tenure:leader"), "the lease is kept")
				c.pass(time.Second)
				require.Equal(c, []string{"task #1 ends leader=false valid=true holder=a "}, c.noted())
				require.Empty(c, c.holder("tenure:leader"), "released at once")
				status, err := a.Tasks().Tasks(context.Background())
				require.NoError(c, err)
				require.Equal(c, RunSucceeded, status[1].Last.State)
				require.Empty(c, a.told(EventOverrun))
			})
		})
	}
}

// Tasks have three quarters of the shutdown timeout; what then heeds its context is interrupted,
// and the rest has its quarter.
func TestP8_RunningTasksAreCutAtTheirBound(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const shutdown = 40 * time.Second
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = shutdown })
		require.NoError(c, a.Tasks().Register(a.drains(time.Hour)))
		a.start()
		c.pass(10 * time.Second)
		c.noted()
		took, err := a.stop()
		require.NoError(c, err)
		require.InDelta(c, (shutdown-time.Second)*3/4, took, float64(100*time.Millisecond), "of what deregistering leaves")
		require.Equal(c, []string{"task #1 ends leader=false valid=false holder=a stopped"}, c.noted())
		status, err := a.Tasks().Tasks(context.Background())
		require.NoError(c, err)
		require.Equal(c, RunInterrupted, status[0].Last.State)
	})
}

// An end that is not voluntary ends the context of the tasks at once, right after that of leader
// work.
func TestP8_RunningTasksAreCutOnAnInvoluntaryEnd(t *testing.T) {
	for name, end := range map[string]struct {
		act   func(*cluster)
		work  func(ctx context.Context) error
		cause string
	}{
		"deleted lease": {act: func(c *cluster) { c.del("tenure:leader") }, cause: "lost"},
		"partition":     {act: func(c *cluster) { c.net.Partition("a", simnet.Both, 0) }, cause: "lost"},
		"work failed":   {work: func(context.Context) error { return errBroken }, cause: "work failed"},
		"work panics":   {work: func(context.Context) error { panic(errBroken) }, cause: "work failed"},
		"work Goexit":   {work: func(context.Context) error { runtime.Goexit(); return nil }, cause: "work failed"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a")
				ended := make(chan string, 2)
				require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: Every(time.Hour), RunOnElection: true, Run: func(ctx context.Context, _ TaskRun) error {
					<-ctx.Done()
					term, _ := TermFrom(ctx)
					require.False(c, a.IsLeader())
					require.False(c, term.Valid())
					ended <- causes(context.Cause(ctx))
					return ctx.Err()
				}}))
				a.start(func(ctx context.Context, _ Term) error {
					if end.work != nil {
						select {
						case <-time.After(12 * time.Second):
							return end.work(ctx)
						case <-ctx.Done():
						}
					}
					<-ctx.Done()
					return ctx.Err()
				})
				c.pass(11 * time.Second)
				require.True(c, a.IsLeader())
				if end.act != nil {
					end.act(c)
				}
				c.until(10*time.Second, func() bool { return !a.IsLeader() })
				synctest.Wait()
				require.Len(c, ended, 1, "at once")
				require.Equal(c, end.cause, <-ended)
			})
		})
	}
}

// While tasks finish, the lease may be lost all the same: their context is done before it can have
// ended, by their own timer.
func TestP8_LeaseIsLostWhileTasksFinish(t *testing.T) {
	for name, lose := range map[string]struct {
		act    func(*cluster)
		after  time.Duration // the stop
		within time.Duration
	}{
		"partition":                   {func(c *cluster) { c.net.Partition("a", simnet.Both, 0) }, time.Minute, 10 * time.Second},
		"partition right at the stop": {func(c *cluster) { c.net.Partition("a", simnet.Both, 0) }, 0, 10 * time.Second},
		"deleted lease":               {func(c *cluster) { c.del("tenure:leader") }, time.Minute, 4 * time.Second}, // at the next renewal
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a", func(o *Options) { o.ShutdownTimeout = 10 * time.Minute })
				b := c.member("b")
				require.NoError(c, a.Tasks().Register(a.drains(time.Hour)))
				a.start()
				c.pass(10 * time.Second)
				b.start()
				c.noted()
				a.halt(nil)
				c.pass(lose.after)
				lose.act(c)
				took := c.until(15*time.Second, func() bool { return len(c.noted()) > 0 })
				require.Less(c, took, lose.within)
				require.False(c, b.IsLeader(), "nobody leads beside a task that may still write")
				c.until(time.Minute, b.IsLeader)
			})
		})
	}
}

// A task may resign the very term that it runs in; it goes on, and its Resign returns at once.
func TestResignInsideATask(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		finished := false
		require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: Every(time.Hour), RunOnElection: true, Run: func(ctx context.Context, _ TaskRun) error {
			if finished {
				return nil
			}
			require.NoError(c, a.Elector().Resign(ctx))
			time.Sleep(time.Second)
			require.NoError(c, ctx.Err())
			require.False(c, a.IsLeader())
			require.ErrorIs(c, a.Elector().Resign(ctx), ErrNotLeader)
			finished = true
			return nil
		}}))
		a.start()
		c.pass(10 * time.Second)
		require.True(c, finished)
	})
}

// A task that fails while the term drains is not tried again there: nothing starts any more.
func TestP8_NoAttemptStartsWhileTasksFinish(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		attempts := []int{}
		require.NoError(c, a.Tasks().Register(Task{
			Name: "t", Schedule: Every(time.Hour), RunOnElection: true, Retry: RetryPolicy{Attempts: 5, Backoff: time.Millisecond},
			Run: func(_ context.Context, run TaskRun) error {
				attempts = append(attempts, run.Attempt)
				time.Sleep(5 * time.Second)
				return errBroken
			},
		}))
		a.start()
		c.pass(2 * time.Second)
		took, err := a.stop()
		require.NoError(c, err)
		require.Equal(c, []int{1}, attempts)
		require.Less(c, took, 6*time.Second)
	})
}

// Whatever ends what the tasks run in, nobody can see its context cancelled while the term leads,
// nor the other way round for long.
func TestP8_TasksEndAfterTheTerm(t *testing.T) {
	for name, end := range map[string]func(*liveTerm){
		"loop":   func(t *liveTerm) { t.end(ErrLost) },
		"timers": func(*liveTerm) { time.Sleep(900 * time.Millisecond) },
		"timer of tasks": func(t *liveTerm) {
			t.timer.Stop()
			t.tasks.timer.Reset(900 * time.Millisecond)
			time.Sleep(900 * time.Millisecond)
		},
		"reader in tasks": func(t *liveTerm) { past := leaseOf(lease.Reading{}); t.tasks.lease.Store(&past); t.tasks.leading() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live, _ := aLiveTerm(t)
				var seen []bool
				cancel := live.tasks.cancel
				live.tasks.cancel = func(cause error) {
					seen = append(seen, live.leading() || live.ctx.Err() == nil)
					cancel(cause)
				}
				require.True(t, live.renew(leaseOf(readClock()), readClock())) // sets the timers, which are to see the above
				end(live)
				synctest.Wait()
				require.NotEmpty(t, seen)
				require.False(t, slices.Contains(seen, true), "the term led, or its context lasted")
				require.False(t, live.tasks.leading())
				require.False(t, live.tasks.renew(leaseOf(readClock()), readClock()), "once false it stays false")
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		live, _ := aLiveTerm(t)
		live.retire(ErrResigned)
		require.Error(t, live.ctx.Err())
		require.True(t, live.tasks.leading())
		for range 5 {
			time.Sleep(500 * time.Millisecond)
			require.True(t, live.tasks.renew(leaseOf(readClock()), readClock()))
			require.False(t, live.leading())
		}
		time.Sleep(900*time.Millisecond - time.Nanosecond)
		require.NoError(t, live.tasks.ctx.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(live.tasks.ctx), ErrLost)
	})
	synctest.Test(t, func(t *testing.T) { // no renewal after the end of the term
		live, _ := aLiveTerm(t)
		time.Sleep(500 * time.Millisecond)
		live.retire(ErrStopped)
		time.Sleep(400*time.Millisecond - time.Nanosecond)
		require.NoError(t, live.tasks.ctx.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(live.tasks.ctx), ErrLost)
	})
}
