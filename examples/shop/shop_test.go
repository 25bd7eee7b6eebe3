package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// patience is far longer than anything here takes.
const patience = time.Minute

// instance is a shop that serves.
type instance struct {
	*shop
	t    *testing.T
	url  string
	stop func()
}

func start(t *testing.T, redis, id string) *instance {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	for name, value := range map[string]string{
		"NAMESPACE": "shop", "REDIS_URL": "redis://" + redis, "INSTANCE_ID": id,
		"LEASE_TTL": "10s", "RESTART_GUARD": "-1s", "HEARTBEAT_INTERVAL": "200ms",
	} {
		t.Setenv("SHOP_"+name, value)
	}
	env, err := tenure.OptionsFromEnv("SHOP")
	require.NoError(t, err)
	advertise(&env, listener.Addr())
	s, err := newShop(env, "letmein")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener) }() // ends with cancel
	i := &instance{shop: s, t: t, url: "http://" + listener.Addr().String()}
	stopped := false
	i.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-ended)
			require.NoError(t, env.Redis.Close())
		}
	}
	t.Cleanup(i.stop)
	return i
}

// ask makes a request; header is "Name: value" or "".
func (i *instance) ask(method, path, header, body string) (status int, answer string) {
	request, err := http.NewRequestWithContext(i.t.Context(), method, i.url+path, strings.NewReader(body))
	require.NoError(i.t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if name, value, ok := strings.Cut(header, ": "); ok {
		request.Header.Set(name, value)
	}
	response, err := http.DefaultClient.Do(request)
	require.NoError(i.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(i.t, err)
	return response.StatusCode, string(text)
}

// eventually waits until a request has that answer.
func (i *instance) eventually(status int, path, part string) {
	i.t.Helper()
	require.Eventually(i.t, func() bool {
		code, answer := i.ask(http.MethodGet, path, "", "")
		return code == status && strings.Contains(answer, part)
	}, patience, 20*time.Millisecond, "%s: %s", path, part)
}

// TestShop: an order is taken by the leader wherever it comes in, roles are shared out, and after
// the stop of the leader the other takes orders.
func TestShop(t *testing.T) {
	server := miniredis.RunT(t)
	a := start(t, server.Addr(), "a")
	a.eventually(http.StatusOK, "/leaderz", "")
	b := start(t, server.Addr(), "b")
	b.eventually(http.StatusOK, "/readyz", "")
	b.eventually(http.StatusOK, "/tenure/api/cluster/status", `"active_instances":2`)
	code, _ := b.ask(http.MethodGet, "/leaderz", "", "")
	require.Equal(t, http.StatusServiceUnavailable, code)

	for _, i := range []*instance{a, b} {
		var order placed
		var answer string
		require.Eventually(t, func() bool { // b learns the address of a with a look into the registry
			code, answer = i.ask(http.MethodPost, "/orders", "", "{}")
			return code == http.StatusOK
		}, patience, 20*time.Millisecond, "%s", answer)
		require.NoError(t, json.Unmarshal([]byte(answer), &order))
		require.Equal(t, "a", order.By)
	}
	require.EqualValues(t, 2, a.orders.Load())

	require.Eventually(t, func() bool { return b.imported.Load() > 0 || leads(b, "export") }, patience, 20*time.Millisecond, "b leads one of the roles")
	a.eventually(http.StatusOK, "/metrics", `tenure_leader{namespace="shop",role="default"} 1`)
	b.eventually(http.StatusOK, "/metrics", `tenure_leader{namespace="shop",role="default"} 0`)

	a.stop()
	b.eventually(http.StatusOK, "/leaderz", "")
	code, answer := b.ask(http.MethodPost, "/orders", "", "{}")
	require.Equal(t, http.StatusOK, code, answer)
	require.Contains(t, answer, `"by":"b"`)
}

func leads(i *instance, role string) bool {
	e, known := i.coordinator.Role(role)
	return known && e.IsLeader()
}

// TestShopCommands: who has the token may drain an instance, nobody else.
func TestShopCommands(t *testing.T) {
	server := miniredis.RunT(t)
	a := start(t, server.Addr(), "a")
	a.eventually(http.StatusOK, "/leaderz", "")
	a.eventually(http.StatusOK, "/readyz", "")
	code, _ := a.ask(http.MethodPost, "/tenure/api/cluster/drain", "", `{"instance_id":"a"}`)
	require.Equal(t, http.StatusUnauthorized, code)
	code, answer := a.ask(http.MethodPost, "/tenure/api/cluster/drain", "Authorization: Bearer letmein", `{"instance_id":"a"}`)
	require.Equal(t, http.StatusAccepted, code, answer)
	a.eventually(http.StatusServiceUnavailable, "/readyz", "")
	a.eventually(http.StatusServiceUnavailable, "/leaderz", "")
	code, _ = a.ask(http.MethodGet, "/livez", "", "")
	require.Equal(t, http.StatusOK, code, "it lives on")
}

// TestShopAlone: without Redis the shop runs, and leads.
func TestShopAlone(t *testing.T) {
	env, err := tenure.OptionsFromEnv("SHOPALONE")
	require.NoError(t, err)
	env.Options.Namespace = "shop"
	s, err := newShop(env, "")
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener) }() // ends with cancel
	i := &instance{shop: s, t: t, url: fmt.Sprint("http://", listener.Addr())}
	i.eventually(http.StatusOK, "/leaderz", "")
	i.eventually(http.StatusOK, "/", "leads: true")
	cancel()
	require.NoError(t, <-ended)
}
