//go:build unix

package demo

import (
	"os/exec"
	"syscall"
)

// apart starts a member outside of the demo's process group: Ctrl-C is for the demo, which then
// ends its members in order.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// freeze stops a process where it stands, or lets it go on.
func freeze(cmd *exec.Cmd, stop bool) error {
	if stop {
		return cmd.Process.Signal(syscall.SIGSTOP)
	}
	return cmd.Process.Signal(syscall.SIGCONT)
}
