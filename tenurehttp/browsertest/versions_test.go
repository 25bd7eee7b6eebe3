package browsertest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestModulesOfTwoVersions: a page whose modules come from two versions of the service, behind a
// balancer, is loaded again until they fit together.
func TestModulesOfTwoVersions(t *testing.T) {
	t.Parallel()
	handler := alone(t)
	for name, another := range map[string]http.HandlerFunc{
		"another module": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = io.WriteString(w, "export const other = 1;\n")
		},
		"no such module": http.NotFound,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var loaded atomic.Int32
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/" {
					loaded.Add(1)
				}
				if r.URL.Path == "/page/words.js" && loaded.Load() < 3 {
					another(w, r)
					return
				}
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(func() { site.CloseClientConnections(); site.Close() })
			p := open(t, site.URL, desk)
			p.says("#roles", "alone leads")
			require.EqualValues(t, 3, loaded.Load())
		})
	}
}
