package schedule

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/cron"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// next is a schedule made of a function.
type next func(time.Time) time.Time

func (n next) Next(after time.Time) time.Time { return n(after) }

// grid hides the interval of a schedule, so that it is walked.
func grid(s Schedule) Schedule { return next(s.Next) }

// at has one slot.
func at(slot time.Time) Schedule {
	return next(func(after time.Time) time.Time {
		if after.Before(slot) {
			return slot
		}
		return time.Time{}
	})
}

func mustCron(t testing.TB, spec string) Schedule {
	t.Helper()
	s, err := cron.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFirst(t *testing.T) {
	hour := Every(time.Hour)
	for name, c := range map[string]struct {
		r    Rules
		now  time.Time
		want time.Duration // after noon
	}{
		"one interval from now":     {Rules{Schedule: hour}, noon, time.Hour},
		"after the delay":           {Rules{Schedule: hour, InitialDelay: time.Second}, noon, time.Second},
		"delay above the interval":  {Rules{Schedule: hour, InitialDelay: 3 * time.Hour}, noon, 3 * time.Hour},
		"at once":                   {Rules{Schedule: hour, InitialDelay: -1}, noon, 0},
		"rounded up":                {Rules{Schedule: hour, InitialDelay: 1}, noon, time.Millisecond},
		"now in fractions":          {Rules{Schedule: hour, InitialDelay: -1}, noon.Add(1), time.Millisecond},
		"cron":                      {Rules{Schedule: mustCron(t, "*/5 * * * *")}, noon, 5 * time.Minute},
		"cron, delayed":             {Rules{Schedule: mustCron(t, "*/5 * * * *"), InitialDelay: 6 * time.Minute}, noon, 10 * time.Minute},
		"cron, at once":             {Rules{Schedule: mustCron(t, "*/5 * * * *"), InitialDelay: -time.Hour}, noon, 5 * time.Minute},
		"no interval of its own":    {Rules{Schedule: grid(hour), InitialDelay: time.Second}, noon, time.Hour + time.Second},
		"interval in another zone":  {Rules{Schedule: hour}, noon.In(time.FixedZone("", 3600)), time.Hour},
		"interval below one milli":  {Rules{Schedule: Every(time.Nanosecond)}, noon, time.Millisecond},
		"schedule gives fractions":  {Rules{Schedule: at(noon.Add(1500 * time.Microsecond))}, noon, 2 * time.Millisecond},
		"the longest interval":      {Rules{Schedule: Every(math.MaxInt64)}, noon, math.MaxInt64 / 1e6 * 1e6},
		"schedule in another zone":  {Rules{Schedule: at(noon.Add(time.Hour).In(time.FixedZone("", -3600)))}, noon, time.Hour},
		"one slot, already in past": {Rules{Schedule: at(noon)}, noon, -1},
		"no schedule":               {Rules{}, noon, -1},
		"no interval":               {Rules{Schedule: Every(0), InitialDelay: time.Hour}, noon, -1},
		"negative interval":         {Rules{Schedule: Every(-time.Hour)}, noon, -1},
		"goes back":                 {Rules{Schedule: next(func(t time.Time) time.Time { return t.Add(-1) })}, noon, -1},
		"stands still":              {Rules{Schedule: next(func(t time.Time) time.Time { return t })}, noon, -1},
		"beyond all dates":          {Rules{Schedule: next(func(t time.Time) time.Time { return t.AddDate(9000, 0, 0) })}, noon, -1},
	} {
		want := noon.Add(c.want)
		got := First(c.r, c.now)
		if c.want == -1 {
			want = time.Time{}
		} else if name == "the longest interval" {
			want = want.Truncate(time.Millisecond).Add(time.Millisecond) // no whole milli above it
		}
		if !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestDue(t *testing.T) {
	mins := time.Minute
	hourly := Rules{Schedule: Every(time.Hour)}
	skip := Rules{Schedule: Every(time.Hour), Missed: SkipMissed}
	all := Rules{Schedule: Every(time.Hour), Missed: RunAll, MaxCatchUp: 3}
	threeSlots := irregular([]time.Time{noon.Add(-30 * mins), noon.Add(-20 * mins), noon})
	const never = math.MinInt64
	type want struct {
		slot, next time.Duration // after noon; slot never: no run; next never: ended
		wait       time.Duration
		skipped    int
		reset      bool
	}
	for _, c := range []struct {
		name string
		r    Rules
		late time.Duration // now, after the stored slot: noon
		want want
	}{
		{"not due", hourly, -mins, want{slot: never, wait: mins}},
		{"a moment before", hourly, -1, want{slot: never, wait: 1}},
		{"due", hourly, 0, want{next: 60 * mins, wait: 60 * mins}},
		{"late", hourly, 59 * mins, want{next: 60 * mins, wait: mins}},
		{"two due", hourly, 60 * mins, want{slot: 60 * mins, next: 120 * mins, wait: 60 * mins, skipped: 1}},
		{"many due", hourly, 1000*60*mins + mins, want{slot: 60_000 * mins, next: 60_060 * mins, wait: 59 * mins, skipped: 1000}},
		{"unknown policy", Rules{Schedule: hourly.Schedule, Missed: 9}, 61 * mins, want{slot: 60 * mins, next: 120 * mins, wait: 59 * mins, skipped: 1}},

		{"skip: taken over in time", skip, 300 * time.Millisecond, want{next: 60 * mins, wait: 60*mins - 300*time.Millisecond}},
		{"skip: still within the grace", skip, mins, want{next: 60 * mins, wait: 59 * mins}},
		{"skip: outage", skip, 9 * mins, want{slot: never, next: 60 * mins, wait: 51 * mins, skipped: 1}},
		{"skip: long outage", skip, 190 * mins, want{slot: never, next: 240 * mins, wait: 50 * mins, skipped: 4}},
		{"skip: long outage, the last one in time", skip, 180*mins + time.Second, want{slot: 180 * mins, next: 240 * mins, wait: 60*mins - time.Second, skipped: 3}},
		{"skip: longer grace", Rules{Schedule: skip.Schedule, Missed: SkipMissed, Grace: 10 * mins}, 9 * mins, want{next: 60 * mins, wait: 51 * mins}},
		{"skip: shorter grace", Rules{Schedule: skip.Schedule, Missed: SkipMissed, Grace: 1}, 2, want{slot: never, next: 60 * mins, wait: 60*mins - 2, skipped: 1}},
		{"skip: short interval", Rules{Schedule: Every(time.Second), Missed: SkipMissed}, 10*mins + 1, want{slot: 10 * mins, next: 10*mins + time.Second, wait: time.Second - 1, skipped: 600}},

		{"all: one", all, 0, want{next: 60 * mins, wait: 60 * mins}},
		{"all: two", all, 60 * mins, want{next: 60 * mins}},
		{"all: as many as allowed", all, 130 * mins, want{next: 60 * mins}},
		{"all: more", all, 180 * mins, want{slot: 60 * mins, next: 120 * mins, skipped: 1}},
		{"all: by default a hundred", Rules{Schedule: all.Schedule, Missed: RunAll}, 60 * 100 * mins, want{slot: 60 * mins, next: 120 * mins, skipped: 1}},

		{"last slot", Rules{Schedule: at(noon)}, mins, want{next: never}},
		{"last slot, too late", Rules{Schedule: at(noon), Missed: SkipMissed}, 2 * mins, want{slot: never, next: never, skipped: 1}},
		{"no schedule", Rules{}, mins, want{next: never}},
		{"no schedule, not due", Rules{}, -mins, want{slot: never, wait: mins}},
		{"schedule ended, not due", Rules{Schedule: at(noon.AddDate(-1, 0, 0))}, -10 * time.Hour, want{slot: never, wait: 10 * time.Hour}},

		{"clock stepped back a little", hourly, -90 * mins, want{slot: never, wait: 90 * mins}},
		{"by as much as one slot", hourly, -120 * mins, want{slot: never, wait: 120 * mins}},
		{"by more", hourly, -121 * mins, want{slot: never, next: -61 * mins, wait: 60 * mins, reset: true}},
		{"by little, but many slots", Rules{Schedule: Every(time.Second)}, -mins, want{slot: never, wait: mins}},
		{"by more, many slots", Rules{Schedule: Every(time.Second)}, -2 * mins, want{slot: never, next: -2*mins + time.Second, wait: time.Second, reset: true}},
		{"a long delay is no step", Rules{Schedule: Every(time.Second), InitialDelay: time.Hour}, -time.Hour, want{slot: never, wait: time.Hour}},
		{"a short delay neither", Rules{Schedule: Every(time.Hour), InitialDelay: time.Second}, -time.Hour, want{slot: never, wait: time.Hour}},
		{"a delay that now ends beyond the last slot", Rules{Schedule: threeSlots, InitialDelay: time.Hour}, -40 * mins, want{slot: never, wait: 40 * mins}},
		{"one slot, clock stepped back", Rules{Schedule: at(noon)}, -1000 * time.Hour, want{slot: never, wait: 1000 * time.Hour}},
		{"one slot, another one stored", Rules{Schedule: at(noon.Add(-time.Hour))}, -3 * time.Hour, want{slot: never, next: -time.Hour, wait: 2 * time.Hour, reset: true}},
	} {
		for _, variant := range []string{"", ", walked"} {
			if variant != "" {
				if c.r.Schedule == nil || c.r.InitialDelay != 0 {
					continue
				}
				c.r.Schedule = grid(c.r.Schedule)
			}
			w := Decision{Run: c.want.slot != never, Skipped: c.want.skipped, Wait: c.want.wait, Reset: c.want.reset}
			if w.Run {
				w.Slot = noon.Add(c.want.slot)
			}
			if c.want.next == never {
				w.Ended, w.Wait = true, Never
			} else {
				w.Next = noon.Add(c.want.next)
			}
			if got := Due(c.r, noon, noon.Add(c.late)); got != w {
				t.Errorf("%s%s:\ngot  %+v\nwant %+v", c.name, variant, got, w)
			}
		}
	}
}

func TestDueOfStrangeRecords(t *testing.T) {
	hourly := Rules{Schedule: Every(time.Hour)}
	fresh := Decision{Next: noon.Add(time.Hour), Wait: time.Hour, Reset: true}
	for _, ms := range []int64{-1, math.MinInt64, math.MaxInt64, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()} {
		if got := Due(hourly, time.UnixMilli(ms), noon); got != fresh {
			t.Errorf("%d: %+v", ms, got)
		}
	}
	// The zero time survives being stored.
	if got, want := Due(hourly, time.UnixMilli(time.Time{}.UnixMilli()), noon), (Decision{Ended: true, Wait: Never}); got != want {
		t.Errorf("ended: %+v", got)
	}
	if got, want := Due(Rules{Schedule: at(noon.AddDate(-1, 0, 0))}, time.UnixMilli(-5), noon), (Decision{Ended: true, Wait: Never, Reset: true}); got != want {
		t.Errorf("damaged and ended: %+v", got)
	}
	// What was stored in fractions, by others, comes when it is past.
	if got := Due(hourly, noon.Add(1), noon.Add(1)); got.Run || got.Wait != time.Millisecond-1 {
		t.Errorf("fractions: %+v", got)
	}
	if got := Due(hourly, time.UnixMilli(0), noon); got.Slot != noon || got.Skipped != int(noon.Unix()/3600) {
		t.Errorf("epoch: %+v", got)
	}
}

// The grid of a cron schedule survives any number of failovers, and the days on which the clocks
// change.
// TestClockSetBack: slots come again if the clock is set back by more than a minute and past more
// than one of them, as docs/tasks.md says, and else the one that was next is waited for.
func TestClockSetBack(t *testing.T) {
	daily := mustCron(t, "0 2 * * *")
	two := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		s     Schedule
		next  time.Time // that is stored
		back  time.Duration
		again bool
	}{
		"seconds by half a minute": {Every(time.Second), noon.Add(time.Second), 30 * time.Second, false},
		"seconds by two minutes":   {Every(time.Second), noon.Add(time.Second), 2 * time.Minute, true},
		"hours by half an hour":    {Every(time.Hour), noon.Add(time.Hour), 30 * time.Minute, false},
		"hours by three":           {Every(time.Hour), noon.Add(time.Hour), 3 * time.Hour, true},
		"days past one slot":       {daily, two.AddDate(0, 0, 1), 11 * time.Hour, false},
		"days past two":            {daily, two.AddDate(0, 0, 1), 35 * time.Hour, true},
	} {
		if d := Due(Rules{Schedule: c.s}, c.next, noon.Add(-c.back)); d.Reset != c.again || !c.again && !d.Next.Equal(c.next) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestDueFollowsTheCronGrid(t *testing.T) {
	r := Rules{Schedule: mustCron(t, "TZ=Europe/Berlin 30 2 * * *")}
	stored := First(r, time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
	for _, want := range []string{"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z", "2026-03-31T00:30:00Z"} {
		if d := Due(r, stored, stored.Add(-time.Second)); d.Run || d.Wait != time.Second || d.Next != stored {
			t.Fatalf("a second early: %+v", d)
		}
		d := Due(r, stored, stored.Add(17*time.Minute))
		if !d.Run || d.Slot.Format(time.RFC3339) != want {
			t.Fatalf("%+v, want %s", d, want)
		}
		stored = d.Next
	}
}

func TestMissedString(t *testing.T) {
	for m, want := range map[Missed]string{RunOnce: "run-once", SkipMissed: "skip", RunAll: "run-all", 7: "missed(7)", -1: "missed(-1)"} {
		if got := m.String(); got != want {
			t.Errorf("%d: %q", int(m), got)
		}
	}
}

// odd is a schedule with a method that means something else.
type odd struct{ Schedule }

func (odd) Interval() time.Duration { return time.Minute }

// Only an Every, and what embeds one, has an interval.
func TestNoMethodMakesAnInterval(t *testing.T) {
	if got := Interval(odd{grid(Every(time.Hour))}); got != 0 {
		t.Error(got)
	}
	if got := Interval(struct{ Every }{Every(time.Hour)}); got != time.Hour {
		t.Error(got)
	}
}

func TestEvery(t *testing.T) {
	if got := Every(15 * time.Minute).String(); got != "every 15m0s" {
		t.Error(got)
	}
	for d, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: time.Second, 1: time.Millisecond, time.Millisecond + 1: 2 * time.Millisecond,
		math.MaxInt64: math.MaxInt64, -time.Second: 0,
	} {
		if got := Interval(Every(d)); got != want {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
	for d, want := range map[Every]time.Time{
		Every(time.Second): noon.Add(time.Second), 1: noon.Add(time.Millisecond), 0: {}, -1: {}, Every(-time.Hour): {},
	} {
		if got := d.Next(noon); !got.Equal(want) {
			t.Errorf("%v: %v, want %v", d, got, want)
		}
	}
}

// A date beyond 9999 cannot be written as JSON: the schedule ends before it.
func TestScheduleEndsWithTheDates(t *testing.T) {
	for year, want := range map[int]bool{9998: true, 9999: true, 10_000: false, 10_001: false} {
		slot := time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC)
		if got := Following(at(slot), noon); got.IsZero() == want {
			t.Errorf("%d: %v", year, got)
		}
	}
}

// One runs the slot that is stored, and leaves the rest of what was missed to the next decision.
func TestOne(t *testing.T) {
	hourly := Rules{Schedule: Every(time.Hour), Missed: RunAll}
	late := noon.Add(150 * time.Minute)
	if got, want := One(hourly, noon, late), (Decision{Run: true, Slot: noon, Next: noon.Add(time.Hour)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := One(Rules{Schedule: at(noon)}, noon, late), (Decision{Run: true, Slot: noon, Ended: true, Wait: Never}); got != want {
		t.Errorf("the last one: %+v, want %+v", got, want)
	}
}

// The numbers that docs and options name.
func TestBounds(t *testing.T) {
	if DefaultMaxCatchUp != 100 || DefaultGrace != time.Minute || MaxSteps != 10_000 {
		t.Error(DefaultMaxCatchUp, DefaultGrace, MaxSteps)
	}
	if got := add(math.MaxInt, 1); got != math.MaxInt {
		t.Error(got)
	}
}

// A year of missed slots must neither take long nor count wrongly if it can be counted.
func TestDueIsBounded(t *testing.T) {
	year := noon.AddDate(1, 0, 0)
	seconds := int(year.Sub(noon) / time.Second)
	if d := Due(Rules{Schedule: Every(time.Second)}, noon, year); d.Slot != year || d.Skipped != seconds || d.AtLeast {
		t.Errorf("%+v", d)
	}
	if d := Due(Rules{Schedule: Every(time.Second), Missed: RunAll, MaxCatchUp: 2 * MaxSteps}, noon, year); d.Slot != year.Add(-(MaxSteps-1)*time.Second) {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		spec  string
		every time.Duration
	}{{"* * * * *", time.Minute}, {"*/15 * * * *", 15 * time.Minute}} {
		for _, keep := range []int{1, 2, 100, MaxSteps} {
			calls := 0
			s := mustCron(t, c.spec)
			counted := next(func(t time.Time) time.Time { calls++; return s.Next(t) })
			now := year.Add(c.every - time.Millisecond)
			d := Due(Rules{Schedule: counted, Missed: RunAll, MaxCatchUp: keep}, noon, now)
			slot := year.Add(-time.Duration(keep-1) * c.every)
			if !d.Run || d.Slot != slot || d.Next != slot.Add(c.every) || d.Skipped != MaxSteps || !d.AtLeast {
				t.Errorf("%s, %d: %+v", c.spec, keep, d)
			}
			if limit := MaxSteps + keep + 2 + 36*(keep+1); calls > limit {
				t.Errorf("%s, %d: %d calls, want at most %d", c.spec, keep, calls, limit)
			}
		}
		if d := Due(Rules{Schedule: mustCron(t, c.spec)}, noon, year); d.Slot != year || d.Next != year.Add(c.every) || !d.AtLeast {
			t.Errorf("%s: %+v", c.spec, d)
		}
	}
	// Just as many as are walked through are counted.
	for _, missed := range []int{MaxSteps, MaxSteps + 1} {
		now := noon.Add(time.Duration(missed) * time.Minute)
		d := Due(Rules{Schedule: mustCron(t, "* * * * *")}, noon, now)
		if d.Slot != now || d.Next != now.Add(time.Minute) || d.AtLeast != (missed > MaxSteps) || d.Skipped != MaxSteps {
			t.Errorf("%d: %+v", missed, d)
		}
	}
	// Slots that depend on what is asked: bounded all the same, and the new grid holds.
	d := Due(Rules{Schedule: grid(Every(7 * time.Second)), Missed: SkipMissed}, noon, year)
	if !d.Run || d.Slot.After(year) || !d.Next.After(year) || d.Next.Sub(d.Slot) != 7*time.Second || d.Skipped != MaxSteps {
		t.Errorf("%+v", d)
	}
}

func BenchmarkDue(b *testing.B) {
	year := noon.AddDate(1, 0, 0)
	for _, c := range []struct {
		name string
		r    Rules
		now  time.Time
	}{
		{"every, not due", Rules{Schedule: Every(time.Hour)}, noon.Add(-time.Minute)},
		{"cron, not due", Rules{Schedule: mustCron(b, "0 * * * *")}, noon.Add(-time.Minute)},
		{"cron, due", Rules{Schedule: mustCron(b, "0 * * * *")}, noon},
		{"every second, a year", Rules{Schedule: Every(time.Second)}, year},
		{"cron every minute, a year", Rules{Schedule: mustCron(b, "* * * * *")}, year},
		{"the same, run 100", Rules{Schedule: mustCron(b, "* * * * *"), Missed: RunAll}, year},
		{"the same, run " + strconv.Itoa(MaxSteps), Rules{Schedule: mustCron(b, "* * * * *"), Missed: RunAll, MaxCatchUp: MaxSteps}, year},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				Due(c.r, noon, c.now)
			}
		})
	}
}
