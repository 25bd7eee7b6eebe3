//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

const (
	sharing    = 50 // instances whose requests share the pool of a client
	startBound = 5 * time.Minute
)

// kind is what a request is for.
type kind int

const (
	acquires kind = iota
	renewals
	releases
	heartbeats
	rides  // a heartbeat and an acquire that travel together
	checks // of a subscription
	polls  // of how many listen
	sweeps
	others
	kinds
)

var kindNames = [kinds]string{"acquires", "renewals", "releases", "heartbeats", "heartbeats with an acquire", "checks of the subscription", "questions how many listen", "sweeps", "others"}

// counts are requests by kind, and the round trips that renewals took.
type counts struct {
	kinds [kinds]atomic.Int64
	trips atomic.Int64
	early atomic.Int64 // acquires of an instance that had asked less than soon before
	soon  time.Duration
}

func (c *counts) add(cmds ...redis.Cmder) {
	var sent [kinds]int64
	for _, cmd := range cmds {
		k, n := kindOf(cmd.Args())
		sent[k] += n
	}
	together := min(sent[acquires], sent[heartbeats])
	sent[rides], sent[acquires], sent[heartbeats] = together, sent[acquires]-together, sent[heartbeats]-together
	for k, n := range sent {
		c.kinds[k].Add(n)
	}
	if sent[renewals] > 0 {
		c.trips.Add(1)
	}
}

// sums are counts of requests.
type sums [kinds]int64

func (s sums) asks() int64  { return s[acquires] + s[rides] }
func (s sums) beats() int64 { return s[heartbeats] + s[rides] }

func (c *counts) read() (all sums) {
	for k := range all {
		all[k] = c.kinds[k].Load()
	}
	return all
}

// kindOf tells the scripts apart by their keys, and says how many requests a call is: a renewal of
// many roles is one for each.
func kindOf(args []any) (of kind, requests int64) {
	name, _ := args[0].(string)
	switch strings.ToLower(name) {
	case "publish":
		return checks, 1
	case "pubsub":
		return polls, 1
	case "eval", "evalsha":
	default:
		return others, 1
	}
	keys, _ := args[2].(int)
	if text, ok := args[2].(string); ok {
		_, _ = fmt.Sscan(text, &keys) // what is no number has no keys
	}
	if keys < 1 || len(args) < 3+keys {
		return others, 1
	}
	first, more := fmt.Sprint(args[3]), len(args)-3-keys
	switch {
	case strings.HasSuffix(first, ":beats"):
		return sweeps, 1
	case strings.HasSuffix(first, ":heartbeat") && keys > 6:
		return heartbeats, 1
	case strings.Contains(first, ":leader") && keys > 5 && keys%3 == 0:
		return renewals, int64(keys / 3)
	case strings.Contains(first, ":leader") && keys > 3 && more > 12:
		return acquires, 1
	case strings.Contains(first, ":leader") && keys > 3:
		return releases, 1
	case strings.Contains(first, ":leader") && more > 10:
		return renewals, 1
	}
	return others, 1
}

var errCut = errors.New("cut off")

// tap counts the requests of an instance and can cut it off. It is a hook of its client.
type tap struct {
	sent  *counts
	cut   atomic.Bool
	asked atomic.Int64 // the last acquire, in Unix nanoseconds
}

// count also notes an acquire that comes sooner than a regular one.
func (t *tap) count(cmds ...redis.Cmder) {
	t.sent.add(cmds...)
	for _, cmd := range cmds {
		if k, _ := kindOf(cmd.Args()); k != acquires {
			continue
		}
		now := time.Now().UnixNano()
		if time.Duration(now-t.asked.Swap(now)) < t.sent.soon {
			t.sent.early.Add(1)
		}
	}
}

func (t *tap) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if t.cut.Load() {
			cmd.SetErr(errCut)
			return errCut
		}
		t.count(cmd)
		return next(ctx, cmd)
	}
}

func (t *tap) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if t.cut.Load() {
			for _, cmd := range cmds {
				cmd.SetErr(errCut)
			}
			return errCut
		}
		t.count(cmds...)
		return next(ctx, cmds)
	}
}

// gate keeps back what subscribes until it is opened. Each instance that joins is told to all that
// listen: a fleet of 10,000 would tell 50 million times while it is started.
type gate struct {
	open   chan struct{}
	opened sync.Once
}

// gateFor is for how long one that subscribes is kept back until it has to dial again: less than a
// subscription waits for its confirmation, so that it has no second connection meanwhile.
const gateFor = 6 * time.Second

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) allow() { g.opened.Do(func() { close(g.open) }) }

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}).DialContext(ctx, network, addr)
	if tcp, ok := conn.(*net.TCPConn); ok {
		return &gatedConn{TCPConn: tcp, gate: g, closed: make(chan struct{})}, err
	}
	return conn, err
}

type gatedConn struct {
	*net.TCPConn
	gate   *gate
	closed chan struct{}
	once   sync.Once
}

func (c *gatedConn) Write(b []byte) (int, error) {
	select {
	case <-c.gate.open:
	default:
		if bytes.Contains(b, []byte("\r\nsubscribe\r\n")) {
			select {
			case <-c.gate.open:
			case <-c.closed:
				return 0, net.ErrClosed
			case <-time.After(gateFor):
				return 0, os.ErrDeadlineExceeded
			}
		}
	}
	return c.TCPConn.Write(b)
}

func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.TCPConn.Close()
}

// instance is a coordinator that runs.
type instance struct {
	*tenure.Coordinator
	namespace string
	tap       *tap
	cancel    context.CancelFunc
	ended     chan struct{}
}

// kill ends it without a word: nothing of it arrives any more.
func (i *instance) kill() {
	i.tap.cut.Store(true)
	i.cancel()
}

// fleet is instances that run in this process.
type fleet struct {
	redistest.TB
	o    options
	sent counts
	led  chan lead       // of each that began to lead
	ctx  context.Context //nolint:containedctx // of all instances

	mu        sync.Mutex
	started   int
	instances []*instance
}

type lead struct {
	who *instance
	at  time.Time
}

func newFleet(tb redistest.TB, o options) *fleet {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fleet{TB: tb, o: o, led: make(chan lead, 1000), ctx: ctx}
	f.sent.soon = o.retry() * 8 / 10 // a follower asks each 19/20 to 20/20 of a RetryInterval, and sooner after such an acquire alone

	tb.Cleanup(func() { // clients and servers may be gone: nothing is said at the end
		for _, i := range f.instances {
			i.tap.cut.Store(true)
		}
		cancel()
		for _, i := range f.instances {
			select {
			case <-i.ended:
			case <-time.After(startBound):
				tb.Errorf("an instance does not end")
				return
			}
		}
	})
	return f
}

// start starts an instance. client has a hook of its own for it.
func (f *fleet) start(client redis.UniversalClient, t *tap, namespace string, roles ...string) *instance {
	f.mu.Lock()
	f.started++
	id := fmt.Sprintf("instance-%d", f.started)
	f.mu.Unlock()
	election := f.election()
	c, err := tenure.New(client, tenure.Options{
		Namespace: namespace, InstanceID: id, Election: election,
		Registry: tenure.RegistryOptions{HeartbeatInterval: f.o.heartbeat},
	})
	if err != nil {
		f.Fatalf("%v", err)
	}
	for _, role := range roles {
		if _, err := c.AddRole(role, election); err != nil {
			f.Fatalf("%v", err)
		}
	}
	i := f.add(t, c.Run)
	i.Coordinator, i.namespace = c, namespace
	return i
}

// add runs one of them.
func (f *fleet) add(t *tap, run func(context.Context, ...tenure.LeadFunc) error) *instance {
	ctx, cancel := context.WithCancel(f.ctx)
	i := &instance{tap: t, cancel: cancel, ended: make(chan struct{})}
	go func() { // ends with ctx; the clean-up waits for it
		defer close(i.ended)
		_ = run(ctx, func(ctx context.Context, _ tenure.Term) error { // its error is how it ends
			select {
			case f.led <- lead{i, time.Now()}:
			default:
			}
			<-ctx.Done()
			return nil
		})
	}()
	f.mu.Lock()
	f.instances = append(f.instances, i)
	f.mu.Unlock()
	return i
}

func (f *fleet) election() tenure.ElectionOptions {
	return tenure.ElectionOptions{LeaseTTL: f.o.lease, Safety: tenure.SafetyOptions{RestartGuard: -1}}
}

// leader waits for the next that begins to lead.
func (f *fleet) leader() lead {
	select {
	case l := <-f.led:
		return l
	case <-time.After(startBound):
		f.Fatalf("nobody leads within %v", startBound)
		return lead{}
	}
}

// forget forgets who has begun to lead until now.
func (f *fleet) forget() {
	for {
		select {
		case <-f.led:
		default:
			return
		}
	}
}

// await waits for a condition.
func (f *fleet) await(what string, met func() bool) {
	for end := time.Now().Add(startBound); !met(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("%s: not within %v", what, startBound)
		}
	}
}

// crowd hands out the clients of one server: as many instances as the limit of open files allows
// have one of their own, the others share pools.
type crowd struct {
	redistest.TB
	server *redistest.Server
	gate   *gate
	own    int // that may have one of their own
	owned  int
	shared *redis.Client
	places int // that are left in it
	pools  int // that are shared
}

func newCrowd(tb redistest.TB, server *redistest.Server, instances int) *crowd {
	files, err := openFiles()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	// All have a subscription; a shared pool has at most ten connections, an own one some at once.
	spare := files - reserveFiles - instances - 10*(instances/sharing+1) - instances/5
	return &crowd{TB: tb, server: server, gate: newGate(), own: min(instances, max(0, spare/(perInstance-1)))}
}

// client returns a client for an instance, and what is hooked into it alone.
func (c *crowd) client(sent *counts) (*redis.Client, *tap) {
	opts := c.server.Options()
	opts.Dialer = c.gate.dial
	t := &tap{sent: sent}
	var client *redis.Client
	if c.owned < c.own {
		c.owned++
		client = redis.NewClient(opts)
		c.Cleanup(func() { _ = client.Close() })
	} else {
		if c.places == 0 {
			opts.PoolSize = 10
			c.shared, c.places = redis.NewClient(opts), sharing
			c.pools++
			c.Cleanup(func(shared *redis.Client) func() { return func() { _ = shared.Close() } }(c.shared))
		}
		c.places--
		client = c.shared.WithTimeout(5 * time.Second) // the same pool, hooks of its own
	}
	client.AddHook(t)
	return client, t
}

// memory is what this process holds.
func memory() float64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
