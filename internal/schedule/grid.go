package schedule

import (
	"fmt"
	"math"
	"time"
)

// Missed says what becomes of slots that nobody ran when they were due: because there was no
// leader, because the run before them took longer than the interval, or because the task was
// paused.
type Missed int

const (
	RunOnce    Missed = iota // run the latest of them once, skip the others
	SkipMissed               // run the latest if it is on time, see Rules.Grace, skip the others
	RunAll                   // run one after the other, the oldest first, but no more than Rules.MaxCatchUp
)

func (m Missed) String() string {
	switch m {
	case RunOnce:
		return "run-once"
	case SkipMissed:
		return "skip"
	case RunAll:
		return "run-all"
	}
	return fmt.Sprintf("missed(%d)", int(m))
}

const (
	// DefaultMaxCatchUp is how many missed slots RunAll runs if nothing else is said.
	DefaultMaxCatchUp = 100

	// DefaultGrace is how late a slot may start under SkipMissed if nothing else is said: later
	// than any failover with the default lease of 30 s, sooner than what anyone would call an
	// outage.
	DefaultGrace = time.Minute

	// MaxSteps bounds the work of one decision. More missed slots than this, of a schedule without
	// a fixed interval, are not walked through one by one; and no RunAll catches up with more.
	MaxSteps = 10_000

	// Never is the Wait of a schedule that has ended.
	Never = time.Duration(math.MaxInt64)

	// clockStep is how far Redis's clock may step back without any schedule being taken for
	// misplaced.
	clockStep = time.Minute
)

// Rules are what a task's options say about its slots.
type Rules struct {
	Schedule     Schedule      // nil: no slot at all
	Missed       Missed        // what is none of the three counts as RunOnce
	MaxCatchUp   int           // of RunAll; zero or less: DefaultMaxCatchUp; at most MaxSteps
	Grace        time.Duration // of SkipMissed; zero or less: DefaultGrace
	InitialDelay time.Duration // before the first slot of a task without a record; see First
}

// keep is how many of the missed slots are run.
func (r Rules) keep() int {
	if r.Missed != RunAll {
		return 1
	}
	if r.MaxCatchUp <= 0 {
		return DefaultMaxCatchUp
	}
	return min(r.MaxCatchUp, MaxSteps)
}

// onTime reports whether a slot that is the latest one due may still start under SkipMissed.
func (r Rules) onTime(slot, now time.Time) bool {
	grace := r.Grace
	if grace <= 0 {
		grace = DefaultGrace
	}
	return now.Sub(slot) <= grace
}

// First returns the first slot of a task that has no record, or whose schedule has changed. It is
// the zero time if the schedule has none.
//
// With a fixed interval that is now + InitialDelay; if InitialDelay is zero, one interval from
// now; if it is negative, now. With any other schedule it is the first slot after now +
// InitialDelay, a negative one counting as zero.
func First(r Rules, now time.Time) time.Time {
	delay := max(r.InitialDelay, 0)
	d := Interval(r.Schedule)
	if d <= 0 {
		return Following(r.Schedule, now.Add(delay))
	}
	if r.InitialDelay == 0 {
		delay = d
	}
	return wholeMillis(now.Add(delay))
}

// Decision is what is to be done with a task at one time. Run or not, Next is to be stored if it
// differs from what is.
type Decision struct {
	Run  bool
	Slot time.Time     // what runs; zero unless Run
	Next time.Time     // the following slot; with RunAll it may be due already; zero when Ended
	Wait time.Duration // until Next is due: zero if it is, Never when Ended

	Skipped int  // slots dropped by the policy: neither run nor to be run
	AtLeast bool // Skipped is a lower bound: there were too many to count, see MaxSteps

	Ended bool // the schedule has no slot after this one; what Run says still holds
	Reset bool // the stored slot was out of reach of this schedule, Next is as in First
}

// Due decides at now for a task whose stored next slot is next, which is not to be believed more
// than anything else that was read back from Redis. The zero time is what an ended schedule has
// stored.
//
// A slot is due when now is not before it. If it is the only one, it runs; if the following one is
// due as well, it is missed, and Rules.Missed decides. Under SkipMissed a slot is on time until the
// following one is due, but no longer than Grace.
//
// If more than MaxSteps slots (and those that still run) were missed of a schedule without a
// fixed interval, the newest are found by bisection. That asks the schedule about times that are
// not its slots; one whose slots depend on what it is asked with then starts a new grid.
//
// A stored slot that lies before 1970, or so far ahead that the schedule cannot have put it there,
// is replaced: Redis's clock was set back, or the record was damaged, and waiting might take for
// ever. How far that is: more than one slot beyond the first one possible after now, and more than
// one minute beyond it. In between it is waited for, so that after a small step the slot that has
// just run does not run again.
func Due(r Rules, next, now time.Time) Decision {
	if next.IsZero() {
		return Decision{Ended: true, Wait: Never}
	}
	next = wholeMillis(next)
	if Misplaced(r, next, now) {
		return Decision{Reset: true}.until(First(r, now), now)
	}
	if next.After(now) {
		return Decision{}.until(next, now)
	}
	var m missed
	if d := Interval(r.Schedule); d > 0 {
		m = missedFixed(r, d, next, now)
	} else {
		m = missedAny(r, next, now)
	}
	if r.Missed == SkipMissed && !r.onTime(m.slot, now) {
		return Decision{Skipped: add(m.skipped, 1), AtLeast: m.atLeast}.until(m.next, now)
	}
	return Decision{Run: true, Slot: m.slot, Skipped: m.skipped, AtLeast: m.atLeast}.until(m.next, now)
}

// until completes a decision with the slot that follows.
func (d Decision) until(next, now time.Time) Decision {
	if next.IsZero() {
		d.Ended, d.Wait = true, Never
		return d
	}
	d.Next, d.Wait = next, max(next.Sub(now), 0)
	return d
}

// One runs the stored slot, which is due, and leaves what follows it for the next decision, due or
// not. It is Due for a task that is known to catch up: the slots that it has missed are not walked
// through again for each of them.
func One(r Rules, next, now time.Time) Decision {
	slot := wholeMillis(next)
	return Decision{Run: true, Slot: slot}.until(Following(r.Schedule, slot), now)
}

// Misplaced reports whether a stored slot lies where the schedule cannot have put it by now: see
// Due.
func Misplaced(r Rules, next, now time.Time) bool {
	if next.UnixMilli() < 0 {
		return true
	}
	if !next.After(now) {
		return false
	}
	// What was stored at some earlier time was at most the first slot as of then, or the one after
	// that time.
	latest := First(r, now)
	if latest.IsZero() {
		return false // nor is there anything to replace it by
	}
	if n := Following(r.Schedule, now); n.After(latest) {
		latest = n
	}
	if !next.After(latest.Add(clockStep)) {
		return false
	}
	return next.After(Following(r.Schedule, latest))
}
