package browsertest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// member is a process that takes part, in this one. It reaches Redis over a proxy of its own.
type member struct {
	*tenure.Coordinator
	proxy *redistest.Proxy
}

func startMember(t *testing.T, server *redistest.Server, id string) *member {
	t.Helper()
	proxy := redistest.NewProxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	c, err := tenure.New(rdb, tenure.Options{
		Namespace: "shop", InstanceID: id, ShutdownTimeout: 5 * time.Second,
		Election: tenure.ElectionOptions{LeaseTTL: 2 * time.Second, Safety: tenure.SafetyOptions{RestartGuard: 3 * time.Second, EmptyHistoryWait: -1}},
		Registry: tenure.RegistryOptions{HeartbeatInterval: 500 * time.Millisecond, SweepInterval: time.Second, DriftedAfter: 2 * time.Second, DownAfter: 10 * time.Minute, Version: "v41"},
	})
	require.NoError(t, err)
	require.NoError(t, c.Tasks().Register(tenure.Task{Name: "pulse", Schedule: tenure.Every(time.Second), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) }) // ends with stop
	t.Cleanup(func() { stop(); running.Wait(); _ = rdb.Close() })
	return &member{c, proxy}
}

// TestDriven: three instances elect, lose the leader, drain the next one by the page's own button,
// and lose Redis: the page shows each by itself, without a reload.
func TestDriven(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	a := startMember(t, server, "web-a")
	require.Eventually(t, a.IsLeader, patience, pollEach)
	c := startMember(t, server, "web-c")
	c.Elector().SetEligible(false) // the others lead only after a is cut off: on a starved machine any lease may end
	term, _ := a.Elector().Term()
	handler, err := tenurehttp.New(c.Coordinator, tenurehttp.Options{Authorize: tenurehttp.BearerToken(map[string]string{"alice": "secret"})})
	require.NoError(t, err)
	site := httptest.NewServer(http.StripPrefix("/tenure", handler))
	t.Cleanup(func() { handler.Close(); site.CloseClientConnections(); site.Close() })

	p := open(t, site.URL+"/tenure/", desk)
	p.says("#roles", "web-a leads")
	p.says("#instances .sum", "2 active")
	said := p.text("#said")
	if now, leads := a.Elector().Term(); leads && now.Token == term.Token {
		require.Empty(t, said, "nothing has changed")
	}
	b := startMember(t, server, "web-b")
	b.Elector().SetEligible(false)
	p.says("#instances .sum", "3 active")
	p.says("#tasks", "pulse")

	a.proxy.Cut()
	b.Elector().SetEligible(true)
	c.Elector().SetEligible(true)
	p.until("/web-[bc] leads default now/.test(document.getElementById('said').textContent)")
	p.until("/web-[bc] leads/.test(document.querySelector('#roles').textContent)")
	p.says("#instances .sum", "1 drifted")
	p.says("#changes", "lapsed")
	p.until("document.querySelectorAll('#terms .term').length >= 2")

	p.drainsTheLeader()

	server.Kill(t)
	p.says("#lost", "Redis gives no usable answer since")
	p.says("#live", "stale")
	server.Start(t)
	p.says("#live", "live")
	p.until("document.getElementById('lost').hidden")
	p.until("/web-[bc] leads/.test(document.querySelector('#roles').textContent)")
	p.clean()
}

// drainsTheLeader signs in, and drains who leads by the button of its drawer.
func (p *tab) drainsTheLeader() {
	p.Helper()
	p.click("#signin")
	p.says("#ask", "Your token")
	p.keys("secret\r")
	p.says("#caller", "as alice")
	p.until("Boolean(window.led ||= document.querySelector('#instances li:has(.tag:not(:empty)) .name')?.textContent.trim())")
	led := eval[string](p, "window.led")
	eval[bool](p, "location.hash = '#instance:"+led+"'; true")
	p.click("[data-action=drain]")
	p.click("#ask [type=submit]")
	p.says("#ask .outcome", "Done")
	p.says("#ask .outcome", "Asked for by alice.")
	p.click("#ask .plain")
	p.until("!document.querySelector('#roles').textContent.includes('" + led + " leads')")
	p.says("#drawer .buttons", "End the drain")
}
