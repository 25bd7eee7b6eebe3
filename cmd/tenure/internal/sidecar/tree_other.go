//go:build unix && !linux

package sidecar

import "syscall"

// Prepare must be called before Run. There are no child subreapers here: a descendant that leaves
// the process group is not found.
func Prepare() error { return nil }

// apart starts a process in a session of its own: a signal from the terminal is not for it.
func apart() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

func attached() *syscall.SysProcAttr { return apart() }

// signalAll sends a signal to the process group of the command, and returns 1 if there is one.
func signalAll(main int, signal syscall.Signal) int {
	if main <= 0 || syscall.Kill(-main, signal) != nil {
		return 0
	}
	return 1
}

// ownChildren are those of another process that became children of this one: none does here.
func ownChildren() []int { return nil }

// living is not known here.
func living() string { return "" }

// kept is for nothing here: no descendant of another process becomes a child of this one.
type kept struct{}

func (*kept) alone() bool { return true }
