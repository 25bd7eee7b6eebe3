// Package driver runs many loops in one goroutine: those of the elections of a process, which may
// be a thousand. A loop of its own each would cost a goroutine and a timer, and wake the process
// once for each renewal.
package driver

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/agenda"
)

const (
	// Few is how many loops have their turns at the very time that they ask for. Of more than that,
	// those that are lax wait for the end of the Slot: so their turns come together.
	Few = 16
	// Slot is what a lax loop waits longer at most.
	Slot = 100 * time.Millisecond
)

// Next says when a loop wants its next turn, if nothing nudges it earlier.
type Next struct {
	In   time.Duration // from now; 0 and less: at once
	Lax  bool          // it may be up to a Slot later
	Over bool          // never: the loop has ended
}

// Driver runs loops. Its methods are safe for concurrent use.
type Driver struct {
	wake  chan struct{} // has room for one
	after func()        // see New

	mu     sync.Mutex
	ready  []*Seat // to have a turn as soon as may be
	seats  []*Seat // whose loop goes on
	closed bool

	// Of Run alone.
	agenda agenda.Agenda[*Seat]
	origin time.Time
	turns  uint64
}

// Seat is the place of one loop in a driver.
type Seat struct {
	driver *Driver
	turn   func() Next

	// Guarded by the driver's lock.
	started bool
	queued  bool // it is in ready

	// Of Run alone.
	entry agenda.Entry[*Seat]
	last  uint64 // the number of its last turn
}

// New returns a driver without loops. after is called when all that were due have had their turn.
// It must not block.
func New(after func()) *Driver {
	return &Driver{wake: make(chan struct{}, 1), after: after}
}

// Seat gives a loop its place. turn is called once Start was, by Run alone, one turn at a time. It
// must not block.
func (d *Driver) Seat(turn func() Next) *Seat {
	s := &Seat{driver: d, turn: turn}
	s.entry.Owner = s
	return s
}

// Start lets the loop have turns, the first one at once. It must not be called twice, nor after
// Close.
func (s *Seat) Start() {
	d := s.driver
	d.mu.Lock()
	s.started = true
	d.seats = append(d.seats, s)
	d.mu.Unlock()
	s.Nudge()
}

// Nudge lets the loop have a turn as soon as may be. Many calls before that turn cause one. It does
// not block; before Start and after the end of the loop it does nothing.
func (s *Seat) Nudge() { Nudge(s) }

// Nudge nudges several loops of one driver.
func Nudge(seats ...*Seat) {
	if len(seats) == 0 {
		return
	}
	d := seats[0].driver
	d.mu.Lock()
	before := len(d.ready)
	for _, s := range seats {
		if s.started && !s.queued {
			s.queued = true
			d.ready = append(d.ready, s)
		}
	}
	more := len(d.ready) > before
	d.mu.Unlock()
	if more {
		d.nudge()
	}
}

func (d *Driver) nudge() {
	select {
	case d.wake <- struct{}{}:
	default: // it will wake already
	}
}

// Close says that no loop will be started any more: Run returns when the last one has ended.
func (d *Driver) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.nudge()
}

// Run gives the loops their turns until all have ended and the driver is closed. When stop is
// closed each has one at once.
func (d *Driver) Run(stop <-chan struct{}) {
	d.origin = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ready, over := d.take()
		if over {
			return
		}
		timer.Reset(d.pass(ready))
		select {
		case <-d.wake:
		case <-timer.C:
		case <-stop:
			stop = nil
			d.nudgeAll()
		}
	}
}

// take takes those that are to have a turn. over reports that there are no loops, and will be none.
func (d *Driver) take() (ready []*Seat, over bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	ready, d.ready = d.ready, nil
	for _, s := range ready {
		s.queued = false
	}
	return ready, d.closed && len(d.seats) == 0
}

// nudgeAll is Nudge for all.
func (d *Driver) nudgeAll() {
	d.mu.Lock()
	seats := slices.Clone(d.seats)
	d.mu.Unlock()
	Nudge(seats...)
}

// pass gives a turn to those that are ready, and to all whose time has come, one each. It returns
// for how long nothing else is due.
func (d *Driver) pass(ready []*Seat) time.Duration {
	d.turns++
	for _, s := range ready {
		d.let(s)
	}
	for {
		s, at, ok := d.agenda.First()
		switch {
		case !ok:
			d.after()
			return math.MaxInt64
		case at > int64(time.Since(d.origin)) || s.last == d.turns:
			d.after()
			return max(time.Duration(at)-time.Since(d.origin), 0)
		}
		d.let(s)
	}
}

// let gives a loop a turn, if it goes on.
func (d *Driver) let(s *Seat) {
	if s.last == math.MaxUint64 { // nudged once more in its last turn
		return
	}
	s.last = d.turns
	next := s.turn()
	if next.Over {
		s.last = math.MaxUint64
		d.agenda.Remove(&s.entry)
		d.leave(s)
		return
	}
	now := time.Since(d.origin)
	at := now + min(max(next.In, 0), math.MaxInt64-2*Slot-now)
	if next.Lax && d.many() {
		at = at.Truncate(Slot) + Slot
	}
	d.agenda.Set(&s.entry, int64(at))
}

// many reports whether lax loops wait for each other.
func (d *Driver) many() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.seats) > Few
}

// leave takes a loop that has ended out. Run looks whether it was the last one.
func (d *Driver) leave(s *Seat) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.started = false
	d.seats = slices.DeleteFunc(d.seats, func(other *Seat) bool { return other == s })
	d.nudge()
}
