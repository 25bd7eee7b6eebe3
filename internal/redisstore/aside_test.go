package redisstore

import (
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

// roleOf is the default role of a namespace.
func roleOf(client redis.UniversalClient, namespace string) *Lease {
	return openStore(client, namespace).ForRole(store.Role{
		Key: namespace + ":leader", Holder: "me", TTL: 30 * time.Second, Attempt: 10 * time.Second, RestartGuard: -1,
	})
}
