package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestMemoryOfAClockThatWasSetBack: a slot that was run before Redis's clock was set back is not
// known, also once that clock is past the time of the run again. Without a step it is known,
// however much the rates of the clocks differ within reason.
func TestMemoryOfAClockThatWasSetBack(t *testing.T) {
	const at, slot = int64(1_700_000_000_000), int64(1_699_999_999_000)
	for _, tt := range []struct {
		name   string
		gained time.Duration // of Redis's clock since the run
		passed time.Duration // of ours
		known  bool
	}{
		{"at once", 0, 0, true},
		{"a while later", time.Hour, time.Hour, true},
		{"our clock is fast", time.Hour, time.Hour + 100*time.Second, true},
		{"our clock is slow", time.Hour, time.Hour - 100*time.Second, true},
		{"the estimate is behind", 0, 3 * time.Second, true},
		{"set back, and not there yet", -time.Second, time.Second, false},
		{"set back, and past that time again", 2 * time.Second, 50 * time.Second, false},
		{"set back by an hour, a day later", 23 * time.Hour, 25 * time.Hour, false},
		{"set ahead", time.Hour, time.Second, true},
	} {
		var m Memory
		m.claimed(store.TaskClaim{Run: "a1-1", Kind: store.ClaimSlot, Slot: slot}, at, time.Minute)
		now, mono := at+tt.gained.Milliseconds(), time.Minute+tt.passed
		require.Equal(t, tt.known, m.passed(slot, now, mono), tt.name)
		require.Equal(t, tt.known, m.passed(slot-1000, now, mono), tt.name)
		require.False(t, m.passed(slot+1000, now, mono), tt.name)
	}
}
