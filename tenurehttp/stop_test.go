package tenurehttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestCloseAnswersWhatIsOn: requests that are on when the handler is closed are answered by what
// Redis says, commands that come later are refused, and reads go on.
func TestCloseAnswersWhatIsOn(t *testing.T) {
	inSite(t, func(s *site) {
		s.redis.Do(func(m *miniredis.Miniredis) {
			m.HSet("shop:task:report", "token", "1")
			_, _ = m.SAdd("shop:tasks", "report")
		})
		paused := func() (is string) {
			s.redis.Do(func(m *miniredis.Miniredis) { is = m.HGet("shop:task:report", "paused") })
			return is
		}
		w, rdb := s.dashboard(operators)
		w.token = "token-of-ann"
		rdb.AddHook(farAway{rdb, 100 * time.Millisecond})
		asked, read := make(chan answer, 1), make(chan answer, 1)
		go func() { asked <- w.do(http.MethodPost, "/api/cluster/pause", `{"task":"report"}`) }() // ends with the answer
		go func() { read <- w.do(http.MethodGet, "/api/cluster/status", "") }()                   // likewise
		s.pass(50 * time.Millisecond)
		w.Close()
		w.Close()
		answered := <-asked
		require.Equal(s, http.StatusAccepted, answered.StatusCode, answered.body)
		require.Equal(s, http.StatusOK, (<-read).StatusCode)
		require.Equal(s, "1", paused())
		w.get("/api/cluster/status")
		s.pass(3 * time.Second)
		require.Equal(s, false, w.get("/api/cluster/status")["stale"])
		for _, action := range []string{"resume", "cancel"} {
			w.refused(http.StatusServiceUnavailable, "stopped", http.MethodPost, "/api/cluster/"+action, `{"task":"report"}`)
		}
		require.Equal(s, "1", paused())
	})
}

// TestCloseEndsWhatNobodyWaitsFor: a command that was answered is not asked for any more.
func TestCloseEndsWhatNobodyWaitsFor(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w, rdb := s.dashboard(operators)
		w.token = "token-of-ann"
		s.net.Partition("a", simnet.Both, 0) // it does not take the command
		require.Equal(s, http.StatusAccepted, w.do(http.MethodPost, "/api/cluster/drain", `{"instance_id":"a"}`).StatusCode)
		s.pass(5 * time.Second)
		before := rdb.sent.Load()
		s.pass(5 * time.Second)
		require.Greater(s, rdb.sent.Load(), before, "it is asked what became of it")
		w.Close()
		s.pass(5 * time.Second)
		before = rdb.sent.Load()
		s.pass(time.Minute)
		require.Equal(s, before, rdb.sent.Load())
	})
}
