package lease

import (
	"testing"
	"time"
)

// offer lets a leader offer its lease to candidate b, and returns the renewal that carries the
// offer.
func (b *bench) offer() Request {
	b.t.Helper()
	b.lead()
	b.pass(time.Second)
	if !b.c.Offer(b.now, b.c.Token(), "b") {
		b.t.Fatal("the offer was not taken")
	}
	r := b.next()
	if r.Kind != Renew || r.Heir != "b" || r.Draining {
		b.t.Fatalf("request %+v, want a renewal that carries the offer, at once", r)
	}
	return r
}

// ready is the answer to a renewal that says that the heir asks.
func (b *bench) ready() Answer {
	a := b.reply(Kept)
	a.Token, a.Ready = b.c.Token(), true
	return a
}

// TestTransfer goes from the offer to the reservation. No end comes before the heir asks, and no
// release before the work has returned.
func TestTransfer(t *testing.T) {
	b := newBench(t)
	b.answers(b.offer(), Kept, Renewed)
	b.is(Leading)
	near(t, "sleep", b.c.Wait(b.now), renew/2, ttl)
	b.c.RollCall(b.now) // the hint ready
	b.sleep()
	b.says(b.next(), b.ready(), Ended)
	b.is(Draining)
	if b.c.Reason() != Transferred || b.c.Heir() != "b" || !b.c.Keeps() {
		t.Fatalf("ended as %v, heir %q, keeps %v", b.c.Reason(), b.c.Heir(), b.c.Keeps())
	}
	b.none()
	b.pass(renew)
	renewal := b.next()
	if renewal.Kind != Renew || !renewal.Draining || renewal.Heir != "b" {
		t.Errorf("while it drains: request %+v, want a renewal that goes on with the offer", renewal)
	}
	b.c.Drained(b.now)
	var r Request
	for range 2 { // a release for the answer to the renewal too, which may arrive first
		r = b.next()
		if r.Kind != Release || r.Heir != "b" || r.Reserve != 5*time.Second || r.Token != b.c.Token() {
			t.Errorf("release %+v", r)
		}
		b.answers(renewal, Kept, Nothing)
	}
	b.answers(r, Done, Nothing)
	if b.c.Heir() != "" {
		t.Error("the transfer is not over")
	}
	b.sleep() // it asks with a new nonce
	if again := b.next(); again.Kind != Acquire || again.Nonce == r.Nonce {
		t.Errorf("request %+v", again)
	}
}

// transferred lets the work of a term that was transferred return, round trips being that long.
func (b *bench) transferred(trip time.Duration) {
	b.t.Helper()
	b.offer()
	b.c.End(b.now, Transferred)
	b.c.trip = trip
	b.c.Drained(b.now)
	r := b.next()
	if r.Kind != Release || r.Heir != "b" {
		b.t.Fatalf("request %+v", r)
	}
	b.answers(r, Done, Nothing)
}

// TestFormerLeaderDoesNotStandBack after a transfer: it leaves the heir a moment to ask first, or
// two slow round trips, and never more than after other terms. While the lease is reserved it
// asks once, and again when the reservation is over. An offer back has it ask at once.
func TestFormerLeaderDoesNotStandBack(t *testing.T) {
	for _, tt := range []struct{ ttl, trip, low, high time.Duration }{
		{ttl, time.Millisecond, heirFirst, heirFirst},
		{ttl, 100 * time.Millisecond, 200 * time.Millisecond, 200 * time.Millisecond},
		{ttl, 5 * time.Second, ttl / 20 * 3 / 4, ttl / 20},
		{300 * time.Millisecond, time.Millisecond, 15 * time.Millisecond * 3 / 4, 15 * time.Millisecond},
	} {
		b := newBench(t, func(timing *Timing) {
			timing.TTL, timing.Renew, timing.Retry, timing.Drift = tt.ttl, tt.ttl/3, tt.ttl/2, DefaultDrift(tt.ttl)
		})
		b.transferred(tt.trip)
		if back := b.c.StandsBack(b.now); back != 0 {
			t.Errorf("TTL %v, round trips of %v: it stands back for %v", tt.ttl, tt.trip, back)
		}
		near(t, "sleep", b.c.Wait(b.now), tt.low, tt.high)
	}

	b := newBench(t)
	b.transferred(time.Millisecond)
	b.c.Reserved(b.now, 5*time.Second) // the hint of its own release
	b.sleep()
	a := b.reply(Held)
	a.Wait = 5 * time.Second
	b.says(b.next(), a, Nothing)
	near(t, "sleep while the lease is reserved", b.c.Wait(b.now), a.Wait+wakeLag, a.Wait+wakeLag+wakeSpread)
	b.sleep()
	b.lead()

	b = newBench(t)
	b.transferred(time.Millisecond)
	b.pass(hintSpacing)
	b.c.Named(b.now)
	if r := b.next(); r.Kind != Acquire {
		t.Errorf("request %+v, want an acquire for the offer back", r)
	}
}

// TestReserve is a third of a short lease.
func TestReserve(t *testing.T) {
	for _, tt := range []struct{ ttl, want time.Duration }{{3 * time.Second, time.Second}, {15 * time.Second, 5 * time.Second}, {time.Hour, 5 * time.Second}} {
		if got := (Timing{TTL: tt.ttl}).Reserve(); got != tt.want {
			t.Errorf("TTL %v: %v, want %v", tt.ttl, got, tt.want)
		}
	}
}

// TestTransferToTheSilent: the offer ends after the longest sleep of a candidate and two attempts,
// a renewal takes it back, and the term goes on.
func TestTransferToTheSilent(t *testing.T) {
	b := newBench(t)
	b.answers(b.offer(), Kept, Renewed)
	begun := b.instant
	for range 20 {
		if b.c.Heir() == "" {
			break
		}
		b.sleep()
		if r, due := b.c.Next(b.now); due {
			if want := b.c.Heir(); r.Heir != want {
				t.Fatalf("request %+v, want the heir %q", r, want)
			}
			b.answers(r, Kept, Renewed)
		}
	}
	if b.instant-begun != retry+2*ttl/3 {
		t.Errorf("the offer ends after %v", b.instant-begun)
	}
	b.is(Leading)
	b.sleep()
	b.says(b.next(), b.ready(), Renewed) // late: nothing is offered any more
	b.is(Leading)
}

// TestOfferIsTakenBackAtOnce, by a renewal that is due when the offer ends.
func TestOfferIsTakenBackAtOnce(t *testing.T) {
	b := newBench(t, func(timing *Timing) { timing.Renew, timing.TTL = 100*time.Second, 300*time.Second })
	a := b.reply(Kept)
	a.TTL = 300 * time.Second
	b.says(b.offer(), a, Renewed)
	b.pass(retry + 200*time.Second - time.Second)
	b.c.Tick(b.now)
	for r, due := b.c.Next(b.now); due; r, due = b.c.Next(b.now) {
		b.says(r, a, Renewed)
	}
	b.pass(time.Second)
	b.c.Tick(b.now)
	if r := b.next(); r.Kind != Renew || r.Heir != "" {
		t.Errorf("request %+v", r)
	}
}

// TestOfferNeedsItsTerm: a request that is meant for another term, that comes too late, or while
// another transfer is on, changes nothing.
func TestOfferNeedsItsTerm(t *testing.T) {
	b := newBench(t)
	if b.c.Offer(b.now, 0, "b") {
		t.Error("a candidate has nothing to offer")
	}
	b.lead()
	if b.c.Offer(b.now, b.c.Token()-1, "b") || b.c.Heir() != "" {
		t.Error("a request for an older term is heeded")
	}
	if !b.c.Offer(b.now, b.c.Token(), "b") || b.c.Offer(b.now, b.c.Token(), "c") || b.c.Heir() != "b" {
		t.Error("the second offer is taken for the first")
	}
	b.c.End(b.now, Resigned)
	if b.c.Heir() != "" || b.c.Offer(b.now, b.c.Token(), "b") {
		t.Error("a term that has ended otherwise is transferred")
	}
	b.c.Drained(b.now)
	for r, due := b.c.Next(b.now); due; r, due = b.c.Next(b.now) {
		if r.Kind == Release && (r.Heir != "" || r.Reserve != 0) {
			t.Errorf("release %+v", r)
		}
	}
}

// TestReadyOfAnotherOffer: an answer to a renewal that carried no offer, or another one, ends
// nothing.
func TestReadyOfAnotherOffer(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.sleep()
	before := b.next()
	b.c.Offer(b.now, b.c.Token(), "b")
	b.none() // one request at a time
	b.says(before, b.ready(), Renewed)
	b.sleep()
	if r := b.next(); r.Heir != "b" {
		t.Errorf("request %+v: the offer is not sent", r)
	}
}

// TestTransferEndsInTime: an answer that comes past the cancel point transfers nothing.
func TestTransferEndsInTime(t *testing.T) {
	b := newBench(t)
	r := b.offer()
	b.pass(ttl)
	b.says(r, b.ready(), Ended)
	if b.c.Reason() != Expired || b.c.Heir() != "" {
		t.Errorf("ended as %v", b.c.Reason())
	}
}

// TestHeirStaysAwake: an instance that the lease is offered to asks every TTL/20.
func TestHeirStaysAwake(t *testing.T) {
	b := newBench(t)
	a := b.reply(Held)
	a.Wait, a.Offered = ttl, true
	for range 3 {
		b.says(b.next(), a, Nothing)
		near(t, "sleep", b.c.Wait(b.now), ttl/20, ttl/20)
		b.sleep()
	}
	a.Wait = time.Second // it may be granted before
	b.says(b.next(), a, Nothing)
	near(t, "sleep", b.c.Wait(b.now), time.Second, time.Second+wakeLag+wakeSpread)
}

// TestComing: a candidate that a lease is offered to, and that asks for it, may count on it.
func TestComing(t *testing.T) {
	b := newBench(t)
	refused := func(offered bool) {
		a := b.reply(Held)
		a.Wait, a.Offered = ttl, offered
		b.says(b.next(), a, Nothing)
	}
	want := func(coming bool) {
		t.Helper()
		if b.c.Coming() != coming {
			t.Errorf("coming: %v", b.c.Coming())
		}
		b.sleep()
	}
	refused(false)
	want(false)
	refused(true)
	want(true)
	b.c.Ready(b.now, false) // it does not ask for it any more
	want(false)
	b.c.Ready(b.now, true)
	refused(false)
	want(false)
	refused(true)
	want(true)
	b.answers(b.next(), Unknown, Nothing) // which says nothing
	want(true)
	b.lead()
	want(false)
}

// TestNamedHint ends the stand-back after a resignation, and no other.
func TestNamedHint(t *testing.T) {
	for _, tt := range []struct {
		why  Reason
		asks bool
	}{{Resigned, true}, {Failed, false}} {
		b := newBench(t)
		b.lead()
		b.c.End(b.now, tt.why)
		b.c.Drained(b.now)
		b.answers(b.next(), Done, Nothing)
		b.pass(hintSpacing)
		b.c.Vacant(b.now)
		b.none()
		b.c.Named(b.now)
		if r, due := b.c.Next(b.now); due != tt.asks || due && r.Kind != Acquire {
			t.Errorf("%v: request %+v, %v", tt.why, r, due)
		}
	}
	b := newBench(t) // nor the one of a campaign that hears nothing
	for b.c.StandsBack(b.now) == 0 {
		if r, due := b.c.Next(b.now); due {
			b.answers(r, Unknown, Nothing)
		}
		b.sleep()
	}
	b.c.Named(b.now)
	if r, due := b.c.Next(b.now); due && r.Kind == Acquire {
		t.Errorf("request %+v", r)
	}
	b = newBench(t)
	a := b.reply(Held)
	a.Wait = ttl
	b.says(b.next(), a, Nothing)
	b.pass(time.Second)
	b.c.Named(b.now)
	b.next()
}

// TestOpenOfferEndsAStandBack after a resignation, and no other: all are called.
func TestOpenOfferEndsAStandBack(t *testing.T) {
	for why, asks := range map[Reason]bool{Resigned: true, Failed: false} {
		b := newBench(t)
		b.lead()
		b.c.End(b.now, why)
		b.c.Drained(b.now)
		b.answers(b.next(), Done, Nothing)
		b.pass(hintSpacing)
		b.c.Vacant(b.now)
		b.none()
		b.c.Called(b.now)
		b.c.Vacant(b.now)
		if r, due := b.c.Next(b.now); due != asks || due && r.Kind != Acquire {
			t.Errorf("%v: request %+v, %v", why, r, due)
		}
	}
}

// TestReservedHint lets others sleep until the reservation ends, and no longer than before.
func TestReservedHint(t *testing.T) {
	b := newBench(t)
	a := b.reply(Held)
	a.Wait = ttl
	b.says(b.next(), a, Nothing)
	b.c.Reserved(b.now, 5*time.Second)
	near(t, "sleep", b.c.Wait(b.now), 5*time.Second, 5*time.Second+wakeLag+wakeSpread)
	b.c.Reserved(b.now, time.Minute)
	near(t, "sleep", b.c.Wait(b.now), 5*time.Second, 5*time.Second+wakeLag+wakeSpread)

	b = newBench(t) // what stands back does not ask earlier
	b.lead()
	b.c.End(b.now, Resigned)
	b.c.Drained(b.now)
	b.answers(b.next(), Done, Nothing)
	b.c.Reserved(b.now, time.Second)
	near(t, "sleep", b.c.Wait(b.now), retry, 2*retry)
}

// TestOpenOffer: the best of those that ask within a moment becomes the heir, and only what Redis
// says of this very offer counts. If nobody has asked by then, the first one that does.
func TestOpenOffer(t *testing.T) {
	kept := func(b *bench, best string) Answer {
		a := b.reply(Kept)
		a.Token, a.Best = b.c.Token(), best
		return a
	}
	for name, test := range map[string]struct {
		bests []string // in the answers to renewals that carry the open offer
		want  time.Duration
	}{
		"one that asks at once":    {[]string{"", "c"}, gathering},
		"a better one that asks":   {[]string{"d", "c"}, gathering},
		"one that asks much later": {[]string{"", "", "", "c"}, gathering + 2*ttl/20},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.lead()
			b.pass(time.Second)
			if !b.c.Offer(b.now, b.c.Token(), Anyone) || b.c.Heir() != Anyone {
				t.Fatal("the offer was not taken")
			}
			if b.c.Offer(b.now, b.c.Token(), "b") {
				t.Error("another was offered it meanwhile")
			}
			began := b.instant
			for _, best := range test.bests {
				if b.c.Heir() != Anyone {
					t.Errorf("offered to %q", b.c.Heir())
				}
				b.sleep()
				r := b.next()
				if r.Kind != Renew || r.Heir != Anyone {
					t.Fatalf("request %+v", r)
				}
				a := kept(b, best)
				a.Ready = true // which nobody can be
				b.says(r, a, Renewed)
			}
			if b.c.Heir() != "c" || b.instant-began < test.want || b.instant-began > test.want+50*time.Millisecond {
				t.Errorf("offered to %q after %v, want %v", b.c.Heir(), b.instant-began, test.want)
			}
			b.sleep()
			r := b.next()
			if r.Heir != "c" {
				t.Fatalf("request %+v", r)
			}
			b.says(r, b.ready(), Ended)
			if b.c.Reason() != Transferred {
				t.Errorf("ended as %v", b.c.Reason())
			}
		})
	}
}

// TestOpenOfferToNobody is taken back like any other.
func TestOpenOfferToNobody(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.c.Offer(b.now, b.c.Token(), Anyone)
	until := b.instant + retry + 2*ttl/3
	for b.instant < until {
		b.sleep()
		if r, due := b.c.Next(b.now); due {
			if b.instant < until && r.Heir != Anyone {
				t.Fatalf("after %v: %+v", b.instant, r)
			}
			b.answers(r, Kept, Renewed)
		}
		b.c.Tick(b.now)
	}
	if b.c.Heir() != "" || b.c.State() != Leading {
		t.Errorf("%v, offered to %q", b.c.State(), b.c.Heir())
	}
}
