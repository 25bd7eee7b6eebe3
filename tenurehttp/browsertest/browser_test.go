package browsertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

var screens = flag.String("screens", "", "folder to write the pictures of the documentation to; empty: they are not made")

// patience bounds what a starved machine may need.
const (
	patience = 60 * time.Second
	pollEach = 10 * time.Millisecond
)

// browser is the one Chromium of all tests.
var browser struct {
	once   sync.Once
	ctx    context.Context //nolint:containedctx // chromedp keeps the browser in it
	cancel []context.CancelFunc
	err    error
}

// atOnce is how many tests have a page open at a time: a page waits most of the time.
const atOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", atOnce)
	}
	redistest.Silence()
	code := m.Run()
	for _, cancel := range slices.Backward(browser.cancel) {
		cancel()
	}
	os.Exit(code)
}

var errNoBrowser = errors.New("there is no Chromium: make install-redis installs it")

// startBrowser starts it.
func startBrowser() (context.Context, error) {
	browser.once.Do(func() {
		var path string
		for _, name := range []string{os.Getenv("TENURE_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"} {
			if found, err := exec.LookPath(name); err == nil && name != "" {
				path = found
				break
			}
		}
		if path == "" {
			browser.err = errNoBrowser
			return
		}
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
			chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("disable-gpu", true), chromedp.Flag("hide-scrollbars", true), chromedp.Flag("lang", "en-GB"))
		ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
		browser.cancel = append(browser.cancel, cancel)
		ctx, cancel = chromedp.NewContext(ctx)
		browser.cancel = append(browser.cancel, cancel)
		browser.ctx, browser.err = ctx, chromedp.Do(ctx) //nolint:fatcontext // once
	})
	return browser.ctx, browser.err
}

// tab is a page that is open.
type tab struct {
	*testing.T
	ctx context.Context //nolint:containedctx // chromedp keeps the tab in it

	mu       sync.Mutex
	problems []string // what the page has reported: errors of scripts, refused by the policy
}

// view is how somebody looks at it.
type view struct {
	width, height int64
	scale         float64
	dark          bool
	still         bool // prefers-reduced-motion
	phone         bool
}

var (
	desk  = view{width: 1280, height: 900}
	phone = view{width: 390, height: 844, scale: 2, phone: true}
)

// open opens a page in a tab of its own.
func open(t *testing.T, url string, v view) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a browser")
	}
	parent, err := startBrowser()
	if errors.Is(err, errNoBrowser) && (os.Getenv("CI") == "" || goruntime.GOOS != "linux") {
		t.Skip(err)
	}
	require.NoError(t, err)
	ctx, cancel := chromedp.NewContext(parent)
	t.Cleanup(cancel)
	p := &tab{T: t, ctx: ctx}
	require.NoError(t, chromedp.Do(ctx)) // a tab ends with the context of its first call
	require.NoError(t, chromedp.Listen(ctx, p.listen))
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: v.width, Height: v.height, DeviceScaleFactor: max(v.scale, 1), Mobile: v.phone})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: v.features()})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, performance.Enable, performance.EnableParams{TimeDomain: performance.EnableTimeDomainThreadTicks})
	require.NoError(t, err)
	p.run(chromedp.Navigate(url))
	return p
}

func (v view) features() []*emulation.MediaFeature {
	scheme, motion := "light", "no-preference"
	if v.dark {
		scheme = "dark"
	}
	if v.still {
		motion = "reduce"
	}
	return []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: motion}}
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		p.problems = append(p.problems, fmt.Sprintf("%s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			p.problems = append(p.problems, e.Entry.Text)
		}
	}
}

// clean expects that no script has failed, that the policy had nothing to refuse, and that nothing
// that is no text is shown as one.
func (p *tab) clean() {
	p.Helper()
	require.NotRegexp(p, `\b(undefined|NaN)\b|falsefalse|\[object`, eval[string](p, "document.body.innerText"))
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Empty(p, p.problems)
}

func (p *tab) run(steps ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	require.NoError(p, chromedp.Do(ctx, steps...))
}

// value is what an action returns.
func value[T any](p *tab, action chromedp.Action[T]) T {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	require.NoError(p, err)
	return v
}

// eval is what a script says.
func eval[T any](p *tab, script string) T {
	p.Helper()
	return value(p, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// until waits until a script says that something is so.
func (p *tab) until(script string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool](script, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0)))
	for err != nil && ctx.Err() == nil { // the page was loaded anew meanwhile
		p.run(chromedp.WaitReady(chromedp.CSS("body")))
		_, err = chromedp.Run(ctx, chromedp.Poll[bool](script, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0)))
	}
	if err != nil {
		p.Fatalf("%s does not come: %v; the page shows:\n%s", script, err, eval[string](p, "document.body.innerText"))
	}
}

// says waits until the text of an element has a part.
func (p *tab) says(selector, part string) {
	p.Helper()
	p.until(fmt.Sprintf("(document.querySelector(%q)?.textContent ?? '').includes(%q)", selector, part))
}

// text is what an element shows.
func (p *tab) text(selector string) string {
	p.Helper()
	return strings.Join(strings.Fields(eval[string](p, fmt.Sprintf("document.querySelector(%q)?.textContent ?? ''", selector))), " ")
}

// click clicks an element. The page may replace an element between the look for it and the click:
// then nothing was clicked, and it is looked for anew.
func (p *tab) click(selector string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		err := chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
		if err == nil || !strings.Contains(err.Error(), "Could not find node") {
			require.NoError(p, err)
			return
		}
	}
}

// keys presses keys.
func (p *tab) keys(keys string) {
	p.Helper()
	p.run(chromedp.KeyEvent(keys))
}

// picture writes a screenshot.
func (p *tab) picture(path string, full bool) {
	p.Helper()
	take := chromedp.CaptureScreenshot()
	if full {
		take = chromedp.FullScreenshot(100)
	}
	picture := value(p, take)
	require.NoError(p, os.WriteFile(path, picture, 0o644))
}
