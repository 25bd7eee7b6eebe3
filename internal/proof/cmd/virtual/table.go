package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/virtual"
)

// Row is the sum of the runs of one profile, or of one class.
type Row struct {
	Profile string
	Class   string
	Runs    int
	CPU     time.Duration
	Failed  []uint64 // seeds
	virtual.Figures
	failed []virtual.Result
}

func (r *Row) add(result *virtual.Result) {
	r.Runs++
	r.CPU += result.CPU
	r.Figures.Add(&result.Figures)
	if len(result.Wrong) > 0 {
		r.Failed = append(r.Failed, result.Seed)
		r.failed = append(r.failed, *result)
	}
}

// job is one run of a profile.
type job struct {
	row     *Row
	request virtual.Request
}

// plan gives every steady profile its share of the days, and every hot one a run for each ten of
// them. The runs take turns, so that a bound of the time cuts all profiles alike.
func (c *config) plan(profiles []virtual.Profile) (rows []*Row, jobs []job) {
	steady := 0
	for _, p := range profiles {
		if p.Class == virtual.Steady {
			steady++
		}
	}
	left := make([]int, len(profiles))
	for i, p := range profiles {
		rows = append(rows, &Row{Profile: p.Name, Class: p.Class})
		if left[i] = max(int(c.Days/10+0.5), 1); p.Class == virtual.Steady {
			left[i] = max(int(c.Days*24/float64(steady)/p.Length.Hours()+0.999), 1)
		}
	}
	for round, more := uint64(0), true; more; round++ {
		more = false
		for i, p := range profiles {
			if left[i]--; left[i] >= 0 {
				more = true
				jobs = append(jobs, job{row: rows[i], request: virtual.Request{Profile: p.Name, Seed: c.First + round}})
			}
		}
	}
	return rows, jobs
}

// measure makes the runs, so many at a time.
func (c *config) measure(bench *bench, profiles []virtual.Profile) *Report {
	began := time.Now()
	rows, jobs := c.plan(profiles)
	queue := make(chan job)
	var mu sync.Mutex // guards the rows
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() { // ends with the jobs
			for j := range queue {
				result, err := bench.make(j.request)
				if err != nil {
					result.Request, result.Wrong = j.request, []string{"the run left no result: " + err.Error()}
				}
				mu.Lock()
				j.row.add(&result)
				mu.Unlock()
			}
		})
	}
	for _, j := range jobs {
		if c.Wall > 0 && time.Since(began) > c.Wall {
			break
		}
		queue <- j
	}
	close(queue)
	workers.Wait()
	report := &Report{Origin: figures.Here(), config: *c, Profiles: rows, Took: time.Since(began)}
	report.sum()
	return report
}

// sum makes the rows of the classes.
func (r *Report) sum() {
	for _, row := range r.Profiles {
		var class *Row
		for _, known := range r.Classes {
			if known.Class == row.Class {
				class = known
			}
		}
		if class == nil {
			class = &Row{Profile: "all " + row.Class, Class: row.Class}
			r.Classes = append(r.Classes, class)
		}
		class.Runs += row.Runs
		class.CPU += row.CPU
		class.Failed = append(class.Failed, row.Failed...)
		class.Figures.Add(&row.Figures)
	}
}

func (r *Report) print() {
	fmt.Printf("%-26s %5s %8s %7s %7s %7s %9s %7s %7s %7s %6s %5s %8s %6s\n", "profile", "runs", "sim h", "terms", "changes", "faults",
		"messages", "slots", "attempts", "reruns", "swept", "wrong", "CPU s", "s/h")
	for _, row := range append(slices.Clip(r.Profiles), r.Classes...) {
		hours := row.Simulated.Hours()
		fmt.Printf("%-26s %5d %8.1f %7d %7d %7d %9d %7d %7d %7d %6d %5d %8.1f %6.2f\n", row.Profile, row.Runs, hours, row.Terms, row.Changes,
			virtual.Sum(row.Faults), virtual.Sum(row.Network), row.Claims, row.Attempts, row.Reruns, row.Swept, row.Violations,
			row.CPU.Seconds(), row.CPU.Seconds()/max(hours, 1e-9))
	}
	for _, row := range r.Classes {
		fmt.Printf("%s: %s\n  of the network: %s\n", row.Profile, counts(row.Faults), counts(row.Network))
		fmt.Printf("  terms: %d expired, %d lost, %d resigned, %d stopped; fenced resource: %d writes accepted, %d refused; calm: longest failover after a crash %v, hand-over %v\n",
			row.Expired, row.Lost, row.Resigned, row.Stopped, row.Accepted, row.Refused, row.Crash.Round(time.Millisecond), row.Handover.Round(time.Millisecond))
	}
	if r.Took > 0 {
		fmt.Printf("%v in all\n", r.Took.Round(time.Second))
	}
}

// counts prints counts by kind.
func counts(of map[string]int64) string {
	var parts []string
	for _, kind := range virtual.Kinds(of) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, of[kind]))
	}
	return strings.Join(parts, ", ")
}
