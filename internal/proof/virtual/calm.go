package virtual

import "time"

// What must hold after the last fault, in virtual time: the other checks say that nothing wrong has
// happened, these that what should happen has. All of it sleeps in virtual time.

// leaderBound is the longest that a role may be without a leader after the last fault (P7): the
// lease that its dead leader left runs out; the longest sleeper wakes; what it asks first has no
// answer; it finds that data were lost, and holds off, for a second more if a server is young.
func (c *cluster) leaderBound(p profile) time.Duration {
	ttl := c.pace.ttl
	for _, other := range p.ttls {
		ttl = max(ttl, other)
	}
	holdOff := max(ttl, p.holdOff) + p.margin + time.Second
	asks := ttl*11/10 + ttl/3 + 2*ttl/6 // RetryInterval is the TTL for most, with its jitter; an attempt, two pauses after errors
	return (ttl + c.setup.drain + asks + holdOff + time.Second) * 102 / 100
}

// hearingBound is the longest that a dead subscription stays so: a check notices it, and another
// one is made.
func (c *cluster) hearingBound() time.Duration {
	return max(5*time.Second, c.pace.ttl/2) + 4*time.Second
}

// calm waits for what must come after the last fault, keeps what did not, and returns who leads:
// nil if a foreign client does.
func (c *cluster) calm(profile profile) *instance {
	bound, hearing := c.leaderBound(profile), c.hearingBound()
	time.Sleep(max(bound, hearing).Round(odd))
	leader := c.leader()
	if foreign := c.check.foreign; leader == nil && (foreign == nil || !foreign.leads()) {
		c.check.fail("P7: nobody leads %v after the last fault", bound)
	}
	c.ledMore(bound)
	c.hear()
	return leader
}

// ledMore holds the further roles against P7 too.
func (c *cluster) ledMore(bound time.Duration) {
	led := map[string]bool{}
	for _, instance := range c.instances {
		if life := instance.life.Load(); life != nil {
			for _, e := range life.more {
				led[e.Role()] = led[e.Role()] || e.IsLeader()
			}
		}
	}
	for role, leads := range led {
		if !leads {
			c.check.fail("P7: nobody leads role %s %v after the last fault", role, bound)
		}
	}
}

// hear holds every process to its subscription.
func (c *cluster) hear() {
	for _, instance := range c.instances {
		if instance.life.Load() != nil && !c.net.Hears(instance.name) {
			c.check.fail("P7: the subscription of %s is dead, and nobody has noticed within %v", instance.name, c.hearingBound())
		}
	}
}

// ran holds every task to its policy after a calm: it has begun a run of late, and the last slot is
// not overdue.
func (c *cluster) ran() {
	now := c.redis.Now()
	c.check.mu.Lock()
	defer c.check.mu.Unlock()
	for name, t := range c.check.tasks {
		patience := t.every + 2*t.work + 4*time.Second // the run of the slot before may be on, and be tried again
		if late := now.Sub(t.began); t.began.IsZero() || late > patience {
			c.check.failed("P10: no run of %s began within %v of calm: the last one began %v ago", name, patience, late)
		}
	}
}
