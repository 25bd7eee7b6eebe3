//go:build unix

package fleet

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Render writes the tables of some reports in markdown, and before them what they add up to.
func Render(out io.Writer, reports ...*Report) {
	changes, violations, failovers, accepted, refused := 0, 0, map[string]int{}, 0, 0
	for _, r := range reports {
		for _, s := range r.Stages {
			changes, violations, accepted, refused = changes+s.Changes, violations+len(s.Violations), accepted+s.Accepted, refused+s.Refused
			failovers[strings.TrimSuffix(s.Name, "-bare")] += s.Failovers
		}
	}
	fmt.Fprintf(out, "**%d changes of the leader, %d failovers of Sentinel, %d of Cluster, %d fenced writes accepted, %d refused, %d violations.**\n",
		changes, failovers["sentinel"], failovers["cluster"], accepted, refused, violations)
	for _, r := range reports {
		fmt.Fprintln(out)
		r.render(out)
	}
}

// render writes the tables of one report.
func (r *Report) render(out io.Writer) {
	rounds, changes, failovers, violations := 0, 0, 0, 0
	for _, s := range r.Stages {
		rounds, changes, failovers, violations = rounds+s.Rounds, changes+s.Changes, failovers+s.Failovers, violations+len(s.Violations)
	}
	fmt.Fprintf(out, "### Seed %d\n\n%v on %d processors, commit %s, %s, %s, %s: **%d faults, %d changes of the leader, %d failovers of Redis, %d violations.**\n\n",
		r.Seed, r.Wall.Round(time.Second), r.CPUs, r.Commit, r.Date, r.Go, r.Redis, rounds, changes, failovers, violations)
	fmt.Fprintln(out, "| Stage | Lease | Fleets | Faults | Changes | Failovers | Crash: no leader for p50 · p99 · max | Hand-over p50 · p99 · max | Overlaps | Writes accepted · refused | Slots | Violations |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, s := range r.Stages {
		fmt.Fprintf(out, "| %s | %v | %d | %d | %d | %d | %s | %s | %s | %d · %d | %d | %d |\n", s.Name, s.LeaseTTL, s.Clusters, s.Rounds, s.Changes, s.Failovers,
			s.Crash.cell(), s.HandOver.cell(), s.overlapCell(), s.Accepted, s.Refused, s.Slots, len(s.Violations))
	}
	for i := range r.Stages {
		r.Stages[i].render(out)
	}
}

// render writes the table of one stage.
func (r *StageReport) render(out io.Writer) {
	fmt.Fprintf(out, "\n#### %s\n\n%s.", r.Name, sentence(r.About))
	if r.Outside != "" {
		fmt.Fprintf(out, " Outside of the conditions of P1: %s.", r.Outside)
	}
	fmt.Fprintf(out, "\n\n| Fault | Rounds | Changes of the leader | No leader for p50 · p99 · max |\n|---|---|---|---|\n")
	for _, f := range r.Faults {
		fmt.Fprintf(out, "| %s | %d | %d | %s |\n", f.title(), f.Rounds, f.Changes, f.Gaps.cell())
	}
	fmt.Fprintf(out, "\nContexts of terms that expired ended this long after the cancel point, %v before the deadline: %s; %d more in processes that were not "+
		"scheduled. Run returned after SIGTERM within %s, %d times with ErrDrainTimeout. %d runs of tasks, %d instances swept.\n",
		r.Guard, r.Cancels.cell(), r.Stalled, r.Stops.cell(), r.DrainLate, r.Runs, r.Removed)
	if r.Calm.Calms > 0 {
		fmt.Fprintf(out, "After the last fault nothing was disturbed for %v, %d times: the longest time without a leader was %s, without a run of a task %s; "+
			"%d processes were listed as active and heard hints.\n", r.Calm.For, r.Calm.Calms, ms(r.Calm.Leaderless.Max), ms(r.Calm.Runless.Max), r.Calm.Members)
	}
	if r.Asked != nil {
		fmt.Fprintf(out, "The operator: %s.\n", r.Asked)
	}
	if r.Deploys != nil {
		fmt.Fprintf(out, "The deploys: %s.\n", r.Deploys)
	}
	for _, text := range r.overlapsBy() {
		fmt.Fprintf(out, "Two leaders at once after %s.\n", text)
	}
}

// overlapCell is how often two led, and for how long at most.
func (r *StageReport) overlapCell() string {
	if r.Overlaps == 0 {
		return "0"
	}
	return fmt.Sprintf("%d, max %s", r.Overlaps, ms(r.OverlapMax))
}

// cell is p50, p99 and maximum.
func (t Times) cell() string {
	if t.Count == 0 {
		return "–"
	}
	return fmt.Sprintf("%s · %s · %s (%d)", ms(t.P50), ms(t.P99), ms(t.Max), t.Count)
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }
