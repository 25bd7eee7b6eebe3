package tenure

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// resign calls Resign beside the test and hands over what it returns.
func (s *election) resign(ctx context.Context) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- s.Resign(ctx) }()
	s.pass(0)
	return answer
}

func TestResignWaitsForTheHandOver(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		s.store.on(on("release", fate{back: 20 * time.Millisecond}))
		s.at(midTerm)
		first, second := s.resign(context.Background()), s.resign(context.Background())
		require.False(s, s.IsLeader())
		require.ErrorIs(s, <-second, ErrNotLeader, "there is no term any more")
		s.at(midTerm + time.Second)
		require.Empty(s, first)
		require.NoError(s, <-first)
		require.Equal(s, midTerm+time.Second+20*time.Millisecond, s.now())
		require.True(s, s.store.free())
		require.Empty(s, s.Status().Leader)
	})
}

func TestResignConcurrently(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		answers := make(chan error, 32)
		for range cap(answers) {
			go func() { answers <- s.Resign(context.Background()) }()
		}
		given := 0
		for range cap(answers) {
			if err := <-answers; err != nil {
				require.ErrorIs(s, err, ErrNotLeader)
			} else {
				given++
			}
		}
		require.Positive(s, given)
		require.Len(s, s.store.made("release"), 1)
		require.Len(s, s.told(EventEnded), 1)
	})
}

func TestResignInsideLeaderWorkReturnsAtOnce(t *testing.T) {
	for name, inside := range map[string]func(context.Context) context.Context{
		"its context": func(ctx context.Context) context.Context { return ctx },
		"derived":     func(ctx context.Context) context.Context { return context.WithValue(ctx, t, t) },
		"without end": context.WithoutCancel,
		"already done": func(ctx context.Context) context.Context {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, nil, func(s *election) {
				s.run(func(ctx context.Context, _ Term) error {
					require.NoError(s, s.Resign(inside(ctx)))
					require.NoError(s, s.Resign(inside(ctx)), "twice")
					<-ctx.Done()
					require.ErrorIs(s, context.Cause(ctx), ErrResigned)
					require.ErrorIs(s, s.Resign(ctx), ErrNotLeader)
					return nil
				})
				require.Zero(s, s.now())
				require.Len(s, s.told(EventReleased), 1)
				require.Equal(s, "penalty", s.Status().Waiting)
			})
		})
	}
}

func TestResignWithADoneContextStartsTheHandOver(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errBroken)
		require.ErrorIs(s, s.Resign(ctx), errBroken)
		s.pass(time.Second)
		require.Len(s, s.told(EventReleased), 1)
	})
}

func TestResignWithoutATerm(t *testing.T) {
	inElection(t, nil, func(s *election) {
		require.ErrorIs(s, s.Resign(context.Background()), ErrNotLeader, "before Run")
		s.store.hold("other", time.Hour)
		s.run()
		require.ErrorIs(s, s.Resign(context.Background()), ErrNotLeader, "following")
		_, leads := s.Term()
		require.False(s, leads)
		require.NoError(s, s.stop())
		require.ErrorIs(s, s.Resign(context.Background()), ErrStopped, "after Run")
	})
}

// Whatever ends the term that is being resigned, its Resign returns.
func TestResignReturnsWhateverEndsTheTerm(t *testing.T) {
	for _, end := range endings {
		t.Run(end.name, func(t *testing.T) {
			inElection(t, end.change, func(s *election) {
				work := []LeadFunc{s.honest(time.Second)}
				if end.work != nil {
					work = append(work, end.work(s))
				}
				s.run(work...)
				if end.before != nil {
					end.before(s)
				}
				s.at(end.at - 1)
				time.AfterFunc(1, func() { // at the very instant
					if err := s.Resign(context.Background()); err != nil && !errors.Is(err, ErrNotLeader) {
						s.Error(err)
					}
					s.note("resigned")
				})
				s.at(end.at)
				if end.act != nil {
					end.act(s)
				}
				s.at(end.at + 2*time.Second)
				require.Contains(s, s.noted(), "resigned")
			})
		})
	}
}

// The lease of an older term is still being given back when the next one ends.
func TestResignReturnsWhenTheNextTermEndsFirst(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.store.on(on("release", fate{err: errNetwork})) // done, and never heard of
		s.run(s.honest(0))
		first := s.resign(context.Background())
		s.pass(electionRetry + time.Second)
		require.Empty(s, first)
		require.True(s, s.IsLeader())
		second := s.resign(context.Background())
		require.NoError(s, <-first)
		require.Empty(s, second)
		require.NoError(s, <-second, "it lapses")
		require.LessOrEqual(s, s.now(), electionRetry+time.Second+electionTTL)
	})
}

// Run gives up on work that does not return: so does Resign.
func TestResignReturnsWhenRunDoes(t *testing.T) {
	inElection(t, nil, func(s *election) {
		release := make(chan struct{})
		defer close(release)
		s.run(func(context.Context, Term) error { <-release; return nil })
		answer := s.resign(context.Background())
		require.ErrorIs(s, s.stop(), ErrDrainTimeout)
		require.ErrorIs(s, <-answer, ErrDrainTimeout)
	})
}

// Leader work that calls Resign without its context waits for itself. So does whoever it waits for.
// It ends with the drain bound, when the lease is left to lapse, and not with Run; then the elector
// goes on.
func TestResignThatWaitsForItsCallerEnds(t *testing.T) {
	inElection(t, nil, func(s *election) {
		answer := make(chan error, 1)
		s.run(s.after(time.Second, func() error {
			answer <- s.Resign(context.Background())
			return nil
		}))
		s.at(time.Second + electionDrain - 1)
		require.Empty(s, answer)
		require.Equal(s, ElectionDraining, s.Status().State)
		s.at(time.Second + electionDrain)
		require.Len(s, answer, 1)
		err := <-answer
		require.ErrorIs(s, err, ErrDrainTimeout)
		require.ErrorContains(s, err, "leader work github.com/tenure-go/tenure.")
		require.Len(s, s.told(EventOverrun), 1)
		require.Equal(s, ElectionFollowing, s.Status().State)
		s.pass(electionTTL + electionRetry)
		require.Len(s, s.told(EventAcquired), 2)
	})
}

// A Resign that was called in an earlier term, and got no time to run since, does not hide one of
// now.
func TestResignOfAnOlderTermDoesNotHideOneOfNow(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		older, _ := s.Term()
		require.NoError(s, s.Resign(context.Background()))
		s.pass(electionRetry + time.Second)
		newer, leads := s.Term()
		require.True(s, leads)
		newer.live.resigning.Store(true)
		older.live.resigning.Store(true)
		s.loop.inputs.nudge()
		<-newer.live.released
		require.ErrorIs(s, context.Cause(newer.Context()), ErrResigned)
	})
}

// Two electors of one process may have role and instance ID in common, in two namespaces.
func TestResignByTheWorkOfAnotherElector(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(time.Second))
		onAnother := begin(context.Background(), Term{InstanceID: "me"}, *s.loop.current.Load().lease.Load(), func() {})
		defer onAnother.end(ErrStopped)
		answer := s.resign(onAnother.ctx)
		require.Empty(s, answer, "it waits for the hand-over")
		require.NoError(s, <-answer)
		require.Len(s, s.told(EventReleased), 1)
	})
}

// Work that goes on after its term has ended does not end the next one: not even that of an elector
// that leads again meanwhile.
func TestResignByTheWorkOfATermThatIsOver(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.run(s.honest(0))
		over, _ := s.Term()
		require.NoError(s, s.Resign(context.Background()))
		s.pass(electionRetry + time.Second)
		require.True(s, s.IsLeader(), "it leads again")
		require.ErrorIs(s, s.Resign(over.Context()), ErrNotLeader)
		s.pass(time.Second)
		require.True(s, s.IsLeader())
		require.Len(s, s.told(EventEnded), 1)
	})
}
