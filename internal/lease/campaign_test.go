package lease

import (
	"testing"
	"time"
)

// TestFollowerSleepsUntilTheLeaseEnds, a little longer, and no longer than Retry.
func TestFollowerSleepsUntilTheLeaseEnds(t *testing.T) {
	for _, tt := range []struct {
		wait, low, high time.Duration
	}{
		{0, wakeLag, wakeLag + wakeSpread},
		{4 * time.Second, 4*time.Second + wakeLag, 4*time.Second + wakeLag + wakeSpread},
		{ttl, retry / 2, retry},
		{MaxTTL, retry / 2, retry},
	} {
		for _, chance := range []float64{0, 0.999} {
			for _, verdict := range []Verdict{Held, RollCall} {
				b := newBench(t)
				b.chance = chance
				a := b.reply(verdict)
				a.Wait = tt.wait
				b.says(b.next(), a, Nothing)
				near(t, "sleep", b.c.Wait(b.now), tt.low, tt.high)
				b.none()
			}
		}
	}
}

// TestFollowersDoNotAskInStep: of two that wait for the same lease one asks first.
func TestFollowersDoNotAskInStep(t *testing.T) {
	sleep := func(chance float64) time.Duration {
		b := newBench(t)
		b.chance = chance
		a := b.reply(Held)
		a.Wait = 4 * time.Second
		b.says(b.next(), a, Nothing)
		return b.c.Wait(b.now)
	}
	if early, late := sleep(0), sleep(0.9); late-early < wakeSpread/2 {
		t.Errorf("they ask after %v and %v", early, late)
	}
}

// TestP6_NonceIsKeptThroughUnknowns: what an acquire without an answer was granted is adopted by
// the next one.
func TestP6_NonceIsKeptThroughUnknowns(t *testing.T) {
	b := newBench(t)
	first := b.next()
	b.answers(first, Unknown, Nothing)
	b.sleep()
	second := b.next()
	b.pass(second.Bound)
	b.c.Tick(b.now)
	b.sleep()
	third := b.next()
	if first.Nonce != second.Nonce || first.Nonce != third.Nonce {
		t.Errorf("nonces %s, %s, %s", first.Nonce, second.Nonce, third.Nonce)
	}
	b.answers(third, Won, Began)
	b.answers(first, Won, Nothing) // late, of the campaign that leads
	b.none()                       // and nothing is given back
	b.is(Leading)
}

// TestP5_LateWonOfAnOldCampaignIsReleased: a nonce ends with its campaign; what it is granted later
// goes back.
func TestP5_LateWonOfAnOldCampaignIsReleased(t *testing.T) {
	b := newBench(t)
	late := b.next()
	b.answers(late, Unknown, Nothing)
	b.sleep()
	won := b.lead()
	b.c.End(b.now, Resigned)
	b.c.Drained(b.now)
	release := b.next()
	if release.Kind != Release || release.Nonce != won.Nonce || release.Token != b.c.Token() {
		t.Fatalf("release %+v", release)
	}
	b.answers(release, Done, Nothing)
	b.none()

	a := b.reply(Won)
	a.Token = epoch + 77
	b.says(late, a, Nothing)
	b.is(Following)
	if r := b.next(); r.Kind != Release || r.Nonce != late.Nonce || r.Token != epoch+77 {
		t.Errorf("release %+v, want one of nonce %s and token %d", r, late.Nonce, epoch+77)
	}
	if b.c.Floor() != epoch+77 {
		t.Errorf("floor %d: a late answer names tokens too", b.c.Floor())
	}
	b.says(late, b.reply(Held), Nothing)
	b.none()
	b.pass(2 * retry)
	if r := b.next(); r.Kind != Acquire || r.Nonce == late.Nonce {
		t.Errorf("request %+v, want an acquire of a new campaign", r)
	}
}

// TestP5_LateKeptIsReleasedAgain: a renewal that arrived after the release may have prolonged
// nothing, or reclaimed something.
func TestP5_LateKeptIsReleasedAgain(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.sleep()
	renewal := b.next()
	b.c.End(b.now, Resigned)
	b.c.Drained(b.now)
	b.answers(b.next(), Done, Nothing)
	b.answers(renewal, Kept, Nothing)
	if r := b.next(); r.Kind != Release || r.Nonce != renewal.Nonce || r.Token != renewal.Token {
		t.Errorf("release %+v", r)
	}
}

// TestReleaseNamesWhatIsRemembered: the one who remembers the highest token may be leaving, and has
// nothing else to ask.
func TestReleaseNamesWhatIsRemembered(t *testing.T) {
	b := newBench(t)
	b.answers(b.next(), Held, Nothing)
	b.pass(retry)
	b.answers(b.next(), Unknown, Nothing)
	b.c.Stop(b.now)
	if r := b.next(); r.Kind != Release || r.Token != 0 || r.Floor != epoch {
		t.Errorf("request %+v, want a release that names the floor %d", r, epoch)
	}
}

// TestReleaseSaysWhy: the history of terms gets the reason, and when the term ended, not when its
// work had returned. So does the second release, if a renewal of the term is answered behind the
// first one: it may arrive before that. What was granted unheard says so.
func TestReleaseSaysWhy(t *testing.T) {
	for why := range numReason {
		b := newBench(t)
		b.lead()
		b.pass(renew * 11 / 10)
		renewal := b.next()
		b.c.End(b.now, why)
		b.pass(time.Second)
		b.c.Drained(b.now)
		for range 2 {
			if r := b.next(); r.Kind != Release || r.Why != why.String() || r.Ago != time.Second {
				t.Errorf("%v: request %+v", why, r)
			}
			b.answers(renewal, Kept, Nothing)
		}
	}
	b := newBench(t)
	b.answers(b.next(), Unknown, Nothing)
	b.c.Stop(b.now)
	if r := b.next(); r.Kind != Release || r.Why != Unheard || r.Ago != 0 {
		t.Errorf("of a campaign that was never answered: request %+v", r)
	}
}

// TestP8_LeaseIsReleasedAfterTheDrain, and renewed until then if the end was our own will.
func TestP8_LeaseIsReleasedAfterTheDrain(t *testing.T) {
	for _, tt := range []struct {
		why   Reason
		keeps bool
	}{{Resigned, true}, {Failed, true}, {Shutdown, true}, {Expired, false}, {Refused, false}} {
		t.Run(tt.why.String(), func(t *testing.T) {
			b := newBench(t)
			b.lead()
			b.pass(time.Second)
			b.c.Drained(b.now) // before the end it says nothing
			if b.c.End(b.now, tt.why) != Ended {
				t.Fatal("not ended")
			}
			b.none() // no release before the work has returned
			b.pass(renew)
			r, due := b.c.Next(b.now)
			if due != tt.keeps || due && (r.Kind != Renew || !r.Draining) {
				t.Fatalf("while it drains: request %+v, %v", r, due)
			}
			if due {
				b.answers(r, Kept, Nothing)
				b.is(Draining)
			}
			b.c.Drained(b.now)
			if r := b.next(); r.Kind != Release || r.Token != b.c.Token() || r.NotAfter != 0 {
				t.Errorf("release %+v", r)
			}
			if !b.c.Releasing() {
				t.Error("nothing is being given back")
			}
		})
	}
}

// TestP8_AbandonedWorkLetsTheLeaseLapse: renewals stop, a release waits for the work.
func TestP8_AbandonedWorkLetsTheLeaseLapse(t *testing.T) {
	b := newBench(t)
	b.c.Abandon() // without a term it says nothing
	b.lead()
	b.c.End(b.now, Resigned)
	b.c.Abandon()
	b.pass(3 * ttl)
	b.none()
	b.is(Draining)
	b.c.Drained(b.now)
	if r := b.next(); r.Kind != Release {
		t.Errorf("request %+v", r)
	}
}

// TestDrainRenewsBeforeTheDeadlineOnly: a lease that may have ended is not renewed, and one that
// was refused is let go.
func TestDrainRenewsBeforeTheDeadlineOnly(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.c.End(b.now, Resigned)
	b.pass(life)
	b.none()
	b.c.Tick(b.now)
	near(t, "sleep", b.c.Wait(b.now), ttl, MaxTTL)

	b = newBench(t)
	b.lead()
	b.c.End(b.now, Resigned)
	b.pass(renew)
	b.answers(b.next(), Lost, Nothing)
	b.pass(renew)
	b.none()
}

// TestPenaltyGrows: work that fails term after term keeps a candidate back for longer and longer. A
// term that lasts for as long as the longest penalty forgets that, whatever ends it.
func TestPenaltyGrows(t *testing.T) {
	b := newBench(t)
	term := func(lasts time.Duration, why Reason) time.Duration {
		b.lead()
		for began := b.now.Mono; b.now.Mono-began < lasts; {
			b.pass(min(renew, lasts-(b.now.Mono-began)))
			if r, due := b.c.Next(b.now); due {
				b.answers(r, Kept, Renewed)
			}
		}
		b.c.End(b.now, why)
		b.c.Drained(b.now)
		b.answers(b.next(), Done, Nothing)
		back := b.c.StandsBack(b.now)
		b.pass(back)
		return back
	}
	fails := func(lasts time.Duration, want ...time.Duration) {
		t.Helper()
		for _, want := range want {
			near(t, "standing back", term(lasts, Failed), want, want*11/10)
		}
	}
	fails(time.Second, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)
	term(29*time.Second, Resigned) // not long enough
	fails(29*time.Second, 30*time.Second)
	fails(30*time.Second, time.Second)
	fails(time.Second, 2*time.Second)
	term(30*time.Second, Refused)
	fails(time.Second, time.Second)
}

// TestStandsBack: how soon a candidate campaigns again depends on why its term ended; no hint
// shortens it.
func TestStandsBack(t *testing.T) {
	for _, tt := range []struct {
		why       Reason
		low, high time.Duration
	}{
		{Expired, ttl / 20 * 3 / 4, ttl / 20},
		{Refused, ttl / 20 * 3 / 4, ttl / 20},
		{Resigned, retry, retry * 11 / 10},
		{Failed, time.Second, 1100 * time.Millisecond},
	} {
		t.Run(tt.why.String(), func(t *testing.T) {
			b := newBench(t)
			won := b.lead()
			b.c.End(b.now, tt.why)
			b.c.Drained(b.now)
			b.answers(b.next(), Done, Nothing)
			near(t, "standing back", b.c.StandsBack(b.now), tt.low, tt.high)
			near(t, "sleep", b.c.Wait(b.now), tt.low, tt.high)
			b.c.Vacant(b.now)
			near(t, "sleep after a hint", b.c.Wait(b.now), tt.low, tt.high)
			b.c.Ready(b.now, false)
			b.c.Ready(b.now, true)
			b.none()
			b.sleep()
			if r := b.next(); r.Kind != Acquire || r.Nonce == won.Nonce {
				t.Errorf("request %+v, want an acquire with a new nonce", r)
			}
			if b.c.StandsBack(b.now) != 0 {
				t.Errorf("still standing back for %v", b.c.StandsBack(b.now))
			}
		})
	}
}

// TestUnready candidates ask for nothing; a term that is on goes on.
func TestUnready(t *testing.T) {
	b := newBench(t)
	b.c.Ready(b.now, false)
	b.none()
	near(t, "sleep", b.c.Wait(b.now), ttl, MaxTTL)
	b.pass(time.Minute)
	b.none()
	b.c.Ready(b.now, true)
	b.lead()
	b.c.Ready(b.now, false)
	b.sleep()
	if r := b.next(); r.Kind != Renew {
		t.Errorf("request %+v", r)
	}
}

// TestStop ends a campaign in every state, and gives back what it may have been granted.
func TestStop(t *testing.T) {
	t.Run("before anything", func(t *testing.T) {
		b := newBench(t)
		if b.c.Stop(b.now) != Nothing || !b.c.Finished() {
			t.Error("not finished")
		}
		b.pass(time.Minute)
		b.none()
	})
	for _, tt := range []struct {
		name     string
		verdict  Verdict
		releases bool
	}{{"refused", Held, false}, {"granted", Won, true}, {"no answer", Unknown, true}} {
		t.Run("in flight, "+tt.name, func(t *testing.T) {
			b := newBench(t)
			r := b.next()
			if b.c.Stop(b.now) != Nothing || b.c.Finished() {
				t.Fatal("finished while a request is in flight")
			}
			b.answers(r, tt.verdict, Nothing)
			b.is(Stopped)
			release, due := b.c.Next(b.now)
			if due != tt.releases || due && (release.Kind != Release || release.Nonce != r.Nonce || release.Token != 0) {
				t.Fatalf("release %+v, %v", release, due)
			}
			if due {
				b.answers(release, Done, Nothing)
			}
			if !b.c.Finished() {
				t.Error("not finished")
			}
		})
	}
	t.Run("in flight, never answered", func(t *testing.T) {
		b := newBench(t)
		r := b.next()
		b.c.Stop(b.now)
		if b.sleep() != Nothing || b.now.Mono-r.Sent.Mono != r.Bound {
			t.Fatal("it does not wait for the bound")
		}
		if release := b.next(); release.Kind != Release || release.Nonce != r.Nonce {
			t.Errorf("release %+v", release)
		}
		b.answers(r, Won, Nothing) // late
		if release := b.next(); release.Token != epoch {
			t.Errorf("release %+v", release)
		}
	})
	t.Run("refused after one without an answer", func(t *testing.T) {
		b := newBench(t)
		unanswered := b.next()
		b.answers(unanswered, Unknown, Nothing)
		b.sleep()
		b.answers(b.next(), Held, Nothing) // by the holder before us: the unanswered one may still arrive
		b.c.Stop(b.now)
		b.is(Stopped)
		if release := b.next(); release.Kind != Release || release.Nonce != unanswered.Nonce || release.Token != 0 {
			t.Errorf("release %+v", release)
		}
	})
	t.Run("leading", func(t *testing.T) {
		b := newBench(t)
		b.lead()
		if b.c.Stop(b.now) != Ended || b.c.Reason() != Shutdown || b.c.Finished() {
			t.Fatal("the term did not end as stopped")
		}
		b.c.Drained(b.now)
		b.is(Stopped)
		if b.c.Finished() {
			t.Error("finished before the release")
		}
		b.answers(b.next(), Done, Nothing)
		if !b.c.Finished() {
			t.Error("not finished")
		}
	})
	t.Run("draining", func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.c.End(b.now, Failed)
		b.c.Stop(b.now)
		if b.c.Reason() != Failed {
			t.Errorf("reason %v", b.c.Reason())
		}
		b.c.Drained(b.now)
		b.is(Stopped)
	})
}

// TestReleaseIsTriedAgain until it is answered, a few times, for as long as the lease may last; of
// a process that stops for one attempt's time.
func TestReleaseIsTriedAgain(t *testing.T) {
	give := func(t *testing.T) (*bench, Request) {
		b := newBench(t)
		b.lead()
		b.c.Stop(b.now)
		b.c.Drained(b.now)
		return b, b.next()
	}
	t.Run("errors", func(t *testing.T) {
		b, r := give(t)
		tries := 1
		for first := r; ; tries++ {
			b.answers(r, Unknown, Nothing)
			if !b.c.Releasing() {
				break
			}
			near(t, "pause", b.c.Wait(b.now), time.Second, ttl/6)
			b.sleep()
			if b.c.Tick(b.now); !b.c.Releasing() {
				break
			}
			r = b.next()
			if r.Nonce != first.Nonce || r.Token != first.Token || r.Seq == first.Seq {
				t.Fatalf("release %+v after %+v", r, first)
			}
		}
		if tries > maxTries || tries < 3 || b.now.Since(Reading{Mono: time.Hour, Wall: b.now.Wall}) > ttl/3+ttl/6 {
			t.Errorf("%d tries until %v", tries, b.now.Mono-time.Hour)
		}
		if !b.c.Finished() {
			t.Error("not finished")
		}
	})
	t.Run("silence", func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.c.End(b.now, Resigned)
		b.c.Drained(b.now)
		r := b.next()
		if b.c.Wait(b.now) != r.Bound {
			t.Fatalf("sleep %v, want the bound of the release", b.c.Wait(b.now))
		}
		b.sleep()
		b.sleep()
		second := b.next()
		if second.Seq == r.Seq || second.Nonce != r.Nonce {
			t.Fatalf("release %+v", second)
		}
		b.answers(r, Done, Nothing) // late, and as good
		if b.c.Releasing() {
			t.Error("it still releases after a late answer")
		}
		b.answers(second, Done, Nothing)
	})
	t.Run("of another campaign", func(t *testing.T) {
		b, r := give(t)
		r.Nonce = "other"
		b.answers(r, Done, Nothing)
		if !b.c.Releasing() {
			t.Error("the answer to another release ended this one")
		}
	})
}

// TestP7_CandidateThatHearsNothing for a TTL may hold the lease without knowing: it gives its
// campaign up and stands back.
func TestP7_CandidateThatHearsNothing(t *testing.T) {
	b := newBench(t)
	first := b.next()
	b.answers(first, Held, Nothing)
	start := b.now
	for {
		r := b.acquire()
		if r.Nonce != first.Nonce {
			t.Fatalf("request %+v before the nonce was given up", r)
		}
		b.answers(r, Unknown, Nothing)
		if b.c.Releasing() {
			break
		}
		if b.now.Since(start) > 3*ttl {
			t.Fatal("it goes on without an answer")
		}
	}
	near(t, "patience", b.now.Since(start), ttl, 2*ttl)
	near(t, "standing back", b.c.StandsBack(b.now), retry, retry*11/10)
	if r := b.next(); r.Kind != Release || r.Nonce != first.Nonce || r.Token != 0 {
		t.Errorf("release %+v", r)
	}
	if r := b.acquire(); r.Nonce == first.Nonce {
		t.Errorf("request %+v with a nonce that was given up", r)
	}
}

// TestReleasesAreBounded: give-backs that nobody answers neither hold up a campaign nor are kept
// for ever.
func TestReleasesAreBounded(t *testing.T) {
	b := newBench(t)
	for range 100 {
		b.answers(b.acquire(), Won, Began)
		b.c.End(b.now, Expired)
		b.c.Drained(b.now)
	}
	if n := len(b.c.releases); n > 40 {
		t.Errorf("%d releases are kept", n)
	}
}

// acquire lets time pass, leaving releases unanswered, until an acquire is due.
func (b *bench) acquire() Request {
	b.t.Helper()
	for range 1000 {
		for r, due := b.c.Next(b.now); due; r, due = b.c.Next(b.now) {
			if r.Kind == Acquire {
				return r
			}
		}
		b.sleep()
	}
	b.t.Fatal("no acquire is ever due")
	return Request{}
}
