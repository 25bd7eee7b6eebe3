package memstore

import (
	"sync"

	"github.com/tenure-go/tenure/internal/lease"
)

// Memory is what several coordinators without Redis share: the records of tasks, and the last
// fencing token of each role. The registry and the commands are each one's own. It is safe for
// concurrent use.
type Memory struct {
	Tasks  *Tasks
	tokens *tokens
}

// NewMemory returns an empty memory that lives by the given clocks.
func NewMemory(clock func() lease.Reading) *Memory {
	return &Memory{Tasks: NewTasks(clock), tokens: &tokens{last: make(map[string]int64)}}
}

// tokens are the last fencing tokens, by role.
type tokens struct {
	mu   sync.Mutex
	last map[string]int64
}

// next is a token above the last one of the role, and at least the given one.
func (t *tokens) next(role string, least int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last[role] = max(t.last[role]+1, least)
	return t.last[role]
}
