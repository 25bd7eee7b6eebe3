//go:build unix

package realtest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/redistest"
)

// A failover of Sentinel, in order or by a crash, makes no second leader where writes need a replica: the leader reclaims, or where that
// took too long the next one comes after the hold-off, with a higher token (P1 and P2: see the chronicle).
func TestP1P2_SentinelFailover(t *testing.T) {
	s := newParallelStage(t, 8*time.Second)
	sentinel := redistest.StartSentinel(t, redistest.Args("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"))
	player := func(name string) *player {
		client := redis.NewFailoverClient(sentinel.Options())
		t.Cleanup(func() { _ = client.Close() })
		return s.join(name, client, young, func(o *tenure.Options) {
			o.Election.RenewInterval, o.Election.FailoverMargin = time.Second, 3*time.Second
		})
	}
	a, b := player("a"), player("b")
	leads := func() bool { return a.IsLeader() || b.IsLeader() }
	s.eventually("a leader", leads)
	sentinel.Failover(t)
	s.eventually("a leader after SENTINEL FAILOVER", leads)
	sentinel.Settle(t)
	old := sentinel.Master()
	old.Kill(t)
	killed := monotonic()
	sentinel.AwaitMaster(t, old)
	s.eventually("a leader after a crash of the master", leads)
	t.Logf("somebody leads %v after the crash", round(monotonic()-killed))
	for _, b := range s.beliefs.all() {
		t.Logf("%v from %v to %v", b, round(b.first), round(b.last))
	}
}

// A slot that moves to another node changes no leader, whatever clients are answered meanwhile.
func TestP12_SlotMigrationChangesNoLeader(t *testing.T) {
	s, cluster, players := clusterStage(t)
	leader, token := s.leader(0)
	steps := 0
	cluster.Migrate(t, cluster.Slot("{real}"), func() {
		steps++
		before := leader.Status().LastAnswer
		s.eventually("an answer, or the next look", func() bool {
			return leader.Status().LastAnswer.After(before) || leader.Status().Err != nil
		})
	})
	s.eventually("an answer of the new node", func() bool { return leader.Status().Err == nil })
	s.onlyTerms(token)
	t.Logf("%d steps, %d players", steps, len(players))
}

// The crash of a cluster's master is over for the election as soon as the cluster has another, not a minute later.
func TestCrashOfAClusterMaster(t *testing.T) {
	s, cluster, players := clusterStage(t)
	slot := cluster.Slot("{real}")
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

func clusterStage(t *testing.T) (*stage, *redistest.Cluster, []*player) {
	t.Helper()
	s := newParallelStage(t, 3*time.Second)
	cluster := redistest.StartCluster(t)
	var players []*player
	for _, name := range []string{"candidate-0", "candidate-1"} {
		client := redis.NewClusterClient(cluster.Options())
		t.Cleanup(func() { _ = client.Close() })
		players = append(players, s.join(name, client, young, func(o *tenure.Options) { o.Namespace = "{real}" }))
	}
	return s, cluster, players
}
