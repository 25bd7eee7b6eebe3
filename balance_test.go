package tenure

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sharing is a member with that many roles that are spread, beside a default one that is not its.
func (c *cluster) sharing(name string, roles int, change ...func(*ElectionOptions)) *instance {
	m := c.member(name, func(o *Options) { o.Election.Ineligible = true })
	for i := range roles {
		opts := ElectionOptions{LeaseTTL: 10 * time.Second, Spread: true}
		for _, change := range change {
			change(&opts)
		}
		_, err := m.AddRole(fmt.Sprint("shard-", i), opts)
		require.NoError(c, err)
	}
	return m
}

// loads are how many roles each of these members leads, the least first.
func loads(members ...*instance) (led []int) {
	for _, m := range members {
		led = append(led, len(m.leading(nil)))
	}
	slices.Sort(led)
	return led
}

// transfers is how many terms have ended for another.
func transfers(members ...*instance) (n int) {
	for _, m := range members {
		for _, e := range m.witness.told(EventTermEnded) {
			if e.Reason == "transferred" {
				n++
			}
		}
	}
	return n
}

// TestSpread: roles that one process leads, since it was there first, go to others one by one,
// until no process leads two more than another, and then they stay. What a dead process led is
// shared out too, and it gets its share when it comes back.
func TestSpread(t *testing.T) {
	inCluster(t, func(c *cluster) {
		const roles, preempt = 5, 20 * time.Second
		first := c.sharing("first", roles).start()
		c.until(time.Minute, func() bool { return slices.Equal(loads(first), []int{roles}) })
		second, third := c.sharing("second", roles).start(), c.sharing("third", roles).start()
		began := c.now()
		even := func(members ...*instance) bool {
			led := loads(members...)
			sum := 0
			for _, n := range led {
				sum += n
			}
			return sum == roles && led[len(led)-1]-led[0] <= 1
		}
		settle := func(bound time.Duration, members ...*instance) {
			for end := c.now() + bound; !even(members...); c.pass(200 * time.Millisecond) {
				require.Less(c, c.now(), end, "%v", loads(members...))
			}
		}
		settle(5*preempt, first, second, third)
		require.GreaterOrEqual(c, c.now()-began, 3*preempt, "one at a time, the last is the third")
		require.Equal(c, 3, transfers(c.members...))
		c.pass(2 * time.Minute)
		require.Equal(c, 3, transfers(c.members...), "nothing moves any more")
		require.True(c, even(first, second, third))

		second.crash()
		settle(2*time.Minute, first, third)
		again := c.sharing("again", roles).start()
		settle(3*time.Minute, first, third, again)
	})
}

// TestSpreadFromTheStart: roles of processes that start together do not all go to the fastest.
func TestSpreadFromTheStart(t *testing.T) {
	count := map[string]int{}
	for i := range 300 {
		best := slices.MaxFunc([]string{"node-1", "node-2", "node-3"}, func(a, b string) int {
			o := ElectionOptions{Role: fmt.Sprint("shard-", i), Spread: true}
			return o.order(a) - o.order(b)
		})
		count[best]++
	}
	for name, n := range count {
		require.InDelta(t, 100, n, 35, name)
	}
}

// TestByInstanceID: the number at the end decides, as a number.
func TestByInstanceID(t *testing.T) {
	sorted := []string{"db-7-node-0", "node9", "node10", "web-2-node-010x11", "node-997", "node-998"}
	by := ElectionOptions{ByInstanceID: true, Spread: true}
	for i, id := range sorted[1:] {
		require.Less(t, by.order(id), by.order(sorted[i]), id)
	}
	for _, last := range []string{"node", "node-99999", "node-99999999999999999999", "9node"} {
		require.Equal(t, 1, by.order(last), last)
	}
	require.Zero(t, ElectionOptions{}.order("node9"))
	inCluster(t, func(c *cluster) {
		member := func(name string) *instance {
			return c.member(name, func(o *Options) { o.Election.ByInstanceID = true }).start()
		}
		ten := member("node10")
		c.until(time.Minute, func() bool { return ten.IsLeader() })
		member("node11")
		nine := member("node9")
		c.pass(time.Minute)
		require.True(c, ten.IsLeader(), "it decides nothing before there is a vacancy")
		require.NoError(c, ten.Elector().Resign(context.Background()))
		c.until(time.Second, func() bool { return c.leader() != nil })
		require.True(c, nine.IsLeader())
	})
}

// TestTurns: one role per interval.
func TestTurns(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var b balance
		require.True(c, b.turn(time.Minute))
		c.pass(time.Minute - 1)
		require.False(c, b.turn(time.Minute))
		c.pass(1)
		require.True(c, b.turn(time.Minute))
		require.False(c, b.turn(time.Minute))
	})
}
