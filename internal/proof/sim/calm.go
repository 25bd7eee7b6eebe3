package sim

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/schedule"
)

// lookout is what holds a cluster in which nothing has gone wrong for a while: somebody leads, the
// same who led when it was looked last, everybody asks, is active, and hears. The other checks say
// that nothing wrong has happened, this one that what should happen has.
type lookout struct {
	disturbed time.Duration // until then something was wrong
	since     time.Duration // disturbed, when it was looked last
	token     int64         // of who led then
}

// disturb notes that something is wrong until then.
func (c *Cluster) disturb(until time.Duration) { c.lookout.disturbed = max(c.lookout.disturbed, until) }

// upset notes it of a message that is held up or lost until then. Beats and sweeps keep nobody from
// leading.
func (c *Cluster) upset(m *message, until time.Duration) {
	if m.about == aboutLease || m.about == aboutTask {
		c.disturb(until)
	}
}

// leaderBound is the longest that a role may be without a leader after the last fault (P7): the
// lease that its dead leader left, or that the late request of a dead campaign was granted, runs
// out; the longest sleeper wakes; what it asks first had no answer; it finds that data were lost
// and holds off, for a second more if a server is young.
func (c *Cluster) leaderBound() time.Duration {
	p := &c.profile
	ttl := slices.Max(p.TTLs)
	holdOff := max(ttl, p.HoldOff) + p.Margin + time.Second
	asks := p.retry(ttl)*11/10 + ttl/3 + 2*ttl/6 // Retry with its jitter, an attempt, two backoffs
	for _, i := range c.instances {
		asks = max(asks, p.retry(ttl)*11/10+ttl/3+2*ttl/6+c.ramp(i))
	}
	bound := ttl + p.Drain + c.yield() + asks + holdOff + 100*time.Millisecond
	if !p.Alone {
		bound += schedule.CallBound + schedule.FinishBound // the end of a run is recorded before the lease goes back
	}
	return bound + time.Duration(2*p.Rate*float64(bound))
}

// calmBound is how long after the last fault everything must be in order.
func (c *Cluster) calmBound() time.Duration {
	bound := c.leaderBound()
	for _, p := range c.instances {
		bound = max(bound, p.earBound()+reconnect)
	}
	if !c.profile.Alone {
		bound = max(bound, c.beatPatience())
	}
	return bound
}

// peace is how long nothing new goes wrong in the middle of a run and at its end: what lasts from
// before ends, and the bound passes.
func (c *Cluster) peace() time.Duration {
	ttl := slices.Max(c.profile.TTLs)
	return max(14*ttl, 5*ttl+c.profile.Lag+c.profile.Second+2*c.calmBound())
}

// quiet reports whether nothing new goes wrong at an instant, and when that ends.
func (c *Cluster) quiet(at time.Duration) (until time.Duration, quiet bool) {
	middle, peace := c.profile.Length/2, c.peaceful
	switch {
	case at >= c.profile.Length-peace:
		return c.profile.Length, true
	case at >= middle && at < middle+peace && c.profile.Length > 4*peace:
		return middle + peace, true
	}
	return 0, false
}

// sound reports whether the network is, at this instant.
func (c *Cluster) sound() bool {
	_, quiet := c.quiet(c.now)
	return quiet
}

// look holds the cluster to it, when it has been calm for long enough.
func (c *Cluster) look() {
	l := &c.lookout
	bound := c.calmBound()
	due := l.disturbed + bound
	back := time.Duration(-1)
	for _, p := range c.instances {
		if p.listening() {
			if stands := p.cand.StandsBack(p.reading()); back < 0 || stands < back {
				back = stands
			}
		}
	}
	leader := c.leading()
	switch {
	case due > c.now:
	case leader == nil && back > 0 && c.now < due+c.longestStandBack(): // work failed everywhere: nobody campaigns yet
		due = c.now + back + bound
	case back < 0: // nobody is there
		due = c.now + bound
	case leader == nil && c.foreign() > 0:
		due = c.now + c.foreign() + bound
	default:
		c.Tally.Looks++
		c.calmly(leader)
		due = c.now + bound
	}
	c.queue.push(event{at: due, what: evLook})
}

// foreign is how much longer a lease stands that has no term beside it, since that was evicted: it
// looks like a lease of another program, which is respected for as long as it stands, also if
// the clock was set back.
func (c *Cluster) foreign() time.Duration {
	if l, t := c.master.Lease, c.master.Term; l.Holder != "" && l.Holder != t.Holder {
		return time.Duration(l.Expires-c.master.clock(c.now)) * time.Millisecond
	}
	return 0
}

// longestStandBack is for how long a process does not campaign after its work failed.
func (c *Cluster) longestStandBack() (longest time.Duration) {
	for _, p := range c.instances {
		longest = max(longest, p.timing.Penalty*11/10)
	}
	return longest
}

// listening: the process is there and means to stay.
func (p *instance) listening() bool { return p.awake() && !p.stopping && !p.cut() }

func (c *Cluster) calmly(leader *instance) {
	l := &c.lookout
	if leader == nil {
		c.fail("P7: nobody leads %v after the last fault, at most %v is promised", c.now-l.disturbed, c.leaderBound())
		return
	}
	if token := leader.cand.Token(); l.since == l.disturbed && l.token != 0 && l.token != token {
		c.fail("P12: in the calm the leader changed: %s leads with token %d, before it was %d", leader.id, token, l.token)
	}
	l.since, l.token = l.disturbed, leader.cand.Token()
	if c.now-l.disturbed > c.tasksBound() && c.now-c.checks.termBegan > c.tasksBound() {
		c.tasksRun(leader)
	}
	patience := c.calmBound() + c.longestStandBack()
	for _, p := range c.instances {
		if silent := c.now - p.asked; p.listening() && silent > patience {
			c.fail("P7: %s has asked nothing for %v, at most %v is promised", p.id, silent, patience)
		}
		c.beats(p)
		if p.listening() && (p.ear.dead || p.ear.at != c.master) {
			c.fail("P7: the subscription of %s has been deaf for %v, at most %v is promised", p.id, c.now-l.disturbed, p.earBound()+reconnect)
		}
	}
}

// beats: in the calm each living instance is registered, active, and has just sent a heartbeat
// (P9).
func (c *Cluster) beats(p *instance) {
	if c.profile.Alone || !p.listening() || c.now-c.checks.booted[p.host] < c.beatPatience() {
		return
	}
	i, there := c.master.registry.Instances[p.id]
	silent := c.master.clock(c.now) - c.master.registry.Beats[p.id]
	patience := c.beatPatience() // with one that strayed
	patience += time.Duration(max(p.beats.lost-1, 0)) * (membership.MaxBound + c.timings().beat/3)
	switch {
	case !there:
		c.fail("P9: %s lives and is not registered", p.id)
	case i.Incarnation != p.beats.incarnation:
		c.fail("P9: %s lives and the record is that of %s", p.id, i.Incarnation)
	case i.Status == "drifted" && silent <= patience.Milliseconds() && c.timings().drifted <= patience:
		// One heartbeat that is given up is enough, with the periods that were drawn.
	case i.Status != "active":
		c.fail("P9: %s lives and counts as %s", p.id, i.Status)
	case silent > patience.Milliseconds():
		c.fail("P9: the last heartbeat of %s is %d ms old", p.id, silent)
	}
}

// beatPatience is how old the last heartbeat may be in the calm: an interval with its jitter, the
// bound of a first one that came too late, as far as two clocks may differ.
func (c *Cluster) beatPatience() time.Duration {
	patience := c.timings().beat*105/100 + 2*membership.MaxBound
	return patience + time.Duration(2*c.profile.Rate*float64(patience)) + 100*time.Millisecond
}
