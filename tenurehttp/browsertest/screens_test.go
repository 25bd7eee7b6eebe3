package browsertest

import (
	"path/filepath"
	"testing"
)

// TestScreens writes the pictures of the documentation.
func TestScreens(t *testing.T) {
	if *screens == "" {
		t.Skip("-screens names no folder")
	}
	s := newScene(t).day()
	s.caller, s.actions = "alice", []string{"drain", "undrain", "resign", "transfer", "pause", "resume", "trigger", "cancel"}
	dark := desk
	dark.dark = true
	for _, shot := range []struct {
		name, query string
		view        view
		full        bool
	}{
		{"page-light", "", desk, true}, {"page-dark", "", dark, true}, {"page-phone", "", phone, true},
		{"page-task", "#task:rates", desk, false},
	} {
		p := open(t, s.url+shot.query, shot.view)
		p.says("#roles", "web-2 leads")
		p.until("Number(document.documentElement.dataset.drawn) > 4")
		p.picture(filepath.Join(*screens, shot.name+".png"), shot.full)
		p.clean()
	}
}
