package browsertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenurehttp"
)

// alone is the handler of a process that stands alone, and leads.
func alone(t *testing.T) http.Handler {
	t.Helper()
	c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "alone"})
	require.NoError(t, err)
	_, err = c.AddRole("default", tenure.ElectionOptions{})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) }) // ends with stop
	t.Cleanup(func() { stop(); running.Wait() })
	require.Eventually(t, c.IsLeader, patience, pollEach)
	handler, err := tenurehttp.New(c, tenurehttp.Options{})
	require.NoError(t, err)
	t.Cleanup(handler.Close)
	return handler
}

// TestPageWithoutRedis: a process that stands alone leads without an end, and the page promises
// nothing of others that would take over.
func TestPageWithoutRedis(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(alone(t))
	t.Cleanup(func() { site.CloseClientConnections(); site.Close() })
	p := open(t, site.URL, desk)
	p.says("#roles", "alone leads")
	p.says("#roles", "role:default") // beside the default one
	require.Equal(t, "lease without an end", p.text("#roles .lease"))
	p.click("#terms .term a")
	p.says("#drawer", "Before and after")
	require.NotContains(t, p.text("#drawer"), "What it promises")
	p.clean()
}
