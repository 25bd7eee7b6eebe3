package sim

import (
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// sweepPage is how many of the silent one look lists: few, so that a pass has several pages.
const sweepPage = 2

// timings are the periods of the registry.
type timings struct{ beat, beatTTL, sweep, drifted, down time.Duration }

// timings are those of the profile. Without any they are in proportion to the first TTL: with 30 s
// they are the default options.
func (c *Cluster) timings() timings {
	ttl := c.profile.TTLs[0]
	t := timings{beat: ttl / 2, beatTTL: 3 * ttl, sweep: ttl / 3, drifted: 2 * ttl, down: 10 * ttl}
	orElse(&t.beat, c.profile.Beat)
	orElse(&t.sweep, c.profile.Sweep)
	orElse(&t.drifted, c.profile.Drifted)
	orElse(&t.down, c.profile.Down)
	return t
}

func orElse(d *time.Duration, drawn time.Duration) {
	if drawn != 0 {
		*d = drawn
	}
}

// local is the monotonic clock of a process.
func (p *instance) local() time.Duration { return p.cluster.now + p.mono }

// beats drives the heartbeats of one life.
type beats struct {
	*membership.Beat
	incarnation string
	status      string
	flying      membership.Heartbeat
	strayed     bool          // no answer to it will come in time
	lost        int           // that strayed since Redis last took one
	timer       time.Duration // the youngest one
}

func (b *beats) start(p *instance) {
	*b = beats{
		Beat: membership.NewBeat(p.local(), p.cluster.timings().beat, p.cluster.rand.Float64), incarnation: p.id + strconv.Itoa(int(p.life)), status: "joining",
	}
	p.beat()
}

// beat sends the heartbeat that is due, or gives one up that had no answer.
func (p *instance) beat() {
	b, t := &p.beats, p.cluster.timings()
	if p.stopping {
		return
	}
	if b.strayed && b.Wait(p.local()) == 0 {
		if p.cluster.broken.LivesInSilence {
			return
		}
		b.strayed = false
		b.Failed(p.local(), b.flying, false)
	}
	h, due := b.Next(p.local())
	if due {
		b.flying, b.strayed = h, false
		p.send(message{about: aboutBeat, heartbeat: h, beat: oracle.Beat{
			ID: p.id, Incarnation: b.incarnation, First: h.First, NotAfter: h.NotAfter, TTL: t.beatTTL.Milliseconds(),
			TakeOver: t.drifted.Milliseconds(), Status: b.status, Started: h.Started,
		}})
		return // its answer comes, or it strays
	}
	p.beatAt(b.Wait(p.local()))
}

// beatsToMeet are the heartbeats that questions may travel with.
func (p *instance) beatsToMeet() lease.Beats {
	if p.cluster.profile.Alone {
		return lease.Beats{}
	}
	return lease.Beats{Due: p.beats.Due(), Every: p.cluster.timings().beat}
}

// hasten sends a heartbeat with a question.
func (p *instance) hasten() {
	if !p.stopping && p.beats.Hasten(p.local(), min(p.timing.Retry, p.cluster.timings().beat)/2) {
		p.cluster.Tally.Rides++
		p.beat()
	}
}

func (p *instance) beatAt(wait time.Duration) {
	p.beats.timer = p.cluster.now + wait
	p.cluster.queue.push(event{at: p.beats.timer, what: evBeat, host: p.host, life: p.life})
}

// beatTimer is the timer of the heartbeats going off. After a freeze it is late.
func (p *instance) beatTimer(at time.Duration) {
	if at >= p.beats.timer {
		p.beat()
	}
}

// beatStrays: the answer to a heartbeat will not come in time.
func (p *instance) beatStrays(h membership.Heartbeat) {
	if b := &p.beats; h.Seq == b.flying.Seq && !b.strayed {
		b.strayed = true
		b.lost++
		p.beatAt(b.Wait(p.local()))
	}
}

// takeBeat runs the script.
func (c *Cluster) takeBeat(s *machine, m *message, now int64) {
	m.verdict, m.beat.Started, _ = s.registry.Beat(now, m.beat)
	if m.verdict != "stale" && m.verdict != "duplicate" {
		c.Tally.Beats++
		if s == c.master { // a write to a second master is lost
			c.instances[m.host].beats.lost = 0
			c.checks.beats[m.host].clock, c.checks.beats[m.host].back = now, c.checks.back
		}
	}
}

// beaten takes the answer to a heartbeat.
func (p *instance) beaten(m *message) {
	b := &p.beats
	if m.failed {
		b.Failed(p.local(), m.heartbeat, false)
	} else {
		change := b.Answer(p.local(), m.heartbeat, membership.BeatAnswer{
			Verdict: membership.Verdict(m.verdict), Now: m.clock, Started: m.beat.Started,
		})
		if change.First {
			b.status = "active"
			b.Nudge()
		}
	}
	p.beat()
}

// leave deregisters.
func (p *instance) leave() {
	p.send(message{about: aboutLeave, beat: oracle.Beat{Incarnation: p.beats.incarnation}})
}

// sweeps drives the sweeps of one term.
type sweeps struct {
	*membership.Sweep
	term    int32
	flying  membership.Question
	strayed bool
	timer   time.Duration
}

func (s *sweeps) start(p *instance) {
	t := p.cluster.timings()
	*s = sweeps{term: s.term + 1, Sweep: membership.NewSweep(p.local(), membership.SweepTiming{
		Interval: t.sweep, Heartbeat: t.beat, TTL: t.beatTTL, Drifted: t.drifted, Down: t.down,
	})}
	p.sweep()
}

// sweep asks what is due, or gives a question up that had no answer.
func (p *instance) sweep() {
	s := &p.sweeps
	if s.Sweep == nil || !p.believes() {
		return
	}
	if s.strayed && s.Wait(p.local()) == 0 {
		s.strayed = false
		s.Failed(p.local(), s.flying)
	}
	if q, due := s.Next(p.local()); due {
		s.flying, s.strayed = q, false
		p.send(message{about: aboutSweep, number: s.term, asked: q})
		return
	}
	p.sweepAt(s.Wait(p.local()))
}

func (p *instance) sweepAt(wait time.Duration) {
	p.sweeps.timer = p.cluster.now + wait
	p.cluster.queue.push(event{at: p.sweeps.timer, what: evSweep, host: p.host, life: p.life, arg: p.sweeps.term})
}

// sweepTimer is the timer of the sweeps going off.
func (p *instance) sweepTimer(at time.Duration, term int32) {
	if term == p.sweeps.term && at >= p.sweeps.timer {
		p.sweep()
	}
}

// sweepStrays: the answer to a question will not come in time.
func (p *instance) sweepStrays(m *message) {
	if s := &p.sweeps; m.number == s.term && m.asked.Seq == s.flying.Seq && !s.strayed {
		s.strayed = true
		p.sweepAt(s.Wait(p.local()))
	}
}

// takeSweep runs the scripts.
func (c *Cluster) takeSweep(server *machine, p *instance, m *message, now int64) {
	switch m.asked.Kind {
	case membership.Look:
		from, _ := strconv.ParseInt(m.asked.From, 10, 64)
		silence := c.timings().drifted / 2
		ids, next, skip := server.registry.Page(now, silence.Milliseconds(), from, m.asked.Skip, sweepPage)
		m.page = membership.Page{
			Now: now, Records: len(server.registry.Instances), Beats: len(server.registry.Beats), Skip: skip, IDs: ids,
		}
		if skip > 0 {
			m.page.From = strconv.FormatInt(next, 10)
		}
	case membership.Judge:
		m.removed = c.judge(server, p, m.asked, now)
	}
}

// judge runs the script that marks and removes.
func (c *Cluster) judge(server *machine, p *instance, q membership.Question, now int64) (removed int) {
	t := c.timings()
	c.Tally.Sweeps++
	call := oracle.Sweep{
		Drifted: t.drifted.Milliseconds(), Down: t.down.Milliseconds(), Window: 2 * t.beat.Milliseconds(), Mark: q.Mark, Remove: q.Remove,
		By: p.beats.incarnation, IDs: q.IDs,
	}
	if c.broken.SweepsBlindly {
		call.Down = 0
	}
	_, _, verdicts := server.registry.Sweep(now, call)
	if hold := server.registry.Hold; hold != nil && server == c.master {
		c.checks.held = c.now + time.Duration(hold.Ends-now)*time.Millisecond
	}
	for i, verdict := range verdicts {
		if verdict != "down" {
			continue
		}
		removed++
		c.Tally.Removed++
		for _, other := range c.instances {
			if b := c.checks.beats[other.host]; server == c.master && other.id == q.IDs[i] && b.clock != 0 && now-b.clock < t.down.Milliseconds() && !c.profile.Outside {
				c.fail("P9: %s was swept %d ms after it had beaten", other.id, now-b.clock)
			}
		}
		if c.trace != nil {
			c.note("%s sweeps %s", p.id, q.IDs[i])
		}
	}
	return removed
}

// swept takes the answer to a question of a sweep.
func (p *instance) swept(m *message) {
	s, now := &p.sweeps, p.local()
	if m.number != s.term {
		return
	}
	switch q := m.asked; {
	case m.failed:
		s.Failed(now, q)
	case q.Kind == membership.Look:
		s.Looked(now, q, m.page)
	case q.Kind == membership.Judge:
		s.Judged(now, q, m.removed)
	case q.Kind == membership.Scan: // there are no other programs
		s.Scanned(q, nil, "0")
	}
	p.sweep()
}
