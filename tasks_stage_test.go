package tenure

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// taskStage is a store of tasks in virtual time, and leaders that come and go.
type taskStage struct {
	*testing.T
	store   store.Tasks // a localTasks, unless the test has another one
	local   *memstore.Tasks
	apart   atomic.Int64 // how far the wall clock is ahead of the monotonic one
	began   time.Time
	token   int64
	members []*taskMember
	runs    atomic.Int64 // that were claimed

	mu     sync.Mutex
	random *rand.Rand
	events []Event
	trace  []string
}

// onTaskStage runs act in a bubble. Whatever still leads when it returns is ended; a goroutine that
// does not end fails the test.
func onTaskStage(t *testing.T, act func(*taskStage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &taskStage{T: t, began: time.Now(), token: 1000, random: rand.New(rand.NewPCG(1, 1))}
		g.local = memstore.NewTasks(func() lease.Reading {
			reading := readClock()
			reading.Wall += time.Duration(g.apart.Load())
			return reading
		})
		g.store = g.local
		defer func() {
			for _, m := range g.members {
				if m.ended != nil {
					m.end()
				}
			}
		}()
		act(g)
	})
}

// now is the time since the beginning.
func (g *taskStage) now() time.Duration { return time.Since(g.began) }

// pass lets time pass.
func (g *taskStage) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// lock guards what runs and the test share.
func (g *taskStage) lock(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
}

// draw is a random number below n.
func (g *taskStage) draw(n int) (drawn int) {
	g.lock(func() { drawn = g.random.IntN(n) })
	return drawn
}

func (g *taskStage) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.trace = append(g.trace, fmt.Sprintf("%v %s", g.now().Round(time.Millisecond), fmt.Sprintf(format, args...)))
}

// noted takes the trace.
func (g *taskStage) noted() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.trace
	g.trace = nil
	return taken
}

// told are the events of the given types so far.
func (g *taskStage) told(types ...EventType) []Event {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	var told []Event
	for _, e := range g.events {
		for _, wanted := range types {
			if e.Type == wanted {
				told = append(told, e)
			}
		}
	}
	return told
}

// taskMember is one process. It may lead, several times.
type taskMember struct {
	*TaskScheduler
	g     *taskStage
	store *shakyTasks
	ended chan error
	t     *liveTerm
}

func (g *taskStage) member(id string, tasks ...Task) *taskMember {
	bus := newEventBus(id)
	bus.observe(func(e Event) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.events = append(g.events, e)
	})
	store := &shakyTasks{Tasks: g.store, healed: make(chan struct{})}
	m := &taskMember{TaskScheduler: newTasks(store, bus, id), g: g, store: store}
	m.random = func() float64 { return 1 } // nothing is taken off a backoff
	m.secret = func() string { return fmt.Sprintf("%s-%d", id, g.runs.Add(1)) }
	g.members = append(g.members, m)
	for _, task := range tasks {
		require.NoError(g, m.Register(task))
	}
	return m
}

// leader is a member that leads.
func (g *taskStage) leader(id string, tasks ...Task) *taskMember {
	m := g.member(id, tasks...)
	m.begin()
	return m
}

// begin starts a term.
func (m *taskMember) begin() {
	m.g.token++
	m.t = begin(context.Background(), Term{InstanceID: m.id, Token: m.g.token}, lease.Lease{Sent: readClock(), Life: 1e5 * time.Hour}, func() {})
	m.ended = make(chan error, 1)
	term, _ := TermFrom(m.t.ctx)
	go func() { m.ended <- m.runTerm(m.t.ctx, term) }() // awaited by end
	synctest.Wait()
}

// end ends the term and waits for lead to return.
func (m *taskMember) end() {
	m.g.Helper()
	m.stop()
	select {
	case err := <-m.ended:
		m.ended = nil
		require.NoError(m.g, err)
	case <-time.After(time.Hour):
		m.g.Fatal("lead does not return")
	}
	synctest.Wait()
}

func (m *taskMember) stop() {
	m.t.end(ErrStopped)
	synctest.Wait()
}

// crash ends the term like the death of its process: Redis hears nothing of it any more.
func (m *taskMember) crash() {
	m.g.Helper()
	m.store.on(func(string, int) taskFate { return taskLost })
	m.stop() // its goroutines end within finishBound
}

// run is a task that takes a while, heeds its context and notes what it does.
func (g *taskStage) run(takes time.Duration) TaskFunc {
	return func(ctx context.Context, run TaskRun) error {
		g.note("%s %v #%d starts", run.Task, run.Slot.Sub(g.began).Round(time.Millisecond), run.Attempt)
		if takes > 0 {
			select {
			case <-ctx.Done():
				g.note("%s %v #%d is told to stop", run.Task, run.Slot.Sub(g.began).Round(time.Millisecond), run.Attempt)
				return ctx.Err()
			case <-time.After(takes):
			}
		}
		return nil
	}
}

// status is the status of the one task.
func (m *taskMember) status() TaskStatus {
	m.g.Helper()
	list, err := m.Tasks(context.Background())
	require.NoError(m.g, err)
	require.Len(m.g, list, 1)
	return list[0]
}

// taskFate is what becomes of a call.
type taskFate int

const (
	taskFine   taskFate = iota
	taskLost            // neither the request nor the reply gets through
	taskMute            // the request gets through, the reply does not
	taskHung            // the request gets through and the call never returns, until it is healed
	taskLate            // the request gets through when it is healed
	taskDenied          // the record is said to have changed, and has not
	taskSick            // an answer that somebody has to fix something for
)

var errShaky = errors.New("connection reset")

// shakyTasks is a way to the store that does what the test says.
type shakyTasks struct {
	store.Tasks
	calls  atomic.Int64
	healed chan struct{}

	mu     sync.Mutex
	script func(op string, number int) taskFate
	counts map[string]int
}

func (s *shakyTasks) on(script func(op string, number int) taskFate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.counts = script, make(map[string]int)
}

// befalls is a script: so many calls of one kind, the first ones, meet this fate, and everything
// else is fine.
func befalls(op string, times int, fate taskFate) func(string, int) taskFate {
	return func(called string, number int) taskFate {
		if called == op && number <= times {
			return fate
		}
		return taskFine
	}
}

const always = math.MaxInt

func (s *shakyTasks) through(op string, call func() (store.TaskReply, error)) (store.TaskReply, error) {
	s.calls.Add(1)
	s.mu.Lock()
	fate := taskFine
	if s.script != nil {
		s.counts[op]++
		fate = s.script(op, s.counts[op])
	}
	s.mu.Unlock()
	switch fate {
	case taskLost:
		return store.TaskReply{}, &store.Error{Kind: ErrUnreachable, Op: op, Err: errShaky}
	case taskMute:
		_, _ = call()
		return store.TaskReply{}, &store.Error{Kind: ErrUnreachable, Op: op, Err: errShaky}
	case taskHung:
		reply, err := call()
		<-s.healed
		return reply, err
	case taskLate:
		<-s.healed
	case taskDenied:
		reply, err := s.Tasks.Record(context.Background(), "t")
		reply.Verdict = store.TaskMoved
		return reply, err
	case taskSick:
		return store.TaskReply{}, &store.Error{Kind: ErrMisconfigured, Op: op, Err: errShaky}
	}
	return call()
}

func (s *shakyTasks) Open(ctx context.Context, name string, o store.TaskOpen) (store.TaskReply, error) {
	return s.through("open", func() (store.TaskReply, error) { return s.Tasks.Open(ctx, name, o) })
}

func (s *shakyTasks) Plan(ctx context.Context, name string, p store.TaskPlan) (store.TaskReply, error) {
	return s.through("plan", func() (store.TaskReply, error) { return s.Tasks.Plan(ctx, name, p) })
}

func (s *shakyTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	return s.through("claim", func() (store.TaskReply, error) { return s.Tasks.Claim(ctx, name, c) })
}

func (s *shakyTasks) Retry(ctx context.Context, name string, r store.TaskRetry) (store.TaskReply, error) {
	return s.through("retry", func() (store.TaskReply, error) { return s.Tasks.Retry(ctx, name, r) })
}

func (s *shakyTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	return s.through("finish", func() (store.TaskReply, error) { return s.Tasks.Finish(ctx, name, f) })
}

func (s *shakyTasks) Record(ctx context.Context, name string) (store.TaskReply, error) {
	return s.through("read", func() (store.TaskReply, error) { return s.Tasks.Record(ctx, name) })
}

// sortedTrace puts what was noted at one instant in order.
func sortedTrace(trace []string) []string {
	slices.SortStableFunc(trace, func(a, b string) int {
		atA, restA, _ := strings.Cut(a, " ")
		atB, restB, _ := strings.Cut(b, " ")
		if atA != atB {
			return 0
		}
		return strings.Compare(restA, restB)
	})
	return trace
}

// newTasks returns a scheduler with the defaults, of an instance before a store.
func newTasks(tasks store.Tasks, bus *eventBus, id string) *TaskScheduler {
	return newTaskScheduler(taskConfig{
		store: tasks, bus: bus, id: id, secret: nonce, random: rand.Float64, grace: schedule.DefaultGrace, patience: overrunAfter,
	})
}
