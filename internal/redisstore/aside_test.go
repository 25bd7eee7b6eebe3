package redisstore

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
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
	send := func(all []store.Renewal) int {
		var answered []int
		store.SendAll(t.Context(), all, true, func(places []int) { answered = append(answered, places...) })
		slices.Sort(answered)
		return len(slices.Compact(answered))
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

	server.SetError("LOADING wait")
	require.Equal(t, 50, send(all))
	for _, r := range all {
		require.ErrorContains(t, r.Err, "LOADING wait")
	}
	server.SetError("")

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

// option is an option of a client, in text; "": this version of go-redis has it not.
func option(opts *redis.Options, name string) string {
	f := reflect.ValueOf(opts).Elem().FieldByName(name)
	if !f.IsValid() {
		return ""
	}
	return fmt.Sprint(f.Interface())
}

// TestAsideIsForOneCall: the client beside the pool has one connection and one try, and waits for
// nothing longer than it was told to, whatever the application has chosen for its own client, which
// stays as it is.
func TestAsideIsForOneCall(t *testing.T) {
	server := miniredis.RunT(t)
	dialed := 0
	opts := &redis.Options{
		Addr: server.Addr(), Protocol: 2, DisableIdentity: true, PoolSize: 7, MaxIdleConns: 3, MaxActiveConns: 9, MaxRetries: 4, DialTimeout: time.Minute, PoolTimeout: time.Minute,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed++
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
	clientopts.Set(opts, "DialerRetries", 6)
	clientopts.Set(opts, "PipelinePoolSize", 5)
	client := redis.NewClient(opts)
	defer client.Close()
	hooked := 0
	client.AddHook(namedHook{func(string) error { hooked++; return nil }})
	db := openStore(client, "ns")
	before := *client.Options()
	const bound = 20 * time.Second
	own, err := db.aside(t.Context(), "ns:leader", bound)
	require.NoError(t, err)
	aside := own.rdb.(*redis.Client)
	defer aside.Close()
	o := aside.Options()
	for name, waits := range map[string]time.Duration{"read": o.ReadTimeout, "write": o.WriteTimeout, "dial": o.DialTimeout, "pool": o.PoolTimeout} {
		require.Equal(t, bound, waits, name)
	}
	require.True(t, o.ContextTimeoutEnabled)
	require.Equal(t, []int{0, 1, 0, 0, 0}, []int{o.MaxRetries, o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns})
	for name, want := range map[string]string{"DialerRetries": "1", "PipelinePoolSize": "-1", "ClientSideCache": "<nil>", "ClientSideCacheConfig": "<nil>"} {
		if got := option(o, name); got != "" {
			require.Equal(t, want, got, name)
		}
	}
	if f := reflect.ValueOf(o).Elem().FieldByName("MaintNotificationsConfig"); f.IsValid() {
		require.Equal(t, "disabled", fmt.Sprint(f.Elem().FieldByName("Mode")))
	}
	require.NoError(t, aside.Ping(t.Context()).Err())
	require.Equal(t, 1, dialed, "by the dialer of the application")
	require.Zero(t, hooked)
	require.NotSame(t, db.renewals, own.renewals, "it waits for no call of the pool")
	require.NotSame(t, db.elects, own.elects)
	require.Equal(t, []int{before.PoolSize, before.MaxRetries}, []int{client.Options().PoolSize, client.Options().MaxRetries})
	require.Equal(t, before.ReadTimeout, client.Options().ReadTimeout)

	for _, bound := range []time.Duration{0, -time.Second} {
		_, err = db.aside(t.Context(), "ns:leader", bound)
		require.ErrorIs(t, err, errNoAside, "a call without a bound might never end")
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, errBroken }})
	defer cluster.Close()
	_, err = openStore(cluster, "{ns}").aside(t.Context(), "{ns}:leader", bound)
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.NotErrorIs(t, err, errNoAside)
}

// roleOf is the default role of a namespace.
func roleOf(client redis.UniversalClient, namespace string) *Lease {
	return openStore(client, namespace).ForRole(store.Role{
		Key: namespace + ":leader", Holder: "me", TTL: 30 * time.Second, Attempt: 10 * time.Second, RestartGuard: -1,
	})
}
