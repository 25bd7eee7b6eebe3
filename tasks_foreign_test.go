package tenure

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestForeignRecordSaysHowToRepairIt: a task whose record says that it belongs to a lease that
// nobody can have is reported once, with what to do, and goes on within a minute of that.
func TestForeignRecordSaysHowToRepairIt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.redis.Do(func(m *miniredis.Miniredis) {
			m.HSet("tenure:task:t", "lease", strings.Repeat("no lease ", 1000), "token", "900000000000")
		})
		a := c.member("a")
		require.NoError(t, a.Tasks().Register(a.counts("t", Every(10*time.Second))))
		a.start()
		c.pass(5 * time.Minute)
		require.Empty(c, c.noted())
		require.Len(c, a.told(EventTaskBlocked), 1)
		status, err := a.Tasks().Tasks(context.Background())
		require.NoError(c, err)
		require.ErrorIs(c, status[0].Err, ErrMisconfigured)
		require.ErrorContains(c, status[0].Err, "remove the fields lease and token")
		require.Less(c, len(status[0].Err.Error()), 500)
		c.redis.Do(func(m *miniredis.Miniredis) {
			m.HDel("tenure:task:t", "lease")
			m.HDel("tenure:task:t", "token")
		})
		c.pass(90 * time.Second)
		require.NotEmpty(c, c.noted())
	})
}

// TestTaskVerdictsThatNobodyGives: they run nothing, are told once, and are asked for with pauses.
func TestTaskVerdictsThatNobodyGives(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		hook := &simnet.Liar{}
		a.client.AddHook(hook)
		require.NoError(t, a.Tasks().Register(a.counts("t", Every(10*time.Second))))
		hook.Lie("nonsense", "")
		a.start()
		c.pass(5 * time.Minute)
		require.Empty(t, c.noted())
		require.Len(t, a.told(EventTaskBlocked), 1)
		require.Less(t, hook.Lie("", ""), 5*60)
		c.pass(time.Minute)
		require.NotEmpty(t, c.noted())
	})
}
