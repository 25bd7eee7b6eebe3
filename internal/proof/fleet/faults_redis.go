//go:build unix

package fleet

import "github.com/tenure-go/tenure/internal/proof/redistest"

const faultRedisKill = "Redis is killed and started"

// serverFaults are what happens to one redis-server and to what it holds.
func (w *single) serverFaults() []fault {
	lost := Strike{All: true, Records: true}
	flushed := func(a *arena, while func(*redistest.Proxy), s *seat) {
		s.link.each(while)
		a.rest(0, a.ttls(0.3, 0.3))
		w.must(a, "FLUSHALL")
		a.wait(a.ttls(1, 1.5))
	}
	return []fault{
		{"the lease is deleted", 3, func(a *arena) Strike {
			w.must(a, "DEL", leaderKey)
			a.wait(a.ttls(0.5, 1.5))
			return Strike{}
		}},
		{"the term is deleted", 2, func(a *arena) Strike {
			w.must(a, "DEL", leaderKey+":term")
			a.wait(a.ttls(0.5, 1.5))
			return Strike{}
		}},
		{"FLUSHALL", 3, func(a *arena) Strike {
			w.must(a, "FLUSHALL")
			a.wait(a.ttls(0.5, 1.5))
			return lost
		}},
		{"FLUSHALL out of the leader's reach", 2, func(a *arena) Strike {
			s := a.victim()
			flushed(a, (*redistest.Proxy).Blackhole, s)
			return Strike{Targets: names(s), All: true, Records: true, Overlap: true}
		}},
		{"FLUSHALL, then the leader is killed", 2, func(a *arena) Strike {
			s := a.victim()
			w.must(a, "FLUSHALL")
			s.kill()
			a.awaitOther(s, a.ttls(3, 3))
			return Strike{Targets: names(s), All: true, Records: true, Overlap: true}
		}},
		{"SCRIPT FLUSH", 1, func(a *arena) Strike {
			w.must(a, "SCRIPT", "FLUSH")
			a.wait(a.ttls(0.3, 1))
			return Strike{}
		}},
		{"connections are killed", 1, func(a *arena) Strike {
			w.must(a, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			a.wait(a.ttls(0.1, 0.5))
			return Strike{All: true}
		}},
		{"subscriptions are killed", 1, func(a *arena) Strike {
			w.must(a, "CLIENT", "KILL", "TYPE", "pubsub")
			s := a.victim()
			s.stop() // its hint finds nobody
			a.awaitOther(s, a.ttls(2, 2))
			return Strike{Targets: names(s)}
		}},
		{"a slow script", 1, func(a *arena) Strike {
			w.must(a, "EVAL", "for i = 1, tonumber(ARGV[1]) do end return 1", 0, 1+a.rng.IntN(60_000_000))
			a.wait(a.ttls(0.1, 0.5))
			return Strike{All: true}
		}},
		{"Redis is frozen", 3, func(a *arena) Strike {
			w.server.Pause(a.t)
			a.wait(a.ttls(0.2, 2))
			w.server.Resume(a.t)
			a.wait(a.ttls(0, 0.5))
			return Strike{All: true}
		}},
		{"Redis is restarted", 3, func(a *arena) Strike {
			w.server.Restart(a.t)
			a.wait(a.ttls(0.3, 1))
			return Strike{All: true, Records: !w.keeps}
		}},
		{faultRedisKill, 3, func(a *arena) Strike {
			w.server.Kill(a.t)
			a.wait(a.ttls(0, 1.5))
			w.server.Start(a.t)
			a.wait(a.ttls(0.3, 1))
			return Strike{All: true, Records: !w.keeps}
		}},
		{"Redis and the leader are killed", 2, func(a *arena) Strike {
			s := a.victim()
			s.kill()
			w.server.Kill(a.t)
			w.server.Start(a.t)
			a.awaitOther(s, a.ttls(4, 4))
			return Strike{Targets: names(s), All: true, Records: !w.keeps}
		}},
	}
}
