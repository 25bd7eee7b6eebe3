package virtual

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestVirtualAsks: an operator asks for transfers, drains, triggers and the like while faults go
// on, and for each of them once more when they are over. All is virtual time.
func TestVirtualAsks(t *testing.T) {
	simnet.Exact(t)
	for _, profile := range []string{"asks-calm", "asks-base"} {
		r := mustPlay(t, Request{Profile: profile, Seed: 1, Length: 4 * time.Minute})
		for _, answer := range []string{"transfer: done", "transfer: not ready", "drain: done", "trigger: done", "pause: done", "resume: done", "list: done"} {
			if r.Answers[answer] == 0 {
				t.Errorf("%s: nothing was answered %q: %v", profile, answer, r.Answers)
			}
		}
		if r.Triggered < 3 {
			t.Errorf("%s: %d triggers ran", profile, r.Triggered)
		}
	}
}

// TestVirtualTriggerExpires: a trigger of a task that is paused for longer than it waits is
// dropped, and the checker takes that; but not if the task was free for most of the time, and not
// if it is run all the same. All is virtual time.
func TestVirtualTriggerExpires(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	const ends, paused = "if trigger_ends(task.trigger) <= now then -- rule trigger-ends",
		"  if task.paused == '1' then return task_answer('paused', now, task) end\n  fields.last_scheduled"
	const late = triggerBound + time.Minute
	for _, tt := range []struct {
		name, before, after string
		pause               time.Duration
		wrong               string
	}{
		{"as promised", "", "", late, ""},
		{"run in time", "", "", late - 5*time.Minute, ""},
		{"never dropped", ends, "if false then", late, "was claimed after 1h"},
		{"never run", paused, "  if true then return task_answer('paused', now, task) end\n  fields.last_scheduled", time.Minute, "was dropped after 1h"},
		{"neither", ends, "if true then return task_answer('paused', now, task) elseif false then", time.Minute, "was accepted and has never run"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.before != "" {
				breakScripts(t, tt.before, tt.after)
			}
			var wrong []string
			setup := setup{pace: steady, instances: 2, kept: true, tasks: true, asks: true, report: func(problems []problem) {
				for _, p := range problems {
					wrong = append(wrong, p.text)
				}
			}}
			task := steady.tasks[0].name
			inCluster(t, 1, setup, func(c *cluster) {
				c.start()
				c.awaitLeader(steady.ttl, nil)
				number := c.operator.nextTrigger()
				for _, err := range []error{c.operator.pause(task), c.operator.trigger(task, number)} {
					if err != nil {
						t.Error(err)
					}
				}
				time.Sleep(tt.pause)
				if err := c.operator.resume(task); err != nil {
					t.Error(err)
				}
				time.Sleep(late - tt.pause + 3*time.Minute)
				c.check.triggersEnded(0)
			})
			if len(wrong) == 0 && tt.wrong == "" {
				return
			}
			if len(wrong) != 1 || tt.wrong == "" || !strings.Contains(wrong[0], tt.wrong) {
				t.Errorf("instead of %q: %q", tt.wrong, wrong)
			}
		})
	}
}
