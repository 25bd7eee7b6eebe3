package contender

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func rueidislockContender() Contender {
	return Contender{
		Name: "rueidislock", Module: "github.com/redis/rueidis",
		For:   "locks with many waiters: extension and wake-up come with it, through client side caching",
		Own:   "context of the lock",
		Work:  "context of the lock",
		Token: "no",
		New:   newRueidislock,
	}
}

type rueidislockCandidate struct {
	work
	locker rueidislock.Locker
}

func newRueidislock(_ context.Context, cfg Config) (Candidate, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{cfg.Addr}, ConnWriteTimeout: cfg.ReadTimeout},
		KeyValidity:    cfg.TTL,
		ExtendInterval: cfg.TTL / 3,
		KeyMajority:    1, // one Redis: more keys on it would not make it safer
		// An acquire that is answered later is given up without another: it waits for an
		// invalidation that does not come. The default of 20 ms is for going on to the next of
		// several keys.
		TryNextAfter:   cfg.TTL,
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return &rueidislockCandidate{locker: locker}, nil
}

func (c *rueidislockCandidate) Belief() Belief { return Belief{Own: c.on(), Work: c.on()} }

func (c *rueidislockCandidate) Run(ctx context.Context) {
	defer c.locker.Close()
	for ctx.Err() == nil {
		held, cancel, err := c.locker.WithContext(ctx, Key)
		if err != nil {
			pause(ctx, retryPause)
			continue
		}
		c.begin(held)
		<-held.Done()
		c.end()
		cancel()
	}
}
