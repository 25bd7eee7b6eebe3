package virtual

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/figures"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Everything here sleeps in virtual time.

// TestVirtualFaults plagues worlds of five instances for ten minutes each, every seed with its own
// faults, and holds P1, P2, P3, P4, P7, P8, P9, P10 and P11 against all that happens.
// TENURE_SEEDS=200 runs that many seeds (100-200: the second half of them).
func TestVirtualFaults(t *testing.T) {
	simnet.Exact(t)
	first, count := seeds(t)
	var mu sync.Mutex
	var all Figures
	began := time.Now()
	step := uint64(1)
	if simnet.Race {
		step = 6 // ten times as slow; `make virtual` plays them all
	}
	t.Cleanup(func() {
		t.Logf("%d seeds: %+v in %v", (count+step-1)/step, all, time.Since(began).Round(time.Millisecond))
	})
	for seed := first; seed < first+count; seed += step {
		profile := hotProfiles[seed%uint64(len(hotProfiles))]
		t.Run(fmt.Sprintf("seed=%d/%s", seed, profile.name), func(t *testing.T) {
			if simnet.Race {
				together(t)
			}
			request := Request{Profile: profile.name, Seed: seed}
			if testing.Short() {
				request.Length = 4 * time.Minute
			}
			r := mustPlay(t, request)
			mu.Lock()
			defer mu.Unlock()
			all.Add(&r.Figures)
		})
	}
}

// TestVirtualSteady runs each profile of the steady class for an hour or, if there is little
// time, one of them.
func TestVirtualSteady(t *testing.T) {
	simnet.Exact(t)
	profiles, length := steadyProfiles, time.Hour
	if testing.Short() || simnet.Race {
		profiles = profiles[len(profiles)-1:]
	}
	if testing.Short() {
		length = 20 * time.Minute
	}
	for _, profile := range profiles {
		t.Run(profile.name, func(t *testing.T) {
			r := mustPlay(t, Request{Profile: profile.name, Seed: 1, Length: length})
			t.Logf("%+v", r.Figures)
		})
	}
}

// TestVirtualRequest makes the one run that the environment asks for (TENURE_PROFILE, TENURE_SEED
// and what else virtual.Request names). It is what `make virtual` runs, in a process each. Alone it
// prints the trace of the run.
func TestVirtualRequest(t *testing.T) {
	if path := os.Getenv(EnvCatalog); path != "" {
		if err := figures.Write(path, catalog()); err != nil {
			t.Fatal(err)
		}
		return
	}
	request, asked, err := FromEnviron(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	if !asked {
		t.Skip("no run is asked for")
	}
	simnet.Exact(t)
	result := play(t, request)
	if path := os.Getenv(EnvResult); path != "" {
		if err := figures.Write(path, result); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Logf("%+v\n%s", result.Figures, strings.Join(result.Trace, "\n"))
	for _, wrong := range result.Wrong {
		t.Error(wrong)
	}
}

// seeds says which seeds to run.
func seeds(t *testing.T) (first, count uint64) {
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("TENURE_SEEDS: %v", err)
		}
		return n
	}
	if seeds, set := os.LookupEnv("TENURE_SEEDS"); set {
		from, to, ranged := strings.Cut(seeds, "-")
		if !ranged {
			from, to = "0", seeds
		}
		first = number(from)
		return first, number(to) - first
	}
	switch {
	case testing.Short():
		return 0, 4
	case simnet.Race:
		return 0, uint64(len(hotProfiles))
	}
	return 0, 3 * uint64(len(hotProfiles))
}

// mustPlay makes a run in which nothing may be violated.
func mustPlay(t *testing.T, request Request) Result {
	t.Helper()
	r := play(t, request)
	if len(r.Wrong) > 0 {
		t.Errorf("first at %v: %s\nthe end of its trace:\n%s\nreplay and shrink it: make virtual PROFILE=%s SEED=%d",
			r.At, strings.Join(r.Wrong[:min(len(r.Wrong), 10)], "\n"), strings.Join(r.Trace, "\n"), request.Profile, request.Seed)
	}
	return r
}
