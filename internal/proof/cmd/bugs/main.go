// Command bugs breaks the product on purpose, once for each bug of its list, and expects that a
// test by name notices. The tree is not touched: the broken file is laid over it for one build. The
// last line is "N of N caught".
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
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
	only := flag.String("bug", "", "seed the bugs whose name matches this regular expression")
	part := flag.String("part", "", "seed a share of the list: with 2/3 every third bug from the second on")
	workers := flag.Int("workers", runtime.NumCPU(), "bugs at a time")
	find := flag.Bool("find", false, "run all short tests against each bug and name those that fail")
	bound := flag.Duration("timeout", 2*time.Minute, "longest run of one test")
	file := flag.String("json", "", "write what came of each to this file")
	markdown := flag.Bool("markdown", false, "print the table of a -json file, given as argument, in markdown")
	flag.Parse()
	do := func() error { return run(*only, *part, *workers, *find, *bound, *file) }
	if *markdown {
		do = func() error { return page(flag.Arg(0)) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "bugs:", err)
		os.Exit(1)
	}
}

// hangBound is longer than any of the tests takes that show a bug by hanging.
const hangBound = 5 * time.Second

// outcome is how one bug ended.
type outcome struct {
	caught bool
	text   string // why not; or all that notice, if they were looked for
	took   time.Duration
}

func run(only, part string, workers int, find bool, bound time.Duration, file string) error {
	began := time.Now()
	scratch, err := os.MkdirTemp("", "tenure-bugs-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	k, n, err := share(part)
	if err != nil {
		return err
	}
	var chosen []bug
	for i, b := range bugs {
		if wanted.MatchString(b.name) && i%n == k-1 {
			chosen = append(chosen, b)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no bug of the part is called %q", only)
	}
	whole, alone, err := build(chosen, filepath.Join(scratch, "whole"))
	if err != nil {
		return err
	}
	if !find {
		if err := unbroken(chosen, whole, bound); err != nil {
			return err
		}
	}
	outcomes := make([]outcome, len(chosen))
	next := make(chan int)
	var mu sync.Mutex
	var crew sync.WaitGroup
	for range workers {
		crew.Go(func() { // ends with next
			for i := range next {
				dir := filepath.Join(scratch, fmt.Sprint(i))
				edit := i + 1
				if alone[i] {
					edit = 0
				}
				o := seed(chosen[i], dir, whole[chosen[i].in], edit, find, bound)
				_ = os.RemoveAll(dir)
				mu.Lock()
				outcomes[i] = o
				show(chosen[i], o)
				mu.Unlock()
			}
		})
	}
	for i := range chosen {
		next <- i
	}
	close(next)
	crew.Wait()
	caught := 0
	for _, o := range outcomes {
		if o.caught {
			caught++
		}
	}
	if file != "" {
		if err := write(file, chosen, outcomes, time.Since(began)); err != nil {
			return err
		}
	}
	fmt.Printf("%d of %d caught\n", caught, len(chosen))
	if caught < len(chosen) {
		return errors.New("a bug was not caught")
	}
	return nil
}

// share reads k/n: every n-th bug from the k-th on, so that each part has bugs of each file.
func share(part string) (k, n int, err error) {
	if part == "" {
		return 1, 1, nil
	}
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return 0, 0, fmt.Errorf("-part must be k/n with 1 ≤ k ≤ n, not %q", part)
	}
	return k, n, nil
}

// build compiles the tests of each package once, with all bugs in it that can be switched on for
// one process. alone says which bugs are not in it.
func build(chosen []bug, dir string) (whole map[string]string, alone []bool, err error) {
	edits := make([]overlay.Edit, len(chosen))
	var packages []string
	for i, b := range chosen {
		if edits[i], _, err = b.edit(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", b.name, err)
		}
		if !slices.Contains(packages, b.in) {
			packages = append(packages, b.in)
		}
	}
	return overlay.Build(dir, edits, packages)
}

func show(b bug, o outcome) {
	mark := "caught by " + b.test
	if !o.caught {
		mark = "NOT CAUGHT: " + o.text
	} else if o.text != "" {
		mark = "caught by " + o.text
	}
	fmt.Printf("%-38s %5.1f s  %s\n    %s\n", b.name, o.took.Seconds(), mark, b.breaks)
}

// unbroken runs the named tests against the product as it is: a test that fails anyway catches
// nothing.
func unbroken(chosen []bug, whole map[string]string, bound time.Duration) error {
	names := map[string][]string{}
	for _, b := range chosen {
		if b.test == "" {
			return fmt.Errorf("%q names no test", b.name)
		}
		names[b.in] = append(names[b.in], b.test)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 3*bound)
	defer cancel()
	for in, tests := range names {
		if out, err := overlay.Command(ctx, in, whole[in], "-test.run", pattern(tests...)).CombinedOutput(); err != nil {
			return fmt.Errorf("without a bug the tests of ./%s fail: %w\n%s", in, err, out)
		}
	}
	fmt.Printf("unbroken, the tests pass (%.0f s)\n", time.Since(began).Seconds())
	return nil
}

// pattern matches these tests and no others. A name may go on with the name of a part.
func pattern(tests ...string) string {
	seen := map[string]bool{}
	var whole []string
	for _, test := range tests {
		name, _, _ := strings.Cut(test, "/")
		if !seen[name] {
			seen[name] = true
			whole = append(whole, regexp.QuoteMeta(name))
		}
	}
	return "^(" + strings.Join(whole, "|") + ")$"
}

// noScript is how Redis and miniredis report a script that is no Lua, or that names what is not
// there: any test notices that.
var noScript = regexp.MustCompile(`Error compiling script.*|nonexistent global variable.*`)

// takeScripts are the packages whose tests take TENURE_SCRIPTS in place of the embedded scripts.
var takeScripts = []string{"", redisstore, virtual, scenario}

// seed runs the test of one bug, which is edit of binary. Else, at 0, it is built first, but for a
// script: the tests take that in place of the embedded one.
func seed(b bug, dir, binary string, edit int, find bool, bound time.Duration) outcome {
	began := time.Now()
	done := func(caught bool, text string) outcome { return outcome{caught, text, time.Since(began)} }
	scripts := ""
	if edit == 0 {
		broken, laid, err := b.write(dir)
		if err != nil {
			return done(false, err.Error())
		}
		if b.file == lua && slices.Contains(takeScripts, b.in) {
			scripts = broken
		} else {
			binary = filepath.Join(dir, "broken.test")
			if err := overlay.Compile(b.in, binary, "-overlay", laid); err != nil {
				return done(false, err.Error())
			}
		}
	}
	if b.hangs {
		bound = min(bound, hangBound)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*bound)
	defer cancel()
	args := []string{"-test.timeout", bound.String(), "-test.run", pattern(b.test), "-test.failfast", "-test.v"} // -test.v says which test ran
	if find {
		args = []string{"-test.timeout", bound.String(), "-test.short"}
	}
	cmd := overlay.Command(ctx, b.in, binary, args...)
	cmd.Env = append(os.Environ(), overlay.EnvScripts+"="+scripts, fmt.Sprint(overlay.EnvEdit, "=", edit))
	out, err := cmd.CombinedOutput()
	failed := overlay.Failed(out)
	switch {
	case err == nil:
		return done(false, "no test fails")
	case find:
		text := strings.Join(failed[:min(len(failed), 12)], " ")
		if bytes.Contains(out, []byte("panic:")) || bytes.Contains(out, []byte("fatal error:")) {
			text += " (and a panic)"
		}
		return done(true, text)
	case bytes.Contains(out, []byte("panic: test timed out")):
		if b.hangs {
			return done(true, "")
		}
		return done(false, "the test hangs")
	case noScript.Match(out):
		return done(false, "the broken script does not run: "+string(noScript.Find(out)))
	case !bytes.Contains(out, []byte("=== RUN   "+b.test)),
		len(failed) == 0 && !bytes.Contains(out, []byte("panic:")) && !bytes.Contains(out, []byte("fatal error:")):
		return done(false, "the test did not run: "+string(out[:min(len(out), 600)]))
	}
	return done(true, "")
}

// edit is the bug, and what becomes of its file.
func (b bug) edit() (e overlay.Edit, broken string, err error) {
	source, err := os.ReadFile(filepath.FromSlash(b.file))
	if err != nil {
		return e, "", err
	}
	if e, err = overlay.Replace(b.file, string(source), b.old, b.new); err != nil {
		return e, "", err
	}
	return e, e.Apply(string(source)), nil
}

// write writes the broken file, and the overlay that has the go command take it.
func (b bug) write(dir string) (broken, laid string, err error) {
	_, text, err := b.edit()
	if err != nil {
		return "", "", err
	}
	return overlay.Write(dir, b.file, []byte(text))
}
