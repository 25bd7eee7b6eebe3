package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// runStage is a redis-server and what runs beside it.
type runStage struct {
	*testing.T
	server  *redistest.Server
	client  *redis.Client
	control *tenure.Control
	env     []string
}

// newRunStage starts a redis-server. env comes last: a test that awaits no end of a lease names a
// long one, which a starved machine keeps too.
func newRunStage(t *testing.T, env ...string) *runStage {
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	server := redistest.Start(t)
	s := &runStage{T: t, server: server, client: server.Client(t)}
	var err error
	s.control, err = tenure.NewControl(s.client, tenure.ControlOptions{Namespace: "run"})
	require.NoError(t, err)
	s.env = append(os.Environ(), "TENURE_REDIS_URL=redis://"+server.Addr(), "TENURE_NAMESPACE=run", "TENURE_RESTART_GUARD=-1s", "TENURE_LEASE_TTL=8s",
		"TENURE_HEARTBEAT_INTERVAL=1s", "TENURE_HEARTBEAT_TTL=4s")
	s.env = append(s.env, env...)
	return s
}

// start starts tenure run in a role of its own, and returns when it leads.
func (s *runStage) start(role, id string, command ...string) *exec.Cmd {
	s.Helper()
	self, err := os.Executable()
	require.NoError(s, err)
	var log bytes.Buffer
	cmd := &exec.Cmd{Path: self, Args: append([]string{"tenure", "run", "--role", role, "--id", id, "--"}, command...), Env: s.env, Stderr: &log, WaitDelay: time.Second}
	require.NoError(s, cmd.Start())
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if s.Failed() {
			s.Log(role, id, log.String())
		}
	})
	return cmd
}

// until waits for a condition, as long as a starved machine may need.
func (s *runStage) until(what string, is func() bool) {
	s.Helper()
	require.Eventually(s, is, 2*time.Minute, 10*time.Millisecond, what)
}

// over reports whether the lease of an instance has ended. Redis must say so: no answer is none.
func (s *runStage) over(role, id string) bool {
	leader, err := s.control.Leader(context.Background(), role)
	return errors.Is(err, tenure.ErrNoLeader) || err == nil && leader.InstanceID != id
}

func (s *runStage) leads(role, id string) bool {
	leader, err := s.control.Leader(context.Background(), role)
	return err == nil && leader.InstanceID == id
}

// living are the processes whose command line has a word.
func living(word string) (pids []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), word) && !strings.Contains(string(line), "setsid") && strings.HasPrefix(string(line), "sleep") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// child is the only child of a process.
func (s *runStage) child(pid int) (child int) {
	s.Helper()
	s.until("a child", func() bool {
		paths, _ := filepath.Glob("/proc/[0-9]*/stat")
		for _, path := range paths {
			stat, err := os.ReadFile(path)
			if err != nil {
				continue
			}
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
				child, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
				return true
			}
		}
		return false
	})
	return child
}

// TestRunLeavesNothingAlive: whatever is killed or frozen, no descendant of the program lives when
// its lease has expired: neither those that have left the process group, nor those that have lost
// their parent.
func TestRunLeavesNothingAlive(t *testing.T) {
	s := newRunStage(t, "TENURE_LEASE_TTL=20s", "TENURE_HEARTBEAT_TTL=60s") // the last second is for a machine that is busy
	type fault struct {
		name     string
		children int
		strike   func(tenure *exec.Cmd, guardian, child int)
	}
	send := func(pid int, signal syscall.Signal) { require.NoError(t, syscall.Kill(pid, signal)) }
	faults := []fault{
		{"the CLI is killed", 10, func(cmd *exec.Cmd, _, _ int) { send(cmd.Process.Pid, syscall.SIGKILL) }},
		{"the CLI is frozen", 200, func(cmd *exec.Cmd, _, _ int) { send(cmd.Process.Pid, syscall.SIGSTOP) }},
		{"the program is frozen", 10, func(cmd *exec.Cmd, _, child int) {
			send(child, syscall.SIGSTOP)
			send(cmd.Process.Pid, syscall.SIGTERM)
		}},
		{"the program is killed", 10, func(_ *exec.Cmd, _, child int) { send(child, syscall.SIGKILL) }},
		{"the guardian is killed", 10, func(_ *exec.Cmd, guardian, _ int) { send(guardian, syscall.SIGKILL) }},
		{"the guardian is frozen", 10, func(cmd *exec.Cmd, guardian, _ int) {
			send(guardian, syscall.SIGSTOP)
			send(cmd.Process.Pid, syscall.SIGTERM)
		}},
	}
	words, processes := make([]string, len(faults)), make([]*exec.Cmd, len(faults))
	for i, f := range faults {
		words[i] = fmt.Sprintf("%d%d", 100000+i, os.Getpid())
		t.Cleanup(func() {
			for _, pid := range living(words[i]) { // if the test has failed
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		})
		// Half of them have left the process group, and half have lost their parent too.
		script := fmt.Sprintf("for i in $(seq %d); do setsid sleep %s & (setsid sleep %s &); done; trap '' TERM; while :; do sleep 1; done",
			f.children/2, words[i], words[i])
		processes[i] = s.start(fmt.Sprintf("role-%d", i), fmt.Sprintf("web-%d", i), "sh", "-c", script)
	}
	for i, f := range faults {
		s.until(f.name, func() bool {
			return s.leads(fmt.Sprintf("role-%d", i), fmt.Sprintf("web-%d", i)) && len(living(words[i])) == f.children
		})
	}
	for i, f := range faults {
		guardian := s.child(processes[i].Process.Pid)
		child := programOf(guardian)
		require.NotZero(t, child)
		f.strike(processes[i], guardian, child)
	}
	alive := make(map[string][]int) // by fault, when its lease had ended
	s.until("all leases end", func() bool {
		for i, f := range faults {
			if _, seen := alive[f.name]; !seen && s.over(fmt.Sprintf("role-%d", i), fmt.Sprintf("web-%d", i)) {
				alive[f.name] = living(words[i])
			}
		}
		return len(alive) == len(faults)
	})
	for _, f := range faults {
		require.Empty(t, alive[f.name], f.name)
	}
	// Who was frozen finds the report of its guardian as it wakes, and does not blame it.
	frozen := processes[1]
	send(frozen.Process.Pid, syscall.SIGTERM)
	send(frozen.Process.Pid, syscall.SIGCONT)
	require.NoError(t, frozen.Wait())
	require.Contains(t, fmt.Sprint(frozen.Stderr), "sh was ended since no renewal of the lease came through")
}

// programOf is the child of a guardian that is the shell.
func programOf(guardian int) int {
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(stat), "(sh)") {
			continue
		}
		if fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); len(fields) > 1 && fields[1] == strconv.Itoa(guardian) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// TestRunHandsOverAtOnce: if the program crashes another instance leads within milliseconds: the
// gap is that of the history of terms, and far below the lease.
func TestRunHandsOverAtOnce(t *testing.T) {
	s := newRunStage(t, "TENURE_LEASE_TTL=10m", "TENURE_HEARTBEAT_TTL=10m")
	word := fmt.Sprintf("7%d", os.Getpid())
	s.start("export", "web-1", "sleep", word)
	s.until("web-1 leads", func() bool { return s.leads("export", "web-1") && len(living(word)) == 1 })
	s.start("export", "web-2", "sleep", "1000")
	s.until("web-2 follows", func() bool {
		counts, err := s.control.Registry().Counts(t.Context())
		return err == nil && counts.Active == 2
	})
	crashed := time.Now()
	require.NoError(t, syscall.Kill(living(word)[0], syscall.SIGKILL))
	s.until("web-2 leads", func() bool { return s.leads("export", "web-2") })
	t.Logf("from the crash to the next leader: %v", time.Since(crashed))
	terms, err := s.control.Terms(t.Context(), "export", 2)
	require.NoError(t, err)
	require.Equal(t, "stopped", terms[1].Reason, "the lease was given back")
	require.Less(t, terms[0].Gap, 5*time.Minute, "half a lease")
}

// TestRunSurvivesAnOutage: if Redis is away for longer than the lease, the term expires: the
// program has not failed, though it was ended. Afterwards it runs again.
func TestRunSurvivesAnOutage(t *testing.T) {
	s := newRunStage(t)
	log := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(log)
	require.NoError(t, err)
	defer file.Close()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := &exec.Cmd{Path: self, Args: []string{"tenure", "run", "--role", "outage", "--id", "web-1", "--", "sleep", "1000"}, Env: s.env, Stderr: file}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	said := func(text string, times int) bool {
		all, err := os.ReadFile(log)
		return err == nil && strings.Count(string(all), text) >= times
	}
	s.until("it leads", func() bool { return said("web-1 leads outage", 1) })
	s.server.Pause(t)
	s.until("the term ends", func() bool { return said(`msg="leadership ended"`, 1) })
	s.server.Resume(t)
	s.until("it leads again", func() bool { return said("web-1 leads outage", 2) })
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Contains(t, string(text), "sleep was ended since no renewal of the lease came through")
	require.Contains(t, string(text), "reason=expired")
	require.NotContains(t, string(text), "leader work failed")
}

// TestRunIsNotHeldUpByItsReader: nobody reads what it says, and the pipe is full, as under a pager
// or behind Ctrl-S. The lease is given back all the same once the program has ended.
func TestRunIsNotHeldUpByItsReader(t *testing.T) {
	s := newRunStage(t, "TENURE_LEASE_TTL=10m", "TENURE_HEARTBEAT_TTL=10m")
	var ends [2]int
	require.NoError(t, unix.Pipe2(ends[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	t.Cleanup(func() { _ = unix.Close(ends[0]) })
	full, err := 0, error(nil)
	for ; err == nil; full++ {
		_, err = unix.Write(ends[1], []byte{'x'})
	}
	require.ErrorIs(t, err, unix.EAGAIN)
	require.Greater(t, full, 1000)
	require.NoError(t, unix.SetNonblock(ends[1], false))
	stderr := os.NewFile(uintptr(ends[1]), "stderr")
	defer func() { _ = stderr.Close() }()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := &exec.Cmd{Path: self, Args: []string{"tenure", "run", "--role", "unread", "--id", "web-1", "--", "sh", "-c", "read line; exit 3"}, Env: s.env, Stderr: stderr}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	s.until("it leads", func() bool { return s.leads("unread", "web-1") })
	_, err = stdin.Write([]byte("end\n"))
	require.NoError(t, err)
	s.until("the lease is given back", func() bool { return s.over("unread", "web-1") })
	s.until("it ends", func() bool { return len(ended) == 1 })
	require.Equal(t, "exit status 3", (<-ended).Error())
}

// TestRunNeedsTheProcOfItsOwnNamespace: in a pid namespace with the /proc of another one it would
// find no descendant, and let all of them live. It does not begin.
func TestRunNeedsTheProcOfItsOwnNamespace(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	var said bytes.Buffer
	cmd := &exec.Cmd{
		Path: self, Args: []string{"tenure", "run", "--", "true"}, Stderr: &said, Env: []string{"HOME=" + t.TempDir()},
		SysProcAttr: &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		},
	}
	if err := cmd.Start(); errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.ENOSPC) { // ENOSPC: none may be made, by a limit
		t.Skip("no namespace may be made, TestPrepareNeedsItsOwnProc holds the rule: ", err)
	} else {
		require.NoError(t, err)
	}
	err = cmd.Wait()
	require.Equal(t, 125, cmd.ProcessState.ExitCode(), err)
	require.Contains(t, said.String(), "/proc shows another pid namespace")
}

// TestRunEndsWhatForksAndExits: a process that forks and exits at once, again and again, is never
// where a list of processes has it. It does not live on either.
func TestRunEndsWhatForksAndExits(t *testing.T) {
	s := newRunStage(t, "TENURE_LEASE_TTL=10m", "TENURE_HEARTBEAT_TTL=10m")
	dir := t.TempDir()
	hops, end, enough := filepath.Join(dir, "hops"), filepath.Join(dir, "end"), filepath.Join(dir, "enough")
	t.Cleanup(func() { _ = os.WriteFile(enough, nil, 0o600) }) // if the test has failed
	hop := filepath.Join(dir, "hop")
	require.NoError(t, os.WriteFile(hop, fmt.Appendf(nil, "[ -e %s ] || { echo >> %s; sh %s & }", enough, hops, hop), 0o600))
	script := fmt.Sprintf("sh %s & until [ -e %s ]; do sleep 0.1; done", hop, end)
	s.start("hops", "web-1", "sh", "-c", script)
	size := func() int64 {
		info, err := os.Stat(hops)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	s.until("it forks", func() bool { return s.leads("hops", "web-1") && size() > 10 })
	require.NoError(t, os.WriteFile(end, nil, 0o600))
	s.until("the lease ends", func() bool { return s.over("hops", "web-1") })
	at := size()
	require.Never(t, func() bool { return size() > at }, time.Second, 100*time.Millisecond)
}
