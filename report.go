package tenure

import (
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// report is what an elector knows beside its own term, and has reported: whether Redis answers, who leads, why it waits itself. It
// belongs to the loop.
type report struct {
	// Whether Redis answers.
	down       bool       // it gives no usable answer, as far as it was reported
	failing    bool       // the same, as it is
	unanswered int        // what the candidate counted last
	lastErr    error      // of Redis
	faults     reportOnce // since the last usable answer
	answered   time.Time

	// Who leads.
	heard      uint64 // number of the youngest call that said who leads
	leader     string
	leadTok    int64
	leaderEnds time.Time     // it is not known to lead from here on; zero: there is no such time
	granted    bool          // a hint: somebody leads now
	looking    bool          // a look is in flight, and was not given up
	lookedAt   time.Duration // monotonic: when the last look began
	knownAt    time.Duration // monotonic: when it was last heard, or asked in vain, who leads

	// Why it waits.
	waiting   string
	waitUntil time.Time
	toldWait  string
	backFor   string // why it stands back; "" if it does not
	witness   bool
	unread    bool // that the witness is off was reported
}

const lookSpacing = 25 * time.Millisecond // between looks that hints cause: a flood of them costs no flood of requests

// asks reports whether the candidate hears who leads by its own requests.
func (c *campaigner) asks(now lease.Reading) bool {
	switch c.cand.State() {
	case lease.Leading:
		return true
	case lease.Following:
		return c.healthy && c.cand.StandsBack(now) == 0
	}
	return false
}

// untilLook is how long it is until a look is due.
func (c *campaigner) untilLook(now lease.Reading) time.Duration {
	r := &c.report
	switch {
	case r.looking:
		return max(r.lookedAt+c.e.timing.Attempt()-now.Mono, 0)
	case c.stopping || c.calls >= maxCalls/2 || c.asks(now): // a call that is needed comes first
		return lease.MaxTTL
	case r.granted:
		return max(r.lookedAt+lookSpacing-now.Mono, 0)
	}
	return max(r.knownAt+c.e.opts.RetryInterval-now.Mono, 0)
}

// look asks who leads while the candidate does not: it stands back, is not healthy, or its work drains. So what Status says stays true.
func (c *campaigner) look(now lease.Reading) {
	r := &c.report
	if c.asks(now) {
		r.granted = false // it learns of it by itself
	}
	if c.untilLook(now) > 0 {
		return
	}
	if r.looking { // whenever its answer comes, it is taken
		r.looking, r.failing, r.lastErr = false, true, c.silence()
		return
	}
	r.granted, r.looking, r.lookedAt, r.knownAt = false, true, now.Mono, now.Mono
	c.call(reply{look: true}, c.e.timing.Attempt(), c.e.store.Leader)
}

// looked takes the answer to a look. Like that to a release it does not say what else is refused.
func (c *campaigner) looked(now lease.Reading, r reply) {
	c.report.looking = false
	if r.err != nil {
		c.refused(r)
		c.report.failing = c.report.failing || r.number > c.report.heard
		return
	}
	c.report.answered = time.Now()
	if !errors.Is(c.report.lastErr, ErrMisconfigured) {
		c.report.lastErr, c.report.failing = nil, false
	}
	c.leads(now, r)
}

// refused takes an error of Redis.
func (c *campaigner) refused(r reply) {
	if r.number < c.report.heard {
		return // an older call: a younger one had a usable answer
	}
	c.report.lastErr = r.err
	if c.report.faults.newFix(r.err) {
		c.e.bus.publish(Event{Type: EventMisconfigured, Role: c.e.opts.Role, Err: r.err})
	}
}

// usable takes a usable answer to an acquire or a renewal.
func (c *campaigner) usable(now lease.Reading, r reply) {
	c.report.lastErr, c.report.faults = nil, reportOnce{}
	if r.number < c.report.heard || r.answer.Verdict == lease.Stale {
		return
	}
	c.report.waiting, c.report.waitUntil = "", time.Time{}
	if v := r.answer.Verdict; v == lease.Held || v == lease.RollCall {
		c.report.waiting, c.report.waitUntil = r.answer.Reason, time.Now().Add(r.answer.Wait)
	}
	if c.report.witness = r.answer.Origin != ""; c.report.witness {
		c.report.unread = false
	} else if !c.report.unread {
		c.report.unread = true
		c.e.bus.publish(Event{Type: EventHistoryUnread, Role: c.e.opts.Role})
	}
	if r.answer.Verdict == lease.Kept && r.answer.Reason == "reclaimed" {
		c.e.bus.publish(Event{Type: EventReclaimed, Role: c.e.opts.Role, Token: r.answer.Token})
	}
	c.leads(now, r)
}

// leads takes what an answer says of who leads.
func (c *campaigner) leads(now lease.Reading, r reply) {
	if r.number < c.report.heard {
		return
	}
	c.report.heard, c.report.knownAt = r.number, now.Mono
	c.report.leaderEnds = c.knownUntil(r)
	c.report.leadTok = r.answer.Token
	if r.answer.Reason == "foreign" || r.answer.Holder == "" {
		c.report.leadTok = 0
	}
	if r.answer.Holder != c.report.leader {
		c.report.leader = r.answer.Holder
		c.e.bus.publish(Event{Type: EventLeaderChanged, Role: c.e.opts.Role, Subject: c.report.leader, Token: c.report.leadTok})
	}
}

// knownUntil is when the lease that an answer shows must have ended, if it is not renewed, and one more attempt to hear of that. Zero:
// a foreign lease without an expiry never does.
func (c *campaigner) knownUntil(r reply) time.Time {
	left := r.answer.Wait
	switch {
	case left < 0:
		return time.Time{}
	case r.answer.Verdict != lease.Held: // it does not say: ours was just prolonged, another's may have been
		left = max(r.answer.TTL, c.e.timing.TTL)
	}
	return time.Now().Add(left + c.e.timing.Attempt())
}

// tell reports what has changed, once each.
func (c *campaigner) tell(now lease.Reading) {
	r := &c.report
	if unanswered := c.cand.Unanswered(); unanswered != r.unanswered {
		r.failing, r.unanswered = unanswered > 0, unanswered
	}
	if r.failing != r.down {
		r.down = r.failing
		c.tellDown()
	}
	switch back := c.cand.StandsBack(now) > 0; {
	case !back:
		r.backFor = ""
	case r.backFor == "": // after a term of its own it is "penalty" already
		r.backFor = "silence"
	}
	if waiting, until := c.waits(states[c.cand.State()], now); waiting != r.toldWait {
		r.toldWait = waiting
		if waiting != "" && waiting != "silence" { // redis_down reports that
			c.e.bus.publish(Event{Type: EventWaiting, Role: c.e.opts.Role, Reason: waiting, Until: until})
		}
	}
	if step := c.cand.StepSeen(); step != 0 {
		c.e.bus.publish(Event{Type: EventClockStep, Role: c.e.opts.Role, Step: step})
	}
}

// tellDown reports that Redis gives no usable answer, or answers again: in pairs, whoever leads.
func (c *campaigner) tellDown() {
	role := c.e.opts.Role
	if !c.report.down {
		c.e.bus.publish(Event{Type: EventRedisUp, Role: role})
		return
	}
	if c.report.lastErr == nil {
		c.report.lastErr = c.silence()
	}
	c.e.bus.publish(Event{Type: EventRedisDown, Role: role, Err: c.report.lastErr})
	if c.cand.State() == lease.Leading {
		c.e.bus.publish(Event{Type: EventRenewFailed, Role: role, Token: c.cand.Token(), Err: c.report.lastErr})
	}
}

// Silence is the error of an attempt that had no answer within its bound, with what is likely wrong if no other had one either.
func (c *campaigner) silence() error {
	err := fmt.Errorf("%w within %v", ErrUnreachable, c.e.timing.Attempt())
	if s, ok := c.e.store.(interface{ Silence() string }); ok && c.report.answered.IsZero() && s.Silence() != "" {
		err = fmt.Errorf("%w (fix: %s)", err, s.Silence())
	}
	return err
}

var states = map[lease.State]ElectionState{
	lease.Following: StateFollowing, lease.Leading: StateLeading, lease.Draining: StateDraining, lease.Stopped: StateStopped,
}

// waits says why this candidate does not lead, and until when.
func (c *campaigner) waits(state ElectionState, now lease.Reading) (reason string, until time.Time) {
	back := c.cand.StandsBack(now)
	switch {
	case state != StateFollowing:
		return "", time.Time{}
	case !c.healthy && c.sick == nil: // the first check has not returned
		return "", time.Time{}
	case !c.healthy:
		return "unhealthy", time.Time{}
	case back > 0:
		return c.report.backFor, time.Now().Add(back)
	}
	return c.report.waiting, c.report.waitUntil
}

func (c *campaigner) publishStatus(state ElectionState) {
	now := readClock()
	s := &snapshot{leaderEnds: c.report.leaderEnds, ElectionStatus: ElectionStatus{
		Role:           c.e.opts.Role,
		State:          state,
		Leader:         c.report.leader,
		LeaderToken:    c.report.leadTok,
		LastAnswer:     c.report.answered,
		HistoryWitness: c.report.witness,
		CallsInFlight:  c.calls,
		Err:            c.report.lastErr,
	}}
	s.Waiting, s.WaitingUntil = c.waits(state, now)
	switch {
	case state == StateLeading:
		s.Token = c.cand.Token()
		s.Deadline = time.Now().Add(c.cand.Lease().EndsIn(now))
	case s.Waiting == "unhealthy":
		s.Err = fmt.Errorf("%w: %w", ErrWorkFailed, c.sick)
	}
	c.e.status.Store(s)
}
