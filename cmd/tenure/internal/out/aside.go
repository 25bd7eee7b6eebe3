package out

import (
	"bytes"
	"io"
	"sync"
	"time"
)

const (
	asideTexts    = 256         // how many wait at most
	asidePatience = time.Second // how long Close waits
)

// Aside writes to what may block, such as a pipe that nobody reads or a terminal behind Ctrl-S,
// without holding its callers up: what comes while too much waits is lost. It is safe for
// concurrent use.
type Aside struct {
	texts chan []byte
	done  chan struct{}

	mu     sync.Mutex
	closed bool
}

// NewAside makes one, which must be closed.
func NewAside(to io.Writer) *Aside {
	a := &Aside{texts: make(chan []byte, asideTexts), done: make(chan struct{})}
	go func() { // ends with Close, at the latest with the process
		defer close(a.done)
		for text := range a.texts {
			_, _ = to.Write(text)
		}
	}()
	return a
}

// Write never waits, and never fails.
func (a *Aside) Write(text []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		select {
		case a.texts <- bytes.Clone(text):
		default:
		}
	}
	return len(text), nil
}

// Close waits until all is written, for a second at most.
func (a *Aside) Close() {
	a.mu.Lock()
	if !a.closed {
		a.closed = true
		close(a.texts)
	}
	a.mu.Unlock()
	select {
	case <-a.done:
	case <-time.After(asidePatience):
	}
}
