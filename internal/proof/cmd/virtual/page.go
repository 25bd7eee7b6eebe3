package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/virtual"
)

// page prints what a run has written as the tables of a page.
func page(file string) error {
	var r Report
	if err := figures.Read(file, &r); err != nil {
		return err
	}
	days, faults, messages, changes, wrong := 0.0, int64(0), int64(0), 0, 0
	for _, row := range r.Classes {
		days += row.Simulated.Hours() / 24
		faults, messages = faults+virtual.Sum(row.Faults), messages+virtual.Sum(row.Network)
		changes, wrong = changes+row.Changes, wrong+row.Violations
	}
	fmt.Printf("**%.1f simulated days, %d faults of machines, %d of messages, %d changes of the leader, %d violations**, in %v of %d processors; "+
		"commit %s, %s, %s.\n\n", days, faults, messages, changes, wrong, r.Took.Round(time.Second), r.CPUs, r.Commit, r.Date, r.Go)
	fmt.Println("| Profile | Runs | Hours | Faults | of messages | Terms | Changes | Slots | Runs again | Removed | Violations | CPU s an hour |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, row := range append(slices.Clip(r.Profiles), r.Classes...) {
		hours := row.Simulated.Hours()
		fmt.Printf("| %s | %d | %.1f | %d | %d | %d | %d | %d | %d | %d | %d | %.2f |\n", row.Profile, row.Runs, hours, virtual.Sum(row.Faults),
			virtual.Sum(row.Network), row.Terms, row.Changes, row.Claims, row.Reruns, row.Swept, row.Violations, row.CPU.Seconds()/max(hours, 1e-9))
	}
	for _, row := range r.Classes {
		fmt.Printf("\nFaults of *%s*: %s; of messages: %s. Terms: %d expired, %d lost, %d resigned, %d stopped; %d fenced writes accepted, %d refused. "+
			"Calm: the longest crash failover took %v, the longest hand-over %v.\n", row.Profile, counts(row.Faults), counts(row.Network), row.Expired, row.Lost,
			row.Resigned, row.Stopped, row.Accepted, row.Refused, row.Crash.Round(time.Millisecond), row.Handover.Round(time.Millisecond))
		if len(row.Answers) > 0 {
			fmt.Printf("\nWhat an operator of *%s* asked for, and the answers: %s; %d triggers ran.\n", row.Profile, counts(row.Answers), row.Triggered)
		}
	}
	return nil
}
