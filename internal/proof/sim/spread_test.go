package sim

import (
	"container/heap"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// spreading are processes that take part in the elections of several roles, which are to be shared
// out. The other simulator has one role; here the ranks of one process hang together.
type spreading struct {
	t      *testing.T
	rand   *rand.Rand
	now    time.Duration
	events moments
	number int
	nonces int
	roles  []*oracle.Redis
	procs  []*sharer
	calm   time.Duration // no message is lost from then on

	moved   int           // terms that ended for another
	movedAt time.Duration // the last one
	patient bool          // at the pace that they have
}

// sharer is a process with a candidate of each role.
type sharer struct {
	id    string
	down  bool
	life  int
	cands []*lease.Candidate
	wakes []int // number of the youngest timer of each
	led   int
	pace  lease.Pace
}

type moment struct {
	at     time.Duration
	number int
	do     func()
}

type moments []moment

func (m *moments) Len() int { return len(*m) }
func (m *moments) Less(i, j int) bool {
	a, b := (*m)[i], (*m)[j]
	return a.at < b.at || a.at == b.at && a.number < b.number
}
func (m *moments) Swap(i, j int) { (*m)[i], (*m)[j] = (*m)[j], (*m)[i] }
func (m *moments) Push(x any)    { *m = append(*m, x.(moment)) }
func (m *moments) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

var sharedTiming = lease.Timing{
	TTL: hotTTL, Renew: hotTTL / 3, Retry: hotTTL / 2, Drift: lease.DefaultDrift(hotTTL), Penalty: hotTTL, Preempt: 2 * hotTTL,
}

func newSpreading(t *testing.T, seed uint64, processes, roles int) *spreading {
	s := &spreading{t: t, rand: rand.New(rand.NewPCG(seed, 9)), patient: true}
	for range roles {
		s.roles = append(s.roles, &oracle.Redis{Rules: oracle.All, Facts: oracle.Facts{Origin: "1", Uptime: 3_600_000}})
	}
	for i := range processes {
		s.procs = append(s.procs, &sharer{id: "p" + strconv.Itoa(i), down: true})
	}
	return s
}

func (s *spreading) after(d time.Duration, do func()) {
	s.number++
	heap.Push(&s.events, moment{s.now + d, s.number, do})
}

// until lets time pass.
func (s *spreading) until(end time.Duration) {
	for len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(moment)
		s.now = e.at
		e.do()
	}
	s.now = end
}

func (s *spreading) transit() time.Duration {
	return between(s.rand, 200*time.Microsecond, 3*time.Millisecond)
}

func (s *spreading) lost() bool { return s.now < s.calm && s.rand.Float64() < 0.02 }

func (s *spreading) reading() lease.Reading { return lease.Reading{Mono: s.now, Wall: s.now} }

// start starts a process that is down.
func (s *spreading) start(p *sharer) {
	if !p.down {
		return
	}
	p.down, p.led, p.pace, p.cands, p.wakes = false, 0, lease.Pace{}, nil, make([]int, len(s.roles))
	p.life++
	for role := range s.roles {
		c := lease.NewCandidate(sharedTiming, s.rand.Float64, func() string { s.nonces++; return strconv.Itoa(s.nonces) })
		c.Turns(func(fewer int) bool { return !s.patient || p.pace.Turn(s.now, sharedTiming, fewer) })
		p.cands = append(p.cands, c)
		s.alive(p, between(s.rand, 0, 50*time.Millisecond), func() { s.turn(p, role) })
	}
}

// alive does something later if the process still is.
func (s *spreading) alive(p *sharer, d time.Duration, do func()) {
	life := p.life
	s.after(d, func() {
		if !p.down && p.life == life {
			do()
		}
	})
}

// prefer is the rank of a candidate at this moment.
func (s *spreading) prefer(p *sharer, role int) {
	others := p.led
	if p.cands[role].State() == lease.Leading {
		others--
	}
	p.cands[role].Prefer(lease.Preference{Others: others, Order: 1 + (role*7+int(p.id[1]))%5}.Rank())
}

func (s *spreading) turn(p *sharer, role int) {
	c := p.cands[role]
	s.apply(p, role, c.Tick(s.reading()))
	s.prefer(p, role)
	for {
		r, due := c.Next(s.reading())
		if !due {
			break
		}
		if !s.lost() {
			s.after(s.transit(), func() { s.arrive(p, role, p.life, r) })
		}
	}
	s.number++
	number := s.number
	p.wakes[role] = number
	s.alive(p, c.Wait(s.reading())+between(s.rand, 0, time.Millisecond), func() {
		if p.wakes[role] == number {
			s.turn(p, role)
		}
	})
}

func (s *spreading) apply(p *sharer, role int, change lease.Change) {
	switch change {
	case lease.Began:
		p.led++
		for _, q := range s.procs {
			if q != p && s.leads(q, role) {
				s.t.Fatalf("P1: role %d at %v: %s and %s", role, s.now, p.id, q.id)
			}
		}
	case lease.Ended:
		p.led--
		if p.cands[role].Reason() == lease.Transferred {
			s.moved, s.movedAt = s.moved+1, s.now
		}
		s.alive(p, between(s.rand, 0, 200*time.Millisecond), func() {
			p.cands[role].Drained(s.reading())
			s.turn(p, role)
		})
	}
}

func (s *spreading) leads(p *sharer, role int) bool {
	return !p.down && p.cands[role].State() == lease.Leading && p.cands[role].Lease().Leading(s.reading())
}

// arrive lets a request reach Redis.
func (s *spreading) arrive(p *sharer, role, life int, r lease.Request) {
	redis, now := s.roles[role], epoch+s.now.Milliseconds()
	asker := oracle.Asker{ID: p.id, TTL: hotTTL.Milliseconds(), EmptyWait: 250}
	before := *redis
	var reply oracle.Reply
	switch r.Kind {
	case lease.Acquire:
		reply = redis.Acquire(now, asker, r)
	case lease.Renew:
		reply = redis.Renew(now, asker, r)
	default:
		reply = redis.Release(now, asker, r)
	}
	t := redis.Term
	for _, q := range s.procs {
		if q.down || s.lost() {
			continue
		}
		c := q.cands[role]
		var hint func(lease.Reading)
		switch {
		case r.Kind == lease.Release && before.Lease.Holder != "" && redis.Lease.Holder == "" && (t.Heir == "" || t.Reserved <= now):
			hint = c.Vacant
		case q.id == t.Heir && (r.Kind != lease.Acquire && before.Term.Heir != t.Heir || r.Kind == lease.Release || reply.Reason == "reserved"),
			q.id == t.Best.ID && reply.Reason == "yield":
			hint = c.Named
		case reply.Offered && before.Term.Ready <= now:
			hint = c.RollCall
		}
		if hint != nil {
			s.alive(q, s.transit(), func() { hint(s.reading()); s.turn(q, role) })
		}
	}
	if p.life == life && !s.lost() {
		s.alive(p, s.transit(), func() {
			s.prefer(p, role)
			s.apply(p, role, p.cands[role].Answer(s.reading(), r, reply.Answer))
			s.turn(p, role)
		})
	}
}

// even reports whether each role is led, and no process leads two more than another.
func (s *spreading) even() bool {
	least, most, sum := len(s.roles), 0, 0
	for _, p := range s.procs {
		if !p.down {
			least, most, sum = min(least, p.led), max(most, p.led), sum+p.led
		}
	}
	return sum == len(s.roles) && most-least <= 1
}

// settles returns how long it takes until roles are shared out evenly, and lets time pass after it,
// in which nothing may move.
func (s *spreading) settles(bound time.Duration) (took time.Duration) {
	s.t.Helper()
	began := s.now
	for !s.even() {
		s.until(s.now + 100*time.Millisecond)
		if s.now-began > bound {
			s.t.Fatalf("not shared out within %v", bound)
		}
	}
	took = s.now - began
	s.until(s.now + 2*sharedTiming.Preempt) // an offer may be on its way
	quiet := s.now
	s.until(s.now + 20*sharedTiming.Preempt)
	if s.movedAt > quiet || !s.even() {
		s.t.Errorf("roles moved at %v, %v after they were shared out", s.movedAt, s.movedAt-quiet)
	}
	return took
}

// TestRolesAreSharedOut: whoever starts first, and after whatever faults, roles are shared out once
// these are over, and then stay where they are.
func TestRolesAreSharedOut(t *testing.T) {
	for _, size := range []struct{ processes, roles int }{{2, 5}, {3, 7}, {5, 12}, {6, 4}, {2, 100}, {4, 60}} {
		for seed := range uint64(3) {
			s := newSpreading(t, seed, size.processes, size.roles)
			s.start(s.procs[0])
			s.until(time.Minute)
			if s.procs[0].led != size.roles {
				t.Fatalf("one process alone leads %d of %d roles", s.procs[0].led, size.roles)
			}
			for _, p := range s.procs {
				s.start(p)
			}
			surplus := size.roles - (size.roles+size.processes-1)/size.processes
			took := s.settles(time.Duration(min(surplus+2, 20)) * sharedTiming.Preempt * 3 / 2) // many move faster
			if s.moved > surplus+surplus/4+2 {
				t.Errorf("%d processes, %d roles: %d moved, %d would do", size.processes, size.roles, s.moved, surplus)
			}
			t.Logf("%d processes, %d roles: %d moved in %v", size.processes, size.roles, s.moved, took)

			s.calm = s.now + 10*time.Minute
			for s.now < s.calm {
				s.until(s.now + between(s.rand, time.Second, 30*time.Second))
				if p := s.procs[s.rand.IntN(len(s.procs))]; s.rand.IntN(2) == 0 {
					p.down = true
				} else {
					s.start(p)
				}
			}
			for _, p := range s.procs {
				s.start(p)
			}
			s.until(s.now + 3*hotTTL)
			t.Logf("after faults: %v", s.settles(time.Duration(min(size.roles+2, 20))*sharedTiming.Preempt*3/2))
		}
	}
}
