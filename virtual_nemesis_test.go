package tenure

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/simnet"
)

// Everything here sleeps in virtual time.

// virtualFaults are what the nemesis can do, by name. A fault plans its own end.
var virtualFaults = map[string]func(n *virtualNemesis, victim *virtualInstance){
	"crash": func(n *virtualNemesis, victim *virtualInstance) {
		victim.crash()
		n.plan(n.between(100*time.Millisecond, 8*time.Second), victim.boot)
	},
	"crash-leader": func(n *virtualNemesis, victim *virtualInstance) {
		if leader := n.leader(); leader != nil {
			leader.crash()
			n.plan(n.between(100*time.Millisecond, 8*time.Second), leader.boot)
		}
	},
	"stop": func(n *virtualNemesis, victim *virtualInstance) {
		n.running.Go(victim.stop) // returns within virtualShutdown
		n.plan(virtualShutdown+n.between(100*time.Millisecond, 4*time.Second), victim.boot)
	},
	"resign": func(n *virtualNemesis, _ *virtualInstance) {
		if leader := n.leader(); leader != nil {
			leader.resign()
		}
	},
	"partition": func(n *virtualNemesis, victim *virtualInstance) {
		way := []simnet.Way{simnet.Both, simnet.Requests, simnet.Replies}[n.rand.IntN(3)]
		n.net.Partition(victim.name, way, n.between(50*time.Millisecond, 6*time.Second))
	},
	"partition-leader": func(n *virtualNemesis, victim *virtualInstance) {
		if leader := n.leader(); leader != nil {
			victim = leader
		}
		n.net.Partition(victim.name, simnet.Both, n.between(virtualTTL/2, 3*virtualTTL))
	},
	"cut": func(n *virtualNemesis, victim *virtualInstance) { n.net.Cut(victim.name) },
	"pause": func(n *virtualNemesis, _ *virtualInstance) {
		n.redis.Pause(n.between(50*time.Millisecond, 5*time.Second))
	},
	"rate": func(n *virtualNemesis, _ *virtualInstance) { n.redis.SetRate(0.99 + 0.02*n.rand.Float64()) },

	"script-flush": func(n *virtualNemesis, _ *virtualInstance) { n.redis.ScriptFlush() },
	"del":          func(n *virtualNemesis, _ *virtualInstance) { n.redis.Del(virtualLeader) },
	"evict-term":   func(n *virtualNemesis, _ *virtualInstance) { n.redis.Evict(virtualTermHash) },
	"flush":        func(n *virtualNemesis, _ *virtualInstance) { n.redis.FlushAll() },
	"restart": func(n *virtualNemesis, _ *virtualInstance) {
		n.redis.Restart(true, n.between(0, 2*time.Second))
	},
	"restart-empty": func(n *virtualNemesis, _ *virtualInstance) {
		n.redis.Restart(false, n.between(0, 2*time.Second))
	},
	// The replica that is promoted misses the writes of up to 2.8 s, and its clock may be apart.
	"failover": func(n *virtualNemesis, _ *virtualInstance) {
		clock := n.between(0, 2*n.profile.skew) - n.profile.skew
		if n.rand.Float64() < 0.3 {
			n.redis.Failover(nil, clock)
			return
		}
		snapshot := n.redis.Snapshot()
		n.plan(n.between(0, 2800*time.Millisecond), func() { n.redis.Failover(snapshot, clock) })
	},
	"clock-back": func(n *virtualNemesis, _ *virtualInstance) {
		n.redis.StepClock(-n.between(time.Second, 50*time.Second))
	},
}

// virtualProfile is a mix of faults within the conditions of P1.
type virtualProfile struct {
	name    string
	faults  []string
	every   time.Duration   // mean pause between two; 0: 4 s
	network simnet.Faults   // all the time
	ttls    []time.Duration // of the instances in turn; none: virtualTTL
	drain   time.Duration
	empty   time.Duration // EmptyHistoryWait; 0: the default
	skew    time.Duration // of the clock of a promoted replica, either way
	noInfo  bool          // i0 may not call INFO
	tasks   bool          // see virtualSetup
	kept    bool          // see virtualSetup
	calm    bool          // see virtualSetup
}

// The traffic of all rough profiles: what lies delayed reaches back over more than two leases.
var virtualRough = simnet.Faults{
	DelayRequest: 0.08, DelayReply: 0.05, DelayMin: 50 * time.Millisecond, DelayMax: 8 * time.Second,
	LoseRequest: 0.01, LoseReply: 0.03, Cut: 0.01, Duplicate: 0.05, DuplicateWithin: 8 * time.Second, Stuck: 0.5,
}

var virtualBase = []string{"crash", "crash-leader", "stop", "resign", "partition", "partition-leader", "cut", "pause", "script-flush"}

func virtualWith(faults ...string) []string { return append(slices.Clip(virtualBase), faults...) }

var virtualProfiles = []virtualProfile{
	{name: "calm", faults: []string{"crash-leader", "resign"}, every: 10 * time.Second, kept: true, calm: true},
	{name: "base", faults: virtualBase, drain: time.Second, kept: true},
	{name: "rough", faults: virtualWith(), network: virtualRough, drain: time.Second, kept: true},
	{name: "rates", faults: virtualWith("rate"), network: virtualRough, drain: time.Second, kept: true},
	{name: "del", faults: virtualWith("del"), network: virtualRough, drain: time.Second},
	{name: "failover", faults: virtualWith("failover"), network: virtualRough, drain: time.Second},
	{name: "failover-skewed", faults: virtualWith("failover"), network: virtualRough, drain: time.Second, skew: time.Second},
	{name: "restart", faults: virtualWith("restart"), network: virtualRough, drain: time.Second},
	{name: "restart-empty", faults: virtualWith("restart-empty"), network: virtualRough, drain: time.Second},
	{name: "flush-waits-ttl", faults: virtualWith("flush"), network: virtualRough, drain: time.Second, empty: virtualTTL},
	{name: "flush-roll-call", faults: []string{"crash", "crash-leader", "stop", "resign", "flush"}, drain: time.Second},
	{name: "evict-term", faults: virtualWith("evict-term"), network: virtualRough, drain: time.Second},
	{
		name: "ttls-differ", faults: virtualWith("failover"), network: virtualRough, drain: time.Second,
		ttls: []time.Duration{virtualTTL, 900 * time.Millisecond},
	},
	{name: "no-info", faults: virtualWith("del"), network: virtualRough, drain: time.Second, noInfo: true},
	{name: "clock-back", faults: virtualWith("clock-back"), network: virtualRough, drain: time.Second},
	{
		name: "everything-but-the-clock", faults: virtualWith("del", "flush", "failover", "restart", "restart-empty", "evict-term"),
		network: virtualRough, drain: time.Second, empty: virtualTTL,
	},
	{name: "tasks-calm", faults: []string{"crash-leader", "resign"}, every: 10 * time.Second, kept: true, calm: true, tasks: true},
	{name: "tasks-base", faults: virtualBase, drain: time.Second, kept: true, tasks: true},
	{name: "tasks-rough", faults: virtualWith(), network: virtualRough, drain: time.Second, kept: true, tasks: true},
	{
		name: "tasks-everything", faults: virtualWith("del", "flush", "failover", "restart", "restart-empty", "evict-term"),
		network: virtualRough, drain: time.Second, empty: virtualTTL, tasks: true,
	},
}

// setup is the world that a profile needs.
func (p virtualProfile) setup() virtualSetup {
	return virtualSetup{drain: p.drain, tasks: p.tasks, kept: p.kept, calm: p.calm, options: func(number int, options *Options) {
		if len(p.ttls) > 0 {
			options.Election.LeaseTTL = p.ttls[number%len(p.ttls)]
		}
		options.Election.EmptyHistoryWait = p.empty
		if number > 1 { // these poll less often
			options.Election.RetryInterval = orDefault(options.Election.LeaseTTL, virtualTTL)
		}
	}}
}

// virtualNemesis draws faults in one goroutine of the testing/synctest bubble, so that no two of its deeds fall on one instant.
type virtualNemesis struct {
	*virtualWorld
	profile virtualProfile
	agenda  map[time.Duration]func() // by instant since the world began
}

// plan does something later.
func (n *virtualNemesis) plan(after time.Duration, do func()) {
	if n.agenda == nil {
		n.agenda = map[time.Duration]func(){}
	}
	at := n.net.Elapsed() + after
	for n.agenda[at] != nil {
		at += 10 * time.Microsecond
	}
	n.agenda[at] = do
}

// run plagues the world for d.
func (n *virtualNemesis) run(d time.Duration) {
	if n.profile.every == 0 {
		n.profile.every = 4 * time.Second
	}
	n.net.SetFaults("", n.profile.network)
	end := n.net.Elapsed() + d
	n.strike()
	n.until(end)
	n.net.SetFaults("", simnet.Faults{})
	n.net.Heal("")
	n.profile.faults = nil // what was begun is brought to its end
	n.until(end + 10*time.Second)
}

// until works the agenda off as far as end.
func (n *virtualNemesis) until(end time.Duration) {
	for len(n.agenda) > 0 {
		at := slices.Min(slices.Collect(maps.Keys(n.agenda)))
		if at > end {
			break
		}
		time.Sleep(at - n.net.Elapsed())
		do := n.agenda[at]
		delete(n.agenda, at)
		do()
	}
	time.Sleep(end - n.net.Elapsed())
}

// strike draws a fault and its victim, and the next strike.
func (n *virtualNemesis) strike() {
	pause := n.profile.every
	if n.profile.calm {
		pause = n.between(pause*3/4, pause*5/4) // one fault at a time
	} else {
		pause = n.between(0, 2*pause)
	}
	n.plan(pause, func() {
		if n.profile.faults == nil {
			return
		}
		fault := n.profile.faults[n.rand.IntN(len(n.profile.faults))]
		victim := n.instances[n.rand.IntN(len(n.instances))]
		n.note(victim.name, "nemesis", fault, 0)
		virtualFaults[fault](n, victim)
		n.strike()
	})
}
