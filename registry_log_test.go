package tenure

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

const logKey = "tenure:log"

// line is a change as one line.
func (c Change) line() string {
	line := string(c.Type)
	for _, i := range c.Instances {
		line += " " + i.ID
	}
	return strings.Join(strings.Fields(line+" "+c.InstanceID+" "+c.Reason), " ")
}

// watched collects what a Watch yields, until the cluster is over.
type watched struct {
	mu    sync.Mutex
	lines []string
	at    []time.Duration
}

func (c *cluster) watch(r *Registry) *watched {
	c.Helper()
	w := &watched{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	c.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for change, err := range r.Watch(ctx) {
			w.mu.Lock()
			line := change.line()
			if err != nil {
				line = strings.TrimSpace(line + " error")
			}
			w.lines, w.at = append(w.lines, line), append(w.at, c.now())
			w.mu.Unlock()
		}
	}()
	c.pass(100 * time.Millisecond)
	return w
}

// news are the lines since it was last asked.
func (w *watched) news() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	lines := w.lines
	w.lines = nil
	return lines
}

// TestLog: the log has what changed, in order, and can be read on from any change.
func TestLog(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.pair()
		require.NoError(c, b.Drain(background))
		c.pass(time.Second)
		_, err := b.stop()
		require.NoError(c, err)
		require.NoError(c, a.Elector().Resign(background))
		all, err := a.Registry().Log(background, "", 100)
		require.NoError(c, err)
		var lines []string
		for i, change := range all {
			lines = append(lines, change.line())
			require.False(c, change.Time.IsZero())
			rest, err := a.Registry().Log(background, change.ID, 2)
			require.NoError(c, err)
			require.Equal(c, all[i+1:min(i+3, len(all))], append([]Change{}, rest...))
		}
		require.Equal(c, []string{"joined a", "active a", "elected a", "joined b", "active b", "draining b", "left b", "ended a resigned"}, lines)
		require.Equal(c, all[2].Token, all[7].Token)
		_, err = a.Registry().Log(background, "1-0", 100)
		require.ErrorIs(c, err, ErrNotFound)
		for _, id := range []string{"yesterday", "1", "1-", "-1", "1-2-3", "+1-0", "18446744073709551616-0", "1-99999999999999999999", "000000000000000000001-0"} {
			_, err = a.Registry().Log(background, id, 100)
			require.ErrorIs(c, err, ErrMisconfigured, id)
		}
		_, err = a.Registry().Log(background, "18446744073709551615-18446744073709551615", 100)
		require.ErrorIs(c, err, ErrNotFound)
		none, err := a.Registry().Log(background, "", 0)
		require.NoError(c, err)
		require.Empty(c, none)
		for n := range len(all) + 3 {
			recent, err := c.control("ops").Registry().Recent(background, n)
			require.NoError(c, err)
			require.Equal(c, all[max(0, len(all)-n):], append([]Change{}, recent...))
		}
	})
}

// TestLogOfManyPages: a listing is as long as it is asked for.
func TestLogOfManyPages(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.redis.Do(func(m *miniredis.Miniredis) {
			for i := range 250 {
				_, _ = m.XAdd(logKey, fmt.Sprintf("%d-0", i+1), []string{"event", "joined", "instances", "x y"})
			}
		})
		for limit, want := range map[int]int{1: 2, 100: 200, 101: 202, 250: 500, 1000: 500} {
			all, err := c.control("ops").Registry().Log(background, "", limit)
			require.NoError(c, err)
			require.Len(c, all, want)
		}
	})
}

// longLog has a log that is longer than any is kept, and notes what is asked of it.
type longLog struct {
	store.Registry
	asked, answered int
	err             error // of each question; nil: none
}

func (l *longLog) Log(_ context.Context, _ string, limit int) (reply store.LogReply, err error) {
	if l.err != nil {
		return reply, l.err
	}
	for range limit {
		l.answered++
		reply.Entries = append(reply.Entries, store.LogEntry{ID: fmt.Sprintf("%d-0", l.answered), Event: "joined", Instances: []string{"x"}})
	}
	l.asked++
	return reply, nil
}

func (l *longLog) LogTail(ctx context.Context, limit int) ([]store.LogEntry, error) {
	reply, err := l.Log(ctx, "", limit)
	return reply.Entries, err
}

// TestLogIsReadOnce: whatever the limit, no more is read than the log keeps, in pages of a hundred
// entries.
func TestLogIsReadOnce(t *testing.T) {
	opts, err := completed(func(*Options) {})
	require.NoError(t, err)
	l := &longLog{}
	r := newRegistry(l, newEventBus("me"), opts, leadsNothing)
	all, err := r.Log(t.Context(), "", math.MaxInt)
	require.NoError(t, err)
	require.Len(t, all, store.MaxLog)
	require.Equal(t, store.MaxLog, l.answered)
	require.Equal(t, store.MaxLog/100, l.asked)
	l.answered = 0
	all, err = r.Recent(t.Context(), math.MaxInt)
	require.NoError(t, err)
	require.Len(t, all, store.MaxLog)
	require.Equal(t, store.MaxLog, l.answered)
}

// TestWatchPausesAfterAFailedPage: a page that failed is asked for after a pause, also if the one
// before it was full.
func TestWatchPausesAfterAFailedPage(t *testing.T) {
	opts, err := completed(func(*Options) {})
	require.NoError(t, err)
	l := &longLog{}
	w := watch{r: newRegistry(l, newEventBus("me"), opts, leadsNothing), position: "0-1", follows: true}
	heard := func(Change, error) bool { return true }
	require.True(t, w.turn(t.Context(), heard))
	require.True(t, w.more)
	l.err = ErrUnreachable
	require.True(t, w.turn(t.Context(), heard))
	require.False(t, w.more)
}

// TestWatch: a snapshot, then each change within milliseconds.
func TestWatch(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, b := c.pair()
		w := c.watch(a.Registry())
		require.Equal(c, []string{"snapshot a b"}, w.news())
		d := c.member("d").start()
		c.pass(watchSpacing + 10*time.Millisecond)
		require.Equal(c, []string{"joined d", "active d"}, w.news())
		require.NoError(c, a.Elector().Transfer(background, "b"))
		c.pass(watchSpacing + 10*time.Millisecond)
		require.Equal(c, []string{"ended a transferred", "elected b"}, w.news())
		require.NoError(c, d.Drain(background))
		c.pass(time.Second)
		require.Equal(c, []string{"draining d"}, w.news())
		_, err := d.stop()
		require.NoError(c, err)
		b.crash()
		c.until(time.Minute, a.IsLeader)
		c.pass(10 * time.Minute)
		require.Equal(c, []string{"left d", "ended b lapsed", "elected a", "drifted b", "down b"}, w.news())
	})
}

// TestWatchWithoutHints: a lost hint costs watchInterval, and so does a Control.
func TestWatchWithoutHints(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.pair()
		w := c.watch(c.control("ops").Registry())
		require.Equal(c, []string{"snapshot a b"}, w.news())
		c.pass(time.Minute)
		joined := c.now()
		c.member("d").start()
		c.pass(watchInterval)
		require.Equal(c, []string{"joined d", "active d"}, w.news())
		require.LessOrEqual(c, w.at[len(w.at)-1]-joined, watchInterval)
	})
}

// TestWatchMissesNothing: if the log was cut off behind what was read, or lost, there is another
// snapshot. An outage is one error.
func TestWatchMissesNothing(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		w := c.watch(a.Registry())
		require.Equal(c, []string{"snapshot a b"}, w.news())
		c.del(logKey)
		c.pass(watchInterval)
		require.Equal(c, []string{"snapshot a b"}, w.news(), "of an empty log")
		c.pass(time.Minute)
		require.Empty(c, w.news())
		c.member("d").start()
		c.pass(time.Second)
		require.Equal(c, []string{"joined d", "active d"}, w.news())
		c.del(logKey)
		c.pass(watchInterval)
		require.Equal(c, []string{"snapshot a b d"}, w.news())
		c.redis.Do(func(m *miniredis.Miniredis) {
			for i := range logPage {
				_, _ = m.XAdd(logKey, "*", []string{"event", "joined", "instances", fmt.Sprint("x", i)})
			}
		})
		c.pass(watchInterval)
		require.Equal(c, []string{"snapshot a b d"}, w.news(), "nothing says what was cut off a log that was empty")
		c.redis.Do(func(m *miniredis.Miniredis) {
			for i := range 3 * logPage {
				_, _ = m.XAdd(logKey, "*", []string{"event", "joined", "instances", fmt.Sprint("x", i)})
			}
		})
		c.pass(watchInterval)
		require.Len(c, w.news(), 3*logPage, "pages follow each other at once")

		c.refuse(logKey, "LOADING Redis is loading the dataset in memory")
		c.pass(time.Minute)
		require.Equal(c, []string{"error"}, w.news())
		c.redis.Do(func(m *miniredis.Miniredis) {
			_, _ = m.XAdd(logKey, "*", []string{"event", "left", "instances", "x1"})
		})
		c.redis.Intercept(nil)
		c.pass(watchInterval + time.Second)
		require.Equal(c, []string{"left x1"}, w.news())
	})
}

// TestWatchEndsWhereItIsLeft: nothing is yielded to who has left the loop, or whose context is
// done. Each outage is an error of its own.
func TestWatchEndsWhereItIsLeft(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		more := func() {
			for i := range 3 {
				c.redis.Do(func(m *miniredis.Miniredis) {
					_, _ = m.XAdd(logKey, "*", []string{"event", "joined", "instances", fmt.Sprint("x", i)})
				})
			}
		}
		for _, by := range []string{"break", "context"} {
			ctx, cancel := context.WithCancel(background)
			seen := 0
			for change, err := range a.Registry().Watch(ctx) {
				require.NoError(c, err)
				seen++
				if change.Type == ChangeSnapshot {
					more()
					continue
				}
				if by == "break" {
					break
				}
				cancel()
			}
			require.Equal(c, 2, seen, by)
			cancel()
			for change, err := range a.Registry().Watch(ctx) {
				require.Failf(c, "the context is done", "%v %v", change, err)
			}
		}
		for _, err := range a.Registry().Watch(background) {
			require.NoError(c, err)
			break // of the snapshot
		}
		w := c.watch(a.Registry())
		w.news()
		for range 2 {
			c.refuse(logKey, "LOADING Redis is loading the dataset in memory")
			c.pass(time.Minute)
			require.Equal(c, []string{"error"}, w.news())
			c.redis.Intercept(nil)
			c.pass(time.Minute)
			require.Empty(c, w.news())
		}
	})
}

// TestWatchFloodIsBounded: hints without end are not reads without end.
func TestWatchFloodIsBounded(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a, _ := c.pair()
		c.watch(a.Registry())
		reads := 0
		c.redis.Intercept(func(_, _ string, args []string) string {
			if len(args) > 0 && args[0] == logKey {
				reads++
			}
			return ""
		})
		for range 1000 {
			a.Registry().changed()
			c.pass(time.Millisecond)
		}
		require.LessOrEqual(c, reads, int(time.Second/watchSpacing)+2)
		require.GreaterOrEqual(c, reads, 10)
	})
}

// TestStandaloneLog: without Redis the log has the same, and who watches hears of it at once.
func TestStandaloneLog(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{InstanceID: "a"}).start()
		w := c.watch(a.Registry())
		require.Equal(c, []string{"snapshot a"}, w.news())
		require.NoError(c, a.Elector().Resign(background))
		c.pass(2 * watchSpacing)
		require.Equal(c, []string{"ended a resigned"}, w.news())
		require.NoError(c, a.Drain(background))
		c.pass(2 * watchSpacing)
		require.Equal(c, []string{"draining a"}, w.news())
		all, err := a.Registry().Log(background, "", 10)
		require.NoError(c, err)
		var lines []string
		for _, change := range all {
			lines = append(lines, change.line())
		}
		require.ElementsMatch(c, []string{"joined a", "active a", "elected a", "ended a resigned", "draining a"}, lines)
	})
}

// TestChangesAreUntrusted: what anybody may have written to the log is no change, or one of known
// words.
func TestChangesAreUntrusted(t *testing.T) {
	for _, e := range []store.LogEntry{
		{}, {ID: "1-0"}, {ID: "1-0", Event: "exploded", Instances: []string{"a"}}, {ID: "1-0", Event: "joined"}, {ID: "soon", Event: "held"},
		{ID: "1-0", Event: "joined", Instances: []string{"no id", "{x}"}},
	} {
		require.Empty(t, changesOf(e))
	}
	require.Equal(t, []Change{
		{ID: "1-0", Time: store.Time(1), Type: ChangeDown, InstanceID: "a"}, {ID: "1-0", Time: store.Time(1), Type: ChangeDown, InstanceID: "b"},
	}, changesOf(store.LogEntry{ID: "1-0", Event: "down", Instances: []string{"a", "no id", "b"}}))
	require.Equal(t, []Change{{ID: "2-1", Time: store.Time(2), Type: ChangeHeld, Count: 3}}, changesOf(store.LogEntry{ID: "2-1", Event: "held", Count: 3}))
	for event, named := range map[ChangeType]bool{ // whether it is about an instance in any case
		ChangeJoined: true, ChangeActive: true, ChangeDraining: true, ChangeDrifted: true, ChangeRecovered: true, ChangeDown: true, ChangeLeft: true, ChangeElected: true,
		ChangeEnded: false, ChangeHeld: false,
	} {
		require.Len(t, changesOf(store.LogEntry{ID: "1-0", Event: string(event), Instances: []string{"a"}}), 1, event)
		require.Equal(t, named, len(changesOf(store.LogEntry{ID: "1-0", Event: string(event)})) == 0, event)
	}
	for _, id := range []string{"99999999999999999999-0", "9223372036854775807-0", "soon-0", ""} {
		require.Zero(t, timeOfEntry(id), id)
	}
	require.Equal(t, time.Date(2026, 11, 21, 22, 23, 49, 993e6, time.UTC), timeOfEntry("1795299829993-7"))
}

// pushes has an instance push these metrics, as they are when it is asked.
func pushes(metrics func() map[string]float64) func(*Options) {
	return func(o *Options) { o.Registry.Metrics = metrics }
}

// TestMetrics: what the callbacks return travels with the heartbeats, and the leader adds a summary
// of it each 30 s.
func TestMetrics(t *testing.T) {
	inCluster(t, func(c *cluster) {
		var queue atomic.Int64
		queue.Store(3)
		a := c.member("a", pushes(func() map[string]float64 { return map[string]float64{"queue": float64(queue.Load()), "own": 0.5} })).start()
		b := c.member("b", pushes(func() map[string]float64 { return map[string]float64{"queue": 5} })).start()
		c.member("c", func(o *Options) { o.Election.Ineligible = true }).start() // a leader without Metrics would make no summary
		c.pass(time.Second)
		for _, m := range []*instance{a, b} {
			of, err := m.Registry().Metrics(c.Context(), "a")
			require.NoError(c, err)
			require.Equal(c, map[string]float64{"queue": 3, "own": 0.5}, of)
		}
		none, err := b.Registry().Metrics(c.Context(), "c")
		require.NoError(c, err)
		require.Empty(c, none)

		queue.Store(-7)
		c.pass(70 * time.Second)
		history, err := b.Registry().Aggregates(c.Context(), 10)
		require.NoError(c, err)
		require.Len(c, history, 2)
		require.WithinDuration(c, time.Now(), history[0].At, 15*time.Second)
		require.Equal(c, map[string]MetricSummary{
			"queue": {Instances: 2, Sum: -2, Min: -7, Max: 5, Mean: -1},
			"own":   {Instances: 1, Sum: 0.5, Min: 0.5, Max: 0.5, Mean: 0.5},
		}, history[0].Metrics)
		require.True(c, history[1].At.Before(history[0].At))
		latest, err := b.Registry().Aggregates(c.Context(), 1)
		require.NoError(c, err)
		require.Equal(c, history[:1], latest)

		b.crash()
		c.pass(3 * time.Minute)
		gone, err := a.Registry().Metrics(c.Context(), "b")
		require.NoError(c, err)
		require.Empty(c, gone, "what a dead instance has pushed lasts for three intervals")
		latest, err = a.Registry().Aggregates(c.Context(), 1)
		require.NoError(c, err)
		require.Equal(c, 1, latest[0].Metrics["queue"].Instances)
		require.Empty(c, a.told(EventMetricsFailed, EventHeartbeatFailed))
	})
}

// TestMetricsThatFail: nothing of what cannot be pushed is, the fault is reported once, and the
// instance goes on beating.
func TestMetricsThatFail(t *testing.T) {
	many := map[string]float64{}
	for i := range 129 {
		many[fmt.Sprint("m", i)] = 1
	}
	for name, test := range map[string]struct {
		metrics func() map[string]float64
		text    string
	}{
		"panic":      {func() map[string]float64 { panic("no figures") }, "no figures"},
		"bad error":  {func() map[string]float64 { panic(brokenError{is: func() { panic("no figures") }}) }, "a method of its error failed"},
		"too many":   {func() map[string]float64 { return many }, "129 metrics, at most 128 are pushed"},
		"name":       {func() map[string]float64 { return map[string]float64{"a b": 1} }, `the name "a b" must match`},
		"not finite": {func() map[string]float64 { return map[string]float64{"a": math.Inf(1), "b": 1} }, "a is +Inf, which is no finite number"},
		"hangs":      {func() map[string]float64 { time.Sleep(75 * time.Second); return nil }, "has not returned within 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				a := c.member("a", pushes(test.metrics)).start()
				c.pass(100 * time.Second)
				failed := a.witness.told(EventMetricsFailed)
				require.Len(c, failed, 1)
				require.ErrorContains(c, failed[0].Err, test.text)
				require.True(c, strings.HasPrefix(failed[0].Err.Error(), "RegistryOptions.Metrics"))
				got, err := a.Registry().Metrics(c.Context(), "a")
				require.NoError(c, err)
				require.Empty(c, got)
				own, err := a.Registry().Instance(c.Context(), "a")
				require.NoError(c, err)
				require.Equal(c, InstanceActive, own.State)
				if _, err = a.stop(); name == "hangs" {
					require.ErrorContains(c, err, "RegistryOptions.Metrics", "Run names what has not returned")
				} else {
					require.NoError(c, err)
				}
				c.pass(2 * time.Minute)
			})
		})
	}
}

// TestMetricsOfAnySize arrive as they are.
func TestMetricsOfAnySize(t *testing.T) {
	inCluster(t, func(c *cluster) {
		want := map[string]float64{"tiny": 5.551115123125783e-17, "big": 1e33, "long": -1.0 / 3, "least": math.SmallestNonzeroFloat64, "most": -math.MaxFloat64}
		a := c.member("a", pushes(func() map[string]float64 { return want })).start()
		c.pass(time.Second)
		got, err := a.Registry().Metrics(background, "a")
		require.NoError(c, err)
		require.Equal(c, want, got)
	})
}

// TestMetricsBetweenHeartbeats: metrics that are taken more often than heartbeats are sent do not
// expire between two of them.
func TestMetricsBetweenHeartbeats(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", pushes(func() map[string]float64 { return map[string]float64{"x": 1} }), func(o *Options) {
			o.Registry.MetricsInterval = 2 * time.Second
		}).start()
		for range 60 {
			c.pass(time.Second)
			got, err := a.Registry().Metrics(background, "a")
			require.NoError(c, err)
			require.NotEmpty(c, got, "%v", c.now())
		}
	})
}

// TestMetricsOptions: the interval is refused if it is out of its range.
func TestMetricsOptions(t *testing.T) {
	for interval, text := range map[time.Duration]string{
		time.Second / 2: "between 1s and 720h0m0s", 1500 * time.Millisecond: "must be whole seconds", -time.Second: "between 1s",
	} {
		_, err := NewStandalone(Options{Registry: RegistryOptions{MetricsInterval: interval}})
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, "Registry.MetricsInterval")
		require.ErrorContains(t, err, text)
	}
}

// TestStandaloneMetrics: a process alone has the same.
func TestStandaloneMetrics(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.alone(Options{Registry: RegistryOptions{Metrics: func() map[string]float64 { return map[string]float64{"jobs": 2} }}}).start()
		c.pass(time.Minute + time.Second)
		history, err := a.Registry().Aggregates(c.Context(), 200)
		require.NoError(c, err)
		require.Len(c, history, 2)
		require.Equal(c, map[string]MetricSummary{"jobs": {Instances: 1, Sum: 2, Min: 2, Max: 2, Mean: 2}}, history[0].Metrics)
	})
}

// TestHostileMetrics: what others have put in place of metrics is passed over, and what is there is
// bounded.
func TestHostileMetrics(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx, m := w.Context(), w.member("a")
		m.beats()
		keys := store.Keys("waf:cluster")
		w.rdb.HSet(ctx, keys.Metrics("a"), "fine", "1.5", "a b", "1", "nan", "NaN", "inf", "-Inf", "text", "x", "long", strings.Repeat("1", 300))
		got, err := m.Metrics(ctx, "a")
		require.NoError(w, err)
		require.Equal(w, map[string]float64{"fine": 1.5}, got)
		for i := range 200 {
			w.rdb.HSet(ctx, keys.Metrics("a"), fmt.Sprint("m", i), "1")
		}
		got, err = m.Metrics(ctx, "a")
		require.NoError(w, err)
		require.Empty(w, got)
		w.rdb.Del(ctx, keys.Metrics("a"))
		w.rdb.HSet(ctx, keys.Metrics("a"), "fine", "2", strings.Repeat("n", 1<<20), "1", "value", strings.Repeat("1", 1<<20))
		got, err = m.Metrics(ctx, "a")
		require.NoError(w, err)
		require.Equal(w, map[string]float64{"fine": 2}, got)
		w.rdb.Del(ctx, keys.Metrics("a"))
		w.rdb.Set(ctx, keys.Metrics("a"), "spoilt", 0)
		got, err = m.Metrics(ctx, "a")
		require.NoError(w, err)
		require.Empty(w, got)
		_, err = m.Metrics(ctx, "no ID")
		require.ErrorIs(w, err, ErrNotFound)

		m.measured.Store(&[]store.Metric{{Name: "jobs", Value: 4}}) // a beat repairs the key
		m.beats()
		got, err = m.Metrics(ctx, "a")
		require.NoError(w, err)
		require.Equal(w, map[string]float64{"jobs": 4}, got)
		require.InDelta(w, 90, w.rdb.TTL(ctx, keys.Metrics("a")).Val().Seconds(), 1)

		w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: keys.AllMetrics(), Values: []string{
			"jobs", `{"instances":1,"sum":1,"min":1,"max":1,"mean":1}`, "bad", "{", "none", `{"instances":0}`, "a b", "{}",
		}})
		history, err := m.Aggregates(ctx, 5)
		require.NoError(w, err)
		require.Len(w, history, 1)
		require.Equal(w, map[string]MetricSummary{"jobs": {Instances: 1, Sum: 1, Min: 1, Max: 1, Mean: 1}}, history[0].Metrics)
		once := []store.MetricSummary{{Name: "x", Instances: 1, Sum: 1, Min: 1, Max: 1, Mean: 1}}
		for range 2 { // the client's own retry
			require.NoError(w, m.store.Aggregate(ctx, "mark-1", once))
		}
		require.NoError(w, m.store.Aggregate(ctx, "mark-2", once))
		history, err = m.Aggregates(ctx, 5)
		require.NoError(w, err)
		require.Len(w, history, 3)
		require.Len(w, history[0].Metrics, 1)
		nothing, err := m.Aggregates(ctx, 0)
		require.NoError(w, err)
		require.Empty(w, nothing)
	})
}
