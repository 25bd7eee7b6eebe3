package tenure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// place has the machine of a task know whether a run may begin in the step that follows: if there
// is a place for it, which it then has.
func (l *taskLoop) place(t *leadTask) {
	if !l.s.places.bounds(t.Group) {
		return
	}
	if t.placed && !t.admitted && !t.machine.Runs() { // its run has ended: others come first
		l.leave(t)
		l.admit()
	}
	if !t.placed && !t.queued {
		t.placed = l.s.places.take(t.Group)
	}
	t.machine.Block(!t.placed)
}

// placed gives the place back that was not needed in that step, and has a task that needs one wait
// for it.
func (l *taskLoop) placed(t *leadTask) {
	if !l.s.places.bounds(t.Group) {
		return
	}
	t.admitted = t.admitted && t.question != nil && !t.question.hangs // it has not decided yet
	if t.placed && !t.admitted && !t.machine.Runs() {
		l.leave(t)
	}
	if t.machine.Wants() && !t.queued && !t.leaving {
		t.queued = true
		l.queued++
		l.s.places.wait(&t.wait)
	}
}

func (l *taskLoop) leave(t *leadTask) {
	t.placed, t.admitted = false, false
	l.s.places.give(t.Group)
}

// admit goes on with those that have waited for a place, and have one by now.
func (l *taskLoop) admit() {
	if l.queued == 0 {
		return
	}
	for _, w := range l.s.places.granted(&l.line) {
		t := l.byName[w.task]
		l.queued--
		t.queued, t.placed, t.admitted = false, true, true
		l.touch(t)
	}
}

// unqueue has a task wait for a place no more.
func (l *taskLoop) unqueue(t *leadTask) {
	if t.queued {
		t.queued = false
		l.queued--
		l.s.places.waitNoMore(&t.wait)
	}
}

// unplace gives everything back: the term is over, and no run is on.
func (l *taskLoop) unplace() {
	for _, t := range l.tasks {
		l.unqueue(t)
	}
	for _, t := range l.tasks {
		if t.placed {
			l.leave(t)
		}
	}
}

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
	active, err := l.r.activeWithin(ctx, registryBound)
	if err != nil && active < l.s.gate.least { // a listing that was cut may have counted enough
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

// hear has the machines of the tasks that there is news of read their records.
func (l *taskLoop) hear() {
	news := l.s.news.take()
	if news.missed {
		l.lookAt, l.lookOf = l.now, nil
	}
	if len(news.names) == 0 { // nearly always
		return
	}
	for _, name := range slices.Sorted(maps.Keys(news.names)) { // in an order that a replay repeats
		l.changed(name)
	}
}

// changed has a task read its record.
func (l *taskLoop) changed(name string) {
	if t := l.byName[name]; t != nil {
		t.machine.News()
		l.touch(t)
	}
}

// look reads the record that is due next, or any other if nothing is due, once in
// schedule.LookEvery. The answer names the tasks of which a trigger waits: a hint may have been
// lost. At the beginning of a term every record is opened, so that nothing needs to be asked. If
// more wait in the namespace than an answer lists, it goes on with its own tasks by their names.
func (l *taskLoop) look() (wait time.Duration) {
	if over, _ := l.shared.Over(); over || len(l.tasks) == 0 {
		return schedule.Forever
	}
	if l.now < l.lookAt {
		return l.lookAt - l.now
	}
	var first *leadTask
	for _, t := range l.tasks {
		next := t.machine.Next()
		switch {
		case first == nil && (next != 0 || t.machine.Looks()):
			first = t
		case next != 0 && (first.machine.Next() == 0 || next < first.machine.Next()):
			first = t
		}
	}
	if first == nil { // all are being asked about
		l.lookAt = l.now + schedule.CallBound
		return schedule.CallBound
	}
	l.lookAt = l.now + schedule.LookEvery
	of := ""
	if len(l.lookOf) > 0 {
		of, l.lookOf = l.lookOf[0], l.lookOf[1:]
	}
	first.machine.Look(of)
	l.serve(first)
	return schedule.LookEvery
}

// looked takes the answer to a look.
func (l *taskLoop) looked(ask store.TaskRead, reply store.TaskReply) {
	for _, name := range reply.Triggers {
		l.changed(name)
	}
	if ask.Of == "" && reply.MoreTriggers {
		names := make([]string, len(l.tasks))
		for i, t := range l.tasks {
			names[i] = t.Name
		}
		l.lookOf = nil
		for some := range slices.Chunk(names, store.MaxTriggers) {
			l.lookOf = append(l.lookOf, strings.Join(some, " "))
		}
	}
	if len(l.lookOf) > 0 {
		l.lookAt = l.now
	}
}
