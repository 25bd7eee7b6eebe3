package tenure

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

const (
	callBound    = 3 * time.Second // one call to the store is waited for
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second // between two calls without an answer
	finishBound  = 5 * time.Second // the end of a run is told for so long after the term, or the run, has ended
	reopenPause  = 10 * time.Millisecond
	maxDisputed  = 10                    // wrong answers that the record has moved until that is reported
	lookEvery    = time.Minute           // Redis's clock is looked at while something is scheduled
	tardyAfter   = time.Second           // that is due and waits for a call
	turnBound    = 20 * time.Millisecond // a turn that has asked schedules for so long looks at mailbox and time again
	slotStep     = time.Minute           // a step of Redis's clock by so much may leave a slot where it would be waited for too long
)

// taskLoop runs the tasks of one term. Its fields belong to the loop, but for its mailbox. The loop
// calls nothing that may block: calls to the store and the application's own schedules have
// goroutines of their own, see send and consult.
type taskLoop struct {
	s     *TaskScheduler
	ctx   context.Context //nolint:containedctx // of the term: nothing starts once it is done
	runs  context.Context //nolint:containedctx // of the runs: it may outlast that of the term, see liveTerm.tasks
	term  Term
	clock lease.RedisClock
	tasks []*leadTask

	origin         time.Time     // all times of the loop count from here, by the monotonic clock
	now            time.Duration // in this turn
	calls          int           // of this term in flight
	abandonedCalls int           // of those
	stuck          bool          // all that may be in flight hang
	first          int           // the task that this turn begins with, behind those that wait
	waiting        []*leadTask   // refused a call, or a question to their schedule: the longest first
	turns          uint64
	full           bool          // somebody was refused a call in this turn: a place that is free by now is theirs
	consulting     int           // schedules that are asked, but for those that hang
	thought        time.Duration // spent on schedules in this turn
	tardy          bool          // a task that is due waits for a call: was reported
	over           bool          // the term has ended
	ended          time.Duration // when that was noticed
	cut            bool          // so has the context of the runs
	cutAt          time.Duration // when that was noticed

	inbox mailbox[[]func()] // shares its wake-up with the scheduler
}

// leadTask is a task while this process leads.
type leadTask struct {
	*registered
	record        store.TaskRecord // as it was last heard of
	opened        bool             // it is ours
	checked       bool             // its next slot is one that the schedule may have led to
	next          store.TaskRecord // as it was when it last had a next slot: a record that was lost goes on from there
	rerunOf       string           // ID of a run that another leader left behind, to be run again
	before        store.TaskRecord // as it was before the last answer
	moved         int              // how often in a row the record was not what it was
	disputed      int              // how often in a row that was said though nothing in it had changed
	other         string           // key of the lease that the record says it belongs to, if it is not ours: untrusted
	runOnElection bool             // RunOnElection is still to be done
	op            *storeOp
	queued        *storeOp  // the end of a run, behind what is being asked
	question      *question // what its schedule is being asked
	run           *liveRun
	began         int64 // see slotState
	lastEnded     int64
	backlog
	notBefore time.Duration // nothing is decided before
	faults    reportOnce    // of the record
	hung      bool          // the schedule: has been reported
	disabled  bool          // nothing more in this term
	refused   bool          // in this turn it got no call, or could not ask its schedule
	turn      uint64        // the last one in which it was stepped
}

// storeOp is one decision that the store is asked for until it answers. A task has one at a time.
type storeOp struct {
	send   func(context.Context) (store.TaskReply, error)
	take   func(store.TaskReply)
	give   func() // what is done if the term ends before the answer; nil: nothing
	finish bool   // told also when the term is over
	since  time.Duration

	tries    int
	inFlight bool
	at       time.Duration // when it is sent, or, in flight, abandoned
}

// runTerm runs the tasks while the term lasts. It returns when ctx is done, every run has returned
// and its end was told, or was tried to be told for finishBound.
func (s *TaskScheduler) runTerm(ctx context.Context, term Term) error {
	l := &taskLoop{s: s, ctx: ctx, runs: term.live.tasks.ctx, term: term, origin: time.Now(), inbox: mailbox[[]func()]{wakeup: s.wake}}
	defer s.working.Store(false)
	defer s.forget()
	timer := time.NewTimer(0)
	defer timer.Stop()
	done, cut := ctx.Done(), l.runs.Done()
	for {
		l.now = time.Since(l.origin)
		s.since.Store(int64(readClock().Mono))
		s.working.Store(true)
		wait, finished := l.turn()
		s.working.Store(false)
		if finished {
			return nil
		}
		timer.Reset(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		case <-done:
			done = nil
		case <-cut:
			cut = nil
		}
	}
}

// post leaves something for the loop to do, from any goroutine.
func (l *taskLoop) post(do func()) {
	l.inbox.put(func(mail *[]func()) { *mail = append(*mail, do) })
}

// turn does what is due and says how long nothing else will be.
func (l *taskLoop) turn() (wait time.Duration, finished bool) {
	for _, do := range l.inbox.take() {
		do()
	}
	if !l.over && (l.ctx.Err() != nil || !l.term.Valid()) {
		l.over, l.ended = true, l.now
	}
	if !l.cut && l.runs.Err() != nil {
		l.cut, l.cutAt = true, l.now
	}
	for _, r := range l.s.known()[len(l.tasks):] {
		l.tasks = append(l.tasks, &leadTask{registered: r, runOnElection: r.RunOnElection})
	}
	wait = time.Hour
	finished = l.ctx.Err() != nil // a reader of the term may have noticed first
	l.turns++
	l.full = false
	l.thought = 0
	waited := l.waiting
	l.waiting = nil
	for i, t := range waited {
		wait = min(wait, l.serve(t))
		if l.thought > turnBound { // long walks of schedules: see what else there is
			l.waiting = append(l.waiting, waited[i+1:]...)
			return 0, false
		}
	}
	for i := range l.tasks {
		at := (l.first + i) % len(l.tasks)
		if t := l.tasks[at]; t.turn != l.turns {
			wait = min(wait, l.serve(t))
		}
		if l.thought > turnBound {
			l.first = at + 1
			return 0, false
		}
	}
	finished = finished && !slices.ContainsFunc(l.tasks, func(t *leadTask) bool { return t.run != nil || t.op != nil || t.queued != nil })
	if len(l.waiting) == 0 {
		l.tardy = false
	}
	wait = min(wait, l.look())
	if finished && l.calls > 0 { // they may change nothing any more, but they are ours: wait a little
		left := l.ended + callBound + finishBound - l.now
		return max(left, 0), left <= 0
	}
	return max(wait, 0), finished
}

// serve takes one task's turn. One that is refused waits behind those that were refused before it.
func (l *taskLoop) serve(t *leadTask) (wait time.Duration) {
	t.turn = l.turns
	wait = l.step(t)
	if t.refused {
		l.waiting = append(l.waiting, t)
	}
	return wait
}

// step takes one task as far as it goes without waiting.
func (l *taskLoop) step(t *leadTask) (wait time.Duration) {
	wait = time.Hour
	t.refused = false
	if t.run != nil {
		wait = l.tend(t)
	}
	if t.op == nil && t.queued != nil {
		queued := t.queued
		t.queued = nil
		l.enqueue(t, queued)
	}
	if t.question != nil {
		wait = min(wait, l.attend(t))
	} else if t.op == nil && !l.over && !t.disabled {
		wait = min(wait, l.decide(t))
	}
	if t.op != nil {
		wait = min(wait, l.drive(t))
	}
	return wait
}

// decide finds what is to be asked next.
func (l *taskLoop) decide(t *leadTask) (wait time.Duration) {
	if t.notBefore > l.now {
		return t.notBefore - l.now
	}
	redis := l.clock.Read(l.now)
	starts := l.clock.Until(t.record.Next, l.now) + t.delay(t.record.Next) // the next slot
	switch {
	case !t.opened:
		l.open(t)
	case t.run != nil && t.record.Due != "" && !t.record.Follows(t.spec):
		return l.plan(t, redis) // what it runs was owed under another schedule
	case t.run != nil && (t.record.Next <= t.began || t.late || t.Overlap == OverlapQueue):
		return time.Hour // what is due waits for the run
	case t.run != nil && starts > 0:
		return starts
	case t.run != nil && t.run.quiet > l.now:
		return t.run.quiet - l.now
	case t.run != nil:
		return l.due(t, redis)
	case t.rerunOf != "":
		if wait := l.clock.Until(t.record.RetryAt, l.now); wait > 0 && wait <= t.Retry.MaxBackoff {
			return wait // it was about to be retried
		}
		return l.rerun(t, redis)
	case t.record.Due != "" && !t.record.Follows(t.spec) && t.record.Next != 0 && t.record.Next <= redis:
		if starts > 0 {
			return starts
		}
		return l.owed(t, redis)
	case !t.checked || t.record.Due == "" || !t.record.Follows(t.spec):
		return l.plan(t, redis)
	case t.record.Next != 0 && starts <= 0:
		return l.due(t, redis)
	case t.runOnElection && t.record.Crashes < maxCrashes:
		l.claim(t, slotPlan{}, store.ClaimExtra, strconv.FormatInt(t.record.Finished, 10))
	case t.record.Next != 0:
		return starts
	}
	return time.Hour
}

// enqueue starts to ask the store for something, behind what is being asked.
func (l *taskLoop) enqueue(t *leadTask, op *storeOp) {
	if t.op != nil {
		t.queued = op
		return
	}
	op.since, op.at = l.now, l.now
	t.op = op
}

// drive sends what is being asked, and gives up on it if the term is over.
func (l *taskLoop) drive(t *leadTask) (wait time.Duration) {
	op := t.op
	if l.over && !op.finish {
		t.op = nil
		if op.give != nil {
			op.give()
		}
		return 0
	}
	last := max(l.ended, op.since) + finishBound
	if l.over && l.now >= last {
		t.op = nil
		op.take(store.TaskReply{Verdict: store.TaskGone}) // unknown: the next leader will find it
		l.failed(t, fmt.Errorf("%w: the end of a run could not be told within %v", ErrUnreachable, finishBound))
		return 0
	}
	if op.inFlight && l.now >= op.at {
		op.inFlight = false
		l.abandonedCalls++
		l.unanswered(t, op, fmt.Errorf("%w within %v", ErrUnreachable, callBound))
	}
	if !op.inFlight && l.now >= op.at {
		l.send(t, op)
	}
	if wait = op.at - l.now; wait <= 0 {
		wait = time.Hour // for a call that returns
	}
	if l.over {
		wait = min(wait, last-l.now)
	}
	return wait
}

// send makes one call in a goroutine of its own: whatever the client does with its context, the
// loop goes on. If too many are in flight it waits for one to return.
func (l *taskLoop) send(t *leadTask, op *storeOp) {
	if flying := l.s.calls.count(); l.full || flying >= maxCalls {
		l.full = true
		if flying-(l.calls-l.abandonedCalls) >= maxCalls && !l.stuck {
			l.stuck = true
			l.s.bus.publish(Event{Type: EventCallsStuck, Count: flying, Err: &callsHangError{count: flying, of: " of tasks"}})
		}
		t.refused = true
		if waited := l.now - op.at; waited > tardyAfter && !l.stuck && !l.tardy {
			l.tardy = true
			l.s.bus.publish(Event{Type: EventTaskTardy, Task: t.Name, Token: l.term.Token, Took: waited})
		}
		return
	}
	l.stuck = false
	op.tries++
	op.inFlight, op.at = true, l.now+callBound
	l.calls++
	l.s.calls.begin()
	try := op.tries
	parent := context.WithoutCancel(l.ctx)
	go func() { // ends when the client returns; counted in calls
		ctx, cancel := context.WithTimeout(parent, callBound)
		defer cancel()
		sent := time.Since(l.origin)
		reply, err := op.send(ctx)
		received := time.Since(l.origin)
		l.s.calls.end()
		l.post(func() {
			l.calls--
			if err == nil {
				l.stepped(l.clock.Learn(sent, received, reply.Now))
			}
			l.answer(t, op, try, reply, err)
		})
	}()
}

// stepped looks at every task anew if Redis's clock was set by a step that may have left its
// next slot out of reach.
func (l *taskLoop) stepped(by time.Duration) {
	if max(by, -by) < slotStep {
		return
	}
	l.s.bus.publish(Event{Type: EventClockStep, Role: l.term.Role, Token: l.term.Token, Step: by})
	for _, t := range l.tasks {
		t.checked, t.notBefore = false, 0
		t.began += by.Milliseconds()
		t.lastEnded += by.Milliseconds()
		if t.until != 0 {
			t.until += by.Milliseconds()
		}
	}
}

// answer takes what a call came back with.
func (l *taskLoop) answer(t *leadTask, op *storeOp, try int, reply store.TaskReply, err error) {
	current := op.inFlight && op.tries == try
	if !current {
		l.abandonedCalls--
	}
	switch {
	case t.op != op: // it was answered, or given up
	case err == nil:
		t.op = nil
		if reply.Verdict != store.TaskFenced && reply.Verdict != store.TaskForeign && t.disputed < maxDisputed {
			l.goesOn(t)
		}
		t.before, t.record = t.record, reply.Record
		if t.record.Due != "" {
			t.next = t.record
		}
		if reply.Verdict == store.TaskFenced {
			l.refused(t, fmt.Errorf("%w: the record has token %d; if no leader has that, remove the record", ErrFenced, reply.Record.Token))
		}
		op.take(reply)
	case current:
		op.inFlight = false
		l.unanswered(t, op, err)
	}
}

// unanswered sets the next try. What went wrong is told once, until it goes right.
func (l *taskLoop) unanswered(t *leadTask, op *storeOp, err error) {
	op.at = l.now + lease.Backoff(firstPause, op.tries, longestPause)
	l.stands(t, err)
}

// stands says what keeps a task from going on: to observers once, to Tasks until it goes on.
func (l *taskLoop) stands(t *leadTask, err error) {
	l.s.stands(t.Name, err)
	if t.faults.first() {
		l.failed(t, err)
	}
}

func (l *taskLoop) goesOn(t *leadTask) {
	if t.faults.over() {
		l.s.stands(t.Name, nil)
	}
}

// failed tells that the record of a task could not be read or written.
func (l *taskLoop) failed(t *leadTask, err error) {
	l.s.bus.publish(Event{Type: EventTaskBlocked, Task: t.Name, Token: l.term.Token, Err: err})
}

// look reads the record that is due next, if Redis's clock was not heard of for long: two clocks
// drift apart, one may step.
func (l *taskLoop) look() (wait time.Duration) {
	var first *leadTask
	for _, t := range l.tasks {
		if !l.over && t.opened && !t.disabled && t.op == nil && t.record.Next != 0 && (first == nil || t.record.Next < first.record.Next) {
			first = t
		}
	}
	if first == nil {
		return time.Hour
	}
	if wait := l.clock.Heard() + lookEvery - l.now; wait > 0 {
		return wait
	}
	l.enqueue(first, &storeOp{
		send: func(ctx context.Context) (store.TaskReply, error) { return l.s.store.Record(ctx, first.Name) },
		take: func(reply store.TaskReply) {
			ours := reply.Record.Token == l.term.Token && reply.Record.Run == "" // or Redis has forgotten the end of a run
			first.opened, first.checked = first.run != nil || ours, false
		},
	})
	return l.drive(first)
}
