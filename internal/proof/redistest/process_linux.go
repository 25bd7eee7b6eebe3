package redistest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// dieWithParent has the kernel kill the process when the thread that forks it ends, see forks.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// frozen reports whether every thread of the process is stopped. SIGSTOP takes effect thread by
// thread.
func frozen(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue // that thread has ended
		}
		// "<tid> (<name>) <state> …": the name may hold anything, so the state is what follows the
		// last parenthesis.
		i := bytes.LastIndexByte(stat, ')')
		if err != nil || i < 0 || i+2 >= len(stat) || !bytes.ContainsRune([]byte("TtZX"), rune(stat[i+2])) {
			return false
		}
	}
	return true
}
