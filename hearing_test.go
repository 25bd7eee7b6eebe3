package tenure

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// hearingBound is how long a subscription may be dead: max(5 s, LeaseTTL/2), with the lease of a
// cluster.
const hearingBound = 5 * time.Second

// TestVirtualP7_SubscriptionThatDiesSilently: a connection that is dropped without a sign is
// noticed and made anew; hand-overs take milliseconds again; the state is shown meanwhile and
// reported once.
func TestVirtualP7_SubscriptionThatDiesSilently(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second, 2400 * time.Millisecond} { // since the last check
		inCluster(t, func(c *cluster) {
			a := c.member("a").start()
			c.pass(5 * time.Second)
			b := c.member("b").start()
			c.pass(10*time.Second + after)
			require.True(c, a.IsLeader())
			require.True(c, b.Elector().Status().Subscription.Active)
			c.net.Deafen("b")
			died := c.now()
			for b.Elector().Status().Subscription.Active {
				require.Less(c, c.now()-died, 4500*time.Millisecond, "noticed")
				c.pass(10 * time.Millisecond)
			}
			state := b.Elector().Status().Subscription
			require.ErrorIs(c, state.Err, ErrUnreachable)
			require.Less(c, time.Since(state.Since), 50*time.Millisecond)
			for !b.Elector().Status().Subscription.Active {
				require.Less(c, c.now()-died, hearingBound, "restored")
				c.pass(10 * time.Millisecond)
			}
			require.NoError(c, b.Elector().Status().Subscription.Err)
			require.True(c, a.Elector().Status().Subscription.Active)
			require.Equal(c, []string{"subscription_lost", "subscription_restored"}, b.told(EventSubscriptionLost, EventSubscriptionRestored))
			require.Empty(c, a.told(EventSubscriptionLost, EventSubscriptionRestored))
			c.pass(time.Second) // it has asked who leads since, and hints are heeded 25 ms apart
			require.NoError(c, a.Elector().Resign(c.Context()))
			c.until(20*time.Millisecond, b.IsLeader)
		})
	}
}

// TestVirtualP7_SubscriptionAfterALongOutage: the pauses between attempts grow during an outage.
// They are short again at later losses.
func TestVirtualP7_SubscriptionAfterALongOutage(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.pass(5 * time.Second)
		hears := func() bool { return a.Elector().Status().Subscription.Active }
		c.redis.Restart(true, time.Minute)
		c.pass(time.Minute)
		c.until(5*time.Second, hears)
		for range 3 {
			c.pass(20 * time.Second)
			c.net.Cut("a")
			c.pass(10 * time.Millisecond)
			require.False(c, hears())
			c.until(time.Second, hears)
		}
	})
}

// TestVirtualP1_DeafLeaderHearsTheNextRollCall: a leader whose subscription died silently hears the
// roll-call again within the bound.
func TestVirtualP1_DeafLeaderHearsTheNextRollCall(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.pass(20 * time.Second)
		c.net.Deafen("a")
		c.pass(hearingBound)
		term, _ := a.Elector().Term()
		c.redis.FlushAll()
		b := c.member("b").start()
		for range 5000 {
			c.pass(time.Millisecond)
			require.False(c, b.IsLeader())
		}
		require.True(c, term.Valid())
	})
}

// TestVirtualP1_ColdStandby: Redis is replaced by another one that is empty and has been up for
// long. All connections break at once, so the leader misses the roll-call of a newcomer that is
// faster: it renews as soon as its subscription stands again.
func TestVirtualP1_ColdStandby(t *testing.T) {
	for n := range 20 {
		if testing.Short() && n%5 != 0 {
			continue
		}
		inCluster(t, func(c *cluster) {
			a := c.member("a").start()
			c.pass(21 * time.Second) // right after a renewal, so that the next one is far
			term, leads := a.Elector().Term()
			require.True(c, leads)
			c.net.NewServer(simnet.Addr, simnet.ServerOptions{})
			c.net.Cut("a")
			c.pass(time.Duration(n) * 5 * time.Millisecond)
			b := c.member("b").start()
			for range 5000 {
				c.pass(time.Millisecond)
				require.False(c, b.IsLeader() && term.Valid(), "two lead")
			}
			require.True(c, term.Valid())
		})
	}
}

// slowReplies delays what a connection of commands reads. A subscription is left alone.
type slowReplies struct {
	net.Conn
	hears atomic.Bool
	delay *atomic.Int64
}

func (s *slowReplies) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("subscribe")) {
		s.hears.Store(true)
	}
	return s.Conn.Write(p)
}

func (s *slowReplies) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	if !s.hears.Load() {
		time.Sleep(time.Duration(s.delay.Load()))
	}
	return n, err
}

// TestVirtualP1_RollCallBeforeTheGrantIsKnown: FLUSHALL and the roll-call of a newcomer come while
// the reply of a grant is under way.
func TestVirtualP1_RollCallBeforeTheGrantIsKnown(t *testing.T) {
	for _, late := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond} {
		inCluster(t, func(c *cluster) {
			var delay atomic.Int64
			long := func(o *Options) { o.Election.LeaseTTL = 30 * time.Second }
			a := c.on("a", func(o *redis.Options) {
				dial := c.net.Dialer("a")
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dial(ctx, network, addr)
					return &slowReplies{Conn: conn, delay: &delay}, err
				}
			}, long).start()
			c.pass(200 * time.Millisecond)
			delay.Store(int64(late))
			c.until(time.Second, func() bool { return c.holder("tenure:leader") == "a" })
			require.False(c, a.IsLeader(), "the grant is not known yet")
			c.redis.FlushAll()
			b := c.member("b", long).start()
			c.pass(160 * time.Millisecond)
			delay.Store(0)
			for range 15_000 {
				c.pass(time.Millisecond)
				require.False(c, a.IsLeader() && b.IsLeader(), "two lead at %v", c.now())
			}
			require.True(c, a.IsLeader())
		})
	}
}

// TestVirtualP8_TasksThatFinishHearTheRollCall: the lease of a term that has ended is kept for
// them. FLUSHALL takes it away, and they are cancelled.
func TestVirtualP8_TasksThatFinishHearTheRollCall(t *testing.T) {
	inCluster(t, func(c *cluster) {
		long := func(o *Options) { o.Election.LeaseTTL, o.ShutdownTimeout = 30*time.Second, time.Minute }
		a := c.member("a", long)
		var ended error
		require.NoError(c, a.Tasks().Register(Task{Name: "report", Schedule: Every(time.Hour), RunOnElection: true, Run: func(ctx context.Context, _ TaskRun) error {
			<-ctx.Done()
			ended = context.Cause(ctx)
			return ctx.Err()
		}}))
		a.start()
		c.until(time.Minute, a.IsLeader)
		c.pass(5 * time.Second)
		a.halt(nil)
		c.pass(time.Second)
		require.NoError(c, ended, "it may finish")
		c.redis.FlushAll()
		b := c.member("b", long).start()
		c.until(time.Minute, b.IsLeader)
		require.ErrorIs(c, ended, ErrLost)
		c.pass(time.Minute)
	})
}

// TestForgedOrigin: what is no replication id does not come into a reply.
func TestForgedOrigin(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a").start()
		c.until(time.Second, a.IsLeader)
		for _, forged := range []string{"x - =other", "x\ny", strings.Repeat("f", 65), "é"} {
			c.redis.Do(func(m *miniredis.Miniredis) { m.HSet("tenure:leader:term", "origin", forged) })
			info, err := a.Elector().Leader(c.Context())
			require.NoError(c, err)
			require.Equal(c, "a", info.InstanceID)
		}
		c.pass(time.Minute)
		require.True(c, a.IsLeader())
	})
}

// TestVirtualP1_RollCallOfManyRoles: FLUSHALL, one process leads 1,000 roles over a round trip of
// 10 ms, and a newcomer that remembers nothing asks for all of them: none is led twice.
func TestVirtualP1_RollCallOfManyRoles(t *testing.T) {
	many := 1000
	if simnet.Race {
		many = 250
	}
	if testing.Short() {
		many = 100
	}
	slow := simnet.Faults{MinLatency: 5 * time.Millisecond, MaxLatency: 5 * time.Millisecond}
	inCluster(t, func(c *cluster) {
		member := func(name string) (m *instance, electors []*Elector) {
			m = c.on(name, func(o *redis.Options) { o.PoolSize = 4 * many }) // see "Traps" in simnet
			for i := range many {
				e, err := m.AddRole(fmt.Sprint("r", i), ElectionOptions{LeaseTTL: time.Minute})
				require.NoError(c, err)
				electors = append(electors, e)
			}
			return m.start(), electors
		}
		c.net.SetFaults("a", slow)
		_, led := member("a")
		c.pass(5 * time.Second)
		for _, e := range led {
			require.True(c, e.IsLeader(), e.Role())
		}
		c.redis.FlushAll()
		_, asked := member("b")
		for range 600 {
			c.pass(time.Millisecond)
			for i, e := range asked {
				require.False(c, e.IsLeader() && led[i].IsLeader(), "%s is led twice %v after the flush", e.Role(), c.now())
			}
		}
		for _, e := range led {
			require.True(c, e.IsLeader(), e.Role())
		}
	})
}

// TestSubscriptionOfRoles: one subscription serves all leases, of whatever name, and those that are
// added later.
func TestSubscriptionOfRoles(t *testing.T) {
	inCluster(t, func(c *cluster) {
		shared := ElectionOptions{LeaderKey: "leader:shared", LeaseTTL: 10 * time.Second}
		a := c.member("a", func(o *Options) { o.Namespace = "one" }).start()
		b := c.member("b", func(o *Options) { o.Namespace = "two" }).start()
		c.pass(5 * time.Second)
		ours, err := a.AddRole("cleanup", shared)
		require.NoError(c, err)
		c.pass(5 * time.Second)
		theirs, err := b.AddRole("sweeper", shared)
		require.NoError(c, err)
		c.pass(time.Second)
		require.True(c, ours.IsLeader())
		term, _ := ours.Term()

		c.redis.FlushAll()
		newcomer := c.member("c", func(o *Options) { o.Namespace, o.Election.LeaderKey = "three", "leader:shared" }).start()
		for range 2000 {
			c.pass(time.Millisecond)
			require.False(c, newcomer.IsLeader() || theirs.IsLeader())
		}
		require.True(c, term.Valid())
		_, _ = newcomer.stop()

		require.NoError(c, ours.Resign(c.Context()))
		c.until(20*time.Millisecond, theirs.IsLeader)
	})
}

// TestChecksOfTheSubscription: what a check costs, and what it makes of a Redis that does not
// publish.
func TestChecksOfTheSubscription(t *testing.T) {
	refuse := func(what, channel string) func(host, cmd string, args []string) string {
		return func(host, cmd string, args []string) string {
			if cmd == what && host == "a" && strings.Contains(strings.Join(args, " "), channel) {
				return "NOPERM User app has no permissions to run the '" + what + "' command"
			}
			return ""
		}
	}
	for name, test := range map[string]struct {
		refused string
		channel string // part of its name; "": every channel
		says    string // Subscription.Err
		events  []string
		counted string // what each check costs
	}{
		"as it should be":    {counted: "PUBLISH"},
		"publishing refused": {refused: "PUBLISH", says: "+publish", events: []string{"hints_refused"}, counted: "PING"},
		"its own channel":    {refused: "SUBSCRIBE", channel: "instance:a:events", counted: "PING"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.redis.Intercept(refuse(test.refused, test.channel))
				a := c.member("a").start()
				c.pass(time.Minute)
				counts := map[string]int{}
				c.redis.Watch(func(_ time.Time, _, cmd string, args []string) {
					counts[cmd]++
				})
				c.pass(time.Minute)
				c.redis.Watch(nil)
				require.InDelta(c, 24, counts[test.counted], 1, "one each 2.5 s")
				state := a.Elector().Status().Subscription
				require.True(c, state.Active)
				if test.says == "" {
					require.NoError(c, state.Err)
				} else {
					require.ErrorIs(c, state.Err, ErrMisconfigured)
					require.ErrorContains(c, state.Err, test.says)
				}
				require.ElementsMatch(c, test.events, a.told(EventSubscriptionLost, EventSubscriptionRestored, EventHintsRefused))
			})
		})
	}
}

// TestRollCallThatIsTooSlowIsReported: once, with what to set, by the process whose leaders cannot
// answer in time and by no other.
func TestRollCallThatIsTooSlowIsReported(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.net.SetFaults("a", simnet.Faults{MinLatency: 20 * time.Millisecond, MaxLatency: 20 * time.Millisecond})
		a, b := c.member("a").start(), c.member("b").start()
		c.pass(5 * time.Minute)
		require.Len(c, a.told(EventRollCallSlow), 1)
		require.Empty(c, b.told(EventRollCallSlow))
		for _, e := range a.witness.told(EventRollCallSlow) {
			require.Equal(c, 1, e.Count)
			require.Greater(c, e.Took, 125*time.Millisecond, "half of EmptyHistoryWait")
			require.ErrorIs(c, e.Err, ErrMisconfigured)
			require.ErrorContains(c, e.Err, "set it to")
		}
	})
}
