package tenure

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
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
	var late time.Duration
	if a.Slot != 0 && a.Number == 1 && a.Trigger == "" {
		late = max(store.Milliseconds(l.shared.Clock.Read(l.now)-a.Slot), 0)
	}
	go l.attempt(ctx, cancel, t, t.registered, run, late) // the machine of the task is busy until it has returned
}

// attempt calls the task and reports how that ended, whatever way it does. The last step before is
// to look at the term.
func (l *taskLoop) attempt(ctx context.Context, cancel context.CancelCauseFunc, t *leadTask, task *registered, run TaskRun, late time.Duration) {
	defer cancel(nil)
	if task.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, task.Timeout, &timeoutError{task.Timeout})
		defer stop()
	}
	started, began := false, time.Now()
	catch(func() error {
		l.s.bus.publish(Event{Type: EventTaskStarted, Task: run.Task, Slot: run.Slot, Attempt: run.Attempt, Token: run.Token, Trigger: run.Trigger, Took: late})
		if !l.term.Valid() || l.ctx.Err() != nil {
			return fmt.Errorf("not started: the term is over: %w", ErrNotLeader)
		}
		started = true
		return task.Run(ctx, run)
	}, func(err error) {
		err = endedBy(ctx, err)
		end := schedule.End{Started: started, Failed: err != nil, Took: time.Since(began), Text: errorText(err), Cut: l.runs.Err() != nil}
		end.Final, end.In = retryWanted(err)
		ended := endedAttempt{TaskRun: run, took: end.Took, err: err, heeded: !started || err != nil && heeds(l.runs, err), named: matches(err, ErrCanceled)}
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
	switch {
	case n.Canceled:
		e.Type, e.State, e.Err = EventTaskCanceled, RunCanceled, ErrCanceled
	case r.Run == "":
		e.Err = outdatedError{}
	}
	l.s.bus.publish(e)
}

// outdatedError is the ErrAbandoned of a run whose term ended first.
type outdatedError struct{}

func (outdatedError) Error() string { return schedule.OutdatedText }

// Is reports whether target is ErrAbandoned.
func (outdatedError) Is(target error) bool { return target == ErrAbandoned }

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
			if t.gone || t.registered != asked {
				return
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
			l.sickens(t, err)
		}
		return
	}
	l.place(t)
	t.machine.Answered(ask)
	l.placed(t)
	l.heals(t)
}

// unask has a task wait no longer for what its schedule is asked.
func (l *taskLoop) unask(t *leadTask) {
	if q := t.question; q != nil && !q.hangs {
		q.hangs = true
		l.consulting--
	}
	t.question = nil
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
	if t.ill == nil {
		l.sickens(t, errHungSchedule)
	}
}
