//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

const callTTL = 30 * time.Second

// caller is one way to hold a lease on a Redis.
type caller struct {
	name string
	// pair takes the lease of a name and gives it back.
	pair func(ctx context.Context, key string) error
	// holding takes the lease of a name and returns what renews it; nil: the library renews by
	// itself.
	holding func(ctx context.Context, key string) (renew func(context.Context) error, err error)
}

// guarded is what any library has to run at least for a renewal, and given what it has to for a
// release.
var (
	guarded = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)
	given   = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

func callers(o options, t redistest.TB, server *redistest.Server) ([]caller, error) {
	ctx := context.Background()
	source, err := os.ReadFile(filepath.Join(o.root, "scripts.lua"))
	if err != nil {
		return nil, err
	}
	client := func() *redis.Client { return redis.NewClient(server.Options()) }
	bare, own, locks, sync := client(), client(), client(), client()
	db := redisstore.New(own, redisstore.MustLoad(string(source)), "bench", "bench", func() string { return "secret" })
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{server.Addr()}}, KeyValidity: callTTL, ExtendInterval: callTTL / 3, KeyMajority: 1, TryNextAfter: callTTL, NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		for _, c := range []*redis.Client{bare, own, locks, sync} {
			_ = c.Close()
		}
		locker.Close()
	})
	role := func(key string) *redisstore.Lease {
		return db.ForRole(store.Role{Key: "bench:leader:" + key, Name: key, Holder: "bench", TTL: callTTL, RestartGuard: -1})
	}
	acquire := func(ctx context.Context, l *redisstore.Lease, nonce string) (int64, string, error) {
		won, err := l.Acquire(ctx, lease.Request{Nonce: nonce, HoldOff: callTTL})
		if err == nil && won.Verdict != lease.Won {
			err = fmt.Errorf("tenure was not granted the lease: %+v", won)
		}
		return won.Token, won.Origin, err
	}
	mutexes := redsync.New(goredis.NewPool(sync))
	lockClient := redislock.New(locks)
	return []caller{
		{
			name: floor,
			pair: func(ctx context.Context, key string) error {
				if err := bare.SetArgs(ctx, key, "bench", redis.SetArgs{Mode: "NX", TTL: callTTL}).Err(); err != nil {
					return err
				}
				return given.Run(ctx, bare, []string{key}, "bench").Err()
			},
			holding: func(ctx context.Context, key string) (func(context.Context) error, error) {
				err := bare.Set(ctx, key, "bench", callTTL).Err()
				return func(ctx context.Context) error {
					return guarded.Run(ctx, bare, []string{key}, "bench", callTTL.Milliseconds()).Err()
				}, err
			},
		},
		{
			name: "tenure",
			pair: func(ctx context.Context, key string) error {
				l := role(key)
				token, _, err := acquire(ctx, l, "n")
				if err == nil {
					_, err = l.Release(ctx, lease.Request{Nonce: "n", Token: token})
				}
				return err
			},
			holding: func(ctx context.Context, key string) (func(context.Context) error, error) {
				l := role(key)
				token, origin, err := acquire(ctx, l, "n")
				request := lease.Request{Nonce: "n", Token: token, HoldOff: callTTL, NotAfter: time.Now().Add(time.Hour).UnixMilli(), Origin: origin, Since: time.Now().Unix()}
				return func(ctx context.Context) error {
					kept, err := l.Renew(ctx, request)
					if err == nil && kept.Verdict != lease.Kept {
						err = fmt.Errorf("tenure has not kept the lease: %+v", kept)
					}
					return err
				}, err
			},
		},
		{
			name: "redislock",
			pair: func(ctx context.Context, key string) error {
				lock, err := lockClient.Obtain(ctx, key, callTTL, nil)
				if err != nil {
					return err
				}
				return lock.Release(ctx)
			},
			holding: func(ctx context.Context, key string) (func(context.Context) error, error) {
				lock, err := lockClient.Obtain(ctx, key, callTTL, nil)
				return func(ctx context.Context) error { return lock.Refresh(ctx, callTTL, nil) }, err
			},
		},
		{
			name: "redsync",
			pair: func(ctx context.Context, key string) error {
				mutex := mutexes.NewMutex(key, redsync.WithExpiry(callTTL))
				if err := mutex.LockContext(ctx); err != nil {
					return err
				}
				_, err := mutex.UnlockContext(ctx)
				return err
			},
			holding: func(ctx context.Context, key string) (func(context.Context) error, error) {
				mutex := mutexes.NewMutex(key, redsync.WithExpiry(callTTL))
				err := mutex.LockContext(ctx)
				return func(ctx context.Context) error {
					_, err := mutex.ExtendContext(ctx)
					return err
				}, err
			},
		},
		{
			name: "rueidislock",
			pair: func(ctx context.Context, key string) error {
				_, cancel, err := locker.TryWithContext(ctx, key)
				if err != nil {
					return err
				}
				cancel()
				return nil
			},
		},
	}, warmed(ctx, bare)
}

// warmed loads the scripts of the floor.
func warmed(ctx context.Context, rdb *redis.Client) error {
	for _, s := range []*redis.Script{guarded, given} {
		if err := s.Load(ctx, rdb).Err(); err != nil {
			return err
		}
	}
	return nil
}

var columns = []string{floor, "tenure", "redislock", "redsync", "rueidislock"}

// measureCalls times single calls.
func measureCalls(o options, p *page) error {
	return redistest.Do(func(t redistest.TB) {
		server := redistest.Start(t)
		asking := server.Client(t)
		all, err := callers(o, t, server)
		if err != nil {
			t.Fatalf("%v", err)
		}
		renewals := p.table("A renewal", "The floor is a guarded `PEXPIRE` in a script. tenure's also compares nonce, token and the history of the server, and notes when the lease ends. rueidislock renews by itself, and has no call for it.", columns...)
		pairs := p.table("Taken and given back", "The floor is `SET NX PX` and a guarded `DEL`. tenure's is an election: it has a token, a history and an entry in the log, and hints for whoever waits. rueidislock gives back after its call has returned.", columns...)
		ctx := context.Background()
		for round := range o.rounds {
			for _, c := range all {
				key := fmt.Sprintf("%s-%d", c.name, round)
				if c.holding != nil {
					renew, err := c.holding(ctx, key)
					if err != nil {
						t.Fatalf("%s takes the lease: %v", c.name, err)
					}
					one(t, asking, renewals, c.name, 1, func(int) error { return renew(ctx) })
				}
				one(t, asking, pairs, c.name, 1, func(int) error { return c.pair(ctx, key+"-pair") })
				one(t, asking, pairs, c.name, 16, func(i int) error { return c.pair(ctx, fmt.Sprint(key, "-pair-", i)) })
			}
		}
		for _, table := range []*table{renewals, pairs} {
			for _, r := range table.rows {
				r.ratio = true
			}
		}
	})
}

// one times a call that so many goroutines make at once, each with a name of its own.
func one(t redistest.TB, asking *redis.Client, table *table, who string, parallel int, call func(i int) error) {
	const calls = 1600
	ctx := context.Background()
	for i := range 20 * parallel { // connections, scripts
		if err := call(i % parallel); err != nil {
			t.Fatalf("%s: %v", who, err)
		}
	}
	if err := asking.ConfigResetStat(ctx).Err(); err != nil {
		t.Fatalf("%v", err)
	}
	var failed error
	var once sync.Once
	var group sync.WaitGroup
	began := time.Now()
	for i := range parallel {
		group.Go(func() { // ends after its calls
			for range calls / parallel {
				if err := call(i); err != nil {
					once.Do(func() { failed = err })
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	if failed != nil {
		t.Fatalf("%s: %v", who, failed)
	}
	if parallel > 1 {
		table.row(fmt.Sprintf("%d in parallel, µs each", parallel), "%.0f").add(who, micro(took)/calls)
		return
	}
	table.row("time, µs", "%.0f").add(who, micro(took)/calls)
	table.row("of it Redis, µs", "%.1f").add(who, micro(redisSpent(t, asking, who))/calls)
}

func micro(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

var spentOn = regexp.MustCompile(`cmdstat_([a-z|_]+):calls=\d+,usec=(\d+)`)

// sends are the commands that a client sends beside its own connections; what their scripts run
// counts as part of those.
var sends = map[string][]string{
	floor: {"set", "evalsha"}, same: {"evalsha"}, "tenure": {"evalsha"}, "redislock": {"evalsha"}, "redsync": {"set", "evalsha"}, "rueidislock": {"set", "get", "evalsha"},
	elected: {"evalsha"}, locked: {"evalsha"},
}

// redisSpent is what Redis has spent on the commands of a client since its statistics were reset.
func redisSpent(t redistest.TB, asking *redis.Client, who string) (spent time.Duration) {
	info, err := asking.Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, found := range spentOn.FindAllStringSubmatch(info, -1) {
		if slices.Contains(sends[who], found[1]) {
			usec, _ := strconv.Atoi(found[2])
			spent += time.Duration(usec) * time.Microsecond
		}
	}
	return spent
}
