package agenda

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgenda: whatever is set, moved and removed, the first is the earliest.
func TestAgenda(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var a Agenda[int]
	entries, times := make([]Entry[int], 50), map[int]int64{}
	for i := range entries {
		entries[i].Owner = i
	}
	for range 20_000 {
		i := r.IntN(len(entries))
		if r.IntN(3) == 0 {
			a.Remove(&entries[i])
			delete(times, i)
		} else {
			times[i] = r.Int64N(40)
			a.Set(&entries[i], times[i])
		}
		owner, at, ok := a.First()
		require.Equal(t, len(times) > 0, ok)
		if ok {
			require.Equal(t, times[owner], at)
		}
		for _, other := range times {
			require.LessOrEqual(t, at, other)
		}
	}
	for last := int64(0); len(times) > 0; {
		owner, at, _ := a.First()
		require.GreaterOrEqual(t, at, last)
		last = at
		a.Remove(&entries[owner])
		delete(times, owner)
	}
	_, _, ok := a.First()
	require.False(t, ok)
}
