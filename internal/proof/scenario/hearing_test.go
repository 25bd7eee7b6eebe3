//go:build unix

package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// hears waits until a player hears hints.
func (s *stage) hears(p *player) {
	s.Helper()
	s.eventually(p.name+" to hear hints", func() bool { return p.Status().Subscription.Active })
}

// hearsAgain waits until each player has said that it hears nothing, and then that it hears again.
func (s *stage) hearsAgain(since time.Time, players ...*player) {
	s.Helper()
	deaf, again := map[*player]bool{}, map[*player]bool{}
	s.eventually("a subscription that dies to be noticed, shown, and made anew", func() bool {
		for _, p := range players {
			state := p.Status().Subscription
			switch {
			case !deaf[p] && !state.Active && errors.Is(state.Err, tenure.ErrUnreachable):
				deaf[p] = true
				s.Logf("%s says after %v that it hears nothing", p.name, round(time.Since(since)))
			case deaf[p] && !again[p] && state.Active:
				again[p] = true
				s.Logf("%s hears again after %v", p.name, round(time.Since(since)))
			}
		}
		return len(again) == len(players)
	})
}

// quickHandOver resigns, and shows that the next leader was not left to its own wake-up.
func (s *stage) quickHandOver(leader *player, token int64) {
	s.Helper()
	s.must(leader.Resign(s.Context()))
	last := s.beliefs.term(token).last
	next, higher := s.leader(token)
	after := s.beliefs.term(higher).first - last
	s.Logf("%s leads %v after %s resigned; without hints it would take up to %v", next.name, round(after), leader.name, s.ttl)
	if after > s.ttl/2 {
		s.Errorf("hand-over after %v: the hint was not heard", after)
	}
}

// sleepy candidates look for themselves once a lease only: a quick hand-over is due to a hint.
func (s *stage) sleepy(o *tenure.Options) { o.Election.RetryInterval = s.ttl }

// Sentinel replaces a master that is frozen: the connection of the subscription stays, and dies
// without a sign. It is noticed, shown, and made anew at the new master.
func TestP7_SentinelFailoverOfAFrozenMaster(t *testing.T) {
	s := newParallelStage(t, 10*time.Second)
	sentinel := redistest.StartSentinel(t)
	s.join("candidate-0", sentinel.Client(t), young, s.sleepy)
	s.join("candidate-1", sentinel.Client(t), young, s.sleepy)
	_, token := s.leader(0)
	for _, p := range s.players {
		s.hears(p)
	}
	old := sentinel.Master()
	frozen := time.Now()
	old.Pause(t)
	s.hearsAgain(frozen, s.players...)
	sentinel.AwaitMaster(t, old) // the subscriptions stand: it was replaced by then
	leader, token := s.leader(token - 1)
	s.eventually("the new master to have answered the leader", func() bool {
		status := leader.Status()
		return status.Err == nil && status.LastAnswer.After(frozen)
	})
	s.holds(s.ttl+time.Second, "the leader; until then nobody else is granted anything after a failover", leader.IsLeader)
	s.quickHandOver(leader, token)
}

// A firewall forgets the connections of a follower: nothing arrives, nothing breaks. It is noticed,
// shown, and made anew.
func TestP7_ConnectionsDroppedWithoutASign(t *testing.T) {
	s := newParallelStage(t, 10*time.Second)
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	leader := s.join("leader", server.Client(t), young, s.sleepy)
	token := s.leads(leader)
	follower := s.join("follower", clientOf(t, proxy.Addr()), young, s.sleepy)
	s.follows(follower, leader)
	s.hears(follower)
	dropped := time.Now()
	proxy.Blackhole()
	proxy.HealNew()
	s.hearsAgain(dropped, follower)
	s.quickHandOver(leader, token)
}

// Redis is replaced by an empty one that has been up for longer than a lease, at the same address:
// the leader renews when its subscription stands again, so that a candidate that comes just then is
// not granted the lease beside it. Counted, since it is a race against EmptyHistoryWait that a
// starved machine may lose.
func TestP1_ColdStandby(t *testing.T) {
	const rounds, ttl = 20, 3 * time.Second
	if testing.Short() {
		t.Skip("needs real servers")
	}
	t.Parallel()
	first, standby := redistest.Start(t), redistest.Start(t)
	standby.WaitUptime(t, 2*int(ttl/time.Second))
	var overlaps atomic.Int64
	t.Run("rounds", func(t *testing.T) {
		for n := range rounds {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				s := newParallelStage(t, ttl)
				s.beliefs.mayOverlap("counted below")
				before, after := redistest.NewProxy(t, first.Addr()), redistest.NewProxy(t, standby.Addr())
				way := new(switchTo)
				lead := func(p *redistest.Proxy) { addr := p.Addr(); way.addr.Store(&addr) }
				lead(before)
				own := func(o *tenure.Options) { o.Namespace = fmt.Sprint("round-", n) }
				leader := s.join("leader", way.client(t), own, young)
				token := s.leads(leader)
				s.hears(leader)
				for d := leader.Status().Deadline; leader.Status().Deadline.Sub(d) < 100*time.Millisecond; {
					time.Sleep(look) // a bounded poll, until right after a renewal, so that the next one is far
				}
				lead(after)
				before.Cut()
				s.join("newcomer", way.client(t), own)
				s.holdsOff(ttl / 2)
				for _, b := range s.beliefs.all() {
					if b.token != token && s.beliefs.overlap(token, b.token) > 0 {
						overlaps.Add(1)
						t.Logf("two led for %v", round(s.beliefs.overlap(token, b.token)))
					}
				}
			})
		}
	})
	t.Logf("%d overlaps in %d rounds", overlaps.Load(), rounds)
	if overlaps.Load() > rounds/4 {
		t.Error("that is more than a slow machine explains")
	}
}

// holdsOff lets time pass on a real server.
func (s *stage) holdsOff(d time.Duration) { s.holds(d, "", func() bool { return true }) }

// FLUSHALL where one process leads 300 roles over a round trip of 10 ms, and a newcomer that
// remembers nothing asks for all of them: within EmptyHistoryWait, which is long enough for a
// starved machine here, the roll-call has every leader renew.
func TestP1_RollCallOfManyRoles(t *testing.T) {
	const many, trip, wait = 300, 10 * time.Millisecond, 5 * time.Second
	if testing.Short() {
		t.Skip("needs real servers")
	}
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.DelayRequests(trip/2, 0)
	proxy.DelayReplies(trip/2, 0)
	timing := tenure.ElectionOptions{LeaseTTL: 30 * time.Second, Safety: tenure.SafetyOptions{RestartGuard: -1, EmptyHistoryWait: wait}}
	start := func(id string, client *redis.Client) (electors []*tenure.Elector) {
		c, err := tenure.New(client, tenure.Options{Namespace: namespace, InstanceID: id, Election: timing})
		if err != nil {
			t.Fatal(err)
		}
		for i := range many {
			e, err := c.AddRole(fmt.Sprint("r", i), timing)
			if err != nil {
				t.Fatal(err)
			}
			electors = append(electors, e)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }() // ends with cancel; awaited below
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Log(err)
			}
		})
		return electors
	}
	await := func(what string, cond func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !cond(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("not within %v: %s", patience, what)
			}
		}
	}
	led := start("a", clientOf(t, proxy.Addr()))
	await("all roles to be led", func() bool {
		for _, e := range led {
			if !e.IsLeader() {
				return false
			}
		}
		return led[0].Status().Subscription.Active
	})
	if err := server.Client(t).FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	asked := start("b", server.Client(t))
	for end := time.Now().Add(wait + 2*time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for i := range many {
			if led[i].IsLeader() && asked[i].IsLeader() && led[i].IsLeader() {
				t.Fatalf("role %d is led twice", i)
			}
		}
	}
	for i, e := range led {
		if !e.IsLeader() {
			t.Errorf("role %d has lost its leader", i)
		}
	}
}
