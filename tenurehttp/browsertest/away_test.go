package browsertest

import (
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// TestMachineThatSlept: the clock by which the page reckons stands still while its machine sleeps.
// If the server cannot be reached after that, what is shown is as old as it is.
func TestMachineThatSlept(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	p := open(t, s.url, desk)
	p.says("#live", "live")
	require.Regexp(t, "lease 2[0-9] s of 30 s", p.text("#roles"))
	s.change(func() { s.down = true })
	eval[bool](p, "{ const real = Date.now; Date.now = () => real() + 3600_000; } true")
	p.says("#lost", "Last seen 1 h")
	p.says("#live", "last seen 1 h")
	require.Regexp(t, "lease run out, as far as is known", p.text("#roles"))
	s.change(func() { s.down = false })
	p.says("#live", "live")
	p.until("/lease 2[0-9] s of 30 s/.test(document.getElementById('roles').textContent)")
	p.clean()
}

// TestAnswerThatNeverCame: that a request was given up says nothing of how long the server takes.
// The next one follows as soon as the page says.
func TestAnswerThatNeverCame(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	p := open(t, s.url+"none", desk)
	const waits = `{ const real = window.setTimeout; window.waits = []; window.setTimeout = (f, ms, ...rest) => { if (f.name === "load") window.waits.push(ms); return real(f, ms, ...rest); }; }`
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: waits})
	require.NoError(t, err)
	p.run(chromedp.Navigate(s.url))
	p.says("#live", "live")
	gone := make(chan struct{})
	t.Cleanup(func() { close(gone) })
	s.change(func() {
		s.before = func(_ http.ResponseWriter, r *http.Request) { // the lock is held: the others wait as well
			select {
			case <-r.Context().Done():
			case <-gone:
			}
		}
	})
	p.says("#lost", "It is tried again every other second.")
	require.LessOrEqual(t, eval[float64](p, "window.waits.at(-1)"), 2000.0)
	p.clean()
}
