package oracle

import (
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// elector drives one lease.Candidate as the loop of package tenure does.
type elector struct {
	w      *world
	asker  Asker
	timing lease.Timing
	cand   *lease.Candidate

	life    int           // a crashed process comes back as another
	down    bool          // crashed
	cutTill time.Duration // partitioned until then
	frozen  time.Duration // stands still until then
	wakes   int           // number of the youngest timer
	mono    time.Duration // offset of the monotonic clock
	wall    time.Duration // offset of the wall clock
	nonce   string        // of the term that is on or was the last
	ended   int64         // token of the last term that has ended
	reach   *machine      // the server it talks to

	flying lease.Request // the last acquire or renew
}

func newElector(w *world, number int) *elector {
	c := w.campaign
	ttl := c.ttls[number%len(c.ttls)]
	drift, margin := lease.DefaultDrift(ttl), c.margin
	if w.broken.noDrift {
		drift = 0
	}
	if w.broken.noMargin {
		margin = 0
	}
	return &elector{
		w: w,
		asker: Asker{
			ID: string(rune('a' + number)), TTL: ttl.Milliseconds(), EmptyWait: c.empty.Milliseconds(), Margin: margin.Milliseconds(),
			NoInfo: c.noInfo && number == 0,
		},
		timing: lease.Timing{TTL: ttl, Renew: ttl / 3, Retry: ttl / 2, Drift: drift, HoldOff: c.holdOff, Penalty: 2 * ttl, Margin: margin},
		wall:   time.Duration(start) * time.Millisecond,
	}
}

func (e *elector) reading() lease.Reading {
	return lease.Reading{Mono: e.w.now + e.mono, Wall: e.w.now + e.wall}
}

// believes is what IsLeader would answer at this instant.
func (e *elector) believes() bool {
	return !e.down && e.cand.State() == lease.Leading && e.cand.Lease().Leading(e.reading())
}

func (e *elector) cut() bool { return e.w.now < e.cutTill }

// boot starts the process, which remembers nothing.
func (e *elector) boot() {
	e.down, e.cutTill, e.frozen, e.reach = false, 0, 0, e.w.redis
	e.ended = 0
	e.life++
	e.cand = lease.NewCandidate(e.timing, e.w.rand.Float64, func() string {
		e.w.nonces++
		return fmt.Sprint(e.asker.ID, e.w.nonces)
	})
	life := e.life
	e.w.after(e.w.between(0, 500*time.Millisecond), func() { e.whenAwake(life, e.turn) })
}

// whenAwake does something in a life of the process, as soon as it does not stand still.
func (e *elector) whenAwake(life int, do func()) {
	switch {
	case e.down || e.life != life:
	case e.w.now < e.frozen:
		e.w.after(e.frozen-e.w.now, func() { e.whenAwake(life, do) })
	default:
		do()
	}
}

// turn lets time pass, sends what is due and sleeps.
func (e *elector) turn() {
	e.apply(e.cand.Tick(e.reading()))
	for {
		r, due := e.cand.Next(e.reading())
		if !due {
			break
		}
		if r.Kind != lease.Release {
			e.flying = r
		}
		e.send(r)
	}
	e.wakes++
	wakes, life := e.wakes, e.life
	lag := e.w.between(0, 2*time.Millisecond) // timers are late
	e.w.after(e.cand.Wait(e.reading())+lag, func() {
		if wakes == e.wakes {
			e.whenAwake(life, e.turn)
		}
	})
}

func (e *elector) apply(change lease.Change) {
	w := e.w
	switch change {
	case lease.Began:
		w.trace("%s begins token %d", e.asker.ID, e.cand.Token())
		e.nonce = e.flying.Nonce
		w.took(e, true)
	case lease.Renewed:
		if e.cand.Token() <= e.ended {
			w.fail("%s: the term with token %d has ended and was renewed", e.asker.ID, e.ended)
		}
		w.took(e, false)
	case lease.Ended:
		w.trace("%s ends token %d: %v", e.asker.ID, e.cand.Token(), e.cand.Reason())
		e.ended = e.cand.Token()
		w.tally[e.cand.Reason()]++
		e.drain()
	}
}

func (e *elector) drain() {
	life := e.life
	e.w.after(e.w.between(0, e.w.campaign.drain), func() {
		e.whenAwake(life, func() {
			e.cand.Drained(e.reading())
			e.turn()
		})
	})
}

// send puts a request on the wire.
func (e *elector) send(r lease.Request) {
	w, life := e.w, e.life
	delay := w.transit()
	if w.chance(w.campaign.delayed) {
		delay = w.between(100*time.Millisecond, 8*time.Second)
	}
	if w.broken.noFloor {
		r.Floor = 0
	}
	w.after(delay, func() { e.arrive(life, r) })
	if w.chance(w.campaign.twice) { // the client sends it again without telling
		w.after(delay+w.between(0, time.Second), func() { e.arrive(life, r) })
	}
}

// arrive lets a request reach the server, unless a partition holds it up.
func (e *elector) arrive(life int, r lease.Request) {
	w := e.w
	alive := e.life == life && !e.down
	if e.cut() && alive {
		if w.chance(0.5) { // stuck in the socket: it arrives when the partition heals
			w.after(e.cutTill-w.now+w.between(0, 300*time.Millisecond), func() { e.arrive(life, r) })
		}
		return
	}
	m := e.reach
	if m.demoted || !alive {
		m = w.redis
	}
	reply := w.execute(m, e, r)
	delay := w.transit()
	switch luck := w.rand.Float64(); {
	case luck < w.campaign.lost*(1-w.campaign.noticed):
		return
	case luck < w.campaign.lost: // a connection that breaks
		reply = Reply{}
	case luck < w.campaign.lost+w.campaign.late:
		delay = w.between(100*time.Millisecond, 4*time.Second)
	}
	w.after(delay, func() {
		e.whenAwake(life, func() {
			e.answer(r, reply.Answer)
			e.turn()
		})
	})
}

// broken are mistakes of a client, one each.
type broken struct {
	ownLate       bool // gives back what a late answer says it was granted, though the campaign is on
	noFloor       bool // remembers no token
	noLongest     bool // remembers no TTL of others
	replyDeadline bool // counts its lease from the reply
	heedsErrors   bool // takes an error for a loss
	noDrift       bool // DriftMargin is off
	noMargin      bool // FailoverMargin is off
}

func (e *elector) answer(r lease.Request, a lease.Answer) {
	b, now := e.w.broken, e.reading()
	late := r.Seq != e.flying.Seq || now.Mono-r.Sent.Mono >= r.Bound
	if b.ownLate && late && r.Kind == lease.Acquire && a.Verdict == lease.Won && r.Nonce == e.flying.Nonce {
		e.send(lease.Request{Kind: lease.Release, Nonce: r.Nonce, Token: a.Token})
	}
	verdict := a.Verdict
	if b.noLongest {
		a.TTL = 0
	}
	if b.replyDeadline {
		r.Sent = now
	}
	if b.heedsErrors && r.Kind == lease.Renew && a.Verdict == lease.Unknown {
		a.Verdict = lease.Lost
	}
	was := e.cand.State()
	e.apply(e.cand.Answer(now, r, a))
	if was == lease.Leading && e.cand.State() == lease.Draining && e.cand.Reason() == lease.Refused && verdict != lease.Lost {
		e.w.fail("refused: %s gave its term up on the verdict %s", e.asker.ID, word(Reply{Answer: a}))
	}
}
