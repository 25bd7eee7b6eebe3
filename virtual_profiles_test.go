package tenure

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/proof/virtual"
)

// virtualProfile is a mix of faults within the conditions of P1, in virtual time.
type virtualProfile struct {
	name   string
	pace   *virtualPace // nil: hot
	faults []string
	every  time.Duration   // mean pause between two; 0: that of the pace
	rough  bool            // messages are lost, late and repeated all the time
	ttls   []time.Duration // of the instances in turn; none: that of the pace
	drain  bool            // leader work takes up to a third of a lease to return
	wait   bool            // EmptyHistoryWait is the TTL
	skew   time.Duration   // of the clock of a promoted replica, either way, in the hot class
	noInfo bool            // i0 may not call INFO
	tasks  bool            // see virtualSetup
	kept   bool            // see virtualSetup
	calm   bool            // see virtualSetup

	holdOff, margin time.Duration  // the options HoldOff and FailoverMargin
	traffic         *simnet.Faults // in place of those of the pace, where it is rough
	random          bool           // all is drawn from the seed: see drawn
}

var virtualBase = []string{"crash", "crash-leader", "stop", "resign", "partition", "partition-leader", "cut", "pause", "script-flush"}

func virtualWith(faults ...string) []string { return append(slices.Clip(virtualBase), faults...) }

// virtualOutages are faults of the registry: an instance is away for longer than DownAfter.
var virtualOutages = []string{"away", "partition-long"}

// The profiles of the hot class. A seed without a profile runs the one of its number modulo theirs.
var virtualProfiles = []virtualProfile{
	{name: "calm", faults: []string{"crash-leader", "resign"}, every: 10 * time.Second, kept: true, calm: true},
	{name: "base", faults: virtualBase, drain: true, kept: true},
	{name: "rough", faults: virtualWith(), rough: true, drain: true, kept: true},
	{name: "rates", faults: virtualWith("rate"), rough: true, drain: true, kept: true},
	{name: "del", faults: virtualWith("del"), rough: true, drain: true},
	{name: "failover", faults: virtualWith("failover"), rough: true, drain: true},
	{name: "failover-skewed", faults: virtualWith("failover"), rough: true, drain: true, skew: time.Second},
	{name: "restart", faults: virtualWith("restart"), rough: true, drain: true},
	{name: "restart-empty", faults: virtualWith("restart-empty"), rough: true, drain: true},
	{name: "flush-waits-ttl", faults: virtualWith("flush"), rough: true, drain: true, wait: true},
	{name: "flush-roll-call", faults: []string{"crash", "crash-leader", "stop", "resign", "flush"}, drain: true},
	{name: "evict-term", faults: virtualWith("evict-term"), rough: true, drain: true},
	{name: "ttls-differ", faults: virtualWith("failover"), rough: true, drain: true, ttls: []time.Duration{virtualTTL, 900 * time.Millisecond}},
	{name: "no-info", faults: virtualWith("del"), rough: true, drain: true, noInfo: true},
	{name: "clock-back", faults: virtualWith("clock-back"), rough: true, drain: true},
	{
		name: "everything-but-the-clock", faults: virtualWith("del", "flush", "failover", "restart", "restart-empty", "evict-term"),
		rough: true, drain: true, wait: true,
	},
	{name: "deaf", faults: virtualWith("deafen", "deafen", "deafen"), rough: true, drain: true},
	{name: "random", random: true},
	{name: "tasks-calm", faults: []string{"crash-leader", "resign"}, every: 10 * time.Second, kept: true, calm: true, tasks: true},
	{name: "tasks-base", faults: virtualBase, drain: true, kept: true, tasks: true},
	{name: "tasks-rough", faults: append(virtualWith(), virtualOutages...), rough: true, drain: true, kept: true, tasks: true},
	{
		name: "tasks-everything", faults: virtualWith("del", "flush", "failover", "restart", "restart-empty", "evict-term"),
		rough: true, drain: true, wait: true, tasks: true,
	},
	{name: "tasks-random", random: true, tasks: true},
}

// The profiles of the steady class: coordinators with a registry and two tasks.
var virtualSteadyProfiles = []virtualProfile{
	{name: "steady-calm", faults: []string{"crash-leader", "resign"}, kept: true, calm: true},
	{name: "steady-base", faults: append(virtualWith(), virtualOutages...), drain: true, kept: true},
	{name: "steady-rough", faults: append(virtualWith("rate"), virtualOutages...), rough: true, drain: true, kept: true},
	{name: "steady-failover", faults: virtualWith("failover", "restart", "del"), rough: true, drain: true, skew: 100 * time.Millisecond},
	{name: "steady-random", random: true},
	{
		name: "steady-everything", faults: append(virtualWith("del", "flush", "failover", "restart", "restart-empty", "evict-term"), virtualOutages...),
		rough: true, drain: true, wait: true,
	},
}

func init() {
	for i := range virtualProfiles {
		virtualProfiles[i].pace = virtualHot
	}
	for i := range virtualSteadyProfiles {
		virtualSteadyProfiles[i].pace, virtualSteadyProfiles[i].tasks = virtualSteady, true
	}
}

// virtualProfileNamed returns the profile of that name.
func virtualProfileNamed(name string) (virtualProfile, bool) {
	for _, p := range slices.Concat(virtualProfiles, virtualSteadyProfiles) {
		if p.name == name {
			return p, true
		}
	}
	return virtualProfile{}, false
}

// virtualCatalog is what runs there are.
func virtualCatalog() (c virtual.Catalog) {
	for _, p := range slices.Concat(virtualSteadyProfiles, virtualProfiles) {
		c.Profiles = append(c.Profiles, virtual.Profile{Name: p.name, Class: p.pace.class, Length: p.pace.length})
	}
	c.Quiet = slices.Sorted(maps.Keys(virtualQuiet))
	return c
}

// setup is the world that a profile needs.
func (p virtualProfile) setup() virtualSetup {
	setup := virtualSetup{pace: p.pace, tasks: p.tasks, kept: p.kept, calm: p.calm, options: func(number int, options *Options) {
		if len(p.ttls) > 0 {
			options.Election.LeaseTTL = p.ttls[number%len(p.ttls)]
		}
		if p.wait {
			options.Election.Safety.EmptyHistoryWait = p.pace.ttl
		}
		options.Election.Safety.HoldOff, options.Election.Safety.FailoverMargin = p.holdOff, p.margin
		if number > 1 { // these poll less often
			options.Election.RetryInterval = options.Election.LeaseTTL
		}
	}}
	if p.drain {
		setup.drain = p.pace.ttl / 3
	}
	return setup
}

// network is the traffic of a profile, without the kinds of faults that are left out.
func (p virtualProfile) network(quiet []string) simnet.Faults {
	if !p.rough {
		return simnet.Faults{}
	}
	f := p.pace.rough()
	if p.traffic != nil {
		f = *p.traffic
	}
	for _, kind := range quiet {
		virtualQuiet[kind](&f)
	}
	return f
}
