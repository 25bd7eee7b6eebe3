package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// commandLoop executes what others ask of this process, each command in a goroutine of its own: a
// drain that waits for work holds up nobody. Drains are begun, and ended, in the order in which
// they were asked for: what was asked for last counts. It asks Redis for commands only if a hint
// or a heartbeat says that there are some, if hints may have been missed, or while one waits that
// it could not take.
type commandLoop struct {
	c       *Coordinator
	obey    func(command store.Command) (rest func(ctx context.Context) error) // the rest may wait
	wake    wakeup
	calling callGate
	faults  reportOnce

	waiting   []*waitingCommand // oldest first
	runs      []*commandRun     // the last ones, oldest first
	executing sync.WaitGroup
	count     inFlight // of those that are executed
}

// waitingCommand is a command that this process has not taken yet, as far as it knows.
type waitingCommand struct {
	store.Command
	entry string
	since time.Time // it was first seen
	asked bool      // it may have been taken: the answer was lost
}

// commandRun is a command that this process has taken. None is executed twice, whatever Redis has
// forgotten of it.
type commandRun struct {
	id      string
	outcome atomic.Pointer[store.CommandOutcome] // nil while it is executed
}

// The bounds of commands in this process.
const (
	maxExecuting   = 16               // at once; beyond that only what ends drains is taken, see room
	maxRuns        = 1000             // that are remembered
	commandMemory  = 10 * time.Minute // for which Redis knows what became of a command
	leftForAnother = 2 * hintSpacing  // a command that is not for this process may be for another one of its ID
)

// hint takes a hint from the channel of the registry.
func (l *commandLoop) hint(h store.Hint) {
	if h.Type == store.HintConnected || h.Type == store.HintCommand && h.Subject == l.c.opts.InstanceID {
		l.wait()
	}
}

// wait has the inbox looked at: commands wait there. A heartbeat says so too, since hints may be
// lost.
func (l *commandLoop) wait() { l.wake.nudge() }

// run executes commands until ctx is done, and returns when those that are on have ended.
func (l *commandLoop) run(ctx context.Context) {
	for ctx.Err() == nil {
		var again <-chan time.Time
		if len(l.waiting) > 0 {
			again = time.After(hintSpacing)
		}
		select {
		case <-ctx.Done():
		case <-l.wake:
			l.look(ctx)
		case <-again:
			l.look(ctx)
		}
	}
	for _, w := range l.waiting {
		if w.asked { // nobody else can say that it comes to nothing
			l.executing.Go(func() { l.end(ctx, w.Command, outcomeOf(ErrStopped)) }) // ends with the call; awaited below
		}
	}
	l.executing.Wait()
}

// maxRounds is how often the inbox is read after one hint. A server that goes on answering that
// there is something, whatever is taken out, is asked again at the next hint.
const maxRounds = 8

// look reads the inbox, and takes what is for this process.
func (l *commandLoop) look(ctx context.Context) {
	var strange []string // entries that are no commands
	for round := 0; round < maxRounds && ctx.Err() == nil; round++ {
		entries, err := l.read(ctx, strange)
		if err == nil {
			strange = l.note(entries)
			err = l.take(ctx)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			l.faults.report(l.c.bus, EventCommandsUnread, err)
			l.waiting = slices.DeleteFunc(l.waiting, func(w *waitingCommand) bool { // whoever asks repeats the hint
				return !w.asked || time.Since(w.since) > maxCommandTimeout
			})
			return
		case len(strange) == 0:
			l.faults.over()
			return
		}
	}
}

func (l *commandLoop) read(ctx context.Context, strange []string) ([]string, error) {
	ctx, cancel := within(ctx, commandBound)
	defer cancel()
	return bounded(ctx, &l.calling, func(ctx context.Context) ([]string, error) {
		return l.c.backend.commands.ReadCommands(ctx, l.c.opts.InstanceID, strange)
	})
}

// note notes which commands wait, and returns the entries that are none. What was asked for without
// an answer waits too, though its entry may be gone.
func (l *commandLoop) note(entries []string) (strange []string) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w *waitingCommand) bool { return !w.asked && !slices.Contains(entries, w.entry) })
	for _, entry := range entries {
		switch command, ok := store.ParseCommand(entry, l.c.opts.InstanceID); {
		case !ok:
			strange = append(strange, entry)
		case !slices.ContainsFunc(l.waiting, func(w *waitingCommand) bool { return w.entry == entry }):
			l.waiting = append(l.waiting, &waitingCommand{Command: command, entry: entry, since: time.Now()})
		}
	}
	return strange
}

// take takes each command that waits, and has it executed. One that got no answer is kept: it may
// be taken, and is asked for again.
func (l *commandLoop) take(ctx context.Context) error {
	for _, w := range slices.Clone(l.waiting) {
		another := !w.asked && !l.c.meant(w.Command) && time.Since(w.since) < leftForAnother
		if another || l.count.count() >= l.room(w) {
			continue
		}
		w.asked = true
		verdict, err := l.start(ctx, w)
		if err != nil {
			return err
		}
		l.waiting = slices.DeleteFunc(l.waiting, func(other *waitingCommand) bool { return other == w })
		if verdict == store.CommandStarted || verdict == store.CommandOverdue {
			l.begin(ctx, w.Command, verdict == store.CommandOverdue)
		}
	}
	return nil
}

// room is how many commands may be executed beside one. An undrain waits for nothing, and a drain
// that stands before it ends with it, but must not be begun after it: there is room for all that an
// inbox holds.
func (l *commandLoop) room(w *waitingCommand) int {
	undrain := func(other *waitingCommand) bool { return other.Kind == commandUndrain }
	if undrain(w) || w.Kind == commandDrain && slices.ContainsFunc(l.waiting[slices.Index(l.waiting, w):], undrain) {
		return maxExecuting + store.MaxWaiting
	}
	return maxExecuting
}

func (l *commandLoop) start(ctx context.Context, w *waitingCommand) (verdict string, err error) {
	ctx, cancel := within(ctx, commandBound)
	defer cancel()
	command := w.Command
	command.Lasts = l.c.lasts(command)
	return bounded(ctx, &l.calling, func(ctx context.Context) (string, error) {
		return l.c.backend.commands.StartCommand(ctx, command, w.entry, l.c.registry.incarnation)
	})
}

// begin has a command executed that this process has taken, if it is not too old, and was not
// executed before.
func (l *commandLoop) begin(ctx context.Context, command store.Command, overdue bool) {
	run := &commandRun{id: command.ID}
	var do func()
	if i := slices.IndexFunc(l.runs, func(r *commandRun) bool { return r.id == command.ID }); i >= 0 {
		outcome := l.runs[i].outcome.Load()
		if outcome == nil {
			return
		}
		do = func() { l.end(ctx, command, *outcome) } // Redis has forgotten it
	} else {
		l.runs = append(l.runs[max(0, len(l.runs)-maxRuns+1):], run)
		if overdue {
			outcome := store.CommandOutcome{State: store.CommandExpired, Code: store.CommandExpired}
			run.outcome.Store(&outcome)
			do = func() { l.end(ctx, command, outcome) }
		} else {
			l.c.bus.publish(commandEvent(EventCommandTaken, command, nil))
			rest := l.obey(command)
			do = func() { l.execute(ctx, command, run, rest) }
		}
	}
	l.count.begin()
	l.executing.Go(func() { // ends with the command, which is bounded by obey, and with its end; awaited by run
		defer l.wake.nudge() // another one may wait for its place
		defer l.count.end()
		do()
	})
}

func (l *commandLoop) execute(ctx context.Context, command store.Command, run *commandRun, rest func(context.Context) error) {
	err := protect(func() error { return rest(context.WithoutCancel(ctx)) })
	l.c.bus.publish(commandEvent(EventCommandEnded, command, err))
	outcome := outcomeOf(err)
	run.outcome.Store(&outcome)
	l.end(ctx, command, outcome)
}

// firstEndPause is the time between the first two tries to say what became of a command. It doubles
// up to commandBound.
const firstEndPause = 100 * time.Millisecond

// end says what became of a command. It is said again until Redis answers, or does not know the
// command any more. While this process stops it is said once.
func (l *commandLoop) end(ctx context.Context, command store.Command, o store.CommandOutcome) {
	began := time.Now()
	for pause := firstEndPause; ; pause = min(2*pause, commandBound) {
		bound, cancel := within(context.WithoutCancel(ctx), commandBound)
		_, err := bounded(bound, &l.calling, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, l.c.backend.commands.EndCommand(ctx, command, l.c.registry.incarnation, o)
		})
		cancel()
		if err == nil || ctx.Err() != nil || time.Since(began) > commandMemory {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done(): // a last try
		}
	}
}

// meant reports whether a command is meant for the term, or the process, that is here.
func (c *Coordinator) meant(command store.Command) bool {
	switch command.Kind {
	case commandResign, commandTransfer:
		e, there := c.Role(command.Role)
		if command.Token == 0 || !there { // which is nobody's
			return true
		}
		t := e.loop.current.Load()
		if t == nil { // its own term may be over, and drain
			s := e.Status()
			return s.State == ElectionDraining && s.LeaderToken == command.Token
		}
		term, _ := TermFrom(t.ctx)
		return term.Token == command.Token
	case commandDrain, commandUndrain:
		return command.Process == "" || command.Process == c.registry.incarnation
	}
	return true
}

// lasts is for how long a command is executed at most.
func (c *Coordinator) lasts(command store.Command) time.Duration {
	bound := 2 * c.opts.ShutdownTimeout
	if e, there := c.Role(command.Role); there && command.Kind == commandTransfer {
		bound += e.loop.timing.Offer() // first the heir is waited for
	}
	return bound
}

// obey executes a command, if it is meant for the term, or the process, that is there now. Drains
// are begun and ended at once; the rest, which may wait, is returned. It must be called once.
func (c *Coordinator) obey(command store.Command) (rest func(ctx context.Context) error) {
	var wait func(ctx context.Context) error
	e, there := c.Role(command.Role)
	switch command.Kind {
	case commandResign, commandTransfer:
		if !there || command.Token == 0 {
			return settled(fmt.Errorf("%w: no role %q here", ErrNotLeader, command.Role))
		}
		wait = func(ctx context.Context) error { return e.resign(ctx, command.Token) }
		if command.Kind == commandTransfer {
			wait = func(ctx context.Context) error { return e.transfer(ctx, command.Argument, command.Token) }
		}
	case commandDrain, commandUndrain:
		if command.Process != c.registry.incarnation {
			return settled(fmt.Errorf("%w: the process that it was meant for is gone", ErrNotFound))
		}
		begun, err := c.setDraining(command.Kind == commandDrain)
		if err != nil || command.Kind == commandUndrain {
			return settled(err)
		}
		wait = func(ctx context.Context) error { return cmp.Or(c.drained(ctx, begun), begun.undrained()) }
	default:
		return settled(fmt.Errorf("%w: a command of kind %.100q is not known here", ErrMisconfigured, command.Kind))
	}
	return func(ctx context.Context) error {
		ctx, cancel := within(ctx, c.lasts(command))
		defer cancel()
		return wait(ctx)
	}
}

// settled is the rest of a command of which nothing is left to do.
func settled(err error) (rest func(context.Context) error) {
	return func(context.Context) error { return err }
}

// commandEvent is an event about a command.
func commandEvent(kind EventType, command store.Command, err error) Event {
	return Event{
		Type: kind, Role: command.Role, Token: command.Token, Subject: command.Argument, Reason: command.Kind, By: store.CommandText(command.By), Err: err,
	}
}

// inside reports whether a command for this process comes from its own work, by the context of
// that.
func (c *Coordinator) inside(ctx context.Context, command store.Command) bool {
	return command.Instance == c.opts.InstanceID && len(c.termsOf(ctx)) > 0
}

// termsOf are the terms of this process that a context is of: several if the work of one role calls
// Do of another.
func (c *Coordinator) termsOf(ctx context.Context) (own []*liveTerm) {
	for _, e := range c.all() {
		if t := workOf(ctx, &e.loop.current); t != nil {
			own = append(own, t)
		}
	}
	return own
}

// Control returns a Control of this namespace, which asks in the name of this instance. It knows
// the LeaderKeys of the roles of this coordinator, and works without Run. The default role is that
// of Options.Election.Role.
//
// Leader work, tasks and functions of Do must pass their own context, as with Elector.Resign: what
// they ask of this process is then done at once, and the call returns as soon as the end of the
// term has begun.
func (c *Coordinator) Control() *Control {
	return &Control{
		store: c.backend.commands,
		leases: func(role string) store.Lease {
			if e, there := c.Role(role); there {
				return e.loop.store
			}
			return c.backend.foreign(ElectionOptions{Role: role, LeaseTTL: c.opts.Election.LeaseTTL}.role(c.opts.Namespace, c.opts.InstanceID))
		},
		inside: c.inside, obey: func(ctx context.Context, command store.Command) error { return c.obey(command)(ctx) }, role: c.opts.Election.Role,
		leaseKey: func(role string) string { return ElectionOptions{Role: role}.leaseKey(c.opts.Namespace) },
		takesPart: func(role string) bool {
			_, there := c.Role(role)
			return there
		},
		registry: c.registry, tasks: c.tasks, by: c.opts.InstanceID, timeout: defaultCommandTimeout, asked: &c.asked,
		address: c.backend.address, server: c.backend.server,
	}
}

// Drain has this process lead nothing until Undrain: before it is stopped for maintenance, or to
// see how the others do without it. The process stays up. Its record says InstanceDraining with the
// next heartbeat, which is sent at once, and no role of it is eligible, whatever SetEligible says;
// that holds for roles that are added later too. Each term that is on ends as by Elector.Resign:
// running tasks may finish, for at most 3/4 of ShutdownTimeout, and the leases are released when
// all work has returned. Others lead within milliseconds after that.
//
// Drain waits for that, or until ctx is done, and returns the cause then; the drain goes on. nil:
// this process leads nothing, and no work of its terms runs. A lease whose release Redis has not
// confirmed within LeaseTTL lapses.
//
// Leader work, tasks and functions of Do must pass their own context, as with Resign. Drain then
// waits for no role: it returns nil as soon as the end of their term has begun, and the drain goes
// on.
//
// Drain may be called before and during Run, from any goroutine, and again: a further call waits
// for the same drain. It returns ErrStopped once Run has been told to stop, and ErrDrainTimeout if
// work has not returned within ShutdownTimeout: the lease is then left to lapse. If Undrain is
// called meanwhile, Drain returns nil, and this process may lead again.
func (c *Coordinator) Drain(ctx context.Context) error {
	begun, err := c.setDraining(true)
	if err != nil {
		return err
	}
	return c.drained(ctx, begun)
}

// drained waits for a drain that has begun.
func (c *Coordinator) drained(ctx context.Context, begun *drain) error {
	if own := c.termsOf(ctx); len(own) > 0 {
		return begun.from(ctx, own)
	}
	roles := c.all()
	errs := make([]error, len(roles))
	var rests sync.WaitGroup
	for i, e := range roles {
		rests.Go(func() { errs[i] = e.rest(ctx) }) // ends with ctx, or with the drain of the role
	}
	rests.Wait()
	waited := slices.DeleteFunc(errs, func(err error) bool { return matches(err, errUnawaited) })
	if len(waited) < len(roles) { // once for all of them
		waited = append(waited, drainGoesOn(ctx))
	}
	err := joined(waited...)
	if ctx.Err() == nil { // else nobody has waited for all of it
		c.drainDone(begun, err)
	}
	return err
}

// Undrain ends a drain: the record of this process says InstanceActive again, and each role is
// eligible if it would be without the drain (see Elector.IsEligible). This process then is a
// candidate like others: nobody gives way to it. Undrain does not wait. It does nothing if this
// process does not drain, or once Run has been told to stop.
func (c *Coordinator) Undrain() { _, _ = c.setDraining(false) }

// IsDraining reports whether this process drains, or has been told to stop: a readiness check may
// fail for as long as it does. It neither waits nor asks Redis.
func (c *Coordinator) IsDraining() bool {
	return c.draining.Load() || c.phase.Load() == phaseStopped
}

// drain is one drain of a process, from its begin to Undrain. Whoever waits for one may hear of its
// end when the next one has begun.
type drain struct {
	over chan struct{} // closed by Undrain
	done bool          // it was reported as done; guarded by Coordinator.mu
}

// undrained is the error of who asked for a drain from elsewhere, and would take its end for a word
// that the process leads nothing; nil: the drain is on.
func (d *drain) undrained() error {
	select {
	case <-d.over:
		return errUndrained
	default:
		return nil
	}
}

var errUndrained = errors.New("the drain was ended by Undrain meanwhile: it may lead, or still hold its lease")

// from waits until the drain has begun to end the terms that its caller is work of. Their contexts
// end by that, which is no error. It waits for nothing else: the leases of these terms are kept
// until the caller has returned.
func (d *drain) from(ctx context.Context, own []*liveTerm) error {
	ended := context.Cause(ctx)
	for _, t := range own {
		if t.term != nil { // the tasks may go on
			t = t.term
		}
		select {
		case <-t.ctx.Done():
		case <-d.over:
		case <-ctx.Done():
			ended = context.Cause(ctx)
		}
	}
	if ended == nil || slices.ContainsFunc(own, func(t *liveTerm) bool {
		return matches(ended, context.Cause(t.ctx)) || t.term != nil && matches(ended, context.Cause(t.term.ctx))
	}) {
		return nil
	}
	return drainGoesOn(ctx)
}

// drainDone reports the end of the wait for a drain, once each, while it is on.
func (c *Coordinator) drainDone(d *drain, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d == c.drain && !d.done {
		d.done = true
		c.bus.publish(Event{Type: EventDrainDone, Err: err})
	}
}

// setDraining begins a drain, or ends it, and returns the drain that is on then, nil if none is.
// The stop of Run comes before, or after it as a whole: the record of a process that stops goes on
// to say so.
func (c *Coordinator) setDraining(draining bool) (*drain, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase.Load() == phaseStopped {
		return nil, ErrStopped
	}
	if c.draining.Swap(draining) == draining {
		return c.drain, nil
	}
	kind := EventDrainEnded
	if draining {
		kind = EventDrainBegan
		c.drain = &drain{over: make(chan struct{})}
	} else {
		close(c.drain.over)
		c.drain = nil
	}
	c.bus.publish(Event{Type: kind})
	c.registry.drain(draining)
	for _, e := range c.roles.all {
		e.loop.inputs.nudge()
	}
	return c.drain, nil
}
