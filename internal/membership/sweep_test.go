package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var usual = SweepTiming{Interval: 10 * time.Second, Heartbeat: 15 * time.Second, TTL: 90 * time.Second, Drifted: time.Minute, Down: 5 * time.Minute}

// leader drives a Sweep against lists of its own. Redis's clock is its own, and a day ahead.
type leader struct {
	*testing.T
	*Sweep
	now     time.Duration
	silent  []string // longest first
	page    int      // how many of them one look lists
	records int      // beyond last heartbeats
	foreign []string // records that may be adopted
	asked   []string // "look from", "judge a b mark remove", "scan 0", "adopt x"
	remove  bool     // a Judge removes whom it may
}

func lead(t *testing.T) *leader {
	return &leader{T: t, Sweep: NewSweep(0, usual), page: 2}
}

func (l *leader) redis() int64 { return (24*time.Hour + l.now).Milliseconds() }

// question is the next one, which is noted.
func (l *leader) question() Question {
	l.Helper()
	q, due := l.Next(l.now)
	require.True(l, due)
	_, twice := l.Next(l.now)
	require.False(l, twice, "one at a time")
	note := [...]string{"look " + q.From, fmt.Sprint("judge ", q.IDs), "scan " + q.Cursor, fmt.Sprint("adopt ", q.IDs)}[q.Kind]
	if q.Mark {
		note += " mark"
	}
	if q.Remove {
		note += " remove"
	}
	if q.Unwatched > 0 {
		note += fmt.Sprint(" unwatched ", q.Unwatched)
	}
	l.asked = append(l.asked, note)
	return q
}

// answer answers a question as Redis would.
func (l *leader) answer(q Question) (done bool) {
	switch q.Kind {
	case Look:
		from := 0
		_, _ = fmt.Sscan(q.From, &from)
		from = min(from, len(l.silent))
		to := min(from+l.page, len(l.silent))
		p := Page{Now: l.redis(), Records: 10 + l.records, Beats: 10, IDs: l.silent[from:to]}
		if to-from == l.page {
			p.From, p.Skip = fmt.Sprint(to), 1
		}
		return l.Looked(l.now, q, p)
	case Judge:
		removed := 0
		if q.Remove && l.remove {
			removed = len(q.IDs)
			l.silent = l.silent[removed:]
		}
		return l.Judged(l.now, q, removed)
	case Scan:
		ids := l.foreign
		l.foreign = nil
		l.Scanned(q, ids, "0")
	case Adopt:
		l.Adopted(q)
	}
	return false
}

// pass makes one pass when it is due and returns what it asked.
func (l *leader) pass() (asked []string) {
	l.Helper()
	l.now += l.Wait(l.now)
	l.asked = nil
	for range 10_000 {
		if l.answer(l.question()) {
			return l.asked
		}
	}
	require.Fail(l, "a pass without an end")
	return nil
}

// TestPassOfASweep: it looks, judges page by page, reads the records of other programs at first,
// and waits for an interval.
func TestPassOfASweep(t *testing.T) {
	l := lead(t)
	require.Equal(t, []string{"look ", "scan 0", "look "}, l.pass())
	require.Equal(t, usual.Interval, l.Wait(l.now))
	_, due := l.Next(l.now + usual.Interval - 1)
	require.False(t, due)
	require.Equal(t, []string{"look "}, l.pass())
	l.silent = []string{"a", "b", "c"}
	require.Equal(t, []string{"look ", "judge [a b]", "look 2", "judge [c]"}, l.pass())
	q, _ := l.Next(l.now + l.Wait(l.now))
	require.Equal(t, Question{Seq: q.Seq, Kind: Look, Sent: l.now + usual.Interval}, q)
	require.Equal(t, 30*time.Second, l.Silence())
	require.Equal(t, 30*time.Second, l.Window())
	require.Equal(t, MaxBound, l.Wait(q.Sent))
	require.Zero(t, l.Wait(q.Sent+MaxBound))
}

// TestGraceOfASweep: nobody is marked before two heartbeats were watched, nobody is removed before
// DriftedAfter.
func TestGraceOfASweep(t *testing.T) {
	l := lead(t)
	l.silent = []string{"a"}
	require.Equal(t, "judge [a] unwatched 1m30s", l.pass()[1], "nothing was seen yet")
	for now := 10 * time.Second; now <= 90*time.Second; now += 10 * time.Second {
		want := "judge [a]"
		if now >= 30*time.Second {
			want += " mark"
		}
		if now >= time.Minute {
			want += " remove"
		}
		require.Equal(t, []string{"look ", want}, l.pass(), now)
	}
	l.now += time.Hour // stood still
	require.Equal(t, "judge [a] unwatched 1m30s", l.pass()[1])
}

// TestWatchBeginsAnew: a sweeper has seen nothing while its looks failed for longer than a sweep
// and a heartbeat, 25 s, or for less if an outage of that time silences somebody for DriftedAfter,
// or when Redis's clock jumped.
func TestWatchBeginsAnew(t *testing.T) {
	for drifted, bound := range map[time.Duration]time.Duration{
		time.Hour: 25 * time.Second, time.Minute: 25 * time.Second, 50 * time.Second: 18_750 * time.Millisecond,
		46 * time.Second: 15 * time.Second, 30 * time.Second: 15 * time.Second,
	} {
		s := NewSweep(0, usual)
		s.timing.Drifted = drifted
		require.Equal(t, bound, s.outage(), drifted)
	}
	for name, test := range map[string]struct {
		unseen, redis time.Duration
		anew          bool
	}{
		"in time":             {10 * time.Second, 10 * time.Second, false},
		"late":                {24 * time.Second, 24 * time.Second, false},
		"too late":            {25 * time.Second, 25 * time.Second, true},
		"clock a bit ahead":   {10 * time.Second, 11 * time.Second, false},
		"clock not far ahead": {20 * time.Second, 21_199 * time.Millisecond, false},
		"clock just so far":   {20 * time.Second, 21_200 * time.Millisecond, true},
		"clock far ahead":     {10 * time.Second, 12 * time.Second, true},
		"clock was set back":  {10 * time.Second, -time.Hour, false},
		"late, and set ahead": {time.Minute, time.Hour, true},
	} {
		s := NewSweep(0, usual)
		s.watch(0, 0, 1000)
		require.True(t, s.gap, "nothing was seen before")
		s.gap, s.from = false, place{from: "5"}
		s.watch(test.unseen, test.unseen, 1000+test.redis.Milliseconds())
		require.Equal(t, test.anew, s.gap, name)
		if test.anew {
			require.Equal(t, test.unseen, s.watching, name)
			require.Zero(t, s.from, name)
		} else {
			require.Zero(t, s.watching, name)
		}
	}
}

// TestGapWithinAPass: the pages before the gap are judged again before anybody is removed.
func TestGapWithinAPass(t *testing.T) {
	l := lead(t)
	for range 8 {
		l.pass()
	}
	l.silent = []string{"a", "b", "c"}
	l.now += l.Wait(l.now)
	l.asked = nil
	require.False(t, l.answer(l.question())) // look
	require.False(t, l.answer(l.question())) // judge a b
	l.now += time.Minute
	require.True(t, l.answer(l.question())) // the second page is seen too late
	require.Equal(t, []string{"look ", "judge [a b] mark remove", "look 2"}, l.asked)
	require.Equal(t, []string{"look ", "judge [a b] unwatched 1m30s", "look 2", "judge [c] unwatched 1m30s"}, l.pass())
	require.Equal(t, []string{"look ", "judge [a b]", "look 2", "judge [c]"}, l.pass())
}

// TestPassGoesOn: one pass judges a hundred pages; the next begins with the longest silent and then
// goes on where that one ended.
func TestPassGoesOn(t *testing.T) {
	l := lead(t)
	for range 8 {
		l.pass()
	}
	for i := range 2*maxPages + 5 {
		l.silent = append(l.silent, fmt.Sprint(i))
	}
	first := l.pass()
	require.Len(t, first, 2*maxPages)
	require.Equal(t, "judge [198 199] mark remove", first[len(first)-1])
	second := l.pass()
	require.Equal(t, []string{
		"look ", "judge [0 1] mark remove", "look 200", "judge [200 201] mark remove", "look 202", "judge [202 203] mark remove", "look 204",
		"judge [204] mark remove",
	}, second)
	require.Len(t, l.pass(), 2*maxPages, "from the beginning again")

	l.remove = true // the dead come first, as long as there are any
	require.Equal(t, []string{"look ", "judge [0 1] mark remove", "look 2"}, l.pass()[:3])
}

// TestFailedPass: the next one begins soon, and from the beginning.
func TestFailedPass(t *testing.T) {
	l := lead(t)
	l.pass()
	l.silent = []string{"a", "b", "c"}
	for n, seconds := range []int{1, 2, 4, 5, 5} {
		pause := time.Duration(seconds) * time.Second
		l.now += l.Wait(l.now)
		require.False(t, l.answer(l.question()))
		q := l.question()
		l.Failed(l.now, q)
		require.Equal(t, pause, l.Wait(l.now), n)
		l.Failed(l.now, q)
		require.False(t, l.Judged(l.now, q, 1))
		require.Equal(t, pause, l.Wait(l.now), "it was given up")
	}
	require.Equal(t, "look ", l.pass()[0])
	l.now += l.Wait(l.now)
	l.Failed(l.now, l.question())
	require.Equal(t, time.Second, l.Wait(l.now))
	l.Failed(l.now, Question{})
	require.Equal(t, time.Second, l.Wait(l.now))
}

// TestLateAnswers: what was given up is answered for nothing, whatever it asked.
func TestLateAnswers(t *testing.T) {
	l := lead(t)
	q := l.question()
	require.Equal(t, MaxBound, l.Wait(l.now))
	require.Zero(t, l.Wait(l.now+MaxBound))
	require.Zero(t, l.Wait(l.now+MaxBound+1), "its answer is overdue")
	l.Failed(l.now, q)
	for range 2 {
		require.False(t, l.Looked(l.now, q, Page{Now: l.redis()}))
		l.Scanned(q, []string{"x"}, "0")
		l.Adopted(q)
		require.False(t, l.Judged(l.now, q, 1))
		require.Equal(t, time.Second, l.Wait(l.now))
		_, due := l.Next(l.now)
		require.False(t, due)
	}
	l.now += 2 * time.Second
	require.Zero(t, l.Wait(l.now), "it has been due for a second")
	require.False(t, l.answer(l.question()))
	require.Zero(t, l.Wait(l.now), "the pass goes on")
	_, due := l.Next(l.now)
	require.True(t, due)
}

// TestRecordsOfOtherPrograms: all are read at first, when their number changes, and each DownAfter.
func TestRecordsOfOtherPrograms(t *testing.T) {
	l := lead(t)
	l.records = 1 // cannot be adopted, for ever
	l.foreign = []string{"x", "y"}
	require.Equal(t, []string{"look ", "scan 0", "adopt [x y]", "look "}, l.pass())
	last := l.now
	for l.now < last+usual.Down-usual.Interval {
		require.Equal(t, []string{"look "}, l.pass())
	}
	require.Equal(t, []string{"look ", "scan 0", "look "}, l.pass())
	require.Equal(t, []string{"look "}, l.pass())
	l.records = 2
	require.Equal(t, []string{"look ", "scan 0", "look "}, l.pass())
	require.Equal(t, []string{"look "}, l.pass())

	l.records = 3
	for i := range maxAdopt + 1 {
		l.foreign = append(l.foreign, fmt.Sprint(i))
	}
	l.now += l.Wait(l.now)
	l.asked = nil
	l.answer(l.question())
	l.answer(l.question())
	require.Len(t, l.question().IDs, maxAdopt)
	l.Failed(l.now, l.flying)
	l.records = 2 // as it was when all were read
	require.Equal(t, []string{"look ", "scan 0", "look "}, l.pass(), "it was not read to the end")
}

// TestScanWithoutAnEnd: a cursor that never comes to its end ends a pass all the same.
func TestScanWithoutAnEnd(t *testing.T) {
	l := lead(t)
	l.answer(l.question())
	for range maxScans {
		q := l.question()
		require.Equal(t, Scan, q.Kind)
		l.Scanned(q, []string{"x"}, "7")
		q = l.question()
		require.Equal(t, Adopt, q.Kind)
		l.Adopted(q)
	}
	require.True(t, l.answer(l.question()))
	require.Equal(t, "look ", l.asked[len(l.asked)-1])
}
