package tenure

import (
	"context"
	"io/fs"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
				require.Equal(s, "penalty", s.Status().Waiting)
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
		require.ErrorIs(s, s.told(EventEnded)[0].Err, ErrWorkFailed)
		require.Len(s, s.told(EventReleased), 1, "the loop goes on")
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
				require.Len(s, s.told(EventAcquired), 1)
				require.Empty(s, s.told(EventEnded))
				require.Empty(s, s.told(EventWorkFailed))
				require.NoError(s, s.Resign(context.Background()), "what is done is not waited for")
				s.at(time.Hour + time.Minute)
				require.True(s, s.IsLeader(), "and begins anew in the next term")
				require.Len(s, s.told(EventAcquired), 2)
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
		require.ErrorIs(s, s.told(EventEnded)[0].Err, ErrStopped)
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
