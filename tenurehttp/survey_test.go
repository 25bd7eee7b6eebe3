package tenurehttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// roleNames are the roles of a snapshot, in its order.
func roleNames(whole map[string]any) (names []string) {
	for _, one := range whole["roles"].([]any) {
		names = append(names, one.(map[string]any)["role"].(string))
	}
	return names
}

// roleOf is one of them; nil: it is not there.
func roleOf(whole map[string]any, name string) map[string]any {
	for _, one := range whole["roles"].([]any) {
		if one := one.(map[string]any); one["role"] == name {
			return one
		}
	}
	return nil
}

func seconds(s *site, n any) float64 {
	f, err := n.(json.Number).Float64()
	require.NoError(s, err)
	return f
}

// log writes an entry to the log.
func (s *site) log(values ...string) (id string) {
	s.redis.Do(func(m *miniredis.Miniredis) {
		var err error
		id, err = m.XAdd("shop:log", "*", values)
		require.NoError(s, err)
	})
	return id
}

// nothing is a task that has nothing to do.
func nothing(context.Context, tenure.TaskRun) error { return nil }

// TestServerIsAskedOnceAMinute: Redis says what it is once a minute, also that it does not say it.
// While it gives no answer to that, what it was stays.
func TestServerIsAskedOnceAMinute(t *testing.T) {
	inSite(t, func(s *site) {
		asked, refusal := 0, ""
		s.redis.Intercept(func(host, cmd string, _ []string) string {
			if host != "dashboard" || !strings.EqualFold(cmd, "INFO") {
				return ""
			}
			asked++
			return refusal
		})
		w, _ := s.dashboard(tenurehttp.Options{})
		version := func() any {
			s.pass(6 * time.Second) // the next snapshot
			return w.get("/api/cluster/snapshot")["redis"].(map[string]any)["version"]
		}
		known := version()
		require.NotNil(s, known)
		for range 9 {
			require.Equal(s, known, version())
		}
		require.Equal(s, 1, asked)

		refusal = "LOADING Redis is loading the dataset in memory"
		for range 5 {
			require.Equal(s, known, version())
		}
		require.GreaterOrEqual(s, asked, 4, "it is asked again for each snapshot")

		refusal = "NOPERM this user has no permissions to run the 'info' command"
		require.Nil(s, version(), "a refusal is an answer")
		asked = 0
		for range 8 {
			require.Nil(s, version())
		}
		require.Zero(s, asked)
		refusal = ""
		for range 4 {
			_ = version()
		}
		require.Equal(s, known, version())
		require.Equal(s, 1, asked)
	})
}

// TestListingsOfALivePage: no instance is shown as it was more than three seconds ago, though all
// are listed once a second at most: neither to one who looks all the time, nor to one who comes
// back after a while.
func TestListingsOfALivePage(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		for range 40 {
			require.LessOrEqual(s, seconds(s, w.get("/api/cluster/snapshot")["age_seconds"]), 3.0)
			s.pass(500 * time.Millisecond)
		}
		for wait := 5100 * time.Millisecond; wait < 7*time.Second; wait += 100 * time.Millisecond {
			w.get("/api/cluster/snapshot") // another listing follows
			s.pass(time.Second)
			w.get("/api/cluster/snapshot")
			s.pass(wait)
			require.LessOrEqual(s, seconds(s, w.get("/api/cluster/snapshot")["age_seconds"]), 3.0)
		}
	})
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
		require.Len(s, log, 999)
		for i, one := range log {
			require.Equal(s, string("abc"[i%3]), one.(map[string]any)["instance_id"])
		}
		w.refused(http.StatusNotFound, "gone", http.MethodGet, "/api/cluster/log?after="+oldest, "")

		s.redis.Do(func(m *miniredis.Miniredis) { m.Del("shop:log") })
		s.log("event", "joined", "instances", "new")
		require.Len(s, read(""), 1, "after a loss of data it begins anew, at once")
	})
}

// TestRolesOfThisProcess are each there once, whether anybody leads them or not, and first.
func TestRolesOfThisProcess(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{
			Namespace: "shop", InstanceID: "a", Election: tenure.ElectionOptions{Role: "main"}, Registry: tenure.RegistryOptions{Address: "a:80"},
		})
		require.NoError(s, err)
		for _, role := range []string{"export", "never"} {
			_, err = c.AddRole(role, tenure.ElectionOptions{Ineligible: role == "never"})
			require.NoError(s, err)
		}
		s.run(c)
		s.until(c.IsLeader)
		s.pass(time.Minute)
		w := s.serve(tenurehttp.New(c, tenurehttp.Options{}))
		whole := w.get("/api/cluster/snapshot")
		require.Equal(s, []string{"main", "export", "never"}, roleNames(whole))
		require.Equal(s, `address "a:80"`, fields(roleOf(whole, "main")["leader"].(map[string]any), "address"))

		other := s.member("other", func(o *tenure.Options) { o.Registry.Address = "other:80" })
		s.until(other.IsLeader)
		s.pass(10 * time.Second)
		require.Equal(s, []string{"main", "export", "never"}, roleNames(w.get("/api/cluster/snapshot")), "in its place this process has its own default role")
	})
}

// TestForeignLeaderHasNoAddress: a program that holds the lease by the name of an instance is not
// reached where that is.
func TestForeignLeaderHasNoAddress(t *testing.T) {
	inSite(t, func(s *site) {
		s.member("a", func(o *tenure.Options) { o.Registry.Address, o.Election.Ineligible = "a:80", true })
		s.redis.Do(func(m *miniredis.Miniredis) {
			require.NoError(s, m.Set("shop:leader", "a"))
			m.SetTTL("shop:leader", time.Hour)
		})
		w, _ := s.dashboard(tenurehttp.Options{})
		leader := roleOf(w.get("/api/cluster/snapshot"), "")["leader"].(map[string]any)
		require.Equal(s, `instance_id "a", token 0, address missing`, fields(leader, "instance_id", "token", "address"))
	})
}

// TestRolesWithoutALog: while the log cannot be read, a new leader has the terms read again all the
// same, and an instance is as a command has left it.
func TestRolesWithoutALog(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		for i := range 10 {
			_, err := a.AddRole(fmt.Sprint("role-", i), tenure.ElectionOptions{})
			require.NoError(s, err)
		}
		s.until(func() bool {
			return !slices.ContainsFunc(a.Roles(), func(e *tenure.Elector) bool { return !e.IsLeader() })
		})
		b := s.member("b")
		s.pass(time.Minute)
		s.spoil("shop:log")
		w := s.serve(tenurehttp.New(a, operators))
		w.token = "token-of-ann"
		w.get("/api/cluster/snapshot")
		s.pass(time.Second)
		w.get("/api/cluster/snapshot")
		role, _ := a.Role("role-7")
		require.NoError(s, role.Resign(s.Context()))
		s.until(role.IsLeader)
		for range 3 {
			s.pass(1100 * time.Millisecond)
			w.get("/api/cluster/snapshot")
		}
		s.pass(300 * time.Millisecond) // all instances have been listed
		require.NoError(s, a.Elector().Transfer(s.Context(), "b"))
		s.until(b.IsLeader)
		for range 4 {
			s.pass(1100 * time.Millisecond)
			w.get("/api/cluster/snapshot")
			s.pass(50 * time.Millisecond)
			whole := w.get("/api/cluster/snapshot")
			led := roleOf(whole, "role-7")
			require.Equal(s, led["leader"].(map[string]any)["token"], led["terms"].([]any)[0].(map[string]any)["token"])
			require.Equal(s, "b", whole["status"].(map[string]any)["leader"].(map[string]any)["instance_id"])
		}
		histories := 0
		s.redis.Watch(func(_ time.Time, _, cmd string, args []string) {
			if strings.EqualFold(cmd, "XREVRANGE") && strings.HasSuffix(args[0], ":terms") {
				histories++
			}
		})
		for range 5 {
			s.pass(6 * time.Second)
			w.get("/api/cluster/snapshot")
		}
		s.redis.Watch(nil)
		require.InDelta(s, 5, histories, 2, "those of one role for each snapshot")

		id := w.post("drain", `{"instance_id":"b"}`)
		s.until(func() bool { return w.record(id)["state"] == "done" })
		require.Equal(s, `state "draining"`, fields(w.get("/api/cluster/instances/b")["instance"].(map[string]any), "state"))
	})
}

// TestLeaderOfAnotherDefaultRole: while the status cannot be read, its leader is that of the
// default role of this process; nobody, if it has none.
func TestLeaderOfAnotherDefaultRole(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("b").IsLeader) // of the role without a name
		for id, leader := range map[string]string{"main": "main", "none": ""} {
			c := s.member(id, func(o *tenure.Options) {
				o.Election.Role, o.NoDefaultRole = "main", id == "none"
				if o.NoDefaultRole {
					o.Election = tenure.ElectionOptions{}
				}
			})
			s.until(func() bool { return c.IsLeader() || id == "none" })
			s.spoil("shop:beats:lost")
			w := s.serve(tenurehttp.New(c, tenurehttp.Options{}))
			whole := w.get("/api/cluster/snapshot")
			require.NotNil(s, whole["unread"])
			require.Equal(s, leader, whole["status"].(map[string]any)["leader"].(map[string]any)["instance_id"], id)
			s.repair("shop:beats:lost")
		}
	})
}

// TestRoleThatATaskNames is there, though neither the log nor an instance names it.
func TestRoleThatATaskNames(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		export, err := c.AddRole("export", tenure.ElectionOptions{})
		require.NoError(s, err)
		require.NoError(s, c.Tasks().Register(tenure.Task{Name: "t", Role: "export", Schedule: tenure.Every(time.Minute), Run: nothing}))
		stop := s.run(c)
		s.until(export.IsLeader)
		s.pass(2 * time.Minute)
		stop()
		s.repair("shop:log")
		w, _ := s.dashboard(tenurehttp.Options{})
		require.Equal(s, []string{"", "export"}, roleNames(w.get("/api/cluster/snapshot")))
	})
}

// TestRoleThatWaits is there before anybody has led it.
func TestRoleThatWaits(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		w, _ := s.dashboard(tenurehttp.Options{})
		whole := w.get("/api/cluster/snapshot")
		require.False(s, a.IsLeader())
		require.Equal(s, []string{""}, roleNames(whole))
		require.Equal(s, `led false, waiting "empty"`, fields(roleOf(whole, "")["status"].(map[string]any), "led", "waiting"))
	})
}

// TestTermsOfRolesThatNobodyLeads: a key that belongs to something else is found out at once, and
// so is what has happened while the log was lost.
func TestTermsOfRolesThatNobodyLeads(t *testing.T) {
	inSite(t, func(s *site) {
		a, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		for i := range 10 {
			_, err := a.AddRole(fmt.Sprint("role-", i), tenure.ElectionOptions{})
			require.NoError(s, err)
		}
		stop := s.run(a)
		s.until(func() bool {
			return !slices.ContainsFunc(a.Roles(), func(e *tenure.Elector) bool { return !e.IsLeader() })
		})
		stop()
		w, _ := s.dashboard(tenurehttp.Options{})
		snapshot := func() {
			s.pass(6 * time.Second)
			w.get("/api/cluster/snapshot")
		}
		snapshot()
		snapshot()
		s.spoil("shop:leader:role-7:terms")
		snapshot()
		w.refused(http.StatusInternalServerError, "misconfigured", http.MethodGet, "/api/cluster/terms?role=role-7", "")
		require.Len(s, w.get("/api/cluster/terms?role=role-6")["terms"], 1)

		s.repair("shop:log")
		for i := range 10 {
			s.log("event", "elected", "instances", "b", "role", fmt.Sprint("role-", i), "token", "9")
		}
		snapshot()
		s.repair("shop:log")
		s.redis.Do(func(m *miniredis.Miniredis) {
			_, err := m.XAdd("shop:leader:role-6:terms", "*", []string{"event", "began", "token", "99999999999999", "holder", "b", "at", "1000000000000"})
			require.NoError(s, err)
		})
		for i := range 10 {
			s.log("event", "elected", "instances", "c", "role", fmt.Sprint("role-", i), "token", "10")
		}
		snapshot()
		require.Len(s, w.get("/api/cluster/terms?role=role-6")["terms"], 2)
	})
}

// TestSnapshotIsBounded: of more than two hundred roles beside those of this process, or tasks, the
// others are not asked for. That roles were left out is said.
func TestSnapshotIsBounded(t *testing.T) {
	for _, more := range []int{0, 5} {
		t.Run(fmt.Sprint(more), func(t *testing.T) {
			inSite(t, func(s *site) {
				for i := range 199 + more { // and the default role
					s.log("event", "elected", "instances", "a", "role", fmt.Sprint("r", i), "token", "7")
				}
				s.redis.Do(func(m *miniredis.Miniredis) {
					for i := range 200 + more {
						m.HSet(fmt.Sprint("shop:task:t", i), "token", "1")
						_, _ = m.SAdd("shop:tasks", fmt.Sprint("t", i))
					}
				})
				histories, roles := map[string]bool{}, map[string]bool{}
				s.redis.Watch(func(_ time.Time, _, _ string, args []string) {
					for _, key := range args {
						if strings.HasPrefix(key, "shop:task:") && strings.HasSuffix(key, ":runs") {
							histories[key] = true
						}
						if strings.HasPrefix(key, "shop:leader") && strings.HasSuffix(key, ":terms") {
							roles[key] = true
						}
					}
				})
				w, _ := s.dashboard(tenurehttp.Options{})
				whole := w.get("/api/cluster/snapshot")
				s.redis.Watch(nil)
				require.Len(s, whole["tasks"], 200+more)
				require.Len(s, histories, 200)
				require.Len(s, roles, 200)
				require.Equal(s, more > 0, whole["truncated"] == true)
			})
		})
	}
}

// TestAnsweredByARead: Redis last answered when the snapshot was read, if this process has renewed
// before that.
func TestAnsweredByARead(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		s.pass(time.Minute)
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{}))
		w.get("/api/cluster/snapshot")
		was := a.Elector().Status().LastAnswer
		s.until(func() bool { return a.Elector().Status().LastAnswer.After(was) })
		s.pass(7 * time.Second)
		ago := func() float64 {
			return seconds(s, w.get("/api/cluster/snapshot")["redis"].(map[string]any)["answered_seconds_ago"])
		}
		require.Less(s, ago(), 0.1, "it was read now")
		was = a.Elector().Status().LastAnswer
		s.until(func() bool { return a.Elector().Status().LastAnswer.After(was) })
		require.Less(s, ago(), 0.1, "it has renewed now")
	})
}

// TestReadAtTheMomentOfAnEvent: who reads when an event comes has what it says.
func TestReadAtTheMomentOfAnEvent(t *testing.T) {
	inSite(t, func(s *site) {
		a, b := s.member("a"), s.member("b")
		s.until(func() bool { return a.IsLeader() || b.IsLeader() })
		c := s.member("c", func(o *tenure.Options) { o.Election.Ineligible = true })
		w := s.serve(tenurehttp.New(c, tenurehttp.Options{}))
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		s.pass(time.Minute)
		for range 4 {
			from, to := a, b
			if b.IsLeader() {
				from, to = b, a
			}
			l.news()
			w.get("/api/cluster/snapshot") // it is fresh
			require.NoError(s, from.Elector().Transfer(s.Context(), to.InstanceID()))
			for elected := false; !elected; {
				s.pass(time.Millisecond)
				elected = slices.Contains(l.news(), "change elected "+to.InstanceID())
			}
			require.Equal(s, to.InstanceID(), w.get("/api/cluster/leader")["leader"])
			s.pass(time.Minute)
		}
	})
}

// TestEachChangeComesOnce to a client that comes back, also those that happen while what it has
// missed is read.
func TestEachChangeComesOnce(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, rdb := s.dashboard(tenurehttp.Options{})
		rdb.AddHook(farAway{rdb, 300 * time.Millisecond})
		l := w.listen("")
		s.until(func() bool { return l.at() != "" })
		l.cancel()
		s.pass(time.Minute) // nobody follows any more
		var want []string
		join := func(n int) {
			for range n {
				id := fmt.Sprint("i", len(want))
				s.log("event", "joined", "instances", id)
				want = append(want, "change joined "+id)
				s.pass(50 * time.Millisecond)
			}
		}
		join(10)
		l = w.listen(l.at())
		join(100)
		s.pass(time.Minute)
		require.Equal(s, want, l.news())
	})
}

// TestNamesOfCallersAreCut: the audit stream has the first 128 characters of a longer one.
func TestNamesOfCallersAreCut(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{Authorize: func(*http.Request, tenurehttp.Action) (string, error) {
			return strings.Repeat("ann", 100), nil
		}}))
		id := w.post("undrain", `{"instance_id":"a"}`)
		require.Equal(s, strings.Repeat("ann", 100)[:128], w.record(id)["by"])
	})
}

// TestReadersOfOneRole: who asks for a role again and again has Redis asked ten times a second.
func TestReadersOfOneRole(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, rdb := s.dashboard(tenurehttp.Options{})
		w.get("/api/cluster/role")
		before := rdb.sent.Load()
		for began := time.Now(); time.Since(began) < 10*time.Second; {
			w.get("/api/cluster/role")
		}
		require.LessOrEqual(s, rdb.sent.Load()-before, int64(10*10*3+10))
	})
}

// TestReadersOfOneTask: who looks at a task has its runs read once a second, also after it has
// changed. While its record cannot be read, which each reading says in an error of its own, nobody
// waits for that.
func TestReadersOfOneTask(t *testing.T) {
	inSite(t, func(s *site) {
		s.scheduled()
		w, rdb := s.dashboard(tenurehttp.Options{})
		reads := 0
		s.redis.Watch(func(_ time.Time, host, cmd string, args []string) {
			if host == "dashboard" && strings.EqualFold(cmd, "XREVRANGE") && slices.Contains(args, "shop:task:t:runs") {
				reads++
			}
		})
		look := func() {
			w.get("/api/cluster/tasks/t")
			s.pass(10 * time.Second)
			reads = 0
			for range 100 {
				w.get("/api/cluster/tasks/t")
				s.pass(100 * time.Millisecond)
			}
			require.Positive(s, reads)
			require.LessOrEqual(s, reads, 2*(10+2)) // those of a snapshot too
		}
		look()
		s.pass(2 * time.Minute) // it has run
		look()
		s.spoil("shop:task:t")
		look()
		rdb.AddHook(farAway{rdb, 50 * time.Millisecond})
		for range 50 {
			began := time.Now()
			w.get("/api/cluster/tasks/t")
			require.Less(s, time.Since(began), 50*time.Millisecond)
			s.pass(100 * time.Millisecond)
		}
	})
}

// TestRunsOfATaskThatHasRun are there with its state, however many tasks there are.
func TestRunsOfATaskThatHasRun(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		for i := range 20 {
			require.NoError(s, c.Tasks().Register(tenure.Task{Name: fmt.Sprintf("t%02d", i), Schedule: tenure.OnDemand(), Run: nothing}))
		}
		s.run(c)
		s.until(c.IsLeader)
		s.pass(time.Minute)
		w, _ := s.dashboard(tenurehttp.Options{})
		for n := range 3 {
			w.get("/api/cluster/snapshot")
			_, err := c.Tasks().Trigger(s.Context(), "t11")
			require.NoError(s, err)
			s.pass(10 * time.Second)
			task := w.get("/api/cluster/snapshot")["tasks"].([]any)[11].(map[string]any)
			require.Len(s, task["runs"], n+1)
		}
	})
}

// TestSnapshotOfARedisFarAway: if there is more to read than there is time for, the next snapshot
// goes on where the last one had to stop, and knows what has changed since.
func TestSnapshotOfARedisFarAway(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		const many = 80
		roles := make([]*tenure.Elector, many)
		for i := range roles {
			roles[i], err = c.AddRole(fmt.Sprintf("r%02d", i), tenure.ElectionOptions{})
			require.NoError(s, err)
		}
		for i := range 2 * many {
			require.NoError(s, c.Tasks().Register(tenure.Task{Name: fmt.Sprintf("t%03d", i), Schedule: tenure.Every(time.Hour), InitialDelay: time.Second, Run: nothing}))
		}
		s.run(c)
		s.until(func() bool { return c.IsLeader() && roles[many-1].IsLeader() })
		s.pass(time.Minute)
		w, rdb := s.dashboard(tenurehttp.Options{})
		rdb.AddHook(farAway{rdb, 350 * time.Millisecond})
		w.refused(http.StatusServiceUnavailable, "unreachable", http.MethodGet, "/api/cluster/snapshot", "")
		for _, i := range []int{0, many - 1} { // one that was read, and one that was not
			require.NoError(s, roles[i].Resign(s.Context()))
		}
		for range 10 {
			if w.do(http.MethodGet, "/api/cluster/snapshot", "").StatusCode == http.StatusOK {
				break
			}
			s.pass(time.Second)
		}
		all := w.get("/api/cluster/snapshot")
		require.Len(s, all["roles"], many+1)
		for _, r := range all["roles"].([]any) {
			role := r.(map[string]any)
			terms := 1
			if role["role"] == "r00" || role["role"] == "r79" {
				terms = 2
			}
			require.GreaterOrEqual(s, len(role["terms"].([]any)), terms, role["role"])
		}
		for _, task := range all["tasks"].([]any) {
			require.Len(s, task.(map[string]any)["runs"], 1, task)
		}
	})
}

// TestLeaderOfWhatIsOld: while Redis does not answer, each mention of the leader is as of now, and
// so is how long ago Redis last answered.
func TestLeaderOfWhatIsOld(t *testing.T) {
	inSite(t, func(s *site) {
		s.until(s.member("a").IsLeader)
		w, _ := s.dashboard(tenurehttp.Options{})
		w.get("/api/cluster/snapshot")
		s.net.Partition("dashboard", simnet.Both, 0)
		s.pass(20 * time.Second)
		w.get("/api/cluster/snapshot")
		s.pass(10 * time.Second)
		whole := w.get("/api/cluster/snapshot")
		require.Equal(s, roleOf(whole, "")["leader"], whole["status"].(map[string]any)["leader"])
		require.InDelta(s, 30, seconds(s, whole["redis"].(map[string]any)["answered_seconds_ago"]), 2)
	})
}

// TestProblemsOfWhatIsUnread: each is said once, before those that there are anyway. That nobody
// leads is known, though the history of the role is not.
func TestProblemsOfWhatIsUnread(t *testing.T) {
	for key, problems := range map[string]int{"shop:beats:lost": 1, "shop:log": 2, "shop:leader:terms": 2} {
		t.Run(key, func(t *testing.T) {
			inSite(t, func(s *site) {
				a := s.member("a", func(o *tenure.Options) { o.Election.Ineligible = key != "shop:beats:lost" })
				s.until(func() bool { return a.IsLeader() || key != "shop:beats:lost" })
				s.spoil(key)
				w, _ := s.dashboard(tenurehttp.Options{})
				require.Len(s, w.get("/api/cluster/snapshot")["status"].(map[string]any)["problems"], problems)
				w.get("/api/cluster/leader")
			})
		})
	}
}

// TestRoleOfWorkThatIsDone: nobody has to lead what Once has done.
func TestRoleOfWorkThatIsDone(t *testing.T) {
	inSite(t, func(s *site) {
		rdb := s.client("a").Client
		_, err := tenure.Once(s.Context(), rdb, tenure.ElectorOptions{
			Namespace: "shop", InstanceID: "a", Election: tenure.ElectionOptions{Role: "migration"},
		}, func(context.Context, tenure.Term) error { return nil })
		require.NoError(s, err)
		c, err := tenure.New(rdb, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		s.run(c)
		s.until(c.IsLeader)
		w := s.serve(tenurehttp.New(c, tenurehttp.Options{}))
		require.Equal(s, "cluster_healthy true, problems missing", fields(w.get("/api/cluster/status"), "cluster_healthy", "problems"))
		require.Len(s, w.get("/api/cluster/snapshot")["roles"], 1, "the page would say that nobody leads")
		require.Contains(s, w.get("/api/cluster/role?role=migration"), "terms", "it is known by its name")
	})
}

// TestRolesThatNobodyLeads: a cluster of which one role has no leader is not well, as for the
// command line, though the default role has one.
func TestRolesThatNobodyLeads(t *testing.T) {
	inSite(t, func(s *site) {
		c, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		export, err := c.AddRole("export", tenure.ElectionOptions{})
		require.NoError(s, err)
		s.run(c)
		s.until(func() bool { return c.IsLeader() && export.IsLeader() })
		w := s.serve(tenurehttp.New(c, tenurehttp.Options{}))
		d, _ := s.dashboard(tenurehttp.Options{})
		for _, w := range []*web{w, d} {
			require.Equal(s, "cluster_healthy true, problems missing", fields(w.get("/api/cluster/status"), "cluster_healthy", "problems"))
		}
		for i := range 7 {
			_, err = c.AddRole(fmt.Sprint("r", i), tenure.ElectionOptions{Ineligible: true})
			require.NoError(s, err)
		}
		export.SetEligible(false)
		s.pass(10 * time.Second)
		require.True(s, c.IsLeader())
		require.False(s, export.IsLeader())
		for w, want := range map[*web]string{
			w: "nobody leads role export, role r0, role r1, role r2, role r3 and 3 more", d: "nobody leads role export",
		} {
			require.Equal(s, `cluster_healthy false, problems ["`+want+`"]`, fields(w.get("/api/cluster/status"), "cluster_healthy", "problems"))
			require.Equal(s, []any{want}, w.get("/api/cluster/snapshot")["status"].(map[string]any)["problems"])
		}
	})
}
