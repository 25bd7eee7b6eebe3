//go:build unix

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// checkWork holds leader work against P8: within a term of its process, drained before the next
// campaign of that process leads, and if the term was given up by its own will before anybody
// else leads.
func (c *checker) checkWork() {
	for _, of := range slices.SortedFunc(maps.Keys(c.work), byToken) {
		s := c.work[of]
		released, confirmed := c.released[of]
		if confirmed && s.end != nil && released < s.end.At {
			c.violated("P8", released, "%v gave the lease of token %d back %v before its work had ended", of.process, of.token, s.end.At-released)
		}
		for i := range c.terms {
			t := &c.terms[i]
			if t.Token <= of.token || t.At >= s.until {
				continue
			}
			switch {
			case t.process() == of.process:
				c.violated("P8", t.At, "%v led under token %d while its work under %d went on", of.process, t.Token, of.token)
			case s.end != nil && confirmed && voluntary(s.end.Text) && !c.Overlaps &&
				!c.exempt(t.At, func(s *Strike) bool { return s.Overlap }):
				c.violated("P8", t.At, "%v led under token %d while work of %v, which gave %d up, went on", t.process(), t.Token, of.process, of.token)
			}
		}
	}
}

func byToken(a, b work) int { return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.who, b.who)) }

func voluntary(end string) bool { return end == endStopped || end == endResigned }

// checkStops holds clean ends against P11.
func (c *checker) checkStops() {
	for p, l := range c.lives {
		if l.stopped == nil || l.asked == 0 {
			continue
		}
		if took := l.stopped.At - l.asked; took > c.Shutdown+time.Second { // a second for the machine
			c.violated("P11", l.stopped.At, "Run of %v returned %v after it was asked to", p, took)
		}
		if l.stopped.Text != "" && !strings.Contains(l.stopped.Text, "still running at the end of the shutdown timeout") {
			c.violated("P11", l.stopped.At, "Run of %v returned %q", p, l.stopped.Text)
		}
	}
}
