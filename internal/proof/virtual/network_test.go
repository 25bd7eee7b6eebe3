package virtual

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Directed scenarios in virtual time (testing/synctest): what the network does. The checker is on
// in each.

// inScene runs act in a world whose first leader has just been elected.
func inScene(t *testing.T, setup setup, act func(c *cluster, leader *instance)) {
	t.Helper()
	inCluster(t, 1, setup, func(c *cluster) {
		c.start()
		leader, _ := c.awaitLeader(2*hotTTL, nil)
		time.Sleep(time.Second) // its lease is known to everybody
		act(c, leader)
	})
}

// renewed waits until the leader has heard of a renewal: its lease is as fresh as it gets.
func (i *instance) renewed() {
	i.Helper()
	before := i.life.Load().elector.Status().Deadline
	i.waitUntil(hotTTL, "a renewal", func() bool { return i.life.Load().elector.Status().Deadline.After(before) })
}

// handOver makes the leader resign and returns the next one.
func (c *cluster) handOver(leader *instance) *instance {
	c.Helper()
	leader.resign()
	next, _ := c.awaitLeader(handoverBound, leader)
	time.Sleep(time.Second)
	return next
}

// spares lets a process that hears nothing go on speaking, for as long as its connections
// suffice: to open a new one it must hear. A call that got no reply is not repeated by the client.
func spares(o *redis.Options) { o.MaxRetries = -1 }

// spare opens connections.
func (i *instance) spare() {
	var pings sync.WaitGroup
	for range 40 {
		pings.Go(func() { _ = i.life.Load().client.Ping(context.Background()).Err() })
	}
	pings.Wait()
}

// crashBound and handoverBound are P7.
const (
	crashBound    = hotTTL + 50*time.Millisecond + roundTrip
	handoverBound = roundTrip + 20*time.Millisecond
)

func TestVirtualP4_PartitionedLeaderIsCancelledBeforeItsLeaseEnds(t *testing.T) {
	inScene(t, setup{kept: true}, func(c *cluster, leader *instance) {
		leader.renewed()
		c.net.Partition(leader.name, simnet.Both, 20*time.Second)
		c.waitUntil(hotTTL, "the leader to step down", func() bool { return c.leader() != leader })
		if lease := c.lease(); lease.holder != leader.name || lease.left < 50*time.Millisecond {
			t.Errorf("when the leader stepped down Redis showed %+v: less than the guard was left", lease)
		}
		next, _ := c.awaitLeader(200*time.Millisecond, leader) // P7 is counted from the partition: TTL + 50 ms + a round trip
		time.Sleep(30 * time.Second)
		if now := c.leader(); now != next {
			t.Error("the heal changed the leader")
		}
	})
}

func TestVirtualP7_PartitionedLeaderIsReplacedWithinTheLease(t *testing.T) {
	inScene(t, setup{kept: true}, func(c *cluster, leader *instance) {
		leader.renewed()
		c.net.Partition(leader.name, simnet.Both, 20*time.Second)
		_, took := c.awaitLeader(crashBound, leader)
		t.Logf("another leads %v after the partition began", took)
	})
}

// The requests of the leader arrive, the replies do not: Redis shows its lease all the time, and
// still it leads no longer than the replies allow. Its release arrives too.
func TestVirtualP4_LostRepliesEndTheTermThoughRedisShowsTheLease(t *testing.T) {
	inScene(t, setup{kept: true, client: spares}, func(c *cluster, leader *instance) {
		leader = c.handOver(leader) // Redis knows the scripts now
		leader.spare()
		leader.renewed()
		c.net.Partition(leader.name, simnet.Replies, 12*time.Second)
		c.waitUntil(hotTTL, "the leader to step down", func() bool {
			lease := c.lease()
			if lease.holder != leader.name && c.leader() == leader {
				t.Error("Redis does not show the lease of the leader")
			}
			return c.leader() != leader
		})
		if _, took := c.awaitLeader(handoverBound, leader); took > handoverBound {
			t.Errorf("another leads %v after the release", took)
		}
	})
}

// A candidate that hears no reply may have been granted the lease without knowing. It must not keep
// it from the others for ever, however long the replies stay away.
func TestVirtualP7_DeafCandidateDoesNotHoldTheElectionUp(t *testing.T) {
	inCluster(t, 1, setup{instances: 2, client: spares}, func(c *cluster) {
		c.start()
		leader, _ := c.awaitLeader(time.Second, nil)
		time.Sleep(time.Second)
		deaf := c.handOver(leader)
		other := c.instances[1-deaf.number]
		other.stop()
		deaf.spare()
		c.net.Partition(deaf.name, simnet.Replies, 0) // it steps down, campaigns, and is granted what it does not hear of
		time.Sleep(20 * time.Second)
		if c.leader() != nil {
			t.Fatal("a candidate leads that hears nothing")
		}
		other.boot()
		_, took := c.awaitLeader(3*hotTTL, deaf)
		t.Logf("the other one leads after %v", took)
	})
}

// Every reply takes longer than the lease: the candidate never leads, and does not keep others from
// leading.
func TestVirtualP4_RepliesSlowerThanTheLeaseNeverMakeALeader(t *testing.T) {
	patient := func(o *redis.Options) { o.ReadTimeout = 30 * time.Second }
	inCluster(t, 1, setup{instances: 2, client: patient}, func(c *cluster) {
		slow, other := c.instances[0], c.instances[1]
		for range 2 { // Redis knows the scripts
			other.boot()
			c.awaitLeader(time.Second, nil)
			other.stop()
		}
		c.net.SetFaults(slow.name, simnet.Faults{DelayReply: 1, DelayMin: hotTTL + time.Second/2, DelayMax: hotTTL + time.Second})
		slow.boot()
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if c.leader() != nil {
				t.Fatal("it leads by a reply that took longer than the lease")
			}
		}
		other.boot()
		c.awaitLeader(3*hotTTL, slow)
		time.Sleep(20 * time.Second)
		if c.leader() != other {
			t.Error("the slow candidate has disturbed the leader")
		}
	})
}

// Replies take nearly as long as they are waited for, and then stay away: the lease counts from
// before the request.
func TestVirtualP4_DeadlineCountsFromBeforeTheRequest(t *testing.T) {
	inScene(t, setup{kept: true}, func(c *cluster, leader *instance) {
		for range 3 {
			leader.renewed() // Redis knows the script
			leader.spare()   // a connection that has to be opened would take longer than an attempt may
			c.net.SetFaults(leader.name, simnet.Faults{DelayReply: 1, DelayMin: 850 * time.Millisecond, DelayMax: 900 * time.Millisecond})
			time.Sleep(2 * hotTTL)
			leader.renewed()
			c.net.Partition(leader.name, simnet.Both, 2*hotTTL)
			c.net.SetFaults(leader.name, simnet.Faults{})
			leader, _ = c.awaitLeader(crashBound, leader)
			time.Sleep(4 * hotTTL)
		}
	})
}

// Renewals whose replies are slower than the lease do not revive a term.
func TestVirtualP4_LateRepliesNeverReviveATerm(t *testing.T) {
	inScene(t, setup{kept: true}, func(c *cluster, leader *instance) {
		c.net.SetFaults(leader.name, simnet.Faults{DelayReply: 1, DelayMin: hotTTL, DelayMax: hotTTL + time.Second})
		c.awaitLeader(2*hotTTL, leader)
		time.Sleep(30 * time.Second) // the checker asks the old term again and again
		if c.leader() == nil || c.leader() == leader {
			t.Error("the slow one leads, or nobody")
		}
	})
}

// Redis answers nothing for three leases; requests of all kinds queue up and execute when it goes
// on, most of them stale.
func TestVirtualP5_StaleRequestsOfAPausedRedisHarmNobody(t *testing.T) {
	inScene(t, setup{}, func(c *cluster, leader *instance) {
		before := c.check.count()
		c.redis.Pause(3 * hotTTL)
		c.waitUntil(hotTTL, "the leader to step down", func() bool { return c.leader() == nil })
		time.Sleep(2 * hotTTL)
		if c.leader() != nil {
			t.Error("somebody leads while Redis is paused")
		}
		c.awaitLeader(hotTTL+crashBound, nil) // a queued request of a campaign that is over may cost a TTL
		time.Sleep(30 * time.Second)
		if terms := c.check.count() - before; terms > 2 {
			t.Errorf("%d terms after the pause", terms)
		}
	})
}

// A request that left a process before it died arrives when the lease is free. It must not be
// granted anything.
func TestVirtualP5_LateRequestsOfADeadProcessChangeNothing(t *testing.T) {
	for _, what := range []string{"renew", "acquire"} {
		t.Run(what, func(t *testing.T) {
			inScene(t, setup{instances: 2}, func(c *cluster, leader *instance) {
				victim, other := leader, c.instances[1-leader.number]
				if what == "acquire" {
					victim, other = other, victim
				}
				c.net.SetFaults(victim.name, simnet.Faults{DelayRequest: 1, DelayMin: 4 * hotTTL, DelayMax: 4 * hotTTL})
				time.Sleep(hotTTL - time.Second/2) // it has sent one
				victim.crash()
				other.crash()
				time.Sleep(2 * hotTTL)
				if what == "renew" { // it could be taken for a reclaim
					c.redis.FlushAll()
				}
				for range 40 {
					time.Sleep(hotTTL / 10)
					if lease := c.lease(); lease.holder != "" {
						t.Fatalf("%v: Redis granted a lease to a dead process: %+v", c.net.Elapsed(), lease)
					}
				}
				c.net.SetFaults(victim.name, simnet.Faults{})
				victim.boot()
				c.awaitLeader(hotTTL, nil)
			})
		})
	}
}

// The reply to the acquire that was granted is lost: the next try finds the lease and adopts it,
// with the same token.
func TestVirtualP6_LostReplyOfAcquireIsAdopted(t *testing.T) {
	inScene(t, setup{instances: 2}, func(c *cluster, leader *instance) {
		heir := c.instances[1-leader.number]
		leader.crash()
		c.waitUntil(hotTTL, "the end of the lease", func() bool { return c.lease().left < 2*time.Millisecond })
		c.net.SetFaults(heir.name, simnet.Faults{LoseReply: 1})
		c.waitUntil(100*time.Millisecond, "the grant", func() bool { return c.lease().holder == heir.name })
		granted := c.lease()
		if heir.life.Load().elector.IsLeader() {
			t.Fatal("it leads by a reply that was lost")
		}
		c.net.SetFaults(heir.name, simnet.Faults{})
		c.awaitLeader(hotTTL, nil)
		if term, ok := heir.life.Load().elector.Term(); !ok || !c.lease().is(term) || c.lease().token != granted.token {
			t.Errorf("granted %+v, leads with %d", granted, term.Token)
		}
	})
}

func TestVirtualP7_HandoverWithoutHintsTakesTheFollowersWakeUp(t *testing.T) {
	for _, hints := range []bool{true, false} {
		inScene(t, setup{calm: hints}, func(c *cluster, leader *instance) {
			bound := handoverBound
			if !hints {
				bound = hotTTL/2 + roundTrip // RetryInterval
				c.redis.Intercept(func(_, command string, _ []string) string {
					if command == "PUBLISH" {
						return "NOPERM this user has no permissions to access one of the channels used as arguments"
					}
					return ""
				})
			}
			longest := time.Duration(0)
			for range 20 {
				leader.resign()
				next, took := c.awaitLeader(bound, leader)
				leader, longest = next, max(longest, took)
				time.Sleep(2*hotTTL + c.between(0, hotTTL))
			}
			t.Logf("hints=%v: longest hand-over %v", hints, longest)
		})
	}
}

// The lease goes back when the work has returned, and not before: the others wait, the checker
// looks at the end of the work.
func TestVirtualP8_LeaseIsKeptWhileWorkDrains(t *testing.T) {
	inScene(t, setup{drain: hotTTL, kept: true}, func(c *cluster, leader *instance) {
		for range 5 {
			term, _ := leader.life.Load().elector.Term()
			leader.resign()
			c.waitUntil(hotTTL, "the next leader", func() bool {
				next := c.leader()
				if lease := c.lease(); leader.life.Load().elector.Status().State == tenure.ElectionDraining && !lease.is(term) {
					t.Fatalf("while work drains Redis shows %+v", lease)
				}
				return next != nil && next != leader
			})
			time.Sleep(hotTTL)
			leader = c.leader()
		}
	})
}

// Two living processes with one instance ID: the nonce tells them apart.
func TestVirtualP1_TwoProcessesWithOneIDOneLeads(t *testing.T) {
	same := setup{instances: 2, drain: time.Second / 2, options: func(_ int, options *tenure.Options) { options.InstanceID = "twin" }}
	inScene(t, same, func(c *cluster, _ *instance) {
		for range 10 {
			leader := c.leader()
			if leader == nil {
				t.Fatal("nobody leads")
			}
			switch c.rand.IntN(3) {
			case 0:
				leader.resign()
			case 1:
				leader.crash()
				time.Sleep(time.Second)
				leader.boot()
			case 2:
				c.net.Partition(leader.name, simnet.Both, 2*hotTTL)
			}
			time.Sleep(4 * hotTTL)
		}
	})
}
