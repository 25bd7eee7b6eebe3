package tenurehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestRole: a role is found by its name, as Redis knows it at the request, though the snapshot does
// not have it.
func TestRole(t *testing.T) {
	inSite(t, func(s *site) {
		w, _ := s.dashboard(tenurehttp.Options{})
		status := func(query string) map[string]any {
			return w.get("/api/cluster/role" + query)["status"].(map[string]any)
		}
		require.Equal(s, `role "", led false, waiting "", last missing`, fields(status(""), "role", "led", "waiting", "last"))

		a := s.member("a", func(o *tenure.Options) { o.Registry.Address = "a:80" })
		require.Equal(s, `led false, waiting "empty"`, fields(status(""), "led", "waiting"))
		require.NotNil(s, status("")["wait_seconds"])
		s.until(a.IsLeader)
		led := status("?role=")
		require.Equal(s, "led true", fields(led, "led"), "at once, though a snapshot may be seconds old")
		require.Equal(s, `instance_id "a", address "a:80"`, fields(led["leader"].(map[string]any), "instance_id", "address"))
		s.pass(time.Minute)
		require.Equal(s, "led false, waiting \"\"", fields(status("?role=export"), "led", "waiting"))
		require.NoError(s, a.Elector().Resign(s.Context()))
		s.until(a.IsLeader)
		require.Len(s, w.get("/api/cluster/role")["terms"], 2)
		require.Len(s, w.get("/api/cluster/role?limit=1")["terms"], 1)
		w.refused(http.StatusBadRequest, "parameter", http.MethodGet, "/api/cluster/role?role=a%20b", "")
		s.net.Partition("a", simnet.Both, 0)
		s.pass(2 * time.Minute)
		require.Equal(s, `instance_id "a", reason "lapsed"`, fields(status("")["last"].(map[string]any), "instance_id", "reason"))
		s.net.Partition("dashboard", simnet.Both, 0)
		s.pass(time.Minute)
		require.Equal(s, "stale true", fields(w.get("/api/cluster/role"), "stale"))
	})
}

// TestRolesThatAreMadeUp: what Redis gets does not grow with the names that somebody asks for, and
// they take no place that a role needs.
func TestRolesThatAreMadeUp(t *testing.T) {
	inSite(t, func(s *site) {
		a, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		export, err := a.AddRole("export", tenure.ElectionOptions{})
		require.NoError(s, err)
		s.run(a)
		s.until(func() bool { return a.IsLeader() && export.IsLeader() })
		w, rdb := s.dashboard(tenurehttp.Options{})
		w.get("/api/cluster/snapshot")
		for i := range 64 {
			w.get(fmt.Sprintf("/api/cluster/role?role=r%d", i))
		}
		before := rdb.sent.Load()
		for i := range 1000 {
			w.refused(http.StatusServiceUnavailable, "busy", http.MethodGet, fmt.Sprintf("/api/cluster/role?role=x%d", i), "")
		}
		require.Zero(s, rdb.sent.Load()-before)
		require.Equal(s, "stale false", fields(w.get("/api/cluster/role?role=r1"), "stale"), "one that is asked for is served on")
		for _, role := range []string{"", "export"} {
			require.Equal(s, "led true", fields(w.get("/api/cluster/role?role=" + role)["status"].(map[string]any), "led"), "one that exists has a place")
		}
		s.pass(1100 * time.Millisecond)
		w.get("/api/cluster/role?role=x1")
		for i := range 63 {
			w.get(fmt.Sprintf("/api/cluster/role?role=y%d", i))
		}
		w.refused(http.StatusServiceUnavailable, "busy", http.MethodGet, "/api/cluster/role?role=y63", "")
		require.Equal(s, "stale false", fields(w.get("/api/cluster/role?role=export"), "stale"))
	})
}

// TestRoleThatIsAskedForBeforeItExists takes none of the places of names that are made up, once it
// does; nor does one that is asked for while there are places.
func TestRoleThatIsAskedForBeforeItExists(t *testing.T) {
	inSite(t, func(s *site) {
		a, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		export, err := a.AddRole("export", tenure.ElectionOptions{})
		require.NoError(s, err)
		w, _ := s.dashboard(tenurehttp.Options{})
		ask := func(role string) {
			s.Helper()
			w.get("/api/cluster/role?role=" + role)
		}
		ask("export")
		s.run(a)
		s.until(func() bool { ask("export"); return a.IsLeader() && export.IsLeader() })
		late, err := a.AddRole("late", tenure.ElectionOptions{})
		require.NoError(s, err)
		s.until(late.IsLeader)
		s.pass(time.Second)
		ask("late")
		ask("export")
		for i := range 64 {
			ask(fmt.Sprintf("r%d", i))
		}
		w.refused(http.StatusServiceUnavailable, "busy", http.MethodGet, "/api/cluster/role?role=r64", "")
		ask("late")
		ask("export")
	})
}

// TestReservedRoleIsNoRole: a name whose keys are those of the default role is no role to ask for.
func TestReservedRoleIsNoRole(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{})
	require.NoError(t, err)
	h, err := tenurehttp.New(c, tenurehttp.Options{})
	require.NoError(t, err)
	defer h.Close()
	for _, role := range []string{"since", "term", "terms", "events"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/cluster/role?role="+role, nil))
		require.Equal(t, http.StatusBadRequest, w.Code, role)
	}
}

// TestTermsOfOneRoleOfMany: a change of one role, or of an instance, has no terms of the other
// roles read again.
func TestTermsOfOneRoleOfMany(t *testing.T) {
	inSite(t, func(s *site) {
		const many = 50
		c := s.member("a")
		for i := range many {
			_, err := c.AddRole(fmt.Sprint("role-", i), tenure.ElectionOptions{})
			require.NoError(s, err)
		}
		s.until(func() bool {
			return !slices.ContainsFunc(c.Roles(), func(e *tenure.Elector) bool { return !e.IsLeader() })
		})
		s.pass(time.Minute)
		w, rdb := s.dashboard(tenurehttp.Options{})
		read := func() (sent int64, roles []any) {
			s.pass(10 * time.Second) // the one before is too old
			before := rdb.sent.Load()
			roles, _ = w.get("/api/cluster/snapshot")["roles"].([]any)
			return rdb.sent.Load() - before, roles
		}
		_, roles := read()
		require.Len(s, roles, many+1)
		quiet, _ := read()
		s.member("b")
		joined, _ := read()
		require.InDelta(s, quiet, joined, 10, "an instance has joined")
		e, there := c.Role("role-7")
		require.True(s, there)
		require.NoError(s, e.Resign(context.Background()))
		resigned, roles := read()
		require.InDelta(s, quiet, resigned, 10, "a role has changed")
		for _, one := range roles {
			role, _ := one.(map[string]any)
			terms, _ := role["terms"].([]any)
			last, _ := terms[0].(map[string]any)
			if role["role"] == "role-7" {
				require.True(s, len(terms) > 1 || last["ended"] != nil, last)
				continue
			}
			require.Len(s, terms, 1)
		}
	})
}
