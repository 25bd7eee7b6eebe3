//go:build unix

package fleet

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// asking is a log in which what an operator asks for is kept: one trigger runs, one is given up as
// its leader dies, and a pause holds.
func asking() []Entry {
	at := func(n int) time.Duration { return time.Hour + time.Duration(n)*time.Millisecond }
	return append(calm(),
		Entry{Kind: Asked, At: at(200), Until: at(210), Text: "trigger", Task: taskAsked, Number: "1", Run: "t1", ID: "c1", OK: true},
		Entry{Kind: RunBegan, At: at(220), Who: "a", Life: 1, Token: 7, Task: taskAsked, Run: "x1", Number: "1", Slot: 220, Attempt: 1},
		Entry{Kind: RunEnded, At: at(230), Who: "a", Life: 1, Token: 7, Task: taskAsked, Run: "x1", Number: "1", Slot: 220, Attempt: 1, OK: true},
		Entry{Kind: Asked, At: at(2500), Until: at(2510), Text: "trigger", Task: taskAsked, Number: "2", Run: "t2", ID: "c2", OK: true},
		Entry{Kind: Asked, At: at(400), Until: at(410), Text: "pause", Task: taskHeld, ID: "c3", OK: true, Wall: 10*time.Hour + 410*time.Millisecond},
		Entry{Kind: Asked, At: at(800), Until: at(810), Text: "resume", Task: taskHeld, ID: "c4", OK: true},
		Entry{Kind: RunBegan, At: at(850), Who: "a", Life: 1, Token: 7, Task: taskHeld, Run: "h1", Slot: (10*time.Hour + 700*time.Millisecond).Milliseconds(), Attempt: 1},
		Entry{Kind: RunEnded, At: at(860), Who: "a", Life: 1, Token: 7, Task: taskHeld, Run: "h1", Slot: (10*time.Hour + 700*time.Millisecond).Milliseconds(), Attempt: 1, OK: true},
		Entry{Kind: Asked, At: at(900), Until: at(3000), Text: "drain", Number: "b", ID: "c5", Err: "not taken"},
		Entry{Kind: Record, At: at(9100), Task: taskAsked, Run: "t1", Text: "succeeded"},
		Entry{Kind: Record, At: at(9100), Task: taskAsked, Run: "t2", Text: "abandoned"},
		Entry{Kind: Audit, At: at(9100), Run: "c1", Text: "done", OK: true},
		Entry{Kind: Audit, At: at(9100), Run: "c2", Text: "done", OK: true},
		Entry{Kind: Audit, At: at(9100), Run: "c3", Text: "done", OK: true},
		Entry{Kind: Audit, At: at(9100), Run: "c4", Text: "done", OK: true},
		Entry{Kind: Audit, At: at(9100), Run: "c5", Who: "b", Text: "expired", OK: true},
	)
}

// TestCheck_WhatWasAsked: each broken promise to an operator is noticed, and none where all are
// kept.
func TestCheck_WhatWasAsked(t *testing.T) {
	at := func(n int) time.Duration { return time.Hour + time.Duration(n)*time.Millisecond }
	drop := func(log []Entry, kind Kind, run string) []Entry {
		var kept []Entry
		for _, e := range log {
			if e.Kind != kind || e.Run != run {
				kept = append(kept, e)
			}
		}
		return kept
	}
	entry := func(log []Entry, kind Kind, text string) *Entry {
		for i := range log {
			if log[i].Kind == kind && log[i].Text == text {
				return &log[i]
			}
		}
		panic("there is no such entry")
	}
	for name, tt := range map[string]struct {
		forge func(log []Entry) []Entry
		want  string // "": nothing
	}{
		"kept": {func(log []Entry) []Entry { return log }, ""},
		"a trigger that runs twice": {func(log []Entry) []Entry {
			return append(log, Entry{Kind: RunBegan, At: at(1300), Who: "b", Life: 1, Token: 9, Task: taskAsked, Run: "x2", Number: "1", Slot: 1300, Attempt: 1},
				Entry{Kind: RunEnded, At: at(1310), Who: "b", Life: 1, Token: 9, Task: taskAsked, Run: "x2", Number: "1", Slot: 1300, Attempt: 1, OK: true})
		}, "trigger 1 of the operator ran in a/1 and in b/1"},
		"a trigger that is lost though nobody died": {func(log []Entry) []Entry {
			for i := range log {
				if log[i].Kind == Asked && log[i].Number == "2" {
					log[i].At, log[i].Until = at(300), at(310)
				}
			}
			return log
		}, `its history says "abandoned", and nobody died`},
		"a resignation of nobody": {func(log []Entry) []Entry {
			return append(log, Entry{Kind: Asked, At: at(1200), Until: at(1210), Text: "resign", OK: true})
		}, "resign was done at 1h0m1.21s, and no term has ended"},
		"a transfer of nobody": {func(log []Entry) []Entry {
			return append(log, Entry{Kind: Asked, At: at(1200), Until: at(1210), Text: "transfer", Number: "a", OK: true})
		}, "transfer was done at 1h0m1.21s, and no term has ended"},
		"a drain of one that leads": {func(log []Entry) []Entry {
			return append(log, Entry{Kind: Asked, At: at(950), Until: at(960), Text: "drain", Number: "b", OK: true})
		}, "b began a term with token 9, its drain was done at 1h0m0.96s"},
		"a cancel of nothing": {func(log []Entry) []Entry {
			return append(log, Entry{Kind: Asked, At: at(1200), Until: at(1210), Text: "cancel", Task: taskAsked, OK: true})
		}, "a run was canceled at 1h0m1.21s, and none has ended"},
		"a command that one of many looks lacks": {func(log []Entry) []Entry {
			log = drop(log, Audit, "c5")
			for look := range 10 {
				for n := range 50 {
					log = append(log, Entry{Kind: Audit, At: at(3500 + 2000*look), Run: fmt.Sprint("x", n), Text: "done", OK: true})
				}
			}
			return log
		}, "the command c5 (drain) is not in the audit stream"},
		"a trigger without a word": {func(log []Entry) []Entry { return drop(log, Record, "t2") }, "its history has no word of it"},
		"a trigger that is said to have run": {func(log []Entry) []Entry {
			entry(log, Record, "abandoned").Text = "succeeded"
			return log
		}, "its history says that it has"},
		"a slot in a pause": {func(log []Entry) []Entry {
			for i := range log {
				if log[i].Run == "h1" {
					log[i].At -= at(850) - at(600)
				}
			}
			return log
		}, "started in a/1 190ms after its pause was confirmed"},
		"a command that the audit stream lacks": {func(log []Entry) []Entry { return drop(log, Audit, "c5") }, "the command c5 (drain) is not in the audit stream"},
		"a command without an end": {func(log []Entry) []Entry {
			entry(log, Audit, "expired").OK = false
			return log
		}, "the command c5 (drain) has neither ended nor expired"},
		"a command that nobody who was killed had taken": {func(log []Entry) []Entry {
			e := entry(log, Audit, "expired")
			e.OK, e.Text, e.Who = false, "asked", "a"
			entry(log, Asked, "drain").Until += 10 * time.Millisecond // b is killed meanwhile
			return log
		}, "the command c5 (drain) has neither ended nor expired"},
		"a call that hangs": {func(log []Entry) []Entry {
			entry(log, Asked, "drain").At -= time.Minute
			return log
		}, "drain was answered after"},
		"a resume in vain": {func(log []Entry) []Entry {
			return append(drop(drop(log, RunBegan, "h1"), RunEnded, "h1"), Entry{Kind: Told, At: at(300_000), Who: "a", Life: 1})
		}, "held was resumed and has not run since"},
	} {
		t.Run(name, func(t *testing.T) {
			c := check(testRules, sortedCopy(tt.forge(asking())))
			if tt.want == "" {
				if len(c.found) > 0 {
					t.Errorf("violations: %v", c.found)
				}
				if f := c.asked; f.asked != 5 || f.done != 4 || f.triggers != 2 || f.ran != 1 || f.lost != 1 || f.pauses != 1 || f.listed != 5 {
					t.Errorf("the figures are %+v", f)
				}
				return
			}
			for _, v := range c.found {
				if strings.Contains(v.Text, tt.want) {
					return
				}
			}
			t.Errorf("%q was not noticed, but %v", tt.want, c.found)
		})
	}
}

// TestCheck_WhatWasDone: what an operator was told to be done, and was, is no violation; a command
// that the audit stream has no room for any more is none either.
func TestCheck_WhatWasDone(t *testing.T) {
	at := func(n int) time.Duration { return time.Hour + time.Duration(n)*time.Millisecond }
	log := append(asking(),
		Entry{Kind: Asked, At: at(1000), Until: at(1060), Text: "resign", OK: true},
		Entry{Kind: Asked, At: at(1000), Until: at(1060), Text: "transfer", Number: "b", OK: true},
		Entry{Kind: Asked, At: at(1200), Until: at(1210), Text: "transfer", Number: "b", OK: true}, // it leads
		Entry{Kind: Asked, At: at(900), Until: at(910), Text: "drain", Number: "b", OK: true},
		Entry{Kind: Asked, At: at(1000), Until: at(1010), Text: "undrain", Number: "b", OK: true},
		Entry{Kind: Asked, At: at(225), Until: at(228), Text: "cancel", Task: taskAsked, OK: true},
		Entry{Kind: Asked, At: at(5000), Until: at(5010), Text: "pause", ID: "c6", Err: "not taken"},
	)
	for n := range 400 {
		log = append(log, Entry{Kind: Audit, At: at(9200), Run: fmt.Sprint("x", n), Text: "done", OK: true})
	}
	c := check(testRules, sortedCopy(log))
	if len(c.found) > 0 || c.asked.unlistable != 1 {
		t.Errorf("violations %v, figures %+v", c.found, c.asked)
	}
}

// TestCheck_CommandOfADeadProcess: what it had taken has no end.
func TestCheck_CommandOfADeadProcess(t *testing.T) {
	log := asking()
	for i := range log {
		switch e := &log[i]; {
		case e.Kind == Audit && e.Run == "c5":
			e.OK, e.Text = false, "asked"
		case e.Kind == Asked && e.ID == "c5":
			e.Until += 10 * time.Millisecond // b is killed meanwhile
		}
	}
	c := check(testRules, sortedCopy(log))
	if len(c.found) > 0 || c.asked.left != 1 {
		t.Errorf("violations %v, figures %+v", c.found, c.asked)
	}
}

// TestCheck_Deploys: a deploy that costs too many changes of the leader is noticed; one in which a
// lease lapsed is not held.
func TestCheck_Deploys(t *testing.T) {
	at := func(n int) time.Duration { return time.Hour + time.Duration(n)*time.Millisecond }
	deploy := func(from, until, most int) []Entry {
		return append(calm(), Entry{Kind: Struck, At: at(from), Until: at(until), Text: faultDeploy, Strike: &Strike{Most: most}})
	}
	for _, tt := range []struct {
		log     []Entry
		wrong   bool
		figures deployFigures
	}{
		{deploy(1000, 2000, 1), false, deployFigures{count: 1, changes: 1, ready: 1, readyChanges: 1}},
		{deploy(1000, 5000, 2), false, deployFigures{count: 1, changes: 2}},
		{deploy(1000, 5000, 1), true, deployFigures{count: 1, changes: 2, ready: 1, readyChanges: 2}},
		{append(deploy(1000, 5000, 1), Entry{Kind: WorkEnded, At: at(3980), Who: "b", Life: 1, Token: 9, Cancelled: at(2950), Text: endLost}), false, deployFigures{disturbed: 1}},
		{append(deploy(500, 5000, 1), Entry{Kind: WorkEnded, At: at(3980), Who: "b", Life: 1, Token: 9, Cancelled: at(2950), Text: endLost},
			Entry{Kind: Led, At: at(4500), Until: at(5000), Who: "c", Life: 1, Token: 20}), true, deployFigures{disturbed: 1}},
	} {
		c := check(testRules, sortedCopy(tt.log))
		noticed := false
		for _, v := range c.found {
			noticed = noticed || v.Promise == "deploy"
		}
		if noticed != tt.wrong || c.deploys != tt.figures {
			t.Errorf("noticed: %v, %+v; want %v, %+v", noticed, c.deploys, tt.wrong, tt.figures)
		}
	}
}
