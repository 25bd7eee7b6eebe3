package schedule

import "github.com/tenure-go/tenure/internal/store"

// Retire says that the task is not to run here any more, though the term goes on. What is on goes
// on to its end. Nothing begins, and a run that waits for its next attempt is left to whoever
// leads with the task. The machine is done once it is not Busy.
func (m *Machine) Retire() { m.retired = true }

// over reports whether nothing may begin any more.
func (m *Machine) over() bool { return m.term.over || m.retired }

// Reschedule has the task go on by another policy, which differs in its schedule only. What an
// older schedule still answers counts for nothing.
func (m *Machine) Reschedule(p Policy) {
	m.policy, m.question = p, nil
	m.opened, m.checked, m.disabled = false, false, false
}

// Block says whether a run may begin now. If it may not, and one would, Wants is true until Block
// says that it may: what is due by then is decided about then.
func (m *Machine) Block(blocked bool) {
	m.blocked = blocked
	m.wants = m.wants && blocked
}

// Wants reports whether a run would begin but for Block.
func (m *Machine) Wants() bool { return m.wants }

// Runs reports whether a run is on, or is being claimed.
func (m *Machine) Runs() bool {
	if m.call == nil {
		return m.run != nil
	}
	_, claims := m.call.Ask.(store.TaskClaim)
	return m.run != nil || claims
}
