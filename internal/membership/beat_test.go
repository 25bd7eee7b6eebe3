package membership

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const interval = 15 * time.Second

func half() float64 { return 0.5 }

// taken answers a heartbeat at Redis time ms.
func taken(verdict Verdict, ms int64) BeatAnswer {
	return BeatAnswer{Verdict: verdict, Now: ms, Started: ms / 1000}
}

// registered is a Beat whose first heartbeat was taken at the local time 0, Redis time 1,000 s.
func registered(t *testing.T) *Beat {
	t.Helper()
	b := NewBeat(0, interval, half)
	h, due := b.Next(0)
	require.True(t, due)
	require.Zero(t, b.Answer(0, h, taken(Stale, 1_000_000)))
	h, due = b.Next(0)
	require.True(t, due)
	require.Equal(t, BeatChange{First: true, Joined: true}, b.Answer(0, h, taken(Joined, 1_000_000)))
	return b
}

// TestFirstHeartbeatAsksForTheClock: until Redis's clock is known nothing can take effect late.
func TestFirstHeartbeatAsksForTheClock(t *testing.T) {
	b := NewBeat(time.Minute, interval, half)
	require.Zero(t, b.Wait(time.Minute))
	h, due := b.Next(time.Minute)
	require.True(t, due)
	require.Equal(t, Heartbeat{Seq: 1, First: true, NotAfter: 1, Sent: time.Minute, Bound: MaxBound}, h)
	_, due = b.Next(time.Minute)
	require.False(t, due, "one at a time")
	require.Equal(t, MaxBound-time.Second, b.Wait(time.Minute+time.Second))

	answered := time.Minute + 200*time.Millisecond
	require.Zero(t, b.Answer(answered, h, taken(Stale, 1_000_000)))
	require.Zero(t, b.Wait(answered))
	h, due = b.Next(answered)
	require.True(t, due, "now the clock is known")
	// It was 1,000 s halfway between asking and hearing, give or take 100 ms; the answer is waited
	// for 3 s.
	require.Equal(t, int64(1_000_000+100+3000-100), h.NotAfter)
	require.True(t, h.First)
	require.Equal(t, BeatChange{First: true, Joined: true}, b.Answer(answered, h, taken(Joined, 1_000_100)))

	h, due = b.Next(time.Minute + interval + time.Second)
	require.True(t, due)
	require.False(t, h.First)
	require.Equal(t, int64(1000), h.Started)
}

// TestHeartbeatThatIsTooLateTwice is a failure: Redis's clock cannot be followed.
func TestHeartbeatThatIsTooLateTwice(t *testing.T) {
	b := NewBeat(0, interval, half)
	h, _ := b.Next(0)
	require.Zero(t, b.Answer(0, h, taken(Stale, 1_000_000)))
	h, _ = b.Next(0)
	require.Equal(t, BeatChange{TooLate: true}, b.Answer(0, h, taken(Stale, 1_000_000)))
	_, due := b.Next(0)
	require.False(t, due)
	require.InDelta(t, interval/30, b.Wait(0), float64(interval/30/4))
	h, due = b.Next(interval)
	require.True(t, due)
	require.Zero(t, b.Answer(interval, h, taken(Stale, 2_000_000)), "each round has a second heartbeat")
	_, due = b.Next(interval)
	require.True(t, due)
}

// TestHeartbeatPace: the next one is due an interval after the last was sent, give or take 5 %.
func TestHeartbeatPace(t *testing.T) {
	for _, test := range []struct {
		random float64
		pause  time.Duration
	}{{0, interval * 95 / 100}, {0.5, interval}, {1, interval * 105 / 100}} {
		b := NewBeat(0, interval, func() float64 { return test.random })
		h, _ := b.Next(0)
		b.Answer(0, h, taken(Stale, 1_000_000))
		h, _ = b.Next(0)
		b.Answer(2*time.Second, h, taken(Joined, 1_000_000))
		require.Equal(t, test.pause-2*time.Second, b.Wait(2*time.Second), "counted from when it was sent")
		_, due := b.Next(test.pause - 1)
		require.False(t, due)
		_, due = b.Next(test.pause)
		require.True(t, due)
	}
}

// TestNudgedHeartbeat: what an instance says of itself is heard at once, but not beside a heartbeat
// that is on its way.
func TestNudgedHeartbeat(t *testing.T) {
	b := registered(t)
	b.Nudge()
	require.Zero(t, b.Wait(time.Second))
	h, due := b.Next(time.Second)
	require.True(t, due)
	b.Nudge()
	_, due = b.Next(time.Second)
	require.False(t, due)
	b.Answer(time.Second, h, taken(Kept, 1_001_000))
	h, due = b.Next(time.Second)
	require.True(t, due)
	b.Answer(time.Second, h, taken(Kept, 1_001_000))
	_, due = b.Next(time.Second)
	require.False(t, due)
	require.Equal(t, interval, b.Wait(time.Second))
}

// TestFailedHeartbeatIsTriedSoon: after 0.5 s, then twice as late each time up to a third of the
// interval, a quarter less at random.
func TestFailedHeartbeatIsTriedSoon(t *testing.T) {
	b := registered(t)
	now := interval
	for n, ms := range []int{500, 1000, 2000, 4000, 5000, 5000} {
		h, due := b.Next(now)
		require.True(t, due)
		b.Failed(now, h, false)
		require.Equal(t, time.Duration(ms)*time.Millisecond*7/8, b.Wait(now), n)
		now += b.Wait(now)
	}
	h, _ := b.Next(now)
	b.Answer(now, h, taken(Kept, 1_000_000+now.Milliseconds()))
	require.Equal(t, interval, b.Wait(now))
	h, _ = b.Next(now + interval)
	b.Failed(now+interval, h, true)
	require.Equal(t, interval/3*7/8, b.Wait(now+interval), "somebody has to fix it first")
	h, _ = b.Next(now + 2*interval)
	b.Failed(now+2*interval, h, false)
	require.Equal(t, interval/30*2*7/8, b.Wait(now+2*interval))

	fast := NewBeat(0, time.Millisecond, func() float64 { return 0 })
	h, _ = fast.Next(0)
	fast.Failed(0, h, false)
	require.Equal(t, time.Millisecond, fast.Wait(0), "never without a pause")
	require.Equal(t, 750*time.Microsecond, h.Bound)
}

// amid is a Beat that was answered that so many instances send heartbeats.
func amid(t *testing.T, instances int, random func() float64) *Beat {
	t.Helper()
	b := NewBeat(0, interval, random)
	h, _ := b.Next(0)
	answer := taken(Joined, 1_000_000)
	answer.Instances = instances
	require.True(t, b.Answer(0, h, answer).First)
	return b
}

// TestFailuresInACrowd: the first is tried again soon, since one lost heartbeat is no outage; to
// the pause after the second one a millisecond an instance is added, up to half an interval.
func TestFailuresInACrowd(t *testing.T) {
	for _, tt := range []struct {
		instances int
		apart     time.Duration
	}{{0, 0}, {1, time.Millisecond}, {100, 100 * time.Millisecond}, {7_499, 7_499 * time.Millisecond}, {7_500, interval / 2}, {1_000_000, interval / 2}} {
		b, now := amid(t, tt.instances, half), interval
		for range 2 {
			for n, ms := range []int{500, 1000, 2000, 4000, 5000, 5000} {
				h, _ := b.Next(now)
				b.Failed(now, h, false)
				pause := time.Duration(ms) * time.Millisecond * 7 / 8
				if n == 1 {
					pause += tt.apart / 2
				}
				require.Equal(t, pause, b.Wait(now), "%d instances, failure %d", tt.instances, n+1)
				now += pause
			}
			h, _ := b.Next(now)
			b.Answer(now, h, taken(Kept, 1_000_000)) // counts nobody: those of before are remembered
			now += interval
		}
	}
}

// TestCrowdComesBackWithinAnInterval: after an outage of any length, and not at once.
func TestCrowdComesBackWithinAnInterval(t *testing.T) {
	const crowd = 10_000
	r := rand.New(rand.NewPCG(1, 2))
	for _, away := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second, time.Minute} {
		began := 2 * interval
		back := make([]time.Duration, crowd) // after the end of the outage
		for i := range back {
			b := amid(t, crowd, r.Float64)
			now := interval + time.Duration(r.Float64()*float64(interval))
			for h, _ := b.Next(now); ; h, _ = b.Next(now) {
				if now >= began+away {
					break
				}
				if now < began {
					b.Answer(now, h, taken(Kept, 1_000_000+now.Milliseconds()))
				} else {
					b.Failed(now, h, false)
				}
				now += b.Wait(now)
			}
			back[i] = now - began - away
		}
		slices.Sort(back)
		require.Less(t, back[crowd-1], interval*106/100, "away for %v", away)
		for i, at := range back {
			next, _ := slices.BinarySearch(back, at+time.Second)
			require.Less(t, next-i, crowd/3, "heartbeats in a second from %v on, away for %v", at, away)
		}
	}
}

// TestLateAnswerToAHeartbeat changes nothing: it was given up.
func TestLateAnswerToAHeartbeat(t *testing.T) {
	b := registered(t)
	old, _ := b.Next(interval)
	b.Failed(interval, old, false)
	wait := b.Wait(interval)
	require.Zero(t, b.Answer(interval, old, taken(Recovered, 1_000_000)))
	b.Failed(interval, old, false)
	require.Equal(t, wait, b.Wait(interval))
	next, _ := b.Next(2 * interval)
	require.Zero(t, b.Answer(2*interval, old, taken(Recovered, 1_000_000)))
	require.Equal(t, BeatChange{Recovered: true}, b.Answer(2*interval, next, taken(Recovered, 1_030_000)))
}

// TestAnswersToHeartbeats: what each verdict changes.
func TestAnswersToHeartbeats(t *testing.T) {
	for verdict, change := range map[Verdict]BeatChange{
		Joined: {Joined: true}, Kept: {}, Recovered: {Recovered: true}, Overwritten: {Replaced: true}, Duplicate: {Duplicate: true},
	} {
		b := registered(t)
		h, _ := b.Next(interval)
		require.Equal(t, change, b.Answer(interval, h, taken(verdict, 1_015_000)), verdict)
		require.Equal(t, interval, b.Wait(interval), verdict)
	}
	b := NewBeat(0, interval, half)
	h, _ := b.Next(0)
	require.Equal(t, BeatChange{Duplicate: true}, b.Answer(0, h, taken(Duplicate, 1_000_000)))
	h, _ = b.Next(interval)
	require.True(t, h.First, "a duplicate is not registered")
	require.Zero(t, h.Started)
}

// TestHeartbeatProperties: whatever Redis and the network do, none takes effect after it was given
// up, and once they are sound again a heartbeat is taken within an interval and two bounds.
func TestHeartbeatProperties(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := NewBeat(0, interval, r.Float64)
		now, redis := time.Duration(0), int64(1_000_000) // Redis's clock is redis + now
		clock := func() int64 { return redis + now.Milliseconds() }
		var lastTaken time.Duration
		var abandoned Heartbeat
		for now < time.Hour {
			sound := now > 30*time.Minute
			if !sound && r.IntN(20) == 0 {
				redis += r.Int64N(200_000) - 100_000
			}
			if r.IntN(10) == 0 {
				b.Nudge()
			}
			h, due := b.Next(now)
			if !due {
				wait := b.Wait(now)
				require.Positive(t, wait, seed)
				require.LessOrEqual(t, wait, interval*105/100+1, seed)
				now += wait
				continue
			}
			trip := time.Duration(r.Int64N(int64(100 * time.Millisecond)))
			lost := !sound && r.IntN(3) == 0
			if !lost && clock()+trip.Milliseconds() <= h.NotAfter {
				lastTaken = now
			}
			switch {
			case lost:
				abandoned = h
				now += h.Bound
				b.Failed(now, h, r.IntN(2) == 0)
			case clock()+trip.Milliseconds() > h.NotAfter:
				now += trip
				b.Answer(now, h, taken(Stale, clock()))
			default:
				now += trip
				b.Answer(now, h, taken(Kept, clock()))
			}
			wait := b.Wait(now)
			b.Answer(now, abandoned, taken(Duplicate, 1)) // it comes late, and changes nothing
			require.Equal(t, wait, b.Wait(now))
			if sound && now > 31*time.Minute {
				require.Less(t, now-lastTaken, interval*105/100+2*MaxBound, seed)
			}
		}
		require.Greater(t, lastTaken, time.Hour-interval*2, seed)
	}
}

// TestSecondHeartbeatOfARound: one that came too late is sent again at once, and the next round
// counts from the first of the two.
func TestSecondHeartbeatOfARound(t *testing.T) {
	b := registered(t)
	b.Nudge()
	h, due := b.Next(time.Second)
	require.True(t, due)
	require.Equal(t, time.Second, b.Wait(3*time.Second))
	require.Zero(t, b.Wait(4*time.Second))
	require.Zero(t, b.Wait(5*time.Second), "its answer is overdue")
	require.Zero(t, b.Answer(2*time.Second, h, taken(Stale, 1_002_000)))
	require.Zero(t, b.Wait(2*time.Second))
	h, due = b.Next(3 * time.Second)
	require.True(t, due)
	require.Zero(t, b.Answer(3*time.Second, h, taken(Kept, 1_003_000)))
	require.Equal(t, interval-2*time.Second, b.Wait(3*time.Second))
}

// TestHastenedHeartbeat: one goes early if it is due within so long. The next one is due an
// interval after it, as after any other.
func TestHastenedHeartbeat(t *testing.T) {
	b := registered(t)
	require.Equal(t, interval, b.Due())
	require.False(t, b.Hasten(interval/2-1, interval/2))
	_, due := b.Next(interval/2 - 1)
	require.False(t, due)
	require.True(t, b.Hasten(interval/2, interval/2))
	h, due := b.Next(interval / 2)
	require.True(t, due)
	require.False(t, b.Hasten(interval/2, interval), "one is on its way")
	require.Equal(t, interval/2+interval/20*19, b.Due(), "while it is: no later than that")
	b.Answer(interval/2+time.Second, h, taken(Kept, 1_008_500))
	require.Equal(t, interval/2+interval, b.Due())
	require.True(t, b.Hasten(10*interval, 0), "it is long due")
}

// TestWhatIsNotHastened: the first heartbeat, those after a failure, and the second of a round.
func TestWhatIsNotHastened(t *testing.T) {
	b := NewBeat(time.Minute, interval, half)
	require.False(t, b.Hasten(time.Minute, interval))
	h, _ := b.Next(time.Minute)
	b.Answer(time.Minute, h, taken(Duplicate, 1_000_000))
	require.False(t, b.Hasten(time.Minute+interval/2, interval), "another has the ID: it is still the first")
	b = registered(t)
	h, _ = b.Next(interval)
	b.Failed(interval, h, false)
	require.False(t, b.Hasten(interval, interval), "its pause keeps a crowd apart")
	b = registered(t)
	h, _ = b.Next(interval)
	b.Answer(interval, h, taken(Stale, 2_000_000))
	require.Equal(t, interval+interval/20*19, b.Due(), "the second one counts from the first")
	_, due := b.Next(interval)
	require.True(t, due)
}
