package lease

import (
	"math"
	"time"
)

// Of a crowd that follows, few should ask when the lease ends, since one of them is enough. Redis
// counts who listens to the hints of a role, and its answer is how large the crowd is.
const (
	few  = 50        // so many may ask at once
	many = 1_000     // of more, nobody asks who need not: each hears that somebody was granted the lease
	most = 1_000_000 // as many are believed in
)

// Crowd says how many others follow, as far as is known. It only decides when this candidate asks.
func (c *Candidate) Crowd(others int) { c.crowd = min(max(others, 0), most) }

// Beats are the heartbeats of the process of a candidate. The zero value: it sends none.
type Beats struct {
	Due   time.Duration // monotonic: the next one
	Every time.Duration // so long apart, more or less
}

// Beats says when this process sends heartbeats. A question of one of a crowd is put right before
// one of them, and may travel with it: see Request.Rides. It is asked no later than Retry after the
// last answer.
func (c *Candidate) Beats(b Beats) { c.beats = b }

// rides reports whether an acquire that is sent now may travel with a heartbeat.
func (c *Candidate) rides(now Reading) bool {
	return c.crowd > few && c.beats.Every > 0 && c.paced && c.regular != past && now.Mono >= c.regular
}

// meeting is when a follower asks that was about to ask at drawn: one of a crowd asks 1/50 of Retry
// before the last heartbeat that is due within Retry. That is no more often than each 9/10 of Retry
// on the mean: else, and if it is less than half of Retry away, it asks at drawn.
func (c *Candidate) meeting(now Reading, drawn time.Duration) time.Duration {
	latest := now.Mono + c.timing.Retry
	if c.crowd <= few || c.beats.Every <= 0 || c.beats.Due > latest {
		return drawn
	}
	at := latest - (latest-c.beats.Due)%c.beats.Every - c.timing.Retry/50
	least := c.timing.Retry * 9 / 10
	if c.beats.Every >= least { // from the next one on they are so far apart
		least = c.timing.Retry / 2
	}
	if at < now.Mono+least {
		return drawn
	}
	return at
}

// Ramp is how long after the end of a lease the last of so many followers asks. They begin at one a
// gap, and ask the faster the longer nobody was granted the lease, by the factor e each TTL/100:
// most of them may have died with the leader.
//
//	t = TTL/100 · ln(1 + n · gap/(TTL/100)), gap = max(1 ms, n · 0.4 µs)
//
// Up to 50 of them ask within 2 ms.
func (t Timing) Ramp(others int) time.Duration {
	if others <= few {
		return wakeSpread
	}
	return t.ramp(1, min(others, most))
}

// ramp is when the one asks that has so much of the crowd before it.
func (t Timing) ramp(before float64, others int) time.Duration {
	slow := float64(t.TTL) / 100
	return time.Duration(slow * math.Log1p(before*float64(others)*float64(gap(others))/slow))
}

// gap is how far apart the first of so many ask. They go on until they have heard that one of them
// was granted the lease, and that takes 5 to 15 µs of Redis for each: of 10,000 a quarter as many
// ask meanwhile as with a gap of 1 ms.
func gap(others int) time.Duration {
	return max(time.Millisecond, time.Duration(others)*2*time.Microsecond/5)
}

// Regather is within how long followers ask whose subscription stands again after a break, since
// they may have missed that the lease is free: Retry/15, and of a crowd one a millisecond, within
// Retry.
func (t Timing) Regather(others int) time.Duration {
	return max(t.Retry/15, min(time.Duration(others)*time.Millisecond, t.Retry))
}

// apart is a random part of the ramp.
func (c *Candidate) apart() time.Duration {
	if c.crowd <= few {
		return c.part(wakeSpread)
	}
	return c.timing.ramp(c.random(), c.crowd)
}

// Vacant takes the hint that the lease may be free. One of a crowd does not ask at once.
func (c *Candidate) Vacant(now Reading) {
	switch {
	case c.state != Following || now.Mono < c.back || c.queued:
	case c.crowd <= few || c.flying:
		c.hint(now)
	default:
		if at := max(now.Mono, c.heeded+hintSpacing) + c.apart(); at < c.wake {
			c.wake, c.queued = at, true
		}
	}
}

// Granted takes the hint that somebody was granted the lease. One of many who would ask soon, since
// the lease before ends or has ended, asks when it would have asked anyway: no later than Retry
// after it was answered last. One that may have been granted it asks as before.
func (c *Candidate) Granted(now Reading) {
	if c.state == Following && !c.flying && now.Mono >= c.doubt && c.crowd > many {
		c.wake, c.queued = max(c.wake, c.regular), false
	}
}
