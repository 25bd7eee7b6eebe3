//go:build unix

// Command performance measures what tenure, other libraries and the bare commands cost, side by
// side in one run, and writes the page of it. Each round measures everybody in turn, so that a
// machine whose speed drifts slows all of them down; figures are medians of the rounds.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

func main() {
	redistest.Silence()
	log.SetOutput(io.Discard) // rueidis reports each lost connection
	for load := range loads {
		redistest.ChildMain(load, childMain(load))
	}
	if redistest.RunChild() {
		return
	}
	var o options
	flag.IntVar(&o.rounds, "rounds", 5, "rounds, of which the median counts")
	flag.StringVar(&o.only, "only", "", "sections, separated by commas: calls, cluster, roles, tasks, own, reads, build; empty: all")
	flag.StringVar(&o.out, "o", "", "file to write, beside which images/performance-*.svg are; empty: none")
	flag.StringVar(&o.root, "root", "..", "directory of the root module")
	flag.StringVar(&o.commit, "commit", "unknown", "commit that is measured")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "performance:", err)
		os.Exit(1)
	}
}

type options struct {
	rounds                  int
	only, out, root, commit string
}

// section is a part of the page.
type section struct {
	name    string
	measure func(o options, p *page) error
}

func run(o options) error {
	if o.rounds < 1 {
		return fmt.Errorf("-rounds = %d: at least one", o.rounds)
	}
	sections := []section{{"calls", measureCalls}, {"cluster", measureCluster}, {"roles", measureRoles}, {"tasks", measureTasks}, {"own", measureOwn}, {"reads", measureReads}, {"build", measureBuild}}
	var chosen []string
	if o.only != "" {
		chosen = strings.Split(o.only, ",")
	}
	for _, name := range chosen {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("-only = %q: there is no section of that name", name)
		}
	}
	p := &page{commit: o.commit, rounds: o.rounds}
	began := time.Now()
	for _, s := range sections {
		if chosen != nil && !slices.Contains(chosen, s.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring %s\n", s.name)
		if err := s.measure(o, p); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	p.took = time.Since(began)
	text := p.text()
	fmt.Print(text)
	if o.out == "" {
		return nil
	}
	return p.write(o.out, text)
}
