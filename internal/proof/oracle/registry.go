package oracle

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// Registry is the registry of one namespace: the rules of the registry scripts for instances that
// tenure wrote.
type Registry struct {
	Instances map[string]Instance // the records
	Beats     map[string]int64    // last beat in ms
	Words     map[string]Word     // of those that do not call themselves active
	Keys      map[string]int64    // heartbeat keys: when they expire
	Removed   map[string]int64    // by sweeps: when
	Hold      *Hold               // nil: none
}

// Hold keeps the silent from being removed.
type Hold struct {
	Began, Ends int64
	May         int    // how many may still be removed while it runs
	Held        int    // how many it held when it began
	By          string // incarnation of the leader that began it
}

// Instance is what a record says.
type Instance struct {
	Incarnation string
	Status      string
	Started     int64 // Unix seconds
	Beat        int64 // Unix seconds
}

// Word is what an instance called itself at a heartbeat.
type Word struct {
	Status string
	At     int64 // ms
}

// NewRegistry is an empty one.
func NewRegistry() *Registry {
	return &Registry{Instances: map[string]Instance{}, Beats: map[string]int64{}, Words: map[string]Word{}, Keys: map[string]int64{}, Removed: map[string]int64{}}
}

// Clone is a snapshot.
func (r *Registry) Clone() *Registry {
	clone := &Registry{
		Instances: maps.Clone(r.Instances), Beats: maps.Clone(r.Beats), Words: maps.Clone(r.Words), Keys: maps.Clone(r.Keys), Removed: maps.Clone(r.Removed),
	}
	if r.Hold != nil {
		hold := *r.Hold
		clone.Hold = &hold
	}
	return clone
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
	if b.Status != "active" {
		r.Words[b.ID] = Word{b.Status, now}
	} else if i.Status != "active" { // rule word-over
		delete(r.Words, b.ID)
	}
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
	delete(r.Words, id)
	if !there {
		return "absent"
	}
	return "left"
}

// Look lists who has been silent for so many ms, longest first.
func (r *Registry) Look(now, silence int64) (ids []string) {
	for id, at := range r.Beats {
		if at > now+second { // Redis's clock was set back
			r.Beats[id] = now
		}
	}
	for id, at := range r.Beats {
		if at <= now-silence {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(r.Beats[a], r.Beats[b]), cmp.Compare(a, b)) })
	return ids
}

// Page is one page of Look: at most most of those who are silent, from a last heartbeat on, past so
// many with just that one. It returns where the next page begins; skip 0: there is none.
func (r *Registry) Page(now, silence, from, skip int64, most int) (ids []string, next, past int64) {
	all := r.Look(now, silence)
	if from == 0 {
		from = math.MinInt64
	}
	rest := slices.DeleteFunc(all, func(id string) bool { return r.Beats[id] < from })
	rest = rest[min(int(skip), len(rest)):]
	if len(rest) < most {
		return rest, 0, 0
	}
	ids = rest[:most]
	next = r.Beats[ids[most-1]]
	if next == from {
		past = skip
	}
	for _, id := range ids {
		if r.Beats[id] == next {
			past++
		}
	}
	return ids, next, past
}

// silent counts who has been silent for so many ms.
func (r *Registry) silent(now, silence int64) (count int) {
	for _, at := range r.Beats {
		if at <= now-silence {
			count++
		}
	}
	return count
}

// Sweep is one call of a sweep. Times are in ms.
type Sweep struct {
	Drifted, Down int64
	Window        int64 // over which removals are counted against the cap
	Mark, Remove  bool  // what may be done about the silent
	By            string
	IDs           []string
}

// Sweep marks, or removes, the silent ones among the given instances. It returns the begin and the
// size of the hold that runs, if this leader began it.
func (r *Registry) Sweep(now int64, s Sweep) (began int64, held int, verdicts []string) {
	scores := make([]int64, len(s.IDs))
	for i, id := range s.IDs {
		score, beaten := r.Beats[id]
		if _, there := r.Instances[id]; !there {
			delete(r.Beats, id)
			if beaten {
				delete(r.Words, id)
			}
		}
		if !beaten {
			score = -1
		}
		scores[i] = score
	}
	if r.Hold != nil && now >= r.Hold.Ends {
		r.Hold = nil
	}
	removable, hold := 0, (*Hold)(nil)
	if s.Remove {
		removable = r.removable(now, s)
		hold = r.Hold
	}
	for n, id := range s.IDs {
		verdict := "fresh"
		i, there := r.Instances[id]
		silence := now - scores[n]
		switch {
		case scores[n] < 0:
		case !there:
			verdict = "left"
		case silence >= s.Down && removable > 0:
			removable--
			if hold != nil {
				hold.May--
			}
			delete(r.Instances, id)
			delete(r.Beats, id)
			delete(r.Words, id)
			delete(r.Keys, id)
			r.Removed[id] = now
			verdict = "down"
		case silence < s.Drifted:
		case s.Mark && i.Status != "drifted":
			i.Status = "drifted"
			delete(r.Words, id) // rule word-marked
			r.Instances[id] = i
			verdict = "drifted"
		default:
			verdict = "silent"
		}
		verdicts = append(verdicts, verdict)
	}
	maps.DeleteFunc(r.Words, func(_ string, w Word) bool { return w.At <= now-s.Down })
	if hold != nil && hold.By == s.By {
		began, held = hold.Began, hold.Held
	}
	return began, held, verdicts
}

// Counts counts the instances by state, as a listing of the records does.
func (r *Registry) Counts(now, drifted, down int64) map[string]int {
	counts := map[string]int{}
	for id, i := range r.Instances {
		state := i.Status
		switch silence := now - r.Beats[id]; {
		case silence >= down:
			state = "down"
		case silence >= drifted:
			state = "drifted"
		case state == "drifted":
			state = "active"
		}
		counts[state]++
	}
	return counts
}

// removable says how many may be removed now. It begins a hold if there are more who cannot be
// heard.
func (r *Registry) removable(now int64, s Sweep) int {
	gone := 0
	for id, at := range r.Removed {
		if at > now+second { // Redis's clock was set back
			r.Removed[id] = now
		}
		if at > now-s.Window {
			gone++
		} else {
			delete(r.Removed, id)
		}
	}
	may := max(1, (len(r.Beats)+gone)/4) - gone // rule cap
	if r.Hold != nil {
		r.Hold.Ends = min(r.Hold.Ends, now+s.Down)
		return min(may, r.Hold.May)
	}
	if lost, silent := r.silent(now, s.Down), r.silent(now, s.Drifted); lost > 0 && silent > may {
		may = max(may, 0)
		r.Hold = &Hold{Began: now, Ends: now + s.Down, May: may, Held: silent - min(may, lost), By: s.By}
	}
	return may
}
