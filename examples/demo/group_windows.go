package main

import (
	"os/exec"
	"syscall"
)

// apart starts a member outside of the demo's process group: Ctrl-C is for the demo, which then
// ends its members in order.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
