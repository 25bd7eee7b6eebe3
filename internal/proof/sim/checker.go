package sim

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// checker is what has to be remembered to hold the promises.
type checker struct {
	cluster *Cluster

	crashed, freed time.Duration // the leader crashed, or gave its lease back, and nobody has followed yet; 0: no
	termBegan      time.Duration // of who leads
	grants         map[int64]grant
	beside         int64 // token of the last term that began while another led: see longestLost

	held     time.Duration // end of the last hold of the sweeps
	back     time.Duration // by how much Redis's clock was set back, in all
	beats    [processes]beaten
	booted   [processes]time.Duration
	tasks    []taskCheck
	finals   []string      // the last runs that are not to be tried again
	begun    []string      // the last runs that began of tasks which are to fail when they are left behind
	given    []string      // the last runs that were given back, on whatever master
	running  []*instance   // by task: whose run is on
	clockSet time.Duration // Redis's clock was last set, or another's took its place
	lost     time.Duration // Redis lost data
}

// beaten is the last beat of an instance that Redis has taken.
type beaten struct {
	clock   int64 // Redis's
	crashed time.Duration
	dead    string        // incarnation that crashed
	back    time.Duration // checker.back at that time
}

// grant is what a server knew when it granted a token.
type grant struct {
	clock   int64 // Redis's
	named   int64 // the highest token that a request had named there
	longest int64 // the longest TTL, or HoldOff, likewise
	at      time.Duration
}

// overlap measures for how long two believed to lead, outside of the conditions of P1.
type overlap struct{ since time.Duration }

func (k *checker) start(c *Cluster) {
	k.cluster = c
	k.grants = map[int64]grant{}
	k.clockSet = -setClock
	k.tasks, k.running = make([]taskCheck, numJobs), make([]*instance, numJobs)
}

// took notes that a term began or was renewed: nobody else may believe to lead at this instant
// (P1).
func (c *Cluster) took(p *instance) {
	for _, other := range c.instances {
		switch {
		case other == p || !other.believes() || c.profile.Outside:
		case c.checks.longestLost(p, other):
			c.checks.apart(p, other)
		default:
			c.fail("P1: overlap: %s has token %d while %s leads with token %d", p.id, p.cand.Token(), other.id, other.cand.Token())
		}
	}
}

// longestLost reports whether two may lead since one condition of P1 is broken: while TTLs differ,
// Redis has lost every request that named one as long as that of the older leader, and until the
// newer one was granted its lease nobody named one again, nor did that one itself.
func (k *checker) longestLost(p, other *instance) bool {
	newer, known := k.grants[p.cand.Token()]
	older, before := other, k.grants[other.cand.Token()]
	if before.at > newer.at {
		newer, older = before, p
	}
	return known && newer.longest < older.timing.TTL.Milliseconds()
}

// apart counts the terms that are on beside another of which Redis could not know.
func (k *checker) apart(p, other *instance) {
	if token := max(p.cand.Token(), other.cand.Token()); token != k.beside {
		k.beside = token
		k.cluster.Tally.LongestLost++
	}
}

// answered holds P2 where tokens come from: none is granted that a request has named before, since
// the server lost data.
func (k *checker) answered(m *machine, asker oracle.Asker, r lease.Request, a lease.Answer, before, now int64) {
	known := max(m.named, r.Floor)
	if r.Kind == lease.Acquire && a.Verdict != lease.Stale || a.Verdict == lease.Kept {
		m.longest = max(m.longest, asker.TTL, asker.HoldOff)
	}
	if a.Verdict == lease.Won && a.Token != before {
		if a.Token <= known {
			k.cluster.fail("P2: token %d is granted though a request has named %d", a.Token, known)
		}
		k.grants[a.Token] = grant{now, known, m.longest, k.cluster.now}
	}
	m.named = max(known, r.Token, a.Token)
}

// forgotten reports whether a token may be below that of an earlier term, as P2 says: nobody who
// remembers could ask since the data were lost, and Redis's clock is not past the earlier token.
func (k *checker) forgotten(token, earlier int64) bool {
	g, known := k.grants[token]
	return known && g.named < earlier && g.clock <= earlier
}

// measure adds up how long more than one believed to lead.
func (c *Cluster) measure() {
	believers := 0
	for _, p := range c.instances {
		if p.believes() {
			believers++
		}
	}
	switch on := c.overlaps.since > 0; {
	case believers > 1 && !on:
		c.overlaps.since = c.now
	case believers < 2 && on:
		c.Tally.overlapped(c.now - c.overlaps.since)
		c.overlaps.since = 0
	}
}

// handover notes that a leader is about to give its lease back of its own will.
func (c *Cluster) handover() { c.checks.crashed = 0 }

func (k *checker) crashing(p *instance) {
	k.beats[p.host].crashed, k.beats[p.host].dead = k.cluster.now, p.beats.incarnation
	if p.believes() {
		k.crashed, k.freed = k.cluster.now, 0
	}
}

// released notes that a lease went back: somebody may take it now.
func (k *checker) released() { k.freed, k.crashed = k.cluster.now, 0 }

// began holds P7 in calm profiles.
func (k *checker) began(p *instance) {
	c := k.cluster
	k.termBegan = c.now
	crashed, freed := k.crashed, k.freed
	k.crashed, k.freed = 0, 0
	if !c.profile.Calm {
		return
	}
	const trip = 2 * 3 * time.Millisecond
	switch {
	case crashed > 0:
		gap := c.now - crashed
		c.Tally.Crash.add(gap)
		if bound := p.timing.TTL + 50*time.Millisecond + trip + c.slice(p) + c.ramp(p); gap > bound {
			c.fail("P7: %v from the crash to the next leader, at most %v is promised", gap, bound)
		}
	case freed > 0:
		gap := c.now - freed
		c.Tally.Handover.add(gap)
		if bound := 20*time.Millisecond + trip + c.slice(p) + c.ramp(p); gap > bound {
			c.fail("P7: %v from the release to the next leader, at most %v is promised", gap, bound)
		}
	}
}

// lostData forgets what only Redis knew, and what a clock said that is no longer asked.
func (c *Cluster) lostData() {
	c.checks.lost = c.now
	clear(c.checks.tasks)
	c.checks.clockSet = c.now
	for i := range c.checks.beats {
		c.checks.beats[i].clock = 0
	}
}

// booting: an instance that was dead for long enough, under one leader, must have been swept (P9
// the other way round).
func (k *checker) booting(p *instance) {
	c, b := k.cluster, &k.beats[p.host]
	k.booted[p.host] = c.now
	t := c.timings()
	due := max(b.crashed+t.down+t.drifted, k.held) // a hold ends after the last one that it began with was down
	due += k.back - b.back                         // by Redis's clock it has been silent for so much less
	due += 12 * t.sweep
	if c.profile.Random { // a sweep may be far shorter than the time that a lost answer is waited for
		due += 15 * membership.MaxBound
	}
	if b.dead != "" && c.now > due && c.leading() != nil && k.termBegan < b.crashed {
		if i, there := c.master.registry.Instances[p.id]; there && i.Incarnation == b.dead {
			c.fail("P9: %s has been dead for %v and was not swept", p.id, c.now-b.crashed)
		}
	}
	b.dead = ""
}
