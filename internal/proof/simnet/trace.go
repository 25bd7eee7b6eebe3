package simnet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Event is one thing that happened on the network or was noted by a test.
type Event struct {
	At     time.Duration // virtual time since the network was made
	Host   string        // client host, or the address of a server
	What   string        // command, "reply", "lost", "partition", …
	Detail string
	N      int64 // bytes of a reply, nanoseconds of a delay
}

func (e Event) String() string {
	return fmt.Sprintf("%14s  %-12s %-10s %s %d", e.At, e.Host, e.What, e.Detail, e.N)
}

// Trace keeps the last events, how many there were of each kind, and a digest of all of them. It is
// safe for concurrent use.
type Trace struct {
	mu     sync.Mutex
	ring   []Event
	count  int64
	kinds  map[string]int64
	digest uint64
}

func newTrace(size int) *Trace {
	if size <= 0 {
		size = 4096
	}
	return &Trace{ring: make([]Event, 0, size), kinds: map[string]int64{}}
}

// Add records an event.
func (t *Trace) Add(e Event) {
	h := hash(hash(hash(uint64(offset64), e.Host), e.What), e.Detail)
	h = mix(h ^ mix(uint64(e.At)) ^ mix(uint64(e.N)+1)<<1)

	t.mu.Lock()
	defer t.mu.Unlock()
	t.digest += h // a sum, so that the order within one instant does not matter
	if len(t.ring) < cap(t.ring) {
		t.ring = append(t.ring, e)
	} else {
		t.ring[t.count%int64(cap(t.ring))] = e
	}
	t.count++
	t.kinds[e.What]++
}

// Kinds is how many events there were so far, by what happened.
func (t *Trace) Kinds() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.kinds)
}

// Count is the number of events so far, including those no longer kept.
func (t *Trace) Count() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// Digest is a hash over all events so far. The same seed gives the same digest.
func (t *Trace) Digest() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.digest
}

// Events returns the events that are still kept, oldest first, those of one instant in a fixed
// order.
func (t *Trace) Events() []Event {
	t.mu.Lock()
	events := slices.Clone(t.ring)
	t.mu.Unlock()
	slices.SortFunc(events, func(a, b Event) int {
		if a.At != b.At {
			return int(a.At - b.At)
		}
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.What, b.What), strings.Compare(a.Detail, b.Detail), cmp.Compare(a.N, b.N))
	})
	return events
}

// Tail prints the last n kept events, one per line.
func (t *Trace) Tail(n int) string {
	events := t.Events()
	var b strings.Builder
	for _, e := range events[max(0, len(events)-n):] {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

const offset64, prime64 = 14695981039346656037, 1099511628211

// hash is FNV-1a over s and a separator.
func hash(h uint64, s string) uint64 {
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime64
	}
	return (h ^ 0xff) * prime64
}

// mix spreads the bits of x (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
