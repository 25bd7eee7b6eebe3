//go:build unix

package fleet

import (
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/hostclock"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// openDeploys starts a server whose members are deployed again and again.
func openDeploys(t redistest.TB, _ int) servers {
	w := newSingle(t, true)
	w.deck = append(pick(processFaults, faultDrain),
		fault{faultDeploy, 3, func(c *cluster) Strike { return c.deploy(true) }},
		fault{faultDeployDown, 3, func(c *cluster) Strike { return c.deploy(false) }},
	)
	return w
}

// The deploys, which may cost so many changes of the leader.
const (
	faultDeploy     = "deploy, each new one starts first"
	faultDeployDown = "deploy, each old one stops first"
)

// deploy replaces each member by one of a new version, one after the other in a drawn order. With
// surge the old one stops once the new one takes part.
func (c *cluster) deploy(surge bool) Strike {
	c.version++
	strike := Strike{Most: 1}
	old := slices.Clone(c.instances)
	c.rng.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	for n, s := range old {
		fresh := c.spare()
		if surge {
			c.join(fresh)
		} else if s == c.leader() && n == 0 {
			strike.Most = 2 // no instance of the new version is there
		}
		s.stop()
		c.instances = slices.DeleteFunc(c.instances, func(other *instance) bool { return other == s })
		c.spares = append(c.spares, s)
		c.awaitLeader()
		if !surge {
			c.join(fresh)
		}
		strike.Targets = append(strike.Targets, s.name, fresh.name)
	}
	c.awaitLeader()
	c.wait(c.ttls(0.5, 0.5)) // what a deploy causes late belongs to it
	return strike
}

// spare takes a place without a process.
func (c *cluster) spare() *instance {
	if len(c.spares) == 0 {
		n := fleetSize + c.places
		c.places++
		return &instance{cluster: c, name: fmt.Sprintf("member-%d", n), link: newLink(c.t, c.servers.addresses())}
	}
	s := c.spares[0]
	c.spares = c.spares[1:]
	return s
}

// join starts a process of the version of now, and waits until it takes part: it is listed as
// active, its subscription hears, and it has had the time to ask who leads.
func (c *cluster) join(s *instance) {
	s.version = c.version
	s.start()
	c.instances = append(c.instances, s)
	began := hostclock.Now()
	for hostclock.Now()-began < patience {
		asked := hostclock.Now()
		s.tell()
		for hostclock.Now()-asked < patience && !c.journal.has(Listed, s.name, asked) {
			c.wait(look)
		}
		if c.journal.joined(s.name, asked) {
			c.wait(c.election.LeaseTTL * 2 / 3)
			return
		}
		c.wait(memberBeat)
	}
	c.t.Errorf("fleet: P9: %s has not joined within %v", s.name, patience)
}

// checkDeploys counts what each deploy has cost: every change of the leader while it went on.
func (c *checker) checkDeploys() {
	for _, s := range c.strikes {
		if s.Strike.Most == 0 {
			continue
		}
		changes := 0
		for i := range c.terms {
			if t := &c.terms[i]; t.At >= s.At && t.At <= s.Until {
				changes++
			}
		}
		lapsed := c.lapses(s.At, s.Until) // the machine was too busy to renew: not of the deploy
		if changes > s.Strike.Most+lapsed {
			c.violated("deploy", s.At, "%s cost %d changes of the leader, at most %d are promised, and %d leases lapsed", s.Text, changes, s.Strike.Most, lapsed)
		}
		if lapsed > 0 {
			c.deploys.disturbed++
			continue
		}
		c.deploys.count++
		c.deploys.changes += changes
		if s.Strike.Most == 1 {
			c.deploys.ready++
			c.deploys.readyChanges += changes
		}
	}
}

// lapsed reports whether a term was lost between two times.
func (c *checker) lapsed(from, to time.Duration) bool { return c.lapses(from, to) > 0 }

// lapses are the terms that were lost between two times.
func (c *checker) lapses(from, to time.Duration) (n int) {
	for _, s := range c.work {
		if s.end != nil && s.end.Text == endLost && s.end.Cancelled >= from-c.LeaseTTL && s.end.Cancelled <= to {
			n++
		}
	}
	return n
}

// deployFigures is what deploys have cost.
type deployFigures struct {
	count, changes      int
	ready, readyChanges int // of which an instance of the new version was there when the leader stopped
	disturbed           int // a lease lapsed meanwhile
}

func (f *deployFigures) add(o *deployFigures) {
	f.count, f.changes, f.ready, f.readyChanges, f.disturbed = f.count+o.count, f.changes+o.changes, f.ready+o.ready, f.readyChanges+o.readyChanges,
		f.disturbed+o.disturbed
}

// DeployReport is what deploys have cost.
type DeployReport struct {
	Deploys, Changes    int // of the leader
	Ready, ReadyChanges int // of these: an instance of the new version was there when the leader stopped
	Disturbed           int // not counted: a lease lapsed meanwhile
}

func (f *deployFigures) report() *DeployReport {
	if f.count+f.disturbed == 0 {
		return nil
	}
	return &DeployReport{f.count, f.changes, f.ready, f.readyChanges, f.disturbed}
}

func (r *DeployReport) String() string {
	return fmt.Sprintf("%d with an instance of the new version there when the leader stopped cost %d changes of the leader, %d others cost %d; in %d more a lease lapsed meanwhile",
		r.Ready, r.ReadyChanges, r.Deploys-r.Ready, r.Changes-r.ReadyChanges, r.Disturbed)
}
