package cron

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	robfig "github.com/robfig/cron/v3"
)

// What robfig's standard parser accepts means the same here, in a zone whose clock is never
// changed. Kubernetes reads its CronJobs with it.
func TestMeansWhatRobfigMeans(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	field := func(low, high int, names ...string) string {
		value := func() string {
			n := low + r.IntN(high-low+1)
			if len(names) > 0 && r.IntN(2) == 0 {
				return names[n-low]
			}
			return fmt.Sprint(n)
		}
		var parts []string
		for range 1 + r.IntN(3)/2 {
			part := []string{"*", "?", "*", value(), value()}[r.IntN(5)]
			if a, b := low+r.IntN(high-low+1), low+r.IntN(high-low+1); r.IntN(4) == 0 {
				part = fmt.Sprintf("%d-%d", min(a, b), max(a, b))
			}
			if r.IntN(3) == 0 {
				part += fmt.Sprintf("/%d", 1+r.IntN(high-low+1))
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ",")
	}
	months := strings.Fields("jan Feb MAR apr may jun jul aug sep oct nov dec")
	days := strings.Fields("sun Mon TUE wed thu fri sat")
	compared := 0
	for range 5000 {
		spec := strings.Join([]string{field(0, 59), field(0, 23), field(1, 31), field(1, 12, months...), field(0, 6, days...)}, " ")
		theirs, err := robfig.ParseStandard(spec)
		if err != nil {
			t.Fatalf("seed %d, %q: %v", seed, spec, err)
		}
		ours, err := Parse(spec)
		if err != nil {
			if theirs.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
				continue // no such day ever comes
			}
			t.Fatalf("seed %d, %q: %v", seed, spec, err)
		}
		at := time.Date(2000+r.IntN(60), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), 0, time.UTC)
		for range 5 {
			want, got := theirs.Next(at), ours.Next(at)
			if want.IsZero() { // theirs looks five years ahead
				break
			}
			if !got.Equal(want) {
				t.Fatalf("seed %d, %q after %v: %v, robfig says %v", seed, spec, at, got, want)
			}
			at = want
			compared++
		}
	}
	if compared < 10_000 {
		t.Errorf("only %d compared", compared)
	}
}

// The day of the month and the day of the week, in the ways in which parsers differ.
func TestDaysAreCombinedAsInRobfig(t *testing.T) {
	from := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for spec, want := range map[string]string{
		"0 0 */2 * 1":   "23 Nov, 25 Nov, 27 Nov, 29 Nov, 30 Nov", // each odd date and each Monday
		"0 0 */1 * 1":   "23 Nov, 30 Nov, 07 Dec, 14 Dec, 21 Dec",
		"0 0 1-31 * 1":  "22 Nov, 23 Nov, 24 Nov, 25 Nov, 26 Nov",
		"0 0 ? * 1":     "23 Nov, 30 Nov, 07 Dec, 14 Dec, 21 Dec",
		"0 0 1,* * 1":   "23 Nov, 30 Nov, 07 Dec, 14 Dec, 21 Dec",
		"0 0 1 * */2":   "22 Nov, 24 Nov, 26 Nov, 28 Nov, 29 Nov",
		"0 0 13 * FRI":  "27 Nov, 04 Dec, 11 Dec, 13 Dec, 18 Dec",
		"0 0 13 * 0-7":  "22 Nov, 23 Nov, 24 Nov, 25 Nov, 26 Nov",
		"0 0 * * 1-7/3": "22 Nov, 23 Nov, 26 Nov, 29 Nov, 30 Nov",
		"0 0 * * 6-7,2": "22 Nov, 24 Nov, 28 Nov, 29 Nov, 01 Dec",
	} {
		at, got := from, []string{}
		for range 5 {
			at = mustParse(t, spec).Next(at)
			got = append(got, at.Format("02 Jan"))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%q: %s, want %s", spec, text, want)
		}
	}
}

// TestClockChangesAreNotThoseOfRobfig: a fixed time that the clock skips, and one that it shows
// twice, as docs/migrating.md tells who comes from there.
func TestClockChangesAreNotThoseOfRobfig(t *testing.T) {
	const spec = "CRON_TZ=Europe/Berlin 30 2 * * *"
	theirs, err := robfig.ParseStandard(spec)
	if err != nil {
		t.Fatal(err)
	}
	ours := mustParse(t, spec)
	for _, day := range []struct{ from, until, theirs, ours string }{
		{"2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "", " 01:00"},
		{"2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", " 00:30 01:30", " 00:30"},
	} {
		slots := func(next func(time.Time) time.Time) (all string) {
			for slot := next(at(t, day.from)); slot.Before(at(t, day.until)); slot = next(slot) {
				all += slot.UTC().Format(" 15:04")
			}
			return all
		}
		if got := slots(theirs.Next); got != day.theirs {
			t.Errorf("%s: robfig runs at%s, not at%s", day.from, got, day.theirs)
		}
		if got := slots(ours.Next); got != day.ours {
			t.Errorf("%s: we run at%s, not at%s", day.from, got, day.ours)
		}
	}
}
