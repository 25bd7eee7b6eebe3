package tenurehttp_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// documents are those that come from Redis.
var documents = []string{"status", "instances", "leader", "snapshot", "tasks", "terms", "log"}

// TestCommandsDoNotGrowWithTheReaders: fifty readers cost what one costs, and nobody costs nothing.
func TestCommandsDoNotGrowWithTheReaders(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, rdb := s.dashboard(tenurehttp.Options{})
		cost := func(readers int) int64 {
			s.pass(time.Minute)
			before := rdb.sent.Load()
			var reading sync.WaitGroup
			for i := range readers {
				reading.Go(func() {
					if a := w.do(http.MethodGet, "/api/cluster/"+documents[i%len(documents)], ""); a.StatusCode != http.StatusOK {
						s.Error(a.body)
					}
				})
			}
			reading.Wait()
			s.pass(time.Minute)
			return rdb.sent.Load() - before
		}
		cost(1) // reads what does not change
		cost(1) // has loaded the scripts
		one := cost(1)
		require.Positive(s, one)
		require.LessOrEqual(s, one, int64(10))
		require.Equal(s, one, cost(50))
		require.Zero(s, cost(0))
	})
}

// TestReadsWhileRedisIsDown: the last snapshot, with its age, at once.
func TestReadsWhileRedisIsDown(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		for _, document := range documents {
			require.Equal(s, "stale false", fields(w.get("/api/cluster/"+document), "stale"))
		}
		s.net.Partition("dashboard", simnet.Both, 0)
		s.pass(time.Minute)
		w.get("/api/cluster/status")
		s.pass(10 * time.Second)
		for _, document := range documents {
			began := time.Now()
			answer := w.get("/api/cluster/" + document)
			require.Less(s, time.Since(began), time.Millisecond, "nobody waits for a Redis that is known to be away")
			require.Equal(s, "stale true", fields(answer, "stale"))
			require.Regexp(s, `^7[0-9]\b`, answer["age_seconds"])
			require.NotEmpty(s, answer["error"])
		}
		s.net.Heal("dashboard")
		s.until(func() bool { return w.get("/api/cluster/status")["stale"] == false })
		require.NotContains(s, w.get("/api/cluster/status"), "error")
	})
}

// TestReadsBeforeTheFirstAnswer: what was never known is an error, and only that.
func TestReadsBeforeTheFirstAnswer(t *testing.T) {
	inSite(t, func(s *site) {
		s.net.Partition("dashboard", simnet.Both, 0)
		w, _ := s.dashboard(tenurehttp.Options{})
		began := time.Now()
		w.refused(http.StatusServiceUnavailable, "unreachable", http.MethodGet, "/api/cluster/status", "")
		require.Less(s, time.Since(began), 10*time.Second)
		require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/readyz", "").StatusCode)
		s.net.Heal("dashboard")
		s.until(func() bool { return w.do(http.MethodGet, "/api/cluster/status", "").StatusCode == http.StatusOK })
	})
}
