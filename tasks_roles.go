package tenure

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// roleTasks are the tasks that the leader of one role runs.
type roleTasks struct {
	taskConfig

	gate    *taskGate // nil: none
	places  *taskPlaces
	permits *taskPermits
	leads   atomic.Bool                 // this process leads the role
	memory  map[string]*schedule.Memory // by name; belongs to the loop

	wake  wakeup // the loop looks for news
	news  mailbox[taskNews]
	calls inFlight // to the store, abandoned ones of earlier terms included

	schedules inFlight // of the application's, that are being asked, hung ones of earlier terms included

	// What stuck looks at: whether the loop is at work, and since when.
	working atomic.Bool
	since   atomic.Int64

	homes *taskHomes // shared by all roles

	mu      sync.Mutex
	names   map[string]*registered   // the tasks, by name
	count   int                      // of those that were ever let in
	looping bool                     // a loop runs them
	changed []string                 // names that the loop is to look at, see changes; none while there is no loop
	added   func()                   // hears that a task was let in; must not block, may be nil
	leaving map[string]chan struct{} // by name: unregistered, and still with the loop; closed when it is not

	problems map[string]error // by name: what keeps the loop from going on with a task; empty while this process does not lead
}

// taskNews is what the loop of a role is to look at.
type taskNews struct {
	names  map[string]bool // their records have changed
	missed bool            // hints may have been missed
}

// taskHomes says which role has the task of a name: it is registered there, or was unregistered and
// is still with the loop. There may be thousands of roles: a name is looked up without looking at
// each of them.
type taskHomes struct {
	mu sync.Mutex
	of map[string]*roleTasks
}

// get returns nil if no role has it.
func (h *taskHomes) get(name string) *roleTasks {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.of[name]
}

func (h *taskHomes) set(name string, role *roleTasks) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of[name] = role
}

func (h *taskHomes) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of, name)
}

// registered is a task with its defaults filled in. It never changes, but for inUse.
type registered struct {
	Task
	text string // of the schedule
	spec string // its hash
	nth  int    // in the order of registration

	inUse atomic.Bool // a question to the schedule has not been answered, maybe one of an earlier term
}

// The names of the policies in package schedule, which applies them.
var (
	overlapRules = map[OverlapPolicy]schedule.Overlap{OverlapSkip: schedule.OverlapSkip, OverlapQueue: schedule.OverlapQueue}
	missedRules  = map[MissedPolicy]schedule.Missed{
		MissedRunOnce: schedule.RunOnce, MissedSkip: schedule.SkipMissed, MissedRunAll: schedule.RunAll,
	}
	abandonedRules = map[AbandonedPolicy]schedule.Abandoned{AbandonedRerun: schedule.AbandonedRerun, AbandonedFail: schedule.AbandonedFail}
)

// policy is the task as the decisions of package schedule see it.
func (r *registered) policy() schedule.Policy {
	return schedule.Policy{
		Name: r.Name, Spec: r.spec, Text: store.TaskText(r.text), Schedule: r.Schedule, Missed: missedRules[r.Missed], MaxCatchUp: r.MaxCatchUp, Grace: r.Grace, StartingDeadline: r.StartingDeadline,
		Jitter: r.Jitter, InitialDelay: r.InitialDelay, Overlap: overlapRules[r.Overlap], Abandoned: abandonedRules[r.Abandoned],
		RunOnElection: r.RunOnElection, Attempts: r.Retry.Attempts, Backoff: r.Retry.Backoff, MaxBackoff: r.Retry.MaxBackoff,
	}
}

// taskConfig is what the tasks of a role go by. It never changes.
type taskConfig struct {
	namespace string
	role      string
	absent    bool // this process has no such role: nothing may be registered for it
	store     store.Tasks
	bus       *eventBus
	id        string         // of this instance
	lease     string         // key of the lease whose leader runs the tasks; "": there is only one
	secret    func() string  // draws the IDs of runs
	random    func() float64 // draws what is taken off a backoff
	grace     time.Duration  // of a task that names none
	patience  time.Duration  // a run that goes on for so long after the end of its context is reported
	keep      store.Keep     // of the runs that have ended, unless a task says otherwise
	keepFor   time.Duration  // after the last of them; 0: for ever
	most      int            // runs that may be on at once; 0: any number
	instances int            // that must be active for a run to start; 0: however few
	wraps     []func(TaskFunc) TaskFunc
}

// taskConfig is that of the tasks that the leader of the role in o.Election runs.
func (o Options) taskConfig(tasks store.Tasks, bus *eventBus) taskConfig {
	return taskConfig{
		namespace: o.Namespace,
		role:      o.Election.Role,
		store:     tasks,
		bus:       bus,
		id:        o.InstanceID,
		lease:     o.Election.leaseKey(o.Namespace),
		secret:    o.secret,
		random:    o.random,
		grace:     max(schedule.DefaultGrace, o.Election.LeaseTTL+30*time.Second),
		patience:  overrunPatience(o.ShutdownTimeout),
		keep:      store.Keep(o.Tasks.History),
		keepFor:   o.Tasks.HistoryExpiry,
		instances: o.Tasks.MinInstances,
		most:      o.Tasks.MaxConcurrent,
		wraps:     o.Tasks.Middleware,
	}
}

// keeps is how many runs of a task are kept.
func (s *roleTasks) keeps(task *registered) store.Keep {
	if task == nil || task.History == 0 {
		return s.keep
	}
	return store.Keep(task.History)
}

// add lets a task in.
func (s *roleTasks) add(r *registered) {
	s.mu.Lock()
	r.nth = s.count
	s.count++
	s.names[r.Name] = r
	s.homes.set(r.Name, s)
	s.change(r.Name)
	added := s.added
	s.mu.Unlock()
	s.wake.nudge()
	if added != nil {
		added()
	}
}

// whenAdded has added called whenever a task was let in from now on.
func (s *roleTasks) whenAdded(added func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added = added
}

// any reports whether there are tasks. Without one runTerm has nothing to do.
func (s *roleTasks) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.names) > 0
}

// find returns the task of that name; nil: there is none.
func (s *roleTasks) find(name string) *registered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[name]
}

// maxMemories is how many memories of tasks are kept that are not registered any more.
const maxMemories = 1000

// ran is the memory of a task. Only the loop calls it. If too many are of tasks that were
// unregistered, all of those are dropped: such a task is then one that has never run here.
func (s *roleTasks) ran(name string) *schedule.Memory {
	m := s.memory[name]
	if m == nil {
		s.mu.Lock()
		if len(s.memory) >= len(s.names)+maxMemories {
			maps.DeleteFunc(s.memory, func(name string, _ *schedule.Memory) bool { return s.names[name] == nil })
		}
		s.mu.Unlock()
		m = new(schedule.Memory)
		s.memory[name] = m
	}
	return m
}

// known are the tasks registered so far, in the order of registration.
func (s *roleTasks) known() []*registered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inOrder()
}

// inOrder is known for whoever holds the mutex.
func (s *roleTasks) inOrder() []*registered {
	return slices.SortedFunc(maps.Values(s.names), func(a, b *registered) int { return cmp.Compare(a.nth, b.nth) })
}

// stuck returns an error if the loop makes no progress, which nothing that it waits for can cause:
// it is a defect of this package. It does not block, and there is none if the loop does not run.
func (s *roleTasks) stuck() error {
	if !s.working.Load() {
		return nil
	}
	if stuck := readClock().Mono - time.Duration(s.since.Load()); stuck > hungAfter {
		return fmt.Errorf("the scheduler has made no progress for %v", stuck)
	}
	return nil
}

// hungAfter is how long one turn of the loop may take.
const hungAfter = 10 * time.Second

// remove takes a task out. ended is closed when the loop has let it go; nil: no loop has it.
func (s *roleTasks) remove(name string) (ended <-chan struct{}, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[name] == nil {
		return nil, false
	}
	delete(s.names, name)
	if !s.looping {
		s.homes.forget(name)
		return nil, true
	}
	s.leaving[name] = make(chan struct{})
	s.change(name)
	s.wake.nudge()
	return s.leaving[name], true
}

// replace puts a task in the place of another one of its name, if that is still there.
func (s *roleTasks) replace(was, r *registered) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[r.Name] != was {
		return false
	}
	r.nth = was.nth
	s.names[r.Name] = r
	s.change(r.Name)
	s.wake.nudge()
	return true
}

// change has the loop look at a name. The mutex is held.
func (s *roleTasks) change(name string) {
	if s.looping {
		s.changed = append(s.changed, name)
	}
}

// taskChange is a name of which the loop is to know what is registered; nil: nothing any more.
type taskChange struct {
	name string
	now  *registered
}

// changes returns what was registered, replaced or unregistered since the last call, and all that
// is registered in the first call of a loop.
func (s *roleTasks) changes() []taskChange {
	s.mu.Lock()
	defer s.mu.Unlock()
	changes := make([]taskChange, len(s.changed))
	for i, name := range s.changed {
		changes[i] = taskChange{name, s.names[name]}
	}
	s.changed = nil
	return changes
}

// loops notes that a loop runs the tasks, or that none does any more: then nothing of them is on.
func (s *roleTasks) loops(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looping, s.changed = on, nil
	if on {
		for _, r := range s.inOrder() {
			s.change(r.Name)
		}
		return
	}
	for name := range s.leaving {
		s.left(name)
	}
}

// leaves reports whether the loop still has a task that was unregistered.
func (s *roleTasks) leaves(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaving[name] != nil
}

// settle tells who waits for a task to leave that it has left.
func (s *roleTasks) settle(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left(name)
}

// left is settle for whoever holds the mutex.
func (s *roleTasks) left(name string) {
	if ended := s.leaving[name]; ended != nil {
		close(ended)
		delete(s.leaving, name)
		s.homes.forget(name)
	}
}

// shard is the role that a task with Anywhere is dealt to. Every version must deal alike, or tasks
// move with an upgrade.
func shard(task string, shards int) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(task)) // never fails
	return fmt.Sprintf("tasks.%d", 1+sum.Sum32()%uint32(shards))
}
