package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// LeaderInfo is what Redis knows of the current leader.
type LeaderInfo struct {
	Role       string        `json:"role"`           // what is led; "" is the default role
	InstanceID string        `json:"instance_id"`    // if Token is 0, what a foreign client wrote: untrusted, and perhaps ""
	Token      int64         `json:"token"`          // fencing token; 0: not a tenure client
	Since      time.Time     `json:"since,omitzero"` // in UTC by Redis's clock, whole seconds; zero if it is unknown
	Remaining  time.Duration `json:"-"`              // of the lease; negative: a foreign lease without expiry
	// Address is RegistryOptions.Address of the leader. "" if it has none, or no record, or if this
	// elector stands alone.
	Address string `json:"address,omitempty"`
}

// Elector takes part in the election of one role. Its methods are safe for concurrent use.
type Elector struct {
	loop       electionLoop
	standalone bool                      // Run is the caller's; false: the coordinator's
	phase      atomic.Int32              // idle, running, stopped
	listen     func(context.Context)     // own subscription; nil if a coordinator has one
	ended      chan struct{}             // closed when the loop is over
	endedAt    atomic.Pointer[time.Time] // when it was
	over       func(error)               // hears then of its error; must not block
	asked      callGate
	listeners  atomic.Int64        // as they were counted last; 0: not yet
	beside     atomic.Pointer[any] // what another package of this module keeps with it
}

// phases of an elector or a coordinator.
const (
	phaseIdle int32 = iota
	phaseRunning
	phaseStopped
)

// NewElector returns an elector that stands alone: no registry, no tasks. Use New for the whole. It
// refuses bad options, and a client that cannot serve, as New does.
func NewElector(rdb redis.UniversalClient, options ElectorOptions) (*Elector, error) {
	var c checker
	opts := options.whole().complete(&c)
	backing := newRedisStore(rdb, &c, opts)
	if err := c.err(); err != nil {
		return nil, err
	}
	bus := newEventBus(opts.InstanceID)
	if opts.Logger != nil {
		bus.observe(logEvents(opts.Logger))
	}
	election := opts.electionConfig(opts.electionShared(), backing.ForRole(opts.Election.role(opts.Namespace, opts.InstanceID)), bus)
	election.also.everywhere = checksPerSecond(opts.Election.LeaseTTL)
	e := newElector(election, store.NewSubscription())
	e.standalone = true
	audience := store.Audience{
		Channels: func() []string { return []string{e.loop.channel} },
		TTL:      func() time.Duration { return opts.Election.LeaseTTL },
		Wait:     func() time.Duration { return opts.Election.Safety.EmptyHistoryWait },
		Leads:    e.leads,
		Take:     e.hint,
		Report:   bus.notice,
		State:    e.loop.report.subscription,
	}
	e.listen = func(ctx context.Context) { backing.Listen(ctx, audience) }
	return e, nil
}

func newElector(c electionConfig, subscription *atomic.Pointer[store.Subscription]) *Elector {
	e := &Elector{ended: make(chan struct{}), asked: callGate{most: maxQuestions}}
	e.loop.init(c)
	e.loop.report.subscription = subscription
	e.loop.inputs.seat = c.driver.Seat(e.step)
	e.loop.links = termLinks{
		holder: func(ctx context.Context) (store.LeaseReply, error) { return ask(ctx, &e.asked, e.loop.store.Leader) },
		restarted: func(work string, attempt int, err error) {
			t := e.loop.current.Load()
			if t != nil {
				term, _ := TermFrom(t.ctx)
				e.loop.bus.publish(Event{Type: EventWorkRestarted, Role: e.Role(), Token: term.Token, Work: work, Attempt: attempt, Err: err})
			}
		},
	}
	return e
}

// IsLeader reports whether this process leads now. It looks at both clocks of the machine and at
// nothing else: no lock, no I/O, no allocation. After a pause past the deadline the first call is
// already false, and within one term it never turns true again.
func (e *Elector) IsLeader() bool {
	t := e.loop.current.Load()
	return t != nil && t.leading()
}

// leads reports whether a term is on, or drains: the lease is held.
func (e *Elector) leads() bool { return e.loop.current.Load() != nil }

// Term returns the term that this process leads in now.
func (e *Elector) Term() (Term, bool) {
	t := e.loop.current.Load()
	if t == nil || !t.leading() {
		return Term{}, false
	}
	return TermFrom(t.ctx)
}

// Role returns the role that is elected, "" for the default one.
func (e *Elector) Role() string { return e.loop.opts.Role }

// InstanceID is the ID of this process, by which LeaderInfo and Term name it.
func (e *Elector) InstanceID() string { return e.loop.id }

// Guarantees returns the bounds of this election.
func (e *Elector) Guarantees() Guarantees {
	return guaranteesOf(e.loop.opts, e.loop.timing, e.loop.also)
}

// Status returns the cached state of this elector.
func (e *Elector) Status() ElectionStatus {
	shot := e.loop.status.Load()
	s := shot.ElectionStatus
	t := e.loop.current.Load()
	leads := t != nil && t.leading() // then its own deadline counts
	if !leads && !shot.leaderEnds.IsZero() && !time.Now().Before(shot.leaderEnds) {
		s.Leader, s.LeaderToken = "", 0
	}
	s.Subscription = Subscription(*e.loop.report.subscription.Load())
	switch {
	case s.State == ElectionLeading && !leads:
		s.State, s.Token, s.Deadline = ElectionDraining, 0, time.Time{}
	case s.State == ElectionFollowing && leads: // the loop is about to publish it
		if held := t.lease.Load(); held != nil {
			term, _ := TermFrom(t.ctx)
			s.State, s.Token, s.Deadline = ElectionLeading, term.Token, time.Now().Add(held.EndsIn(readClock()))
			s.Leader, s.LeaderToken, s.Waiting, s.WaitingUntil = term.InstanceID, term.Token, "", time.Time{}
		}
	}
	return s
}

// Leader asks Redis who leads. It returns ErrNoLeader if nobody does, and ErrUnreachable or
// ErrMisconfigured if Redis gives no answer. It returns as soon as ctx is done, with its cause
// (context.Cause), though the client may go on with the call. It works without Run. In a
// Coordinator it asks the registry for the address of the leader too; if that question has no
// answer, Address is "".
func (e *Elector) Leader(ctx context.Context) (LeaderInfo, error) {
	info, err := e.holder(ctx)
	if err == nil && info.Token != 0 && e.loop.addresses != nil {
		info.Address = e.loop.addresses.read(ctx, info.InstanceID)
	}
	return info, err
}

// holder is Leader without the address.
func (e *Elector) holder(ctx context.Context) (LeaderInfo, error) {
	reply, err := ask(ctx, &e.asked, e.loop.store.Leader)
	switch {
	case err != nil:
		return LeaderInfo{}, err
	case reply.Verdict != lease.Held:
		return LeaderInfo{}, ErrNoLeader
	}
	return LeaderInfo{Role: e.Role(), InstanceID: reply.Holder, Token: reply.Token, Remaining: reply.Wait, Since: store.StartTime(reply.Since)}, nil
}

// Resign gives the term up: IsLeader turns false, the context of the term is cancelled, and when
// its work has returned the lease is released. Running tasks may finish before that, for at most
// 3/4 of ShutdownTimeout. Resign waits for the release, or until ctx is done. This process then
// stands back for RetryInterval.
//
// Leader work, tasks and functions of Do must pass their own context: Resign then returns as soon
// as the term has ended, and the lease is released once they have returned. With any other context
// such work would wait for itself to return. A context of theirs that went through Do of another
// role is still their own.
//
// Resign returns ErrNotLeader without a term, ErrStopped after Run, and ErrDrainTimeout if the work
// has not returned within ShutdownTimeout: the lease is then left to lapse.
func (e *Elector) Resign(ctx context.Context) error {
	return e.resign(ctx, 0)
}

// resign is Resign of the term with that token; 0: of any.
func (e *Elector) resign(ctx context.Context, token int64) error {
	t, inside, err := e.ending(ctx, token)
	if err != nil {
		return err
	}
	t.resigning.Store(true)
	e.loop.inputs.nudge()
	if inside {
		<-t.ctx.Done() // the loop cancels it as soon as it looks
		return nil
	}
	select {
	case <-t.released:
		return t.overrun
	case <-ctx.Done():
		return fmt.Errorf("tenure: the hand-over goes on: %w", context.Cause(ctx))
	}
}

// Transfer hands the lead over to the instance with that ID: a candidate of this role with the same
// Namespace. It offers the lease first. If that instance asks for it, the term ends as with Resign,
// and the lease is left to it for min(LeaseTTL/3, 5 s) once all work has returned. Transfer returns
// nil when Redis has taken the lease back; the instance leads milliseconds later, unless it has
// failed since: then another does, at the latest when that time is over. This process does not
// stand back. If the instance leads already, Transfer returns nil.
//
// If instanceID is "", the lease goes to the best candidate: all are called, and of those that have
// asked for the lease within LeaseTTL/20, at most 250 ms, the one of the highest Priority comes
// first. Of equals it is the one whose process leads fewer roles (Spread), that is of a new version
// (RegistryOptions.Version), that has the lower number (ByInstanceID), or that has asked first, in
// this order. If none has asked by then, it is the first one that does.
//
// An instance that is not there, is not healthy, drains, is not eligible, or stands back after
// failed work does not ask. Transfer then returns ErrNotReady after RetryInterval and 2/3 of
// LeaseTTL (Guarantees.TransferWait), and the term goes on.
//
// Leader work, tasks and functions of Do must pass their own context, as with Resign: Transfer then
// returns nil as soon as the term ends.
//
// Transfer returns ErrNotLeader without a term, or if the term ends otherwise; ErrTransferring if
// another transfer is under way, while a second call for the same instance waits for the same one;
// ErrMisconfigured if that is no ID; ErrStopped after Run; ErrDrainTimeout if the work has not
// returned within ShutdownTimeout, so that the lease is left to lapse; and ErrUnreachable if Redis
// has not answered the release: who leads next is not known then. If ctx is done first, the
// transfer goes on, and Transfer returns the cause.
func (e *Elector) Transfer(ctx context.Context, instanceID string) error {
	return e.transfer(ctx, instanceID, 0)
}

// transfer is Transfer in the term with that token; 0: in any.
func (e *Elector) transfer(ctx context.Context, instanceID string, token int64) error {
	if instanceID == "" {
		instanceID = lease.Anyone
	} else if !store.IDPattern.MatchString(instanceID) {
		return fmt.Errorf("%w: %.100q is no instance ID", ErrMisconfigured, instanceID)
	}
	t, inside, err := e.ending(ctx, token)
	if err != nil || instanceID == e.loop.id {
		return err
	}
	term, _ := TermFrom(t.ctx)
	call := transferCall{to: instanceID, token: term.Token, begun: make(chan error, 1)}
	e.loop.inputs.put(func(in *loopInputs) { in.transfers = append(in.transfers, call) })
	return e.awaitTransfer(ctx, t, call, inside)
}

// awaitTransfer waits for the end of a transfer; inside the work of its term for the end of that.
func (e *Elector) awaitTransfer(ctx context.Context, t *liveTerm, call transferCall, inside bool) error {
	goesOn := func() error { return fmt.Errorf("tenure: the transfer goes on: %w", context.Cause(ctx)) }
	select {
	case err := <-call.begun:
		if err != nil {
			return err
		}
	case <-t.released:
		if err := call.answer(e.ended); err != nil {
			return err
		}
	case <-ctx.Done():
		over := t.ctx.Err() != nil
		if !over && len(call.begun) == 0 {
			return goesOn()
		}
		switch err := call.answer(e.ended); {
		case err == nil && !inside:
			return goesOn()
		case err == ErrNotLeader && over: //nolint:errorlint // else it says why
			return fmt.Errorf("%w: the term has ended otherwise: %w", err, context.Cause(ctx))
		case err != nil:
			return err
		}
	}
	if inside {
		<-t.ctx.Done() // the loop cancels it right after its answer
		return nil
	}
	select {
	case <-t.released:
	case <-ctx.Done():
		return goesOn()
	}
	switch {
	case t.overrun != nil:
		return t.overrun
	case !t.confirmed:
		return fmt.Errorf("%w: the release was not answered, who leads next is not known", ErrUnreachable)
	}
	return nil
}

// ending returns the term that a call may end, and whether the call comes from work of that term.
// If token is not 0, it is that of the term which the call is meant for.
func (e *Elector) ending(ctx context.Context, token int64) (t *liveTerm, inside bool, err error) {
	t = e.loop.current.Load()
	switch {
	case e.phase.Load() == phaseStopped:
		return nil, false, ErrStopped
	case t == nil:
		return nil, false, ErrNotLeader
	}
	if term, _ := TermFrom(t.ctx); token != 0 && term.Token != token {
		return nil, false, fmt.Errorf("%w in that term any more", ErrNotLeader)
	}
	own := workOf(ctx, &e.loop.current)
	if own != nil && (!t.leading() || own != t && own != t.tasks) { // work of a term that is over does not end the next one
		return nil, false, ErrNotLeader
	}
	return t, own != nil, nil
}

// SetEligible says whether this process may lead the role, from now on. A process that may not lead
// does not campaign. If it leads, its term ends as by Resign, and another leads within
// milliseconds. Status says WaitIneligible meanwhile. SetEligible may be called before and during
// Run, and does not wait: the work of the term has returned when Status().State is
// ElectionFollowing again, the lease goes back then, and EventLeaseReleased says that Redis has
// it. A call that changes nothing has no effect, and of several calls in a row only the last may
// have one.
func (e *Elector) SetEligible(eligible bool) {
	e.loop.barred.Store(!eligible)
	e.loop.inputs.nudge()
}

// rest waits until this process, which is not eligible any more, has no term of the role and
// nothing of it runs. It returns errUnawaited if ctx ends first.
func (e *Elector) rest(ctx context.Context) error {
	if e.phase.Load() != phaseRunning {
		return nil
	}
	answer := make(chan error, 1)
	e.loop.inputs.put(func(in *loopInputs) { in.resting = append(in.resting, answer) })
	select {
	case err := <-answer:
		return err
	case <-e.ended:
		return nil
	case <-ctx.Done():
		return errUnawaited
	}
}

// errUnawaited says that a caller has not waited for a role. No caller of this package sees it.
var errUnawaited = errors.New("not waited for")

// drainGoesOn is the error of a caller who does not wait for a drain any longer.
func drainGoesOn(ctx context.Context) error {
	return fmt.Errorf("tenure: the drain goes on: %w", context.Cause(ctx))
}

// IsEligible reports whether this process may lead the role, by ElectionOptions.Ineligible and the
// last SetEligible.
func (e *Elector) IsEligible() bool { return !e.loop.barred.Load() }

// Do calls fn if this process leads, and returns fn's error as it is. Use it in handlers that may
// act only on the leader. A check of IsLeader before the action leaves a gap; with Do the lease is
// not released before fn has returned, as with leader work. Do asks Redis nothing and never blocks
// for longer than fn does.
//
// The context of fn has the values and the deadline of ctx. It ends with ctx and with the term;
// context.Cause says which, see Term.Context. fn must return soon after that. Hand term.Token to
// what fn writes to.
//
// If this process does not lead, Do returns ErrNotLeader and does not call fn. If the leader is
// known (see ElectionStatus.Leader), the error is a *NotLeaderError with its ID and address. A term
// that is over but still drains does not lead. If ctx is done already, Do returns its cause. fn
// runs in the goroutine of the caller: a panic of fn passes to the caller, and the term goes on. A
// nil fn is ErrMisconfigured.
func (e *Elector) Do(ctx context.Context, fn func(ctx context.Context, term Term) error) error {
	if fn == nil {
		return fmt.Errorf("%w: Do got a nil function", ErrMisconfigured)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := e.loop.current.Load()
	if t == nil || !t.enter() {
		return e.notLeader()
	}
	defer t.leave()
	return t.do(ctx, fn)
}

// notLeader is ErrNotLeader, with what the last answer of Redis says of the leader.
func (e *Elector) notLeader() error {
	s := e.Status()
	if s.Leader == "" || s.Leader == e.loop.id {
		return ErrNotLeader
	}
	err := &NotLeaderError{Role: e.Role(), Leader: s.Leader, Token: s.LeaderToken}
	if e.loop.addresses != nil && s.LeaderToken != 0 {
		err.Address = e.loop.addresses.known(s.Leader)
	}
	return err
}

// Observe calls fn with every event of this election from now on, until stop is called, and with
// those of the subscription to hints, which all elections of the process share. It does not call fn
// with the events of other roles, of the registry and of tasks: Coordinator.Observe does. Status is
// never older than the event that fn is called with. Otherwise it works like Coordinator.Observe.
func (e *Elector) Observe(fn func(Event)) (stop func()) { return e.loop.bus.observe(fn) }

// Run campaigns until ctx is done, anew after each term, and runs the given leader work during
// each. It returns nil after a requested stop, and ErrDrainTimeout if something that it started
// still runs after ShutdownTimeout (the error lists it). With FailFast it returns the first error
// of Redis. For a nil LeadFunc it returns ErrMisconfigured.
//
// Run may be called once. A second call returns ErrRunning while the first is running, and
// ErrStopped once the first has returned. It returns ErrRunning as well if the elector belongs to a
// Coordinator, whose Run runs it.
func (e *Elector) Run(ctx context.Context, lead ...LeadFunc) error {
	if !e.standalone {
		return ownedError{}
	}
	for _, work := range lead {
		if work == nil {
			return fmt.Errorf("%w: Run got a nil LeadFunc", ErrMisconfigured)
		}
	}
	if err := e.start(); err != nil {
		return err
	}
	hints, stop := context.WithCancel(ctx)
	defer stop()
	listening := make(chan struct{})
	go func() { // ends with hints, or when the client returns; waited for below
		defer close(listening)
		if e.listen != nil && hints.Err() == nil {
			e.listen(hints)
		}
	}()
	var err error
	e.begin(ctx, lead, func(failed error) { err = failed })
	e.loop.driver.Close()
	e.loop.driver.Run(ctx.Done())
	stop()
	deadline := e.loop.deadline
	return joined(err, e.asked.flush(deadline, questionsLeft), e.loop.bus.flush(deadline), await(listening, deadline, "the subscription to hints"))
}

// begin lets the loop have its turns. over hears of its end, in the goroutine of the driver.
func (e *Elector) begin(ctx context.Context, lead []LeadFunc, over func(error)) {
	e.over = over
	e.loop.bus.publish(Event{Type: EventElectionStarted, Role: e.Role(), more: e.Guarantees().attrs()})
	e.loop.start(ctx, lead)
	e.loop.inputs.seat.Start()
}

// step is a turn of the loop. A waiting Resign returns when the phase says that it ended, too.
func (e *Elector) step(early bool) driver.Next {
	next := e.loop.step(early)
	if next.Over {
		now := time.Now()
		e.endedAt.Store(&now)
		e.phase.Store(phaseStopped)
		e.loop.wakeResigners()
		close(e.ended)
		e.over(e.loop.err)
	}
	return next
}

// start makes sure that an elector runs once.
func (e *Elector) start() error {
	if e.phase.CompareAndSwap(phaseIdle, phaseRunning) {
		return nil
	}
	if e.phase.Load() == phaseStopped {
		return ranError{}
	}
	return ErrRunning
}

// hint takes a hint from the subscription.
func (e *Elector) hint(h store.Hint) {
	if !h.All && h.Channel != e.loop.channel {
		return
	}
	if n := int64(h.Count); h.Type == store.HintListeners && max(e.listeners.Swap(n), 1) == max(n, 1) {
		return // as before: that is no reason to wake
	}
	e.loop.inputs.put(func(in *loopInputs) {
		switch h.Type {
		case store.HintVacant:
			in.taken = false
			switch h.Subject {
			case "":
				in.vacant = true
			case e.loop.id:
				in.named = true
			default:
				in.reserved = max(in.reserved, h.Reserved())
			}
		case store.HintNamed:
			in.named = in.named || h.Subject == e.loop.id
			in.vacant = in.vacant || h.Subject == lease.Anyone // whoever may lead is to ask
			in.called = in.called || h.Subject == lease.Anyone
		case store.HintGranted:
			in.granted, in.taken = true, true
		case store.HintRollCall, store.HintReady:
			in.rollCall = true
		case store.HintConnected: // either may have been missed
			in.rollCall, in.connected = true, true
		case store.HintListeners:
			in.listeners = h.Count
		}
	})
}

// TermRecord is a term of a role, as the history in Redis has it. Whoever may write to the keys of
// the role may have written it. All times are by Redis's clock.
type TermRecord struct {
	Role       string    `json:"role"`
	Token      int64     `json:"token"`
	InstanceID string    `json:"instance_id,omitempty"` // that led; "" if Redis has lost it
	Began      time.Time `json:"began,omitzero"`        // zero: not known
	// Ended is when the term ended: for one that was given back, before its work drained, and for
	// one that lapsed, the end of its lease. Zero: it goes on, or its end is not known; see Reason.
	Ended time.Time `json:"ended,omitzero"`
	// Reason is why the term ended. As in EventTermEnded: expired, lost, resigned, failed, stopped,
	// transferred. done: Once, or tenure run, has done its work. lapsed: its leader has not given
	// the lease back, since it has died or was cut off. unheard: the lease was granted to a
	// candidate that had no answer. forgotten: Redis has lost what it knew of the term. "": it goes
	// on, or nobody has led since.
	Reason string `json:"reason,omitempty"`
	// Gap is for how long nobody led before this term: since the term before ended, its drain
	// included. 0: less than a millisecond, not known, or the first term.
	Gap time.Duration `json:"-"`
}

// Terms returns the terms of this role, newest first, at most limit of them; of 0 or less, none. It
// asks Redis, once, and works without Run. The last 500 terms or so are kept. A term that has gone
// on through a loss of data of Redis is there only once it has ended.
//
// Terms returns ErrUnreachable or ErrMisconfigured if Redis gives no answer. It returns as soon as
// ctx is done, with its cause.
func (e *Elector) Terms(ctx context.Context, limit int) ([]TermRecord, error) {
	return readTerms(ctx, &e.asked, e.loop.store, e.Role(), limit)
}

// readTerms reads the newest terms of a role.
func readTerms(ctx context.Context, asked *callGate, leases store.Lease, role string, limit int) ([]TermRecord, error) {
	if limit <= 0 {
		return nil, nil
	}
	entries := store.MaxTermEntries
	if limit < entries/2 {
		entries = 2*limit + 1 // the end of the term before says how long the gap was
	}
	newest, err := ask(ctx, asked, func(ctx context.Context) ([]store.TermEntry, error) { return leases.Terms(ctx, entries) })
	if err != nil {
		return nil, err
	}
	return termRecords(role, newest, limit), nil
}

// termRecords joins the entries of the history, newest first, to terms.
func termRecords(role string, newest []store.TermEntry, limit int) []TermRecord {
	var records []TermRecord
	for _, e := range newest {
		at := store.Time(e.At)
		var later *TermRecord
		if len(records) > 0 {
			later = &records[len(records)-1]
		}
		switch {
		case e.Event == store.TermBegan && later != nil && later.Token == e.Token:
			later.Began, later.InstanceID = at, e.Holder
			continue
		case e.Event == store.TermBegan:
			record := TermRecord{Role: role, Token: e.Token, InstanceID: e.Holder, Began: at}
			if later != nil { // another term has begun, and nothing says how this one ended
				record.Reason = store.TermForgotten
			}
			records = append(records, record)
		case e.Event == store.TermEnded:
			if later != nil && !at.IsZero() && later.Began.After(at) {
				later.Gap = later.Began.Sub(at)
			}
			records = append(records, TermRecord{
				Role: role, Token: e.Token, InstanceID: e.Holder, Began: store.StartTime(e.Since), Ended: at, Reason: e.Reason,
			})
		}
	}
	return records[:min(limit, len(records))]
}

// What has become of a call of Once.
const (
	onceOpen int32 = iota
	onceWon
	onceLost
)

// Once runs fn if this process wins the election of the role now, and returns fn's error; the lease
// is released before it returns, and lapses if Redis does not answer then. If another instance
// leads, fn is not called, and Once returns that leader with an error that is ErrNotLeader. While
// nobody leads, which on a young Redis may take LeaseTTL + 2 s, Once waits until somebody does or
// ctx is done, and returns the cause of that.
//
// Use it for what one of several starting instances has to do, such as a schema migration. An
// instance that did not win may call Once again until it does, and find the work done: fn must look
// at that first, since nothing but fn remembers it. If fn returns nil the term ends as done, so
// that Control.Roles does not count the role as one that nobody leads. The lease is kept for as
// long as fn runs; ctx of fn is done if it is lost, or if ctx is done, and then fn must stop (see
// LeadFunc). Give the role a name of its own: elections of other purposes must not wait for it.
// While an elector with the InstanceID of opts leads the role, here or in another process, Once
// waits for the end of that term, since it takes the ID for its own.
//
// opts are those of NewElector; the errors of NewElector and of Elector.Run are returned too. If
// Run fails after fn has returned, such as with ErrDrainTimeout, both errors are joined, beside
// this process as the leader. If fn has not returned by then the LeaderInfo is empty. Once calls fn
// at most once, also if it fails.
func Once(ctx context.Context, rdb redis.UniversalClient, opts ElectorOptions, fn LeadFunc) (LeaderInfo, error) {
	if fn == nil {
		return LeaderInfo{}, fmt.Errorf("%w: Once got a nil function", ErrMisconfigured)
	}
	e, err := NewElector(rdb, opts)
	if err != nil {
		return LeaderInfo{}, err
	}
	campaign, stop := context.WithCancel(ctx)
	defer stop()
	campaign, complete := store.WithDone(campaign)
	var (
		state    atomic.Int32
		self     LeaderInfo
		done     error
		returned atomic.Bool // then both are set
	)
	defer e.Observe(func(event Event) {
		another := event.Type == EventLeaderChanged && event.Subject != "" && event.Subject != e.loop.id
		if another && state.CompareAndSwap(onceOpen, onceLost) {
			stop()
		}
	})()
	err = e.Run(campaign, func(ctx context.Context, term Term) error {
		if state.CompareAndSwap(onceOpen, onceWon) {
			self = LeaderInfo{Role: term.Role, InstanceID: term.InstanceID, Token: term.Token, Since: term.Since}
			done = protect(func() error { return fn(ctx, term) })
			returned.Store(true)
			complete.Store(done == nil)
			stop()
			<-ctx.Done() // the term does not go on, which a piece of work that is done is taken to say
		}
		return nil
	})
	switch {
	case returned.Load():
		return self, joined(done, err)
	case err != nil:
		return LeaderInfo{}, err
	case state.Load() == onceOpen:
		return LeaderInfo{}, context.Cause(ctx)
	}
	leader, err := e.Leader(ctx)
	if errors.Is(err, ErrNoLeader) { // it has stopped since
		err = nil
	}
	return leader, errors.Join(ErrNotLeader, err)
}
