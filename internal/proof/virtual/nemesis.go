package virtual

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Everything here sleeps in virtual time.

// strike is one deed of the nemesis. It has a generator of its own, so that leaving one out
// changes nothing that another draws.
type strike struct {
	*nemesis
	rand   *rand.Rand
	number int
	at     time.Duration
	fault  string
	victim *instance
}

// span draws a duration, given for the hot class, in steps of 10 µs.
func (s *strike) span(lo, hi time.Duration) time.Duration {
	lo, hi = s.pace.span(lo), s.pace.span(hi)
	return lo + time.Duration(s.rand.Int64N(int64((hi-lo)/odd)+1))*odd
}

// crash lets a process die, and live again after d.
func (s *strike) crash(victim *instance, d time.Duration) {
	victim.crash()
	s.plan(d, victim.boot)
}

// faults are what the nemesis can do, by name. A fault plans its own end.
var faults = map[string]func(s *strike){
	"crash": func(s *strike) { s.crash(s.victim, s.span(100*time.Millisecond, 8*time.Second)) },
	"crash-leader": func(s *strike) {
		if leader := s.leader(); leader != nil {
			s.crash(leader, s.span(100*time.Millisecond, 8*time.Second))
		}
	},
	"stop": func(s *strike) {
		s.running.Go(s.victim.stop) // returns within the shutdown bound
		s.plan(s.pace.shutdown+s.span(100*time.Millisecond, 4*time.Second), s.victim.boot)
	},
	"resign": func(s *strike) {
		if leader := s.leader(); leader != nil {
			leader.resign()
		}
	},
	"partition": func(s *strike) {
		way := []simnet.Way{simnet.Both, simnet.Requests, simnet.Replies}[s.rand.IntN(3)]
		s.net.Partition(s.victim.name, way, s.span(50*time.Millisecond, 6*time.Second))
	},
	"partition-leader": func(s *strike) {
		victim := s.victim
		if leader := s.leader(); leader != nil {
			victim = leader
		}
		s.net.Partition(victim.name, simnet.Both, s.span(hotTTL/2, 3*hotTTL))
	},
	"deafen": func(s *strike) { s.net.Deafen(s.victim.name) },
	"cut":    func(s *strike) { s.net.Cut(s.victim.name) },
	"pause":  func(s *strike) { s.redis.Pause(s.span(50*time.Millisecond, 5*time.Second)) },
	"rate":   func(s *strike) { s.redis.SetRate(0.99 + 0.02*s.rand.Float64()) },

	// For longer than DownAfter: the registry forgets it, and must take it back.
	"away": func(s *strike) { s.crash(s.victim, s.pace.registry.DownAfter+s.span(0, 20*time.Second)) },
	"partition-long": func(s *strike) {
		s.net.Partition(s.victim.name, simnet.Both, s.pace.registry.DownAfter+s.span(0, 20*time.Second))
	},

	"script-flush": func(s *strike) { s.redis.ScriptFlush() },
	"del":          func(s *strike) { s.redis.Del(leaderKey) },
	"evict-term":   func(s *strike) { s.redis.Evict(termKey) },
	"flush":        func(s *strike) { s.redis.FlushAll() },
	"restart":      func(s *strike) { s.redis.Restart(true, s.span(0, 2*time.Second)) },
	"restart-empty": func(s *strike) {
		s.redis.Restart(false, s.span(0, 2*time.Second))
	},
	// The replica that is promoted misses the last writes, and its clock may be apart.
	"failover": func(s *strike) {
		clock := s.span(0, 2*s.profile.skew) - s.pace.span(s.profile.skew)
		if s.rand.Float64() < 0.3 {
			s.redis.Failover(nil, clock)
			return
		}
		failover := s.losing()
		s.plan(s.span(0, unreplicated), func() { failover(clock) })
	},
	"clock-back": func(s *strike) { s.redis.StepClock(-s.span(time.Second, 50*time.Second)) },
}

// unreplicated is how many of the last writes a promoted replica misses, in the hot class.
const unreplicated = 2800 * time.Millisecond

// nemesis strikes in one goroutine of the testing/synctest bubble, so that no two of its
// deeds fall on one instant.
type nemesis struct {
	*cluster
	profile profile
	request Request
	agenda  map[time.Duration]func() // by instant since the world began
	fell    []Strike
}

// plan does something later.
func (n *nemesis) plan(after time.Duration, do func()) {
	if n.agenda == nil {
		n.agenda = map[time.Duration]func(){}
	}
	at := n.net.Elapsed() + after
	for n.agenda[at] != nil {
		at += odd
	}
	n.agenda[at] = do
}

// run plagues the world for d.
func (n *nemesis) run(d time.Duration) {
	n.net.SetFaults("", n.profile.network(n.request.Quiet))
	begin := n.net.Elapsed()
	for _, s := range n.draw(d) {
		out := slices.Contains(n.request.Without, s.number)
		n.plan(s.at, func() {
			n.fell = append(n.fell, Strike{Number: s.number, At: n.net.Elapsed(), Fault: s.fault, Out: out})
			if !out {
				n.note(s.victim.name, "nemesis", s.fault, int64(s.number))
				faults[s.fault](s)
			}
		})
	}
	if lull := n.lull(d); lull > 0 {
		n.until(begin + d/2)
		n.quieten(begin + d/2)
		n.note("test", "lull", "", 0)
		n.calm(n.profile)
		n.until(begin + d/2 + lull)
		n.net.SetFaults("", n.profile.network(n.request.Quiet))
	}
	n.until(begin + d)
	n.quieten(begin + d)
	for _, instance := range n.instances { // one that was away for longer
		instance.boot()
	}
}

// quieten ends what goes wrong on the network, and waits for what else is to end.
func (n *nemesis) quieten(at time.Duration) {
	n.net.SetFaults("", simnet.Faults{})
	n.net.Heal("")
	n.until(at + n.pace.span(10*time.Second))
	if n.operator != nil {
		n.operator.letGo()
		n.align()
	}
}

// lull is for how long nothing new goes wrong in the middle of a run of length d; a short one has
// none.
func (n *nemesis) lull(d time.Duration) time.Duration {
	lull := n.pace.span(10*time.Second) + max(n.leaderBound(n.profile), n.hearingBound()) + time.Second
	if n.profile.calm || n.request.Until > 0 && n.request.Until < d/2 || d < 8*lull {
		return 0
	}
	return lull.Round(odd)
}

// draw draws every strike of the next d, whatever becomes of the world.
func (n *nemesis) draw(d time.Duration) (strikes []*strike) {
	times := newRand(n.seed, "strikes", 0)
	pause := cmp.Or(n.profile.every, n.pace.strikes)
	for at := time.Duration(0); ; {
		next := 2 * times.Float64()
		if n.profile.calm { // one fault at a time
			next = 0.75 + next/4
		}
		at += time.Duration(next * float64(pause)).Truncate(odd)
		fault, victim := n.profile.faults[times.IntN(len(n.profile.faults))], n.instances[times.IntN(len(n.instances))]
		if lull := n.lull(d); at >= d/2 && at < d/2+lull {
			at = d/2 + lull
		}
		if at >= d {
			return strikes
		}
		number := len(strikes)
		strikes = append(strikes, &strike{
			nemesis: n, number: number, at: at, fault: fault, victim: victim, rand: newRand(n.seed, "strike", number),
		})
	}
}

// until works the agenda off as far as end, or until the world is over.
func (n *nemesis) until(end time.Duration) {
	for len(n.agenda) > 0 {
		at := slices.Min(slices.Collect(maps.Keys(n.agenda)))
		if at > end {
			break
		}
		if !n.sleepUntil(at) {
			return
		}
		do := n.agenda[at]
		delete(n.agenda, at)
		do()
	}
	n.sleepUntil(end)
}

// sleepUntil reports false if the run was asked to end before.
func (n *nemesis) sleepUntil(at time.Duration) bool {
	until := n.request.Until
	if until == 0 || until > at {
		time.Sleep(at - n.net.Elapsed())
		return true
	}
	time.Sleep(until - n.net.Elapsed())
	return false
}
