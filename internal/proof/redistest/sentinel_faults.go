//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client returns a client of the current master, closed with the test.
func (s *Sentinel) Client(t TB) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(s.Options())
	t.Cleanup(func() { _ = client.Close() }) // it has nothing to say
	return client
}

// Replicas are the data servers that are not the master.
func (s *Sentinel) Replicas() []*Server {
	master := s.Master()
	var replicas []*Server
	for _, server := range s.Data {
		if server != master {
			replicas = append(replicas, server)
		}
	}
	return replicas
}

// HoldReplication has the replicas receive nothing more: a failover within a few seconds loses
// whatever the master is told from now on. The Sentinels have them follow again after the time of
// [Sentinel.HealAfter].
func (s *Sentinel) HoldReplication(t TB) {
	t.Helper()
	for _, replica := range s.Replicas() {
		replica.must(t, "hold replication", replica.replicate(refusingHost, refusingPort))
		replica.must(t, "hold replication", poll(readyBound, func() error {
			info, err := replica.info("replication")
			if err == nil && (info["master_port"] != refusingPort || info["master_link_status"] != "down") {
				err = fmt.Errorf("replication is %v", info)
			}
			return err
		}))
	}
}

// HealAfter sets for how long the Sentinels look on until they tell a server what it has to be: a
// second master that came back takes writes for so long and up to a second more, a replica that
// follows nobody stays one. By default that is 8 s and up to 10 s more.
func (s *Sentinel) HealAfter(t TB, d time.Duration) {
	t.Helper()
	const periods = 4 // of publishing pass before a Sentinel enforces a configuration
	s.debug(t, "PUBLISH-PERIOD", d/periods)
}

// debug sets times of the Sentinels that no configuration file has: names and durations.
func (s *Sentinel) debug(t TB, settings ...any) {
	t.Helper()
	cmd := []any{"SENTINEL", "DEBUG"}
	for _, setting := range settings {
		if d, ok := setting.(time.Duration); ok {
			setting = d.Milliseconds()
		}
		cmd = append(cmd, setting)
	}
	var failed []error
	for _, w := range s.Watchers {
		failed = append(failed, w.admin(func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, cmd...).Err() }))
	}
	if err := errors.Join(failed...); err != nil {
		t.Fatalf("redistest: %v: %v", cmd, err)
	}
}
