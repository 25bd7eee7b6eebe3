//go:build unix

package scenario

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A full Redis deposes nobody: renewing and giving back work, and what cannot be granted is
// unknown.
func TestP12_FullRedisKeepsItsLeaderAndLetsItGo(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	admin := server.Client(t)
	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader)
	follower := s.join("follower", server.Client(t), young)
	s.follows(follower, leader)
	server.ConfigSet(t, "maxmemory", "1")
	if err := admin.Set(t.Context(), "x", "y", 0).Err(); err == nil {
		t.Fatal("Redis is not full")
	}
	s.holds(s.ttl*3/2, "the same leader", leader.IsLeader)
	s.must(leader.quit(s))
	if holder, _ := s.stored(admin); holder != "" {
		t.Errorf("%q holds the lease that was given back", holder)
	}
	s.eventually("the follower to hear that Redis is full", func() bool {
		err := follower.Status().Err
		return errors.Is(err, tenure.ErrUnreachable) && !errors.Is(err, tenure.ErrMisconfigured) && strings.Contains(err.Error(), "OOM")
	})
	s.holds(s.ttl, "nobody is granted anything", func() bool { return !follower.IsLeader() })
	server.ConfigSet(t, "maxmemory", "0")
	s.leader(token)
}

// SCRIPT FLUSH is not noticed.
func TestP6_ScriptFlushIsTransparent(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	admin := server.Client(t)
	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader)
	follower := s.join("follower", server.Client(t), young)
	s.follows(follower, leader)
	flush := func() bool { return admin.ScriptFlush(t.Context()).Err() == nil && leader.IsLeader() }
	s.holds(2*s.ttl, "the same leader", flush)
	s.onlyTerms(token)
	s.must(admin.ScriptFlush(t.Context()).Err())
	s.must(leader.quit(s))
	s.leader(token)
	for _, p := range s.players {
		if p.log.count("redis gives no usable answer")+p.log.count("failed to renew") > 0 {
			t.Errorf("%s had trouble:\n%s", p.name, p.log)
		}
	}
}

// A Redis that is frozen for longer than the lease: its leader steps down in time, and what it had
// asked harms nobody when Redis works it off.
func TestP4P5_FrozenRedisDeposesAndWakesHarmless(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	s.join("candidate-0", server.Client(t), young)
	s.join("candidate-1", server.Client(t), young)
	token := int64(0)
	for range 2 {
		var leader *player
		leader, token = s.leader(token)
		server.Pause(t)
		s.steppedDownInTime(leader, token)
		s.holds(s.ttl/2, "nobody leads", func() bool { return !s.players[0].IsLeader() && !s.players[1].IsLeader() })
		resumed := monotonic()
		server.Resume(t)
		next, higher := s.leader(token)
		t.Logf("%s leads %v after Redis woke up", next.name, round(s.beliefs.term(higher).first-resumed))
		s.holds(s.ttl, "the same leader", next.IsLeader)
		s.onlyTermsAbove(token, higher)
	}
}

// onlyTermsAbove fails the test if there was any other term above a token than this one.
func (s *stage) onlyTermsAbove(floor, token int64) {
	s.Helper()
	for _, b := range s.beliefs.all() {
		if b.token > floor && b.token != token {
			s.Errorf("%v led, and should not have", b)
		}
	}
}
