package sim

import (
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/proof/oracle"
)

// timings are the periods of the registry; with a TTL of 30 s they are the default options.
type timings struct{ beat, beatTTL, sweep, drifted, down time.Duration }

func (w *World) timings() timings {
	ttl := w.profile.TTLs[0]
	return timings{beat: ttl / 2, beatTTL: 3 * ttl, sweep: ttl / 3, drifted: 2 * ttl, down: 10 * ttl}
}

// beats is the beat loop of one life.
type beats struct {
	incarnation string
	registered  bool
	started     int64
	number      int32 // of the beat that is waited for, or of the timer
	clock       int64 // Redis's, at the local time at; 0: unknown
	at          time.Duration
	failures    int
}

func (b *beats) start(p *process) {
	*b = beats{incarnation: p.id + strconv.Itoa(int(p.life))}
	p.w.queue.push(event{at: p.w.now, what: evBeat, host: p.host, life: p.life})
}

// beat sends a beat, or gives one up that had no answer.
func (p *process) beat(number int32) {
	b, t := &p.beats, p.w.timings()
	if number != b.number || p.stopping {
		return
	}
	if number%2 == 1 { // it was waited for
		b.number++
		b.failures++
		p.nextBeat(min(t.beat/30<<min(b.failures-1, 10), t.beat/3))
		return
	}
	b.number++
	m := oracle.Beat{
		ID: p.id, Incarnation: b.incarnation, First: !b.registered, TTL: t.beatTTL.Milliseconds(), TakeOver: t.drifted.Milliseconds(), Status: "active",
		Started: b.started,
	}
	if b.clock != 0 {
		m.NotAfter = b.clock + (p.w.now + p.mono - b.at + p.w.beatBound() + time.Second).Milliseconds()
	}
	p.send(message{about: aboutBeat, beat: m, number: b.number})
}

// beatBound is how long the answer to a beat is waited for.
func (w *World) beatBound() time.Duration { return min(w.timings().beat, 3*time.Second) }

func (p *process) nextBeat(pause time.Duration) {
	p.w.queue.push(event{at: p.w.now + pause, what: evBeat, host: p.host, life: p.life, arg: p.beats.number})
}

// takeBeat runs the script.
func (w *World) takeBeat(s *machine, m *message, now int64) {
	m.verdict, m.beat.Started, _ = s.registry.Beat(now, m.beat)
	if m.verdict != "stale" && m.verdict != "duplicate" {
		w.Tally.Beats++
		if s == w.master { // what a second master is told is lost
			w.checks.beats[m.host].clock, w.checks.beats[m.host].back = now, w.checks.back
		}
	}
}

// beaten takes the answer to a beat.
func (p *process) beaten(m *message) {
	b, t := &p.beats, p.w.timings()
	if m.number != b.number {
		return
	}
	if m.failed {
		p.beat(m.number) // as if it had been waited for
		return
	}
	b.number++
	b.clock, b.at = m.clock, p.w.now+p.mono
	if m.verdict == "stale" {
		p.nextBeat(time.Millisecond)
		return
	}
	b.failures = 0
	if m.verdict != "duplicate" {
		b.registered, b.started = true, m.beat.Started
	}
	p.nextBeat(t.beat/20*19 + p.w.between(0, t.beat/10))
}

// leave deregisters.
func (p *process) leave() {
	p.send(message{about: aboutLeave, beat: oracle.Beat{Incarnation: p.beats.incarnation}})
}

// sweeps is the sweeper of one term.
type sweeps struct {
	number   int32
	watching time.Duration
}

func (s *sweeps) start(p *process) {
	*s = sweeps{number: s.number + 1, watching: p.w.now}
	p.w.queue.push(event{at: p.w.now, what: evSweep, host: p.host, life: p.life, arg: s.number})
}

// sweep looks who is silent.
func (p *process) sweep(number int32) {
	s, t := &p.sweeps, p.w.timings()
	if number != s.number || !p.believes() {
		return
	}
	s.number++
	p.send(message{about: aboutSweep, verdict: "look", number: s.number})
	p.w.queue.push(event{at: p.w.now + t.sweep, what: evSweep, host: p.host, life: p.life, arg: s.number})
}

// takeSweep runs the scripts.
func (w *World) takeSweep(server *machine, p *process, m *message, now int64) {
	t := w.timings()
	if m.verdict == "look" {
		m.silent = server.registry.Look(now, t.drifted.Milliseconds()/2)
		return
	}
	w.Tally.Sweeps++
	call := *m.sweep
	if w.broken.SweepsBlindly {
		call.Down = 0
	}
	_, _, verdicts := server.registry.Sweep(now, call)
	if hold := server.registry.Hold; hold != nil && server == w.master {
		w.checks.held = w.now + time.Duration(hold.Ends-now)*time.Millisecond
	}
	for i, verdict := range verdicts {
		if verdict != "down" {
			continue
		}
		w.Tally.Removed++
		for _, other := range w.processes {
			if b := w.checks.beats[other.host]; server == w.master && other.id == m.silent[i] && b.clock != 0 && now-b.clock < t.down.Milliseconds() && !w.profile.Outside {
				w.fail("P9: %s was swept %d ms after it had beaten", other.id, now-b.clock)
			}
		}
		if w.trace != nil {
			w.note("%s sweeps %s", p.id, m.silent[i])
		}
	}
}

// swept takes the answer to a look: who may be removed is swept.
func (p *process) swept(m *message) {
	s := &p.sweeps
	if m.verdict != "look" || m.failed || m.number != s.number || len(m.silent) == 0 || !p.believes() {
		return
	}
	t, watched := p.w.timings(), p.w.now-s.watching
	p.send(message{about: aboutSweep, verdict: "sweep", silent: m.silent, sweep: &oracle.Sweep{
		Drifted: t.drifted.Milliseconds(), Down: t.down.Milliseconds(), Window: 2 * t.beat.Milliseconds(),
		Mark: watched >= 2*t.beat, Remove: watched >= t.drifted, By: p.beats.incarnation, IDs: m.silent,
	}})
}
