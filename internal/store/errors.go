package store

import (
	"errors"
	"fmt"
	"net"
)

// What the errors of a store are. Package tenure exports them.
var (
	// ErrUnreachable: no usable answer. Nothing is known, nothing is lost.
	ErrUnreachable = errors.New("tenure: redis gave no usable answer")
	// ErrMisconfigured: options, rights or keys are wrong, and somebody has to fix them.
	ErrMisconfigured = errors.New("tenure: misconfigured")
	// ErrNotFound: there is no such instance.
	ErrNotFound = errors.New("tenure: not found")
)

// Error is an error of Redis with what it means for tenure.
type Error struct {
	Kind error  // ErrUnreachable or ErrMisconfigured
	Op   string // script or command
	Fix  string // what to do about it; "" if there is nothing to do but wait
	Err  error

	// Refused: the user has no right to a command, a key or a channel.
	Refused bool

	// Spoilt: a key holds what it must not. Every call that reads the key finds that, and none that
	// has an answer does.
	Spoilt bool
}

func (e *Error) Error() string {
	text := fmt.Sprintf("%v: %s: %v", e.Kind, e.Op, e.Err)
	if e.Fix != "" {
		text += " (fix: " + e.Fix + ")"
	}
	return text
}

// Unwrap makes it match its kind and its cause.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// AsType is errors.AsType, which Go 1.25 does not have.
func AsType[T error](err error) (T, bool) {
	var found T
	ok := errors.As(err, &found)
	return found, ok
}

// FixOf tells one misconfiguration from another: met by several scripts, it is the same.
func FixOf(err error) string {
	if e, ok := AsType[*Error](err); ok {
		return e.Fix
	}
	return err.Error()
}

// NeverSent reports whether an error says that there was no connection, so that nothing can have
// reached Redis.
func NeverSent(err error) bool {
	dialled, ok := AsType[*net.OpError](err)
	return ok && dialled.Op == "dial"
}
