package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// ElectionState is the state of an elector.
type ElectionState string

// The states of an elector.
const (
	ElectionIdle      ElectionState = "idle"      // Run was not called yet
	ElectionFollowing ElectionState = "following" // no term: asking, waiting or standing back
	ElectionLeading   ElectionState = "leading"   // a term is on
	ElectionDraining  ElectionState = "draining"  // a term is over, its work is not
	ElectionStopped   ElectionState = "stopped"   // Run has returned, or is about to
)

// WaitReason says why a candidate does not lead.
type WaitReason string

// The reasons to wait. The zero value, "", is none of them.
const (
	WaitLease     WaitReason = "lease"     // another instance holds the lease
	WaitForeign   WaitReason = "foreign"   // another program holds the lease
	WaitEmpty     WaitReason = "empty"     // Redis knows nothing of the role yet: leaders are asked to renew
	WaitYoung     WaitReason = "young"     // Redis knows nothing of the role and is young: it may have forgotten a lease
	WaitHold      WaitReason = "hold"      // Redis has restarted, failed over or lost data: a lease that it forgot may be on
	WaitVanished  WaitReason = "vanished"  // the lease vanished before its end
	WaitReserved  WaitReason = "reserved"  // the last leader has left the lease to another instance for a moment
	WaitYield     WaitReason = "yield"     // a better candidate (see Priority) asks, and comes first for a moment
	WaitPenalty   WaitReason = "penalty"   // this process stands back after a term of its own
	WaitSilence   WaitReason = "silence"   // it stands back since Redis gave no usable answer for a LeaseTTL
	WaitUnhealthy WaitReason = "unhealthy" // its health check fails
	// WaitIneligible: it may not lead, see ElectionOptions.Ineligible, Elector.SetEligible and
	// EnvOptions.New.
	WaitIneligible WaitReason = "ineligible"
	// WaitDraining: this process drains, see Coordinator.Drain.
	WaitDraining WaitReason = "draining"
)

// refusals are the reasons that a store gives: "ineligible" that of a process without Redis, which
// nothing is granted to.
var refusals = map[string]WaitReason{
	"lease": WaitLease, "foreign": WaitForeign, "empty": WaitEmpty, "young": WaitYoung, "hold": WaitHold, "until": WaitVanished,
	"reserved": WaitReserved, "yield": WaitYield, "ineligible": WaitIneligible,
}

// ElectionStatus is a snapshot of an elector. It is cached: asking for it costs no round trip.
type ElectionStatus struct {
	Role  string        `json:"role"`
	State ElectionState `json:"state"`
	// Token is the fencing token of the current term, 0 without one. Deadline is when that term
	// ends unless it is renewed; zero without one.
	Token    int64     `json:"token"`
	Deadline time.Time `json:"deadline,omitzero"`
	// Leader is the instance that held the lease at the last answer of Redis. "" means that nobody
	// held it, or that this lease must have ended since without another answer, so that the leader
	// is not known. LeaderToken is its token, 0 for a foreign client. While this candidate does not
	// campaign, it asks once per RetryInterval, and when a hint says that a lease was granted. One
	// of more than 1,000 followers may learn of another leader by its next regular question, a
	// RetryInterval later.
	Leader      string `json:"leader"`
	LeaderToken int64  `json:"leader_token"`
	// TransferringTo is the instance that the lease is offered to, or that it goes to once the work
	// of the term has returned; "": no transfer is on, or the best candidate is not known yet. See
	// Elector.Transfer.
	TransferringTo string `json:"transferring_to,omitempty"`
	// LastAnswer is when Redis last gave a usable answer; zero: never.
	LastAnswer time.Time `json:"last_answer,omitzero"`
	// Waiting says why this candidate does not lead; "" if none of the reasons applies.
	// EventElectionWaiting reports each change to a reason, but for WaitSilence.
	Waiting WaitReason `json:"waiting"`
	// WaitingUntil is when that may change, by this machine's clock: when the lease ends unless it
	// is renewed, or when leases are granted again. Zero if that is not known.
	WaitingUntil time.Time `json:"waiting_until,omitzero"`
	// HistoryWitness is false while Redis does not report its replication id (INFO refused): a
	// failover or a restart is then noticed only by what is missing. EventHistoryUnread reports it.
	HistoryWitness bool `json:"history_witness"`
	// Subscription is the state of the one subscription of this process, on which it hears hints.
	Subscription Subscription `json:"subscription"`
	// CallsInFlight counts the calls to Redis that have not returned, abandoned ones included.
	CallsInFlight int `json:"calls_in_flight"`
	// Err is the last error of Redis, nil again after a usable answer. While the health check keeps
	// this candidate from campaigning, it is the error of that check (ErrWorkFailed).
	Err error `json:"-"`
}

// snapshot is what Status answers from.
type snapshot struct {
	ElectionStatus
	leaderEnds time.Time // Leader is not known to lead from here on; zero: there is no such time
	down       bool      // Redis gives no usable answer, as far as it was reported
}

// instance is the one that leads; "": nobody does, or another program.
func (s *snapshot) instance() string {
	if s.LeaderToken == 0 {
		return ""
	}
	return s.Leader
}

// Subscription is the state of the one subscription on which a process hears hints. Without it a
// hand-over waits for a follower's own wake-up, and a leader does not hear the roll-call after
// Redis lost its data (see SafetyOptions.EmptyHistoryWait).
//
// With T the shortest LeaseTTL of the process: a subscription that dies without a sign is noticed
// within max(4.5 s, 0.45 · T), and another one stands within max(5 s, T/2) of its death if Redis
// can be reached by then. One of n listeners of a role that leads nothing itself may take n · 6 ms
// longer, and a minute at most: enough others hear.
type Subscription struct {
	// Active reports whether hints arrive, by the last check. A check is made every max(2.5 s,
	// T/4), or less often by one of many listeners, see Subscription.
	Active bool `json:"active"`
	// Since is when Active last changed; zero if it was never true.
	Since time.Time `json:"since,omitzero"`
	// Err says why Active is false: ErrUnreachable or ErrMisconfigured, nil before the first
	// attempt has ended. While Active is true it is nil, or ErrMisconfigured if Redis refuses to
	// publish the hints of this process.
	Err error `json:"-"`
}

// electionReport is what an election knows beside its own term, and has reported: whether Redis
// answers, who leads, why it waits itself. Its fields belong to the loop.
type electionReport struct {
	bus     electionBus
	news    []Event // that no observer was told of yet
	timing  *lease.Timing
	suspect func() string // what is likely wrong if Redis has never answered, "": no idea; nil: nobody knows

	subscription *atomic.Pointer[store.Subscription] // of the process; anybody may read it

	// Whether Redis answers.
	down       bool          // it gives no usable answer, as far as it was reported
	failing    bool          // the same, as it is
	witness    bool          // the last usable answer named the history
	unread     bool          // that it named none was reported
	unanswered int           // what the candidate counted last
	failedAt   time.Duration // monotonic: when it counted that
	lastErr    error         // of Redis
	faults     reportOnce    // since the last usable answer to the same request
	request    lease.Kind    // that was answered last
	lastAnswer time.Time

	// Who leads.
	heard       uint64 // number of the youngest call that said who leads
	leader      string
	leaderToken int64
	lastLeader  string        // who led last, now or before
	leaderEnds  time.Time     // it is not known to lead from here on; zero: there is no such time
	knownAt     time.Duration // monotonic: when it was last heard, or asked in vain, who leads

	// Why it waits.
	eligible     bool  // by the last word of the application, and of a drain
	draining     bool  // this process drains
	healthy      bool  // by the last answer of the health check
	sick         error // that answer
	waiting      WaitReason
	waitUntil    time.Time
	redisAge     time.Duration // with WaitYoung
	reportedWait WaitReason    // waiting, as it was reported
	backFor      WaitReason    // why it stands back; "" if it does not
}

// tell keeps an event until the status shows what it says.
func (r *electionReport) tell(e Event) { r.news = append(r.news, e) }

// refused takes an error of Redis, which is what a call came back with.
func (r *electionReport) refused(number uint64, err error) {
	if number < r.heard {
		return // an older call: a younger one had a usable answer
	}
	if why := r.unconnected(); why != "" && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w; the subscription: %s", err, why)
	}
	r.lastErr = err
	if r.faults.newFix(err) {
		r.tell(Event{Type: EventElectionMisconfigured, Role: r.bus.role, Err: err})
	}
}

// lookRefused is refused for a look.
func (r *electionReport) lookRefused(number uint64, err error) {
	r.refused(number, err)
	r.failing = r.failing || number > r.heard
}

// lookUnanswered takes the silence after a look.
func (r *electionReport) lookUnanswered(number uint64) {
	if number < r.heard {
		return // a younger call had a usable answer
	}
	r.lastErr, r.failing = r.silence(), true
}

// looked takes the answer to a look, which was given up if it is late. Like the answer to a release
// it does not say what else is refused: an outage that requests of this candidate have met lately
// is over when they say so.
func (r *electionReport) looked(now lease.Reading, number uint64, answer store.LeaseReply, late bool) {
	r.lastAnswer = time.Now()
	r.faults.made(looks)
	lately := r.unanswered > 0 && now.Mono-r.failedAt <= r.timing.Retry*11/10+2*r.timing.Attempt() // it makes one by then, if it makes any
	if !lately && !late {
		r.lastErr, r.failing = nil, false
	}
	r.leads(now, number, answer)
}

// released takes the answer to the release of that term. It says nothing of what else is refused.
func (r *electionReport) released(token int64) {
	r.lastAnswer = time.Now()
	r.faults.made(operations[lease.Release])
	if token != 0 && token == r.leaderToken {
		r.leader, r.leaderToken = "", 0
	}
}

// answered takes that a request of this candidate was answered.
func (r *electionReport) answered(now lease.Reading, kind lease.Kind, candidate *lease.Candidate) {
	r.request = kind
	if kind != lease.Release { // see released
		r.failing = r.failing && candidate.Unanswered() > 0 // it may have come too late for the candidate
	}
	r.reaches(now, candidate)
}

// operations are what the errors of the store call the requests.
var operations = map[lease.Kind]string{lease.Acquire: "acquire", lease.Renew: "renew", lease.Release: "release"}

// looks is what they call a look.
const looks = "leader"

// usable takes a usable answer to an acquire or a renewal, after answered.
func (r *electionReport) usable(now lease.Reading, number uint64, answer store.LeaseReply) {
	r.lastAnswer = time.Now()
	r.faults.worked(operations[r.request])
	if answer.Verdict != lease.Stale { // else not all keys were read
		r.faults.repaired()
	}
	if !r.failing {
		r.lastErr = nil
	}
	if number < r.heard || answer.Verdict == lease.Stale {
		return
	}
	r.waiting, r.waitUntil = "", time.Time{}
	if v := answer.Verdict; v == lease.Held || v == lease.RollCall {
		r.waiting, r.waitUntil = refusals[answer.Reason], time.Now().Add(answer.Wait)
		r.redisAge = 0
		if r.waiting == WaitYoung {
			r.redisAge = max(time.UnixMilli(answer.Now).Sub(time.Unix(answer.Since, 0)), 0)
		}
	}
	if r.witness = answer.Origin != ""; r.witness {
		r.unread = false
	} else if !r.unread {
		r.unread = true
		r.tell(Event{Type: EventHistoryUnread, Role: r.bus.role})
	}
	if answer.Verdict == lease.Kept && answer.Reclaimed {
		r.tell(Event{Type: EventLeaseReclaimed, Role: r.bus.role, Token: answer.Token})
	}
	r.leads(now, number, answer)
}

// leads takes what an answer says of who leads.
func (r *electionReport) leads(now lease.Reading, number uint64, answer store.LeaseReply) {
	if number < r.heard {
		return
	}
	r.heard, r.knownAt = number, now.Mono
	r.leaderEnds = r.knownUntil(answer)
	before := r.leaderToken
	r.leaderToken = answer.Token
	if answer.Reason == "foreign" || answer.Holder == "" {
		r.leaderToken = 0
	}
	anew := answer.Verdict == lease.Won && before != 0 && answer.Token != before // after another process of this ID, say
	if answer.Holder == r.leader && !anew {
		return
	}
	r.leader = answer.Holder
	e := Event{Type: EventLeaderChanged, Role: r.bus.role, Subject: r.leader, Token: r.leaderToken, Former: r.lastLeader}
	if answer.Verdict == lease.Won {
		e.Reason = answer.Reason
	}
	if r.leader != "" {
		r.lastLeader = r.leader
	}
	r.tell(e)
}

// knownUntil is when the lease that an answer shows must have ended if it is not renewed, and one
// more attempt to hear of that. Zero: a foreign lease without an expiry never ends.
func (r *electionReport) knownUntil(answer store.LeaseReply) time.Time {
	left := answer.Wait
	switch {
	case left < 0:
		return time.Time{}
	case answer.Verdict != lease.Held: // it does not say: ours was just prolonged, another's may have been
		left = max(answer.TTL, r.timing.TTL)
	}
	return time.Now().Add(left + r.timing.Attempt())
}

// publish reports what has changed, once each.
func (r *electionReport) publish(now lease.Reading, candidate *lease.Candidate) {
	r.reaches(now, candidate)
	switch back := candidate.StandsBack(now) > 0; {
	case !back && r.backFor == WaitSilence && r.down: // it asks in between, and knows no more
	case !back:
		r.backFor = ""
	case r.backFor == "": // after a term of its own it is WaitPenalty already
		r.backFor = WaitSilence
	}
	waiting, until := r.waits(now, candidate)
	if waiting != r.reportedWait {
		r.reportedWait = waiting
		if waiting != "" && waiting != WaitSilence { // redis_down reports that
			e := Event{Type: EventElectionWaiting, Role: r.bus.role, Reason: string(waiting), Until: until}
			if waiting == WaitYoung {
				e.Took = r.redisAge
			}
			r.tell(e)
		}
	}
	if step := candidate.StepSeen(); step != 0 {
		r.tell(Event{Type: EventRedisClockStepped, Role: r.bus.role, Step: step})
	}
}

// reaches reports whether Redis gives usable answers, if that has changed.
func (r *electionReport) reaches(now lease.Reading, candidate *lease.Candidate) {
	if unanswered := candidate.Unanswered(); unanswered != r.unanswered {
		r.failing, r.unanswered, r.failedAt = unanswered > 0, unanswered, now.Mono
	}
	if r.failing != r.down {
		r.down = r.failing
		r.publishDown(candidate)
	}
}

// publishDown reports that Redis gives no usable answer, or answers again: in pairs, on leaders and
// followers alike.
func (r *electionReport) publishDown(candidate *lease.Candidate) {
	if !r.down {
		r.tell(Event{Type: EventRedisUp, Role: r.bus.role})
		return
	}
	if r.lastErr == nil {
		r.lastErr = r.silence()
	}
	r.tell(Event{Type: EventRedisDown, Role: r.bus.role, Err: r.lastErr})
	if candidate.State() == lease.Leading {
		r.tell(Event{
			Type: EventRenewalFailed, Role: r.bus.role, Token: candidate.Token(), Err: r.lastErr,
		})
	}
}

// silence is the error of an attempt that had no answer within its bound, with what is likely wrong
// if no other had one either.
func (r *electionReport) silence() error {
	err := fmt.Errorf("%w within %v", ErrUnreachable, r.timing.Attempt())
	if why := r.unconnected(); why != "" {
		return fmt.Errorf("%w; the subscription: %s", err, why)
	}
	if r.suspect == nil || !r.lastAnswer.IsZero() {
		return err
	}
	if fix := r.suspect(); fix != "" {
		err = fmt.Errorf("%w (fix: %s)", err, fix)
	}
	return err
}

// unconnected is why the subscription of this process does not stand, for the error of a request
// whose time is over; "": it stands, or that is not known. The client dials again and again for a
// request, and a short lease leaves it no time to say why that fails. For the subscription it dials
// once at a time.
func (r *electionReport) unconnected() string {
	hints := r.subscription.Load()
	why, known := store.AsType[*store.Error](hints.Err)
	if hints.Active || !known || why.Refused { // that it may not subscribe says nothing of requests
		return ""
	}
	text := plainText(why.Err)
	if why.Fix != "" {
		text += " (fix: " + why.Fix + ")"
	}
	return text
}

var states = map[lease.State]ElectionState{
	lease.Following: ElectionFollowing, lease.Leading: ElectionLeading, lease.Draining: ElectionDraining, lease.Stopped: ElectionStopped,
}

// waits says why this candidate does not lead, and until when.
func (r *electionReport) waits(now lease.Reading, candidate *lease.Candidate) (reason WaitReason, until time.Time) {
	back := candidate.StandsBack(now)
	switch {
	case candidate.State() != lease.Following:
		return "", time.Time{}
	case r.draining:
		return WaitDraining, time.Time{}
	case !r.eligible:
		return WaitIneligible, time.Time{}
	case !r.healthy && r.sick == nil: // the first check has not returned
		return "", time.Time{}
	case !r.healthy:
		return WaitUnhealthy, time.Time{}
	case back > 0:
		return r.backFor, time.Now().Add(back)
	case r.backFor == WaitSilence, r.down && time.Now().After(r.waitUntil): // that wait is over, and nothing was heard since
		return cmp.Or(r.backFor, r.waiting), time.Time{}
	case r.waiting == WaitIneligible: // no time will change that
		return WaitIneligible, time.Time{}
	}
	return r.waiting, r.waitUntil
}

// snapshot is the status of now.
func (r *electionReport) snapshot(state ElectionState, candidate *lease.Candidate, calls int) *snapshot {
	now := readClock()
	s := &snapshot{leaderEnds: r.leaderEnds, down: r.down, ElectionStatus: ElectionStatus{
		Role:           r.bus.role,
		State:          state,
		Leader:         r.leader,
		LeaderToken:    r.leaderToken,
		TransferringTo: strings.TrimPrefix(candidate.Heir(), lease.Anyone),
		LastAnswer:     r.lastAnswer,
		HistoryWitness: r.witness,
		CallsInFlight:  calls,
		Err:            r.lastErr,
	}}
	if state == ElectionFollowing {
		s.Waiting, s.WaitingUntil = r.waits(now, candidate)
	}
	switch {
	case state == ElectionLeading:
		s.Token = candidate.Token()
		s.Leader, s.LeaderToken = r.bus.instance, s.Token // the answer that says so may be yet to come
		s.Deadline = time.Now().Add(candidate.Lease().EndsIn(now))
	case s.Waiting == WaitUnhealthy:
		s.Err = fmt.Errorf("%w: %w", ErrWorkFailed, r.sick)
	}
	return s
}
