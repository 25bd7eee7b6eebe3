package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStandaloneLife(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "alone"})
		_, err := a.Elector().Leader(context.Background())
		require.ErrorIs(c, err, ErrNoLeader)
		other, err := a.Role("other", ElectionOptions{Lead: []LeadFunc{a.works("other", 0)}})
		require.NoError(c, err)
		a.start(a.works("work", time.Second))
		require.True(c, a.IsLeader(), "at once")
		require.True(c, other.IsLeader())
		late, err := a.Role("late", ElectionOptions{})
		require.NoError(c, err)
		c.pass(0)
		require.True(c, late.IsLeader())
		require.Equal(c, []string{"alone active"}, a.list())
		instance, err := a.Registry().Instance(context.Background(), "alone")
		require.NoError(c, err)
		require.Equal(c, a.Registry().incarnation, instance.Incarnation)
		term, _ := a.Elector().Term()
		leader, err := a.Elector().Leader(context.Background())
		require.NoError(c, err)
		require.Equal(c, LeaderInfo{InstanceID: "alone", Token: term.Token, Since: term.Since, Remaining: forever}, leader)
		c.pass(10 * time.Hour)
		require.True(c, term.Valid())

		took, err := a.stop()
		require.NoError(c, err)
		require.Equal(c, time.Second, took)
		require.False(c, a.IsLeader())
		for _, e := range []*Elector{a.Elector(), other, late} {
			_, err = e.Leader(context.Background())
			require.ErrorIs(c, err, ErrNoLeader)
		}
		require.Empty(c, a.list())
		require.ErrorIs(c, a.Run(context.Background()), ErrStopped)
		require.Empty(c, a.told(EventTaskBlocked, EventSweepFailed, EventHeartbeatFailed, EventRedisDown, EventWorkFailed))
	})
}

func TestStandaloneTokensIncrease(t *testing.T) {
	inCluster(t, func(c *cluster) {
		last := int64(0)
		for range 3 { // starts of the program
			a := c.alone(Options{InstanceID: "alone"})
			a.start()
			for range 3 { // terms
				c.until(time.Minute, a.IsLeader)
				term, ok := a.Elector().Term()
				require.True(c, ok)
				require.Greater(c, term.Token, last)
				last = term.Token
				require.NoError(c, a.Elector().Resign(context.Background()))
				_, err := a.Elector().Leader(context.Background())
				require.ErrorIs(c, err, ErrNoLeader)
			}
			_, err := a.stop()
			require.NoError(c, err)
		}
	})
}

// The records of tasks live as long as the process.
func TestStandaloneTasksGoOnAfterAResignation(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "alone"})
		require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(time.Minute))))
		a.start()
		c.pass(90 * time.Second)
		require.NoError(c, a.Elector().Resign(context.Background()))
		c.pass(91 * time.Second)
		require.Equal(c, []string{"alone tidy 1m0s", "alone tidy 2m0s", "alone tidy 3m0s"}, c.noted())
		runs, err := a.Tasks().Runs(context.Background(), "tidy", 10)
		require.NoError(c, err)
		require.Len(c, runs, 3)
	})
}

func TestStandaloneStandsBackAfterFailedWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{})
		a.start(func(context.Context, Term) error {
			c.note("led at %v", c.now().Truncate(time.Second))
			return ErrNotFound
		})
		c.pass(8 * time.Second)
		require.False(c, a.IsLeader())
		require.Equal(c, []string{"led at 0s", "led at 1s", "led at 3s", "led at 7s"}, c.noted())
		_, err := a.stop()
		require.NoError(c, err)
	})
}

func TestStandaloneHealth(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var health error
		a := c.alone(Options{Election: ElectionOptions{RenewInterval: time.Second, Health: func(context.Context) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			return health
		}}})
		a.start()
		c.pass(2 * time.Second)
		require.True(c, a.IsLeader())
		c.mu.Lock()
		health = ErrUnreachable
		c.mu.Unlock()
		c.pass(2 * time.Second)
		require.False(c, a.IsLeader())
	})
}

func TestStandaloneRefusesBadOptions(t *testing.T) {
	a, err := NewStandalone(Options{InstanceID: "a b", Election: ElectionOptions{LeaseTTL: 1}})
	require.ErrorIs(t, err, ErrMisconfigured)
	require.ErrorContains(t, err, "InstanceID")
	require.ErrorContains(t, err, "Election.LeaseTTL")
	require.Nil(t, a)
}

// A coordinator whose leases a test grants.
func TestControlledCoordinator(t *testing.T) {
	inCluster(t, func(c *cluster) {
		coordinator, control, err := newLocal(Options{InstanceID: "alone"}, false, forTests)
		require.NoError(c, err)
		a := c.join("alone", coordinator)
		other, err := a.Role("other", ElectionOptions{})
		require.NoError(c, err)
		leading := func() (some, all bool) { return controlled{control, coordinator}.Leading() }
		a.start()
		c.pass(time.Hour)
		some, all := leading()
		require.False(c, some || all)
		require.Equal(c, WaitHold, other.Status().Waiting)
		for range 3 {
			control.Grant(true)
			c.pass(25 * time.Millisecond)
			_, all = leading()
			require.True(c, all)
			control.Grant(true)
			control.Grant(true)
			c.pass(time.Second)
			_, all = leading()
			require.True(c, all)
			control.Grant(false)
			c.pass(25 * time.Millisecond)
			some, _ = leading()
			require.False(c, some)
		}
		require.Len(c, a.told(EventAcquired), 6)
		require.Len(c, a.told(EventEnded), 6)
	})
}
