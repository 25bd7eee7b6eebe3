package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestProxyThatReplacesHost: who wants to sign in is told why commands of this page are refused,
// and what somebody has to change.
func TestProxyThatReplacesHost(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	m := startMember(t, redistest.Start(t), "web-a")
	handler, err := tenurehttp.New(m.Coordinator, tenurehttp.Options{Authorize: tenurehttp.BearerToken(map[string]string{"alice": "secret"})})
	require.NoError(t, err)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Sec-Fetch-Site") // which browsers send over TLS only, and to this machine
		r.Host = "backend:8080"
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { handler.Close(); site.CloseClientConnections(); site.Close() })
	p := open(t, site.URL, desk)
	p.click("#signin")
	p.says("#ask", "Nobody can act from this page")
	p.says("#ask", fmt.Sprintf("the page is of %q, and what it asks is \"backend:8080\" (fix: if a proxy before this server replaces Host", site.URL))
	p.clean()
}

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
