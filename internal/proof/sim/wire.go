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
	number  int32 // of the term that sweeps, or of a question about a task: who waits knows it
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
func (w *World) post(m message) int32 {
	if n := len(w.free); n > 0 {
		place := w.free[n-1]
		w.free = w.free[:n-1]
		w.mail[place] = m
		return place
	}
	w.mail = append(w.mail, m)
	return int32(len(w.mail) - 1)
}

func (w *World) drop(place int32) { w.free = append(w.free, place) }

// send puts a request on the wire.
func (p *process) send(m message) {
	w := p.w
	m.host, m.life = p.host, p.life
	delay := w.transit()
	if m.about == aboutLease {
		p.expected++
	}
	if w.chance(w.profile.Delayed) {
		delay = w.between(100*time.Millisecond, w.profile.TTLs[0]*8/3)
		w.Tally.Messages.Delayed++
		w.astray(&m)
		w.upset(&m, w.now+delay)
	}
	w.queue.push(event{at: w.now + delay, what: evArrive, arg: w.post(m)})
	w.Tally.Requests++
	if w.chance(w.profile.Twice) {
		m.again = true
		again := w.now + delay + w.between(0, time.Second)
		w.queue.push(event{at: again, what: evArrive, arg: w.post(m)})
		w.upset(&m, again)
		w.Tally.Messages.Repeated++
	}
}

// astray: the answer to a request will not come within a few milliseconds. Only then does whoever waits for it need a timer.
func (w *World) astray(m *message) {
	p := w.processes[m.host]
	if m.again || m.strayed || p.life != m.life || p.down {
		return
	}
	m.strayed = true
	w.upset(m, w.now)
	switch m.about {
	case aboutLease:
		p.expected--
		w.queue.push(event{at: w.now, what: evWake, host: m.host, life: m.life})
		p.timer = min(p.timer, w.now)
	case aboutBeat:
		p.beatStrays(m.heartbeat)
	case aboutSweep:
		p.sweepStrays(m)
	case aboutTask:
		p.wake(m.task.task, w.now+taskBound)
	}
}

// arrive lets a request reach the server, unless a partition holds it up, and sends the reply.
func (w *World) arrive(e event) {
	m := &w.mail[e.arg]
	p := w.processes[m.host]
	alive := p.life == m.life && !p.down
	if alive && p.cut() {
		w.astray(m)
		if w.rand.Float64() < 0.5 { // stuck in the socket: it arrives when the partition heals
			e.at = p.cutTill + w.between(0, 300*time.Millisecond)
			w.queue.push(e)
			w.upset(m, e.at)
		} else {
			w.drop(e.arg)
		}
		w.Tally.Messages.Lost++
		return
	}
	server := p.server()
	if !alive {
		server = w.master
	}
	if server.slowTill > w.now {
		w.astray(m)
		e.at = server.slowTill
		w.queue.push(e)
		return
	}
	now := server.clock(w.now)
	switch m.about {
	case aboutLease:
		m.answer = w.execute(server, p, m.lease, now)
		if alive {
			p.asked = w.now
		}
	case aboutBeat:
		w.takeBeat(server, m, now)
	case aboutLeave:
		m.verdict = server.registry.Deregister(p.id, m.beat.Incarnation)
	case aboutSweep:
		w.takeSweep(server, p, m, now)
	case aboutTask:
		w.takeQuestion(server, p, m, now)
	}
	m.clock = now
	delay := w.transit()
	if !alive || m.again {
		w.drop(e.arg)
		return
	}
	luck := w.rand.Float64()
	lost, late := w.profile.Lost, w.profile.Late
	if w.sound() {
		lost, late = 0, 0
	}
	switch {
	case luck < lost*(1-w.profile.Noticed), w.now < p.muteTill:
		w.Tally.Messages.Lost++
		w.astray(m)
		w.drop(e.arg)
		return
	case luck < lost: // a connection that breaks
		m.failed = true
		w.upset(m, w.now)
		w.Tally.Messages.Broken++
	case luck < lost+late:
		w.astray(m)
		delay = w.between(100*time.Millisecond, w.profile.TTLs[0]*4/3)
		w.Tally.Messages.Late++
		w.upset(m, w.now+delay)
	}
	w.queue.push(event{at: w.now + delay, what: evAnswer, host: m.host, life: m.life, arg: e.arg})
}

// answered takes the reply to a request.
func (p *process) answered(place int32) {
	m := p.w.mail[place]
	p.w.drop(place)
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
func (w *World) execute(m *machine, p *process, r lease.Request, now int64) lease.Answer {
	m.Uptime = (now - m.started) / 1000 * 1000
	if m.Lease.Expires != 0 && m.Lease.Expires <= now { // as the script will see it
		m.Lease = oracle.Lease{}
	}
	before, owner, token := m.Lease, m.Term.Nonce, m.Term.Token
	var reply oracle.Reply
	switch r.Kind {
	case lease.Acquire:
		if reply = m.Acquire(now, p.asker, r); reply.Reason == "foreign" {
			w.disturb(w.now) // it is respected for as long as it stands, and witnesses count from its end
		}
	case lease.Renew:
		reply = m.Renew(now, p.asker, r)
	default:
		reply = m.Release(now, p.asker, r)
	}
	relic := reply.Verdict == lease.Kept && token < r.Token // of an older term: it is not another's any more
	if before.Holder != "" && owner != "" && owner != r.Nonce && !relic &&
		(m.Lease.Holder != before.Holder || m.Lease.Expires > before.Expires || m.Term.Token != token) {
		w.fail("P5: %s with nonce %s changed the lease of nonce %s: %+v, was %+v", word(reply.Verdict), r.Nonce, owner, m.Lease, before)
	}
	w.checks.answered(m, r, reply.Answer, token, now)
	if w.trace != nil {
		w.note("%s asks to %s (nonce %s, token %d, floor %d): %s, token %d, wait %v %s; lease %s until %d, term token %d until %d hold %d, clock %d",
			p.id, [...]string{"acquire", "renew", "release"}[r.Kind], r.Nonce, r.Token, r.Floor, word(reply.Verdict), reply.Token, reply.Wait,
			reply.Reason, m.Lease.Holder, m.Lease.Expires, m.Term.Token, m.Term.Until, m.Term.Hold, now)
	}
	switch {
	case reply.Verdict == lease.RollCall:
		w.hint(m, evRollCall)
	case r.Kind == lease.Release && before.Holder != "" && m.Lease.Holder == "":
		w.hint(m, evVacant)
		w.checks.released()
	}
	if reply.Verdict == lease.Won && (p.down || r.Nonce != p.flying.Nonce || p.cand.State() == lease.Draining) {
		w.Tally.Ghosts++
	}
	return reply.Answer
}
