//go:build unix

package campaign

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// belief is one term as it was seen from outside: believed in at least from first to last.
type belief struct {
	who         string
	token       int64
	first, last time.Duration
}

// ending is the end of a term's context.
type ending struct {
	token        int64
	at, deadline time.Duration
	cause        string
}

// spell is a time in which a child could not do what it is asked to: it stood still, or was cut off.
type spell struct {
	who      string
	from, to time.Duration
	stopped  bool // SIGSTOP: it could not even heed its context
}

// history is everything that was seen of one fleet.
type history struct {
	beliefs []belief
	endings []ending
	writes  []write
	runs    []run
	spells  []spell
}

// Finding is a promise that was broken.
type Finding struct {
	Promise, Text string
	At            time.Duration
}

func (f Finding) String() string { return f.Promise + ": " + f.Text }

// overlaps are the times in which two believed to lead.
func (h *history) overlaps() (found []Finding, times []time.Duration) {
	slices.SortFunc(h.beliefs, func(a, b belief) int { return cmp.Compare(a.first, b.first) })
	for i, later := range h.beliefs {
		for _, earlier := range h.beliefs[max(0, i-20):i] {
			if both := min(earlier.last, later.last) - later.first; both >= 0 && earlier.token != later.token {
				times = append(times, both)
				found = append(found, Finding{"P1", fmt.Sprintf("%s (token %d) and %s (token %d) both led for %v", earlier.who, earlier.token, later.who, later.token, both), later.first})
			}
		}
	}
	return found, times
}

// tokens holds P2 and P3.
func (h *history) tokens() (found []Finding) {
	for i := 1; i < len(h.beliefs); i++ {
		a, b := h.beliefs[i-1], h.beliefs[i]
		if b.token <= a.token {
			found = append(found, Finding{"P2", fmt.Sprintf("%s leads with token %d after %s had %d", b.who, b.token, a.who, a.token), b.first})
		}
	}
	highest := int64(0)
	for _, w := range h.writes {
		if w.accepted && w.token < highest {
			found = append(found, Finding{"P3", fmt.Sprintf("a write with token %d was accepted after one with %d", w.token, highest), w.at})
		}
		if w.accepted {
			highest = max(highest, w.token)
		}
	}
	return found
}

// tasks holds P10: the first attempt of a slot begins once, and no two runs are on at once unless a process could not heed its context.
func (h *history) tasks(lossy bool) (found []Finding) {
	slots := map[int64]string{}
	var last run
	for _, r := range h.runs {
		if first := slots[r.slot]; first != "" && first != r.id && r.attempt == 1 && !lossy {
			found = append(found, Finding{"P10", fmt.Sprintf("slot %d began twice: runs %s and %s", r.slot, first, r.id), r.start})
		}
		slots[r.slot] = r.id
		stood := slices.ContainsFunc(h.spells, func(s spell) bool { return s.stopped && s.from < r.start+time.Second && s.to > last.start })
		if last.id != "" && last.end > r.start && !stood && last.token != r.token {
			found = append(found, Finding{"P10", fmt.Sprintf("runs %s and %s were on at once for %v", last.id, r.id, last.end-r.start), r.start})
		}
		last = r
	}
	return found
}

// lateness is by how much the contexts of terms that expired were done after their deadline; negative: before it. Those of processes
// that stood still are left out.
func (h *history) lateness() (times []time.Duration) {
	for _, e := range h.endings {
		stood := slices.ContainsFunc(h.spells, func(s spell) bool { return s.stopped && s.from < e.at && s.to > e.deadline-10*time.Second })
		if e.deadline > 0 && e.cause == "expired" && !stood {
			times = append(times, e.at-e.deadline)
		}
	}
	return times
}

// changes counts the changes of the leader.
func (h *history) changes() (n int) {
	for i := 1; i < len(h.beliefs); i++ {
		if h.beliefs[i].who != h.beliefs[i-1].who {
			n++
		}
	}
	return n
}
