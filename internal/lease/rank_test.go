package lease

import (
	"slices"
	"testing"
	"time"
)

// TestRank: a later part of a preference decides only if all before it are equal, and only the
// first makes a leader give way. Nothing is said by the rank 0, and Lua holds each exactly.
func TestRank(t *testing.T) {
	if (Preference{}).Rank() != 0 {
		t.Error("one that prefers nothing has a rank")
	}
	year := 365 * 24 * time.Hour
	sorted := []Preference{
		{Priority: -1000},
		{Priority: -1000, Order: 1},
		{Priority: -1, Newer: year, Order: MaxOrder},
		{Others: othersSpan - 1},
		{Others: othersSpan - 2},
		{Others: 2, Newer: year, Order: 3},
		{Others: 1},
		{},
		{Order: 1},
		{Order: MaxOrder},
		{Newer: time.Second},
		{Newer: 2 * time.Second, Order: 3},
		{Newer: 90 * 24 * time.Hour},
		{Newer: (newerSpan - 2) * time.Second},
		{Newer: year}, // as much as a rank can hold
		{Priority: 1},
		{Priority: 1000, Newer: year, Order: MaxOrder},
	}
	var ranks []Rank
	for i, p := range sorted {
		rank := p.Rank()
		if rank > Rank(MaxToken) || rank < -Rank(MaxToken) {
			t.Errorf("%+v: rank %d", p, rank)
		}
		for j, q := range sorted[:i] {
			if above := p.Priority > q.Priority || p.Priority == q.Priority && p.Others < q.Others; rank.Above(ranks[j]) != above || ranks[j].Above(rank) {
				t.Errorf("%+v above %+v: %v, want %v", p, q, !above, above)
			}
		}
		ranks = append(ranks, rank)
	}
	if !slices.IsSorted(ranks) || len(slices.Compact(slices.Clone(ranks))) != len(ranks) {
		t.Errorf("ranks %d are not in order", ranks)
	}
	if (Preference{Others: -1, Newer: -year, Order: -1}).Rank() != 0 || (Preference{Others: 1000}).Rank() != (Preference{Others: othersSpan - 1}).Rank() || (Preference{Order: 5000}).Rank() != MaxOrder {
		t.Error("a part reaches into another")
	}
}
