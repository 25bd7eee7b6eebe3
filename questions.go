package tenure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// questions bounds what the application asks of Redis by the context that it asks with, whatever the client does with that context: by
// default go-redis does not interrupt a call in flight. It is safe for concurrent use; the zero value is ready.
type questions struct {
	left inFlight // calls whose caller has stopped waiting; Run waits for them at its end
}

// flush waits for the calls that were left, at the latest until the deadline.
func (q *questions) flush(deadline time.Time) error {
	return q.left.flush(deadline, "a call of the application to Redis")
}

// maxQuestions is how many calls may be left in flight. No more are made then.
const maxQuestions = 64

// ask makes one call and waits for it, at the latest until ctx is done. The call may go on then, and its result is dropped.
func ask[T any](ctx context.Context, q *questions, call func(context.Context) (T, error)) (T, error) {
	var none T
	if ctx.Done() == nil { // the caller waits for as long as the client does
		return call(ctx)
	}
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
	}
	if left := q.left.count(); left >= maxQuestions {
		return none, fmt.Errorf("%w: %d calls hang", ErrUnreachable, left)
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	var first atomic.Bool // set by the call or by its caller, whoever is through first
	go func() {           // ends when the client returns; counted in left from when nobody waits for it any more
		var o outcome
		if err := protect(func() error { o.value, o.err = call(ctx); return nil }); err != nil {
			o.err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		done <- o
		if first.Swap(true) {
			q.left.end()
		}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
	}
	q.left.begin()
	if first.Swap(true) { // the call has returned meanwhile
		q.left.end()
		o := <-done
		return o.value, o.err
	}
	return none, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
}
