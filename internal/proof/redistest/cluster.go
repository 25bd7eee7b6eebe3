//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster of three masters with a replica each.
type Cluster struct{ Nodes []*Server }

// StartCluster starts one that ends with the test. It returns when every node calls it healthy.
func StartCluster(t TB, opts ...Option) *Cluster {
	t.Helper()
	c := new(Cluster)
	opts = append([]Option{Args("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout",
		strconv.FormatInt(DownAfter.Milliseconds(), 10), "--cluster-replica-validity-factor", "0", "--repl-ping-replica-period", "1")}, opts...)
	for range 6 {
		c.Nodes = append(c.Nodes, Start(t, opts...))
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("redistest: start a cluster: %s: %v", what, err)
		}
	}
	for i, node := range c.Nodes {
		must("meet", c.meet(i))
		if i < 3 {
			must("share the slots", node.admin(func(ctx context.Context, r *redis.Client) error {
				return r.ClusterAddSlotsRange(ctx, i*5462, min(i*5462+5461, 16383)).Err()
			}))
		}
	}
	must("know each other", poll(readyBound, func() error {
		for i, node := range c.Nodes {
			known, shaking := 0, false
			for _, n := range c.view(node) {
				known++
				shaking = shaking || strings.Contains(n.flags, "handshake")
			}
			if known == len(c.Nodes) && !shaking {
				continue
			}
			if !shaking { // a handshake that takes longer than a node's time-out is forgotten
				if err := c.meet(i); err != nil {
					return err
				}
			}
			return fmt.Errorf("a node knows %d", known)
		}
		return nil
	}))
	for i, node := range c.Nodes[3:] {
		must("replicate", poll(readyBound, func() error {
			return node.admin(func(ctx context.Context, r *redis.Client) error {
				return r.ClusterReplicate(ctx, c.id(c.Nodes[i])).Err()
			})
		}))
	}
	c.Settle(t)
	return c
}

// meet introduces a node to those before it.
func (c *Cluster) meet(i int) error {
	return c.Nodes[i].admin(func(ctx context.Context, r *redis.Client) error {
		for _, other := range c.Nodes[:i] {
			if err := r.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(other.port)).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Options returns new options of a client.
func (c *Cluster) Options() *redis.ClusterOptions {
	o := new(redis.ClusterOptions)
	for _, node := range c.Nodes {
		o.Addrs = append(o.Addrs, node.Addr())
	}
	return o
}

// Client returns a client with the default options that is closed with the test.
func (c *Cluster) Client(t TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(c.Options())
	t.Cleanup(func() { _ = client.Close() }) // it has nothing to say
	return client
}

// clusterNode is a line of CLUSTER NODES.
type clusterNode struct {
	id, addr, master string
	flags            string
	epoch            int
	slots            []string
}

// view is what a node knows of all.
func (c *Cluster) view(node *Server) (nodes []clusterNode) {
	_ = node.admin(func(ctx context.Context, r *redis.Client) error {
		text, err := r.ClusterNodes(ctx).Result()
		nodes = clusterNodes(text)
		return err
	})
	return nodes
}

// clusterNodes reads the answer to CLUSTER NODES.
func clusterNodes(text string) (nodes []clusterNode) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 8 {
			addr, _, _ := strings.Cut(f[1], "@")
			epoch, _ := strconv.Atoi(f[6])
			nodes = append(nodes, clusterNode{id: f[0], epoch: epoch, addr: addr, flags: f[2], master: f[3], slots: f[8:]})
		}
	}
	return nodes
}

func (c *Cluster) id(of *Server) string {
	for _, n := range c.view(of) {
		if strings.Contains(n.flags, "myself") {
			return n.id
		}
	}
	return ""
}

// Slot is the slot of a key.
func (c *Cluster) Slot(key string) (slot int64) {
	for _, node := range c.Nodes {
		err := node.admin(func(ctx context.Context, r *redis.Client) (err error) {
			slot, err = r.ClusterKeySlot(ctx, key).Result()
			return err
		})
		if err == nil {
			return slot
		}
	}
	return -1
}

// selves are the nodes that answer, as each sees itself: what others say of it may be old.
func (c *Cluster) selves() map[*Server]clusterNode {
	selves := map[*Server]clusterNode{}
	for _, node := range c.Nodes {
		for _, n := range c.view(node) {
			if strings.Contains(n.flags, "myself") {
				selves[node] = n
			}
		}
	}
	return selves
}

// Owner is the master of a slot and a replica of it; nil if there is none. Of two that call it
// theirs the younger one counts.
func (c *Cluster) Owner(slot int64) (master, replica *Server) {
	selves := c.selves()
	for node, n := range selves {
		if strings.Contains(n.flags, "master") && n.owns(slot) && (master == nil || n.epoch > selves[master].epoch) {
			master = node
		}
	}
	for node, n := range selves {
		if master != nil && n.master == selves[master].id {
			replica = node
		}
	}
	return master, replica
}

func (n *clusterNode) owns(slot int64) bool {
	for _, text := range n.slots {
		from, to, ranged := strings.Cut(text, "-")
		if !ranged {
			to = from
		}
		low, err1 := strconv.ParseInt(from, 10, 64)
		high, err2 := strconv.ParseInt(to, 10, 64)
		if err1 == nil && err2 == nil && low <= slot && slot <= high {
			return true
		}
	}
	return false
}

// Failover makes the replica of a slot's master the master, in order (CLUSTER FAILOVER), and
// returns when it is.
func (c *Cluster) Failover(t TB, slot int64) {
	t.Helper()
	old, _ := c.Owner(slot)
	err := poll(2*readyBound, func() error {
		master, replica := c.Owner(slot)
		if master != nil && master != old {
			return nil
		}
		if replica == nil {
			return errors.New("there is no replica")
		}
		err := replica.admin(func(ctx context.Context, r *redis.Client) error { return r.ClusterFailover(ctx).Err() })
		return errors.Join(errors.New("the master has not changed yet"), err)
	})
	if err != nil {
		t.Fatalf("redistest: CLUSTER FAILOVER: %v", err)
	}
}

// AwaitOwner returns when a slot has another master than old.
func (c *Cluster) AwaitOwner(t TB, slot int64, old *Server) {
	t.Helper()
	err := poll(2*readyBound, func() error {
		if master, _ := c.Owner(slot); master == nil || master == old {
			return errors.New("no other node has taken over")
		}
		return nil
	})
	if err != nil {
		t.Fatalf("redistest: no failover: %v", err)
	}
}

// Settle returns when every node calls the cluster healthy and each master has a replica that is in
// step.
func (c *Cluster) Settle(t TB) {
	t.Helper()
	err := poll(2*readyBound, func() error {
		for _, node := range c.Nodes {
			err := node.admin(func(ctx context.Context, r *redis.Client) error {
				text, err := r.ClusterInfo(ctx).Result()
				if err == nil && !strings.Contains(text, "cluster_state:ok") {
					err = errors.New("the cluster is not healthy")
				}
				return err
			})
			if err != nil {
				return err
			}
			info, err := node.info("replication")
			if err != nil {
				return err
			}
			if info["role"] == "master" && info["connected_slaves"] != "1" || info["role"] == "slave" && info["master_link_status"] != "up" {
				return fmt.Errorf("%s: %s with %s replicas, link %q", node.Addr(), info["role"], info["connected_slaves"], info["master_link_status"])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
}

// Migrate moves a slot to another master, step by step: meanwhile clients are answered with ASK,
// and with TRYAGAIN if keys of one script lie on both sides. between is called after each step.
func (c *Cluster) Migrate(t TB, slot int64, between func()) {
	t.Helper()
	from, _ := c.Owner(slot)
	var to, third *Server
	for node, n := range c.selves() {
		if strings.Contains(n.flags, "master") && node != from {
			to, third = node, to
		}
	}
	if from == nil || to == nil {
		t.Fatalf("redistest: slot %d cannot be moved", slot)
	}
	fromID, toID := c.id(from), c.id(to)
	step := func(on *Server, args ...any) {
		t.Helper()
		err := on.admin(func(ctx context.Context, r *redis.Client) error { return r.Do(ctx, args...).Err() })
		if err != nil {
			t.Fatalf("redistest: migrate slot %d: %v: %v", slot, args, err)
		}
	}
	step(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	step(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	between()
	for moved := true; moved; {
		var keys []string
		err := from.admin(func(ctx context.Context, r *redis.Client) (err error) {
			keys, err = r.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
			return err
		})
		if err != nil {
			t.Fatalf("redistest: migrate slot %d: %v", slot, err)
		}
		if moved = len(keys) > 0; moved {
			step(from, "MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "REPLACE", "KEYS", keys[0])
			between()
		}
	}
	step(to, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	step(from, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	if third != nil {
		step(third, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

// Remove has a node leave the cluster, as redis-cli --cluster del-node does: the others forget it,
// and it knows of no other then. It must hold no keys.
func (c *Cluster) Remove(t TB, node *Server) {
	t.Helper()
	id := c.id(node)
	for _, other := range c.Nodes {
		forget := func(ctx context.Context, r *redis.Client) error { return r.ClusterForget(ctx, id).Err() }
		if other == node {
			continue
		}
		if err := other.admin(forget); err != nil && !strings.Contains(err.Error(), "forget my master") { // its replica stays without one
			t.Fatalf("redistest: CLUSTER FORGET: %v", err)
		}
	}
	if err := node.admin(func(ctx context.Context, r *redis.Client) error { return r.ClusterResetSoft(ctx).Err() }); err != nil {
		t.Fatalf("redistest: CLUSTER RESET: %v", err)
	}
}
