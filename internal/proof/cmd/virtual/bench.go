package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/virtual"
)

const (
	buildBound = 10 * time.Minute
	runBound   = 10 * time.Minute // of one run: a hundred times what it takes
)

// bench is the test binary that makes the runs. It is safe for concurrent use.
type bench struct {
	dir     string
	catalog virtual.Catalog
	runs    atomic.Int64
	cpu     atomic.Int64 // ns of all runs
}

func newBench() (*bench, error) {
	dir, err := os.MkdirTemp("", "virtual")
	if err != nil {
		return nil, err
	}
	b := &bench{dir: dir}
	ctx, cancel := context.WithTimeout(context.Background(), buildBound)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", b.binary(), "github.com/tenure-go/tenure/internal/proof/virtual")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("building the tests: %w", err)
	}
	path := filepath.Join(dir, "catalog.json")
	if _, _, err := b.start(virtual.EnvCatalog + "=" + path); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if err := figures.Read(path, &b.catalog); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return b, nil
}

func (b *bench) binary() string { return filepath.Join(b.dir, "virtual.test") }
func (b *bench) close() error   { return os.RemoveAll(b.dir) }

// start runs the binary and returns what it has printed and the CPU time it took.
func (b *bench) start(env ...string) (output string, cpu time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), runBound)
	defer cancel()
	run := exec.CommandContext(ctx, b.binary(), "-test.run=^TestVirtualRequest$", "-test.count=1", "-test.timeout="+runBound.String())
	run.Env = append(os.Environ(), env...)
	text, err := run.CombinedOutput()
	if run.ProcessState != nil {
		cpu = run.ProcessState.UserTime() + run.ProcessState.SystemTime()
	}
	return string(text), cpu, err
}

// make makes a run. One that ends its process broke P11.
func (b *bench) make(request virtual.Request) (virtual.Result, error) {
	path := filepath.Join(b.dir, fmt.Sprintf("run-%d.json", b.runs.Add(1)))
	env := request.Environ()
	for _, name := range []string{"TENURE_LENGTH", "TENURE_UNTIL", "TENURE_WITHOUT", "TENURE_QUIET"} { // the request of a replay has them all
		env = append([]string{name + "="}, env...)
	}
	output, cpu, err := b.start(append(env, virtual.EnvResult+"="+path)...)
	b.cpu.Add(int64(cpu))
	var result virtual.Result
	if readErr := figures.Read(path, &result); readErr != nil {
		if err == nil {
			return result, readErr
		}
		result = virtual.Result{Request: request, Wrong: []string{"P11: the process of the run ended: " + err.Error()}, Trace: []string{output}}
		result.Violations = 1
		return result, nil
	}
	result.CPU = cpu
	return result, os.Remove(path)
}
