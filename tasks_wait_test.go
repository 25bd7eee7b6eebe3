package tenure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// throng are tasks that count how many of them run at once, at most, and in which order they began.
type throng struct {
	g        *taskCluster
	now, top int
	began    []string
}

// most is how many have run at once, at most.
func (c *throng) most() (n int) {
	c.g.lock(func() { n = c.top })
	return n
}

// order is in which order they began.
func (c *throng) order() (names []string) {
	c.g.lock(func() { names = slices.Clone(c.began) })
	return names
}

func (c *throng) task(name string, s Schedule, takes time.Duration) Task {
	return Task{Name: name, Schedule: s, Run: func(ctx context.Context, _ TaskRun) error {
		c.g.lock(func() {
			c.now++
			c.top = max(c.top, c.now)
			c.began = append(c.began, name)
		})
		defer c.g.lock(func() { c.now-- })
		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}
		return ctx.Err()
	}}
}

// askedSchedule is an Every of the application: it is asked aside.
type askedSchedule struct{ Schedule }

func (s askedSchedule) Next(after time.Time) time.Time { return s.Schedule.Next(after) }

// bounded is a member of which few runs may be on at once.
func (g *taskCluster) bounded(most int) *taskInstance {
	a := g.member("a")
	a.TaskScheduler.places.most = most
	return a
}

// TestMaxConcurrent: never more runs at once, every task has its turn, and the first come first.
func TestMaxConcurrent(t *testing.T) {
	for _, aside := range []bool{false, true} {
		t.Run(fmt.Sprint("asked aside: ", aside), func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				c := &throng{g: g}
				a := g.bounded(3)
				for i := range 10 {
					var s Schedule = Every(10 * time.Minute)
					if aside {
						s = askedSchedule{s}
					}
					require.NoError(g, a.Register(c.task(fmt.Sprint("t", i), s, time.Minute)))
				}
				a.begin()
				g.pass(9*time.Minute + 10*time.Minute)
				require.Equal(g, 3, c.most())
				require.Len(g, c.order(), 10)
				seen := map[string]bool{}
				for _, name := range c.order() {
					seen[name] = true
				}
				require.Len(g, seen, 10)
				g.pass(10 * time.Hour)
				require.Equal(g, 3, c.most())
				require.InDelta(g, 10*61, len(c.order()), 10)
				require.Zero(g, a.places.waiting)
				a.end()
				require.Zero(g, a.places.running)
			})
		})
	}
}

// TestMaxConcurrentIsFair: a task that is always due keeps nobody else from its turn.
func TestMaxConcurrentIsFair(t *testing.T) {
	for _, aside := range []bool{false, true} {
		t.Run(fmt.Sprint("asked aside: ", aside), func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				c := &throng{g: g}
				a := g.bounded(1)
				greedy := c.task("greedy", Every(time.Second), 10*time.Second)
				greedy.Overlap = OverlapQueue
				require.NoError(g, a.Register(greedy))
				rarely := Every(10 * time.Minute)
				if aside {
					rarely = askedSchedule{rarely}
				}
				require.NoError(g, a.Register(c.task("modest", rarely, time.Second)))
				a.begin()
				g.pass(61 * time.Minute)
				modest := 0
				for _, name := range c.order() {
					if name == "modest" {
						modest++
					}
				}
				require.Equal(g, 6, modest)
				require.Equal(g, 1, c.most())
				a.end()
			})
		})
	}
}

// TestPlaceOfAScheduleThatHangs: a task that has waited for a place, and whose schedule then hangs,
// keeps no other one from it.
func TestPlaceOfAScheduleThatHangs(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		c := &throng{g: g}
		a := g.bounded(1)
		hangs := &hangingSchedule{release: make(chan struct{}), every: 10 * time.Minute}
		require.NoError(g, a.Register(c.task("hangs", hangs, time.Second)))
		long := c.task("long", Every(100*time.Hour), 20*time.Minute)
		long.InitialDelay = 5*time.Minute + time.Second/2 // its end comes between two readings of the record
		require.NoError(g, a.Register(long))
		require.NoError(g, a.Register(c.task("usual", Every(time.Hour), time.Second)))
		a.begin()
		g.pass(15 * time.Minute)
		require.True(g, a.places.wanted())
		hangs.hang.Store(true)
		g.pass(5 * time.Hour)
		began := c.order()
		close(hangs.release)
		g.pass(time.Second)
		a.end()
		require.GreaterOrEqual(g, len(began), 1+5)
		require.Zero(g, a.places.running)
	})
}

// TestNobodyWaitsAfterTheTerm: a task that waits for a place as its term ends is given none.
func TestNobodyWaitsAfterTheTerm(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		c := &throng{g: g}
		a := g.bounded(1)
		for _, name := range []string{"t", "u", "v"} {
			require.NoError(g, a.Register(c.task(name, Every(10*time.Minute), 5*time.Minute)))
		}
		a.begin()
		g.pass(11 * time.Minute)
		require.True(g, a.places.wanted())
		a.end()
		require.False(g, a.places.wanted())
		require.Zero(g, a.places.running)
		a.begin()
		g.pass(30 * time.Minute)
		require.GreaterOrEqual(g, len(c.order()), 4)
		a.end()
	})
}

// TestGroup: tasks of a group exclude each other, others do not, and a run that is on keeps its
// place between attempts.
func TestGroup(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		c, other := &throng{g: g}, &throng{g: g}
		a := g.member("a")
		for i := range 4 {
			task := c.task(fmt.Sprint("t", i), Every(10*time.Minute), time.Minute)
			task.Group = "db"
			require.NoError(g, a.Register(task))
			require.NoError(g, a.Register(other.task(fmt.Sprint("u", i), Every(10*time.Minute), time.Minute)))
		}
		a.begin()
		g.pass(10*time.Minute + 30*time.Second)
		require.Equal(g, 4, other.most())
		_, err := a.Trigger(context.Background(), "t3")
		require.NoError(g, err)
		g.pass(7 * time.Minute)
		require.Equal(g, 1, c.most())
		require.Len(g, c.order(), 5, "what is triggered waits for its turn too")
		require.NoError(g, a.Unregister(context.Background(), "t0"))
		g.pass(time.Hour)
		require.Equal(g, 1, c.most())
		a.end()
		require.Empty(g, a.places.groups)
		a.begin()
		g.pass(11 * time.Minute)
		a.end()
		require.Equal(g, 1, c.most())
	})
	s := newTasks(nil, newEventBus("a"), "a")
	err := s.Register(Task{Name: "t", Group: "a b", Schedule: OnDemand(), Run: func(context.Context, TaskRun) error { return nil }})
	require.ErrorContains(t, err, "Task.Group")
	_, err = NewStandalone(Options{Namespace: "app", Tasks: TaskOptions{MaxConcurrent: -1}})
	require.ErrorContains(t, err, "Tasks.MaxConcurrent")
}

// TestPlaceGivenBackMeanwhile: a place that another role gives back after a task has looked for
// one, and before it is known to wait, is not overlooked. Else it would wait until its loop looks
// by itself, for up to a minute.
func TestPlaceGivenBackMeanwhile(t *testing.T) {
	p := newTaskPlaces(1)
	line := placeLine{wake: newWakeup()}
	for _, group := range []string{"", "db"} {
		w := waitsIn(&line, group)
		require.True(t, p.take(group))
		require.False(t, p.take(group))
		p.wait(w)
		require.True(t, p.wanted(), "it is taken")
		p.waitNoMore(w)
		p.give(group)
		require.Empty(t, line.wake, "nobody waits yet")
		p.wait(w)
		require.False(t, p.wanted())
		require.Len(t, line.wake, 1, "it was given back meanwhile")
		<-line.wake
		require.Equal(t, []*placeWait{w}, p.granted(&line))
		p.give(group)
	}
}

// TestPlaceOfOneThatWaitsNoMore: it goes to nobody if nobody else waits.
func TestPlaceOfOneThatWaitsNoMore(t *testing.T) {
	p := newTaskPlaces(1)
	line := placeLine{wake: newWakeup()}
	w := waitsIn(&line, "db")
	require.True(t, p.take(""))
	p.wait(w)
	p.waitNoMore(w)
	p.give("")
	require.Empty(t, line.wake)
	require.Empty(t, p.granted(&line))
	require.Zero(t, p.running)
	require.True(t, p.take("db"))
}

// waitsIn is a task that waits for a place in a line.
func waitsIn(line *placeLine, group string) *placeWait {
	w := &placeWait{task: "t", group: group, line: line}
	w.entry.Owner = w
	return w
}

// TestPlacesOfMany: of a thousand tasks that wait, in as many roles, a place that is given back
// wakes the one that has waited for longest and may run, and no other.
func TestPlacesOfMany(t *testing.T) {
	const many = 1000
	p := newTaskPlaces(2)
	lines, waits := make([]placeLine, many), make([]*placeWait, many)
	require.True(t, p.take("busy"))
	require.True(t, p.take(""))
	for i := range many {
		lines[i].wake = newWakeup()
		waits[i] = waitsIn(&lines[i], []string{"busy", "", "group"}[i%3])
		p.wait(waits[i])
	}
	woken := func() (woken []int) {
		for i := range lines {
			select {
			case <-lines[i].wake:
				woken = append(woken, i)
				require.Equal(t, []*placeWait{waits[i]}, p.granted(&lines[i]))
			default:
			}
		}
		return woken
	}
	require.Empty(t, woken())
	p.give("")
	require.Equal(t, []int{1}, woken(), "the first of another group")
	p.give("")
	require.Equal(t, []int{2}, woken())
	p.give("group")
	require.Equal(t, []int{4}, woken())
	p.give("busy")
	require.Equal(t, []int{0}, woken())
	p.waitNoMore(waits[3])
	p.give("busy")
	require.Equal(t, []int{5}, woken())
	p.give("group")
	require.Equal(t, []int{6}, woken(), "the next one of its group waits no more")
	p.give("") // its task has it, but its loop does not know
	require.True(t, waits[7].granted)
	p.waitNoMore(waits[7])
	require.Empty(t, p.granted(&lines[7]))
	<-lines[7].wake
	require.Equal(t, []int{8}, woken(), "it goes on to the next one")

	p.give("group")
	p.give("busy")
	for more := true; more; {
		more = false
		for i := range lines {
			for _, w := range p.granted(&lines[i]) {
				more = true
				p.give(w.group)
			}
		}
	}
	require.Zero(t, p.waiting)
	require.Zero(t, p.running)
	require.Len(t, p.groups, 1, "nothing is kept of groups that nobody uses")
}

// TestMaxConcurrentOverRoles: it holds for the whole process, and who waits hears of a place that
// another role has given back.
func TestMaxConcurrentOverRoles(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Tasks.MaxConcurrent = 1 })
		_, err := a.AddRole("other", ElectionOptions{})
		require.NoError(c, err)
		now, top, runs := 0, 0, 0
		for _, role := range []string{"", "other"} {
			require.NoError(c, a.Tasks().Register(Task{Name: "t" + role, Role: role, Schedule: Every(10 * time.Minute), Run: func(context.Context, TaskRun) error {
				c.lock(func() { now++; runs++; top = max(top, now) })
				time.Sleep(time.Minute)
				c.lock(func() { now-- })
				return nil
			}}))
		}
		a.start()
		c.pass(13 * time.Minute)
		require.Equal(c, 1, top)
		require.Equal(c, 2, runs)
	})
}

// held is whether a member shows its one task as held.
func (m *instance) held() bool {
	m.cluster.Helper()
	list, err := m.Tasks().List(background)
	require.NoError(m.cluster, err)
	require.Len(m.cluster, list, 1)
	return list[0].Held
}

// TestTasksWaitForInstances: no run starts while too few instances are active. What is on goes on,
// slots are missed, a trigger waits, and each change is reported once.
func TestTasksWaitForInstances(t *testing.T) {
	inCluster(t, func(c *cluster) {
		two := func(o *Options) { o.Tasks.MinInstances = 2 }
		a, b := c.member("a", two), c.member("b", two)
		var takes atomic.Int64 // of a run: the test changes it while the scheduler may start one
		require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: Every(time.Minute), Run: func(ctx context.Context, run TaskRun) error {
			c.note("%v %q", run.Slot.Sub(c.began).Round(time.Minute), run.Args)
			time.Sleep(time.Duration(takes.Load()))
			c.note("done, %v", ctx.Err())
			return nil
		}}))
		a.start()
		c.pass(10 * time.Minute)
		require.Empty(c, c.noted(), "it is alone")
		require.True(c, a.held())
		require.Len(c, a.told(EventTasksHeld), 1)
		_, err := a.Tasks().Trigger(background, "t", "x")
		require.NoError(c, err)
		b.start()
		c.pass(gateSettles - time.Second)
		require.Empty(c, c.noted(), "enough, but not for long enough")
		c.pass(4 * time.Second)
		require.False(c, a.held())
		require.Len(c, a.told(EventTasksReleased), 1)
		require.Equal(c, []string{`10m0s ["x"]`, "done, <nil>", "10m0s []", "done, <nil>"}, c.noted(), "the trigger, and one run for the slots that were missed")
		takes.Store(int64(5 * time.Minute))
		c.pass(time.Minute)
		_, err = b.stop()
		require.NoError(c, err)
		c.pass(2 * time.Second)
		require.True(c, a.held())
		require.Len(c, a.told(EventTasksHeld), 2)
		c.pass(20 * time.Minute)
		require.Equal(c, []string{"11m0s []", "done, <nil>"}, c.noted(), "it was on, and no other one starts")
		require.Len(c, a.told(EventTasksHeld), 2)
	})
}

// TestTasksHeldUntilEnoughStay: an instance that comes and goes does not let tasks start. Whoever
// leads nothing has not counted.
func TestTasksHeldUntilEnoughStay(t *testing.T) {
	inCluster(t, func(c *cluster) {
		two := func(o *Options) { o.Tasks.MinInstances = 2 }
		a := c.member("a", two)
		require.NoError(c, a.Tasks().Register(a.counts("t", Every(time.Minute))))
		a.start()
		c.pass(5 * time.Minute)
		for n := range 3 {
			b := c.member(fmt.Sprint("b", n), two).start()
			c.pass(gateSettles / 2)
			_, err := b.stop()
			require.NoError(c, err)
			c.pass(gateSettles)
			require.True(c, a.held())
		}
		require.Empty(c, c.noted())
		c.member("b", two, func(o *Options) { o.Election.Ineligible = true }).start()
		c.pass(gateSettles + 5*time.Second)
		require.False(c, a.held())
		a.Elector().SetEligible(false)
		c.pass(2 * a.Options().Registry.HeartbeatInterval)
		require.True(c, a.Tasks().gate.holds())
		a.Elector().SetEligible(true)
		c.until(time.Minute, a.IsLeader)
		c.pass(time.Second)
		require.False(c, a.held(), "there are enough at its begin")
	})
}

// TestTasksHeldInANewTerm: a leader counts before anything starts, and does not wait if there are
// enough.
func TestTasksHeldInANewTerm(t *testing.T) {
	inCluster(t, func(c *cluster) {
		members := make(map[string]*instance)
		for _, name := range []string{"a", "b", "c"} {
			m := c.member(name, func(o *Options) { o.Tasks.MinInstances = 2 })
			require.NoError(c, m.Tasks().Register(m.counts("t", Every(time.Minute))))
			members[name] = m.start()
			c.pass(time.Second)
		}
		a, b := members["a"], members["b"]
		c.until(time.Minute, a.IsLeader)
		c.pass(3 * time.Minute)
		require.NotEmpty(c, c.noted())
		a.crash()
		c.until(time.Minute, func() bool { return b.IsLeader() || members["c"].IsLeader() })
		c.pass(time.Second)
		require.False(c, b.held() || members["c"].held())
		c.pass(2 * time.Minute)
		require.GreaterOrEqual(c, len(c.noted()), 2)
		require.Empty(c, append(b.told(EventTasksHeld), members["c"].told(EventTasksHeld)...))
	})
}

// TestTasksHeldWhileRedisIsSilent: instances that cannot be counted are as many as they were.
func TestTasksHeldWhileRedisIsSilent(t *testing.T) {
	inCluster(t, func(c *cluster) {
		two := func(o *Options) { o.Tasks.MinInstances = 2 }
		a, b := c.member("a", two).start(), c.member("b", two)
		require.NoError(c, a.Tasks().Register(a.counts("t", Every(time.Minute))))
		c.until(time.Minute, a.IsLeader)
		b.start()
		c.pass(2*time.Minute + 30*time.Second)
		require.NotEmpty(c, c.noted())
		mute := func(_, cmd string, args []string) string {
			if strings.EqualFold(cmd, "zcount") && args[0] == "tenure:beats:words" {
				return "LOADING Redis is loading the dataset in memory"
			}
			return ""
		}
		c.redis.Intercept(mute)
		_, err := b.stop()
		require.NoError(c, err)
		c.pass(5 * time.Minute)
		require.Len(c, c.noted(), 5)
		require.Equal(c, []string{"tasks_held", "tasks_released"}, a.told(EventTasksHeld, EventTasksReleased), "both before")
		c.redis.Intercept(nil)
		c.pass(a.Options().Registry.HeartbeatInterval)
		require.True(c, a.held())

		c.redis.Intercept(mute) // a term that has not counted yet
		require.NoError(c, a.Elector().Resign(background))
		c.until(time.Minute, a.IsLeader)
		c.pass(time.Minute)
		require.True(c, a.held())
		uncounted := func(e Event) bool { return e.Type == EventTasksHeld && matches(e.Err, ErrUnreachable) }
		require.Len(c, a.seen(uncounted), 1)

		c.redis.Intercept(nil)
		c.pass(a.Options().Registry.HeartbeatInterval)
		c.redis.Intercept(mute)
		require.NoError(c, a.Elector().Resign(background))
		c.until(time.Minute, a.IsLeader)
		c.pass(time.Minute)
		require.Len(c, a.seen(uncounted), 2, "once each time")
	})
}

// TestTasksHeldOptions: the number has bounds, and none holds nothing.
func TestTasksHeldOptions(t *testing.T) {
	for _, bad := range []int{-1, 100_001} {
		_, err := NewStandalone(Options{Namespace: "app", Tasks: TaskOptions{MinInstances: bad}})
		require.ErrorContains(t, err, "Tasks.MinInstances")
	}
	require.Nil(t, newTaskGate(0))
	require.Nil(t, newTaskGate(1))
}

// TestAt: due once, whoever leads, and not again after a change of leader, a restart, or the loss
// of the record.
func TestAt(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		when := g.began.Add(10*time.Minute + 100*time.Microsecond)
		task := Task{Name: "t", Schedule: At(when), Run: g.run(0)}
		a, b := g.leader("a", task), g.member("b", task)
		g.pass(9 * time.Minute)
		require.Equal(g, "at 2000-01-01T00:10:00.001Z", a.status().Schedule)
		a.end()
		b.begin()
		slots, err := b.Upcoming(context.Background(), "t", 5)
		require.NoError(g, err)
		require.Equal(g, []time.Time{time.UnixMilli(when.UnixMilli() + 1).UTC()}, slots)
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"10m0.001s t 10m0.001s #1 starts"}, g.noted())
		require.True(g, b.status().Next.IsZero())
		b.end()
		a.begin()
		g.pass(time.Hour)
		require.Empty(g, g.noted())
		a.end()
		_, err = a.TaskScheduler.store.Forget(context.Background(), "t", store.TaskForget{})
		require.NoError(g, err)
		a.begin()
		g.pass(time.Hour)
		require.Empty(g, g.noted(), "its record is lost")
		a.end()
	})
}

// TestAtThatIsMissed: Missed decides about it; without a record it is known for as long as Grace.
func TestAtThatIsMissed(t *testing.T) {
	for name, test := range map[string]struct {
		missed MissedPolicy
		seen   bool // by a leader, before
		late   time.Duration
		runs   int
	}{
		"known, hours late":          {seen: true, late: 5 * time.Hour, runs: 1},
		"known, skipped":             {seen: true, late: 5 * time.Hour, missed: MissedSkip},
		"known, skipped, in time":    {seen: true, late: 30 * time.Second, missed: MissedSkip, runs: 1},
		"not known, in time":         {late: 30 * time.Second, runs: 1},
		"not known, hours late":      {late: 5 * time.Hour},
		"known, all, hours late":     {seen: true, late: 5 * time.Hour, missed: MissedRunAll, runs: 1},
		"not known, all, in time":    {late: 30 * time.Second, missed: MissedRunAll, runs: 1},
		"not known, skip, and early": {late: -time.Minute, missed: MissedSkip, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.member("a", Task{Name: "t", Schedule: At(g.began.Add(10 * time.Minute)), Missed: test.missed, Run: g.run(0)})
				if test.seen {
					a.begin()
					g.pass(time.Minute)
					a.end()
				}
				g.pass(10*time.Minute + test.late - g.now())
				a.begin()
				g.pass(2 * time.Minute)
				require.Len(g, g.noted(), test.runs)
				a.end()
			})
		})
	}
}

// TestAtRefuses: a time that nobody can mean.
func TestAtRefuses(t *testing.T) {
	s := newTasks(nil, newEventBus("a"), "a")
	for _, bad := range []time.Time{{}, time.Unix(-1, 0), time.Now().AddDate(200, 0, 0)} {
		err := s.Register(Task{Name: "t", Schedule: At(bad), Run: func(context.Context, TaskRun) error { return nil }})
		require.ErrorContains(t, err, "between 1970")
	}
	require.Equal(t, At(time.Unix(5, 0)), scheduleOf(At(time.Unix(5, 0)).Identity()))
	require.Nil(t, scheduleOf("at noon"))
}

// TestStartingDeadline: what could not start by then is skipped and counted: slots that were
// missed, slots that wait for a run, and runs that were left behind.
func TestStartingDeadline(t *testing.T) {
	t.Run("missed", func(t *testing.T) {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Missed: MissedRunAll, StartingDeadline: 90 * time.Minute, Run: g.run(0)})
			g.pass(time.Minute)
			a.end()
			g.pass(5*time.Hour + 10*time.Minute - g.now())
			a.begin()
			g.pass(time.Minute)
			require.Equal(g, []string{"5h10m0s t 4h0m0s #1 starts", "5h10m0s t 5h0m0s #1 starts"}, g.noted())
			require.Equal(g, int64(3), a.status().Skipped)
			a.end()
			g.pass(2*time.Hour - time.Second)
			a.begin()
			g.pass(time.Second / 2)
			require.Len(g, g.noted(), 2, "6h and 7h: one is as late as may be")
			a.end()
		})
	})
	t.Run("the latest", func(t *testing.T) {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), StartingDeadline: time.Minute, Run: g.run(0)})
			g.pass(time.Minute)
			a.end()
			g.pass(3*time.Hour + 10*time.Minute - g.now())
			a.begin()
			g.pass(time.Minute)
			require.Empty(g, g.noted())
			require.Equal(g, int64(3), a.status().Skipped)
			g.pass(time.Hour)
			require.Len(g, g.noted(), 1)
			a.end()
		})
	})
	t.Run("queued", func(t *testing.T) {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Overlap: OverlapQueue, StartingDeadline: 10 * time.Minute, Run: g.run(75 * time.Minute)})
			g.pass(5 * time.Hour)
			a.end()
			starts := []string{}
			for _, line := range g.noted() {
				if len(line) > 6 && line[len(line)-6:] == "starts" {
					starts = append(starts, line)
				}
			}
			require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "3h0m0s t 3h0m0s #1 starts", "5h0m0s t 5h0m0s #1 starts"}, starts)
			require.Equal(g, int64(2), a.status().Skipped)
		})
	})
	t.Run("left behind", func(t *testing.T) {
		for late, runs := range map[time.Duration]int{20 * time.Minute: 1, 40 * time.Minute: 0} {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(24 * time.Hour), Missed: MissedRunAll, StartingDeadline: 30 * time.Minute, Run: g.run(time.Minute)}
				a, b := g.leader("a", task), g.member("b", task)
				g.pass(24*time.Hour + time.Second)
				a.crash()
				g.noted()
				g.pass(late)
				b.begin()
				g.pass(time.Minute + time.Second)
				require.Len(g, g.noted(), runs, late)
				if runs == 0 {
					require.Equal(g, RunAbandoned, b.status().Last.State)
				}
				b.end()
			})
		}
	})
	s := newTasks(nil, newEventBus("a"), "a")
	err := s.Register(Task{Name: "t", Schedule: OnDemand(), StartingDeadline: time.Millisecond, Run: func(context.Context, TaskRun) error { return nil }})
	require.ErrorContains(t, err, "Task.StartingDeadline")
}

// placed notes which instance ran which slot.
type placed struct {
	mu   sync.Mutex
	by   map[string]map[time.Time]string
	last map[string]string
}

func (p *placed) task(c *cluster, name string, on string) Task {
	return Task{Name: name, Anywhere: true, Schedule: Every(20 * time.Second), Run: func(_ context.Context, run TaskRun) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.by[name] == nil {
			p.by[name] = make(map[time.Time]string)
		}
		if before, twice := p.by[name][run.Slot]; twice {
			c.Errorf("slot %v of %s ran on %s and on %s", run.Slot, name, before, on)
		}
		p.by[name][run.Slot] = on
		p.last[name] = on
		return nil
	}}
}

// share is how many tasks ran last on each instance.
func (p *placed) share() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	share := map[string]int{}
	for _, on := range p.last {
		share[on]++
	}
	return share
}

// TestTasksAnywhere: each slot runs once, on one instance; the tasks are shared out with one that
// comes, and taken over from one that dies.
func TestTasksAnywhere(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := &placed{by: make(map[string]map[time.Time]string), last: make(map[string]string)}
		const tasks = 9
		start := func(id string) *instance {
			m := c.member(id, func(o *Options) { o.Tasks.Shards = 3 })
			for i := range tasks {
				require.NoError(c, m.Tasks().Register(p.task(c, fmt.Sprint("task-", i), id)))
			}
			return m.start()
		}
		a := start("a") // alone for a while: it leads everything
		c.pass(40 * time.Second)
		require.Equal(c, map[string]int{"a": tasks}, p.share())
		for i := range 3 {
			e, there := a.Role(fmt.Sprint("tasks.", i+1))
			require.True(c, there)
			require.True(c, e.IsLeader())
		}
		b := start("b")
		c.pass(90 * time.Second) // a role moves each 20 s
		require.Len(c, a.leading(nil), 2)
		require.Len(c, b.leading(nil), 2)
		share := p.share()
		require.Equal(c, tasks, share["a"]+share["b"])
		require.Positive(c, share["b"])

		b.crash()
		c.pass(time.Minute)
		require.Equal(c, map[string]int{"a": tasks}, p.share(), "its tasks are taken over")
		for name, slots := range p.by { // some run late, none is left out but one at the crash
			require.GreaterOrEqual(c, len(slots), 7, name)
		}
	})
}

// TestAnywhereRefuses: what contradicts itself is named, and nothing is added for it.
func TestAnywhereRefuses(t *testing.T) {
	m, err := NewStandalone(Options{InstanceID: "a"})
	require.NoError(t, err)
	run := func(context.Context, TaskRun) error { return nil }
	err = m.Tasks().Register(Task{Name: "x", Anywhere: true, Role: "other", Schedule: Every(time.Hour), Run: run})
	require.ErrorIs(t, err, ErrMisconfigured)
	require.ErrorContains(t, err, "must be empty with Anywhere")
	require.Error(t, m.Tasks().Register(Task{Name: "x", Anywhere: true, Run: run}), "no schedule")
	require.Len(t, m.Roles(), 1)
	require.NoError(t, m.Tasks().Register(Task{Name: "x", Anywhere: true, Schedule: Every(time.Hour), Run: run}))
	require.ErrorContains(t, m.Tasks().Register(Task{Name: "x", Anywhere: true, Schedule: Every(time.Hour), Run: run}), "is registered already")
	require.Len(t, m.Roles(), 2)
	require.Equal(t, shard("x", 8), m.Roles()[1].Role())
	for _, shards := range []int{-1, 1001} {
		_, err := NewStandalone(Options{Tasks: TaskOptions{Shards: shards}})
		require.ErrorContains(t, err, "Tasks.Shards")
	}
}

// TestAnywhereTogether: tasks of one shard that are registered at the same moment add it once.
func TestAnywhereTogether(t *testing.T) {
	m, err := NewStandalone(Options{InstanceID: "a", Tasks: TaskOptions{Shards: 1}})
	require.NoError(t, err)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			err := m.Tasks().Register(Task{
				Name: fmt.Sprint("t", i), Anywhere: true, Schedule: OnDemand(), Run: func(context.Context, TaskRun) error { return nil },
			})
			require.NoError(t, err)
		})
	}
	all.Wait()
	require.Len(t, m.Roles(), 2)
}

// TestShardsAreNothingButTasks: what the options say of the default role does not hold for the
// roles that tasks are dealt to, but for its times.
func TestShardsAreNothingButTasks(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a-1", func(o *Options) {
			o.Tasks.Shards = 1
			o.Election.Priority, o.Election.ByInstanceID, o.Election.LeaderKey, o.Election.LeaseTTL = 3, true, "mine", 20*time.Second
			o.Election.Lead = []LeadFunc{func(_ context.Context, term Term) error {
				c.note("%q", term.Role)
				return nil
			}}
		})
		require.NoError(c, a.Tasks().Register(Task{Name: "t", Anywhere: true, Schedule: OnDemand(), Run: noTask}))
		a.start()
		shard := a.Roles()[1]
		c.until(time.Minute, func() bool { return a.IsLeader() && shard.IsLeader() })
		c.pass(time.Second)
		require.Equal(c, []string{`""`}, c.noted())
		require.Zero(c, shard.loop.preference.Priority)
		require.Equal(c, 20*time.Second, shard.loop.opts.LeaseTTL)
		require.False(c, shard.loop.opts.ByInstanceID)
		require.Equal(c, "a-1", c.holder("tenure:leader:tasks.1"))
	})
}

// TestShards: a task keeps its place for ever: another deal would have it move with an upgrade.
func TestShards(t *testing.T) {
	require.Equal(t, "tasks.1", shard("report", 1))
	require.Equal(t, []string{"tasks.4", "tasks.6", "tasks.7"}, []string{shard("report", 8), shard("tidy", 8), shard("mail", 8)})
}
