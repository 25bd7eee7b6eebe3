package tenurehttp_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestKeyOfTheWrongType: a key that belongs to something else is named, with the fix, by each read
// that needs it. All other reads answer, and the snapshot shows what there is, and says what it
// lacks.
func TestKeyOfTheWrongType(t *testing.T) {
	reads := []string{"status", "instances", "leader", "instances/a", "tasks", "tasks/t", "tasks/t/runs", "terms", "terms?role=", "terms?role=export", "role?role=export", "log", "commands"}
	for key, tt := range map[string]struct {
		part  string
		needs []string
	}{
		"shop:instances":     {"instances", []string{"status", "instances", "instances/a"}},
		"shop:leader":        {"status", []string{"status", "instances", "leader"}},
		"shop:leader:terms":  {"roles", []string{"terms", "terms?role="}},
		"shop:leader:export": {"roles", []string{"role?role=export"}},
		"shop:tasks":         {"tasks", []string{"tasks", "tasks/t", "tasks/t/runs"}},
		"shop:task:t:runs":   {"runs", []string{"tasks/t", "tasks/t/runs"}},
		"shop:log":           {"log", []string{"log"}},
		"shop:commands":      {"", []string{"commands"}},
	} {
		t.Run(key, func(t *testing.T) {
			inSite(t, func(s *site) {
				c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
				require.NoError(s, err)
				_, err = c.AddRole("export", tenure.ElectionOptions{})
				require.NoError(s, err)
				require.NoError(s, c.Tasks().Register(tenure.Task{Name: "t", Schedule: tenure.Every(time.Minute), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
				s.run(c)
				s.until(func() bool { return c.IsLeader() && len(mustRuns(s, c)) > 0 })
				s.net.Partition("a", simnet.Both, 0) // it stays as it is
				raw := s.client("raw")
				require.NoError(s, raw.Del(s.Context(), key).Err())
				require.NoError(s, raw.RPush(s.Context(), key, "mine").Err())
				w, _ := s.dashboard(tenurehttp.Options{})
				for _, read := range reads {
					if !slices.Contains(tt.needs, read) {
						w.get("/api/cluster/" + read)
						continue
					}
					p := w.refused(http.StatusInternalServerError, "misconfigured", http.MethodGet, "/api/cluster/"+read, "")
					require.Contains(s, p["detail"], "the key "+key+" belongs to something else", read)
				}
				whole := w.get("/api/cluster/snapshot")
				readOpenAPI(t).answers(w, http.MethodGet, "/api/cluster/snapshot", "/api/cluster/snapshot", "")
				unread, _ := whole["unread"].([]any)
				if tt.part == "" {
					require.Empty(s, unread)
					return
				}
				require.NotEmpty(s, unread)
				require.Equal(s, tt.part, unread[0].(map[string]any)["part"], unread)
				status := whole["status"].(map[string]any)
				require.Equal(s, false, status["healthy"])
				require.Contains(s, status["problems"].([]any)[0], key)
				require.NotContains(s, whole, "error")
				for i, problem := range status["problems"].([]any) {
					require.NotContains(s, status["problems"].([]any)[:i], problem, "each is named once")
				}
				if key == "shop:leader:terms" {
					require.Contains(s, status["problems"].([]any)[0], "the default role cannot be read: ")
				}
				for range 3 { // the lease of a, and its heartbeats, end meanwhile
					time.Sleep(10 * time.Second) // in virtual time: the next snapshot
					again := w.get("/api/cluster/snapshot")
					require.Equal(s, unread, again["unread"], "it still cannot be read, and is named once")
				}
				require.NoError(s, raw.Del(s.Context(), key).Err())
				time.Sleep(10 * time.Second) // likewise
				require.NotContains(s, w.get("/api/cluster/snapshot"), "unread", "it can be read again")
			})
		})
	}
}

// TestNothingCanBeRead: without log, instances and tasks there is no snapshot: an empty one would
// say that the cluster is. One of them is enough for a snapshot.
func TestNothingCanBeRead(t *testing.T) {
	keys := map[string]string{"log": "shop:log", "instances": "shop:instances", "tasks": "shop:tasks"}
	for _, left := range []string{"", "log", "instances", "tasks"} {
		t.Run("all but "+left, func(t *testing.T) {
			inSite(t, func(s *site) {
				raw := s.client("raw")
				for part, key := range keys {
					if part != left {
						require.NoError(s, raw.RPush(s.Context(), key, "mine").Err())
					}
				}
				w, _ := s.dashboard(tenurehttp.Options{})
				if left == "" {
					w.refused(http.StatusInternalServerError, "misconfigured", http.MethodGet, "/api/cluster/snapshot", "")
					return
				}
				unread, _ := w.get("/api/cluster/snapshot")["unread"].([]any)
				require.Len(s, unread, len(keys)-1)
			})
		})
	}
}

func mustRuns(s *site, c *tenure.Coordinator) []tenure.RunRecord {
	runs, err := c.Tasks().Runs(s.Context(), "t", 1)
	require.NoError(s, err)
	return runs
}
