package tenure

import (
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Directed scenarios in virtual time (testing/synctest): what happens to Redis's data, its history
// and its clock.

// stays fails the test unless the same term is on throughout d.
func (w *virtualWorld) stays(leader *virtualInstance, d time.Duration) {
	w.Helper()
	before, _ := leader.life.Load().elector.Term()
	for end := w.net.Elapsed() + d; w.net.Elapsed() < end; time.Sleep(10 * time.Millisecond) {
		if term, leads := leader.life.Load().elector.Term(); !leads || term.Token != before.Token {
			w.Fatalf("%v: the term %d of %s has ended", w.net.Elapsed(), before.Token, leader.name)
		}
	}
	if lease := w.lease(); !lease.is(before) {
		w.Errorf("term %d of %s is on, and Redis shows %+v", before.Token, leader.name, lease)
	}
}

func TestVirtualP1_DeletedLeaseDeposesWithoutAnOverlap(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		leader.renewed()
		w.redis.Del(virtualLeader)
		took := w.waitUntil(virtualTTL/3*11/10+virtualTrip, "the leader to step down at its next renewal", func() bool { return w.leader() != leader })
		if w.leader() != nil {
			t.Error("another leads before its release")
		}
		next, vacant := w.awaitLeader(virtualHandoverBound, leader)
		t.Logf("%s is deposed after %v, %s leads %v later", leader.name, took, next.name, vacant)
	})
}

func TestVirtualP2_FlushAllWithAReachableLeaderKeepsItAndItsToken(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		for range 5 {
			time.Sleep(w.between(0, virtualTTL))
			w.redis.FlushAll()
			w.stays(leader, 2*virtualTTL)
		}
	})
}

// forgotten replaces every process but the leader's by one that remembers nothing.
func (i *virtualInstance) forgotten() {
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
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		for range 5 {
			leader.renewed()
			w.redis.FlushAll()
			leader.forgotten()
			w.stays(leader, 2*virtualTTL)
		}
	})
}

// virtualFlushUnderAnUnreachableLeader: the followers that remember the token die, the leader is
// cut off, the data go, and candidates that know of nothing ask for the lease.
func virtualFlushUnderAnUnreachableLeader(t *testing.T, wait time.Duration, act func(w *virtualWorld, leader *virtualInstance)) {
	setup := virtualSetup{options: func(_ int, options *Options) { options.Election.Safety.EmptyHistoryWait = wait }}
	inVirtualScene(t, setup, func(w *virtualWorld, leader *virtualInstance) {
		for _, instance := range w.instances {
			if instance != leader {
				instance.crash()
			}
		}
		leader.renewed()
		w.net.Partition(leader.name, simnet.Both, 20*time.Second)
		w.redis.FlushAll()
		for _, instance := range w.instances {
			instance.boot()
		}
		w.awaitLeader(2*virtualCrashBound, leader)
		act(w, leader)
	})
}

func TestVirtualP1_FlushAllWithAnUnreachableLeaderNeedsEmptyHistoryWait(t *testing.T) {
	virtualFlushUnderAnUnreachableLeader(t, virtualTTL, func(*virtualWorld, *virtualInstance) {})
}

// TestVirtualP1_FlushAllWithAnUnreachableLeaderIsTheException: this is what the package comment
// excludes, and that the checker can fail.
func TestVirtualP1_FlushAllWithAnUnreachableLeaderIsTheException(t *testing.T) {
	virtualFlushUnderAnUnreachableLeader(t, 0, func(w *virtualWorld, _ *virtualInstance) {
		if w.check.takeOverlaps() == 0 {
			t.Error("the checker saw no overlap")
		}
	})
}

func TestVirtualP1_RestartWithoutDataKeepsTheLeader(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		for range 5 {
			time.Sleep(w.between(0, virtualTTL))
			w.redis.Restart(false, w.between(0, virtualTTL/3))
			w.stays(leader, 3*virtualTTL)
		}
	})
}

// The leader dies with Redis's memory: whoever is next waits until the old lease would have ended,
// and no longer than Redis is old enough.
func TestVirtualP1_RestartWithoutDataAndLeaderHoldsOff(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		leader.renewed()
		w.net.Partition(leader.name, simnet.Both, 20*time.Second)
		w.redis.Restart(false, 0)
		leader.forgotten()
		_, took := w.awaitLeader(virtualCrashBound+3*time.Second, leader) // + 1 s of rounding, + the follower's retry
		t.Logf("another leads after %v", took)
	})
}

func TestVirtualP1_FailoverWithoutTheLastWritesKeepsTheLeader(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		for range 5 {
			snapshot := w.redis.Snapshot()
			leader.resign()
			leader, _ = w.awaitLeader(virtualHandoverBound, leader)
			time.Sleep(virtualTTL + time.Second + w.between(0, virtualTTL)) // the lease in the snapshot has ended
			w.redis.Failover(snapshot, w.between(0, 2*time.Second)-time.Second)
			w.stays(leader, 3*virtualTTL)
		}
	})
}

// The leader, whose term the promoted replica never heard of, cannot be reached: nobody else leads
// before its lease would have ended, and then with a greater token.
func TestVirtualP1_FailoverWithoutTheLastWritesAndLeaderHoldsOff(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		snapshot := w.redis.Snapshot()
		leader.resign()
		leader, _ = w.awaitLeader(virtualHandoverBound, leader)
		time.Sleep(2 * virtualTTL) // the lease in the snapshot has ended
		leader.renewed()
		w.net.Partition(leader.name, simnet.Both, 20*time.Second)
		w.redis.Failover(snapshot, 0)
		leader.forgotten()
		_, took := w.awaitLeader(2*virtualCrashBound, leader)
		t.Logf("another leads after %v", took)
	})
}

func TestVirtualP2_EvictedTermHashKeepsTheLeaderAndItsToken(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		w.redis.Evict(virtualTermHash)
		w.stays(leader, 2*virtualTTL)
		w.redis.Evict(virtualTermHash)
		w.redis.Del(virtualLeader)
		w.stays(leader, 2*virtualTTL)
	})
}

func TestVirtualP2_EvictedTermHashOfADeadLeader(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		leader.crash()
		w.redis.Evict(virtualTermHash)
		w.awaitLeader(2*virtualCrashBound, leader) // the hold-off begins when the lease ends: the memory of a follower arms it
	})
}

// Redis's clock goes back by an hour: what is stored for later must not wedge the election, and
// tokens go on increasing.
func TestVirtualP2_ClockStepBackHoldsUpNoLongerThanAHoldOff(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprint("crash=", crash), func(t *testing.T) {
			inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
				for range 3 {
					w.redis.StepClock(-time.Hour)
					if crash {
						leader.crash()
					} else {
						leader.resign()
					}
					w.waitUntil(virtualTrip, "the end of the term", func() bool { return w.leader() == nil })
					_, took := w.awaitLeader(virtualTTL+time.Second+virtualTTL/2+virtualTrip, nil) // + rounding, + RetryInterval
					t.Logf("somebody leads after %v", took)
					time.Sleep(2 * virtualTTL)
					leader.boot()
					time.Sleep(2 * virtualTTL)
					leader = w.leader()
				}
			})
		})
	}
}

// Redis's clock jumps over the end of the lease: P1 may not hold until the leader's next renewal,
// P2 and P3 do.
func TestVirtualP2_ClockStepForwardKeepsTokensIncreasing(t *testing.T) {
	inVirtualScene(t, virtualSetup{}, func(w *virtualWorld, leader *virtualInstance) {
		overlaps := 0
		for range 5 {
			time.Sleep(w.between(0, virtualTTL))
			w.redis.StepClock(time.Hour)
			time.Sleep(virtualTTL/3*11/10 + virtualTrip) // the next renewal
			overlaps += w.check.takeOverlaps()
			time.Sleep(2 * virtualTTL)
			if w.leader() == nil {
				t.Error("nobody leads")
			}
		}
		t.Logf("%d instants with two leaders", overlaps)
	})
}

// The clocks' rates differ: within the drift margin no two lead, however often a leader is cut off;
// beyond it the checker must see it.
func TestVirtualP1_ClockRates(t *testing.T) {
	for _, c := range []struct {
		rate    float64
		margin  time.Duration
		overlap bool
	}{
		{rate: 0.99}, {rate: 1.005}, {rate: 1.01},
		{rate: 1.05, margin: -1, overlap: true},
	} {
		t.Run(fmt.Sprint(c.rate), func(t *testing.T) {
			setup := virtualSetup{
				redis:   simnet.ServerOptions{Rate: c.rate},
				options: func(_ int, options *Options) { options.Election.Safety.DriftMargin = c.margin },
			}
			inVirtualScene(t, setup, func(w *virtualWorld, leader *virtualInstance) {
				for range 10 {
					leader.renewed()
					w.net.Partition(leader.name, simnet.Both, 2*virtualTTL)
					w.awaitLeader(2*virtualTTL, leader)
					time.Sleep(3 * virtualTTL)
					leader = w.leader()
				}
				if c.overlap && w.check.takeOverlaps() == 0 {
					t.Error("the checker saw no overlap")
				}
			})
		})
	}
}
