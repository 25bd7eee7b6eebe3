package sim

import (
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// instance drives a lease.Candidate as the loop of package tenure does, beats, and while it leads
// it sweeps and runs tasks.
type instance struct {
	cluster *Cluster
	host    uint8
	id      string
	asker   oracle.Asker
	timing  lease.Timing
	cand    *lease.Candidate

	life     uint32 // a process that died comes back as another
	down     bool
	stopping bool
	cutTill  time.Duration // partitioned until then
	muteTill time.Duration // deaf to replies until then
	frozen   time.Duration // stands still until then
	asleep   time.Duration // its machine is suspended until then
	timer    time.Duration // the youngest one
	expected int           // answers about the lease that come within milliseconds
	mono     time.Duration // offset of the monotonic clock
	wall     time.Duration // offset of the wall clock
	ended    int64         // token of the last term that has ended
	reach    *machine      // the server it talks to
	ear      ear           // its subscription there
	flying   lease.Request
	asked    time.Duration // a request about the lease arrived

	beats     beats
	sweeps    sweeps
	scheduler scheduler
}

func newInstance(c *Cluster, number int) *instance {
	profile := c.profile
	ttl := profile.TTLs[number%len(profile.TTLs)]
	drift, margin := lease.DefaultDrift(ttl), profile.Margin
	if c.broken.NoDrift {
		drift = 0
	}
	if c.broken.NoMargin {
		margin = 0
	}
	return &instance{
		cluster: c, host: uint8(number), id: string(rune('a' + number)),
		asker: oracle.Asker{
			ID: string(rune('a' + number)), TTL: ttl.Milliseconds(), HoldOff: profile.HoldOff.Milliseconds(), EmptyWait: profile.Empty.Milliseconds(), Margin: margin.Milliseconds(), NoInfo: number < profile.NoInfo,
		},
		timing: lease.Timing{TTL: ttl, Renew: ttl / 3, Retry: profile.retry(ttl), Drift: drift, HoldOff: profile.HoldOff, Penalty: 2 * ttl, Preempt: profile.Preempt, Margin: margin},
		wall:   time.Duration(epoch) * time.Millisecond, down: true,
	}
}

func (p *instance) reading() lease.Reading {
	return lease.Reading{Mono: p.cluster.now + p.mono, Wall: p.cluster.now + p.wall}
}

// believes is what IsLeader would answer at this instant.
func (p *instance) believes() bool {
	return !p.down && p.cand.State() == lease.Leading && p.cand.Lease().Leading(p.reading())
}

// awake: it is there and does not stand still.
func (p *instance) awake() bool { return !p.down && p.cluster.now >= p.frozen }

// suspend puts the machine to sleep. Its monotonic clock stands still meanwhile, once if it is
// asleep already.
func (p *instance) suspend(till time.Duration) {
	p.mono -= max(0, till-max(p.cluster.now, p.asleep))
	p.asleep, p.frozen = max(p.asleep, till), max(p.frozen, till)
	p.taint()
}

func (p *instance) cut() bool { return p.cluster.now < p.cutTill }

// boot starts the process, which remembers nothing.
func (p *instance) boot() {
	c := p.cluster
	c.checks.booting(p)
	p.down, p.stopping, p.cutTill, p.muteTill, p.frozen, p.asleep, p.reach = false, false, 0, 0, 0, 0, c.master
	p.ended, p.timer, p.expected, p.asked = 0, 0, 0, c.now
	p.ear = ear{at: c.master, due: p.ear.due}
	c.disturb(c.now + 500*time.Millisecond)
	p.life++
	p.cand = lease.NewCandidate(p.timing, c.rand.Float64, func() string {
		c.nonces++
		return p.id + strconv.Itoa(c.nonces)
	})
	if ranks := c.profile.Priorities; ranks != nil {
		p.cand.Prefer(lease.Preference{Priority: ranks[int(p.host)%len(ranks)]}.Rank())
	}
	p.cand.Crowd(c.profile.Crowd)
	p.sleep(c.between(0, 500*time.Millisecond))
	if !c.profile.Alone {
		p.beats.start(p)
	}
	p.sweeps, p.scheduler = sweeps{}, scheduler{}
	if c.trace != nil {
		c.note("%s starts", p.id)
	}
}

// crash ends the process.
func (p *instance) crash() {
	if p.down {
		return
	}
	p.cluster.checks.crashing(p)
	p.runsDie()
	p.down = true
}

// stop ends the process in order; it starts again after a while.
func (p *instance) stop(pause time.Duration) {
	c := p.cluster
	c.queue.push(event{at: c.now + pause, what: evBoot, host: p.host, life: p.life})
	if p.down || c.now < p.frozen || p.stopping {
		p.crash() // killed when it does not stop in time
		return
	}
	p.stopping = true
	if p.cand.State() == lease.Leading {
		c.handover()
	}
	p.apply(p.cand.Stop(p.reading()))
	if !c.profile.Alone {
		p.leave()
	}
	p.turn()
}

// sleep sets the timer, unless an answer comes first.
func (p *instance) sleep(d time.Duration) {
	if p.expected > 0 {
		p.timer = p.cluster.now + d
		return
	}
	p.timer = p.cluster.now + d + p.cluster.between(0, 2*time.Millisecond) // timers are late
	p.cluster.queue.push(event{at: p.timer, what: evWake, host: p.host, life: p.life})
}

// awoken is the timer going off. After a freeze it is late.
func (p *instance) awoken(at time.Duration) {
	if at >= p.timer {
		p.turn()
	}
}

// turn lets time pass, sends what is due and sleeps.
func (p *instance) turn() {
	now := p.reading()
	if p.cluster.broken.WaitsForEver && p.cand.Unanswered() > 0 {
		return
	}
	if c := p.cluster; c.profile.Restless && c.rand.IntN(30) == 0 {
		p.cand.Prefer(lease.Preference{Others: c.rand.IntN(5), Order: 1 + c.rand.IntN(5)}.Rank())
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
		if p.cluster.broken.NeverRenews && r.Kind == lease.Renew {
			continue
		}
		if p.cluster.broken.NoFloor {
			r.Floor = 0
		}
		p.send(message{about: aboutLease, lease: r})
		if r.Rides {
			p.hasten()
		}
	}
	if p.stopping && p.cand.Finished() {
		p.crash()
		return
	}
	p.sleep(p.cand.Wait(now))
}

func (p *instance) apply(change lease.Change) {
	switch change {
	case lease.Began:
		p.began()
	case lease.Renewed:
		if p.cand.Token() <= p.ended {
			p.cluster.fail("P4: %s: the term with token %d has ended and was renewed", p.id, p.ended)
		}
		p.cluster.took(p)
	case lease.Ended:
		p.over()
	}
}

func (p *instance) began() {
	c := p.cluster
	if c.trace != nil {
		c.note("%s LEADS with token %d", p.id, p.cand.Token())
	}
	c.Tally.Terms++
	c.took(p)
	c.checks.began(p)
	c.handedTo(p)
	c.chosen(p)
	last := &c.lastToken
	switch back := p.cand.Token() <= last.token; {
	case back && (c.profile.Outside || c.checks.forgotten(p.cand.Token(), last.token)):
		c.Tally.TokensBack++
	case back:
		c.fail("P2: token back: %s has %d after %s had %d", p.id, p.cand.Token(), last.id, last.token)
	}
	if last.id != "" && last.id != p.id {
		c.Tally.Changes++
	}
	last.token, last.id = p.cand.Token(), p.id
	if !c.profile.Alone {
		p.sweeps.start(p)
		p.scheduler.start(p)
	}
}

func (p *instance) over() {
	c := p.cluster
	if c.trace != nil {
		c.note("%s's term %d is over: %v", p.id, p.cand.Token(), p.cand.Reason())
	}
	p.ended = p.cand.Token()
	c.Tally.Ended[p.cand.Reason()]++
	if p.cand.Reason() == lease.Transferred { // also to a better one, in the calm: each is better than the one before
		c.disturb(c.now)
	}
	p.scheduler.over(p)
	c.queue.push(event{at: c.now + c.between(0, c.profile.Drain), what: evDrained, host: p.host, life: p.life})
}

func (p *instance) drained() {
	if p.cand.State() != lease.Draining {
		return
	}
	if p.scheduler.busy() { // tasks are work too
		p.cluster.queue.push(event{at: p.cluster.now + 10*time.Millisecond, what: evDrained, host: p.host, life: p.life})
		return
	}
	p.cand.Drained(p.reading())
	p.turn()
}

// heard takes an answer to a lease script, with the mistakes of a broken client.
func (p *instance) heard(r lease.Request, a lease.Answer) {
	b, now, verdict := p.cluster.broken, p.reading(), a.Verdict
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
	p.cand.Beats(p.beatsToMeet())
	p.apply(p.cand.Answer(now, r, a))
	if a.Forgot(r) {
		p.scheduler.forgot = true
	}
	if was == lease.Leading && p.cand.State() == lease.Draining && p.cand.Reason() == lease.Refused && verdict != lease.Lost {
		p.cluster.fail("P12: refused: %s gave its term up on the verdict %s", p.id, word(verdict))
	}
}
