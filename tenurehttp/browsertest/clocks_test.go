package browsertest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestClockOfTheServer: terms, tasks and changes have times by Redis's clock. If that of the server
// is another, the page counts by that of Redis, and by that of the server only what it waits for.
func TestClockOfTheServer(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const ahead = 3 * time.Hour
	s.ahead = ahead
	s.lead("", 30, 24, "web-1 2.3 0")
	s.roles[0]["status"] = map[string]any{"led": true, "lease_ttl_seconds": 30, "for_seconds": 2.3 * 3600}
	s.lead("export", 30, 0, "web-2 3 0", "web-3 1 0")
	s.roles[1]["election"] = map[string]any{"waiting": "young", "waiting_until": time.Now().Add(ahead + 5*time.Hour + 20*time.Minute)}
	s.task("invoices", "every 5h0m0s", 5*time.Hour+20*time.Minute, time.Second, func(t *tenure.TaskStatus) { t.Next = t.Next.UTC() })
	p := open(t, s.url, desk)
	p.says("#roles", "web-1 leads")
	require.Regexp(t, "for 2 h", p.text("#roles"))
	require.Regexp(t, "Election possible in 5 h", p.text("#roles .why:not([hidden])"))
	require.Regexp(t, "in 5 h", p.text("#tasks"))
	p.clean()
}
