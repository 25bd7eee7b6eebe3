package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

const focused = "document.activeElement.getAttribute('href') ?? (document.activeElement.textContent || document.activeElement.id)"

// TestFocusInTheDrawer: what the drawer shows is made anew as soon as it says something else. The
// focus stays where it was: else the tab key begins at the top of the page again.
func TestFocusInTheDrawer(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	p := open(t, s.url+"#instance:web-2", desk)
	p.says("#drawer .runs", "invoices")
	for _, link := range []string{"#drawer .runs a", "#drawer .plainlist:not(.runs) a"} {
		eval[bool](p, "window.before = document.querySelector('#drawer dl'); document.querySelector('"+link+"').focus(); true")
		was := eval[string](p, focused)
		require.Contains(t, was, "#t")
		s.change(func() {
			for i := range s.instances {
				s.instances[i].Load.Jobs++
			}
		})
		p.until("!window.before.isConnected")
		require.Equal(t, was, eval[string](p, focused))
	}
	p.clean()
}

// TestFocusInAList: what changes its place in a list, or has one before it go, keeps the focus.
func TestFocusInAList(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	for i := range 8 {
		s.lead(fmt.Sprint("role-", i), 30, 20, "web-1 5 0")
	}
	p := open(t, s.url, desk)
	p.says("#roles", "web-1 leads")
	bands := func() string {
		return eval[string](p, "[...document.querySelectorAll('.role-band .role')].map((r) => r.textContent.at(-1)).join('')")
	}
	focus := func(role string) string {
		eval[bool](p, fmt.Sprintf("[...document.querySelectorAll('.role-band')].find((b) => b.querySelector('.role').textContent === %q).querySelector('a').focus(); true", role))
		return eval[string](p, focused)
	}
	vacate := func(role int, vacant bool) {
		s.change(func() {
			s.roles[role]["leader"] = nil
			if !vacant {
				s.roles[role]["leader"] = tenure.LeaderInfo{InstanceID: "web-1", Token: 1795295029000 + 6*37 + 211, Since: time.Now().Add(-5 * time.Hour), Remaining: 20 * time.Second}
			}
		})
	}
	was := focus("role-5")
	require.Contains(t, was, "#term")
	vacate(5, true)
	p.until("document.querySelector('.role-band').classList.contains('vacant')")
	require.Equal(t, "50123467", bands())
	require.Equal(t, was, eval[string](p, focused), "it has moved itself")
	was = focus("role-2")
	vacate(5, false)
	p.until("!document.querySelector('.role-band').classList.contains('vacant')")
	require.Equal(t, "01234567", bands())
	require.Equal(t, was, eval[string](p, focused), "another one has moved over it")
	eval[bool](p, "window.moved = 0; new MutationObserver((all) => { window.moved += all.flatMap((m) => [...m.addedNodes]).length; }).observe(document.querySelector('.bands'), { childList: true }); true")
	s.change(func() { s.roles = s.roles[1:] })
	p.until("document.querySelectorAll('.role-band').length === 7")
	require.Equal(t, was, eval[string](p, focused), "one before it has gone")
	require.Zero(t, eval[int](p, "window.moved"), "those that are left stay where they are")
	p.clean()
}

// TestFocusInAQuestion: while a command goes on, the focus stays where somebody has moved it. Once
// the question is closed it is back at what has opened it, or in the drawer if that is gone.
func TestFocusInAQuestion(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	s.actions = all
	s.result.State = "asked"
	p := open(t, s.url+"#instance:web-2", desk)
	eval[bool](p, "window.looks = 0; const real = window.fetch; window.fetch = (url, o) => { if (String(url).includes('/commands/')) window.looks++; return real(url, o); }; true")
	p.click("[data-action=drain]")
	p.says("#ask", "Drain web-2?")
	p.click("#ask [type=submit]")
	p.says("#ask .outcome", "Waiting for its end")
	require.Contains(t, eval[string](p, focused), "Waiting for its end", "it is read out")
	p.keys("\t")
	require.Equal(t, "Close", eval[string](p, focused))
	looks := eval[int](p, "window.looks")
	eval[bool](p, "window.far = "+"window.looks + 3; true")
	p.until("window.looks >= window.far")
	require.Greater(t, eval[int](p, "window.looks"), looks)
	require.Equal(t, "Close", eval[string](p, focused))
	s.change(func() { s.down = true })
	p.says("#ask .outcome", "What became of it is not known")
	require.Equal(t, "Close", eval[string](p, focused))
	s.change(func() { s.down = false })
	p.says("#ask .outcome", "Waiting for its end")
	s.change(func() {
		s.result.State = "done"
		for i := range s.instances {
			if s.instances[i].ID == "web-2" {
				s.instances[i].State = tenure.InstanceDraining
			}
		}
	})
	p.says("#ask .outcome", "Done.")
	p.until("document.querySelector('[data-action=undrain]') !== null")
	require.Equal(t, "Close", eval[string](p, focused))
	p.keys("\r")
	p.until("!document.getElementById('ask').open && document.activeElement.id === 'drawer'") // the event of its end comes later
	p.clean()
}

// TestKeyThatIsHeld: who holds Enter for a moment too long on the button of an action has not
// answered the question yet.
func TestKeyThatIsHeld(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	s.actions = all
	held := true
	p := open(t, s.url+"#term:1795295029422", desk)
	p.says("#drawer", "Transfer")
	eval[bool](p, "document.querySelector('[data-action=transfer]').focus(); true")
	p.keys(kb.Enter)
	p.says("#ask", "Hand default over?")
	for range 3 {
		p.run(chromedp.KeyEvent(kb.Enter, func(e *input.DispatchKeyEventParams) { e.AutoRepeat = &held }))
	}
	require.True(t, eval[bool](p, "document.getElementById('ask').open"))
	require.Empty(t, p.text("#ask .outcome"))
	require.Empty(t, s.commands())
	p.keys(kb.Enter)
	p.says("#ask .outcome", "Done.")
	require.Len(t, s.commands(), 1)
	p.clean()
}

// TestFilterOfFewTasks: a filter that is set can be taken back, also once there are so few tasks
// that there would be none.
func TestFilterOfFewTasks(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lead("", 30, 24, "web-1 5 0")
	for i := range 13 {
		s.task(string(rune('a'+i))+"-task", "every 1m0s", 0, 0, nil)
	}
	p := open(t, s.url, desk)
	p.says("#tasks h2", "Tasks 13")
	p.run(chromedp.SendKeys(chromedp.CSS("#tasks input"), "b-"))
	p.says("#tasks .sum", "1 found")
	s.change(func() { s.tasks = s.tasks[:12] })
	p.says("#tasks h2", "Tasks 12")
	p.run(chromedp.SendKeys(chromedp.CSS("#tasks input"), kb.Backspace+kb.Backspace))
	p.until("!document.querySelector('#tasks .sum').textContent.includes('found')")
	p.clean()
}

// TestDrawerInHand: a text that somebody has selected stays for long enough to be copied, and the
// drawer does not show for hours what was.
func TestDrawerInHand(t *testing.T) {
	t.Parallel()
	s := newScene(t).day()
	p := open(t, s.url+"#instance:web-4", desk)
	p.says("#drawer .body", "active")
	p.says("#drawer .body", "zone")
	eval[bool](p, "getSelection().selectAllChildren(document.querySelector('#drawer dl')); true")
	s.change(func() {
		for i := range s.instances {
			if s.instances[i].ID == "web-4" {
				s.instances[i].State = tenure.InstanceDown
			}
		}
	})
	p.says("#instances", "1 down")
	drawn := "window.drawn = Number(document.documentElement.dataset.drawn) + 3; true"
	eval[bool](p, drawn)
	p.until("Number(document.documentElement.dataset.drawn) > window.drawn")
	require.Contains(t, eval[string](p, "getSelection().toString()"), "active")
	eval[bool](p, "{ const real = performance.now.bind(performance); performance.now = () => real() + 60_000; } true")
	p.says("#drawer .state", "down")
	p.clean()
}
