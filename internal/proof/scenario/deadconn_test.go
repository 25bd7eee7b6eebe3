//go:build unix

package scenario

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// Every connection of the pool has died without a sign, as behind a firewall that has forgotten
// them, while new ones work. The client has the defaults of go-redis. No attempt on a connection of
// the pool is answered, and there are more of them than a lease has attempts: the term goes on by
// the second copy of a renewal, which goes over a connection of its own.
func TestP12_PooledConnectionsThatDiedWithoutASign(t *testing.T) {
	const idle = 8
	s := newStage(t, 3*time.Second)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr(), PoolSize: 2 * idle})
	t.Cleanup(func() { _ = client.Close() })
	leader := s.join("leader", client, young, func(o *tenure.Options) { o.Election.RetryInterval = time.Second })
	s.leads(leader)
	fill(t, client, idle)
	before, _ := leader.Term()
	proxy.Blackhole()
	proxy.HealNew()
	s.holds(2*s.ttl, "the same term", func() bool {
		now, ok := leader.Term()
		return ok && now.Token == before.Token
	})
}

// fill leaves at least n idle connections in the pool of a client.
func fill(t *testing.T, client *redis.Client, n int) {
	t.Helper()
	var all []*redis.Conn
	var mu sync.Mutex
	var crew sync.WaitGroup
	for range n {
		crew.Go(func() { // ends with its answer
			conn := client.Conn()
			if err := conn.Ping(t.Context()).Err(); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, conn)
		})
	}
	crew.Wait()
	for _, conn := range all {
		_ = conn.Close()
	}
	if stats := client.PoolStats(); int(stats.IdleConns) < n {
		t.Fatalf("%d idle connections, want %d", stats.IdleConns, n)
	}
}
