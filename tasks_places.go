package tenure

import "sync"

// taskPlaces are the runs that may be on at once in this process, over all roles. A run takes a
// place before it is claimed, and gives it back when its end is recorded.
type taskPlaces struct {
	most int // 0: any number

	mu      sync.Mutex
	running int
	groups  map[string]bool // with a run that is on
	waiting int             // tasks that wait for a place
	freed   func()          // has those look again
}

func newTaskPlaces(most int, freed func()) *taskPlaces {
	return &taskPlaces{most: most, groups: make(map[string]bool), freed: freed}
}

// bounds reports whether a run of a group needs a place at all.
func (p *taskPlaces) bounds(group string) bool { return p.most > 0 || group != "" }

// take takes a place for a run of a group, "" being none, if there is one.
func (p *taskPlaces) take(group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most > 0 && p.running >= p.most || p.groups[group] {
		return false
	}
	p.running++
	if group != "" {
		p.groups[group] = true
	}
	return true
}

// give gives it back.
func (p *taskPlaces) give(group string) {
	p.mu.Lock()
	p.running--
	delete(p.groups, group)
	waiting := p.waiting > 0
	p.mu.Unlock()
	if waiting {
		p.freed()
	}
}

// wait counts those that wait for a place.
func (p *taskPlaces) wait(more int) {
	p.mu.Lock()
	p.waiting += more
	p.mu.Unlock()
}
