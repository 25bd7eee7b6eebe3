package tenure

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// A renewal that never returns, because the client ignores its context, moves nothing.
func TestP4_CancelledInTimeWhileARenewalHangs(t *testing.T) {
	inElection(t, nil, func(s *election) {
		var cancelled time.Duration
		s.store.on(on("renew", fate{hang: true}))
		s.run(func(ctx context.Context, _ Term) error {
			<-ctx.Done()
			cancelled = s.now()
			return nil
		})
		term, leads := s.Term()
		require.True(s, leads)
		s.at(electionCancel - 1)
		require.True(s, s.IsLeader())
		require.NoError(s, term.Context().Err())
		s.at(electionCancel)
		require.False(s, s.IsLeader())
		require.False(s, term.Valid())
		require.ErrorIs(s, context.Cause(term.Context()), ErrLost)
		require.Equal(s, electionCancel, cancelled)
	})
}

func TestP4_LateRenewNeverRevives(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(func(c storeCall) fate {
			if c.op == "renew" && c.number == 1 {
				return fate{back: electionTTL} // kept, and we hear of it at 13 s
			}
			return fate{lost: c.op != "acquire" || c.number > 1}
		})
		s.run(s.honest(2 * electionTTL))
		term, _ := s.Term()
		for s.at(electionCancel); s.now() < 2*electionTTL; s.pass(100 * time.Millisecond) {
			require.False(s, s.IsLeader())
			require.False(s, term.Valid())
			require.Equal(s, ElectionDraining, s.Status().State)
		}
		require.Len(s, s.told(EventAcquired), 1)
	})
}

// A reply that is slow but in time counts from before its request.
func TestP4_DeadlineCountsFromBeforeTheRequest(t *testing.T) {
	const slow = 2 * time.Second
	for name, test := range map[string]struct {
		slow string
		last int // renewal that is answered
		ends time.Duration
	}{
		"slow acquire": {slow: "acquire", ends: electionCancel},
		"slow renew":   {slow: "renew", last: 1, ends: electionRenew + electionCancel},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.store.on(func(c storeCall) fate {
					f := fate{lost: c.op == "renew" && c.number > test.last}
					if c.op == test.slow {
						f.back = slow
					}
					return f
				})
				s.run(s.honest(0))
				s.at(slow)
				require.True(s, s.IsLeader())
				s.at(test.ends - electionGuard)
				require.Equal(s, electionGuard+electionGuard, time.Until(s.Status().Deadline))
				s.at(test.ends - 1)
				require.True(s, s.IsLeader())
				s.at(test.ends)
				require.False(s, s.IsLeader())
			})
		})
	}
}

// A suspended machine: the wall clock went on, timers and the monotonic clock did not. The first
// reader ends the term.
func TestP4_ReaderThatNoticesFirstEndsTheTerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.at(time.Second)
		term, _ := s.Term()
		suspended := *term.live.lease.Load()
		suspended.Sent.Wall -= time.Minute
		term.live.lease.Store(&suspended)
		require.False(s, s.IsLeader(), "the first reading")
		require.Equal(s, ElectionDraining, s.Status().State)
		s.pass(0)
		require.ErrorIs(s, context.Cause(term.Context()), ErrLost)
		require.Equal(s, time.Second, s.told(EventEnded)[0].Time.Sub(s.began), "the loop woke up")
		require.Len(s, s.store.made("release"), 1)
		require.Contains(s, s.noted(), "drained")
		s.pass(time.Second)
		require.True(s, s.IsLeader(), "a new campaign")
		require.False(s, term.Valid())
	})
}

// The renewal is kept, but by the reading that it is taken with the term leads no more, or a reader
// has ended it.
func TestP4_RenewalOfATermThatLeadsNoMore(t *testing.T) {
	for name, lapse := range map[string]func(*liveTerm){
		"ended by a reader": func(t *liveTerm) { t.lease.Store(nil) }, // and its wake-up comes after the reply
		"past its deadline": func(t *liveTerm) {
			suspended := *t.lease.Load()
			suspended.Sent.Wall -= time.Minute
			t.lease.Store(&suspended)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.honest(0))
				term, _ := s.Term()
				s.store.on(func(c storeCall) fate {
					if c.op == "renew" && c.number == 1 {
						lapse(term.live)
					}
					return fate{}
				})
				s.at(electionRenew)
				require.False(s, term.Valid())
				require.ErrorIs(s, s.told(EventEnded)[0].Err, ErrLost)
				require.Contains(s, s.noted(), "drained")
			})
		})
	}
}

func TestP6_LostAcquireReplyIsAdopted(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(func(c storeCall) fate {
			if c.number == 1 {
				return fate{err: errNetwork} // granted, and never heard of
			}
			return fate{}
		})
		s.run(s.honest(0))
		require.False(s, s.IsLeader())
		s.at(electionTTL / 20)
		term, leads := s.Term()
		require.True(s, leads)
		require.EqualValues(s, 1, term.Token, "the lease that was granted first")
		tries := s.store.made("acquire")
		require.Equal(s, tries[0].Nonce, tries[1].Nonce)
		s.at(tries[1].at + electionCancel - electionRenew)
		require.Equal(s, ElectionLeading, s.Status().State)
	})
}

// The first acquire is granted at once and its reply takes longer than the lease lasts.
func TestP6_AcquireReplySlowerThanTheLease(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(func(c storeCall) fate {
			return map[bool]fate{true: {back: 3 * electionTTL}}[c.op == "acquire" && c.number == 1]
		})
		s.run(s.honest(0))
		s.at(electionTTL / 3)
		require.False(s, s.IsLeader(), "waited for as long as an attempt may take")
		s.at(electionTTL / 2)
		term, leads := s.Term()
		require.True(s, leads)
		s.at(4 * electionTTL)
		require.True(s, term.Valid(), "the late reply changed nothing")
		require.Empty(s, s.store.made("release"))
	})
}

func TestP5_LateWonReplyOfADeadCampaignIsReleased(t *testing.T) {
	inElection(t, nil, func(s *election) {
		const late = 3 * electionTTL
		s.store.on(func(c storeCall) fate {
			return map[bool]fate{true: {back: late}}[c.op == "acquire" && c.number == 1]
		})
		s.run(s.honest(0))
		s.at(electionTTL)
		require.NoError(s, s.Resign(context.Background()))
		s.at(late - 1)
		require.Len(s, s.store.made("release"), 1)
		term, leads := s.Term()
		require.True(s, leads, "the next campaign")
		s.at(late)
		releases := s.store.made("release")
		require.Len(s, releases, 2)
		require.Equal(s, "nonce-1", releases[1].Nonce)
		require.Equal(s, "nonce-2", s.store.made("acquire")[2].Nonce)
		require.True(s, term.Valid(), "it harms nobody")
		require.False(s, s.store.free())
		require.Len(s, s.told(EventReleased), 1)
	})
}

// Redis goes on showing our lease, and no reply comes through.
func TestP5_ReleasedAfterRepliesWereLost(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.store.on(on("renew", fate{err: errNetwork}))
		s.at(electionCancel + time.Second)
		release := s.store.made("release")
		require.Len(s, release, 1)
		require.EqualValues(s, 1, release[0].Token)
		require.True(s, s.store.free())
		s.pass(time.Second)
		term, leads := s.Term()
		require.True(s, leads)
		require.EqualValues(s, 2, term.Token)
		require.NotEqual(s, release[0].Nonce, s.store.made("acquire")[1].Nonce)
	})
}

func TestP12_ErrorsAndSilenceNeverEndATerm(t *testing.T) {
	for name, f := range map[string]fate{
		"error":         {err: errNetwork},
		"lost request":  {lost: true},
		"misconfigured": {err: fmt.Errorf("%w: NOPERM", ErrMisconfigured)},
		"silence":       {hang: true},
		"stale":         {answer: &store.LeaseReply{Answer: lease.Answer{Verdict: lease.Stale, Now: 1_000_000_000_000}}},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.honest(0))
				s.store.on(on("renew", f))
				for s.now() < electionCancel-2*time.Second {
					s.pass(50 * time.Millisecond)
					require.True(s, s.IsLeader())
					require.Equal(s, ElectionLeading, s.Status().State)
				}
				s.store.on(nil)
				s.store.heal()
				s.at(3 * electionTTL)
				require.True(s, s.IsLeader())
				require.Empty(s, s.told(EventEnded))
				if name != "stale" {
					require.Len(s, s.told(EventRenewFailed), 1, "first of a row")
					require.Len(s, s.told(EventRedisUp), 1)
				}
				require.NoError(s, s.Status().Err)
			})
		})
	}
}

func TestP12_RetrySpacing(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	inElection(t, func(o *Options) { o.random = random.Float64 }, func(s *election) {
		s.store.on(on("", fate{err: errNetwork}))
		s.run()
		s.at(5 * time.Minute)
		calls := s.store.made("acquire")
		for i, call := range calls[1:] {
			if call.Nonce != calls[i].Nonce {
				continue // it heard nothing for a TTL, and stood back between
			}
			pause := call.at - calls[i].at
			require.GreaterOrEqual(s, pause, electionTTL/20*3/4)
			require.LessOrEqual(s, pause, electionTTL/6)
		}
		require.Greater(s, len(calls), 100)
		require.Len(s, s.told(EventRedisDown), 1)
		require.Equal(s, ElectionFollowing, s.Status().State)
		require.ErrorIs(s, s.Status().Err, ErrUnreachable)
	})
}

func TestP12_MisconfigurationIsToldOnceAndAgainAfterRecovery(t *testing.T) {
	inElection(t, nil, func(s *election) {
		broken := on("", fate{err: fmt.Errorf("%w: NOPERM", ErrMisconfigured)})
		s.store.hold("other", time.Hour)
		s.store.on(broken)
		s.run()
		s.at(time.Minute)
		require.Len(s, s.told(EventMisconfigured), 1)
		require.ErrorIs(s, s.Status().Err, ErrMisconfigured)
		s.store.on(nil)
		s.at(2 * time.Minute)
		require.NoError(s, s.Status().Err)
		s.store.on(broken)
		s.at(3 * time.Minute)
		require.Len(s, s.told(EventMisconfigured), 2)
		require.Len(s, s.told(EventRedisDown), 2, "beside it, so that each has its redis_up")
		require.Len(s, s.told(EventRedisUp), 1)
	})
}

// What a candidate gives back when it hears nothing for a TTL is answered: that does not fix what
// is refused.
func TestP12_MisconfigurationIsToldOnceThoughReleasesAreAnswered(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{err: fmt.Errorf("%w: NOPERM", ErrMisconfigured)}))
		s.run()
		s.at(10 * electionTTL)
		require.NotEmpty(s, s.store.made("release"))
		require.Len(s, s.told(EventMisconfigured), 1)
		require.ErrorIs(s, s.Status().Err, ErrMisconfigured)
	})
}

// An error of a call that was abandoned is no news.
func TestP12_ErrorOfAnAbandonedCallIsForgotten(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.store.on(func(c storeCall) fate {
			return map[bool]fate{true: {back: 5 * time.Second, err: errNetwork}}[c.number == 1]
		})
		s.at(electionRenew + 4*time.Second)
		require.NoError(s, s.Status().Err)
		require.Equal(s, 1, s.Status().CallsInFlight)
		s.at(electionRenew + 5*time.Second)
		require.Zero(s, s.Status().CallsInFlight)
		require.NoError(s, s.Status().Err)
	})
}

func TestStepOfTheClockIsTold(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.store.on(on("renew", fate{answer: &store.LeaseReply{Answer: lease.Answer{
			Verdict: lease.Kept, Token: 1, Now: 1_000_000_000_000 + (electionRenew + time.Hour).Milliseconds(),
		}}}))
		s.at(electionRenew)
		steps := s.told(EventClockStep)
		require.Len(s, steps, 1)
		require.InDelta(s, time.Hour, steps[0].Step, float64(time.Second))
	})
}
