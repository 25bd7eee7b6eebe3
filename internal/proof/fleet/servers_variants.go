//go:build unix

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// slowScripts has a server answer BUSY soon.
var slowScripts = redistest.Args("--busy-reply-threshold", "50")

func openPlain(t redistest.TB, i int) servers { return newSingle(t, i%2 == 0, slowScripts) }

// openRights starts a server whose members log in as a user with the rights that tenure asks for,
// and no more. Those are taken away one by one.
func openRights(t redistest.TB, _ int) servers {
	rules, err := tenure.ACLRules(prefix)
	if err != nil {
		t.Fatalf("fleet: %v", err)
	}
	const name, password = "app", "secret"
	w := newSingle(t, true, redistest.Args(append([]string{"--user", name, "on", ">" + password}, rules...)...))
	w.conn.Username, w.conn.Password = name, password
	w.deck = slices.Clone(turnover)
	for _, rule := range rules {
		command, is := strings.CutPrefix(rule, "+")
		if !is {
			continue
		}
		w.deck = append(w.deck, fault{"a right is taken away", 1, func(c *cluster) Strike {
			w.must(c, "ACL", "SETUSER", name, "-"+command)
			c.wait(c.ttls(0.2, 1))
			if c.rng.IntN(2) == 0 {
				c.victim().resign() // what a renewal does without, a hand-over may need
			}
			c.wait(c.ttls(0.2, 1))
			w.must(c, "ACL", "SETUSER", name, "+"+command)
			return Strike{All: true, What: command}
		}})
	}
	return w
}

// evictions are the policies of a Redis that makes room.
var evictions = []string{
	"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl",
}

// openMemory starts a server whose memory gets short.
func openMemory(t redistest.TB, _ int) servers {
	w := newSingle(t, true)
	full := func(c *cluster, then func()) Strike {
		w.server.ConfigSet(c.t, "maxmemory-policy", "noeviction")
		w.server.ConfigSet(c.t, "maxmemory", "1")
		then()
		c.wait(c.ttls(0.5, 3))
		w.server.ConfigSet(c.t, "maxmemory", "0")
		return Strike{All: true}
	}
	w.deck = append(slices.Clone(turnover),
		fault{"Redis is full", 5, func(c *cluster) Strike { return full(c, func() {}) }},
		fault{"Redis is full at a hand-over", 5, func(c *cluster) Strike { return full(c, func() { c.victim().resign() }) }},
		fault{"Redis is full when the leader is killed", 5, func(c *cluster) Strike {
			s := c.victim()
			return full(c, s.kill)
		}},
	)
	for _, policy := range evictions {
		w.deck = append(w.deck, fault{"eviction, " + policy, 2, func(c *cluster) Strike {
			w.server.ConfigSet(c.t, "maxmemory-policy", policy)
			w.server.ConfigSet(c.t, "maxmemory", "3mb")
			w.load(c)
			w.server.ConfigSet(c.t, "maxmemory", "0")
			c.wait(c.ttls(0.2, 1))
			return Strike{All: true, Records: true}
		}})
	}
	return w
}

// load fills the server with what nobody needs, twice its memory, and takes away what is left of
// it.
func (w *single) load(c *cluster) {
	const count, size = 300, 20_000
	text := strings.Repeat("x", size)
	filling, filled := bounded()
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("load:%d", i))
		if w.operator.Set(filling, names[i], text, time.Minute).Err() != nil && i > count/2 {
			break // there is nothing left to make room of; the client asks several times
		}
	}
	filled()
	ctx, cancel := bounded()
	defer cancel()
	if err := w.operator.Unlink(ctx, names...).Err(); err != nil {
		c.t.Errorf("fleet: unlink: %v", err)
	}
}

// openClock starts a server with a wall clock of its own, which is stepped.
func openClock(t redistest.TB, _ int) servers {
	clock, option := redistest.NewClock(t)
	w := newSingle(t, true, option)
	step := func(name string, weight int, ahead bool, by func(c *cluster) time.Duration) fault {
		return fault{name, weight, func(c *cluster) Strike {
			clock.Step(c.t, by(c))
			c.wait(c.ttls(0.5, 2))
			return Strike{All: true, Records: true, Overlap: ahead}
		}}
	}
	w.deck = append(slices.Clone(turnover),
		step("Redis's clock jumps ahead within a lease", 5, true, func(c *cluster) time.Duration { return c.ttls(0.1, 1) }),
		step("Redis's clock jumps ahead by more than a lease", 5, true, func(c *cluster) time.Duration { return c.ttls(1, 10) }),
		step("Redis's clock jumps back", 5, false, func(c *cluster) time.Duration { return -c.ttls(0.1, 10) }),
		step("Redis's clock jumps back by an hour", 2, false, func(*cluster) time.Duration { return -time.Hour }),
		step("Redis's clock jumps ahead by an hour", 2, true, func(*cluster) time.Duration { return time.Hour }),
	)
	return w
}

// openTLS starts a server that speaks TLS.
func openTLS(t redistest.TB, _ int) servers {
	authority := redistest.NewAuthority(t)
	w := newSingle(t, true, redistest.Secured(authority))
	w.conn.CA = authority.PEM(t)
	w.deck = slices.Concat(turnover, networkFaults, pick(w.serverFaults(), faultRedisKill))
	return w
}
