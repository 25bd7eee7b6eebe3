package sim

import (
	"math/rand/v2"
	"time"
)

// ear is the subscription of a process: hints come over it, from the server that it stands at. When
// it dies without a sign, nothing comes over it and nobody knows, until the process has checked it.
type ear struct {
	at   *machine
	dead bool
	due  int32 // number of the event that makes it anew; others are out of date
}

// reconnect is the longest that a broken subscription takes to stand again on a sound network.
const reconnect = 200 * time.Millisecond

// earBound is the longest that a dead subscription stays unnoticed: a process checks its own at
// least so often.
func (p *instance) earBound() time.Duration { return max(5*time.Second, p.timing.TTL/2) }

// deafen lets the subscription die without a sign.
func (p *instance) deafen(r *rand.Rand) {
	if p.down || p.ear.dead {
		return
	}
	p.ear.dead = true
	p.cluster.Tally.Deafened++
	p.cluster.disturb(p.cluster.now)
	if p.cluster.broken.NeverChecksItsEar {
		return
	}
	p.resubscribe(between(r, 0, p.earBound()))
}

// hangUp closes the subscription: the process knows at once.
func (p *instance) hangUp(r *rand.Rand) {
	if p.down {
		return
	}
	p.ear.dead = true
	p.resubscribe(between(r, 0, reconnect))
}

// resubscribe makes the subscription anew after a while.
func (p *instance) resubscribe(after time.Duration) {
	p.ear.due++
	p.cluster.disturb(p.cluster.now + after)
	p.cluster.queue.push(event{at: p.cluster.now + after, what: evEar, host: p.host, life: p.life, arg: p.ear.due})
}

// listen makes the subscription anew, where the calls go, once Redis can be reached. Hints may have
// been missed: a leader renews at once, a follower asks.
func (p *instance) listen(number int32) {
	c := p.cluster
	switch {
	case number != p.ear.due:
		return
	case p.cut() || c.now < p.muteTill:
		p.resubscribe(max(p.cutTill, p.muteTill) - c.now + c.between(0, reconnect))
		return
	case p.reach.slowTill > c.now:
		p.resubscribe(p.reach.slowTill - c.now + c.between(0, reconnect))
		return
	}
	p.ear.at, p.ear.dead = p.server(), false
	p.cand.RollCall(p.reading())
	p.cand.Vacant(p.reading())
	p.turn()
	if p.ear.at != c.master && !c.broken.NeverChecksItsEar { // it stands at a second master: what it checks it with goes elsewhere soon
		p.resubscribe(p.earBound())
	}
}

// server is where the calls of the process go.
func (p *instance) server() *machine {
	if p.reach.demoted {
		return p.cluster.master
	}
	return p.reach
}

// hint lets everybody hear who is subscribed at that server and can be reached.
func (c *Cluster) hint(from *machine, what kind) {
	for _, p := range c.instances {
		c.hear(p, from, event{what: what})
	}
}

// hear lets one process hear a hint, if it can.
func (c *Cluster) hear(p *instance, from *machine, hint event) {
	if p.down || p.cut() || p.ear.dead || p.ear.at != from {
		return
	}
	if c.chance(c.profile.Deaf) {
		c.Tally.Messages.Deaf++
		c.disturb(c.now)
		return
	}
	hint.at, hint.host, hint.life = c.now+c.transit(), p.host, p.life
	c.queue.push(hint)
}
