package tenure

import (
	"slices"
	"sync"
)

// observing is what observers of one kind have in common. Whatever tells them of something waits
// for none of them. It is safe for concurrent use.
type observing[T any] struct {
	mu      sync.Mutex // guards all that the observers have
	working inFlight   // observers that work off their backlog
}

// observers are those of one subject. The mutex of their observing guards them.
type observers[T any] map[*observer[T]]struct{}

// observer is a function of the application that hears of one thing at a time, in order. What it
// has yet to hear is its backlog, and there is a goroutine only while that has something.
type observer[T any] struct {
	call    func(one T, dropped int) // dropped: how many were dropped since the call before
	most    int                      // how many it may lag behind
	hearsay func(T) bool             // what is dropped before all else; nil: nothing is

	// guarded by of.mu
	of      *observing[T]
	backlog []T
	dropped int
	busy    bool // a goroutine works off the backlog
}

// add adds an observer to those of a subject; the returned function removes it and does not wait
// for a call that is under way.
func (a *observing[T]) add(to observers[T], of observer[T]) (stop func()) {
	o := &of
	a.mu.Lock()
	defer a.mu.Unlock()
	o.of = a
	to[o] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(to, o)
		o.backlog = nil
	}
}

// tell puts one more into the backlog. The lock of observing is held.
func (o *observer[T]) tell(one T) {
	if len(o.backlog) == o.most {
		o.dropped++
		if o.hearsay != nil && o.hearsay(one) {
			return
		}
		o.makeRoom()
	}
	o.backlog = append(o.backlog, one)
	if !o.busy {
		o.busy = true
		o.of.working.begin()
		go o.work() // ends when the backlog is empty; flush of working waits for it
	}
}

// makeRoom drops one: the oldest that is hearsay, or else the oldest of all.
func (o *observer[T]) makeRoom() {
	if o.hearsay != nil {
		if heard := slices.IndexFunc(o.backlog, o.hearsay); heard > 0 {
			o.backlog = slices.Delete(o.backlog, heard, heard+1)
			return
		}
	}
	o.backlog = o.backlog[1:]
}

// next takes one out of the backlog. If there is none the goroutine that asks ends.
func (o *observer[T]) next() (one T, dropped int, more bool) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if len(o.backlog) == 0 {
		o.busy, o.backlog = false, nil
		o.of.working.end()
		return one, 0, false
	}
	one, dropped = o.backlog[0], o.dropped
	o.backlog, o.dropped = o.backlog[1:], 0
	return one, dropped, true
}

// work works off the backlog. Neither a panic nor runtime.Goexit keeps the observer from hearing
// the rest: another goroutine goes on.
func (o *observer[T]) work() {
	over := false
	defer func() {
		if !over {
			_ = recover()
			go o.work() // ends as this one would have
		}
	}()
	for {
		one, dropped, more := o.next()
		if over = !more; over {
			return
		}
		o.call(one, dropped)
	}
}
