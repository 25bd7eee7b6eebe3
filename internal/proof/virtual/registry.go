package virtual

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tenure-go/tenure"
)

// checkRegistry holds a calm world against P9: everybody is registered and counted, one who dies is
// swept in bounded time and nobody else is, and is taken back. It sleeps in virtual time.
func (c *cluster) checkRegistry() {
	leader := c.leader()
	if leader == nil {
		return // P7 says so
	}
	c.counted(leader, len(c.instances))
	victim := c.instances[(leader.number+1)%len(c.instances)]
	victim.crash()
	options := c.pace.registry
	bound := options.DownAfter + options.DownAfter/50 + 2*options.SweepInterval + options.HeartbeatInterval/10 // the clocks' rates may differ
	c.await(bound, func() bool { return !c.registered(victim) }, "P9: %s died and was not swept within %v", victim.name, bound)
	c.counted(leader, len(c.instances)-1)
	victim.boot()
	bound = options.HeartbeatInterval
	c.await(bound, func() bool { return c.registered(victim) }, "P9: %s came back and was not registered within %v", victim.name, bound)
	time.Sleep(options.HeartbeatInterval)
	c.counted(leader, len(c.instances))
}

// await waits for done, or keeps a violation after bound.
func (c *cluster) await(bound time.Duration, done func() bool, wrong string, args ...any) {
	for end := c.net.Elapsed() + bound; !done(); time.Sleep(bound / 500) {
		if c.net.Elapsed() >= end {
			c.check.fail(wrong, args...)
			return
		}
	}
}

// registered looks past the network.
func (c *cluster) registered(instance *instance) (there bool) {
	c.redis.Do(func(m *miniredis.Miniredis) { there = m.HGet("tenure:instances", instance.name) != "" })
	return there
}

// counted asks one process for its counts: so many are there, and all of them active.
func (c *cluster) counted(by *instance, want int) {
	life := by.life.Load()
	if life == nil {
		return
	}
	got, err := life.registry.Counts(context.Background())
	if err != nil || got != (tenure.Counts{Total: want, Active: want}) {
		c.check.fail("P9: %s counts %+v (%v), but %d instances are alive", by.name, got, err, want)
	}
}
