//go:build unix

package main

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/bench/internal/contender"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// store is what keeps the lease. Candidates reach it through proxies only.
type store interface {
	addr() string
	expiry() time.Time // when the lease ends unless it is renewed; zero: there is none
	freeze() (thaw func())
}

// redisStore is a redis-server of its own for each run.
type redisStore struct {
	t      redistest.TB
	server *redistest.Server
	admin  *redis.Client
}

func newRedisStore(t redistest.TB) *redisStore {
	server := redistest.Start(t)
	return &redisStore{t: t, server: server, admin: server.Client(t)}
}

func (s *redisStore) addr() string { return s.server.Addr() }

// expiry takes the key that lives longest: the server has no keys but those of the one lock.
func (s *redisStore) expiry() time.Time {
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
		if left > 0 {
			end = latest(end, time.Now().Add(left))
		}
	}
	return end
}

func (s *redisStore) freeze() (thaw func()) {
	s.server.Pause(s.t)
	return sync.OnceFunc(func() { s.server.Resume(s.t) })
}

func (s *redisStore) flush() {
	if err := s.admin.FlushAll(context.Background()).Err(); err != nil {
		s.t.Fatalf("flushall: %v", err)
	}
}

// leaseStore is the stand-in for the API server of Kubernetes.
type leaseStore struct {
	*contender.Leases
	server *httptest.Server
}

func newLeaseStore(t redistest.TB) *leaseStore {
	leases := contender.NewLeases()
	server := httptest.NewServer(leases)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return &leaseStore{Leases: leases, server: server}
}

func (s *leaseStore) addr() string          { return strings.TrimPrefix(s.server.URL, "http://") }
func (s *leaseStore) expiry() time.Time     { return s.Expiry() }
func (s *leaseStore) freeze() (thaw func()) { return sync.OnceFunc(s.Freeze()) }
