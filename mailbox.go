package tenure

import "sync"

// wakeup wakes the loop that waits for it. It coalesces: many calls of nudge before the loop looks
// wake it once. Anybody may call nudge; it never blocks.
type wakeup chan struct{}

func newWakeup() wakeup { return make(wakeup, 1) }

func (w wakeup) nudge() {
	select {
	case w <- struct{}{}:
	default: // it will wake already
	}
}

// mailbox is what other goroutines leave for a loop. T says whether it coalesces or grows. It is
// safe for concurrent use and never blocks.
type mailbox[T any] struct {
	wakeup

	mu   sync.Mutex
	mail T
}

// put leaves something and wakes the loop.
func (b *mailbox[T]) put(leave func(*T)) {
	b.mu.Lock()
	leave(&b.mail)
	b.mu.Unlock()
	b.nudge()
}

// take empties the mailbox.
func (b *mailbox[T]) take() T {
	b.mu.Lock()
	defer b.mu.Unlock()
	var empty T
	taken := b.mail
	b.mail = empty
	return taken
}
