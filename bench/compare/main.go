//go:build unix

// Command compare puts tenure and four other libraries through the same faults and writes what was
// measured as a page.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/tenure-go/tenure/bench/internal/contender"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// mostFailures is how many runs may come to nothing: a contender that does not lead on a sound
// store is a finding, and on the page; more of it is a broken harness.
const mostFailures = 3

func main() {
	redistest.Silence()
	log.SetOutput(io.Discard) // client-go and rueidis report each lost connection
	klog.SetLogger(logr.Discard())
	redistest.ChildMain(childName, candidateMain)
	if redistest.RunChild() {
		return
	}
	var (
		runs     = flag.Int("n", 5, "runs of each scenario with each library")
		parallel = flag.Int("parallel", 24, "runs at once")
		seed     = flag.Uint64("seed", 1, "where in the renew interval each fault falls")
		out      = flag.String("o", "", "file to write; empty: standard output")
		only     = flag.String("only", "", "name of the one scenario to play")
		commit   = flag.String("commit", "unknown", "commit that is measured")
	)
	flag.Parse()
	c := comparison{runs: *runs, seed: *seed, commit: *commit, results: make(map[cell][]readings)}
	start := time.Now()
	c.play(*parallel, *only)
	c.took = time.Since(start)
	page := c.page()
	if *out == "" {
		fmt.Print(page)
	} else if err := os.WriteFile(*out, []byte(page), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, err := range c.failures {
		fmt.Fprintln(os.Stderr, "compare:", err)
	}
	if len(c.failures) > mostFailures {
		os.Exit(1)
	}
}

// candidateMain is a candidate in a process of its own; its parent freezes and kills it.
func candidateMain() {
	for _, c := range contender.All() {
		if c.Name != os.Getenv(envContender) {
			continue
		}
		candidate, err := c.New(context.Background(), contender.Config{Addr: os.Getenv(envAddr), ID: os.Getenv(envID), TTL: leaseTTL})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go candidate.Run(context.Background()) // lives as long as the process, which the parent kills
		tell(candidate)
	}
}

// tell reports each change of a belief, and each look after a stall, for ever.
func tell(candidate contender.Candidate) {
	last, at := contender.Belief{}, time.Now()
	for range time.Tick(lookInterval) {
		b, now := candidate.Belief(), time.Now()
		if b != last || now.Sub(at) > stall {
			fmt.Println(report(now, b))
		}
		last, at = b, now
	}
}

// cell is one scenario with one contender.
type cell struct{ scenario, contender string }

// comparison is all runs of a comparison.
type comparison struct {
	runs   int
	seed   uint64
	commit string
	took   time.Duration

	mu       sync.Mutex
	results  map[cell][]readings
	failures []error
}

func (c *comparison) play(parallel int, only string) {
	slots := make(chan struct{}, parallel)
	random := rand.New(rand.NewPCG(c.seed, 0))
	var all sync.WaitGroup
	for _, s := range scenarios() {
		if only != "" && s.name != only {
			continue
		}
		for range c.runs {
			for _, who := range contender.All() {
				phase := time.Duration(random.Int64N(int64(leaseTTL / 3)))
				if s.redisOnly && who.Kubernetes {
					continue
				}
				slots <- struct{}{}
				all.Go(func() { // bounded by the bounds of its stage; waited for below
					defer func() { <-slots }()
					c.run(s, who, phase)
				})
			}
		}
	}
	all.Wait()
}

func (c *comparison) run(s scenario, who contender.Contender, phase time.Duration) {
	var r readings
	err := redistest.Do(func(t redistest.TB) { r = s.play(newStage(t, who, phase)) })
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failures = append(c.failures, fmt.Errorf("%s, %s: %w", s.name, who.Name, err))
	}
	if r != nil {
		key := cell{s.name, who.Name}
		c.results[key] = append(c.results[key], r)
	}
}
