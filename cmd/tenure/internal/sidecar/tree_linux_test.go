package sidecar

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure"
)

// TestSignalWithoutAHandle: a kernel that gives no handle of a process, for whatever reason, keeps
// no descendant alive.
func TestSignalWithoutAHandle(t *testing.T) {
	for _, refusal := range []error{unix.EPERM, unix.EMFILE, unix.ENOSYS} {
		cmd := exec.CommandContext(t.Context(), "sleep", "1000")
		require.NoError(t, cmd.Start())
		pidfdOpen = func(int, int) (int, error) { return -1, refusal }
		require.Equal(t, 1, signalAll(0, syscall.SIGKILL), refusal)
		pidfdOpen = unix.PidfdOpen
		_ = cmd.Wait() // it was killed
		require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
}

// TestRunnerEndsNoProcessFromBefore: a shell that starts something and becomes this program by exec
// leaves it children that are not of the command.
func TestRunnerEndsNoProcessFromBefore(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env, cmd.Stdin = append(os.Environ(), burying+"=stranger"), strings.NewReader("\n")
	said, err := cmd.Output()
	require.NoError(t, err)
	require.Regexp(t, `^[0-9]+\nno such process <nil>\n$`, string(said))
}

// TestRunLeavesNeitherFileNorChild: a process that leads again and again would have none left.
func TestRunLeavesNeitherFileNorChild(t *testing.T) {
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(all)
	}
	children := len(ownChildren())
	var counts []int
	for range 3 { // the first one opens what is of the runtime
		r, term := runner(t, time.Hour, "true")
		_, err := r.Run(t.Context(), term)
		require.NoError(t, err)
		counts = append(counts, files())
	}
	require.LessOrEqual(t, counts[2], counts[0])
	require.Len(t, ownChildren(), children)
}

// TestOrphansOfOthersAreBuried, and the guardian, whose end somebody waits for, is not.
func TestOrphansOfOthersAreBuried(t *testing.T) {
	require.NoError(t, Prepare())
	reap(t)
	guardian := exec.CommandContext(t.Context(), "true")
	require.NoError(t, guardian.Start())
	r := &Runner{guardian: guardian.Process.Pid}
	for range 5 {
		require.NoError(t, exec.CommandContext(t.Context(), "sh", "-c", "sleep 0.1 & exit 0").Run())
	}
	require.Eventually(t, func() bool {
		r.Reap()
		p, there := readProcess(r.guardian)
		return there && p.dead && len(ownChildren()) == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, guardian.Wait())
}

// TestOrphanThatEnds is a child of the guardian, and not the command.
func TestOrphanThatEnds(t *testing.T) {
	require.NoError(t, Prepare())
	mark := filepath.Join(t.TempDir(), "pid")
	r, term := runner(t, time.Hour, "sh", "-c", fmt.Sprintf(`(sh -c "exit 5" & echo $! > %s); read pid < %[1]s; while kill -0 $pid; do sleep 0.01; done; exit 3`, mark))
	result, err := r.Run(t.Context(), term)
	require.NoError(t, err)
	require.Equal(t, Result{Code: 3, By: ByItself}, result)
}

// TestGuardianOutlivesSignals that are for others, or by mistake.
func TestGuardianOutlivesSignals(t *testing.T) {
	require.NoError(t, Prepare())
	r, term := runner(t, time.Hour, "sleep", "1000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.Started = func(pid int, _ tenure.Term) {
		command, _ := readProcess(pid)
		for _, s := range []syscall.Signal{
			syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGHUP,
		} {
			require.NoError(t, syscall.Kill(command.parent, s))
		}
		cancel()
	}
	result, err := r.Run(ctx, term)
	require.NoError(t, err)
	require.Equal(t, Result{Code: 128 + int(syscall.SIGTERM), By: ByStop}, result)
}

// reap buries the dead that other tests have left to this process. Who was killed may take a moment
// to die, and is a child of this process once its parent is dead.
func reap(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		for err == nil && pid > 0 {
			pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		}
		return errors.Is(err, syscall.ECHILD)
	}, time.Minute, time.Millisecond)
}

// TestDescendants: all generations are found and ended, whatever they are called, and no handle of
// them is kept.
func TestDescendants(t *testing.T) {
	reap(t)
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	text, err := os.ReadFile(sleep)
	require.NoError(t, err)
	odd := filepath.Join(t.TempDir(), "a) Z 1 (")
	require.NoError(t, os.WriteFile(odd, text, 0o700))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `sh -c '"$0" 1000; true' "$0"; true`, odd)
	require.NoError(t, cmd.Start())
	var last process
	require.Eventually(t, func() bool {
		living, keeps, known := descendants()
		require.True(t, known)
		require.False(t, keeps)
		for _, p := range living {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.pid))
			if strings.HasPrefix(string(name), "a) Z 1") {
				last = p
			}
		}
		return last.pid != 0 && len(living) == 3
	}, time.Minute, time.Millisecond)
	require.False(t, last.dead)
	files := func() int { all, _ := os.ReadDir("/proc/self/fd"); return len(all) }
	before := files()
	for range 20 {
		require.Equal(t, 3, signalAll(0, syscall.SIGCONT))
	}
	require.Less(t, files(), before+20)
	require.Positive(t, signalAll(0, syscall.SIGKILL))
	_ = cmd.Wait() // it was killed
	require.Eventually(t, func() bool { p, there := readProcess(last.pid); return !there || p.dead }, time.Minute, time.Millisecond)
}

// TestKept: children are taken for kept after a second in which no other was seen, and nobody is if
// nothing can be seen, or nobody is there.
func TestKept(t *testing.T) {
	reap(t)
	var k kept
	_, keeps, _ := descendants()
	require.False(t, keeps, "there is no child")
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, cmd.Start())
	p, _ := readProcess(cmd.Process.Pid)
	require.False(t, k.alone())
	require.Zero(t, k.since)
	strangers[p.pid] = p.began
	defer delete(strangers, p.pid)
	require.False(t, k.alone())
	require.NotZero(t, k.since)
	k.since = now() - keptAfter
	require.True(t, k.alone())
	readDir = func(string) ([]os.DirEntry, error) { return nil, os.ErrPermission }
	require.False(t, k.alone())
	require.Equal(t, 1, signalAll(0, 0), "nobody is taken for dead")
	readDir = os.ReadDir
	k.since = now() - keptAfter
	strangers[p.pid] = "another one that had its number"
	require.False(t, k.alone())
	require.Zero(t, k.since)
	_ = cmd.Process.Kill()
	require.Eventually(t, func() bool { p, _ := readProcess(p.pid); return p.dead }, time.Minute, time.Millisecond)
	require.False(t, k.alone(), "it is dead, and to be reaped")
	require.Zero(t, k.since)
	_ = cmd.Wait() // it was killed
}

// TestSessions: what is sent to the process group of this process, by a terminal or by whoever ends
// it, is neither for the guardian nor for the command.
func TestSessions(t *testing.T) {
	r, term := runner(t, time.Hour, "sleep", "1000")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.Started = func(pid int, _ tenure.Term) {
		command, _ := readProcess(pid)
		for _, one := range []int{pid, command.parent} {
			session, err := unix.Getsid(one)
			require.NoError(t, err)
			require.Equal(t, one, session)
		}
		cancel()
	}
	_, err := r.Run(ctx, term)
	require.NoError(t, err)
}

// TestPrepareNeedsItsOwnProc: one in which this process is not the one that it is would hide all
// descendants. On machines that allow namespaces TestRunNeedsTheProcOfItsOwnNamespace makes one.
func TestPrepareNeedsItsOwnProc(t *testing.T) {
	defer func() { readLink = os.Readlink }()
	readLink = func(string) (string, error) { return strconv.Itoa(os.Getpid() + 1), nil }
	require.ErrorContains(t, Prepare(), "/proc shows another pid namespace")
	readLink = func(string) (string, error) { return "", os.ErrNotExist }
	require.ErrorIs(t, Prepare(), os.ErrNotExist)
	readLink = os.Readlink
	require.NoError(t, Prepare())
}

// TestGuardianLooksAtNobodyUntilTheEnd: a list of all processes costs, and it comes ten times a
// second, and while the command is about to end two hundred times.
func TestGuardianLooksAtNobodyUntilTheEnd(t *testing.T) {
	looks := 0
	readDir = func(path string) ([]os.DirEntry, error) { looks++; return os.ReadDir(path) }
	defer func() { readDir = os.ReadDir }()
	g := &guardian{by: ByItself, grace: time.Minute, margin: time.Second, until: now() + time.Hour}
	g.bury()
	require.Zero(t, looks)
	g.stop(ByStop)
	require.Positive(t, looks, "all get the stop signal")
	looks = 0
	g.bury()
	require.Zero(t, looks, "the command lives")
	g.ended = true
	g.bury()
	require.Positive(t, looks)
}

// TestGroupIsKilledWithoutAList: a list of thousands takes a part of the margin, and if no file can
// be opened there is none.
func TestGroupIsKilledWithoutAList(t *testing.T) {
	runtime.LockOSThread() // the command dies with the thread that starts it
	defer runtime.UnlockOSThread()
	require.NoError(t, Prepare())
	reap(t)
	_, report, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = report.Close() }()
	g := &guardian{by: ByItself, until: now() + time.Hour, stopSignal: syscall.SIGCONT, report: report}
	require.True(t, g.start([]string{"sh", "-c", "sleep 1000 & wait"}))
	require.Eventually(t, func() bool { all, _, _ := descendants(); return len(all) == 2 }, time.Minute, time.Millisecond)
	readDir = func(string) ([]os.DirEntry, error) { return nil, syscall.ENFILE }
	defer func() { readDir = os.ReadDir }()
	g.until = now()
	require.Eventually(t, func() bool { return g.bury() == 1 && g.ended && len(ownChildren()) == 0 }, time.Minute, time.Millisecond)
	require.Equal(t, 128+int(syscall.SIGKILL), g.code)
}

// TestHiddenChild: a /proc with hidepid shows no process that has made itself undumpable, as agents
// with secrets do. It is found and ended all the same.
func TestHiddenChild(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, cmd.Start())
	readDir = func(string) ([]os.DirEntry, error) { return nil, nil }
	defer func() { readDir = os.ReadDir }()
	require.Equal(t, 1, signalAll(0, syscall.SIGKILL))
	_ = cmd.Wait() // it was killed
	require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.Zero(t, signalAll(0, syscall.SIGKILL))
}

// TestWhoSurvivesSIGKILLIsReported, once, and is not looked at all the time.
func TestWhoSurvivesSIGKILLIsReported(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, cmd.Start())
	reports, report, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _ = reports.Close() }()
	g := &guardian{by: ByItself, ended: true, until: now() + time.Hour, report: report}
	pidfdOpen = func(int, int) (int, error) { return -1, unix.ESRCH } // nothing is sent
	require.Equal(t, 1, g.bury())
	require.Equal(t, buryTick, g.tick())
	require.NotZero(t, g.immune.since)
	g.immune.since = now() - leftAfter
	for range 2 {
		require.Equal(t, 1, g.bury())
		require.Equal(t, watchTick, g.tick())
	}
	pidfdOpen = unix.PidfdOpen
	require.NoError(t, report.Close())
	lines := make(chan string, 4)
	read(reports, lines)
	require.Equal(t, fmt.Sprintf("left 1 %d (sleep)", cmd.Process.Pid), <-lines)
	_, open := <-lines
	require.False(t, open)
	signalAll(0, syscall.SIGKILL)
	_ = cmd.Wait() // it was killed
}

// TestRunnerReportsWhoSurvivesSIGKILL, and goes on until nobody does.
func TestRunnerReportsWhoSurvivesSIGKILL(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env, cmd.Stdin = append(os.Environ(), burying+"=immune"), strings.NewReader("\n")
	said, err := cmd.Output()
	require.NoError(t, err)
	require.Regexp(t, `^([0-9]+)\n1 [0-9]+ \(sleep\)\n$`, string(said))
}

// TestGuardianThatFails: a command whose guardian is killed or frozen is dead, with all that it has
// started, before its lease has ended. It is not said to have ended by itself.
func TestGuardianThatFails(t *testing.T) {
	require.NoError(t, Prepare())
	for _, fault := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		mark := filepath.Join(t.TempDir(), "pid")
		r, term := runner(t, time.Hour, "sh", "-c", fmt.Sprintf("trap '' TERM; sleep 1000 & echo $! > %s; wait", mark))
		r.Started = func(pid int, _ tenure.Term) {
			require.Eventually(t, func() bool { text, _ := os.ReadFile(mark); return len(text) > 1 }, time.Minute, time.Millisecond)
			command, _ := readProcess(pid)
			require.NoError(t, syscall.Kill(command.parent, fault))
			if fault == syscall.SIGSTOP { // which is noticed when the lease ends
				r.Status = func() tenure.ElectionStatus { return tenure.ElectionStatus{Token: term.Token, Deadline: time.Now()} }
				return
			}
			// The command itself does not wait for this process, which may be dead too.
			require.Eventually(t, func() bool { p, there := readProcess(pid); return !there || p.dead }, time.Minute, time.Millisecond)
		}
		result, err := r.Run(t.Context(), term)
		require.ErrorContains(t, err, "the guardian of the command is dead or frozen", fault)
		require.Equal(t, ByDeadline, result.By)
		text, err := os.ReadFile(mark)
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, fault)
	}
}

// headless has a process of this test end its first thread.
const headless = "TENURE_TEST_HEADLESS"

// burying has a process of this test bury its child, once it is told to, in one of four ways.
const burying = "TENURE_TEST_BURYING"

func init() {
	if how := os.Getenv(burying); how != "" {
		child := exec.Command("sleep", "1000")
		if err := child.Start(); err != nil {
			panic(err)
		}
		fmt.Println(child.Process.Pid)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		switch how {
		case "runner":
			new(Runner).killAll(child)
		case "stranger":
			if err := Prepare(); err != nil {
				panic(err)
			}
			guardian := exec.Command("sleep", "1000")
			if err := guardian.Start(); err != nil {
				panic(err)
			}
			new(Runner).killAll(guardian)
			fmt.Println(syscall.Kill(guardian.Process.Pid, 0), child.Process.Kill())
			_ = child.Wait() // it was killed
		case "immune":
			pidfdOpen = func(int, int) (int, error) { return -1, unix.ESRCH } // nothing is sent
			guardian := exec.Command("sleep", "1000")
			if err := guardian.Start(); err != nil {
				panic(err)
			}
			(&Runner{Config: Config{Left: func(count int, who string) {
				fmt.Println(count, who)
				pidfdOpen = unix.PidfdOpen
			}}}).killAll(guardian)
		}
		for g := (&guardian{ended: true, by: ByItself}); how == "guardian" && (g.bury() > 0 || !g.alone); {
			<-time.After(buryTick) // the test ends this process if it takes too long
		}
		os.Exit(0)
	}
	if os.Getenv(headless) == "" {
		return
	}
	go func() {
		<-time.After(time.Minute)
		os.Exit(0)
	}()
	_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread, which is the first one while a program starts
}

// TestProcessWithoutItsFirstThread: a process whose first thread has ended looks like a zombie, and
// its other threads go on: it is alive, and is killed.
func TestProcessWithoutItsFirstThread(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), headless+"=1")
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		return err == nil && strings.Contains(string(stat), ") Z ")
	}, time.Minute, time.Millisecond)
	require.Equal(t, 1, signalAll(0, syscall.SIGKILL))
	_ = cmd.Wait() // it was killed
	require.Equal(t, syscall.SIGKILL, cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}

// TestTracedChildIsNotAwaited: who traces a process, and does not look, keeps it a zombie that its
// parent cannot reap. It is dead all the same.
func TestTracedChildIsNotAwaited(t *testing.T) {
	runtime.LockOSThread() // a thread is the tracer
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, how := range []string{"runner", "guardian"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), burying+"="+how)
		tell, err := cmd.StdinPipe()
		require.NoError(t, err)
		say, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var pid int
		_, err = fmt.Fscan(say, &pid)
		require.NoError(t, err)
		if err := unix.PtraceSeize(pid); err != nil {
			cancel()
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_ = cmd.Wait() // it was killed
			t.Skip("it cannot be traced: ", err)
		}
		_, err = tell.Write([]byte("\n"))
		require.NoError(t, err)
		require.NoError(t, cmd.Wait(), how)
		_, _ = syscall.Wait4(pid, nil, 0, nil)
	}
}
