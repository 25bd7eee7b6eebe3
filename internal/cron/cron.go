// Package cron reads cron expressions and says when they are due, in any time zone and across every
// change of its clocks.
//
// The five fields are parsed by github.com/robfig/cron/v3. When they are due is decided here,
// because a schedule that is shared by many machines and outlives all of them must neither lose nor
// repeat a slot:
//
//   - The zone is UTC unless the spec begins with CRON_TZ=Zone or TZ=Zone. It is never the zone of the machine, which
//     may be another one on the next leader. The zone's history comes from the machine (or from time/tzdata, if the
//     program embeds it): instances that know different editions of it differ where the editions do.
//   - A spec whose hour field names hours (does not begin with *) has *fixed times*. Each of them comes once: at the first
//     instant at which the zone's clock shows it or something later. So a time that the clock skips comes right after the
//     gap, several that it skips in one gap come as one, and a time that it shows twice comes the first time.
//   - A spec whose hour field begins with * follows *elapsed time*: it is due whenever the clock shows a matching minute,
//     in both of two equal hours, and never in a gap.
//   - A spec whose minute field begins with * and whose hour field does not has its fixed times, and is due also whenever
//     the clock shows one of them again: "*/5 0-5 * * *" does not pause for the hour that is repeated.
//   - If the day of the month and the day of the week are both restricted, either is enough. If one of them has a star, both must match. A
//     star with a step, such as */2, restricts: so it is in robfig's own schedules, and with that in Kubernetes. In Vixie cron it counts
//     as a star.
//
// So it is in Vixie cron, with one difference: there a spec of the third kind follows elapsed time
// alone, so that "*/15 2 * * *" never ran in a night without that hour. Here it runs once, right
// after the gap. In a night that has the hour twice it runs eight times, as in Vixie cron and in
// robfig's own schedules, and with those in Kubernetes. They run a fixed time twice as well; here,
// as in Vixie cron, it comes once.
//
// Nothing here reads a clock or starts a goroutine.
package cron

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	robfig "github.com/robfig/cron/v3"
)

// Schedule is a parsed spec. It is a value that never changes, safe for concurrent use. The zero
// Schedule is never due.
type Schedule struct {
	spec string
	zone *time.Location

	// Bit n is set if the field allows n.
	minute, hour, day, month, weekday uint64

	wild   bool // follows elapsed time
	again  bool // has fixed times, which come again if the clock shows them twice
	either bool // a matching day of the month or of the week is enough
}

// String returns the spec as it was given to Parse.
func (s Schedule) String() string { return s.spec }

// descriptors are short for these fields.
var descriptors = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// Parse reads a spec: minute, hour, day of month, month and day of week (Sunday is 0, and 7), or
// one of @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually; before it,
// optionally, CRON_TZ=Zone or TZ=Zone and a space.
//
// The error names the spec and what is wrong with it. A spec that no day of the 400 years after
// which the calendar repeats itself satisfies, such as the 30th of February, is an error.
func Parse(spec string) (Schedule, error) {
	s, err := parse(spec)
	if err != nil {
		return Schedule{}, fmt.Errorf("cron spec %q: %w", spec, err)
	}
	return s, nil
}

func parse(spec string) (Schedule, error) {
	zone, rest, err := splitZone(strings.TrimSpace(spec))
	if err != nil {
		return Schedule{}, err
	}
	if rest == "@every" || strings.HasPrefix(rest, "@every ") {
		return Schedule{}, errors.New("@every is no time of day; use Every, whose intervals stay in step across leaders")
	}
	if strings.HasPrefix(rest, "@") {
		fields, ok := descriptors[rest]
		if !ok {
			return Schedule{}, fmt.Errorf("unknown descriptor %q", rest)
		}
		rest = fields
	}
	fields := strings.Fields(rest)
	if err := checkFields(fields); err != nil {
		return Schedule{}, err
	}
	fields[4] = sundays(fields[4])
	bits, err := guard(robfig.NewParser(robfig.Minute|robfig.Hour|robfig.Dom|robfig.Month|robfig.Dow).Parse, strings.Join(fields, " "))
	if err != nil {
		return Schedule{}, err
	}
	const values, starred = 1<<60 - 1, 1 << 63 // the parser marks a star above the values
	s := Schedule{
		spec: spec, zone: zone,
		minute: bits.Minute & values, hour: bits.Hour & values,
		day: bits.Dom & values, month: bits.Month & values, weekday: bits.Dow & values,
		wild:   star(fields[1]),
		again:  star(fields[0]) && !star(fields[1]),
		either: bits.Dom&starred == 0 && bits.Dow&starred == 0,
	}
	if _, ok := s.match(cycleStart); !ok {
		return Schedule{}, errors.New("no such day ever comes")
	}
	return s, nil
}

// splitZone takes the zone off the front of a spec.
func splitZone(spec string) (*time.Location, string, error) {
	name, ok := strings.CutPrefix(spec, "CRON_TZ=")
	if !ok {
		name, ok = strings.CutPrefix(spec, "TZ=")
	}
	if !ok {
		return time.UTC, spec, nil
	}
	rest := ""
	if i := strings.IndexFunc(name, unicode.IsSpace); i >= 0 {
		name, rest = name[:i], strings.TrimSpace(name[i:])
	}
	// The standard library reads these as UTC and as the zone of the machine.
	if name == "" || name == "Local" {
		return nil, "", fmt.Errorf("time zone %q: name one, such as UTC or Europe/Berlin", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, "", fmt.Errorf("%w (if there is such a zone, this machine lacks the zone database: import _ \"time/tzdata\")", err)
	}
	return zone, rest, nil
}

// checkFields refuses what the parser would read as something else than is written, or as nothing.
func checkFields(fields []string) error {
	if len(fields) != 5 {
		return fmt.Errorf("%d fields, want 5: minute, hour, day of month, month, day of week", len(fields))
	}
	for i, field := range fields {
		for part := range strings.SplitSeq(field, ",") {
			if part == "" {
				return fmt.Errorf("field %q: an element is empty", field)
			}
			for _, d := range dialects {
				if d.in[i] && d.written(strings.ToUpper(part)) {
					return fmt.Errorf("field %q: %s is not supported: %s", field, d.what, d.instead)
				}
			}
			if star(part) && len(part) > 1 && part[1] != '/' {
				return fmt.Errorf("field %q: only a step may follow %c", field, part[0])
			}
			if _, text, ok := strings.Cut(part, "/"); ok {
				if step, err := strconv.Atoi(text); err == nil && step > fieldValues[i] {
					return fmt.Errorf("field %q: a step of %d goes beyond the %d values of %s: it would come once, not every %d", field, step,
						fieldValues[i], fieldNames[i], step)
				}
			}
		}
	}
	return nil
}

// dialects are what other readers of cron expressions know beyond the five fields. None of it can
// be said in them.
var dialects = []struct {
	in            [5]bool                // the fields in which it means that
	written       func(part string) bool // in upper case
	what, instead string
}{
	{
		[5]bool{true, true, true, true, true}, isHash, "H (a value by the hash of a name, as in Jenkins)",
		"write a number of your own, or use Task.Jitter",
	},
	{
		[5]bool{2: true}, func(part string) bool { return part == "L" || strings.HasPrefix(part, "L-") }, "L (the last day of the month, as in Quartz)",
		"write 28-31 and have the task return unless the next day is the 1st, or implement Schedule",
	},
	{
		[5]bool{2: true}, func(part string) bool { return strings.HasSuffix(part, "W") }, "W (the nearest day from Monday to Friday, as in Quartz)",
		"write the days that it may be and have the task return on the others, or implement Schedule",
	},
	{
		[5]bool{4: true}, func(part string) bool { return strings.HasSuffix(part, "L") }, "L (the last such day of the month, as in Quartz)",
		"write the day alone and have the task return unless it is in another month a week later, or implement Schedule",
	},
	{
		[5]bool{4: true}, func(part string) bool { return strings.Contains(part, "#") }, "# (the nth such day of the month, as in Quartz)",
		"write the day alone and have the task return in the other weeks, or implement Schedule",
	},
}

func isHash(part string) bool {
	return part == "H" || strings.HasPrefix(part, "H(") || strings.HasPrefix(part, "H/")
}

// How many values each field has, and what it is called.
var (
	fieldValues = [...]int{60, 24, 31, 12, 7}
	fieldNames  = [...]string{"the minute", "the hour", "the day of the month", "the month", "the day of the week"}
)

// sundays rewrites the days of the week that name Sunday as 7, which the parser does not know, as
// lists of days.
func sundays(field string) string {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		days, text, stepped := strings.Cut(part, "/")
		low, high, ranged := strings.Cut(days, "-")
		if !ranged {
			high = low
		}
		if high != "7" {
			continue
		}
		from, step := slices.Index(weekdays[:], strings.ToLower(low)), 1
		if n, err := strconv.Atoi(low); err == nil {
			from = n
		}
		if n, err := strconv.Atoi(text); stepped {
			if err != nil || n < 1 {
				continue // the parser says what is wrong
			}
			step = n
		}
		if from < 0 || from > 7 {
			continue
		}
		var list []string
		for day := from; day <= 7; day += step {
			list = append(list, strconv.Itoa(day%7))
		}
		parts[i] = strings.Join(list, ",")
	}
	return strings.Join(parts, ",")
}

var weekdays = [...]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// star reports whether a field begins with a star.
func star(field string) bool { return field[0] == '*' || field[0] == '?' }

// guard turns a panic of the parser into an error.
func guard(parse func(string) (robfig.Schedule, error), fields string) (bits *robfig.SpecSchedule, err error) {
	defer func() {
		if p := recover(); p != nil {
			bits, err = nil, fmt.Errorf("the parser failed: %v", p)
		}
	}()
	parsed, err := parse(fields)
	if err != nil {
		return nil, err
	}
	bits, ok := parsed.(*robfig.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("the parser returned a %T", parsed)
	}
	return bits, nil
}
