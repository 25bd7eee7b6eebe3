package browsertest

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestTabThatNobodyHasLookedAt: one that was opened in the background holds no stream: a browser
// has six connections to a server without TLS, and seven such tabs would leave none for the one
// that somebody looks at.
func TestTabThatNobodyHasLookedAt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	m := startMember(t, redistest.Start(t), "web-a")
	require.Eventually(t, m.IsLeader, patience, pollEach)
	handler, err := tenurehttp.New(m.Coordinator, tenurehttp.Options{})
	require.NoError(t, err)
	var streams, snapshots atomic.Int32
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			streams.Add(1)
		case strings.HasSuffix(r.URL.Path, "/snapshot"):
			snapshots.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { handler.Close(); site.CloseClientConnections(); site.Close() })
	p := open(t, site.URL+"/livez", desk)
	const hidden = "Object.defineProperty(Document.prototype, 'hidden', { configurable: true, get: () => !window.seen })"
	_, err = chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: hidden})
	require.NoError(t, err)
	p.run(chromedp.Navigate(site.URL))
	p.says("#roles", "web-a leads")
	eval[bool](p, "new Promise((done) => setTimeout(done, 3000, true))")
	require.Zero(t, streams.Load())
	require.EqualValues(t, 1, snapshots.Load(), "for its title")
	eval[bool](p, "window.seen = true; document.dispatchEvent(new Event('visibilitychange'))")
	require.Eventually(t, func() bool { return streams.Load() == 1 && snapshots.Load() > 2 }, patience, pollEach)
	p.clean()
}
