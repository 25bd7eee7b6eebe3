//go:build unix

package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// monotonic reads the clock that all processes of the host have in common.
func monotonic() time.Duration { return hostclock.Now() }

// belief is one term as it was seen from outside: believed in at least from first to last, since a
// term that ended never comes back. Times are of the host's monotonic clock.
type belief struct {
	who   string
	token int64 // 0: of a client that has none
	first time.Duration
	last  time.Duration
}

func (b belief) String() string { return fmt.Sprintf("%s under token %d", b.who, b.token) }

// chronicle gathers who believed in what. It is safe for concurrent use.
type chronicle struct {
	mu      sync.Mutex
	beliefs []belief // in the order in which they were first seen
	beyond  string   // why P1 is not promised here; "": it is
}

// newChronicle returns a chronicle that is held against P1 and P2 at the end of the test.
func newChronicle(t redistest.TB) *chronicle {
	c := new(chronicle)
	t.Cleanup(func() {
		t.Helper()
		for _, problem := range contradictions(c.all()) {
			if why := c.unpromised(); why != "" && strings.HasPrefix(problem, "P1: ") {
				t.Logf("%s (%s)", problem, why)
				continue
			}
			t.Errorf("%s", problem)
		}
	})
	return c
}

// mayOverlap says that P1 is not promised from here on, and why: what breaks it is logged, and no
// failure.
func (c *chronicle) mayOverlap(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.beyond = why
}

func (c *chronicle) unpromised() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beyond
}

// overlap is for how long at least two terms were believed in at once; negative: so long after the
// end of one the other began.
func (c *chronicle) overlap(one, other int64) time.Duration {
	if one == other {
		return 0
	}
	a, b := c.term(one), c.term(other)
	return min(a.last, b.last) - max(a.first, b.first)
}

// saw takes note that somebody was asked between two readings of the clock and believed to lead.
// Whenever in between that was, it is not before the first reading and not after the second: a
// belief is never taken for longer than it was.
func (c *chronicle) saw(who string, token int64, before, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range slices.Backward(c.beliefs) {
		if b := &c.beliefs[i]; b.who == who && b.token == token {
			b.last = max(b.last, before)
			return
		}
	}
	c.beliefs = append(c.beliefs, belief{who: who, token: token, first: after, last: before})
}

func (c *chronicle) all() []belief {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.beliefs)
}

// term returns what was seen of the term of a token so far; the zero belief if nothing was.
func (c *chronicle) term(token int64) belief {
	for _, b := range c.all() {
		if b.token == token {
			return b
		}
	}
	return belief{}
}

// contradictions says where beliefs break P1 (no two at an instant) or P2 (tokens increase).
func contradictions(beliefs []belief) []string {
	slices.SortFunc(beliefs, func(a, b belief) int { return cmp.Compare(a.first, b.first) })
	var found []string
	for i, later := range beliefs {
		for _, earlier := range beliefs[:i] {
			if overlap := min(earlier.last, later.last) - later.first; overlap >= 0 {
				found = append(found, fmt.Sprintf("P1: %v and %v both led, for %v at least", earlier, later, overlap))
			}
			if later.token != 0 && later.token <= earlier.token {
				found = append(found, fmt.Sprintf("P2: %v came after %v", later, earlier))
			}
		}
	}
	return found
}
