//go:build unix

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// afterwards is a log of a calm in which everything happens that should: a leader, the runs of both
// tasks, and two processes that hear and are listed.
func afterwards() []Entry {
	at := func(d time.Duration) time.Duration { return time.Hour + d }
	over := at(2*time.Second + calmRules.calmBound())
	log := []Entry{
		{Kind: Started, At: at(0), Who: "a", Life: 1},
		{Kind: Started, At: at(0), Who: "b", Life: 1},
		{Kind: Struck, At: at(time.Second), Until: at(2 * time.Second), Text: faultResign, Strike: &Strike{}},
		{Kind: Calm, At: at(2 * time.Second), Until: over},
		{Kind: Led, At: at(3 * time.Second), Until: over + time.Second, Who: "a", Life: 1, Token: 7},
		{Kind: Heard, At: over - 3*time.Second, Who: "a", Life: 1},
		{Kind: Heard, At: over - 2*time.Second, Who: "a", Life: 1, OK: true},
		{Kind: Heard, At: over - 2*time.Second, Who: "b", Life: 1, OK: true},
		{Kind: Listed, At: over - 3*time.Second, Who: "a", Life: 1, Text: "a"},
		{Kind: Listed, At: over - 2*time.Second, Who: "a", Life: 1, Text: "a b"},
		{Kind: StopAsked, At: over + time.Second, Who: "a", Life: 1},
		{Kind: Gone, At: over + 2*time.Second, Who: "a", Life: 1},
		{Kind: Gone, At: over + 2*time.Second, Who: "b", Life: 1},
	}
	for slot := at(4 * time.Second); slot < over; slot += time.Second {
		for task := range calmRules.Tasks {
			run := Entry{
				Kind: RunBegan, At: slot, Who: "a", Life: 1, Token: 7, Task: task, Run: fmt.Sprint(task, slot), Slot: int64(slot), Attempt: 1, OK: true,
			}
			log = append(log, run)
			run.Kind, run.At = RunEnded, slot+10*time.Millisecond
			log = append(log, run)
		}
	}
	return log
}

var calmRules = Rules{
	LeaseTTL: time.Second, Shutdown: 3 * time.Second, DownAfter: time.Second, HeartbeatInterval: 250 * time.Millisecond,
	Tasks: map[string]time.Duration{"rerun": time.Second, "once": time.Second},
}

func TestCheck_CalmInWhichEverythingHappens(t *testing.T) {
	c := check(calmRules, sortedCopy(afterwards()))
	for _, v := range c.found {
		t.Errorf("%s: %s", v.Promise, v.Text)
	}
	if len(c.calms) != 1 {
		t.Fatalf("%d calms were held against the rules", len(c.calms))
	}
	if f := c.calms[0]; f.leaderless != time.Second || f.runless != 2*time.Second || f.members != 2 || f.runs < 20 {
		t.Errorf("the calm has shown %+v", f)
	}
}

// Each forged log lacks one thing that should have happened in the calm, and the checker says
// which.
func TestCheck_ForgedCalms(t *testing.T) {
	without := func(log []Entry, gone func(*Entry) bool) []Entry {
		return slices.DeleteFunc(log, func(e Entry) bool { return gone(&e) })
	}
	late := time.Hour + 3*time.Second + calmRules.leaderBound()
	for _, forged := range []struct {
		name, promise, text string
		forge               func(log []Entry) []Entry
	}{
		{"nobody leads", "P7", "nobody led for", func(log []Entry) []Entry {
			return without(log, func(e *Entry) bool { return e.Kind == Led })
		}},
		{"a leader comes late", "P7", "nobody led for", func(log []Entry) []Entry {
			find(log, Led, 7).At = late
			return log
		}},
		{"the leader is gone and none follows", "P7", "nobody led for", func(log []Entry) []Entry {
			find(log, Led, 7).Until = time.Hour + 4*time.Second
			return log
		}},
		{"one task never runs", "P10", "no run of once began", func(log []Entry) []Entry {
			return without(log, func(e *Entry) bool { return e.Task == "once" })
		}},
		{"a task runs no more", "P10", "no further run of rerun began", func(log []Entry) []Entry {
			return without(log, func(e *Entry) bool { return e.Task == "rerun" && e.At > time.Hour+4*time.Second })
		}},
		{"one is not listed", "P9", "b/1 lives, and is not listed", func(log []Entry) []Entry {
			return without(log, func(e *Entry) bool { return e.Text == "a b" })
		}},
		{"nobody could list", "P9", "a/1 lives, and is not listed", func(log []Entry) []Entry {
			return without(log, func(e *Entry) bool { return e.Kind == Listed })
		}},
		{"a subscription is deaf", "P7", "the subscription of b/1 hears nothing", func(log []Entry) []Entry {
			for i := range log {
				if log[i].Kind == Heard && log[i].Who == "b" {
					log[i].OK = false
				}
			}
			return log
		}},
		{"one heard only before the calm", "P7", "the subscription of b/1 hears nothing", func(log []Entry) []Entry {
			for i := range log {
				if log[i].Kind == Heard && log[i].Who == "b" {
					log[i].At = time.Hour + time.Second
				}
			}
			return log
		}},
		{"a calm that is too short", "P7", "shows nothing", func(log []Entry) []Entry {
			find(log, Calm, 0).Until -= time.Second
			return log
		}},
	} {
		t.Run(forged.name, func(t *testing.T) {
			found := check(calmRules, sortedCopy(forged.forge(afterwards()))).found
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Promise == forged.promise && strings.Contains(v.Text, forged.text) }) {
				t.Errorf("no %s with %q in %+v", forged.promise, forged.text, found)
			}
		})
	}
}

// A process that was started, asked to stop or killed within a calm is not held to it.
func TestCheck_CalmOfThoseThatLivedThroughIt(t *testing.T) {
	middle := time.Hour + 10*time.Second
	for name, more := range map[string][]Entry{
		"started": {{Kind: Started, At: middle, Who: "c", Life: 1}},
		"killed":  {{Kind: Started, At: time.Hour, Who: "c", Life: 1}, {Kind: Gone, At: middle, Who: "c", Life: 1}},
		"stopped": {{Kind: Started, At: time.Hour, Who: "c", Life: 1}, {Kind: StopAsked, At: middle, Who: "c", Life: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if c := check(calmRules, sortedCopy(append(afterwards(), more...))); len(c.found) > 0 || c.calms[0].members != 2 {
				t.Errorf("violations %v, %+v", c.found, c.calms)
			}
		})
	}
}
