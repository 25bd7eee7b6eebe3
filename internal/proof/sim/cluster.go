package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

const (
	epoch     = int64(1_700_000_000_000) // Redis's clock at the beginning
	oldAge    = 100 * time.Second        // of the first server
	processes = 5
)

// Broken are mistakes of a client, one each, for the tests that show what a rule is for.
type Broken struct {
	OwnLate       bool // gives back what a late answer says it was granted, though the campaign is on
	NoFloor       bool // remembers no token
	NoLongest     bool // remembers no TTL of others
	ReplyDeadline bool // counts its lease from the reply
	HeedsErrors   bool // takes an error for a loss
	NoDrift       bool // DriftMargin is off
	NoMargin      bool // FailoverMargin is off
	SweepsBlindly bool // removes whom an older look found silent, without looking again
	ClaimsBlindly bool // claims what is due by its own copy of the record
	FreshGrid     bool // begins the schedule anew with each term
	RerunsAll     bool // runs again what is to fail when it is left behind

	NeverChecksItsEar bool // trusts a subscription that says nothing
	NeverRenews       bool // leaves each lease to lapse
	LivesInSilence    bool // sends no heartbeat any more once one had no answer, until the process starts again
	HeedsAnyOrder     bool // takes a request for a transfer that was meant for an older term

	WaitsForEver bool // asks no more once a question had no answer, until the process starts again
}

// Options of a Cluster.
type Options struct {
	Seed    uint64
	Profile Profile
	Rules   oracle.Rules // of the lease scripts; zero: all
	Broken  Broken
	Without func(strike int) bool // leaves strikes out; nil: none
	Until   time.Duration         // ends the run early; zero: does not
	Trace   bool
}

// Cluster is a Redis with its instances, in virtual time.
type Cluster struct {
	Tally Tally
	Wrong string // the first promise that was broken, "" for none
	At    time.Duration

	profile Profile
	rules   oracle.Rules
	broken  Broken
	seed    uint64
	rand    *rand.Rand // of the network and the processes
	without func(int) bool

	now, end time.Duration
	queue    queue
	mail     []message
	free     []int32

	jobs       []job
	operator   *rand.Rand // pauses and triggers tasks; nil: nobody does
	triggers   int
	strikes    *rand.Rand
	nextStrike time.Duration
	struck     int

	master    *machine
	machines  []*machine // that were master
	snapshots []snapshot
	instances []*instance
	nonces    int

	lastToken struct {
		token int64
		id    string
	}
	orders   []int64 // requests for transfers: the terms that they are meant for
	handing  handing
	checks   checker
	lookout  lookout
	peaceful time.Duration // see peace
	trace    []string
	overlaps overlap
}

// New is a cluster before its first instant.
func New(o Options) *Cluster {
	o.Profile = o.Profile.Drawn(o.Seed)
	if o.Rules == 0 {
		o.Rules = oracle.All
	}
	if o.Without == nil {
		o.Without = func(int) bool { return false }
	}
	c := &Cluster{
		profile: o.Profile, rules: o.Rules, broken: o.Broken, seed: o.Seed, without: o.Without, end: o.Profile.Length,
		rand: rand.New(rand.NewPCG(o.Seed, 7)), strikes: rand.New(rand.NewPCG(o.Seed, 8)),
	}
	if o.Until > 0 {
		c.end = min(c.end, o.Until)
	}
	if o.Trace {
		c.trace = []string{}
	}
	c.Tally.Profile = o.Profile.Name
	c.master = c.newMachine(epoch, "1", c.strikes)
	c.master.started = epoch - oldAge.Milliseconds()
	c.master.clear()
	c.checks.start(c)
	c.jobs = usualJobs
	if o.Profile.jobs != nil {
		c.jobs = o.Profile.jobs
	}
	if !o.Profile.Alone && !o.Profile.Calm {
		c.operator = rand.New(rand.NewPCG(o.Seed, 11))
	}
	for i := range processes {
		c.instances = append(c.instances, newInstance(c, i))
	}
	c.peaceful = c.peace()
	return c
}

// Run runs the cluster to its end, or to the first promise that is broken.
func (c *Cluster) Run() *Cluster {
	for _, p := range c.instances {
		p.boot()
	}
	c.plan()
	c.look()
	c.pause()
	c.advance(c.end)
	if c.Wrong == "" {
		c.now = c.end
	}
	c.Tally.Simulated += c.now
	return c
}

// advance lets events happen until then, or until a promise is broken.
func (c *Cluster) advance(until time.Duration) {
	for goesOn := true; goesOn && c.Wrong == ""; {
		goesOn = c.step(until)
	}
}

// step lets the next event happen, if there is one until then.
func (c *Cluster) step(until time.Duration) bool {
	if n := len(c.queue.events); n == 0 || c.queue.events[n-1].at > until {
		return false
	}
	e := c.queue.pop()
	c.now = e.at
	c.happen(e)
	c.Tally.Events++
	if c.profile.Outside {
		c.measure()
	}
	return true
}

// Trace is the end of what happened, one line each, if Options asked for it.
func (c *Cluster) Trace() []string { return c.trace[max(0, len(c.trace)-keptLines):] }

// Strikes is how many faults were drawn.
func (c *Cluster) Strikes() int { return c.struck }

func (c *Cluster) happen(e event) {
	switch e.what {
	case evStrike:
		c.strike()
		return
	case evArrive:
		c.arrive(e)
		return
	case evPromote:
		c.promote(c.snapshots[e.arg])
		return
	case evDemote:
		c.machines[e.arg].demoted = true
		return
	case evLook:
		c.look()
		return
	case evHanded:
		c.handed(e.arg)
		return
	case evPause:
		c.pause()
		return
	}
	p := c.instances[e.host]
	if e.what == evBoot {
		if p.life == e.life {
			p.crash() // one that stops, and has not come to the end
			p.boot()
		}
		return
	}
	if p.down || p.life != e.life {
		if e.what == evAnswer {
			c.drop(e.arg)
		}
		return
	}
	if c.now < p.frozen { // as soon as it does not stand still any more
		e.at = p.frozen
		c.queue.push(e)
		return
	}
	switch e.what {
	case evWake:
		p.awoken(e.at)
	case evAnswer:
		p.answered(e.arg)
	case evVacant:
		p.cand.Vacant(p.reading())
		p.turn()
	case evCalled:
		p.cand.Called(p.reading())
		p.cand.Vacant(p.reading())
		p.turn()
	case evNamed:
		p.cand.Named(p.reading())
		p.turn()
	case evReserved:
		p.cand.Reserved(p.reading(), time.Duration(e.arg)*time.Millisecond)
		p.turn()
	case evOrder:
		c.order(p, c.instances[e.arg], c.orders[e.serial])
	case evGranted:
		p.cand.Granted(p.reading())
		p.turn()
	case evRollCall:
		p.cand.RollCall(p.reading())
		p.turn()
	case evDrained:
		p.drained()
	case evBeat:
		p.beatTimer(e.at)
	case evSweep:
		p.sweepTimer(e.at, e.arg)
	case evTask:
		p.task(e.arg, e.at)
	case evRunEnds:
		p.runEnds(e.arg, e.serial)
	case evReach:
		p.reach = c.master
	case evEar:
		p.listen(e.arg)
	}
}

// between draws a duration.
func (c *Cluster) between(low, high time.Duration) time.Duration { return between(c.rand, low, high) }

func (c *Cluster) chance(p float64) bool { return p > 0 && c.rand.Float64() < p && !c.sound() }

// transit is how long a message normally travels.
func (c *Cluster) transit() time.Duration { return c.between(200*time.Microsecond, 3*time.Millisecond) }

func (c *Cluster) fail(format string, args ...any) {
	if c.Wrong != "" {
		return
	}
	c.Wrong, c.At = fmt.Sprintf(format, args...), c.now
	c.Tally.Violations++
	if c.trace != nil {
		c.note("WRONG %s", c.Wrong)
	}
}

// leading is who believes to lead.
func (c *Cluster) leading() *instance {
	for _, p := range c.instances {
		if p.believes() {
			return p
		}
	}
	return nil
}

// word names a verdict in a trace.
func word(v lease.Verdict) string {
	return [...]string{"unknown", "won", "held", "rollcall", "stale", "kept", "lost", "done"}[v]
}
