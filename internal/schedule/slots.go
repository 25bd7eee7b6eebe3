package schedule

import (
	"cmp"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// This file applies the policies of a task to its slots. All times are in ms of Redis's clock;
// nothing here reads a clock.

// slotState is where a task stands when its next slot is due.
type slotState struct {
	first     int64 // that slot
	now       int64
	running   bool
	began     int64 // when the last run of this term was claimed, and when it ended
	lastEnded int64
	backlog
}

// backlog is what was missed at one instant and is being caught up on, in a row of runs. The zero
// value is none: the last run was on time.
type backlog struct {
	late  bool  // the last run is one of that row, or a rerun, or outside the schedule
	until int64 // that instant: what came due later came due during such a run; 0: nothing was counted yet
	lag   int64 // how late the oldest slot was then, ms
}

// slotPlan is what becomes of the slots that are due.
type slotPlan struct {
	run     bool // claim slot; false: move on
	slot    int64
	next    int64 // 0: none
	skipped int
	first   int64  // of those that are skipped
	spec    string // that the record has; "": that of the task
	backlog        // once the slot is claimed
}

// decide says what becomes of the slots that are due. One that came due while a run was on is a
// matter of Overlap; every other one of Missed. So is, under OverlapSkip or RunAll, what came due
// while a backlog was caught up on: else a failover would lose it. But only if the task is less
// late by then: one that takes longer than its interval would be late for ever.
func (p *Policy) decide(s slotState) slotPlan {
	rules := p.rules()
	if p.Missed == RunAll && s.first <= s.until {
		one := p.outcome(One(rules, store.Time(s.first), store.Time(s.now)), s)
		if p.tooLate(one.slot, s.now) {
			one.run, one.skipped = false, 1
		}
		return one
	}
	now, since := s.now, s.began
	if s.until != 0 {
		since = s.until
	}
	overlapped := s.first > since && (s.running || p.start(s.first) <= s.lastEnded)
	if s.late && (p.Overlap == OverlapSkip || p.Missed == RunAll) && s.now-p.start(s.first) < s.lag {
		overlapped = false
	}
	if overlapped {
		rules.Missed = RunOnce
		if p.Overlap == OverlapSkip && !s.running {
			now = min(now, s.lastEnded)
		}
	}
	d := Due(rules, store.Time(s.first), store.Time(now))
	if latest := slotMillis(d.Slot, s.now); d.Run && latest > s.first && p.start(latest) > now {
		d = Due(rules, store.Time(s.first), store.Time(latest-1)) // its time to start has not come
	}
	chosen := p.outcome(d, s)
	if chosen.run && (overlapped && p.Overlap == OverlapSkip || p.tooLate(chosen.slot, s.now)) {
		chosen.run, chosen.skipped, chosen.backlog = false, chosen.skipped+1, backlog{}
	}
	return chosen
}

// passed is the first slot behind one that is due, of those that have not begun to start yet.
func (p *Policy) passed(first, now int64) int64 {
	rules := p.rules()
	rules.Missed = RunOnce
	d := Due(rules, store.Time(first), store.Time(now))
	if latest := slotMillis(d.Slot, now); latest > first && p.start(latest) > now {
		return latest
	}
	return slotMillis(d.Next, now)
}

// owed says what becomes of a slot that is due under a schedule which has changed since. It stands
// alone: the new schedule was not in force before.
func (p *Policy) owed(r store.TaskRecord, now int64) slotPlan {
	d := slotPlan{run: true, slot: r.Next, spec: r.Spec, first: r.Next}
	d.next = p.replan(store.TaskRecord{Due: r.Due, Spec: r.Spec, Scheduled: r.Next, Started: now}, now)
	if p.tooLate(r.Next, now) || p.Missed == SkipMissed && now-r.Next > (p.Grace+p.Jitter).Milliseconds() {
		d.run, d.skipped = false, 1
	}
	return d
}

// outdated reports whether a run that was left behind is not to be run again, because its
// StartingDeadline has passed, or Missed asks for none of its slot by now. That of a paused task
// waits.
func (p *Policy) outdated(r store.TaskRecord, now int64) bool {
	due := func(slot int64) bool { return slot != 0 && slot <= now }
	switch {
	case r.Paused:
		return false
	case p.tooLate(r.Scheduled, now):
		return true
	case p.Missed == RunAll || r.RunTrigger != "": // what was triggered is no slot
		return false
	case p.Missed == SkipMissed:
		return due(r.Next) || r.Run == "" && now-max(r.Finished, r.Scheduled) > (p.Grace+p.Jitter).Milliseconds()
	default: // two slots have come due since: a run for the latest is one for all
		return due(r.Next) && due(slotMillis(One(p.rules(), store.Time(r.Next), store.Time(now)).Next, now))
	}
}

// isLate reports whether a slot is no longer on time.
func (p *Policy) isLate(slot, now int64) bool {
	return now-slot > (DefaultGrace + p.Jitter).Milliseconds()
}

func (p *Policy) outcome(d Decision, s slotState) slotPlan {
	chosen := slotPlan{run: d.Run, slot: slotMillis(d.Slot, s.now), next: slotMillis(d.Next, s.now), skipped: d.Skipped, first: s.first}
	more, lag := chosen.next != 0 && chosen.next <= s.now, s.now-p.start(chosen.slot)
	switch {
	case chosen.slot <= s.until:
		chosen.backlog = s.backlog
	case more || p.isLate(chosen.slot, s.now) || s.late && lag > time.Second.Milliseconds():
		chosen.backlog = backlog{late: true, until: s.now, lag: lag}
	}
	return chosen
}

// slotMillis is a slot as it is stored; 0: there is none, or none that anybody would live to see.
func slotMillis(slot time.Time, now int64) int64 {
	const century = 100 * 365 * 24 * int64(time.Hour/time.Millisecond)
	if ms := slot.UnixMilli(); ms > 0 && ms < now+century {
		return ms
	}
	return 0
}

// replan gives the next slot to a new record, to one whose schedule was another, or had ended, and
// to one that no clock of Redis can have led to.
func (p *Policy) replan(r store.TaskRecord, now int64) int64 {
	rules, at := p.rules(), store.Time(now)
	if r.Scheduled == 0 || r.RunTrigger != "" || p.RunOnElection { // its first slot may be still to come
		rules.InitialDelay = p.InitialDelay
	}
	interval := Interval(p.Schedule).Milliseconds()
	switch {
	case r.Due == "":
		rules.InitialDelay = p.InitialDelay
		return p.begin(rules, r, now)
	case r.Follows(p.Spec) && r.Next != 0 && !Misplaced(rules, store.Time(r.Next), at):
		return r.Next
	case r.Follows(p.Spec):
		return slotMillis(First(rules, at), now)
	case interval > 0 && r.Scheduled > 0 && r.Scheduled <= now: // versions that lead by turns must not push it away for ever
		next := r.Scheduled + interval
		if next <= now && r.Started+interval > now { // the last run was late: go on in step
			next += (now - next + interval) / interval * interval
		}
		return max(next, now)
	}
	first := p.begin(Rules{Schedule: p.Schedule}, r, now)
	if r.Next != 0 && (interval > 0 || r.PutOff(now) && !p.final(first)) {
		return min(r.Next, cmp.Or(first, r.Next))
	}
	return first // what would have been due under a schedule that was not in force was never due
}

// final reports whether the first slot of a schedule that was not in force before stands, whatever
// was put off for it: the one time of an At, and that of OnDemand, which is none. No change of the
// leader can put them off for ever.
func (p *Policy) final(first int64) bool {
	_, once := onceAt(p.Schedule)
	return once && first != 0 || isNever(p.Schedule)
}

// begin is the first slot of a schedule that was not in force before. One that is due only once may
// have been due shortly before that.
func (p *Policy) begin(rules Rules, r store.TaskRecord, now int64) int64 {
	at, once := onceAt(p.Schedule)
	switch {
	case !once:
		return slotMillis(First(rules, store.Time(now)), now)
	case at > now, at > r.Scheduled && now-at <= p.Grace.Milliseconds():
		return at
	}
	return 0
}

// tooLate reports whether a slot has missed its StartingDeadline.
func (p *Policy) tooLate(slot, now int64) bool {
	return p.StartingDeadline > 0 && now-p.start(slot) > p.StartingDeadline.Milliseconds()
}

// start is when a slot starts.
func (p *Policy) start(slot int64) int64 { return slot + p.Delay(slot).Milliseconds() }

// Delay is the jitter of a slot: the same in every process, so that a failover does not draw again.
func (p *Policy) Delay(slot int64) time.Duration {
	if p.Jitter <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.Name + " " + strconv.FormatInt(slot, 10)))
	mixed := h.Sum64() // its high bits hardly depend on the end of the text
	mixed ^= mixed >> 32
	mixed *= 0x9e3779b97f4a7c15
	mixed ^= mixed >> 29
	return time.Duration(float64(mixed>>11) / (1 << 53) * float64(p.Jitter))
}
