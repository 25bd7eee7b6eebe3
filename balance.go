package tenure

import (
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// balance is what the elections of one process share so that roles spread over processes. Its zero
// value leads nothing. It is safe for concurrent use.
type balance struct {
	led atomic.Int64 // roles whose term is on

	mu    sync.Mutex
	moved time.Time // when a role was last offered to a process that leads fewer; zero: never
}

// turn reports whether a role may be offered to another process now, and counts that it is: one per
// interval.
func (b *balance) turn(interval time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.moved.IsZero() || now.Sub(b.moved) >= interval {
		b.moved = now
		return true
	}
	return false
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
