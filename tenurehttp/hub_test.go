package tenurehttp

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestRingIsNotCopiedForEachChange: thousands of roles may change hands at one moment, and each of
// these changes drops the oldest one.
func TestRingIsNotCopiedForEachChange(t *testing.T) {
	var b hub
	b.init(nil)
	f := &follower{&b}
	b.follower = f
	copies := 0
	for i := range 5 * maxLog {
		var last *entry
		if n := len(b.ring); n > 0 {
			last = &b.ring[n-1]
		}
		f.note(false, tenure.Change{ID: fmt.Sprintf("%d-0", i+1), Type: tenure.ChangeElected})
		if n := len(b.ring); n > 1 && &b.ring[n-2] != last {
			copies++
		}
	}
	require.Len(t, b.ring, maxLog)
	require.Equal(t, 4*maxLog, b.first)
	require.Equal(t, fmt.Sprintf("%d-0", 5*maxLog), b.ring[maxLog-1].id())
	require.Less(t, copies, 50)
	require.LessOrEqual(t, cap(b.ring), 2*maxLog)
}
