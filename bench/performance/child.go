//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// The loads that a process of its own carries while it is measured.
const (
	rolesChild = "roles"
	tasksChild = "tasks"
)

// loads begin those. They return when all of it is on, and what they have begun lives as long as
// the process.
var loads = map[string]func(ctx context.Context, who, addr string, late *lateness) error{rolesChild: hold, tasksChild: runTasks}

const (
	envWho  = "TENURE_PERFORMANCE_WHO"
	envAddr = "TENURE_PERFORMANCE_ADDR"
	envSpan = "TENURE_PERFORMANCE_SPAN"
)

// usage is what such a process has used over its span.
type usage struct {
	CPU        time.Duration   `json:"cpu"`
	Heap       int64           `json:"heap"` // bytes, stacks included, beyond what there was before
	Goroutines int             `json:"goroutines"`
	Runs       int             `json:"runs"`
	Late       []time.Duration `json:"late"` // what shares of the runs did not exceed; empty: none ran
}

// settle is how long a process carries its load before it is measured: what begins with it (pools
// that fill, counts that are asked for once) is no part of what it takes for years.
const settle = 5 * time.Second

// shares of the runs whose lateness is told.
var shares = []float64{0.5, 0.99, 1}

// lateness collects how long after they were due runs began.
type lateness struct {
	mu  sync.Mutex
	all []time.Duration
}

func (l *lateness) add(late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, late)
}

// runs counts those that were added.
func (l *lateness) runs() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

// take returns how many were added since the last call, and their shares.
func (l *lateness) take() (runs int, late []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	slices.Sort(all)
	for _, share := range shares {
		if len(all) > 0 {
			late = append(late, all[min(int(share*float64(len(all))), len(all)-1)])
		}
	}
	return len(all), late
}

// measureChild has a process with a redis-server of its own carry a load, with the library who, and
// returns what the process has used over span, and what Redis has spent on its commands.
func measureChild(tb redistest.TB, load, who string, span time.Duration) (usage, time.Duration) {
	server := redistest.Start(tb)
	asking := server.Client(tb)
	child := redistest.StartChild(tb, load, envWho+"="+who, envAddr+"="+server.Addr(), envSpan+"="+span.String())
	child.Expect(tb, "carries", 4*startBound)
	if err := asking.ConfigResetStat(context.Background()).Err(); err != nil {
		tb.Fatalf("%v", err)
	}
	line := child.Expect(tb, "used ", span+startBound)
	spent := redisSpent(tb, asking, who)
	var u usage
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "used ")), &u); err != nil {
		tb.Fatalf("%q: %v", line, err)
	}
	child.Kill(tb)
	return u, spent
}

// childMain is the process. It is killed in the end.
func childMain(load string) func() {
	return func() {
		if err := carry(context.Background(), load); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func carry(ctx context.Context, load string) error {
	span, err := time.ParseDuration(os.Getenv(envSpan))
	if err != nil {
		return err
	}
	heap, goroutines := inUse()
	late := new(lateness)
	if err := loads[load](ctx, os.Getenv(envWho), os.Getenv(envAddr), late); err != nil {
		return err
	}
	time.Sleep(settle)
	fmt.Println("carries")
	late.take()
	before := processTime()
	time.Sleep(span)
	u := usage{CPU: processTime() - before}
	u.Runs, u.Late = late.take()
	heapAfter, goroutinesAfter := inUse()
	u.Heap, u.Goroutines = heapAfter-heap, goroutinesAfter-goroutines
	line, err := json.Marshal(u)
	fmt.Println("used " + string(line))
	if err == nil {
		time.Sleep(time.Hour) // until it is killed
	}
	return err
}

func inUse() (bytes int64, goroutines int) {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// processTime is the processor time that this process has used.
func processTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // has no error of this process
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
