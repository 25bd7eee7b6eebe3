package virtual

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Random profiles in virtual time: the faults that meet, their rates and the options come from the
// seed. All that is drawn is within the conditions of P1 and P2: this engine has no numbers for
// what is outside of them (internal/proof/sim has).

// drawnFrom are the faults that a seed draws from, those of an operator and of Redis's data
// last.
var drawnFrom = []string{
	"crash", "crash-leader", "stop", "resign", "partition", "partition-leader", "cut", "pause", "script-flush", "deafen", "rate",
	"del", "evict-term", "flush", "failover", "restart", "restart-empty", "clock-back",
}

// drawn is the profile that a seed draws.
func (p profile) drawn(seed uint64) profile {
	if !p.random {
		return p
	}
	r := newRand(seed, "profile", 0)
	p.faults = drawnFaults(r)
	p.drain = r.IntN(2) == 0
	p.every = time.Duration(drawnBetween(r, float64(p.pace.strikes)/3, 3*float64(p.pace.strikes))).Round(odd)
	if r.IntN(4) > 0 {
		p.rough, p.traffic = true, drawnTraffic(r, p.pace.rough())
	}
	ttl := p.pace.ttl
	if r.IntN(4) == 0 && p.pace == hot { // a rolling change of the options
		p.ttls, p.holdOff = []time.Duration{ttl, ttl * time.Duration(3+r.IntN(6)) / 10}, ttl
	} else if r.IntN(3) == 0 {
		p.holdOff = ttl + time.Duration(r.IntN(10))*ttl/10
	}
	has := func(faults ...string) bool {
		return slices.ContainsFunc(faults, func(f string) bool { return slices.Contains(p.faults, f) })
	}
	if has("failover") {
		p.skew = time.Duration(r.IntN(3)) * 500 * time.Millisecond / time.Duration(p.pace.stretch)
		if len(p.ttls) == 0 {
			p.margin = time.Duration(r.IntN(4)) * ttl / 16
		}
	}
	// Everything may be forgotten while the leader cannot hear the roll-call: only a wait of a
	// lease keeps P1 then.
	p.wait = has("flush") || has("del") && has("evict-term") || r.IntN(4) == 0
	if !has("failover", "restart", "restart-empty") && r.IntN(6) == 0 {
		p.noInfo = true // a client without the right to INFO does not see that the history is another
	}
	if has("failover", "flush", "evict-term", "restart-empty") { // a token that is lost behind a clock set back is the exception of P2
		p.faults = slices.DeleteFunc(p.faults, func(f string) bool { return f == "clock-back" })
	}
	p.spread = p.roles > 0 && r.IntN(2) == 0
	if p.asks {
		for _, ask := range slices.Sorted(maps.Keys(asks)) {
			if r.IntN(3) > 0 {
				p.faults = append(p.faults, slices.Repeat([]string{ask}, 1+r.IntN(2))...)
			}
		}
	}
	return p
}

func drawnFaults(r *rand.Rand) (faults []string) {
	share := 0.15 + 0.6*r.Float64()
	for _, f := range drawnFrom {
		often := 1 + r.IntN(3)
		if r.Float64() < share {
			faults = append(faults, slices.Repeat([]string{f}, often)...)
		}
	}
	return append(faults, "crash-leader")
}

// drawnTraffic draws each rate apart, up to twice that of the rough profiles.
func drawnTraffic(r *rand.Rand, f simnet.Faults) *simnet.Faults {
	for _, rate := range []*float64{&f.DelayRequest, &f.DelayReply, &f.LoseRequest, &f.LoseReply, &f.Cut, &f.Duplicate, &f.Dribble, &f.Tear} {
		if *rate = drawnBetween(r, *rate/20, 2**rate); r.IntN(3) == 0 {
			*rate = 0
		}
	}
	f.Stuck = r.Float64()
	f.DelayMax = time.Duration(drawnBetween(r, float64(f.DelayMax)/20, float64(f.DelayMax)))
	return &f
}

// drawnBetween is as likely between 1 and 2 as between 10 and 20.
func drawnBetween(r *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, r.Float64())
}
