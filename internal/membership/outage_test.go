package membership

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// outage is a leader that sweeps and one instance beside it, in front of one Redis that is away for
// a while. A request is answered at once, or after a bit.
type outage struct {
	random       *rand.Rand
	timing       SweepTiming
	began, ended time.Duration
	silent       bool // Redis does not answer while it is away, else it answers with an error
	lost         bool // it takes one heartbeat only
	writes       bool // it answers who only reads
	late         bool // it begins with a heartbeat, the worst moment

	now, beaten time.Duration // beaten: when Redis took the last heartbeat
	beat        *Beat
	sweep       *Sweep
	crowd       int
}

func (o *outage) between(low, high time.Duration) time.Duration {
	return low + time.Duration(o.random.Float64()*float64(high-low))
}

// away reports whether the outage goes on.
func (o *outage) away() bool { return !o.late && o.now >= o.began && o.now < o.ended }

// redis reads Redis's clock.
func (o *outage) redis() int64 { return (24*time.Hour + o.now).Milliseconds() }

// run plays until the time, or until the instance is marked. It sends heartbeats if beats says so.
func (o *outage) run(until time.Duration, beats bool) (marked bool) {
	var failing *Heartbeat // fails at failsAt
	var failsAt, askAt time.Duration
	for o.now < until {
		switch {
		case failing != nil && o.now >= failsAt:
			o.beat.Failed(o.now, *failing, false)
			failing = nil
		case beats && failing == nil && o.beat.Wait(o.now) == 0:
			h, due := o.beat.Next(o.now)
			if o.late && o.now >= o.began {
				o.late = false
				o.began, o.ended = o.now, o.ended+o.now-o.began
			}
			if due && o.away() {
				failing, failsAt = &h, o.now
				if o.silent || o.lost {
					failsAt += h.Bound
				}
				if o.lost {
					o.ended = o.now // the next one arrives
				}
			} else if due {
				answer := taken(Kept, o.redis())
				answer.Instances = o.crowd
				if h.NotAfter < answer.Now {
					answer.Verdict = Stale
				} else {
					o.beaten = o.now
				}
				o.beat.Answer(o.now, h, answer)
			}
		case o.now >= askAt:
			if o.ask(&askAt) {
				return true
			}
		default:
			next := askAt
			if failing != nil {
				next = min(next, failsAt)
			} else if beats {
				next = min(next, o.now+o.beat.Wait(o.now))
			}
			o.now = max(next, o.now+1)
		}
	}
	return false
}

// ask has the leader ask its next question, and sets when it asks the one after that.
func (o *outage) ask(next *time.Duration) (marked bool) {
	q, due := o.sweep.Next(o.now)
	if !due {
		*next = o.now + max(o.sweep.Wait(o.now), 1)
		return false
	}
	trip := min(o.between(0, o.timing.Heartbeat/100), o.timing.Interval/100)
	switch {
	case o.away() && !o.lost && (!o.writes || q.Kind == Judge || q.Kind == Adopt):
		if o.silent {
			trip = MaxBound
		}
		o.sweep.Failed(o.now+trip, q)
	case q.Kind == Look:
		p := Page{Now: o.redis()}
		if o.now-o.beaten >= o.sweep.Silence() {
			p.IDs = []string{"a"}
		}
		o.sweep.Looked(o.now+trip, q, p)
	case q.Kind == Judge:
		marked = q.Mark && o.now-o.beaten >= o.timing.Drifted
		o.sweep.Judged(o.now+trip, q, 0)
	case q.Kind == Scan:
		o.sweep.Scanned(q, nil, "0")
	}
	*next = o.now + trip
	return marked
}

// TestOutagesMarkNobody: with a DriftedAfter of 2.25 heartbeats, a sweep and 3 s no outage has a
// living instance marked, however long it is and whether Redis answers with errors, not at all, or
// refuses only writes; nor has one lost heartbeat with two heartbeats and any sweep. An instance
// that stays silent after that is marked.
func TestOutagesMarkNobody(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 6))
	for round := range 30_000 {
		o := &outage{random: random, silent: random.IntN(2) == 0, late: random.IntN(4) > 0, lost: round%4 == 0, writes: round%4 == 1, crowd: random.IntN(2) * random.IntN(100_000)}
		beat := time.Duration(float64(100*time.Millisecond) * math.Pow(36_000, random.Float64())) // up to an hour
		sweep := time.Duration(float64(beat) * math.Pow(200, random.Float64()-0.9))               // from a hundredth of it up to twice
		o.timing = SweepTiming{Heartbeat: beat, Interval: max(sweep, 100*time.Millisecond), TTL: 10 * beat}
		o.timing.Drifted = beat*9/4 + o.timing.Interval + MaxBound
		if o.lost {
			o.timing.Drifted = 2 * beat
		}
		if random.IntN(2) == 0 {
			o.timing.Drifted += o.between(0, 2*beat)
		}
		o.timing.Down = o.timing.Drifted + time.Millisecond
		o.began = 6*beat + 3*o.timing.Interval + o.between(0, 4*beat)
		o.ended = o.began + o.between(0, o.timing.Interval+beat) + time.Duration(random.IntN(2))*o.between(0, 3*o.timing.Drifted)
		extreme := func() float64 { // as a rule
			return min(max(random.NormFloat64()/2+float64(random.IntN(2)), 0), math.Nextafter(1, 0))
		}
		o.beat, o.sweep = NewBeat(0, beat, extreme), NewSweep(0, o.timing)

		marked := o.run(o.ended+4*beat+o.timing.Drifted, true)
		require.False(t, marked, "marked %v after its last heartbeat: %+v", o.now-o.beaten, o)
		silent := o.now
		marked = o.run(silent+o.timing.Drifted+3*beat+3*o.timing.Interval, false)
		require.True(t, marked, "%v after its last heartbeat it is not marked: %+v", o.now-o.beaten, o)
	}
}
