package tenure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// Task is a callback that runs on the leader when its schedule is due. Its slots are kept in Redis:
// the next leader goes on where the last one stopped. The zero value of a field is its default.
type Task struct {
	// Name identifies the task in the namespace: [A-Za-z0-9._-]{1,128}, but not "." or "..".
	Name string
	// Role is the role whose leader runs the task; it must have been added (AddRole). Default: the
	// default role. A task that has run in another role, or with another Anywhere, moves once that
	// role has been led for a minute by a process that does not have the task there, and has not
	// had it in that term. If it was moved by Unregister, Resign that role.
	Role string
	// Anywhere spreads the load of tasks: the name of the task chooses a role, whose leader runs
	// it, and these roles spread over the processes (ElectionOptions.Spread). They are called
	// tasks.1, tasks.2, and so on up to TaskOptions.Shards. A role that no task has is not there.
	// They have the settings of the default role, but for its Lead, LeaderKey, Priority, Preempt
	// and ByInstanceID, and hold what a role promises: one leader, a fencing token, another leader
	// within LeaseTTL of a crash. Each has Health called for itself, several at once. Role must be
	// empty. False: the task runs on the leader of Role.
	Anywhere bool
	// Schedule says when the task is due; OnDemand, that it only runs if it is triggered. If its
	// Identity changes, the next slot is computed anew: for Every in step with the last run.
	Schedule Schedule
	// Run does the work. It must return soon after its context is done: TaskFunc says how soon.
	Run TaskFunc
	// Timeout bounds each attempt, at most 30 days: its context ends then, with an error that
	// matches context.DeadlineExceeded, and what the attempt returns is recorded with "timeout of
	// 5s" before it. Zero: only the end of the term bounds it.
	Timeout time.Duration
	// Jitter is the most by which a slot is delayed. The delay follows from name and slot, so every
	// leader computes the same one. At most 24 h, and less than the interval of Every. With any
	// other schedule it should be less than the time between two slots, or some of them start
	// together.
	Jitter time.Duration
	// InitialDelay sets the first slot of a task that has no record yet, at most 30 days. With
	// Every that slot is InitialDelay after a leader has seen the task for the first time. With any
	// other schedule it is the first slot after that time. Zero: with Every, one interval.
	InitialDelay time.Duration
	// Overlap decides about a slot that is due while the run before it is on. Default OverlapSkip.
	Overlap OverlapPolicy
	// Missed decides about slots that were due while nobody led, or Redis could not be reached.
	// Default MissedRunOnce.
	Missed MissedPolicy
	// Grace is how late a slot may start under MissedSkip, at most 30 days; the jitter comes on
	// top. Zero: a minute, or LeaseTTL + 30 s if that is longer, so that a failover loses nothing.
	Grace time.Duration
	// MaxCatchUp bounds MissedRunAll: if more slots than that were missed at a time, only the
	// latest MaxCatchUp of them run. Default 100, at most 10,000.
	MaxCatchUp int
	// StartingDeadline is how late a slot may start at all, between 1 s and 30 days; the jitter of
	// the slot comes on top. A slot that could not start by then is skipped and counted, whatever
	// Missed and Overlap say: EventTaskSkipped, TaskStatus.Skipped. A run that was left behind is
	// not run again either once its slot, or a run that was triggered, is older than that. Zero:
	// none.
	StartingDeadline time.Duration
	// Group excludes tasks from each other: of those in this process with the same Group one runs
	// at a time. A run is on from its first attempt to its last one, pauses included. What is due
	// meanwhile waits for its turn, in the order in which it came, and Missed decides about the
	// slots that it waits for. Tasks of one role never overlap so; tasks of different roles may,
	// if other processes lead those. [A-Za-z0-9._-]{1,128}. Default: none.
	Group string
	// Abandoned decides about a run whose leader died, or whose term ended before it succeeded.
	// Default AbandonedRerun.
	Abandoned AbandonedPolicy
	// Retry says how often a failed attempt is repeated within its run. Default: never.
	Retry RetryPolicy
	// History is the number of ended runs of this task that are kept, as TaskOptions.History is for
	// all. Zero: that.
	History int
	// RunOnElection runs the task once when a term begins, or when it is registered during one,
	// unless a slot is due then. If three leaders have died of the task in a row, only its next
	// slot runs it again.
	RunOnElection bool
}

// TaskFunc is the work of a task. Its context carries the term (see TermFrom). It is done when the
// timeout has passed or the term ends, but a voluntary end (Resign, the stop of Run) leaves a
// running task up to 3/4 of ShutdownTimeout to finish first. Once the context is done, the task
// must return within max(50 ms, LeaseTTL/50): if the lease was lost, another leader may run the
// task again after that. What takes longer to stop must be fenced by TaskRun.Token. An error or a
// panic is recorded and retried by policy, or as NoRetry and RetryAfter say; it never ends the
// term. Work that was cut off must return an error (ctx.Err() will do): nil means that the slot is
// done, and that it is not run again.
type TaskFunc func(ctx context.Context, run TaskRun) error

// TaskRun says what a TaskFunc runs for.
type TaskRun struct {
	Task string
	// ID identifies the run: the same for all attempts of a leader, and another one if another
	// leader goes on with it.
	ID string
	// Slot is when the task was due, in UTC by Redis's clock: the same for every attempt and rerun.
	// For a run outside the schedule it is when that run began.
	Slot time.Time
	// Attempt counts from 1, retries and reruns alike. It never repeats for one Slot while the
	// record survives, and may pass over a number if a leader died.
	Attempt int
	// Token is the fencing token of the term.
	Token int64
	// Trigger is the ID that TaskScheduler.Trigger has returned, and Args is what it was given: the
	// same for every attempt and rerun. "" and nil for a run that was not triggered. Both come from
	// Redis and are untrusted. Args must not be changed.
	Trigger string
	Args    []string
}

// OverlapPolicy decides about a slot that is due while the run before it is on. A task never
// overlaps itself.
type OverlapPolicy string

// The overlap policies.
const (
	OverlapSkip  OverlapPolicy = "skip"  // the slot is passed over; the default
	OverlapQueue OverlapPolicy = "queue" // one run waits, for the latest such slot, and starts right after
)

// MissedPolicy decides about slots that were due while nobody could run them. Slots that come due
// during the catching up are caught up on as well, as long as the task gets less late by that.
// After that OverlapPolicy decides about them: a task slower than its interval would be late for
// ever.
type MissedPolicy string

// The policies for missed slots.
const (
	MissedRunOnce MissedPolicy = "run_once" // one run for the latest of them; the default
	MissedSkip    MissedPolicy = "skip"     // no run, unless the latest is at most Grace late
	MissedRunAll  MissedPolicy = "run_all"  // one run each, oldest first, at most MaxCatchUp
)

// AbandonedPolicy decides about a run whose end its leader did not report.
type AbandonedPolicy string

// The policies for abandoned runs.
const (
	// AbandonedRerun, the default: the next leader runs the slot again, unless Missed asks for no
	// run by then. MissedSkip asks for none if the next slot is due, or if the run was interrupted
	// longer ago than Grace; MissedRunOnce if two further slots are due. After three leaders in a
	// row have died of the task, the run has failed.
	AbandonedRerun AbandonedPolicy = "rerun"
	AbandonedFail  AbandonedPolicy = "fail" // the run has failed
)

// RetryPolicy says how often a failed attempt is repeated. The run is still on between attempts:
// Overlap applies.
type RetryPolicy struct {
	// Attempts is the number of attempts of a run in all, whoever leads; at most 1000, default 1.
	// An attempt that the end of its leader or of its term cut short does not count.
	Attempts int
	// Backoff is the pause before the second attempt, doubled before each further one. Up to half
	// of it is taken off, at random. A change of the leader does not shorten it. At least 1 ms;
	// default 1 s.
	Backoff time.Duration
	// MaxBackoff is the longest pause, no less than Backoff, at most 30 days. Default 1 min, or
	// Backoff if that is longer.
	MaxBackoff time.Duration
}

// TaskScheduler runs the registered tasks while this process leads. Its methods are safe for
// concurrent use. Those that ask Redis return as soon as their context is done, with its cause
// (context.Cause), though the client may go on with a call. If Redis gives no answer they return
// ErrUnreachable or ErrMisconfigured, and all return ErrMisconfigured for what can be no name of a
// task.
type TaskScheduler struct {
	*roleTasks // of the default role

	asked callGate
	gate  *taskGate // nil: none

	places  *taskPlaces
	permits taskPermits
	homes   *taskHomes

	shards   int                     // roles that tasks with Anywhere are dealt to
	addShard func(name string) error // adds one of them, unless it is there
	readOnly bool                    // of a Control that takes no part: nothing may be registered

	mu      sync.Mutex
	roles   map[string]*roleTasks // of every role
	stopped bool                  // no further task is let in
}

// newTaskScheduler wants the config of the default role.
func newTaskScheduler(c taskConfig) *TaskScheduler {
	s := &TaskScheduler{asked: callGate{most: maxQuestions}, gate: newTaskGate(c.instances), roles: make(map[string]*roleTasks), permits: taskPermits{free: maxAwaited}, homes: &taskHomes{of: make(map[string]*roleTasks)}}
	s.places = newTaskPlaces(c.most)
	s.roleTasks = s.addRole(c)
	return s
}

// addRole makes room for the tasks of a role.
func (s *TaskScheduler) addRole(c taskConfig) *roleTasks {
	r := &roleTasks{
		taskConfig: c, gate: s.gate, places: s.places, permits: &s.permits, homes: s.homes, memory: make(map[string]*schedule.Memory), wake: newWakeup(), names: make(map[string]*registered), problems: make(map[string]error), leaving: make(map[string]chan struct{}),
	}
	r.news.wakeup = r.wake
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roles[c.role] = r
	return r
}

// Register adds a task, before or during Run; from its stop on it returns ErrStopped. Any other
// error has all the task's problems at once and matches ErrMisconfigured. A task should be
// registered by every instance: one that the leader does not know does not run.
func (s *TaskScheduler) Register(t Task) error {
	if s.readOnly {
		return fmt.Errorf("%w: task %.200q: a Control takes no part and would never run it, register it with a Coordinator", ErrMisconfigured, t.Name)
	}
	var c checker
	role := s.of(t.Role)
	if t.Anywhere && t.Role != "" {
		c.refuse("Task.Role", t.Role, "must be empty with Anywhere: the name of the task decides")
	}
	if t.Anywhere {
		role = s.roleTasks // until it is known whether the task is let in
	} else if role == nil || role.absent {
		if t.Role == "" {
			c.refuse("Task.Role", t.Role, "must name a role: with NoDefaultRole there is no default one")
		} else {
			c.refuse("Task.Role", t.Role, "must be a role of this coordinator: add it before, with AddRole")
		}
		role = s.roleTasks
	}
	text := t.complete(&c, &role.schedules, role.grace)
	if t.Run != nil {
		t.Run = wrap(&c, t.Run, s.wraps)
	}
	if err := s.free(&c, t.Name); err != nil {
		return err
	}
	if t.Anywhere {
		name := shard(t.Name, s.shards)
		if err := s.addShard(name); err != nil {
			return err
		}
		role = s.of(name)
	}
	t.Role = role.role
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.freeLocked(&c, t.Name); err != nil { // nobody has taken the name meanwhile
		return err
	}
	role.add(&registered{Task: t, text: text, spec: schedule.Hash(text)})
	return nil
}

// free returns all that is wrong with a task, also that its name is taken; ErrStopped if no further
// task is let in.
func (s *TaskScheduler) free(c *checker, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.freeLocked(c, name)
}

// freeLocked is free for whoever holds the mutex.
func (s *TaskScheduler) freeLocked(c *checker, name string) error {
	switch home := s.homes.get(name); {
	case home == nil:
	case home.find(name) != nil:
		c.refuse("Task.Name", name, "is registered already")
	case home.leaves(name):
		c.refuse("Task.Name", name, "was unregistered, and its last run has not ended")
	}
	if err := c.err(); err != nil {
		return err
	}
	if s.stopped {
		return ErrStopped
	}
	return nil
}

// of returns the tasks of a role, "" being the default one, or nil if there is no such role.
func (s *TaskScheduler) of(role string) *roleTasks {
	if role == "" {
		return s.roleTasks
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roles[role]
}

// home are the tasks of the role that a task is registered for, or those of the default role.
func (s *TaskScheduler) home(name string) (role *roleTasks, registered bool) {
	if role := s.homes.get(name); role != nil && role.find(name) != nil {
		return role, true
	}
	return s.roleTasks, false
}

// all returns the tasks of every role, in the order of their names.
func (s *TaskScheduler) all() []*roleTasks {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Collect(maps.Values(s.roles))
	slices.SortFunc(all, func(a, b *roleTasks) int { return strings.Compare(a.role, b.role) })
	return all
}

// wrap puts the middleware around a task, the first outermost.
func wrap(c *checker, run TaskFunc, wraps []func(TaskFunc) TaskFunc) TaskFunc {
	for i, around := range slices.Backward(wraps) {
		var wrapped TaskFunc
		catch(func() error { wrapped = around(run); return nil }, func(err error) {
			switch {
			case err != nil:
				c.refuse(fmt.Sprintf("Tasks.Middleware[%d]", i), "func", "%v", err)
			case wrapped == nil:
				c.refuse(fmt.Sprintf("Tasks.Middleware[%d]", i), "func", "must return a TaskFunc")
			default:
				run = wrapped
			}
		})
	}
	return run
}

// stop lets no further task in.
func (s *TaskScheduler) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
}

// flush waits for what was left behind, at the latest until the deadline: then it says what still
// runs.
func (s *TaskScheduler) flush(deadline time.Time) error {
	left := []error{s.asked.flush(deadline, questionsLeft)}
	for _, r := range s.all() {
		left = append(left, r.calls.flush(deadline, "a call of the tasks to Redis"), r.schedules.flush(deadline, "a Next of a task's Schedule"))
	}
	return joined(left...)
}

// complete fills in the defaults and checks everything. It returns the text of the schedule.
func (t *Task) complete(c *checker, schedules *inFlight, grace time.Duration) (text string) {
	if !store.RolePattern.MatchString(t.Name) {
		c.refuse("Task.Name", t.Name, "must match %s", store.RolePattern)
	}
	c.segment("Task.Name", t.Name)
	if t.Run == nil {
		c.refuse("Task.Run", nil, "must be a function")
	}
	if t.History > store.MaxHistory {
		c.refuse("Task.History", t.History, "must be at most %d; negative: none", store.MaxHistory)
	}
	if t.Group != "" && !store.RolePattern.MatchString(t.Group) {
		c.refuse("Task.Group", t.Group, "must match %s", store.RolePattern)
	}
	text = checkSchedule(c, t.Schedule, schedules)
	c.between("Task.Timeout", t.Timeout, 0, maxPeriod)
	if c.between("Task.Jitter", t.Jitter, 0, lease.MaxTTL) {
		if steps, ok := t.Schedule.(every); ok && t.Jitter > 0 && t.Jitter >= time.Duration(steps.Every) {
			c.refuse("Task.Jitter", t.Jitter, "must be less than the interval of its schedule, %v", time.Duration(steps.Every))
		}
	}
	c.between("Task.InitialDelay", t.InitialDelay, 0, maxPeriod)
	t.Grace = orDefault(t.Grace, grace)
	c.between("Task.Grace", t.Grace, 0, maxPeriod)
	if t.StartingDeadline != 0 {
		c.between("Task.StartingDeadline", t.StartingDeadline, time.Second, maxPeriod)
	}
	oneOf(c, "Task.Overlap", &t.Overlap, OverlapSkip, OverlapQueue)
	oneOf(c, "Task.Missed", &t.Missed, MissedRunOnce, MissedSkip, MissedRunAll)
	oneOf(c, "Task.Abandoned", &t.Abandoned, AbandonedRerun, AbandonedFail)
	if t.MaxCatchUp == 0 {
		t.MaxCatchUp = schedule.DefaultMaxCatchUp
	}
	if t.MaxCatchUp < 0 || t.MaxCatchUp > schedule.MaxSteps {
		c.refuse("Task.MaxCatchUp", t.MaxCatchUp, "must be between 1 and %d", schedule.MaxSteps)
	}
	r := &t.Retry
	if r.Attempts == 0 {
		r.Attempts = 1
	}
	if r.Attempts < 0 || r.Attempts > 1000 {
		c.refuse("Task.Retry.Attempts", r.Attempts, "must be between 1 and 1000")
	}
	r.Backoff = orDefault(r.Backoff, time.Second)
	r.MaxBackoff = orDefault(r.MaxBackoff, max(time.Minute, r.Backoff))
	if c.between("Task.Retry.Backoff", r.Backoff, time.Millisecond, maxPeriod) {
		c.between("Task.Retry.MaxBackoff", r.MaxBackoff, r.Backoff, maxPeriod)
	}
	return text
}

// checkSchedule refuses what is no schedule, tries one that is the application's own, and returns
// its text.
func checkSchedule(c *checker, s Schedule, schedules *inFlight) (text string) {
	switch s := s.(type) {
	case nil:
		c.refuse("Task.Schedule", nil, "must be a Schedule, such as Every or Cron")
		return ""
	case interface{ problem() string }:
		if problem := s.problem(); problem != "" {
			c.refuse("Task.Schedule", fmt.Sprint(s), "%s", problem)
			return ""
		}
	}
	own, err := askSchedule(schedules, func() (string, error) {
		own := s.Identity()
		if own == "" {
			return "", errors.New("its Identity must not be empty")
		}
		now := time.Now().UTC()
		if next := s.Next(now); !next.IsZero() && !next.After(now) {
			return "", errors.New("its Next must return a time after its argument, or the zero time")
		}
		return own, nil
	})
	if err != nil {
		c.refuse("Task.Schedule", fmt.Sprintf("%T", s), "%v", err)
	}
	return own
}

// askSchedule asks a schedule that may be the application's: it may hang or panic.
func askSchedule[T any](schedules *inFlight, question func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	var value T
	schedules.begin()
	go catch(func() (err error) { // ends with the call; waited for below, or counted in schedules
		value, err = question()
		return err
	}, func(err error) {
		schedules.end()
		answers <- answer{value, err}
	})
	bound := time.NewTimer(nextBound)
	defer bound.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-bound.C:
		var none T
		return none, fmt.Errorf("its methods have not returned within %v", nextBound)
	}
}
