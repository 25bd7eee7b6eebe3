//go:build unix

package fleet

import "github.com/tenure-go/tenure/internal/proof/redistest"

const faultRedisKill = "Redis is killed and started"

// serverFaults are what happens to one redis-server and to what it holds.
func (w *single) serverFaults() []fault {
	lost := Strike{All: true, Records: true}
	flushed := func(c *cluster, while func(*redistest.Proxy), s *instance) {
		s.link.each(while)
		c.rest(0, c.ttls(0.3, 0.3))
		w.must(c, "FLUSHALL")
		c.wait(c.ttls(1, 1.5))
	}
	return []fault{
		{"the lease is deleted", 3, func(c *cluster) Strike {
			w.must(c, "DEL", leaderKey)
			c.wait(c.ttls(0.5, 1.5))
			return Strike{}
		}},
		{"the term is deleted", 2, func(c *cluster) Strike {
			w.must(c, "DEL", leaderKey+":term")
			c.wait(c.ttls(0.5, 1.5))
			return Strike{}
		}},
		{"FLUSHALL", 3, func(c *cluster) Strike {
			w.must(c, "FLUSHALL")
			c.wait(c.ttls(0.5, 1.5))
			return lost
		}},
		{"FLUSHALL out of the leader's reach", 2, func(c *cluster) Strike {
			s := c.victim()
			flushed(c, (*redistest.Proxy).Blackhole, s)
			return Strike{Targets: names(s), All: true, Records: true, Overlap: true}
		}},
		{"FLUSHALL, then the leader is killed", 2, func(c *cluster) Strike {
			s := c.victim()
			w.must(c, "FLUSHALL")
			s.kill()
			c.awaitOther(s, c.ttls(3, 3))
			return Strike{Targets: names(s), All: true, Records: true, Overlap: true}
		}},
		{"SCRIPT FLUSH", 1, func(c *cluster) Strike {
			w.must(c, "SCRIPT", "FLUSH")
			c.wait(c.ttls(0.3, 1))
			return Strike{}
		}},
		{"connections are killed", 1, func(c *cluster) Strike {
			w.must(c, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			c.wait(c.ttls(0.1, 0.5))
			return Strike{All: true}
		}},
		{"subscriptions are killed", 1, func(c *cluster) Strike {
			w.must(c, "CLIENT", "KILL", "TYPE", "pubsub")
			s := c.victim()
			s.stop() // its hint finds nobody
			c.awaitOther(s, c.ttls(2, 2))
			return Strike{Targets: names(s)}
		}},
		{"a slow script", 1, func(c *cluster) Strike {
			w.must(c, "EVAL", "for i = 1, tonumber(ARGV[1]) do end return 1", 0, 1+c.rng.IntN(60_000_000))
			c.wait(c.ttls(0.1, 0.5))
			return Strike{All: true}
		}},
		{"Redis is frozen", 3, func(c *cluster) Strike {
			w.server.Pause(c.t)
			c.wait(c.ttls(0.2, 2))
			w.server.Resume(c.t)
			c.wait(c.ttls(0, 0.5))
			return Strike{All: true}
		}},
		{"Redis is restarted", 3, func(c *cluster) Strike {
			w.server.Restart(c.t)
			c.wait(c.ttls(0.3, 1))
			return Strike{All: true, Records: !w.keeps}
		}},
		{faultRedisKill, 3, func(c *cluster) Strike {
			w.server.Kill(c.t)
			c.wait(c.ttls(0, 1.5))
			w.server.Start(c.t)
			c.wait(c.ttls(0.3, 1))
			return Strike{All: true, Records: !w.keeps}
		}},
		{"Redis and the leader are killed", 2, func(c *cluster) Strike {
			s := c.victim()
			s.kill()
			w.server.Kill(c.t)
			w.server.Start(c.t)
			c.awaitOther(s, c.ttls(4, 4))
			return Strike{Targets: names(s), All: true, Records: !w.keeps}
		}},
	}
}
