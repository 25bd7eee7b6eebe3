package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// replies stands in for a server: what it answers with a status, and which kind of text that is.
type replies func(*http.Request) (status int, kind, text string)

func (r replies) RoundTrip(asked *http.Request) (*http.Response, error) {
	status, kind, text := r(asked)
	header := http.Header{"Content-Type": {kind}}
	if status/100 == 3 {
		header.Set("Location", text)
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text)), Request: asked}, nil
}

const document, problem = "application/json", "application/problem+json"

func replying(t *testing.T, o APIOptions, r replies) *API {
	t.Helper()
	o.URL, o.Transport = "http://shop", r
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	a, err := NewAPI(o)
	require.NoError(t, err)
	return a
}

// TestWhatIsSent: the body of a command has what was said, and no more; who asks and for what is in
// the headers.
func TestWhatIsSent(t *testing.T) {
	var got string
	var header http.Header
	a := replying(t, APIOptions{}, func(r *http.Request) (int, string, string) {
		text, _ := io.ReadAll(r.Body)
		got, header = r.Method+" "+r.URL.Path+" "+string(text), r.Header
		return http.StatusAccepted, document, `{"id":"x","state":"done","trigger":"one"}`
	})
	ctx := t.Context()
	for want, do := range map[string]func() error{
		`resign {"token":7}`:                                func() error { return a.ResignTerm(ctx, "", 7) },
		`resign {"role":"a","token":7}`:                     func() error { return a.ResignTerm(ctx, "a", 7) },
		`transfer {"token":7}`:                              func() error { return a.TransferTerm(ctx, "", 7, "") },
		`drain {"instance_id":"b"}`:                         func() error { return a.Drain(ctx, "b") },
		`undrain {"instance_id":"b"}`:                       func() error { return a.Undrain(ctx, "b") },
		`remove {"instance_id":"b"}`:                        func() error { return a.Remove(ctx, "b") },
		`pause {"task":"t"}`:                                func() error { return a.Pause(ctx, "t", "") },
		`resume {"task":"t"}`:                               func() error { return a.Resume(ctx, "t") },
		`cancel {"task":"t"}`:                               func() error { return a.Cancel(ctx, "t") },
		`forget {"role":""}`:                                func() error { return a.ForgetRole(ctx, "") },
		`forget {"role":"r"}`:                               func() error { return a.ForgetRole(ctx, "r") },
		`forget {"task":"t"}`:                               func() error { return a.Forget(ctx, "t") },
		`trigger {"task":"t"}`:                              func() error { _, err := a.Trigger(ctx, "t"); return err },
		`trigger {"args":["1","",""],"task":"t"}`:           func() error { _, err := a.Trigger(ctx, "t", "1", "", ""); return err },
		`pause {"reason":"disk","task":"t"}`:                func() error { return a.Pause(ctx, "t", "disk") },
		`transfer {"instance_id":"b","role":"a","token":7}`: func() error { return a.TransferTerm(ctx, "a", 7, "b") },
	} {
		require.NoError(t, do())
		require.Equal(t, "POST /api/cluster/"+want, got)
	}
	require.Equal(t, document, header.Get("Content-Type"))
	require.Equal(t, document, header.Get("Accept"))
	require.Equal(t, "tenure", header.Get("User-Agent"))
	id, err := a.Trigger(ctx, "t")
	require.NoError(t, err)
	require.Equal(t, "one", id, "by which the run is found in the history")
}

// TestLimitsOfLists: an API that is asked for more than it has would refuse.
func TestLimitsOfLists(t *testing.T) {
	var got string
	a := replying(t, APIOptions{}, func(r *http.Request) (int, string, string) {
		got = r.URL.Path[len("/api/cluster/"):] + "?" + r.URL.RawQuery
		return http.StatusOK, document, "{}"
	})
	ctx := t.Context()
	for limit, want := range map[int]string{
		-1: "log?limit=0 commands?limit=0 tasks/t/runs?limit=0", 20: "log?limit=20 commands?limit=20 tasks/t/runs?limit=20",
		5000: "log?limit=1000 commands?limit=500 tasks/t/runs?limit=1000",
	} {
		var all []string
		_, err := a.Recent(ctx, limit)
		require.NoError(t, err)
		all = append(all, got)
		_, err = a.Commands(ctx, limit)
		require.NoError(t, err)
		all = append(all, got)
		_, err = a.Runs(ctx, "t", limit)
		require.NoError(t, err)
		require.Equal(t, want, strings.Join(append(all, got), " "))
	}
	for limit, want := range map[int]string{20: "role?limit=20&role=a", 101: "role?limit=100&role=a"} {
		_, err := a.Terms(ctx, "a", limit)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := a.Instances(ctx, []tenure.InstanceState{"active", "down"})
	require.NoError(t, err)
	require.Equal(t, "snapshot?limit=1000&offset=0&state=active&state=down", got)
}

// TestNowOverTheAPI: Redis's clock is known by a term that is on. An old answer says nothing of it.
func TestNowOverTheAPI(t *testing.T) {
	text := `{"status":{"led":true,"leader":{"instance_id":"a","token":7,"since":"2026-01-01T12:00:00Z"},"for_seconds":5.5}}`
	a := replying(t, APIOptions{}, func(*http.Request) (int, string, string) { return http.StatusOK, document, text })
	require.Equal(t, time.Date(2026, 1, 1, 12, 0, 5, 5e8, time.UTC), a.Now(t.Context()).UTC())
	for _, text = range []string{`{"stale":true,` + text[1:], `{"status":{"led":false}}`, `{"status":{"led":true,"leader":{"instance_id":"a"}}}`} {
		require.WithinDuration(t, time.Now(), a.Now(t.Context()), 30*time.Minute, text)
	}
}

// TestEachAnswerMayBeOld: what is read comes with its age, and that counts as no answer.
func TestEachAnswerMayBeOld(t *testing.T) {
	a := replying(t, APIOptions{}, func(*http.Request) (int, string, string) {
		return http.StatusOK, document, `{"stale":true,"age_seconds":7,"status":{"led":true,"leader":{"instance_id":"a"}},"instance":{"instance_id":"a"},"instances":{"items":[{"instance_id":"a"}]},` +
			`"terms":[{"token":1}],"tasks":[{"name":"a"}],"runs":[{"id":"a"}],"commands":[{"id":"a"}],"log":[{"id":"1-0"}]}`
	})
	ctx := t.Context()
	for name, ask := range map[string]func() (int, error){
		"leader":    func() (int, error) { l, err := a.Leader(ctx, ""); return len(l.InstanceID), err },
		"instance":  func() (int, error) { i, err := a.Instance(ctx, "a"); return len(i.ID), err },
		"instances": func() (int, error) { all, err := a.Instances(ctx, nil); return len(all), err },
		"terms":     func() (int, error) { all, err := a.Terms(ctx, "", 1); return len(all), err },
		"runs":      func() (int, error) { all, err := a.Runs(ctx, "a", 1); return len(all), err },
		"commands":  func() (int, error) { all, err := a.Commands(ctx, 1); return len(all), err },
		"recent":    func() (int, error) { all, err := a.Recent(ctx, 1); return len(all), err },
	} {
		n, err := ask()
		require.Equal(t, 1, n, name)
		require.EqualError(t, err, "this is the answer of 7s ago: there is no younger one", name)
	}
	a = replying(t, APIOptions{}, func(*http.Request) (int, string, string) { return http.StatusOK, document, `{"stale":true}` })
	_, err := a.Leader(ctx, "")
	require.NotErrorIs(t, err, tenure.ErrNoLeader, "nobody led then: it is not known whether somebody does")
	require.ErrorIs(t, err, tenure.ErrUnreachable)
}

// TestWhoseNamespace: that of the API is looked at before the first answer counts, and once.
func TestWhoseNamespace(t *testing.T) {
	looks := 0
	a := replying(t, APIOptions{Namespace: "shop"}, func(r *http.Request) (int, string, string) {
		if strings.HasSuffix(r.URL.Path, "/status") {
			looks++
		}
		return http.StatusOK, document, `{"namespace":"shop","stale":true,"status":{}}`
	})
	ctx := t.Context()
	questions := map[string]func(*API) error{
		"leader":    func(a *API) error { _, err := a.Leader(ctx, ""); return err },
		"instance":  func(a *API) error { _, err := a.Instance(ctx, "a"); return err },
		"instances": func(a *API) error { _, err := a.Instances(ctx, nil); return err },
		"terms":     func(a *API) error { _, err := a.Terms(ctx, "", 1); return err },
		"tasks":     func(a *API) error { _, err := a.Tasks(ctx, ""); return err },
		"runs":      func(a *API) error { _, err := a.Runs(ctx, "a", 1); return err },
		"commands":  func(a *API) error { _, err := a.Commands(ctx, 1); return err },
		"recent":    func(a *API) error { _, err := a.Recent(ctx, 1); return err },
		"wait":      func(a *API) error { return a.WaitFor(ctx, 0) },
		"cluster":   func(a *API) error { _, err := a.Cluster(ctx); return err },
	}
	for name, ask := range questions {
		if name != "wait" { // which an old answer does not end
			require.ErrorContains(t, ask(a), "this is the answer of", name)
		}
	}
	require.Equal(t, 1, looks)
	for name, ask := range questions {
		a := replying(t, APIOptions{Namespace: "mail"}, func(*http.Request) (int, string, string) {
			return http.StatusOK, document, `{"namespace":"shop","status":{},"active_instances":1}`
		})
		for range 2 { // it does not become the right one by being asked again
			require.ErrorContains(t, ask(a), "serves the namespace shop, not mail", name)
		}
	}
}

// TestReadyBesideAKeyOfSomethingElse: commands are sent although something cannot be read that they
// do not need.
func TestReadyBesideAKeyOfSomethingElse(t *testing.T) {
	var asked []string
	refused := `{"code":"misconfigured","detail":"no right"}`
	a := replying(t, APIOptions{Namespace: "shop"}, func(r *http.Request) (int, string, string) {
		asked = append(asked, r.URL.RequestURI())
		if len(asked) == 1 || refused == "" {
			return http.StatusInternalServerError, problem, `{"code":"misconfigured","detail":"no right"}`
		}
		return http.StatusOK, document, `{"namespace":"shop"}`
	})
	require.NoError(t, a.Ready(t.Context()))
	require.Equal(t, []string{"/api/cluster/status", "/api/cluster/snapshot?limit=0"}, asked)
	refused = ""
	require.ErrorIs(t, a.Ready(t.Context()), tenure.ErrMisconfigured)
}

// TestRedirects: what is read is followed a few times, what changes something is not.
func TestRedirects(t *testing.T) {
	left := 0
	a := replying(t, APIOptions{}, func(r *http.Request) (int, string, string) {
		if left == 0 {
			return http.StatusOK, document, `{"status":{"led":true,"leader":{"instance_id":"a"}},"state":"done"}`
		}
		left--
		return http.StatusTemporaryRedirect, "", r.URL.Path
	})
	for n, well := range map[int]bool{0: true, 3: true, 4: false} {
		left = n
		_, err := a.Leader(t.Context(), "")
		require.Equal(t, well, err == nil, n)
	}
	left = 1
	require.ErrorContains(t, a.Drain(t.Context(), "a"), "redirects (fix: --api with the URL of the handler itself)")
}

// TestWhatAnAnswerCountsAs: a problem of the API is that; what stands before it may have a bad
// moment, and what is none of it says where to look.
func TestWhatAnAnswerCountsAs(t *testing.T) {
	for _, tt := range []struct {
		status     int
		kind, text string
		want       string
		passing    bool
		unknown    bool // whether it may have taken effect
	}{
		{500, "text/html", "", `answers 500 Internal Server Error with "text/html" (fix: look whether the program runs behind it, and at --api)`, true, true},
		{502, "text/html", "", "502 Bad Gateway", true, true},
		{503, problem, `{"code":"busy","detail":"64 roles are asked for"}`, "64 roles are asked for", true, false},
		{429, problem, `{"code":"busy","detail":"later"}`, "later", true, false},
		{429, "", "", "429 Too Many Requests", true, true},
		{404, "text/html", "", "(fix: --api must end with the prefix that the handler of tenurehttp is mounted under)", false, false},
		{404, document, `{"code":"not_found","detail":"x"}`, "must end with the prefix", false, false}, // of another program
		{404, problem, `{"detail":"x"}`, "must end with the prefix", false, false},
		{404, problem, `{"code":"not_found","detail":"no such task"}`, "no such task", false, false},
		{404, problem, `{"code":"no_endpoint"}`, "takes no commands (fix: its program must set tenurehttp.Options.Authorize)", false, false},
		{404, problem, `{"code":"no_endpoint","detail":"none (fix: mount it otherwise)"}`, "the API at http://shop: none (fix: --api must end with the prefix that it is mounted under; mount it otherwise)", false, false},
		{409, problem, `{"code":"not_ready","detail":"tenure: x"}`, "tenure: x", false, false},
		{503, problem, `{"code":"unreachable","detail":"tenure: x"}`, "the API at http://shop has had no answer from redis: x (fix: tenure doctor, with --redis)", true, true},
	} {
		a := replying(t, APIOptions{}, func(*http.Request) (int, string, string) { return tt.status, tt.kind, tt.text })
		err := a.Drain(t.Context(), "b")
		require.ErrorContains(t, err, tt.want)
		require.Equal(t, tt.passing, Passing(err), tt.want)
		require.Equal(t, tt.unknown, errors.Is(err, tenure.ErrUnreachable), tt.want)
	}
	a := replying(t, APIOptions{}, func(*http.Request) (int, string, string) { return 404, problem, `{"code":"no_endpoint"}` })
	_, err := a.Leader(t.Context(), "")
	require.EqualError(t, err, "the API at http://shop has no /api/cluster/role (fix: look which version of tenure it is)")
	runs, err := replying(t, APIOptions{}, func(*http.Request) (int, string, string) {
		return 404, problem, `{"code":"not_found","detail":"no such task"}`
	}).Runs(t.Context(), "t", 1)
	require.NoError(t, err, "one that is not known has none")
	require.Empty(t, runs)
}

// TestInterruptedQuestion: who is interrupted hears that, and not that nobody answers.
func TestInterruptedQuestion(t *testing.T) {
	a, err := NewAPI(APIOptions{URL: "http://a", Transport: answers(func(r *http.Request) (string, error) { return "", r.Context().Err() })})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = a.Leader(ctx, "")
	require.Equal(t, context.Canceled, err)
	bound, end := context.WithTimeoutCause(t.Context(), 0, fmt.Errorf("%w: no answer within 1s", tenure.ErrUnreachable))
	defer end()
	_, err = a.Leader(bound, "")
	require.ErrorIs(t, err, tenure.ErrUnreachable)
	require.True(t, strings.HasPrefix(err.Error(), "the API at http://a gives no answer: context deadline exceeded (fix: "), err.Error())
}

// TestLooksAtACommand: soon, then once a second. A process that has not heard of the command is
// asked again for five seconds.
func TestLooksAtACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began time.Time
		var looks []time.Duration
		answer := func() (int, string, string) { return http.StatusOK, document, `{"command":{"state":"asked"}}` }
		a := replying(t, APIOptions{}, func(r *http.Request) (int, string, string) {
			if r.Method == http.MethodPost {
				began, looks = time.Now(), nil
				return http.StatusAccepted, document, `{"id":"x","state":"asked"}`
			}
			looks = append(looks, time.Since(began)/time.Millisecond)
			return answer()
		})
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("no end within 5s"))
		err := a.Drain(ctx, "b")
		cancel()
		require.EqualError(t, err, "tenure: the command may still be executed: no end within 5s")
		require.Equal(t, []time.Duration{20, 60, 140, 300, 620, 1260, 2260, 3260, 4260}, looks)

		answer = func() (int, string, string) { return http.StatusNotFound, problem, `{"code":"not_found"}` }
		err = a.Drain(t.Context(), "b")
		require.ErrorIs(t, err, tenure.ErrUnreachable)
		require.ErrorContains(t, err, "what became of the command is not known any more")
		require.EqualValues(t, 5260, looks[len(looks)-1])

		answer = func() (int, string, string) { return http.StatusBadGateway, "", "" } // it may come back
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, a.Drain(ctx, "b"), context.DeadlineExceeded)
		require.Len(t, looks, 64)
	})
}

// TestEndedCommand: a failure with a word that is known is that error, and every other one failed.
func TestEndedCommand(t *testing.T) {
	for code, want := range map[string]error{"not_ready": tenure.ErrNotReady, "new": tenure.ErrCommandFailed, "": tenure.ErrCommandFailed} {
		record, err := json.Marshal(tenure.CommandRecord{State: "failed", InstanceID: "b", Code: code, Error: "no"})
		require.NoError(t, err)
		a := replying(t, APIOptions{}, func(*http.Request) (int, string, string) { return http.StatusAccepted, document, string(record) })
		require.EqualError(t, a.Drain(t.Context(), "b"), want.Error()+": instance b says: no")
		require.ErrorIs(t, a.Drain(t.Context(), "b"), want)
	}
}
