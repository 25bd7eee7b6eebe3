package tenuretest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
)

// RunDue waits until every task whose slot is due now has run: until no task of a role that this
// process leads has a slot in the past, a trigger that waits, a run that is on, or one that waits
// for its next attempt. It waits for the run that Task.RunOnElection asks for as well. What a test
// does then sees what the tasks have done. It moves no clock: in a testing/synctest bubble the test
// sleeps until a slot is due and then calls RunDue; outside of one it calls RunDue after
// TaskScheduler.Trigger, or for slots that were missed. A paused task is not waited for, nor is one
// that TaskOptions.MinInstances holds.
//
// RunDue fails the test if this process leads nothing, if ctx is done first, if a task cannot be
// read, and if one does not start though it is overdue (see tenure.TaskStatus) or its trigger has
// waited for more than two minutes. A slot that Task.Jitter delays is due all the same: RunDue
// waits until it has run. A run is waited for as long as it takes: give ctx a deadline if it may
// hang.
func (c *Control) RunDue(ctx context.Context) {
	c.t.Helper()
	changed, stop := c.changes()
	defer stop()
	began := time.Now()
	nothing := false // was due at the look before this one
	for stuck, quiet := began, began; ; {
		due, goesOn := c.due(ctx, time.Since(began) < again)
		was := nothing
		nothing = len(due) == 0
		switch {
		case nothing && was:
			return
		case nothing: // a run may have begun in the middle of that look
			continue
		case goesOn:
			stuck = time.Now()
		case time.Since(stuck) > 2*patience:
			c.t.Fatalf("tenuretest: due for more than two minutes, and not started: %s\n%s", strings.Join(due, ", "), c.roles())
		}
		select {
		case <-changed: // the next look may still come before what the event is about can be seen
			quiet = time.Now()
		case <-time.After(min(max(glance, time.Since(quiet)/50), time.Second)): // hours in a bubble take few looks
		case <-ctx.Done():
			c.t.Fatalf("tenuretest: RunDue: %v: not done yet: %s\n%s", context.Cause(ctx), strings.Join(due, ", "), c.roles())
		}
	}
}

// again is for how long a new leader may take to run what Task.RunOnElection asks for, and to run
// again what another one has left behind: it does so at once, or when the next attempt is due,
// unless the policies of the task say that it does not.
const again = time.Second

// due says which tasks are to be waited for, and whether one of them runs, or may yet be delayed by
// its jitter. early: what was interrupted may be run again.
func (c *Control) due(ctx context.Context, early bool) (due []string, goesOn bool) {
	c.t.Helper()
	terms := make(map[string]tenure.Term)
	for _, e := range c.coordinator.Roles() {
		if term, leads := e.Term(); leads {
			terms[e.Role()] = term
		}
	}
	if len(terms) == 0 {
		c.t.Fatalf("tenuretest: RunDue: the process leads nothing\n%s", c.roles())
	}
	tasks, err := c.coordinator.Tasks().List(context.WithoutCancel(ctx)) // it does not block: there is no Redis
	if err != nil {
		c.t.Fatalf("tenuretest: RunDue: %v", err)
	}
	for _, task := range tasks {
		term, leads := terms[task.Role]
		if !task.Known || !leads || task.Paused || task.Held {
			continue
		}
		unanswered := errors.Is(task.Err, tenure.ErrUnreachable)
		if task.Err != nil && !unanswered {
			c.t.Fatalf("tenuretest: RunDue: task %q: %v", task.Name, task.Err)
		}
		switch now := time.Now(); {
		case unanswered: // before Cluster.Reconnect: it asks again, in a few seconds
			due = append(due, fmt.Sprintf("%s (%v)", task.Name, task.Err))
		case task.Running:
			due, goesOn = append(due, task.Name+" (running)"), true
		case task.Token != term.Token:
			due = append(due, task.Name+" (not taken over yet)")
		case early && task.Last.Token != term.Token && c.control.RunsOnElection(task.Name):
			due = append(due, task.Name+" (on election)")
		case task.Last.State == tenure.RunInterrupted && now.Before(c.control.RetryAt(task.Name)):
			due, goesOn = append(due, task.Name+" (its next attempt waits)"), true
		case task.Last.State == tenure.RunInterrupted && (early || now.Before(c.control.RetryAt(task.Name).Add(again))):
			due = append(due, task.Name+" (interrupted)")
		case task.Trigger != "", !task.Next.IsZero() && !task.Next.After(now):
			due = append(due, fmt.Sprintf("%s (next %v, trigger %q)", task.Name, task.Next, task.Trigger))
			goesOn = goesOn || task.Trigger == "" && !task.Overdue
		}
	}
	return due, goesOn
}
