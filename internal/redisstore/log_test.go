package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// logged are the entries of the log behind one, as lines, and the ID of the last.
func (c *cluster) logged(t *testing.T, after string) (lines []string, last string) {
	t.Helper()
	reply, err := c.store.Log(t.Context(), after, 1000)
	require.NoError(t, err)
	require.False(t, reply.Gone)
	last = after
	for _, e := range reply.Entries {
		line := e.Event + " " + strings.Join(e.Instances, ",")
		if e.Token != 0 {
			line += fmt.Sprintf(" of %q %v %s", e.Role, e.Token > 0, e.Reason)
		}
		if e.Count != 0 {
			line += fmt.Sprint(" ", e.Count)
		}
		lines, last = append(lines, strings.TrimSpace(line)), e.ID
	}
	return lines, last
}

func beating(id, status string) store.Heartbeat {
	return store.Heartbeat{ID: id, Incarnation: "i-" + id, TTL: time.Minute, TakeOver: time.Minute, Head: `{"instance_id":"` + id + `","started_at":`,
		Rest: `,"status":"` + status + `","worker_count":1,"incarnation":"i-` + id + `","ports":{"status":1}}`}
}

// TestLogScripts: what changes in a namespace is an entry of its log, once, however often the
// script runs.
func TestLogScripts(t *testing.T) {
	onClusters(t, "{tenure}", func(t *testing.T, c *cluster) {
		ctx := t.Context()
		do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
		end, err := c.store.LogEnd(ctx)
		require.NoError(t, err)
		require.Empty(t, end)
		for _, status := range []string{"joining", "active", "active", "draining", "active"} {
			do(c.store.Heartbeat(ctx, beating("a", status)))
			do(c.store.Heartbeat(ctx, beating("a", status)))
		}
		do(c.store.Heartbeat(ctx, beating("b", "active")))
		lines, last := c.logged(t, "")
		require.Equal(t, []string{"joined a", "active a", "draining a", "active a", "joined b", "active b"}, lines)
		end, err = c.store.LogEnd(ctx)
		require.NoError(t, err)
		require.Equal(t, last, end)
		whole, err := c.store.Log(ctx, "", 10)
		require.NoError(t, err)
		tail, err := c.store.LogTail(ctx, 2)
		require.NoError(t, err)
		require.Equal(t, whole.Entries[4:], tail)

		role := c.store.ForRole(store.Role{Name: "r", Key: "{tenure}:leader:r", Holder: "a", TTL: time.Minute, RestartGuard: -1})
		won, err := role.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: time.Minute})
		require.NoError(t, err)
		require.Equal(t, lease.Won, won.Verdict)
		do(role.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: time.Minute}))
		do(role.Renew(ctx, lease.Request{Nonce: "n", Token: won.Token, HoldOff: time.Minute}))
		do(nil, c.rdb.Del(ctx, "{tenure}:leader:r").Err())
		do(nil, c.rdb.HSet(ctx, "{tenure}:leader:r:term", "until", 1).Err())
		won, err = role.Acquire(ctx, lease.Request{Nonce: "m", HoldOff: time.Minute})
		require.NoError(t, err)
		do(role.Release(ctx, lease.Request{Nonce: "m", Token: won.Token, Why: "resigned"}))
		do(role.Release(ctx, lease.Request{Nonce: "m", Token: won.Token, Why: "resigned"}))
		lines, last = c.logged(t, last)
		require.Equal(t, []string{`elected a of "r" true`, `ended a of "r" true lapsed`, `elected a of "r" true`, `ended a of "r" true resigned`}, lines)

		keys := store.Keys("{tenure}")
		silent := func(ids ...string) {
			for _, id := range ids {
				do(nil, c.rdb.ZAdd(ctx, keys.Beats(), redis.Z{Score: 5, Member: id}).Err())
			}
		}
		for _, id := range []string{"c", "d", "e"} {
			do(c.store.Heartbeat(ctx, beating(id, "active")))
		}
		_, last = c.logged(t, last)
		silent("c", "d")
		sweep := store.Sweep{Drifted: time.Minute, Down: 1 << 60, Window: time.Minute, Mark: true, Incarnation: "l", IDs: []string{"a", "c", "d"}}
		do(c.store.Sweep(ctx, sweep))
		do(c.store.Sweep(ctx, sweep))
		do(c.store.Heartbeat(ctx, beating("c", "active")))
		sweep.Remove, sweep.Down = true, time.Hour
		silent("c", "d", "e")
		do(c.store.Sweep(ctx, sweep)) // removes one and holds the others
		do(c.store.Sweep(ctx, sweep))
		do(nil, c.rdb.HSet(ctx, keys.Instances(), "foreign", `{"instance_id":"foreign","status":"active"}`).Err())
		do(c.store.Adopt(ctx, "l", []string{"foreign", "a"}))
		do(c.store.Adopt(ctx, "l", []string{"foreign", "a"}))
		do(c.store.Remove(ctx, "a", "i-a"))
		do(c.store.Remove(ctx, "a", "i-a"))
		lines, _ = c.logged(t, last)
		require.Equal(t, []string{"drifted c,d", "recovered c", "held  2", "down c", "joined foreign", "left a"}, lines)
	})
}

// TestStreamsBeginAnew: an entry with the last ID that there can be, which somebody has put in,
// silences neither the log, nor the history of terms, nor the audit.
func TestStreamsBeginAnew(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	c := clusterOf(t, redistest.Start(t).Options(), "{tenure}")
	ctx, keys := t.Context(), store.Keys("{tenure}")
	role := c.store.ForRole(store.Role{Name: "r", Key: "{tenure}:leader:r", Holder: "a", TTL: time.Minute, RestartGuard: -1})
	streams := []string{keys.Log(), keys.Commands(), store.LeaseTerms("{tenure}:leader:r")}
	for _, key := range streams {
		require.NoError(t, c.rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: "18446744073709551615-18446744073709551615", Values: []string{"event", "forged"}}).Err())
	}
	_, err := c.store.Heartbeat(ctx, beating("a", "joining"))
	require.NoError(t, err)
	_, err = role.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: time.Minute})
	require.NoError(t, err)
	_, err = c.store.SendCommand(ctx, store.Command{ID: "c", Instance: "a", Kind: "drain", By: "me", NotAfter: 1 << 52}, time.Minute)
	require.NoError(t, err)
	for _, key := range streams {
		require.Positive(t, c.rdb.XLen(ctx, key).Val(), key)
		require.NotEqual(t, "forged", c.rdb.XRange(ctx, key, "-", "+").Val()[0].Values["event"], key)
	}
	lines, _ := c.logged(t, "")
	require.Equal(t, []string{"joined a", `elected a of "r" true`}, lines)
}

// TestReadLog: pages go on behind an entry. If that is gone, so may be others, and nothing is read.
func TestReadLog(t *testing.T) {
	onClusters(t, "{tenure}", func(t *testing.T, c *cluster) {
		ctx, key := t.Context(), store.Keys("{tenure}").Log()
		for i := range 5 {
			require.NoError(t, c.rdb.XAdd(ctx, &redis.XAddArgs{Stream: key, ID: fmt.Sprintf("%d-0", i+1), Values: []any{"event", "joined", "instances", fmt.Sprint("a", i), "new", "x"}}).Err())
		}
		ids := func(after string, limit int) (ids []string) {
			reply, err := c.store.Log(ctx, after, limit)
			require.NoError(t, err)
			for _, e := range reply.Entries {
				ids = append(ids, e.ID)
			}
			if reply.Gone {
				ids = append(ids, "gone")
			}
			return ids
		}
		require.Equal(t, []string{"1-0", "2-0"}, ids("", 2))
		require.Equal(t, []string{"3-0", "4-0"}, ids("2-0", 2))
		require.Equal(t, []string{"5-0"}, ids("4-0", 2))
		require.Empty(t, ids("5-0", 2))
		require.Equal(t, []string{"gone"}, ids("6-0", 2))
		require.NoError(t, c.rdb.XTrimMaxLen(ctx, key, 3).Err())
		require.Equal(t, []string{"gone"}, ids("2-0", 2))
		require.Equal(t, []string{"3-0", "4-0", "5-0"}, ids("", 9))
		require.NoError(t, c.rdb.Del(ctx, key).Err())
		require.Equal(t, []string{"gone"}, ids("5-0", 2))
		require.Empty(t, ids("", 2))

		_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range store.MaxLog + 250 {
				p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"event", "noise"}})
			}
			return nil
		})
		require.NoError(t, err)
		_, err = c.store.Heartbeat(ctx, beating("a", "joining"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, c.rdb.XLen(ctx, key).Val(), int64(store.MaxLog))
		require.LessOrEqual(t, c.rdb.XLen(ctx, key).Val(), int64(store.MaxLog+100), "blocks of a hundred")

		require.NoError(t, c.rdb.Del(ctx, key).Err())
		require.NoError(t, c.rdb.Set(ctx, key, "x", 0).Err())
		_, err = c.store.Heartbeat(ctx, beating("b", "joining"))
		require.NoError(t, err, "whatever is wrong with the log")
		_, err = c.store.Log(ctx, "", 1)
		require.ErrorIs(t, err, store.ErrMisconfigured)
		require.ErrorContains(t, err, key)
	})
}

// TestLogInAnotherSlot: one script of a cluster writes keys of one slot.
func TestLogInAnotherSlot(t *testing.T) {
	clustered := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer func() { _ = clustered.Close() }()
	alone := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = alone.Close() }()
	keys := func(rdb redis.UniversalClient, key string) int {
		return len(openStore(rdb, "{tenure}").ForRole(store.Role{Key: key}).keys)
	}
	require.Equal(t, 5, keys(clustered, "{tenure}:leader"))
	require.Equal(t, 4, keys(clustered, "{other}:leader"))
	require.Equal(t, 5, keys(alone, "other"))
}
