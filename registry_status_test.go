package tenure

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// believes makes a registry believe that an instance leads the default role.
func (m *registryInstance) believes(leader string, err error) {
	m.elections.leader = func(context.Context) (LeaderInfo, error) {
		if leader == "" {
			return LeaderInfo{}, err
		}
		return LeaderInfo{InstanceID: leader, Token: 7}, err
	}
}

func TestClusterStatus(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx := w.Context()
		m := w.member("a", chatty, func(o *Options) { o.Registry.MinInstances = 3 })
		m.believes("", ErrNoLeader)
		s, err := m.Status(ctx)
		require.NoError(w, err)
		require.Equal(w, ClusterStatus{
			Namespace: "waf:cluster", MinInstances: 3, Problems: []string{"nobody leads", "0 active, at least 3 are wanted"},
		}, s)

		m.believes("a", nil)
		ids := []string{"a"}
		for i := range 8 {
			ids = append(ids, fmt.Sprint("b", i))
		}
		for _, id := range ids[1:] {
			other := w.member(id)
			other.setStatus(InstanceActive)
			other.beats()
		}
		m.setStatus(InstanceActive)
		m.beats()
		s, err = m.Status(ctx)
		require.NoError(w, err)
		require.True(w, s.Healthy)
		require.Empty(w, s.Problems)
		require.Equal(w, Counts{Active: 9, Total: 9}, s.Counts)
		require.Equal(w, LeaderInfo{InstanceID: "a", Token: 7, Address: "https://10.0.0.7:8443/api"}, s.Leader)
		all, err := m.Instances(ctx, InstanceQuery{})
		require.NoError(w, err)
		same, listed, err := m.Overview(ctx)
		require.NoError(w, err)
		require.Equal(w, s, same)
		require.Len(w, listed, 9)
		for i := range all { // read a moment later
			all[i].Age, listed[i].Age = 0, 0
		}
		require.Equal(w, all, listed)

		w.silence(70*time.Second, "b0")
		s, err = m.Status(ctx)
		require.NoError(w, err)
		require.Equal(w, []string{"1 drifted"}, s.Problems)
		w.silence(400*time.Second, "b0")
		sweeps := m.watched()
		m.pass(sweeps)
		s, err = m.Status(ctx)
		require.NoError(w, err)
		require.False(w, s.Healthy)
		require.Equal(w, []string{"1 lost, the last within 5m0s"}, s.Problems)
		require.Equal(w, Counts{Active: 8, Total: 8}, s.Counts)
		require.InDelta(w, 300, w.rdb.PTTL(ctx, "waf:cluster:beats:lost").Val().Seconds(), 20)

		// Of eight, one more may go, and then the rest is held.
		w.rdb.Del(ctx, "waf:cluster:beats:removed")
		w.silence(400*time.Second, "b1", "b2", "b3", "b4", "b5", "b6")
		m.pass(sweeps)
		s, err = m.Status(ctx)
		require.NoError(w, err)
		require.Equal(w, 6, s.Held+s.Lost-1, "%+v", s)
		require.Equal(w, []string{
			"4 down", "4 were silent at once, those that are left are held", "3 lost, the last within 5m0s", "2 active, at least 3 are wanted",
		}, s.Problems)

		m.believes("", ErrUnreachable)
		_, err = m.Status(ctx)
		require.ErrorIs(w, err, ErrUnreachable)
	})
}

// TestLossesAreUntrusted: what somebody has put in place of the two numbers is none.
func TestLossesAreUntrusted(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("a")
		for _, text := range []string{"", "x", "-1", "1.5", "1 2 x", "1 2 3 a b", strings.Repeat("9", 400), "\xff\x00"} {
			require.NoError(w, w.rdb.MSet(w.Context(), "waf:cluster:beats:hold", text, "waf:cluster:beats:lost", text).Err())
			held, lost, err := m.losses(w.Context())
			require.NoError(w, err)
			require.Zero(w, held+lost, "%q", text)
		}
		require.NoError(w, w.rdb.Del(w.Context(), "waf:cluster:beats:hold", "waf:cluster:beats:lost").Err())
		require.NoError(w, w.rdb.RPush(w.Context(), "waf:cluster:beats:lost", "x").Err())
		_, _, err := m.losses(w.Context())
		require.ErrorIs(w, err, ErrMisconfigured)
		require.ErrorContains(w, err, "waf:cluster:beats:lost")
	})
}

func TestAddresses(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		for i, id := range []string{"c", "a", "b", "quiet", "drains", "drifted"} {
			m := w.member(id, func(o *Options) {
				o.Registry.Address, o.Registry.Roles = id+":80", []string{"worker"}
				if id == "quiet" {
					o.Registry.Address = ""
				}
				if id == "c" {
					o.Registry.Roles = []string{"gateway"}
				}
			})
			m.setStatus([]InstanceState{InstanceActive, InstanceActive, InstanceActive, InstanceActive, InstanceDraining, InstanceActive}[i])
			m.beats()
		}
		w.silence(70*time.Second, "drifted")
		w.foreign("d", `{"status":"degraded","address":"d:80","roles":["worker"]}`)
		m := w.member("reader")
		for role, want := range map[string][]string{"": {"a:80", "b:80", "c:80"}, "worker": {"a:80", "b:80"}, "gateway": {"c:80"}, "none": nil} {
			addresses, err := m.Addresses(w.Context(), role)
			require.NoError(w, err)
			require.Equal(w, want, addresses, "role %q", role)
		}
	})
}

// TestNotLeaderNamesTheAddress: a handler that may act only on the leader learns where the leader
// is reached, without a round trip, also in a process that has just led itself.
func TestNotLeaderNamesTheAddress(t *testing.T) {
	inCluster(t, func(c *cluster) {
		at := func(address string) func(*Options) {
			return func(o *Options) { o.Registry.Address = address }
		}
		a, b := c.member("a", at("a:80")).start(), c.member("b", at("b:80"))
		c.pass(time.Minute)
		b.start()
		c.pass(time.Second)
		never := func(context.Context, Term) error { panic("it does not lead") }
		redirected := func(m *instance, leader, address string) {
			c.Helper()
			var err *NotLeaderError
			require.ErrorAs(c, m.Elector().Do(context.Background(), never), &err)
			require.ErrorIs(c, err, ErrNotLeader)
			require.Equal(c, leader, err.Leader)
			require.Equal(c, address, err.Address)
			require.Positive(c, err.Token)
			info, asked := m.Elector().Leader(context.Background())
			require.NoError(c, asked)
			require.Equal(c, info.Token, err.Token)
		}
		redirected(b, "a", "a:80")
		calls := 0
		c.redis.Watch(func(time.Time, string, string, []string) { calls++ })
		require.Error(c, b.Elector().Do(context.Background(), never))
		require.Zero(c, calls)

		require.NoError(c, a.Elector().Resign(context.Background()))
		c.pass(time.Second)
		redirected(a, "b", "b:80") // it stands back

		// What the leader says later is known when somebody asks, and a listing says it too.
		for _, asks := range []func() error{
			func() error { _, err := a.Elector().Leader(context.Background()); return err },
			func() error { _, err := a.Registry().Addresses(context.Background(), ""); return err },
		} {
			next := fmt.Sprintf("b:%d", 81+calls)
			require.NoError(c, b.Registry().Update(InstanceUpdate{Address: &next}))
			c.pass(2 * time.Second)
			require.NoError(c, asks())
			redirected(a, "b", next)
		}
		info, err := a.Elector().Leader(context.Background())
		require.NoError(c, err)
		require.Regexp(c, `^b:\d+$`, info.Address)

		b.crash()
		c.pass(time.Minute)
		require.NoError(c, a.Elector().Do(context.Background(), func(context.Context, Term) error { return nil }))
		_, err = a.stop()
		require.NoError(c, err)
	})
}

// TestAddressIsAskedForAgain: a leader whose record cannot be read at first is found later.
func TestAddressIsAskedForAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Registry.Address = "a:80" }).start()
		c.pass(time.Minute)
		c.redis.Do(func(m *miniredis.Miniredis) { m.HDel("tenure:instances", "a") })
		b := c.member("b").start()
		c.pass(time.Second)
		var err *NotLeaderError
		nothing := func(context.Context, Term) error { return nil }
		require.ErrorAs(c, b.Elector().Do(context.Background(), nothing), &err)
		require.Empty(c, err.Address)
		c.pass(time.Minute) // it beats, and is asked for again
		require.ErrorAs(c, b.Elector().Do(context.Background(), nothing), &err)
		require.Equal(c, "a:80", err.Address)
		for _, m := range []*instance{a, b} {
			_, stopped := m.stop()
			require.NoError(c, stopped)
		}
	})
}

// TestWaitFor: it returns when enough are active, through an outage of Redis too, and stops with
// its context.
func TestWaitFor(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Registry.MinInstances = 2 }).start()
		waits := func(ctx context.Context, n int) <-chan error {
			done := make(chan error, 1)
			go func() { done <- a.Registry().WaitFor(ctx, n) }() // ends with what it waits for
			return done
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		two, three, forever := waits(ctx, 0), waits(ctx, 3), waits(ctx, 1000)
		c.pass(time.Minute)
		require.NoError(c, a.Registry().WaitFor(ctx, 1))
		require.Empty(c, two, "MinInstances are two")

		calls := 0
		c.redis.Watch(func(_ time.Time, _, cmd string, args []string) {
			if strings.HasPrefix(strings.ToLower(cmd), "evalsha") && len(args) > 3 && args[2] == "tenure:instances" {
				calls++
			}
		})
		c.pass(time.Minute)
		require.Positive(c, calls)
		require.LessOrEqual(c, calls, 3*60/3, "less and less often")

		outage := "LOADING Redis is loading the dataset in memory"
		c.redis.Intercept(func(_, _ string, args []string) string {
			if slices.Contains(args, "tenure:instances") {
				return outage
			}
			return ""
		})
		c.pass(10 * time.Second)
		_, err := a.Registry().Counts(ctx)
		require.ErrorIs(c, err, ErrUnreachable)
		require.Empty(c, two)
		c.redis.Intercept(func(string, string, []string) string { return "" })
		c.pass(time.Minute)
		b := c.member("b").start()
		c.pass(10 * time.Second)
		require.NoError(c, <-two)
		require.Empty(c, three)
		d := c.member("d").start()
		c.pass(10 * time.Second)
		require.NoError(c, <-three)

		cause := fmt.Errorf("no more patience")
		cancel(cause)
		require.Equal(c, cause, <-forever)
		for _, n := range []int{-1, 100_001} {
			require.ErrorIs(c, a.Registry().WaitFor(context.Background(), n), ErrMisconfigured)
		}
		for _, m := range []*instance{a, b, d} {
			_, err := m.stop()
			require.NoError(c, err)
		}
	})
}

// TestClusterChanged: the leader alone reports how many instances there are, once a change, and
// warns while one is missing. Nothing is asked while nothing happens.
func TestClusterChanged(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var log bytes.Buffer
		a, b := c.pair(func(o *Options) {
			if o.InstanceID == "a" {
				o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			}
		})
		c.pass(a.opts.Registry.SweepInterval)
		lines := func() (lines []string) {
			synctest.Wait()
			for _, line := range regexp.MustCompile(`level=(\w+) msg="(cluster status: [^"]*)"`).FindAllStringSubmatch(log.String(), -1) {
				lines = append(lines, line[1]+" "+line[2])
			}
			log.Reset()
			return lines
		}
		found := lines()
		require.Equal(c, "INFO cluster status: 2 active", found[len(found)-1])
		scans := 0
		c.redis.Intercept(func(_, _ string, args []string) string {
			if len(args) > 1 && args[0] == "tenure:instances" && len(args) == 4 {
				scans++
			}
			return ""
		})
		c.pass(time.Minute)
		require.Empty(c, lines())
		require.Zero(c, scans, "nothing has changed")
		b.crash()
		c.pass(a.opts.Registry.DownAfter + time.Minute)
		require.Equal(c, []string{"WARN cluster status: 1 active, 1 drifted", "INFO cluster status: 1 active"}, lines())
		require.GreaterOrEqual(c, scans, 2)
		require.Empty(c, b.told(EventClusterChanged), "the leader alone")
		c.member("d").start()
		c.pass(a.opts.Registry.SweepInterval)
		found = lines()
		require.Equal(c, "INFO cluster status: 2 active", found[len(found)-1])
	})
	require.Equal(t, "1 joining, 2 active, 3 draining, 4 drifted, 5 down, 6 unknown, 8 malformed",
		countsLine(Counts{Joining: 1, Active: 2, Draining: 3, Drifted: 4, Down: 5, Unknown: 6, Total: 21, Malformed: 8}))
	require.Equal(t, "no instance", countsLine(Counts{}))
}

// TestNewer: another version counts if it started later than the leader, by their records; the same
// version, an older process, and what is not known do not.
func TestNewer(t *testing.T) {
	for name, tt := range map[string]struct {
		version, leads string
		started, began int64 // of the leader
		want           time.Duration
	}{
		"another version":              {"2", "1", 1100, 1000, 100 * time.Second},
		"of a leader without one":      {"2", "", 1100, 1000, 100 * time.Second},
		"an older one again":           {"1", "2", 1100, 1000, 100 * time.Second},
		"the same":                     {"2", "2", 1100, 1000, 0},
		"no version":                   {"", "1", 1100, 1000, 0},
		"started before the leader":    {"2", "1", 900, 1000, 0},
		"not registered yet":           {"2", "1", 0, 1000, 0},
		"of a leader without a record": {"2", "", 1100, 0, 0},
	} {
		r := Registry{opts: RegistryOptions{Version: tt.version}}
		r.started.Store(tt.started)
		r.places.follow([]string{"leader"})
		if tt.began != 0 {
			r.places.note(Instance{ID: "leader", Version: tt.leads, StartedAt: time.Unix(tt.began, 0)})
		}
		require.Equal(t, tt.want, r.newer("leader"), name)
		require.Zero(t, r.newer("another"), name)
	}
}
