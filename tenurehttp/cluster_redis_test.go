package tenurehttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// node is an instance on a real server, with its API.
type node struct {
	*tenure.Coordinator
	client *redis.Client
	url    string
}

// TestClusterOnRedis: three instances over HTTP, on a real server: an election, a leader that is
// cut off for good, a drain, and a Redis that goes away and comes back.
func TestClusterOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	server := redistest.Start(t)
	nodes := make(map[string]*node)
	for _, id := range []string{"a", "b", "c"} {
		nodes[id] = startNode(t, server, id)
	}
	ask := func(id, path string) (document struct {
		Leader *struct {
			ID string `json:"instance_id"`
		} `json:"leader"`
		Healthy bool `json:"cluster_healthy"`
		Active  int  `json:"active_instances"`
		Stale   bool `json:"stale"`
	}) {
		response, err := http.Get(nodes[id].url + path)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &document), string(text))
		return document
	}
	leader := ""
	await := func(what string, reached func() bool) {
		t.Helper()
		require.Eventually(t, reached, patience, 20*time.Millisecond, what)
	}
	led := func(by ...string) func() bool { // all say the same, and that one says so of itself
		return func() bool {
			said := map[string]bool{}
			for _, id := range by {
				if l := ask(id, "/api/cluster/status").Leader; l != nil {
					said[l.ID] = true
					leader = l.ID
				}
			}
			return len(said) == 1 && nodes[leader] != nil && nodes[leader].IsLeader()
		}
	}
	await("an election", led("a", "b", "c"))
	await("all take part", func() bool { s := ask("a", "/api/cluster/status"); return s.Healthy && s.Active == 3 })

	sameServer(t, nodes["a"])

	killed := leader
	_ = nodes[killed].client.Close() // as if it were dead: it never reaches Redis again
	delete(nodes, killed)
	var left []string
	for id := range nodes {
		left = append(left, id)
	}
	await("another leads", func() bool { return led(left...)() && leader != killed })

	drained := leader
	nodes[drained].manage(t, func(c *tenure.Control) error { return c.Drain(t.Context(), drained) })
	await("another leads", func() bool { return led(left...)() && leader != drained })
	nodes[drained].Undrain()

	server.Stop(t)
	await("stale", func() bool { return ask(leader, "/api/cluster/status").Stale })
	for _, probe := range []string{"/livez", "/readyz"} {
		response, err := http.Get(nodes[leader].url + probe)
		require.NoError(t, err)
		_ = response.Body.Close()
		require.Equal(t, http.StatusOK, response.StatusCode, probe)
	}
	server.Start(t)
	await("Redis is back", func() bool { return led(left...)() && !ask(leader, "/api/cluster/status").Stale })
}

// manage asks for something again if Redis or an instance has not answered in time: on a starved
// machine it may stand still for longer than the client of a short lease waits.
func (n *node) manage(t *testing.T, ask func(*tenure.Control) error) {
	t.Helper()
	end := time.Now().Add(patience)
	err := ask(n.Control())
	for (errors.Is(err, tenure.ErrUnreachable) || errors.Is(err, tenure.ErrNotTaken)) && time.Now().Before(end) {
		err = ask(n.Control())
	}
	require.NoError(t, err)
}

// sameServer: the document says of Redis what the instance knows of it.
func sameServer(t *testing.T, n *node) {
	t.Helper()
	var said tenure.RedisServer
	n.manage(t, func(c *tenure.Control) (err error) {
		said, err = c.RedisServer(t.Context())
		return err
	})
	require.NotEmpty(t, said.Version)
	require.NotEmpty(t, said.Kind)
	require.EventuallyWithT(t, func(t *assert.CollectT) { // it knows nothing of a Redis that has not answered yet
		response, err := http.Get(n.url + "/api/cluster/snapshot")
		require.NoError(t, err)
		defer response.Body.Close()
		var snapshot struct {
			Redis struct {
				Kind    string `json:"kind"`
				Version string `json:"version"`
			} `json:"redis"`
		}
		require.NoError(t, json.NewDecoder(response.Body).Decode(&snapshot))
		require.Equal(t, said.Kind, snapshot.Redis.Kind)
		require.Equal(t, said.Version, snapshot.Redis.Version)
	}, patience, 20*time.Millisecond)
}

func startNode(t *testing.T, server *redistest.Server, id string) *node {
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 200 * time.Millisecond})
	c, err := tenure.New(client, tenure.Options{
		Namespace: "shop", InstanceID: id, ShutdownTimeout: 5 * time.Second,
		Election: tenure.ElectionOptions{LeaseTTL: 2 * time.Second, Safety: tenure.SafetyOptions{RestartGuard: -1}},
		Registry: tenure.RegistryOptions{HeartbeatInterval: time.Second, HeartbeatTTL: 10 * time.Second},
	})
	require.NoError(t, err)
	h, err := tenurehttp.New(c, tenurehttp.Options{})
	require.NoError(t, err)
	web := httptest.NewServer(h)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) }) // ends with stop
	t.Cleanup(func() {
		h.Close()
		web.Close()
		stop()
		running.Wait()
		_ = client.Close()
	})
	return &node{Coordinator: c, client: client, url: web.URL}
}
