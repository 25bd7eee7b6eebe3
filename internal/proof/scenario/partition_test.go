//go:build unix

package scenario

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// A client with nothing but default options hangs for seconds behind a black hole; its leader steps
// down in time all the same.
func TestP4_BlackHoleBehindADefaultClient(t *testing.T) {
	redistest.NoLeaks(t)
	s := newStage(t, 2*time.Second)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	leader := s.join("leader", clientOf(t, proxy.Addr()), young)
	token := s.leads(leader)
	follower := s.join("follower", server.Client(t), young)
	s.follows(follower, leader)
	proxy.Blackhole()
	end := leader.ending(s, token)
	if hanging := leader.Status().CallsInFlight; hanging == 0 {
		t.Error("no call hangs: nothing was shown")
	}
	_, higher := s.leader(token)
	s.steppedDownInTime(leader, token)
	t.Logf("another leads %v after the cancel", round(s.beliefs.term(higher).first-end.at))
	proxy.Heal()
	s.follows(leader, follower)
	if !follower.IsLeader() || s.beliefs.term(higher).who != "follower" {
		t.Error("the follower does not lead any more")
	}
}

// Run does not wait for calls that hang: it says that they are still there, and they end with the
// client's own time-outs.
func TestP11_RunSaysWhatStillHangs(t *testing.T) {
	redistest.NoLeaks(t)
	s := newStage(t, time.Second)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	const bound = 200 * time.Millisecond
	leader := s.join("leader", clientOf(t, proxy.Addr()), young, func(o *tenure.Options) { o.ShutdownTimeout = bound })
	s.leads(leader)
	proxy.Blackhole()
	s.eventually("a call to hang", func() bool { return leader.Status().CallsInFlight > 0 })
	stopped := monotonic()
	err := leader.quit(s)
	returned := monotonic()
	if !errors.Is(err, tenure.ErrDrainTimeout) || !strings.Contains(err.Error(), "calls to Redis") {
		t.Errorf("Run returned %v, want ErrDrainTimeout and what still runs", err)
	}
	s.eventually("the calls to end", func() bool { return !runs("tenure.(*campaigner)") && !runs("tenure.listenForHints") })
	t.Logf("Run returned %v after its end was asked for (bound %v): %v; the last call ended %v later", round(returned-stopped), bound,
		err, round(monotonic()-returned))
}

// runs reports whether a goroutine has the function on its stack, or was created there.
func runs(function string) bool {
	stacks := make([]byte, 4<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function)
}

// Requests arrive and their replies are lost: Redis shows a lease that its holder must not believe
// in any longer.
func TestP4P6_LostReplies(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	leader := s.join("leader", clientOf(t, proxy.Addr()), young)
	token := s.leads(leader)
	follower := s.join("follower", server.Client(t), young)
	s.follows(follower, leader)
	admin := server.Client(t)
	proxy.LoseReply(isScript)
	s.eventually("Redis to renew a lease whose leader does not hear of it", func() bool {
		return s.leaseEnd(admin) > leader.deadline(token)+s.ttl/5
	})
	s.steppedDownInTime(leader, token)
	s.leads(follower) // by the release, which arrives too
	s.holds(s.ttl, "the other leads", follower.IsLeader)
	proxy.Heal()
	s.follows(leader, follower)
}

// isScript picks the calls of tenure's scripts.
func isScript(cmd []string) bool {
	return strings.HasPrefix(strings.ToLower(cmd[0]), "eval")
}

// What a stuck connection delivers late changes nothing: neither of another's lease nor of a later
// one of the sender's own.
func TestP5_LateRequestsHarmNobody(t *testing.T) {
	s := newParallelStage(t, 1500*time.Millisecond)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	sender := s.join("sender", clientOf(t, proxy.Addr()), young)
	other := s.join("other", server.Client(t), young)
	s.leader(0)
	for _, later := range []*player{other, sender} {
		if other.IsLeader() {
			s.must(other.Resign(t.Context()))
		}
		token := s.leads(sender)
		proxy.HoldRequests()
		higher := s.leads(other)
		s.steppedDownInTime(sender, token)
		s.eventually("a later campaign of the sender to be held too", func() bool { return proxy.Stats().HeldRequests > 3 })
		held := proxy.Stats().HeldRequests
		proxy.HealNew()
		s.follows(sender, other)
		if later == sender {
			s.must(other.Resign(t.Context()))
			higher = s.leads(sender)
		}
		s.holds(s.ttl/3, "the same leader", later.IsLeader)
		proxy.ReleaseHeld()
		s.holds(s.ttl, "the same leader", later.IsLeader)
		s.onlyTermsAbove(higher-1, higher)
		t.Logf("%d requests came late while %s led", held, later.name)
		proxy.Heal()
	}
}

// A slow network that breaks connections changes no leader.
func TestP12_RoughNetworkChangesNoLeader(t *testing.T) {
	s := newParallelStage(t, 2*time.Second)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	leader := s.join("leader", clientOf(t, proxy.Addr()), young)
	token := s.leads(leader)
	s.follows(s.join("follower", server.Client(t), young), leader)
	proxy.DelayRequests(10*time.Millisecond, 10*time.Millisecond)
	proxy.DelayReplies(10*time.Millisecond, 10*time.Millisecond)
	for i := range 4 {
		s.holds(s.ttl/3, fmt.Sprintf("the same leader, at reset %d", i), leader.IsLeader)
		proxy.Reset()
	}
	s.holds(s.ttl/2, "the same leader", leader.IsLeader)
	s.onlyTerms(token)
}
