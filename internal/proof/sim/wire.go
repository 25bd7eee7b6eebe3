package sim

import (
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// subject is what a message is about.
type subject uint8

const (
	aboutLease subject = iota
	aboutBeat
	aboutLeave
	aboutSweep
	aboutTask
)

// message is a request on its way, then its reply on its way back.
type message struct {
	host    uint8
	life    uint32
	about   subject
	failed  bool // no reply, but an error
	again   bool // sent by the client on its own: nobody waits for the answer
	strayed bool // see astray
	lease   lease.Request
	answer  lease.Answer
	number  int32 // of the term that sweeps
	beat    oracle.Beat
	verdict string
	clock   int64 // Redis's, in the answer
	task    *question

	heartbeat membership.Heartbeat
	asked     membership.Question // of a sweep
	page      membership.Page     // in its answer
	removed   int                 // likewise
}

// post puts a message into the mail.
func (c *Cluster) post(m message) int32 {
	if n := len(c.free); n > 0 {
		place := c.free[n-1]
		c.free = c.free[:n-1]
		c.mail[place] = m
		return place
	}
	c.mail = append(c.mail, m)
	return int32(len(c.mail) - 1)
}

func (c *Cluster) drop(place int32) { c.free = append(c.free, place) }

// send puts a request on the wire.
func (p *instance) send(m message) {
	c := p.cluster
	m.host, m.life = p.host, p.life
	delay := c.transit()
	if m.about == aboutLease {
		p.expected++
	}
	if c.chance(c.profile.Delayed) {
		delay = c.between(100*time.Millisecond, c.profile.TTLs[0]*8/3)
		c.Tally.Messages.Delayed++
		c.astray(&m)
		c.upset(&m, c.now+delay)
	}
	c.queue.push(event{at: c.now + delay, what: evArrive, arg: c.post(m)})
	c.Tally.Requests++
	if c.chance(c.profile.Twice) {
		m.again = true
		again := c.now + delay + c.between(0, time.Second)
		c.queue.push(event{at: again, what: evArrive, arg: c.post(m)})
		c.upset(&m, again)
		c.Tally.Messages.Repeated++
	}
}

// astray: the answer to a request will not come within a few milliseconds. Only then does whoever
// waits for it need a timer.
func (c *Cluster) astray(m *message) {
	p := c.instances[m.host]
	if m.again || m.strayed || p.life != m.life || p.down {
		return
	}
	m.strayed = true
	c.upset(m, c.now)
	switch m.about {
	case aboutLease:
		p.expected--
		c.queue.push(event{at: c.now, what: evWake, host: m.host, life: m.life})
		p.timer = min(p.timer, c.now)
	case aboutBeat:
		p.beatStrays(m.heartbeat)
	case aboutSweep:
		p.sweepStrays(m)
	case aboutTask:
		p.callStrays(m.task)
	}
}

// arrive lets a request reach the server, unless a partition holds it up, and sends the reply.
func (c *Cluster) arrive(e event) {
	m := &c.mail[e.arg]
	p := c.instances[m.host]
	alive := p.life == m.life && !p.down
	if alive && p.cut() {
		c.astray(m)
		if c.rand.Float64() < 0.5 { // stuck in the socket: it arrives when the partition heals
			e.at = p.cutTill + c.between(0, 300*time.Millisecond)
			c.queue.push(e)
			c.upset(m, e.at)
		} else {
			c.drop(e.arg)
		}
		c.Tally.Messages.Lost++
		return
	}
	server := p.server()
	if !alive {
		server = c.master
	}
	if server.slowTill > c.now {
		c.astray(m)
		e.at = server.slowTill
		c.queue.push(e)
		return
	}
	now := server.clock(c.now)
	switch m.about {
	case aboutLease:
		m.answer = c.execute(server, p, m.lease, now)
		if alive {
			p.asked = c.now
		}
	case aboutBeat:
		c.takeBeat(server, m, now)
	case aboutLeave:
		m.verdict = server.registry.Deregister(p.id, m.beat.Incarnation)
	case aboutSweep:
		c.takeSweep(server, p, m, now)
	case aboutTask:
		c.takeQuestion(server, p, m, now)
	}
	m.clock = now
	delay := c.transit()
	if !alive || m.again {
		c.drop(e.arg)
		return
	}
	luck := c.rand.Float64()
	lost, late := c.profile.Lost, c.profile.Late
	if c.sound() {
		lost, late = 0, 0
	}
	switch {
	case luck < lost*(1-c.profile.Noticed), c.now < p.muteTill:
		c.Tally.Messages.Lost++
		c.astray(m)
		c.drop(e.arg)
		return
	case luck < lost: // a connection that breaks
		m.failed = true
		c.upset(m, c.now)
		c.Tally.Messages.Broken++
	case luck < lost+late:
		c.astray(m)
		delay = c.between(100*time.Millisecond, c.profile.TTLs[0]*4/3)
		c.Tally.Messages.Late++
		c.upset(m, c.now+delay)
	}
	c.queue.push(event{at: c.now + delay, what: evAnswer, host: m.host, life: m.life, arg: e.arg})
}

// answered takes the reply to a request.
func (p *instance) answered(place int32) {
	m := p.cluster.mail[place]
	p.cluster.drop(place)
	switch m.about {
	case aboutLease:
		if !m.strayed {
			p.expected--
		}
		if m.failed {
			m.answer = lease.Answer{}
		}
		p.heard(m.lease, m.answer)
		p.turn()
	case aboutBeat:
		p.beaten(&m)
	case aboutSweep:
		p.swept(&m)
	case aboutTask:
		p.told(&m)
	}
}

// execute runs a lease script. It touches nothing of another campaign (P5).
func (c *Cluster) execute(m *machine, p *instance, r lease.Request, now int64) lease.Answer {
	m.Uptime = (now - m.started) / 1000 * 1000
	if m.Lease.Expires != 0 && m.Lease.Expires <= now { // as the script will see it
		m.Lease = oracle.Lease{}
	}
	before, term, owner, token := m.Lease, m.Term, m.Term.Nonce, m.Term.Token
	var reply oracle.Reply
	switch r.Kind {
	case lease.Acquire:
		if reply = m.Acquire(now, p.asker, r); reply.Reason == "foreign" {
			c.disturb(c.now) // it is respected for as long as it stands, and witnesses count from its end
		}
	case lease.Renew:
		reply = m.Renew(now, p.asker, r)
	default:
		reply = m.Release(now, p.asker, r)
	}
	relic := reply.Verdict == lease.Kept && token < r.Token // of an older term: it is not another's any more
	if before.Holder != "" && owner != "" && owner != r.Nonce && !relic &&
		(m.Lease.Holder != before.Holder || m.Lease.Expires > before.Expires || m.Term.Token != token) {
		c.fail("P5: %s with nonce %s changed the lease of nonce %s: %+v, was %+v", word(reply.Verdict), r.Nonce, owner, m.Lease, before)
	}
	c.checks.answered(m, p.asker, r, reply.Answer, token, now)
	if c.trace != nil {
		c.note("%s asks to %s (nonce %s, token %d, floor %d): %s, token %d, wait %v %s; lease %s until %d, term token %d until %d hold %d, clock %d",
			p.id, [...]string{"acquire", "renew", "release"}[r.Kind], r.Nonce, r.Token, r.Floor, word(reply.Verdict), reply.Token, reply.Wait,
			reply.Reason, m.Lease.Holder, m.Lease.Expires, m.Term.Token, m.Term.Until, m.Term.Hold, now)
	}
	switch {
	case reply.Verdict == lease.RollCall:
		c.hint(m, evRollCall)
	case reply.Verdict == lease.Won && m.Term.Token != token && c.profile.Crowd > 0: // else nobody heeds it
		c.hint(m, evGranted)
	case r.Kind == lease.Release && before.Holder != "" && m.Lease.Holder == "":
		c.vacant(m, now)
		c.checks.released()
	}
	c.hintsOfTransfer(m, r, reply, term, now)
	if reply.Verdict == lease.Won && (p.down || r.Nonce != p.flying.Nonce || p.cand.State() == lease.Draining) {
		c.Tally.Ghosts++
	}
	return reply.Answer
}
