package tenurehttp_test

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// What follows are the snippets of docs/http.md, each with what stands around it there.

func documentedMount(ctx context.Context, coordinator *tenure.Coordinator, listener net.Listener) error {
	api, err := tenurehttp.New(coordinator, tenurehttp.Options{})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/tenure/", http.StripPrefix("/tenure", api))
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	server.RegisterOnShutdown(api.Close) // ends the streams, for which Shutdown would wait
	err = tenurehttp.Service{Coordinator: coordinator, Server: server}.Serve(ctx, listener)
	return err
}

func documentedToken(coordinator *tenure.Coordinator) (*tenurehttp.Handler, error) {
	api, err := tenurehttp.New(coordinator, tenurehttp.Options{
		Authorize: tenurehttp.BearerToken(map[string]string{"ann": os.Getenv("TOKEN_OF_ANN"), "deploy": os.Getenv("TOKEN_OF_DEPLOY")}),
	})
	return api, err
}

func documentedReaders() tenurehttp.Options {
	tokens := tenurehttp.BearerToken(map[string]string{"ann": os.Getenv("TOKEN_OF_ANN"), "grafana": os.Getenv("TOKEN_OF_GRAFANA")})
	options := tenurehttp.Options{
		GuardReads: true, // probes stay open
		Authorize: func(r *http.Request, action tenurehttp.Action) (string, error) {
			caller, err := tokens(r, action)
			if err == nil && caller == "grafana" && action != tenurehttp.ActionRead {
				err = errors.New("it only reads")
			}
			return caller, err
		},
	}
	return options
}

func documentedLeaderOnly(mux *http.ServeMux, coordinator *tenure.Coordinator, orders http.Handler) {
	mux.Handle("/orders/", tenurehttp.LeaderOnly(coordinator.Elector(), orders, tenurehttp.Proxy(nil)))
}

func documentedDashboard(rdb *redis.Client) (*tenurehttp.Handler, error) {
	control, err := tenure.NewControl(rdb, tenure.ControlOptions{Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	dashboard, err := tenurehttp.NewDashboard(control, tenurehttp.Options{})
	return dashboard, err
}

// TestDocumentedSnippets: each Go snippet of docs/http.md stands in this file, which is compiled,
// and each example of curl is answered as the page says.
func TestDocumentedSnippets(t *testing.T) {
	page, err := os.ReadFile("../docs/http.md")
	require.NoError(t, err)
	source, err := os.ReadFile("docs_test.go")
	require.NoError(t, err)
	compiled := regexp.MustCompile(`(?m)^\t`).ReplaceAllString(string(source), "")
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, snippets, 5)
	for _, snippet := range snippets {
		require.Contains(t, compiled, snippet[1])
	}
	require.Contains(t, string(page), `curl -d '{"instance_id":"web-2"}' -H 'Content-Type: application/json' -H "Authorization: Bearer $TOKEN" localhost:8080/tenure/api/cluster/drain`)
	inSite(t, func(s *site) {
		handler, err := documentedDashboard(s.client("dashboard").Client)
		require.NoError(s, err)
		s.serve(handler, err).refused(http.StatusNotFound, "no_instance", http.MethodGet, "/api/cluster/this", "")
		t.Setenv("TOKEN_OF_ANN", "x")
		t.Setenv("TOKEN_OF_GRAFANA", "y")
		c := s.member("web-2")
		s.until(c.IsLeader)
		w := s.serve(tenurehttp.New(c, documentedReaders()))
		w.refused(http.StatusUnauthorized, "unauthenticated", http.MethodGet, "/api/cluster/status", "")
		w.token = "y"
		w.get("/api/cluster/status")
		w.refused(http.StatusForbidden, "forbidden", http.MethodPost, "/api/cluster/drain", `{"instance_id":"web-2"}`)
		w.token = "x"
		w.post("drain", `{"instance_id":"web-2"}`)
		s.until(c.IsDraining)
		_, err = documentedToken(c)
		require.NoError(s, err)
		mux := http.NewServeMux()
		documentedLeaderOnly(mux, c, http.NotFoundHandler())
		s.until(func() bool { return !c.IsLeader() })
		s.host(mux).refused(http.StatusServiceUnavailable, "no_leader", http.MethodGet, "/orders/1", "")
	})
	require.True(t, strings.HasPrefix(string(page), "# Over HTTP"))
}

// TestDocumentedMount: the program of the page serves, and ends when it is told to, though somebody
// listens to its events.
func TestDocumentedMount(t *testing.T) {
	coordinator, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- documentedMount(ctx, coordinator, listener) }() // ends with stop
	url := "http://" + listener.Addr().String() + "/tenure/"
	require.Eventually(t, func() bool {
		response, err := http.Get(url + "leaderz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, patience, time.Millisecond)
	events, err := http.Get(url + "api/cluster/events")
	require.NoError(t, err)
	defer events.Body.Close()
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("a stream holds up the stop")
	}
}
