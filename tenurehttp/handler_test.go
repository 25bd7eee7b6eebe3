package tenurehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// site is a cluster in virtual time, with handlers that are served over connections in memory.
type site struct {
	*testing.T
	net   *simnet.Network
	redis *simnet.Server
}

// inSite runs a test in a bubble.
func inSite(t *testing.T, act func(*site)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &site{T: t, net: simnet.New(simnet.Options{})}
		t.Cleanup(s.net.Close)
		s.redis = s.net.NewServer(simnet.Addr, simnet.ServerOptions{})
		act(s)
	})
}

// client counts what it sends.
type client struct {
	*redis.Client
	sent atomic.Int64
}

func (c *client) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *client) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.sent.Add(1); return next(ctx, cmd) }
}

func (c *client) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.sent.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

func (s *site) client(host string) *client {
	c := &client{Client: s.net.Client(host, nil)}
	c.AddHook(c)
	return c
}

// farAway is a hook that delays what a client sends.
type farAway struct {
	redis.Hook
	roundTrip time.Duration
}

func (f farAway) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(f.roundTrip) // virtual time
		return next(ctx, cmd)
	}
}

// member starts a coordinator.
func (s *site) member(id string, change ...func(*tenure.Options)) *tenure.Coordinator {
	s.Helper()
	o := tenure.Options{Namespace: "shop", InstanceID: id}
	for _, c := range change {
		c(&o)
	}
	c, err := tenure.New(s.client(id).Client, o)
	require.NoError(s, err)
	s.run(c)
	return c
}

// run runs a coordinator until the test ends, or stop is called.
func (s *site) run(c *tenure.Coordinator) (stop func()) {
	s.Helper()
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() { _ = c.Run(ctx) }) // ends with cancel
	stop = func() { cancel(); running.Wait() }
	s.Cleanup(stop)
	s.until(func() bool { return c.State() == tenure.InstanceActive })
	return stop
}

// until passes the time until something is so.
func (s *site) until(reached func() bool) {
	s.Helper()
	for range 100_000 {
		synctest.Wait()
		if reached() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Fatal("it does not come")
}

// pass passes time.
func (s *site) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// pipes is a listener in memory.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipes() *pipes { return &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// accepted is the end of the server.
type accepted struct{ net.Conn }

func (accepted) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000} }

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- accepted{server}:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// serve serves a handler.
func (s *site) serve(h *tenurehttp.Handler, err error) *web {
	s.Helper()
	require.NoError(s, err)
	w := s.host(h)
	w.Handler = h
	w.server.RegisterOnShutdown(h.Close)
	s.Cleanup(h.Close)
	return w
}

// host serves any handler.
func (s *site) host(h http.Handler, change ...func(*http.Server)) *web {
	p := newPipes()
	w := &web{T: s.T, url: "http://shop", server: &http.Server{Handler: h, ReadHeaderTimeout: patience}, client: &http.Transport{DialContext: p.dial}}
	for _, c := range change {
		c(w.server)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = w.server.Serve(p) }) // ends with Close
	s.Cleanup(func() {
		w.client.CloseIdleConnections()
		_ = w.server.Close()
		serving.Wait()
	})
	return w
}

// dashboard serves the site from a process that takes no part.
func (s *site) dashboard(o tenurehttp.Options) (*web, *client) {
	s.Helper()
	rdb := s.client("dashboard")
	control, err := tenure.NewControl(rdb.Client, tenure.ControlOptions{Namespace: "shop"})
	require.NoError(s, err)
	return s.serve(tenurehttp.NewDashboard(control, o)), rdb
}

// web is a handler that is served, and how it is asked.
type web struct {
	*testing.T
	*tenurehttp.Handler
	url    string
	server *http.Server
	client *http.Transport
	token  string
}

// answer is what came back.
type answer struct {
	*http.Response
	body string
}

func (w *web) do(method, path, body string, header ...string) answer {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 10*time.Minute) // an answer without an end is none
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
	require.NoError(w, err)
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := w.client.RoundTrip(r)
	require.NoError(w, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w, err)
	return answer{response, string(text)}
}

// get reads a document.
func (w *web) get(path string) map[string]any {
	w.Helper()
	a := w.do(http.MethodGet, path, "")
	require.Equal(w, http.StatusOK, a.StatusCode, "%s: %s", path, a.body)
	return w.object(a.body)
}

func (w *web) object(text string) map[string]any {
	w.Helper()
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.UseNumber()
	require.NoError(w, d.Decode(&object), text)
	return object
}

// refused asks for something, and expects a problem.
func (w *web) refused(status int, code, method, path, body string, header ...string) map[string]any {
	w.Helper()
	a := w.do(method, path, body, header...)
	require.Equal(w, status, a.StatusCode, "%s %s: %s", method, path, a.body)
	require.Equal(w, "application/problem+json", a.Header.Get("Content-Type"))
	p := w.object(a.body)
	require.Equal(w, code, p["code"], a.body)
	require.Equal(w, http.StatusText(status), p["title"])
	require.Equal(w, "about:blank", p["type"])
	require.Equal(w, json.Number(strconv.Itoa(status)), p["status"])
	require.NotEmpty(w, p["detail"])
	return p
}

// fields are the names and kinds of an object, as one line.
func fields(object map[string]any, names ...string) string {
	var line []string
	for _, name := range names {
		value, there := object[name]
		switch {
		case !there:
			line = append(line, name+" missing")
		case value == nil:
			line = append(line, name+" null")
		default:
			text, err := json.Marshal(value)
			line = append(line, name+" "+strings.TrimSuffix(string(text)+" "+fmt.Sprint(err), " <nil>"))
		}
	}
	return strings.Join(line, ", ")
}
