package tenure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestP10_DailyTaskWithShortLivedLeaders: no leader lives as long as an hour, and yet the task runs once a day, at its time.
func TestP10_DailyTaskWithShortLivedLeaders(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
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

// TestP10_HourlyTaskUnderRandomFailovers: every slot is run to its end exactly once, whether leaders hand over, die in the middle
// of a run, or lose replies.
func TestP10_HourlyTaskUnderRandomFailovers(t *testing.T) {
	seeds := uint64(8)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			onTaskStage(t, func(g *taskStage) {
				g.random = rand.New(rand.NewPCG(seed, 2))
				finished := make(map[time.Time]int)
				live, overlaps := 0, 0
				task := Task{Name: "hourly", Schedule: Every(time.Hour), Missed: RunAll, Run: func(ctx context.Context, run TaskRun) error {
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
					leader.store.on(func(op string, number int) taskFate {
						return []taskFate{taskFine, taskFine, taskFine, taskMute, taskLost}[g.draw(5)]
					})
					leader.begin()
					g.pass(time.Duration(g.draw(300)) * time.Minute)
					record, err := g.local.Record(context.Background(), "hourly")
					require.NoError(g, err)
					if g.draw(3) == 0 && live == 1 && record.Record.Crashes+1 < maxCrashes {
						leader.crash() // in the middle: a run that was over, but could not say so, would be repeated
					} else {
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
