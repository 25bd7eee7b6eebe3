package store

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRelated: the leases that share a key with one are those that it is related to.
func TestRelated(t *testing.T) {
	var leases []string
	for _, base := range []string{"a", "a:b", "a:terms:b", "a:events:x"} {
		for _, one := range append(leaseParts(base), base+":other") {
			leases = append(leases, leaseParts(one)...)
		}
	}
	for _, lease := range leases {
		for _, other := range leases {
			require.Equal(t, Shared(lease, other) != "", slices.Contains(Related(lease), other), "%s and %s", lease, other)
		}
	}
}

// TestTaken: a lease shares no key or channel with what the namespace has beside leases.
func TestTaken(t *testing.T) {
	k := Keys("ns")
	for _, key := range []string{
		k.Instances(), k.Beats(), k.Words(), k.Hold(), k.Removed(), k.Lost(), k.Told(), k.Tasks(), k.Triggers(), k.Events(), k.Commands(), k.AllMetrics(), k.Log(),
		k.Task("t"), k.Runs("t"), k.Command("c"), k.Heartbeat("i"), k.Metrics("i"), k.Own("i"), k.Inbox("i"),
	} {
		require.Equal(t, key, k.Taken(key))
		for _, suffix := range leaseParts("")[1:] {
			if lease, derived := strings.CutSuffix(key, suffix); derived {
				require.NotEmpty(t, k.Taken(lease), key)
			}
		}
	}
	for _, key := range []string{k.Lease(""), k.Lease("role"), "other", "other:events", "ns2:instances"} {
		require.Empty(t, k.Taken(key))
	}
}

// TestHashTag: as a Redis Cluster has it.
func TestHashTag(t *testing.T) {
	for key, tag := range map[string]string{
		"a": "a", "{a}b": "a", "x{a}{b}": "a", "x{a": "x{a", "x}a{": "x}a{", "{}a": "{}a", "x{}{a}": "x{}{a}", "{{a}}": "{a",
	} {
		require.Equal(t, tag, HashTag(key), key)
	}
}
