package lease

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRedisClock: what took long says less than what did not, unless that is old, or they
// contradict each other.
func TestRedisClock(t *testing.T) {
	var c RedisClock
	ms := time.Millisecond
	c.Learn(0, 10*ms, 1000)
	require.Equal(t, int64(1000), c.Read(5*ms))
	require.Equal(t, int64(1095), c.Read(100*ms))
	require.Equal(t, 400*ms, c.Until(1500, 105*ms))
	require.Equal(t, -600*ms, c.Until(500, 105*ms))
	require.Equal(t, 100*365*24*time.Hour, c.Until(math.MaxInt64, 5*ms))

	c.Learn(100*ms, 300*ms, 1250) // off by 55 ms, sure to 100 ms
	require.Equal(t, int64(1000), c.base)
	require.Equal(t, 300*ms, c.heard)
	c.Learn(20*time.Second, 20*time.Second+300*ms, 21200) // the old one is worth no more than this by now
	require.Equal(t, int64(21200), c.base)
	c.Learn(21*time.Second, 21*time.Second+10*ms, 22000)
	require.Equal(t, int64(22000), c.base)
	c.Learn(22*time.Second, 23*time.Second, 90000) // a step is believed
	require.Equal(t, int64(90000), c.base)
}

// TestRedisClockBelievesTheLatestNews: a reply that was made before a step, and comes after it, is
// no step back.
func TestRedisClockBelievesTheLatestNews(t *testing.T) {
	var c RedisClock
	s := time.Second
	require.Zero(t, c.Learn(0, 0, 1_000_000))
	require.Zero(t, c.Learn(10*s, 10*s, 1_010_000))
	require.Equal(t, time.Hour, c.Learn(20*s, 20*s, 1_020_000+3_600_000))
	require.Zero(t, c.Learn(17*s, 21*s, 1_018_000))
	require.Equal(t, int64(1_030_000+3_600_000), c.Read(30*s))
	require.Equal(t, -time.Hour, c.Learn(40*s, 40*s, 1_040_000))
}

// TestLateAnswerIsNoStep: a request that was held up says what Redis's clock read when it arrived
// at last, which may be at the very end of the time that it took. The clocks have gone apart until
// then.
func TestLateAnswerIsNoStep(t *testing.T) {
	const redis = int64(1_700_000_000_000)
	at := func(local time.Duration) int64 { return redis + (local + local*9/1000).Milliseconds() } // as fast as it may be
	var c RedisClock
	c.Learn(20*time.Second, 20*time.Second+2*time.Millisecond, at(20*time.Second))
	for _, sent := range []time.Duration{18 * time.Second, 20 * time.Second, 25 * time.Second} {
		arrived := sent + 12*time.Second
		if step := c.Learn(sent, arrived+time.Millisecond, at(arrived)); step != 0 {
			t.Errorf("sent at %v, answered at %v: a step by %v", sent, arrived, step)
		}
		if off := c.Read(arrived) - at(arrived); max(off, -off) > 200 {
			t.Errorf("sent at %v: the estimate is off by %d ms", sent, off)
		}
	}
}
