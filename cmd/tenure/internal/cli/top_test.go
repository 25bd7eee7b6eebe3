package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/cmd/tenure/internal/settings"
)

// TestTopSaysInItsFrameThatSomethingIsMissing: what is written beside a frame moves the terminal,
// with each frame anew.
func TestTopSaysInItsFrameThatSomethingIsMissing(t *testing.T) {
	from := &canned{err: fmt.Errorf("%w: more than 1000 tasks", tenure.ErrTruncated)}
	from.cluster.Tasks = make([]tenure.TaskStatus, 1000)
	var frame, beside bytes.Buffer
	top := &top{app: &app{err: &beside, source: from, settings: &settings.Settings{}}}
	top.look(t.Context())
	top.frame(&frame, 24)
	require.Empty(t, beside.String())
	require.True(t, strings.HasPrefix(frame.String(), "the listing is not whole: listing truncated: more than 1000 tasks\n\n"), frame.String())
	require.LessOrEqual(t, strings.Count(frame.String(), "\n"), 24)
	require.Contains(t, frame.String(), "… and ")
}
