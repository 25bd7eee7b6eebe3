//go:build unix && !linux

package redistest

import "os/exec"

// dieWithParent does nothing here: only Linux can. A test binary that is killed leaves its servers
// behind; its children still see the end of their standard input.
func dieWithParent(*exec.Cmd) {}

// frozen takes the kernel at its word: there is no portable way to look.
func frozen(int) bool { return true }
