//go:build unix

package scenario

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A Redis that evicts while it is full, under each policy. What evicts everything loses nothing
// that the leader does not bring back; what evicts the keys with an expiry takes the lease alone,
// as an operator's DEL does: it deposes, without an overlap.
func TestP1P2_EvictionUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	for policy, all := range map[string]bool{
		"allkeys-lru": true, "allkeys-lfu": true, "allkeys-random": true,
		"volatile-lru": false, "volatile-lfu": false, "volatile-random": false, "volatile-ttl": false,
	} {
		t.Run(policy, func(t *testing.T) {
			s := newParallelStage(t, 2*time.Second)
			s.fence()
			server := redistest.Start(t)
			admin := server.Client(t)
			patient := func(o *tenure.Options) { o.Election.Safety.EmptyHistoryWait = s.ttl }
			s.join("candidate-0", server.Client(t), patient)
			s.join("candidate-1", server.Client(t), patient)
			leader, token := s.leader(0)
			server.ConfigSet(t, "maxmemory-policy", policy)
			server.ConfigSet(t, "maxmemory", "1")
			s.eventually("the lease to be evicted, and all else if the policy takes it", func() bool {
				_ = admin.Set(t.Context(), "x", "y", 0).Err() // refused, or evicted by the next one
				left, err := admin.Exists(t.Context(), leaderKey).Result()
				if all {
					left, err = admin.DBSize(t.Context()).Result()
				}
				return err == nil && left == 0
			})
			evicted := monotonic()
			server.ConfigSet(t, "maxmemory", "0")
			s.join("newcomer", server.Client(t), patient)
			if all {
				s.reclaimed(leader, token, evicted, admin)
				s.holds(s.ttl, "the same leader", leader.IsLeader)
				s.onlyTerms(token)
				return
			}
			end := leader.ending(s, token)
			if !errors.Is(end.cause, tenure.ErrLost) {
				t.Errorf("the term ended by %v, want ErrLost", end.cause)
			}
			next, higher := s.leader(token)
			t.Logf("the leader was deposed %v after the eviction, %s leads %v later", round(end.at-evicted), next.name,
				round(s.beliefs.term(higher).first-end.at))
		})
	}
}

// Memory pressure that comes and goes, under a policy that takes anything: tokens and what they
// fence are sound, whatever is lost while somebody asks for the lease.
func TestP2P3_EvictionInWaves(t *testing.T) {
	s := newParallelStage(t, time.Second)
	s.fence()
	server := redistest.Start(t)
	admin := server.Client(t)
	patient := func(o *tenure.Options) { o.Election.Safety.EmptyHistoryWait = s.ttl }
	for i := range 3 {
		s.join(fmt.Sprint("candidate-", i), server.Client(t), patient)
	}
	_, token := s.leader(0)
	server.ConfigSet(t, "maxmemory-policy", "allkeys-random")
	for wave := range 6 {
		server.ConfigSet(t, "maxmemory", "1")
		s.eventually("everything to be evicted", func() bool {
			_ = admin.Set(t.Context(), "x", "y", 0).Err()
			return admin.DBSize(t.Context()).Val() == 0
		})
		s.holds(time.Duration(wave)*s.ttl/8, "memory pressure", func() bool { return true })
		server.ConfigSet(t, "maxmemory", "0")
	}
	_, last := s.leader(token - 1)
	t.Logf("the term of the beginning was %d, that of the end is %d", token, last)
}
