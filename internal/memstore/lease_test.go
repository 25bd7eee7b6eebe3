package memstore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// What an earlier campaign asks late changes nothing of a newer one.
func TestP5_EarlierCampaign(t *testing.T) {
	control := NewLeases(true, NewMemory(func() lease.Reading { return lease.Reading{} }), nil)
	l := control.Lease(store.Role{Holder: "alone"})
	old, young := lease.Request{Nonce: "old", Floor: 1e15}, lease.Request{Nonce: "young"}
	ask := func(call func(context.Context, lease.Request) (store.LeaseReply, error), r lease.Request) store.LeaseReply {
		reply, err := call(context.Background(), r)
		require.NoError(t, err)
		return reply
	}
	first := ask(l.Acquire, old)
	require.Equal(t, lease.Won, first.Verdict)
	require.Equal(t, int64(1e15)+1, first.Token, "past every token that was ever seen")
	require.Equal(t, lease.Held, ask(l.Acquire, young).Verdict)
	require.Equal(t, lease.Done, ask(l.Release, old).Verdict)
	second := ask(l.Acquire, young)
	require.Equal(t, lease.Won, second.Verdict)
	require.Greater(t, second.Token, first.Token)
	require.Equal(t, lease.Held, ask(l.Acquire, old).Verdict)
	require.Equal(t, lease.Lost, ask(l.Renew, old).Verdict)
	require.Equal(t, lease.Done, ask(l.Release, old).Verdict)
	require.Equal(t, lease.Kept, ask(l.Renew, young).Verdict)
	control.Refuse("")
	require.Equal(t, lease.Held, ask(l.Acquire, young).Verdict)
	require.Equal(t, lease.Lost, ask(l.Renew, young).Verdict)
	reply, err := l.Leader(context.Background())
	require.NoError(t, err)
	require.Empty(t, reply.Holder)
}

// TestForeignRolesAreNotKept: whoever reads the lease of a role that this process does not have
// leaves nothing behind.
func TestForeignRolesAreNotKept(t *testing.T) {
	control := NewLeases(true, NewMemory(func() lease.Reading { return lease.Reading{} }), nil)
	_, err := control.Lease(store.Role{Name: "own", Holder: "alone"}).Acquire(t.Context(), lease.Request{Nonce: "n"})
	require.NoError(t, err)
	for _, role := range []string{"own", "made-up"} {
		reply, err := control.Foreign(store.Role{Name: role, Holder: "alone"}).Leader(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, lease.Held, reply.Verdict)
	}
	require.Len(t, control.stores, 1)
	require.False(t, control.Free(), "the own lease was not replaced")
}
