//go:build unix

package fleet

import (
	"slices"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// processFaults are what happens to the members of a fleet.
var processFaults = []fault{
	{faultKill, 6, func(c *cluster) Strike {
		s := c.victim()
		s.kill()
		c.awaitOther(s, c.ttls(2, 2))
		return Strike{Targets: names(s)}
	}},
	{"kill a follower", 1, func(c *cluster) Strike {
		s := c.follower()
		s.kill()
		c.rest(0, c.ttls(1, 1))
		return Strike{Targets: names(s)}
	}},
	{"freeze the leader past its lease", 4, func(c *cluster) Strike {
		s := c.victim()
		s.freeze()
		c.wait(c.ttls(1.1, 2.5))
		s.thaw()
		c.rest(0, c.ttls(0.3, 0.3))
		return Strike{Stopped: true, Targets: names(s)}
	}},
	{"freeze the leader for a moment", 1, func(c *cluster) Strike {
		s := c.victim()
		s.freeze()
		c.wait(c.ttls(0.05, 1))
		s.thaw()
		return Strike{Stopped: true, Targets: names(s)}
	}},
	{faultStop, 5, func(c *cluster) Strike {
		s := c.victim()
		s.stop()
		c.awaitOther(s, c.ttls(2, 2))
		return Strike{Targets: names(s)}
	}},
	{faultResign, 4, func(c *cluster) Strike {
		s := c.victim()
		s.resign()
		c.awaitOther(s, c.ttls(1, 1))
		return Strike{}
	}},
	{"transfer to the best", 3, func(c *cluster) Strike {
		s := c.victim()
		s.transfer()
		c.awaitOther(s, c.ttls(1, 1))
		return Strike{}
	}},
	{faultDrain, 2, func(c *cluster) Strike {
		s := c.victim()
		s.drain()
		c.awaitOther(s, c.ttls(2, 2))
		c.rest(0, c.ttls(1, 1))
		return Strike{}
	}},
	{"drain all, one after the other", 1, func(c *cluster) Strike { // before maintenance of each
		for _, s := range c.instances {
			s.drain()
			c.awaitOther(s, c.ttls(2, 2))
			c.wait(c.ttls(1, 1.3))
		}
		return Strike{}
	}},
	{"roll out", 1, func(c *cluster) Strike { // one after the other, as a deployment does
		for _, s := range c.instances {
			s.stop()
			c.rest(0, c.ttls(0.3, 0.3))
			s.start()
		}
		return Strike{Targets: names(c.instances...)}
	}},
	{"stop all, start all", 1, func(c *cluster) Strike {
		for _, s := range c.instances {
			s.ask()
		}
		for _, s := range c.instances {
			s.awaitStop()
		}
		return Strike{Targets: names(c.instances...)}
	}},
	{"busy processors", 1, func(c *cluster) Strike {
		err := redistest.Do(func(t redistest.TB) {
			redistest.StartChild(t, spinnerChild)
			c.wait(c.ttls(1, 3))
		})
		if err != nil {
			c.t.Errorf("fleet: %v", err)
		}
		return Strike{All: true}
	}},
}

// turnover is what has another member lead, and nothing else.
var turnover = pick(processFaults, faultKill, faultStop, faultResign)

// pick picks faults by name.
func pick(of []fault, names ...string) (picked []fault) {
	for _, f := range of {
		if slices.Contains(names, f.name) {
			picked = append(picked, f)
		}
	}
	return picked
}
