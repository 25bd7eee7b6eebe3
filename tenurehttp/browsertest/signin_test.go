package browsertest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// guarded serves the page of a member, with guarded reads, and notes what its requests say.
type guarded struct {
	url string

	mu   sync.Mutex
	said []string // addresses and Referers
}

func guard(t *testing.T, m *member, authorize tenurehttp.Authorizer) *guarded {
	t.Helper()
	handler, err := tenurehttp.New(m.Coordinator, tenurehttp.Options{Authorize: authorize, GuardReads: true})
	require.NoError(t, err)
	g := &guarded{}
	page := http.StripPrefix("/tenure", handler)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.said = append(g.said, r.RequestURI, r.Referer())
		g.mu.Unlock()
		page.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { handler.Close(); site.CloseClientConnections(); site.Close() })
	g.url = site.URL + "/tenure/"
	return g
}

// silent expects that no address had a secret in it.
func (g *guarded) silent(p *tab, secrets ...string) {
	p.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	said := strings.Join(append(g.said, eval[string](p, "location.href + ' ' + document.cookie + ' ' + JSON.stringify({ ...localStorage })")), "\n")
	for _, secret := range secrets {
		require.NotContains(p, said, secret)
	}
}

// lines are what an element shows, with a bar between two lines.
func (p *tab) lines(selector string) string {
	p.Helper()
	return strings.Join(strings.FieldsFunc(eval[string](p, fmt.Sprintf("document.querySelector(%q).innerText", selector)), func(r rune) bool { return r == '\n' || r == '\t' }), "|")
}

// fill types into a field of the dialog.
func (p *tab) fill(selector, text string) {
	p.Helper()
	eval[bool](p, "document.querySelector('"+selector+"').value = ''; true")
	p.run(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// gone expects that nothing of the cluster can be seen, and that nothing is kept.
func (p *tab) gone() {
	p.Helper()
	p.says("#lost", "Sign in to see this cluster.")
	p.until("document.getElementById('main').hidden")
	require.NotContains(p, eval[string](p, "document.body.innerHTML"), "web-a")
	require.Zero(p, eval[int](p, "sessionStorage.length"))
	require.NotContains(p, eval[string](p, "document.title + document.querySelector('header').innerText"), "shop")
}

// TestSignIn: the page asks, says what is refused and why, works after it, keeps credentials for
// its tab only and out of every address, and forgets them and what they let see.
func TestSignIn(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	m := startMember(t, redistest.Start(t), "web-a")
	require.Eventually(t, m.IsLeader, patience, pollEach)

	t.Run("token", func(t *testing.T) {
		t.Parallel()
		tokens := tenurehttp.BearerToken(map[string]string{"alice": "token-of-alice", "grafana": "token-of-grafana"})
		g := guard(t, m, func(r *http.Request, action tenurehttp.Action) (string, error) {
			caller, err := tokens(r, action)
			if err == nil && caller == "grafana" && action != tenurehttp.ActionRead {
				err = errors.New("it only reads")
			}
			return caller, err
		})
		p := open(t, g.url+"#task:pulse", desk)
		p.says("#lost", "Sign in to see this cluster.")
		p.says("#ask", "Your token")
		require.False(t, eval[bool](p, "Boolean(document.getElementById('ask-name'))"))
		require.Equal(t, "Sign in|Your token|It is kept while this tab is open, and stands in no address.|Sign in|Leave it", p.lines("#ask"))
		p.accessible("the sign-in")
		p.fill("#ask-field", "wrong")
		p.click("#ask [type=submit]")
		p.says("#ask .outcome", "Refused: credentials are missing or wrong.")
		require.True(t, eval[bool](p, "document.getElementById('main').hidden"))
		p.fill("#ask-field", "token-of-alice")
		p.click("#ask [type=submit]")
		p.says("#caller", "as alice")
		p.says("#roles", "web-a leads")
		p.says("#drawer", "every second")
		p.until("!document.getElementById('ask').open && document.getElementById('lost').hidden")
		eval[bool](p, "document.querySelector('[data-action=trigger]').click(); true") // the drawer of a task that runs each second is drawn each second
		p.says("#ask", "web-a runs it once, between its slots")
		p.fill("#ask-field", "a b\nc")
		p.click("#ask [type=submit]")
		p.says("#ask .outcome", "Asked for by alice.")
		p.click("#ask .plain")
		p.says("#drawer .runs", "triggered")
		p.run(chromedp.Reload())
		p.says("#caller", "as alice")
		g.silent(p, "token-of")

		p.click("#drawer .close")
		p.click("#signout")
		p.gone()
		require.True(t, eval[bool](p, "document.getElementById('signout').hidden"))
		p.says("#ask", "Your token")
		p.click("#ask .plain")
		p.until("!document.getElementById('ask').open")
		p.click("#signin")
		p.says("#ask", "Your token")
		p.fill("#ask-field", "token-of-grafana")
		p.click("#ask [type=submit]")
		p.says("#caller", "as grafana")
		p.says("#roles", "web-a leads")
		require.False(t, eval[bool](p, "Boolean(document.querySelector('[data-action]'))"), "who only reads is offered nothing else")
		g.silent(p, "token-of")
		p.clean()
	})

	t.Run("password", func(t *testing.T) {
		t.Parallel()
		g := guard(t, m, tenurehttp.BasicAuth(map[string]string{"alice": "pässword of alice"}))
		p := open(t, g.url, desk)
		p.says("#ask", "Your password")
		p.fill("#ask-name", "alice")
		p.fill("#ask-field", "wrong")
		p.click("#ask [type=submit]")
		p.says("#ask .outcome", "Refused: credentials are missing or wrong.")
		p.fill("#ask-field", "pässword of alice")
		p.click("#ask [type=submit]")
		p.says("#caller", "as alice")
		p.says("#roles", "web-a leads")
		g.silent(p, "password", "p%C3", base64.StdEncoding.EncodeToString([]byte("alice:pässword of alice")))
		eval[bool](p, "location.hash = '#instance:web-a'; true")
		p.says("#drawer .buttons", "Drain")
		p.click("#drawer .close")
		p.click("#signout")
		p.gone()
		p.run(chromedp.Reload())
		p.gone()
		p.clean()
	})

	t.Run("may not read", func(t *testing.T) {
		t.Parallel()
		g := guard(t, m, func(*http.Request, tenurehttp.Action) (string, error) { return "", errors.New("not from here") })
		p := open(t, g.url, desk)
		p.says("#lost", "The server refuses to show you this cluster: you may not do this.")
		require.True(t, eval[bool](p, "document.getElementById('main').hidden && !document.getElementById('ask').open"))
		p.clean()
	})
}
