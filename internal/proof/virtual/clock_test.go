package virtual

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestVirtualTasksGoOnAfterAFailoverToAClockBehind: the full stack, three coordinators on one
// Redis. A failover to a machine whose clock is 10 minutes behind, and a clock set back by an hour:
// the leader stays, every task goes on, and no slot of a schedule slower than the step comes twice.
func TestVirtualTasksGoOnAfterAFailoverToAClockBehind(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*simnet.Server)
		step  time.Duration
	}{
		"failover": {func(s *simnet.Server) { s.Failover(s.Snapshot(), -10*time.Minute) }, 10 * time.Minute},
		"set back": {func(s *simnet.Server) { s.StepClock(-time.Hour) }, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			together(t)
			synctest.Test(t, func(t *testing.T) {
				net := simnet.New(simnet.Options{Seed: 1})
				defer net.Close()
				server := net.NewServer(simnet.Addr, simnet.ServerOptions{Uptime: 48 * time.Hour})
				every := map[string]time.Duration{"often": 2 * time.Minute, "minutes": 6 * time.Minute, "cron": 20 * time.Minute, "rare": 4 * time.Hour}
				schedules := map[string]tenure.Schedule{"often": tenure.Every(2 * time.Minute), "minutes": tenure.Every(6 * time.Minute), "cron": tenure.Cron("*/20 * * * *")}
				now := server.Now().UTC().Add(25 * time.Minute)
				schedules["rare"] = tenure.Cron(fmt.Sprintf("%d %d/4 * * *", now.Minute(), now.Hour()%4))

				var mu sync.Mutex
				runs, slots, steps := make(map[string]int), make(map[string]int), 0
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				var all []*tenure.Coordinator
				for i := range 3 {
					c, err := tenure.New(net.Client(fmt.Sprint("h", i), nil), tenure.Options{
						InstanceID: fmt.Sprint("i", i), Namespace: "n",
						Election: tenure.ElectionOptions{LeaseTTL: 4 * time.Minute},
						Registry: tenure.RegistryOptions{HeartbeatInterval: 2 * time.Minute, HeartbeatTTL: 5 * time.Minute, DriftedAfter: 5 * time.Minute, DownAfter: 10 * time.Minute},
					})
					require.NoError(t, err)
					for name, s := range schedules {
						require.NoError(t, c.Tasks().Register(tenure.Task{Name: name, Schedule: s, Run: func(_ context.Context, run tenure.TaskRun) error {
							mu.Lock()
							defer mu.Unlock()
							runs[name]++
							slots[fmt.Sprint(name, run.Slot.UnixMilli())]++
							return nil
						}}))
					}
					c.Observe(func(e tenure.Event) {
						if e.Type == tenure.EventRedisClockStepped && e.Token != 0 {
							mu.Lock()
							steps++
							mu.Unlock()
						}
					})
					all = append(all, c)
					running.Go(func() { _ = c.Run(ctx) })
				}
				leads := func() (found []int) {
					for i, c := range all {
						if c.IsLeader() {
							found = append(found, i)
						}
					}
					return found
				}
				time.Sleep(30 * time.Minute)
				leader := leads()
				require.Len(t, leader, 1)
				mu.Lock()
				clear(runs)
				mu.Unlock()
				c.fault(server)
				const watched = 80 * time.Minute // longer than the clock was set back
				time.Sleep(watched)
				require.Equal(t, leader, leads(), "the leader stays")
				mu.Lock()
				for name, d := range every {
					if d > watched {
						require.Zero(t, runs[name], name)
						continue
					}
					require.GreaterOrEqual(t, runs[name], int((watched-2*time.Minute)/d)-2, name)
				}
				for slot, n := range slots {
					for name, d := range every {
						if d > c.step && len(slot) > len(name) && slot[:len(name)] == name {
							require.Equal(t, 1, n, slot)
						}
					}
				}
				require.Equal(t, 1, steps)
				mu.Unlock()
				time.Sleep(4 * time.Hour)
				mu.Lock()
				require.Equal(t, 1, runs["rare"], "the rare task is back in step")
				mu.Unlock()
				cancel()
				running.Wait()
			})
		})
	}
}
