package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
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

// TestPreemptByOneThatFails: a leader whose work is sound gives way to a better candidate whose
// work fails less and less often.
func TestPreemptByOneThatFails(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const patience = 20 * time.Second
		sound := c.preferring("sound", 0, patience).start()
		c.until(time.Minute, func() bool { return sound.IsLeader() })
		var mended atomic.Bool
		better := c.preferring("better", 1, patience).start(func(ctx context.Context, _ Term) error {
			if !mended.Load() {
				return errors.New("broken")
			}
			<-ctx.Done()
			return nil
		})
		c.pass(10 * time.Minute)
		require.LessOrEqual(c, transfers(sound), 6, "after 20 s, and then after 20 s and 30 s, 1 min, 2, 4, 8, 10, 10 …")
		require.GreaterOrEqual(c, transfers(sound), 4)
		require.True(c, sound.IsLeader())
		mended.Store(true)
		c.pass(12 * time.Minute)
		require.True(c, better.IsLeader())
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
func (*comparison) leaderChanged(string, string)        {}
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
// asks, whether its first heartbeat is answered before the leader's record is read or after that.
func TestNewerIsKnownSoon(t *testing.T) {
	for _, late := range []tardy{{record: 20 * time.Millisecond}, {beat: 20 * time.Millisecond}} {
		inCluster(t, func(c *cluster) {
			leader := c.member("old", func(o *Options) { o.Registry.Version = "1" }).start()
			c.until(time.Minute, func() bool { return leader.IsLeader() })
			c.pass(time.Minute)
			newer := c.member("new", func(o *Options) {
				o.Registry.Version = "2"
				o.random = func() float64 { return 0.99 }
			})
			late.Registry = newer.Registry().store
			newer.Registry().store = &late
			newer.start()
			c.pass(100 * time.Millisecond)
			best := ""
			c.redis.Do(func(m *miniredis.Miniredis) { best = m.HGet("tenure:leader:term", "best") })
			require.Equal(c, "new", best)
		})
	}
}

// tardy is a registry's store that answers late.
type tardy struct {
	store.Registry
	beat, record time.Duration // what a heartbeat, and the record of an instance, wait for
}

func (s *tardy) Heartbeat(ctx context.Context, h store.Heartbeat) (store.HeartbeatReply, error) {
	time.Sleep(s.beat)
	return s.Registry.Heartbeat(ctx, h)
}

func (s *tardy) Instance(ctx context.Context, id string) (store.Entry, int64, error) {
	time.Sleep(s.record)
	return s.Registry.Instance(ctx, id)
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

// TestTransferToALesserCandidate: the vacancy is left to the heir alone, who does not wait in it
// for a better candidate, which may not lead in it.
func TestTransferToALesserCandidate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		leader := c.preferring("leader", 1, 0).start()
		c.until(time.Minute, func() bool { return leader.IsLeader() })
		c.preferring("top", 5, 0).start()
		low := c.preferring("low", 0, 0).start()
		c.pass(20 * time.Second)
		require.NoError(c, leader.Elector().Transfer(context.Background(), "low"))
		took := c.until(time.Minute, func() bool { return c.leader() != nil })
		require.True(c, low.IsLeader())
		require.Less(c, took, 20*time.Millisecond+10*time.Millisecond, "Guarantees.HandOver and a round trip")
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
				Verdict: lease.Kept, Now: 1_000_000_000_000 + c.at.Milliseconds(), Token: 1, TTL: electionTTL, Origin: "origin", Best: "b", BestIs: lease.Preference{Priority: 1}.Rank(),
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

// TestTransferInsistsOnAPreemption: once somebody has asked for the transfer that the loop has
// begun by itself, the lease goes to that instance, whether it is still the better one or not.
func TestTransferInsistsOnAPreemption(t *testing.T) {
	for _, asked := range []bool{false, true} {
		t.Run(fmt.Sprint("asked: ", asked), func(t *testing.T) {
			inElection(t, func(o *Options) { o.Election.Preempt = 2 * electionTTL }, func(s *election) {
				above := lease.Preference{Priority: 1}.Rank()
				var ready atomic.Bool // b, which is no better any more
				s.store.on(func(c storeCall) fate {
					if c.op != "renew" {
						return fate{}
					}
					answer := lease.Answer{Verdict: lease.Kept, Now: 1_000_000_000_000 + c.at.Milliseconds(), Token: 1, TTL: electionTTL, Origin: "origin", Best: "b", BestIs: above}
					if ready.Load() {
						answer.Ready, answer.Best, answer.BestIs = c.Heir == "b", "", 0
					}
					return fate{answer: &store.LeaseReply{Holder: "me", Answer: answer}}
				})
				s.run(s.honest(0))
				s.until(time.Minute, func() bool { return s.Status().TransferringTo == "b" })
				answer := make(chan error, 1)
				if asked {
					go func() { answer <- s.Transfer(background, "b") }() // ends with the transfer
					s.pass(0)
				}
				ready.Store(true)
				s.hint(store.Hint{Type: store.HintReady})
				s.pass(time.Second)
				if !asked {
					failed := s.told(EventTransferFailed)
					require.Len(s, failed, 1)
					require.Equal(s, "preempt", failed[0].Reason, "nobody has asked for it")
					require.Equal(s, "preempt", s.told(EventTransferOffered)[0].Reason)
					require.Empty(s, s.told(EventTermEnded))
					return
				}
				require.NoError(s, <-answer)
				require.Len(s, s.told(EventTermEnded), 1)
			})
		})
	}
}

// sharing is a member with that many roles that are spread, beside a default one that is not its.
func (c *cluster) sharing(name string, roles int, change ...func(*ElectionOptions)) *instance {
	m := c.member(name, func(o *Options) { o.Election.Ineligible = true })
	for i := range roles {
		opts := ElectionOptions{LeaseTTL: 10 * time.Second, Spread: true}
		for _, change := range change {
			change(&opts)
		}
		_, err := m.AddRole(fmt.Sprint("shard-", i), opts)
		require.NoError(c, err)
	}
	return m
}

// loads are how many roles each of these members leads, the least first.
func loads(members ...*instance) (led []int) {
	for _, m := range members {
		led = append(led, len(m.leading(nil)))
	}
	slices.Sort(led)
	return led
}

// transfers is how many terms have ended for another.
func transfers(members ...*instance) (n int) {
	for _, m := range members {
		for _, e := range m.witness.told(EventTermEnded) {
			if e.Reason == "transferred" {
				n++
			}
		}
	}
	return n
}

// TestSpread: roles that one process leads, since it was there first, go to others one by one,
// until no process leads two more than another, and then they stay. What a dead process led is
// shared out too, and it gets its share when it comes back.
func TestSpread(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const roles, preempt = 5, 20 * time.Second
		first := c.sharing("first", roles).start()
		c.until(time.Minute, func() bool { return slices.Equal(loads(first), []int{roles}) })
		second, third := c.sharing("second", roles).start(), c.sharing("third", roles).start()
		began := c.now()
		even := func(members ...*instance) bool {
			led := loads(members...)
			sum := 0
			for _, n := range led {
				sum += n
			}
			return sum == roles && led[len(led)-1]-led[0] <= 1
		}
		settle := func(bound time.Duration, members ...*instance) {
			for end := c.now() + bound; !even(members...); c.pass(200 * time.Millisecond) {
				require.Less(c, c.now(), end, "%v", loads(members...))
			}
		}
		settle(5*preempt, first, second, third)
		require.GreaterOrEqual(c, c.now()-began, 3*preempt, "one at a time, the last is the third")
		require.Equal(c, 3, transfers(c.members...))
		c.pass(2 * time.Minute)
		require.Equal(c, 3, transfers(c.members...), "nothing moves any more")
		require.True(c, even(first, second, third))

		second.crash()
		settle(2*time.Minute, first, third)
		again := c.sharing("again", roles).start()
		settle(3*time.Minute, first, third, again)
	})
}

// TestSpreadOfMany: a process that leads many roles more than another hands over a part of them
// within each Preempt, and none that comes back.
func TestSpreadOfMany(t *testing.T) {
	if simnet.Race {
		t.Skip("minutes of many roles: `make test` runs it without the race detector")
	}
	inCluster(t, func(c *cluster) {
		const roles, preempt = 32, 20 * time.Second
		first := c.sharing("first", roles).start()
		c.until(time.Minute, func() bool { return slices.Equal(loads(first), []int{roles}) })
		second := c.sharing("second", roles).start()
		c.until(12*preempt, func() bool { return slices.Equal(loads(first, second), []int{roles / 2, roles / 2}) }) // one by one they would take 17
		c.pass(3 * preempt)
		require.Equal(c, roles/2, transfers(first, second), "as many as are needed")
	})
}

// TestSpreadWhileWorkDrains: a role that is about to come counts as one that the process leads.
// Else others go on giving it roles while the first ones drain, and it gives them back.
func TestSpreadWhileWorkDrains(t *testing.T) {
	if simnet.Race {
		t.Skip("twenty minutes of many roles: `make test` runs it without the race detector")
	}
	for name, tt := range map[string]struct {
		first, roles int           // so many processes share so many roles
		drain        time.Duration // of the work of each
		moves        int           // that it takes until the last process has its share
	}{
		"one gives, for longer than Preempt": {first: 1, roles: 6, drain: 90 * time.Second, moves: 3},
		"several give at once":               {first: 4, roles: 8, drain: 8 * time.Second, moves: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				member := func(name string) *instance {
					m := c.member(name, func(o *Options) { o.NoDefaultRole, o.ShutdownTimeout = true, 5*time.Minute })
					for i := range tt.roles {
						_, err := m.AddRole(fmt.Sprint("shard-", i), ElectionOptions{
							LeaseTTL: 10 * time.Second, Spread: true, Lead: []LeadFunc{m.works("work", tt.drain)},
						})
						require.NoError(c, err)
					}
					return m.start()
				}
				var members []*instance
				for i := range tt.first {
					members = append(members, member(fmt.Sprint("first-", i)))
				}
				c.pass(10 * time.Minute)
				share := tt.roles / tt.first
				require.Equal(c, slices.Repeat([]int{share}, tt.first), loads(members...))
				before := transfers(members...)

				members = append(members, member("last"))
				c.pass(10 * time.Minute)
				require.Equal(c, tt.moves, transfers(members...)-before)
				require.Equal(c, tt.moves, loads(members[tt.first])[0])
			})
		})
	}
}

// TestSpreadFromTheStart: roles of processes that start together do not all go to the fastest.
func TestSpreadFromTheStart(t *testing.T) {
	count := map[string]int{}
	for i := range 300 {
		best := slices.MaxFunc([]string{"node-1", "node-2", "node-3"}, func(a, b string) int {
			o := ElectionOptions{Role: fmt.Sprint("shard-", i), Spread: true}
			return o.order(a) - o.order(b)
		})
		count[best]++
	}
	for name, n := range count {
		require.InDelta(t, 100, n, 35, name)
	}
}

// TestByInstanceID: the number at the end decides, as a number.
func TestByInstanceID(t *testing.T) {
	sorted := []string{"db-7-node-0", "node9", "node10", "web-2-node-010x11", "node-997", "node-998"}
	by := ElectionOptions{ByInstanceID: true, Spread: true}
	for i, id := range sorted[1:] {
		require.Less(t, by.order(id), by.order(sorted[i]), id)
	}
	for _, last := range []string{"node", "node-99999", "node-99999999999999999999", "9node"} {
		require.Equal(t, 1, by.order(last), last)
	}
	require.Zero(t, ElectionOptions{}.order("node9"))
	inCluster(t, func(c *cluster) {
		member := func(name string) *instance {
			return c.member(name, func(o *Options) { o.Election.ByInstanceID = true }).start()
		}
		ten := member("node10")
		c.until(time.Minute, func() bool { return ten.IsLeader() })
		member("node11")
		nine := member("node9")
		c.pass(time.Minute)
		require.True(c, ten.IsLeader(), "it decides nothing before there is a vacancy")
		require.NoError(c, ten.Elector().Resign(context.Background()))
		c.until(time.Second, func() bool { return c.leader() != nil })
		require.True(c, nine.IsLeader())
	})
}

// TestDrain: a process that drains says so, hands over every role, and leads nothing, however often
// the others resign, until it is undrained.
func TestDrain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		_, err := a.AddRole("mail", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		a.start(a.works("work", 2*time.Second))
		mail, _ := a.Role("mail")
		c.until(time.Minute, func() bool { return a.IsLeader() && mail.IsLeader() })
		b := c.member("b")
		_, err = b.AddRole("mail", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		b.start()
		c.pass(time.Second)

		began := c.now()
		require.NoError(c, a.Drain(context.Background()))
		require.Equal(c, 2*time.Second, (c.now() - began).Round(time.Second/10), "it waits for the work")
		require.True(c, a.IsDraining())
		require.Equal(c, "draining", a.record())
		c.until(time.Second, func() bool { return b.IsLeader() && c.holder("tenure:leader:mail") == "b" })
		require.Equal(c, []string{"a work leads #1", "a work drained"}, c.noted())
		require.NoError(c, a.Drain(context.Background()), "again")
		require.Equal(c, WaitDraining, a.Elector().Status().Waiting)
		require.True(c, a.Elector().IsEligible(), "the word of the application is another matter")

		late, err := a.AddRole("late", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		require.NoError(c, b.Elector().Resign(context.Background()))
		c.pass(time.Minute)
		require.Equal(c, "b", c.holder("tenure:leader"))
		require.False(c, a.IsLeader() || late.IsLeader())
		require.Equal(c, []string{"drain_began", "drain_done"}, a.told(EventDrainBegan, EventDrainDone, EventDrainEnded))

		a.Undrain()
		a.Undrain()
		require.False(c, a.IsDraining())
		c.until(time.Minute, late.IsLeader)
		c.pass(time.Minute)
		require.Equal(c, "active", a.record())
		require.True(c, b.IsLeader(), "nobody gives way")
		require.NoError(c, b.Elector().Resign(context.Background()))
		c.until(time.Second, a.IsLeader)
		require.Equal(c, []string{"drain_ended"}, a.told(EventDrainEnded))
	})
}

// TestDrainOfTheIneligible: the end of a drain does not make eligible what was not.
func TestDrainOfTheIneligible(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.Ineligible = true })
		require.NoError(c, a.Drain(context.Background()), "before Run")
		a.start()
		c.pass(time.Second)
		require.Equal(c, "draining", a.record(), "from its first heartbeat on")
		a.Undrain()
		c.pass(time.Minute)
		require.Equal(c, "active", a.record())
		require.False(c, a.IsLeader())
		require.Equal(c, WaitIneligible, a.Elector().Status().Waiting)
		a.Elector().SetEligible(true)
		c.until(time.Second, a.IsLeader)
	})
}

// TestDrainLetsTasksFinish: a task that runs when the drain begins comes to its end.
func TestDrainLetsTasksFinish(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		require.NoError(c, a.Tasks().Register(Task{Name: "tidy", Schedule: Every(time.Minute), Run: func(ctx context.Context, _ TaskRun) error {
			select {
			case <-time.After(3 * time.Second):
				c.note("done")
			case <-ctx.Done():
				c.note("cut short")
			}
			return ctx.Err()
		}}))
		a.start()
		c.until(5*time.Minute, func() bool { return len(a.told(EventTaskStarted)) > 0 })
		require.NoError(c, a.Drain(context.Background()))
		require.Equal(c, []string{"done"}, c.noted())
		require.Len(c, a.told(EventTaskFinished), 1)
	})
}

// TestDrainIsBounded by its context, by the work that it is called in, by ShutdownTimeout and by
// the stop of Run.
func TestDrainIsBounded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 10 * time.Second })
		hung := make(chan struct{})
		a.start(func(ctx context.Context, _ Term) error {
			<-ctx.Done()
			<-hung
			return nil
		})
		c.until(time.Minute, a.IsLeader)
		impatient, cancel := context.WithTimeoutCause(context.Background(), time.Second, errBroken)
		defer cancel()
		require.ErrorIs(c, a.Drain(impatient), errBroken)
		require.True(c, a.IsDraining(), "it goes on")
		err := a.Drain(context.Background())
		require.ErrorIs(c, err, ErrDrainTimeout)
		require.ErrorContains(c, err, "leader work")
		require.ErrorIs(c, a.Drain(context.Background()), ErrDrainTimeout, "it still runs")
		done := a.witness.told(EventDrainDone)
		require.Len(c, done, 1)
		require.ErrorIs(c, done[0].Err, ErrDrainTimeout)
		close(hung)
		c.pass(time.Second)
		require.NoError(c, a.Drain(context.Background()))
		_, err = a.stop()
		require.NoError(c, err)
		require.ErrorIs(c, a.Drain(context.Background()), ErrStopped)
		a.Undrain()
		require.True(c, a.IsDraining(), "it has stopped")
	})
}

// TestDrainGoesOnIsSaidOnce, however many roles still drain when a caller waits no longer.
func TestDrainGoesOnIsSaidOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(*Options) {})
		hung := make(chan struct{})
		work := func(context.Context, Term) error { <-hung; return nil }
		var roles []*Elector
		for _, name := range []string{"x", "y"} {
			e, err := a.AddRole(name, ElectionOptions{Lead: []LeadFunc{work}})
			require.NoError(c, err)
			roles = append(roles, e)
		}
		a.start(work)
		c.until(time.Minute, func() bool { return a.IsLeader() && roles[0].IsLeader() && roles[1].IsLeader() })
		impatient, cancel := context.WithTimeoutCause(context.Background(), time.Second, errBroken)
		defer cancel()
		err := a.Drain(impatient)
		require.ErrorIs(c, err, errBroken)
		require.EqualError(c, err, "tenure: the drain goes on: "+errBroken.Error())
		close(hung)
		require.NoError(c, a.Drain(context.Background()))
	})
}

// TestDrainInsideWork: work that drains its own process does not wait for itself.
func TestDrainInsideWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(func(ctx context.Context, _ Term) error {
			c.note("drain: %v", a.Drain(ctx))
			<-ctx.Done()
			return nil
		})
		c.until(time.Minute, func() bool { return a.IsDraining() && c.holder("tenure:leader") == "" })
		require.Equal(c, []string{"drain: <nil>"}, c.noted())
	})
}

// TestDrainInsideWorkOfOneOfTwoRoles: work that drains its process waits for no other role either,
// however it asks. That its own context ends by that is no error; another end of it is one.
func TestDrainInsideWorkOfOneOfTwoRoles(t *testing.T) {
	type asks func(a *instance, ctx context.Context) error
	drain := func(a *instance, ctx context.Context) error { return a.Drain(ctx) }
	control := func(a *instance, ctx context.Context) error { return a.Control().Drain(ctx, "a") }
	over := func(a *instance, ctx context.Context) error {
		ctx, cancel := context.WithCancelCause(ctx)
		cancel(errBroken)
		return a.Drain(ctx)
	}
	nested := func(a *instance, ctx context.Context) error {
		mail, _ := a.Role("mail")
		return mail.Do(ctx, func(ctx context.Context, _ Term) error { return a.Drain(ctx) })
	}
	for name, test := range map[string]struct {
		ask  asks
		task bool
		want error
	}{
		"leader work":                     {ask: drain},
		"leader work by Control":          {ask: control},
		"leader work in Do":               {ask: nested},
		"leader work whose context ended": {ask: over, want: errBroken},
		"task":                            {ask: drain, task: true},
		"task by Control":                 {ask: control, task: true},
		"task in Do":                      {ask: nested, task: true},
		"task whose context ended":        {ask: over, task: true, want: errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a", func(o *Options) { o.ShutdownTimeout = time.Minute })
				_, err := a.AddRole("mail", ElectionOptions{LeaseTTL: 10 * time.Second, Lead: []LeadFunc{a.works("mail", 20*time.Second)}})
				require.NoError(c, err)
				mail, _ := a.Role("mail")
				asked := make(chan error, 1)
				ask := func(ctx context.Context) error {
					asked <- test.ask(a, ctx)
					return nil
				}
				do := make(chan struct{})
				require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), Run: func(ctx context.Context, _ TaskRun) error { return ask(ctx) }}))
				a.start(func(ctx context.Context, _ Term) error {
					select {
					case <-do:
						return ask(ctx)
					case <-ctx.Done():
						return nil
					}
				})
				c.until(time.Minute, func() bool { return a.IsLeader() && mail.IsLeader() })
				c.pass(time.Second)
				if test.task {
					_, err := a.Tasks().Trigger(background, "t")
					require.NoError(c, err)
				} else {
					close(do)
				}
				began := c.now()
				require.ErrorIs(c, <-asked, test.want)
				require.Less(c, c.now()-began, time.Second)
				c.pass(time.Second)
				require.True(c, a.IsDraining())
				require.False(c, a.IsLeader() || mail.IsLeader())
				require.Empty(c, a.told(EventDrainDone), "other work still runs")
				require.NoError(c, a.Drain(background))
				require.Len(c, a.told(EventDrainDone), 1)
				records, err := a.Control().Commands(background, 10)
				require.NoError(c, err)
				for _, r := range records {
					require.Equal(c, "done", r.State, r.Kind)
				}
			})
		})
	}
}

// TestDrainInsideWorkOfAnEndedTerm: to work whose term has ended already, by a drain too, a drain
// of its process has begun: that its context is over is no error.
func TestDrainInsideWorkOfAnEndedTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := begin(background, Term{}, lease.Lease{Sent: readClock(), Life: time.Hour}, func() {})
		term.end(ErrStopped)
		d := &drain{over: make(chan struct{})}
		require.NoError(t, d.from(term.ctx, []*liveTerm{term}))
		ctx, cancel := context.WithCancelCause(context.WithoutCancel(term.ctx))
		cancel(errBroken)
		require.ErrorIs(t, d.from(ctx, []*liveTerm{term}), errBroken, "the caller has given up by itself")
	})
}

// TestDrainInsideWorkEndedMeanwhile: work that drains its process does not wait for the end of a
// term that goes on, since the drain was ended before the term noticed.
func TestDrainInsideWorkEndedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := begin(background, Term{}, lease.Lease{Sent: readClock(), Life: time.Hour}, func() {})
		defer term.end(ErrStopped)
		d := &drain{over: make(chan struct{})}
		ended := make(chan error, 1)
		go func() { ended <- d.from(term.ctx, []*liveTerm{term}) }()
		synctest.Wait()
		require.Empty(t, ended)
		close(d.over)
		synctest.Wait()
		require.Len(t, ended, 1, "it still waits")
		require.NoError(t, <-ended)
	})
}

// TestDrainInsideWorkGivenUp: work that waits no longer for the end of its term hears why.
func TestDrainInsideWorkGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := begin(background, Term{}, lease.Lease{Sent: readClock(), Life: time.Hour}, func() {})
		defer term.end(ErrStopped)
		d := &drain{over: make(chan struct{})}
		ctx, cancel := context.WithTimeoutCause(term.ctx, time.Second, errBroken)
		defer cancel()
		require.ErrorIs(t, d.from(ctx, []*liveTerm{term}), errBroken)
	})
}

// TestDrainInsideATaskWhoseContextEndsWithTheTerm: a task may join its context with that of the
// term, which a drain ends first, while the tasks go on.
func TestDrainInsideATaskWhoseContextEndsWithTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := begin(background, Term{}, lease.Lease{Sent: readClock(), Life: time.Hour}, func() {})
		defer term.end(ErrStopped)
		d := &drain{over: make(chan struct{})}
		ctx, cancel := context.WithCancelCause(term.tasks.ctx)
		defer context.AfterFunc(term.ctx, func() { cancel(context.Cause(term.ctx)) })()
		term.retire(ErrResigned)
		synctest.Wait()
		require.NoError(t, term.tasks.ctx.Err())
		require.NoError(t, d.from(ctx, []*liveTerm{term.tasks}))
		other, leave := context.WithCancelCause(term.tasks.ctx)
		leave(errBroken)
		require.ErrorIs(t, d.from(other, []*liveTerm{term.tasks}), errBroken)
	})
}

// TestDrainEndedMeanwhile: who waits for a drain that somebody ends does not wait for ever.
func TestDrainEndedMeanwhile(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(a.works("work", 5*time.Second))
		c.until(time.Minute, a.IsLeader)
		ended := make(chan error, 1)
		go func() { ended <- a.Drain(context.Background()) }()
		c.pass(time.Second)
		a.Coordinator.mu.Lock()
		over := a.drain.over
		a.Coordinator.mu.Unlock()
		a.Undrain()
		synctest.Wait()
		<-over // who waits inside work hears of it too
		require.NoError(c, <-ended)
		require.Empty(c, a.told(EventDrainDone))
		c.until(time.Minute, a.IsLeader)
	})
}

// TestStopWhileDraining: the record says that the process is on its way out until it is gone.
func TestStopWhileDraining(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.until(time.Minute, a.IsLeader)
		require.NoError(c, a.Drain(context.Background()))
		took, err := a.stop()
		require.NoError(c, err)
		require.Less(c, took, time.Second)
		require.Empty(c, a.record())
	})
}

// TestStandaloneDrains: without Redis nobody takes over, and the process leads again at once.
func TestStandaloneDrains(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"}).start()
		c.until(time.Minute, a.IsLeader)
		require.NoError(c, a.Drain(context.Background()))
		c.pass(time.Minute)
		require.False(c, a.IsLeader())
		require.Equal(c, []string{"a draining"}, a.list())
		a.Undrain()
		c.until(time.Minute, a.IsLeader)
		require.Equal(c, []string{"a active"}, a.list())
	})
}

// TestDrainDoneWaitsForTheWork: work that drains its process does not wait for itself, and nobody
// says that the drain is done while it runs.
func TestDrainDoneWaitsForTheWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(func(ctx context.Context, _ Term) error {
			require.NoError(c, a.Drain(ctx))
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			return nil
		})
		c.until(time.Minute, a.IsDraining)
		c.pass(time.Second)
		require.Empty(c, a.told(EventDrainDone))
		require.NoError(c, a.Drain(context.Background()))
		require.Len(c, a.told(EventDrainDone), 1)
	})
}

// slowContext has a caller that looks whether it is done wait.
type slowContext struct {
	context.Context //nolint:containedctx // it is one
	look            func()
}

func (c slowContext) Err() error {
	c.look()
	return c.Context.Err()
}

// TestDrainDoneIsOfItsDrain: who has waited for a drain that was ended says nothing of the end of
// the next one, which has begun meanwhile.
func TestDrainDoneIsOfItsDrain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(a.works("work", 10*time.Second))
		c.until(time.Minute, a.IsLeader)
		looks, next := make(chan struct{}), make(chan struct{})
		first, second := make(chan error, 1), make(chan error, 1)
		slow := slowContext{background, sync.OnceFunc(func() { close(looks); <-next })}
		go func() { first <- a.Drain(slow) }()
		c.pass(time.Second)
		a.Undrain()
		<-looks // it has waited
		go func() { second <- a.Drain(background) }()
		c.pass(time.Second)
		close(next)
		require.NoError(c, <-first)
		require.Empty(c, a.told(EventDrainDone), "the work still runs")
		require.NoError(c, <-second)
		require.Contains(c, c.noted(), "a work drained")
		require.Len(c, a.told(EventDrainDone), 1)
	})
}

// TestUndrainOfARoleThatIsBarred: Undrain ends the wait of Drain, also if the application has said
// that this process may not lead.
func TestUndrainOfARoleThatIsBarred(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 10 * time.Second })
		hung := make(chan struct{})
		a.start(func(context.Context, Term) error { <-hung; return nil })
		defer close(hung)
		c.until(time.Minute, a.IsLeader)
		a.Elector().SetEligible(false)
		ended := make(chan error, 1)
		go func() { ended <- a.Drain(context.Background()) }()
		c.pass(time.Second)
		a.Undrain()
		c.pass(time.Second)
		require.Len(c, ended, 1, "Drain still waits")
		require.NoError(c, <-ended)
	})
}

// TestUndrainBesideTheFirstBeat: whichever comes first, the instance is active behind both.
func TestUndrainBesideTheFirstBeat(t *testing.T) {
	for range 200 {
		c, err := NewStandalone(Options{InstanceID: "a"})
		require.NoError(t, err)
		require.NoError(t, c.Drain(background))
		var both sync.WaitGroup
		both.Go(c.Registry().takePart)
		both.Go(c.Undrain)
		both.Wait()
		require.Equal(t, InstanceActive, c.Registry().status)
	}
}
