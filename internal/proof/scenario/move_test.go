//go:build unix

package scenario

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// TestMoveToAnotherRedis: what docs/upgrading.md says of a service that moves. The new Redis is a
// replica of the old one until all instances have stopped. Tokens, slots and pauses go on there.
func TestMoveToAnotherRedis(t *testing.T) {
	s := newParallelStage(t, time.Second)
	const interval = 100 * time.Millisecond
	old := redistest.Start(t)
	moved := redistest.Start(t, redistest.ReplicaOf(old))
	serve := func(on *redistest.Server, during func(*tenure.Coordinator)) (first, last tenure.TaskRun) {
		c, err := tenure.New(on.Client(t), tenure.Options{Namespace: namespace, InstanceID: "a", Election: tenure.ElectionOptions{LeaseTTL: s.ttl}})
		require.NoError(t, err)
		ran := make(chan tenure.TaskRun)
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "goes-on", Schedule: tenure.Every(interval), Missed: tenure.MissedRunAll, MaxCatchUp: 10_000,
			Run: func(_ context.Context, run tenure.TaskRun) error { ran <- run; return nil },
		}))
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "paused", Schedule: tenure.Every(time.Hour), Run: func(context.Context, tenure.TaskRun) error { return nil },
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // awaited below
		first = <-ran
		last = <-ran
		during(c)
		stop()
		for {
			select {
			case last = <-ran:
			case err := <-ended:
				require.NoError(t, err)
				return first, last
			}
		}
	}
	_, before := serve(old, func(c *tenure.Coordinator) { require.NoError(t, c.Tasks().Pause(t.Context(), "paused", "audit")) })
	moved.WaitReplicated(t)
	moved.Promote(t)
	after, _ := serve(moved, func(c *tenure.Coordinator) {
		tasks, err := c.Tasks().List(t.Context())
		require.NoError(t, err)
		require.Equal(t, "audit", tasks[1].Pause.Reason)
	})
	require.Greater(t, after.Token, before.Token)
	require.Equal(t, before.Slot.Add(interval), after.Slot)
}
