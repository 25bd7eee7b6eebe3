package tenure

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// liveAttempt is an attempt that has not returned. It belongs to the loop.
type liveAttempt struct {
	schedule.Attempt
	began    time.Duration
	cancel   context.CancelCauseFunc
	canceled time.Duration // when that was called; 0: it was not
	overran  bool          // was reported
}

// endedAttempt is an attempt that has returned, as its event reports it.
type endedAttempt struct {
	TaskRun
	took   time.Duration
	err    error
	heeded bool // it says only that the term is over
	named  bool // it says that the run was canceled
}

// start begins an attempt of the run that was claimed.
func (l *taskLoop) start(t *leadTask, a schedule.Attempt) {
	ctx, cancel := context.WithCancelCause(l.runs)
	t.attempt = &liveAttempt{Attempt: a, began: l.now, cancel: cancel}
	run := TaskRun{Task: t.Name, ID: a.Run, Slot: store.Time(a.Slot), Attempt: a.Number, Token: l.term.Token, Trigger: a.Trigger, Args: decodeArgs(a.Args)}
	go l.attempt(ctx, cancel, t, t.registered, run) // the machine of the task is busy until it has returned
}

// attempt calls the task and reports how that ended, whatever way it does. The last step before is
// to look at the term.
func (l *taskLoop) attempt(ctx context.Context, cancel context.CancelCauseFunc, t *leadTask, task *registered, run TaskRun) {
	defer cancel(nil)
	if task.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, task.Timeout, &timeoutError{task.Timeout})
		defer stop()
	}
	started, began := false, time.Now()
	catch(func() error {
		l.s.bus.publish(Event{Type: EventTaskStarted, Task: run.Task, Slot: run.Slot, Attempt: run.Attempt, Token: run.Token, Trigger: run.Trigger})
		if !l.term.Valid() || l.ctx.Err() != nil {
			return fmt.Errorf("not started: the term is over: %w", ErrNotLeader)
		}
		started = true
		return task.Run(ctx, run)
	}, func(err error) {
		err = endedBy(ctx, err)
		end := schedule.End{Started: started, Failed: err != nil, Took: time.Since(began), Text: errorText(err), Cut: l.runs.Err() != nil}
		end.Final, end.In = retryWanted(err)
		ended := endedAttempt{TaskRun: run, took: end.Took, err: err, heeded: !started || heeds(l.runs, err), named: matches(err, ErrCanceled)}
		l.post(func() {
			t.attempt, t.last = nil, ended
			end.Over = l.ctx.Err() != nil || !l.term.Valid()
			t.machine.Ended(end)
			l.note(t)
			l.touch(t)
		})
	})
}

// cancel ends the context of the attempt that is on.
func (l *taskLoop) cancel(t *leadTask) {
	t.attempt.canceled = max(l.now, 1)
	t.attempt.cancel(ErrCanceled)
}

// givenUp reports a run that its leader left behind and that is not run again.
func (l *taskLoop) givenUp(t *leadTask, n schedule.Note) {
	r := n.Record
	e := Event{Type: EventTaskFailed, Task: t.Name, Slot: store.Time(r.Scheduled), Attempt: r.Attempt, Token: r.RunToken, State: RunAbandoned, Err: ErrAbandoned}
	if n.Canceled {
		e.Type, e.State, e.Err = EventTaskCanceled, RunCanceled, ErrCanceled
	}
	l.s.bus.publish(e)
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
	case n.Outcome == schedule.Canceled:
		e.Type, e.State = EventTaskCanceled, RunCanceled
		if !a.named { // it ended between two attempts
			e.Err = ErrCanceled
		}
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
	if t.Timeout == 0 {
		bound = time.Duration(math.MaxInt64)
	}
	if l.cut {
		bound = min(bound, l.cutAt+l.s.patience)
	}
	if a.canceled > 0 {
		bound = min(bound, a.canceled+l.s.patience)
	}
	if a.overran || bound == math.MaxInt64 {
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
