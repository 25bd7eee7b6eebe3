//go:build unix

package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// TestSinceKeyOfAnotherTypeStopsNothing: no decision rests on the key, so that the election passes
// by whatever uses it.
func TestSinceKeyOfAnotherTypeStopsNothing(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		w.rdb.RPush(ctx, leaseKey+":since", "something", "else")
		won := a.must(ctx, t, lease.Won, acquiring(nil))
		again := a.must(ctx, t, lease.Won, acquiring(nil))
		require.Equal(t, won.Token, again.Token)
		a.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token = won.Token }))
		leader := a.must(ctx, t, lease.Held, lease.Request{Kind: askLeader})
		require.Equal(t, "a", leader.Holder)
		require.Zero(t, leader.Since)
		a.must(ctx, t, lease.Done, releasing("na", won.Token))
		require.Equal(t, "[something else] expires: false", raw(ctx, t, w.rdb)[leaseKey+":since"])
	})
}

// TestAdoptionWithoutASinceKey: the key may be evicted alone. The term then begins now, by Redis's
// clock, and not in 1970.
func TestAdoptionWithoutASinceKey(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		won := a.must(ctx, t, lease.Won, acquiring(nil))
		for _, text := range []string{"", "0", "soon"} {
			w.rdb.Del(ctx, leaseKey+":since")
			if text != "" {
				w.rdb.Set(ctx, leaseKey+":since", text, 0)
			}
			again := a.must(ctx, t, lease.Won, acquiring(nil))
			require.Equal(t, won.Token, again.Token)
			require.Equal(t, again.Now/1000, again.Since)
			since, err := w.rdb.Get(ctx, leaseKey+":since").Int64()
			require.NoError(t, err)
			require.Equal(t, again.Since, since)
			require.Positive(t, w.rdb.PTTL(ctx, leaseKey+":since").Val(), "it ends with the lease")
		}
	})
}

// TestHolderOfAnyName: any holder of the lease is reported, whatever the key says. An absent holder
// is nothing that a key can hold.
func TestHolderOfAnyName(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		dash := w.asker(oracle.Asker{ID: "-", TTL: 60_000, RestartGuard: -1})
		token := dash.must(ctx, t, lease.Won, acquiring(nil)).Token
		leader, err := dash.store.Leader(ctx)
		require.NoError(t, err)
		require.Equal(t, lease.Held, leader.Verdict)
		require.Equal(t, "-", leader.Holder)
		require.Equal(t, token, leader.Token)
		dash.must(ctx, t, lease.Done, releasing("na", token))
		leader, err = dash.store.Leader(ctx)
		require.NoError(t, err)
		require.Equal(t, lease.Unknown, leader.Verdict, "nobody")

		w.rdb.Set(ctx, leaseKey, "", time.Minute)
		leader, err = dash.store.Leader(ctx)
		require.NoError(t, err)
		require.Equal(t, lease.Held, leader.Verdict)
		require.Empty(t, leader.Holder)
		require.Zero(t, leader.Token)
		require.Zero(t, leader.Since)
		require.Positive(t, leader.Wait)
	})
}
