//go:build unix

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	inNamespace = 100 // instances
	masters     = 3
	batchRoles  = 100
)

// many is namespaces on a Redis Cluster.
type many struct {
	*fleet
	o       options
	cluster *redistest.Cluster
	meters  []*meter
	names   []string
}

// measureCluster has more and more namespaces on one Cluster.
func measureCluster(tb redistest.TB, o options, p *page) {
	files, err := openFiles()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	progress("a Cluster")
	x := &many{o: o, cluster: redistest.StartCluster(tb, redistest.Args("--maxclients", strconv.Itoa(files-200)))}
	for _, node := range x.cluster.Nodes {
		x.meters = append(x.meters, newMeter(tb, node))
	}
	x.fleet = newFleet(tb, o)
	bus := x.bus()
	base, _ := x.shares(o.window / 3)
	each := inNamespace
	if most := o.namespaces[len(o.namespaces)-1]; o.instances < each*most {
		each = max(2, o.instances/most)
	}
	t := p.table("A Redis Cluster", fmt.Sprintf("Three masters, each with a replica. Namespaces of %d instances at the default intervals; the instances of a namespace share a pool, each has its own subscription. Without what the nodes do when idle.", each))
	var cost, checked float64
	for _, count := range o.namespaces {
		progress("%d namespaces", count)
		x.grow(count, each)
		before := x.sent.read()
		ofMasters, ofReplicas := x.shares(o.window * 3 / 4) // a heartbeat of each
		now, total := x.sent.read(), 0.0
		for k := range kinds {
			total += float64(now[k] - before[k])
		}
		cost = max(0, ofMasters-base) / float64(count)
		checked = float64(now[checks]-before[checks]) / (o.window * 3 / 4).Seconds() / float64(count*each)
		t.add(fmt.Sprintf("%d namespaces: requests a second, a namespace", count), "%.1f", "flat", total/(o.window*3/4).Seconds()/float64(count))
		t.add("all masters, % of a core", "%.1f", "", 100*(ofMasters-base))
		t.add("of it a namespace, ms a second", "%.2f", "flat", 1000*cost)
		t.add("a request, µs of all masters", "%.0f", "flat", 1e6*max(0, ofMasters-base)*(o.window*3/4).Seconds()/max(1, total))
		t.add("all replicas, % of a core", "%.1f", "", 100*ofReplicas)
	}
	p.constants.set(cpuNamespace, 1e6*cost*inNamespace/float64(each))
	p.constants.set(cpuBus, micro(bus))
	p.constants.set(checksRest, checked)
	t.add("a message that is published, on each other node", "%.1f µs", "", micro(bus))
	x.batches(t)
	x.failOver(t)
}

// bus measures what a message that is published on one node costs each other one: in a Cluster all
// nodes are told.
func (x *many) bus() time.Duration {
	const messages, batch = 20_000, 200
	ctx := context.Background()
	before := make([]reading, len(x.meters))
	for n, m := range x.meters {
		before[n] = m.now()
	}
	for range messages / batch {
		pipe := x.meters[0].client.Pipeline()
		for range batch {
			pipe.Publish(ctx, "nobody", "012345678901234567890123456789")
		}
		if _, err := pipe.Exec(ctx); err != nil {
			x.Fatalf("%v", err)
		}
	}
	time.Sleep(time.Second)
	var spent time.Duration
	for n, m := range x.meters[1:] {
		spent += m.now().cpu - before[n+1].cpu
	}
	return spent / time.Duration(messages*(len(x.meters)-1))
}

// shares are of a core: what all masters, and all replicas, take over a while.
func (x *many) shares(over time.Duration) (ofMasters, ofReplicas float64) {
	before := make([]reading, len(x.meters))
	for n, m := range x.meters {
		before[n] = m.now()
	}
	time.Sleep(over)
	for n, m := range x.meters {
		now := m.now()
		share := (now.cpu - before[n].cpu).Seconds() / (now.at - before[n].at).Seconds()
		if n < masters {
			ofMasters += share
		} else {
			ofReplicas += share
		}
	}
	return ofMasters, ofReplicas
}

func (x *many) client() (*redis.ClusterClient, *tap) {
	opts := x.cluster.Options()
	opts.PoolSize, opts.DialerRetries, opts.ReadTimeout = 10, 1, 5*time.Second
	client, t := redis.NewClusterClient(opts), &tap{sent: &x.sent}
	client.OnNewNode(func(node *redis.Client) { node.AddHook(t) })
	x.Cleanup(func() { _ = client.Close() })
	return client, t
}

// grow starts namespaces until there are so many, and returns when all that has caused is over.
func (x *many) grow(count, each int) {
	for len(x.names) < count {
		name := fmt.Sprintf("{scale-%d}", len(x.names))
		x.names = append(x.names, name)
		client, t := x.client()
		for range each {
			x.start(client, t, name)
		}
		x.await(name+" is registered", func() bool {
			registered, err := client.ZCard(context.Background(), name+":beats").Result()
			return err == nil && int(registered) == each
		})
	}
	x.await("each namespace has a leader", func() bool {
		for _, token := range x.terms() {
			if token == "" {
				return false
			}
		}
		return true
	})
	time.Sleep(x.o.aftermath())
}

// terms are the tokens of the namespaces: another one is another term.
func (x *many) terms() map[string]string {
	tokens := make(map[string]string)
	for _, name := range x.names {
		_, node := x.owner(name)
		token, err := node.client.HGet(context.Background(), name+":leader:term", "token").Result()
		if err != nil {
			token = ""
		}
		tokens[name] = token
	}
	return tokens
}

func (x *many) owner(name string) (*redistest.Server, *meter) {
	master, _ := x.cluster.Owner(x.cluster.Slot(name))
	for n, node := range x.cluster.Nodes {
		if node == master {
			return node, x.meters[n]
		}
	}
	x.Fatalf("no master of %s", name)
	return nil, nil
}

// batches measures whether the renewals of a process travel together in a Cluster.
func (x *many) batches(t *table) {
	progress("the renewals of one process")
	var names []string
	for n := range batchRoles - 1 {
		names = append(names, fmt.Sprintf("role-%d", n))
	}
	client, mine := x.client()
	mine.sent = new(counts)
	leader := x.start(client, mine, "{scale-batch}", names...)
	x.await("all roles are led", func() bool { return leads(leader) == batchRoles })
	time.Sleep(x.o.aftermath())
	sent, trips := mine.sent.kinds[renewals].Load(), mine.sent.trips.Load()
	time.Sleep(x.o.window)
	travelled := float64(mine.sent.kinds[renewals].Load()-sent) / max(1, float64(mine.sent.trips.Load()-trips))
	t.add(fmt.Sprintf("renewals a round trip, a process that leads %d roles of a slot", batchRoles), "%.0f", "", travelled)
}

// failOver kills a master, and looks whose terms end.
func (x *many) failOver(t *table) {
	progress("a fail-over of a master")
	lost, _ := x.owner(x.names[0])
	before := x.terms()
	slots := make(map[string]bool) // namespaces of that master
	for _, name := range x.names {
		owner, _ := x.owner(name)
		slots[name] = owner == lost
	}
	lost.Kill(x)
	x.cluster.AwaitOwner(x, x.cluster.Slot(x.names[0]), lost)
	lease := leaseTTL
	if x.o.lease > 0 {
		lease = x.o.lease
	}
	time.Sleep(lease + lease/3)
	changed := map[bool]int{}
	after := x.terms()
	for name, token := range before {
		if after[name] != token {
			changed[slots[name]]++
		}
	}
	there := 0
	for _, on := range slots {
		if on {
			there++
		}
	}
	t.add("a master is killed: terms that end of the namespaces on other masters", "%s", "0", fmt.Sprintf("%d of %d", changed[false], len(slots)-there))
	t.add("of those on it", "%s", "0", fmt.Sprintf("%d of %d", changed[true], there))
}
