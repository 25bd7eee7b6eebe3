package tenure

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// backend is the store of a coordinator: Redis, or the memory of this process alone.
type backend struct {
	leases   func(store.Role) store.Lease
	foreign  func(store.Role) store.Lease                          // of roles that are only read
	check    func(c *checker, prefix string, opts ElectionOptions) // what only the backend can refuse
	timing   func(*lease.Timing)                                   // what only the backend times
	registry store.Registry
	tasks    store.Tasks
	commands store.Commands
	listen   func(ctx context.Context, a store.Audience)                    // blocks until ctx is done
	examine  func(ctx context.Context, bounded store.Bounded) store.Facts   // nil: there is no server
	address  string                                                         // of the server; "": not known, or several
	server   func(ctx context.Context) (store.Server, error)                // what it says of itself; nil: there is none
	calls    func(ended func(script string, took time.Duration, err error)) // observes calls; nil: there are none
}

// Coordinator is one process's part in everything: it registers the instance, campaigns, sends
// heartbeats, and while it leads it sweeps the registry and runs tasks. Its methods are safe for
// concurrent use.
type Coordinator struct {
	opts     Options
	bus      *eventBus
	backend  backend
	elector  *Elector
	registry *Registry
	tasks    *TaskScheduler
	phase    atomic.Int32
	running  atomic.Pointer[running] // while Run goes on

	subscription *atomic.Pointer[store.Subscription]
	more         wakeup // a role was added
	draining     atomic.Bool
	commands     commandLoop
	asked        callGate // by Control
	calls        callObservers
	elections    *electionShared

	mu    sync.Mutex
	roles roleSet
	start func(*Elector) // while Run goes on: runs a role
	drain *drain         // that is on
}

// running is a Run that goes on.
type running struct {
	stopped func() error  // the Err of its context
	ended   chan struct{} // closed at its end
}

// New returns a coordinator on Redis. It refuses bad options, with all problems at once, and a
// client that cannot serve: nil, a *redis.Ring, or a *redis.ClusterClient if the namespace has no
// hash tag. It does not talk to Redis.
//
// Give tenure a client of its own. If the application exhausts a shared pool, everything but
// renewals is delayed. Close the client when Run has returned, and not before: with a closed one no
// lease can be given back, and Run tries to for as long as it would for a Redis that is away.
func New(rdb redis.UniversalClient, opts Options) (*Coordinator, error) {
	var c checker
	opts = opts.complete(&c)
	backing := newRedisStore(rdb, &c, opts)
	if err := c.err(); err != nil {
		return nil, err
	}
	return newCoordinator(opts, backend{
		leases:  func(r store.Role) store.Lease { return backing.ForRole(r) },
		foreign: func(r store.Role) store.Lease { return backing.ForRole(r) },
		check: func(c *checker, prefix string, o ElectionOptions) {
			if backing.IsSpread() {
				c.spreadElection(prefix, o)
			}
		},
		timing:   func(*lease.Timing) {},
		registry: backing,
		tasks:    backing,
		commands: backing,
		calls:    backing.OnCall,
		listen:   backing.Listen,
		examine:  backing.ForRole(opts.Election.role(opts.Namespace, opts.InstanceID)).Examine,
		address:  backing.Address(),
		server:   backing.Server,
	}), nil
}

func newCoordinator(opts Options, b backend) *Coordinator {
	c := &Coordinator{
		opts: opts, backend: b, bus: newEventBus(opts.InstanceID), subscription: store.NewSubscription(), more: newWakeup(),
	}
	if opts.Logger != nil {
		c.bus.observe(logEvents(opts.Logger))
	}
	c.commands = commandLoop{c: c, obey: c.obey, wake: newWakeup(), calling: callGate{most: maxRegistryCalls}}
	c.registry = newRegistry(b.registry, c.bus, opts, elections{
		leading: c.leading, compared: c.compared,
		leader:   func(ctx context.Context) (LeaderInfo, error) { return c.elector.holder(ctx) },
		commands: c.commands.wait, unconnected: func() string { return c.elector.loop.report.unconnected() },
	})
	if opts.NoDefaultRole {
		c.registry.elections.leader = nil
	}
	c.elections = c.electionShared()
	c.asked.most = maxQuestions
	c.calls.install = b.calls
	tasks := opts.taskConfig(b.tasks, c.bus)
	tasks.absent = opts.NoDefaultRole
	c.tasks = newTaskScheduler(tasks)
	c.tasks.shards, c.tasks.addShard = opts.Tasks.Shards, c.addShard
	opts.Election.Lead = slices.Concat(opts.Election.Lead, c.registry.leaderWork())
	c.elector = c.newElector(opts.Election, func(election *electionConfig) {
		election.stuck, election.late = c.tasks.stuck, c.tasks.work()
		election.also.everywhere, election.also.leading = opts.commands()
	})
	if !opts.NoDefaultRole {
		c.roles.add(c.elector)
	}
	return c
}

// electionShared is what the elections of all roles share.
func (c *Coordinator) electionShared() *electionShared {
	s := c.opts.electionShared()
	s.drainTimeout -= deregisterTime(c.opts.ShutdownTimeout)
	s.draining = &c.draining
	s.together = new(togetherRenewals)
	s.driver = driver.New(s.together.send)
	s.addresses, s.beats = c.registry, c.registry
	s.observed = &c.calls
	return s
}

// newElector returns the elector of a role. set changes the settings that differ from those of
// other roles.
func (c *Coordinator) newElector(opts ElectionOptions, set func(*electionConfig)) *Elector {
	of := c.opts
	of.Election = opts
	election := of.electionConfig(c.elections, c.backend.leases(opts.role(of.Namespace, of.InstanceID)), c.bus)
	c.backend.timing(&election.timing)
	election.also.none = c.backend.examine == nil
	set(&election)
	return newElector(election, c.subscription)
}

// leading appends the roles that this process leads now, in the order of Roles.
func (c *Coordinator) leading(roles []string) []string {
	for _, e := range c.all() {
		if e.IsLeader() {
			roles = append(roles, e.Role())
		}
	}
	return roles
}

// compared has each election compare this process with its leader again.
func (c *Coordinator) compared() {
	for _, e := range c.all() {
		e.loop.inputs.nudge()
	}
}

// IsLeader reports whether this process leads the default role now, and says nothing of further
// roles: for one of them call Elector.IsLeader of the elector that Role returns.
func (c *Coordinator) IsLeader() bool { return c.elector.IsLeader() }

// Elector returns the elector of the default role. With NoDefaultRole it is one that never runs: it
// can be asked who leads.
func (c *Coordinator) Elector() *Elector { return c.elector }

// Registry returns the registry of instances.
func (c *Coordinator) Registry() *Registry { return c.registry }

// Tasks returns the scheduler of leader-only tasks, those of the default role and of every added
// one.
func (c *Coordinator) Tasks() *TaskScheduler { return c.tasks }

// Options returns the options in effect: those that New was given, with every default filled in,
// and with the changes by Registry.Update. It is a copy that holds no secrets, and New would accept
// it.
func (c *Coordinator) Options() Options {
	o := c.opts
	o.random, o.secret = nil, nil
	o.Election.Lead = slices.Clone(o.Election.Lead)
	o.Tasks.Middleware = slices.Clone(o.Tasks.Middleware)
	o.Registry = o.Registry.with(c.registry.said())
	return o
}

// Guarantees returns the bounds of the default role; those of another role are its Elector's.
func (c *Coordinator) Guarantees() Guarantees { return c.elector.Guarantees() }

// InstanceID returns the ID of this process.
func (c *Coordinator) InstanceID() string { return c.opts.InstanceID }

// RedisAddress returns host and port of the Redis that the client was made for, which may stand in
// a status: it holds no secret. "" with Sentinel, a Cluster, a socket of this machine or a client
// that is not known, and without Redis.
func (c *Coordinator) RedisAddress() string { return c.backend.address }

// State says how far this process takes part: InstanceJoining until Run has registered it,
// InstanceActive then, and InstanceDraining while it drains and once Run has been told to stop. It
// is what the next heartbeat says, whether Redis can be reached or not. If heartbeats are off, it
// is active as soon as Run was called. State neither waits nor asks Redis.
func (c *Coordinator) State() InstanceState {
	switch {
	case c.IsDraining():
		return InstanceDraining
	case c.phase.Load() == phaseRunning && (c.opts.Registry.HeartbeatInterval < 0 || c.registry.takesPart()):
		return InstanceActive
	}
	return InstanceJoining
}

// Observe calls fn with every event from now on, in order and one call at a time, until stop is
// called. stop does not wait for a call of fn that is under way. A slow fn delays nobody: beyond a
// backlog of 1,024 events the oldest are dropped, and Event.Dropped of the next one counts them. A
// panic of fn is swallowed.
func (c *Coordinator) Observe(fn func(Event)) (stop func()) { return c.bus.observe(fn) }

// ObserveCalls calls fn with every call of a script in Redis that has ended, one at a time, until
// stop is called: it is for metrics. A slow fn delays nobody: beyond a backlog of 16,384 calls
// the oldest are dropped, and Call.Dropped of the next one counts them. A panic of fn is
// swallowed, and so is runtime.Goexit. stop does not wait for a call of fn that is under way.
// Renewals that travel over a connection of their own, because the first copy had no answer, are
// among them.
func (c *Coordinator) ObserveCalls(fn func(Call)) (stop func()) { return c.calls.observe(fn) }

// Run registers this process, sends heartbeats, and campaigns for the default role and every
// further one. While it leads it runs the given work, the registered tasks and the sweeps. It
// blocks until ctx is done and then drains: each term ends, its work is awaited, its lease is
// released, and the process deregisters. Running tasks may finish, for at most 3/4 of
// ShutdownTimeout, before their context is cancelled.
//
// Run returns nil after a requested stop, and ErrDrainTimeout if something that it started still
// runs after ShutdownTimeout (the error lists it). With FailFast it returns the first error of
// Redis. For a nil LeadFunc, and for any if NoDefaultRole is set, it returns ErrMisconfigured. Run
// may be called once. A second call returns ErrRunning while the first is running, and ErrStopped
// once the first has been told to stop.
func (c *Coordinator) Run(ctx context.Context, lead ...LeadFunc) error {
	for _, work := range lead {
		if work == nil {
			return fmt.Errorf("%w: Run got a nil LeadFunc", ErrMisconfigured)
		}
	}
	if len(lead) > 0 && c.opts.NoDefaultRole {
		return fmt.Errorf("%w: Run got leader work of the default role, but NoDefaultRole is set: use the Lead of AddRole", ErrMisconfigured)
	}
	if !c.phase.CompareAndSwap(phaseIdle, phaseRunning) {
		if c.phase.Load() == phaseStopped {
			return ranError{}
		}
		return ErrRunning
	}
	run := &running{stopped: ctx.Err, ended: make(chan struct{})}
	c.running.Store(run)
	defer func() { c.running.Store(nil); close(run.ended) }()
	if ctx.Err() != nil {
		c.stopEntry()
		return nil
	}

	// What serves the electors ends after them.
	serving, serve := context.WithCancel(context.WithoutCancel(ctx))
	defer serve()
	listening, beating := make(chan struct{}), make(chan struct{})
	reading, obeying := make(chan struct{}), make(chan struct{})
	go func() { // ends with serving: what is asked while work drains is answered; awaited by close, or said to run
		defer close(obeying)
		c.commands.run(serving)
	}()
	go func() { // ends with serving; awaited by close, or said to run
		defer close(listening)
		c.backend.listen(serving, c.audience())
	}()
	go func() { // likewise
		defer close(beating)
		c.registry.beat(serving)
	}()
	counting := make(chan struct{})
	go func() { // ends with serving, at once; awaited below
		defer close(counting)
		c.tasks.watchInstances(serving, c.registry)
	}()
	go c.registry.measure(serving) // ends with serving, at once; a call of the application that is on is awaited by close, or said to run
	go func() {                    // ends with serving, at once; awaited below
		defer close(reading)
		c.registry.findLeaders(serving)
	}()
	stopped, err := c.elect(ctx, lead)
	serve()
	<-reading
	<-counting
	return joined(err, c.close(ctx, stopped.Add(c.opts.ShutdownTimeout), beating, listening, obeying))
}

// elect runs the electors of all roles until ctx is done, or one of them fails fast, and waits for
// them. stopped is when that was.
func (c *Coordinator) elect(ctx context.Context, lead []LeadFunc) (stopped time.Time, err error) {
	ctx, halt := context.WithCancelCause(ctx)
	defer halt(nil)
	var failed []error
	run := func(e *Elector, lead []LeadFunc) {
		e.begin(ctx, lead, func(err error) {
			if err != nil { // in the goroutine of the driver
				failed = append(failed, err)
				halt(err)
			}
		})
	}
	c.mu.Lock()
	for _, e := range c.roles.all {
		if e.start() == nil {
			run(e, leadOf(e == c.elector, lead))
		}
	}
	c.start = func(e *Elector) {
		if e.start() == nil {
			run(e, nil)
		}
	}
	c.mu.Unlock()
	driven := make(chan struct{})
	go func() { // ends when all loops have, at the latest after the drain bound; awaited below
		defer close(driven)
		c.elections.driver.Run(ctx.Done())
	}()
	<-ctx.Done()
	stopped = time.Now()
	c.stopEntry()
	c.elections.driver.Close()
	c.registry.setStatus(InstanceDraining)
	<-driven
	return stopped, joined(failed...)
}

func leadOf(isDefault bool, lead []LeadFunc) []LeadFunc {
	if isDefault {
		return lead
	}
	return nil
}

// stopEntry lets no further role and no further task in.
func (c *Coordinator) stopEntry() {
	c.tasks.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = nil
	c.phase.Store(phaseStopped)
	for _, e := range c.roles.all {
		if e.phase.CompareAndSwap(phaseIdle, phaseStopped) {
			e.loop.status.Store(&snapshot{ElectionStatus: ElectionStatus{Role: e.Role(), State: ElectionStopped}})
		}
	}
}

// close deregisters and waits for what served the electors, at the latest until the deadline. The
// end of that is left to observers.
func (c *Coordinator) close(ctx context.Context, by time.Time, beating, listening, obeying <-chan struct{}) error {
	last := by.Add(-lastWords(c.opts.ShutdownTimeout))
	beat := await(beating, last, "the heartbeat")
	bounded, cancel := context.WithDeadline(context.WithoutCancel(ctx), last)
	defer cancel()
	if err := c.registry.deregister(bounded); err != nil { // the record is left to be swept
		c.bus.publish(Event{Type: EventDeregistrationFailed, Err: err})
	}
	obeyed := await(obeying, last, "a command from elsewhere")
	calls := joined(c.registry.flush(last), c.tasks.flush(last), c.commands.calling.flush(last, "a call about a command to Redis"), c.asked.flush(last, questionsLeft))
	c.mu.Lock()
	roles := c.roles.all
	c.mu.Unlock()
	if c.opts.NoDefaultRole { // which may be asked who leads
		roles = append(slices.Clone(roles), c.elector)
	}
	for _, e := range roles {
		calls = joined(calls, e.asked.flush(last, questionsLeft))
	}
	return joined(beat, obeyed, calls, await(listening, last, "the subscription to hints"), c.bus.flush(by), c.calls.flush(by))
}

// audience is whom the one subscription of this process serves.
func (c *Coordinator) audience() store.Audience {
	shortest := func(of func(ElectionOptions) time.Duration) func() time.Duration {
		return func() time.Duration {
			least := of(c.opts.Election)
			for _, e := range c.all() {
				least = min(least, of(e.loop.opts))
			}
			return least
		}
	}
	return store.Audience{
		Channels: func() []string {
			channels := []string{store.Keys(c.opts.Namespace).Events()}
			for _, e := range c.all() {
				channels = append(channels, e.loop.channel)
			}
			return channels
		},
		More:   c.more,
		TTL:    shortest(func(o ElectionOptions) time.Duration { return o.LeaseTTL }),
		Wait:   shortest(func(o ElectionOptions) time.Duration { return o.Safety.EmptyHistoryWait }),
		Leads:  func() bool { return slices.ContainsFunc(c.all(), (*Elector).leads) },
		Take:   c.hint,
		Report: c.bus.notice,
		State:  c.subscription,
	}
}

// hint hands a hint to those whom it may concern.
func (c *Coordinator) hint(h store.Hint) {
	for _, e := range c.concerned(h) {
		e.hint(h)
		c.tasks.hint(e.Role(), h)
	}
	if h.Type == store.HintGranted || h.Type == store.HintVacant {
		c.registry.changed()
	}
	if h.Channel == store.Keys(c.opts.Namespace).Events() {
		c.registry.hint(h)
		c.commands.hint(h)
	}
}
