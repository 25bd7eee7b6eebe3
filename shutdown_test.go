package tenure

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
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
				require.Empty(s, s.told(EventAcquired))
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
			says: []string{"calls to Redis, the health check", "an observer of events", "the subscription to hints"},
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

// The last that Run has to tell reaches the observers before it returns.
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
		require.Equal(s, []string{"acquired", "leader_changed", "ended", "overrun"}, s.noted())
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
		ended := s.told(EventEnded)
		require.ErrorIs(s, ended[0].Err, errBroken, "the cause of Run's context")
		require.ErrorIs(s, ended[0].Err, ErrStopped)
	})
}
