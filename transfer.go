package tenure

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// transferCall is one call of Elector.Transfer, as its loop sees it.
type transferCall struct {
	to    string     // lease.Anyone: the best candidate
	token int64      // of the term that it is meant for
	begun chan error // size 1: nil once the term has ended for it, else why it has not
}

// answer waits for what the loop says, in its next turn at the latest. ended is closed when there
// is none any more.
func (c transferCall) answer(ended <-chan struct{}) error {
	select {
	case err := <-c.begun:
		return err
	case <-ended:
	}
	select {
	case err := <-c.begun:
		return err
	default:
		return ErrNotLeader
	}
}

// transfer is the hand-over that is offered, with the calls that wait for it. Its zero value is
// none. It belongs to the loop.
type transfer struct {
	asked string // lease.Anyone: the best candidate
	to    string // the instance that it is offered to; "": not known yet
	token int64  // 0: there is none
	calls []transferCall
}

// settle answers the calls: the term has ended for the transfer (nil), or why it has not.
func (t *transfer) settle(err error) {
	for _, call := range t.calls {
		call.begun <- err
	}
	*t = transfer{}
}

// transferPreempt is the Reason of events about a transfer that nobody has asked for: this process
// gives way to a better candidate.
const transferPreempt = "preempt"

// why is the Reason of events about it.
func (t *transfer) why() string {
	if len(t.calls) == 0 {
		return transferPreempt
	}
	return ""
}

// lastTransfer is the transfer that has ended a term. Its zero value is none. It belongs to the
// loop.
type lastTransfer struct {
	token     int64
	asked, to string
}

// serves reports whether it did what the call asks for: that came after the turn began.
func (t lastTransfer) serves(call transferCall) bool {
	return t.token == call.token && (t.asked == call.to || t.to == call.to)
}

// join adds a call to the transfer that it asks for, if that is on.
func (t *transfer) join(call transferCall) bool {
	if t.asked != call.to || t.token != call.token {
		return false
	}
	t.calls = append(t.calls, call)
	return true
}

// heirName names an heir in errors.
func heirName(id string) string {
	if id == lease.Anyone {
		return "the best candidate"
	}
	return fmt.Sprintf("instance %q", id)
}

// notReady is the error of an offer that was not taken up. If to is "", nobody has asked at all.
// byItself: nobody has asked for the transfer, this process gives way to a better candidate.
func notReady(to string, byItself bool, timing lease.Timing) error {
	bound := timing.Offer().Round(time.Millisecond)
	if to == "" {
		return fmt.Errorf("%w: no other instance has asked for the lease within %v", ErrNotReady, bound)
	}
	if byItself {
		return fmt.Errorf("%w: instance %q has not asked for the lease within %v, or is no better any more", ErrNotReady, to, bound)
	}
	return fmt.Errorf("%w: instance %q has not asked for the lease within %v: it is not there, is not healthy, or stands back", ErrNotReady, to, bound)
}

// balance is what the elections of one process share so that roles spread over processes. Its zero
// value leads nothing. It is safe for concurrent use.
type balance struct {
	led atomic.Int64 // roles whose term is on, and those that are offered to this process and that it asks for

	mu   sync.Mutex
	pace lease.Pace
}

// count counts one role more, or one less.
func (b *balance) count(more bool) {
	if more {
		b.led.Add(1)
	} else {
		b.led.Add(-1)
	}
}

// turn reports whether a role may be offered to another process now, which leads so many fewer, and
// counts that it is.
func (b *balance) turn(timing lease.Timing, fewer int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.pace.Turn(readClock().Mono, timing, fewer)
}

// order is where the options put a candidate among equals: the highest comes first; 0: nowhere.
func (o ElectionOptions) order(id string) int {
	switch {
	case o.ByInstanceID:
		digits := id[len(strings.TrimRight(id, "0123456789")):]
		n, err := strconv.Atoi(digits)
		if err != nil {
			n = lease.MaxOrder
		}
		return max(lease.MaxOrder-n, 1)
	case o.Spread: // roles that nobody leads yet do not all go to one process
		sum := fnv.New32a()
		_, _ = sum.Write([]byte(o.Role + "\x00" + id)) // never fails
		return 1 + int(sum.Sum32()%lease.MaxOrder)
	}
	return 0
}
