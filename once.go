package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// What has become of a call of Once.
const (
	onceOpen int32 = iota
	onceWon
	onceLost
)

// Once runs fn if this process wins the election of the role now, and returns fn's error; the lease
// is released before it returns, and lapses if Redis does not answer then. If another instance
// leads, fn is not called, and Once returns that leader with an error that is ErrNotLeader. While
// nobody leads, which on a young Redis may take LeaseTTL + 2 s, Once waits until somebody does or
// ctx is done, and returns the cause of that.
//
// Use it for what one of several starting instances has to do, such as a schema migration. An
// instance that did not win may call Once again until it does, and find the work done: fn must look
// at that first, since nothing but fn remembers it. The lease is kept for as long as fn runs; ctx
// of fn is done if it is lost, and then fn must stop (see LeadFunc). Give the role a name of its
// own: elections of other purposes must not wait for it.
//
// opts are those of NewElector; the errors of NewElector and of Elector.Run are returned too. Once
// calls fn at most once, also if it fails.
func Once(ctx context.Context, rdb redis.UniversalClient, opts ElectorOptions, fn LeadFunc) (LeaderInfo, error) {
	if fn == nil {
		return LeaderInfo{}, fmt.Errorf("%w: Once got a nil function", ErrMisconfigured)
	}
	e, err := NewElector(rdb, opts)
	if err != nil {
		return LeaderInfo{}, err
	}
	campaign, stop := context.WithCancel(ctx)
	defer stop()
	var (
		state atomic.Int32
		self  LeaderInfo
		done  error
	)
	defer e.Observe(func(event Event) {
		another := event.Type == EventLeaderChanged && event.Subject != "" && event.Subject != e.loop.id
		if another && state.CompareAndSwap(onceOpen, onceLost) {
			stop()
		}
	})()
	err = e.Run(campaign, func(ctx context.Context, term Term) error {
		if state.CompareAndSwap(onceOpen, onceWon) {
			self = LeaderInfo{Role: term.Role, InstanceID: term.InstanceID, Token: term.Token, Since: term.Since}
			done = protect(func() error { return fn(ctx, term) })
			stop()
		}
		return nil
	})
	switch {
	case err != nil:
		return LeaderInfo{}, err // fn may still run: it is not looked at
	case state.Load() == onceWon:
		return self, done
	case state.Load() == onceOpen:
		return LeaderInfo{}, context.Cause(ctx)
	}
	leader, err := e.Leader(ctx)
	if errors.Is(err, ErrNoLeader) { // it has stopped since
		err = nil
	}
	return leader, errors.Join(ErrNotLeader, err)
}
