package tenure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/store"
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
func (l *taskLoop) consult(t *leadTask, ask func(*Task), then func()) (wait time.Duration) {
	task := t.Task
	if ours(t.Schedule) {
		began := time.Now()
		catch(func() error { ask(&task); return nil }, func(err error) { l.consulted(t, err, then) })
		l.thought += time.Since(began)
		if t.op != nil || t.disabled {
			return time.Hour
		}
		return 0
	}
	if l.consulting >= maxConsulted {
		t.refused = true
		return time.Hour // for one that returns
	}
	if !t.inUse.CompareAndSwap(false, true) { // since an earlier term
		l.hung(t)
		return time.Hour
	}
	q := &question{at: l.now + nextBound/2}
	task.Schedule = counted{t.Schedule, &q.calls}
	t.question = q
	l.consulting++
	l.s.schedules.begin()
	run, due, began := t.run, t.record.Due, t.began
	go catch(func() error { ask(&task); return nil }, func(err error) { // ends with the call of Next; counted in schedules
		t.inUse.Store(false)
		l.s.schedules.end()
		l.post(func() {
			t.question = nil
			if !q.hangs {
				l.consulting--
			}
			if l.over || t.op != nil || t.run != run || t.record.Due != due || t.began != began {
				return
			}
			l.consulted(t, err, then)
		})
	})
	return l.attend(t)
}

// consulted goes on with what a schedule has answered. If it failed, the task is over for this
// term, and only the task.
func (l *taskLoop) consulted(t *leadTask, err error, then func()) {
	if err != nil {
		t.disabled = true
		l.stands(t, fmt.Errorf("%w: schedule %q: %w", ErrMisconfigured, t.text, err))
		return
	}
	if t.hung {
		t.hung = false
		l.goesOn(t)
	}
	then()
}

// attend looks whether a schedule that is being asked gets on. If it does not, its task stands
// still until it does. Two looks in a row have to find the same call: after a suspension of the
// process the first proves nothing.
func (l *taskLoop) attend(t *leadTask) (wait time.Duration) {
	q := t.question
	if q.hangs {
		return time.Hour
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
			return time.Hour
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

// plan gives the record its next slot by the schedule of this process.
func (l *taskLoop) plan(t *leadTask, redis int64) (wait time.Duration) {
	from := t.record
	if from.Due == "" && t.next.Follows(t.spec) {
		from = t.next // the record was lost while we led
	}
	var next int64
	return l.consult(t, func(task *Task) { next = task.replan(from, t.spec, redis) }, func() {
		t.checked = true
		if next == t.record.Next && t.record.Due != "" && t.record.Follows(t.spec) {
			return
		}
		p := store.TaskPlan{Expect: t.record.Due, Next: next, Spec: t.record.ChangedTo(t.spec, next, redis)}
		if t.record.Due == "" { // what else is worth keeping
			p.Skipped, p.Paused = max(from.Skipped-t.record.Skipped, 0), from.Paused
		}
		l.move(t, p, slotPlan{})
	})
}

// due decides about the slots that are due, and carries it out.
func (l *taskLoop) due(t *leadTask, redis int64) (wait time.Duration) {
	at := slotState{first: t.record.Next, now: redis, running: t.run != nil, began: t.began, lastEnded: t.lastEnded, backlog: t.backlog}
	var d slotPlan
	return l.consult(t, func(task *Task) { d = task.decide(at) }, func() { l.settle(t, d, redis) })
}

// settle claims what was decided, or moves on without a run.
func (l *taskLoop) settle(t *leadTask, d slotPlan, redis int64) {
	ran := l.s.ran(t.Name)
	known := ran.passed(d.slot, redis) && (!ran.ended || ran.of != d.slot) // the record is older than what this process has run
	if d.run && !known {
		l.claim(t, d, store.ClaimSlot, t.record.Due)
		return
	}
	l.move(t, store.TaskPlan{Expect: t.record.Due, Next: d.next, Spec: t.record.Under(t.spec), Skipped: int64(d.skipped)}, d)
}

// owed decides about a slot that is due under the schedule that the record still has.
func (l *taskLoop) owed(t *leadTask, redis int64) (wait time.Duration) {
	from := t.record
	var d slotPlan
	return l.consult(t, func(task *Task) { d = task.owed(from, t.spec, redis) }, func() { l.settle(t, d, redis) })
}

// rerun runs again what another leader has left behind, unless Missed asks for no run of its slot
// by now.
func (l *taskLoop) rerun(t *leadTask, redis int64) (wait time.Duration) {
	from, outdated := t.record, false
	return l.consult(t, func(task *Task) { outdated = task.outdated(from, redis) }, func() {
		if !outdated {
			l.claim(t, slotPlan{}, store.ClaimAgain, t.rerunOf)
			return
		}
		t.rerunOf = ""
		l.skipped(t, slotPlan{skipped: 1, first: from.Scheduled})
		if from.Run != "" {
			l.abandon(t, from)
		}
	})
}

// move moves the next slot without a run.
func (l *taskLoop) move(t *leadTask, p store.TaskPlan, d slotPlan) {
	p.Token = l.term.Token
	changed := t.record.Due != "" && !t.record.Follows(t.spec)
	l.enqueue(t, &storeOp{
		send: func(ctx context.Context) (store.TaskReply, error) { return l.s.store.Plan(ctx, t.Name, p) },
		take: func(reply store.TaskReply) {
			switch reply.Verdict {
			case store.TaskOK:
				l.agreed(t)
				if changed {
					l.s.bus.publish(Event{Type: EventTaskChanged, Task: t.Name, Slot: store.Time(p.Next), Token: p.Token})
				}
				l.skipped(t, d)
			case store.TaskMoved:
				l.reopen(t)
			}
		},
	})
}

// skipped reports slots that were passed over. Those of one run that is on are looked at once a
// minute from the first on, and reported when it ends: a run that hangs must not flood Redis and
// the log.
func (l *taskLoop) skipped(t *leadTask, d slotPlan) {
	if d.skipped == 0 {
		return
	}
	if r := t.run; r != nil {
		before := r.quiet
		r.quiet = l.now + lookEvery
		if before != 0 {
			if r.folded.skipped == 0 {
				r.folded.first = d.first
			}
			r.folded.skipped += d.skipped
			return
		}
	}
	l.publishSkipped(t, d)
}

func (l *taskLoop) publishSkipped(t *leadTask, d slotPlan) {
	l.s.bus.publish(Event{Type: EventTaskSkipped, Task: t.Name, Slot: store.Time(d.first), Count: d.skipped, Token: l.term.Token})
}
