package sim

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/membership"
)

// lookout is what holds a world in which nothing has gone wrong for a while: somebody leads, the same who led when it was looked last,
// everybody asks, is active, and hears. The other checks say that nothing wrong has happened, this one that what should happen has.
type lookout struct {
	disturbed time.Duration // until then something was wrong
	since     time.Duration // disturbed, when it was looked last
	token     int64         // of who led then
}

// disturb notes that something is wrong until then.
func (w *World) disturb(until time.Duration) { w.lookout.disturbed = max(w.lookout.disturbed, until) }

// upset notes it of a message that is held up or lost until then. Beats and sweeps keep nobody from leading.
func (w *World) upset(m *message, until time.Duration) {
	if m.about == aboutLease || m.about == aboutTask {
		w.disturb(until)
	}
}

// leaderBound is the longest that a role may be without a leader after the last fault (P7): the lease that its dead leader left, or that
// the late request of a dead campaign was granted, runs out; whoever sleeps longest wakes; what it asks first had no answer; it finds
// that data were lost and holds off, for a second more where a server is young.
func (w *World) leaderBound() time.Duration {
	p := &w.profile
	ttl := slices.Max(p.TTLs)
	holdOff := max(ttl, p.HoldOff) + p.Margin + time.Second
	asks := ttl/2*11/10 + ttl/3 + 2*ttl/6 // Retry with its jitter, an attempt, two backoffs
	bound := ttl + p.Drain + asks + holdOff + 100*time.Millisecond
	if !p.Alone {
		bound += taskBound // the end of a run is told before the lease goes back
	}
	return bound + time.Duration(2*p.Rate*float64(bound))
}

// calmBound is how long after the last fault everything must be in order.
func (w *World) calmBound() time.Duration {
	bound := w.leaderBound()
	for _, p := range w.processes {
		bound = max(bound, p.earBound()+reconnect)
	}
	if !w.profile.Alone {
		bound = max(bound, w.beatPatience())
	}
	return bound
}

// peace is how long nothing new goes wrong in the middle of a run and at its end: what lasts from before ends, and the bound passes.
func (w *World) peace() time.Duration {
	ttl := slices.Max(w.profile.TTLs)
	return max(14*ttl, 5*ttl+w.profile.Lag+w.profile.Second+2*w.calmBound())
}

// quiet reports whether nothing new goes wrong at an instant, and when that ends.
func (w *World) quiet(at time.Duration) (until time.Duration, quiet bool) {
	middle, peace := w.profile.Length/2, w.peaceful
	switch {
	case at >= w.profile.Length-peace:
		return w.profile.Length, true
	case at >= middle && at < middle+peace && w.profile.Length > 4*peace:
		return middle + peace, true
	}
	return 0, false
}

// sound reports whether the network is, at this instant.
func (w *World) sound() bool {
	_, quiet := w.quiet(w.now)
	return quiet
}

// look holds the world to it, when it has been calm for long enough.
func (w *World) look() {
	c := &w.lookout
	bound := w.calmBound()
	due := c.disturbed + bound
	back := time.Duration(-1)
	for _, p := range w.processes {
		if p.listening() {
			if stands := p.cand.StandsBack(p.reading()); back < 0 || stands < back {
				back = stands
			}
		}
	}
	leader := w.leading()
	switch {
	case due > w.now:
	case leader == nil && back > 0 && w.now < due+w.longestStandBack(): // work failed everywhere: nobody campaigns yet
		due = w.now + back + bound
	case back < 0: // nobody is there
		due = w.now + bound
	case leader == nil && w.foreign() > 0:
		due = w.now + w.foreign() + bound
	default:
		w.Tally.Looks++
		w.calmly(leader)
		due = w.now + bound
	}
	w.queue.push(event{at: due, what: evLook})
}

// foreign is how much longer a lease stands that has no term beside it, since that was evicted: it looks like a lease of another program,
// which is respected for as long as it stands, also where the clock was set back.
func (w *World) foreign() time.Duration {
	if l, t := w.master.Lease, w.master.Term; l.Holder != "" && l.Holder != t.Holder {
		return time.Duration(l.Expires-w.master.clock(w.now)) * time.Millisecond
	}
	return 0
}

// longestStandBack is for how long a process does not campaign after its work failed.
func (w *World) longestStandBack() (longest time.Duration) {
	for _, p := range w.processes {
		longest = max(longest, p.timing.Penalty*11/10)
	}
	return longest
}

// listening: the process is there and means to stay.
func (p *process) listening() bool { return p.awake() && !p.stopping && !p.cut() }

func (w *World) calmly(leader *process) {
	c := &w.lookout
	if leader == nil {
		w.fail("P7: nobody leads %v after the last fault, at most %v is promised", w.now-c.disturbed, w.leaderBound())
		return
	}
	if token := leader.cand.Token(); c.since == c.disturbed && c.token != 0 && c.token != token {
		w.fail("P12: in the calm the leader changed: %s leads with token %d, before it was %d", leader.id, token, c.token)
	}
	c.since, c.token = c.disturbed, leader.cand.Token()
	patience := w.calmBound() + w.longestStandBack()
	for _, p := range w.processes {
		if silent := w.now - p.asked; p.listening() && silent > patience {
			w.fail("P7: %s has asked nothing for %v, at most %v is promised", p.id, silent, patience)
		}
		w.beats(p)
		if p.listening() && (p.ear.dead || p.ear.at != w.master) {
			w.fail("P7: the subscription of %s has been deaf for %v, at most %v is promised", p.id, w.now-c.disturbed, p.earBound()+reconnect)
		}
	}
}

// beats: in the calm each living instance is registered, active, and has just sent a heartbeat (P9).
func (w *World) beats(p *process) {
	if w.profile.Alone || !p.listening() || w.now-w.checks.booted[p.host] < w.beatPatience() {
		return
	}
	i, there := w.master.registry.Instances[p.id]
	silent := w.master.clock(w.now) - w.master.registry.Beats[p.id]
	switch {
	case !there:
		w.fail("P9: %s lives and is not registered", p.id)
	case i.Incarnation != p.beats.incarnation:
		w.fail("P9: %s lives and the record is that of %s", p.id, i.Incarnation)
	case i.Status != "active":
		w.fail("P9: %s lives and counts as %s", p.id, i.Status)
	case silent > w.beatPatience().Milliseconds():
		w.fail("P9: the last heartbeat of %s is %d ms old", p.id, silent)
	}
}

// beatPatience is how old the last heartbeat may be in the calm: an interval with its jitter, the
// bound of a first one that came too late, as far as two clocks may differ.
func (w *World) beatPatience() time.Duration {
	patience := w.timings().beat*105/100 + 2*membership.MaxBound
	return patience + time.Duration(2*w.profile.Rate*float64(patience)) + 100*time.Millisecond
}
