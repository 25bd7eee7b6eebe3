package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// Fault is something that goes wrong.
type Fault uint8

const (
	Crash        Fault = iota // a process dies and comes back without memory
	Stop                      // a process stops in order and comes back
	Partition                 // requests get stuck in the socket, or are lost
	OneWay                    // requests arrive, replies do not
	Resign                    // the leader gives its term up
	Freeze                    // SIGSTOP
	Suspend                   // of a virtual machine: its monotonic clock stands still
	WallSet                   // the wall clock of a process is set
	WorkFails                 // leader work fails
	Slow                      // Redis answers nobody for a while, then everybody
	Del                       // an operator deletes the lease
	EvictTerm                 // the term hash is evicted
	Flush                     // FLUSHALL
	Failover                  // a replica that is behind, on a machine with a clock of its own
	Restart                   // with its data
	RestartEmpty              // without
	ClockBack                 // Redis's clock is set back, by far more than a TTL
	ClockAhead                // and ahead
	RateChange                // Redis's clock goes at another speed
	Deafen                    // a subscription dies without a sign
	numFault
)

var faultNames = [numFault]string{
	"crash", "stop", "partition", "one way", "resign", "freeze", "suspend", "wall clock set", "work fails", "slow", "DEL", "evict term", "FLUSHALL",
	"failover", "restart", "restart empty", "clock back", "clock ahead", "rate change", "deafen",
}

func (f Fault) String() string { return faultNames[f] }

// strike is one fault of a run. All that it draws comes from a generator of its own.
type strike struct {
	number int
	fault  Fault
	victim int
	rand   *rand.Rand
}

func (s *strike) between(low, high time.Duration) time.Duration { return between(s.rand, low, high) }

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// plan draws the next strike. What is left out is drawn all the same.
func (w *World) plan() {
	gap := time.Duration(w.strikes.ExpFloat64() * float64(w.profile.Every))
	if w.profile.Calm { // one at a time
		gap = w.profile.Every/2 + gap/2
	}
	w.nextStrike = max(w.nextStrike, w.profile.Quiet) + gap
	if until, quiet := w.quiet(w.nextStrike); quiet {
		w.nextStrike = until + gap
	}
	w.queue.push(event{at: w.nextStrike, what: evStrike})
}

func (w *World) strike() {
	s := strike{number: w.struck, rand: rand.New(rand.NewPCG(w.seed, uint64(w.struck)+1000))}
	w.struck++
	s.fault = w.profile.Faults[s.rand.IntN(len(w.profile.Faults))]
	s.victim = s.rand.IntN(len(w.processes))
	if w.now < w.profile.Length-w.peaceful {
		w.plan()
		if !w.without(s.number) {
			w.Tally.Faults[s.fault]++
			w.strikeNow(&s)
		}
	}
}

func (w *World) strikeNow(s *strike) {
	p, m, ttl := w.processes[s.victim], w.master, w.profile.TTLs[0]
	defer w.disturbedBy(p, m)
	if w.trace != nil {
		w.note("strike %d: %v (%s)", s.number, s.fault, p.id)
	}
	if w.profile.Calm { // the one that counts
		if leader := w.leading(); leader != nil {
			p = leader
		}
	}
	switch s.fault {
	case Crash:
		p.crash()
		down := s.between(0, 8*time.Second)
		if s.rand.IntN(4) == 0 && ttl > hotTTL {
			down = s.between(0, 20*time.Minute) // long enough to be swept
		}
		w.queue.push(event{at: w.now + down, what: evBoot, host: p.host, life: p.life})
	case Stop:
		p.stop(s.between(ttl, 3*ttl))
	case Partition:
		p.cutTill = w.now + s.between(100*time.Millisecond, 2*ttl)
		if p.cutTill-w.now > p.earBound() {
			p.hangUp(s.rand)
		}
	case OneWay:
		p.muteTill = w.now + s.between(100*time.Millisecond, 2*ttl)
	case Resign, WorkFails:
		why := lease.Resigned
		if s.fault == WorkFails {
			why = lease.Failed
		}
		for _, p := range w.processes {
			if p.awake() && p.cand.State() == lease.Leading {
				w.handover()
				p.apply(p.cand.End(p.reading(), why))
				p.turn()
			}
		}
	case Freeze:
		p.frozen = max(p.frozen, w.now+s.between(0, ttl*5/3))
		p.taint()
	case Suspend:
		d := s.between(0, ttl*5/3)
		p.frozen = max(p.frozen, w.now+d)
		p.taint()
		p.mono -= d
	case WallSet:
		p.wall += s.between(-time.Hour, time.Hour)
	case Slow:
		m.slowTill = w.now + s.between(50*time.Millisecond, ttl*5/3)
	case Del:
		m.Lease = oracle.Lease{}
	case EvictTerm:
		m.Term, m.named = oracle.Term{}, 0
	case Flush:
		m.clear()
		w.lostData()
	case Failover:
		lag := time.Duration(0)
		if s.rand.Float64() < 0.7 {
			lag = s.between(0, w.profile.Lag)
		}
		w.snapshots = append(w.snapshots, snapshot{m.save(), m, s.rand})
		w.queue.push(event{at: w.now + lag, what: evPromote, arg: int32(len(w.snapshots) - 1)})
	case Restart:
		m.Origin, m.Promoted, m.started = m.Origin+"k", true, m.clock(w.now)
		w.hangUp(s.rand)
	case RestartEmpty:
		m.clear()
		m.Origin, m.Promoted, m.started = m.Origin+"r", false, m.clock(w.now)
		w.lostData()
		w.hangUp(s.rand)
	case ClockBack:
		const by = 50 * time.Second
		m.base -= float64(by.Milliseconds())
		w.checks.back += by
		w.lostData()
	case ClockAhead:
		m.base += float64(s.between(0, 2*ttl).Milliseconds())
		w.lostData()
	case RateChange:
		m.setRate(w.now, 1+(2*s.rand.Float64()-1)*w.profile.Rate)
	case Deafen:
		p.deafen(s.rand)
	}
}

// promote makes another machine the master. The old one may take writes a little longer.
func (w *World) promote(s snapshot) {
	old, p := w.master, w.profile
	if s.of != old {
		return // another failover was quicker
	}
	skew := time.Duration(0)
	if p.Skew > 0 {
		skew = between(s.rand, -p.Skew, p.Skew)
	}
	w.master = w.newMachine(old.clock(w.now)+skew.Milliseconds(), old.Origin+"p", s.rand)
	w.master.Promoted = true
	w.master.load(s.data)
	w.lostData()
	old.demoted = p.Second == 0
	w.machines = append(w.machines, old)
	w.queue.push(event{at: w.now + p.Second, what: evDemote, arg: int32(len(w.machines) - 1)})
	for _, process := range w.processes {
		switch {
		case p.Second == 0 || s.rand.IntN(2) == 0:
			process.reach = w.master
		case process.reach == old:
			w.queue.push(event{at: w.now + between(s.rand, 0, p.Second), what: evReach, host: process.host, life: process.life})
		}
	}
	w.disturb(w.now + p.Second)
	for _, process := range w.processes {
		switch {
		case process.ear.at != old:
		case s.rand.IntN(4) == 0: // its server stands still, with the connection open
			process.deafen(s.rand)
		default:
			process.hangUp(s.rand)
		}
	}
	if w.trace != nil {
		w.note("%s is master now, %d strikes in", w.master.Origin, w.struck)
	}
}

// newMachine is a server with a clock of its own.
func (w *World) newMachine(clock int64, origin string, r *rand.Rand) *machine {
	m := &machine{started: clock, rate: 1}
	if w.profile.Rate != 0 {
		m.rate += (2*r.Float64() - 1) * w.profile.Rate
	}
	m.base = float64(clock) - m.rate*w.now.Seconds()*1000
	m.Rules, m.Origin = w.rules, origin
	if len(m.Origin) > 60 { // of many failovers
		m.Origin = "o" + strconv.Itoa(w.struck)
	}
	return m
}

// disturbedBy notes until when the fault lasts that has just struck.
func (w *World) disturbedBy(p *process, m *machine) {
	w.disturb(max(w.now, p.cutTill, p.muteTill, p.frozen, m.slowTill))
}

// hangUp closes every subscription.
func (w *World) hangUp(r *rand.Rand) {
	for _, p := range w.processes {
		p.hangUp(r)
	}
}

// note adds a line to the trace.
func (w *World) note(format string, args ...any) {
	line := fmt.Sprintf("%14v  ", w.now.Round(10*time.Microsecond)) + fmt.Sprintf(format, args...)
	if len(w.trace) >= 2*keptLines {
		w.trace = append(w.trace[:0], w.trace[len(w.trace)-keptLines:]...)
	}
	w.trace = append(w.trace, line)
}

const keptLines = 400
