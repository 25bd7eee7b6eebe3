package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
	"github.com/tenure-go/tenure/internal/store"
)

// errNoAside: of this client, an AutoPipeliner or a wrapper, no other one can be made.
var errNoAside = fmt.Errorf("%w: this client has no connection beside its pool", store.ErrUnreachable)

// AskAside makes the call of a request over a connection that is made for it. Those of the pool may
// all have died without a sign, or be in use.
func (s *Lease) AskAside(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	aside := *s
	err := recovering(func() (err error) {
		aside.Store, err = s.aside(ctx, s.key, r.Bound)
		return err
	})
	if err != nil {
		return store.LeaseReply{}, err
	}
	defer func() { _ = recovering(aside.rdb.(*redis.Client).Close) }()
	return store.Send(ctx, &aside, r)
}

// RenewAllAside sends the renewals in one pipeline, over one connection that is made for them.
func (s *Lease) RenewAllAside(ctx context.Context, all []store.Renewal, done func(answered []int)) {
	var bound time.Duration
	for _, r := range all {
		bound = max(bound, r.Request.Bound)
	}
	var own *Store
	err := recovering(func() (err error) {
		own, err = s.aside(ctx, s.key, bound)
		return err
	})
	if err != nil {
		answered := make([]int, len(all))
		for i := range all {
			all[i].Err, answered[i] = err, i
		}
		done(answered)
		return
	}
	defer func() { _ = recovering(own.rdb.(*redis.Client).Close) }()
	copies := make([]store.Renewal, len(all))
	for i, r := range all {
		role := *r.Lease.(*Lease)
		role.Store = own
		copies[i] = store.Renewal{Lease: &role, Request: r.Request}
	}
	copies[0].Lease.RenewAll(ctx, copies, func(answered []int) {
		for _, i := range answered {
			all[i].Reply, all[i].Err = copies[i].Reply, copies[i].Err
		}
		done(answered)
	})
}

// aside is the store with a client of its own for one call, to be closed: the application's, with
// its dialer, TLS and credentials, but without its pool and hooks. Each of its waits ends after
// bound.
func (s *Store) aside(ctx context.Context, key string, bound time.Duration) (*Store, error) {
	given, err := s.masterFor(ctx, key)
	if err != nil {
		return nil, s.explain("aside", err)
	}
	client, ok := given.(*redis.Client)
	if !ok || bound <= 0 {
		return nil, errNoAside
	}
	opts := client.WithTimeout(bound).Options() // a copy
	opts.ContextTimeoutEnabled = true
	opts.DialTimeout, opts.PoolTimeout = bound, bound
	opts.MaxRetries = -1
	opts.PoolSize, opts.MinIdleConns, opts.MaxIdleConns, opts.MaxActiveConns = 1, 0, 0, 0
	clientopts.Set(opts, "DialerRetries", 1)
	clientopts.Set(opts, "PipelinePoolSize", -1)
	clientopts.Set(opts, "ClientSideCache", nil)
	clientopts.Set(opts, "ClientSideCacheConfig", nil)
	clientopts.Set(opts, "PushNotificationProcessor", nil)
	clientopts.Maintenance(opts, "disabled")
	own := *s
	own.rdb, own.renewals, own.elects = redis.NewClient(opts), newBatches(maxPipelines), newBatches(maxPipelines)
	return &own, nil
}
