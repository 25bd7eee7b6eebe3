//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Clock is the wall clock of a server, apart from that of the machine: libfaketime's. Its monotonic
// clock is the machine's.
type Clock struct {
	path   string
	offset time.Duration
}

// HasClocks reports whether the machine has what NewClock needs: libfaketime, which `make
// install-redis` installs if it can, and a server that is linked to the machine's own C library.
func HasClocks() bool { return faketime() != "" }

// NewClock returns a clock that is on time, and the option that makes it a server's.
func NewClock(t TB) (*Clock, Option) {
	t.Helper()
	preload := faketime()
	if preload == "" {
		t.Fatalf("redistest: libfaketime is not installed")
	}
	dir, err := os.MkdirTemp("", "redistest-clock-")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &Clock{path: filepath.Join(dir, "offset")}
	c.Step(t, 0)
	return c, Env("LD_PRELOAD="+preload, "FAKETIME_TIMESTAMP_FILE="+c.path, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1")
}

// Step moves the clock.
func (c *Clock) Step(t TB, by time.Duration) {
	t.Helper()
	c.offset += by
	next := c.path + ".next"
	err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f", c.offset.Seconds()), 0o600)
	if err == nil {
		err = os.Rename(next, c.path) // the server never sees half of it
	}
	if err != nil {
		t.Fatalf("redistest: step a clock: %v", err)
	}
}

// faketime is what a server is to be preloaded with, "" if it is not installed: the library, as
// Debian and others keep it, and after it the C library, so that Redis does without jemalloc, whose
// first look at a clock comes before libfaketime is ready for it.
func faketime() string {
	if launched() {
		return ""
	}
	find := func(patterns ...string) string {
		for _, pattern := range patterns {
			if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
				return found[0]
			}
		}
		return ""
	}
	library := find("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")
	libc := find("/lib/*/libc.so.6", "/lib64/libc.so.6")
	if library == "" || libc == "" {
		return ""
	}
	return library + ":" + libc
}

// launched reports whether TENURE_REDIS_SERVER is a script, which starts a server with a C library
// that it has brought along.
func launched() bool {
	script, err := os.ReadFile(os.Getenv("TENURE_REDIS_SERVER"))
	return err == nil && bytes.HasPrefix(script, []byte("#!"))
}
