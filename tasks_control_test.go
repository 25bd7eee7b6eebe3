package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
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
	m.TaskScheduler.hint("", store.Hint{Type: store.HintTriggered, Task: task, Channel: store.LeaseEvents("")})
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
		a.TaskScheduler.hint("", store.Hint{Type: store.HintConnected, All: true})
		g.pass(0)
		require.Len(g, g.noted(), 1, "hints may have been missed: it asks")
		a.end()
	})
}

// TestTriggerBehindManyWithoutAHint: the leader finds it too while more triggers wait in the
// namespace than one look lists. It then asks for those of its own tasks, in as few calls as may
// be.
func TestTriggerBehindManyWithoutAHint(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: OnDemand(), Run: g.args(0)}
		looked := Task{Name: "u", Schedule: Every(24 * time.Hour), Run: g.args(0)}
		b := g.member("b", task)
		for i := range 2*store.MaxTriggers + 1 {
			name := fmt.Sprint("other", i)
			require.NoError(g, b.Register(Task{Name: name, Schedule: OnDemand(), Run: g.args(0)}))
			_, err := b.Trigger(context.Background(), name)
			require.NoError(g, err)
		}
		a := g.leader("a", task, looked)
		g.pass(5 * time.Minute)
		calls := a.store.calls.Load()
		g.pass(10 * time.Minute)
		require.LessOrEqual(g, a.store.calls.Load()-calls, int64(2*10), "idle: a question a minute, and one for its own tasks")
		_, err := b.Trigger(context.Background(), "t")
		require.NoError(g, err)
		g.pass(schedule.LookEvery)
		require.Len(g, g.noted(), 1)
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

// starts are the lines of a trace that say so.
func starts(lines []string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasSuffix(line, " starts") })
}

// TestPauseBesideARunThatWaits: a run was interrupted while its task was paused. After Resume it is
// run again, and the slots that passed during the pause are not.
func TestPauseBesideARunThatWaits(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Missed: MissedRunAll, Run: g.run(10 * time.Minute)}
		a, b := g.leader("a", task), g.member("b", task)
		g.pass(time.Hour + time.Minute)
		require.NoError(g, a.Pause(context.Background(), "t", ""))
		a.end()
		b.begin()
		g.noted()
		calls := b.store.calls.Load()
		g.pass(5 * time.Hour)
		require.LessOrEqual(g, b.store.calls.Load()-calls, int64(5*60*3))
		require.Empty(g, g.noted())
		require.NoError(g, b.Resume(context.Background(), "t"))
		g.pass(40 * time.Minute)
		require.Equal(g, []string{"6h2m0s t 1h0m0s #2 starts"}, starts(g.noted()))
		require.Zero(g, b.status().Skipped)
		b.end()
	})
}

// TestPauseOfATaskThatWaits: slots of a pause are not run after it, though no leader could let them
// pass meanwhile: another task of the group had its place, or nobody led.
func TestPauseOfATaskThatWaits(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		ctx := context.Background()
		long := Task{Name: "long", Group: "db", Schedule: Every(1000 * time.Hour), InitialDelay: 50 * time.Minute, Run: g.run(4 * time.Hour)}
		task := Task{Name: "t", Group: "db", Schedule: Every(time.Hour), Run: g.run(time.Minute)}
		a := g.leader("a", long, task)
		g.pass(55 * time.Minute)
		require.NoError(g, a.Pause(ctx, "t", ""))
		g.pass(3 * time.Hour) // slots at 1, 2 and 3
		require.NoError(g, a.Resume(ctx, "t"))
		g.pass(64 * time.Minute) // the slot at 4, which waits until 4:50
		require.Equal(g, []string{"50m0s long 50m0s #1 starts", "4h50m0s t 4h0m0s #1 starts"}, starts(g.noted()))

		require.NoError(g, a.Pause(ctx, "t", ""))
		a.end()
		g.pass(150 * time.Minute)
		require.NoError(g, a.Resume(ctx, "t"))
		g.pass(5 * time.Minute) // 7:34
		b := g.leader("b", task)
		g.pass(time.Hour)
		require.Equal(g, []string{"8h0m0s t 8h0m0s #1 starts"}, starts(g.noted()))
		b.end()
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

// hookedTriggers does something right before a trigger is sent.
type hookedTriggers struct {
	store.Tasks
	before func()
}

func (h hookedTriggers) Trigger(ctx context.Context, name string, t store.TaskTrigger) (store.TaskReply, error) {
	h.before()
	return h.Tasks.Trigger(ctx, name, t)
}

// TestTriggerSentTwice: a reply is lost and the client sends the request again, when the trigger
// has run and many others since. It runs once, and its caller hears so.
func TestTriggerSentTwice(t *testing.T) {
	for name, others := range map[string]int{"few": 12, "more than the process remembers": 24, "more than the record remembers": 48} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a, b := c.member("a"), c.member("b")
				ran := map[string]int{}
				for _, m := range []*instance{a, b} {
					require.NoError(c, m.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), History: 100, Run: func(_ context.Context, run TaskRun) error {
						c.lock(func() { ran[run.Trigger]++ })
						return nil
					}}))
				}
				a.start()
				c.until(time.Minute, a.IsLeader)
				b.start()
				c.pass(time.Second)
				_, err := a.Tasks().Trigger(background, "t") // the scripts are loaded
				require.NoError(c, err)
				c.pass(time.Second)
				b.Tasks().store = hookedTriggers{Tasks: b.Tasks().store, before: once(func() { c.net.Partition("b", simnet.Replies, 500*time.Millisecond) })}
				answer := make(chan error, 1)
				var id string
				go func() {
					sent, err := b.Tasks().Trigger(background, "t", "pay the invoice")
					c.lock(func() { id = sent })
					answer <- err
				}()
				c.pass(100 * time.Millisecond)
				for range others {
					_, err := a.Tasks().Trigger(background, "t", "other")
					require.NoError(c, err)
					c.pass(2800 * time.Millisecond / time.Duration(others)) // the client gives up on the reply after 3 s
				}
				require.NoError(c, <-answer)
				c.pass(10 * time.Second)
				require.Len(c, ran, 2+others)
				require.Equal(c, 1, ran[id])
			})
		})
	}
}

// TestTriggerThatNobodyRemembers: if neither the record nor the history knows whether a trigger
// that is sent again has run, it does not run again, and its caller hears that it is not known.
func TestTriggerThatNobodyRemembers(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: OnDemand(), Run: g.args(0)})
		a.keep = -1
		a.begin()
		first := true
		a.TaskScheduler.store = hookedTriggers{Tasks: a.TaskScheduler.store, before: func() {
			if first {
				first = false
				for range 40 {
					_, err := a.Trigger(context.Background(), "t", "other")
					require.NoError(g, err)
					g.pass(time.Second / 2)
				}
			}
		}}
		_, err := a.Trigger(context.Background(), "t", "late")
		require.ErrorIs(g, err, ErrUnreachable)
		require.ErrorContains(g, err, "not known")
		g.pass(2 * time.Minute)
		require.Len(g, g.noted(), 40)
		a.end()
	})
}

// TestSlotsDuringATriggeredFirstRun: a new task gets its first slot before a trigger runs, so that
// the slots that come due meanwhile are run, or counted.
func TestSlotsDuringATriggeredFirstRun(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		hourly, err := ParseCron("0 * * * *")
		require.NoError(g, err)
		ran := 0
		a := g.member("a", Task{Name: "t", Schedule: hourly, Overlap: OverlapQueue, Missed: MissedRunAll, Run: func(_ context.Context, run TaskRun) error {
			if run.Trigger != "" {
				time.Sleep(3 * time.Hour)
			} else {
				ran++
			}
			return nil
		}})
		_, err = a.Trigger(context.Background(), "t")
		require.NoError(g, err)
		a.begin()
		g.pass(3*time.Hour + 10*time.Minute)
		require.Positive(g, ran, a.status().Next)
		require.Equal(g, int64(3), int64(ran)+a.status().Skipped, "each slot is run or counted")
		a.end()
	})
}

// TestSlotsPassDuringATriggeredRun: a slot that comes due while a run is on that was triggered is
// a matter of Overlap, as it is during any other run. The task is not overdue meanwhile.
func TestSlotsPassDuringATriggeredRun(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(5 * time.Minute), Run: func(_ context.Context, run TaskRun) error {
			if run.Trigger != "" {
				time.Sleep(13 * time.Minute)
			}
			g.note("ran")
			return nil
		}})
		g.pass(6 * time.Minute)
		_, err := a.Trigger(context.Background(), "t")
		require.NoError(g, err)
		g.pass(12 * time.Minute)
		require.False(g, a.status().Overdue)
		g.pass(4 * time.Minute)
		require.Equal(g, []string{"5m0s ran", "19m0s ran", "20m0s ran"}, g.noted())
		require.Equal(g, int64(2), a.status().Skipped)
		a.end()
	})
}

// TestTriggerLosesNoQueuedSlot: a slot that waits for a run to end, and then for one that was
// triggered meanwhile, is still a matter of Overlap, and not of Missed.
func TestTriggerLosesNoQueuedSlot(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(10 * time.Minute), Overlap: OverlapQueue, Missed: MissedSkip, Run: func(_ context.Context, run TaskRun) error {
			switch {
			case run.Trigger != "":
				time.Sleep(3 * time.Minute)
			case run.Slot.Before(g.began.Add(15 * time.Minute)):
				time.Sleep(11 * time.Minute)
			}
			g.note("ran")
			return nil
		}})
		g.pass(11 * time.Minute)
		_, err := a.Trigger(context.Background(), "t")
		require.NoError(g, err)
		g.pass(23 * time.Minute)
		require.Equal(g, []string{"21m0s ran", "24m0s ran", "24m0s ran", "30m0s ran"}, g.noted())
		require.Zero(g, a.status().Skipped)
		a.end()
	})
}

// TestSlotsBetweenTriggers: after a run that was triggered a slot that is due comes first, and
// after that the trigger that waits.
func TestSlotsBetweenTriggers(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		slots, triggered := 0, 0
		a := g.leader("a", Task{Name: "t", Schedule: Every(10 * time.Minute), Overlap: OverlapQueue, Run: func(_ context.Context, run TaskRun) error {
			if run.Trigger == "" {
				slots++
			} else {
				triggered++
			}
			time.Sleep(time.Minute)
			return nil
		}})
		for range 3 * 60 * 2 {
			_, _ = a.Trigger(context.Background(), "t")
			g.pass(30 * time.Second)
		}
		require.Equal(g, 18, slots, "3 hours; skipped: %d", a.status().Skipped)
		require.Greater(g, triggered, 150)
		a.end()
	})
}

// TestTriggerBetweenSlots: a task that is slower than its interval always has a slot that is due.
// What is triggered runs after the slot that is on.
func TestTriggerBetweenSlots(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Minute), Overlap: OverlapQueue, Run: func(_ context.Context, run TaskRun) error {
			g.note("%q", run.Args)
			time.Sleep(90 * time.Second)
			return nil
		}})
		g.pass(10*time.Minute + time.Second)
		_, err := a.Trigger(context.Background(), "t", "x")
		require.NoError(g, err)
		g.noted()
		g.pass(4 * time.Minute)
		require.Equal(g, []string{`11m30s ["x"]`, "13m0s []"}, g.noted()[:2])
		a.end()
	})
}

// TestCancel: a run is ended from any process, by the hint or without it, and is not run again.
func TestCancel(t *testing.T) {
	for name, heard := range map[string]bool{"heard": true, "hint lost": false} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 3}}
				task.Run = func(ctx context.Context, run TaskRun) error {
					g.note("#%d", run.Attempt)
					<-ctx.Done()
					g.note("ends: %v", context.Cause(ctx))
					return ctx.Err()
				}
				a, b := g.leader("a", task), g.member("b")
				require.ErrorIs(g, b.Cancel(g.Context(), "t"), ErrNotFound, "nothing runs")
				require.ErrorIs(g, b.Cancel(g.Context(), "none"), ErrNotFound)
				require.ErrorIs(g, b.Cancel(g.Context(), "no name"), ErrMisconfigured)
				g.pass(time.Hour + 10*time.Minute)
				require.NoError(g, b.Cancel(g.Context(), "t"))
				if heard {
					a.hears("t")
					g.pass(0)
				} else {
					g.pass(time.Minute)
				}
				noted := g.noted()
				require.Len(g, noted, 2)
				require.Contains(g, noted[1], "ends: "+ErrCanceled.Error())
				status := b.status()
				require.False(g, status.Running)
				require.Equal(g, RunCanceled, status.Last.State)
				require.Equal(g, "tenure: run canceled: context canceled", status.Last.Error)
				require.Zero(g, status.Failures)
				runs, err := b.Runs(g.Context(), "t", 10)
				require.NoError(g, err)
				require.Len(g, runs, 1)
				require.Equal(g, RunCanceled, runs[0].State)
				told := g.told(EventTaskCanceled, EventTaskFailed, EventTaskAttemptFailed, EventTaskInterrupted)
				require.Len(g, told, 1)
				require.Equal(g, EventTaskCanceled, told[0].Type)
				require.ErrorIs(g, told[0].Err, ErrCanceled)
				require.ErrorIs(g, told[0].Err, context.Canceled)
				require.ErrorIs(g, b.Cancel(g.Context(), "t"), ErrNotFound, "it has ended")
				g.pass(time.Hour - g.now()%time.Hour)
				require.Equal(g, []string{"2h0m0s #1"}, g.noted(), "the next slot")
				a.end()
				require.Equal(g, RunInterrupted, b.status().Last.State)
				require.NoError(g, b.Cancel(g.Context(), "t"), "it waits to be run again")
				require.Equal(g, RunCanceled, b.status().Last.State)
				g.noted()
				a.begin()
				g.pass(10 * time.Minute)
				require.Empty(g, g.noted())
				a.end()
			})
		})
	}
}

// TestCancelBetweenAttempts: the run ends at once, and its event says why.
func TestCancelBetweenAttempts(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", g.badTask(RetryPolicy{Attempts: 3, Backoff: time.Hour, MaxBackoff: time.Hour}))
		g.pass(time.Minute)
		require.True(g, a.status().Running)
		require.NoError(g, a.Cancel(g.Context(), "t"))
		g.pass(time.Second)
		require.Equal(g, RunCanceled, a.status().Last.State)
		told := g.told(EventTaskCanceled)
		require.Len(g, told, 1)
		require.ErrorIs(g, told[0].Err, ErrCanceled)
		g.pass(2 * time.Hour)
		require.Len(g, g.noted(), 1)
		a.end()
	})
}

// TestCancelOfAClaimThatWasGivenBack: the next leader does not run it.
func TestCancelOfAClaimThatWasGivenBack(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}
		a := g.member("a", task)
		a.store.on(befalls("claim", always, taskMute))
		a.begin()
		g.pass(time.Hour + time.Second)
		a.end()
		reply, err := g.local.Record(g.Context(), "t")
		require.NoError(g, err)
		require.Equal(g, store.RunReturned, reply.Record.Status)
		require.NoError(g, a.Cancel(g.Context(), "t"))
		b := g.leader("b", task)
		g.pass(time.Minute)
		require.Empty(g, g.noted())
		require.Equal(g, RunCanceled, b.status().Last.State)
		b.end()
	})
}

// TestCancelOfADeadLeader: the next leader does not run it again, and reports that.
func TestCancelOfADeadLeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute)}
		a := g.leader("a", task)
		g.pass(time.Hour + time.Minute)
		a.crash()
		b := g.member("b", task)
		require.NoError(g, b.Cancel(g.Context(), "t"))
		b.begin()
		g.pass(time.Minute)
		g.noted()
		require.Equal(g, RunCanceled, b.status().Last.State)
		told := g.told(EventTaskCanceled)
		require.NotEmpty(g, told)
		require.ErrorIs(g, told[len(told)-1].Err, ErrCanceled)
		g.pass(30 * time.Minute)
		require.Empty(g, g.noted())
		b.end()
	})
}

// TestCancelOfARunThatWaits for its next attempt, of which the leader before knew: the next slot
// runs as usual, and so does what is triggered.
func TestCancelOfARunThatWaits(t *testing.T) {
	for name, c := range map[string]struct{ crash, hint bool }{
		"interrupted": {false, true}, "interrupted, no hint": {false, false}, "crash": {true, true}, "crash, no hint": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := g.badTask(RetryPolicy{Attempts: 3, Backoff: 24 * time.Hour, MaxBackoff: 24 * time.Hour})
				task.Schedule, task.RunOnElection = Every(time.Hour), false
				a := g.leader("a", task)
				g.at(time.Hour + time.Minute)
				if c.crash {
					a.crash()
				} else {
					a.end()
				}
				b := g.leader("b", task)
				g.pass(10 * time.Minute)
				g.noted()
				by := b
				if !c.hint {
					by = g.member("c")
				}
				require.NoError(g, by.Cancel(g.Context(), task.Name))
				g.pass(time.Minute + time.Second)
				require.Equal(g, RunCanceled, b.status().Last.State)
				g.at(2*time.Hour + time.Second)
				require.Equal(g, []string{"2h0m0s #1"}, g.noted())
				require.NoError(g, b.Cancel(g.Context(), task.Name))
				_, err := b.Trigger(g.Context(), task.Name)
				require.NoError(g, err)
				g.pass(time.Minute)
				require.Len(g, g.noted(), 1)
				b.end()
			})
		})
	}
}

// TestCancelOfARunThatIsLeft: a run that goes on after its task was unregistered, or while its
// leader hands over, is ended by Cancel as any other, and not run again.
func TestCancelOfARunThatIsLeft(t *testing.T) {
	for name, hint := range map[string]bool{"hint": true, "no hint": false} {
		t.Run("unregistered, "+name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(30 * time.Minute)})
				g.pass(time.Hour + 30*time.Second) // between two looks at the records
				left := make(chan error, 1)
				go func() { left <- a.Unregister(g.Context(), "t") }()
				g.pass(time.Second)
				by := a
				if !hint {
					by = g.member("c")
				}
				require.NoError(g, by.Cancel(g.Context(), "t"))
				if !hint {
					g.pass(time.Minute)
				}
				g.pass(time.Second)
				require.Len(g, left, 1)
				require.NoError(g, <-left)
				require.Equal(g, RunCanceled, a.status().Last.State)
				require.Len(g, g.told(EventTaskCanceled), 1)
			})
		})
	}
	t.Run("handed over", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			a, b := c.member("a"), c.member("b")
			for _, m := range []*instance{a, b} {
				require.NoError(c, m.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), Run: func(ctx context.Context, _ TaskRun) error {
					c.note("%s runs", m.name)
					<-ctx.Done()
					return context.Cause(ctx)
				}}))
			}
			a.start()
			c.until(time.Minute, a.IsLeader)
			b.start()
			c.pass(time.Minute)
			_, err := b.Tasks().Trigger(c.Context(), "t")
			require.NoError(c, err)
			c.pass(time.Second)
			go func() { _ = a.Elector().Resign(context.Background()) }()
			c.pass(time.Second)
			require.False(c, b.IsLeader(), "the run may finish")
			require.NoError(c, b.Tasks().Cancel(c.Context(), "t"))
			c.pass(time.Second)
			require.True(c, b.IsLeader())
			c.pass(time.Minute)
			require.Equal(c, []string{"a runs"}, c.noted())
		})
	})
}

// TestFollowerKeepsNoNews: a process that does not lead keeps nothing of the triggers that it hears
// of, however many tasks come and go. Once it leads it runs what waits.
func TestFollowerKeepsNoNews(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		var last string
		for i := range 100 {
			last = fmt.Sprint("t", i)
			require.NoError(g, a.Register(Task{Name: last, Schedule: OnDemand(), Run: g.run(0)}))
			_, err := a.Trigger(g.Context(), last)
			require.NoError(g, err)
			if i < 99 {
				require.NoError(g, a.Unregister(g.Context(), last))
			}
		}
		require.Empty(g, a.news.take().names)
		a.begin()
		g.pass(time.Second)
		require.Len(g, g.noted(), 1, last)
		a.end()
	})
}

// TestCancelKeepsTheHistory: who has not registered the task does not know how many of its runs are
// kept, and cuts none off.
func TestCancelKeepsTheHistory(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		task := Task{Name: "t", Schedule: Every(time.Minute), History: 100, Run: func(ctx context.Context, _ TaskRun) error {
			if c.now() < 30*time.Minute {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		require.NoError(c, a.Tasks().Register(task))
		a.start()
		c.pass(32 * time.Minute)
		_, err := a.stop()
		require.NoError(c, err)
		control := c.control("ops")
		before, err := control.Tasks().Runs(background, "t", 1000)
		require.NoError(c, err)
		require.Greater(c, len(before), store.DefaultHistory)
		require.Equal(c, RunInterrupted, before[0].State)
		require.NoError(c, control.Cancel(background, "t"))
		after, err := control.Tasks().Runs(background, "t", 1000)
		require.NoError(c, err)
		require.Equal(c, RunCanceled, after[0].State)
		require.Equal(c, before, after[1:])
	})
}

// TestCancelThatIsIgnored: it is reported like any other end of a context that work ignores, and
// the run has succeeded if it says so.
func TestCancelThatIsIgnored(t *testing.T) {
	for err, state := range map[error]RunState{nil: RunSucceeded, errBroken: RunCanceled} {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: func(context.Context, TaskRun) error {
				time.Sleep(20 * time.Minute)
				return err
			}})
			g.pass(time.Hour + time.Minute)
			require.NoError(g, a.Cancel(g.Context(), "t"))
			g.pass(10 * time.Minute)
			require.Len(g, g.told(EventWorkOverrun), 1)
			g.pass(10 * time.Minute)
			require.Equal(g, state, a.status().Last.State)
			if err != nil {
				canceled := g.told(EventTaskCanceled)
				require.Len(g, canceled, 1)
				require.True(g, errors.Is(canceled[0].Err, errBroken) && errors.Is(canceled[0].Err, ErrCanceled))
			}
			a.end()
		})
	}
}

// TestForget: an orphan is removed once a leader that does not know it has led for a minute, and
// nothing else is.
func TestForget(t *testing.T) {
	inCluster(t, func(c *cluster) {
		ctx := context.Background()
		a := c.member("a")
		require.NoError(c, a.Tasks().Register(a.counts("old", Every(10*time.Minute))))
		a.start()
		c.pass(21 * time.Minute)
		control := c.control("ops")
		require.ErrorIs(c, a.Tasks().Forget(ctx, "old"), ErrRegistered, "here")
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrRegistered, "by the leader")
		require.ErrorIs(c, control.Forget(ctx, "none"), ErrNotFound)
		require.ErrorIs(c, control.Tasks().Forget(ctx, "no name"), ErrMisconfigured)
		_, err := a.stop()
		require.NoError(c, err)
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrNoLeader)
		b := c.member("b")
		b.start()
		c.pass(30 * time.Second)
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrNoLeader, "it may be about to take it over")
		require.ErrorContains(c, control.Forget(ctx, "old"), "no leader that has led for 1m0s yet", "there is one")
		c.pass(time.Minute)
		require.NoError(c, control.Forget(ctx, "old"))
		list, err := b.Tasks().List(ctx)
		require.NoError(c, err)
		require.Empty(c, list)
		runs, err := b.Tasks().Runs(ctx, "old", 10)
		require.NoError(c, err)
		require.Empty(c, runs)
		require.ErrorIs(c, control.Forget(ctx, "old"), ErrNotFound)
	})
}

// TestForgetWithoutRedis: records in memory have one process.
func TestForgetWithoutRedis(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a, b := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)}), g.member("b")
		g.pass(time.Hour + time.Minute)
		require.ErrorIs(g, a.Forget(g.Context(), "t"), ErrRegistered)
		a.end()
		require.NoError(g, b.Forget(g.Context(), "t"))
		require.ErrorIs(g, b.Forget(g.Context(), "t"), ErrNotFound)
		runs, err := b.Runs(g.Context(), "t", 10)
		require.NoError(g, err)
		require.Empty(g, runs)
	})
}

// TestUnregister: nothing of the task starts any more, the others go on, and the name is free.
func TestUnregister(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)}, Task{Name: "u", Schedule: Every(time.Minute), Run: g.run(0)})
		g.pass(time.Minute)
		require.Len(g, g.noted(), 2)
		require.NoError(g, a.Unregister(context.Background(), "t"))
		require.ErrorIs(g, a.Unregister(context.Background(), "t"), ErrNotFound)
		require.ErrorIs(g, a.Unregister(context.Background(), "?"), ErrMisconfigured)
		require.Nil(g, a.homes.get("t"), "nothing is kept of its name")
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
		require.Nil(g, a.homes.get("u"))
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

// TestReplacedWhileACallIsOnItsWay: a task that is unregistered while a call of it is on its way,
// and registered anew, is one task: hints reach it, it does not overlap itself, and Unregister
// waits for its run.
func TestReplacedWhileACallIsOnItsWay(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		a.taskConfig.store = &joinedTasks{Tasks: g.local, takes: time.Millisecond}
		on, most := 0, 0
		tasks := []Task{{Name: "t", Schedule: Every(time.Minute), Run: func(context.Context, TaskRun) error {
			g.lock(func() { on++; most = max(most, on) })
			time.Sleep(30 * time.Second)
			g.lock(func() { on-- })
			return nil
		}}, {Name: "u", Schedule: OnDemand(), Run: g.run(0)}}
		for _, task := range append(tasks, Task{Name: "v", Schedule: Every(time.Hour), Run: g.run(0)}) {
			require.NoError(g, a.Register(task))
		}
		a.begin()
		for _, task := range tasks {
			require.NoError(g, a.Unregister(context.Background(), task.Name))
			require.NoError(g, a.Register(task))
		}
		g.pass(65 * time.Second)
		require.Equal(g, 1, on)
		_, err := a.Trigger(context.Background(), "u")
		require.NoError(g, err)
		require.NoError(g, a.Reschedule("v", Every(2*time.Hour)))
		g.pass(time.Minute)
		require.Len(g, g.noted(), 1)
		require.Equal(g, 1, most)
		require.NoError(g, a.Unregister(context.Background(), "t"))
		require.Zero(g, on)
		a.end()
	})
}

// TestUnregisterWhileSchedulesHang: those of tasks that have gone keep no other from being asked.
func TestUnregisterWhileSchedulesHang(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		release := make(chan struct{})
		for n := range maxConsulted {
			s := &hangingSchedule{release: release, every: time.Hour}
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("t", n), Schedule: s, Run: g.run(0)}))
			s.hang.Store(true)
		}
		a.begin()
		g.pass(100 * time.Millisecond)
		for n := range maxConsulted {
			require.NoError(g, a.Unregister(context.Background(), fmt.Sprint("t", n)))
		}
		require.NoError(g, a.Register(Task{Name: "u", Schedule: &hangingSchedule{every: time.Hour}, Run: g.run(0)}))
		g.pass(3 * time.Hour)
		ran := len(g.noted())
		close(release)
		g.pass(time.Second)
		a.end()
		require.GreaterOrEqual(g, ran, 2)
	})
}

// TestUnregisterWhileWaitingForAPlace: nobody waits for it any more.
func TestUnregisterWhileWaitingForAPlace(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a",
			Task{Name: "long", Group: "g", Schedule: Every(100 * time.Hour), InitialDelay: time.Minute, Run: g.run(20 * time.Hour)},
			Task{Name: "waits", Group: "g", Schedule: Every(100 * time.Hour), InitialDelay: 2 * time.Minute, Run: g.run(0)})
		g.pass(3 * time.Minute)
		require.True(g, a.places.wanted())
		require.NoError(g, a.Unregister(context.Background(), "waits"))
		synctest.Wait()
		require.False(g, a.places.wanted())
		a.end()
	})
}

// TestUnregisterWhileAScheduleIsAsked: what the schedule answers when its task has gone takes no
// place.
func TestUnregisterWhileAScheduleIsAsked(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		c := &throng{g: g}
		a := g.bounded(1)
		asked := &hangingSchedule{release: make(chan struct{}), every: 10 * time.Minute}
		require.NoError(g, a.Register(c.task("asked", asked, time.Second)))
		long := c.task("long", Every(100*time.Hour), 10*time.Minute)
		long.InitialDelay = 5*time.Minute + time.Second/2 // its end comes between two readings of the record
		require.NoError(g, a.Register(long))
		a.begin()
		g.pass(14*time.Minute + 59*time.Second)
		asked.hang.Store(true)
		for a.places.wanted() { // until it has the place of the other
			g.pass(time.Millisecond)
		}
		require.Equal(g, 1, a.places.running, "for as long as its schedule has a moment to answer")
		require.NoError(g, a.Unregister(context.Background(), "asked"))
		synctest.Wait()
		require.Zero(g, a.places.running)
		close(asked.release)
		synctest.Wait()
		require.Zero(g, a.places.running)
		a.end()
	})
}

// TestRescheduleWithTheSameIdentity: what the schedule that was replaced still answers is nothing
// to the new one, though both have one Identity.
func TestRescheduleWithTheSameIdentity(t *testing.T) {
	for name, answer := range map[string]func(after time.Time) time.Time{
		"panics":  func(time.Time) time.Time { panic("at last") },
		"answers": func(after time.Time) time.Time { return after.Truncate(time.Minute).Add(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.member("a")
				hourly := func(after time.Time) time.Time { return after.Truncate(time.Hour).Add(time.Hour) }
				release, hang := make(chan struct{}), false
				require.NoError(g, a.Register(Task{Name: "t", Run: g.run(0), Schedule: ownSchedule{func(after time.Time) time.Time {
					if !hang {
						return hourly(after)
					}
					<-release
					return answer(after)
				}, "mine"}}))
				a.begin()
				g.pass(90 * time.Minute)
				a.end()
				hang = true
				a.begin()
				g.pass(5 * time.Second)
				require.Len(g, g.told(EventTaskBlocked), 1)
				require.NoError(g, a.Reschedule("t", ownSchedule{hourly, "mine"}))
				g.pass(time.Minute)
				close(release)
				g.pass(time.Minute)
				g.noted()
				require.NoError(g, a.status().Err)
				g.pass(5 * time.Hour)
				require.Len(g, g.noted(), 5)
				a.end()
			})
		})
	}
}

// TestReschedule: the next slot follows from the new schedule at once, a run that is on goes on,
// and the record says it.
func TestReschedule(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Timeout: time.Minute, Run: g.run(10 * time.Second)})
		g.pass(time.Hour + time.Second)
		require.NoError(g, a.Reschedule("t", Every(10*time.Minute)))
		g.pass(time.Second)
		require.Len(g, g.told(EventTaskChanged), 1, "at once")
		g.pass(20*time.Minute - time.Second)
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

// TestRescheduleTwice: the slot that a first change has put off, and that has passed since, brings
// no run at a time that the schedule of a second change does not name.
func TestRescheduleTwice(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		at := func(hours int) Schedule { return At(g.began.Add(time.Duration(hours) * time.Hour)) }
		a := g.member("a")
		for name, s := range map[string]Schedule{"postponed": at(13), "off": Cron("0 13 * * *"), "off-and-on": Cron("0 13 * * *")} {
			require.NoError(g, a.Register(Task{Name: name, Schedule: s, Run: g.run(0)}))
		}
		a.begin()
		g.at(12 * time.Hour)
		require.NoError(g, a.Reschedule("postponed", at(18)))
		require.NoError(g, a.Reschedule("off", Cron("0 18 * * *")))
		require.NoError(g, a.Reschedule("off-and-on", OnDemand()))
		g.at(15 * time.Hour)
		require.NoError(g, a.Reschedule("postponed", at(20)))
		require.NoError(g, a.Reschedule("off", OnDemand()))
		require.NoError(g, a.Reschedule("off-and-on", Cron("0 18 * * *")))
		g.at(16 * time.Hour)
		require.NoError(g, a.Reschedule("off-and-on", Cron("0 20 * * *")))
		g.at(40 * time.Hour)
		require.Equal(g, []string{"20h0m0s off-and-on 20h0m0s #1 starts", "20h0m0s postponed 20h0m0s #1 starts"}, sortedTrace(g.noted()))
	})
}

// TestRescheduleWhileASlotWaits for the run that is on: it is due under the old schedule, and runs
// once after that run. Under OverlapSkip there is none.
func TestRescheduleWhileASlotWaits(t *testing.T) {
	for name, c := range map[string]struct {
		to      Schedule
		overlap OverlapPolicy
		late    bool // it waits since the run is late, not by Overlap
		want    []string
	}{
		"to cron":       {Cron("0 0 * * *"), OverlapQueue, false, []string{"2h0m0s t 2h0m0s #1 starts", "3h30m0s t 3h0m0s #1 starts"}},
		"to every":      {Every(10 * time.Hour), OverlapQueue, false, []string{"2h0m0s t 2h0m0s #1 starts", "3h30m0s t 3h0m0s #1 starts", "13h0m0s t 13h0m0s #1 starts"}},
		"to on demand":  {OnDemand(), OverlapQueue, false, []string{"2h0m0s t 2h0m0s #1 starts", "3h30m0s t 3h0m0s #1 starts"}},
		"during a late": {Cron("0 0 * * *"), OverlapSkip, true, []string{"2h5m0s t 2h0m0s #1 starts", "3h35m0s t 3h0m0s #1 starts"}},
		"skip":          {Cron("0 0 * * *"), OverlapSkip, false, []string{"2h0m0s t 2h0m0s #1 starts"}},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				task := Task{Name: "t", Schedule: Every(time.Hour), InitialDelay: 2 * time.Hour, Overlap: c.overlap, Run: g.run(90 * time.Minute)}
				a := g.leader("a", task)
				if c.late {
					a.end()
					g.at(2*time.Hour + 5*time.Minute)
					a.begin()
				}
				g.at(3*time.Hour + 10*time.Minute)
				require.NoError(g, a.Reschedule("t", c.to))
				g.at(14*time.Hour + 30*time.Minute)
				require.Equal(g, c.want, g.noted())
				require.Len(g, g.told(EventTaskChanged), 1)
				a.end()
			})
		})
	}
}

// TestRescheduleToAShorterInterval: the interval counts from the last slot, so a task may be due at
// once.
func TestRescheduleToAShorterInterval(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(90 * time.Minute)
		require.NoError(g, a.Reschedule("t", Every(10*time.Minute)))
		g.pass(time.Minute)
		require.NoError(g, a.Reschedule("t", Every(20*time.Minute)))
		g.pass(20 * time.Minute)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "1h30m0s t 1h30m0s #1 starts", "1h50m0s t 1h50m0s #1 starts"}, g.noted())
		a.end()
	})
}

// TestRescheduleOfWhatWasReplaced: a task that was unregistered and registered anew while its new
// schedule was looked at is the new task with that schedule, not the old one again.
func TestRescheduleOfWhatWasReplaced(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		work := func(what string) TaskFunc {
			return func(context.Context, TaskRun) error { g.note("%s", what); return nil }
		}
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: work("old")})
		var replace sync.Once
		halfHourly := ownSchedule{func(after time.Time) time.Time {
			replace.Do(func() {
				require.NoError(g, a.Unregister(context.Background(), "t"))
				require.NoError(g, a.Register(Task{Name: "t", Schedule: Every(time.Hour), Run: work("new")}))
			})
			return after.Truncate(time.Hour / 2).Add(time.Hour / 2)
		}, "half-hourly"}
		require.NoError(g, a.Reschedule("t", halfHourly))
		g.pass(time.Hour + time.Second)
		require.Equal(g, []string{"30m0s new", "1h0m0s new"}, g.noted())
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

// TestRescheduleWhileSchedulesAreAsked: the new ones are asked at once, and nobody hears that the
// old ones hang.
func TestRescheduleWhileSchedulesAreAsked(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		old := make(chan struct{})
		for n := range maxConsulted {
			s := &hangingSchedule{release: old, every: time.Hour}
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("t", n), Schedule: s, Run: g.run(0)}))
			s.hang.Store(true)
		}
		a.begin()
		g.pass(100 * time.Millisecond)
		for n := range maxConsulted {
			require.NoError(g, a.Reschedule(fmt.Sprint("t", n), askedSchedule{Every(time.Minute)}))
		}
		g.pass(time.Minute + time.Second)
		blocked := g.told(EventTaskBlocked)
		close(old)
		g.pass(time.Second)
		a.end()
		require.Empty(g, blocked)
		require.Len(g, g.noted(), maxConsulted)
	})
}

// TestRescheduleWhileSchedulesHang: those that were replaced keep no other schedule from being
// asked, and what they answer does not hide that the new one hangs.
func TestRescheduleWhileSchedulesHang(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a")
		old, other := make(chan struct{}), make(chan struct{})
		hangs := func(release chan struct{}) Schedule {
			var asked atomic.Int64
			return ownSchedule{func(after time.Time) time.Time {
				if asked.Add(1) > 1 { // the first is that of Register, or Reschedule
					<-release
				}
				return after.Truncate(time.Hour).Add(time.Hour)
			}, "mine"}
		}
		for n := range maxConsulted {
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("t", n), Schedule: hangs(old), Run: g.run(0)}))
		}
		a.begin()
		g.pass(100 * time.Millisecond)
		for n := range maxConsulted {
			require.NoError(g, a.Reschedule(fmt.Sprint("t", n), hangs(other)))
		}
		g.pass(100 * time.Millisecond)
		close(old)
		g.pass(10 * time.Second)
		blocked := g.told(EventTaskBlocked)
		close(other)
		g.pass(3 * time.Hour)
		a.end()
		require.Len(g, blocked, maxConsulted)
		require.GreaterOrEqual(g, len(g.noted()), 2*maxConsulted)
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

// heldTasks holds up the reading of records, and hears of triggers.
type heldTasks struct {
	store.Tasks
	reads    chan struct{} // each takes one
	triggers chan string   // their IDs
}

func (s *heldTasks) Record(ctx context.Context, name string) (store.TaskReply, error) {
	<-s.reads
	return s.Tasks.Record(ctx, name)
}

func (s *heldTasks) Trigger(ctx context.Context, name string, t store.TaskTrigger) (store.TaskReply, error) {
	s.triggers <- t.ID
	return s.Tasks.Trigger(ctx, name, t)
}

// TestTriggerThatIsLeftBehind: a trigger whose caller has gone may still be asked for. It has its
// own ID then, and not the empty one that the caller got.
func TestTriggerThatIsLeftBehind(t *testing.T) {
	c, err := NewStandalone(Options{})
	require.NoError(t, err)
	held := &heldTasks{Tasks: c.tasks.store, reads: make(chan struct{}), triggers: make(chan string, 1)}
	c.tasks.store = held
	require.NoError(t, c.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), Run: func(context.Context, TaskRun) error { return nil }}))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	id, err := c.Tasks().Trigger(ctx, "t")
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, id)
	held.reads <- struct{}{}
	require.NotEmpty(t, <-held.triggers)
}
