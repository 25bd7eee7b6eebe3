//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	manyRoles  = 1000
	rolesTTL   = 3 * time.Second
	rolesEvery = time.Second
	rolesFor   = 10 * time.Second
	same       = "same commands" // that tenure's renewals make, in a script that looks at nothing
	sameAtOnce = 200             // roles of one call, as tenure does it
)

// measureRoles has a process of its own hold 1,000 leases with each library.
func measureRoles(o options, p *page) error {
	who := slices.Insert(slices.Clone(columns), 1, same)
	t := p.table("1,000 leases in one process", "Lease 3 s, each renewed once a second, without leader work; measured from five seconds after all are held. The floor sends the bare renewals in one pipeline a second. "+
		"*Same commands* are those of tenure's renewal (two GET, one HMGET, two PEXPIRE, one HSET) in a script for 200 leases that compares nothing and keeps nothing safe. "+
		"redislock and redsync: a goroutine and a ticker a lease, as their users write it.", who...)
	return redistest.Do(func(tb redistest.TB) {
		for range o.rounds {
			for _, who := range who {
				if err := redistest.Do(func(tb redistest.TB) { holdMany(tb, t, who) }); err != nil {
					tb.Fatalf("%s: %v", who, err)
				}
			}
		}
		for _, r := range t.rows {
			r.ratio = strings.HasPrefix(r.name, "Redis")
		}
		t.plot, t.file = t.rows[0], "performance-roles.svg"
	})
}

func holdMany(tb redistest.TB, t *table, who string) {
	u, spent := measureChild(tb, rolesChild, who, rolesFor)
	renewals := float64(manyRoles) * rolesFor.Seconds() / rolesEvery.Seconds()
	t.row("processor, % of a core", "%.1f").add(who, 100*u.CPU.Seconds()/rolesFor.Seconds())
	t.row("Redis, µs a renewal", "%.1f").add(who, micro(spent)/renewals)
	t.row("memory, MB", "%.1f").add(who, float64(u.Heap)/(1<<20))
	t.row("goroutines", "%.0f").add(who, float64(u.Goroutines))
}

// hold takes all leases and keeps them in goroutines that live as long as the process.
func hold(ctx context.Context, who, addr string, _ *lateness) error {
	names := make([]string, manyRoles)
	for i := range names {
		names[i] = fmt.Sprint("role-", i)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	switch who {
	case floor:
		return holdBare(ctx, client, names)
	case same:
		return holdSame(ctx, client, names)
	case "tenure":
		return holdTenure(ctx, client, names)
	case "redislock":
		locks := redislock.New(client)
		return each(names, func(i int, name string) error {
			lock, err := locks.Obtain(ctx, name, rolesTTL, nil)
			if err == nil {
				go every(func() error { return lock.Refresh(ctx, rolesTTL, nil) })
			}
			return err
		})
	case "redsync":
		mutexes := redsync.New(goredis.NewPool(client))
		return each(names, func(_ int, name string) error {
			mutex := mutexes.NewMutex(name, redsync.WithExpiry(rolesTTL))
			err := mutex.LockContext(ctx)
			if err == nil {
				go every(func() error {
					_, err := mutex.ExtendContext(ctx)
					return err
				})
			}
			return err
		})
	case "rueidislock":
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}}, KeyValidity: rolesTTL, ExtendInterval: rolesEvery, KeyMajority: 1, TryNextAfter: rolesTTL, NoLoopTracking: true,
		})
		if err != nil {
			return err
		}
		return each(names, func(_ int, name string) error {
			_, _, err := locker.WithContext(ctx, name)
			return err
		})
	}
	return fmt.Errorf("no library %q", who)
}

// each calls act for all names, 32 at a time.
func each(names []string, act func(i int, name string) error) error {
	errs := make([]error, len(names))
	slots := make(chan struct{}, 32)
	var group sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		group.Go(func() { // ends with its call
			defer func() { <-slots }()
			errs[i] = act(i, name)
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// every renews until it fails.
func every(renew func() error) {
	for range time.Tick(rolesEvery) {
		if err := renew(); err != nil {
			fmt.Fprintln(os.Stderr, "a renewal has failed:", err)
			os.Exit(1)
		}
	}
}

func holdBare(ctx context.Context, client *redis.Client, names []string) error {
	if err := guarded.Load(ctx, client).Err(); err != nil {
		return err
	}
	err := each(names, func(_ int, name string) error { return client.Set(ctx, name, "bench", rolesTTL).Err() })
	if err == nil {
		go every(func() error {
			pipe := client.Pipeline()
			for _, name := range names {
				guarded.EvalSha(ctx, pipe, []string{name}, "bench", rolesTTL.Milliseconds())
			}
			_, err := pipe.Exec(ctx)
			return err
		})
	}
	return err
}

// sameCommands renews leases by the commands of tenure's own script. KEYS: of each its lease, the
// start of the term, and its hash.
var sameCommands = redis.NewScript(`local call = redis.call
for n = 1, #KEYS, 3 do
  call('GET', KEYS[n])
  call('GET', KEYS[n + 1])
  call('HMGET', KEYS[n + 2], 'token', 'nonce', 'origin', 'longest', 'longest_at', 'margin', 'margin_at', 'heir', 'best')
  call('PEXPIRE', KEYS[n], ARGV[1])
  call('HSET', KEYS[n + 2], 'until', ARGV[2], 'ttl', ARGV[1])
  call('PEXPIRE', KEYS[n + 1], ARGV[1])
end`)

func holdSame(ctx context.Context, client *redis.Client, names []string) error {
	if err := sameCommands.Load(ctx, client).Err(); err != nil {
		return err
	}
	key := func(name, part string) string { return "{" + name + "}:" + part }
	err := each(names, func(_ int, name string) error {
		_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, key(name, "leader"), "bench", rolesTTL)
			pipe.Set(ctx, key(name, "since"), time.Now().Unix(), rolesTTL)
			pipe.HSet(ctx, key(name, "term"), "token", 1, "nonce", "bench", "holder", "bench", "origin", strings.Repeat("0", 40), "longest", 1, "longest_at", 1)
			return nil
		})
		return err
	})
	if err == nil {
		go every(func() error {
			pipe := client.Pipeline()
			for some := range slices.Chunk(names, sameAtOnce) {
				var keys []string
				for _, name := range some {
					keys = append(keys, key(name, "leader"), key(name, "since"), key(name, "term"))
				}
				sameCommands.EvalSha(ctx, pipe, keys, rolesTTL.Milliseconds(), time.Now().Add(rolesTTL).UnixMilli())
			}
			_, err := pipe.Exec(ctx)
			if errors.Is(err, redis.Nil) { // the script replies with nothing
				return nil
			}
			return err
		})
	}
	return err
}

func holdTenure(ctx context.Context, client *redis.Client, names []string) error {
	opts := tenure.ElectionOptions{LeaseTTL: rolesTTL, RenewInterval: rolesEvery, Safety: tenure.SafetyOptions{RestartGuard: -1, EmptyHistoryWait: -1}}
	first := opts
	first.Role = names[0]
	c, err := tenure.New(client, tenure.Options{Namespace: "bench", InstanceID: "bench", Election: first})
	if err != nil {
		return err
	}
	electors := []*tenure.Elector{c.Elector()}
	for _, name := range names[1:] {
		e, err := c.AddRole(name, opts)
		if err != nil {
			return err
		}
		electors = append(electors, e)
	}
	go func() { // lives as long as the process
		if err := c.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}()
	for _, e := range electors {
		for !e.IsLeader() {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}
