package demo

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFirstKeySteers: from the first key that does something on the demo does nothing by itself.
func TestFirstKeySteers(t *testing.T) {
	for _, key := range []byte("123r") {
		s := &show{out: io.Discard, members: map[string]*member{}}
		require.True(t, s.press(t.Context(), key))
		require.True(t, s.steered, "%c", key)
	}
	s := &show{out: io.Discard}
	require.True(t, s.press(t.Context(), 'x'))
	require.False(t, s.steered, "help")
}
