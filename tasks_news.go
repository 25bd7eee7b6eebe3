package tenure

import (
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/schedule"
)

// hear has the machines of the tasks that there is news of read their records.
func (l *taskLoop) hear() {
	news := l.s.news.take()
	if news.missed {
		l.lookAt = l.now
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
// lost. At the beginning of a term every record is opened, so that nothing needs to be asked.
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
	first.machine.Look()
	l.serve(first)
	return schedule.LookEvery
}
