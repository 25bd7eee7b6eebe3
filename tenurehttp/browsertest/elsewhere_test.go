package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSessionOfAProxyThatEnds: if what stands before the server sends the page to sign in, or
// answers with a form for that, the page says so, and not that the connection is lost. It goes on
// once that is over.
func TestSessionOfAProxyThatEnds(t *testing.T) {
	t.Parallel()
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<!doctype html>who are you?") }))
	t.Cleanup(login.Close)
	for _, tt := range []struct {
		name   string
		answer http.HandlerFunc
	}{
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, login.URL+"/login", http.StatusFound)
		}},
		{"form", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprint(w, "<!doctype html>who are you?")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t).day()
			p := open(t, s.url, desk)
			p.says("#live", "live")
			s.change(func() { s.before = tt.answer })
			p.says("#lost", "perhaps you must sign in there again")
			p.says("#lost", "Last seen")
			p.says("#live", "last seen")
			require.NotContains(t, p.text("#lost"), "connection")
			s.change(func() { s.down = true })
			p.says("#lost", "The connection to the server of this page is lost.")
			s.change(func() { s.down, s.before = false, nil })
			p.says("#live", "live")
			require.True(t, eval[bool](p, "document.getElementById('lost').hidden"))
		})
	}
}
