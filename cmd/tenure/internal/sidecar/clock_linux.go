package sidecar

import (
	"time"

	"golang.org/x/sys/unix"
)

// now is a clock that all processes of this machine share, that nobody sets, and that goes on while
// the machine is suspended.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}
