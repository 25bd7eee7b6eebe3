package browsertest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestAnswersOfTwoProcesses: behind a load balancer each answer may be that of another process,
// whose snapshot is up to five seconds older. The page does not go back to a leader of before. If
// all are older, Redis has lost the rest: then they are shown.
func TestAnswersOfTwoProcesses(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lead("", 30, 24, "web-1 5 0")
	s.log = []tenure.Change{{ID: "1795295029000-0", Type: tenure.ChangeElected, InstanceID: "web-1", Time: time.Now()}}
	before, log := s.roles, s.log
	p := open(t, s.url, desk)
	p.says("#roles", "web-1 leads")
	eval[bool](p, "window.shown = []; new MutationObserver(() => { const t = document.getElementById('said').textContent; if (t) window.shown.push(t); }).observe(document.getElementById('said'), { subtree: true, childList: true, characterData: true }); true")
	s.change(func() {
		s.roles = nil
		s.lead("", 30, 24, "web-1 5 0", "web-2 0 0")
		s.log = slices.Concat([]tenure.Change{{ID: "1795295029000-1", Type: tenure.ChangeElected, InstanceID: "web-2", Time: time.Now()}}, log)
		after, all := s.roles, s.log
		s.each = func(n int) {
			if s.roles, s.log = after, all; n%2 == 1 {
				s.roles, s.log = before, log
			}
		}
	})
	p.says("#roles", "web-2 leads")
	asked := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.snapshots
	}
	so := asked()
	require.Eventually(t, func() bool { return asked() >= so+5 }, patience, pollEach, "each other answer is an older one")
	require.Equal(t, []string{"web-2 leads default now."}, eval[[]string](p, "window.shown"))
	require.Contains(t, p.text("#roles"), "web-2 leads")

	s.change(func() { s.each, s.roles, s.log = nil, before, log })
	p.says("#roles", "web-1 leads")
	p.clean()
}

// TestAnswersOfAProcessWithoutRedis: behind a load balancer one process may be cut off from Redis.
// The page does not turn grey with each of its answers, as long as another one knows more.
func TestAnswersOfAProcessWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.lead("", 30, 24, "web-1 5 0")
	s.roles[0]["status"] = map[string]any{"led": true, "lease_ttl_seconds": 30, "for_seconds": 5 * 3600}
	s.log = []tenure.Change{{ID: "1795295029000-0", Type: tenure.ChangeElected, InstanceID: "web-1", Time: time.Now()}}
	s.began = time.Now().Add(-3 * time.Minute) // of the last answer that the other process had
	p := open(t, s.url, desk)
	p.says("#live", "live")
	eval[bool](p, "window.shown = []; new MutationObserver(() => window.shown.push(document.getElementById('live').textContent)).observe(document.getElementById('live'), { subtree: true, childList: true, characterData: true }); true")
	asked, since := 0, 0
	s.change(func() {
		since = s.snapshots
		s.each = func(n int) {
			asked = n
			if s.stale = ""; n%2 == 1 {
				s.stale = "redis is unreachable: i/o timeout"
			}
		}
	})
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return asked >= since+6
	}, patience, pollEach)
	for _, text := range eval[[]string](p, "window.shown") {
		require.Contains(t, text, "live")
	}
	s.change(func() { s.each, s.stale = nil, "redis is unreachable: i/o timeout" })
	p.says("#lost", "Redis gives no usable answer since")
	p.clean()
}
