package tenure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/schedule"
)

// TestP10_DailyTaskWithShortLivedLeaders: no leader lives as long as an hour, and yet the task runs
// once a day, at its time.
func TestP10_DailyTaskWithShortLivedLeaders(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var slots []time.Time
		task := Task{Name: "daily", Schedule: Cron("30 2 * * *"), Run: func(_ context.Context, run TaskRun) error {
			g.lock(func() { slots = append(slots, run.Slot) })
			return nil
		}}
		for n := 0; g.now() < 21*24*time.Hour; n++ {
			leader := g.leader(fmt.Sprint("m", n), task)
			g.pass(time.Duration(1+g.draw(59)) * time.Minute)
			if g.draw(2) == 0 {
				leader.crash()
			} else {
				leader.end()
			}
			g.pass(time.Duration(g.draw(90)) * time.Second) // nobody leads
		}
		require.Len(g, slots, 21)
		for i, slot := range slots {
			require.Equal(g, g.began.UTC().Truncate(24*time.Hour).AddDate(0, 0, i).Add(2*time.Hour+30*time.Minute), slot)
		}
	})
}

// TestP10_HourlyTaskUnderRandomFailovers: every slot is run to its end exactly once, whether
// leaders hand over, die in the middle of a run, or lose replies.
func TestP10_HourlyTaskUnderRandomFailovers(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				g.random = rand.New(rand.NewPCG(seed, 2))
				finished := make(map[time.Time]int)
				live, overlaps := 0, 0
				task := Task{Name: "hourly", Schedule: Every(time.Hour), Missed: MissedRunAll, Run: func(ctx context.Context, run TaskRun) error {
					g.lock(func() { live++; overlaps = max(overlaps, live-1) })
					defer g.lock(func() { live-- })
					term, ok := TermFrom(ctx)
					if !ok || !term.Valid() || term.Token != run.Token {
						return errors.New("another term")
					}
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Duration(g.draw(40)) * time.Minute):
						g.lock(func() { finished[run.Slot]++ })
						return nil
					}
				}}
				for n := 0; g.now() < 10*24*time.Hour; n++ {
					leader := g.member(fmt.Sprint("m", n), task)
					var leaves atomic.Bool
					leader.store.on(func(op string, number int) taskFate {
						if leaves.Load() { // a run that was over, but could not say so until its bound, would be repeated
							return taskFine
						}
						return []taskFate{taskFine, taskFine, taskFine, taskMute, taskLost}[g.draw(5)]
					})
					leader.begin()
					g.pass(time.Duration(g.draw(300)) * time.Minute)
					record, err := g.local.Record(context.Background(), "hourly")
					require.NoError(g, err)
					if g.draw(3) == 0 && live == 1 && record.Record.Crashes+1 < schedule.MaxCrashes {
						leader.crash() // in the middle: likewise
					} else {
						leaves.Store(true)
						leader.end()
					}
					g.pass(time.Duration(g.draw(200)) * time.Minute)
				}
				last := g.leader("last", task)
				for g.pass(100 * time.Hour); last.status().Running; {
					g.pass(time.Minute)
				}
				records, _, err := g.local.Records(t.Context(), []string{"hourly"})
				require.NoError(g, err)
				require.Zero(g, records[0].Skipped)
				require.Zero(g, overlaps)
				first := records[0].Next
				for slot := range finished {
					first = min(first, slot.UnixMilli())
				}
				want := int((records[0].Next - first) / time.Hour.Milliseconds())
				require.Greater(g, want, 200)
				require.Len(g, finished, want, "a slot was lost")
				for slot, n := range finished {
					require.Equal(g, 1, n, "slot %v", slot)
				}
			})
		})
	}
}

// onTaskNet is inTaskCluster with a Redis in virtual time behind a network.
func onTaskNet(t *testing.T, act func(g *taskCluster, net *simnet.Network, server *simnet.Server)) {
	inTaskCluster(t, func(g *taskCluster) {
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
	onTaskNet(t, func(g *taskCluster, net *simnet.Network, server *simnet.Server) {
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

// TestTaskIsNotEarly: where the estimate is ahead, Redis's clock decides, and the slot is not late
// for it.
func TestTaskIsNotEarly(t *testing.T) {
	onTaskNet(t, func(g *taskCluster, net *simnet.Network, server *simnet.Server) {
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

// go: each slot is run to its end once.
func TestP10_OnNetwork(t *testing.T) {
	onTaskNet(t, func(g *taskCluster, net *simnet.Network, server *simnet.Server) {
		net.SetFaults("", simnet.Faults{DelayRequest: 0.2, DelayReply: 0.2, DelayMax: 8 * time.Second, LoseRequest: 0.05, LoseReply: 0.05, Duplicate: 0.1, DuplicateWithin: 10 * time.Second})
		finished := make(map[time.Time]int)
		task := Task{Name: "t", Schedule: Cron("*/30 * * * *"), Missed: MissedRunAll, Run: func(ctx context.Context, run TaskRun) error {
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

// TestHungRunDoesNotFlood: the slots that pass during one run are two events, and a write a minute
// at most.
func TestHungRunDoesNotFlood(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		release := make(chan struct{})
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Second), Run: func(context.Context, TaskRun) error {
			<-release
			return nil
		}})
		g.pass(10*time.Second + 500*time.Millisecond)
		require.Len(g, g.told(EventTaskSkipped), 1, "the first at once")
		require.Equal(g, 1, g.told(EventTaskSkipped)[0].Count)
		before := a.store.calls.Load()
		g.pass(time.Hour)
		require.InDelta(g, 60, a.store.calls.Load()-before, 5)
		require.Len(g, g.told(EventTaskSkipped), 1)
		close(release)
		g.pass(time.Second)
		told := 0
		for _, e := range g.told(EventTaskSkipped) {
			told += e.Count
		}
		require.InDelta(g, 3609, told, 1)
		require.Equal(g, int64(told), a.status().Skipped)
		require.LessOrEqual(g, len(g.told(EventTaskSkipped)), 3)
		require.Equal(g, 3*time.Second, g.told(EventTaskSkipped)[1].Slot.Sub(g.began), "the first of the rest")
		a.end()
	})
}

// TestSlowRunIsReported: once, against what is usual in this process, or against the next slot.
func TestSlowRunIsReported(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var takes atomic.Int64
		takes.Store(int64(10 * time.Minute)) // the first run: an interval of an hour is not reached
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: func(ctx context.Context, run TaskRun) error { return g.run(time.Duration(takes.Load()))(ctx, run) }})
		g.pass(90 * time.Minute)
		takes.Store(int64(99 * time.Minute))
		g.pass(time.Hour)
		require.Empty(g, g.told(EventTaskSlow))
		takes.Store(int64(5 * time.Hour))
		g.pass(5*time.Hour - time.Minute) // begun at 4 h; the mean is 10 + 89/4 minutes
		require.Empty(g, g.told(EventTaskSlow), "not ten times as long as usual")
		g.pass(10 * time.Hour)
		slow := g.told(EventTaskSlow)
		require.Empty(g, slow, "nor before it ended")
		takes.Store(int64(100 * time.Hour))
		g.pass(40 * time.Hour)
		slow = g.told(EventTaskSlow)
		require.Len(g, slow, 1)
		require.Greater(g, slow[0].Took, 15*time.Hour)
		a.end()
	})
	inTaskCluster(t, func(g *taskCluster) { // the first run of a process hangs
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Hour * 1000)})
		g.pass(2*time.Hour - time.Second)
		require.Empty(g, g.told(EventTaskSlow))
		g.pass(10 * time.Hour)
		slow := g.told(EventTaskSlow)
		require.Len(g, slow, 1)
		require.Equal(g, time.Hour, slow[0].Took)
		require.Equal(g, time.Hour, slow[0].Slot.Sub(g.began))
		a.end()
	})
	inTaskCluster(t, func(g *taskCluster) { // no less than a minute
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Second), Run: g.run(59 * time.Second)})
		g.pass(10 * time.Minute)
		require.Empty(g, g.told(EventTaskSlow))
		a.end()
	})
}
