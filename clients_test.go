package tenure

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// An asynchronous AutoPipeliner returns nil from Process before the command has run. What the
// command says counts: that the server does not know the script, and that there is none.
func TestAsynchronousClient(t *testing.T) {
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer client.Close()
	pipeliner, err := client.AsyncAutoPipeline()
	require.NoError(t, err)
	var c checker
	opts := Options{Namespace: "{ns}", InstanceID: "me"}.complete(&c)
	store := newRedisStore(pipeliner, &c, opts)
	require.NoError(t, c.err())
	reply, err := store.ForRole(opts.Election.role(opts.Namespace, "me")).Leader(t.Context())
	require.NoError(t, err, "NOSCRIPT is heard of, and the script sent")
	require.Empty(t, reply.Holder)
	_, _, err = store.Instance(t.Context(), "me")
	require.ErrorIs(t, err, ErrNotFound)
	server.SetError("LOADING wait")
	_, err = store.ForRole(opts.Election.role(opts.Namespace, "me")).Leader(t.Context())
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "LOADING wait", "and not that the reply is malformed")
}

// A call of an election ends with its attempt, also with a client that would wait for ever: its
// connection, and its place among the calls in flight, are free again.
func TestCallsOfAnElectionEndWithTheirAttempt(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0") // connections stand, and nothing is answered
	require.NoError(t, err)
	defer mute.Close()
	client := redis.NewClient(&redis.Options{Addr: mute.Addr().String(), ReadTimeout: -1, MaxRetries: -1, Protocol: 2, DisableIdentity: true})
	defer client.Close()
	var c checker
	opts := Options{Namespace: "tenure", InstanceID: "me", Election: ElectionOptions{LeaseTTL: minLeaseTTL}}.complete(&c)
	store := newRedisStore(client, &c, opts)
	require.NoError(t, c.err())
	done := make(chan error, 1)
	go func() {
		_, err := store.ForRole(opts.Election.role(opts.Namespace, "me")).Leader(context.Background())
		done <- err
	}()
	select {
	case err := <-done:
		require.ErrorIs(t, err, ErrUnreachable)
	case <-time.After(20 * time.Second):
		t.Fatal("the call hangs")
	}
}
