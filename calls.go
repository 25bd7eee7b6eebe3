package tenure

import (
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// Call is a call of a script in Redis that has ended.
type Call struct {
	// Name says what the call was for: acquire, renew, release, leader, beat, sweep, claim_task and
	// so on. It is a section of scripts.lua. Renewals of many roles by one call are one each.
	Name string
	// Took is how long the call took, with the wait for a connection and for other calls that it
	// travelled with.
	Took time.Duration
	// Err is why the call has no usable answer: ErrUnreachable or ErrMisconfigured. Nil: it has
	// one.
	Err error
	// Role is that of a renewal. Margin is how much was left of its term when the answer came: at
	// zero the term would have ended. It is 0 for all other calls, and if the lease was not
	// renewed.
	Role   string
	Margin time.Duration
	// Dropped is how many calls were dropped between the one before and this, because the observer
	// did not keep up.
	Dropped int
}

// callBacklog is how many calls an observer may lag behind before the oldest are dropped. Those of
// thousands of roles may end at one moment.
const callBacklog = 16384

// callObservers hand calls to those who observe them. They are safe for concurrent use.
type callObservers struct {
	install func(ended func(script string, took time.Duration, err error)) // nil: there are no calls to observe

	some atomic.Bool // there was an observer: before that a call costs nothing
	observing[Call]
	observers observers[Call]
}

// observe adds an observer; the returned function removes it and does not wait for a call that is
// under way.
func (o *callObservers) observe(fn func(Call)) (stop func()) {
	o.begin()
	return o.add(o.observers, observer[Call]{most: callBacklog, call: func(c Call, dropped int) {
		c.Dropped = dropped
		fn(c)
	}})
}

// begin has the calls of this process reported from now on.
func (o *callObservers) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.some.Swap(true) {
		return
	}
	o.observers = make(observers[Call])
	if o.install == nil {
		return
	}
	o.install(func(script string, took time.Duration, err error) {
		if script != renewCall && script != renewAllCall { // the elections know more of it
			o.ended(Call{Name: script, Took: took, Err: err})
		}
	})
}

// The calls that renew: elections report them, each role as one of renewCall.
const renewCall, renewAllCall = "renew", "renew_all"

// ended hands a call to every observer. It waits for none: whoever calls it has the answer.
func (o *callObservers) ended(c Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for to := range o.observers {
		to.tell(c)
	}
}

// flush waits until no observer has anything left to work off, at the latest until the deadline.
func (o *callObservers) flush(deadline time.Time) error {
	return o.working.flush(deadline, "an observer of calls")
}

// renewal is ended for a renewal in that term; nil: there is none any more.
func (o *callObservers) renewal(role string, term *liveTerm, sent lease.Reading, verdict lease.Verdict, err error) {
	if o == nil || !o.some.Load() {
		return
	}
	now := readClock()
	c := Call{Name: renewCall, Took: now.Mono - sent.Mono, Err: err, Role: role}
	if term != nil && err == nil && verdict == lease.Kept {
		if held := term.lease.Load(); held != nil {
			c.Margin = max(held.EndsIn(now), 0)
		}
	}
	o.ended(c)
}
