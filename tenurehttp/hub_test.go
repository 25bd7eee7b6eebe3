package tenurehttp

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

// newRing is a hub that one follower leaves changes in.
func newRing() (*hub, *follower) {
	b := &hub{}
	b.init(&Handler{done: make(chan struct{})})
	b.follower = &follower{b}
	return b, b.follower
}

// manyChanges are n changes behind the last one.
func manyChanges(last *int, n int) (changes []tenure.Change) {
	for range n {
		*last++
		changes = append(changes, tenure.Change{ID: fmt.Sprintf("%d-0", *last), Type: tenure.ChangeActive, InstanceID: "a"})
	}
	return changes
}

// TestReadersOfTheRing: each reader gets each change once, in order, as long as the ring has it,
// and else begins anew.
func TestReadersOfTheRing(t *testing.T) {
	b, f := newRing()
	last := 0
	f.note(false, manyChanges(&last, maxLog)...)
	read := func(c *cursor) (anew bool, ids []string) {
		anew, position, changes, _ := b.read(c)
		if anew {
			return true, []string{position}
		}
		for _, e := range changes {
			ids = append(ids, e.id())
		}
		return false, ids
	}
	quick, slow := &cursor{after: "990-0"}, &cursor{after: "2-0"}
	anew, ids := read(quick)
	require.False(t, anew)
	require.Len(t, ids, 10)
	_, ids = read(slow)
	require.Len(t, ids, 998)
	for n := range 5 {
		f.note(false, manyChanges(&last, 2)...)
		anew, ids = read(quick)
		require.False(t, anew)
		require.Equal(t, []string{fmt.Sprintf("%d-0", 1001+2*n), fmt.Sprintf("%d-0", 1002+2*n)}, ids)
	}
	f.note(false, manyChanges(&last, maxLog)...)
	anew, ids = read(slow)
	require.True(t, anew, "it has missed some")
	require.Equal(t, []string{fmt.Sprintf("%d-0", last)}, ids)

	(&follower{b}).note(false, manyChanges(new(int), 3)...) // an earlier one, which has not heard of its end
	anew, ids = read(slow)
	require.False(t, anew)
	require.Empty(t, ids)

	f.note(true)
	anew, _ = read(slow)
	require.True(t, anew, "some may be missing")
}

// TestNobodyListens: what was followed for nobody for a while is not known any more. Of the last
// entry of the log some changes may not have come, so it is read again.
func TestNobodyListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newRing()
		f.note(false, manyChanges(new(int), 3)...)
		ended := false
		go f.rest(func() { ended = true })
		time.Sleep(3 * linger)
		synctest.Wait()
		require.True(t, ended)
		require.Nil(t, b.follower)
		_, _, changes, _ := b.read(&cursor{after: "1-0"})
		require.Empty(t, changes, "others may have come since")
		require.Contains(t, string(b.sign()), "snapshot")

		b.follower = &follower{b}
		b.follower.note(false, tenure.Change{ID: "3-0", InstanceID: "a"}, tenure.Change{ID: "3-0", InstanceID: "b"})
		_, _, changes, _ = b.read(&cursor{after: "3-0"}) // who has heard of the first of them
		require.Len(t, changes, 1)
		require.Equal(t, "3-0+1", changes[0].id())
	})
}

// TestRingIsNotCopiedForEachChange: thousands of roles may change hands at one moment, and each of
// these changes drops the oldest one.
func TestRingIsNotCopiedForEachChange(t *testing.T) {
	b, f := newRing()
	last, copies := 0, 0
	for range 5 * maxLog {
		var newest *entry
		if n := len(b.ring); n > 0 {
			newest = &b.ring[n-1]
		}
		f.note(false, manyChanges(&last, 1)...)
		if n := len(b.ring); n > 1 && &b.ring[n-2] != newest {
			copies++
		}
	}
	require.Len(t, b.ring, maxLog)
	require.Equal(t, 4*maxLog, b.first)
	require.Equal(t, fmt.Sprintf("%d-0", last), b.ring[maxLog-1].id())
	require.Less(t, copies, 50)
	require.LessOrEqual(t, cap(b.ring), 2*maxLog)
}
