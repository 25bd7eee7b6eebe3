package sim

import (
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// process is one instance: it drives a lease.Candidate as the loop of package tenure does, beats, and while it leads it sweeps and
// runs tasks.
type process struct {
	w      *World
	host   uint8
	id     string
	asker  oracle.Asker
	timing lease.Timing
	cand   *lease.Candidate

	life     uint32 // a process that died comes back as another
	down     bool
	stopping bool
	cutTill  time.Duration // partitioned until then
	muteTill time.Duration // deaf to replies until then
	frozen   time.Duration // stands still until then
	timer    time.Duration // the youngest one
	expected int           // answers about the lease that come within milliseconds
	mono     time.Duration // offset of the monotonic clock
	wall     time.Duration // offset of the wall clock
	ended    int64         // token of the last term that has ended
	reach    *machine      // the server it talks to
	ear      ear           // its subscription there
	flying   lease.Request
	asked    time.Duration // a request about the lease arrived

	beats    beats
	sweeps   sweeps
	schedule schedule
}

func newProcess(w *World, number int) *process {
	c := w.profile
	ttl := c.TTLs[number%len(c.TTLs)]
	drift, margin := lease.DefaultDrift(ttl), c.Margin
	if w.broken.NoDrift {
		drift = 0
	}
	if w.broken.NoMargin {
		margin = 0
	}
	return &process{
		w: w, host: uint8(number), id: string(rune('a' + number)),
		asker: oracle.Asker{
			ID: string(rune('a' + number)), TTL: ttl.Milliseconds(), HoldOff: c.HoldOff.Milliseconds(), EmptyWait: c.Empty.Milliseconds(), Margin: margin.Milliseconds(), NoInfo: number < c.NoInfo,
		},
		timing: lease.Timing{TTL: ttl, Renew: ttl / 3, Retry: ttl / 2, Drift: drift, HoldOff: c.HoldOff, Penalty: 2 * ttl, Margin: margin},
		wall:   time.Duration(epoch) * time.Millisecond, down: true,
	}
}

func (p *process) reading() lease.Reading {
	return lease.Reading{Mono: p.w.now + p.mono, Wall: p.w.now + p.wall}
}

// believes is what IsLeader would answer at this instant.
func (p *process) believes() bool {
	return !p.down && p.cand.State() == lease.Leading && p.cand.Lease().Leading(p.reading())
}

// awake: it is there and does not stand still.
func (p *process) awake() bool { return !p.down && p.w.now >= p.frozen }

func (p *process) cut() bool { return p.w.now < p.cutTill }

// boot starts the process, which remembers nothing.
func (p *process) boot() {
	w := p.w
	w.checks.booting(p)
	p.down, p.stopping, p.cutTill, p.muteTill, p.frozen, p.reach = false, false, 0, 0, 0, w.master
	p.ended, p.timer, p.expected, p.asked = 0, 0, 0, w.now
	p.ear = ear{at: w.master, due: p.ear.due}
	w.disturb(w.now + 500*time.Millisecond)
	p.life++
	p.cand = lease.NewCandidate(p.timing, w.rand.Float64, func() string {
		w.nonces++
		return p.id + strconv.Itoa(w.nonces)
	})
	p.sleep(w.between(0, 500*time.Millisecond))
	if !w.profile.Alone {
		p.beats.start(p)
	}
	p.sweeps, p.schedule = sweeps{}, schedule{}
	if w.trace != nil {
		w.note("%s starts", p.id)
	}
}

// crash ends the process.
func (p *process) crash() {
	if p.down {
		return
	}
	p.w.checks.crashing(p)
	p.runsDie()
	p.down = true
}

// stop ends the process in order; it starts again after a while.
func (p *process) stop(pause time.Duration) {
	w := p.w
	w.queue.push(event{at: w.now + pause, what: evBoot, host: p.host, life: p.life})
	if p.down || w.now < p.frozen || p.stopping {
		p.crash() // killed when it does not stop in time
		return
	}
	p.stopping = true
	if p.cand.State() == lease.Leading {
		w.handover()
	}
	p.apply(p.cand.Stop(p.reading()))
	if !w.profile.Alone {
		p.leave()
	}
	p.turn()
}

// sleep sets the timer, unless an answer comes first.
func (p *process) sleep(d time.Duration) {
	if p.expected > 0 {
		p.timer = p.w.now + d
		return
	}
	p.timer = p.w.now + d + p.w.between(0, 2*time.Millisecond) // timers are late
	p.w.queue.push(event{at: p.timer, what: evWake, host: p.host, life: p.life})
}

// awoken is the timer going off. After a freeze it is late.
func (p *process) awoken(at time.Duration) {
	if at >= p.timer {
		p.turn()
	}
}

// turn lets time pass, sends what is due and sleeps.
func (p *process) turn() {
	now := p.reading()
	if p.w.broken.WaitsForEver && p.cand.Unanswered() > 0 {
		return
	}
	p.apply(p.cand.Tick(now))
	for {
		r, due := p.cand.Next(now)
		if !due {
			break
		}
		if r.Kind != lease.Release {
			p.flying = r
		}
		if p.w.broken.NeverRenews && r.Kind == lease.Renew {
			continue
		}
		if p.w.broken.NoFloor {
			r.Floor = 0
		}
		p.send(message{about: aboutLease, lease: r})
	}
	if p.stopping && p.cand.Finished() {
		p.crash()
		return
	}
	p.sleep(p.cand.Wait(now))
}

func (p *process) apply(change lease.Change) {
	switch change {
	case lease.Began:
		p.began()
	case lease.Renewed:
		if p.cand.Token() <= p.ended {
			p.w.fail("P4: %s: the term with token %d has ended and was renewed", p.id, p.ended)
		}
		p.w.took(p)
	case lease.Ended:
		p.over()
	}
}

func (p *process) began() {
	w := p.w
	if w.trace != nil {
		w.note("%s LEADS with token %d", p.id, p.cand.Token())
	}
	w.Tally.Terms++
	w.took(p)
	w.checks.began(p)
	last := &w.lastToken
	switch back := p.cand.Token() <= last.token; {
	case back && (w.profile.Outside || w.checks.forgotten(p.cand.Token(), last.token)):
		w.Tally.TokensBack++
	case back:
		w.fail("P2: token back: %s has %d after %s had %d", p.id, p.cand.Token(), last.id, last.token)
	}
	if last.id != "" && last.id != p.id {
		w.Tally.Changes++
	}
	last.token, last.id = p.cand.Token(), p.id
	if !w.profile.Alone {
		p.sweeps.start(p)
		p.schedule.start(p)
	}
}

func (p *process) over() {
	w := p.w
	if w.trace != nil {
		w.note("%s's term %d is over: %v", p.id, p.cand.Token(), p.cand.Reason())
	}
	p.ended = p.cand.Token()
	w.Tally.Ended[p.cand.Reason()]++
	p.schedule.over(p)
	w.queue.push(event{at: w.now + w.between(0, w.profile.Drain), what: evDrained, host: p.host, life: p.life})
}

func (p *process) drained() {
	if p.cand.State() != lease.Draining {
		return
	}
	if p.schedule.busy() { // tasks are work too
		p.w.queue.push(event{at: p.w.now + 10*time.Millisecond, what: evDrained, host: p.host, life: p.life})
		return
	}
	p.cand.Drained(p.reading())
	p.turn()
}

// heard takes an answer to a lease script, with the mistakes of a broken client.
func (p *process) heard(r lease.Request, a lease.Answer) {
	b, now, verdict := p.w.broken, p.reading(), a.Verdict
	late := r.Seq != p.flying.Seq || now.Mono-r.Sent.Mono >= r.Bound
	if b.OwnLate && late && r.Kind == lease.Acquire && a.Verdict == lease.Won && r.Nonce == p.flying.Nonce {
		p.send(message{about: aboutLease, lease: lease.Request{Kind: lease.Release, Nonce: r.Nonce, Token: a.Token}})
	}
	if b.NoLongest {
		a.TTL = 0
	}
	if b.ReplyDeadline {
		r.Sent = now
	}
	if b.HeedsErrors && r.Kind == lease.Renew && a.Verdict == lease.Unknown {
		a.Verdict = lease.Lost
	}
	was := p.cand.State()
	p.apply(p.cand.Answer(now, r, a))
	if was == lease.Leading && p.cand.State() == lease.Draining && p.cand.Reason() == lease.Refused && verdict != lease.Lost {
		p.w.fail("P12: refused: %s gave its term up on the verdict %s", p.id, word(verdict))
	}
}
