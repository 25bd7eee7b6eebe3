package tenurehttp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// source is what a cell loads: the number of the load.
type source struct {
	*cell[int]
	takes time.Duration
	err   error
	loads int
	left  []time.Duration // that each load had at its beginning
}

func newSource() *source {
	s := &source{takes: 10 * time.Millisecond}
	s.cell = newCell(func(ctx context.Context) (int, error) {
		s.loads++
		until, _ := ctx.Deadline()
		s.left = append(s.left, time.Until(until))
		n, err := s.loads, s.err
		time.Sleep(s.takes)
		return n, err
	})
	return s
}

// read is get, and how long it took.
func (s *source) read(t *testing.T) (view[int], time.Duration, error) {
	began := time.Now()
	v, err := s.get(t.Context())
	return v, time.Since(began), err
}

// pass lets time pass, and all that is due by then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

var errAway = errors.Join(tenure.ErrUnreachable)

// TestCellWithoutAValue: who waits for the first value hears of a failure when it comes, and a load
// a second is tried.
func TestCellWithoutAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.err = errAway
		_, took, err := s.read(t)
		require.ErrorIs(t, err, tenure.ErrUnreachable)
		require.Equal(t, s.takes, took)
		for range 100 {
			_, took, err := s.read(t)
			require.ErrorIs(t, err, tenure.ErrUnreachable)
			require.LessOrEqual(t, took, s.takes)
			s.renew(0)
			pass(10 * time.Millisecond)
		}
		require.LessOrEqual(t, s.loads, 3)
		s.err = nil
		pass(fresh)
		v, _, err := s.read(t)
		require.NoError(t, err)
		require.Equal(t, s.loads, v.value)
	})
}

// TestCellAfterAChange: who reads waits for a load that begins after it; once that has come, an old
// value is handed out at once while the next one is loaded.
func TestCellAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		_, _, _ = s.read(t)
		s.takes = 500 * time.Millisecond
		pass(fresh)
		s.expire()
		_, ok := s.peek(time.Hour)
		require.False(t, ok)
		reading := make(chan int)
		go func() {
			v, _, _ := s.read(t)
			reading <- v.value
		}()
		pass(s.takes / 2)
		_, ok = s.peek(time.Hour)
		require.False(t, ok, "it is being loaded")
		require.Equal(t, 2, <-reading)
		v, ok := s.peek(time.Hour)
		require.True(t, ok)
		require.Equal(t, 2, v.value)

		pass(2 * fresh)
		v, took, err := s.read(t)
		require.NoError(t, err)
		require.Zero(t, took, "nothing has changed")
		require.Equal(t, 2, v.value)
		pass(s.takes)
		v, _, _ = s.read(t)
		require.Equal(t, 3, v.value)

		s.err = errAway
		pass(fresh)
		_, _, _ = s.read(t)
		pass(s.takes)
		_, ok = s.peek(time.Hour)
		require.False(t, ok, "it may not be as it is any more")
	})
}

// TestCellThatIsLoadedLater: a load has all of its time, however long it was put off.
func TestCellThatIsLoadedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		s.renew(3 * time.Second)
		pass(4 * time.Second)
		require.Equal(t, []time.Duration{loadBound}, s.left)
	})
}

// TestCellThatIsReadAgainAndAgain: while each reader wants what is read from now on, loads take a
// quarter of the time, or begin a tenth of a second apart.
func TestCellThatIsReadAgainAndAgain(t *testing.T) {
	for takes, loads := range map[time.Duration]int{time.Millisecond: 50, 10 * time.Millisecond: 25, 40 * time.Millisecond: 10} {
		synctest.Test(t, func(t *testing.T) {
			s := newSource()
			s.takes = takes
			for began := time.Now(); time.Since(began) < time.Second; {
				_, _ = s.anew(t.Context())
			}
			require.InDelta(t, loads, s.loads, 2, takes)
		})
	}
}
