package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Task is the record of one task with its history: the rules of the task scripts. It is a plain
// value, but for its lists: a copy is a snapshot if they are cloned, or only ever replaced.
type Task struct {
	Record
	History     []Run
	TriggerArgs string   // of the trigger that waits
	Triggered   []string // IDs of the last that were claimed, the youngest first
}

// Record are the fields of the hash. A zero field is an absent one, but for Next.
type Record struct {
	Next      string // "" absent, else ms; "0": no further slot
	Spec      string
	Token     int64
	Run, Done string // ID of the run that is on, of the last one that ended
	Status    string
	Scheduled int64
	Started   int64
	Finished  int64
	Attempt   int64
	Crashes   int64
	Skipped   int64
	Paused    bool
	Cancel    string // ID of the run that was last asked to end
	Why       string // "<since> <by whom and why>"
	Instance  string
	RunToken  int64
	Error     string
	Failures  int64
	RetryAt   int64
	RetryIn   int64
	Success   int64 // when a run last succeeded
	Failed    int64 // runs that have failed since
	Lease     string
	Pauses    string // "" absent
	LastPause string // "" absent, else "<since>", and once it is over "<since> <until>"
	Trigger   string // "" absent, else "<ID> <end> <instance>"
	RunOf     string // ID of the trigger of the last run
	Args      string
	Triggers  int64 // that were claimed
	There     bool  // there is a hash
}

// Run is one entry of the history.
type Run struct {
	ID       string
	Slot     int64
	Started  int64
	Finished int64
	Status   string
	Attempt  int64
	Token    int64
	Instance string
	Error    string
	Trigger  string
}

// Claim is what a claim says.
type Claim struct {
	Token    int64
	Run      string
	Kind     string // slot, again, extra or trigger
	Expect   string
	Slot     int64
	Next     string
	Spec     string
	Instance string
	Skipped  int64
	Attempt  int64
	Pauses   string // as it was read
}

// Open fences the record for a new leader of a lease. gone says that the lease which the record
// belongs to was named, and has no holder, or one that has led for KnownWithin and not opened it.
func (t *Task) Open(token int64, lease string, gone bool) string {
	foreign := t.Lease != "" && t.Lease != lease
	switch {
	case foreign && !gone:
		return "foreign"
	case !foreign && token < t.Token:
		return "fenced"
	case token != t.Token || t.Lease != lease:
		t.Token, t.Lease, t.There = token, lease, true
	}
	return "ok"
}

// Plan moves the next slot without a run.
func (t *Task) Plan(token int64, expect, next, spec string, skipped int64, paused bool, why string) string {
	switch {
	case token < t.Token:
		return "fenced"
	case token > t.Token:
		return "moved"
	case t.Next == next && t.Spec == spec:
		return "ok"
	case t.Next != expect:
		return "moved"
	}
	t.Next, t.Spec, t.Skipped, t.There = next, spec, t.Skipped+skipped, true
	if paused && t.Pauses == "" {
		t.Paused, t.Why = true, why
	}
	return "ok"
}

// Claim claims a slot, or what else is to run, for one run.
func (t *Task) Claim(now int64, c Claim) string {
	switch {
	case c.Token < t.Token:
		return "fenced"
	case t.Run == c.Run:
		return "claimed"
	case c.Token > t.Token, t.Done == c.Run, t.Run != "" && c.Kind != "again":
		return "moved"
	}
	r := t.Record
	switch c.Kind {
	case "slot":
		switch {
		case t.Next != c.Expect || t.Spec != c.Spec:
			return "moved"
		case now < c.Slot:
			return "early"
		case t.Paused:
			t.Next = c.Next
			return "paused"
		case t.Pauses != c.Pauses:
			return "moved"
		}
		r.Next, r.Scheduled, r.Failures, r.Skipped = c.Next, c.Slot, 0, r.Skipped+c.Skipped
		r.RunOf, r.Args = "", ""
	case "trigger":
		id, end := t.trigger()
		switch {
		case t.Record.Trigger == "" || t.Record.Trigger != c.Expect:
			return "moved"
		case end <= now:
			t.Record.Trigger, t.TriggerArgs = "", ""
			return "expired"
		case t.Paused:
			return "paused"
		}
		r.Scheduled, r.Failures, r.RunOf, r.Args, r.Trigger = now, 0, id, t.TriggerArgs, ""
		t.TriggerArgs = ""
		r.Triggers++
		t.Triggered = append([]string{id}, t.Triggered[:min(len(t.Triggered), keptTriggers-1)]...)
	default:
		if c.Kind == "again" && t.Run != c.Expect && (t.Run != "" || t.Done != c.Expect) {
			return "moved"
		}
		if c.Kind == "again" && t.Record.Cancel == c.Expect {
			return "moved"
		}
		if c.Kind == "extra" && strconv.FormatInt(t.Finished, 10) != c.Expect {
			return "moved"
		}
		if t.Paused {
			return "paused"
		}
		if c.Kind == "extra" {
			r.Scheduled, r.Failures, r.RunOf, r.Args = now, 0, "", ""
		} else if t.Run != "" {
			r.Crashes++
			t.remember(now, t.Run, "abandoned", "")
		}
	}
	r.Run, r.Status, r.Started, r.Attempt, r.Instance, r.RunToken, r.There = c.Run, "running", now, c.Attempt, c.Instance, c.Token, true
	r.RetryAt = 0
	t.Record = r
	return "claimed"
}

// Retry notes the attempt that is to follow a failed one after so many ms.
func (t *Task) Retry(now, token int64, run string, attempt, failures, in int64) string {
	switch {
	case token < t.Token:
		return "fenced"
	case t.Run != run:
		return "gone"
	case t.Attempt < attempt:
		t.Attempt, t.Failures, t.RetryAt, t.RetryIn, t.There = attempt, failures, now+in, in, true
	}
	return "ok"
}

// Finish ends a run, once. An attempt of 0 leaves the one that is there and the failures, and
// retryIn of 0 the next attempt.
func (t *Task) Finish(now, token int64, run, status, text string, attempt, failures, retryIn int64) string {
	if token < t.Token {
		return "fenced"
	}
	waits := status == "abandoned" && t.Run == "" && t.Done == run && (t.Status == "interrupted" || t.Status == "returned")
	if t.Run != run && !waits {
		if t.Done == run {
			return "done"
		}
		if status == "returned" && token == t.Token {
			t.Done, t.There = run, true
		}
		return "gone"
	}
	if t.Record.Cancel == run && (status == "interrupted" || status == "returned") {
		status = "canceled"
	}
	t.Run, t.Done, t.Status, t.Finished, t.Error, t.There = "", run, status, now, text, true
	if attempt != 0 {
		t.Attempt, t.Failures = attempt, failures
	}
	if retryIn != 0 {
		t.RetryAt, t.RetryIn = now+retryIn, retryIn
	}
	switch status {
	case "abandoned":
		if !waits {
			t.Crashes++
		}
		t.Failed++
	case "failed":
		t.Crashes = 0
		t.Failed++
	case "succeeded":
		t.Crashes, t.Failed, t.Success = 0, 0, now
	}
	if status != "returned" {
		t.remember(now, run, status, text)
	}
	return "done"
}

// Pause pauses the task, or lets it go on.
func (t *Task) Pause(now int64, paused bool, expect, why string) string {
	switch {
	case !t.There:
		return "absent"
	case t.Pauses != expect:
		return "moved"
	}
	count, _ := strconv.ParseUint(t.Pauses, 10, 63)
	since := now
	if t.Paused {
		if was, err := strconv.ParseInt(cmp.Or(t.LastPause, strings.Split(t.Why, " ")[0]), 10, 64); err == nil && was > 0 && was <= now {
			since = was
		}
	}
	switch {
	case paused:
		t.LastPause = fmt.Sprint(since)
	case t.Paused:
		t.LastPause = fmt.Sprint(since, " ", now)
	}
	t.Paused, t.Why, t.Pauses = paused, "", strconv.FormatUint(count+1, 10)
	if paused {
		t.Why = fmt.Sprint(now, " ", why)
	}
	return "ok"
}

// Cancel has the run end that is on, or waits to be run again.
func (t *Task) Cancel(now int64, run, text string) string {
	waits := t.Run == "" && t.Done == run && (t.Status == "interrupted" || t.Status == "returned")
	switch {
	case !t.There:
		return "absent"
	case t.Record.Cancel == run && (t.Run == run || t.Done == run):
		return "ok"
	case t.Run != run && !waits:
		return "moved"
	}
	t.Record.Cancel = run
	if waits {
		t.Status, t.Error = "canceled", text
		t.remember(now, run, "canceled", text)
	}
	return "ok"
}

// keptTriggers is of how many triggers that were claimed last the IDs are kept.
const keptTriggers = 32

// Trigger has the task run once. It waits for so many ms at most. runs is how many triggers had
// been claimed as the record was read.
func (t *Task) Trigger(now int64, id, args, by string, notAfter, wait int64, create bool, runs int64) string {
	waits, end := t.trigger()
	switch {
	case waits == id, slices.Contains(t.Triggered, id):
		return "ok"
	case t.Triggers-runs > keptTriggers:
		return "moved"
	case now > notAfter:
		return "stale"
	case !t.There && !create:
		return "absent"
	case end > now:
		return "waiting"
	}
	t.Record.Trigger, t.TriggerArgs, t.There = fmt.Sprint(id, " ", now+wait, " ", by), args, true
	return "ok"
}

// trigger are the parts of the one that waits.
func (t *Task) trigger() (id string, end int64) {
	parts := append(strings.Fields(t.Record.Trigger), "", "")
	end, _ = strconv.ParseInt(parts[1], 10, 64)
	return parts[0], end
}

// shortError is an error as the history shows it: at most 120 bytes, the last of them an ellipsis
// if there was more.
func shortError(text string) string {
	if len(text) <= 120 {
		return text
	}
	kept := 0
	for at, r := range text {
		if at+utf8.RuneLen(r) <= 117 {
			kept = at + utf8.RuneLen(r)
		}
	}
	return text[:kept] + "…"
}

func (t *Task) remember(now int64, run, status, text string) {
	t.History = append(t.History, Run{
		ID: run, Slot: t.Scheduled, Started: t.Started, Finished: now, Status: status, Attempt: t.Attempt, Token: t.RunToken,
		Instance: t.Instance, Error: shortError(text), Trigger: t.RunOf,
	})
}
