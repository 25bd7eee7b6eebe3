package cron

import (
	"strings"
	"testing"
	"time"
)

// Each case lists, in the zone's own clock, every slot between two instants.
func TestClockChanges(t *testing.T) {
	for _, c := range []struct{ name, spec, from, until, want string }{
		{
			"skipped time runs right after the gap",
			"TZ=Europe/Berlin 30 2 * * *", "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z",
			"03-28T02:30+01:00 03-29T03:00+02:00 03-30T02:30+02:00",
		}, {
			"several skipped times are one run",
			"TZ=Europe/Berlin */15 2 * * *", "2026-03-28T12:00:00Z", "2026-03-30T01:00:00Z",
			"03-29T03:00+02:00 03-30T02:00+02:00 03-30T02:15+02:00 03-30T02:30+02:00 03-30T02:45+02:00",
		}, {
			"skipped time and the time after the gap are one run",
			"TZ=America/New_York 0 2,3 * * *", "2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z",
			"03-08T03:00-04:00 03-09T02:00-04:00 03-09T03:00-04:00",
		}, {
			"repeated time runs the first time",
			"TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z",
			"10-25T02:30+02:00 10-26T02:30+01:00",
		}, {
			"repeated hour runs once, the edges too",
			"TZ=Europe/Berlin 0,20,40 1-3 * * *", "2026-10-24T20:00:00Z", "2026-10-25T12:00:00Z",
			"10-25T01:00+02:00 10-25T01:20+02:00 10-25T01:40+02:00 10-25T02:00+02:00 10-25T02:20+02:00 10-25T02:40+02:00 " +
				"10-25T03:00+01:00 10-25T03:20+01:00 10-25T03:40+01:00",
		}, {
			"a star of minutes follows the clock into the repeated hour",
			"TZ=Europe/Berlin */20 1-3 * * *", "2026-10-24T20:00:00Z", "2026-10-25T12:00:00Z",
			"10-25T01:00+02:00 10-25T01:20+02:00 10-25T01:40+02:00 10-25T02:00+02:00 10-25T02:20+02:00 10-25T02:40+02:00 " +
				"10-25T02:00+01:00 10-25T02:20+01:00 10-25T02:40+01:00 10-25T03:00+01:00 10-25T03:20+01:00 10-25T03:40+01:00",
		}, {
			"a star of minutes does not pause as the clock is set back",
			"TZ=America/New_York */30 0-5 * * *", "2026-11-01T04:59:00Z", "2026-11-01T08:30:00Z",
			"11-01T01:00-04:00 11-01T01:30-04:00 11-01T01:00-05:00 11-01T01:30-05:00 11-01T02:00-05:00 11-01T02:30-05:00 11-01T03:00-05:00 11-01T03:30-05:00",
		}, {
			"a star of minutes in the one hour that is skipped is one run",
			"TZ=Europe/Berlin * 2 29 3 *", "2026-03-28T12:00:00Z", "2026-04-30T01:00:00Z",
			"03-29T03:00+02:00",
		}, {
			"all hours by number are fixed times",
			"TZ=America/New_York 0 0-23 * * *", "2026-11-01T03:30:00Z", "2026-11-01T08:30:00Z",
			"11-01T00:00-04:00 11-01T01:00-04:00 11-01T02:00-05:00 11-01T03:00-05:00",
		}, {
			"every hour runs every hour when one is skipped",
			"TZ=Europe/Berlin 0 * * * *", "2026-03-28T23:30:00Z", "2026-03-29T03:30:00Z",
			"03-29T01:00+01:00 03-29T03:00+02:00 03-29T04:00+02:00 03-29T05:00+02:00",
		}, {
			"every hour runs every hour when one is repeated",
			"TZ=Europe/Berlin 0 * * * *", "2026-10-24T22:30:00Z", "2026-10-25T03:30:00Z",
			"10-25T01:00+02:00 10-25T02:00+02:00 10-25T02:00+01:00 10-25T03:00+01:00 10-25T04:00+01:00",
		}, {
			"every other hour follows the clock",
			"TZ=Europe/Berlin 30 */2 * * *", "2026-03-28T23:00:00Z", "2026-03-29T05:00:00Z",
			"03-29T00:30+01:00 03-29T04:30+02:00 03-29T06:30+02:00",
		}, {
			"half an hour is skipped",
			"TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-02T20:00:00Z", "2026-10-05T00:00:00Z",
			"10-04T02:30+11:00 10-05T02:15+11:00",
		}, {
			"half an hour is repeated",
			"TZ=Australia/Lord_Howe 45 1 * * *", "2026-04-03T20:00:00Z", "2026-04-05T20:00:00Z",
			"04-05T01:45+11:00 04-06T01:45+10:30",
		}, {
			"half an hour is repeated, by elapsed time",
			"TZ=Australia/Lord_Howe */30 * * * *", "2026-04-04T13:45:00Z", "2026-04-04T16:15:00Z",
			"04-05T01:00+11:00 04-05T01:30+11:00 04-05T01:30+10:30 04-05T02:00+10:30 04-05T02:30+10:30",
		}, {
			"two hours are skipped at the South Pole's neighbour",
			"TZ=Antarctica/Troll 30 1,2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z",
			"03-29T03:00+02:00",
		}, {
			"midnight is skipped",
			"TZ=America/Sao_Paulo @daily", "2018-11-02T12:00:00Z", "2018-11-05T12:00:00Z",
			"11-03T00:00-03:00 11-04T01:00-02:00 11-05T00:00-02:00",
		}, {
			"midnight comes after a repeated hour",
			"TZ=America/Sao_Paulo 0,30 0,23 * * *", "2018-02-17T12:00:00Z", "2018-02-18T04:00:00Z",
			"02-17T23:00-02:00 02-17T23:30-02:00 02-18T00:00-03:00 02-18T00:30-03:00",
		}, {
			"midnight is skipped, and the day is the right one",
			"TZ=Asia/Beirut 0 0 27 3 *", "2022-01-01T00:00:00Z", "2023-04-01T00:00:00Z",
			"03-27T01:00+03:00 03-27T00:00+03:00",
		}, {
			"a day is skipped",
			"TZ=Pacific/Apia 0 9 * * *", "2011-12-28T00:00:00Z", "2012-01-01T00:00:00Z",
			"12-28T09:00-10:00 12-29T09:00-10:00 12-31T00:00+14:00 12-31T09:00+14:00 01-01T09:00+14:00",
		}, {
			"a day is skipped, by elapsed time",
			"TZ=Pacific/Apia 0 */12 * * *", "2011-12-29T08:00:00Z", "2011-12-31T08:00:00Z",
			"12-29T00:00-10:00 12-29T12:00-10:00 12-31T00:00+14:00 12-31T12:00+14:00",
		}, {
			"the one day of the year is skipped",
			"TZ=Pacific/Apia 0 9 30 12 *", "2011-01-01T00:00:00Z", "2013-01-01T00:00:00Z",
			"12-31T00:00+14:00 12-30T09:00+14:00",
		}, {
			"a day is repeated",
			"TZ=Pacific/Kwajalein 30 12 * * *", "1969-09-28T12:00:00Z", "1969-10-03T12:00:00Z",
			"09-29T12:30+11:00 09-30T12:30+11:00 10-01T12:30-12:00 10-02T12:30-12:00",
		}, {
			"the offset itself changes where Go's table of changes ends",
			"TZ=America/Ciudad_Juarez 30 23 * * *", "2022-11-29T00:00:00Z", "2022-12-02T00:00:00Z",
			"11-28T23:30-06:00 11-29T23:30-06:00 11-30T23:30-07:00",
		}, {
			"an offset with seconds",
			"TZ=Africa/Monrovia 30 0 * * *", "1972-01-06T00:00:00Z", "1972-01-09T00:00:00Z",
			"01-06T00:30-00:44 01-07T00:44+00:00 01-08T00:30+00:00",
		}, {
			"the last day of a leap year",
			"TZ=Europe/Berlin 0 */12 * * *", "2024-12-30T12:00:00Z", "2025-01-01T12:00:00Z",
			"12-31T00:00+01:00 12-31T12:00+01:00 01-01T00:00+01:00 01-01T12:00+01:00",
		}, {
			"the last day of a leap year, fixed",
			"TZ=Australia/Sydney 0 12 * * *", "2024-12-30T12:00:00Z", "2025-01-01T12:00:00Z",
			"12-31T12:00+11:00 01-01T12:00+11:00",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustParse(t, c.spec)
			until := at(t, c.until)
			var got []string
			for slot := s.Next(at(t, c.from)); !slot.After(until) && len(got) < 20; slot = s.Next(slot) {
				got = append(got, slot.In(s.zone).Format("01-02T15:04-07:00"))
			}
			if got := strings.Join(got, " "); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// The clock was set back at 01:00 UTC: what it showed before is over, whenever one asks.
func TestRepeatedTimeIsOverAfterItsFirst(t *testing.T) {
	s := mustParse(t, "TZ=Europe/Berlin 30 2 * * *")
	want := at(t, "2026-10-26T01:30:00Z")
	for _, from := range []string{"2026-10-25T00:30:00Z", "2026-10-25T00:59:59Z", "2026-10-25T01:00:00Z", "2026-10-25T01:29:59Z", "2026-10-25T01:30:00Z"} {
		if got := s.Next(at(t, from)); !got.Equal(want) {
			t.Errorf("after %s: %v, want %v", from, got, want)
		}
	}
	if got, want := s.Next(at(t, "2026-10-25T00:29:59.999Z")), at(t, "2026-10-25T00:30:00Z"); !got.Equal(want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A century in one zone and out of the other end: each day once, never two.
func TestDailyRunsOnceADayForACentury(t *testing.T) {
	for _, zone := range []string{"Europe/Dublin", "America/Sao_Paulo", "Asia/Gaza", "Africa/Casablanca", "America/Nuuk", "Australia/Lord_Howe"} {
		s := mustParse(t, "TZ="+zone+" 30 0 * * *")
		slot := s.Next(time.Date(1980, 1, 1, 12, 0, 0, 0, s.zone))
		for n := range 36_500 {
			want := time.Date(1980, 1, 2+n, 12, 0, 0, 0, s.zone).Format(time.DateOnly)
			if got := slot.In(s.zone).Format(time.DateOnly); got != want {
				t.Fatalf("%s: %s, want %s", zone, got, want)
			}
			slot = s.Next(slot)
		}
	}
}
