package memstore

import (
	"sync"

	"github.com/tenure-go/tenure/internal/lease"
)

// Memory is what several coordinators without Redis share: the records of tasks, and the last term
// of each lease. The registry and the commands are each one's own. It is safe for concurrent use.
type Memory struct {
	Tasks *Tasks
	terms *terms
}

// NewMemory returns an empty memory for one coordinator, which lives by the given clocks.
func NewMemory(clock func() lease.Reading) *Memory {
	return &Memory{Tasks: NewTasks(clock), terms: &terms{last: make(map[string]term)}}
}

// NewSharedMemory is NewMemory for several coordinators: a task that one of them does not know may
// be another one's.
func NewSharedMemory(clock func() lease.Reading) *Memory {
	m := NewMemory(clock)
	m.Tasks.terms = m.terms
	return m
}

// term is what the memory knows of the last term of a lease.
type term struct {
	token  int64
	holder string // "": the term has ended
	since  int64  // Unix seconds
}

// terms are the last ones, by the keys of their leases. Its mutex is the last one taken.
type terms struct {
	mu     sync.Mutex
	last   map[string]term
	shared []*Leases // of all coordinators
}

// share adds the leases of a coordinator: they hear of the terms of all others.
func (t *terms) share(c *Leases) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shared = append(t.shared, c)
}

// of is the last term of a lease.
func (t *terms) of(key string) term {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[key]
}

// begin notes a new term of a coordinator. Its token is above the last one, and at least the given
// one.
func (t *terms) begin(of *Leases, key, holder string, least, since int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := max(t.last[key].token+1, least)
	t.last[key] = term{token: token, holder: holder, since: since}
	t.tell(of)
	return token
}

// end notes that a term has ended, if no other has begun since.
func (t *terms) end(of *Leases, key string, token int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[key].token == token {
		t.last[key] = term{token: token}
		t.tell(of)
	}
}

// tell has the other coordinators ask who leads. The mutex is held.
func (t *terms) tell(but *Leases) {
	for _, c := range t.shared {
		if c != but {
			c.Changed()
		}
	}
}

// hasNews has every coordinator look at the records of its tasks, if there are several: one that is
// alone hears by itself what it has asked for.
func (t *terms) hasNews() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.shared) > 1 {
		for _, c := range t.shared {
			c.news.Store(true)
			c.Changed()
		}
	}
}
