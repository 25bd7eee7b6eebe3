package sim

import (
	"slices"
	"strings"
	"time"
)

// Profile is what goes wrong in a cluster, and what its instances are set up for.
type Profile struct {
	Name   string
	Faults []Fault
	Length time.Duration // of a run

	TTLs  []time.Duration // of the processes in turn
	Every time.Duration   // a fault, on the mean
	Quiet time.Duration   // without faults at the beginning: everybody learns who leads
	Lag   time.Duration   // longest that a promoted replica is behind

	Priorities []int         // of the processes in turn; nil: none
	Preempt    time.Duration // as the option
	Restless   bool          // ranks change, as those of processes do that lead more roles, and less, in turn

	Crowd int // so many others follow, as each process hears when it starts; 0: it hears of none

	Sleepy bool // followers sleep for up to a TTL, which is the longest RetryInterval, and not the default of half of it

	HoldOff time.Duration // the options of the same names
	Empty   time.Duration
	Margin  time.Duration

	Second time.Duration // for how long an old master still takes writes
	Skew   time.Duration // of the clock of a promoted machine
	Rate   float64       // by how much Redis's clock may be fast or slow
	Drain  time.Duration // longest drain of work

	Beat, Sweep, Drifted, Down time.Duration // of the registry; zero: in proportion to the TTL

	Delayed float64 // requests
	Late    float64 // replies
	Lost    float64 // requests or replies
	Noticed float64 // share of those where the connection breaks
	Deaf    float64 // hints
	Twice   float64 // requests that the client sends again by itself
	NoInfo  int     // so many processes may not call INFO

	Alone     bool  // elections and nothing else: no registry, no tasks, and so several times as many years
	Open      bool  // transfers to the leader itself are to the best candidate
	Transfers bool  // with Random: the drawn faults have transfers among them
	Calm      bool  // one fault at a time and a sound network: P7 is held
	Outside   bool  // of the conditions of P1: overlaps are measured, not wrong
	jobs      []job // nil: usualJobs
	Random    bool  // everything but the name, the length and Alone is drawn from the seed: see Drawn
}

const hotTTL = 3 * time.Second

var twoTTLs = []time.Duration{hotTTL, hotTTL * 3 / 10}

// retry is the RetryInterval of a process.
func (p Profile) retry(ttl time.Duration) time.Duration {
	if p.Sleepy {
		return ttl
	}
	return ttl / 2
}

// usual completes a hot profile: leases of three seconds for five minutes, a fault every five
// seconds.
func usual(p Profile) Profile {
	if p.TTLs == nil {
		p.TTLs = []time.Duration{hotTTL}
	}
	orDefault(&p.Empty, 250*time.Millisecond)
	orDefault(&p.Every, 5*time.Second)
	orDefault(&p.Length, 5*time.Minute)
	orDefault(&p.Lag, 2800*time.Millisecond)
	p.Drain, p.Lost = 500*time.Millisecond, 0.05
	if p.Rate == 0 {
		p.Rate = 0.009
	}
	return p
}

func orDefault(d *time.Duration, otherwise time.Duration) {
	if *d == 0 {
		*d = otherwise
	}
}

// rough adds a network that delays, repeats and loses.
func rough(p Profile) Profile {
	p = usual(p)
	p.Delayed, p.Late, p.Noticed, p.Deaf, p.Twice = 0.1, 0.05, 0.3, 0.2, 0.02
	return p
}

// hot makes faults follow each other so closely that they meet.
func hot(p Profile) Profile {
	p.Every = time.Second
	p = rough(p)
	p.Delayed, p.Drain = 0.3, time.Second
	return p
}

// steady is a cluster with the default options for a month: a fault every seven minutes, one
// message in a few hundred goes wrong.
func steady(p Profile) Profile {
	p.Name = "steady: " + p.Name
	p.TTLs, p.Length, p.Every = []time.Duration{30 * time.Second}, 30*24*time.Hour, 7*time.Minute
	orDefault(&p.Empty, 250*time.Millisecond)
	orDefault(&p.Lag, 10*time.Second)
	p.Drain, p.Rate = 400*time.Millisecond, 0.009
	p.Delayed, p.Late, p.Lost, p.Noticed, p.Deaf, p.Twice = 0.002, 0.002, 0.004, 0.3, 0.02, 0.001
	return p
}

// alone is steady without a registry and tasks.
func alone(p Profile) Profile {
	p = steady(p)
	p.Name, p.Alone = strings.Replace(p.Name, "steady: ", "election alone: ", 1), true
	return p
}

func basic(more ...Fault) []Fault {
	return append([]Fault{Crash, Stop, Partition, OneWay, Resign, Freeze, Slow}, more...)
}

func few(more ...Fault) []Fault { return append([]Fault{Crash, Partition, Resign}, more...) }

// secondMaster has failovers after which the old master still takes writes, while its leader may be
// out of reach.
func secondMaster() Profile {
	p := rough(Profile{Name: "second master", Faults: []Fault{Failover, Partition, Resign}, Every: time.Second})
	p.Second, p.Margin = 800*time.Millisecond, 800*time.Millisecond
	return p
}

// Profiles are all that stay within the conditions of P1, the years of the steady ones first.
var Profiles = []Profile{
	steady(Profile{Name: "processes and network", Faults: basic()}),
	steady(Profile{Name: "operator", Faults: basic(Del, EvictTerm, WorkFails)}),
	steady(Profile{Name: "failovers", Faults: basic(Failover, Failover, Restart)}),
	steady(Profile{Name: "second masters", Faults: basic(Failover), Second: 8 * time.Second, Margin: 8 * time.Second}),
	steady(Profile{Name: "restarts without data", Faults: basic(RestartEmpty)}),
	steady(Profile{Name: "clocks", Faults: basic(ClockBack, RateChange, WallSet)}),
	steady(Profile{Name: "suspended machines", Faults: basic(RateChange, Suspend)}), // beside wall clocks that are set, P4 is off
	steady(Profile{Name: "everything, empty waits a TTL", Faults: basic(Del, Flush, Failover, Restart, RestartEmpty, EvictTerm, WorkFails), Empty: 30 * time.Second}),
	calm(),
	handingOver(),
	alone(Profile{Name: "processes and network", Faults: basic()}),
	alone(Profile{Name: "operator", Faults: basic(Del, EvictTerm, WorkFails)}),
	alone(Profile{Name: "failovers", Faults: basic(Failover, Failover, Restart)}),
	alone(Profile{Name: "failovers, clocks apart", Faults: basic(Failover, Failover, Restart), Skew: 10 * time.Second}),
	alone(Profile{Name: "second masters", Faults: basic(Failover), Second: 8 * time.Second, Margin: 8 * time.Second}),
	alone(Profile{Name: "restarts without data", Faults: basic(RestartEmpty)}),
	alone(Profile{Name: "everything, empty waits a TTL", Faults: basic(Del, Flush, Failover, Restart, RestartEmpty, EvictTerm, WorkFails, ClockBack, RateChange), Empty: 30 * time.Second}),

	usual(Profile{Name: "crash, partition, resign", Faults: few()}),
	rough(Profile{Name: "delayed requests, late replies", Faults: few()}),
	rough(Profile{Name: "one way, slow Redis, clean stops", Faults: basic()}),
	rough(Profile{Name: "operator DEL", Faults: few(Del)}),
	rough(Profile{Name: "failover", Faults: few(Failover)}),
	rough(Profile{Name: "failover, clocks apart", Faults: few(Failover), Skew: time.Second}),
	rough(Profile{Name: "restart, nothing kept", Faults: few(RestartEmpty)}),
	rough(Profile{Name: "restart, all kept", Faults: few(Restart)}),
	rough(Profile{Name: "FLUSHALL, empty waits a TTL", Faults: few(Flush), Empty: hotTTL}),
	usual(Profile{Name: "FLUSHALL, roll-call", Faults: []Fault{Crash, Resign, Flush}, Noticed: 1}),
	rough(Profile{Name: "term hash evicted", Faults: few(EvictTerm)}),
	rough(Profile{Name: "TTLs differ, failover", Faults: few(Failover), TTLs: twoTTLs, HoldOff: hotTTL}),
	hot(Profile{Name: "TTLs differ, HoldOff not set", Faults: few(Failover, Stop), TTLs: twoTTLs, Sleepy: true}),
	rough(Profile{Name: "one without INFO", Faults: few(), NoInfo: 1}),
	rough(Profile{Name: "clock set back", Faults: few(ClockBack)}),
	rough(Profile{Name: "all data losses", Faults: few(Del, Flush, Failover, RestartEmpty, EvictTerm), Empty: hotTTL}),
	rough(Profile{Name: "second master, margin", Faults: few(Failover), Second: 800 * time.Millisecond, Margin: 800 * time.Millisecond}),
	rough(Profile{Name: "FLUSHALL, candidates remember", Faults: []Fault{Partition, Resign, Flush}, Quiet: 5 * time.Second}),
	hot(Profile{Name: "hand-overs and failovers", Faults: []Fault{Resign, Failover, Partition}}),
	hot(Profile{Name: "hand-overs and failovers, TTLs differ", Faults: []Fault{Resign, Failover, Partition}, TTLs: twoTTLs, HoldOff: hotTTL}),
	secondMaster(),
	hot(Profile{Name: "hand-overs and failovers, clock set back", Faults: []Fault{Partition, Partition, Partition, Resign, Resign, Failover, ClockBack}, Alone: true}),
	hot(Profile{Name: "failovers, far back", Faults: []Fault{Failover, Partition}, Lag: 8400 * time.Millisecond}),
	rough(Profile{Name: "frozen, suspended", Faults: few(Freeze, Suspend, WorkFails)}),
	rough(Profile{Name: "frozen, wall clocks set", Faults: few(Freeze, WallSet, WorkFails)}),

	rough(Profile{Name: "transfers", Faults: transfers(WorkFails, Stop)}),
	rough(Profile{Name: "transfers, TTLs differ", Faults: transfers(WorkFails), TTLs: twoTTLs, HoldOff: hotTTL}),
	rough(Profile{Name: "transfers, operator DEL", Faults: transfers(Del)}),
	rough(Profile{Name: "transfers, all data losses", Faults: transfers(Flush, Failover, RestartEmpty, EvictTerm), Empty: hotTTL}),
	rough(Profile{Name: "transfers, clock set back", Faults: []Fault{Transfer, Transfer, Transfer, Crash, Freeze, ClockBack}}),
	hot(Profile{Name: "transfers and failovers", Faults: []Fault{Transfer, Transfer, Resign, Failover, Partition, OneWay}}),
	rough(Profile{Name: "transfers, to the best too", Faults: transfers(Flush, Failover, EvictTerm, Del, OneWay), Empty: hotTTL, Open: true, Priorities: ranks}),
	alone(Profile{Name: "transfers", Faults: basic(Transfer, Transfer, Transfer, Transfer, Deafen, Failover), Open: true}),

	rough(Profile{Name: "priorities", Faults: few(Stop, WorkFails), Priorities: ranks}),
	rough(Profile{Name: "priorities, the best hear nothing", Faults: []Fault{OneWay, OneWay, Crash, Resign, Deafen}, Priorities: ranks}),
	rough(Profile{Name: "priorities, all data losses", Faults: few(Del, Flush, Failover, RestartEmpty, EvictTerm), Empty: hotTTL, Priorities: ranks}),
	rough(Profile{Name: "priorities, clock set back", Faults: few(ClockBack), Priorities: ranks}),
	rough(Profile{Name: "priorities, TTLs differ, pre-empting", Faults: few(Failover), TTLs: twoTTLs, HoldOff: hotTTL, Priorities: ranks, Preempt: 2 * hotTTL}),
	rough(Profile{Name: "priorities, pre-empting, transfers", Faults: transfers(Flush, Failover, EvictTerm, Del), Empty: hotTTL, Priorities: ranks, Preempt: 2 * hotTTL}),
	rough(Profile{Name: "ranks change, pre-empting", Faults: transfers(Failover, Flush, Stop), Empty: hotTTL, Priorities: make([]int, processes), Preempt: 2 * hotTTL, Restless: true}),
	alone(Profile{Name: "ranks change, pre-empting", Faults: basic(Deafen, Failover), Priorities: make([]int, processes), Preempt: time.Minute, Restless: true}),
	alone(Profile{Name: "priorities", Faults: basic(Deafen, Failover), Priorities: ranks}),
	calmRanks(),

	rough(Profile{Name: "a crowd", Faults: basic(Transfer, Deafen, Flush, Failover), Empty: hotTTL, Open: true, Crowd: 2_000}),
	rough(Profile{Name: "a crowd, priorities, pre-empting", Faults: transfers(Flush, Failover, EvictTerm, Del), Empty: hotTTL, Priorities: ranks, Preempt: 2 * hotTTL, Crowd: 100_000}),
	alone(Profile{Name: "a crowd", Faults: basic(Deafen, Failover), Crowd: 10_000}),
	calmCrowd(),

	{Name: "random: minutes", Random: true, Alone: true, Length: 5 * time.Minute},
	{Name: "random: minutes, tasks too", Random: true, Length: 5 * time.Minute},
	{Name: "random: days", Random: true, Alone: true, Length: 10 * 24 * time.Hour},
	{Name: "random: days, tasks too", Random: true, Length: 2 * 24 * time.Hour},
	{Name: "random: minutes, transfers", Random: true, Transfers: true, Length: 5 * time.Minute},
	{Name: "random: days, transfers", Random: true, Transfers: true, Alone: true, Length: 10 * 24 * time.Hour},
}

// transfers are as frequent as all other faults together.
func transfers(more ...Fault) []Fault {
	others := few(more...)
	return append(others, slices.Repeat([]Fault{Transfer}, len(others))...)
}

// ranks are priorities of five processes.
var ranks = []int{3, 0, 1, -2, 1}

// calmRanks is calm with priorities.
func calmRanks() Profile {
	p := calm()
	p.Name, p.Priorities, p.Alone = "election alone: calm, priorities", ranks, true
	return p
}

// calmCrowd is calm for candidates that take themselves for some of many.
func calmCrowd() Profile {
	p := calm()
	p.Name, p.Crowd, p.Alone = "election alone: calm, a crowd", 10_000, true
	return p
}

// handingOver is calm with transfers: to one that can lead, and to one that cannot.
func handingOver() Profile {
	p := calm()
	p.Name, p.Open, p.Faults = "steady: calm, transfers", true, []Fault{Crash, Resign, Transfer, Transfer, Transfer}
	return p
}

// calm has one fault at a time, on a sound network.
func calm() Profile {
	p := steady(Profile{Name: "calm", Faults: []Fault{Crash, Resign, Stop}, Calm: true})
	p.Delayed, p.Late, p.Lost, p.Deaf, p.Twice, p.Rate = 0, 0, 0, 0, 0, 0
	return p
}

// Outside are profiles that break one condition of P1 each: what happens then is a number.
var Outside = []Profile{
	outside(rough(Profile{Name: "FLUSHALL, leader out of reach", Faults: []Fault{Partition, Flush, Resign}})),
	outside(rough(Profile{Name: "second master, no FailoverMargin", Faults: few(Failover), Second: 3 * time.Second})),
	outside(rough(Profile{Name: "Redis's clock jumps ahead by up to 2 TTL", Faults: few(ClockAhead)})),
	outside(usual(Profile{Name: "clock rates apart by up to 5 %", Faults: few(), Rate: 0.05})),
	outside(rough(Profile{Name: "nobody may call INFO, failover", Faults: few(Failover), NoInfo: processes})),
}

func outside(p Profile) Profile {
	p.Outside = true
	return p
}

// Named returns a profile by its name.
func Named(name string) (Profile, bool) {
	for _, p := range slices.Concat(Profiles, Outside) {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}
