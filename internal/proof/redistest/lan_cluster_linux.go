package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// lanReplicaPort is the port of the second Redis on a machine of a Cluster.
const lanReplicaPort = 6380

// LANCluster is a Redis Cluster as it is deployed on three machines: each runs a master, and a
// replica of the master on the machine before it. Whichever machine is cut off, a replica of its
// master is in the majority.
type LANCluster struct {
	*LAN
	Machines []string

	addrs []string // of all servers: the masters first, then the replica of each in the same order
}

// StartCluster starts one on three nodes. It returns when every server calls the cluster healthy
// and every replica is in step. The arguments are for all servers.
func (l *LAN) StartCluster(t TB, machines []string, args ...string) *LANCluster {
	t.Helper()
	binary, dir := lanServer(t)
	c := &LANCluster{LAN: l, Machines: machines}
	start := func(machine string, port int) {
		t.Helper()
		addr := net.JoinHostPort(l.Addr(machine), strconv.Itoa(port))
		data := filepath.Join(dir, fmt.Sprint(machine, "-", port))
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatalf("redistest: %v", err)
		}
		serve := []string{
			"--bind", "0.0.0.0", "--protected-mode", "no", "--port", strconv.Itoa(port), "--save", "", "--dir", data,
			"--repl-diskless-sync-delay", "0", "--repl-timeout", "5", "--repl-ping-replica-period", "1",
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-announce-ip", l.Addr(machine),
			"--cluster-node-timeout", strconv.FormatInt(DownAfter.Milliseconds(), 10), "--cluster-replica-validity-factor", "0",
		}
		l.nodes[machine].run(t, port, binary, append(serve, args...)...)
		c.addrs = append(c.addrs, addr)
	}
	for _, machine := range machines {
		start(machine, lanRedisPort)
	}
	for i := range machines {
		start(machines[(i+1)%len(machines)], lanReplicaPort)
	}
	for i, addr := range c.addrs[:len(machines)] {
		share := 16384/len(machines) + 1
		c.must(t, "share the slots", c.ask(addr, func(ctx context.Context, r *redis.Client) error {
			return r.ClusterAddSlotsRange(ctx, i*share, min((i+1)*share, 16384)-1).Err()
		}))
	}
	c.must(t, "know each other", poll(2*readyBound, c.introduce))
	for i, replica := range c.addrs[len(machines):] {
		c.must(t, "replicate", poll(readyBound, func() error {
			return c.ask(replica, func(ctx context.Context, r *redis.Client) error {
				return r.ClusterReplicate(ctx, c.self(c.addrs[i]).id).Err()
			})
		}))
	}
	c.Settle(t)
	return c
}

// introduce is nil when every server knows all others. Those that do not are introduced again: a
// handshake that takes longer than a node's time-out is forgotten.
func (c *LANCluster) introduce() error {
	var unknown error
	for _, addr := range c.addrs {
		known, shaking := 0, false
		for _, n := range c.view(addr) {
			known++
			shaking = shaking || strings.Contains(n.flags, "handshake")
		}
		if known == len(c.addrs) && !shaking {
			continue
		}
		unknown = fmt.Errorf("%s knows %d servers", addr, known)
		if shaking {
			continue
		}
		for _, other := range c.addrs {
			host, port, _ := net.SplitHostPort(other)
			err := c.ask(addr, func(ctx context.Context, r *redis.Client) error { return r.ClusterMeet(ctx, host, port).Err() })
			unknown = errors.Join(unknown, err)
		}
	}
	return unknown
}

// Settle returns when every server calls the cluster healthy, each master has its replica and each
// replica is in step.
func (c *LANCluster) Settle(t TB) {
	t.Helper()
	c.must(t, "settle", poll(2*readyBound, func() error {
		for _, addr := range c.addrs {
			err := c.ask(addr, func(ctx context.Context, r *redis.Client) error {
				state, err := r.ClusterInfo(ctx).Result()
				if err != nil {
					return err
				}
				info, err := r.Info(ctx, "replication").Result()
				switch {
				case err != nil:
					return err
				case !strings.Contains(state, "cluster_state:ok"):
					return fmt.Errorf("%s does not call the cluster healthy", addr)
				case !strings.Contains(info, "connected_slaves:1") && !strings.Contains(info, "master_link_status:up"):
					return fmt.Errorf("%s has no replica, and is none in step", addr)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func (c *LANCluster) must(t TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("redistest: a cluster on machines of its own: %s: %v", what, err)
	}
}

// ask talks to a server from its own machine, which no partition keeps apart.
func (c *LANCluster) ask(addr string, fn func(context.Context, *redis.Client) error) error {
	client := redis.NewClient(&redis.Options{Addr: addr, Dialer: c.Dialer(c.machine(addr)), MaxRetries: -1, ReadTimeout: adminBound})
	ctx, cancel := context.WithTimeout(context.Background(), adminBound)
	defer cancel()
	return errors.Join(fn(ctx, client), client.Close())
}

// machine is the one that a server runs on; "" if it is none of these.
func (c *LANCluster) machine(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	for _, machine := range c.Machines {
		if c.Addr(machine) == host {
			return machine
		}
	}
	return ""
}

// view is what a server knows of all.
func (c *LANCluster) view(addr string) (nodes []clusterNode) {
	_ = c.ask(addr, func(ctx context.Context, r *redis.Client) error {
		text, err := r.ClusterNodes(ctx).Result()
		nodes = clusterNodes(text)
		return err
	})
	return nodes
}

// self is what a server knows of itself.
func (c *LANCluster) self(addr string) (self clusterNode) {
	for _, n := range c.view(addr) {
		if strings.Contains(n.flags, "myself") {
			self = n
		}
	}
	return self
}

// Client is a client on a node; it is closed with the test. It gives up early on servers that do
// not answer: with the default options go-redis dials each of them five times before it asks
// another one for the slots, and took up to 25 s to find a new master after a partition.
func (c *LANCluster) Client(t TB, node string) *redis.ClusterClient {
	t.Helper()
	opts := &redis.ClusterOptions{Addrs: c.addrs, Dialer: c.Dialer(node), DialTimeout: time.Second, ReadTimeout: time.Second}
	clientopts.Set(opts, "DialerRetries", 1)
	client := redis.NewClusterClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Slot is the slot of a key.
func (c *LANCluster) Slot(t TB, key string) (slot int64) {
	t.Helper()
	c.must(t, "slot of a key", c.ask(c.addrs[0], func(ctx context.Context, r *redis.Client) (err error) {
		slot, err = r.ClusterKeySlot(ctx, key).Result()
		return err
	}))
	return slot
}

// OwnerBy is the machine that has the master of a slot, as the first Redis of a machine knows it;
// "" if that does not answer or knows of none.
func (c *LANCluster) OwnerBy(machine string, slot int64) string {
	for _, n := range c.view(net.JoinHostPort(c.Addr(machine), strconv.Itoa(lanRedisPort))) {
		if strings.Contains(n.flags, "master") && n.owns(slot) {
			return c.machine(n.addr)
		}
	}
	return ""
}
