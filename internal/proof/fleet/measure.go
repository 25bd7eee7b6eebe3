//go:build unix

package fleet

import (
	"maps"
	"slices"
	"time"
)

// Times sums measured durations up.
type Times struct {
	Count         int
	P50, P99, Max time.Duration
}

func sum(samples []time.Duration) Times {
	if len(samples) == 0 {
		return Times{}
	}
	slices.Sort(samples)
	at := func(q float64) time.Duration { return samples[min(int(q*float64(len(samples))), len(samples)-1)] }
	return Times{Count: len(samples), P50: at(0.5), P99: at(0.99), Max: samples[len(samples)-1]}
}

// tally is what was measured in one cluster, or in several.
type tally struct {
	faults     map[string]*faultTally
	terms      int
	changes    int
	failovers  int
	gaps       []time.Duration
	crashes    []time.Duration // gaps after the kill of a leader on a Redis that nothing disturbs
	handOvers  []time.Duration // from the end of the work to the next leader, likewise after a stop or resignation
	overlaps   []Overlap
	accepted   int
	refused    int
	cancels    []time.Duration // from the cancel point to the end of the context, of processes that were scheduled
	stalled    int             // terms that expired in a process that was not
	stops      []time.Duration // from SIGTERM to the return of Run
	drainLate  int             // of which with ErrDrainTimeout
	slots      int
	runs       int
	removed    int
	calms      []calmFigures
	asked      askedFigures
	deploys    deployFigures
	violations []Violation
}

// faultTally is what came of one kind of fault.
type faultTally struct {
	rounds, changes int
	gaps            []time.Duration
	variants        map[string]bool
}

// The faults whose gaps are those that P7 speaks of.
const (
	faultKill   = "kill the leader"
	faultStop   = "stop the leader"
	faultResign = "resign"

	faultDrain = "drain the leader for a time"
)

// measure takes the figures of a log that was checked.
func (c *checker) measure() *tally {
	m := &tally{faults: map[string]*faultTally{}, terms: len(c.terms), overlaps: c.overlaps, calms: c.calms, asked: c.asked, deploys: c.deploys, violations: c.found}
	for _, s := range c.strikes {
		f := m.fault(s.Text)
		f.rounds++
		f.variants[s.Strike.What] = true
		if s.Strike.Failover {
			m.failovers++
		}
	}
	c.measureGaps(m)
	slots := map[int64]bool{}
	for i := range c.entries {
		switch e := &c.entries[i]; {
		case e.Kind == Wrote && e.OK:
			m.accepted++
		case e.Kind == Wrote:
			m.refused++
		case e.Kind == RunBegan:
			m.runs++
			slots[e.Slot] = true
		case e.Kind == Removed:
			m.removed++
		}
	}
	m.slots = len(slots)
	for _, s := range c.work {
		switch {
		case s.end == nil || s.end.Text != endLost || s.end.Deadline == 0:
		case s.end.Stall > scheduled:
			m.stalled++
		default:
			if late := s.end.Cancelled - s.end.Deadline + c.Guard; late >= 0 { // not refused before
				m.cancels = append(m.cancels, late)
			}
		}
	}
	for _, l := range c.lives {
		if l.stopped != nil && l.asked != 0 {
			m.stops = append(m.stops, l.stopped.At-l.asked)
			if !l.stopped.OK {
				m.drainLate++
			}
		}
	}
	return m
}

// measureGaps takes the time from the end of one belief to the begin of the next, and the fault
// that it belongs to.
func (c *checker) measureGaps(m *tally) {
	var led time.Duration // until when anybody did
	for i := range c.terms {
		t := &c.terms[i]
		if i > 0 {
			gap := max(t.At-led, 0)
			m.changes++
			m.gaps = append(m.gaps, gap)
			if s := c.before(t.At); s != nil {
				f := m.fault(s.Text)
				f.changes++
				f.gaps = append(f.gaps, gap)
				switch {
				case led < s.At-c.LeaseTTL/10, c.unsettled(s.At): // not of this fault alone
				case s.Text == faultKill:
					m.crashes = append(m.crashes, gap)
				case s.Text == faultStop, s.Text == faultResign: // the lease is given back when the work has ended
					m.handOvers = append(m.handOvers, max(t.At-c.drained(t), 0))
				}
			}
		}
		led = max(led, t.Until)
	}
}

// unsettled reports whether Redis was disturbed within two leases before some time: what P7 says
// does not hold then.
func (c *checker) unsettled(at time.Duration) bool {
	return slices.ContainsFunc(c.strikes, func(s Entry) bool {
		return s.Strike.All && s.At < at && s.Until+2*c.LeaseTTL+time.Second >= at
	})
}

// drained is when the last work ended that was given up before a term began.
func (c *checker) drained(t *Entry) (at time.Duration) {
	for of, s := range c.work {
		if of.token < t.Token && s.end != nil && s.until <= t.At {
			at = max(at, s.until)
		}
	}
	return at
}

// before is the last strike that began before some time.
func (c *checker) before(at time.Duration) (last *Entry) {
	for i := range c.strikes {
		if c.strikes[i].At <= at {
			last = &c.strikes[i]
		}
	}
	return last
}

func (m *tally) fault(name string) *faultTally {
	f := m.faults[name]
	if f == nil {
		f = &faultTally{variants: map[string]bool{}}
		m.faults[name] = f
	}
	return f
}

// add adds another cluster.
func (m *tally) add(o *tally) {
	for name, f := range o.faults {
		mine := m.fault(name)
		mine.rounds += f.rounds
		mine.changes += f.changes
		mine.gaps = append(mine.gaps, f.gaps...)
		maps.Copy(mine.variants, f.variants)
	}
	m.terms += o.terms
	m.changes += o.changes
	m.failovers += o.failovers
	m.gaps = append(m.gaps, o.gaps...)
	m.crashes = append(m.crashes, o.crashes...)
	m.handOvers = append(m.handOvers, o.handOvers...)
	m.overlaps = append(m.overlaps, o.overlaps...)
	m.accepted += o.accepted
	m.refused += o.refused
	m.cancels = append(m.cancels, o.cancels...)
	m.stalled += o.stalled
	m.stops = append(m.stops, o.stops...)
	m.drainLate += o.drainLate
	m.slots += o.slots
	m.runs += o.runs
	m.removed += o.removed
	m.calms = append(m.calms, o.calms...)
	m.asked.add(&o.asked)
	m.deploys.add(&o.deploys)
	m.violations = append(m.violations, o.violations...)
}
