//go:build unix

package fleet

import (
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// watched is a master with two replicas under three Sentinels.
type watched struct{ *redistest.Sentinel }

// openSentinel starts one whose master takes writes only as long as a replica follows it.
func openSentinel(t redistest.TB, _ int) servers {
	return watched{redistest.StartSentinel(t, redistest.Args("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"))}
}

// openBareSentinel starts one whose master takes writes when it is cut off, too.
func openBareSentinel(t redistest.TB, _ int) servers { return watched{redistest.StartSentinel(t)} }

func (w watched) namespace() string { return prefix }

func (w watched) addresses() (addrs []string) {
	for _, server := range w.Data {
		addrs = append(addrs, server.Addr())
	}
	return addrs
}

func (w watched) connection(l *link) connection {
	options := w.Options()
	return connection{Sentinel: options.MasterName, Addrs: options.SentinelAddrs, Via: l.via()}
}

func (w watched) settle(t redistest.TB) { w.Settle(t) }

func (w watched) faults() []fault {
	struck := Strike{All: true, Records: true, Failover: true}
	return append(slices.Clone(turnover),
		fault{"SENTINEL FAILOVER", 14, func(c *cluster) Strike {
			w.Failover(c.t)
			return struck
		}},
		fault{"the master is killed", 10, func(c *cluster) Strike {
			w.dies(c, func() {})
			return struck
		}},
		fault{"the master is killed, its last writes are lost", 6, func(c *cluster) Strike {
			w.dies(c, func() {
				w.HoldReplication(c.t)
				c.rest(200*time.Millisecond, 700*time.Millisecond)
			})
			return struck
		}},
		fault{"the master is frozen and wakes as a second one", 3, func(c *cluster) Strike {
			old := w.master(c)
			old.Pause(c.t)
			w.AwaitMaster(c.t, old)
			old.Resume(c.t)
			c.rest(0, 10*time.Second)
			return struck
		}},
	)
}

// dies kills the master and starts it again when another one is there.
func (w watched) dies(c *cluster, first func()) {
	old := w.master(c)
	first()
	old.Kill(c.t)
	w.AwaitMaster(c.t, old)
	old.Start(c.t)
}

func (w watched) master(c *cluster) *redistest.Server {
	master := w.Master()
	if master == nil {
		c.t.Fatalf("fleet: the Sentinels do not agree on a master")
	}
	return master
}
