//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// own are the benchmarks of the root module whose figures are on the page, and what their units are
// called there.
var own = []struct{ bench, name string }{
	{"IsLeader_Leading", "`IsLeader()` of a leader; the floor is a reading of the clock against a pointer"},
	{"IsLeader_Following", "`IsLeader()` of a follower; the floor is an atomic load"},
	{"Idle", "11 processes at the default lease of 30 s, the checks of their subscriptions included"},
	{"TakeOver/followers=1/keys=0", "take-over beyond the end of a lease of 300 ms"},
	{"TakeOver/followers=10/keys=100000", "the same with 10 followers and 100,000 other keys"},
	{"HandOver", "hand-over with 10 followers; the floor is a message of pub/sub, and with the SET of who hears it (*floor-set*)"},
	{"Beat/10000", "a heartbeat among 10,000 instances"},
	{"Beat/100000", "the same among 100,000"},
	{"Sweep/10000/overdue=0", "a sweep of 10,000 instances, none overdue"},
	{"Sweep/100000/overdue=0", "the same of 100,000"},
	{"Sweep/10000/overdue=100", "a sweep of 10,000, 100 of them overdue"},
	{"Sweep/100000/overdue=100", "the same of 100,000"},
	{"Unchanged/10000", "`Registry.Watch` looks for changes of 10,000 instances, and there are none"},
	{"Unchanged/100000", "the same of 100,000"},
	{"Tasks/floor", "a thousand times a second a timer and a goroutine: what the tasks of the next rows take by themselves"},
	{"Tasks/standalone", "10,000 tasks, a thousand slots a second, without Redis"},
	{"Tasks/redis", "the same with Redis"},
	{"Footprint", "an idle instance beyond its client"},
}

// measureOwn runs the benchmarks of the root module.
func measureOwn(o options, p *page) error {
	var quick, slow []string
	for _, b := range own {
		first, _, _ := strings.Cut(b.bench, "/")
		if strings.HasPrefix(first, "IsLeader") || slices.Contains([]string{"Beat", "Sweep", "Unchanged"}, first) {
			quick = append(quick, first)
		} else {
			slow = append(slow, first)
		}
	}
	rounds := max(o.rounds/2, 1)
	out, err := benchmark(o, ".", "^Benchmark("+strings.Join(quick, "|")+")$", "2000x", rounds)
	if err != nil {
		return err
	}
	more, err := benchmark(o, ".", "^Benchmark("+strings.Join(slow, "|")+")$", "1x", rounds)
	if err != nil {
		return err
	}
	out = append(out, more...)
	t := p.table("tenure alone", fmt.Sprintf("The benchmarks of the root module, medians of %d. µs of Redis are its own time; late is behind the due time.", rounds), "figures")
	measured := benchmarks(out)
	for _, b := range own {
		units := measured[b.bench]
		if units == nil {
			continue
		}
		var texts []string
		for _, unit := range units.order {
			texts = append(texts, fmt.Sprintf("%.3g %s", middle(units.values[unit]), unit))
		}
		t.rows = append(t.rows, &row{name: b.name, text: strings.Join(texts, ", ")})
	}
	return nil
}

// measureReads runs the benchmark of the HTTP handler.
func measureReads(o options, p *page) error {
	out, err := benchmark(o, "./tenurehttp", "^BenchmarkReads$", "300x", max(o.rounds/2, 1))
	if err != nil {
		return err
	}
	t := p.table("Reads over HTTP", "One handler of `tenurehttp`, and 200 open pages in the same process: each follows the events, and reads a snapshot every two seconds and after each event; something changes each second. "+
		"After an event all pages ask at one moment, and each waits for a snapshot that has the change: one listing for all of them.", "p50, 10 instances", "p99, 10 instances", "p50, 10,000 instances", "p99, 10,000 instances")
	measured := benchmarks(out)
	for _, document := range []string{"status", "instances", "snapshot", "page"} {
		name := "`" + document + "`, ms"
		if document == "page" {
			name = "`snapshot` of the 200 pages, ms"
		}
		for i, count := range []string{"10", "10000"} {
			if m := measured["Reads/instances="+count]; m != nil {
				t.row(name, "%.1f").add(t.columns[2*i], middle(m.values[document+"-p50-ms"]))
				t.row(name, "%.1f").add(t.columns[2*i+1], middle(m.values[document+"-p99-ms"]))
			}
		}
	}
	return nil
}

// benchmark runs benchmarks of a package of the root module.
func benchmark(o options, in, pattern, times string, rounds int) ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), "go", "test", "-modfile="+filepath.Join("tools", "newest.mod"), "-run=^$", "-bench="+pattern,
		"-benchtime="+times, fmt.Sprint("-count=", rounds), "-timeout=60m", in)
	cmd.Dir, cmd.Stderr = o.root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return out, nil
}

// measurement is what one benchmark has reported, by unit.
type measurement struct {
	order  []string
	values map[string][]float64
}

// benchmarks reads the output of `go test -bench`.
func benchmarks(out []byte) map[string]*measurement {
	all := make(map[string]*measurement)
	for line := range bytes.Lines(out) {
		fields := strings.Fields(string(line))
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if i := strings.LastIndexByte(name, '-'); i > 0 { // of the number of processors
			name = name[:i]
		}
		m := all[name]
		if m == nil {
			m = &measurement{values: make(map[string][]float64)}
			all[name] = m
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			unit := fields[i+1]
			if err != nil || unit == "ns/op" { // of a round of calls: says nothing
				continue
			}
			if m.values[unit] == nil {
				m.order = append(m.order, unit)
			}
			m.values[unit] = append(m.values[unit], value)
		}
	}
	return all
}
