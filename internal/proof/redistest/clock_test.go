//go:build unix

package redistest

import (
	"testing"
	"time"
)

func TestClock_Steps(t *testing.T) {
	NoLeaks(t)
	if !HasClocks() {
		t.Skip("libfaketime is not installed")
	}
	clock, option := NewClock(t)
	c := Start(t, option).Client(t)
	ahead := time.Duration(0)
	for _, step := range []time.Duration{0, time.Hour, -2 * time.Hour, 1500 * time.Millisecond} {
		clock.Step(t, step)
		ahead += step
		before := time.Now()
		now, err := c.Time(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		const coarse = 5 * time.Millisecond // what the file leaves of an offset, and what may be cached of the time
		if early, late := now.Sub(before.Add(ahead)), now.Sub(time.Now().Add(ahead)); early < -coarse || late > coarse {
			t.Errorf("set ahead by %v: %v too early, %v too late", ahead, -early, late)
		}
	}
}
