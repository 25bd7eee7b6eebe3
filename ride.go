package tenure

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// ride is an acquire that may travel with a heartbeat of its process. It saves a round trip, which
// costs Redis more than the acquire.
type ride struct {
	store.Rider
	within time.Duration // the heartbeat may go so much early
	until  time.Time     // its answer is waited for until then
	ended  chan bool     // has one value, and room for it: whether it was sent
	begun  atomic.Bool   // it is being sent, or will not be: whoever sets it says so in ended
}

// begin reports whether the ride is still to be sent. Then the caller must say how it has ended.
func (r *ride) begin() bool { return r != nil && r.begun.CompareAndSwap(false, true) }

// refuse says that the ride is not sent, unless it is.
func (r *ride) refuse() {
	if r.begin() {
		r.ended <- false
	}
}

// offer offers a ride to who waits for one, and waits until the acquire has its answer. It reports
// whether it was sent, with the answer in rider, or at once that nobody waits.
func offer(ctx context.Context, to chan<- *ride, rider *store.Rider, within time.Duration) bool {
	r := &ride{Rider: *rider, within: within, ended: make(chan bool, 1)}
	r.until, _ = ctx.Deadline()
	select {
	case to <- r:
	default:
		return false
	}
	sent := <-r.ended // each ride that was taken has an end
	*rider = r.Rider
	return sent
}
