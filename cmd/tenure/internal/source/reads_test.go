package source

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestClusterOverTheAPI: what the snapshot has is there, the newest change last, and the roles that
// it lacks are asked for, but for those that could not be read.
func TestClusterOverTheAPI(t *testing.T) {
	var log, asked []string
	for i := range 12 {
		log = append(log, fmt.Sprintf(`{"id":"%d-0","type":"held"}`, 20-i))
	}
	snapshot := `{"namespace":"shop","redis":{"address":"r:6379","kind":"redis","version":"7.0.15","uptime_seconds":90},"status":{"active":1,"leader":{"instance_id":"a","remaining_seconds":4}},` +
		`"roles":[{"status":{"role":"led","led":true,"leader":{"instance_id":"a","remaining_seconds":4},"lease_ttl_seconds":30,"for_seconds":2,"wait_seconds":1,"last":{"gap_seconds":3}}}],` +
		`"instances":{"matched":2,"items":[{"instance_id":"b","age_seconds":5},{"instance_id":"a"}]},"tasks":[{"status":{"name":"sick","error":"no disk"}},{"status":{"name":"well"}}],` +
		`"log":[` + strings.Join(log, ",") + `],"unread":[{"part":"roles","name":"broken","error":"tenure: misconfigured"},{"part":"log","error":"no right"}]`
	rest := "}"
	a, _ := serve(t, APIOptions{Namespace: "shop"}, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/role") {
			name := r.URL.Query().Get("role")
			asked = append(asked, name)
			writeDocument(w, fmt.Sprintf(`{"status":{"role":%q}}`, name))
			return
		}
		assert.Equal(t, "/tenure/api/cluster/snapshot", r.URL.Path)
		writeDocument(w, snapshot+rest)
	})
	also := []string{"led", "broken", "aside"}
	c, err := a.Cluster(t.Context(), also...)
	require.NoError(t, err)
	require.Equal(t, []string{"aside"}, asked)
	require.Equal(t, []string{"led", "broken", "aside"}, also, "what was asked for stays as it is")
	require.Equal(t, []string{"r:6379", "redis", "7.0.15"}, []string{c.Server.Address, c.Server.Kind, c.Server.Version})
	require.Positive(t, c.Server.RoundTrip)
	require.Equal(t, "shop", c.Status.Namespace)
	require.Equal(t, 4*time.Second, c.Status.Leader.Remaining)
	require.Len(t, c.Roles, 2)
	require.Equal(t, "aside", c.Roles[0].Role)
	led := c.Roles[1]
	require.Equal(t, []time.Duration{4, 30, 2, 1, 3}, []time.Duration{
		led.Leader.Remaining / time.Second, led.LeaseTTL / time.Second, led.For / time.Second, led.Wait / time.Second, led.Last.Gap / time.Second,
	})
	require.Equal(t, []string{"a", "b"}, []string{c.Instances[0].ID, c.Instances[1].ID})
	require.Equal(t, 5*time.Second, c.Instances[1].Age)
	require.EqualError(t, c.Tasks[0].Err, "no disk")
	require.NoError(t, c.Tasks[1].Err)
	require.Len(t, c.Recent, recentShown)
	require.Equal(t, []string{"11-0", "20-0"}, []string{c.Recent[0].ID, c.Recent[recentShown-1].ID})
	require.Equal(t, []string{"role broken: misconfigured", "log: no right"}, c.Unread)

	rest = `,"truncated":true}`
	c, err = a.Cluster(t.Context())
	require.ErrorIs(t, err, tenure.ErrTruncated)
	require.Len(t, c.Instances, 2, "what there is counts")
	rest = `,"truncated":true,"stale":true,"age_seconds":7,"error":"tenure: no answer"}`
	_, err = a.Cluster(t.Context())
	require.EqualError(t, err, "this is the answer of 7s ago: no answer")
	snapshot = strings.Replace(snapshot, `"shop"`, `"mail"`, 1)
	_, err = a.Cluster(t.Context())
	require.ErrorContains(t, err, "serves the namespace mail, not shop")
}

// TestClusterOfNobody: of a namespace in which nothing is known the default role is there, as over
// Redis.
func TestClusterOfNobody(t *testing.T) {
	unread := ""
	a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/role") {
			assert.False(t, r.URL.Query().Has("role"))
			writeDocument(w, `{"status":{"waiting":"empty"}}`)
			return
		}
		writeDocument(w, `{"namespace":"shop","unread":[`+unread+`]}`)
	})
	c, err := a.Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, []tenure.RoleStatus{{Waiting: tenure.WaitEmpty}}, c.Roles)
	unread = `{"part":"roles","error":"no right"}`
	c, err = a.Cluster(t.Context())
	require.NoError(t, err)
	require.Empty(t, c.Roles, "what cannot be read is not asked for again")
	unread = `{"part":"instances","error":"no right"}`
	_, err = a.Instances(t.Context(), nil)
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
	require.ErrorContains(t, err, "no right")
}

// TestTasksOverTheAPI: those of a prefix, whether the API has all of them or not.
func TestTasksOverTheAPI(t *testing.T) {
	rest := ""
	a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "/tenure/api/cluster/tasks", r.URL.Path)
		writeDocument(w, `{"tasks":[{"name":"a"},{"name":"b1","error":"no disk"},{"name":"b2"}]`+rest+`}`)
	})
	for prefix, want := range map[string]int{"": 3, "b": 2, "c": 0} {
		tasks, err := a.Tasks(t.Context(), prefix)
		require.NoError(t, err)
		require.Len(t, tasks, want)
	}
	rest = `,"truncated":true`
	tasks, err := a.Tasks(t.Context(), "b")
	require.ErrorIs(t, err, tenure.ErrTruncated)
	require.ErrorContains(t, err, "(fix: --redis, or --api of a program that runs them)")
	require.Len(t, tasks, 2)
	require.EqualError(t, tasks[0].Err, "no disk")
}

// TestLastEntries: an entry of the log is there with all of its changes, or not at all.
func TestLastEntries(t *testing.T) {
	var log []tenure.Change
	for _, id := range []string{"1-0", "2-0", "2-0", "2-0", "3-0"} {
		log = append(log, tenure.Change{ID: id})
	}
	for entries, want := range map[int]int{0: 0, 1: 1, 2: 4, 3: 5, 4: 5} {
		require.Len(t, last(log, entries), want, entries)
	}
	require.Empty(t, last(nil, 3))
}

// TestOrderOfEntries: by their time, then by their number, and both as numbers.
func TestOrderOfEntries(t *testing.T) {
	order := []string{"", "9-1", "9-10", "10-0", "18446744073709551615-1"}
	for i, id := range order[1:] {
		for k, than := range order {
			require.Equal(t, i+1 > k, later(id, than), "%s %s", id, than)
		}
	}
}

// TestWhatAServerSaysIsBounded: texts, and numbers of seconds.
func TestWhatAServerSaysIsBounded(t *testing.T) {
	require.Equal(t, strings.Repeat("x", maxText), clipped(strings.Repeat("x", maxText)))
	require.Equal(t, strings.Repeat("x", maxText)+"…", clipped(strings.Repeat("x", maxText+1)))
	require.Equal(t, strings.Repeat("x", maxText-1)+"…", clipped(strings.Repeat("x", maxText-1)+"é"))
	for s, want := range map[float64]time.Duration{1.5: 1500 * time.Millisecond, -1: -time.Second, 1e9: 1e18, 1e300: 1e18, -1e300: -1e18} {
		require.Equal(t, want, seconds(s), s)
	}
}

// TestWhatACandidateSays: why a role has no leader, as the process that answers knows it. One that
// takes no part says nothing.
func TestWhatACandidateSays(t *testing.T) {
	said := func(this, election string) map[string]string {
		a, _ := serve(t, APIOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			writeDocument(w, `{"namespace":"shop","this":`+this+`,"roles":[{"status":{"role":"export"},"election":`+election+`}]}`)
		})
		c, err := a.Cluster(t.Context())
		require.NoError(t, err)
		return c.Said
	}
	const web = `{"instance_id":"web-1"}`
	for election, want := range map[string]string{
		`{"waiting":"silence","error":"tenure: READONLY it is a replica"}`: "reports: READONLY it is a replica",
		`{"waiting":"","error":"tenure: OOM it is full"}`:                  "reports: OOM it is full",
		`{"waiting":"unhealthy","error":"no disk"}`:                        "fails its health check: no disk",
		`{"waiting":"penalty"}`:                                            "stands back after a term of its own",
		`{"waiting":"ineligible"}`:                                         "may not lead",
		`{"waiting":"draining"}`:                                           "drains",
	} {
		require.Equal(t, map[string]string{"export": "web-1, which answers, " + want}, said(web, election))
	}
	for _, nothing := range []string{`{"waiting":"lease"}`, `{"waiting":""}`, `null`} {
		require.Empty(t, said(web, nothing))
	}
	require.Empty(t, said("null", "null"))
	require.LessOrEqual(t, len(said(web, `{"error":"`+strings.Repeat("x", 5000)+`"}`)["export"]), maxText+len("…"))
}
