package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// TestCalmIsNoticedWhereItIsWrong: after the last fault somebody leads and stays, every instance is
// active, every subscription hears. Without a rule, or with a mistake of a client, that is not so,
// and the checker says so.
func TestCalmIsNoticedWhereItIsWrong(t *testing.T) {
	alone := named(t, "delayed requests, late replies")
	alone.Alone = true // a leader that hears nothing of the end of its term would overlap its tasks first
	deaf := rough(Profile{Name: "subscriptions die", Faults: few(Deafen)})
	tests := []struct {
		name    string
		profile Profile
		rules   oracle.Rules // that are off
		broken  Broken
		sign    string
	}{
		{"a hold that a clock left behind", named(t, "clock set back"), oracle.Clamp, Broken{}, "P7: nobody leads"},
		{"a history that is stored untold", named(t, "one without INFO"), oracle.UnknownOrigin, Broken{}, "P7: nobody leads"},
		{"leases that lapse", named(t, "crash, partition, resign"), 0, Broken{NeverRenews: true}, "P12: in the calm the leader changed"},
		{"instances that live in silence", named(t, "delayed requests, late replies"), 0, Broken{LivesInSilence: true}, "P9:"},
		{"candidates that wait for ever", alone, 0, Broken{WaitsForEver: true}, "P7"},
		{"subscriptions that nobody checks", deaf, 0, Broken{NeverChecksItsEar: true}, "P7: the subscription of"},
		{"subscriptions to a master that was", named(t, "failover"), 0, Broken{NeverChecksItsEar: true}, "P7: the subscription of"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen, clean := 0, 0
			for seed := firstSeed; seed < firstSeed+20; seed++ {
				if testing.Short() && seen > 0 && clean >= 4 {
					break
				}
				c := New(Options{Seed: seed, Profile: tt.profile, Rules: oracle.All.Without(tt.rules), Broken: tt.broken}).Run()
				if strings.HasPrefix(c.Wrong, tt.sign) {
					seen++
				} else if c.Wrong != "" {
					t.Logf("seed %d: %s", seed, c.Wrong)
				}
				if c := New(Options{Seed: seed, Profile: tt.profile}).Run(); c.Wrong != "" || c.Tally.Looks == 0 {
					t.Errorf("seed %d, as it should be: %d looks, %s", seed, c.Tally.Looks, c.Wrong)
				} else {
					clean++
				}
			}
			t.Logf("seen in %d runs, %d are clean as it should be", seen, clean)
			if seen == 0 {
				t.Errorf("never seen: %s", tt.sign)
			}
		})
	}
}

// TestEveryRunEndsCalm: each run is held to it at least once, in its quiet tail.
func TestEveryRunEndsCalm(t *testing.T) {
	for _, p := range slices.Concat(Profiles, Outside) {
		if p.Alone && !p.Random {
			continue // as their likes with tasks
		}
		seeds := uint64(3)
		p.Length = min(p.Length, 12*time.Hour)
		if testing.Short() {
			p.Length, seeds = min(p.Length, 3*time.Hour), 1
		}
		for seed := firstSeed; seed < firstSeed+seeds; seed++ {
			if c := New(Options{Seed: seed, Profile: p}).Run(); c.Wrong != "" || c.Tally.Looks == 0 {
				t.Errorf("%s, seed %d: %d looks, %s", p.Name, seed, c.Tally.Looks, c.Wrong)
			}
		}
	}
}
