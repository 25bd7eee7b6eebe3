//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	"golang.org/x/term"
)

// screen is a terminal in which tenure runs.
type screen struct {
	*testing.T
	terminal *os.File
	before   *term.State
	cmd      *exec.Cmd
	ended    chan struct{}

	mu   sync.Mutex
	text bytes.Buffer // all that was written to it
}

// inTerminal starts tenure in a terminal of 80 columns.
func inTerminal(t *testing.T, env []string, args ...string) *screen {
	t.Helper()
	terminal, slave, err := pty.Open()
	require.NoError(t, err)
	require.NoError(t, pty.Setsize(terminal, &pty.Winsize{Rows: 24, Cols: 80}))
	self, err := os.Executable()
	require.NoError(t, err)
	s := &screen{T: t, terminal: terminal, ended: make(chan struct{})}
	s.before, err = term.GetState(int(slave.Fd()))
	require.NoError(t, err)
	s.cmd = &exec.Cmd{
		Path: self, Args: append([]string{"tenure"}, args...), Env: env, Stdin: slave, Stdout: slave, Stderr: slave,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
	}
	require.NoError(t, s.cmd.Start())
	reading := make(chan struct{})
	go func() { // ends with the terminal; awaited at the end of the test
		defer close(reading)
		for chunk := make([]byte, 4096); ; {
			n, err := terminal.Read(chunk)
			s.mu.Lock()
			s.text.Write(chunk[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	go func() { // ends with the process, at the latest with the test
		defer close(s.ended)
		_ = s.cmd.Wait() // its exit code is looked at
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = slave.Close()
		_ = terminal.Close()
		<-reading
		if t.Failed() {
			t.Logf("%q", s.since(0))
		}
	})
	return s
}

func (s *screen) since(from int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()[from:]
}

// press types keys, and waits until what was written from then on matches.
func (s *screen) press(keys, pattern string) string {
	s.Helper()
	from := len(s.since(0))
	_, err := io.WriteString(s.terminal, keys)
	require.NoError(s, err)
	return s.await(from, pattern)
}

// shows waits until what was written since the start matches: some of it may have come before.
func (s *screen) shows(pattern string) string {
	s.Helper()
	return s.await(0, pattern)
}

func (s *screen) await(from int, pattern string) string {
	s.Helper()
	want := regexp.MustCompile("(?s)" + pattern)
	require.Eventually(s, func() bool { return want.MatchString(s.since(from)) }, 2*time.Minute, 10*time.Millisecond, pattern)
	return s.since(from)
}

// end waits for the end, after which the terminal is as it was.
func (s *screen) end(code int) {
	s.Helper()
	select {
	case <-s.ended:
	case <-time.After(2 * time.Minute):
		s.Fatal("it does not end")
	}
	require.Equal(s, code, s.cmd.ProcessState.ExitCode())
	after, err := term.GetState(int(s.terminal.Fd()))
	require.NoError(s, err)
	require.Equal(s, s.before, after)
}

// TestTop: a frame fills the terminal and no more, also after a resize; q, Ctrl-C and SIGTERM end
// it, and the terminal is as it was.
func TestTop(t *testing.T) {
	t.Parallel()
	stage := newRunStage(t, "TENURE_LEASE_TTL=10m", "TENURE_HEARTBEAT_TTL=10m")
	stage.start("reports", "web-1", "sleep", "1000")
	stage.until("web-1 leads", func() bool { return stage.leads("reports", "web-1") })
	for _, instance := range []string{"web-2", "web-3", "web-4", "web-5", "web-6", "web-7"} {
		stage.start("reports", instance, "sleep", "1000")
	}
	stage.until("all are there", func() bool {
		counts, err := stage.control.Registry().Counts(t.Context())
		return err == nil && counts.Active == 7
	})
	s := inTerminal(t, stage.env, "top", "--interval", "200ms")
	s.shows(`\x1b\[\?1049h.*no answer yet, q quits.*reports +LED +web-1.*instances 7 active +healthy: yes.*web-7 +active +- .*no task has run here yet.*q quits`)
	require.NoError(t, pty.Setsize(s.terminal, &pty.Winsize{Rows: 16, Cols: 40}))
	frames := regexp.MustCompile(`\x1b\[H([^\x1b]*\x1b\[K\r\n)*\x1b\[Jq quits`)
	s.press("x", `and \d+ more.*q quits.*\x1b\[H.*q quits`)
	all := frames.FindAllString(s.since(0), -1)
	require.NotEmpty(t, all)
	for i, line := range bytes.Split([]byte(all[len(all)-1]), []byte("\r\n")) {
		require.Less(t, i, 16)
		plain := regexp.MustCompile(`\x1b\[[HKJ]`).ReplaceAll(line, nil)
		require.LessOrEqual(t, len([]rune(string(plain))), 40)
	}
	s.press("q", `\x1b\[\?1049l$`)
	s.end(0)

	s = inTerminal(t, stage.env, "top")
	s.shows("q quits")
	s.press("\x03", `\x1b\[\?1049l`)
	s.end(0)

	s = inTerminal(t, stage.env, "top")
	s.shows("q quits")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	s.end(0)
}

// TestRunEndsWithItsTerminal, also if it does not lead, or its program is to be run again: it would
// go on behind the back of whoever has started it.
func TestRunEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	stage := newRunStage(t, "TENURE_LEASE_TTL=10m", "TENURE_HEARTBEAT_TTL=10m")
	run := func(args ...string) (terminal *os.File, ended chan int) {
		terminal, slave, err := pty.Open()
		require.NoError(t, err)
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := &exec.Cmd{
			Path: self, Args: append([]string{"tenure", "run", "--role", "typed"}, args...), Env: stage.env, Stdin: slave, Stdout: slave, Stderr: slave,
			SysProcAttr: &syscall.SysProcAttr{Setsid: true, Setctty: true},
		}
		require.NoError(t, cmd.Start())
		_ = slave.Close()
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), terminal.Close() })
		ended = make(chan int, 1)
		go func() { // ends with the process, at the latest with the test
			_ = cmd.Wait() // its exit code is looked at
			ended <- cmd.ProcessState.ExitCode()
		}()
		return terminal, ended
	}
	leads, leaderEnded := run("--id", "web-1", "--restart", "always", "--", "sleep", "1000")
	stage.until("web-1 leads", func() bool { return stage.leads("typed", "web-1") })
	follows, followerEnded := run("--id", "web-2", "--", "sleep", "1000")
	stage.until("both are there", func() bool {
		counts, err := stage.control.Registry().Counts(t.Context())
		return err == nil && counts.Active == 2
	})
	for terminal, ended := range map[*os.File]chan int{leads: leaderEnded, follows: followerEnded} {
		require.NoError(t, terminal.Close())
		select {
		case code := <-ended:
			require.Zero(t, code)
		case <-time.After(2 * time.Minute):
			t.Fatal("it does not end")
		}
	}
	for _, id := range []string{"web-1", "web-2"} {
		require.True(t, stage.over("typed", id), "the lease is given back")
	}
}

// demo starts the demo, and returns when somebody leads. Whoever is slow to press a first key would
// find the leader killed by the demo itself: r is one that changes nothing.
func demo(t *testing.T) (s *screen, page string) {
	t.Helper()
	s = inTerminal(t, os.Environ(), "demo")
	page = regexp.MustCompile(`http://127.0.0.1:\d+`).FindString(s.shows(`status page: http://127.0.0.1:\d+/.*keys: `))
	_, err := io.WriteString(s.terminal, "r")
	require.NoError(t, err)
	s.shows("LEADS, token")
	return s, page
}

// TestDemoQuits: q ends the demo, also if a paused instance was asked for something. That it does
// not wait for the answer is held by TestQuitWaitsForNoCommand, whatever the speed of the machine.
func TestDemoQuits(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	s, _ := demo(t)
	paused := regexp.MustCompile(`(alpha|beta|gamma) +paused`)
	id := paused.FindStringSubmatch(s.press("p", paused.String()))[1]
	s.press(map[string]string{"alpha": "1", "beta": "2", "gamma": "3"}[id], `chosen`)
	s.press("d", `drain: it hands over`)
	s.press("q", `summary: `)
	s.end(0)
}

// TestDemoKeys: keys kill, pause, drain and revive instances, each with what it leads to.
func TestDemoKeys(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	s, page := demo(t)
	s.press("k", `SIGKILL.*LEADS, token \d+ — take-over .* after SIGKILL`)
	s.shows(`SIGKILL.*process gone; r revives it`)
	s.press("r", `process gone, starting it again`)
	s.press("p", `paused with SIGSTOP.*LEADS, token \d+ — take-over .* after SIGSTOP`)
	s.press("r", `goes on`)
	s.press("d", `drain: it hands over.*LEADS, token \d+ — hand-over in`)
	s.press("r", `undrain: it may lead again`)
	s.press("1", `chosen`)
	// The page waits 5 s for Redis. A starved machine elects again and again at a lease of 3 s.
	leader := regexp.MustCompile(`^(alpha|beta|gamma)\n$`)
	require.Eventually(t, func() bool {
		status := &exec.Cmd{Path: s.cmd.Path, Args: []string{"tenure", "leader", "--api", page}, Env: append(os.Environ(), "TENURE_TIMEOUT="+patience)}
		text, err := status.CombinedOutput()
		return err == nil && leader.Match(text)
	}, 2*time.Minute, 10*time.Millisecond)
	elections := "4"
	if strings.Count(s.since(0), "leadership lost") > 1 { // by more than the one that was paused
		elections = `([4-9]|\d\d+)`
	}
	s.press("q", `summary: `+elections+` elections, take-over after SIGKILL .*, graceful hand-over .*two leaders at once: 0`)
	s.end(0)
}
