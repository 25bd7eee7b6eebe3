package tenurehttp_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// eachRequest is a handler that is made anew for each request, as echo.WrapMiddleware does, and
// what is mostly written for gin.
func eachRequest(e *tenure.Elector, elsewhere func() tenurehttp.Elsewhere) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenurehttp.LeaderOnly(e, http.NotFoundHandler(), elsewhere()).ServeHTTP(w, r)
	})
}

// TestHandlerForEachRequest: handlers that are made for one request each know together who leads:
// they do not ask Redis for each.
func TestHandlerForEachRequest(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, _ := f.join("a", "", tenurehttp.Reject) // without an address: Redis is asked for it
		s.until(a.IsLeader)
		counting := s.client("b")
		b, err := tenure.New(counting.Client, tenure.Options{Namespace: "shop", InstanceID: "b"})
		require.NoError(s, err)
		s.run(b)
		s.until(func() bool { return b.Elector().Status().Leader == "a" })
		w := s.host(eachRequest(b.Elector(), func() tenurehttp.Elsewhere { return tenurehttp.Reject }))
		before := counting.sent.Load()
		for range 100 {
			w.refused(http.StatusServiceUnavailable, "not_leader", http.MethodGet, "/x", "")
		}
		require.Less(s, counting.sent.Load()-before, int64(20))
	})
}

// TestProxyForEachRequest: proxies that are made for one request each keep their connections.
func TestProxyForEachRequest(t *testing.T) {
	var made atomic.Int32
	leader := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	leader.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Add(1)
		}
	}
	leader.Start()
	defer leader.Close()
	const requests = 50
	for range requests {
		r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), httptest.NewRecorder()
		tenurehttp.Proxy(nil)(w, r, tenure.NotLeaderError{Leader: "a", Address: leader.URL})
		require.Equal(t, http.StatusOK, w.Code)
	}
	require.Less(t, made.Load(), int32(requests/2))
}

// TestLeaderOnlyWhileRedisHangs: while an instance does not hear from Redis, its requests are
// refused within a second, and mostly at once, whether the leader advertised an address or not.
func TestLeaderOnlyWhileRedisHangs(t *testing.T) {
	for _, address := range []string{"", "http://a:80"} {
		inSite(t, func(s *site) {
			f := newFleet(s)
			a, _ := f.join("a", address, tenurehttp.Reject)
			s.until(a.IsLeader)
			b, second := f.join("b", "b:80", tenurehttp.Redirect)
			second.do(http.MethodGet, "/x", "")
			s.net.Partition("b", simnet.Both, 0)
			s.until(func() bool { return b.Elector().Status().Leader == "" })
			waited := time.Duration(0)
			for range 60 { // a second apart
				began := time.Now()
				second.refused(http.StatusServiceUnavailable, "no_leader", http.MethodGet, "/x", "")
				took := time.Since(began)
				require.LessOrEqual(s, took, time.Second) // of virtual time
				waited += took
				s.pass(time.Second)
			}
			require.LessOrEqual(s, waited, 10*time.Second)
			s.net.Heal("b")
			s.until(func() bool { return b.Elector().Status().Leader == "a" })
			s.pass(5 * time.Second)
			second.do(http.MethodGet, "/x", "")
			s.pass(5 * time.Second)
			answer := second.do(http.MethodGet, "/x", "")
			require.Equal(s, "a", answer.Header.Get(tenurehttp.LeaderHeader))
		})
	}
}

// framed is a writer such as those of gin and echo: it says that it can flush, and panics if what
// it wraps cannot.
type framed struct{ http.ResponseWriter }

func (f framed) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f framed) Flush() {
	f.WriteHeader(http.StatusOK)
	f.ResponseWriter.(http.Flusher).Flush()
}

// TestEventsInAFramework: behind what holds answers back the events are refused with the reason,
// also by way of a framework, and without that they are sent.
func TestEventsInAFramework(t *testing.T) {
	inSite(t, func(s *site) {
		c := s.member("a")
		s.until(c.IsLeader)
		api, err := tenurehttp.New(c, tenurehttp.Options{})
		require.NoError(s, err)
		s.Cleanup(api.Close)
		framework := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { api.ServeHTTP(framed{w}, r) })
		held := s.host(http.TimeoutHandler(framework, time.Hour, ""))
		p := held.refused(http.StatusInternalServerError, "misconfigured", http.MethodGet, "/api/cluster/events", "")
		require.Contains(s, p["detail"], "http.TimeoutHandler")
		require.Equal(s, http.StatusOK, held.do(http.MethodGet, "/api/cluster/status", "").StatusCode)

		free := s.host(framework)
		time.AfterFunc(time.Second, api.Close)
		streamed := free.do(http.MethodGet, "/api/cluster/events", "")
		require.Equal(s, http.StatusOK, streamed.StatusCode)
		require.Contains(s, streamed.body, "event: snapshot")
	})
}
