package tenure_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

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
