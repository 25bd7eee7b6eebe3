package virtual

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure"
)

// tap listens to what Redis is told to write, in virtual time, and holds it against P9 and
// P10: no script can hide from it what it does. It belongs to the checker, whose mutex guards it.
type tap struct {
	c         *checker
	beats     map[string]time.Time // the last beat of an instance, by Redis's clock
	tasks     map[string]*record
	beaten    int
	joined    int
	swept     int
	claims    int
	reruns    int
	triggered int
}

// record is what was written of a task.
type record struct {
	every, last int64 // ms; last: the last slot that was claimed, 0: none
	open        int64 // a slot that was claimed and has neither succeeded nor failed; 0: none
	crashes     int   // leaders in a row that have died of the task, over all of its slots, as the record counts them

	run      string         // the last one that was claimed
	loose    bool           // slots may have been passed over since the last one: the task was paused, or a triggered run was on
	paused   bool           // by the operator
	canceled string         // the last run that was canceled
	waiting  waiting        // the last trigger that was left
	claimed  map[string]int // triggers, by ID
	ended    map[string]int // their runs that came to an end
	dropped  map[string]int // those that had waited for too long
}

func newTap(c *checker) *tap {
	tap := &tap{c: c, beats: map[string]time.Time{}, tasks: map[string]*record{}}
	for _, t := range c.cluster.pace.tasks {
		tap.tasks[t.name] = &record{
			every: t.every.Milliseconds(), claimed: map[string]int{}, ended: map[string]int{}, dropped: map[string]int{},
		}
	}
	return tap
}

// see takes a command that is about to execute. Redis executes nothing else meanwhile.
func (t *tap) see(now time.Time, host, command string, args []string) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if len(args) == 0 {
		return
	}
	key := args[0]
	task, isTask := strings.CutPrefix(key, "tenure:task:")
	id, isCommand := strings.CutPrefix(key, "tenure:command:")
	switch {
	case key == "tenure:beats" && command == "ZADD":
		t.beat(now, host, args[1:])
	case key == "tenure:beats" && command == "ZREM":
		t.remove(now, host, args[1:])
	case isTask && command == "HSET" && t.tasks[task] != nil:
		field := fields(args[1:])
		t.wish(now, t.tasks[task], field)
		t.claim(now, task, t.tasks[task], field)
	case isTask && command == "HDEL" && t.tasks[task] != nil && slices.Contains(args[1:], "paused"):
		t.tasks[task].pause(now, false)
	case isTask && command == "HDEL" && t.tasks[task] != nil && slices.Contains(args[1:], "trigger"):
		t.triggerGone(now, task, t.tasks[task])
	case key == "tenure:commands" && command == "XADD":
		t.audit(args)
	case isCommand && command == "HSET":
		t.command(id, args[1:])
	case isTask && command == "XADD" && strings.HasSuffix(task, ":runs") && args[1] == "MAXLEN": // else an old entry is written anew, under its ID
		task = strings.TrimSuffix(task, ":runs")
		t.end(task, t.tasks[task], args)
	}
}

// beat takes ZADD of a beat: of the asker, or, in a sweep, of one whose heartbeat key was seen.
func (t *tap) beat(now time.Time, host string, args []string) {
	if slices.Contains(args, "XX") { // a sweep looks for its own
		return
	}
	for _, id := range args {
		if id != host {
			continue
		}
		if _, known := t.beats[id]; !known {
			t.joined++
		}
		t.beats[id] = now
		t.beaten++
	}
}

// remove holds a sweep against P9. An instance that leaves removes itself.
func (t *tap) remove(now time.Time, host string, ids []string) {
	for _, id := range ids {
		last, known := t.beats[id]
		delete(t.beats, id)
		if id == host || !known {
			continue
		}
		t.swept++
		if silent := now.Sub(last); silent < t.c.cluster.pace.registry.DownAfter {
			t.c.failed("P9: %s swept %s, which had beaten %v before", host, id, silent)
		}
	}
}

// rewind returns what undoes all beats from now on: a replica that is promoted later misses them.
// An instance that was away may have none but those.
func (t *tap) rewind() (undo func()) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	replicated := maps.Clone(t.beats)
	return func() {
		t.c.mu.Lock()
		defer t.c.mu.Unlock()
		t.beats = replicated
	}
}

// crashesOfATask is how many leaders may die in a row during runs of a task before a run is given
// up. Until one comes to an end, the first death gives up each later run too.
const crashesOfATask = 3

// claim holds the claim of a slot against P10: each slot once, in step; with MissedRunAll every
// one, else the latest that is due.
func (t *tap) claim(now time.Time, name string, r *record, field map[string]string) {
	t.died(name, r, field)
	if field["run"] == "" {
		return
	}
	t.c.cluster.note(field["instance"], "claims "+name, field["last_scheduled"]+" run "+field["run"]+" crashes "+field["crashes"], 0)
	slot, err := strconv.ParseInt(field["last_scheduled"], 10, 64)
	t.held(name, r, err != nil)
	r.run = field["run"]
	if err != nil {
		t.reruns++
		return
	}
	if id := field["run_trigger"]; id != "" {
		t.triggerClaimed(now, name, id, r)
		t.leftOpen(name, r, slot)
		r.open, r.loose = slot, true
		return
	}
	t.claims++
	if due := now.UnixMilli(); slot > due {
		t.c.failed("P10: slot %d of %s was claimed at %d, before it was due", slot, name, due)
	}
	if t.c.cluster.setup.kept {
		t.inStep(now.UnixMilli(), name, r, slot)
	}
	r.last, r.open, r.loose = slot, slot, r.paused
}

// died takes the count of leaders that have died of a task. It grows by one at a time.
func (t *tap) died(name string, r *record, field map[string]string) {
	crashes, err := strconv.Atoi(field["crashes"])
	if err != nil {
		return
	}
	if t.c.cluster.setup.kept && crashes > r.crashes+1 {
		t.c.failed("P10: %d leaders have died of %s, after %d", crashes, name, r.crashes)
	}
	r.crashes = crashes
}

// inStep holds the slot against the one before.
func (t *tap) inStep(due int64, name string, r *record, slot int64) {
	if r.last == 0 {
		return
	}
	task := t.c.tasks[name].task
	switch {
	case slot == r.last:
		t.c.failed("P10: slot %d of %s was claimed twice", slot, name)
	case slot < r.last || (slot-r.last)%r.every != 0:
		t.c.failed("P10: slot %d of %s was claimed after %d", slot, name, r.last)
	case task.missed == tenure.MissedRunAll && slot-r.last > r.every && !r.loose:
		t.c.failed("P10: after slot %d of %s came %d: a slot was lost", r.last, name, slot)
	case task.missed == tenure.MissedRunOnce && due-slot >= r.every+t.c.cluster.late().Milliseconds():
		t.c.failed("P10: slot %d of %s was claimed at %d: a later one was due", slot, name, due)
	case task.missed == tenure.MissedRunOnce && t.c.cluster.setup.calm && slot-r.last > r.every && !r.loose:
		t.c.failed("P10: after slot %d of %s came %d: a slot was lost", r.last, name, slot)
	}
	t.leftOpen(name, r, slot)
}

// leftOpen holds a claim against the run before, which may have been given up if enough leaders
// have died of the task. With MissedRunOnce a run for the latest slot is one for all, once two have
// come due since: so it is after a pause.
func (t *tap) leftOpen(name string, r *record, slot int64) {
	outdated := t.c.tasks[name].missed == tenure.MissedRunOnce && r.open == r.last && slot-r.open >= 2*r.every
	if t.c.cluster.setup.kept && r.open != 0 && r.crashes < crashesOfATask && !outdated {
		t.c.failed("P10: slot %d of %s was claimed while the run of %d was neither done nor given up", slot, name, r.open)
	}
}

// late is how late a claim may arrive: the network holds it up.
func (c *cluster) late() time.Duration {
	if c.setup.calm {
		return 0
	}
	return c.pace.span(10 * time.Second)
}

// end takes an entry of the history.
func (t *tap) end(name string, r *record, args []string) {
	at := slices.Index(args, "run")
	if r == nil || at < 0 {
		return
	}
	field := fields(args[at:])
	t.c.cluster.note(field["instance"], "records "+name, field["slot"]+" run "+field["run"]+" "+field["status"], 0)
	slot, _ := strconv.ParseInt(field["slot"], 10, 64)
	switch tenure.RunState(field["status"]) {
	case tenure.RunSucceeded, tenure.RunFailed, tenure.RunCanceled:
		if t.c.cluster.setup.kept && slot != r.open {
			t.c.failed("P10: a run of slot %d of %s ended twice, or was never claimed", slot, name)
		}
		r.open = 0
		r.ended[field["trigger"]]++
	case tenure.RunAbandoned:
		if r.crashes >= crashesOfATask { // else it is run again
			r.ended[field["trigger"]]++
		}
	case tenure.RunInterrupted:
		if t.c.cluster.setup.kept && field["run"] == r.canceled {
			t.c.failed("P10: a run of %s was canceled, and is recorded as interrupted", name)
		}
	}
}

// fields are the pairs of HSET and XADD.
func fields(args []string) map[string]string {
	fields := map[string]string{}
	for i := 0; i+1 < len(args); i += 2 {
		fields[args[i]] = args[i+1]
	}
	return fields
}
