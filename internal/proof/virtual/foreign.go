package virtual

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// foreign is a client of another make on the same key: SET key id NX EX 30, and renewals and
// a delete that compare first.
type foreign struct {
	*cluster
	rdb   *redis.Client
	until atomic.Int64 // the bubble's clock, ns
	terms int
}

const (
	foreignKey = "leader:cleanup-worker"
	foreignTTL = 30 * time.Second
)

var (
	foreignRenew  = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('EXPIRE', KEYS[1], 30) end return 0`)
	foreignDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

func (f *foreign) leads() bool { return time.Now().UnixNano() < f.until.Load() }

// run takes part until over is closed.
func (f *foreign) run(over <-chan struct{}) {
	random := newRand(f.seed, "foreign", 0)
	time.Sleep(f.net.Stagger("foreign"))
	f.rdb = f.net.Client("foreign", func(o *redis.Options) { o.ReadTimeout = 2 * time.Second })
	for {
		pause := time.Second + time.Duration(random.Int64N(int64(2*time.Second)))
		if f.turn(random.Float64() < 0.3) {
			pause += 5 * time.Second
		}
		select {
		case <-over:
			return
		case <-time.After(pause):
		}
	}
}

// turn asks for the lease, or renews it, or gives it back, and reports whether it leads.
func (f *foreign) turn(resign bool) bool {
	ctx, keys, sent := context.Background(), []string{foreignKey}, time.Now()
	granted := func() { f.until.Store(sent.Add(foreignTTL - time.Second).UnixNano()) }
	switch {
	case !f.leads():
		set := f.rdb.SetArgs(ctx, foreignKey, "another-program", redis.SetArgs{Mode: "NX", TTL: foreignTTL})
		if set.Val() == "OK" {
			granted()
			f.terms++
			f.check.sample()
			f.note("foreign", "acquired", "", int64(f.terms))
		}
	case resign:
		f.until.Store(0)
		foreignDelete.Run(ctx, f.rdb, keys, "another-program")
	default:
		if kept, err := foreignRenew.Run(ctx, f.rdb, keys, "another-program").Int(); err == nil && kept == 1 && f.leads() {
			granted()
		} else if err == nil {
			f.until.Store(0)
		}
	}
	return f.leads()
}
