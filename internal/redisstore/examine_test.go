package redisstore

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestInfoWithoutReplication: what INFO does not say of replicas is not known. It is no answer that
// there are none.
func TestInfoWithoutReplication(t *testing.T) {
	for text, known := range map[string]bool{
		"redis_version:7.0.15\r\nused_memory:1\r\n":       false,
		"role:master\r\nconnected_slaves:0\r\n":           true,
		"role:slave\r\nconnected_slaves:2\r\n":            true,
		"role:master\r\nconnected_slaves:\r\n":            false,
		"role:master\r\nconnected_slaves:not telling\r\n": false,
	} {
		f := store.Facts{Settings: map[string]string{}}
		readInfo(&f, text)
		require.Equal(t, known, f.Replication, text)
	}
}

// TestServer: a Redis, and a Valkey, say what they are; one that refuses INFO is not known.
func TestServer(t *testing.T) {
	c := miniCluster(t, "ns")
	var answer string
	c.mini.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
		if cmd != "INFO" {
			return false
		}
		if answer == "" {
			peer.WriteError("NOPERM this user has no permissions to run the 'info' command")
		} else {
			peer.WriteBulk(answer)
		}
		return true
	})
	_, err := c.store.Server(t.Context())
	require.ErrorIs(t, err, store.ErrMisconfigured)
	for text, want := range map[string]store.Server{
		"# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:90\r\n":                  {Kind: "redis", Version: "7.0.15", Uptime: 90 * time.Second},
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1": {Kind: "valkey", Version: "8.1.1"},
		"# Server\r\nuptime_in_seconds:soon":                                            {},
	} {
		answer = text
		got, err := c.store.Server(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}
