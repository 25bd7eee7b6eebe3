package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// Random profiles: what goes wrong, how often, and what the processes are set up for is drawn from
// the seed, so that what meets is not what somebody has thought of. A drawn profile that breaks a
// condition of P1 is outside of it.

// Drawn is the profile that a seed draws.
func (p Profile) Drawn(seed uint64) Profile {
	if !p.Random {
		return p
	}
	d := dice{rand.New(rand.NewPCG(seed, 9))}
	for tries := 1; ; tries++ {
		if q := p.draw(d); !q.Outside || tries == 1 && d.IntN(4) == 0 { // most are to be within the conditions
			if !p.Alone {
				q.jobs = drawJobs(seed, p.Length)
			}
			return q
		}
	}
}

func (p Profile) draw(d dice) Profile {
	q := Profile{Name: p.Name, Length: p.Length, Alone: p.Alone, Transfers: p.Transfers, Random: true}
	q.Faults = d.faults()
	if p.Transfers {
		q.Open = true
		q.Faults = append(q.Faults, slices.Repeat([]Fault{Transfer}, 1+d.IntN(max(len(q.Faults), 2)))...)
		if d.IntN(2) == 0 {
			for range processes {
				q.Priorities = append(q.Priorities, d.IntN(5)-1)
			}
		}
	}
	if p.Length < time.Hour {
		q.TTLs = d.ttls(time.Second, 5*time.Second)
		q.Every = d.duration(700*time.Millisecond, 10*time.Second)
	} else {
		q.TTLs = d.ttls(5*time.Second, time.Minute)
		q.Every = d.duration(time.Minute, 30*time.Minute)
	}
	ttl, least := slices.Max(q.TTLs), slices.Min(q.TTLs)
	q.Lag = d.duration(ttl/100, 3*ttl)
	q.Drain = d.duration(ttl/100, ttl/2)
	q.Empty = d.one(time.Duration(0), 250*time.Millisecond, ttl, ttl)
	q.HoldOff = d.one(0, 0, ttl, 2*ttl)
	if q.Priorities != nil && d.IntN(2) == 0 {
		q.Preempt = d.duration(2*ttl, 10*ttl)
	}
	if len(q.TTLs) > 1 && d.IntN(4) > 0 {
		q.HoldOff = max(q.HoldOff, ttl)
	}
	q.Rate = d.chance(0, 0, 0.009, 0.009, 0.03)
	if q.has(Failover) {
		q.Skew = d.one(0, 0, ttl/10, ttl/3)
		q.Second = d.one(0, 0, least/8, least/4)
		if d.IntN(8) > 0 { // else there may be a second master that the margin does not cover
			q.Margin = q.Second
		}
	}
	if d.IntN(4) == 0 {
		q.Quiet = 3 * ttl
	}
	if d.IntN(8) == 0 {
		q.NoInfo = 1 + d.IntN(processes)
	}
	steady := 1.0
	if p.Length > time.Hour {
		steady = 0.03
	}
	q.Delayed, q.Late, q.Lost = d.rate(0.3*steady), d.rate(0.1*steady), d.rate(0.1*steady)
	q.Noticed = d.Float64()
	q.Deaf, q.Twice = d.rate(0.3), d.rate(0.05*steady)
	if !p.Alone && d.IntN(3) > 0 {
		q.Beat = d.duration(ttl/10, 2*ttl)
		q.Sweep = d.duration(ttl/20, 2*ttl)
		q.Drifted = d.duration(2*q.Beat, 6*q.Beat)
		q.Down = d.duration(q.Drifted+q.Beat, 6*q.Drifted)
	}
	q.Outside = len(q.broken()) > 0
	if p.Transfers {
		q.Crowd = []int{0, 0, 0, 60, 2_000, 100_000}[d.IntN(6)]
	}
	return q
}

// dice draw what a profile is made of.
type dice struct{ *rand.Rand }

// faults are some of all, some of them several times as often.
func (d dice) faults() (drawn []Fault) {
	few := 0.1 + 0.5*d.Float64() // how many of them meet
	for f := range Transfer {    // transfers are asked for by a profile of their own
		often := 1 + d.IntN(4)
		rare := f == ClockAhead // breaks a condition: seldom
		if d.Float64() < few && (!rare || d.IntN(8) == 0) {
			drawn = append(drawn, slices.Repeat([]Fault{f}, often)...)
		}
	}
	if len(drawn) == 0 {
		return []Fault{Crash, Resign}
	}
	return drawn
}

// ttls are those of all processes, or of the two halves of a change of options.
func (d dice) ttls(low, high time.Duration) []time.Duration {
	ttl := d.duration(low, high)
	if d.IntN(5) == 0 {
		return []time.Duration{ttl, max(ttl*time.Duration(3+d.IntN(6))/10, 300*time.Millisecond)}
	}
	return []time.Duration{ttl}
}

// duration is as likely between 1 and 2 as between 10 and 20.
func (d dice) duration(low, high time.Duration) time.Duration {
	drawn := float64(low) * math.Pow(float64(high)/float64(low), d.Float64())
	return time.Duration(drawn).Round(time.Millisecond)
}

func (d dice) one(of ...time.Duration) time.Duration { return of[d.IntN(len(of))] }

func (d dice) chance(of ...float64) float64 { return of[d.IntN(len(of))] }

// rate is zero, or anything down to a hundredth of the highest.
func (d dice) rate(highest float64) float64 {
	if d.IntN(3) == 0 {
		return 0
	}
	return highest * math.Pow(0.01, d.Float64())
}

func (p Profile) has(faults ...Fault) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return slices.Contains(faults, f) })
}

// broken are the conditions of P1 that the profile does not keep.
func (p Profile) broken() (conditions []string) {
	breaks := func(broken bool, condition string) {
		if broken {
			conditions = append(conditions, condition)
		}
	}
	ttl := slices.Max(p.TTLs)
	drift := slices.MinFunc(p.TTLs, func(a, b time.Duration) int { return int(a - b) })
	breaks(p.Rate*float64(drift) > 0.95*float64(lease.DefaultDrift(drift)), "clock rates differ by more than the drift margin")
	breaks(p.has(ClockAhead), "Redis's clock jumps ahead within a lease")
	breaks(p.has(Suspend) && p.has(WallSet), "no clock of a suspended machine can be trusted")
	breaks(p.Second > p.Margin, "a second master takes writes for longer than FailoverMargin")
	breaks(p.NoInfo > 0 && p.has(Failover, Restart, RestartEmpty), "who may not call INFO does not see that the history is another")
	forgets := p.has(Flush) || p.has(Del) && p.has(EvictTerm)
	silent := p.has(Partition, OneWay, Slow, Freeze, Suspend, Failover, Restart, RestartEmpty, Deafen) || p.Delayed+p.Late+p.Deaf > 0 || p.Lost*(1-p.Noticed) > 0
	breaks(forgets && p.Empty < ttl && silent, "everything is forgotten while the leader cannot hear the roll-call")
	breaks(forgets && p.Empty == 0, "everything is forgotten, and there is no roll-call")
	return conditions
}

// String says what was drawn.
func (p Profile) String() string {
	counts := map[Fault]int{}
	for _, f := range p.Faults {
		counts[f]++
	}
	var faults []string
	for f := range numFault {
		if n := counts[f]; n > 0 {
			faults = append(faults, fmt.Sprintf("%v ×%d", f, n))
		}
	}
	text := fmt.Sprintf("%s, every %v; TTL %v, HoldOff %v, EmptyHistoryWait %v, FailoverMargin %v; lag %v, second master %v, skew %v, rate %.3f, drain %v, without INFO %d; "+
		"delayed %.4f, late %.4f, lost %.4f (noticed %.2f), hints lost %.4f, twice %.4f", strings.Join(faults, ", "), p.Every, p.TTLs, p.HoldOff, p.Empty, p.Margin,
		p.Lag, p.Second, p.Skew, p.Rate, p.Drain, p.NoInfo, p.Delayed, p.Late, p.Lost, p.Noticed, p.Deaf, p.Twice)
	if p.Priorities != nil {
		text += fmt.Sprintf("; priorities %v, Preempt %v", p.Priorities, p.Preempt)
	}
	if p.Crowd > 0 {
		text += fmt.Sprintf("; a crowd of %d", p.Crowd)
	}
	if p.jobs != nil {
		text += "; tasks: " + jobsText(p.jobs)
	}
	return strings.Join(append([]string{text}, p.broken()...), "; outside of P1: ")
}
