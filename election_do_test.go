package tenure

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
)

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
						require.ErrorIs(s, context.Cause(ctx), test.cause)
						require.False(s, term.Valid())
						require.Equal(s, midTerm, s.now())
						time.Sleep(time.Second)
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
		require.Len(s, s.told(EventOverrun), 1)
		require.Empty(s, s.store.made("release"))
		close(release)
		require.NoError(s, <-ended)
	})
}

// TestResignInDo: with its own context it only starts the hand-over, as in leader work.
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
