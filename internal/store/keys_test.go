package store

import (
	"slices"
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
