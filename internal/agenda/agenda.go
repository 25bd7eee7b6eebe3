// Package agenda holds what waits for a time each: tasks for their slots, elections for their next
// turn.
package agenda

// Agenda holds what waits for a time each, the earliest first. Setting, moving and removing costs
// the logarithm of how many wait, looking at the first nothing. The zero value is empty. It is not
// safe for concurrent use.
type Agenda[T any] struct {
	heap []*Entry[T]
}

// Entry is the place of one owner in one Agenda.
type Entry[T any] struct {
	Owner T

	at    int64
	place int // in the heap, counted from 1; 0: it waits for nothing
}

// Set has an entry wait for a time, whatever it waited for before.
func (a *Agenda[T]) Set(e *Entry[T], at int64) {
	switch {
	case e.place == 0:
		a.heap = append(a.heap, e)
		e.place = len(a.heap)
	case e.at == at:
		return
	}
	e.at = at
	a.settle(e)
}

// Remove has an entry wait for nothing.
func (a *Agenda[T]) Remove(e *Entry[T]) {
	if e.place == 0 {
		return
	}
	last := a.heap[len(a.heap)-1]
	a.heap[len(a.heap)-1] = nil
	a.heap = a.heap[:len(a.heap)-1]
	if last != e {
		last.place = e.place
		a.heap[last.place-1] = last
		a.settle(last)
	}
	e.place = 0
}

// Waits reports whether an entry waits for a time.
func (e *Entry[T]) Waits() bool { return e.place != 0 }

// First is the owner that waits for the earliest time. ok is false if nobody waits.
func (a *Agenda[T]) First() (owner T, at int64, ok bool) {
	if len(a.heap) == 0 {
		return owner, 0, false
	}
	return a.heap[0].Owner, a.heap[0].at, true
}

// settle moves an entry to where it belongs.
func (a *Agenda[T]) settle(e *Entry[T]) {
	for e.place > 1 && a.heap[e.place/2-1].at > e.at {
		a.swap(e, a.heap[e.place/2-1])
	}
	for 2*e.place <= len(a.heap) {
		child := a.heap[2*e.place-1]
		if 2*e.place < len(a.heap) && a.heap[2*e.place].at < child.at {
			child = a.heap[2*e.place]
		}
		if child.at >= e.at {
			return
		}
		a.swap(e, child)
	}
}

func (a *Agenda[T]) swap(e, f *Entry[T]) {
	e.place, f.place = f.place, e.place
	a.heap[e.place-1], a.heap[f.place-1] = e, f
}
