// Package sidecar runs a command while this process leads, and has it dead before the lease can
// have expired.
//
// The command is started by a guardian: this program, started again as a process of its own. The
// guardian hears through a pipe until when the command may live, at each renewal of the lease, as a
// time of a clock that both share and that goes on while the machine is suspended. If it hears of
// no later time, because this process is frozen, cut off from Redis or dead, it ends the command:
// the stop signal to all descendants first, then SIGKILL to all that is left, again and again until
// none lives. So a frozen process is harmless. If the guardian is frozen, this process does the
// same a little later. If both are, they do it as they wake, and only the fencing token keeps what
// the command writes meanwhile away: see TENURE_TOKEN.
//
// On Linux both are child subreapers: a descendant that has left its process group and session, or
// whose parent has died, is found all the same, through /proc. Elsewhere only what is still in the
// process group of the command is found, and the clock is the wall clock, which must not be set
// back.
package sidecar

import "time"

// GuardCommand is the hidden command that makes this program a guardian.
const GuardCommand = "__guard"

// Margin is how long before the end of the lease the last descendant gets SIGKILL: a machine that
// is busy needs time to bury them.
func Margin(ttl time.Duration) time.Duration { return max(ttl/20, 100*time.Millisecond) }

// MaxGrace is how long a command may have at most between the stop signal and SIGKILL: beyond, two
// renewals that come late would end it. Of a lease that its holder counts less of, one that comes
// in time and is heard of late must not: it comes up to a tenth late, and is looked for four times
// in an interval.
func MaxGrace(ttl, drift, renew time.Duration) time.Duration {
	return min(ttl/4, ttl-drift-Margin(ttl)-renew*3/2)
}

// How a command ended.
const (
	ByItself   = "itself"   // it exited, crashed, or was killed by somebody else
	ByStop     = "stop"     // its term ended, or this process was told to stop
	ByDeadline = "deadline" // no renewal was heard of in time
)

// Exit codes of a command that could not be started, as env and timeout have them.
const (
	CannotStart = 126
	NotFound    = 127
)
