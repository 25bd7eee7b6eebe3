//go:build unix

package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/bench/internal/contender"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	clusterTTL = 3 * time.Second
	followers  = 10
	idleFor    = 10 * time.Second
	startBound = 30 * time.Second
	// storeAge is how old a redis-server is before candidates join: tenure grants nothing on a
	// younger one.
	storeAge = 5
)

// member is a candidate of a cluster.
type member struct {
	contender.Candidate
	proxy *redistest.Proxy
	stop  func()
}

// cluster is one holder and its followers, each behind a proxy of its own.
type cluster struct {
	redistest.TB
	who     contender.Contender
	store   contender.Store
	ttl     time.Duration
	members []*member
	sent    atomic.Int64 // requests of all to Redis
	joined  int
}

// requests is how many all members have made so far.
func (c *cluster) requests() int {
	leases, ok := c.store.(*contender.LeaseStore)
	if !ok {
		return int(c.sent.Load())
	}
	n := 0
	for joined := range c.joined {
		n += leases.Requests(id(joined))
	}
	return n
}

func id(joined int) string { return string(rune('a'+joined%26)) + string(rune('a'+joined/26)) }

func (c *cluster) join() {
	proxy := redistest.NewProxy(c.TB, c.store.Addr())
	if !c.who.Kubernetes {
		proxy.ScriptedReply(func([]string) ([]byte, bool) { // answers nothing, counts
			c.sent.Add(1)
			return nil, false
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	candidate, err := c.who.New(ctx, contender.Config{Addr: proxy.Addr(), ID: id(c.joined), TTL: c.ttl})
	c.joined++
	if err != nil {
		cancel()
		c.Fatalf("%s: %v", c.who.Name, err)
	}
	ended := make(chan struct{})
	go func() { // ends with ctx; stop waits for it, not for ever
		defer close(ended)
		candidate.Run(ctx)
	}()
	m := &member{Candidate: candidate, proxy: proxy, stop: func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(startBound):
		}
	}}
	c.members = append(c.members, m)
	c.Cleanup(m.stop)
}

// leader waits for a member, other than one, whose leader work runs, and returns when it began: a
// look at all now and then is too coarse for what takes a millisecond.
func (c *cluster) leader(but *member) (*member, time.Time) {
	for end := time.Now().Add(startBound); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, m := range c.members {
			if m != but && m.Belief().Work {
				return m, m.Began()
			}
		}
	}
	c.Fatalf("%s: nobody leads within %v", c.who.Name, startBound)
	return nil, time.Time{}
}

func (c *cluster) leave(m *member) {
	c.members = slices.DeleteFunc(c.members, func(other *member) bool { return other == m })
}

// measureCluster watches one holder and ten followers of each library.
func measureCluster(o options, p *page) error {
	all := contender.All()
	var names []string
	for _, who := range all {
		names = append(names, who.Name)
	}
	t := p.table("One leader and ten followers", "Lease 3 s, renewed each second; each process has a client of its own. *Idle* is all that the eleven send; at tenure's default "+
		"lease of 30 s it is 2.2 requests a second. *Hand-over*: the holder stops in order, until another one leads. *Take-over*: the holder is cut off, from the end of its lease until another one leads. "+
		"client-go keeps its lease in a stand-in for the API server of Kubernetes, in memory: its figures say what the library waits for, not what etcd costs.", names...)
	return redistest.Do(func(tb redistest.TB) {
		for range o.rounds {
			for _, who := range all {
				if err := redistest.Do(func(tb redistest.TB) { watch(tb, t, who) }); err != nil {
					tb.Fatalf("%v", err)
				}
			}
		}
		for _, r := range t.rows {
			if r.name == "hand-over, ms" {
				t.plot, t.file = r, "performance-hand-over.svg"
			}
		}
	})
}

func watch(tb redistest.TB, t *table, who contender.Contender) {
	c := &cluster{TB: tb, who: who, store: who.NewStore(tb), ttl: clusterTTL}
	c.store.WaitAge(storeAge)
	for range followers + 1 {
		c.join()
	}
	leader, _ := c.leader(nil)
	time.Sleep(clusterTTL)
	before := c.requests()
	time.Sleep(idleFor)
	t.row("idle, requests per second", "%.1f").add(who.Name, float64(c.requests()-before)/idleFor.Seconds())

	var handed []float64
	for range 9 {
		began := time.Now()
		go leader.stop() // ends within its bound; the next round does not wait for it
		next, at := c.leader(leader)
		handed = append(handed, micro(at.Sub(began))/1000)
		c.leave(leader)
		c.join()
		leader = next
		time.Sleep(clusterTTL / 2)
	}
	t.row("hand-over, ms", "%.1f").add(who.Name, middle(handed))

	var taken []float64
	for range 2 {
		end := c.store.Expiry()
		leader.proxy.Blackhole()
		next, at := c.leader(leader)
		taken = append(taken, micro(at.Sub(end))/1000)
		leader.stop()
		c.leave(leader)
		c.join()
		leader = next
		time.Sleep(clusterTTL / 2)
	}
	t.row("take-over beyond the lease's end, ms", "%.1f").add(who.Name, middle(taken))
}

func middle(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}
