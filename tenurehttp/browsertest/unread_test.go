package browsertest

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestPageOfWhatIsUnread: what could not be read is said, and nowhere that there is none of it.
func TestPageOfWhatIsUnread(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	m := startMember(t, server, "web-a")
	require.Eventually(t, m.IsLeader, patience, pollEach)
	m.proxy.Cut() // what is spoiled stays so
	raw := server.Client(t)
	for _, key := range []string{"shop:tasks", "shop:log", "shop:leader:terms"} {
		require.NoError(t, raw.Del(t.Context(), key).Err())
		require.NoError(t, raw.Set(t.Context(), key, "mine", 0).Err())
	}
	require.NoError(t, raw.Set(t.Context(), "shop:leader", "elsewhere", 0).Err())
	control, err := tenure.NewControl(raw, tenure.ControlOptions{Namespace: "shop"})
	require.NoError(t, err)
	p := open(t, dashboard(t, control), desk)
	p.says("#attention", "the tasks cannot be read")
	p.says("#attention", "the log cannot be read")
	p.says("#roles", "leads")
	for _, wrong := range []string{"No task has a record yet", "Nothing has changed yet", "No term has begun yet"} {
		require.False(t, eval[bool](p, "document.body.innerText.includes('"+wrong+"')"), wrong)
	}
	require.Equal(t, "shop · led · tenure", eval[string](p, "document.title"))
	p.clean()
}

// TestPageOfAPart: if the server has left something out, the page says so, and its title does not
// say that all is led.
func TestPageOfAPart(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lead("", 30, 24, "web-1 5 0")
	s.truncated = true
	p := open(t, s.url, desk)
	p.says("#attention", "not all is shown: there are more roles, instances or tasks than the server of this page reads")
	p.until("document.title === 'shop · led, as far as is shown · tenure'")
	s.change(func() { s.truncated = false })
	p.until("document.title === 'shop · led · tenure'")
	p.until("document.getElementById('attention').hidden")
	p.clean()
}

// TestPageOfAForeignLeader: who reads a page of many roles, whose bands have no room for tokens,
// sees that another program holds a lease.
func TestPageOfAForeignLeader(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	raw := redistest.Start(t).Client(t)
	for _, role := range []string{"r1", "r2", "r3", "r4", "r5", "r6", "r7"} {
		require.NoError(t, raw.XAdd(t.Context(), &redis.XAddArgs{Stream: "shop:log", Values: []string{
			"event", "elected", "instances", "web-a", "role", role, "token", "7",
		}}).Err())
		require.NoError(t, raw.Set(t.Context(), "shop:leader:"+role, "elsewhere", time.Hour).Err())
	}
	require.NoError(t, raw.Set(t.Context(), "shop:leader", "other-program", time.Hour).Err())
	control, err := tenure.NewControl(raw, tenure.ControlOptions{Namespace: "shop"})
	require.NoError(t, err)
	p := open(t, dashboard(t, control), desk)
	p.says("#roles", "other-program leads")
	require.True(t, eval[bool](p, "document.querySelector('.bands').classList.contains('many')"))
	require.Contains(t, eval[string](p, "document.querySelector('#roles').innerText"), "not a tenure client")
	p.clean()
}

// dashboard serves the page of a cluster that this process is not part of.
func dashboard(t *testing.T, control *tenure.Control) (url string) {
	t.Helper()
	handler, err := tenurehttp.NewDashboard(control, tenurehttp.Options{})
	require.NoError(t, err)
	site := httptest.NewServer(http.StripPrefix("/tenure", handler))
	t.Cleanup(func() { handler.Close(); site.CloseClientConnections(); site.Close() })
	return site.URL + "/tenure/"
}
