package tenure

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
)

// brokenError is an error of the application whose methods do what the test says.
type brokenError struct{ text, is func() }

func (e brokenError) Error() string {
	if e.text != nil {
		e.text()
	}
	return "broken"
}

func (e brokenError) Is(error) bool {
	if e.is != nil {
		e.is()
	}
	return false
}

// The methods of an error are the application's code too: one that panics does not take the process
// down. The commonest is a nil pointer in an error, whose Unwrap is called by errors.Is.
func TestErrorOfWorkThatPanics(t *testing.T) {
	var null *fs.PathError
	for name, broken := range map[string]error{
		"nil pointer": null,
		"Is":          brokenError{is: func() { panic("Is") }},
		"Error":       brokenError{text: func() { panic("Error") }},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(func(ctx context.Context, _ Term) error { <-ctx.Done(); return broken })
				s.at(midTerm)
				require.NoError(s, s.Resign(context.Background()))
				require.Len(s, s.told(EventWorkFailed), 1, "it failed while it drained")
				s.at(time.Minute)
				require.True(s, s.IsLeader(), "and goes on")
			})
		})
		t.Run(name+", in the term", func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(s.after(midTerm, func() error { return broken }))
				s.at(midTerm)
				require.Len(s, s.told(EventWorkFailed), 1)
				require.Equal(s, WaitPenalty, s.Status().Waiting)
			})
		})
	}
}

// An error whose methods block delays the end of its own work only: other terms of the loop's are
// renewed.
func TestErrorOfWorkThatBlocks(t *testing.T) {
	release := make(chan struct{})
	hang := func() { <-release }
	for name, broken := range map[string]error{"Is": brokenError{is: hang}, "Error": brokenError{text: hang}} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				release = make(chan struct{})
				s.run(s.after(midTerm, func() error { return broken }))
				s.at(midTerm + 2*electionTTL)
				require.True(s, s.IsLeader(), "the work has not returned yet")
				close(release)
				s.pass(0)
				require.False(s, s.IsLeader())
				require.Len(s, s.told(EventWorkFailed), 1)
			})
		})
	}
}

func TestErrorOfHealthThatBlocks(t *testing.T) {
	inElection(t, nil, func(s *election) {
		release := make(chan struct{})
		var sick atomic.Bool
		s.loop.opts.Health = func(context.Context) error {
			if sick.Load() {
				return brokenError{text: func() { <-release }}
			}
			return nil
		}
		s.run(s.honest(0))
		require.True(s, s.IsLeader())
		sick.Store(true)
		s.at(3 * electionRenew)
		require.False(s, s.IsLeader(), "no answer in time")
		require.ErrorIs(s, s.told(EventTermEnded)[0].Err, ErrWorkFailed)
		require.Len(s, s.told(EventLeaseReleased), 1, "the loop goes on")
		close(release)
		s.pass(0)
		require.ErrorAs(s, s.Status().Err, new(brokenError))
	})
}

func TestErrorOfWorkIsKept(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(func(ctx context.Context, _ Term) error { <-ctx.Done(); return errBroken })
		require.NoError(s, s.Resign(context.Background()))
		failed := s.told(EventWorkFailed)[0].Err
		require.ErrorIs(s, failed, errBroken)
		require.ErrorContains(s, failed, "leader work github.com/tenure-go/tenure.TestErrorOfWorkIsKept")
		require.NotErrorIs(s, failed, ErrWorkFailed, "its term had ended otherwise")
	})
}

// TestWorkThatIsDone: nil means that a piece of work is done. The others go on, and so does the
// term, even without any: Run(ctx, warmCache, loop) leads for as long as loop does.
func TestWorkThatIsDone(t *testing.T) {
	done := func(context.Context, Term) error { return nil }
	for name, lead := range map[string]func(*election) []LeadFunc{
		"one of two": func(s *election) []LeadFunc { return []LeadFunc{done, s.honest(time.Second)} },
		"all":        func(s *election) []LeadFunc { return []LeadFunc{done, s.after(midTerm, func() error { return nil })} },
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(o *Options) { o.Election.Lead = []LeadFunc{done} }, func(s *election) {
				s.run(lead(s)...)
				s.at(time.Hour)
				require.True(s, s.IsLeader())
				require.Len(s, s.told(EventTermBegan), 1)
				require.Empty(s, s.told(EventTermEnded))
				require.Empty(s, s.told(EventWorkFailed))
				finished := s.told(EventWorkDone)
				require.Len(s, finished, map[string]int{"one of two": 2, "all": 3}[name], "each is reported once")
				for _, e := range finished {
					require.NotEmpty(s, e.Work)
					require.Equal(s, s.Status().Token, e.Token)
				}
				require.NoError(s, s.Resign(context.Background()), "what is done is not waited for")
				s.at(time.Hour + time.Minute)
				require.True(s, s.IsLeader(), "and begins anew in the next term")
				require.Len(s, s.told(EventTermBegan), 2)
			})
		})
	}
}

// TestWorkThatResignsAsItIsTold: the word of work that resigns is no failure, even if the term ends
// for another reason meanwhile.
func TestWorkThatResignsAsItIsTold(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(func(ctx context.Context, _ Term) error { <-ctx.Done(); return ErrResigned })
		s.at(midTerm)
		require.NoError(s, s.stop())
		require.Empty(s, s.told(EventWorkFailed))
		require.ErrorIs(s, s.told(EventTermEnded)[0].Err, ErrStopped)
	})
}

// TestFailedWorkMovesOn: the work of a leader fails. Another takes over within milliseconds; if
// there is none, the same leads again after a second.
func TestFailedWorkMovesOn(t *testing.T) {
	for name, others := range map[string]bool{"alone": false, "another waits": true} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a").start(func(ctx context.Context, _ Term) error {
					select {
					case <-time.After(20 * time.Second):
						return errBroken
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				c.until(time.Minute, a.IsLeader)
				if others {
					b := c.member("b").start()
					c.until(time.Minute, func() bool { return !a.IsLeader() })
					require.Less(c, c.until(time.Minute, b.IsLeader), 50*time.Millisecond)
					return
				}
				for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
					c.until(time.Minute, func() bool { return !a.IsLeader() })
					took := c.until(time.Minute, a.IsLeader)
					require.InDelta(c, pause*105/100, took, float64(pause/10))
				}
			})
		})
	}
}

var errBroken = errors.New("the disk is full")

// ending is one way for a term that began at 0 to end.
type ending struct {
	name   string
	change func(*Options)
	work   func(*election) LeadFunc // beside a witness that takes a second to return; nil: none
	before func(*election)
	at     time.Duration   // when it ends
	act    func(*election) // right then
	cause  string
	failed bool          // with EventWorkFailed
	kept   bool          // by our own decision: the lease is kept while the work drains
	pause  time.Duration // from the release to the next campaign; 0: there is none
}

// failing is a health check that answers by its number.
func failing(answer func(ctx context.Context, number int) error) func(*Options) {
	return func(o *Options) {
		number := 0
		o.Election.Health = func(ctx context.Context) error {
			number++
			return answer(ctx, number)
		}
	}
}

const (
	resigned   = electionRetry * 105 / 100           // a resignation stands back for RetryInterval, and half of a tenth in jitter
	penalty    = time.Second * 105 / 100             // after failed work, the first time
	retry      = electionTTL/20 - electionTTL/20/4/2 // an end that was not our own is followed by a campaign
	midTerm    = 4 * time.Second                     // between the renewals at 3 s and 6 s
	refused    = electionRenew                       // at the first renewal
	sick       = electionRenew                       // at the second health check
	hung       = electionRenew + electionRenew       // when it has not returned for an interval
	healthy    = electionRenew - time.Second         // from the release, a second after the end, to the third check: longer than the penalty
	returns    = 2*electionRenew - time.Second       // from there to the return of the check that hung, which the third follows at once
	foreignTTL = time.Hour + 30*time.Minute          // of a foreign lease
)

var endings = []ending{
	{name: "stop", act: func(s *election) { s.halt(errBroken) }, at: midTerm, cause: "stopped", kept: true},
	{
		name: "resign", at: midTerm, cause: "resigned", kept: true, pause: resigned,
		act: func(s *election) { go func() { _ = s.Resign(context.Background()) }() },
	},
	{
		name: "work resigned", at: midTerm, cause: "resigned", kept: true, pause: resigned,
		work: func(s *election) LeadFunc {
			return s.after(midTerm, func() error { return fmt.Errorf("enough: %w", ErrResigned) })
		},
	},
	{
		name: "work error", at: midTerm, cause: "work failed", failed: true, kept: true, pause: penalty,
		work: func(s *election) LeadFunc { return s.after(midTerm, func() error { return errBroken }) },
	},
	{
		name: "work panic", at: midTerm, cause: "work failed", failed: true, kept: true, pause: penalty,
		work: func(s *election) LeadFunc { return s.after(midTerm, func() error { panic(errBroken) }) },
	},
	{
		name: "work Goexit", at: midTerm, cause: "work failed", failed: true, kept: true, pause: penalty,
		work: func(s *election) LeadFunc { return s.after(midTerm, func() error { runtime.Goexit(); return nil }) },
	},
	{
		name: "health failed", at: sick, cause: "work failed", failed: true, kept: true, pause: healthy,
		change: failing(func(_ context.Context, number int) error {
			if number == 2 {
				return errBroken
			}
			return nil
		}),
	},
	{
		name: "health panic", at: sick, cause: "work failed", failed: true, kept: true, pause: healthy,
		change: failing(func(_ context.Context, number int) error {
			if number == 2 {
				panic(errBroken)
			}
			return nil
		}),
	},
	{
		name: "health hung", at: hung, cause: "work failed", failed: true, kept: true, pause: returns,
		change: failing(func(ctx context.Context, number int) error {
			if number == 2 {
				<-ctx.Done()
				<-time.After(2 * electionRenew) // ignores its context
			}
			return nil
		}),
	},
	{
		name: "renewal refused", at: refused, cause: "lost", pause: retry,
		before: func(s *election) { s.at(time.Second); s.store.hold("other", foreignTTL) },
	},
	{
		name: "deadline passed", at: electionCancel, cause: "lost", pause: retry,
		before: func(s *election) {
			s.store.on(func(c storeCall) fate { return fate{err: map[string]error{"renew": errNetwork}[c.op]} })
		},
	},
}

func TestP8_OrderOfTheEnd(t *testing.T) {
	const drain = time.Second
	for _, end := range endings {
		t.Run(end.name, func(t *testing.T) {
			inElection(t, end.change, func(s *election) {
				work := []LeadFunc{s.honest(drain)}
				if end.work != nil {
					work = append(work, end.work(s))
				}
				var cause error
				s.run(append(work, func(ctx context.Context, _ Term) error {
					<-ctx.Done()
					if cause == nil {
						cause = context.Cause(ctx)
					}
					return ctx.Err()
				})...)
				if end.before != nil {
					end.before(s)
				}
				s.at(end.at - 1)
				require.True(s, s.IsLeader())
				s.at(end.at)
				if end.act != nil {
					end.act(s)
					s.pass(0)
				}
				require.False(s, s.IsLeader())
				require.Equal(s, ElectionDraining, s.Status().State)
				require.Empty(s, s.store.made("release"), "released before its work has returned")
				s.at(end.at + drain)

				require.Equal(s, []string{"begin leader=true", "cancelled leader=false valid=false", "drained", "release leader=false"}, s.noted())
				ended := s.told(EventTermEnded)
				require.Len(s, ended, 1)
				require.Equal(s, end.at, ended[0].Time.Sub(s.began))
				require.Equal(s, end.cause, causes(ended[0].Err))
				require.Equal(s, ended[0].Err, cause, "what the work heard")
				require.Equal(s, end.at == electionCancel, errors.Is(cause, ErrExpired), "a refusal is none")
				require.Equal(s, end.failed, len(s.told(EventWorkFailed)) == 1)
				if end.cause == "work failed" {
					var panicked *PanicError
					require.True(s, errors.Is(cause, errBroken) || errors.Is(cause, errHealth) || errors.As(cause, &panicked), cause)
				}
				require.Len(s, s.store.made("release"), 1)
				require.Equal(s, end.cause != "lost" || s.store.free(), len(s.told(EventLeaseReleased)) == 1)

				if end.pause == 0 {
					require.NoError(s, <-s.ended)
					return
				}
				s.at(end.at + drain + end.pause - 1)
				require.Len(s, s.store.made("acquire"), 1, "too early")
				require.Equal(s, ElectionFollowing, s.Status().State)
				s.at(end.at + drain + end.pause)
				require.Len(s, s.store.made("acquire"), 2)
				require.NotEqual(s, s.store.made("acquire")[0].Nonce, s.store.made("acquire")[1].Nonce)
			})
		})
	}
}

// The work drains for longer than a lease lasts, and nobody else gets it before the work has
// returned.
func TestP8_LeaseIsKeptWhileWorkDrains(t *testing.T) {
	for _, end := range endings {
		t.Run(end.name, func(t *testing.T) {
			change := func(o *Options) {
				if end.change != nil {
					end.change(o)
				}
				o.ShutdownTimeout = time.Minute
			}
			inElection(t, change, func(s *election) {
				const drain = 2*electionTTL + time.Second/3
				work := []LeadFunc{s.honest(drain)}
				if end.work != nil {
					work = append(work, end.work(s))
				}
				s.run(work...)
				if end.before != nil {
					end.before(s)
				}
				s.at(end.at)
				if end.act != nil {
					end.act(s)
				}
				before := len(s.store.made("renew"))
				s.at(end.at + drain - 1)
				renewed := s.store.made("renew")[before:]
				for _, c := range renewed {
					require.True(s, c.Draining, "it must not be reclaimed")
					require.False(s, c.leader)
				}
				require.Equal(s, end.kept, len(renewed) >= 5)
				require.Equal(s, end.kept, !s.store.free() && s.store.holder == "me")
				require.Len(s, s.store.made("acquire"), 1, "no new campaign while old work runs")
				s.at(end.at + drain)
				require.Len(s, s.store.made("release"), 1)
				require.Empty(s, s.told(EventWorkOverrun))
			})
		})
	}
}

// A renewal of a lease whose work drains is not sent past its deadline: the lease is not ours to
// keep any more.
func TestP8_DrainingLeaseIsNotKeptPastItsDeadline(t *testing.T) {
	inElection(t, func(o *Options) { o.ShutdownTimeout = time.Minute }, func(s *election) {
		s.run(s.honest(3 * electionTTL))
		s.at(midTerm)
		s.store.on(on("renew", fate{err: errNetwork}))
		s.halt(nil)
		s.at(4 * electionTTL)
		calls := s.store.made("renew")
		require.Less(s, calls[len(calls)-1].at, electionRenew+electionLife)
		require.NoError(s, <-s.ended)
	})
}

func TestP8_WorkThatIgnoresItsContext(t *testing.T) {
	inElection(t, nil, func(s *election) {
		release := make(chan struct{})
		stubborn := func(context.Context, Term) error { <-release; return nil }
		s.run(stubborn)
		s.at(midTerm)
		resigned := make(chan error, 1)
		go func() { resigned <- s.Resign(context.Background()) }()
		s.at(midTerm + electionDrain - 1)
		require.Empty(s, s.told(EventWorkOverrun))
		s.at(midTerm + electionDrain)
		overruns := s.told(EventWorkOverrun)
		require.Len(s, overruns, 1)
		require.ErrorIs(s, overruns[0].Err, ErrDrainTimeout)
		require.ErrorContains(s, overruns[0].Err, "TestP8_WorkThatIgnoresItsContext.func", "names the work")
		require.Len(s, resigned, 1)
		require.ErrorIs(s, <-resigned, ErrDrainTimeout)

		renewals := len(s.store.made("renew"))
		s.at(time.Minute)
		require.Len(s, s.store.made("renew"), renewals, "the lease is left to lapse")
		require.True(s, s.store.free())
		require.Len(s, s.store.made("acquire"), 1, "no new campaign while old work runs")
		require.Empty(s, s.store.made("release"))
		require.Equal(s, ElectionDraining, s.Status().State)
		require.ErrorIs(s, s.Resign(context.Background()), ErrNotLeader, "there is no term any more")

		close(release)
		s.pass(0)
		require.Len(s, s.store.made("release"), 1)
		s.pass(electionRetry + time.Second)
		require.Len(s, s.told(EventTermBegan), 2)
	})
}

func TestP8_WorkThatFailsWhileItDrains(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(func(ctx context.Context, _ Term) error { <-ctx.Done(); return errBroken })
		s.at(midTerm)
		require.NoError(s, s.Resign(context.Background()))
		require.ErrorIs(s, s.told(EventWorkFailed)[0].Err, errBroken)
		require.Equal(s, "resigned", causes(s.told(EventTermEnded)[0].Err))
	})
}

func TestDo(t *testing.T) {
	inElection(t, nil, func(s *election) {
		never := func(context.Context, Term) error { s.Error("called"); return nil }
		require.Equal(s, ErrNotLeader, s.Do(context.Background(), never), "before Run")
		s.store.hold("other", time.Second)
		s.run()
		err := s.Do(context.Background(), never)
		require.ErrorIs(s, err, ErrNotLeader)
		require.ErrorContains(s, err, `"other"`)
		s.at(midTerm)
		require.True(s, s.IsLeader())
		calls := len(s.store.made(""))

		type key struct{}
		ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), key{}, "value"))
		require.Equal(s, errBroken, s.Do(ctx, func(ctx context.Context, term Term) error {
			require.True(s, term.Valid())
			require.Equal(s, int64(2), term.Token)
			same, ok := TermFrom(ctx)
			require.True(s, ok)
			require.Equal(s, term, same)
			require.Equal(s, "value", ctx.Value(key{}))
			require.NoError(s, ctx.Err())
			cancel(errNetwork)
			<-ctx.Done()
			require.Equal(s, errNetwork, context.Cause(ctx), "it ends with the request")
			return errBroken
		}))
		require.Equal(s, errNetwork, s.Do(ctx, never))
		require.ErrorIs(s, s.Do(context.Background(), nil), ErrMisconfigured)
		require.PanicsWithValue(s, "oh", func() {
			_ = s.Do(context.Background(), func(context.Context, Term) error { panic("oh") })
		})
		require.True(s, s.IsLeader(), "a panic is the caller's")
		require.Len(s, s.store.made(""), calls, "it asks Redis nothing")
		require.NoError(s, s.Resign(context.Background()), "nothing is waited for that is over")
		require.Equal(s, midTerm, s.now())
		require.Equal(s, ErrNotLeader, s.Do(context.Background(), never))
	})
}

// TestDoBeginsInATermThatLeads: past the deadline nothing begins, whether the loop has noticed or
// not.
func TestDoBeginsInATermThatLeads(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run()
		s.at(midTerm)
		live := s.loop.current.Load()
		live.timer.Stop()
		live.lease.Store(&lease.Lease{}) // long ago
		require.Equal(s, ErrNotLeader, s.Do(context.Background(), func(context.Context, Term) error {
			s.Error("called")
			return nil
		}))
		require.Zero(s, live.sections.Load())
	})
}

// TestP8_ReleaseWaitsForDo: what a handler does on the leader alone is work of the term.
func TestP8_ReleaseWaitsForDo(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(*election)
		cause error
	}{
		"resign":      {func(s *election) { go func() { _ = s.Resign(context.Background()) }() }, ErrResigned},
		"stop":        {func(s *election) { s.halt(nil) }, ErrStopped},
		"failed work": {func(*election) {}, ErrWorkFailed},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				work := []LeadFunc{}
				if test.cause == ErrWorkFailed { //nolint:errorlint // exactly this
					work = append(work, s.after(midTerm, func() error { return errBroken }))
				}
				s.run(work...)
				answer := make(chan error, 1)
				go func() {
					answer <- s.Do(context.Background(), func(ctx context.Context, term Term) error {
						<-ctx.Done()
						assert.ErrorIs(s, context.Cause(ctx), test.cause) //nolint:testifylint // require would end another goroutine
						assert.False(s, term.Valid())
						assert.Equal(s, midTerm, s.now())
						time.Sleep(time.Second) // in virtual time, as all here
						return errBroken
					})
				}()
				s.at(midTerm - 1)
				require.True(s, s.IsLeader())
				s.at(midTerm)
				test.end(s)
				s.pass(time.Second - 1)
				require.False(s, s.IsLeader())
				require.ErrorIs(s, s.Do(context.Background(), nothingToDo), ErrNotLeader, "it drains")
				require.Equal(s, ElectionDraining, s.Status().State)
				require.Empty(s, s.store.made("release"))
				s.pass(1)
				require.Len(s, s.store.made("release"), 1)
				require.Equal(s, errBroken, <-answer)
			})
		})
	}
}

// nothingToDo is a function of Do that does nothing.
func nothingToDo(context.Context, Term) error { return nil }

// TestDoThatIgnoresItsContext is an overrun like that of leader work.
func TestDoThatIgnoresItsContext(t *testing.T) {
	inElection(t, nil, func(s *election) {
		release := make(chan struct{})
		s.run()
		ended := make(chan error, 1)
		go func() {
			ended <- s.Do(context.Background(), func(context.Context, Term) error { <-release; return nil })
		}()
		s.at(midTerm)
		err := s.stop()
		require.ErrorIs(s, err, ErrDrainTimeout)
		require.ErrorContains(s, err, "Do (1 running)")
		require.Len(s, s.told(EventWorkOverrun), 1)
		require.Empty(s, s.store.made("release"))
		close(release)
		require.NoError(s, <-ended)
	})
}

// TestResignInDo: with its own context it returns when the term has ended, as in leader work.
func TestResignInDo(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run()
		s.at(midTerm)
		require.NoError(s, s.Do(context.Background(), func(ctx context.Context, _ Term) error {
			if err := s.Resign(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrResigned) {
				return context.Cause(ctx)
			}
			return nil
		}))
		s.pass(0)
		require.Len(s, s.store.made("release"), 1)
	})
}

var errFlaky = errors.New("the broker hung up")

// The pauses double, and begin anew when the work has run for a while; a term is given up when the
// limit is passed.
func TestSupervise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var calls []time.Duration
		work := Supervise("consumer", func(ctx context.Context, _ Term) error {
			if calls = append(calls, time.Since(began)); len(calls) > 10 {
				return nil
			}
			if len(calls) == 4 {
				time.Sleep(2 * time.Second) // it did well for a while
			}
			if len(calls)%2 == 0 {
				panic(errFlaky)
			}
			return errFlaky
		}, RestartPolicy{Backoff: time.Second, MaxBackoff: 2 * time.Second, Restarts: 4, Window: time.Minute})
		err := work(t.Context(), Term{})
		require.ErrorIs(t, err, errFlaky)
		require.ErrorContains(t, err, "supervise: consumer failed 5 times within 1m0s")
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second}, calls)

		// What failed longer than a window ago does not count.
		calls = nil
		work = Supervise("consumer", func(context.Context, Term) error {
			calls = append(calls, time.Since(began))
			time.Sleep(25 * time.Second)
			if len(calls) == 20 {
				return nil
			}
			return errFlaky
		}, RestartPolicy{Restarts: 3, Window: time.Minute})
		require.NoError(t, work(t.Context(), Term{}), "nil: the work is done")
		require.Len(t, calls, 20)

		// The end of the term ends the pause, and what fails then is not run again.
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second/2, func() { cancel(ErrResigned) })
		work = Supervise("consumer", func(context.Context, Term) error { return errFlaky }, RestartPolicy{Backoff: time.Hour, MaxBackoff: time.Hour})
		require.ErrorIs(t, work(ctx, Term{}), ErrResigned)
		require.Equal(t, errFlaky, work(ctx, Term{}))

		runs := 0
		work = Supervise("consumer", func(context.Context, Term) error { runs++; return ErrResigned }, RestartPolicy{})
		require.ErrorIs(t, work(t.Context(), Term{}), ErrResigned)
		require.Equal(t, 1, runs)

		runs = 0
		work = Supervise("consumer", func(context.Context, Term) error {
			if runs++; runs == 500 {
				return nil
			}
			return errFlaky
		}, RestartPolicy{Backoff: -1, Restarts: -1})
		require.NoError(t, work(t.Context(), Term{}), "neither pause nor limit")
	})
	nothing := func(context.Context, Term) error { return nil }
	for _, bad := range []struct {
		work  LeadFunc
		field string
	}{
		{Supervise("", nothing, RestartPolicy{}), "name"},
		{Supervise("x", nil, RestartPolicy{}), "fn"},
		{Supervise("x", nothing, RestartPolicy{Restarts: 1001}), "policy.Restarts"},
		{Supervise("x", nothing, RestartPolicy{Backoff: time.Minute, MaxBackoff: time.Second}), "policy.MaxBackoff"},
		{Supervise("x", nothing, RestartPolicy{Backoff: 25 * time.Hour}), "policy.Backoff"},
	} {
		var refused *OptionError
		require.ErrorAs(t, bad.work(t.Context(), Term{}), &refused)
		require.Equal(t, bad.field, refused.Field)
	}
}

// Each piece of supervised work is restarted for itself, each restart is an event, and Verify asks
// Redis.
func TestSuperviseAndVerifyInATerm(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer rdb.Close()
	e, err := NewElector(rdb, ElectorOptions{Namespace: "shop", InstanceID: "a", Election: ElectionOptions{
		Safety: SafetyOptions{EmptyHistoryWait: -1, RestartGuard: -1},
	}})
	require.NoError(t, err)
	restarts := make(chan Event, 10)
	defer e.Observe(func(event Event) {
		if event.Type == EventWorkRestarted {
			restarts <- event
		}
	})()
	terms, failures, steady := make(chan Term), 0, 0
	ctx, stop := context.WithCancel(t.Context())
	end := make(chan error)
	go func() {
		end <- e.Run(ctx,
			Supervise("flaky", func(ctx context.Context, term Term) error {
				if failures++; failures < 3 {
					return fmt.Errorf("failure %d", failures)
				}
				terms <- term
				<-ctx.Done()
				return nil
			}, RestartPolicy{Backoff: time.Millisecond}),
			func(ctx context.Context, _ Term) error { steady++; <-ctx.Done(); return nil },
		)
	}()
	term := <-terms
	for i := range 2 {
		event := <-restarts
		require.Equal(t, []any{"flaky", i + 1, term.Token, fmt.Sprintf("failure %d", i+1)}, []any{event.Work, event.Attempt, event.Token, event.Err.Error()})
	}
	require.True(t, e.IsLeader(), "the term goes on")

	require.NoError(t, term.Verify(t.Context()))
	server.SetError("LOADING Redis is loading the dataset in memory")
	require.ErrorIs(t, term.Verify(t.Context()), ErrUnreachable)
	server.SetError("")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errFlaky)
	require.ErrorIs(t, term.Verify(canceled), errFlaky)
	require.NoError(t, rdb.Set(t.Context(), "shop:leader", "b", time.Minute).Err())
	require.ErrorIs(t, term.Verify(t.Context()), ErrLost)
	require.NoError(t, rdb.Del(t.Context(), "shop:leader").Err())
	require.ErrorIs(t, term.Verify(t.Context()), ErrLost)
	stop()
	require.NoError(t, <-end)
	require.Empty(t, restarts, "nothing was restarted that is not in the list")
	require.ErrorIs(t, term.Verify(t.Context()), ErrStopped)
	require.ErrorIs(t, Term{}.Verify(t.Context()), ErrNotLeader)
	require.Equal(t, 1, steady)
}
