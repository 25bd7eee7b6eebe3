package virtual

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
)

// asked is what the checker knows of what was asked for, in virtual time. The mutex of the checker
// guards it.
type asked struct {
	answers  map[string]int64       // of the operator's calls, by kind and answer
	triggers map[int]*trigger       // by number
	byID     map[string]int         // numbers of the triggers that were accepted
	resumes  map[string]int         // that were asked for, by task
	resumed  map[string]int         // that were answered
	commands map[string]*commandLog // by ID
}

// trigger is one that was asked for.
type trigger struct {
	task     string
	id       string // "": it is not known to be accepted
	accepted time.Duration
}

// commandLog is what was written of a command.
type commandLog struct {
	states []string // of its hash
	events []string // of the audit stream
}

func newAsked() asked {
	return asked{
		answers: map[string]int64{}, triggers: map[int]*trigger{}, byID: map[string]int{}, resumes: map[string]int{}, resumed: map[string]int{},
		commands: map[string]*commandLog{},
	}
}

// answered holds the answer to a call of the operator against what was written.
func (c *checker) answered(kind, about, id string, err error, took time.Duration) {
	word := answerOf(err)
	c.cluster.note(operatorName, "hears of "+kind, about+": "+word, 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked.answers[kind+": "+word]++
	if most := c.cluster.operator.patience() + noteBound + time.Second; took > most {
		c.failed("Control: %s %s took %v, more than %v", kind, about, took, most)
	}
	log := c.asked.commands[id]
	if log == nil || len(log.states) == 0 || !c.cluster.setup.kept {
		return
	}
	last, over := log.states[len(log.states)-1], slices.Contains(log.events, "ended") || slices.Contains(log.events, "noted")
	switch {
	case errors.Is(err, tenure.ErrNotTaken) && last != "expired":
		c.failed("Control: %s %s was not taken, and its state is %s", kind, about, last)
	case err == nil && last != "done":
		c.failed("Control: %s %s was done, and its state is %s", kind, about, last)
	case err == nil && !over:
		c.failed("Control: %s %s was done, and the list of commands does not say so: %q", kind, about, log.events)
	}
}

// command takes what is written into the hash of a command: its states follow each other, and one
// that is over stays over.
func (t *tap) command(id string, args []string) {
	state := fields(args)["state"]
	if state == "" {
		return
	}
	log := t.commandLog(id)
	before := ""
	if len(log.states) > 0 {
		before = log.states[len(log.states)-1]
	}
	log.states = append(log.states, state)
	then := map[string][]string{
		"": {"asked", "done", "failed"}, "asked": {"taken", "expired"}, "taken": {"done", "failed", "expired"},
	}
	if t.c.cluster.setup.kept && !slices.Contains(then[before], state) {
		t.c.failed("Control: the states of a command are %q", log.states)
	}
}

// audit takes an entry of the audit stream: a command is asked for once, and ends once.
func (t *tap) audit(args []string) {
	at := slices.Index(args, "event")
	if at < 0 {
		return
	}
	field := fields(args[at:])
	log := t.commandLog(field["command"])
	if t.c.cluster.setup.kept && slices.Contains(log.events, field["event"]) {
		t.c.failed("Control: the list of commands says twice that one was %s", field["event"])
	}
	log.events = append(log.events, field["event"])
}

func (t *tap) commandLog(id string) *commandLog {
	log := t.c.asked.commands[id]
	if log == nil {
		log = &commandLog{}
		t.c.asked.commands[id] = log
	}
	return log
}

// undrained is how many drains of a process were ended.
func (c *checker) undrained(l *life) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.undrains
}

// drained takes note that a drain was waited for: unless it was ended, the process leads nothing.
func (c *checker) drained(l *life, before int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.dead.Load() && l.undrains == before {
		l.drained = true
		c.ask()
	}
}

// drainEnded takes the event.
func (c *checker) drainEnded(l *life) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.undrains++
	l.drained = false
}

// triggers takes note that a task is about to be triggered.
func (c *checker) triggers(number int, task string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked.triggers[number] = &trigger{task: task}
}

// triggered takes note that a trigger was accepted: what is lost from here on is lost by tenure.
func (c *checker) triggered(number int, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.asked.triggers[number]
	t.id, t.accepted = id, c.cluster.net.Elapsed()
	c.asked.byID[id] = number
	if r := c.tap.tasks[t.task]; c.cluster.setup.kept && r.waiting.id != id && r.claimed[id] == 0 {
		c.failed("P10: trigger %d of %s was accepted, and Redis has nothing of it", number, t.task)
	}
}

// runOfATrigger holds a run that was triggered against what was asked for.
func (c *checker) runOfATrigger(run tenure.TaskRun) {
	if run.Trigger == "" {
		if len(run.Args) > 0 {
			c.failed("P10: a run of %s that was not triggered has arguments", run.Task)
		}
		return
	}
	var number int
	if len(run.Args) == 2 {
		_, _ = fmt.Sscan(run.Args[1], &number)
	}
	t := c.asked.triggers[number]
	switch {
	case t == nil || !slices.Equal(run.Args, triggerArgs(number)):
		c.failed("P10: a triggered run of %s has the arguments %q", run.Task, run.Args)
	case t.task != run.Task || t.id != "" && t.id != run.Trigger:
		c.failed("P10: a run of %s has the arguments of another trigger", run.Task)
	}
}

// resumes are how often a task is to be let go on: none is under way if as many were answered.
func (c *checker) resumes(task string) (begun, answered int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked.resumes[task], c.asked.resumed[task]
}

func (c *checker) resumeBegins(task string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked.resumes[task]++
}

func (c *checker) resumeEnds(task string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked.resumed[task]++
}

// paused takes note that a pause was accepted while no resume was under way: begun are those
// before.
func (c *checker) paused(task string, begun int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cluster.setup.kept && c.asked.resumes[task] == begun && !c.tap.tasks[task].paused {
		c.failed("P10: %s was paused, and is not", task)
	}
}

// triggersEnded holds a calm world to its word: each trigger that was accepted has run, or was
// dropped as late as it may be. since: only those that were accepted later, since Redis may have
// lost what was before.
func (c *checker) triggersEnded(since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for number := 1; number <= c.cluster.operator.triggers; number++ {
		t := c.asked.triggers[number]
		if t == nil || t.id == "" || t.accepted < since {
			continue
		}
		switch r := c.tap.tasks[t.task]; {
		case r.dropped[t.id] > 0: // see triggerGone
		case r.claimed[t.id] == 0:
			c.failed("P10: trigger %d of %s was accepted and has never run", number, t.task)
		case r.ended[t.id] == 0:
			c.failed("P10: the run of trigger %d of %s has neither ended nor was given up", number, t.task)
		}
	}
}

// waiting is a trigger that waits for its run.
type waiting struct {
	id   string
	left time.Time     // by Redis's clock
	free time.Duration // for which the task was not paused meanwhile, up to then
	then time.Time
}

// triggerBound is for how long a trigger waits at most.
const triggerBound = time.Hour

// triggerClaimed takes the claim of what was triggered: once each, and not too late.
func (t *tap) triggerClaimed(now time.Time, name, id string, r *record) {
	r.claimed[id]++
	t.triggered++
	if !t.c.cluster.setup.kept {
		return
	}
	if r.claimed[id] > 1 {
		t.c.failed("P10: trigger %d of %s was claimed twice", t.c.asked.byID[id], name)
	}
	if age := now.Sub(r.waiting.left); id == r.waiting.id && age >= triggerBound {
		t.c.failed("P10: trigger %d of %s was claimed after %v", t.c.asked.byID[id], name, age)
	}
}

// triggerGone takes note that a trigger waits no more. Unless its run was claimed it was dropped:
// that is for one that has waited for an hour, while the task was paused. Had that been free for as
// long as the calm at the end of a world, it would have been run.
func (t *tap) triggerGone(now time.Time, name string, r *record) {
	id := r.waiting.id
	if r.claimed[id] > 0 {
		return
	}
	r.dropped[id]++
	r.pause(now, r.paused)
	age, free := now.Sub(r.waiting.left), r.waiting.free
	if kept := t.c.cluster.setup.kept; kept && (age < triggerBound || free >= t.c.cluster.pace.calm()) {
		t.c.failed("P10: trigger %d of %s was dropped after %v, for %v of which the task was not paused", t.c.asked.byID[id], name, age, free)
	}
}

// held holds a claim against what the operator has asked for: nothing starts while the task is
// paused, and a run that was canceled is not run again.
func (t *tap) held(name string, r *record, again bool) {
	switch {
	case !t.c.cluster.setup.kept:
	case r.paused:
		t.c.failed("P10: a run of %s was claimed while the task was paused", name)
	case again && r.run != "" && r.run == r.canceled:
		t.c.failed("P10: a run of %s was canceled, and is run again", name)
	}
}

// pause takes whether the task is paused from now on.
func (r *record) pause(now time.Time, paused bool) {
	if !r.paused {
		r.waiting.free += now.Sub(r.waiting.then)
	}
	r.waiting.then = now
	r.paused, r.loose = paused, r.loose || paused
}

// wish takes what the operator has written into the record of a task.
func (t *tap) wish(now time.Time, r *record, field map[string]string) {
	if field["paused"] == "1" {
		r.pause(now, true)
	}
	if id := field["cancel"]; id != "" {
		r.canceled = id
	}
	if text := field["trigger"]; text != "" {
		r.waiting = waiting{left: now, then: now}
		r.waiting.id, _, _ = strings.Cut(text, " ")
	}
}
