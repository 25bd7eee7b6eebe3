package oracle

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// fault is something that goes wrong.
type fault int

const (
	crash     fault = iota // a process dies and comes back without memory
	partition              // requests get stuck in the socket, or are lost
	resign                 // the leader gives its term up
	del                    // an operator deletes the lease
	evictTerm              // the term hash is evicted
	flush                  // FLUSHALL
	failover               // an older snapshot on a machine with a clock of its own
	restart                // without persistence
	clockBack              // Redis's clock is set back, by far more than a TTL
	freeze                 // SIGSTOP
	suspend                // of a virtual machine: its monotonic clock stands still
	wallSet                // the wall clock of a process is set
	workFails              // leader work fails
)

// campaign is a mix of faults with what the candidates are set up for.
type campaign struct {
	name      string
	faults    []fault
	ttls      []time.Duration
	every     time.Duration // a fault, on the mean; 0: five seconds
	quiet     time.Duration // without faults at the beginning: everybody learns who leads
	snapshots int           // of 700 ms each that a failover may go back
	holdOff   time.Duration // HoldOff
	empty     time.Duration // EmptyHistoryWait
	margin    time.Duration // FailoverMargin
	second    time.Duration // for how long an old master still takes writes
	skew      time.Duration // of the clock of a promoted machine
	rate      float64       // by how much Redis's clock may be fast or slow
	drain     time.Duration // longest drain of work
	delayed   float64       // requests
	late      float64       // replies
	lost      float64       // replies
	noticed   float64       // share of those where the connection breaks
	deaf      float64       // hints
	twice     float64       // requests that the client sends again by itself
	noInfo    bool          // the first candidate may not call INFO
}

const ttl = 3 * time.Second

var twoTTLs = []time.Duration{ttl, ttl * 3 / 10}

// usual completes a campaign with what goes wrong in all of them.
func usual(c campaign) campaign {
	if c.ttls == nil {
		c.ttls = []time.Duration{ttl}
	}
	if c.empty == 0 {
		c.empty = 250 * time.Millisecond
	}
	if c.every == 0 {
		c.every = 5 * time.Second
	}
	c.drain, c.lost = 500*time.Millisecond, 0.05
	if c.rate == 0 {
		c.rate = 0.009
	}
	return c
}

// rough adds a network that delays, repeats and loses.
func rough(c campaign) campaign {
	c = usual(c)
	c.delayed, c.late, c.noticed, c.deaf, c.twice = 0.1, 0.05, 0.3, 0.2, 0.02
	return c
}

// hot makes faults follow each other so closely that they meet.
func hot(c campaign) campaign {
	c.every = time.Second
	c = rough(c)
	c.delayed, c.drain = 0.3, time.Second
	return c
}

// secondMaster has failovers after which the old master still takes writes, while its leader may be out of reach.
func secondMaster() campaign {
	c := rough(campaign{name: "second master", faults: []fault{failover, partition, resign}, every: time.Second})
	c.second, c.margin = 800*time.Millisecond, 800*time.Millisecond
	return c
}

func basic(more ...fault) []fault { return append([]fault{crash, partition, resign}, more...) }

var campaigns = []campaign{
	usual(campaign{name: "crash, partition, resign", faults: basic()}),
	rough(campaign{name: "delayed requests, late replies", faults: basic()}),
	rough(campaign{name: "operator DEL", faults: basic(del)}),
	rough(campaign{name: "failover", faults: basic(failover)}),
	rough(campaign{name: "failover, clocks apart", faults: basic(failover), skew: time.Second}),
	rough(campaign{name: "restart, nothing kept", faults: basic(restart)}),
	rough(campaign{name: "FLUSHALL, empty waits a TTL", faults: basic(flush), empty: ttl}),
	usual(campaign{name: "FLUSHALL, roll-call", faults: []fault{crash, resign, flush}, noticed: 1}),
	rough(campaign{name: "term hash evicted", faults: basic(evictTerm)}),
	rough(campaign{name: "TTLs differ, failover", faults: basic(failover), ttls: twoTTLs, holdOff: ttl}),
	rough(campaign{name: "one without INFO", faults: basic(), noInfo: true}),
	rough(campaign{name: "clock set back", faults: basic(clockBack)}),
	rough(campaign{name: "all data losses", faults: basic(del, flush, failover, restart, evictTerm), empty: ttl}),
	rough(campaign{name: "second master, margin", faults: basic(failover), second: 800 * time.Millisecond, margin: 800 * time.Millisecond}),
	rough(campaign{name: "FLUSHALL, candidates remember", faults: []fault{partition, resign, flush}, quiet: 5 * time.Second}),
	hot(campaign{name: "hand-overs and failovers", faults: []fault{resign, failover, partition}}),
	hot(campaign{name: "hand-overs and failovers, TTLs differ", faults: []fault{resign, failover, partition}, ttls: twoTTLs, holdOff: ttl}),
	secondMaster(),
	hot(campaign{name: "failovers, far back", faults: []fault{failover, partition}, snapshots: 12}),
	rough(campaign{name: "frozen, suspended", faults: basic(freeze, suspend, workFails)}),
	rough(campaign{name: "frozen, wall clocks set", faults: basic(freeze, wallSet, workFails)}),
}

func (w *world) planFault() {
	w.after(max(w.campaign.quiet-w.now, 0)+time.Duration(w.rand.ExpFloat64()*float64(w.campaign.every)), func() {
		if w.now < horizon-calm {
			e := w.electors[w.rand.IntN(len(w.electors))]
			w.fault(w.campaign.faults[w.rand.IntN(len(w.campaign.faults))], e)
			w.planFault()
		}
	})
}

func (w *world) fault(f fault, e *elector) {
	w.trace("fault %d, %s", f, e.asker.ID)
	redis := w.redis
	switch f {
	case crash:
		life := e.life
		e.down = true
		w.after(w.between(0, 8*time.Second), func() {
			if e.down && e.life == life {
				e.boot()
			}
		})
	case partition:
		e.cutTill = w.now + w.between(100*time.Millisecond, 6*time.Second)
	case resign, workFails:
		why := lease.Resigned
		if f == workFails {
			why = lease.Failed
		}
		for _, e := range w.electors {
			e.whenAwake(e.life, func() {
				e.apply(e.cand.End(e.reading(), why))
				e.turn()
			})
		}
	case del:
		redis.Lease = Lease{}
	case evictTerm:
		redis.Term = Term{}
	case flush:
		redis.Data = Data{}
	case failover:
		w.promote()
	case restart:
		redis.Data, redis.Origin, redis.Promoted, redis.started = Data{}, redis.Origin+"r", false, redis.clock(w.now)
	case clockBack:
		redis.base -= 50_000
	case freeze:
		e.frozen = w.now + w.between(0, 5*time.Second)
	case suspend:
		d := w.between(0, 5*time.Second)
		e.frozen = w.now + d
		e.mono -= d
	case wallSet:
		e.wall += w.between(-time.Hour, time.Hour)
	}
}

// promote makes another machine the master, which may miss the last writes. The old one may take writes a little longer.
func (w *world) promote() {
	old, data := w.redis, w.redis.Data
	if w.chance(0.7) {
		data = w.snapshots[w.rand.IntN(len(w.snapshots))]
	}
	skew := time.Duration(0)
	if s := w.campaign.skew; s > 0 {
		skew = w.between(-s, s)
	}
	w.redis = w.newMachine(old.clock(w.now)+skew.Milliseconds(), 0)
	w.redis.Origin, w.redis.Promoted, w.redis.Data = old.Origin+"p", true, data
	w.snapshots = []Data{data}
	old.demoted = w.campaign.second == 0
	w.after(w.campaign.second, func() { old.demoted = true })
	for _, e := range w.electors {
		if w.campaign.second == 0 || w.chance(0.5) {
			e.reach = w.redis
		} else if e.reach == old {
			master := w.redis
			w.after(w.between(0, w.campaign.second), func() { e.reach = master })
		}
	}
}
