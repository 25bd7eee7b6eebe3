package tenure

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// Everything here sleeps in virtual time: inCluster opens a bubble.

func TestRolesBeforeDuringAndAfterRun(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		before, err := a.Role("before", ElectionOptions{Lead: []LeadFunc{a.works("before", 0)}})
		require.NoError(c, err)
		require.Equal(c, "before", before.Role())
		require.Equal(c, ElectionIdle, before.Status().State)
		require.ErrorIs(c, before.Run(context.Background()), ErrRunning, "the coordinator runs it")
		a.start(a.works("default", 0))
		c.pass(time.Second)
		during, err := a.Role("during", ElectionOptions{Role: "during", LeaderKey: "leader:cleanup-worker", Lead: []LeadFunc{a.works("during", 0)}})
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
		_, err = a.Role("after", ElectionOptions{})
		require.ErrorIs(c, err, ErrStopped)
	})
}

func TestRoleRefusesWhatIsWrong(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.LeaderKey = "leader:main" })
		_, err := a.Role("one", ElectionOptions{LeaderKey: "leader:one"})
		require.NoError(c, err)
		_, err = a.Role("two", ElectionOptions{})
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
			e, err := a.Role(test.role, test.opts)
			require.ErrorIs(c, err, ErrMisconfigured, name)
			require.Nil(c, e, name)
			for _, text := range test.says {
				require.ErrorContains(c, err, text, name)
			}
		}
		_, err = a.Role("main", ElectionOptions{LeaderKey: "tenure:leader"})
		require.NoError(c, err, "nobody else's")
	})
}

// The role of a key that another role's name leads to.
func TestRoleRefusesANameWhoseKeyIsTaken(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.LeaderKey = "tenure:leader:x" })
		_, err := a.Role("x", ElectionOptions{})
		require.ErrorIs(c, err, ErrMisconfigured)
		require.ErrorContains(c, err, `LeaderKey = "tenure:leader:x": would share "tenure:leader:x" with role ""`)
	})
}

// Two leases, or a lease and something else of the namespace, never write to one key.
func TestLeaderKeysShareNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		_, err := a.Role("one", ElectionOptions{LeaderKey: "leader:one:since"})
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
			_, err := a.Role("two", ElectionOptions{LeaderKey: key})
			require.ErrorIs(c, err, ErrMisconfigured, key)
			require.ErrorContains(c, err, says)
			if strings.HasSuffix(says, "the tasks") {
				_, err := completed(func(o *Options) { o.Election.LeaderKey = key })
				require.ErrorContains(c, err, "Election.LeaderKey = \""+key+"\": "+says)
			}
		}
		_, err = a.Role("two", ElectionOptions{LeaderKey: "tenure:leader:one"})
		require.NoError(c, err)
	})
}

func TestTheDefaultRoleMayHaveAName(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Election.Role = "main" })
		_, err := a.Role("main", ElectionOptions{})
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
		other, err := a.Role("other", ElectionOptions{LeaseTTL: 10 * time.Second})
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
					e, err := a.Role(fmt.Sprint("role-", n), ElectionOptions{})
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
			if e.Type == EventAcquired && e.Role == "" {
				_, err := a.Role("observed", ElectionOptions{})
				require.NoError(c, err)
			}
		})
		a.start(func(ctx context.Context, _ Term) error {
			_, err := a.Role("led", ElectionOptions{})
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

// A roll-call is heard over the subscription. Where the leader's is down, or its user has no right
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
