package tenure

import (
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/simnet"
)

// Everything here sleeps in virtual time.

// TestVirtualFaults plagues worlds of five instances for ten minutes each, every seed with its own faults, and holds P1, P2, P3, P4,
// P7, P8, P10 and P11 against all that happens. TENURE_SEEDS=200 runs that many seeds (100-200:
// the second half of them), TENURE_SEED=17 that one alone, as before (see TestVirtualReplay), and prints the end of its trace.
func TestVirtualFaults(t *testing.T) {
	simnet.Exact(t)
	virtualGC(t)
	first, count := virtualSeeds(t)
	var all virtualFigures
	began := time.Now()
	for seed := first; seed < first+count; seed++ {
		profile := virtualProfiles[seed%uint64(len(virtualProfiles))]
		t.Run(fmt.Sprintf("seed=%d/%s", seed, profile.name), func(t *testing.T) {
			_, figures := virtualRun(t, seed, profile, virtualLength)
			all.add(figures)
		})
	}
	t.Logf("%d seeds of %v: %v in %v", count, virtualLength, &all, time.Since(began).Round(time.Millisecond))
}

// TestVirtualReplay: a seed repeats the very same history, at the second try unless the machine is so busy that the runtime takes
// the processor away from a goroutine between two others of one instant. Not that of coordinators: their loops act at one
// instant, and a bubble runs the timers of one instant in random order.
func TestVirtualReplay(t *testing.T) {
	if !simnet.Exact(t) {
		t.Skip("the race detector disturbs the order of goroutines")
	}
	virtualGC(t)
	length := 3 * time.Minute
	if testing.Short() {
		length = 80 * time.Second
	}
	for seed, profile := range virtualProfiles {
		if profile.tasks {
			continue
		}
		seen := map[uint64]bool{}
		for tries := 1; ; tries++ {
			digest, _ := virtualRun(t, uint64(seed), profile, length)
			if seen[digest] {
				break
			}
			if seen[digest] = true; tries == 4 {
				t.Errorf("seed %d (%s): the digests of all %d runs differ", seed, profile.name, tries)
				break
			}
		}
	}
}

const virtualLength = 10 * time.Minute

// virtualSeeds says which seeds to run.
func virtualSeeds(t *testing.T) (first, count uint64) {
	number := func(name, text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	if seed, set := os.LookupEnv("TENURE_SEED"); set {
		return number("TENURE_SEED", seed), 1
	}
	if seeds, set := os.LookupEnv("TENURE_SEEDS"); set {
		from, to, ranged := strings.Cut(seeds, "-")
		if !ranged {
			from, to = "0", seeds
		}
		first = number("TENURE_SEEDS", from)
		return first, number("TENURE_SEEDS", to) - first
	}
	switch {
	case testing.Short():
		return 0, 4
	case simnet.Race:
		return 0, uint64(len(virtualProfiles))
	}
	return 0, 3 * uint64(len(virtualProfiles))
}

// virtualGC spares the collector work: miniredis builds a Lua state for each script, and all of it is garbage at once.
func virtualGC(t *testing.T) {
	percent, limit := debug.SetGCPercent(800), debug.SetMemoryLimit(1<<30)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	})
}

// virtualFigures count what happened.
type virtualFigures struct {
	terms, accepted, refused, runs   int
	expired, lost, resigned, stopped int // terms, by the cause of their end; the others crashed
	events                           int64
	crash, handover                  time.Duration // longest, in calm profiles
}

func (f *virtualFigures) add(g virtualFigures) {
	f.terms += g.terms
	f.accepted += g.accepted
	f.refused += g.refused
	f.runs += g.runs
	f.expired += g.expired
	f.lost += g.lost
	f.resigned += g.resigned
	f.stopped += g.stopped
	f.events += g.events
	f.crash, f.handover = max(f.crash, g.crash), max(f.handover, g.handover)
}

func (f *virtualFigures) String() string {
	return fmt.Sprintf("%d terms (%d expired, %d lost, %d resigned, %d stopped), %d writes accepted, %d fenced off, %d runs of tasks, %d events of "+
		"the network; calm: longest crash failover %v, hand-over %v", f.terms, f.expired, f.lost, f.resigned, f.stopped, f.accepted, f.refused,
		f.runs, f.events, f.crash, f.handover)
}

func (c *virtualChecker) figures() virtualFigures {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := virtualFigures{
		terms: c.terms, accepted: c.resource.accepted, refused: c.resource.refused, runs: c.tasks.runs, events: c.w.net.Trace.Count(),
		expired: c.endings[errExpired], lost: c.endings[ErrLost], resigned: c.endings[ErrResigned], stopped: c.endings[ErrStopped],
	}
	if c.w.setup.calm {
		f.crash, f.handover = c.failover.crash, c.failover.handover
	}
	return f
}

// virtualRun plagues one world, in virtual time (testing/synctest). Its last minute is calm, and somebody must lead well before its end.
func virtualRun(t *testing.T, seed uint64, profile virtualProfile, length time.Duration) (digest uint64, f virtualFigures) {
	t.Helper()
	digest = inVirtualTime(t, seed, profile.setup(), func(w *virtualWorld) {
		if profile.noInfo {
			w.redis.SetInfo("i0", false)
		}
		w.start()
		(&virtualNemesis{virtualWorld: w, profile: profile}).run(length - time.Minute)
		w.note("test", "calm", "", 0)
		time.Sleep(20 * time.Second)
		settled := w.leader()
		if settled == nil {
			w.check.fail("P7: nobody leads after 30 s of calm")
		}
		for range 30 {
			time.Sleep(time.Second)
			if leader := w.leader(); leader != settled {
				w.check.fail("P12: in the calm the leader changed")
				break
			}
		}
		if profile.tasks {
			w.checkTasks()
		}
		f = w.check.figures()
		if _, alone := os.LookupEnv("TENURE_SEED"); alone {
			w.Logf("%v\n%s", &f, w.net.Trace.Tail(120))
		}
	})
	return digest, f
}
