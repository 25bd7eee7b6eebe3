package sim

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// Transfers: an operator asks whoever leads to hand over to an instance, which may be down, deaf,
// standing back, or the leader itself.

// handing is what a calm profile expects of the transfer that it has just asked for.
type handing struct {
	to    uint8
	any   bool  // who but this one
	token int64 // of who led
	able  bool  // the named one is there and may lead
	done  bool
	due   int32 // number of the event that holds it
}

// transfer asks every leader to hand over, and once more a while later, as a request that comes
// late: it names the term that it was meant for.
func (c *Cluster) transfer(s *strike) {
	to := c.instances[s.victim]
	late := s.between(0, 3*c.profile.TTLs[0])
	for _, p := range c.instances {
		if p.down || p.cand.State() != lease.Leading || p == to && !c.profile.Open {
			continue
		}
		token := p.cand.Token()
		c.order(p, to, token)
		c.queue.push(event{at: c.now + late, what: evOrder, host: p.host, life: p.life, arg: int32(to.host), serial: int32(len(c.orders))})
		c.orders = append(c.orders, token)
	}
}

// order is a request for a transfer that reaches a leader. If that is the named one itself, it is
// to hand over to the best candidate.
func (c *Cluster) order(p, to *instance, token int64) {
	meant, heir := token, to.id
	if p == to {
		heir = lease.Anyone
	}
	if c.broken.HeedsAnyOrder {
		token = p.cand.Token()
	}
	if !p.awake() || !p.cand.Offer(p.reading(), token, heir) {
		return
	}
	if meant != p.cand.Token() {
		c.fail("transfer: %s offers token %d since it was asked to hand over token %d", p.id, p.cand.Token(), meant)
	}
	c.Tally.Transfers++
	c.disturb(c.now + c.offerBound(p))
	if c.trace != nil {
		c.note("%s is asked to hand token %d over to %s", p.id, token, heir)
	}
	if c.profile.Calm {
		able := slices.ContainsFunc(c.instances, func(i *instance) bool {
			return (i == to || p == to) && i.awake() && !i.stopping && i.cand.State() == lease.Following && i.cand.StandsBack(i.reading()) == 0
		})
		c.handing = handing{to: to.host, any: p == to, token: token, able: able, due: c.handing.due + 1}
		c.queue.push(event{at: c.now + c.offerBound(p) + c.profile.Drain + time.Second, what: evHanded, arg: c.handing.due})
	}
	p.turn()
}

// offerBound is the longest that an offer stands.
func (c *Cluster) offerBound(p *instance) time.Duration {
	return p.timing.Retry + 2*p.timing.Attempt() + 100*time.Millisecond
}

// handed holds a transfer in a calm profile: one that is there and may lead has come to lead; for
// any other nobody has given way.
func (c *Cluster) handed(number int32) {
	h := c.handing
	if number != h.due || h.done {
		return
	}
	to, leader := c.instances[h.to], c.leading()
	switch {
	case h.able:
		c.fail("transfer: %s was able to lead, and was not given the lead of token %d", to.id, h.token)
	case leader == nil || leader.cand.Token() != h.token:
		c.fail("transfer: %s was not able to lead, and token %d is over", to.id, h.token)
	}
}

// handedTo notes that a term began.
func (c *Cluster) handedTo(p *instance) {
	if h := &c.handing; h.due > 0 && (p.host == h.to) != h.any && p.cand.Token() > h.token {
		h.done = true
	}
}

// named lets the instance of that ID hear, if it is there, and can.
func (c *Cluster) named(from *machine, id string) {
	for _, p := range c.instances {
		if p.id == id {
			c.hear(p, from, event{what: evNamed})
		}
	}
}

// hintsOfTransfer are what the scripts publish of an offer, or a reservation.
func (c *Cluster) hintsOfTransfer(m *machine, r lease.Request, reply oracle.Reply, before oracle.Term, now int64) {
	switch {
	case r.Kind == lease.Renew && r.Heir == lease.Anyone && before.Heir != lease.Anyone && m.Term.Heir == lease.Anyone:
		c.hint(m, evCalled)
	case r.Kind == lease.Renew && r.Heir != "" && m.Term.Heir == r.Heir && before.Heir != r.Heir:
		c.named(m, r.Heir)
	case reply.Offered && before.Ready <= now:
		c.hint(m, evRollCall)
	case reply.Reason == "reserved":
		c.named(m, m.Term.Heir)
	case reply.Reason == "yield":
		c.named(m, m.Term.Best.ID)
	}
}

// yield is the longest that a vacancy is left to the best candidate. One whose work has failed
// comes last.
func (c *Cluster) yield() time.Duration {
	if c.profile.Priorities == nil && !slices.Contains(c.profile.Faults, WorkFails) {
		return 0
	}
	longest := time.Duration(0)
	for _, p := range c.instances {
		longest = max(longest, p.timing.Slice(), p.timing.Attempt())
	}
	return longest
}

// slice is what priorities add to P7 on a sound network, if the best does not come.
func (c *Cluster) slice(p *instance) time.Duration {
	if c.profile.Priorities == nil {
		return 0
	}
	return p.timing.Slice() + 6*time.Millisecond
}

// ramp is what a crowd adds to P7: here, all but a few of it are never there.
func (c *Cluster) ramp(p *instance) time.Duration {
	if c.profile.Crowd == 0 {
		return 0
	}
	return p.timing.Ramp(c.profile.Crowd)
}

// chosen counts the terms of an instance while a better one was there and asked.
func (c *Cluster) chosen(leader *instance) {
	if c.profile.Priorities == nil {
		return
	}
	c.Tally.Chosen++
	for _, p := range c.instances {
		asks := p.listening() && c.now >= p.muteTill && p.cand.State() == lease.Following && p.cand.StandsBack(p.reading()) == 0
		if asks && p.cand.Rank(p.reading()) > leader.cand.Rank(leader.reading()) {
			c.Tally.PassedOver++
			return
		}
	}
}

// vacant lets everybody hear that a lease is free: if it is reserved, others hear for how long.
func (c *Cluster) vacant(m *machine, now int64) {
	left := m.Term.Reserved - now
	if m.Term.Heir == "" || left <= 0 {
		c.hint(m, evVacant)
		return
	}
	for _, p := range c.instances {
		if p.id == m.Term.Heir {
			c.hear(p, m, event{what: evNamed})
		} else {
			c.hear(p, m, event{what: evReserved, arg: int32(left)})
		}
	}
}
