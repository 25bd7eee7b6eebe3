package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestForget: an orphan is removed once a leader that does not know it has led for a minute, and
// nothing else is.
func TestForget(t *testing.T) {
	inCluster(t, func(c *cluster) {
		ctx := context.Background()
		a := c.member("a")
		require.NoError(c, a.Tasks().Register(a.counts("old", Every(time.Hour))))
		a.start()
		c.pass(2*time.Hour + time.Minute)
		control := c.control("ops")
		require.ErrorIs(c, a.Tasks().Forget(ctx, "old"), ErrRegistered, "here")
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrRegistered, "by the leader")
		require.ErrorIs(c, control.Forget(ctx, "none"), ErrNotFound)
		require.ErrorIs(c, control.Tasks().Forget(ctx, "no name"), ErrMisconfigured)
		_, err := a.stop()
		require.NoError(c, err)
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrNoLeader)
		b := c.member("b")
		b.start()
		c.pass(30 * time.Second)
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrNoLeader, "it may be about to take it over")
		c.pass(time.Minute)
		require.NoError(c, control.Forget(ctx, "old"))
		list, err := b.Tasks().List(ctx)
		require.NoError(c, err)
		require.Empty(c, list)
		runs, err := b.Tasks().Runs(ctx, "old", 10)
		require.NoError(c, err)
		require.Empty(c, runs)
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrNotFound)
	})
}

// TestForgetWithoutRedis: records in memory have one process.
func TestForgetWithoutRedis(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a, b := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}), g.member("b")
		g.pass(time.Hour + time.Minute)
		require.ErrorIs(g, a.Forget(g.Context(), "t"), ErrRegistered)
		a.end()
		require.NoError(g, b.Forget(g.Context(), "t"))
		require.ErrorIs(g, b.Forget(g.Context(), "t"), ErrNotFound)
		runs, err := b.Runs(g.Context(), "t", 10)
		require.NoError(g, err)
		require.Empty(g, runs)
	})
}
