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
}

// start begins an attempt of the run that is on.
func (m *Machine) start() {
	r := m.run
	r.active = true
	toNext := time.Duration(m.record.Next-m.began) * time.Millisecond
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
}

// Ended says how the run goes on after an attempt.
func (m *Machine) Ended(e End) {
	r, rerun := m.run, m.policy.Abandoned == AbandonedRerun
	r.active = false
	if !e.Failed {
		m.memory.took(e.Took)
	}
	switch {
	case !e.Started && r.attempt == r.first:
		m.giveBack(r.id)
		return
	case !e.Started: // as if the attempt before were the last
		r.attempt--
		m.leave()
		return
	}
	r.text = e.Text
	switch {
	case !e.Failed:
		m.end(store.RunSucceeded, 0)
	case e.Cut && rerun: // not to be held against the task
		m.end(store.RunInterrupted, 0)
	default:
		r.failed++
		pause := Backoff(r.failed, m.policy.Backoff, m.policy.MaxBackoff, m.term.Random())
		switch {
		case r.failed >= m.policy.Attempts:
			m.end(store.RunFailed, 0)
		case (e.Over || m.term.over) && rerun:
			m.end(store.RunInterrupted, pause)
		case e.Over || m.term.over:
			m.end(store.RunFailed, 0)
		default:
			m.retry(pause)
		}
	}
}

// leave ends a run that waits for an attempt which this process does not start any more.
func (m *Machine) leave() {
	if m.policy.Abandoned == AbandonedRerun {
		m.end(store.RunInterrupted, m.term.Clock.Until(m.run.retryAt, m.term.now))
		return
	}
	m.end(store.RunFailed, 0)
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
				m.end(store.RunFailed, 0)
			}
		},
	})
}

// tend looks after the run that is on: its next attempt.
func (m *Machine) tend(s *Step) {
	r := m.run
	switch {
	case r.finished, r.active:
	case m.term.over: // it waits for a retry that will not come
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
				if !m.term.over && m.disputed <= 1 {
					m.note(Note{Kind: Forgotten, Run: f.Run})
				}
			}
		},
	})
}
