package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// script is a cluster whose history a test tells: no process has started, no fault is planned, and
// the network is sound. The seed draws for how long messages travel, and how fast Redis's clocks
// go.
func script(seed uint64, rules oracle.Rules, ttls ...time.Duration) *Cluster {
	return scriptOf(seed, rules, Profile{TTLs: ttls})
}

// scriptOf is script with more of the profile.
func scriptOf(seed uint64, rules oracle.Rules, p Profile) *Cluster {
	p.Name, p.Alone, p.Length = "script", true, 15*time.Second
	p = usual(p)
	p.Lost = 0
	return New(Options{Seed: seed, Profile: p, Rules: rules, Trace: true})
}

// starts starts a process, which asks at once.
func (c *Cluster) starts(p *instance) {
	p.boot()
	p.turn()
}

// until lets events happen until something is so.
func (c *Cluster) until(what string, is func() bool) {
	for c.Wrong == "" && !is() {
		if !c.step(c.end) {
			c.fail("script: %s: not until %v", what, c.now)
		}
	}
}

// pass lets events happen for a time.
func (c *Cluster) pass(d time.Duration) {
	end := c.now + d
	c.advance(end)
	c.now = max(c.now, end)
}

// TestHoldOffGrows: the leader was granted its lease after the snapshot that a failover promotes,
// and its TTL was named after it too. Who asks first on the new master arms a hold-off that is too
// short. Another names the TTL again before the next grant: while the hold-off runs, or after its
// end if the first one has died. Without the rule hold-grows one of them is granted the lease while
// the old leader, which cannot reach the new master, still leads. Random histories come to that in
// one run of 60,000.
func TestHoldOffGrows(t *testing.T) {
	t.Parallel()
	const long, short = hotTTL, hotTTL * 3 / 10
	play := func(seed uint64, rules oracle.Rules, moment time.Duration, dies bool) *Cluster {
		c := script(seed, rules, long, short)
		leader, before, first, next := c.instances[0], c.instances[1], c.instances[3], c.instances[2]
		c.starts(before)
		c.until("a leader with the short TTL", before.believes)
		snapshot := snapshot{c.master.save(), c.master, c.strikes}
		before.crash()
		c.starts(leader)
		c.until("a leader with the long TTL", leader.believes)
		leader.cutTill = c.end
		c.promote(snapshot)
		c.starts(first)
		c.until("the hold-off is armed", func() bool { return c.master.Term.Armed > 0 })
		if armed := c.master.Term.Armed; armed != short.Milliseconds() {
			c.fail("script: the hold-off that was armed is of %d ms", armed)
		}
		if dies {
			first.crash()
		}
		c.pass(moment)
		c.starts(next)
		c.until("a leader whom the new master knows", func() bool { return first.believes() || next.believes() })
		return c
	}
	for seed := firstSeed; seed < firstSeed+20; seed++ {
		for _, tt := range []struct {
			moment time.Duration // after the hold-off was armed
			dies   bool          // the one that armed it, at once
		}{
			{0, false}, {short / 2, false}, {short * 9 / 10, false},
			{0, true}, {short / 2, true}, {short * 11 / 10, true}, {long / 2, true}, {long * 9 / 10, true},
		} {
			with := play(seed, oracle.All, tt.moment, tt.dies)
			if with.Wrong != "" || with.Tally.LongestLost != 0 {
				t.Errorf("seed %d, %+v: %q, %d terms beside another\n%s", seed, tt, with.Wrong, with.Tally.LongestLost, strings.Join(with.Trace(), "\n"))
			}
			without := play(seed, oracle.All.Without(oracle.HoldGrows), tt.moment, tt.dies)
			if !strings.HasPrefix(without.Wrong, "P1:") {
				t.Errorf("seed %d, %+v, without the rule: %q, want an overlap\n%s", seed, tt, without.Wrong, strings.Join(without.Trace(), "\n"))
			}
			if t.Failed() {
				return
			}
		}
	}
}

// TestHoldOffIsNotShortened: a failover right after the first grant loses it, with all that Redis
// knew of its TTL. A candidate that was refused by that lease arms the hold-off, and one that was
// not asks next: without the rule careful-clamp it shortens the hold-off to what it knows. One that
// has the long TTL comes too late: the hold-off seems to be of that length already.
func TestHoldOffIsNotShortened(t *testing.T) {
	t.Parallel()
	const long, short = 3 * hotTTL, hotTTL / 2 // far apart: by whole seconds a guard may be longer than the TTL
	play := func(seed uint64, rules oracle.Rules, moment time.Duration) *Cluster {
		c := script(seed, rules, long, short)
		leader, refused, next, late := c.instances[0], c.instances[1], c.instances[3], c.instances[2]
		snapshot := snapshot{c.master.save(), c.master, c.strikes}
		c.starts(leader)
		c.until("the first leader", leader.believes)
		c.starts(refused)
		c.until("a candidate that was refused", func() bool { return refused.cand.State() == lease.Following && refused.expected == 0 })
		leader.cutTill = c.end
		c.promote(snapshot)
		refused.turn()
		c.until("the hold-off is armed", func() bool { return c.master.Term.Armed > 0 })
		if armed := c.master.Term.Armed; armed != long.Milliseconds() {
			c.fail("script: the hold-off that was armed is of %d ms", armed)
		}
		c.pass(moment)
		c.starts(next)
		c.until("the next has asked", func() bool { return next.expected == 0 })
		c.starts(late)
		c.until("a leader whom the new master knows", func() bool { return refused.believes() || next.believes() || late.believes() })
		return c
	}
	for seed := firstSeed; seed < firstSeed+20; seed++ {
		for _, moment := range []time.Duration{0, short / 2} {
			if with := play(seed, oracle.All, moment); with.Wrong != "" || with.Tally.LongestLost != 0 {
				t.Fatalf("seed %d, %v: %q, %d terms beside another\n%s", seed, moment, with.Wrong, with.Tally.LongestLost, strings.Join(with.Trace(), "\n"))
			}
			if without := play(seed, oracle.All.Without(oracle.CarefulClamp), moment); !strings.HasPrefix(without.Wrong, "P1:") {
				t.Fatalf("seed %d, %v, without the rule: %q, want an overlap\n%s", seed, moment, without.Wrong, strings.Join(without.Trace(), "\n"))
			}
		}
	}
}

// TestLongestTTLLost: what no rule can see is counted, not wrong: the first grant is lost, and
// nobody who has the longer TTL, or was refused by that lease, asks before the hold-off is over.
// HoldOff is for that.
func TestLongestTTLLost(t *testing.T) {
	t.Parallel()
	const long, short = 3 * hotTTL, hotTTL / 2
	for seed := firstSeed; seed < firstSeed+20; seed++ {
		for _, holdOff := range []time.Duration{0, long} {
			c := scriptOf(seed, oracle.All, Profile{TTLs: []time.Duration{long, short}, HoldOff: holdOff})
			leader, next := c.instances[0], c.instances[1]
			snapshot := snapshot{c.master.save(), c.master, c.strikes}
			c.starts(leader)
			c.until("the first leader", leader.believes)
			leader.cutTill = c.end
			c.promote(snapshot)
			c.starts(next)
			c.until("a leader whom the new master knows", next.believes)
			if lost := c.Tally.LongestLost > 0; c.Wrong != "" || lost != (holdOff == 0) {
				t.Fatalf("seed %d, HoldOff %v: %q, %d terms beside another\n%s", seed, holdOff, c.Wrong, c.Tally.LongestLost, strings.Join(c.Trace(), "\n"))
			}
		}
	}
}
