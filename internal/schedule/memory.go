package schedule

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// Memory is what a process knows of the runs of a task, whatever its record says: Redis may have
// lost its last second, or the end of a run may never have reached it. It lasts for longer than a
// term, and belongs to the machine of the one that is on. The zero value knows nothing.
type Memory struct {
	slot int64         // the latest slot that was claimed for a run here; 0: none
	at   int64         // when, by Redis's clock
	mono time.Duration // and by the monotonic clock of this process

	run   string // the last one
	of    int64  // its slot; 0: it was none of the schedule
	left  string // the run that it went on with; "": none
	ended bool
	end   store.TaskFinish // if ended: what was, or should have been, recorded

	triggered []triggered // the last that have ended here, the oldest first

	usual time.Duration // mean of the attempts that have succeeded here, younger ones count for more; 0: none has
}

// triggered is a run that was triggered and has ended.
type triggered struct {
	id  string // of the trigger
	end store.TaskFinish
}

// maxTriggered is how many of these are known.
const maxTriggered = 16

// ends notes how a run has ended, and what triggered it; "": nothing did.
func (m *Memory) ends(f store.TaskFinish, trigger string) {
	m.ended, m.end = true, f
	if trigger == "" {
		return
	}
	others := slices.DeleteFunc(m.triggered, func(t triggered) bool { return t.id == trigger }) // an earlier leader of this process left it behind
	m.triggered = slices.Concat(others[max(0, len(others)-maxTriggered+1):], []triggered{{trigger, f}})
}

// took counts the duration of an attempt that has succeeded.
func (m *Memory) took(d time.Duration) {
	if m.usual == 0 {
		m.usual = max(d, 1)
		return
	}
	m.usual += (d - m.usual) / 4
}

// withoutSlot stands for the time to the next slot if there is none: a task that only runs if it is
// triggered, or for the last time, may well take longer than a minute.
const withoutSlot = time.Hour

// limit is how long an attempt may take before that is reported: ten times as long as usual, or, as
// long as none has succeeded here, to the next slot; at least a minute.
func (m *Memory) limit(toNext time.Duration) time.Duration {
	if m.usual > 0 {
		return max(10*m.usual, time.Minute)
	}
	return max(toNext, time.Minute)
}

// claimed notes a run that has been claimed.
func (m *Memory) claimed(c store.TaskClaim, now int64, mono time.Duration) {
	m.run, m.of, m.left, m.ended = c.Run, c.Slot, "", false
	switch c.Kind {
	case store.ClaimSlot:
		m.slot, m.at, m.mono = c.Slot, now, mono
	case store.ClaimAgain:
		m.left = c.Expect
	}
}

// returned notes that it was given back without having begun.
func (m *Memory) returned(run string) {
	if m.run != run {
		return
	}
	if m.of != 0 {
		m.slot = m.of - 1
	}
	m.run, m.of, m.left, m.ended = "", 0, "", false
}

// repeats is the run that a claim would repeat: one that has ended here, so that the record only
// needs to be told of it. "": none. trigger is the ID of the trigger that waits.
func (m *Memory) repeats(c store.TaskClaim, trigger string, now int64, mono time.Duration) string {
	if c.Kind == store.ClaimTrigger {
		for _, known := range m.triggered {
			if known.id == trigger {
				return known.end.Run
			}
		}
		return ""
	}
	if m.ended && (c.Kind == store.ClaimAgain && m.left == c.Expect || c.Kind == store.ClaimSlot && m.of == c.Slot && m.passed(c.Slot, now, mono)) {
		return m.run
	}
	return ""
}

// knows reports whether the end of that run is known here.
func (m *Memory) knows(run string) bool {
	_, known := m.endOf(run)
	return known
}

// endOf is how a run has ended here.
func (m *Memory) endOf(run string) (end store.TaskFinish, known bool) {
	if m.ended && m.run == run {
		return m.end, true
	}
	for _, t := range m.triggered {
		if t.end.Run == run {
			return t.end, true
		}
	}
	return store.TaskFinish{}, false
}

// passed reports whether a slot is the latest that was run here, or an older one. If Redis's clock
// was set back since, slots of the same time come anew and nothing is known of them. That is so if
// it has gained less than the clock of this process, also once it is past the old time again.
func (m *Memory) passed(slot, now int64, mono time.Duration) bool {
	gained, passed := now-m.at, (mono - m.mono).Milliseconds()
	return m.slot != 0 && slot <= m.slot && gained >= 0 && gained >= passed-passed/clockRates-clockError
}

// What two clocks may differ by without either having been set: a part of the time that passes, and
// ms by which the estimate of Redis's clock is off.
const (
	clockRates = 16
	clockError = 5000
)
