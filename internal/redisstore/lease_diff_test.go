//go:build unix

package redisstore

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// leaseSeeds are the seeds of a differential test: TENURE_LEASE_SEED replays one, TENURE_LEASE_RUNS
// runs another number.
func leaseSeeds(t *testing.T, count int) (first, last uint64) {
	if text := os.Getenv("TENURE_LEASE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("TENURE_LEASE_SEED: %v", err)
		}
		return seed, seed
	}
	if text := os.Getenv("TENURE_LEASE_RUNS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("TENURE_LEASE_RUNS: %v", err)
		}
		count = n
	}
	if testing.Short() || simnet.Race {
		count /= 5
	}
	first = uint64(time.Now().UnixNano()) % 1_000_000
	return first, first + uint64(count) - 1
}

// duels runs sequences of questions and returns the first difference.
func duels(ctx context.Context, w *leaseCluster, rules oracle.Rules, first, last uint64, questions int) (asked int, seen map[string]int, err error) {
	seen = map[string]int{}
	for seed := first; seed <= last; seed++ {
		d, err := newDuel(ctx, w, seed, rules)
		if err == nil {
			err = d.run(ctx, questions)
		}
		if err != nil {
			return asked, seen, fmt.Errorf("seed %d (replay with TENURE_LEASE_SEED=%d): %w", seed, seed, err)
		}
		asked += d.asked
		for reply, n := range d.seen {
			seen[reply] += n
		}
	}
	return asked, seen, nil
}

func TestLeaseScriptsAgreeWithTheOracle(t *testing.T) {
	first, last := leaseSeeds(t, 150)
	asked, seen, err := duels(t.Context(), miniLease(t), oracle.All, first, last, 40)
	t.Logf("seeds %d to %d, %d questions: %v", first, last, asked, seen)
	if err != nil {
		t.Fatal(err)
	}
	if asked >= 4000 && len(seen) < 14 {
		t.Errorf("only the replies %v were seen", slices.Sorted(maps.Keys(seen)))
	}
}

func TestLeaseScriptsAgreeWithTheOracleOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	first, last := leaseSeeds(t, 100)
	asked, seen, err := duels(t.Context(), realLease(t, redistest.Start(t)), oracle.All, first, last, 40)
	t.Logf("seeds %d to %d, %d questions: %v", first, last, asked, seen)
	if err != nil {
		t.Fatal(err)
	}
}
