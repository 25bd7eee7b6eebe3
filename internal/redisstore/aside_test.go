package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// A call aside the pool needs no connection of it, leaves none behind, and is what the client is
// else: its dialer, its server.
func TestAskAside(t *testing.T) {
	server := miniredis.RunT(t)
	single := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, PoolTimeout: 100 * time.Millisecond, MaxRetries: -1})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}, PoolSize: 1, MaxRetries: -1})
	for name, client := range map[string]redis.UniversalClient{"{single}": single, "{cluster}": cluster} {
		t.Run(name, func(t *testing.T) {
			defer client.Close()
			role := roleOf(client, name)
			if client == single { // the application has its only connection
				taken := single.Conn()
				defer taken.Close()
				require.NoError(t, taken.Ping(t.Context()).Err())
			}
			if client == cluster {
				_, err := role.Leader(t.Context())
				require.NoError(t, err)
			}
			before := server.CurrentConnectionCount()
			reply, err := role.AskAside(t.Context(), lease.Request{Kind: lease.Acquire, Nonce: "nonce", Bound: 20 * time.Second})
			require.NoError(t, err)
			require.Equal(t, lease.Won, reply.Verdict)
			require.Eventually(t, func() bool { return server.CurrentConnectionCount() == before }, 20*time.Second, time.Millisecond)
		})
	}
	other := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer other.Close()
	pipeliner := simnet.AutoPipeliner(t, other, "AsyncAutoPipeline")
	_, err := roleOf(pipeliner, "{ns}").AskAside(t.Context(), lease.Request{Kind: lease.Acquire, Nonce: "nonce", Bound: time.Second})
	require.ErrorContains(t, err, "no connection beside its pool")
}

// TestRenewAllAside: renewals of several roles travel over one connection beside the pool; each has
// its own answer, and all have the error if there is no such connection.
func TestRenewAllAside(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1, PoolTimeout: 100 * time.Millisecond, MaxRetries: -1})
	defer client.Close()
	renewals := func(db *Store) (all []store.Renewal) {
		for i := range 50 {
			role := db.ForRole(store.Role{Key: fmt.Sprint("ns:leader:r", i), Holder: "me", TTL: 30 * time.Second, Attempt: 10 * time.Second, RestartGuard: -1})
			nonce := "nonce"
			if i%2 == 1 {
				nonce = "another"
			}
			won, err := role.Acquire(t.Context(), lease.Request{Kind: lease.Acquire, Nonce: nonce, HoldOff: time.Second})
			require.NoError(t, err)
			all = append(all, store.Renewal{Lease: role, Request: lease.Request{
				Kind: lease.Renew, Nonce: "nonce", Token: won.Token, HoldOff: time.Second, Bound: 20 * time.Second,
			}})
		}
		return all
	}
	send := func(all []store.Renewal) (answered int) {
		store.SendAll(t.Context(), all, true, func(places []int) { answered += len(places) })
		return answered
	}
	all := renewals(openStore(client, "ns"))
	taken := client.Conn()
	defer taken.Close()
	require.NoError(t, taken.Ping(t.Context()).Err())
	before := server.TotalConnectionCount()
	require.Equal(t, 50, send(all))
	require.Equal(t, before+1, server.TotalConnectionCount())
	for i, r := range all {
		require.NoError(t, r.Err)
		require.Equal(t, map[bool]lease.Verdict{true: lease.Kept, false: lease.Lost}[i%2 == 0], r.Reply.Verdict, i)
	}
	require.Eventually(t, func() bool { return server.CurrentConnectionCount() == 1 }, 20*time.Second, time.Millisecond)

	other := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer other.Close()
	require.NoError(t, taken.Close())
	all = renewals(openStore(client, "ns"))
	for i := range all {
		all[i].Lease = openStore(simnet.AutoPipeliner(t, other, "AsyncAutoPipeline"), "ns").ForRole(store.Role{Key: fmt.Sprint("ns:leader:r", i), Holder: "me", TTL: 30 * time.Second, RestartGuard: -1})
	}
	require.Equal(t, 50, send(all))
	for _, r := range all {
		require.ErrorContains(t, r.Err, "no connection beside its pool")
	}
}

// roleOf is the default role of a namespace.
func roleOf(client redis.UniversalClient, namespace string) *Lease {
	return openStore(client, namespace).ForRole(store.Role{
		Key: namespace + ":leader", Holder: "me", TTL: 30 * time.Second, Attempt: 10 * time.Second, RestartGuard: -1,
	})
}
