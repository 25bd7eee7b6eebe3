// Package parallel makes several calls at once.
package parallel

import (
	"sync"
	"sync/atomic"
)

// Each calls do for each number below n, at most so many at once, until one has failed. It returns
// when all that it has begun have returned, with the first error.
func Each(n, most int, do func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	for range min(n, most) {
		workers.Go(func() { // ends with the last number
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
