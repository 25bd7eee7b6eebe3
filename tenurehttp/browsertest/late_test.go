package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestLateAnswers: an answer that was asked for before the sign-in, and one that comes after a
// later one, is not shown.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	m := startMember(t, redistest.Start(t), "web-a")
	require.Eventually(t, m.IsLeader, patience, pollEach)
	handler, err := tenurehttp.New(m.Coordinator, tenurehttp.Options{Authorize: tenurehttp.BearerToken(map[string]string{"alice": "token-of-alice"}), GuardReads: true})
	require.NoError(t, err)
	var mu sync.Mutex
	asked, held := 0, 0
	release := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/api/cluster/instances/nobody") {
			handler.ServeHTTP(w, r)
			return
		}
		mu.Lock()
		asked++
		late := r.Header.Get("Authorization") == "" || held == 0 // the first of each
		if late && r.Header.Get("Authorization") != "" {
			held++
		}
		text := fmt.Sprintf("answer %d", asked)
		if late {
			text = "late"
		}
		mu.Unlock()
		if late {
			<-release
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"detail":%q,"code":"not_found"}`, text)
	}))
	t.Cleanup(func() { handler.Close(); site.CloseClientConnections(); site.Close() })
	p := open(t, site.URL+"/#instance:nobody", desk)
	p.says("#ask", "Your token")
	p.fill("#ask-field", "token-of-alice")
	p.click("#ask [type=submit]")
	p.says("#drawer .body", "answer")
	eval[bool](p, "window.shown = ''; new MutationObserver(() => { window.shown += document.querySelector('#drawer .body').textContent; }).observe(document.getElementById('drawer'), { subtree: true, childList: true, characterData: true }); true")
	close(release)
	mu.Lock()
	so := asked
	mu.Unlock()
	p.until(fmt.Sprintf("Number(/answer ([0-9]+)/.exec(document.querySelector('#drawer .body').textContent)?.[1]) >= %d", so+2))
	require.NotContains(t, eval[string](p, "window.shown"), "late")
	p.clean()
}
