package cron

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests must not depend on the machine's zones

	robfig "github.com/robfig/cron/v3"
)

func mustParse(t testing.TB, spec string) Schedule {
	t.Helper()
	s, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func at(t testing.TB, rfc3339 string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, rfc3339)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestParseRefuses(t *testing.T) {
	for spec, want := range map[string]string{
		"":                            "0 fields, want 5",
		"* * * *":                     "4 fields, want 5",
		"0 * * * * *":                 "6 fields, want 5",
		"@every 1h":                   "use Every",
		"TZ=UTC @every 1h":            "use Every",
		"@every":                      "use Every",
		"@reboot":                     `unknown descriptor "@reboot"`,
		"@Daily":                      `unknown descriptor "@Daily"`,
		"CRON_TZ=UTC":                 "0 fields, want 5",
		"TZ= * * * * *":               `time zone ""`,
		"TZ=Local * * * * *":          `time zone "Local"`,
		"TZ=Nowhere/Land * * * * *":   `unknown time zone Nowhere/Land (if there is such a zone, this machine lacks the zone database: import _ "time/tzdata")`,
		"TZ=../zone * * * * *":        "zone",
		"TZ=UTC TZ=UTC * * * * *":     "6 fields, want 5",
		"TZ=UTC CRON_TZ=UTC * * * *":  "found 4",
		"60 * * * *":                  "above maximum (59)",
		"* 24 * * *":                  "above maximum (23)",
		"* * 0 * *":                   "below minimum (1)",
		"* * * 13 *":                  "above maximum (12)",
		"* * * * 8":                   "above maximum (6)",
		"* * * * 5-8":                 "above maximum (6)",
		"* * * * 7-1":                 "beyond end of range",
		"* * * * 8-7":                 "above maximum (6)",
		"* * * * x-7":                 "failed to parse",
		"* * * * 1-7/0":               "above maximum (6)",
		"*/90 * * * *":                "a step of 90 goes beyond the 60 values of the minute",
		"5/61 * * * *":                "a step of 61 goes beyond the 60 values of the minute",
		"0 */36 * * *":                "a step of 36 goes beyond the 24 values of the hour",
		"0 0 1-7/32 * *":              "beyond the 31 values of the day of the month",
		"0 0 * */13 *":                "beyond the 12 values of the month",
		"0 0 * * */8":                 "beyond the 7 values of the day of the week",
		"5-1 * * * *":                 "beyond end of range",
		"*/0 * * * *":                 "step",
		"-1 * * * *":                  "failed to parse",
		"1/2/3 * * * *":               "too many slashes",
		"x * * * *":                   "failed to parse",
		", * * * *":                   "an element is empty",
		"1,,2 * * * *":                "an element is empty",
		"*-5 * * * *":                 "only a step may follow *",
		"* ?x * * *":                  "only a step may follow ?",
		"0 0 30 2 *":                  "no such day ever comes",
		"0 0 31 4,6,9,11 *":           "no such day ever comes",
		"9999999999999999999 * * * *": "failed to parse",
	} {
		s, err := Parse(spec)
		if err == nil {
			t.Errorf("%q: accepted", spec)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "cron spec ") {
			t.Errorf("%q: %v, want something with %q", spec, err, want)
		}
		if s != (Schedule{}) {
			t.Errorf("%q: a schedule beside the error", spec)
		}
	}
}

// What the parser does that it should not must not reach us.
func TestParserFailures(t *testing.T) {
	for name, parse := range map[string]func(string) (robfig.Schedule, error){
		"panic":       func(string) (robfig.Schedule, error) { panic("slice bounds out of range") },
		"other type":  func(string) (robfig.Schedule, error) { return robfig.Every(time.Hour), nil },
		"error":       func(string) (robfig.Schedule, error) { return nil, errors.New("no") },
		"nothing":     func(string) (robfig.Schedule, error) { return nil, nil },
		"its own bug": func(string) (robfig.Schedule, error) { return robfig.ParseStandard("TZ=UTC") },
	} {
		if bits, err := guard(parse, ""); err == nil || bits != nil {
			t.Errorf("%s: %v, %v", name, bits, err)
		}
	}
}

func TestParseAccepts(t *testing.T) {
	from := at(t, "2026-02-10T12:34:56Z") // a Tuesday
	for _, c := range []struct{ spec, want string }{
		{"* * * * *", "2026-02-10T12:35:00Z"},
		{"*/60 */24 * * *", "2026-02-11T00:00:00Z"},
		{"0 0 * * 7", "2026-02-15T00:00:00Z"},
		{"0 0 * * 3-7/4", "2026-02-11T00:00:00Z"},
		{"0 0 * * sat-7", "2026-02-14T00:00:00Z"},
		{"0 0 * * 1,7", "2026-02-15T00:00:00Z"},
		{"0 0 * * 5-7/1", "2026-02-13T00:00:00Z"},
		{"  0   13  *  *  * ", "2026-02-10T13:00:00Z"},
		{"\t0\t13\t*\t*\t?", "2026-02-10T13:00:00Z"},
		{"@hourly", "2026-02-10T13:00:00Z"},
		{"@daily", "2026-02-11T00:00:00Z"},
		{"@midnight", "2026-02-11T00:00:00Z"},
		{"@weekly", "2026-02-15T00:00:00Z"},
		{"@monthly", "2026-03-01T00:00:00Z"},
		{"@yearly", "2027-01-01T00:00:00Z"},
		{"@annually", "2027-01-01T00:00:00Z"},
		{"TZ=Asia/Kolkata @daily", "2026-02-10T18:30:00Z"},
		{"CRON_TZ=Asia/Kolkata\t0 0 * * *", "2026-02-10T18:30:00Z"},
		{"*/20 * * * *", "2026-02-10T12:40:00Z"},
		{"5/20 * * * *", "2026-02-10T12:45:00Z"},
		{"35-37,50 * * * *", "2026-02-10T12:35:00Z"},
		{"0 9 * * mon-FRI", "2026-02-11T09:00:00Z"},
		{"0 9 * JAN,aug *", "2026-08-01T09:00:00Z"},
		{"34 12 10 2 *", "2027-02-10T12:34:00Z"},

		// Either day if both are restricted, both if one begins with a star.
		{"0 0 13 * 5", "2026-02-13T00:00:00Z"},
		{"0 0 14 * 0", "2026-02-14T00:00:00Z"},
		{"0 0 */2 * 0", "2026-02-11T00:00:00Z"},
		{"0 0 12 * */3", "2026-02-11T00:00:00Z"}, // a Wednesday
		{"0 0 1,* * 0", "2026-02-15T00:00:00Z"},
	} {
		s, err := Parse(c.spec)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.String() != c.spec {
			t.Errorf("String() = %q, want %q", s, c.spec)
		}
		if got, want := s.Next(from), at(t, c.want); !got.Equal(want) || got.Location() != time.UTC {
			t.Errorf("%q: %v, want %v", c.spec, got, want)
		}
	}
}

func TestRareDays(t *testing.T) {
	for _, c := range []struct{ spec, from, want string }{
		{"0 0 29 2 *", "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"},
		{"0 0 29 2 *", "2096-02-28T23:59:59Z", "2096-02-29T00:00:00Z"},
		{"0 0 31 12 *", "9998-12-31T00:00:00Z", "9999-12-31T00:00:00Z"},
	} {
		if got, want := mustParse(t, c.spec).Next(at(t, c.from)), at(t, c.want); !got.Equal(want) {
			t.Errorf("%q after %s: %v, want %v", c.spec, c.from, got, want)
		}
	}
}

func TestNextEnds(t *testing.T) {
	lastFriday := mustParse(t, "TZ=Africa/Cairo 0 */24 24-30 4 5")
	lastFriday.either = false // no spec says that
	never := map[string]struct {
		s    Schedule
		from time.Time
	}{
		"zero schedule":     {Schedule{}, at(t, "2026-01-01T00:00:00Z")},
		"end of the dates":  {mustParse(t, "0 0 1 1 *"), at(t, "9999-01-01T00:00:00Z")},
		"beyond them":       {mustParse(t, "* * * * *"), at(t, "9999-12-31T23:59:59Z").Add(time.Hour)},
		"far beyond":        {mustParse(t, "* * * * *"), time.Unix(1<<62, 0)},
		"fixed, last":       {mustParse(t, "59 23 * * *"), at(t, "9999-12-31T23:59:00Z")},
		"wild, last minute": {mustParse(t, "TZ=Europe/Berlin * * * * *"), at(t, "9999-12-31T23:59:00Z")},
		// Egypt's clocks skip exactly this hour, and a star follows the clock.
		"always in the gap": {lastFriday, at(t, "2024-01-01T00:00:00Z")},
		"no such sets":      {Schedule{zone: time.UTC}, at(t, "2026-01-01T00:00:00Z")},
		"no such sets, *":   {Schedule{zone: time.UTC, wild: true}, at(t, "2026-01-01T00:00:00Z")},
	}
	for name, c := range never {
		if got := c.s.Next(c.from); !got.IsZero() {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got, want := mustParse(t, "0 0 1 1 *").Next(time.Unix(-1<<62, 0)), at(t, "0001-01-01T00:00:00Z"); !got.Equal(want) {
		t.Errorf("from before all dates: %v, want %v", got, want)
	}
}

// The loops over clock changes end for a zone that has none, and begin at whole minutes.
func TestPeriodsAndMinutes(t *testing.T) {
	if offset, end := mustParse(t, "* * * * *").period(0); offset != 0 || end != math.MaxInt64 {
		t.Errorf("UTC has offset %d until %d", offset, end)
	}
	for at, want := range map[int64][2]int64{-61: {-60, -60}, -60: {-60, 0}, -1: {0, 0}, 0: {0, 60}, 1: {60, 60}, 45: {60, 60}, 60: {60, 120}} {
		if got := [2]int64{ceilMinute(at), afterMinute(at)}; got != want {
			t.Errorf("whole minutes from %d on, and after it: %d, want %d", at, got, want)
		}
	}
}

// A shared schedule must not depend on where a machine stands, nor on the zone of the argument.
func TestZoneIsNeverLocal(t *testing.T) {
	s := mustParse(t, "0 0 * * *")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	got := s.Next(time.Date(2026, 7, 1, 1, 0, 0, 0, berlin)) // 23:00 UTC
	if want := at(t, "2026-07-01T00:00:00Z"); !got.Equal(want) || got.Location() != time.UTC {
		t.Errorf("%v, want %v", got, want)
	}
}

func BenchmarkNext(b *testing.B) {
	from := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)
	for _, spec := range []string{
		"* * * * *", "0 3 * * *", "TZ=Europe/Berlin * * * * *", "TZ=Europe/Berlin 30 2 * * *",
		"TZ=America/New_York 0 */4 29 2 *", "TZ=America/New_York 0 0 29 2 */7", "TZ=Asia/Kolkata 0 9 1-7 * 1",
	} {
		s := mustParse(b, spec)
		b.Run(strings.ReplaceAll(spec, "/", "|"), func(b *testing.B) {
			for b.Loop() {
				s.Next(from)
			}
		})
	}
}

// TestDialects: what other readers know beyond the five fields is refused by name, with what to
// write instead.
func TestDialects(t *testing.T) {
	for spec, want := range map[string]string{
		"0 0 L * *": "L (the last day", "0 0 L-3 * *": "L (the last day", "0 0 1,l * *": "L (the last day", "0 0 15W * *": "W (the nearest", "0 0 LW * *": "W (the nearest",
		"0 0 * * 5L": "L (the last such", "0 0 * * FRIL": "L (the last such", "0 0 * * L": "L (the last such", "0 0 * * 5#3": "# (the nth", "0 0 * * mon#1": "# (the nth",
		"H * * * *": "H (a value", "H/15 * * * *": "H (a value", "0 H(0-7) * * *": "H (a value", "0 0 h * *": "H (a value",
	} {
		_, err := Parse(spec)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "is not supported: write") {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, spec := range []string{"0 0 1 JUL *", "0 0 * MAR-JUL WED", "0 0 * * THU", "0 0 ? * sun-wed"} {
		if _, err := Parse(spec); err != nil {
			t.Error(err)
		}
	}
}
