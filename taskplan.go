package tenure

import (
	"context"
	"fmt"
)

// plan gives the record its next slot by the schedule of this process. It reports whether that stands there already.
func (l *taskLoop) plan(t *leadTask, redis int64) bool {
	from := t.record
	if from.due == "" && t.next.spec == t.spec {
		from = t.next // the record was lost while we led
	}
	var next int64
	if !l.guard(t, func() { next = t.replan(from, t.spec, redis) }) {
		return false
	}
	t.checked = true
	if next == t.record.next && t.record.due != "" && t.record.spec == t.spec {
		return true
	}
	p := taskPlan{expect: t.record.due, next: next, spec: t.spec}
	if t.record.due == "" { // what else is worth keeping
		p.skipped, p.paused = max(from.skipped-t.record.skipped, 0), from.paused
	}
	l.move(t, p, decision{})
	return false
}

// due decides about the slots that are due, and carries it out.
func (l *taskLoop) due(t *leadTask, redis int64) {
	var d decision
	at := situation{first: t.record.next, now: redis, running: t.run != nil, began: t.began, busy: t.busy, late: t.late}
	if !l.guard(t, func() { d = t.decide(at) }) {
		return
	}
	ran := l.s.ran(t.Name)
	if d.run && ran.passed(d.slot, redis) && (!ran.ended || ran.of != d.slot) { // the record is older than what this process has run
		l.move(t, taskPlan{expect: t.record.due, next: d.next, spec: t.spec, skipped: int64(d.skipped)}, d)
		return
	}
	if d.run {
		l.claim(t, d, claimSlot, t.record.due)
		return
	}
	l.move(t, taskPlan{expect: t.record.due, next: d.next, spec: t.spec, skipped: int64(d.skipped)}, d)
}

// guard asks the application's schedule; where that fails the task is over for this term, and only the task.
func (l *taskLoop) guard(t *leadTask, ask func()) bool {
	err := protect(func() error { ask(); return nil })
	if err != nil {
		t.off = true
		l.stands(t, fmt.Errorf("%w: schedule %q: %w", ErrMisconfigured, t.text, err))
	}
	return err == nil
}

// move moves the next slot without a run.
func (l *taskLoop) move(t *leadTask, p taskPlan, d decision) {
	p.token = l.term.Token
	l.ask(t, &asking{
		send: func(ctx context.Context) (taskReply, error) { return l.s.store.planTask(ctx, t.Name, p) },
		take: func(reply taskReply) {
			switch reply.verdict {
			case taskOK:
				l.skipped(t, d)
			case taskMoved:
				l.reopen(t)
			}
		},
	})
}

func (l *taskLoop) skipped(t *leadTask, d decision) {
	if d.skipped > 0 {
		l.s.bus.publish(Event{Type: EventTaskSkipped, Task: t.Name, Slot: redisTime(d.first), Count: d.skipped, Token: l.term.Token})
	}
}
