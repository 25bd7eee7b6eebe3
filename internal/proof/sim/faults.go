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
	Transfer                  // an operator asks the leader to hand over to another, which may be gone
	numFault
)

var faultNames = [numFault]string{
	"crash", "stop", "partition", "one way", "resign", "freeze", "suspend", "wall clock set", "work fails", "slow", "DEL", "evict term", "FLUSHALL",
	"failover", "restart", "restart empty", "clock back", "clock ahead", "rate change", "deafen", "transfer",
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
func (c *Cluster) plan() {
	gap := time.Duration(c.strikes.ExpFloat64() * float64(c.profile.Every))
	if c.profile.Calm { // one at a time
		gap = c.profile.Every/2 + gap/2
	}
	c.nextStrike = max(c.nextStrike, c.profile.Quiet) + gap
	if until, quiet := c.quiet(c.nextStrike); quiet {
		c.nextStrike = until + gap
	}
	c.queue.push(event{at: c.nextStrike, what: evStrike})
}

func (c *Cluster) strike() {
	s := strike{number: c.struck, rand: rand.New(rand.NewPCG(c.seed, uint64(c.struck)+1000))}
	c.struck++
	s.fault = c.profile.Faults[s.rand.IntN(len(c.profile.Faults))]
	s.victim = s.rand.IntN(len(c.instances))
	if c.now < c.profile.Length-c.peaceful {
		c.plan()
		if !c.without(s.number) {
			c.Tally.Faults[s.fault]++
			c.strikeNow(&s)
		}
	}
}

func (c *Cluster) strikeNow(s *strike) {
	p, m, ttl := c.instances[s.victim], c.master, c.profile.TTLs[0]
	defer c.disturbedBy(p, m)
	if c.trace != nil {
		c.note("strike %d: %v (%s)", s.number, s.fault, p.id)
	}
	if c.profile.Calm && s.fault != Transfer { // the one that counts
		if leader := c.leading(); leader != nil {
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
		c.queue.push(event{at: c.now + down, what: evBoot, host: p.host, life: p.life})
	case Stop:
		p.stop(s.between(ttl, 3*ttl))
	case Partition:
		p.cutTill = c.now + s.between(100*time.Millisecond, 2*ttl)
		if p.cutTill-c.now > p.earBound() {
			p.hangUp(s.rand)
		}
	case OneWay:
		p.muteTill = c.now + s.between(100*time.Millisecond, 2*ttl)
	case Resign, WorkFails:
		why := lease.Resigned
		if s.fault == WorkFails {
			why = lease.Failed
		}
		for _, p := range c.instances {
			if p.awake() && p.cand.State() == lease.Leading {
				c.handover()
				p.apply(p.cand.End(p.reading(), why))
				p.turn()
			}
		}
	case Freeze:
		p.frozen = max(p.frozen, c.now+s.between(0, ttl*5/3))
		p.taint()
	case Suspend:
		p.suspend(c.now + s.between(0, ttl*5/3))
	case WallSet:
		p.wall += s.between(-time.Hour, time.Hour)
	case Slow:
		m.slowTill = c.now + s.between(50*time.Millisecond, ttl*5/3)
	case Del:
		m.Lease = oracle.Lease{}
	case EvictTerm:
		m.Term, m.named, m.longest = oracle.Term{}, 0, 0
	case Flush:
		m.clear()
		c.lostData()
	case Failover:
		lag := time.Duration(0)
		if s.rand.Float64() < 0.7 {
			lag = s.between(0, c.profile.Lag)
		}
		c.snapshots = append(c.snapshots, snapshot{m.save(), m, s.rand})
		c.queue.push(event{at: c.now + lag, what: evPromote, arg: int32(len(c.snapshots) - 1)})
	case Restart:
		m.Origin, m.Promoted, m.started = m.Origin+"k", true, m.clock(c.now)
		c.hangUp(s.rand)
	case RestartEmpty:
		m.clear()
		m.Origin, m.Promoted, m.started = m.Origin+"r", false, m.clock(c.now)
		c.lostData()
		c.hangUp(s.rand)
	case ClockBack:
		const by = 50 * time.Second
		m.base -= float64(by.Milliseconds())
		c.checks.back += by
		c.lostData()
	case ClockAhead:
		m.base += float64(s.between(0, 2*ttl).Milliseconds())
		c.lostData()
	case RateChange:
		m.setRate(c.now, 1+(2*s.rand.Float64()-1)*c.profile.Rate)
	case Deafen:
		p.deafen(s.rand)
	case Transfer:
		c.transfer(s)
	}
}

// promote makes another machine the master. The old one may take writes a little longer.
func (c *Cluster) promote(s snapshot) {
	old, p := c.master, c.profile
	if s.of != old {
		return // another failover was quicker
	}
	skew := time.Duration(0)
	if p.Skew > 0 {
		skew = between(s.rand, -p.Skew, p.Skew)
	}
	c.master = c.newMachine(old.clock(c.now)+skew.Milliseconds(), old.Origin+"p", s.rand)
	c.master.Promoted = true
	c.master.load(s.data)
	c.lostData()
	old.demoted = p.Second == 0
	c.machines = append(c.machines, old)
	c.queue.push(event{at: c.now + p.Second, what: evDemote, arg: int32(len(c.machines) - 1)})
	for _, process := range c.instances {
		switch {
		case p.Second == 0 || s.rand.IntN(2) == 0:
			process.reach = c.master
		case process.reach == old:
			c.queue.push(event{at: c.now + between(s.rand, 0, p.Second), what: evReach, host: process.host, life: process.life})
		}
	}
	c.disturb(c.now + p.Second)
	for _, process := range c.instances {
		switch {
		case process.ear.at != old:
		case s.rand.IntN(4) == 0: // its server stands still, with the connection open
			process.deafen(s.rand)
		default:
			process.hangUp(s.rand)
		}
	}
	if c.trace != nil {
		c.note("%s is master now, %d strikes in", c.master.Origin, c.struck)
	}
}

// newMachine is a server with a clock of its own.
func (c *Cluster) newMachine(clock int64, origin string, r *rand.Rand) *machine {
	m := &machine{started: clock, rate: 1}
	if c.profile.Rate != 0 {
		m.rate += (2*r.Float64() - 1) * c.profile.Rate
	}
	m.base = float64(clock) - m.rate*c.now.Seconds()*1000
	m.Rules, m.Origin = c.rules, origin
	if len(m.Origin) > 60 { // of many failovers
		m.Origin = "o" + strconv.Itoa(c.struck)
	}
	return m
}

// disturbedBy notes until when the fault lasts that has just struck.
func (c *Cluster) disturbedBy(p *instance, m *machine) {
	c.disturb(max(c.now, p.cutTill, p.muteTill, p.frozen, m.slowTill))
}

// hangUp closes every subscription.
func (c *Cluster) hangUp(r *rand.Rand) {
	for _, p := range c.instances {
		p.hangUp(r)
	}
}

// note adds a line to the trace.
func (c *Cluster) note(format string, args ...any) {
	line := fmt.Sprintf("%14v  ", c.now.Round(10*time.Microsecond)) + fmt.Sprintf(format, args...)
	if len(c.trace) >= 2*keptLines {
		c.trace = append(c.trace[:0], c.trace[len(c.trace)-keptLines:]...)
	}
	c.trace = append(c.trace, line)
}

const keptLines = 400
