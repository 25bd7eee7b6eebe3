package tenurehttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// everything are the paths of all documents.
var everything = []string{
	"/", "/livez", "/readyz", "/leaderz", "/api/cluster/status", "/api/cluster/instances", "/api/cluster/leader", "/api/cluster/config", "/api/cluster/this",
	"/api/cluster/snapshot", "/api/cluster/instances/a", "/api/cluster/tasks", "/api/cluster/tasks/t", "/api/cluster/tasks/t/runs", "/api/cluster/terms", "/api/cluster/log",
	"/api/cluster/commands", "/api/cluster/openapi.json",
}

// TestProbes: joining and draining are not ready, a Redis that is away is no reason, and one leads.
func TestProbes(t *testing.T) {
	inSite(t, func(s *site) {
		probes := func(w *web) string {
			line := ""
			for _, probe := range []string{"/livez", "/readyz", "/leaderz"} {
				line += fmt.Sprint(" ", w.do(http.MethodGet, probe, "").StatusCode)
			}
			return line[1:]
		}
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		_, err = c.AddRole("export", tenure.ElectionOptions{Ineligible: true})
		require.NoError(s, err)
		w := s.serve(tenurehttp.New(c, tenurehttp.Options{}))
		require.Equal(s, "200 503 503", probes(w))
		require.Equal(s, `state "joining"`, fields(w.object(w.do(http.MethodGet, "/readyz", "").body), "state"))
		s.net.Partition("a", simnet.Both, 0)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		s.Cleanup(stop)
		s.pass(time.Minute)
		require.Equal(s, "200 503 503", probes(w), "it has not joined")
		s.net.Heal("a")
		s.until(func() bool { return c.IsLeader() && c.State() == tenure.InstanceActive })
		require.Equal(s, "200 200 200", probes(w))
		require.Equal(s, http.StatusServiceUnavailable, w.do(http.MethodGet, "/leaderz?role=export", "").StatusCode)
		require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/leaderz?role=", "").StatusCode)
		w.refused(http.StatusNotFound, "no_role", http.MethodGet, "/leaderz?role=none", "")
		s.net.Partition("a", simnet.Both, 0)
		s.pass(time.Hour)
		require.Equal(s, "200 200 503", probes(w))
		s.net.Heal("a")
		s.until(c.IsLeader)
		require.NoError(s, c.Drain(s.Context()))
		require.Equal(s, "200 503 503", probes(w))
		c.Undrain()
		s.until(c.IsLeader)
		require.Equal(s, "200 200 200", probes(w))
		stop()
		require.NoError(s, <-ended)
		require.Equal(s, "200 503 503", probes(w))

		d, _ := s.dashboard(tenurehttp.Options{})
		require.Equal(s, "200 200 503", probes(d))
	})
}

// TestSecretsAreNotSaid: no answer has the password of Redis, a token of a caller, or the nonce of
// a campaign, whatever fails.
func TestSecretsAreNotSaid(t *testing.T) {
	inSite(t, func(s *site) {
		s.redis.Do(func(m *miniredis.Miniredis) { m.RequireUserAuth("user", "canary-password") })
		rdb := s.net.Client("a", func(o *redis.Options) { o.Username, o.Password = "user", "canary-password" })
		c, err := tenure.New(rdb, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		require.NoError(s, c.Tasks().Register(tenure.Task{Name: "t", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
		s.run(c)
		s.until(c.IsLeader)
		w := s.serve(tenurehttp.New(c, tenurehttp.Options{
			GuardReads: true, Authorize: tenurehttp.BearerToken(map[string]string{"ann": "canary-token"}),
		}))
		w.token = "canary-token"
		nonce := ""
		s.redis.Do(func(m *miniredis.Miniredis) { nonce = m.HGet("shop:leader:term", "nonce") })
		require.Len(s, nonce, 32)
		look := func() {
			for _, path := range everything {
				answer := w.do(http.MethodGet, path, "")
				whole := answer.body + fmt.Sprint(answer.Header)
				require.NotContains(s, whole, "canary", path)
				require.NotContains(s, whole, nonce, path)
			}
			for _, action := range allActions {
				answer := w.do(http.MethodPost, "/api/cluster/"+string(action), `{"task":"canaries","instance_id":"none"}`)
				require.NotContains(s, answer.body, "canary", action)
			}
		}
		look()
		s.redis.Do(func(m *miniredis.Miniredis) { m.RequireUserAuth("user", "another") })
		s.net.Cut("a")
		s.pass(time.Minute)
		look()
		s.net.Partition("a", simnet.Both, 0)
		s.pass(time.Minute)
		look()
	})
}

// TestHostileData: what others write is text, in JSON that HTML could hold, and spoils no listing.
func TestHostileData(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		evil := `<script>alert(1)</script>\u001b[2J\u0000\u2028`
		s.redis.Do(func(m *miniredis.Miniredis) {
			m.HSet("shop:instances", "evil", `{"instance_id":"evil","status":"`+evil+`","started_at":99999999999999,"last_heartbeat":-5,"worker_count":1,"metadata":{"`+evil+`":"`+evil+`"}}`)
			m.HSet("shop:instances", "<b>", `{"instance_id":"<b>","status":"active"}`)
			m.HSet("shop:instances", "strange", `{`)
			_, _ = m.XAdd("shop:log", "*", []string{"event", "elected", "instances", "<img>", "role", "<img>", "token", "1"})
			_, _ = m.XAdd("shop:commands", "*", []string{"event", "noted", "command", "x", "kind", "<img>", "by", "\x1b[2J\xff", "text", "<img>"})
			_, _ = m.SetAdd("shop:tasks", "<img>", "t")
			m.HSet("shop:task:t", "next", "99999999999999999", "pause", `1 {"by":"<img>","reason":"<img>"}`, "paused", "1")
		})
		w, _ := s.dashboard(tenurehttp.Options{})
		for _, path := range everything {
			answer := w.do(http.MethodGet, path, "")
			if answer.StatusCode == http.StatusNotFound || path == "/leaderz" { // a dashboard has no instance
				continue
			}
			require.Equal(s, http.StatusOK, answer.StatusCode, path+answer.body)
			require.NotEmpty(s, w.object(answer.body))
			require.NotContains(s, answer.body, "<", path)
			require.NotContains(s, answer.body, "\x1b", path)
			require.Equal(s, "nosniff", answer.Header.Get("X-Content-Type-Options"))
			require.Equal(s, "no-store", answer.Header.Get("Cache-Control"))
		}
		require.Equal(s, `a evil`, ids(w.get("/api/cluster/instances")["instances"]))
	})
}

func ids(list any) string {
	var all []string
	for _, one := range list.([]any) {
		all = append(all, fmt.Sprint(one.(map[string]any)["instance_id"]))
	}
	return strings.Join(all, " ")
}

// TestPaths: a path is what it says, behind any prefix; nothing is redirected, decoded again or
// cleaned.
func TestPaths(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		s.member("b:1")
		h, err := tenurehttp.New(a, operators)
		require.NoError(s, err)
		s.Cleanup(h.Close)
		prefixed := http.NewServeMux()
		prefixed.Handle("/tenure/", http.StripPrefix("/tenure", h))
		for prefix, w := range map[string]*web{"": s.host(h), "/tenure": s.host(prefixed), "/deep/er": s.host(http.StripPrefix("/deep/er", h))} {
			for path, status := range map[string]int{
				"/":                                                  200,
				"/api/cluster/status":                                200,
				"/api/cluster/status?x=../..":                        200,
				"/api/cluster/instances/a":                           200,
				"/api/cluster/instances/b:1":                         200,
				"/api/cluster/instances/b%3A1":                       200, // as encodeURIComponent writes it
				"/api/cluster/instances/b%3a1":                       200,
				"/api/cluster/instances/%62%3A1":                     404,
				"/api/cluster%3Astatus":                              404,
				"/api/cluster/status/":                               404,
				"/api/cluster/Status":                                404,
				"/api/cluster":                                       404,
				"/api/cluster/":                                      404,
				"/api/cluster%2Fstatus":                              404,
				"/api/cluster/instances/":                            404,
				"/api/cluster/instances/%2e%2e":                      404,
				"/api/cluster/instances/a%2Fb":                       404,
				"/api/cluster/instances/a%00":                        404,
				"/api/cluster/tasks/../runs":                         404,
				"/api/cluster/tasks//runs":                           404,
				"/api/cluster/x;/status":                             404,
				"/api/cluster/instances/" + strings.Repeat("a", 129): 404,
			} {
				if prefix == "/tenure" && (strings.Contains(path, "..") || strings.Contains(path, "//")) && status == 404 {
					continue // the ServeMux before it has cleaned that
				}
				answer := w.do(http.MethodGet, prefix+path, "")
				require.Equal(s, status, answer.StatusCode, "%s%s: %s", prefix, path, answer.body)
			}
		}
		w := s.host(h)
		for _, path := range []string{"//api/cluster/status", "/./api/cluster/status", "/x/../api/cluster/status", "//evil.example/..", "/%2e%2e/api/cluster/status"} {
			answer := w.do(http.MethodGet, path, "")
			require.Equal(s, http.StatusNotFound, answer.StatusCode, path)
			require.Empty(s, answer.Header.Get("Location"))
		}
	})
}

// TestMethods: what a path has not is 405 with what it has.
func TestMethods(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, operators))
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, "FROB"} {
			w.refused(http.StatusMethodNotAllowed, "method", method, "/api/cluster/status", "")
			require.Equal(s, "GET, HEAD, OPTIONS", w.do(method, "/api/cluster/status", "").Header.Get("Allow"))
		}
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut} {
			answer := w.do(method, "/api/cluster/drain", "")
			require.Equal(s, http.StatusMethodNotAllowed, answer.StatusCode)
			require.Equal(s, "POST, OPTIONS", answer.Header.Get("Allow"))
		}
		for path, allow := range map[string]string{"/api/cluster/drain": "POST, OPTIONS", "/livez": "GET, HEAD, OPTIONS"} {
			answer := w.do(http.MethodOptions, path, "", "Origin", "http://evil.example")
			require.Equal(s, http.StatusNoContent, answer.StatusCode)
			require.Equal(s, allow, answer.Header.Get("Allow"))
			require.Empty(s, answer.Header.Get("Access-Control-Allow-Origin"))
		}
		head := w.do(http.MethodHead, "/api/cluster/status", "")
		require.Equal(s, http.StatusOK, head.StatusCode)
		require.Empty(s, head.body)
		require.Positive(s, head.ContentLength)
		require.True(s, a.IsLeader())
	})
}

// TestParameters: what cannot be read is refused, what is too much is too.
func TestParameters(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		for _, id := range []string{"b", "c", "d1"} {
			s.member(id)
		}
		w, _ := s.dashboard(tenurehttp.Options{})
		for _, path := range []string{"snapshot?limit=x", "snapshot?limit=-1", "snapshot?limit=10001", "snapshot?offset=-1", "terms?limit=101", "log?limit=1001", "commands?limit=501",
			"tasks/t/runs?limit=99999999999999999999", "snapshot?state=drifed", "snapshot?state=active&state=dead", "leader?role=export"} {
			w.refused(http.StatusBadRequest, "parameter", http.MethodGet, "/api/cluster/"+path, "")
		}
		for _, query := range []string{"x=1;role=export", "x=1&amp;role=export", "role=%zz"} {
			w.refused(http.StatusBadRequest, "parameter", http.MethodGet, "/api/cluster/role?"+query, "")
			w.refused(http.StatusBadRequest, "parameter", http.MethodGet, "/leaderz?"+query, "")
		}
		w.refused(http.StatusNotFound, "gone", http.MethodGet, "/api/cluster/log?after=1-1", "")
		w.refused(http.StatusNotFound, "not_found", http.MethodGet, "/api/cluster/terms?role=none", "")
		w.refused(http.StatusNotFound, "not_found", http.MethodGet, "/api/cluster/tasks/none/runs", "")
		page := func(query string) string {
			instances := w.get("/api/cluster/snapshot?" + query)["instances"].(map[string]any)
			return ids(instances["items"]) + " " + fields(instances, "total", "matched", "offset")
		}
		require.Equal(s, "a b c d1 total 4, matched 4, offset 0", page(""))
		require.Equal(s, "b c total 4, matched 4, offset 1", page("offset=1&limit=2"))
		require.Equal(s, "d1 total 4, matched 1, offset 0", page("q=d"))
		require.Equal(s, " total 4, matched 0, offset 0", page("state=down&offset=7"))
		raw := s.client("raw")
		require.NoError(s, raw.HSet(s.Context(), "shop:instances", "foreign", `{"status":"dead"}`).Err())
		require.NoError(s, raw.Set(s.Context(), "shop:instance:foreign:heartbeat", "1", time.Minute).Err())
		s.pass(10 * time.Second)
		require.Equal(s, "foreign total 5, matched 1, offset 0", page("state=unknown&state=down&state=unknown"), "the word of another program")
		require.Equal(s, "foreign a b c d1 total 5, matched 5, offset 0", page("state="), "none in particular")
		require.Equal(s, "a b c d1 total 5, matched 4, offset 0", page("state=active"))
		require.NoError(s, raw.HDel(s.Context(), "shop:instances", "foreign").Err())
		s.pass(10 * time.Second)
		s.net.Partition("c", simnet.Both, 0)
		s.pass(2 * time.Minute)
		require.Equal(s, "c a total 4, matched 4, offset 0", page("limit=2"), "first what somebody should look at")
		log := w.get("/api/cluster/log")["log"].([]any)
		last := log[len(log)-1].(map[string]any)
		before := log[len(log)-2].(map[string]any)
		require.Equal(s, []any{last}, w.get("/api/cluster/log?after=" + before["id"].(string))["log"])
		require.Equal(s, []any{last}, w.get("/api/cluster/log?limit=1")["log"])
		require.Len(s, w.get("/api/cluster/terms?role=")["terms"], 1)
	})
}

// TestLongQueries: a query of a megabyte, of which nothing can be used, costs little more than it
// takes to read it once.
func TestLongQueries(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	c, err := tenure.New(rdb, tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	for i := range 200 {
		_, err := c.AddRole(fmt.Sprint("role-", i), tenure.ElectionOptions{})
		require.NoError(t, err)
	}
	h, err := tenurehttp.New(c, tenurehttp.Options{})
	require.NoError(t, err)
	ask := func(path string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/cluster/"+path, http.NoBody))
		require.Equal(t, http.StatusOK, w.Code, w.Body)
	}
	ask("snapshot")
	for path, parameter := range map[string]string{"snapshot?limit=0": "x", "terms?limit=0": "x"} {
		path += strings.Repeat("&"+parameter+"="+strings.Repeat("a", 90), 9990)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ask(path)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), "%.20s", path)
	}
}

// TestSlowRequests: clients that send a part of a body, or read nothing of an answer, hold up
// nobody, and take no place of a command.
func TestSlowRequests(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, operators))
		for i := range 200 {
			slow, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
			require.NoError(s, err)
			s.Cleanup(func() { _ = slow.Close() })
			text := "GET /api/cluster/snapshot HTTP/1.1\r\nHost: shop\r\n\r\n"
			if i%2 == 0 {
				text = "POST /api/cluster/undrain HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer token-of-ann\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
			}
			_, err = fmt.Fprint(slow, text)
			require.NoError(s, err)
		}
		s.pass(time.Minute)
		w.token = "token-of-ann"
		began := time.Now()
		w.get("/api/cluster/snapshot")
		w.post("undrain", `{"instance_id":"a"}`)
		require.Less(s, time.Since(began), time.Second, "of virtual time")
		require.True(s, a.IsLeader())
	})
}

// TestBodiesThatDoNotCome: who announces a body and does not send it is cut off, also without
// credentials, and where no body is read. A body that has come bounds nothing.
func TestBodiesThatDoNotCome(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, operators))
		ends := func(request string, within time.Duration) bool {
			c, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
			require.NoError(s, err)
			defer c.Close()
			_, err = fmt.Fprint(c, request)
			require.NoError(s, err)
			var over atomic.Bool
			go func() { // ends with the connection
				_, _ = io.Copy(io.Discard, c)
				over.Store(true)
			}()
			s.pass(within)
			return over.Load()
		}
		for _, head := range []string{
			"GET /readyz HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\n", "GET /api/cluster/events HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n",
			"POST /api/cluster/drain HTTP/1.1\r\nHost: shop\r\nContent-Length: 10\r\n\r\n{",
			"POST /api/cluster/drain HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer token-of-ann\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{",
		} {
			require.True(s, ends(head, time.Minute), head)
		}
		require.False(s, ends("GET /api/cluster/events HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\n\r\n{}", 10*time.Minute))
	})
}

// TestClientsThatDoNotRead: each piece of an answer has 30 s, or what the WriteTimeout of the
// server says. Who reads slowly gets all of it.
func TestClientsThatDoNotRead(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		s.redis.Do(func(m *miniredis.Miniredis) {
			for i := range 1500 {
				m.HSet("shop:instances", fmt.Sprintf("web-%0124d", i), `{"status":"active"}`) // an ID as long as one may be
			}
		})
		w, _ := s.dashboard(tenurehttp.Options{})
		timed := s.host(w.Handler, func(server *http.Server) { server.WriteTimeout = 5 * time.Second })
		ask := func(w *web) net.Conn {
			c, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
			require.NoError(s, err)
			s.Cleanup(func() { _ = c.Close() })
			_, err = fmt.Fprint(c, "GET /api/cluster/instances HTTP/1.1\r\nHost: shop\r\n\r\n")
			require.NoError(s, err)
			synctest.Wait()
			return c
		}
		cut := func(c net.Conn) bool {
			_, err := c.Read(make([]byte, 1))
			return err != nil
		}
		for _, one := range []struct {
			*web
			kept time.Duration
		}{{w, 29 * time.Second}, {timed, 4 * time.Second}} {
			early, late := ask(one.web), ask(one.web)
			s.pass(one.kept)
			require.False(s, cut(early), "%v", one.kept)
			s.pass(2 * time.Second)
			require.True(s, cut(late), "%v", one.kept)
		}
		slow := ask(w)
		answer, err := http.ReadResponse(bufio.NewReaderSize(slow, 16), nil)
		require.NoError(s, err)
		defer answer.Body.Close()
		require.Greater(s, answer.ContentLength, int64(5*64<<10))
		read := int64(0)
		for read < answer.ContentLength {
			s.pass(5 * time.Second)
			n, err := io.CopyN(io.Discard, answer.Body, min(16<<10, answer.ContentLength-read))
			require.NoError(s, err, "after %d of %d bytes", read, answer.ContentLength)
			read += n
		}
	})
}

// TestAuthorizerThatPanicsOverReads: whatever it panics with, no read is answered, and no stream
// begins; the page itself and the probes stay.
func TestAuthorizerThatPanicsOverReads(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		for _, value := range []any{"broken", http.ErrAbortHandler, new(int)} {
			w := s.serve(tenurehttp.New(a, tenurehttp.Options{GuardReads: true, Authorize: func(*http.Request, tenurehttp.Action) (string, error) { panic(value) }}))
			for _, path := range append([]string{"events", "commands", "role", "instances/a", "tasks/t", "tasks/t/runs"}, documents...) {
				w.refused(http.StatusInternalServerError, "authorizer", http.MethodGet, "/api/cluster/"+path, "")
			}
			require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/", "", "Accept", "text/html").StatusCode)
			require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/livez", "").StatusCode)
		}
	})
}

// TestForeignOrigins: no action is taken for a page of another origin, however it says where it is
// from, and whatever it sends along; nor are its reads answered so that it could read them.
func TestForeignOrigins(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, operators))
		w.token = "token-of-ann"
		for _, action := range allActions {
			for _, origin := range [][]string{
				{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://shop.evil.example"}, {"Origin", "http://shop:81"},
				{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site", "Tenure-Page", "1"},
			} {
				w.refused(http.StatusForbidden, "cross_origin", http.MethodPost, "/api/cluster/"+string(action), `{"instance_id":"a"}`, origin...)
			}
		}
		// A proxy that asks for its own name, as nginx does by default, makes a page of this server
		// look like one of another: a browser says by Sec-Fetch-Site that it is not, but only over
		// TLS.
		p := w.refused(http.StatusForbidden, "cross_origin", http.MethodPost, "/api/cluster/resign", `{}`, "Origin", "http://ops.example")
		require.Equal(s, `a page of another origin may not ask for this: the page is of "http://ops.example", and what it asks is "shop" `+
			`(fix: if a proxy before this server replaces Host, have it pass on that of the client, or list the origin of the page in Options.TrustedOrigins)`, p["detail"])
		for _, document := range documents {
			header := w.do(http.MethodGet, "/api/cluster/"+document, "", "Origin", "https://evil.example").Header
			for name := range header {
				require.NotContains(s, strings.ToLower(name), "access-control")
			}
		}
		require.Equal(s, []any{}, w.get("/api/cluster/commands")["commands"])
		require.True(s, a.IsLeader())
	})
}

// TestForeignEntriesOfTheLog: what others write to the log stops no answer, and hides nothing that
// comes behind it.
func TestForeignEntriesOfTheLog(t *testing.T) {
	inSite(t, func(s *site) {
		write := func(values ...string) {
			s.redis.Do(func(m *miniredis.Miniredis) {
				_, err := m.XAdd("shop:log", "*", values)
				require.NoError(s, err)
			})
		}
		write("event", "joined", "instances", "a")
		roles := 0
		w, _ := s.dashboard(tenurehttp.Options{})
		known := func() (ids []any) {
			s.pass(6 * time.Second)
			whole := w.get("/api/cluster/snapshot")
			require.Nil(s, whole["unread"]) // nobody is asked for what cannot be the name of a role
			for _, r := range whole["roles"].([]any) {
				require.Equal(s, "cleanup", r.(map[string]any)["role"])
			}
			require.Len(s, whole["roles"], roles)
			answer := w.get("/api/cluster/log")
			require.Equal(s, false, answer["stale"])
			for _, change := range answer["log"].([]any) {
				ids = append(ids, change.(map[string]any)["instance_id"])
			}
			return ids
		}
		require.Equal(s, []any{"a"}, known())
		write("event", "elected", "instances", "x", "role", "a:b", "token", "5")
		require.Equal(s, []any{"a", "x"}, known())
		s.redis.Do(func(m *miniredis.Miniredis) {
			for _, role := range []string{"a:b", "cleanup"} {
				require.NoError(s, m.Set("shop:leader:"+role, "y"))
			}
		})
		write("event", "elected", "instances", "y", "role", "cleanup", "token", "6")
		roles = 1
		require.Equal(s, []any{"a", "x", "y"}, known())
		for range 1100 {
			write("event", "promoted", "instances", "x")
		}
		write("event", "down", "instances", "b")
		require.Equal(s, []any{"a", "x", "y", "b"}, known())
	})
}

// TestPagesOfTheLog: who reads on behind the last change of a page gets each, also if one entry
// names several instances, or another process has named the change a moment ago.
func TestPagesOfTheLog(t *testing.T) {
	inSite(t, func(s *site) {
		write := func(values ...string) (id string) {
			s.redis.Do(func(m *miniredis.Miniredis) { id, _ = m.XAdd("shop:log", "*", values) })
			return id
		}
		first := write("event", "joined", "instances", "first")
		write("event", "down", "instances", "a b c d e")
		write("event", "joined", "instances", "last")
		w, _ := s.dashboard(tenurehttp.Options{})
		for limit := 1; limit < 8; limit++ {
			var got []string
			for after, more := first, true; more; {
				changes := w.get(fmt.Sprintf("/api/cluster/log?limit=%d&after=%s", limit, after))["log"].([]any)
				for _, change := range changes {
					got = append(got, change.(map[string]any)["instance_id"].(string))
					after = change.(map[string]any)["id"].(string)
				}
				more = len(changes) > 0
			}
			require.Equal(s, []string{"a", "b", "c", "d", "e", "last"}, got, limit)
		}
		for limit, want := range []int{0, 1, 6, 6, 6, 6, 6, 7} { // the newest, and no part of an entry
			require.Len(s, w.get(fmt.Sprintf("/api/cluster/log?limit=%d", limit))["log"], want, limit)
		}
		require.Equal(s, []any{}, w.get("/api/cluster/log?limit=0&after=" + first)["log"])
		s.pass(100 * time.Millisecond)
		require.Empty(s, w.get("/api/cluster/log?after=" + write("event", "joined", "instances", "new"))["log"])
		w.refused(http.StatusNotFound, "gone", http.MethodGet, "/api/cluster/log?after=9999999999999-0", "")
	})
}

// TestChangesThatAreMadeUp: who asks for what came after a change that nobody has seen has Redis
// asked hardly more often than who asks for nothing.
func TestChangesThatAreMadeUp(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, rdb := s.dashboard(tenurehttp.Options{})
		w.get("/api/cluster/log")
		before, began, asked := rdb.sent.Load(), time.Now(), 0
		for ; time.Since(began) < 10*time.Second; asked++ {
			w.refused(http.StatusNotFound, "gone", http.MethodGet, fmt.Sprintf("/api/cluster/log?after=9999999999999-%d", asked), "")
		}
		require.Less(s, rdb.sent.Load()-before, int64(10*4*12), "%d answers", asked)
	})
}

// TestManyRolesFarAway: what is known of a thousand roles is read in time, though each question
// takes 10 ms.
func TestManyRolesFarAway(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w, rdb := s.dashboard(tenurehttp.Options{})
		rdb.AddHook(farAway{rdb, 10 * time.Millisecond})
		s.redis.Do(func(m *miniredis.Miniredis) {
			for i := range 200 {
				_, _ = m.XAdd("shop:log", "*", []string{"event", "elected", "instances", "a", "role", fmt.Sprint("shard-", i), "token", "7"})
				m.HSet(fmt.Sprint("shop:task:t", i), "token", "1")
				_, _ = m.SAdd("shop:tasks", fmt.Sprint("t", i))
			}
		})
		answer := w.get("/api/cluster/snapshot")
		require.Equal(s, false, answer["stale"])
		require.Len(s, answer["tasks"], 200)
	})
}
