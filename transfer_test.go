package tenure

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// transferring calls Transfer beside the test and hands over what it returns.
func (s *election) transferring(ctx context.Context, to string) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- s.Transfer(ctx, to) }()
	synctest.Wait()
	return answer
}

// TestTransferGoesInOrder: offer, the candidate asks, IsLeader false, context cancelled, work
// drained while the lease is renewed, a release that reserves.
func TestTransferGoesInOrder(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(3500 * time.Millisecond))
		term, _ := s.Term()
		s.at(time.Second)
		answer := s.transferring(context.Background(), "other")
		offers := s.store.made("renew")
		require.Len(s, offers, 1, "the offer travels at once")
		require.Equal(s, "other", offers[0].Heir)
		require.True(s, s.IsLeader())
		require.Equal(s, "other", s.Status().TransferringTo)
		s.at(2 * time.Second)
		require.True(s, s.IsLeader(), "nothing ends before it asks")
		s.store.ready = "other"
		s.hint(store.Hint{Type: store.HintReady})
		synctest.Wait()
		require.False(s, s.IsLeader())
		require.Equal(s, ElectionDraining, s.Status().State)
		require.Equal(s, "other", s.Status().TransferringTo)
		require.NoError(s, term.live.tasks.ctx.Err(), "running tasks may finish")
		require.Empty(s, s.store.made("release"))
		require.Empty(s, answer)
		require.NoError(s, <-answer)
		require.Equal(s, 5500*time.Millisecond, s.now())
		renewals := s.store.made("renew")
		require.True(s, renewals[2].Draining)
		require.Equal(s, "other", renewals[2].Heir, "it is kept awake")
		release := s.store.made("release")
		require.Len(s, release, 1)
		require.Equal(s, "other", release[0].Heir)
		require.Equal(s, electionTTL/3, release[0].Reserve)
		require.Equal(s, []string{"begin leader=true", "cancelled leader=false valid=false", "drained", "release leader=false"}, s.noted())
		require.Empty(s, s.Status().TransferringTo)
		offered := s.told(EventTransferOffered)
		require.Len(s, offered, 1)
		require.Equal(s, "other", offered[0].Subject)
		ended := s.told(EventTermEnded)[0]
		require.Equal(s, "transferred", ended.Reason)
		require.ErrorIs(s, ended.Err, ErrResigned)
		require.ErrorContains(s, ended.Err, `"other"`)
		require.Empty(s, s.told(EventTransferFailed))
		s.store.hold("other", time.Hour)
		s.pass(electionTTL / 20)
		require.Len(s, s.store.made("acquire"), 2, "it does not stand back")
		require.Equal(s, WaitLease, s.Status().Waiting)
	})
}

// TestTransferToOneThatDoesNotAsk costs nothing: the term goes on, and the offer is taken back.
func TestTransferToOneThatDoesNotAsk(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.at(time.Second)
		first, second := s.transferring(context.Background(), "gone"), s.transferring(context.Background(), "gone")
		require.ErrorIs(s, s.Transfer(context.Background(), "third"), ErrTransferring)
		err := <-first
		require.ErrorIs(s, err, ErrNotReady)
		require.ErrorContains(s, err, `"gone"`)
		require.ErrorIs(s, <-second, ErrNotReady)
		require.Equal(s, time.Second+electionRetry+2*(electionTTL/3), s.now())
		require.True(s, s.IsLeader())
		require.Empty(s, s.Status().TransferringTo)
		synctest.Wait()
		renewals := s.store.made("renew")
		last := renewals[len(renewals)-1]
		require.Empty(s, last.Heir)
		require.Equal(s, s.now(), last.at, "at once")
		require.Empty(s, s.told(EventTransferOffered)[0].Reason, "it was asked for")
		failed := s.told(EventTransferFailed)
		require.Empty(s, failed[0].Reason)
		require.Len(s, failed, 1)
		require.ErrorIs(s, failed[0].Err, ErrNotReady)
		require.Len(s, s.told(EventTransferOffered), 1)
		require.Empty(s, s.told(EventTermEnded))

		s.store.ready = "third" // and the next one is free to begin
		require.NoError(s, s.Transfer(context.Background(), "third"))
	})
}

// TestTransferIsAnsweredAfterTheStatus: who waits for it may ask for the status, which must not
// show it any more.
func TestTransferIsAnsweredAfterTheStatus(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		s.at(time.Second)
		call := transferCall{to: "gone", token: s.Status().Token, begun: make(chan error)}
		s.loop.inputs.put(func(in *loopInputs) { in.transfers = append(in.transfers, call) })
		synctest.Wait()
		require.Equal(s, "gone", s.Status().TransferringTo)
		time.Sleep(electionRetry + 2*(electionTTL/3))
		synctest.Wait() // the loop waits until its answer is taken
		is := s.Status()
		require.ErrorIs(s, <-call.begun, ErrNotReady)
		require.Empty(s, is.TransferringTo)
	})
}

// TestTransferIsAnsweredAfterTheEnd of a term that ends otherwise.
func TestTransferIsAnsweredAfterTheEnd(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.at(time.Second)
		call := transferCall{to: "gone", token: s.Status().Token, begun: make(chan error)}
		s.loop.inputs.put(func(in *loopInputs) { in.transfers = append(in.transfers, call) })
		synctest.Wait()
		s.SetEligible(false)
		synctest.Wait() // the loop waits until its answer is taken
		leads, is := s.IsLeader(), s.Status()
		require.ErrorIs(s, <-call.begun, ErrNotLeader)
		require.False(s, leads)
		require.Equal(s, ElectionDraining, is.State)
	})
}

// TestTransferWithoutEffect: what is not this instance's to give.
func TestTransferWithoutEffect(t *testing.T) {
	inElection(t, nil, func(s *election) {
		require.ErrorIs(s, s.Transfer(context.Background(), "other"), ErrNotLeader, "before Run")
		s.run(s.honest(0))
		require.NoError(s, s.Transfer(context.Background(), "me"), "it leads already")
		for _, id := range []string{lease.Anyone, "a b", `"`} {
			require.ErrorIs(s, s.Transfer(context.Background(), id), ErrMisconfigured)
		}
		require.Empty(s, s.told(EventTransferOffered))
		require.NoError(s, s.stop())
		require.ErrorIs(s, s.Transfer(context.Background(), "other"), ErrStopped)
	})
}

// TestTransferOfATermThatEndsOtherwise says so.
func TestTransferOfATermThatEndsOtherwise(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*election)
		want error
	}{
		"resigned": {func(s *election) { require.NoError(s, s.Resign(context.Background())) }, ErrResigned},
		"expired":  {func(s *election) { s.store.on(on("renew", fate{err: errNetwork})) }, ErrLost},
		"stopped":  {func(s *election) { _ = s.stop() }, ErrStopped},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.Election.RetryInterval = electionTTL }, func(s *election) {
				s.run(s.honest(0))
				answer := s.transferring(context.Background(), "other")
				test.end(s)
				err := <-answer
				require.ErrorIs(s, err, ErrNotLeader)
				require.ErrorIs(s, err, test.want)
				for _, release := range s.store.made("release") {
					require.Empty(s, release.Heir)
				}
			})
			inElection(t, func(o *Options) { o.Election.RetryInterval = electionTTL }, func(s *election) {
				answer := make(chan error, 10)
				s.run(func(ctx context.Context, _ Term) error {
					answer <- s.Transfer(ctx, "other") // whose context ends with the term
					return ctx.Err()
				})
				synctest.Wait()
				test.end(s)
				err := <-answer
				require.ErrorIs(s, err, ErrNotLeader, "inside leader work")
				require.ErrorIs(s, err, test.want)
				require.NotContains(s, err.Error(), "goes on")
			})
		})
	}
}

// canStandStill has the loop stand still once stands is closed, in a turn that has taken its
// inputs, until goesOn is. It comes before run.
func (s *election) canStandStill() (stands, goesOn chan struct{}) {
	stands, goesOn = make(chan struct{}), make(chan struct{})
	waits := stands
	s.loop.stuck = func() error {
		select {
		case <-waits:
			waits = nil
			<-goesOn
		default:
		}
		return nil
	}
	return stands, goesOn
}

// TestTransferOfATermThatEndsUnnoticed: the context of the term ends by itself, before the loop has
// said what has become of the transfer. The call waits for that.
func TestTransferOfATermThatEndsUnnoticed(t *testing.T) {
	inElection(t, nil, func(s *election) {
		stands, goesOn := s.canStandStill()
		answer := make(chan error, 1)
		s.run(func(ctx context.Context, _ Term) error {
			answer <- s.Transfer(ctx, "other")
			return ctx.Err()
		})
		close(stands)
		s.loop.inputs.nudge()
		s.pass(electionTTL)
		require.False(s, s.IsLeader())
		require.Empty(s, answer)
		close(goesOn)
		err := <-answer
		require.ErrorIs(s, err, ErrNotLeader)
		require.ErrorIs(s, err, ErrExpired)
	})
}

// TestTransferOutlivesItsCaller: a context that is done ends the wait, not the transfer.
func TestTransferOutlivesItsCaller(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		ctx, cancel := context.WithCancelCause(context.Background())
		answer := s.transferring(ctx, "other")
		cancel(errBroken)
		require.ErrorIs(s, <-answer, errBroken)
		again, cancelAgain := context.WithCancelCause(context.Background())
		answer = s.transferring(again, "other")
		s.store.ready = "other"
		s.at(100 * time.Millisecond)
		s.hint(store.Hint{Type: store.HintReady})
		synctest.Wait()
		require.False(s, s.IsLeader())
		cancelAgain(errBroken)
		require.ErrorIs(s, <-answer, errBroken, "while the work drains")
		s.pass(time.Second)
		require.Equal(s, "other", s.store.made("release")[0].Heir)
	})
}

// TestTransferWhoseEndIsNotKnown: the work does not return, or the release has no answer.
func TestTransferWhoseEndIsNotKnown(t *testing.T) {
	for name, test := range map[string]struct {
		drain time.Duration
		fate  fate
		want  error
	}{
		"work that does not return":    {electionTTL, fate{}, ErrDrainTimeout},
		"a release without an answer":  {0, fate{hang: true}, ErrUnreachable},
		"a release that gets an error": {0, fate{err: errNetwork}, ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.store.on(on("release", test.fate))
				s.store.ready = "other"
				s.run(s.honest(test.drain))
				require.ErrorIs(s, s.Transfer(context.Background(), "other"), test.want)
				require.Equal(s, "transferred", s.told(EventTermEnded)[0].Reason)
			})
		})
	}
}

// TestTransferInsideLeaderWork returns when the term ends, so that the work can.
func TestTransferInsideLeaderWork(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.ready = "other"
		var got error
		var took time.Duration
		s.run(func(ctx context.Context, _ Term) error {
			if took > 0 { // the next term
				return nil
			}
			got = s.Transfer(ctx, "gone")
			require.NoError(s, s.Transfer(ctx, "other"))
			took = s.now()
			require.ErrorIs(s, context.Cause(ctx), ErrResigned)
			require.ErrorIs(s, s.Transfer(ctx, "other"), ErrNotLeader, "of a term that is over")
			return nil
		})
		s.at(electionRetry + electionTTL)
		require.Less(s, took, electionRetry+2*(electionTTL/3)+100*time.Millisecond)
		require.ErrorIs(s, got, ErrNotReady)
		require.Equal(s, "other", s.store.made("release")[0].Heir)
	})
}

// TestTransferInTheTurnThatEndsTheTerm: a call that the loop takes together with the answer that
// ends the term for a transfer to the same instance has got what it asked for, inside leader work
// too.
func TestTransferInTheTurnThatEndsTheTerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		const slow = 50 * time.Millisecond
		s.store.on(func(c storeCall) fate {
			if c.op == "renew" && c.number > 1 { // the first one brings the offer
				return fate{back: slow}
			}
			return fate{}
		})
		stands, goesOn := s.canStandStill()
		calls, inside := make(chan string), make(chan error)
		s.run(func(ctx context.Context, _ Term) error {
			if to, ok := <-calls; ok {
				inside <- s.Transfer(ctx, to)
			}
			return nil
		})
		defer close(calls)
		first := s.transferring(context.Background(), "other")
		s.pass(time.Second)
		s.store.ready = "other"
		s.hint(store.Hint{Type: store.HintReady})
		synctest.Wait()
		close(stands)
		s.loop.inputs.nudge()
		s.pass(2 * slow) // the answer is there, and the loop stands still
		require.True(s, s.IsLeader())
		second := s.transferring(context.Background(), "other")
		third := s.transferring(context.Background(), "third")
		calls <- "other"
		synctest.Wait()
		close(goesOn)
		require.NoError(s, <-inside)
		require.NoError(s, <-first)
		require.NoError(s, <-second)
		require.ErrorIs(s, <-third, ErrNotLeader)
	})
}

// TestTransferReturnsAfterTheEndOfTheContext: the loop answers the call before it cancels the
// context, and work that goes on in between would take its term for one that goes on.
func TestTransferReturnsAfterTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(context.Background())
		term := &liveTerm{ctx: ctx, released: make(chan struct{})}
		call := transferCall{begun: make(chan error, 1)}
		call.begun <- nil
		var returned atomic.Bool
		go func() {
			assert.NoError(t, (*Elector)(nil).awaitTransfer(ctx, term, call, true))
			returned.Store(true)
		}()
		synctest.Wait()
		require.False(t, returned.Load())
		end(ErrResigned)
		synctest.Wait()
		require.True(t, returned.Load())
	})
}

// TestHintsOfTransfersInTheLoop: named wakes this instance, and what is reserved for another lets
// it sleep.
func TestHintsOfTransfersInTheLoop(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.hold("other", time.Hour)
		s.run()
		s.at(time.Second)
		asks := func() int { synctest.Wait(); return len(s.store.made("acquire")) }
		require.Equal(s, 1, asks())
		s.hint(store.Hint{Type: store.HintNamed, Subject: "third"})
		s.hint(store.Hint{Type: store.HintVacant, Subject: "third", Wait: 2000})
		require.Equal(s, 1, asks())
		s.at(3*time.Second - 1)
		require.Equal(s, 1, asks())
		s.at(3*time.Second + 5*time.Millisecond)
		require.Equal(s, 2, asks(), "when the reservation is over")
		s.at(4 * time.Second)
		s.hint(store.Hint{Type: store.HintNamed, Subject: "me"})
		require.Equal(s, 3, asks())
		s.at(5 * time.Second)
		s.hint(store.Hint{Type: store.HintVacant, Subject: "me", Wait: 2000})
		require.Equal(s, 4, asks())
		s.store.on(on("acquire", fate{answer: &store.LeaseReply{
			Answer: lease.Answer{Verdict: lease.Held, Now: 1_000_000_000_000, TTL: electionTTL, Wait: time.Second, Origin: "origin"}, Reason: "reserved",
		}}))
		s.at(6 * time.Second)
		s.hint(store.Hint{Type: store.HintVacant})
		require.Equal(s, 5, asks())
		require.Equal(s, WaitReserved, s.Status().Waiting)
	})
}

// TestTransferInACluster: the named one leads within a few round trips, whoever else is there.
func TestTransferInACluster(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var members []*instance
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			members = append(members, c.member(name).start())
		}
		leader := func() *instance {
			for _, m := range members {
				if m.IsLeader() {
					return m
				}
			}
			return nil
		}
		c.until(time.Minute, func() bool { return leader() != nil })
		for i := range 20 {
			from, to := leader(), members[i%len(members)]
			token := from.Elector().Status().Token
			require.NoError(c, from.Elector().Transfer(context.Background(), to.name))
			c.until(100*time.Millisecond, func() bool { return leader() != nil })
			require.Equal(c, to.name, leader().name)
			if from != to {
				require.Greater(c, leader().Elector().Status().Token, token)
			}
			c.pass(3 * time.Second)
		}
		from := leader()
		for _, m := range members {
			if m != from {
				m.crash()
				require.ErrorIs(c, from.Elector().Transfer(context.Background(), m.name), ErrNotReady)
				require.True(c, from.IsLeader())
				break
			}
		}
	})
}

// TestFormerLeaderLeadsAgain: after a transfer it does not stand back, and does not keep an heir of
// a lower priority waiting. If the heir resigns as soon as it leads, the former leader has the lead
// back at once; if the heir dies while the work drains, when the reservation is over.
func TestFormerLeaderLeadsAgain(t *testing.T) {
	for _, dies := range []bool{false, true} {
		inCluster(t, func(c *cluster) {
			a, b := c.preferring("a", 5, 0), c.member("b")
			resigns := func(context.Context, Term) error { return ErrResigned }
			a.start(func(ctx context.Context, _ Term) error {
				<-ctx.Done()
				if dies {
					c.net.Crash("b")
				}
				return nil
			})
			c.until(time.Minute, a.IsLeader)
			b.start(resigns)
			c.pass(2 * time.Second)
			began := c.now()
			require.NoError(c, a.Elector().Transfer(context.Background(), "b"))
			require.Less(c, c.now()-began, 100*time.Millisecond)
			c.pass(10 * time.Millisecond)
			require.NotEqual(c, WaitPenalty, a.Elector().Status().Waiting)
			bound := 100 * time.Millisecond
			if dies {
				c.pass(100 * time.Millisecond)
				require.Equal(c, WaitReserved, a.Elector().Status().Waiting)
				bound = 10*time.Second/3 + 100*time.Millisecond
			}
			took := c.until(time.Minute, a.IsLeader)
			require.Less(c, took, bound)
			if dies {
				require.Greater(c, took, 3*time.Second, "the lease is reserved")
			}
		})
	}
}

// TestTransferAfterOneThatCameToNothing: the loop stands still for a moment, and finds at once that
// the first transfer was not taken up and that a second is asked for. Both are answered.
func TestTransferAfterOneThatCameToNothing(t *testing.T) {
	inElection(t, nil, func(s *election) {
		var pause atomic.Int64
		s.loop.stuck = func() error { time.Sleep(time.Duration(pause.Swap(0))); return nil }
		s.run(s.honest(0))
		s.at(time.Second)
		first := s.transferring(context.Background(), "x")
		ends := time.Second + electionRetry + 2*(electionTTL/3)
		s.at(ends - 200*time.Millisecond)
		s.store.on(func(c storeCall) fate { // a renewal that is answered with an error meanwhile
			if c.op == "renew" && c.at > ends-200*time.Millisecond-1 && c.at < ends {
				return fate{back: ends + 20*time.Millisecond - c.at, err: errNetwork}
			}
			return fate{}
		})
		s.hint(store.Hint{Type: store.HintRollCall})
		s.at(ends - 10*time.Millisecond)
		pause.Store(int64(50 * time.Millisecond))
		s.loop.inputs.nudge()
		s.at(ends + 30*time.Millisecond)
		second := s.transferring(context.Background(), "y")
		s.pass(time.Minute)
		require.True(s, s.IsLeader())
		for _, answer := range []<-chan error{first, second} {
			require.Len(s, answer, 1, "it has no answer a minute after its bound")
			require.ErrorIs(s, <-answer, ErrNotReady)
		}
		require.Len(s, s.told(EventTransferFailed), 2)
	})
}

// TestTransferToTheBest: whoever may lead is called, and the best of those that ask is given the
// lead; one that may not lead never is. Without anybody the term goes on.
func TestTransferToTheBest(t *testing.T) {
	inCluster(t, func(c *cluster) {
		leader := c.member("leader").start()
		c.until(time.Minute, func() bool { return leader.IsLeader() })
		began := c.now()
		err := leader.Elector().Transfer(context.Background(), "")
		require.ErrorIs(c, err, ErrNotReady)
		require.ErrorContains(c, err, "no other instance")
		require.InDelta(c, 5*time.Second+20*time.Second/3, c.now()-began, float64(10*time.Millisecond))
		require.True(c, leader.IsLeader())
		require.Empty(c, leader.witness.told(EventTransferOffered))
		failed := leader.witness.told(EventTransferFailed)
		require.Len(c, failed, 1)
		require.Empty(c, failed[0].Subject)

		barred := c.member("barred", func(o *Options) { o.Election.Ineligible = true }).start()
		one, two := c.member("one").start(), c.member("two").start()
		c.pass(time.Minute)
		require.NoError(c, two.Drain(context.Background()))
		began = c.now()
		done := make(chan error, 1)
		go func() { done <- leader.Elector().Transfer(context.Background(), "") }()
		c.pass(100 * time.Millisecond)
		require.Empty(c, leader.Elector().Status().TransferringTo, "those that can lead have a moment to ask")
		require.ErrorIs(c, leader.Elector().Transfer(context.Background(), "one"), ErrTransferring)
		require.NoError(c, <-done)
		require.Less(c, c.now()-began, 400*time.Millisecond)
		c.until(100*time.Millisecond, func() bool { return one.IsLeader() })
		require.Equal(c, "one", leader.witness.told(EventTransferOffered)[0].Subject)

		two.Undrain()
		top := c.preferring("top", 5, 0).start()
		c.pass(time.Minute)
		require.NoError(c, c.control("admin").Transfer(context.Background(), "", ""))
		c.until(100*time.Millisecond, func() bool { return top.IsLeader() })
		require.False(c, barred.IsLeader())

		top.crash() // it was the best, and is not asked whether it still is
		c.until(time.Minute, func() bool { return c.leader() != nil })
		next := c.preferring("next", 3, 0).start()
		dead := c.preferring("dead", 9, 0).start()
		c.pass(10 * time.Second)
		dead.crash()
		require.NoError(c, c.leader().Elector().Transfer(context.Background(), ""))
		c.until(100*time.Millisecond, func() bool { return next.IsLeader() })
	})
}

// TestTransferToOneThatHasResigned: an open offer calls it too, as one that names it does.
func TestTransferToOneThatHasResigned(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.until(time.Minute, a.IsLeader)
		b := c.member("b").start()
		c.pass(time.Minute)
		require.NoError(c, a.Elector().Resign(context.Background()))
		c.until(time.Second, b.IsLeader)
		c.pass(time.Second)
		require.Equal(c, WaitPenalty, a.Elector().Status().Waiting, "it stands back")
		began := c.now()
		require.NoError(c, b.Elector().Transfer(context.Background(), ""))
		require.Less(c, c.now()-began, 400*time.Millisecond)
		c.until(100*time.Millisecond, a.IsLeader)
	})
}

// TestCallsOfATransfer: a call waits for the transfer that it asks for, of its own term, and what
// was said to it counts, though the loop has ended since.
func TestCallsOfATransfer(t *testing.T) {
	on := transfer{asked: "b", token: 7}
	require.False(t, on.join(transferCall{to: "c", token: 7}))
	require.False(t, on.join(transferCall{to: "b", token: 8}), "it is meant for a later term")
	require.True(t, on.join(transferCall{to: "b", token: 7}))
	require.Len(t, on.calls, 1)

	was := lastTransfer{token: 7, asked: lease.Anyone, to: "b"}
	require.True(t, was.serves(transferCall{to: lease.Anyone, token: 7}))
	require.True(t, was.serves(transferCall{to: "b", token: 7}), "the best candidate was that one")
	require.False(t, was.serves(transferCall{to: "c", token: 7}))
	require.False(t, was.serves(transferCall{to: "b", token: 8}))

	over := make(chan struct{})
	close(over)
	call := transferCall{begun: make(chan error, 1)}
	require.ErrorIs(t, call.answer(over), ErrNotLeader)
	for range 100 { // a select takes either
		call.begun <- nil
		require.NoError(t, call.answer(over))
	}
}
