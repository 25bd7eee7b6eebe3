//go:build unix

package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// childEnv tells a process which function it is to be.
const childEnv = "TENURE_REDISTEST_CHILD"

// exitOrphan is the exit code of a child whose parent is gone.
const exitOrphan = 3

var children struct {
	mu    sync.Mutex
	main  map[string]func()
	asked bool // RunChild has been called: a child of this binary will run its function, not the tests
}

// ChildMain names a function that [StartChild] can run in a process of its own. It is to be called
// before [RunChild].
func ChildMain(name string, fn func()) {
	children.mu.Lock()
	defer children.mu.Unlock()
	if children.main == nil {
		children.main = make(map[string]func())
	}
	if children.main[name] != nil {
		panic("redistest: two child functions named " + name)
	}
	children.main[name] = fn
}

// RunChild runs the function that this process was started for and returns true, or returns false
// if this process is no child. It comes first in TestMain, or in main:
//
//	func TestMain(m *testing.M) {
//		redistest.ChildMain("holder", holder)
//		if redistest.RunChild() {
//			return
//		}
//		m.Run()
//	}
//
// A child exits when its parent does. It must leave standard input alone.
func RunChild() bool {
	children.mu.Lock()
	children.asked = true
	name, isChild := os.LookupEnv(childEnv)
	fn := children.main[name]
	children.mu.Unlock()
	if !isChild {
		return false
	}
	if fn == nil {
		fmt.Fprintf(os.Stderr, "redistest: no child function named %q\n", name)
		os.Exit(2)
	}
	go watchParent() // ends with the process: that is its purpose; NoLeaks knows it by name
	fn()
	return true
}

// watchParent exits at the end of standard input, whose other end only the parent holds.
func watchParent() {
	_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
	os.Exit(exitOrphan)
}

// Child is this binary, running one function in a process of its own.
//
// Its methods are safe for concurrent use, but a line goes to one reader only.
type Child struct {
	name  string
	proc  *process
	stdin *os.File // held open as long as the child may live
	out   *os.File
	errs  tail
	lines chan string
	quit  chan struct{} // closed when nobody will read lines any more
	wg    sync.WaitGroup
}

// StartChild starts a child that runs the function of that name, with env appended to its
// environment. It is killed at the end of the test, at the latest with this process. What it wrote
// to standard error is logged if the test failed.
func StartChild(t TB, name string, env ...string) *Child {
	t.Helper()
	c, err := startChild(name, env)
	if err != nil {
		t.Fatalf("redistest: start child %s: %v", name, err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Errorf("redistest: close child %s: %v", name, err)
		}
		if text := c.errs.String(); text != "" && t.Failed() {
			t.Logf("standard error of child %s:\n%s", name, text)
		}
	})
	return c
}

func startChild(name string, env []string) (*Child, error) {
	children.mu.Lock()
	known, asked := children.main[name] != nil, children.asked
	children.mu.Unlock()
	if !known || !asked {
		return nil, errors.New("TestMain must name it with ChildMain and then call RunChild")
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary)
	if testing.Testing() {
		cmd.Args = append(cmd.Args, "-test.run=^$")
	}
	cmd.Env = append(slices.Concat(os.Environ(), env), childEnv+"="+name)
	childIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer childIn.Close()
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	defer childOut.Close()
	c := &Child{name: name, stdin: stdin, out: out, lines: make(chan string), quit: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childIn, childOut, &c.errs
	cmd.WaitDelay = time.Second // a grandchild may hold standard error open
	if c.proc, err = startProcess(cmd); err != nil {
		return nil, errors.Join(err, stdin.Close(), out.Close())
	}
	read := make(chan string)
	c.wg.Go(func() { c.read(read) })  // both end at the end of the child's output, at the latest through close,
	c.wg.Go(func() { c.queue(read) }) // which waits for them
	return c, nil
}

// read passes on the child's lines as they come.
func (c *Child) read(to chan<- string) {
	defer close(to)
	for r := bufio.NewReader(c.out); ; {
		line, err := r.ReadString('\n')
		if line != "" {
			to <- strings.TrimSuffix(line, "\n")
		}
		if err != nil {
			return
		}
	}
}

// queue keeps lines until they are asked for: a child never blocks because its test looks
// elsewhere.
func (c *Child) queue(from <-chan string) {
	defer close(c.lines)
	var waiting []string
	for from != nil || len(waiting) > 0 {
		var to chan<- string
		var first string
		if len(waiting) > 0 {
			to, first = c.lines, waiting[0]
		}
		select {
		case line, ok := <-from:
			if !ok {
				from = nil
				continue
			}
			waiting = append(waiting, line)
		case to <- first:
			waiting = waiting[1:]
		case <-c.quit:
			if from != nil {
				for range from { // until read has ended
				}
			}
			return
		}
	}
}

// Lines returns the lines that the child writes to standard output; it is closed when they end.
func (c *Child) Lines() <-chan string { return c.lines }

// Expect reads lines up to one that starts with prefix and returns the rest of that line. It fails
// the test when the timeout is over or the output ends.
func (c *Child) Expect(t TB, prefix string, timeout time.Duration) string {
	t.Helper()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var seen []string
	for {
		select {
		case line, ok := <-c.lines:
			if rest, found := strings.CutPrefix(line, prefix); ok && found {
				return rest
			}
			if !ok {
				t.Fatalf("redistest: output of child %s ended before %q, after %q", c.name, prefix, seen)
			}
			seen = append(seen, line)
		case <-timer.C:
			t.Fatalf("redistest: child %s did not say %q within %v, only %q", c.name, prefix, timeout, seen)
		}
	}
}

// Signal sends the child a signal. A child that has ended fails the test.
func (c *Child) Signal(t TB, sig syscall.Signal) {
	t.Helper()
	c.must(t, "signal", c.proc.signal(sig))
}

// Kill kills the child with SIGKILL and returns when it is gone. It may have ended already.
func (c *Child) Kill(t TB) {
	t.Helper()
	c.must(t, "kill", c.proc.kill())
}

// Pause freezes the child with SIGSTOP and returns when all its threads stand still.
func (c *Child) Pause(t TB) {
	t.Helper()
	c.must(t, "pause", c.proc.pause())
}

// Resume ends Pause.
func (c *Child) Resume(t TB) {
	t.Helper()
	c.must(t, "resume", c.proc.resume())
}

// Wait waits until the child has ended by itself and returns how.
func (c *Child) Wait(t TB, timeout time.Duration) *os.ProcessState {
	t.Helper()
	if !c.proc.wait(timeout) {
		t.Fatalf("redistest: child %s did not end within %v", c.name, timeout)
	}
	return c.proc.cmd.ProcessState
}

// close ends the child and everything that serves it.
func (c *Child) close() error {
	err := c.proc.kill()
	close(c.quit)
	err = errors.Join(err, c.stdin.Close(), c.out.Close())
	c.wg.Wait()
	return err
}

func (c *Child) must(t TB, verb string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("redistest: %s child %s: %v", verb, c.name, err)
	}
}

// tail is a writer that keeps the last of what is written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (w *tail) Write(p []byte) (int, error) {
	const most = 32 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-most):]
	return len(p), nil
}

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.text))
}
