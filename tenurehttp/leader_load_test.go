package tenurehttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/tenurehttp"
)

// TestLeaderOnlyUnderLoad: requests on an instance that does not lead do not wait for each other,
// whether the leader advertises an address or not.
func TestLeaderOnlyUnderLoad(t *testing.T) {
	for _, address := range []string{"http://a:80", ""} {
		inSite(t, func(s *site) {
			f := newFleet(s)
			a, _ := f.join("a", address, tenurehttp.Reject)
			s.until(a.IsLeader)
			_, second := f.join("b", "b:80", tenurehttp.Reject)
			time.Sleep(time.Minute)
			second.do(http.MethodGet, "/x", "")
			var all sync.WaitGroup
			for range 250 {
				time.Sleep(20 * time.Millisecond)
				all.Go(func() {
					began := time.Now()
					second.do(http.MethodGet, "/x", "")
					require.Less(s, time.Since(began), 300*time.Millisecond, "address %q", address) // of virtual time
				})
			}
			all.Wait()
		})
	}
}

// TestLeaderOnlyTooLate: a request whose context has ended before it was begun is not taken for one
// that was served.
func TestLeaderOnlyTooLate(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, _ := f.join("a", "http://a:80", tenurehttp.Reject)
		s.until(a.IsLeader)
		ctx, cancel := context.WithCancel(s.Context())
		cancel()
		served := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { s.Error("it was begun") })
		answer := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/orders", nil)
		tenurehttp.LeaderOnly(a.Elector(), served, tenurehttp.Reject).ServeHTTP(answer, request)
		require.Equal(s, http.StatusServiceUnavailable, answer.Code)
		require.Contains(s, answer.Body.String(), "not_begun")
	})
}
