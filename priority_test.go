package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// preferring is a member with a priority.
func (c *cluster) preferring(name string, priority int, preempt time.Duration) *instance {
	return c.member(name, func(o *Options) { o.Election.Priority, o.Election.Preempt = priority, preempt })
}

// leader is who leads; nil: nobody.
func (c *cluster) leader() *instance {
	for _, m := range c.members {
		if m.IsLeader() {
			return m
		}
	}
	return nil
}

// TestPriority: in each vacancy the best candidate that asks comes to lead, and no sooner: not
// because it joins.
func TestPriority(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.preferring("low", -1, 0).start()
		c.until(time.Minute, func() bool { return c.leader() != nil })
		for _, name := range []string{"a", "b", "c"} {
			c.preferring(name, 0, 0).start()
		}
		top, second := c.preferring("top", 5, 0).start(), c.preferring("second", 3, 0).start()
		c.pass(2 * time.Minute)
		require.Equal(c, "low", c.leader().name, "nobody takes over because a better one joins")
		require.NoError(c, c.leader().Elector().Resign(context.Background()))
		took := c.until(time.Minute, func() bool { return c.leader() != nil })
		require.Equal(c, "top", c.leader().name)
		require.Less(c, took, 100*time.Millisecond, "it was called")
		c.pass(20 * time.Second)
		top.crash()
		took = c.until(time.Minute, func() bool { return c.leader() != nil })
		require.Equal(c, "second", c.leader().name)
		require.Less(c, took, 10*time.Second+100*time.Millisecond, "no later than without priorities")
		c.pass(20 * time.Second)
		second.crash()
		c.until(time.Minute, func() bool { return c.leader() != nil })
		require.Contains(c, []string{"a", "b", "c"}, c.leader().name, "low comes last")
	})
}

// TestBestThatDoesNotCome costs a slice, whoever else is there: then anyone leads.
func TestBestThatDoesNotCome(t *testing.T) {
	inCluster(t, func(c *cluster) {
		leader := c.preferring("leader", 0, 0).start()
		c.until(time.Minute, func() bool { return leader.IsLeader() })
		other, top := c.preferring("other", 0, 0).start(), c.preferring("top", 5, 0).start()
		c.pass(20 * time.Second)
		top.crash()
		require.NoError(c, leader.Elector().Resign(context.Background()))
		waits := false
		took := c.until(time.Minute, func() bool {
			waits = waits || other.Elector().Status().Waiting == WaitYield
			return c.leader() != nil
		})
		require.Equal(c, "other", c.leader().name)
		require.True(c, waits)
		slice := other.Elector().Guarantees().Yield
		require.Equal(c, time.Second, slice)
		require.InDelta(c, slice, took, float64(50*time.Millisecond))
	})
}

// TestPreemptInACluster: a leader gives way to a better candidate that has been there for long,
// once.
func TestPreemptInACluster(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const patience = 30 * time.Second
		leader := c.preferring("leader", 1, patience).start()
		c.until(time.Minute, func() bool { return leader.IsLeader() })
		c.pass(2 * time.Minute)
		top := c.preferring("top", 5, patience).start()
		joined := c.now()
		c.until(5*time.Minute, func() bool { return c.leader() != nil && c.leader() == top })
		require.GreaterOrEqual(c, c.now()-joined, patience)
		require.Less(c, c.now()-joined, patience+15*time.Second)
		offered := leader.witness.told(EventTransferOffered)
		require.Len(c, offered, 1)
		require.Equal(c, "top", offered[0].Subject)
		require.Equal(c, "transferred", leader.witness.told(EventTermEnded)[0].Reason)
		token := top.Elector().Status().Token
		c.pass(10 * time.Minute)
		require.Equal(c, token, top.Elector().Status().Token)
	})
}

// TestPriorityIsChecked: it travels with each request.
func TestPriorityIsChecked(t *testing.T) {
	for priority, fits := range map[int]bool{0: true, -1000: true, 1000: true, -1001: false, 1001: false} {
		_, err := NewStandalone(Options{Namespace: "ns", Election: ElectionOptions{Priority: priority}})
		if fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrMisconfigured)
			require.ErrorContains(t, err, "Election.Priority")
		}
	}
}
