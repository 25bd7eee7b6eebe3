package schedule

import (
	"cmp"
	"math"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// Question is what a machine wants to know of the schedule of its task. Ask may take as long as the
// schedule does: it touches nothing of the machine, so that it may run aside if the machine was
// told with Asked. The answer goes to Answered, or to Broken.
type Question struct {
	policy Policy
	ask    func(*Policy)
	then   func()

	// What it was asked about.
	run   *run
	due   string
	began int64
}

// Ask asks. s is the schedule of the task, or one that wraps it.
func (q *Question) Ask(s Schedule) {
	q.policy.Schedule = s
	q.ask(&q.policy)
}

// consult asks the schedule of the task for something, and then goes on with the answer.
func (m *Machine) consult(s *Step, ask func(*Policy), then func()) {
	s.Question = &Question{policy: m.policy, ask: ask, then: then, run: m.run, due: m.record.Due, began: m.began}
}

// Asked says that a question of the last Step runs aside. Until its answer comes nothing else is
// decided.
func (m *Machine) Asked(q *Question) { m.question = q }

// Answered goes on with the answer, unless the task has moved on meanwhile: then stale is true, and
// nothing has changed.
func (m *Machine) Answered(q *Question) (stale bool) {
	if m.settled(q) {
		return true
	}
	q.then()
	return false
}

// Broken says that the schedule failed: the task is over for this term. See Answered for stale.
func (m *Machine) Broken(q *Question) (stale bool) {
	if m.settled(q) {
		return true
	}
	m.disabled = true
	return false
}

func (m *Machine) settled(q *Question) bool {
	if m.question == q {
		m.question = nil
	}
	return m.over() || q.policy.Spec != m.policy.Spec || m.call != nil || m.run != q.run || m.record.Due != q.due || m.began != q.began
}

// plan gives the record its next slot by the schedule of this process.
func (m *Machine) plan(s *Step, redis int64) {
	from, spec := m.record, m.policy.Spec
	if from.Due == "" && m.lost != nil && m.lost.Follows(spec) {
		from = *m.lost // while we led
	}
	var next int64
	m.consult(s, func(p *Policy) { next = p.replan(from, redis) }, func() {
		m.checked = true
		if next == m.record.Next && m.record.Due != "" && m.record.Follows(spec) {
			return
		}
		p := store.TaskPlan{Expect: m.record.Due, Next: next, Spec: m.record.ChangedTo(spec, next, redis)}
		if m.record.Due == "" { // what else is worth keeping
			p.Skipped, p.Paused, p.Pause = max(from.Skipped-m.record.Skipped, 0), from.Paused, from.Pause
		}
		m.move(p, slotPlan{})
	})
}

// due decides about the slots that are due, and carries it out.
func (m *Machine) due(s *Step, redis int64) {
	at := slotState{first: m.record.Next, now: redis, running: m.run != nil, began: m.began, lastEnded: m.lastEnded, backlog: m.backlog}
	var d slotPlan
	m.consult(s, func(p *Policy) { d = p.decide(at) }, func() { m.settle(d, redis) })
}

// owed decides about a slot that is due under the schedule that the record still has.
func (m *Machine) owed(s *Step, redis int64) {
	from := m.record
	var d slotPlan
	m.consult(s, func(p *Policy) { d = p.owed(from, redis) }, func() { m.settle(d, redis) })
}

// settle claims what was decided, or moves on without a run.
func (m *Machine) settle(d slotPlan, redis int64) {
	known := m.memory.passed(d.slot, redis, m.term.now) && (!m.memory.ended || m.memory.of != d.slot) // the record is older than what this process has run
	if d.run && !known {
		m.claim(d, store.ClaimSlot, m.record.Due)
		return
	}
	m.move(store.TaskPlan{Expect: m.record.Due, Next: d.next, Spec: m.record.Under(m.policy.Spec), Skipped: int64(d.skipped)}, d)
}

// rerun runs again what another leader has left behind, unless Missed asks for no run of its slot
// by now. If it is due only after a while, only that is looked at, once in LookEvery. It is given
// up by what the record says then: in a pause, of which its leader may not have heard, it waits.
func (m *Machine) rerun(s *Step, redis int64, due time.Duration) {
	from, outdated := m.record, false
	m.consult(s, func(p *Policy) { outdated = p.outdated(from, redis) }, func() {
		asked := m.asked
		m.asked = outdated && !asked
		switch {
		case m.asked:
			m.read(store.TaskRead{})
			return
		case outdated:
		case due > 0:
			m.notBefore = m.term.now + min(due, LookEvery)
			return
		default:
			m.claim(slotPlan{}, store.ClaimAgain, m.rerunOf)
			return
		}
		left, text := m.rerunOf, AbandonedText
		if from.Run == "" {
			text = OutdatedText
		}
		m.rerunOf = ""
		m.skipped(slotPlan{skipped: 1, first: from.Scheduled})
		m.abandon(from, left, store.RunAbandoned, text)
	})
}

// passPause lets the slots pass that began during the last pause.
func (m *Machine) passPause(s *Step) {
	from, at := m.record, m.record.ResumedAt-1
	owes := m.owes(at)
	if !owes && !m.planned() {
		m.plan(s, at)
		return
	}
	var next int64
	m.consult(s, func(p *Policy) {
		if owes {
			next = p.owed(from, at).next
		} else {
			next = p.passed(from.Next, at)
		}
	}, func() {
		m.move(store.TaskPlan{Expect: m.record.Due, Next: next, Spec: m.record.Under(m.policy.Spec)}, slotPlan{})
	})
}

// wasPaused reports whether the slot that is due began during the last pause, which is over.
// Nobody has let it pass then: no leader has looked, or the task could not begin for another
// reason. A pause that ends in the future was noted before Redis's clock was set back.
func (m *Machine) wasPaused(redis int64) bool {
	r := &m.record
	if r.Next == 0 || r.PausedAt == 0 || r.ResumedAt == 0 || r.ResumedAt > redis {
		return false
	}
	starts := m.policy.start(r.Next)
	return r.PausedAt <= starts && starts < r.ResumedAt
}

// move moves the next slot without a run.
func (m *Machine) move(p store.TaskPlan, d slotPlan) {
	p.Token = m.term.Token
	changed := m.record.Due != "" && !m.record.Follows(m.policy.Spec)
	m.enqueue(&Call{
		Ask: p,
		take: func(reply store.TaskReply) {
			switch reply.Verdict {
			case store.TaskOK:
				m.agreed()
				if changed {
					m.note(Note{Kind: Changed, Slot: p.Next})
				}
				m.skipped(d)
			case store.TaskMoved:
				m.reopen()
			}
		},
	})
}

// claim claims a run, with one ID for as long as it takes to get an answer.
func (m *Machine) claim(d slotPlan, kind, expect string) {
	if m.blocked {
		m.wants = true
		return
	}
	c := store.TaskClaim{
		Token: m.term.Token, Run: m.term.NewRun(), Kind: kind, Expect: expect, Slot: d.slot, Next: d.next, Spec: cmp.Or(d.spec, m.record.Under(m.policy.Spec)),
		Instance: m.term.Instance, Skipped: d.skipped, Attempt: 1, Pauses: m.record.Pauses,
	}
	switch {
	case kind == store.ClaimAgain && m.record.Status == store.RunReturned:
		c.Attempt = max(m.record.Attempt, 1) // it has not begun
	case kind == store.ClaimAgain:
		c.Attempt = m.record.Attempt + 1
	}
	trigger := m.record.TriggerID()
	if run := m.memory.repeats(c, trigger, m.term.redis(), m.term.now); run != "" {
		c.Run = run // Redis has lost it: it is claimed to be ended at once, see claimed
	}
	m.enqueue(&Call{
		Ask: c,
		give: func() {
			if !m.memory.knows(c.Run) {
				m.giveBack(c.Run)
			}
		},
		take: func(reply store.TaskReply) {
			if reply.Verdict == store.TaskExpired {
				m.note(Note{Kind: Expired, Run: trigger})
				return
			}
			m.claimed(c, d, reply)
		},
	})
}

// claimed starts the run that was claimed.
func (m *Machine) claimed(c store.TaskClaim, d slotPlan, reply store.TaskReply) {
	switch reply.Verdict {
	case store.TaskEarly:
		if early := store.Milliseconds(c.Slot - reply.Now); early < SlotStep {
			m.notBefore = m.term.now + early // our estimate was ahead; now it is not
		} else {
			m.checked, m.notBefore = false, m.term.now+reopenPause // Redis's clock was set back
		}
		return
	case store.TaskPaused:
		switch c.Kind {
		case store.ClaimAgain:
			m.notBefore = m.term.now + LookEvery // it waits until it may; the slots of the pause pass then
		case store.ClaimTrigger:
			m.triggerHeld = m.term.now + LookEvery
			return
		}
		m.runOnElection = m.runOnElection && c.Kind == store.ClaimSlot
		return
	case store.TaskMoved:
		m.reopen()
		return
	case store.TaskClaimed:
	default: // nothing was granted
		return
	}
	m.rerunOf, m.moved = "", 0
	m.runOnElection = m.runOnElection && c.Kind == store.ClaimTrigger
	m.agreed()
	queued := m.policy.Overlap == OverlapQueue && !m.late && m.record.Next > m.began && m.record.Next <= m.lastEnded // during the run before
	if c.Kind != store.ClaimTrigger || !queued {
		m.began = reply.Record.Started
	}
	m.backlog = d.backlog
	if c.Kind != store.ClaimSlot && c.Kind != store.ClaimTrigger {
		m.backlog = backlog{late: true, lag: math.MaxInt64}
	}
	m.skipped(d)
	if end, known := m.memory.endOf(c.Run); known {
		m.restate(end)
		return
	}
	m.memory.claimed(c, reply.Now, m.term.now)
	m.run = &run{
		id: c.Run, slot: reply.Record.Scheduled, first: c.Attempt, attempt: c.Attempt, failed: reply.Record.Failures,
		trigger: reply.Record.RunTrigger, args: reply.Record.Args,
	}
	m.start()
}

// skipped reports slots that were passed over. Those of one run that is on are looked at once a
// minute from the first on, and reported when it ends: a run that hangs must not flood Redis and
// the log.
func (m *Machine) skipped(d slotPlan) {
	if d.skipped == 0 {
		return
	}
	if r := m.run; r != nil {
		before := r.quiet
		r.quiet = m.term.now + LookEvery
		if before != 0 {
			if r.passed == 0 {
				r.firstPassed = d.first
			}
			r.passed += d.skipped
			return
		}
	}
	m.note(Note{Kind: Skipped, Slot: d.first, Count: d.skipped})
}
