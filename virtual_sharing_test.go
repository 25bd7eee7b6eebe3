package tenure

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// virtualForeign is a client of another make on the same key: SET key id NX EX 30, and renewals and
// a delete that compare first.
type virtualForeign struct {
	*virtualWorld
	rdb   *redis.Client
	until atomic.Int64 // the bubble's clock, ns
	terms int
}

const (
	virtualForeignKey = "leader:cleanup-worker"
	virtualForeignTTL = 30 * time.Second
)

var (
	virtualForeignRenew  = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('EXPIRE', KEYS[1], 30) end return 0`)
	virtualForeignDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

func (f *virtualForeign) leads() bool { return time.Now().UnixNano() < f.until.Load() }

// run takes part until over is closed.
func (f *virtualForeign) run(over <-chan struct{}) {
	random := virtualRand(f.seed, "foreign", 0)
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
func (f *virtualForeign) turn(resign bool) bool {
	ctx, keys, sent := context.Background(), []string{virtualForeignKey}, time.Now()
	granted := func() { f.until.Store(sent.Add(virtualForeignTTL - time.Second).UnixNano()) }
	switch {
	case !f.leads():
		set := f.rdb.SetArgs(ctx, virtualForeignKey, "another-program", redis.SetArgs{Mode: "NX", TTL: virtualForeignTTL})
		if set.Val() == "OK" {
			granted()
			f.terms++
			f.check.sample()
			f.note("foreign", "acquired", "", int64(f.terms))
		}
	case resign:
		f.until.Store(0)
		virtualForeignDelete.Run(ctx, f.rdb, keys, "another-program")
	default:
		if kept, err := virtualForeignRenew.Run(ctx, f.rdb, keys, "another-program").Int(); err == nil && kept == 1 && f.leads() {
			granted()
		} else if err == nil {
			f.until.Store(0)
		}
	}
	return f.leads()
}

// A client of another make shares the key: neither leads while the other does.
func TestVirtualP1_ForeignClientOnTheSameKeyNeverBoth(t *testing.T) {
	setup := virtualSetup{instances: 3, drain: time.Second, options: func(_ int, options *Options) {
		options.Election.LeaderKey = virtualForeignKey
	}}
	for seed := range uint64(3) {
		inVirtualTime(t, seed, setup, func(w *virtualWorld) {
			foreign := &virtualForeign{virtualWorld: w}
			w.check.foreign = foreign
			over := make(chan struct{})
			w.running.Go(func() { foreign.run(over) })
			w.start()
			nemesis := &virtualNemesis{virtualWorld: w, profile: virtualProfile{
				faults: []string{"crash", "crash-leader", "resign", "partition", "partition-leader"}, every: 8 * time.Second,
			}}
			for after := 30 * time.Second; after < 4*time.Minute; after += 40 * time.Second { // its chance: ours wake to the millisecond
				nemesis.plan(after, func() {
					for _, instance := range w.instances {
						instance.crash()
						nemesis.plan(2*virtualTTL, instance.boot)
					}
				})
			}
			nemesis.plan(w.between(time.Minute, 2*time.Minute), func() { w.net.Partition("foreign", simnet.Both, virtualForeignTTL) })
			nemesis.run(5 * time.Minute)
			close(over)
			synctest.Wait()
			if terms := w.check.count(); terms < 5 || foreign.terms < 2 {
				t.Errorf("seed %d: only %d terms of ours and %d of the foreign client", seed, terms, foreign.terms)
			}
		})
	}
}

// One candidate may not call INFO, the others may: hand-overs cost no hold-off, whoever of them
// asks first.
func TestVirtualP7_OneCandidateWithoutInfo(t *testing.T) {
	inVirtualTime(t, 1, virtualSetup{}, func(w *virtualWorld) {
		blind := w.instances[0]
		w.redis.SetInfo(blind.name, false)
		w.start()
		leader, _ := w.awaitLeader(2*virtualTTL, nil)
		led := map[bool]int{}
		for range 20 {
			time.Sleep(virtualTTL) // everybody has asked
			if status := leader.life.Load().elector.Status(); status.HistoryWitness == (leader == blind) {
				t.Errorf("%s says %v of the witness", leader.name, status.HistoryWitness)
			}
			led[leader == blind]++
			leader.resign()
			leader, _ = w.awaitLeader(virtualHandoverBound, leader)
		}
		if led[true] == 0 || led[false] == 0 {
			t.Errorf("led without INFO %d times, with it %d times: nothing was shown", led[true], led[false])
		}
	})
}

// A candidate with a short lease has seen a leader with a long one: after a loss of data it holds
// off for the longer of the two.
func TestVirtualP1_HoldOffIsTheLongestTTLKnown(t *testing.T) {
	const long = 4 * virtualTTL
	setup := virtualSetup{instances: 2, options: func(number int, options *Options) {
		if number == 0 {
			options.Election.LeaseTTL = long
		}
	}}
	inVirtualTime(t, 1, setup, func(w *virtualWorld) {
		leader, short := w.instances[0], w.instances[1]
		leader.boot()
		w.awaitLeader(time.Second, nil)
		short.boot()
		time.Sleep(long) // it was refused, and knows
		w.net.Partition(leader.name, simnet.Both, 2*long)
		w.redis.Restart(false, 0)
		_, took := w.awaitLeader(long+time.Second+virtualTTL, leader) // + 1 s of rounding, + the follower's retry
		if took < long-time.Second {
			t.Errorf("another leads after %v, beside a lease of %v", took, long)
		}
	})
}
