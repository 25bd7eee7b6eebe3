package redistest

import (
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often a condition is looked at. Nothing but a condition is ever waited for.
const pollInterval = 5 * time.Millisecond

// final is an error that no further look will fix.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// poll looks at cond until it is nil or final, at most for bound, and returns what it was last.
func poll(bound time.Duration, cond func() error) error {
	for end := time.Now().Add(bound); ; time.Sleep(pollInterval) {
		err := cond()
		var stop final
		if err == nil || errors.As(err, &stop) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("not within %v: %w", bound, err)
		}
	}
}
