//go:build unix

package hostclock

import (
	"testing"
	"time"
)

func TestNow_NeverGoesBack(t *testing.T) {
	last := Now()
	for range 1000 {
		now := Now()
		if now < last {
			t.Fatalf("%v after %v", now, last)
		}
		last = now
	}
}

func TestOf_IsTheSameClock(t *testing.T) {
	before, at, after := Now(), time.Now(), Now()
	if got := Of(at); got < before || got > after {
		t.Errorf("%v is not between %v and %v", got, before, after)
	}
}
