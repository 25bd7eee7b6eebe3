//go:build unix

package fleet

import (
	"cmp"
	"slices"
	"time"
)

// checkTerms holds beliefs against P1 (no two at an instant), P2 (tokens increase) and P4 (not past
// the deadline, never again).
func (c *checker) checkTerms() {
	slices.SortStableFunc(c.terms, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	highest := &Entry{}
	var recent []*Entry // those that may still be believed in: ends are not in order
	for i := range c.terms {
		t := &c.terms[i]
		if t.Token <= highest.Token {
			if t.Token == highest.Token && t.process() == highest.process() {
				c.violated("P4", t.At, "%v believed again in its term under token %d, which had ended", t.process(), t.Token)
			} else {
				c.violated("P2", t.At, "%v led under token %d after %v under %d", t.process(), t.Token, highest.process(), highest.Token)
			}
		} else {
			highest = t
		}
		recent = slices.DeleteFunc(recent, func(e *Entry) bool { return e.Until < t.At })
		for _, e := range recent {
			c.overlapped(e, t, min(e.Until, t.Until)-t.At)
		}
		recent = append(recent, t)
		if late := t.Until - t.Deadline; t.Deadline != 0 && late >= 0 {
			c.violated("P4", t.Until, "%v believed to lead under token %d for %v past its deadline", t.process(), t.Token, late)
		}
	}
}

// overlapped takes note that two led at the same time.
func (c *checker) overlapped(earlier, later *Entry, lasted time.Duration) {
	o := Overlap{At: later.At, For: lasted}
	if s := c.struck(later.At, 3*c.LeaseTTL); len(s) > 0 {
		o.Fault = s[len(s)-1].Text
	}
	c.overlaps = append(c.overlaps, o)
	if !c.Overlaps && !c.exempt(later.At, func(s *Strike) bool { return s.Overlap }) {
		c.violated("P1", later.At, "%v under token %d and %v under token %d both led, for %v at least", earlier.process(), earlier.Token,
			later.process(), later.Token, lasted)
	}
}

// checkWrites holds the log of the resource against P3, and its tokens against P2: no two processes
// share one.
func (c *checker) checkWrites() {
	var highest int64
	owner := map[int64]process{}
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind != Wrote {
			continue
		}
		if first, known := owner[e.Token]; !known {
			owner[e.Token] = e.process()
		} else if first != e.process() {
			c.violated("P2", e.At, "%v and %v both wrote under token %d", first, e.process(), e.Token)
		}
		if e.OK && e.Token < highest {
			c.violated("P3", e.At, "a write of %v under token %d was accepted after one under %d", e.process(), e.Token, highest)
		}
		if e.OK {
			highest = max(highest, e.Token)
		}
	}
}

// checkCancels holds the ends of contexts against P4: a process that was scheduled cancels before
// the lease can have expired.
func (c *checker) checkCancels() {
	for of, s := range c.work {
		if s.end == nil || s.end.Text != endLost || s.end.Deadline == 0 || s.end.Stall > scheduled {
			continue
		}
		if late := s.end.Cancelled - s.end.Deadline - c.Drift; late > 0 {
			c.violated("P4", s.end.Cancelled, "the context of %v under token %d was cancelled %v after its lease had ended", of.process, of.token, late)
		}
	}
}
