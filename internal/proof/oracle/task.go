package oracle

import "strconv"

// Task is the record of one task with its history: the rules of the task scripts. It is a plain
// value, but for History: a copy is a snapshot if History is cloned.
type Task struct {
	Record
	History []Run
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
	Instance  string
	RunToken  int64
	Error     string
	Failures  int64
	RetryAt   int64
	Lease     string
	Pauses    string // "" absent
	There     bool   // there is a hash
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
}

// Claim is what a claim says.
type Claim struct {
	Token    int64
	Run      string
	Kind     string // slot, again or extra
	Expect   string
	Slot     int64
	Next     string
	Spec     string
	Instance string
	Skipped  int64
	Attempt  int64
}

// Open fences the record for a new leader of a lease. gone says that the lease which the record
// belongs to was named, and has no holder.
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
func (t *Task) Plan(token int64, expect, next, spec string, skipped int64, paused bool) string {
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
	t.Paused = t.Paused || paused && t.Pauses == ""
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
		}
		r.Next, r.Scheduled, r.Failures, r.Skipped = c.Next, c.Slot, 0, r.Skipped+c.Skipped
	default:
		if c.Kind == "again" && t.Run != c.Expect && (t.Run != "" || t.Done != c.Expect) {
			return "moved"
		}
		if c.Kind == "extra" && strconv.FormatInt(t.Finished, 10) != c.Expect {
			return "moved"
		}
		if t.Paused {
			return "paused"
		}
		if c.Kind == "extra" {
			r.Scheduled, r.Failures = now, 0
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
	case t.Attempt != attempt || t.Failures != failures:
		t.Attempt, t.Failures, t.RetryAt, t.There = attempt, failures, now+in, true
	}
	return "ok"
}

// Finish ends a run, once. An attempt of 0 leaves the one that is there and the failures, and
// retryIn of 0 the next attempt.
func (t *Task) Finish(now, token int64, run, status, text string, attempt, failures, retryIn int64) string {
	if token < t.Token {
		return "fenced"
	}
	if t.Run != run {
		if t.Done == run {
			return "done"
		}
		if status == "returned" && token == t.Token {
			t.Done, t.There = run, true
		}
		return "gone"
	}
	t.Run, t.Done, t.Status, t.Finished, t.Error, t.There = "", run, status, now, text, true
	if attempt != 0 {
		t.Attempt, t.Failures = attempt, failures
	}
	if retryIn != 0 {
		t.RetryAt = now + retryIn
	}
	switch status {
	case "abandoned":
		t.Crashes++
	case "succeeded", "failed":
		t.Crashes = 0
	}
	if status != "returned" {
		t.remember(now, run, status, text)
	}
	return "done"
}

// Pause pauses the task, or lets it go on.
func (t *Task) Pause(paused bool, expect string) string {
	switch {
	case !t.There:
		return "absent"
	case t.Pauses != expect:
		return "moved"
	}
	count, _ := strconv.ParseUint(t.Pauses, 10, 63)
	t.Paused, t.Pauses = paused, strconv.FormatUint(count+1, 10)
	return "ok"
}

func (t *Task) remember(now int64, run, status, text string) {
	t.History = append(t.History, Run{
		ID: run, Slot: t.Scheduled, Started: t.Started, Finished: now, Status: status, Attempt: t.Attempt, Token: t.RunToken,
		Instance: t.Instance, Error: text,
	})
}
