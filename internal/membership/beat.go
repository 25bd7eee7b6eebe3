package membership

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// Verdict is what Redis answers to a heartbeat.
type Verdict string

// The verdicts on a heartbeat.
const (
	Joined      Verdict = "joined"      // there was no record, or one of an older incarnation: there is one now
	Kept        Verdict = "kept"        // the record is ours and was renewed
	Recovered   Verdict = "recovered"   // likewise, after a sweep had marked it as drifted
	Overwritten Verdict = "overwritten" // the record was ours and another program had written to it
	Duplicate   Verdict = "duplicate"   // another living incarnation has the ID: nothing changed
	Stale       Verdict = "stale"       // it came too late: nothing changed
)

// MaxBound is the longest that one call of the registry is waited for.
const MaxBound = 3 * time.Second

// Heartbeat is one request to register the instance, or to keep it registered.
type Heartbeat struct {
	Seq      uint64
	First    bool          // this incarnation was never registered: it replaces the record of another one
	Started  int64         // Unix seconds at which the instance was first registered; 0: now
	NotAfter int64         // Redis time in ms after which it must not take effect
	Sent     time.Duration // monotonic, before it was handed to the client
	Bound    time.Duration // longest that an answer is waited for
}

// BeatAnswer is the reply to a heartbeat.
type BeatAnswer struct {
	Verdict Verdict
	Now     int64 // Redis time in ms
	Started int64 // Unix seconds
	// Instances is how many send heartbeats, store.MaxInstances at most; 0: not counted.
	Instances int
}

// BeatChange is what an answer did. The driver reports it.
type BeatChange struct {
	First     bool // the first heartbeat that Redis took
	Joined    bool // the record is new
	Recovered bool // the instance counts as active again
	Duplicate bool // another living process has the ID
	Replaced  bool // the record was another's before this heartbeat
	TooLate   bool // the second of two heartbeats in a row came too late: a failure
}

// Beat decides when an instance sends its heartbeats. It is a plain value with one owner and is not
// safe for concurrent use. All times are readings of one monotonic clock.
//
// A heartbeat that has not arrived by the time it is given up must not take effect any more: it
// could undo a younger one, enter a record after its process has gone, or push aside the record of
// the next process with the same ID. So each names the last instant of Redis's clock at which it
// counts. An instance that does not know this clock asks for it first, by a heartbeat that is too
// late by any clock: it is answered with the time and changes nothing.
type Beat struct {
	interval time.Duration
	random   func() float64
	clock    lease.RedisClock

	registered bool
	started    int64
	failures   int // in a row
	crowd      int // instances that send heartbeats, as far as is known

	seq    uint64
	flying Heartbeat     // Seq 0: none
	due    time.Duration // the next one
	began  time.Duration // the first heartbeat of this round was sent
	again  bool          // the round goes on: a heartbeat came too late, and one more follows at once
	nudged bool
}

// NewBeat returns a Beat whose first heartbeat is due at once. interval is the time between two
// heartbeats and is above zero; random yields numbers in [0, 1).
func NewBeat(now, interval time.Duration, random func() float64) *Beat {
	return &Beat{interval: interval, random: random, due: now}
}

// Bound is the longest that the answer to a heartbeat is waited for: min(3/4 · interval, 3 s), so
// that after one that is lost the next arrives within two intervals of the one before it.
func (b *Beat) Bound() time.Duration { return min(b.interval/4*3, MaxBound) }

// silence is the longest that an outage which is over in no time keeps an instance silent: its
// interval, the answer that it then waits for, and the longest pause after that.
func silence(interval time.Duration) time.Duration {
	return interval/20*21 + MaxBound + interval/3 + interval/2
}

// Nudge makes the next heartbeat due at once: what the instance says of itself has changed.
func (b *Beat) Nudge() { b.nudged = true }

// Hasten makes the next heartbeat due now if it is due within so long, and reports whether it is.
// One that is on its way stays as it is, and so does the pause after a failure.
func (b *Beat) Hasten(now, within time.Duration) bool {
	if b.flying.Seq != 0 || b.failures > 0 || !b.registered || b.Wait(now) > within {
		return false
	}
	b.due = min(b.due, now)
	return true
}

// Due is when the next heartbeat is due: while one is on its way, the earliest that the one after
// that may be, if it is taken.
func (b *Beat) Due() time.Duration {
	if b.flying.Seq != 0 || b.again {
		return b.began + b.interval/20*19
	}
	return b.due
}

// Next returns the heartbeat that is due now, if there is one. Only one is on its way at a time:
// the driver hands it back with its answer, or with its failure.
func (b *Beat) Next(now time.Duration) (h Heartbeat, due bool) {
	if b.flying.Seq != 0 || !b.again && !b.nudged && now < b.due {
		return Heartbeat{}, false
	}
	if !b.again {
		b.began, b.nudged = now, false
	}
	b.seq++
	b.flying = Heartbeat{
		Seq: b.seq, First: !b.registered, Started: b.started, NotAfter: 1, Sent: now, Bound: b.Bound(),
	}
	if b.clock.Known() { // if the estimate is wrong the heartbeat is stale, and is sent once more
		b.flying.NotAfter = b.clock.Read(now) + (b.Bound() - b.clock.Spread()).Milliseconds()
	}
	return b.flying, true
}

// Wait is how long the driver may sleep if nothing else wakes it: until then Next has nothing to
// send, or the answer that is waited for may still come.
func (b *Beat) Wait(now time.Duration) time.Duration {
	switch {
	case b.flying.Seq != 0:
		return max(b.flying.Sent+b.flying.Bound-now, 0)
	case b.again, b.nudged:
		return 0
	}
	return max(b.due-now, 0)
}

// Answer takes the reply to a heartbeat. One that is no longer waited for changes nothing.
func (b *Beat) Answer(now time.Duration, h Heartbeat, a BeatAnswer) (change BeatChange) {
	if !b.takes(h) {
		return BeatChange{}
	}
	b.clock.Learn(h.Sent, now, a.Now)
	if a.Verdict == Stale {
		if !b.again { // it was late, or Redis's clock was not known, or was set: by now it is known better
			b.again = true
			return BeatChange{}
		}
		b.failed(now, false)
		return BeatChange{TooLate: true}
	}
	b.again, b.failures = false, 0
	b.due = b.began + b.interval/20*19 + time.Duration(b.random()*float64(b.interval/10)) // ± 5 %
	if a.Instances > 0 {
		b.crowd = a.Instances
	}
	if a.Verdict == Duplicate {
		return BeatChange{Duplicate: true}
	}
	change = BeatChange{
		First: !b.registered, Joined: a.Verdict == Joined, Recovered: a.Verdict == Recovered, Replaced: a.Verdict == Overwritten,
	}
	b.registered, b.started = true, a.Started
	return change
}

// Failed takes the failure of a heartbeat: an error, or no answer within its bound. misconfigured
// says that somebody has to fix something first.
func (b *Beat) Failed(now time.Duration, h Heartbeat, misconfigured bool) {
	if b.takes(h) {
		b.failed(now, misconfigured)
	}
}

// takes reports whether a heartbeat is the one that is on its way, and takes it back.
func (b *Beat) takes(h Heartbeat) bool {
	if h.Seq == 0 || h.Seq != b.flying.Seq {
		return false
	}
	b.flying = Heartbeat{}
	return true
}

// failed sets the next try: after interval/30, doubled with each failure in a row up to interval/3,
// less up to a quarter at random. To the second one in a row a random part of 1 ms an instance is
// added, up to interval/2, so that a crowd that fails together tries apart: once an outage, since
// the leader, which tries more often, would else take those for silent that miss each moment.
func (b *Beat) failed(now time.Duration, misconfigured bool) {
	b.again = false
	b.failures++
	pause := lease.Backoff(b.interval/30, b.failures, b.interval/3)
	if misconfigured {
		pause = b.interval / 3
	}
	b.due = now + max(pause/4*3+time.Duration(b.random()*float64(pause/4)), time.Millisecond)
	if b.failures == 2 && b.crowd > 0 {
		apart := min(time.Duration(b.crowd)*time.Millisecond, b.interval/2)
		b.due += time.Duration(b.random() * float64(apart))
	}
}
