package tenuretest

import (
	"testing"

	"github.com/tenure-go/tenure"
)

// Cluster is several coordinators on one memory, as the instances of a service are on one Redis: a
// test sees what a fail-over does to its work and its tasks. They share the records of the tasks,
// so that the next leader goes on with their slots, and runs again what the last one has left
// behind, and the fencing tokens, which increase from leader to leader. One instance leads at a
// time: the one whose Control.Lead was called last.
//
// The registry of each instance lists that instance alone, and Coordinator.Control reaches no other
// one. A trigger by an instance that does not lead is found within a minute, as without hints.
// There are no lost requests here: to see those, run coordinators on miniredis.
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

// follow has every other instance follow a leader to be, and returns when each that runs does: its
// terms are over, their work may still be draining.
func (c *Cluster) follow(leader *Control) {
	c.t.Helper()
	for _, other := range c.members {
		if other == leader {
			continue
		}
		id := leader.coordinator.InstanceID()
		other.control.Refuse(id)
		switch other.coordinator.Elector().Status().State {
		case tenure.ElectionIdle, tenure.ElectionStopped:
		default:
			other.await(func() bool {
				return other.control.Following(id) || other.coordinator.Elector().Status().State == tenure.ElectionStopped
			}, "follow "+id)
		}
	}
}
