package tenure

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

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
