package tenure

import "slices"

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
	if t.machine.Wants() && !t.queued {
		t.queued = true
		l.queue = append(l.queue, t)
		l.s.places.wait(1)
	}
}

func (l *taskLoop) leave(t *leadTask) {
	t.placed, t.admitted = false, false
	l.s.places.give(t.Group)
}

// admit gives the places that there are to those that have waited for longest.
func (l *taskLoop) admit() {
	if len(l.queue) == 0 {
		return
	}
	l.queue = slices.DeleteFunc(l.queue, func(t *leadTask) bool {
		if !t.leaving && !l.s.places.take(t.Group) {
			return false
		}
		t.queued, t.placed, t.admitted = false, !t.leaving, !t.leaving
		l.s.places.wait(-1)
		l.touch(t)
		return true
	})
}

// unplace gives everything back: the term is over, and no run is on.
func (l *taskLoop) unplace() {
	for _, t := range l.tasks {
		if t.placed {
			l.leave(t)
		}
	}
	l.s.places.wait(-len(l.queue))
	l.queue = nil
}
