package tenure

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/plan"
)

// This file applies the policies of a task to its slots. All times are in ms of Redis's clock; nothing here reads a clock.

// situation is where a task stands when its next slot is due.
type situation struct {
	first   int64 // that slot
	now     int64
	running bool
	began   int64 // when the last run of this term was claimed, and when it ended
	busy    int64
	backlog
}

// backlog is what was missed at one instant and is being caught up on, in a row of runs. The zero value is none: the last run was on
// time.
type backlog struct {
	late  bool  // the last run is one of that row, or a rerun, or outside the schedule
	until int64 // that instant: what came due later came due during such a run; 0: nothing was counted yet
	lag   int64 // how late the oldest slot was then, ms
}

// decision is what becomes of the slots that are due.
type decision struct {
	run     bool // claim slot; false: move on
	slot    int64
	next    int64 // 0: none
	skipped int
	first   int64  // of those that are skipped
	spec    string // that the record has; "": that of the task
	backlog        // once the slot is claimed
}

// decide says what becomes of the slots that are due. One that came due while a run was on is a matter of Overlap; every other one of
// Missed. So is, under Skip or RunAll, what came due while a backlog was caught up on: else a failover would lose it. But only if the
// task is less late by then: one that takes longer than its interval would be late for ever.
func (t *Task) decide(s situation) decision {
	rules := t.rules()
	if t.Missed == RunAll && s.first <= s.until {
		return t.outcome(plan.One(rules, redisTime(s.first), redisTime(s.now)), s)
	}
	now, since := s.now, s.began
	if s.until != 0 {
		since = s.until
	}
	overlapped := s.first > since && (s.running || t.start(s.first) <= s.busy)
	if s.late && (t.Overlap == Skip || t.Missed == RunAll) && s.now-t.start(s.first) < s.lag {
		overlapped = false
	}
	if overlapped {
		rules.Missed = plan.RunOnce
		if t.Overlap == Skip && !s.running {
			now = min(now, s.busy)
		}
	}
	d := plan.Due(rules, redisTime(s.first), redisTime(now))
	if latest := stored(d.Slot, s.now); d.Run && latest > s.first && t.start(latest) > now {
		d = plan.Due(rules, redisTime(s.first), redisTime(latest-1)) // its time to start has not come
	}
	chosen := t.outcome(d, s)
	if overlapped && t.Overlap == Skip && chosen.run {
		chosen.run, chosen.skipped, chosen.backlog = false, chosen.skipped+1, backlog{}
	}
	return chosen
}

// owed says what becomes of a slot that is due under a schedule which has changed since. It stands alone: the new schedule was not in
// force before.
func (t *Task) owed(r taskRecord, spec string, now int64) decision {
	d := decision{run: true, slot: r.next, spec: r.spec, first: r.next}
	d.next = t.replan(taskRecord{due: r.due, spec: r.spec, scheduled: r.next, started: now}, spec, now)
	if t.Missed == SkipMissed && now-r.next > (t.Grace+t.Jitter).Milliseconds() {
		d.run, d.skipped = false, 1
	}
	return d
}

// outdated reports whether a run that was left behind is not to be run again, because Missed asks for none of its slot by now. That of
// a paused task waits.
func (t *Task) outdated(r taskRecord, now int64) bool {
	due := func(slot int64) bool { return slot != 0 && slot <= now }
	switch {
	case t.Missed == RunAll || r.paused:
		return false
	case t.Missed == SkipMissed:
		return due(r.next) || r.run == "" && now-max(r.finished, r.scheduled) > (t.Grace+t.Jitter).Milliseconds()
	default: // two slots have come due since: a run for the latest is one for all
		return due(r.next) && due(stored(plan.One(t.rules(), redisTime(r.next), redisTime(now)).Next, now))
	}
}

// isLate reports whether a slot is no longer on time.
func (t *Task) isLate(slot, now int64) bool {
	return now-slot > (plan.DefaultGrace + t.Jitter).Milliseconds()
}

func (t *Task) outcome(d plan.Decision, s situation) decision {
	chosen := decision{run: d.Run, slot: stored(d.Slot, s.now), next: stored(d.Next, s.now), skipped: d.Skipped, first: s.first}
	more, lag := chosen.next != 0 && chosen.next <= s.now, s.now-t.start(chosen.slot)
	switch {
	case chosen.slot <= s.until:
		chosen.backlog = s.backlog
	case more || t.isLate(chosen.slot, s.now) || s.late && lag > time.Second.Milliseconds():
		chosen.backlog = backlog{late: true, until: s.now, lag: lag}
	}
	return chosen
}

// rules are what the plan needs to know of a task that has a record.
func (t *Task) rules() plan.Rules {
	return plan.Rules{Schedule: t.Schedule, Missed: plan.Missed(t.Missed), MaxCatchUp: t.MaxCatchUp, Grace: t.Grace + t.Jitter}
}

// stored is a slot as it is stored; 0: there is none, or none that anybody would live to see.
func stored(slot time.Time, now int64) int64 {
	const century = 100 * 365 * 24 * int64(time.Hour/time.Millisecond)
	if ms := slot.UnixMilli(); ms > 0 && ms < now+century {
		return ms
	}
	return 0
}

// replan gives the next slot to a new record, to one whose schedule was another, or had ended, and to one that no clock of Redis can
// have led to.
func (t *Task) replan(r taskRecord, spec string, now int64) int64 {
	rules, at := t.rules(), redisTime(now)
	if r.scheduled == 0 || t.RunOnElection { // its first slot may be still to come
		rules.InitialDelay = t.InitialDelay
	}
	interval := plan.Interval(t.Schedule).Milliseconds()
	switch {
	case r.due == "":
		rules.InitialDelay = t.InitialDelay
		return stored(plan.First(rules, at), now)
	case r.follows(spec) && r.next != 0 && !plan.Misplaced(rules, redisTime(r.next), at):
		return r.next
	case r.follows(spec):
		return stored(plan.First(rules, at), now)
	case interval > 0 && r.scheduled > 0 && r.scheduled <= now: // versions that lead by turns must not push it away for ever
		next := r.scheduled + interval
		if next <= now && r.started+interval > now { // the last run was late: go on in step
			next += (now - next + interval) / interval * interval
		}
		return max(next, now)
	}
	first := stored(plan.First(plan.Rules{Schedule: t.Schedule}, at), now)
	if r.next != 0 && (interval > 0 || r.putOff(now)) {
		return min(r.next, cmp.Or(first, r.next))
	}
	return first // what would have been due under a schedule that was not in force was never due
}

// The field spec of a record is the hash of the schedule. Behind it stands, once the schedule has changed, when that was and which slot of
// the old one was dropped for it, both in ms of Redis's clock: "<hash> <changed> <dropped>". Two versions of a program that lead by turns
// would else put a task off for ever.

// follows reports whether a record is that of a schedule.
func (r taskRecord) follows(spec string) bool {
	hash, _, _ := strings.Cut(r.spec, " ")
	return hash == spec
}

// under is the field spec as it stands, if the record is that of the schedule.
func (r taskRecord) under(spec string) string {
	if r.follows(spec) {
		return r.spec
	}
	return spec
}

// putOff reports whether a slot was dropped by a change of the schedule, has passed since, and nothing has run since the change.
func (r taskRecord) putOff(now int64) bool {
	changed, dropped := r.change()
	return dropped != 0 && dropped <= now && r.started < changed
}

func (r taskRecord) change() (changed, dropped int64) {
	if parts := strings.Fields(r.spec); len(parts) == 3 {
		changed, _ = strconv.ParseInt(parts[1], 10, 64)
		dropped, _ = strconv.ParseInt(parts[2], 10, 64)
	}
	return changed, dropped
}

// changedTo is the field spec of a record that goes on at next, by another schedule or by its own.
func (r taskRecord) changedTo(spec string, next, now int64) string {
	if r.due == "" || r.follows(spec) {
		return r.under(spec)
	}
	changed, dropped := r.change()
	switch {
	case dropped != 0 && r.started < changed: // it is still the first one
	case r.next > now && (next == 0 || next > r.next):
		changed, dropped = now, r.next
	default:
		return spec
	}
	return fmt.Sprint(spec, " ", changed, " ", dropped)
}

// start is when a slot starts.
func (t *Task) start(slot int64) int64 { return slot + t.delay(slot).Milliseconds() }

// delay is the jitter of a slot: the same for whoever asks, so that a failover does not draw again.
func (t *Task) delay(slot int64) time.Duration {
	if t.Jitter <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(t.Name + " " + strconv.FormatInt(slot, 10)))
	mixed := h.Sum64() // its high bits hardly depend on the end of the text
	mixed ^= mixed >> 32
	mixed *= 0x9e3779b97f4a7c15
	mixed ^= mixed >> 29
	return time.Duration(float64(mixed>>11) / (1 << 53) * float64(t.Jitter))
}
