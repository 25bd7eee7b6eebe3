package tenurehttp_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
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

// TestProxyKeepsItsConnections: requests that come together leave connections for the next ones. A
// new one for each would use up the ports of an instance within seconds.
func TestProxyKeepsItsConnections(t *testing.T) {
	const together, rounds = 50, 6
	var made atomic.Int32
	var mu sync.Mutex
	waiting, release := 0, make(chan struct{})
	leader := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		here := release
		if waiting++; waiting == together {
			waiting, release = 0, make(chan struct{})
			close(here)
		}
		mu.Unlock()
		<-here
	}))
	leader.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Add(1)
		}
	}
	leader.Start()
	defer leader.Close()
	proxy := tenurehttp.Proxy(nil)
	for range rounds {
		var all sync.WaitGroup
		for range together {
			all.Go(func() {
				r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
				proxy(w, r, tenure.NotLeaderError{Leader: "a", Address: leader.URL})
				if w.Code != http.StatusOK {
					t.Error(w.Code)
				}
			})
		}
		all.Wait()
	}
	require.Less(t, made.Load(), int32(together*rounds/2))
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
