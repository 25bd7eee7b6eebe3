package contender

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func redsyncContender() Contender {
	return Contender{
		Name: "redsync", Module: "github.com/go-redsync/redsync/v4",
		For:   "short mutual exclusion, with a quorum over N independent masters (Redlock)",
		Own:   "now before `Until()`",
		Work:  "context that the extend loop cancels",
		Token: "no: the value is random",
		New:   newRedsync,
	}
}

type redsyncCandidate struct {
	work
	until  atomic.Int64 // Mutex.Until of the last success, Unix ns; 0: not held
	sync   *redsync.Redsync
	client *redis.Client
	ttl    time.Duration
}

func newRedsync(ctx context.Context, cfg Config) (Candidate, error) {
	client, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &redsyncCandidate{sync: redsync.New(goredis.NewPool(client)), client: client, ttl: cfg.TTL}, nil
}

func (c *redsyncCandidate) Belief() Belief {
	return Belief{Own: time.Now().UnixNano() < c.until.Load(), Work: c.on()}
}

func (c *redsyncCandidate) Run(ctx context.Context) {
	defer c.client.Close()
	for ctx.Err() == nil {
		mutex := c.sync.NewMutex(Key, redsync.WithExpiry(c.ttl))
		if mutex.LockContext(ctx) != nil {
			pause(ctx, retryPause)
			continue
		}
		c.hold(ctx, mutex)
	}
}

func (c *redsyncCandidate) hold(ctx context.Context, mutex *redsync.Mutex) {
	held, cancel := context.WithCancel(ctx)
	c.until.Store(mutex.Until().UnixNano())
	c.begin(held)
	extendEvery(held, c.ttl/3, func(ctx context.Context) error {
		ok, err := mutex.ExtendContext(ctx)
		if err == nil && !ok {
			err = redsync.ErrExtendFailed
		}
		if err == nil {
			c.until.Store(mutex.Until().UnixNano())
		}
		return err
	})
	cancel()
	c.until.Store(0)
	c.end()
	bound, done := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer done()
	_, _ = mutex.UnlockContext(bound) // a lock that is lost cannot be given back; else it lapses
}
