package tenure

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// preferring is a member with a priority.
func (c *cluster) preferring(name string, priority int, preempt time.Duration) *instance {
	return c.member(name, func(o *Options) { o.Election.Priority, o.Election.Preempt = priority, preempt })
}

// leader is who leads; nil: nobody.
func (c *cluster) leader() *instance {
	for _, m := range c.members {
		if m.IsLeader() {
			return m
		}
	}
	return nil
}

// TestPriority: in each vacancy the best candidate that asks comes to lead, and no sooner: not
// because it joins.
func TestPriority(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.preferring("low", -1, 0).start()
		c.until(time.Minute, func() bool { return c.leader() != nil })
		for _, name := range []string{"a", "b", "c"} {
			c.preferring(name, 0, 0).start()
		}
		top, second := c.preferring("top", 5, 0).start(), c.preferring("second", 3, 0).start()
		c.pass(2 * time.Minute)
		require.Equal(c, "low", c.leader().name, "nobody takes over because a better one joins")
		require.NoError(c, c.leader().Elector().Resign(context.Background()))
		took := c.until(time.Minute, func() bool { return c.leader() != nil })
		require.Equal(c, "top", c.leader().name)
		require.Less(c, took, 100*time.Millisecond, "it was called")
		c.pass(20 * time.Second)
		top.crash()
		took = c.until(time.Minute, func() bool { return c.leader() != nil })
		require.Equal(c, "second", c.leader().name)
		require.Less(c, took, 10*time.Second+100*time.Millisecond, "no later than without priorities")
		c.pass(20 * time.Second)
		second.crash()
		c.until(time.Minute, func() bool { return c.leader() != nil })
		require.Contains(c, []string{"a", "b", "c"}, c.leader().name, "low comes last")
	})
}

// TestBestThatDoesNotCome costs a slice, whoever else is there: then anyone leads.
func TestBestThatDoesNotCome(t *testing.T) {
	inCluster(t, func(c *cluster) {
		leader := c.preferring("leader", 0, 0).start()
		c.until(time.Minute, func() bool { return leader.IsLeader() })
		other, top := c.preferring("other", 0, 0).start(), c.preferring("top", 5, 0).start()
		c.pass(20 * time.Second)
		top.crash()
		require.NoError(c, leader.Elector().Resign(context.Background()))
		waits := false
		took := c.until(time.Minute, func() bool {
			waits = waits || other.Elector().Status().Waiting == WaitYield
			return c.leader() != nil
		})
		require.Equal(c, "other", c.leader().name)
		require.True(c, waits)
		slice := other.Elector().Guarantees().Yield
		require.Equal(c, time.Second, slice)
		require.InDelta(c, slice, took, float64(50*time.Millisecond))
	})
}

// TestPreemptInACluster: a leader gives way to a better candidate that has been there for long,
// once.
func TestPreemptInACluster(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const patience = 30 * time.Second
		leader := c.preferring("leader", 1, patience).start()
		c.until(time.Minute, func() bool { return leader.IsLeader() })
		c.pass(2 * time.Minute)
		top := c.preferring("top", 5, patience).start()
		joined := c.now()
		c.until(5*time.Minute, func() bool { return c.leader() != nil && c.leader() == top })
		require.GreaterOrEqual(c, c.now()-joined, patience)
		require.Less(c, c.now()-joined, patience+15*time.Second)
		offered := leader.witness.told(EventTransferOffered)
		require.Len(c, offered, 1)
		require.Equal(c, "top", offered[0].Subject)
		require.Equal(c, "transferred", leader.witness.told(EventTermEnded)[0].Reason)
		token := top.Elector().Status().Token
		c.pass(10 * time.Minute)
		require.Equal(c, token, top.Elector().Status().Token)
	})
}

// TestPriorityIsChecked: it travels with each request.
func TestPriorityIsChecked(t *testing.T) {
	for priority, fits := range map[int]bool{0: true, -1000: true, 1000: true, -1001: false, 1001: false} {
		_, err := NewStandalone(Options{Namespace: "ns", Election: ElectionOptions{Priority: priority}})
		if fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrMisconfigured)
			require.ErrorContains(t, err, "Election.Priority")
		}
	}
}

// rollingDeploy replaces five instances of version 1 by five of version 2, one by one, and returns
// how often another one came to lead. Each step stops the leader if that is an old one, as the
// worst order would. If surge, an instance of the new version is there before an old one is
// stopped.
func (c *cluster) rollingDeploy(surge bool, version string) (changes int) {
	began := func() (n int) {
		for _, m := range c.members {
			n += len(m.witness.told(EventTermBegan))
		}
		return n
	}
	run := func(name, version string) *instance {
		m := c.member(name, func(o *Options) { o.Registry.Version = version }).start()
		c.pass(2 * time.Second)
		return m
	}
	var old []*instance
	for i := range 5 {
		old = append(old, run(fmt.Sprint("old-", i), "1.0"))
	}
	c.until(time.Minute, func() bool { return c.leader() != nil })
	c.pass(time.Minute)
	before := began()
	for i := range 5 {
		if surge {
			run(fmt.Sprint("new-", i), version)
		}
		at := max(slices.IndexFunc(old, func(m *instance) bool { return m.IsLeader() }), 0)
		took, err := old[at].stop()
		require.NoError(c, err)
		require.Less(c, took, 50*time.Millisecond, "a stop does not wait for the next leader")
		old = slices.Delete(old, at, at+1)
		if !surge {
			run(fmt.Sprint("new-", i), version)
		}
		took = c.until(time.Second, func() bool { return c.leader() != nil })
		require.Less(c, took, 50*time.Millisecond)
	}
	require.Contains(c, c.leader().name, "new-")
	return began() - before
}

// TestRollingDeploy costs one change of the leader if an instance of the new version is there
// whenever an old one stops, and else two: what leads is left to the new version.
func TestRollingDeploy(t *testing.T) {
	for name, tt := range map[string]struct {
		surge bool
		most  int
	}{"new ones first": {true, 1}, "old ones first": {false, 2}} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) { require.Equal(c, tt.most, c.rollingDeploy(tt.surge, "2.0")) })
		})
	}
}

// comparison is an address book that knows by how much this process is newer than its leader.
type comparison struct{ by atomic.Int64 }

func (*comparison) known(string) string                 { return "" }
func (*comparison) read(context.Context, string) string { return "" }
func (*comparison) leaderChanged()                      {}
func (b *comparison) newer(string) time.Duration        { return time.Duration(b.by.Load()) }

// TestNewerAsksAtOnce: a candidate that has found out that it is newer than the leader does not
// wait for its next turn, and says so from then on; another leader is compared anew.
func TestNewerAsksAtOnce(t *testing.T) {
	inElection(t, nil, func(s *election) {
		book := &comparison{}
		s.loop.addresses = book
		s.store.hold("old", time.Hour)
		s.run()
		s.at(time.Second)
		require.Len(s, s.store.made("acquire"), 1)
		book.by.Store(int64(90 * time.Second))
		s.loop.inputs.nudge()
		synctest.Wait()
		asked := s.store.made("acquire")
		require.Len(s, asked, 2)
		require.Zero(s, asked[0].Rank)
		require.Equal(s, lease.Preference{Newer: 90 * time.Second}.Rank(), asked[1].Rank)
		book.by.Store(0)
		s.loop.inputs.nudge()
		synctest.Wait()
		require.Len(s, s.store.made("acquire"), 2, "there is time")
		s.pass(electionRetry)
		require.Zero(s, s.store.made("acquire")[2].Rank)
	})
}

// TestNewerIsKnownSoon: a few round trips after the start of a new version Redis knows that it
// asks.
func TestNewerIsKnownSoon(t *testing.T) {
	inCluster(t, func(c *cluster) {
		leader := c.member("old", func(o *Options) { o.Registry.Version = "1" }).start()
		c.until(time.Minute, func() bool { return leader.IsLeader() })
		c.pass(time.Minute)
		c.member("new", func(o *Options) {
			o.Registry.Version = "2"
			o.random = func() float64 { return 0.99 }
		}).start()
		c.pass(100 * time.Millisecond)
		best := ""
		c.redis.Do(func(m *miniredis.Miniredis) { best = m.HGet("tenure:leader:term", "best") })
		require.Equal(c, "new", best)
	})
}

// TestRepeatedAcquireOfTheLeader: the client's own retry of a request that was granted arrives
// late. It does not make the leader the best candidate for its own succession: a hand-over takes
// milliseconds.
func TestRepeatedAcquireOfTheLeader(t *testing.T) {
	inCluster(t, func(c *cluster) {
		b := c.preferring("b", 10, 0).start()
		c.until(time.Minute, b.IsLeader)
		c.preferring("a", 0, 0).start()
		c.pass(time.Second)
		nonce := ""
		c.redis.Do(func(m *miniredis.Miniredis) { nonce = m.HGet("tenure:leader:term", "nonce") })
		reply, err := b.Elector().loop.store.Acquire(background, lease.Request{
			Kind: lease.Acquire, Nonce: nonce, Rank: lease.Preference{Priority: 10}.Rank(), HoldOff: 10 * time.Second, Slice: time.Second, Counts: 11 * time.Second, Sent: readClock(), Bound: 3 * time.Second,
		})
		require.NoError(c, err)
		require.Equal(c, lease.Won, reply.Verdict)
		require.NoError(c, b.Elector().Resign(background))
		require.Less(c, c.until(time.Minute, func() bool { return c.leader() != nil }), 200*time.Millisecond)
		require.Equal(c, "a", c.leader().name)
	})
}

// TestTransferJoinsAPreemption: a call of Transfer to the instance that the loop has just offered
// the lease to by itself is the same transfer, though it came in between.
func TestTransferJoinsAPreemption(t *testing.T) {
	inElection(t, func(o *Options) { o.Election.Preempt = 2 * electionTTL }, func(s *election) {
		var pause atomic.Int64
		s.loop.stuck = func() error { time.Sleep(time.Duration(pause.Swap(0))); return nil }
		s.run(s.honest(0))
		var first, renewals atomic.Int64
		s.store.on(func(c storeCall) fate {
			if c.op != "renew" {
				return fate{}
			}
			first.CompareAndSwap(0, int64(c.at))
			renewals.Add(1)
			return fate{back: 20 * time.Millisecond, answer: &store.LeaseReply{Holder: "me", Answer: lease.Answer{
				Verdict: lease.Kept, Now: 1_000_000_000_000 + c.at.Milliseconds(), Token: 1, TTL: electionTTL, Origin: "origin", Best: "b", BestIs: 5,
			}}}
		})
		s.until(time.Minute, func() bool { return first.Load() > 0 && s.now()-time.Duration(first.Load()) >= 2*electionTTL })
		before := renewals.Load()
		s.until(time.Minute, func() bool { return renewals.Load() > before || s.Status().TransferringTo != "" })
		require.Empty(s, s.Status().TransferringTo)
		pause.Store(int64(40 * time.Millisecond)) // the loop stands still while the renewal is under way
		s.loop.inputs.nudge()
		s.pass(30 * time.Millisecond)
		answer := make(chan error, 1)
		go func() { answer <- s.Transfer(background, "b") }() // ends with the transfer
		s.pass(20 * time.Millisecond)
		require.Equal(s, "b", s.Status().TransferringTo)
		select {
		case err := <-answer:
			require.NotErrorIs(s, err, ErrTransferring)
		default:
		}
	})
}
