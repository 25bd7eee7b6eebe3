package tenure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
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
		require.Len(s, s.told(EventTermBegan), 1)
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
	const drain = time.Millisecond
	inElection(t, nil, func(s *election) {
		s.run(s.honest(drain))
		s.at(time.Second)
		term, _ := s.Term()
		suspended := *term.live.lease.Load()
		suspended.Sent.Wall -= time.Minute
		term.live.lease.Store(&suspended)
		require.False(s, s.IsLeader(), "the first reading")
		require.Equal(s, ElectionDraining, s.Status().State)
		s.pass(0)
		require.ErrorIs(s, context.Cause(term.Context()), ErrLost)
		require.Equal(s, time.Second, s.told(EventTermEnded)[0].Time.Sub(s.began), "the loop woke up")
		s.pass(drain)
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
				require.ErrorIs(s, s.told(EventTermEnded)[0].Err, ErrLost)
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
		require.Len(s, s.told(EventLeaseReleased), 1)
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
				require.Empty(s, s.told(EventTermEnded))
				if name != "stale" {
					require.Len(s, s.told(EventRenewalFailed), 1, "first of a row")
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
				continue // none of its requests had an answer for a TTL, and it stood back between
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
		require.Len(s, s.told(EventElectionMisconfigured), 1)
		require.ErrorIs(s, s.Status().Err, ErrMisconfigured)
		s.store.on(nil)
		s.at(2 * time.Minute)
		require.NoError(s, s.Status().Err)
		s.store.on(broken)
		s.at(3 * time.Minute)
		require.Len(s, s.told(EventElectionMisconfigured), 2)
		require.Len(s, s.told(EventRedisDown), 2, "beside it, so that each has its redis_up")
		require.Len(s, s.told(EventRedisUp), 1)
	})
}

// What a candidate gives back since its requests had no answer for a TTL is answered: that does not
// fix what is refused.
func TestP12_MisconfigurationIsToldOnceThoughReleasesAreAnswered(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{err: fmt.Errorf("%w: NOPERM", ErrMisconfigured)}))
		s.run()
		s.at(10 * electionTTL)
		require.NotEmpty(s, s.store.made("release"))
		require.Len(s, s.told(EventElectionMisconfigured), 1)
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
		steps := s.told(EventRedisClockStepped)
		require.Len(s, steps, 1)
		require.InDelta(s, time.Hour, steps[0].Step, float64(time.Second))
	})
}

// asideStore is a scripted store with a way to Redis that the script does not touch.
type asideStore struct {
	*scriptedStore
	err  error // what it says instead of an answer
	hang bool

	mu   sync.Mutex
	sent []time.Duration
}

func (s *asideStore) AskAside(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	s.mu.Lock()
	s.sent = append(s.sent, s.election.now())
	s.mu.Unlock()
	if s.hang {
		<-s.healed
	}
	if s.err != nil {
		return store.LeaseReply{}, s.err
	}
	if r.Kind == lease.Acquire {
		return s.execute("acquire", r), nil
	}
	return s.execute("renew", r), nil
}

func (s *asideStore) copies() []time.Duration {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Duration(nil), s.sent...)
}

// No renewal over the pool of the client is ever answered, and each holds its call for ever. The
// term goes on by the second copies, also at the cap of calls, and its deadline counts from before
// the first.
func TestSecondCopyKeepsTheTerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("renew", fate{lost: true, hang: true}))
		store := &asideStore{scriptedStore: s.store}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		first := s.Status().Token
		second := electionRenew + electionTTL/3/secondCopy
		s.at(second - time.Millisecond)
		require.Empty(s, store.copies())
		s.at(second)
		require.Len(s, store.copies(), 1)
		require.WithinDuration(s, s.began.Add(electionRenew+electionLife), s.Status().Deadline, time.Millisecond)
		for range 30 {
			s.pass(electionRenew)
			require.True(s, s.IsLeader())
		}
		require.Equal(s, first, s.Status().Token)
		require.Len(s, s.told(EventCallsStuck), 1)
		require.LessOrEqual(s, s.Status().CallsInFlight, maxCalls+1)
		require.Empty(s, s.told(EventRedisDown))
	})
}

// A second copy that fails says nothing: the first is still on its way. An answer to the first
// makes one needless.
func TestSecondCopyThatFailsIsNoNews(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("renew", fate{back: 2 * time.Second}))
		store := &asideStore{scriptedStore: s.store, err: errNetwork}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		s.at(electionRenew + time.Second)
		require.Len(s, store.copies(), 1)
		s.store.on(nil)
		s.pass(time.Minute)
		require.Len(s, store.copies(), 1, "Redis answers at once")
		require.True(s, s.IsLeader())
		require.Empty(s, s.told(EventRedisDown))
		require.NoError(s, s.Status().Err)
	})
}

// The grant of a campaign that is over comes late, and is given back while a renewal of the next
// term has no answer: that renewal has its second copy all the same.
func TestReleaseLeavesTheSecondCopy(t *testing.T) {
	inElection(t, nil, func(s *election) {
		late := make(chan struct{})
		s.store.on(func(c storeCall) fate {
			switch {
			case c.op == "acquire" && c.number == 1:
				<-late
				return fate{lost: true, answer: &store.LeaseReply{Holder: "me", Answer: lease.Answer{Verdict: lease.Won, Token: 1}}}
			case c.op == "acquire" && len(s.store.made("release")) == 0, c.op == "renew":
				return fate{lost: true, hang: true}
			}
			return fate{}
		})
		store := &asideStore{scriptedStore: s.store}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		s.until(time.Minute, func() bool { return len(s.store.made("renew")) == 1 })
		released := len(s.store.made("release"))
		require.NotZero(s, released, "the first campaign was given up")
		close(late)
		s.pass(0)
		require.Len(s, s.store.made("release"), released+1)
		require.Empty(s, store.copies())
		s.pass(electionTTL / 3 / secondCopy)
		require.Len(s, store.copies(), 1)
	})
}

// A renewal has no second copy once the drain bound has passed, while work still runs: it would
// prolong a lease that is left to lapse.
func TestNoSecondCopyOfATermThatIsOver(t *testing.T) {
	inElection(t, nil, func(s *election) {
		store := &asideStore{scriptedStore: s.store}
		s.Elector.loop.store = store
		over := 2*electionRenew + 200*time.Millisecond
		s.run(s.after(over-electionDrain, func() error { return errors.New("it fails") }), s.honest(electionTTL))
		s.at(electionRenew + time.Second)
		s.store.on(on("renew", fate{lost: true, hang: true}))
		s.at(2*electionRenew + electionTTL/3/secondCopy)
		require.Len(s, s.store.made("renew"), 2)
		require.Empty(s, store.copies())
	})
}

// togetherStore is a store whose renewals travel together with those of the same way.
type togetherStore struct {
	store.Together
	way string
}

func (s togetherStore) Way() any { return s.way }

// TestGroupsOfRenewals: those of one pass travel in groups of one way, of no more than maxTogether,
// and second copies in groups of their own: they are there for when the way of the first does not
// work. A group lasts as long as the one that has the most time.
func TestGroupsOfRenewals(t *testing.T) {
	type group struct {
		way   any
		aside bool
		bound time.Duration
		size  int
	}
	var together togetherRenewals
	add := func(way string, aside bool, bound time.Duration) {
		l := new(electionLoop)
		l.store = togetherStore{way: way}
		require.True(t, together.add(l, lease.Request{Kind: lease.Renew}, bound, aside))
		require.Equal(t, 1, l.calls)
		require.False(t, together.add(l, lease.Request{Kind: lease.Acquire}, bound, aside))
	}
	for range maxTogether {
		add("one", false, time.Second)
	}
	add("other", false, time.Second)
	add("one", true, time.Second)
	add("one", false, time.Second)
	add("other", false, 3*time.Second)
	add("other", false, 2*time.Second)
	var groups []group
	for _, g := range together.groups {
		require.Len(t, g.of, len(g.all))
		groups = append(groups, group{g.way, g.aside, g.bound, len(g.all)})
	}
	require.Equal(t, []group{
		{"one", false, time.Second, maxTogether}, {"other", false, 3 * time.Second, 3}, {"one", true, time.Second, 1}, {"one", false, time.Second, 1},
	}, groups)
}

func TestOneSecondCopyAtATime(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("renew", fate{back: 2 * time.Second}))
		store := &asideStore{scriptedStore: s.store, hang: true}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		s.pass(time.Minute)
		require.Len(s, store.copies(), 1)
		require.True(s, s.IsLeader())
	})
}

// A request that was given up has no second copy: its time is over, also if the turn comes late.
func TestNoSecondCopyOfWhatWasGivenUp(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{lost: true, hang: true}))
		store := &asideStore{scriptedStore: s.store}
		s.Elector.loop.store = store
		s.run(s.honest(0))
		s.at(electionTTL/3 + time.Millisecond)
		_, waited := s.loop.cand.Awaited()
		require.False(s, waited)
		require.False(s, s.loop.sendAside(readClock()))
	})
}

// A candidate whose calls all hang asks on over the way aside.
func TestProbeAtTheCapOfCalls(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{lost: true, hang: true}))
		s.Elector.loop.store = &asideStore{scriptedStore: s.store}
		s.run(s.honest(0))
		s.pass(10 * time.Minute)
		require.Len(s, s.store.made("acquire"), maxCalls)
		require.True(s, s.IsLeader())
	})
}

func TestVacantWakesAFollowerAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		hint store.Hint
		asks bool
	}{
		"vacant":             {store.Hint{Type: store.HintVacant, Role: "cleanup"}, true},
		"another role name":  {store.Hint{Type: store.HintVacant, Role: "other"}, true},
		"of another lease":   {store.Hint{Type: store.HintVacant, Role: "cleanup", Channel: "tenure:leader:other:events"}, false},
		"granted to another": {store.Hint{Type: store.HintGranted, Role: "cleanup"}, false},
		"roll-call":          {store.Hint{Type: store.HintRollCall, Role: "cleanup"}, false},
		"unknown":            {store.Hint{Type: "reboot", Role: "cleanup"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.Election.Role = "cleanup" }, func(s *election) {
				s.store.hold("other", time.Hour)
				s.run(s.honest(0))
				s.at(time.Second)
				s.store.hold("other", 0)
				s.hint(test.hint)
				s.pass(0)
				require.Equal(s, test.asks, s.IsLeader())
			})
		})
	}
}

// A hint that comes while a request is on its way is remembered.
func TestHintDuringARequest(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", time.Hour)
		s.store.on(on("acquire", fate{back: 10 * time.Millisecond}))
		s.run(s.honest(0))
		s.at(5 * time.Millisecond)
		s.store.hold("other", 0)
		s.hint(store.Hint{Type: store.HintVacant})
		s.at(25*time.Millisecond + 10*time.Millisecond)
		require.True(s, s.IsLeader())
	})
}

func TestFloodOfHintsIsNoFloodOfRequests(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", time.Hour)
		s.run(s.honest(0))
		for s.now() < time.Second {
			for range 100 {
				s.hint(store.Hint{Type: store.HintVacant})
				s.hint(store.Hint{Type: store.HintConnected})
			}
			s.pass(time.Millisecond)
		}
		calls := s.store.made("")[1:] // the first one came by itself
		require.LessOrEqual(s, len(calls), 41)
		for i, call := range calls[1:] {
			require.GreaterOrEqual(s, call.at-calls[i].at, 25*time.Millisecond)
		}
	})
}

// TestOneOfACrowd: if Redis has counted 2,000 others, a follower asks later, and, if it hears that
// somebody was granted the lease meanwhile, not before it would have asked anyway. What comes last
// counts.
func TestOneOfACrowd(t *testing.T) {
	listeners, vacant, granted := store.Hint{Type: store.HintListeners, Count: 2001}, store.Hint{Type: store.HintVacant}, store.Hint{Type: store.HintGranted}
	ramp := 240 * time.Millisecond // LeaseTTL/100 · ln(1 + 1000 · 1 ms/(LeaseTTL/100)), since it draws a half
	for name, test := range map[string]struct {
		hints []store.Hint
		asks  time.Duration
	}{
		"not counted":                  {[]store.Hint{vacant}, 0},
		"few":                          {[]store.Hint{{Type: store.HintListeners, Count: 51}, vacant}, 0},
		"vacant":                       {[]store.Hint{listeners, vacant}, ramp},
		"granted to another":           {[]store.Hint{listeners, vacant, granted}, 3750 * time.Millisecond},
		"and released again":           {[]store.Hint{listeners, vacant, granted, vacant}, ramp},
		"named":                        {[]store.Hint{listeners, vacant, {Type: store.HintNamed, Subject: "me"}}, 0},
		"subscribed again, with 2,000": {[]store.Hint{listeners, {Type: store.HintConnected}}, time.Second + ramp},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.store.hold("other", time.Hour)
				s.run(s.honest(0))
				s.store.hold("other", 0)
				for _, hint := range test.hints {
					s.hint(hint)
				}
				took := s.until(10*time.Second, s.IsLeader)
				require.InDelta(s, test.asks.Seconds(), took.Seconds(), 0.002)
			})
		})
	}
}

// TestSameCountWakesNobody: a count that says what the last one said gives no turn. A first one
// that finds nobody else does not either.
func TestSameCountWakesNobody(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", time.Hour)
		s.run(s.honest(0))
		for _, test := range []struct {
			count int
			wakes bool
		}{{1, false}, {0, false}, {2001, true}, {2001, false}, {2, true}, {1, true}, {1, false}} {
			before := s.loop.status.Load()
			s.hint(store.Hint{Type: store.HintListeners, Count: test.count})
			synctest.Wait()
			require.Equal(s, test.wakes, before != s.loop.status.Load(), test.count)
		}
	})
}

// TestSubscribedAgainAsksOnce: what a follower is told that it has asked for since its subscription
// stands again, it does not ask for once more; what it had asked for before, it does.
func TestSubscribedAgainAsksOnce(t *testing.T) {
	listeners, named := store.Hint{Type: store.HintListeners, Count: 2001}, store.Hint{Type: store.HintNamed, Subject: "me"}
	connected := store.Hint{Type: store.HintConnected}
	for name, test := range map[string]struct {
		hints []store.Hint
		asks  int
	}{
		"only that":         {[]store.Hint{connected}, 1},
		"asked since then":  {[]store.Hint{connected, named}, 1},
		"asked before that": {[]store.Hint{named, connected}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.store.hold("other", time.Hour)
				s.run(s.honest(0))
				s.hint(listeners)
				s.pass(time.Millisecond)
				before := len(s.store.made("acquire"))
				s.store.on(func(storeCall) fate { return fate{back: 100 * time.Millisecond} })
				for _, hint := range test.hints {
					s.hint(hint)
					s.pass(10 * time.Millisecond)
				}
				s.pass(3 * time.Second) // it asks within two seconds, in the middle of them as it draws a half
				require.Len(s, s.store.made("acquire"), before+test.asks)
			})
		})
	}
}

func TestRollCallMakesALeaderRenewAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		hint   store.Hint
		renews int
	}{
		"its lease":        {store.Hint{Type: store.HintRollCall}, 1},
		"every lease":      {store.Hint{Type: store.HintRollCall, Channel: "any", All: true}, 1},
		"another lease":    {store.Hint{Type: store.HintRollCall, Channel: "other"}, 0},
		"vacant":           {store.Hint{Type: store.HintVacant}, 0},
		"subscribed again": {store.Hint{Type: store.HintConnected}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.honest(0))
				s.at(time.Second)
				s.hint(test.hint)
				s.pass(0)
				require.Len(s, s.store.made("renew"), test.renews)
			})
		})
	}
}

func TestHintsWhileStandingBackAreIgnored(t *testing.T) {
	for name, test := range map[string]struct {
		ends  error
		pause time.Duration // a hundred of them are shorter than it stands back
	}{"resigned": {ErrResigned, 40 * time.Millisecond}, "failed": {errBroken, 10 * time.Millisecond}} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.after(time.Second, func() error { return test.ends }))
				s.at(time.Second)
				for range 100 {
					s.hint(store.Hint{Type: store.HintVacant})
					s.pass(test.pause)
				}
				require.Len(s, s.store.made("acquire"), 1)
			})
		})
	}
}

// A client that connects for ever, whatever its context says, does not hold up Run past the
// shutdown bound.
func TestP11_SubscriptionThatHangs(t *testing.T) {
	redistest.NoLeaks(t)
	release, dialling := make(chan struct{}), make(chan struct{}, 100)
	client := redis.NewClient(&redis.Options{
		MaxRetries: -1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			dialling <- struct{}{}
			<-release
			return nil, errors.New("refused")
		},
	})
	defer client.Close()
	elector, err := NewElector(client, ElectorOptions{Namespace: "tenure", ShutdownTimeout: 100 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- elector.Run(ctx) }()
	<-dialling
	<-dialling // the first acquire, and the subscription
	cancel()
	err = <-ended
	require.ErrorIs(t, err, ErrDrainTimeout)
	require.ErrorContains(t, err, "the subscription to hints")
	close(release)
}

// hearingBound is how long a subscription may be dead: max(5 s, LeaseTTL/2), with the lease of a
// cluster.
const hearingBound = 5 * time.Second

// TestVirtualP7_SubscriptionThatDiesSilently: a connection that is dropped without a sign is
// noticed and made anew; hand-overs take milliseconds again; the state is shown meanwhile and
// reported once.
func TestVirtualP7_SubscriptionThatDiesSilently(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 2400 * time.Millisecond} { // since the last check
		inCluster(t, func(c *cluster) {
			a := c.member("a").start()
			c.pass(5 * time.Second)
			b := c.member("b").start()
			c.pass(10*time.Second + after)
			require.True(c, a.IsLeader())
			require.True(c, b.Elector().Status().Subscription.Active)
			c.net.Deafen("b")
			died := c.now()
			for b.Elector().Status().Subscription.Active {
				require.Less(c, c.now()-died, 4500*time.Millisecond, "noticed")
				c.pass(10 * time.Millisecond)
			}
			state := b.Elector().Status().Subscription
			require.ErrorIs(c, state.Err, ErrUnreachable)
			require.Less(c, time.Since(state.Since), 50*time.Millisecond)
			for !b.Elector().Status().Subscription.Active {
				require.Less(c, c.now()-died, hearingBound, "restored")
				c.pass(10 * time.Millisecond)
			}
			require.NoError(c, b.Elector().Status().Subscription.Err)
			require.True(c, a.Elector().Status().Subscription.Active)
			require.Equal(c, []string{"subscription_lost", "subscription_restored"}, b.told(EventSubscriptionLost, EventSubscriptionRestored))
			require.Empty(c, a.told(EventSubscriptionLost, EventSubscriptionRestored))
			c.pass(time.Second) // it has asked who leads since, and hints are heeded 25 ms apart
			require.NoError(c, a.Elector().Resign(c.Context()))
			c.until(20*time.Millisecond, b.IsLeader)
		})
	}
}

// TestVirtualP7_SubscriptionAfterALongOutage: the pauses between attempts grow during an outage.
// They are short again at later losses.
func TestVirtualP7_SubscriptionAfterALongOutage(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.pass(5 * time.Second)
		hears := func() bool { return a.Elector().Status().Subscription.Active }
		c.redis.Restart(true, time.Minute)
		c.pass(time.Minute)
		c.until(5*time.Second, hears)
		for range 3 {
			c.pass(20 * time.Second)
			c.net.Cut("a")
			c.pass(10 * time.Millisecond)
			require.False(c, hears())
			c.until(time.Second, hears)
		}
	})
}

// TestVirtualP1_DeafLeaderHearsTheNextRollCall: a leader whose subscription died silently hears the
// roll-call again within the bound.
func TestVirtualP1_DeafLeaderHearsTheNextRollCall(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.pass(20 * time.Second)
		c.net.Deafen("a")
		c.pass(hearingBound)
		term, _ := a.Elector().Term()
		c.redis.FlushAll()
		b := c.member("b").start()
		for range 5000 {
			c.pass(time.Millisecond)
			require.False(c, b.IsLeader())
		}
		require.True(c, term.Valid())
	})
}

// TestVirtualP1_ColdStandby: Redis is replaced by another one that is empty and has been up for
// long. All connections break at once, so the leader misses the roll-call of a newcomer that is
// faster: it renews as soon as its subscription stands again.
func TestVirtualP1_ColdStandby(t *testing.T) {
	for n := range 20 {
		if testing.Short() && n%5 != 0 {
			continue
		}
		inCluster(t, func(c *cluster) {
			a := c.member("a").start()
			c.pass(21 * time.Second) // right after a renewal, so that the next one is far
			term, leads := a.Elector().Term()
			require.True(c, leads)
			c.net.NewServer(simnet.Addr, simnet.ServerOptions{})
			c.net.Cut("a")
			c.pass(time.Duration(n) * 5 * time.Millisecond)
			b := c.member("b").start()
			for range 5000 {
				c.pass(time.Millisecond)
				require.False(c, b.IsLeader() && term.Valid(), "two lead")
			}
			require.True(c, term.Valid())
		})
	}
}

// slowReplies delays what a connection of commands reads. A subscription is left alone.
type slowReplies struct {
	net.Conn
	hears atomic.Bool
	delay *atomic.Int64
}

func (s *slowReplies) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) {
		s.hears.Store(true)
	}
	return s.Conn.Write(p)
}

func (s *slowReplies) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if !s.hears.Load() {
		time.Sleep(time.Duration(s.delay.Load()))
	}
	return n, err
}

// TestVirtualP1_RollCallBeforeTheGrantIsKnown: FLUSHALL and the roll-call of a newcomer come while
// the reply of a grant is under way.
func TestVirtualP1_RollCallBeforeTheGrantIsKnown(t *testing.T) {
	for _, late := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond} {
		inCluster(t, func(c *cluster) {
			var delay atomic.Int64
			long := func(o *Options) { o.Election.LeaseTTL = 30 * time.Second }
			a := c.on("a", func(o *redis.Options) {
				dial := c.net.Dialer("a")
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return &slowReplies{Conn: conn, delay: &delay}, err
				}
			}, long).start()
			c.pass(200 * time.Millisecond)
			delay.Store(int64(late))
			c.until(time.Second, func() bool { return c.holder("tenure:leader") == "a" })
			require.False(c, a.IsLeader(), "the grant is not known yet")
			c.redis.FlushAll()
			b := c.member("b", long).start()
			c.pass(160 * time.Millisecond)
			delay.Store(0)
			for range 15_000 {
				c.pass(time.Millisecond)
				require.False(c, a.IsLeader() && b.IsLeader(), "two lead at %v", c.now())
			}
			require.True(c, a.IsLeader())
		})
	}
}

// TestVirtualP8_TasksThatFinishHearTheRollCall: the lease of a term that has ended is kept for
// them. FLUSHALL takes it away, and they are cancelled.
func TestVirtualP8_TasksThatFinishHearTheRollCall(t *testing.T) {
	inCluster(t, func(c *cluster) {
		long := func(o *Options) { o.Election.LeaseTTL, o.ShutdownTimeout = 30*time.Second, time.Minute }
		a := c.member("a", long)
		var ended error
		require.NoError(c, a.Tasks().Register(Task{Name: "report", Schedule: Every(time.Hour), RunOnElection: true, Run: func(ctx context.Context, _ TaskRun) error {
			<-ctx.Done()
			ended = context.Cause(ctx)
			return ctx.Err()
		}}))
		a.start()
		c.until(time.Minute, a.IsLeader)
		c.pass(5 * time.Second)
		a.halt(nil)
		c.pass(time.Second)
		require.NoError(c, ended, "it may finish")
		c.redis.FlushAll()
		b := c.member("b", long).start()
		c.until(time.Minute, b.IsLeader)
		require.ErrorIs(c, ended, ErrLost)
		c.pass(time.Minute)
	})
}

// TestForgedOrigin: what is no replication id does not come into a reply.
func TestForgedOrigin(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.until(time.Second, a.IsLeader)
		for _, forged := range []string{"x - =other", "x\ny", strings.Repeat("f", 65), "é"} {
			c.redis.Do(func(m *miniredis.Miniredis) { m.HSet("tenure:leader:term", "origin", forged) })
			info, err := a.Elector().Leader(c.Context())
			require.NoError(c, err)
			require.Equal(c, "a", info.InstanceID)
		}
		c.pass(time.Minute)
		require.True(c, a.IsLeader())
	})
}

// TestVirtualP1_RollCallOfManyRoles: FLUSHALL, one process leads 1,000 roles over a round trip of
// 10 ms, and a newcomer that remembers nothing asks for all of them: none is led twice.
func TestVirtualP1_RollCallOfManyRoles(t *testing.T) {
	many := 1000
	if simnet.Race {
		many = 250
	}
	if testing.Short() {
		many = 100
	}
	slow := simnet.Faults{MinLatency: 5 * time.Millisecond, MaxLatency: 5 * time.Millisecond}
	inCluster(t, func(c *cluster) {
		member := func(name string) (m *instance, electors []*Elector) {
			m = c.on(name, func(o *redis.Options) { o.PoolSize = 4 * many }) // see "Traps" in simnet
			for i := range many {
				e, err := m.AddRole(fmt.Sprint("r", i), ElectionOptions{LeaseTTL: time.Minute})
				require.NoError(c, err)
				electors = append(electors, e)
			}
			return m.start(), electors
		}
		c.net.SetFaults("a", slow)
		_, led := member("a")
		c.pass(5 * time.Second)
		for _, e := range led {
			require.True(c, e.IsLeader(), e.Role())
		}
		c.redis.FlushAll()
		_, asked := member("b")
		for range 600 {
			c.pass(time.Millisecond)
			for i, e := range asked {
				require.False(c, e.IsLeader() && led[i].IsLeader(), "%s is led twice %v after the flush", e.Role(), c.now())
			}
		}
		for _, e := range led {
			require.True(c, e.IsLeader(), e.Role())
		}
	})
}

// TestSubscriptionOfRoles: one subscription serves all leases, of whatever name, and those that are
// added later.
func TestSubscriptionOfRoles(t *testing.T) {
	inCluster(t, func(c *cluster) {
		shared := ElectionOptions{LeaderKey: "leader:shared", LeaseTTL: 10 * time.Second}
		a := c.member("a", func(o *Options) { o.Namespace = "one" }).start()
		b := c.member("b", func(o *Options) { o.Namespace = "two" }).start()
		c.pass(5 * time.Second)
		ours, err := a.AddRole("cleanup", shared)
		require.NoError(c, err)
		c.pass(5 * time.Second)
		theirs, err := b.AddRole("sweeper", shared)
		require.NoError(c, err)
		c.pass(time.Second)
		require.True(c, ours.IsLeader())
		term, _ := ours.Term()

		c.redis.FlushAll()
		newcomer := c.member("c", func(o *Options) { o.Namespace, o.Election.LeaderKey = "three", "leader:shared" }).start()
		for range 2000 {
			c.pass(time.Millisecond)
			require.False(c, newcomer.IsLeader() || theirs.IsLeader())
		}
		require.True(c, term.Valid())
		_, _ = newcomer.stop()

		require.NoError(c, ours.Resign(c.Context()))
		c.until(20*time.Millisecond, theirs.IsLeader)
	})
}

// TestChecksOfTheSubscription: what a check costs, and what it makes of a Redis that does not
// publish.
func TestChecksOfTheSubscription(t *testing.T) {
	refuse := func(what, channel string) func(host, cmd string, args []string) string {
		return func(host, cmd string, args []string) string {
			if cmd == what && host == "a" && strings.Contains(strings.Join(args, " "), channel) {
				return "NOPERM User app has no permissions to run the '" + what + "' command"
			}
			return ""
		}
	}
	for name, test := range map[string]struct {
		refused string
		channel string // part of its name; "": every channel
		says    string // Subscription.Err
		events  []string
		counted string // what each check costs
	}{
		"as it should be":    {counted: "PUBLISH"},
		"publishing refused": {refused: "PUBLISH", says: "+publish", events: []string{"hints_refused"}, counted: "PING"},
		"its own channel":    {refused: "SUBSCRIBE", channel: "instance:a:events", counted: "PING"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.redis.Intercept(refuse(test.refused, test.channel))
				a := c.member("a").start()
				c.pass(time.Minute)
				counts := map[string]int{}
				c.redis.Watch(func(_ time.Time, _, cmd string, args []string) {
					counts[cmd]++
				})
				c.pass(time.Minute)
				c.redis.Watch(nil)
				require.InDelta(c, 24, counts[test.counted], 1, "one each 2.5 s")
				state := a.Elector().Status().Subscription
				require.True(c, state.Active)
				if test.says == "" {
					require.NoError(c, state.Err)
				} else {
					require.ErrorIs(c, state.Err, ErrMisconfigured)
					require.ErrorContains(c, state.Err, test.says)
				}
				require.ElementsMatch(c, test.events, a.told(EventSubscriptionLost, EventSubscriptionRestored, EventHintsRefused))
			})
		})
	}
}

// TestRollCallThatIsTooSlowIsReported: once, with what to set, by the process whose leaders cannot
// answer in time and by no other.
func TestRollCallThatIsTooSlowIsReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.net.SetFaults("a", simnet.Faults{MinLatency: 20 * time.Millisecond, MaxLatency: 20 * time.Millisecond})
		a, b := c.member("a").start(), c.member("b").start()
		c.pass(5 * time.Minute)
		require.Len(c, a.told(EventRollCallSlow), 1)
		require.Empty(c, b.told(EventRollCallSlow))
		for _, e := range a.witness.told(EventRollCallSlow) {
			require.Equal(c, 1, e.Count)
			require.Greater(c, e.Took, 125*time.Millisecond, "half of EmptyHistoryWait")
			require.ErrorIs(c, e.Err, ErrMisconfigured)
			require.ErrorContains(c, e.Err, "set it to")
		}
	})
}
