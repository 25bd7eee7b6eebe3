//go:build unix

// Command campaign plagues real processes on a real Redis: see package campaign.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/campaign"
	"github.com/tenure-go/tenure/internal/figures"
	"github.com/tenure-go/tenure/internal/redistest"
)

func main() {
	campaign.Register()
	if redistest.RunChild() {
		return
	}
	redis.SetLogger(silent{}) // its pools complain of each server that is down
	hours := flag.Float64("hours", 0.05, "how long, all stages together; each gets an equal part")
	seed := flag.Uint64("seed", 0, "seed; 0: one of the clock")
	only := flag.String("stages", "", "comma-separated; empty: all")
	parallel := flag.Int("parallel", 2, "stages at a time")
	out := flag.String("json", "", "write the figures to this file")
	flag.Parse()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	if err := run(*hours, *seed, *only, *parallel, *out); err != nil {
		fmt.Fprintln(os.Stderr, "campaign:", err)
		os.Exit(1)
	}
}

// silent says nothing.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Report is what -json writes.
type Report struct {
	figures.Origin
	Redis  string
	Hours  float64
	Seed   uint64
	Stages []campaign.Figures
}

func run(hours float64, seed uint64, only string, parallel int, out string) error {
	var chosen []campaign.Stage
	for _, s := range campaign.Stages() {
		if only != "" && !slices.Contains(strings.Split(only, ","), s.Name) {
			continue
		}
		if missing := s.Missing(); missing != "" {
			fmt.Printf("stage %s is left out: %s\n", s.Name, missing)
			continue
		}
		chosen = append(chosen, s)
	}
	if len(chosen) == 0 || hours <= 0 || parallel < 1 {
		return fmt.Errorf("nothing to do: stages %q, %v hours, %d at a time", only, hours, parallel)
	}
	lasts := time.Duration(hours * float64(time.Hour) * float64(min(parallel, len(chosen))) / float64(len(chosen)))
	fmt.Printf("seed %d, %d stages of %v, %d at a time\n", seed, len(chosen), lasts.Round(time.Second), parallel)
	report := Report{Origin: figures.Here(), Redis: redistest.Version(), Hours: hours, Seed: seed, Stages: make([]campaign.Figures, len(chosen))}
	var (
		mu     sync.Mutex
		errs   []error
		told   time.Time
		next   = make(chan int)
		runner sync.WaitGroup
	)
	progress := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Println("   ", text)
		}
	}
	for range parallel {
		runner.Go(func() { // ends with next
			for i := range next {
				f, err := chosen[i].Run(seed, lasts, progress)
				mu.Lock()
				report.Stages[i] = f
				errs = append(errs, err)
				show(&f)
				mu.Unlock()
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	runner.Wait()
	faults, changes := 0, 0
	for _, f := range report.Stages {
		changes += f.Changes
		for _, n := range f.Faults {
			faults += n
		}
	}
	fmt.Printf("%d faults, %d changes of the leader; replay with SEED=%d\n", faults, changes, seed)
	if out != "" {
		errs = append(errs, figures.Write(out, report))
	}
	return errors.Join(errs...)
}

func show(f *campaign.Figures) {
	faults := 0
	for _, n := range f.Faults {
		faults += n
	}
	fmt.Printf("%s: %v, %d faults, %d failovers, %d terms, %d changes of the leader, %d writes accepted and %d fenced off, %d runs of the task, %d findings\n",
		f.Stage, f.Lasted.Round(time.Second), faults, f.Failovers, f.Terms, f.Changes, f.Accepted, f.Fenced, f.Runs, len(f.Findings))
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
	if f.Overlaps.N > 0 {
		fmt.Printf("    two leaders %d times (outside: %s): p50 %s, max %s\n", f.Overlaps.N, f.Outside, ms(f.Overlaps.P50), ms(f.Overlaps.Max))
	}
	if f.Late.N > 0 {
		fmt.Printf("    context done after the deadline by p50 %s, p99 %s, max %s (%d expired terms)\n", ms(f.Late.P50), ms(f.Late.P99), ms(f.Late.Max), f.Late.N)
	}
	var names []string
	for name := range f.Faults {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		line := fmt.Sprintf("    %4d %s", f.Faults[name], name)
		if g := f.Gaps[name]; g.N > 0 {
			line += fmt.Sprintf(": %d new terms, without a leader for p50 %s, p99 %s, max %s", g.N, ms(g.P50), ms(g.P99), ms(g.Max))
		}
		fmt.Println(line)
	}
	for _, finding := range f.Findings {
		fmt.Println("    FOUND", finding)
	}
}
