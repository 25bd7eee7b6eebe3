package oracle

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// runsPerCampaign is how many seeds each campaign runs. TENURE_SIM_RUNS sets another number, TENURE_SIM_SEED replays one seed and
// prints what happened.
func runsPerCampaign(t *testing.T) uint64 {
	if text := os.Getenv("TENURE_SIM_RUNS"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("TENURE_SIM_RUNS: %v", err)
		}
		return n
	}
	if testing.Short() || raceEnabled {
		return 10
	}
	return 150
}

// firstSeed: the seeds are the same everywhere.
const firstSeed = uint64(1)

// TestPromisesUnderFaults is the simulation: at no instant do two believe to lead (P1), tokens strictly increase (P2), nothing of
// another campaign is touched (P5), only an explicit refusal ends a term as lost (P12), and somebody leads in the end (P7).
func TestPromisesUnderFaults(t *testing.T) {
	t.Parallel()
	if text := os.Getenv("TENURE_SIM_SEED"); text != "" {
		replay(t, text)
		return
	}
	runs := runsPerCampaign(t)
	for _, c := range campaigns {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			terms, seats := 0, 0
			for seed := firstSeed; seed < firstSeed+runs; seed++ {
				w := simulate(seed, c, All, broken{})
				terms, seats = terms+len(w.terms), seats+w.seats
				if len(w.wrong) > 0 {
					t.Errorf("seed %d: %s\nreplay: TENURE_SIM_SEED=%d go test -run '%s' ./internal/oracle", seed, w.wrong[0], seed, t.Name())
				}
			}
			t.Logf("%d runs from seed %d, %d terms, %d changes of the leader", runs, firstSeed, terms, seats)
			if terms < int(runs) {
				t.Errorf("only %d terms in %d runs: the campaign shows nothing", terms, runs)
			}
		})
	}
}

func replay(t *testing.T, text string) {
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("TENURE_SIM_SEED: %v", err)
	}
	for _, c := range campaigns {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(seed, c, All, broken{})
			w.tracing = true
			w.run()
			if len(w.wrong) > 0 {
				t.Errorf("%s\n%s", w.wrong[0], strings.Join(w.journal[max(0, len(w.journal)-200):], "\n"))
			}
		})
	}
}

func TestSeedReplays(t *testing.T) {
	for _, c := range campaigns {
		journal := func() string {
			w := newWorld(3, c, All, broken{})
			w.tracing = true
			return strings.Join(w.run().journal, "\n")
		}
		if first := journal(); first != journal() || len(first) < 1000 {
			t.Errorf("%s: the same seed runs differently", c.name)
		}
	}
}

// TestEveryRuleIsNeeded switches one rule of the scripts, or of the client, off and expects that the checker sees it, in runs that are
// clean with it. What reclaim and not-after are for shows in the next test; arm-in-renew and adopt-guard take so many coincidences
// that only the tables of package tenure show them.
func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()
	far := func(c campaign) campaign { c.holdOff, c.quiet = 0, 5*time.Second; return c }
	tests := []struct {
		without  string
		campaign campaign
		rules    Rules
		broken   broken
		sign     string
		runs     uint64 // within which it shows
	}{
		{"until", named("operator DEL"), Until, broken{}, "overlap", 50},
		{"memory", named("FLUSHALL, candidates remember"), Memory, broken{}, "overlap", 50},
		{"guard", named("failover"), Guard, broken{}, "overlap", 100},
		{"rollcall", named("FLUSHALL, roll-call"), RollCall, broken{}, "overlap", 100},
		{"time", named("FLUSHALL, roll-call"), Time, broken{}, "token back", 500},
		{"longest-ttl", named("TTLs differ, failover"), LongestTTL, broken{}, "overlap", 50},
		{"clamp", named("clock set back"), Clamp, broken{}, "stuck", 50},
		{"unknown-origin", named("one without INFO"), UnknownOrigin, broken{}, "stuck", 100},
		{"nonce-holder", named("hand-overs and failovers"), NonceHolder, broken{}, "changed the lease", 1000},
		{"own-late", named("delayed requests, late replies"), 0, broken{ownLate: true}, "overlap", 100},
		{"floor learned", named("FLUSHALL, candidates remember"), 0, broken{noFloor: true}, "overlap", 50},
		{"TTL learned", far(named("hand-overs and failovers, TTLs differ")), 0, broken{noLongest: true}, "overlap", 50},
		{"deadline from before the request", named("delayed requests, late replies"), 0, broken{replyDeadline: true}, "overlap", 200},
		{"errors mean unknown", named("delayed requests, late replies"), 0, broken{heedsErrors: true}, "refused", 100},
		{"failover margin", named("second master"), 0, broken{noMargin: true}, "overlap", 500},
		{"drift margin", drifting(), 0, broken{noDrift: true}, "overlap", 200},
	}
	for _, tt := range tests {
		if raceEnabled && tt.runs > 200 {
			continue // it shows without the race detector
		}
		t.Run(tt.without, func(t *testing.T) {
			t.Parallel()
			for seed := firstSeed; seed < firstSeed+tt.runs; seed++ {
				if w := simulate(seed, tt.campaign, All.Without(tt.rules), tt.broken); len(w.wrong) > 0 {
					if w := simulate(seed, tt.campaign, All, broken{}); len(w.wrong) > 0 {
						t.Fatalf("seed %d, with the rule: %s", seed, w.wrong[0])
					}
					if !strings.Contains(w.wrong[0], tt.sign) {
						t.Errorf("seed %d: %s, want %s", seed, w.wrong[0], tt.sign)
					}
					t.Logf("seed %d: %s", seed, w.wrong[0])
					return
				}
			}
			t.Errorf("not seen in %d runs of %q", tt.runs, tt.campaign.name)
		})
	}
}

// drifting has Redis's clock faster or slower by up to the default drift margin, and nothing else that goes wrong often.
func drifting() campaign {
	return usual(campaign{name: "drift", faults: []fault{partition, freeze}, rate: 0.0095})
}

// TestRulesThatKeepLeaders holds the two rules whose absence costs availability, not safety.
func TestRulesThatKeepLeaders(t *testing.T) {
	const runs = 20
	count := func(name string, rules Rules) (refused, ghosts int) {
		for seed := firstSeed; seed < firstSeed+runs; seed++ {
			w := simulate(seed, named(name), rules, broken{})
			if len(w.wrong) > 0 {
				t.Errorf("%s, seed %d: %s", name, seed, w.wrong[0])
			}
			refused, ghosts = refused+w.tally[lease.Refused], ghosts+w.ghosts
		}
		return refused, ghosts
	}
	with, _ := count("restart, nothing kept", All)
	without, _ := count("restart, nothing kept", All.Without(Reclaim))
	t.Logf("terms that a restart ended: %d, without reclaim %d", with, without)
	if without < 10 || without < 4*with {
		t.Errorf("a restart ends %d terms, and %d without the rule reclaim", with, without)
	}
	_, with = count("hand-overs and failovers", All)
	_, without = count("hand-overs and failovers", All.Without(NotAfter))
	t.Logf("leases granted to a dead campaign: %d, without not-after %d", with, without)
	if without < 10 || without < 4*with {
		t.Errorf("%d leases are granted to dead campaigns, and %d without the rule not-after", with, without)
	}
}

func named(name string) campaign {
	for _, c := range campaigns {
		if c.name == name {
			return c
		}
	}
	panic("no campaign " + name)
}
