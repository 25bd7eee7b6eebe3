package tenure

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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

// TestShards: a task keeps its place for ever: another deal would have it move with an upgrade.
func TestShards(t *testing.T) {
	require.Equal(t, "tasks.1", shard("report", 1))
	require.Equal(t, []string{"tasks.4", "tasks.6", "tasks.7"}, []string{shard("report", 8), shard("tidy", 8), shard("mail", 8)})
}
