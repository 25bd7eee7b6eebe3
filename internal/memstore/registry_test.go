package memstore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestHeartbeats: the log has each change of the status. A heartbeat that changes nothing reads no
// record: a bubble goes through days of them.
func TestHeartbeats(t *testing.T) {
	s := NewRegistry()
	heartbeat := func(status string) store.Heartbeat {
		return store.Heartbeat{ID: "a", Head: `{"instance_id":"a","started_at":`, Rest: `,"status":"` + status + `"}`}
	}
	beat := func(status string) {
		_, err := s.Heartbeat(t.Context(), heartbeat(status))
		require.NoError(t, err)
	}
	for _, status := range []string{"joining", "active", "active", "draining", "active"} {
		beat(status)
	}
	_, err := s.Remove(t.Context(), "a", "")
	require.NoError(t, err)
	beat("active")
	var events []string
	for _, e := range s.log {
		events = append(events, e.Event)
	}
	require.Equal(t, []string{"joined", "active", "draining", "active", "left", "joined", "active"}, events)

	unchanged := heartbeat("active")
	allocations := testing.AllocsPerRun(100, func() { _, _ = s.Heartbeat(t.Context(), unchanged) })
	require.LessOrEqual(t, allocations, 5.0)
}
