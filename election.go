package tenure

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"

	"github.com/tenure-go/tenure/internal/store"
)

// ElectionState is where an elector stands.
type ElectionState string

// The states of an elector.
const (
	StateIdle      ElectionState = "idle"      // Run was not called yet
	StateFollowing ElectionState = "following" // no term: asking, waiting or standing back
	StateLeading   ElectionState = "leading"   // a term is on
	StateDraining  ElectionState = "draining"  // a term is over, its work is not
	StateStopped   ElectionState = "stopped"   // Run has returned, or is about to
)

// ElectionStatus is a snapshot of an elector. It is cached: asking for it costs no round trip.
type ElectionStatus struct {
	Role  string
	State ElectionState
	// Token is that of the term that is on; 0 without one. Deadline is when it ends unless it is renewed.
	Token    int64
	Deadline time.Time
	// Leader is the instance that held the lease at the last answer of Redis, "" if nobody did, or if that lease must have ended since
	// without another answer: nothing is known then. LeaderToken is its token, 0 for a foreign client. While this candidate does not
	// campaign it asks once per RetryInterval, and when it hears that a lease was granted.
	Leader      string
	LeaderToken int64
	// LastAnswer is when Redis last gave a usable answer; zero: never.
	LastAnswer time.Time
	// Waiting says why this candidate does not lead. lease: another instance holds the lease; foreign: another program does; hold: Redis
	// has lost data or is young; until: the lease vanished before its end; empty: Redis knows nothing of the role yet; penalty: it stands
	// back after a term of its own; silence: it stands back since Redis gave no usable answer for a LeaseTTL; unhealthy: its health check
	// fails; "": none of these. EventWaiting reports each change.
	Waiting string
	// WaitingUntil is when that may change, by this machine's clock: when the lease ends unless it is renewed, or when leases are granted
	// again. Zero if that is not known.
	WaitingUntil time.Time
	// HistoryWitness is false while Redis does not report its replication id (INFO refused): a failover or a restart is then
	// noticed only by what is missing. EventHistoryUnread reports it.
	HistoryWitness bool
	// Subscription is the state of the one subscription of this process, on which it hears hints.
	Subscription Subscription
	// CallsInFlight counts the calls to Redis that have not returned, abandoned ones included.
	CallsInFlight int
	// Err is the last error of Redis, nil again after a usable answer; or what the health check says, while that keeps it from
	// campaigning (ErrWorkFailed).
	Err error
}

// snapshot is what Status answers from.
type snapshot struct {
	ElectionStatus
	leaderEnds time.Time // Leader is not known to lead from here on; zero: there is no such time
}

// LeaderInfo is what Redis knows of the current leader.
type LeaderInfo struct {
	InstanceID string        // if Token is 0, what a foreign client wrote: untrusted, and perhaps ""
	Token      int64         // fencing token; 0: not a tenure client
	Since      time.Time     // by Redis's clock, whole seconds; zero where it is unknown
	Remaining  time.Duration // of the lease; negative: a foreign lease without expiry
}

// Causes of the end of a term.
var (
	errExpired = fmt.Errorf("%w: no renewal succeeded in time", ErrLost)
	errHealth  = errors.New("health check gave no answer in time")
)

// Elector takes part in the election of one role. Its methods are safe for concurrent use.
type Elector struct {
	opts   ElectionOptions
	id     string
	store  store.Lease
	bus    *eventBus
	drain  time.Duration
	fast   bool                  // FailFast
	listen func(context.Context) // own subscription; nil where a coordinator has one
	timing lease.Timing
	random func() float64
	secret func() string
	// alive returns an error while the leader's own work makes no progress; the loop then gives the term up. It must not block. Nil: not
	// called.
	alive func() error
	own   bool // Run is the caller's; false: the coordinator's

	channel      string                              // of the hints of the lease
	subscription *atomic.Pointer[store.Subscription] // of the process

	current atomic.Pointer[tenancy]
	status  atomic.Pointer[snapshot]
	phase   atomic.Int32 // idle, running, stopped
	inbox   mailbox[mail]
	asked   callGate
}

// phases of an elector or a coordinator.
const (
	phaseIdle int32 = iota
	phaseRunning
	phaseStopped
)

// NewElector returns an elector that stands alone: no registry, no tasks. Use New for the whole.
func NewElector(rdb redis.UniversalClient, opts Options) (*Elector, error) {
	var c checker
	opts = opts.complete(&c)
	backing := newRedisStore(rdb, &c, opts)
	if err := c.err(); err != nil {
		return nil, err
	}
	bus := newEventBus(opts.InstanceID)
	if opts.Logger != nil {
		bus.observe(logEvents(opts.Logger))
	}
	e := newElector(backing.forRole(opts.Election, opts.InstanceID), bus, opts)
	e.own = true
	listener := newListener(backing, store.Audience{
		Channels: func() []string { return []string{e.channel} },
		TTL:      func() time.Duration { return e.opts.LeaseTTL },
		Wait:     func() time.Duration { return e.opts.EmptyHistoryWait },
		Take:     e.hint,
		Report:   bus.notice,
		State:    e.subscription,
	})
	e.listen = listener.run
	return e, nil
}

func newElector(leases store.Lease, bus *eventBus, opts Options) *Elector {
	e := &Elector{
		opts:   opts.Election,
		id:     opts.InstanceID,
		store:  leases,
		bus:    bus,
		drain:  opts.ShutdownTimeout,
		fast:   opts.FailFast,
		timing: opts.Election.timing(),
		random: opts.random,
		secret: opts.secret,
		inbox:  mailbox[mail]{wakeup: newWakeup()},
		asked:  callGate{most: maxQuestions},

		channel:      store.LeaseEvents(opts.Election.leaseKey(opts.Namespace)),
		subscription: store.NewSubscription(),
	}
	e.status.Store(&snapshot{ElectionStatus: ElectionStatus{Role: e.opts.Role, State: StateIdle}})
	return e
}

// IsLeader reports whether this process leads now. It looks at both clocks of the machine and at nothing else: no lock, no
// I/O, no allocation. After a pause past the deadline the first call is already false, and within one term it never turns
// true again.
func (e *Elector) IsLeader() bool {
	t := e.current.Load()
	return t != nil && t.leading()
}

// Term returns the term that this process leads in now.
func (e *Elector) Term() (Term, bool) {
	t := e.current.Load()
	if t == nil || !t.leading() {
		return Term{}, false
	}
	return TermFrom(t.ctx)
}

// Role is the role that is elected, "" for the default one.
func (e *Elector) Role() string { return e.opts.Role }

// Status returns the cached state of this elector.
func (e *Elector) Status() ElectionStatus {
	shot := e.status.Load()
	s := shot.ElectionStatus
	if !shot.leaderEnds.IsZero() && !time.Now().Before(shot.leaderEnds) {
		s.Leader, s.LeaderToken = "", 0
	}
	s.Subscription = Subscription(*e.subscription.Load())
	if s.State == StateLeading && !e.IsLeader() {
		s.State, s.Token, s.Deadline = StateDraining, 0, time.Time{}
	}
	return s
}

// Leader asks Redis who leads. It returns ErrNoLeader if nobody does, and ErrUnreachable or ErrMisconfigured if Redis gives no
// answer. It returns as soon as ctx is done, with ErrUnreachable and the cause of ctx, though the client may go on with the call.
// It works without Run.
func (e *Elector) Leader(ctx context.Context) (LeaderInfo, error) {
	reply, err := ask(ctx, &e.asked, e.store.Leader)
	switch {
	case err != nil:
		return LeaderInfo{}, err
	case reply.Verdict != lease.Held:
		return LeaderInfo{}, ErrNoLeader
	}
	return LeaderInfo{InstanceID: reply.Holder, Token: reply.Token, Remaining: reply.Wait, Since: store.StartTime(reply.Since)}, nil
}

// Resign gives the term up: IsLeader turns false, the context of the term is cancelled, and when its work has returned the
// lease is released. Running tasks may finish before that, for at most 3/4 of ShutdownTimeout. Resign waits for the release, or
// until ctx is done. Called with the context of leader work, or of a task, it starts the hand-over and returns; with any other
// context that work waits for itself there. This process then stands back for RetryInterval.
// It returns ErrNotLeader without a term, ErrStopped after Run, and ErrDrainTimeout where the work has not returned within
// ShutdownTimeout: the lease is then left to lapse.
func (e *Elector) Resign(ctx context.Context) error {
	t := e.current.Load()
	switch {
	case e.phase.Load() == phaseStopped:
		return ErrStopped
	case t == nil:
		return ErrNotLeader
	}
	term, inside := TermFrom(ctx)
	inside = inside && term.tenancy.of == e
	if inside && term.tenancy != t && term.tenancy != t.tasks { // work of a term that is over does not end the next one
		return ErrNotLeader
	}
	t.resigning.Store(true)
	e.inbox.nudge()
	if inside {
		return nil
	}
	select {
	case <-t.released:
		return t.overrun
	case <-ctx.Done():
		return fmt.Errorf("tenure: the hand-over goes on: %w", context.Cause(ctx))
	}
}

// Observe calls fn with every event from now on, until stop is called; see Coordinator.Observe. An elector of a coordinator has
// the events of all of it.
func (e *Elector) Observe(fn func(Event)) (stop func()) { return e.bus.observe(fn) }

// Run campaigns until ctx is done, for ever anew after each term, and runs the given leader work during each. It returns nil
// after a requested stop, ErrDrainTimeout where something of ours still runs after ShutdownTimeout (the error says what), the
// first error of Redis with FailFast, and ErrMisconfigured for a nil LeadFunc. Where it was called before it returns ErrRunning, or
// ErrStopped once that has returned; ErrRunning also where a coordinator runs this elector.
func (e *Elector) Run(ctx context.Context, lead ...LeadFunc) error {
	if !e.own {
		return fmt.Errorf("%w: the coordinator runs this elector", ErrRunning)
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
	deadline, err := e.run(ctx, lead)
	stop()
	return errors.Join(err, e.asked.flush(deadline, questionsLeft), e.bus.flush(deadline), await(listening, deadline, "the subscription to hints"))
}

// start makes sure that an elector runs once.
func (e *Elector) start() error {
	if e.phase.CompareAndSwap(phaseIdle, phaseRunning) {
		return nil
	}
	if e.phase.Load() == phaseStopped {
		return ErrStopped
	}
	return ErrRunning
}

// hint takes a hint from the subscription.
func (e *Elector) hint(h store.Hint) {
	if !h.All && h.Channel != e.channel {
		return
	}
	switch h.Type {
	case store.HintVacant:
		e.inbox.put(func(m *mail) { m.vacant = true })
	case store.HintGranted:
		e.inbox.put(func(m *mail) { m.granted = true })
	case store.HintRollCall:
		e.inbox.put(func(m *mail) { m.rollCall = true })
	case store.HintConnected: // either may have been missed
		e.inbox.put(func(m *mail) { m.rollCall, m.connected = true, true })
	}
}
