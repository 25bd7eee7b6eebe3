package tenure

import (
	"slices"
	"sync"
)

// places are the addresses of those who lead, as they were last read. It is safe for concurrent
// use.
type places struct {
	mu   sync.Mutex
	byID map[string]place
}

type place struct {
	address string
	read    bool // the record was there
}

// follow keeps those of the given instances only, and returns the ones that were never read.
func (p *places) follow(ids []string) (unread []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := make(map[string]place, len(ids))
	for _, id := range ids {
		kept[id] = p.byID[id]
		if !kept[id].read && !slices.Contains(unread, id) {
			unread = append(unread, id)
		}
	}
	p.byID = kept
	return unread
}

// note takes the record of an instance that somebody has read.
func (p *places) note(i Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, followed := p.byID[i.ID]; followed {
		p.byID[i.ID] = place{address: i.Address, read: true}
	}
}
