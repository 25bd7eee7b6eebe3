package source

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// streams stands in for the server of a stream of events: each that is asked for is written by the
// next function, and ends with it. All other questions get an answer at once; "" is that of a
// proxy, as if other is nil.
type streams struct {
	next  []func(w io.Writer)
	other func(path string) string
	began time.Time
	at    []time.Duration // when each was asked for
	from  []string        // Last-Event-ID
}

func (s *streams) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/events") {
		text, status, kind := "", http.StatusOK, document
		if s.other != nil {
			text = s.other(r.URL.RequestURI())
		}
		if text == "" {
			status, kind = http.StatusBadGateway, "text/html"
		}
		return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
	}
	s.at, s.from = append(s.at, time.Since(s.began)), append(s.from, r.Header.Get("Last-Event-ID"))
	if len(s.at) > len(s.next) || s.next[len(s.at)-1] == nil {
		return nil, fmt.Errorf("nobody listens (%d)", len(s.at))
	}
	reader, writer := io.Pipe()
	serve := s.next[len(s.at)-1]
	context.AfterFunc(r.Context(), func() { _ = reader.CloseWithError(r.Context().Err()) })
	go func() { // ends with the function, at the latest when the request has
		serve(writer)
		_ = writer.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: reader, Request: r}, nil
}

// follow follows streams for so long, in a bubble, and returns what was heard and said.
func follow(t *testing.T, s *streams, after string, lasts time.Duration) (heard, said []string) {
	t.Helper()
	s.began = time.Now()
	a, err := NewAPI(APIOptions{URL: "http://shop", Transport: s, Timeout: 10 * time.Second})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), lasts)
	defer cancel()
	a.Follow(ctx, after, func(changes []tenure.Change) {
		for _, c := range changes {
			heard = append(heard, c.InstanceID)
		}
	}, func(problem string) { said = append(said, fmt.Sprintf("%v %s", time.Since(s.began), problem)) })
	require.Equal(t, lasts, time.Since(s.began), "it ends with its context alone")
	return heard, said
}

func joined(w io.Writer, id, instance string) {
	_, _ = fmt.Fprintf(w, "event: change\nid: %s\ndata: {\"id\":%q,\ndata:  \"type\":\"joined\",\"instance_id\":%q}\n\n", id, id, instance)
}

// TestSilentStream: a stream without a sign of life is given up after 45 s, and another one begins
// two seconds later. Signs of life keep it.
func TestSilentStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := func(io.Writer) { time.Sleep(time.Hour) }
		s := &streams{other: func(string) string { return "{}" }, next: []func(io.Writer){hangs, func(w io.Writer) {
			for range 4 {
				time.Sleep(44 * time.Second)
				_, _ = io.WriteString(w, ": alive\n\n")
			}
			joined(w, "2-0", "web-1")
			time.Sleep(time.Hour)
		}, hangs}}
		heard, said := follow(t, s, "1-0", 5*time.Minute)
		require.Equal(t, []string{"web-1"}, heard)
		require.Equal(t, []time.Duration{0, 47 * time.Second, (47 + 4*44 + 47) * time.Second}, s.at)
		require.Equal(t, []string{"1-0", "1-0", "2-0"}, s.from)
		const silent = "redis gave no usable answer: the stream of events was silent for 45s"
		require.Equal(t, []string{"45s tenure: " + silent, "4m28s tenure: " + silent}, said)
		time.Sleep(2 * time.Hour) // those that write end
	})
}

// TestWhatIsInTheWayIsSaidOnce: of each outage, whether it is the API that is gone, or Redis behind
// it.
func TestWhatIsInTheWayIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stale := false
		s := &streams{other: func(string) string { return fmt.Sprintf(`{"stale":%v,"error":"no answer"}`, stale) }}
		s.next = []func(io.Writer){nil, nil, func(w io.Writer) { // it ends in order, and without a word
			time.Sleep(time.Second)
		}, nil, nil, func(w io.Writer) {
			for i := range 6 {
				stale = i != 0 && i != 3
				_, _ = io.WriteString(w, ": alive\n\n")
				time.Sleep(10 * time.Second)
			}
			_, _ = io.WriteString(w, "retry: 60000\n\n")
		}}
		_, said := follow(t, s, "", 100*time.Second)
		require.Equal(t, []time.Duration{0, 2 * time.Second, 4 * time.Second, 7 * time.Second, 9 * time.Second, 11 * time.Second}, s.at)
		for i, text := range said {
			said[i], _, _ = strings.Cut(text, ": ")
		}
		require.Equal(t, []string{"0s the API at http://shop gives no answer", "7s the API at http://shop gives no answer", "21s this is the answer of 0s ago", "51s this is the answer of 0s ago"}, said)
	})
}

// TestFollowWithoutAStream: what stands before the API holds streams back, or too many follow: the
// changes come all the same, each once, also once there is a stream again.
func TestFollowWithoutAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const log = `{"log":[{"id":"%d-0","type":"joined","instance_id":"web-%d"}]}`
		s := &streams{}
		s.other = func(path string) string {
			_, after, _ := strings.Cut(path, "after=")
			seen, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSuffix(after, "&limit=1000"), "-0"))
			if now := int(time.Since(s.began) / time.Second); seen < now/10 { // there is one more each 10 s
				return fmt.Sprintf(log, seen+1, seen+1)
			}
			return `{"log":[]}`
		}
		streamed := func(w io.Writer) {
			for id := 2; id < 6; id++ { // as far as an older place, too
				joined(w, fmt.Sprintf("%d-0", id), fmt.Sprintf("web-%d", id))
			}
			time.Sleep(time.Hour)
		}
		s.next = append(make([]func(io.Writer), 20), streamed) // it is asked for each 2 s
		heard, said := follow(t, s, "0-0", 60*time.Second)
		require.Equal(t, []string{"web-1", "web-2", "web-3", "web-4", "web-5"}, heard)
		require.Equal(t, []string{"0-0", "0-0", "1-0"}, []string{s.from[0], s.from[5], s.from[6]})
		require.Len(t, said, 1)
		require.Contains(t, said[0], "nobody listens")
		time.Sleep(2 * time.Hour) // that which writes ends
	})
}

// TestLongEvents: an event may be longer than a line of a text usually is, but not without bounds.
func TestLongEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &streams{next: []func(io.Writer){func(w io.Writer) {
			joined(w, "1-0", strings.Repeat("x", 1<<20))
			for range 5 {
				_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 1<<20)+"\n")
			}
			joined(w, "2-0", "web-2")
		}, func(w io.Writer) {
			_, _ = io.WriteString(w, strings.Repeat("x", 5<<20))
			joined(w, "3-0", "web-3")
		}}}
		heard, said := follow(t, s, "", 3*time.Second)
		require.Len(t, heard, 1)
		require.Len(t, heard[0], 1<<20)
		require.Equal(t, []string{"0s an event has more than 4 MiB", "2s the stream of events was cut: bufio.Scanner: token too long"}, said)
	})
}

// TestLogBehindAStreamThatIsAwayForAMoment: what a stream may have missed is asked for again if a
// proxy, or the process that was asked, has a bad moment: on the next stream if that lasts longer
// than a question may take.
func TestLogBehindAStreamThatIsAwayForAMoment(t *testing.T) {
	for _, lasts := range []time.Duration{time.Second, 11 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := &streams{other: func(string) string {
				if time.Since(began) < lasts {
					return ""
				}
				return `{"log":[{"id":"2-0","instance_id":"web-2"},{"id":"3-0","instance_id":"web-3"}]}`
			}}
			other := func(w io.Writer) { // a process that does not know 1-0
				_, _ = io.WriteString(w, "event: snapshot\nid: 3-0\ndata: {}\n\n")
				joined(w, "4-0", "web-4")
				time.Sleep(time.Minute)
			}
			s.next = []func(io.Writer){other, other}
			heard, said := follow(t, s, "1-0", 20*time.Second)
			require.Equal(t, []string{"web-2", "web-3", "web-4"}, heard)
			require.Len(t, said, 1)
			require.Contains(t, said[0], "502 Bad Gateway")
			for _, from := range s.from {
				require.Equal(t, "1-0", from)
			}
			time.Sleep(time.Hour)
		})
	}
}

// TestLogBehindAStream: it is read until it reaches so far as the stream begins, for as long as a
// question may take. One that cannot be read is said, and changes are heard of all the same.
func TestLogBehindAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		log := `{"id":"3-1","instance_id":"web-2"}`
		s := &streams{other: func(uri string) string {
			asked = append(asked, strings.TrimPrefix(uri, "/api/cluster/"))
			if len(asked) > 3 {
				log = `{"id":"3-5","instance_id":"web-3"}`
			}
			return `{"log":[` + log + `]}`
		}, next: []func(io.Writer){func(w io.Writer) {
			_, _ = io.WriteString(w, "event: snapshot\nid: 3-5+2\ndata: {}\n\n")
			joined(w, "3-5", "web-3")
			joined(w, "4-0", "web-4")
			time.Sleep(time.Second)
		}}}
		heard, said := follow(t, s, "1-0", 2*time.Second)
		require.Equal(t, []string{"web-2", "web-2", "web-2", "web-3", "web-4"}, heard, "as the server has said it")
		require.Equal(t, []string{"log?after=1-0&limit=1000", "log?after=3-1&limit=1000", "log?after=3-1&limit=1000", "log?after=3-1&limit=1000"}, asked)
		require.Empty(t, said)

		asked, log = nil, ""
		s = &streams{other: func(uri string) string { asked = append(asked, uri); return `{"log":[]}` }, next: []func(io.Writer){func(w io.Writer) {
			_, _ = io.WriteString(w, "event: snapshot\nid: 3-0\ndata: {}\n\n") // it never reaches so far
			joined(w, "4-0", "web-4")
			time.Sleep(time.Minute)
		}}}
		heard, _ = follow(t, s, "1-0", 11*time.Second)
		require.Equal(t, []string{"web-4"}, heard)
		require.Len(t, asked, 15)

		s = &streams{other: func(string) string { return `[` }, next: []func(io.Writer){func(w io.Writer) {
			_, _ = io.WriteString(w, "event: snapshot\nid: 3-0\ndata: {}\n\n")
			joined(w, "4-0", "web-4")
			time.Sleep(time.Minute)
		}}}
		heard, said = follow(t, s, "1-0", 11*time.Second)
		require.Equal(t, []string{"web-4"}, heard)
		require.Len(t, said, 1)
		require.Contains(t, said[0], "answers with what this program does not understand")
		time.Sleep(time.Hour)
	})
}
