package tenure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Whoever does not campaign learns who leads: 5 ms after a hint, else within RetryInterval.
func TestWhoStandsBackKnowsTheLeader(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		work   func(*election) LeadFunc // what ends the term of ours, if there is one
	}{
		"resigned": {nil, func(s *election) LeadFunc {
			return s.after(time.Second, func() error { return ErrResigned })
		}},
		"failed work": {nil, func(s *election) LeadFunc {
			return s.after(time.Second, func() error { return errBroken })
		}},
		"unhealthy": {func(o *Options) { o.Election.Health = func(context.Context) error { return errBroken } }, nil},
	} {
		for _, hinted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hinted %v", name, hinted), func(t *testing.T) {
				inElection(t, test.change, func(s *election) {
					if test.work == nil {
						s.run()
					} else {
						s.run(test.work(s))
					}
					s.at(1500 * time.Millisecond)
					require.Equal(s, ElectionFollowing, s.Status().State)
					s.store.hold("other", time.Hour)
					within := electionRetry + time.Second
					before := len(s.store.made("leader"))
					if hinted {
						s.hint(store.Hint{Type: store.HintGranted})
						s.hint(store.Hint{Type: store.HintGranted}) // one question for both
						within = 10 * time.Millisecond
						s.pass(lookDelay - time.Nanosecond)
						require.Len(s, s.store.made("leader"), before, "whoever leads has its answer first")
					}
					s.pass(within)
					status := s.Status()
					require.Equal(s, "other", status.Leader)
					require.NotZero(s, status.LeaderToken)
					require.LessOrEqual(s, time.Since(status.LastAnswer), within)
					require.LessOrEqual(s, len(s.store.made("leader"))-before, 2)
					require.Equal(s, "other", s.told(EventLeaderChanged)[len(s.told(EventLeaderChanged))-1].Subject)
					asked := len(s.store.made("leader"))
					s.pass(2 * electionRetry)
					if test.change != nil { // it stands back for as long as that
						require.InDelta(s, 2, len(s.store.made("leader"))-asked, 1, "one question per RetryInterval")
					}
				})
			})
		}
	}
}

// TestAnsweredLooksEndNoOutage: a Redis that refuses all that writes, or is silent on it, still
// answers whoever looks. That is one outage, as long as requests of this candidate fail. One that
// makes none any more has but its looks to go by.
func TestAnsweredLooksEndNoOutage(t *testing.T) {
	refused := fmt.Errorf("%w: NOREPLICAS Not enough good replicas to write", ErrUnreachable)
	for name, f := range map[string]fate{"refused": {err: refused}, "no answer": {lost: true}} {
		for _, eligible := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, eligible %v", name, eligible), func(t *testing.T) {
				inElection(t, nil, func(s *election) {
					s.run(s.honest(0))
					s.at(time.Minute)
					s.store.on(func(c storeCall) fate {
						if c.op == "leader" {
							return fate{}
						}
						return f
					})
					s.at(2 * time.Minute)
					require.NotEmpty(s, s.store.made("leader"), "it stands back now and then")
					require.ErrorIs(s, s.Status().Err, ErrUnreachable)
					require.Len(s, s.told(EventRedisDown), 1)
					require.Empty(s, s.told(EventRedisUp))
					if eligible {
						s.at(5 * time.Minute)
						require.Len(s, s.told(EventRedisDown), 1)
						require.Empty(s, s.told(EventRedisUp))
						s.store.on(nil)
					} else {
						s.SetEligible(false)
						s.pass(electionTTL)
					}
					s.pass(2 * electionRetry)
					require.NoError(s, s.Status().Err)
					require.Len(s, s.told(EventRedisDown), 1)
					require.Len(s, s.told(EventRedisUp), 1)
				})
			})
		}
	}
}

// TestRefusedLooks: whoever makes no requests is told by its looks that Redis refuses them, and
// that it does not any more. So is one that leads then, or does not campaign any more, by what it
// asks for.
func TestRefusedLooks(t *testing.T) {
	for _, kind := range []error{ErrUnreachable, ErrMisconfigured} {
		refused := fate{err: fmt.Errorf("%w: refused", kind)}
		for name, test := range map[string]struct {
			ineligible bool
			outages    int
			act        func(s *election)
		}{
			"looks": {true, 1, func(s *election) {
				s.store.on(on("leader", refused))
				s.at(2 * time.Minute)
				require.ErrorIs(s, s.Status().Err, kind)
				require.Len(s, s.told(EventRedisDown), 1)
			}},
			"looks, then it may lead": {true, 1, func(s *election) {
				s.store.on(on("leader", refused))
				s.at(2 * time.Minute)
				s.SetEligible(true)
			}},
			"looks, then Redis answers a request": {true, 1, func(s *election) {
				s.store.on(on("leader", refused))
				s.at(2 * time.Minute)
				s.store.on(nil)
				s.SetEligible(true)
			}},
			"requests, then it may not lead": {false, 1, func(s *election) {
				s.store.on(func(c storeCall) fate {
					if c.op == "leader" {
						return fate{}
					}
					return refused
				})
				s.at(2 * time.Minute)
				s.SetEligible(false)
				s.pass(time.Minute)
			}},
			"silence, then looks": {false, 1, func(s *election) {
				s.store.on(on("", fate{err: errNetwork}))
				s.pass(7 * time.Second)
				s.SetEligible(false)
				s.store.on(on("", refused))
				s.pass(time.Minute)
			}},
			"one try of a release": {false, 0, func(s *election) {
				s.store.on(func(c storeCall) fate {
					if c.op == "release" && c.number == 1 {
						return refused
					}
					return fate{}
				})
				s.SetEligible(false)
				s.pass(time.Second)
				require.Len(s, s.store.made("release"), 2, "it was refused, and tried again")
			}},
		} {
			t.Run(fmt.Sprint(name, ", ", kind), func(t *testing.T) {
				inElection(t, func(o *Options) { o.Election.Ineligible = test.ineligible }, func(s *election) {
					s.run(s.honest(0))
					s.at(time.Minute)
					test.act(s)
					s.store.on(nil)
					s.pass(time.Minute)
					require.NoError(s, s.Status().Err)
					down := 0
					for _, e := range s.told(EventRedisDown, EventRedisUp, EventTermBegan) {
						switch e.Type {
						case EventRedisDown:
							down++
						case EventRedisUp:
							down--
						default:
							require.Zero(s, down, "redis_up comes before the term")
						}
					}
					require.Zero(s, down)
					require.Len(s, s.told(EventRedisDown), test.outages)
				})
			})
		}
	}
}

// TestLateAnswersEndNoOutage: an answer that comes too late for the candidate ends neither the
// outage nor its error.
func TestLateAnswersEndNoOutage(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", time.Hour)
		s.store.on(on("acquire", fate{back: electionTTL/3 + 200*time.Millisecond}))
		s.run()
		s.at(time.Minute)
		require.Len(s, s.told(EventRedisDown), 1)
		for range 100 {
			require.ErrorIs(s, s.Status().Err, ErrUnreachable)
			s.pass(100 * time.Millisecond)
		}
	})
}

// TestLateLooks: nor does an answer to a look that comes too late. What a younger request has heard
// is not undone by an older look without an answer, nor by a request that was given up long ago.
func TestLateLooks(t *testing.T) {
	t.Run("each is late", func(t *testing.T) {
		inElection(t, func(o *Options) { o.Election.Ineligible = true }, func(s *election) {
			s.store.on(on("leader", fate{back: electionTTL/3 + 200*time.Millisecond}))
			s.run()
			s.at(2 * time.Minute)
			for range 100 {
				require.ErrorIs(s, s.Status().Err, ErrUnreachable)
				s.pass(100 * time.Millisecond)
			}
			require.Len(s, s.told(EventRedisDown), 1)
			s.store.on(nil)
			s.pass(time.Minute)
			require.NoError(s, s.Status().Err)
			require.Len(s, s.told(EventRedisUp), 1)
		})
	})
	t.Run("a younger request was answered", func(t *testing.T) {
		inElection(t, func(o *Options) { o.Election.Ineligible = true }, func(s *election) {
			s.run(s.honest(0))
			s.at(time.Minute)
			s.store.on(on("leader", fate{back: 30 * time.Second}))
			for looks := len(s.store.made("leader")); len(s.store.made("leader")) == looks; {
				s.pass(10 * time.Millisecond)
			}
			s.store.on(nil)
			s.SetEligible(true)
			s.pass(time.Minute)
			require.True(s, s.IsLeader())
			require.Empty(s, s.told(EventRedisDown, EventRenewalFailed))
		})
	})
	t.Run("a request was given up", func(t *testing.T) {
		inElection(t, nil, func(s *election) {
			s.store.hold("other", time.Hour)
			s.run()
			s.at(time.Minute)
			s.store.on(on("acquire", fate{back: 90 * time.Second}))
			for asked := len(s.store.made("acquire")) + 2; len(s.store.made("acquire")) < asked; {
				s.pass(100 * time.Millisecond)
			}
			s.pass(6 * time.Second)
			s.SetEligible(false)
			s.store.on(nil)
			s.pass(3 * time.Minute)
			require.Len(s, s.told(EventRedisDown), 1)
			require.Len(s, s.told(EventRedisUp), 1)
		})
	})
}

// TestLookFromBeforeTheRelease: it shows the lease that was given back since, and says nothing of
// who leads now. One that is sent later and shows that lease is believed: Redis may have forgotten
// the release in a failover.
func TestLookFromBeforeTheRelease(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(5 * time.Millisecond))
		s.at(time.Minute)
		token := s.Status().Token
		s.store.on(on("leader", fate{back: 10 * time.Millisecond}))
		s.SetEligible(false)
		s.pass(time.Second)
		require.Len(s, s.store.made("leader"), 1)
		require.Len(s, s.told(EventLeaseReleased), 1)
		require.Empty(s, s.Status().Leader)
		require.Len(s, s.told(EventLeaderChanged), 1, "that it came to lead itself")
		s.store.on(on("leader", fate{answer: &store.LeaseReply{Holder: "me", Answer: lease.Answer{Verdict: lease.Held, Token: token, Wait: time.Second}}}))
		s.pass(electionRetry)
		require.Equal(s, "me", s.Status().Leader)
	})
}

// A candidate that campaigns, and a leader, hear it by their own requests.
func TestWhoCampaignsAsksNothingBeside(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.hint(store.Hint{Type: store.HintGranted})
		s.at(time.Minute)
		s.store.hold("other", time.Hour)
		s.at(70 * time.Second)
		s.hint(store.Hint{Type: store.HintGranted})
		s.at(5 * time.Minute)
		require.Equal(s, "other", s.Status().Leader)
		require.Empty(s, s.store.made("leader"))
	})
}

// A flood of forged hints leads to one question in 25 ms, and never to two at once.
func TestFloodOfGrantedHints(t *testing.T) {
	inElection(t, func(o *Options) { o.Election.Health = func(context.Context) error { return errBroken } }, func(s *election) {
		s.run()
		s.at(time.Second)
		before := len(s.store.made("leader"))
		for range 1000 {
			s.hint(store.Hint{Type: store.HintGranted})
			s.pass(time.Millisecond)
		}
		require.InDelta(s, 40, len(s.store.made("leader"))-before, 2)
	})
}

// In an outage the last leader is not reported for longer than its lease can have lasted. What is
// known again is not news.
func TestLeaderOfBeforeAnOutageIsForgotten(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", electionTTL)
		s.run()
		s.at(time.Second)
		s.store.on(on("", fate{err: errNetwork}))
		s.at(electionTTL - time.Second)
		require.Equal(s, "other", s.Status().Leader, "its lease is on")
		s.at(electionTTL + electionTTL/3 + time.Second)
		require.Empty(s, s.Status().Leader)
		require.Zero(s, s.Status().LeaderToken)
		s.store.hold("other", time.Hour)
		s.store.on(nil)
		s.at(3 * electionTTL)
		require.Equal(s, "other", s.Status().Leader)
		require.Len(s, s.told(EventLeaderChanged), 1)
		require.Len(s, s.told(EventRedisDown), 1)
		require.Len(s, s.told(EventRedisUp), 1)
	})
}

// A foreign program that took our lease over leads with token 0, and is reported once.
func TestForeignProgramHasNoToken(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.at(time.Second)
		s.store.on(func(c storeCall) fate {
			f := fate{answer: &store.LeaseReply{Reason: "foreign", Holder: "a cron job", Answer: lease.Answer{
				Verdict: lease.Lost, Token: 1, Now: 1_000_000_000_000 + c.at.Milliseconds(), TTL: electionTTL, Origin: "origin",
			}}}
			if c.op != "renew" {
				f.answer.Verdict, f.answer.Wait = lease.Held, time.Minute
			}
			if c.op == "release" {
				f = fate{}
			}
			return f
		})
		s.at(electionTTL)
		changes := s.told(EventLeaderChanged)
		require.Len(s, changes, 2)
		require.Equal(s, "a cron job", changes[1].Subject)
		require.Zero(s, changes[1].Token)
		require.Equal(s, "a cron job", s.Status().Leader)
		require.Zero(s, s.Status().LeaderToken)
	})
}

// Why it does not lead, and until when, is reported at each change of the reason, and not at each
// answer.
func TestWaitingIsReported(t *testing.T) {
	inElection(t, nil, func(s *election) {
		wait := func(reason string, verdict lease.Verdict, left time.Duration) {
			s.store.on(func(c storeCall) fate {
				return fate{answer: &store.LeaseReply{Reason: reason, Answer: lease.Answer{
					Verdict: verdict, Wait: left, Now: 1_000_000_000_000 + c.at.Milliseconds(), Origin: "origin",
				}}}
			})
		}
		wait("empty", lease.RollCall, 250*time.Millisecond)
		s.run()
		require.Equal(s, WaitEmpty, s.Status().Waiting)
		require.Equal(s, 250*time.Millisecond, time.Until(s.Status().WaitingUntil))
		wait("hold", lease.Held, 31*time.Second)
		s.at(time.Second)
		require.Equal(s, WaitHold, s.Status().Waiting)
		require.Zero(s, s.told(EventElectionWaiting)[1].Took)
		s.at(20 * time.Second)
		s.store.on(nil)
		s.at(40 * time.Second)
		require.True(s, s.IsLeader())
		require.Empty(s, s.Status().Waiting)
		require.Zero(s, s.Status().WaitingUntil)
		told := s.told(EventElectionWaiting)
		require.Len(s, told, 2)
		require.Equal(s, []string{"empty", "hold"}, []string{told[0].Reason, told[1].Reason})
		require.Equal(s, 31*time.Second, told[1].Until.Sub(told[1].Time))
		require.NoError(s, s.Resign(context.Background()))
		told = s.told(EventElectionWaiting)
		require.Equal(s, "penalty", told[2].Reason)
		require.InDelta(s, electionRetry, time.Until(told[2].Until), float64(electionRetry/10))
	})
}

// TestLeaseThatVanishedIsWaitedFor: each reason that Redis gives has a word of the public surface.
func TestLeaseThatVanishedIsWaitedFor(t *testing.T) {
	for reason, want := range map[string]WaitReason{
		"lease": WaitLease, "foreign": WaitForeign, "empty": WaitEmpty, "young": WaitYoung, "hold": WaitHold, "until": WaitVanished, "other": "",
		"ineligible": WaitIneligible,
	} {
		inElection(t, nil, func(s *election) {
			s.store.on(on("acquire", fate{answer: &store.LeaseReply{Reason: reason, Answer: lease.Answer{
				Verdict: lease.Held, Wait: time.Second, Now: 1_000_000_000_000, Since: 999_999_996,
			}}}))
			s.run()
			require.Equal(s, want, s.Status().Waiting)
			if want != "" {
				require.Equal(s, string(want), s.told(EventElectionWaiting)[0].Reason)
				require.Equal(s, want == WaitYoung, s.told(EventElectionWaiting)[0].Took == 4*time.Second)
			}
		})
	}
}

// A candidate that stands back since Redis was silent says so; redis_down has reported it.
func TestSilenceIsNoPenalty(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("", fate{err: errNetwork}))
		s.run()
		s.at(electionTTL + time.Second)
		require.Equal(s, WaitSilence, s.Status().Waiting)
		s.store.on(nil)
		s.at(2 * electionTTL)
		require.True(s, s.IsLeader())
		require.Empty(s, s.told(EventElectionWaiting))
	})
}

// TestOutageOfAStoreThatGrantsNothing: a candidate that nothing is granted to, and that has no
// answer any more, does not say again and again that it is not eligible.
func TestOutageOfAStoreThatGrantsNothing(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{answer: &store.LeaseReply{Reason: "ineligible", Answer: lease.Answer{
			Verdict: lease.Held, Wait: 100 * 365 * 24 * time.Hour, Now: 1_000_000_000_000,
		}}}))
		s.run()
		require.Equal(s, WaitIneligible, s.Status().Waiting)
		require.Zero(s, s.Status().WaitingUntil)
		s.store.on(on("", fate{err: errNetwork}))
		for at := time.Duration(0); at < 6*electionTTL; at += electionTTL / 20 {
			s.at(at)
			if at > electionTTL+electionRetry+time.Second { // it has asked in between
				require.Equal(s, WaitSilence, s.Status().Waiting, at)
			}
		}
		require.Len(s, s.told(EventElectionWaiting), 1)
	})
}

// TestOutageIsNoOthersLead: a follower whose Redis went away does not say again and again that
// another instance leads, and names no end of a wait that is over.
func TestOutageIsNoOthersLead(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{answer: &store.LeaseReply{Reason: "lease", Answer: lease.Answer{
			Verdict: lease.Held, Wait: time.Second, Now: 1_000_000_000_000,
		}}}))
		s.run()
		require.Equal(s, WaitLease, s.Status().Waiting)
		s.store.on(on("", fate{err: errNetwork}))
		for at := time.Duration(0); at < 6*electionTTL; at += electionTTL / 20 {
			s.at(at)
			require.False(s, time.Now().After(s.Status().WaitingUntil) && !s.Status().WaitingUntil.IsZero(), at)
			if at > electionTTL+time.Second {
				require.Equal(s, WaitSilence, s.Status().Waiting, at)
			}
		}
		require.Len(s, s.told(EventElectionWaiting), 1)
		s.store.on(nil)
		s.at(8 * electionTTL)
		require.True(s, s.IsLeader())
		require.Len(s, s.told(EventElectionWaiting), 1)
	})
}

// redis_up follows each redis_down, whichever candidate leads, and also while no question of the
// campaign is due.
func TestDownAndUpPair(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.after(2*electionTTL, func() error { return errBroken }))
		led, stoodBack := 0, 0
		for i := range 6 {
			s.at(time.Duration(i)*electionTTL + 2*time.Second)
			if s.IsLeader() {
				led++
			} else if s.Status().Waiting == WaitPenalty {
				stoodBack++
			}
			s.store.on(on("", fate{err: errNetwork}))
			s.at(time.Duration(i)*electionTTL + 7*time.Second)
			s.store.on(nil)
		}
		s.at(7 * electionTTL)
		var order []EventType
		for _, e := range s.told(EventRedisDown, EventRedisUp) {
			order = append(order, e.Type)
		}
		require.GreaterOrEqual(s, len(order), 8, "the leader, the one that drains and the one that stands back")
		for i, kind := range order {
			require.Equal(s, []EventType{EventRedisDown, EventRedisUp}[i%2], kind, "%v", order)
		}
		require.Equal(s, EventRedisUp, order[len(order)-1])
		require.Len(s, s.told(EventRenewalFailed), led, "of the leader alone")
		require.Equal(s, []int{5, 1}, []int{led, stoodBack})
	})
}

// TestStatusShowsWhatAnEventSays: an observer that asks for it never sees the state before.
func TestStatusShowsWhatAnEventSays(t *testing.T) {
	inElection(t, nil, func(s *election) {
		seen := make(map[EventType]int)
		look := func(e Event) bool { // while the loop publishes it, which no observer can do
			status := s.Status()
			seen[e.Type]++
			switch e.Type {
			case EventTermBegan:
				require.Equal(s, []any{ElectionLeading, e.Token}, []any{status.State, status.Token})
				require.Equal(s, []any{"me", e.Token}, []any{status.Leader, status.LeaderToken})
			case EventTermEnded:
				require.Equal(s, ElectionDraining, status.State)
				require.Zero(s, status.Token)
			case EventLeaderChanged:
				require.Equal(s, []any{e.Subject, e.Token}, []any{status.Leader, status.LeaderToken})
			case EventElectionWaiting:
				require.EqualValues(s, e.Reason, status.Waiting)
			case EventRedisDown:
				require.Equal(s, e.Err, status.Err)
			case EventRedisUp:
				require.NoError(s, status.Err)
			}
			return true
		}
		s.loop.bus.add(s.loop.bus.observers, observer[Event]{hearsay: look})
		s.run(s.honest(time.Second))
		s.at(time.Second)
		s.store.on(on("renew", fate{err: errNetwork}))
		s.pass(electionTTL / 2)
		s.store.on(nil)
		s.pass(electionRetry)
		require.NoError(s, s.Resign(context.Background()))
		s.store.hold("other", time.Hour)
		s.pass(2 * electionRetry)
		require.NoError(s, s.stop())
		for _, kind := range []EventType{EventTermBegan, EventTermEnded, EventLeaderChanged, EventElectionWaiting, EventRedisDown, EventRedisUp} {
			require.NotZero(s, seen[kind], kind)
		}
	})
}

// A leader that took back a lease that Redis had lost says so, once.
func TestReclaimIsReported(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.store.on(func(c storeCall) fate {
			if c.op != "renew" || c.number != 2 {
				return fate{}
			}
			return fate{answer: &store.LeaseReply{Reason: "reclaimed", Holder: "me", Answer: lease.Answer{
				Verdict: lease.Kept, Token: 1, TTL: electionTTL, Now: 1_000_000_000_000 + c.at.Milliseconds(), Origin: "another", Reclaimed: true,
			}}}
		})
		s.at(time.Minute)
		require.EqualValues(s, 2, s.loop.current.Load().forgot.Load(), "another history, and then yet another")
		told := s.told(EventLeaseReclaimed)
		require.Len(s, told, 1)
		require.EqualValues(s, 1, told[0].Token)
		require.True(s, s.IsLeader())
	})
}

// A Redis that does not report its history is reported once, and again after it did.
func TestUnreadHistoryIsReportedOnce(t *testing.T) {
	inElection(t, nil, func(s *election) {
		unread := func(c storeCall) fate {
			return fate{answer: &store.LeaseReply{Holder: "me", Answer: lease.Answer{
				Verdict: map[string]lease.Verdict{"acquire": lease.Won, "renew": lease.Kept, "release": lease.Done}[c.op],
				Token:   1, TTL: electionTTL, Now: 1_000_000_000_000 + c.at.Milliseconds(),
			}}}
		}
		s.store.on(unread)
		s.run()
		s.at(time.Minute)
		require.Len(s, s.told(EventHistoryUnread), 1)
		require.False(s, s.Status().HistoryWitness)
		s.store.on(nil)
		s.at(2 * time.Minute)
		require.True(s, s.Status().HistoryWitness)
		s.store.on(unread)
		s.at(3 * time.Minute)
		require.Len(s, s.told(EventHistoryUnread), 2)
	})
}

// An event whose name is a fault is logged at Warn at least.
func TestFaultsAreLoggedAtWarn(t *testing.T) {
	for _, fault := range []EventType{
		EventLeaseReclaimed, EventRenewalFailed, EventRedisDown, EventElectionMisconfigured, EventHistoryUnread, EventRedisClockStepped, EventWorkFailed, EventWorkOverrun,
		EventCallsStuck, EventHeartbeatFailed, EventInstanceDrifted, EventInstanceDown, EventInstanceDuplicated, EventSweepFailed, EventMetricsFailed, EventSweepHeld, EventTaskSkipped,
		EventTaskBlocked,
	} {
		level, _ := logLine(Event{Type: fault})
		require.GreaterOrEqual(t, level, slog.LevelWarn, "%s", fault)
	}
}

// With FailFast nothing is given back if no connection was made: nothing can have been granted.
func TestFailFastHasNothingToGiveBack(t *testing.T) {
	refused := fmt.Errorf("%w: %w", ErrUnreachable, &net.OpError{Op: "dial", Err: errBroken})
	for name, test := range map[string]struct {
		err      error
		releases int
	}{
		"no connection":    {refused, 0},
		"no usable answer": {errNetwork, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.FailFast = true }, func(s *election) {
				s.store.on(on("", fate{back: time.Second, err: test.err}))
				s.run()
				s.at(time.Second)
				if test.releases == 0 {
					require.Equal(s, ElectionStopped, s.Status().State, "at once")
				}
				require.ErrorIs(s, <-s.ended, ErrUnreachable)
				require.Len(s, s.store.made("release"), test.releases)
			})
		})
	}
}

// TestSilenceSaysWhy: with a short lease the time of a request is over before the client has dialed
// as often as it does. The error says all the same why there is no connection.
func TestSilenceSaysWhy(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("dial tcp 10.0.0.1:6379: connect: connection refused")
			}})
			defer func() { require.NoError(t, client.Close()) }()
			c, err := New(client, Options{Namespace: "shop", InstanceID: "a", FailFast: true, Election: ElectionOptions{LeaseTTL: ttl}})
			require.NoError(t, err)
			err = c.Run(t.Context())
			require.ErrorIs(t, err, ErrUnreachable)
			require.ErrorContains(t, err, "connection refused", ttl)
			require.ErrorContains(t, c.Elector().Status().Err, "connection refused", ttl)
		})
	}
}

// TestFailFastWaitsWithoutAskingInACircle: what is due is not asked any more, and the loop sleeps
// until the health check returns. A loop that does not sleep lets no virtual time pass, and hangs.
func TestFailFastWaitsWithoutAskingInACircle(t *testing.T) {
	checks := 0
	inElection(t, func(o *Options) {
		o.FailFast, o.ShutdownTimeout, o.Election.RenewInterval = true, 10*time.Second, time.Second/2
		o.Election.Health = func(context.Context) error {
			if checks++; checks > 1 {
				time.Sleep(6 * time.Second)
			}
			return nil
		}
	}, func(s *election) {
		s.store.on(on("", fate{back: 1500 * time.Millisecond, err: fmt.Errorf("%w: %w", ErrUnreachable, &net.OpError{Op: "dial", Err: errBroken})}))
		s.run()
		require.ErrorIs(s, <-s.ended, ErrUnreachable)
		require.Equal(s, 2, checks)
	})
}

// In virtual time: the loop stands still between the reply and the begin of the term: no work
// starts in a term that is over.
func TestP4_NoWorkBeginsInATermThatHasLapsed(t *testing.T) {
	stall := false
	inElection(t, func(o *Options) {
		o.random = func() float64 {
			if stall {
				stall = false
				time.Sleep(electionTTL)
			}
			return 0.5
		}
	}, func(s *election) {
		var began []int64
		stall = true // the first jitter is drawn when the term is granted
		s.run(func(ctx context.Context, term Term) error {
			began = append(began, term.Token)
			if !term.Valid() {
				return errors.New("began in a term that is over")
			}
			<-ctx.Done()
			return nil
		})
		s.at(electionTTL)
		require.Len(s, s.told(EventTermEnded), 1)
		require.ErrorIs(s, s.told(EventTermEnded)[0].Err, ErrLost)
		require.Empty(s, s.told(EventWorkFailed))
		s.at(2 * electionTTL)
		require.True(s, s.IsLeader(), "the next campaign")
		require.Equal(s, []int64{2}, began)
	})
}

// TestHugeHolderIsCut: whatever a foreign client writes into the lease key, or the term hash, it
// takes a few bytes with us, and never passes for an ID.
func TestHugeHolderIsCut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		long := strings.Repeat("x", 128)
		c.redis.Do(func(m *miniredis.Miniredis) {
			require.NoError(c, m.Set("tenure:leader", long+strings.Repeat("y", 1<<20)))
			m.HSet("tenure:leader:term", "origin", strings.Repeat("z", 1<<20))
		})
		a := c.member(long).start()
		c.pass(time.Second)
		status := a.Elector().Status()
		require.Equal(c, long+"…", status.Leader)
		require.Zero(c, status.LeaderToken)
		require.False(c, store.IDPattern.MatchString(status.Leader))
		leader, err := a.Elector().Leader(c.Context())
		require.NoError(c, err)
		require.Equal(c, long+"…", leader.InstanceID)
	})
}

// TestHolderWithoutANameIsReported: a foreign client may write an empty text into the lease key.
// That is not the same as no leader.
func TestHolderWithoutANameIsReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		e := c.member("a").Elector()
		_, err := e.Leader(c.Context())
		require.ErrorIs(c, err, ErrNoLeader)
		c.redis.Do(func(m *miniredis.Miniredis) { require.NoError(c, m.Set("tenure:leader", "")) })
		leader, err := e.Leader(c.Context())
		require.NoError(c, err)
		require.Equal(c, LeaderInfo{Remaining: leader.Remaining}, leader)
	})
}

// TestTermRecords: entries of the history become terms. What is missing is not made up.
func TestTermRecords(t *testing.T) {
	at := store.Time
	began := func(token int64, holder string, ms int64) store.TermEntry {
		return store.TermEntry{Event: store.TermBegan, Token: token, Holder: holder, At: ms}
	}
	ended := func(token int64, holder, why string, ms, since int64) store.TermEntry {
		return store.TermEntry{Event: store.TermEnded, Token: token, Holder: holder, Reason: why, At: ms, Since: since}
	}
	for name, c := range map[string]struct {
		newest []store.TermEntry
		limit  int
		want   []TermRecord
	}{
		"none": {limit: 5},
		"one that goes on, after one that was given back": {
			newest: []store.TermEntry{began(2, "b", 7000), ended(1, "a", "resigned", 6500, 5), began(1, "a", 5001)},
			limit:  5,
			want: []TermRecord{
				{Role: "r", Token: 2, InstanceID: "b", Began: at(7000), Gap: 500 * time.Millisecond},
				{Role: "r", Token: 1, InstanceID: "a", Began: at(5001), Ended: at(6500), Reason: "resigned"},
			},
		},
		"the limit counts terms": {
			newest: []store.TermEntry{ended(2, "b", "lost", 9000, 7), began(2, "b", 7000), ended(1, "a", "resigned", 6500, 5), began(1, "a", 5001)},
			limit:  1,
			want:   []TermRecord{{Role: "r", Token: 2, InstanceID: "b", Began: at(7000), Ended: at(9000), Reason: "lost", Gap: 500 * time.Millisecond}},
		},
		"the beginning is cut off": {
			newest: []store.TermEntry{ended(1, "a", "stopped", 6500, 5)}, limit: 5,
			want: []TermRecord{{Role: "r", Token: 1, InstanceID: "a", Began: at(5000), Ended: at(6500), Reason: "stopped"}},
		},
		"an end that nobody knows": {
			newest: []store.TermEntry{began(3, "a", 9000), ended(2, "", "forgotten", 0, 0), began(1, "a", 5000)}, limit: 5,
			want: []TermRecord{
				{Role: "r", Token: 3, InstanceID: "a", Began: at(9000)},
				{Role: "r", Token: 2, Reason: "forgotten"},
				{Role: "r", Token: 1, InstanceID: "a", Began: at(5000), Reason: "forgotten"},
			},
		},
		"a clock that was set back": {
			newest: []store.TermEntry{began(2, "b", 6000), ended(1, "a", "lapsed", 9000, 0), began(1, "a", 5000)}, limit: 5,
			want: []TermRecord{
				{Role: "r", Token: 2, InstanceID: "b", Began: at(6000)},
				{Role: "r", Token: 1, InstanceID: "a", Began: at(5000), Ended: at(9000), Reason: "lapsed"},
			},
		},
		"what tenure did not write": {newest: []store.TermEntry{{}, {Event: "noise", Token: 3}}, limit: 5},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, termRecords("r", c.newest, c.limit)) })
	}
}

// TestTerms: the history of a role says who led, from when to when, why not any more, and how long
// nobody led; and an event names the former leader.
func TestTerms(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.pair()
		require.NoError(c, a.Elector().Transfer(background, "b"))
		c.until(time.Second, b.IsLeader)
		b.crash()
		c.until(time.Minute, a.IsLeader)
		synctest.Wait()

		records, err := c.control("ops").Terms(background, "", 10)
		require.NoError(c, err)
		var lines []string
		for _, r := range records {
			lines = append(lines, r.InstanceID+" "+r.Reason)
		}
		require.Equal(c, []string{"a ", "b lapsed", "a transferred"}, lines)
		term, _ := a.Elector().Term()
		require.Equal(c, term.Token, records[0].Token)
		require.True(c, records[0].Ended.IsZero())
		require.InDelta(c, 0, records[1].Gap.Seconds(), 0.1)
		require.Equal(c, records[0].Began.Sub(records[1].Ended), records[0].Gap)
		require.Equal(c, records[1].Began.Sub(records[2].Ended), records[1].Gap) // 0 within one millisecond
		require.Zero(c, records[2].Gap)
		own, err := a.Elector().Terms(background, 2)
		require.NoError(c, err)
		require.Equal(c, records[:2], own)

		changes := a.witness.told(EventLeaderChanged)
		last := changes[len(changes)-1]
		require.Equal(c, []string{"a", "b", "lapsed"}, []string{last.Subject, last.Former, last.Reason})
		require.Equal(c, []string{"b", "a", ""}, []string{changes[len(changes)-2].Subject, changes[len(changes)-2].Former, changes[len(changes)-2].Reason})

		none, err := a.Elector().Terms(background, 0)
		require.NoError(c, err)
		require.Empty(c, none)
		_, err = c.control("ops").Terms(background, "no role", 1)
		require.ErrorIs(c, err, ErrMisconfigured)
		c.redis.Do(func(m *miniredis.Miniredis) { m.Del("tenure:leader:terms"); _, _ = m.Push("tenure:leader:terms", "x") })
		_, err = a.Elector().Terms(background, 1)
		require.ErrorIs(c, err, ErrMisconfigured)
	})
}

// TestLeaderThatWasStartedAnew: a process that leads after one that has died with its ID says so,
// as it does after any other.
func TestLeaderThatWasStartedAnew(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.pass(time.Minute)
		b := c.member("b", func(o *Options) { o.Election.Ineligible = true }).start()
		c.pass(time.Minute)
		was := b.Elector().Status().LeaderToken
		a.crash()
		a = c.member("a").start()
		c.pass(time.Minute)
		term, leads := a.Elector().Term()
		require.True(c, leads)
		require.Greater(c, term.Token, was)
		var lines []string
		for _, e := range a.witness.told(EventLeaderChanged) {
			lines = append(lines, fmt.Sprintf("%d %s after %q: %q", e.Token, e.Subject, e.Former, e.Reason))
		}
		require.Equal(c, []string{
			fmt.Sprintf("%d a after %q: %q", was, "", ""),
			fmt.Sprintf("%d a after %q: %q", term.Token, "a", "lapsed"),
		}, lines)
		for _, m := range []*instance{a, b} {
			_, stopped := m.stop()
			require.NoError(c, stopped)
		}
	})
}

// TestFixThatIsAskedForAgain: a key belongs to something else, by what any call says of it. Once it
// was repaired, and another call has found that, it is news if it happens again.
func TestFixThatIsAskedForAgain(t *testing.T) {
	refused := func(op string) error {
		return &store.Error{Kind: ErrMisconfigured, Op: op, Fix: "remove the key", Err: errors.New("WRONGTYPE")}
	}
	for name, test := range map[string]struct {
		ineligible bool
		first      string
	}{"looks": {true, "leader"}, "requests": {false, "acquire"}, "a look, then requests": {true, "acquire"}} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.Election.Ineligible = test.ineligible }, func(s *election) {
				var sick atomic.Bool
				s.store.hold("other", 1000*time.Hour)
				s.store.on(func(c storeCall) fate {
					if !sick.Load() {
						return fate{}
					}
					return fate{err: refused(c.op)}
				})
				s.run(s.honest(0))
				s.at(time.Minute)
				sick.Store(true)
				s.pass(time.Minute)
				require.Len(s, s.told(EventElectionMisconfigured), 1)
				sick.Store(false)
				s.pass(time.Minute)
				if test.first == "acquire" {
					s.SetEligible(true)
					s.pass(time.Minute)
				}
				sick.Store(true)
				s.pass(time.Minute)
				require.Len(s, s.told(EventElectionMisconfigured), 2)
			})
		})
	}
}

// TestKeyThatIsSpoiltAgain: the fix that a renewal has asked for is news again if the key was
// repaired meanwhile, as the requests of a follower have found: all of an election read the same
// keys. What a user may not do is another matter: each request needs rights of its own.
func TestKeyThatIsSpoiltAgain(t *testing.T) {
	for _, spoilt := range []bool{true, false} {
		inElection(t, nil, func(s *election) {
			var sick atomic.Pointer[string]
			s.store.on(func(c storeCall) fate {
				if op := sick.Load(); op == nil || c.op != *op {
					return fate{}
				}
				return fate{err: &store.Error{Kind: ErrMisconfigured, Op: c.op, Fix: "fix it", Spoilt: spoilt, Err: errors.New("refused")}}
			})
			s.run(s.honest(0))
			is := func(op string) { sick.Store(&op) }
			is("renew")
			s.pass(electionTTL)
			require.False(s, s.IsLeader())
			require.Len(s, s.told(EventElectionMisconfigured), 1)
			s.store.hold("other", 1000*time.Hour)
			s.pass(time.Minute)
			require.Equal(s, "other", s.Status().Leader)
			is("acquire")
			s.pass(time.Minute)
			if spoilt {
				require.Len(s, s.told(EventElectionMisconfigured), 2)
				return
			}
			require.Len(s, s.told(EventElectionMisconfigured), 1, "it may lack the right for both")
		})
	}
}
