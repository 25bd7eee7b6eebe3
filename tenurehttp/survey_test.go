package tenurehttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/tenurehttp"
)

// log writes an entry to the log.
func (s *site) log(values ...string) (id string) {
	s.redis.Do(func(m *miniredis.Miniredis) {
		var err error
		id, err = m.XAdd("shop:log", "*", values)
		require.NoError(s, err)
	})
	return id
}

// TestLogOfASnapshot has the last thousand changes, and no part of an entry.
func TestLogOfASnapshot(t *testing.T) {
	inSite(t, func(s *site) {
		w, _ := s.dashboard(tenurehttp.Options{})
		oldest := s.log("event", "joined", "instances", "first")
		read := func(query string) []any {
			s.pass(6 * time.Second) // the next snapshot
			return w.get("/api/cluster/log?limit=1000" + query)["log"].([]any)
		}
		require.Len(s, read(""), 1)
		for range 5 {
			for range 80 {
				s.log("event", "down", "instances", "a b c")
			}
			_ = read("")
		}
		log := read("")
		require.Equal(s, 999, len(log)) //nolint:testifylint // a thousand changes are no message
		for i, one := range log {
			require.Equal(s, string("abc"[i%3]), one.(map[string]any)["instance_id"])
		}
		w.refused(http.StatusNotFound, "gone", http.MethodGet, "/api/cluster/log?after="+oldest, "")

		s.redis.Do(func(m *miniredis.Miniredis) { m.Del("shop:log") })
		s.log("event", "joined", "instances", "new")
		require.Len(s, read(""), 1, "after a loss of data it begins anew, at once")
	})
}
