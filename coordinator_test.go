package tenure

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
	"github.com/tenure-go/tenure/internal/store"
)

// The whole life of a coordinator, as an observer hears of it.
func TestCoordinatorLife(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.redis.Do(func(m *miniredis.Miniredis) { // another program died and left this behind
			m.HSet("tenure:instances", "ghost", `{"instance_id":"ghost","last_heartbeat":1}`)
		})
		var log bytes.Buffer
		a, b := c.member("a", func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }), c.member("b")
		require.Equal(c, "a", a.InstanceID())
		require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(4*time.Minute))))
		require.Equal(c, ElectionIdle, a.Elector().Status().State)
		a.start(a.works("work", 0))
		c.pass(10 * time.Second)
		b.start()
		c.pass(6 * time.Minute)
		require.Equal(c, "a", c.holder("tenure:leader"))
		require.Equal(c, []string{"a active", "b active"}, a.list())
		_, err := b.stop()
		require.NoError(c, err)
		c.pass(time.Second)
		_, err = a.stop()
		require.NoError(c, err)
		require.Equal(c, []string{
			"instance_registered", "term_began #1", "leader_changed #1 a",
			"instance_joined ghost", "instance_joined b",
			"task_started #1 tidy", "task_finished #1 tidy",
			"instance_down ghost",
			"instance_left b",
			"term_ended #1", "lease_released #1", "instance_left a",
		}, a.told())
		require.Contains(c, log.String(), `msg="acquired leadership" instance=a`)
		require.ElementsMatch(c, []string{"instance_registered", "leader_changed #1 a", "instance_down ghost", "instance_left b"}, b.told())
		require.Equal(c, ElectionStopped, a.Elector().Status().State)
	})
}

// An instance takes part from its first good beat on, also while it does not campaign: its health
// check fails, or Redis refuses the election.
func TestActiveFromTheFirstGoodBeat(t *testing.T) {
	for name, prepare := range map[string]func(*cluster, *Options){
		"unhealthy": func(_ *cluster, o *Options) { o.Election.Health = func(context.Context) error { return errBroken } },
		"refused": func(c *cluster, _ *Options) {
			c.refuse("tenure:leader", "LOADING Redis is loading the dataset in memory")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a", func(o *Options) { prepare(c, o) }).start()
				c.pass(time.Second)
				require.Equal(c, "active", a.record())
				require.Equal(c, InstanceActive, a.State())
				require.False(c, a.IsLeader())
			})
		})
	}
}

// TestState: what a process says of its part in the cluster does not hang on Redis once it has
// joined.
func TestState(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		require.Equal(c, InstanceJoining, a.State())
		c.refuse("tenure:instance:a:heartbeat", "LOADING Redis is loading the dataset in memory")
		a.start()
		c.pass(time.Minute)
		require.Equal(c, InstanceJoining, a.State())
		c.refuse("", "")
		c.until(time.Minute, func() bool { return a.State() == InstanceActive })
		c.refuse("tenure:instance:a:heartbeat", "LOADING Redis is loading the dataset in memory")
		c.pass(10 * time.Minute)
		require.Equal(c, InstanceActive, a.State())
		c.refuse("", "")
		require.NoError(c, a.Drain(background))
		require.Equal(c, InstanceDraining, a.State())
		a.Undrain()
		require.Equal(c, InstanceActive, a.State())
		_, err := a.stop()
		require.NoError(c, err)
		require.Equal(c, InstanceDraining, a.State())

		silent := c.member("silent", func(o *Options) { o.Registry.HeartbeatInterval = -1 })
		require.Equal(c, InstanceJoining, silent.State())
		silent.start()
		c.pass(time.Second)
		require.Equal(c, InstanceActive, silent.State())
	})
}

func TestRedisAddress(t *testing.T) {
	for want, rdb := range map[string]redis.UniversalClient{
		"redis:6379": redis.NewClient(&redis.Options{Addr: "redis:6379", Username: "u", Password: "secret"}),
		"[::1]:7000": redis.NewClient(&redis.Options{Addr: "[::1]:7000"}),
	} {
		c, err := New(rdb, Options{Namespace: "shop"})
		require.NoError(t, err)
		require.Equal(t, want, c.RedisAddress())
		require.Equal(t, want, c.Control().RedisAddress())
	}
	for _, rdb := range []redis.UniversalClient{
		redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"s:26379"}}),
		redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"n:6379"}}),
		redis.NewClient(&redis.Options{Network: "unix", Addr: "/run/redis:1"}),
	} {
		c, err := NewControl(rdb, ControlOptions{Namespace: "{shop}"})
		require.NoError(t, err)
		require.Empty(t, c.RedisAddress())
	}
}

// A first beat that succeeds during the drain does not make an instance active.
func TestDrainingStaysDraining(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.refuse("tenure:instance:a:heartbeat", "LOADING Redis is loading the dataset in memory")
		a := c.member("a").start(c.member("b").works("default", 5*time.Second))
		c.pass(time.Second)
		require.Empty(c, a.record())
		a.halt(nil)
		c.redis.Intercept(nil)
		c.until(5*time.Second, func() bool { return a.record() != "" })
		require.Equal(c, "draining", a.record())
		c.pass(time.Second)
		require.Equal(c, "draining", a.record())
	})
}

// The order of a stop: the work is drained, then the lease is released, then the record goes.
func TestP11_DrainsThenReleasesThenDeregisters(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		look := func() string { return "lease " + c.holder("tenure:leader") + ", record " + a.record() }
		a.start(func(ctx context.Context, _ Term) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second)
			c.note("drained: %s, leader %v", look(), a.IsLeader())
			return nil
		})
		a.Observe(func(e Event) {
			if e.Type == EventLeaseReleased {
				c.note("released: %s", look())
			}
		})
		c.pass(time.Minute)
		took, err := a.stop()
		require.NoError(c, err)
		require.Equal(c, []string{"drained: lease a, record draining, leader false", "released: lease , record draining"}, c.noted())
		require.Equal(c, "lease , record ", look())
		require.InDelta(c, 3*time.Second, took, float64(20*time.Millisecond))
		require.Equal(c, []string{"term_ended #1", "lease_released #1", "instance_left a"}, a.told(EventTermEnded, EventLeaseReleased, EventInstanceLeft))
	})
}

// TestLeaseThatAnotherHas: what a term gives back after another one began was not its lease.
func TestLeaseThatAnotherHas(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b, goOn := c.member("a"), c.member("b"), make(chan struct{})
		a.start(func(ctx context.Context, _ Term) error {
			<-ctx.Done()
			<-goOn
			return nil
		})
		c.until(time.Minute, a.IsLeader)
		b.start()
		c.net.Partition("a", simnet.Both, 0)
		c.until(2*time.Minute, b.IsLeader)
		c.net.Heal("a")
		close(goOn)
		c.until(time.Minute, func() bool {
			return a.Elector().Status().Leader == "b" && a.Elector().Status().State == ElectionFollowing
		})
		c.pass(time.Minute)
		require.Equal(c, []string{"term_ended #1"}, a.told(EventTermEnded, EventLeaseReleased))
		require.True(c, b.IsLeader())
	})
}

func TestTwoCoordinators(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.member("a"), c.member("b")
		a.start(a.works("work", 0))
		c.pass(5 * time.Second)
		b.start(b.works("work", 0))
		c.pass(5 * time.Second)
		for _, m := range []*instance{a, b} {
			require.Equal(c, []string{"a active", "b active"}, m.list())
			leader, err := m.Elector().Leader(context.Background())
			require.NoError(c, err)
			require.Equal(c, "a", leader.InstanceID)
		}
		require.False(c, b.IsLeader())
		require.Equal(c, []string{"instance_joined b"}, a.told(EventInstanceJoined))

		took, err := a.stop()
		require.NoError(c, err)
		require.Less(c, took, 50*time.Millisecond)
		c.until(50*time.Millisecond, b.IsLeader)
		synctest.Wait()
		require.Equal(c, []string{"a work leads #1", "a work drained", "b work leads #2"}, c.noted())
		require.Less(c, c.tokens[0], c.tokens[1])
		c.pass(time.Second)
		require.Equal(c, []string{"b active"}, b.list())
		require.Equal(c, []string{"instance_left a"}, b.told(EventInstanceJoined, EventInstanceLeft))
	})
}

// What dies without a word is removed by the next leader.
func TestTheNextLeaderSweepsTheDead(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.member("a").start(), c.member("b")
		c.pass(time.Second)
		b.start()
		c.pass(time.Second)
		a.crash()
		c.until(12*time.Second, b.IsLeader)
		c.pass(time.Minute + 30*time.Second)
		require.Equal(c, []string{"a drifted", "b active"}, b.list())
		c.pass(5 * time.Minute)
		require.Equal(c, []string{"b active"}, b.list())
		require.Equal(c, []string{"instance_drifted a", "instance_down a"}, b.told(EventInstanceDrifted, EventInstanceDown, EventInstanceLeft))
	})
}

func TestTasksGoOnAcrossAFailOver(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.member("a"), c.member("b")
		for _, m := range []*instance{a, b} {
			require.NoError(c, m.Tasks().Register(m.counts("early", Every(time.Minute))))
		}
		a.start()
		c.pass(time.Second)
		b.start()
		for _, m := range []*instance{a, b} { // during Run
			require.NoError(c, m.Tasks().Register(m.counts("late", Every(time.Minute))))
			require.ErrorIs(c, m.Tasks().Register(m.counts("late", Every(time.Minute))), ErrMisconfigured)
		}
		c.pass(3*time.Minute + 10*time.Second)
		before := c.noted()
		require.Len(c, before, 6)
		require.False(c, slices.ContainsFunc(before, func(s string) bool { return strings.HasPrefix(s, "b ") }), "on the leader only")
		a.crash()
		c.pass(3 * time.Minute)
		after := c.noted()
		require.Len(c, after, 6)
		var slots []string
		for _, line := range append(before, after...) {
			slots = append(slots, line[2:])
		}
		slices.Sort(slots)
		require.Len(c, slices.Compact(slots), 12, "each slot once")
		require.False(c, slices.ContainsFunc(after, func(s string) bool { return strings.HasPrefix(s, "a ") }))
	})
}

// The loop of the scheduler waits for nobody. If it stands still all the same, that is a defect,
// here of what draws the IDs of runs.
func TestAHungSchedulerGivesTheTermUp(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.member("a"), c.member("b")
		held, draw := make(chan chan struct{}, 1), a.tasks.secret
		a.tasks.secret = func() string {
			select {
			case until := <-held:
				<-until
			default:
			}
			return draw()
		}
		require.NoError(c, a.Tasks().Register(a.counts("hung", Every(time.Minute))))
		a.start()
		c.pass(5 * time.Second)
		b.start()
		until := make(chan struct{})
		held <- until
		c.pass(55 * time.Second) // the slot is due
		require.True(c, a.IsLeader())
		c.pass(hungAfter + 5*time.Second)
		require.False(c, a.IsLeader())
		require.ErrorIs(c, a.events[len(a.events)-1].Err, ErrWorkFailed)
		require.Equal(c, []string{"work_failed #1", "term_ended #1"}, a.told(EventWorkFailed, EventTermEnded))
		require.False(c, b.IsLeader(), "not before what hangs has been waited for")
		c.until(25*time.Second+10*time.Second, b.IsLeader)
		close(until)
		c.pass(time.Second)
		require.Equal(c, ElectionFollowing, a.Elector().Status().State)
	})
}

func TestHintsReachTheElectorsOfAllRoles(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.member("a"), c.member("b")
		other, err := a.AddRole("other", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		follower, err := b.AddRole("other", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		a.start()
		c.pass(time.Second)
		b.start()
		c.pass(time.Second)
		require.NoError(c, other.Resign(context.Background())) // its release says that the lease is vacant
		c.until(50*time.Millisecond, follower.IsLeader)
		require.True(c, a.IsLeader(), "only that role")
		require.Equal(c, []string{"term_ended role=other #1", "lease_released role=other #1"}, a.told(EventTermEnded, EventLeaseReleased))

		before, _ := follower.Term()
		c.redis.FlushAll()
		for _, role := range []string{"", "other"} {
			c.redis.Do(func(m *miniredis.Miniredis) {
				m.Publish(store.Keys("tenure").Lease(role)+":events", `{"type":"roll-call"}`)
			})
		}
		c.pass(100 * time.Millisecond)
		require.Equal(c, "a", c.holder("tenure:leader"))
		require.Equal(c, "b", c.holder("tenure:leader:other"))
		after, ok := follower.Term()
		require.True(c, ok)
		require.Equal(c, before.Token, after.Token)
	})
}

func TestNewRefusesAClientThatCannotServe(t *testing.T) {
	cluster := func() *redis.ClusterClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	ring := redis.NewRing(&redis.RingOptions{})
	t.Cleanup(func() { _ = ring.Close() })
	for name, test := range map[string]struct {
		rdb  redis.UniversalClient
		opts Options
		says []string // nothing: it is accepted
	}{
		"nil":                      {nil, Options{Namespace: "shop"}, []string{`rdb = nil: `, "NewStandalone"}},
		"nil client":               {(*redis.Client)(nil), Options{Namespace: "shop"}, []string{`rdb = nil: `, "NewStandalone"}},
		"nil cluster":              {(*redis.ClusterClient)(nil), Options{Namespace: "shop"}, []string{`rdb = nil: `}},
		"ring":                     {ring, Options{Namespace: "shop"}, []string{"*redis.Ring", "*redis.ClusterClient"}},
		"nil ring":                 {(*redis.Ring)(nil), Options{Namespace: "shop"}, []string{"*redis.Ring"}},
		"no namespace":             {cluster(), Options{}, []string{`Namespace = "": must be set: use the name of the service, such as "shop" (on a Redis Cluster "{shop}")`}},
		"cluster without tag":      {cluster(), Options{Namespace: "shop"}, []string{`Namespace = "shop"`, `"{shop}"`}},
		"cluster with tag":         {cluster(), Options{Namespace: "shop:{eu}"}, nil},
		"lease key without tag":    {cluster(), Options{Namespace: "{shop}", Election: ElectionOptions{LeaderKey: "leader:x"}}, []string{`Election.LeaderKey = "leader:x"`, `"{leader:x}"`}},
		"lease key with tag":       {cluster(), Options{Namespace: "{shop}", Election: ElectionOptions{LeaderKey: "{shop}:x"}}, nil},
		"everything that is wrong": {nil, Options{Namespace: "*", InstanceID: "a b", ShutdownTimeout: -1}, []string{"rdb", "Namespace", "InstanceID", "ShutdownTimeout"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := New(test.rdb, test.opts)
			if test.says == nil {
				require.NoError(t, err)
				require.NotNil(t, c)
				return
			}
			require.ErrorIs(t, err, ErrMisconfigured)
			require.Nil(t, c)
			for _, text := range test.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
	c, err := New(cluster(), Options{Namespace: "{shop}"})
	require.NoError(t, err)
	_, err = c.AddRole("x", ElectionOptions{LeaderKey: "leader:x"})
	require.ErrorIs(t, err, ErrMisconfigured)
	require.ErrorContains(t, err, `"{leader:x}"`)
}

// Everything here sleeps in virtual time: inCluster opens a bubble.

func TestRolesBeforeDuringAndAfterRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		before, err := a.AddRole("before", ElectionOptions{Lead: []LeadFunc{a.works("before", 0)}})
		require.NoError(c, err)
		require.Equal(c, "before", before.Role())
		require.Equal(c, ElectionIdle, before.Status().State)
		require.ErrorIs(c, before.Run(context.Background()), ErrRunning, "the coordinator runs it")
		require.EqualError(c, before.Run(context.Background()), "tenure: this elector belongs to a Coordinator: call Coordinator.Run")
		a.start(a.works("default", 0))
		c.pass(time.Second)
		during, err := a.AddRole("during", ElectionOptions{Role: "during", LeaderKey: "leader:cleanup-worker", Lead: []LeadFunc{a.works("during", 0)}})
		require.NoError(c, err)
		c.pass(time.Second)
		for _, e := range []*Elector{a.Elector(), before, during} {
			require.True(c, e.IsLeader(), e.Role())
			term, ok := e.Term()
			require.True(c, ok)
			require.Equal(c, e.Role(), term.Role)
			require.Equal(c, "a", term.InstanceID)
		}
		require.Equal(c, "a", c.holder("tenure:leader:before"))
		require.Equal(c, "a", c.holder("leader:cleanup-worker"))
		require.ErrorIs(c, during.Run(context.Background()), ErrRunning)
		_, err = a.stop()
		require.NoError(c, err)
		noted := c.noted()
		require.Len(c, noted, 6, "each role's own work, and no other: %v", noted)
		for _, what := range []string{"default", "before", "during"} {
			require.Contains(c, noted, "a "+what+" drained")
		}
		for _, e := range []*Elector{a.Elector(), before, during} {
			require.Equal(c, ElectionStopped, e.Status().State)
		}
		require.Empty(c, c.holder("tenure:leader:before"))
		require.Empty(c, c.holder("leader:cleanup-worker"))
		_, err = a.AddRole("after", ElectionOptions{})
		require.ErrorIs(c, err, ErrStopped)
	})
}

func TestRoleRefusesWhatIsWrong(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.LeaderKey = "leader:main" })
		_, err := a.AddRole("one", ElectionOptions{LeaderKey: "leader:one"})
		require.NoError(c, err)
		_, err = a.AddRole("two", ElectionOptions{})
		require.NoError(c, err)
		for name, test := range map[string]struct {
			role string
			opts ElectionOptions
			says []string
		}{
			"the default role":         {"", ElectionOptions{}, []string{"Role", "Options.Election"}},
			"another name":             {"three", ElectionOptions{Role: "four"}, []string{`Role = "four"`, `"three"`}},
			"a name that is no name":   {"a b", ElectionOptions{}, []string{`Role = "a b"`}},
			"a name of ours":           {"since", ElectionOptions{}, []string{`Role = "since"`}},
			"twice":                    {"one", ElectionOptions{}, []string{`Role = "one": is there already`}},
			"the key of another":       {"three", ElectionOptions{LeaderKey: "leader:one"}, []string{`LeaderKey = "leader:one": would share "leader:one" with role "one"`}},
			"the key of the default":   {"three", ElectionOptions{LeaderKey: "leader:main"}, []string{`LeaderKey = "leader:main": would share "leader:main" with role ""`}},
			"a key that is another's":  {"three", ElectionOptions{LeaderKey: "tenure:leader:two"}, []string{`would share "tenure:leader:two" with role "two"`}},
			"nil work":                 {"three", ElectionOptions{Lead: []LeadFunc{nil}}, []string{"Lead[0]"}},
			"everything that is wrong": {"one", ElectionOptions{Role: "x", LeaseTTL: 1, LeaderKey: "*"}, []string{`Role = "x"`, `Role = "one"`, "LeaseTTL = 1ns", `LeaderKey = "*"`}},
		} {
			e, err := a.AddRole(test.role, test.opts)
			require.ErrorIs(c, err, ErrMisconfigured, name)
			require.Nil(c, e, name)
			for _, text := range test.says {
				require.ErrorContains(c, err, text, name)
			}
		}
		for _, inner := range []string{"", "x"} {
			_, err = a.AddRole("", ElectionOptions{Role: inner})
			require.Equal(c, 1, strings.Count(err.Error(), "\n"), "one problem is said once: %v", err)
		}
		_, err = a.AddRole("main", ElectionOptions{LeaderKey: "tenure:leader"})
		require.NoError(c, err, "nobody else's")
	})
}

// The role of a key that another role's name leads to.
func TestRoleRefusesANameWhoseKeyIsTaken(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.LeaderKey = "tenure:leader:x" })
		_, err := a.AddRole("x", ElectionOptions{})
		require.ErrorIs(c, err, ErrMisconfigured)
		require.ErrorContains(c, err, `LeaderKey = "tenure:leader:x": would share "tenure:leader:x" with role ""`)
	})
}

// Two leases, or a lease and something else of the namespace, never write to one key.
func TestLeaderKeysShareNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		_, err := a.AddRole("one", ElectionOptions{LeaderKey: "leader:one:since"})
		require.NoError(c, err)
		for key, says := range map[string]string{
			"tenure:leader:since":  `would share "tenure:leader:since" with role ""`,
			"tenure:leader:term":   `would share "tenure:leader:term" with role ""`,
			"tenure:leader:terms":  `would share "tenure:leader:terms" with role ""`,
			"tenure:leader:events": `would share "tenure:leader:events" with role ""`,
			"leader:one":           `would share "leader:one:since" with role "one"`,
			"leader:one:since":     `would share "leader:one:since" with role "one"`,
			"tenure":               `would share "tenure:events" with the registry or the tasks`,
			"tenure:instances":     `would share "tenure:instances" with the registry or the tasks`,
			"tenure:beats":         `would share "tenure:beats" with the registry or the tasks`,
			"tenure:beats:hold":    `would share "tenure:beats:hold"`,
			"tenure:beats:removed": `would share "tenure:beats:removed"`,
			"tenure:tasks":         `would share "tenure:tasks"`,
			"tenure:events":        `would share "tenure:events"`,
			"tenure:metrics":       `would share "tenure:metrics"`,
			"tenure:log":           `would share "tenure:log"`,
			"tenure:task:backup":   `would share "tenure:task:backup"`,
			"tenure:task":          `would share "tenure:task:since"`,
			"tenure:instance:a":    `would share "tenure:instance:a"`,
			"tenure:instance":      `would share "tenure:instance:since"`,
		} {
			_, err := a.AddRole("two", ElectionOptions{LeaderKey: key})
			require.ErrorIs(c, err, ErrMisconfigured, key)
			require.ErrorContains(c, err, says)
			if strings.HasSuffix(says, "the tasks") {
				_, err := completed(func(o *Options) { o.Election.LeaderKey = key })
				require.ErrorContains(c, err, "Election.LeaderKey = \""+key+"\": "+says)
			}
		}
		_, err = a.AddRole("two", ElectionOptions{LeaderKey: "tenure:leader:one"})
		require.NoError(c, err)
	})
}

func TestTheDefaultRoleMayHaveAName(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.Role = "main" })
		_, err := a.AddRole("main", ElectionOptions{})
		require.ErrorContains(c, err, "is there already")
		a.start()
		c.pass(time.Second)
		require.True(c, a.IsLeader())
		require.Equal(c, "a", c.holder("tenure:leader:main"))
		require.Equal(c, "active", a.record())
	})
}

func TestResignOfOneRoleLeavesTheOther(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		other, err := a.AddRole("other", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		a.start()
		c.pass(time.Second)
		term, _ := a.Elector().Term()
		require.NoError(c, other.Resign(context.Background()))
		require.False(c, other.IsLeader())
		require.True(c, term.Valid())
		require.ErrorIs(c, other.Resign(context.Background()), ErrNotLeader)
		c.until(6*time.Second, other.IsLeader)
		require.True(c, term.Valid())
	})
}

// TestResignInsideDoOfAnotherRole: a task of one role that resigns it inside Do of another is still
// work of its own term. Resign does not wait for it.
func TestResignInsideDoOfAnotherRole(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		other, err := a.AddRole("other", ElectionOptions{LeaseTTL: 10 * time.Second})
		require.NoError(c, err)
		resigned := 0
		require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: Every(3 * time.Second), Run: func(ctx context.Context, _ TaskRun) error {
			if resigned > 0 {
				return nil
			}
			return other.Do(ctx, func(ctx context.Context, term Term) error {
				require.Equal(c, "other", term.Role)
				innermost, _ := TermFrom(ctx)
				require.Equal(c, term, innermost)
				began := c.now()
				require.NoError(c, a.Elector().Resign(ctx))
				require.Equal(c, began, c.now(), "it waits for the task that called it")
				require.True(c, term.Valid(), "the other role goes on")
				require.NoError(c, other.Resign(ctx))
				require.Equal(c, began, c.now())
				resigned++
				return nil
			})
		}}))
		a.start()
		c.pass(4 * time.Second)
		require.Equal(c, 1, resigned)
		require.Len(c, a.told(EventLeaseReleased), 2)
	})
}

// Roles are added from everywhere while Run begins and ends; hints arrive meanwhile.
func TestRolesAreAddedAtAnyMoment(t *testing.T) {
	for stopAt := range 20 {
		inCluster(t, func(c *cluster) {
			a := c.member("a")
			var adding sync.WaitGroup
			var mu sync.Mutex
			var added []*Elector
			for n := range 10 {
				adding.Go(func() {
					time.Sleep(time.Duration(n) * time.Millisecond)
					e, err := a.AddRole(fmt.Sprint("role-", n), ElectionOptions{})
					a.hint(store.Hint{Type: store.HintConnected, All: true})
					if err != nil {
						require.ErrorIs(c, err, ErrStopped)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					added = append(added, e)
				})
			}
			time.Sleep(3 * time.Millisecond)
			a.start()
			time.Sleep(time.Duration(stopAt) * time.Millisecond / 2)
			_, err := a.stop()
			require.NoError(c, err)
			adding.Wait()
			require.NotEmpty(c, added)
			for _, e := range added {
				require.Equal(c, ElectionStopped, e.Status().State)
				require.ErrorIs(c, e.Resign(context.Background()), ErrStopped)
				require.Empty(c, c.holder("tenure:leader:"+e.Role()))
			}
		})
	}
}

// A role may be added from a callback of the coordinator.
func TestRolesFromCallbacks(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.Observe(func(e Event) {
			if e.Type == EventTermBegan && e.Role == "" {
				_, err := a.AddRole("observed", ElectionOptions{})
				require.NoError(c, err)
			}
		})
		a.start(func(ctx context.Context, _ Term) error {
			_, err := a.AddRole("led", ElectionOptions{})
			require.NoError(c, err)
			<-ctx.Done()
			return nil
		})
		c.pass(time.Second)
		require.Equal(c, "a", c.holder("tenure:leader:observed"))
		require.Equal(c, "a", c.holder("tenure:leader:led"))
		_, err := a.stop()
		require.NoError(c, err)
	})
}

// A roll-call is heard over the subscription. If the leader's is down, or its user has no right
// to the channel, a candidate that remembers nothing is granted the lease of a leader that could be
// reached; EmptyHistoryWait: LeaseTTL keeps P1 then too.
func TestP1_ARollCallThatIsNotHeard(t *testing.T) {
	for _, wait := range []time.Duration{0, 10 * time.Second} {
		inCluster(t, func(c *cluster) {
			waits := func(o *Options) { o.Election.Safety.EmptyHistoryWait = wait }
			a := c.member("a", waits)
			a.backend.listen = func(ctx context.Context, _ store.Audience) { <-ctx.Done() }
			a.start()
			c.pass(time.Minute)
			term, leads := a.Elector().Term()
			require.True(c, leads)
			for renewed := a.Elector().Status().Deadline; a.Elector().Status().Deadline.Equal(renewed); {
				c.pass(10 * time.Millisecond)
			}
			c.redis.Do(func(r *miniredis.Miniredis) { r.FlushAll() })
			b := c.member("b", waits).start()
			c.pass(time.Second)
			require.True(c, term.Valid())
			require.Equal(c, wait == 0, b.IsLeader(), "beside it")
			c.pass(4 * time.Second)
			require.Equal(c, wait != 0, term.Valid(), "its next renewal tells it, or takes the lease back")
		})
	}
}

// TestElectorObservesItsOwnElection: an elector's observer hears of its role and of the
// subscription, which all roles share; the coordinator's hears of all.
func TestElectorObservesItsOwnElection(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		other, err := a.AddRole("other", ElectionOptions{})
		require.NoError(c, err)
		heard := func(observe func(func(Event)) func()) (all *[]Event) {
			all = new([]Event)
			observe(func(e Event) { *all = append(*all, e) }) // one at a time; read when it is idle
			return all
		}
		byDefault, byOther, byAll := heard(a.Elector().Observe), heard(other.Observe), heard(a.Observe)
		require.NoError(c, a.Tasks().Register(a.counts("t", Every(time.Second))))
		a.start()
		c.pass(time.Minute)
		info, err := other.Leader(context.Background())
		require.NoError(c, err)
		require.Equal(c, []string{"other", "a"}, []string{info.Role, info.InstanceID})
		c.net.Partition("a", simnet.Requests|simnet.Replies, time.Minute)
		c.pass(time.Minute)
		_, err = a.stop()
		require.NoError(c, err)

		types := func(events []Event, role string) (types []EventType) {
			for _, e := range events {
				if e.Type != EventSubscriptionLost && e.Type != EventSubscriptionRestored {
					require.Equal(c, role, e.Role, e.Type)
				}
				types = append(types, e.Type)
			}
			return types
		}
		for role, all := range map[string][]Event{"": *byDefault, "other": *byOther} {
			require.Subset(c, types(all, role), []EventType{EventTermBegan, EventLeaderChanged, EventRedisDown, EventTermEnded, EventSubscriptionLost}, role)
			require.NotContains(c, types(all, role), EventInstanceRegistered)
			require.NotContains(c, types(all, role), EventTaskStarted)
		}
		require.Greater(c, len(*byAll), len(*byDefault)+len(*byOther))
	})
}

// TestFirstElectionOnAYoungRedis: half a minute without a leader is explained, with the age of
// Redis.
func TestFirstElectionOnAYoungRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Options{})
		defer network.Close()
		network.NewServer(simnet.Addr, simnet.ServerOptions{Uptime: 3 * time.Second})
		var log bytes.Buffer
		c, err := New(network.Client("a", nil), Options{Namespace: "shop", Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		waiting := make(chan Event, 10)
		c.Observe(func(e Event) {
			if e.Type == EventElectionWaiting {
				waiting <- e
			}
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		e := <-waiting
		synctest.Wait()
		require.Equal(t, WaitYoung, WaitReason(e.Reason))
		require.InDelta(t, 3*time.Second, e.Took, float64(time.Second))
		require.InDelta(t, 28*time.Second, e.Until.Sub(e.Time), float64(time.Second))
		require.Equal(t, WaitYoung, c.Elector().Status().Waiting)
		require.False(t, c.IsLeader())
		time.Sleep(29 * time.Second)
		require.True(t, c.IsLeader())
		stop()
		require.NoError(t, <-ended)
		require.Contains(t, log.String(), "waiting: redis is 3s old, first election possible in 28s")
		require.Empty(t, waiting, "one reason, one event")
	})
}

func TestStandaloneLife(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "alone"})
		_, err := a.Elector().Leader(context.Background())
		require.ErrorIs(c, err, ErrNoLeader)
		other, err := a.AddRole("other", ElectionOptions{Lead: []LeadFunc{a.works("other", 0)}})
		require.NoError(c, err)
		a.start(a.works("work", time.Second))
		require.True(c, a.IsLeader(), "at once")
		require.True(c, other.IsLeader())
		late, err := a.AddRole("late", ElectionOptions{})
		require.NoError(c, err)
		c.pass(0)
		require.True(c, late.IsLeader())
		require.Equal(c, []string{"alone active"}, a.list())
		instance, err := a.Registry().Instance(context.Background(), "alone")
		require.NoError(c, err)
		require.Equal(c, a.Registry().incarnation, instance.Incarnation)
		term, _ := a.Elector().Term()
		leader, err := a.Elector().Leader(context.Background())
		require.NoError(c, err)
		require.Equal(c, LeaderInfo{InstanceID: "alone", Token: term.Token, Since: term.Since, Remaining: forever}, leader)
		c.pass(10 * time.Hour)
		require.True(c, term.Valid())

		took, err := a.stop()
		require.NoError(c, err)
		require.Equal(c, time.Second, took)
		require.False(c, a.IsLeader())
		for _, e := range []*Elector{a.Elector(), other, late} {
			_, err = e.Leader(context.Background())
			require.ErrorIs(c, err, ErrNoLeader)
		}
		require.Empty(c, a.list())
		require.ErrorIs(c, a.Run(context.Background()), ErrStopped)
		require.Empty(c, a.told(EventTaskBlocked, EventSweepFailed, EventHeartbeatFailed, EventRedisDown, EventWorkFailed))
	})
}

// TestTimesAreInUTC: times of one thing from two calls are in one zone, whatever that of the
// machine is.
func TestTimesAreInUTC(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "alone"})
		a.start()
		term, leads := a.Elector().Term()
		require.True(c, leads)
		leader, err := a.Elector().Leader(context.Background())
		require.NoError(c, err)
		instance, err := a.Registry().Instance(context.Background(), "alone")
		require.NoError(c, err)
		terms, err := a.Elector().Terms(context.Background(), 1)
		require.NoError(c, err)
		log, err := a.Registry().Recent(context.Background(), 1)
		require.NoError(c, err)
		for what, at := range map[string]time.Time{
			"Term.Since": term.Since, "LeaderInfo.Since": leader.Since, "Instance.StartedAt": instance.StartedAt,
			"Instance.LastHeartbeat": instance.LastHeartbeat, "TermRecord.Began": terms[0].Began, "Change.Time": log[0].Time,
		} {
			require.False(c, at.IsZero(), what)
			require.Same(c, time.UTC, at.Location(), what)
		}
		_, err = a.stop()
		require.NoError(c, err)
	})
}

func TestStandaloneTokensIncrease(t *testing.T) {
	inCluster(t, func(c *cluster) {
		last := int64(0)
		for range 3 { // starts of the program
			a := c.alone(Options{InstanceID: "alone"})
			a.start()
			for range 3 { // terms
				c.until(time.Minute, a.IsLeader)
				term, ok := a.Elector().Term()
				require.True(c, ok)
				require.Greater(c, term.Token, last)
				last = term.Token
				require.NoError(c, a.Elector().Resign(context.Background()))
				_, err := a.Elector().Leader(context.Background())
				require.ErrorIs(c, err, ErrNoLeader)
			}
			_, err := a.stop()
			require.NoError(c, err)
		}
	})
}

// The records of tasks live as long as the process.
func TestStandaloneTasksGoOnAfterAResignation(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "alone"})
		require.NoError(c, a.Tasks().Register(a.counts("tidy", Every(time.Minute))))
		a.start()
		c.pass(90 * time.Second)
		require.NoError(c, a.Elector().Resign(context.Background()))
		c.pass(91 * time.Second)
		require.Equal(c, []string{"alone tidy 1m0s", "alone tidy 2m0s", "alone tidy 3m0s"}, c.noted())
		runs, err := a.Tasks().Runs(context.Background(), "tidy", 10)
		require.NoError(c, err)
		require.Len(c, runs, 3)
	})
}

func TestStandaloneStandsBackAfterFailedWork(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{})
		a.start(func(context.Context, Term) error {
			c.note("led at %v", c.now().Truncate(time.Second))
			return ErrNotFound
		})
		c.pass(8 * time.Second)
		require.False(c, a.IsLeader())
		require.Equal(c, []string{"led at 0s", "led at 1s", "led at 3s", "led at 7s"}, c.noted())
		_, err := a.stop()
		require.NoError(c, err)
	})
}

func TestStandaloneHealth(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var health error
		a := c.alone(Options{Election: ElectionOptions{RenewInterval: time.Second, Health: func(context.Context) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			return health
		}}})
		a.start()
		c.pass(2 * time.Second)
		require.True(c, a.IsLeader())
		c.mu.Lock()
		health = ErrUnreachable
		c.mu.Unlock()
		c.pass(2 * time.Second)
		require.False(c, a.IsLeader())
	})
}

func TestStandaloneRefusesBadOptions(t *testing.T) {
	a, err := NewStandalone(Options{InstanceID: "a b", Election: ElectionOptions{LeaseTTL: 1}})
	require.ErrorIs(t, err, ErrMisconfigured)
	require.ErrorContains(t, err, "InstanceID")
	require.ErrorContains(t, err, "Election.LeaseTTL")
	require.Nil(t, a)
}

// A coordinator whose leases a test grants.
func TestControlledCoordinator(t *testing.T) {
	inCluster(t, func(c *cluster) {
		coordinator, control, err := newLocal(Options{InstanceID: "alone"}, false, forTests, nil, nil)
		require.NoError(c, err)
		a := c.join("alone", coordinator)
		other, err := a.AddRole("other", ElectionOptions{})
		require.NoError(c, err)
		held := controlled{control, coordinator, nil, nil}
		all := func() bool { so, _ := held.Leading(); return so }
		a.start()
		c.pass(time.Hour)
		require.True(c, held.Following(""))
		require.Equal(c, WaitIneligible, other.Status().Waiting)
		for range 3 {
			control.Grant()
			c.pass(25 * time.Millisecond)
			require.True(c, all())
			control.Grant()
			control.Grant()
			c.pass(time.Second)
			require.True(c, all())
			control.Refuse("")
			c.pass(25 * time.Millisecond)
			require.True(c, held.Following(""))
		}
		require.Len(c, a.told(EventTermBegan), 6)
		require.Len(c, a.told(EventTermEnded), 6)
	})
}

// TestRolesAreFound: by their name, and all of them in the order in which they were added.
func TestRolesAreFound(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		require.Equal(c, []*Elector{a.Elector()}, a.Roles())
		first, err := a.AddRole("x", ElectionOptions{})
		require.NoError(c, err)
		_, err = a.AddRole("x", ElectionOptions{})
		require.ErrorIs(c, err, ErrMisconfigured, "it adds, and does not look up")
		second, err := a.AddRole("b", ElectionOptions{})
		require.NoError(c, err)
		all := a.Roles()
		require.Equal(c, []*Elector{a.Elector(), first, second}, all)
		all[0] = nil
		require.Equal(c, []*Elector{a.Elector(), first, second}, a.Roles())
		for name, want := range map[string]*Elector{"": a.Elector(), "x": first, "b": second} {
			e, found := a.Role(name)
			require.True(c, found)
			require.Same(c, want, e, name)
		}
		e, found := a.Role("y")
		require.False(c, found)
		require.Nil(c, e)
	})
}

// TestOneRoleOfMany: what concerns one role of a thousand costs no more than it does one of ten.
func TestOneRoleOfMany(t *testing.T) {
	c, err := New(redis.NewClient(&redis.Options{Addr: "localhost:1"}), Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	allocs := make(map[int]float64)
	for _, many := range []int{10, 1000} {
		for n := len(c.Roles()); n < many; n++ {
			_, err := c.AddRole(fmt.Sprint("role-", n), ElectionOptions{})
			require.NoError(t, err)
		}
		n := 0
		allocs[many] = testing.AllocsPerRun(20, func() {
			n++
			_, err := c.AddRole(fmt.Sprintf("another-%d-%d", many, n), ElectionOptions{})
			require.NoError(t, err)
		})
		first := c.Roles()[1]
		require.Equal(t, []*Elector{first}, c.concerned(store.Hint{Type: store.HintVacant, Channel: first.loop.channel}))
		require.Empty(t, c.concerned(store.Hint{Type: store.HintVacant, Channel: "another"}))
		require.Len(t, c.concerned(store.Hint{Type: store.HintConnected, All: true}), len(c.Roles()))
	}
	require.InDelta(t, allocs[10], allocs[1000], allocs[10])
}

// TestTasksOfARole: a task runs where its role is led, and stays there when another role changes
// hands. A listing names the role; a name is unique among all roles.
func TestTasksOfARole(t *testing.T) {
	inCluster(t, func(c *cluster) {
		task := func(m *instance, name, role string) Task {
			return Task{Name: name, Role: role, Schedule: Every(10 * time.Second), Run: func(ctx context.Context, run TaskRun) error {
				term, _ := TermFrom(ctx)
				c.note("%s runs %s of %q", m.name, run.Task, term.Role)
				return nil
			}}
		}
		join := func(name string) *instance {
			m := c.member(name)
			require.ErrorContains(c, m.Tasks().Register(task(m, "early", "reports")), `Task.Role = "reports"`)
			_, err := m.AddRole("reports", ElectionOptions{LeaseTTL: 10 * time.Second})
			require.NoError(c, err)
			require.NoError(c, m.Tasks().Register(task(m, "cleanup", "")))
			require.NoError(c, m.Tasks().Register(task(m, "report", "reports")))
			require.ErrorContains(c, m.Tasks().Register(task(m, "report", "")), "is registered already")
			return m.start()
		}
		a := join("a")
		c.pass(2 * time.Second)
		b := join("b")
		require.NoError(c, a.Elector().Resign(context.Background()))
		c.pass(2 * time.Second)
		require.True(c, b.IsLeader())
		reports, _ := a.Role("reports")
		require.True(c, reports.IsLeader(), "the other role stays")
		c.noted()
		c.pass(20 * time.Second)
		noted := c.noted()
		require.NotEmpty(c, noted)
		for _, line := range noted {
			require.Regexp(c, `a runs report of "reports"$|b runs cleanup of ""$`, line)
		}
		require.Contains(c, strings.Join(noted, "\n"), "a runs report")
		require.Contains(c, strings.Join(noted, "\n"), "b runs cleanup")
		list, err := a.Tasks().List(context.Background())
		require.NoError(c, err)
		require.Len(c, list, 2)
		require.Equal(c, []string{"", "reports"}, []string{list[0].Role, list[1].Role})
		require.NotEmpty(c, list[1].Schedule)

		_, err = a.stop() // the tasks of a role that moves go on at its next leader
		require.NoError(c, err)
		c.noted()
		c.pass(20 * time.Second)
		require.Contains(c, strings.Join(c.noted(), "\n"), `b runs report of "reports"`)
		_, err = b.stop()
		require.NoError(c, err)
	})
}

// TestNoDefaultRole: a process may take part in the registry and in named roles alone. Nothing of
// the default role is its: it does not ask for that lease, and refuses what would need it.
func TestNoDefaultRole(t *testing.T) {
	inCluster(t, func(c *cluster) {
		none := func(o *Options) { o.NoDefaultRole = true }
		plain, other := c.member("plain", none), c.member("other")
		plain.start()
		other.start()
		c.until(time.Minute, func() bool { return other.IsLeader() })
		c.pass(time.Minute)
		require.Empty(c, plain.Roles())
		_, there := plain.Role("")
		require.False(c, there)
		require.Equal(c, ElectionIdle, plain.Elector().Status().State)
		require.Empty(c, plain.witness.told(EventElectionStarted, EventElectionWaiting, EventLeaderChanged))
		leader, err := plain.Elector().Leader(context.Background())
		require.NoError(c, err)
		require.Equal(c, "other", leader.InstanceID)
		require.ErrorIs(c, plain.Elector().Resign(context.Background()), ErrNotLeader)
		require.NotEmpty(c, plain.Doctor(context.Background()))

		run := func(context.Context, TaskRun) error { return nil }
		err = plain.Tasks().Register(Task{Name: "t", Schedule: Every(time.Minute), Run: run})
		require.ErrorIs(c, err, ErrMisconfigured)
		require.ErrorContains(c, err, "Task.Role")
		shard, err := plain.AddRole("shard", ElectionOptions{LeaseTTL: 3 * time.Second})
		require.NoError(c, err)
		require.NoError(c, plain.Tasks().Register(Task{Name: "t", Role: "shard", Schedule: Every(time.Minute), Run: run}))
		c.until(time.Minute, shard.IsLeader)
		require.False(c, plain.IsLeader())
		c.pass(20 * time.Second)
		instance, err := plain.Registry().Instance(context.Background(), "plain")
		require.NoError(c, err)
		require.Equal(c, []string{"shard"}, instance.Leading)

		_, err = other.stop()
		require.NoError(c, err)
		c.pass(5 * time.Second)
		require.Empty(c, c.holder("tenure:leader"), "it is nobody's")
		status, err := plain.Registry().Status(context.Background())
		require.NoError(c, err)
		require.True(c, status.Healthy, "%v", status.Problems)
		c.pass(2 * time.Minute)
		require.NotEmpty(c, plain.witness.told(EventTaskFinished))
		require.NoError(c, plain.Drain(context.Background()))
		_, err = plain.stop()
		require.NoError(c, err)
	})
	ctx := context.Background()
	opts := Options{NoDefaultRole: true}
	alone, err := NewStandalone(opts)
	require.NoError(t, err)
	require.ErrorIs(t, alone.Run(ctx, func(context.Context, Term) error { return nil }), ErrMisconfigured)
	task := Task{Name: "t", Schedule: Every(time.Hour), Run: func(context.Context, TaskRun) error { return nil }}
	require.ErrorContains(t, alone.Tasks().Register(task), "must name a role")
	task.Role = "shard"
	require.ErrorContains(t, alone.Tasks().Register(task), "add it before, with AddRole")
	for name, change := range map[string]func(*ElectionOptions){
		"Role":   func(o *ElectionOptions) { o.Role = "shard" },
		"Lead":   func(o *ElectionOptions) { o.Lead = []LeadFunc{func(context.Context, Term) error { return nil }} },
		"Health": func(o *ElectionOptions) { o.Health = func(context.Context) error { return nil } },
	} {
		bad := opts
		change(&bad.Election)
		_, err := NewStandalone(bad)
		require.ErrorIs(t, err, ErrMisconfigured, name)
		require.ErrorContains(t, err, "NoDefaultRole", name)
	}
}

// TestRolesWithoutWorkCostNoGoroutines: a process may lead many roles. The tasks of one are run
// once it has some.
func TestRolesWithoutWorkCostNoGoroutines(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		a.start()
		c.until(time.Minute, a.IsLeader)
		before := runtime.NumGoroutine()
		const many = 100
		for i := range many {
			_, err := a.AddRole(fmt.Sprint("role-", i), ElectionOptions{})
			require.NoError(c, err)
		}
		c.until(time.Minute, func() bool { return len(a.leading(nil)) == many+1 })
		c.pass(time.Minute) // calls have returned
		require.Less(c, runtime.NumGoroutine(), before+many/5)

		ran := make(chan string, 1)
		require.NoError(c, a.Tasks().Register(Task{Name: "t", Role: "role-7", Schedule: Every(time.Hour), RunOnElection: true, Run: func(ctx context.Context, _ TaskRun) error {
			term, _ := TermFrom(ctx)
			ran <- term.Role
			return nil
		}}))
		c.until(time.Minute, func() bool { return len(ran) == 1 })
		require.Equal(c, "role-7", <-ran)
	})
}

// TestSecondCopiesOfManyRolesTravelTogether: if the application has all connections of the pool,
// 200 roles are renewed over connections of their own, one for all that are due together and not
// one for each.
func TestSecondCopiesOfManyRolesTravelTogether(t *testing.T) {
	const roles = 200
	inCluster(t, func(c *cluster) {
		var made atomic.Int64
		a := c.on("a", func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				made.Add(1)
				return dial(ctx, network, addr)
			}
			o.PoolSize, o.PoolTimeout, o.MaxRetries = 3, time.Hour, -1
			clientopts.Set(o, "PipelinePoolSize", -1) // newer clients have a pool for pipelines
		})
		for i := range roles - 1 {
			_, err := a.AddRole(fmt.Sprint("role-", i), ElectionOptions{LeaseTTL: 10 * time.Second, RenewInterval: 2 * time.Second})
			require.NoError(c, err)
		}
		a.start()
		c.until(time.Minute, func() bool { return len(a.leading(nil)) == roles })
		for range 3 {
			taken := a.client.Conn()
			defer taken.Close()
			require.NoError(c, taken.Ping(c.Context()).Err())
		}
		watched := time.Minute
		if testing.Short() {
			watched /= 2
		}
		before := made.Load()
		c.pass(watched)
		require.Len(c, a.leading(nil), roles, "renewed for at least three leases")
		require.Less(c, made.Load()-before, int64(watched/time.Second)*2, "of a hundred renewals a second")
		_, err := a.stop()
		require.NoError(c, err)
	})
}

// TestRenewalsOfManyRolesTravelTogether: a process that leads many roles renews their leases
// together, once in a RenewInterval, in calls of one script. Each is observed by itself. Answers
// that are lost cost no term, and a roll-call is answered at once.
func TestRenewalsOfManyRolesTravelTogether(t *testing.T) {
	for _, tt := range []struct {
		roles    int
		together bool
	}{{driver.Few, false}, {200, true}} {
		inCluster(t, func(c *cluster) {
			a := c.member("a")
			for i := range tt.roles - 1 {
				_, err := a.AddRole(fmt.Sprint("role-", i), ElectionOptions{LeaseTTL: 10 * time.Second, RenewInterval: 2 * time.Second})
				require.NoError(c, err)
			}
			var mu sync.Mutex
			instants := map[time.Duration]int{} // renewals by when they arrived
			take := func() (renewals, arrivals int) {
				mu.Lock()
				defer mu.Unlock()
				for _, n := range instants {
					renewals += n
				}
				arrivals = len(instants)
				clear(instants)
				return renewals, arrivals
			}
			c.redis.Intercept(func(_, cmd string, args []string) string {
				keys := 0
				if strings.EqualFold(cmd, "evalsha") {
					keys, _ = strconv.Atoi(args[1])
				}
				if keys > 0 && keys%3 == 0 && strings.HasSuffix(args[1+keys], ":term") { // acquire and release have more keys
					mu.Lock()
					defer mu.Unlock()
					instants[c.now().Truncate(10*time.Millisecond)] += keys / 3 // long calls are read in parts
				}
				return ""
			})
			a.start()
			leads := func() bool { return len(a.leading(nil)) == tt.roles }
			c.until(time.Minute, leads)
			c.pass(10 * time.Second)
			take()
			observed := make(map[string]int)
			defer a.ObserveCalls(func(call Call) {
				mu.Lock()
				defer mu.Unlock()
				observed[call.Name]++
			})()
			watched := time.Minute
			if testing.Short() || simnet.Race {
				watched /= 3
			}
			c.pass(watched)
			renewals, arrivals := take()
			mu.Lock()
			require.Zero(c, observed["renew_all"])
			require.InDelta(c, renewals, observed["renew"], float64(tt.roles))
			mu.Unlock()
			require.GreaterOrEqual(c, renewals, tt.roles*25*int(watched/time.Second)/60)
			if tt.together {
				require.Less(c, arrivals, int(watched/time.Second)*2) // and the default role, whose lease is renewed more often
			} else {
				require.Greater(c, arrivals, renewals/2)
			}
			tokens := func() (all []int64) {
				for _, e := range a.Roles() {
					term, _ := e.Term()
					all = append(all, term.Token)
				}
				return all
			}
			before := tokens()
			for range 5 {
				c.net.Partition("a", simnet.Replies, 3*time.Second)
				c.pass(5 * time.Second)
			}
			require.Equal(c, before, tokens())
			c.until(time.Minute, func() bool { return c.net.Hears("a") }) // again, after the partitions
			take()
			c.redis.Do(func(m *miniredis.Miniredis) {
				for _, e := range a.Roles() {
					m.Publish(e.loop.channel, `{"type":"roll-call"}`)
				}
			})
			c.pass(50 * time.Millisecond)
			renewals, _ = take()
			require.GreaterOrEqual(c, renewals, tt.roles)
			require.True(c, leads())
		})
	}
}

// failingHook is a hook of the client that fails in its own way while that is switched on: at a
// command, at a pipeline, or at both.
type failingHook struct {
	at   string // "": both
	fail func() error
	on   atomic.Bool
}

// failing reports whether the hook fails with an error.
func (h *failingHook) failing(at string) (err error, fails bool) { //nolint:revive,staticcheck // of which the error may be a nil pointer
	if h.on.Load() && (h.at == at || h.at == "") {
		err = h.fail()
		return err, err != nil
	}
	return nil, false
}

// wrongHookError is an error whose methods panic for a nil pointer.
type wrongHookError struct{ cause error }

func (e *wrongHookError) Error() string { return "hook: " + e.cause.Error() }
func (e *wrongHookError) Unwrap() error { return e.cause }

func (*failingHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *failingHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err, fails := h.failing("command"); fails {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *failingHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err, fails := h.failing("pipeline"); fails {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// TestHooksOfTheClientThatFail: a panic in a hook of the client, runtime.Goexit, as t.FailNow
// calls it, and an error that is a nil pointer cost the calls that they hit. Once the hooks are
// sound all goes on, and Run ends. Dials do not fail here: they leave a lock of go-redis locked,
// for which virtual time waits.
func TestHooksOfTheClientThatFail(t *testing.T) {
	for name, fail := range map[string]func() error{
		"panic":       func() error { panic("a hook") },
		"Goexit":      func() error { runtime.Goexit(); return nil },
		"nil pointer": func() error { return (*wrongHookError)(nil) },
	} {
		for _, at := range []string{"command", "pipeline", ""} {
			t.Run(name+" at "+cmp.Or(at, "all"), func(t *testing.T) {
				inCluster(t, func(c *cluster) {
					a := c.on("a", func(o *redis.Options) { o.ReadTimeout = 3 * time.Second }) // else elections see no hook
					roles := []*Elector{a.Elector()}
					for n := range driver.Few { // more travel together
						e, err := a.AddRole(fmt.Sprint("role-", n), ElectionOptions{LeaseTTL: 10 * time.Second})
						require.NoError(c, err)
						roles = append(roles, e)
					}
					var ran atomic.Int32
					for _, task := range []string{"one", "two"} {
						require.NoError(c, a.Tasks().Register(Task{Name: task, Schedule: Every(5 * time.Second), Run: func(context.Context, TaskRun) error {
							ran.Add(1)
							return nil
						}}))
					}
					h := &failingHook{at: at, fail: fail}
					a.client.AddHook(h)
					sound := func() bool {
						return !slices.ContainsFunc(roles, func(e *Elector) bool { return !e.IsLeader() }) && a.Elector().Status().Subscription.Active &&
							a.record() == "active" && ran.Load() > 0
					}
					a.start()
					c.until(time.Minute, sound)
					h.on.Store(true)
					c.pass(time.Minute)
					h.on.Store(false)
					ran.Store(0)
					c.until(time.Minute, sound)
					took, err := a.stop()
					require.NoError(c, err)
					require.Less(c, took, time.Second)
				})
			})
		}
	}
}
