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
)

// leaderWork is the application's work of one election. Its fields belong to the loop, which calls
// nothing of the application itself.
type leaderWork struct {
	funcs   []LeadFunc
	running []bool          // by work: it has not returned
	ended   func(workEnded) // hears of each end, from any goroutine; must not block
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
	for i := range w.funcs {
		w.running[i] = true
		go w.do(ctx, i, term) // ends with the work; the drain waits for it, or says that it still runs
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
