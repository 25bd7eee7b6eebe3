package lease

import "time"

// Rank is what the candidates of a role are compared by: the highest is preferred. One that says
// nothing has the rank 0. It is one number, so that Redis compares it, and exact in Lua.
type Rank int64

// Preference is what a rank is made of, the most important first.
type Preference struct {
	Priority int           // as the option: between -1000 and 1000
	Others   int           // how many other roles its process leads, if they are to be spread: fewer are preferred
	Newer    time.Duration // by how much later it started than the leader, if it is of another version; else 0
	Order    int           // between 1 and MaxOrder, the highest is preferred; 0: it has none
}

// MaxOrder is the highest Order.
const MaxOrder = 999

// The parts of a rank: decimal digits, so that it can be read.
const (
	othersSpan = 500
	newerSpan  = 10_000_000 // seconds, 115 days
	levelSpan  = newerSpan * (MaxOrder + 1)
)

// Rank is the preference as one number.
func (p Preference) Rank() Rank {
	level := Rank(p.Priority)*othersSpan - Rank(min(max(p.Others, 0), othersSpan-1))
	newer := Rank(min(max(p.Newer/time.Second, 0), newerSpan-1))
	return (level*newerSpan+newer)*(MaxOrder+1) + Rank(min(max(p.Order, 0), MaxOrder))
}

// Above reports whether a rank is higher by more than what only decides between equals: a leader
// gives way to no other.
func (r Rank) Above(other Rank) bool { return r.level() > other.level() }

func (r Rank) level() Rank {
	if r < 0 {
		return (r+1)/levelSpan - 1
	}
	return r / levelSpan
}
