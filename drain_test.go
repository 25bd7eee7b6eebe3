package tenure

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDrain: a process that drains says so, hands over every role, and leads nothing, however often
// the others resign, until it is undrained.
func TestDrain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		_, err := a.AddRole("mail", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		a.start(a.works("work", 2*time.Second))
		mail, _ := a.Role("mail")
		c.until(time.Minute, func() bool { return a.IsLeader() && mail.IsLeader() })
		b := c.member("b")
		_, err = b.AddRole("mail", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		b.start()
		c.pass(time.Second)

		began := c.now()
		require.NoError(c, a.Drain(context.Background()))
		require.Equal(c, 2*time.Second, (c.now() - began).Round(time.Second/10), "it waits for the work")
		require.True(c, a.IsDraining())
		require.Equal(c, "draining", a.record())
		c.until(time.Second, func() bool { return b.IsLeader() && c.holder("tenure:leader:mail") == "b" })
		require.Equal(c, []string{"a work leads #1", "a work drained"}, c.noted())
		require.NoError(c, a.Drain(context.Background()), "again")
		require.Equal(c, WaitDraining, a.Elector().Status().Waiting)
		require.True(c, a.Elector().IsEligible(), "the word of the application is another matter")

		late, err := a.AddRole("late", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		require.NoError(c, b.Elector().Resign(context.Background()))
		c.pass(time.Minute)
		require.Equal(c, "b", c.holder("tenure:leader"))
		require.False(c, a.IsLeader() || late.IsLeader())
		require.Equal(c, []string{"drain_began", "drain_done"}, a.told(EventDrainBegan, EventDrainDone, EventDrainEnded))

		a.Undrain()
		a.Undrain()
		require.False(c, a.IsDraining())
		c.until(time.Minute, late.IsLeader)
		c.pass(time.Minute)
		require.Equal(c, "active", a.record())
		require.True(c, b.IsLeader(), "nobody gives way")
		require.NoError(c, b.Elector().Resign(context.Background()))
		c.until(time.Second, a.IsLeader)
		require.Equal(c, []string{"drain_ended"}, a.told(EventDrainEnded))
	})
}

// TestDrainOfTheIneligible: the end of a drain does not make eligible what was not.
func TestDrainOfTheIneligible(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.Ineligible = true })
		require.NoError(c, a.Drain(context.Background()), "before Run")
		a.start()
		c.pass(time.Second)
		require.Equal(c, "draining", a.record(), "from its first heartbeat on")
		a.Undrain()
		c.pass(time.Minute)
		require.Equal(c, "active", a.record())
		require.False(c, a.IsLeader())
		require.Equal(c, WaitIneligible, a.Elector().Status().Waiting)
		a.Elector().SetEligible(true)
		c.until(time.Second, a.IsLeader)
	})
}

// TestDrainLetsTasksFinish: a task that runs when the drain begins comes to its end.
func TestDrainLetsTasksFinish(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		require.NoError(c, a.Tasks().Register(Task{Name: "tidy", Schedule: Every(time.Minute), Run: func(ctx context.Context, _ TaskRun) error {
			select {
			case <-time.After(3 * time.Second):
				c.note("done")
			case <-ctx.Done():
				c.note("cut short")
			}
			return ctx.Err()
		}}))
		a.start()
		c.until(5*time.Minute, func() bool { return len(a.told(EventTaskStarted)) > 0 })
		require.NoError(c, a.Drain(context.Background()))
		require.Equal(c, []string{"done"}, c.noted())
		require.Len(c, a.told(EventTaskFinished), 1)
	})
}

// TestDrainIsBounded by its context, by the work that it is called in, by ShutdownTimeout and by
// the stop of Run.
func TestDrainIsBounded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 10 * time.Second })
		hung := make(chan struct{})
		a.start(func(ctx context.Context, _ Term) error {
			<-ctx.Done()
			<-hung
			return nil
		})
		c.until(time.Minute, a.IsLeader)
		impatient, cancel := context.WithTimeoutCause(context.Background(), time.Second, errBroken)
		defer cancel()
		require.ErrorIs(c, a.Drain(impatient), errBroken)
		require.True(c, a.IsDraining(), "it goes on")
		err := a.Drain(context.Background())
		require.ErrorIs(c, err, ErrDrainTimeout)
		require.ErrorContains(c, err, "leader work")
		require.ErrorIs(c, a.Drain(context.Background()), ErrDrainTimeout, "it still runs")
		close(hung)
		c.pass(time.Second)
		require.NoError(c, a.Drain(context.Background()))
		_, err = a.stop()
		require.NoError(c, err)
		require.ErrorIs(c, a.Drain(context.Background()), ErrStopped)
		a.Undrain()
		require.True(c, a.IsDraining(), "it has stopped")
	})
}

// TestDrainInsideWork: work that drains its own process does not wait for itself.
func TestDrainInsideWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(func(ctx context.Context, _ Term) error {
			c.note("drain: %v", a.Drain(ctx))
			<-ctx.Done()
			return nil
		})
		c.until(time.Minute, func() bool { return a.IsDraining() && c.holder("tenure:leader") == "" })
		require.Equal(c, []string{"drain: <nil>"}, c.noted())
	})
}

// TestDrainEndedMeanwhile: who waits for a drain that somebody ends does not wait for ever.
func TestDrainEndedMeanwhile(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(a.works("work", 5*time.Second))
		c.until(time.Minute, a.IsLeader)
		ended := make(chan error, 1)
		go func() { ended <- a.Drain(context.Background()) }()
		c.pass(time.Second)
		a.Undrain()
		synctest.Wait()
		require.NoError(c, <-ended)
		require.Empty(c, a.told(EventDrainDone))
		c.until(time.Minute, a.IsLeader)
	})
}

// TestStopWhileDraining: the record says that the process is on its way out until it is gone.
func TestStopWhileDraining(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.until(time.Minute, a.IsLeader)
		require.NoError(c, a.Drain(context.Background()))
		took, err := a.stop()
		require.NoError(c, err)
		require.Less(c, took, time.Second)
		require.Empty(c, a.record())
	})
}

// TestStandaloneDrains: without Redis nobody takes over, and the process leads again at once.
func TestStandaloneDrains(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"}).start()
		c.until(time.Minute, a.IsLeader)
		require.NoError(c, a.Drain(context.Background()))
		c.pass(time.Minute)
		require.False(c, a.IsLeader())
		require.Equal(c, []string{"a draining"}, a.list())
		a.Undrain()
		c.until(time.Minute, a.IsLeader)
		require.Equal(c, []string{"a active"}, a.list())
	})
}

// TestDrainDoneWaitsForTheWork: work that drains its process does not wait for itself, and nobody
// says that the drain is done while it runs.
func TestDrainDoneWaitsForTheWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(func(ctx context.Context, _ Term) error {
			require.NoError(c, a.Drain(ctx))
			<-ctx.Done()
			time.Sleep(5 * time.Second)
			return nil
		})
		c.until(time.Minute, a.IsDraining)
		c.pass(time.Second)
		require.Empty(c, a.told(EventDrainDone))
		require.NoError(c, a.Drain(context.Background()))
		require.Len(c, a.told(EventDrainDone), 1)
	})
}

// TestUndrainOfARoleThatIsBarred: Undrain ends the wait of Drain, also if the application has said
// that this process may not lead.
func TestUndrainOfARoleThatIsBarred(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 10 * time.Second })
		hung := make(chan struct{})
		a.start(func(context.Context, Term) error { <-hung; return nil })
		defer close(hung)
		c.until(time.Minute, a.IsLeader)
		a.Elector().SetEligible(false)
		ended := make(chan error, 1)
		go func() { ended <- a.Drain(context.Background()) }()
		c.pass(time.Second)
		a.Undrain()
		c.pass(time.Second)
		require.Len(c, ended, 1, "Drain still waits")
		require.NoError(c, <-ended)
	})
}

// TestUndrainBesideTheFirstBeat: whichever comes first, the instance is active behind both.
func TestUndrainBesideTheFirstBeat(t *testing.T) {
	for range 200 {
		c, err := NewStandalone(Options{InstanceID: "a"})
		require.NoError(t, err)
		require.NoError(t, c.Drain(background))
		var both sync.WaitGroup
		both.Go(c.Registry().takePart)
		both.Go(c.Undrain)
		both.Wait()
		require.Equal(t, InstanceActive, c.Registry().status)
	}
}
