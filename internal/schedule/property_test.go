package schedule

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// irregular is a schedule of given slots.
func irregular(slots []time.Time) Schedule {
	return next(func(after time.Time) time.Time {
		i, found := slices.BinarySearchFunc(slots, after, time.Time.Compare)
		if found {
			i++
		}
		if i == len(slots) {
			return time.Time{}
		}
		return slots[i]
	})
}

// randomRules draws a schedule and policies, and how long a leader typically lives under it.
func randomRules(t *testing.T, r *rand.Rand) (Rules, time.Duration) {
	rules := Rules{Missed: Missed(r.IntN(3)), MaxCatchUp: r.IntN(6)}
	spacing := time.Duration(1+r.IntN(100)) * time.Second
	switch r.IntN(5) {
	case 0:
		rules.Schedule = Every(spacing)
	case 1:
		rules.Schedule = grid(Every(spacing))
	case 2:
		var slots []time.Time
		for slot, n := noon, r.IntN(300); n > 0; n-- {
			slot = slot.Add(1 + time.Duration(r.Int64N(int64(2*spacing))))
			slots = append(slots, slot)
		}
		rules.Schedule = irregular(slots)
	default:
		specs := []string{"* * * * *", "TZ=Europe/Berlin */7 1-3 * * *", "*/10 9-17 * * 1-5", "TZ=America/New_York 30 * * * *"}
		rules.Schedule, spacing = mustCron(t, specs[r.IntN(len(specs))]), 20*time.Minute
	}
	rules.InitialDelay = []time.Duration{0, 0, -1, time.Duration(r.Int64N(int64(3 * spacing)))}[r.IntN(4)]
	rules.Grace = []time.Duration{0, time.Duration(1 + r.Int64N(int64(2*spacing)))}[r.IntN(2)]
	return rules, spacing
}

// Leaders come and go at random times and know nothing but the stored slot: each slot is run once
// or skipped once.
func TestP10_EachSlotIsRunOrSkippedOnce(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	for seed := first; seed < first+200; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		rules, spacing := randomRules(t, r)
		now := noon
		stored := First(rules, now).UnixMilli()
		expected := First(rules, now) // the slot that nobody has run or skipped yet
		for range 200 {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(spacing) * []float64{0.01, 1, 1, 20}[r.IntN(4)]))
			d := Due(rules, time.UnixMilli(stored), now)
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d, %v, %v of %v at %v: %s: %+v", seed, rules, time.UnixMilli(stored).UTC(), expected, now, fmt.Sprintf(format, args...), d)
			}
			if r.IntN(10) == 0 {
				continue // the claim failed: nothing is stored, nothing has happened
			}
			if d.Reset || d.AtLeast {
				fail("a clock that only goes forward")
			}
			for range d.Skipped {
				if expected.IsZero() || expected.After(now) {
					fail("skipped what is not due")
				}
				if rules.Missed == SkipMissed && !d.Run && now.Sub(expected) <= min(rules.Grace, spacing) {
					fail("skipped what is on time")
				}
				expected = Following(rules.Schedule, expected)
			}
			if d.Run {
				if !d.Slot.Equal(expected) || expected.After(now) {
					fail("runs the wrong slot")
				}
				expected = Following(rules.Schedule, expected)
			}
			if !d.Next.Equal(expected) || d.Ended != expected.IsZero() {
				fail("goes on with the wrong slot")
			}
			if due := !expected.IsZero() && !expected.After(now); due != (d.Wait == 0) || due && (rules.Missed != RunAll || !d.Run) {
				fail("wait")
			}
			if d.Run && rules.Missed == RunAll {
				left := 0
				for slot := expected; !slot.IsZero() && !slot.After(now); slot = Following(rules.Schedule, slot) {
					left++
				}
				if left >= rules.keep() || d.Skipped > 0 && left+1 != rules.keep() {
					fail("%d left to catch up", left)
				}
			}
			stored = d.Next.UnixMilli()
		}
	}
}

// A step of Redis's clock, back by anything, keeps no task waiting for more than two slots and a
// minute, and runs no slot again that lies within one slot.
func TestClockStepsBack(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	for seed := first; seed < first+500; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		rules, spacing := randomRules(t, r)
		stored := First(rules, noon)
		if stored.IsZero() {
			continue
		}
		d := Due(rules, stored, stored.Add(time.Duration(r.Int64N(int64(3*spacing)))))
		ahead := d.Next
		if ahead.IsZero() {
			continue
		}
		now := ahead.Add(-time.Duration(r.ExpFloat64() * 5 * float64(spacing)))
		if !now.Before(ahead) {
			continue
		}
		one := Following(rules.Schedule, now)
		two := Following(rules.Schedule, one)
		d = Due(rules, ahead, now)
		switch {
		case d.Run || d.Wait <= 0 && rules.InitialDelay >= 0:
			t.Fatalf("seed %d: %+v", seed, d)
		case d.Reset && !d.Next.Equal(First(rules, now)), !d.Reset && !d.Next.Equal(ahead):
			t.Fatalf("seed %d: %+v instead of %v", seed, d, ahead)
		case !ahead.After(two) && d.Reset:
			t.Fatalf("seed %d: %v is at most the second slot after %v: %+v", seed, ahead, now, d)
		case rules.InitialDelay <= 0 && !d.Ended && d.Next.After(two) && d.Wait > one.Sub(now)+clockStep:
			t.Fatalf("seed %d: %v: waits too long: %+v", seed, now, d)
		}
	}
}

// Dividing, walking and bisecting are three ways to the same slot.
func TestWaysToFindTheNewestSlots(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	for seed := first; seed < first+500; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		rules := Rules{Schedule: Every(1 + r.Int64N(int64(time.Second))), Missed: RunAll, MaxCatchUp: 1 + r.IntN(50)}
		d := Interval(rules.Schedule)
		now := noon.Add(time.Duration(r.Int64N(int64(200 * d))))
		divided := missedFixed(rules, d, noon, now)
		if walked := missedAny(rules, noon, now); walked != divided {
			t.Fatalf("seed %d: %+v by walking, %+v by division", seed, walked, divided)
		}
		// Only a schedule that knows its slots can be asked about other times.
		var slots []time.Time
		for slot := noon; len(slots) < 210; slot = slot.Add(d) {
			slots = append(slots, slot)
		}
		if divided.skipped > 0 {
			if got := bisect(irregular(slots), noon, now, rules.keep()); !got.Equal(divided.slot) {
				t.Fatalf("seed %d: %v by bisection, %v by division", seed, got, divided.slot)
			}
		}
	}
}

func FuzzDue(f *testing.F) {
	f.Add(int64(time.Hour), noon.UnixMilli(), noon.UnixMilli(), 0, 0, int64(0), int64(0), true)
	f.Add(int64(1), int64(0), noon.UnixMilli(), 2, 3, int64(0), int64(0), true)
	f.Add(int64(1), noon.UnixMilli()-1e9, noon.UnixMilli(), 2, 10_000_000, int64(0), int64(0), false)
	f.Add(int64(-1), int64(-1), noon.UnixMilli(), 1, -1, int64(-1), int64(-1), true)
	f.Add(int64(time.Minute), int64(-62135596800000), noon.UnixMilli(), 1, 1, int64(1), int64(1), false)
	f.Add(int64(1<<63-1), int64(1<<63-1), noon.UnixMilli(), 7, 1, int64(1<<63-1), int64(1<<63-1), true)
	f.Fuzz(func(t *testing.T, every, stored, now int64, missed, catchUp int, delay, grace int64, fixed bool) {
		const years8000 = 253402300799000
		at := time.UnixMilli((now%years8000 + years8000) % years8000) // Redis's own clock
		rules := Rules{Every(every), Missed(missed), catchUp, time.Duration(grace), time.Duration(delay)}
		if !fixed {
			rules.Schedule = grid(rules.Schedule)
			rules.MaxCatchUp %= 100
		}
		slot := time.UnixMilli(stored)
		d := Due(rules, slot, at)
		switch {
		case d.Run && (d.Slot.After(at) || d.Slot.Before(slot) || d.Reset):
			t.Fatalf("runs what is not due: %+v", d)
		case d.Run && !d.Ended && !d.Next.After(d.Slot):
			t.Fatalf("goes back: %+v", d)
		case !d.Run && !d.Slot.IsZero(), d.Ended != d.Next.IsZero(), d.Ended != (d.Wait == Never) && d.Next.Year() < 2300:
			t.Fatalf("contradicts itself: %+v", d)
		case d.Wait < 0 || d.Skipped < 0:
			t.Fatalf("negative: %+v", d)
		case d.Wait == 0 && !d.Run && !d.Reset:
			t.Fatalf("would spin: %+v", d)
		case d.Wait == 0 && rules.Missed != RunAll && !d.Reset:
			t.Fatalf("leaves something due: %+v", d)
		case d.Reset && d.Next != First(rules, at):
			t.Fatalf("%+v, want %v", d, First(rules, at))
		}
		// What is stored is believed at the same time.
		if again := Due(rules, time.UnixMilli(d.Next.UnixMilli()), at); again.Reset {
			t.Fatalf("%+v, then %+v", d, again)
		}
	})
}
