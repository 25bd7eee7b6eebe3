package memstore

import (
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
