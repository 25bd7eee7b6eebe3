package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// What a rule does at its very edge, and how far its jitter goes. `make mutate` moves each of these
// by one.

// TestLimits are numbers that users, scripts or other clients rely on.
func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name      string
		got, want int64
	}{
		{"token", MaxToken, 9_007_199_254_740_992}, {"TTL", int64(MaxTTL), int64(24 * time.Hour)},
		{"hints", int64(hintSpacing), int64(25 * time.Millisecond)}, {"tries", maxTries, 8},
		{"spread of followers", int64(wakeSpread), int64(2 * time.Millisecond)},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want)
		}
	}
}

// TestMonotonicClockBelowZero: a process may start with any reading.
func TestMonotonicClockBelowZero(t *testing.T) {
	b := newBench(t)
	b.now.Mono = -1000 * time.Hour
	if b.c.StandsBack(b.now) != 0 {
		t.Error("stands back before anything")
	}
	a := b.reply(Held)
	a.Wait = ttl
	b.says(b.next(), a, Nothing)
	b.c.Vacant(b.now)
	b.next()
}

// TestJitter is as wide as documented: what is drawn from is pinned at both of its ends.
func TestJitter(t *testing.T) {
	follower := func(b *bench) {
		a := b.reply(Held)
		a.Wait = MaxTTL
		b.says(b.next(), a, Nothing)
	}
	ends := func(why Reason) func(*bench) {
		return func(b *bench) {
			b.lead()
			b.c.End(b.now, why)
			b.c.Drained(b.now)
			b.answers(b.next(), Done, Nothing)
		}
	}
	for _, tt := range []struct {
		name      string
		act       func(*bench)
		low, high time.Duration // of the sleep, if 0 and 1 are drawn
	}{
		{"follower", follower, retry / 2, retry},
		{"follower, the next time", func(b *bench) {
			follower(b)
			b.sleep()
			follower(b)
		}, retry * 19 / 20, retry},
		{"renewal", func(b *bench) { b.lead() }, renew * 9 / 10, renew * 11 / 10},
		{"after a resignation", ends(Resigned), retry, retry * 11 / 10},
		{"after failed work", ends(Failed), time.Second, 1100 * time.Millisecond},
		{"after a loss", ends(Refused), ttl / 20, ttl / 20 * 3 / 4},
		{"after a long silence", func(b *bench) {
			b.answers(b.next(), Unknown, Nothing)
			b.pass(ttl)
			b.answers(b.next(), Unknown, Nothing)
			b.answers(b.next(), Done, Nothing)
		}, retry, retry * 11 / 10},
	} {
		for i, want := range []time.Duration{tt.low, tt.high} {
			b := newBench(t)
			b.chance = float64(i)
			tt.act(b)
			near(t, fmt.Sprint(tt.name, i), b.c.Wait(b.now), want-time.Microsecond, want+time.Microsecond)
		}
	}
}

// TestBackoff: TTL/20, doubled, TTL/6 at most, less up to a quarter.
func TestBackoff(t *testing.T) {
	for _, chance := range []float64{0, 1} {
		b := newBench(t)
		b.chance = chance
		b.lead()
		b.pass(renew * 11 / 10)
		for i, pause := range []time.Duration{ttl / 20, ttl / 10, ttl / 6} {
			b.answers(b.next(), Unknown, Nothing)
			if chance == 1 {
				pause = pause * 3 / 4
			}
			near(t, fmt.Sprint("pause ", i), b.c.Wait(b.now), pause-time.Microsecond, pause+time.Microsecond)
			b.sleep()
		}
	}
}

// TestTickBeforeTheBound gives nothing up that is still waited for.
func TestTickBeforeTheBound(t *testing.T) {
	b := newBench(t)
	r := b.next()
	b.pass(r.Bound - 1)
	b.c.Tick(b.now)
	if b.c.Unanswered() != 0 {
		t.Error("a request was given up before its bound")
	}
	b.answers(r, Won, Began)
	b.c.End(b.now, Expired)
	b.c.Drained(b.now)
	b.c.Ready(b.now, false)
	r = b.next()
	b.pass(time.Millisecond)
	b.c.Tick(b.now)
	if want := r.Bound - time.Millisecond; b.c.Wait(b.now) != want {
		t.Errorf("sleep %v, want %v: the release was given up before its bound", b.c.Wait(b.now), want)
	}
}

// TestReleaseThatIsGivenUpWaits before it is sent again; a late error of the first says nothing of
// the second.
func TestReleaseThatIsGivenUpWaits(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.c.Ready(b.now, false) // no acquire between
	b.c.End(b.now, Resigned)
	b.c.Drained(b.now)
	first := b.next()
	b.pass(first.Bound)
	b.c.Tick(b.now)
	near(t, "pause", b.c.Wait(b.now), ttl/20*3/4, ttl/20)
	b.none()
	b.sleep()
	second := b.next()
	b.answers(first, Unknown, Nothing)
	if b.c.Wait(b.now) != second.Bound {
		t.Errorf("sleep %v, want the bound of the second release", b.c.Wait(b.now))
	}
}

// TestCancelPoint: the term is on a nanosecond before it, and not at it, whatever notices.
func TestCancelPoint(t *testing.T) {
	slow := func(timing *Timing) { timing.Drift = 21 * time.Second } // the attempt is longer than what is left of the lease
	for _, tt := range []struct {
		left  time.Duration
		won   Change
		kept  Change
		ticks Change
	}{{1, Began, Renewed, Nothing}, {0, Nothing, Ended, Ended}} {
		b := newBench(t, slow)
		r := b.next()
		b.pass(ttl - 21*time.Second - Rounding - guard - tt.left)
		b.answers(r, Won, tt.won)

		b = newBench(t)
		b.lead()
		b.pass(life - guard - time.Second)
		r = b.next()
		b.pass(time.Second - tt.left)
		b.answers(r, Kept, tt.kept)

		b = newBench(t)
		b.lead()
		b.pass(life - guard - tt.left)
		if got := b.c.Tick(b.now); got != tt.ticks {
			t.Errorf("%v before the cancel point: change %d", tt.left, got)
		}
	}
}

// TestAHintCausesOneRequest, and what it did not cause counts for nothing.
func TestAHintCausesOneRequest(t *testing.T) {
	held := func(b *bench, r Request) {
		a := b.reply(Held)
		a.Wait = ttl
		b.says(r, a, Nothing)
	}
	b := newBench(t)
	r := b.next()
	b.c.Vacant(b.now)
	held(b, r)
	b.sleep()
	held(b, b.next())
	near(t, "sleep after the second", b.c.Wait(b.now), retry/2, retry)

	b = newBench(t)
	held(b, b.next())
	b.pass(b.c.Wait(b.now))
	b.c.Vacant(b.now) // it is due anyway
	held(b, b.next())
	b.c.Vacant(b.now)
	b.next() // at once
}

// TestQuestionsLieApart: followers that have asked at one moment, since a lease was released, they
// may lead again or Redis answers again, do not go on asking in step; one that asks by time alone
// does so once a RetryInterval.
func TestQuestionsLieApart(t *testing.T) {
	const all = 100
	var first, second, ready, answered []time.Duration
	for n := range all {
		b := newBench(t)
		b.chance = float64(n) / all
		ask := func(lo time.Duration) time.Duration {
			t.Helper()
			a := b.reply(Held)
			a.Wait = ttl
			b.says(b.next(), a, Nothing)
			wait := b.c.Wait(b.now)
			near(t, "sleep", wait, lo, retry)
			return wait
		}
		first = append(first, ask(retry/2)) // at its start
		b.sleep()
		ask(retry * 95 / 100)
		b.sleep()
		ask(retry * 95 / 100)
		b.pass(retry / 5)
		b.c.Vacant(b.now)
		second = append(second, ask(retry/2))
		b.sleep()
		ask(retry * 95 / 100)
		b.c.Ready(b.now, false)
		b.pass(2 * retry)
		b.c.Ready(b.now, true)
		ready = append(ready, ask(retry/2))
		b.sleep()
		b.answers(b.next(), Unknown, Nothing)
		b.c.Vacant(b.now)
		answered = append(answered, ask(retry/2))
	}
	for _, waits := range [][]time.Duration{first, second, ready, answered} {
		slices.Sort(waits)
		for n := range all - all/10 {
			if waits[n+all/10]-waits[n] < retry/25 {
				t.Fatalf("a tenth of them asks within %v", waits[n+all/10]-waits[n])
			}
		}
	}
}

// TestVacantAtTheEndOfStandingBack is heard at that very instant.
func TestVacantAtTheEndOfStandingBack(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.c.End(b.now, Resigned)
	b.c.Drained(b.now)
	b.answers(b.next(), Done, Nothing)
	b.sleep()
	a := b.reply(Held)
	a.Wait = ttl
	b.c.wake = b.now.Mono + ttl // as if something else were due later
	b.c.Vacant(b.now)
	b.says(b.next(), a, Nothing)
}

// TestReadyAgain asks at once, whatever it slept for; ready twice is ready once.
func TestReadyAgain(t *testing.T) {
	b := newBench(t)
	a := b.reply(Held)
	a.Wait = ttl
	b.says(b.next(), a, Nothing)
	b.c.Ready(b.now, true)
	b.none()
	b.c.Ready(b.now, false)
	b.c.Ready(b.now, true)
	b.next()
}

// TestDrainWakesItsDriver for the renewals that keep the lease, the first one an interval after the
// last.
func TestDrainWakesItsDriver(t *testing.T) {
	b := newBench(t)
	b.chance = 0.999
	b.lead()
	b.pass(time.Second)
	b.c.End(b.now, Resigned)
	if b.c.Wait(b.now) != renew-time.Second {
		t.Errorf("sleep %v, want %v", b.c.Wait(b.now), renew-time.Second)
	}
	b.c.Abandon()
	b.pass(renew)
	b.none()
}

// TestRenewalSaysWhenTheTermBegan, as Redis has said it.
func TestRenewalSaysWhenTheTermBegan(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.sleep()
	if r := b.next(); r.Since != 1_700_000_000 || b.c.Since() != r.Since {
		t.Errorf("since %d", r.Since)
	}
}

// TestPatienceCountsFromTheFirstUnanswered request in a row, and ends exactly a TTL later. What a
// campaign has not asked for is not given back.
func TestPatienceCountsFromTheFirstUnanswered(t *testing.T) {
	b := newBench(t)
	held := func(r Request) {
		a := b.reply(Held)
		a.Wait = ttl
		b.says(r, a, Nothing)
	}
	first := b.next()
	held(first)
	b.sleep()
	held(b.next())
	b.sleep()
	b.answers(b.next(), Unknown, Nothing)
	b.pass(ttl - 1)
	b.answers(b.next(), Unknown, Nothing)
	if b.c.Releasing() {
		t.Fatal("given up before a TTL without an answer")
	}
	b.pass(1)
	b.c.wake = b.now.Mono // as if it were due
	r := b.next()
	b.c.Vacant(b.now) // while it is under way
	b.answers(r, Unknown, Nothing)
	if !b.c.Releasing() {
		t.Fatal("not given up after a TTL without an answer")
	}
	near(t, "standing back", b.c.StandsBack(b.now), retry, retry*11/10)
	b.answers(b.next(), Done, Nothing)
	near(t, "sleep, whatever hint came before", b.c.Wait(b.now), retry, retry*11/10)
	b.sleep()
	again := b.next()
	held(again)
	b.c.Stop(b.now)
	b.none()
	if !b.c.Finished() || again.Nonce == first.Nonce {
		t.Error("a campaign that was refused gives something back")
	}
}

// TestP6_OneLostReplyEndsNoCampaign, however long ago the last answer came: Redis may have granted
// the lease by that very request, and the next one adopts it.
func TestP6_OneLostReplyEndsNoCampaign(t *testing.T) {
	held := func(b *bench) Request {
		r := b.next()
		a := b.reply(Held)
		a.Wait = ttl
		b.says(r, a, Nothing)
		return r
	}
	asks := map[string]func(b *bench) Request{
		"after it was not eligible for long": func(b *bench) Request {
			b.c.Ready(b.now, false)
			b.pass(2 * ttl)
			b.c.Ready(b.now, true)
			return b.next()
		},
		"RetryInterval is LeaseTTL": func(b *bench) Request {
			b.sleep()
			return b.next()
		},
		"suspended while it asked": func(b *bench) Request {
			b.sleep()
			r := b.next()
			b.pass(2 * ttl)
			return r
		},
	}
	for name, ask := range asks {
		b := newBench(t, func(timing *Timing) { timing.Retry = ttl })
		b.chance = 0.999
		first := held(b)
		lost := ask(b)
		b.pass(lost.Bound)
		b.c.Tick(b.now)
		if back := b.c.StandsBack(b.now); back > 0 || b.c.Releasing() {
			t.Errorf("%s: one lost reply, and it stands back for %v, gives back: %v", name, back, b.c.Releasing())
			continue
		}
		b.sleep()
		again := b.next()
		if again.Kind != Acquire || again.Nonce != first.Nonce {
			t.Errorf("%s: request %+v, want an acquire with the nonce %s", name, again, first.Nonce)
		}
		b.answers(again, Won, Began)
	}
}

// TestStopAfterATerm gives nothing back that the campaign after it was refused.
func TestStopAfterATerm(t *testing.T) {
	b := newBench(t)
	b.answers(b.next(), Unknown, Nothing)
	b.sleep()
	b.lead()
	b.c.End(b.now, Resigned)
	b.c.Drained(b.now)
	b.answers(b.next(), Done, Nothing)
	b.sleep()
	b.answers(b.next(), Held, Nothing)
	b.c.Stop(b.now)
	b.none()
}

// TestErrorsTellNoTime: an answer that is none leaves the estimate of Redis's clock as it was.
func TestErrorsTellNoTime(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.sleep()
	b.answers(b.next(), Unknown, Nothing)
	b.sleep()
	if r := b.next(); r.NotAfter != b.redis()+r.Bound.Milliseconds() {
		t.Errorf("not-after %d, want %d", r.NotAfter, b.redis()+r.Bound.Milliseconds())
	}
	if step := b.c.StepSeen(); step != 0 {
		t.Errorf("step %v", step)
	}
}

// TestAnswerAtTheBoundIsAClock: a reply that took as long as an attempt may take is believed.
func TestAnswerAtTheBoundIsAClock(t *testing.T) {
	b := newBench(t)
	b.answers(b.next(), Held, Nothing)
	b.sleep()
	r := b.next()
	b.pass(r.Bound)
	a := b.reply(Held)
	b.says(r, a, Nothing)
	want := a.Now + b.c.timing.Attempt().Milliseconds()
	if next := b.acquire(); next.NotAfter != want+(b.now.Mono-r.Sent.Mono).Milliseconds() {
		t.Errorf("not-after %d, want %d", next.NotAfter, want+(b.now.Mono-r.Sent.Mono).Milliseconds())
	}
}

// TestTwoAnswersOfOneInstant: of requests that were sent at once the later answer counts, and shows
// a step too.
func TestTwoAnswersOfOneInstant(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.c.End(b.now, Expired)
	b.c.Drained(b.now)
	b.pass(ttl / 20)
	release, acquire := b.next(), b.next()
	if release.Kind != Release || acquire.Kind != Acquire || release.Sent != acquire.Sent {
		t.Fatalf("requests %+v, %+v", release, acquire)
	}
	b.answers(release, Done, Nothing)
	a := b.reply(Held)
	a.Now += 60_000
	b.says(acquire, a, Nothing)
	near(t, "step", b.c.StepSeen(), time.Minute, time.Minute)
	if r := b.acquire(); r.NotAfter != b.redis()+60_000+r.Bound.Milliseconds() {
		t.Errorf("not-after %d, want one by the later answer", r.NotAfter)
	}
}

// TestStepOfTheClockAtItsEdge: a second, and a twentieth of the time between, are taken for a clock
// that runs apart.
func TestStepOfTheClockAtItsEdge(t *testing.T) {
	const between, slack = 100 * time.Second, 6 * time.Second
	for _, tt := range []struct{ step, want time.Duration }{
		{slack, 0}, {slack + time.Millisecond, slack + time.Millisecond},
		{-slack - ttl/3, 0}, {-slack - ttl/3 - time.Millisecond, -slack - ttl/3 - time.Millisecond},
	} {
		b := newBench(t)
		a := b.reply(Held)
		a.Now += year // no wall clock that we know of
		b.says(b.next(), a, Nothing)
		near(t, "step at the first answer", b.c.StepSeen(), 0, 0)
		b.pass(between)
		a = b.reply(Held)
		a.Now += year + tt.step.Milliseconds()
		b.says(b.next(), a, Nothing)
		near(t, fmt.Sprint("step of ", tt.step), b.c.StepSeen(), tt.want, tt.want)
	}
}

// TestLeeway: a regular renewal may be earlier by half of RenewInterval, and as late as that after
// the last one. One that is called for, or tried again, is neither.
func TestLeeway(t *testing.T) {
	for _, tt := range []struct {
		name string
		act  func(*bench)
		want bool
	}{
		{"following", func(*bench) {}, false},
		{"leading", func(b *bench) { b.lead() }, true},
		{"the renewal is overdue", func(b *bench) { b.lead(); b.pass(b.c.Wait(b.now) + time.Millisecond) }, true},
		{"the renewal is on its way", func(b *bench) { b.lead(); b.pass(b.c.Wait(b.now)); b.next() }, false},
		{"it was kept", func(b *bench) { b.lead(); b.pass(b.c.Wait(b.now)); b.answers(b.next(), Kept, Renewed) }, true},
		{"it has failed", func(b *bench) {
			b.lead()
			b.pass(b.c.Wait(b.now))
			b.c.Answer(b.now, b.next(), Answer{})
		}, false},
		{"the leaders are called", func(b *bench) { b.lead(); b.pass(ttl / 10); b.c.RollCall(b.now) }, false},
		{"the lease is offered", func(b *bench) { b.lead(); b.c.Offer(b.now, b.c.Token(), "other") }, false},
		{"a renewal has carried the offer", func(b *bench) {
			b.lead()
			b.c.Offer(b.now, b.c.Token(), "other")
			b.sleep()
			b.answers(b.next(), Kept, Renewed)
		}, false},
		{"another lease is being given back", func(b *bench) { b.lead(); b.c.releases = append(b.c.releases, release{}) }, false},
		{"the work drains", func(b *bench) { b.lead(); b.c.End(b.now, Resigned) }, false},
	} {
		b := newBench(t)
		tt.act(b)
		early, late := b.c.Leeway()
		switch renew := b.c.timing.Renew; {
		case !tt.want && (early != 0 || late != 0):
			t.Errorf("%s: %v and %v", tt.name, early, late)
		case tt.want && (early != renew/2 || b.c.wake+late != max(b.c.lease.Sent.Mono+renew, b.c.wake)):
			t.Errorf("%s: %v and %v", tt.name, early, late)
		}
	}
	b := newBench(t)
	b.lead()
	b.pass(b.c.Wait(b.now) - b.c.timing.Renew/2 - 1)
	b.c.Hasten(b.now)
	b.none()
	b.pass(1)
	b.none()
	b.c.Hasten(b.now)
	b.next()
	b.c.Hasten(b.now) // it is on its way
	b.none()
}
