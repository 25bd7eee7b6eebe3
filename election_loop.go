package tenure

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// electionConfig holds the settings of an election. It never changes.
type electionConfig struct {
	*electionShared
	opts     ElectionOptions // completed
	channel  string          // of the hints of the lease
	store    store.Lease
	bus      electionBus
	timing   lease.Timing
	failFast bool
	// stuck returns an error while the leader's own work makes no progress; the loop then gives the
	// term up. It may be nil and must not block.
	stuck func() error
	late  lateWork // of the leader
	also  commands // what the process sends beside this election; see Guarantees
}

// electionShared is what all elections of a process have in common: there may be a thousand. It
// never changes.
type electionShared struct {
	id           string // of this instance
	drainTimeout time.Duration
	random       func() float64
	secret       func() string
	// draining is whether this process drains: then it is not eligible, whatever the application
	// says. nil: it never does.
	draining *atomic.Bool
	balance  *balance
	observed *callObservers // of renewals; nil: nobody can observe them
	// addresses is the address book of the instances; nil without a registry.
	addresses addressBook
	beats     heartbeats // of this process; nil without a registry
	driver    *driver.Driver
	together  *togetherRenewals // nil: renewals travel apart
}

// addressBook knows where instances are reached.
type addressBook interface {
	known(id string) string                     // as it was last read, "": not known; does not block
	read(ctx context.Context, id string) string // asks; "": none, or no answer
	leaderChanged(before, now string)           // another one leads than before, or in another term; "": nobody; does not block
	newer(id string) time.Duration              // by how much later this process started than that instance of another version
}

// heartbeats are those of this process.
type heartbeats interface {
	next() lease.Beats // does not block
	// carry sends an acquire with a heartbeat, if one is due within so long, and takes its answer.
	// Else it reports false.
	carry(ctx context.Context, rider *store.Rider, within time.Duration) bool
}

// electionShared is that of an election without company.
func (o Options) electionShared() *electionShared {
	return &electionShared{
		id:           o.InstanceID,
		drainTimeout: o.ShutdownTimeout,
		random:       o.random,
		secret:       o.secret,
		balance:      new(balance),
		driver:       driver.New(func() {}),
	}
}

// electionConfig is that of the role in Election.
func (o Options) electionConfig(shared *electionShared, leases store.Lease, bus *eventBus) electionConfig {
	return electionConfig{
		electionShared: shared,
		opts:           o.Election,
		channel:        store.LeaseEvents(o.Election.leaseKey(o.Namespace)),
		store:          leases,
		bus:            electionBus{bus, o.Election.Role},
		timing:         o.Election.timing(),
		failFast:       o.FailFast,
	}
}

// electionLoop is the one loop of an elector: it drives the pure lease.Candidate with real clocks,
// calls to Redis and leader work. Its turns are those of its seat in the driver of this process,
// which other elections share: the loop itself never calls anything that may block.
type electionLoop struct {
	electionConfig

	// Others read these, and leave something.
	current atomic.Pointer[liveTerm] // the term that is on
	status  atomic.Pointer[snapshot]
	inputs  loopMail
	barred  atomic.Bool // this candidate is not eligible, by the last word of the application
	links   termLinks   // of each term; set before run

	// All others belong to the loop, once start has returned.
	run      context.Context    //nolint:containedctx // of Run: its end stops the loop
	parent   context.Context    //nolint:containedctx // values of Run's context, never its end, for all that the loop starts
	unwatch  context.CancelFunc // ends the health check
	deadline time.Time          // at which Run returns at the latest; zero: it was not told to
	err      error              // of a loop that is over, for Run to return
	cand     *lease.Candidate
	work     leaderWork

	preference     lease.Preference
	term           *liveTerm // the term that is on, or whose work drains
	abandoned      bool      // the drain bound of the term has passed
	drainBy        time.Time
	finishBy       time.Time // by then the context of the tasks is cancelled, if the end of the term was voluntary
	releasing      *liveTerm // the term whose lease is being given back
	releasingToken int64
	transfer       transfer // that is offered
	transferred    lastTransfer
	resting        []chan error // each has a buffer: answered when this candidate is at rest

	calls         int    // to Redis in flight
	sent          uint64 // calls so far: each has a number
	callsStuck    bool
	healthRunning bool // the goroutine of the health check
	stopping      bool
	unheard       bool // no request can have reached Redis: there is nothing to give back
	coming        bool // the lease is offered to this candidate: it counts as led

	askAt  time.Duration // monotonic: when to ask for a vacancy that may have been missed; 0: not
	heard  time.Duration // monotonic: since when none is missed any more
	others int           // processes that listen to the hints of this role, as Redis counted them last

	secondAt time.Duration // monotonic: a renewal without an answer is sent once more then; 0: not

	aside      bool          // a second copy is in flight: one at a time
	granted    bool          // a hint: somebody leads now
	lookAt     time.Duration // monotonic: it is looked at then
	looking    bool          // a look is in flight, and was not given up
	lookPast   bool          // it was sent before the lease was given back
	lookedAt   time.Duration // monotonic: when the last look began
	lookNumber uint64        // of its call

	report electionReport
}

// loopMail is what others leave for the loop of an elector. It gives the loop a turn.
type loopMail struct {
	mailbox[loopInputs]
	seat *driver.Seat
}

func (m *loopMail) put(leave func(*loopInputs)) {
	m.mailbox.put(leave)
	m.nudge()
}

func (m *loopMail) nudge() { m.seat.Nudge() }

// loopInputs holds what other goroutines leave for the loop of an elector. Flags coalesce. The
// answers are bounded by maxCalls, the ends by the number of works.
type loopInputs struct {
	answers   []storeAnswer
	ended     []workEnded
	transfers []transferCall
	resting   []chan error  // answered when this candidate has nothing of the lease any more
	vacant    bool          // hint: the lease may be free
	called    bool          // hint: the lease is offered to whoever may lead
	named     bool          // hint: the lease is offered to, or reserved for, this instance
	reserved  time.Duration // hint: the lease is free, and reserved for another for so long; 0: no such hint
	granted   bool          // hint: somebody leads now
	taken     bool          // it came after the last hint that the lease may be free
	listeners int           // so many listen to the hints of this role; 0: it was not counted anew
	rollCall  bool          // hint: leaders should renew now
	connected bool          // hints may have been missed
	health    *error        // the last answer of the health check, if there is a new one
	unwatched bool          // the health check has returned for the last time
}

// init takes the config. The loop is part of its elector, and not copied.
func (l *electionLoop) init(c electionConfig) {
	l.electionConfig = c
	l.status.Store(&snapshot{ElectionStatus: ElectionStatus{Role: c.opts.Role, State: ElectionIdle}})
	l.report = electionReport{bus: c.bus, timing: &l.timing, eligible: true, healthy: true}
	l.barred.Store(c.opts.Ineligible)
	if s, ok := c.store.(interface{ Silence() string }); ok {
		l.report.suspect = s.Silence
	}
}

// start makes the loop ready for its first turn.
func (l *electionLoop) start(ctx context.Context, lead []LeadFunc) {
	l.run, l.parent, l.unwatch = ctx, context.WithoutCancel(ctx), func() {}
	l.work = leaderWork{funcs: slices.Concat(l.opts.Lead, lead), ended: func(e workEnded) {
		l.inputs.put(func(in *loopInputs) { in.ended = append(in.ended, e) })
	}}
	if late := l.late; late.run != nil {
		l.work.funcs, l.work.last = append(l.work.funcs, late.run), late.any
		late.whenAdded(l.inputs.nudge)
	}
	l.cand = lease.NewCandidate(l.timing, l.random, l.secret)
	l.preference = lease.Preference{Priority: l.opts.Priority, Order: l.opts.order(l.id)}
	l.cand.Prefer(l.preference.Rank())
	if l.opts.Spread {
		l.cand.Turns(func(fewer int) bool { return l.balance.turn(l.timing, fewer) })
	}
	l.report.knownAt = readClock().Mono
	l.lookedAt = l.report.knownAt - lookSpacing
	if ctx.Err() != nil {
		l.deadline = time.Now().Add(l.drainTimeout)
		return
	}
	if l.opts.Health != nil {
		var watched context.Context
		watched, l.unwatch = context.WithCancel(l.parent)
		l.report.healthy, l.healthRunning = false, true
		l.cand.Ready(readClock(), false)
		go l.watch(watched) // ends with watched; its last word is awaited by finished
	}
}

// step is a turn of the loop, with what the end of Run's context asks for. early: other roles renew
// their leases, so that one that is to be renewed soon may be now.
func (l *electionLoop) step(early bool) driver.Next {
	if early {
		l.cand.Hasten(readClock())
	}
	if l.goesOn() {
		next := driver.Next{In: l.wait()}
		if l.askAt == 0 && l.secondAt == 0 {
			next.Early, next.Late = l.cand.Leeway()
		}
		return next
	}
	l.unwatch()
	l.publishStatus(ElectionStopped)
	return driver.Next{Over: true}
}

// goesOn takes a turn, and reports whether there is to be another one. There is none when nothing
// that the loop has started still runs, or when the drain bound is near: then err lists what does.
func (l *electionLoop) goesOn() bool {
	if !l.stopping && !l.deadline.IsZero() { // told to stop before it began
		return false
	}
	l.turn()
	if l.told() {
		l.stop()
		l.turn()
	}
	switch {
	case !l.stopping:
		return true
	case l.finished():
		return false
	case l.patience() > 0:
		return true
	}
	l.drainBy = time.Now()
	l.turn()
	l.err = joined(l.err, l.leftovers())
	return false
}

// told reports whether a loop is to stop that does not yet.
func (l *electionLoop) told() bool {
	if l.stopping {
		return false
	}
	if l.failFast && l.report.lastAnswer.IsZero() && l.report.down {
		l.err = l.report.lastErr
		l.unheard = store.NeverSent(l.err)
	}
	return l.err != nil || l.run.Err() != nil
}

// stop begins the end of the loop.
func (l *electionLoop) stop() {
	cause := ErrStopped
	if l.run.Err() != nil {
		cause = &becauseError{kind: ErrStopped, cause: context.Cause(l.run)}
	}
	now := readClock()
	l.stopping = true
	l.apply(now, l.cand.Stop(now), cause)
	l.unwatch()
	l.deadline = time.Now().Add(l.drainTimeout)
}

// patience is for how long a loop that stops waits yet for what it has started.
func (l *electionLoop) patience() time.Duration {
	return time.Until(l.deadline.Add(-lastWords(l.drainTimeout)))
}

// finished reports whether nothing that the loop has started still runs, in a loop that is
// stopping. A Redis that never answered is asked once to take back what it may have granted, and
// not for ever.
func (l *electionLoop) finished() bool {
	done := l.cand.Finished() || l.cand.State() == lease.Stopped && l.report.lastAnswer.IsZero()
	return done && l.idle() && l.calls == 0 && !l.healthRunning
}

// idle reports whether all work of the term has returned.
func (l *electionLoop) idle() bool {
	return l.work.idle() && (l.term == nil || l.term.sections.Load() == 0)
}

// workLeft says what has not returned.
func (l *electionLoop) workLeft() []string {
	left := l.work.left()
	if l.term != nil {
		if n := l.term.sections.Load(); n > 0 {
			left = append(left, fmt.Sprintf("Do (%d running)", n))
		}
	}
	return left
}

// turn takes the inputs, lets time pass and sends what is due.
func (l *electionLoop) turn() {
	in := l.inputs.take()
	now := readClock()
	l.prefer(now) // as it is when an answer is judged
	if l.beats != nil {
		l.cand.Beats(l.beats.next())
	}
	if t := l.term; t != nil && t.lease.Load() == nil { // a reader or the timer noticed first
		l.apply(now, l.cand.End(now, lease.Expired), ErrExpired)
	}
	for _, a := range in.answers {
		l.answer(now, a)
	}
	for _, e := range in.ended {
		l.returned(now, e)
	}
	if in.health != nil {
		l.checked(now, *in.health)
	}
	if in.unwatched {
		l.healthRunning = false
	}
	if t := l.term; t != nil && t.resigning.Load() {
		l.apply(now, l.cand.End(now, lease.Resigned), ErrResigned)
	}
	l.admit(now)
	if in.listeners > 0 {
		l.others = in.listeners - 1
		l.cand.Crowd(l.others)
	}
	if in.connected { // to many processes at one moment: they do not ask at one moment too
		l.heard = now.Mono
		l.askAt = now.Mono + time.Duration(l.random()*float64(l.timing.Regather(l.others)))
	}
	if in.called {
		l.cand.Called(now)
	}
	if in.vacant || l.askAt != 0 && now.Mono >= l.askAt {
		l.askAt = 0
		l.cand.Vacant(now)
	}
	if in.named {
		l.cand.Named(now)
	}
	if in.reserved > 0 {
		l.cand.Reserved(now, in.reserved)
	}
	if len(in.transfers) > 0 {
		l.offers() // what has become of the last one comes first
	}
	for _, call := range in.transfers {
		l.offer(now, call)
	}
	l.resting = append(l.resting, in.resting...)
	if in.rollCall {
		l.cand.RollCall(now)
	}
	if in.granted && !l.granted {
		l.granted, l.lookAt = true, now.Mono+lookDelay
	}
	if in.taken {
		l.cand.Granted(now)
	}
	l.apply(now, l.cand.Tick(now), ErrExpired)
	l.offers()
	if l.stuck != nil && l.cand.State() == lease.Leading {
		if err := l.stuck(); err != nil {
			l.fail(now, err)
		}
	}
	if l.cand.State() == lease.Leading {
		l.work.startLast()
	}
	l.drain(now)
	l.prefer(now)
	for !l.unheard {
		request, due := l.cand.Next(now)
		if !due {
			break
		}
		l.send(now, request)
	}
	if l.secondAt != 0 && now.Mono >= l.secondAt {
		l.sendAside(now)
	}
	l.look(now)
	l.report.publish(now, l.cand)
	l.announce()
	if !l.cand.Releasing() { // after the status: who has resigned may ask for it
		l.resignDone()
	}
	l.rest()
}

// prefer brings up to date how this candidate compares with others. One that has just found out
// that it is newer than the leader asks at once: it must be known when the leader stops.
func (l *electionLoop) prefer(now lease.Reading) {
	was := l.preference
	if id := l.report.leader; l.addresses != nil && id != "" && id != l.id { // without a leader the last one counts
		l.preference.Newer = l.addresses.newer(id)
	}
	if coming := l.cand.Coming(); coming != l.coming {
		l.coming = coming
		l.balance.count(coming)
	}
	if l.opts.Spread {
		l.preference.Others = int(l.balance.led.Load())
		if l.coming || l.current.Load() != nil {
			l.preference.Others--
		}
	}
	if l.preference == was {
		return
	}
	l.cand.Prefer(l.preference.Rank())
	if was.Newer == 0 && l.preference.Newer > 0 {
		l.cand.Vacant(now)
	}
}

// rest answers those who wait until this candidate, which is not eligible any more, has nothing of
// the lease: no term, no work, no request on its way.
func (l *electionLoop) rest() {
	var overrun error
	switch {
	case len(l.resting) == 0:
		return
	case !l.report.draining: // the drain was ended meanwhile
	case l.abandoned && l.cand.State() == lease.Draining:
		overrun = &DrainError{Running: l.workLeft()}
	case !l.cand.Resting():
		return
	}
	for _, answer := range l.resting {
		answer <- overrun
	}
	l.resting = nil
}

// wait is how long the loop may sleep.
func (l *electionLoop) wait() time.Duration {
	now := readClock()
	wait := l.untilLook(now)
	if !l.unheard { // else nothing is asked any more, whatever is due
		wait = min(wait, l.cand.Wait(now))
	}
	if l.askAt != 0 {
		wait = min(wait, max(l.askAt-now.Mono, 0))
	}
	if l.secondAt != 0 {
		wait = min(wait, max(l.secondAt-now.Mono, 0))
	}
	if l.stopping {
		wait = min(wait, max(l.patience(), 0))
	}
	if l.cand.State() == lease.Draining && !l.abandoned {
		wait = min(wait, max(time.Until(l.drainBy), 0))
		if l.term.tasks.ctx.Err() == nil {
			wait = min(wait, max(time.Until(l.finishBy), 0))
		}
	}
	return wait
}

// answer takes an answer of Redis, or an error, which means that nothing is known.
func (l *electionLoop) answer(now lease.Reading, a storeAnswer) {
	l.calls--
	if l.calls <= maxCalls/2 { // not below the cap already: calls that return one by one would report it each time
		l.callsStuck = false
	}
	if a.look {
		l.looked(now, a)
		return
	}
	if a.aside {
		l.aside = false
		if a.err != nil { // the other copy, or its silence, says what is wrong
			return
		}
	}
	if r, waited := l.cand.Awaited(); waited && a.request.Seq == r.Seq { // answered: no second copy
		l.secondAt = 0
	}
	if a.request.Kind == lease.Acquire && a.request.Sent.Mono >= l.heard && (a.answer.Verdict == lease.Held || a.answer.Verdict == lease.Won) {
		l.askAt = 0 // it would be told the same
	}
	change := l.cand.Answer(now, a.request, a.answer.Answer)
	if a.err == nil {
		l.report.answered(now, a.request.Kind, l.cand) // before what the answer brings
	}
	if change == lease.Ended {
		l.apply(now, change, fmt.Errorf("%w: Redis answers %q", ErrLost, a.answer.Reason))
	} else {
		l.apply(now, change, nil)
	}
	if l.cand.Keeps() {
		l.term.tasks.renew(l.cand.Lease(), now)
	}
	if l.term != nil && l.cand.Token() == a.request.Token && a.answer.Forgot(a.request) {
		l.term.forgot.Add(1)
	}
	switch {
	case a.err != nil:
		l.report.refused(a.number, a.err)
	case a.request.Kind == lease.Release:
		if a.request.Token != 0 && a.request.Token == l.releasingToken {
			l.releasingToken, l.lookPast = 0, l.looking
			if l.releasing != nil {
				l.releasing.confirmed = true
			}
			if a.answer.Token <= a.request.Token { // else another term had begun before: the lease had lapsed
				l.tell(Event{Type: EventLeaseReleased, Role: l.opts.Role, Token: a.request.Token})
			}
		}
		l.report.released(a.request.Token)
	default:
		l.report.usable(now, a.number, a.answer)
	}
}

// checked takes an answer of the health check.
func (l *electionLoop) checked(now lease.Reading, err error) {
	l.report.healthy, l.report.sick = err == nil, err
	l.cand.Ready(now, l.may())
	if err != nil {
		l.fail(now, err)
	}
}

// may reports whether this candidate may campaign.
func (l *electionLoop) may() bool { return l.report.eligible && l.report.healthy }

// admit takes the application's word on whether this candidate is eligible. The term of one that is
// not any more is resigned.
func (l *electionLoop) admit(now lease.Reading) {
	l.report.draining = l.draining != nil && l.draining.Load()
	if eligible := !l.barred.Load() && !l.report.draining; eligible != l.report.eligible {
		l.report.eligible = eligible
		l.cand.Ready(now, l.may())
		l.granted, l.lookAt = true, now.Mono // one that asks for nothing any more looks at once who leads
	}
	if !l.report.eligible && l.cand.State() == lease.Leading {
		l.apply(now, l.cand.End(now, lease.Resigned), ErrResigned)
	}
}

// watch runs the health check until ctx is done and it has returned.
func (l *electionLoop) watch(ctx context.Context) {
	defer l.inputs.put(func(in *loopInputs) { in.unwatched = true })
	check := healthCheck{call: l.opts.Health, interval: l.opts.RenewInterval, answered: func(err error) {
		l.inputs.put(func(in *loopInputs) { in.health = &err })
	}}
	check.watch(ctx)
}

const (
	lookSpacing = 25 * time.Millisecond // between looks that hints cause: a flood of them costs no flood of requests
	lookDelay   = 5 * time.Millisecond  // after the hint: whoever was granted the lease has its answer first
)

// asks reports whether the candidate hears who leads by its own requests.
func (l *electionLoop) asks(now lease.Reading) bool {
	switch l.cand.State() {
	case lease.Leading:
		return true
	case lease.Following:
		return l.may() && l.cand.StandsBack(now) == 0
	}
	return false
}

// untilLook is how long it is until a look is due.
func (l *electionLoop) untilLook(now lease.Reading) time.Duration {
	switch {
	case l.looking:
		return max(l.lookedAt+l.timing.Attempt()-now.Mono, 0)
	case l.stopping || l.calls >= maxCalls/2 || l.asks(now): // a call that is needed comes first
		return lease.MaxTTL
	case l.granted:
		return max(l.lookedAt+lookSpacing-now.Mono, l.lookAt-now.Mono, 0)
	}
	return max(l.report.knownAt+l.opts.RetryInterval-now.Mono, 0)
}

// look asks who leads while the candidate does not campaign, because it stands back, is not
// healthy, or its work drains. So Status stays true.
func (l *electionLoop) look(now lease.Reading) {
	if l.asks(now) {
		l.granted = false // it learns of it by itself
	}
	if l.untilLook(now) > 0 {
		return
	}
	if l.looking { // whenever its answer comes, it is taken
		l.looking = false
		l.report.lookUnanswered(l.lookNumber)
		return
	}
	l.granted, l.looking, l.lookPast, l.lookedAt, l.report.knownAt = false, true, false, now.Mono, now.Mono
	l.call(storeAnswer{look: true}, l.timing.Attempt(), func(ctx context.Context, _ lease.Request) (store.LeaseReply, error) { return l.store.Leader(ctx) })
	l.lookNumber = l.sent
}

// looked takes the answer to a look.
func (l *electionLoop) looked(now lease.Reading, a storeAnswer) {
	late := !l.looking || a.number != l.lookNumber
	l.looking = l.looking && late
	if a.err != nil {
		l.report.lookRefused(a.number, a.err)
		return
	}
	if l.lookPast && a.number == l.lookNumber && a.answer.Holder == l.id { // as it was before the release
		a.answer.Holder, a.answer.Token, a.answer.Wait = "", 0, 0
	}
	l.report.looked(now, a.number, a.answer, late)
}

// tell publishes an event, after those that the report keeps.
func (l *electionLoop) tell(e Event) {
	l.report.tell(e)
	l.announce()
}

// announce publishes the status, and the events that the report keeps: an observer may ask for the
// status.
func (l *electionLoop) announce() {
	l.publishStatus(states[l.cand.State()])
	for _, e := range l.report.news {
		l.bus.publish(e)
	}
	l.report.news = nil
}

func (l *electionLoop) publishStatus(state ElectionState) {
	is := l.report.snapshot(state, l.cand, l.calls)
	was := l.status.Swap(is)
	if before, now := was.instance(), is.instance(); l.addresses != nil && (before != now || now != "" && was.LeaderToken != is.LeaderToken) {
		l.addresses.leaderChanged(before, now)
	}
}

// leftovers says what still runs.
func (l *electionLoop) leftovers() error {
	left := l.workLeft()
	if l.calls > 0 {
		left = append(left, fmt.Sprintf("%d calls to Redis", l.calls))
	}
	if l.healthRunning {
		left = append(left, "the health check")
	}
	if len(left) == 0 {
		return nil
	}
	if l.opts.Role != "" {
		for i := range left {
			left[i] = fmt.Sprintf("role %q: %s", l.opts.Role, left[i])
		}
	}
	return &DrainError{Running: left}
}
