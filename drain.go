package tenure

import (
	"context"
	"slices"
	"sync"
)

// Drain has this process lead nothing until Undrain: before it is stopped for maintenance, or to
// see how the others do without it. The process stays up. Its record says InstanceDraining with the
// next heartbeat, which is sent at once, and no role of it is eligible, whatever SetEligible says;
// that holds for roles that are added later too. Each term that is on ends as by Elector.Resign:
// running tasks may finish, for at most 3/4 of ShutdownTimeout, and the leases are released when
// all work has returned. Others lead within milliseconds after that.
//
// Drain waits for that, or until ctx is done, and returns the cause then; the drain goes on. nil:
// this process leads nothing, and no work of its terms runs. A lease whose release Redis has not
// confirmed within LeaseTTL lapses. Leader work, tasks and functions of Do
// must pass their own context, as with Resign: Drain then does not wait for the role of that work.
//
// Drain may be called before and during Run, from any goroutine, and again: a further call waits
// for the same drain. It returns ErrStopped once Run has been told to stop, and ErrDrainTimeout if
// work has not returned within ShutdownTimeout: the lease is then left to lapse. If Undrain is
// called meanwhile, Drain returns nil, and this process may lead again.
func (c *Coordinator) Drain(ctx context.Context) error {
	if err := c.setDraining(true); err != nil {
		return err
	}
	roles := c.all()
	errs := make([]error, len(roles))
	var rests sync.WaitGroup
	for i, e := range roles {
		rests.Go(func() { errs[i] = e.rest(ctx) }) // ends with ctx, or with the drain of the role
	}
	rests.Wait()
	err := joined(errs...)
	inside := slices.ContainsFunc(roles, func(e *Elector) bool { return workOf(ctx, &e.loop.current) != nil })
	if ctx.Err() == nil && !inside { // else nobody has waited for all of it
		c.drainDone(err)
	}
	return err
}

// Undrain ends a drain: the record of this process says InstanceActive again, and each role is
// eligible if it would be without the drain (see Elector.IsEligible). This process then is a
// candidate like others: nobody gives way to it. Undrain does not wait. It does nothing if this
// process does not drain, or once Run has been told to stop.
func (c *Coordinator) Undrain() { _ = c.setDraining(false) }

// IsDraining reports whether this process drains, or has been told to stop: a readiness check may
// fail for as long as it does. It neither waits nor asks Redis.
func (c *Coordinator) IsDraining() bool {
	return c.draining.Load() || c.phase.Load() == phaseStopped
}

// drainDone reports the end of the wait for a drain, once each.
func (c *Coordinator) drainDone(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining.Load() && !c.drained {
		c.drained = true
		c.bus.publish(Event{Type: EventDrainDone, Err: err})
	}
}

// setDraining begins a drain, or ends it. The stop of Run comes before, or after it as a whole: the
// record of a process that stops goes on to say so.
func (c *Coordinator) setDraining(draining bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase.Load() == phaseStopped {
		return ErrStopped
	}
	if c.draining.Swap(draining) == draining {
		return nil
	}
	c.drained = false
	kind := EventDrainEnded
	if draining {
		kind = EventDrainBegan
	}
	c.bus.publish(Event{Type: kind})
	c.registry.drain(draining)
	for _, e := range c.roles {
		e.loop.inputs.nudge()
	}
	return nil
}
