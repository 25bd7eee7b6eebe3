package tenure

import (
	"slices"

	"github.com/tenure-go/tenure/internal/schedule"
)

// register takes up the tasks that were registered, and lets those go that are not any more.
func (l *taskLoop) register() {
	tasks, edition := l.s.registrations()
	if edition == l.edition {
		for _, r := range tasks[l.known:] {
			l.add(r)
		}
		l.known = len(tasks)
		return
	}
	l.known, l.edition = len(tasks), edition
	there := make(map[string]bool)
	for _, r := range tasks {
		there[r.Name] = true
		switch t := l.byName[r.Name]; {
		case t == nil:
			l.add(r)
		case t.registered != r:
			l.reschedule(t, r)
		}
	}
	for _, t := range l.tasks {
		if !there[t.Name] && !t.leaving {
			t.leaving = true
			t.machine.Retire()
			l.touch(t)
		}
	}
	l.s.settle(func(name string) bool { return l.byName[name] == nil })
}

// add takes up a task that was registered.
func (l *taskLoop) add(r *registered) {
	t := &leadTask{registered: r, machine: schedule.NewMachine(r.policy(), &l.shared, l.s.ran(r.Name))}
	t.local.Owner, t.redis.Owner = t, t
	l.tasks = append(l.tasks, t)
	l.byName[r.Name] = t
	l.touch(t)
}

// drop lets a task go that was unregistered.
func (l *taskLoop) drop(t *leadTask) {
	if t.placed {
		l.leave(t)
	}
	l.local.Remove(&t.local)
	l.redis.Remove(&t.redis)
	l.tasks = slices.DeleteFunc(l.tasks, func(other *leadTask) bool { return other == t })
	delete(l.byName, t.Name)
	l.s.stands(t.Name, nil)
	l.s.settle(func(name string) bool { return name == t.Name })
}

// reschedule has a task go on by another schedule. What the old one still answers, or does not, is
// nothing to it any more.
func (l *taskLoop) reschedule(t *leadTask, r *registered) {
	if q := t.question; q != nil && !q.hangs {
		q.hangs = true
		l.consulting--
	}
	t.registered, t.question = r, nil
	t.machine.Reschedule(r.policy())
	if t.hung {
		t.hung = false
		l.goesOn(t)
	}
	l.touch(t)
}
