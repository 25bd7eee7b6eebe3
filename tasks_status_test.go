package tenure

import (
	"context"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// saved is a copy of the record of the one task, as an old snapshot of Redis.
func (g *taskCluster) saved() *store.TaskRecord {
	reply, err := g.local.Record(g.Context(), "t")
	require.NoError(g, err)
	return &reply.Record
}

// restore puts it back, as a failover that lost the last second does; nil: the record is gone.
func (g *taskCluster) restore(r *store.TaskRecord) {
	g.local.Change(func(records map[string]*store.TaskRecord) {
		if r == nil {
			delete(records, "t")
			return
		}
		token := records["t"].Token
		*records["t"] = *r
		records["t"].Token = token
	})
}

// TestOwnRunIsNotRepeated: the end of a run that Redis did not hear of is known to the process,
// which does not run it again when it leads again.
func TestOwnRunIsNotRepeated(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)})
		g.pass(time.Hour + time.Second)
		a.store.on(func(string, int) taskFate { return taskLost })
		g.pass(2 * time.Minute)
		a.end()
		require.True(g, a.status().Running)
		a.store.on(nil)
		a.begin()
		g.pass(10 * time.Minute)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts"}, g.noted())
		require.Equal(g, RunSucceeded, a.status().Last.State)
		require.False(g, a.status().Running)
		g.pass(time.Hour)
		require.Equal(g, []string{"2h0m0s t 2h0m0s #1 starts"}, g.noted())
		a.end()
	})
}

// TestRecordThatWentBack: Redis loses its last second, and with it the claim of a run, its end, or
// both. The process that ran it does not run it again.
func TestRecordThatWentBack(t *testing.T) {
	for name, c := range map[string]struct {
		save, lose time.Duration
		again      bool // it leads anew after that
	}{
		"the claim and the end":            {59*time.Minute + 59*time.Second, 62 * time.Minute, false},
		"the end":                          {60*time.Minute + 30*time.Second, 62 * time.Minute, false},
		"the claim, during the run":        {59*time.Minute + 59*time.Second, 60*time.Minute + 30*time.Second, false},
		"the claim and the end, then anew": {59*time.Minute + 59*time.Second, 62 * time.Minute, true},
		"the end, then anew":               {60*time.Minute + 30*time.Second, 62 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Missed: MissedRunAll, Run: g.run(time.Minute)})
				g.pass(c.save)
				old := g.saved()
				g.pass(c.lose - c.save)
				g.restore(old)
				if c.again {
					a.end()
					a.begin()
				}
				g.pass(110*time.Minute - c.lose)
				require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts"}, g.noted())
				require.Equal(g, RunSucceeded, a.status().Last.State, "the record knows of it again")
				require.False(g, a.status().Running)
				g.pass(20 * time.Minute)
				require.Equal(g, []string{"2h0m0s t 2h0m0s #1 starts"}, g.noted())
				require.Zero(g, a.status().Skipped)
				a.end()
			})
		})
	}
}

// TestRecordThatWentBackByFar: slots before the last one that ran here are not run either, whatever
// Missed says.
func TestRecordThatWentBackByFar(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Second), Missed: MissedRunAll, Run: g.run(0)})
		g.pass(10*time.Second + 500*time.Millisecond)
		old := g.saved()
		g.pass(5 * time.Second)
		g.restore(old)
		g.pass(3 * time.Second)
		slots := map[string]int{}
		for _, line := range g.noted() {
			slots[strings.Fields(line)[2]]++
		}
		require.Len(g, slots, 18)
		for slot, times := range maps.All(slots) {
			require.Equal(g, 1, times, slot)
		}
		a.end()
	})
}

// TestRecordInDispute: a record that is said to have changed, again and again, and has not, is
// reported once, and asked for seldom.
func TestRecordInDispute(t *testing.T) {
	for _, op := range []string{"plan", "claim"} {
		inTaskCluster(t, func(g *taskCluster) {
			a := g.member("a", Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)})
			a.store.on(befalls(op, always, taskDenied))
			a.begin()
			g.pass(10 * time.Minute)
			require.Empty(g, g.noted())
			require.ErrorContains(g, a.status().Err, "is said to have changed", op)
			require.Len(g, g.told(EventTaskBlocked), 1, op)
			calls := a.store.calls.Load()
			g.pass(time.Minute)
			require.Less(g, a.store.calls.Load()-calls, int64(50))
			require.Error(g, a.status().Err)
			a.store.on(nil)
			g.pass(2 * time.Minute)
			require.NotEmpty(g, g.noted())
			require.NoError(g, a.status().Err)
			a.end()
		})
	}
}

// TestRerunIsNotRepeated: what this process ran again for another one stays done when Redis forgets
// that.
func TestRerunIsNotRepeated(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(time.Minute)}
		a := g.leader("a", task)
		g.pass(time.Hour + time.Second)
		a.crash()
		old := g.saved()
		g.noted()
		b := g.leader("b", task)
		g.pass(2 * time.Minute)
		require.Len(g, g.noted(), 1)
		g.restore(old)
		b.end()
		b.begin()
		g.pass(10 * time.Minute)
		require.Empty(g, g.noted())
		require.Equal(g, RunSucceeded, b.status().Last.State)
		b.end()
	})
}

// TestForgottenEndIsNotedAgain: if Redis may have forgotten what a term has written, each record is
// read again within schedule.LookEvery, not when the next slot of its task is due.
func TestForgottenEndIsNotedAgain(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(24 * time.Hour), Run: g.run(time.Minute)},
			Task{Name: "often", Schedule: Every(10 * time.Minute), Run: g.run(0)})
		g.pass(24*time.Hour + 30*time.Second)
		old := g.saved()
		require.NotEmpty(g, old.Run)
		g.pass(time.Minute)
		require.Empty(g, g.saved().Run)
		g.restore(old) // a failover: the term goes on, the end of the run is lost
		g.pass(5 * time.Minute)
		require.NotEmpty(g, g.saved().Run, "nothing has told the process")
		a.t.forgot.Add(1)
		g.pass(schedule.LookEvery + time.Second)
		require.Empty(g, g.saved().Run)
		require.Equal(g, store.RunSucceeded, g.saved().Status)

		reads := 0
		a.store.on(func(op string, _ int) taskFate {
			if op == "read" {
				reads++
			}
			return taskFine
		})
		for range 10 * 60 { // two masters that answer in turn
			a.t.forgot.Add(1)
			g.pass(time.Second)
		}
		require.LessOrEqual(g, reads, 10*3+3, "each of two records once a minute, and the look at the one that is due")
		a.end()
	})
}

// TestPauseOutlivesItsRecord: the leader knows that the task is paused, and how much was skipped.
func TestPauseOutlivesItsRecord(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		ctx := context.Background()
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(90 * time.Minute)})
		g.pass(3 * time.Hour)
		require.NoError(g, a.Pause(ctx, "t", ""))
		g.pass(90 * time.Minute)
		g.noted()
		skipped := a.status().Skipped
		require.Positive(g, skipped)
		g.restore(nil)
		g.pass(2 * time.Hour)
		require.Empty(g, g.noted())
		require.True(g, a.status().Paused)
		require.Equal(g, skipped, a.status().Skipped)
		require.NoError(g, a.Resume(ctx, "t"))
		g.pass(time.Hour)
		require.NotEmpty(g, g.noted())
		a.end()
	})
}

// TestPauseSaysWhoAndWhy: to every process, until Resume, also after the record was lost.
func TestPauseSaysWhoAndWhy(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		ctx := g.Context()
		a, b := g.leader("a", Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)}), g.member("b")
		g.pass(90 * time.Second)
		want := TaskPause{By: "b", Reason: `too slow: "€" <&>`, At: g.began.Add(90 * time.Second).UTC()}
		require.NoError(g, b.Pause(ctx, "t", want.Reason))
		require.Equal(g, want, a.status().Pause)
		g.pass(time.Minute)
		g.restore(nil)
		g.pass(time.Minute)
		require.True(g, a.status().Paused)
		require.Equal(g, want, a.status().Pause)
		require.NoError(g, a.Pause(ctx, "t", ""))
		require.Equal(g, TaskPause{By: "a", At: g.began.Add(g.now()).UTC()}, b.status().Pause)
		require.NoError(g, b.Resume(ctx, "t"))
		require.Zero(g, a.status().Pause)
		for _, reason := range []string{strings.Repeat("x", 257), "two\nlines", "\xff"} {
			require.ErrorIs(g, a.Pause(ctx, "t", reason), ErrMisconfigured)
		}
		long := strings.Repeat("\"", 256)
		require.NoError(g, a.Pause(ctx, "t", long))
		require.Equal(g, long, b.status().Pause.Reason)
		g.local.Change(func(records map[string]*store.TaskRecord) { records["t"].Pause = "1 no JSON" })
		require.True(g, b.status().Paused)
		require.Zero(g, b.status().Pause)
		require.NoError(g, a.Resume(ctx, "t"))
		a.end()
	})
}

// TestLatePause: a Pause that was given up and reaches Redis after a Resume changes nothing.
func TestLatePause(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		ctx := context.Background()
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		late := a.store.Tasks
		read, err := late.Record(ctx, "t")
		require.NoError(g, err)
		require.NoError(g, a.Resume(ctx, "t"), "it ends no pause, and counts all the same")
		reply, err := late.Pause(ctx, "t", true, read.Record.Pauses, "")
		require.NoError(g, err)
		require.Equal(g, store.TaskMoved, reply.Verdict)
		require.False(g, a.status().Paused)
		a.end()
	})
}

// TestLateExtraClaim: the claim of a RunOnElection that gets through after later runs does not run
// the task once more.
func TestLateExtraClaim(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.member("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0), RunOnElection: true})
		a.store.on(befalls("claim", 1, taskLate))
		a.begin()
		g.pass(90 * time.Minute)
		want := []string{"3.1s t 3.1s #1 starts", "1h0m0s t 1h0m0s #1 starts"}
		require.Equal(g, want, g.noted())
		close(a.store.healed)
		g.pass(29 * time.Minute)
		require.Empty(g, g.noted())
		require.False(g, a.status().Running)
		g.pass(2 * time.Minute)
		require.Equal(g, []string{"2h0m0s t 2h0m0s #1 starts"}, g.noted())
		a.end()
	})
}

// TestTwoRolesWithOneTask: names of tasks are unique in a namespace. Of two roles with one the
// first runs it, the other says so, and takes over within a minute once nobody holds the lease of
// the first.
func TestTwoRolesWithOneTask(t *testing.T) {
	inCluster(t, func(c *cluster) {
		lead := func(name, role string) *instance {
			m := c.member(name, func(o *Options) { o.Election.Role = role })
			require.NoError(c, m.Tasks().Register(m.counts("t", Every(10*time.Second))))
			return m.start()
		}
		a := lead("a", "one")
		c.pass(5 * time.Second)
		b := lead("b", "two")
		c.pass(time.Minute)
		require.True(c, a.IsLeader() && b.IsLeader())
		require.InDelta(c, 6, len(c.noted()), 1, "once each slot")
		require.Len(c, b.told(EventTaskBlocked), 1)
		require.Empty(c, a.told(EventTaskBlocked))
		status, err := b.Tasks().List(context.Background())
		require.NoError(c, err)
		require.ErrorIs(c, status[0].Err, ErrMisconfigured)
		require.ErrorContains(c, status[0].Err, "tenure:leader:one")
		_, err = a.stop()
		require.NoError(c, err)
		c.noted()
		c.pass(2 * time.Minute)
		runs := c.noted()
		require.InDelta(c, 9, len(runs), 3)
		require.True(c, strings.HasPrefix(runs[0], "b "))
		status, err = b.Tasks().List(context.Background())
		require.NoError(c, err)
		require.NoError(c, status[0].Err)
	})
}

// TestTaskMovedToAnotherRole: a task whose processes have it in another role by now goes on there,
// with its history, once the leader of the old role has not opened its record for a minute. While
// a process that has it in the old role leads that, it runs there.
func TestTaskMovedToAnotherRole(t *testing.T) {
	for _, to := range []string{"role", "anywhere"} {
		t.Run(to, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				old := c.member("old")
				require.NoError(c, old.Tasks().Register(old.counts("t", Every(10*time.Second))))
				old.start()
				c.pass(time.Minute)
				added := []*instance{c.member("a"), c.member("b")}
				for _, m := range added {
					task := m.counts("t", Every(10*time.Second))
					task.History = 100
					if task.Anywhere = to == "anywhere"; !task.Anywhere {
						_, err := m.AddRole("x", ElectionOptions{})
						require.NoError(c, err)
						task.Role = "x"
					}
					require.NoError(c, m.Tasks().Register(task))
					m.start()
				}
				c.noted()
				c.pass(4 * time.Minute)
				for _, run := range c.noted() {
					require.True(c, strings.HasPrefix(run, "old "), run)
				}
				_, err := old.stop()
				require.NoError(c, err)
				c.pass(3 * time.Minute)
				require.Greater(c, len(c.noted()), 5)
				runs, err := added[0].Tasks().Runs(context.Background(), "t", 100)
				require.NoError(c, err)
				require.Equal(c, "old", runs[len(runs)-1].InstanceID)
				for _, m := range added {
					status, err := m.Tasks().List(context.Background())
					require.NoError(c, err)
					require.NoError(c, status[0].Err)
				}
			})
		})
	}
}

// TestTaskMovedWhileItsLeaderLeads: who has run the task keeps it for that term. The error says
// what moves it.
func TestTaskMovedWhileItsLeaderLeads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		_, err := a.AddRole("x", ElectionOptions{})
		require.NoError(c, err)
		task := a.counts("t", Every(time.Minute))
		require.NoError(c, a.Tasks().Register(task))
		a.start()
		c.pass(5 * time.Minute)
		require.NoError(c, a.Tasks().Unregister(c.Context(), "t"))
		task.Role = "x"
		require.NoError(c, a.Tasks().Register(task))
		c.noted()
		c.pass(10 * time.Minute)
		require.Empty(c, c.noted())
		status, err := a.Tasks().List(c.Context())
		require.NoError(c, err)
		require.ErrorIs(c, status[0].Err, ErrMisconfigured)
		require.ErrorContains(c, status[0].Err, "have that leader resign")
		require.NoError(c, a.Elector().Resign(c.Context()))
		c.pass(5 * time.Minute)
		require.NotEmpty(c, c.noted())
		status, err = a.Tasks().List(c.Context())
		require.NoError(c, err)
		require.NoError(c, status[0].Err)
	})
}

// TestIndexIsWrittenAgain: an index that was evicted is there again with the next runs.
func TestIndexIsWrittenAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		require.NoError(c, a.Tasks().Register(a.counts("t", Every(time.Minute))))
		a.start()
		c.pass(30 * time.Second)
		c.del("tenure:tasks")
		c.pass(time.Minute)
		c.redis.Do(func(m *miniredis.Miniredis) {
			names, err := m.Members("tenure:tasks")
			require.NoError(c, err)
			require.Equal(c, []string{"t"}, names)
		})
	})
}

// TestFencedRecordIsLookedAtAgain: a token in a record that is ahead of all leaders, after an
// excursion of Redis's clock, is reported with what to do, and the task goes on soon after the
// record was removed.
func TestFencedRecordIsLookedAtAgain(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		_, err := g.local.Open(context.Background(), "t", store.TaskOpen{Token: 1 << 40})
		require.NoError(g, err)
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(time.Hour)
		fenced := g.told(EventTaskBlocked)
		require.Len(g, fenced, 1)
		require.ErrorIs(g, fenced[0].Err, ErrFenced)
		require.ErrorContains(g, fenced[0].Err, "remove the record")
		require.ErrorIs(g, a.status().Err, ErrFenced)
		g.restore(nil)
		g.pass(schedule.LookEvery)
		require.NoError(g, a.status().Err)
		g.pass(time.Hour)
		require.NotEmpty(g, g.noted())
		a.end()
	})
}

// TestForeignRecordSaysHowToRepairIt: a task whose record says that it belongs to a lease that
// nobody can have is reported once, with what to do, and goes on within a minute of that.
func TestForeignRecordSaysHowToRepairIt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.redis.Do(func(m *miniredis.Miniredis) {
			m.HSet("tenure:task:t", "lease", strings.Repeat("no lease ", 1000), "token", "900000000000")
		})
		a := c.member("a")
		require.NoError(t, a.Tasks().Register(a.counts("t", Every(10*time.Second))))
		a.start()
		c.pass(5 * time.Minute)
		require.Empty(c, c.noted())
		require.Len(c, a.told(EventTaskBlocked), 1)
		status, err := a.Tasks().List(context.Background())
		require.NoError(c, err)
		require.ErrorIs(c, status[0].Err, ErrMisconfigured)
		require.ErrorContains(c, status[0].Err, "remove the fields lease and token")
		require.Less(c, len(status[0].Err.Error()), 500)
		c.redis.Do(func(m *miniredis.Miniredis) {
			m.HDel("tenure:task:t", "lease")
			m.HDel("tenure:task:t", "token")
		})
		c.pass(90 * time.Second)
		require.NotEmpty(c, c.noted())
	})
}

// TestTaskVerdictsThatNobodyGives: they run nothing, are reported once, and are asked for with
// pauses.
func TestTaskVerdictsThatNobodyGives(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		hook := &simnet.Liar{}
		a.client.AddHook(hook)
		require.NoError(t, a.Tasks().Register(a.counts("t", Every(10*time.Second))))
		hook.Lie("nonsense", "")
		a.start()
		c.pass(5 * time.Minute)
		require.Empty(t, c.noted())
		require.Len(t, a.told(EventTaskBlocked), 1)
		require.Less(t, hook.Lie("", ""), 5*60)
		c.pass(time.Minute)
		require.NotEmpty(t, c.noted())
	})
}

// TestStatusOfSuccess: when a run last succeeded, and how many have failed since, is known to every
// process and outlives its leader. What is run again has not failed.
func TestStatusOfSuccess(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		var bad atomic.Bool
		task := Task{Name: "t", Schedule: Every(time.Hour), Retry: RetryPolicy{Attempts: 2}, Run: func(ctx context.Context, _ TaskRun) error {
			if bad.Load() {
				return errBroken
			}
			time.Sleep(time.Minute)
			return ctx.Err()
		}}
		a, elsewhere := g.leader("a", task), g.member("elsewhere")
		require.Zero(g, elsewhere.status().LastSuccess)
		g.pass(61 * time.Minute)
		require.Equal(g, g.began.Add(61*time.Minute).UTC(), elsewhere.status().LastSuccess)
		bad.Store(true)
		g.pass(2 * time.Hour)
		require.Equal(g, 2, elsewhere.status().Failures, "runs, not attempts")
		a.end()
		bad.Store(false)
		b := g.leader("b", task)
		g.pass(59*time.Minute + 30*time.Second)
		b.end() // interrupted
		require.Equal(g, 2, elsewhere.status().Failures)
		require.Equal(g, g.began.Add(61*time.Minute).UTC(), elsewhere.status().LastSuccess)
		b.begin()
		g.pass(2 * time.Minute)
		require.Zero(g, elsewhere.status().Failures)
		require.Equal(g, RunSucceeded, elsewhere.status().Last.State)
		require.Equal(g, elsewhere.status().Last.Finished, elsewhere.status().LastSuccess)
		b.end()
	})
	inTaskCluster(t, func(g *taskCluster) { // a run that is given up counts
		task := Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(10 * time.Minute), Abandoned: AbandonedFail}
		a := g.leader("a", task)
		g.pass(time.Hour + time.Minute)
		a.crash()
		b := g.leader("b", task)
		g.pass(time.Minute)
		require.Equal(g, 1, b.status().Failures)
		b.end()
	})
}

// TestOverdue: a slot that nobody runs is overdue after its jitter and a minute, as any process
// sees.
func TestOverdue(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a, elsewhere := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Jitter: 10 * time.Minute, Run: g.run(0)}), g.member("elsewhere")
		g.pass(30 * time.Minute)
		a.end()
		g.pass(41 * time.Minute)
		require.False(g, elsewhere.status().Overdue)
		g.pass(time.Second)
		require.True(g, elsewhere.status().Overdue)
		require.NoError(g, elsewhere.Pause(g.Context(), "t", ""))
		require.False(g, elsewhere.status().Overdue)
		require.NoError(g, elsewhere.Resume(g.Context(), "t"))
		require.True(g, elsewhere.status().Overdue)
		a.begin()
		g.pass(time.Second)
		require.False(g, elsewhere.status().Overdue)
		a.end()
	})
}

// nightly is a schedule of the application's.
type nightly struct{ id string }

func (nightly) Next(after time.Time) time.Time {
	return after.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
}
func (n nightly) Identity() string { return n.id }

// TestUpcoming: the next slots, also of a task that this process has not registered if its schedule
// is one of this package.
func TestUpcoming(t *testing.T) {
	for name, c := range map[string]struct {
		schedule  Schedule
		here      []time.Duration
		elsewhere []time.Duration
		text      string
	}{
		"every":     {Every(90 * time.Minute), []time.Duration{90 * time.Minute, 3 * time.Hour, 270 * time.Minute}, []time.Duration{90 * time.Minute, 3 * time.Hour, 270 * time.Minute}, "every 1h30m0s"},
		"cron":      {Cron("0 3 * * *"), []time.Duration{3 * time.Hour, 27 * time.Hour, 51 * time.Hour}, []time.Duration{3 * time.Hour, 27 * time.Hour, 51 * time.Hour}, "cron 0 3 * * *"},
		"its own":   {nightly{"nightly"}, []time.Duration{24 * time.Hour, 48 * time.Hour, 72 * time.Hour}, []time.Duration{24 * time.Hour}, "nightly"},
		"long name": {nightly{strings.Repeat("x", 5000)}, []time.Duration{24 * time.Hour, 48 * time.Hour, 72 * time.Hour}, []time.Duration{24 * time.Hour}, strings.Repeat("x", store.MaxTaskText)},
		"on demand": {OnDemand(), nil, nil, "on demand"},
	} {
		t.Run(name, func(t *testing.T) {
			inTaskCluster(t, func(g *taskCluster) {
				a, elsewhere := g.member("a", Task{Name: "t", Schedule: c.schedule, Run: g.run(0)}), g.member("elsewhere")
				slots, err := a.Upcoming(g.Context(), "t", 3)
				require.NoError(g, err)
				require.Empty(g, slots, "no leader has seen it")
				_, err = elsewhere.Upcoming(g.Context(), "t", 3)
				require.ErrorIs(g, err, ErrNotFound)
				a.begin()
				g.pass(time.Second)
				for m, want := range map[*taskInstance][]time.Duration{a: c.here, elsewhere: c.elsewhere} {
					slots, err := m.Upcoming(g.Context(), "t", 3)
					require.NoError(g, err)
					var got []time.Duration
					for _, slot := range slots {
						got = append(got, slot.Sub(g.began))
					}
					require.Equal(g, want, got, m.id)
				}
				require.Equal(g, c.text, elsewhere.status().Schedule)
				require.False(g, elsewhere.status().Known)
				slots, err = a.Upcoming(g.Context(), "t", 0)
				require.NoError(g, err)
				require.Empty(g, slots)
				_, err = a.Upcoming(g.Context(), "no name", 3)
				require.ErrorIs(g, err, ErrMisconfigured)
				slots, err = a.Upcoming(g.Context(), "t", 1<<30)
				require.NoError(g, err)
				require.LessOrEqual(g, len(slots), maxUpcoming)
				a.end()
			})
		})
	}
}

// TestUpcomingOfAnotherVersion: a process whose task has another schedule shows the slots that the
// leader will run; one whose schedule hangs does not hang the caller.
func TestUpcomingOfAnotherVersion(t *testing.T) {
	inTaskCluster(t, func(g *taskCluster) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		b := g.member("b", Task{Name: "t", Schedule: Every(time.Minute), Run: g.run(0)})
		slots, err := b.Upcoming(g.Context(), "t", 2)
		require.NoError(g, err)
		require.Equal(g, time.Hour, slots[1].Sub(slots[0]))
		a.end()
	})
	inTaskCluster(t, func(g *taskCluster) {
		hangs, free := atomic.Bool{}, make(chan struct{})
		a := g.leader("a", Task{Name: "t", Schedule: hanging{&hangs, free}, Run: g.run(0)})
		g.pass(time.Second)
		hangs.Store(true)
		_, err := a.Upcoming(g.Context(), "t", 2)
		require.ErrorIs(g, err, ErrMisconfigured)
		require.ErrorContains(g, err, "have not returned within 1s")
		require.Error(g, a.flush(time.Now().Add(time.Second)), "Run says so")
		close(free)
		a.end()
	})
}

// hanging is a schedule that can be made to hang.
type hanging struct {
	hangs *atomic.Bool
	free  chan struct{}
}

func (h hanging) Next(after time.Time) time.Time {
	if h.hangs.Load() {
		<-h.free
	}
	return after.Add(time.Hour)
}

func (hanging) Identity() string { return "hanging" }

// lateNames is a store whose listing goes on for a moment after its context is done.
type lateNames struct {
	store.Tasks
	asked chan struct{}
}

func (l lateNames) Names(ctx context.Context, limit int) ([]string, bool, error) {
	l.asked <- struct{}{}
	<-ctx.Done()
	time.Sleep(20 * time.Millisecond) // a signal of the caller would order the two, and hide a race
	return l.Tasks.Names(context.WithoutCancel(ctx), limit)
}

// TestListThatIsLeft: a caller whose context ends shares nothing with the call that goes on. The
// race detector says so.
func TestListThatIsLeft(t *testing.T) {
	c, err := NewStandalone(Options{})
	require.NoError(t, err)
	late := lateNames{c.tasks.store, make(chan struct{}, 1)}
	c.tasks.store = late
	for name, list := range map[string]func(context.Context) ([]TaskStatus, error){
		"List":      c.Tasks().List,
		"ListNamed": func(ctx context.Context) ([]TaskStatus, error) { return c.Tasks().ListNamed(ctx, "", 10) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() { // ends with ctx
			_, err := list(ctx)
			answered <- err
		}()
		<-late.asked
		cancel()
		require.ErrorIs(t, <-answered, context.Canceled, name)
		require.NoError(t, c.tasks.flush(time.Now().Add(time.Minute)), name)
	}
}
