//go:build unix

package campaign

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/redistest"
)

const namespace = "{campaign}"

// processFaults need nothing but processes.
var processFaults = map[string]func(*world){
	"SIGKILL leader":   func(w *world) { w.restart(w.chief(), (*member).kill) },
	"SIGKILL follower": func(w *world) { w.restart(w.victim(), (*member).kill) },
	"deploy leader":    func(w *world) { w.restart(w.chief(), (*member).stop) },
	"resign":           func(w *world) { w.chief().proc.Signal(w, syscall.SIGUSR1); pause(100 * time.Millisecond) },
	"SIGSTOP leader":   func(w *world) { w.chief().freeze(w.between(w.stage.ttl/2, 2*w.stage.ttl)) },
	"SIGSTOP any":      func(w *world) { w.victim().freeze(w.between(w.stage.ttl/2, 2*w.stage.ttl)) },
	"busy processors":  func(w *world) { spin(8, w.between(w.stage.ttl/2, 2*w.stage.ttl)) },
}

// networkFaults need a proxy for each member.
var networkFaults = map[string]func(*world){
	"cut":           func(w *world) { w.through(w.chief(), (*redistest.Proxy).Cut) },
	"black hole":    func(w *world) { w.through(w.chief(), (*redistest.Proxy).Blackhole) },
	"requests lost": func(w *world) { w.through(w.chief(), (*redistest.Proxy).DropRequests) },
	"replies lost":  func(w *world) { w.through(w.chief(), (*redistest.Proxy).DropReplies) },
	"requests held": func(w *world) { w.through(w.chief(), (*redistest.Proxy).HoldRequests) },
	"follower cut":  func(w *world) { w.through(w.victim(), (*redistest.Proxy).Cut) },
	"delays": func(w *world) {
		w.through(w.victim(), func(p *redistest.Proxy) {
			p.DelayRequests(w.stage.ttl/20, w.stage.ttl/4)
			p.DelayReplies(0, w.stage.ttl/4)
		})
	},
	"slow bytes": func(w *world) { w.through(w.chief(), func(p *redistest.Proxy) { p.SlowBytes(40, 5*time.Millisecond) }) },
	"reply of a script lost": func(w *world) {
		w.through(w.chief(), func(p *redistest.Proxy) {
			p.LoseReply(func(cmd []string) bool { return strings.EqualFold(cmd[0], "evalsha") })
		})
	},
	"all connections reset": func(w *world) {
		for _, m := range w.members {
			m.proxy.Reset()
		}
	},
}

// serverFaults happen to a single server without a loss of data.
var serverFaults = map[string]func(*world){
	"SCRIPT FLUSH": func(w *world) {
		w.admin(func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() })
	},
	"pub/sub killed": func(w *world) {
		w.admin(func(ctx context.Context, c *redis.Client) error {
			return c.Do(ctx, "CLIENT", "KILL", "TYPE", "pubsub").Err()
		})
	},
	"Redis SIGSTOP": func(w *world) {
		w.allIll(func() {
			w.server.Pause(w)
			pause(w.between(w.stage.ttl/4, 2*w.stage.ttl))
			w.server.Resume(w)
		})
	},
	"DEL of the lease": func(w *world) {
		w.admin(func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, namespace+":leader").Err() })
	},
}

// restartFaults kill the server; it comes back with its data or without, as the stage has it.
var restartFaults = map[string]func(*world){
	"Redis restart": func(w *world) {
		w.allIll(func() {
			w.server.Kill(w)
			pause(w.between(0, w.stage.ttl))
			w.server.Start(w)
		})
	},
}

// dataFaults lose data.
var dataFaults = map[string]func(*world){
	"FLUSHALL": func(w *world) {
		w.admin(func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
	},
	"term hash evicted": func(w *world) {
		w.admin(func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, namespace+":leader:term").Err() })
	},
}

// restart ends the process of a member one way or another and starts the next after a while.
func (w *world) restart(m *member, end func(*member)) {
	end(m)
	pause(w.between(0, 2*w.stage.ttl))
	m.start()
}

// through breaks a member's way to Redis for a while.
func (w *world) through(m *member, fault func(*redistest.Proxy)) {
	well := m.ill(false)
	fault(m.proxy)
	pause(w.between(w.stage.ttl/3, 2*w.stage.ttl))
	m.proxy.Heal()
	well()
}

// allIll does something that keeps everybody from Redis.
func (w *world) allIll(do func()) {
	var wells []func()
	for _, m := range w.members {
		wells = append(wells, m.ill(false))
	}
	do()
	for _, well := range wells {
		well()
	}
}

// admin asks the server past every fault.
func (w *world) admin(fn func(context.Context, *redis.Client) error) {
	client := redis.NewClient(w.server.Options())
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := fn(ctx, client); err != nil {
		w.Fatalf("campaign: %v", err)
	}
}

// spin keeps processors busy.
func spin(goroutines int, d time.Duration) {
	end := time.Now().Add(d)
	done := make(chan struct{})
	for range goroutines {
		go func() { // ends with d; waited for
			for time.Now().Before(end) {
			}
			done <- struct{}{}
		}()
	}
	for range goroutines {
		<-done
	}
}

// rightFaults take one right after the other from the user for a while.
func rightFaults() map[string]func(*world) {
	faults := map[string]func(*world){}
	for _, rule := range mustACL() {
		if command, is := strings.CutPrefix(rule, "+"); is {
			faults["without +"+command] = func(w *world) {
				set := func(rule string) {
					w.admin(func(ctx context.Context, c *redis.Client) error {
						return c.Do(ctx, "ACL", "SETUSER", "app", rule).Err()
					})
				}
				w.allIll(func() {
					set("-" + command)
					pause(w.between(w.stage.ttl/4, 3*w.stage.ttl/2))
					set("+" + command)
				})
			}
		}
	}
	return faults
}

func mustACL() []string {
	rules, err := tenure.ACLRules(namespace)
	if err != nil {
		panic(err) // the namespace is a constant
	}
	return rules
}

// memoryFaults fill Redis.
func memoryFaults() map[string]func(*world) {
	faults := map[string]func(*world){
		"Redis full": func(w *world) {
			w.server.ConfigSet(w, "maxmemory-policy", "noeviction")
			w.server.ConfigSet(w, "maxmemory", "1")
			pause(w.between(w.stage.ttl, 3*w.stage.ttl))
			w.server.ConfigSet(w, "maxmemory", "0")
		},
		"Redis full at a hand-over": func(w *world) {
			w.server.ConfigSet(w, "maxmemory-policy", "noeviction")
			w.server.ConfigSet(w, "maxmemory", "1")
			w.chief().proc.Signal(w, syscall.SIGUSR1)
			pause(w.between(w.stage.ttl, 2*w.stage.ttl))
			w.server.ConfigSet(w, "maxmemory", "0")
		},
	}
	for _, policy := range []string{"allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-ttl"} {
		faults["eviction "+policy] = func(w *world) {
			w.server.ConfigSet(w, "maxmemory-policy", policy)
			w.server.ConfigSet(w, "maxmemory", "3mb")
			w.admin(func(ctx context.Context, c *redis.Client) error {
				load := strings.Repeat("x", 20_000)
				for i := range 300 {
					_ = c.Set(ctx, fmt.Sprint("load", i), load, time.Minute).Err() // refused where nothing can be evicted
				}
				return nil
			})
			w.server.ConfigSet(w, "maxmemory", "0")
			w.admin(func(ctx context.Context, c *redis.Client) error {
				for i := range 300 {
					c.Del(ctx, fmt.Sprint("load", i))
				}
				return nil
			})
		}
	}
	return faults
}

// clockFaults step Redis's clock.
var clockFaults = map[string]func(*world){
	"clock ahead": func(w *world) { w.clock.Step(w, w.between(0, 4*w.stage.ttl)) },
	"clock back":  func(w *world) { w.clock.Step(w, -w.between(0, 4*w.stage.ttl)) },
	"clock back by an hour, and ahead": func(w *world) {
		w.clock.Step(w, -time.Hour)
		pause(w.between(0, 3*w.stage.ttl))
		w.clock.Step(w, time.Hour)
	},
}

// sentinelFaults make Sentinel fail over.
var sentinelFaults = map[string]func(*world){
	"SENTINEL FAILOVER": func(w *world) {
		w.sentinel.Settle(w)
		w.allIll(func() { w.sentinel.Failover(w) })
		w.failed++
	},
	"master killed": func(w *world) { w.masterDies(func(*redistest.Server) {}) },
	"master killed, last writes lost": func(w *world) {
		w.masterDies(func(master *redistest.Server) {
			for _, server := range w.sentinel.Data {
				if server != master {
					server.DetachFrom(w, master)
				}
			}
			pause(w.between(200*time.Millisecond, 700*time.Millisecond))
		})
	},
	"second master for ten seconds": func(w *world) {
		w.sentinel.Settle(w)
		old := w.sentinel.Master()
		w.allIll(func() {
			old.Pause(w)
			w.sentinel.AwaitMaster(w, old)
			old.Resume(w)
			pause(10 * time.Second)
		})
		w.failed++
	},
}

func (w *world) masterDies(first func(master *redistest.Server)) {
	w.sentinel.Settle(w)
	old := w.sentinel.Master()
	w.allIll(func() {
		first(old)
		old.Kill(w)
		w.sentinel.AwaitMaster(w, old)
	})
	old.Start(w)
	w.failed++
}

// clusterFaults make a Cluster fail over, or move the slot.
var clusterFaults = map[string]func(*world){
	"CLUSTER FAILOVER": func(w *world) {
		w.cluster.Settle(w)
		w.allIll(func() { w.cluster.Failover(w, w.slot()) })
		w.failed++
	},
	"master killed": func(w *world) {
		w.cluster.Settle(w)
		slot := w.slot()
		old, _ := w.cluster.Owner(slot)
		w.allIll(func() {
			old.Kill(w)
			w.cluster.AwaitOwner(w, slot, old)
		})
		old.Start(w)
		w.failed++
	},
	"slot moved": func(w *world) {
		w.cluster.Settle(w)
		before := w.leader()
		w.cluster.Migrate(w, w.slot(), func() { pause(w.between(0, 30*time.Millisecond)) })
		if after := w.chief(); before != nil && after != before {
			w.mu.Lock()
			w.events["leader changed by a migration"]++
			w.mu.Unlock()
		}
	},
}

func (w *world) slot() int64 { return w.cluster.Slot(namespace) }

func union(all ...map[string]func(*world)) map[string]func(*world) {
	u := map[string]func(*world){}
	for _, m := range all {
		maps.Copy(u, m)
	}
	return u
}
