package main

const (
	schedulePkg = "internal/schedule"
	machine     = "internal/schedule/machine.go"
	calls       = "internal/schedule/machine_calls.go"
	plans       = "internal/schedule/machine_slots.go"
	attempts    = "internal/schedule/machine_run.go"
	simulator   = "internal/proof/sim"
)

// machines break what schedule.Machine decides about a task in a term.
var machines = []bug{
	{name: "jitter not waited for", in: simulator, test: "TestTasksUnderFaults", breaks: "all tasks of all services start in the same second", file: machine,
		old: "starts := t.Clock.Until(m.record.Next, t.now) + delay // the next slot", new: "starts := t.Clock.Until(m.record.Next, t.now)"},
	{name: "retry at once", in: schedulePkg, test: "TestMachineRetries", breaks: "a task that fails is hammered", file: attempts,
		old: "case m.term.Clock.Until(r.retryAt, m.term.now) > 0:", new: "case false:"},
	{name: "one attempt too many", in: schedulePkg, test: "TestMachineRetries", breaks: "a task is tried more often than it may be", file: attempts,
		old: "case e.Final, m.run.failed >= m.policy.Attempts,", new: "case e.Final, m.run.failed > m.policy.Attempts,"},
	{name: "attempts over at a hand-over", in: schedulePkg, test: "TestMachineFailsAfterItsTerm", breaks: "a hand-over between two attempts fails the run", file: attempts,
		old: "m.returned(Retried, pause)\n\t\tm.end(store.RunInterrupted, pause)", new: "m.returned(Retried, pause)\n\t\tm.end(store.RunFailed, pause)"},
	{name: "attempts over at a fenced retry", in: schedulePkg, test: "TestMachineRetryIsFenced", breaks: "a failover that loses a run loses the attempts that it had left", file: attempts,
		old: "case store.TaskFenced:\n\t\t\t\tm.leave()", new: "case store.TaskFenced:\n\t\t\t\tm.end(store.RunFailed, 0)"},
	{name: "rerun of what is to fail", in: schedulePkg, test: "TestMachineAbandoned", breaks: "a task that must not run twice does", file: calls,
		old: "case r.Run != \"\" && again && r.Crashes+1 < MaxCrashes:", new: "case r.Run != \"\" && r.Crashes+1 < MaxCrashes:"},
	{name: "poison run for ever", in: schedulePkg, test: "TestMachinePoison", breaks: "a task kills one leader after the other", file: calls,
		old: "case r.Run != \"\" && again && r.Crashes+1 < MaxCrashes:", new: "case r.Run != \"\" && again:"},
	{name: "run on election again and again", in: schedulePkg, test: "TestMachineRunsOnElection", breaks: "a task that is to run once a term never stops", file: plans,
		old: "m.runOnElection = m.runOnElection && c.Kind == store.ClaimTrigger", new: "m.runOnElection = m.runOnElection && c.Kind != \"\""},
	{name: "queued slot passed over", in: schedulePkg, test: "TestMachineOverlap", breaks: "what came due during a run is lost though it is to wait", file: machine,
		old: "|| m.late || m.policy.Overlap == OverlapQueue\n", new: "|| m.late\n"},
	{name: "attempt numbers repeat", in: simulator, test: "TestTasksUnderFaults", breaks: "two attempts of a slot cannot be told apart", file: plans,
		old: "c.Attempt = m.record.Attempt + 1", new: "c.Attempt = max(m.record.Attempt, 1)"},
	{name: "attempt that did not begin counted", in: schedulePkg, test: "TestMachineTermEndsBeforeAnAttempt", breaks: "the first attempt of a slot has number 2", file: plans,
		old: "case kind == store.ClaimAgain && m.record.Status == store.RunReturned:", new: "case false:"},
	{name: "attempt that did not begin ends the run", in: schedulePkg, test: "TestMachineTermEndsBeforeAnAttempt", breaks: "the record shows an attempt that nobody made", file: attempts,
		old: "\t\tr.attempt--\n", new: ""},
	{name: "stale answer of a schedule", in: schedulePkg, test: "TestMachineSchedule", breaks: "a slot of another record is claimed", file: plans,
		old: "return m.over() || q.policy.Spec != m.policy.Spec || m.call != nil || m.run != q.run || m.record.Due != q.due || m.began != q.began", new: "return m.term.over"},
	{name: "broken schedule asked again", in: schedulePkg, test: "TestMachineSchedule", breaks: "a schedule that panics does so in a loop", file: plans,
		old: "\tm.disabled = true\n", new: ""},
	{name: "end of a run told for ever", in: schedulePkg, test: "TestMachineEndOfTheTerm", breaks: "Run does not return while Redis is away", file: calls,
		old: "if t.over && t.now >= last && call.finish {", new: "if t.over && t.now < 0 {"},
	{name: "claims after the term", in: schedulePkg, test: "TestMachineEndOfTheTerm", breaks: "a leader that was deposed goes on to ask for slots", file: calls,
		old: "if m.over() && !call.finish && !(reads && m.cancelable()) {", new: "if reads && false {"},
	{name: "slot behind a rerun that was canceled", in: schedulePkg, test: "TestMachineCancel", breaks: "after Cancel a slot that is due waits for up to a minute", file: machine,
		old: "m.notBefore > t.now && !(m.news && m.opened)", new: "m.notBefore > t.now"},
	{name: "end of a run behind a read that hangs", in: schedulePkg, test: "TestMachineCancel", breaks: "a hand-over waits for an answer that nobody needs", file: calls,
		old: "!(reads && m.cancelable())", new: "!reads"},
	{name: "call of a task waited for without bound", in: schedulePkg, test: "TestMachineSilence", breaks: "one call that hangs stops its task", file: calls,
		old: "if call.inFlight && t.now >= call.at {", new: "if false {"},
	{name: "late answer of a task dropped", in: schedulePkg, test: "TestMachineSilence", breaks: "behind a slow Redis nothing is ever known", file: calls,
		old: "if m.call != call { // it was answered", new: "if m.call != call || call.tries != try.number { // it was answered"},
	{name: "reply of a held-up request taken for a step", in: "internal/lease", test: "TestLateAnswerIsNoStep", breaks: "one request that is held up makes tasks start seconds early", file: "internal/lease/redisclock.go",
		old: "next.spread+c.spread+between/100+2*time.Millisecond", new: "next.spread+doubt+0*between+2*time.Millisecond"},
	{name: "due tasks out of order", in: "internal/agenda", test: "TestAgenda", breaks: "a task waits for another one's time", file: "internal/agenda/agenda.go",
		old: "if child.at >= e.at {", new: "if child.at >= 0 {"},
	{name: "catch-up without a bound", in: schedulePkg, test: "TestSlotDecisions", breaks: "after an outage a task runs thousands of times", file: "internal/schedule/policy.go",
		old: "MaxCatchUp: p.MaxCatchUp,", new: "MaxCatchUp: p.MaxCatchUp * MaxSteps,"},
	{name: "task not touched when its time comes", test: "TestJitter", breaks: "a task whose slot is due waits for something else to happen", file: "tasks_loop.go",
		old: "wait = min(wait, l.shared.Clock.Until(at, l.now))", new: "_ = at"},
}
