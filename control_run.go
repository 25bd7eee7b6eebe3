package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// commandLoop executes what others ask of this process, one after another. It asks Redis for
// commands only if a hint says that there are some, or if hints may have been missed.
type commandLoop struct {
	c       *Coordinator
	obey    func(ctx context.Context, command store.Command) error
	wake    wakeup
	calling callGate
	faults  reportOnce
}

// hint takes a hint from the channel of the registry.
func (l *commandLoop) hint(h store.Hint) {
	if h.Type == store.HintConnected || h.Type == store.HintCommand && h.Subject == l.c.opts.InstanceID {
		l.wake.nudge()
	}
}

// run executes commands until ctx is done, and returns when the one that is on has ended.
func (l *commandLoop) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		var strange []string // entries that are no commands
		for round := 0; round < maxRounds && ctx.Err() == nil; round++ {
			entries, err := l.read(ctx, strange)
			if err != nil && ctx.Err() == nil {
				l.faults.report(l.c.bus, EventCommandsUnread, err)
			}
			if err != nil || len(entries) == 0 { // whoever asks repeats the hint
				break
			}
			l.faults.over()
			if strange, err = l.execute(ctx, entries); err != nil {
				l.faults.report(l.c.bus, EventCommandsUnread, err)
				break
			}
		}
	}
}

// maxRounds is how often the inbox is read after one hint. A server that goes on answering that
// there is something, whatever is taken out, is asked again at the next hint.
const maxRounds = 8

// commandBound is for how long a call for a command is waited for.
const commandBound = 5 * time.Second

func (l *commandLoop) read(ctx context.Context, strange []string) ([]string, error) {
	ctx, cancel := within(ctx, commandBound)
	defer cancel()
	return bounded(ctx, &l.calling, func(ctx context.Context) ([]string, error) {
		return l.c.backend.commands.ReadCommands(ctx, l.c.opts.InstanceID, strange)
	})
}

// execute starts each command that waits, and returns the entries that are none.
func (l *commandLoop) execute(ctx context.Context, entries []string) (strange []string, err error) {
	for _, entry := range entries {
		if ctx.Err() != nil {
			return nil, nil //nolint:nilerr // the rest waits, and expires
		}
		command, ok := store.ParseCommand(entry, l.c.opts.InstanceID)
		if !ok {
			strange = append(strange, entry)
			continue
		}
		started, err := l.start(ctx, command, entry)
		if err != nil {
			return nil, err
		}
		if !started {
			continue
		}
		l.c.bus.publish(commandEvent(EventCommandTaken, command, nil))
		err = protect(func() error { return l.obey(context.WithoutCancel(ctx), command) })
		l.c.bus.publish(commandEvent(EventCommandEnded, command, err))
		l.end(ctx, command, outcomeOf(err))
	}
	return strange, nil
}

func (l *commandLoop) start(ctx context.Context, command store.Command, entry string) (bool, error) {
	ctx, cancel := within(ctx, commandBound)
	defer cancel()
	return bounded(ctx, &l.calling, func(ctx context.Context) (bool, error) {
		return l.c.backend.commands.StartCommand(ctx, command, entry, l.c.registry.incarnation)
	})
}

// end says what became of a command, also while this process stops. It is said again if Redis does
// not answer.
func (l *commandLoop) end(ctx context.Context, command store.Command, o store.CommandOutcome) {
	const tries = 3
	for range tries {
		bound, cancel := within(context.WithoutCancel(ctx), commandBound)
		_, err := bounded(bound, &l.calling, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, l.c.backend.commands.EndCommand(ctx, command, l.c.registry.incarnation, o)
		})
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}

// obey executes a command, if it is meant for the term, or the process, that is there now.
func (c *Coordinator) obey(ctx context.Context, command store.Command) error {
	ctx, cancel := within(ctx, 2*c.opts.ShutdownTimeout)
	defer cancel()
	switch command.Kind {
	case commandResign, commandTransfer:
		e, there := c.Role(command.Role)
		if !there || command.Token == 0 {
			return fmt.Errorf("%w: no role %q here", ErrNotLeader, command.Role)
		}
		if command.Kind == commandResign {
			return e.resign(ctx, command.Token)
		}
		return e.transfer(ctx, command.Argument, command.Token)
	case commandDrain, commandUndrain:
		if command.Process != c.registry.incarnation {
			return fmt.Errorf("%w: the process that it was meant for is gone", ErrNotFound)
		}
		if command.Kind == commandDrain {
			return c.Drain(ctx)
		}
		return c.setDraining(false)
	}
	return fmt.Errorf("%w: a command of kind %.100q is not known here", ErrMisconfigured, command.Kind)
}

// commandEvent is an event about a command.
func commandEvent(kind EventType, command store.Command, err error) Event {
	return Event{
		Type: kind, Role: command.Role, Token: command.Token, Subject: command.Argument, Reason: command.Kind, By: store.CommandText(command.By), Err: err,
	}
}

// Control returns a Control of this namespace, which asks in the name of this instance. It knows
// the LeaderKeys of the roles of this coordinator, and works without Run.
func (c *Coordinator) Control() *Control {
	return &Control{
		store: c.backend.commands,
		leases: func(role string) store.Lease {
			if e, there := c.Role(role); there {
				return e.loop.store
			}
			return c.backend.leases(ElectionOptions{Role: role, LeaseTTL: c.opts.Election.LeaseTTL}.role(c.opts.Namespace, c.opts.InstanceID))
		},
		registry: c.registry, tasks: c.tasks, by: c.opts.InstanceID, timeout: defaultCommandTimeout, asked: &c.asked,
	}
}
