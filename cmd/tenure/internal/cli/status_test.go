package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestFrameIsWhole: all that a frame has is written to it, and nothing beside it, where it would
// move the terminal.
func TestFrameIsWhole(t *testing.T) {
	var frame, beside bytes.Buffer
	top := &top{app: &app{out: &beside}, last: &clusterView{Namespace: "shop", Roles: []tenure.RoleStatus{{Role: "reports", Led: true}}}}
	top.frame(&frame, 24)
	require.Empty(t, beside.String())
	require.Regexp(t, `(?m)^reports .*\n\ninstances 0 active`, frame.String())
}
