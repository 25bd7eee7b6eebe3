package tenure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
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
	switch {
	case testing.Short():
		seeds = 2
	case simnet.Race: // `make test` runs it without the race detector, too
		seeds = 3
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
				_, records, _, err := g.local.Records(t.Context(), []string{"hourly"})
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

// TestTaskIsNotEarly: if the estimate is ahead, Redis's clock decides, and the slot is not late
// for it.
func TestTaskIsNotEarly(t *testing.T) {
	onTaskNet(t, func(g *taskCluster, net *simnet.Network, server *simnet.Server) {
		a := g.leader("a", Task{Name: "t", Schedule: Cron("0 * * * *"), Run: g.run(0)})
		g.pass(time.Hour - 10*time.Second)
		server.StepClock(-30 * time.Second)
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"1h0m30s t 1h0m0s #1 starts"}, rounded(g.noted()))
		started := g.told(EventTaskStarted)
		require.Len(g, started, 1)
		require.Less(g, started[0].Took, time.Second, "by Redis's clock it is in time")
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

// TestP10_OnNetwork: calls are late, lost and doubled on a network, and leaders come and
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
		require.LessOrEqual(g, repeated, 3, "only a run whose end could not be recorded is repeated")
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
		made := make(map[string]int)
		a.store.on(func(op string, _ int) taskFate {
			made[op]++
			return taskFine
		})
		g.pass(time.Hour)
		require.InDelta(g, 60, made["plan"], 5)
		require.InDelta(g, 60, made["read"], 5, "the look at a record that any leader takes")
		require.Len(g, made, 2)
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
	inTaskCluster(t, func(g *taskCluster) { // and it has no next slot
		for name, runs := range map[string]time.Duration{"short": 59 * time.Minute, "hangs": 1000 * time.Hour} {
			g.leader(name, Task{Name: name, Schedule: At(time.Now().Add(time.Minute)), Run: g.run(runs)})
		}
		g.pass(time.Hour)
		require.Empty(g, g.told(EventTaskSlow))
		g.pass(10 * time.Hour)
		slow := g.told(EventTaskSlow)
		require.Len(g, slow, 1)
		require.Equal(g, "hangs", slow[0].Task)
		require.Equal(g, time.Hour, slow[0].Took)
	})
	inTaskCluster(t, func(g *taskCluster) { // no less than a minute
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Second), Run: g.run(59 * time.Second)})
		g.pass(10 * time.Minute)
		require.Empty(g, g.told(EventTaskSlow))
		a.end()
	})
}

// TestLongRunIsReported: a run that hangs for hours is reported on time, though nothing else is due
// of its task meanwhile: only the record of another one is looked at.
func TestLongRunIsReported(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var takes atomic.Int64
		takes.Store(int64(20 * time.Minute))
		release := make(chan struct{})
		a := g.leader("a",
			Task{Name: "other", Schedule: Every(200 * time.Hour), Run: g.run(0)},
			Task{Name: "slow", Schedule: OnDemand(), Run: func(ctx context.Context, run TaskRun) error { return g.run(time.Duration(takes.Load()))(ctx, run) }},
			Task{Name: "deaf", Schedule: OnDemand(), Timeout: 3 * time.Hour, Run: func(context.Context, TaskRun) error { <-release; return nil }},
		)
		trigger := func(name string) {
			_, err := a.Trigger(context.Background(), name)
			require.NoError(g, err)
			g.pass(time.Second)
		}
		trigger("slow")
		g.pass(time.Hour)
		takes.Store(int64(100 * time.Hour))
		trigger("slow")
		trigger("deaf")
		g.pass(50 * time.Hour)
		reported := make(map[string]time.Duration)
		for _, e := range g.told(EventTaskSlow) {
			require.NotContains(g, reported, e.Task)
			reported[e.Task] = e.Took
		}
		require.Equal(g, map[string]time.Duration{"slow": 200 * time.Minute, "deaf": time.Hour}, reported)
		overran := g.told(EventWorkOverrun)
		require.Len(g, overran, 1)
		require.ErrorContains(g, overran[0].Err, "runs on "+a.patience.String()+" after the end of its context")
		close(release)
		a.end()
	})
}

// TestLostRecord: a record that is gone goes on where the leader knows it was.
func TestLostRecord(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(20 * time.Minute)})
		lose := func() { g.local.Change(func(records map[string]*store.TaskRecord) { clear(records) }) }
		g.pass(70 * time.Minute)
		lose() // during a run
		g.pass(30 * time.Minute)
		require.Equal(g, 2*time.Hour, a.status().Next.Sub(g.began))
		failed := g.told(EventTaskBlocked)
		require.Len(g, failed, 1)
		require.ErrorIs(g, failed[0].Err, ErrNotFound)
		lose()
		g.pass(50 * time.Minute)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "2h0m0s t 2h0m0s #1 starts"}, g.noted())
		require.Equal(g, 3*time.Hour, a.status().Next.Sub(g.began))
		a.end()
	})
}

// TestRecordMovesUnderTheLeader: what somebody else writes there is taken up, and nothing is run
// twice.
func TestRecordMovesUnderTheLeader(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		move := func(d time.Duration) {
			g.local.Change(func(records map[string]*store.TaskRecord) {
				r := records["t"]
				r.Next = g.began.Add(d).UnixMilli()
				r.Due = strconv.FormatInt(r.Next, 10)
			})
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

// TestSickRecord: a record that somebody has to fix is reported once, tried rarely, and does not
// touch the other tasks.
func TestSickRecord(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		a.store.on(func(op string, _ int) taskFate { return taskSick })
		a.begin()
		g.pass(time.Hour)
		failed := g.told(EventTaskBlocked)
		require.Len(g, failed, 1)
		require.ErrorIs(g, failed[0].Err, ErrMisconfigured)
		require.InDelta(g, 720, a.store.calls.Load(), 10)
		require.ErrorIs(g, a.status().Err, ErrMisconfigured, "the leader says what keeps its task from going on")
		a.store.on(nil)
		g.pass(schedule.LongestPause)
		require.NoError(g, a.status().Err)
		require.False(g, a.status().Next.IsZero(), "it goes on soon after the repair")
		g.pass(2 * time.Hour)
		require.NotEmpty(g, g.noted())
		a.end()
	})
}

// TestSecondFixOfARecord: a call lacks two rights. As soon as the first one is granted the second
// is news, though the task has not gone on between.
func TestSecondFixOfARecord(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		a.store.lacks("grant +zrem")
		a.store.on(func(op string, _ int) taskFate { return taskSick })
		a.begin()
		g.pass(time.Hour)
		require.Len(g, g.told(EventTaskBlocked), 1)
		a.store.lacks("grant +xadd")
		g.pass(time.Hour)
		blocked := g.told(EventTaskBlocked)
		require.Len(g, blocked, 2)
		require.ErrorContains(g, blocked[1].Err, "grant +xadd")
		a.store.on(nil)
		g.pass(time.Hour)
		require.NoError(g, a.status().Err)
		a.end()
	})
}

// TestFixOfADailyTask: what it lacks was granted, and is lacking again two days later. Few calls
// have had answers between, and it is news all the same.
func TestFixOfADailyTask(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(0)})
		a.begin()
		g.pass(25 * time.Hour)
		a.store.on(befalls("claim", always, taskSick))
		g.pass(24 * time.Hour)
		require.Len(g, g.told(EventTaskBlocked), 1)
		a.store.on(nil)
		g.pass(25 * time.Hour)
		require.Len(g, g.noted(), 3)
		a.store.on(befalls("claim", always, taskSick))
		g.pass(24 * time.Hour)
		require.Empty(g, g.noted())
		require.Len(g, g.told(EventTaskBlocked), 2)
		a.end()
	})
}

// refusingTasks refuses what the test says for want of a right.
type refusingTasks struct {
	store.Tasks
	refuse func(call string) bool // "finish", or the kind of a claim
}

func (s refusingTasks) refusal(call string) error {
	if s.refuse(call) {
		return &store.Error{Kind: ErrMisconfigured, Op: call, Fix: "grant +zrem", Err: errShaky}
	}
	return nil
}

func (s refusingTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	if err := s.refusal(c.Kind); err != nil {
		return store.TaskReply{}, err
	}
	return s.Tasks.Claim(ctx, name, c)
}

func (s refusingTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	if err := s.refusal("finish"); err != nil {
		return store.TaskReply{}, err
	}
	return s.Tasks.Finish(ctx, name, f)
}

// TestRefusalsBetweenAnswers: a call is refused time and again, and its repetition is not, for
// longer than a refusal counts. The task goes on between, and what to grant is said once all the
// same. It is news again as soon as enough calls in a row were taken.
func TestRefusalsBetweenAnswers(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		ends, again := 0, false
		g.store = refusingTasks{g.local, func(call string) bool {
			if call != "finish" {
				return false
			}
			if again = !again && (ends%2 == 0 && ends <= 10 || ends == 13); !again { // the end of each run is told in the end
				ends++
			}
			return again
		}}
		a := g.leader("a", Task{Name: "t", Schedule: Every(10 * time.Minute), Run: g.run(0)})
		g.pass(2*barredFor + time.Minute)
		require.Len(g, g.noted(), 12, "it goes on")
		require.Len(g, g.told(EventTaskBlocked), 1, "two ends were taken between two refusals")
		require.NoError(g, a.status().Err)
		g.pass(20 * time.Minute)
		require.Len(g, g.told(EventTaskBlocked), 2, "three were")
		a.end()
	})
}

// TestRefusalsOfOneKindOfClaim: claims of slots, which are taken, say nothing of a right that only
// those of triggers need.
func TestRefusalsOfOneKindOfClaim(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		triggers := 0
		g.store = refusingTasks{g.local, func(call string) bool {
			if call == store.ClaimTrigger {
				triggers++
			}
			return call == store.ClaimTrigger && triggers%2 == 1 // each is taken when it is claimed again
		}}
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)})
		for range 12 {
			_, err := a.Trigger(context.Background(), "t")
			require.NoError(g, err)
			g.pass(10 * time.Minute)
		}
		require.Equal(g, 2*12, triggers)
		require.Len(g, g.told(EventTaskBlocked), 1)
		a.end()
	})
}

// TestLostCallsAreNoRefusals: each time that Redis is away is news.
func TestLostCallsAreNoRefusals(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(10 * time.Minute), Run: g.run(0)})
		for n := range 5 {
			a.store.on(befalls("claim", 1, taskLost))
			g.pass(10*time.Minute + time.Second)
			require.Len(g, g.told(EventTaskBlocked), n+1)
			require.NoError(g, a.status().Err)
		}
		a.end()
	})
}

// TestWhatStandsIsForgotten: what kept a task from going on is said as long as this process leads
// it, and no longer: whoever leads next may run it, and its name may be another's.
func TestWhatStandsIsForgotten(t *testing.T) {
	for name, over := range map[string]func(a *taskInstance){
		"the term ends": func(a *taskInstance) { a.end() },
		"the task is another one": func(a *taskInstance) {
			require.NoError(a.g, a.Unregister(context.Background(), "t"))
			a.store.on(nil)
			require.NoError(a.g, a.Register(Task{Name: "t", Schedule: Every(time.Hour), Run: noTask}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
				a.store.on(func(string, int) taskFate { return taskSick })
				g.pass(2 * time.Hour)
				require.ErrorIs(g, a.status().Err, ErrMisconfigured)
				over(a)
				g.pass(time.Minute)
				require.NoError(g, a.status().Err)
			})
		})
	}
}

// TestEndThatNobodyHeardOf: Redis is away as the term ends during a run, and it is said that the
// end of that was not recorded: the next leader runs it again.
func TestEndThatNobodyHeardOf(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
		g.pass(time.Hour + time.Second)
		a.store.on(befalls("finish", always, taskLost))
		a.end()
		said := g.seen(func(e Event) bool {
			return e.Type == EventTaskBlocked && strings.Contains(e.Err.Error(), "the end of a run could not be recorded")
		})
		require.Len(g, said, 1)
		require.Equal(g, "t", said[0].Task)
	})
}

// pacedTasks takes as long for a claim as the test says, in virtual time.
type pacedTasks struct {
	store.Tasks
	takes *atomic.Int64
}

func (s pacedTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	time.Sleep(time.Duration(s.takes.Load()))
	return s.Tasks.Claim(ctx, name, c)
}

// TestTardyAgain: each time that there are not calls enough is news, not only the first of a term,
// and a moment in which nobody waits begins no other time.
func TestTardyAgain(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var takes atomic.Int64
		g.store = pacedTasks{g.local, &takes}
		a := g.member("a")
		for n := range 100 {
			require.NoError(g, a.Register(Task{Name: fmt.Sprint("t", n), Schedule: Every(time.Second), Run: noTask}))
		}
		a.begin()
		g.pass(time.Minute)
		for n := range 3 {
			require.Len(g, g.told(EventTaskTardy), n)
			takes.Store(int64(time.Second)) // 16 of a hundred calls a second
			g.pass(20 * time.Second)
			takes.Store(0)
			g.pass(5 * time.Second)
			takes.Store(int64(time.Second))
			g.pass(35 * time.Second)
			require.Len(g, g.told(EventTaskTardy), n+1)
			takes.Store(0)
			g.pass(time.Minute)
		}
		a.end()
	})
}

// TestTasksDueCloseTogether: those whose slots lie closer than dueSpacing start together, none
// later than by dueTogether of that, and the first four of them at once. Slots that lie dueSpacing
// apart are not put off.
func TestTasksDueCloseTogether(t *testing.T) {
	for _, x := range []struct {
		apart, latest time.Duration
		most          int // starts
	}{
		{apart: time.Millisecond, latest: dueTogether * dueSpacing, most: 100/(dueTogether*5) + 8},
		{apart: 4 * time.Millisecond, latest: dueTogether * dueSpacing, most: 60},
		{apart: dueSpacing, latest: time.Millisecond, most: 100},
	} {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.member("a")
			late := make(map[time.Time][]time.Duration) // by when they started
			for n := range 100 {
				require.NoError(g, a.Register(Task{
					Name: fmt.Sprint("t", n), Schedule: Every(10 * time.Second), InitialDelay: 10*time.Second + time.Duration(n)*x.apart,
					Run: func(_ context.Context, run TaskRun) error {
						g.lock(func() { late[time.Now()] = append(late[time.Now()], time.Since(run.Slot)) })
						return nil
					},
				}))
			}
			a.begin()
			g.pass(15 * time.Second)
			g.lock(func() { clear(late) })
			g.pass(10 * time.Second)
			runs := 0
			for _, together := range late {
				runs += len(together)
				require.LessOrEqual(g, slices.Max(together), x.latest, x.apart)
			}
			require.Equal(g, 100, runs)
			require.LessOrEqual(g, len(late), x.most, x.apart)
			require.Less(g, slices.Min(late[slices.MinFunc(slices.Collect(maps.Keys(late)), time.Time.Compare)]), time.Millisecond)
			a.end()
		})
	}
}

// TestFinishCannotBeTold: lead gives up after a while, and the next leader finds the run.
func TestFinishCannotBeTold(t *testing.T) {
	for name, fate := range map[string]taskFate{"refused": taskLost, "no reply": taskLate} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
				g.pass(time.Hour + time.Second)
				a.store.on(func(op string, _ int) taskFate { return fate })
				g.pass(10 * time.Minute) // as long as the term lasts it is tried
				require.True(g, a.status().Running)
				g.pass(2 * time.Hour)
				require.Len(g, g.noted(), 1, "the next slot waits for that")
				a.stop()
				g.pass(schedule.FinishBound - time.Millisecond)
				require.Empty(g, a.ended)
				g.pass(schedule.CallBound + 2*time.Millisecond)
				require.Len(g, a.ended, 1)
				close(a.store.healed)
			})
		})
	}
}

// TestFinishIsRepeated: what Redis did not answer is asked again while the term lasts, and after
// it.
func TestFinishIsRepeated(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
		a.store.on(befalls("finish", 3, taskMute))
		g.pass(time.Hour + 2*time.Minute)
		require.Equal(g, RunSucceeded, a.status().Last.State)
		g.pass(58*time.Minute + time.Second)
		a.store.on(befalls("finish", 3, taskLost))
		a.end()
		require.Equal(g, RunInterrupted, a.status().Last.State)
	})
}

// TestSkipWhileRunEnds: a run that ends while something else is being asked about the task waits
// for its turn.
func TestSkipWhileRunEnds(t *testing.T) {
	for _, end := range []bool{false, true} {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Hour + time.Second)})
			a.store.on(befalls("plan", 2, taskLost))
			g.pass(2*time.Hour + 100*time.Millisecond)
			if end {
				a.end()
				require.Equal(g, RunInterrupted, a.status().Last.State)
				return
			}
			g.pass(2 * time.Second)
			require.Equal(g, RunSucceeded, a.status().Last.State)
			require.Equal(g, int64(1), a.status().Skipped)
			a.end()
		})
	}
}

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
// whichever task is at a claim when it is. Every task goes on within two of its slots and the
// minute after which the clock is looked at.
func TestTasksKeepTheirRhythmAcrossClockSteps(t *testing.T) {
	steps := []time.Duration{-10 * time.Minute, -time.Hour, -24 * time.Hour, 24 * time.Hour}
	if testing.Short() || simnet.Race {
		steps = steps[2:3]
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
					stepped := g.told(EventRedisClockStepped)
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

// TestSlotThatTheClockHasPassed: a slot that the clock was set past, or that came while the machine
// was suspended, was missed. It came during no run, though the last one had just ended.
func TestSlotThatTheClockHasPassed(t *testing.T) {
	for _, overlap := range []OverlapPolicy{OverlapSkip, OverlapQueue} {
		for _, missed := range []MissedPolicy{MissedRunOnce, MissedRunAll, MissedSkip} {
			t.Run(string(overlap+" "+OverlapPolicy(missed)), func(t *testing.T) {
				inTaskCluster(t, func(g *taskCluster) {
					a := g.leader("a", Task{
						Name: "t", Schedule: Cron("0 * * * *"), Run: g.run(50 * time.Minute), Overlap: overlap, Missed: missed, Grace: time.Hour,
					})
					g.pass(time.Hour + 55*time.Minute) // the run of the first slot has ended
					require.Len(g, g.noted(), 1)
					g.apart.Store(int64(10 * time.Minute))
					g.pass(2 * time.Minute)
					require.Len(g, g.noted(), 1, "the slot of 2:00")
					require.Zero(g, a.status().Skipped)
					a.end()
				})
			})
		}
	}
}

// TestClockSetAheadDuringACatchUp: slots that the clock is set past while others are caught up on
// were missed as those were: MaxCatchUp bounds all of them.
func TestClockSetAheadDuringACatchUp(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Minute), Missed: MissedRunAll, MaxCatchUp: 5, Run: g.run(10 * time.Second)}
		a := g.leader("a", task)
		g.pass(90 * time.Second)
		a.end()
		g.pass(4 * time.Minute)
		g.noted()
		b := g.leader("b", task)
		g.pass(time.Second)
		require.Len(g, g.noted(), 1, "the first of four slots that were missed")
		g.apart.Store(int64(2 * time.Hour))
		g.pass(10*time.Minute + 30*time.Second)
		require.LessOrEqual(g, len(g.noted()), 5+11)
		require.GreaterOrEqual(g, b.status().Skipped, int64(110))
		require.WithinDuration(g, g.began.Add(g.now()+2*time.Hour), b.status().Next, time.Minute)
		b.end()
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

// TestFirstSlotsLieApart: the first slots of many tasks lie apart by what it takes to ask for them:
// each is planned right after it was opened.
func TestFirstSlotsLieApart(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		g.store = slowTasks{g.local, 100 * time.Millisecond} // 160 calls a second
		a := g.member("a")
		for n := range 160 {
			require.NoError(g, a.Register(Task{Name: fmt.Sprintf("t%03d", n), Schedule: Every(time.Hour), Run: g.run(0)}))
		}
		a.begin()
		g.pass(10 * time.Second)
		list, err := a.List(context.Background())
		require.NoError(g, err)
		byNext := func(a, b TaskStatus) int { return a.Next.Compare(b.Next) }
		apart := slices.MaxFunc(list, byNext).Next.Sub(slices.MinFunc(list, byNext).Next)
		require.Greater(g, apart, 1500*time.Millisecond, "320 calls take two seconds; were all opened before the first is planned, it would be one")
		a.end()
	})
}

// slowTasks takes so long for each decision of a leader, in virtual time.
type slowTasks struct {
	store.Tasks
	takes time.Duration
}

func (s slowTasks) Open(ctx context.Context, name string, o store.TaskOpen) (store.TaskReply, error) {
	time.Sleep(s.takes)
	return s.Tasks.Open(ctx, name, o)
}

func (s slowTasks) Plan(ctx context.Context, name string, p store.TaskPlan) (store.TaskReply, error) {
	time.Sleep(s.takes)
	return s.Tasks.Plan(ctx, name, p)
}

func (s slowTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	time.Sleep(s.takes)
	return s.Tasks.Claim(ctx, name, c)
}

func (s slowTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	time.Sleep(s.takes)
	return s.Tasks.Finish(ctx, name, f)
}

// TestOneTaskOfMany: what concerns one task costs no more among many tasks and roles than among
// few, while a loop has them.
func TestOneTaskOfMany(t *testing.T) {
	bytes := make(map[int]uint64)
	for _, many := range []int{10, 2000} {
		s := newTasks(memstore.NewTasks(readClock), newEventBus("i"), "i")
		for n := range many {
			c := s.taskConfig
			c.role = fmt.Sprint("role-", n)
			s.addRole(c)
			require.NoError(t, s.Register(Task{Name: fmt.Sprint("of-a-role-", n), Role: c.role, Schedule: Every(time.Hour), Run: noTask}))
			require.NoError(t, s.Register(Task{Name: fmt.Sprint("t-", n), Schedule: Every(time.Hour), Run: noTask}))
		}
		live := begin(t.Context(), Term{Token: 1}, lease.Lease{Sent: readClock(), Life: time.Hour}, func() {})
		defer live.end(ErrStopped)
		term, _ := TermFrom(live.ctx)
		l := newTaskLoop(live.ctx, live.tasks.ctx, s.roleTasks, term)
		s.loops(true)
		l.register()
		require.Len(t, l.tasks, many)
		one := func(name string) {
			require.NoError(t, s.Register(Task{Name: name, Schedule: Every(time.Hour), Run: noTask}))
			l.register()
			require.NoError(t, s.Reschedule(name, Every(time.Minute)))
			l.register()
			ended, there := s.remove(name)
			require.True(t, there)
			l.register()
			l.drop(l.byName[name])
			<-ended
		}
		one("first") // a list of the loop may grow once
		l.touched = nil
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for n := range 20 {
			one(fmt.Sprint("another-", n))
		}
		runtime.ReadMemStats(&after)
		bytes[many] = after.TotalAlloc - before.TotalAlloc
		for i, task := range l.tasks {
			require.Equal(t, i, task.at)
			require.Equal(t, task, l.byName[task.Name])
		}
	}
	require.InDelta(t, bytes[10], bytes[2000], float64(bytes[10]))
}
