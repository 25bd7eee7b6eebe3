package lease

import (
	"testing"
	"time"
)

// TestAnswerToSomethingElse: a verdict on another kind of request says nothing, and neither does a
// token that cannot be meant. It is taken for an error, and nothing is learned from it.
func TestAnswerToSomethingElse(t *testing.T) {
	const absurd = epoch + 200*year
	acquire, renewal := Request{Kind: Acquire}, Request{Kind: Renew, Token: epoch}
	for _, tt := range []struct {
		request Request
		verdict Verdict
		token   int64
		want    bool
	}{
		{acquire, Won, epoch, true},
		{acquire, Won, 0, false},
		{acquire, Won, -7, false},
		{acquire, Won, MaxToken + 1, false},
		{acquire, Won, absurd, false},
		{acquire, Held, 0, true},
		{acquire, Held, absurd, true}, // a stored one, that is not learned
		{acquire, RollCall, 0, true},
		{acquire, Stale, 0, true},
		{acquire, Kept, epoch, false},
		{acquire, Lost, epoch, false},
		{acquire, Done, epoch, false},
		{renewal, Kept, epoch, true},
		{renewal, Kept, epoch + 1, false},
		{renewal, Lost, epoch + 1, true},
		{renewal, Stale, 0, true},
		{renewal, Won, epoch, false},
		{renewal, Held, epoch, false},
		{renewal, RollCall, epoch, false},
		{renewal, Done, epoch, false},
		{Request{Kind: Release}, Done, 0, true},
		{Request{Kind: Release}, Stale, 0, false},
		{Request{Kind: Release}, Won, epoch, false},
		{Request{Kind: Release}, Lost, epoch, false},
		{acquire, Unknown, 0, false},
	} {
		a := Answer{Verdict: tt.verdict, Now: epoch, Token: tt.token, TTL: 2 * ttl}
		if a.Answers(tt.request) != tt.want {
			t.Errorf("%+v answers %+v: %v", a, tt.request, !tt.want)
		}
		if tt.request.Kind == Release {
			continue
		}
		b := newBench(t)
		if tt.request.Kind == Renew {
			b.lead()
			b.sleep()
		}
		r, was := b.next(), b.c.Lease()
		a.Now = b.redis()
		change := b.c.Answer(b.now, r, a)
		if tt.want {
			continue
		}
		if change != Nothing || b.c.Lease() != was || b.c.Unanswered() != 1 || b.c.Floor() > epoch || b.c.holdOff(b.now) != ttl {
			t.Errorf("%+v to %+v: change %d, unanswered %d", a, r, change, b.c.Unanswered())
		}
		b.none() // asked again after a pause
	}
}

// TestTTLIsForgotten: a TTL that was seen for a moment does not lengthen every later hold-off; one
// that is seen again does.
func TestTTLIsForgotten(t *testing.T) {
	b := newBench(t)
	told := func(seen time.Duration) {
		t.Helper()
		a := b.reply(Held)
		a.TTL = seen
		b.says(b.next(), a, Nothing)
		b.sleep()
	}
	holdOff := func(want time.Duration) {
		t.Helper()
		if got := b.c.holdOff(b.now); got != want {
			t.Errorf("hold-off %v, want %v", got, want)
		}
	}
	told(10 * ttl)
	told(2 * ttl)
	holdOff(10 * ttl)
	b.pass(39 * ttl)
	told(10 * ttl) // somebody still leases for as long
	b.pass(39 * ttl)
	told(2 * ttl)
	holdOff(10 * ttl)
	b.pass(2 * ttl)
	holdOff(2 * ttl) // what the last answer said
	told(ttl / 2)
	holdOff(ttl)
}

// TestP1_HistoryIsKeptThroughAnswersWithoutOne: INFO may be refused for a moment. The next answer
// from another history is known for one all the same.
func TestP1_HistoryIsKeptThroughAnswersWithoutOne(t *testing.T) {
	const margin = 8 * time.Second
	b := newBench(t, func(timing *Timing) { timing.Margin = margin })
	b.lead()
	b.sleep()
	a := b.reply(Kept)
	a.Origin = ""
	b.says(b.next(), a, Renewed)
	was := b.c.Lease()
	b.pass(life - margin)
	a = b.reply(Kept)
	a.Origin = "there"
	b.says(b.next(), a, Nothing)
	if b.c.Lease() != was {
		t.Error("prolonged by another master, with no more than the margin left")
	}
}

// TestForgot: a renewal that took the lease back, or came from another history, says that Redis may
// have forgotten what was written. One that does not know the history says nothing.
func TestForgot(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer Answer
		under  string
		want   bool
	}{
		{"kept", Answer{Verdict: Kept, Origin: "a"}, "a", false},
		{"reclaimed", Answer{Verdict: Kept, Origin: "a", Reclaimed: true}, "a", true},
		{"another history", Answer{Verdict: Kept, Origin: "b"}, "a", true},
		{"unknown now", Answer{Verdict: Kept}, "a", false},
		{"unknown before", Answer{Verdict: Kept, Origin: "a"}, "", false},
		{"lost", Answer{Verdict: Lost, Origin: "b"}, "a", false},
	} {
		if got := c.answer.Forgot(Request{Kind: Renew, Origin: c.under}); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
