// Command virtual simulates clusters of the full stack in virtual time: real go-redis, real Lua on
// miniredis, a network and a Redis that fail. It builds the virtual tests of package tenure, which
// need its insides, and makes each run in a process of its own, on one processor, so that its seed
// replays it. It prints one table, and if a promise was broken the smallest run it could find,
// with its trace and how to replay it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/virtual"
)

func main() {
	var c config
	flag.Float64Var(&c.Days, "days", 30, "simulated days of the steady profiles, in all")
	flag.DurationVar(&c.Wall, "wall", 0, "begin no more runs after this time; 0: no such bound")
	flag.Uint64Var(&c.First, "first", 1, "first seed of each profile")
	flag.StringVar(&c.profile, "profile", "", "run this profile alone")
	flag.StringVar(&c.seed, "seed", "", "replay this seed, with a trace; needs -profile. TENURE_LENGTH, TENURE_UNTIL, TENURE_WITHOUT and TENURE_QUIET make it smaller")
	flag.IntVar(&c.Workers, "workers", runtime.NumCPU(), "runs at a time")
	flag.StringVar(&c.json, "json", "", "write the figures to this file")
	flag.DurationVar(&c.shrink, "shrink", 2*time.Minute, "how long to look for a smaller run that fails")
	markdown := flag.Bool("markdown", false, "print the tables of a -json file, given as argument, in markdown")
	list := flag.Bool("list", false, "list the profiles")
	flag.Parse()
	run := func() error { return c.run(*list) }
	if *markdown {
		run = func() error { return page(flag.Arg(0)) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "virtual:", err)
		os.Exit(1)
	}
}

type config struct {
	Days    float64
	Wall    time.Duration
	First   uint64
	Workers int
	profile string
	seed    string
	json    string
	shrink  time.Duration
}

// Report is what -json writes.
type Report struct {
	figures.Origin
	config
	Profiles []*Row
	Classes  []*Row // sums
	Took     time.Duration
}

func (c *config) run(list bool) (err error) {
	if c.Days <= 0 || c.Workers < 1 {
		return errors.New("-days and -workers must be positive")
	}
	bench, err := newBench()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.close()) }()
	if list {
		for _, p := range bench.catalog.Profiles {
			fmt.Printf("%-28s %-8s %v\n", p.Name, p.Class, p.Length)
		}
		return nil
	}
	if c.seed != "" {
		return c.replay(bench)
	}
	profiles := bench.catalog.Profiles
	if c.profile != "" {
		p, known := bench.catalog.Named(c.profile)
		if !known {
			return fmt.Errorf("no profile %q; -list lists them", c.profile)
		}
		profiles = []virtual.Profile{p}
	}
	report := c.measure(bench, profiles)
	report.print()
	if c.json != "" {
		if err := figures.Write(c.json, report); err != nil {
			return err
		}
	}
	failed := 0
	for _, row := range report.Profiles {
		for i, result := range row.failed {
			if failed++; i == 0 { // one of each profile is enough to begin with
				c.explain(bench, result)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d runs broke a promise", failed)
	}
	return nil
}

// replay makes one run and prints its trace.
func (c *config) replay(bench *bench) error {
	request, asked, err := virtual.FromEnviron(func(name string) string {
		switch name {
		case "TENURE_PROFILE":
			return c.profile
		case "TENURE_SEED":
			return c.seed
		}
		return os.Getenv(name)
	})
	if err != nil {
		return err
	}
	if _, known := bench.catalog.Named(request.Profile); !asked || !known {
		return errors.New("-seed needs -profile; -list lists them")
	}
	result, err := bench.make(request)
	if err != nil {
		return err
	}
	if len(result.Wrong) > 0 {
		c.explain(bench, result)
		return errors.New("the run broke a promise")
	}
	fmt.Println(strings.Join(result.Trace, "\n"))
	fmt.Printf("%s, seed %d: no promise was broken; digest %016x\n", request.Profile, request.Seed, result.Digest)
	row := &Row{Profile: request.Profile}
	row.add(&result)
	(&Report{Profiles: []*Row{row}}).print()
	return nil
}

// explain prints a failure as small as it can be had in time.
func (c *config) explain(bench *bench, failed virtual.Result) {
	fmt.Printf("\n%s, seed %d, at %v: %s\n", failed.Profile, failed.Seed, failed.At, failed.Wrong[0])
	smallest, replays := virtual.Shrink(failed, bench.catalog.Quiet, c.shrink, bench.make)
	kept := 0
	fmt.Println("what it needs:")
	for _, s := range smallest.Strikes {
		if !s.Out {
			kept++
			fmt.Printf("  strike %-4d %14v  %s\n", s.Number, s.At, s.Fault)
		}
	}
	fmt.Printf("  %d of %d strikes, and of the network everything but: %s (after %d replays)\n", kept, len(failed.Strikes), strings.Join(smallest.Quiet, ", "), replays)
	fmt.Printf("%s\n%v: %s\n", strings.Join(smallest.Trace, "\n"), smallest.At, smallest.Wrong[0])
	fmt.Printf("replay: %s make virtual PROFILE=%s SEED=%d\n", strings.Join(smallest.Environ()[2:], " "), smallest.Profile, smallest.Seed)
}
