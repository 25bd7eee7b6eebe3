package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/store"
)

// table is a task with a store that answers at once, by a clock of its own: 1 ms of it is 1 ms of
// the monotonic clock. All leaders of the test share it.
type table struct {
	*testing.T
	record oracle.Task
	now    time.Duration
	runs   int
}

// leader is the task in one term.
type leader struct {
	*table
	*Machine
	term     *Term
	policy   Policy
	attempt  Attempt // that was begun last
	began    int     // attempts
	noted    []Note
	outcomes []Outcome // of the attempts that have returned
}

const tableEpoch = tableBase

func (b *table) redis() int64 { return tableEpoch + b.now.Milliseconds() }

// lead begins a term.
func (b *table) lead(token int64, p Policy, memory *Memory) *leader {
	p.Name, p.Spec, p.Attempts = "t", "s", max(p.Attempts, 1)
	if p.Schedule == nil {
		p.Schedule = Every(10 * time.Minute)
	}
	term := &Term{Token: token, Instance: "i", Random: func() float64 { return 1 }, NewRun: func() string { b.runs++; return "run" + strconv.Itoa(b.runs) }}
	term.Tick(b.now)
	l := &leader{table: b, Machine: NewMachine(p, term, memory), term: term, policy: p}
	l.Helper()
	l.drive()
	return l
}

// drive goes on until there is something to wait for, and returns how long.
func (l *leader) drive() (wait time.Duration) {
	for range 100 {
		l.term.Tick(l.now)
		s := l.Step()
		l.take()
		switch {
		case s.Question != nil:
			s.Question.Ask(l.policy.Schedule)
			require.False(l, l.Answered(s.Question))
		case s.Call != nil:
			try := l.Sent()
			l.term.Clock.Learn(l.now, l.now, l.redis())
			require.True(l, l.Awaits())
			l.Answer(try, l.answer(s.Call.Ask))
		default:
			if wait = s.Wait; s.Due != 0 {
				wait = min(wait, l.term.Clock.Until(s.Due, l.now))
			}
			if wait > 0 {
				return wait
			}
		}
		l.take()
	}
	l.Fatal("it never waits")
	return 0
}

func (l *leader) take() {
	for n := range l.Take() {
		if n.Kind == Start {
			l.attempt = n.Attempt
			l.began++
			continue
		}
		if n.Kind == Returned {
			l.outcomes = append(l.outcomes, n.Outcome)
			continue
		}
		if n.Kind != GoesOn {
			l.noted = append(l.noted, n)
		}
	}
}

// pass lets time pass.
func (l *leader) pass(d time.Duration) {
	for end := l.now + d; l.now < end; {
		l.now = min(l.now+l.drive(), end)
	}
	l.drive()
}

// ends returns from the attempt that is on.
func (l *leader) ends(e End) {
	l.term.Tick(l.now)
	l.Ended(e)
	l.drive()
}

var (
	succeeds = End{Started: true}
	fails    = End{Started: true, Failed: true, Text: "bad"}
	isCut    = End{Started: true, Failed: true, Text: "cut", Cut: true, Over: true}
)

// answer is what the rules of the scripts say.
func (b *table) answer(ask any) store.TaskReply {
	now, r := b.redis(), &b.record
	verdict := "ok"
	switch ask := ask.(type) {
	case store.TaskOpen:
		verdict = r.Open(ask.Token, ask.Lease, false)
	case store.TaskPlan:
		verdict = r.Plan(ask.Token, ask.Expect, fmt.Sprint(ask.Next), ask.Spec, ask.Skipped, ask.Paused, ask.Pause)
	case store.TaskClaim:
		verdict = r.Claim(now, oracle.Claim{
			Token: ask.Token, Run: ask.Run, Kind: ask.Kind, Expect: ask.Expect, Slot: ask.Slot, Next: fmt.Sprint(ask.Next), Spec: ask.Spec,
			Instance: ask.Instance, Skipped: int64(ask.Skipped), Attempt: int64(ask.Attempt), Pauses: ask.Pauses,
		})
	case store.TaskRetry:
		verdict = r.Retry(now, ask.Token, ask.Run, int64(ask.Attempt), int64(ask.Failures), ask.In.Milliseconds())
	case store.TaskFinish:
		verdict = r.Finish(now, ask.Token, ask.Run, string(ask.Status), ask.Text, int64(ask.Attempt), int64(ask.Failures), max(ask.RetryIn, 0).Milliseconds())
	}
	since, until, _ := strings.Cut(r.LastPause, " ")
	return store.TaskReply{Verdict: verdict, Now: now, Record: store.TaskRecord{
		Due: r.Next, Next: store.Natural(r.Next), Spec: r.Spec, Token: r.Token, Run: r.Run, Done: r.Done, Status: store.RunState(r.Status),
		Scheduled: r.Scheduled, Started: r.Started, Finished: r.Finished, Attempt: int(r.Attempt), Crashes: int(r.Crashes), Skipped: r.Skipped,
		Paused: r.Paused, RunToken: r.RunToken, Failures: int(r.Failures), RetryAt: r.RetryAt, RetryIn: r.RetryIn, Cancel: r.Record.Cancel,
		Pauses: r.Pauses, PausedAt: store.Natural(since), ResumedAt: store.Natural(until), Trigger: r.Record.Trigger, RunTrigger: r.RunOf, Args: r.Args,
	}}
}

// TestMachineRunsItsSlots: each on time, numbered, and planned by the schedule.
func TestMachineRunsItsSlots(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{InitialDelay: time.Minute}, new(Memory))
	require.Equal(t, time.Minute, l.drive())
	for n := range 3 {
		slot := tableEpoch + tableMinute + int64(n)*10*tableMinute
		l.now = time.Duration(slot-tableEpoch) * time.Millisecond
		l.drive()
		require.Equal(t, n+1, l.began)
		slow := time.Minute
		if n == 0 { // none has succeeded yet
			slow = 10 * time.Minute
		}
		require.Equal(t, Attempt{Run: "run" + strconv.Itoa(n+1), Slot: slot, Number: 1, Slow: slow}, l.attempt)
		require.True(t, l.Busy())
		l.ends(succeeds)
		require.False(t, l.Busy())
		require.Equal(t, "succeeded", b.record.Status)
	}
	require.Empty(t, l.noted)
}

// trigger asks for a run, for an hour.
func (b *table) trigger(id, args string) string {
	return b.record.Trigger(b.redis(), id, args, "somebody", b.redis(), time.Hour.Milliseconds(), true, b.record.Triggers)
}

// TestMachineTrigger: what was triggered runs once, between the slots, which stay as they are, with
// its arguments, and a slot after it has none.
func TestMachineTrigger(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{}, new(Memory))
	next := b.record.Next
	l.pass(time.Minute)
	require.Equal(t, "ok", b.trigger("t1", "[1]"))
	l.pass(time.Minute)
	require.Zero(t, l.began, "it knows nothing of it")
	l.News()
	l.drive()
	require.Equal(t, 1, l.began)
	require.Equal(t, Attempt{Run: "run1", Slot: b.redis(), Number: 1, Trigger: "t1", Args: "[1]", Slow: 8 * time.Minute}, l.attempt)
	require.Equal(t, "waiting", func() string { b.trigger("t2", "[2]"); return b.trigger("t3", "") }(), "t2 waits for the run")
	l.News()
	l.drive()
	require.Equal(t, 1, l.began, "a task does not overlap itself")
	l.ends(succeeds)
	require.Equal(t, "[2]", l.attempt.Args)
	l.ends(succeeds)
	require.Equal(t, 2, l.began)
	require.Equal(t, next, b.record.Next)
	l.pass(8 * time.Minute)
	require.Equal(t, 3, l.began)
	require.Empty(t, l.attempt.Trigger+l.attempt.Args)
	require.Empty(t, l.noted)
}

// TestMachineTriggerWithoutALeader: it waits for one, until its time is over.
func TestMachineTriggerWithoutALeader(t *testing.T) {
	b := &table{T: t}
	require.Equal(t, "ok", b.trigger("t1", ""))
	b.now += time.Hour - time.Millisecond
	l := b.lead(1, Policy{Schedule: OnDemand{}}, new(Memory))
	require.Equal(t, "t1", l.attempt.Trigger)
	l.ends(succeeds)
	require.Equal(t, "ok", b.trigger("t2", ""))
	b.now += time.Hour
	l = b.lead(2, Policy{Schedule: OnDemand{}}, new(Memory))
	require.Zero(t, l.began)
	require.Equal(t, []Note{{Kind: Expired, Run: "t2"}}, l.noted)
	require.Empty(t, b.record.Record.Trigger)
	require.Equal(t, Forever, l.drive(), "a task without a schedule waits for nothing else")
}

// TestMachineTriggerOfADeadLeader: the next leader runs it again with its arguments, whatever has
// become due since, unless it is to fail.
func TestMachineTriggerOfADeadLeader(t *testing.T) {
	for _, abandoned := range []Abandoned{AbandonedRerun, AbandonedFail} {
		b := &table{T: t}
		policy := Policy{Missed: SkipMissed, Abandoned: abandoned}
		l := b.lead(1, policy, new(Memory))
		b.trigger("t1", "[1]")
		l.News()
		l.drive()
		require.Equal(t, 1, l.began)
		b.now += 65 * time.Minute // some slots were missed
		l = b.lead(2, policy, new(Memory))
		if abandoned == AbandonedFail {
			require.Zero(t, l.began)
			require.Equal(t, GivenUp, l.noted[0].Kind)
			continue
		}
		require.Equal(t, 1, l.began)
		require.Equal(t, Attempt{Run: "run2", Slot: tableEpoch, Number: 2, Trigger: "t1", Args: "[1]", Slow: time.Minute}, l.attempt)
	}
}

// TestMachineTriggerThatRedisForgot: a process that has run it does not run it again, also if it
// has run others since; one that never began runs.
func TestMachineTriggerThatRedisForgot(t *testing.T) {
	b, memory := &table{T: t}, new(Memory)
	b.trigger("t1", "")
	before := b.record
	l := b.lead(1, Policy{}, memory)
	l.ends(succeeds)
	b.trigger("t2", "")
	l.News()
	l.drive()
	l.ends(succeeds)
	require.Equal(t, 2, l.began)
	b.record = before
	l = b.lead(2, Policy{}, memory)
	require.Zero(t, l.began)
	require.Equal(t, "succeeded", b.record.Status)
	require.Equal(t, "run1", b.record.Done)
	require.Empty(t, b.record.Record.Trigger)
}

// TestMachineTriggerOfAPausedTask: it waits, and the slots go on passing.
func TestMachineTriggerOfAPausedTask(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{RunOnElection: true}, new(Memory))
	l.ends(succeeds)
	b.record.Pause(b.redis(), true, "", "somebody")
	b.trigger("t1", "")
	l.News()
	l.pass(25 * time.Minute)
	require.Equal(t, 1, l.began)
	require.Equal(t, tableEpoch+30*tableMinute, store.Natural(b.record.Next))
	b.record.Pause(b.redis(), false, "1", "")
	l.pass(LookEvery)
	require.Equal(t, "t1", l.attempt.Trigger)
}

// TestMachineRerunOfAPausedTask: a run that another leader left behind waits, and the slots of the
// pause are not made up for.
func TestMachineRerunOfAPausedTask(t *testing.T) {
	for missed, jitter := range map[Missed]time.Duration{RunOnce: 0, RunAll: 0, SkipMissed: 6 * time.Minute} {
		b := &table{T: t}
		dead := b.lead(1, Policy{Missed: missed, Jitter: jitter}, new(Memory))
		dead.pass(16 * time.Minute) // the slot at 10
		require.Equal(t, 1, dead.began)
		b.record.Pause(b.redis(), true, "", "somebody")
		l := b.lead(2, Policy{Missed: missed, Jitter: jitter}, new(Memory))
		l.pass(31*time.Minute + 30*time.Second)
		require.Zero(t, l.began)
		b.record.Pause(b.redis(), false, "1", "")
		l.pass(LookEvery)
		require.Equal(t, 1, l.began)
		require.Equal(t, tableEpoch+10*tableMinute, l.attempt.Slot)
		l.ends(succeeds)
		l.pass(time.Minute)
		require.Equal(t, 1, l.began, missed)
		l.pass(LookEvery + jitter)
		require.Equal(t, 2, l.began)
		require.Equal(t, tableEpoch+50*tableMinute, l.attempt.Slot)
	}
}

// pause pauses the task, or lets it go on, at a minute.
func (b *table) pause(minute int, paused bool) {
	b.now = time.Duration(minute) * time.Minute
	b.record.Pause(b.redis(), paused, b.record.Pauses, "somebody")
}

// TestMachineAfterAPause: a slot of a pause is not made up for, whoever leads after it and whatever
// kept the task from letting it pass meanwhile. What was missed before it, or after it, is.
func TestMachineAfterAPause(t *testing.T) {
	slot := func(minute int64) int64 { return tableEpoch + minute*tableMinute }
	tests := []struct {
		name                        string
		policy                      Policy
		until, pauses, resumes, led int // a leader until then; the pause; another leader, minutes
		runs                        []int64
		next                        int64
	}{
		{"slots of the pause", Policy{}, 12, 15, 45, 47, nil, 50},
		{"slots of the pause, all", Policy{Missed: RunAll}, 12, 15, 45, 47, nil, 50},
		{"one was missed before", Policy{}, 5, 15, 45, 47, []int64{40}, 50},
		{"one was missed before, all", Policy{Missed: RunAll}, 5, 15, 45, 47, []int64{10}, 50},
		{"one was missed after", Policy{}, 12, 15, 35, 47, []int64{40}, 50},
		{"two were missed after, all", Policy{Missed: RunAll}, 12, 15, 25, 47, []int64{30, 40}, 50},
		{"at the very begin", Policy{}, 12, 20, 21, 27, nil, 30},
		{"at the very end", Policy{}, 12, 15, 20, 27, []int64{20}, 30},
		{"by its jitter a slot begins at 28:42, in the pause", Policy{Jitter: 9 * time.Minute}, 18, 28, 29, 30, nil, 30},
		{"by its jitter a slot begins at 28:42, after the pause", Policy{Jitter: 9 * time.Minute}, 18, 19, 25, 30, []int64{20}, 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &table{T: t}
			l := b.lead(1, tt.policy, new(Memory))
			l.pass(time.Duration(tt.until) * time.Minute)
			if l.Busy() {
				l.ends(succeeds)
			}
			began := l.began
			require.Equal(t, tt.until >= 12, began == 1)
			b.pause(tt.pauses, true)
			b.pause(tt.resumes, false)
			b.now = time.Duration(tt.led) * time.Minute
			l = b.lead(2, tt.policy, new(Memory))
			var runs []int64
			for l.began > len(runs) {
				runs = append(runs, (l.attempt.Slot-tableEpoch)/tableMinute)
				l.ends(succeeds)
			}
			require.Equal(t, tt.runs, runs)
			require.Equal(t, slot(tt.next), store.Natural(b.record.Next))
		})
	}
}

// TestMachineAfterAPauseAndAnotherSchedule: likewise for a slot that was due under a schedule that
// has changed since.
func TestMachineAfterAPauseAndAnotherSchedule(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{}, new(Memory))
	l.pass(5 * time.Minute)
	b.pause(8, true)
	b.pause(12, false)
	b.record.Spec = "another"
	l = b.lead(2, Policy{}, new(Memory))
	l.pass(3 * time.Minute)
	require.Zero(t, l.began)
	l.pass(10 * time.Minute)
	require.Equal(t, 1, l.began)
}

// TestMachineAfterAPauseThatItHasNotSeen: the leader hears of a pause only if it asks. A task that
// waits for a place, or for its own run, does not.
func TestMachineAfterAPauseThatItHasNotSeen(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{}, new(Memory))
	l.Block(true)
	b.pause(8, true)
	l.pass(4 * time.Minute)
	require.True(t, l.Wants())
	b.pause(18, false)
	l.Block(false)
	l.pass(time.Minute)
	require.Zero(t, l.began)
	require.Zero(t, b.record.Skipped)
	require.Equal(t, tableEpoch+20*tableMinute, store.Natural(b.record.Next))
	l.pass(2 * time.Minute)
	require.Equal(t, 1, l.began)
	require.Empty(t, l.noted)

	b = &table{T: t}
	l = b.lead(1, Policy{Overlap: OverlapQueue}, new(Memory))
	l.pass(11 * time.Minute)
	require.Equal(t, 1, l.began)
	b.pause(15, true)
	b.pause(25, false)
	l.pass(2 * time.Minute)
	l.ends(succeeds)
	require.Equal(t, 1, l.began)
	l.pass(4 * time.Minute)
	require.Equal(t, 2, l.began)
	require.Equal(t, tableEpoch+30*tableMinute, l.attempt.Slot)
}

// TestMachineRerunAfterAPause: a run that was left behind is run again after a pause. The slots of
// the pause do not stand for it, since they are not run.
func TestMachineRerunAfterAPause(t *testing.T) {
	for _, policy := range []Policy{{}, {Missed: SkipMissed}} {
		b := &table{T: t}
		dead := b.lead(1, policy, new(Memory))
		dead.pass(11 * time.Minute)
		require.Equal(t, 1, dead.began)
		b.pause(15, true)
		b.pause(48, false)
		l := b.lead(2, policy, new(Memory))
		require.Equal(t, 1, l.began)
		require.Equal(t, tableEpoch+10*tableMinute, l.attempt.Slot)
		l.ends(succeeds)
		require.Equal(t, 1, l.began)
		require.Equal(t, tableEpoch+50*tableMinute, store.Natural(b.record.Next))
	}
}

// TestMachineRerunInAPauseThatItHasNotSeen: a run that waits for its next attempt is not given up
// for slots that pass in a pause of which its leader has not heard.
func TestMachineRerunInAPauseThatItHasNotSeen(t *testing.T) {
	for _, policy := range []Policy{{Attempts: 3}, {Attempts: 3, Missed: SkipMissed}} {
		b := &table{T: t}
		last := b.lead(1, policy, new(Memory))
		last.pass(11 * time.Minute)
		require.Equal(t, 1, last.began)
		last.ends(End{Started: true, Failed: true, Text: "later", In: 42 * time.Minute, Over: true})
		l := b.lead(2, policy, new(Memory))
		l.pass(time.Minute)
		b.record.Pause(b.redis(), true, b.record.Pauses, "somebody")
		l.pass(29 * time.Minute)
		require.Zero(t, l.began)
		b.record.Pause(b.redis(), false, b.record.Pauses, "")
		l.pass(8 * time.Minute)
		require.Zero(t, l.began)
		l.pass(5 * time.Minute)
		require.Empty(t, l.noted)
		require.Equal(t, 1, l.began)
		require.Equal(t, tableEpoch+10*tableMinute, l.attempt.Slot)
	}
}

// TestMachinePauseOfTheFuture: Redis's clock was set back during a pause. It says nothing about the
// slots until then.
func TestMachinePauseOfTheFuture(t *testing.T) {
	b := &table{T: t}
	b.record.LastPause = fmt.Sprint(tableEpoch+tableMinute, " ", tableEpoch+60*tableMinute)
	l := b.lead(1, Policy{}, new(Memory))
	l.pass(11 * time.Minute)
	require.Equal(t, 1, l.began)
}

// TestPassed: what has begun to start has passed.
func TestPassed(t *testing.T) {
	p := Policy{Name: "t", Schedule: Every(10 * time.Minute), Jitter: 9 * time.Minute}
	for now := p.start(tableEpoch); now < tableEpoch+60*tableMinute; now += tableMinute / 2 {
		want := tableEpoch
		for p.start(want) <= now {
			want += 10 * tableMinute
		}
		require.Equal(t, want, p.passed(tableEpoch, now), "%d minutes", (now-tableEpoch)/tableMinute)
	}
}

// TestMachineRerunOfAPausedTaskThatChanged: the schedule is another one by then, and what was due
// under the old one has passed too.
func TestMachineRerunOfAPausedTaskThatChanged(t *testing.T) {
	b := &table{T: t}
	dead := b.lead(1, Policy{}, new(Memory))
	dead.pass(16 * time.Minute)
	b.record.Pause(b.redis(), true, "", "somebody")
	b.now += 10 * time.Minute // the slot at 20
	b.record.Spec = "another"
	l := b.lead(2, Policy{}, new(Memory))
	l.pass(LookEvery)
	b.record.Pause(b.redis(), false, "1", "")
	l.pass(LookEvery)
	l.ends(succeeds)
	l.pass(LookEvery)
	require.Equal(t, tableEpoch+30*tableMinute, store.Natural(b.record.Next))
	require.Equal(t, 1, l.began)
	require.Equal(t, tableEpoch+10*tableMinute, l.attempt.Slot)
}

// TestMachineOverlap: what comes due during a run is passed over, or waits for it.
func TestMachineOverlap(t *testing.T) {
	for overlap, want := range map[Overlap]int{OverlapSkip: 1, OverlapQueue: 2} {
		b := &table{T: t}
		l := b.lead(1, Policy{Overlap: overlap}, new(Memory))
		l.pass(35 * time.Minute) // slots at 10, 20 and 30; the first one runs
		require.Equal(t, 1, l.began)
		l.ends(succeeds)
		require.Equal(t, want, l.began, overlap)
		if overlap == OverlapQueue {
			require.Equal(t, tableEpoch+30*tableMinute, l.attempt.Slot, "the latest")
			l.ends(succeeds)
		}
		require.Equal(t, int64(3-want), b.record.Skipped)
		require.Equal(t, tableEpoch+40*tableMinute, store.Natural(b.record.Next))
	}
}

// TestMachineRetries: a failed attempt is noted, then repeated behind its pause, as often as it
// may.
func TestMachineRetries(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{Attempts: 3, Backoff: time.Second, MaxBackoff: time.Minute}, new(Memory))
	l.pass(10 * time.Minute)
	l.ends(fails)
	require.Equal(t, int64(2), b.record.Attempt, "noted before it begins")
	l.pass(time.Second - time.Millisecond)
	require.Equal(t, 1, l.began)
	l.pass(time.Millisecond)
	require.Equal(t, 2, l.attempt.Number)
	l.ends(fails)
	l.pass(2*time.Second - time.Millisecond)
	require.Equal(t, 2, l.began)
	l.pass(time.Millisecond)
	l.ends(fails)
	require.Equal(t, "failed", b.record.Status)
	require.Equal(t, int64(3), b.record.Failures)
	require.Equal(t, []Outcome{Retried, Retried, Failed}, l.outcomes)
	l.pass(9 * time.Minute)
	require.Equal(t, 3, l.began)
}

// TestMachineRetryIsFenced: an attempt fails after another one has begun to lead, and then Redis
// loses what it knew of the run. The process that leads again owes it the attempts that are left:
// none of them is lost because the next one could not be noted.
func TestMachineRetryIsFenced(t *testing.T) {
	for abandoned, left := range map[Abandoned]int{AbandonedRerun: 2, AbandonedFail: 0} {
		b, memory := &table{T: t}, new(Memory)
		policy := Policy{Attempts: 3, Backoff: time.Second, MaxBackoff: time.Minute, Abandoned: abandoned}
		old := b.lead(1, policy, memory)
		old.pass(10*time.Minute - time.Second)
		before := b.record
		old.pass(time.Second)
		require.Equal(t, 1, old.began)
		b.lead(2, policy, new(Memory))
		old.ends(fails)
		require.False(t, old.Busy())

		b.record = before
		l := b.lead(3, policy, memory)
		for i := range left {
			l.pass(2 * time.Second)
			require.Equal(t, i+1, l.began, abandoned)
			l.ends(fails)
		}
		require.Equal(t, left, l.began, abandoned)
		require.Equal(t, "failed", b.record.Status, abandoned)
		require.Equal(t, int64(1+left), b.record.Failures, abandoned)
	}
}

// TestMachineRetriesAsAsked: an attempt that fails may say when the next one comes, and that none
// does.
func TestMachineRetriesAsAsked(t *testing.T) {
	later := End{Started: true, Failed: true, Text: "bad", In: time.Hour}
	never := End{Started: true, Failed: true, Text: "bad", Final: true}
	policy := Policy{Attempts: 3, Backoff: time.Second, MaxBackoff: time.Minute, Schedule: Every(24 * time.Hour)}

	b := &table{T: t}
	l := b.lead(1, policy, new(Memory))
	l.pass(24 * time.Hour)
	l.ends(later)
	l.pass(time.Hour - time.Millisecond)
	require.Equal(t, 1, l.began)
	l.pass(time.Millisecond)
	require.Equal(t, 2, l.began)
	l.ends(never)
	require.Equal(t, "failed", b.record.Status)
	require.Equal(t, int64(2), b.record.Failures, "one attempt is left, and not made")
	require.Equal(t, []Outcome{Retried, Failed}, l.outcomes)

	// The last attempt is the last one, whatever it asks for.
	l.pass(23 * time.Hour)
	for range 3 {
		l.ends(later)
		l.pass(time.Hour)
	}
	require.Equal(t, "failed", b.record.Status)
	require.Equal(t, 5, l.began)

	// The next leader waits as well: for the rest of the pause if this one ends, for the pause if
	// it dies, and never longer than was asked for, though Redis's clock is set back.
	l.pass(24*time.Hour - 3*time.Hour)
	require.Equal(t, 6, l.began)
	l.ends(later)
	l.pass(20 * time.Minute)
	l.term.End()
	l.drive()
	require.Equal(t, "interrupted", b.record.Status)
	l = b.lead(2, policy, new(Memory))
	l.pass(40*time.Minute - time.Millisecond)
	require.Zero(t, l.began)
	l.pass(time.Millisecond)
	require.Equal(t, 1, l.began)
	l.ends(later)
	b.record.RetryAt += (30 * time.Minute).Milliseconds() // as after a step of the clock
	l = b.lead(3, policy, new(Memory))
	require.Equal(t, 1, l.began)

	// What was cut short is repeated, but not if it says that it has failed.
	cutNever := isCut
	cutNever.Final = true
	l.ends(cutNever)
	require.Equal(t, "failed", b.record.Status)
}

// TestMachineRetryFollowsTheClock: a step of Redis's clock makes no pause longer or shorter.
func TestMachineRetryFollowsTheClock(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Hour} {
		b := &table{T: t}
		l := b.lead(1, Policy{Attempts: 2, Backoff: 20 * time.Minute, MaxBackoff: 20 * time.Minute, Schedule: Every(24 * time.Hour)}, new(Memory))
		l.pass(24 * time.Hour)
		l.ends(fails)
		at := l.run.retryAt
		l.Stepped(step)
		require.Equal(t, at+step.Milliseconds(), l.run.retryAt)
	}
}

// TestMachineTermEndsBeforeAnAttempt: a first one that has not started is given back, a further one
// leaves the run as the one before left it.
func TestMachineTermEndsBeforeAnAttempt(t *testing.T) {
	b := &table{T: t}
	policy := Policy{Attempts: 3, Backoff: time.Second, MaxBackoff: time.Minute}
	l := b.lead(1, policy, new(Memory))
	l.pass(10 * time.Minute)
	l.ends(End{Failed: true, Over: true})
	require.Equal(t, "returned", b.record.Status)

	l = b.lead(2, policy, new(Memory))
	require.Equal(t, 1, l.attempt.Number, "it had not begun")
	l.ends(fails)
	l.pass(time.Second)
	require.Equal(t, 2, l.attempt.Number)
	l.ends(End{Failed: true, Over: true})
	require.Equal(t, "interrupted", b.record.Status)
	require.Equal(t, "bad", b.record.Error)
	require.Equal(t, int64(1), b.record.Attempt)
}

// TestMachineFailsAfterItsTerm: an attempt that fails when its term is over counts, and the next
// leader makes the next one, unless the task is not to be run again.
func TestMachineFailsAfterItsTerm(t *testing.T) {
	late := End{Started: true, Failed: true, Text: "bad", Over: true}
	for _, c := range []struct {
		abandoned Abandoned
		status    string
		outcome   Outcome
	}{{AbandonedRerun, "interrupted", Retried}, {AbandonedFail, "failed", Failed}} {
		b := &table{T: t}
		l := b.lead(1, Policy{Attempts: 2, Backoff: time.Second, MaxBackoff: time.Minute, Abandoned: c.abandoned}, new(Memory))
		l.pass(10 * time.Minute)
		l.ends(late)
		require.Equal(t, c.status, b.record.Status)
		require.Equal(t, []Outcome{c.outcome}, l.outcomes)
		require.Equal(t, int64(1), b.record.Failures)
	}
}

// cancel is what TaskScheduler.Cancel does, with the hint.
func (l *leader) cancel(run string) {
	require.Equal(l, "ok", l.table.record.Cancel(l.table.redis(), run, store.CanceledText))
	l.News()
	l.drive()
}

// TestMachineCancel: a run that is to end is ended, during an attempt, between two, and after its
// leader has died; it is neither tried again nor run again, and no other run is ended.
func TestMachineCancel(t *testing.T) {
	policy := Policy{Attempts: 3, Backoff: time.Minute, MaxBackoff: time.Minute}
	t.Run("during an attempt", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		l.cancel("run1")
		require.Equal(t, []Note{{Kind: Cancel, Run: "run1"}}, l.noted)
		l.News()
		l.drive()
		require.Len(t, l.noted, 1, "once")
		l.ends(fails)
		require.Equal(t, "canceled", b.record.Status)
		require.Equal(t, []Outcome{Canceled}, l.outcomes)
		l.pass(10 * time.Minute)
		require.Equal(t, 2, l.began, "the next slot runs")
		l.ends(succeeds)
		require.Equal(t, "succeeded", b.record.Status)
	})
	t.Run("succeeds all the same", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		l.cancel("run1")
		l.ends(succeeds)
		require.Equal(t, "succeeded", b.record.Status)
	})
	t.Run("between two attempts", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		l.ends(fails)
		l.cancel("run1")
		require.Equal(t, "canceled", b.record.Status)
		require.Equal(t, []Outcome{Retried, Canceled}, l.outcomes)
		l.pass(9 * time.Minute)
		require.Equal(t, 1, l.began)
	})
	t.Run("its leader dies", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		require.Equal(t, "ok", b.record.Cancel(b.redis(), "run1", "")) // nobody hears of it
		l = b.lead(2, policy, new(Memory))
		require.Zero(t, l.began)
		require.Equal(t, "canceled", b.record.Status)
		require.True(t, l.noted[0].Kind == GivenUp && l.noted[0].Canceled)
	})
	t.Run("its term ends", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		require.Equal(t, "ok", b.record.Cancel(b.redis(), "run1", ""))
		l.ends(isCut)
		require.Equal(t, "canceled", b.record.Status)
		l = b.lead(2, policy, new(Memory))
		require.Zero(t, l.began)
	})
	for left, leave := range map[string]func(*leader){
		"its term is over": func(l *leader) { l.term.End() }, "its task was unregistered": func(l *leader) { l.Retire() },
	} {
		t.Run(left+", and it goes on", func(t *testing.T) {
			b := &table{T: t}
			l := b.lead(1, policy, new(Memory))
			l.pass(10 * time.Minute)
			leave(l)
			l.News()
			l.drive()
			require.Empty(t, l.noted)
			l.cancel("run1")
			require.Equal(t, []Note{{Kind: Cancel, Run: "run1"}}, l.noted)
			l.ends(End{Started: true, Failed: true, Text: "bad"})
			require.Equal(t, "canceled", b.record.Status)
			require.False(t, l.Busy())
		})
		t.Run(left+", and it ends while the record is read", func(t *testing.T) {
			b := &table{T: t}
			l := b.lead(1, policy, new(Memory))
			l.pass(10 * time.Minute)
			leave(l)
			l.News()
			require.IsType(t, store.TaskRead{}, l.Step().Call.Ask)
			try := l.Sent() // never answered
			l.ends(succeeds)
			require.Equal(t, "succeeded", b.record.Status)
			require.False(t, l.Busy())
			require.False(t, l.Failed(try))
		})
	}
	t.Run("it waits to be run again", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		l.ends(End{Started: true, Failed: true, Text: "bad", Cut: true, Over: true, In: time.Minute})
		require.Equal(t, "interrupted", b.record.Status)
		l = b.lead(2, policy, new(Memory))
		require.Equal(t, "ok", b.record.Cancel(b.redis(), "run1", "")) // nobody hears of it
		l.pass(2 * time.Minute)
		require.Zero(t, l.began)
		require.Equal(t, "canceled", b.record.Status)
	})
	for name, end := range map[string]func(*leader){
		"interrupted": func(l *leader) {
			l.ends(End{Started: true, Failed: true, Text: "bad", Cut: true, Over: true, In: 30 * time.Minute})
		},
		"left behind": func(l *leader) {
			l.table.record.Retry(l.table.redis(), 1, "run1", 2, 1, (30 * time.Minute).Milliseconds())
		},
	} {
		t.Run(name+", it waits to be run again, and a slot is due", func(t *testing.T) {
			b := &table{T: t}
			l := b.lead(1, policy, new(Memory))
			l.pass(10 * time.Minute)
			end(l)
			l = b.lead(2, policy, new(Memory))
			l.pass(10*time.Minute + LookEvery/2)
			require.Zero(t, l.began)
			l.cancel("run1")
			require.Equal(t, 1, l.began, "it waits no longer")
		})
	}
	t.Run("a leader has died, and the task is paused", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		b.record.Pause(b.redis(), true, "", "")
		l = b.lead(2, policy, new(Memory))
		require.Equal(t, "ok", b.record.Cancel(b.redis(), "run1", ""))
		b.record.Pause(b.redis(), false, "1", "")
		l.pass(2 * time.Minute)
		require.Zero(t, l.began)
		require.Equal(t, "canceled", b.record.Status)
	})
	t.Run("another run", func(t *testing.T) {
		b := &table{T: t}
		l := b.lead(1, policy, new(Memory))
		l.pass(10 * time.Minute)
		l.ends(succeeds)
		l.pass(10 * time.Minute)
		require.Equal(t, "moved", b.record.Cancel(b.redis(), "run1", ""))
		require.Equal(t, 2, l.began)
		require.Empty(t, l.noted)
	})
}

// TestMachineAbandoned: what becomes of a run whose leader died, or whose term ended.
func TestMachineAbandoned(t *testing.T) {
	for _, c := range []struct {
		policy Policy
		died   bool
		begun  int    // by the next leader
		status string // then
	}{
		{Policy{}, true, 1, "running"},
		{Policy{}, false, 1, "running"},
		{Policy{Abandoned: AbandonedFail}, true, 0, "abandoned"},
		{Policy{Abandoned: AbandonedFail}, false, 0, "failed"},
	} {
		b := &table{T: t}
		l := b.lead(1, c.policy, new(Memory))
		l.pass(10 * time.Minute)
		if !c.died {
			l.term.End()
			l.ends(isCut)
		}
		l = b.lead(2, c.policy, new(Memory))
		require.Equal(t, c.begun, l.began)
		require.Equal(t, c.status, b.record.Status)
		if c.begun > 0 {
			require.Equal(t, 2, l.attempt.Number)
			require.Equal(t, tableEpoch+10*tableMinute, l.attempt.Slot)
		}
	}
}

// TestMachinePoison: after three leaders died of a task in a row it is not run again, on election
// neither, until its next slot.
func TestMachinePoison(t *testing.T) {
	b := &table{T: t}
	policy := Policy{RunOnElection: true}
	began := 0
	for token := range int64(6) {
		began += b.lead(token+1, policy, new(Memory)).began
	}
	require.Equal(t, MaxCrashes, began)
	require.Equal(t, "abandoned", b.record.Status)
	l := b.lead(9, policy, new(Memory))
	l.pass(10 * time.Minute)
	require.Equal(t, 1, l.began)
	require.Equal(t, tableEpoch+10*tableMinute, l.attempt.Slot)
}

// TestMachineRunsOnElection: once a term.
func TestMachineRunsOnElection(t *testing.T) {
	b := &table{T: t}
	for token := range int64(3) {
		l := b.lead(token+1, Policy{RunOnElection: true}, new(Memory))
		require.Equal(t, 1, l.began)
		require.Equal(t, b.redis(), l.attempt.Slot)
		l.ends(succeeds)
		l.pass(2 * time.Minute)
		require.Equal(t, 1, l.began)
	}
}

// TestMachineRemembersItsRuns: a record that went back does not run what has run here.
func TestMachineRemembersItsRuns(t *testing.T) {
	b := &table{T: t}
	var memory Memory
	l := b.lead(1, Policy{}, &memory)
	before := b.record
	l.pass(10 * time.Minute)
	claimed := b.record
	l.ends(succeeds)
	for name, lost := range map[string]oracle.Task{"the claim": before, "the end": claimed} {
		b.record = lost
		l = b.lead(2, Policy{}, &memory)
		l.pass(time.Minute)
		require.Zero(t, l.began, name)
		require.Equal(t, "succeeded", b.record.Status, name)
		require.Equal(t, tableEpoch+20*tableMinute, store.Natural(b.record.Next), name)
	}
}

// TestMachineFenced: it does nothing beside a newer leader, and looks again after a while.
func TestMachineFenced(t *testing.T) {
	b := &table{T: t}
	old := b.lead(1, Policy{}, new(Memory))
	b.lead(2, Policy{}, new(Memory))
	old.pass(30 * time.Minute)
	require.Zero(t, old.began)
	require.Equal(t, Fenced, old.noted[0].Kind)
	require.InDelta(t, 21, len(old.noted), 1, "once a minute")
	b.record.Token = 1 // repaired
	old.pass(time.Minute)
	require.Equal(t, 1, old.began)
}

// TestMachineFollowsTheClock: a step of Redis's clock leaves no slot out of reach, and none
// forgotten.
func TestMachineFollowsTheClock(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{}, new(Memory))
	b.record.Next = strconv.FormatInt(tableEpoch+5*tableDay, 10) // as by a clock that was ahead
	l.now += time.Minute
	l.term.Tick(l.now)
	l.Look("")
	l.drive()
	l.Stepped(-5 * 24 * time.Hour)
	l.drive()
	require.Equal(t, b.redis()+10*tableMinute, store.Natural(b.record.Next))
}

// TestMachinesShareTheRoomOfNotes: a task whose notes were taken keeps no room for more, which
// would be half of the memory of ten thousand tasks. One that notes something while another's are
// taken has notes of its own.
func TestMachinesShareTheRoomOfNotes(t *testing.T) {
	term := &Term{Token: 1, NewRun: func() string { return "r" }, Random: func() float64 { return 1 }}
	var all []*Machine
	for range 3 {
		all = append(all, NewMachine(Policy{Schedule: Every(time.Hour), Spec: "s"}, term, new(Memory)))
	}
	for count := range 5 {
		for _, m := range all {
			m.note(Note{Kind: Skipped, Count: count})
			m.note(Note{Kind: GoesOn, Count: count})
		}
		for _, m := range all {
			var took []Note
			for n := range m.Take() {
				took = append(took, n)
				all[2].note(Note{Kind: Expired, Count: count})
			}
			require.Equal(t, []Note{{Kind: Skipped, Count: count}, {Kind: GoesOn, Count: count}}, took[:2])
			require.Len(t, took, map[bool]int{false: 2, true: 6}[m == all[2]], "those that came while they were taken come next")
		}
		require.Len(t, slices.Collect(all[2].Take()), 6)
		for _, m := range all {
			require.Zero(t, cap(m.notes))
		}
	}
}

// TestMachineSilence: a call is sent again after its bound, later ones behind longer pauses; a late
// answer to an earlier try counts as long as the call is asked.
func TestMachineSilence(t *testing.T) {
	b := &table{T: t}
	term := &Term{Token: 1, NewRun: func() string { return "r" }, Random: func() float64 { return 1 }}
	m := NewMachine(Policy{Schedule: Every(time.Hour), Spec: "s"}, term, new(Memory))
	m.Step()
	first := m.Sent()
	require.Nil(t, m.Step().Call, "one at a time")
	require.True(t, m.Awaits())
	term.Tick(CallBound)
	s := m.Step()
	require.Nil(t, s.Call)
	require.False(t, m.Awaits(), "it was given up")
	require.Equal(t, []Note{{Kind: Unanswered}}, slices.Collect(m.Take()))
	require.Positive(t, s.Wait)
	require.LessOrEqual(t, s.Wait, firstPause)
	term.Tick(CallBound + s.Wait)
	s = m.Step()
	require.NotNil(t, s.Call)
	second := m.Sent()
	require.True(t, m.Awaits())
	m.Answer(first, b.answer(s.Call.Ask))
	require.Nil(t, m.Calling(), "it counts all the same")
	require.False(t, m.Awaits())
	require.False(t, m.Failed(second))
}

// TestMachineEndOfTheTerm: what begins a run is dropped, what ends one is sent for a while.
func TestMachineEndOfTheTerm(t *testing.T) {
	b := &table{T: t}
	l := b.lead(1, Policy{}, new(Memory))
	l.pass(10 * time.Minute)
	l.term.End()
	l.term.Tick(l.now)
	l.Ended(succeeds)
	require.NotNil(t, l.Step().Call)
	l.Sent()
	l.term.Tick(l.now + FinishBound - 1)
	l.Step()
	require.True(t, l.Busy())
	l.term.Tick(l.now + FinishBound)
	l.Step()
	require.False(t, l.Busy())
	l.take()
	require.Equal(t, Untold, l.noted[len(l.noted)-1].Kind)

	m := NewMachine(Policy{Schedule: Every(time.Hour)}, l.term, new(Memory))
	s := m.Step()
	require.Nil(t, s.Call)
	require.False(t, m.Busy(), "nothing begins")

	term := &Term{Token: 1, NewRun: func() string { return "r" }}
	m = NewMachine(Policy{Schedule: Every(time.Hour)}, term, new(Memory))
	require.NotNil(t, m.Step().Call)
	term.End()
	require.Nil(t, m.Step().Call)
	require.False(t, m.Busy(), "what was not asked yet is not asked any more")

	b = &table{T: t}
	l = b.lead(1, Policy{}, new(Memory))
	l.now = 10 * time.Minute
	l.term.Tick(l.now)
	q := l.Step().Question
	q.Ask(Every(10 * time.Minute))
	l.Answered(q)
	b.answer(l.Calling().Ask) // its answer is lost
	l.Sent()
	l.term.End()
	l.drive()
	require.Equal(t, "returned", b.record.Status, "what may have been claimed is given back")
}

// TestMachineSchedule: an answer that comes when the task has moved on is dropped; a schedule that
// fails ends its task for the term.
func TestMachineSchedule(t *testing.T) {
	b := &table{T: t}
	term := &Term{Token: 1, NewRun: func() string { return "r" }, Random: func() float64 { return 1 }}
	m := NewMachine(Policy{Schedule: Every(time.Hour), Spec: "s"}, term, new(Memory))
	m.Answer(sent(m), b.answer(m.Calling().Ask))
	q := m.Step().Question
	m.Asked(q)
	require.Nil(t, m.Step().Question, "it is being asked")
	m.Look("")
	m.Answer(sent(m), b.answer(store.TaskRead{}))
	b.record.Next = "5"
	m.Look("")
	m.Answer(sent(m), b.answer(store.TaskRead{}))
	q.Ask(Every(time.Hour))
	require.True(t, m.Answered(q), "of another record")
	q = m.Step().Question
	require.NotNil(t, q)
	require.False(t, m.Broken(q))
	require.Equal(t, Step{Wait: Forever}, m.Step())
}

func sent(m *Machine) Try {
	m.Step()
	return m.Sent()
}
