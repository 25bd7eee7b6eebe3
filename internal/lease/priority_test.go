package lease

import (
	"slices"
	"testing"
	"time"
)

// TestWhatAnAcquireSaysOfPriority: the priority, for how long it counts, and nothing of that if the
// last request had no usable answer: whoever cannot hear would win unheard.
func TestWhatAnAcquireSaysOfPriority(t *testing.T) {
	b := newBench(t)
	b.c.Prefer(7)
	r := b.next()
	if r.Rank != 7 || r.Mute || r.Slice != time.Second || r.Counts != retry+2*ttl/3 {
		t.Errorf("request %+v", r)
	}
	b.answers(r, Unknown, Nothing)
	b.sleep()
	r = b.next()
	if !r.Mute {
		t.Errorf("request %+v of one that does not hear", r)
	}
	b.answers(r, Held, Nothing)
	b.c.Prefer(-1)
	b.pass(retry)
	if r = b.next(); r.Mute || r.Rank != -1 {
		t.Errorf("request %+v", r)
	}
}

// TestFailedComesLast: for a while after its work failed, longer with each failure, a candidate
// says that it comes last. A term that lasts ends that.
func TestFailedComesLast(t *testing.T) {
	b := newBench(t)
	const longest = 30 * time.Second // it stands back for
	rank := func() Rank {            // of its next acquire
		b.sleep()
		r := b.next()
		a := b.reply(Held)
		a.Wait = ttl
		b.says(r, a, Nothing)
		return r.Rank
	}
	term := func(lasts time.Duration, why Reason) {
		b.sleep()
		b.lead()
		for began := b.now.Mono; b.now.Mono-began < lasts; b.pass(renew) {
			if r, due := b.c.Next(b.now); due {
				b.answers(r, Kept, Renewed)
			}
		}
		b.c.End(b.now, why)
		b.c.Drained(b.now)
		b.answers(b.next(), Done, Nothing)
	}
	fails := func(lasts time.Duration, want ...time.Duration) {
		t.Helper()
		for _, want := range want {
			term(lasts, Failed)
			failed := b.now.Mono
			for r := rank(); r == lowest; {
				r = rank()
			}
			near(t, "comes last", b.now.Mono-failed, want, want+longest*11/10)
		}
	}
	b.c.Prefer(7)
	if r := rank(); r != 7 {
		t.Errorf("rank %d", r)
	}
	fails(0, longest, 2*longest, 4*longest, 8*longest, 16*longest, 20*longest, 20*longest)
	fails(2*longest, longest)
	fails(0, 2*longest)
	term(0, Failed)
	term(2*longest, Resigned)
	if r := rank(); r != 7 {
		t.Errorf("rank %d after a term that lasted", r)
	}
	b.c.Prefer(lowest - 1)
	term(0, Failed)
	if r := rank(); r != lowest-1 {
		t.Errorf("rank %d: it comes last as it is", r)
	}
}

// TestSlice is a tenth of the TTL, a second at most; over a slow network two round trips, up to an
// attempt.
func TestSlice(t *testing.T) {
	for _, tt := range []struct{ ttl, trip, want time.Duration }{
		{3 * time.Second, 0, 300 * time.Millisecond},
		{30 * time.Second, 400 * time.Millisecond, time.Second},
		{30 * time.Second, 3 * time.Second, 6 * time.Second},
		{30 * time.Second, 9 * time.Second, 10 * time.Second},
	} {
		b := newBench(t, func(timing *Timing) { timing.TTL = tt.ttl })
		r := b.next()
		b.pass(tt.trip)
		b.answers(r, Held, Nothing)
		b.pass(retry)
		if r := b.next(); r.Slice != tt.want {
			t.Errorf("TTL %v, a round trip of %v: slice %v, want %v", tt.ttl, tt.trip, r.Slice, tt.want)
		}
	}
	if counts := (Timing{TTL: time.Second, Retry: time.Minute}).Counts(); counts != 2*time.Second {
		t.Errorf("a candidate counts for %v", counts)
	}
}

// TestPreempt: a leader gives way to a better candidate only if the options say so, only after the
// same one has asked for that long, and not soon after its own term began.
func TestPreempt(t *testing.T) {
	const patience = 2 * ttl
	better := func(b *bench, id string, priority int) Answer { // or a tie-break better, which is no reason
		a := b.reply(Kept)
		a.Token, a.Best, a.BestIs = b.c.Token(), id, Preference{Priority: priority, Newer: time.Hour, Order: 7}.Rank()
		return a
	}
	// follow renews for so long, under an answer, and returns when an offer was made.
	follow := func(b *bench, d time.Duration, answer func() Answer) (offered time.Duration) {
		t.Helper()
		for end := b.instant + d; b.instant < end; {
			b.sleep()
			if r, due := b.c.Next(b.now); due {
				b.says(r, answer(), Renewed)
			}
			if b.c.Heir() != "" {
				return b.instant
			}
		}
		return 0
	}
	preempting := func(timing *Timing) { timing.Preempt = patience }

	b := newBench(t)
	b.lead()
	if at := follow(b, 10*ttl, func() Answer { return better(b, "b", 9) }); at != 0 {
		t.Errorf("offered after %v, and nobody has asked for that", at)
	}
	b = newBench(t, preempting)
	b.c.Prefer(Preference{Priority: 3}.Rank())
	b.lead()
	if at := follow(b, 10*ttl, func() Answer { return better(b, "b", 3) }); at != 0 {
		t.Errorf("offered to one that is no better, after %v", at)
	}
	b = newBench(t, preempting)
	b.c.Prefer(Preference{Priority: 3}.Rank())
	b.lead()
	if at := follow(b, 10*ttl, func() Answer { return better(b, "b", 4) }); at < patience || at > patience+2*renew {
		t.Errorf("offered after %v, want %v", at, patience)
	}
	b = newBench(t, preempting) // now one, now the other
	b.lead()
	turns := 0
	if at := follow(b, 10*ttl, func() Answer { turns++; return better(b, string(rune('b'+turns/3%2)), 4) }); at != 0 {
		t.Errorf("offered after %v to one that has just come", at)
	}
	if at := follow(b, 2*renew, func() Answer { return better(b, "", 0) }); at != 0 { // all are gone
		t.Errorf("offered to nobody after %v", at)
	}
	since := b.instant
	if at := follow(b, 10*ttl, func() Answer { return better(b, "b", 4) }); at-since < patience {
		t.Errorf("offered %v after it came back", at-since)
	}

	b = newBench(t, preempting) // a term of its own, though it knew of the better one before
	b.lead()
	follow(b, patience-renew/2, func() Answer { return better(b, "b", 4) })
	b.c.End(b.now, Failed)
	b.c.Drained(b.now)
	b.answers(b.next(), Done, Nothing)
	b.pass(2 * time.Second)
	began := b.instant
	b.lead()
	if at := follow(b, 10*ttl, func() Answer { return better(b, "b", 4) }); at-began < patience {
		t.Errorf("offered %v after the term began", at-began)
	}
}

// TestPreemptAgain: an offer that is not taken up costs as much patience again.
func TestPreemptAgain(t *testing.T) {
	const patience = 2 * ttl
	b := newBench(t, func(timing *Timing) { timing.Preempt = patience })
	b.lead()
	var offers []time.Duration
	was := ""
	for b.instant < 20*ttl {
		b.sleep()
		if r, due := b.c.Next(b.now); due {
			a := b.reply(Kept)
			a.Token, a.Best, a.BestIs = b.c.Token(), "b", Preference{Priority: 4}.Rank()
			b.says(r, a, Renewed)
		}
		if heir := b.c.Heir(); heir != was {
			was = heir
			if heir != "" {
				offers = append(offers, b.instant)
			}
		}
	}
	if len(offers) < 3 || offers[1]-offers[0] < patience+retry+2*ttl/3 {
		t.Errorf("offers after %v", offers)
	}
}

// giveWay brings a leader to the point where a better candidate that it has offered its lease to is
// ready, and returns the renewal whose answer says so.
func giveWay(t *testing.T, b *bench, best func() (string, Rank)) Request {
	t.Helper()
	b.lead()
	for range 100 {
		b.sleep()
		r, due := b.c.Next(b.now)
		if !due {
			continue
		}
		if r.Heir != "" {
			return r
		}
		a := b.reply(Kept)
		a.Token = b.c.Token()
		a.Best, a.BestIs = best()
		b.says(r, a, Renewed)
	}
	t.Fatal("no offer")
	return Request{}
}

// TestGivesWayToTheBetterOnly: a candidate that is no better any more when it asks, since it has
// come to lead another role, or that is not the best, changes nothing; but for what somebody has
// asked for.
func TestGivesWayToTheBetterOnly(t *testing.T) {
	others := func(n int) Rank { return Preference{Others: n}.Rank() }
	for name, tt := range map[string]struct {
		best   string
		rank   Rank
		insist bool
		want   Change
	}{
		"still better":      {"b", others(1), false, Ended},
		"an equal by now":   {"b", others(2), false, Renewed},
		"another is best":   {"c", others(0), false, Renewed},
		"nobody is known":   {"", 0, false, Renewed},
		"asked for as well": {"b", others(4), true, Ended},
	} {
		b := newBench(t, func(timing *Timing) { timing.Preempt = 2 * ttl })
		b.c.Prefer(others(2))
		r := giveWay(t, b, func() (string, Rank) { return "b", others(0) })
		if tt.insist {
			b.c.Insist()
		}
		a := b.ready()
		a.Best, a.BestIs = tt.best, tt.rank
		b.says(r, a, tt.want)
		if tt.want == Renewed && (b.c.Heir() != "" || b.c.State() != Leading) {
			t.Errorf("%s: %v, offered to %q", name, b.c.State(), b.c.Heir())
		}
	}
}

// TestPace: one role per Preempt to a process that leads little less, and a quarter of what it
// leads less to one that leads much less, a few with each renewal.
func TestPace(t *testing.T) {
	timing := Timing{Preempt: time.Minute, Renew: 10 * time.Second}
	var p Pace
	now := -time.Hour // the clock may start below zero
	turn := func(want bool, fewer int) {
		t.Helper()
		if got := p.Turn(now, timing, fewer); got != want {
			t.Errorf("a turn at %v: %v", now, got)
		}
	}
	turn(true, 1)
	now += timing.Preempt - 1
	turn(false, 7)
	now++
	turn(true, 7)
	turn(false, 100) // it has had its turn
	now += 2 * timing.Preempt
	var given []int
	for range 12 {
		n := 0
		for p.Turn(now, timing, 100) { // each role that is renewed now
			n++
		}
		given = append(given, n)
		now += timing.Renew
	}
	if want := []int{5, 4, 4, 4, 4, 5, 4, 4, 4, 4, 4, 5}; !slices.Equal(given, want) { // 25 a minute
		t.Errorf("given %v, want %v", given, want)
	}
	p = Pace{}
	turn(true, 8)
	turn(false, 8) // no two at once, though nothing was given for long
	now += timing.Preempt / 2
	turn(true, 8)
}

// TestOwnPace: a role that was given at a slow pace, since two processes differ by little or its
// Preempt is long, does not hold up one that may go faster, nor do many of these hold up a slow
// one.
func TestOwnPace(t *testing.T) {
	rare, often := Timing{Preempt: 24 * time.Hour, Renew: 10 * time.Second}, Timing{Preempt: time.Minute, Renew: 10 * time.Second}
	var p Pace
	turn := func(now time.Duration, timing Timing, fewer int, want bool) {
		t.Helper()
		if got := p.Turn(now, timing, fewer); got != want {
			t.Errorf("a turn at %v: %v", now, got)
		}
	}
	turn(0, rare, 2, true)
	turn(time.Minute-1, often, 2, false)
	turn(time.Minute, often, 2, true)
	turn(time.Minute+often.Preempt/100, often, 500, true) // a level of Priority
	turn(time.Minute+often.Preempt/100+1, often, 500, false)
	turn(2*time.Minute, rare, 2, true)
	turn(3*time.Minute-1, often, 2, false)
	turn(24*time.Hour, rare, 2, false)
	turn(24*time.Hour+2*time.Minute, rare, 2, true)
}

// TestTurns: a leader gives way only if its process lets it, and is asked again until it does.
func TestTurns(t *testing.T) {
	b := newBench(t, func(timing *Timing) { timing.Preempt = 2 * ttl })
	asked := 0
	b.c.Turns(func(fewer int) bool { asked++; return fewer == 500 && asked == 4 })
	giveWay(t, b, func() (string, Rank) { return "b", Preference{Priority: 1}.Rank() })
	if asked != 4 || b.instant < 2*ttl+3*renew*9/10 || b.instant > 2*ttl+6*renew {
		t.Errorf("asked %d times, offered after %v", asked, b.instant)
	}
}
