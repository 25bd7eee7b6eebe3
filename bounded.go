package tenure

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// This file bounds calls that may hang or panic: calls of the Redis client, which may ignore their
// context, and calls of the application's code. A goroutine that must go on makes neither directly.
// Their results are left in the mailbox of a loop.

// How many calls to Redis may be in flight at once, abandoned ones included. Beyond that no further
// call is made.
const (
	maxCalls         = 16 // of one election, and flights of all tasks
	maxRegistryCalls = 4  // of the registry, of each kind
	maxQuestions     = 64 // of the application, that it does not wait for any more
)

// questionsLeft is how Run names calls of the application that still run.
const questionsLeft = "a call of the application to Redis"

// callsHangError is the error of a call that is not made because too many hang.
type callsHangError struct {
	count int
	of    string // whose; "": not said
}

func (e *callsHangError) Error() string {
	return fmt.Sprintf("%v: %d calls%s hang", ErrUnreachable, e.count, e.of)
}

func (*callsHangError) Unwrap() error { return ErrUnreachable }

// callGate bounds calls by the context of their caller, even if the client ignores that context: by
// default go-redis does not interrupt a call in flight. It is safe for concurrent use.
type callGate struct {
	most int      // that may be left; no more are made then
	left inFlight // calls whose caller has stopped waiting; Run waits for them at its end
}

// flush waits for the calls that were left, at the latest until the deadline: then it says what
// still runs.
func (g *callGate) flush(deadline time.Time, what string) error { return g.left.flush(deadline, what) }

// ask is bounded for a call of the application. What ends without a usable answer because the
// caller's own context has ended returns the cause of that: it is no fault of Redis.
func ask[T any](ctx context.Context, g *callGate, call func(context.Context) (T, error)) (T, error) {
	answer, err := bounded(ctx, g, call)
	if ctx.Err() != nil && errors.Is(err, ErrUnreachable) {
		err = context.Cause(ctx)
	}
	return answer, err
}

// bounded makes one call and waits for it, at the latest until ctx is done. The call may go on
// then, and its result is dropped. A panic in it becomes the error.
func bounded[T any](ctx context.Context, g *callGate, call func(context.Context) (T, error)) (T, error) {
	var none T
	if ctx.Done() == nil { // the caller waits for as long as the client does
		return call(ctx)
	}
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
	}
	if left := g.left.count(); left >= g.most {
		return none, &callsHangError{count: left}
	}
	o := &struct { // one allocation
		value T
		err   error
		done  chan struct{} // closed when value and err are set
		first atomic.Bool   // set by the call or by its caller: the first of them wins
	}{done: make(chan struct{})}
	go catch(func() (err error) { // ends when the client returns; counted in left from when nobody waits for it any more
		o.value, err = call(ctx)
		return err
	}, func(err error) {
		if _, panicked := err.(*PanicError); panicked { //nolint:errorlint // the one that catch has made
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		o.err = err
		close(o.done)
		if o.first.Swap(true) {
			g.left.end()
		}
	})
	select {
	case <-o.done:
		return o.value, o.err
	case <-ctx.Done():
	}
	g.left.begin()
	if o.first.Swap(true) { // the call has returned meanwhile
		g.left.end()
		return o.value, o.err
	}
	return none, fmt.Errorf("%w: %w", ErrUnreachable, context.Cause(ctx))
}

// within bounds a call of this package: if it has no answer by then, the error says so.
func within(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, bound, fmt.Errorf("no answer within %v", bound))
}

// inFlight counts work that may outlive its caller: calls to Redis and running observers. Unlike
// sync.WaitGroup it allows begin during a wait, because applications may call the public methods at
// any time.
type inFlight struct {
	mu   sync.Mutex
	n    int
	idle []chan struct{} // closed when nothing is in flight
}

func (f *inFlight) begin() {
	f.mu.Lock()
	f.n++
	f.mu.Unlock()
}

func (f *inFlight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n > 0 {
		return
	}
	for _, idle := range f.idle {
		close(idle)
	}
	f.idle = nil
}

func (f *inFlight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// flush waits until nothing is in flight, at the latest until the deadline: then it says what still
// is.
func (f *inFlight) flush(deadline time.Time, what string) error {
	idle := make(chan struct{})
	f.mu.Lock()
	if f.n == 0 {
		close(idle)
	} else {
		f.idle = append(f.idle, idle)
	}
	f.mu.Unlock()
	return await(idle, deadline, what)
}

// await waits until done is closed, at the latest until the deadline: then it says what still runs.
func await(done <-chan struct{}, deadline time.Time, what string) error {
	bound := time.NewTimer(time.Until(deadline))
	defer bound.Stop()
	select {
	case <-done:
		return nil
	case <-bound.C:
	}
	select {
	case <-done:
		return nil
	default:
		return &DrainError{Running: []string{what}}
	}
}

// catch makes a call that may be the application's code, and hands its error to done, however the
// call ends: a panic, and runtime.Goexit, become a *PanicError. After runtime.Goexit the goroutine
// ends behind done.
func catch(call func() error, done func(error)) {
	err := error(&PanicError{})
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
		done(err)
	}()
	err = call()
}

// protect is catch in a goroutine of its own, which it waits for: its caller survives
// runtime.Goexit too.
func protect(call func() error) error {
	answer := make(chan error, 1)
	go catch(call, func(err error) { answer <- err }) // ends with the call; waited for below
	return <-answer
}

// worded adds to an error of the application where it comes from. heeded reports whether the error
// only says that ctx is done. The methods of such an error are the application's code, which no
// loop may call: worded calls them, and returns all that the loop needs. An error whose methods
// panic, mostly a nil pointer, is replaced.
func worded(ctx context.Context, what string, err error) (heeded bool, named error) {
	failed := protect(func() error {
		heeded = errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))
		named = fmt.Errorf("%s: %w", what, err)
		return nil
	})
	if failed != nil {
		return false, fmt.Errorf("%s: a method of its error failed: %w", what, failed)
	}
	return heeded, named
}

// matches is errors.Is for an error of the application, whose methods may panic: then it matches
// nothing. It is not for a loop.
func matches(err, target error) bool {
	is := err == target //nolint:errorlint // none of the application's code
	if is || err == nil {
		return is
	}
	return protect(func() error { is = errors.Is(err, target); return nil }) == nil && is
}

// becauseError is an error with a cause that may be the application's, such as that of the context
// of Run. A loop may make one: its text is made by whoever asks for it.
type becauseError struct {
	kind  error  // of this package
	words string // behind it
	cause error
}

func (e *becauseError) Error() string { return fmt.Sprintf("%v%s: %v", e.kind, e.words, e.cause) }

// Unwrap makes it match both.
func (e *becauseError) Unwrap() []error { return []error{e.kind, e.cause} }

// errorText is an error as it is recorded: bounded, valid UTF-8. It calls the application's code
// and is not for a loop.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	text := plainText(err)
	if panicked, ok := err.(*PanicError); ok && len(panicked.Stack) > 0 { //nolint:errorlint // the one that catch has made
		text += "\n" + string(panicked.Stack)
	}
	return store.TaskText(text)
}

// plainText is the text of an error of the application, whose methods may panic.
func plainText(err error) (text string) {
	if protect(func() error { text = err.Error(); return nil }) != nil {
		return "the Error method of the error failed"
	}
	return text
}

// wakeup wakes the loop that waits for it. It coalesces: many calls of nudge before the loop looks
// wake it once. Anybody may call nudge; it never blocks.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) nudge() {
	select {
	case w <- struct{}{}:
	default: // it will wake already
	}
}

// mailbox holds what other goroutines leave for a loop. T says whether it coalesces or grows. It is
// safe for concurrent use and never blocks.
type mailbox[T any] struct {
	wakeup

	mu   sync.Mutex
	mail T
}

// put leaves something and wakes the loop.
func (b *mailbox[T]) put(leave func(*T)) {
	b.mu.Lock()
	leave(&b.mail)
	b.mu.Unlock()
	b.nudge()
}

// take empties the mailbox.
func (b *mailbox[T]) take() T {
	b.mu.Lock()
	defer b.mu.Unlock()
	var empty T
	taken := b.mail
	b.mail = empty
	return taken
}

// This file says who gets which part of ShutdownTimeout. From the stop of Run on:
//
//	S              ShutdownTimeout: Run returns
//	S − lastWords  what still runs is reported; observers hear of that
//	D              the drain bound of each election: S − deregisterTime in a Coordinator,
//	               S for an Elector that stands alone
//	D − lastWords  the loop of an election returns with what still runs
//	3/4 · D        the context of running tasks is cancelled
//
// D bounds the hand-over of a term that ends otherwise as well, from that end on.

// deregisterTime is the time that a Coordinator keeps for the last round trip of its registry.
func deregisterTime(shutdown time.Duration) time.Duration { return min(shutdown/10, time.Second) }

// lastWords is the time that is kept for observers and the Logger, so that the last events arrive.
func lastWords(bound time.Duration) time.Duration { return min(bound/20, 250*time.Millisecond) }

// finishTime is for how long running tasks may finish after the voluntary end of a term.
func finishTime(drain time.Duration) time.Duration { return drain * 3 / 4 }

// overrunPatience is how long after the end of its context a task may go on before that is
// reported. It is less than what the drain has left then, a quarter.
func overrunPatience(shutdown time.Duration) time.Duration { return min(overrunAfter, shutdown/10) }

const overrunAfter = time.Second
