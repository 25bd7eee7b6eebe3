package tenure

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// Call is a call of a script in Redis that has ended.
type Call struct {
	// Name says what the call was for: acquire, renew, release, leader, beat, sweep, claim_task and
	// so on. It is a section of scripts.lua.
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
}

// callObservers hand calls to those who observe them. They are safe for concurrent use.
type callObservers struct {
	install func(ended func(script string, took time.Duration, err error)) // nil: there are no calls to observe

	some      atomic.Bool // there was an observer: before that a call costs nothing
	mu        sync.RWMutex
	observers map[*func(Call)]struct{}
}

func (o *callObservers) observe(fn func(Call)) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.some.Swap(true) {
		o.observers = make(map[*func(Call)]struct{})
		if o.install != nil {
			o.install(func(script string, took time.Duration, err error) {
				if script != renewCall { // the election knows more of it
					o.ended(Call{Name: script, Took: took, Err: err})
				}
			})
		}
	}
	o.observers[&fn] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.observers, &fn)
	}
}

const renewCall = "renew"

// ended hands a call to every observer. A panic of one is swallowed.
func (o *callObservers) ended(c Call) {
	o.mu.RLock()
	observers := make([]func(Call), 0, len(o.observers))
	for fn := range o.observers {
		observers = append(observers, *fn)
	}
	o.mu.RUnlock()
	for _, fn := range observers {
		catch(func() error { fn(c); return nil }, func(error) {})
	}
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
