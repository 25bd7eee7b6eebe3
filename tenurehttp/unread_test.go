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

// spoil makes a key belong to something else.
func (s *site) spoil(key string) {
	raw := s.client("raw")
	require.NoError(s, raw.Del(s.Context(), key).Err())
	require.NoError(s, raw.RPush(s.Context(), key, "mine").Err())
}

func (s *site) repair(key string) {
	require.NoError(s, s.client("raw").Del(s.Context(), key).Err())
}

// scheduled starts a member that leads, takes part in further roles, and whose task t has run.
func (s *site) scheduled(roles ...string) *tenure.Coordinator {
	c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(s, err)
	for _, role := range roles {
		_, err = c.AddRole(role, tenure.ElectionOptions{})
		require.NoError(s, err)
	}
	require.NoError(s, c.Tasks().Register(tenure.Task{Name: "t", Schedule: tenure.Every(time.Minute), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
	s.run(c)
	s.until(func() bool { return c.IsLeader() && len(mustRuns(s, c)) > 0 })
	return c
}

func mustRuns(s *site, c *tenure.Coordinator) []tenure.RunRecord {
	runs, err := c.Tasks().Runs(s.Context(), "t", 1)
	require.NoError(s, err)
	return runs
}

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
				s.scheduled("export")
				s.net.Partition("a", simnet.Both, 0) // it stays as it is
				s.spoil(key)
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
				if key == "shop:leader:export" {
					require.Nil(s, roleOf(whole, "export"), "it is not known that nobody leads it")
				}
				if key == "shop:leader:terms" {
					require.Contains(s, status["problems"].([]any)[0], "the default role cannot be read: ")
				}
				for range 3 { // the lease of a, and its heartbeats, end meanwhile
					s.pass(10 * time.Second) // the next snapshot
					again := w.get("/api/cluster/snapshot")
					require.Equal(s, unread, again["unread"], "it still cannot be read, and is named once")
				}
				s.repair(key)
				s.pass(10 * time.Second)
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
				for part, key := range keys {
					if part != left {
						s.spoil(key)
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

// TestLeaderWhileItsStatusIsUnread: how many are lost cannot be read. Who leads can, and is no
// older than all else.
func TestLeaderWhileItsStatusIsUnread(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		b := s.member("b")
		s.pass(10 * time.Second)
		w, _ := s.dashboard(tenurehttp.Options{})
		s.spoil("shop:beats:lost")
		w.get("/api/cluster/snapshot")
		s.pass(100 * time.Millisecond)
		require.NoError(s, a.Elector().Transfer(s.Context(), "b"))
		s.until(b.IsLeader)
		for range 20 {
			s.pass(300 * time.Millisecond)
			whole := w.get("/api/cluster/snapshot")
			leads := whole["roles"].([]any)[0].(map[string]any)["leader"].(map[string]any)["instance_id"]
			require.Equal(s, leads, whole["status"].(map[string]any)["leader"].(map[string]any)["instance_id"])
			require.Equal(s, leads, w.get("/api/cluster/leader")["leader"])
		}
	})
}

// TestRoleThatTheLogNames: nobody leads it, so that only the log says that there is such a role.
// While that cannot be read, it is not said that there is none.
func TestRoleThatTheLogNames(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		export, err := c.AddRole("export", tenure.ElectionOptions{})
		require.NoError(s, err)
		stop := s.run(c)
		s.until(func() bool { return c.IsLeader() && export.IsLeader() })
		stop()
		s.pass(10 * time.Second)
		before, _ := s.dashboard(tenurehttp.Options{})
		require.Len(s, before.get("/api/cluster/snapshot")["roles"], 2)
		s.spoil("shop:log")
		s.pass(10 * time.Second)
		w, _ := s.dashboard(tenurehttp.Options{})
		w.refused(http.StatusInternalServerError, "misconfigured", http.MethodGet, "/api/cluster/terms?role=export", "")
		for range 3 {
			whole := before.get("/api/cluster/snapshot")
			require.NotNil(s, whole["unread"])
			require.Len(s, whole["roles"], 2)
			before.get("/api/cluster/terms?role=export")
			s.pass(2 * time.Second)
		}
	})
}

// TestReadsThatAreRefusedLater: what this process has read before is no answer if somebody has to
// fix something first. As soon as that is done, it reads again.
func TestReadsThatAreRefusedLater(t *testing.T) {
	inSite(t, func(s *site) {
		s.scheduled()
		s.pass(10 * time.Second)
		w, _ := s.dashboard(tenurehttp.Options{})
		for read, key := range map[string]string{
			"tasks/t/runs": "shop:task:t:runs", "tasks/t": "shop:task:t:runs", "role": "shop:leader:terms", "commands": "shop:commands", "log?after=99999999999999-0": "shop:log",
		} {
			w.do(http.MethodGet, "/api/cluster/"+read, "")
			s.spoil(key)
			if key != "shop:log" { // the first of these makes it read anew
				s.pass(10 * time.Second)
				w.do(http.MethodGet, "/api/cluster/"+read, "")
				s.pass(time.Second)
			}
			w.refused(http.StatusInternalServerError, "misconfigured", http.MethodGet, "/api/cluster/"+read, "")
			s.repair(key)
			s.pass(10 * time.Second)
			w.do(http.MethodGet, "/api/cluster/"+read, "")
			s.pass(3 * time.Second)
			require.NotEqual(s, http.StatusInternalServerError, w.do(http.MethodGet, "/api/cluster/"+read, "").StatusCode, read)
		}
	})
}

// TestUnreadIsRead: a part is there again as soon as its key is.
func TestUnreadIsRead(t *testing.T) {
	for _, key := range []string{
		"shop:instances", "shop:leader", "shop:leader:terms", "shop:tasks", "shop:task:t:runs", "shop:log", "shop:beats", "shop:beats:lost", "shop:beats:hold",
	} {
		t.Run(key, func(t *testing.T) {
			inSite(t, func(s *site) {
				s.scheduled()
				s.spoil(key)
				w, _ := s.dashboard(tenurehttp.Options{})
				for range 20 {
					require.NotNil(s, w.get("/api/cluster/snapshot")["unread"])
					s.pass(time.Second)
				}
				s.repair(key)
				for range 45 {
					w.get("/api/cluster/snapshot")
					s.pass(2 * time.Second)
				}
				whole := w.get("/api/cluster/snapshot")
				require.Nil(s, whole["unread"])
				require.Equal(s, true, whole["status"].(map[string]any)["healthy"])
			})
		})
	}
}

// TestKeyThatIsSpoiltWhileNothingChanges: what a snapshot takes over from the last one is read
// again in turn, so that it is found out all the same, and when it was repaired.
func TestKeyThatIsSpoiltWhileNothingChanges(t *testing.T) {
	inSite(t, func(s *site) {
		s.scheduled("export")
		w, _ := s.dashboard(tenurehttp.Options{})
		s.pass(10 * time.Minute)
		snapshot := func() map[string]any {
			s.pass(6 * time.Second) // the next one
			return w.get("/api/cluster/snapshot")
		}
		require.NotContains(s, snapshot(), "unread")
		for _, key := range []string{"shop:leader:terms", "shop:leader:export:terms", "shop:task:t:runs"} {
			s.pass(time.Until(time.Now().Truncate(time.Minute).Add(61 * time.Second))) // the task has just run
			_ = snapshot()
			s.spoil(key)
			_ = snapshot() // there are two roles
			unread, _ := snapshot()["unread"].([]any)
			require.Len(s, unread, 1, key)
			require.Contains(s, unread[0].(map[string]any)["error"], key)
			s.repair(key)
			require.NotContains(s, snapshot(), "unread", key)
		}
	})
}
