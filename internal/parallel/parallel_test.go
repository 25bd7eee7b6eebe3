package parallel

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEach: each number has its call, no more of them than may be are on at once, and of a failure
// the first error is returned.
func TestEach(t *testing.T) {
	t.Parallel()
	var called [100]atomic.Int64
	var on, top atomic.Int64
	require.NoError(t, Each(len(called), 4, func(i int) error {
		n := on.Add(1)
		defer on.Add(-1)
		for is := top.Load(); n > is; is = top.Load() {
			top.CompareAndSwap(is, n)
		}
		called[i].Add(1)
		runtime.Gosched()
		return nil
	}))
	for i := range called {
		require.EqualValues(t, 1, called[i].Load(), i)
	}
	require.LessOrEqual(t, top.Load(), int64(4))

	bad := errors.New("bad")
	require.ErrorIs(t, Each(100, 4, func(i int) error {
		if i == 50 {
			return bad
		}
		return nil
	}), bad)
	require.NoError(t, Each(0, 4, func(int) error { return bad }))
}

// TestEachEndsAsItsCallsDo: a call that panics, or ends its goroutine, does that to the caller, as
// if the caller had made it: it is not taken for one that has answered.
func TestEachEndsAsItsCallsDo(t *testing.T) {
	t.Parallel()
	require.PanicsWithValue(t, "broken", func() {
		_ = Each(100, 4, func(i int) error {
			if i == 50 {
				panic("broken")
			}
			return nil
		})
	})
	answered := make(chan bool, 1)
	go func() { // ends at once
		returned := false
		defer func() { answered <- returned }()
		_ = Each(100, 4, func(i int) error {
			if i == 50 {
				runtime.Goexit()
			}
			return nil
		})
		returned = true
	}()
	require.False(t, <-answered)
}

// TestNothingIsBegunAfterAFailure, or after a call that has panicked; the first of several counts.
func TestNothingIsBegunAfterAFailure(t *testing.T) {
	first, later := errors.New("first"), errors.New("later")
	for name, end := range map[string]func(err error) error{
		"error": func(err error) error { return err },
		"panic": func(err error) error { panic(err) },
	} {
		synctest.Test(t, func(t *testing.T) {
			var begun atomic.Int64
			do := func() (err error) {
				defer func() {
					if value := recover(); value != nil {
						err, _ = value.(error)
					}
				}()
				return Each(100, 4, func(i int) error {
					begun.Add(1)
					time.Sleep(time.Duration(i+1) * time.Second)
					switch i {
					case 0:
						return end(first)
					case 1:
						return end(later)
					}
					return nil
				})
			}
			require.Equal(t, first, do(), name)
			require.EqualValues(t, 4, begun.Load(), name)
		})
	}
}
