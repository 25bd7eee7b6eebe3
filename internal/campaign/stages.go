//go:build unix

package campaign

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redistest"
)

// Stages are all there are. A stage that the machine cannot hold, for want of a library, is left out with a word.
func Stages() []Stage {
	const ttl = time.Second
	return []Stage{
		{Name: "network", ttl: ttl, open: single(redistest.Persist()), actions: union(processFaults, networkFaults, serverFaults, restartFaults)},
		{Name: "data", ttl: ttl, lossy: true, open: single(), actions: union(processFaults, serverFaults, restartFaults, dataFaults)},
		{Name: "tls", ttl: ttl, open: overTLS, actions: union(processFaults, networkFaults)},
		{Name: "acl", ttl: ttl, open: limited, actions: rightFaults()},
		{Name: "memory", ttl: ttl, lossy: true, open: single(), actions: union(memoryFaults(), map[string]func(*world){"resign": processFaults["resign"]})},
		{
			Name: "clock", Outside: "Redis's clock jumps ahead within a lease", ttl: ttl, lossy: true, open: clocked,
			actions: union(clockFaults, map[string]func(*world){"resign": processFaults["resign"], "SIGKILL leader": processFaults["SIGKILL leader"]}),
		},
		{
			Name: "sentinel", ttl: 6 * time.Second, renew: time.Second, margin: 2900 * time.Millisecond, lossy: true,
			open:    sentinel("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"),
			actions: sentinelFaults,
		},
		{
			Name: "sentinel-bare", Outside: "a second master takes writes for longer than FailoverMargin", ttl: 2 * time.Second, lossy: true,
			open: sentinel(), actions: sentinelFaults,
		},
		{Name: "cluster", ttl: 2 * time.Second, lossy: true, open: clustered, actions: clusterFaults},
	}
}

func single(opts ...redistest.Option) func(*world) {
	return func(w *world) {
		w.server = redistest.Start(w, opts...)
		w.fleet = newFleet(w.TB, setup{Namespace: namespace, TTL: w.stage.ttl}, w.server.Addr())
	}
}

func overTLS(w *world) {
	s, ca := redistest.StartTLS(w.TB)
	w.server = s.Server
	w.fleet = newFleet(w.TB, setup{Namespace: namespace, TTL: w.stage.ttl, CA: ca}, s.Addr)
}

// limited has a user with exactly the rights that tenure asks for.
func limited(w *world) {
	w.server = redistest.Start(w)
	w.admin(func(ctx context.Context, c *redis.Client) error {
		args := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret"}
		for _, rule := range mustACL() {
			args = append(args, rule)
		}
		return c.Do(ctx, args...).Err()
	})
	w.fleet = newFleet(w.TB, setup{Namespace: namespace, TTL: w.stage.ttl, Username: "app", Password: "secret"}, w.server.Addr())
}

func sentinel(args ...string) func(*world) {
	return func(w *world) {
		w.sentinel = redistest.StartSentinel(w.TB, redistest.Args(args...))
		w.fleet = newFleet(w.TB, setup{
			Namespace: namespace, TTL: w.stage.ttl, Renew: w.stage.renew, Margin: w.stage.margin, Sentinels: w.sentinel.Options().SentinelAddrs,
		}, "")
	}
}

func clustered(w *world) {
	w.cluster = redistest.StartCluster(w.TB)
	w.fleet = newFleet(w.TB, setup{Namespace: namespace, TTL: w.stage.ttl, Cluster: w.cluster.Options().Addrs}, "")
}

// fakeClock is the file that libfaketime reads the offset of a server's clock from.
type fakeClock struct {
	path   string
	offset time.Duration
}

// faketime is what a server is to be preloaded with, "" where it is not installed: the library, as Debian and others keep it, and after it
// the C library, so that Redis does without jemalloc, whose first look at a clock comes before libfaketime is ready for it.
func faketime() string {
	find := func(patterns ...string) string {
		for _, pattern := range patterns {
			if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
				return found[0]
			}
		}
		return ""
	}
	library := find("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")
	libc := find("/lib/*/libc.so.6", "/lib64/libc.so.6")
	if library == "" || libc == "" {
		return ""
	}
	return library + ":" + libc
}

// Missing says why a stage cannot run on this machine; "" where it can.
func (s *Stage) Missing() string {
	if s.Name == "clock" && faketime() == "" {
		return "libfaketime is not installed"
	}
	return ""
}

func clocked(w *world) {
	dir, err := os.MkdirTemp("", "campaign-clock-")
	if err != nil {
		w.Fatalf("campaign: %v", err)
	}
	w.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.clock = &fakeClock{path: filepath.Join(dir, "offset")}
	w.clock.step(w, 0)
	w.server = redistest.Start(w.TB, redistest.Env("LD_PRELOAD="+faketime(), "FAKETIME_TIMESTAMP_FILE="+w.clock.path, "FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1"))
	w.fleet = newFleet(w.TB, setup{Namespace: namespace, TTL: w.stage.ttl}, w.server.Addr())
}

// step moves the clock.
func (c *fakeClock) step(w *world, by time.Duration) {
	c.offset += by
	next := c.path + ".next"
	if err := os.WriteFile(next, []byte(fmt.Sprintf("%+.3f", c.offset.Seconds())), 0o600); err != nil {
		w.Fatalf("campaign: %v", err)
	}
	if err := os.Rename(next, c.path); err != nil {
		w.Fatalf("campaign: %v", err)
	}
}
