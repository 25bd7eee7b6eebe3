//go:build unix

package fleet

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// sharded is a Redis Cluster of three masters with a replica each. All keys of the fleet lie in one
// slot.
type sharded struct {
	*redistest.Cluster
	slot int64
}

const tagged = "{" + prefix + "}"

func openSharded(t redistest.TB, _ int) servers {
	c := redistest.StartCluster(t)
	return &sharded{Cluster: c, slot: c.Slot(tagged)}
}

func (w *sharded) namespace() string { return tagged }

func (w *sharded) addresses() []string { return w.Options().Addrs }

func (w *sharded) connection(l *link) connection {
	return connection{Cluster: true, Addrs: w.addresses(), Via: l.via()}
}

func (w *sharded) settle(t redistest.TB) { w.Settle(t) }

func (w *sharded) faults() []fault {
	struck := Strike{All: true, Records: true, Failover: true}
	return append(slices.Clone(turnover),
		fault{"CLUSTER FAILOVER", 14, func(c *cluster) Strike {
			w.Failover(c.t, w.slot)
			return struck
		}},
		fault{"the master is killed", 10, func(c *cluster) Strike {
			old := w.owner(c)
			old.Kill(c.t)
			w.AwaitOwner(c.t, w.slot, old)
			old.Start(c.t)
			return struck
		}},
		fault{"the master is frozen and wakes as a second one", 3, func(c *cluster) Strike {
			old := w.owner(c)
			old.Pause(c.t)
			w.AwaitOwner(c.t, w.slot, old)
			old.Resume(c.t)
			second := struck
			second.Overlap = true // nothing keeps it from taking writes for a moment
			return second
		}},
		fault{"the slot moves", 5, func(c *cluster) Strike {
			w.Migrate(c.t, w.slot, func() { c.rest(0, 30*time.Millisecond) })
			return Strike{All: true}
		}},
	)
}

func (w *sharded) owner(c *cluster) *redistest.Server {
	owner, _ := w.Owner(w.slot)
	if owner == nil {
		c.t.Fatalf("fleet: slot %d has no master", w.slot)
	}
	return owner
}
