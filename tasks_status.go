package tenure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// RunState is the state of a run.
type RunState string

// The states of a run.
const (
	RunRunning     RunState = "running"     // claimed and not ended; or its leader died and no other has led since
	RunSucceeded   RunState = "succeeded"   //
	RunFailed      RunState = "failed"      // its last attempt had an error or a panic
	RunInterrupted RunState = "interrupted" // its term ended first: it is run again
	RunAbandoned   RunState = "abandoned"   // its leader did not report its end, or interrupted it and it is not run again
	RunCanceled    RunState = "canceled"    // ended by Cancel
)

// RunRecord is one run of a task. Its texts come from Redis and are untrusted; its times are by
// Redis's clock, in UTC.
type RunRecord struct {
	Task       string    `json:"task"`
	ID         string    `json:"id"` // TaskRun.ID
	Slot       time.Time `json:"slot,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Finished   time.Time `json:"finished,omitzero"` // zero: not yet
	State      RunState  `json:"state"`
	Attempt    int       `json:"attempt"`
	Token      int64     `json:"token"`
	InstanceID string    `json:"instance_id"`
	Error      string    `json:"error"` // its beginning: at most 120 bytes in a history, 1 KiB as the last run of a task
	// Trigger is the ID of the trigger that the run is of; "": it was not triggered.
	Trigger string `json:"trigger,omitempty"`
}

// TaskStatus is the state of a task, by its record in Redis.
type TaskStatus struct {
	Name string `json:"name"`
	// Known reports whether this process has registered the task. If not, it is an orphan, of which
	// there is only a record.
	Known bool `json:"known"`
	// Role is the role whose leader runs it. "" is the default role, or not known. If this process
	// has not registered the task, it is by the record.
	Role string `json:"role"`
	// Schedule is the Identity of its schedule here. If this process has not registered the task,
	// it is that of the leader which last took the task over, from Redis: untrusted. "" if it is
	// not known.
	Schedule string `json:"schedule"`
	// Next is the next slot; zero: there is none, or no leader has seen the task yet. One in the
	// past waits for a leader.
	Next time.Time `json:"next,omitzero"`
	// Overdue reports whether that slot, with its jitter, has been due for more than a minute by
	// Redis's clock and the task is not paused: nobody leads, Redis cannot be reached, no leader
	// has registered the task, it stands still (Err), or it is late. It may be late because missed
	// slots are caught up on, or because the run before holds it up (OverlapQueue).
	Overdue bool `json:"overdue"`
	// Held reports that no run starts, because fewer than TaskOptions.MinInstances are active. Only
	// the process that leads knows it: false anywhere else.
	Held bool `json:"held,omitempty"`
	// Paused reports whether slots pass without a run.
	Paused bool `json:"paused"`
	// Pause says who paused it, and why.
	Pause TaskPause `json:"pause,omitzero"`
	// Running reports whether a run is on, or was when its leader died.
	Running bool `json:"running"`
	// Trigger is the ID of the trigger that waits to be run; "": none does.
	Trigger string `json:"trigger,omitempty"`
	// Last is the last run; zero: it never ran.
	Last RunRecord `json:"last,omitzero"`
	// LastSuccess is when a run last succeeded; zero: none has since the record was made.
	LastSuccess time.Time `json:"last_success,omitzero"`
	// Failures counts the runs since then that have failed for good, or were abandoned.
	Failures int `json:"failures"`
	// Skipped counts the slots that were passed over by policy.
	Skipped int64 `json:"skipped"`
	// Token is the fencing token of the last leader that took the task over.
	Token int64 `json:"token"`
	// Err says why the record could not be read. In the process that leads it also says why the
	// task stands still, until it goes on. The other tasks are not affected.
	Err error `json:"-"`
}

// TaskPause says who paused a task, when and why. The texts come from Redis and are untrusted.
type TaskPause struct {
	By     string    `json:"by"` // the instance that called Pause, or ControlOptions.By; "": not known
	Reason string    `json:"reason"`
	At     time.Time `json:"at,omitzero"` // by Redis's clock, in UTC
}

const (
	maxTasks = 1000    // that List lists, of those that are not registered
	maxNamed = 100_000 // that ListNamed lists
)

// List lists the registered tasks and the orphans, by name. It asks Redis, in a few round trips,
// and works on any instance. With ErrTruncated the list is of the registered tasks and the first
// 1000 others: ListNamed lists more.
func (s *TaskScheduler) List(ctx context.Context) ([]TaskStatus, error) {
	here := s.knownHere()
	names, more, err := s.names(ctx, maxTasks+len(here)) // which may come first
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return here[name] != nil })
	if len(names) > maxTasks {
		names, more = names[:maxTasks], true
	}
	names = slices.AppendSeq(names, maps.Keys(here))
	slices.Sort(names)
	list, err := s.statuses(ctx, names, here)
	if err == nil && more {
		err = fmt.Errorf("%w: more than %d tasks", ErrTruncated, maxTasks)
	}
	return list, err
}

// ListNamed lists the tasks whose names begin with prefix as List does, registered or not, but at
// most limit of them, the first ones by name, and at most 100,000. Prefix "" is any name; limit 0
// or less: none. It asks Redis once for each 500 tasks that there are, and once for each 100 that
// are listed. With ErrTruncated there are more.
func (s *TaskScheduler) ListNamed(ctx context.Context, prefix string, limit int) ([]TaskStatus, error) {
	if limit = min(limit, maxNamed); limit <= 0 {
		return nil, nil
	}
	here := s.knownHere()
	names, more, err := s.names(ctx, maxNamed)
	if err != nil {
		return nil, err
	}
	names = slices.AppendSeq(names, maps.Keys(here))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > limit {
		names, more = names[:limit], true
	}
	list, err := s.statuses(ctx, names, here)
	if err == nil && more {
		err = fmt.Errorf("%w: more than %d tasks", ErrTruncated, len(names))
	}
	return list, err
}

// knownHere are the tasks that are registered here, by name.
func (s *TaskScheduler) knownHere() map[string]*registered {
	here := make(map[string]*registered)
	for _, role := range s.all() {
		for _, r := range role.known() {
			here[r.Name] = r
		}
	}
	return here
}

// names are those of at most so many tasks that have a record, in no order.
func (s *TaskScheduler) names(ctx context.Context, most int) (names []string, more bool, err error) {
	type answer struct { // of its own: a call that is left behind goes on to write to it
		names []string
		more  bool
	}
	found, err := ask(ctx, &s.asked, func(ctx context.Context) (a answer, err error) {
		a.names, a.more, err = s.store.Names(ctx, most)
		return a, err
	})
	return found.names, found.more, err
}

// statuses reads the records of tasks.
func (s *TaskScheduler) statuses(ctx context.Context, names []string, here map[string]*registered) ([]TaskStatus, error) {
	var problems []error
	var now int64
	records, err := ask(ctx, &s.asked, func(ctx context.Context) (records []store.TaskRecord, err error) {
		now, records, problems, err = s.store.Records(ctx, names)
		return records, err
	})
	if err != nil {
		return nil, err
	}
	list := make([]TaskStatus, len(names))
	for i, name := range names {
		r := records[i]
		list[i] = TaskStatus{
			Name: name, Schedule: r.Schedule, Next: store.Time(r.Next), Overdue: overdue(r, now), Paused: r.Paused,
			Pause: pauseOf(r), Running: r.Run != "", Last: lastRun(name, r), Trigger: r.TriggerID(), LastSuccess: store.Time(r.LastSuccess), Failures: r.FailedRuns, Skipped: r.Skipped,
			Token: r.Token, Role: roleOfLease(s.namespace, r.Lease), Err: problems[i],
		}
		if task, known := here[name]; known {
			list[i].Known, list[i].Role, list[i].Schedule = true, task.Role, task.text
			home := s.of(task.Role)
			list[i].Held, list[i].Err = home.leads.Load() && home.gate.holds(), cmp.Or(problems[i], home.problem(name))
		}
	}
	return list, nil
}

// roleOfLease is the role that a lease of the namespace is of; "": the default one, or not known.
func roleOfLease(namespace, key string) string {
	role, named := strings.CutPrefix(key, store.Keys(namespace).Lease("")+":")
	if !named || !store.IsRole(role) {
		return ""
	}
	return role
}

// overdue reports whether the next slot has been due for more than a minute.
func overdue(r store.TaskRecord, now int64) bool {
	return r.Next != 0 && !r.Paused && now-r.Next > time.Minute.Milliseconds()+min(r.Jitter, lease.MaxTTL.Milliseconds())
}

// maxUpcoming is how many slots are listed at once.
const maxUpcoming = 1000

// Upcoming returns the next n slots of a task, at most 1000, without their jitter: from
// TaskStatus.Next on. If that lies in the past, others may too: Task.Missed decides which of them
// run. If this process has not registered the task, or with another schedule, it works for Every
// and Cron; of any other schedule only the first slot is known. It asks Redis. There is none while
// no leader has seen the task, and after the end of its schedule. ErrNotFound: the task has no
// record, and this process has not registered it. ErrMisconfigured: its Schedule fails.
func (s *TaskScheduler) Upcoming(ctx context.Context, name string, n int) ([]time.Time, error) {
	if err := checkTask(name); err != nil || n <= 0 {
		return nil, err
	}
	var problems []error
	records, err := ask(ctx, &s.asked, func(ctx context.Context) (records []store.TaskRecord, err error) {
		_, records, problems, err = s.store.Records(ctx, []string{name})
		return records, err
	})
	if err == nil {
		err = problems[0]
	}
	if err != nil {
		return nil, err
	}
	r := records[0]
	role, _ := s.home(name)
	task := role.find(name)
	switch {
	case r.Token == 0 && r.Due == "" && task == nil:
		return nil, fmt.Errorf("%w: task %q has no record", ErrNotFound, name)
	case r.Next == 0:
		return nil, nil
	}
	var of Schedule
	switch text := r.Schedule; {
	case task != nil && r.Follows(task.spec):
		of = task.Schedule
	case r.Follows(schedule.Hash(text)):
		of = scheduleOf(text)
	}
	slots, err := askSchedule(&role.schedules, func() ([]time.Time, error) { return slotsFrom(of, store.Time(r.Next), min(n, maxUpcoming)), nil })
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %q: %w", ErrMisconfigured, r.Schedule, err)
	}
	return slots, nil
}

// slotsFrom are n slots of a schedule from one on; only that one if the schedule is not known.
func slotsFrom(s Schedule, slot time.Time, n int) []time.Time {
	slots := []time.Time{slot}
	for len(slots) < n && s != nil {
		next := schedule.Following(s, slot)
		if next.IsZero() {
			break
		}
		slots, slot = append(slots, next), next
	}
	return slots
}

// lastRun is the last run of a record.
func lastRun(name string, r store.TaskRecord) RunRecord {
	if r.Status == "" {
		return RunRecord{}
	}
	run := RunRecord{
		Task: name, ID: r.Run, Slot: store.Time(r.Scheduled), Started: store.Time(r.Started), State: RunState(r.Status), Attempt: r.Attempt,
		Token: r.RunToken, InstanceID: r.Instance, Trigger: r.RunTrigger,
	}
	if r.Status == store.RunReturned {
		run.State = RunInterrupted
	}
	if r.Run == "" {
		run.ID, run.Finished, run.Error = r.Done, store.Time(r.Finished), r.Text
	}
	return run
}

// Runs returns the last runs of a task that have ended, newest first: at most limit of those that
// are kept (TaskOptions.History); of 0 or less, none. A task without any, or without a record, has
// none.
func (s *TaskScheduler) Runs(ctx context.Context, name string, limit int) ([]RunRecord, error) {
	if err := checkTask(name); err != nil || limit <= 0 {
		return nil, err
	}
	runs, err := ask(ctx, &s.asked, func(ctx context.Context) ([]store.Run, error) { return s.store.Runs(ctx, name, limit) })
	if err != nil {
		return nil, err
	}
	records := make([]RunRecord, len(runs))
	for i, r := range runs {
		records[i] = RunRecord{
			Task: name, ID: r.Run, Slot: r.Slot, Started: r.Started, Finished: r.Finished, State: RunState(r.Status), Attempt: r.Attempt,
			Token: r.Token, InstanceID: r.InstanceID, Error: r.Error, Trigger: r.Trigger,
		}
	}
	return records, nil
}

// Pause lets the slots of a task pass without a run, until Resume. A run that is on goes on, and
// one that is to be run again waits. Pause works on any instance, and for orphans. TaskStatus.Pause
// shows this instance and the reason, which must be valid UTF-8 of at most 256 bytes without
// control characters; "" says none. Pausing a paused task again changes who and why. A request that
// failed here but reaches Redis late changes nothing once a later Pause or Resume was made. The
// leader keeps a Pause that it has seen even if the record is lost. ErrNotFound: the task has no
// record.
func (s *TaskScheduler) Pause(ctx context.Context, name, reason string) error {
	return s.pauseBy(ctx, name, s.id, reason)
}

// pauseBy is Pause on behalf of somebody.
func (s *TaskScheduler) pauseBy(ctx context.Context, name, by, reason string) error {
	if len(reason) > maxReason || !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl) {
		return fmt.Errorf("%w: reason %.300q: must be valid UTF-8 of at most %d bytes without control characters", ErrMisconfigured, reason, maxReason)
	}
	return s.pause(ctx, name, true, pauseText(by, reason))
}

// Resume ends a Pause. The slots of the pause are not run, also if nobody led meanwhile; of two
// pauses within which no leader has looked at the task, this holds for the later one. Slots that
// were missed before the pause, or are after it, are for Task.Missed to decide about.
func (s *TaskScheduler) Resume(ctx context.Context, name string) error {
	return s.pause(ctx, name, false, "")
}

func (s *TaskScheduler) pause(ctx context.Context, name string, paused bool, why string) error {
	if err := checkTask(name); err != nil {
		return err
	}
	const tries = 10
	reply, err := ask(ctx, &s.asked, func(ctx context.Context) (store.TaskReply, error) {
		for try := 1; ; try++ { // somebody else may pause or resume it at the same time
			read, err := s.store.Record(ctx, name)
			if err != nil {
				return read, err
			}
			reply, err := s.store.Pause(ctx, name, paused, read.Record.Pauses, why)
			if err != nil || reply.Verdict != store.TaskMoved || try == tries {
				return reply, err
			}
		}
	})
	switch {
	case err != nil:
		return err
	case reply.Verdict == store.TaskAbsent:
		return fmt.Errorf("%w: task %q has no record", ErrNotFound, name)
	case reply.Verdict == store.TaskMoved:
		return fmt.Errorf("%w: task %q is paused and resumed by others all the time", ErrUnreachable, name)
	}
	return nil
}

// maxReason is the length of the longest reason, in bytes.
const maxReason = 256

// pauseText is how it is kept who paused a task and why.
func pauseText(by, reason string) string {
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	why := struct {
		By     string `json:"by"`
		Reason string `json:"reason"`
	}{by, reason}
	if err := e.Encode(why); err != nil { // never: they are texts
		return ""
	}
	return strings.TrimSpace(text.String())
}

// pauseOf reads it back. What is no such text was not written by Pause: only that there is a pause
// is known then.
func pauseOf(r store.TaskRecord) (p TaskPause) {
	since, why, _ := strings.Cut(r.Pause, " ")
	if !r.Paused || json.Unmarshal([]byte(why), &p) != nil {
		return TaskPause{}
	}
	p.At = store.Time(store.Natural(since))
	return p
}

// stands notes what keeps the loop from going on with a task; nil: nothing.
func (s *roleTasks) stands(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.problems, name)
		return
	}
	s.problems[name] = err
}

// forget drops all of that: this process does not lead any more.
func (s *roleTasks) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.problems)
}

func (s *roleTasks) problem(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problems[name]
}

func checkTask(name string) error {
	if !store.RolePattern.MatchString(name) {
		return fmt.Errorf("%w: task %.200q: a name must match %s", ErrMisconfigured, name, store.RolePattern)
	}
	return nil
}
