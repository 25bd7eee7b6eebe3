package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/oracle"
)

var randoms = slices.DeleteFunc(slices.Clone(Profiles), func(p Profile) bool { return !p.Random })

// TestConditionsAreJudgedMechanically: of the profiles that somebody has listed each breaks as many
// conditions as it was listed for.
func TestConditionsAreJudgedMechanically(t *testing.T) {
	within := map[string]string{ // though the rules of thumb say otherwise
		"FLUSHALL, candidates remember": "nobody starts without a memory",
		"steady: operator":              "a DEL and an eviction are too rare to meet within a lease",
		"election alone: operator":      "the same",
	}
	for _, p := range Profiles {
		if p.Random || within[p.Name] != "" {
			continue
		}
		if broken := p.broken(); len(broken) > 0 {
			t.Errorf("%s: is within the conditions of P1, and breaks %q", p.Name, broken)
		}
	}
	for _, p := range Outside {
		if broken := p.broken(); len(broken) != 1 {
			t.Errorf("%s: breaks one condition of P1, not %q", p.Name, broken)
		}
	}
}

// TestDrawnProfiles: a seed draws one profile, and many seeds draw everything, within what the
// options allow.
func TestDrawnProfiles(t *testing.T) {
	for _, p := range randoms {
		drawn, faults, outside := map[string]bool{}, map[Fault]bool{}, 0
		const seeds = 400
		for seed := range uint64(seeds) {
			q := p.Drawn(seed)
			drawn[q.String()] = true
			if again := p.Drawn(seed); fmt.Sprint(again) != fmt.Sprint(q) {
				t.Fatalf("%s, seed %d: drawn twice:\n%v\n%v", p.Name, seed, q, again)
			}
			for _, f := range q.Faults {
				faults[f] = true
			}
			if q.Outside {
				outside++
			}
			least := slices.Min(q.TTLs)
			if q.Margin >= least/3 || least < 300*time.Millisecond || q.Every <= 0 || q.Empty < 0 {
				t.Errorf("%s, seed %d: no options of an elector: %v", p.Name, seed, q)
			}
		}
		t.Logf("%s: %d of %d are outside of the conditions of P1", p.Name, outside, seeds)
		if len(drawn) < seeds || len(faults) < int(Transfer) || faults[Transfer] != p.Transfers || outside == 0 || outside > seeds/3 {
			t.Errorf("%s: %d profiles, %d kinds of faults, %d outside", p.Name, len(drawn), len(faults), outside)
		}
	}
}

// TestSuspensionsOverlap: a machine that is suspended five times before it wakes up loses the time
// that passes, and no more: its monotonic clock never goes back, or it would sleep on for that
// long.
func TestSuspensionsOverlap(t *testing.T) {
	p := named(t, "random: minutes")
	if c := New(Options{Seed: 3869, Profile: p}).Run(); c.Wrong != "" {
		t.Errorf("at %v: %s", c.At, c.Wrong)
	}
	c := New(Options{Seed: 1, Profile: p})
	a := c.instances[0]
	before := a.reading().Mono
	for i := range 3 {
		c.now = time.Duration(i+1) * time.Second
		a.suspend(c.now + 5*time.Second)
		if c.now = a.frozen; a.reading().Mono != before+time.Second {
			t.Errorf("the monotonic clock reads %v at %v, want %v", a.reading().Mono, c.now, before+time.Second)
		}
	}
}

// TestP2_DrawnProfilesFindWhatNoListHad: faults that met in no listed profile, among them a clock
// set back, made a token go back that a late request, a refused renewal or a release had named. A
// few thousand seeds found it, and the rule memory-ended fixes it.
func TestP2_DrawnProfilesFindWhatNoListHad(t *testing.T) {
	for _, tt := range []struct {
		profile string
		seed    uint64
	}{
		{"random: minutes", 13465}, // a late request
		{"random: minutes, tasks too", 1190},
		{"random: minutes", 4416},
	} {
		p := named(t, tt.profile)
		without := New(Options{Seed: tt.seed, Profile: p, Rules: oracle.All.Without(oracle.MemoryEnded)}).Run()
		if !strings.HasPrefix(without.Wrong, "P2:") {
			t.Errorf("%s, seed %d, without the rule: %q", tt.profile, tt.seed, without.Wrong)
		}
		if with := New(Options{Seed: tt.seed, Profile: p}).Run(); with.Wrong != "" {
			t.Errorf("%s, seed %d, with the rule: %s", tt.profile, tt.seed, with.Wrong)
		}
	}
}
