package tenurehttp_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
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

// scheduled starts a member that leads, and whose task t has run.
func (s *site) scheduled() *tenure.Coordinator {
	c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(s, err)
	require.NoError(s, c.Tasks().Register(tenure.Task{Name: "t", Schedule: tenure.Every(time.Minute), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
	s.run(c)
	s.until(func() bool { return c.IsLeader() && len(mustRuns(s, c)) > 0 })
	return c
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
		s.until(export.IsLeader)
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
