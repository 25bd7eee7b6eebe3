//go:build unix

package fleet

import (
	"cmp"
	"slices"
	"time"
)

// checkRuns holds the runs of tasks against P10: no two of one task at a time, each attempt at a
// slot made once, and none begun when the term was over.
func (c *checker) checkRuns() {
	slices.SortStableFunc(c.runs, func(a, b taskRun) int { return cmp.Compare(a.At, b.At) })
	type attempt struct {
		task    string
		slot    int64
		attempt int
	}
	made := map[attempt]*taskRun{}
	going := map[string][]*taskRun{}
	ends := map[work]time.Duration{}
	for i := range c.terms {
		t := &c.terms[i]
		ends[work{t.process(), t.Token}] = t.Until
	}
	for i := range c.runs {
		r := &c.runs[i]
		key := attempt{r.Task, r.Slot, r.Attempt}
		if first := made[key]; first != nil && r.Task != taskAsked && !c.recordsLost(first.At, r.At) {
			c.violated("P10", r.At, "attempt %d at slot %d of %s was made by %v and by %v", r.Attempt, r.Slot, r.Task, first.process(), r.process())
		}
		made[key] = r
		going[r.Task] = slices.DeleteFunc(going[r.Task], func(o *taskRun) bool { return o.until <= r.At })
		for _, o := range going[r.Task] {
			c.ranTogether(o, r)
		}
		going[r.Task] = append(going[r.Task], r)
		end, led := ends[work{r.process(), r.Token}]
		if late := r.At - end; led && r.end != nil && r.end.Stall < scheduled && late > 2*scheduled {
			c.violated("P10", r.At, "%v began a run of %s %v after its term under token %d", r.process(), r.Task, late, r.Token)
		}
	}
}

// ranTogether holds two runs of one task that went on at the same time against P10. Those of one
// process never may. Of two processes the earlier one may have stood still, or been killed, and
// then it did not honour its context.
func (c *checker) ranTogether(earlier, later *taskRun) {
	switch {
	case earlier.process() == later.process():
	case earlier.end == nil || earlier.end.Stall > scheduled || c.Overlaps || c.stopped(earlier.process().who, earlier.At, later.At):
		return
	case c.exempt(later.At, func(s *Strike) bool { return s.Overlap || s.Records }):
		return
	}
	c.violated("P10", later.At, "%v and %v ran %s at the same time, for %v", earlier.process(), later.process(), later.Task,
		min(earlier.until, later.until)-later.At)
}

// recordsLost reports whether Redis may have lost records between two times.
func (c *checker) recordsLost(from, to time.Duration) bool {
	for _, s := range c.strikes {
		if s.Strike.Records && s.At <= to && s.Until+3*c.LeaseTTL >= from {
			return true
		}
	}
	return false
}

// checkRemovals holds sweeps against P9: nobody whose beats nothing disturbed is removed.
func (c *checker) checkRemovals() {
	for i := range c.entries {
		e := &c.entries[i]
		if e.Kind != Removed {
			continue
		}
		since := e.At - c.DownAfter - 4*c.HeartbeatInterval
		for p, l := range c.lives {
			if p.who != e.Text || l.from > since || l.until < e.At || l.asked != 0 && l.asked < e.At {
				continue
			}
			if !c.disturbed(p.who, since, e.At) {
				c.violated("P9", e.At, "%v removed %v, which lived and beat", e.process(), p)
			}
		}
	}
}

// stopped reports whether an instance stood still within some time, whatever it noticed of that
// itself.
func (c *checker) stopped(who string, from, to time.Duration) bool {
	for _, s := range c.strikes {
		if s.Strike.Stopped && s.At <= to && s.Until >= from && slices.Contains(s.Strike.Targets, who) {
			return true
		}
	}
	return false
}

// disturbed reports whether a fault touched an instance, or all, within some time.
func (c *checker) disturbed(who string, from, to time.Duration) bool {
	for _, s := range c.strikes {
		if s.At <= to && s.Until >= from && (s.Strike.All || slices.Contains(s.Strike.Targets, who)) {
			return true
		}
	}
	return false
}
