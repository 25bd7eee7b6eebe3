package tenure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnregister: nothing of the task starts any more, the others go on, and the name is free.
func TestUnregister(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)}, Task{Name: "u", Schedule: Every(time.Minute), Run: g.run(0)})
		g.pass(time.Minute)
		require.Len(g, g.noted(), 2)
		require.NoError(g, a.Unregister(context.Background(), "t"))
		require.ErrorIs(g, a.Unregister(context.Background(), "t"), ErrNotFound)
		require.ErrorIs(g, a.Unregister(context.Background(), "?"), ErrMisconfigured)
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"2m0s u 2m0s #1 starts", "3m0s u 3m0s #1 starts"}, g.noted())
		list, err := a.List(context.Background())
		require.NoError(g, err)
		require.False(g, list[0].Known)
		require.True(g, list[1].Known)
		require.NoError(g, a.Register(Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)}))
		g.pass(time.Minute)
		require.Len(g, g.noted(), 2+1, "its slots go on: one for those that were missed, and the next")
		a.end()
		require.NoError(g, a.Unregister(context.Background(), "u"), "also while it does not lead")
		a.begin()
		g.pass(time.Minute)
		require.Len(g, g.noted(), 1)
		a.end()
	})
}

// TestUnregisterDuringARun waits for its end, unless the context is done, or the run itself asks.
func TestUnregisterDuringARun(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(10 * time.Minute)}
		a := g.leader("a", task)
		g.pass(time.Hour + time.Minute)
		bounded, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.ErrorIs(g, a.Unregister(bounded, "t"), context.DeadlineExceeded)
		err := a.Register(task)
		require.ErrorContains(g, err, "has not ended")
		g.pass(9 * time.Minute)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts"}, g.noted(), "its context has not ended")
		require.Equal(g, RunSucceeded, a.status().Last.State)
		require.NoError(g, a.Register(task))

		g.pass(2*time.Hour + time.Minute - g.now())
		ended := make(chan error, 1)
		go func() { ended <- a.Unregister(context.Background(), "t") }()
		synctest.Wait()
		require.Empty(g, ended)
		g.pass(9*time.Minute + time.Second)
		require.NoError(g, <-ended)

		require.NoError(g, a.Register(Task{Name: "self", Schedule: OnDemand(), Run: func(ctx context.Context, _ TaskRun) error {
			return a.Unregister(ctx, "self")
		}}))
		_, err = a.Trigger(context.Background(), "self")
		require.NoError(g, err)
		g.pass(time.Second)
		runs, err := a.Runs(context.Background(), "self", 1)
		require.NoError(g, err)
		require.Equal(g, RunSucceeded, runs[0].State)

		require.NoError(g, a.Register(task))
		g.pass(3*time.Hour + time.Minute - g.now())
		go func() { ended <- a.Unregister(context.Background(), "t") }()
		synctest.Wait()
		a.end()
		require.NoError(g, <-ended, "the end of the term ends it")
	})
}

// TestUnregisterBetweenAttempts: whoever leads next goes on with the run.
func TestUnregisterBetweenAttempts(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 3, Backoff: 20 * time.Minute, MaxBackoff: 20 * time.Minute}, Run: func(_ context.Context, run TaskRun) error {
			g.note("#%d", run.Attempt)
			return errors.New("bad")
		}}
		a, b := g.leader("a", task), g.member("b", task)
		g.pass(time.Hour + time.Minute)
		require.NoError(g, a.Unregister(context.Background(), "t"))
		require.Equal(g, RunInterrupted, b.status().Last.State)
		g.pass(20 * time.Minute)
		require.Equal(g, []string{"1h0m0s #1"}, g.noted())
		a.end()
		b.begin()
		g.pass(time.Second)
		require.Equal(g, []string{"1h21m0s #2"}, g.noted())
		b.end()
	})
}

// TestUnregisterDuringAClaim: what was claimed meanwhile is given back.
func TestUnregisterDuringAClaim(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}
		a, b := g.leader("a", task), g.member("b", task)
		g.pass(time.Minute)
		a.store.on(befalls("claim", 1, taskHung))
		g.pass(time.Hour - time.Minute)
		require.NoError(g, a.Unregister(context.Background(), "t"))
		require.Empty(g, g.noted())
		close(a.store.healed)
		g.pass(time.Second)
		a.end()
		b.begin()
		g.pass(time.Second)
		require.Equal(g, []string{"1h0m1s t 1h0m0s #1 starts"}, g.noted())
		b.end()
	})
}

// TestReschedule: the next slot follows from the new schedule at once, a run that is on goes on,
// and the record says it.
func TestReschedule(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Timeout: time.Minute, Run: g.run(10 * time.Second)})
		g.pass(time.Hour + time.Second)
		require.NoError(g, a.Reschedule("t", Every(10*time.Minute)))
		g.pass(20 * time.Minute)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "1h10m0s t 1h10m0s #1 starts", "1h20m0s t 1h20m0s #1 starts"}, g.noted())
		status := a.status()
		require.Equal(g, "every 10m0s", status.Schedule)
		record, err := a.TaskScheduler.store.Record(context.Background(), "t")
		require.NoError(g, err)
		require.True(g, record.Record.Follows(a.known()[0].spec))
		require.Len(g, g.told(EventTaskChanged), 1)

		require.ErrorIs(g, a.Reschedule("u", Every(time.Hour)), ErrNotFound)
		require.ErrorContains(g, a.Reschedule("t", Every(0)), "Task.Schedule")
		require.ErrorContains(g, a.Reschedule("t", nil), "Task.Schedule")
		require.Equal(g, "every 10m0s", a.status().Schedule)

		require.NoError(g, a.Reschedule("t", At(g.began.Add(2*time.Hour))))
		g.pass(3 * time.Hour)
		require.Equal(g, []string{"2h0m0s t 2h0m0s #1 starts"}, g.noted())
		a.end()
		require.NoError(g, a.Reschedule("t", OnDemand()), "also while it does not lead")
		a.begin()
		g.pass(3 * time.Hour)
		require.Empty(g, g.noted())
		a.end()
	})
}

// TestRescheduleOfAScheduleThatHangs: the task goes on.
func TestRescheduleOfAScheduleThatHangs(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		healed := make(chan struct{})
		hangs := &stuckSchedule{until: healed, from: g.began.Add(30 * time.Minute)}
		a := g.leader("a", Task{Name: "t", Schedule: hangs, Run: g.run(0)})
		g.pass(2 * time.Hour)
		require.NotEmpty(g, g.told(EventTaskBlocked))
		g.noted()
		require.NoError(g, a.Reschedule("t", Every(time.Hour)))
		g.pass(2 * time.Hour)
		require.NoError(g, a.status().Err)
		require.NotEmpty(g, g.noted())
		close(healed)
		g.pass(2 * time.Hour)
		require.NotEmpty(g, g.noted())
		a.end()
	})
}

// stuckSchedule is due every ten minutes, and hangs if it is asked for what comes after a time.
type stuckSchedule struct {
	until chan struct{}
	from  time.Time
}

func (*stuckSchedule) Identity() string { return "stuck" }

func (s *stuckSchedule) Next(after time.Time) time.Time {
	if !after.Before(s.from) {
		<-s.until
	}
	return after.Add(10 * time.Minute)
}
