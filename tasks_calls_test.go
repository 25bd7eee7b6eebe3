package tenure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// TestHungCalls: calls that never return are bounded in number, reported, and do not stop the
// scheduler from going on later.
func TestHungCalls(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}, Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(30 * time.Minute)
		a.store.on(func(string, int) taskFate { return taskLate })
		g.pass(90 * time.Minute)
		require.Equal(g, maxCalls, a.calls.count())
		stuck := g.told(EventCallsStuck)
		require.Len(g, stuck, 1)
		require.Equal(g, maxCalls, stuck[0].Count)
		a.stop()
		g.pass(schedule.CallBound + schedule.FinishBound + time.Second)
		require.Len(g, a.ended, 1, "lead does not wait for ever")
		require.NoError(g, <-a.ended)

		// The next term of this process finds all of them taken.
		a.begin()
		g.pass(time.Minute)
		require.Len(g, g.told(EventCallsStuck), 2)
		a.store.on(nil)
		close(a.store.healed)
		g.pass(10 * time.Second)
		require.Len(g, g.noted(), 2)
		require.Zero(g, a.calls.count())
		a.end()
	})
}

// TestManyTasks: more tasks than calls may be in flight.
func TestManyTasks(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		for n := range 200 {
			require.NoError(g, a.Register(Task{Name: "t" + string(rune('a'+n%26)) + string(rune('a'+n/26)), Schedule: Every(time.Hour), Run: g.run(0)}))
		}
		a.begin()
		g.pass(time.Hour + time.Millisecond)
		require.Len(g, g.noted(), 200)
		require.Empty(g, g.told(EventCallsStuck))
		a.end()
	})
}

// farTasks is a store at a distance, in virtual time.
type farTasks struct{ store.Tasks }

func (s farTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	time.Sleep(200 * time.Millisecond)
	return s.Tasks.Claim(ctx, name, c)
}

func (s farTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	time.Sleep(200 * time.Millisecond)
	return s.Tasks.Finish(ctx, name, f)
}

// TestTasksTakeTurnsAtTheCalls: if calls are the bottleneck, every task has its share, whatever
// its place, and it is reported.
func TestTasksTakeTurnsAtTheCalls(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		g.store = farTasks{g.local} // 80 calls a second, for the 200 that there would be
		a := g.member("a")
		runs := make([]int, 100)
		for n := range runs {
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("t", n), Schedule: Every(time.Second), Run: func(context.Context, TaskRun) error {
				g.lock(func() { runs[n]++ })
				return nil
			}}))
		}
		a.begin()
		g.pass(2 * time.Minute)
		require.Greater(g, slices.Min(runs), 40)
		require.Less(g, slices.Max(runs)-slices.Min(runs), 6)
		tardy := g.told(EventTaskTardy)
		require.Len(g, tardy, 1, "once, until there are calls enough")
		require.Greater(g, tardy[0].Took, tardyAfter)
		require.Equal(g, g.token, tardy[0].Token)
		a.end()
	})
}

// TestEndsWaitForRunsThatAreDue: if there are too many calls, those that a run waits for go first.
func TestEndsWaitForRunsThatAreDue(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		var late time.Duration
		hourly := func(behind time.Duration) Schedule {
			return ownSchedule{func(after time.Time) time.Time { return after.Add(-behind).Truncate(time.Hour).Add(time.Hour + behind) }, behind.String()}
		}
		for n := range 160 { // 80 are due at the hour, 80 a little later
			behind := time.Duration(n%2) * 400 * time.Millisecond
			require.NoError(g, a.Register(Task{Name: fmt.Sprintf("t%03d", n), Schedule: hourly(behind), Run: func(_ context.Context, run TaskRun) error {
				if g.now() > time.Minute { // else it was due while the records were made
					g.lock(func() { late = max(late, time.Since(run.Slot)) })
				}
				return nil
			}}))
		}
		slow := slowTasks{g.local, 100 * time.Millisecond}
		g.store, a.store.Tasks = slow, slow
		a.begin()
		g.pass(61 * time.Minute)
		require.NotZero(g, late)
		require.Less(g, late, 900*time.Millisecond, "160 claims take a second, their ends another one")
		a.end()
	})
}

// TestEndsThatWaitAreBounded: of thousands of tasks that are due at once, most runs that have
// returned are recorded before the last ones begin. What is not would run again if the process
// died, and also if its term ended and there was no time to record it.
func TestEndsThatWaitAreBounded(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	inTaskCluster(t, func(g *taskCluster) {
		const many, together = 6000, maxCalls * maxFlight
		recorded := &recordedEnds{Tasks: g.local}
		a := g.member("a")
		a.taskConfig.store = &joinedTasks{Tasks: recorded, takes: time.Second}
		hourly := ownSchedule{func(after time.Time) time.Time { return after.Truncate(time.Hour).Add(time.Hour) }, "hourly"}
		var runs, most int64
		for n := range many {
			require.NoError(g, a.Register(Task{Name: fmt.Sprintf("t%04d", n), Schedule: hourly, Run: func(context.Context, TaskRun) error {
				g.lock(func() {
					runs++
					most = max(most, runs-recorded.count.Load())
				})
				return nil
			}}))
		}
		a.begin()
		g.pass(30 * time.Minute)
		g.until(time.Hour, func() (all bool) {
			g.lock(func() { all = runs == many })
			return all
		})
		a.end()
		require.LessOrEqual(g, most, int64(3*together), "that wait, and that are in flight, and whose claims were")
		require.Empty(g, g.told(EventTaskBlocked), "those that are left are recorded behind the end of the term")
		require.EqualValues(g, many, recorded.count.Load())
	})
}

// manyRoles are roles of one process whose tasks are due at once, each hour.
type manyRoles struct {
	*taskInstance
	store *joinedTasks
	terms map[string]*liveTerm
	ended map[string]chan error

	ran map[string]int // runs that have begun, by role
}

// inManyRoles runs act half an hour before so many tasks of each role are due.
func inManyRoles(t *testing.T, tasks map[string]int, act func(g *taskCluster, m *manyRoles)) {
	t.Helper()
	inTaskCluster(t, func(g *taskCluster) {
		m := &manyRoles{
			taskInstance: g.member("a"), store: &joinedTasks{Tasks: g.local}, terms: make(map[string]*liveTerm),
			ended: make(map[string]chan error), ran: make(map[string]int),
		}
		for name, many := range tasks {
			c := m.taskConfig
			c.role, c.lease, c.store = name, "lease of "+name, m.store
			role := m.addRole(c)
			for n := range many {
				require.NoError(g, m.Register(Task{Name: fmt.Sprintf("%s-%04d", name, n), Role: name, Schedule: Cron("0 * * * *"), Run: func(context.Context, TaskRun) error {
					g.lock(func() { m.ran[name]++ })
					return nil
				}}))
			}
			live := begin(context.Background(), Term{InstanceID: "a", Role: name, Token: 1}, lease.Lease{Sent: readClock(), Life: 1e5 * time.Hour}, func() {})
			ended := make(chan error, 1)
			m.terms[name], m.ended[name] = live, ended
			term, _ := TermFrom(live.ctx)
			go func() { ended <- role.runTerm(live.ctx, term) }() // awaited by endRole
		}
		g.at(30 * time.Minute)
		act(g, m)
		require.Equal(g, maxCalls*maxFlight, m.permits.free, "nobody who is at rest has one")
		for name := range tasks {
			m.endRole(name)
		}
		require.Equal(g, maxCalls*maxFlight, m.permits.free)
	})
}

// endRole ends the term of a role, unless it has ended.
func (m *manyRoles) endRole(name string) {
	if ended := m.ended[name]; ended != nil {
		m.terms[name].end(ErrStopped)
		require.NoError(m.g, <-ended)
		m.ended[name] = nil
	}
}

// all reports whether so many runs of a role have begun.
func (m *manyRoles) all(name string, many int) (all bool) {
	m.g.lock(func() { all = m.ran[name] == many })
	return all
}

// TestManyRolesKeepRedisNoBusier than one: the calls of all of them share one bound.
func TestManyRolesKeepRedisNoBusier(t *testing.T) {
	const many = 30
	tasks := make(map[string]int)
	for n := range 40 {
		tasks[fmt.Sprint("role", n)] = many
	}
	inManyRoles(t, tasks, func(g *taskCluster, m *manyRoles) {
		m.store.takes = time.Second
		g.at(90 * time.Minute)
		for role := range tasks {
			require.True(g, m.all(role, many), role)
		}
		require.LessOrEqual(g, m.store.mostFlying, maxCalls*maxFlight)
		require.Greater(g, m.store.mostFlying, maxCalls*maxFlight*3/4)
	})
}

// TestPermitsGoInTurn: those that come back go to the role that has waited for longest, as many as
// one flight takes, and nobody goes ahead of it.
func TestPermitsGoInTurn(t *testing.T) {
	p := taskPermits{free: 2}
	roles := make([]permitLine, 4)
	for i := range roles {
		roles[i].wake = newWakeup()
	}
	a, b, c, gone := &roles[0], &roles[1], &roles[2], &roles[3]
	require.Equal(t, 1, p.take(a))
	require.Equal(t, 1, p.take(a))
	for _, r := range []*permitLine{gone, b, b, c} {
		require.Zero(t, p.take(r))
	}
	require.Zero(t, p.leave(gone))
	p.give(maxFlight - 1)
	require.Zero(t, p.take(a), "the others are before it")
	require.Empty(t, b.wake)
	p.give(1)
	require.Len(t, b.wake, 1)
	require.Empty(t, c.wake)
	require.Equal(t, maxFlight, p.take(b))
	require.Zero(t, p.take(b), "behind the others")
	p.give(2*maxFlight + 1)
	require.Equal(t, maxFlight, p.leave(c), "it gives back what it was given and needs no more")
	p.give(maxFlight)
	require.Equal(t, maxFlight, p.take(a))
	require.Equal(t, maxFlight, p.take(b))
	require.Equal(t, 1, p.take(c))
	require.Zero(t, p.take(c))
	require.Zero(t, p.free)
}

// TestRolesThatHangLeaveRoom: calls that have had their time, or whose term has ended, are awaited
// no more, and the other roles go on. Those that have waited in vain leave nothing behind.
func TestRolesThatHangLeaveRoom(t *testing.T) {
	const many = 1500
	for name, end := range map[string]bool{"no answer": false, "their terms end": true} {
		t.Run(name, func(t *testing.T) {
			roles := map[string]int{"hangs1": many, "hangs2": many, "hangs3": many, "hangs4": many, "other": many, "ends": 0, "changes": 0, "waits": 0}
			inManyRoles(t, roles, func(g *taskCluster, m *manyRoles) {
				m.store.takes, m.store.hangingFrom = 10*time.Millisecond, "hangs"
				g.at(time.Hour - time.Second)
				heal := m.store.hangs()
				defer heal()
				g.at(time.Hour + time.Second)
				require.Less(g, m.permits.free, maxFlight)
				before := len(m.permits.line)
				for _, role := range []string{"ends", "changes", "waits"} {
					require.NoError(g, m.Register(Task{Name: "new-" + role, Role: role, Schedule: OnDemand(), RunOnElection: true, Run: g.run(0)}))
				}
				g.pass(time.Millisecond)
				require.Len(g, m.permits.line, before+3)
				require.Empty(g, g.noted())
				m.endRole("ends")
				require.NoError(g, m.Unregister(context.Background(), "new-changes"))
				if end {
					for n := range 4 {
						m.terms[fmt.Sprint("hangs", n+1)].end(ErrStopped)
					}
				}
				g.pass(schedule.CallBound + 10*time.Second)
				require.True(g, m.all("other", many))
				require.Len(g, g.noted(), 1, "of the role that waits")
				require.False(g, m.all("hangs1", many))
				heal()
				g.pass(time.Minute)
				require.Equal(g, !end, m.all("hangs1", many))
			})
		})
	}
}

// recordedEnds counts the ends of runs that were recorded.
type recordedEnds struct {
	store.Tasks
	count atomic.Int64
}

func (r *recordedEnds) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	reply, err := r.Tasks.Finish(ctx, name, f)
	r.count.Add(1)
	return reply, err
}

// joinedTasks is a store whose calls travel together, and take so long, in virtual time.
type joinedTasks struct {
	store.Tasks
	takes time.Duration

	mu      sync.Mutex
	flights []int // how many calls each had
	hang    chan struct{}
	ends    []time.Time                    // when ends of runs were sent
	made    []weak.Pointer[store.TaskCall] // their calls
	late    time.Duration                  // the longest that a run that was due waited for its flight

	flying, mostFlying int    // calls that are on their way together
	hangingFrom        string // only calls of tasks whose names begin so hang
}

// took is how many calls each flight had since the last look.
func (s *joinedTasks) took() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.flights
	s.flights = nil
	return taken
}

// hangs has calls hang until the returned function is called.
func (s *joinedTasks) hangs() (heal func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hang := make(chan struct{})
	s.hang = hang
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hang = nil
		close(hang)
	})
}

func (s *joinedTasks) sent(calls int, ask any) (hang chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flights = append(s.flights, calls)
	if _, ends := ask.(store.TaskFinish); ends {
		s.ends = append(s.ends, time.Now())
	}
	return s.hang
}

func (*joinedTasks) Pipelines() bool { return true }

// AskAll answers half of the calls late, if they hang.
func (s *joinedTasks) AskAll(ctx context.Context, calls []store.TaskCall, done func(answered []int)) {
	hang := s.sent(len(calls), calls[0].Ask)
	if !strings.HasPrefix(calls[0].Name, s.hangingFrom) {
		hang = nil
	}
	s.mu.Lock()
	s.made = append(s.made, weak.Make(&calls[0]))
	s.flying += len(calls)
	s.mostFlying = max(s.mostFlying, s.flying)
	for _, c := range calls {
		if claim, claims := c.Ask.(store.TaskClaim); claims {
			s.late = max(s.late, time.Since(time.UnixMilli(claim.Slot)))
		}
	}
	s.mu.Unlock()
	time.Sleep(s.takes)
	for half := range 2 {
		var answered []int
		for i := half; i < len(calls); i += 2 {
			c := &calls[i]
			c.Reply, c.Err = store.AskTask(ctx, s.Tasks, c.Name, c.Ask)
			answered = append(answered, i)
		}
		if half == 1 && hang != nil {
			<-hang
		}
		s.mu.Lock()
		s.flying -= len(answered)
		s.mu.Unlock()
		done(answered)
	}
}

func (s *joinedTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	s.sent(1, f)
	time.Sleep(s.takes)
	return s.Tasks.Finish(ctx, name, f)
}

// inJoinedTasks runs act with a member whose store is a joinedTasks, and of that many tasks so far
// apart, which are due each ten seconds.
func inJoinedTasks(t *testing.T, many int, apart time.Duration, act func(g *taskCluster, a *taskInstance, s *joinedTasks)) {
	t.Helper()
	inTaskCluster(t, func(g *taskCluster) {
		s := &joinedTasks{Tasks: g.local, takes: time.Millisecond}
		a := g.member("a")
		a.taskConfig.store = s
		for n := range many {
			require.NoError(g, a.Register(Task{
				Name: fmt.Sprintf("t%03d", n), Schedule: Every(10 * time.Second), InitialDelay: 10*time.Second + time.Duration(n)*apart, Run: g.run(0),
			}))
		}
		a.begin()
		act(g, a, s)
		a.end()
	})
}

// TestHungCallsOfATaskThatHasGone: calls that hang are reported, though the task of one of them was
// unregistered meanwhile.
func TestHungCallsOfATaskThatHasGone(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		for n := range 2 * maxCalls {
			require.NoError(g, a.Register(Task{Name: fmt.Sprintf("t%02d", n), Schedule: Every(time.Minute), Run: g.run(0)}))
		}
		a.begin()
		g.pass(time.Minute - time.Second)
		a.store.on(func(string, int) taskFate { return taskLate })
		a.hear("t00") // its record is read
		synctest.Wait()
		require.NoError(g, a.Unregister(context.Background(), "t00"))
		g.pass(time.Hour)
		require.Equal(g, maxCalls, a.calls.count())
		require.Len(g, g.told(EventCallsStuck), 1)
		a.store.on(nil)
		close(a.store.healed)
		g.pass(time.Minute)
		a.end()
	})
}

// splitTasks answers each call of a flight by itself. What held names waits for its channel, behind
// the call.
type splitTasks struct {
	store.Tasks
	held sync.Map // by the type of the call and the task
}

func (*splitTasks) Pipelines() bool { return true }

func (s *splitTasks) AskAll(ctx context.Context, calls []store.TaskCall, done func(answered []int)) {
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			c := &calls[i]
			c.Reply, c.Err = store.AskTask(ctx, s.Tasks, c.Name, c.Ask)
			if hold, held := s.held.Load(fmt.Sprintf("%T %s", c.Ask, c.Name)); held {
				<-hold.(chan struct{})
			}
			done([]int{i})
		})
	}
	all.Wait()
}

// Claim and Finish are calls that travel alone.
func (s *splitTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	call := []store.TaskCall{{Name: name, Ask: c}}
	s.AskAll(ctx, call, func([]int) {})
	return call[0].Reply, call[0].Err
}

func (s *splitTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	call := []store.TaskCall{{Name: name, Ask: f}}
	s.AskAll(ctx, call, func([]int) {})
	return call[0].Reply, call[0].Err
}

// TestTwoCallsOfATaskInOneFlight: the first try of the end of a run is answered while the second
// one waits for company, and the next claim of the task travels with it. The flight is answered in
// parts.
func TestTwoCallsOfATaskInOneFlight(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		end, other, claim := make(chan struct{}), make(chan struct{}), make(chan struct{})
		s := &splitTasks{Tasks: g.local}
		s.held.Store("store.TaskFinish t", end)
		a := g.member("a")
		a.taskConfig.store = s
		for name, delay := range map[string]time.Duration{"t": 10 * time.Second, "u": 12 * time.Second} {
			require.NoError(g, a.Register(Task{
				Name: name, Schedule: Every(time.Second), InitialDelay: delay, Overlap: OverlapQueue, Missed: MissedRunAll, Run: g.run(0),
			}))
		}
		a.begin()
		g.pass(11 * time.Second)
		s.held.Store("store.TaskClaim u", other) // so that the end of t waits for company
		g.pass(2 * time.Second)
		require.Equal(g, 2, a.calls.count())
		for a.calls.count() < 3 { // the second try
			g.pass(time.Millisecond)
		}
		s.held.Clear()
		s.held.Store("store.TaskClaim t", claim)
		close(end)
		g.pass(2 * schedule.CallBound)
		close(other)
		close(claim)
		s.held.Clear()
		g.noted()
		g.pass(10 * time.Second)
		require.Zero(g, a.calls.count())
		require.GreaterOrEqual(g, len(g.noted()), 20)
		a.end()
	})
}

// TestEndsHoldUpNoPlace: beside a thousand other slots a second the runs of a group, of which each
// waits for the end of the one before it, do not wait for company.
func TestEndsHoldUpNoPlace(t *testing.T) {
	inJoinedTasks(t, 200, time.Millisecond, func(g *taskCluster, a *taskInstance, _ *joinedTasks) {
		const many = 50
		for n := range many {
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("group-", n), Group: "g", Schedule: At(g.began.Add(20 * time.Second)), Run: g.run(0)}))
		}
		g.pass(20*time.Second + many*3*time.Millisecond)
		ran := 0
		for _, line := range g.noted() {
			if strings.Contains(line, "group") {
				ran++
			}
		}
		require.Equal(g, many, ran)
	})
}

// TestCallsOfATurnTravelTogether: what is due at one moment is one flight for each fifty, and so
// are the ends.
func TestCallsOfATurnTravelTogether(t *testing.T) {
	inJoinedTasks(t, 120, 0, func(g *taskCluster, a *taskInstance, s *joinedTasks) {
		g.pass(9 * time.Second)
		g.noted()
		s.took()
		g.pass(5 * time.Second)
		require.Len(g, g.noted(), 120)
		flights := s.took()
		require.ElementsMatch(g, []int{50, 50, 20}, flights[:3])
		calls := 0
		for _, n := range flights {
			calls += n
		}
		require.Equal(g, 240, calls)
		require.LessOrEqual(g, len(flights), 7, "%v", flights)
		require.Zero(g, a.calls.count())
	})
}

// aloneTasks is a store of which it is not known whether its client pipelines.
type aloneTasks struct{ *joinedTasks }

func (aloneTasks) Pipelines() bool { return false }

// TestCallsThatMayNotTravelTogether: if it is not known whether the client pipelines each flight
// has one call.
func TestCallsThatMayNotTravelTogether(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		s, a := &joinedTasks{Tasks: g.local, takes: time.Millisecond}, g.member("a")
		a.taskConfig.store = aloneTasks{s}
		for n := range 3 * maxCalls {
			require.NoError(g, a.Register(Task{Name: fmt.Sprintf("t%03d", n), Schedule: Every(10 * time.Second), Run: g.run(0)}))
		}
		a.begin()
		g.pass(15 * time.Second)
		a.end()
		require.Len(g, g.noted(), 3*maxCalls)
		for _, calls := range s.took() {
			require.Equal(g, 1, calls)
		}
	})
}

// TestEndsTravelWithTheNext: where many tasks are due one after the other the ends of their runs
// travel with those that are due next, and none of these waits for an end. The end of a lone run
// goes at once.
func TestEndsTravelWithTheNext(t *testing.T) {
	inJoinedTasks(t, 200, time.Millisecond, func(g *taskCluster, _ *taskInstance, s *joinedTasks) {
		g.pass(19 * time.Second)
		g.noted()
		s.took()
		g.pass(5 * time.Second)
		require.Len(g, g.noted(), 200)
		flights := s.took()
		require.Less(g, len(flights), 200/(dueTogether*5)+15, "%v", flights)
		require.LessOrEqual(g, s.late, dueTogether*dueSpacing, "runs that are due wait for no ends")
		require.NotZero(g, s.late)
	})
	inJoinedTasks(t, 1, 0, func(g *taskCluster, _ *taskInstance, s *joinedTasks) {
		g.pass(15 * time.Second)
		require.Len(g, s.ends, 1)
		require.Less(g, s.ends[0].Sub(g.began.Add(10*time.Second)), dueSpacing)
	})
}

// TestEndsWaitNoLongerThanTheNext: where the tasks that are due next have nothing to ask for, such
// as those that begin another attempt, the end of a run does not wait for one that has.
func TestEndsWaitNoLongerThanTheNext(t *testing.T) {
	inJoinedTasks(t, 0, 0, func(g *taskCluster, a *taskInstance, s *joinedTasks) {
		for n := range 300 {
			require.NoError(g, a.Register(Task{
				Name: fmt.Sprintf("t%03d", n), Schedule: Every(time.Hour), InitialDelay: 10*time.Second + time.Duration(n)*4*time.Millisecond,
				Retry: RetryPolicy{Attempts: 2},
				Run: func(_ context.Context, run TaskRun) error {
					if run.Attempt == 1 {
						return RetryAfter(errors.New("sick"), time.Minute)
					}
					time.Sleep(time.Minute)
					return nil
				},
			}))
		}
		var ended time.Time
		require.NoError(g, a.Register(Task{
			Name: "alone", Schedule: Every(time.Hour), InitialDelay: 70 * time.Second,
			Run: func(context.Context, TaskRun) error {
				time.Sleep(500 * time.Millisecond)
				g.lock(func() { ended = time.Now() })
				return nil
			},
		}))
		g.pass(80 * time.Second)
		s.mu.Lock()
		told := slices.Clone(s.ends)
		s.mu.Unlock()
		require.Len(g, told, 1)
		g.lock(func() { require.LessOrEqual(g, told[0].Sub(ended), dueTogether*dueSpacing) })
		g.pass(time.Hour)
	})
}

// TestAllocationsOfARun: how often a run allocates, its claim and its end included: of tasks that
// are due one after the other, and of all at once; those of the test included.
func TestAllocationsOfARun(t *testing.T) {
	if simnet.Race {
		t.Skip("the race detector allocates")
	}
	for _, apart := range []time.Duration{time.Millisecond, 0} {
		const tasks, rounds = 200, 20
		inJoinedTasks(t, tasks, apart, func(g *taskCluster, _ *taskInstance, _ *joinedTasks) {
			g.pass(30 * time.Second)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			g.pass(rounds * 10 * time.Second)
			runtime.ReadMemStats(&after)
			require.LessOrEqual(g, (after.Mallocs-before.Mallocs)/(tasks*rounds), uint64(66), apart)
		})
	}
}

// TestLastEndsAreTold: ends that wait for others are told at once when the term is over.
func TestLastEndsAreTold(t *testing.T) {
	inJoinedTasks(t, 200, time.Millisecond, func(g *taskCluster, a *taskInstance, s *joinedTasks) {
		g.pass(20*time.Second + 100*time.Millisecond)
		a.stop()
		g.pass(2 * s.takes)
		require.Len(g, a.ended, 1)
		_, records, _, err := g.local.Records(context.Background(), []string{"t099", "t098", "t095"})
		require.NoError(g, err)
		for _, r := range records {
			require.Empty(g, r.Run)
		}
	})
}

// TestAnswersAreNotKept: what a flight was answered is not kept once all have taken it.
func TestAnswersAreNotKept(t *testing.T) {
	inJoinedTasks(t, 300, time.Millisecond, func(g *taskCluster, _ *taskInstance, s *joinedTasks) {
		g.pass(31 * time.Second)
		runtime.GC()
		kept := slices.DeleteFunc(s.made, func(calls weak.Pointer[store.TaskCall]) bool { return calls.Value() == nil })
		require.LessOrEqual(g, len(kept), 1, "the last one may be on its way")
	})
}

// TestFlightsThatHang: a flight counts until its last call has an answer, and as one that hangs
// once nobody waits for it; those of its calls that were answered go on meanwhile.
func TestFlightsThatHang(t *testing.T) {
	inJoinedTasks(t, 100, 0, func(g *taskCluster, a *taskInstance, s *joinedTasks) {
		g.pass(9 * time.Second)
		heal := s.hangs()
		defer heal()
		g.noted()
		g.pass(3 * time.Second)
		require.Len(g, g.noted(), 50, "every other call is answered")
		g.pass(10 * time.Minute)
		require.Equal(g, maxCalls, a.calls.count())
		stuck := g.told(EventCallsStuck)
		require.Len(g, stuck, 1)
		require.Equal(g, maxCalls, stuck[0].Count)
		heal()
		g.pass(time.Minute)
		require.Zero(g, a.calls.count())
		g.noted()
		g.pass(20 * time.Second)
		require.Len(g, g.noted(), 200)
		require.Len(g, g.told(EventCallsStuck), 1)
		defer s.hangs()()
		g.pass(10 * time.Minute)
		require.Len(g, g.told(EventCallsStuck), 2, "once each time")
	})
}

// TestMemoriesOfTasksAreBounded: a service that names a task anew each time leads thousands of
// names. Those that are registered keep what is known of their runs.
func TestMemoriesOfTasksAreBounded(t *testing.T) {
	s := &roleTasks{memory: make(map[string]*schedule.Memory), names: map[string]*registered{"kept": {}}}
	kept := s.ran("kept")
	for i := range 3 * maxMemories {
		s.ran(strconv.Itoa(i))
		require.LessOrEqual(t, len(s.memory), maxMemories+1)
	}
	require.Same(t, kept, s.ran("kept"))
}
