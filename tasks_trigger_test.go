package tenure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// noted is a task that notes what it was triggered with.
func (g *taskCluster) args(fails int) TaskFunc {
	return func(_ context.Context, run TaskRun) error {
		g.note("%s %q #%d", run.Task, run.Args, run.Attempt)
		if run.Attempt <= fails {
			return errors.New("bad")
		}
		return nil
	}
}

// hears hands the hint of a trigger to a member, as the subscription does.
func (m *taskInstance) hears(task string) {
	m.TaskScheduler.hint(store.Hint{Type: store.HintTriggered, Task: task, Channel: store.LeaseEvents("")})
}

// TestTrigger: the leader runs it at once, once, with its arguments in each attempt; its slots stay
// as they are, and have none.
func TestTrigger(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.args(1), Retry: RetryPolicy{Attempts: 2}}
		a, b := g.leader("a", task), g.member("b", task)
		g.pass(10 * time.Minute)
		id, err := b.Trigger(context.Background(), "t", "x", "ÿ\n")
		require.NoError(g, err)
		require.NotEmpty(g, id)
		require.Equal(g, id, b.status().Trigger)
		a.hears("t")
		g.pass(time.Minute)
		require.Equal(g, []string{`10m0s t ["x" "ÿ\n"] #1`, `10m1s t ["x" "ÿ\n"] #2`}, g.noted())
		require.Empty(g, b.status().Trigger)
		runs, err := b.Runs(context.Background(), "t", 5)
		require.NoError(g, err)
		require.Len(g, runs, 1)
		require.Equal(g, id, runs[0].Trigger)
		require.Equal(g, g.began.Add(10*time.Minute).UnixMilli(), runs[0].Slot.UnixMilli())
		require.Equal(g, g.began.Add(time.Hour).UnixMilli(), a.status().Next.UnixMilli())
		g.pass(49 * time.Minute)
		require.Equal(g, []string{`1h0m0s t [] #1`}, g.noted())
		g.pass(time.Minute)
		require.Empty(g, a.status().Last.Trigger)
		for _, e := range g.seen(func(e Event) bool { return e.Type == EventTaskStarted && e.Slot.Before(g.began.Add(time.Hour)) }) {
			require.Equal(g, id, e.Trigger)
		}
		a.end()
	})
}

// TestTriggerWithoutAHint: the leader finds it within a minute; the process that leads needs none.
func TestTriggerWithoutAHint(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: OnDemand(), Run: g.args(0)}
		looked := Task{Name: "u", Schedule: Every(24 * time.Hour), Run: g.args(0)}
		a, b := g.leader("a", task, looked), g.member("b", task)
		g.pass(10 * time.Minute)
		calls := a.store.calls.Load()
		g.pass(10 * time.Minute)
		require.LessOrEqual(g, a.store.calls.Load()-calls, int64(10), "idle: one question a minute")
		_, err := b.Trigger(context.Background(), "t")
		require.NoError(g, err)
		g.pass(schedule.LookEvery)
		require.Len(g, g.noted(), 1)
		_, err = a.Trigger(context.Background(), "t", "own")
		require.NoError(g, err)
		g.pass(0)
		require.Equal(g, []string{`21m0s t ["own"] #1`}, g.noted())
		_, err = b.Trigger(context.Background(), "t")
		require.NoError(g, err)
		a.TaskScheduler.hint(store.Hint{Type: store.HintConnected, All: true})
		g.pass(0)
		require.Len(g, g.noted(), 1, "hints may have been missed: it asks")
		a.end()
	})
}

// TestTriggerWithoutALeader: it waits in Redis, also if there was no record, and for an hour.
func TestTriggerWithoutALeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: OnDemand(), Run: g.args(0)}
		a := g.member("a", task)
		_, err := a.Trigger(context.Background(), "t", "1")
		require.NoError(g, err)
		_, err = a.Trigger(context.Background(), "t", "2")
		require.ErrorIs(g, err, ErrTriggerWaiting)
		g.pass(59 * time.Minute)
		a.begin()
		require.Equal(g, []string{`59m0s t ["1"] #1`}, g.noted())
		a.end()
		id, err := a.Trigger(context.Background(), "t", "3")
		require.NoError(g, err)
		g.pass(time.Hour)
		a.begin()
		require.Empty(g, g.noted())
		expired := g.seen(func(e Event) bool { return e.Type == EventTaskTriggerExpired })
		require.Len(g, expired, 1)
		require.Equal(g, id, expired[0].Trigger)
		require.Empty(g, a.status().Trigger)
		require.Zero(g, a.status().Next)
		a.end()
	})
}

// TestTriggerOfAPausedTask: it waits for Resume, and costs a few calls a minute meanwhile; so does
// one that waits for a long run.
func TestTriggerOfAPausedTask(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		long := Task{Name: "long", Schedule: OnDemand(), Run: g.run(time.Hour)}
		a := g.leader("a", Task{Name: "t", Schedule: OnDemand(), Run: g.args(0)}, long)
		require.NoError(g, a.Pause(context.Background(), "t", ""))
		for _, name := range []string{"t", "long"} {
			_, err := a.Trigger(context.Background(), name)
			require.NoError(g, err)
			g.pass(time.Second)
		}
		_, err := a.Trigger(context.Background(), "long")
		require.NoError(g, err)
		g.noted()
		calls := a.store.calls.Load()
		g.pass(30 * time.Minute)
		require.Empty(g, g.noted())
		require.LessOrEqual(g, a.store.calls.Load()-calls, int64(30*5))
		require.NoError(g, a.Resume(context.Background(), "t"))
		g.pass(schedule.LookEvery)
		require.Len(g, g.noted(), 1)
		a.end()
	})
}

// TestTriggerOfADyingLeader: the next leader runs it again with its arguments, though Missed asks
// for no run of a slot by then.
func TestTriggerOfADyingLeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Minute), Missed: MissedSkip, Run: func(ctx context.Context, run TaskRun) error {
			if run.Trigger != "" {
				g.note("%q #%d by %s", run.Args, run.Attempt, run.ID[:1])
			}
			return g.run(30*time.Second)(ctx, run)
		}}
		a, b := g.leader("a", task), g.member("b", task)
		_, err := a.Trigger(context.Background(), "t", "x")
		require.NoError(g, err)
		g.pass(time.Second)
		a.crash()
		g.pass(5 * time.Minute)
		b.begin()
		g.pass(time.Minute)
		var by []string
		for _, line := range g.noted() {
			if strings.Contains(line, "by") {
				by = append(by, line)
			}
		}
		require.Equal(g, []string{`0s ["x"] #1 by a`, `5m1s ["x"] #2 by b`}, by)
		b.end()
	})
}

// TestTriggerRefuses: the error says what is wrong, and nothing runs.
func TestTriggerRefuses(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: OnDemand(), Run: g.args(0)})
		_, err := a.Trigger(context.Background(), "unknown")
		require.ErrorIs(g, err, ErrNotFound)
		for what, args := range map[string][]string{"a b": nil, "t": {"\xff"}, "t ": {"x"}} {
			_, err := a.Trigger(context.Background(), what, args...)
			require.ErrorIs(g, err, ErrMisconfigured)
		}
		_, err = a.Trigger(context.Background(), "t", strings.Repeat("x", 1020), "")
		require.ErrorIs(g, err, ErrMisconfigured)
		require.ErrorContains(g, err, "1027 bytes")
		a.store.on(func(op string, _ int) taskFate {
			if op == "trigger" {
				return taskLate
			}
			return taskFine
		})
		answered := make(chan error, 1)
		go func() { // ends with the answer
			_, err := a.Trigger(context.Background(), "t")
			answered <- err
		}()
		g.pass(triggerLate + time.Second)
		close(a.store.healed)
		require.ErrorIs(g, <-answered, ErrUnreachable, "it came too late")
		g.pass(2 * time.Minute)
		require.Empty(g, g.noted())
		a.end()
	})
}

// TestTriggerArgsAreUntrusted: whatever somebody has written there, the task runs.
func TestTriggerArgsAreUntrusted(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "[]": {}, `["a"]`: {"a"}, "[1]": nil, `{"a":1}`: nil, "\xff": nil, `["a`: nil, "null": nil,
	} {
		require.Equal(t, want, decodeArgs(text), text)
	}
}

// TestTriggerReachesTheLeader: over the network, from any instance, of any role, within a few round
// trips.
func TestTriggerReachesTheLeader(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.member("a"), c.member("b")
		for _, m := range []*instance{a, b} {
			_, err := m.AddRole("other", ElectionOptions{})
			require.NoError(t, err)
			for name, role := range map[string]string{"t": "", "u": "other"} {
				require.NoError(t, m.Tasks().Register(Task{Name: name, Role: role, Schedule: OnDemand(), Run: func(_ context.Context, run TaskRun) error {
					c.note("%s runs %s %q", m.name, run.Task, run.Args)
					return nil
				}}))
			}
		}
		a.start()
		c.pass(time.Minute)
		b.start()
		c.pass(time.Minute)
		for _, name := range []string{"t", "u"} {
			_, err := b.Tasks().Trigger(context.Background(), name, "x")
			require.NoError(t, err)
			c.pass(100 * time.Millisecond)
			require.Equal(t, []string{"a runs " + name + ` ["x"]`}, c.noted())
		}
		c.pass(10 * time.Minute)
		require.Empty(t, c.noted(), "once")
	})
}
