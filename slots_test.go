package tenure

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// What the tables of this file count in: ms of Redis's clock, and a time that all intervals divide.
const (
	tableMinute = int64(60_000)
	tableHour   = 60 * tableMinute
	tableDay    = 24 * tableHour
	tableBase   = int64(1_700_006_400_000)
)

// TestSlotDecisions: what becomes of slots that are due, at the last millisecond of each rule and
// at the first behind it.
func TestSlotDecisions(t *testing.T) {
	const base, min10 = tableBase, 10 * tableMinute
	every := func(overlap OverlapPolicy, missed MissedPolicy) Task {
		return Task{Name: "t", Schedule: Every(10 * time.Minute), Overlap: overlap, Missed: missed, MaxCatchUp: 2, Grace: time.Minute}
	}
	jittered := func(missed MissedPolicy) *Task {
		return &Task{Name: "t", Schedule: Every(10 * time.Minute), Missed: missed, Grace: time.Minute, Jitter: 30 * time.Second}
	}
	late := func(now, lag int64) backlog { return backlog{late: true, until: now, lag: lag} }
	runs := func(slot, next int64, b backlog) slotPlan {
		return slotPlan{run: true, slot: base + slot, next: base + next, first: base, backlog: b}
	}
	for name, c := range map[string]struct {
		task Task
		s    slotState // first: base
		want slotPlan
	}{
		"on time":                 {every(OverlapSkip, MissedRunOnce), slotState{now: base}, runs(0, min10, backlog{})},
		"as late as on time goes": {every(OverlapSkip, MissedRunOnce), slotState{now: base + tableMinute}, runs(0, min10, backlog{})},
		"late": {every(OverlapSkip, MissedRunOnce), slotState{now: base + tableMinute + 1},
			runs(0, min10, late(base+tableMinute+1, tableMinute+1))},
		"the next one is due, all run": {every(OverlapSkip, MissedRunAll), slotState{now: base + min10}, runs(0, min10, late(base+min10, min10))},
		"the next one is not due yet":  {every(OverlapSkip, MissedRunAll), slotState{now: base + min10 - 1}, runs(0, min10, late(base+min10-1, min10-1))},

		// What came due during a run.
		"began with the slot": {every(OverlapSkip, MissedRunOnce), slotState{now: base + 30_000, began: base, running: true}, runs(0, min10, backlog{})},
		"began before the slot": {every(OverlapSkip, MissedRunOnce), slotState{now: base + 30_000, began: base - 1, running: true},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"ended with the slot": {every(OverlapSkip, MissedRunOnce), slotState{now: base + 30_000, began: base - 1, lastEnded: base},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"ended before the slot": {every(OverlapSkip, MissedRunOnce), slotState{now: base + 30_000, began: base - 1, lastEnded: base - 1}, runs(0, min10, backlog{})},
		"two during a run": {every(OverlapSkip, MissedRunAll), slotState{now: base + min10, began: base - 1, running: true},
			slotPlan{slot: base + min10, next: base + 2*min10, skipped: 2, first: base}},
		"one during a run, one after it": {every(OverlapSkip, MissedRunAll), slotState{now: base + min10, began: base - 1, lastEnded: base + min10 - 1},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"queued": {every(OverlapQueue, MissedRunAll), slotState{now: base + min10, began: base - 1, lastEnded: base + min10 - 1},
			slotPlan{run: true, slot: base + min10, next: base + 2*min10, skipped: 1, first: base}},

		"jittered, as late as on time goes": {*jittered(MissedRunOnce), slotState{now: base + 90_000}, runs(0, min10, backlog{})},
		"jittered, late": {*jittered(MissedRunOnce), slotState{now: base + 90_001},
			runs(0, min10, late(base+90_001, 90_001-jittered(MissedRunOnce).delay(base).Milliseconds()))},
		"jittered, in the grace":     {*jittered(MissedSkip), slotState{now: base + 90_000}, runs(0, min10, backlog{})},
		"jittered, behind the grace": {*jittered(MissedSkip), slotState{now: base + 90_001}, slotPlan{next: base + min10, skipped: 1, first: base}},
		"the next one is due soon after": {Task{Name: "t", Schedule: Every(10 * time.Second), Missed: MissedRunAll}, slotState{now: base + 10_000},
			runs(0, 10_000, late(base+10_000, 10_000))},
		"the last one": {Task{Name: "t", Schedule: slotAt(base)}, slotState{now: base + 10_000}, slotPlan{run: true, slot: base, first: base}},

		// A backlog.
		"of the backlog": {every(OverlapSkip, MissedRunAll), slotState{now: base + 5*min10, backlog: backlog{late: true, until: base, lag: 7}},
			runs(0, min10, backlog{late: true, until: base, lag: 7})},
		"behind the backlog": {every(OverlapSkip, MissedRunAll), slotState{now: base + 5*min10, backlog: backlog{late: true, until: base - 1, lag: 7}},
			slotPlan{run: true, slot: base + 4*min10, next: base + 5*min10, skipped: 4, first: base, backlog: late(base+5*min10, min10)}},
		"came due before the backlog was counted": {every(OverlapSkip, MissedRunOnce),
			slotState{now: base + 30_000, began: base - 5, running: true, backlog: backlog{until: base + 1}}, runs(0, min10, backlog{until: base + 1})},
		"came due as the backlog was counted": {every(OverlapSkip, MissedRunOnce),
			slotState{now: base + 30_000, began: base - 5, running: true, backlog: backlog{until: base}}, runs(0, min10, backlog{until: base})},
		"catches up": {every(OverlapSkip, MissedRunOnce), slotState{now: base + 2000, began: base - 1, running: true, backlog: backlog{late: true, lag: 2001}},
			runs(0, min10, late(base+2000, 2000))},
		"does not": {every(OverlapSkip, MissedRunOnce), slotState{now: base + 2000, began: base - 1, running: true, backlog: backlog{late: true, lag: 2000}},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"catches up in a queue": {every(OverlapQueue, MissedRunOnce),
			slotState{now: base + 2*min10, began: base - 1, lastEnded: base + 1, backlog: backlog{late: true, lag: tableDay}},
			slotPlan{run: true, slot: base + 2*min10, next: base + 3*min10, skipped: 2, first: base}},
		"catches up on all in a queue": {every(OverlapQueue, MissedRunAll),
			slotState{now: base + min10, began: base - 1, lastEnded: base + min10 - 1, backlog: backlog{late: true, lag: tableDay}},
			runs(0, min10, late(base+min10, min10))},
		"a second late":        {every(OverlapSkip, MissedRunOnce), slotState{now: base + 1000, backlog: backlog{late: true}}, runs(0, min10, backlog{})},
		"more than a second":   {every(OverlapSkip, MissedRunOnce), slotState{now: base + 1001, backlog: backlog{late: true}}, runs(0, min10, late(base+1001, 1001))},
		"a second, on time":    {every(OverlapSkip, MissedRunOnce), slotState{now: base + 1001}, runs(0, min10, backlog{})},
		"missed, and too late": {every(OverlapSkip, MissedSkip), slotState{now: base + tableMinute + 1}, slotPlan{next: base + min10, skipped: 1, first: base}},
	} {
		c.s.first = base
		require.Equal(t, c.want, c.task.decide(c.s), name)
	}
}

// TestOwedSlots: a slot of a schedule that has changed since is run alone, unless it is missed.
func TestOwedSlots(t *testing.T) {
	const base, min10 = tableBase, 10 * tableMinute
	record := store.TaskRecord{Due: "x", Next: base, Spec: "old", Scheduled: base - tableHour}
	for _, c := range []struct {
		missed MissedPolicy
		late   int64
		run    bool
	}{
		{MissedSkip, 90_000, true}, {MissedSkip, 90_001, false}, {MissedRunOnce, tableDay, true}, {MissedRunAll, tableDay, true},
	} {
		task := Task{Name: "t", Schedule: Every(10 * time.Minute), Missed: c.missed, Grace: time.Minute, Jitter: 30 * time.Second}
		want := slotPlan{run: c.run, slot: base, spec: "old", first: base, next: base + (c.late/min10+1)*min10}
		if !c.run {
			want.skipped = 1
		}
		require.Equal(t, want, task.owed(record, "new", base+c.late), "%v, %d ms late", c.missed, c.late)
	}
	cron := Task{Name: "t", Schedule: Cron("30 * * * *")}
	require.Equal(t, base+tableHour/2, cron.owed(record, "new", base).next)
}

// TestOutdatedRuns: which runs that were left behind are not run again.
func TestOutdatedRuns(t *testing.T) {
	const now = tableBase
	const grace = int64(90_000)
	for name, c := range map[string]struct {
		missed MissedPolicy
		record store.TaskRecord
		want   bool
	}{
		"all":                            {MissedRunAll, store.TaskRecord{Next: now - tableDay, Run: "r"}, false},
		"paused":                         {MissedRunOnce, store.TaskRecord{Next: now - tableDay, Run: "r", Paused: true}, false},
		"skip, the next one is due":      {MissedSkip, store.TaskRecord{Next: now, Run: "r"}, true},
		"skip, it is not":                {MissedSkip, store.TaskRecord{Next: now + 1, Run: "r"}, false},
		"skip, there is none":            {MissedSkip, store.TaskRecord{Run: "r"}, false},
		"skip, interrupted in the grace": {MissedSkip, store.TaskRecord{Next: now + 1, Finished: now - grace, Scheduled: now - tableDay}, false},
		"skip, before it":                {MissedSkip, store.TaskRecord{Next: now + 1, Finished: now - grace - 1, Scheduled: now - tableDay}, true},
		"skip, never finished":           {MissedSkip, store.TaskRecord{Next: now + 1, Scheduled: now - grace}, false},
		"skip, long ago, but it runs":    {MissedSkip, store.TaskRecord{Next: now + 1, Finished: now - tableDay, Run: "r"}, false},
		"once, one is due":               {MissedRunOnce, store.TaskRecord{Next: now - 10*tableMinute + 1, Run: "r"}, false},
		"once, two are due":              {MissedRunOnce, store.TaskRecord{Next: now - 10*tableMinute, Run: "r"}, true},
		"once, there is none":            {MissedRunOnce, store.TaskRecord{Run: "r"}, false},
		"once, it is not due":            {MissedRunOnce, store.TaskRecord{Next: now + 1}, false},
	} {
		task := Task{Name: "t", Schedule: Every(10 * time.Minute), Missed: c.missed, Grace: time.Minute, Jitter: 30 * time.Second}
		require.Equal(t, c.want, task.outdated(c.record, now), name)
	}
}

// TestReplan: where a record goes on that is new, or whose schedule was another, or that no clock
// can have led to.
func TestReplan(t *testing.T) {
	const now, min10 = tableBase, 10 * tableMinute
	every := Task{Name: "t", Schedule: Every(10 * time.Minute), InitialDelay: time.Minute}
	cron := Task{Name: "t", Schedule: Cron("30 * * * *"), InitialDelay: tableHours(1)}
	once := every
	once.RunOnElection = true
	for name, c := range map[string]struct {
		task   Task
		record store.TaskRecord
		want   int64
	}{
		"new":                                      {every, store.TaskRecord{}, now + tableMinute},
		"new, cron":                                {cron, store.TaskRecord{}, now + 90*tableMinute},
		"new, what it says counts for nothing":     {every, store.TaskRecord{Next: now + 7, Scheduled: now - 1}, now + tableMinute},
		"as it is":                                 {every, store.TaskRecord{Due: "x", Spec: "s", Next: now - 5, Scheduled: now - min10 - 5}, now - 5},
		"as it is, since it changed":               {every, store.TaskRecord{Due: "x", Spec: "s 1 2", Next: now - 5, Scheduled: now - min10 - 5}, now - 5},
		"had ended":                                {every, store.TaskRecord{Due: "0", Spec: "s", Scheduled: now - tableDay}, now + min10},
		"had ended, never ran":                     {every, store.TaskRecord{Due: "0", Spec: "s"}, now + tableMinute},
		"had ended, run on election":               {once, store.TaskRecord{Due: "0", Spec: "s", Scheduled: now - tableDay}, now + tableMinute},
		"no clock led to it":                       {every, store.TaskRecord{Due: "x", Spec: "s", Next: now + tableDay, Scheduled: now - tableDay}, now + min10},
		"another interval":                         {every, store.TaskRecord{Due: "x", Spec: "o", Next: now + tableDay, Scheduled: now - tableMinute}, now + 9*tableMinute},
		"another interval, over":                   {every, store.TaskRecord{Due: "x", Spec: "o", Next: now + tableDay, Scheduled: now - min10}, now},
		"another interval, long over":              {every, store.TaskRecord{Due: "x", Spec: "o", Next: now + tableDay, Scheduled: now - tableDay - 1}, now},
		"another interval, the run was late":       {every, store.TaskRecord{Due: "x", Spec: "o", Scheduled: now - 3*min10 - 7, Started: now - min10 + 1}, now + min10 - 7},
		"the same, in step with now":               {every, store.TaskRecord{Due: "x", Spec: "o", Scheduled: now - 3*min10, Started: now - min10 + 1}, now + min10},
		"another interval, over, the run was late": {every, store.TaskRecord{Due: "x", Spec: "o", Scheduled: now - min10, Started: now - 1}, now + min10},
		"the same, but one interval ago":           {every, store.TaskRecord{Due: "x", Spec: "o", Scheduled: now - 3*min10 - 7, Started: now - min10}, now},
		"ran just now":                             {every, store.TaskRecord{Due: "x", Spec: "o", Scheduled: now, Started: now}, now + min10},
		"ran in the future":                        {every, store.TaskRecord{Due: "x", Spec: "o", Next: now + 7, Scheduled: now + 1}, now + 7},
		"ran in the future, ended":                 {every, store.TaskRecord{Due: "0", Spec: "o", Scheduled: now + 1}, now + min10},
		"never ran, comes sooner":                  {every, store.TaskRecord{Due: "x", Spec: "o", Next: now + 7}, now + 7},
		"never ran, would come later":              {every, store.TaskRecord{Due: "x", Spec: "o", Next: now + tableDay}, now + min10},
		"cron":                                     {cron, store.TaskRecord{Due: "x", Spec: "o", Next: now + 7, Scheduled: now - tableDay}, now + 30*tableMinute},
		"cron, put off":                            {cron, store.TaskRecord{Due: "x", Spec: "o 9 8", Next: now + 7, Scheduled: 5, Started: 8}, now + 7},
		"cron, put off, then it ran":               {cron, store.TaskRecord{Due: "x", Spec: "o 9 8", Next: now + 7, Scheduled: 5, Started: 9}, now + 30*tableMinute},
		"cron, put off, comes later":               {cron, store.TaskRecord{Due: "x", Spec: "o 9 8", Next: now + tableDay, Scheduled: 5, Started: 8}, now + 30*tableMinute},
		"cron, put off, has ended":                 {cron, store.TaskRecord{Due: "0", Spec: "o 9 8", Scheduled: 5, Started: 8}, now + 30*tableMinute},
	} {
		require.Equal(t, c.want, c.task.replan(c.record, "s", now), name)
	}
	over := Task{Name: "t", Schedule: slotAt(now - 1)}
	require.Equal(t, now+7, over.replan(store.TaskRecord{Due: "x", Spec: "o 9 8", Next: now + 7, Started: 8}, "s", now), "the new schedule has ended")
}

func tableHours(n int) time.Duration { return time.Duration(n) * time.Hour }

// slotAt has one slot, in ms.
type slotAt int64

func (s slotAt) String() string { return "once" }

func (s slotAt) Next(after time.Time) time.Time {
	if slot := time.UnixMilli(int64(s)); slot.After(after) {
		return slot
	}
	return time.Time{}
}

// TestChangesOfASchedule: what a record says of the schedule that it follows, and of the slot that
// a change dropped.
func TestChangesOfASchedule(t *testing.T) {
	const now = int64(1000)
	for name, c := range map[string]struct {
		record  store.TaskRecord
		next    int64
		want    string
		follows bool
		under   string
		putOff  bool
	}{
		"new":                       {store.TaskRecord{}, 1500, "s", false, "s", false},
		"its own":                   {store.TaskRecord{Due: "x", Spec: "s", Next: 2000}, 3000, "s", true, "s", false},
		"its own, changed before":   {store.TaskRecord{Due: "x", Spec: "s 900 950", Next: 2000}, 3000, "s 900 950", true, "s 900 950", true},
		"changed, drops a slot":     {store.TaskRecord{Due: "x", Spec: "o", Next: 1001}, 1002, "s 1000 1001", false, "s", false},
		"changed, drops the last":   {store.TaskRecord{Due: "x", Spec: "o", Next: 1001}, 0, "s 1000 1001", false, "s", false},
		"changed, no later":         {store.TaskRecord{Due: "x", Spec: "o", Next: 1001}, 1001, "s", false, "s", false},
		"changed, it was due":       {store.TaskRecord{Due: "x", Spec: "o", Next: 1000}, 1002, "s", false, "s", false},
		"again, still the first":    {store.TaskRecord{Due: "x", Spec: "o 900 1000", Next: 1500, Started: 899}, 2000, "s 900 1000", false, "s", true},
		"again, to come":            {store.TaskRecord{Due: "x", Spec: "o 900 1001", Next: 1500, Started: 899}, 2000, "s 900 1001", false, "s", false},
		"again, it has run since":   {store.TaskRecord{Due: "x", Spec: "o 900 1000", Next: 1500, Started: 900}, 2000, "s 1000 1500", false, "s", false},
		"not as tenure writes it":   {store.TaskRecord{Due: "x", Spec: "o 900", Next: 1000}, 2000, "s", false, "s", false},
		"nor this":                  {store.TaskRecord{Due: "x", Spec: "o 900 950 1", Next: 1000}, 2000, "s", false, "s", false},
		"another that begins alike": {store.TaskRecord{Due: "x", Spec: "ss", Next: 1000}, 2000, "s", false, "s", false},
	} {
		require.Equal(t, c.want, c.record.ChangedTo("s", c.next, now), name)
		require.Equal(t, c.follows, c.record.Follows("s"), name)
		require.Equal(t, c.under, c.record.Under("s"), name)
		require.Equal(t, c.putOff, c.record.PutOff(now), name)
	}
}

// TestJitterNeverChanges: leaders of two versions have to agree on when a slot starts.
func TestJitterNeverChanges(t *testing.T) {
	for jitter, want := range map[time.Duration][2]time.Duration{
		-time.Second: {}, 0: {}, 1: {}, time.Minute: {884866557, 47042056232}, time.Hour: {53091993466, 2822523373928},
	} {
		task := Task{Name: "report", Jitter: jitter}
		got := [2]time.Duration{task.delay(tableBase), task.delay(tableBase + tableDay)}
		require.Equal(t, want, got, jitter)
		require.Equal(t, tableBase+got[0].Milliseconds(), task.start(tableBase), jitter)
	}
}

// TestSlotsAreStoredForACentury: what lies beyond counts as none.
func TestSlotsAreStoredForACentury(t *testing.T) {
	const century = int64(100 * 365 * 24 * 3600 * 1000)
	for ms, want := range map[int64]int64{
		-1: 0, 0: 0, 1: 1, tableBase: tableBase, tableBase + century - 1: tableBase + century - 1, tableBase + century: 0,
	} {
		require.Equal(t, want, slotMillis(time.UnixMilli(ms), tableBase), ms)
	}
}
