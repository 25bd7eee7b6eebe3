package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// wayStore is a store whose renewals travel with those of its way.
type wayStore struct {
	store.Lease
	way any
}

func (s wayStore) Way() any { return s.way }

func (wayStore) RenewAll(context.Context, []store.Renewal, func([]int)) {}

func (wayStore) RenewAllAside(context.Context, []store.Renewal, func([]int)) {}

// TestWhoTravelsTogether: renewals of one way, second copies apart from first ones, at most
// maxTogether of them, for as long as the one with the most time.
func TestWhoTravelsTogether(t *testing.T) {
	var due togetherRenewals
	renew := lease.Request{Kind: lease.Renew}
	loop := func(way any) *electionLoop {
		return &electionLoop{electionConfig: electionConfig{store: wayStore{way: way}}}
	}
	require.False(t, due.add(loop("a"), lease.Request{Kind: lease.Acquire}, time.Second, false))
	require.False(t, due.add(loop(nil), renew, time.Second, false))
	for _, bound := range []time.Duration{2 * time.Second, 5 * time.Second, 3 * time.Second} {
		require.True(t, due.add(loop("a"), renew, bound, false))
	}
	require.True(t, due.add(loop("b"), renew, time.Second, false))
	require.True(t, due.add(loop("a"), renew, time.Second, true))
	for range maxTogether {
		require.True(t, due.add(loop("a"), renew, time.Second, false))
	}
	type group struct {
		way   any
		aside bool
		size  int
		bound time.Duration
	}
	var groups []group
	for _, g := range due.groups {
		require.Len(t, g.of, len(g.all))
		groups = append(groups, group{g.way, g.aside, len(g.all), g.bound})
	}
	require.Equal(t, []group{{"a", false, maxTogether, 5 * time.Second}, {"b", false, 1, time.Second}, {"a", true, 1, time.Second}, {"a", false, 3, time.Second}}, groups)
}
