package tenurehttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
)

// The ages of what is cached.
const (
	fresh      = time.Second            // younger than this nobody reads it again
	tolerable  = 5 * time.Second        // older than this a reader waits for another one
	staleAfter = 10 * time.Second       // older than this it is stale, though no error is known
	askServer  = time.Minute            // Redis is asked again for its version
	listFor    = 3 * time.Second        // older than this a listing of all instances makes no snapshot
	listLater  = 200 * time.Millisecond // after a snapshot, so that its readers have it by then
	loadBound  = 5 * time.Second        // for one load
	waitBound  = time.Second            // for which a reader waits who could have the last one
	failedFor  = 15 * time.Second       // for which a failure says how it is; above loadBound

	// Between the beginnings of two loads, if changes make the last one old at once: four times
	// what it took, between these two.
	leastSpacing = 20 * time.Millisecond
	mostSpacing  = 100 * time.Millisecond

	// Likewise, if nothing but the word of a reader says that the last one is old.
	rareSpacing = 250 * time.Millisecond
)

// cell keeps the last value of something that is read from Redis, for all readers. It is loaded
// only if somebody asks, by one load at a time. A reader waits for a load if there is no value, or
// an old one that may not be as it is any more. For a while after a load has failed nobody waits:
// the last value is handed out at once, while a load per second is tried. If nobody has read since
// then, the failure says nothing of now, and the next reader waits again.
type cell[T any] struct {
	load  func(ctx context.Context) (T, error)
	least time.Duration // between the beginnings of two loads

	mu       sync.Mutex
	value    T
	at       time.Time // of value; zero: there is none
	err      error     // of the last load
	failed   time.Time // when that was, if err is not nil
	began    time.Time // the last load
	took     time.Duration
	flight   chan struct{}
	invalid  bool // what value says has changed since the last load began
	outdated bool // value is older than such a change
}

// view is what a cell has.
type view[T any] struct {
	value T
	at    time.Time
	err   error // why there is no younger one
}

// refused is why there is no younger value, if somebody has to fix something: it does not pass by
// itself, and the last value is no answer.
func (v view[T]) refused() error {
	if errors.Is(v.err, tenure.ErrMisconfigured) {
		return v.err
	}
	return nil
}

func newCell[T any](load func(ctx context.Context) (T, error)) *cell[T] {
	return &cell[T]{load: load, least: leastSpacing}
}

// get returns the value. The error is that of the last load if there never was a value.
func (c *cell[T]) get(ctx context.Context) (view[T], error) { return c.wait(ctx, time.Time{}, 0) }

// anew is get for a value that is read from now on. Many who ask at one moment share two loads at
// most.
func (c *cell[T]) anew(ctx context.Context) (view[T], error) { return c.wait(ctx, time.Now(), 0) }

// rarelyAnew is anew for readers who may have made up why. It begins no load that soon after
// another one.
func (c *cell[T]) rarelyAnew(ctx context.Context) (view[T], error) {
	return c.wait(ctx, time.Now(), rareSpacing)
}

// readSince reports whether the value was read since then. If not, it is too old.
func (c *cell[T]) readSince(since time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.Before(since) {
		c.invalid = true
		return false
	}
	return true
}

func (c *cell[T]) wait(ctx context.Context, since time.Time, spacing time.Duration) (view[T], error) {
	var patience <-chan time.Time
	for since.IsZero() || !c.readSince(since) {
		flight := c.look(spacing)
		if flight == nil {
			break
		}
		if patience == nil {
			timer := time.NewTimer(c.patience())
			defer timer.Stop()
			patience = timer.C
		}
		select {
		case <-flight:
			continue
		case <-patience:
		case <-ctx.Done():
		}
		break
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	v := view[T]{value: c.value, at: c.at, err: c.err}
	switch {
	case !c.at.IsZero():
		return v, nil
	case ctx.Err() != nil:
		return v, context.Cause(ctx)
	case c.err == nil:
		return v, fmt.Errorf("%w: redis has given no answer yet", tenure.ErrUnreachable)
	}
	return v, c.err
}

// patience is for how long a reader waits.
func (c *cell[T]) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return loadBound
	}
	return waitBound
}

// look begins a load if one is due, that long after the beginning of another one, and returns what
// a reader must wait for; nil: nothing.
func (c *cell[T]) look(spacing time.Duration) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	age := now.Sub(c.at)
	if !c.at.IsZero() && c.err == nil && !c.invalid && age < fresh {
		return nil
	}
	if c.flight == nil && (c.err == nil || now.Sub(c.began) >= fresh) {
		c.begin(now, spacing-now.Sub(c.began))
	}
	failing := c.err != nil && now.Sub(c.failed) < failedFor
	if !c.at.IsZero() && (failing || c.err == nil && !c.invalid && !c.outdated && age < tolerable) {
		return nil
	}
	return c.flight // nil if the last load has just failed
}

// silent reports whether Redis has given no answer a while ago.
func (c *cell[T]) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Is(c.err, tenure.ErrUnreachable) && time.Since(c.failed) < failedFor
}

// peek returns the value as it is, without a load. false: there is none, or it is as old as that,
// or it may not be as it is any more.
func (c *cell[T]) peek(old time.Duration) (view[T], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := !c.at.IsZero() && c.err == nil && !c.invalid && !c.outdated && time.Since(c.at) < old
	return view[T]{value: c.value, at: c.at}, ok
}

// last returns the value, however old it is. false: there is none.
func (c *cell[T]) last() (value T, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, !c.at.IsZero()
}

// kept is last, with the time of the value, and why there is no younger one.
func (c *cell[T]) kept() (v view[T], ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return view[T]{value: c.value, at: c.at, err: c.err}, !c.at.IsZero()
}

// orElse is what ask of the cell says, for readers who can have another value from elsewhere: if
// this one has none yet, they wait no longer than for a younger one, and not at all if the other
// one is stale.
func (c *cell[T]) orElse(ctx context.Context, other view[T], ask func(context.Context) (view[T], error)) (view[T], error) {
	if _, has := c.last(); !has {
		wait := waitBound
		if other.err != nil {
			wait = 0
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w: redis has given no answer within %v", tenure.ErrUnreachable, waitBound))
		defer cancel()
	}
	v, err := ask(ctx)
	if errors.Is(err, tenure.ErrUnreachable) {
		other.err = cmp.Or(other.err, err)
		return other, nil
	}
	return v, err
}

// renew begins a load after a while, if the value is not fresh. Nobody waits for it.
func (c *cell[T]) renew(after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.flight == nil && now.Sub(c.at) >= fresh && now.Sub(c.began) >= fresh {
		c.begin(now, after)
	}
}

// begin begins a load, not before a while has passed. The lock is held.
func (c *cell[T]) begin(now time.Time, after time.Duration) {
	pause := max(min(max(4*c.took, c.least), mostSpacing)-now.Sub(c.began), after)
	flight := make(chan struct{})
	c.flight, c.began = flight, now.Add(max(pause, 0))
	c.outdated, c.invalid = c.outdated || c.invalid, false
	ctx, end := context.WithTimeout(context.Background(), loadBound+max(pause, 0))
	go func() { // ends with ctx, or when the client returns
		defer end()
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		at := time.Now()
		value, err := c.load(ctx)
		if err != nil && ctx.Err() != nil { // it is not the reader's own context that has ended
			err = fmt.Errorf("%w within %v", tenure.ErrUnreachable, loadBound)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.took = time.Since(at)
		if c.err = err; err == nil {
			c.value, c.at, c.outdated = value, at, false
		} else {
			c.failed = time.Now()
		}
		c.flight = nil
		close(flight)
	}()
}

// expire makes the value old: what it says has changed.
func (c *cell[T]) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.invalid = true
}
