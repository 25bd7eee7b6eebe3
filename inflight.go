package tenure

import (
	"sync"
	"time"
)

// inFlight counts what may outlive whoever began it: calls to Redis, observers at work. One may begin while they are waited for, which
// a WaitGroup does not allow: an application asks whenever it likes.
type inFlight struct {
	mu   sync.Mutex
	n    int
	idle []chan struct{} // closed when nothing is in flight
}

func (f *inFlight) begin() {
	f.mu.Lock()
	f.n++
	f.mu.Unlock()
}

func (f *inFlight) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n--; f.n > 0 {
		return
	}
	for _, idle := range f.idle {
		close(idle)
	}
	f.idle = nil
}

func (f *inFlight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// flush waits until nothing is in flight, at the latest until the deadline: then it says what still is.
func (f *inFlight) flush(deadline time.Time, what string) error {
	idle := make(chan struct{})
	f.mu.Lock()
	if f.n == 0 {
		close(idle)
	} else {
		f.idle = append(f.idle, idle)
	}
	f.mu.Unlock()
	return await(idle, deadline, what)
}
