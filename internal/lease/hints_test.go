package lease

import (
	"testing"
	"time"
)

// TestVacantHint lets a follower ask at once.
func TestVacantHint(t *testing.T) {
	b := newBench(t)
	a := b.reply(Held)
	a.Wait = ttl
	b.says(b.next(), a, Nothing)
	b.pass(time.Second)
	b.none()
	b.c.RollCall(b.now) // not for followers
	b.none()
	b.c.Vacant(b.now)
	if r := b.next(); r.Kind != Acquire {
		t.Errorf("request %+v", r)
	}
}

// TestRollCallHint lets a leader renew at once.
func TestRollCallHint(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.pass(time.Second)
	b.c.Vacant(b.now) // not for leaders
	b.none()
	b.c.RollCall(b.now)
	if r := b.next(); r.Kind != Renew {
		t.Errorf("request %+v", r)
	}
}

// TestHintInFlight is not lost: what is under way may have been answered before.
func TestHintInFlight(t *testing.T) {
	for _, trip := range []time.Duration{0, time.Millisecond, time.Second} {
		for _, verdict := range []Verdict{Held, Unknown, Stale} {
			b := newBench(t)
			r := b.next()
			b.c.Vacant(b.now)
			b.none()
			b.pass(trip)
			a := b.reply(verdict)
			a.Wait = ttl
			b.says(r, a, Nothing)
			near(t, "sleep", b.c.Wait(b.now), 0, max(0, hintSpacing-trip))
			b.sleep()
			if r := b.next(); r.Kind != Acquire {
				t.Errorf("request %+v", r)
			}
		}
		for _, verdict := range []Verdict{Kept, Unknown} {
			b := newBench(t)
			b.lead()
			b.sleep()
			r := b.next()
			b.c.RollCall(b.now)
			b.pass(trip)
			b.c.Answer(b.now, r, b.reply(verdict))
			near(t, "sleep", b.c.Wait(b.now), 0, max(0, hintSpacing-trip))
			b.sleep()
			if r := b.next(); r.Kind != Renew {
				t.Errorf("request %+v", r)
			}
		}
	}
}

// TestRollCallBeforeTheGrantIsKnown: the lease may be granted already, and the reply under way.
// Commands and hints travel on two connections, so that the roll-call may come first.
func TestRollCallBeforeTheGrantIsKnown(t *testing.T) {
	for _, trip := range []time.Duration{0, time.Millisecond, time.Second} {
		b := newBench(t)
		r := b.next()
		b.c.RollCall(b.now)
		b.none()
		b.pass(trip)
		b.says(r, b.reply(Won), Began)
		near(t, "sleep", b.c.Wait(b.now), 0, hintSpacing)
		b.sleep()
		if r := b.next(); r.Kind != Renew {
			t.Errorf("request %+v", r)
		}
		b.none()
	}
	b := newBench(t) // another hint does not ask a leader for anything
	r := b.next()
	b.c.Vacant(b.now)
	b.says(r, b.reply(Won), Began)
	near(t, "sleep", b.c.Wait(b.now), renew/2, ttl)
}

// TestRollCallWhileWorkDrains: what drains keeps its lease, and must hear as soon as a leader that
// it is lost.
func TestRollCallWhileWorkDrains(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.c.End(b.now, Resigned)
	b.none()
	b.c.RollCall(b.now)
	near(t, "sleep", b.c.Wait(b.now), 0, hintSpacing)
	b.sleep()
	if r := b.next(); r.Kind != Renew || !r.Draining {
		t.Errorf("request %+v", r)
	}
}

// TestHintFloodIsBounded: forged hints cost at most one request each hintSpacing, and none while
// one is under way.
func TestHintFloodIsBounded(t *testing.T) {
	for _, leading := range []bool{false, true} {
		b := newBench(t)
		if leading {
			b.lead()
		}
		requests := 0
		for range 100_000 { // within a second
			b.pass(10 * time.Microsecond)
			b.c.Vacant(b.now)
			b.c.RollCall(b.now)
			b.c.Tick(b.now)
			if r, due := b.c.Next(b.now); due {
				requests++
				a := b.reply(Held)
				if leading {
					a = b.reply(Kept)
				}
				a.Wait = ttl
				b.c.Answer(b.now, r, a)
			}
		}
		if most := int(time.Second/hintSpacing) + 2; requests > most || requests < 10 {
			t.Errorf("leading %v: %d requests within a second, want at most %d", leading, requests, most)
		}
	}
}

// TestHintsWhileStopped change nothing.
func TestHintsWhileStopped(t *testing.T) {
	b := newBench(t)
	b.c.Stop(b.now)
	b.c.Vacant(b.now)
	b.c.RollCall(b.now)
	b.pass(time.Minute)
	b.none()
	if b.c.Wait(b.now) <= 0 {
		t.Error("a stopped candidate keeps its driver awake")
	}
}
