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
		_, err = a.Registry().Log(background, "yesterday", 100)
		require.ErrorIs(c, err, ErrMisconfigured)
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
	require.Zero(t, timeOfEntry("99999999999999999999-0"))
}
