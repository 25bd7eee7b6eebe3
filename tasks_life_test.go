package tenure

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestP10_LostReplyOfClaim: the same claim is asked again until it is answered, and runs once.
func TestP10_LostReplyOfClaim(t *testing.T) {
	for name, fate := range map[string]taskFate{"no reply": taskMute, "no request": taskLost, "late reply": taskHung, "late request": taskLate} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
				a.store.on(befalls("claim", 3, fate))
				a.begin()
				g.pass(time.Hour + 20*time.Second)
				require.Len(g, g.noted(), 1)
				require.Equal(g, "a-1", a.status().Last.Run)
				require.Equal(g, RunSucceeded, a.status().Last.State)
				failed := g.told(EventTaskBlocked)
				require.Len(g, failed, 1, "a row of failures is told once")
				require.ErrorIs(g, failed[0].Err, ErrUnreachable)
				close(a.store.healed)
				g.pass(time.Hour)
				require.Len(g, g.noted(), 1)
				a.end()
				runs, err := a.Runs(context.Background(), "t", 10)
				require.NoError(g, err)
				require.Len(g, runs, 2)
			})
		})
	}
}

// TestP10_ClaimAtTheEndOfTheTerm: a claim whose answer did not come in time is given back, and a
// late one is refused: the slot

// is run by the next leader as if nobody had claimed it, even with AbandonedFail.
func TestP10_ClaimAtTheEndOfTheTerm(t *testing.T) {
	for name, fate := range map[string]taskFate{"no reply": taskMute, "no request": taskLost, "late reply": taskHung, "late request": taskLate} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: AbandonedFail}
				a := g.member("a", task)
				a.store.on(befalls("claim", always, fate))
				a.begin()
				g.pass(time.Hour + time.Second)
				a.stop()
				g.pass(time.Minute) // lead has given up on the claim
				close(a.store.healed)
				synctest.Wait()
				a.end()
				require.Empty(g, g.noted())
				require.False(g, a.status().Running)
				if fate == taskMute {
					require.Equal(g, RunInterrupted, a.status().Last.State)
				}
				b := g.leader("b", task)
				g.pass(time.Minute)
				require.Equal(g, []string{"1h1m1s t 1h0m0s #1 starts"}, g.noted())
				require.Equal(g, RunSucceeded, b.status().Last.State)
				b.end()
			})
		})
	}
}

// TestP10_TermIsCheckedLast: a reader notices the end of the term while the claim is under way: the
// task does not start.
func TestP10_TermIsCheckedLast(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: AbandonedFail}
		a := g.member("a", task)
		a.store.on(func(op string, _ int) taskFate {
			if op == "claim" {
				a.t.lease.Store(nil) // as leading() does; the context is cancelled later
			}
			return taskFine
		})
		a.begin()
		g.pass(time.Hour + time.Second)
		require.Empty(g, g.noted())
		require.NoError(g, a.t.ctx.Err())
		require.Empty(g, a.ended, "lead waits for the context")
		a.end()
		b := g.leader("b", task)
		g.pass(time.Second)
		require.Equal(g, []string{"1h0m1s t 1h0m0s #1 starts"}, g.noted())
		b.end()
	})
}

// TestP10_TermIsCheckedInTheLastMoment: it ends between the loop's decision and the start.
func TestP10_TermIsCheckedInTheLastMoment(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(0)})
		term, _ := TermFrom(a.t.ctx)
		l := newTaskLoop(a.TaskScheduler, a.t.ctx, a.t.tasks.ctx, term)
		l.add(a.known()[0])
		task := l.tasks[0]
		record := store.TaskRecord{Due: "x", Next: 1e9, Spec: task.spec, Run: "left behind"}
		answer := func(verdict string) {
			task.machine.Step()
			task.machine.Answer(task.machine.Sent(), store.TaskReply{Verdict: verdict, Record: record})
		}
		answer(store.TaskOK)
		question := task.machine.Step().Question
		question.Ask(task.Schedule)
		require.False(g, task.machine.Answered(question))
		answer(store.TaskClaimed)
		a.t.lease.Store(nil)
		l.note(task)
		synctest.Wait()
		l.turn()
		require.Empty(g, g.noted())
		finished := g.told(EventTaskInterrupted)
		require.Len(g, finished, 1)
		require.ErrorIs(g, finished[0].Err, ErrNotLeader)
		require.Equal(g, store.RunReturned, task.machine.Calling().Ask.(store.TaskFinish).Status, "it is given back")
	})
}

// TestP10_FencedLeader: an old leader that goes on claims nothing and ends nothing.
func TestP10_FencedLeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute)}
		idle := Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)}
		old := g.leader("old", task, idle)
		g.pass(70 * time.Minute)
		g.noted()
		b := g.leader("new", task, idle)
		g.pass(time.Minute)
		require.Equal(g, []string{"1h10m0s t 1h0m0s #2 starts"}, g.noted())
		g.pass(22 * time.Minute) // the old run has ended, the new one has not
		status, err := b.Tasks(context.Background())
		require.NoError(g, err)
		require.True(g, status[0].Running)
		require.Equal(g, "new", status[0].Last.InstanceID)
		g.pass(60 * time.Minute)
		require.Equal(g, []string{"2h0m0s t 2h0m0s #1 starts", "2h0m0s u 2h0m0s #1 starts"}, sortedTrace(g.noted()))
		fenced := g.told(EventTaskBlocked)
		require.Len(g, fenced, 2)
		for _, e := range fenced {
			require.Equal(g, "old", e.InstanceID)
			require.ErrorIs(g, e.Err, ErrFenced)
		}
		old.end()
		b.end()
	})
}

// TestOrphan: a task that no leader knows keeps its record, and goes on where it was when one does.
func TestOrphan(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}
		a := g.leader("a", task)
		g.pass(90 * time.Minute)
		a.end()
		b := g.leader("b")
		g.pass(90 * time.Minute)
		status := b.status()
		require.False(g, status.Known)
		require.Empty(g, status.Schedule)
		require.Equal(g, 2*time.Hour, status.Next.Sub(g.began))
		require.Equal(g, RunSucceeded, status.Last.State)
		require.Equal(g, int64(1001), status.Token)
		g.noted()
		require.NoError(g, b.Register(task))
		synctest.Wait()
		require.Equal(g, []string{"3h0m0s t 3h0m0s #1 starts"}, g.noted(), "Register wakes the loop")
		require.True(g, b.status().Known)
		b.end()
	})
}

// TestTaskIgnoresTheEnd: lead waits for what ignores its context, and tells of it once.
func TestTaskIgnoresTheEnd(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		release := make(chan struct{})
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: func(context.Context, TaskRun) error {
			<-release
			return nil
		}})
		g.pass(90 * time.Minute)
		a.stop()
		g.pass(overrunAfter - time.Millisecond)
		require.Empty(g, g.told(EventOverrun))
		g.pass(time.Hour)
		overran := g.told(EventOverrun)
		require.Len(g, overran, 1)
		require.Equal(g, "t", overran[0].Task)
		require.Equal(g, int64(1001), overran[0].Token)
		require.Empty(g, a.ended)
		close(release)
		synctest.Wait()
		require.Len(g, a.ended, 1)
		require.Equal(g, RunSucceeded, a.status().Last.State, "its end is told, however late")
	})
}

// TestTaskFailsAtTheEnd: an error after the end of the term is no failure of the task.
func TestTaskFailsAtTheEnd(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 9}, Run: func(ctx context.Context, _ TaskRun) error {
			<-ctx.Done()
			return errors.New("half done")
		}})
		g.pass(90 * time.Minute)
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.State)
		require.Equal(g, "half done", a.status().Last.Error)
		require.Len(g, g.told(EventTaskStarted), 1)
	})
}

// TestIdleCost: without tasks nothing is asked, with one that sleeps a record is read once a
// minute.
func TestIdleCost(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a")
		g.pass(24 * time.Hour)
		require.Zero(g, a.store.calls.Load())
		a.end()
		b := g.leader("b", Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(0)}, Task{Name: "u", Schedule: Every(25 * time.Hour), Run: g.run(0)})
		g.pass(2 * time.Hour)
		require.InDelta(g, 120, b.store.calls.Load(), 6)
		b.end()
	})
}

// TestP10_OnNetwork: a daily task on a Redis behind a network that delays, loses and repeats
// requests, with leaders that come and

// TestPause: slots pass without a run, a run that is owed waits.
func TestPause(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		ctx := context.Background()
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute), RunOnElection: true}
		a := g.leader("a", task)
		g.pass(time.Minute)
		a.end()
		require.Equal(g, []string{"0s t 0s #1 starts", "1m0s t 0s #1 is told to stop"}, g.noted())
		require.NoError(g, a.Pause(ctx, "t"))
		require.ErrorIs(g, a.Pause(ctx, "u"), ErrNotFound)
		require.ErrorIs(g, a.Resume(ctx, "no name"), ErrMisconfigured)
		b := g.leader("b", task)
		g.pass(150 * time.Minute)
		require.Empty(g, g.noted())
		require.True(g, b.status().Paused)
		require.NoError(g, b.Resume(ctx, "t"))
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"2h32m0s t 0s #2 starts"}, append(g.noted(), "")[:1])
		b.end()

		require.NoError(g, b.Pause(ctx, "t"))
		task.Name, task.Schedule = "t", Every(time.Hour)
		c := g.leader("c", task)
		g.pass(90 * time.Minute)
		require.NotContains(g, g.noted(), "starts")
		c.end()
	})
}

// TestP10_ACrashBetweenClaimAndStart: nobody can tell whether the run began. With AbandonedRerun the next
// leader runs the slot, as the attempt after the one that may have been; with AbandonedFail it is not
// run again.
func TestP10_ACrashBetweenClaimAndStart(t *testing.T) {
	for policy, want := range map[AbandonedPolicy][]string{AbandonedRerun: {"1h1m0s t 1h0m0s #2 starts"}, AbandonedFail: {}} {
		inTaskCluster(t, func(g *taskCluster) {
			task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: policy}
			a := g.member("a", task)
			a.store.on(befalls("claim", always, taskMute))
			a.begin()
			g.pass(time.Hour + time.Second)
			require.True(g, a.status().Running, "claimed")
			a.crash()
			close(a.store.healed)
			g.pass(59 * time.Second)
			require.Empty(g, g.noted())
			b := g.leader("b", task)
			g.pass(time.Minute)
			require.Equal(g, want, append([]string{}, g.noted()...))
			runs, err := b.Runs(context.Background(), "t", 10)
			require.NoError(g, err)
			require.Equal(g, RunAbandoned, runs[len(runs)-1].State)
			b.end()
		})
	}
}
