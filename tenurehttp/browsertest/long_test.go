package browsertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// TestLongNames: names as long as they may be are broken into lines, so that a phone shows the page
// as wide as it is, with all of it in reach.
func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("shop.web", 16)
	s := newScene(t)
	s.lead(long, 30, 20, long+" 1 0")
	s.lead("", 30, 0, long+" 1 0", long+" 0.5 0")
	s.instance(long, tenure.InstanceActive, time.Second, long, 0.5)
	s.instances[0].Metadata = map[string]string{long: long}
	s.task(long, "every 1m0s", time.Minute, time.Second, func(t *tenure.TaskStatus) { t.Failures, t.Last.Error = 3, long }, 0)
	s.log = []tenure.Change{{ID: "2-0", Type: tenure.ChangeEnded, Role: long, InstanceID: long, Token: 3, Reason: long, Time: time.Now()}}
	s.actions, s.caller = all, long
	p := open(t, s.url, phone)
	p.says("#roles", long+" leads")
	wide := func(of string) int { return eval[int](p, of+".scrollWidth") }
	require.LessOrEqual(t, wide("document.documentElement"), 390)
	for _, name := range []string{"instance", "task"} {
		eval[bool](p, fmt.Sprintf("location.hash = '#%s:%s'; true", name, long))
		p.says("#drawer h2", long)
		p.says("#drawer .body", map[string]string{"instance": "Metadata", "task": "Runs"}[name])
		require.LessOrEqual(t, wide("document.getElementById('drawer')"), 390, name)
	}
	p.clean()
}
