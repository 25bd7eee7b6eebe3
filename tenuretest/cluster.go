package tenuretest

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure"
)

// Cluster is several coordinators on one memory, as the instances of a service are on one Redis: a
// test sees what a fail-over does to its work and its tasks. They share the records of the tasks,
// so that the next leader goes on with their slots, and runs again what the last one has left
// behind, and the fencing tokens, which increase from leader to leader. One instance leads at a
// time: the one whose Control.Lead was called last. The others know it by its ID and its token, and
// TaskScheduler.Forget answers as on Redis.
//
// Nobody asks for a lead that is offered or given back: Elector.Transfer returns
// tenure.ErrNotReady, and after Elector.Resign the same instance leads again. The registry of each
// instance lists that instance alone, so that no address of another one is known, and
// Coordinator.Control reaches no other one. Disconnect cuts an instance off. To see a transfer, or
// a proxy to the leader, or single requests that get lost, run coordinators on miniredis.
//
// Its methods are for the goroutine of the test. It works in a testing/synctest bubble, if all of
// it is made there.
type Cluster struct {
	t       testing.TB
	members []*Control
}

// NewCluster returns a cluster without instances.
func NewCluster(t testing.TB) *Cluster { return &Cluster{t: t} }

// New is the New of this package for another instance of the cluster, which follows until its Lead
// is called. Options.InstanceID must be one that the cluster does not have yet, and
// Options.Namespace the same for all, or empty; anything else fails the test.
func (c *Cluster) New(opts tenure.Options) (*tenure.Coordinator, *Control) {
	c.t.Helper()
	if opts.InstanceID == "" {
		c.t.Fatalf("tenuretest: an instance of a Cluster needs an InstanceID")
	}
	coordinator, control := newControlled(c.t, opts, c)
	for _, other := range c.members {
		switch first := other.coordinator.Options(); {
		case first.InstanceID == opts.InstanceID:
			c.t.Fatalf("tenuretest: the Cluster has an instance %q already", opts.InstanceID)
		case first.Namespace != coordinator.Options().Namespace:
			c.t.Fatalf("tenuretest: the instances of a Cluster have the Namespaces %q and %q", first.Namespace, coordinator.Options().Namespace)
		}
	}
	c.members = append(c.members, control)
	return coordinator, control
}

// Disconnect cuts the instance with that ID off from the memory: each of its calls fails with
// tenure.ErrUnreachable, and it hears nothing, until Reconnect. Its terms go on for as long as
// their leases would allow on Redis, as if it had renewed them at that moment: they end before
// Election.LeaseTTL has passed, with tenure.ErrExpired as the cause. Its leases last for LeaseTTL.
// In real time a test wants a short one, such as 300 ms; the default is 30 s.
//
// Nobody takes over by itself: Control.Lead of another instance waits until those leases have
// ended, and makes it the leader. Until it is connected again, Lead, Depose and Follow of that
// instance fail the test. It may be called before Run. An instance that is cut off already stays
// so. An unknown ID fails the test.
func (c *Cluster) Disconnect(id string) {
	c.t.Helper()
	c.member("Disconnect", id).control.Disconnect()
}

// Reconnect ends what Disconnect began. It returns when the instance, if it runs, knows who leads
// now, and follows. If nobody was made the leader meanwhile it goes on leading: with the same term,
// if that has not ended, or with a new one. It does not wait for that. For an instance that is
// connected it changes nothing. An unknown ID fails the test.
func (c *Cluster) Reconnect(id string) {
	c.t.Helper()
	m := c.member("Reconnect", id)
	m.control.Reconnect()
	if m.control.Refusing() {
		m.settle()
	}
}

// member finds an instance.
func (c *Cluster) member(call, id string) *Control {
	c.t.Helper()
	for _, m := range c.members {
		if m.coordinator.InstanceID() == id {
			return m
		}
	}
	c.t.Fatalf("tenuretest: %s(%q): the Cluster has no such instance", call, id)
	return nil
}

// yield has every other instance make way for a leader to be, and returns when each that runs has:
// its terms are over, their work may still be draining. Of one that is disconnected its leases are.
func (c *Cluster) yield(leader *Control) {
	c.t.Helper()
	for _, other := range c.members {
		if other == leader {
			continue
		}
		other.control.Yield()
		if other.control.Connected() {
			other.settle()
		} else {
			other.awaitLapse()
		}
	}
}

// follow returns when every other instance that runs, and is connected, knows who leads.
func (c *Cluster) follow(leader *Control) {
	c.t.Helper()
	for _, other := range c.members {
		if other != leader && other.control.Connected() {
			other.settle()
		}
	}
}

// settle returns when the instance leads nothing and knows who does, or does not run.
func (c *Control) settle() {
	c.t.Helper()
	if c.state() != tenure.ElectionIdle {
		c.await(func() bool { return c.control.Settled() || c.state() == tenure.ElectionStopped }, "follow")
	}
}

// awaitLapse waits until no lease of an instance that is disconnected lasts. They end by
// themselves.
func (c *Control) awaitLapse() {
	look := time.NewTicker(glance)
	defer look.Stop()
	for !c.control.Free() {
		<-look.C
	}
}
