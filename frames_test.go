package tenure

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestHugeHolderIsCut: whatever a foreign client writes into the lease key, or the term hash, it
// takes a few bytes with us, and never passes for an ID.
func TestHugeHolderIsCut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		long := strings.Repeat("x", 128)
		c.redis.Do(func(m *miniredis.Miniredis) {
			require.NoError(c, m.Set("tenure:leader", long+strings.Repeat("y", 1<<20)))
			m.HSet("tenure:leader:term", "origin", strings.Repeat("z", 1<<20))
		})
		a := c.member(long).start()
		c.pass(time.Second)
		status := a.Elector().Status()
		require.Equal(c, long+"…", status.Leader)
		require.Zero(c, status.LeaderToken)
		require.False(c, store.IDPattern.MatchString(status.Leader))
		leader, err := a.Elector().Leader(c.Context())
		require.NoError(c, err)
		require.Equal(c, long+"…", leader.InstanceID)
	})
}

// TestHolderWithoutANameIsReported: a foreign client may write an empty text into the lease key.
// That is not the same as no leader.
func TestHolderWithoutANameIsReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		e := c.member("a").Elector()
		_, err := e.Leader(c.Context())
		require.ErrorIs(c, err, ErrNoLeader)
		c.redis.Do(func(m *miniredis.Miniredis) { require.NoError(c, m.Set("tenure:leader", "")) })
		leader, err := e.Leader(c.Context())
		require.NoError(c, err)
		require.Equal(c, LeaderInfo{Remaining: leader.Remaining}, leader)
	})
}
