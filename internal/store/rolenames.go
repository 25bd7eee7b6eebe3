package store

import "slices"

// RolesAtOnce is how many roles are asked for at once: one after the other, thousands of them over
// a slow network would take a minute.
const RolesAtOnce = 16

// RoleNames collects the names of the roles that are heard of, by who does not know them. Its zero
// value has none.
type RoleNames struct {
	names []string
	more  bool // an instance may lead others than it names
}

// Note takes a name, if a role can have it.
func (r *RoleNames) Note(name string) {
	if name == "" || IsRole(name) {
		r.names = append(r.names, name)
	}
}

// Leading takes those that the record of an instance says it leads.
func (r *RoleNames) Leading(names []string) {
	size := 0
	for _, name := range names {
		r.Note(name)
		size += len(name)
	}
	if len(names) >= MaxNames || size > MaxNameBytes-longestRole {
		r.more = true
	}
}

// Cut notes that there are instances of which nothing is known.
func (r *RoleNames) Cut() { r.more = true }

// Log is how many entries of the log are to be looked at for others: all of them, if an instance
// may lead a role that nothing else names.
func (r *RoleNames) Log() int {
	if r.more {
		return MaxLog
	}
	return shortLog
}

// Sorted returns the names, each once.
func (r *RoleNames) Sorted() []string {
	slices.Sort(r.names)
	r.names = slices.Compact(r.names)
	return r.names
}

const (
	shortLog    = 200
	longestRole = 128 // see RolePattern
)
