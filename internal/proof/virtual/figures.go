package virtual

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is what came of a run.
type Result struct {
	Request
	Figures
	Calm    time.Duration // when the strikes ended
	Strikes []Strike      // that fell, those left out included
	Wrong   []string      // what was violated: "P1: …"
	At      time.Duration // when it was first
	Trace   []string      // its end
	Digest  uint64        // of all that happened
	CPU     time.Duration // that its process took; set by who started that
}

// Strike is one deed of the nemesis.
type Strike struct {
	Number int
	At     time.Duration
	Fault  string
	Out    bool // left out
}

// Promise is the promise that was broken first: "P1", or "" if none was.
func (r *Result) Promise() string {
	if len(r.Wrong) == 0 {
		return ""
	}
	promise, _, _ := strings.Cut(r.Wrong[0], ":")
	return promise
}

// Figures count what happened.
type Figures struct {
	Simulated time.Duration
	Events    int64 // of the network

	Terms, Changes                   int // terms; those that began on another instance than the one before
	Expired, Lost, Resigned, Stopped int // terms, by the cause of their end; the others crashed
	Accepted, Refused                int // writes to the fenced resource
	Crash, Handover                  time.Duration

	Faults  map[string]int64 // strikes of the nemesis, by kind
	Network map[string]int64 // faults of single messages, by kind

	Beats, Joined, Swept          int // of the registry
	Claims, Attempts, Interrupted int // of the tasks: slots claimed, attempts that began, those whose term ended first
	Reruns, Triggered             int
	Answers                       map[string]int64 // to what an operator asked for, by kind and answer
	Violations                    int
}

// Add adds another run.
func (f *Figures) Add(g *Figures) {
	f.Simulated += g.Simulated
	f.Events += g.Events
	f.Terms += g.Terms
	f.Changes += g.Changes
	f.Expired += g.Expired
	f.Lost += g.Lost
	f.Resigned += g.Resigned
	f.Stopped += g.Stopped
	f.Accepted += g.Accepted
	f.Refused += g.Refused
	f.Crash, f.Handover = max(f.Crash, g.Crash), max(f.Handover, g.Handover)
	f.Faults = sum(f.Faults, g.Faults)
	f.Network = sum(f.Network, g.Network)
	f.Beats += g.Beats
	f.Joined += g.Joined
	f.Swept += g.Swept
	f.Claims += g.Claims
	f.Attempts += g.Attempts
	f.Interrupted += g.Interrupted
	f.Reruns += g.Reruns
	f.Triggered += g.Triggered
	f.Answers = sum(f.Answers, g.Answers)
	f.Violations += g.Violations
}

func sum(into, from map[string]int64) map[string]int64 {
	if into == nil {
		into = map[string]int64{}
	}
	for kind, count := range from {
		into[kind] += count
	}
	return into
}

// Sum is the sum of counts.
func Sum(counts map[string]int64) (total int64) {
	for _, count := range counts {
		total += count
	}
	return total
}

// Kinds are the kinds of counts, in order.
func Kinds(counts map[string]int64) []string { return slices.Sorted(maps.Keys(counts)) }
