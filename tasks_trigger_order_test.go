package tenure

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

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
					require.NoError(c, m.Tasks().Register(Task{Name: "t", Schedule: OnDemand(), Run: func(_ context.Context, run TaskRun) error {
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
