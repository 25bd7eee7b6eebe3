//go:build unix

package redistest

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

func TestProxy_Cut(t *testing.T) {
	_, p, _ := behind(t)
	w := dialWire(t, p.Addr())
	w.send("PING")
	w.want("+PONG\r\n")
	p.Cut()
	w.wantReset()
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want a refusal", err)
	}
	p.Cut() // again
	p.Heal()
	w = dialWire(t, p.Addr())
	w.send("PING")
	w.want("+PONG\r\n")
	p.Reset()
	w.wantReset()
	dialWire(t, p.Addr()).send("PING")
}

func TestProxy_BlackholeIsHalfOpen(t *testing.T) {
	_, p, direct := behind(t)
	old := dialWire(t, p.Addr())
	old.send("PING")
	old.want("+PONG\r\n")
	p.Blackhole()
	old.send("SET", "k", "v")
	young := dialWire(t, p.Addr())
	young.send("SET", "k", "v")
	eventually(t, "both requests to be lost", func() bool {
		return p.Stats().LostRequestBytes == int64(2*len(request("SET", "k", "v")))
	})
	old.wantSilence()
	young.wantSilence()
	if get(t, direct, "k") != "" {
		t.Error("a lost request took effect")
	}
	p.Heal()
	old.wantReset()
	young.wantReset()
	w := dialWire(t, p.Addr())
	w.send("PING")
	w.want("+PONG\r\n")
}

func TestProxy_OneWayLoss(t *testing.T) {
	_, p, direct := behind(t)
	sub := dialWire(t, p.Addr())
	sub.send("SUBSCRIBE", "c")
	sub.want("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
	p.DropRequests()
	if err := direct.Publish(t.Context(), "c", "m").Err(); err != nil {
		t.Error(err)
	}
	sub.want("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n")
	p.Heal()

	p.DropReplies()
	w := dialWire(t, p.Addr())
	w.send("SET", "k", "v")
	eventually(t, "the reply to be lost", func() bool { return p.Stats().LostReplyBytes == int64(len("+OK\r\n")) })
	w.wantSilence()
	if get(t, direct, "k") != "v" {
		t.Error("the request did not arrive")
	}
}

// A request that is stuck in a socket buffer arrives after its client has given up, and after a
// later one's.
func TestProxy_HeldRequestsOutliveTheirClient(t *testing.T) {
	_, p, direct := behind(t)
	old := dialWire(t, p.Addr())
	p.HoldRequests()
	old.send("SET", "k", "old")
	old.send("INCR", "n")
	eventually(t, "two requests to be held", func() bool { return p.Stats().HeldRequests == 2 })
	_ = old.Close()
	p.HealNew()
	young := dialWire(t, p.Addr())
	young.send("SET", "k", "new")
	young.want("+OK\r\n")
	if got := get(t, direct, "k"); got != "new" {
		t.Errorf("got %q, the old request was not held", got)
	}
	// The reply may be here before the proxy has struck its request off.
	eventually(t, "the two old requests to be held, and no other", func() bool { return p.Stats().HeldRequests == 2 })
	p.ReleaseHeld()
	eventually(t, "the old requests to arrive", func() bool { return get(t, direct, "n") == "1" })
	if got := get(t, direct, "k"); got != "old" {
		t.Errorf("got %q", got)
	}
	eventually(t, "the old connection to end", func() bool { return p.Stats().Open == 1 })
	if held := p.Stats().HeldRequests; held != 0 {
		t.Errorf("%d requests are still held", held)
	}
}

func TestProxy_HeldRepliesArriveLate(t *testing.T) {
	_, p, direct := behind(t)
	w := dialWire(t, p.Addr())
	p.HoldReplies()
	w.send("INCR", "n")
	w.send("INCR", "n")
	eventually(t, "two replies to be held", func() bool { return p.Stats().HeldReplies == 2 })
	w.wantSilence()
	if get(t, direct, "n") != "2" {
		t.Error("the requests did not take effect")
	}
	p.Heal() // delivers too
	w.want(":1\r\n")
	w.want(":2\r\n")
}

func TestProxy_CutLosesWhatIsHeld(t *testing.T) {
	_, p, direct := behind(t)
	w := dialWire(t, p.Addr())
	p.HoldRequests()
	w.send("SET", "k", "v")
	eventually(t, "the request to be held", func() bool { return p.Stats().HeldRequests == 1 })
	p.Cut()
	w.wantReset()
	eventually(t, "nothing to be held", func() bool { return p.Stats() == Stats{Accepted: 1} })
	p.Heal()
	if get(t, direct, "k") != "" {
		t.Error("the request came through")
	}
}

// HealNew leaves old connections half-open for good: the network has forgotten them, new ones work.
func TestProxy_HealNewStrandsOldConnections(t *testing.T) {
	_, p, _ := behind(t)
	old := dialWire(t, p.Addr())
	old.send("PING")
	old.want("+PONG\r\n")
	p.Blackhole()
	p.HealNew()
	young := dialWire(t, p.Addr())
	young.send("PING")
	young.want("+PONG\r\n")
	old.send("PING")
	old.wantSilence()
	p.DelayReplies(time.Hour, 0) // a later fault is for the young
	young.send("PING")
	eventually(t, "a delayed reply", func() bool { return p.Stats().HeldReplies == 1 })
	p.Heal()
	young.want("+PONG\r\n")
	old.wantReset()
}

func TestProxy_SilenceAndLostReplies(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(p *Proxy)
		want  string // of the counter
	}{
		"request that nobody answers": {func(p *Proxy) {
			p.ScriptedReply(func(cmd []string) ([]byte, bool) { return nil, cmd[0] == "INCR" })
		}, ""},
		"reply that is lost": {func(p *Proxy) {
			p.LoseReply(func(cmd []string) bool { return cmd[0] == "INCR" })
		}, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, p, direct := behind(t)
			tc.fault(p)
			w := dialWire(t, p.Addr())
			w.send("PING")
			w.send("INCR", "n")
			w.send("SET", "k", "v") // arrives, but a stream with a hole says nothing more
			w.want("+PONG\r\n")
			eventually(t, "the last request to arrive", func() bool { return get(t, direct, "k") == "v" })
			w.wantSilence()
			if got := get(t, direct, "n"); got != tc.want {
				t.Errorf("counter is %q, want %q", got, tc.want)
			}
			other := dialWire(t, p.Addr())
			other.send("PING")
			other.want("+PONG\r\n")
			p.Heal()
			w.wantReset()
			other.send("INCR", "m")
			other.want(":1\r\n")
		})
	}
}

// Faults are switched at random under traffic; a healed proxy works, and Close leaves nothing
// behind.
func TestProxy_SurvivesConcurrentFaults(t *testing.T) {
	s, p, _ := behind(t)
	opts := s.Options()
	opts.Addr, opts.MaxRetries = p.Addr(), -1
	clientopts.Set(opts, "DialerRetries", 1)
	opts.ReadTimeout, opts.PoolTimeout = 20*time.Millisecond, 20*time.Millisecond
	c := redis.NewClient(opts)
	defer c.Close()
	faults := []func(){
		p.Cut, p.Reset, p.Blackhole, p.DropRequests, p.DropReplies, p.HoldRequests, p.HoldReplies, p.ReleaseHeld,
		p.HealNew, p.Heal,
		func() { p.DelayRequests(time.Millisecond, time.Millisecond) },
		func() { p.SlowBytes(5, time.Millisecond) },
		func() { p.ScriptedReply(func([]string) ([]byte, bool) { return nil, false }) },
		func() { p.LoseReply(func(cmd []string) bool { return cmd[0] == "get" }) },
		func() { p.Stats() },
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() { // ends after a fixed number of commands, waited for below
			for range 40 {
				_ = c.Incr(t.Context(), "n").Err() // may well fail
			}
		})
		wg.Go(func() { // ends after a fixed number of faults, waited for below
			for j := range 150 {
				faults[(7*j+5*i+j*j)%len(faults)]()
				time.Sleep(time.Millisecond) // a pace, no bounded poll: what is asserted does not depend on it
			}
		})
	}
	wg.Wait()
	p.Heal()
	if err := poll(patience, func() error { return c.Ping(t.Context()).Err() }); err != nil {
		t.Errorf("after Heal: %v", err)
	}
}
