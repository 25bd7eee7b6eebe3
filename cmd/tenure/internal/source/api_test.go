package source

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// serve serves what somebody says who may be no API at all, and returns a client of it.
func serve(t *testing.T, o APIOptions, handler http.HandlerFunc) (*API, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	o.URL = server.URL + "/tenure/"
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	a, err := NewAPI(o)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a, server
}

func writeDocument(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// TestAuthoritiesOfAPI: an API with a certificate of a private authority is trusted by that.
func TestAuthoritiesOfAPI(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeDocument(w, `{"namespace":"shop"}`) }))
	defer server.Close()
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	ask := func(authorities *x509.CertPool) error {
		a, err := NewAPI(APIOptions{URL: server.URL, Authorities: authorities, Timeout: time.Minute})
		require.NoError(t, err)
		defer a.Close()
		return a.get(context.Background(), "snapshot", nil, new(map[string]any))
	}
	require.NoError(t, ask(trusted))
	require.ErrorContains(t, ask(nil), "signed by unknown authority (fix: have TENURE_API_CA_FILE name")
}

// TestHostileAPI: whatever a server says comes back as an error within the context, with a fix.
func TestHostileAPI(t *testing.T) {
	deep := strings.Repeat(`{"status":`, 20_000)
	for name, c := range map[string]struct {
		says func(w http.ResponseWriter, r *http.Request)
		want string
	}{
		"a page": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>log in</html>")
		}, `answers 200 OK with "text/html" (fix: --api must end with the prefix`},
		"nothing": {func(http.ResponseWriter, *http.Request) {}, `answers 200 OK with "" (fix: `},
		"an error without a problem": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) },
			"answers 502 Bad Gateway"},
		"no JSON":    {func(w http.ResponseWriter, _ *http.Request) { writeDocument(w, "{") }, "does not understand"},
		"wrong kind": {func(w http.ResponseWriter, _ *http.Request) { writeDocument(w, `{"status":[1]}`) }, "does not understand"},
		"deep":       {func(w http.ResponseWriter, _ *http.Request) { writeDocument(w, deep) }, "all but empty"},
		"a time beyond all": {func(w http.ResponseWriter, _ *http.Request) {
			writeDocument(w, `{"status":{"led":true,"leader":{"since":"99999-01-01T00:00:00Z"}}}`)
		}, "does not understand"},
		"cut": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			writeDocument(w, `{"a`)
		}, "gives no answer: unexpected EOF"},
		"without an end": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for chunk := []byte(strings.Repeat(" ", 1<<16)); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "answers with more than 64 MiB"},
		"a long problem": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintf(w, `{"code":"no_leader","detail":"%s"}`, strings.Repeat("x", 5000))
		}, "xxx…"},
		"another server": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.invalid"+r.URL.Path, http.StatusTemporaryRedirect)
		}, "sends to http://evil.invalid, which is another server"},
		"round and round": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "redirects (fix: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _ := serve(t, APIOptions{}, c.says)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := a.Leader(ctx, "")
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 2000)
		})
	}
}

// TestNamesInPaths: a name arrives as it is, below the prefix of the API.
func TestNamesInPaths(t *testing.T) {
	var path, raw string
	a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
		path, raw = r.URL.Path, r.URL.EscapedPath()
		writeDocument(w, "{}")
	})
	a.base.Path = "/a b"
	for name, escaped := range map[string]string{"web-1:8080": "web-1:8080", "a b": "a%20b", "a%20b": "a%2520b", "a/b": "a%2Fb", "é?#": "%C3%A9%3F%23"} {
		_, err := a.Instance(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, "/a b/api/cluster/instances/"+name, path)
		require.Equal(t, "/a%20b/api/cluster/instances/"+escaped, raw)
		_, err = a.Runs(t.Context(), name, 1)
		require.NoError(t, err)
		require.Equal(t, "/a b/api/cluster/tasks/"+name+"/runs", path)
	}
}

// TestAPIThatIsSlow: the context of a question bounds it, whatever has come until then.
func TestAPIThatIsSlow(t *testing.T) {
	a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
		writeDocument(w, "{")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, fmt.Errorf("%w: no answer within a moment", tenure.ErrUnreachable))
	defer cancel()
	_, err := a.Leader(ctx, "")
	require.ErrorIs(t, err, tenure.ErrUnreachable)
}

// TestCredentialsAreForOneServer: nobody else gets them, and they are in no message.
func TestCredentialsAreForOneServer(t *testing.T) {
	var elsewhere sync.Map
	_, other := serve(t, APIOptions{}, func(_ http.ResponseWriter, r *http.Request) { elsewhere.Store(r.Method, r.Header.Get("Authorization")) })
	for _, c := range []Credentials{{Token: "s3cret"}, {User: "ann", Password: "s3cret"}} {
		var got string
		a, _ := serve(t, APIOptions{Credentials: c}, func(w http.ResponseWriter, r *http.Request) {
			got = r.Header.Get("Authorization")
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
		_, err := a.Leader(t.Context(), "")
		require.ErrorContains(t, err, "another server")
		require.NotContains(t, err.Error(), "s3cret")
		require.NotEmpty(t, got)
		require.ErrorContains(t, a.ResignTerm(t.Context(), "", 7), "another server")
	}
	elsewhere.Range(func(method, header any) bool {
		t.Errorf("the other server got %v with %q", method, header)
		return true
	})
	for _, at := range []string{"http://ann:s3cret@host/", "http://host/?token=s3cret", "http://host/#s3cret", "host:80", "ftp://s3cret", "http://\x7f"} {
		_, err := NewAPI(APIOptions{URL: at})
		require.Error(t, err, at)
		require.NotContains(t, err.Error(), "s3cret")
	}
	_, err := NewAPI(APIOptions{URL: "http://host", Credentials: Credentials{Token: "a", User: "b"}})
	require.Error(t, err)
}

// TestSecretsOfEachQuestion: a secret may be another one by now.
func TestSecretsOfEachQuestion(t *testing.T) {
	for want, c := range map[string]Credentials{"Bearer ": {Token: "old"}, "Basic ": {User: "ann", Password: "old"}} {
		var got []string
		secret := "first"
		a, _ := serve(t, APIOptions{Credentials: c, Secrets: func() (token, password string) {
			if c.User != "" {
				return "", secret
			}
			return secret, ""
		}}, func(w http.ResponseWriter, r *http.Request) {
			_, password, _ := r.BasicAuth()
			got = append(got, cmp.Or(password, strings.TrimPrefix(r.Header.Get("Authorization"), want)))
			w.WriteHeader(http.StatusUnauthorized)
		})
		_, err := a.Leader(t.Context(), "")
		require.Error(t, err)
		secret = "second"
		_, err = a.Leader(t.Context(), "")
		require.Error(t, err)
		require.Equal(t, []string{"first", "second"}, got, want)
	}
}

// TestAPIErrors: the words of the API become the errors of the library, and what is unclear says
// how to go on.
func TestAPIErrors(t *testing.T) {
	for code, want := range map[string]string{
		"unauthenticated": "TENURE_API_TOKEN", "forbidden": "Options.Authorize", "no_endpoint": "takes no commands", "unreachable": "has had no answer from redis: x", "busy": "x",
	} {
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"code":%q,"detail":"x"}`, code)
		})
		require.ErrorContains(t, a.Drain(t.Context(), "a"), want, code)
	}
	for code, want := range kinds {
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintf(w, `{"code":%q,"detail":"x"}`, code)
		})
		require.ErrorIs(t, a.Drain(t.Context(), "a"), want)
	}
	require.Equal(t, tenure.ErrUnreachable, kinds["interrupted"], "what was asked for may have been done")
}

// TestEndOfACommand: it is waited for, and its end is the error that the instance has said.
func TestEndOfACommand(t *testing.T) {
	for _, c := range []struct {
		record string
		want   error
		says   string
	}{
		{`"state":"done"`, nil, ""},
		{`"state":"expired","instance_id":"a"`, tenure.ErrNotTaken, "instance a has not taken it in time"},
		{`"state":"failed","code":"not_ready","instance_id":"a","error":"no"`, tenure.ErrNotReady, "instance a says: no"},
		{`"state":"failed","code":"something new","error":"no"`, tenure.ErrCommandFailed, "no"},
		{`"state":"who knows"`, tenure.ErrUnreachable, "who knows"},
	} {
		asked := 0
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
			switch asked++; {
			case r.Method == http.MethodPost:
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, `{"id":"ABC","state":"asked"}`)
			case asked == 2:
				writeDocument(w, `{"command":{"id":"ABC","state":"asked"},"age_seconds":0,"stale":false}`)
			case asked == 3:
				http.Error(w, "a proxy has a bad moment", http.StatusBadGateway)
			default:
				writeDocument(w, `{"command":{"id":"ABC",`+c.record+`}}`)
			}
		})
		err := a.Drain(t.Context(), "a")
		require.ErrorIs(t, err, c.want)
		if c.want != nil {
			require.ErrorContains(t, err, c.says)
		}
		require.Equal(t, 4, asked)
	}
}

// TestStaleAnswer: the last answer comes with its age, and counts for no command and no wait.
func TestStaleAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posted := false
		a, err := NewAPI(APIOptions{URL: "http://a", Timeout: time.Minute, Transport: answers(func(r *http.Request) (string, error) {
			posted = posted || r.Method == http.MethodPost
			return `{"status":{"led":true,"leader":{"instance_id":"a","remaining_seconds":-1,"token":7}},"active_instances":9,"age_seconds":14.2,"stale":true,"error":"tenure: redis gave no usable answer"}`, nil
		})})
		require.NoError(t, err)
		leader, err := a.Leader(t.Context(), "")
		var stale *StaleError
		require.ErrorAs(t, err, &stale)
		require.EqualError(t, err, "this is the answer of 14s ago: redis gave no usable answer")
		require.ErrorIs(t, err, tenure.ErrUnreachable)
		require.Equal(t, tenure.LeaderInfo{InstanceID: "a", Token: 7, Remaining: -time.Second}, leader)
		require.ErrorIs(t, a.Ready(t.Context()), tenure.ErrUnreachable)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		err = a.WaitFor(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, tenure.ErrUnreachable, "how many are active is not known")
		require.False(t, posted)
	})
}

// answers stands in for a server.
type answers func(*http.Request) (string, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	text, err := a(r)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), Request: r,
	}, nil
}

// TestWaitForBesideAQuestionThatHangs: a process that stands still does not keep others of the same
// address from being asked, and who stops waiting hears that the last question had no answer.
func TestWaitForBesideAQuestionThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, comesBack := range []bool{true, false} {
			asked := 0
			a, err := NewAPI(APIOptions{URL: "http://a", Timeout: 3 * time.Second, Transport: answers(func(r *http.Request) (string, error) {
				switch asked++; {
				case asked == 1:
					return `{"active_instances":1}`, nil
				case asked == 2 || !comesBack:
					<-r.Context().Done()
					return "", r.Context().Err()
				}
				return `{"active_instances":2}`, nil
			})})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err = a.WaitFor(ctx, 2)
			cancel()
			if comesBack {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, tenure.ErrUnreachable)
		}
	})
}

// TestFollowComesBack: a stream that is cut begins again behind the last change, what a new one may
// have missed is read from the log, and nothing comes twice.
func TestFollowComesBack(t *testing.T) {
	change := func(id string) string { return fmt.Sprintf(`{"id":%q,"type":"joined","instance_id":%q}`, id, "i"+id) }
	var mu sync.Mutex
	var from []string
	a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/log") {
			writeDocument(w, `{"log":[`+change("4-0")+`,`+change("5-0")+`]}`)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		from = append(from, r.Header.Get("Last-Event-ID"))
		if len(from) == 3 {
			http.Error(w, "a proxy has a bad moment", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		event := func(name, id, data string) { _, _ = fmt.Fprintf(w, "event: %s\nid: %s\ndata: %s\n\n", name, id, data) }
		_, _ = io.WriteString(w, "retry: 1\n\n")
		switch len(from) {
		case 1:
			event("change", "2-0", change("2-0"))
			event("change", "2-0+1", change("2-0"))
			event("change", "no\x01sense", `[`)
			event("what is this", "", "")
		case 2: // another process, which does not know the last one
			event("snapshot", "5-0", "{}")
			event("change", "5-0", change("5-0"))
		case 4:
			event("change", "6-0", change("6-0"))
		default:
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	a.minReturn = 0 // as quickly as the server says
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got, said []string
	a.Follow(ctx, "1-0", func(changes []tenure.Change) {
		for _, c := range changes {
			if got = append(got, c.ID); c.ID == "6-0" {
				cancel()
			}
		}
	}, func(problem string) { said = append(said, problem) })
	require.Equal(t, []string{"2-0", "2-0", "4-0", "5-0", "6-0"}, got)
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, []string{"1-0", "2-0+1", "5-0", "5-0"}, from)
	require.Len(t, said, 1)
	require.Contains(t, said[0], "502 Bad Gateway")
}

// TestFollowCutWithinAnEntry: the changes of one entry of the log have one ID. A client that was
// cut between them reads the rest from the log, and what it has got does not come twice.
func TestFollowCutWithinAnEntry(t *testing.T) {
	change := func(id, instance string) string {
		return fmt.Sprintf(`{"id":%q,"type":"drifted","instance_id":%q}`, id, instance)
	}
	log := map[string]string{"1-0": change("1-0", "a"), "2-0": change("2-0", "b") + "," + change("2-0", "c") + "," + change("2-0", "d"), "3-0": change("3-0", "e")}
	for name, tt := range map[string]struct {
		began string // what the client has had before
		sent  []string
		want  string
	}{
		"between":            {"1-0", []string{"b"}, "b c d e"},
		"later":              {"1-0", []string{"b", "c"}, "b c d e"},
		"at its end":         {"1-0", []string{"b", "c", "d"}, "b c d e"},
		"the first that is":  {"", []string{"b"}, "b c d e"}, // of a log that was empty
		"before":             {"1-0", nil, "b c d e"},
		"one that is not it": {"0-9", []string{"b"}, "b c d e"}, // which is gone from the log
	} {
		t.Run(name, func(t *testing.T) {
			var streams atomic.Int32
			a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/log") {
					var rest []string
					after := r.URL.Query().Get("after")
					if after != "" && log[after] == "" {
						w.Header().Set("Content-Type", "application/problem+json")
						w.WriteHeader(http.StatusNotFound)
						_, _ = io.WriteString(w, `{"code":"gone","detail":"it is not kept any more"}`)
						return
					}
					for _, id := range []string{"1-0", "2-0", "3-0"} {
						if id > after {
							rest = append(rest, log[id])
						}
					}
					writeDocument(w, `{"log":[`+strings.Join(rest, ",")+`]}`)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "retry: 1\n\n")
				if streams.Add(1) > 1 { // another process, which does not know it
					_, _ = io.WriteString(w, "event: snapshot\nid: 3-0\ndata: {}\n\n")
					return
				}
				for i, instance := range tt.sent {
					_, _ = fmt.Fprintf(w, "event: change\nid: 2-0+%d\ndata: %s\n\n", i, change("2-0", instance))
				}
			})
			a.minReturn = 0
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var got []string
			a.Follow(ctx, tt.began, func(changes []tenure.Change) {
				for _, c := range changes {
					if got = append(got, c.InstanceID); c.ID == "3-0" {
						cancel()
					}
				}
			}, func(string) {})
			require.Equal(t, tt.want, strings.Join(got, " "))
		})
	}
}

// TestFollowSaysOnceWhatIsGone: that changes may be missing is said once, however often a stream of
// an API whose log is empty begins again.
func TestFollowSaysOnceWhatIsGone(t *testing.T) {
	var streams atomic.Int32
	a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("after") {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"code":"gone","detail":"it is not kept any more"}`)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/log") {
			writeDocument(w, `{"log":[]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "retry: 1\n\nevent: snapshot\nid:\ndata: {}\n\n")
		if streams.Add(1) > 3 {
			_, _ = io.WriteString(w, "event: change\nid: 2-0\ndata: {\"id\":\"2-0\",\"type\":\"joined\"}\n\n")
		}
	})
	a.minReturn = 0
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got, said []string
	a.Follow(ctx, "1-0", func(changes []tenure.Change) {
		got = append(got, changes[0].ID)
		cancel()
	}, func(problem string) { said = append(said, problem) })
	require.Equal(t, []string{"2-0"}, got)
	require.Equal(t, []string{missing}, said)
}

// TestRetryIsBounded: a server has a client wait, but neither for ever nor hardly at all.
func TestRetryIsBounded(t *testing.T) {
	a, err := NewAPI(APIOptions{URL: "http://shop"})
	require.NoError(t, err)
	for line, want := range map[string]time.Duration{
		"retry: 1": 500 * time.Millisecond, "retry:499": 500 * time.Millisecond, "retry: 501": 501 * time.Millisecond, "retry: 5000": 5 * time.Second,
		"retry: 9223372036854775807": 30 * time.Second, "retry: 0": comeBack, "retry: -1": comeBack, "retry: soon": comeBack, "data: 1": comeBack,
	} {
		s := stream{API: a, retry: comeBack}
		s.setRetry(line)
		require.Equal(t, want, s.retry, line)
	}
}

// TestManyInstances: all pages are read, each instance once.
func TestManyInstances(t *testing.T) {
	a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
		var offset int
		_, _ = fmt.Sscan(r.URL.Query().Get("offset"), &offset)
		var items []string
		for i := offset; i < min(offset+1000, 2500); i++ {
			items = append(items, fmt.Sprintf(`{"instance_id":"i%05d","state":"active","age_seconds":1.5}`, max(i-i/1000, 0))) // a page begins with the last one of the page before
		}
		writeDocument(w, `{"instances":{"matched":2500,"items":[`+strings.Join(items, ",")+`]},"age_seconds":0}`)
	})
	all, err := a.Instances(t.Context(), []tenure.InstanceState{tenure.InstanceActive})
	require.NoError(t, err)
	require.Len(t, all, 2498)
	require.Equal(t, 1500*time.Millisecond, all[0].Age)
}

// TestServerThatSaysTooMuch: what a server says is bounded in an error, in memory and in time.
func TestServerThatSaysTooMuch(t *testing.T) {
	t.Run("error of a command", func(t *testing.T) {
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			writeDocument(w, `{"id":"x","state":"failed","code":"x","error":"`+strings.Repeat("x", 5<<20)+`"}`)
		})
		require.Less(t, len(a.Drain(t.Context(), "b").Error()), 10_000)
	})
	t.Run("status line", func(t *testing.T) {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = listener.Close() }()
		go func() { // ends with the listener
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = io.WriteString(conn, "HTTP/1.1 404 \x1b]0;me\a"+strings.Repeat("A", 60_000)+"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				_ = conn.Close()
			}
		}()
		a, err := NewAPI(APIOptions{URL: "http://" + listener.Addr().String()})
		require.NoError(t, err)
		defer a.Close()
		_, err = a.Leader(t.Context(), "")
		require.ErrorContains(t, err, "404")
		require.NotContains(t, err.Error(), "\x1b")
		require.Less(t, len(err.Error()), 1000)
	})
	t.Run("header", func(t *testing.T) {
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 128<<10))
			writeDocument(w, "{}")
		})
		_, err := a.Leader(t.Context(), "")
		require.ErrorContains(t, err, "headers exceeded 65536 bytes")
	})
	t.Run("elements without anything in them", func(t *testing.T) {
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			writeDocument(w, `{"roles":[{}`+strings.Repeat(",{}", 1<<20)+`]}`)
		})
		_, err := a.Cluster(t.Context())
		require.ErrorContains(t, err, "all but empty")
		a, _ = serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			writeDocument(w, `{"roles":[null`+strings.Repeat(",null", 1<<20)+`]}`)
		})
		_, err = a.Cluster(t.Context())
		require.ErrorContains(t, err, "all but empty")
	})
	t.Run("a proxy without an answer", func(t *testing.T) {
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "later", http.StatusGatewayTimeout) })
		require.ErrorIs(t, a.Drain(t.Context(), "b"), tenure.ErrUnreachable, "it may have been done")
	})
	t.Run("return after 300,000 years", func(t *testing.T) {
		s := stream{API: &API{minReturn: minReturn}}
		s.setRetry("retry: 9223372036854775")
		require.Equal(t, maxReturn, s.retry)
	})
}

// TestCommandThatMustNotBeRead: who may ask and not read hears that it was accepted, at once, and
// so does who asks an API that lacks a right in Redis, with the fix. Who is answered by a process
// that has not seen the command yet waits for it.
func TestCommandThatMustNotBeRead(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		want   string
	}{
		{http.StatusForbidden, "forbidden", "must not be read"},
		{http.StatusUnauthorized, "unauthenticated", "must not be read"},
		{http.StatusInternalServerError, "misconfigured", "cannot be read: NOPERM (fix: +xrevrange)"},
		{http.StatusNotFound, "not_found", ""},
	} {
		t.Run(tt.code, func(t *testing.T) {
			looks := 0
			a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					writeDocument(w, `{"id":"x","state":"asked"}`)
					return
				}
				if looks++; looks > 2 && tt.want == "" {
					writeDocument(w, `{"command":{"id":"x","state":"done"}}`)
					return
				}
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, `{"code":"`+tt.code+`","detail":"NOPERM (fix: +xrevrange)"}`)
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := a.Drain(ctx, "b")
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.ErrorIs(t, err, tenure.ErrUnreachable, "what became of it is not known")
		})
	}
}
