package simnet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

var ctx = context.Background()

// bubble runs fn in a synctest bubble with a network of that seed and one server.
func bubble(t *testing.T, seed uint64, fn func(t *testing.T, n *simnet.Network, s *simnet.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := simnet.New(simnet.Options{Seed: seed})
		defer n.Close()
		defer func() {
			if t.Failed() {
				t.Logf("seed %d\n%s", seed, n.Trace.Tail(60))
			}
		}()
		fn(t, n, n.NewServer(simnet.Addr, simnet.ServerOptions{}))
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func between(t *testing.T, what string, got, lo, hi time.Duration) {
	t.Helper()
	if got < lo || got > hi {
		t.Fatalf("%s: %s is not within %s to %s", what, got, lo, hi)
	}
}

// once makes a client fail instead of trying again.
func once(o *redis.Options) {
	o.MaxRetries, o.ReadTimeout = -1, time.Second
	clientopts.Set(o, "DialerRetries", 1)
}

var increment = redis.NewScript(`
	local n = redis.call('INCR', KEYS[1])
	redis.call('PEXPIRE', KEYS[1], ARGV[1])
	local t = redis.call('TIME')
	return {n, t[1], t[2]}`)

func TestEcho(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c, start := n.Client("a", nil), time.Now()
		check(t, c.Set(ctx, "k", "v", 0).Err())
		equal(t, "GET", c.Get(ctx, "k").Val(), "v")
		big := strings.Repeat("x", 100_000)
		check(t, c.Set(ctx, "big", big, 0).Err())
		equal(t, "big GET", c.Get(ctx, "big").Val(), big)
		for want := int64(1); want < 4; want++ { // NOSCRIPT, EVAL, then EVALSHA
			reply, err := increment.Run(ctx, c, []string{"n"}, 5000).Slice()
			check(t, err)
			equal(t, "INCR", reply[0], any(want))
			equal(t, "TIME", reply[1], any(fmt.Sprint(time.Now().Unix())))
		}
		pipe := c.TxPipeline()
		got := pipe.Incr(ctx, "m")
		pipe.PExpire(ctx, "m", time.Second)
		_, err := pipe.Exec(ctx)
		check(t, err)
		equal(t, "MULTI", got.Val(), 1)
		between(t, "virtual time used", time.Since(start), 3*time.Millisecond, 60*time.Millisecond)
		if err := c.BLPop(ctx, time.Second, "list").Err(); err == nil || errors.Is(err, redis.Nil) {
			t.Fatal("a blocking command was taken:", err)
		}
	})
}

func TestResp3AndPool(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", func(o *redis.Options) { o.Protocol = 3; o.DisableIdentity = false })
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { check(t, c.Incr(ctx, "n").Err()) })
		}
		wg.Wait()
		equal(t, "n", c.Get(ctx, "n").Val(), "20")
	})
}

func TestExpiryFollowsVirtualTime(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", nil)
		check(t, c.Set(ctx, "k", "v", 30*time.Second).Err())
		time.Sleep(29 * time.Second)
		equal(t, "before", c.Exists(ctx, "k").Val(), 1)
		time.Sleep(time.Second)
		equal(t, "after", c.Exists(ctx, "k").Val(), 0)
	})
}

func TestPubSub(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		a, b := n.Client("a", nil), n.Client("b", nil)
		sub := b.Subscribe(ctx, "events")
		defer sub.Close()
		_, err := sub.Receive(ctx)
		check(t, err)
		script := redis.NewScript(`return redis.call('PUBLISH', 'events', 'one') + redis.call('PUBLISH', 'events', 'two')`)
		equal(t, "receivers", script.Run(ctx, a, nil).Val(), any(int64(2)))
		for _, want := range []string{"one", "two"} {
			message, err := sub.ReceiveTimeout(ctx, time.Second)
			check(t, err)
			equal(t, "message", message.(*redis.Message).Payload, want)
		}
		start := time.Now()
		_, err = sub.ReceiveTimeout(ctx, 3*time.Second)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatal("want a timeout, got", err)
		}
		between(t, "timeout", time.Since(start), 3*time.Second, 3*time.Second+10*time.Microsecond)

		// After a restart the subscription comes back with the next Receive.
		s.Restart(true, time.Second)
		time.Sleep(2 * time.Second)
		for {
			if message, _ := sub.ReceiveTimeout(ctx, time.Second); message != nil {
				break
			}
		}
		equal(t, "subscribers", a.PubSubNumSub(ctx, "events").Val()["events"], 1)
		check(t, sub.Close())
		time.Sleep(time.Second)
		equal(t, "subscribers after Close", a.PubSubNumSub(ctx, "events").Val()["events"], 0)
	})
}

func TestClockStepAndRate(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", nil)
		ahead := func() time.Duration { return time.Until(c.Time(ctx).Val()).Round(10 * time.Millisecond) }
		check(t, c.Set(ctx, "k", "v", time.Minute).Err())
		s.StepClock(20 * time.Second)
		equal(t, "TIME after a step forward", ahead(), 20*time.Second)
		between(t, "TTL after a step forward", c.PTTL(ctx, "k").Val(), 39*time.Second, 40*time.Second)
		s.StepClock(-50 * time.Second)
		equal(t, "TIME after a step back", ahead(), -30*time.Second)
		between(t, "TTL after a step back", c.PTTL(ctx, "k").Val(), 89*time.Second, 90*time.Second)
		s.SetRate(1.1)
		time.Sleep(50 * time.Second)
		equal(t, "TIME of a fast clock", ahead(), -25*time.Second)
		between(t, "TTL of a fast clock", c.PTTL(ctx, "k").Val(), 34*time.Second, 35*time.Second)
		s.SetRate(1)
		time.Sleep(30 * time.Second)
		s.StepClock(time.Hour)
		equal(t, "expired by a step", c.Exists(ctx, "k").Val(), 0)
	})
}

var history = redis.NewScript(`
	local r = redis.pcall('INFO', 'replication')
	if type(r) == 'table' then return {'refused', r.err} end
	local s = redis.call('INFO', 'server')
	return {string.match(r, 'master_replid:(%x+)\r\n'), string.match(r, 'master_replid2:(%x+)\r\n'),
		string.match(r, 'second_repl_offset:(%-?%d+)\r\n'), string.match(r, 'role:(%a+)\r\n'), string.match(s, 'uptime_in_seconds:(%d+)\r\n')}`)

func TestInfoFromLua(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		a, b := n.Client("a", nil), n.Client("b", nil)
		none := strings.Repeat("0", 40)
		read := func(c *redis.Client) string { return fmt.Sprint(history.Run(ctx, c, nil).Val()) }
		first := s.ReplicationID()
		equal(t, "at the start", read(a), fmt.Sprintf("[%s %s -1 master 3600]", first, none))
		if text := a.Info(ctx, "replication").Val(); !strings.HasPrefix(text, "# Replication\r\nrole:master\r\n") {
			t.Fatalf("INFO outside a script: %q", text)
		}

		s.SetInfo("b", false)
		want := "section (replication) is not supported"
		equal(t, "switched off", read(b), "[refused "+want+"]")
		equal(t, "switched off, outside a script", b.Info(ctx, "replication").Err().Error(), want)
		equal(t, "switched off for another", read(a), fmt.Sprintf("[%s %s -1 master 3600]", first, none))

		s.Restart(true, time.Second)
		time.Sleep(11 * time.Second)
		second := s.ReplicationID()
		equal(t, "after a restart", read(a), fmt.Sprintf("[%s %s -1 master 10]", second, none))
		s.Failover(nil, 0)
		third := s.ReplicationID()
		got := history.Run(ctx, a, nil).Val().([]any)
		equal(t, "after a failover", fmt.Sprint(got[0], got[1], got[3], got[4]), fmt.Sprint(third, second, "master", "3600"))
		if got[2] == "-1" || first == second || second == third {
			t.Fatal("no new history:", got)
		}
	})
}

func TestIntercept(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		a, b := n.Client("a", nil), n.Client("b", nil)
		s.Intercept(func(host, cmd string, args []string) string {
			if host == "a" && cmd == "PUBLISH" {
				return "NOPERM no permissions to access a channel"
			}
			return ""
		})
		script := redis.NewScript(`local r = redis.pcall('PUBLISH', 'c', 'm'); return type(r) == 'table' and r.err or r`)
		equal(t, "a", script.Run(ctx, a, nil).Val(), any("NOPERM no permissions to access a channel"))
		equal(t, "b", script.Run(ctx, b, nil).Val(), any(int64(0)))
		equal(t, "outside a script", a.Publish(ctx, "c", "m").Err().Error(), "NOPERM no permissions to access a channel")
	})
}

// simulate runs hosts that count, ask and publish under every fault, and returns the digest of the
// trace.
func simulate(t *testing.T, seed uint64, hosts int, length time.Duration) (digest uint64, n *simnet.Network) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n = simnet.New(simnet.Options{Seed: seed})
		defer n.Close()
		s := n.NewServer(simnet.Addr, simnet.ServerOptions{})
		n.SetFaults("", simnet.Faults{
			DelayRequest: 0.05, DelayReply: 0.03, DelayMin: 50 * time.Millisecond, DelayMax: 24 * time.Second,
			LoseRequest: 0.01, LoseReply: 0.02, Cut: 0.01, Duplicate: 0.05, DuplicateWithin: 10 * time.Second, Stuck: 0.5,
		})
		life, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		for i := range hosts {
			name := fmt.Sprint("h", i)
			stagger := n.Stagger(name) // here: whoever is asked for first has the first slot
			wg.Go(func() {
				time.Sleep(stagger)
				c := n.Client(name, func(o *redis.Options) { o.ReadTimeout = time.Second })
				sub := c.Subscribe(life, "events")
				defer sub.Close()
				own := rand.New(rand.NewPCG(seed, uint64(i)))
				for life.Err() == nil {
					increment.Run(life, c, []string{name}, 30_000)
					c.Publish(life, "events", name)
					_, _ = sub.ReceiveTimeout(life, time.Duration(1000+own.IntN(2000))*time.Millisecond)
				}
			})
		}
		own := rand.New(rand.NewPCG(seed, 99))
		snap := s.Snapshot()
		for n.Elapsed() < length {
			time.Sleep(time.Duration(own.Int64N(int64(20 * time.Second))))
			host := fmt.Sprint("h", own.IntN(hosts))
			switch own.IntN(9) {
			case 0:
				n.Partition(host, simnet.Both, time.Duration(own.IntN(40_000))*time.Millisecond)
			case 1:
				n.Partition(host, simnet.Replies, time.Duration(own.IntN(40_000))*time.Millisecond)
			case 2:
				s.Restart(own.IntN(2) == 0, time.Duration(own.IntN(5000))*time.Millisecond)
			case 3:
				s.Failover(snap, time.Duration(own.IntN(2000)-1000)*time.Millisecond)
			case 4:
				s.Pause(time.Duration(own.IntN(5000)) * time.Millisecond)
			case 5:
				s.FlushAll()
			case 6:
				s.Del(host)
			case 7:
				n.Cut(host)
			case 8:
				snap = s.Snapshot()
			}
		}
		stop()
		wg.Wait()
		digest = n.Trace.Digest()
	})
	return digest, n
}

func TestSeedReplays(t *testing.T) {
	exact := simnet.Exact(t)
	seen := map[uint64]bool{}
	length := 3 * time.Minute
	if testing.Short() {
		length = time.Minute
	}
	for seed := range uint64(3) {
		first, n := simulate(t, seed, 5, length)
		again, m := simulate(t, seed, 5, length)
		if n.Trace.Count() < 300 {
			t.Errorf("seed %d: only %d events", seed, n.Trace.Count())
		}
		if exact && first != again {
			a, b := n.Trace.Events(), m.Trace.Events()
			for i := range min(len(a), len(b)) {
				if a[i] != b[i] {
					t.Fatalf("seed %d: event %d of %d, %d:\n%v\n%v", seed, i, len(a), len(b), a[i], b[i])
				}
			}
			t.Fatalf("seed %d: %d and %d events", seed, len(a), len(b))
		}
		if seen[first] {
			t.Errorf("seed %d repeats another's trace", seed)
		}
		seen[first] = true
	}
}

// TestSpeed logs how long a simulated hour takes.
func TestSpeed(t *testing.T) {
	start, calls, length := time.Now(), 0, time.Hour
	if !simnet.Exact(t) {
		length = 10 * time.Minute
	}
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				name := fmt.Sprint("h", i)
				c := n.Client(name, nil)
				time.Sleep(n.Stagger(name))
				for n.Elapsed() < length {
					check(t, increment.Run(ctx, c, []string{name}, 30_000).Err())
					time.Sleep(10 * time.Second)
				}
			})
		}
		wg.Wait()
		calls = int(n.Trace.Count()) / 2
	})
	t.Logf("%s of 5 clients, %d calls: %s (race detector: %t)", length, calls, time.Since(start).Round(time.Millisecond), simnet.Race)
}
