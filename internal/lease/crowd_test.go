package lease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestRamp: a crowd asks the later the larger it is, and never much later: all of it may have died
// but one.
func TestRamp(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, 3 * time.Second, 30 * time.Second, MaxTTL} {
		timing, before := Timing{TTL: ttl}, wakeSpread
		for _, others := range []int{0, 1, 50} {
			if got := timing.Ramp(others); got != wakeSpread {
				t.Errorf("TTL %v: %d ask within %v, want 2ms", ttl, others, got)
			}
		}
		for _, others := range []int{51, 100, 1000, 10_000, 100_000, 1_000_000} {
			got := timing.Ramp(others)
			if got <= before || got > time.Duration(others)*gap(others) || got > ttl/5 {
				t.Errorf("TTL %v: %d ask within %v, fewer within %v", ttl, others, got, before)
			}
			before = got
		}
		if timing.Ramp(2_000_000_000) != before {
			t.Error("whatever a server says, it is no more than a million")
		}
	}
	near(t, "ramp of 100", Timing{TTL: ttl}.Ramp(100), 86*time.Millisecond, 87*time.Millisecond)
	near(t, "ramp of 10,000", Timing{TTL: ttl}.Ramp(10_000), 1469*time.Millisecond, 1471*time.Millisecond)
}

// following is a candidate of a crowd that knows of a lease that ends in wait.
func following(t *testing.T, others int, wait time.Duration) *bench {
	b := newBench(t)
	b.c.Crowd(others)
	a := b.reply(Held)
	a.Wait = wait
	b.says(b.next(), a, Nothing)
	return b
}

// TestFewOfACrowdAsk: one asks soon after the lease has ended, and by the time that all have heard
// that somebody was granted it, few more have asked: a hint takes Redis up to 15 µs for each.
func TestFewOfACrowdAsk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, others := range []int{100, 1_000, 10_000} {
		var asks []time.Duration
		for range others + 1 {
			b := newBench(t)
			b.c.random = random.Float64
			b.c.Crowd(others)
			a := b.reply(Held)
			a.Wait = 5 * time.Second
			b.says(b.next(), a, Nothing)
			asks = append(asks, b.c.Wait(b.now)-a.Wait)
		}
		slices.Sort(asks)
		heard := time.Duration(others) * 15 * time.Microsecond
		soon, _ := slices.BinarySearch(asks, asks[0]+heard)
		near(t, fmt.Sprintf("the first of %d", others), asks[0], time.Millisecond, 10*time.Millisecond)
		near(t, fmt.Sprintf("the last of %d", others), asks[others], 0, Timing{TTL: ttl}.Ramp(others)+wakeLag)
		if soon > 60 {
			t.Errorf("of %d, %d ask within %v", others, soon, heard)
		}
	}
}

// lost has a question without an answer, and then one of which the answer says that another leads.
func (b *bench) lost(wait time.Duration) {
	b.t.Helper()
	b.answers(b.next(), Unknown, Nothing)
	b.sleep()
	a := b.reply(Held)
	a.Wait = wait
	b.says(b.next(), a, Nothing)
}

// TestGrantedHint: one of many that waits for the end of the lease asks when it would have asked
// anyway, and no later however often it hears that.
func TestGrantedHint(t *testing.T) {
	const soon = 2 * time.Second
	for name, test := range map[string]struct {
		others int
		before func(b *bench)
		defers bool
	}{
		"many":                                {many + 1, func(*bench) {}, true},
		"many, and a hint that it is free":    {many + 1, func(b *bench) { b.c.Vacant(b.now) }, true},
		"not so many":                         {many, func(*bench) {}, false},
		"few, and a hint":                     {few, func(b *bench) { b.c.Vacant(b.now) }, false},
		"a question without an answer is out": {many + 1, func(b *bench) { b.sleep(); b.answers(b.next(), Unknown, Nothing) }, false},
		"a question without an answer, and one with": {many + 1, func(b *bench) { b.sleep(); b.lost(soon) }, false},
		"that was a lease ago": {many + 1, func(b *bench) {
			b.sleep()
			began := b.now.Mono
			for b.lost(soon); b.now.Mono < began+2*ttl; {
				b.sleep()
				a := b.reply(Held)
				a.Wait = soon
				b.says(b.next(), a, Nothing)
			}
		}, true},
		"the lease is offered to it": {many + 1, func(b *bench) {
			b.sleep()
			a := b.reply(Held)
			a.Wait, a.Offered = ttl, true
			b.says(b.next(), a, Nothing)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := following(t, test.others, soon)
			test.before(b)
			before := b.c.Wait(b.now)
			for range 3 {
				b.c.Granted(b.now)
			}
			after := b.c.Wait(b.now)
			if !test.defers {
				if after != before {
					t.Fatalf("it asks in %v, was to ask in %v", after, before)
				}
				return
			}
			near(t, "the next question after the last answer", after, retry/2, retry)
			b.c.Vacant(b.now) // released again: it counts as before
			near(t, "after a release", b.c.Wait(b.now), 0, Timing{TTL: ttl}.Ramp(test.others))
		})
	}
	t.Run("in flight", func(t *testing.T) {
		b := following(t, many+1, soon)
		b.sleep()
		r := b.next()
		b.c.Granted(b.now)
		a := b.reply(Held)
		a.Wait = soon
		b.says(r, a, Nothing)
		near(t, "the next question", b.c.Wait(b.now), soon, soon+Timing{TTL: ttl}.Ramp(many+1))
	})
	t.Run("a leader", func(t *testing.T) {
		b := newBench(t)
		b.c.Crowd(many + 1)
		b.lead()
		before := b.c.Wait(b.now)
		b.c.Granted(b.now)
		near(t, "the next renewal", b.c.Wait(b.now), before, before)
	})
}

// TestVacantHintOfACrowd: one of a crowd asks later, once however many hints there are; but at once
// if the lease is reserved for it.
func TestVacantHintOfACrowd(t *testing.T) {
	b := following(t, 10_000, ttl)
	b.chance = 0.9
	b.c.Vacant(b.now)
	wait := b.c.Wait(b.now)
	near(t, "heeded", wait, 500*time.Millisecond, Timing{TTL: ttl}.Ramp(10_000))
	b.chance = 0
	for range 10 {
		b.c.Vacant(b.now)
	}
	near(t, "ten more hints", b.c.Wait(b.now), wait, wait)
	b.c.Named(b.now)
	b.sleep()
	near(t, "named", b.instant, 0, hintSpacing)
	r := b.next()
	a := b.reply(Held)
	a.Wait = ttl
	b.says(r, a, Nothing)
	b.c.Vacant(b.now)
	near(t, "the next hint", b.c.Wait(b.now), hintSpacing, hintSpacing)
	b.sleep()
	b.says(b.next(), a, Nothing)
	b.c.Vacant(b.now)
	near(t, "and the one after that", b.c.Wait(b.now), hintSpacing, hintSpacing)

	b = newBench(t)
	b.c.Crowd(10_000)
	b.chance = 0
	a.Wait = 10 * time.Millisecond
	b.says(b.next(), a, Nothing)
	wait = b.c.Wait(b.now)
	b.chance = 0.9
	b.c.Vacant(b.now)
	near(t, "a hint puts nothing off", b.c.Wait(b.now), wait, wait)
}

// TestRegather: subscriptions that stand again all at once ask apart.
func TestRegather(t *testing.T) {
	timing := Timing{TTL: ttl, Retry: retry}
	for others, want := range map[int]time.Duration{0: time.Second, 1_000: time.Second, 5_000: 5 * time.Second, 100_000: retry} {
		near(t, fmt.Sprintf("%d others", others), timing.Regather(others), want, want)
	}
}

// TestQuestionMeetsHeartbeat: one of more than fifty asks right before a heartbeat of its
// process is due, never later than it would at most, nor much earlier; that question, and no other
// one, may travel with it.
func TestQuestionMeetsHeartbeat(t *testing.T) {
	const slack = retry / 50
	for name, test := range map[string]struct {
		others         int
		due, every     time.Duration // from the answer on
		least, longest time.Duration // until the next question
		rides          bool
	}{
		"due within the time":      {few + 1, retry * 9 / 10, retry, retry*9/10 - slack, retry*9/10 - slack, true},
		"at the very end of it":    {few + 1, retry, retry, retry - slack, retry - slack, true},
		"long due":                 {few + 1, -retry / 10, retry, retry*9/10 - slack, retry*9/10 - slack, true},
		"to be met once":           {few + 1, retry * 6 / 10, retry * 9 / 10, retry*6/10 - slack, retry*6/10 - slack, true},
		"of several the last":      {few + 1, retry * 15 / 100, retry / 5, retry*95/100 - slack, retry*95/100 - slack, true},
		"too often":                {few + 1, retry * 8 / 10, retry * 8 / 10, retry * 19 / 20, retry, true},
		"too soon":                 {few + 1, retry / 2, 2 * retry, retry * 19 / 20, retry, true},
		"much too late":            {few + 1, retry * 11 / 10, retry, retry * 19 / 20, retry, true},
		"too late":                 {few + 1, retry + time.Millisecond, retry, retry * 19 / 20, retry, true},
		"no heartbeats":            {few + 1, 0, 0, retry * 19 / 20, retry, false},
		"no crowd":                 {few, retry * 9 / 10, retry, retry * 19 / 20, retry, false},
		"a crowd that is no crowd": {0, retry * 9 / 10, retry, retry * 19 / 20, retry, false},
	} {
		t.Run(name, func(t *testing.T) {
			for chance := 0.0; chance < 1; chance += 0.1 {
				b := newBench(t)
				b.chance = chance
				b.c.Crowd(test.others)
				held := b.reply(Held)
				held.Wait = ttl
				if r := b.next(); r.Rides {
					t.Fatal("the first question")
				} else {
					b.says(r, held, Nothing)
				}
				b.sleep() // a question that was due by time alone
				r := b.next()
				b.c.Beats(Beats{Due: b.now.Mono + test.due, Every: test.every})
				held = b.reply(Held)
				held.Wait = ttl
				b.says(r, held, Nothing)
				near(t, "the next question", b.c.Wait(b.now), test.least, test.longest)
				b.sleep()
				if r := b.next(); r.Rides != test.rides {
					t.Fatalf("it rides: %v", r.Rides)
				}
			}
		})
	}
}

// TestUrgentQuestionsTravelAlone: what is asked since the lease may be free, since a hint says so,
// since this instance is named, or since an answer was lost, waits for no heartbeat.
func TestUrgentQuestionsTravelAlone(t *testing.T) {
	for name, wake := range map[string]func(*bench){
		"the lease ends": func(*bench) {},
		"a hint":         func(b *bench) { b.c.Vacant(b.now) },
		"named":          func(b *bench) { b.c.Named(b.now) },
		"eligible again": func(b *bench) { b.c.Ready(b.now, false); b.c.Ready(b.now, true) },
		"no answer":      func(b *bench) { b.c.Named(b.now); b.sleep(); b.says(b.next(), Answer{}, Nothing) },
		"offered the role": func(b *bench) {
			b.c.Named(b.now)
			b.sleep()
			a := b.reply(Held)
			a.Wait, a.Offered = ttl, true
			b.says(b.next(), a, Nothing)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := following(t, few+1, ttl/10)
			b.c.Beats(Beats{Due: b.now.Mono + retry, Every: retry})
			wake(b)
			b.sleep()
			if r := b.next(); r.Kind != Acquire || r.Rides {
				t.Fatalf("%+v", r)
			}
		})
	}
}
