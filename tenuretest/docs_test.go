package tenuretest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenuretest"
)

// What follows are the tests that docs/testing.md shows, between the lines "snippet" and "end".

// takeOrder is the code that is tested.
func takeOrder(c *tenure.Coordinator) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := c.Elector().Do(r.Context(), func(_ context.Context, term tenure.Term) error {
			_, err := fmt.Fprintln(w, "taken", term.Token > 0)
			return err
		})
		if errors.Is(err, tenure.ErrNotLeader) {
			http.Error(w, "not the leader", http.StatusServiceUnavailable)
		}
	}
}

// copyRows is the code that is tested.
func copyRows(ctx context.Context, _ tenure.TaskRun) error {
	if _, ok := tenure.TermFrom(ctx); !ok {
		return errors.New("no term")
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// snippet
func TestReportsGoOnAfterAFailOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		var done []string
		start := func(id string) *tenuretest.Control {
			c, control := cluster.New(tenure.Options{InstanceID: id})
			require.NoError(t, c.Tasks().Register(tenure.Task{
				Name: "report", Schedule: tenure.Every(time.Hour),
				Run: func(ctx context.Context, run tenure.TaskRun) error {
					if id == "a" && len(done) == 2 {
						<-ctx.Done() // a loses the lead in the middle of its third report
						return context.Cause(ctx)
					}
					done = append(done, fmt.Sprint(id, " attempt ", run.Attempt))
					return nil
				},
			}))
			go func() { _ = c.Run(t.Context()) }()
			return control
		}
		a, b := start("a"), start("b")
		a.Lead()
		for range 2 {
			time.Sleep(time.Hour)
			a.RunDue(t.Context())
		}
		time.Sleep(time.Hour)
		synctest.Wait() // it has begun
		b.Lead()        // a is deposed, and its report is interrupted
		b.RunDue(t.Context())
		require.Equal(t, []string{"a attempt 1", "a attempt 1", "b attempt 2"}, done)
	})
}

// end

// snippet
func TestReportsGoOnAfterAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := tenuretest.NewCluster(t)
		var done []string
		start := func(id string) (*tenure.Coordinator, *tenuretest.Control) {
			c, control := cluster.New(tenure.Options{InstanceID: id})
			require.NoError(t, c.Tasks().Register(tenure.Task{
				Name: "report", Schedule: tenure.Every(time.Hour),
				Run: func(context.Context, tenure.TaskRun) error { done = append(done, id); return nil },
			}))
			go func() { _ = c.Run(t.Context()) }()
			return c, control
		}
		a, controlA := start("a")
		_, controlB := start("b")
		controlA.Lead()
		time.Sleep(time.Hour)
		controlA.RunDue(t.Context())

		cluster.Disconnect("a") // it leads until its lease would end: for less than 30 s
		require.True(t, a.IsLeader())
		time.Sleep(30 * time.Second)
		require.False(t, a.IsLeader())
		controlB.Lead()
		time.Sleep(time.Hour)
		controlB.RunDue(t.Context())
		cluster.Reconnect("a") // returns when a follows b
		require.Equal(t, "b", a.Elector().Status().Leader)
		require.Equal(t, []string{"a", "b"}, done)
	})
}

// end

// snippet
func TestOrderOnTheLeaderOnly(t *testing.T) {
	c, control := tenuretest.New(t, tenure.Options{InstanceID: "a"})
	go func() { _ = c.Run(t.Context()) }()

	control.Follow("b") // another instance leads
	w := httptest.NewRecorder()
	takeOrder(c)(w, httptest.NewRequest(http.MethodPost, "/orders", http.NoBody))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)

	control.Lead() // now this one
	w = httptest.NewRecorder()
	takeOrder(c)(w, httptest.NewRequest(http.MethodPost, "/orders", http.NoBody))
	require.Equal(t, "taken true\n", w.Body.String())
}

// end

// snippet
func TestCopyStopsWithTheTerm(t *testing.T) {
	ctx, end := tenuretest.Context(t, 7) // as a task gets it, of a term with the token 7
	time.AfterFunc(time.Millisecond, func() { end(tenure.ErrLost) })
	err := copyRows(ctx, tenure.TaskRun{Task: "copy", Token: 7, Slot: time.Now()})
	require.ErrorIs(t, err, tenure.ErrLost)
}

// end

// snippet
func TestTwoDaysOfANightlyJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{})
		runs := 0
		require.NoError(t, c.Tasks().Register(tenure.Task{
			Name: "nightly", Schedule: tenure.Cron("CRON_TZ=Europe/Berlin 0 3 * * *"),
			Run: func(context.Context, tenure.TaskRun) error { runs++; return nil },
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		control.Lead()
		time.Sleep(48 * time.Hour) // of the bubble: it takes about a second
		stop()
		require.NoError(t, <-ended)
		require.Equal(t, 2, runs)
	})
}

// end

// snippet
func TestFailOver(t *testing.T) {
	server := miniredis.RunT(t)
	server.ClockTTL(true) // leases must end by the clock
	instance := func(id string) (*tenure.Coordinator, *redis.Client) {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		c, err := tenure.New(rdb, tenure.Options{
			Namespace: "test", InstanceID: id,
			Election:        tenure.ElectionOptions{LeaseTTL: time.Second},
			ShutdownTimeout: time.Second,
		})
		require.NoError(t, err)
		go func() { _ = c.Run(t.Context()) }()
		return c, rdb
	}
	leads := func(c *tenure.Coordinator) {
		require.Eventually(t, c.IsLeader, time.Minute, time.Millisecond)
	}
	a, network := instance("a")
	leads(a)
	b, _ := instance("b")

	require.NoError(t, network.Close()) // a is cut off: its lease ends by itself
	leads(b)
	require.False(t, a.IsLeader())

	a, _ = instance("a2")
	require.NoError(t, b.Elector().Resign(t.Context())) // a hand-over
	leads(a)
}

// end

// snippet
func TestTakeOverInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis() // not started: no sockets in a bubble
		server.ClockTTL(true)
		defer server.Close()
		instance := func(id string) (c *tenure.Coordinator, stop func()) {
			rdb := redis.NewClient(&redis.Options{
				Addr:   "127.0.0.1:6379", // is not dialed; a name would be looked up, outside of the bubble
				Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
			})
			c, err := tenure.New(rdb, tenure.Options{Namespace: "test", InstanceID: id})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }()
			return c, func() { cancel(); require.NoError(t, <-ended); require.NoError(t, rdb.Close()) }
		}
		a, stopA := instance("a")
		time.Sleep(time.Minute) // the default lease is 30 s
		require.True(t, a.IsLeader())
		b, stopB := instance("b")
		time.Sleep(time.Minute)
		require.False(t, b.IsLeader())
		stopA()
		time.Sleep(time.Second)
		require.True(t, b.IsLeader())
		stopB()
	})
}

// end

// TestDocumentedTests: docs/testing.md shows these tests, all of them and as they are here.
func TestDocumentedTests(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	require.NoError(t, err)
	source, err := os.ReadFile("docs_test.go")
	require.NoError(t, err)
	snippets := regexp.MustCompile("(?s)// snippet\n(.*?)\n// end\n").FindAllStringSubmatch(string(source), -1)
	require.Len(t, snippets, 7)
	for _, snippet := range snippets {
		require.Contains(t, string(page), "```go\n"+strings.TrimRight(snippet[1], "\n")+"\n```\n")
	}
}
