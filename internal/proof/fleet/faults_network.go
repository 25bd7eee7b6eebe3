//go:build unix

package fleet

import (
	"math/rand/v2"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// networkFaults are what happens to the links between the members of a fleet and Redis.
var networkFaults = []fault{
	{"cut the leader off", 3, onLeader((*redistest.Proxy).Cut, 1, 2)},
	{"black hole around the leader", 3, onLeader((*redistest.Proxy).Blackhole, 1, 2)},
	{"requests of the leader are lost", 2, onLeader((*redistest.Proxy).DropRequests, 0.5, 2)},
	{"replies to the leader are lost", 2, onLeader((*redistest.Proxy).DropReplies, 0.5, 2)},
	{"requests of the leader come late", 2, onLeader((*redistest.Proxy).HoldRequests, 0.5, 2)},
	{"connections of the leader are reset", 1, onLeader((*redistest.Proxy).Reset, 0, 0.2)},
	{"everybody is cut off", 1, onAll((*redistest.Proxy).Cut, 0.3, 1.5)},
	{"old buffers drain", 2, func(c *cluster) Strike { // requests of long ago arrive when a new path has long been in use
		s := c.victim()
		s.link.each((*redistest.Proxy).HoldRequests)
		c.wait(c.ttls(0.2, 1.5))
		s.link.each((*redistest.Proxy).HealNew)
		c.awaitOther(s, c.ttls(1, 2))
		s.link.each((*redistest.Proxy).ReleaseHeld)
		c.wait(c.ttls(0, 0.5))
		return Strike{Targets: names(s)}
	}},
	{"replies are lost at random", 2, func(c *cluster) Strike {
		share := 0.05 + 0.3*c.rng.Float64()
		for _, s := range c.instances {
			s.link.each(func(p *redistest.Proxy) {
				p.LoseReply(func([]string) bool { return rand.Float64() < share })
			})
		}
		c.wait(c.ttls(1, 4))
		return Strike{Targets: names(c.instances...)}
	}},
	{"slow network", 2, func(c *cluster) Strike {
		delay, jitter := c.ttls(0, 0.1), c.ttls(0, 0.2)
		for _, s := range c.instances {
			s.link.each(func(p *redistest.Proxy) {
				p.DelayRequests(delay, jitter)
				p.DelayReplies(delay/2, jitter)
			})
		}
		c.wait(c.ttls(1, 4))
		return Strike{Targets: names(c.instances...)}
	}},
	{"replies slower than the lease", 1, func(c *cluster) Strike {
		s, delay := c.victim(), c.ttls(0.5, 1.3)
		s.link.each(func(p *redistest.Proxy) { p.DelayReplies(delay, delay/10) })
		c.wait(c.ttls(1, 3))
		return Strike{Targets: names(s)}
	}},
	{"bytes trickle", 1, func(c *cluster) Strike {
		s, n := c.victim(), 1+c.rng.IntN(64)
		s.link.each(func(p *redistest.Proxy) { p.SlowBytes(n, c.election.LeaseTTL/100) })
		c.wait(c.ttls(0.5, 2))
		return Strike{Targets: names(s)}
	}},
}

// onLeader does something to the links of the leader, for a number of lease times.
func onLeader(do func(*redistest.Proxy), low, high float64) func(*cluster) Strike {
	return func(c *cluster) Strike {
		s := c.victim()
		s.link.each(do)
		c.wait(c.ttls(low, high))
		return Strike{Targets: names(s)}
	}
}

// onAll does it to everybody's.
func onAll(do func(*redistest.Proxy), low, high float64) func(*cluster) Strike {
	return func(c *cluster) Strike {
		for _, s := range c.instances {
			s.link.each(do)
		}
		c.wait(c.ttls(low, high))
		return Strike{Targets: names(c.instances...)}
	}
}
