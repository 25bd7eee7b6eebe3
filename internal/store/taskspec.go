package store

import (
	"fmt"
	"strconv"
	"strings"
)

// The field spec of a record is the hash of the schedule. Behind it stands, once the schedule has
// changed, when that was and which slot of the old one was dropped for it, both in ms of Redis's
// clock: "<hash> <changed> <dropped>". Two versions of a program that lead by turns would else put
// a task off for ever.

// Follows reports whether a record is that of a schedule.
func (r TaskRecord) Follows(spec string) bool {
	hash, _, _ := strings.Cut(r.Spec, " ")
	return hash == spec
}

// Under is the field spec as it stands, if the record is that of the schedule.
func (r TaskRecord) Under(spec string) string {
	if r.Follows(spec) {
		return r.Spec
	}
	return spec
}

// PutOff reports whether a slot was dropped by a change of the schedule, has passed since, and
// nothing has run since the change.
func (r TaskRecord) PutOff(now int64) bool {
	changed, dropped := r.change()
	return dropped != 0 && dropped <= now && r.Started < changed
}

func (r TaskRecord) change() (changed, dropped int64) {
	if parts := strings.Fields(r.Spec); len(parts) == 3 {
		changed, _ = strconv.ParseInt(parts[1], 10, 64)
		dropped, _ = strconv.ParseInt(parts[2], 10, 64)
	}
	return changed, dropped
}

// ChangedTo is the field spec of a record that goes on at next, by another schedule or by its own.
func (r TaskRecord) ChangedTo(spec string, next, now int64) string {
	if r.Due == "" || r.Follows(spec) {
		return r.Under(spec)
	}
	changed, dropped := r.change()
	switch {
	case dropped != 0 && r.Started < changed && r.Next != 0: // it is still the first one, and nobody has switched the task off since
	case r.Next > now && (next == 0 || next > r.Next):
		changed, dropped = now, r.Next
	default:
		return spec
	}
	return fmt.Sprint(spec, " ", changed, " ", dropped)
}
