package demo

import (
	"errors"
	"os/exec"
	"syscall"
)

// apart starts a member outside of the demo's process group: Ctrl-C is for the demo, which then
// ends its members in order.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func freeze(*exec.Cmd, bool) error { return errors.New("this system pauses no process") }
