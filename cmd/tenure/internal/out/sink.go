package out

import (
	"io"
	"sync"
)

// Sink is where a program writes. It keeps the first error, after which nothing more is written, so
// that those who write need not look at each. It is safe for concurrent use.
type Sink struct {
	To     io.Writer
	Failed func() // is called once, with the first error; nil: nobody is told

	mu  sync.Mutex
	err error
}

// Write writes, unless a Write has failed before.
func (s *Sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.To.Write(p)
	if err != nil {
		s.err = err
		if s.Failed != nil {
			s.Failed()
		}
	}
	return n, err
}

// Err is the first error, or nil.
func (s *Sink) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
