package telemetry

import (
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/hook"
)

// readBound bounds what a reader of metrics waits for Redis. The metrics that do not need Redis are
// there in any case.
const readBound = 2 * time.Second

// maxReaders is how many histories are read at once. A process may begin to lead thousands of roles
// at one moment, and its elections use the same client.
const maxReaders = 4

// maxGone is how many tasks that are not registered any more wait for a collection of what they
// counted last. A service may name its tasks anew for as long as it lives, and nobody may collect.
const maxGone = 10_000

// Sink takes the values of histograms. It must not block, and is called by many goroutines.
type Sink interface {
	Record(m *Metric, value float64, labels ...string)
	// Forget ends the series of a task, if that can be: its process has unregistered it.
	Forget(task string)
}

// Emit takes a value of a gauge or a counter; the labels are those of Metric.Labels, in their
// order.
type Emit func(m *Metric, value float64, labels ...string)

// Source watches one coordinator. It is safe for concurrent use.
type Source struct {
	c    *tenure.Coordinator
	sink Sink
	stop []func()

	mu       sync.Mutex
	counters map[series]float64
	tasks    map[string]bool       // those that have series, and whether all that they count was collected
	room     int                   // for how many tasks; then those that are gone are looked for
	unled    map[string]gap        // by role: nobody is known to lead
	timed    map[string]attempt    // by task: the last attempt that failed and was timed
	hung     map[string]attempt    // by task: the attempt that is on and was counted as one that hangs
	counts   *tenure.Counts        // the last that this process has counted as leader
	unread   map[string]bool       // roles whose election was refused INFO
	refused  time.Time             // when a call was last refused a right
	steps    map[stepper]time.Time // of Redis's clock: when each has last seen one
	stepAt   time.Time             // when the last one was counted
	unbeaten bool                  // the last heartbeat had no usable answer
	beaten   time.Time             // when Redis last took a heartbeat
	held     int
	heldTill time.Time
	began    map[string]int64 // by role: the token of a term of ours of which it is not known how long nobody had led before
	readers  int              // goroutines that read that from the history
	reading  sync.WaitGroup   // likewise
	closed   bool
}

// series is one series of a counter. Labels are joined by a byte that no name has.
type series struct {
	metric *Metric
	labels string
}

const between = "\x00"

// attempt is one attempt of a task.
type attempt struct {
	slot, token int64
	number      int
}

func attemptOf(e tenure.Event) attempt { return attempt{e.Slot.UnixMilli(), e.Token, e.Attempt} }

// Watch begins to watch a coordinator. Close ends it.
func Watch(c *tenure.Coordinator, sink Sink) *Source {
	s := &Source{c: c, sink: sink, counters: make(map[series]float64), tasks: make(map[string]bool), room: maxGone, unled: make(map[string]gap), timed: make(map[string]attempt), hung: make(map[string]attempt), began: make(map[string]int64), unread: make(map[string]bool), steps: make(map[stepper]time.Time), beaten: time.Now()}
	s.stop = []func(){c.Observe(s.event), c.ObserveCalls(s.call)}
	return s
}

// Close ends the watch, and waits for what still reads from Redis.
func (s *Source) Close() {
	for _, stop := range s.stop {
		stop()
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.reading.Wait()
}

// add adds to a counter.
func (s *Source) add(m *Metric, value float64, labels ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters[series{m, strings.Join(labels, between)}] += value
}

func (s *Source) call(c tenure.Call) {
	if c.Dropped > 0 {
		s.add(EventsDropped, float64(c.Dropped))
	}
	s.sink.Record(RedisCall, c.Took.Seconds(), c.Name)
	failed := 0.0 // a series is there before the first failure
	if c.Err != nil {
		failed = 1
	}
	s.add(RedisCallErrors, failed, c.Name)
	if c.Name != "send_command" { // which the user of a service need not do
		s.noteRefusal(c.Err)
	}
	if c.Name == "beat" {
		s.mu.Lock()
		if s.unbeaten = c.Err != nil; !s.unbeaten {
			s.beaten = time.Now()
		}
		s.mu.Unlock()
	}
	if c.Name == "renew" && c.Margin > 0 {
		s.sink.Record(RenewSafety, c.Margin.Seconds(), RoleLabel(c.Role))
	}
}

// noteRefusal notes that Redis refused a right, if an error says so.
func (s *Source) noteRefusal(err error) {
	if !lacksRight(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = time.Now()
}

// refusalCounts is for how long a right counts as missing after a call was refused it. Some need it
// seldom, and work when they are made again; an alert on it waits for five minutes.
const refusalCounts = 8 * time.Minute

// DefaultRole is the value of the label role for the default role.
const DefaultRole = "default"

// RoleLabel is the value of the label for a role. It depends on nothing but the name, since a role
// may come while the process runs. Of a role that has the name of the default one it is none that a
// role can have.
func RoleLabel(name string) string {
	switch name {
	case "":
		return DefaultRole
	case DefaultRole:
		return "role:" + DefaultRole
	}
	return name
}

// event counts what an event says.
func (s *Source) event(e tenure.Event) {
	if e.Dropped > 0 {
		s.add(EventsDropped, float64(e.Dropped))
	}
	switch e.Type {
	case tenure.EventElectionStarted:
		s.lead(e.Role, "", e.Time)
	case tenure.EventLeaderChanged:
		s.lead(e.Role, e.Subject, e.Time)
	case tenure.EventTermBegan:
		s.lead(e.Role, e.InstanceID, e.Time)
		s.tookOver(e)
	case tenure.EventTermEnded:
		s.add(LeadershipChanges, 1, RoleLabel(e.Role), e.Reason)
		if e.Role == s.c.Elector().Role() {
			s.mu.Lock()
			s.counts, s.held = nil, 0
			s.mu.Unlock()
		}
	case tenure.EventHistoryUnread:
		s.mu.Lock()
		s.unread[e.Role] = true
		s.mu.Unlock()
	case tenure.EventRedisClockStepped:
		s.stepped(stepper{e.Role, e.Token != 0}, e.Time)
	case tenure.EventClusterChanged:
		s.mu.Lock()
		s.counts = e.Counts
		s.mu.Unlock()
	case tenure.EventInstanceDown:
		if !e.Remote {
			s.add(InstancesRemoved, 1)
		}
	case tenure.EventSweepHeld:
		s.mu.Lock()
		s.held, s.heldTill = e.Count, e.Time.Add(s.c.Options().Registry.DownAfter)
		s.mu.Unlock()
	default:
		s.taskEvent(e)
	}
}

func (s *Source) taskEvent(e tenure.Event) {
	defer s.counted(e.Task)
	switch e.Type {
	case tenure.EventTaskStarted:
		s.mu.Lock()
		delete(s.hung, e.Task)
		s.mu.Unlock()
		if e.Attempt == 1 && e.Trigger == "" && !e.Slot.IsZero() {
			s.sink.Record(TaskLateness, e.Took.Seconds(), e.Task)
		}
	case tenure.EventTaskFinished, tenure.EventTaskFailed, tenure.EventTaskInterrupted:
		s.add(TaskRuns, 1, e.Task, string(e.State))
		s.took(e)
	case tenure.EventTaskCanceled:
		s.add(TaskRuns, 1, e.Task, string(tenure.RunCanceled))
		s.took(e)
	case tenure.EventTaskAttemptFailed:
		s.add(TaskRetries, 1, e.Task)
		s.took(e)
		s.mu.Lock()
		s.timed[e.Task] = attemptOf(e)
		s.mu.Unlock()
	case tenure.EventTaskSkipped:
		s.add(TaskSkipped, float64(e.Count), e.Task)
	case tenure.EventTaskSlow, tenure.EventWorkOverrun:
		s.overran(e)
	}
}

// stepper is what sees that Redis's clock was set: each election by itself, and the tasks of the
// term that is on.
type stepper struct {
	role  string
	tasks bool
}

// stepped counts a step of Redis's clock once, however many see it: each does within a lease of its
// role. It is another one if who sees it has seen the last one, too.
func (s *Source) stepped(by stepper, at time.Time) {
	within := s.c.Options().Election.LeaseTTL
	if e, known := s.c.Role(by.role); known {
		within = e.Guarantees().LeaseTTL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, before := s.steps[by]
	if s.steps[by] = at; before && !seen.Before(s.stepAt) || at.Sub(s.stepAt) > within {
		s.counters[series{ClockSteps, ""}]++
		s.stepAt = at
	}
}

// counted notes that a task has counts which were not collected yet.
func (s *Source) counted(task string) {
	if task == "" {
		return
	}
	s.mu.Lock()
	s.tasks[task] = false
	full := len(s.tasks) > s.room
	s.mu.Unlock()
	if full {
		s.makeRoom(hook.TaskNames(s.c))
	}
}

// makeRoom ends the series of all tasks that are not registered any more, collected or not.
func (s *Source) makeRoom(registered []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = len(registered) + maxGone
	ends := make(map[string]bool)
	for name := range s.tasks {
		ends[name] = true
	}
	for _, name := range registered {
		delete(ends, name)
	}
	s.end(ends)
}

// overran counts an attempt that hangs, once: it may be slow first, and then ignore its context.
func (s *Source) overran(e tenure.Event) {
	s.mu.Lock()
	counted, known := s.hung[e.Task]
	again := known && counted == attemptOf(e)
	s.hung[e.Task] = attemptOf(e)
	s.mu.Unlock()
	if e.Task != "" && !again {
		s.add(TaskOverrun, 1, e.Task)
	}
}

// hangs reports whether the attempt that a run is at was counted as one that hangs.
func (s *Source) hangs(run tenure.RunRecord) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted, known := s.hung[run.Task]
	return known && counted == attempt{run.Slot.UnixMilli(), run.Token, run.Attempt}
}

// took records how long an attempt took, once: the end of a run between two attempts names the one
// before again.
func (s *Source) took(e tenure.Event) {
	s.mu.Lock()
	again := s.timed[e.Task] == attemptOf(e)
	delete(s.timed, e.Task)
	s.mu.Unlock()
	if e.Took > 0 && !again { // a run that was abandoned elsewhere was not timed here
		s.sink.Record(TaskDuration, e.Took.Seconds(), e.Task)
	}
}

// gap is a time in which nobody is known to lead a role.
type gap struct {
	since time.Time // it was counted until then
	led   bool      // somebody led by then: the event that says so is on its way, or was dropped
}

// lead notes who leads a role; "" is nobody.
func (s *Source) lead(role, leader string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, unled := s.unled[role]
	switch {
	case leader == "" && (!unled || last.led):
		s.unled[role] = gap{since: at}
	case leader != "" && unled:
		delete(s.unled, role)
		if !last.led {
			s.counters[series{Unowned, role}] += max(at.Sub(last.since).Seconds(), 0)
		}
	}
}

// tookOver has it recorded for how long nobody had led before a term of ours.
func (s *Source) tookOver(e tenure.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.began[e.Role] = e.Token
	if s.readers < maxReaders {
		s.readers++
		s.reading.Go(s.readHistories) // ends within readBound of Close, which waits for it
	}
}

// readHistories looks into the history of each role of which a term of ours has begun.
func (s *Source) readHistories() {
	for {
		role, token, more := s.nextHistory()
		if !more {
			return
		}
		s.readHistory(role, token)
	}
}

// nextHistory takes one of these roles out. If there is none the goroutine that asks ends.
func (s *Source) nextHistory() (role string, token int64, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		for role, token := range s.began {
			delete(s.began, role)
			return role, token, true
		}
	}
	s.readers--
	return "", 0, false
}

// readHistory records for how long nobody had led before a term, which the history in Redis says.
func (s *Source) readHistory(role string, token int64) {
	elector, known := s.c.Role(role)
	if !known {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readBound)
	defer cancel()
	terms, err := elector.Terms(ctx, 2)
	if err != nil {
		return
	}
	for i, term := range terms {
		if term.Token != token || i+1 == len(terms) {
			continue
		}
		if ended := terms[i+1].Ended; !ended.IsZero() && !term.Began.Before(ended) { // at one instant: within one millisecond of Redis's clock
			s.sink.Record(Failover, term.Gap.Seconds(), RoleLabel(role))
		}
	}
}

// module is the path of the root module.
const module = "github.com/tenure-go/tenure"

// version is that of tenure in this program; "(devel)" in its own repository.
var version = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module && dep.Replace == nil && dep.Version != "" {
				return dep.Version
			}
		}
	}
	return "(devel)"
})
