package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/schedule"
)

// NoRetry wraps the error of a TaskFunc so that its run has failed for good: no further attempt is
// made, whatever Task.Retry and Task.Abandoned say. The next slot runs as usual. Use it for what
// another attempt cannot cure, such as input that is wrong. It returns nil for nil. The text of the
// error and what it matches stay as they are, and it may be wrapped further, by a middleware too.
func NoRetry(err error) error {
	if err == nil {
		return nil
	}
	return &retryError{error: err, never: true}
}

// RetryAfter wraps the error of a TaskFunc so that the next attempt comes after d instead of after
// the pause of Task.Retry: a rate limit may say so. The attempt counts as any that has failed, and
// RetryPolicy.Attempts says whether another one follows: by default none does. A change of the
// leader does not shorten d. Less than 1 ms counts as 1 ms, more than 30 days as 30 days. It
// returns nil for nil. The text of the error and what it matches stay as they are, and it may be
// wrapped further, by a middleware too.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryError{error: err, after: min(max(d, time.Millisecond), schedule.LongestRetry)}
}

// retryError says how the run of a task goes on after an error.
type retryError struct {
	error
	never bool
	after time.Duration
}

func (e *retryError) Unwrap() error { return e.error }

// retryWanted is what an error of the application says of the next attempt. It calls methods of
// that error and is not for a loop.
func retryWanted(err error) (never bool, after time.Duration) {
	_ = protect(func() error { // an error whose methods fail says nothing
		var wanted *retryError
		if errors.As(err, &wanted) {
			never, after = wanted.never, wanted.after
		}
		return nil
	})
	return never, after
}

// timeoutError is the cause of the context of an attempt whose Timeout has passed.
type timeoutError struct{ bound time.Duration }

func (e *timeoutError) Error() string { return fmt.Sprintf("timeout of %v", e.bound) }

// Is makes it what the context of the attempt returns as its error.
func (*timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// endedBy names in the error of an attempt what had ended its context before it returned, but for
// the end of its term: its timeout, or Cancel. It calls methods of the error of the application and
// is not for a loop.
func endedBy(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	_, timedOut := cause.(*timeoutError)      //nolint:errorlint // the one that this package has made
	_, panicked := err.(*PanicError)          //nolint:errorlint // the one that catch has made
	named := timedOut || cause == ErrCanceled //nolint:errorlint // exactly this
	if err == nil || !named || panicked || matches(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}
