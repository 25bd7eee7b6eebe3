package simnet_test

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/simnet"
)

// Everything here sleeps in virtual time.

// counter reads a key past the network.
func counter(s *simnet.Server, key string) (value string) {
	s.Do(func(m *miniredis.Miniredis) { value, _ = m.Get(key) })
	return value
}

// warm gives the client a connection.
func warm(t *testing.T, c *redis.Client) {
	t.Helper()
	check(t, c.Ping(ctx).Err())
}

func timesOut(t *testing.T, what string, err error) {
	t.Helper()
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("%s: want a timeout, got %v", what, err)
	}
}

func TestLatency(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		n.SetFaults("a", simnet.Faults{MinLatency: 30 * time.Millisecond, MaxLatency: 40 * time.Millisecond})
		c := n.Client("a", nil)
		warm(t, c)
		start := time.Now()
		warm(t, c)
		between(t, "round trip", time.Since(start), 60*time.Millisecond, 81*time.Millisecond)
	})
}

func TestPartitionHoldsRequests(t *testing.T) {
	for _, stuck := range []float64{1, 0} {
		bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
			n.SetFaults("a", simnet.Faults{Stuck: stuck})
			a, b := n.Client("a", once), n.Client("b", nil)
			warm(t, a)
			start := time.Now()
			n.Partition("a", simnet.Both, 20*time.Second)
			n.Partition("a", simnet.Both, 5*time.Second) // the longer one prevails
			timesOut(t, "cut off", a.Incr(ctx, "n").Err())
			check(t, b.Set(ctx, "other", "1", 0).Err())

			timesOut(t, "dial", n.Client("a", func(o *redis.Options) { once(o); o.DialTimeout = time.Second }).Ping(ctx).Err())
			warm(t, n.Client("a", func(o *redis.Options) { o.DialTimeout = time.Minute })) // the dial waits for the heal
			between(t, "dial across the heal", time.Since(start), 20*time.Second, 20*time.Second+30*time.Millisecond)
			time.Sleep(time.Second)
			equal(t, "the request of a closed connection", counter(s, "n"), map[float64]string{1: "1", 0: ""}[stuck])
			check(t, a.Incr(ctx, "n").Err())
		})
	}
}

func TestHeldRequestsKeepTheirTimes(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c, err := n.Dialer("a")(ctx, "tcp", simnet.Addr)
		check(t, err)
		n.Partition("a", simnet.Both, 5*time.Second)
		n.SetFaults("a", simnet.Faults{Stuck: 1})
		_, _ = c.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n"))
		n.SetFaults("a", simnet.Faults{Stuck: 1, DelayRequest: 1, DelayMin: 20 * time.Second, DelayMax: 20 * time.Second})
		_, _ = c.Write([]byte("*2\r\n$4\r\nINCR\r\n$1\r\nm\r\n"))
		time.Sleep(6 * time.Second)
		equal(t, "held by the partition", counter(s, "n")+counter(s, "m"), "1")
		time.Sleep(15 * time.Second)
		equal(t, "delayed beyond it", counter(s, "m"), "1")
	})
}

// TestDistinctInstants: though all begin at once and latencies hardly differ, no two hosts' events
// fall on one instant.
func TestDistinctInstants(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		n.SetFaults("", simnet.Faults{MaxLatency: 100 * time.Nanosecond})
		var wg sync.WaitGroup
		for name := range strings.SplitSeq("abcdefghijkl", "") {
			wg.Go(func() {
				c := n.Client(name, nil)
				for range 100 {
					check(t, c.Incr(ctx, "n").Err())
					time.Sleep(time.Second)
				}
			})
		}
		wg.Wait()
		at := map[time.Duration]string{}
		for _, e := range n.Trace.Events() {
			if host, found := at[e.At]; found && host != e.Host {
				t.Fatalf("%s: %s and %s", e.At, host, e.Host)
			}
			at[e.At] = e.Host
		}
	})
}

func TestPartitionOfReplies(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", once)
		warm(t, c)
		n.Partition("a", simnet.Replies, 0)
		timesOut(t, "no reply", c.Incr(ctx, "n").Err())
		equal(t, "n", counter(s, "n"), "1")
		time.Sleep(time.Hour)
		n.Heal("")
		check(t, c.Incr(ctx, "n").Err())
		equal(t, "n", counter(s, "n"), "2")
	})
}

func TestPartitionOfRequests(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		a, b := n.Client("a", once), n.Client("b", nil)
		sub := a.Subscribe(ctx, "c")
		defer sub.Close()
		_, err := sub.Receive(ctx)
		check(t, err)
		warm(t, a)
		n.Partition("a", simnet.Requests, 10*time.Second)
		timesOut(t, "no request", a.Incr(ctx, "n").Err())
		equal(t, "n", counter(s, "n"), "")
		check(t, b.Publish(ctx, "c", "m").Err())
		message, err := sub.ReceiveTimeout(ctx, time.Second)
		check(t, err)
		equal(t, "message against the cut", message.(*redis.Message).Payload, "m")
	})
}

func TestDelayedRequestTakesEffectLate(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", once)
		warm(t, c)
		n.SetFaults("a", simnet.Faults{DelayRequest: 1, DelayMin: 10 * time.Second, DelayMax: 11 * time.Second})
		timesOut(t, "delayed", c.Incr(ctx, "n").Err()) // go-redis closes the connection; the request is on its way
		n.SetFaults("a", simnet.Faults{})
		time.Sleep(7 * time.Second)
		equal(t, "before", counter(s, "n"), "")
		time.Sleep(4 * time.Second)
		equal(t, "after", counter(s, "n"), "1")
	})
}

func TestDelayedReply(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", func(o *redis.Options) { o.ReadTimeout = time.Minute })
		warm(t, c)
		n.SetFaults("a", simnet.Faults{DelayReply: 1, DelayMin: 10 * time.Second, DelayMax: 11 * time.Second})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { check(t, c.Incr(ctx, "n").Err()) })
		time.Sleep(time.Second)
		equal(t, "at once", counter(s, "n"), "1")
		wg.Wait()
		between(t, "reply", time.Since(start), 10*time.Second, 11*time.Second+10*time.Millisecond)
	})
}

func TestLoss(t *testing.T) {
	for _, f := range []simnet.Faults{{LoseRequest: 1}, {LoseReply: 1}} {
		bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
			c := n.Client("a", once)
			warm(t, c)
			n.SetFaults("a", f)
			timesOut(t, "lost", c.Incr(ctx, "n").Err())
			n.SetFaults("a", simnet.Faults{})
			equal(t, "n", counter(s, "n"), map[float64]string{1: "", 0: "1"}[f.LoseRequest])
			check(t, c.Incr(ctx, "n").Err())
		})
	}
}

func TestCut(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", once)
		warm(t, c)
		n.SetFaults("a", simnet.Faults{Cut: 1})
		if err := c.Incr(ctx, "n").Err(); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal("want a reset, got", err)
		}
		n.SetFaults("a", simnet.Faults{})
		warm(t, c)
		n.Cut("")
		time.Sleep(20 * time.Microsecond)
		// go-redis's check of an idle connection sees it
		check(t, c.Incr(ctx, "n").Err())
		equal(t, "n", counter(s, "n"), "1")
	})
}

func TestDuplicate(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", nil)
		warm(t, c)
		n.SetFaults("a", simnet.Faults{Duplicate: 1, DuplicateWithin: time.Minute})
		for range 20 {
			check(t, c.Incr(ctx, "n").Err())
		}
		if value := counter(s, "n"); value >= "40" {
			t.Fatal("no copy is late:", value)
		}
		n.Cut("a")
		time.Sleep(time.Minute)
		equal(t, "n", counter(s, "n"), "40")
		pipe := c.TxPipeline()
		pipe.Incr(ctx, "m")
		_, err := pipe.Exec(ctx)
		check(t, err)
		time.Sleep(time.Minute)
		equal(t, "m, in a transaction", counter(s, "m"), "1")
	})
}

func TestCrash(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		n.SetFaults("a", simnet.Faults{DelayRequest: 1, DelayMin: 2 * time.Second, DelayMax: 2 * time.Second})
		c := n.Client("a", nil)
		var wg sync.WaitGroup
		wg.Go(func() { _ = c.Incr(ctx, "written").Err() })
		time.Sleep(3 * time.Second) // past HELLO, the INCR is on its way
		n.Crash("a")
		wg.Wait()
		if c.Incr(ctx, "farewell").Err() == nil {
			t.Fatal("a dead process got through")
		}
		time.Sleep(5 * time.Second)
		equal(t, "written before", counter(s, "written"), "1")
		equal(t, "written after", counter(s, "farewell"), "")
		n.SetFaults("a", simnet.Faults{})
		check(t, n.Client("a", nil).Incr(ctx, "next life").Err())
	})
}

// TestCrashNumbers: what a dead process still dials takes no number, and no draw, of the next life.
func TestCrashNumbers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		dead := n.Client("a", nil)
		warm(t, dead)
		n.Crash("a")
		for range 3 {
			if dead.Incr(ctx, "farewell").Err() == nil {
				t.Fatal("a dead process got through")
			}
		}
		next := n.Client("a", nil)
		warm(t, next)
		events := n.Trace.Events()
		last := int64(0)
		for _, e := range events {
			if e.What == "connected" {
				last = e.N
			}
		}
		equal(t, "number of the first connection of the next life", last, int64(10_001))
	})
}

func TestPauseQueues(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		a, b := n.Client("a", once), n.Client("b", func(o *redis.Options) { o.ReadTimeout = time.Minute })
		warm(t, a)
		s.Pause(10 * time.Second)
		start := time.Now()
		timesOut(t, "paused", a.Incr(ctx, "n").Err())
		equal(t, "paused", counter(s, "n"), "")
		equal(t, "order of arrival", b.Incr(ctx, "n").Val(), 2)
		between(t, "answer", time.Since(start), 10*time.Second, 10*time.Second+10*time.Millisecond)
	})
}

func TestConn(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		dial := n.Dialer("a")
		if _, err := dial(ctx, "tcp", "127.0.0.1:1"); !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Fatal("an address without a server:", err)
		}
		c, err := dial(ctx, "tcp", simnet.Addr)
		check(t, err)
		p := make([]byte, 100)
		var wg sync.WaitGroup
		read := func(want error) {
			t.Helper()
			wg.Go(func() {
				if _, err := c.Read(p); !errors.Is(err, want) {
					t.Errorf("Read: got %v, want %v", err, want)
				}
			})
			time.Sleep(time.Second)
		}
		read(os.ErrDeadlineExceeded)
		check(t, c.SetReadDeadline(time.Now())) // during the Read
		wg.Wait()
		check(t, c.SetDeadline(time.Now().Add(time.Second)))
		start := time.Now()
		read(os.ErrDeadlineExceeded)
		wg.Wait()
		equal(t, "deadline", time.Since(start), time.Second)
		check(t, c.SetReadDeadline(time.Time{}))

		// A request in pieces; what arrived is read before the end of the connection.
		for _, piece := range []string{"*1\r\n$4", "\r\nPI", "NG\r\n*1\r\n$4\r\nQUIT\r\n"} {
			_, err := c.Write([]byte(piece))
			check(t, err)
			time.Sleep(time.Second)
		}
		size, err := c.Read(p)
		check(t, err)
		equal(t, "replies", string(p[:size]), "+PONG\r\n+OK\r\n")
		read(io.EOF)
		wg.Wait()

		c, err = dial(ctx, "tcp", simnet.Addr)
		check(t, err)
		read(net.ErrClosed)
		check(t, c.Close()) // during the Read
		wg.Wait()
		if _, err := c.Write(p); !errors.Is(err, net.ErrClosed) {
			t.Error("Write after Close:", err)
		}
	})
}

// A frame that arrives in pieces is one frame; of a torn one nothing executes, or no reply is
// understood, and the call is bounded.
func TestDribbleAndTear(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", once)
		warm(t, c)
		n.SetFaults("a", simnet.Faults{Dribble: 1, DelayMax: 200 * time.Millisecond})
		for range 50 {
			check(t, c.Incr(ctx, "n").Err())
		}
		equal(t, "n", counter(s, "n"), "50")
		for range 20 {
			n.SetFaults("a", simnet.Faults{})
			warm(t, c)
			n.SetFaults("a", simnet.Faults{Tear: 1})
			start := time.Now()
			timesOut(t, "a torn request", c.Incr(ctx, "n").Err())
			between(t, "its time", time.Since(start), time.Second, time.Second+100*time.Millisecond)
		}
		equal(t, "n", counter(s, "n"), "50")
		if kinds := n.Trace.Kinds(); kinds["dribbled"] < 50 || kinds["torn"] < 20 {
			t.Fatal("too few faults:", kinds)
		}
	})
}

// A subscription that dies without a sign: nobody hears of it, and calls go on.
func TestDeafen(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *simnet.Network, s *simnet.Server) {
		c := n.Client("a", nil)
		subscription := c.Subscribe(ctx, "hints")
		defer subscription.Close()
		_, err := subscription.Receive(ctx)
		check(t, err)
		if !n.Hears("a") {
			t.Error("a subscription that stands does not hear")
		}
		n.Deafen("a")
		if n.Hears("a") {
			t.Error("a dead subscription hears")
		}
		check(t, c.Publish(ctx, "hints", "hello").Err())
		_, err = subscription.ReceiveTimeout(ctx, time.Minute)
		timesOut(t, "a message over a dead subscription", err)
	})
}
