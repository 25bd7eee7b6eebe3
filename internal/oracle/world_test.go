package oracle

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// world is a discrete-event simulation: electors, each a lease.Candidate, and the oracle as their Redis, in virtual
// time, through the faults of a campaign. A seed replays exactly.
type world struct {
	campaign campaign
	rules    Rules
	broken   broken
	rand     *rand.Rand

	now   time.Duration
	queue queue
	order int

	redis     *machine // the master
	snapshots []Data
	electors  []*elector
	nonces    int

	terms   []termRecord
	seats   int // times that the leader changed
	ghosts  int // leases granted to a campaign that was over
	last    time.Duration
	tally   map[lease.Reason]int
	wrong   []string
	journal []string // with tracing on
	tracing bool
}

// termRecord is one term that began.
type termRecord struct {
	token int64
	id    string
	nonce string
}

// machine is a server with a clock of its own.
type machine struct {
	Redis
	base    float64 // ms at virtual time 0
	rate    float64
	started int64 // by its own clock
	demoted bool  // it takes no writes any more
}

func (m *machine) clock(now time.Duration) int64 {
	return int64(m.base + m.rate*now.Seconds()*1000)
}

// event is something that happens at an instant.
type event struct {
	at    time.Duration
	order int
	do    func()
}

type queue []event

func (q *queue) Len() int { return len(*q) }
func (q *queue) Less(i, j int) bool {
	a, b := (*q)[i], (*q)[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}
func (q *queue) Swap(i, j int) { (*q)[i], (*q)[j] = (*q)[j], (*q)[i] }
func (q *queue) Push(e any)    { *q = append(*q, e.(event)) }
func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

const (
	start    = int64(1_700_000_000_000) // Redis's clock at the beginning
	horizon  = 300 * time.Second        // virtual length of a run
	calm     = 40 * time.Second         // without faults at the end
	patience = 15 * time.Second         // without a leader at the end: stuck
	oldAge   = 100 * time.Second        // of the first server
)

// simulate runs one seed of a campaign.
func simulate(seed uint64, c campaign, rules Rules, b broken) *world {
	return newWorld(seed, c, rules, b).run()
}

func newWorld(seed uint64, c campaign, rules Rules, b broken) *world {
	w := &world{campaign: c, rules: rules, broken: b, rand: rand.New(rand.NewPCG(seed, 7)), tally: map[lease.Reason]int{}}
	w.redis = w.newMachine(start, 1)
	w.redis.started = start - oldAge.Milliseconds()
	return w
}

func (w *world) newMachine(clock int64, history int) *machine {
	m := &machine{rate: 1}
	if w.campaign.rate != 0 {
		m.rate += (2*w.rand.Float64() - 1) * w.campaign.rate
	}
	m.base = float64(clock) - m.rate*w.now.Seconds()*1000
	m.Rules, m.Origin, m.started = w.rules, strconv.Itoa(history), clock
	return m
}

func (w *world) run() *world {
	for i := range 4 {
		w.electors = append(w.electors, newElector(w, i))
	}
	for _, e := range w.electors {
		e.boot()
	}
	w.takeSnapshots()
	w.planFault()
	for len(w.queue) > 0 && len(w.wrong) == 0 {
		e := heap.Pop(&w.queue).(event)
		if e.at > horizon {
			break
		}
		w.now = e.at
		e.do()
	}
	for _, e := range w.electors {
		if e.believes() {
			w.last = w.now
		}
	}
	if len(w.wrong) == 0 && horizon-w.last > patience {
		w.fail("stuck: nobody has led since %v", w.last)
	}
	return w
}

// after does something later.
func (w *world) after(d time.Duration, do func()) {
	w.order++
	heap.Push(&w.queue, event{w.now + max(d, 0), w.order, do})
}

// between draws a duration.
func (w *world) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rand.Int64N(int64(high-low)+1))
}

func (w *world) chance(p float64) bool { return p > 0 && w.rand.Float64() < p }

// transit is how long a message normally travels.
func (w *world) transit() time.Duration { return w.between(200*time.Microsecond, 3*time.Millisecond) }

func (w *world) trace(format string, args ...any) {
	if w.tracing {
		w.journal = append(w.journal, fmt.Sprintf("%12v ", w.now)+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	w.trace("WRONG "+format, args...)
	w.wrong = append(w.wrong, fmt.Sprintf("at %v: ", w.now)+fmt.Sprintf(format, args...))
}

// took notes that a term began or was renewed: nobody else may believe to lead at this instant.
func (w *world) took(e *elector, began bool) {
	for _, other := range w.electors {
		if other != e && other.believes() {
			w.fail("overlap: %s has token %d while %s leads with token %d", e.asker.ID, e.cand.Token(), other.asker.ID, other.cand.Token())
		}
	}
	w.last = w.now
	if !began {
		return
	}
	term := termRecord{e.cand.Token(), e.asker.ID, e.nonce}
	if n := len(w.terms); n > 0 {
		if last := w.terms[n-1]; term.token <= last.token {
			w.fail("token back: %s has %d after %s had %d", term.id, term.token, last.id, last.token)
		}
		if w.terms[n-1].id != term.id {
			w.seats++
		}
	}
	w.terms = append(w.terms, term)
}

// execute lets a request arrive at a server. It touches nothing of another campaign (P5).
func (w *world) execute(m *machine, e *elector, r lease.Request) Reply {
	now := m.clock(w.now)
	m.Uptime = (now - m.started) / second * second
	m.expire(now)
	before := m.Data
	reply := ask(&m.Redis, now, e.asker, r)
	switch owner := before.Term.Nonce; {
	case before.Lease.Holder == "" || owner == "" || owner == r.Nonce:
	case m.Lease.Holder != before.Lease.Holder, m.Lease.Expires > before.Lease.Expires, m.Term.Token != before.Term.Token:
		w.fail("%s with nonce %s changed the lease of nonce %s: %+v, was %+v", word(reply), r.Nonce, owner, m.Data, before)
	}
	w.trace("redis %d %s kind %d seq %d nonce %s → %s token %d wait %v reason %s; %+v", now, e.asker.ID, r.Kind, r.Seq, r.Nonce,
		word(reply), reply.Token, reply.Wait, reply.Reason, m.Data)
	if reply.Verdict == lease.Won && (e.down || r.Nonce != e.flying.Nonce || e.cand.State() == lease.Draining) {
		w.ghosts++
	}
	switch {
	case reply.Verdict == lease.RollCall:
		w.hint(func(c *lease.Candidate, now lease.Reading) { c.RollCall(now) })
	case r.Kind == lease.Release && before.Lease.Holder != "" && m.Lease.Holder == "":
		w.hint(func(c *lease.Candidate, now lease.Reading) { c.Vacant(now) })
	}
	return reply
}

// word names a verdict in a journal.
func word(r Reply) string {
	return [...]string{"unknown", "won", "held", "rollcall", "stale", "kept", "lost", "done"}[r.Verdict]
}

// ask calls the script of a request.
func ask(r *Redis, now int64, a Asker, q lease.Request) Reply {
	switch q.Kind {
	case lease.Acquire:
		return r.Acquire(now, a, q)
	case lease.Renew:
		return r.Renew(now, a, q)
	default:
		return r.Release(now, a, q)
	}
}

// hint tells everybody who can be reached.
func (w *world) hint(tell func(*lease.Candidate, lease.Reading)) {
	for _, e := range w.electors {
		if e.down || e.cut() || w.chance(w.campaign.deaf) {
			continue
		}
		life := e.life
		w.after(w.transit(), func() {
			e.whenAwake(life, func() {
				tell(e.cand, e.reading())
				e.turn()
			})
		})
	}
}

func (w *world) takeSnapshots() {
	w.snapshots = append(w.snapshots, w.redis.Data)
	w.snapshots = w.snapshots[max(0, len(w.snapshots)-max(w.campaign.snapshots, 4)):]
	w.after(700*time.Millisecond, w.takeSnapshots)
}
