package store

import (
	"context"
	"strings"
	"time"
)

// Tasks keeps the records of tasks. Each method is one decision there, which may be asked for again
// if its answer was lost. They are bounded by ctx only as far as the client heeds it, and safe for
// concurrent use.
type Tasks interface {
	Open(ctx context.Context, name string, o TaskOpen) (TaskReply, error)
	Plan(ctx context.Context, name string, p TaskPlan) (TaskReply, error)
	Claim(ctx context.Context, name string, c TaskClaim) (TaskReply, error)
	Retry(ctx context.Context, name string, r TaskRetry) (TaskReply, error)
	Finish(ctx context.Context, name string, f TaskFinish) (TaskReply, error)
	Record(ctx context.Context, name string) (TaskReply, error)
	// RecordAndTriggers is Record, and lists the tasks of which a trigger waits; see TaskRead.
	RecordAndTriggers(ctx context.Context, name, of string) (TaskReply, error)
	// Pause wants the field pauses of the record as it was read. why says by whom and why, for
	// people.
	Pause(ctx context.Context, name string, paused bool, expect, why string) (TaskReply, error)
	Trigger(ctx context.Context, name string, t TaskTrigger) (TaskReply, error)
	Cancel(ctx context.Context, name string, c TaskCancel) (TaskReply, error)
	Forget(ctx context.Context, name string, f TaskForget) (TaskReply, error)

	// Names lists the index, at most limit names, and whether there are more.
	Names(ctx context.Context, limit int) (names []string, more bool, err error)
	// Records reads many records; each has an error of its own. now is Redis's clock, ms.
	Records(ctx context.Context, names []string) (now int64, records []TaskRecord, problems []error, err error)
	// Runs reads the last runs that have ended, newest first.
	Runs(ctx context.Context, name string, limit int) ([]Run, error)
}

// TasksTogether is a Tasks whose calls can travel together.
type TasksTogether interface {
	Tasks
	// Pipelines reports whether they can.
	Pipelines() bool
	// AskAll makes calls in as few round trips as may be. It calls done with the places of those
	// that have an answer, from any goroutine, and returns when it has named all.
	AskAll(ctx context.Context, calls []TaskCall, done func(answered []int))
}

// TaskCall is one of several calls that travel together.
type TaskCall struct {
	Name string
	Ask  any // see AskTask

	// The answer.
	Reply TaskReply
	Err   error
}

// Answers reports whether a reply can be the one to what was asked. A server, or what is between,
// that sends one reply too many answers each call with that to another.
func (r TaskReply) Answers(ask any) bool {
	switch ask := ask.(type) {
	case TaskOpen:
		return r.Verdict != TaskOK || r.Record.Token == ask.Token
	case TaskClaim:
		return r.Verdict != TaskClaimed || r.Record.Run == ask.Run
	case TaskRetry:
		return r.Verdict != TaskOK || r.Record.Run == ask.Run
	case TaskFinish:
		return r.Verdict != TaskDone || r.Record.Done == ask.Run
	}
	return true
}

// AskTask asks for what a TaskOpen, TaskPlan, TaskClaim, TaskRetry, TaskFinish or TaskRead says.
func AskTask(ctx context.Context, tasks Tasks, name string, ask any) (TaskReply, error) {
	switch ask := ask.(type) {
	case TaskOpen:
		return tasks.Open(ctx, name, ask)
	case TaskPlan:
		return tasks.Plan(ctx, name, ask)
	case TaskClaim:
		return tasks.Claim(ctx, name, ask)
	case TaskRetry:
		return tasks.Retry(ctx, name, ask)
	case TaskFinish:
		return tasks.Finish(ctx, name, ask)
	case TaskRead:
		if ask.Triggers {
			return tasks.RecordAndTriggers(ctx, name, ask.Of)
		}
	}
	return tasks.Record(ctx, name)
}

// RunState is how a run stands, or ended.
type RunState string

// How a run stands, or ended. All but the last are words of the public contract too.
const (
	RunRunning     RunState = "running"
	RunSucceeded   RunState = "succeeded"
	RunFailed      RunState = "failed"
	RunInterrupted RunState = "interrupted"
	RunAbandoned   RunState = "abandoned"
	RunCanceled    RunState = "canceled"
	RunReturned    RunState = "returned" // claimed, but the term ended before it started: it is run again
)

// Run is one run of a task that has ended. Its texts are untrusted.
type Run struct {
	Run                     string // its ID
	Slot, Started, Finished time.Time
	Status                  RunState
	Attempt                 int
	Token                   int64
	InstanceID              string
	Error                   string
	Trigger                 string // ID of what triggered it; "": nothing did
}

// KnownWithin is how long after the begin of its term a leader has opened the record of each task
// that it knows.
const KnownWithin = time.Minute

// TaskOpen takes a record over for a term.
type TaskOpen struct {
	Token int64
	Lease string // key of the lease; "": there is only one
	Other string // that of another role, which the record was found to say it belongs to: untrusted; "": none

	// For people.
	Schedule string
	Jitter   time.Duration
}

// TaskPlan moves the next slot without a run.
type TaskPlan struct {
	Token   int64
	Expect  string // the field next as it was read
	Next    int64
	Spec    string
	Skipped int64
	Paused  bool   // it was, before its record was lost
	Pause   string // by whom and why
}

// TaskClaim claims a slot, or what else is to run, for one run.
type TaskClaim struct {
	Token int64
	Run   string // ID, drawn for this claim
	Kind  string
	// Expect is what the record must still say, as it was read. ClaimSlot: its field next;
	// ClaimAgain: the ID of the run that was left behind; ClaimExtra: when a run last ended;
	// ClaimTrigger: its field trigger.
	Expect     string
	Slot, Next int64
	Spec       string
	Instance   string
	Skipped    int
	Attempt    int
	Keep       Keep
	KeepFor    time.Duration
	Pauses     string // as it was read: a slot that was due during a pause is no slot any more
}

// Keep is how many ended runs the history of a task keeps. Zero: DefaultHistory; negative: none is
// added.
type Keep int

// DefaultHistory is how many ended runs are kept if nothing else is said, MaxHistory the most.
const (
	DefaultHistory = 12 // a block of a stream: 5 KB
	MaxHistory     = 1000
)

// Runs is that number.
func (k Keep) Runs() int {
	if k == 0 {
		return DefaultHistory
	}
	return max(int(k), 0)
}

// What is claimed.
const (
	ClaimSlot    = "slot"
	ClaimAgain   = "again"   // a run that another leader left behind
	ClaimExtra   = "extra"   // outside the schedule
	ClaimTrigger = "trigger" // what was triggered
)

// TaskTrigger has a task run once, as soon as its leader can.
type TaskTrigger struct {
	ID       string
	Args     string        // for the run, opaque here
	By       string        // instance that asks
	NotAfter int64         // by Redis's clock, ms: it has no effect later
	For      time.Duration // for which it waits at most
	Create   bool          // a record is made if there is none
	Lease    string        // key of the lease whose leader is to hear of it; "": that of the record
	Runs     int64         // the field TriggerRuns of the record as it was read
}

// TaskCancel has the run end that is on, or waits to be run again.
type TaskCancel struct {
	Run   string        // its ID, as it was read
	For   time.Duration // for which the leader looks for it if it does not hear of it
	Lease string        // key of the lease whose leader is to hear of it; "": nobody
	Keep  Keep
	// KeepFor is how long the history is kept after the last run has ended; 0: for ever.
	KeepFor time.Duration
}

// TaskForget removes the record of a task that its leader does not know.
type TaskForget struct {
	Lease string        // key of the lease whose leader would know it
	Led   time.Duration // for which that leader must have led
	Gone  bool          // nobody may lead: the role is removed too
}

// CanceledText is what the record says of a run that was canceled while nobody ran it.
const CanceledText = "tenure: run canceled"

// TaskRetry notes the attempt that is to follow a failed one.
type TaskRetry struct {
	Token    int64
	Run      string
	Attempt  int
	Failures int
	In       time.Duration
}

// TaskFinish ends a run.
type TaskFinish struct {
	Token    int64
	Run      string
	Status   RunState
	Text     string
	Attempt  int           // 0: leave it, and the failures
	Failures int           // attempts that have failed
	RetryIn  time.Duration // until the next attempt; 0: leave it
	Keep     Keep
	KeepFor  time.Duration
}

// TaskRead asks for the record.
type TaskRead struct {
	Triggers bool   // and for the tasks of which a trigger waits
	Of       string // for which of these, at most MaxTriggers names with a blank between two; "": for any
}

// Verdicts of a decision on a task.
const (
	TaskOK      = "ok"
	TaskClaimed = "claimed"
	TaskEarly   = "early"  // not due by Redis's clock
	TaskPaused  = "paused" // the slot has passed without a run
	TaskMoved   = "moved"  // the record is not what it was when it was read
	TaskDone    = "done"
	TaskGone    = "gone" // the record knows no such run
	TaskFenced  = "fenced"
	TaskForeign = "foreign" // the record is another lease's
	TaskAbsent  = "absent"
	TaskKnown   = "known"   // the leader has opened the record
	TaskUnled   = "unled"   // nobody has led for long enough to know it
	TaskExpired = "expired" // the trigger was too old, and is gone
	TaskWaiting = "waiting" // another trigger waits
	TaskStale   = "stale"   // it came too late
)

// TaskReply is the typed reply of a decision on a task.
type TaskReply struct {
	Verdict string
	Now     int64 // by Redis's clock, ms
	Record  TaskRecord
	// Triggers are tasks of which a trigger waits, at most MaxTriggers, in the reply of
	// RecordAndTriggers. MoreTriggers says that others may wait, which are not listed.
	Triggers     []string
	MoreTriggers bool
}

// TaskRecord is what the record of a task holds. Texts are untrusted, times are in ms of Redis's
// clock, and what is no number there is 0 here.
type TaskRecord struct {
	Due                          string // the field next as it is there; "" in a new record
	Next                         int64  // 0: no further slot, or none yet
	Spec                         string
	Token                        int64
	Run, Done                    string // ID of the run that is on, of the last one that ended
	Status                       RunState
	Scheduled, Started, Finished int64
	Attempt, Crashes             int
	Skipped                      int64
	Paused                       bool
	Pause                        string // since when, ms, and behind it by whom and why, as Pause was told; "": not known
	Instance                     string
	RunToken                     int64 // of the last run; Token is that of the last leader
	Text                         string
	Failures                     int    // attempts of the last run that have failed
	RetryAt                      int64  // its next attempt is due; 0: at once
	RetryIn                      int64  // the pause before that, as it was noted
	LastSuccess                  int64  // when a run last succeeded; 0: none has
	FailedRuns                   int    // that have failed, or were abandoned, since then
	Lease                        string // key of the lease whose leader runs the task
	Pauses                       string // how often it was paused or resumed, as it is there
	PausedAt, ResumedAt          int64  // the last pause began and ended, ms; ResumedAt is 0 while it is on, both are 0 if it is not known
	Trigger                      string // the trigger that waits, see TriggerID; "": none
	RunTrigger                   string // ID of that of the last run; "": it has none
	Args                         string // of that run
	Cancel                       string // ID of the run that was last asked to end
	TriggerRuns                  int64  // how many triggers were claimed
	Schedule                     string // its text, and the jitter in ms, for people; only Records has both
	Jitter                       int64
}

// TriggerID is the ID of the trigger that waits; "": none.
func (r TaskRecord) TriggerID() string {
	id, _, _ := strings.Cut(r.Trigger, " ")
	return id
}

// Waiting is the ID of the run that the end of its term has cut short and that may be run again;
// "": there is none. One whose leader has died is still on in the record.
func (r TaskRecord) Waiting() string {
	if r.Run == "" && (r.Status == RunInterrupted || r.Status == RunReturned) {
		return r.Done
	}
	return ""
}

// MaxTriggerArgs is the longest text of arguments, MaxTriggers how many triggers are listed at
// once, and KeptTriggers of how many that were claimed last a record has the IDs.
const (
	MaxTriggerArgs = MaxTaskText
	MaxTriggers    = 1000
	KeptTriggers   = 32
)
