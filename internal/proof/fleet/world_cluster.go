//go:build unix

package fleet

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// sharded is a Redis Cluster of three masters with a replica each. All keys of the fleet lie in one slot.
type sharded struct {
	*redistest.Cluster
	slot int64
}

const tagged = "{" + prefix + "}"

func openCluster(t redistest.TB, _ int) world {
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
		fault{"CLUSTER FAILOVER", 14, func(a *arena) Strike {
			w.Failover(a.t, w.slot)
			return struck
		}},
		fault{"the master is killed", 10, func(a *arena) Strike {
			old := w.owner(a)
			old.Kill(a.t)
			w.AwaitOwner(a.t, w.slot, old)
			old.Start(a.t)
			return struck
		}},
		fault{"the master is frozen and wakes as a second one", 3, func(a *arena) Strike {
			old := w.owner(a)
			old.Pause(a.t)
			w.AwaitOwner(a.t, w.slot, old)
			old.Resume(a.t)
			second := struck
			second.Overlap = true // nothing keeps it from taking writes for a moment
			return second
		}},
		fault{"the slot moves", 5, func(a *arena) Strike {
			w.Migrate(a.t, w.slot, func() { a.rest(0, 30*time.Millisecond) })
			return Strike{All: true}
		}},
	)
}

func (w *sharded) owner(a *arena) *redistest.Server {
	owner, _ := w.Owner(w.slot)
	if owner == nil {
		a.t.Fatalf("fleet: slot %d has no master", w.slot)
	}
	return owner
}
