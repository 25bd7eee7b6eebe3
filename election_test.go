package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

func TestStatusInEachState(t *testing.T) {
	inElection(t, func(o *Options) { o.Election.Role = "cleanup" }, func(s *election) {
		require.Equal(s, ElectionStatus{Role: "cleanup", State: ElectionIdle}, s.Status())
		require.Equal(s, "cleanup", s.Role())
		s.store.hold("other", electionTTL)
		s.run(s.honest(time.Second))
		require.Equal(s, ElectionStatus{
			Role: "cleanup", State: ElectionFollowing, Leader: "other", LeaderToken: 1, LastAnswer: s.began, Waiting: WaitLease, WaitingUntil: s.began.Add(electionTTL), HistoryWitness: true,
		}, s.Status())

		s.at(electionTTL - time.Second)
		asked := s.Status().LastAnswer
		s.store.on(on("", fate{err: errNetwork}))
		s.at(electionTTL + 100*time.Millisecond)
		status := s.Status()
		require.ErrorIs(s, status.Err, ErrUnreachable)
		require.Equal(s, asked, status.LastAnswer)
		s.store.on(nil)

		s.at(electionTTL + time.Second)
		status = s.Status()
		require.Equal(s, ElectionLeading, status.State)
		require.EqualValues(s, 2, status.Token)
		require.Equal(s, "me", status.Leader)
		require.EqualValues(s, 2, status.LeaderToken)
		tries := s.store.made("acquire")
		require.Equal(s, tries[len(tries)-1].at+electionLife, status.Deadline.Sub(s.began))
		require.NoError(s, status.Err)

		resigned := s.resign(context.Background())
		require.Equal(s, ElectionDraining, s.Status().State)
		require.Zero(s, s.Status().Token)
		require.NoError(s, <-resigned)
		status = s.Status()
		require.Equal(s, ElectionFollowing, status.State)
		require.Equal(s, WaitPenalty, status.Waiting)
		require.Empty(s, status.Leader)
		require.NoError(s, s.stop())
		require.Equal(s, ElectionStopped, s.Status().State)
	})
}

// TestStatusOfANewTerm: whoever is told by IsLeader of a term is told so by the status, before the
// loop has published that.
func TestStatusOfANewTerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.at(time.Second)
		s.loop.status.Store(&snapshot{ElectionStatus: ElectionStatus{
			State: ElectionFollowing, Leader: "other", LeaderToken: 1, Waiting: WaitLease, WaitingUntil: time.Now().Add(electionTTL),
		}})
		require.True(s, s.IsLeader())
		status := s.Status()
		require.Equal(s, ElectionLeading, status.State)
		token := s.told(EventTermBegan)[0].Token
		require.Equal(s, []int64{token, token}, []int64{status.Token, status.LeaderToken})
		require.Equal(s, "me", status.Leader)
		require.Empty(s, status.Waiting)
		require.Zero(s, status.WaitingUntil)
		require.Positive(s, time.Until(status.Deadline))
	})
}

func TestStatusOfAForeignHolder(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{lost: true, answer: &store.LeaseReply{
			Answer: lease.Answer{Verdict: lease.Held, Now: 1, Token: 9, Wait: time.Minute}, Reason: "foreign", Holder: "a cron job",
		}}))
		s.run()
		status := s.Status()
		require.Equal(s, "a cron job", status.Leader)
		require.Zero(s, status.LeaderToken)
		require.Equal(s, WaitForeign, status.Waiting)
		require.False(s, status.HistoryWitness)
		require.Equal(s, "a cron job", s.told(EventLeaderChanged)[0].Subject)
	})
}

func TestLeader(t *testing.T) {
	inElection(t, nil, func(s *election) {
		ctx := context.Background()
		_, err := s.Leader(ctx)
		require.ErrorIs(s, err, ErrNoLeader)
		s.store.hold("other", electionTTL)
		info, err := s.Leader(ctx)
		require.NoError(s, err, "it works without Run")
		require.Equal(s, LeaderInfo{InstanceID: "other", Token: 1, Since: time.Unix(1_000_000_000, 0).UTC(), Remaining: electionTTL}, info)
		s.store.on(on("leader", fate{answer: &store.LeaseReply{Answer: lease.Answer{Verdict: lease.Held, Wait: -time.Millisecond}, Holder: "x"}}))
		info, err = s.Leader(ctx)
		require.NoError(s, err)
		require.Equal(s, LeaderInfo{InstanceID: "x", Remaining: -time.Millisecond}, info, "a foreign one without expiry")
		s.store.on(on("leader", fate{err: errNetwork}))
		_, err = s.Leader(ctx)
		require.ErrorIs(s, err, ErrUnreachable)
	})
}

// TestForgedStartOfATerm: anybody who may write keys can forge it. What is no date is the zero
// time, which JSON can hold.
func TestForgedStartOfATerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		for _, since := range []int64{1 << 40, 1 << 62} {
			s.store.on(on("leader", fate{answer: &store.LeaseReply{Answer: lease.Answer{Verdict: lease.Held, Token: 1, Since: since}, Holder: "x"}}))
			info, err := s.Leader(context.Background())
			require.NoError(s, err)
			_, err = json.Marshal(info.Since)
			require.NoError(s, err)
		}
	})
}

func TestEveryLeadFuncRuns(t *testing.T) {
	inElection(t, func(o *Options) {
		o.Election.Lead = []LeadFunc{func(ctx context.Context, _ Term) error { <-ctx.Done(); return nil }}
	}, func(s *election) {
		tokens := make(chan int64, 10)
		s.loop.opts.Lead = append(s.loop.opts.Lead, func(ctx context.Context, term Term) error {
			tokens <- term.Token
			<-ctx.Done()
			return nil
		})
		s.run(func(ctx context.Context, term Term) error {
			tokens <- term.Token
			<-ctx.Done()
			return nil
		}, s.after(midTerm, func() error { return ErrResigned }))
		require.Equal(s, []int64{1, 1}, []int64{<-tokens, <-tokens})
		require.Len(s, s.loop.opts.Lead, 2, "what Run is given is not kept")
		s.at(midTerm)
		require.Len(s, s.told(EventLeaseReleased), 1, "one that resigns ends it for all")
		require.ErrorContains(s, s.told(EventTermEnded)[0].Err, "leader work")
	})
}

func TestElectorWithoutWorkLeads(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run()
		s.at(time.Hour)
		require.True(s, s.IsLeader())
		require.Len(s, s.told(EventTermBegan), 1)
		require.NoError(s, s.stop())
		require.True(s, s.store.free())
	})
}

// What leads says that it does not get on: a coordinator's scheduler loop that hangs.
func TestTermIsGivenUpWhenWhatLeadsIsStuck(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.loop.stuck = func() error {
			if s.now() > electionRenew {
				return errBroken
			}
			return nil
		}
		s.run(s.honest(0))
		s.at(electionRenew)
		require.True(s, s.IsLeader())
		s.at(2 * electionRenew)
		require.False(s, s.IsLeader())
		require.ErrorIs(s, s.told(EventTermEnded)[0].Err, errBroken)
		require.ErrorIs(s, s.told(EventWorkFailed)[0].Err, errBroken)
	})
}

func TestUnhealthyCandidateNeverCampaigns(t *testing.T) {
	var checks atomic.Int32
	var well atomic.Bool
	inElection(t, func(o *Options) {
		o.Election.Health = func(context.Context) error {
			checks.Add(1)
			if well.Load() {
				return nil
			}
			return errBroken
		}
	}, func(s *election) {
		s.run(s.honest(0))
		s.hint(store.Hint{Type: store.HintVacant})
		s.at(time.Minute)
		require.Empty(s, s.store.made("acquire"))
		require.Equal(s, WaitUnhealthy, s.Status().Waiting)
		require.EqualValues(s, 21, checks.Load(), "every RenewInterval")
		well.Store(true)
		s.pass(electionRenew)
		require.True(s, s.IsLeader())
		require.Equal(s, time.Minute+electionRenew, s.store.made("acquire")[0].at)
	})
}

// The health check fails while the acquire is on its way: what it wins is given back.
func TestHealthFailsDuringAnAcquire(t *testing.T) {
	inElection(t, failing(func(_ context.Context, number int) error {
		if number == 2 {
			return errBroken
		}
		return nil
	}), func(s *election) {
		s.store.on(on("acquire", fate{there: electionRenew + time.Millisecond}))
		s.run(s.honest(0))
		s.at(electionRenew + time.Millisecond)
		require.False(s, s.IsLeader())
		noted := s.noted()
		require.Empty(s, noted[:len(noted)-1], "no work was started")
		require.True(s, s.store.free())
		require.ErrorIs(s, s.told(EventTermEnded)[0].Err, ErrWorkFailed)
	})
}

func TestHungHealthCheckIsNotStartedTwice(t *testing.T) {
	running, most := 0, 0
	inElection(t, failing(func(_ context.Context, number int) error {
		running++
		defer func() { running-- }()
		most = max(most, running)
		if number == 3 {
			<-time.After(time.Minute)
		}
		return nil
	}), func(s *election) {
		s.run(s.honest(0))
		s.at(50 * time.Second)
		require.Equal(s, ElectionFollowing, s.Status().State)
		require.Equal(s, WaitUnhealthy, s.Status().Waiting, "the penalty is over, the check still hangs")
		s.at(2 * time.Minute)
		require.True(s, s.IsLeader())
		require.Equal(s, 1, most)
	})
}

// A check that answers after its time has failed, whatever it answers.
func TestLateAnswerOfAHealthCheckIsAFailure(t *testing.T) {
	inElection(t, failing(func(_ context.Context, number int) error {
		switch number {
		case 1:
			<-time.After(2 * electionRenew)
			return nil
		default:
			<-time.After(time.Second)
			return errBroken
		}
	}), func(s *election) {
		s.run(s.honest(0))
		s.at(3 * electionRenew)
		require.Empty(s, s.store.made("acquire"))
		require.Equal(s, WaitUnhealthy, s.Status().Waiting)
		require.ErrorIs(s, s.Status().Err, errBroken)
	})
}

func TestIsLeaderAllocatesNothing(t *testing.T) {
	if simnet.Race {
		t.Skip("the race detector allocates")
	}
	inElection(t, nil, func(s *election) {
		require.Zero(s, testing.AllocsPerRun(100, func() { s.IsLeader() }), "following")
		s.run(s.honest(0))
		require.True(s, s.IsLeader())
		term, _ := s.Term()
		require.Zero(s, testing.AllocsPerRun(100, func() { s.IsLeader() }), "leading")
		require.Zero(s, testing.AllocsPerRun(100, func() { term.Valid() }))
	})
}

// The whole of an elector that stands alone: two of them on one Redis, a hand-over by hint, no
// goroutine left.
func TestNewElector(t *testing.T) {
	redistest.NoLeaks(t)
	server := miniredis.RunT(t)
	electors, stops := make([]*Elector, 2), make([]context.CancelFunc, 2)
	began, ended := make(chan int, 2), make(chan error, 2)
	for i := range electors {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		elector, err := NewElector(client, ElectorOptions{Namespace: "tenure", InstanceID: fmt.Sprint("i", i), Election: ElectionOptions{Safety: SafetyOptions{EmptyHistoryWait: -1}}})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		electors[i], stops[i] = elector, stop
		go func() {
			ended <- elector.Run(ctx, func(ctx context.Context, _ Term) error {
				began <- i
				<-ctx.Done()
				return nil
			})
		}()
	}
	first := <-began
	info, err := electors[1-first].Leader(context.Background())
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint("i", first), info.InstanceID)
	stops[first]()
	require.NoError(t, <-ended)
	require.Equal(t, 1-first, <-began)
	stops[1-first]()
	require.NoError(t, <-ended)
	_, err = electors[first].Leader(context.Background())
	require.ErrorIs(t, err, ErrNoLeader)
}

func TestObserveOfAnElector(t *testing.T) {
	inElection(t, nil, func(s *election) {
		var seen []EventType
		stop := s.Observe(func(e Event) { seen = append(seen, e.Type) })
		s.run()
		s.at(time.Second)
		require.Equal(s, []EventType{EventElectionStarted, EventTermBegan, EventLeaderChanged}, seen)
		stop()
		require.NoError(s, s.stop())
		require.Len(s, seen, 3)
	})
}

// resign calls Resign beside the test and hands over what it returns.
func (s *election) resign(ctx context.Context) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- s.Resign(ctx) }()
	s.pass(0)
	return answer
}

func TestResignWaitsForTheHandOver(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.store.on(on("release", fate{back: 20 * time.Millisecond}))
		s.at(midTerm)
		first, second := s.resign(context.Background()), s.resign(context.Background())
		require.False(s, s.IsLeader())
		require.ErrorIs(s, <-second, ErrNotLeader, "there is no term any more")
		s.at(midTerm + time.Second)
		require.Empty(s, first)
		require.NoError(s, <-first)
		require.Equal(s, midTerm+time.Second+20*time.Millisecond, s.now())
		require.True(s, s.store.free())
		require.Empty(s, s.Status().Leader)
	})
}

func TestResignConcurrently(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		answers := make(chan error, 32)
		for range cap(answers) {
			go func() { answers <- s.Resign(context.Background()) }()
		}
		given := 0
		for range cap(answers) {
			if err := <-answers; err != nil {
				require.ErrorIs(s, err, ErrNotLeader)
			} else {
				given++
			}
		}
		require.Positive(s, given)
		require.Len(s, s.store.made("release"), 1)
		require.Len(s, s.told(EventTermEnded), 1)
	})
}

func TestResignInsideLeaderWorkReturnsAtOnce(t *testing.T) {
	for name, inside := range map[string]func(context.Context) context.Context{
		"its context": func(ctx context.Context) context.Context { return ctx },
		"derived":     func(ctx context.Context) context.Context { return context.WithValue(ctx, t, t) },
		"without end": context.WithoutCancel,
		"already done": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(func(ctx context.Context, _ Term) error {
					require.NoError(s, s.Resign(inside(ctx)))
					require.False(s, s.IsLeader(), "the term has ended, and its lease waits for this work")
					require.ErrorIs(s, s.Resign(inside(ctx)), ErrNotLeader)
					require.ErrorIs(s, context.Cause(ctx), ErrResigned)
					require.ErrorIs(s, s.Resign(ctx), ErrNotLeader)
					s.note("returns")
					return nil
				})
				require.Equal(s, []string{"returns", "release leader=false"}, s.noted())
				require.Zero(s, s.now())
				require.Len(s, s.told(EventLeaseReleased), 1)
				require.Equal(s, WaitPenalty, s.Status().Waiting)
			})
		})
	}
}

// TestResignInsideATermThatHasEnded: the loop need not have noticed yet.
func TestResignInsideATermThatHasEnded(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(func(ctx context.Context, _ Term) error {
			<-time.After(time.Second)
			s.loop.current.Load().lease.Store(nil) // as a reader does at the deadline
			require.ErrorIs(s, s.Resign(ctx), ErrNotLeader)
			<-ctx.Done()
			return nil
		})
		s.pass(time.Second)
	})
}

func TestResignWithADoneContextStartsTheHandOver(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errBroken)
		require.ErrorIs(s, s.Resign(ctx), errBroken)
		s.pass(time.Second)
		require.Len(s, s.told(EventLeaseReleased), 1)
	})
}

func TestResignWithoutATerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		require.ErrorIs(s, s.Resign(context.Background()), ErrNotLeader, "before Run")
		s.store.hold("other", time.Hour)
		s.run()
		require.ErrorIs(s, s.Resign(context.Background()), ErrNotLeader, "following")
		_, leads := s.Term()
		require.False(s, leads)
		require.NoError(s, s.stop())
		require.ErrorIs(s, s.Resign(context.Background()), ErrStopped, "after Run")
	})
}

// Whatever ends the term that is being resigned, its Resign returns.
func TestResignReturnsWhateverEndsTheTerm(t *testing.T) {
	for _, end := range endings {
		t.Run(end.name, func(t *testing.T) {
			inElection(t, end.change, func(s *election) {
				work := []LeadFunc{s.honest(time.Second)}
				if end.work != nil {
					work = append(work, end.work(s))
				}
				s.run(work...)
				if end.before != nil {
					end.before(s)
				}
				s.at(end.at - 1)
				time.AfterFunc(1, func() { // at the very instant
					if err := s.Resign(context.Background()); err != nil && !errors.Is(err, ErrNotLeader) {
						s.Error(err)
					}
					s.note("resigned")
				})
				s.at(end.at)
				if end.act != nil {
					end.act(s)
				}
				s.at(end.at + 2*time.Second)
				require.Contains(s, s.noted(), "resigned")
			})
		})
	}
}

// The lease of an older term is still being given back when the next one ends.
func TestResignReturnsWhenTheNextTermEndsFirst(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("release", fate{err: errNetwork})) // done, and never heard of
		s.run(s.honest(0))
		first := s.resign(context.Background())
		s.pass(electionRetry + time.Second)
		require.Empty(s, first)
		require.True(s, s.IsLeader())
		second := s.resign(context.Background())
		require.NoError(s, <-first)
		require.Empty(s, second)
		require.NoError(s, <-second, "it lapses")
		require.LessOrEqual(s, s.now(), electionRetry+time.Second+electionTTL)
	})
}

// Run gives up on work that does not return: so does Resign.
func TestResignReturnsWhenRunDoes(t *testing.T) {
	inElection(t, nil, func(s *election) {
		release := make(chan struct{})
		defer close(release)
		s.run(func(context.Context, Term) error { <-release; return nil })
		answer := s.resign(context.Background())
		require.ErrorIs(s, s.stop(), ErrDrainTimeout)
		require.ErrorIs(s, <-answer, ErrDrainTimeout)
	})
}

// Leader work that calls Resign without its context waits for itself. So does a caller that it
// waits for. It ends with the drain bound, when the lease is left to lapse, and not with Run; then
// the elector goes on.
func TestResignThatWaitsForItsCallerEnds(t *testing.T) {
	inElection(t, nil, func(s *election) {
		answer := make(chan error, 1)
		s.run(s.after(time.Second, func() error {
			answer <- s.Resign(context.Background())
			return nil
		}))
		s.at(time.Second + electionDrain - 1)
		require.Empty(s, answer)
		require.Equal(s, ElectionDraining, s.Status().State)
		s.at(time.Second + electionDrain)
		require.Len(s, answer, 1)
		err := <-answer
		require.ErrorIs(s, err, ErrDrainTimeout)
		require.ErrorContains(s, err, "leader work github.com/tenure-go/tenure.")
		require.Len(s, s.told(EventWorkOverrun), 1)
		require.Equal(s, ElectionFollowing, s.Status().State)
		s.pass(electionTTL + electionRetry)
		require.Len(s, s.told(EventTermBegan), 2)
	})
}

// A Resign that was called in an earlier term, and got no time to run since, does not hide one of
// now.
func TestResignOfAnOlderTermDoesNotHideOneOfNow(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		older, _ := s.Term()
		require.NoError(s, s.Resign(context.Background()))
		s.pass(electionRetry + time.Second)
		newer, leads := s.Term()
		require.True(s, leads)
		newer.live.resigning.Store(true)
		older.live.resigning.Store(true)
		s.loop.inputs.nudge()
		<-newer.live.released
		require.ErrorIs(s, context.Cause(newer.Context()), ErrResigned)
	})
}

// Two electors of one process may have role and instance ID in common, in two namespaces.
func TestResignByTheWorkOfAnotherElector(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		onAnother := begin(context.Background(), Term{InstanceID: "me"}, *s.loop.current.Load().lease.Load(), func() {})
		defer onAnother.end(ErrStopped)
		answer := s.resign(onAnother.ctx)
		require.Empty(s, answer, "it waits for the hand-over")
		require.NoError(s, <-answer)
		require.Len(s, s.told(EventLeaseReleased), 1)
	})
}

// Work that goes on after its term has ended does not end the next one: not even that of an elector
// that leads again meanwhile.
func TestResignByTheWorkOfATermThatIsOver(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		over, _ := s.Term()
		require.NoError(s, s.Resign(context.Background()))
		s.pass(electionRetry + time.Second)
		require.True(s, s.IsLeader(), "it leads again")
		require.ErrorIs(s, s.Resign(over.Context()), ErrNotLeader)
		s.pass(time.Second)
		require.True(s, s.IsLeader())
		require.Len(s, s.told(EventTermEnded), 1)
	})
}

// TestEligibility: who is not eligible does not campaign, knows who leads, and hands over what it
// leads; eligible again it is a candidate like others, and nobody gives way to it.
func TestEligibility(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.until(time.Minute, a.IsLeader)
		b := c.member("b", func(o *Options) { o.Election.Ineligible = true }).start()
		c.until(time.Second, func() bool { return b.Elector().Status().Leader == "a" })
		require.Equal(c, WaitIneligible, b.Elector().Status().Waiting)
		require.False(c, b.Elector().IsEligible())
		c.pass(time.Second)
		require.Equal(c, "active", b.record())

		a.Elector().SetEligible(false)
		c.until(time.Second, func() bool { return !a.IsLeader() })
		c.pass(15 * time.Second)
		require.False(c, a.IsLeader() || b.IsLeader(), "nobody may")
		require.Len(c, a.witness.told(EventTermBegan), 1, "nobody asks")
		require.Empty(c, b.Elector().Status().Leader)

		began := c.now()
		b.Elector().SetEligible(true)
		c.until(time.Second, b.IsLeader)
		require.Less(c, c.now()-began, time.Second)
		require.ErrorIs(c, a.witness.told(EventTermEnded)[0].Err, ErrResigned)
		a.Elector().SetEligible(true)
		c.pass(time.Minute)
		require.True(c, b.IsLeader(), "nobody takes over because another may lead again")
		require.Equal(c, WaitLease, a.Elector().Status().Waiting)
		require.Equal(c, "b", a.Elector().Status().Leader)
		require.NoError(c, b.Elector().Resign(context.Background()))
		c.until(time.Second, a.IsLeader)
	})
}

// TestReleaseOfOneThatIsNotEligible: it follows as soon as the work has returned, and reports the
// release of its lease once Redis has answered that.
func TestReleaseOfOneThatIsNotEligible(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.at(time.Minute)
		s.store.on(on("release", fate{there: time.Second, back: time.Second}))
		s.SetEligible(false)
		s.pass(time.Second / 2)
		require.Equal(s, ElectionDraining, s.Status().State)
		s.pass(time.Second)
		require.Equal(s, ElectionFollowing, s.Status().State)
		require.False(s, s.store.free())
		require.Empty(s, s.told(EventLeaseReleased))
		s.pass(2 * time.Second)
		require.True(s, s.store.free())
		require.Len(s, s.told(EventLeaseReleased), 1)
	})
}

// TestGrantOfOneThatIsNotEligible: the answer to what was asked before comes late. No work begins,
// and the lease goes back.
func TestGrantOfOneThatIsNotEligible(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{back: time.Second}))
		s.run(func(context.Context, Term) error { s.Error("work began"); return nil })
		s.at(time.Second / 2)
		s.SetEligible(false)
		s.at(5 * time.Second)
		require.True(s, s.store.free())
		require.Len(s, s.store.made("acquire"), 1)
		require.Equal(s, WaitIneligible, s.Status().Waiting)
	})
}

// TestUncertainGrantOfOneThatIsNotEligible: what an unanswered acquire may have been granted goes
// back when this candidate may not lead any more, or is drained: others do not wait for its end.
func TestUncertainGrantOfOneThatIsNotEligible(t *testing.T) {
	for name, withdraw := range map[string]func(*election, *atomic.Bool){
		"not eligible": func(s *election, _ *atomic.Bool) { s.SetEligible(false) },
		"drained":      func(s *election, draining *atomic.Bool) { draining.Store(true); s.loop.inputs.nudge() },
	} {
		t.Run(name, func(t *testing.T) {
			for _, at := range []time.Duration{10 * time.Millisecond, time.Second} { // its answer is out, or not yet
				inElection(t, nil, func(s *election) {
					var draining atomic.Bool
					s.loop.draining = &draining
					s.store.on(on("acquire", fate{back: at / 2, err: errNetwork}))
					s.run(s.honest(0))
					s.at(min(at, 100*time.Millisecond))
					withdraw(s, &draining)
					if draining.Load() {
						require.NoError(s, s.rest(context.Background()))
						require.True(s, s.store.free(), "the drain is done, and Redis shows our lease")
					}
					s.at(2 * time.Second)
					require.False(s, s.IsLeader())
					require.True(s, s.store.free())
					require.Len(s, s.store.made("acquire"), 1)
				})
			}
		})
	}
}

func TestOnce(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer rdb.Close()
	options := func(id string) ElectorOptions {
		return ElectorOptions{Namespace: "shop", InstanceID: id, Election: ElectionOptions{
			Role: "migration", LeaseTTL: 30 * time.Second, Safety: SafetyOptions{EmptyHistoryWait: -1, RestartGuard: -1},
		}}
	}
	ctx := t.Context()
	migrated := errors.New("the table is there already")
	runs := 0
	info, err := Once(ctx, rdb, options("a"), func(ctx context.Context, term Term) error {
		require.NoError(t, ctx.Err())
		require.True(t, term.Valid())
		require.NoError(t, term.Verify(ctx))
		runs++
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		other, err := Once(bounded, rdb, options("b"), func(context.Context, Term) error {
			runs++
			return nil
		})
		require.ErrorIs(t, err, ErrNotLeader)
		require.Equal(t, []any{"migration", "a", term.Token}, []any{other.Role, other.InstanceID, other.Token})
		return migrated
	})
	require.Equal(t, migrated, err, "the error of the function as it is")
	require.Equal(t, []any{"migration", "a", 1}, []any{info.Role, info.InstanceID, runs})

	began := time.Now()
	_, err = Once(ctx, rdb, options("b"), func(context.Context, Term) error {
		runs++
		panic("no")
	})
	var panicked *PanicError
	require.ErrorAs(t, err, &panicked)
	require.Equal(t, 2, runs, "once, though it failed")
	require.Less(t, time.Since(began), 20*time.Second, "the lease of a was released")

	over, cancel := context.WithCancelCause(ctx)
	cancel(migrated)
	_, err = Once(over, rdb, options("b"), func(context.Context, Term) error { panic("not called") })
	require.ErrorIs(t, err, migrated)
	_, err = Once(ctx, rdb, options("b"), nil)
	require.ErrorIs(t, err, ErrMisconfigured)
	_, err = Once(ctx, rdb, ElectorOptions{}, func(context.Context, Term) error { return nil })
	var refused *OptionError
	require.ErrorAs(t, err, &refused)
}

// TestOnceIsDone: a role that nobody needs to lead any more is not missed, one of failed work is.
func TestOnceIsDone(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer rdb.Close()
	control, err := NewControl(rdb, ControlOptions{Namespace: "shop"})
	require.NoError(t, err)
	for _, work := range []struct {
		returns error
		reason  string
		listed  bool
	}{{errors.New("no"), "stopped", true}, {nil, "done", false}} {
		var log strings.Builder
		_, err := Once(t.Context(), rdb, ElectorOptions{
			Namespace: "shop", Election: ElectionOptions{Role: "migration", Safety: SafetyOptions{EmptyHistoryWait: -1, RestartGuard: -1}},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, func(context.Context, Term) error { return work.returns })
		require.Equal(t, work.returns, err)
		require.Contains(t, log.String(), "released leadership")
		require.NotContains(t, log.String(), "the term goes on")
		terms, err := control.Terms(t.Context(), "migration", 1)
		require.NoError(t, err)
		require.Equal(t, work.reason, terms[0].Reason)
		is := func(s RoleStatus) bool { return s.Role == "migration" }
		roles, err := control.Roles(t.Context())
		require.NoError(t, err)
		require.Equal(t, work.listed, slices.ContainsFunc(roles, is), "%+v", roles)
		roles, err = control.Roles(t.Context(), "migration")
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(roles, is), "it was asked for")
	}
}

// What the function returned is not lost if Run fails after it, nor is who led.
func TestOnceReportsBoth(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer rdb.Close()
	hangs := make(chan struct{})
	defer close(hangs)
	options := ElectorOptions{
		Namespace: "shop", InstanceID: "a", ShutdownTimeout: 100 * time.Millisecond,
		Election: ElectionOptions{Role: "migration", LeaseTTL: time.Second, Safety: SafetyOptions{EmptyHistoryWait: -1, RestartGuard: -1}},
		Logger:   slog.New(hangingHandler{slog.DiscardHandler, hangs}),
	}
	for _, migrated := range []error{errors.New("the table is there already"), nil} {
		info, err := Once(t.Context(), rdb, options, func(context.Context, Term) error { return migrated })
		require.ErrorIs(t, err, ErrDrainTimeout)
		var drain *DrainError
		require.ErrorAs(t, err, &drain)
		if migrated != nil {
			require.ErrorIs(t, err, migrated)
		}
		require.Equal(t, "a", info.InstanceID)
		require.Positive(t, info.Token)
	}
	ends := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	info, err := Once(ctx, rdb, options, func(context.Context, Term) error {
		cancel()
		<-ends
		return nil
	})
	close(ends)
	require.ErrorIs(t, err, ErrDrainTimeout)
	require.Empty(t, info, "the function still runs")
}

// hangingHandler logs nothing, and hangs at the first line.
type hangingHandler struct {
	slog.Handler
	hangs chan struct{}
}

func (h hangingHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h hangingHandler) Handle(context.Context, slog.Record) error { <-h.hangs; return nil }

// While nobody leads, Once waits.
func TestOnceWaits(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	server.SetError("LOADING Redis is loading the dataset in memory")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("patience is over"))
	defer cancel()
	_, err := Once(ctx, rdb, ElectorOptions{Namespace: "shop"}, func(context.Context, Term) error { panic("not called") })
	require.EqualError(t, err, "patience is over")
}
