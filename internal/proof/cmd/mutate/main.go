// Command mutate breaks the rules of the product by machine: every comparison, condition, constant,
// sum and assignment of the chosen files in turn, and expects that a short test notices. The tree
// is not touched: the broken file is laid over it for one build, and a broken script is read by
// tests that are built once. What survives is either a test that is missing or a mutant that nobody
// can tell from the product: equivalent.txt lists those, with the reason. It fails if anything
// else survives.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/proof/overlay"
)

func main() {
	var o options
	flag.StringVar(&o.targets, "targets", "lease,plan,cron,lua-lease", "what to break, by name; all: everything")
	flag.StringVar(&o.scope, "scope", "", "only functions, or sections of the scripts, with this name")
	flag.StringVar(&o.change, "change", "", "only mutants whose line or change contains this")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "mutants at a time")
	flag.DurationVar(&o.bound, "timeout", 30*time.Second, "longest run of the tests of one mutant")
	flag.StringVar(&o.json, "json", "", "write what came of each to this file")
	flag.StringVar(&o.again, "again", "", "only what survived, or was not tried, in this file, which -json has written")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

type options struct {
	targets, scope, change, json, again string
	workers                             int
	bound                               time.Duration
}

// The ends of a mutant.
const (
	killed     = "killed"
	timedOut   = "timed out" // the tests did not end: noticed too
	survived   = "survived"
	equivalent = "equivalent"
	unbuilt    = "not built" // it is no program
	untried    = "not tried" // the run was interrupted
)

// outcome is what came of one mutant.
type outcome struct {
	mutant
	End    string `json:"end"`
	By     string `json:"by,omitempty"` // the first test that failed
	Reason string `json:"reason,omitempty"`
}

func run(ctx context.Context, o options) error {
	known, err := equivalents()
	if err != nil {
		return err
	}
	only, err := survivors(o.again)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "tenure-mutate-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var all []outcome
	for _, t := range targets {
		if o.targets != "all" && !slices.Contains(strings.Split(o.targets, ","), t.name) {
			continue
		}
		outcomes, err := t.run(ctx, o, known, only, filepath.Join(scratch, t.name))
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		all = append(all, outcomes...)
		if ctx.Err() != nil {
			break
		}
	}
	if len(all) == 0 {
		return errors.New("nothing was chosen")
	}
	if o.json != "" {
		text, err := json.MarshalIndent(all, "", " ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, text, 0o644); err != nil {
			return err
		}
	}
	whole := o.scope == "" && o.change == "" && o.again == "" && ctx.Err() == nil
	return errors.Join(summary(all, known, whole), ctx.Err())
}

// survivors are the keys of what survived in an earlier run, or was not tried; nil without one.
func survivors(file string) (map[string]bool, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var earlier []outcome
	if err := json.Unmarshal(text, &earlier); err != nil {
		return nil, err
	}
	keys := map[string]bool{}
	for _, m := range earlier {
		keys[m.key()] = m.End == survived || m.End == untried
	}
	return keys, nil
}

// run breaks everything of one target.
func (t target) run(ctx context.Context, o options, known map[string]string, only map[string]bool, scratch string) ([]outcome, error) {
	var mutants []mutant
	for _, file := range t.files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var found []mutant
		if strings.HasSuffix(file, ".lua") {
			found = luaMutants(file, source, t.chosen)
		} else if found, err = goMutants(file, source); err != nil {
			return nil, err
		}
		mutants = append(mutants, slices.DeleteFunc(found, func(m mutant) bool {
			return only != nil && !only[m.key()] || o.scope != "" && m.Scope != o.scope || !strings.Contains(m.Text+"\n"+m.Change, o.change)
		})...)
	}
	if len(mutants) == 0 {
		return nil, nil
	}
	edits, packages := make([]overlay.Edit, len(mutants)), []string{}
	for i, m := range mutants {
		edits[i] = overlay.Edit{File: m.File, From: m.from, To: m.to, Text: m.text}
	}
	for _, s := range t.suites {
		if !slices.Contains(packages, s.in) {
			packages = append(packages, s.in)
		}
	}
	binaries, alone, err := overlay.Build(filepath.Join(scratch, "whole"), edits, packages)
	if err != nil {
		return nil, err
	}
	for _, s := range t.suites {
		if end, by, out := attempt(ctx, s, binaries[s.in], "", 0, 3*o.bound); end != survived {
			return nil, fmt.Errorf("without a mutant %s %s\n%s", by, end, out)
		}
	}
	outcomes := make([]outcome, len(mutants))
	for i, m := range mutants {
		outcomes[i] = outcome{mutant: m, End: untried}
	}
	next := make(chan int)
	var crew sync.WaitGroup
	for range o.workers {
		crew.Go(func() { // ends with next
			for i := range next {
				m := outcome{mutant: mutants[i]}
				if m.Reason = known[m.key()]; m.Reason != "" {
					m.End = equivalent
				} else {
					dir := filepath.Join(scratch, fmt.Sprint(i))
					edit := i + 1
					if alone[i] {
						edit = 0
					}
					m.End, m.By = t.try(ctx, m.mutant, binaries, edit, dir, o.bound)
					_ = os.RemoveAll(dir)
				}
				if ctx.Err() != nil { // the tests may have ended for that
					continue
				}
				outcomes[i] = m
				if m.End == survived {
					fmt.Printf("%s:%d: survived\n%s\n\n", m.File, m.Line, m.key())
				}
			}
		})
	}
	for i := 0; i < len(mutants) && ctx.Err() == nil; i++ { // what was interrupted reports what it has
		next <- i
	}
	close(next)
	crew.Wait()
	return outcomes, nil
}

// try runs the suites of the target until one notices the mutant, which is edit of the binaries. At
// 0 it is built first, but for a script.
func (t target) try(ctx context.Context, m mutant, whole map[string]string, edit int, dir string, bound time.Duration) (end, by string) {
	scripts := ""
	if edit == 0 {
		broken, laid, err := overlay.Write(dir, m.File, m.broken())
		if err != nil {
			return unbuilt, err.Error()
		}
		if strings.HasSuffix(m.File, ".lua") {
			scripts = broken
		} else {
			built := map[string]string{}
			for in := range whole {
				built[in] = filepath.Join(dir, fmt.Sprintf("broken-%d.test", len(built)))
				if err := overlay.Compile(in, built[in], "-overlay", laid); err != nil {
					return unbuilt, err.Error()
				}
			}
			whole = built
		}
	}
	for _, s := range t.suites {
		if end, by, _ = attempt(ctx, s, whole[s.in], scripts, edit, bound); end != survived {
			return end, by
		}
	}
	return survived, ""
}

var noScript = regexp.MustCompile(`Error compiling script|nonexistent global variable|tenure: scripts.lua`)

// attempt runs a suite with the embedded scripts, or those of a file, and with one of the edits of
// the binary, or none.
func attempt(ctx context.Context, s suite, binary, scripts string, edit int, bound time.Duration) (end, by string, out []byte) {
	ctx, cancel := context.WithTimeout(ctx, bound+10*time.Second)
	defer cancel()
	cmd := overlay.Command(ctx, s.in, binary, "-test.short", "-test.failfast", "-test.timeout", bound.String(),
		"-test.run", s.run, "-test.skip", s.skip)
	cmd.Env = append(os.Environ(), overlay.EnvScripts+"="+scripts, fmt.Sprint(overlay.EnvEdit, "=", edit))
	out, err := cmd.CombinedOutput()
	if failed := overlay.Failed(out); len(failed) > 0 {
		by = failed[0]
	}
	switch {
	case err == nil:
		return survived, "", out
	case strings.Contains(string(out), "panic: test timed out"), ctx.Err() != nil:
		return timedOut, by, out
	case noScript.Match(out):
		return unbuilt, by, out
	}
	return killed, by, out
}

// summary prints a table, a row a file, and fails if something survived, or if the list of
// equivalents is out of date.
func summary(all []outcome, known map[string]string, whole bool) error {
	ends := []string{killed, timedOut, survived, equivalent, untried, unbuilt}
	counts, files, seen := map[string]map[string]int{}, []string{}, map[string]bool{}
	bad := 0
	for _, m := range all {
		if counts[m.File] == nil {
			counts[m.File] = map[string]int{}
			files = append(files, m.File)
		}
		counts[m.File][m.End]++
		seen[m.key()] = true
		if m.End == survived {
			bad++
		}
	}
	fmt.Println("| File | Mutants | Killed | Timed out | Survived | Equivalent | Not tried |\n|---|---|---|---|---|---|---|")
	for _, file := range append(files, "all") {
		row := counts[file]
		total := 0
		for _, end := range ends[:5] {
			total += row[end]
		}
		fmt.Printf("| %s | %d | %d | %d | %d | %d | %d |\n", file, total, row[killed], row[timedOut], row[survived], row[equivalent], row[untried])
		if file != "all" {
			if counts["all"] == nil {
				counts["all"] = map[string]int{}
			}
			for _, end := range ends {
				counts["all"][end] += row[end]
			}
		}
	}
	fmt.Printf("%d more were no programs\n", counts["all"][unbuilt])
	if whole {
		for key := range known {
			file, _, _ := strings.Cut(key, "\n")
			if counts[file] != nil && !seen[key] && file != "scripts.lua" {
				bad++
				fmt.Printf("equivalent.txt names a mutant that there is no more:\n%s\n\n", key)
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d survived or are out of date", bad)
	}
	return nil
}
