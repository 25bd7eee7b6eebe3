package lease

import (
	"math/rand/v2"
	"testing"
	"time"
)

// An outage of at most OutageTolerance ends no term whenever it begins, be it that Redis refuses or
// that it is silent; one that lasts until the cancel point ends every term.
func TestOutageTolerance(t *testing.T) {
	for _, ttl := range []time.Duration{30 * time.Second, 3 * time.Second, 300 * time.Millisecond, time.Hour} {
		for _, part := range []time.Duration{3, 4, 10, 50} {
			timing := Timing{TTL: ttl, Renew: ttl / part, Retry: ttl / 2, Drift: DefaultDrift(ttl)}
			tolerance := timing.OutageTolerance()
			if tolerance < 0 || tolerance >= timing.Life()-timing.Guard() {
				t.Fatalf("ttl %v, renewed every %v: tolerance %v", ttl, timing.Renew, tolerance)
			}
			for seed := range uint64(300) {
				for _, silent := range []bool{false, true} {
					if !survives(timing, seed, silent, tolerance) {
						t.Errorf("ttl %v, renewed every %v, silent %v, seed %d: an outage of %v ended the term", ttl, timing.Renew, silent, seed, tolerance)
					}
					if survives(timing, seed, silent, timing.Life()-timing.Guard()) {
						t.Errorf("ttl %v, renewed every %v, silent %v, seed %d: an outage up to the cancel point ended no term", ttl, timing.Renew, silent, seed)
					}
				}
			}
		}
	}
	if d := (Timing{TTL: 30 * time.Second, Renew: 10 * time.Second, Drift: 300 * time.Millisecond}).OutageTolerance(); d != 10875*time.Millisecond {
		t.Errorf("with the defaults: %v", d)
	}
}

// survives plays a leader through an outage that begins at the moment of a renewal, or anywhere,
// and reports whether its term is on afterwards.
func survives(timing Timing, seed uint64, silent bool, outage time.Duration) bool {
	random := rand.New(rand.NewPCG(seed, 7))
	c := NewCandidate(timing, random.Float64, func() string { return "n" })
	from := time.Duration(1 + random.Int64N(int64(3*timing.TTL)))
	if seed%2 == 0 { // the worst: as a renewal is sent
		from = -1
	}
	for now := time.Duration(0); now < 6*timing.TTL; now += max(c.Wait(Reading{Mono: now}), 1) {
		reading := Reading{Mono: now}
		c.Tick(reading)
		if c.State() == Draining {
			return false
		}
		for r, ok := c.Next(reading); ok; r, ok = c.Next(reading) {
			if from < 0 && r.Kind == Renew && now > timing.TTL {
				from = now
			}
			switch {
			case from < 0 || now < from || now >= from+outage:
				verdict := Kept
				if r.Kind == Acquire {
					verdict = Won
				}
				c.Answer(reading, r, Answer{Verdict: verdict, Token: 7, Now: 1_700_000_000_000 + now.Milliseconds()})
			case !silent:
				c.Answer(reading, r, Answer{})
			default:
				// It hangs: the bound passes without an answer.
			}
		}
	}
	return true
}
