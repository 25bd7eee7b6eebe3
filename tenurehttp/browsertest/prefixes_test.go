package browsertest

import (
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

// TestTwoPrefixes: who goes from the page of one service to that of another behind the same host
// sends it no credentials of the first one, and is still signed in there on the way back.
func TestTwoPrefixes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	m := startMember(t, redistest.Start(t), "web-a")
	require.Eventually(t, m.IsLeader, patience, pollEach)
	mux := http.NewServeMux()
	var mu sync.Mutex
	sent := map[string]bool{}
	for _, service := range []string{"shop", "mail"} {
		handler, err := tenurehttp.New(m.Coordinator, tenurehttp.Options{Authorize: tenurehttp.BearerToken(map[string]string{"operator of " + service: "token-of-" + service}), GuardReads: true})
		require.NoError(t, err)
		t.Cleanup(handler.Close)
		cut := http.StripPrefix("/"+service, handler)
		mux.HandleFunc("/"+service+"/", func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			sent[service+" "+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] = true
			mu.Unlock()
			cut.ServeHTTP(w, r)
		})
	}
	site := httptest.NewServer(mux)
	t.Cleanup(func() { site.CloseClientConnections(); site.Close() })
	p := open(t, site.URL+"/shop/", desk)
	enter := func(service string) {
		p.says("#ask", "Your token")
		p.fill("#ask-field", "token-of-"+service)
		p.click("#ask [type=submit]")
		p.says("#caller", "as operator of "+service)
	}
	enter("shop")
	p.run(chromedp.Navigate(site.URL + "/mail/"))
	p.says("#lost", "Sign in to see this cluster.")
	enter("mail")
	p.run(chromedp.Navigate(site.URL + "/shop/"))
	p.says("#caller", "as operator of shop")
	mu.Lock()
	defer mu.Unlock()
	require.NotContains(t, sent, "mail token-of-shop")
	require.NotContains(t, sent, "shop token-of-mail")
	p.clean()
}
