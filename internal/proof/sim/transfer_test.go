package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// TestTransferRulesAreNeeded switches a rule of transfers off, and expects that the checker sees
// it. Those that no run shows alone (reserve-once, reserve-clamp) have rows in the tables of
// internal/redisstore.
func TestTransferRulesAreNeeded(t *testing.T) {
	calm := named(t, "steady: calm, transfers")
	calm.Alone = true
	for _, tt := range []struct {
		without string
		profile Profile
		rules   oracle.Rules
		broken  Broken
		sign    string
		first   uint64 // of the seeds: one that showed it
		seeds   uint64
	}{
		{"reserve", calm, oracle.Reserve, Broken{}, "transfer", firstSeed, 3},
		{"heir-waits", named(t, "transfers and failovers"), oracle.HeirWaits, Broken{}, "P1", 2390, 1},
		{"transfer-token", named(t, "transfers"), 0, Broken{HeedsAnyOrder: true}, "transfer", firstSeed, 20},
	} {
		t.Run(tt.without, func(t *testing.T) {
			t.Parallel()
			for seed := tt.first; seed < tt.first+tt.seeds; seed++ {
				c := New(Options{Seed: seed, Profile: tt.profile, Rules: oracle.All.Without(tt.rules), Broken: tt.broken}).Run()
				if c.Wrong == "" {
					continue
				}
				if c := New(Options{Seed: seed, Profile: tt.profile}).Run(); c.Wrong != "" {
					t.Fatalf("seed %d, with the rule: %s", seed, c.Wrong)
				}
				if !strings.HasPrefix(c.Wrong, tt.sign+":") {
					t.Errorf("seed %d: %s, want %s", seed, c.Wrong, tt.sign)
				}
				t.Logf("seed %d at %v: %s", seed, c.At, c.Wrong)
				return
			}
			t.Errorf("not seen in %d runs of %q", tt.seeds, tt.profile.Name)
		})
	}
	if testing.Short() {
		calm.Length = 5 * 24 * time.Hour
	}
	var all Tally
	for seed := firstSeed; seed < firstSeed+2; seed++ {
		c := New(Options{Seed: seed, Profile: calm}).Run()
		all.Add(&c.Tally)
	}
	if all.Transfers < 100 || all.Ended[lease.Transferred] < all.Transfers/2 {
		t.Errorf("%d transfers, %d of them ended a term", all.Transfers, all.Ended[lease.Transferred])
	}
}

// TestPrioritiesAreHeeded: a better candidate that is there and hears is rarely passed over, as it
// may be if it has just come, and often without the rule.
func TestPrioritiesAreHeeded(t *testing.T) {
	share := func(name string, rules oracle.Rules) float64 {
		var all Tally
		p := named(t, name)
		p.Length = min(p.Length, 10*24*time.Hour)
		for seed := firstSeed; seed < firstSeed+60; seed++ {
			c := New(Options{Seed: seed, Profile: p, Rules: rules}).Run()
			if c.Wrong != "" {
				t.Errorf("%s, seed %d: %s", name, seed, c.Wrong)
			}
			all.Add(&c.Tally)
			if p.Length > time.Hour {
				break
			}
		}
		t.Logf("%s: %d of %d", name, all.PassedOver, all.Chosen)
		return float64(all.PassedOver) / float64(all.Chosen)
	}
	for name, most := range map[string]float64{"election alone: calm, priorities": 0.02, "priorities": 0.25} {
		with, without := share(name, oracle.All), share(name, oracle.All.Without(oracle.Yield))
		if with > most || without < 2*with || without < 0.3 {
			t.Errorf("%s: passed over in %.3f of the terms, without the rule in %.3f", name, with, without)
		}
	}
}
