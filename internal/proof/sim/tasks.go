package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/cron"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/schedule"
)

// tasks are what every cluster runs: the three policies, with a fixed interval and with the
// calendar. A run that its leader left behind is run again.
var tasks = []struct {
	name  string
	rules schedule.Rules
	takes time.Duration
}{
	{"all", schedule.Rules{Schedule: schedule.Every(10 * time.Minute), Missed: schedule.RunAll}, 20 * time.Second},
	{"once", schedule.Rules{Schedule: schedule.Every(time.Hour), Missed: schedule.RunOnce}, time.Minute},
	{"skip", schedule.Rules{Schedule: schedule.Every(25 * time.Second), Missed: schedule.SkipMissed}, 3 * time.Second},
	{"daily", schedule.Rules{Schedule: mustParse("30 3 * * *"), Missed: schedule.RunOnce}, 5 * time.Minute},
	{"quick", schedule.Rules{Schedule: schedule.Every(2 * time.Minute), Missed: schedule.RunAll}, time.Second},
}

func mustParse(spec string) schedule.Schedule {
	parsed, err := cron.Parse(spec)
	if err != nil {
		panic(err) // it is a constant
	}
	return parsed
}

const (
	taskSpec   = "spec"
	taskBound  = 3 * time.Second // a question is waited for
	maxCrashes = 3
)

// scheduler runs the tasks of one term.
type scheduler struct {
	term   int64 // token; 0: none yet
	on     bool
	number int32 // of questions
	clock  int64 // Redis's at the local time at
	at     time.Duration
	known  bool
	tasks  [5]taskTurn
}

// taskTurn is a task while its process leads.
type taskTurn struct {
	opened, off bool
	planned     bool // this term
	record      oracle.Record
	again       string        // run that another leader left behind
	rest        time.Duration // nothing is decided before
	asking      question      // what is being asked; op 0: nothing
	until       time.Duration // for so long
	tries       int
	run         taskRun
}

// taskRun is one execution.
type taskRun struct {
	id      string
	active  bool
	ended   bool // its end is to be told
	tainted bool // its process stood still while it was on: it could not heed the end of its context
	status  string
}

// question is what is asked about a task.
type question struct {
	op     op
	task   int
	number int32
	token  int64
	claim  oracle.Claim
	expect string // of a plan
	next   string
	skip   int64
	reset  bool   // the grid begins anew
	run    string // of a finish
	status string
	record oracle.Record // in the answer
}

type op uint8

const (
	_ op = iota
	opOpen
	opPlan
	opClaim
	opFinish
)

// start opens every task for the term.
func (s *scheduler) start(p *instance) {
	*s = scheduler{term: p.cand.Token(), on: true, number: s.number}
	for i := range tasks {
		p.step(i)
	}
}

// over ends the runs: they heed their context.
func (s *scheduler) over(p *instance) {
	s.on = false
	for i := range s.tasks {
		if s.tasks[i].run.active {
			p.cluster.queue.push(event{at: p.cluster.now + p.cluster.between(0, 40*time.Millisecond), what: evRunEnds, host: p.host, life: p.life, arg: int32(i)})
		}
	}
}

// busy: a run is on, or its end is being told.
func (s *scheduler) busy() bool {
	for i := range s.tasks {
		if s.tasks[i].run.active || s.tasks[i].asking.op == opFinish {
			return true
		}
	}
	return false
}

// runsDie ends them with their process.
func (p *instance) runsDie() {
	for i := range tasks {
		if p.cluster.checks.running[i] == p {
			p.cluster.checks.running[i] = nil
		}
	}
}

// redisNow estimates Redis's clock.
func (p *instance) redisNow() int64 {
	s := &p.scheduler
	return s.clock + (p.cluster.now + p.mono - s.at).Milliseconds()
}

// task is the timer of a task going off.
func (p *instance) task(i int32) { p.step(int(i)) }

// step takes one task as far as it goes without waiting, as the loop of package tenure does.
func (p *instance) step(i int) {
	s, t, c := &p.scheduler, &p.scheduler.tasks[i], p.cluster
	if t.asking.op != 0 {
		switch {
		case c.now < t.until:
		case !s.on && (t.asking.op != opFinish || t.tries > 2): // the next leader finds it
			t.asking = question{}
			if t.run.ended {
				t.run = taskRun{}
			}
		default:
			p.ask(i, t.asking)
		}
		return
	}
	switch {
	case t.run.ended:
		p.ask(i, question{op: opFinish, run: t.run.id, status: t.run.status})
	case !s.on || t.off || t.run.active || !p.believes():
	case t.rest > c.now:
		p.wake(i, t.rest)
	case !t.opened:
		p.ask(i, question{op: opOpen})
	case t.record.Next == "" || t.record.Spec != taskSpec || c.broken.FreshGrid && !t.planned:
		t.planned = true
		next := schedule.First(tasks[i].rules, time.UnixMilli(p.redisNow()))
		p.ask(i, question{op: opPlan, expect: t.record.Next, next: strconv.FormatInt(next.UnixMilli(), 10), reset: t.record.Next == ""})
	case t.again != "":
		p.ask(i, question{op: opClaim, claim: oracle.Claim{Kind: "again", Expect: t.again, Attempt: t.record.Attempt + 1}})
	default:
		p.due(i)
	}
}

// due decides about the slots that are due.
func (p *instance) due(i int) {
	t, now := &p.scheduler.tasks[i], p.redisNow()
	next, _ := strconv.ParseInt(t.record.Next, 10, 64)
	d := schedule.Due(tasks[i].rules, time.UnixMilli(next), time.UnixMilli(now))
	if !d.Run && !d.Reset && d.Next.UnixMilli() == next {
		p.wake(i, p.cluster.now+d.Wait)
		return
	}
	after := strconv.FormatInt(d.Next.UnixMilli(), 10)
	if d.Run {
		p.ask(i, question{op: opClaim, claim: oracle.Claim{
			Kind: "slot", Expect: t.record.Next, Slot: d.Slot.UnixMilli(), Next: after, Skipped: int64(d.Skipped), Attempt: 1,
		}})
		return
	}
	p.ask(i, question{op: opPlan, expect: t.record.Next, next: after, skip: int64(d.Skipped), reset: d.Reset})
}

func (p *instance) wake(i int, at time.Duration) {
	p.cluster.queue.push(event{at: max(at, p.cluster.now), what: evTask, host: p.host, life: p.life, arg: int32(i)})
}

// ask sends a question until it is answered.
func (p *instance) ask(i int, q question) {
	s, t := &p.scheduler, &p.scheduler.tasks[i]
	if t.asking.op == 0 {
		s.number++
		q.number, q.task, q.token = s.number, i, s.term
		if q.op == opClaim {
			q.claim.Token, q.claim.Run, q.claim.Spec, q.claim.Instance = s.term, p.id+"-"+strconv.FormatInt(s.term, 10)+"-"+strconv.Itoa(int(s.number)), taskSpec, p.id
		}
		t.asking, t.tries = q, 0
	}
	t.tries++
	t.until = p.cluster.now + taskBound
	p.send(message{about: aboutTask, task: &q, number: q.number})
}

// takeQuestion runs the script of a question.
func (c *Cluster) takeQuestion(server *machine, p *instance, m *message, now int64) {
	q := m.task
	record := &server.tasks[q.task]
	before := record.Record
	switch q.op {
	case opOpen:
		m.verdict = record.Open(q.token, "", false)
	case opPlan:
		m.verdict = record.Plan(q.token, q.expect, q.next, taskSpec, q.skip, false)
	case opClaim:
		if c.broken.ClaimsBlindly {
			record.Next = q.claim.Expect
		}
		m.verdict = record.Claim(now, q.claim)
	case opFinish:
		m.verdict = record.Finish(now, q.token, q.run, q.status, "", 0, 0, 0)
	}
	q.record = record.Record
	record.History = nil // nothing is decided by it
	if server == c.master {
		c.checks.question(p, q, m.verdict, &before)
	}
	if c.trace != nil {
		c.note("%s about task %s: %s: %s; next %s run %q token %d", p.id, tasks[q.task].name, [...]string{"", "open", "plan", "claim", "finish"}[q.op],
			m.verdict, record.Next, record.Run, record.Token)
	}
}

// told takes the answer to a question.
func (p *instance) told(m *message) {
	s, i := &p.scheduler, m.task.task
	t := &s.tasks[i]
	if !m.failed && (!s.known || m.clock > 0) {
		s.clock, s.at, s.known = m.clock, p.cluster.now+p.mono, true
	}
	if t.asking.op == 0 || t.asking.number != m.number || m.task.token != s.term {
		return
	}
	if m.failed {
		p.wake(i, t.until) // asks again
		return
	}
	q := t.asking
	t.asking, t.record = question{}, m.task.record
	switch {
	case q.op == opFinish:
		t.run = taskRun{}
	case m.verdict == "fenced":
		t.off = true
	case m.verdict == "moved":
		t.opened, t.rest = false, p.cluster.now+10*time.Millisecond
	case q.op == opOpen:
		t.opened = true
		switch {
		case t.record.Run != "" && t.record.Crashes+1 < maxCrashes:
			t.again = t.record.Run
		case t.record.Run != "":
			t.run = taskRun{id: t.record.Run, ended: true, status: "abandoned"}
		case t.record.Status == "returned" || t.record.Status == "interrupted":
			t.again = t.record.Done
		default:
			t.again = ""
		}
	case m.verdict == "early":
		t.rest = p.cluster.now + time.Duration(q.claim.Slot-m.clock)*time.Millisecond
	case q.op == opClaim:
		t.again = ""
		p.claimed(i, q.claim)
	}
	p.step(i)
}

// claimed starts a run. The last step before is to look at the term (P10).
func (p *instance) claimed(i int, claim oracle.Claim) {
	t, c := &p.scheduler.tasks[i], p.cluster
	if !p.scheduler.on || !p.believes() {
		t.run = taskRun{id: claim.Run, ended: true, status: "returned"}
		return
	}
	if other := c.checks.running[i]; other != nil && other != p && !other.scheduler.tasks[i].run.tainted && !c.profile.Outside {
		c.fail("P10: task %s starts in %s while it runs in %s", tasks[i].name, p.id, other.id)
	}
	c.Tally.TaskRuns++
	if claim.Kind == "again" {
		c.Tally.Reruns++
	}
	c.checks.running[i] = p
	t.run = taskRun{id: claim.Run, active: true, status: "succeeded"}
	c.queue.push(event{at: c.now + tasks[i].takes, what: evRunEnds, host: p.host, life: p.life, arg: int32(i)})
}

// runEnds: the task has returned, by itself or because its context is done.
func (p *instance) runEnds(i int32) {
	t := &p.scheduler.tasks[i]
	if !t.run.active {
		return
	}
	if !p.scheduler.on {
		t.run.status = "interrupted"
	}
	t.run.active, t.run.ended = false, true
	if p.cluster.checks.running[i] == p {
		p.cluster.checks.running[i] = nil
	}
	p.step(int(i))
}

// taint marks the runs of a process that stands still.
func (p *instance) taint() {
	for i := range p.scheduler.tasks {
		p.scheduler.tasks[i].run.tainted = true
	}
}

// taskCheck is what Redis has granted of a task since it last lost data.
type taskCheck struct {
	claimed   []int64 // the last slots
	known     bool
	scheduled int64 // the slot that was claimed last
	finished  bool  // its run came to an end, or was given up after maxCrashes
}

// question holds P10 against what a script did: between the old next slot and the new one, each
// slot was claimed or counted as skipped, none twice, and none before the run of the one before it
// had ended.
func (k *checker) question(p *instance, q *question, verdict string, before *oracle.Record) {
	c, t, after := k.cluster, &k.tasks[q.task], &q.record
	switch {
	case q.op == opFinish && verdict == "done" && q.status != "returned" && q.status != "interrupted":
		t.finished = true
	case q.op == opClaim && verdict == "claimed" && before.Run != q.claim.Run && q.claim.Kind == "slot":
		c.Tally.Slots++
		if slices.Contains(t.claimed, q.claim.Slot) {
			c.fail("P10: slot %d of task %s was claimed twice, now by %s", q.claim.Slot, tasks[q.task].name, p.id)
		}
		if t.known && !t.finished && before.Run != "" {
			c.fail("P10: slot %d of task %s was claimed while the run of %d had not ended", q.claim.Slot, tasks[q.task].name, t.scheduled)
		}
		t.claimed = append(t.claimed[max(0, len(t.claimed)-50):], q.claim.Slot)
		t.known, t.scheduled, t.finished = true, q.claim.Slot, false
		k.grid(q.task, before, after, 1)
	case q.op == opPlan && verdict == "ok" && before.Next != after.Next && !q.reset:
		k.grid(q.task, before, after, 0)
	}
}

// grid counts the slots between.
func (k *checker) grid(task int, before, after *oracle.Record, claimed int64) {
	from, _ := strconv.ParseInt(before.Next, 10, 64)
	to, _ := strconv.ParseInt(after.Next, 10, 64)
	slots := int64(0)
	for at := time.UnixMilli(from).UTC(); at.UnixMilli() < to && slots < schedule.MaxSteps; slots++ {
		at = tasks[task].rules.Schedule.Next(at)
	}
	skipped := after.Skipped - before.Skipped
	k.cluster.Tally.Skipped += skipped
	if slots != claimed+skipped && slots < schedule.MaxSteps {
		k.cluster.fail("P10: of %d slots of task %s %d were claimed and %d counted as skipped", slots, tasks[task].name, claimed, skipped)
	}
}
