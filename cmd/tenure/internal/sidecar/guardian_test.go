//go:build unix

package sidecar

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenuretest"
)

// TestOrders: a deadline is never taken back, the first end counts, and what is no order changes
// nothing.
func TestOrders(t *testing.T) {
	begun := now()
	g := &guardian{by: ByItself, grace: time.Hour, margin: time.Minute, until: begun + 3*time.Hour, stopSignal: syscall.SIGTERM}
	for _, order := range []string{fmt.Sprint(orderUntil, " ", int64(begun+2*time.Hour)), orderUntil, orderUntil + " soon", orderUntil + " 99999999999999999999", "", "dance 9223372036854775807", orderSignal + " x"} {
		g.obey(order)
		require.Equal(t, begun+3*time.Hour, g.until, order)
		require.Zero(t, g.killAt, order)
	}
	g.obey(fmt.Sprint(orderUntil, " ", int64(begun+4*time.Hour)))
	require.Equal(t, begun+4*time.Hour, g.until)
	require.Equal(t, watchTick, g.tick())
	g.until = now() + g.grace + g.margin
	require.Equal(t, buryTick, g.tick(), "it is about to end")

	g.obey(orderStop)
	require.Equal(t, ByStop, g.by)
	g.until = begun + 4*time.Hour
	require.Equal(t, buryTick, g.tick(), "it waits for the end")
	at := g.killAt
	require.GreaterOrEqual(t, at, begun+g.grace)
	g.stop(ByDeadline)
	require.Equal(t, ByStop, g.by)
	require.Equal(t, at, g.killAt, "a second end gives no more time")

	g = &guardian{by: ByItself, ended: true, until: begun + 4*time.Hour}
	require.Equal(t, buryTick, g.tick())
	g.stop(ByStop)
	require.Equal(t, ByItself, g.by, "it has ended before")
}

// TestStopComesBeforeTheKill: a command of whose lease no more than grace and margin are left gets
// the stop signal, not SIGKILL.
func TestStopComesBeforeTheKill(t *testing.T) {
	g := &guardian{by: ByItself, grace: time.Hour, margin: time.Minute, until: now() + 2*time.Hour, stopSignal: syscall.SIGTERM}
	g.bury()
	require.Zero(t, g.killAt)
	g.until = now() + g.grace
	g.bury()
	require.Equal(t, ByDeadline, g.by)
	require.Greater(t, g.killAt, now())
	require.Zero(t, g.immune.since, "nothing was killed")
}

// TestSignalForTheCommand: it gets one, unless it has ended: another process may have its number.
func TestSignalForTheCommand(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, cmd.Start())
	g := &guardian{main: cmd.Process.Pid, ended: true}
	g.obey(fmt.Sprint(orderSignal, " ", int(syscall.SIGKILL)))
	g.ended = false
	g.obey(fmt.Sprint(orderSignal, " ", int(syscall.SIGTERM)))
	_ = cmd.Wait() // it was ended
	require.Equal(t, syscall.SIGTERM, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// TestCommandThatWouldStartTooLate is not started: what is left of the lease is for its end.
func TestCommandThatWouldStartTooLate(t *testing.T) {
	for name, until := range map[string]time.Duration{"too late": time.Hour + time.Minute, "in time": 3 * time.Hour} {
		reports, report, err := os.Pipe()
		require.NoError(t, err)
		g := &guardian{by: ByItself, grace: time.Hour, margin: time.Minute, until: now() + until, report: report}
		require.False(t, g.start([]string{"/no/such/command"}))
		require.NoError(t, report.Close())
		lines := make(chan string, 4)
		read(reports, lines)
		line := <-lines
		if name == "in time" {
			require.Regexp(t, "^failed 127 ", line)
		} else {
			require.Equal(t, "ended 137 deadline", line)
		}
		_, open := <-lines
		require.False(t, open)
	}
}

// TestLifeOfACommand: how it ended is what its guardian reports, once none of it lives. One that is
// frozen hears of its end too.
func TestLifeOfACommand(t *testing.T) {
	runtime.LockOSThread() // the command dies with the thread that starts it
	defer runtime.UnlockOSThread()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("no program"), 0o600))
	script, windows := filepath.Join(t.TempDir(), "script"), filepath.Join(t.TempDir(), "windows")
	require.NoError(t, os.WriteFile(script, []byte("exit 3\n"), 0o700))
	require.NoError(t, os.WriteFile(windows, []byte("#!/bin/sh\r\nexit 3\r\n"), 0o700))
	for name, c := range map[string]struct {
		command []string
		act     func(g *guardian)
		want    string
	}{
		"itself":        {[]string{"sh", "-c", "exit 3"}, func(*guardian) {}, "ended 3 itself"},
		"no program":    {[]string{plain}, nil, "failed 126 "},
		"no first line": {[]string{script}, nil, fmt.Sprintf("failed 126 %q: exec format error (fix: begin a script with #!/bin/sh", script)},
		"line ends":     {[]string{windows}, nil, fmt.Sprintf("failed 127 %q: no such file or directory (fix: install the interpreter that its first line names, without a carriage return", windows)},
		"not to be run": {[]string{"no-such-command-of-tenure"}, nil, "failed 127 "},
		"frozen": {[]string{"sleep", "1000"}, func(g *guardian) {
			require.NoError(t, syscall.Kill(g.main, syscall.SIGSTOP))
			g.stop(ByStop)
		}, "ended 143 stop"},
		"deaf": {[]string{"sleep", "1000"}, func(g *guardian) {
			g.grace = 0
			g.stop(ByStop)
		}, "ended 137 stop"},
		"killed": {[]string{"sleep", "1000"}, func(g *guardian) { g.until = now() }, "ended 137 deadline"},
	} {
		reports, report, err := os.Pipe()
		require.NoError(t, err)
		g := &guardian{by: ByItself, grace: time.Hour, margin: time.Second, until: now() + 2*time.Hour, stopSignal: syscall.SIGTERM, report: report}
		if name == "killed" || name == "deaf" {
			g.stopSignal = syscall.SIGCONT // which it survives
		}
		started := g.start(c.command)
		require.Equal(t, c.act != nil, started, name)
		if started {
			c.act(g)
			g.watch(nil, nil)
		}
		require.NoError(t, report.Close())
		lines := make(chan string, 4)
		read(reports, lines)
		if started {
			require.Equal(t, fmt.Sprint(reportStarted, " ", g.main), <-lines, name)
		}
		require.Contains(t, <-lines, c.want, name)
	}
}

// TestGuardNeedsItsArguments: whoever calls it by hand gets no guardian.
func TestGuardNeedsItsArguments(t *testing.T) {
	require.Equal(t, 125, Guard([]string{"1", "2", "3", "4", "5", "6"}))
	require.Equal(t, 125, Guard([]string{"x", "2", "3", "4", "5", "6", "true"}))
}

// TestExitCodes: as a shell has them.
func TestExitCodes(t *testing.T) {
	require.Equal(t, 3, exitCode(syscall.WaitStatus(3<<8)))
	require.Equal(t, 0, exitCode(0))
	require.Equal(t, 137, exitCode(syscall.WaitStatus(syscall.SIGKILL)))
}

// TestReports: the end of a command is what its guardian says, and junk is none.
func TestReports(t *testing.T) {
	var started []int
	var left []string
	r := &Runner{Config: Config{Started: func(pid int, term tenure.Term) {
		require.Equal(t, int64(7), term.Token)
		started = append(started, pid)
	}}}
	for line, want := range map[string]Result{
		reportEnded + " 3 itself": {Code: 3, By: ByItself}, reportEnded + " 137 deadline": {Code: 137, By: ByDeadline}, reportFailed + " 127 no such file": {Code: 127, By: ByItself, Text: "no such file"},
	} {
		result, ended := r.hear(line, tenure.Term{Token: 7})
		require.True(t, ended, line)
		require.Equal(t, want, result)
	}
	for _, line := range []string{"", reportEnded, reportEnded + " x itself", reportStarted + " x", "dance 1", reportStarted + " 42"} {
		_, ended := r.hear(line, tenure.Term{Token: 7})
		require.False(t, ended, line)
	}
	require.Equal(t, []int{42}, started)
	r.Left = func(count int, who string) { left = append(left, fmt.Sprint(count, " of them: ", who)) }
	_, ended := r.hear(reportLeft+" 2 7 (sh), 8 (sleep)", tenure.Term{Token: 7})
	require.False(t, ended)
	require.Equal(t, []string{"2 of them: 7 (sh), 8 (sleep)"}, left)
}

// TestDeadlineOfATerm: it is that of this very term, while it is known and the term holds. The
// clock counts that shows less.
func TestDeadlineOfATerm(t *testing.T) {
	var status tenure.ElectionStatus
	r := &Runner{Config: Config{Status: func() tenure.ElectionStatus { return status }}}
	ctx, end := tenuretest.Context(t, 7)
	term, _ := tenure.TermFrom(ctx)
	good := tenure.ElectionStatus{Token: 7, Deadline: time.Now().Add(time.Hour)}
	for _, of := range []tenure.ElectionStatus{{}, {Token: 7}, {Token: 8, Deadline: good.Deadline}} {
		status = of
		_, leads := r.deadline(term)
		require.False(t, leads)
	}
	status = good
	before := now()
	until, leads := r.deadline(term)
	require.True(t, leads)
	require.Greater(t, until, before)
	require.LessOrEqual(t, until, now()+time.Hour)
	end(tenure.ErrLost)
	_, leads = r.deadline(term)
	require.False(t, leads)
}

// TestTimesOfALease: the margin is a twentieth, and a tenth of a second at least; the grace a
// quarter, or what a renewal leaves of it.
func TestTimesOfALease(t *testing.T) {
	require.Equal(t, 3*time.Second/2, Margin(30*time.Second))
	require.Equal(t, 100*time.Millisecond, Margin(2*time.Second))
	require.Equal(t, 100*time.Millisecond, Margin(time.Second))
	require.Equal(t, 7500*time.Millisecond, MaxGrace(30*time.Second, 300*time.Millisecond, 10*time.Second))
	require.Equal(t, 7500*time.Millisecond, MaxGrace(30*time.Second, -time.Second, 10*time.Second))
	require.Equal(t, 4500*time.Millisecond, MaxGrace(30*time.Second, 15*time.Second, 6*time.Second))
}

// TestRunnerWithoutAGuardian has nobody to send a signal to, and ends.
func TestRunnerWithoutAGuardian(t *testing.T) {
	r := &Runner{Config: Config{Poll: time.Minute}}
	r.Signal(syscall.SIGHUP)
	orders, theirs, err := os.Pipe()
	require.NoError(t, err)
	r.orders = theirs
	r.Signal(syscall.SIGHUP)
	r.order(orderUntil, 5)
	require.NoError(t, theirs.Close())
	lines := make(chan string, 4)
	read(orders, lines)
	require.Equal(t, "signal 1", <-lines)
	require.Equal(t, "until 5", <-lines)
}

// TestFrozenGuardianIsNotWaitedFor: it leaves the pipe full. An order that waited for it, or behind
// one that does, would kill the command too late.
func TestFrozenGuardianIsNotWaitedFor(t *testing.T) {
	unread, orders, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = unread.Close(), orders.Close() }()
	r := &Runner{Config: Config{Poll: time.Hour}, orders: orders}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 1 << 17 { // more than a pipe holds
			r.order(orderSignal, 28)
		}
	}()
	select {
	case <-sent:
	case <-time.After(time.Minute):
		require.Fail(t, "an order waits")
	}
}
