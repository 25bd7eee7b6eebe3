//go:build unix

package redisstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// TestP2_TokenOfALostGrantIsNotGrantedAgain: tokens lie ahead of Redis's clock, which was set back;
// a failover loses the last grant; and its leader never reclaims it, since it is on its way out.
// Whatever it asks last is heard.
func TestP2_TokenOfALostGrantIsNotGrantedAgain(t *testing.T) {
	const ahead = 3_000_000_000_000
	lastWords := map[string]struct {
		want    lease.Verdict
		request func(token int64) lease.Request
	}{
		"draining renewal": {lease.Lost, func(token int64) lease.Request {
			return renewing(func(r *lease.Request) { r.Token, r.Draining = token, true })
		}},
		"late renewal": {lease.Stale, func(token int64) lease.Request {
			return renewing(func(r *lease.Request) { r.Token, r.NotAfter = token, 1 })
		}},
		"late acquire": {lease.Stale, func(token int64) lease.Request {
			return acquiring(func(r *lease.Request) { r.Floor, r.NotAfter = token, 1 })
		}},
		"release":                          {lease.Done, func(token int64) lease.Request { return releasing("na", token) }},
		"release of a campaign that lasts": {lease.Done, func(token int64) lease.Request { return lease.Request{Kind: lease.Release, Nonce: "n0", Floor: token} }},
	}
	for name, last := range lastWords {
		t.Run(name, func(t *testing.T) {
			onBothRedis(t, func(t *testing.T, w *leaseCluster) {
				ctx, a, b := t.Context(), w.candidateA(), w.candidateB()
				w.rdb.HSet(ctx, leaseKey+":term", "token", ahead, "released", "1", "origin", w.here())
				before, err := w.dump(ctx)
				require.NoError(t, err)
				lost := a.must(ctx, t, lease.Won, acquiring(nil)).Token
				require.EqualValues(t, ahead+1, lost)

				require.NoError(t, w.load(ctx, before)) // what the replica had
				a.must(ctx, t, last.want, last.request(lost))
				next := b.must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Nonce = "nb" })).Token
				require.Greater(t, next, lost)
			})
		})
	}
}

// TestP12_ReplicaDeposesNobody: a replica that only reads may lag behind. That it knows nothing of
// a lease is no refusal.
func TestP12_ReplicaDeposesNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("starts redis-servers")
	}
	ctx := t.Context()
	master := redistest.Start(t)
	replica := redistest.Start(t, redistest.ReplicaOf(master))
	m, r := realLease(t, master), realLease(t, replica)
	for name, data := range map[string]oracle.Data{
		"nothing":           {},
		"another's lease":   {Lease: oracle.Lease{Holder: "b"}, Term: oracle.Term{Token: 42, Nonce: "nb", Holder: "b"}},
		"a foreign lease":   {Lease: oracle.Lease{Holder: "cron-7"}, Term: oracle.Term{Token: 41, Nonce: "na", Holder: "a"}},
		"a released lease":  {Term: oracle.Term{Token: 41, Nonce: "na", Holder: "a", Released: true}},
		"a vanished lease":  {Term: oracle.Term{Token: 41, Nonce: "na", Holder: "a"}},
		"a lease of ours":   {Lease: oracle.Lease{Holder: "a"}, Term: oracle.Term{Token: 41, Nonce: "na", Holder: "a"}},
		"an older campaign": {Lease: oracle.Lease{Holder: "a"}, Term: oracle.Term{Token: 40, Nonce: "older", Holder: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, m.load(ctx, data))
			replica.WaitReplicated(t)
			for _, q := range []lease.Request{renewing(nil), renewing(func(q *lease.Request) { q.Draining = true }), releasing("na", 41), releasing("na", 0)} {
				_, err := r.candidateA().ask(ctx, q)
				require.ErrorIs(t, err, store.ErrUnreachable, "%+v", q)
				require.ErrorContains(t, err, "READONLY")
			}
		})
	}
}
