package tenure

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// aLiveTerm begins a term of a second, that is cancelled 100 ms before its end, and counts how
// often it wakes the loop.
func aLiveTerm(t *testing.T) (*liveTerm, *atomic.Int32) {
	var wakes atomic.Int32
	live := begin(context.Background(), Term{Role: "r", InstanceID: "me", Token: 7}, leaseOf(readClock()), func() { wakes.Add(1) })
	t.Cleanup(func() { live.end(ErrStopped) })
	return live, &wakes
}

func leaseOf(sent lease.Reading) lease.Lease {
	return lease.Lease{Sent: sent, Life: time.Second, Guard: 100 * time.Millisecond}
}

// Whatever ends a term, nobody can see its context cancelled and the term leading.
func TestP8_NotLeadingBeforeCancelled(t *testing.T) {
	for name, end := range map[string]func(*liveTerm){
		"loop":   func(t *liveTerm) { t.end(ErrResigned) },
		"timer":  func(t *liveTerm) { time.Sleep(900 * time.Millisecond) },
		"reader": func(t *liveTerm) { past := leaseOf(lease.Reading{}); t.lease.Store(&past); t.leading() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(context.Background())
				var cancelled atomic.Int32
				live := &liveTerm{ctx: ctx, wake: func() {}}
				live.cancel = func(cause error) {
					cancelled.Add(1)
					assert.False(t, live.leading(), "when the context is cancelled")
					cancel(cause)
				}
				first := leaseOf(readClock())
				live.lease.Store(&first)
				live.timer = time.AfterFunc(first.CancelIn(readClock()), live.expire)
				end(live)
				synctest.Wait()
				require.Positive(t, cancelled.Load())
				require.Error(t, ctx.Err())
			})
		})
	}
}

// A reader among the tasks may be the first to notice the deadline: then the term is not renewed
// any more, and can still be retired.
func TestP4_TasksThatNoticedTheEndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, _ := aLiveTerm(t)
		live.tasks.lease.Store(nil)
		require.False(t, live.renew(leaseOf(readClock()), readClock()))
		live.retire(ErrResigned)
		require.ErrorIs(t, context.Cause(live.ctx), ErrResigned)
	})
}

func TestP4_TimerFollowsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, wakes := aLiveTerm(t)
		for range 5 {
			time.Sleep(500 * time.Millisecond)
			require.True(t, live.renew(leaseOf(readClock()), readClock()))
		}
		time.Sleep(900*time.Millisecond - 1)
		require.True(t, live.leading())
		require.NoError(t, live.ctx.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.False(t, live.leading())
		require.ErrorIs(t, context.Cause(live.ctx), ErrLost)
		require.EqualValues(t, 1, wakes.Load())
	})
}

// The first timer of a term, before any renewal, fires at the cancel point and not at the deadline.
func TestP4_FirstTimerIsAtTheCancelPoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, wakes := aLiveTerm(t)
		time.Sleep(900*time.Millisecond - 1)
		require.NoError(t, live.ctx.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(live.ctx), ErrLost)
		require.EqualValues(t, 1, wakes.Load())
	})
}

// A timer that fires although the lease was renewed meanwhile arms itself anew.
func TestP4_TimerThatFiresAfterARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, _ := aLiveTerm(t)
		time.Sleep(500 * time.Millisecond)
		next := leaseOf(readClock())
		live.lease.Store(&next) // as renew does, right before it resets the timer
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		require.True(t, live.leading())
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.False(t, live.leading())
		require.Error(t, live.ctx.Err())
	})
}

func TestP4_OnceFalseStaysFalse(t *testing.T) {
	for name, end := range map[string]func(*liveTerm){
		"loop":  func(t *liveTerm) { t.end(ErrResigned) },
		"timer": func(t *liveTerm) { t.timer.Reset(0); past := leaseOf(lease.Reading{}); t.lease.Store(&past) },
		"wall clock": func(t *liveTerm) {
			suspended := leaseOf(readClock())
			suspended.Sent.Wall -= time.Minute
			t.lease.Store(&suspended)
		},
		"monotonic clock": func(t *liveTerm) {
			set := leaseOf(readClock())
			set.Sent.Mono -= time.Second
			set.Sent.Wall += time.Hour // somebody set it back
			t.lease.Store(&set)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				live, _ := aLiveTerm(t)
				end(live)
				require.False(t, live.leading(), "the first reading")
				require.False(t, live.renew(leaseOf(readClock()), readClock()), "a late renewal")
				synctest.Wait()
				require.False(t, live.leading())
				require.Error(t, live.ctx.Err())
				time.Sleep(2 * time.Second)
				require.False(t, live.leading())
			})
		})
	}
}

// A renewal counts only if, by the same reading, the term still leads.
func TestP4_RenewalOfALapsedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		live, _ := aLiveTerm(t)
		late := readClock()
		late.Mono += time.Second
		require.False(t, live.renew(leaseOf(late), late))
	})
}

// A reader sees a clock that the loop does not: the wall clock jumps ahead and is set back. The
// loop ends the term all the same.
func TestP4_LoopEndsATermThatAReaderHasEnded(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.at(time.Second)
		live := s.loop.current.Load()
		suspended := *live.lease.Load()
		suspended.Sent.Wall -= time.Minute
		live.lease.Store(&suspended)
		require.False(s, s.IsLeader())
		s.pass(0)
		require.Len(s, s.told(EventTermEnded), 1)
		s.pass(time.Second)
		require.Len(s, s.store.made("release"), 1)
	})
}

func TestP4_ReadersTimerAndLoopRace(t *testing.T) {
	for range 200 {
		woken := make(chan struct{}, 1)
		wake := func() {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
		life := lease.Lease{Sent: readClock(), Life: 150 * time.Microsecond, Guard: 50 * time.Microsecond}
		live := begin(context.Background(), Term{}, life, wake)
		var racing sync.WaitGroup
		for range 3 {
			racing.Go(func() {
				for live.leading() {
					if live.ctx.Err() != nil && live.leading() {
						t.Error("leads with a cancelled context")
					}
				}
			})
		}
		for range 3 {
			next := lease.Lease{Sent: readClock(), Life: life.Life, Guard: life.Guard}
			if !live.renew(next, readClock()) {
				break
			}
		}
		racing.Wait()
		<-live.ctx.Done()
		require.ErrorIs(t, context.Cause(live.ctx), ErrLost)
		require.False(t, live.renew(leaseOf(readClock()), readClock()))
		live.end(ErrStopped)
		<-woken // the timer wakes after it has cancelled
	}
}

func TestZeroTerm(t *testing.T) {
	var term Term
	require.False(t, term.Valid())
	require.ErrorIs(t, context.Cause(term.Context()), ErrNotLeader)
	_, ok := TermFrom(context.Background())
	require.False(t, ok)
}

func TestTermFrom(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(func(ctx context.Context, given Term) error {
			term, ok := TermFrom(ctx)
			require.True(s, ok)
			require.Equal(s, given, term)
			require.Equal(s, ctx, term.Context())
			require.True(s, term.Valid())
			require.Equal(s, "me", term.InstanceID)
			require.EqualValues(s, 1, term.Token)
			require.EqualValues(s, 1_000_000_000, term.Since.Unix(), "by Redis's clock")
			<-ctx.Done()
			return nil
		})
		require.Len(s, s.told(EventTermBegan), 1)
	})
}

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
				status, err := a.Tasks().List(context.Background())
				require.NoError(c, err)
				require.Equal(c, RunSucceeded, status[1].Last.State)
				require.Empty(c, a.told(EventWorkOverrun))
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
		status, err := a.Tasks().List(context.Background())
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
			require.False(c, a.IsLeader())
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

// TestVerifyIsOfThisTerm: the lease must be that of this instance and this token, and the term be
// valid when the answer comes.
func TestVerifyIsOfThisTerm(t *testing.T) {
	held := store.LeaseReply{Answer: lease.Answer{Verdict: lease.Held, Token: 7}, Holder: "me"}
	for name, change := range map[string]func(live *liveTerm, reply *store.LeaseReply) error{
		"it is":            func(*liveTerm, *store.LeaseReply) error { return nil },
		"another instance": func(_ *liveTerm, reply *store.LeaseReply) error { reply.Holder = "other"; return ErrLost },
		"another token":    func(_ *liveTerm, reply *store.LeaseReply) error { reply.Token++; return ErrLost },
		"nobody":           func(_ *liveTerm, reply *store.LeaseReply) error { reply.Verdict = lease.Unknown; return ErrLost },
		"over meanwhile":   func(live *liveTerm, _ *store.LeaseReply) error { live.end(ErrResigned); return ErrResigned },
	} {
		t.Run(name, func(t *testing.T) {
			live, _ := aLiveTerm(t)
			term, _ := TermFrom(live.ctx)
			var want error
			live.links.holder = func(context.Context) (store.LeaseReply, error) {
				reply := held
				want = change(live, &reply)
				return reply, nil
			}
			err := term.Verify(t.Context())
			require.ErrorIs(t, err, want)
		})
	}
}
