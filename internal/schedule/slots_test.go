package schedule

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
	every := func(overlap Overlap, missed Missed) Policy {
		return Policy{Name: "t", Schedule: Every(10 * time.Minute), Overlap: overlap, Missed: missed, MaxCatchUp: 2, Grace: time.Minute}
	}
	jittered := func(missed Missed) *Policy {
		return &Policy{Name: "t", Schedule: Every(10 * time.Minute), Missed: missed, Grace: time.Minute, Jitter: 30 * time.Second}
	}
	late := func(now, lag int64) backlog { return backlog{late: true, until: now, lag: lag} }
	runs := func(slot, next int64, b backlog) slotPlan {
		return slotPlan{run: true, slot: base + slot, next: base + next, first: base, backlog: b}
	}
	for name, c := range map[string]struct {
		task Policy
		s    slotState // first: base
		want slotPlan
	}{
		"on time":                 {every(OverlapSkip, RunOnce), slotState{now: base}, runs(0, min10, backlog{})},
		"as late as on time goes": {every(OverlapSkip, RunOnce), slotState{now: base + tableMinute}, runs(0, min10, backlog{})},
		"late": {every(OverlapSkip, RunOnce), slotState{now: base + tableMinute + 1},
			runs(0, min10, late(base+tableMinute+1, tableMinute+1))},
		"the next one is due, all run": {every(OverlapSkip, RunAll), slotState{now: base + min10}, runs(0, min10, late(base+min10, min10))},
		"the next one is not due yet":  {every(OverlapSkip, RunAll), slotState{now: base + min10 - 1}, runs(0, min10, late(base+min10-1, min10-1))},

		// What came due during a run.
		"began with the slot": {every(OverlapSkip, RunOnce), slotState{now: base + 30_000, began: base, running: true}, runs(0, min10, backlog{})},
		"began before the slot": {every(OverlapSkip, RunOnce), slotState{now: base + 30_000, began: base - 1, running: true},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"ended with the slot": {every(OverlapSkip, RunOnce), slotState{now: base + 30_000, began: base - 1, lastEnded: base},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"ended before the slot": {every(OverlapSkip, RunOnce), slotState{now: base + 30_000, began: base - 1, lastEnded: base - 1}, runs(0, min10, backlog{})},
		"two during a run": {every(OverlapSkip, RunAll), slotState{now: base + min10, began: base - 1, running: true},
			slotPlan{slot: base + min10, next: base + 2*min10, skipped: 2, first: base}},
		"one during a run, one after it": {every(OverlapSkip, RunAll), slotState{now: base + min10, began: base - 1, lastEnded: base + min10 - 1},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"queued": {every(OverlapQueue, RunAll), slotState{now: base + min10, began: base - 1, lastEnded: base + min10 - 1},
			slotPlan{run: true, slot: base + min10, next: base + 2*min10, skipped: 1, first: base}},

		"jittered, as late as on time goes": {*jittered(RunOnce), slotState{now: base + 90_000}, runs(0, min10, backlog{})},
		"jittered, late": {*jittered(RunOnce), slotState{now: base + 90_001},
			runs(0, min10, late(base+90_001, 90_001-jittered(RunOnce).Delay(base).Milliseconds()))},
		"jittered, in the grace":     {*jittered(SkipMissed), slotState{now: base + 90_000}, runs(0, min10, backlog{})},
		"jittered, behind the grace": {*jittered(SkipMissed), slotState{now: base + 90_001}, slotPlan{next: base + min10, skipped: 1, first: base}},
		"the next one is due soon after": {Policy{Name: "t", Schedule: Every(10 * time.Second), Missed: RunAll}, slotState{now: base + 10_000},
			runs(0, 10_000, late(base+10_000, 10_000))},
		"the last one": {Policy{Name: "t", Schedule: slotAt(base)}, slotState{now: base + 10_000}, slotPlan{run: true, slot: base, first: base}},

		// A backlog.
		"of the backlog": {every(OverlapSkip, RunAll), slotState{now: base + 5*min10, backlog: backlog{late: true, until: base, lag: 7}},
			runs(0, min10, backlog{late: true, until: base, lag: 7})},
		"behind the backlog": {every(OverlapSkip, RunAll), slotState{now: base + 5*min10, backlog: backlog{late: true, until: base - 1, lag: 7}},
			slotPlan{run: true, slot: base + 4*min10, next: base + 5*min10, skipped: 4, first: base, backlog: late(base+5*min10, min10)}},
		"came due before the backlog was counted": {every(OverlapSkip, RunOnce),
			slotState{now: base + 30_000, began: base - 5, running: true, backlog: backlog{until: base + 1}}, runs(0, min10, backlog{until: base + 1})},
		"came due as the backlog was counted": {every(OverlapSkip, RunOnce),
			slotState{now: base + 30_000, began: base - 5, running: true, backlog: backlog{until: base}}, runs(0, min10, backlog{until: base})},
		"catches up": {every(OverlapSkip, RunOnce), slotState{now: base + 2000, began: base - 1, running: true, backlog: backlog{late: true, lag: 2001}},
			runs(0, min10, late(base+2000, 2000))},
		"does not": {every(OverlapSkip, RunOnce), slotState{now: base + 2000, began: base - 1, running: true, backlog: backlog{late: true, lag: 2000}},
			slotPlan{slot: base, next: base + min10, skipped: 1, first: base}},
		"catches up in a queue": {every(OverlapQueue, RunOnce),
			slotState{now: base + 2*min10, began: base - 1, lastEnded: base + 1, backlog: backlog{late: true, lag: tableDay}},
			slotPlan{run: true, slot: base + 2*min10, next: base + 3*min10, skipped: 2, first: base}},
		"catches up on all in a queue": {every(OverlapQueue, RunAll),
			slotState{now: base + min10, began: base - 1, lastEnded: base + min10 - 1, backlog: backlog{late: true, lag: tableDay}},
			runs(0, min10, late(base+min10, min10))},
		"a second late":        {every(OverlapSkip, RunOnce), slotState{now: base + 1000, backlog: backlog{late: true}}, runs(0, min10, backlog{})},
		"more than a second":   {every(OverlapSkip, RunOnce), slotState{now: base + 1001, backlog: backlog{late: true}}, runs(0, min10, late(base+1001, 1001))},
		"a second, on time":    {every(OverlapSkip, RunOnce), slotState{now: base + 1001}, runs(0, min10, backlog{})},
		"missed, and too late": {every(OverlapSkip, SkipMissed), slotState{now: base + tableMinute + 1}, slotPlan{next: base + min10, skipped: 1, first: base}},
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
		missed Missed
		late   int64
		run    bool
	}{
		{SkipMissed, 90_000, true}, {SkipMissed, 90_001, false}, {RunOnce, tableDay, true}, {RunAll, tableDay, true},
	} {
		task := Policy{Name: "t", Spec: "new", Schedule: Every(10 * time.Minute), Missed: c.missed, Grace: time.Minute, Jitter: 30 * time.Second}
		want := slotPlan{run: c.run, slot: base, spec: "old", first: base, next: base + (c.late/min10+1)*min10}
		if !c.run {
			want.skipped = 1
		}
		require.Equal(t, want, task.owed(record, base+c.late), "%v, %d ms late", c.missed, c.late)
	}
	cron := Policy{Name: "t", Spec: "new", Schedule: mustCron(t, "30 * * * *")}
	require.Equal(t, base+tableHour/2, cron.owed(record, base).next)
}

// TestOutdatedRuns: which runs that were left behind are not run again.
func TestOutdatedRuns(t *testing.T) {
	const now = tableBase
	const grace = int64(90_000)
	for name, c := range map[string]struct {
		missed Missed
		record store.TaskRecord
		want   bool
	}{
		"all":                            {RunAll, store.TaskRecord{Next: now - tableDay, Run: "r"}, false},
		"paused":                         {RunOnce, store.TaskRecord{Next: now - tableDay, Run: "r", Paused: true}, false},
		"skip, the next one is due":      {SkipMissed, store.TaskRecord{Next: now, Run: "r"}, true},
		"skip, it is not":                {SkipMissed, store.TaskRecord{Next: now + 1, Run: "r"}, false},
		"skip, there is none":            {SkipMissed, store.TaskRecord{Run: "r"}, false},
		"skip, interrupted in the grace": {SkipMissed, store.TaskRecord{Next: now + 1, Finished: now - grace, Scheduled: now - tableDay}, false},
		"skip, before it":                {SkipMissed, store.TaskRecord{Next: now + 1, Finished: now - grace - 1, Scheduled: now - tableDay}, true},
		"skip, never finished":           {SkipMissed, store.TaskRecord{Next: now + 1, Scheduled: now - grace}, false},
		"skip, long ago, but it runs":    {SkipMissed, store.TaskRecord{Next: now + 1, Finished: now - tableDay, Run: "r"}, false},
		"once, one is due":               {RunOnce, store.TaskRecord{Next: now - 10*tableMinute + 1, Run: "r"}, false},
		"once, two are due":              {RunOnce, store.TaskRecord{Next: now - 10*tableMinute, Run: "r"}, true},
		"once, there is none":            {RunOnce, store.TaskRecord{Run: "r"}, false},
		"once, it is not due":            {RunOnce, store.TaskRecord{Next: now + 1}, false},
	} {
		task := Policy{Name: "t", Schedule: Every(10 * time.Minute), Missed: c.missed, Grace: time.Minute, Jitter: 30 * time.Second}
		require.Equal(t, c.want, task.outdated(c.record, now), name)
	}
}

// TestStartingDeadline: a slot that is too late to start is skipped, whatever is due and left
// behind, at the last millisecond and at the first behind it. What jitter puts off is not late.
func TestStartingDeadline(t *testing.T) {
	const base, min10, deadline = tableBase, 10 * tableMinute, int64(90_000)
	policy := func(missed Missed) *Policy {
		return &Policy{Name: "t", Spec: "s", Schedule: Every(10 * time.Minute), Missed: missed, Grace: time.Hour, StartingDeadline: 90 * time.Second}
	}
	for _, missed := range []Missed{RunOnce, RunAll, SkipMissed} {
		for _, late := range []int64{deadline, deadline + 1} {
			p, inTime := policy(missed), late == deadline
			got := p.decide(slotState{now: base + late, first: base, backlog: backlog{until: base + late}})
			require.Equal(t, slotPlan{run: inTime, slot: base, next: base + min10, skipped: 1 - oneIf(inTime), first: base, backlog: got.backlog}, got, "%v, %d ms late", missed, late)
			record := store.TaskRecord{Due: "x", Next: base, Spec: "old", Scheduled: base - tableHour}
			owed := p.owed(record, base+late)
			require.Equal(t, inTime, owed.run, "%v, %d ms late", missed, late)
			require.Equal(t, 1-oneIf(inTime), owed.skipped)
			left := store.TaskRecord{Next: base + tableDay, Scheduled: base, Run: "r"}
			require.Equal(t, !inTime, p.outdated(left, base+late), "%v, %d ms late", missed, late)
		}
	}
	p := policy(RunAll)
	require.Equal(t, slotPlan{slot: base, next: base + min10, skipped: 1, first: base, backlog: backlog{late: true, until: base + min10, lag: min10}},
		p.decide(slotState{now: base + min10, first: base, backlog: backlog{until: base + min10, late: true, lag: min10}}), "each slot is judged by itself")
	p.Jitter = time.Hour
	off := p.Delay(base).Milliseconds()
	require.Greater(t, off, deadline)
	require.False(t, p.tooLate(base, base+off+deadline))
	require.True(t, p.tooLate(base, base+off+deadline+1))
	p.StartingDeadline = 0
	require.False(t, p.tooLate(base, base+tableDay), "none")
	p.Jitter, p.StartingDeadline = 0, time.Nanosecond
	require.True(t, p.tooLate(base, base+1))
	require.False(t, p.tooLate(base, base))
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestOneSlot: the schedule of one slot, which a new record, or one whose schedule was another, may
// have been too late for.
func TestOneSlot(t *testing.T) {
	const now = tableBase
	at, once := onceAt(At(now))
	require.True(t, once)
	require.Equal(t, now, at)
	at, once = onceAt(struct{ At }{At(now)})
	require.True(t, once)
	require.Equal(t, now, at)
	at, once = onceAt(Every(time.Minute))
	require.False(t, once)
	require.Zero(t, at)
	require.Equal(t, time.UnixMilli(now), At(now).Next(time.UnixMilli(now-1)))
	require.Zero(t, At(now).Next(time.UnixMilli(now)))
	require.Zero(t, At(now).Next(time.UnixMilli(now+1)))

	const grace = int64(60_000)
	changed := func(scheduled int64) store.TaskRecord {
		return store.TaskRecord{Due: "0", Spec: "o", Scheduled: scheduled}
	}
	for name, c := range map[string]struct {
		at     int64
		record store.TaskRecord
		want   int64
	}{
		"new, to come":             {now + 1, store.TaskRecord{}, now + 1},
		"new, now":                 {now, store.TaskRecord{}, now},
		"new, within the grace":    {now - grace, store.TaskRecord{}, now - grace},
		"new, before it":           {now - grace - 1, store.TaskRecord{}, 0},
		"changed, run just now":    {now, changed(now), 0},
		"changed, to come":         {now + 1, changed(now + 7), now + 1},
		"changed, within it":       {now - grace, changed(now - grace - 1), now - grace},
		"changed, that was run":    {now - grace, changed(now - grace), 0},
		"changed, a later one was": {now - grace, changed(now - 5), 0},
		"changed, long ago":        {now - tableDay, changed(now - 2*tableDay), 0},
	} {
		p := Policy{Name: "t", Spec: "s", Schedule: At(c.at), Grace: time.Minute}
		require.Equal(t, c.want, p.replan(c.record, now), name)
	}
	every := Policy{Name: "t", Spec: "s", Schedule: Every(time.Minute), Grace: time.Hour}
	require.Equal(t, now+tableMinute, every.begin(Rules{Schedule: every.Schedule}, store.TaskRecord{}, now), "one that is due again has no grace")
	over := Policy{Name: "t", Spec: "s", Schedule: slotAt(now - 1), Grace: time.Hour}
	require.Zero(t, over.begin(Rules{Schedule: over.Schedule}, store.TaskRecord{}, now))
}

// TestReplan: where a record goes on that is new, or whose schedule was another, or that no clock
// can have led to.
func TestReplan(t *testing.T) {
	const now, min10 = tableBase, 10 * tableMinute
	every := Policy{Name: "t", Spec: "s", Schedule: Every(10 * time.Minute), InitialDelay: time.Minute}
	cron := Policy{Name: "t", Spec: "s", Schedule: mustCron(t, "30 * * * *"), InitialDelay: tableHours(1)}
	once := every
	once.RunOnElection = true
	for name, c := range map[string]struct {
		task   Policy
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
		require.Equal(t, c.want, c.task.replan(c.record, now), name)
	}
	putOff := store.TaskRecord{Due: "x", Spec: "o 9 8", Next: now + 7, Scheduled: 5, Started: 8}
	for name, c := range map[string]struct {
		schedule Schedule
		want     int64
	}{
		"at, to come":        {At(now + 9), now + 9},
		"at, it is over":     {At(now - tableDay), now + 7},
		"on demand":          {OnDemand{}, 0},
		"on demand, of ours": {struct{ OnDemand }{}, 0},
	} {
		p := Policy{Name: "t", Spec: "s", Schedule: c.schedule}
		require.Equal(t, c.want, p.replan(putOff, now), name)
	}
	over := Policy{Name: "t", Schedule: slotAt(now - 1)}
	require.Equal(t, now+7, over.replan(store.TaskRecord{Due: "x", Spec: "o 9 8", Next: now + 7, Started: 8}, now), "the new schedule has ended")
}

func tableHours(n int) time.Duration { return time.Duration(n) * time.Hour }

// slotAt has one slot, in ms.
type slotAt int64

func (s slotAt) Identity() string { return "once" }

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
		"again, after none":         {store.TaskRecord{Due: "0", Spec: "o 900 1000", Started: 899}, 2000, "s", false, "s", true},
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
		task := Policy{Name: "report", Jitter: jitter}
		got := [2]time.Duration{task.Delay(tableBase), task.Delay(tableBase + tableDay)}
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

// TestJitterOfALateDecision: a decision that comes late leaves the slot alone whose time to start
// is still to come.
func TestJitterOfALateDecision(t *testing.T) {
	task := Policy{Name: "t", Schedule: Every(time.Minute), Jitter: 59 * time.Second, Grace: time.Minute}
	slot, second := int64(1_700_000_040_000), int64(1000)
	for task.Delay(slot) < 40*time.Second || task.Delay(slot+60*second) < 40*time.Second {
		slot += 60 * second
	}
	d := task.decide(slotState{first: slot, now: slot + 65*second})
	require.True(t, d.run)
	require.Equal(t, slot, d.slot)
	require.Equal(t, slot+60*second, d.next)
	require.Zero(t, d.skipped)
}

// TestInitialDelayIsForANewTask: a task of long standing is not put off by it when Redis's clock
// was set back.
func TestInitialDelayIsForANewTask(t *testing.T) {
	const now, hour, day = int64(1_700_000_000_000), int64(3_600_000), 24 * int64(3_600_000)
	task := Policy{Name: "t", Spec: "s", Schedule: Every(time.Hour), InitialDelay: 20 * 24 * time.Hour}
	record := store.TaskRecord{Due: "x", Next: now + 5*day, Spec: "s", Scheduled: now + 5*day - hour}
	require.Equal(t, now+hour, task.replan(record, now))
	record.Scheduled = 0 // its first slot is still to come
	require.Equal(t, now+5*day, task.replan(record, now))
	record.Scheduled, record.RunTrigger = now-hour, "trigger" // likewise: that run was none of the schedule
	require.Equal(t, now+5*day, task.replan(record, now))
	record.Next = now + 20*day + hour
	require.Equal(t, record.Next, task.replan(record, now))
	record.Next = now + 30*day
	require.Equal(t, now+20*day, task.replan(record, now))
}

// TestScheduleBeyondACentury: so far a slot is as good as none, until that has changed.
func TestScheduleBeyondACentury(t *testing.T) {
	const now = int64(1_700_000_000_000)
	at := store.Time(now).AddDate(101, 0, 0)
	task := Policy{Spec: "s", Schedule: next(func(time.Time) time.Time { return at })}
	require.Zero(t, task.replan(store.TaskRecord{}, now))
	later := now + 2*366*24*time.Hour.Milliseconds()
	require.Equal(t, at.UnixMilli(), task.replan(store.TaskRecord{Due: "0", Spec: "s"}, later))
}

// TestDecideAfterOverlap: slots that a run has overlapped, and that could not be passed over while
// it was on.
func TestDecideAfterOverlap(t *testing.T) {
	const minute = int64(60_000)
	base := int64(1_700_000_000_000)
	task := Policy{Name: "t", Schedule: Every(10 * time.Minute)}
	s := slotState{first: base, now: base + 25*minute, began: base - 5*minute, lastEnded: base + 12*minute}
	require.Equal(t, slotPlan{next: base + 20*minute, slot: base + 10*minute, skipped: 2, first: base}, task.decide(s))
	s.backlog = backlog{late: true, until: base - 5*minute, lag: 30 * minute} // it catches up
	late := backlog{late: true, until: s.now, lag: 5 * minute}
	require.Equal(t, slotPlan{run: true, next: base + 30*minute, slot: base + 20*minute, skipped: 2, first: base, backlog: late}, task.decide(s))
	s.lag = 20 * minute // it does not: it is later than it was
	require.Equal(t, slotPlan{next: base + 20*minute, slot: base + 10*minute, skipped: 2, first: base}, task.decide(s))
	s.backlog, task.Overlap = backlog{}, OverlapQueue
	require.Equal(t, slotPlan{run: true, next: base + 30*minute, slot: base + 20*minute, skipped: 2, first: base, backlog: late}, task.decide(s))
	require.Zero(t, slotMillis(time.UnixMilli(base).AddDate(200, 0, 0), base))
}

// FuzzDecide: whatever the situation, a decision moves on, and what it runs is due.
func FuzzDecide(f *testing.F) {
	f.Add(int64(0), int64(1), int64(0), int64(0), int64(60), uint8(0), false, false)
	f.Add(int64(500_000), int64(1), int64(600_000), int64(0), int64(60_000), uint8(0), true, false) // while a run is on
	f.Add(int64(500_000), int64(1), int64(600_000), int64(0), int64(60_000), uint8(2), false, true) // MissedSkip
	f.Fuzz(func(t *testing.T, late, span, began, busy, step int64, policies uint8, running, cron bool) {
		const now = int64(1_700_000_000_000)
		late, step = max(late, -late)%1_000_000_000, max(step, -step)%86_400_000+100
		s := slotState{first: now - max(late, 0), now: now, running: running, began: now - began%1_000_000_000, lastEnded: now - max(busy%1_000_000_000, 0), backlog: backlog{late: policies&64 != 0, until: now * int64(policies>>7), lag: 1000}}
		task := Policy{Name: "t", Schedule: Every(time.Duration(step) * time.Millisecond), MaxCatchUp: 3, Overlap: Overlap(policies & 1), Missed: Missed(policies >> 1 & 3 % 3)}
		if cron {
			task.Schedule = mustCron(t, "*/7 * * * *")
		}
		d := task.decide(s)
		require.Greater(t, d.next, s.first)
		require.GreaterOrEqual(t, d.skipped, 0)
		if d.run {
			require.GreaterOrEqual(t, d.slot, s.first)
			require.LessOrEqual(t, d.slot, now)
			require.Greater(t, d.next, d.slot)
		} else {
			require.Positive(t, d.skipped)
		}
	})
}
