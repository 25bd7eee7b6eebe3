package tenure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
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

// TestAddressOfALeaderThatWasStartedAnew: a process that leads under the ID of the last leader is
// found where it is, and counts with its own version, whether anybody else led in between or not.
func TestAddressOfALeaderThatWasStartedAnew(t *testing.T) {
	inCluster(t, func(c *cluster) {
		at := func(address, version string) func(*Options) {
			return func(o *Options) { o.Registry.Address, o.Registry.Version = address, version }
		}
		a := c.member("a", at("a:80", "1")).start()
		c.pass(time.Minute)
		b := c.member("b", at("b:80", "2"))
		b.Elector().SetEligible(false)
		b.start()
		c.pass(time.Minute)
		leads := func() string {
			c.Helper()
			var err *NotLeaderError
			require.ErrorAs(c, b.Elector().Do(context.Background(), func(context.Context, Term) error { return nil }), &err)
			require.Equal(c, "a", err.Leader)
			return err.Address
		}
		require.Equal(c, "a:80", leads())
		require.Equal(c, time.Minute, b.Registry().newer("a"))

		a.crash()
		a = c.member("a", at("a:81", "2")).start() // within the lease of the one that is gone
		c.pass(time.Minute)
		require.Equal(c, "a:81", leads())
		require.Zero(c, b.Registry().newer("a"))

		for _, m := range []*instance{a, b} {
			_, stopped := m.stop()
			require.NoError(c, stopped)
		}
	})
}

// TestAddressIsAskedForAgain: a leader whose record cannot be read at first is found later.
func TestAddressIsAskedForAgain(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Registry.Address = "a:80" }).start()
		c.pass(67 * time.Second) // in the middle between two heartbeats
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
		ctx, cancel = context.WithCancelCause(context.Background())
		forever = waits(ctx, 1000)
		c.pass(time.Minute)
		c.redis.Intercept(func(_, _ string, args []string) string {
			if slices.Contains(args, "tenure:instances") {
				return outage
			}
			return ""
		})
		c.pass(10 * time.Second)
		cancel(cause)
		err = <-forever
		require.ErrorIs(c, err, cause)
		require.ErrorIs(c, err, ErrUnreachable, "the last count had no answer")
		c.redis.Intercept(func(string, string, []string) string { return "" })
		for _, n := range []int{-1, 100_001} {
			require.ErrorIs(c, a.Registry().WaitFor(context.Background(), n), ErrMisconfigured)
		}
		for _, m := range []*instance{a, b, d} {
			_, err := m.stop()
			require.NoError(c, err)
		}
	})
}

// hangingCounts is a client that does not return from a count, whatever the context of that says.
type hangingCounts struct {
	store.Registry
	hang atomic.Int64  // so many of the next ones
	till chan struct{} // when it is closed they return
}

func (h *hangingCounts) Count(ctx context.Context, drifted, down time.Duration) (store.CountReply, error) {
	if h.hang.Add(-1) >= 0 {
		<-h.till
	}
	return h.Registry.Count(context.WithoutCancel(ctx), drifted, down)
}

// TestWaitForBesideACountThatHangs: one count that hangs does not keep others from being made, and
// who stops waiting hears that the last ones had no answer.
func TestWaitForBesideACountThatHangs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a")
		counts := &hangingCounts{Registry: a.Registry().store, till: make(chan struct{})}
		a.Registry().store = counts
		a.start()
		ctx, cancel := context.WithCancelCause(context.Background())
		waits := func(n int) <-chan error {
			done := make(chan error, 1)
			go func() { done <- a.Registry().WaitFor(ctx, n) }() // ends with what it waits for
			return done
		}
		c.pass(time.Minute)
		two := waits(2)
		c.pass(time.Minute)
		counts.hang.Store(1)
		c.pass(time.Minute)
		require.Negative(c, counts.hang.Load())
		b := c.member("b").start()
		c.pass(time.Minute)
		require.Len(c, two, 1, "the counts behind it are made")
		require.NoError(c, <-two)

		forever := waits(1000)
		c.pass(time.Minute)
		counts.hang.Store(1000)
		c.pass(time.Minute)
		cause := fmt.Errorf("no more patience")
		cancel(cause)
		err := <-forever
		require.ErrorIs(c, err, cause)
		require.ErrorIs(c, err, ErrUnreachable)
		close(counts.till)
		for _, m := range []*instance{a, b} {
			_, err := m.stop()
			require.NoError(c, err)
		}
	})
}

// TestTasksHeldBesideACountThatHangs: that the instances cannot be counted is a fault of Redis.
func TestTasksHeldBesideACountThatHangs(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Tasks.MinInstances = 2 })
		counts := &hangingCounts{Registry: a.Registry().store, till: make(chan struct{})}
		counts.hang.Store(1000)
		a.Registry().store = counts
		a.start()
		c.pass(time.Minute)
		held := a.seen(func(e Event) bool { return e.Type == EventTasksHeld })
		require.Len(c, held, 1)
		require.ErrorIs(c, held[0].Err, ErrUnreachable)
		close(counts.till)
		_, err := a.stop()
		require.NoError(c, err)
	})
}

// cutListing has a record that no index counts, and more entries than a listing looks at.
type cutListing struct{ store.Registry }

func (cutListing) Count(context.Context, time.Duration, time.Duration) (store.CountReply, error) {
	return store.CountReply{Records: 1}, nil
}

func (s cutListing) Scan(ctx context.Context, _ string, onlyNew bool) (store.ScanReply, error) {
	page, err := s.Registry.Scan(ctx, "0", onlyNew)
	if !onlyNew {
		page.Next, page.Malformed = "1", maxInstances-5
	}
	return page, err
}

// TestTasksStartBesideAListingThatIsCut: enough instances were counted, and there may be more.
func TestTasksStartBesideAListingThatIsCut(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Tasks.MinInstances = 2 })
		ran := 0
		require.NoError(c, a.Tasks().Register(Task{Name: "t", Schedule: Every(time.Minute), Run: func(context.Context, TaskRun) error { ran++; return nil }}))
		a.Registry().store = cutListing{a.Registry().store}
		a.start()
		c.until(time.Minute, a.IsLeader)
		c.pass(5 * time.Minute)
		require.Zero(c, ran, "it is alone")
		c.member("b").start()
		c.pass(5 * time.Minute)
		require.NotZero(c, ran)
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
		c.redis.Intercept(func(_, cmd string, args []string) string {
			if strings.EqualFold(cmd, "zcount") && args[0] == "tenure:beats:words" {
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
		require.GreaterOrEqual(c, scans, 2*4)
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

// TestCountsAfterAnOutage: a leader whose term begins with it counts the others before they can
// have sent a heartbeat. Nobody is marked then, so that no hint says that they are back.
func TestCountsAfterAnOutage(t *testing.T) {
	for name, act := range map[string]func(c *cluster){
		"Redis stands still":     func(c *cluster) { c.redis.Pause(4 * time.Minute) },
		"its clock is set ahead": func(c *cluster) { c.redis.StepClock(90 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				var counted atomic.Pointer[Counts]
				a, b := c.pair()
				for _, m := range []*instance{a, b} {
					m.Observe(func(e Event) {
						if e.Type == EventClusterChanged {
							counted.Store(e.Counts)
						}
					})
				}
				c.pass(time.Minute)
				act(c)
				c.pass(5 * time.Minute)
				synctest.Wait()
				require.Equal(c, Counts{Active: 2, Total: 2}, *counted.Load())
			})
		})
	}
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
		r.places.lead("", "leader")
		if tt.began != 0 {
			r.places.note(Instance{ID: "leader", Version: tt.leads, StartedAt: time.Unix(tt.began, 0)})
		}
		require.Equal(t, tt.want, r.newer("leader"), name)
		require.Zero(t, r.newer("another"), name)
	}
}

// chatty are options of a registry that say everything there is to say.
func chatty(o *Options) {
	r := &o.Registry
	r.WorkerCount, r.WorkerID, r.Address, r.Host, r.Version = 4, 7, "https://10.0.0.7:8443/api", "node-1", "v1.2.3+build.7"
	r.Ports, r.Roles, r.Capabilities = map[string]int{"http": 8080, "grpc": 9090}, []string{"gateway", "worker"}, []string{"gpu"}
	r.Load, r.LoadLimit = Load{Connections: 12, Jobs: 3, CPU: 0.25, Memory: 0.5}, Load{Jobs: 8, CPU: 0.75}
	r.Metadata = map[string]string{"zone": "a"}
}

// TestWhatAnInstanceSays: the record holds it under names that are a contract, and it reads back as
// it was said.
func TestWhatAnInstanceSays(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("pod-0", chatty)
		m.setStatus(InstanceActive)
		m.beats()
		var record map[string]json.RawMessage
		text := w.record("pod-0")
		require.NoError(w, json.Unmarshal([]byte(text), &record))
		for field, want := range map[string]string{
			"worker_count": "4", "worker_id": "7", "address": `"https://10.0.0.7:8443/api"`, "host": `"node-1"`, "version": `"v1.2.3+build.7"`,
			"ports": `{"grpc":9090,"http":8080}`, "roles": `["gateway","worker"]`, "capabilities": `["gpu"]`,
			"load": `{"connections":12,"jobs":3,"cpu":0.25,"memory":0.5}`, "load_limit": `{"jobs":8,"cpu":0.75}`, "metadata": `{"zone":"a"}`,
		} {
			require.Equal(w, want, string(record[field]), "%s of %s", field, text)
		}
		require.NotContains(w, record, "leading", "what is not said is left out")

		i, err := m.Instance(w.Context(), "pod-0")
		require.NoError(w, err)
		require.Equal(w, m.opts.profile(), profileOf(i))
		require.Equal(w, "pod-0-1", i.Incarnation, "it is tenure's record")
		require.True(w, i.HasRole("worker") && i.HasCapability("gpu") && i.CanAcceptWork())
		require.False(w, i.HasRole("gpu") || i.HasRole("") || i.HasCapability("worker"))
		require.InDelta(w, 0.375, i.Load.Mean(), 1e-9)

		// Marked by a sweep it keeps all of it.
		w.silence(70*time.Second, "pod-0")
		leader := w.member("leader")
		leader.pass(leader.watched())
		require.Equal(w, strings.Replace(text, `"status":"active"`, `"status":"drifted"`, 1), w.record("pod-0"))
		i, err = leader.Instance(w.Context(), "pod-0")
		require.NoError(w, err)
		require.Equal(w, m.opts.profile(), profileOf(i))
		require.False(w, i.CanAcceptWork(), "it has drifted")
	})
}

func profileOf(i Instance) store.Profile {
	return store.Profile{
		WorkerCount: i.WorkerCount, WorkerID: i.WorkerID, Address: i.Address, Host: i.Host, Version: i.Version, Ports: i.Ports, Roles: i.Roles,
		Capabilities: i.Capabilities, Load: store.Load(i.Load), LoadLimit: store.Load(i.LoadLimit), Metadata: i.Metadata,
	}
}

func TestCanAcceptWork(t *testing.T) {
	at := func(state InstanceState, load, limit Load) bool {
		return Instance{State: state, Load: load, LoadLimit: limit}.CanAcceptWork()
	}
	full := Load{Connections: math.MaxInt32, Jobs: math.MaxInt32, CPU: 1, Memory: 1}
	require.True(t, at(InstanceActive, full, Load{}), "without limits it takes everything")
	for _, state := range []InstanceState{InstanceJoining, InstanceDraining, InstanceDrifted, InstanceDown, InstanceUnknown, "dead", ""} {
		require.False(t, at(state, Load{}, Load{}), "%s", state)
	}
	for _, limit := range []Load{{Connections: 10}, {Jobs: 10}, {CPU: 0.5}, {Memory: 0.5}} {
		require.True(t, at(InstanceActive, Load{Connections: 9, Jobs: 9, CPU: 0.4, Memory: 0.4}, limit))
		require.False(t, at(InstanceActive, Load{Connections: 10, Jobs: 10, CPU: 0.5, Memory: 0.5}, limit), "%+v", limit)
	}
}

// TestLimitsOfWhatIsSaid: each problem names field and value, and nothing of it reaches Redis.
func TestLimitsOfWhatIsSaid(t *testing.T) {
	many := func(n, length int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("%0*d", length, i))
		}
		return names
	}
	crowd := make(map[string]int)
	for _, name := range many(17, 4) {
		crowd[name] = 1
	}
	for name, c := range map[string]struct {
		set  func(*RegistryOptions)
		says string // "": nothing is wrong
	}{
		"all":               {func(r *RegistryOptions) { *r = fullest() }, ""},
		"worker ID":         {func(r *RegistryOptions) { r.WorkerID = -1 }, "Registry.WorkerID = -1: must be between 0 and 1048576"},
		"newline":           {func(r *RegistryOptions) { r.Address = "a\r\nSet-Cookie: x" }, `Registry.Address = "a\r\nSet-Cookie: x": must match`},
		"escape":            {func(r *RegistryOptions) { r.Host = "\x1b[2J" }, `Registry.Host = "\x1b[2J": must match`},
		"long address":      {func(r *RegistryOptions) { r.Address = strings.Repeat("x", 257) }, "Registry.Address = "},
		"any host":          {func(r *RegistryOptions) { r.Address = ":8080" }, `Registry.Address = ":8080": must have the host that others reach`},
		"any IPv4":          {func(r *RegistryOptions) { r.Address = "0.0.0.0:8080" }, `Registry.Address = "0.0.0.0:8080": must have the host`},
		"any IPv6":          {func(r *RegistryOptions) { r.Address = "[::]:8080" }, `Registry.Address = "[::]:8080": must have the host`},
		"URL of any host":   {func(r *RegistryOptions) { r.Address = "http://:http/x" }, `Registry.Address = "http://:http/x": must have the host`},
		"URL of any IP":     {func(r *RegistryOptions) { r.Address = "https://[::ffff:0.0.0.0]" }, `Registry.Address = "https://[::ffff:0.0.0.0]": must have the host`},
		"this machine":      {func(r *RegistryOptions) { r.Address = "[::1]:8080" }, ""},
		"a socket":          {func(r *RegistryOptions) { r.Address = "unix:///run/app:1.sock" }, ""},
		"quote":             {func(r *RegistryOptions) { r.Version = `1"` }, `Registry.Version = "1\"": must match`},
		"port 0":            {func(r *RegistryOptions) { r.Ports = map[string]int{"http": 0} }, `Registry.Ports["http"] = 0: must be between 1 and 65535`},
		"port 65536":        {func(r *RegistryOptions) { r.Ports = map[string]int{"http": 65536} }, `Registry.Ports["http"] = 65536`},
		"port without name": {func(r *RegistryOptions) { r.Ports = map[string]int{"": 1} }, `Registry.Ports = "": must have names`},
		"17 ports":          {func(r *RegistryOptions) { r.Ports = crowd }, "Registry.Ports = 17 ports: must have at most 16"},
		"blank":             {func(r *RegistryOptions) { r.Roles = []string{"a", "b c"} }, `Registry.Roles[1] = "b c": must match`},
		"twice":             {func(r *RegistryOptions) { r.Roles = []string{"a", "a"} }, `Registry.Roles[1] = "a": is there twice`},
		"65 roles":          {func(r *RegistryOptions) { r.Roles = many(65, 4) }, "Registry.Roles = 65 names, 260 bytes: must have at most 64 names and 4096 bytes"},
		"too many bytes":    {func(r *RegistryOptions) { r.Capabilities = many(33, 128) }, "Registry.Capabilities = 33 names, 4224 bytes"},
		"CPU in percent":    {func(r *RegistryOptions) { r.Load.CPU = 50 }, "Registry.Load.CPU = 50: must be between 0 and 1"},
		"no number":         {func(r *RegistryOptions) { r.Load.Memory = math.NaN() }, "Registry.Load.Memory = NaN: must be between 0 and 1"},
		"endless":           {func(r *RegistryOptions) { r.LoadLimit.CPU = math.Inf(1) }, "Registry.LoadLimit.CPU = +Inf"},
		"negative jobs":     {func(r *RegistryOptions) { r.LoadLimit.Jobs = -1 }, "Registry.LoadLimit.Jobs = -1: must be between 0 and 2147483647"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := completed(func(o *Options) { c.set(&o.Registry) })
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, ErrMisconfigured)
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "\x1b")
			require.Less(t, len(err.Error()), 1000)
		})
	}
	require.Empty(t, defaultHost(func() (string, error) { return "a host", nil }), "a name that cannot be published")
}

// fullest says as much as may be said.
func fullest() RegistryOptions {
	r := RegistryOptions{
		WorkerCount: store.MaxWorkers, WorkerID: store.MaxWorkers, Address: strings.Repeat("&", 256), Host: strings.Repeat("h", 253),
		Version: strings.Repeat("v", 128), Ports: make(map[string]int), Metadata: make(map[string]string),
		Load:      Load{Connections: math.MaxInt32, Jobs: math.MaxInt32, CPU: 1 / 3.0, Memory: 1 / 3.0},
		LoadLimit: Load{Connections: math.MaxInt32, Jobs: math.MaxInt32, CPU: 1 / 3.0, Memory: 1 / 3.0},
	}
	for i := range store.MaxPorts {
		r.Ports[fmt.Sprintf("%064d", i)] = 65535
	}
	for i := range store.MaxNames {
		r.Roles = append(r.Roles, fmt.Sprintf("%064d", i))
		r.Capabilities = append(r.Capabilities, fmt.Sprintf("%064d", i))
	}
	for i := range store.MaxMetadataPairs {
		r.Metadata[fmt.Sprintf("%02d", i)] = strings.Repeat("\x01", 126)
	}
	return r
}

// TestFullestRecordIsRead: a record that says as much as may be said is read by everybody.
func TestFullestRecordIsRead(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("a", func(o *Options) { o.Registry = fullest() })
		var led []string
		for i := range 100 {
			led = append(led, fmt.Sprintf("%0100d", i))
		}
		m.elections.leading = func(roles []string) []string { return append(roles, led...) }
		m.beats()
		require.Less(w, len(w.record("a")), 60_000)
		i, err := m.Instance(w.Context(), "a")
		require.NoError(w, err)
		require.Equal(w, m.opts.profile(), profileOf(i))
		require.Equal(w, led[:40], i.Leading, "the first 4 KiB of names")
		require.Less(w, i.size(), 32<<10)
	})
}

// TestHostileProfiles: of what another program wrote only that is believed which an instance of
// tenure may say. The rest of the record stays as it is.
func TestHostileProfiles(t *testing.T) {
	names := func(n, length int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`"%0*d"`, length, i)
		}
		return strings.Join(all, ",")
	}
	for record, want := range map[string]store.Profile{
		`{"address":"a\nb","host":"a b","version":"\u001b[2J","worker_id":-1}`:          {},
		`{"address":7,"host":[],"version":{},"worker_id":"x","ports":[],"roles":{}}`:    {},
		`{"address":"x:1","host":"h","version":"1","worker_id":1e300,"load":{"cpu":9}}`: {Address: "x:1", Host: "h", Version: "1", WorkerID: 1 << 20, Load: store.Load{CPU: 1}},
		`{"roles":["a",7,null,"","b c","d"],"capabilities":"gpu","load":[1]}`:           {Roles: []string{"a", "d"}},
		`{"roles":[` + names(65, 2) + `],"capabilities":[` + names(40, 128) + `]}`:      {},
		`{"ports":{"http":80,"x":0,"y":65536,"z":1.5,"a b":9,"w":"80"}}`:                {Ports: map[string]int{"http": 80}},
		`{"load":{"connections":-1,"jobs":1e300,"cpu":-1,"memory":"x"}}`:                {Load: store.Load{Jobs: math.MaxInt32}},
		`{"load":{"cpu":0.5},"load_limit":{"cpu":0.5},"labels":{"zone":"a"},"more":1}`:  {Load: store.Load{CPU: 0.5}, LoadLimit: store.Load{CPU: 0.5}},
	} {
		i, ok := store.ParseInstance(record)
		require.True(t, ok)
		require.Equal(t, want, i.Profile, record)
		require.Empty(t, i.Incarnation)
	}
	i, ok := store.ParseInstance(`{"leading":["","a","b c",null,7]}`)
	require.True(t, ok)
	require.Equal(t, []string{"", "a"}, i.Leading)

	w := miniRegistry(t)
	const theirs = `{"status":"degraded","address":"10.0.0.1:80","zone":{"rack":7},"more":[1,2]}`
	w.foreign("x", theirs)
	w.foreign("..", theirs) // which tenure itself refuses
	m := w.member("reader")
	m.pass(m.watched())
	require.JSONEq(t, theirs, w.record("x"), "what tenure does not know stays")
	x, err := m.Instance(t.Context(), "x")
	require.NoError(t, err)
	require.Equal(t, InstanceState("degraded"), x.State)
	require.Equal(t, "10.0.0.1:80", x.Address)
	require.False(t, x.CanAcceptWork())
	dots, err := m.Instance(t.Context(), "..")
	require.NoError(t, err)
	require.Equal(t, "10.0.0.1:80", dots.Address)
}

// TestRecordOfTheLeader: the record says what the instance leads, from the heartbeat after it on.
func TestRecordOfTheLeader(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", chatty)
		_, err := a.AddRole("cleanup", ElectionOptions{})
		require.NoError(c, err)
		a.start()
		c.pass(time.Minute)
		read := func() Instance {
			i, err := a.Registry().Instance(context.Background(), "a")
			require.NoError(c, err)
			return i
		}
		require.Equal(c, []string{"", "cleanup"}, read().Leading)
		require.True(c, read().HasRole("cleanup") && read().HasRole("") && read().HasRole("gateway"))
		b := c.member("b")
		_, err = b.AddRole("cleanup", ElectionOptions{})
		require.NoError(c, err)
		b.start()
		c.pass(time.Minute)
		cleanup, _ := a.Role("cleanup")
		require.NoError(c, cleanup.Resign(context.Background()))
		c.pass(20 * time.Second)
		require.Equal(c, []string{""}, read().Leading)
		i, err := a.Registry().Instance(context.Background(), "b")
		require.NoError(c, err)
		require.Equal(c, []string{"cleanup"}, i.Leading)
		for _, m := range []*instance{a, b} {
			_, err = m.stop()
			require.NoError(c, err)
		}
	})
}

// TestLoadWaitsForTheHeartbeat: however often the load is said, it costs no heartbeat.
func TestLoadWaitsForTheHeartbeat(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", chatty).start()
		c.pass(20 * time.Second)
		var calls atomic.Int32
		c.redis.Watch(func(_ time.Time, _, cmd string, args []string) {
			if strings.HasPrefix(strings.ToLower(cmd), "evalsha") && slices.Contains(args, "tenure:instance:a:heartbeat") {
				calls.Add(1)
			}
		})
		for n := range 140 { // 14 s, which have at most one heartbeat
			require.NoError(c, a.Registry().Update(InstanceUpdate{Load: &Load{Jobs: n, CPU: 0.5}}))
			require.Equal(c, Load{Jobs: n, CPU: 0.5}, a.Options().Registry.Load)
			c.pass(100 * time.Millisecond)
		}
		require.LessOrEqual(c, calls.Load(), int32(1))
		c.pass(20 * time.Second)
		i, err := a.Registry().Instance(context.Background(), "a")
		require.NoError(c, err)
		require.Equal(c, Load{Jobs: 139, CPU: 0.5}, i.Load)
		require.False(c, i.CanAcceptWork(), "8 jobs are its limit")

		address := "10.0.0.8:80"
		require.NoError(c, a.Registry().Update(InstanceUpdate{
			Address: &address, Ports: map[string]int{}, Roles: []string{"worker"}, Capabilities: []string{}, LoadLimit: &Load{},
		}))
		c.pass(20 * time.Millisecond)
		i, err = a.Registry().Instance(context.Background(), "a")
		require.NoError(c, err)
		require.Equal(c, address, i.Address, "all else is said at once")
		require.Empty(c, i.Ports)
		require.Equal(c, []string{"worker"}, i.Roles)
		require.Empty(c, i.Capabilities)
		require.Equal(c, "node-1", i.Host, "what an update does not name stays")
		require.True(c, i.CanAcceptWork(), "it has no limits any more")
		for field, wrong := range map[string]InstanceUpdate{
			"InstanceUpdate.Load.CPU":      {Load: &Load{CPU: 2}},
			"InstanceUpdate.Roles[0]":      {Roles: []string{"a b"}},
			`InstanceUpdate.Ports["http"]`: {Ports: map[string]int{"http": -1}},
		} {
			require.ErrorContains(c, a.Registry().Update(wrong), field)
		}
		require.Equal(c, []string{"worker"}, a.Options().Registry.Roles, "what is refused changes nothing")
		_, err = a.stop()
		require.NoError(c, err)
	})
}

// TestOverviewOf: after changes, an overview that reads only what they name says what one of all
// does.
func TestOverviewOf(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx, m := w.Context(), w.member("a")
		record := func(id string) {
			w.rdb.HSet(ctx, "waf:cluster:instances", id, `{"instance_id":"`+id+`","started_at":1,"last_heartbeat":1,"status":"active","worker_count":1,"incarnation":"x"}`)
			w.rdb.ZAdd(ctx, "waf:cluster:beats", redis.Z{Score: float64(w.now()), Member: id})
		}
		m.elections.leader = func(context.Context) (LeaderInfo, error) { return LeaderInfo{InstanceID: "b", Token: 7}, nil }
		for _, id := range []string{"b", "c", "d"} {
			record(id)
		}
		w.rdb.HSet(ctx, "waf:cluster:instances", "x", "{")
		before, listed, err := m.Overview(ctx)
		require.NoError(w, err)
		kept := slices.Clone(listed)
		record("a")
		record("e")
		w.rdb.HDel(ctx, "waf:cluster:instances", "c")
		w.silence(70*time.Second, "d")
		s, all, err := m.OverviewOf(ctx, before, listed, "a", "c", "d", "e", "none")
		require.NoError(w, err)
		require.Equal(w, kept, listed, "what it was given is as it was")
		same, again, err := m.Overview(ctx)
		require.NoError(w, err)
		require.Equal(w, same, s)
		require.Equal(w, 1, s.Counts.Malformed)
		require.Equal(w, []string{"4 instances", "b", "1 drifted"}, []string{fmt.Sprint(s.Counts.Total, " instances"), s.Leader.InstanceID, s.Problems[0]})
		for i := range again {
			require.Equal(w, []any{again[i].ID, again[i].State}, []any{all[i].ID, all[i].State})
		}
	})
}

// TestOverviewAgain: a later Overview has what has changed since, though it parses nothing else,
// and what it returns belongs to the caller.
func TestOverviewAgain(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx, m := w.Context(), w.member("a")
		record := func(id, version string) {
			w.rdb.HSet(ctx, "waf:cluster:instances", id, `{"instance_id":"`+id+`","started_at":1,"last_heartbeat":1,"status":"active","worker_count":1,"incarnation":"x","version":"`+version+`","metadata":{"k":"v"}}`)
			w.rdb.ZAdd(ctx, "waf:cluster:beats", redis.Z{Score: float64(w.now()), Member: id})
		}
		overview := func() string {
			_, all, err := m.Overview(ctx)
			require.NoError(w, err)
			var seen []string
			for _, i := range all {
				seen = append(seen, fmt.Sprint(i.ID, " ", i.State, " ", i.Version, " ", i.Metadata["k"]))
				i.Metadata["k"] = "of the caller"
			}
			return strings.Join(seen, ", ")
		}
		record("b", "v1")
		record("c", "v1")
		require.Equal(w, "b active v1 v, c active v1 v", overview())
		require.Equal(w, "b active v1 v, c active v1 v", overview())
		record("c", "v2")
		w.silence(70*time.Second, "b")
		require.Equal(w, "b drifted v1 v, c active v2 v", overview())
		w.rdb.HSet(ctx, "waf:cluster:instances", "c", "{")
		s, all, err := m.Overview(ctx)
		require.NoError(w, err)
		require.Len(w, all, 1)
		require.Equal(w, 1, s.Counts.Malformed)
		w.rdb.HDel(ctx, "waf:cluster:instances", "b", "c")
		require.Empty(w, overview())
		record("b", "v1")
		require.Equal(w, "b active v1 v", overview())
	})
}

// TestLeaderOfOneRoleOfMany: that one role of a thousand has changed hands costs no more than it
// does of ten. The record of an instance is kept while it leads any of them, and is read once a
// second at most, however many it comes to lead.
func TestLeaderOfOneRoleOfMany(t *testing.T) {
	allocs := make(map[int]float64)
	for _, many := range []int{10, 1000} {
		r := Registry{id: "me", newLeader: newWakeup()}
		for range many {
			r.leaderChanged("", "a")
		}
		require.Len(t, r.newLeader, 1)
		unread, rest := r.places.unread(time.Now())
		require.Equal(t, []string{"a"}, unread)
		require.False(t, rest)
		r.places.note(Instance{ID: "a", Address: "a:80"})
		unread, rest = r.places.unread(time.Now())
		require.Empty(t, unread)
		require.False(t, rest)
		<-r.newLeader
		allocs[many] = testing.AllocsPerRun(5, func() {
			r.leaderChanged("a", "me")
			require.Empty(t, r.newLeader, "its own record is not asked for")
			r.leaderChanged("me", "a")
			r.leaderChanged("a", "b")
			<-r.newLeader
			_, _ = r.places.unread(time.Now())
			r.leaderChanged("b", "")
			r.leaderChanged("", "a")
			<-r.newLeader
		})
		require.Equal(t, "a:80", r.known("a"), "until it is read again")
		at := r.places.byID["a"].at
		unread, rest = r.places.unread(at)
		require.Empty(t, unread)
		require.True(t, rest)
		unread, rest = r.places.unread(at.Add(time.Second))
		require.Equal(t, []string{"a"}, unread)
		require.False(t, rest)
		for range many {
			r.leaderChanged("a", "")
		}
		require.Empty(t, r.places.byID)
	}
	require.InDelta(t, allocs[10], allocs[1000], 1)
}
