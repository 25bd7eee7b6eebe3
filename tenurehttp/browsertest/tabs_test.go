package browsertest

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// TestTwoTabs: each tab signs in and out for itself, also while it hears of events: the sign-out of
// one leaves the other as it is, and nothing of the cluster, however hostile, in its own.
func TestTwoTabs(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	m := startMember(t, server, "web-a")
	require.Eventually(t, m.IsLeader, patience, pollEach)
	const hostile = `{"instance_id":"web-x","status":"<img src=x onerror=window.evil=1>","version":"</script><script>window.evil=1</script>","address":"javascript:window.evil=1","metadata":{"<b>":"\u202e<svg onload=window.evil=1>"}}`
	rdb := server.Client(t)
	require.NoError(t, rdb.HSet(t.Context(), "shop:instances", "web-x", hostile).Err())
	g := guard(t, m, tenurehttp.BearerToken(map[string]string{"alice": "token-of-alice", "bob": "token-of-bob"}))
	enter := func(who string) *tab {
		p := open(t, g.url+"#instance:web-x", desk)
		p.says("#ask", "Your token")
		p.fill("#ask-field", "token-of-"+who)
		p.click("#ask [type=submit]")
		p.says("#caller", "as "+who)
		p.says("#roles", "web-a leads")
		p.says("#instances", "web-x")
		p.says("#drawer", "javascript:window.evil=1")
		return p
	}
	a, b := enter("alice"), enter("bob")
	a.click("#drawer .close")
	a.click("#signout")
	a.gone()
	b.says("#caller", "as bob")
	require.NoError(t, rdb.HDel(t.Context(), "shop:instances", "web-x").Err())
	b.click("#drawer .close")
	b.until("!document.getElementById('instances').textContent.includes('web-x')")
	b.run(chromedp.Reload())
	b.says("#caller", "as bob")
	a.gone()
	require.NotContains(t, eval[string](a, "document.body.innerHTML"), "bob")
	for _, p := range []*tab{a, b} {
		require.False(t, eval[bool](p, "'evil' in window"))
		p.clean()
	}
	g.silent(b, "token-of")
}
