package tenure

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	inTaskCluster(t, func(g *taskCluster) {
		c := &throng{g: g}
		a := g.bounded(1)
		greedy := c.task("greedy", Every(time.Second), 10*time.Second)
		greedy.Overlap = OverlapQueue
		require.NoError(g, a.Register(greedy))
		require.NoError(g, a.Register(c.task("modest", Every(10*time.Minute), time.Second)))
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
