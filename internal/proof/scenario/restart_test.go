//go:build unix

package scenario

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A restart of Redis, with or without its data, changes no leader, and nobody else is granted
// anything in the hold-off.
func TestP1P2_RestartedRedisKeepsItsLeader(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]redistest.Option{
		"without persistence": nil,
		"with AOF":            {redistest.Persist()},
	} {
		t.Run(name, func(t *testing.T) {
			s := newParallelStage(t, 4*time.Second)
			server := redistest.Start(t, opts...)
			s.join("candidate-0", server.Client(t))
			s.join("candidate-1", server.Client(t))
			leader, token := s.leader(0)
			down := monotonic()
			server.Stop(t)
			restarted := monotonic()
			server.Start(t)
			t.Logf("Redis was away for %v", round(monotonic()-down))
			s.reclaimsOrHoldsOff(leader, token, restarted, server)
		})
	}
}

// reclaimsOrHoldsOff watches an election after Redis may have lost data: its leader goes on under
// the same token, or if this machine was too slow for that, the next one comes after the
// hold-off. Newcomers, which remember nothing, change neither.
func (s *stage) reclaimsOrHoldsOff(leader *player, token int64, lost time.Duration, server *redistest.Server) {
	s.Helper()
	inTime := leader.IsLeader() && time.Until(leader.Status().Deadline) > s.ttl/4
	admin := server.Client(s)
	s.join("newcomer-0", server.Client(s))
	s.join("newcomer-1", server.Client(s))
	known := s.beliefs.all()
	if inTime {
		s.reclaimed(leader, token, lost, admin)
		s.holds(s.ttl+1500*time.Millisecond, "the same leader", leader.IsLeader) // all of the hold-off and a little more
		var tokens []int64
		for _, b := range known {
			tokens = append(tokens, b.token)
		}
		s.onlyTerms(tokens...)
		return
	}
	s.Logf("Redis came back too late for %s, this machine is slow", leader.name)
	if leader.IsLeader() {
		return // it was just in time; that no other led beside it is checked at the end
	}
	_, higher := s.leader(token)
	if after := s.beliefs.term(higher).first - lost; after < s.ttl {
		s.Errorf("the next leader came %v after the loss, within the hold-off", after)
	}
}

// A Redis that stays away for longer than the lease, and comes back empty, grants nothing for the
// hold-off.
func TestP1P2_EmptyRedisHoldsOffWhenItsLeaderIsGone(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	s.join("candidate-0", server.Client(t))
	s.join("candidate-1", server.Client(t))
	leader, token := s.leader(0)
	server.Stop(t)
	s.steppedDownInTime(leader, token)
	started := monotonic()
	server.Start(t)
	s.join("newcomer", server.Client(t))
	next, higher := s.leader(token)
	after := s.beliefs.term(higher).first - started
	t.Logf("%s leads %v after Redis was started", next.name, round(after))
	if after < s.ttl {
		t.Errorf("a leader %v after an empty Redis was started, within the hold-off", after)
	}
}

// The same if the leader is cut off but still believes: nobody else leads before it has stepped
// down.
func TestP1P2_EmptyRedisHoldsOffWhileItsLeaderIsCutOff(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	leader := s.join("leader", clientOf(t, proxy.Addr()))
	token := s.leads(leader)
	proxy.Cut()
	started := monotonic()
	server.Restart(t)
	s.join("newcomer", server.Client(t))
	s.join("another", server.Client(t))
	next, higher := s.leader(token)
	t.Logf("%s leads %v after the restart", next.name, round(s.beliefs.term(higher).first-started))
	s.steppedDownInTime(leader, token)
	proxy.Heal()
	s.follows(leader, next)
}

// A promoted replica that missed the grant of the present term: its leader goes on under the same
// token.
func TestP1P2_PromotedReplicaThatMissedTheGrant(t *testing.T) {
	s := newParallelStage(t, 3*time.Second)
	leader, token, lost, replica := s.failOver(true)
	s.reclaimsOrHoldsOff(leader, token, lost, replica)
}

// If the lease of the term before still stands on the replica, nobody can take it for his own:
// the next leader comes after the hold-off, under a token above both.
func TestP1P2_PromotedReplicaThatHoldsAnOldLease(t *testing.T) {
	s := newParallelStage(t, 2*time.Second)
	leader, token, lost, replica := s.failOver(false)
	s.join("newcomer", replica.Client(t), young)
	admin := replica.Client(t)
	s.eventually("the leader to be refused, or to reclaim", func() bool {
		holder, stored := s.stored(admin)
		return !leader.IsLeader() || holder == leader.name && stored == token
	})
	if leader.IsLeader() {
		t.Log("this machine is slow: the old lease had run out before the leader asked, and it reclaimed its own")
		return
	}
	next, higher := s.leader(token)
	after := s.beliefs.term(higher).first - lost
	t.Logf("%s leads %v after the failover", next.name, round(after))
	if after < s.ttl {
		t.Errorf("a leader %v after the failover, within the hold-off", after)
	}
	if cause := leader.ending(s, token).cause; !errors.Is(cause, tenure.ErrLost) {
		t.Errorf("the term ended by %v, want ErrLost", cause)
	}
}

// failOver promotes a replica that has missed how one term was released and the next granted, and
// returns who leads that one. lapsed says whether the earlier lease has run out on the replica
// before that.
func (s *stage) failOver(lapsed bool) (leader *player, token int64, lost time.Duration, replica *redistest.Server) {
	s.Helper()
	master := redistest.Start(s)
	replica = redistest.Start(s, redistest.ReplicaOf(master))
	way := newSwitch(master)
	first := s.join("first", way.client(s), young)
	before := s.leads(first)
	second := s.join("second", way.client(s), young)
	s.follows(second, first)
	replica.WaitReplicated(s)
	replica.Detach(s)
	s.must(first.Resign(s.Context()))
	leader, token = s.leader(before)
	watch := replica.Client(s)
	if lapsed {
		s.eventually("the earlier lease to run out on the replica", func() bool {
			holder, _ := s.stored(watch)
			return holder == ""
		})
	}
	lost = monotonic()
	master.Kill(s)
	replica.Promote(s)
	if _, stored := s.stored(watch); stored != before {
		s.Fatalf("the replica holds token %d, want the one before, %d", stored, before)
	}
	way.to(replica)
	s.Logf("the failover took %v", round(monotonic()-lost))
	return leader, token, lost, replica
}

// The same if its leader does not come along: the next one comes after the hold-off, under a
// token above both.
func TestP1P2_PromotedReplicaHoldsOffWhileTheLeaderIsCutOff(t *testing.T) {
	s := newParallelStage(t, 2*time.Second)
	master := redistest.Start(t)
	replica := redistest.Start(t, redistest.ReplicaOf(master))
	way := newSwitch(master)
	leader := s.join("leader", master.Client(t), young)
	s.leads(leader)
	follower := s.join("follower", way.client(t), young)
	s.follows(follower, leader)
	replica.WaitReplicated(t)
	replica.Detach(t)
	s.must(follower.quit(s)) // what it remembers is gone with it
	s.must(leader.Resign(t.Context()))
	token := s.leads(leader)
	lost := monotonic()
	replica.Promote(t)
	way.to(replica)
	s.join("newcomer-0", way.client(t), young)
	s.join("newcomer-1", way.client(t), young)
	// The old master goes on taking writes, for less than the new one holds off.
	master.Kill(t)
	next, higher := s.leader(token)
	after := s.beliefs.term(higher).first - lost
	t.Logf("%s leads %v after the promotion", next.name, round(after))
	if after < s.ttl {
		t.Errorf("a leader %v after the promotion, within the hold-off", after)
	}
	s.steppedDownInTime(leader, token)
}

// switchTo is the way to whatever server is the master.
type switchTo struct{ addr atomic.Pointer[string] }

func newSwitch(server *redistest.Server) *switchTo {
	w := new(switchTo)
	w.to(server)
	return w
}

func (w *switchTo) to(server *redistest.Server) {
	addr := server.Addr()
	w.addr.Store(&addr)
}

// client returns a client whose new connections go where the switch points.
func (w *switchTo) client(t redistest.TB) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", // a name for the pool; the dialer knows better
		Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			conn, err := d.DialContext(ctx, network, *w.addr.Load())
			if err != nil {
				return nil, fmt.Errorf("switch: %w", err)
			}
			return conn, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() }) // it has nothing to say
	return client
}
