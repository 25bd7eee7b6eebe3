package tenure

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/schedule"
)

// maxConsulted is how many of the application's schedules are asked at a time, but for those that
// hang.
const maxConsulted = 4

// question is what the application's schedule of a task is asked, in a goroutine of its own.
type question struct {
	calls atomic.Int64 // of Next
	seen  int64        // of those, at the last look
	looks int          // since then, that saw no further one
	at    time.Duration
	hangs bool // was reported
}

// consult asks the schedule of a task for something, and then goes on with the answer. One of the
// application's is asked in a goroutine of its own; the answer is dropped if the task has moved
// on meanwhile. It returns how long to wait.
func (l *taskLoop) consult(t *leadTask, ask *schedule.Question) (wait time.Duration) {
	if ours(t.Schedule) {
		began := time.Now()
		catch(func() error { ask.Ask(t.Schedule); return nil }, func(err error) { l.consulted(t, ask, err) })
		l.thought += time.Since(began)
		return 0
	}
	if l.consulting >= maxConsulted || l.fullAsides {
		l.fullAsides = true
		if !t.waitsForAside {
			t.waitsForAside = true
			l.asking = append(l.asking, t)
		}
		return schedule.Forever // for one that returns
	}
	if !t.inUse.CompareAndSwap(false, true) { // since an earlier term, whose loop wakes this one when it returns
		l.hung(t)
		if !slices.Contains(l.taken, t) {
			l.taken = append(l.taken, t)
		}
		return schedule.Forever
	}
	q := &question{at: l.now + nextBound/2}
	own := counted{t.Schedule, &q.calls}
	asked := t.registered // it may be replaced meanwhile
	t.question = q
	t.machine.Asked(ask)
	l.consulting++
	l.s.schedules.begin()
	go catch(func() error { ask.Ask(own); return nil }, func(err error) { // ends with the call of Next; counted in schedules
		asked.inUse.Store(false)
		l.s.schedules.end()
		l.post(func() {
			if t.question == q {
				t.question = nil
			}
			if !q.hangs {
				l.consulting--
			}
			l.consulted(t, ask, err)
			l.note(t)
			l.touch(t)
		})
	})
	return schedule.Forever
}

// consulted goes on with what a schedule has answered. If it failed, the task is over for this
// term, and only the task.
func (l *taskLoop) consulted(t *leadTask, ask *schedule.Question, err error) {
	if err != nil {
		if !t.machine.Broken(ask) {
			l.stands(t, fmt.Errorf("%w: schedule %q: %w", ErrMisconfigured, t.text, err))
		}
		return
	}
	l.place(t)
	stale := t.machine.Answered(ask)
	l.placed(t)
	if stale {
		return
	}
	if t.hung {
		t.hung = false
		l.goesOn(t)
	}
}

// attend looks whether a schedule that is being asked gets on. If it does not, its task stands
// still until it does. Two looks in a row have to find the same call: after a suspension of the
// process the first proves nothing.
func (l *taskLoop) attend(t *leadTask) (wait time.Duration) {
	q := t.question
	if q.hangs {
		return schedule.Forever
	}
	if l.now >= q.at {
		if calls := q.calls.Load(); calls != q.seen {
			q.seen, q.looks = calls, 0
		} else {
			q.looks++
		}
		if q.at = l.now + nextBound/2; q.looks >= 2 {
			q.hangs = true
			l.consulting--
			l.hung(t)
			return schedule.Forever
		}
	}
	return q.at - l.now
}

// hung reports, once until it answers, that the schedule of a task does not.
func (l *taskLoop) hung(t *leadTask) {
	if !t.hung {
		t.hung = true
		l.stands(t, fmt.Errorf("%w: schedule %q: %w", ErrMisconfigured, t.text, errHungSchedule))
	}
}
