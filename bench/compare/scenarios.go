//go:build unix

package main

import (
	"maps"
	"math"
	"strings"
	"time"

	"github.com/tenure-go/tenure/bench/internal/contender"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// readings are the figures of one run, by name: milliseconds, or a count. +Inf: it did not happen
// within the bound.
type readings map[string]float64

// Names of readings.
const (
	beyondOwn   = "belief beyond the lease, own check, ms"
	beyondWork  = "belief beyond the lease, work context, ms"
	overlapOwn  = "two holders at once, own check, ms"
	overlapWork = "two holders at once, work context, ms"
	takeover    = "until a candidate leads, ms"
	staleOwn    = "first look after waking still says leader, own check, runs"
	staleWork   = "first look after waking still says leader, work context, runs"
	noticeOwn   = "until it notices, own check, ms"
	noticeWork  = "until it notices, work context, ms"
	nobody      = "nobody leads, ms"
	commands    = "holder, requests per second"
	idleCmds    = "follower, requests per second"
	sent        = "holder, bytes sent per second"
	idleSent    = "follower, bytes sent per second"
)

// scenario is one fault and what is read off it.
type scenario struct {
	name      string
	what      string
	figures   []string
	redisOnly bool // the text says why
	play      func(*stage) readings
}

func scenarios() []scenario {
	return []scenario{
		{name: "Partition of the holder", what: "everything between the holder and the store vanishes; connections stay open. *Until a candidate leads* counts from the end of the lease.",
			figures: []string{beyondOwn, beyondWork, overlapOwn, overlapWork, takeover}, play: partition},
		{name: "Holder frozen for TTL + 3.5 s", what: "the holder is a process of its own, and gets SIGSTOP, then SIGCONT. Another candidate leads when it wakes. Time counts from its first look. A timer cancels the context, and a process that wakes has yet to run that timer: for this case tenure promises its own check.",
			figures: []string{staleOwn, noticeOwn, staleWork, noticeWork, overlapOwn, overlapWork}, play: frozenHolder},
		{name: "Acquire answered after the lease has ended", what: "replies take TTL + 0.5 s. The client's read time-out is set to 10 s, because go-redis's default of 3 s would hide the fault. A second candidate campaigns without a fault.",
			figures: []string{overlapOwn, overlapWork}, play: lateAcquire},
		{name: "Reply of the acquire lost", what: "the store grants the lease, and the connection is reset before the reply is read. Time counts from the start of the campaign. client-go is left out: it reads before it writes, and the proxy cannot pick one reply of HTTP.",
			figures: []string{takeover}, redisOnly: true, play: lostAcquire},
		{name: "Reply of a renewal lost", what: "the store renews the lease, and the connection is reset before the reply is read. Other replies arrive. Six seconds are watched.",
			figures: []string{nobody, overlapOwn, overlapWork}, play: lostRenewal},
		{name: "Store frozen for 8 s", what: "SIGSTOP stops redis-server; the stand-in for the API server keeps every request waiting. *Until a candidate leads* counts from the thaw. 0: the holder believed all the time that it leads.",
			figures: []string{beyondOwn, beyondWork, overlapOwn, overlapWork, takeover}, play: frozenStore},
		{name: "Hand-over", what: "the holder gives up by itself.",
			figures: []string{takeover}, play: handOver},
		{name: "Hand-over, wake-up lost", what: "the follower's connections are dead without a sign, but new ones work. The holder gives up. At most 30 s are watched.",
			figures: []string{takeover}, play: lostWakeUp},
		{name: "Crash of the holder", what: "the holder is a process of its own, and gets SIGKILL.",
			figures: []string{takeover}, play: crash},
		{name: "Restart of a Redis that keeps nothing", what: "Redis gets SIGKILL, and starts again without data. etcd does not have this fault. Eight seconds are watched.",
			figures: []string{overlapOwn, overlapWork, nobody}, redisOnly: true, play: restart},
		{name: "FLUSHALL", what: "all data are deleted while a holder leads. etcd does not have this fault. Eight seconds are watched.",
			figures: []string{overlapOwn, overlapWork, nobody}, redisOnly: true, play: flushAll},
		{name: "First election, store just started", what: "no candidate has been there before.",
			figures: []string{takeover}, play: firstElection(false)},
		{name: "First election, store older than the TTL", what: "no candidate has been there before.",
			figures: []string{takeover}, play: firstElection(true)},
		{name: "Traffic in peace", what: "one holder and one follower for six seconds. The proxies count, after the handshakes of clients and subscriptions.",
			figures: []string{commands, sent, idleCmds, idleSent}, play: traffic},
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func partition(s *stage) readings {
	s.lead()
	s.proxies[0].Blackhole()
	s.wait(20 * time.Millisecond) // what was under way has arrived
	return s.beyond(s.store.Expiry())
}

// beyond waits until the first has ceased to believe and the second leads.
func (s *stage) beyond(expiry time.Time) readings {
	at := time.Now()
	s.until(startBound, func() bool { return neither(s.lines[0].last()) && s.lines[1].last().Own })
	r := s.overlaps(at)
	r[beyondOwn] = ms(s.endAfter(own, at).Sub(expiry))
	r[beyondWork] = ms(s.endAfter(work, at).Sub(expiry))
	r[takeover] = s.since(1, at, expiry)
	return r
}

// since returns how long after a time a candidate, that did not lead at another, led.
func (s *stage) since(i int, at, from time.Time) float64 {
	start, ok := s.startAfter(i, at)
	if !ok {
		return math.Inf(1)
	}
	return ms(start.Sub(from))
}

func (s *stage) leadChild() *redistest.Child {
	s.age()
	child := s.joinChild(0)
	s.must("first leads", func() bool { return both(s.lines[0].last()) })
	s.join(1)
	s.wait(leaseTTL/2 + s.phase)
	return child
}

func frozenHolder(s *stage) readings {
	child := s.leadChild()
	child.Pause(s.TB)
	frozen := time.Now()
	s.wait(leaseTTL + 3500*time.Millisecond)
	woken := time.Now()
	child.Resume(s.TB)
	s.until(startBound, func() bool { return neither(s.lines[0].last()) })
	s.wait(stall)
	first := s.lines[0].firstAfter(woken) // nobody acts on a belief before somebody looks
	r := s.overlaps(first.at)
	for name, is := range map[string]belief{noticeOwn: own, noticeWork: work} {
		end := s.endAfter(is, frozen)
		r[name] = max(0, ms(end.Sub(first.at)))
	}
	r[staleOwn], r[staleWork] = count(first.belief.Own), count(first.belief.Work)
	return r
}

func count(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// warm has the second candidate lead once: scripts are loaded, and nobody waits for a first
// election.
func (s *stage) warm() {
	s.age()
	s.join(1)
	s.must("second leads", func() bool { return both(s.lines[1].last()) })
	s.stops[1]()
	s.must("lease is given back", func() bool { return s.store.Expiry().IsZero() })
}

func (s *stage) granted() bool { return !s.store.Expiry().IsZero() }

func lateAcquire(s *stage) readings {
	s.warm()
	cfg := s.config(0)
	cfg.ReadTimeout = 10 * time.Second
	campaign := s.connect(0, cfg)
	s.proxies[0].DelayReplies(leaseTTL+500*time.Millisecond, 0)
	at := time.Now()
	campaign()
	s.must("the store grants", s.granted)
	s.join(1)
	s.wait(4 * leaseTTL)
	return s.overlaps(at)
}

func lostAcquire(s *stage) readings {
	s.warm()
	campaign := s.connect(0, s.config(0))
	s.proxies[0].DropReplies()
	at := time.Now()
	campaign()
	s.must("the store grants", s.granted)
	s.proxies[0].Heal()
	s.until(startBound, func() bool { return s.lines[0].last().Own })
	return readings{takeover: s.since(0, at, at)}
}

func lostRenewal(s *stage) readings {
	s.lead()
	old := s.store.Expiry()
	if s.contender.Kubernetes {
		s.proxies[0].DropReplies()
	} else { // of renewals alone: after another reply that is lost none would get through
		s.proxies[0].LoseReply(func(cmd []string) bool { return strings.HasPrefix(strings.ToLower(cmd[0]), "eval") })
	}
	at := time.Now()
	s.until(leaseTTL, func() bool { return s.store.Expiry().Sub(old) > leaseTTL/10 })
	s.proxies[0].Heal()
	return s.gap(at, 2*leaseTTL)
}

// gap watches for a while.
func (s *stage) gap(at time.Time, d time.Duration) readings {
	s.wait(d)
	now := time.Now()
	r := s.overlaps(at)
	r[nobody] = ms(now.Sub(at) - covered(s.lines[0].spans(own, now), s.lines[1].spans(own, now), at, now))
	return r
}

func frozenStore(s *stage) readings {
	s.lead()
	expiry := s.store.Expiry()
	at := time.Now()
	thaw := s.store.Freeze()
	s.Cleanup(thaw)
	s.wait(8 * time.Second)
	thaw()
	thawed := time.Now()
	led := s.until(startBound, func() bool { return s.lines[0].last().Own || s.lines[1].last().Own })
	r := readings{takeover: math.Inf(1)}
	if led {
		r[takeover] = ms(time.Since(thawed))
	}
	s.wait(leaseTTL)
	maps.Copy(r, s.overlaps(at))
	r[beyondOwn] = ms(s.endAfter(own, at).Sub(expiry))
	r[beyondWork] = ms(s.endAfter(work, at).Sub(expiry))
	return r
}

func handOver(s *stage) readings {
	s.lead()
	at := time.Now()
	s.stops[0]()
	s.until(startBound, func() bool { return s.lines[1].last().Own })
	return readings{takeover: s.since(1, at, at)}
}

func lostWakeUp(s *stage) readings {
	s.lead()
	s.proxies[1].Blackhole()
	s.proxies[1].HealNew()
	at := time.Now()
	s.stops[0]()
	s.until(30*time.Second, func() bool { return s.lines[1].last().Own })
	return readings{takeover: s.since(1, at, at)}
}

func crash(s *stage) readings {
	child := s.leadChild()
	at := time.Now()
	child.Kill(s.TB)
	s.until(startBound, func() bool { return s.lines[1].last().Own })
	return readings{takeover: s.since(1, at, at)}
}

func restart(s *stage) readings {
	s.lead()
	server := s.store.(*contender.RedisStore).Server
	at := time.Now()
	server.Kill(s.TB)
	server.Start(s.TB)
	return s.gap(at, 8*time.Second)
}

func flushAll(s *stage) readings {
	s.lead()
	at := time.Now()
	s.store.(*contender.RedisStore).Flush()
	return s.gap(at, 8*time.Second)
}

func firstElection(old bool) func(*stage) readings {
	return func(s *stage) readings {
		if old {
			s.age()
		}
		at := time.Now()
		s.join(0)
		s.until(startBound, func() bool { return s.lines[0].last().Own })
		return readings{takeover: s.since(0, at, at)}
	}
}

func traffic(s *stage) readings {
	const window = 6 * time.Second
	s.lead()
	made := func(i int) int64 { return s.requests[i].Load() }
	if k, ok := s.store.(*contender.LeaseStore); ok {
		made = func(i int) int64 { return int64(k.Requests(s.id(i))) }
	}
	for i, p := range s.proxies {
		p.ScriptedReply(func([]string) ([]byte, bool) { // answers nothing, counts
			s.requests[i].Add(1)
			return nil, false
		})
	}
	var requests, bytes [2]int64
	for i, p := range s.proxies {
		requests[i], bytes[i] = made(i), p.Stats().RequestBytes
	}
	s.wait(window)
	for i, p := range s.proxies {
		requests[i], bytes[i] = made(i)-requests[i], p.Stats().RequestBytes-bytes[i]
	}
	rate := func(n int64) float64 { return float64(n) / window.Seconds() }
	return readings{
		commands: rate(requests[0]), sent: rate(bytes[0]),
		idleCmds: rate(requests[1]), idleSent: rate(bytes[1]),
	}
}
