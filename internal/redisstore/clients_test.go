package redisstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

func TestLikelyCause(t *testing.T) {
	slow := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	for _, test := range []struct {
		tls  bool
		err  error
		says string // "": nothing is guessed
	}{
		{false, fmt.Errorf("HELLO: %w", io.EOF), needsTLS},
		{false, slow, ""},
		{false, errBroken, ""},
		{true, tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, noTLS},
		{true, slow, noTLS},
		{true, io.EOF, ""},
	} {
		err := (&Store{tls: test.tls}).explain("beat", test.err)
		require.ErrorIs(t, err, store.ErrUnreachable)
		require.Equal(t, test.says, store.FixOf(err), "TLS %v: %v", test.tls, test.err)
	}
}

// Client and server that do not agree on TLS: the error says what it likely is, whichever way
// round.
func TestTLSOnOneSideIsNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	ask := func(server *redistest.Server, change func(*redis.Options)) (*Store, error) {
		opts := server.Options()
		opts.MaxRetries, opts.DialerRetries, opts.DialTimeout = -1, 1, 500*time.Millisecond
		change(opts)
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		db := openStore(client, "tenure")
		_, err := db.ForRole(store.Role{Key: "tenure:leader", Holder: "me", TTL: 30 * time.Second, Attempt: 10 * time.Second}).Leader(context.Background())
		return db, err
	}
	authority := redistest.NewAuthority(t)
	db, err := ask(redistest.Start(t, redistest.Secured(authority)), func(o *redis.Options) { o.TLSConfig = nil })
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorContains(t, err, "fix: "+needsTLS)
	require.Empty(t, db.Silence())
	db, err = ask(redistest.Start(t), func(o *redis.Options) { o.TLSConfig = authority.Trusted() })
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorContains(t, err, "fix: "+noTLS)
	require.Equal(t, noTLS, db.Silence())
}
