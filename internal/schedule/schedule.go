package schedule

import (
	"math"
	"time"
)

// Schedule is the grid of a task's slots.
//
// Next returns the first slot after the given one, in any zone. It must depend on nothing but its
// argument. The zero time, a time that is not after the argument and one beyond the year 9999 end
// the schedule. Fractions of a millisecond are rounded up.
//
// The slots of an Every, and of a struct that embeds one, are always equally far apart: any number
// of missed ones costs one division. No method of another type makes it one: it might mean
// something else.
type Schedule interface {
	Next(time.Time) time.Time
}

// OnDemand is the schedule without slots, of a task that only runs if it is triggered.
type OnDemand struct{}

// Next returns the zero time.
func (OnDemand) Next(time.Time) time.Time { return time.Time{} }

func (OnDemand) never() {}

// isNever reports whether a schedule is an OnDemand, or a struct that embeds one.
func isNever(s Schedule) bool {
	_, never := s.(interface{ never() })
	return never
}

// At is the schedule of one slot, in Unix ms.
type At int64

// Next returns that slot, if it is after the given time.
func (a At) Next(after time.Time) time.Time {
	if at := time.UnixMilli(int64(a)); at.After(after) {
		return at
	}
	return time.Time{}
}

func (a At) once() int64 { return int64(a) }

// onceAt returns the one slot of an At, and of a struct that embeds one.
func onceAt(s Schedule) (at int64, once bool) {
	if one, ok := s.(interface{ once() int64 }); ok {
		return one.once(), true
	}
	return 0, false
}

// Every is the schedule of a fixed interval, counted in elapsed time: no time zone, no daylight
// saving. Zero or less is a schedule without slots. Fractions of a millisecond are rounded up.
type Every time.Duration

// Next returns after + the interval.
func (e Every) Next(after time.Time) time.Time {
	if e <= 0 {
		return time.Time{}
	}
	return after.Add(e.fixed())
}

// fixed is the interval in whole milliseconds.
func (e Every) fixed() time.Duration {
	d := time.Duration(e)
	if part := d % time.Millisecond; part > 0 && d < math.MaxInt64-time.Millisecond {
		d += time.Millisecond - part
	}
	return d
}

// String returns "every 15m0s".
func (e Every) String() string { return "every " + time.Duration(e).String() }

// Interval returns the fixed interval of a schedule in whole milliseconds, or zero if it has none.
func Interval(s Schedule) time.Duration {
	if fixed, ok := s.(interface{ fixed() time.Duration }); ok {
		return max(fixed.fixed(), 0)
	}
	return 0
}

// Following returns the first slot after the given time, or the zero time if the schedule ends.
func Following(s Schedule, after time.Time) time.Time {
	if s == nil {
		return time.Time{}
	}
	next := s.Next(after.UTC())
	if !next.After(after) || next.UTC().Year() > 9999 {
		return time.Time{}
	}
	return wholeMillis(next)
}

// wholeMillis rounds up to what can be stored, so that a slot is never followed by itself.
func wholeMillis(t time.Time) time.Time {
	whole := time.UnixMilli(t.UnixMilli())
	if whole.Before(t) {
		whole = whole.Add(time.Millisecond)
	}
	return whole.UTC()
}

// missed is what there is to run of the slots that are due.
type missed struct {
	slot    time.Time // the oldest one that is kept
	next    time.Time // the one after it, due or not; zero: none
	skipped int       // older ones
	atLeast bool      // skipped is a lower bound
}

// missedFixed counts by division.
func missedFixed(r Rules, interval time.Duration, next, now time.Time) missed {
	d := interval.Milliseconds()
	first := next.UnixMilli()
	skipped := max((now.UnixMilli()-first)/d+1-int64(r.keep()), 0)
	slot := time.UnixMilli(first + skipped*d).UTC()
	return missed{slot: slot, next: Following(r.Schedule, slot), skipped: int(min(skipped, math.MaxInt))}
}

// missedAny walks from slot to slot, and jumps if that takes too long.
func missedAny(r Rules, next, now time.Time) missed {
	keep := r.keep()
	newest := make([]time.Time, keep) // slot n at n mod keep
	slot, due := next, 0
	for ; !slot.IsZero() && !slot.After(now); slot = Following(r.Schedule, slot) {
		if due == MaxSteps+keep {
			slot = bisect(r.Schedule, next, now, keep)
			return missed{slot: slot, next: Following(r.Schedule, slot), skipped: MaxSteps, atLeast: true}
		}
		newest[due%keep] = slot
		due++
	}
	skipped := max(due-keep, 0)
	m := missed{slot: newest[skipped%keep], next: slot, skipped: skipped}
	if skipped+1 < due {
		m.next = newest[(skipped+1)%keep]
	}
	return m
}

// bisect returns the oldest of the newest n slots not after now, when there are more than n after
// from. It asks the schedule at most n+1 times for each halving of the time between.
func bisect(s Schedule, from, now time.Time, n int) time.Time {
	// At most n-1 slots follow high, at least n follow low. When they are neighbours, high is the
	// slot.
	low, high := from.UnixMilli(), now.UnixMilli()
	for high-low > 1 {
		middle := low + (high-low)/2
		after := 0
		slot := Following(s, time.UnixMilli(middle))
		for ; after < n && !slot.IsZero() && !slot.After(now); slot = Following(s, slot) {
			after++
		}
		if after < n {
			high = middle
		} else {
			low = middle
		}
	}
	return time.UnixMilli(high).UTC()
}

// add is a + b, at most the largest int.
func add(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}
