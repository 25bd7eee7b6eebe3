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

// Few is how many loops have their turns at the very time that they ask for. Of more than that,
// those whose turns may be earlier or later have them together.
const Few = 16

// Next says when a loop wants its next turn, if nothing nudges it earlier. Of turns that may be
// early the first comes as late as it may, and with it come those that may be early by as much, if
// that one may too.
type Next struct {
	In    time.Duration // from now; 0 and less: at once
	Early time.Duration // it may be so much earlier; 0: it waits for nobody
	Late  time.Duration // and so much later
	Over  bool          // never: the loop has ended
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
	agenda  agenda.Agenda[*Seat]
	company agenda.Agenda[*Seat] // those that may be early, by the time that they ask for
	origin  time.Time
	turns   uint64
}

// Seat is the place of one loop in a driver.
type Seat struct {
	driver *Driver
	turn   func(early bool) Next

	// Guarded by the driver's lock.
	started bool
	place   int  // in seats
	queued  bool // it is in ready

	// Of Run alone.
	entry agenda.Entry[*Seat]
	joins agenda.Entry[*Seat] // of company
	at    int64               // when it asks for its next turn
	early int64               // how much earlier that may be
	last  uint64              // the number of its last turn
}

// New returns a driver without loops. after is called when all that were due have had their turn.
// It must not block.
func New(after func()) *Driver {
	return &Driver{wake: make(chan struct{}, 1), after: after}
}

// Seat gives a loop its place. turn is called once Start was, by Run alone, one turn at a time. It
// must not block. early: it is called before its time, since it may be; see Next.
func (d *Driver) Seat(turn func(early bool) Next) *Seat {
	s := &Seat{driver: d, turn: turn}
	s.entry.Owner, s.joins.Owner = s, s
	return s
}

// Start lets the loop have turns, the first one at once. It must not be called twice, nor after
// Close.
func (s *Seat) Start() {
	d := s.driver
	d.mu.Lock()
	s.started, s.place = true, len(d.seats)
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
		d.let(s, false)
	}
	var reach int64
	for {
		s, at, ok := d.agenda.First()
		if !ok || at > d.now() || s.last == d.turns {
			break
		}
		if s.joins.Waits() {
			reach = max(reach, s.early)
		}
		d.let(s, false)
	}
	d.join(reach)
	d.after()
	if _, at, ok := d.agenda.First(); ok {
		return max(time.Duration(at-d.now()), 0)
	}
	return math.MaxInt64
}

// join gives an early turn to those that may have one, and ask for one within reach.
func (d *Driver) join(reach int64) {
	var early, others []*Seat
	now := d.now()
	for reach > 0 {
		s, at, ok := d.company.First()
		if !ok || at > now+reach {
			break
		}
		d.company.Remove(&s.joins)
		if at-s.early <= now && s.last != d.turns {
			early = append(early, s)
		} else {
			others = append(others, s)
		}
	}
	for _, s := range others {
		d.company.Set(&s.joins, s.at)
	}
	for _, s := range early {
		d.let(s, true)
	}
}

func (d *Driver) now() int64 { return int64(time.Since(d.origin)) }

// let gives a loop a turn, if it goes on.
func (d *Driver) let(s *Seat, early bool) {
	if s.last == math.MaxUint64 { // nudged once more in its last turn
		return
	}
	s.last = d.turns
	next := s.turn(early)
	d.company.Remove(&s.joins)
	if next.Over {
		s.last = math.MaxUint64
		d.agenda.Remove(&s.entry)
		d.leave(s)
		return
	}
	now := d.now()
	at := now + min(int64(max(next.In, 0)), math.MaxInt64-int64(next.Late)-now)
	if next.Early > 0 && d.many() {
		s.at, s.early = at, int64(next.Early)
		d.company.Set(&s.joins, at)
		at += int64(next.Late)
	}
	d.agenda.Set(&s.entry, at)
}

// many reports whether loops that may be early or late have their turns together.
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
	last := len(d.seats) - 1
	d.seats[s.place] = d.seats[last] // there may be thousands, which end at one moment
	d.seats[s.place].place = s.place
	d.seats[last] = nil
	d.seats = d.seats[:last]
	d.nudge()
}
