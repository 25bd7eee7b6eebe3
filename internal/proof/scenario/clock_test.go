//go:build unix

package scenario

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const stepLine = "the clock of redis stepped"

// withClock starts a server whose clock the test sets. It skips the test if that cannot be had.
func (s *stage) withClock() (*redistest.Server, *redistest.Clock) {
	s.Helper()
	if !redistest.HasClocks() {
		s.Skip("libfaketime is not installed: `make install-redis` does so if there is a package of it")
	}
	clock, option := redistest.NewClock(s)
	return redistest.Start(s, option), clock
}

// Redis's clock steps ahead by more than a lease: the lease ends under its leader, which hears of
// it with its next renewal. P1 is not promised for so long; tokens and what they fence are sound.
func TestP2P3_ClockOfRedisStepsAhead(t *testing.T) {
	s := newParallelStage(t, 4*time.Second)
	s.fence()
	s.beliefs.mayOverlap("a clock that steps ahead by more than a lease")
	server, clock := s.withClock()
	s.join("candidate-0", server.Client(t), young)
	s.join("candidate-1", server.Client(t), young)
	leader, token := s.leader(0)
	for range 3 {
		stepped, wall, told := monotonic(), time.Now(), leader.log.count(stepLine)
		clock.Step(t, time.Hour)
		s.eventually("the leader to report the step", func() bool { return leader.log.count(stepLine) > told })
		var next *player
		s.eventually("one to lead, and nobody beside it", func() bool {
			next = nil
			leading := 0
			for _, p := range s.players {
				if p.IsLeader() {
					next, leading = p, leading+1
				}
			}
			return leading == 1 && next.Status().LastAnswer.After(wall)
		})
		latest := s.leads(next)
		t.Logf("%s leads alone %v after a step of an hour; overlap %v", next.name, round(monotonic()-stepped),
			round(max(0, s.beliefs.overlap(token, latest))))
		leader, token = next, latest
	}
	s.eventually("a leader that stays, once the clock stands", func() bool {
		for _, p := range s.players {
			if p.IsLeader() && p.stays(s.ttl/2) {
				return true
			}
		}
		return false
	})
}

// stays reports whether a leader leads for so long.
func (p *player) stays(d time.Duration) bool {
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(look) {
		if !p.IsLeader() {
			return false
		}
	}
	return true
}

// Redis's clock is set back: nothing that was written by the old one holds the election up for
// longer than a hold-off.
func TestP1P2_ClockOfRedisIsSetBack(t *testing.T) {
	s := newParallelStage(t, 3*time.Second)
	s.fence()
	server, clock := s.withClock()
	s.join("candidate-0", server.Client(t), young)
	s.join("candidate-1", server.Client(t), young)
	leader, token := s.leader(0)
	for range 2 {
		clock.Step(t, -time.Hour)
		s.holds(s.ttl/2, "the same leader, since its lease is there", leader.IsLeader)
		set := monotonic()
		s.must(leader.Resign(t.Context()))
		leader, token = s.leader(token)
		t.Logf("%s leads %v after the resignation", leader.name, round(s.beliefs.term(token).first-set))
		admin := server.Client(t)
		s.must(admin.Del(t.Context(), leaderKey).Err()) // the old lease is honoured, by either clock
		deleted := monotonic()
		leader, token = s.leader(token)
		t.Logf("%s leads %v after DEL", leader.name, round(s.beliefs.term(token).first-deleted))
	}
}

// A hold-off that the old clock has written ends as soon by a clock that was set back.
func TestP7_ClockOfRedisIsSetBackDuringAHoldOff(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server, clock := s.withClock()
	admin := server.Client(t)
	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader)
	follower := s.join("follower", server.Client(t), young)
	s.follows(follower, leader)
	leader.stop()
	s.must(admin.Del(t.Context(), leaderKey, termKey).Err()) // the follower remembers the token: data were lost
	s.eventually("the hold-off to begin", func() bool {
		hold, err := admin.HGet(t.Context(), termKey, "hold").Int64()
		return err == nil && hold > 0
	})
	began := monotonic()
	clock.Step(t, -time.Hour)
	higher := s.leads(follower)
	t.Logf("%s leads %v after the clock was set back, under token %+d", follower.name, round(monotonic()-began), higher-token)
}
