package virtual

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// A client of another make shares the key: neither leads while the other does.
func TestVirtualP1_ForeignClientOnTheSameKeyNeverBoth(t *testing.T) {
	setup := setup{instances: 3, drain: time.Second, options: func(_ int, options *tenure.Options) {
		options.Election.LeaderKey = foreignKey
	}}
	for seed := range uint64(3) {
		inCluster(t, seed, setup, func(c *cluster) {
			foreign := &foreign{cluster: c}
			c.check.foreign = foreign
			over := make(chan struct{})
			c.running.Go(func() { foreign.run(over) })
			c.start()
			nemesis := &nemesis{cluster: c, profile: profile{
				faults: []string{"crash", "crash-leader", "resign", "partition", "partition-leader"}, every: 8 * time.Second,
			}}
			for after := 30 * time.Second; after < 4*time.Minute; after += 40 * time.Second { // its chance: ours wake to the millisecond
				nemesis.plan(after, func() {
					for _, instance := range c.instances {
						instance.crash()
						nemesis.plan(2*hotTTL, instance.boot)
					}
				})
			}
			nemesis.plan(c.between(time.Minute, 2*time.Minute), func() { c.net.Partition("foreign", simnet.Both, foreignTTL) })
			nemesis.run(5 * time.Minute)
			close(over)
			synctest.Wait()
			if terms := c.check.count(); terms < 5 || foreign.terms < 2 {
				t.Errorf("seed %d: only %d terms of ours and %d of the foreign client", seed, terms, foreign.terms)
			}
		})
	}
}

// One candidate may not call INFO, the others may: hand-overs cost no hold-off, whichever of them
// asks first.
func TestVirtualP7_OneCandidateWithoutInfo(t *testing.T) {
	inCluster(t, 1, setup{}, func(c *cluster) {
		blind := c.instances[0]
		c.redis.SetInfo(blind.name, false)
		c.start()
		leader, _ := c.awaitLeader(2*hotTTL, nil)
		led := map[bool]int{}
		for range 20 {
			time.Sleep(hotTTL) // everybody has asked
			if status := leader.life.Load().elector.Status(); status.HistoryWitness == (leader == blind) {
				t.Errorf("%s says %v of the witness", leader.name, status.HistoryWitness)
			}
			led[leader == blind]++
			leader.resign()
			leader, _ = c.awaitLeader(handoverBound, leader)
		}
		if led[true] == 0 || led[false] == 0 {
			t.Errorf("led without INFO %d times, with it %d times: nothing was shown", led[true], led[false])
		}
	})
}

// A candidate with a short lease has seen a leader with a long one: after a loss of data it holds
// off for the longer of the two.
func TestVirtualP1_HoldOffIsTheLongestTTLKnown(t *testing.T) {
	const long = 4 * hotTTL
	setup := setup{instances: 2, options: func(number int, options *tenure.Options) {
		if number == 0 {
			options.Election.LeaseTTL = long
		}
	}}
	inCluster(t, 1, setup, func(c *cluster) {
		leader, short := c.instances[0], c.instances[1]
		leader.boot()
		c.awaitLeader(time.Second, nil)
		short.boot()
		time.Sleep(long) // it was refused, and knows
		c.net.Partition(leader.name, simnet.Both, 2*long)
		c.redis.Restart(false, 0)
		_, took := c.awaitLeader(long+time.Second+hotTTL, leader) // + 1 s of rounding, + the follower's retry
		if took < long-time.Second {
			t.Errorf("another leads after %v, beside a lease of %v", took, long)
		}
	})
}
