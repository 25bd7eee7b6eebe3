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

	NeverChecksItsEar bool // trusts a subscription that says nothing
	NeverRenews       bool // leaves each lease to lapse
	LivesInSilence    bool // sends no heartbeat any more once one had no answer, until the process starts again
	WaitsForEver      bool // asks no more once a question had no answer, until the process starts again
}

// Options of a World.
type Options struct {
	Seed    uint64
	Profile Profile
	Rules   oracle.Rules // of the lease scripts; zero: all
	Broken  Broken
	Without func(strike int) bool // leaves strikes out; nil: none
	Until   time.Duration         // ends the run early; zero: does not
	Trace   bool
}

// World is one cluster in virtual time.
type World struct {
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

	strikes    *rand.Rand
	nextStrike time.Duration
	struck     int

	master    *machine
	machines  []*machine // that were master
	snapshots []snapshot
	processes []*process
	nonces    int

	lastToken struct {
		token int64
		id    string
	}
	checks   checks
	lookout  lookout
	peaceful time.Duration // see peace
	trace    []string
	overlaps overlap
}

// New is a world before its first instant.
func New(o Options) *World {
	o.Profile = o.Profile.Drawn(o.Seed)
	if o.Rules == 0 {
		o.Rules = oracle.All
	}
	if o.Without == nil {
		o.Without = func(int) bool { return false }
	}
	w := &World{
		profile: o.Profile, rules: o.Rules, broken: o.Broken, seed: o.Seed, without: o.Without, end: o.Profile.Length,
		rand: rand.New(rand.NewPCG(o.Seed, 7)), strikes: rand.New(rand.NewPCG(o.Seed, 8)),
	}
	if o.Until > 0 {
		w.end = min(w.end, o.Until)
	}
	if o.Trace {
		w.trace = []string{}
	}
	w.Tally.Profile = o.Profile.Name
	w.master = w.newMachine(epoch, "1", w.strikes)
	w.master.started = epoch - oldAge.Milliseconds()
	w.master.clear()
	w.checks.start(w)
	for i := range processes {
		w.processes = append(w.processes, newProcess(w, i))
	}
	w.peaceful = w.peace()
	return w
}

// Run runs the world to its end, or to the first promise that is broken.
func (w *World) Run() *World {
	for _, p := range w.processes {
		p.boot()
	}
	w.plan()
	w.look()
	for len(w.queue.events) > 0 && w.Wrong == "" {
		e := w.queue.pop()
		if e.at > w.end {
			break
		}
		w.now = e.at
		w.happen(e)
		w.Tally.Events++
		if w.profile.Outside {
			w.measure()
		}
	}
	if w.Wrong == "" {
		w.now = w.end
	}
	w.Tally.Simulated += w.now
	return w
}

// Trace is the end of what happened, one line each, where Options asked for it.
func (w *World) Trace() []string { return w.trace[max(0, len(w.trace)-keptLines):] }

// Strikes is how many faults were drawn.
func (w *World) Strikes() int { return w.struck }

func (w *World) happen(e event) {
	switch e.what {
	case evStrike:
		w.strike()
		return
	case evArrive:
		w.arrive(e)
		return
	case evPromote:
		w.promote(w.snapshots[e.arg])
		return
	case evDemote:
		w.machines[e.arg].demoted = true
		return
	case evLook:
		w.look()
		return
	}
	p := w.processes[e.host]
	if e.what == evBoot {
		if p.life == e.life {
			p.crash() // one that stops, and has not come to the end
			p.boot()
		}
		return
	}
	if p.down || p.life != e.life {
		if e.what == evAnswer {
			w.drop(e.arg)
		}
		return
	}
	if w.now < p.frozen { // as soon as it does not stand still any more
		e.at = p.frozen
		w.queue.push(e)
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
		p.task(e.arg)
	case evRunEnds:
		p.runEnds(e.arg)
	case evReach:
		p.reach = w.master
	case evEar:
		p.listen(e.arg)
	}
}

// between draws a duration.
func (w *World) between(low, high time.Duration) time.Duration { return between(w.rand, low, high) }

func (w *World) chance(p float64) bool { return p > 0 && w.rand.Float64() < p && !w.sound() }

// transit is how long a message normally travels.
func (w *World) transit() time.Duration { return w.between(200*time.Microsecond, 3*time.Millisecond) }

func (w *World) fail(format string, args ...any) {
	if w.Wrong != "" {
		return
	}
	w.Wrong, w.At = fmt.Sprintf(format, args...), w.now
	w.Tally.Violations++
	if w.trace != nil {
		w.note("WRONG %s", w.Wrong)
	}
}

// leading is who believes to lead.
func (w *World) leading() *process {
	for _, p := range w.processes {
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
