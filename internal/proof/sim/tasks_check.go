package sim

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// taskCheck is what is known of a task since Redis last lost data.
type taskCheck struct {
	claimed   []int64 // the last slots
	known     bool
	scheduled int64  // the slot that was claimed last
	finished  bool   // its run came to an end, or was given up after schedule.MaxCrashes
	extra     int64  // token of the last run outside of the schedule
	extraRun  string // its ID

	// extraBegan: it has started. If only a late copy of its claim was granted, it never does.
	extraBegan bool

	// deadly is the last run of which too many leaders have died already. It must not start: that a
	// late copy of its claim was granted is no harm.
	deadly string

	triggers  []string // that were claimed
	triggered int64    // when one was last asked for

	resumed time.Duration // when the operator last let it go on

	slot       int64         // of the attempt that started last
	number     int           // of that
	failed     time.Duration // when an attempt last failed; 0: it did not
	canceled   string        // the run that the operator has ended last
	canceledAt time.Duration // when that was
	failing    string        // its run
	asked      time.Duration // the pause that it has asked for; 0: none
	after      int           // how many of that had failed then
}

// setClock is how long after a step of Redis's clock nothing is held that counts by it.
const setClock = 75 * time.Second

// clocksHold reports whether a process may know what Redis's clock reads: it was not set, and the
// rates of the clocks are as P1 wants them.
func (c *Cluster) clocksHold() bool { return c.now-c.checks.clockSet > setClock && !c.profile.Outside }

// starts holds P10 against the start of an attempt: the task runs nowhere else, no attempt has the
// number of one before, none comes before its pause.
func (k *checker) starts(p *instance, i int, a schedule.Attempt) {
	c, t, j := k.cluster, &k.tasks[i], &k.cluster.jobs[i]
	if other := k.running[i]; other != nil && other != p && !other.scheduler.tasks[i].tainted && !c.profile.Outside && !k.longestLost(p, other) {
		c.fail("P10: task %s starts in %s while it runs in %s", j.policy.Name, p.id, other.id)
	}
	k.running[i] = p
	t.extraBegan = t.extraBegan || a.Run == t.extraRun
	if j.policy.Abandoned == schedule.AbandonedFail && !slices.Contains(k.begun, a.Run) {
		k.begun = append(k.begun[max(0, len(k.begun)-50):], a.Run)
	}
	if a.Run == t.deadly {
		c.fail("P10: %s runs task %s again, of which %d leaders have died", p.id, j.policy.Name, schedule.MaxCrashes)
	}
	if slices.Contains(k.finals, a.Run) {
		c.fail("P10: run %s of task %s is tried again in %s, though it said that it must not", a.Run, j.policy.Name, p.id)
	}
	if a.Args != a.Trigger {
		c.fail("P10: task %s starts in %s for trigger %q with the arguments of %q", j.policy.Name, p.id, a.Trigger, a.Args)
	}
	if c.master.tasks[i].Run != a.Run { // claimed from a master that is none any more
		return
	}
	if t.known && t.slot == a.Slot && a.Number <= t.number {
		c.fail("P10: attempt %d of slot %d of task %s starts in %s, the last one was %d", a.Number, a.Slot, j.policy.Name, p.id, t.number)
	}
	pause := cmp.Or(t.asked, j.pause(t.after))
	const whole = 2 * time.Millisecond // the pause and the time that it ends are cut down to whole ones
	if t.failing == a.Run && t.failed > 0 && c.now-t.failed < pause*9/10-whole && c.clocksHold() {
		c.fail("P10: task %s is tried again %v after its %d. failure, %v is the shortest pause", j.policy.Name, c.now-t.failed, t.after, pause)
	}
	t.slot, t.number = a.Slot, a.Number
}

// cancels notes that the operator has ended a run.
func (k *checker) cancels(i int, run string) {
	t := &k.tasks[i]
	t.canceled, t.canceledAt = run, k.cluster.now
}

// pause is the shortest one after so many failures.
func (j *job) pause(failures int) time.Duration {
	pause := j.policy.Backoff
	for range failures - 1 {
		pause = min(2*pause, j.policy.MaxBackoff)
	}
	return min(pause, j.policy.MaxBackoff) / 2
}

// returned notes how an attempt ended.
func (k *checker) returned(i int32, a schedule.Attempt, end schedule.End) {
	t := &k.tasks[i]
	if end.Final {
		k.finals = append(k.finals[max(0, len(k.finals)-50):], a.Run)
	}
	switch {
	case !end.Started || k.cluster.master.tasks[i].Run != a.Run:
	case end.Failed && !end.Cut:
		if t.failing != a.Run {
			t.failing, t.after = a.Run, 0
		}
		t.failed, t.asked = k.cluster.now, end.In
		t.after++
	default:
		t.failed = 0
	}
}

// question holds P10 against what a script did: between the old next slot and the new one, each
// slot was claimed or counted as skipped, none twice, and none before the run of the one before it
// had ended.
func (k *checker) question(p *instance, q *question, verdict string, before *oracle.Record, now int64) {
	c, t, after := k.cluster, &k.tasks[q.task], &q.record
	policy := c.jobs[q.task].of(p.host)
	switch ask := q.ask.(type) {
	case store.TaskFinish:
		k.finish(q, ask, verdict, before, policy)
	case store.TaskClaim:
		if verdict != "claimed" || before.Run == ask.Run {
			return
		}
		k.again(p, ask, t, policy, before)
		if ask.Kind != store.ClaimAgain { // a run outside of the schedule may begin in the very millisecond of a slot
			t.number = 0
		}
		if ask.Kind != store.ClaimSlot {
			return
		}
		c.Tally.Slots++
		if slices.Contains(t.claimed, ask.Slot) {
			c.fail("P10: slot %d of task %s was claimed twice, now by %s", ask.Slot, policy.Name, p.id)
		}
		if t.known && !t.finished && before.Run != "" {
			c.fail("P10: slot %d of task %s was claimed while the run of %d had not ended", ask.Slot, policy.Name, t.scheduled)
		}
		if starts := ask.Slot + policy.Delay(ask.Slot).Milliseconds(); now < starts-tolerance && c.clocksHold() {
			c.fail("P10: slot %d of task %s was claimed at %d, with its jitter it starts at %d", ask.Slot, policy.Name, now, starts)
		}
		if next := store.Natural(before.Next); wasPaused(before, policy, next, now) {
			c.fail("P10: slot %d of task %s lay in the pause %s, and was run by %s", next, policy.Name, before.LastPause, p.id)
		}
		if t.known && before.Spec == after.Spec && recordOf(before).Follows(policy.Spec) {
			k.grid(q.task, policy, before, after, 1)
			k.byPolicy(q.task, policy, ask, before)
		}
		t.claimed = append(t.claimed[max(0, len(t.claimed)-50):], ask.Slot)
		t.known, t.scheduled, t.finished = true, ask.Slot, false
	case store.TaskPlan:
		if verdict != "ok" || before.Next == after.Next || !t.known || !recordOf(before).Follows(policy.Spec) || !recordOf(after).Follows(policy.Spec) {
			return
		}
		due, last := store.Natural(before.Next), ask.Next-schedule.Interval(policy.Schedule).Milliseconds()
		passed := wasPaused(before, policy, due, now) && (wasPaused(before, policy, last, now) || last == ask.Next)
		if ask.Skipped == 0 && due != 0 && due <= now+tolerance && !passed && c.clocksHold() {
			c.fail("P10: the slots of task %s from %s to %s were forgotten by %s", policy.Name, before.Next, after.Next, p.id)
		} else if ask.Skipped > 0 {
			k.grid(q.task, policy, before, after, 0)
		}
	}
}

// wasPaused reports whether a slot began during the last pause of a task. One that ends in the
// future was noted before the clock was set back.
func wasPaused(before *oracle.Record, policy *schedule.Policy, slot, now int64) bool {
	r, starts := recordOf(before), slot+policy.Delay(slot).Milliseconds()
	return r.PausedAt > 0 && r.PausedAt <= starts && starts < r.ResumedAt && r.ResumedAt <= now
}

// tolerance is by how much, in ms, the estimate that a process has of Redis's clock may be off.
const tolerance = 3000

// again holds reruns, and runs outside of the schedule.
func (k *checker) again(p *instance, ask store.TaskClaim, t *taskCheck, policy *schedule.Policy, before *oracle.Record) {
	c := k.cluster
	switch {
	case ask.Kind == store.ClaimAgain:
		c.Tally.Reruns++
		if ask.Expect == t.canceled {
			c.fail("P10: %s runs task %s again, of which run %s was canceled", p.id, policy.Name, ask.Expect)
		}
		// What the record says of that run may be older than what its leader, or an earlier claim,
		// knew: a failover may lose that it was given back.
		if policy.Abandoned == schedule.AbandonedFail && slices.Contains(k.begun, ask.Expect) {
			c.fail("P10: %s runs task %s again, which is to fail when it is left behind", p.id, policy.Name)
		}
		if before.Run != "" && before.Crashes >= schedule.MaxCrashes && !slices.Contains(k.given, ask.Expect) {
			t.deadly = ask.Run
		}
	case ask.Kind == store.ClaimExtra:
		// A token that nobody remembers is granted again, to another process.
		sameTerm := t.extra == ask.Token && process(t.extraRun) == process(ask.Run)
		if !policy.RunOnElection || sameTerm && t.extraBegan {
			c.fail("P10: %s runs task %s outside of its schedule, with token %d", p.id, policy.Name, ask.Token)
		}
		t.extra, t.extraRun, t.extraBegan = ask.Token, ask.Run, false
	case ask.Kind == store.ClaimTrigger:
		c.Tally.Triggers++
		id := recordOf(before).TriggerID()
		if id == "" || slices.Contains(t.triggers, id) {
			c.fail("P10: trigger %q of task %s was claimed twice, now by %s", id, policy.Name, p.id)
		}
		t.triggers = append(t.triggers, id)
	}
}

// process is the part of the ID of a run that names the process.
func process(run string) string {
	of, _, _ := strings.Cut(run, "-")
	return of
}

// finish holds the end of a run: it failed as often as it may, or nobody goes on with it.
func (k *checker) finish(q *question, ask store.TaskFinish, verdict string, before *oracle.Record, policy *schedule.Policy) {
	if verdict != "done" || before.Run != ask.Run {
		return
	}
	c, t := k.cluster, &k.tasks[q.task]
	switch ask.Status {
	case store.RunReturned, store.RunInterrupted:
		k.given = append(k.given[max(0, len(k.given)-50):], ask.Run)
		return
	case store.RunFailed:
		if policy.Abandoned == schedule.AbandonedRerun && ask.Failures < policy.Attempts && !slices.Contains(k.finals, ask.Run) {
			c.fail("P10: task %s has failed after %d of %d attempts", policy.Name, ask.Failures, policy.Attempts)
		}
		if ask.Failures > policy.Attempts {
			c.fail("P10: task %s was tried %d times, %d are allowed", policy.Name, ask.Failures, policy.Attempts)
		}
	case store.RunAbandoned:
		if policy.Abandoned == schedule.AbandonedRerun && before.Crashes+1 < schedule.MaxCrashes && policy.Missed == schedule.RunAll {
			c.fail("P10: a run of task %s was given up after %d leaders had died of it", policy.Name, before.Crashes+1)
		}
	}
	t.finished = true
}

// byPolicy holds a claim against what the policy for missed slots asks for.
func (k *checker) byPolicy(task int, policy *schedule.Policy, ask store.TaskClaim, before *oracle.Record) {
	c := k.cluster
	interval := schedule.Interval(policy.Schedule).Milliseconds()
	if interval == 0 {
		return
	}
	passed := (ask.Slot - store.Natural(before.Next)) / interval
	if passed != int64(ask.Skipped) {
		c.fail("P10: of task %s slot %d is claimed with %d passed over, not %d", policy.Name, ask.Slot, ask.Skipped, passed)
	}
	alone := before.Finished+2000 < store.Natural(before.Next) // no run overlapped its slots
	if policy.Missed == schedule.RunAll && alone && passed > 0 && c.clocksHold() {
		due := (c.master.clock(c.now)-store.Natural(before.Next))/interval + 1
		if due <= int64(policy.MaxCatchUp) {
			c.fail("P10: of %d slots of task %s %d are passed over, though %d may be caught up on", due, policy.Name, passed, policy.MaxCatchUp)
		}
	}
	c.checks.late(task, policy, ask)
}

// late holds how late a slot is claimed while nothing is wrong.
func (k *checker) late(task int, policy *schedule.Policy, ask store.TaskClaim) {
	c := k.cluster
	if c.now < c.lookout.disturbed+c.calmBound()+setClock {
		return
	}
	late := c.master.clock(c.now) - ask.Slot
	grace := (policy.Grace + policy.Jitter).Milliseconds() + tolerance
	if policy.Missed == schedule.SkipMissed && policy.Overlap == schedule.OverlapSkip && late > grace {
		c.fail("P10: slot %d of task %s is claimed %d ms late, its grace is %v", ask.Slot, c.jobs[task].policy.Name, late, policy.Grace)
	}
}

// grid counts the slots between.
func (k *checker) grid(task int, policy *schedule.Policy, before, after *oracle.Record, claimed int64) {
	from, to := store.Natural(before.Next), store.Natural(after.Next)
	slots := int64(0)
	for at := time.UnixMilli(from).UTC(); at.UnixMilli() < to && slots < schedule.MaxSteps; slots++ {
		at = policy.Schedule.Next(at)
	}
	skipped := after.Skipped - before.Skipped
	k.cluster.Tally.Skipped += skipped
	if slots != claimed+skipped && slots < schedule.MaxSteps {
		k.cluster.fail("P10: of %d slots of task %s %d were claimed and %d counted as skipped", slots, k.cluster.jobs[task].policy.Name, claimed, skipped)
	}
}

// tasksRun holds the tasks in the calm: what is due is taken up, and what runs is run by who leads.
func (c *Cluster) tasksRun(leader *instance) {
	if c.profile.Alone {
		return
	}
	for i := range c.jobs {
		j, r := c.jobs[i].of(leader.host), &c.master.tasks[i].Record
		now := c.master.clock(c.now)
		patience := c.taskPatience(i).Milliseconds()
		next := store.Natural(r.Next)
		switch {
		case !r.There && c.profile.NoInfo > 0: // it was lost, which shows when the next slot is due
		case r.Token != leader.cand.Token() && c.checks.lost > c.checks.termBegan && now <= next && c.profile.NoInfo > 0: // likewise
		case r.Token != leader.cand.Token():
			c.fail("P10: task %s belongs to the term %d, and %s leads with token %d", j.Name, r.Token, leader.id, leader.cand.Token())
		case r.Run != "" && !c.held(i) && c.checks.running[i] == nil && now-r.Started > patience+c.jobs[i].longest().Milliseconds():
			c.fail("P10: run %s of task %s is on since %d, and nobody runs it", r.Run, j.Name, r.Started)
		case r.Run != "" && r.Run == c.checks.tasks[i].canceled && c.now > c.checks.tasks[i].canceledAt+c.taskPatience(i)+schedule.LookEvery:
			c.fail("P10: run %s of task %s is on %v after it was canceled", r.Run, j.Name, c.now-c.checks.tasks[i].canceledAt)
		case r.Run == "" && !c.held(i) && waits(r, c.checks.tasks[i].triggered, now) > patience+schedule.LookEvery.Milliseconds():
			c.fail("P10: trigger %q of task %s waits for %d ms and nobody takes it up", r.Trigger, j.Name, waits(r, c.checks.tasks[i].triggered, now))
		case r.Run == "" && next == 0:
			c.fail("P10: task %s has no next slot", j.Name)
		case r.Run == "" && !c.held(i) && now > max(next+j.Delay(next).Milliseconds(), r.Finished)+patience: // it may have waited for a run
			c.fail("P10: slot %d of task %s has been due for %d ms and nobody takes it up", next, j.Name, now-next)
		case recordOf(r).Follows(j.Spec) && next > now+c.farthest(j):
			c.fail("P10: the next slot of task %s is %d ms away", j.Name, next-now)
		}
	}
}

// waits is for how long the trigger of a record could have been taken up, in ms: since it was asked
// for, and nothing ran.
func waits(r *oracle.Record, triggered, now int64) int64 {
	if r.Trigger == "" {
		return 0
	}
	return now - max(triggered, r.Finished)
}

// held reports whether the operator holds a task, or has not let it go on for long enough. Nor is a
// run that its leader left behind taken over then.
func (c *Cluster) held(i int) bool {
	return c.master.tasks[i].Paused || c.now < c.checks.tasks[i].resumed+c.taskPatience(i)
}

// farthest is how far ahead the next slot may be, in ms.
func (c *Cluster) farthest(p *schedule.Policy) int64 {
	now := time.UnixMilli(c.master.clock(c.now)).UTC()
	second := p.Schedule.Next(p.Schedule.Next(now)).Sub(now)
	return (max(second, p.InitialDelay) + p.InitialDelay + 2*time.Minute).Milliseconds()
}

// longest is how long a run may take with all its attempts and pauses.
func (j *job) longest() time.Duration {
	return time.Duration(j.policy.Attempts) * (j.takes + j.policy.MaxBackoff + 2*schedule.CallBound)
}

// taskPatience is how long after the last fault a task may stand: a record that has moved is looked
// at again, and who was paused is after a minute.
func (c *Cluster) taskPatience(i int) time.Duration {
	j := &c.jobs[i]
	bound := schedule.LookEvery + schedule.LongestPause + 3*schedule.CallBound + j.policy.MaxBackoff + 2*time.Second
	return bound + time.Duration(2*c.profile.Rate*float64(bound))
}

// tasksBound is how long after the last fault every task must be in order.
func (c *Cluster) tasksBound() (bound time.Duration) {
	for i := range c.jobs {
		bound = max(bound, c.taskPatience(i)+c.jobs[i].longest())
	}
	return bound + c.leaderBound()
}
