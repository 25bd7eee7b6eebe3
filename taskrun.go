package tenure

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tenure-go/tenure/internal/plan"
)

// liveRun is a run that this process has claimed. It belongs to the loop.
type liveRun struct {
	id      string
	slot    time.Time
	attempt int // the one that is on, or was last
	first   int

	active   bool          // the attempt has not returned
	began    time.Duration // the attempt
	retryAt  time.Duration // the next one; where none is active
	text     string        // error of the last attempt
	overran  bool          // was told
	finished bool          // its end is being told
}

// open takes the record over for this term.
func (l *taskLoop) open(t *leadTask) {
	l.ask(t, &asking{
		send: func(ctx context.Context) (taskReply, error) { return l.s.store.openTask(ctx, t.Name, l.term.Token) },
		take: func(reply taskReply) {
			t.opened, t.checked = true, false
			if reply.verdict == taskOK {
				l.adopt(t, reply.record)
			}
		},
	})
}

// reopen reads the record again, which is not what it was: not at once, lest two that write there chase each other.
func (l *taskLoop) reopen(t *leadTask) {
	t.opened, t.again = false, ""
	t.rest = l.now + reopenPause
}

// adopt finds out whether another leader has left a run behind. Whoever wrote the record before is fenced by now.
func (l *taskLoop) adopt(t *leadTask, r taskRecord) {
	switch {
	case t.run != nil: // of this very term
	case r.run != "" && t.Abandoned == Rerun && r.crashes+1 < maxCrashes:
		t.again = r.run
	case r.run != "":
		l.finish(t, taskFinish{run: r.run, status: RunAbandoned, text: "its leader died"}, nil)
	case r.status == runReturned, r.status == RunInterrupted && t.Abandoned == Rerun:
		t.again = r.done
	}
}

// claim claims a run, with one ID for as long as it takes to get an answer.
func (l *taskLoop) claim(t *leadTask, d decision, kind, expect string) {
	c := taskClaim{
		token: l.term.Token, run: l.s.secret(), kind: kind, expect: expect, slot: d.slot, next: d.next, spec: t.spec, instance: l.s.id,
		skipped: d.skipped, attempt: 1,
	}
	switch {
	case kind == claimAgain && t.record.status == runReturned:
		c.attempt = max(t.record.attempt, 1) // it has not begun
	case kind == claimAgain:
		c.attempt = t.record.attempt + 1
	}
	l.ask(t, &asking{
		send: func(ctx context.Context) (taskReply, error) { return l.s.store.claimTask(ctx, t.Name, c) },
		give: func() { l.giveBack(t, c.run) },
		take: func(reply taskReply) { l.claimed(t, c, d, reply) },
	})
}

// claimed starts the run that was claimed.
func (l *taskLoop) claimed(t *leadTask, c taskClaim, d decision, reply taskReply) {
	switch reply.verdict {
	case taskEarly:
		t.rest = l.now + time.Duration(c.slot-reply.now)*time.Millisecond // our estimate was ahead; now it is not
		return
	case taskPaused:
		if c.kind == claimAgain {
			t.rest = l.now + lookEvery // it waits until it may
		}
		t.extra = t.extra && c.kind == claimSlot
		return
	case taskMoved:
		l.reopen(t)
		return
	case taskFenced:
		return
	}
	t.again, t.extra = "", false
	t.began = reply.record.started
	t.late = c.kind != claimSlot || t.isLate(c.slot, t.began)
	l.skipped(t, d)
	t.run = &liveRun{id: c.run, slot: redisTime(reply.record.scheduled), first: c.attempt, attempt: c.attempt}
	l.start(t)
}

// start begins an attempt of the run that is on.
func (l *taskLoop) start(t *leadTask) {
	r := t.run
	r.active, r.began = true, l.now
	go l.attempt(t, r, TaskRun{Task: t.Name, ID: r.id, Slot: r.slot, Attempt: r.attempt, Token: l.term.Token}) // tend waits for it
}

// attempt calls the task and reports how that ended, whatever way it does. The last step before is to look at the term.
func (l *taskLoop) attempt(t *leadTask, r *liveRun, run TaskRun) {
	ctx, cancel := l.runs, context.CancelFunc(func() {})
	if t.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, t.Timeout)
	}
	defer cancel()
	started, began := false, time.Now()
	err := error(&PanicError{})
	defer func() {
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
		}
		took := time.Since(began)
		text := errorText(err)
		l.s.bus.publish(Event{Type: EventTaskFinished, Task: run.Task, Slot: run.Slot, Attempt: run.Attempt, Token: run.Token, Took: took, Err: err})
		l.post(func() { l.attempted(t, r, started, err, text) })
	}()
	l.s.bus.publish(Event{Type: EventTaskStarted, Task: run.Task, Slot: run.Slot, Attempt: run.Attempt, Token: run.Token})
	if !l.term.Valid() || l.ctx.Err() != nil {
		err = fmt.Errorf("not started: the term is over: %w", ErrNotLeader)
		return
	}
	started = true
	err = t.Run(ctx, run)
}

// attempted says how the run goes on after an attempt.
func (l *taskLoop) attempted(t *leadTask, r *liveRun, started bool, err error, text string) {
	r.active = false
	switch {
	case started:
		r.text = text
	case r.attempt > r.first: // as if the attempt before were the last
		r.attempt--
	default:
		l.giveBack(t, r.id)
		return
	}
	over := l.over || l.ctx.Err() != nil || !l.term.Valid()
	switch {
	case err == nil:
		l.end(t, RunSucceeded)
	case over && t.Abandoned == Rerun:
		l.end(t, RunInterrupted)
	case !over && r.attempt-r.first+1 < t.Retry.Attempts:
		r.retryAt = l.now + plan.Backoff(r.attempt-r.first+1, t.Retry.Backoff, t.Retry.MaxBackoff, l.s.random())
	default:
		l.end(t, RunFailed)
	}
}

// tend looks after the run that is on: its next attempt, and whether it heeds its context.
func (l *taskLoop) tend(t *leadTask) (wait time.Duration) {
	r := t.run
	wait = time.Hour
	switch {
	case r.finished:
	case r.active:
		bound := r.began + t.Timeout + l.s.patience
		if l.cut && (t.Timeout == 0 || l.cutAt+l.s.patience < bound) {
			bound = l.cutAt + l.s.patience
		}
		if r.overran || !l.cut && t.Timeout == 0 {
			return time.Hour
		}
		if wait = bound - l.now; wait <= 0 {
			r.overran = true
			err := fmt.Errorf("task %q runs on %v after the end of its context", t.Name, l.now-bound+l.s.patience)
			l.s.bus.publish(Event{Type: EventOverrun, Role: l.term.Role, Task: t.Name, Slot: r.slot, Attempt: r.attempt, Token: l.term.Token, Err: err})
			return time.Hour
		}
	case l.over: // it waits for a retry that will not come
		l.attempted(t, r, true, ErrNotLeader, r.text)
	default:
		if wait = r.retryAt - l.now; wait <= 0 {
			r.attempt++
			l.start(t)
			return time.Hour
		}
	}
	return wait
}

// end tells the store how the run has ended.
func (l *taskLoop) end(t *leadTask, status RunStatus) {
	r := t.run
	r.finished = true
	busy := l.clock.read(l.now)
	l.finish(t, taskFinish{run: r.id, status: status, text: r.text, attempt: r.attempt}, func() { t.busy = busy })
}

// giveBack tells that a run was claimed, perhaps, and certainly not started.
func (l *taskLoop) giveBack(t *leadTask, run string) {
	l.finish(t, taskFinish{run: run, status: runReturned}, nil)
}

// finish ends a run in the record, behind what is being asked about the task.
func (l *taskLoop) finish(t *leadTask, f taskFinish, then func()) {
	f.token = l.term.Token
	l.ask(t, &asking{
		finish: true,
		send:   func(ctx context.Context) (taskReply, error) { return l.s.store.finishTask(ctx, t.Name, f) },
		take: func(reply taskReply) {
			t.run = nil
			if then != nil {
				then()
			}
			if reply.verdict == taskGone && f.status != runReturned {
				l.reopen(t)
				if !l.over {
					l.failed(t, fmt.Errorf("%w: the record does not know run %s any more", ErrNotFound, f.run))
				}
			}
		},
	})
}
