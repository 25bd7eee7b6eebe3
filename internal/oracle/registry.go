package oracle

import (
	"cmp"
	"maps"
	"slices"
)

// Registry is the registry of one namespace: the rules of the registry scripts for instances that tenure wrote.
type Registry struct {
	Instances map[string]Instance // the records
	Beats     map[string]int64    // last beat in ms
	Keys      map[string]int64    // heartbeat keys: when they expire
	Hold      int64               // score up to which nobody is removed; 0: none
	HoldEnds  int64
}

// Instance is what a record says.
type Instance struct {
	Incarnation string
	Status      string
	Started     int64 // Unix seconds
	Beat        int64 // Unix seconds
}

// NewRegistry is an empty one.
func NewRegistry() *Registry {
	return &Registry{Instances: map[string]Instance{}, Beats: map[string]int64{}, Keys: map[string]int64{}}
}

// Clone is a snapshot.
func (r *Registry) Clone() *Registry {
	return &Registry{
		Instances: maps.Clone(r.Instances), Beats: maps.Clone(r.Beats), Keys: maps.Clone(r.Keys), Hold: r.Hold, HoldEnds: r.HoldEnds,
	}
}

// Beat is one beat.
type Beat struct {
	ID, Incarnation string
	First           bool
	NotAfter        int64
	TTL, TakeOver   int64 // ms
	Status          string
	Started         int64 // Unix seconds; 0: now
}

// Beat registers an instance, or keeps it registered.
func (r *Registry) Beat(now int64, b Beat) (verdict string, started int64, other string) {
	if b.NotAfter > 0 && now > b.NotAfter {
		return "stale", 0, ""
	}
	i, there := r.Instances[b.ID]
	verdict = "kept"
	switch {
	case !there:
		verdict = "joined"
	case i.Incarnation != b.Incarnation:
		if !b.First && now-r.Beats[b.ID] < b.TakeOver {
			return "duplicate", 0, i.Incarnation
		}
		verdict = "joined"
	case i.Status == "drifted":
		verdict = "recovered"
	}
	if started = b.Started; started == 0 {
		started = now / second
	}
	r.Keys[b.ID] = now + b.TTL
	r.Instances[b.ID] = Instance{Incarnation: b.Incarnation, Status: b.Status, Started: started, Beat: now / second}
	r.Beats[b.ID] = now
	return verdict, started, i.Incarnation
}

// Deregister removes the record of this very incarnation.
func (r *Registry) Deregister(id, incarnation string) string {
	i, there := r.Instances[id]
	if there && i.Incarnation != incarnation {
		return "other"
	}
	delete(r.Instances, id)
	delete(r.Keys, id)
	delete(r.Beats, id)
	if !there {
		return "absent"
	}
	return "left"
}

// Look lists who has been silent for so many ms, longest first, and how many above the hold are down.
func (r *Registry) Look(now, silence, down int64) (ids []string, dead int, held int64) {
	for id, at := range r.Beats {
		if at > now+second { // Redis's clock was set back
			r.Beats[id] = now
		}
	}
	if r.HoldEnds <= now {
		r.Hold = 0
	}
	if r.Hold != 0 && r.HoldEnds-now > down {
		r.HoldEnds = now + down
	}
	for id, at := range r.Beats {
		if at <= now-silence {
			ids = append(ids, id)
		}
		if at <= now-down && (r.Hold == 0 || at > r.Hold) {
			dead++
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(r.Beats[a], r.Beats[b]), cmp.Compare(a, b)) })
	return ids, dead, r.Hold
}

// HoldUpTo keeps everybody with a score up to the given one for so many ms.
func (r *Registry) HoldUpTo(now, score, d int64) { r.Hold, r.HoldEnds = score, now+d }

// Sweep marks, or removes, the silent ones among the given instances.
func (r *Registry) Sweep(now, drifted, down int64, removable int, held int64, ids []string) (verdicts []string) {
	scores := make([]int64, len(ids))
	for i, id := range ids {
		score, beaten := r.Beats[id]
		if !beaten {
			score = -1
		}
		scores[i] = score
	}
	for n, id := range ids {
		verdict := "fresh"
		i, there := r.Instances[id]
		silence := now - scores[n]
		switch {
		case scores[n] < 0:
		case !there:
			delete(r.Beats, id)
			verdict = "left"
		case silence >= down && removable > 0 && (held == 0 || scores[n] > held):
			removable--
			delete(r.Instances, id)
			delete(r.Beats, id)
			delete(r.Keys, id)
			verdict = "down"
		case silence < drifted:
		case i.Status != "drifted":
			i.Status = "drifted"
			r.Instances[id] = i
			verdict = "drifted"
		default:
			verdict = "silent"
		}
		verdicts = append(verdicts, verdict)
	}
	return verdicts
}
