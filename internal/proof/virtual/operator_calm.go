package virtual

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure"
)

// settle asks a calm world for everything, in virtual time, and holds it to what it promises:
// whatever faults were before, each is done within its bound.
func (o *operator) settle() {
	since := o.net.Elapsed()
	o.letGo()
	o.align()
	if o.leader() == nil {
		return // P7 says so
	}
	o.settleDrain()
	o.settleTransfer()
	o.settlePause()
	o.settleCancel()
	o.settleRerun()
	time.Sleep(2*o.pace.tasks[0].every + o.pace.span(4*time.Second))
	if o.setup.kept {
		since = 0
	}
	o.check.triggersEnded(since)
	o.settleList()
}

// align brings the goroutine of the test back to the instants that are its own (see odd).
func (c *cluster) align() {
	own, now := c.net.Stagger("test")%odd, c.net.Elapsed()%odd
	time.Sleep((own - now + odd) % odd)
}

// must makes a call that has to be answered so.
func (o *operator) must(want string, kind, about string, do func(context.Context, *tenure.Control) error) {
	if got := answerOf(o.ask(kind, about, do)); got != want {
		o.check.fail("Control: in the calm %s %s was answered %q instead of %q", kind, about, got, want)
	}
	o.align()
}

// soon is how long a role may be without a leader after a hand-over in the calm.
func (o *operator) soon() time.Duration { return roundTrip + 20*time.Millisecond }

// settleDrain drains the leader: another leads at once, the drained one never, and nobody can hand
// the lead to it.
func (o *operator) settleDrain() {
	old := o.leader()
	life := old.life.Load()
	before := o.check.undrained(life)
	o.must("done", "drain", old.name, func(ctx context.Context, control *tenure.Control) error { return control.Drain(ctx, old.name) })
	o.check.drained(life, before)
	next := o.leads(o.soon(), func(leader *instance) bool { return leader != old }, "after the drain of the leader")
	time.Sleep(2 * o.pace.ttl)
	if leader := o.leader(); leader != next {
		o.check.fail("P12: while an instance drained in the calm the leader changed")
	}
	if state := life.coordinator.State(); state != tenure.InstanceDraining {
		o.check.fail("P9: %s drains, and its state is %s", old.name, state)
	}
	o.must("not ready", "transfer", old.name, func(ctx context.Context, control *tenure.Control) error {
		return control.Transfer(ctx, "", old.name)
	})
	if leader := o.leader(); leader != next {
		o.check.fail("P12: a transfer to an instance that drains changed the leader")
	}
	o.must("done", "undrain", old.name, func(ctx context.Context, control *tenure.Control) error { return control.Undrain(ctx, old.name) })
	time.Sleep(o.pace.span(time.Second))
}

// settleTransfer hands the lead over, by name and to the best, and to one that is down.
func (o *operator) settleTransfer() {
	old := o.leader()
	if old == nil {
		return // P7 says so
	}
	heir, down := o.instances[(old.number+1)%len(o.instances)], o.instances[(old.number+2)%len(o.instances)]
	transfer := func(want, to string) {
		o.must(want, "transfer", to, func(ctx context.Context, control *tenure.Control) error { return control.Transfer(ctx, "", to) })
	}
	transfer("done", heir.name)
	o.leads(o.soon(), func(leader *instance) bool { return leader == heir }, "after a transfer to "+heir.name)
	transfer("done", "")
	o.leads(o.soon(), func(leader *instance) bool { return leader != heir }, "after a transfer to the best candidate")
	if leader := o.leader(); leader == down { // the best candidate may be anybody
		down = o.instances[(down.number+1)%len(o.instances)]
	}
	leader := o.leader()
	down.crash()
	transfer("not ready", down.name)
	if o.leader() != leader {
		o.check.fail("P12: a transfer to an instance that is down changed the leader")
	}
	down.boot()
	time.Sleep(o.pace.registry.HeartbeatInterval)
}

// leads waits for a leader, or keeps a violation after bound.
func (o *operator) leads(bound time.Duration, is func(*instance) bool, when string) *instance {
	for end := o.net.Elapsed() + bound; ; time.Sleep(100 * time.Microsecond) {
		if leader := o.leader(); leader != nil && is(leader) {
			return leader
		}
		if o.net.Elapsed() >= end {
			o.check.fail("P7: %s nobody, or another one, leads within %v", when, bound)
			return o.leader()
		}
	}
}

// settlePause pauses a task and triggers it meanwhile: nothing runs before it is let go on, then
// what was triggered does.
func (o *operator) settlePause() {
	task := o.pace.tasks[0]
	if err := o.pause(task.name); err != nil {
		o.check.fail("Control: in the calm a pause was answered %v", err)
	}
	time.Sleep(task.work + time.Second) // of the run that may be on
	number, runs := o.nextTrigger(), o.check.runsOf(task.name)
	if err := o.trigger(task.name, number); err != nil {
		o.check.fail("Control: in the calm a trigger was answered %v", err)
	}
	time.Sleep(2 * task.every)
	if o.check.runsOf(task.name) != runs {
		o.check.fail("P10: %s is paused, and ran", task.name)
	}
	if err := o.resume(task.name); err != nil {
		o.check.fail("Control: in the calm a resume was answered %v", err)
	}
	o.align()
	// The end of a pause has no hint: the leader looks once a minute. A run of a slot that is on
	// then comes first, and both may be tried again.
	o.await(time.Minute+4*task.work+o.pace.span(4*time.Second), func() bool { return o.check.ranTrigger(number) }, "P10: the trigger of a paused task has not run after its resume")
}

// settleCancel triggers a task and cancels the run.
func (o *operator) settleCancel() {
	task := o.pace.tasks[1]
	number := o.nextTrigger()
	if err := o.trigger(task.name, number); err != nil {
		o.check.fail("Control: in the calm a trigger was answered %v", err)
	}
	o.align()
	// A run that is on comes first, and after it one that waits to be tried again.
	o.await(2*task.work+o.pace.span(4*time.Second), func() bool { return o.check.startedTrigger(number) }, "P10: a trigger has not been claimed in the calm")
	err := o.ask("cancel", task.name, func(ctx context.Context, control *tenure.Control) error { return control.Cancel(ctx, task.name) })
	if err != nil && !errors.Is(err, tenure.ErrNotFound) { // it may have ended
		o.check.fail("Control: in the calm a cancel was answered %v", err)
	}
	o.align()
	o.await(time.Second, func() bool { return err != nil || o.check.ranTrigger(number) }, "P10: a run of %s was canceled and goes on", task.name)
}

// settleRerun has the leader die during a run that was triggered: the next one runs it again, with
// what the operator has given it.
func (o *operator) settleRerun() {
	task := o.pace.tasks[0]
	number := o.nextTrigger()
	if err := o.trigger(task.name, number); err != nil {
		o.check.fail("Control: in the calm a trigger was answered %v", err)
	}
	o.align()
	o.await(2*task.work+o.pace.span(4*time.Second), func() bool { return o.check.startedTrigger(number) }, "P10: a trigger has not been claimed in the calm")
	if leader := o.leader(); leader != nil {
		leader.crash()
		time.Sleep(o.pace.span(time.Second))
		leader.boot()
	}
	bound := 2*o.pace.ttl + 4*task.work + o.pace.span(10*time.Second)
	o.await(bound, func() bool { return o.check.ranTrigger(number) }, "P10: a triggered run was not run again within %v after its leader had died", bound)
}

// settleList looks at the list of commands: what was done in the calm stands there, and how it
// ended.
func (o *operator) settleList() {
	var list []tenure.CommandRecord
	err := o.ask("list", "", func(ctx context.Context, control *tenure.Control) (err error) {
		list, err = control.Commands(ctx, 100)
		return err
	})
	o.align()
	if err != nil {
		o.check.fail("Control: in the calm the commands cannot be listed: %v", err)
		return
	}
	for _, want := range []string{"drain done", "undrain done", "transfer done", "transfer failed", "pause done", "resume done", "trigger done"} {
		if !slices.ContainsFunc(list, func(r tenure.CommandRecord) bool {
			return fmt.Sprint(r.Kind, " ", r.State) == want && r.By == operatorName && !r.Ended.IsZero()
		}) {
			o.check.fail("Control: the list of commands has no %s", want)
		}
	}
}

func (c *checker) runsOf(task string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tasks[task].runs
}

// startedTrigger reports whether the run of a trigger was claimed.
func (c *checker) startedTrigger(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.asked.triggers[number]
	return c.tap.tasks[t.task].claimed[t.id] > 0
}

// ranTrigger reports whether it has ended.
func (c *checker) ranTrigger(number int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.asked.triggers[number]
	return c.tap.tasks[t.task].ended[t.id] > 0
}
