// Package lease holds the decisions of an election as pure values: facts go in (an answer of Redis,
// a hint, the end of the work), questions and requests come out (does the term still lead, what is
// to be asked next, how long may we sleep).
//
// Nothing here reads a clock, talks to Redis or starts a goroutine; the package imports only
// math and time. The elector of package tenure drives it on a real clock, the simulators on a
// virtual one.
package lease

import "time"

// Reading is one look at the two clocks of this machine, taken at the same instant.
//
// The monotonic clock never jumps but stands still while a virtual machine is suspended; the wall
// clock goes on but may be set. Elapsed time is the larger of the two differences, so that neither
// of them alone can prolong a term.
type Reading struct {
	Mono time.Duration // since an arbitrary start of this process
	Wall time.Duration // since the Unix epoch
}

// Since returns the time that has passed since an earlier reading: the larger of what the two
// clocks say.
func (r Reading) Since(earlier Reading) time.Duration {
	return max(r.Mono-earlier.Mono, r.Wall-earlier.Wall)
}

// Timing holds the durations of one election, none below zero. The constructor of package tenure
// has checked their relations.
type Timing struct {
	TTL     time.Duration // what the lease is granted for
	Renew   time.Duration // mean interval between renewals
	Retry   time.Duration // longest sleep of a follower
	Drift   time.Duration // how far Redis's clock may run ahead of ours within one TTL
	HoldOff time.Duration // least hold-off, when it is to be longer than every TTL known
	Penalty time.Duration // the longest that a candidate stands back after its work failed
	Preempt time.Duration // a better candidate that asks for so long is offered the lease; zero: it waits for a vacancy
	Margin  time.Duration // how long an old master may take writes beside a new one; zero: not at all
}

// Rounding is what Redis's expiry and its clock in whole milliseconds may cost a lease.
const Rounding = 2 * time.Millisecond

// DefaultDrift is the drift margin of a TTL if none is given: 1 %, at least 10 ms.
func DefaultDrift(ttl time.Duration) time.Duration { return max(ttl/100, 10*time.Millisecond) }

// DefaultPenalty is the longest penalty after failed work if none is given: one TTL, at least 30 s.
func DefaultPenalty(ttl time.Duration) time.Duration { return max(ttl, 30*time.Second) }

// Life is how long after the request was handed to the client a granted lease may be believed in:
//
//	L = TTL − Drift − 2 ms
//
// Redis starts to count when the request arrives, which is later than the reading before it was
// sent.
func (t Timing) Life() time.Duration { return t.TTL - t.Drift - Rounding }

// Guard is how long before the end of its life a term is cancelled, so that its work hears of the
// end before another may lead: max(50 ms, TTL/50).
func (t Timing) Guard() time.Duration { return max(50*time.Millisecond, t.TTL/50) }

// Attempt is the longest that one request is waited for: TTL/3.
func (t Timing) Attempt() time.Duration { return t.TTL / 3 }

// OutageTolerance is how long Redis may give no usable answer, whenever that begins, and no term
// ends of it. The worst outage begins as a renewal is sent, which is at most 1.1 · Renew after the
// one before. Each further request follows the failure of the last one after a pause (see
// Candidate), and a failure takes between no time, if Redis refuses, and Attempt, if it is silent.
// What was asked last before the cancel point, with the pauses as long as they may be, is answered,
// if the outage was shorter than the pauses before it, as short as they may be. It is zero if not
// even a second request is sure to come in time.
func (t Timing) OutageTolerance() time.Duration {
	room := t.Life() - t.Guard() - (t.Renew*9/10 + t.Renew/5)
	after := func(failure time.Duration) (tolerated time.Duration) {
		latest, earliest := time.Duration(0), time.Duration(0)
		for n := 1; ; n++ {
			pause := Backoff(t.TTL/20, n, t.TTL/6)
			latest += failure + pause
			earliest += failure + pause - pause/4
			if latest >= room {
				return tolerated
			}
			tolerated = earliest
		}
	}
	return min(after(0), after(t.Attempt()))
}

// Slice is for how long a vacancy is left to the best candidate that asks, at least: TTL/10, at
// most a second.
func (t Timing) Slice() time.Duration { return min(t.TTL/10, time.Second) }

// Counts is for how long a candidate counts as one that asks: its longest sleep and two attempts.
func (t Timing) Counts() time.Duration { return min(t.Retry+2*t.Attempt(), 2*t.TTL) }

// Offer is for how long a transfer waits for an instance that does not ask: the longest sleep of a
// candidate and two attempts.
func (t Timing) Offer() time.Duration { return t.Retry + 2*t.Attempt() }

// Reserve is for how long a vacancy is reserved for the instance that the lease was transferred to:
// TTL/3, at most 5 s.
func (t Timing) Reserve() time.Duration { return min(t.TTL/3, 5*time.Second) }

// Lease is what a leader knows of its lease. It is a value and never changes; a renewal makes a new
// one.
type Lease struct {
	Sent  Reading       // before the request that was granted was handed to the client
	Life  time.Duration // believed in for this long after Sent
	Guard time.Duration // cancelled this long before the end of Life
}

// Leading reports whether the lease may still be believed in.
func (l Lease) Leading(now Reading) bool { return now.Since(l.Sent) < l.Life }

// EndsIn is the time left until the deadline D = Sent + Life; zero or less when it is past.
func (l Lease) EndsIn(now Reading) time.Duration { return l.Life - now.Since(l.Sent) }

// CancelIn is the time left until the cancel point D − Guard; zero or less when it is past.
func (l Lease) CancelIn(now Reading) time.Duration { return l.EndsIn(now) - l.Guard }

// MaxToken is the largest fencing token: 2^53, up to which the numbers of Lua and JSON are exact.
const MaxToken = int64(1) << 53

// MaxTTL is the longest lease there is. A TTL read back from Redis that is longer is not believed.
const MaxTTL = 24 * time.Hour

// farAhead is how far past Redis's clock a token may lie: a clock that was wrong by years is
// survived, a token that would soon leave no room for the next one is not believed.
const farAhead = 100 * 365 * 24 * time.Hour

// SaneToken reports whether a token read back at the Redis time now (Unix ms) can be one that
// tenure wrote.
func SaneToken(token, now int64) bool {
	return token > 0 && token <= MaxToken && token <= now+farAhead.Milliseconds()
}

// Backoff is the pause after so many failures in a row, 1 or more: first, doubled with each further
// one, at most most.
func Backoff(first time.Duration, failures int, most time.Duration) time.Duration {
	for ; failures > 1 && first < most; failures-- {
		first *= 2
	}
	return min(first, most)
}
