package tenure

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// clockTask is a task that counts its runs by slot.
type clockTask struct {
	Task
	every time.Duration
	runs  atomic.Int64
	slots map[int64]int // guarded by the cluster
}

func (g *taskCluster) clockTasks(schedules map[string]Schedule, every map[string]time.Duration) (tasks []*clockTask) {
	for name, s := range schedules {
		c := &clockTask{every: every[name], slots: make(map[int64]int)}
		c.Task = Task{Name: name, Schedule: s, Run: func(_ context.Context, run TaskRun) error {
			c.runs.Add(1)
			g.lock(func() { c.slots[run.Slot.UnixMilli()]++ })
			return nil
		}}
		tasks = append(tasks, c)
	}
	return tasks
}

// TestTasksKeepTheirRhythmAcrossClockSteps: Redis's clock is set back or ahead, by whatever,
// whoever is at a claim when it is. Every task goes on within two of its slots and the minute after
// which the clock is looked at.
func TestTasksKeepTheirRhythmAcrossClockSteps(t *testing.T) {
	steps := []time.Duration{-10 * time.Minute, -time.Hour, -24 * time.Hour, 24 * time.Hour}
	if testing.Short() || simnet.Race {
		steps = steps[1:3]
	}
	for _, step := range steps {
		for _, claiming := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, in a claim %v", step, claiming), func(t *testing.T) {
				together(t)
				onTaskNet(t, func(g *taskCluster, _ *simnet.Network, server *simnet.Server) {
					tasks := g.clockTasks(map[string]Schedule{
						"seconds": Every(30 * time.Second), "minutes": Every(time.Minute), "cron": Cron("*/20 * * * *"), "hourly": Every(time.Hour),
					}, map[string]time.Duration{"seconds": 30 * time.Second, "minutes": time.Minute, "cron": 20 * time.Minute, "hourly": time.Hour})
					a := g.member("m")
					for _, c := range tasks {
						require.NoError(g, a.Register(c.Task))
					}
					a.begin()
					pause := 5 * time.Second
					if claiming {
						pause = -time.Millisecond // the claims meet the new clock first
					}
					g.pass(2*time.Hour + pause)
					server.StepClock(step)
					for _, c := range tasks {
						c.runs.Store(0)
					}
					const watched = 3 * time.Hour
					g.pass(watched)
					for _, c := range tasks {
						least := int64((watched-time.Minute)/c.every) - 2
						require.GreaterOrEqual(g, c.runs.Load(), least, c.Name)
						require.LessOrEqual(g, c.runs.Load(), int64(watched/c.every)+2, c.Name)
						if c.every < -step { // the schedule's own clock has gone back: its slots come again
							continue
						}
						for slot, n := range c.slots {
							require.Equal(g, 1, n, "%s, slot %v", c.Name, slot)
						}
					}
					stepped := g.told(EventClockStep)
					require.Len(g, stepped, 1)
					require.InDelta(g, step.Seconds(), stepped[0].Step.Seconds(), 1)
					require.NotZero(g, stepped[0].Token)
					a.end()
				})
			})
		}
	}
}

// TestClockIsSetWhileARunEnds: Redis's clock is set back before it hears of the end, so that the
// reply to that shows the step.
func TestClockIsSetWhileARunEnds(t *testing.T) {
	onTaskNet(t, func(g *taskCluster, _ *simnet.Network, server *simnet.Server) {
		a := g.member("m")
		var runs atomic.Int64
		require.NoError(g, a.Register(Task{Name: "t", Schedule: Every(2 * time.Second), Run: func(context.Context, TaskRun) error {
			if runs.Add(1) == 5 {
				server.StepClock(-time.Hour)
			}
			return nil
		}}))
		a.begin()
		g.pass(2 * time.Minute)
		require.GreaterOrEqual(g, runs.Load(), int64(50), "what comes due after the step overlaps nothing")
		a.end()
	})
}

// TestOverlapAcrossAClockStep: what a run has overlapped is known by the clock as it now is.
func TestOverlapAcrossAClockStep(t *testing.T) {
	onTaskNet(t, func(g *taskCluster, _ *simnet.Network, server *simnet.Server) {
		runs := 0
		a := g.leader("m", Task{Name: "t", Schedule: Cron("* * * * *"), Run: func(ctx context.Context, _ TaskRun) error {
			if runs++; runs == 1 {
				return g.run(5*time.Minute+10*time.Second)(ctx, TaskRun{})
			}
			return nil
		}})
		g.pass(6*time.Minute + 30*time.Second) // the first run has overlapped five slots
		require.Equal(g, 1, runs)
		server.StepClock(-10 * time.Minute)
		g.pass(12*time.Minute + 30*time.Second)
		require.GreaterOrEqual(g, runs, 11)
		a.end()
	})
}

// TestStandaloneKeepsTheTimeOfTheDay: after a suspension of the machine, and after its clock was
// set, tasks without Redis are due by the wall clock.
func TestStandaloneKeepsTheTimeOfTheDay(t *testing.T) {
	for _, step := range []time.Duration{8 * time.Hour, -3 * time.Hour, 30 * time.Second, -30 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: Cron("0 * * * *"), Run: g.run(0)})
				g.pass(30 * time.Minute)
				g.apart.Store(int64(step))
				g.pass(5 * time.Hour)
				noted := g.noted()
				require.GreaterOrEqual(g, len(noted), 4)
				for i, line := range noted[max(0, len(noted)-3):] {
					wall := g.began.Add(g.now() + step).Truncate(time.Hour).Add(time.Duration(i-2) * time.Hour)
					require.Equal(g, fmt.Sprintf("%v t %v #1 starts", wall.Sub(g.began)-step, wall.Sub(g.began)), line)
				}
				a.end()
			})
		})
	}
}
