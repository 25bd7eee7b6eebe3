package sim

import (
	"slices"
	"strings"
	"time"
)

// Shrunk is a run that breaks the same promise with as few faults as were found to do.
type Shrunk struct {
	Wrong   string
	At      time.Duration
	Kept    []int // strikes that it needs
	Drawn   int   // strikes that were drawn until then
	Trace   []string
	Replays int
}

// Shrink looks for the faults that a failing run needs: it leaves strikes out, first all but the
// last few, then one after the other, until the time is over. What it returns was run, with a
// trace.
func Shrink(o Options, patience time.Duration) Shrunk {
	deadline := time.Now().Add(patience)
	first := New(o).Run()
	if first.Wrong == "" {
		return Shrunk{Replays: 1}
	}
	promise, _, _ := strings.Cut(first.Wrong, ":")
	all := make([]int, first.Strikes())
	for i := range all {
		all[i] = i
	}
	s := Shrunk{Kept: all, Drawn: len(all), Replays: 1}
	o.Until = first.At + time.Millisecond
	if o.Until >= o.Profile.Length {
		o.Until = 0
	}
	run := func(kept []int, trace bool) *Cluster {
		s.Replays++
		o.Trace = trace
		o.Without = func(strike int) bool {
			_, found := slices.BinarySearch(kept, strike)
			return !found
		}
		return New(o).Run()
	}
	fails := func(kept []int) bool {
		if time.Now().After(deadline) {
			return false
		}
		c := run(kept, false)
		again, _, _ := strings.Cut(c.Wrong, ":")
		if again != promise {
			return false
		}
		s.Kept = kept
		if o.Until > 0 {
			o.Until = min(o.Until, c.At+time.Millisecond)
		}
		return true
	}
	for n := 0; n < len(all); n = max(2*n, 1) {
		if fails(all[len(all)-n:]) {
			break
		}
	}
	for size := (len(s.Kept) + 1) / 2; size > 0; size /= 2 {
		for from := 0; from < len(s.Kept); {
			if !fails(slices.Delete(slices.Clone(s.Kept), from, min(from+size, len(s.Kept)))) {
				from += size
			}
		}
	}
	c := run(s.Kept, true)
	s.Wrong, s.At, s.Trace = c.Wrong, c.At, c.Trace()
	return s
}
