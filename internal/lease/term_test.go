package lease

import (
	"testing"
	"time"
)

func TestTiming(t *testing.T) {
	timing := Timing{TTL: ttl, Drift: DefaultDrift(ttl)}
	for _, tt := range []struct {
		name      string
		got, want time.Duration
	}{
		{"life", timing.Life(), 29_698 * time.Millisecond},
		{"guard", timing.Guard(), 600 * time.Millisecond},
		{"guard of a short lease", Timing{TTL: time.Second}.Guard(), 50 * time.Millisecond},
		{"attempt", timing.Attempt(), 10 * time.Second},
		{"drift of a short lease", DefaultDrift(300 * time.Millisecond), 10 * time.Millisecond},
		{"penalty", DefaultPenalty(time.Minute), time.Minute},
		{"penalty of a short lease", DefaultPenalty(time.Second), 30 * time.Second},
	} {
		if tt.got != tt.want {
			t.Errorf("%s = %v, want %v", tt.name, tt.got, tt.want)
		}
	}
}

func TestSaneToken(t *testing.T) {
	for _, tt := range []struct {
		token, now int64
		want       bool
	}{
		{1, epoch, true}, {epoch, epoch, true}, {epoch + 100*year, epoch, true}, {epoch + 100*year + 1, epoch, false},
		{0, epoch, false}, {-1, epoch, false}, {MaxToken, MaxToken, true}, {MaxToken + 1, MaxToken, false}, {1 << 62, 1 << 62, false},
	} {
		if got := SaneToken(tt.token, tt.now); got != tt.want {
			t.Errorf("SaneToken(%d, %d) = %v", tt.token, tt.now, got)
		}
	}
}

func TestNames(t *testing.T) {
	for name, got := range map[string]string{
		"following": Following.String(), "leading": Leading.String(), "draining": Draining.String(), "stopped": Stopped.String(),
	} {
		if got != name {
			t.Errorf("state %q, want %q", got, name)
		}
	}
	for name, got := range map[string]string{
		"expired": Expired.String(), "lost": Refused.String(), "resigned": Resigned.String(), "failed": Failed.String(), "stopped": Shutdown.String(),
		"transferred": Transferred.String(),
	} {
		if got != name {
			t.Errorf("reason %q, want %q", got, name)
		}
	}
}

// TestP1_DeadlineFromBeforeTheRequest: D = t0 + L, however long the answer took.
func TestP1_DeadlineFromBeforeTheRequest(t *testing.T) {
	for _, trip := range []time.Duration{0, time.Millisecond, 9 * time.Second} {
		b := newBench(t)
		r := b.next()
		t0 := b.now
		b.pass(trip)
		b.answers(r, Won, Began)
		b.pass(life - trip - time.Nanosecond)
		if l := b.c.Lease(); !l.Leading(b.now) || l.Sent != t0 || l.EndsIn(b.now) != time.Nanosecond || l.CancelIn(b.now) != time.Nanosecond-guard {
			t.Errorf("trip %v: lease %+v does not end at t0 + L", trip, l)
		}
		b.pass(time.Nanosecond)
		if b.c.Lease().Leading(b.now) {
			t.Errorf("trip %v: still leading at D", trip)
		}
	}
}

// TestP1_RenewalCountsFromBeforeTheRequest: of a renewal too.
func TestP1_RenewalCountsFromBeforeTheRequest(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.sleep()
	r := b.next()
	sent := b.now
	b.pass(7 * time.Second)
	b.answers(r, Kept, Renewed)
	if l := b.c.Lease(); l.Sent != sent || l.Life != life {
		t.Errorf("lease %+v, want one from %+v", l, sent)
	}
}

// TestP1_WonTooLate: an answer that comes after the cancel point begins no term; the lease is asked
// for again, and adopted.
func TestP1_WonTooLate(t *testing.T) {
	b := newBench(t, func(timing *Timing) { timing.Drift = 21 * time.Second }) // the attempt is longer than what is left of the lease
	r := b.next()
	b.pass(8*time.Second + 500*time.Millisecond)
	b.answers(r, Won, Nothing)
	b.is(Following)
	again := b.next()
	if again.Kind != Acquire || again.Nonce != r.Nonce || again.Seq == r.Seq {
		t.Fatalf("request %+v after %+v, want one of the same campaign", again, r)
	}
	b.answers(again, Won, Began)
}

// TestP4_CancelledBeforeTheLeaseEnds: the term ends at D − g by itself.
func TestP4_CancelledBeforeTheLeaseEnds(t *testing.T) {
	b := newBench(t)
	b.lead()
	var ended time.Duration
	start := b.now
	for b.c.State() == Leading {
		if b.sleep() == Ended {
			ended = b.now.Since(start)
		} else if r, due := b.c.Next(b.now); due {
			b.answers(r, Unknown, Nothing)
		}
	}
	if ended != life-guard || b.c.Reason() != Expired {
		t.Errorf("ended after %v as %v, want %v, expired", ended, b.c.Reason(), life-guard)
	}
}

// TestP4_LateRenewNeverRevives: neither an answer past the cancel point, nor one to a request that
// was given up, nor one after the end brings a term back.
func TestP4_LateRenewNeverRevives(t *testing.T) {
	t.Run("answer past the cancel point", func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.pass(life - guard - time.Second)
		r := b.next()
		b.pass(time.Second)
		b.answers(r, Kept, Ended)
		if b.c.Reason() != Expired {
			t.Errorf("reason %v", b.c.Reason())
		}
	})
	t.Run("answer to a request that was given up", func(t *testing.T) {
		b := newBench(t)
		b.lead()
		was := b.c.Lease()
		b.sleep()
		first := b.next()
		b.pass(first.Bound)
		if b.c.Tick(b.now) != Nothing || b.c.Unanswered() != 1 {
			t.Fatal("the request was not given up")
		}
		b.answers(first, Kept, Nothing)
		if b.c.Lease() != was {
			t.Error("a late answer prolonged the lease")
		}
	})
	t.Run("answer after the end", func(t *testing.T) {
		b := newBench(t)
		b.lead()
		b.sleep()
		r := b.next()
		if b.c.End(b.now, Expired) != Ended || b.c.End(b.now, Refused) != Nothing {
			t.Fatal("the term did not end once")
		}
		b.answers(r, Kept, Nothing)
		b.is(Draining)
		b.answers(r, Kept, Nothing)
		b.answers(r, Lost, Nothing)
		b.is(Draining)
	})
}

// TestP4_SuspendedMachine: the monotonic clock stands still while a virtual machine is suspended;
// the wall clock goes on.
func TestP4_SuspendedMachine(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.now.Wall += life
	if b.c.Lease().Leading(b.now) {
		t.Error("still leading after a suspension past the deadline")
	}
	if b.c.Wait(b.now) != 0 {
		t.Error("the loop may sleep although the term is over")
	}
	if b.c.Tick(b.now) != Ended || b.c.Reason() != Expired {
		t.Error("the term did not end")
	}
}

// TestP8_SuspendedMachineThatDrains: a lease that is kept for the work of an ended term is kept
// until it would have ended, by whichever clock says so first.
func TestP8_SuspendedMachineThatDrains(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.c.End(b.now, Resigned)
	b.now.Wall += life - guard - time.Second
	near(t, "sleep", b.c.Wait(b.now), 0, time.Second)
	b.c.Tick(b.now)
	if !b.c.Keeps() {
		t.Error("given up while it can still be renewed")
	}
	b.now.Wall += time.Second
	b.c.Tick(b.now)
	b.none()
	if b.c.Keeps() {
		t.Error("kept past its end")
	}
}

// TestP4_WallClockSet: a wall clock that is set back prolongs nothing, one that is set forward
// costs the term at most.
func TestP4_WallClockSet(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.now.Wall -= time.Hour
	b.pass(life - time.Nanosecond)
	if !b.c.Lease().Leading(b.now) {
		t.Error("a wall clock set back ended the term")
	}
	b.pass(time.Nanosecond)
	if b.c.Lease().Leading(b.now) {
		t.Error("a wall clock set back prolonged the lease")
	}
	b = newBench(t)
	b.lead()
	b.now.Wall += time.Hour
	if b.c.Lease().Leading(b.now) || b.c.Tick(b.now) != Ended {
		t.Error("a wall clock set forward is not taken for a suspension")
	}
}

// TestP12_ErrorsMeanUnknown: errors end no term before its cancel point, and the next answer fixes
// everything.
func TestP12_ErrorsMeanUnknown(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.sleep()
	for i := range 4 {
		r := b.next()
		b.answers(r, Unknown, Nothing)
		if b.c.Unanswered() != i+1 {
			t.Fatalf("%d errors counted, want %d", b.c.Unanswered(), i+1)
		}
		near(t, "pause after an error", b.c.Wait(b.now), ttl/20*3/4, ttl/6)
		b.sleep()
	}
	b.is(Leading)
	b.answers(b.next(), Kept, Renewed)
	if b.c.Unanswered() != 0 || !b.c.Lease().Leading(b.now) {
		t.Error("an answer did not fix it")
	}
}

// TestP12_OnlyARefusalIsALoss: the verdict Lost ends a term at once.
func TestP12_OnlyARefusalIsALoss(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.sleep()
	b.answers(b.next(), Lost, Ended)
	if b.c.Reason() != Refused {
		t.Errorf("reason %v", b.c.Reason())
	}
	b.pass(ttl / 2)
	b.none() // a lease that is another's is not renewed while the work drains
}

// TestRenewals come every interval, 10 % more or less, and say under which history the lease was
// confirmed.
func TestRenewals(t *testing.T) {
	for _, chance := range []float64{0, 0.5, 0.999} {
		b := newBench(t)
		b.chance = chance
		won := b.lead()
		near(t, "first renewal", b.c.Wait(b.now), renew*9/10, renew*11/10)
		b.sleep()
		r := b.next()
		if r.Kind != Renew || r.Nonce != won.Nonce || r.Token != b.c.Token() || r.Origin != "here" || r.Since != b.c.Since() || r.Draining {
			t.Errorf("renewal %+v", r)
		}
		b.none() // one at a time
		a := b.reply(Kept)
		a.Origin = "there"
		b.says(r, a, Renewed)
		b.sleep()
		if r = b.next(); r.Origin != "there" {
			t.Errorf("history %q, want that of the last answer", r.Origin)
		}
	}
}

// TestRenewalIsBoundByTheDeadline: nobody waits for an answer that would come too late.
func TestRenewalIsBoundByTheDeadline(t *testing.T) {
	b := newBench(t)
	b.lead()
	b.pass(life - guard - time.Second)
	if r := b.next(); r.Bound != guard+time.Second {
		t.Errorf("bound %v, want what is left until D", r.Bound)
	}
}

// TestP1_FailoverMargin: while an old master may still take writes beside a new one, a renewal by
// the new one counts only if the lease at the old one outlasts that.
func TestP1_FailoverMargin(t *testing.T) {
	const margin = 8 * time.Second
	for _, tt := range []struct {
		name   string
		left   time.Duration // of the lease at the old master
		origin string
		want   Change
	}{
		{"enough is left", margin + time.Millisecond, "there", Renewed},
		{"too little is left", margin, "there", Nothing},
		{"the same history", margin, "here", Renewed},
		{"unknown history", margin, "", Renewed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(timing *Timing) { timing.Margin = margin })
			b.lead()
			was := b.c.Lease()
			b.pass(life - tt.left)
			r := b.next()
			a := b.reply(Kept)
			a.Origin = tt.origin
			b.says(r, a, tt.want)
			if got := b.c.Lease() != was; got != (tt.want == Renewed) {
				t.Errorf("lease prolonged: %v", got)
			}
			if tt.want == Nothing && (b.sleep() != Ended || b.c.Reason() != Expired) {
				t.Error("the term did not end with the lease of the old master")
			}
		})
	}
}
