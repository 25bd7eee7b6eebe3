package redistest

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// leakBound is how long goroutines may take to end: long, since the machine may be starved.
const leakBound = 10 * time.Second

// NoLeaks fails the test if a goroutine that was started after this call is left when the test has
// ended. Call it first, so that it looks last, after every other clean-up. It is not for tests that
// run in parallel with others.
func NoLeaks(t TB) {
	t.Helper()
	before := make(map[string]bool)
	for _, g := range goroutines() {
		before[g.id] = true
	}
	t.Cleanup(func() {
		if err := leaked(before, leakBound); err != nil {
			t.Errorf("redistest: %v", err)
		}
	})
}

// leaked waits until no goroutine is left but those that were there before and those that no test
// can end.
func leaked(before map[string]bool, bound time.Duration) error {
	return poll(bound, func() error {
		var left []string
		for _, g := range goroutines() {
			if !before[g.id] && !g.everlasting() {
				left = append(left, g.stack)
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("%d goroutines leaked:\n\n%s", len(left), strings.Join(left, "\n\n"))
		}
		return nil
	})
}

type goroutine struct {
	id    string // never used again
	stack string
}

// goroutines returns all goroutines but the calling one.
func goroutines() []goroutine {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var all []goroutine
	for stack := range bytes.SplitSeq(bytes.TrimSpace(buf), []byte("\n\n")) {
		// "goroutine 7 [select]:" heads each stack.
		if fields := bytes.Fields(stack); len(fields) > 1 && string(fields[0]) == "goroutine" {
			all = append(all, goroutine{id: string(fields[1]), stack: string(stack)})
		}
	}
	return all[1:] // the caller is the first
}

// everlasting reports whether the goroutine belongs to the runtime, to package testing or to this
// harness for as long as the process lives.
func (g goroutine) everlasting() bool {
	for _, mark := range []string{
		"created by testing.", // tests, benchmarks and the alarm of -timeout
		"created by runtime.",
		"created by runtime/trace.",
		"created by runtime/pprof.",
		"created by os/signal.",
		"os/signal.signal_recv(",
		"internal/proof/redistest.serveForks(",
		"internal/proof/redistest.watchParent(",
	} {
		if strings.Contains(g.stack, mark) {
			return true
		}
	}
	return false
}
