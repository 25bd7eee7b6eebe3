package virtual

import (
	"fmt"
	"os"
	"runtime/debug"
	"testing"

	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/redisstore"
)

// TestMain takes the scripts of TENURE_SCRIPTS in place of the product's, if it is set: that is how
// `make bugs` breaks them.
func TestMain(m *testing.M) {
	if path := os.Getenv("TENURE_SCRIPTS"); path != "" {
		source, err := os.ReadFile(path)
		if err == nil {
			*hook.Scripts, err = redisstore.Load(string(source))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
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
