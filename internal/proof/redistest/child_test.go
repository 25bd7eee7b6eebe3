//go:build unix

package redistest

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

func TestChild_Talks(t *testing.T) {
	NoLeaks(t)
	c := StartChild(t, "echo", "GREETING=world")
	if got := c.Expect(t, "hello ", patience); got != "world" {
		t.Errorf("got %q", got)
	}
	c.Expect(t, "ready", patience)
	c.Signal(t, syscall.SIGUSR1)
	if code := c.Wait(t, patience).ExitCode(); code != 7 {
		t.Errorf("exit code %d", code)
	}
	c.Expect(t, "bye", patience)
	if _, ok := <-c.Lines(); ok {
		t.Error("output goes on after its end")
	}
	eventually(t, "standard error", func() bool { return strings.Contains(c.errs.String(), "on standard error") })
}

func TestChild_NeverBlocksOnItsReader(t *testing.T) {
	NoLeaks(t)
	c := StartChild(t, "chatter")
	if code := c.Wait(t, patience).ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for i := range 20_000 {
		if got := <-c.Lines(); got != fmt.Sprint("line ", i) {
			t.Fatalf("line %d is %q", i, got)
		}
	}
}

func TestChild_PauseFreezes(t *testing.T) {
	NoLeaks(t)
	c := StartChild(t, "ticker")
	c.Expect(t, "tick 5", patience)
	c.Pause(t)
	if !frozen(c.proc.pid()) {
		t.Error("a paused child runs")
	}
	c.Resume(t)
	eventually(t, "the child to go on", func() bool { return !frozen(c.proc.pid()) })
	c.Pause(t)
	c.Kill(t) // a paused one too
	c.Kill(t)
	if status := c.proc.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v", status)
	}
}

func TestChild_ExitsWithoutParent(t *testing.T) {
	NoLeaks(t)
	var c *Child
	if err := Do(func(t TB) {
		c = StartChild(t, "listener")
		c.Expect(t, "listen ", patience)
		null := c.stdin
		if err := null.Close(); err != nil { // what the kernel does when the parent is gone
			t.Errorf("close: %v", err)
		}
		if code := c.Wait(t, patience).ExitCode(); code != exitOrphan {
			t.Errorf("exit code %d", code)
		}
	}); err != nil && !strings.Contains(err.Error(), "file already closed") {
		t.Error(err)
	}
}

// A test process that is killed leaves nothing behind: neither servers nor children.
func TestChild_FamilyDiesWithParent(t *testing.T) {
	NoLeaks(t)
	c := StartChild(t, "family", "TMPDIR="+t.TempDir()) // nobody is left to remove the server's folder
	server := c.Expect(t, "redis ", patience)
	child := c.Expect(t, "child ", patience)
	if refused(server) || refused(child) {
		t.Fatal("family is not there")
	}
	c.Kill(t)
	eventually(t, "the server to die", func() bool { return refused(server) })
	eventually(t, "the grandchild to die", func() bool { return refused(child) })
}

func TestChild_Misuse(t *testing.T) {
	mustContain(t, record(func(t TB) { StartChild(t, "nobody") }), "ChildMain")
	mustContain(t, record(func(t TB) { StartChild(t, "silent").Expect(t, "word", patience) }), "ended before")
	mustContain(t, record(func(t TB) { StartChild(t, "listener").Expect(t, "word", 1) }), "did not say")
	mustContain(t, record(func(t TB) {
		c := StartChild(t, "silent")
		c.Wait(t, patience)
		c.Signal(t, syscall.SIGTERM)
	}), "finished")
}
