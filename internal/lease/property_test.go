package lease

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestCandidateProperties drives candidates with random answers, early, late, never and twice, with
// random hints and ends, and holds what must be true after every step. TENURE_LEASE_SEED replays
// one seed.
func TestCandidateProperties(t *testing.T) {
	first, runs := uint64(time.Now().UnixNano())%1_000_000, uint64(200)
	if testing.Short() {
		runs = 50
	}
	if text := os.Getenv("TENURE_LEASE_SEED"); text != "" {
		first, _ = strconv.ParseUint(text, 10, 64)
		runs = 1
	}
	t.Logf("seeds %d to %d", first, first+runs-1)
	for seed := first; seed < first+runs; seed++ {
		if err := wander(seed); err != nil {
			t.Fatalf("seed %d (replay with TENURE_LEASE_SEED=%d): %v", seed, seed, err)
		}
	}
}

// walk is one random run, with what is known of it from outside.
type walk struct {
	c        *Candidate
	rand     *rand.Rand
	now      Reading
	nonces   int
	out      []Request       // sent, an answer may come
	released map[string]bool // nonces that a release was sent for
	ended    map[int64]bool  // tokens of terms that are over
	tokens   int64
	nonce    string // of the term that is on
	deadline Lease
}

func wander(seed uint64) error {
	w := &walk{
		rand: rand.New(rand.NewPCG(seed, 5)), now: Reading{Mono: time.Hour, Wall: time.Duration(epoch) * time.Millisecond},
		released: map[string]bool{}, ended: map[int64]bool{}, tokens: epoch,
	}
	w.c = NewCandidate(Timing{TTL: ttl, Renew: renew, Retry: retry, Drift: DefaultDrift(ttl), Penalty: ttl}, w.rand.Float64, func() string {
		w.nonces++
		return fmt.Sprint("n", w.nonces)
	})
	for step := range 600 {
		if err := w.step(step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

func (w *walk) step(step int) error {
	w.pass()
	switch k := w.rand.IntN(20); {
	case k < 10 && len(w.out) > 0:
		if err := w.reply(); err != nil {
			return err
		}
	case k == 10:
		w.c.Vacant(w.now)
	case k == 11:
		w.c.RollCall(w.now)
	case k == 12 && w.rand.IntN(4) == 0:
		if err := w.changed(w.c.End(w.now, Reason(w.rand.IntN(int(Transferred)))), Request{}); err != nil {
			return err
		}
	case k < 15 && w.c.State() == Draining:
		w.c.Drained(w.now)
		if w.rand.IntN(3) == 0 {
			w.c.Drained(w.now)
		}
	case k == 15:
		w.c.Ready(w.now, w.rand.IntN(3) > 0)
	case k == 16:
		w.c.Abandon()
	case k == 18:
		if to := w.c.Heir(); w.c.Offer(w.now, w.c.Token()-int64(w.rand.IntN(2)), "heir") && (to != "" || w.c.State() != Leading) {
			return fmt.Errorf("%v: an offer beside that to %q", w.c.State(), to)
		}
	case k == 19 && w.rand.IntN(2) == 0:
		w.c.Named(w.now)
	case k == 19:
		w.c.Reserved(w.now, time.Duration(w.rand.Int64N(int64(ttl))))
	case k == 17 && step > 500:
		if err := w.changed(w.c.Stop(w.now), Request{}); err != nil {
			return err
		}
	}
	if err := w.changed(w.c.Tick(w.now), Request{}); err != nil {
		return err
	}
	return w.send()
}

// pass moves the clocks: as far as the candidate may sleep, a little, or with a jump.
func (w *walk) pass() {
	d := min(w.c.Wait(w.now), time.Minute)
	if w.rand.IntN(2) == 0 {
		d = time.Duration(w.rand.Int64N(int64(3 * time.Second)))
	}
	w.now.Mono += d
	w.now.Wall += d
	if w.rand.IntN(200) == 0 {
		w.now.Wall += time.Duration(w.rand.Int64N(int64(2*time.Hour)) - int64(time.Hour))
	}
}

// send takes what is due.
func (w *walk) send() error {
	for n := 0; ; n++ {
		r, due := w.c.Next(w.now)
		switch {
		case !due && w.c.Wait(w.now) <= 0 && w.c.State() != Leading:
			return fmt.Errorf("%v: nothing is due and there is nothing to wait for", w.c.State())
		case !due:
			return nil
		case n > 50:
			return fmt.Errorf("requests without end, now %+v", r)
		case r.Sent != w.now || r.Bound <= 0 || r.Nonce == "":
			return fmt.Errorf("request %+v at %+v", r, w.now)
		case r.Kind != Release && w.released[r.Nonce]:
			return fmt.Errorf("request %+v with a nonce that a release was sent for", r)
		case r.Kind == Acquire && w.c.State() != Following, r.Kind == Renew && w.c.State() != Leading && w.c.State() != Draining:
			return fmt.Errorf("%v: request %+v", w.c.State(), r)
		case r.Kind == Renew && (r.Nonce != w.nonce || r.Draining != (w.c.State() == Draining) || !w.c.Lease().Leading(w.now)):
			return fmt.Errorf("%v: renewal %+v", w.c.State(), r)
		case r.Kind == Renew && r.Heir != w.c.Heir(), r.Kind == Acquire && r.Heir != "", (r.Heir != "") != (r.Reserve != 0) && r.Kind == Release:
			return fmt.Errorf("%v: request %+v while the heir is %q", w.c.State(), r, w.c.Heir())
		case r.Kind == Release && r.Heir != "" && w.c.Reason() != Transferred && r.Nonce == w.nonce:
			return fmt.Errorf("a release with a reservation ends a term that was not transferred: %+v", r)
		case r.Kind == Release && r.Nonce == w.nonce && (w.c.State() == Leading || w.c.State() == Draining):
			return fmt.Errorf("%v: release of the term that is on: %+v", w.c.State(), r)
		}
		if r.Kind == Release {
			w.released[r.Nonce] = true
		}
		w.out = append(w.out, r)
	}
}

// reply answers one of the requests, sometimes not for the last time.
func (w *walk) reply() error {
	i := w.rand.IntN(len(w.out))
	r := w.out[i]
	if w.rand.IntN(5) > 0 {
		w.out = append(w.out[:i], w.out[i+1:]...)
	}
	a := Answer{Now: epoch + (w.now.Mono - time.Hour).Milliseconds(), Token: w.tokens, TTL: ttl, Wait: time.Duration(w.rand.Int64N(int64(ttl))), Origin: "here"}
	choices := map[Kind][]Verdict{Acquire: {Won, Won, Held, RollCall, Stale, Unknown}, Renew: {Kept, Kept, Kept, Lost, Stale, Unknown}, Release: {Done, Unknown}}[r.Kind]
	switch a.Verdict = choices[w.rand.IntN(len(choices))]; a.Verdict {
	case Won:
		w.tokens++
		a.Token = w.tokens
	case Unknown:
		a = Answer{}
	case Stale:
		a.Token, a.TTL = 0, 0
	}
	a.Offered, a.Ready = a.Verdict == Held && w.rand.IntN(3) == 0, a.Verdict == Kept && w.rand.IntN(3) == 0
	was, heir := w.c.State(), w.c.Heir()
	change := w.c.Answer(w.now, r, a)
	if change == Ended && w.c.Reason() == Transferred && (!a.Ready || heir == "" || r.Heir != heir) {
		return fmt.Errorf("the answer %+v to %+v transferred the term to %q", a, r, heir)
	}
	if change == Ended && w.c.Reason() == Refused && a.Verdict != Lost {
		return fmt.Errorf("the answer %+v ended the term as refused", a)
	}
	if change == Began && (was != Following || a.Verdict != Won) || change == Renewed && (was != Leading || a.Verdict != Kept) {
		return fmt.Errorf("%v: change %d by the answer %+v", was, change, a)
	}
	return w.changed(change, r)
}

// changed holds what a change of the term must look like.
func (w *walk) changed(change Change, r Request) error {
	l := w.c.Lease()
	switch change {
	case Began:
		if w.ended[w.c.Token()] || l.Sent != r.Sent || l.CancelIn(w.now) <= 0 || w.released[r.Nonce] {
			return fmt.Errorf("began with %+v by %+v", l, r)
		}
		w.nonce, w.deadline = r.Nonce, l
	case Renewed:
		if l.Sent != r.Sent || w.deadline.CancelIn(w.now) <= 0 || r.Nonce != w.nonce || l.Sent.Mono < w.deadline.Sent.Mono {
			return fmt.Errorf("renewed with %+v by %+v, was %+v", l, r, w.deadline)
		}
		w.deadline = l
	case Ended:
		if w.ended[w.c.Token()] {
			return fmt.Errorf("token %d ended twice", w.c.Token())
		}
		w.ended[w.c.Token()] = true
	case Nothing:
		if w.c.State() == Leading && l != w.deadline {
			return fmt.Errorf("the lease changed to %+v without a word", l)
		}
	}
	if w.c.State() == Leading && (w.ended[w.c.Token()] || l.Life != Timing{TTL: ttl, Drift: DefaultDrift(ttl)}.Life()) {
		return fmt.Errorf("leading with token %d and %+v", w.c.Token(), l)
	}
	return nil
}
