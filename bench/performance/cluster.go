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
	server  *redistest.Server
	ttl     time.Duration
	members []*member
	sent    atomic.Int64 // requests of all
	joined  int
}

func (c *cluster) join() {
	proxy := redistest.NewProxy(c.TB, c.server.Addr())
	proxy.ScriptedReply(func([]string) ([]byte, bool) { // answers nothing, counts
		c.sent.Add(1)
		return nil, false
	})
	ctx, cancel := context.WithCancel(context.Background())
	id := string(rune('a'+c.joined%26)) + string(rune('a'+c.joined/26))
	c.joined++
	candidate, err := c.who.New(ctx, contender.Config{Addr: proxy.Addr(), ID: id, TTL: c.ttl})
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
	var all []contender.Contender
	names := []string{}
	for _, who := range contender.All() {
		if !who.Kubernetes {
			all = append(all, who)
			names = append(names, who.Name)
		}
	}
	t := p.table("One leader and ten followers", "Lease 3 s, renewed each second; each process has a client of its own. *Idle* is all that the eleven send; at tenure's default "+
		"lease of 30 s it is 2.2 requests a second. *Hand-over*: the holder stops in order, until another one leads. *Take-over*: the holder is cut off, from the end of its lease until another one leads.", names...)
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
	c := &cluster{TB: tb, who: who, server: redistest.Start(tb), ttl: clusterTTL}
	asking := c.server.Client(tb)
	c.server.WaitUptime(tb, storeAge)
	for range followers + 1 {
		c.join()
	}
	leader, _ := c.leader(nil)
	time.Sleep(clusterTTL)
	before := c.sent.Load()
	time.Sleep(idleFor)
	t.row("idle, requests per second", "%.1f").add(who.Name, float64(c.sent.Load()-before)/idleFor.Seconds())

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
		keys, err := asking.Keys(context.Background(), "*").Result()
		if err != nil {
			tb.Fatalf("%v", err)
		}
		before := time.Now()
		var left time.Duration
		for _, key := range keys { // of those with an end the lease is the one that ends last
			if life, err := asking.PTTL(context.Background(), key).Result(); err == nil && life <= clusterTTL {
				left = max(left, life)
			}
		}
		leader.proxy.Blackhole()
		next, at := c.leader(leader)
		taken = append(taken, micro(at.Sub(before.Add(left)))/1000)
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
