//go:build unix

package redistest

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

func TestSentinelFailsOver(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	t.Parallel()
	s := StartSentinel(t)
	client := redis.NewFailoverClient(s.Options())
	defer client.Close()
	set := func() {
		t.Helper()
		if err := poll(readyBound, func() error { return client.Set(t.Context(), "a", "b", 0).Err() }); err != nil {
			t.Fatal(err)
		}
	}
	set()
	s.Failover(t)
	set()
	s.Settle(t)
	old := s.Master()
	old.Kill(t)
	s.AwaitMaster(t, old)
	set()
	old.Start(t)
	s.Settle(t)
}

func TestClusterFailsOverAndMigrates(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	t.Parallel()
	c := StartCluster(t)
	options := c.Options()
	clientopts.Set(options, "ClusterStateReloadInterval", time.Second) // a crash is found at the next look
	client := redis.NewClusterClient(options)
	defer client.Close()
	set := func() {
		t.Helper()
		if err := poll(readyBound, func() error { return client.Set(context.Background(), "{x}a", "b", 0).Err() }); err != nil {
			t.Fatal(err)
		}
	}
	set()
	slot := c.Slot("{x}a")
	c.Failover(t, slot)
	set()
	c.Settle(t)
	steps := 0
	c.Migrate(t, slot, func() { steps++; set() })
	if steps < 2 {
		t.Errorf("%d steps", steps)
	}
	set()
	old, _ := c.Owner(slot)
	old.Kill(t)
	c.AwaitOwner(t, slot, old)
	set()
	old.Start(t)
	c.Settle(t)
}
