package simnet

import (
	"runtime"
	"testing"
)

// Exact makes the rest of the test run on one processor, which an exact replay needs, and reports
// whether it can be had: not under the race detector, where it changes nothing. Such a test must
// not be parallel.
func Exact(t testing.TB) bool {
	if Race {
		return false
	}
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	return true
}
