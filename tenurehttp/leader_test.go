package tenurehttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// fleet are instances that each serve what only the leader may, and can reach each other by the
// address that they advertise.
type fleet struct {
	*site
	hosts     map[string]*web
	transport *http.Transport
}

func newFleet(s *site) *fleet {
	f := &fleet{site: s, hosts: make(map[string]*web)}
	f.transport = &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		w := f.hosts[address]
		if w == nil {
			return nil, net.ErrClosed
		}
		return w.client.DialContext(ctx, network, address)
	}}
	s.Cleanup(f.transport.CloseIdleConnections)
	return f
}

// join starts an instance that advertises an address.
func (f *fleet) join(id, address string, elsewhere tenurehttp.Elsewhere) (*tenure.Coordinator, *web) {
	f.Helper()
	c := f.member(id, func(o *tenure.Options) { o.Registry.Address = address })
	own := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		term, _ := tenure.TermFrom(r.Context())
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s leads=%v from=%s", id, r.Method, r.RequestURI, body, term.Valid(), r.Header.Get("X-Forwarded-For"))
	})
	w := f.host(tenurehttp.LeaderOnly(c.Elector(), own, elsewhere))
	f.hosts[id+":80"] = w
	return c, w
}

// TestReject: who leads, in the header and in the body.
func TestReject(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, first := f.join("a", "https://a.example/base", tenurehttp.Reject)
		s.until(a.IsLeader)
		require.Equal(s, "a GET /x?y=1  leads=true from=", first.do(http.MethodGet, "/x?y=1", "").body)
		b, second := f.join("b", "", tenurehttp.Reject)
		p := second.refused(http.StatusServiceUnavailable, "not_leader", http.MethodPost, "/x", `{}`)
		require.Equal(s, `leader "a", address "https://a.example/base"`, fields(p, "leader", "address"))
		answer := second.do(http.MethodGet, "/x", "")
		require.Equal(s, "a", answer.Header.Get(tenurehttp.LeaderHeader))
		require.Equal(s, "1", answer.Header.Get("Retry-After"))

		// After its own resignation a stands back, and says who leads as soon as somebody does.
		require.NoError(s, a.Elector().Resign(s.Context()))
		s.until(b.IsLeader)
		p = first.refused(http.StatusServiceUnavailable, "not_leader", http.MethodPost, "/x", `{}`)
		require.Equal(s, "b", p["leader"])
		require.NoError(s, b.Drain(s.Context()))
		s.until(a.IsLeader)
		require.NoError(s, a.Drain(s.Context()))
		first.refused(http.StatusServiceUnavailable, "no_leader", http.MethodGet, "/x", "")
	})
}

// TestRedirect: to the same path at the address of the leader, whatever prefix was taken off, and
// nowhere else.
func TestRedirect(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, _ := f.join("a", "https://a.example:8443/base/", tenurehttp.Redirect)
		s.until(a.IsLeader)
		_, second := f.join("b", "b:80", tenurehttp.Redirect)
		for path, want := range map[string]string{
			"/":                     "https://a.example:8443/base/",
			"/x/y?z=%2F&w":          "https://a.example:8443/base/x/y?z=%2F&w",
			"//evil.example/x":      "https://a.example:8443/base//evil.example/x",
			"/a%2Fb/%0d%0aX:y":      "https://a.example:8443/base/a%2Fb/%0d%0aX:y",
			"/%2e%2e/x?http://evil": "https://a.example:8443/base/%2e%2e/x?http://evil",
			"/@evil.example":        "https://a.example:8443/base/@evil.example",
		} {
			answer := second.do(http.MethodPost, path, "{}")
			require.Equal(s, http.StatusTemporaryRedirect, answer.StatusCode)
			require.Equal(s, want, answer.Header.Get("Location"))
			require.Equal(s, "a", answer.Header.Get(tenurehttp.LeaderHeader))
		}
		own := http.NewServeMux()
		c := f.member("c")
		own.Handle("/app/", http.StripPrefix("/app", tenurehttp.LeaderOnly(c.Elector(), http.NotFoundHandler(), tenurehttp.Redirect)))
		require.Equal(s, "https://a.example:8443/base/app/x", s.host(own).do(http.MethodGet, "/app/x", "").Header.Get("Location"))
	})
}

// TestRedirectWhileATermDrains: an instance whose term is over still holds the lease while a
// request of that term ends. It sends nobody to itself, whether it has heard of its own address or
// not.
func TestRedirectWhileATermDrains(t *testing.T) {
	inSite(t, func(s *site) {
		for _, address := range []string{"", "https://a.example"} {
			id := "a" + address[:min(len(address), 5)]
			c := s.member(id, func(o *tenure.Options) { o.Registry.Address = address })
			s.until(c.IsLeader)
			release := make(chan struct{})
			slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
			w := s.host(tenurehttp.LeaderOnly(c.Elector(), slow, tenurehttp.Redirect))
			var served sync.WaitGroup
			served.Go(func() { w.do(http.MethodGet, "/slow", "") }) // ends with release
			synctest.Wait()
			served.Go(func() { _ = c.Drain(s.Context()) }) // ends with release
			s.until(func() bool { return !c.IsLeader() })
			s.pass(time.Second)
			leader, err := c.Elector().Leader(s.Context())
			require.NoError(s, err)
			require.Equal(s, id, leader.InstanceID, "its lease is not released yet")
			w.refused(http.StatusServiceUnavailable, "no_leader", http.MethodGet, "/x", "")
			close(release)
			served.Wait()
		}
	})
}

// TestHostileAddresses: what is no address of a server is not gone to.
func TestHostileAddresses(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, _ := f.join("a", "", tenurehttp.Reject)
		s.until(a.IsLeader)
		for i, address := range []string{"", "javascript:alert(1)", "file:///etc/passwd", "ftp://x", "https://user:secret@x", "//x", "http://", "https://[::1"} {
			require.NoError(s, a.Registry().Update(tenure.InstanceUpdate{Address: &address}))
			s.pass(time.Minute)
			for j, elsewhere := range []tenurehttp.Elsewhere{tenurehttp.Redirect, tenurehttp.Proxy(f.transport)} {
				_, w := f.join(fmt.Sprintf("b%d-%d", i, j), "", elsewhere)
				w.refused(http.StatusServiceUnavailable, "not_leader", http.MethodGet, "/x", "")
			}
		}
		for _, elsewhere := range []tenurehttp.Elsewhere{tenurehttp.Redirect, tenurehttp.Proxy(f.transport)} {
			w := httptest.NewRecorder() // of another program: an instance cannot say it
			elsewhere(w, httptest.NewRequest(http.MethodGet, "/x", http.NoBody), tenure.NotLeaderError{Leader: "a", Address: "http://:80"})
			require.Equal(s, http.StatusServiceUnavailable, w.Code)
		}
	})
}

// TestLeaderOnlyOfNil: what is missing is said when the program starts, and not by the first
// request on an instance that does not lead.
func TestLeaderOnlyOfNil(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{})
	require.NoError(t, err)
	gone, _ := c.Role("exprot") // misspelt
	only := func(e *tenure.Elector, next http.Handler, elsewhere tenurehttp.Elsewhere) func() {
		return func() { tenurehttp.LeaderOnly(e, next, elsewhere) }
	}
	next := http.NotFoundHandler()
	require.PanicsWithValue(t, "tenurehttp: LeaderOnly got a nil Elector: there is no such role", only(gone, next, tenurehttp.Reject))
	require.PanicsWithValue(t, "tenurehttp: LeaderOnly got a nil Handler", only(c.Elector(), nil, tenurehttp.Reject))
	require.PanicsWithValue(t, "tenurehttp: LeaderOnly got a nil Elsewhere: use Reject, Redirect or Proxy", only(c.Elector(), next, nil))
	require.NotPanics(t, only(c.Elector(), next, tenurehttp.Reject))
}

// TestProxy: the leader answers, once, wherever the request came in.
func TestProxy(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		proxy := tenurehttp.Proxy(f.transport)
		a, first := f.join("a", "http://a:80", proxy)
		s.until(a.IsLeader)
		b, second := f.join("b", "b:80", proxy)
		require.Equal(s, "a POST /x%2Fy?z=1 {} leads=true from=192.0.2.7, 127.0.0.1", second.do(http.MethodPost, "/x%2Fy?z=1", "{}", "X-Forwarded-For", "192.0.2.7").body)

		// True also while a stands back.
		require.NoError(s, a.Elector().Resign(s.Context()))
		s.pass(time.Second)
		require.True(s, b.IsLeader())
		require.True(s, strings.HasPrefix(first.do(http.MethodGet, "/x", "").body, "b GET /x"))

		// In a circle: each believes that the other leads.
		p := first.refused(http.StatusServiceUnavailable, "not_leader", http.MethodGet, "/x", "", tenurehttp.ForwardedHeader, `""`)
		require.Contains(s, p["detail"], "forwarded")
		require.Equal(s, http.StatusOK, first.do(http.MethodGet, "/x", "", tenurehttp.ForwardedHeader, `"another role"`).StatusCode)

		delete(f.hosts, "b:80")
		f.transport.CloseIdleConnections()
		p = first.refused(http.StatusBadGateway, "leader_unreachable", http.MethodGet, "/x", "")
		require.Equal(s, `leader "b", address "b:80"`, fields(p, "leader", "address"))
	})
}

// TestProxySaysWhatWasNotSent: a leader that stops takes no new connection. What was not sent to it
// may be asked for again, be it an order; what was may have been done.
func TestProxySaysWhatWasNotSent(t *testing.T) {
	stops, dies := httptest.NewServer(http.NotFoundHandler()), httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	stops.Close()
	defer dies.Close()
	for address, retry := range map[string]string{stops.URL: "1", dies.URL: ""} {
		answered := httptest.NewRecorder()
		tenurehttp.Proxy(nil)(answered, httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader("{}")), tenure.NotLeaderError{Leader: "b", Address: address})
		require.Equal(t, http.StatusBadGateway, answered.Code)
		require.Equal(t, retry, answered.Header().Get("Retry-After"))
		require.Equal(t, retry != "", strings.Contains(answered.Body.String(), "was not sent"), answered.Body)
	}
}

// TestProxyPassesOnWhatOthersSay: a proxy in front of all instances ends TLS and knows the name
// that was asked for. The leader hears of both, whichever instance the request came in by.
func TestProxyPassesOnWhatOthersSay(t *testing.T) {
	names := []string{"X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"}
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range names {
			fmt.Fprintf(w, "%q ", r.Header.Values(name))
		}
	}))
	defer leader.Close()
	said := func(header http.Header) string {
		r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://b.example/", http.NoBody), httptest.NewRecorder()
		r.Header = header
		tenurehttp.Proxy(leader.Client().Transport)(w, r, tenure.NotLeaderError{Leader: "a", Address: leader.URL})
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	require.Equal(t, `["https"] ["shop.example"] ["proto=https"] `,
		said(http.Header{names[0]: {"https"}, names[1]: {"shop.example"}, names[2]: {"proto=https"}}))
	require.Equal(t, `["http"] ["b.example"] [] `, said(http.Header{}), "else what this instance has seen")
}

// forwarder is an instance that does not lead, before a leader that says what it got. At /hangs the
// leader says nothing.
func forwarder(t *testing.T, before func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if r.URL.Path == "/hangs" {
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, string(body), " ", err, " ", r.Trailer.Get("X-Sum"))
	}))
	t.Cleanup(leader.Close)
	proxy := tenurehttp.Proxy(leader.Client().Transport)
	follower := httptest.NewServer(before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxy(w, r, tenure.NotLeaderError{Leader: "a", Address: leader.URL})
	})))
	t.Cleanup(follower.Close)
	return follower
}

// TestProxyThatIsNotAtFault: if a handler before it refuses the body, or ends the request, nobody
// is told that the leader cannot be reached.
func TestProxyThatIsNotAtFault(t *testing.T) {
	code := func(s *httptest.Server, path, body string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(body))
		require.NoError(t, err)
		answer, err := s.Client().Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		var p struct {
			Code   string `json:"code"`
			Detail string `json:"detail"`
		}
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&p))
		require.Equal(t, "a", answer.Header.Get(tenurehttp.LeaderHeader))
		return answer.StatusCode, p.Code + ": " + p.Detail
	}
	s := forwarder(t, func(h http.Handler) http.Handler { return http.MaxBytesHandler(h, 1000) })
	status, text := code(s, "/", strings.Repeat("x", 5000))
	require.Equal(t, http.StatusRequestEntityTooLarge, status)
	require.Equal(t, "body: the body must have at most 1000 bytes", text)

	s = forwarder(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), time.Millisecond)
			defer cancel()
			h.ServeHTTP(w, r.WithContext(ctx))
		})
	})
	status, text = code(s, "/hangs", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, text, "interrupted: the request ended")
}

// TestProxyPassesOnTrailers: the leader gets what the client says behind the body.
func TestProxyPassesOnTrailers(t *testing.T) {
	s := forwarder(t, func(h http.Handler) http.Handler { return h })
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	defer connection.Close()
	_, err = io.WriteString(connection, "POST / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(connection), nil)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, "abc <nil> 42", string(body))
}

// TestUploadsToALeader: the files of a form that did not fit into memory are removed after the
// request, as without LeaderOnly.
func TestUploadsToALeader(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.host(tenurehttp.LeaderOnly(a.Elector(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ParseMultipartForm(1) != nil {
				return
			}
			file, err := r.MultipartForm.File["f"][0].Open()
			if err != nil {
				return
			}
			defer file.Close()
			if onDisk, is := file.(*os.File); is {
				fmt.Fprint(w, onDisk.Name())
			}
		}), tenurehttp.Reject))
		const body = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nlonger than a byte\r\n--x--\r\n"
		path := w.do(http.MethodPut, "/", body, "Content-Type", "multipart/form-data; boundary=x").body
		require.NotEmpty(s, path)
		synctest.Wait()
		require.NoFileExists(s, path)
	})
}

// TestLeaderOnlyEndsWithTheTerm: the context of the request ends with the term, and the lease waits
// for the handler.
func TestLeaderOnlyEndsWithTheTerm(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		begun := make(chan struct{})
		w := s.host(tenurehttp.LeaderOnly(a.Elector(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			fmt.Fprint(w, context.Cause(r.Context()), " ", a.IsLeader(), " ")
			s.redis.Do(func(m *miniredis.Miniredis) { fmt.Fprint(w, m.Exists("shop:leader")) })
		}), tenurehttp.Reject))
		answered := make(chan string, 1)
		go func() { answered <- w.do(http.MethodGet, "/", "").body }()
		<-begun
		require.NoError(s, a.Elector().Resign(s.Context()))
		require.Equal(s, "tenure: leadership resigned false true", <-answered)
	})
}

// TestSlowClientsOfALeader: a client that reads nothing of its answer, or sends half of its body,
// holds up no hand-over, though the lease waits for the handler.
func TestSlowClientsOfALeader(t *testing.T) {
	for _, tt := range []struct{ name, request string }{
		{"reads nothing", "GET / HTTP/1.1\r\nHost: shop\r\n\r\n"},
		{"sends half", "POST / HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\n12345"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inSite(t, func(s *site) {
				a := s.member("a")
				s.until(a.IsLeader)
				b := s.member("b")
				w := s.host(tenurehttp.LeaderOnly(a.Elector(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						return
					}
					for range 100 {
						if _, err := w.Write(make([]byte, 64<<10)); err != nil {
							return
						}
					}
				}), tenurehttp.Reject))
				slow, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
				require.NoError(s, err)
				defer slow.Close()
				_, err = io.WriteString(slow, tt.request)
				require.NoError(s, err)
				s.pass(time.Minute)
				began := time.Now()
				go func() { _ = a.Elector().Resign(context.Background()) }() // ends when it has resigned
				s.until(b.IsLeader)
				require.Less(s, time.Since(began), 5*time.Second)
			})
		})
	}
}

// TestRequestThatEndsWithTheTerm: one to the API that waits for Redis as the term ends is
// interrupted, which is no fault of the server.
func TestRequestThatEndsWithTheTerm(t *testing.T) {
	inSite(t, func(s *site) {
		rdb := s.client("a")
		rdb.AddHook(farAway{rdb, 300 * time.Millisecond})
		a, err := tenure.New(rdb.Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		s.run(a)
		h, err := tenurehttp.New(a, tenurehttp.Options{Authorize: func(*http.Request, tenurehttp.Action) (string, error) { return "ann", nil }})
		require.NoError(s, err)
		s.Cleanup(h.Close)
		w := s.host(tenurehttp.LeaderOnly(a.Elector(), h, tenurehttp.Reject))
		for _, one := range [][]string{{http.MethodGet, "status", ""}, {http.MethodPost, "pause", `{"task":"t"}`}} {
			s.until(a.IsLeader)
			go func() { // ends when it has resigned
				time.Sleep(100 * time.Millisecond)
				_ = a.Elector().Resign(context.Background())
			}()
			w.refused(http.StatusServiceUnavailable, "interrupted", one[0], "/api/cluster/"+one[1], one[2])
		}
	})
}

// TestSlowReaderOfTheAPI: a client that reads the API of the leader slowly holds up no hand-over,
// though each piece of an answer has a deadline of its own.
func TestSlowReaderOfTheAPI(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		b := s.member("b")
		s.redis.Do(func(m *miniredis.Miniredis) {
			for i := range 1500 {
				m.HSet("shop:instances", fmt.Sprintf("web-%0124d", i), `{"status":"active"}`) // an ID as long as one may be
			}
		})
		h, err := tenurehttp.New(a, tenurehttp.Options{})
		require.NoError(s, err)
		s.Cleanup(h.Close)
		w := s.host(tenurehttp.LeaderOnly(a.Elector(), h, tenurehttp.Reject))
		slow, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
		require.NoError(s, err)
		defer slow.Close()
		_, err = io.WriteString(slow, "GET /api/cluster/instances HTTP/1.1\r\nHost: shop\r\n\r\n")
		require.NoError(s, err)
		s.pass(10 * time.Second)
		began := time.Now()
		go func() { _ = a.Elector().Resign(context.Background()) }() // ends when it has resigned
		s.pass(time.Second)
		_, err = io.CopyN(io.Discard, slow, 100<<10) // the next piece is begun
		require.NoError(s, err)
		s.until(b.IsLeader)
		require.Less(s, time.Since(began), 5*time.Second)
	})
}

// TestConnectionOutlivesTheTerm: one that was answered as the term ended serves the next request.
func TestConnectionOutlivesTheTerm(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		begun := make(chan struct{}, 1)
		w := s.host(tenurehttp.LeaderOnly(a.Elector(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			<-r.Context().Done()
			time.Sleep(time.Second)
		}), tenurehttp.Reject))
		conn, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
		require.NoError(s, err)
		defer conn.Close()
		answers := bufio.NewReader(conn)
		for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: shop\r\n\r\n")
			require.NoError(s, err)
			if want == http.StatusOK {
				<-begun
				s.net.Partition("a", simnet.Both, 0) // it leads no more from here on
			}
			response, err := http.ReadResponse(answers, nil)
			require.NoError(s, err)
			_, err = io.Copy(io.Discard, response.Body)
			require.NoError(s, err)
			require.NoError(s, response.Body.Close())
			require.Equal(s, want, response.StatusCode)
			s.pass(10 * time.Minute)
		}
	})
}

// TestAddressSaidLater: a leader that advertises no address at first is found once it does.
func TestAddressSaidLater(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, _ := f.join("a", "", tenurehttp.Reject)
		s.until(a.IsLeader)
		_, second := f.join("b", "b:80", tenurehttp.Redirect)
		s.pass(time.Minute)
		require.Equal(s, http.StatusServiceUnavailable, second.do(http.MethodGet, "/x", "").StatusCode)
		address := "a:80"
		require.NoError(s, a.Registry().Update(tenure.InstanceUpdate{Address: &address}))
		s.pass(time.Minute)
		require.Equal(s, "http://a:80/x", second.do(http.MethodGet, "/x", "").Header.Get("Location"))
	})
}

// TestLeaderOfLongAgo: while Redis does not answer, who led when it last did is not who leads.
func TestLeaderOfLongAgo(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, _ := f.join("a", "", tenurehttp.Reject) // without an address: Redis is asked for it
		s.until(a.IsLeader)
		b, second := f.join("b", "b:80", tenurehttp.Reject)
		second.refused(http.StatusServiceUnavailable, "not_leader", http.MethodGet, "/x", "")
		s.net.Partition("b", simnet.Both, 0)
		s.until(func() bool { return b.Elector().Status().Leader == "" })
		second.refused(http.StatusServiceUnavailable, "no_leader", http.MethodGet, "/x", "")
	})
}

// slowConnection is an answer whose connection takes its time to take a deadline.
type slowConnection struct {
	*httptest.ResponseRecorder
	busy atomic.Int64
}

func (c *slowConnection) SetReadDeadline(time.Time) error {
	c.busy.Add(1)
	defer c.busy.Add(-1)
	time.Sleep(time.Second) // virtual time
	return nil
}

// TestDeadlineOfARequestThatIsOver: once a request is answered, no deadline of it is set any more:
// its connection may serve the next one.
func TestDeadlineOfARequestThatIsOver(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := &slowConnection{ResponseRecorder: httptest.NewRecorder()}
		h := tenurehttp.LeaderOnly(a.Elector(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			s.until(func() bool { return w.busy.Load() > 0 }) // it has begun
		}), tenurehttp.Reject)
		go func() { // ends when it has resigned
			time.Sleep(time.Second)
			_ = a.Elector().Resign(context.Background())
		}()
		h.ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), http.MethodGet, "/", http.NoBody))
		require.Zero(s, w.busy.Load())
	})
}

// TestLeaderThatIsNotHeardOfYet: an instance that asks Redis for the address of the leader that it
// has heard of last is told who leads now.
func TestLeaderThatIsNotHeardOfYet(t *testing.T) {
	inSite(t, func(s *site) {
		f := newFleet(s)
		a, _ := f.join("a", "", tenurehttp.Reject) // without an address: Redis is asked for it
		s.until(a.IsLeader)
		b, second := f.join("b", "b:80", tenurehttp.Redirect)
		c, _ := f.join("c", "c:80", tenurehttp.Reject)
		s.until(func() bool { return b.Elector().Status().Leader == "a" })
		s.pass(time.Minute)
		s.net.Deafen("b")
		require.NoError(s, a.Elector().Transfer(s.Context(), "c"))
		s.until(c.IsLeader)
		require.Equal(s, "a", b.Elector().Status().Leader)
		require.Equal(s, "http://c:80/x", second.do(http.MethodGet, "/x", "").Header.Get("Location"))
	})
}
