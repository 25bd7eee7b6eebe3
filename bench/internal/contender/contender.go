// Package contender drives tenure and four other libraries behind one face, each as its own
// documentation tells a careful user: a [Candidate] campaigns for one lease until it is told to
// stop, and says at any instant whether it believes that it holds it.
package contender

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Key is the name of the lock that all candidates of a store compete for.
const Key = "compare"

// Belief is what a candidate takes itself for.
type Belief struct {
	Own  bool // the best answer that the library gives without asking the store: what to look at before a write
	Work bool // the context of the leader's work has not been cancelled: what stops a loop
}

// Candidate campaigns for [Key].
type Candidate interface {
	// Belief may be called at any time by any goroutine.
	Belief() Belief
	// Began is when the work of the latest term began; zero: none has. It may be called at any time
	// by any goroutine.
	Began() time.Time
	// Run campaigns, holds, and campaigns again, until ctx is done; then it gives back what it
	// holds.
	Run(ctx context.Context)
}

// Config is the same for all candidates of a comparison.
type Config struct {
	Addr string        // of the store, or of a proxy in front of it
	ID   string        // of the candidate
	TTL  time.Duration // of a lease; it is renewed each TTL/3
	// ReadTimeout of the Redis client; zero: the default of its library.
	ReadTimeout time.Duration
}

// Contender is a library that is compared.
type Contender struct {
	Name   string
	Module string // path, as in go.mod
	For    string // what it is made for
	Own    string // what Belief.Own looks at
	Work   string // what Belief.Work looks at
	Token  string // whether there is a fencing token
	// Kubernetes says that the store is the API server of Kubernetes, not Redis.
	Kubernetes bool
	// New connects a candidate to the store.
	New func(ctx context.Context, cfg Config) (Candidate, error)
}

// All returns the libraries in the order of the page.
func All() []Contender {
	return []Contender{tenureContender(), redsyncContender(), Redislock(), rueidislockContender(), clientGoContender()}
}

// work is the leader's work of a candidate: it runs from begin to the end of its context.
type work struct {
	began atomic.Pointer[time.Time]
	done  atomic.Pointer[<-chan struct{}]
}

func (w *work) begin(ctx context.Context) {
	now, done := time.Now(), ctx.Done()
	w.began.Store(&now)
	w.done.Store(&done)
}

// Began implements [Candidate].
func (w *work) Began() time.Time {
	if began := w.began.Load(); began != nil {
		return *began
	}
	return time.Time{}
}

func (w *work) end() { w.done.Store(nil) }

func (w *work) on() bool {
	done := w.done.Load()
	if done == nil {
		return false
	}
	select {
	case <-*done:
		return false
	default:
		return true
	}
}

// connect returns a client of go-redis with its default options and one open connection.
func connect(ctx context.Context, cfg Config) (*redis.Client, error) {
	client := redis.NewClient(&redis.Options{Addr: cfg.Addr, ReadTimeout: cfg.ReadTimeout})
	if err := client.Ping(ctx).Err(); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// extendEvery calls extend at an interval while it succeeds, at most until ctx is done: the loop
// that users of a library without automatic extension write.
func extendEvery(ctx context.Context, interval time.Duration, extend func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if extend(ctx) != nil {
				return
			}
		}
	}
}

// pause waits before a next attempt.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// releaseBound bounds what is done after the end of a context.
const releaseBound = 5 * time.Second

// retryPause is what a candidate waits after an error before it tries again.
const retryPause = 100 * time.Millisecond
