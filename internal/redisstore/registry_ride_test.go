package redisstore

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// passenger is an acquire of an instance, and heartbeat a heartbeat.
func passenger(db *Store, holder, key string) *store.Rider {
	return &store.Rider{
		Lease:   db.ForRole(store.Role{Key: key, Holder: holder, TTL: 30 * time.Second, Attempt: 10 * time.Second, RestartGuard: -1}),
		Request: lease.Request{Kind: lease.Acquire, Nonce: "nonce of " + holder, HoldOff: 30 * time.Second}, Answered: func() {},
	}
}

func heartbeat(id string) store.Heartbeat {
	record := store.Instance{Incarnation: "1", Status: "active"}
	head, rest := record.Pieces(id)
	return store.Heartbeat{ID: id, Incarnation: "1", First: true, TTL: time.Minute, TakeOver: 30 * time.Second, Head: head, Rest: rest}
}

// TestHeartbeatWithAnAcquire: each is answered as if it was alone, by a server that knows no
// script, by one that knows them, and if one of the two is refused.
func TestHeartbeatWithAnAcquire(t *testing.T) {
	onClusters(t, "ns", func(t *testing.T, c *cluster) {
		ctx, db := context.Background(), c.store
		send := func(holder string) (*store.Rider, store.HeartbeatReply, error) {
			rider := passenger(db, holder, "ns:leader")
			require.True(t, db.Carries(rider.Lease))
			reply, err := db.HeartbeatWith(ctx, heartbeat(holder), rider)
			return rider, reply, err
		}
		for _, known := range []bool{false, true} {
			if !known {
				require.NoError(t, c.rdb.ScriptFlush(ctx).Err())
			}
			rider, reply, err := send("a")
			require.NoError(t, err)
			require.Equal(t, map[bool]membership.Verdict{false: membership.Joined, true: membership.Kept}[known], reply.Verdict)
			answer, err := rider.Answer()
			require.NoError(t, err)
			require.Equal(t, lease.Won, answer.Verdict, "the same campaign")
		}
		rider, reply, err := send("b")
		require.NoError(t, err)
		require.Equal(t, membership.Joined, reply.Verdict)
		require.Equal(t, 2, reply.Instances)
		answer, err := rider.Answer()
		require.NoError(t, err)
		require.Equal(t, lease.Held, answer.Verdict)
		require.Equal(t, "a", answer.Holder)

		require.NoError(t, c.rdb.Del(ctx, "ns:leader").Err())
		require.NoError(t, c.rdb.LPush(ctx, "ns:leader", "no lease").Err())
		rider, reply, err = send("b")
		require.NoError(t, err)
		require.Equal(t, membership.Kept, reply.Verdict)
		_, err = rider.Answer()
		require.ErrorIs(t, err, store.ErrMisconfigured)
		require.NoError(t, c.rdb.Del(ctx, "ns:leader", "ns:beats").Err())
		require.NoError(t, c.rdb.Set(ctx, "ns:beats", "none", 0).Err())
		rider, _, err = send("b")
		require.ErrorIs(t, err, store.ErrMisconfigured)
		_, err = rider.Answer()
		require.NoError(t, err)
	})
}

// TestWhatHeartbeatsCarry: acquires of leases that go through the same client, to the same slot,
// and only if the client reads the answers in the goroutine of its caller.
func TestWhatHeartbeatsCarry(t *testing.T) {
	client := func(change func(*redis.Options)) *Store {
		opts := &redis.Options{Addr: "127.0.0.1:1"}
		change(opts)
		rdb := redis.NewClient(opts)
		t.Cleanup(func() { _ = rdb.Close() })
		return openStore(rdb, "ns")
	}
	carries := func(db *Store, key string) bool { return db.Carries(passenger(db, "a", key).Lease) }
	one := client(func(*redis.Options) {})
	require.True(t, carries(one, "ns:leader"))
	require.True(t, carries(one, "any"))
	require.False(t, one.Carries(passenger(client(func(*redis.Options) {}), "a", "ns:leader").Lease), "another client")
	require.False(t, carries(client(func(o *redis.Options) { o.ReadTimeout = time.Minute }), "ns:leader"),
		"calls of the election end sooner, in a client of their own")

	many := openStore(redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}), "{ns}")
	t.Cleanup(func() { _ = many.rdb.Close() })
	require.True(t, carries(many, "{ns}:leader"))
	require.False(t, carries(many, "{other}:leader"))
	require.False(t, carries(many, "leader"))

	ring := openStore(redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}), "ns")
	t.Cleanup(func() { _ = ring.rdb.Close() })
	require.False(t, carries(ring, "ns:leader"))
	require.False(t, one.Carries(nil))
}
