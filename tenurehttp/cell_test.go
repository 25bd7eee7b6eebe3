package tenurehttp_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
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

// TestReadsAfterAChange: who reads after an event has what it says, without a listing of all
// instances; what no event says is there seconds later.
func TestReadsAfterAChange(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		beat := func(m *miniredis.Miniredis, id, version string) {
			m.HSet("shop:instances", id, `{"status":"active","version":"`+version+`"}`)
			_, _ = m.ZAdd("shop:beats", float64(time.Now().UnixMilli()), id)
		}
		s.redis.Do(func(m *miniredis.Miniredis) {
			for i := range 5000 {
				beat(m, fmt.Sprintf("web-%05d", i), "v1")
			}
		})
		w, _ := s.dashboard(tenurehttp.Options{})
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		read := func(id string) (version any, total string) {
			d := w.get("/api/cluster/snapshot?q=" + id)
			for _, one := range d["instances"].(map[string]any)["items"].([]any) {
				version = one.(map[string]any)["version"]
			}
			return version, fmt.Sprint(d["status"].(map[string]any)["counts"].(map[string]any)["total"])
		}
		for range 5 {
			read("web-00007")
			s.pass(700 * time.Millisecond)
		}
		l.news()
		s.redis.Do(func(m *miniredis.Miniredis) {
			beat(m, "web-00007", "v2")
			beat(m, "new", "v2")
			_, _ = m.XAdd("shop:log", "*", []string{"event", "recovered", "instances", "web-00007"})
			_, _ = m.XAdd("shop:log", "*", []string{"event", "joined", "instances", "new"})
		})
		for heard := false; !heard; { // it reads at the moment of the event
			s.pass(100 * time.Millisecond)
			heard = l.news() != nil
			if heard {
				s.redis.Do(func(m *miniredis.Miniredis) { beat(m, "web-00008", "v2") })
			}
			version, total := read("web-00007")
			if heard {
				require.Equal(s, []any{"v2", "5002"}, []any{version, total})
				version, _ = read("web-00008")
				require.Equal(s, "v1", version, "all are not listed for it")
			}
		}
		s.until(func() bool { version, _ := read("web-00008"); return version == "v2" })
		_, total := read("new")
		require.Equal(s, "5002", total)
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
		status := w.get("/api/cluster/status")
		require.Equal(s, "cluster_healthy false", fields(status, "cluster_healthy"), "how it is now is not known")
		require.Equal(s, []any{status["error"]}, status["problems"])
		s.net.Heal("dashboard")
		s.until(func() bool { return w.get("/api/cluster/status")["stale"] == false })
		status = w.get("/api/cluster/status")
		require.NotContains(s, status, "error")
		require.Equal(s, "cluster_healthy true", fields(status, "cluster_healthy"))
	})
}

// TestFirstReadsLongAfterAnOutage: that Redis gave no answer long ago says nothing of now. Who
// reads then gets what Redis says, and while it is still away the last snapshot within a second.
func TestFirstReadsLongAfterAnOutage(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		for _, document := range append([]string{"commands", "role"}, documents...) {
			w.get("/api/cluster/" + document)
			s.net.Partition("dashboard", simnet.Both, 0)
			for range 2 {
				s.pass(time.Minute)
				began := time.Now()
				require.Equal(s, "stale true", fields(w.get("/api/cluster/"+document), "stale"))
				require.LessOrEqual(s, time.Since(began), time.Second)
			}
			s.pass(10 * time.Second) // what was asked has failed
			s.net.Heal("dashboard")
			s.pass(time.Minute)
			answer := w.get("/api/cluster/" + document)
			require.Equal(s, "stale false", fields(answer, "stale"), document)
			require.NotContains(s, answer, "error")
		}
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
		require.Equal(s, "1", w.do(http.MethodGet, "/api/cluster/status", "").Header.Get("Retry-After"))
		require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/readyz", "").StatusCode)
		s.net.Heal("dashboard")
		s.until(func() bool { return w.do(http.MethodGet, "/api/cluster/status", "").StatusCode == http.StatusOK })
	})
}

// TestLogBehindAChangeOfElsewhere: a process that Redis does not answer does not know the newest
// changes. That they are gone is another thing.
func TestLogBehindAChangeOfElsewhere(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		control, err := tenure.NewControl(s.client("cut off").Client, tenure.ControlOptions{Namespace: "shop"})
		require.NoError(s, err)
		cut := s.serve(tenurehttp.NewDashboard(control, tenurehttp.Options{}))
		require.NotEmpty(s, cut.get("/api/cluster/log")["log"])
		newest := func() string {
			log := w.get("/api/cluster/log")["log"].([]any)
			return log[len(log)-1].(map[string]any)["id"].(string)
		}
		for _, wait := range []time.Duration{0, time.Minute} {
			s.net.Partition("cut off", simnet.Both, 0)
			before := newest()
			s.member(fmt.Sprint("b-", int(wait)))
			s.until(func() bool { return newest() != before })
			newest := newest()
			s.pass(wait)
			answer := cut.get("/api/cluster/log?after=" + newest)
			require.Equal(s, `log [], stale true`, fields(answer, "log", "stale"))
			require.NotEmpty(s, answer["error"])
			s.net.Heal("cut off")
			s.until(func() bool { return cut.get("/api/cluster/log?after=" + newest)["stale"] == false })
		}
		cut.refused(http.StatusNotFound, "gone", http.MethodGet, "/api/cluster/log?after=99999999999999-0", "")
	})
}
