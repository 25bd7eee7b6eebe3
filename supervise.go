package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// RestartPolicy says how Supervise runs work again. The zero value is the default.
type RestartPolicy struct {
	// Backoff is the pause before the first restart; each further failure in a row doubles it, up
	// to MaxBackoff. Work that ran for MaxBackoff or longer begins a new row. Default 100 ms and 10
	// s. A negative Backoff: no pause.
	Backoff, MaxBackoff time.Duration
	// Restarts is how many restarts within Window are made before the term is given up. Default 5
	// within a minute; between 0 and 1000, 0 being the default. Negative: no limit.
	Restarts int
	Window   time.Duration
}

// maxRestarts is the largest limit: as many times are remembered.
const maxRestarts = 1000

// complete fills in the defaults.
func (p RestartPolicy) complete(c *checker, prefix string) RestartPolicy {
	p.Backoff = orDefault(p.Backoff, 100*time.Millisecond)
	p.MaxBackoff = orDefault(p.MaxBackoff, max(10*time.Second, p.Backoff))
	p.Window = orDefault(p.Window, time.Minute)
	if p.Restarts == 0 {
		p.Restarts = 5
	}
	c.between(prefix+"MaxBackoff", p.MaxBackoff, max(p.Backoff, 0), lease.MaxTTL)
	c.between(prefix+"Window", p.Window, time.Millisecond, maxPeriod)
	if p.Restarts > maxRestarts {
		c.refuse(prefix+"Restarts", p.Restarts, "must be at most %d; negative: no limit", maxRestarts)
	}
	return p
}

// Supervise returns leader work that runs fn, and runs it again while the term lasts if it returns
// an error or panics. Beside other work of a term each piece is restarted for itself: one that
// fails does not stop the others. If fn fails more often than policy allows, the term is given up
// as it is for any work that fails (see LeadFunc), and a later term begins to count anew.
//
// Nil from fn means that its work is done. ErrResigned ends the term as from any work. Each restart
// is an EventWorkRestarted with the name. A nil fn, an empty name and a bad policy make work that
// fails at once with ErrMisconfigured.
func Supervise(name string, fn LeadFunc, policy RestartPolicy) LeadFunc {
	var c checker
	if name == "" {
		c.refuse("name", name, "must be set: events and errors have it")
	}
	if fn == nil {
		c.refuse("fn", nil, "must be a function")
	}
	policy = policy.complete(&c, "policy.")
	if err := c.err(); err != nil {
		return func(context.Context, Term) error { return fmt.Errorf("supervise: %w", err) }
	}
	return func(ctx context.Context, term Term) error {
		s := supervisor{name: name, policy: policy}
		return s.run(ctx, term, fn)
	}
}

// supervisor restarts one piece of work in one term.
type supervisor struct {
	name     string
	policy   RestartPolicy
	failures int         // in a row
	restarts []time.Time // within the window, the oldest first
}

func (s *supervisor) run(ctx context.Context, term Term, fn LeadFunc) error {
	for attempt := 1; ; attempt++ {
		began := time.Now()
		err := protect(func() error { return fn(ctx, term) })
		if err == nil || ctx.Err() != nil || matches(err, ErrResigned) {
			return err
		}
		pause, again := s.failed(began, time.Now())
		if !again {
			return fmt.Errorf("supervise: %s failed %d times within %v: %w", s.name, len(s.restarts)+1, s.policy.Window, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if term.live != nil && term.live.links.restarted != nil { // else it is the term of a test
			term.live.links.restarted(s.name, attempt, err)
		}
	}
}

// failed notes a failure, and returns the pause before the restart, and false if there is to be
// none.
func (s *supervisor) failed(began, now time.Time) (pause time.Duration, again bool) {
	if now.Sub(began) >= s.policy.MaxBackoff {
		s.failures = 0
	}
	s.failures++
	for len(s.restarts) > 0 && now.Sub(s.restarts[0]) >= s.policy.Window {
		s.restarts = s.restarts[1:]
	}
	if s.policy.Restarts >= 0 {
		if len(s.restarts) >= s.policy.Restarts {
			return 0, false
		}
		s.restarts = append(s.restarts, now)
	}
	if s.policy.Backoff < 0 {
		return 0, true
	}
	return lease.Backoff(s.policy.Backoff, s.failures, s.policy.MaxBackoff), true
}
