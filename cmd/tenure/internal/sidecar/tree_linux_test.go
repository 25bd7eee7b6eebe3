package sidecar

import (
	"os/exec"
	"syscall"
	"testing"

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
