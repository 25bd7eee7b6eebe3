package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestAt: due once, whoever leads, and not again after a change of leader, a restart, or the loss
// of the record.
func TestAt(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		when := g.began.Add(10*time.Minute + 100*time.Microsecond)
		task := Task{Name: "t", Schedule: At(when), Run: g.run(0)}
		a, b := g.leader("a", task), g.member("b", task)
		g.pass(9 * time.Minute)
		require.Equal(g, "at 2000-01-01T00:10:00.001Z", a.status().Schedule)
		a.end()
		b.begin()
		slots, err := b.Upcoming(context.Background(), "t", 5)
		require.NoError(g, err)
		require.Equal(g, []time.Time{time.UnixMilli(when.UnixMilli() + 1).UTC()}, slots)
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"10m0.001s t 10m0.001s #1 starts"}, g.noted())
		require.True(g, b.status().Next.IsZero())
		b.end()
		a.begin()
		g.pass(time.Hour)
		require.Empty(g, g.noted())
		a.end()
		_, err = a.TaskScheduler.store.Forget(context.Background(), "t", store.TaskForget{})
		require.NoError(g, err)
		a.begin()
		g.pass(time.Hour)
		require.Empty(g, g.noted(), "its record is lost")
		a.end()
	})
}

// TestAtThatIsMissed: Missed decides about it; without a record it is known for as long as Grace.
func TestAtThatIsMissed(t *testing.T) {
	for name, test := range map[string]struct {
		missed MissedPolicy
		seen   bool // by a leader, before
		late   time.Duration
		runs   int
	}{
		"known, hours late":          {seen: true, late: 5 * time.Hour, runs: 1},
		"known, skipped":             {seen: true, late: 5 * time.Hour, missed: MissedSkip},
		"known, skipped, in time":    {seen: true, late: 30 * time.Second, missed: MissedSkip, runs: 1},
		"not known, in time":         {late: 30 * time.Second, runs: 1},
		"not known, hours late":      {late: 5 * time.Hour},
		"known, all, hours late":     {seen: true, late: 5 * time.Hour, missed: MissedRunAll, runs: 1},
		"not known, all, in time":    {late: 30 * time.Second, missed: MissedRunAll, runs: 1},
		"not known, skip, and early": {late: -time.Minute, missed: MissedSkip, runs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.member("a", Task{Name: "t", Schedule: At(g.began.Add(10 * time.Minute)), Missed: test.missed, Run: g.run(0)})
				if test.seen {
					a.begin()
					g.pass(time.Minute)
					a.end()
				}
				g.pass(10*time.Minute + test.late - g.now())
				a.begin()
				g.pass(2 * time.Minute)
				require.Len(g, g.noted(), test.runs)
				a.end()
			})
		})
	}
}

// TestAtRefuses: a time that nobody can mean.
func TestAtRefuses(t *testing.T) {
	s := newTasks(nil, newEventBus("a"), "a")
	for _, bad := range []time.Time{{}, time.Unix(-1, 0), time.Now().AddDate(200, 0, 0)} {
		err := s.Register(Task{Name: "t", Schedule: At(bad), Run: func(context.Context, TaskRun) error { return nil }})
		require.ErrorContains(t, err, "between 1970")
	}
	require.Equal(t, At(time.Unix(5, 0)), scheduleOf(At(time.Unix(5, 0)).Identity()))
	require.Nil(t, scheduleOf("at noon"))
}

// TestStartingDeadline: what could not start by then is skipped and counted: slots that were
// missed, slots that wait for a run, and runs that were left behind.
func TestStartingDeadline(t *testing.T) {
	t.Run("missed", func(t *testing.T) {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Missed: MissedRunAll, StartingDeadline: 90 * time.Minute, Run: g.run(0)})
			g.pass(time.Minute)
			a.end()
			g.pass(5*time.Hour + 10*time.Minute - g.now())
			a.begin()
			g.pass(time.Minute)
			require.Equal(g, []string{"5h10m0s t 4h0m0s #1 starts", "5h10m0s t 5h0m0s #1 starts"}, g.noted())
			require.Equal(g, int64(3), a.status().Skipped)
			a.end()
			g.pass(2*time.Hour - time.Second)
			a.begin()
			g.pass(time.Second / 2)
			require.Len(g, g.noted(), 2, "6h and 7h: one is as late as may be")
			a.end()
		})
	})
	t.Run("the latest", func(t *testing.T) {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), StartingDeadline: time.Minute, Run: g.run(0)})
			g.pass(time.Minute)
			a.end()
			g.pass(3*time.Hour + 10*time.Minute - g.now())
			a.begin()
			g.pass(time.Minute)
			require.Empty(g, g.noted())
			require.Equal(g, int64(3), a.status().Skipped)
			g.pass(time.Hour)
			require.Len(g, g.noted(), 1)
			a.end()
		})
	})
	t.Run("queued", func(t *testing.T) {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Overlap: OverlapQueue, StartingDeadline: 10 * time.Minute, Run: g.run(75 * time.Minute)})
			g.pass(5 * time.Hour)
			a.end()
			starts := []string{}
			for _, line := range g.noted() {
				if len(line) > 6 && line[len(line)-6:] == "starts" {
					starts = append(starts, line)
				}
			}
			require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "3h0m0s t 3h0m0s #1 starts", "5h0m0s t 5h0m0s #1 starts"}, starts)
			require.Equal(g, int64(2), a.status().Skipped)
		})
	})
	t.Run("left behind", func(t *testing.T) {
		for late, runs := range map[time.Duration]int{20 * time.Minute: 1, 40 * time.Minute: 0} {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(24 * time.Hour), Missed: MissedRunAll, StartingDeadline: 30 * time.Minute, Run: g.run(time.Minute)}
				a, b := g.leader("a", task), g.member("b", task)
				g.pass(24*time.Hour + time.Second)
				a.crash()
				g.noted()
				g.pass(late)
				b.begin()
				g.pass(time.Minute + time.Second)
				require.Len(g, g.noted(), runs, late)
				if runs == 0 {
					require.Equal(g, RunAbandoned, b.status().Last.State)
				}
				b.end()
			})
		}
	})
	s := newTasks(nil, newEventBus("a"), "a")
	err := s.Register(Task{Name: "t", Schedule: OnDemand(), StartingDeadline: time.Millisecond, Run: func(context.Context, TaskRun) error { return nil }})
	require.ErrorContains(t, err, "Task.StartingDeadline")
}
