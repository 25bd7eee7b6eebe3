package simnet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/redisstore/clientopts"
)

// Addr is the address that Client connects to. It is an IP literal: a name would be looked up
// outside the bubble.
const Addr = "127.0.0.1:6379"

// quantum divides time into slots of 1 ns: see "Replay" in the package comment. A host has
// hostSlots of them, its own instants in the first, two for each of its connections; servers have
// those above serverSlot.
const (
	quantum    = 10 * time.Microsecond
	hostSlots  = 200
	serverSlot = 9800
	maxHosts   = serverSlot/hostSlots - 1
)

var (
	errClosed  = errors.New("simnet: the network is closed")
	errCrashed = errors.New("simnet: the host has crashed")
)

// Options of a Network.
type Options struct {
	Seed  uint64 // of every choice that the network makes
	Trace int    // events kept; 0: 4096
}

// Network connects client hosts with servers. Its methods are safe for concurrent use.
type Network struct {
	Trace *Trace

	seed  uint64
	start time.Time
	done  chan struct{} // closed by Close

	mu      sync.Mutex // guards everything below, connections included; never held while a command executes
	hosts   map[string]*host
	order   []*host
	routes  map[string]*Server // by address: where a new connection goes
	servers []*Server
	faults  Faults // of hosts not heard of yet
	clients []*redis.Client
	closed  bool
}

// host is one machine with clients on it.
type host struct {
	net    *Network
	name   string
	slot   time.Duration
	faults Faults
	life   int // crashes so far
	dials  int
	conns  []*conn // in the order of their making

	cut    Way
	until  [Both + 1]time.Duration // per direction: when its partition heals
	healed chan struct{}           // closed, and replaced, at each heal
}

// silence is called once: networks of parallel tests begin at one time.
var silence = sync.OnceFunc(func() { redis.SetLogger(quiet{}) })

// New makes a network. Call it inside the bubble, and Close before the bubble's function returns.
func New(opts Options) *Network {
	silence()
	return &Network{
		Trace:  newTrace(opts.Trace),
		seed:   opts.Seed,
		start:  time.Now(),
		done:   make(chan struct{}),
		hosts:  map[string]*host{},
		routes: map[string]*Server{},
	}
}

// Elapsed is the virtual time since New.
func (n *Network) Elapsed() time.Duration { return time.Since(n.start) }

// Stagger is less than 10 µs and differs between hosts: sleep that long before a host's first
// action, so that no two hosts ever act at one instant.
func (n *Network) Stagger(host string) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.host(host).slot
}

// Client returns a go-redis client on host for the server at Addr; mutate (nil: none) may change
// its options. It has go-redis's defaults but for what does not work in a bubble, what would draw
// at random (the retry backoff is a fixed 8 ms), and small buffers. Close closes it.
func (n *Network) Client(host string, mutate func(*redis.Options)) *redis.Client {
	opts := &redis.Options{
		Addr:            Addr,
		Dialer:          n.Dialer(host),
		Protocol:        2,
		DisableIdentity: true,                 // no CLIENT SETINFO
		PoolSize:        64,                   // never wait for a connection: see "Traps" in the package comment
		MinRetryBackoff: 8 * time.Millisecond, // minimum = maximum: no random part
		MaxRetryBackoff: 8 * time.Millisecond,
	}
	clientopts.Maintenance(opts, "disabled")
	clientopts.Set(opts, "PipelinePoolSize", 64)
	for _, buffer := range []string{"ReadBufferSize", "WriteBufferSize", "PipelineReadBufferSize", "PipelineWriteBufferSize"} {
		clientopts.Set(opts, buffer, 4<<10)
	}
	if mutate != nil {
		mutate(opts)
	}
	client := redis.NewClient(opts)
	n.mu.Lock()
	n.clients = append(n.clients, client)
	n.mu.Unlock()
	return client
}

// Dialer returns a function for redis.Options.Dialer. It belongs to the present life of host: after
// Crash it fails for ever, and a new Dialer is the new life's.
func (n *Network) Dialer(host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	h := n.host(host)
	life := h.life
	n.mu.Unlock()
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		c, err := n.dial(ctx, h, life, addr)
		if err != nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: address(addr), Err: err}
		}
		return c, nil
	}
}

// dial takes a round trip; under a partition it waits for the heal, as a SYN is sent again.
func (n *Network) dial(ctx context.Context, h *host, life int, addr string) (*conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.life != life { // what a dead process still tries counts for nothing: no number is its own
		return nil, errCrashed
	}
	c := newConn(h)
	for arrived := false; !arrived; {
		var err error
		if h.cut != 0 {
			err = n.await(ctx, h.healed, 0)
		} else {
			at := c.down.align(n.Elapsed() + c.up.latency() + c.down.latency())
			err = n.await(ctx, nil, at-n.Elapsed())
			arrived = h.cut == 0
		}
		switch {
		case n.closed:
			return nil, errClosed
		case h.life != life:
			return nil, errCrashed
		case err != nil:
			return nil, err
		}
	}
	s := n.routes[addr]
	if s == nil {
		return nil, syscall.EHOSTUNREACH
	}
	if n.Elapsed() < s.downUntil {
		n.event(h.name, "refused", addr, 0)
		return nil, syscall.ECONNREFUSED
	}
	n.event(h.name, "connected", addr, int64(c.id))
	c.attach(s)
	return c, nil
}

// await waits, without the lock, for wake or, if wake is nil, for d to pass.
func (n *Network) await(ctx context.Context, wake <-chan struct{}, d time.Duration) error {
	n.mu.Unlock()
	defer n.mu.Lock()
	var passed <-chan time.Time
	if wake == nil {
		timer := time.NewTimer(d)
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-wake:
	case <-passed:
	case <-n.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Close closes every client, connection and server, and ends what goroutines they have. It sleeps
// two seconds of virtual time, in which dials that go-redis has abandoned but still repeats come to
// their end: a bubble does not wait for them. Timers still pending do nothing.
func (n *Network) Close() {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	close(n.done)
	for _, h := range n.order {
		for _, c := range h.conns {
			c.fail(errClosed)
		}
	}
	clients, servers := n.clients, n.servers
	n.mu.Unlock()

	for _, client := range clients {
		_ = client.Close()
	}
	for _, s := range servers {
		s.close()
	}
	time.Sleep(2 * time.Second)
}

// host returns the host of that name, new if need be. n.mu is held, as in all unexported methods
// below.
func (n *Network) host(name string) *host {
	h := n.hosts[name]
	if h == nil {
		slot := hostSlots * time.Duration(1+len(n.order)%maxHosts)
		h = &host{net: n, name: name, slot: slot, faults: n.faults, healed: make(chan struct{})}
		n.hosts[name] = h
		n.order = append(n.order, h)
	}
	return h
}

// each returns the host of that name, or with "" every host.
func (n *Network) each(name string) []*host {
	if name == "" {
		return n.order
	}
	return []*host{n.host(name)}
}

func (n *Network) event(host, what, detail string, number int64) {
	n.Trace.Add(Event{At: n.Elapsed(), Host: host, What: what, Detail: detail, N: number})
}

// random is a generator that depends on the seed and the name only.
func (n *Network) random(name string, number int) *rand.Rand {
	return rand.New(rand.NewPCG(n.seed, mix(hash(offset64, name)+uint64(number))))
}

// align returns the first instant not before at whose residue is slot.
func align(at, slot time.Duration) time.Duration {
	aligned := at - at%quantum + slot
	if aligned < at {
		aligned += quantum
	}
	return aligned
}

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// quiet drops go-redis's log: it reports each failed dial.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
