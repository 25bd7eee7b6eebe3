package contender

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const leasesURL = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

func TestLeasesRefuseAnOlderVersion(t *testing.T) {
	leases := NewLeases()
	ask := func(method, path, body string, want int) string {
		t.Helper()
		w := httptest.NewRecorder()
		leases.ServeHTTP(w, httptest.NewRequest(method, leasesURL+path, strings.NewReader(body)))
		if w.Code != want {
			t.Fatalf("%s %s: %d, want %d", method, path, w.Code, want)
		}
		return w.Body.String()
	}
	held := `{"metadata":{"name":"compare","resourceVersion":"1"},"spec":{"holderIdentity":"a","leaseDurationSeconds":3}}`
	ask(http.MethodGet, "/compare", "", http.StatusNotFound)
	ask(http.MethodPut, "/compare", held, http.StatusNotFound)
	if !leases.Expiry().IsZero() {
		t.Error("a lease that nobody created ends")
	}
	ask(http.MethodPost, "", held, http.StatusCreated)
	ask(http.MethodPost, "", held, http.StatusConflict)
	if leases.Expiry().IsZero() {
		t.Error("a lease that is held never ends")
	}
	if got := ask(http.MethodPut, "/compare", held, http.StatusOK); !strings.Contains(got, `"resourceVersion":"2"`) {
		t.Errorf("update: %s", got)
	}
	ask(http.MethodPut, "/compare", held, http.StatusConflict)
	ask(http.MethodPost, "", "{", http.StatusBadRequest)
}
