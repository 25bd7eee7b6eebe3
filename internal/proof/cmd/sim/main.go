// Command sim simulates clusters for years: see package sim. It prints one table, and if a
// promise was broken the seed, how to replay it and the shortest trace it could find.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/sim"
)

func main() {
	var c config
	flag.Float64Var(&c.Years, "years", 3, "simulated cluster-years of the steady profiles, in all; each profile is played once at least")
	flag.Uint64Var(&c.First, "first", 1, "first seed of each profile")
	flag.StringVar(&c.profile, "profile", "", "run this profile alone, or all whose names begin so: random")
	flag.Uint64Var(&c.seed, "seed", 0, "replay this seed, with a trace; needs -profile")
	flag.IntVar(&c.Workers, "workers", runtime.NumCPU(), "runs at a time")
	flag.StringVar(&c.json, "json", "", "write the figures to this file")
	flag.DurationVar(&c.shrink, "shrink", time.Minute, "how long to look for a shorter history of a failure")
	merge := flag.Bool("merge", false, "add up the files of several -json runs, given as arguments, in place of a run")
	markdown := flag.Bool("markdown", false, "print the tables of a -json file, given as argument, in markdown")
	list := flag.Bool("list", false, "list the profiles")
	flag.Parse()
	if *list {
		for _, p := range slices.Concat(sim.Profiles, sim.Outside) {
			fmt.Println(p.Name)
		}
		return
	}
	run := c.run
	if *merge {
		run = func() error { return c.merge(flag.Args()) }
	}
	if *markdown {
		run = func() error { return page(flag.Arg(0)) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

type config struct {
	Years   float64
	First   uint64
	Workers int
	profile string
	seed    uint64
	json    string
	shrink  time.Duration
}

// Report is what -json writes.
type Report struct {
	figures.Origin
	Years    float64
	Workers  int
	Profiles []Figures
	Wall     time.Duration
	CPU      time.Duration // of the process

	Simulated float64 // years
	Faults    int64   // of machines
	Messages  int64   // that went wrong
	Changes   int64   // of the leader
}

// Figures are those of one profile.
type Figures struct {
	sim.Tally
	Outside  bool
	Random   bool
	Seeds    []uint64 // first and last of each run
	FaultSum int64
	Kinds    map[string]int64
	Wall     time.Duration // of one core
	Failed   []uint64
}

func (c *config) run() error {
	if c.seed != 0 {
		return c.replay()
	}
	profiles := slices.Concat(sim.Profiles, sim.Outside)
	if c.profile != "" {
		profiles = slices.DeleteFunc(profiles, func(p sim.Profile) bool { return !strings.HasPrefix(p.Name, c.profile) })
		if p, known := sim.Named(c.profile); known {
			profiles = []sim.Profile{p}
		}
		if len(profiles) == 0 {
			return fmt.Errorf("no profile %q; -list lists them", c.profile)
		}
	}
	if c.Years <= 0 || c.Workers < 1 {
		return errors.New("-years and -workers must be positive")
	}
	report := Report{Origin: figures.Here(), Years: c.Years, Workers: c.Workers}
	began, burnt := time.Now(), figures.CPU()
	header()
	for _, p := range profiles {
		f := c.measure(p, runs(p, c.Years, profiles))
		show(&f, years(f.Simulated))
		report.Profiles = append(report.Profiles, f)
		for _, seed := range f.Failed[:min(1, len(f.Failed))] {
			c.explain(p, seed)
		}
	}
	report.Wall, report.CPU = time.Since(began), figures.CPU()-burnt
	return c.finish(&report)
}

// merge adds up what several runs have written.
func (c *config) merge(files []string) error {
	var all Report
	header()
	for i, file := range files {
		var r Report
		if err := figures.Read(file, &r); err != nil {
			return err
		}
		if i == 0 {
			all = r
			continue
		}
		if r.Commit != all.Commit {
			return fmt.Errorf("%s is of commit %s, %s of %s", file, r.Commit, files[0], all.Commit)
		}
		all.Years, all.Wall, all.CPU = all.Years+r.Years, all.Wall+r.Wall, all.CPU+r.CPU
		for k := range r.Profiles {
			g := &r.Profiles[k]
			at := slices.IndexFunc(all.Profiles, func(f Figures) bool { return f.Profile == g.Profile })
			if at < 0 {
				return fmt.Errorf("%s has the profile %q, which %s has not", file, g.Profile, files[0])
			}
			f := &all.Profiles[at]
			f.Tally.Add(&g.Tally)
			f.Seeds, f.Wall, f.Failed = append(f.Seeds, g.Seeds...), f.Wall+g.Wall, append(f.Failed, g.Failed...)
			f.FaultSum, f.Kinds = f.FaultsSum(), f.FaultsByName()
		}
	}
	for k := range all.Profiles {
		show(&all.Profiles[k], years(all.Profiles[k].Simulated))
	}
	return c.finish(&all)
}

// finish adds all profiles up, says so and writes it down.
func (c *config) finish(report *Report) error {
	var all Figures
	report.Simulated = 0
	for i := range report.Profiles {
		f := &report.Profiles[i]
		all.Tally.Add(&f.Tally)
		all.Wall += f.Wall
		all.Failed = append(all.Failed, f.Failed...)
		report.Simulated += years(f.Simulated) // a Duration ends after 292 of them
	}
	all.Profile = "all"
	show(&all, report.Simulated)
	report.Faults, report.Messages, report.Changes = all.FaultsSum(), all.Messages.Sum(), all.Changes
	fmt.Printf("%.1f simulated cluster-years, %d faults of machines, %d of messages, %d changes of the leader, %d slots, %d violations; %.1f years a minute of one core, %v in all\n",
		report.Simulated, report.Faults, report.Messages, all.Changes, all.Slots, all.Violations, report.Simulated/report.CPU.Minutes(), report.Wall.Round(time.Second))
	if c.json != "" {
		if err := figures.Write(c.json, report); err != nil {
			return err
		}
	}
	if len(all.Failed) > 0 {
		return fmt.Errorf("%d runs broke a promise", len(all.Failed))
	}
	return nil
}

// runs is how many seeds of a profile make its share of the years: the steady ones share them,
// those of elections alone with four parts each; the short ones, in which a fault follows the
// other, run fifty seeds for each year.
func runs(p sim.Profile, total float64, of []sim.Profile) uint64 {
	if p.Length < time.Hour {
		return uint64(max(50*total, 1))
	}
	share := func(p sim.Profile) float64 {
		switch {
		case p.Length < time.Hour:
			return 0
		case p.Alone:
			return 4
		}
		return 1
	}
	shares := 0.0
	for _, q := range of {
		shares += share(q)
	}
	return uint64(max(total*365*24*share(p)/shares/p.Length.Hours()+0.999, 1))
}

// measure runs the seeds of one profile.
func (c *config) measure(p sim.Profile, count uint64) Figures {
	f := Figures{Outside: p.Outside, Random: p.Random, Seeds: []uint64{c.First, c.First + count - 1}}
	seeds := make(chan uint64)
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range c.Workers {
		workers.Go(func() { // ends with the seeds
			for seed := range seeds {
				began := time.Now()
				cluster := sim.New(sim.Options{Seed: seed, Profile: p}).Run()
				mu.Lock()
				f.Tally.Add(&cluster.Tally)
				f.Wall += time.Since(began)
				if cluster.Wrong != "" {
					f.Failed = append(f.Failed, seed)
				}
				mu.Unlock()
			}
		})
	}
	for seed := f.Seeds[0]; seed <= f.Seeds[1]; seed++ {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
	slices.Sort(f.Failed)
	f.FaultSum, f.Kinds = f.FaultsSum(), f.FaultsByName()
	return f
}

// explain shrinks a failure and prints what is left.
func (c *config) explain(p sim.Profile, seed uint64) {
	s := sim.Shrink(sim.Options{Seed: seed, Profile: p}, c.shrink)
	fmt.Printf("\nprofile %q, seed %d: at %v: %s\n", p.Name, seed, s.At, s.Wrong)
	if p.Random {
		fmt.Printf("drawn: %v\n", p.Drawn(seed))
	}
	fmt.Printf("replay: make sim SEED=%d PROFILE='%s'\n", seed, p.Name)
	fmt.Printf("of %d faults until then it needs %d: %v (%d replays)\n", s.Drawn, len(s.Kept), s.Kept, s.Replays)
	fmt.Println(strings.Join(s.Trace[max(0, len(s.Trace)-120):], "\n") + "\n")
}

// replay runs one seed again and prints its end.
func (c *config) replay() error {
	p, known := sim.Named(c.profile)
	if !known {
		return fmt.Errorf("-seed needs the -profile that it belongs to; there is no %q, -list lists them", c.profile)
	}
	cluster := sim.New(sim.Options{Seed: c.seed, Profile: p, Trace: true}).Run()
	trace := cluster.Trace()
	fmt.Println(strings.Join(trace[max(0, len(trace)-40):], "\n"))
	fmt.Printf("profile %q, seed %d: %v simulated, %d faults, %d terms, %d changes of the leader\n", p.Name, c.seed, cluster.Tally.Simulated, cluster.Tally.FaultsSum(),
		cluster.Tally.Terms, cluster.Tally.Changes)
	if cluster.Wrong != "" {
		c.explain(p, c.seed)
		return errors.New(cluster.Wrong)
	}
	return nil
}

const row = "%-40s %11s %8s %9s %9s %9s %11s %9s %8s %8s %7s %6s %8s\n"

func header() {
	fmt.Printf(row, "profile", "seeds", "years", "faults", "messages", "terms", "changes", "slots", "reruns", "removed", "wrong", "core s", "years/min")
}

func show(f *Figures, simulated float64) {
	wrong := fmt.Sprint(f.Violations)
	if f.Outside {
		wrong = "outside"
	}
	seeds := ""
	if len(f.Seeds) > 0 {
		seeds = fmt.Sprintf("%d–%d", f.Seeds[0], f.Seeds[1])
	}
	fmt.Printf(row, f.Profile, seeds, fmt.Sprintf("%.3f", simulated), fmt.Sprint(f.FaultsSum()), fmt.Sprint(f.Messages.Sum()), fmt.Sprint(f.Terms),
		fmt.Sprint(f.Changes), fmt.Sprint(f.Slots), fmt.Sprint(f.Reruns), fmt.Sprint(f.Removed), wrong, fmt.Sprintf("%.1f", f.Wall.Seconds()),
		fmt.Sprintf("%.1f", simulated/f.Wall.Minutes()))
	if f.Crash.Count > 0 {
		fmt.Printf("    P7: from a crash to the next leader p50 %v p99 %v max %v (%d); from a release p50 %v p99 %v max %v (%d)\n", f.Crash.Quantile(0.5), f.Crash.Quantile(0.99),
			f.Crash.Max, f.Crash.Count, f.Handover.Quantile(0.5), f.Handover.Quantile(0.99), f.Handover.Max, f.Handover.Count)
	}
	if f.Outside {
		fmt.Printf("    two leaders %d times in %d changes: p50 %v p99 %v max %v\n", f.Overlaps.Count, f.Changes, f.Overlaps.Quantile(0.5), f.Overlaps.Quantile(0.99), f.Overlaps.Max)
	}
	if f.LongestLost > 0 {
		fmt.Printf("    %d terms beside another, since Redis had lost the longest TTL that was named: outside of P1\n", f.LongestLost)
	}
	if f.Random {
		fmt.Printf("    %d looks at a calm cluster; %d times the older token began last, or was granted again and nobody had named it; outside of P1 two leaders %d times\n", f.Looks, f.TokensBack, f.Overlaps.Count)
	}
}

func years(d time.Duration) float64 { return d.Hours() / 24 / 365 }
