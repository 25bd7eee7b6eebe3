package virtual

import (
	"slices"
	"time"
)

// Minimal leaves items out of all for as long as it fails without them (delta debugging), and
// returns those that are needed: without any one of them it does not fail, unless fails gave up. It
// looks at the last items first: what happened long before seldom counts.
func Minimal[T any](all []T, fails func(kept []T) bool) []T {
	kept := all
	for n := 0; n < len(all); n = max(2*n, 1) {
		if tail := all[len(all)-n:]; fails(tail) {
			kept = tail
			break
		}
	}
	for size := (len(kept) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(kept); {
			fewer := slices.Delete(slices.Clone(kept), from, min(from+size, len(kept)))
			if fails(fewer) {
				kept = fewer
			} else {
				from += size
			}
		}
	}
	return kept
}

// Shrink makes a failing run smaller: it ends at its first violation, and leaves out the strikes,
// then the kinds of network faults, without which the same promise is broken as well. quiet names
// the kinds there are. What it returns is the last run that failed.
func Shrink(failed Result, quiet []string, patience time.Duration, run func(Request) (Result, error)) (smallest Result, replays int) {
	deadline := time.Now().Add(patience)
	smallest = failed
	fails := func(r Request) bool {
		if time.Now().After(deadline) {
			return false
		}
		replays++
		got, err := run(r)
		if err != nil || got.Promise() != failed.Promise() {
			return false
		}
		smallest = got
		return true
	}
	base := failed.Request
	var drawn []int
	for _, s := range failed.Strikes {
		if !s.Out && s.At <= failed.At {
			drawn = append(drawn, s.Number)
		}
	}
	base.Without = nil
	if last := failed.At + time.Millisecond; base.Until == 0 && failed.At < failed.Calm {
		base.Until = last
	}
	Minimal(drawn, func(kept []int) bool {
		r := base
		for _, s := range failed.Strikes {
			if !slices.Contains(kept, s.Number) {
				r.Without = append(r.Without, s.Number)
			}
		}
		return fails(r)
	})
	base = smallest.Request
	heard := slices.DeleteFunc(slices.Clone(quiet), func(kind string) bool { return slices.Contains(base.Quiet, kind) })
	Minimal(heard, func(kept []string) bool {
		r := base
		r.Quiet = slices.DeleteFunc(slices.Clone(quiet), func(kind string) bool { return slices.Contains(kept, kind) })
		return fails(r)
	})
	return smallest, replays
}
