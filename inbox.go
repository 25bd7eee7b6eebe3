package tenure

import (
	"sync"

	"github.com/tenure-go/tenure/internal/lease"
)

// inbox is what others leave for the loop of an elector. Flags coalesce; replies are bounded by maxCalls, results by the
// number of works. It is safe for concurrent use and never blocks.
type inbox struct {
	wake chan struct{} // size 1

	mu   sync.Mutex
	mail mail
}

// mail is one taking of the inbox.
type mail struct {
	replies   []reply
	results   []result
	vacant    bool   // hint: the lease may be free
	granted   bool   // hint: somebody leads now
	rollCall  bool   // hint: leaders should renew now
	connected bool   // hints may have been missed
	health    *error // the last answer of the health check, where there is a new one
	unwatched bool   // the health check has returned for the last time
}

// reply is the answer to a request, or its error.
type reply struct {
	number  uint64 // of the call, in the order in which they were sent
	look    bool   // it asked who leads; there is no request
	aside   bool   // it went over a connection of its own
	request lease.Request
	answer  leaseReply
	err     error
}

// result is what one piece of leader work returned.
type result struct {
	work   int
	err    error // names the work
	heeded bool  // it only tells that the term is over
}

// put leaves something and wakes the loop.
func (b *inbox) put(leave func(*mail)) {
	b.mu.Lock()
	leave(&b.mail)
	b.mu.Unlock()
	b.nudge()
}

func (b *inbox) nudge() {
	select {
	case b.wake <- struct{}{}:
	default: // it will wake already
	}
}

func (b *inbox) take() mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	taken := b.mail
	b.mail = mail{}
	return taken
}
