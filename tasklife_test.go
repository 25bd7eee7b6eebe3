package tenure

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/simnet"
)

// TestP10_LostReplyOfClaim: the same claim is asked again until it is answered, and runs once.
func TestP10_LostReplyOfClaim(t *testing.T) {
	for name, fate := range map[string]taskFate{"no reply": taskMute, "no request": taskLost, "late reply": taskHung, "late request": taskLate} {
		t.Run(name, func(t *testing.T) {
			onTaskStage(t, func(g *taskStage) {
				a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
				a.store.on(func(op string, number int) taskFate {
					if op == "claim" && number <= 3 {
						return fate
					}
					return taskFine
				})
				a.begin()
				g.pass(time.Hour + 20*time.Second)
				require.Len(g, g.noted(), 1)
				require.Equal(g, "a-1", a.status().Last.Run)
				require.Equal(g, RunSucceeded, a.status().Last.Status)
				failed := g.told(EventTaskFailed)
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

// TestP10_ClaimAtTheEndOfTheTerm: a claim whose answer did not come in time is given back, and a late one is refused: the slot
// is run by the next leader as if nobody had claimed it, even with MarkFailed.
func TestP10_ClaimAtTheEndOfTheTerm(t *testing.T) {
	for name, fate := range map[string]taskFate{"no reply": taskMute, "no request": taskLost, "late reply": taskHung, "late request": taskLate} {
		t.Run(name, func(t *testing.T) {
			onTaskStage(t, func(g *taskStage) {
				task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: MarkFailed}
				a := g.member("a", task)
				a.store.on(func(op string, _ int) taskFate {
					if op == "claim" {
						return fate
					}
					return taskFine
				})
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
					require.Equal(g, RunInterrupted, a.status().Last.Status)
				}
				b := g.leader("b", task)
				g.pass(time.Minute)
				require.Equal(g, []string{"1h1m1s t 1h0m0s #1 starts"}, g.noted())
				require.Equal(g, RunSucceeded, b.status().Last.Status)
				b.end()
			})
		})
	}
}

// TestP10_TermIsCheckedLast: a reader notices the end of the term while the claim is under way: the task does not start.
func TestP10_TermIsCheckedLast(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), Abandoned: MarkFailed}
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
	onTaskStage(t, func(g *taskStage) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(0)})
		term, _ := TermFrom(a.t.ctx)
		l := &taskLoop{s: a.TaskScheduler, ctx: a.t.ctx, term: term, origin: time.Now()}
		task := &leadTask{registered: a.known()[0]}
		task.run = &liveRun{id: "r", attempt: 1, first: 1}
		a.t.lease.Store(nil)
		l.start(task)
		synctest.Wait()
		l.turn()
		require.Empty(g, g.noted())
		finished := g.told(EventTaskFinished)
		require.Len(g, finished, 1)
		require.ErrorIs(g, finished[0].Err, ErrNotLeader)
		require.True(g, task.asking.finish, "it is given back")

		// A further attempt that does not start leaves the run as the one before left it.
		task.asking, task.run = nil, &liveRun{id: "s", attempt: 2, first: 1, text: "bad"}
		l.start(task)
		synctest.Wait()
		l.turn()
		require.Equal(g, 1, task.run.attempt)
		require.Equal(g, "bad", task.run.text)
	})
}

// TestP10_FencedLeader: an old leader that goes on claims nothing and ends nothing.
func TestP10_FencedLeader(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
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
		fenced := g.told(EventTaskFailed)
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
	onTaskStage(t, func(g *taskStage) {
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
		require.Equal(g, RunSucceeded, status.Last.Status)
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
	onTaskStage(t, func(g *taskStage) {
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
		require.Equal(g, RunSucceeded, a.status().Last.Status, "its end is told, however late")
	})
}

// TestTaskFailsAtTheEnd: an error after the end of the term is no failure of the task.
func TestTaskFailsAtTheEnd(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 9}, Run: func(ctx context.Context, _ TaskRun) error {
			<-ctx.Done()
			return errors.New("half done")
		}})
		g.pass(90 * time.Minute)
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.Status)
		require.Equal(g, "half done", a.status().Last.Error)
		require.Len(g, g.told(EventTaskStarted), 1)
	})
}

// schedule is one of the application's own.
type schedule struct {
	next func(time.Time) time.Time
	text string
}

func (s schedule) Next(after time.Time) time.Time { return s.next(after) }
func (s schedule) String() string                 { return s.text }

// TestHungSchedule: alive tells of it, without waiting, and only as long as it lasts.
func TestHungSchedule(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		release := make(chan struct{})
		var hang atomic.Bool
		a := g.member("a")
		require.NoError(g, a.alive())
		require.NoError(g, a.Register(Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time {
			if hang.Load() {
				<-release
			}
			return after.Add(time.Hour)
		}, "own"}}))
		hang.Store(true)
		a.begin()
		require.NoError(g, a.alive())
		g.pass(hungAfter - time.Millisecond)
		require.NoError(g, a.alive())
		g.pass(time.Second)
		require.ErrorContains(g, a.alive(), "no progress")
		close(release)
		synctest.Wait()
		require.NoError(g, a.alive())
		a.end()
		require.NoError(g, a.alive())
	})
}

// TestBrokenSchedule: a Next that panics, or ends its goroutine, costs its task and nothing else.
func TestBrokenSchedule(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("broken") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			onTaskStage(t, func(g *taskStage) {
				var broken atomic.Bool
				a := g.leader("a", Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)},
					Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time {
						if broken.Load() {
							fail()
						}
						return after.Add(time.Hour)
					}, "own"}})
				g.pass(90 * time.Minute)
				require.Len(g, g.noted(), 2)
				broken.Store(true)
				g.pass(2 * time.Hour)
				require.Equal(g, []string{"2h0m0s u 2h0m0s #1 starts", "3h0m0s u 3h0m0s #1 starts"}, g.noted())
				failed := g.told(EventTaskFailed)
				require.Len(g, failed, 1)
				require.Equal(g, "t", failed[0].Task)
				require.ErrorIs(g, failed[0].Err, ErrMisconfigured)
				var panicked *PanicError
				require.ErrorAs(g, failed[0].Err, &panicked)
				broken.Store(false)
				a.end()
				b := g.leader("b", Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time { return after.Add(time.Hour) }, "own"}})
				g.pass(time.Second)
				require.Equal(g, []string{"3h30m0s t 3h0m0s #1 starts"}, g.noted(), "the slots were kept")
				b.end()
			})
		})
	}
}

// TestScheduleBrokenFromTheStart: it has no first slot in this term, and the record stays as it was.
func TestScheduleBrokenFromTheStart(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		var broken atomic.Bool
		a := g.member("a", Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time {
			if broken.Load() {
				panic("broken")
			}
			return after.Add(time.Hour)
		}, "own"}})
		broken.Store(true)
		a.begin()
		g.pass(24 * time.Hour)
		require.Len(g, g.told(EventTaskFailed), 1)
		require.True(g, a.status().Next.IsZero())
		a.end()
	})
}

// TestScheduleThatEnds: it has no further slot, and is asked for none.
func TestScheduleThatEnds(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		once := schedule{func(after time.Time) time.Time {
			if due := g.began.Add(time.Hour); after.Before(due) {
				return due
			}
			return time.Time{}
		}, "once"}
		task := Task{Name: "t", Schedule: once, Run: g.run(0)}
		a := g.leader("a", task)
		g.pass(24 * time.Hour)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts"}, g.noted())
		require.True(g, a.status().Next.IsZero())
		a.end()
		b := g.leader("b", task)
		g.pass(24 * time.Hour)
		require.Empty(g, g.noted())
		b.end()
	})
}

// TestIdleCost: without tasks nothing is asked, with one that sleeps a record is read once a minute.
func TestIdleCost(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
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

// onTaskNet is onTaskStage with a Redis in virtual time behind a network.
func onTaskNet(t *testing.T, act func(g *taskStage, net *simnet.Network, server *simnet.Server)) {
	onTaskStage(t, func(g *taskStage) {
		net := simnet.New(simnet.Options{Seed: 1})
		defer net.Close()
		server := net.NewServer(simnet.Addr, simnet.ServerOptions{})
		var c checker
		g.store = newRedisStore(net.Client("host", nil), &c, Options{Namespace: "tasks"})
		require.NoError(g, c.err())
		act(g, net, server)
		for _, m := range g.members {
			if m.ended != nil {
				m.end()
			}
		}
	})
}

// TestRedisClockSteps: within a minute the slots follow Redis's clock.
func TestRedisClockSteps(t *testing.T) {
	onTaskNet(t, func(g *taskStage, net *simnet.Network, server *simnet.Server) {
		a := g.leader("a", Task{Name: "t", Schedule: Cron("0 0 * * *"), Run: g.run(0)})
		g.pass(time.Hour)
		server.StepClock(22 * time.Hour)
		g.pass(59*time.Minute + 50*time.Second)
		require.Empty(g, g.noted())
		g.pass(20 * time.Second)
		require.Equal(g, []string{"2h0m0s t 24h0m0s #1 starts"}, rounded(g.noted()))
		server.StepClock(-4 * time.Minute)
		g.pass(24*time.Hour + 3*time.Minute)
		require.Empty(g, g.noted())
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"26h4m0s t 48h0m0s #1 starts"}, rounded(g.noted()))

		// Set back by more than the schedule can have led to, the next slot is computed anew.
		server.StepClock(-30 * 24 * time.Hour)
		g.pass(24*time.Hour + 2*time.Minute)
		require.Len(g, g.noted(), 1)
		require.Zero(g, a.status().Skipped)
		a.end()
	})
}

// TestTaskIsNotEarly: where the estimate is ahead, Redis's clock decides, and the slot is not late for it.
func TestTaskIsNotEarly(t *testing.T) {
	onTaskNet(t, func(g *taskStage, net *simnet.Network, server *simnet.Server) {
		a := g.leader("a", Task{Name: "t", Schedule: Cron("0 * * * *"), Run: g.run(0)})
		g.pass(time.Hour - 10*time.Second)
		server.StepClock(-30 * time.Second)
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"1h0m30s t 1h0m0s #1 starts"}, rounded(g.noted()))
		a.end()
	})
}

// rounded is a trace in whole seconds.
func rounded(trace []string) []string {
	for i, line := range trace {
		at, rest, _ := strings.Cut(line, " ")
		d, err := time.ParseDuration(at)
		if err == nil {
			trace[i] = d.Round(time.Second).String() + " " + rest
		}
	}
	return trace
}

// TestP10_OnNetwork: a daily task on a Redis behind a network that delays, loses and repeats requests, with leaders that come and
// go: each slot is run to its end once.
func TestP10_OnNetwork(t *testing.T) {
	onTaskNet(t, func(g *taskStage, net *simnet.Network, server *simnet.Server) {
		net.SetFaults("", simnet.Faults{DelayRequest: 0.2, DelayReply: 0.2, DelayMax: 8 * time.Second, LoseRequest: 0.05, LoseReply: 0.05, Duplicate: 0.1, DuplicateWithin: 10 * time.Second})
		finished := make(map[time.Time]int)
		task := Task{Name: "t", Schedule: Cron("*/30 * * * *"), Missed: RunAll, Run: func(ctx context.Context, run TaskRun) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(5 * time.Minute):
				g.lock(func() { finished[run.Slot]++ })
				return nil
			}
		}}
		for g.now() < 36*time.Hour {
			leader := g.leader("m", task)
			g.pass(time.Duration(g.draw(120)) * time.Minute)
			leader.end()
			g.pass(time.Duration(g.draw(40)) * time.Minute)
		}
		net.SetFaults("", simnet.Faults{})
		last := g.leader("m", task)
		for g.pass(3 * time.Hour); last.status().Running; {
			g.pass(time.Minute)
		}
		status := last.status()
		require.Zero(g, status.Skipped)
		slot := g.began.UTC()
		for slot = slot.Add(30 * time.Minute); slot.Before(status.Next); slot = slot.Add(30 * time.Minute) {
			require.GreaterOrEqual(g, finished[slot], 1, "slot %v", slot)
		}
		repeated := 0
		for _, n := range finished {
			repeated += n - 1
		}
		require.LessOrEqual(g, repeated, 3, "only a run whose end could not be told is repeated")
		last.end()
	})
}

// TestLostRecord: a record that is gone goes on where the leader knows it was.
func TestLostRecord(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(20 * time.Minute)})
		lose := func() {
			g.local.mu.Lock()
			defer g.local.mu.Unlock()
			clear(g.local.records)
			g.local.names = nil
		}
		g.pass(70 * time.Minute)
		lose() // during a run
		g.pass(30 * time.Minute)
		require.Equal(g, 2*time.Hour, a.status().Next.Sub(g.began))
		failed := g.told(EventTaskFailed)
		require.Len(g, failed, 1)
		require.ErrorIs(g, failed[0].Err, ErrNotFound)
		lose()
		g.pass(50 * time.Minute)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "2h0m0s t 2h0m0s #1 starts"}, g.noted())
		require.Equal(g, 3*time.Hour, a.status().Next.Sub(g.began))
		a.end()
	})
}

// TestRecordMovesUnderTheLeader: what somebody else writes there is taken up, and nothing is run twice.
func TestRecordMovesUnderTheLeader(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		move := func(d time.Duration) {
			g.local.mu.Lock()
			defer g.local.mu.Unlock()
			r := g.local.records["t"]
			r.next = g.began.Add(d).UnixMilli()
			r.due = strconv.FormatInt(r.next, 10)
		}
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(90 * time.Minute)})
		g.pass(time.Hour - time.Second)
		move(70 * time.Minute) // the claim of the first slot finds another one
		g.pass(10*time.Minute + 2*time.Second)
		require.Equal(g, []string{"1h10m0s t 1h10m0s #1 starts"}, g.noted())
		g.pass(59*time.Minute + 57*time.Second)
		move(130*time.Minute + time.Second) // so does what is to pass the second one over, during the run
		g.pass(10 * time.Second)
		require.Equal(g, int64(1), a.status().Skipped)
		require.Equal(g, 3*time.Hour+10*time.Minute+time.Second, a.status().Next.Sub(g.began))
		g.pass(time.Hour)
		require.Equal(g, []string{"3h10m1s t 3h10m1s #1 starts"}, g.noted())
		a.end()
	})
}

// TestPause: slots pass without a run, a run that is owed waits.
func TestPause(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
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

// TestSickRecord: a record that somebody has to mend is told of once, tried rarely, and does not touch the other tasks.
func TestSickRecord(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		a.store.on(func(op string, _ int) taskFate { return taskSick })
		a.begin()
		g.pass(time.Hour)
		failed := g.told(EventTaskFailed)
		require.Len(g, failed, 1)
		require.ErrorIs(g, failed[0].Err, ErrMisconfigured)
		require.InDelta(g, 120, a.store.calls.Load(), 5)
		a.store.on(nil)
		g.pass(2 * time.Hour)
		require.NotEmpty(g, g.noted())
		a.end()
	})
}

// TestHungCalls: calls that never return are bounded in number, told of, and do not stop the scheduler from going on later.
func TestHungCalls(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}, Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(30 * time.Minute)
		a.store.on(func(string, int) taskFate { return taskLate })
		g.pass(90 * time.Minute)
		require.Equal(g, int32(maxCalls), a.calls.Load())
		stuck := g.told(EventCallsStuck)
		require.Len(g, stuck, 1)
		require.Equal(g, maxCalls, stuck[0].Count)
		a.stop()
		g.pass(callBound + finishBound + time.Second)
		require.Len(g, a.ended, 1, "lead does not wait for ever")
		require.NoError(g, <-a.ended)

		// The next term of this process finds all of them taken.
		a.begin()
		g.pass(time.Minute)
		require.Len(g, g.told(EventCallsStuck), 2)
		a.store.on(nil)
		close(a.store.healed)
		g.pass(10 * time.Second)
		require.Len(g, g.noted(), 2)
		require.Zero(g, a.calls.Load())
		a.end()
	})
}

// TestManyTasks: more tasks than calls may be in flight.
func TestManyTasks(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.member("a")
		for n := range 200 {
			require.NoError(g, a.Register(Task{Name: "t" + string(rune('a'+n%26)) + string(rune('a'+n/26)), Schedule: Every(time.Hour), Run: g.run(0)}))
		}
		a.begin()
		g.pass(time.Hour + time.Millisecond)
		require.Len(g, g.noted(), 200)
		require.Empty(g, g.told(EventCallsStuck))
		a.end()
	})
}

// TestFinishCannotBeTold: lead gives up after a while, and the next leader finds the run.
func TestFinishCannotBeTold(t *testing.T) {
	for name, fate := range map[string]taskFate{"refused": taskLost, "no reply": taskLate} {
		t.Run(name, func(t *testing.T) {
			onTaskStage(t, func(g *taskStage) {
				a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
				g.pass(time.Hour + time.Second)
				a.store.on(func(op string, _ int) taskFate { return fate })
				g.pass(10 * time.Minute) // as long as the term lasts it is tried
				require.True(g, a.status().Running)
				g.pass(2 * time.Hour)
				require.Len(g, g.noted(), 1, "the next slot waits for that")
				a.stop()
				g.pass(finishBound - time.Millisecond)
				require.Empty(g, a.ended)
				g.pass(callBound + 2*time.Millisecond)
				require.Len(g, a.ended, 1)
				close(a.store.healed)
			})
		})
	}
}

// TestFinishIsRepeated: what Redis did not answer is asked again while the term lasts, and after it.
func TestFinishIsRepeated(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
		a.store.on(func(op string, number int) taskFate {
			if op == "finish" && number <= 3 {
				return taskMute
			}
			return taskFine
		})
		g.pass(time.Hour + 2*time.Minute)
		require.Equal(g, RunSucceeded, a.status().Last.Status)
		g.pass(58*time.Minute + time.Second)
		a.store.on(func(op string, number int) taskFate {
			if op == "finish" && number <= 3 {
				return taskLost
			}
			return taskFine
		})
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.Status)
	})
}

// TestSkipWhileRunEnds: a run that ends while something else is being asked about the task waits for its turn.
func TestSkipWhileRunEnds(t *testing.T) {
	for _, end := range []bool{false, true} {
		onTaskStage(t, func(g *taskStage) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Hour + time.Second)})
			a.store.on(func(op string, number int) taskFate {
				if op == "plan" && number <= 2 {
					return taskLost
				}
				return taskFine
			})
			g.pass(2*time.Hour + 100*time.Millisecond)
			if end {
				a.end()
				require.Equal(g, RunInterrupted, a.status().Last.Status)
				return
			}
			g.pass(2 * time.Second)
			require.Equal(g, RunSucceeded, a.status().Last.Status)
			require.Equal(g, int64(1), a.status().Skipped)
			a.end()
		})
	}
}

// TestTwoTermsOfOneScheduler: the same process leads again.
func TestTwoTermsOfOneScheduler(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(90 * time.Minute)
		a.end()
		g.pass(time.Hour)
		a.begin()
		g.pass(time.Hour)
		a.end()
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "2h30m0s t 2h0m0s #1 starts", "3h0m0s t 3h0m0s #1 starts"}, g.noted())
	})
}
