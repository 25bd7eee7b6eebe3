package virtual

import (
	"runtime/debug"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/overlay"
)

func TestMain(m *testing.M) {
	overlay.TakeScripts()
	// miniredis builds a Lua state for each script, and all of it is garbage at once.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	m.Run()
}

// together lets the parts of a test run beside each other. The test itself runs alone, since others
// need the machine to have one processor (see simnet.Exact).
func together(t *testing.T) {
	t.Helper()
	t.Parallel()
}
