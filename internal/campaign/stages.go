//go:build unix

package campaign

import (
	"context"
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
	authority := redistest.NewAuthority(w.TB)
	w.server = redistest.Start(w.TB, redistest.Secured(authority))
	w.fleet = newFleet(w.TB, setup{Namespace: namespace, TTL: w.stage.ttl, CA: authority.PEM(w.TB)}, w.server.Addr())
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

// Missing says why a stage cannot run on this machine; "" where it can.
func (s *Stage) Missing() string {
	if s.Name == "clock" && !redistest.HasClocks() {
		return "libfaketime is not installed"
	}
	return ""
}

func clocked(w *world) {
	clock, option := redistest.NewClock(w.TB)
	w.clock, w.server = clock, redistest.Start(w.TB, option)
	w.fleet = newFleet(w.TB, setup{Namespace: namespace, TTL: w.stage.ttl}, w.server.Addr())
}
