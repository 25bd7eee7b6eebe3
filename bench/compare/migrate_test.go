//go:build unix

package main

import (
	"context"
	"strings"
	"testing"
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

// TestKeyIsSharedWithLocks: as docs/migrating.md says, an elector whose LeaderKey is the key of a
// lock waits for who holds the lock, leads after that, and keeps others from it.
func TestKeyIsSharedWithLocks(t *testing.T) {
	needRedis(t)
	server := redistest.Start(t)
	client := func() *redis.Client { return server.Client(t) }
	rdb := client()
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{server.Addr()}}, KeyMajority: 1, TryNextAfter: time.Minute,
	})
	noError(t, err)
	defer locker.Close()
	const prefix = "rueidislock:0:" // of its first key, which is its only one
	locks := map[string]func(ctx context.Context, key string) (unlock func(context.Context) error, err error){
		"redislock": func(ctx context.Context, key string) (func(context.Context) error, error) {
			lock, err := redislock.Obtain(ctx, rdb, key, time.Minute, nil)
			if err != nil {
				return nil, err
			}
			return lock.Release, nil
		},
		"redsync": func(ctx context.Context, key string) (func(context.Context) error, error) {
			mutex := redsync.New(goredis.NewPool(rdb)).NewMutex(key, redsync.WithExpiry(time.Minute))
			if err := mutex.TryLockContext(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { _, err := mutex.UnlockContext(ctx); return err }, nil
		},
		"rueidislock": func(ctx context.Context, key string) (func(context.Context) error, error) {
			_, unlock, err := locker.TryWithContext(ctx, strings.TrimPrefix(key, prefix))
			if err != nil {
				return nil, err
			}
			return func(context.Context) error { unlock(); return nil }, nil
		},
	}
	for name, lock := range locks {
		t.Run(name, func(t *testing.T) {
			key := prefix + "leader-" + name
			unlock, err := lock(t.Context(), key)
			noError(t, err)
			elector, err := tenure.NewElector(client(), tenure.ElectorOptions{
				Namespace: "shop",
				Election:  tenure.ElectionOptions{LeaderKey: key, LeaseTTL: time.Second, Safety: tenure.SafetyOptions{RestartGuard: -1}},
			})
			noError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- elector.Run(ctx) }() // ends with stop
			until(t, func() bool { return elector.Status().Waiting == tenure.WaitForeign })
			noError(t, unlock(t.Context()))
			until(t, elector.IsLeader)
			if _, err = lock(t.Context(), key); err == nil {
				t.Fatal("the lock was taken from the leader")
			}
			stop()
			noError(t, <-ended)
			unlock, err = lock(t.Context(), key)
			noError(t, err)
			noError(t, unlock(t.Context()))
		})
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for what must come.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for bound := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) { // a bounded poll
		if time.Now().After(bound) {
			t.Fatal("it does not come")
		}
	}
}
