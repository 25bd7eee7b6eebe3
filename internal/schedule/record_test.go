package schedule

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// These are stored: a change here recomputes the slots of every task there is.
func TestHashNeverChanges(t *testing.T) {
	for want, parts := range map[string][]string{
		"e3b0c44298fc1c14": nil,
		"e91d90c57156a5cc": {"every 15m0s"},
		"6190ab59c53da116": {"CRON_TZ=Europe/Berlin 30 2 * * *"},
		"3fafa1cf2f19a7c1": {"a", "bc"},
	} {
		if got := Hash(parts...); got != want {
			t.Errorf("%q: %s, want %s", parts, got, want)
		}
	}
}

func TestHashTellsPartsApart(t *testing.T) {
	seen := map[string][]string{}
	for _, parts := range [][]string{nil, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"ab", "c"}, {"a", "bc"}, {"abc"}, {"\x00"}} {
		h := Hash(parts...)
		if other, ok := seen[h]; ok || len(h) != 16 {
			t.Errorf("%q and %q: %s", parts, other, h)
		}
		seen[h] = parts
	}
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		attempt     int
		base, limit time.Duration
		jitter      float64
		want        time.Duration
	}{
		{1, time.Second, time.Minute, 0, 500 * time.Millisecond},
		{1, time.Second, time.Minute, 0.5, 750 * time.Millisecond},
		{2, time.Second, time.Minute, 0, time.Second},
		{4, time.Second, time.Minute, 0, 4 * time.Second},
		{7, time.Second, time.Minute, 0, 30 * time.Second},
		{8, time.Second, time.Minute, 0.5, 45 * time.Second},
		{math.MaxInt, time.Second, time.Minute, 0, 30 * time.Second},
		{0, time.Second, time.Minute, 0, 500 * time.Millisecond},
		{math.MinInt, time.Second, time.Minute, 0, 500 * time.Millisecond},
		{1, time.Hour, time.Minute, 0, 30 * time.Second},
		{3, time.Second, 0, 0, 2 * time.Second},
		{1000, time.Second, -1, 0, math.MaxInt64/2 + 1},
		{1000, time.Second, 0, 1, math.MaxInt64},
		{2, 25 * time.Second, time.Minute, 0, 25 * time.Second},
		{2, 1, 3, 0, 1},
		{3, 1, 3, 0, 2},
		{5, 0, time.Minute, 0.5, 0},
		{math.MaxInt, 0, time.Minute, 0.5, 0},
		{5, -time.Second, time.Minute, 0.5, 0},
		{1, 1, 1, 0.5, 1},
		{1, time.Second, time.Minute, math.NaN(), 500 * time.Millisecond},
		{1, time.Second, time.Minute, math.Inf(1), time.Second},
		{1000, time.Second, 0, math.Inf(1), math.MaxInt64},
		{1, time.Second, time.Minute, -3, 500 * time.Millisecond},
	} {
		if got := Backoff(c.attempt, c.base, c.limit, c.jitter); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestBackoffStaysWithinItsBounds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 10_000 {
		base := time.Duration(r.Int64() >> r.IntN(63))
		limit := time.Duration(r.Int64()>>r.IntN(62)) + 1
		before := time.Duration(0)
		for attempt := range 70 {
			d := Backoff(attempt+1, base, limit, 0)
			if full := Backoff(attempt+1, base, limit, r.Float64()); full < d || full > limit || full > 2*d && d < math.MaxInt64/2 {
				t.Fatalf("base %v, limit %v, attempt %d: %v is not from %v to its double", base, limit, attempt+1, full, d)
			}
			if d < before || base > 0 && d < min(base, limit)/2 {
				t.Fatalf("base %v, limit %v, attempt %d: %v after %v", base, limit, attempt+1, d, before)
			}
			before = d
		}
	}
}
