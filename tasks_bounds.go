package tenure

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/internal/agenda"
)

// This file bounds what the tasks of all roles of a process do together: whether runs may start,
// how many are on, and how many calls wait for an answer.

// taskGate keeps runs from starting while too few instances are active.
type taskGate struct {
	least int
	wake  wakeup // a term has begun, or instances have changed
	held  atomic.Bool
}

// newTaskGate is nil if no number of instances is asked for.
func newTaskGate(least int) *taskGate {
	if least <= 1 {
		return nil
	}
	g := &taskGate{least: least, wake: newWakeup()}
	g.held.Store(true)
	return g
}

func (g *taskGate) holds() bool { return g != nil && g.held.Load() }

// begin has the instances counted for a term that has begun.
func (g *taskGate) begin() {
	if g != nil {
		g.wake.nudge()
	}
}

// taskPlaces are the runs that may be on at once in this process, over all roles. A run takes a
// place before it is claimed, and gives it back when its end is recorded. A place goes to the task
// that has waited for longest, of those whose group has no run that is on; nobody else is woken.
// There may be thousands of roles, and of tasks that wait.
type taskPlaces struct {
	most int // 0: any number

	mu      sync.Mutex
	running int
	waiting int                        // tasks that wait for a place
	waited  int64                      // of all those, also earlier ones, the number of the last one
	groups  map[string]*placeGroup     // those of which a run is on, or a task waits, and ""
	open    agenda.Agenda[*placeGroup] // those without a run that is on, by the task that has waited for longest
}

// placeGroup are the tasks of a group; "" are those without one.
type placeGroup struct {
	name  string
	busy  bool                      // a run of the group is on; never of ""
	queue agenda.Agenda[*placeWait] // its tasks that wait, the longest first
	entry agenda.Entry[*placeGroup]
}

// placeWait is a task that waits for a place.
type placeWait struct {
	task  string // its name
	group string
	line  *placeLine

	// Guarded by the lock of the places.
	entry   agenda.Entry[*placeWait]
	granted bool // it has a place by now, of which its loop does not know
}

// placeLine is where the loop of a role hears of places.
type placeLine struct {
	wake    wakeup
	granted []*placeWait // guarded by the lock of the places
}

func newTaskPlaces(most int) *taskPlaces {
	return &taskPlaces{most: most, groups: make(map[string]*placeGroup)}
}

// bounds reports whether a run of a group needs a place at all.
func (p *taskPlaces) bounds(group string) bool { return p.most > 0 || group != "" }

// take takes a place for a run of a group, "" being none, if there is one.
func (p *taskPlaces) take(group string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.groups[group]; p.full() || g != nil && g.busy {
		return false
	}
	p.occupy(p.group(group))
	return true
}

// full reports whether there is no place for any group. The lock is held.
func (p *taskPlaces) full() bool { return p.most > 0 && p.running >= p.most }

// group returns a group. The lock is held; arrange follows.
func (p *taskPlaces) group(name string) *placeGroup {
	g := p.groups[name]
	if g == nil {
		g = &placeGroup{name: name}
		g.entry.Owner = g
		p.groups[name] = g
	}
	return g
}

// arrange notes whether a task of a group may be given a place. The lock is held.
func (p *taskPlaces) arrange(g *placeGroup) {
	_, since, waits := g.queue.First()
	if waits && !g.busy {
		p.open.Set(&g.entry, since)
		return
	}
	p.open.Remove(&g.entry)
	if !waits && !g.busy && g.name != "" {
		delete(p.groups, g.name)
	}
}

// occupy gives a place to a run of a group. The lock is held.
func (p *taskPlaces) occupy(g *placeGroup) {
	p.running++
	g.busy = g.name != ""
	p.arrange(g)
}

// give gives it back.
func (p *taskPlaces) give(group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free(group)
}

// free is give for whoever holds the lock.
func (p *taskPlaces) free(group string) {
	p.running--
	g := p.group(group)
	g.busy = false
	p.arrange(g)
	p.grant()
}

// grant gives the places that there are to tasks that wait. The lock is held.
func (p *taskPlaces) grant() {
	for !p.full() {
		g, _, waits := p.open.First()
		if !waits {
			return
		}
		w, _, _ := g.queue.First()
		g.queue.Remove(&w.entry)
		p.waiting--
		p.occupy(g)
		w.granted = true
		w.line.granted = append(w.line.granted, w)
		w.line.wake.nudge()
	}
}

// wanted reports whether somebody waits for a place.
func (p *taskPlaces) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting > 0
}

// wait has a task wait for a place. It may be granted one at once, that was given back meanwhile.
func (p *taskPlaces) wait(w *placeWait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	p.waited++
	g := p.group(w.group)
	g.queue.Set(&w.entry, p.waited)
	p.arrange(g)
	p.grant()
}

// waitNoMore ends that. A place that was granted is given back.
func (p *taskPlaces) waitNoMore(w *placeWait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.granted {
		w.granted = false
		p.free(w.group)
		return
	}
	p.waiting--
	g := p.group(w.group)
	g.queue.Remove(&w.entry)
	p.arrange(g)
}

// granted returns the tasks of a loop that have a place by now.
func (p *taskPlaces) granted(line *placeLine) []*placeWait {
	p.mu.Lock()
	defer p.mu.Unlock()
	granted := slices.DeleteFunc(line.granted, func(w *placeWait) bool { return !w.granted })
	line.granted = nil
	for _, w := range granted {
		w.granted = false
	}
	return granted
}

// maxFlight is how many calls travel in one flight. If it hangs each of them has lost a try.
const maxFlight = 50

// maxAwaited is how many calls of the tasks of all roles of this process have no answer yet: as
// many as one role can send. Otherwise many roles whose tasks are due at once keep Redis so busy
// that nothing else has its answer in time.
const maxAwaited = maxCalls * maxFlight

// taskPermits are maxAwaited permits, one for each call of a task that waits for an answer. Roles
// whose calls wait for them stand in a line, and are given as many as one flight takes in turn.
type taskPermits struct {
	mu   sync.Mutex
	free int
	line []*permitLine // the longest first
}

// permitLine is the place of a role in the line.
type permitLine struct {
	wake wakeup // the role was given permits

	// Guarded by the lock of the permits.
	waits bool
	given int // that the role has not taken yet
}

// take returns how many the role has now: those that it was given, or one if nobody waits. If it is
// none the role waits in the line.
func (p *taskPermits) take(r *permitLine) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case r.given > 0:
		n, r.given = r.given, 0
	case !r.waits && len(p.line) == 0 && p.free > 0:
		n, p.free = 1, p.free-1
	case !r.waits:
		r.waits = true
		p.line = append(p.line, r)
	}
	return n
}

// leave has a role wait no more, and returns how many it was given meanwhile.
func (p *taskPermits) leave(r *permitLine) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.waits {
		r.waits = false
		p.line = slices.DeleteFunc(p.line, func(other *permitLine) bool { return other == r })
	}
	n, r.given = r.given, 0
	return n
}

// give gives n of them back.
func (p *taskPermits) give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.grant()
}

// grant gives those that are free to the roles that wait, a whole flight at a time: calls that
// travel alone cost Redis more. The lock is held.
func (p *taskPermits) grant() {
	for p.free >= maxFlight && len(p.line) > 0 {
		r := p.line[0]
		p.line = p.line[1:]
		p.free -= maxFlight
		r.waits, r.given = false, maxFlight
		r.wake.nudge()
	}
}
