//go:build unix

package contender

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// Store is what keeps the lease. Candidates reach it through proxies only.
type Store interface {
	// Addr is what those proxies connect to.
	Addr() string
	// WaitAge waits until it has run for that many seconds.
	WaitAge(seconds int)
	// Expiry is when the lease ends unless it is renewed; zero: there is none.
	Expiry() time.Time
	// Freeze lets every request wait until thaw is called.
	Freeze() (thaw func())
}

// NewStore starts a store of the kind that the candidates of c need: a [*RedisStore], or a
// [*LeaseStore]. It ends with t.
func (c Contender) NewStore(t redistest.TB) Store {
	if c.Kubernetes {
		return newLeaseStore(t)
	}
	return newRedisStore(t)
}

// RedisStore is a redis-server of its own.
type RedisStore struct {
	*redistest.Server
	t     redistest.TB
	admin *redis.Client
}

func newRedisStore(t redistest.TB) *RedisStore {
	server := redistest.Start(t)
	return &RedisStore{Server: server, t: t, admin: server.Client(t)}
}

// WaitAge implements [Store].
func (s *RedisStore) WaitAge(seconds int) { s.WaitUptime(s.t, seconds) }

// Expiry takes the key that lives longest: the server has no keys but those of the one lock.
func (s *RedisStore) Expiry() time.Time {
	ctx := context.Background()
	keys, err := s.admin.Keys(ctx, "*").Result()
	if err != nil {
		s.t.Fatalf("keys: %v", err)
	}
	var end time.Time
	for _, key := range keys {
		left, err := s.admin.PTTL(ctx, key).Result()
		if err != nil {
			s.t.Fatalf("pttl %s: %v", key, err)
		}
		if at := time.Now().Add(left); left > 0 && at.After(end) {
			end = at
		}
	}
	return end
}

// Freeze implements [Store].
func (s *RedisStore) Freeze() (thaw func()) {
	s.Pause(s.t)
	return sync.OnceFunc(func() { s.Resume(s.t) })
}

// Flush deletes all that it keeps.
func (s *RedisStore) Flush() {
	if err := s.admin.FlushAll(context.Background()).Err(); err != nil {
		s.t.Fatalf("flushall: %v", err)
	}
}

// LeaseStore is the stand-in for the API server of Kubernetes.
type LeaseStore struct {
	*Leases
	server *httptest.Server
}

func newLeaseStore(t redistest.TB) *LeaseStore {
	leases := NewLeases()
	server := httptest.NewServer(leases)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &LeaseStore{Leases: leases, server: server}
}

// Addr implements [Store].
func (s *LeaseStore) Addr() string { return strings.TrimPrefix(s.server.URL, "http://") }

// WaitAge implements [Store]. Its age is of no matter to leader election.
func (*LeaseStore) WaitAge(int) {}
