package tenure

import (
	"hash/fnv"
	"strconv"
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
	late    bool // that run was a rerun, or outside the schedule, or is no longer on time
}

// decision is what becomes of the slots that are due.
type decision struct {
	run     bool // claim slot; false: move on
	slot    int64
	next    int64 // 0: none
	skipped int
	first   int64 // of those that are skipped
}

// decide says what becomes of the slots that are due. One that came due while a run was on is a matter of Overlap; every other
// one of Missed. So is, under Skip or RunAll, what came due during a late run: else a failover would lose it.
func (t *Task) decide(s situation) decision {
	rules := t.rules()
	now := s.now
	overlapped := s.first > s.began && (s.running || s.first <= s.busy)
	if s.late && (t.Overlap == Skip || t.Missed == RunAll) {
		overlapped = false
	}
	if overlapped {
		rules.Missed = plan.RunOnce
		if t.Overlap == Skip && !s.running {
			now = min(now, s.busy)
		}
	}
	d := t.outcome(plan.Due(rules, redisTime(s.first), redisTime(now)), s)
	if overlapped && t.Overlap == Skip && d.run {
		d.run, d.skipped = false, d.skipped+1
	}
	return d
}

// isLate reports whether a slot is no longer on time.
func (t *Task) isLate(slot, now int64) bool {
	return now-slot > (plan.DefaultGrace + t.Jitter).Milliseconds()
}

func (t *Task) outcome(d plan.Decision, s situation) decision {
	return decision{run: d.Run, slot: stored(d.Slot, s.now), next: stored(d.Next, s.now), skipped: d.Skipped, first: s.first}
}

// rules are what the plan needs to know.
func (t *Task) rules() plan.Rules {
	return plan.Rules{
		Schedule: t.Schedule, Missed: plan.Missed(t.Missed), MaxCatchUp: t.MaxCatchUp, Grace: plan.DefaultGrace + t.Jitter,
		InitialDelay: t.InitialDelay,
	}
}

// stored is a slot as it is stored; 0: there is none, or none that anybody would live to see.
func stored(slot time.Time, now int64) int64 {
	const century = 100 * 365 * 24 * int64(time.Hour/time.Millisecond)
	if ms := slot.UnixMilli(); ms > 0 && ms < now+century {
		return ms
	}
	return 0
}

// replan gives the next slot to a new record, to one whose schedule was another, and to one that no clock of Redis can have led to.
func (t *Task) replan(r taskRecord, spec string, now int64) int64 {
	at := redisTime(now)
	interval, steps := t.Schedule.(interface{ Interval() time.Duration })
	switch {
	case r.due == "":
		return stored(plan.First(t.rules(), at), now)
	case r.spec == spec:
		if d := plan.Due(t.rules(), redisTime(r.next), at); d.Reset {
			return stored(d.Next, now)
		}
		return r.next
	case r.next != 0 && r.next <= now:
		return r.next // owed under the old schedule: Missed decides
	case steps && r.scheduled > 0 && r.scheduled <= now: // versions that lead by turns must not push it away for ever
		return max(r.scheduled+interval.Interval().Milliseconds(), now)
	}
	first := stored(plan.First(plan.Rules{Schedule: t.Schedule}, at), now)
	if steps && r.next != 0 {
		return min(r.next, first)
	}
	return first // what would have been due under a schedule that was not in force was never due
}

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
