//go:build unix

package fleet

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// journal gathers the entries of one cluster. It is safe for concurrent use.
type journal struct {
	mu      sync.Mutex
	entries []Entry
}

func (j *journal) add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, e)
}

// has reports whether a member has said something of a kind since then.
func (j *journal) has(kind Kind, who string, since time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.entries, func(e Entry) bool { return e.Kind == kind && e.Who == who && e.At >= since })
}

// ran reports whether a run of a task has begun since then.
func (j *journal) ran(task string, since time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.ContainsFunc(j.entries, func(e Entry) bool { return e.Kind == RunBegan && e.Task == task && e.At >= since })
}

// joined reports whether a member has said since then that it hears, and sees itself as active.
func (j *journal) joined(who string, since time.Duration) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	hears, listed := false, false
	for _, e := range j.entries {
		if e.Who != who || e.At < since {
			continue
		}
		hears = hears || e.Kind == Heard && e.OK
		listed = listed || e.Kind == Listed && slices.Contains(strings.Fields(e.Text), who)
	}
	return hears && listed
}

// sorted returns a copy in the order of time. Entries of one instant keep the order in which they
// came.
func (j *journal) sorted() []Entry {
	j.mu.Lock()
	entries := slices.Clone(j.entries)
	j.mu.Unlock()
	slices.SortStableFunc(entries, func(a, b Entry) int { return cmp.Compare(a.At, b.At) })
	return entries
}
