package tenure

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// The errors of this package. Every error it returns matches at least one of them with errors.Is,
// or is that of the caller's own context or function (Elector.Do, Once).
var (
	// ErrNoLeader: nobody holds the lease.
	ErrNoLeader = errors.New("tenure: no leader")
	// ErrNotLeader: the call needs this process to lead, and it does not. If another leader is
	// known, Elector.Do returns a *NotLeaderError, which matches it.
	ErrNotLeader = errors.New("tenure: not the leader")
	// ErrLost: the term ended because Redis refused a renewal, or because no renewal succeeded in
	// time (ErrExpired).
	ErrLost = errors.New("tenure: leadership lost")
	// ErrExpired: no renewal succeeded in time, so the term ended before its lease could. It
	// matches ErrLost as well. Redis may be away, or this process was paused.
	ErrExpired = fmt.Errorf("%w: no renewal succeeded in time", ErrLost)
	// ErrResigned: the term ended because this process gave it up while it went on running. Leader
	// work returns it to resign.
	ErrResigned = errors.New("tenure: leadership resigned")
	// ErrNotReady: the instance that a transfer was meant for has not asked for the lease in time,
	// or nobody has. The term goes on, and nothing was lost.
	ErrNotReady = errors.New("tenure: not ready to lead")
	// ErrTransferring: another transfer of the same role is under way.
	ErrTransferring = errors.New("tenure: another transfer is under way")
	// ErrWorkFailed: the term was given up because leader work, or the health check, failed or
	// hung.
	ErrWorkFailed = errors.New("tenure: leader work failed")
	// ErrNotTaken: the instance that a command was meant for has not taken it in time. It is not
	// executed any more.
	ErrNotTaken = errors.New("tenure: command not taken")
	// ErrCommandFailed: an instance has executed a command, and that failed for a reason that has
	// no error of its own here.
	ErrCommandFailed = errors.New("tenure: command failed")
	// ErrUnreachable: Redis gave no usable answer. Whether the call took effect is not known. It
	// ends no term. A call that ends because the caller's own context has ended returns the cause
	// of that context instead (context.Cause); whether it took effect is not known either.
	ErrUnreachable = store.ErrUnreachable
	// ErrStopped: Run has been told to stop. The call came after that, or the term ended by it.
	ErrStopped = errors.New("tenure: stopped")
	// ErrMisconfigured: options, rights or keys are wrong; the error says what is wrong and how to
	// fix it.
	ErrMisconfigured = store.ErrMisconfigured
	// ErrDrainTimeout: Run returned although something that it had started was still running. It
	// comes as a *DrainError, which lists what runs.
	ErrDrainTimeout = errors.New("tenure: still running at the end of the shutdown timeout")
	// ErrRunning: Run was called while it is running, or on an elector that belongs to a
	// Coordinator.
	ErrRunning = errors.New("tenure: already running")
	// ErrTriggerWaiting: the task was triggered before and that run has not begun, so it is not
	// triggered again.
	ErrTriggerWaiting = errors.New("tenure: a trigger of this task waits already")
	// ErrCanceled: a run was ended by TaskScheduler.Cancel. It is the cause of the context of such
	// a run, and its error matches it.
	ErrCanceled = errors.New(store.CanceledText)
	// ErrRegistered: the leader, or this process, has registered the task, so Forget does not
	// remove its record; or somebody leads a role, or did a moment ago, or this process takes part
	// in its election, so ForgetRole does not remove it.
	ErrRegistered = errors.New("tenure: still registered")
	// ErrNotFound: there is no such instance or task.
	ErrNotFound = store.ErrNotFound
	// ErrTruncated: a listing stopped at its cap; what was read is returned beside the error.
	ErrTruncated = errors.New("tenure: listing truncated")
	// ErrAbandoned: a run of a task was given up, because its leader did not report its end, or its
	// term ended first, and the task must not run again (see Task.Abandoned). In the first case the
	// run may have succeeded all the same. Only EventTaskFailed carries this error.
	ErrAbandoned = errors.New(schedule.AbandonedText)
	// ErrFenced: a newer leader has written to the record although the term is on, and nothing was
	// changed. Only EventTaskBlocked carries this error.
	ErrFenced = errors.New("tenure: fenced by a newer leader")
)

// ownedError is ErrRunning for an elector whose coordinator need not run yet.
type ownedError struct{}

func (ownedError) Error() string {
	return "tenure: this elector belongs to a Coordinator: call Coordinator.Run"
}

func (ownedError) Unwrap() error { return ErrRunning }

// ranError is ErrStopped for a second Run: a program that calls Run until it succeeds would else
// say for ever that it was stopped, and not why it never leads.
type ranError struct{}

func (ranError) Error() string {
	return "tenure: stopped: Run may be called once, to run again make another Coordinator or Elector"
}

func (ranError) Unwrap() error { return ErrStopped }

// NotLeaderError says who leads, by the last answer of Redis, so that a handler can redirect. It
// matches ErrNotLeader. Elector.Do returns it if another instance is known to lead.
type NotLeaderError struct {
	Role   string // "" is the default one
	Leader string // instance ID; if Token is 0, what a foreign client wrote: untrusted
	Token  int64  // fencing token; 0: not a tenure client
	// Address is what the leader says as RegistryOptions.Address, as this process last read it:
	// when its term began, with a listing, or with Elector.Leader. "" if it says none, or if it
	// was not read yet.
	Address string
}

func (e *NotLeaderError) Error() string {
	at := ""
	if e.Address != "" {
		at = " at " + e.Address
	}
	return fmt.Sprintf("%v: instance %q%s is, by the last answer of Redis", ErrNotLeader, e.Leader, at)
}

// Is makes every NotLeaderError an ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// DrainError lists what still runs at the end of ShutdownTimeout. Run returns it, Resign returns it
// if the work of the term still runs, and EventWorkOverrun carries it. It matches ErrDrainTimeout.
type DrainError struct {
	Running []string // what still runs, for people: "leader work main.lead", "2 calls to Redis"
}

func (e *DrainError) Error() string {
	return fmt.Sprintf("%v: %s", ErrDrainTimeout, strings.Join(e.Running, ", "))
}

// Is makes every DrainError an ErrDrainTimeout.
func (e *DrainError) Is(target error) bool { return target == ErrDrainTimeout }

// joined is errors.Join, with all that still runs in one DrainError: errors.As finds no second one.
func joined(errs ...error) error {
	var others joinedErrors
	var running []string
	for _, err := range errs {
		parts, is := err.(joinedErrors) //nolint:errorlint // of an inner call
		if !is {
			parts = joinedErrors{err}
		}
		for _, part := range parts {
			if drain, is := part.(*DrainError); is { //nolint:errorlint // one of ours
				running = append(running, drain.Running...)
			} else if part != nil {
				others = append(others, part)
			}
		}
	}
	if running != nil {
		others = append(others, &DrainError{Running: running})
	}
	switch len(others) {
	case 0:
		return nil
	case 1:
		return others[0]
	}
	return others
}

// joinedErrors is what joined makes of several.
type joinedErrors []error

func (e joinedErrors) Error() string   { return errors.Join(e...).Error() }
func (e joinedErrors) Unwrap() []error { return e }

// OptionError is one problem with one option. New and its siblings join all problems into one error
// that matches ErrMisconfigured; errors.As finds the first of them.
type OptionError struct {
	Field  string // path of the field, such as "Election.LeaseTTL"
	Value  string // what it was set to, quoted if it is text
	Reason string // the relation it breaks, or what to set instead
}

func (e *OptionError) Error() string { return fmt.Sprintf("%s = %s: %s", e.Field, e.Value, e.Reason) }

// Is makes every OptionError an ErrMisconfigured.
func (e *OptionError) Is(target error) bool { return target == ErrMisconfigured }

// optionErrors is what a constructor returns: all problems at once, one a line.
type optionErrors []*OptionError

func (e optionErrors) Error() string {
	lines := make([]string, len(e))
	for i, problem := range e {
		lines[i] = problem.Error()
	}
	return "tenure: invalid options:\n\t" + strings.Join(lines, "\n\t")
}

func (e optionErrors) Unwrap() []error {
	all := make([]error, len(e))
	for i, problem := range e {
		all[i] = problem
	}
	return all
}

// PanicError is the error of a callback that panicked, or that ended its goroutine with
// runtime.Goexit.
type PanicError struct {
	Value any    // what was passed to panic; nil after runtime.Goexit
	Stack []byte // the stack at the panic
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "tenure: callback ended its goroutine"
	}
	return fmt.Sprintf("tenure: panic: %v", e.Value)
}

// Unwrap returns the value of the panic if it was an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
