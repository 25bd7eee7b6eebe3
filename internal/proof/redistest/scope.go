package redistest

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
)

// TB is what the harness needs of a test; every testing.TB is one. Outside of tests [Do] provides
// one.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Do runs fn outside of a test. Fatalf ends fn, the clean-ups run in reverse order when fn has
// ended, and every failure is in the error that Do returns. Logf writes to standard error.
func Do(fn func(t TB)) error {
	s := new(scope)
	s.await(func() { fn(s) })
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			defer s.mu.Unlock()
			return errors.Join(s.failures...)
		}
		cleanup := s.cleanups[n-1]
		s.cleanups = slices.Delete(s.cleanups, n-1, n)
		s.mu.Unlock()
		s.await(cleanup)
	}
}

// scope is the TB of one Do.
type scope struct {
	mu       sync.Mutex
	cleanups []func()
	failures []error
}

// await runs fn in a goroutine of its own, so that Fatalf can end it, and returns when fn has
// ended.
func (s *scope) await(fn func()) {
	var wg sync.WaitGroup
	wg.Go(fn) // fn ends by itself or through Fatalf; waited for in the next line
	wg.Wait()
}

func (s *scope) Helper() {}

func (s *scope) Cleanup(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, fn)
}

func (s *scope) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.failures) > 0
}

func (s *scope) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (s *scope) Errorf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, fmt.Errorf(format, args...))
}

func (s *scope) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}
