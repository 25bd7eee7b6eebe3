package tenure

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
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
		require.Len(s, s.told(EventEnded), 1)
		s.pass(time.Second)
		require.Len(s, s.store.made("release"), 1)
	})
}

func TestP4_ReadersTimerAndLoopRace(t *testing.T) {
	for range 200 {
		var wakes atomic.Int32
		life := lease.Lease{Sent: readClock(), Life: 150 * time.Microsecond, Guard: 50 * time.Microsecond}
		live := begin(context.Background(), Term{}, life, func() { wakes.Add(1) })
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
		require.Positive(t, wakes.Load())
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
		require.Len(s, s.told(EventAcquired), 1)
	})
}
