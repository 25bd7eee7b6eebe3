//go:build unix

package scenario

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const clusterNamespace = "{real}" // all keys in one slot

func tagged(o *tenure.Options) { o.Namespace = clusterNamespace }

// A slot that moves to another master changes no leader: ASK, MOVED and TRYAGAIN are unknown or
// followed.
func TestP12_SlotMigrationChangesNoLeader(t *testing.T) {
	s := newParallelStage(t, 10*time.Second)
	cluster := redistest.StartCluster(t)
	quick := func(o *tenure.Options) { o.Election.RenewInterval = 100 * time.Millisecond }
	leader := s.join("leader", cluster.Client(t), young, tagged, quick)
	token := s.leads(leader)
	follower := s.join("follower", cluster.Client(t), young, tagged, quick)
	s.follows(follower, leader)
	slot := cluster.Slot(clusterNamespace)
	from, _ := cluster.Owner(slot)
	began := monotonic()
	const open = 300 * time.Millisecond // several renewals in every state of the migration, all states within a lease
	cluster.Migrate(t, slot, func() { s.holds(open, "the same leader", leader.IsLeader) })
	t.Logf("the migration took %v, with %d outages for the leader", round(monotonic()-began), leader.log.count("failed to renew"))
	if to, _ := cluster.Owner(slot); to == from {
		t.Fatal("the slot has not moved")
	}
	s.eventually("the leader to renew at the new master", func() bool { return leader.Status().Err == nil })
	s.holds(s.ttl/4, "the same leader", leader.IsLeader) // many renewals
	s.onlyTerms(token)
	s.must(leader.quit(s))
	s.leads(follower)
}

// While a slot is half moved, and for as long as that lasts, it can be seen who is there: what is
// asked for is where it was, or does not exist. Doctor says that scripts are refused.
func TestStatusWhileASlotIsHalfMoved(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	options := tenure.Options{Namespace: clusterNamespace, InstanceID: "a"}
	young(&options)
	c, err := tenure.New(cluster.Client(t), options)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with the test
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	require.NoError(t, c.Registry().WaitFor(t.Context(), 1))
	require.Eventually(t, c.IsLeader, time.Minute, time.Millisecond)
	began := false
	cluster.Migrate(t, cluster.Slot(clusterNamespace), func() {
		if !began {
			began = true
			status, err := c.Registry().Status(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, status.Counts.Active)
			require.True(t, slices.ContainsFunc(c.Doctor(t.Context()), halfMoved))
		}
	})
	require.False(t, slices.ContainsFunc(c.Doctor(t.Context()), halfMoved), "it has moved")
}

func halfMoved(f tenure.Finding) bool {
	return f.Check == "scripts" && f.Level == tenure.FindingFault && strings.Contains(f.Fix, "half moved")
}

// The slot of the lease is moved, and its old master leaves the cluster before the leader has heard
// of it: that node answers CLUSTERDOWN from then on, and never MOVED.
func TestP12_NodeThatLeavesTheClusterChangesNoLeader(t *testing.T) {
	s := newParallelStage(t, 20*time.Second)
	cluster := redistest.StartCluster(t, redistest.Args("--cluster-require-full-coverage", "no")) // its other slots go with it
	leader := s.join("leader", cluster.Client(t), young, tagged)
	token := s.leads(leader)
	slot := cluster.Slot(clusterNamespace)
	old, _ := cluster.Owner(slot)
	before := leader.Status().LastAnswer
	s.eventually("a renewal, so that the next one is far", func() bool { return leader.Status().LastAnswer.After(before) })
	cluster.Migrate(t, slot, func() {})
	cluster.Remove(t, old)
	s.goesOnElsewhere(leader, token)
	s.onlyTerms(token)
}

// A failover of the master of the lease: the leader goes on under its token, or the next one comes
// after the hold-off.
func TestP1P2P3_ClusterFailover(t *testing.T) {
	t.Parallel()
	for name, failOver := range map[string]func(*stage, *redistest.Cluster, int64){
		"asked for": func(s *stage, cluster *redistest.Cluster, slot int64) { cluster.Failover(s, slot) },
		"crash": func(s *stage, cluster *redistest.Cluster, slot int64) {
			old, _ := cluster.Owner(slot)
			old.Kill(s)
			cluster.AwaitOwner(s, slot, old)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newParallelStage(t, 4*time.Second)
			s.fence()
			cluster := redistest.StartCluster(t)
			s.join("candidate-0", cluster.Client(t), young, tagged)
			s.join("candidate-1", cluster.Client(t), young, tagged)
			leader, token := s.leader(0)
			lost := monotonic()
			failOver(s, cluster, cluster.Slot(clusterNamespace))
			t.Logf("the failover took %v", round(monotonic()-lost))
			s.join("newcomer", cluster.Client(t), tagged)
			s.continued(leader, token, lost)
		})
	}
}

// The crash of a cluster's master is over for the election as soon as the cluster has another, not
// a minute later.
func TestCrashOfAClusterMaster(t *testing.T) {
	s := newParallelStage(t, 3*time.Second)
	cluster := redistest.StartCluster(t)
	players := []*player{
		s.join("candidate-0", cluster.Client(t), young, tagged),
		s.join("candidate-1", cluster.Client(t), young, tagged),
	}
	slot := cluster.Slot(clusterNamespace)
	s.leader(0)
	old, _ := cluster.Owner(slot)
	old.Kill(t)
	cluster.AwaitOwner(t, slot, old)
	moved := time.Now()
	for _, p := range players {
		s.eventually("an answer of the new master", func() bool { return p.Status().LastAnswer.After(moved) })
	}
	took := time.Since(moved)
	t.Logf("everybody hears of the new master within %v", round(took))
	if took > 40*time.Second { // go-redis by itself looks once a minute
		t.Errorf("it took %v", took)
	}
	s.eventually("a leader", func() bool { return players[0].IsLeader() || players[1].IsLeader() })
}
