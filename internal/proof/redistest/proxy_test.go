//go:build unix

package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire is a client that sees every byte.
type wire struct {
	t *testing.T
	*net.TCPConn
	r *bufio.Reader
}

func dialWire(t *testing.T, addr string) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{t, conn.(*net.TCPConn), bufio.NewReader(conn)}
}

func (w *wire) send(cmd ...string) {
	w.t.Helper()
	if _, err := io.WriteString(w, request(cmd...)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) want(reply string) {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(patience))
	if f, err := readReply(w.r); err != nil || string(f.raw) != reply {
		w.t.Fatalf("got %q, %v, want %q", f.raw, err, reply)
	}
}

// wantReset waits for the connection to be reset.
func (w *wire) wantReset() {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(patience))
	if _, err := w.r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
		w.t.Fatalf("got %v, want a reset", err)
	}
}

// wantSilence looks once: what is there must have been lost or held before.
func (w *wire) wantSilence() {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if b, err := w.r.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("got %q, %v, want silence", b, err)
	}
}

// behind starts a server and a proxy in front of it.
func behind(t *testing.T) (*Server, *Proxy, *redis.Client) {
	NoLeaks(t)
	s := Start(t)
	return s, NewProxy(t, s.Addr()), s.Client(t)
}

func TestProxy_PassesEverything(t *testing.T) {
	s, p, _ := behind(t)
	opts := s.Options()
	opts.Addr = p.Addr()
	c := redis.NewClient(opts)
	defer c.Close()
	big := string(bytes.Repeat([]byte("\x00\r\n$5\xff"), 200_000))
	set(t, c, "k", big)
	if get(t, c, "k") != big {
		t.Error("a large value came back changed")
	}
	pipe := c.Pipeline()
	for i := range 1000 {
		pipe.Incr(t.Context(), "n")
		pipe.Set(t.Context(), "i", i, 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil || get(t, c, "n") != "1000" || get(t, c, "i") != "999" {
		t.Error("pipeline:", err)
	}
	sub := c.Subscribe(t.Context(), "a", "b")
	defer sub.Close()
	for range 2 {
		if _, err := sub.ReceiveTimeout(t.Context(), patience); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Publish(t.Context(), "b", "hint").Err(); err != nil {
		t.Error(err)
	}
	if msg, err := sub.ReceiveMessage(t.Context()); err != nil || msg.Payload != "hint" {
		t.Errorf("got %v, %v", msg, err)
	}
	stats := p.Stats()
	if stats.Accepted < 2 || stats.Open < 2 || stats.RequestBytes < 1_200_000 || stats.ReplyBytes < 1_200_000 ||
		stats.LostRequestBytes+stats.LostReplyBytes != 0 {
		t.Errorf("stats: %+v", stats)
	}
}

func TestProxy_PassesWhatIsNotRESP(t *testing.T) {
	NoLeaks(t)
	ln, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { // ends with the listener, waited for below
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	})
	t.Cleanup(func() { // after the proxy is closed
		_ = ln.Close()
		wg.Wait()
	})
	w := dialWire(t, NewProxy(t, ln.Addr().String()).Addr())
	for _, text := range []string{"\x16\x03\x01hello", "*1\r\n", "+more\r\n$5\r\n"} {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		_ = w.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadFull(w.r, got); err != nil || string(got) != text {
			t.Fatalf("got %q, %v, want %q", got, err, text)
		}
	}
}

func TestProxy_PassesReplication(t *testing.T) {
	NoLeaks(t)
	master := Start(t)
	p := NewProxy(t, master.Addr())
	replica := Start(t, ReplicaOf(master))
	host, port, _ := net.SplitHostPort(p.Addr())
	if err := replica.replicate(host, port); err != nil {
		t.Fatal(err)
	}
	set(t, master.Client(t), "k", "1")
	replica.WaitReplicated(t)
	if p.Stats().ReplyBytes == 0 || get(t, replica.Client(t), "k") != "1" {
		t.Error("replication does not go through the proxy")
	}
	p.DropReplies()
	set(t, master.Client(t), "k", "2")
	eventually(t, "the write to be lost", func() bool { return p.Stats().LostReplyBytes > 0 })
	replica.Promote(t)
	if got := get(t, replica.Client(t), "k"); got != "1" {
		t.Errorf("got %q from a replica that missed the last write", got)
	}
}

func TestProxy_DelayKeepsOrder(t *testing.T) {
	_, p, _ := behind(t)
	w := dialWire(t, p.Addr())
	const d = 30 * time.Millisecond
	p.DelayRequests(d, d)
	p.DelayReplies(d, d)
	start := time.Now()
	for range 50 {
		w.send("INCR", "n")
	}
	for i := range 50 {
		w.want(fmt.Sprintf(":%d\r\n", i+1))
		if took := time.Since(start); took < 2*d {
			t.Fatalf("round trip of %v, want at least %v", took, 2*d)
		}
	}
	p.DelayRequests(time.Hour, 0)
	w.send("INCR", "n")
	eventually(t, "the request to wait", func() bool { return p.Stats().HeldRequests == 1 })
	p.Heal()
	w.want(":51\r\n")
}

func TestProxy_SlowBytesMakePartialFrames(t *testing.T) {
	_, p, direct := behind(t)
	set(t, direct, "k", "value")
	w := dialWire(t, p.Addr())
	p.SlowBytes(3, time.Hour)
	w.send("GET", "k")
	eventually(t, "three bytes", func() bool { return p.Stats().RequestBytes == 3 })
	w.wantSilence()
	p.SlowBytes(3, time.Millisecond)
	w.want("$5\r\nvalue\r\n")
	p.SlowBytes(2, time.Hour)
	p.Heal()
	w.send("GET", "k")
	w.want("$5\r\nvalue\r\n")
}

func TestProxy_ScriptedReplies(t *testing.T) {
	s, p, direct := behind(t)
	p.ScriptedReply(func(cmd []string) ([]byte, bool) {
		return []byte("-READONLY not now\r\n"), strings.EqualFold(cmd[0], "set")
	})
	w := dialWire(t, p.Addr())
	for i := range 20 { // in one write: the proxy's answers keep their places among the server's
		w.send("INCR", "n")
		w.send("SET", "k", strconv.Itoa(i))
	}
	for i := range 20 {
		w.want(fmt.Sprintf(":%d\r\n", i+1))
		w.want("-READONLY not now\r\n")
	}
	if get(t, direct, "k") != "" || p.Stats().Scripted != 20 {
		t.Errorf("the server saw a request that the script answered; %+v", p.Stats())
	}

	opts := s.Options()
	opts.Addr, opts.MaxRetries = p.Addr(), -1
	c := redis.NewClient(opts)
	defer c.Close()
	for _, reply := range []string{
		"READONLY You can't write against a read only replica.", "LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script.", "MASTERDOWN Link with MASTER is down", "CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot", "NOREPLICAS Not enough good replicas to write.",
	} {
		p.ScriptedReply(func(cmd []string) ([]byte, bool) {
			return []byte("-" + reply + "\r\n"), strings.EqualFold(cmd[0], "set")
		})
		if err := c.Set(t.Context(), "k", "v", 0).Err(); err == nil || err.Error() != reply {
			t.Errorf("got %v, want %s", err, reply)
		}
	}
	p.ScriptedReply(nil)
	set(t, c, "k", "v")
}

func TestProxy_EndOfTheServer(t *testing.T) {
	s, p, _ := behind(t)
	w := dialWire(t, p.Addr())
	w.send("PING")
	w.want("+PONG\r\n")
	s.Kill(t)
	_ = w.SetReadDeadline(time.Now().Add(patience))
	if _, err := w.r.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want the end of the connection", err)
	}
	conn, err := net.Dial("tcp", p.Addr()) // nobody is there to dial: reset, now or a moment later
	if err == nil {
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
	eventually(t, "the links to end", func() bool { return p.Stats().Open == 0 })
	s.Start(t)
	w = dialWire(t, p.Addr())
	w.send("PING")
	w.want("+PONG\r\n")
}

func TestProxy_OnlyLoopback(t *testing.T) {
	for _, target := range []string{"192.0.2.1:6379", "example.org:6379", "127.0.0.1"} {
		mustContain(t, record(func(t TB) { NewProxy(t, target) }), "loopback")
	}
}
