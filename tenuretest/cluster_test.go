package tenuretest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenuretest"
)

// TestClusterFailsOver: one instance leads at a time, with tokens that increase, and the tasks go
// on where they were.
func TestClusterFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, ca := cluster.New(tenure.Options{InstanceID: "a"})
		b, cb := cluster.New(tenure.Options{InstanceID: "b"})
		var runs atomic.Int64
		slots := make(map[time.Time]int)
		for _, c := range []*tenure.Coordinator{a, b} {
			require.NoError(t, c.Tasks().Register(tenure.Task{
				Name: "count", Schedule: tenure.Every(time.Minute),
				Run: func(_ context.Context, run tenure.TaskRun) error {
					runs.Add(1)
					slots[run.Slot]++
					return nil
				},
			}))
		}
		stopA, stopB := run(t, a), run(t, b)
		synctest.Wait() // one whose Run was not called yet is not waited for
		last := int64(0)
		for i := range 6 {
			control, leader, other := ca, a, b
			if i%2 == 1 {
				control, leader, other = cb, b, a
			}
			control.Lead()
			require.True(t, leader.IsLeader())
			require.False(t, other.IsLeader())
			require.Equal(t, leader.InstanceID(), other.Elector().Status().Leader)
			term, leads := leader.Elector().Term()
			require.True(t, leads)
			require.Greater(t, term.Token, last, "within one millisecond, too")
			last = term.Token
			if i >= 2 {
				time.Sleep(time.Minute)
				control.RunDue(t.Context())
				require.EqualValues(t, i-1, runs.Load())
			}
		}
		for slot, n := range slots {
			require.Equal(t, 1, n, slot)
		}
		status, err := a.Tasks().List(t.Context())
		require.NoError(t, err)
		require.Equal(t, "b", status[0].Last.InstanceID, "records are shared")

		require.NoError(t, stopB())
		ca.Lead() // one that has stopped is not waited for
		require.True(t, a.IsLeader())
		require.NoError(t, stopA())
	})
}

// TestClusterWithoutDefaultRole: all of it goes by the roles that there are.
func TestClusterWithoutDefaultRole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		cluster := tenuretest.NewCluster(f)
		start := func(id string) (*tenure.Elector, *tenuretest.Control, func() error) {
			c, control := cluster.New(tenure.Options{InstanceID: id, NoDefaultRole: true})
			export, err := c.AddRole("export", tenure.ElectionOptions{})
			require.NoError(t, err)
			return export, control, run(t, c)
		}
		a, ca, stopA := start("a")
		b, cb, stopB := start("b")
		synctest.Wait()
		for range 20 {
			ca.Lead()
			require.True(t, a.IsLeader())
			require.False(t, b.IsLeader())
			cb.Lead("export")
			require.True(t, b.IsLeader())
			require.False(t, a.IsLeader())
			require.Equal(t, "b", a.Status().Leader, "it knows whom it follows")
		}
		require.NoError(t, stopA())
		began := time.Now()
		require.Panics(t, func() { ca.Lead() })
		require.Less(t, time.Since(began), time.Second)
		require.Contains(t, f.says, "its Run has ended")
		require.NoError(t, stopB())
	})
}

// TestClusterInRealTime: nothing of it needs a bubble.
func TestClusterInRealTime(t *testing.T) {
	cluster := tenuretest.NewCluster(t)
	var ran atomic.Value
	var controls []*tenuretest.Control
	var coordinators []*tenure.Coordinator
	for _, id := range []string{"a", "b"} {
		c, control := cluster.New(tenure.Options{InstanceID: id})
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "by-hand", Schedule: tenure.OnDemand(),
			Run: func(_ context.Context, run tenure.TaskRun) error { ran.Store(id + " " + run.Args[0]); return nil },
		}))
		stop := run(t, c)
		defer func() { require.NoError(t, stop()) }()
		controls, coordinators = append(controls, control), append(coordinators, c)
	}
	for i, want := range []string{"a one", "b two"} {
		controls[i].Lead()
		_, err := coordinators[i].Tasks().Trigger(t.Context(), "by-hand", want[2:])
		require.NoError(t, err)
		controls[i].RunDue(t.Context())
		require.Equal(t, want, ran.Load())
	}
}

// TestRunDueWaitsForAttempts: a run that fails and is tried again has not run yet, a paused task is
// not waited for.
func TestRunDueWaitsForAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{})
		attempts := 0
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "third-time", Schedule: tenure.Every(time.Hour), Retry: tenure.RetryPolicy{Attempts: 3},
			Run: func(context.Context, tenure.TaskRun) error {
				time.Sleep(5 * time.Minute)
				if attempts++; attempts < 3 {
					return errors.New("not yet")
				}
				return nil
			},
		}))
		stop := run(t, c)
		control.Lead()
		control.RunDue(t.Context())
		require.Zero(t, attempts, "nothing is due yet")
		time.Sleep(time.Hour)
		control.RunDue(t.Context())
		require.Equal(t, 3, attempts)

		require.NoError(t, c.Tasks().Pause(t.Context(), "third-time", ""))
		time.Sleep(time.Hour)
		control.RunDue(t.Context())
		require.Equal(t, 3, attempts)
		require.NoError(t, stop())
	})
}

// TestRunDueWaitsForHours, which pass in a bubble with few looks, of which each allocates 20 times.
func TestRunDueWaitsForHours(t *testing.T) {
	const takes = 3 * time.Hour
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{})
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "long", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { time.Sleep(takes); return nil },
		}))
		stop := run(t, c)
		control.Lead()
		_, err := c.Tasks().Trigger(t.Context(), "long")
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		control.RunDue(t.Context())
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		require.NoError(t, stop())
		require.GreaterOrEqual(t, took, takes)
		require.LessOrEqual(t, took, takes+20*time.Millisecond, "soon after the run")
		require.Less(t, after.Mallocs-before.Mallocs, uint64(200*takes/time.Second), "not every 20 ms")
	})
}

// TestRunDueWaitsForJitter: a slot may start as late as the jitter says.
func TestRunDueWaitsForJitter(t *testing.T) {
	for _, name := range []string{"a", "b", "c"} { // the delay follows from the name
		synctest.Test(t, func(t *testing.T) {
			c, control := tenuretest.New(t, tenure.Options{})
			var delays []time.Duration
			require.NoError(t, c.Tasks().Register(tenure.Task{
				Name: name, Schedule: tenure.Every(24 * time.Hour), Jitter: 20 * time.Minute,
				Run: func(_ context.Context, run tenure.TaskRun) error {
					delays = append(delays, time.Since(run.Slot))
					return nil
				},
			}))
			stop := run(t, c)
			control.Lead()
			time.Sleep(24 * time.Hour)
			control.RunDue(t.Context())
			require.Len(t, delays, 1)
			require.Greater(t, delays[0], 3*time.Minute, "else it shows nothing")
			control.RunDue(t.Context())
			require.Len(t, delays, 1, "the next slot is not due")
			require.NoError(t, stop())
		})
	}
}

// TestRunDueWaitsForAttemptsOfAnotherLeader: the pause between two attempts outlasts its leader.
func TestRunDueWaitsForAttemptsOfAnotherLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		var attempts []string
		start := func(id string) (*tenuretest.Control, func() error) {
			c, control := cluster.New(tenure.Options{InstanceID: id})
			require.NoError(t, c.Tasks().Register(tenure.Task{
				Name: "twice", Schedule: tenure.Every(time.Hour), Retry: tenure.RetryPolicy{Attempts: 3},
				Run: func(_ context.Context, run tenure.TaskRun) error {
					attempts = append(attempts, fmt.Sprint(id, run.Attempt))
					if run.Attempt < 3 {
						return tenure.RetryAfter(errors.New("not yet"), 5*time.Minute)
					}
					return nil
				},
			}))
			return control, run(t, c)
		}
		a, stopA := start("a")
		b, stopB := start("b")
		synctest.Wait()
		a.Lead()
		time.Sleep(time.Hour + time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"a1"}, attempts)
		require.NoError(t, stopA())
		b.Lead()
		b.RunDue(t.Context())
		require.Equal(t, []string{"a1", "b2", "b3"}, attempts)
		require.NoError(t, stopB())
	})
}

// slowly is a schedule that takes its time, as a starved machine does.
type slowly struct{}

func (slowly) Next(after time.Time) time.Time {
	time.Sleep(200 * time.Millisecond)
	return after.Add(time.Hour)
}

func (slowly) Identity() string { return "slowly" }

// TestRunDueWaitsForARunOnElection: the new leader may not have begun it yet.
func TestRunDueWaitsForARunOnElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		var ran []string
		var controls []*tenuretest.Control
		for _, id := range []string{"a", "b"} {
			c, control := cluster.New(tenure.Options{InstanceID: id})
			require.NoError(t, c.Tasks().Register(tenure.Task{
				Name: "first", Schedule: slowly{}, RunOnElection: true,
				Run: func(context.Context, tenure.TaskRun) error { ran = append(ran, id); return nil },
			}))
			stop := run(t, c)
			defer func() { require.NoError(t, stop()) }()
			controls = append(controls, control)
		}
		for _, control := range controls {
			control.Lead()
			synctest.Wait()
			control.RunDue(t.Context())
			control.RunDue(t.Context())
		}
		require.Equal(t, []string{"a", "b"}, ran)
	})
}

// TestRunDueAfterAShortCut: what a task could not ask while its instance was cut off is asked
// again, and waited for.
func TestRunDueAfterAShortCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		c, control := cluster.New(tenure.Options{InstanceID: "a"})
		runs := 0
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "count", Schedule: tenure.Every(time.Minute),
			Run: func(context.Context, tenure.TaskRun) error { runs++; return nil },
		}))
		stop := run(t, c)
		control.Lead()
		for cut := range 5 {
			time.Sleep(45 * time.Second)
			cluster.Disconnect("a")
			time.Sleep(15*time.Second + time.Duration(cut)*500*time.Millisecond) // a slot is due, and the term goes on
			cluster.Reconnect("a")
			control.RunDue(t.Context())
			require.Equal(t, cut+1, runs)
		}
		require.NoError(t, stop())
	})
}

// TestRunDueSaysWhyNot: what RunDue cannot wait for fails the test, with a reason.
func TestRunDueSaysWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		c, control := tenuretest.New(f, tenure.Options{})
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "endless", Schedule: tenure.OnDemand(),
			Run: func(ctx context.Context, _ tenure.TaskRun) error { <-ctx.Done(); return nil },
		}))
		stop := run(t, c)
		synctest.Wait()
		require.Panics(t, func() { control.RunDue(t.Context()) })
		require.Contains(t, f.says, "leads nothing")
		control.Lead()
		_, err := c.Tasks().Trigger(t.Context(), "endless")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.Panics(t, func() { control.RunDue(ctx) })
		require.Contains(t, f.says, "endless (running)")
		require.NoError(t, stop())
	})
}

func TestClusterRefusesWhatIsNoCluster(t *testing.T) {
	for what, add := range map[string]func(*tenuretest.Cluster){
		"needs an InstanceID":         func(c *tenuretest.Cluster) { c.New(tenure.Options{}) },
		`has an instance "a" already`: func(c *tenuretest.Cluster) { c.New(tenure.Options{InstanceID: "a"}) },
		"have the Namespaces":         func(c *tenuretest.Cluster) { c.New(tenure.Options{InstanceID: "b", Namespace: "other"}) },
	} {
		f := &failing{TB: t}
		cluster := tenuretest.NewCluster(f)
		cluster.New(tenure.Options{InstanceID: "a"})
		require.Panics(t, func() { add(cluster) })
		require.Contains(t, f.says, what)
	}
}

// TestDisconnect: the term of an instance that is cut off ends in time, its leases end after that,
// nobody leads before, and it follows once it is connected again.
func TestDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, ca := cluster.New(tenure.Options{InstanceID: "a"})
		b, cb := cluster.New(tenure.Options{InstanceID: "b"})
		stopA, stopB := run(t, a), run(t, b)
		var seen []tenure.EventType
		var mu sync.Mutex
		a.Observe(func(e tenure.Event) { mu.Lock(); seen = append(seen, e.Type); mu.Unlock() })
		ca.Lead()
		time.Sleep(time.Hour)
		term, _ := a.Elector().Term()
		const cancelPoint = 30*time.Second - 300*time.Millisecond - 2*time.Millisecond - 600*time.Millisecond // as package tenure says

		cluster.Disconnect("a")
		cluster.Disconnect("a") // changes nothing
		began := time.Now()
		time.Sleep(cancelPoint - time.Millisecond)
		require.True(t, a.IsLeader())
		require.NoError(t, term.Context().Err())
		time.Sleep(2 * time.Millisecond)
		require.False(t, a.IsLeader())
		require.ErrorIs(t, context.Cause(term.Context()), tenure.ErrExpired)
		_, err := a.Elector().Leader(t.Context())
		require.ErrorIs(t, err, tenure.ErrUnreachable)
		_, err = a.Registry().Instances(t.Context(), tenure.InstanceQuery{})
		require.ErrorIs(t, err, tenure.ErrUnreachable)
		_, err = a.Tasks().List(t.Context())
		require.ErrorIs(t, err, tenure.ErrUnreachable)
		_, err = a.Control().Commands(t.Context(), 10)
		require.ErrorIs(t, err, tenure.ErrUnreachable)
		require.False(t, a.Elector().Status().Subscription.Active)
		cb.Lead()
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second, "the lease lasts for longer than the term")
		require.True(t, b.IsLeader())
		time.Sleep(time.Hour)
		require.False(t, a.IsLeader())

		cluster.Reconnect("a")
		require.Equal(t, "b", a.Elector().Status().Leader)
		require.Equal(t, tenure.ElectionFollowing, a.Elector().Status().State)
		require.True(t, a.Elector().Status().Subscription.Active)
		next, _ := b.Elector().Term()
		require.Greater(t, next.Token, term.Token)
		require.True(t, next.Valid(), "leases of those who are connected do not expire")
		synctest.Wait() // the observer has heard of it
		mu.Lock()
		heard := slices.Clone(seen)
		mu.Unlock()
		require.Contains(t, heard, tenure.EventSubscriptionLost)
		require.Contains(t, heard, tenure.EventSubscriptionRestored)
		ca.Lead()
		require.False(t, b.IsLeader())
		require.NoError(t, stopB())
		require.NoError(t, stopA())
	})
}

// TestDisconnectIsShort: an instance that comes back in time goes on with its term, one that comes
// back late leads again if nobody else does, and one may stop while it is cut off.
func TestDisconnectIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, ca := cluster.New(tenure.Options{InstanceID: "a", ShutdownTimeout: time.Second})
		b, cb := cluster.New(tenure.Options{InstanceID: "b"})
		cluster.Disconnect("b")
		cluster.Reconnect("b") // before its Run, too
		stopA, stopB := run(t, a), run(t, b)
		ca.Lead()
		term, _ := a.Elector().Term()
		for range 5 {
			cluster.Disconnect("a")
			time.Sleep(20 * time.Second)
			cluster.Reconnect("a")
			time.Sleep(time.Minute)
			require.True(t, term.Valid())
		}
		cluster.Disconnect("a")
		time.Sleep(10 * time.Minute)
		require.False(t, term.Valid())
		cluster.Reconnect("a")
		time.Sleep(time.Minute)
		again, leads := a.Elector().Term()
		require.True(t, leads)
		require.Greater(t, again.Token, term.Token)

		cluster.Disconnect("a")
		began := time.Now()
		_ = stopA() // its lease cannot be given back
		cb.Lead()
		require.GreaterOrEqual(t, time.Since(began), 29*time.Second)
		require.True(t, b.IsLeader())
		require.NoError(t, stopB())
	})
}

// TestDisconnectSaysWhyNot: what cannot be while an instance is cut off fails the test.
func TestDisconnectSaysWhyNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &failing{TB: t}
		cluster := tenuretest.NewCluster(f)
		_, control := cluster.New(tenure.Options{InstanceID: "a"})
		require.Panics(t, func() { cluster.Disconnect("b") })
		require.Contains(t, f.says, `Disconnect("b"): the Cluster has no such instance`)
		cluster.Disconnect("a")
		for _, call := range []func(){func() { control.Lead() }, control.Depose, func() { control.Follow("b") }} {
			require.Panics(t, call)
			require.Contains(t, f.says, `instance "a" is disconnected`)
		}
	})
}

// TestReconnectWhenTheTermHasEnded: an instance that comes back after its term has ended, and
// before its lease does, leads again soon if nobody else does.
func TestReconnectWhenTheTermHasEnded(t *testing.T) {
	for _, after := range []time.Duration{29 * time.Second, 29200 * time.Millisecond, 29500 * time.Millisecond, 29990 * time.Millisecond, 30 * time.Second, 31 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := tenuretest.NewCluster(t)
				a, ca := cluster.New(tenure.Options{InstanceID: "a"})
				stop := run(t, a)
				ca.Lead()
				cluster.Disconnect("a")
				time.Sleep(after)
				cluster.Reconnect("a")
				time.Sleep(time.Minute)
				require.True(t, a.IsLeader())
				require.NoError(t, stop())
			})
		})
	}
}

// TestReconnectStubbornWork: so does one whose work goes on after the end of its term, once that
// has returned. It makes no difference if the term expires, or the instance resigns before it is
// cut off, or meanwhile.
func TestReconnectStubbornWork(t *testing.T) {
	for _, longer := range []time.Duration{200 * time.Millisecond, 3 * time.Second, time.Minute} {
		for _, after := range []time.Duration{20 * time.Second, 29200 * time.Millisecond, 29500 * time.Millisecond, 29990 * time.Millisecond, 31 * time.Second} {
			for _, resigns := range []time.Duration{-1, 0, 10 * time.Second} {
				t.Run(fmt.Sprint(longer, after, resigns), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						cluster := tenuretest.NewCluster(t)
						a, ca := cluster.New(tenure.Options{InstanceID: "a", ShutdownTimeout: 10 * time.Second})
						ctx, cancel := context.WithCancel(t.Context())
						done := make(chan error, 1)
						go func() {
							done <- a.Run(ctx, func(ctx context.Context, _ tenure.Term) error {
								<-ctx.Done()
								time.Sleep(longer)
								return nil
							})
						}()
						synctest.Wait()
						ca.Lead()
						resign := func() {
							bound, cancel := context.WithTimeout(t.Context(), time.Millisecond)
							defer cancel()
							require.ErrorIs(t, a.Elector().Resign(bound), context.DeadlineExceeded)
						}
						if resigns == 0 {
							resign()
						}
						cluster.Disconnect("a")
						if resigns > 0 {
							time.Sleep(resigns)
							resign()
						}
						time.Sleep(after - max(resigns, 0))
						cluster.Reconnect("a")
						time.Sleep(3 * time.Minute)
						require.True(t, a.IsLeader())
						cancel()
						if err := <-done; err != nil {
							require.ErrorContains(t, err, "work", "only work that outlives Run makes it an error")
						}
						time.Sleep(2 * longer) // work that outlived Run
					})
				})
			}
		}
	}
}

// TestReconnectAgainAndAgain: a lease whose term has ended lasts no longer since the instance is
// cut off again.
func TestReconnectAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, ca := cluster.New(tenure.Options{InstanceID: "a"})
		stop := run(t, a)
		ca.Lead()
		cluster.Disconnect("a")
		time.Sleep(29500 * time.Millisecond)
		cluster.Reconnect("a")
		time.Sleep(100 * time.Millisecond)
		require.False(t, a.IsLeader())
		for try := 0; try < 10 && !a.IsLeader(); try++ {
			cluster.Disconnect("a")
			time.Sleep(20 * time.Second)
			cluster.Reconnect("a")
			time.Sleep(5 * time.Second)
		}
		require.True(t, a.IsLeader())
		require.NoError(t, stop())
	})
}

// TestDisconnectAtOnce: a term that is on when its instance is cut off again goes on for a lease
// from then, as if it had been renewed.
func TestDisconnectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, ca := cluster.New(tenure.Options{InstanceID: "a"})
		stop := run(t, a)
		ca.Lead()
		term, _ := a.Elector().Term()
		for range 3 {
			cluster.Disconnect("a")
			time.Sleep(20 * time.Second)
			cluster.Reconnect("a")
		}
		time.Sleep(time.Minute)
		require.True(t, term.Valid())
		require.NoError(t, stop())
	})
}

// TestClusterTellsWhoLeads: the others know the leader by its ID and its token, in each role, also
// after it has led anew or is gone, and so does one that was cut off, or stands back.
func TestClusterTellsWhoLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		var members []*tenure.Coordinator
		var controls []*tenuretest.Control
		var stops []func() error
		fails := make(chan struct{}) // closed: the work of c fails
		for _, id := range []string{"a", "b", "c"} {
			m, control := cluster.New(tenure.Options{InstanceID: id})
			_, err := m.AddRole("export", tenure.ElectionOptions{})
			require.NoError(t, err)
			stop := run(t, m, func(ctx context.Context, _ tenure.Term) error {
				select {
				case <-ctx.Done():
					return nil
				case <-fails:
					return errors.New("broken")
				}
			})
			members, controls, stops = append(members, m), append(controls, control), append(stops, stop)
		}
		a, b, c := members[0], members[1], members[2]
		knows := func(leader *tenure.Coordinator, roles ...string) {
			t.Helper()
			for _, role := range roles {
				of, _ := leader.Role(role)
				term, leads := of.Term()
				require.True(t, leads, role)
				for _, m := range members {
					e, _ := m.Role(role)
					require.Equal(t, term.InstanceID, e.Status().Leader, m.InstanceID())
					require.Equal(t, term.Token, e.Status().LeaderToken, m.InstanceID())
					info, err := e.Leader(t.Context())
					require.NoError(t, err)
					require.Equal(t, term.Token, info.Token, m.InstanceID())
					var not *tenure.NotLeaderError
					if err := e.Do(t.Context(), func(context.Context, tenure.Term) error { return nil }); m != leader {
						require.ErrorAs(t, err, &not)
						require.Equal(t, term.Token, not.Token)
					}
				}
			}
		}
		var told []tenure.Event
		b.Elector().Observe(func(e tenure.Event) {
			if e.Type == tenure.EventLeaderChanged && e.Subject != "" {
				told = append(told, e)
			}
		})
		synctest.Wait() // each has begun
		for i, control := range append(controls, controls...) {
			began := time.Now()
			control.Lead()
			require.Less(t, time.Since(began), time.Second/2, "nobody waits for a follower to ask by itself")
			knows(members[i%3], "", "export")
		}
		synctest.Wait()
		require.Len(t, told, 6)
		for i := range told[1:] {
			require.Greater(t, told[i+1].Token, told[i].Token)
			require.Equal(t, told[i].Subject, told[i+1].Former)
		}

		controls[0].Lead("export")
		knows(a, "export")
		_, err := c.Elector().Leader(t.Context())
		require.ErrorIs(t, err, tenure.ErrNoLeader, "nobody leads the other role")
		require.Empty(t, c.Elector().Status().Leader)
		controls[0].Lead()
		before, _ := a.Elector().Term()
		require.ErrorIs(t, a.Elector().Transfer(t.Context(), "b"), tenure.ErrNotReady)
		require.True(t, before.Valid())
		require.NoError(t, a.Elector().Resign(t.Context()))
		time.Sleep(time.Second / 2)
		require.Empty(t, b.Elector().Status().Leader)
		time.Sleep(time.Minute)
		again, _ := a.Elector().Term()
		require.Greater(t, again.Token, before.Token)
		knows(a, "", "export")

		cluster.Disconnect("c")
		controls[1].Lead()
		cluster.Reconnect("c")
		knows(b, "", "export")

		controls[2].Lead()
		close(fails)
		synctest.Wait()
		require.Equal(t, tenure.WaitPenalty, c.Elector().Status().Waiting)
		fails = nil
		controls[0].Lead("")
		knows(a, "")
		for _, stop := range stops {
			require.NoError(t, stop())
		}
	})
}

// TestWhoDoesNotCampaignHearsAtOnce: an instance that drains, that may not lead, or whose health
// check fails knows at once who leads. In real time a test would wait for RetryInterval each time.
func TestWhoDoesNotCampaignHearsAtOnce(t *testing.T) {
	for name, idle := range map[string]struct {
		election tenure.ElectionOptions
		drains   bool
	}{
		"draining":   {drains: true},
		"ineligible": {election: tenure.ElectionOptions{Ineligible: true}},
		"unhealthy":  {election: tenure.ElectionOptions{Health: func(context.Context) error { return errors.New("ill") }}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := tenuretest.NewCluster(t)
				a, ca := cluster.New(tenure.Options{InstanceID: "a", Election: idle.election})
				b, cb := cluster.New(tenure.Options{InstanceID: "b"})
				stopA, stopB := run(t, a), run(t, b)
				synctest.Wait() // each has begun
				if idle.drains {
					ca.Lead()
					require.NoError(t, a.Drain(t.Context()))
				}
				time.Sleep(time.Second)
				began := time.Now()
				for range 3 {
					cb.Lead()
					require.Equal(t, "b", a.Elector().Status().Leader)
					cb.Depose()
					ca.Follow("c")
					require.Equal(t, "c", a.Elector().Status().Leader)
					ca.Depose()
				}
				require.Less(t, time.Since(began), time.Second)
				require.NoError(t, stopA())
				require.NoError(t, stopB())
			})
		})
	}
}

// TestClusterTriggers: the leader runs and cancels at once what another instance asks for.
func TestClusterTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		var causes []error
		start := func(id string) (*tenure.Coordinator, *tenuretest.Control) {
			c, control := cluster.New(tenure.Options{InstanceID: id})
			for _, task := range []tenure.Task{{Name: "own"}, {Name: "anywhere", Anywhere: true}} {
				task.Schedule = tenure.OnDemand()
				task.Run = func(ctx context.Context, _ tenure.TaskRun) error {
					<-ctx.Done()
					causes = append(causes, context.Cause(ctx))
					return context.Cause(ctx)
				}
				require.NoError(t, c.Tasks().Register(task))
			}
			go func() { _ = c.Run(t.Context()) }()
			return c, control
		}
		_, a := start("a")
		b, _ := start("b")
		a.Lead()
		time.Sleep(time.Minute)
		began := time.Now()
		for _, name := range []string{"own", "anywhere"} {
			_, err := b.Tasks().Trigger(t.Context(), name)
			require.NoError(t, err)
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, b.Tasks().Cancel(t.Context(), name), "it has begun")
		}
		a.RunDue(t.Context())
		require.Less(t, time.Since(began), time.Second)
		require.Equal(t, []error{tenure.ErrCanceled, tenure.ErrCanceled}, causes)
	})
}

// TestClusterForgets as Redis does: only what a leader of a minute has not registered.
func TestClusterForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, ca := cluster.New(tenure.Options{InstanceID: "a"})
		b, cb := cluster.New(tenure.Options{InstanceID: "b"})
		require.NoError(t, a.Tasks().Register(tenure.Task{
			Name: "old", Schedule: tenure.Every(time.Minute), Run: func(context.Context, tenure.TaskRun) error { return nil },
		}))
		stopA, stopB := run(t, a), run(t, b)
		synctest.Wait()
		ctx := t.Context()
		require.ErrorIs(t, b.Tasks().Forget(ctx, "old"), tenure.ErrNotFound)
		ca.Lead()
		time.Sleep(5 * time.Minute)
		require.ErrorIs(t, b.Tasks().Forget(ctx, "old"), tenure.ErrRegistered, "by the leader")
		require.NoError(t, a.Tasks().Unregister(ctx, "old"))
		require.ErrorIs(t, a.Tasks().Forget(ctx, "old"), tenure.ErrRegistered, "by this term")
		ca.Depose()
		require.ErrorIs(t, b.Tasks().Forget(ctx, "old"), tenure.ErrNoLeader)
		cb.Lead()
		time.Sleep(30 * time.Second)
		require.ErrorIs(t, a.Tasks().Forget(ctx, "old"), tenure.ErrNoLeader, "it may be about to take it over")
		time.Sleep(31 * time.Second)
		require.NoError(t, a.Tasks().Forget(ctx, "old"))
		require.ErrorIs(t, a.Tasks().Forget(ctx, "old"), tenure.ErrNotFound)
		require.NoError(t, stopB())
		require.NoError(t, stopA())
	})
}

// TestClusterWithStubbornWork: an instance whose work goes on after its term knows the next leader.
func TestClusterWithStubbornWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		a, ca := cluster.New(tenure.Options{InstanceID: "a"})
		b, cb := cluster.New(tenure.Options{InstanceID: "b"})
		stopA := run(t, a, func(ctx context.Context, _ tenure.Term) error {
			<-ctx.Done()
			time.Sleep(3 * time.Minute)
			return nil
		})
		stopB := run(t, b)
		synctest.Wait()
		began := time.Now()
		ca.Lead()
		cb.Lead()
		require.Less(t, time.Since(began), time.Minute)
		term, _ := b.Elector().Term()
		require.Equal(t, term.Token, a.Elector().Status().LeaderToken)
		require.Equal(t, tenure.ElectionDraining, a.Elector().Status().State)
		time.Sleep(5 * time.Minute)
		require.Equal(t, term.Token, a.Elector().Status().LeaderToken)
		require.NoError(t, stopB())
		require.NoError(t, stopA())
	})
}
