package tenure

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/agenda"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

const (
	tardyAfter = time.Second           // a task that is due and waits for a call for so long is reported
	tardyQuiet = 10 * time.Second      // and again if none has waited so long for that time
	turnBound  = 20 * time.Millisecond // a turn that has asked schedules for so long looks at mailbox and time again

	// Where time after time comes within so long of another, tasks are served together: a thousand
	// slots a second would be a thousand wake-ups, and as many claims that travel alone. Each task
	// that is served puts the next ones off by so long, up to dueTogether of them in a turn. Four
	// in a row are not put off, such as a slot and a second look at Redis's clock.
	dueSpacing  = 5 * time.Millisecond
	dueTogether = 4
	dueAhead    = 3 * dueSpacing
)

// taskLoop runs the tasks of one term: it drives a schedule.Machine each. Its fields belong to the
// loop, but for its mailbox. The loop calls nothing that may block: calls to the store and the
// application's own schedules have goroutines of their own, see send and consult.
//
// A turn touches the tasks that have news, those whose time has come, and of those that were
// refused a call as many as there are calls now.
type taskLoop struct {
	s      *roleTasks
	ctx    context.Context //nolint:containedctx // of the term: nothing starts once it is done
	runs   context.Context //nolint:containedctx // of the runs: it may outlast that of the term, see liveTerm.tasks
	term   Term
	shared schedule.Term // what the machines share
	tasks  []*leadTask
	byName map[string]*leadTask

	lookAt time.Duration // when a record is read, see look
	lookOf []string      // names of tasks that are asked about in the next ones, see store.TaskRead

	origin      time.Time     // all times of the loop count from here, by the monotonic clock
	now         time.Duration // in this turn
	calls       int           // of this term that have no answer
	flights     []*taskFlight // that they are in
	boarding    *taskFlight   // the one that this turn fills; nil: none
	usual       int           // calls of the flight before it
	permits     int           // that no call uses
	forgot      int64         // of the term, when all records were last read again
	rereadAt    time.Duration // not again before: two masters may answer in turn
	stuck       bool          // all that may be in flight hang
	tardy       bool          // a task that is due waits for a call: was reported
	tardyAt     time.Duration // when one waited so long last
	full        bool          // somebody waits for a call: a place that is free by now is theirs
	lined       bool          // the role may be in the line for permits, or have been given some there
	unpermitted bool          // somebody waits for a call for want of a permit
	fullAsides  bool          // somebody waits to ask a schedule: likewise
	consulting  int           // schedules that are asked, but for those that hang
	thought     time.Duration // spent on schedules in this turn
	cut         bool          // the context of the runs is done
	cutAt       time.Duration // when that was noticed

	touched []*leadTask                 // have news
	calling [schedule.Ranks][]*leadTask // refused a call, by its rank: the longest first
	asking  []*leadTask                 // refused a question to their schedule: likewise
	taken   []*leadTask                 // their schedule is still being asked by an earlier term
	local   agenda.Agenda[*leadTask]    // wait for a time of the loop, in ns
	redis   agenda.Agenda[*leadTask]    // wait for a time of Redis's clock, in ms
	turns   uint64
	dueAt   time.Duration // nobody is served because its time has come before that, see dueSpacing

	queued int // tasks that wait for a place
	line   placeLine
	inLine permitLine

	inbox mailbox[[]func()] // shares its wake-up with the scheduler
}

// leadTask is a task while this process leads.
type leadTask struct {
	*registered
	at       int // in taskLoop.tasks
	machine  *schedule.Machine
	attempt  *liveAttempt // nil: none is on
	last     endedAttempt // the one that has returned last
	flight   *taskFlight  // that the task waits for; nil: for none
	question *question    // what its schedule is being asked aside
	faults   reportOnce   // of the record
	barred   []barred     // fixes that were reported, and that no call has shown to be made
	ill      error        // what is wrong with its schedule: the task stands still; nil: nothing
	slowRun  string       // the last run that was reported as slow
	leaving  bool         // it was unregistered
	gone     bool         // it was dropped: its name may be another's, and answers may still come
	placed   bool         // it has a place, see place
	admitted bool         // which it has waited for, and has not used yet
	queued   bool         // it waits for one
	wait     placeWait

	local, redis  agenda.Entry[*leadTask]
	turn          uint64 // the last one in which it was served
	touched       bool   // it is in that list, likewise:
	waitsForCall  bool
	waitsForAside bool
}

func newTaskLoop(ctx, runs context.Context, s *roleTasks, term Term) *taskLoop {
	return &taskLoop{
		s: s, ctx: ctx, runs: runs, term: term, byName: make(map[string]*leadTask), lookAt: schedule.LookEvery, origin: time.Now(), inbox: mailbox[[]func()]{wakeup: s.wake}, line: placeLine{wake: s.wake}, inLine: permitLine{wake: s.wake},
		shared: schedule.Term{Token: term.Token, Lease: s.lease, Instance: s.id, NewRun: s.secret, Random: s.random},
	}
}

// work is what the leader of the role does for its tasks.
func (s *roleTasks) work() lateWork {
	return lateWork{run: s.runTerm, any: s.any, whenAdded: s.whenAdded}
}

// runTerm runs the tasks while the term lasts. It returns when ctx is done, every run has returned
// and its end was recorded, or that was tried for schedule.FinishBound.
func (s *roleTasks) runTerm(ctx context.Context, term Term) error {
	l := newTaskLoop(ctx, term.live.tasks.ctx, s, term)
	defer s.working.Store(false)
	defer s.forget()
	s.leads.Store(true)
	defer s.leads.Store(false)
	s.loops(true)
	defer s.loops(false)
	defer l.unplace()
	defer l.unpermit()
	s.gate.begin()
	timer := time.NewTimer(0)
	defer timer.Stop()
	done, cut := ctx.Done(), l.runs.Done()
	for {
		l.now = time.Since(l.origin)
		s.since.Store(int64(readClock().Mono))
		s.working.Store(true)
		wait, finished := l.turn()
		l.giveBack()
		wait = min(wait, l.depart())
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

// touch has a task served in the next turn, or in this one if that has not begun to serve.
func (l *taskLoop) touch(t *leadTask) {
	if !t.touched {
		t.touched = true
		l.touched = append(l.touched, t)
	}
}

func (l *taskLoop) touchAll() {
	for _, t := range l.tasks {
		l.touch(t)
	}
}

// turn does what is due and says how long nothing else will be.
func (l *taskLoop) turn() (wait time.Duration, finished bool) {
	l.shared.Tick(l.now)
	for _, do := range l.inbox.take() {
		do()
	}
	l.giveBack() // those of the answers: others may wait for them
	over, ended := l.shared.Over()
	if !over && (l.ctx.Err() != nil || !l.term.Valid()) {
		l.shared.End()
		over, ended = true, l.now
		l.touchAll()
	}
	if !l.cut && l.runs.Err() != nil {
		l.cut, l.cutAt = true, l.now
		l.touchAll()
	}
	if held := l.s.gate.holds(); held != l.shared.Held {
		l.shared.Held = held
		l.touchAll()
	}
	l.register()
	l.reread()
	l.hear()
	l.admit()
	finished = over && l.ctx.Err() != nil // a reader of the term may have noticed first
	if !l.serveAll() {
		return 0, false
	}
	if !l.full && l.now-l.tardyAt > tardyQuiet { // nobody waits for a moment where all are about to be due again
		l.tardy = false
	}
	finished = finished && !slices.ContainsFunc(l.tasks, func(t *leadTask) bool { return t.machine.Busy() })
	wait = min(l.look(), l.next())
	if finished && l.calls > 0 { // they may change nothing any more, but they are ours: wait a little
		left := ended + schedule.CallBound + schedule.FinishBound - l.now
		return max(left, 0), left <= 0
	}
	return max(wait, 0), finished
}

// reread has all records read again if Redis may have forgotten what the term has written there,
// such as the end of a run: within schedule.LookEvery of the answer that says so.
func (l *taskLoop) reread() {
	if forgot := l.term.live.forgot.Load(); forgot != l.forgot && l.now >= l.rereadAt {
		l.forgot, l.rereadAt = forgot, l.now+schedule.LookEvery
		for _, t := range l.tasks {
			t.machine.News()
		}
		l.touchAll()
	}
}

// serveAll serves all who have waited, who have news, and whose time has come, in this order. It
// reports false if the schedules took so long that there is something else to look at first.
func (l *taskLoop) serveAll() bool {
	l.turns++
	l.thought = 0
	served := 0 // since their time has come
	l.taken = slices.DeleteFunc(l.taken, func(t *leadTask) bool {
		free := !t.inUse.Load()
		if free {
			l.touch(t)
		}
		return free
	})
	if !l.serveWaiting() {
		return false
	}
	touched := l.touched
	l.touched = nil
	for i, t := range touched {
		t.touched = false
		if l.serve(t); l.thought > turnBound { // long walks of schedules
			for _, t := range touched[i+1:] {
				t.touched = false
				l.touch(t)
			}
			return false
		}
	}
	for l.now >= l.dueAt {
		t, at, ok := l.local.First()
		if !ok || at > int64(l.now) || t.turn == l.turns {
			if t, at, ok = l.redis.First(); !ok || l.shared.Clock.Until(at, l.now) > 0 || t.turn == l.turns {
				break
			}
		}
		served++
		if l.serve(t); l.thought > turnBound {
			return false
		}
	}
	if served > 0 {
		l.dueAt = max(l.dueAt, l.now-dueAhead) + time.Duration(min(served, dueTogether))*dueSpacing
	}
	return true
}

// serveWaiting serves those that were refused a call, or a question to their schedule, as far as
// there is room now.
func (l *taskLoop) serveWaiting() bool {
	l.full, l.unpermitted = false, false
	for waiting := l.firstInLine(); waiting != nil && !l.full; waiting = l.firstInLine() {
		t := (*waiting)[0]
		if l.crowded(t) {
			l.full = true
			break
		}
		*waiting = (*waiting)[1:]
		t.waitsForCall = false
		if l.serve(t); l.thought > turnBound {
			return false
		}
	}
	for l.fullAsides = false; len(l.asking) > 0; {
		if l.consulting >= maxConsulted {
			l.fullAsides = true
			break
		}
		t := l.asking[0]
		l.asking = l.asking[1:]
		t.waitsForAside = false
		l.serve(t)
	}
	return true
}

// firstInLine are those that wait for a call and whose turn it is, the longest first; nil: nobody
// waits. Ends of runs come last, but if more than maxEnds wait they come first: each run that
// begins is one more of them.
func (l *taskLoop) firstInLine() *[]*leadTask {
	if ends := &l.calling[schedule.Ranks-1]; len(*ends) > maxEnds {
		return ends
	}
	for rank := range l.calling {
		if len(l.calling[rank]) > 0 {
			return &l.calling[rank]
		}
	}
	return nil
}

// next is how long nobody's time comes.
func (l *taskLoop) next() (wait time.Duration) {
	if len(l.touched) > 0 || len(l.asking) > 0 && l.consulting < maxConsulted { // a schedule that hangs has made room in this turn
		return 0
	}
	wait = schedule.Forever
	if _, at, ok := l.local.First(); ok {
		wait = min(wait, time.Duration(at)-l.now)
	}
	if _, at, ok := l.redis.First(); ok {
		wait = min(wait, l.shared.Clock.Until(at, l.now))
	}
	return max(wait, l.dueAt-l.now)
}

// serve takes one task as far as it goes without waiting, and notes what it waits for then.
func (l *taskLoop) serve(t *leadTask) {
	if t.gone {
		return
	}
	t.turn = l.turns
	l.place(t)
	s := t.machine.Step()
	l.note(t)
	if s.Question != nil {
		s.Wait = min(s.Wait, l.consult(t, s.Question))
		if ours(t.Schedule) { // it has answered
			l.place(t)
			s = t.machine.Step()
			l.note(t)
			if s.Question != nil {
				s.Wait = 0
			}
		}
	}
	if s.Call != nil && l.send(t, s.Call) {
		s.Wait = min(s.Wait, schedule.CallBound)
	}
	if t.question != nil {
		s.Wait = min(s.Wait, l.attend(t))
	}
	if t.attempt != nil {
		s.Wait = min(s.Wait, l.watchEnd(t), l.watchDuration(t))
	}
	l.placed(t)
	l.waits(t, s)
	if t.leaving && t.attempt == nil && !t.machine.Busy() {
		l.drop(t)
	}
}

// waits notes what a task waits for.
func (l *taskLoop) waits(t *leadTask, s schedule.Step) {
	switch {
	case s.Wait <= 0:
		l.local.Remove(&t.local)
		l.touch(t)
	case s.Wait < schedule.Forever:
		l.local.Set(&t.local, int64(l.now+s.Wait))
	default:
		l.local.Remove(&t.local)
	}
	if s.Due == 0 {
		l.redis.Remove(&t.redis)
	} else {
		l.redis.Set(&t.redis, s.Due)
	}
}

// stepped looks at every task anew if Redis's clock was set by a step that may have left its
// next slot out of reach.
func (l *taskLoop) stepped(by time.Duration) {
	if max(by, -by) < schedule.SlotStep {
		return
	}
	l.s.bus.publish(Event{Type: EventRedisClockStepped, Role: l.term.Role, Token: l.term.Token, Step: by})
	for _, t := range l.tasks {
		t.machine.Stepped(by)
	}
	l.touchAll()
}

// note carries out and reports what has happened to a task.
func (l *taskLoop) note(t *leadTask) {
	l.unawait(t)
	for n := range t.machine.Take() {
		switch n.Kind {
		case schedule.Start:
			l.start(t, n.Attempt)
		case schedule.Skipped:
			l.s.bus.publish(Event{Type: EventTaskSkipped, Task: t.Name, Slot: store.Time(n.Slot), Count: n.Count, Token: l.term.Token})
		case schedule.Changed:
			l.s.bus.publish(Event{Type: EventTaskChanged, Task: t.Name, Slot: store.Time(n.Slot), Token: l.term.Token})
		case schedule.GivenUp:
			l.givenUp(t, n)
		case schedule.Cancel:
			l.cancel(t)
		case schedule.Returned:
			l.returned(t, n)
		case schedule.GoesOn:
			l.goesOn(t)
		case schedule.Expired:
			l.s.bus.publish(Event{Type: EventTaskTriggerExpired, Task: t.Name, Trigger: n.Run, Token: l.term.Token})
		case schedule.Unanswered:
			l.stands(t, fmt.Errorf("%w within %v", ErrUnreachable, schedule.CallBound))
		case schedule.Fenced:
			if over, _ := l.shared.Over(); over { // the next leader has it, as it should
				continue
			}
			l.stands(t, fmt.Errorf("%w: the record has token %d; if no leader has that, remove the record", ErrFenced, n.Record.Token))
		case schedule.Foreign:
			l.stands(t, fmt.Errorf("%w: task %q is run by the leader of %.100q: names of tasks are unique in a namespace; this "+
				"process looks again each minute, and has the task once that role has been led for a minute in a term without it: if it was unregistered "+
				"there, have that leader resign; if no process of yours takes part in that role, remove the fields lease and token of the record",
				ErrMisconfigured, t.Name, n.Record.Lease))
		case schedule.Disputed:
			l.stands(t, fmt.Errorf("%w: the record of task %q is said to have changed, and has not: repair it, or remove it and with it what "+
				"the task has run", ErrMisconfigured, t.Name))
		case schedule.Untold:
			l.failed(t, fmt.Errorf("%w: the end of a run could not be recorded within %v", ErrUnreachable, schedule.FinishBound))
		case schedule.Forgotten:
			l.failed(t, fmt.Errorf("%w: the record does not know run %s any more", ErrNotFound, n.Run))
		}
	}
}

// barred is a kind of call that was refused, and the fix that was reported. Calls of other kinds
// may go on: between two refusals the task does.
type barred struct {
	ask      askKind
	fix      string
	at       time.Duration // when the last one was refused, monotonic
	answered int           // calls of that kind in a row since then
}

// askKind tells apart what may be refused while another call is not.
type askKind struct {
	call  reflect.Type
	claim string // its kind; "": it is no claim
}

func kindOf(ask any) askKind {
	claim, _ := ask.(store.TaskClaim) // the zero value of any other
	return askKind{reflect.TypeOf(ask), claim.Kind}
}

// sureAnswers is how many calls in a row must have an answer before one counts as refused no more:
// a script that is refused its last command has done the rest, and its repetition finds that.
const sureAnswers = 3

// barredFor is for how long a refusal counts as reported: a task that runs once a day may take days
// until enough of its calls have answers.
const barredFor = time.Hour

// refused says that a call keeps a task from going on. A fix is reported once until calls of that
// kind have answers, or an hour has passed without one that was refused; also if something else
// keeps the task from going on by then.
func (l *taskLoop) refused(t *leadTask, ask any, err error) {
	if errors.Is(err, ErrMisconfigured) {
		kind, fix := kindOf(ask), store.FixOf(err)
		t.barred = slices.DeleteFunc(t.barred, func(b barred) bool { return l.now-b.at > barredFor })
		if known := slices.IndexFunc(t.barred, func(b barred) bool { return b.ask == kind && b.fix == fix }); known >= 0 {
			t.barred[known].at, t.barred[known].answered = l.now, 0
			t.faults.reported = true
		} else {
			asked := slices.ContainsFunc(t.barred, func(b barred) bool { return b.fix == fix }) // by another call
			t.faults.reported = t.faults.reported && asked
			t.barred = append(t.barred, barred{ask: kind, fix: fix, at: l.now})
		}
	}
	l.stands(t, err)
}

// admits notes that a call was not refused.
func (t *leadTask) admits(ask any) {
	kind := kindOf(ask)
	for i := range t.barred {
		if t.barred[i].ask == kind {
			t.barred[i].answered++
		}
	}
	t.barred = slices.DeleteFunc(t.barred, func(b barred) bool { return b.answered >= sureAnswers })
}

// stands says what keeps a task from going on: to observers once, to Tasks until it goes on.
func (l *taskLoop) stands(t *leadTask, err error) {
	l.s.stands(t.Name, err)
	if t.faults.first() {
		l.failed(t, err)
	}
}

// goesOn notes that the record keeps a task from going on no more. Its schedule may still do.
func (l *taskLoop) goesOn(t *leadTask) {
	if t.faults.over() {
		l.s.stands(t.Name, t.ill)
	}
}

// sickens says that the schedule of a task keeps it from going on, and why.
func (l *taskLoop) sickens(t *leadTask, err error) {
	t.ill = fmt.Errorf("%w: schedule %q: %w", ErrMisconfigured, t.text, err)
	l.stands(t, t.ill)
}

// heals notes that the schedule of a task does so no more.
func (l *taskLoop) heals(t *leadTask) {
	if t.ill != nil {
		t.ill = nil
		t.faults.over()
		l.s.stands(t.Name, nil)
	}
}

// failed reports that the record of a task could not be read or written.
func (l *taskLoop) failed(t *leadTask, err error) {
	l.s.bus.publish(Event{Type: EventTaskBlocked, Task: t.Name, Token: l.term.Token, Err: err})
}

// register takes up the tasks that were registered, and lets those go that are not any more.
func (l *taskLoop) register() {
	for _, change := range l.s.changes() {
		r := change.now
		switch t := l.byName[change.name]; {
		case t == nil && r == nil: // it has come and gone
			l.s.settle(change.name)
		case t == nil:
			l.add(r)
		case r == nil && !t.leaving:
			t.leaving = true
			l.unqueue(t)
			t.machine.Retire()
			l.touch(t)
		case r == nil:
		case t.registered != r:
			l.reschedule(t, r)
		}
	}
}

// add takes up a task that was registered.
func (l *taskLoop) add(r *registered) {
	t := &leadTask{registered: r, at: len(l.tasks), machine: schedule.NewMachine(r.policy(), &l.shared, l.s.ran(r.Name))}
	t.local.Owner, t.redis.Owner = t, t
	t.wait.task, t.wait.group, t.wait.line, t.wait.entry.Owner = t.Name, t.Group, &l.line, &t.wait
	l.tasks = append(l.tasks, t)
	l.byName[r.Name] = t
	l.touch(t)
}

// drop lets a task go that was unregistered.
func (l *taskLoop) drop(t *leadTask) {
	t.gone = true
	l.unask(t)
	if t.placed {
		l.leave(t)
	}
	l.local.Remove(&t.local)
	l.redis.Remove(&t.redis)
	last := len(l.tasks) - 1
	l.tasks[t.at] = l.tasks[last]
	l.tasks[t.at].at = t.at
	l.tasks[last] = nil
	l.tasks = l.tasks[:last]
	delete(l.byName, t.Name)
	l.s.stands(t.Name, nil)
	l.s.settle(t.Name)
}

// reschedule has a task go on by another schedule. What the old one still answers, or does not, is
// nothing to it any more.
func (l *taskLoop) reschedule(t *leadTask, r *registered) {
	l.unask(t)
	t.registered = r
	t.machine.Reschedule(r.policy())
	l.heals(t)
	l.touch(t)
}
