package simnet

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// ServerOptions of a Server.
type ServerOptions struct {
	Uptime time.Duration // how long it has been running; 0: an hour, negative: just started
	Clock  time.Duration // how far its clock is ahead of the bubble's
	Rate   float64       // speed of its clock; 0: 1
}

// Server is a miniredis on the network. Its TIME and all expiry follow a clock of its own. Its
// methods are safe for concurrent use, but must not be called by functions given to Do, Intercept
// and Watch.
type Server struct {
	net  *Network
	addr string // also its name in the trace
	slot time.Duration

	// guarded by Network.mu
	inbox     []arrival
	executing bool
	paused    time.Duration // until then it answers nothing
	downUntil time.Duration // until then it refuses connections
	conns     []*conn       // not hung up

	exec      sync.Mutex // held while a command executes; guards everything below
	mini      *miniredis.Miniredis
	srv       *server.Server
	rand      *rand.Rand
	clock     clock
	born      time.Time // by its own clock
	replid    string
	replid2   string // of the history that it was promoted from; "" none
	offset    int64  // commands executed
	offset2   int64
	client    string          // host whose command executes
	noInfo    map[string]bool // hosts without INFO
	intercept func(host, cmd string, args []string) string
	label     func(args []string) string
	watch     func(now time.Time, host, cmd string, args []string)
	stopped   bool
}

// arrival is a segment at the server, or a request that is executed once more.
type arrival struct {
	conn *conn
	segment
	again []string
}

// NewServer starts a server and makes it reachable at addr, in place of the one that was.
func (n *Network) NewServer(addr string, opts ServerOptions) *Server {
	m := miniredis.NewMiniRedis()
	pipe, err := m.Dial() // the one way to start it without a listener; before it m.Server() is nil
	if err != nil {
		panic(fmt.Sprint("simnet: ", err)) // it has no way to fail
	}
	_ = pipe.Close()

	n.mu.Lock()
	defer n.mu.Unlock()
	number := len(n.servers)
	s := &Server{
		net: n, addr: addr, slot: serverSlot + time.Duration(number%100), mini: m, srv: m.Server(), noInfo: map[string]bool{},
		rand: n.random(addr, number), clock: newClock(opts.Clock, opts.Rate),
	}
	switch {
	case opts.Uptime == 0:
		opts.Uptime = time.Hour
	case opts.Uptime < 0:
		opts.Uptime = 0
	}
	s.born = s.clock.now().Add(-opts.Uptime)
	s.replid = s.newReplid()
	m.SetTime(s.clock.now())
	m.ClockTTL(true)
	m.Seed(int(s.rand.Int32()))
	s.srv.SetPreHook(s.hook)
	n.routes[addr] = s
	n.servers = append(n.servers, s)
	return s
}

// Do runs fn on the miniredis between two commands, its clock set.
func (s *Server) Do(fn func(m *miniredis.Miniredis)) {
	s.exec.Lock()
	defer s.exec.Unlock()
	if s.stopped {
		return
	}
	s.tick()
	fn(s.mini)
}

// Now is what the server's clock reads.
func (s *Server) Now() time.Time {
	s.exec.Lock()
	defer s.exec.Unlock()
	return s.clock.now()
}

// SetRate sets the speed of the server's clock: at 1.01 it runs 1 % fast.
func (s *Server) SetRate(rate float64) {
	s.note("rate", "", int64(rate*1e6))
	s.Do(func(*miniredis.Miniredis) { s.clock = s.clock.withRate(rate) })
}

// StepClock moves the server's clock. Keys expire at a time of that clock, as in Redis: a step back
// lets them live longer.
func (s *Server) StepClock(d time.Duration) {
	s.note("clock-step", "", int64(d))
	s.Do(func(*miniredis.Miniredis) { s.step(d) })
}

func (s *Server) step(d time.Duration) {
	s.clock.at = s.clock.at.Add(d)
	s.tick()
	if d < 0 {
		s.mini.FastForward(d) // miniredis counts TTLs down and ignores a step back
	}
}

// tick sets miniredis's clock, and expires what is due.
func (s *Server) tick() {
	s.mini.SetTime(s.clock.now())
	s.mini.DB(0)
}

// Intercept asks fn before each command, those within scripts included: what it returns, unless "",
// is the error that the command answers, e.g. "NOPERM …". fn runs while the server executes; nil
// ends it.
func (s *Server) Intercept(fn func(host, cmd string, args []string) string) {
	s.exec.Lock()
	defer s.exec.Unlock()
	s.intercept = fn
}

// Label lets fn say what the trace shows of a command beside its name, in place of the first
// argument.
func (s *Server) Label(fn func(args []string) string) {
	s.exec.Lock()
	defer s.exec.Unlock()
	s.label = fn
}

// Watch calls fn with each command before it executes, those within scripts included, with the time
// of the server's clock. fn runs while the server executes; nil ends it.
func (s *Server) Watch(fn func(now time.Time, host, cmd string, args []string)) {
	s.exec.Lock()
	defer s.exec.Unlock()
	s.watch = fn
}

// arrive queues a and executes what is queued, unless somebody does so already. Network.mu is held
// on entry and on return, and not while a command executes.
func (s *Server) arrive(a arrival) {
	s.inbox = append(s.inbox, a)
	s.work()
}

func (s *Server) work() {
	if s.executing {
		return
	}
	s.executing = true
	for len(s.inbox) > 0 && s.paused <= s.net.Elapsed() && !s.net.closed {
		next := s.inbox[0]
		copy(s.inbox, s.inbox[1:])
		s.inbox = s.inbox[:len(s.inbox)-1]
		gone := next.conn.gone && next.again == nil
		s.net.mu.Unlock()
		if !gone {
			s.handle(next)
		}
		s.net.mu.Lock()
	}
	s.executing = false
}

// handle executes what arrived.
func (s *Server) handle(a arrival) {
	s.exec.Lock()
	defer s.exec.Unlock()
	if s.stopped {
		return
	}
	s.tick()
	c := a.conn
	switch {
	case a.again != nil:
		copied := server.NewPeer(bufio.NewWriter(io.Discard))
		copied.Ctx = c.peer.Ctx
		s.execute(c, copied, a.again, "copy ")
		return
	case a.kind == finish:
		s.hangUp(c)
		return
	}
	in := a.data
	if len(c.in) > 0 {
		in = append(c.in, in...)
	}
	for {
		args, size, err := parseRequest(in)
		if err != nil {
			s.hangUp(c)
			return
		}
		if size == 0 {
			break
		}
		in = in[size:]
		s.execute(c, c.peer, args, "")
		if a.repeat && !c.inTx && repeatable(args[0]) {
			s.again(c, args, a.repeats)
		}
	}
	c.in = append(c.in[:0], in...)
	c.peer.Flush()
	if c.peer.Closed() {
		s.hangUp(c)
	}
}

// execute runs one command and leaves the reply with peer.
func (s *Server) execute(c *conn, peer *server.Peer, args []string, note string) {
	detail := ""
	if len(args) > 1 {
		detail = args[1][:min(len(args[1]), 40)]
		if s.label != nil {
			detail = s.label(args)
		}
	}
	s.note(note+args[0], detail, int64(c.id), c.host.name)
	switch strings.ToUpper(args[0]) {
	case "MULTI":
		c.inTx = true
	case "EXEC", "DISCARD":
		c.inTx = false
	case "SUBSCRIBE", "PSUBSCRIBE":
		c.subscribed.Store(true)
	}
	s.offset++
	s.client = c.host.name
	s.srv.Dispatch(peer, args)
	s.client = ""
}

// again lets a request be executed a second time, after d.
func (s *Server) again(c *conn, args []string, d time.Duration) {
	n := s.net
	n.mu.Lock()
	defer n.mu.Unlock()
	at := align(n.Elapsed()+d+1, c.up.slot)
	// Fires once; does nothing after Close.
	time.AfterFunc(at-n.Elapsed(), func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if at >= s.downUntil {
			s.arrive(arrival{conn: c, again: args})
		}
	})
}

// repeatable commands are those that change nothing of their connection.
func repeatable(cmd string) bool {
	switch strings.ToUpper(cmd) {
	case "MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH", "SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE",
		"HELLO", "AUTH", "SELECT", "CLIENT", "PING", "QUIT":
		return false
	}
	return true
}

// hangUp ends the server's end of c; exec is held.
func (s *Server) hangUp(c *conn) {
	s.net.mu.Lock()
	c.gone = true
	for i, other := range s.conns {
		if other == c {
			s.conns = append(s.conns[:i:i], s.conns[i+1:]...)
			break
		}
	}
	if !c.closed {
		c.down.send(segment{kind: finish})
	}
	s.net.mu.Unlock()
	if c.subscribed.Load() { // its subscriber has two goroutines in miniredis; they end with the last subscription
		s.quietly(c.peer, "DISCARD")
		s.quietly(c.peer, "UNSUBSCRIBE")
		s.quietly(c.peer, "PUNSUBSCRIBE")
	}
}

// quietly executes a command in the session of peer (nil: a new one) and drops the reply.
func (s *Server) quietly(peer *server.Peer, args ...string) {
	silent := server.NewPeer(bufio.NewWriter(io.Discard))
	if peer != nil {
		silent.Ctx = peer.Ctx
	}
	s.srv.Dispatch(silent, args)
}

func (s *Server) note(what, detail string, number int64, host ...string) {
	name := s.addr
	if host != nil {
		name = host[0]
	}
	s.net.event(name, what, detail, number)
}

func (s *Server) close() {
	s.dropAll()
	s.exec.Lock()
	s.stopped = true
	s.exec.Unlock()
	s.mini.Close()
}
