package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/sim"
)

// page prints what a run has written as the tables of a page.
func page(file string) error {
	var r Report
	if err := figures.Read(file, &r); err != nil {
		return err
	}
	fmt.Printf("**%.1f simulated cluster-years, %s faults of machines, %s of messages, %s changes of the leader, %d violations**, %.1f years a minute of one core; "+
		"commit %s, %s, %s, %d processors.\n\n", r.Simulated, grouped(r.Faults), grouped(r.Messages), grouped(r.Changes), violations(&r), r.Simulated/r.CPU.Minutes(), r.Commit,
		r.Date, r.Go, r.CPUs)
	fmt.Print("| Profile | Seeds | Years | Faults | of messages | Terms | Changes | Slots | Runs again | Removed | Violations |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range r.Profiles {
		if f.Outside {
			continue
		}
		fmt.Printf("| %s | %s | %.3f | %s | %s | %s | %s | %s | %s | %s | %d |\n", f.Profile, seeds(f.Seeds), years(f.Simulated), grouped(f.FaultSum), grouped(f.Messages.Sum()),
			grouped(f.Terms), grouped(f.Changes), grouped(f.Slots), grouped(f.Reruns), grouped(f.Removed), f.Violations)
	}
	total := map[string]int64{}
	for _, f := range r.Profiles {
		for kind, n := range f.Kinds {
			total[kind] += n
		}
	}
	kinds := slices.SortedFunc(maps.Keys(total), func(a, b string) int { return int(total[b] - total[a]) })
	var counts []string
	for _, kind := range kinds {
		counts = append(counts, fmt.Sprintf("%s %s", grouped(total[kind]), kind))
	}
	fmt.Printf("\nFaults of machines: %s.\n", strings.Join(counts, ", "))
	var looks, deafened, overlaps, back, lost int64
	for _, f := range r.Profiles {
		looks, deafened, lost = looks+f.Looks, deafened+f.Deafened, lost+f.LongestLost
		if f.Random {
			overlaps, back = overlaps+f.Overlaps.Count, back+f.TokensBack
		}
	}
	fmt.Printf("\nLiveness: %s looks at a cluster in which nothing had gone wrong for longer than its bound. %s subscriptions died without a sign.\n",
		grouped(looks), grouped(deafened))
	fmt.Printf("\nOf the drawn profiles those that broke a condition of P1 saw two leaders %s times; %s times the older token began last, or "+
		"was granted again after Redis had lost it and its clock was set back, when nobody had named it since (the exception of P2).\n", grouped(overlaps), grouped(back))
	if lost > 0 {
		fmt.Printf("\nWhile TTLs differed, %s terms began beside another since Redis had lost the longest TTL that was named (outside of P1).\n", grouped(lost))
	}
	for _, f := range r.Profiles {
		if f.Crash.Count > 0 {
			fmt.Printf("\nWithout a leader in the profile %q, by virtual time: after a crash %s, of a lease of 30 s; after a release %s.\n", f.Profile, spread(&f.Crash), spread(&f.Handover))
		}
	}
	fmt.Print("\n| Outside of one condition of P1 | Changes | Two leaders in | for p50 | p99 | max | The older began last |\n|---|---|---|---|---|---|---|\n")
	for _, f := range r.Profiles {
		if f.Outside {
			fmt.Printf("| %s | %s | %s (%.2f %%) | %s | %s | %s | %d |\n", f.Profile, grouped(f.Changes), grouped(f.Overlaps.Count), 100*float64(f.Overlaps.Count)/float64(max(f.Changes, 1)),
				rounded(f.Overlaps.Quantile(0.5)), rounded(f.Overlaps.Quantile(0.99)), rounded(f.Overlaps.Max), f.TokensBack)
		}
	}
	return nil
}

func violations(r *Report) (n int64) {
	for _, f := range r.Profiles {
		n += f.Violations
	}
	return n
}

func spread(t *sim.Times) string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s (%s)", rounded(t.Quantile(0.5)), rounded(t.Quantile(0.99)), rounded(t.Max), grouped(t.Count))
}

func rounded(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

// seeds writes ranges: 1–2, 14 each from 100001, 200001.
func seeds(all []uint64) string {
	var ranges []string
	for i, last := 0, uint64(0); i+1 < len(all); i += 2 {
		switch first, count := all[i], all[i+1]-all[i]+1; {
		case i == 0:
			ranges = append(ranges, fmt.Sprintf("%d–%d", first, all[i+1]))
		case count == last:
			ranges = append(ranges, fmt.Sprint(first))
		default:
			last = count
			ranges = append(ranges, fmt.Sprintf("%d each from %d", count, first))
		}
	}
	return strings.Join(ranges, ", ")
}

// grouped writes a number with commas.
func grouped(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
