package tenure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

var errFlaky = errors.New("the broker hung up")

// The pauses double, and begin anew when the work has run for a while; a term is given up when the
// limit is passed.
func TestSupervise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var calls []time.Duration
		work := tenure.Supervise("consumer", func(ctx context.Context, _ tenure.Term) error {
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
		}, tenure.RestartPolicy{Backoff: time.Second, MaxBackoff: 2 * time.Second, Restarts: 4, Window: time.Minute})
		err := work(t.Context(), tenure.Term{})
		require.ErrorIs(t, err, errFlaky)
		require.ErrorContains(t, err, "supervise: consumer failed 5 times within 1m0s")
		require.Equal(t, []time.Duration{0, time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second}, calls)

		// What failed longer than a window ago does not count.
		calls = nil
		work = tenure.Supervise("consumer", func(context.Context, tenure.Term) error {
			calls = append(calls, time.Since(began))
			time.Sleep(25 * time.Second)
			if len(calls) == 20 {
				return nil
			}
			return errFlaky
		}, tenure.RestartPolicy{Restarts: 3, Window: time.Minute})
		require.NoError(t, work(t.Context(), tenure.Term{}), "nil: the work is done")
		require.Len(t, calls, 20)

		// The end of the term ends the pause, and what fails then is not run again.
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second/2, func() { cancel(tenure.ErrResigned) })
		work = tenure.Supervise("consumer", func(context.Context, tenure.Term) error { return errFlaky }, tenure.RestartPolicy{Backoff: time.Hour, MaxBackoff: time.Hour})
		require.ErrorIs(t, work(ctx, tenure.Term{}), tenure.ErrResigned)
		require.Equal(t, errFlaky, work(ctx, tenure.Term{}))

		runs := 0
		work = tenure.Supervise("consumer", func(context.Context, tenure.Term) error { runs++; return tenure.ErrResigned }, tenure.RestartPolicy{})
		require.ErrorIs(t, work(t.Context(), tenure.Term{}), tenure.ErrResigned)
		require.Equal(t, 1, runs)

		runs = 0
		work = tenure.Supervise("consumer", func(context.Context, tenure.Term) error {
			if runs++; runs == 500 {
				return nil
			}
			return errFlaky
		}, tenure.RestartPolicy{Backoff: -1, Restarts: -1})
		require.NoError(t, work(t.Context(), tenure.Term{}), "neither pause nor limit")
	})
	for _, bad := range []tenure.LeadFunc{
		tenure.Supervise("", func(context.Context, tenure.Term) error { return nil }, tenure.RestartPolicy{}),
		tenure.Supervise("x", nil, tenure.RestartPolicy{}),
		tenure.Supervise("x", func(context.Context, tenure.Term) error { return nil }, tenure.RestartPolicy{Restarts: 1001}),
		tenure.Supervise("x", func(context.Context, tenure.Term) error { return nil }, tenure.RestartPolicy{Backoff: time.Minute, MaxBackoff: time.Second}),
	} {
		var refused *tenure.OptionError
		require.ErrorAs(t, bad(t.Context(), tenure.Term{}), &refused)
	}
}

// Each piece of supervised work is restarted for itself, each restart is an event, and Verify asks
// Redis.
func TestSuperviseAndVerifyInATerm(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer rdb.Close()
	e, err := tenure.NewElector(rdb, tenure.ElectorOptions{Namespace: "shop", InstanceID: "a", Election: tenure.ElectionOptions{
		Safety: tenure.SafetyOptions{EmptyHistoryWait: -1, RestartGuard: -1},
	}})
	require.NoError(t, err)
	restarts := make(chan tenure.Event, 10)
	defer e.Observe(func(event tenure.Event) {
		if event.Type == tenure.EventWorkRestarted {
			restarts <- event
		}
	})()
	terms, failures, steady := make(chan tenure.Term), 0, 0
	ctx, stop := context.WithCancel(t.Context())
	end := make(chan error)
	go func() {
		end <- e.Run(ctx,
			tenure.Supervise("flaky", func(ctx context.Context, term tenure.Term) error {
				if failures++; failures < 3 {
					return fmt.Errorf("failure %d", failures)
				}
				terms <- term
				<-ctx.Done()
				return nil
			}, tenure.RestartPolicy{Backoff: time.Millisecond}),
			func(ctx context.Context, _ tenure.Term) error { steady++; <-ctx.Done(); return nil },
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
	require.ErrorIs(t, term.Verify(t.Context()), tenure.ErrUnreachable)
	server.SetError("")
	canceled, cancel := context.WithCancelCause(t.Context())
	cancel(errFlaky)
	require.ErrorIs(t, term.Verify(canceled), errFlaky)
	require.NoError(t, rdb.Set(t.Context(), "shop:leader", "b", time.Minute).Err())
	require.ErrorIs(t, term.Verify(t.Context()), tenure.ErrLost)
	require.NoError(t, rdb.Del(t.Context(), "shop:leader").Err())
	require.ErrorIs(t, term.Verify(t.Context()), tenure.ErrLost)
	stop()
	require.NoError(t, <-end)
	require.Empty(t, restarts, "nothing was restarted that is not in the list")
	require.ErrorIs(t, term.Verify(t.Context()), tenure.ErrStopped)
	require.ErrorIs(t, tenure.Term{}.Verify(t.Context()), tenure.ErrNotLeader)
	require.Equal(t, 1, steady)
}

func TestOnce(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer rdb.Close()
	options := func(id string) tenure.ElectorOptions {
		return tenure.ElectorOptions{Namespace: "shop", InstanceID: id, Election: tenure.ElectionOptions{
			Role: "migration", LeaseTTL: 30 * time.Second, Safety: tenure.SafetyOptions{EmptyHistoryWait: -1, RestartGuard: -1},
		}}
	}
	ctx := t.Context()
	migrated := errors.New("the table is there already")
	runs := 0
	info, err := tenure.Once(ctx, rdb, options("a"), func(ctx context.Context, term tenure.Term) error {
		require.NoError(t, ctx.Err())
		require.True(t, term.Valid())
		require.NoError(t, term.Verify(ctx))
		runs++
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		other, err := tenure.Once(bounded, rdb, options("b"), func(context.Context, tenure.Term) error {
			runs++
			return nil
		})
		require.ErrorIs(t, err, tenure.ErrNotLeader)
		require.Equal(t, []any{"migration", "a", term.Token}, []any{other.Role, other.InstanceID, other.Token})
		return migrated
	})
	require.Equal(t, migrated, err, "the error of the function as it is")
	require.Equal(t, []any{"migration", "a", 1}, []any{info.Role, info.InstanceID, runs})

	began := time.Now()
	_, err = tenure.Once(ctx, rdb, options("b"), func(context.Context, tenure.Term) error {
		runs++
		panic("no")
	})
	var panicked *tenure.PanicError
	require.ErrorAs(t, err, &panicked)
	require.Equal(t, 2, runs, "once, though it failed")
	require.Less(t, time.Since(began), 20*time.Second, "the lease of a was released")

	over, cancel := context.WithCancelCause(ctx)
	cancel(migrated)
	_, err = tenure.Once(over, rdb, options("b"), func(context.Context, tenure.Term) error { panic("not called") })
	require.ErrorIs(t, err, migrated)
	_, err = tenure.Once(ctx, rdb, options("b"), nil)
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
	_, err = tenure.Once(ctx, rdb, tenure.ElectorOptions{}, func(context.Context, tenure.Term) error { return nil })
	var refused *tenure.OptionError
	require.ErrorAs(t, err, &refused)
}

// While nobody leads, Once waits.
func TestOnceWaits(t *testing.T) {
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	server.SetError("LOADING Redis is loading the dataset in memory")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("patience is over"))
	defer cancel()
	_, err := tenure.Once(ctx, rdb, tenure.ElectorOptions{Namespace: "shop"}, func(context.Context, tenure.Term) error { panic("not called") })
	require.EqualError(t, err, "patience is over")
}
