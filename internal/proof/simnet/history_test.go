package simnet_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Everything here sleeps in virtual time.

func TestRestart(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", once)
		check(t, increment.Run(ctx, c, []string{"n"}, 3_600_000).Err())
		check(t, c.Set(ctx, "short", "1", 5*time.Second).Err())
		before := s.ReplicationID()
		s.Restart(true, 10*time.Second)
		time.Sleep(time.Second)
		if err := c.Get(ctx, "n").Err(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal("want refused, got", err)
		}
		time.Sleep(10 * time.Second)
		equal(t, "kept", c.Get(ctx, "n").Val(), "1")
		equal(t, "expired meanwhile", c.Exists(ctx, "short").Val(), 0)
		if err := increment.EvalSha(ctx, c, []string{"n"}, 1000).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Fatal("the scripts survived:", err)
		}
		s.Restart(false, 0)
		time.Sleep(time.Second)
		equal(t, "lost", c.Exists(ctx, "n").Val(), 0)
		if s.ReplicationID() == before {
			t.Error("the replication ID stayed")
		}
	})
}

// fill writes every type, and describe reads it back.
func fill(t *testing.T, c *redis.Client) {
	t.Helper()
	check(t, c.Set(ctx, "string", "s", 0).Err())
	check(t, c.Set(ctx, "lease", "s", 30*time.Second).Err())
	check(t, c.HSet(ctx, "hash", "a", "1", "b", "2").Err())
	check(t, c.Expire(ctx, "hash", time.Minute).Err())
	check(t, c.SAdd(ctx, "set", "x", "y").Err())
	check(t, c.RPush(ctx, "list", "p", "q").Err())
	check(t, c.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "m"}, redis.Z{Score: 9007199254740991, Member: "n"}).Err())
	for i := range 3 {
		check(t, c.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []string{"i", fmt.Sprint(i)}}).Err())
	}
}

func describe(c *redis.Client) string {
	return fmt.Sprint(c.Get(ctx, "string").Val(), c.Get(ctx, "lease").Val(), c.HGetAll(ctx, "hash").Val(), c.SMembers(ctx, "set").Val(),
		c.LRange(ctx, "list", 0, -1).Val(), c.ZRangeWithScores(ctx, "zset", 0, -1).Val(), c.XRange(ctx, "stream", "-", "+").Val())
}

func TestFailoverToSnapshot(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", nil)
		fill(t, c)
		want, snap := describe(c), s.Snapshot()
		equal(t, "keys", fmt.Sprint(snap.Keys()), "[hash lease list set stream string zset]")
		check(t, c.Set(ctx, "later", "1", 0).Err())
		check(t, c.XTrimMaxLen(ctx, "stream", 1).Err())
		check(t, c.HDel(ctx, "hash", "a").Err())
		check(t, c.ZAdd(ctx, "zset", redis.Z{Score: 70, Member: "later"}).Err())
		check(t, c.SAdd(ctx, "set", "later").Err())
		check(t, c.RPush(ctx, "list", "later").Err())
		time.Sleep(10 * time.Second)

		s.Failover(snap, -5*time.Second)
		equal(t, "data", describe(c), want)
		equal(t, "later", c.Exists(ctx, "later").Val(), 0)
		between(t, "TTL by the new clock", c.PTTL(ctx, "lease").Val(), 24*time.Second, 25*time.Second)
		equal(t, "no TTL", c.PTTL(ctx, "string").Val(), -1)
		between(t, "TIME behind", time.Until(c.Time(ctx).Val()), -6*time.Second, -5*time.Second)

		s.Failover(snap, 40*time.Second)
		equal(t, "expired by the new clock", c.Exists(ctx, "lease").Val(), 0)
		between(t, "not yet", c.PTTL(ctx, "hash").Val(), 14*time.Second, 15*time.Second)
		time.Sleep(30 * time.Second)
		equal(t, "expired later", c.Exists(ctx, "hash").Val(), 0)
		s.Failover(nil, 0)
		equal(t, "kept", c.Exists(ctx, "stream").Val(), 1)
		s.FlushAll()
		s.Restore(snap)
		equal(t, "restored", c.Exists(ctx, "stream", "hash").Val(), 1)
	})
}

func TestOperator(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", nil)
		fill(t, c)
		equal(t, "Del", s.Del("lease"), true)
		equal(t, "Del again", s.Del("lease"), false)
		equal(t, "Evict", s.Evict("hash"), true)
		equal(t, "left", c.DBSize(ctx).Val(), 5)
		check(t, increment.Run(ctx, c, []string{"n"}, 1000).Err())
		s.FlushAll()
		equal(t, "left", c.DBSize(ctx).Val(), 0)
		check(t, increment.EvalSha(ctx, c, []string{"n"}, 1000).Err())
		s.ScriptFlush()
		if err := increment.EvalSha(ctx, c, []string{"n"}, 1000).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Fatal("the scripts survived:", err)
		}
	})
}

func TestSecondMaster(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		a, b := n.Client("a", nil), n.Client("b", nil)
		check(t, a.Set(ctx, "k", "old", 0).Err())
		replica := s.Promote(nil, 3*time.Second)
		check(t, b.Set(ctx, "k", "new", 0).Err())
		equal(t, "for those still connected", a.Get(ctx, "k").Val(), "old")
		equal(t, "for new connections", b.Get(ctx, "k").Val(), "new")
		between(t, "the replica's clock", time.Until(replica.Now()), 3*time.Second, 3*time.Second)
		s.Stop()
		time.Sleep(time.Second)
		equal(t, "once the old one has stopped", a.Get(ctx, "k").Val(), "new")
	})
}

func TestTrace(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		n.Trace.Add(simnet.Event{Host: "test", What: "mark", Detail: "here"})
		before := n.Trace.Digest()
		warm(t, n.Client("a", nil))
		if n.Trace.Digest() == before {
			t.Error("the digest stayed")
		}
		equal(t, "first event", n.Trace.Events()[0].Detail, "here")
		equal(t, "events", len(n.Trace.Events()), int(n.Trace.Count()))
		for range 5000 {
			n.Trace.Add(simnet.Event{At: time.Hour, What: "many"})
		}
		equal(t, "events kept", len(n.Trace.Events()), 4096)
		s.Do(func(m *miniredis.Miniredis) { equal(t, "Do", m.Exists("none"), false) })
	})
}
