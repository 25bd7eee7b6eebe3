package lease

import (
	"fmt"
	"testing"
	"time"
)

const (
	ttl   = 30 * time.Second
	renew = 10 * time.Second
	retry = 15 * time.Second
	life  = ttl - 300*time.Millisecond - Rounding
	guard = 600 * time.Millisecond
	year  = int64(365 * 24 * 3600 * 1000)
	epoch = int64(1_700_000_000_000) // Redis's clock at the beginning
)

// bench drives one candidate by hand.
type bench struct {
	t       *testing.T
	c       *Candidate
	now     Reading
	nonces  int
	chance  float64 // what the candidate draws
	instant time.Duration
}

func newBench(t *testing.T, change ...func(*Timing)) *bench {
	b := &bench{t: t, now: Reading{Mono: time.Hour, Wall: time.Duration(epoch) * time.Millisecond}, chance: 0.5}
	timing := Timing{TTL: ttl, Renew: renew, Retry: retry, Drift: DefaultDrift(ttl), Penalty: DefaultPenalty(ttl)}
	for _, f := range change {
		f(&timing)
	}
	b.c = NewCandidate(timing, func() float64 { return b.chance }, func() string {
		b.nonces++
		return fmt.Sprint("n", b.nonces)
	})
	return b
}

// pass moves both clocks.
func (b *bench) pass(d time.Duration) {
	b.now.Mono += d
	b.now.Wall += d
	b.instant += d
}

// redis is Redis's clock, which keeps step.
func (b *bench) redis() int64 { return epoch + b.instant.Milliseconds() }

// sleep passes the time that the candidate says it may sleep, and lets it notice.
func (b *bench) sleep() Change {
	b.t.Helper()
	b.pass(b.c.Wait(b.now))
	return b.c.Tick(b.now)
}

// next is the request that is due.
func (b *bench) next() Request {
	b.t.Helper()
	r, due := b.c.Next(b.now)
	if !due {
		b.t.Fatalf("%v: nothing is due, next in %v", b.c.State(), b.c.Wait(b.now))
	}
	return r
}

// none expects that nothing is due.
func (b *bench) none() {
	b.t.Helper()
	if r, due := b.c.Next(b.now); due {
		b.t.Fatalf("%v: unexpected request %+v", b.c.State(), r)
	}
}

// reply fills in what every answer holds.
func (b *bench) reply(v Verdict) Answer {
	if v == Unknown {
		return Answer{}
	}
	return Answer{Verdict: v, Now: b.redis(), Token: epoch, TTL: ttl, Origin: "here"}
}

// answers gives a plain answer and expects a change.
func (b *bench) answers(r Request, v Verdict, want Change) {
	b.t.Helper()
	b.says(r, b.reply(v), want)
}

func (b *bench) says(r Request, a Answer, want Change) {
	b.t.Helper()
	if got := b.c.Answer(b.now, r, a); got != want {
		b.t.Fatalf("answer %d to request %d: change %d, want %d (%v)", a.Verdict, r.Seq, got, want, b.c.State())
	}
}

// lead wins a term at once and returns its request.
func (b *bench) lead() Request {
	b.t.Helper()
	r := b.next()
	a := b.reply(Won)
	a.Since = 1_700_000_000
	b.says(r, a, Began)
	return r
}

// is expects a state.
func (b *bench) is(want State) {
	b.t.Helper()
	if b.c.State() != want {
		b.t.Fatalf("state %v, want %v", b.c.State(), want)
	}
}

// near expects a duration between two others.
func near(t *testing.T, what string, d, low, high time.Duration) {
	t.Helper()
	if d < low || d > high {
		t.Fatalf("%s = %v, want %v to %v", what, d, low, high)
	}
}
