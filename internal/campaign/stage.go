//go:build unix

package campaign

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/redistest"
)

// Stage is one kind of Redis and the faults that belong to it.
type Stage struct {
	Name    string
	Outside string // which condition of P1 it leaves, "" none: overlaps are then measured, not wrong
	lossy   bool   // Redis loses writes: a slot may run twice
	ttl     time.Duration
	renew   time.Duration
	margin  time.Duration
	open    func(w *world) // starts Redis and the fleet
	actions map[string]func(w *world)
}

// world is one stage while it runs.
type world struct {
	redistest.TB
	*fleet
	stage    *Stage
	rand     *rand.Rand
	server   *redistest.Server
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster
	clock    *redistest.Clock
	actions  []action
	failed   int // failovers that were brought about
}

// action is what the nemesis did.
type action struct {
	name string
	at   time.Duration
}

func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rand.Int64N(int64(high-low)+1))
}

// victim is a member by chance.
func (w *world) victim() *member { return w.members[w.rand.IntN(len(w.members))] }

// chief is the leader, or somebody where there is none at this moment.
func (w *world) chief() *member {
	if leader := w.leader(); leader != nil {
		return leader
	}
	return w.victim()
}

// Figures are what one stage has shown.
type Figures struct {
	Stage, Outside   string
	Seed             uint64
	TTL              time.Duration
	Lasted           time.Duration
	Faults           map[string]int
	Failovers        int
	Terms, Changes   int
	Gaps             map[string]Times // by the fault before: from the last sight of a leader to the first of the next
	Overlaps         Times
	Accepted, Fenced int
	Late             Times // of contexts that ended with an expired lease, after their deadline; negative: before
	Runs             int   // of the task
	Events           map[string]int
	Findings         []string
}

// Times are some durations.
type Times struct {
	N                  int
	Min, P50, P99, Max time.Duration
}

func timesOf(all []time.Duration) Times {
	if len(all) == 0 {
		return Times{}
	}
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[min(int(q*float64(len(all))), len(all)-1)] }
	return Times{N: len(all), Min: all[0], P50: at(0.5), P99: at(0.99), Max: all[len(all)-1]}
}

// settleBound is how long nobody may lead when nothing goes wrong any more: generous, the machine may be busy.
const settleBound = 90 * time.Second

// Run runs a stage for so long, with what a seed draws. Progress is told now and then.
func (s *Stage) Run(seed uint64, lasts time.Duration, progress func(string)) (f Figures, err error) {
	f = Figures{Stage: s.Name, Outside: s.Outside, Seed: seed, TTL: s.ttl, Faults: map[string]int{}, Gaps: map[string]Times{}, Events: map[string]int{}}
	began := monotonic()
	err = redistest.Do(func(t redistest.TB) {
		w := &world{TB: t, stage: s, rand: rand.New(rand.NewPCG(seed, uint64(len(s.Name))))}
		s.open(w)
		if !w.settled(settleBound) {
			f.Findings = append(f.Findings, "P7: nobody has led from the beginning")
			return
		}
		var names []string
		for name := range s.actions {
			names = append(names, name)
		}
		slices.Sort(names)
		for end := monotonic() + lasts; monotonic() < end; {
			name := names[w.rand.IntN(len(names))]
			w.actions = append(w.actions, action{name, monotonic()})
			s.actions[name](w)
			f.Faults[name]++
			if !w.settled(settleBound) {
				f.Findings = append(f.Findings, fmt.Sprintf("P7: nobody has led for %v after %q", settleBound, name))
				break
			}
			pause(w.between(0, s.ttl))
			if progress != nil {
				progress(fmt.Sprintf("%s: %d faults, %s left", s.Name, len(w.actions), (end - monotonic()).Round(time.Second)))
			}
		}
		w.end()
		w.judge(&f)
	})
	f.Lasted = monotonic() - began
	if err != nil {
		err = fmt.Errorf("stage %s, seed %d: %w", s.Name, seed, err)
	}
	if len(f.Findings) > 0 {
		err = errors.Join(err, fmt.Errorf("stage %s, seed %d: %d promises were broken, first: %s", s.Name, seed, len(f.Findings), f.Findings[0]))
	}
	return f, err
}

// judge holds the promises against what was seen, and counts.
func (w *world) judge(f *Figures) {
	h := w.history()
	found, both := h.overlaps()
	if w.stage.Outside != "" {
		found = nil
	}
	found = append(found, h.tokens()...)
	found = append(found, h.tasks(w.stage.lossy)...)
	found = append(found, w.wrong...)
	for _, finding := range found {
		f.Findings = append(f.Findings, fmt.Sprintf("%v (%v after the fault %q)", finding, finding.At-w.before(finding.At).at, w.before(finding.At).name))
	}
	f.Overlaps, f.Late = timesOf(both), timesOf(h.lateness())
	f.Terms, f.Changes, f.Failovers, f.Runs = len(h.beliefs), h.changes(), w.failed, len(h.runs)
	for _, write := range h.writes {
		if write.accepted {
			f.Accepted++
		} else {
			f.Fenced++
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for kind, n := range w.events {
		f.Events[kind] = n
	}
	gaps := map[string][]time.Duration{}
	for i := 1; i < len(h.beliefs); i++ {
		name := w.before(h.beliefs[i].first).name
		gaps[name] = append(gaps[name], h.beliefs[i].first-h.beliefs[i-1].last)
	}
	for name, all := range gaps {
		f.Gaps[name] = timesOf(all)
	}
}

// before is the last action that began before an instant.
func (w *world) before(at time.Duration) action {
	i, _ := slices.BinarySearchFunc(w.actions, at, func(a action, at time.Duration) int { return cmp.Compare(a.at, at) })
	if i == 0 {
		return action{"start", at}
	}
	return w.actions[i-1]
}
