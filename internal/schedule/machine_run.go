package schedule

import (
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// run is a run that this process has claimed.
type run struct {
	id      string
	slot    int64
	attempt int // the one that is on, or was last
	first   int // of this leader
	failed  int // attempts that have failed, of earlier leaders too

	trigger, args string // ID of what triggered it, and its arguments; "": nothing did

	active      bool          // the attempt has not returned
	noting      bool          // the attempt that is to follow is being noted
	retryAt     int64         // when that is due, by Redis's clock
	quiet       time.Duration // slots that are due are not looked at before
	passed      int           // slots that were passed over meanwhile, and are reported when the run ends
	firstPassed int64         // the first of them
	text        string        // error of the last attempt
	finished    bool          // its end is being recorded
	canceled    bool          // somebody wants it to end
}

// start begins an attempt of the run that is on.
func (m *Machine) start() {
	r := m.run
	r.active = true
	toNext := withoutSlot
	if m.record.Next != 0 {
		toNext = time.Duration(m.record.Next-m.began) * time.Millisecond
	}
	m.note(Note{Kind: Start, Attempt: Attempt{Run: r.id, Slot: r.slot, Number: r.attempt, Trigger: r.trigger, Args: r.args, Slow: m.memory.limit(toNext)}})
}

// End is how an attempt ended.
type End struct {
	Started bool // it has begun; else the term had ended in the last moment
	Failed  bool
	Text    string // of its error
	Took    time.Duration
	Cut     bool // the context of the runs was done when it returned
	Over    bool // the term is over, though Term may not know yet
	// If it has failed: whether its run must not be tried again, and, if it says so, after which
	// pause it is; 0: by the policy.
	Final bool
	In    time.Duration
}

// Outcome is what an attempt that has returned means for its run.
type Outcome int

const (
	Succeeded   Outcome = iota
	Failed              // the run has failed for good
	Retried             // the attempt has failed, and another one follows
	Interrupted         // the end of the term cut it short, and the run is repeated
	Canceled            // its run was canceled
)

// Ended says how the run goes on after an attempt.
func (m *Machine) Ended(e End) {
	r, rerun := m.run, m.policy.Abandoned == AbandonedRerun
	r.active = false
	if !e.Failed {
		m.memory.took(e.Took)
	}
	switch {
	case !e.Started && r.attempt == r.first:
		m.returned(Interrupted, 0)
		m.giveBack(r.id)
		return
	case !e.Started: // as if the attempt before were the last
		r.attempt--
		if rerun {
			m.returned(Interrupted, 0)
		}
		m.leave()
		return
	}
	r.text = e.Text
	switch {
	case !e.Failed:
		m.returned(Succeeded, 0)
		m.end(store.RunSucceeded, 0)
	case r.canceled:
		m.cancel()
	case e.Cut && rerun && !e.Final: // not to be held against the task
		m.returned(Interrupted, 0)
		m.end(store.RunInterrupted, e.In)
	default:
		r.failed++
		m.failed(e)
	}
}

// failed says how the run goes on after an attempt that has failed.
func (m *Machine) failed(e End) {
	pause := e.In
	if pause == 0 {
		pause = Backoff(m.run.failed, m.policy.Backoff, m.policy.MaxBackoff, m.term.Random())
	}
	over := e.Over || m.over()
	switch {
	case e.Final, m.run.failed >= m.policy.Attempts, over && m.policy.Abandoned != AbandonedRerun:
		m.fail()
	case over:
		m.returned(Retried, pause)
		m.end(store.RunInterrupted, pause)
	default:
		m.returned(Retried, pause)
		m.retry(pause)
	}
}

// returned notes what the attempt that has returned means for the run.
func (m *Machine) returned(o Outcome, pause time.Duration) {
	m.note(Note{Kind: Returned, Run: m.run.id, Outcome: o, Pause: pause})
}

// heedCancel ends the run that is on if the record says so: at once if no attempt is on.
func (m *Machine) heedCancel() {
	r := m.run
	if r == nil || r.canceled || r.finished || m.record.Cancel != r.id {
		return
	}
	r.canceled = true
	if r.active {
		m.note(Note{Kind: Cancel, Run: r.id})
		return
	}
	r.text = store.CanceledText
	m.cancel()
}

// cancelable reports whether a run is on that can be canceled.
func (m *Machine) cancelable() bool {
	return m.run != nil && !m.run.canceled && !m.run.finished && (m.opened || m.over())
}

// cancel ends the run as canceled.
func (m *Machine) cancel() {
	m.returned(Canceled, 0)
	m.end(store.RunCanceled, 0)
}

// fail ends the run for good.
func (m *Machine) fail() {
	m.returned(Failed, 0)
	m.end(store.RunFailed, 0)
}

// leave ends a run that waits for an attempt which this process does not start any more.
func (m *Machine) leave() {
	if m.policy.Abandoned == AbandonedRerun {
		m.end(store.RunInterrupted, m.term.Clock.Until(m.run.retryAt, m.term.now))
		return
	}
	m.fail()
}

// retry notes the next attempt, and then waits for it. It does not begin before it was noted: else
// the next leader could not know of it.
func (m *Machine) retry(pause time.Duration) {
	r := m.run
	r.noting, r.retryAt = true, m.term.redis()+pause.Milliseconds()
	m.enqueue(&Call{
		Ask: store.TaskRetry{Token: m.term.Token, Run: r.id, Attempt: r.attempt + 1, Failures: r.failed, In: pause},
		take: func(reply store.TaskReply) {
			r.noting = false
			switch reply.Verdict {
			case store.TaskOK:
				r.retryAt = min(reply.Record.RetryAt, reply.Now+pause.Milliseconds())
			case store.TaskFenced:
				m.leave()
			}
		},
	})
}

// tend looks after the run that is on: its next attempt.
func (m *Machine) tend(s *Step) {
	r := m.run
	switch {
	case r.finished, r.active:
	case m.over(): // it waits for a retry that will not come
		m.leave()
	case r.noting:
	case m.term.Clock.Until(r.retryAt, m.term.now) > 0:
		m.at(s, r.retryAt, 0)
	default:
		r.attempt++
		m.start()
	}
}

// end records how the run has ended. retryIn is when the next leader may go on with it; 0 or less:
// at once.
func (m *Machine) end(status store.RunState, retryIn time.Duration) {
	r := m.run
	r.finished = true
	ended := m.term.now
	f := store.TaskFinish{Run: r.id, Status: status, Text: r.text, Attempt: r.attempt, Failures: r.failed, RetryIn: retryIn}
	m.memory.ends(f, r.trigger)
	m.finish(f, func(store.TaskReply) { m.lastEnded = m.term.Clock.Read(ended) }) // by the clock as it is then: it may have been set meanwhile
}

// restate ends a run in the record that has ended here before, which Redis does not know, or has
// forgotten.
func (m *Machine) restate(f store.TaskFinish) {
	m.finish(f, func(reply store.TaskReply) {
		if reply.Verdict == store.TaskDone {
			m.adopt(reply.Record)
		}
	})
}

// giveBack says that a run was claimed, perhaps, and certainly not started.
func (m *Machine) giveBack(id string) {
	m.memory.returned(id)
	m.finish(store.TaskFinish{Run: id, Status: store.RunReturned}, nil)
}

// finish ends a run in the record, behind what is being asked about the task. then may be nil.
func (m *Machine) finish(f store.TaskFinish, then func(store.TaskReply)) {
	f.Token = m.term.Token
	m.enqueue(&Call{
		Ask:    f,
		finish: true,
		take: func(reply store.TaskReply) {
			if m.run != nil && m.run.passed > 0 {
				m.note(Note{Kind: Skipped, Slot: m.run.firstPassed, Count: m.run.passed})
			}
			m.run = nil
			if then != nil && (reply.Verdict == store.TaskDone || f.Status != store.RunAbandoned) {
				then(reply)
			}
			if reply.Verdict == store.TaskGone && f.Status != store.RunReturned {
				m.reopen()
				if !m.over() && m.disputed <= 1 {
					m.note(Note{Kind: Forgotten, Run: f.Run})
				}
			}
		},
	})
}
