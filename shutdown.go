package tenure

import "time"

// This file says who gets which part of ShutdownTimeout. From the stop of Run on:
//
//	S              ShutdownTimeout: Run returns
//	S − lastWords  what still runs is reported; observers hear of that
//	D              the drain bound of each election: S − deregisterTime in a Coordinator,
//	               S for an Elector that stands alone
//	D − lastWords  the loop of an election returns with what still runs
//	3/4 · D        the context of running tasks is cancelled
//
// D bounds the hand-over of a term that ends otherwise as well, from that end on.

// deregisterTime is the time that a Coordinator keeps for the last round trip of its registry.
func deregisterTime(shutdown time.Duration) time.Duration { return min(shutdown/10, time.Second) }

// lastWords is the time that is kept for observers and the Logger, so that the last events arrive.
func lastWords(bound time.Duration) time.Duration { return min(bound/20, 250*time.Millisecond) }

// finishTime is for how long running tasks may finish after the voluntary end of a term.
func finishTime(drain time.Duration) time.Duration { return drain * 3 / 4 }

// overrunPatience is how long after the end of its context a task may go on before that is
// reported. It is less than what the drain has left then, a quarter.
func overrunPatience(shutdown time.Duration) time.Duration { return min(overrunAfter, shutdown/10) }

const overrunAfter = time.Second
