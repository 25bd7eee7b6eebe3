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

// DEL deposes the leader at its next renewal; nobody leads before that.
func TestP1_DeletedLeaseDeposesWithoutOverlap(t *testing.T) {
	s := newParallelStage(t, 1200*time.Millisecond)
	server := redistest.Start(t)
	admin := server.Client(t)
	for i := range 3 {
		s.join(fmt.Sprint("candidate-", i), server.Client(t))
	}
	token := int64(0)
	for range 3 {
		var leader *player
		leader, token = s.leader(token)
		s.must(admin.Del(t.Context(), leaderKey).Err())
		deleted := monotonic()
		end := leader.ending(s, token)
		if !errors.Is(end.cause, tenure.ErrLost) {
			t.Errorf("the term ended by %v, want ErrLost", end.cause)
		}
		next, higher := s.leader(token)
		t.Logf("%s was deposed %v after DEL, %s leads %v later", leader.name, round(end.at-deleted), next.name,
			round(s.beliefs.term(higher).first-end.at))
	}
}

// If the leader cannot hear that its lease was deleted, it is honoured until it would have
// ended.
func TestP1_DeletedLeaseOfUnreachableLeaderIsHonoured(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	admin, proxy := server.Client(t), redistest.NewProxy(t, server.Addr())
	leader := s.join("leader", clientOf(t, proxy.Addr()))
	token := s.leads(leader)
	s.join("follower", server.Client(t))
	s.join("another", server.Client(t))
	proxy.Cut()
	s.must(admin.Del(t.Context(), leaderKey).Err())
	end := s.leaseEnd(admin)
	_, higher := s.leader(token)
	s.steppedDownInTime(leader, token)
	early := end - s.beliefs.term(higher).first
	t.Logf("the next leader came %v after the end of the deleted lease", round(-early))
	if early > 0 {
		t.Errorf("a leader %v before the deleted lease would have ended", early)
	}
}

// FLUSHALL changes no leader: it takes its lease back, and newcomers ask for it first.
func TestP1P2_FlushedRedisKeepsItsLeader(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	admin := server.Client(t)
	patient := func(o *tenure.Options) { o.Election.Safety.EmptyHistoryWait = time.Second } // this machine may be slow to hear
	s.join("candidate-0", server.Client(t), patient)
	s.join("candidate-1", server.Client(t), patient)
	leader, token := s.leader(0)
	for i := range 3 {
		s.must(admin.FlushAll(t.Context()).Err())
		flushed := monotonic()
		s.join(fmt.Sprint("newcomer-", i), server.Client(t), patient)
		s.reclaimed(leader, token, flushed, admin)
		s.holds(s.ttl/2, "the same leader", leader.IsLeader)
	}
	s.holds(s.ttl, "the same leader", leader.IsLeader)
	s.onlyTerms(token)
}

// The same on a Redis so young that its guard holds, if only for a moment: that alone has asked
// nobody who leads.
func TestP1P2_FlushedYoungRedisKeepsItsLeader(t *testing.T) {
	s := newParallelStage(t, 4*time.Second)
	server := redistest.Start(t)
	admin := server.Client(t)
	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader) // and renews by itself when that moment is over
	s.must(admin.FlushAll(t.Context()).Err())
	flushed := monotonic()
	s.join("newcomer", server.Client(t), func(o *tenure.Options) {
		o.Election.Safety.RestartGuard, o.Election.Safety.EmptyHistoryWait = time.Millisecond, 3*time.Second
	})
	s.reclaimed(leader, token, flushed, admin)
	s.holds(s.ttl/2, "the same leader", leader.IsLeader)
	s.onlyTerms(token)
}

// A term hash that was evicted, or deleted, is written anew by its leader.
func TestP1P2_EvictedTermHashIsRestored(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	admin := server.Client(t)
	s.join("candidate-0", server.Client(t))
	s.join("candidate-1", server.Client(t))
	leader, token := s.leader(0)
	for i := range 2 {
		s.must(admin.Del(t.Context(), termKey).Err())
		gone := monotonic()
		s.join(fmt.Sprint("newcomer-", i), server.Client(t))
		s.reclaimed(leader, token, gone, admin)
	}
	s.holds(s.ttl, "the same leader", leader.IsLeader)
	s.onlyTerms(token)
	s.must(leader.quit(s))
	s.leader(token) // above that of the hash that was written anew
}
