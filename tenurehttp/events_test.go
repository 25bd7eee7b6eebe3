package tenurehttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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

// listener collects what a client of the events gets.
type listener struct {
	mu     sync.Mutex
	lines  []string // of each event: its name and what it is about
	last   string   // ID
	pings  int
	ended  bool
	cancel context.CancelFunc
}

// listen follows the events from an ID on.
func (w *web) listen(after string) *listener {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener{cancel: cancel}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+"/api/cluster/events", nil)
	require.NoError(w, err)
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	response, err := w.client.RoundTrip(r)
	require.NoError(w, err)
	require.Equal(w, http.StatusOK, response.StatusCode)
	require.Equal(w, "text/event-stream", response.Header.Get("Content-Type"))
	var reading sync.WaitGroup
	reading.Go(func() { // ends with cancel, or by the server
		defer response.Body.Close()
		l.read(bufio.NewScanner(response.Body))
	})
	w.Cleanup(func() { cancel(); reading.Wait() })
	synctest.Wait()
	return l
}

func (l *listener) read(lines *bufio.Scanner) {
	name, id := "", ""
	for lines.Scan() {
		l.mu.Lock()
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "":
			if value == "ping" {
				l.pings++
			}
		case "event":
			name = value
		case "id":
			id = value
		case "data":
			var change tenure.Change
			if err := json.Unmarshal([]byte(value), &change); err != nil {
				name = err.Error()
			}
			l.lines, l.last = append(l.lines, strings.TrimSpace(name+" "+strings.TrimPrefix(string(change.Type), "snapshot")+" "+change.InstanceID)), id
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// news are the events since it was last asked.
func (l *listener) news() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

func (l *listener) at() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *listener) pinged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pings
}

func (l *listener) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// TestEventsOfWhoMayNotReadAnyMore: with GuardReads a stream ends within a minute after its client
// has lost the right to read. If reads are open, nobody is asked.
func TestEventsOfWhoMayNotReadAnyMore(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		var revoked, asked atomic.Int64
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{GuardReads: true, Authorize: func(_ *http.Request, action tenurehttp.Action) (string, error) {
			if action != tenurehttp.ActionRead || revoked.Load() != 0 {
				return "", &tenurehttp.ChallengeError{Challenge: "Bearer"}
			}
			asked.Add(1)
			return "ann", nil
		}}))
		l := w.listen("")
		s.pass(150 * time.Second)
		require.False(s, l.over())
		require.EqualValues(s, 3, asked.Load(), "at the beginning, and once a minute")
		revoked.Store(1)
		s.pass(time.Minute)
		require.True(s, l.over())

		open := s.serve(tenurehttp.New(a, tenurehttp.Options{Authorize: func(*http.Request, tenurehttp.Action) (string, error) {
			return "", &tenurehttp.ChallengeError{Challenge: "Bearer"}
		}}))
		l = open.listen("")
		s.pass(150 * time.Second)
		require.False(s, l.over(), "reads are open")
	})
}

// TestEvents: where the stream begins, then each change within milliseconds, and after a break
// exactly what was missed.
func TestEvents(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		b := s.member("b")
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{}))
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		require.Equal(s, []string{"snapshot"}, l.news())
		require.NoError(s, a.Elector().Transfer(s.Context(), "b"))
		s.pass(100 * time.Millisecond)
		require.Equal(s, []string{"change ended a", "change elected b"}, l.news())

		at := l.at()
		l.cancel()
		s.pass(time.Second)
		require.NoError(s, b.Drain(s.Context()))
		s.pass(time.Second)
		l = w.listen(at)
		s.pass(time.Second)
		missed := l.news()
		require.ElementsMatch(s, []string{"change draining b", "change ended b", "change elected a"}, missed)
		s.pass(time.Minute)
		require.Empty(s, l.news())
		require.GreaterOrEqual(s, l.pings, 3)

		strange := w.listen("1-1+x; 9999999999999999999999-0")
		s.pass(time.Second)
		require.Equal(s, []string{"snapshot"}, strange.news(), "what it names is not there")
	})
}

// TestEventsOfOneEntry: an entry of the log about several instances is several events, and a client
// may come back between them.
func TestEventsOfOneEntry(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		l.news()
		s.redis.Do(func(m *miniredis.Miniredis) {
			_, _ = m.XAdd("shop:log", "*", []string{"event", "drifted", "instances", "x y z"})
		})
		s.pass(10 * time.Second)
		require.Equal(s, []string{"change drifted x", "change drifted y", "change drifted z"}, l.news())
		id := l.at()
		require.True(s, strings.HasSuffix(id, "+2"), id)
		for suffix, want := range map[string][]string{"": {"change drifted y", "change drifted z"}, "+1": {"change drifted z"}, "+2": nil, "+3": {"snapshot"}} {
			again := w.listen(strings.TrimSuffix(id, "+2") + suffix)
			s.pass(time.Second)
			require.Equal(s, want, again.news(), suffix)
		}
	})
}

// TestEventsAfterALossOfData: every client is told to begin anew.
func TestEventsAfterALossOfData(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		l.news()
		s.redis.Do(func(m *miniredis.Miniredis) {
			m.Del("shop:log")
			_, _ = m.XAdd("shop:log", "*", []string{"event", "joined", "instances", "x"})
		})
		s.pass(time.Minute)
		require.Equal(s, "snapshot", l.news()[0])
		s.redis.Do(func(m *miniredis.Miniredis) {
			_, _ = m.XAdd("shop:log", "*", []string{"event", "joined", "instances", "y"})
		})
		s.pass(10 * time.Second)
		require.Equal(s, []string{"change joined y"}, l.news())
	})
}

// TestEventsCostOneWatch: a hundred clients cost Redis what one costs; and nothing is asked once
// the last has left.
func TestEventsCostOneWatch(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, rdb := s.dashboard(tenurehttp.Options{})
		cost := func(clients int) int64 {
			before := rdb.sent.Load()
			var all []*listener
			for range clients {
				all = append(all, w.listen(""))
			}
			s.pass(time.Minute)
			for _, l := range all {
				l.cancel()
			}
			s.pass(time.Minute)
			return rdb.sent.Load() - before
		}
		cost(1)
		one := cost(1)
		require.Positive(s, one)
		require.InDelta(s, one, cost(100), 1)
		require.Zero(s, cost(0))
	})
}

// TestEventsAreCapped: one more than MaxStreams is refused, until another leaves.
func TestEventsAreCapped(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{MaxStreams: 2}))
		first := w.listen("")
		w.listen("")
		w.refused(http.StatusServiceUnavailable, "busy", http.MethodGet, "/api/cluster/events", "")
		require.Equal(s, http.StatusOK, w.do(http.MethodHead, "/api/cluster/events", "").StatusCode)
		first.cancel()
		s.pass(time.Second)
		w.listen("")
	})
}

// TestEventsEndWithTheHandler: Shutdown of the server does not wait for them.
func TestEventsEndWithTheHandler(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{}))
		l := w.listen("")
		require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/readyz", "").StatusCode)
		w.Handler.Close()
		s.pass(time.Millisecond)
		require.True(s, l.over())
		require.True(s, a.IsLeader())
		require.Equal(s, http.StatusServiceUnavailable, w.do(http.MethodGet, "/leaderz", "").StatusCode)
		require.Equal(s, http.StatusServiceUnavailable, w.do(http.MethodGet, "/readyz", "").StatusCode)
		require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/livez", "").StatusCode)
		w.refused(http.StatusServiceUnavailable, "stopped", http.MethodGet, "/api/cluster/events", "")
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.NoError(s, w.server.Shutdown(ctx))
	})
}

// TestSlowClient: one that reads nothing is given up after a while, and holds up nobody.
func TestSlowClient(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{MaxStreams: 2})
		slow, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
		require.NoError(s, err)
		defer slow.Close()
		_, err = fmt.Fprint(slow, "GET /api/cluster/events HTTP/1.1\r\nHost: shop\r\n\r\n")
		require.NoError(s, err)
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		l.news()
		s.redis.Do(func(m *miniredis.Miniredis) {
			_, _ = m.XAdd("shop:log", "*", []string{"event", "joined", "instances", "x"})
		})
		s.pass(9 * time.Second)
		require.Equal(s, []string{"change joined x"}, l.news())
		w.refused(http.StatusServiceUnavailable, "busy", http.MethodGet, "/api/cluster/events", "")
		s.pass(10 * time.Second)
		w.listen("") // its place is free
		buffer := make([]byte, 1)
		_, err = slow.Read(buffer)
		require.Error(s, err)
		require.NotErrorIs(s, err, context.DeadlineExceeded)
	})
}

// TestStreamThatIsStuckEndsWithTheHandler: a client that reads nothing holds up no stop either.
func TestStreamThatIsStuckEndsWithTheHandler(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{}))
		slow, err := w.client.DialContext(s.Context(), "tcp", "shop:80")
		require.NoError(s, err)
		defer slow.Close()
		_, err = fmt.Fprint(slow, "GET /api/cluster/events HTTP/1.1\r\nHost: shop\r\n\r\n")
		require.NoError(s, err)
		l := w.listen("") // beside one that reads
		s.pass(2 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
		defer cancel()
		began := time.Now()
		require.NoError(s, w.server.Shutdown(ctx))
		require.Less(s, time.Since(began), 2*time.Second)
		require.True(s, l.over())
	})
}

// TestEventsOverHTTP2: a stream on which nothing happens goes on, though each write has a deadline.
func TestEventsOverHTTP2(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		h, err := tenurehttp.New(a, tenurehttp.Options{})
		require.NoError(s, err)
		s.Cleanup(h.Close)
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		w := s.host(h, func(server *http.Server) { server.Protocols = &protocols })
		w.client.Protocols = &protocols
		l := w.listen("")
		s.pass(10 * time.Minute)
		l.mu.Lock()
		defer l.mu.Unlock()
		require.False(s, l.ended)
		require.GreaterOrEqual(s, l.pings, 30)
	})
}

// TestEventsThatCannotBeFlushed: behind a middleware that holds answers back the client is told
// so, in place of a stream that says nothing.
func TestEventsThatCannotBeFlushed(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		h, err := tenurehttp.New(a, tenurehttp.Options{MaxStreams: 1})
		require.NoError(s, err)
		s.Cleanup(h.Close)
		w := s.host(http.TimeoutHandler(h, time.Minute, "too late"))
		for range 2 { // it takes no place
			p := w.refused(http.StatusInternalServerError, "misconfigured", http.MethodGet, "/api/cluster/events", "")
			require.Contains(s, p["detail"], "http.TimeoutHandler")
		}
	})
}

// TestSignsOfLife: a client is told every 15 s that the connection stands, whether Redis is away or
// not. While the log cannot be read from the start on that is an event, since nothing else says
// that there may be changes.
func TestSignsOfLife(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		l.news()
		s.net.Partition("dashboard", simnet.Both, 0)
		s.pass(time.Minute + time.Second)
		require.Empty(s, l.news())
		require.Equal(s, 4, l.pinged())

		w, _ = s.dashboard(tenurehttp.Options{}) // a process that has never had an answer
		l = w.listen("1-0")
		s.pass(time.Minute + time.Second)
		require.Equal(s, []string{"snapshot", "snapshot", "snapshot", "snapshot"}, l.news())
		s.net.Heal("dashboard")
		s.until(func() bool { return l.at() != "" })
		require.Equal(s, []string{"snapshot"}, l.news())
		s.pass(time.Minute)
		require.Empty(s, l.news())
		require.Equal(s, 4, l.pinged())
		require.False(s, l.over())
	})
}
