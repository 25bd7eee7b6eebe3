package cli

import (
	"bytes"
	"testing"
	"time"

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

// TestWhyNobodyLeads: what is said of a role without a leader is sentences.
func TestWhyNobodyLeads(t *testing.T) {
	view := &clusterView{}
	view.Redis.Uptime = 16
	require.Equal(t, "Last led by web-1, whose term lapsed: it has died or was cut off. Redis is 16s old: a leader may hold a lease from before its restart. "+
		"Election possible in 15s.", view.why(tenure.RoleStatus{
		Role: "export", Waiting: tenure.WaitHold, LeaseTTL: 30 * time.Second, Wait: 15 * time.Second,
		Last: tenure.TermRecord{Token: 7, InstanceID: "web-1", Reason: "lapsed"},
	}))
}
