package browsertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestRoleThatNobodyHasLedForDays: its last term can be looked at, and the role forgotten, however
// long that is ago.
func TestRoleThatNobodyHasLedForDays(t *testing.T) {
	t.Parallel()
	s, ago := newScene(t), time.Now().Add(-80*time.Hour)
	s.actions, s.caller = []string{"forget"}, "alice"
	s.roles = append(s.roles, map[string]any{
		"role": "export", "leader": nil, "election": nil, "status": map[string]any{"role": "export", "led": false},
		"terms": []tenure.TermRecord{{Role: "export", Token: 4711, InstanceID: "web-1", Began: ago.Add(-time.Hour), Ended: ago, Reason: "stopped"}},
	})
	p := open(t, s.url, desk)
	p.says("#roles", "Nobody leads export")
	p.until("document.querySelectorAll('.lane .gap').length === 1")
	p.click("#roles .title")
	p.says("#drawer", "its process stopped")
	p.click("#drawer [data-action=forget]")
	p.click("#ask [type=submit]")
	p.says("#ask .outcome", "Done")
	require.Equal(t, []string{`forget {"role":"export"}`}, s.commands())
	p.clean()
}
