package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

const (
	gateSpacing = time.Second      // between two counts at least
	gateSettles = 10 * time.Second // enough instances must be active for so long before runs start again
)

// gateLoop counts the active instances while this process leads any role. It belongs to the
// goroutine of watchInstances.
type gateLoop struct {
	s      *TaskScheduler
	r      *Registry
	counts bool // in this row of terms the instances were counted
	failed int  // counts in a row that have failed
	enough time.Time
	faults reportOnce
}

// watchInstances holds tasks while fewer than TaskOptions.MinInstances are active, until ctx is
// done. It counts at the begin of a term, at each hint that instances have changed, and once an
// interval of heartbeats. What was counted last holds while Redis cannot be read.
func (s *TaskScheduler) watchInstances(ctx context.Context, r *Registry) {
	if s.gate == nil {
		return
	}
	defer r.watch(s.gate.wake)()
	l := gateLoop{s: s, r: r}
	timer := time.NewTimer(0)
	defer timer.Stop()
	last := time.Now().Add(-gateSpacing)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.gate.wake:
			if wait := time.Until(last.Add(gateSpacing)); l.counts && wait > 0 { // a crowd that starts sends many hints
				timer.Reset(wait)
				continue
			}
		}
		timer.Reset(l.look(ctx))
		last = time.Now()
	}
}

// look counts, if this process leads, and says how long to wait for the next count.
func (l *gateLoop) look(ctx context.Context) time.Duration {
	if len(l.r.elections.leading(nil)) == 0 {
		l.counts = false
		l.s.gate.held.Store(true) // until the next term has counted
		return l.r.opts.beat()
	}
	bound, cancel := within(ctx, registryBound)
	defer cancel()
	active, err := l.r.active(bound, l.s.gate.least)
	if err != nil {
		l.failed++
		if !l.counts && ctx.Err() == nil {
			l.faults.report(l.s.bus, EventTasksHeld, fmt.Errorf("the instances cannot be counted: %w", err))
		}
		return lease.Backoff(gateSpacing, l.failed, l.r.opts.beat())
	}
	l.failed = 0
	l.faults.over()
	return l.counted(active)
}

// counted opens or closes the gate. It closes at once, and opens at once at the begin of a term.
// Later it opens when enough have been active for a while, so that instances that come and go do
// not open it again and again.
func (l *gateLoop) counted(active int) time.Duration {
	gate, first := l.s.gate, !l.counts
	l.counts = true
	switch {
	case active < gate.least:
		l.enough = time.Time{}
		if first || !gate.held.Load() {
			l.hold(true)
			err := fmt.Errorf("%d active, tasks start with at least %d", active, gate.least)
			l.s.bus.publish(Event{Type: EventTasksHeld, Count: active, Err: err})
		}
	case !gate.held.Load():
	case first:
		l.hold(false)
	case l.enough.IsZero():
		l.enough = time.Now()
		return gateSettles
	case time.Since(l.enough) < gateSettles:
		return gateSettles - time.Since(l.enough)
	default:
		l.hold(false)
		l.s.bus.publish(Event{Type: EventTasksReleased, Count: active})
	}
	return l.r.opts.beat()
}

func (l *gateLoop) hold(held bool) {
	l.s.gate.held.Store(held)
	for _, role := range l.s.all() {
		role.wake.nudge()
	}
}
