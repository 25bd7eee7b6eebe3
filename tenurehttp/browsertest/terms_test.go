package browsertest

import (
	"strconv"
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

// TestTermsThatPassedUnseen: while nobody has looked, a role had more terms than a snapshot has.
// None that was on before is drawn up to the first one that the snapshot has.
func TestTermsThatPassedUnseen(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lead("", 30, 20, "web-1 5 0", "web-2 4 0")
	p := open(t, s.url, desk)
	p.says("#roles", "web-2 leads")
	p.says(".lane", "web-2")
	s.change(func() {
		before := s.roles[0]["terms"].([]tenure.TermRecord)
		before[0].Ended, before[0].Reason = before[0].Began.Add(time.Minute), "stopped"
		began := time.Now().Add(-time.Minute)
		for i := range 60 { // newest first
			term := tenure.TermRecord{Token: 1895295029000 - int64(i), InstanceID: "web-3", Began: began}
			if i > 0 {
				term.Ended, term.Reason = began.Add(time.Minute), "resigned"
			}
			s.history = append(s.history, term)
			began = began.Add(-time.Minute)
		}
		s.history = append(s.history, before...)
		last := s.history[0]
		s.roles[0]["terms"] = s.history[:20]
		s.roles[0]["leader"] = tenure.LeaderInfo{InstanceID: last.InstanceID, Token: last.Token, Since: last.Began, Remaining: 20 * time.Second}
	})
	p.says("#roles", "web-3 leads")
	p.until("document.querySelectorAll('.lane .term').length === " + strconv.Itoa(len(s.history)))
	require.Contains(t, eval[string](p, "document.querySelector('.lane .term:nth-child(2) a').ariaLabel"), "web-2 led default")
	require.Contains(t, eval[string](p, "document.querySelector('.lane .term:nth-child(2) a').ariaLabel"), "(1 m)")
	p.clean()
}
