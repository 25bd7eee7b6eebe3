package tenure

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// liveRun is a run that this process has claimed. It belongs to the loop.
type liveRun struct {
	id      string
	slot    time.Time
	attempt int // the one that is on, or was last
	first   int // of this leader
	failed  int // attempts that have failed, of earlier leaders too

	active   bool          // the attempt has not returned
	began    time.Duration // the attempt
	noting   bool          // the attempt that is to follow is being noted
	retryAt  int64         // when that is due, by Redis's clock
	limit    time.Duration // an attempt that takes longer is reported as slow
	slow     bool          // was reported
	quiet    time.Duration // slots that are due are not looked at before
	folded   slotPlan      // slots that were passed over meanwhile, and are reported when the run ends
	text     string        // error of the last attempt
	overran  bool          // was reported
	finished bool          // its end is being recorded
}

// open takes the record over for this term. One that belongs to another role is asked for once
// more, by the name of that role's lease: it is free once nobody holds that.
func (l *taskLoop) open(t *leadTask) {
	o := store.TaskOpen{Token: l.term.Token, Lease: l.s.lease, Other: t.other}
	l.enqueue(t, &storeOp{
		send: func(ctx context.Context) (store.TaskReply, error) { return l.s.store.Open(ctx, t.Name, o) },
		take: func(reply store.TaskReply) {
			switch r := reply.Record; {
			case reply.Verdict == store.TaskOK:
				t.opened, t.checked, t.other = true, false, ""
				l.adopt(t, r)
			case reply.Verdict == store.TaskForeign && t.other != r.Lease:
				t.other = r.Lease
			case reply.Verdict == store.TaskForeign:
				t.other = ""
				l.refused(t, fmt.Errorf("%w: task %q is run by the leader of %.100q: names of tasks are unique in a namespace; this "+
					"process looks again each minute; if no role has that lease any more, remove the fields lease and token of the record",
					ErrMisconfigured, t.Name, r.Lease))
			}
		},
	})
}

// refused leaves a record alone that is not ours, and looks again later.
func (l *taskLoop) refused(t *leadTask, err error) {
	t.opened, t.notBefore = false, l.now+lookEvery
	l.stands(t, err)
}

// reopen reads the record again, which is not what it was: not at once, lest two that write there
// chase each other.
func (l *taskLoop) reopen(t *leadTask) {
	t.opened, t.rerunOf = false, ""
	t.notBefore = l.now + lease.Backoff(reopenPause, t.moved+1, longestPause)
	t.moved++
	if t.disputed++; t.record != t.before {
		t.disputed = 0
	}
	if t.disputed >= maxDisputed {
		l.stands(t, fmt.Errorf("%w: the record of task %q is said to have changed, and has not: repair it, or remove it and with it what "+
			"the task has run", ErrMisconfigured, t.Name))
	}
}

// agreed notes that the record was what it was read as.
func (l *taskLoop) agreed(t *leadTask) {
	t.disputed = 0
	l.goesOn(t)
}

// adopt finds out whether a run was left behind: by another leader, or by this process, which then
// knows how it ended. Whoever wrote the record before is fenced by now.
func (l *taskLoop) adopt(t *leadTask, r store.TaskRecord) {
	t.rerunOf = ""
	switch ran := l.s.ran(t.Name); {
	case t.run != nil: // of this very term
	case r.Run != "" && ran.knows(r.Run):
		l.record(t, ran.end)
	case r.Run != "" && t.Abandoned == AbandonedRerun && r.Crashes+1 < maxCrashes:
		t.rerunOf = r.Run
	case r.Run != "":
		l.abandon(t, r)
	case r.Status == store.RunReturned, r.Status == store.RunInterrupted && t.Abandoned == AbandonedRerun:
		t.rerunOf = r.Done
	}
}

// abandon ends a run that its leader left behind, and reports it.
func (l *taskLoop) abandon(t *leadTask, r store.TaskRecord) {
	l.finish(t, store.TaskFinish{Run: r.Run, Status: store.RunAbandoned, Text: ErrAbandoned.Error()}, func(store.TaskReply) {
		l.s.bus.publish(Event{
			Type: EventTaskFailed, Task: t.Name, Slot: store.Time(r.Scheduled), Attempt: r.Attempt, Token: r.RunToken, State: RunAbandoned,
			Err: ErrAbandoned,
		})
	})
}

// claim claims a run, with one ID for as long as it takes to get an answer.
func (l *taskLoop) claim(t *leadTask, d slotPlan, kind, expect string) {
	c := store.TaskClaim{
		Token: l.term.Token, Run: l.s.secret(), Kind: kind, Expect: expect, Slot: d.slot, Next: d.next, Spec: cmp.Or(d.spec, t.record.Under(t.spec)), Instance: l.s.id,
		Skipped: d.skipped, Attempt: 1,
	}
	switch {
	case kind == store.ClaimAgain && t.record.Status == store.RunReturned:
		c.Attempt = max(t.record.Attempt, 1) // it has not begun
	case kind == store.ClaimAgain:
		c.Attempt = t.record.Attempt + 1
	}
	if run := l.s.ran(t.Name).repeats(c, l.clock.Read(l.now)); run != "" {
		c.Run = run // Redis has lost it: it is claimed to be ended at once, see claimed
	}
	l.enqueue(t, &storeOp{
		send: func(ctx context.Context) (store.TaskReply, error) { return l.s.store.Claim(ctx, t.Name, c) },
		give: func() {
			if !l.s.ran(t.Name).knows(c.Run) {
				l.giveBack(t, c.Run)
			}
		},
		take: func(reply store.TaskReply) { l.claimed(t, c, d, reply) },
	})
}

// claimed starts the run that was claimed.
func (l *taskLoop) claimed(t *leadTask, c store.TaskClaim, d slotPlan, reply store.TaskReply) {
	switch reply.Verdict {
	case store.TaskEarly:
		if early := time.Duration(c.Slot-reply.Now) * time.Millisecond; early < slotStep {
			t.notBefore = l.now + early // our estimate was ahead; now it is not
		} else {
			t.checked, t.notBefore = false, l.now+reopenPause // Redis's clock was set back
		}
		return
	case store.TaskPaused:
		if c.Kind == store.ClaimAgain {
			t.notBefore = l.now + lookEvery // it waits until it may
		}
		t.runOnElection = t.runOnElection && c.Kind == store.ClaimSlot
		return
	case store.TaskMoved:
		l.reopen(t)
		return
	case store.TaskClaimed:
	default: // nothing was granted
		return
	}
	t.rerunOf, t.runOnElection, t.moved = "", false, 0
	l.agreed(t)
	t.began = reply.Record.Started
	t.backlog = d.backlog
	if c.Kind != store.ClaimSlot {
		t.backlog = backlog{late: true, lag: math.MaxInt64}
	}
	l.skipped(t, d)
	ran := l.s.ran(t.Name)
	if ran.knows(c.Run) {
		l.record(t, ran.end)
		return
	}
	ran.claimed(c, reply.Now)
	t.run = &liveRun{
		id: c.Run, slot: store.Time(reply.Record.Scheduled), first: c.Attempt, attempt: c.Attempt, failed: reply.Record.Failures,
	}
	l.start(t)
}

// start begins an attempt of the run that is on.
func (l *taskLoop) start(t *leadTask) {
	r := t.run
	r.active, r.began, r.overran = true, l.now, false
	r.limit = l.s.ran(t.Name).limit(time.Duration(t.record.Next-t.began) * time.Millisecond)
	go l.attempt(t, r, TaskRun{Task: t.Name, ID: r.id, Slot: r.slot, Attempt: r.attempt, Token: l.term.Token}) // tend waits for it
}

// attempt calls the task and reports how that ended, whatever way it does. The last step before is
// to look at the term.
func (l *taskLoop) attempt(t *leadTask, r *liveRun, run TaskRun) {
	ctx, cancel := l.runs, context.CancelFunc(func() {})
	if t.Timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, t.Timeout)
	}
	defer cancel()
	started, began := false, time.Now()
	catch(func() error {
		l.s.bus.publish(Event{Type: EventTaskStarted, Task: run.Task, Slot: run.Slot, Attempt: run.Attempt, Token: run.Token})
		if !l.term.Valid() || l.ctx.Err() != nil {
			return fmt.Errorf("not started: the term is over: %w", ErrNotLeader)
		}
		started = true
		return t.Run(ctx, run)
	}, func(err error) {
		took := time.Since(began)
		text, cut := errorText(err), l.runs.Err() != nil
		state, ended := RunFailed, EventTaskFailed
		switch {
		case err == nil:
			state, ended = RunSucceeded, EventTaskFinished
		case t.Abandoned == AbandonedRerun && (!started || cut && heeds(l.runs, err)):
			state, ended = RunInterrupted, EventTaskInterrupted
		}
		l.s.bus.publish(Event{
			Type: ended, Task: run.Task, Slot: run.Slot, Attempt: run.Attempt, Token: run.Token, Took: took, State: state, Err: err,
		})
		l.post(func() {
			if err == nil {
				l.s.ran(t.Name).took(took)
			}
			l.attempted(t, r, started, cut, err, text)
		})
	})
}

// heeds reports whether an error of the application only says that ctx is done.
func heeds(ctx context.Context, err error) bool {
	heeded, _ := worded(ctx, "task", err)
	return heeded
}

// attempted says how the run goes on after an attempt. cut: the context of the runs was done when
// it returned.
func (l *taskLoop) attempted(t *leadTask, r *liveRun, started, cut bool, err error, text string) {
	r.active = false
	over := l.over || l.ctx.Err() != nil || !l.term.Valid()
	switch {
	case !started && r.attempt == r.first:
		l.giveBack(t, r.id)
		return
	case !started: // as if the attempt before were the last
		r.attempt--
		l.leave(t)
		return
	}
	r.text = text
	switch {
	case err == nil:
		l.end(t, RunSucceeded, 0)
	case cut && t.Abandoned == AbandonedRerun: // not to be held against the task
		l.end(t, RunInterrupted, 0)
	default:
		r.failed++
		pause := schedule.Backoff(r.failed, t.Retry.Backoff, t.Retry.MaxBackoff, l.s.random())
		switch {
		case r.failed >= t.Retry.Attempts:
			l.end(t, RunFailed, 0)
		case over && t.Abandoned == AbandonedRerun:
			l.end(t, RunInterrupted, pause)
		case over:
			l.end(t, RunFailed, 0)
		default:
			l.retry(t, pause)
		}
	}
}

// leave ends a run that waits for an attempt which this process does not start any more.
func (l *taskLoop) leave(t *leadTask) {
	if t.Abandoned == AbandonedRerun {
		l.end(t, RunInterrupted, l.clock.Until(t.run.retryAt, l.now))
		return
	}
	l.end(t, RunFailed, 0)
}

// retry notes the next attempt, and then waits for it. It does not begin before it was noted: else
// the next leader could not know of it.
func (l *taskLoop) retry(t *leadTask, pause time.Duration) {
	r := t.run
	r.noting, r.retryAt = true, l.clock.Read(l.now)+pause.Milliseconds()
	note := store.TaskRetry{Token: l.term.Token, Run: r.id, Attempt: r.attempt + 1, Failures: r.failed, In: pause}
	l.enqueue(t, &storeOp{
		send: func(ctx context.Context) (store.TaskReply, error) { return l.s.store.Retry(ctx, t.Name, note) },
		take: func(reply store.TaskReply) {
			r.noting = false
			switch reply.Verdict {
			case store.TaskOK:
				r.retryAt = min(reply.Record.RetryAt, reply.Now+pause.Milliseconds())
			case store.TaskFenced:
				l.end(t, RunFailed, 0)
			}
		},
	})
}

// tend looks after the run that is on: its next attempt, and whether it heeds its context.
func (l *taskLoop) tend(t *leadTask) (wait time.Duration) {
	r := t.run
	wait = time.Hour
	switch {
	case r.finished:
	case r.active:
		return min(l.watchEnd(t), l.watchDuration(t))
	case l.over: // it waits for a retry that will not come
		l.leave(t)
	case r.noting:
	default:
		if wait = l.clock.Until(r.retryAt, l.now); wait <= 0 {
			r.attempt++
			l.start(t)
			return time.Hour
		}
	}
	return wait
}

// watchEnd reports an attempt that runs on after the end of its context, once.
func (l *taskLoop) watchEnd(t *leadTask) (wait time.Duration) {
	r := t.run
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
	return wait
}

// watchDuration reports an attempt that takes far longer than usual, once a run.
func (l *taskLoop) watchDuration(t *leadTask) (wait time.Duration) {
	r := t.run
	if r.slow {
		return time.Hour
	}
	if wait = r.began + r.limit - l.now; wait <= 0 {
		r.slow = true
		l.s.bus.publish(Event{Type: EventTaskSlow, Task: t.Name, Slot: r.slot, Attempt: r.attempt, Token: l.term.Token, Took: l.now - r.began})
		return time.Hour
	}
	return wait
}

// end records how the run has ended. retryIn is when the next leader may go on with it; 0 or less:
// at once.
func (l *taskLoop) end(t *leadTask, status RunState, retryIn time.Duration) {
	r := t.run
	r.finished = true
	ended := l.now
	f := store.TaskFinish{Run: r.id, Status: store.RunState(status), Text: r.text, Attempt: r.attempt, Failures: r.failed, RetryIn: retryIn}
	ran := l.s.ran(t.Name)
	ran.ended, ran.end = true, f
	l.finish(t, f, func(store.TaskReply) { t.lastEnded = l.clock.Read(ended) }) // by the clock as it is then: it may have been set meanwhile
}

// record ends a run in the record that has ended here before, which Redis does not know, or has
// forgotten.
func (l *taskLoop) record(t *leadTask, f store.TaskFinish) {
	l.finish(t, f, func(reply store.TaskReply) {
		if reply.Verdict == store.TaskDone {
			l.adopt(t, reply.Record)
		}
	})
}

// giveBack says that a run was claimed, perhaps, and certainly not started.
func (l *taskLoop) giveBack(t *leadTask, run string) {
	l.s.ran(t.Name).returned(run)
	l.finish(t, store.TaskFinish{Run: run, Status: store.RunReturned}, nil)
}

// finish ends a run in the record, behind what is being asked about the task. then may be nil.
func (l *taskLoop) finish(t *leadTask, f store.TaskFinish, then func(store.TaskReply)) {
	f.Token = l.term.Token
	l.enqueue(t, &storeOp{
		finish: true,
		send:   func(ctx context.Context) (store.TaskReply, error) { return l.s.store.Finish(ctx, t.Name, f) },
		take: func(reply store.TaskReply) {
			if t.run != nil && t.run.folded.skipped > 0 {
				l.publishSkipped(t, t.run.folded)
			}
			t.run = nil
			if then != nil && (reply.Verdict == store.TaskDone || f.Status != store.RunAbandoned) {
				then(reply)
			}
			if reply.Verdict == store.TaskGone && f.Status != store.RunReturned {
				l.reopen(t)
				if !l.over && t.disputed <= 1 {
					l.failed(t, fmt.Errorf("%w: the record does not know run %s any more", ErrNotFound, f.Run))
				}
			}
		},
	})
}
