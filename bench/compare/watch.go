//go:build unix

package main

import (
	"sync"
	"time"

	"github.com/tenure-go/tenure/bench/internal/contender"
)

// lookInterval is how often beliefs are looked at: the resolution of every figure.
const lookInterval = 2 * time.Millisecond

// edge is a change of one candidate's belief.
type edge struct {
	at     time.Time
	belief contender.Belief
}

// line is what a candidate believed over time, on this host's clock.
type line struct {
	mu    sync.Mutex
	edges []edge
}

func (l *line) add(at time.Time, b contender.Belief) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.edges = append(l.edges, edge{at, b})
}

// last returns the belief of now.
func (l *line) last() contender.Belief {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.edges) == 0 {
		return contender.Belief{}
	}
	return l.edges[len(l.edges)-1].belief
}

// span is a time in which something was so.
type span struct{ from, to time.Time }

// spans returns when is was true, up to end.
func (l *line) spans(is func(contender.Belief) bool, end time.Time) []span {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []span
	on := false
	for _, e := range l.edges {
		switch now := is(e.belief); {
		case now && !on:
			all = append(all, span{from: e.at, to: end})
			on = true
		case !now && on:
			all[len(all)-1].to = e.at
			on = false
		}
	}
	return all
}

// firstAfter returns the first belief reported after a time.
func (l *line) firstAfter(at time.Time) edge {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.edges {
		if e.at.After(at) {
			return e
		}
	}
	return edge{at: at}
}

// belief picks one of the two beliefs.
type belief func(contender.Belief) bool

func own(b contender.Belief) bool  { return b.Own }
func work(b contender.Belief) bool { return b.Work }

// overlap returns for how long, from a time on, both lists had a span at once.
func overlap(a, b []span, from time.Time) time.Duration {
	var sum time.Duration
	for _, x := range a {
		for _, y := range b {
			start, end := latest(x.from, y.from, from), x.to
			if y.to.Before(end) {
				end = y.to
			}
			sum += max(0, end.Sub(start))
		}
	}
	return sum
}

// covered returns for how long, from a time to another, at least one of the spans of two candidates
// ran.
func covered(a, b []span, from, to time.Time) time.Duration {
	window := []span{{from, to}}
	return overlap(a, window, from) + overlap(b, window, from) - overlap(a, b, from)
}

func latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// watch adds what a candidate believes to its line until done is closed.
func watch(l *line, c contender.Candidate, done <-chan struct{}) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	var last contender.Belief
	for {
		if b := c.Belief(); b != last {
			l.add(time.Now(), b)
			last = b
		}
		select {
		case <-ticker.C:
		case <-done:
			l.add(time.Now(), contender.Belief{})
			return
		}
	}
}
