package tenure

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// leaderWork is the application's work of one election. Its fields belong to the loop, which calls
// nothing of the application itself.
type leaderWork struct {
	funcs   []LeadFunc
	last    func() bool     // whether the last of them has something to do: it is not started before. nil: it has
	running []bool          // by work: it has not returned
	begin   func(work int)  // starts work of the term that is on
	waits   bool            // the last one was not started
	ended   func(workEnded) // hears of each end, from any goroutine; must not block
}

// lateWork is leader work that is not started in a term before there is something to do: a process
// may lead a thousand roles that have no tasks.
type lateWork struct {
	run       LeadFunc // nil: there is no such work
	any       func() bool
	whenAdded func(added func()) // has added called whenever there may be more to do
}

// workEnded is the result of one piece of leader work.
type workEnded struct {
	work    int
	err     error // names the work
	heeded  bool  // it only says that the term is over
	resigns bool  // it asks for the end of the term
}

// start starts all of it in a term.
func (w *leaderWork) start(ctx context.Context, term Term) {
	w.running = make([]bool, len(w.funcs))
	w.begin = func(i int) {
		w.running[i] = true
		go w.do(ctx, i, term) // ends with the work; the drain waits for it, or says that it still runs
	}
	w.waits = w.last != nil && !w.last()
	for i := range w.funcs {
		if i < len(w.funcs)-1 || !w.waits {
			w.begin(i)
		}
	}
}

// startLast starts the last of it in a term that is on, if it waits no longer.
func (w *leaderWork) startLast() {
	if w.waits && w.last() {
		w.waits = false
		w.begin(len(w.funcs) - 1)
	}
}

// do runs one piece and reports its end, however it ends.
func (w *leaderWork) do(ctx context.Context, i int, term Term) {
	catch(func() error { return w.funcs[i](ctx, term) }, func(err error) {
		e := workEnded{work: i}
		if err != nil {
			e.heeded, e.err = worded(ctx, "leader work "+w.name(i), err)
			e.resigns = matches(err, ErrResigned)
		}
		w.ended(e)
	})
}

// idle reports whether all of it has returned.
func (w *leaderWork) idle() bool { return !slices.Contains(w.running, true) }

// name is how a piece of leader work is called in errors.
func (w *leaderWork) name(i int) string {
	f := runtime.FuncForPC(reflect.ValueOf(w.funcs[i]).Pointer())
	switch {
	case f == nil:
		return fmt.Sprint(i)
	case strings.HasSuffix(f.Name(), ".(*roleTasks).runTerm-fm"):
		return "of the tasks"
	case strings.HasSuffix(f.Name(), ".(*Registry).sweepLoop-fm"), strings.HasSuffix(f.Name(), ".(*Registry).aggregateLoop-fm"):
		return "of the registry"
	}
	return f.Name()
}

// left says what has not returned.
func (w *leaderWork) left() []string {
	var names []string
	for i, running := range w.running {
		if running {
			names = append(names, "leader work "+w.name(i))
		}
	}
	return names
}

var errHealth = errors.New("health check gave no answer in time")

// healthCheck calls the health check of the application every interval.
type healthCheck struct {
	call     func(context.Context) error
	interval time.Duration
	answered func(error) // hears of each answer; must not block
}

// watch calls the health check until ctx is done. A check that does not return within the interval
// has failed; no second one is started beside it.
func (h healthCheck) watch(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		if ctx.Err() != nil { // also if both were ready: a check that hung until now is the last
			return
		}
		pause.Reset(h.interval)
		h.check(ctx)
	}
}

// check calls it once and returns when it has.
func (h healthCheck) check(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, h.interval)
	defer cancel()
	answer := make(chan error, 1)
	go catch(func() error { return h.call(bounded) }, func(err error) { // ends with the check; waited for below
		if err != nil {
			_, err = worded(bounded, "health check", err)
		}
		answer <- err
	})
	var err error
	select {
	case err = <-answer:
	case <-bounded.Done():
		if ctx.Err() == nil {
			h.answered(errHealth)
		}
		err = <-answer
		if err == nil {
			err = errHealth
		}
	}
	if ctx.Err() == nil {
		h.answered(err)
	}
}

// RestartPolicy says how Supervise runs work again. The zero value is the default.
type RestartPolicy struct {
	// Backoff is the pause before the first restart; each further failure in a row doubles it, up
	// to MaxBackoff, which is no less than Backoff. Work that ran for MaxBackoff or longer begins a
	// new row. Default 100 ms and 10 s, or Backoff if that is longer; MaxBackoff is at most 24 h. A
	// negative Backoff: no pause.
	Backoff, MaxBackoff time.Duration
	// Restarts is how many restarts within Window are made before the term is given up. Default 5
	// within a minute; at most 1000 within 1 ms to 30 days. Negative: no limit.
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
	if p.Backoff > lease.MaxTTL {
		c.refuse(prefix+"Backoff", p.Backoff, "must be at most %v", lease.MaxTTL)
	} else {
		c.between(prefix+"MaxBackoff", p.MaxBackoff, max(p.Backoff, 0), lease.MaxTTL)
	}
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
