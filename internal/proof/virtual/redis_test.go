package virtual

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Directed scenarios in virtual time (testing/synctest): what happens to Redis's data, its history
// and its clock.

// stays fails the test unless the same term is on throughout d.
func (c *cluster) stays(leader *instance, d time.Duration) {
	c.Helper()
	before, _ := leader.life.Load().elector.Term()
	for end := c.net.Elapsed() + d; c.net.Elapsed() < end; time.Sleep(10 * time.Millisecond) {
		if term, leads := leader.life.Load().elector.Term(); !leads || term.Token != before.Token {
			c.Fatalf("%v: the term %d of %s has ended", c.net.Elapsed(), before.Token, leader.name)
		}
	}
	if lease := c.lease(); !lease.is(before) {
		c.Errorf("term %d of %s is on, and Redis shows %+v", before.Token, leader.name, lease)
	}
}

func TestVirtualP1_DeletedLeaseDeposesWithoutAnOverlap(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		leader.renewed()
		c.redis.Del(leaderKey)
		took := c.waitUntil(hotTTL/3*11/10+roundTrip, "the leader to step down at its next renewal", func() bool { return c.leader() != leader })
		if c.leader() != nil {
			t.Error("another leads before its release")
		}
		next, vacant := c.awaitLeader(handoverBound, leader)
		t.Logf("%s is deposed after %v, %s leads %v later", leader.name, took, next.name, vacant)
	})
}

func TestVirtualP2_FlushAllWithAReachableLeaderKeepsItAndItsToken(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		for range 5 {
			time.Sleep(c.between(0, hotTTL))
			c.redis.FlushAll()
			c.stays(leader, 2*hotTTL)
		}
	})
}

// forgotten replaces every process but the leader's by one that remembers nothing.
func (i *instance) forgotten() {
	for _, other := range i.instances {
		if other != i {
			other.crash()
			other.boot()
		}
	}
}

// Only the roll-call protects the leader from candidates that know of nothing: it makes the leader
// renew at once.
func TestVirtualP1_RollCallMakesAReachableLeaderRenew(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		for range 5 {
			leader.renewed()
			c.redis.FlushAll()
			leader.forgotten()
			c.stays(leader, 2*hotTTL)
		}
	})
}

// flushUnderAnUnreachableLeader: the followers that remember the token die, the leader is
// cut off, the data go, and candidates that know of nothing ask for the lease.
func flushUnderAnUnreachableLeader(t *testing.T, wait time.Duration, act func(c *cluster, leader *instance)) {
	setup := setup{options: func(_ int, options *tenure.Options) { options.Election.Safety.EmptyHistoryWait = wait }}
	inScene(t, setup, func(c *cluster, leader *instance) {
		for _, instance := range c.instances {
			if instance != leader {
				instance.crash()
			}
		}
		leader.renewed()
		c.net.Partition(leader.name, simnet.Both, 20*time.Second)
		c.redis.FlushAll()
		for _, instance := range c.instances {
			instance.boot()
		}
		c.awaitLeader(2*crashBound, leader)
		act(c, leader)
	})
}

func TestVirtualP1_FlushAllWithAnUnreachableLeaderNeedsEmptyHistoryWait(t *testing.T) {
	flushUnderAnUnreachableLeader(t, hotTTL, func(*cluster, *instance) {})
}

// TestVirtualP1_FlushAllWithAnUnreachableLeaderIsTheException: this is what the package comment
// excludes, and that the checker can fail.
func TestVirtualP1_FlushAllWithAnUnreachableLeaderIsTheException(t *testing.T) {
	flushUnderAnUnreachableLeader(t, 0, func(c *cluster, leader *instance) {
		// Until then, each further term overlaps with it, also those that begin as the world stops.
		c.waitUntil(hotTTL, "the end of the term of the leader that is cut off", func() bool { return !leader.life.Load().elector.IsLeader() })
		if c.check.takeOverlaps() == 0 {
			t.Error("the checker saw no overlap")
		}
	})
}

func TestVirtualP1_RestartWithoutDataKeepsTheLeader(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		for range 5 {
			time.Sleep(c.between(0, hotTTL))
			c.redis.Restart(false, c.between(0, hotTTL/3))
			c.stays(leader, 3*hotTTL)
		}
	})
}

// The leader dies with Redis's memory: the next leader waits until the old lease would have ended,
// and no longer than Redis is old enough.
func TestVirtualP1_RestartWithoutDataAndLeaderHoldsOff(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		leader.renewed()
		c.net.Partition(leader.name, simnet.Both, 20*time.Second)
		c.redis.Restart(false, 0)
		leader.forgotten()
		_, took := c.awaitLeader(crashBound+3*time.Second, leader) // + 1 s of rounding, + the follower's retry
		t.Logf("another leads after %v", took)
	})
}

func TestVirtualP1_FailoverWithoutTheLastWritesKeepsTheLeader(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		for range 5 {
			failover := c.losing()
			leader.resign()
			leader, _ = c.awaitLeader(handoverBound, leader)
			time.Sleep(hotTTL + time.Second + c.between(0, hotTTL)) // the lease in the snapshot has ended
			failover(c.between(0, 2*time.Second) - time.Second)
			c.stays(leader, 3*hotTTL)
		}
	})
}

// The leader, whose term the promoted replica never heard of, cannot be reached: nobody else leads
// before its lease would have ended, and then with a greater token.
func TestVirtualP1_FailoverWithoutTheLastWritesAndLeaderHoldsOff(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		failover := c.losing()
		leader.resign()
		leader, _ = c.awaitLeader(handoverBound, leader)
		time.Sleep(2 * hotTTL) // the lease in the snapshot has ended
		leader.renewed()
		c.net.Partition(leader.name, simnet.Both, 20*time.Second)
		failover(0)
		leader.forgotten()
		_, took := c.awaitLeader(2*crashBound, leader)
		t.Logf("another leads after %v", took)
	})
}

// An instance is away for nearly as long as it takes to be down, and the one beat after that is
// lost in a failover: to sweep it is right, whatever the old master had heard.
func TestVirtualP9_FailoverWithoutTheOnlyBeat(t *testing.T) {
	inScene(t, setup{tasks: true}, func(c *cluster, leader *instance) {
		registry, victim := c.pace.registry, c.instances[(leader.number+1)%len(c.instances)]
		away := registry.DownAfter - registry.HeartbeatInterval
		c.net.Partition(victim.name, simnet.Both, away)
		time.Sleep(away)
		failover, before := c.losing(), c.beat(victim)
		c.waitUntil(2*registry.HeartbeatInterval, "a beat", func() bool { return c.beat(victim) != before })
		failover(0)
		c.net.Partition(victim.name, simnet.Both, registry.DownAfter)
		c.waitUntil(registry.HeartbeatInterval+2*registry.SweepInterval, "a sweep of who is away", func() bool { return !c.registered(victim) })
	})
}

// beat returns when the instance last beat, by Redis's clock.
func (c *cluster) beat(instance *instance) time.Time {
	c.check.mu.Lock()
	defer c.check.mu.Unlock()
	return c.check.tap.beats[instance.name]
}

func TestVirtualP2_EvictedTermHashKeepsTheLeaderAndItsToken(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		c.redis.Evict(termKey)
		c.stays(leader, 2*hotTTL)
		c.redis.Evict(termKey)
		c.redis.Del(leaderKey)
		c.stays(leader, 2*hotTTL)
	})
}

func TestVirtualP2_EvictedTermHashOfADeadLeader(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		leader.crash()
		c.redis.Evict(termKey)
		c.awaitLeader(2*crashBound, leader) // the hold-off begins when the lease ends: the memory of a follower arms it
	})
}

// Redis's clock goes back by an hour: what is stored for later must not wedge the election, and
// tokens go on increasing.
func TestVirtualP2_ClockStepBackHoldsUpNoLongerThanAHoldOff(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			inScene(t, setup{}, func(c *cluster, leader *instance) {
				for range 3 {
					c.redis.StepClock(-time.Hour)
					if crash {
						leader.crash()
					} else {
						leader.resign()
					}
					c.waitUntil(roundTrip, "the end of the term", func() bool { return c.leader() == nil })
					_, took := c.awaitLeader(hotTTL+time.Second+hotTTL/2+roundTrip, nil) // + rounding, + RetryInterval
					t.Logf("somebody leads after %v", took)
					time.Sleep(2 * hotTTL)
					leader.boot()
					time.Sleep(2 * hotTTL)
					leader = c.leader()
				}
			})
		})
	}
}

// Redis's clock jumps over the end of the lease: P1 may not hold until the leader's next renewal,
// P2 and P3 do.
func TestVirtualP2_ClockStepForwardKeepsTokensIncreasing(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		overlaps := 0
		for range 5 {
			time.Sleep(c.between(0, hotTTL))
			c.redis.StepClock(time.Hour)
			time.Sleep(hotTTL/3*11/10 + roundTrip) // the next renewal
			overlaps += c.check.takeOverlaps()
			time.Sleep(2 * hotTTL)
			if c.leader() == nil {
				t.Error("nobody leads")
			}
		}
		t.Logf("%d instants with two leaders", overlaps)
	})
}

// The clocks' rates differ: within the drift margin no two lead, however often a leader is cut off;
// beyond it the checker must see it.
func TestVirtualP1_ClockRates(t *testing.T) {
	for _, tt := range []struct {
		rate    float64
		margin  time.Duration
		overlap bool
	}{
		{rate: 0.99}, {rate: 1.005}, {rate: 1.01},
		{rate: 1.05, margin: -1, overlap: true},
	} {
		t.Run(fmt.Sprint(tt.rate), func(t *testing.T) {
			setup := setup{
				redis:   simnet.ServerOptions{Rate: tt.rate},
				options: func(_ int, options *tenure.Options) { options.Election.Safety.DriftMargin = tt.margin },
			}
			inScene(t, setup, func(c *cluster, leader *instance) {
				times := 10
				if testing.Short() && !tt.overlap {
					times = 3
				}
				for range times {
					leader.renewed()
					c.net.Partition(leader.name, simnet.Both, 2*hotTTL)
					c.awaitLeader(2*hotTTL, leader)
					time.Sleep(3 * hotTTL)
					leader = c.leader()
				}
				if tt.overlap && c.check.takeOverlaps() == 0 {
					t.Error("the checker saw no overlap")
				}
			})
		})
	}
}
