//go:build unix

package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
)

// Report is what a run has shown. It is what -json writes.
type Report struct {
	figures.Origin
	Seed   uint64
	Hours  float64
	Redis  string // version of the server
	Wall   time.Duration
	Stages []StageReport
}

// StageReport is what one stage has shown.
type StageReport struct {
	Name, About string
	Outside     string `json:",omitempty"` // the condition of P1 that it leaves
	Clusters    int
	LeaseTTL    time.Duration
	Wall        time.Duration
	Rounds      int
	Faults      []FaultReport
	Terms       int
	Changes     int   // of the leader
	Failovers   int   `json:",omitempty"` // of Redis
	Gaps        Times // without a leader
	Crash       Times // of these after the kill of a leader, on a Redis that nothing has disturbed for two leases
	HandOver    Times // from the end of the work to the next leader, likewise after a stop or a resignation
	Overlaps    int   // two leaders at once; outside of P1's conditions, or else they are violations too
	OverlapMax  time.Duration
	OverlapBy   map[string]int `json:",omitempty"` // fault
	Accepted    int            // writes by the fenced resource
	Refused     int
	Cancels     Times // from the cancel point of an expired term to the end of its context
	Stalled     int   // terms that expired in a process that was not scheduled
	Guard       time.Duration
	Stops       Times // from SIGTERM to the return of Run
	DrainLate   int   // of which with ErrDrainTimeout
	Slots, Runs int   // of tasks
	Removed     int   // instances swept
	Calm        CalmReport
	Asked       *AskedReport  `json:",omitempty"`
	Deploys     *DeployReport `json:",omitempty"`
	Violations  []Violation
	Broken      []string `json:",omitempty"` // what went wrong with the run itself
}

// CalmReport is what happened after the last fault.
type CalmReport struct {
	Calms      int
	For        time.Duration // each lasted so long at least
	Leaderless Times         // the longest time without a leader in each
	Runless    Times         // the longest time without a run of some task in each
	Runs       int           // of tasks
	Members    int           // processes held to be listed as active and to hear
}

// FaultReport is what came of one kind of fault.
type FaultReport struct {
	Name    string
	Of      int `json:",omitempty"` // so many variants
	Rounds  int
	Changes int // of the leader
	Gaps    Times
}

// Failed reports whether a promise was broken, or the run itself was.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Stages, func(s StageReport) bool { return len(s.Violations)+len(s.Broken) > 0 })
}

// fill takes over what was measured.
func (r *StageReport) fill(m *tally) {
	for _, name := range slices.Sorted(maps.Keys(m.faults)) {
		f := m.faults[name]
		report := FaultReport{Name: name, Rounds: f.rounds, Changes: f.changes, Gaps: sum(f.gaps)}
		if len(f.variants) > 1 {
			report.Of = len(f.variants)
		}
		r.Faults = append(r.Faults, report)
		r.Rounds += f.rounds
	}
	slices.SortStableFunc(r.Faults, func(a, b FaultReport) int { return cmp.Compare(b.Rounds, a.Rounds) })
	r.Terms, r.Changes, r.Failovers = m.terms, m.changes, m.failovers
	r.Gaps, r.Crash, r.HandOver = sum(m.gaps), sum(m.crashes), sum(m.handOvers)
	for _, o := range m.overlaps {
		if r.OverlapBy == nil {
			r.OverlapBy = map[string]int{}
		}
		r.OverlapBy[o.Fault]++
		r.OverlapMax = max(r.OverlapMax, o.For)
	}
	r.Overlaps = len(m.overlaps)
	r.Accepted, r.Refused = m.accepted, m.refused
	r.Cancels, r.Stalled = sum(m.cancels), m.stalled
	r.Stops, r.DrainLate = sum(m.stops), m.drainLate
	r.Slots, r.Runs, r.Removed = m.slots, m.runs, m.removed
	var leaderless, runless []time.Duration
	for _, f := range m.calms {
		leaderless, runless = append(leaderless, f.leaderless), append(runless, f.runless)
		r.Calm.Runs += f.runs
		r.Calm.Members += f.members
	}
	r.Calm.Calms, r.Calm.Leaderless, r.Calm.Runless = len(m.calms), sum(leaderless), sum(runless)
	r.Violations = m.violations
	r.Asked, r.Deploys = m.asked.report(), m.deploys.report()
}
