package sidecar

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

// headless has a process of this test end its first thread.
const headless = "TENURE_TEST_HEADLESS"

func init() {
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
