package virtual

import (
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// pace is how fast a world lives: its leases and intervals, and with them how long its
// faults last. All is virtual time.
type pace struct {
	class    string
	length   time.Duration // of a run
	strikes  time.Duration // mean pause between two strikes of the nemesis
	stretch  int           // how much longer faults last than in the hot class
	ttl      time.Duration
	shutdown time.Duration
	registry tenure.RegistryOptions // completed
	tasks    []task
	probe    time.Duration // everybody is asked so often
	write    time.Duration // leader work writes so often
}

// The hot class lives fast: a fault every few seconds, ten times as fast as a cluster with the
// default options would see them in its worst hour. Its intervals are a few steps of 10 µs apart:
// see odd.
var hot = &pace{
	class: "hot", length: 10 * time.Minute, strikes: 4 * time.Second, stretch: 1, ttl: hotTTL, shutdown: hotShutdown,
	registry: tenure.RegistryOptions{
		HeartbeatInterval: 2 * time.Second, HeartbeatTTL: 6 * time.Second, SweepInterval: 3*time.Second + 7*odd,
		DriftedAfter: 6 * time.Second, DownAfter: 15 * time.Second,
	},
	tasks: []task{
		{name: "slots", every: 10 * time.Second, work: 2 * time.Second, missed: tenure.MissedRunOnce, failing: 10},
		{name: "ledger", every: 25 * time.Second, work: time.Second, missed: tenure.MissedRunAll, failing: 10},
	},
	probe: 70 * time.Millisecond, write: 100*time.Millisecond + odd,
}

// The steady class has the default options, and a fault every few minutes.
var steady = &pace{
	class: Steady, length: 6 * time.Hour, strikes: 3 * time.Minute, stretch: 10, ttl: 30 * time.Second, shutdown: 25 * time.Second,
	registry: tenure.RegistryOptions{
		HeartbeatInterval: 15 * time.Second, HeartbeatTTL: 90 * time.Second, SweepInterval: 10*time.Second + 7*odd,
		DriftedAfter: 60 * time.Second, DownAfter: 300 * time.Second,
	},
	tasks: []task{
		{name: "slots", every: time.Minute, work: 12 * time.Second, missed: tenure.MissedRunOnce, failing: 10},
		{name: "ledger", every: 5 * time.Minute, work: 20 * time.Second, missed: tenure.MissedRunAll, failing: 10},
	},
	probe: 5 * time.Second, write: 5*time.Second + odd,
}

// odd keeps the timers of one process apart that would else fall on one instant again and
// again: a bubble runs those in random order, and a seed would not replay. It is a step of the
// network's residues (see simnet).
const odd = 10 * time.Microsecond

// span is a duration of the hot class, at this pace.
func (p *pace) span(d time.Duration) time.Duration { return d * time.Duration(p.stretch) }

// calm is how long the end of a run is without strikes.
func (p *pace) calm() time.Duration { return 20 * p.ttl }

// rough is the traffic of all rough profiles: what lies delayed reaches back over more than two
// leases.
func (p *pace) rough() simnet.Faults {
	return simnet.Faults{
		DelayRequest: 0.08, DelayReply: 0.05, DelayMin: 50 * time.Millisecond, DelayMax: p.span(8 * time.Second),
		LoseRequest: 0.01, LoseReply: 0.03, Cut: 0.01, Duplicate: 0.05, DuplicateWithin: p.span(8 * time.Second), Stuck: 0.5,
		Dribble: 0.02, Tear: 0.005,
	}
}

// leaveOut are the kinds of network faults, by the name under which they are left out.
var leaveOut = map[string]func(*simnet.Faults){
	"delay":     func(f *simnet.Faults) { f.DelayRequest, f.DelayReply = 0, 0 },
	"loss":      func(f *simnet.Faults) { f.LoseRequest, f.LoseReply = 0, 0 },
	"cut":       func(f *simnet.Faults) { f.Cut = 0 },
	"duplicate": func(f *simnet.Faults) { f.Duplicate = 0 },
	"stuck":     func(f *simnet.Faults) { f.Stuck = 0 },
	"dribble":   func(f *simnet.Faults) { f.Dribble = 0 },
	"tear":      func(f *simnet.Faults) { f.Tear = 0 },
}
