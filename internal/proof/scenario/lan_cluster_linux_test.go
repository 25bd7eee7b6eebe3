package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// The machines of a Redis Cluster are cut from each other. One leader at most (P1), tokens that
// increase (P2, P3), and after the partition one leader, whom both know, and who can be replaced
// (P7).
func TestP1P2P3P7_PartitionedMachinesUnderCluster(t *testing.T) { //nolint:tparallel // its parts share a name for their machines: one after the other
	t.Parallel()
	machines := []string{"m0", "m1", "m2"}
	begin := func(t *testing.T) (*stage, *redistest.LANCluster, *player, *player) {
		s := newParallelStage(t, 9*time.Second)
		s.fence()
		cluster := redistest.NewLAN(t, "m0", "m1", "m2", "c0", "c1").StartCluster(t, machines)
		timing := func(o *tenure.Options) {
			o.Election.RenewInterval = 250 * time.Millisecond  // some renewals reach the old master after the cut
			o.Election.Safety.FailoverMargin = 3 * time.Second // a master that is cut off takes writes for DownAfter, and half of it again
		}
		first := s.join("first", cluster.Client(t, "c0"), young, tagged, timing)
		s.leads(first)
		second := s.join("second", cluster.Client(t, "c1"), young, tagged, timing)
		s.follows(second, first)
		return s, cluster, first, second
	}
	// goesOn waits until both agree, and then has the leader stop: the other one must lead.
	goesOn := func(s *stage, first, second *player) {
		s.Helper()
		s.agree(first, second)
		leader, other := first, second
		if second.IsLeader() {
			leader, other = second, first
		}
		term, _ := leader.Term()
		s.must(leader.quit(s))
		if next, _ := s.leader(term.Token); next != other {
			s.Errorf("%s leads after the stop of %s", next.name, leader.name)
		}
	}

	t.Run("the master with the leader, against the rest", func(t *testing.T) {
		s, cluster, first, second := begin(t)
		_, token := s.leader(0)
		slot := cluster.Slot(t, clusterNamespace)
		home := cluster.OwnerBy("m0", slot)
		minority, majority := []string{home, "c0"}, []string{"c1"}
		for _, machine := range machines {
			if machine != home {
				majority = append(majority, machine)
			}
		}
		cut := monotonic()
		cluster.Cut(t, minority, majority)
		s.eventually("the majority to have another master", func() bool {
			m := cluster.OwnerBy(majority[1], slot)
			return m != "" && m != home
		})
		replaced := monotonic()
		if got := cluster.OwnerBy(home, slot); got != home {
			t.Errorf("the machine of the old master calls %q the owner of the slot", got)
		}
		next, higher := s.leader(token)
		if next != second {
			t.Errorf("%s leads, in the minority", next.name)
		}
		s.eventually("the old leader to step down", func() bool { return !first.IsLeader() })
		old := s.beliefs.term(token)
		t.Logf("a failover within %v, another leader %v after the cut, the old one ended %v after it", round(replaced-cut),
			round(s.beliefs.term(higher).first-cut), round(old.last-cut))
		cluster.Heal(t, minority, majority)
		goesOn(s, first, second)
	})
	t.Run("the leader's client alone", func(t *testing.T) {
		s, cluster, first, second := begin(t)
		_, token := s.leader(0)
		cut := monotonic()
		cluster.Cut(t, []string{"c0"}, machines)
		next, higher := s.leader(token)
		if next != second {
			t.Errorf("%s leads, cut off", next.name)
		}
		t.Logf("another leads %v after the cut, the old one ended %v before", round(s.beliefs.term(higher).first-cut),
			round(s.beliefs.term(higher).first-s.beliefs.term(token).last))
		cluster.Heal(t, []string{"c0"}, machines)
		goesOn(s, first, second)
	})
}

// The machine of the master is cut from the other machines of the Cluster, and from no client: it
// answers CLUSTERDOWN, and the leader goes on at the master that the others have promoted.
func TestP12_MasterCutFromItsClusterChangesNoLeader(t *testing.T) {
	s := newParallelStage(t, 20*time.Second)
	machines := []string{"m0", "m1", "m2"}
	cluster := redistest.NewLAN(t, "m0", "m1", "m2", "c0").StartCluster(t, machines)
	leader := s.join("leader", cluster.Client(t, "c0"), young, tagged, func(o *tenure.Options) {
		o.Election.RenewInterval = time.Second
		o.Registry.HeartbeatInterval = time.Second // a third of the servers names the old master: each call that fails asks any of them
	})
	token := s.leads(leader)
	slot := cluster.Slot(t, clusterNamespace)
	home := cluster.OwnerBy("m0", slot)
	others := slices.DeleteFunc(slices.Clone(machines), func(machine string) bool { return machine == home })
	cluster.Cut(t, []string{home}, others)
	s.eventually("another master", func() bool { m := cluster.OwnerBy(others[0], slot); return m != "" && m != home })
	s.goesOnElsewhere(leader, token)
}
