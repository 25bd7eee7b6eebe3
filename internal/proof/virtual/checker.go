package virtual

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure"
)

// checker holds what happens in a world against the promises, always. A violation is kept as
// text that begins with the promise; a test that provokes one on purpose takes it out again.
//
// The belief in a term is one interval: it begins with the event that reports it, and once it is
// false it stays false, which the checker verifies. If two intervals meet, the one that began
// earlier is still believed at the instant at which the later one begins: to ask everybody at each
// such instant is therefore exact, and needs no dense sampling.
type checker struct {
	cluster *cluster

	mu       sync.Mutex
	lives    []*life
	foreign  *foreign // takes part beside them; nil: nobody does
	problems []problem
	trace    string // until the first of them
	overlaps int

	terms    int
	endings  map[error]int // of terms, by cause
	token    int64         // of the last term that began
	lastTerm string        // who began it
	resource struct {
		highest  int64
		owner    string // of the highest
		accepted int
		refused  int
	}

	more     map[string]int64      // token of the last term of each further role
	tasks    map[string]*taskState // by name
	tap      *tap
	asked    asked
	changes  int           // terms that began on another instance than the one before
	vacant   time.Duration // when a leader crashed, or had drained; 0: not since the last term began
	gone     bool          // it crashed
	failover struct{ crash, handover time.Duration }
}

func newChecker(of *cluster) *checker {
	c := &checker{cluster: of, endings: map[error]int{}, more: map[string]int64{}, tasks: map[string]*taskState{}, asked: newAsked()}
	c.tap = newTap(c)
	for _, t := range of.pace.tasks {
		c.tasks[t.name] = &taskState{task: t}
	}
	return c
}

// fail keeps a violation. c.mu is not held.
func (c *checker) fail(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed(format, args...)
}

func (c *checker) failed(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.cluster.note("checker", "VIOLATION", text, 0)
	if c.problems == nil {
		c.trace = c.cluster.net.Trace.Tail(150)
	}
	c.problems = append(c.problems, problem{at: c.cluster.net.Elapsed(), text: text})
}

// problem is a violation: a text that begins with the promise.
type problem struct {
	at   time.Duration
	text string
}

func (p problem) String() string { return fmt.Sprintf("%v: %s", p.at, p.text) }

// finish reports what was violated.
func (c *checker) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cluster.setup.report != nil {
		c.cluster.setup.report(c.problems)
		return
	}
	for _, problem := range c.problems[:min(len(c.problems), 10)] {
		c.cluster.Error(problem)
	}
	if more := len(c.problems) - 10; more > 0 {
		c.cluster.Errorf("and %d more", more)
	}
}

// takeOverlaps returns how many overlaps there were, and forgives them.
func (c *checker) takeOverlaps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := c.overlaps
	c.overlaps = 0
	c.problems = slices.DeleteFunc(c.problems, func(p problem) bool { return strings.HasPrefix(p.text, "P1: ") })
	return count
}

func (c *checker) join(l *life) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives = append(c.lives, l)
}

func (c *checker) leave(l *life) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.lives {
		if other == l {
			c.lives = append(c.lives[:i:i], c.lives[i+1:]...)
			return
		}
	}
}

// crashed takes note that a process died, perhaps as the leader.
func (c *checker) crashed(l *life, leading bool) {
	c.leave(l)
	c.mu.Lock()
	defer c.mu.Unlock()
	if leading {
		c.vacant, c.gone = c.cluster.net.Elapsed(), true
	}
}

// sample asks everybody, at this very instant.
func (c *checker) sample() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask()
}

func (c *checker) ask() {
	var first *life
	foreign := c.foreign != nil && c.foreign.leads()
	leading := map[string][]string{} // of the further roles
	for _, l := range c.lives {
		if l.dead.Load() {
			continue
		}
		for _, e := range l.more {
			if e.IsLeader() {
				leading[e.Role()] = append(leading[e.Role()], l.name)
			}
		}
		if l.past.Valid() {
			c.failed("P4: term %d of %s has ended and is valid again", l.past.Token, l.name)
		}
		if !l.elector.IsLeader() {
			continue
		}
		if foreign {
			c.overlaps++
			c.failed("P1: %s and a foreign client both lead", l.name)
		}
		if l.drained {
			c.failed("P8: %s has drained, and leads", l.name)
		}
		if first != nil {
			c.overlaps++
			c.failed("P1: %s and %s both lead", first.name, l.name)
		}
		first = l
	}
	for role, by := range leading {
		if len(by) > 1 {
			c.overlaps++
			c.failed("P1: %v lead role %s", by, role)
		}
	}
}

// beganMore takes note of a term of a further role.
func (c *checker) beganMore(l *life, role string, token int64) {
	c.cluster.note(l.name, "acquired "+role, "", token)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask()
	if token <= c.more[role] {
		c.failed("P2: %s began a term of role %s with token %d after one with %d", l.name, role, token, c.more[role])
	}
	c.more[role] = max(token, c.more[role])
}

// observe takes the events of a process.
func (l *life) observe(e tenure.Event) {
	if l.dead.Load() {
		return
	}
	if e.Role != "" {
		if e.Type == tenure.EventTermBegan {
			l.check.beganMore(l, e.Role, e.Token)
		}
		return
	}
	switch e.Type {
	case tenure.EventTermBegan:
		l.check.began(l, e.Token)
	case tenure.EventTermEnded:
		l.check.ended(l, e.Token, e.Err)
	case tenure.EventDrainEnded:
		l.check.drainEnded(l)
	case tenure.EventLeaseReleased, tenure.EventWorkOverrun, tenure.EventCallsStuck, tenure.EventRedisClockStepped:
		l.note(l.name, string(e.Type), fmt.Sprint(e.Err), e.Token)
	}
}

// began takes note of a term, asks everybody and holds its token against all before.
func (c *checker) began(l *life, token int64) {
	c.cluster.note(l.name, "acquired", "", token)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask()
	if l.leading != 0 {
		c.failed("P8: %s began term %d without having ended term %d", l.name, token, l.leading)
	}
	l.leading = token
	if token <= c.token {
		c.failed("P2: %s began a term with token %d after %s had one with %d", l.name, token, c.lastTerm, c.token)
	}
	c.terms++
	if l.name != c.lastTerm {
		c.changes++
	}
	c.token, c.lastTerm = max(token, c.token), l.name
	c.measure()
}

// measure holds the time without a leader against P7.
func (c *checker) measure() {
	if c.vacant == 0 {
		return
	}
	took := c.cluster.net.Elapsed() - c.vacant
	longest, bound, what := &c.failover.handover, roundTrip+20*time.Millisecond, "graceful hand-over"
	if c.gone {
		longest, bound, what = &c.failover.crash, c.cluster.pace.ttl+50*time.Millisecond+roundTrip, "crash failover"
	}
	c.vacant = 0
	*longest = max(*longest, took)
	if c.cluster.setup.calm && took > bound {
		c.failed("P7: %s took %v, more than %v", what, took, bound)
	}
}

// count is how many terms there were.
func (c *checker) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms
}

// causes of the end of a term, the special one first.
var causes = []error{tenure.ErrExpired, tenure.ErrLost, tenure.ErrResigned, tenure.ErrStopped}

func (c *checker) ended(l *life, token int64, cause error) {
	c.cluster.note(l.name, "ended", fmt.Sprint(cause), token)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.leading != token {
		c.failed("P8: %s ended term %d while it was in term %d", l.name, token, l.leading)
	}
	l.leading = 0
	for _, known := range causes {
		if errors.Is(cause, known) {
			c.endings[known]++
			break
		}
	}
	if l.elector.IsLeader() {
		c.failed("P8: %s ended term %d and still leads", l.name, token)
	}
}

// workBegins and workEnds pair the callbacks: none begins before the one before has ended.
func (c *checker) workBegins(l *life, term tenure.Term) {
	if l.dead.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ask()
	l.working++
	switch {
	case l.working > 1:
		c.failed("P8: leader work of %s began for term %d while it ran for term %d", l.name, term.Token, l.begun)
	case l.begun >= term.Token:
		c.failed("P8: leader work of %s began for term %d after term %d", l.name, term.Token, l.begun)
	}
	l.begun = term.Token
}

func (c *checker) workEnds(l *life, term tenure.Term) {
	if l.dead.Load() {
		return
	}
	lease := c.cluster.lease()
	c.mu.Lock()
	defer c.mu.Unlock()
	l.working--
	if lease.token == fmt.Sprint(term.Token) && lease.released {
		c.failed("P8: the lease of term %d was released while work of %s ran", term.Token, l.name)
	}
	if c.cluster.setup.calm && c.token == term.Token {
		c.vacant, c.gone = c.cluster.net.Elapsed(), false
	}
}

func (c *checker) works(l *life) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.working
}

// cancelled looks at the very instant at which leader work hears of the end: IsLeader is false
// already, and the lease is still there.
func (c *checker) cancelled(l *life, term tenure.Term, cause error) {
	if l.dead.Load() {
		return
	}
	lease := c.cluster.lease()
	c.mu.Lock()
	defer c.mu.Unlock()
	l.past = term
	if term.Valid() {
		c.failed("P8: the context of term %d of %s is cancelled and the term is valid", term.Token, l.name)
	}
	if c.cluster.setup.kept && errors.Is(cause, tenure.ErrExpired) && (!lease.is(term) || lease.left <= 0) {
		c.failed("P4: the work of %s was cancelled in term %d when its lease had ended: Redis shows %+v", l.name, term.Token, lease)
	}
}

// write is the fenced resource: it refuses a token below the highest it has seen.
func (c *checker) write(l *life, term tenure.Term) {
	if l.dead.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &c.resource
	if term.Token < r.highest {
		r.refused++
		c.cluster.note(l.name, "fenced", "", term.Token)
		if term.Valid() {
			c.failed("P1: the resource refused token %d of %s, which leads: it had seen %d of %s", term.Token, l.name, r.highest, r.owner)
		}
		return
	}
	owner := fmt.Sprintf("%s in its life %d", l.name, l.number)
	if term.Token == r.highest && r.owner != owner {
		c.failed("P3: token %d was used by %s and by %s", term.Token, r.owner, owner)
	}
	r.highest, r.owner = term.Token, owner
	r.accepted++
}
