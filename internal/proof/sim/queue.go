package sim

import "time"

// event is something that happens at an instant.
type event struct {
	at     time.Duration
	order  uint64 // of planning: at one instant the first planned comes first
	what   kind
	host   uint8
	life   uint32
	arg    int32 // of a message: its place in the mail; else what the kind says
	serial int32 // of the attempt that returns
}

// kind is what happens.
type kind uint8

const (
	evWake     kind = iota // the timer of a candidate
	evArrive               // a message reaches the server
	evAnswer               // its reply reaches the process
	evVacant               // hints
	evCalled               // of an open offer
	evRollCall             //
	evBoot                 // a process starts
	evDrained              // leader work has returned
	evBeat                 // the timer of the heartbeats
	evSweep                // of the sweeps
	evTask                 // of a task: arg
	evRunEnds              // an attempt of a task returns: arg, serial
	evPause                // an operator pauses a task, or lets it go on
	evStrike               // a fault
	evPromote              // a replica becomes master: arg is its snapshot
	evDemote               // an old master takes no writes any more
	evResume               // Redis goes on
	evReach                // a process finds the new master
	evEar                  // a process makes its subscription anew: arg is the number of that
	evNamed                // hint: the lease is offered to this one
	evReserved             // hint: it is reserved for another, for arg ms
	evGranted              // hint: somebody was granted the lease
	evOrder                // a late request for a transfer to arg, of the term that orders[serial] says
	evHanded               // has the transfer come to its end?
	evLook                 // is everything in order?
)

// queue holds the events that are to come, the next one last. There are a few dozen, and most new
// ones are due within milliseconds: those find their place at the end at once, which no heap does
// as fast.
type queue struct {
	events []event
	order  uint64
}

func (q *queue) push(e event) {
	q.order++
	e.order = q.order
	low, high := 0, len(q.events) // its place lies between: whatever stands at one instant longer comes first
	for range 6 {
		if high == 0 || q.events[high-1].at > e.at {
			low = high
			break
		}
		high--
	}
	for low < high {
		middle := int(uint(low+high) >> 1)
		if q.events[middle].at > e.at {
			low = middle + 1
		} else {
			high = middle
		}
	}
	q.events = append(q.events, event{})
	copy(q.events[low+1:], q.events[low:])
	q.events[low] = e
}

func (q *queue) pop() event {
	last := len(q.events) - 1
	e := q.events[last]
	q.events = q.events[:last]
	return e
}
