package tenure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/cron"
	"github.com/tenure-go/tenure/internal/schedule"
)

// Schedule says when a task is due. Every and Cron return one; any other that is a pure function of
// its argument will do.
type Schedule interface {
	// Next returns the first due time after the given one, in UTC. The argument is the slot before
	// it. Next must depend on nothing else and must not block: a call that takes more than a second
	// is reported with ErrMisconfigured, and its task stands still until it returns. It is called
	// for past slots as well, and may be called by several goroutines at once. The zero time, or
	// one that is not later than the argument, ends the schedule.
	Next(after time.Time) time.Time
	// Identity distinguishes this schedule from others. The record of the task keeps a hash of it:
	// if it changes, the next slot is computed anew. It must be the same in every process and after
	// every restart, so it must change only with the result of Next, and not with wording. "" is
	// refused.
	Identity() string
}

// OnDemand returns the schedule that is never due, for a task that only TaskScheduler.Trigger runs
// (and RunOnElection, if that is set).
func OnDemand() Schedule { return onDemand{} }

type onDemand struct{ schedule.OnDemand }

// Identity is a constant: all of them are alike.
func (onDemand) Identity() string { return "on demand" }

// At returns the schedule that is due once, at t, by Redis's clock and rounded up to a millisecond.
// If nobody could run the task then, Task.Missed decides: by default it runs as soon as somebody
// can. If a leader first sees the task after t, it runs only if t was at most Task.Grace ago, so
// that a record that is lost does not bring back what was done long ago. InitialDelay does not
// apply. After its slot the task stays registered, and can be triggered. A t before 1970, or more
// than a hundred years ahead, is an error of Register.
func At(t time.Time) Schedule {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return at{schedule.At(ms)}
}

type at struct{ schedule.At }

// String is "at" and the time in UTC.
func (a at) String() string {
	return "at " + time.UnixMilli(int64(a.At)).UTC().Format(time.RFC3339Nano)
}

// Identity is what String is: the time says all.
func (a at) Identity() string { return a.String() }

func (a at) problem() string {
	if t := time.UnixMilli(int64(a.At)); t.Unix() < 0 || time.Until(t) > 100*365*24*time.Hour {
		return "must be between 1970 and a hundred years from now"
	}
	return ""
}

// Every returns a schedule that is due every d: whole milliseconds between 100 ms and ten years.
// The first slot is d after a leader has seen the task for the first time, or Task.InitialDelay
// after that. All others are counted from it, across leaders and restarts. A bad d is an error of
// Register.
func Every(d time.Duration) Schedule { return every{schedule.Every(d)} }

type every struct{ schedule.Every }

// Identity is what String is: the interval says all.
func (e every) Identity() string { return e.String() }

func (e every) problem() string {
	if d := time.Duration(e.Every); d < minEvery || d > maxEvery || d%time.Millisecond != 0 {
		return fmt.Sprintf("must be whole milliseconds between %v and %v", minEvery, maxEvery)
	}
	return ""
}

// Cron returns a schedule from a cron expression of five fields (minute, hour, day of month, month,
// day of week), or from @hourly, @daily (@midnight), @weekly, @monthly or @yearly (@annually). The
// fields are read as in Kubernetes and robfig/cron: if the day of the month and the day of the
// week are both restricted, either is enough, and a step such as */2 restricts. 0 and 7 are Sunday.
// A step beyond the values of its field is refused: */90 minutes would come once an hour.
//
// The zone is UTC, or the one that is named before the fields: "CRON_TZ=Europe/Berlin 30 2 * * *".
// A fixed time that the clock of the zone skips comes right after the gap; one that it shows twice
// comes once. If the hour or the minute begins with a star, the slots of a repeated hour come in
// both.
//
// A bad spec is an error of Register. So that this holds for a Schedule of your own that asks this
// one, too, Next panics with that error. ParseCron is for specs that a user has typed.
func Cron(spec string) Schedule {
	parsed, err := cron.Parse(spec)
	return calendar{Schedule: parsed, spec: spec, err: err}
}

// ParseCron is Cron with the error at once: the error matches ErrMisconfigured and says which field
// is wrong, and the schedule is nil then.
func ParseCron(spec string) (Schedule, error) {
	parsed, err := cron.Parse(spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMisconfigured, err)
	}
	return calendar{Schedule: parsed, spec: spec}, nil
}

type calendar struct {
	cron.Schedule
	spec string
	err  error
}

// Next panics if the spec is bad: zero times of one that another Schedule asks would mean that its
// task is never due, and nobody would say why.
func (c calendar) Next(after time.Time) time.Time {
	if c.err != nil {
		panic(c.err)
	}
	return c.Schedule.Next(after)
}

func (c calendar) String() string { return "cron " + c.spec }

// Identity is the spec without the space that says nothing.
func (c calendar) Identity() string { return "cron " + strings.Join(strings.Fields(c.spec), " ") }

func (c calendar) problem() string {
	if c.err != nil {
		return errors.Unwrap(c.err).Error() // without the spec, which the error of Register names
	}
	return ""
}

const (
	minEvery = 100 * time.Millisecond
	maxEvery = 10 * 366 * 24 * time.Hour
)

// nextBound is how long a call of Next of the application's may take.
const nextBound = time.Second

// errHungSchedule is why a task stands still.
var errHungSchedule = fmt.Errorf("its Next has not returned within %v", nextBound)

// ours reports whether a schedule is one of this package: it never blocks.
func ours(s Schedule) bool {
	switch s.(type) {
	case every, calendar, onDemand, at:
		return true
	}
	return false
}

// scheduleOf is the schedule of this package that has an identity; nil: none has.
func scheduleOf(identity string) Schedule {
	if interval, is := strings.CutPrefix(identity, "every "); is {
		if d, err := time.ParseDuration(interval); err == nil && Every(d).(every).problem() == "" {
			return Every(d)
		}
	}
	if text, is := strings.CutPrefix(identity, "at "); is {
		if t, err := time.Parse(time.RFC3339Nano, text); err == nil && At(t).(at).problem() == "" {
			return At(t)
		}
	}
	if spec, is := strings.CutPrefix(identity, "cron "); is {
		if s, err := ParseCron(spec); err == nil {
			return s
		}
	}
	return nil
}

// counted counts the calls of Next, so that one that hangs is told from many that take long
// together.
type counted struct {
	Schedule
	calls *atomic.Int64
}

// Next counts, and asks the schedule.
func (c counted) Next(after time.Time) time.Time {
	c.calls.Add(1)
	return c.Schedule.Next(after)
}

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
	if err == nil {
		return false, 0
	}
	var wanted *retryError
	_ = protect(func() error { // an error whose methods fail says nothing
		errors.As(err, &wanted)
		return nil
	})
	if wanted == nil {
		return false, 0
	}
	return wanted.never, wanted.after
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
