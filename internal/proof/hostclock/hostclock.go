//go:build unix

// Package hostclock reads the monotonic clock of the host, which is one for all its processes: what
// several of them have seen can be put in one order.
package hostclock

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the reading of the clock.
func Now() time.Duration {
	at := anchor()
	return at.host + time.Since(at.here)
}

// Of converts a time of this process that still has its monotonic reading.
func Of(t time.Time) time.Duration {
	at := anchor()
	return at.host + t.Sub(at.here)
}

type instant struct {
	host time.Duration
	here time.Time
}

// anchor is one instant by the host's clock and by that of this process: asking the process costs
// no system call, and a probe that costs little disturbs little.
var anchor = sync.OnceValue(func() (at instant) {
	for best := time.Duration(1<<63 - 1); best > 10*time.Microsecond; { // until nothing came in between
		before := read()
		here := time.Now()
		if took := read() - before; took < best {
			best, at.host, at.here = took, before, here
		}
	}
	return at
})

func read() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // every Unix has this clock
	}
	return time.Duration(now.Nano())
}
