package tenure

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Directed scenarios in virtual time (testing/synctest): what the network does. The checker is on
// in each.

// inVirtualScene runs act in a world whose first leader has just been elected.
func inVirtualScene(t *testing.T, setup virtualSetup, act func(w *virtualWorld, leader *virtualInstance)) {
	t.Helper()
	inVirtualTime(t, 1, setup, func(w *virtualWorld) {
		w.start()
		leader, _ := w.awaitLeader(2*virtualTTL, nil)
		time.Sleep(time.Second) // its lease is known to everybody
		act(w, leader)
	})
}

// renewed waits until the leader has heard of a renewal: its lease is as fresh as it gets.
func (i *virtualInstance) renewed() {
	i.Helper()
	before := i.life.Load().elector.Status().Deadline
	i.waitUntil(virtualTTL, "a renewal", func() bool { return i.life.Load().elector.Status().Deadline.After(before) })
}

// handOver makes the leader resign and returns the next one.
func (w *virtualWorld) handOver(leader *virtualInstance) *virtualInstance {
	w.Helper()
	leader.resign()
	next, _ := w.awaitLeader(virtualHandoverBound, leader)
	time.Sleep(time.Second)
	return next
}

// virtualSpares lets a process that hears nothing go on speaking, for as long as its connections
// suffice: to open a new one it must hear. A call that got no reply is not repeated by the client.
func virtualSpares(o *redis.Options) { o.MaxRetries = -1 }

// spare opens connections.
func (i *virtualInstance) spare() {
	var pings sync.WaitGroup
	for range 40 {
		pings.Go(func() { _ = i.life.Load().client.Ping(context.Background()).Err() })
	}
	pings.Wait()
}

// crashBound and handoverBound are P7.
const (
	virtualCrashBound    = virtualTTL + 50*time.Millisecond + virtualTrip
	virtualHandoverBound = virtualTrip + 20*time.Millisecond
)

func TestVirtualP4_PartitionedLeaderIsCancelledBeforeItsLeaseEnds(t *testing.T) {
	inVirtualScene(t, virtualSetup{kept: true}, func(w *virtualWorld, leader *virtualInstance) {
		leader.renewed()
		w.net.Partition(leader.name, simnet.Both, 20*time.Second)
		w.waitUntil(virtualTTL, "the leader to step down", func() bool { return w.leader() != leader })
		if lease := w.lease(); lease.holder != leader.name || lease.left < 50*time.Millisecond {
			t.Errorf("when the leader stepped down Redis showed %+v: less than the guard was left", lease)
		}
		next, _ := w.awaitLeader(200*time.Millisecond, leader) // P7 is counted from the partition: TTL + 50 ms + a round trip
		time.Sleep(30 * time.Second)
		if now := w.leader(); now != next {
			t.Error("the heal changed the leader")
		}
	})
}

func TestVirtualP7_PartitionedLeaderIsReplacedWithinTheLease(t *testing.T) {
	inVirtualScene(t, virtualSetup{kept: true}, func(w *virtualWorld, leader *virtualInstance) {
		leader.renewed()
		w.net.Partition(leader.name, simnet.Both, 20*time.Second)
		_, took := w.awaitLeader(virtualCrashBound, leader)
		t.Logf("another leads %v after the partition began", took)
	})
}

// The requests of the leader arrive, the replies do not: Redis shows its lease all the time, and
// still it leads no longer than the replies allow. Its release arrives too.
func TestVirtualP4_LostRepliesEndTheTermThoughRedisShowsTheLease(t *testing.T) {
	inVirtualScene(t, virtualSetup{kept: true, client: virtualSpares}, func(w *virtualWorld, leader *virtualInstance) {
		leader = w.handOver(leader) // Redis knows the scripts now
		leader.spare()
		leader.renewed()
		w.net.Partition(leader.name, simnet.Replies, 12*time.Second)
		w.waitUntil(virtualTTL, "the leader to step down", func() bool {
			lease := w.lease()
			if lease.holder != leader.name && w.leader() == leader {
				t.Error("Redis does not show the lease of the leader")
			}
			return w.leader() != leader
		})
		if _, took := w.awaitLeader(virtualHandoverBound, leader); took > virtualHandoverBound {
			t.Errorf("another leads %v after the release", took)
		}
	})
}

// A candidate that hears no reply may have been granted the lease without knowing. It must not keep
// it from the others for ever, however long the replies stay away.
func TestVirtualP7_DeafCandidateDoesNotHoldTheElectionUp(t *testing.T) {
	inVirtualTime(t, 1, virtualSetup{instances: 2, client: virtualSpares}, func(w *virtualWorld) {
		w.start()
		leader, _ := w.awaitLeader(time.Second, nil)
		time.Sleep(time.Second)
		deaf := w.handOver(leader)
		other := w.instances[1-deaf.number]
		other.stop()
		deaf.spare()
		w.net.Partition(deaf.name, simnet.Replies, 0) // it steps down, campaigns, and is granted what it does not hear of
		time.Sleep(20 * time.Second)
		if w.leader() != nil {
			t.Fatal("a candidate leads that hears nothing")
		}
		other.boot()
		_, took := w.awaitLeader(3*virtualTTL, deaf)
		t.Logf("the other one leads after %v", took)
	})
}

// Every reply takes longer than the lease: the candidate never leads, and does not keep others from
// leading.
func TestVirtualP4_RepliesSlowerThanTheLeaseNeverMakeALeader(t *testing.T) {
	patient := func(o *redis.Options) { o.ReadTimeout = 30 * time.Second }
	inVirtualTime(t, 1, virtualSetup{instances: 2, client: patient}, func(w *virtualWorld) {
		slow, other := w.instances[0], w.instances[1]
		for range 2 { // Redis knows the scripts
			other.boot()
			w.awaitLeader(time.Second, nil)
			other.stop()
		}
		w.net.SetFaults(slow.name, simnet.Faults{DelayReply: 1, DelayMin: virtualTTL + time.Second/2, DelayMax: virtualTTL + time.Second})
		slow.boot()
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			if w.leader() != nil {
				t.Fatal("it leads by a reply that took longer than the lease")
			}
		}
		other.boot()
		w.awaitLeader(3*virtualTTL, slow)
		time.Sleep(20 * time.Second)
		if w.leader() != other {
			t.Error("the slow candidate has disturbed the leader")
		}
	})
}

// Replies take nearly as long as they are waited for, and then stay away: the lease counts from
// before the request.
func TestVirtualP4_DeadlineCountsFromBeforeTheRequest(t *testing.T) {
	inVirtualScene(t, virtualSetup{kept: true}, func(w *virtualWorld, leader *virtualInstance) {
		for range 3 {
			leader.renewed() // Redis knows the script
			leader.spare()   // a connection that has to be opened would take longer than an attempt may
			w.net.SetFaults(leader.name, simnet.Faults{DelayReply: 1, DelayMin: 850 * time.Millisecond, DelayMax: 900 * time.Millisecond})
			time.Sleep(2 * virtualTTL)
			leader.renewed()
			w.net.Partition(leader.name, simnet.Both, 2*virtualTTL)
			w.net.SetFaults(leader.name, simnet.Faults{})
			leader, _ = w.awaitLeader(virtualCrashBound, leader)
			time.Sleep(4 * virtualTTL)
		}
	})
}

// Renewals whose replies are slower than the lease do not revive a term.
func TestVirtualP4_LateRepliesNeverReviveATerm(t *testing.T) {
	inVirtualScene(t, virtualSetup{kept: true}, func(w *virtualWorld, leader *virtualInstance) {
		w.net.SetFaults(leader.name, simnet.Faults{DelayReply: 1, DelayMin: virtualTTL, DelayMax: virtualTTL + time.Second})
		w.awaitLeader(2*virtualTTL, leader)
		time.Sleep(30 * time.Second) // the checker asks the old term again and again
		if w.leader() == nil || w.leader() == leader {
			t.Error("the slow one leads, or nobody")
		}
	})
}

// Redis answers nothing for three leases; requests of all kinds queue up and execute when it goes
// on, most of them stale.
func TestVirtualP5_StaleRequestsOfAPausedRedisHarmNobody(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		before := w.check.count()
		w.redis.Pause(3 * virtualTTL)
		w.waitUntil(virtualTTL, "the leader to step down", func() bool { return w.leader() == nil })
		time.Sleep(2 * virtualTTL)
		if w.leader() != nil {
			t.Error("somebody leads while Redis is paused")
		}
		w.awaitLeader(virtualTTL+virtualCrashBound, nil) // a queued request of a campaign that is over may cost a TTL
		time.Sleep(30 * time.Second)
		if terms := w.check.count() - before; terms > 2 {
			t.Errorf("%d terms after the pause", terms)
		}
	})
}

// A request that left a process before it died arrives when the lease is free. It must not be
// granted anything.
func TestVirtualP5_LateRequestsOfADeadProcessChangeNothing(t *testing.T) {
	for _, what := range []string{"renew", "acquire"} {
		t.Run(what, func(t *testing.T) {
			inVirtualScene(t, virtualSetup{instances: 2}, func(w *virtualWorld, leader *virtualInstance) {
				victim, other := leader, w.instances[1-leader.number]
				if what == "acquire" {
					victim, other = other, victim
				}
				w.net.SetFaults(victim.name, simnet.Faults{DelayRequest: 1, DelayMin: 4 * virtualTTL, DelayMax: 4 * virtualTTL})
				time.Sleep(virtualTTL - time.Second/2) // it has sent one
				victim.crash()
				other.crash()
				time.Sleep(2 * virtualTTL)
				if what == "renew" { // it could be taken for a reclaim
					w.redis.FlushAll()
				}
				for range 40 {
					time.Sleep(virtualTTL / 10)
					if lease := w.lease(); lease.holder != "" {
						t.Fatalf("%v: Redis granted a lease to a dead process: %+v", w.net.Elapsed(), lease)
					}
				}
				w.net.SetFaults(victim.name, simnet.Faults{})
				victim.boot()
				w.awaitLeader(virtualTTL, nil)
			})
		})
	}
}

// The reply to the acquire that was granted is lost: the next try finds the lease and adopts it,
// with the same token.
func TestVirtualP6_LostReplyOfAcquireIsAdopted(t *testing.T) {
	inVirtualScene(t, virtualSetup{instances: 2}, func(w *virtualWorld, leader *virtualInstance) {
		heir := w.instances[1-leader.number]
		leader.crash()
		w.waitUntil(virtualTTL, "the end of the lease", func() bool { return w.lease().left < 2*time.Millisecond })
		w.net.SetFaults(heir.name, simnet.Faults{LoseReply: 1})
		w.waitUntil(100*time.Millisecond, "the grant", func() bool { return w.lease().holder == heir.name })
		granted := w.lease()
		if heir.life.Load().elector.IsLeader() {
			t.Fatal("it leads by a reply that was lost")
		}
		w.net.SetFaults(heir.name, simnet.Faults{})
		w.awaitLeader(virtualTTL, nil)
		if term, ok := heir.life.Load().elector.Term(); !ok || !w.lease().is(term) || w.lease().token != granted.token {
			t.Errorf("granted %+v, leads with %d", granted, term.Token)
		}
	})
}

func TestVirtualP7_HandoverWithoutHintsTakesTheFollowersWakeUp(t *testing.T) {
	for _, hints := range []bool{true, false} {
		inVirtualScene(t, virtualSetup{calm: hints}, func(w *virtualWorld, leader *virtualInstance) {
			bound := virtualHandoverBound
			if !hints {
				bound = virtualTTL/2 + virtualTrip // RetryInterval
				w.redis.Intercept(func(_, command string, _ []string) string {
					if command == "PUBLISH" {
						return "NOPERM this user has no permissions to access one of the channels used as arguments"
					}
					return ""
				})
			}
			longest := time.Duration(0)
			for range 20 {
				leader.resign()
				next, took := w.awaitLeader(bound, leader)
				leader, longest = next, max(longest, took)
				time.Sleep(2*virtualTTL + w.between(0, virtualTTL))
			}
			t.Logf("hints=%v: longest hand-over %v", hints, longest)
		})
	}
}

// The lease goes back when the work has returned, and not before: the others wait, the checker
// looks at the end of the work.
func TestVirtualP8_LeaseIsKeptWhileWorkDrains(t *testing.T) {
	inVirtualScene(t, virtualSetup{drain: virtualTTL, kept: true}, func(w *virtualWorld, leader *virtualInstance) {
		for range 5 {
			term, _ := leader.life.Load().elector.Term()
			leader.resign()
			w.waitUntil(virtualTTL, "the next leader", func() bool {
				next := w.leader()
				if lease := w.lease(); leader.life.Load().elector.Status().State == StateDraining && !lease.is(term) {
					t.Fatalf("while work drains Redis shows %+v", lease)
				}
				return next != nil && next != leader
			})
			time.Sleep(virtualTTL)
			leader = w.leader()
		}
	})
}

// Two living processes with one instance ID: the nonce tells them apart.
func TestVirtualP1_TwoProcessesWithOneIDOneLeads(t *testing.T) {
	same := virtualSetup{instances: 2, drain: time.Second / 2, options: func(_ int, options *Options) { options.InstanceID = "twin" }}
	inVirtualScene(t, same, func(w *virtualWorld, _ *virtualInstance) {
		for range 10 {
			leader := w.leader()
			if leader == nil {
				t.Fatal("nobody leads")
			}
			switch w.rand.IntN(3) {
			case 0:
				leader.resign()
			case 1:
				leader.crash()
				time.Sleep(time.Second)
				leader.boot()
			case 2:
				w.net.Partition(leader.name, simnet.Both, 2*virtualTTL)
			}
			time.Sleep(4 * virtualTTL)
		}
	})
}
