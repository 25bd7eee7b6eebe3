package virtual

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// TestVirtualReplay: a seed repeats the very same history until the processes are told to stop, at
// the second try nearly always. That it always does so cannot be had: several goroutines of a
// process call Redis at one instant, and which of them gets which connection depends on what Go
// leaves open and no seed decides. The children of a context are cancelled in the order of a map,
// timers of one instant fire in random order, a select between two ready cases draws, and on a
// busy machine the runtime takes the processor away in between. A process with a registry and
// tasks has more of this, so its cluster plays for a shorter time; one with many roles has too
// much of it, and is left out. So of a few runs two must be the same: anything else that draws at
// random would make all of them differ. It sleeps in virtual time.
func TestVirtualReplay(t *testing.T) {
	const maxTries = 8 // of 3 all differed once: a drawn order had two outcomes, and a busy machine added a third
	if !simnet.Exact(t) {
		t.Skip("the race detector disturbs the order of goroutines")
	}
	length := 3 * time.Minute
	if testing.Short() {
		length = 80 * time.Second
	}
	for seed, profile := range slices.Concat(hotProfiles, steadyProfiles[:1]) {
		if testing.Short() && seed%7 != 0 || profile.roles > 0 {
			continue
		}
		seen, plays := map[uint64]bool{}, length
		if profile.tasks { // more calls at one instant: as many coincidences in a third of the time
			plays = length / 3
		}
		for tries := 1; ; tries++ {
			r := play(t, Request{Profile: profile.name, Seed: uint64(seed), Length: time.Duration(profile.pace.stretch) * plays})
			if seen[r.Digest] {
				break
			}
			if seen[r.Digest] = true; tries == maxTries {
				t.Errorf("seed %d (%s): the digests of all %d runs differ", seed, profile.name, tries)
				break
			}
		}
	}
}
