package tenure

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

func TestRunIsCalledOnce(t *testing.T) {
	inElection(t, nil, func(s *election) {
		ctx := context.Background()
		require.ErrorIs(s, s.Elector.Run(ctx, nil), ErrMisconfigured, "a nil LeadFunc starts nothing")
		s.run()
		require.ErrorIs(s, s.Elector.Run(ctx), ErrRunning)
		require.NoError(s, s.stop())
		require.ErrorIs(s, s.Elector.Run(ctx), ErrStopped)
		s.standalone = false
		require.ErrorIs(s, s.Elector.Run(ctx), ErrRunning, "the coordinator's")
	})
}

// badCauseError is the cause of a context whose text nobody gets.
type badCauseError struct{ text func() }

func (e badCauseError) Error() string {
	e.text()
	return "bad"
}

// TestP11_StopWithABadCause: the text of the cause of Run's context is the application's code. One
// that blocks, or ends its goroutine, keeps neither Run from returning nor the lease.
func TestP11_StopWithABadCause(t *testing.T) {
	for name, text := range map[string]func(){
		"blocks":             func() { select {} },
		"ends its goroutine": runtime.Goexit,
		"panics":             func() { panic("no text") },
		"is harmless":        func() {},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.honest(0))
				require.True(s, s.IsLeader())
				transferred := make(chan error, 1)
				go func() { transferred <- s.Transfer(context.Background(), "other") }()
				s.pass(0)
				s.halt(badCauseError{text})
				require.NoError(s, <-s.ended)
				require.True(s, s.store.free())
				err := <-transferred
				require.ErrorIs(s, err, ErrNotLeader)
				var cause badCauseError
				require.ErrorAs(s, s.told(EventTermEnded)[0].Err, &cause)
				require.ErrorAs(s, err, &cause)
			})
		})
	}
}

func TestRunAgainWhileItDrains(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.halt(nil)
		s.pass(0)
		require.Equal(s, ElectionDraining, s.Status().State)
		require.ErrorIs(s, s.Elector.Run(context.Background()), ErrRunning)
		require.NoError(s, s.stop())
		require.ErrorIs(s, s.Elector.Run(context.Background()), ErrStopped)
	})
}

// TestRunAgainSaysWhy: a program that calls Run until it succeeds hears that it has to make another
// Coordinator.
func TestRunAgainSaysWhy(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start()
		_, err := a.stop()
		require.NoError(c, err)
		elector, err := NewElector(a.client, ElectorOptions{Namespace: "test"})
		require.NoError(c, err)
		done, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(c, elector.Run(done))
		for _, run := range []func(context.Context, ...LeadFunc) error{a.Run, elector.Run} {
			err := run(context.Background())
			require.ErrorIs(c, err, ErrStopped)
			require.ErrorContains(c, err, "make another")
		}
	})
}

func TestRunWithADoneContextAsksNothing(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.listen = func(context.Context) { s.Error("listens") }
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(s, s.Elector.Run(ctx, s.honest(0)))
		require.Empty(s, s.store.made(""))
		require.Equal(s, ElectionStopped, s.Status().State)
		require.ErrorIs(s, s.Elector.Run(ctx), ErrStopped)
	})
}

// Run is stopped at every millisecond of its first campaign, on a slow network.
func TestP11_StopAtAnyMoment(t *testing.T) {
	for at := time.Duration(0); at < 40*time.Millisecond; at += time.Millisecond {
		inElection(t, nil, func(s *election) {
			s.store.on(on("", fate{there: 7 * time.Millisecond, back: 7 * time.Millisecond}))
			s.listen = func(ctx context.Context) { <-ctx.Done() }
			s.run(func(ctx context.Context, _ Term) error {
				<-time.After(5 * time.Millisecond)
				return nil
			}, s.honest(time.Millisecond))
			s.at(at)
			require.NoError(s, s.stop())
			require.False(s, s.IsLeader())
			require.True(s, s.store.free(), "stopped at %v", at)
			require.Less(s, s.now(), 60*time.Millisecond)
		})
	}
}

// A stop does not wait for the next health check, and ends the context of the one that runs.
func TestP11_StopEndsTheHealthCheck(t *testing.T) {
	for name, check := range map[string]func(context.Context) error{
		"between two checks": func(context.Context) error { return nil },
		"during the first":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"unhealthy":          func(context.Context) error { return errBroken },
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.Election.Health = check }, func(s *election) {
				s.run(s.honest(0))
				s.at(time.Second)
				require.NoError(s, s.stop())
				require.Equal(s, time.Second, s.now())
				require.True(s, s.store.free())
			})
		})
	}
}

func TestStopWaitsForAnAcquireInFlight(t *testing.T) {
	for name, test := range map[string]struct {
		fate     fate
		ends     time.Duration
		releases int
	}{
		"won":                    {fate{there: time.Second, back: time.Second}, 2 * time.Second, 1},
		"lost reply":             {fate{back: time.Second, err: errNetwork}, time.Second, 1},
		"won after the attempt":  {fate{there: 3 * time.Second, back: 3 * time.Second}, 6 * time.Second, 2}, // as soon as it is given up, and again
		"held":                   {fate{lost: true, back: time.Second, answer: &store.LeaseReply{Answer: lease.Answer{Verdict: lease.Held}}}, time.Second, 0},
		"error after an attempt": {fate{lost: true, back: 5 * time.Second}, 5 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.ShutdownTimeout = time.Minute }, func(s *election) {
				s.store.on(on("acquire", test.fate))
				s.run(s.honest(0))
				s.at(time.Millisecond)
				require.NoError(s, s.stop())
				require.Equal(s, test.ends, s.now())
				require.Len(s, s.store.made("release"), test.releases)
				require.True(s, s.store.free())
				require.Empty(s, s.told(EventTermBegan))
				require.Zero(s, s.Status().CallsInFlight)
			})
		})
	}
}

func TestP11_RunSaysWhatStillRuns(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Options)
		act    func(*election, LeadFunc)
		says   []string
	}{
		"leader work": {
			act:  func(s *election, hang LeadFunc) { s.run(s.honest(0), hang) },
			says: []string{`role "cleanup"`, "leader work github.com/tenure-go/tenure.TestP11_RunSaysWhatStillRuns.func"},
		},
		"calls": {
			act:  func(s *election, _ LeadFunc) { s.store.on(on("release", fate{hang: true})); s.run() },
			says: []string{"1 calls to Redis"},
		},
		"health check": {
			change: func(o *Options) {
				o.Election.Health = func(context.Context) error { <-time.After(time.Minute); return nil }
			},
			act:  func(s *election, _ LeadFunc) { s.run() },
			says: []string{"the health check"},
		},
		"observer": {
			act: func(s *election, hang LeadFunc) {
				s.loop.bus.observe(func(Event) { _ = hang(nil, Term{}) })
				s.run()
			},
			says: []string{"an observer of events"},
		},
		"subscription": {
			act: func(s *election, hang LeadFunc) {
				s.listen = func(context.Context) { _ = hang(nil, Term{}) }
				s.run()
			},
			says: []string{"the subscription to hints"},
		},
		"all of it": {
			change: func(o *Options) {
				o.Election.Health = func(context.Context) error { <-time.After(time.Minute); return nil }
			},
			act: func(s *election, hang LeadFunc) {
				s.listen = func(context.Context) { _ = hang(nil, Term{}) }
				s.store.on(on("", fate{hang: true}))
				s.loop.bus.observe(func(Event) { _ = hang(nil, Term{}) })
				s.loop.bus.publish(Event{})
				s.loop.inputs.put(func(in *loopInputs) { var well error; in.health = &well })
				s.run()
			},
			says: []string{`role "cleanup": 2 calls to Redis, role "cleanup": the health check`, "an observer of events", "the subscription to hints"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(o *Options) {
				o.Election.Role = "cleanup"
				if test.change != nil {
					test.change(o)
				}
			}
			inElection(t, change, func(s *election) {
				release := make(chan struct{})
				defer close(release)
				test.act(s, func(context.Context, Term) error { <-release; return nil })
				s.at(time.Second)
				err := s.stop()
				require.ErrorIs(s, err, ErrDrainTimeout)
				for _, what := range test.says {
					require.ErrorContains(s, err, what)
				}
				require.LessOrEqual(s, s.now(), time.Second+electionDrain)
				require.Greater(s, s.now(), time.Second+electionDrain*9/10)
				require.Equal(s, ElectionStopped, s.Status().State)
				require.False(s, s.IsLeader())
				if name != "observer" && name != "all of it" {
					require.NotContains(s, err.Error(), "observer", "one that keeps up is not accused")
				}
			})
		})
	}
}

// The last event of Run reaches the observers before it returns.
func TestP11_OverrunAtTheEndIsHeard(t *testing.T) {
	inElection(t, nil, func(s *election) {
		release := make(chan struct{})
		defer close(release)
		s.loop.bus.observe(func(e Event) {
			<-time.After(10 * time.Millisecond) // a log that takes its time
			s.note("%s", e.Type)
		})
		s.run(func(context.Context, Term) error { <-release; return nil })
		s.at(time.Second)
		require.ErrorIs(s, s.stop(), ErrDrainTimeout)
		require.Equal(s, []string{"election_started", "term_began", "leader_changed", "term_ended", "work_overrun"}, s.noted())
	})
}

// What answers after Run has returned finds nobody, and harms nobody.
func TestAnswersAfterRun(t *testing.T) {
	inElection(t, nil, func(s *election) {
		release := make(chan struct{})
		s.store.on(on("renew", fate{hang: true}))
		s.run(func(context.Context, Term) error { <-release; return errBroken })
		s.at(electionRenew)
		require.ErrorIs(s, s.stop(), ErrDrainTimeout)
		close(release)
		s.store.heal()
		s.hint(store.Hint{Type: store.HintVacant})
		s.pass(time.Hour)
		require.False(s, s.IsLeader())
		require.Equal(s, ElectionStopped, s.Status().State)
		require.Empty(s, s.store.made("release"), "left to lapse")
		require.True(s, s.store.free())
	})
}

func TestHangingCallsAreCapped(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{hang: true}))
		s.run(s.honest(0))
		s.at(10 * time.Minute)
		require.Len(s, s.store.made("acquire"), maxCalls)
		require.Equal(s, maxCalls, s.Status().CallsInFlight)
		stuck := s.told(EventCallsStuck)
		require.Len(s, stuck, 1)
		require.Equal(s, maxCalls, stuck[0].Count)
		require.ErrorIs(s, stuck[0].Err, ErrUnreachable)
		s.store.on(nil)
		s.store.heal()
		s.pass(electionTTL / 6)
		require.True(s, s.IsLeader())
		require.Zero(s, s.Status().CallsInFlight)
	})
}

func TestCallsThatReturnOneByOneAreToldOfOnce(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("acquire", fate{lost: true, back: 3 * time.Minute}))
		s.run()
		s.at(20 * time.Minute)
		require.Greater(s, len(s.store.made("acquire")), 3*maxCalls)
		require.Len(s, s.told(EventCallsStuck), 1)
		s.store.on(nil)
		s.pass(4 * time.Minute)
		require.True(s, s.IsLeader())
		s.store.on(on("", fate{lost: true, back: 3 * time.Minute}))
		s.pass(20 * time.Minute)
		require.Len(s, s.told(EventCallsStuck), 2, "and again after it was over")
	})
}

func TestFailFast(t *testing.T) {
	for name, err := range map[string]error{
		"misconfigured": fmt.Errorf("%w: NOPERM", ErrMisconfigured),
		"unreachable":   errNetwork,
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.FailFast = true }, func(s *election) {
				s.store.on(on("", fate{err: err, back: time.Millisecond}))
				s.run(s.honest(0))
				require.ErrorIs(s, <-s.ended, err)
				require.Equal(s, 2*time.Millisecond, s.now(), "one acquire, and one release of what it may have been granted")
			})
		})
	}
	t.Run("only before the first answer", func(t *testing.T) {
		inElection(t, func(o *Options) { o.FailFast = true }, func(s *election) {
			s.store.hold("other", electionTTL)
			s.run(s.honest(0))
			s.store.on(on("", fate{err: errNetwork}))
			s.at(time.Minute)
			require.Equal(s, ElectionFollowing, s.Status().State)
			s.store.on(nil)
			s.at(2 * time.Minute)
			require.True(s, s.IsLeader())
			require.NoError(s, s.stop())
		})
	})
}

// A Redis that was never there does not hold up the end of the program.
func TestStopWithoutARedisIsQuick(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("", fate{err: errNetwork}))
		s.run(s.honest(0))
		s.at(time.Minute)
		require.NoError(s, s.stop())
		require.Equal(s, time.Minute, s.now())
	})
}

func TestElectorsInOneBubbleEndTogether(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		synctest.Wait()
		require.True(s, s.IsLeader())
		s.halt(errBroken)
		require.NoError(s, <-s.ended)
		ended := s.told(EventTermEnded)
		require.ErrorIs(s, ended[0].Err, errBroken, "the cause of Run's context")
		require.ErrorIs(s, ended[0].Err, ErrStopped)
	})
}

const crewShutdown = 25 * time.Second // the default

func TestCoordinatorRunsOnce(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		ctx := context.Background()
		require.ErrorIs(c, a.Run(ctx, nil), ErrMisconfigured, "a nil LeadFunc starts nothing")
		a.start()
		require.ErrorIs(c, a.Run(ctx), ErrRunning)
		require.ErrorIs(c, a.Elector().Run(ctx), ErrRunning)
		_, err := a.stop()
		require.NoError(c, err)
		require.ErrorIs(c, a.Run(ctx), ErrStopped)
	})
}

func doNothing(context.Context, TaskRun) error { return nil }

func TestCoordinatorRunAgainWhileItDrains(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start(a.works("work", time.Second))
		c.pass(time.Minute)
		require.True(c, a.IsLeader())
		a.halt(nil)
		c.pass(0)
		require.Equal(c, ElectionDraining, a.Elector().Status().State)
		require.ErrorIs(c, a.Run(context.Background()), ErrStopped)
		_, err := a.AddRole("late", ElectionOptions{})
		require.ErrorIs(c, err, ErrStopped)
		require.ErrorIs(c, a.Tasks().Register(Task{}), ErrMisconfigured)
		require.ErrorIs(c, a.Tasks().Register(Task{Name: "late", Schedule: Every(time.Hour), Run: doNothing}), ErrStopped)
		_, err = a.stop()
		require.NoError(c, err)
	})
}

func TestCoordinatorWithADoneContextSendsNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		role, err := a.AddRole("other", ElectionOptions{})
		require.NoError(c, err)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.NoError(c, a.Run(ctx, a.works("work", 0)))
		require.Empty(c, a.told())
		require.Empty(c, c.net.Trace.Tail(10))
		for _, e := range []*Elector{a.Elector(), role} {
			require.Equal(c, ElectionStopped, e.Status().State)
			require.ErrorIs(c, e.Resign(context.Background()), ErrStopped)
		}
		require.ErrorIs(c, a.Run(ctx), ErrStopped)
		_, err = a.AddRole("late", ElectionOptions{})
		require.ErrorIs(c, err, ErrStopped)
		require.ErrorIs(c, a.Tasks().Register(Task{Name: "late", Schedule: Every(time.Hour), Run: doNothing}), ErrStopped)
	})
}

func TestP11_WorkThatIgnoresItsContext(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		release := make(chan struct{})
		defer close(release)
		_, err := a.AddRole("other", ElectionOptions{Lead: []LeadFunc{a.works("other", 0)}})
		require.NoError(c, err)
		a.start(func(context.Context, Term) error { <-release; return nil })
		c.pass(time.Minute)
		took, err := a.stop()
		require.ErrorIs(c, err, ErrDrainTimeout)
		require.ErrorContains(c, err, `timeout: leader work github.com/tenure-go/tenure.TestP11_WorkThatIgnoresItsContext.func`)
		require.NotContains(c, err.Error(), "other")
		var drain *DrainError
		require.ErrorAs(c, err, &drain)
		require.Len(c, slices.DeleteFunc(drain.Running, func(what string) bool {
			return strings.HasSuffix(what, "calls to Redis") // a renewal may be on its way at that moment
		}), 1)
		require.LessOrEqual(c, took, crewShutdown)
		require.Empty(c, a.record(), "deregistered all the same")
		require.Equal(c, "a", c.holder("tenure:leader"), "left to lapse")
		require.Empty(c, c.holder("tenure:leader:other"), "released")
		require.Len(c, a.told(EventWorkOverrun), 1)
		c.pass(12 * time.Second)
		require.Empty(c, c.holder("tenure:leader"))
	})
}

// A task that ignores its context is named by the work that waits for it, and its late end harms
// nobody.
func TestP11_ATaskThatIgnoresItsContext(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 5 * time.Second })
		release := make(chan struct{})
		require.NoError(c, a.Tasks().Register(Task{Name: "deaf", Schedule: Every(time.Minute), RunOnElection: true, Run: func(context.Context, TaskRun) error {
			<-release
			return nil
		}}))
		a.start()
		c.pass(10 * time.Second)
		took, err := a.stop()
		require.ErrorIs(c, err, ErrDrainTimeout)
		require.ErrorContains(c, err, "leader work of the tasks")
		require.LessOrEqual(c, took, 5*time.Second)
		require.Contains(c, a.told(EventWorkOverrun)[0], "deaf")
		require.Empty(c, a.record())
		close(release)
		c.pass(time.Minute)
	})
}

// hungTasks is a store of tasks whose first call hangs until healed is closed, whatever its context
// says.
type hungTasks struct {
	store.Tasks
	healed <-chan struct{}
	once   atomic.Bool
}

func (s *hungTasks) Open(ctx context.Context, name string, o store.TaskOpen) (store.TaskReply, error) {
	if !s.once.Swap(true) {
		<-s.healed
	}
	return s.Tasks.Open(ctx, name, o)
}

// A call about a task that was given up in an earlier term is still ours: Run waits for it, or says
// so.
func TestP11_CallOfTheTasksHangs(t *testing.T) {
	for _, heals := range []bool{false, true} {
		inCluster(t, func(c *cluster) {
			a := c.member("a")
			healed := make(chan struct{})
			heal := sync.OnceFunc(func() { close(healed) })
			defer heal()
			a.tasks.store = &hungTasks{Tasks: a.tasks.store, healed: healed}
			require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: Every(time.Minute), Run: doNothing}))
			a.start()
			c.pass(time.Minute)
			require.NoError(c, a.Elector().Resign(context.Background()))
			c.pass(time.Minute)
			require.True(c, a.IsLeader(), "an earlier term's")
			if heals {
				time.AfterFunc(15*time.Second, heal)
			}
			took, err := a.stop()
			if heals {
				require.NoError(c, err)
				require.Equal(c, 15*time.Second, took)
				return
			}
			require.ErrorIs(c, err, ErrDrainTimeout)
			require.ErrorContains(c, err, "a call of the tasks to Redis")
			require.LessOrEqual(c, took, crewShutdown)
			require.Empty(c, a.record(), "deregistered all the same")
		})
	}
}

func TestP11_RedisHangsAtTheStop(t *testing.T) {
	for name, test := range map[string]struct {
		client func(*redis.Options)
		hang   func(*cluster)
		says   []string // nothing: all has returned in time
	}{
		"partition": {
			hang: func(c *cluster) { c.net.Partition("a", simnet.Both, 0) },
		},
		"pause": {
			hang: func(c *cluster) { c.redis.Pause(time.Hour) },
		},
		"partition, a client that waits for ever": {
			client: func(o *redis.Options) { o.ReadTimeout, o.PoolTimeout = -1, time.Hour },
			hang:   func(c *cluster) { c.net.Partition("a", simnet.Both, 0) },
			says:   []string{"a call of the registry to Redis"}, // those of the elections end with their attempt
		},
		"pause, a client that waits for ever": {
			client: func(o *redis.Options) { o.ReadTimeout, o.PoolTimeout = -1, time.Hour },
			hang:   func(c *cluster) { c.redis.Pause(time.Hour) },
			says:   []string{"a call of the registry to Redis"}, // those of the elections end with their attempt
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.on("a", test.client)
				_, err := a.AddRole("other", ElectionOptions{LeaseTTL: 10 * time.Second})
				require.NoError(c, err)
				a.start(a.works("work", time.Second))
				c.pass(time.Minute)
				a.spare() // what hangs has a connection
				test.hang(c)
				took, err := a.stop()
				require.LessOrEqual(c, took, crewShutdown)
				require.False(c, a.IsLeader())
				if test.says == nil {
					require.NoError(c, err)
				}
				for _, what := range test.says {
					require.ErrorIs(c, err, ErrDrainTimeout)
					require.ErrorContains(c, err, what)
				}
				if err != nil {
					require.NotContains(c, err.Error(), "heartbeat")
					require.NotContains(c, err.Error(), "observer")
				}
				require.Equal(c, []string{"a work leads #1", "a work drained"}, c.noted())
			})
		})
	}
}

// The coordinator is stopped at every millisecond of its first election.
func TestP11_CoordinatorStoppedAtAnyMoment(t *testing.T) {
	for at := time.Duration(0); at < 300*time.Millisecond; at += 10 * time.Millisecond {
		inCluster(t, func(c *cluster) {
			a := c.member("a")
			_, err := a.AddRole("other", ElectionOptions{})
			require.NoError(c, err)
			require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(time.Minute))))
			a.start(a.works("work", time.Millisecond))
			c.pass(at)
			took, err := a.stop()
			require.NoError(c, err)
			require.Less(c, took, 100*time.Millisecond)
			require.Empty(c, a.record())
			require.Empty(c, c.holder("tenure:leader"))
			require.Empty(c, c.holder("tenure:leader:other"))
		})
	}
}

func TestFailFastOfOneRoleEndsRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.FailFast = true })
		_, err := a.AddRole("forbidden", ElectionOptions{})
		require.NoError(c, err)
		c.forbid("tenure:leader:forbidden")
		a.start(a.works("work", 0))
		err = <-a.ended
		require.ErrorIs(c, err, ErrMisconfigured)
		require.ErrorContains(c, err, "tenure:leader:forbidden")
		require.Less(c, c.now(), time.Second)
		require.Empty(c, a.record())
		require.Empty(c, c.holder("tenure:leader"))
		require.ErrorIs(c, a.Run(context.Background()), ErrStopped)
	})
}

func TestFailFastEndsTheTermsOfOthersWithItsError(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.FailFast = true })
		c.forbid("tenure:leader:later")
		_, err := a.AddRole("later", ElectionOptions{Health: func(context.Context) error { // it asks nothing before 10 s have passed
			if c.now() < 10*time.Second {
				return ErrUnreachable
			}
			return nil
		}})
		require.NoError(c, err)
		causes := make(chan error, 1)
		a.start(func(ctx context.Context, _ Term) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil
		})
		c.pass(9 * time.Second)
		require.True(c, a.IsLeader())
		require.ErrorIs(c, <-a.ended, ErrMisconfigured)
		cause := <-causes
		require.ErrorIs(c, cause, ErrStopped)
		require.ErrorIs(c, cause, ErrMisconfigured)
	})
}

func TestFailFastIsNotForRolesThatAreAddedLater(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.FailFast = true })
		c.forbid("tenure:leader:late")
		a.start()
		c.pass(time.Second)
		late, err := a.AddRole("late", ElectionOptions{})
		require.NoError(c, err)
		c.pass(10 * time.Second)
		require.True(c, a.IsLeader())
		require.NotEmpty(c, a.told(EventElectionMisconfigured))
		c.redis.Intercept(nil)
		c.until(time.Minute, late.IsLeader)
		_, err = a.stop()
		require.NoError(c, err)
	})
}

func TestObservers(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		var first, second []EventType
		stop := a.Observe(func(e Event) { first = append(first, e.Type) })
		a.Observe(func(Event) { panic("an observer") })
		a.Observe(func(e Event) { second = append(second, e.Type) })
		a.start()
		c.pass(time.Second)
		stop()
		_, err := a.stop()
		require.NoError(c, err)
		synctest.Wait()
		waiting := func(e EventType) bool {
			return e == EventElectionWaiting || e == EventElectionStarted || e == EventClusterChanged
		}
		first, second = slices.DeleteFunc(first, waiting), slices.DeleteFunc(second, waiting)
		require.Equal(c, []EventType{EventInstanceRegistered, EventTermBegan, EventLeaderChanged}, first)
		require.Equal(c, append(first, EventTermEnded, EventLeaseReleased, EventInstanceLeft), second)
	})
}

func TestP11_ABlockedObserver(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.ShutdownTimeout = 5 * time.Second })
		release := make(chan struct{})
		a.Observe(func(Event) { <-release })
		a.start(a.works("work", 0))
		c.pass(time.Minute)
		took, err := a.stop()
		require.ErrorIs(c, err, ErrDrainTimeout)
		require.ErrorContains(c, err, "an observer of events")
		require.Equal(c, 5*time.Second, took)
		require.Empty(c, a.record())
		require.Equal(c, []string{"term_ended #1", "lease_released #1", "instance_left a"}, a.told()[3:], "another one hears all")
		close(release)
		c.pass(time.Second)
	})
}

func TestP11_ASubscriptionThatHangs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		listen, release := a.backend.listen, make(chan struct{})
		a.backend.listen = func(ctx context.Context, to store.Audience) {
			listen(ctx, to)
			<-release
			to.Take(store.Hint{Type: store.HintConnected}) // finds nobody, harms nobody
		}
		a.start(a.works("work", 0))
		c.pass(time.Minute)
		took, err := a.stop()
		defer close(release)
		require.EqualError(c, err, ErrDrainTimeout.Error()+": the subscription to hints")
		require.Equal(c, crewShutdown-lastWords(crewShutdown), took)
		require.Empty(c, a.record(), "deregistered all the same")
		require.Empty(c, c.holder("tenure:leader"))
		require.False(c, a.IsLeader())
	})
}

func TestWithoutBeatsNothingIsRegistered(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Registry.HeartbeatInterval = -1 })
		a.start(a.works("work", 0))
		c.pass(time.Minute)
		require.True(c, a.IsLeader())
		require.Empty(c, a.list())
		_, err := a.stop()
		require.NoError(c, err)
		require.Equal(c, []string{"term_began #1", "leader_changed #1 a", "term_ended #1", "lease_released #1"}, a.told())
	})
}

// TestDrainErrorListsAll: whatever still runs stands in one error, beside what else went wrong.
func TestDrainErrorListsAll(t *testing.T) {
	require.NoError(t, joined(nil, joined(nil, nil)))
	alone := joined(nil, errBroken)
	require.Equal(t, errBroken, alone)
	err := joined(
		joined(&DrainError{Running: []string{"a"}}, errBroken),
		nil,
		joined(&DrainError{Running: []string{"b", "c"}}, &DrainError{Running: []string{"d"}}),
		fmt.Errorf("%w: %w", ErrUnreachable, errNetwork),
	)
	var drain *DrainError
	require.ErrorAs(t, err, &drain)
	require.Equal(t, []string{"a", "b", "c", "d"}, drain.Running)
	require.ErrorIs(t, err, ErrDrainTimeout)
	require.ErrorIs(t, err, errBroken)
	require.ErrorIs(t, err, errNetwork)
	require.Equal(t, 1, strings.Count(err.Error(), ErrDrainTimeout.Error()))
	require.EqualError(t, drain, "tenure: still running at the end of the shutdown timeout: a, b, c, d")
}

// deaf is a store of which every call hangs until it is released, whatever its context says.
type deaf struct {
	store.Lease
	store.Registry
	store.Tasks
	released chan struct{}
}

func (d *deaf) hang() error {
	<-d.released
	return errNetwork
}

func (d *deaf) Leader(context.Context) (store.LeaseReply, error) { return store.LeaseReply{}, d.hang() }

func (d *deaf) Instance(context.Context, string) (store.Entry, int64, error) {
	return store.Entry{}, 0, d.hang()
}

func (d *deaf) Count(context.Context, time.Duration, time.Duration) (store.CountReply, error) {
	return store.CountReply{}, d.hang()
}

func (d *deaf) Scan(context.Context, string, bool) (store.ScanReply, error) {
	return store.ScanReply{}, d.hang()
}

func (d *deaf) Names(context.Context, int) ([]string, bool, error) { return nil, false, d.hang() }

func (d *deaf) Runs(context.Context, string, int) ([]store.Run, error) {
	return nil, d.hang()
}

func (d *deaf) Record(context.Context, string) (store.TaskReply, error) {
	return store.TaskReply{}, d.hang()
}

// Every public method that asks Redis comes back when its context is done, though the client does
// not.
func TestQuestionsHeedTheirContext(t *testing.T) {
	for name, question := range map[string]func(context.Context, *Coordinator) error{
		"Leader": func(ctx context.Context, c *Coordinator) error { _, err := c.Elector().Leader(ctx); return err },
		"Instances": func(ctx context.Context, c *Coordinator) error {
			_, err := c.Registry().Instances(ctx, InstanceQuery{})
			return err
		},
		"Instance": func(ctx context.Context, c *Coordinator) error { _, err := c.Registry().Instance(ctx, "a"); return err },
		"Counts":   func(ctx context.Context, c *Coordinator) error { _, err := c.Registry().Counts(ctx); return err },
		"Tasks":    func(ctx context.Context, c *Coordinator) error { _, err := c.Tasks().List(ctx); return err },
		"Runs":     func(ctx context.Context, c *Coordinator) error { _, err := c.Tasks().Runs(ctx, "t", 1); return err },
		"Pause":    func(ctx context.Context, c *Coordinator) error { return c.Tasks().Pause(ctx, "t", "") },
		"Resume":   func(ctx context.Context, c *Coordinator) error { return c.Tasks().Resume(ctx, "t") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &deaf{released: make(chan struct{})}
				var check checker
				opts := Options{Namespace: "tenure", InstanceID: "me"}.complete(&check)
				require.NoError(t, check.err())
				c := newCoordinator(opts, backend{
					leases: func(store.Role) store.Lease { return d }, timing: func(*lease.Timing) {}, registry: d, tasks: d,
				})
				ctx, cancel := context.WithTimeoutCause(context.Background(), 200*time.Millisecond, errBroken)
				defer cancel()
				began := time.Now()
				bound := time.AfterFunc(time.Minute, func() { close(d.released) }) // so that the test fails instead of hanging
				err := question(ctx, c)
				require.Equal(t, 200*time.Millisecond, time.Since(began))
				require.ErrorIs(t, err, errBroken)
				require.NotErrorIs(t, err, ErrUnreachable, "it is the caller that did not wait")
				err = question(ctx, c)
				require.ErrorIs(t, err, errBroken, "a context that is done already")
				require.NotErrorIs(t, err, ErrUnreachable)
				if bound.Stop() {
					close(d.released)
				}
			})
		})
	}
}

func TestQuestionsThatHangAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := callGate{most: maxQuestions}
		released := make(chan struct{})
		try := func() error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			_, err := ask(ctx, &q, func(context.Context) (int, error) { <-released; return 1, nil })
			return err
		}
		for range maxQuestions {
			require.ErrorIs(t, try(), context.DeadlineExceeded)
		}
		require.ErrorContains(t, try(), "64 calls hang")
		require.ErrorIs(t, q.left.flush(time.Now().Add(time.Second), "a question"), ErrDrainTimeout)
		close(released)
		synctest.Wait()
		require.Zero(t, q.left.count())
		require.NoError(t, try(), "they have returned")
		require.NoError(t, q.left.flush(time.Now(), "a question"))
	})
}

// TestFailedDeregistrationIsReported: it has a name of its own, since no heartbeat has failed.
func TestFailedDeregistrationIsReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start()
		c.pass(time.Second)
		c.redis.Intercept(func(_, cmd string, args []string) string {
			if strings.EqualFold(cmd, "hdel") && len(args) > 0 && args[0] == "tenure:instances" {
				return "NOPERM this user has no permissions to run the 'hdel' command"
			}
			return ""
		})
		_, err := a.stop()
		require.NoError(c, err)
		require.Len(c, a.told(EventDeregistrationFailed), 1)
		require.Empty(c, a.told(EventHeartbeatFailed))
	})
}

// TestContextOfTheCaller: what ends since the caller's context has ended is no fault of Redis, even
// if the client says so. What is wrong for good is reported.
func TestContextOfTheCaller(t *testing.T) {
	for name, c := range map[string]struct{ err, want, not error }{
		"the client heeds it": {fmt.Errorf("%w: %w", ErrUnreachable, context.Canceled), errBroken, ErrUnreachable},
		"i/o timeout":         {&store.Error{Kind: ErrUnreachable, Op: "leader", Err: os.ErrDeadlineExceeded}, errBroken, ErrUnreachable},
		"misconfigured":       {fmt.Errorf("%w: NOPERM", ErrMisconfigured), ErrMisconfigured, errBroken},
		"not found":           {ErrNotFound, ErrNotFound, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			q := callGate{most: maxQuestions}
			ctx, cancel := context.WithCancelCause(context.Background())
			_, err := ask(ctx, &q, func(context.Context) (int, error) { return 0, c.err })
			require.Equal(t, c.err, err)
			ended := make(chan struct{})
			_, err = ask(endedBehind{ctx, ended}, &q, func(context.Context) (int, error) { cancel(errBroken); return 0, c.err })
			require.ErrorIs(t, err, c.want)
			require.NotErrorIs(t, err, c.not)
		})
	}
}

// endedBehind is a context whose end is seen by Err alone: the answer of a call always comes first.
type endedBehind struct {
	context.Context //nolint:containedctx // it is one
	never           chan struct{}
}

func (c endedBehind) Done() <-chan struct{} { return c.never }

func TestQuestionThatPanics(t *testing.T) {
	q := callGate{most: maxQuestions}
	_, err := ask(t.Context(), &q, func(context.Context) (int, error) { panic("a reply that the client cannot read") })
	require.ErrorIs(t, err, ErrUnreachable)
	var panicked *PanicError
	require.ErrorAs(t, err, &panicked)
}
