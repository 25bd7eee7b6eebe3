package lease

import (
	"testing"
	"time"
)

// TestNotAfter is Redis's time at the last answer, the time that has passed since it was asked for,
// and the bound.
func TestNotAfter(t *testing.T) {
	b := newBench(t)
	first := b.next()
	if first.NotAfter != 0 {
		t.Errorf("not-after %d before anything is known", first.NotAfter)
	}
	b.pass(300 * time.Millisecond)
	a := b.reply(Won)
	told, sent := a.Now, first.Sent
	b.says(first, a, Began)
	b.sleep()
	r := b.next()
	if want := told + (b.now.Mono - sent.Mono + r.Bound).Milliseconds(); r.NotAfter != want {
		t.Errorf("not-after %d, want %d", r.NotAfter, want)
	}
}

// TestStaleSetsTheEstimateRight: the request was refused as too late; the next one goes out at
// once, with Redis's time.
func TestStaleSetsTheEstimateRight(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.now.Wall += 5 * time.Second // suspended: the monotonic clock stood still
	b.instant += 5 * time.Second
	b.sleep()
	r := b.next()
	if r.NotAfter >= b.redis()+r.Bound.Milliseconds() {
		t.Fatalf("not-after %d is not too early", r.NotAfter)
	}
	b.answers(r, Stale, Nothing)
	b.is(Leading)
	again := b.next()
	if want := b.redis() + again.Bound.Milliseconds(); again.NotAfter != want {
		t.Errorf("not-after %d, want %d", again.NotAfter, want)
	}
	b.answers(again, Stale, Nothing) // twice: something else is wrong
	b.none()
	near(t, "pause", b.c.Wait(b.now), ttl/20*3/4, ttl/20)
	b.sleep()
	b.answers(b.next(), Kept, Renewed)
	b.sleep()
	b.answers(b.next(), Stale, Nothing)
	b.next() // at once again
}

// TestSlowReplyIsNoClock: a reply that was long under way would put the estimate, and with it
// not-after, too far ahead.
func TestSlowReplyIsNoClock(t *testing.T) {
	for _, verdict := range []Verdict{Won, Stale, Held} {
		b := newBench(t)
		b.answers(b.next(), Held, Nothing)
		b.sleep()
		slow := b.next()
		b.pass(slow.Bound + 5*time.Second)
		b.c.Tick(b.now)
		b.answers(slow, verdict, Nothing)
		if r := b.acquire(); r.NotAfter != b.redis()+r.Bound.Milliseconds() {
			t.Errorf("verdict %d: not-after %d, want %d", verdict, r.NotAfter, b.redis()+r.Bound.Milliseconds())
		}
	}
}

// TestEstimateIsFromTheYoungestRequest: an older one that is answered later says nothing newer.
func TestEstimateIsFromTheYoungestRequest(t *testing.T) {
	b := newBench(t)
	b.answers(b.next(), Unknown, Nothing)
	b.sleep()
	b.lead()
	b.c.End(b.now, Expired)
	b.c.Drained(b.now)
	release := b.next() // does not hold up the campaign
	b.sleep()
	b.answers(b.next(), Held, Nothing)
	b.pass(time.Second)
	b.answers(release, Done, Nothing)
	if r := b.acquire(); r.NotAfter != b.redis()+r.Bound.Milliseconds() {
		t.Errorf("not-after %d, want %d", r.NotAfter, b.redis()+r.Bound.Milliseconds())
	}
}

// TestClockStep: a step of Redis's clock is reported once; what a round trip or a suspension
// explains is none.
func TestClockStep(t *testing.T) {
	for _, tt := range []struct {
		name      string
		redis     time.Duration // by which Redis's clock steps
		suspended time.Duration
		trip      time.Duration
		low, high time.Duration
	}{
		{"none", 0, 0, time.Second, 0, 0},
		{"small", 900 * time.Millisecond, 0, 0, 0, 0},
		{"forward", time.Minute, 0, 0, time.Minute - time.Second, time.Minute + time.Second},
		{"back", -time.Hour, 0, 0, -time.Hour - time.Second, -time.Hour + time.Second},
		{"slow reply", 0, 0, 9 * time.Second, 0, 0},
		{"suspended", 0, 20 * time.Second, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t)
			b.answers(b.next(), Held, Nothing)
			b.sleep()
			b.now.Wall += tt.suspended
			b.instant += tt.suspended
			r := b.next()
			b.pass(tt.trip)
			a := b.reply(Held)
			a.Now += tt.redis.Milliseconds()
			b.says(r, a, Nothing)
			near(t, "step", b.c.StepSeen(), tt.low, tt.high)
			if again := b.c.StepSeen(); again != 0 {
				t.Errorf("reported again: %v", again)
			}
		})
	}
}

// TestP2_FloorIsEveryTokenEverSeen: of refusals and late replies too, but never an absurd one.
func TestP2_FloorIsEveryTokenEverSeen(t *testing.T) {
	b := newBench(t)
	for _, tt := range []struct {
		token, floor int64
		ttl, longest time.Duration
	}{
		{41, 41, ttl, ttl},
		{40, 41, 2 * ttl, 2 * ttl},
		{0, 41, time.Second, 2 * ttl},
		{-7, 41, -time.Second, 2 * ttl},
		{epoch + 200*year, 41, 0, 2 * ttl},
		{1 << 60, 41, MaxTTL + 1, 2 * ttl},
		{epoch, epoch, MaxTTL, MaxTTL},
	} {
		r := b.next()
		a := b.reply(Held)
		a.Token, a.TTL, a.Wait = tt.token, tt.ttl, time.Second
		b.says(r, a, Nothing)
		b.sleep()
		if b.c.Floor() != tt.floor {
			t.Errorf("floor %d after token %d, want %d", b.c.Floor(), tt.token, tt.floor)
		}
		r = b.next()
		if r.Floor != tt.floor || r.HoldOff != tt.longest {
			t.Errorf("request with floor %d and hold-off %v, want %d and %v", r.Floor, r.HoldOff, tt.floor, tt.longest)
		}
		a = b.reply(Held)
		a.Token = 0
		b.says(r, a, Nothing)
		b.sleep()
	}
}

// TestHoldOffOption is the least that is asked for.
func TestHoldOffOption(t *testing.T) {
	b := newBench(t, func(timing *Timing) { timing.HoldOff = time.Minute })
	if r := b.next(); r.HoldOff != time.Minute {
		t.Errorf("hold-off %v", r.HoldOff)
	}
}
