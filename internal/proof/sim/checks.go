package sim

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
)

// checks is what has to be remembered to hold the promises.
type checks struct {
	w *World

	crashed, freed time.Duration // the leader crashed, or gave its lease back, and nobody has followed yet; 0: no
	termBegan      time.Duration // of who leads
	grants         map[int64]grant

	held    time.Duration // end of the last hold of the sweeps
	back    time.Duration // by how much Redis's clock was set back, in all
	beats   [processes]beaten
	booted  [processes]time.Duration
	tasks   []taskCheck
	running []*process // by task: whose run is on
}

// beaten is the last beat of an instance that Redis has taken.
type beaten struct {
	clock   int64 // Redis's
	crashed time.Duration
	dead    string        // incarnation that crashed
	back    time.Duration // checks.back at that time
}

// grant is what a server knew when it granted a token.
type grant struct {
	clock int64 // Redis's
	named int64 // the highest token that a request had named there
}

// overlap measures for how long two believed to lead, outside of the conditions of P1.
type overlap struct{ since time.Duration }

func (c *checks) start(w *World) {
	c.w = w
	c.grants = map[int64]grant{}
	c.tasks, c.running = make([]taskCheck, len(tasks)), make([]*process, len(tasks))
}

// took notes that a term began or was renewed: nobody else may believe to lead at this instant (P1).
func (w *World) took(p *process) {
	for _, other := range w.processes {
		if other != p && other.believes() && !w.profile.Outside {
			w.fail("P1: overlap: %s has token %d while %s leads with token %d", p.id, p.cand.Token(), other.id, other.cand.Token())
		}
	}
}

// answered holds P2 where tokens come from: none is granted that a request has named before, since the server lost data.
func (c *checks) answered(m *machine, r lease.Request, a lease.Answer, before, now int64) {
	known := max(m.named, r.Floor)
	if a.Verdict == lease.Won && a.Token != before {
		if a.Token <= known {
			c.w.fail("P2: token %d is granted though a request has named %d", a.Token, known)
		}
		c.grants[a.Token] = grant{now, known}
	}
	m.named = max(known, r.Token, a.Token)
}

// forgotten reports whether a token may be below that of an earlier term, as P2 says: nobody who remembers could ask since the data
// were lost, and Redis's clock is not past the earlier token.
func (c *checks) forgotten(token, earlier int64) bool {
	g, known := c.grants[token]
	return known && g.named < earlier && g.clock <= earlier
}

// measure adds up how long more than one believed to lead.
func (w *World) measure() {
	believers := 0
	for _, p := range w.processes {
		if p.believes() {
			believers++
		}
	}
	switch on := w.overlaps.since > 0; {
	case believers > 1 && !on:
		w.overlaps.since = w.now
	case believers < 2 && on:
		w.Tally.overlapped(w.now - w.overlaps.since)
		w.overlaps.since = 0
	}
}

// handover notes that a leader is about to give its lease back of its own will.
func (w *World) handover() { w.checks.crashed = 0 }

func (c *checks) crashing(p *process) {
	c.beats[p.host].crashed, c.beats[p.host].dead = c.w.now, p.beats.incarnation
	if p.believes() {
		c.crashed, c.freed = c.w.now, 0
	}
}

// released notes that a lease went back: somebody may take it now.
func (c *checks) released() { c.freed, c.crashed = c.w.now, 0 }

// began holds P7 in calm profiles.
func (c *checks) began(p *process) {
	w := c.w
	c.termBegan = w.now
	crashed, freed := c.crashed, c.freed
	c.crashed, c.freed = 0, 0
	if !w.profile.Calm {
		return
	}
	const trip = 2 * 3 * time.Millisecond
	switch {
	case crashed > 0:
		gap := w.now - crashed
		w.Tally.Crash.add(gap)
		if bound := p.timing.TTL + 50*time.Millisecond + trip; gap > bound {
			w.fail("P7: %v from the crash to the next leader, at most %v is promised", gap, bound)
		}
	case freed > 0:
		gap := w.now - freed
		w.Tally.Handover.add(gap)
		if bound := 20*time.Millisecond + trip; gap > bound {
			w.fail("P7: %v from the release to the next leader, at most %v is promised", gap, bound)
		}
	}
}

// lostData forgets what only Redis knew, and what a clock said that is no longer asked.
func (w *World) lostData() {
	clear(w.checks.tasks)
	for i := range w.checks.beats {
		w.checks.beats[i].clock = 0
	}
}

// booting: whoever was dead for long enough, under one leader, must have been swept (P9 the other way round).
func (c *checks) booting(p *process) {
	w, b := c.w, &c.beats[p.host]
	c.booted[p.host] = w.now
	t := w.timings()
	due := max(b.crashed+t.down+t.drifted, c.held) // a hold ends after the last one that it began with was down
	due += c.back - b.back                         // by Redis's clock it has been silent for so much less
	due += 12 * t.sweep
	if w.profile.Random { // a sweep may be far shorter than the time that a lost answer is waited for
		due += 15 * membership.MaxBound
	}
	if b.dead != "" && w.now > due && w.leading() != nil && c.termBegan < b.crashed {
		if i, there := w.master.registry.Instances[p.id]; there && i.Incarnation == b.dead {
			w.fail("P9: %s has been dead for %v and was not swept", p.id, w.now-b.crashed)
		}
	}
	b.dead = ""
}
