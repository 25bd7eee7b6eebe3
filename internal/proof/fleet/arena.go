//go:build unix

package fleet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	fleetSize = 3
	patience  = 60 * time.Second // for somebody to lead, on a starved machine
	look      = 2 * time.Millisecond
	calmEvery = 10 * time.Minute // and at the end
	calmLooks = 4                // a second apart, at the end of a calm
)

// world is the Redis of an arena.
type world interface {
	namespace() string
	addresses() []string           // of every server that a member may talk to
	connection(l *link) connection // what a member is told
	settle(t redistest.TB)         // returns when everything is up and in step again
	faults() []fault               // what can happen to it
}

// fault is one thing that can happen. What it breaks it mends, but for processes that it ended and links that it disturbed: the
// arena does.
type fault struct {
	name   string
	weight int
	strike func(a *arena) Strike
}

// arena is one fleet on servers of its own.
type arena struct {
	t        redistest.TB
	name     string
	dir      string
	rng      *rand.Rand
	world    world
	election election
	journal  *journal
	resource *resource
	seats    []*seat
	deck     []fault
	calmFor  time.Duration

	rounds atomic.Int64
	now    atomic.Pointer[string] // name of the last fault
}

// open builds an arena and its fleet. It ends with t.
func openArena(t redistest.TB, name string, seed uint64, e election, w world) *arena {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleet-")
	if err != nil {
		t.Fatalf("fleet: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("fleet: %v", err)
		}
	})
	a := &arena{
		t: t, name: name, dir: dir, rng: rand.New(rand.NewPCG(seed, 0)), world: w, election: e, journal: new(journal),
	}
	a.now.Store(new(string))
	a.resource = startResource(t, dir, a.journal)
	a.deck = w.faults()
	t.Cleanup(func() { // a fleet that could not be ended in peace
		for _, s := range a.seats {
			if s.running() {
				s.kill()
			}
		}
	})
	for i := range fleetSize {
		s := &seat{arena: a, name: fmt.Sprintf("member-%d", i), link: newLink(t, w.addresses())}
		a.seats = append(a.seats, s)
		s.start()
	}
	return a
}

// play goes from round to round until the time is over, and ends the fleet in peace.
func (a *arena) play(until time.Duration) {
	next := hostclock.Now() + calmEvery
	for hostclock.Now() < until && !a.t.Failed() {
		a.awaitLeader()
		a.rest(50*time.Millisecond, a.election.LeaseTTL/2)
		a.round(a.draw())
		if hostclock.Now() >= next {
			a.calm()
			next = hostclock.Now() + calmEvery
		}
	}
	a.calm()
	for _, s := range a.seats {
		s.stop()
	}
}

// draw draws the next fault.
func (a *arena) draw() fault {
	total := 0
	for _, f := range a.deck {
		total += f.weight
	}
	at := a.rng.IntN(total)
	for _, f := range a.deck {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("unreachable")
}

// round has one fault strike and mends what it broke.
func (a *arena) round(f fault) {
	a.now.Store(&f.name)
	e := Entry{Kind: Struck, At: hostclock.Now(), Text: f.name}
	strike := f.strike(a)
	for _, s := range a.seats {
		s.link.heal()
		if !s.running() {
			s.start()
		}
	}
	a.world.settle(a.t)
	e.Until, e.Strike = hostclock.Now(), &strike
	a.journal.add(e)
	a.rounds.Add(1)
}

// calm lets the fleet run undisturbed after a fault was mended, for so long that everything must be
// in order, and has each member say what it sees.
func (a *arena) calm() {
	a.now.Store(new("calm"))
	e := Entry{Kind: Calm, At: hostclock.Now()}
	a.wait(a.calmFor)
	asked := hostclock.Now()
	for range calmLooks {
		for _, s := range a.seats {
			s.tell()
		}
		a.wait(time.Second)
	}
	for _, s := range a.seats { // the last look may be on its way; one that never comes is for the checker
		for begin := hostclock.Now(); hostclock.Now()-begin < patience && !a.journal.has(Listed, s.name, asked); {
			a.wait(look)
		}
	}
	e.Until = hostclock.Now()
	a.journal.add(e)
}

// leader is the member that leads now, by its own belief; nil where none does.
func (a *arena) leader() (chief *seat) {
	var highest int64
	for _, s := range a.seats {
		if token, leads := s.leads(); leads && token > highest {
			chief, highest = s, token
		}
	}
	return chief
}

// awaitLeader waits until somebody leads.
func (a *arena) awaitLeader() *seat {
	for begin := hostclock.Now(); hostclock.Now()-begin < patience; a.wait(look) {
		if s := a.leader(); s != nil {
			return s
		}
	}
	a.t.Fatalf("fleet: P7: nobody has led for %v after %q", patience, *a.now.Load())
	return nil
}

// awaitOther waits until another one than s leads, at most for so long.
func (a *arena) awaitOther(s *seat, most time.Duration) {
	for begin := hostclock.Now(); hostclock.Now()-begin < most; a.wait(look) {
		if other := a.leader(); other != nil && other != s {
			return
		}
	}
}

// victim is a member that leads, or where nobody does any one.
func (a *arena) victim() *seat {
	if s := a.leader(); s != nil {
		return s
	}
	return a.anyone()
}

func (a *arena) anyone() *seat { return a.seats[a.rng.IntN(len(a.seats))] }

// follower is a member that does not lead.
func (a *arena) follower() *seat {
	chief := a.leader()
	for {
		if s := a.anyone(); s != chief {
			return s
		}
	}
}

// between draws a duration.
func (a *arena) between(low, high time.Duration) time.Duration {
	return low + time.Duration(a.rng.Int64N(int64(high-low)+1))
}

// rest lets a drawn time pass.
func (a *arena) rest(low, high time.Duration) { a.wait(a.between(low, high)) }

func (a *arena) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// ttls draws a number of lease times.
func (a *arena) ttls(low, high float64) time.Duration {
	ttl := float64(a.election.LeaseTTL)
	return a.between(time.Duration(low*ttl), time.Duration(high*ttl))
}

// names are the IDs of some members.
func names(seats ...*seat) (ids []string) {
	for _, s := range seats {
		ids = append(ids, s.name)
	}
	return ids
}
