package memstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// TestForgetOfATaskThatHasMoved: the leader of another role has taken the record over since it was
// read.
func TestForgetOfATaskThatHasMoved(t *testing.T) {
	s := NewSharedMemory(func() lease.Reading { return lease.Reading{Wall: time.Hour} })
	s.terms.begin(nil, "a", "b", 6, 1)
	forget := func(key string) string {
		reply, err := s.Tasks.Forget(t.Context(), "t", store.TaskForget{Lease: key, Led: time.Minute})
		require.NoError(t, err)
		return reply.Verdict
	}
	_, err := s.Tasks.Open(t.Context(), "t", store.TaskOpen{Token: 3, Lease: "other"})
	require.NoError(t, err)
	require.Equal(t, store.TaskKnown, forget("a"))
	_, err = s.Tasks.Open(t.Context(), "t", store.TaskOpen{Token: 3, Lease: "a"})
	require.NoError(t, err)
	require.Equal(t, store.TaskOK, forget("a"))
}

// TestForgetOfARoleThatIsGone: its tasks and its terms go if nobody leads it.
func TestForgetOfARoleThatIsGone(t *testing.T) {
	ctx := t.Context()
	m := NewSharedMemory(func() lease.Reading { return lease.Reading{Wall: time.Hour} })
	leases := NewLeases(true, m, new(Link))
	role := leases.Lease(store.Role{Name: "export", Key: "k", Holder: "a"})
	won, err := role.Acquire(ctx, lease.Request{Kind: lease.Acquire, Nonce: "n"})
	require.NoError(t, err)
	_, err = m.Tasks.Open(ctx, "t", store.TaskOpen{Token: won.Token, Lease: "k"})
	require.NoError(t, err)
	forget := func(token int64) (task string, terms lease.Verdict, left int) {
		reply, err := m.Tasks.Forget(ctx, "t", store.TaskForget{Lease: "k", Gone: true})
		require.NoError(t, err)
		gone, err := role.ForgetTerms(ctx, token)
		require.NoError(t, err)
		kept, err := role.Terms(ctx, 10)
		require.NoError(t, err)
		return reply.Verdict, gone.Verdict, len(kept)
	}
	task, terms, left := forget(won.Token)
	require.Equal(t, []any{store.TaskKnown, lease.Held, 1}, []any{task, terms, left})
	_, err = role.Release(ctx, lease.Request{Kind: lease.Release, Nonce: "n"})
	require.NoError(t, err)
	task, terms, left = forget(won.Token - 1)
	require.Equal(t, []any{store.TaskOK, lease.Stale, 2}, []any{task, terms, left})
	task, terms, left = forget(won.Token)
	require.Equal(t, []any{store.TaskAbsent, lease.Done, 0}, []any{task, terms, left})
}

// TestHistoryThatHasExpired does not come back with the next run.
func TestHistoryThatHasExpired(t *testing.T) {
	now := time.Hour
	s, ctx := NewTasks(func() lease.Reading { return lease.Reading{Mono: now, Wall: now} }), t.Context()
	_, err := s.Open(ctx, "t", store.TaskOpen{Token: 1})
	require.NoError(t, err)
	run := func(id string) (kept []string) {
		r, err := s.Record(ctx, "t")
		require.NoError(t, err)
		c := store.TaskClaim{Token: 1, Run: id, Kind: store.ClaimExtra, Expect: strconv.FormatInt(r.Record.Finished, 10), Attempt: 1}
		claimed, err := s.Claim(ctx, "t", c)
		require.NoError(t, err)
		require.Equal(t, store.TaskClaimed, claimed.Verdict)
		_, err = s.Finish(ctx, "t", store.TaskFinish{Token: 1, Run: id, Status: store.RunSucceeded, KeepFor: time.Minute})
		require.NoError(t, err)
		runs, err := s.Runs(ctx, "t", 10)
		require.NoError(t, err)
		for _, r := range runs {
			kept = append(kept, r.Run)
		}
		return kept
	}
	require.Equal(t, []string{"1"}, run("1"))
	now += 59 * time.Second
	require.Equal(t, []string{"2", "1"}, run("2"))
	now += time.Minute
	require.Equal(t, []string{"3"}, run("3"))
}
