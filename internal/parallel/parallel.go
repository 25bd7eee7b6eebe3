// Package parallel makes several calls at once.
package parallel

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Each calls do for each number below n, at most so many at once, until one has failed. It returns
// when all that it has begun have returned, with the first error. If one has panicked, or has ended
// its goroutine, Each does so in that of its caller.
func Each(n, most int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var broken atomic.Pointer[any] // what one has panicked with; nil in it: runtime.Goexit
	var workers sync.WaitGroup
	for range min(n, most) {
		workers.Go(func() { // ends with the last number
			over := false
			defer func() {
				if value := recover(); !over {
					broken.CompareAndSwap(nil, &value)
				}
			}()
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil && broken.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
			over = true
		})
	}
	workers.Wait()
	if value := broken.Load(); value != nil {
		if *value != nil {
			panic(*value)
		}
		runtime.Goexit()
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
