package cron

import (
	"math"
	"math/bits"
	"time"
)

// All of this file counts in seconds. An instant is a Unix time; a wall time is what the zone's
// clock shows at it, read as if it were UTC: instant + offset. Wall times ignore what the clock
// does, instants are what is asked for and answered.
const (
	minute int64 = 60
	day    int64 = 24 * 60 * minute

	// maxOffset bounds how far a zone's clock may be from UTC, either way. The largest there was is
	// just below 16 h.
	maxOffset = day

	// What Next gives lies between these: after the year 9999 no date can be written as JSON any
	// more.
	firstInstant int64 = -62135596800 // 0001-01-01T00:00:00Z
	lastInstant  int64 = 253402300799 // 9999-12-31T23:59:59Z

	cycleStart  int64 = 946684800 // 2000-01-01: any day would do
	cycleMonths       = 400 * 12  // then dates fall on the same weekdays again
)

// Next returns the first time strictly after the given one at which the schedule is due, in UTC and
// at a whole second. It is the zero time if there is none before the year 10000; a later
// argument never gives an earlier answer.
//
// The work does not depend on how far away that is, but for a look at each month and each change of
// the clock on the way.
func (s Schedule) Next(after time.Time) time.Time {
	from := max(after.Unix(), firstInstant-1)
	if s.zone == nil || from > lastInstant {
		return time.Time{}
	}
	next := s.nextFixed
	if s.wild {
		next = s.nextWild
	}
	at, ok := next(from)
	if s.again {
		if shown, found := s.nextWild(from); found && shown < at { // never without a fixed time that is to come
			at = shown
		}
	}
	if !ok || at > lastInstant {
		return time.Time{}
	}
	return time.Unix(at, 0).UTC()
}

// nextFixed finds the first matching wall time beyond all that the clock has shown or skipped so
// far, and when that comes.
func (s Schedule) nextFixed(after int64) (int64, bool) {
	// What the clock showed before it was last set back may lie ahead of what it shows now. Two
	// clocks of one zone are at most 2·maxOffset apart, so nothing older matters.
	var lower int64 = math.MinInt64
	offset, end := s.period(after - 2*maxOffset)
	for end <= after {
		lower = max(lower, ceilMinute(end+offset))
		offset, end = s.period(end)
	}
	wall, ok := s.match(max(lower, afterMinute(after+offset)))
	if !ok {
		return 0, false
	}
	// The first instant at which the clock shows that or more: the start of a period, if it was
	// skipped.
	start := wall - maxOffset
	for {
		offset, end := s.period(start)
		if at := max(start, wall-offset); at < end {
			return at, true
		}
		start = end
	}
}

// nextWild finds the first instant at which the clock shows a matching minute.
func (s Schedule) nextWild(after int64) (int64, bool) {
	offset, end := s.period(after)
	lower := afterMinute(after + offset)
	for {
		wall, ok := s.match(lower)
		if !ok {
			return 0, false
		}
		if at := wall - offset; at < end {
			return at, true
		}
		// The clock is set before it shows that. It goes on from anywhere, so look again.
		start := end
		if start > lastInstant {
			return 0, false
		}
		offset, end = s.period(start)
		lower = ceilMinute(start + offset)
	}
}

// period returns the zone's offset at an instant and an end, always later, until which the offset
// holds. What follows may have the same offset.
func (s Schedule) period(at int64) (offset, end int64) {
	t := time.Unix(at, 0).In(s.zone)
	_, seconds := t.Zone()
	_, bound := t.ZoneBounds()
	switch {
	case bound.IsZero():
		end = math.MaxInt64
	case bound.Unix() <= at:
		// If a zone follows a yearly rule, Go takes every year to end after 365 days. The rest
		// of a leap year is the rest of its last day.
		end = at - mod(at, day) + day
	default:
		end = bound.Unix()
	}
	return int64(seconds), end
}

// match returns the first wall time that matches, at or after the given one, which must be a whole
// minute. It reports false if there is none within a cycle of the calendar.
func (s Schedule) match(wall int64) (int64, bool) {
	t := time.Unix(wall, 0).UTC()
	year, month, today := t.Date()
	for range cycleMonths + 1 {
		if s.month>>month&1 != 0 {
			for left := from(s.days(year, month), today); left != 0; left &= left - 1 {
				d := bits.TrailingZeros64(left)
				var h, m int // from when on that day
				if d == today {
					h, m = t.Hour(), t.Minute()
				}
				if h, m, ok := s.timeOfDay(h, m); ok {
					return time.Date(year, month, d, h, m, 0, 0, time.UTC).Unix(), true
				}
			}
		}
		today = 0
		if month++; month > time.December {
			year, month = year+1, time.January
		}
	}
	return 0, false
}

// days returns the set of the month's days that match.
func (s Schedule) days(year int, month time.Month) uint64 {
	first := time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Weekday()
	length := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	var byWeekday uint64
	for left := s.weekday; left != 0; left &= left - 1 {
		const weekly = 1<<1 | 1<<8 | 1<<15 | 1<<22 | 1<<29
		byWeekday |= weekly << ((bits.TrailingZeros64(left) + 7 - int(first)) % 7)
	}
	matching := s.day & byWeekday
	if s.either {
		matching = s.day | byWeekday
	}
	return matching & (1<<(length+1) - 1)
}

// timeOfDay returns the first matching hour and minute of a day, at or after the given ones.
func (s Schedule) timeOfDay(h, m int) (int, int, bool) {
	hours := from(s.hour, h)
	if hours>>h&1 != 0 {
		if minutes := from(s.minute, m); minutes != 0 {
			return h, bits.TrailingZeros64(minutes), true
		}
		hours &= hours - 1
	}
	return bits.TrailingZeros64(hours), bits.TrailingZeros64(s.minute), hours != 0
}

// from drops the members of a set below n.
func from(set uint64, n int) uint64 { return set >> n << n }

func mod(a, b int64) int64 { return (a%b + b) % b }

// ceilMinute returns the first whole minute at or after t; afterMinute the first one after it.
func ceilMinute(t int64) int64  { return t + mod(-t, minute) }
func afterMinute(t int64) int64 { return t - mod(t, minute) + minute }
