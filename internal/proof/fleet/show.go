//go:build unix

package fleet

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Show writes the figures of a stage for people.
func (r *StageReport) Show(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s; %d clusters, lease of %v, %v\n", r.Name, r.About, r.Clusters, r.LeaseTTL, r.Wall.Round(time.Second))
	fmt.Fprintf(out, "  %-52s %6s %7s %9s %9s %9s\n", "fault", "rounds", "changes", "gap p50", "p99", "max")
	for _, f := range r.Faults {
		fmt.Fprintf(out, "  %-52s %6d %7d %9s %9s %9s\n", f.title(), f.Rounds, f.Changes, ms(f.Gaps.P50), ms(f.Gaps.P99), ms(f.Gaps.Max))
	}
	fmt.Fprintf(out, "  %-52s %6d %7d %9s %9s %9s\n", "all", r.Rounds, r.Changes, ms(r.Gaps.P50), ms(r.Gaps.P99), ms(r.Gaps.Max))
	fmt.Fprintf(out, "  P7: after a kill %s; after a stop or resignation %s\n", r.Crash, r.HandOver)
	fmt.Fprintf(out, "  overlaps %d, longest %s %v; writes %d accepted, %d refused\n", r.Overlaps, ms(r.OverlapMax), r.overlapsBy(), r.Accepted, r.Refused)
	fmt.Fprintf(out, "  P4: contexts ended after the cancel point (guard %v): %s; %d more in stalled processes\n", r.Guard, r.Cancels, r.Stalled)
	fmt.Fprintf(out, "  P11: Run returned after SIGTERM: %s, %d with ErrDrainTimeout; %d slots, %d runs, %d instances swept; %d failovers\n", r.Stops, r.DrainLate,
		r.Slots, r.Runs, r.Removed, r.Failovers)
	fmt.Fprintf(out, "  after the last fault: %d calms of %v; longest without a leader %s, without a run of a task %s; %d runs; %d processes held to hear and be listed\n",
		r.Calm.Calms, r.Calm.For, r.Calm.Leaderless, r.Calm.Runless, r.Calm.Runs, r.Calm.Members)
	if r.Asked != nil {
		fmt.Fprintf(out, "  operator: %s\n", r.Asked)
	}
	if r.Deploys != nil {
		fmt.Fprintf(out, "  deploys: %s\n", r.Deploys)
	}
	fmt.Fprintf(out, "  violations: %d\n", len(r.Violations))
	for _, text := range r.Broken {
		fmt.Fprintf(out, "  BROKEN: %s\n", text)
	}
	shown := map[string]bool{}
	for _, v := range r.Violations {
		fmt.Fprintf(out, "  %s: %s\n", v.Promise, v.Text)
		if !shown[v.Promise] {
			shown[v.Promise] = true
			for _, line := range v.Excerpt {
				fmt.Fprintf(out, "    %s\n", line)
			}
		}
	}
}

func (t Times) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s (%d)", ms(t.P50), ms(t.P99), ms(t.Max), t.Count)
}

// ms is a duration in milliseconds.
func ms(d time.Duration) string {
	v := float64(d) / float64(time.Millisecond)
	switch {
	case d == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f ms", v)
	default:
		return fmt.Sprintf("%.0f ms", v)
	}
}

// overlapsBy names the faults around overlaps, in order.
func (r *StageReport) overlapsBy() (text []string) {
	for _, name := range slices.Sorted(maps.Keys(r.OverlapBy)) {
		text = append(text, fmt.Sprintf("%s: %d", name, r.OverlapBy[name]))
	}
	return text
}

// title is the name of a fault, and how many variants of it there were.
func (f *FaultReport) title() string {
	if f.Of > 0 {
		return fmt.Sprintf("%s (%d of them)", f.Name, f.Of)
	}
	return f.Name
}
