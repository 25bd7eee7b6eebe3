package tenurehttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/tenurehttp"
)

// operators may do everything.
var operators = tenurehttp.Options{Authorize: tenurehttp.BearerToken(map[string]string{"ann": "token-of-ann", "ünal": "token-of-ünal", "nobody": ""})}

// post asks for something, and returns the ID of the command.
func (w *web) post(action, body string) string {
	w.Helper()
	a := w.do(http.MethodPost, "/api/cluster/"+action, body)
	require.Equal(w, http.StatusAccepted, a.StatusCode, "%s: %s", action, a.body)
	record := w.object(a.body)
	require.Equal(w, action, record["kind"])
	id, _ := record["id"].(string)
	require.Equal(w, "commands/"+id, a.Header.Get("Location"))
	return id
}

// record is what the audit stream says of a command.
func (w *web) record(id string) map[string]any {
	w.Helper()
	return w.get("/api/cluster/commands/" + id)["command"].(map[string]any)
}

// TestActions: everything that Control can do, in the name of who asks, with an ID at once and its
// end in the audit stream.
func TestActions(t *testing.T) {
	inSite(t, func(s *site) {
		hung := tenure.Task{Name: "hung", Schedule: tenure.OnDemand(), Run: func(ctx context.Context, _ tenure.TaskRun) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		a, err := tenure.New(s.client("a").Client, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(s, err)
		var args []string
		require.NoError(s, a.Tasks().Register(hung))
		require.NoError(s, a.Tasks().Register(tenure.Task{Name: "tidy", Schedule: tenure.Every(time.Hour), Run: func(_ context.Context, run tenure.TaskRun) error {
			args = run.Args
			return nil
		}}))
		s.run(a)
		s.until(a.IsLeader)
		b := s.member("b")
		s.member("gone", func(o *tenure.Options) { o.Election.Ineligible = true })
		w := s.serve(tenurehttp.New(b, operators))
		w.token = "token-of-ünal"
		ended := func(id, want string) {
			s.Helper()
			newest := w.get("/api/cluster/commands?limit=1")["commands"].([]any)[0].(map[string]any)
			require.Equal(s, id, newest["id"], "it is listed at once")
			s.until(func() bool { return w.record(id)["state"] != "asked" })
			require.Equal(s, want, fields(w.record(id), "kind", "by", "state"))
		}

		id := w.post("transfer", `{"instance_id":"b"}`)
		ended(id, `kind "transfer", by "\\u00fcnal", state "done"`)
		s.until(b.IsLeader)
		w.token = "token-of-ann"
		ended(w.post("resign", `{"role":""}`), `kind "resign", by "ann", state "done"`)
		s.until(a.IsLeader)
		tokenOf := func() int64 {
			leader, err := a.Control().Leader(s.Context(), "")
			require.NoError(s, err)
			return leader.Token
		}
		token := tokenOf()
		for action, body := range map[string]string{"resign": `{"token":%d}`, "transfer": `{"token":%d,"instance_id":"b"}`} {
			p := w.refused(http.StatusConflict, "not_leader", http.MethodPost, "/api/cluster/"+action, fmt.Sprintf(body, token-1))
			require.Contains(s, p["detail"], "the term of token", "that of another term")
		}
		require.Equal(s, token, tokenOf(), "its term goes on")
		ended(w.post("transfer", fmt.Sprintf(`{"token":%d,"instance_id":"b"}`, token)), `kind "transfer", by "ann", state "done"`)
		s.until(b.IsLeader)
		ended(w.post("resign", fmt.Sprintf(`{"token":%d}`, tokenOf())), `kind "resign", by "ann", state "done"`)
		s.until(a.IsLeader)
		ended(w.post("drain", `{"instance_id":"b"}`), `kind "drain", by "ann", state "done"`)
		require.True(s, b.IsDraining())
		ended(w.post("undrain", `{"instance_id":"b"}`), `kind "undrain", by "ann", state "done"`)
		require.False(s, b.IsDraining())

		ended(w.post("pause", `{"task":"tidy","reason":"<b>too slow</b>"}`), `kind "pause", by "ann", state "done"`)
		list, err := a.Tasks().List(s.Context())
		require.NoError(s, err)
		require.Equal(s, "ann", list[1].Pause.By)
		require.Equal(s, "<b>too slow</b>", list[1].Pause.Reason)
		ended(w.post("resume", `{"task":"tidy"}`), `kind "resume", by "ann", state "done"`)
		ended(w.post("trigger", `{"task":"tidy","args":["now","x"]}`), `kind "trigger", by "ann", state "done"`)
		s.until(func() bool { return len(args) == 2 })
		triggered := w.object(w.do(http.MethodPost, "/api/cluster/trigger", `{"task":"hung"}`).body)["trigger"]
		s.until(func() bool {
			for _, task := range w.get("/api/cluster/tasks")["tasks"].([]any) {
				if task := task.(map[string]any); task["name"] == "hung" && task["running"] == true {
					return true
				}
			}
			return false
		})
		ended(w.post("cancel", `{"task":"hung"}`), `kind "cancel", by "ann", state "done"`)
		s.until(func() bool { return len(w.get("/api/cluster/tasks/hung/runs")["runs"].([]any)) == 1 })
		require.NotEmpty(s, triggered)
		require.Equal(s, triggered, w.get("/api/cluster/tasks/hung/runs")["runs"].([]any)[0].(map[string]any)["trigger"])
		ended(w.post("remove", `{"instance_id":"gone"}`), `kind "remove", by "ann", state "done"`)

		s.pass(2 * time.Minute) // so that the leader has opened all records
		p := w.refused(http.StatusConflict, "registered", http.MethodPost, "/api/cluster/forget", `{"task":"tidy"}`)
		ended(p["command"].(string), `kind "forget", by "ann", state "failed"`)
		p = w.refused(http.StatusConflict, "registered", http.MethodPost, "/api/cluster/forget", `{"role":""}`)
		ended(p["command"].(string), `kind "forget", by "ann", state "failed"`)
		w.refused(http.StatusNotFound, "not_found", http.MethodPost, "/api/cluster/forget", `{"role":"none"}`)
		w.refused(http.StatusNotFound, "not_found", http.MethodPost, "/api/cluster/drain", `{"instance_id":"nobody"}`)
		w.refused(http.StatusNotFound, "not_found", http.MethodPost, "/api/cluster/pause", `{"task":"none"}`)
		w.refused(http.StatusNotFound, "not_found", http.MethodGet, "/api/cluster/commands/NONE", "")
		require.Len(s, w.get("/api/cluster/commands?limit=3")["commands"], 3)
	})
}

// TestCommandOfAnotherProcess: behind a balancer any process is asked what became of a command,
// also one that has read the audit stream a moment before. Without Redis that is not known, and not
// that there was none.
func TestCommandOfAnotherProcess(t *testing.T) {
	inSite(t, func(s *site) {
		a, b := s.member("a"), s.member("b")
		s.until(func() bool { return a.IsLeader() || b.IsLeader() })
		here, there := s.serve(tenurehttp.New(a, operators)), s.serve(tenurehttp.New(b, operators))
		here.token = "token-of-ann"
		require.Empty(s, there.get("/api/cluster/commands")["commands"])
		for range 3 {
			id := here.post("undrain", `{"instance_id":"a"}`)
			require.Equal(s, id, there.record(id)["id"])
		}
		began := time.Now()
		for range 20 {
			there.refused(http.StatusNotFound, "not_found", http.MethodGet, "/api/cluster/commands/NONE", "")
		}
		require.GreaterOrEqual(s, time.Since(began), 19*250*time.Millisecond, "invented IDs are no load")

		id := here.post("undrain", `{"instance_id":"a"}`)
		s.net.Partition("b", simnet.Both, 0)
		for range 3 {
			p := there.refused(http.StatusServiceUnavailable, "unreachable", http.MethodGet, "/api/cluster/commands/"+id, "")
			require.NotEmpty(s, p["detail"])
			s.pass(time.Second)
		}
		s.net.Heal("b")
		s.until(func() bool {
			return there.do(http.MethodGet, "/api/cluster/commands/"+id, "").StatusCode == http.StatusOK
		})
	})
}

// TestNotFoundWithoutRedis: that the last snapshot lacks an instance, a task or a role does not say
// that there is none now.
func TestNotFoundWithoutRedis(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.scheduled()
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, operators))
		paths := []string{"instances/none", "tasks/none", "tasks/none/runs", "terms?role=none"}
		for _, path := range paths {
			w.refused(http.StatusNotFound, "not_found", http.MethodGet, "/api/cluster/"+path, "")
		}
		s.net.Partition("a", simnet.Both, 0)
		s.pass(20 * time.Second)
		for _, path := range paths {
			p := w.refused(http.StatusServiceUnavailable, "unreachable", http.MethodGet, "/api/cluster/"+path, "")
			require.NotEmpty(s, p["detail"], path)
		}
		require.Equal(s, true, w.get("/api/cluster/instances/a")["stale"], "what it has is shown")
		s.net.Heal("a")
		for _, path := range paths {
			s.until(func() bool { return w.do(http.MethodGet, "/api/cluster/"+path, "").StatusCode == http.StatusNotFound })
		}
	})
}

// TestFirstQuestionWithoutRedis: what the last snapshot has of a task, or of a role, is the answer
// to who asks for it for the first time while Redis is down, within a second.
func TestFirstQuestionWithoutRedis(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.scheduled("export")
		export, _ := a.Role("export")
		s.until(export.IsLeader)
		w := s.serve(tenurehttp.New(a, operators))
		w.get("/api/cluster/snapshot")
		s.net.Partition("a", simnet.Both, 0)
		s.pass(20 * time.Second)
		for path, has := range map[string]func(map[string]any) any{
			"tasks/t":            func(d map[string]any) any { return d["runs"].([]any)[0].(map[string]any)["state"] },
			"tasks/t/runs":       func(d map[string]any) any { return d["runs"].([]any)[0].(map[string]any)["state"] },
			"role":               func(d map[string]any) any { return d["terms"].([]any)[0].(map[string]any)["instance_id"] },
			"role?role=export":   func(d map[string]any) any { return d["status"].(map[string]any)["led"] },
			"tasks/t?limit=0":    func(d map[string]any) any { return d["status"].(map[string]any)["name"] },
			"role?role=&limit=0": func(d map[string]any) any { return len(d["terms"].([]any)) },
		} {
			began := time.Now()
			d := w.get("/api/cluster/" + path)
			require.LessOrEqual(s, time.Since(began), 1500*time.Millisecond, path)
			require.Equal(s, true, d["stale"], path)
			require.NotEmpty(s, d["error"], path)
			age, err := d["age_seconds"].(json.Number).Float64()
			require.NoError(s, err)
			require.Greater(s, age, 19.0, path)
			want := map[string]any{
				"tasks/t": "succeeded", "tasks/t/runs": "succeeded", "role": "a", "role?role=export": true, "tasks/t?limit=0": "t", "role?role=&limit=0": 0,
			}[path]
			require.Equal(s, want, has(d), path)
		}
		w.refused(http.StatusServiceUnavailable, "unreachable", http.MethodGet, "/api/cluster/role?role=none", "")
		s.net.Heal("a")
		for _, path := range []string{"tasks/t", "role"} {
			s.until(func() bool { return w.get("/api/cluster/" + path)["stale"] == false })
		}
	})
}

// TestAnswerToATransfer names the heir as the audit stream does: the instance that is asked is the
// leader.
func TestAnswerToATransfer(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		s.member("b")
		w := s.serve(tenurehttp.New(a, operators))
		w.token = "token-of-ann"
		answer := w.object(w.do(http.MethodPost, "/api/cluster/transfer", `{"instance_id":"b"}`).body)
		require.Equal(s, `argument "b", instance_id missing`, fields(answer, "argument", "instance_id"))
		require.Equal(s, `argument "b", instance_id "a"`, fields(w.record(answer["id"].(string)), "argument", "instance_id"))
	})
}

// TestNoActionsWithoutAnAuthorizer: the endpoints are not there, and no page offers them.
func TestNoActionsWithoutAnAuthorizer(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{}))
		for _, action := range allActions {
			w.refused(http.StatusNotFound, "no_endpoint", http.MethodPost, "/api/cluster/"+string(action), `{}`)
		}
		require.Equal(s, []any{}, w.get("/api/cluster/snapshot")["actions"])
		require.True(s, a.IsLeader())
	})
}

var allActions = []tenurehttp.Action{
	tenurehttp.ActionResign, tenurehttp.ActionTransfer, tenurehttp.ActionDrain, tenurehttp.ActionUndrain, tenurehttp.ActionRemove, tenurehttp.ActionPause,
	tenurehttp.ActionResume, tenurehttp.ActionTrigger, tenurehttp.ActionCancel, tenurehttp.ActionForget,
}

// TestActionsAreAuthorized: who is not known, and who may not, changes nothing; the snapshot says
// who may do what.
func TestActionsAreAuthorized(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		bearer := operators.Authorize
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{Authorize: func(r *http.Request, action tenurehttp.Action) (string, error) {
			caller, err := bearer(r, action)
			if err == nil && caller != "ann" && action != tenurehttp.ActionPause {
				return caller, errors.New("the canary of the authorizer")
			}
			return caller, err
		}}))
		for _, token := range []string{"", "wrong", "Token-of-ann"} {
			w.token = token
			for _, action := range allActions {
				p := w.do(http.MethodPost, "/api/cluster/"+string(action), `{"role":""}`)
				require.Equal(s, http.StatusUnauthorized, p.StatusCode, p.body)
				require.Equal(s, `Bearer realm="tenure"`, p.Header.Get("WWW-Authenticate"))
			}
			require.Equal(s, `caller "", actions []`, fields(w.get("/api/cluster/snapshot"), "caller", "actions"))
		}
		w.token = ""
		w.refused(http.StatusUnauthorized, "unauthenticated", http.MethodPost, "/api/cluster/resign", `{}`, "Authorization", "Basic token-of-ann")
		w.token = "token-of-ünal"
		p := w.refused(http.StatusForbidden, "forbidden", http.MethodPost, "/api/cluster/resign", `{}`)
		require.NotContains(s, p["detail"], "canary")
		require.Equal(s, `caller "ünal", actions ["pause"]`, fields(w.get("/api/cluster/snapshot"), "caller", "actions"))
		w.token = "token-of-ann"
		require.Equal(s, `caller "ann", actions ["resign","transfer","drain","undrain","remove","pause","resume","trigger","cancel","forget"]`,
			fields(w.get("/api/cluster/snapshot"), "caller", "actions"))
		require.True(s, a.IsLeader())
	})
}

// TestGuardedReads: with GuardReads only the probes, the page and the description of the API are
// open.
func TestGuardedReads(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{GuardReads: true, Authorize: tenurehttp.BasicAuth(map[string]string{"ann": "of ann", "bob": "of bob", "nobody": ""})}))
		paths := []string{"/", "/api/cluster/config", "/api/cluster/this", "/api/cluster/events", "/api/cluster/commands", "/api/cluster/commands/x", "/api/cluster/instances/a", "/api/cluster/tasks/t/runs"}
		for _, document := range documents {
			paths = append(paths, "/api/cluster/"+document)
		}
		basic := func(user, password string) string {
			r := &http.Request{Header: http.Header{}}
			r.SetBasicAuth(user, password)
			return r.Header.Get("Authorization")
		}
		for _, path := range paths {
			p := w.do(http.MethodGet, path, "")
			require.Equal(s, http.StatusUnauthorized, p.StatusCode, path)
			require.Equal(s, `Basic realm="tenure", charset="UTF-8"`, p.Header.Get("WWW-Authenticate"))
		}
		asks := w.do(http.MethodGet, "/api/cluster/status", "", "Tenure-Page", "1").Header.Get("WWW-Authenticate")
		require.Equal(s, `Tenure-Basic realm="tenure", charset="UTF-8"`, asks, "the page asks, and not the browser")
		for _, header := range []string{basic("ann", "of bob"), basic("", "of ann"), basic("nobody", ""), basic("eve", "of ann"), "Bearer of ann"} {
			w.refused(http.StatusUnauthorized, "unauthenticated", http.MethodGet, "/api/cluster/status", "", "Authorization", header)
		}
		require.Equal(s, http.StatusOK, w.do(http.MethodGet, "/api/cluster/status", "", "Authorization", basic("bob", "of bob")).StatusCode)
		for _, probe := range []string{"/livez", "/readyz", "/leaderz"} {
			require.Equal(s, http.StatusOK, w.do(http.MethodGet, probe, "").StatusCode)
		}
	})
}

// TestTokenOfTwo: of a token that two callers have it is not known who asks, and what they may do
// may differ: it opens nothing, and whoever has it is told why. Two may have the same password.
func TestTokenOfTwo(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{Authorize: tenurehttp.BearerToken(map[string]string{"ann": "same", "bob": "same", "eve": "other"})}))
		w.token = "same"
		p := w.refused(http.StatusInternalServerError, "misconfigured", http.MethodPost, "/api/cluster/resign", `{}`)
		require.Contains(s, p["detail"], "fix: ")
		require.NotContains(s, p["detail"], "same")
		require.Equal(s, `caller "", actions []`, fields(w.get("/api/cluster/snapshot"), "caller", "actions"))
		w.token = "other"
		require.Equal(s, `caller "eve"`, fields(w.get("/api/cluster/snapshot"), "caller"))
		require.True(s, a.IsLeader())
	})
	basic := tenurehttp.BasicAuth(map[string]string{"ann": "same", "bob": "same"})
	for _, user := range []string{"ann", "bob"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, "same")
		caller, err := basic(r, tenurehttp.ActionRead)
		require.NoError(t, err)
		require.Equal(t, user, caller)
	}
}

// TestAuthorizerThatPanics: nobody gets in, and the log says why.
func TestAuthorizerThatPanics(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		var log bytes.Buffer
		w := s.serve(tenurehttp.New(a, tenurehttp.Options{
			Logger:    slog.New(slog.NewTextHandler(&log, nil)),
			Authorize: func(*http.Request, tenurehttp.Action) (string, error) { panic("of the authorizer") },
		}))
		w.refused(http.StatusInternalServerError, "authorizer", http.MethodPost, "/api/cluster/resign", `{}`)
		require.Equal(s, `actions []`, fields(w.get("/api/cluster/snapshot"), "actions"))
		require.Contains(s, log.String(), "of the authorizer")
		require.True(s, a.IsLeader())
	})
}

// brokenError is an error whose methods fail if it is nil.
type brokenError struct{ cause error }

func (e *brokenError) Error() string { return e.cause.Error() }

func (e *brokenError) Unwrap() error { return e.cause }

// TestAuthorizerThatReturnsANilPointer: an error that is one refuses, as any other error does, and
// has an answer.
func TestAuthorizerThatReturnsANilPointer(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		for code, refuses := range map[string]error{"forbidden": (*tenurehttp.ChallengeError)(nil), "authorizer": (*brokenError)(nil)} {
			w := s.serve(tenurehttp.New(a, tenurehttp.Options{Authorize: func(*http.Request, tenurehttp.Action) (string, error) { return "ann", refuses }}))
			status := map[string]int{"forbidden": http.StatusForbidden, "authorizer": http.StatusInternalServerError}[code]
			w.refused(status, code, http.MethodPost, "/api/cluster/drain", `{"instance_id":"a"}`)
			require.Equal(s, `actions [], caller ""`, fields(w.get("/api/cluster/snapshot"), "actions", "caller"))
		}
	})
}

// TestHostileBodies: what is no request changes nothing.
func TestHostileBodies(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		w := s.serve(tenurehttp.New(a, operators))
		w.token = "token-of-ann"
		for body, action := range map[string]string{
			"":                                 "resign",
			"null":                             "resign",
			"[]":                               "resign",
			`"x"`:                              "resign",
			`{}{}`:                             "resign",
			`{"role":""} x`:                    "resign",
			`{"role":7}`:                       "resign",
			`{"token":0}`:                      "resign",
			`{"token":-1}`:                     "transfer",
			`{"token":"7"}`:                    "resign",
			`{"token":7.5}`:                    "transfer",
			`{"token":9223372036854775808}`:    "resign",
			`{"task":"t","token":7}`:           "cancel",
			`{"role":"a b"}`:                   "resign",
			`{"role":"events"}`:                "transfer",
			`{"task":"t","args":[null]}`:       "trigger",
			`{"Role":""}`:                      "resign",
			`{"instance_id":"a"}`:              "resign",
			"{\"role\":\"\xff\"}":              "resign",
			`{"instance_id":""}`:               "drain",
			`{}`:                               "drain",
			`{"instance_id":"../a"}`:           "drain",
			`{"instance_id":"a","force":true}`: "drain",
			`{"instance_id":["a"]}`:            "remove",
			`{"task":"x:y"}`:                   "pause",
			`{"task":"t","reason":"a\u0007"}`:  "pause",
			`{"task":"t","reason":"` + strings.Repeat("x", 257) + `"}`:  "pause",
			`{"task":"t","args":"x"}`:                                   "trigger",
			`{"task":"t","args":["` + strings.Repeat("x", 1024) + `"]}`: "trigger",
			`{"task":"` + strings.Repeat("x", 129) + `"}`:               "forget",
			`{"task":"","role":null}`:                                   "forget",
			`{"task":"t","role":""}`:                                    "forget",
			`{"role":"term"}`:                                           "forget",
			`{"role":` + strings.Repeat("[", 8000):                      "resign",
		} {
			w.refused(http.StatusBadRequest, "body", http.MethodPost, "/api/cluster/"+action, body)
		}
		w.refused(http.StatusRequestEntityTooLarge, "body", http.MethodPost, "/api/cluster/resign", `{"role":"`+strings.Repeat("x", 1<<20)+`"}`)
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "", ";"} {
			w.refused(http.StatusUnsupportedMediaType, "content_type", http.MethodPost, "/api/cluster/resign", `{}`, "Content-Type", kind)
		}
		w.refused(http.StatusForbidden, "cross_origin", http.MethodPost, "/api/cluster/resign", `{}`, "Sec-Fetch-Site", "cross-site")
		w.refused(http.StatusForbidden, "cross_origin", http.MethodPost, "/api/cluster/resign", `{}`, "Sec-Fetch-Site", "same-site")
		w.refused(http.StatusForbidden, "cross_origin", http.MethodPost, "/api/cluster/resign", `{}`, "Origin", "http://evil.example")
		require.True(s, a.IsLeader())
		require.Equal(s, []any{}, w.get("/api/cluster/commands")["commands"])
		w.do(http.MethodPost, "/api/cluster/resign", `{}`, "Content-Type", "application/json; charset=utf-8", "Origin", "http://shop")
		s.until(func() bool { return !a.IsLeader() })
	})
}

// TestTrustedOrigins may ask.
func TestTrustedOrigins(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		o := operators
		o.TrustedOrigins = []string{"https://ops.example"}
		w := s.serve(tenurehttp.New(a, o))
		w.token = "token-of-ann"
		answer := w.do(http.MethodPost, "/api/cluster/resign", `{}`, "Origin", "https://ops.example", "Sec-Fetch-Site", "cross-site")
		require.Equal(s, http.StatusAccepted, answer.StatusCode, answer.body)
	})
}

// TestNewRefusesBadOptions with all problems at once.
func TestNewRefusesBadOptions(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	_, err = tenurehttp.New(c, tenurehttp.Options{GuardReads: true, MaxStreams: -1, TrustedOrigins: []string{"https://x", "nonsense"}})
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
	for _, field := range []string{"GuardReads = true", "MaxStreams = -1", `TrustedOrigins[1] = "nonsense"`} {
		require.ErrorContains(t, err, field)
	}
	_, err = tenurehttp.New(nil, tenurehttp.Options{})
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
	_, err = tenurehttp.NewDashboard(nil, tenurehttp.Options{})
	require.ErrorIs(t, err, tenure.ErrMisconfigured)
}

// TestCommandsAtOnce: 64 may be on. A further one is refused until one of them has ended.
func TestCommandsAtOnce(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.member("a")
		s.until(a.IsLeader)
		s.member("b")
		w := s.serve(tenurehttp.New(a, operators))
		w.token = "token-of-ann"
		for range 100 {
			w.post("undrain", `{"instance_id":"a"}`)
			s.pass(time.Second) // it has ended
		}
		s.net.Partition("b", simnet.Both, 0)
		for range 64 {
			w.post("undrain", `{"instance_id":"b"}`)
		}
		w.refused(http.StatusServiceUnavailable, "busy", http.MethodPost, "/api/cluster/undrain", `{"instance_id":"a"}`)
		s.pass(20 * time.Minute)
		w.post("undrain", `{"instance_id":"a"}`)
	})
}

// TestCommandThatIsNotNoted was done all the same. There is nothing that would say more of it, so
// the answer refers to nothing.
func TestCommandThatIsNotNoted(t *testing.T) {
	inSite(t, func(s *site) {
		a := s.scheduled()
		w := s.serve(tenurehttp.New(a, operators))
		w.token = "token-of-ann"
		s.redis.Intercept(func(_, _ string, args []string) string {
			if slices.Contains(args, "shop:commands") {
				return "OOM command not allowed when used memory > 'maxmemory'."
			}
			return ""
		})
		answer := w.do(http.MethodPost, "/api/cluster/pause", `{"task":"t"}`)
		require.Equal(s, http.StatusAccepted, answer.StatusCode, answer.body)
		require.Empty(s, answer.Header.Values("Location"))
		require.Empty(s, w.object(answer.body)["id"])
		list, err := a.Tasks().List(s.Context())
		require.NoError(s, err)
		require.True(s, list[0].Paused)
	})
}

// TestReaderWhoMayDoNothing is named all the same.
func TestReaderWhoMayDoNothing(t *testing.T) {
	inSite(t, func(s *site) {
		w := s.serve(tenurehttp.New(s.member("a"), tenurehttp.Options{GuardReads: true, Authorize: func(_ *http.Request, action tenurehttp.Action) (string, error) {
			if action != tenurehttp.ActionRead {
				return "", errors.New("no")
			}
			return "eve", nil
		}}))
		require.Equal(s, `caller "eve", actions []`, fields(w.get("/api/cluster/snapshot"), "caller", "actions"))
	})
}
