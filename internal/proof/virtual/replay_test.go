package virtual

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestVirtualReplay: a seed repeats the very same history, at the second try unless the machine is
// so busy that the runtime takes the processor away from a goroutine between two others of one
// instant: then two connections change places. A process with tasks makes several calls at one
// instant, and so it happens to it more often. It sleeps in virtual time.
func TestVirtualReplay(t *testing.T) {
	if !simnet.Exact(t) {
		t.Skip("the race detector disturbs the order of goroutines")
	}
	length := 3 * time.Minute
	if testing.Short() {
		length = 80 * time.Second
	}
	for seed, profile := range slices.Concat(hotProfiles, steadyProfiles[:1]) {
		if testing.Short() && seed%7 != 0 {
			continue
		}
		seen := map[uint64]bool{}
		for tries := 1; ; tries++ {
			r := play(t, Request{Profile: profile.name, Seed: uint64(seed), Length: time.Duration(profile.pace.stretch) * length})
			if seen[r.Digest] {
				break
			}
			if seen[r.Digest] = true; tries == 4 {
				t.Errorf("seed %d (%s): the digests of all %d runs differ", seed, profile.name, tries)
				break
			}
		}
	}
}
