package tenure

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestTermRecords: entries of the history become terms. What is missing is not made up.
func TestTermRecords(t *testing.T) {
	at := store.Time
	began := func(token int64, holder string, ms int64) store.TermEntry {
		return store.TermEntry{Event: store.TermBegan, Token: token, Holder: holder, At: ms}
	}
	ended := func(token int64, holder, why string, ms, since int64) store.TermEntry {
		return store.TermEntry{Event: store.TermEnded, Token: token, Holder: holder, Reason: why, At: ms, Since: since}
	}
	for name, c := range map[string]struct {
		newest []store.TermEntry
		limit  int
		want   []TermRecord
	}{
		"none": {limit: 5},
		"one that goes on, after one that was given back": {
			newest: []store.TermEntry{began(2, "b", 7000), ended(1, "a", "resigned", 6500, 5), began(1, "a", 5001)},
			limit:  5,
			want: []TermRecord{
				{Role: "r", Token: 2, InstanceID: "b", Began: at(7000), Gap: 500 * time.Millisecond},
				{Role: "r", Token: 1, InstanceID: "a", Began: at(5001), Ended: at(6500), Reason: "resigned"},
			},
		},
		"the limit counts terms": {
			newest: []store.TermEntry{ended(2, "b", "lost", 9000, 7), began(2, "b", 7000), ended(1, "a", "resigned", 6500, 5), began(1, "a", 5001)},
			limit:  1,
			want:   []TermRecord{{Role: "r", Token: 2, InstanceID: "b", Began: at(7000), Ended: at(9000), Reason: "lost", Gap: 500 * time.Millisecond}},
		},
		"the beginning is cut off": {
			newest: []store.TermEntry{ended(1, "a", "stopped", 6500, 5)}, limit: 5,
			want: []TermRecord{{Role: "r", Token: 1, InstanceID: "a", Began: at(5000), Ended: at(6500), Reason: "stopped"}},
		},
		"an end that nobody knows": {
			newest: []store.TermEntry{began(3, "a", 9000), ended(2, "", "forgotten", 0, 0), began(1, "a", 5000)}, limit: 5,
			want: []TermRecord{
				{Role: "r", Token: 3, InstanceID: "a", Began: at(9000)},
				{Role: "r", Token: 2, Reason: "forgotten"},
				{Role: "r", Token: 1, InstanceID: "a", Began: at(5000), Reason: "forgotten"},
			},
		},
		"a clock that was set back": {
			newest: []store.TermEntry{began(2, "b", 6000), ended(1, "a", "lapsed", 9000, 0), began(1, "a", 5000)}, limit: 5,
			want: []TermRecord{
				{Role: "r", Token: 2, InstanceID: "b", Began: at(6000)},
				{Role: "r", Token: 1, InstanceID: "a", Began: at(5000), Ended: at(9000), Reason: "lapsed"},
			},
		},
		"what tenure did not write": {newest: []store.TermEntry{{}, {Event: "noise", Token: 3}}, limit: 5},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, termRecords("r", c.newest, c.limit)) })
	}
}

// TestTerms: the history of a role says who led, from when to when, why not any more, and how long
// nobody led; and an event names the former leader.
func TestTerms(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.pair()
		require.NoError(c, a.Elector().Transfer(background, "b"))
		c.until(time.Second, b.IsLeader)
		b.crash()
		c.until(time.Minute, a.IsLeader)
		synctest.Wait()

		records, err := c.control("ops").Terms(background, "", 10)
		require.NoError(c, err)
		var lines []string
		for _, r := range records {
			lines = append(lines, fmt.Sprintf("%s %s gap %v", r.InstanceID, r.Reason, r.Gap > 0))
		}
		require.Equal(c, []string{"a  gap true", "b lapsed gap true", "a transferred gap false"}, lines)
		term, _ := a.Elector().Term()
		require.Equal(c, term.Token, records[0].Token)
		require.True(c, records[0].Ended.IsZero())
		require.InDelta(c, 0, records[1].Gap.Seconds(), 0.1)
		require.Equal(c, records[0].Began.Sub(records[1].Ended), records[0].Gap)
		own, err := a.Elector().Terms(background, 2)
		require.NoError(c, err)
		require.Equal(c, records[:2], own)

		changes := a.witness.told(EventLeaderChanged)
		last := changes[len(changes)-1]
		require.Equal(c, []string{"a", "b", "lapsed"}, []string{last.Subject, last.Former, last.Reason})
		require.Equal(c, []string{"b", "a", ""}, []string{changes[len(changes)-2].Subject, changes[len(changes)-2].Former, changes[len(changes)-2].Reason})

		none, err := a.Elector().Terms(background, 0)
		require.NoError(c, err)
		require.Empty(c, none)
		_, err = c.control("ops").Terms(background, "no role", 1)
		require.ErrorIs(c, err, ErrMisconfigured)
		c.redis.Do(func(m *miniredis.Miniredis) { m.Del("tenure:leader:terms"); _, _ = m.Push("tenure:leader:terms", "x") })
		_, err = a.Elector().Terms(background, 1)
		require.ErrorIs(c, err, ErrMisconfigured)
	})
}
