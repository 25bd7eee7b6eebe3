//go:build unix

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// The other checks say that nothing wrong has happened. These say that what should happen has:
// after the last fault, in a time in which nothing is disturbed, somebody leads, every task runs,
// every process is listed as active, and every subscription hears.

const (
	machine  = 8 * time.Second // what a busy machine may add to a bound
	retrials = 4 * time.Second // a run that is on and is tried again keeps the next slot waiting
)

// leaderBound is the longest time without a leader after the last fault (P7): a dead leader's lease
// runs out while its work drains; who sleeps longest wakes; what it asks first has no answer; it
// finds that data were lost and holds off, for two seconds more if the server is young.
func (r *Rules) leaderBound() time.Duration {
	ttl := r.LeaseTTL
	asks := ttl/2*11/10 + ttl/3 + 2*ttl/6 // RetryInterval with its jitter, an attempt, two pauses
	holdOff := ttl + r.FailoverMargin + 2*time.Second
	return ttl + r.Shutdown + asks + holdOff + machine
}

// hearingBound is the longest time that a dead subscription stays dead: a check notices it, and
// another one is made.
func (r *Rules) hearingBound() time.Duration {
	return max(5*time.Second, r.LeaseTTL/2) + 4*time.Second + machine
}

// runBound is the longest time before the first run of a task: its leader comes late.
func (r *Rules) runBound(every time.Duration) time.Duration {
	return r.leaderBound() + every + 2*runFor + retrials + r.Replan
}

// nextBound is the longest time from one run of a task to the next. A leader that the machine keeps
// from renewing may lose its lease meanwhile.
func (r *Rules) nextBound(every time.Duration) time.Duration {
	return every + 2*runFor + retrials + r.Replan + r.LeaseTTL + machine
}

// calmBound is how long a calm must last so that each of its rules can be broken in it.
func (r *Rules) calmBound() time.Duration {
	bound := max(r.leaderBound(), r.hearingBound())
	for _, every := range r.Tasks {
		bound = max(bound, r.runBound(every))
	}
	return (bound + 2*time.Second).Truncate(time.Second)
}

// calmFigures is what one calm has shown.
type calmFigures struct {
	leaderless time.Duration // the longest time without a leader
	runless    time.Duration // the longest time without a run of one task
	members    int           // processes that lived through it
	runs       int           // that began in it
}

// checkCalms holds every calm against P7, P9 and P10.
func (c *checker) checkCalms() {
	for i := range c.entries {
		if e := &c.entries[i]; e.Kind == Calm {
			if lasted := e.Until - e.At; lasted < c.calmBound() {
				c.violated("P7", e.At, "a calm of %v shows nothing: it must last %v", lasted, c.calmBound())
			}
			var f calmFigures
			c.checkLeader(e, &f)
			c.checkSchedule(e, &f)
			c.checkMembers(e, &f)
			c.calms = append(c.calms, f)
		}
	}
}

// checkLeader requires that the role is not without a leader for longer than its bound.
func (c *checker) checkLeader(calm *Entry, f *calmFigures) {
	var led []span
	for i := range c.terms {
		led = append(led, span{from: c.terms[i].At, until: c.terms[i].Until})
	}
	var began time.Duration
	f.leaderless, began = longestGap(calm.At, calm.Until, led)
	if f.leaderless > c.leaderBound() {
		c.violated("P7", began, "nobody led for %v in a calm, at most %v is promised", f.leaderless, c.leaderBound())
	}
}

// checkSchedule requires that each task runs soon, and then no later than its policy asks for.
func (c *checker) checkSchedule(calm *Entry, f *calmFigures) {
	for _, task := range slices.Sorted(maps.Keys(c.Tasks)) {
		var runs []span
		for i := range c.runs {
			if r := &c.runs[i]; r.Task == task && r.At >= calm.At && r.At <= calm.Until {
				runs = append(runs, span{from: r.At, until: r.At})
			}
		}
		f.runs += len(runs)
		first := calm.Until
		if len(runs) > 0 {
			first = runs[0].from
		}
		if late, bound := first-calm.At, c.runBound(c.Tasks[task]); late > bound {
			c.violated("P10", calm.At, "no run of %s began for %v in a calm, at most %v is promised", task, late, bound)
		}
		gap, began := longestGap(first, calm.Until, runs)
		f.runless = max(f.runless, first-calm.At, gap)
		if bound := c.nextBound(c.Tasks[task]); gap > bound {
			c.violated("P10", began, "no further run of %s began for %v in a calm, at most %v is promised", task, gap, bound)
		}
	}
}

// checkMembers requires that each process that lived through a calm is listed as active, and that
// its subscription hears. One good look is enough: at another the machine may have been busy.
func (c *checker) checkMembers(calm *Entry, f *calmFigures) {
	heard, listed := map[process]bool{}, map[string]bool{}
	for i := range c.entries {
		e := &c.entries[i]
		if e.At < calm.At || e.At > calm.Until {
			continue
		}
		switch e.Kind {
		case Heard:
			heard[e.process()] = heard[e.process()] || e.OK
		case Listed:
			for id := range strings.FieldsSeq(e.Text) {
				listed[id] = true
			}
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(c.lives), byName) {
		l := c.lives[p]
		if l.from > calm.At || l.until < calm.Until || l.asked != 0 && l.asked <= calm.Until {
			continue
		}
		f.members++
		if !listed[p.who] {
			c.violated("P9", calm.Until, "%v lives, and is not listed as active %v after the last fault", p, calm.Until-calm.At)
		}
		if !heard[p] {
			c.violated("P7", calm.Until, "the subscription of %v hears nothing %v after the last fault", p, calm.Until-calm.At)
		}
	}
}

func byName(a, b process) int {
	return cmp.Or(strings.Compare(a.who, b.who), cmp.Compare(a.life, b.life))
}

// longestGap is the longest time from one instant to another that no span covers, and when it
// began. The spans are in the order of their beginnings.
func longestGap(from, until time.Duration, spans []span) (longest, began time.Duration) {
	covered := from
	gap := func(to time.Duration) {
		if length := min(to, until) - covered; length > longest {
			longest, began = length, covered
		}
	}
	for _, s := range spans {
		gap(s.from)
		covered = max(covered, s.until)
	}
	gap(until)
	return longest, began
}
