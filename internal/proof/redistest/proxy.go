package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a TCP proxy in front of one address of the loopback interface, with faults that are
// switched while it runs.
//
// Faults add up until [Proxy.Heal]. They hold for the connections that exist and for new ones; a
// request or reply that is just being written when a fault is switched on may still pass, as in a
// network. All methods are safe for concurrent use.
type Proxy struct {
	t      TB
	target string
	addr   string
	wg     sync.WaitGroup // every goroutine of the proxy; Close ends them and waits

	accepted atomic.Int64
	passed   [2]atomic.Int64
	lost     [2]atomic.Int64
	waiting  [2]atomic.Int64
	scripted atomic.Int64

	mu       sync.Mutex
	listener net.Listener // nil while cut
	closed   bool
	faults   *faults       // of new connections and of all that were not left behind by HealNew
	changed  chan struct{} // closed, and made anew, whenever faults change
	links    map[*link]struct{}
}

// direction says which way bytes go.
type direction int

const (
	requests direction = iota
	replies
)

// faults is what happens to the traffic of some connections. Guarded by Proxy.mu.
type faults struct {
	way       [2]wayFaults
	answer    func(cmd []string) (reply []byte, ok bool)
	loseReply func(cmd []string) bool
}

// wayFaults is what happens to the traffic of one direction.
type wayFaults struct {
	drop, hold    bool
	delay, jitter time.Duration
	bytes         int // most bytes per tick; 0: no limit
	tick          time.Duration
}

// Stats is what went through a proxy so far.
type Stats struct {
	Accepted int64 // connections ever accepted
	Open     int64 // connections of now
	Scripted int64 // requests that ScriptedReply answered

	RequestBytes, ReplyBytes         int64 // passed on
	LostRequestBytes, LostReplyBytes int64 // swallowed
	HeldRequests, HeldReplies        int64 // requests and replies in the proxy now: held, delayed or on their way
}

// NewProxy starts a proxy in front of target that is closed with the test.
func NewProxy(t TB, target string) *Proxy {
	t.Helper()
	host, _, err := net.SplitHostPort(target)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		t.Fatalf("redistest: proxy target %q is not an address of the loopback interface", target)
	}
	ln, err := listen()
	if err != nil {
		t.Fatalf("redistest: start proxy: %v", err)
	}
	p := &Proxy{
		t: t, target: target, addr: ln.Addr().String(),
		faults: new(faults), changed: make(chan struct{}), links: make(map[*link]struct{}),
	}
	p.serve(ln)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the address that clients are to use.
func (p *Proxy) Addr() string { return p.addr }

// Close resets every connection and returns when no goroutine of the proxy is left.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cut()
	p.wg.Wait()
}

// Cut resets every connection, with what waits in it, and refuses new ones.
func (p *Proxy) Cut() { p.cut() }

// Reset resets every connection, with what waits in it, and goes on accepting new ones.
func (p *Proxy) Reset() {
	for _, l := range p.someLinks(func(*link) bool { return true }) {
		l.kill()
	}
}

// Blackhole swallows everything. Connections stay, and new ones are accepted, but the target never
// hears of them.
func (p *Proxy) Blackhole() {
	p.change(func(f *faults) { f.way[requests].drop, f.way[replies].drop = true, true })
}

// DropRequests swallows what clients send.
func (p *Proxy) DropRequests() { p.change(func(f *faults) { f.way[requests].drop = true }) }

// DropReplies swallows what the target sends: requests still take effect.
func (p *Proxy) DropReplies() { p.change(func(f *faults) { f.way[replies].drop = true }) }

// LoseReply passes on the requests that lose picks and swallows their replies, with every later
// reply on that connection: a stream has no holes. lose is called once per request, by several
// goroutines of the proxy, and must not block. Nil ends it.
func (p *Proxy) LoseReply(lose func(cmd []string) bool) {
	p.change(func(f *faults) { f.loseReply = lose })
}

// HoldRequests keeps what clients send, as the socket buffers of a partitioned host do, until
// [Proxy.ReleaseHeld] or [Proxy.Heal]. It is delivered even if the client has closed its connection
// long since.
func (p *Proxy) HoldRequests() { p.change(func(f *faults) { f.way[requests].hold = true }) }

// HoldReplies keeps what the target sends.
func (p *Proxy) HoldReplies() { p.change(func(f *faults) { f.way[replies].hold = true }) }

// ReleaseHeld delivers what is held, in the order in which each connection sent it, and ends the
// holding, also for connections that [Proxy.HealNew] left behind.
func (p *Proxy) ReleaseHeld() {
	p.mu.Lock()
	defer p.mu.Unlock()
	release := func(f *faults) { f.way[requests].hold, f.way[replies].hold = false, false }
	release(p.faults)
	for l := range p.links {
		release(l.faults)
	}
	p.announce()
}

// DelayRequests delays every request by d and a random part of jitter. Order is kept, throughput is
// not limited.
func (p *Proxy) DelayRequests(d, jitter time.Duration) {
	p.change(func(f *faults) { f.way[requests].delay, f.way[requests].jitter = d, jitter })
}

// DelayReplies delays every reply by d and a random part of jitter.
func (p *Proxy) DelayReplies(d, jitter time.Duration) {
	p.change(func(f *faults) { f.way[replies].delay, f.way[replies].jitter = d, jitter })
}

// SlowBytes passes on at most n bytes per tick, in each direction of each connection. With a long
// tick it is how a partial request or reply is made.
func (p *Proxy) SlowBytes(n int, tick time.Duration) {
	p.change(func(f *faults) {
		for i := range f.way {
			f.way[i].bytes, f.way[i].tick = n, tick
		}
	})
}

// ScriptedReply has answer speak for the target: if it returns true, the target never sees the
// request and the client gets the reply, in its turn; an empty reply means that nobody answers, on
// that connection nothing any more. answer sees every request that was not lost, also the handshake
// of a client; it is called by several goroutines of the proxy and must not block. Nil ends it.
func (p *Proxy) ScriptedReply(answer func(cmd []string) (reply []byte, ok bool)) {
	p.change(func(f *faults) { f.answer = answer })
}

// Heal ends every fault and delivers what is held. Connections that have lost anything are reset: a
// stream with a hole cannot go on.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.faults = new(faults)
	for l := range p.links {
		l.faults = p.faults
	}
	p.announce()
	p.mu.Unlock()
	for _, l := range p.someLinks(func(l *link) bool { return l.lost }) {
		l.kill()
	}
	p.reopen()
}

// HealNew ends every fault for new connections and leaves those that exist as they are, for good or
// until Heal: a path that is dead to its old connections, or whose old buffers drain (ReleaseHeld)
// when the new path has long been in use.
func (p *Proxy) HealNew() {
	p.mu.Lock()
	p.faults = new(faults)
	p.mu.Unlock()
	p.reopen()
}

// Stats returns what went through so far.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	open := len(p.links)
	p.mu.Unlock()
	return Stats{
		Accepted: p.accepted.Load(), Open: int64(open), Scripted: p.scripted.Load(),
		RequestBytes: p.passed[requests].Load(), ReplyBytes: p.passed[replies].Load(),
		LostRequestBytes: p.lost[requests].Load(), LostReplyBytes: p.lost[replies].Load(),
		HeldRequests: p.waiting[requests].Load(), HeldReplies: p.waiting[replies].Load(),
	}
}

// change changes the faults of new connections and of those that HealNew has not left behind: they
// share one value.
func (p *Proxy) change(fn func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p.faults)
	p.announce()
}

// announce wakes everyone who waits for faults to change. The caller holds mu.
func (p *Proxy) announce() {
	close(p.changed)
	p.changed = make(chan struct{})
}
