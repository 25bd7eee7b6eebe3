package tenure

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// This file has the calls of the tasks of a term to the store. The loop makes none itself: those of
// one turn travel together, in a goroutine of their own, if the store can make them so.

// maxEnds is how many ends of runs wait for runs that are due: as many as travel at a time. The
// next leader runs again what has no end yet if this process dies, or if its term ends and
// schedule.FinishBound is too short to record all of them.
const maxEnds = maxCalls * maxFlight

// taskFlight is calls that are made together. At most maxCalls flights are on their way at a time.
type taskFlight struct {
	calls []store.TaskCall // each belongs to the goroutine that makes it, and to the loop once it was named there
	tries []taskTry        // of each call
	left  atomic.Int64     // calls that have no answer yet

	// Of the loop.
	unanswered int           // calls of which it has no answer yet
	awaited    int           // of those: their tasks wait for one
	urgent     bool          // a call is none that can wait, see schedule.Call
	placed     bool          // with one a place is given back
	since      time.Duration // when the first one came
}

// taskTry is what a call is a try of.
type taskTry struct {
	task *leadTask
	schedule.Try
	named bool // the call has come to its end; it belongs to whoever makes the call
}

// roomy reports whether one more call can be sent.
func (l *taskLoop) roomy(flying int) bool {
	return l.boarding != nil && len(l.boarding.calls) < l.mostTogether() || flying < maxCalls
}

// mostTogether is how many calls one flight takes.
func (l *taskLoop) mostTogether() int {
	if to, able := l.s.store.(store.TasksTogether); able && to.Pipelines() {
		return maxFlight
	}
	return 1
}

// crowded reports whether too many calls are in flight for one more, and what that means for the
// task that has waited for longest.
func (l *taskLoop) crowded(t *leadTask) bool {
	flying := l.s.calls.count()
	if !l.full {
		if l.unpermitted = l.roomy(flying); l.unpermitted && l.permitted() {
			l.unpermitted = false
			return false
		}
	}
	if flying-l.awaited() >= maxCalls && !l.stuck {
		l.stuck = true
		l.s.bus.publish(Event{Type: EventCallsStuck, Count: flying, Err: &callsHangError{count: flying, of: " of tasks"}})
	}
	if t.machine.Calling() == nil {
		return true
	}
	if waited := t.machine.Waited(); waited > tardyAfter && !l.stuck {
		if !l.tardy {
			l.s.bus.publish(Event{Type: EventTaskTardy, Task: t.Name, Token: l.term.Token, Took: waited})
		}
		l.tardy, l.tardyAt = true, l.now
	}
	return true
}

// send has one call made with the others of this turn: whatever the client does with its context,
// the loop goes on. If too many are in flight it waits for one to return, behind those that wait.
func (l *taskLoop) send(t *leadTask, call *schedule.Call) bool {
	if l.crowded(t) {
		l.full = true
		if !t.waitsForCall {
			t.waitsForCall = true
			rank := call.Rank()
			l.calling[rank] = append(l.calling[rank], t)
		}
		return false
	}
	l.stuck = false
	if l.boarding != nil && len(l.boarding.calls) >= l.mostTogether() {
		l.takeOff(l.boarding)
	}
	if l.boarding == nil {
		l.s.calls.begin()
		l.boarding = &taskFlight{calls: make([]store.TaskCall, 0, l.usual), tries: make([]taskTry, 0, l.usual), since: l.now}
		l.flights = append(l.flights, l.boarding)
	}
	f := l.boarding
	f.calls = append(f.calls, store.TaskCall{Name: t.Name, Ask: l.s.asks(t.registered, call.Ask)})
	f.tries = append(f.tries, taskTry{task: t, Try: t.machine.Sent()})
	t.flight = f
	f.urgent = f.urgent || !call.CanWait()
	f.placed = f.placed || l.s.places.bounds(t.Group)
	f.unanswered++
	f.awaited++
	l.permits--
	l.calls++
	return true
}

// asks is what a machine asks for, with what it does not know of.
func (s *roleTasks) asks(task *registered, ask any) any {
	switch ask := ask.(type) {
	case store.TaskClaim:
		ask.Keep, ask.KeepFor = s.keeps(task), s.keepFor
		return ask
	case store.TaskFinish:
		ask.Keep, ask.KeepFor = s.keeps(task), s.keepFor
		return ask
	}
	return ask
}

// depart sends the calls of this turn, and returns for how long they stay if they do. The ends of
// runs alone wait for company: they travel with the tasks that are due next, if so many are that
// they are served together, or with the ends that come while other calls are on their way. They do
// not while a task waits for a place that one of them gives back.
func (l *taskLoop) depart() (wait time.Duration) {
	f := l.boarding
	if f == nil {
		return schedule.Forever
	}
	urgent := f.urgent || f.placed && l.s.places.wanted()
	if over, _ := l.shared.Over(); !over && !urgent && l.mostTogether() > 1 {
		until := min(l.dueAt, f.since+dueTogether*dueSpacing) // what is due need not call: a retry begins without
		if l.awaited() > 1 {
			until = max(until, f.since+dueSpacing)
		}
		if wait = until - l.now; wait > 0 {
			return wait
		}
	}
	l.takeOff(f)
	return schedule.Forever
}

// awaited is how many flights there are of which a task waits for an answer, with the one that this
// turn fills.
func (l *taskLoop) awaited() (n int) {
	for _, f := range l.flights {
		if f.awaited > 0 {
			n++
		}
	}
	return n
}

func (l *taskLoop) takeOff(f *taskFlight) {
	l.boarding, l.usual = nil, len(f.calls)
	f.left.Store(int64(len(f.calls)))
	go l.fly(f) // ends when the client returns; counted in calls
}

// fly makes the calls of a flight.
func (l *taskLoop) fly(f *taskFlight) {
	growStack()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), schedule.CallBound)
	defer cancel()
	sent := time.Since(l.origin)
	done := func(answered []int) {
		received := time.Since(l.origin)
		for _, i := range answered {
			f.tries[i].named = true
		}
		if f.left.Add(-int64(len(answered))) == 0 {
			l.s.calls.end() // first: whoever waits for a call is served in the turn that hears of it
		}
		l.post(func() { l.answered(f, answered, sent, received) })
	}
	defer func() {
		var lost []int // only if the client has ended this goroutine, or one of the calls
		for i := range f.tries {
			if !f.tries[i].named {
				f.calls[i].Err = store.ErrCallEnded
				lost = append(lost, i)
			}
		}
		if len(lost) > 0 {
			done(lost)
		}
	}()
	if one := &f.calls[0]; len(f.calls) == 1 {
		one.Reply, one.Err = store.AskTask(ctx, l.s.store, one.Name, one.Ask)
		done([]int{0})
		return
	}
	l.s.store.(store.TasksTogether).AskAll(ctx, f.calls, done)
}

// growStack has the stack of a goroutine grow while there is nothing on it yet that would have to
// be copied: the client needs more of it than a goroutine begins with.
//
//go:noinline
func growStack() { keepAlive(&[6 << 10]byte{}) }

//go:noinline
func keepAlive(*[6 << 10]byte) {}

// answered takes what calls of a flight came back with.
func (l *taskLoop) answered(f *taskFlight, answered []int, sent, received time.Duration) {
	f.unanswered -= len(answered)
	l.calls -= len(answered)
	for _, i := range answered {
		l.take(f.tries[i], f.calls[i], sent, received)
	}
	if f.unanswered == 0 {
		l.flights = slices.DeleteFunc(l.flights, func(other *taskFlight) bool { return other == f })
	}
}

// take takes the answer to one call, of which the task may have gone.
func (l *taskLoop) take(of taskTry, call store.TaskCall, sent, received time.Duration) {
	t := of.task
	l.touch(t)
	if call.Err == nil {
		if len(t.barred) > 0 {
			t.admits(call.Ask)
		}
		l.stepped(l.shared.Clock.Learn(sent, received, call.Reply.Now))
		t.machine.Answer(of.Try, call.Reply)
		if ask, ok := call.Ask.(store.TaskRead); ok && ask.Triggers {
			l.looked(ask, call.Reply)
		}
	} else if t.machine.Failed(of.Try) {
		l.refused(t, call.Ask, call.Err)
	}
	l.note(t)
}

// unawait leaves the flight of a task once nothing is waited for there: the call was answered, has
// had its time, or was given up. The flight has the answers of others too, which a task does not
// keep.
func (l *taskLoop) unawait(t *leadTask) {
	if t.flight != nil && !t.machine.Awaits() {
		t.flight.awaited--
		l.permits++
		t.flight = nil
	}
}

// permitted reports whether a call can be sent as far as the other roles go. If not the role has a
// place in their line from then on.
func (l *taskLoop) permitted() bool {
	if l.permits == 0 {
		l.permits = l.s.permits.take(&l.inLine)
		l.lined = l.permits == 0
	}
	return l.permits > 0
}

// giveBack gives back the permits that no call of this turn uses, and the place in the line unless
// a call waits for it.
func (l *taskLoop) giveBack() {
	if l.lined && !l.unpermitted {
		l.permits += l.s.permits.leave(&l.inLine)
		l.lined = false
	}
	if l.permits > 0 {
		l.s.permits.give(l.permits)
		l.permits = 0
	}
}

// unpermit gives up the place in the line: the term is over, and no answer is waited for any more.
func (l *taskLoop) unpermit() {
	l.unpermitted = false
	l.giveBack()
}
