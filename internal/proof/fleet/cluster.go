//go:build unix

package fleet

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
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

// servers is the Redis of a cluster.
type servers interface {
	namespace() string
	addresses() []string           // of every server that a member may talk to
	connection(l *link) connection // what a member is given
	settle(t redistest.TB)         // returns when everything is up and in step again
	faults() []fault               // what can happen to it
}

// fault is one thing that can happen. What it breaks it fixes, but for processes that it ended and
// links that it disturbed: the cluster does.
type fault struct {
	name   string
	weight int
	strike func(c *cluster) Strike
}

// cluster is one fleet on servers of its own.
type cluster struct {
	t         redistest.TB
	name      string
	dir       string
	rng       *rand.Rand
	servers   servers
	election  election
	journal   *journal
	resource  *resource
	instances []*instance
	spares    []*instance // places without a process, for deploys
	operator  *operator   // nil: nobody asks
	version   int         // of the program, that was deployed last
	places    int         // beyond the first ones
	deck      []fault
	calmFor   time.Duration

	rounds atomic.Int64
	now    atomic.Pointer[string] // name of the last fault
}

// newCluster builds a cluster and its fleet. It ends with t.
func newCluster(t redistest.TB, name string, seed uint64, e election, w servers, asked bool) *cluster {
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
	c := &cluster{
		t: t, name: name, dir: dir, rng: rand.New(rand.NewPCG(seed, 0)), servers: w, election: e, journal: new(journal),
	}
	c.now.Store(new(string))
	c.resource = startResource(t, dir, c.journal)
	c.deck = w.faults()
	if asked {
		c.operator = newOperator(c, seed)
	}
	t.Cleanup(func() { // a fleet that could not be ended in peace
		for _, s := range append(c.instances, c.spares...) {
			if s.running() {
				s.kill()
			}
		}
	})
	for i := range fleetSize {
		s := &instance{cluster: c, name: fmt.Sprintf("member-%d", i), link: newLink(t, w.addresses())}
		c.instances = append(c.instances, s)
		s.start()
	}
	return c
}

// play goes from round to round until the time is over, and ends the fleet in peace.
func (c *cluster) play(until time.Duration) {
	if c.operator != nil {
		c.awaitLeader()
		over := make(chan struct{})
		var asks sync.WaitGroup
		asks.Go(func() { c.operator.play(over) }) // ends after over; awaited below
		defer asks.Wait()
		defer close(over)
	}
	next := hostclock.Now() + calmEvery
	for hostclock.Now() < until && !c.t.Failed() {
		c.awaitLeader()
		c.rest(50*time.Millisecond, c.election.LeaseTTL/2)
		c.round(c.draw())
		if hostclock.Now() >= next {
			c.calm()
			next = hostclock.Now() + calmEvery
		}
	}
	c.calm()
	for _, s := range c.instances {
		s.stop()
	}
}

// draw draws the next fault.
func (c *cluster) draw() fault {
	total := 0
	for _, f := range c.deck {
		total += f.weight
	}
	at := c.rng.IntN(total)
	for _, f := range c.deck {
		if at -= f.weight; at < 0 {
			return f
		}
	}
	panic("unreachable")
}

// round has one fault strike and fixes what it broke.
func (c *cluster) round(f fault) {
	c.now.Store(&f.name)
	e := Entry{Kind: Struck, At: hostclock.Now(), Text: f.name}
	strike := f.strike(c)
	for _, s := range c.instances {
		s.link.heal()
		if !s.running() {
			s.start()
		}
	}
	c.servers.settle(c.t)
	e.Until, e.Strike = hostclock.Now(), &strike
	c.journal.add(e)
	c.rounds.Add(1)
}

// calm lets the fleet run undisturbed after a fault was fixed, for so long that everything must be
// in order, and has each member say what it sees.
func (c *cluster) calm() {
	phase := "calm"
	c.now.Store(&phase)
	if c.operator != nil {
		c.operator.mu.Lock()
		defer c.operator.mu.Unlock()
		defer c.operator.settle()
	}
	e := Entry{Kind: Calm, At: hostclock.Now()}
	c.wait(c.calmFor)
	asked := hostclock.Now()
	for range calmLooks {
		for _, s := range c.instances {
			s.tell()
		}
		c.wait(time.Second)
	}
	for _, s := range c.instances { // the last look may be on its way; one that never comes is for the checker
		for begin := hostclock.Now(); hostclock.Now()-begin < patience && !c.journal.has(Listed, s.name, asked); {
			c.wait(look)
		}
	}
	e.Until = hostclock.Now()
	c.journal.add(e)
}

// leader is the member that leads now, by its own belief; nil if none does.
func (c *cluster) leader() (chief *instance) {
	var highest int64
	for _, s := range c.instances {
		if token, leads := s.leads(); leads && token > highest {
			chief, highest = s, token
		}
	}
	return chief
}

// awaitLeader waits until somebody leads.
func (c *cluster) awaitLeader() {
	for begin := hostclock.Now(); hostclock.Now()-begin < patience; c.wait(look) {
		if c.leader() != nil {
			return
		}
	}
	c.t.Fatalf("fleet: P7: nobody has led for %v after %q", patience, *c.now.Load())
}

// awaitOther waits until another one than s leads, at most for so long.
func (c *cluster) awaitOther(s *instance, most time.Duration) {
	for begin := hostclock.Now(); hostclock.Now()-begin < most; c.wait(look) {
		if other := c.leader(); other != nil && other != s {
			return
		}
	}
}

// victim is a member that leads, or if nobody does any one.
func (c *cluster) victim() *instance {
	if s := c.leader(); s != nil {
		return s
	}
	return c.anyone()
}

func (c *cluster) anyone() *instance { return c.instances[c.rng.IntN(len(c.instances))] }

// follower is a member that does not lead.
func (c *cluster) follower() *instance {
	chief := c.leader()
	for {
		if s := c.anyone(); s != chief {
			return s
		}
	}
}

// between draws a duration.
func (c *cluster) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Int64N(int64(high-low)+1))
}

// rest lets a drawn time pass.
func (c *cluster) rest(low, high time.Duration) { c.wait(c.between(low, high)) }

func (c *cluster) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// ttls draws a number of lease times.
func (c *cluster) ttls(low, high float64) time.Duration {
	ttl := float64(c.election.LeaseTTL)
	return c.between(time.Duration(low*ttl), time.Duration(high*ttl))
}

// names are the IDs of some members.
func names(instances ...*instance) (ids []string) {
	for _, s := range instances {
		ids = append(ids, s.name)
	}
	return ids
}
