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
	{"old buffers drain", 2, func(a *arena) Strike { // requests of long ago arrive when a new path has long been in use
		s := a.victim()
		s.link.each((*redistest.Proxy).HoldRequests)
		a.wait(a.ttls(0.2, 1.5))
		s.link.each((*redistest.Proxy).HealNew)
		a.awaitOther(s, a.ttls(1, 2))
		s.link.each((*redistest.Proxy).ReleaseHeld)
		a.wait(a.ttls(0, 0.5))
		return Strike{Targets: names(s)}
	}},
	{"replies are lost at random", 2, func(a *arena) Strike {
		share := 0.05 + 0.3*a.rng.Float64()
		for _, s := range a.seats {
			s.link.each(func(p *redistest.Proxy) {
				p.LoseReply(func([]string) bool { return rand.Float64() < share })
			})
		}
		a.wait(a.ttls(1, 4))
		return Strike{Targets: names(a.seats...)}
	}},
	{"slow network", 2, func(a *arena) Strike {
		delay, jitter := a.ttls(0, 0.1), a.ttls(0, 0.2)
		for _, s := range a.seats {
			s.link.each(func(p *redistest.Proxy) {
				p.DelayRequests(delay, jitter)
				p.DelayReplies(delay/2, jitter)
			})
		}
		a.wait(a.ttls(1, 4))
		return Strike{Targets: names(a.seats...)}
	}},
	{"replies slower than the lease", 1, func(a *arena) Strike {
		s, delay := a.victim(), a.ttls(0.5, 1.3)
		s.link.each(func(p *redistest.Proxy) { p.DelayReplies(delay, delay/10) })
		a.wait(a.ttls(1, 3))
		return Strike{Targets: names(s)}
	}},
	{"bytes trickle", 1, func(a *arena) Strike {
		s, n := a.victim(), 1+a.rng.IntN(64)
		s.link.each(func(p *redistest.Proxy) { p.SlowBytes(n, a.election.LeaseTTL/100) })
		a.wait(a.ttls(0.5, 2))
		return Strike{Targets: names(s)}
	}},
}

// onLeader does something to the links of the leader, for a number of lease times.
func onLeader(do func(*redistest.Proxy), low, high float64) func(*arena) Strike {
	return func(a *arena) Strike {
		s := a.victim()
		s.link.each(do)
		a.wait(a.ttls(low, high))
		return Strike{Targets: names(s)}
	}
}

// onAll does it to everybody's.
func onAll(do func(*redistest.Proxy), low, high float64) func(*arena) Strike {
	return func(a *arena) Strike {
		for _, s := range a.seats {
			s.link.each(do)
		}
		a.wait(a.ttls(low, high))
		return Strike{Targets: names(a.seats...)}
	}
}
