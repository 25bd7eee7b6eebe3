package tenuretest_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenuretest"
)

func run(t *testing.T, c *tenure.Coordinator, lead ...tenure.LeadFunc) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, lead...) }()
	return func() error {
		cancel()
		return <-done
	}
}

func TestLeadAndDepose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 2)
		c, control := tenuretest.New(t, tenure.Options{})
		stop := run(t, c, func(ctx context.Context, _ tenure.Term) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		time.Sleep(time.Hour)
		require.False(t, c.IsLeader(), "a follower until Lead")

		control.Lead()
		require.True(t, c.IsLeader())
		first, ok := c.Elector().Term()
		require.True(t, ok)
		for range 3600 { // between its renewals, too
			time.Sleep(time.Second)
			require.True(t, first.Valid(), "leases do not expire")
			status := c.Elector().Status()
			require.Equal(t, c.InstanceID(), status.Leader, "nor is the leader forgotten")
			require.Equal(t, first.Token, status.LeaderToken)
		}

		control.Depose()
		require.False(t, first.Valid())
		require.ErrorIs(t, <-causes, tenure.ErrLost)

		control.Lead()
		second, ok := c.Elector().Term()
		require.True(t, ok)
		require.Greater(t, second.Token, first.Token)
		require.NoError(t, stop())
		require.ErrorIs(t, <-causes, tenure.ErrStopped)
	})
}

// TestFailedWorkIsTriedAgainSoon: a test waits for a second at most, however often the work has
// failed.
func TestFailedWorkIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began, ended []time.Time
		c, control := tenuretest.New(t, tenure.Options{})
		stop := run(t, c, func(context.Context, tenure.Term) error {
			began = append(began, time.Now())
			time.Sleep(100 * time.Millisecond) // Lead sees that it leads
			ended = append(ended, time.Now())
			return errors.New("no disk")
		})
		control.Lead()
		time.Sleep(20 * time.Second)
		require.NoError(t, stop())
		require.Greater(t, len(began), 15)
		for i := range began[1:] {
			require.LessOrEqual(t, began[i+1].Sub(ended[i]), 1100*time.Millisecond, i)
		}
	})
}

// TestRunEndsWithTheTest: nothing of a Run with the context of the test is left at its end, though
// that takes time: in a bubble it would be a deadlock. A Run that goes on is not waited for.
func TestRunEndsWithTheTest(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, cluster *tenuretest.Cluster, a *tenuretest.Control){
		"work":         func(*testing.T, *tenuretest.Cluster, *tenuretest.Control) {},
		"task":         func(*testing.T, *tenuretest.Cluster, *tenuretest.Control) { time.Sleep(time.Minute) },
		"disconnected": func(_ *testing.T, cluster *tenuretest.Cluster, _ *tenuretest.Control) { cluster.Disconnect("a") },
		"reconnected": func(_ *testing.T, cluster *tenuretest.Cluster, _ *tenuretest.Control) {
			cluster.Disconnect("a")
			time.Sleep(31 * time.Second)
			cluster.Reconnect("a")
		},
		"no term": func(_ *testing.T, _ *tenuretest.Cluster, a *tenuretest.Control) { a.Depose() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := tenuretest.NewCluster(t)
				c, control := cluster.New(tenure.Options{InstanceID: "a"})
				require.NoError(t, c.Tasks().Register(tenure.Task{
					Name: "slow", Schedule: tenure.Every(50 * time.Second),
					Run: func(context.Context, tenure.TaskRun) error { time.Sleep(15 * time.Second); return nil },
				}))
				go func() {
					_ = c.Run(t.Context(), func(ctx context.Context, _ tenure.Term) error {
						<-ctx.Done()
						time.Sleep(10 * time.Millisecond)
						return nil
					})
				}()
				control.Lead()
				test(t, cluster, control)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		t.Cleanup(func() { cancel(); require.NoError(t, <-ended) }) // after the cleanups of New
		c, control := tenuretest.New(t, tenure.Options{})
		go func() { ended <- c.Run(ctx) }()
		control.Lead()
	})
}

func TestTasksRunOnTheLeaderOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int64
		c, control := tenuretest.New(t, tenure.Options{})
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name:     "count",
			Schedule: tenure.Every(time.Minute),
			Run:      func(context.Context, tenure.TaskRun) error { runs.Add(1); return nil },
		}))
		stop := run(t, c)
		defer func() { require.NoError(t, stop()) }()
		time.Sleep(time.Hour)
		require.Zero(t, runs.Load())
		control.Lead()
		time.Sleep(time.Hour + time.Second)
		require.InDelta(t, 60, runs.Load(), 2)
		control.Depose()
		before := runs.Load()
		time.Sleep(time.Hour)
		require.Equal(t, before, runs.Load())
	})
}

func TestStandaloneLeadsAtOnceAndForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := tenure.NewStandalone(tenure.Options{InstanceID: "alone"})
		require.NoError(t, err)
		began := make(chan tenure.Term, 1)
		stop := run(t, c, func(ctx context.Context, term tenure.Term) error {
			began <- term
			<-ctx.Done()
			return nil
		})
		term := <-began
		synctest.Wait() // for the registration
		require.True(t, c.IsLeader())
		leader, err := c.Elector().Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, "alone", leader.InstanceID)
		require.Equal(t, term.Token, leader.Token)
		instances, err := c.Registry().Instances(t.Context(), tenure.InstanceQuery{})
		require.NoError(t, err)
		require.Len(t, instances, 1)
		time.Sleep(time.Hour)
		require.True(t, term.Valid())
		require.NoError(t, stop())
		require.False(t, c.IsLeader())
		_, err = c.Elector().Leader(context.Background())
		require.ErrorIs(t, err, tenure.ErrNoLeader)
	})
}

// failing records what New would do to the test.
type failing struct {
	testing.TB
	failed bool
	says   string
}

func (f *failing) Helper() {}
func (f *failing) Fatalf(format string, args ...any) {
	f.failed, f.says = true, fmt.Sprintf(format, args...)
	panic(errors.New("fatal"))
}

func TestWrongOptionsFailTheTest(t *testing.T) {
	f := &failing{TB: t}
	require.Panics(t, func() { tenuretest.New(f, tenure.Options{Namespace: "*"}) })
	require.True(t, f.failed)
}

func TestLeadWithoutRunFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		_, control := tenuretest.New(f, tenure.Options{})
		began := time.Now()
		require.Panics(t, func() { control.Lead() })
		require.True(t, f.failed)
		require.Contains(t, f.says, "its Run was not called")
		require.Contains(t, f.says, `role "": idle`)
		require.Less(t, time.Since(began), 11*time.Second)
	})
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		c, control := tenuretest.New(f, tenure.Options{NoDefaultRole: true})
		_, err := c.AddRole("export", tenure.ElectionOptions{})
		require.NoError(t, err)
		go func() { _ = c.Run(t.Context(), func(context.Context, tenure.Term) error { return nil }) }()
		require.Panics(t, func() { control.Lead() })
		require.Contains(t, f.says, "or has refused what it got: see its error")
	})
}

// TestLeadSaysWhyNot: a Run that has ended fails the test at once, leader work that fails again and
// again is named.
func TestLeadSaysWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		c, control := tenuretest.New(f, tenure.Options{})
		stop := run(t, c)
		synctest.Wait()
		require.NoError(t, stop())
		began := time.Now()
		require.Panics(t, func() { control.Lead() })
		require.Zero(t, time.Since(began))
		require.Contains(t, f.says, "its Run has ended")
		require.Contains(t, f.says, `role "": stopped`)
	})
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		c, control := tenuretest.New(f, tenure.Options{})
		sick, err := c.AddRole("sick", tenure.ElectionOptions{Health: func(context.Context) error { return errors.New("no disk") }})
		require.NoError(t, err)
		stop := run(t, c)
		require.Panics(t, func() { control.Lead() })
		require.False(t, sick.IsLeader())
		require.Contains(t, f.says, `role "": leading`)
		require.Contains(t, f.says, `role "sick": following, waiting: unhealthy, last error: `)
		require.Contains(t, f.says, "no disk")
		require.NoError(t, stop())
	})
}

// TestContextEnds: a test sees what its work does at the end of a term.
func TestContextEnds(t *testing.T) {
	ctx, end := tenuretest.Context(t, 7)
	term, _ := tenure.TermFrom(ctx)
	end(tenure.ErrLost)
	require.False(t, term.Valid())
	require.ErrorIs(t, context.Cause(ctx), tenure.ErrLost)
	end(nil)
	require.ErrorIs(t, context.Cause(ctx), tenure.ErrLost, "the first call counts")
	ctx, end = tenuretest.Context(t, 8)
	end(nil)
	require.ErrorIs(t, context.Cause(ctx), tenure.ErrStopped)
}

func TestAllRolesLeadAndFollowTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{})
		healthy := func(context.Context) error { time.Sleep(time.Second); return nil }
		slow, err := c.AddRole("slow", tenure.ElectionOptions{Health: healthy})
		require.NoError(t, err)
		stop := run(t, c)
		late, err := c.AddRole("late", tenure.ElectionOptions{})
		require.NoError(t, err)
		for range 3 {
			control.Lead()
			for _, e := range []*tenure.Elector{c.Elector(), slow, late} {
				require.True(t, e.IsLeader(), e.Role())
			}
			control.Depose()
			for _, e := range []*tenure.Elector{c.Elector(), slow, late} {
				require.False(t, e.IsLeader(), e.Role())
			}
		}
		require.NoError(t, stop())
	})
}

// A test chooses which roles lead, and who leads while none does.
func TestRolesOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{InstanceID: "me"})
		mailer, err := c.AddRole("mailer", tenure.ElectionOptions{})
		require.NoError(t, err)
		stop := run(t, c)
		control.Lead("mailer")
		require.True(t, mailer.IsLeader())
		require.False(t, c.IsLeader())
		term, _ := mailer.Term()
		control.Lead("", "mailer")
		require.True(t, c.IsLeader() && term.Valid(), "a term that is on goes on")
		control.Lead("")
		require.True(t, c.IsLeader() && !mailer.IsLeader())

		control.Follow("other")
		for _, e := range c.Roles() {
			require.Equal(t, "other", e.Status().Leader)
			err := e.Do(t.Context(), func(context.Context, tenure.Term) error { panic("not called") })
			require.ErrorIs(t, err, tenure.ErrNotLeader)
			require.ErrorContains(t, err, "other")
			info, err := e.Leader(t.Context())
			require.NoError(t, err)
			require.Equal(t, "other", info.InstanceID)
		}
		control.Lead()
		next, ok := mailer.Term()
		require.True(t, ok && next.Token > term.Token)
		control.Depose()
		require.Empty(t, c.Elector().Status().Leader)
		require.NoError(t, stop())

		for _, wrong := range []func(*tenuretest.Control){
			func(c *tenuretest.Control) { c.Lead("nobody") },
			func(c *tenuretest.Control) { c.Follow("") },
			func(c *tenuretest.Control) { c.Follow("me") },
		} {
			f := &failing{TB: t}
			_, control := tenuretest.New(f, tenure.Options{InstanceID: "me"})
			require.Panics(t, func() { wrong(control) })
			require.True(t, f.failed)
		}
	})
}

// TestContext: what leader work and tasks look at is there without a coordinator.
func TestContext(t *testing.T) {
	var kept tenure.Term
	awaited := error(nil)
	t.Run("in a test", func(t *testing.T) {
		ctx, _ := tenuretest.Context(t, 7)
		t.Cleanup(func() { // as a test waits for what works in the term
			<-ctx.Done()
			awaited = context.Cause(ctx)
		})
		term, ok := tenure.TermFrom(ctx)
		require.True(t, ok)
		kept = term
		require.True(t, term.Valid())
		require.EqualValues(t, 7, term.Token)
		require.NoError(t, ctx.Err())
		require.NoError(t, term.Context().Err())
		require.False(t, term.Since.IsZero())
	})
	require.False(t, kept.Valid(), "the test is over")
	require.ErrorIs(t, context.Cause(kept.Context()), tenure.ErrStopped)
	require.ErrorIs(t, awaited, tenure.ErrStopped)
	synctest.Test(t, func(t *testing.T) {
		ctx, _ := tenuretest.Context(t, 1)
		time.Sleep(1000 * time.Hour)
		term, _ := tenure.TermFrom(ctx)
		require.True(t, term.Valid())
	})
}
