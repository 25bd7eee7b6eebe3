package tenure

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHungRunDoesNotFlood: the slots that pass during one run are two events, and a write a minute at most.
func TestHungRunDoesNotFlood(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		release := make(chan struct{})
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Second), Run: func(context.Context, TaskRun) error {
			<-release
			return nil
		}})
		g.pass(10*time.Second + 500*time.Millisecond)
		require.Len(g, g.told(EventTaskSkipped), 1, "the first at once")
		require.Equal(g, 1, g.told(EventTaskSkipped)[0].Count)
		before := a.store.calls.Load()
		g.pass(time.Hour)
		require.InDelta(g, 60, a.store.calls.Load()-before, 5)
		require.Len(g, g.told(EventTaskSkipped), 1)
		close(release)
		g.pass(time.Second)
		told := 0
		for _, e := range g.told(EventTaskSkipped) {
			told += e.Count
		}
		require.InDelta(g, 3609, told, 1)
		require.Equal(g, int64(told), a.status().Skipped)
		require.LessOrEqual(g, len(g.told(EventTaskSkipped)), 3)
		require.Equal(g, 3*time.Second, g.told(EventTaskSkipped)[1].Slot.Sub(g.began), "the first of the rest")
		a.end()
	})
}

// TestSlowRunIsReported: once, against what is usual in this process, or against the next slot.
func TestSlowRunIsReported(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		var takes atomic.Int64
		takes.Store(int64(10 * time.Minute)) // the first run: an interval of an hour is not reached
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: func(ctx context.Context, run TaskRun) error { return g.run(time.Duration(takes.Load()))(ctx, run) }})
		g.pass(90 * time.Minute)
		takes.Store(int64(99 * time.Minute))
		g.pass(time.Hour)
		require.Empty(g, g.told(EventTaskSlow))
		takes.Store(int64(5 * time.Hour))
		g.pass(5*time.Hour - time.Minute) // begun at 4 h; the mean is 10 + 89/4 minutes
		require.Empty(g, g.told(EventTaskSlow), "not ten times as long as usual")
		g.pass(10 * time.Hour)
		slow := g.told(EventTaskSlow)
		require.Empty(g, slow, "nor before it ended")
		takes.Store(int64(100 * time.Hour))
		g.pass(40 * time.Hour)
		slow = g.told(EventTaskSlow)
		require.Len(g, slow, 1)
		require.Greater(g, slow[0].Took, 15*time.Hour)
		a.end()
	})
	onTaskStage(t, func(g *taskStage) { // the first run of a process hangs
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Hour * 1000)})
		g.pass(2*time.Hour - time.Second)
		require.Empty(g, g.told(EventTaskSlow))
		g.pass(10 * time.Hour)
		slow := g.told(EventTaskSlow)
		require.Len(g, slow, 1)
		require.Equal(g, time.Hour, slow[0].Took)
		require.Equal(g, time.Hour, slow[0].Slot.Sub(g.began))
		a.end()
	})
	onTaskStage(t, func(g *taskStage) { // no less than a minute
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Second), Run: g.run(59 * time.Second)})
		g.pass(10 * time.Minute)
		require.Empty(g, g.told(EventTaskSlow))
		a.end()
	})
}
