package tenure

import (
	"slices"
	"sync"
	"time"
)

// places are the records of those who lead, as they were last read. It is safe for concurrent use.
type places struct {
	mu   sync.Mutex
	byID map[string]place
}

type place struct {
	address string
	version string
	started time.Time
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
		p.byID[i.ID] = place{address: i.Address, version: i.Version, started: i.StartedAt, read: true}
	}
}

// of is what is known of an instance.
func (p *places) of(id string) place {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byID[id]
}
