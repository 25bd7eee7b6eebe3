// Package tenuregocron has gocron (github.com/go-co-op/gocron/v2) run its jobs on the leader only.
//
// [Elector] is asked before each run. [Locker] also holds the lease for as long as a job runs: a
// process that stops, resigns or transfers lets its jobs finish first, so that the next leader
// never runs one beside it. Give a scheduler one of the two: one that has both never asks the
// locker. Both are safe for concurrent use.
//
//	locker := tenuregocron.Locker(coordinator.Elector())
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// gocron keeps its times in the process. A slot that is due while nobody leads is lost, and one at
// a hand-over may run on both sides of it, each side at its own time. As a rule nobody leads yet
// when a scheduler starts, so a run that is due at once (gocron.WithStartImmediately,
// gocron.OneTimeJobStartImmediately) happens on no instance: have a LeadFunc call it. Where that
// matters use the tasks of tenure, whose slots live in Redis and are claimed once.
package tenuregocron

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/tenure-go/tenure"
)

// ErrLocked says that a job of that name runs already in this process.
var ErrLocked = errors.New("tenuregocron: the job is locked")

// Elector lets a scheduler run its jobs while the elector leads, for
// gocron.WithDistributedElector. A job that is on when the term ends goes on: with Locker the lease
// is kept for it. e is the Elector of a coordinator, or of one of its roles.
func Elector(e *tenure.Elector) gocron.Elector { return elector{e} }

type elector struct{ *tenure.Elector }

// IsLeader returns nil if this process leads, and else what Do returns: ErrNotLeader, as a rule a
// *tenure.NotLeaderError that names the leader.
func (e elector) IsLeader(ctx context.Context) error {
	return e.Do(ctx, func(context.Context, tenure.Term) error { return nil })
}

// Locker lets a job run while the elector leads, each name once at a time, for
// gocron.WithDistributedLocker and gocron.WithDistributedJobLocker. The lease is not released
// before the job has returned, but for the bound of a drain (tenure.Options.ShutdownTimeout). The
// job itself is not told that the term is over: keep it short, or have it look at
// Coordinator.IsLeader. A job that calls Resign, Transfer or Drain waits for itself until the bound
// of the drain: have it do so in another goroutine.
func Locker(e *tenure.Elector) gocron.Locker {
	return &locker{elector: e, held: make(map[string]bool)}
}

type locker struct {
	elector *tenure.Elector

	mu   sync.Mutex
	held map[string]bool
}

// Lock begins a run. The error is ErrLocked, or that of Do: it wraps tenure.ErrNotLeader if this
// process does not lead. The lock does not end with ctx.
func (l *locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	if !l.take(key) {
		return nil, fmt.Errorf("%w: %q", ErrLocked, key)
	}
	held := &lock{locker: l, key: key, unlocked: make(chan struct{}), ended: make(chan error, 1)}
	began := make(chan error, 1)
	go func() { // ends with Unlock, at once if this process does not lead
		err := l.elector.Do(context.WithoutCancel(ctx), func(ctx context.Context, term tenure.Term) error {
			began <- nil
			<-held.unlocked
			if !term.Valid() {
				<-ctx.Done() // at once: the cause of a term that is over may be a moment behind
			}
			return context.Cause(ctx)
		})
		held.ended <- err
		began <- err // if it has not begun; else nobody reads it
	}()
	if err := <-began; err != nil {
		l.leave(key)
		return nil, err
	}
	return held, nil
}

func (l *locker) take(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[key] {
		return false
	}
	l.held[key] = true
	return true
}

func (l *locker) leave(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, key)
}

type lock struct {
	locker   *locker
	key      string
	unlocked chan struct{} // closed by the first Unlock
	ended    chan error    // what Do returned
	once     sync.Once
	err      error
}

// Unlock ends the run. It returns nil if the term was on until now, and else why it ended, such as
// tenure.ErrLost: another process may have led beside the last part of the job. It does not wait,
// and a second call returns the same.
func (l *lock) Unlock(context.Context) error {
	l.once.Do(func() {
		l.locker.leave(l.key)
		close(l.unlocked)
		l.err = <-l.ended
	})
	return l.err
}
