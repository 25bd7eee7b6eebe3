// Command shake runs tests of a product whose goroutines yield at random before each of their
// statements. Now and then one stands still until the others have got far ahead, and so do those of
// the tests. That leads them through orders which an idle machine shows once in thousands of runs:
// it finds tests that ask a moment too early or too late, and states that a caller should not see.
// What it does is drawn anew each time, and has no seed: a failure shows again if it is run often
// enough.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/overlay"
)

func main() {
	var o options
	flag.StringVar(&o.packages, "packages", ".,internal/proof/virtual,tenurehttp,tenuretest", "whose tests to run: folders, separated by commas")
	flag.StringVar(&o.run, "run", "", "only tests whose names match")
	flag.StringVar(&o.skip, "skip", "^TestVirtualReplay$", "no tests whose names match: replay needs the order")
	flag.IntVar(&o.runs, "runs", 3, "runs of each")
	flag.IntVar(&o.every, "every", 5, "statements between two that yield, on average")
	flag.IntVar(&o.hold, "hold", 10, "statements of tests between two that stand still, on average; 1: all do")
	flag.DurationVar(&o.bound, "timeout", 30*time.Minute, "longest run of the tests of one package")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shake:", err)
		os.Exit(1)
	}
}

type options struct {
	packages, run, skip string
	runs, every, hold   int
	bound               time.Duration
}

func run(ctx context.Context, o options) error {
	if min(o.runs, o.every, o.hold) < 1 {
		return errors.New("-runs, -every and -hold must be at least 1")
	}
	scratch, err := os.MkdirTemp("", "tenure-shake-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	shaken, err := product(ctx)
	if err != nil {
		return err
	}
	laid, err := overlay.Yield(filepath.Join(scratch, "laid"), shaken)
	if err != nil {
		return err
	}
	folders := strings.Split(o.packages, ",")
	binaries := make([]string, len(folders))
	for i, in := range folders {
		binaries[i] = filepath.Join(scratch, strconv.Itoa(i)+".test")
		if err := overlay.Compile(in, binaries[i], "-overlay", laid, "-gcflags="); err != nil { // as fast as the product: some tests count allocations
			return err
		}
	}
	failed := map[string]int{}
	for n := range o.runs {
		for i, in := range folders {
			began := time.Now()
			names, out := attempt(ctx, o, in, binaries[i])
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Printf("run %d of %d: %s: %v in %v\n", n+1, o.runs, in, result(names), time.Since(began).Round(time.Second))
			for _, name := range names {
				failed[name]++
			}
			if len(names) > 0 {
				fmt.Printf("%s\n", out)
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("of %d runs failed: %v", o.runs, failed)
	}
	return nil
}

func result(failed []string) string {
	if len(failed) == 0 {
		return "ok"
	}
	return strings.Join(failed, ", ") + " failed"
}

// product lists the folders of the packages that users run, as the tests do.
func product(ctx context.Context) (folders []string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	paths := strings.Fields(string(out))
	for _, path := range paths {
		folder := strings.TrimPrefix(strings.TrimPrefix(path, paths[0]), "/") // the root comes first
		if top := folder + "/"; !strings.HasPrefix(top, "internal/proof/") && !strings.HasPrefix(top, "examples/") {
			folders = append(folders, folder)
		}
	}
	return folders, nil
}

// attempt runs the tests of one package in an order of its own, and gives the names of those that
// failed.
func attempt(ctx context.Context, o options, in, binary string) (failed []string, out []byte) {
	ctx, cancel := context.WithTimeout(ctx, o.bound)
	defer cancel()
	cmd := overlay.Command(ctx, in, binary, "-test.short", "-test.shuffle=on", "-test.run="+o.run, "-test.skip="+o.skip)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", overlay.EnvYield, o.every), fmt.Sprintf("%s=%d", overlay.EnvHold, o.hold))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil, nil
	}
	if failed = overlay.Failed(out); len(failed) == 0 {
		failed = []string{err.Error()} // it did not come to that
	}
	return failed, bytes.TrimSpace(out)
}
