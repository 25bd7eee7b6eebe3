//go:build unix

// Command scale measures what many instances cost one Redis, and a Redis Cluster, and writes what
// it has measured, and what follows for more of them, into docs/scale.md. The instances are real
// ones: each has its election, its registry and a subscription over a connection of its own. Redis
// is charged by its own account (INFO), so that what the instances take of the machine does not
// count.
package main

import (
	"cmp"
	"errors"
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
	log.SetOutput(io.Discard)
	o := options{namespaces: []int{1, 10, 100}, idle: []int{11, 100}, roles: []int{1000, 10_000}}
	flag.IntVar(&o.instances, "instances", 0, "instances on one Redis, and at most as many on a Redis Cluster; 0: 10,000, or as many as the limit of open files allows")
	flag.IntVar(&o.rounds, "rounds", 3, "fail-overs, of which the median counts")
	flag.StringVar(&o.only, "only", "", "sections, separated by commas: instances, roles, cluster, idle; empty: all")
	flag.StringVar(&o.out, "o", "", "page whose blocks are replaced; empty: none")
	flag.StringVar(&o.commit, "commit", "unknown", "commit that is measured")
	flag.DurationVar(&o.window, "window", 20*time.Second, "for how long what happens at rest is counted")
	flag.Parse()
	if err := run(o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

type options struct {
	instances, rounds       int
	namespaces, idle, roles []int // how many of each
	only, out, commit       string
	window                  time.Duration
	lease, heartbeat        time.Duration // 0: the defaults
}

// renewInterval is that of the leases.
func (o options) renewInterval() time.Duration {
	if o.lease > 0 {
		return o.lease / 3
	}
	return 10 * time.Second
}

// aftermath is for how long what an event has caused is counted.
func (o options) aftermath() time.Duration {
	if o.lease > 0 {
		return min(o.lease/3, 3*time.Second)
	}
	return 3 * time.Second
}

// beat is the interval of heartbeats.
func (o options) beat() time.Duration {
	if o.heartbeat > 0 {
		return o.heartbeat
	}
	return heartbeat
}

// retry is the default RetryInterval.
func (o options) retry() time.Duration {
	if o.lease > 0 {
		return o.lease / 2
	}
	return leaseTTL / 2
}

// section is a part of the page.
type section struct {
	name    string
	measure func(tb redistest.TB, o options, p *page)
}

var sections = []section{{"instances", measureInstances}, {"roles", measureRoles}, {"cluster", measureCluster}, {"idle", measureIdle}}

// perInstance is how many open files an instance takes at most, on either side, with a client of
// its own: its subscription, and what its pool has opened at once.
const perInstance = 5

func run(o options, w io.Writer) error {
	if o.instances < 0 || o.rounds < 1 || o.window <= 0 {
		return errors.New("-instances, -rounds and -window: nothing can be measured with less than one")
	}
	files, err := openFiles()
	if err != nil {
		return err
	}
	fits := (files - reserveFiles) / 3 * 2 // each has a subscription, and the shared clients need a third
	o.instances = min(cmp.Or(o.instances, 10_000), fits)
	if o.instances < 2 {
		return fmt.Errorf("%d instances: at least two", o.instances)
	}
	var chosen []string
	if o.only != "" {
		chosen = strings.Split(o.only, ",")
	}
	for _, name := range chosen {
		if !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("-only = %q: there is no section of that name", name)
		}
	}
	if chosen != nil && o.out != "" {
		return errors.New("-only and -o: the page has all sections of one run")
	}
	p := &page{commit: o.commit}
	began := time.Now()
	for _, s := range sections {
		if chosen != nil && !slices.Contains(chosen, s.name) {
			continue
		}
		progress("%s", s.name)
		if err := redistest.Do(func(tb redistest.TB) { s.measure(tb, o, p) }); err != nil {
			fmt.Fprint(os.Stderr, p.measured()) // what there is until now
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	p.took = time.Since(began)
	fmt.Fprint(w, p.measured())
	if chosen != nil {
		return nil
	}
	derived, err := derive(p.constants)
	if err != nil {
		return err
	}
	fmt.Fprint(w, "\n", derived)
	if o.out == "" {
		return nil
	}
	return write(o.out, p.measured(), derived)
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s measuring %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}
