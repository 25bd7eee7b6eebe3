package cron

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

var seed = flag.Uint64("cron.seed", 0, "replays the case of this seed alone")

// randomField draws a field's text and what it allows, independently of any parser.
func randomField(r *rand.Rand, low, high int) (string, func(int) bool) {
	pick := func() int { return low + r.IntN(high-low+1) }
	switch r.IntN(6) {
	case 0, 1:
		return "*", func(int) bool { return true }
	case 2:
		step := 1 + r.IntN(high-low+1)
		return fmt.Sprintf("*/%d", step), func(n int) bool { return (n-low)%step == 0 }
	case 3:
		a, b := pick(), pick()
		a, b = min(a, b), max(a, b)
		step := 1 + r.IntN(4)
		return fmt.Sprintf("%d-%d/%d", a, b, step), func(n int) bool { return a <= n && n <= b && (n-a)%step == 0 }
	default:
		var parts []string
		set := map[int]bool{}
		for range 1 + r.IntN(3) {
			n := pick()
			set[n] = true
			parts = append(parts, fmt.Sprint(n))
		}
		return strings.Join(parts, ","), func(n int) bool { return set[n] }
	}
}

// oracle is the definition, followed minute by minute.
type oracle struct {
	spec                              string
	zone                              *time.Location
	minute, hour, day, month, weekday func(int) bool
}

func randomOracle(r *rand.Rand, zone *time.Location, around time.Time) oracle {
	o := oracle{zone: zone}
	var fields [5]string
	fields[0], o.minute = randomField(r, 0, 59)
	fields[1], o.hour = randomField(r, 0, 23)
	if r.IntN(2) == 0 { // where clocks change
		hour := around.In(zone).Hour()
		fields[1], o.hour = fmt.Sprint(hour), func(n int) bool { return n == hour }
	}
	fields[2], o.day = randomField(r, 1, 31)
	fields[3], o.month = "*", func(int) bool { return true }
	fields[4], o.weekday = randomField(r, 0, 6)
	if r.IntN(3) > 0 {
		fields[2], o.day = "*", o.month
		fields[4], o.weekday = "*", o.month
	}
	o.spec = fmt.Sprintf("TZ=%s %s", zone, strings.Join(fields[:], " "))
	return o
}

func (o oracle) matches(wall time.Time) bool {
	fields := strings.Fields(o.spec)[1:]
	day, weekday := o.day(wall.Day()), o.weekday(int(wall.Weekday()))
	dayMatches := day && weekday
	if restricts(fields[2]) && restricts(fields[4]) {
		dayMatches = day || weekday
	}
	return o.minute(wall.Minute()) && o.hour(wall.Hour()) && dayMatches
}

// restricts reports whether a field has no star but with a step.
func restricts(field string) bool { return field != "*" && field != "*/1" }

// slots lists what is due in [from, until), both whole minutes.
func (o oracle) slots(from, until time.Time) []time.Time {
	fields := strings.Fields(o.spec)
	wild := fields[2][0] == '*'
	follows := wild || fields[1][0] == '*'
	wall := func(at time.Time) time.Time {
		l := at.In(o.zone)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), 0, 0, time.UTC)
	}
	var found []time.Time
	shown := wall(from.Add(-72 * time.Hour)) // the furthest that the clock has been
	for at := from.Add(-72 * time.Hour); at.Before(until); at = at.Add(time.Minute) {
		now := wall(at)
		due := follows && o.matches(now)
		for ; shown.Before(now); shown = shown.Add(time.Minute) {
			due = due || !wild && o.matches(shown.Add(time.Minute))
		}
		if due && !at.Before(from) {
			found = append(found, at)
		}
	}
	return found
}

var zones = []string{
	"UTC", "Europe/Berlin", "Europe/Dublin", "Europe/London", "Europe/Volgograd", "America/New_York", "America/St_Johns",
	"America/Sao_Paulo", "America/Nuuk", "America/Caracas", "America/Ciudad_Juarez", "America/Havana", "America/Santiago",
	"Africa/Casablanca", "Africa/Cairo", "Antarctica/Troll", "Antarctica/Casey", "Asia/Beirut", "Asia/Gaza", "Asia/Kolkata",
	"Asia/Pyongyang", "Asia/Tehran", "Asia/Amman", "Australia/Lord_Howe", "Australia/Sydney", "Pacific/Apia", "Pacific/Chatham",
	"Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Fakaofo",
}

// near returns a random minute, mostly one close to a change of the zone's clock.
func near(r *rand.Rand, zone *time.Location) time.Time {
	// Since 1973 every offset has been one of whole minutes.
	at := time.Date(1973+r.IntN(130), 1, 1+r.IntN(365), 0, 0, 0, 0, zone)
	if _, end := at.ZoneBounds(); r.IntN(8) > 0 && !end.IsZero() {
		at = end
	}
	return at.Add(time.Duration(r.IntN(48*60)-24*60) * time.Minute).Truncate(time.Minute)
}

func TestNextAgreesWithEveryMinute(t *testing.T) {
	first, cases := uint64(time.Now().UnixNano()), uint64(150)
	if *seed != 0 {
		first, cases = *seed, 1
	} else if testing.Short() {
		cases = 50
	}
	for seed := first; seed < first+cases; seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		zone, err := time.LoadLocation(zones[r.IntN(len(zones))])
		if err != nil {
			t.Fatal(err)
		}
		from := near(r, zone)
		o := randomOracle(r, zone, from)
		if r.IntN(20) == 0 { // a day that was skipped is a rare draw
			o.zone, _ = time.LoadLocation("Pacific/Apia")
			o.spec = strings.Replace(o.spec, zone.String(), "Pacific/Apia", 1)
			from = time.Date(2011, 12, 29, 6, 0, 0, 0, time.UTC)
		}
		until := from.Add(4 * 24 * time.Hour)
		s, err := Parse(o.spec)
		if err != nil {
			t.Fatalf("-cron.seed=%d: %v", seed, err)
		}
		slot := from.Add(-time.Nanosecond)
		for _, want := range o.slots(from, until) {
			// From anywhere since the last slot the answer is the same.
			between := slot.Add(time.Duration(r.Int64N(int64(want.Sub(slot)))))
			if got := s.Next(between); !got.Equal(want) {
				t.Fatalf("-cron.seed=%d: %q after %v: %v, want %v", seed, o.spec, between.UTC(), got, want.UTC())
			}
			if slot = s.Next(slot); !slot.Equal(want) {
				t.Fatalf("-cron.seed=%d: %q: %v, want %v", seed, o.spec, slot, want.UTC())
			}
		}
		if slot = s.Next(slot); slot.Before(until) && !slot.IsZero() {
			t.Fatalf("-cron.seed=%d: %q: %v is one too many", seed, o.spec, slot)
		}
	}
}

// Next is a step function of time: strictly after its argument, and never going back.
func checkSteps(t *testing.T, s Schedule, from time.Time) {
	t.Helper()
	slot := from
	for range 20 {
		next := s.Next(slot)
		if next.IsZero() {
			if slot.Year() < 9900 {
				t.Fatalf("%q ends after %v", s, slot)
			}
			return
		}
		if !next.After(slot) {
			t.Fatalf("%q after %v: %v", s, slot, next)
		}
		if got := s.Next(next.Add(-time.Nanosecond)); !got.Equal(next) {
			t.Fatalf("%q just before %v: %v", s, next, got)
		}
		if between := slot.Add(next.Sub(slot) / 2); !s.Next(between).Equal(next) && between.Before(next) {
			t.Fatalf("%q after %v: %v, but %v after %v", s, slot, next, s.Next(between), between)
		}
		slot = next
	}
}

func TestNextStrictlyIncreases(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		zone, err := time.LoadLocation(zones[r.IntN(len(zones))])
		if err != nil {
			t.Fatal(err)
		}
		from := near(r, zone).Add(time.Duration(r.Int64N(int64(time.Minute))))
		s := mustParse(t, randomOracle(r, zone, from).spec)
		checkSteps(t, s, from)
		checkSteps(t, s, from.AddDate(r.IntN(8000), 0, 0))
	}
}

func FuzzParse(f *testing.F) {
	for _, spec := range []string{
		"* * * * *", "@daily", "@every 1s", "CRON_TZ=Europe/Berlin 30 2 * * *", "TZ=Pacific/Apia 0 9 30 12 *", "TZ=",
		"TZ=UTC", "CRON_TZ=America/Sao_Paulo @midnight", "0 0 29 2 */7", "0 9 */100,1-7 * mon", ", , , , ,", "*/0 * * * *",
		"TZ=Australia/Lord_Howe */30 * * * *", "0 0 30 2 *", "5-1 * * * ?", "TZ=Local * * * * *", "1/2/3 * * * *", "\x00",
	} {
		f.Add(spec, int64(1_774_746_000))
	}
	f.Fuzz(func(t *testing.T, spec string, unix int64) {
		s, err := Parse(spec)
		if err != nil {
			if s != (Schedule{}) || !strings.Contains(err.Error(), "cron spec") {
				t.Fatalf("%v, %v", s, err)
			}
			return
		}
		if s.String() != spec {
			t.Fatalf("%q became %q", spec, s)
		}
		from := time.Unix(unix%(1<<38), 0)
		if next := s.Next(time.Unix(unix, 0)); !next.IsZero() && !next.After(time.Unix(unix, 0)) {
			t.Fatalf("%q after %v: %v", s, time.Unix(unix, 0), next)
		}
		checkSteps(t, s, from)
	})
}
