package schedule

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Call is one decision that the store is asked for until it answers. A task has one at a time.
type Call struct {
	// Ask is a store.TaskOpen, TaskPlan, TaskClaim, TaskRetry, TaskFinish or TaskRead.
	Ask any

	take   func(store.TaskReply)
	give   func() // what is done if the term ends before the answer; nil: nothing
	finish bool   // sent also when the term is over
	since  time.Duration

	tries    int
	inFlight bool
	at       time.Duration // when it is sent, or, in flight, abandoned
}

// Ranks is how many ranks of calls there are.
const Ranks = 3

// Rank says which calls go first if there are too many at a time, from 0 on. The end of a run can
// wait, since no run waits for it but one of its own task, or for its place. A new record gets its
// first slot right after it was opened: the slots of many new tasks then lie as far apart as their
// runs will take.
func (c *Call) Rank() int {
	plan, moves := c.Ask.(store.TaskPlan)
	switch {
	case moves && plan.Expect == "":
		return 0
	case c.CanWait():
		return 2
	}
	return 1
}

// CanWait reports whether it is the end of a run.
func (c *Call) CanWait() bool { return c.finish }

// Try is one attempt to send a call.
type Try struct {
	call   *Call
	number int
}

// enqueue starts to ask the store for something, behind what is being asked.
func (m *Machine) enqueue(call *Call) {
	if m.call != nil {
		m.queued = call
		return
	}
	call.since, call.at = m.term.now, m.term.now
	m.call = call
}

// drive sends what is being asked, and gives up on it if the term is over.
func (m *Machine) drive(s *Step) {
	t, call := m.term, m.call
	_, reads := call.Ask.(store.TaskRead)
	if m.over() && !call.finish && !(reads && m.cancelable()) { // a run that goes on may be canceled
		m.call = nil
		if call.give != nil {
			call.give()
		}
		s.Wait = 0
		return
	}
	last := max(t.ended, call.since) + FinishBound
	if t.over && t.now >= last && call.finish {
		m.call = nil
		call.take(store.TaskReply{Verdict: store.TaskGone}) // unknown: the next leader will find it
		m.note(Note{Kind: Untold})
		s.Wait = 0
		return
	}
	if call.inFlight && t.now >= call.at {
		m.unanswered(call)
		m.note(Note{Kind: Unanswered})
	}
	if !call.inFlight && t.now >= call.at {
		s.Call = call
	} else {
		s.within(call.at - t.now)
	}
	if t.over && call.finish {
		s.within(last - t.now)
	}
}

// Sent says that the call of the last Step is on its way. It is waited for during CallBound.
func (m *Machine) Sent() Try {
	call := m.call
	call.tries++
	call.inFlight, call.at = true, m.term.now+CallBound
	return Try{call: call, number: call.tries}
}

// Waited is for how long the call of the last Step could have been sent.
func (m *Machine) Waited() time.Duration { return m.term.now - m.call.at }

// Awaits reports whether the try that was sent last is waited for.
func (m *Machine) Awaits() bool { return m.call != nil && m.call.inFlight }

// Answer takes what a call came back with.
func (m *Machine) Answer(try Try, reply store.TaskReply) {
	call := try.call
	if m.call != call { // it was answered, or given up
		return
	}
	m.call = nil
	if reply.Verdict != store.TaskFenced && reply.Verdict != store.TaskForeign && m.disputed < maxDisputed {
		m.note(Note{Kind: GoesOn})
	}
	if m.record.Due != "" && reply.Record.Due == "" {
		lost := m.record // in here: it is on the heap
		m.lost = &lost
	}
	m.changed, m.record = m.record != reply.Record, reply.Record
	if reply.Verdict == store.TaskFenced {
		m.refused(Fenced)
	}
	call.take(reply)
	m.heedCancel()
}

// Failed takes the failure of a try: nothing is known. The call is sent again after a while. It
// reports whether this try was still waited for.
func (m *Machine) Failed(try Try) (awaited bool) {
	call := try.call
	if m.call != call || !call.inFlight || call.tries != try.number {
		return false
	}
	m.unanswered(call)
	return true
}

// unanswered sets the next try.
func (m *Machine) unanswered(call *Call) {
	call.inFlight = false
	call.at = m.term.now + lease.Backoff(firstPause, call.tries, LongestPause)
}

// open takes the record over for this term. One that belongs to another role is asked for once
// more, by the name of that role's lease: it is free once nobody holds that.
func (m *Machine) open() {
	m.enqueue(&Call{
		Ask: store.TaskOpen{Token: m.term.Token, Lease: m.term.Lease, Other: m.other, Schedule: m.policy.Text, Jitter: m.policy.Jitter},
		take: func(reply store.TaskReply) {
			switch r := reply.Record; {
			case reply.Verdict == store.TaskOK:
				m.opened, m.checked, m.other = true, false, ""
				m.adopt(r)
			case reply.Verdict == store.TaskForeign && m.other != r.Lease:
				m.other = r.Lease
			case reply.Verdict == store.TaskForeign:
				m.other = ""
				m.refused(Foreign)
			}
		},
	})
}

// refused leaves a record alone that is not ours, and looks again later.
func (m *Machine) refused(why NoteKind) {
	m.opened, m.notBefore = false, m.term.now+LookEvery
	m.note(Note{Kind: why, Record: m.record})
}

// reopen reads the record again, which is not what it was: not at once, lest two that write there
// chase each other.
func (m *Machine) reopen() {
	m.opened, m.rerunOf = false, ""
	m.notBefore = m.term.now + lease.Backoff(reopenPause, m.moved+1, LongestPause)
	m.moved++
	if m.disputed++; m.changed {
		m.disputed = 0
	}
	if m.disputed >= maxDisputed {
		m.note(Note{Kind: Disputed})
	}
}

// agreed notes that the record was what it was read as.
func (m *Machine) agreed() {
	m.disputed = 0
	m.note(Note{Kind: GoesOn})
}

// adopt finds out whether a run was left behind: by another leader, or by this process, which then
// knows how it ended. The leader that wrote the record before is fenced by now.
func (m *Machine) adopt(r store.TaskRecord) {
	m.rerunOf = ""
	again := m.policy.Abandoned == AbandonedRerun
	switch {
	case m.run != nil: // of this very term
	case r.Run != "" && m.memory.knows(r.Run):
		end, _ := m.memory.endOf(r.Run)
		m.restate(end)
	case r.Run != "" && r.Run == r.Cancel:
		m.abandon(r, r.Run, store.RunCanceled, store.CanceledText)
	case r.Run != "" && again && r.Crashes+1 < MaxCrashes:
		m.rerunOf = r.Run
	case r.Run != "":
		m.abandon(r, r.Run, store.RunAbandoned, AbandonedText)
	case r.Status == store.RunReturned, r.Status == store.RunInterrupted && again:
		m.rerunOf = r.Done
	}
}

// abandon ends a run that its leader left behind, or that waits to be run again, and reports it.
func (m *Machine) abandon(r store.TaskRecord, run string, status store.RunState, text string) {
	m.finish(store.TaskFinish{Run: run, Status: status, Text: text}, func(reply store.TaskReply) {
		if reply.Verdict == store.TaskDone {
			m.note(Note{Kind: GivenUp, Record: r, Canceled: status == store.RunCanceled})
		}
	})
}

// What the record says of a run that is not run again: its leader left it behind, or has
// interrupted it.
const (
	AbandonedText = "tenure: its leader did not report its end"
	OutdatedText  = "tenure: its term ended, and it was too late to run it again"
)
