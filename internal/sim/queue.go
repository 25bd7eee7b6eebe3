package sim

import "time"

// event is something that happens at an instant.
type event struct {
	at    time.Duration
	order uint64 // of planning: at one instant the first planned comes first
	what  kind
	host  uint8
	life  uint32
	arg   int32 // of a message: its place in the mail; else what the kind says
}

// kind is what happens.
type kind uint8

const (
	evWake     kind = iota // the timer of a candidate
	evArrive               // a message reaches the server
	evAnswer               // its reply reaches the process
	evVacant               // hints
	evRollCall             //
	evBoot                 // a process starts
	evDrained              // leader work has returned
	evBeat                 // the timer of the beat loop
	evSweep                // of the sweeper
	evTask                 // of a task: arg
	evRunEnds              // a run of a task returns: arg
	evStrike               // a fault
	evPromote              // a replica becomes master: arg is its snapshot
	evDemote               // an old master takes no writes any more
	evResume               // Redis goes on
	evReach                // a process finds the new master
)

// queue is a heap of events.
type queue struct {
	events []event
	order  uint64
}

func (a *event) before(b *event) bool { return a.at < b.at || a.at == b.at && a.order < b.order }

func (q *queue) push(e event) {
	q.order++
	e.order = q.order
	q.events = append(q.events, e)
	i := len(q.events) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&q.events[parent]) {
			break
		}
		q.events[i] = q.events[parent]
		i = parent
	}
	q.events[i] = e
}

func (q *queue) pop() event {
	first, last := q.events[0], len(q.events)-1
	e := q.events[last]
	q.events = q.events[:last]
	i := 0
	for {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.events[child+1].before(&q.events[child]) {
			child++
		}
		if !q.events[child].before(&e) {
			break
		}
		q.events[i] = q.events[child]
		i = child
	}
	if last > 0 {
		q.events[i] = e
	}
	return first
}
