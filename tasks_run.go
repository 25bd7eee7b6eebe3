package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// liveAttempt is an attempt that has not returned. It belongs to the loop.
type liveAttempt struct {
	schedule.Attempt
	began   time.Duration
	overran bool // was reported
}

// endedAttempt is an attempt that has returned, as its event reports it.
type endedAttempt struct {
	TaskRun
	took   time.Duration
	err    error
	heeded bool // it says only that the term is over
}

// start begins an attempt of the run that was claimed.
func (l *taskLoop) start(t *leadTask, a schedule.Attempt) {
	t.attempt = &liveAttempt{Attempt: a, began: l.now}
	run := TaskRun{Task: t.Name, ID: a.Run, Slot: store.Time(a.Slot), Attempt: a.Number, Token: l.term.Token, Trigger: a.Trigger, Args: decodeArgs(a.Args)}
	go l.attempt(t, run) // the machine of the task is busy until it has returned
}

// attempt calls the task and reports how that ended, whatever way it does. The last step before is
// to look at the term.
func (l *taskLoop) attempt(t *leadTask, run TaskRun) {
	ctx, cancel := l.runs, context.CancelFunc(func() {})
	if t.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, t.Timeout, &timeoutError{t.Timeout})
	}
	defer cancel()
	started, began := false, time.Now()
	catch(func() error {
		l.s.bus.publish(Event{Type: EventTaskStarted, Task: run.Task, Slot: run.Slot, Attempt: run.Attempt, Token: run.Token, Trigger: run.Trigger})
		if !l.term.Valid() || l.ctx.Err() != nil {
			return fmt.Errorf("not started: the term is over: %w", ErrNotLeader)
		}
		started = true
		return t.Run(ctx, run)
	}, func(err error) {
		err = timedOut(ctx, err)
		end := schedule.End{Started: started, Failed: err != nil, Took: time.Since(began), Text: errorText(err), Cut: l.runs.Err() != nil}
		end.Final, end.In = retryWanted(err)
		ended := endedAttempt{TaskRun: run, took: end.Took, err: err, heeded: !started || heeds(l.runs, err)}
		l.post(func() {
			t.attempt, t.last = nil, ended
			end.Over = l.ctx.Err() != nil || !l.term.Valid()
			t.machine.Ended(end)
			l.note(t)
			l.touch(t)
		})
	})
}

// returned reports what the attempt that has returned last means for its run.
func (l *taskLoop) returned(t *leadTask, n schedule.Note) {
	a := t.last
	e := Event{Task: a.Task, Slot: a.Slot, Attempt: a.Attempt, Token: a.Token, Trigger: a.Trigger, Took: a.took, Err: a.err}
	switch {
	case n.Outcome == schedule.Succeeded:
		e.Type, e.State = EventTaskFinished, RunSucceeded
	case n.Outcome == schedule.Failed:
		e.Type, e.State = EventTaskFailed, RunFailed
	case n.Outcome == schedule.Interrupted && a.heeded:
		e.Type, e.State = EventTaskInterrupted, RunInterrupted
	default:
		e.Type, e.State, e.Until = EventTaskAttemptFailed, RunFailed, time.Now().Add(n.Pause)
	}
	l.s.bus.publish(e)
}

// heeds reports whether an error of the application only says that ctx is done.
func heeds(ctx context.Context, err error) bool {
	heeded, _ := worded(ctx, "task", err)
	return heeded
}

// watchEnd reports an attempt that runs on after the end of its context, once.
func (l *taskLoop) watchEnd(t *leadTask) (wait time.Duration) {
	a := t.attempt
	bound := a.began + t.Timeout + l.s.patience
	if l.cut && (t.Timeout == 0 || l.cutAt+l.s.patience < bound) {
		bound = l.cutAt + l.s.patience
	}
	if a.overran || !l.cut && t.Timeout == 0 {
		return schedule.Forever
	}
	if wait = bound - l.now; wait <= 0 {
		a.overran = true
		err := fmt.Errorf("task %q runs on %v after the end of its context", t.Name, l.now-bound+l.s.patience)
		l.s.bus.publish(Event{
			Type: EventWorkOverrun, Role: l.term.Role, Task: t.Name, Slot: store.Time(a.Slot), Attempt: a.Number, Token: l.term.Token, Err: err,
		})
		return schedule.Forever
	}
	return wait
}

// watchDuration reports an attempt that takes far longer than usual, once a run.
func (l *taskLoop) watchDuration(t *leadTask) (wait time.Duration) {
	a := t.attempt
	if a.Run == t.slowRun {
		return schedule.Forever
	}
	if wait = a.began + a.Slow - l.now; wait <= 0 {
		t.slowRun = a.Run
		l.s.bus.publish(Event{
			Type: EventTaskSlow, Task: t.Name, Slot: store.Time(a.Slot), Attempt: a.Number, Token: l.term.Token, Took: l.now - a.began,
		})
		return schedule.Forever
	}
	return wait
}
