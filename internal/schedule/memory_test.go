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

// TestMemoryOfAClaimThatWasReturned: a run that was given back has not run: its slot is claimed
// again, and the one before it not.
func TestMemoryOfAClaimThatWasReturned(t *testing.T) {
	const at, slot = int64(1_700_000_000_000), int64(1_699_999_999_000)
	var m Memory
	m.claimed(store.TaskClaim{Run: "a1-1", Kind: store.ClaimSlot, Slot: slot}, at, time.Minute)
	before := m
	m.returned("a1-2")
	require.Equal(t, before, m, "another run")
	m.ended, m.left = true, "a0-9"
	m.returned("a1-1")
	require.Equal(t, Memory{slot: slot - 1, at: at, mono: time.Minute}, m)
	require.False(t, m.passed(slot, at, time.Minute))
	require.True(t, m.passed(slot-1, at, time.Minute))

	m.claimed(store.TaskClaim{Run: "a1-3", Kind: store.ClaimTrigger}, at, time.Minute)
	m.returned("a1-3")
	require.Equal(t, Memory{slot: slot - 1, at: at, mono: time.Minute}, m, "no slot of the schedule: none is claimed again")
	m.claimed(store.TaskClaim{Run: "a1-4", Kind: store.ClaimSlot, Slot: 1}, at, time.Minute)
	m.returned("a1-4")
	require.Zero(t, m.slot)
	require.False(t, m.passed(0, at, time.Minute), "none was claimed")
}

// TestMemoryOfEnds: what a claim would repeat is known while it is what ended last here, and of
// triggers the last sixteen.
func TestMemoryOfEnds(t *testing.T) {
	const at, slot = int64(1_700_000_000_000), int64(1_699_999_999_000)
	var m Memory
	repeats := func(kind string, slot int64, expect string) string {
		return m.repeats(store.TaskClaim{Kind: kind, Slot: slot, Expect: expect}, "", at, time.Minute)
	}
	m.claimed(store.TaskClaim{Run: "a1-1", Kind: store.ClaimAgain, Expect: "b1-1", Slot: slot}, at, time.Minute)
	require.Empty(t, repeats(store.ClaimAgain, slot, "b1-1"), "it is on")
	m.ends(store.TaskFinish{Run: "a1-1", Status: "succeeded"}, "")
	require.Empty(t, m.triggered)
	require.Equal(t, "a1-1", repeats(store.ClaimAgain, slot, "b1-1"))
	require.Empty(t, repeats(store.ClaimAgain, slot, "b1-2"))
	require.Empty(t, repeats(store.ClaimSlot, slot, ""), "no slot was claimed here")

	m.claimed(store.TaskClaim{Run: "a1-2", Kind: store.ClaimSlot, Slot: slot}, at, time.Minute)
	require.Empty(t, repeats(store.ClaimSlot, slot, ""))
	m.ends(store.TaskFinish{Run: "a1-2", Status: "failed"}, "")
	require.Equal(t, "a1-2", repeats(store.ClaimSlot, slot, ""))
	require.Empty(t, repeats(store.ClaimSlot, slot-1, ""))
	require.Empty(t, repeats(store.ClaimAgain, slot, "b1-1"), "what that one went on with")

	for i := range maxTriggered + 1 {
		id := string(rune('a' + i))
		m.claimed(store.TaskClaim{Run: "t-" + id, Kind: store.ClaimTrigger}, at, time.Minute)
		m.ends(store.TaskFinish{Run: "t-" + id}, id)
	}
	m.ends(store.TaskFinish{Run: "t-again"}, "c")
	require.Len(t, m.triggered, 16)
	for i := range maxTriggered + 1 {
		id := string(rune('a' + i))
		want := map[bool]string{true: "t-" + id}[i > 0]
		if id == "c" {
			want = "t-again"
		}
		require.Equal(t, want, m.repeats(store.TaskClaim{Kind: store.ClaimTrigger}, id, at, time.Minute), id)
		require.Equal(t, i > 0 && id != "c", m.knows("t-"+id), id)
	}
}

// TestMemoryOfDurations: an attempt is reported that takes ten times as long as usual, after a
// minute at the earliest; without a usual time at the next slot.
func TestMemoryOfDurations(t *testing.T) {
	var m Memory
	require.Equal(t, time.Minute, m.limit(time.Second))
	require.Equal(t, time.Hour, m.limit(time.Hour))
	m.took(0)
	require.Equal(t, time.Duration(1), m.usual, "it is known now")
	require.Equal(t, time.Minute, m.limit(time.Hour))
	m = Memory{}
	m.took(time.Minute)
	require.Equal(t, 10*time.Minute, m.limit(time.Hour))
	m.took(5 * time.Minute)
	require.Equal(t, 20*time.Minute, m.limit(0), "a quarter of the way to the younger one")
}
