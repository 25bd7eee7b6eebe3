package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/cmd/tenure/internal/cli"
)

// TestWaitOutlastsAProxy: who waits goes on waiting while what stands before the API has a bad
// moment, and ends at once if it will not get better.
func TestWaitOutlastsAProxy(t *testing.T) {
	type answer struct {
		status     int
		kind, text string
	}
	const problem, page, object = "application/problem+json", "text/html", "application/json"
	var passing []answer
	for _, status := range []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		passing = append(passing, answer{status, page, "<h1>a bad moment</h1>"}, answer{status, problem, `{"code":"busy","detail":"64 roles are asked for"}`})
	}
	status := answer{http.StatusOK, object, `{"namespace":"shop","active_instances":2,"stale":false}`}
	role := answer{http.StatusOK, object, `{"status":{"role":"","led":true,"leader":{"instance_id":"web-1","token":7}},"terms":[]}`}
	forbidden := answer{http.StatusForbidden, problem, `{"code":"forbidden","detail":"you may not do this"}`}
	for name, test := range map[string]struct {
		args    string
		answers []answer
		code    int
	}{
		"instances":           {"wait instances 2", append(passing[:8:8], status), 0},
		"leader":              {"wait leader", append(passing[:8:8], role), 0},
		"instances forbidden": {"wait instances 2", []answer{forbidden}, 2},
		"leader forbidden":    {"wait leader", []answer{forbidden}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				a := test.answers[min(int(asked.Add(1)), len(test.answers))-1]
				w.Header().Set("Content-Type", a.kind)
				w.WriteHeader(a.status)
				_, _ = io.WriteString(w, a.text)
			}))
			defer server.Close()
			require.Equal(t, test.code, cli.Main(append(strings.Fields(test.args), "--api", server.URL, "--for", "5m")))
			require.EqualValues(t, len(test.answers), asked.Load())
		})
	}
}
