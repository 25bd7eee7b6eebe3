//go:build unix

package figures

import (
	"syscall"
	"time"
)

// CPU is the processor time that this process has used so far.
func CPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
