package contender

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// Redislock is bsm/redislock.
func Redislock() Contender {
	return Contender{
		Name: "redislock", Module: "github.com/bsm/redislock",
		For:   "a small, plain lock around a piece of work",
		Own:   "the extend loop has not failed (`TTL()` asks Redis)",
		Work:  "context that the extend loop cancels",
		Token: "no: `Token()` is random",
		New:   newRedislock,
	}
}

type redislockCandidate struct {
	work
	locks  *redislock.Client
	client *redis.Client
	ttl    time.Duration
}

func newRedislock(ctx context.Context, cfg Config) (Candidate, error) {
	client, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &redislockCandidate{locks: redislock.New(client), client: client, ttl: cfg.TTL}, nil
}

func (c *redislockCandidate) Belief() Belief { return Belief{Own: c.on(), Work: c.on()} }

func (c *redislockCandidate) Run(ctx context.Context) {
	defer c.client.Close()
	for ctx.Err() == nil {
		lock, err := c.locks.Obtain(ctx, Key, c.ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryPause)})
		if err != nil {
			pause(ctx, retryPause)
			continue
		}
		c.hold(ctx, lock)
	}
}

func (c *redislockCandidate) hold(ctx context.Context, lock *redislock.Lock) {
	held, cancel := context.WithCancel(ctx)
	c.begin(held)
	extendEvery(held, c.ttl/3, func(ctx context.Context) error { return lock.Refresh(ctx, c.ttl, nil) })
	cancel()
	c.end()
	bound, done := context.WithTimeout(context.WithoutCancel(ctx), releaseBound)
	defer done()
	_ = lock.Release(bound) // a lock that is lost cannot be given back; else it lapses
}
