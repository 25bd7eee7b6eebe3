package tenurehttp_test

import (
	"context"
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
