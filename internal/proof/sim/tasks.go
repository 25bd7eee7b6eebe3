package sim

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// scheduler drives a schedule.Machine for each task during one term, as the loop of package tenure
// does.
type scheduler struct {
	term   *schedule.Term // nil: none yet
	on     bool
	tasks  []taskTurn
	serial int32         // of attempts, over all terms of a life
	runs   int           // likewise, of runs that were claimed
	lookAt time.Duration // a record is looked at
	forgot bool          // Redis may have forgotten what the term has written
	memory [numJobs]schedule.Memory
}

// taskTurn is a task while its process leads.
type taskTurn struct {
	machine  *schedule.Machine
	timer    time.Duration // the youngest one
	strayed  bool          // no answer to what it asks will come in time
	attempt  schedule.Attempt
	active   bool   // it has not returned
	serial   int32  // of the attempt
	canceled string // the run that was to end last
	tainted  bool   // its process stood still while it was on: it could not heed the end of its context
	began    time.Duration
}

// question is what is asked about a task.
type question struct {
	task   int
	term   *schedule.Term // that asked
	ask    any            // see schedule.Call
	try    schedule.Try
	sent   time.Duration
	record oracle.Record // in the answer
	others []int         // likewise: tasks of which a trigger waits
}

// lookTask is the task of the timer that looks at a record.
const lookTask = -1

// start opens every task for the term.
func (s *scheduler) start(p *instance) {
	s.term = &schedule.Term{
		Token: p.cand.Token(), Instance: p.id, Random: p.cluster.rand.Float64,
		NewRun: func() string {
			s.runs++
			return p.id + strconv.Itoa(int(p.life)) + "-" + strconv.Itoa(s.runs)
		},
	}
	s.on = true
	jobs := p.cluster.jobs
	s.tasks, s.forgot = make([]taskTurn, len(jobs)), false
	s.term.Tick(p.local())
	for i := range jobs {
		policy := *jobs[i].of(p.host)
		if p.cluster.broken.RerunsAll {
			policy.Abandoned = schedule.AbandonedRerun
		}
		s.tasks[i].machine = schedule.NewMachine(policy, s.term, &s.memory[i])
	}
	for i := range jobs {
		p.step(i)
	}
	p.lookAgain(schedule.LookEvery)
}

// over ends the runs: they heed their context.
func (s *scheduler) over(p *instance) {
	if s.term == nil {
		return
	}
	s.on = false
	for i := range s.tasks {
		if t := &s.tasks[i]; t.active {
			p.returns(i, p.cluster.between(0, 40*time.Millisecond))
		}
		p.step(i)
	}
}

// busy: a run is on, or its end is being recorded.
func (s *scheduler) busy() bool {
	for i := range s.tasks {
		if s.tasks[i].machine.Busy() {
			return true
		}
	}
	return false
}

// runsDie ends them with their process.
func (p *instance) runsDie() {
	for i := range p.cluster.jobs {
		if p.cluster.checks.running[i] == p {
			p.cluster.checks.running[i] = nil
		}
	}
}

// task is the timer of a task going off. After a freeze it is late.
func (p *instance) task(i int32, at time.Duration) {
	s := &p.scheduler
	switch {
	case s.term == nil:
	case i == lookTask && at >= s.lookAt: // else it is of an earlier term
		p.lookAtClock()
	case i == lookTask:
	case at >= s.tasks[i].timer:
		p.step(int(i))
	}
}

// lookAtClock reads the record that is due next, once in schedule.LookEvery. The answer names the
// tasks of which a trigger waits.
func (p *instance) lookAtClock() {
	s := &p.scheduler
	s.term.Tick(p.local())
	if over, _ := s.term.Over(); over {
		return
	}
	if s.forgot {
		s.forgot = false
		for i := range s.tasks {
			p.news(i)
		}
	}
	first := -1
	for i := range s.tasks {
		next := s.tasks[i].machine.Next()
		switch {
		case first < 0 && (next != 0 || s.tasks[i].machine.Looks()), next != 0 && s.tasks[first].machine.Next() == 0, next != 0 && next < s.tasks[first].machine.Next():
			first = i
		}
	}
	if first < 0 {
		p.lookAgain(schedule.CallBound)
		return
	}
	p.lookAgain(schedule.LookEvery)
	s.tasks[first].machine.Look("")
	p.step(first)
}

func (p *instance) lookAgain(after time.Duration) {
	p.scheduler.lookAt = p.cluster.now + after
	p.wake(lookTask, p.scheduler.lookAt)
}

// news has the machine of a task read its record.
func (p *instance) news(i int) {
	p.scheduler.tasks[i].machine.News()
	p.step(i)
}

// step takes one task as far as it goes without waiting.
func (p *instance) step(i int) {
	s, c := &p.scheduler, p.cluster
	t := &s.tasks[i]
	s.term.Tick(p.local())
	if !s.on || !p.believes() {
		s.term.End()
	}
	for {
		next := t.machine.Step()
		p.heed(i)
		if q := next.Question; q != nil {
			q.Ask(c.jobs[i].of(p.host).Schedule)
			t.machine.Answered(q)
			p.heed(i)
			continue
		}
		if next.Call != nil {
			p.ask(i, next.Call)
			return
		}
		if t.machine.Calling() != nil && !t.strayed {
			return // the answer comes, or it strays
		}
		wait := next.Wait
		if next.Due != 0 {
			wait = min(wait, s.term.Clock.Until(next.Due, p.local()))
		}
		if wait > 0 {
			t.timer = c.now + wait
			p.wake(i, t.timer)
			return
		}
	}
}

func (p *instance) wake(i int, at time.Duration) {
	p.cluster.queue.push(event{at: max(at, p.cluster.now), what: evTask, host: p.host, life: p.life, arg: int32(i)})
}

// heed carries out what the machine of a task wants.
func (p *instance) heed(i int) {
	t := &p.scheduler.tasks[i]
	for n := range t.machine.Take() {
		switch n.Kind {
		case schedule.Start:
			t.attempt = n.Attempt
			p.attempt(i)
		case schedule.Cancel:
			p.cluster.Tally.Cancels++
			t.canceled = n.Run
			p.returns(i, p.cluster.between(0, 40*time.Millisecond))
		}
	}
}

// attempt starts an attempt. The last step before is to look at the term (P10).
func (p *instance) attempt(i int) {
	s, c := &p.scheduler, p.cluster
	t := &s.tasks[i]
	s.serial++
	t.active, t.tainted, t.serial, t.began = true, false, s.serial, c.now
	if !s.on || !p.believes() {
		t.serial = -t.serial // it does not start
		p.returns(i, 0)
		return
	}
	c.checks.starts(p, i, t.attempt)
	c.Tally.TaskRuns++
	p.returns(i, c.between(0, c.jobs[i].takes))
}

// returns has the attempt that is on return after a while, if it does not do so before.
func (p *instance) returns(i int, after time.Duration) {
	serial := p.scheduler.tasks[i].serial
	c := p.cluster
	c.queue.push(event{at: c.now + after, what: evRunEnds, host: p.host, life: p.life, arg: int32(i), serial: serial})
}

// runEnds: the task has returned, by itself or because its context is done.
func (p *instance) runEnds(i, serial int32) {
	s, c := &p.scheduler, p.cluster
	if s.term == nil {
		return
	}
	t := &s.tasks[i]
	if !t.active || t.serial != serial {
		return
	}
	t.active = false
	end := schedule.End{Started: serial > 0, Took: c.now - t.began, Cut: !s.on, Over: !s.on || !p.believes()}
	switch {
	case !end.Started:
		end.Failed = true
	case end.Cut, t.canceled == t.attempt.Run, c.rand.Float64() < c.jobs[i].fails:
		end.Failed, end.Text = true, "bad"
		switch asks := c.jobs[i].asks; {
		case !asks:
		case c.rand.IntN(8) == 0:
			end.Final = true
		case c.rand.IntN(4) == 0:
			end.In = c.between(10*time.Millisecond, max(c.jobs[i].policy.MaxBackoff, 20*time.Millisecond))
		}
	}
	if c.checks.running[i] == p {
		c.checks.running[i] = nil
	}
	c.checks.returned(i, t.attempt, end)
	s.term.Tick(p.local())
	t.machine.Ended(end)
	p.heed(int(i))
	p.step(int(i))
}

// taint marks the runs of a process that stands still.
func (p *instance) taint() {
	for i := range p.scheduler.tasks {
		p.scheduler.tasks[i].tainted = true
	}
}

// ask sends a call.
func (p *instance) ask(i int, call *schedule.Call) {
	t := &p.scheduler.tasks[i]
	t.strayed = false
	p.send(message{about: aboutTask, task: &question{task: i, term: p.scheduler.term, ask: call.Ask, try: t.machine.Sent(), sent: p.local()}})
}

// callStrays: the answer to a call will not come in time.
func (p *instance) callStrays(q *question) {
	if s := &p.scheduler; q.term == s.term {
		t := &s.tasks[q.task]
		t.strayed, t.timer = true, p.cluster.now
		p.wake(q.task, t.timer)
	}
}

// takeQuestion runs the script of a question.
func (c *Cluster) takeQuestion(server *machine, p *instance, m *message, now int64) {
	q := m.task
	record := &server.tasks[q.task]
	before := record.Record
	switch ask := q.ask.(type) {
	case store.TaskOpen:
		m.verdict = record.Open(ask.Token, ask.Lease, false)
	case store.TaskPlan:
		if c.broken.FreshGrid {
			record.Next = ask.Expect
		}
		m.verdict = record.Plan(ask.Token, ask.Expect, strconv.FormatInt(ask.Next, 10), ask.Spec, ask.Skipped, ask.Paused, ask.Pause)
	case store.TaskClaim:
		if c.broken.ClaimsBlindly {
			record.Next, record.Spec = ask.Expect, ask.Spec
		}
		m.verdict = record.Claim(now, oracle.Claim{
			Token: ask.Token, Run: ask.Run, Kind: ask.Kind, Expect: ask.Expect, Slot: ask.Slot, Next: strconv.FormatInt(ask.Next, 10), Spec: ask.Spec,
			Instance: ask.Instance, Skipped: int64(ask.Skipped), Attempt: int64(ask.Attempt), Pauses: ask.Pauses,
		})
	case store.TaskRetry:
		m.verdict = record.Retry(now, ask.Token, ask.Run, int64(ask.Attempt), int64(ask.Failures), ask.In.Milliseconds())
	case store.TaskFinish:
		m.verdict = record.Finish(now, ask.Token, ask.Run, string(ask.Status), ask.Text, int64(ask.Attempt), int64(ask.Failures), max(ask.RetryIn, 0).Milliseconds())
	case store.TaskRead:
		m.verdict = "ok"
		for i := range c.jobs {
			if other := &server.tasks[i].Record; ask.Triggers && (other.Trigger != "" || other.Run != "" && other.Cancel == other.Run) {
				q.others = append(q.others, i)
			}
		}
	}
	q.record = record.Record
	record.History = nil // nothing is decided by it
	if server == c.master {
		c.checks.question(p, q, m.verdict, &before, now)
	}
	if _, opens := q.ask.(store.TaskOpen); opens && c.broken.FreshGrid {
		q.record.Next, q.record.Spec = "", ""
	}
	if c.trace != nil {
		c.note("%s about task %s: %T: %s; next %s run %q token %d", p.id, c.jobs[q.task].policy.Name, q.ask, m.verdict, record.Next, record.Run, record.Token)
	}
}

// told takes the answer to a question.
func (p *instance) told(m *message) {
	s, q := &p.scheduler, m.task
	if q.term != s.term {
		return // of an earlier term
	}
	t, now := &s.tasks[q.task], p.local()
	s.term.Tick(now)
	if m.failed {
		t.machine.Failed(q.try)
		t.strayed = true // asks again, after a while
	} else {
		if by := s.term.Clock.Learn(q.sent, now, m.clock); max(by, -by) >= schedule.SlotStep {
			for i := range s.tasks {
				s.tasks[i].machine.Stepped(by)
				p.wake(i, p.cluster.now)
				s.tasks[i].timer = p.cluster.now
			}
		}
		t.machine.Answer(q.try, store.TaskReply{Verdict: m.verdict, Now: m.clock, Record: recordOf(&q.record)})
		t.strayed = t.strayed && t.machine.Calling() != nil
	}
	p.heed(q.task)
	p.step(q.task)
	for _, other := range q.others {
		p.news(other)
	}
}

// recordOf is a record as the store hands it out.
func recordOf(r *oracle.Record) store.TaskRecord {
	since, until, _ := strings.Cut(r.LastPause, " ")
	return store.TaskRecord{
		Due: r.Next, Next: store.Natural(r.Next), Spec: r.Spec, Token: r.Token, Run: r.Run, Done: r.Done, Status: store.RunState(r.Status),
		Scheduled: r.Scheduled, Started: r.Started, Finished: r.Finished, Attempt: int(r.Attempt), Crashes: int(r.Crashes), Skipped: r.Skipped,
		Paused: r.Paused, Instance: r.Instance, RunToken: r.RunToken, Text: r.Error, Failures: int(r.Failures), RetryAt: r.RetryAt, RetryIn: r.RetryIn, LastSuccess: r.Success, FailedRuns: int(r.Failed), Pause: r.Why, Cancel: r.Cancel, Lease: r.Lease,
		Pauses: r.Pauses, PausedAt: store.Natural(since), ResumedAt: store.Natural(until), Trigger: r.Trigger, RunTrigger: r.RunOf, Args: r.Args, TriggerRuns: r.Triggers,
	}
}

// trigger is an operator who has a task run, with the ID of the trigger as its arguments. Half of
// the hints are lost.
func (c *Cluster) trigger() {
	i := c.operator.IntN(len(c.jobs))
	c.triggers++
	id, now := "t"+strconv.Itoa(c.triggers), c.master.clock(c.now)
	wait := time.Duration(10+c.operator.IntN(3600)) * time.Second
	if c.master.tasks[i].Trigger(now, id, id, "operator", now, wait.Milliseconds(), c.operator.IntN(2) == 0, c.master.tasks[i].Triggers) != "ok" {
		return
	}
	c.checks.tasks[i].triggered = now
	if c.operator.IntN(2) != 0 {
		c.taskHint(i)
	}
}

// cancel is an operator who ends a run. Half of the hints are lost.
func (c *Cluster) cancel() {
	i := c.operator.IntN(len(c.jobs))
	r := &c.master.tasks[i]
	run := cmp.Or(r.Run, r.Done)
	if run == "" || r.Cancel(c.master.clock(c.now), run, store.CanceledText) != "ok" {
		return
	}
	c.checks.cancels(i, run)
	if c.operator.IntN(2) == 0 {
		c.taskHint(i)
	}
}

// taskHint has all who lead look at a task.
func (c *Cluster) taskHint(i int) {
	for _, p := range c.instances {
		if !p.down && c.now >= p.frozen && p.scheduler.term != nil && p.scheduler.on {
			p.news(i)
		}
	}
}

// pause is an operator who pauses a task, or lets it go on, triggers some and ends runs.
func (c *Cluster) pause() {
	if c.operator == nil {
		return
	}
	c.trigger()
	if c.jobs[0].asks && c.operator.IntN(4) == 0 {
		c.cancel()
	}
	if i := c.operator.IntN(len(c.jobs)); !c.sound() {
		c.setPaused(i, !c.master.tasks[i].Paused)
	} else {
		for i := range c.jobs {
			if c.master.tasks[i].Paused {
				c.setPaused(i, false)
				c.disturb(c.now)
			}
		}
	}
	c.queue.push(event{at: c.now + time.Duration(c.operator.ExpFloat64()*float64(20*c.profile.Every)), what: evPause})
}

func (c *Cluster) setPaused(i int, paused bool) {
	t := &c.master.tasks[i]
	t.Pause(c.master.clock(c.now), paused, t.Pauses, "operator")
	if !paused {
		c.checks.tasks[i].resumed = c.now
	}
}
