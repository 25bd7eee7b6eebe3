// Command matrix runs the script and fault suites on every server that there is: the system's
// redis-server and those that tools/install-servers.sh has put into bin/servers. It prints one
// table.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
)

// suites are what runs: the name, the package, and which of its tests.
var suites = [][3]string{
	{"scripts", "./internal/redisstore", "."},
	{"store", ".", "Lease|ACL|Registry|Tasks?OnRedis|Huge"},
	{"faults", "./internal/proof/scenario", "."},
	{"harness", "./internal/proof/redistest", "."},
}

// Report is what -json writes.
type Report struct {
	figures.Origin
	Results []Result
}

// Result is one suite on one server.
type Result struct {
	Server, Version, Suite  string
	Passed, Failed, Skipped int
	Took                    time.Duration
	Failures                []string
}

func main() {
	out := flag.String("json", "", "write the results to this file")
	only := flag.String("suites", "", "comma-separated; empty: all")
	markdown := flag.Bool("markdown", false, "print the table of a -json file, given as argument, in markdown")
	flag.Parse()
	show := func() error { return run(*out, *only) }
	if *markdown {
		show = func() error { return page(flag.Arg(0)) }
	}
	if err := show(); err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
}

func run(out, only string) error {
	servers := []string{"redis-server"}
	installed, err := filepath.Glob("bin/servers/*-*.*")
	if err != nil {
		return err
	}
	for _, path := range installed {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o100 != 0 {
			absolute, err := filepath.Abs(path)
			if err != nil {
				return err
			}
			servers = append(servers, absolute)
		}
	}
	report := Report{Origin: figures.Here()}
	failed := 0
	fmt.Printf("%-16s %-10s %7s %7s %8s %8s\n", "server", "suite", "passed", "failed", "skipped", "seconds")
	for _, server := range servers {
		name, version, err := versionOf(server)
		if err != nil {
			return fmt.Errorf("%s: %w", server, err)
		}
		for _, suite := range suites {
			if only != "" && !slices.Contains(strings.Split(only, ","), suite[0]) {
				continue
			}
			r := Result{Server: name, Version: version, Suite: suite[0]}
			r.play(server, suite[1], suite[2])
			failed += r.Failed
			fmt.Printf("%-16s %-10s %7d %7d %8d %8.0f\n", r.Server+" "+r.Version, r.Suite, r.Passed, r.Failed, r.Skipped, r.Took.Seconds())
			for _, name := range r.Failures {
				fmt.Println("    FAILED", name)
			}
			report.Results = append(report.Results, r)
		}
	}
	if out != "" {
		if err := figures.Write(out, report); err != nil {
			return err
		}
	}
	if failed > 0 {
		return errors.New("a suite failed")
	}
	return nil
}

// page prints what a run has written as a table of a page.
func page(file string) error {
	var r Report
	if err := figures.Read(file, &r); err != nil {
		return err
	}
	fmt.Printf("Commit %s, %s, %s.\n\n| Server | Suite | Passed | Failed | Skipped | Seconds |\n|---|---|---|---|---|---|\n", r.Commit, r.Date, r.Go)
	for _, s := range r.Results {
		fmt.Printf("| %s %s | %s | %d | %d | %d | %.0f |\n", s.Server, s.Version, s.Suite, s.Passed, s.Failed, s.Skipped, s.Took.Seconds())
	}
	return nil
}

var serverVersion = regexp.MustCompile(`^(\w+) server v=([\d.]+)`)

func versionOf(server string) (name, version string, err error) {
	out, err := exec.CommandContext(context.Background(), server, "--version").Output()
	if err != nil {
		return "", "", err
	}
	found := serverVersion.FindStringSubmatch(string(out))
	if found == nil {
		return "", "", fmt.Errorf("it says %q", out)
	}
	return found[1], found[2], nil
}

// play runs one suite and counts its tests, not their parts. What a failed test said goes to
// stderr.
func (r *Result) play(server, pkg, pattern string) {
	began := time.Now()
	cmd := exec.CommandContext(context.Background(), "go", "test", "-json", "-count=1", "-timeout=15m", "-run", pattern, pkg)
	cmd.Env = append(os.Environ(), "TENURE_REDIS_SERVER="+server)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	said := map[string]*strings.Builder{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, len(out)+1) // a line may be long
	for lines.Scan() {
		var event struct {
			Action string `json:"Action"`
			Test   string `json:"Test"`
			Output string `json:"Output"`
		}
		if json.Unmarshal(lines.Bytes(), &event) != nil || event.Test == "" {
			continue
		}
		test, part, _ := strings.Cut(event.Test, "/")
		if said[test] == nil {
			said[test] = new(strings.Builder)
		}
		said[test].WriteString(event.Output)
		if part != "" {
			continue
		}
		switch event.Action {
		case "pass":
			r.Passed++
			delete(said, test)
		case "fail":
			r.Failed++
			r.Failures = append(r.Failures, test)
			fmt.Fprint(os.Stderr, said[test])
		case "skip":
			r.Skipped++
		}
	}
	if err != nil && r.Failed == 0 {
		r.Failed, r.Failures = 1, []string{pkg + ": " + err.Error()}
	}
	r.Took = time.Since(began)
}
