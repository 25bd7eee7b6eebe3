package tenure

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
		takes := time.Duration(0)
		require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: Every(time.Minute), Run: func(ctx context.Context, run TaskRun) error {
			c.note("%v %q", run.Slot.Sub(c.began).Round(time.Minute), run.Args)
			time.Sleep(takes)
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
		takes = 5 * time.Minute
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
		mute := func(_, cmd string, _ []string) string {
			if strings.EqualFold(cmd, "hscan") {
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
		held := a.seen(func(e Event) bool { return e.Type == EventTasksHeld })
		require.ErrorIs(c, held[len(held)-1].Err, ErrUnreachable)
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
