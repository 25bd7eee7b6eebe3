//go:build unix

package fleet

import (
	"strings"
	"testing"
	"time"
)

// calm is a log in which every promise is kept: two processes, a hand-over from one to the other,
// and a kill.
func calm() []Entry {
	at := func(n int) time.Duration { return time.Hour + time.Duration(n)*time.Millisecond }
	return []Entry{
		{Kind: Started, At: at(0), Who: "a", Life: 1},
		{Kind: Started, At: at(5), Who: "b", Life: 1},
		{Kind: Led, At: at(100), Until: at(1000), Who: "a", Life: 1, Token: 7, Deadline: at(1700)},
		{Kind: WorkBegan, At: at(101), Who: "a", Life: 1, Token: 7},
		{Kind: Wrote, At: at(102), Who: "a", Life: 1, Token: 7, OK: true},
		{Kind: RunBegan, At: at(500), Who: "a", Life: 1, Token: 7, Task: "t", Run: "r1", Slot: 500, Attempt: 1},
		{Kind: RunEnded, At: at(550), Who: "a", Life: 1, Token: 7, Task: "t", Run: "r1", Slot: 500, Attempt: 1, OK: true},
		{Kind: Struck, At: at(1000), Until: at(1100), Text: faultResign, Strike: &Strike{}},
		{Kind: WorkEnded, At: at(1050), Who: "a", Life: 1, Token: 7, Cancelled: at(1001), Deadline: at(1700), Text: endResigned},
		{Kind: Released, At: at(1052), Who: "a", Life: 1, Token: 7},
		{Kind: Led, At: at(1055), Until: at(3000), Who: "b", Life: 1, Token: 9, Deadline: at(3700)},
		{Kind: WorkBegan, At: at(1056), Who: "b", Life: 1, Token: 9},
		{Kind: RunBegan, At: at(1200), Who: "b", Life: 1, Token: 9, Task: "t", Run: "r2", Slot: 1200, Attempt: 1},
		{Kind: RunEnded, At: at(1250), Who: "b", Life: 1, Token: 9, Task: "t", Run: "r2", Slot: 1200, Attempt: 1, OK: true},
		{Kind: Wrote, At: at(1300), Who: "b", Life: 1, Token: 9, OK: true},
		{Kind: Wrote, At: at(1400), Who: "a", Life: 1, Token: 7},
		{Kind: Struck, At: at(2999), Until: at(4300), Text: faultKill, Strike: &Strike{Targets: []string{"b"}}},
		{Kind: Gone, At: at(3001), Who: "b", Life: 1},
		{Kind: Started, At: at(4100), Who: "b", Life: 2},
		{Kind: Led, At: at(3990), Until: at(8950), Who: "a", Life: 1, Token: 12, Deadline: at(9700)},
		{Kind: WorkBegan, At: at(3991), Who: "a", Life: 1, Token: 12},
		{Kind: StopAsked, At: at(9000), Who: "a", Life: 1},
		{Kind: WorkEnded, At: at(9020), Who: "a", Life: 1, Token: 12, Cancelled: at(9001), Deadline: at(9700), Text: endStopped},
		{Kind: Stopped, At: at(9050), Who: "a", Life: 1, OK: true},
		{Kind: Gone, At: at(9060), Who: "a", Life: 1},
	}
}

var testRules = Rules{
	LeaseTTL: time.Second, Guard: 50 * time.Millisecond, Drift: 12 * time.Millisecond, Shutdown: 3 * time.Second,
	DownAfter: time.Second, HeartbeatInterval: 250 * time.Millisecond,
}

// find is the first entry of a kind and token.
func find(log []Entry, kind Kind, token int64) *Entry {
	for i := range log {
		if log[i].Kind == kind && log[i].Token == token {
			return &log[i]
		}
	}
	panic("there is no such entry")
}

func TestCheck_CalmLogKeepsEveryPromise(t *testing.T) {
	c := check(testRules, sortedCopy(calm()))
	for _, v := range c.found {
		t.Errorf("%s: %s", v.Promise, v.Text)
	}
	m := c.measure()
	if m.changes != 2 || len(m.crashes) != 1 || m.crashes[0] != 990*time.Millisecond || len(m.handOvers) != 1 ||
		m.handOvers[0] != 5*time.Millisecond {
		t.Errorf("measured %d changes, crashes %v, hand-overs %v", m.changes, m.crashes, m.handOvers)
	}
	if m.accepted != 2 || m.refused != 1 || m.slots != 2 || m.runs != 2 || len(m.stops) != 1 {
		t.Errorf("counted %+v", m)
	}
}

// Each forged log breaks one promise, and the checker says which.
func TestCheck_ForgedLogs(t *testing.T) {
	ms := time.Millisecond
	for _, forged := range []struct {
		name, promise, text string
		forge               func(log []Entry) []Entry
	}{
		{"two leaders", "P1", "both led, for 45ms", func(log []Entry) []Entry {
			find(log, Led, 7).Until += 100 * ms
			return log
		}},
		{"a token below one before", "P2", "led under token 3 after", func(log []Entry) []Entry {
			find(log, Led, 12).Token = 3
			return log
		}},
		{"a token twice", "P2", "led under token 9 after", func(log []Entry) []Entry {
			find(log, Led, 12).Token = 9
			return log
		}},
		{"a token of two writers", "P2", "both wrote under token 9", func(log []Entry) []Entry {
			find(log, Wrote, 7).Token = 9
			return log
		}},
		{"an old write accepted", "P3", "accepted after one under 9", func(log []Entry) []Entry {
			for i := range log {
				if log[i].Kind == Wrote && !log[i].OK {
					log[i].OK = true
				}
			}
			return log
		}},
		{"led past the deadline", "P4", "past its deadline", func(log []Entry) []Entry {
			find(log, Led, 9).Deadline = find(log, Led, 9).Until - ms
			return log
		}},
		{"led again", "P4", "believed again in its term under token 7", func(log []Entry) []Entry {
			again := *find(log, Led, 7)
			again.At, again.Until = again.Until+2*ms, again.Until+3*ms
			return append(log, again)
		}},
		{"cancelled late", "P4", "cancelled 88ms after its lease had ended", func(log []Entry) []Entry {
			e := find(log, WorkEnded, 7)
			e.Text, e.Deadline = endLost, e.Cancelled-100*ms
			return log
		}},
		{"released before drained", "P8", "before its work had ended", func(log []Entry) []Entry {
			find(log, Released, 7).At -= 10 * ms
			return log
		}},
		{"others lead while work goes on", "P8", "while work of a/1, which gave 7 up, went on", func(log []Entry) []Entry {
			find(log, Led, 9).At -= 20 * ms
			return log
		}},
		{"a new term while work goes on", "P8", "led under token 12 while its work under 7 went on", func(log []Entry) []Entry {
			e := find(log, WorkEnded, 7)
			e.At, e.Text = find(log, Led, 12).At+ms, endLost
			find(log, Released, 7).At = e.At + ms
			return log
		}},
		{"work begun twice", "P8", "began its work twice", func(log []Entry) []Entry { return append(log, *find(log, WorkBegan, 7)) }},
		{"work ended twice", "P8", "ended without having begun", func(log []Entry) []Entry { return append(log, *find(log, WorkEnded, 7)) }},
		{"a living instance removed", "P9", "a/1 removed b/1, which lived", func(log []Entry) []Entry {
			return append(log, Entry{Kind: Removed, At: find(log, Gone, 0).At - 11*ms, Who: "a", Life: 1, Text: "b"}, Entry{
				Kind: Struck, At: time.Hour, Until: time.Hour + ms, Text: faultKill, Strike: &Strike{Targets: []string{"a"}},
			})
		}},
		{"a slot claimed twice", "P10", "attempt 1 at slot 500 of t was made by a/1 and by b/1", func(log []Entry) []Entry {
			find(log, RunBegan, 9).Slot = 500
			return log
		}},
		{"a task that overlaps itself", "P10", "ran t at the same time", func(log []Entry) []Entry {
			find(log, RunEnded, 7).At = find(log, RunBegan, 9).At + ms
			return log
		}},
		{"a run after the term", "P10", "after its term", func(log []Entry) []Entry {
			find(log, RunBegan, 7).At += 530 * ms
			find(log, RunEnded, 7).At += 530 * ms
			return log
		}},
		{"a late end of Run", "P11", "Run of a/1 returned 5.05s after", func(log []Entry) []Entry {
			find(log, Stopped, 0).At += 5 * time.Second
			return log
		}},
		{"an error of Run", "P11", `returned "no"`, func(log []Entry) []Entry {
			find(log, Stopped, 0).Text = "no"
			return log
		}},
	} {
		t.Run(forged.name, func(t *testing.T) {
			found := check(testRules, sortedCopy(forged.forge(calm()))).found
			for _, v := range found {
				if v.Promise == forged.promise && strings.Contains(v.Text, forged.text) {
					if len(v.Excerpt) == 0 {
						t.Error("there is no excerpt of the log")
					}
					return
				}
			}
			t.Errorf("no %s with %q in %+v", forged.promise, forged.text, found)
		})
	}
}

// What a fault puts outside of the conditions of P1 is measured, not held against it; P2 and P3
// are.
func TestCheck_OverlapsOutsideOfTheConditions(t *testing.T) {
	log := calm()
	find(log, Led, 7).Until += 100 * time.Millisecond
	for i := range log {
		if log[i].Text == faultResign {
			log[i].Strike = &Strike{Overlap: true}
		}
	}
	c := check(testRules, sortedCopy(log))
	if len(c.found) > 0 {
		t.Errorf("violations %v", c.found)
	}
	if o := c.measure().overlaps; len(o) != 1 || o[0].For != 45*time.Millisecond || o[0].Fault != faultResign {
		t.Errorf("overlaps %v", o)
	}
	find(log, Led, 12).Token = 3
	if len(check(testRules, sortedCopy(log)).found) == 0 {
		t.Error("a token that went back was not seen")
	}
}

// A process that was killed just as it reported its term: the term is reported once more.
func TestCheck_ATermToldTwiceIsOne(t *testing.T) {
	log := calm()
	log = append(log, *find(log, Led, 9))
	if found := check(testRules, sortedCopy(log)).found; len(found) > 0 {
		t.Errorf("violations %v", found)
	}
}

func sortedCopy(entries []Entry) []Entry {
	j := &journal{entries: entries}
	return j.sorted()
}
