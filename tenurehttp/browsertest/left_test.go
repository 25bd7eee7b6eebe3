package browsertest

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/tenurehttp"
)

// holds has the page get no answer to a request with that part in its address until it is let go.
func (p *tab) holds() {
	p.Helper()
	eval[bool](p, `(() => {
		const real = window.fetch;
		Object.assign(window, { hold: "", held: [] });
		window.fetch = async (url, options) => {
			const late = window.hold !== "" && String(url).includes(window.hold);
			const answer = await real(url, options);
			if (late) await new Promise((go) => window.held.push(go));
			return answer;
		};
		return true;
	})()`)
}

// hold holds what is asked from now on; "": nothing.
func (p *tab) hold(part string) {
	p.Helper()
	eval[bool](p, fmt.Sprintf("window.hold = %q; true", part))
}

// waitHeld waits for so many answers that are held.
func (p *tab) waitHeld(n int) {
	p.Helper()
	p.until(fmt.Sprintf("window.held.length >= %d", n))
}

// release lets one of them go, and waits until the page has drawn what it had to.
func (p *tab) release(n int) {
	p.Helper()
	drawn := eval[int](p, fmt.Sprintf("window.held[%d](); Number(document.documentElement.dataset.drawn)", n))
	p.until(fmt.Sprintf("Number(document.documentElement.dataset.drawn) > %d", drawn+1))
}

// TestSignInThatWasLeft: credentials that somebody has given up while the server looked at them are
// not taken, and no other question is closed by the answer.
func TestSignInThatWasLeft(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	m := startMember(t, redistest.Start(t), "web-a")
	require.Eventually(t, m.IsLeader, patience, pollEach)
	g := guard(t, m, tenurehttp.BearerToken(map[string]string{"alice": "token-of-alice", "bob": "token-of-bob"}))
	p := open(t, g.url, desk)
	p.says("#ask", "Your token")
	p.holds()
	p.hold("limit=0")
	p.fill("#ask-field", "token-of-alice")
	p.click("#ask [type=submit]")
	p.waitHeld(1)
	p.click("#ask .plain")
	p.until("!document.getElementById('ask').open")
	p.click("#signin")
	p.says("#ask", "Your token")
	p.release(0)
	require.True(t, eval[bool](p, "document.getElementById('ask').open"), "the second question stays")
	p.gone()

	p.fill("#ask-field", "token-of-alice")
	p.click("#ask [type=submit]")
	p.waitHeld(2)
	p.hold("")
	p.fill("#ask-field", "token-of-bob")
	p.click("#ask [type=submit]")
	p.says("#caller", "as bob")
	p.release(1)
	require.Equal(t, "as bob", p.text("#caller"), "the last one that was tried counts")
	p.clean()
}
