package virtual

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// profile is a mix of faults within the conditions of P1, in virtual time.
type profile struct {
	name   string
	pace   *pace // nil: hot
	faults []string
	every  time.Duration   // mean pause between two; 0: that of the pace
	rough  bool            // messages are lost, late and repeated all the time
	ttls   []time.Duration // of the instances in turn; none: that of the pace
	drain  bool            // leader work takes up to a third of a lease to return
	wait   bool            // EmptyHistoryWait is the TTL
	skew   time.Duration   // of the clock of a promoted replica, either way, in the hot class
	noInfo bool            // i0 may not call INFO
	tasks  bool            // see setup
	kept   bool            // see setup
	calm   bool            // see setup
	asks   bool            // see setup
	roles  int             // see setup
	spread bool            // see setup
	length time.Duration   // of a run; 0: that of the pace

	holdOff, margin time.Duration  // the options HoldOff and FailoverMargin
	traffic         *simnet.Faults // in place of those of the pace, if it is rough
	random          bool           // all is drawn from the seed: see drawn
}

var baseFaults = []string{"crash", "crash-leader", "stop", "resign", "partition", "partition-leader", "cut", "pause", "script-flush"}

func with(faults ...string) []string { return append(slices.Clip(baseFaults), faults...) }

// asking are the faults with as many things that an operator asks for, in the order of their names.
func asking(faults ...string) []string {
	return append(slices.Clone(faults), slices.Sorted(maps.Keys(asks))...)
}

// outages are faults of the registry: an instance is away for longer than DownAfter.
var outages = []string{"away", "partition-long"}

// The profiles of the hot class. A seed without a profile runs the one of its number modulo theirs.
var hotProfiles = []profile{
	{name: "calm", faults: []string{"crash-leader", "resign"}, every: 10 * time.Second, kept: true, calm: true},
	{name: "base", faults: baseFaults, drain: true, kept: true},
	{name: "rough", faults: with(), rough: true, drain: true, kept: true},
	{name: "rates", faults: with("rate"), rough: true, drain: true, kept: true},
	{name: "del", faults: with("del"), rough: true, drain: true},
	{name: "failover", faults: with("failover"), rough: true, drain: true},
	{name: "failover-skewed", faults: with("failover"), rough: true, drain: true, skew: time.Second},
	{name: "restart", faults: with("restart"), rough: true, drain: true},
	{name: "restart-empty", faults: with("restart-empty"), rough: true, drain: true},
	{name: "flush-waits-ttl", faults: with("flush"), rough: true, drain: true, wait: true},
	{name: "flush-roll-call", faults: []string{"crash", "crash-leader", "stop", "resign", "flush"}, drain: true},
	{name: "evict-term", faults: with("evict-term"), rough: true, drain: true},
	{name: "ttls-differ", faults: with("failover"), rough: true, drain: true, ttls: []time.Duration{hotTTL, 900 * time.Millisecond}},
	{name: "no-info", faults: with("del"), rough: true, drain: true, noInfo: true},
	{name: "clock-back", faults: with("clock-back"), rough: true, drain: true},
	{
		name: "everything-but-the-clock", faults: with("del", "flush", "failover", "restart", "restart-empty", "evict-term"),
		rough: true, drain: true, wait: true,
	},
	{name: "deaf", faults: with("deafen", "deafen", "deafen"), rough: true, drain: true},
	{name: "random", random: true},
	{name: "tasks-calm", faults: []string{"crash-leader", "resign"}, every: 10 * time.Second, kept: true, calm: true, tasks: true},
	{name: "tasks-base", faults: baseFaults, drain: true, kept: true, tasks: true},
	{name: "tasks-rough", faults: append(with(), outages...), rough: true, drain: true, kept: true, tasks: true},
	{
		name: "tasks-everything", faults: with("del", "flush", "failover", "restart", "restart-empty", "evict-term"),
		rough: true, drain: true, wait: true, tasks: true,
	},
	{name: "tasks-random", random: true, tasks: true},
	{
		name: "asks-calm", faults: []string{"crash-leader", "resign", "transfer", "transfer-best", "ask-resign", "trigger"}, every: 10 * time.Second,
		kept: true, calm: true, tasks: true, asks: true,
	},
	{name: "asks-base", faults: asking(baseFaults...), drain: true, kept: true, tasks: true, asks: true},
	{name: "asks-rough", faults: asking(append(with(), outages...)...), rough: true, drain: true, kept: true, tasks: true, asks: true},
	{
		name: "asks-everything", faults: asking(with("del", "flush", "failover", "restart", "restart-empty", "evict-term")...),
		rough: true, drain: true, wait: true, tasks: true, asks: true,
	},
	{name: "asks-random", random: true, tasks: true, asks: true},
	{name: "roles-calm", faults: []string{"crash-leader", "resign"}, every: 10 * time.Second, kept: true, calm: true, tasks: true, roles: manyRoles, length: rolesLength},
	{
		name: "roles-rough", faults: append(with(), outages...), rough: true, drain: true, kept: true, tasks: true, roles: manyRoles, length: rolesLength,
		spread: true,
	},
	{name: "roles-random", random: true, tasks: true, roles: manyRoles, length: rolesLength},
}

// The profiles of the steady class: coordinators with a registry and two tasks.
var steadyProfiles = []profile{
	{name: "steady-calm", faults: []string{"crash-leader", "resign"}, kept: true, calm: true},
	{name: "steady-base", faults: append(with(), outages...), drain: true, kept: true},
	{name: "steady-rough", faults: append(with("rate"), outages...), rough: true, drain: true, kept: true},
	{name: "steady-failover", faults: with("failover", "restart", "del"), rough: true, drain: true, skew: 100 * time.Millisecond},
	{name: "steady-random", random: true},
	{name: "steady-asks", faults: asking(append(with(), outages...)...), rough: true, drain: true, kept: true, asks: true},
	{
		name: "steady-everything", faults: append(with("del", "flush", "failover", "restart", "restart-empty", "evict-term"), outages...),
		rough: true, drain: true, wait: true,
	},
}

func init() {
	for i := range hotProfiles {
		hotProfiles[i].pace = hot
	}
	for i := range steadyProfiles {
		steadyProfiles[i].pace, steadyProfiles[i].tasks = steady, true
	}
}

// Of the profiles with many roles: so many more that renewals travel together, and a run that costs
// no more than the others.
const (
	manyRoles   = driver.Few + 1
	rolesLength = 3 * time.Minute
)

// profileNamed returns the profile of that name.
func profileNamed(name string) (profile, bool) {
	for _, p := range slices.Concat(hotProfiles, steadyProfiles) {
		if p.name == name {
			return p, true
		}
	}
	return profile{}, false
}

// catalog is what runs there are.
func catalog() (c Catalog) {
	for _, p := range slices.Concat(steadyProfiles, hotProfiles) {
		c.Profiles = append(c.Profiles, Profile{Name: p.name, Class: p.pace.class, Length: cmp.Or(p.length, p.pace.length)})
	}
	c.Quiet = slices.Sorted(maps.Keys(leaveOut))
	return c
}

// setup is the world that a profile needs.
func (p profile) setup() setup {
	setup := setup{pace: p.pace, tasks: p.tasks, asks: p.asks, roles: p.roles, spread: p.spread, kept: p.kept, calm: p.calm, options: func(number int, options *tenure.Options) {
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
	if p.roles > 0 {
		setup.instances = 3
	}
	if p.drain {
		setup.drain = p.pace.ttl / 3
	}
	return setup
}

// network is the traffic of a profile, without the kinds of faults that are left out.
func (p profile) network(quiet []string) simnet.Faults {
	if !p.rough {
		return simnet.Faults{}
	}
	f := p.pace.rough()
	if p.traffic != nil {
		f = *p.traffic
	}
	for _, kind := range quiet {
		leaveOut[kind](&f)
	}
	return f
}
