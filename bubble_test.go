package tenure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/proof/overlay"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/schedule"
	"github.com/tenure-go/tenure/internal/store"
)

// TestMain takes the scripts of TENURE_SCRIPTS in place of the embedded ones, if it is set: that
// is how `make bugs` breaks them.
func TestMain(m *testing.M) {
	overlay.TakeScripts()
	// miniredis builds a Lua state for each script, and all of it is garbage at once.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30)
	m.Run()
}

// together lets the parts of a test run beside each other. The test itself runs alone, since others
// of this package need the machine to have one processor (see simnet.Exact).
func together(t *testing.T) {
	t.Helper()
	t.Parallel()
}

// bubble is a test in virtual time: a clock that begins with it, and what happens in order. The
// harnesses below and that of the registries are built on it.
type bubble struct {
	*testing.T
	began time.Time

	mu    sync.Mutex // guards what a test shares with what runs
	trace []string
}

// newBubble begins one. It is called in the bubble of testing/synctest.
func newBubble(t *testing.T) *bubble { return &bubble{T: t, began: time.Now()} }

// now is the time since the beginning.
func (b *bubble) now() time.Duration { return time.Since(b.began) }

// at lets time pass until d after the beginning, and everything happen that is due then.
func (b *bubble) at(d time.Duration) {
	b.Helper()
	require.GreaterOrEqual(b, d, b.now(), "it is later already")
	b.pass(d - b.now())
}

// pass lets time pass.
func (b *bubble) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until lets time pass until done.
func (b *bubble) until(bound time.Duration, done func() bool) (took time.Duration) {
	b.Helper()
	began := b.now()
	for !done() {
		require.Less(b, b.now()-began, bound, "it takes too long")
		b.pass(time.Millisecond)
	}
	return b.now() - began
}

// lock guards what runs and the test share.
func (b *bubble) lock(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do()
}

// note keeps a line of what happens.
func (b *bubble) note(format string, args ...any) {
	b.lock(func() { b.trace = append(b.trace, fmt.Sprintf(format, args...)) })
}

// noted takes the trace.
func (b *bubble) noted() (taken []string) {
	b.lock(func() { taken, b.trace = b.trace, nil })
	return taken
}

// witness keeps the events that it observes.
type witness struct {
	mu     sync.Mutex
	events []Event
}

func (w *witness) observe(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// seen are the events so far that are wanted. It lets everything happen that is due, which only
// the goroutine of the test may do, so leader work cannot ask it.
func (w *witness) seen(wanted func(Event) bool) (seen []Event) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if wanted(e) {
			seen = append(seen, e)
		}
	}
	return seen
}

// told returns the events of the given types so far.
func (w *witness) told(types ...EventType) []Event {
	return w.seen(func(e Event) bool { return slices.Contains(types, e.Type) })
}

// The times of an elector in an election. Without jitter it renews 3 s after it was granted, and is
// cancelled at 9.698 s.
const (
	electionTTL    = 10 * time.Second
	electionRenew  = 3 * time.Second
	electionRetry  = 5 * time.Second
	electionLife   = electionTTL - 100*time.Millisecond - lease.Rounding
	electionGuard  = 200 * time.Millisecond
	electionCancel = electionLife - electionGuard
	electionDrain  = 4 * time.Second
)

// election is one elector in virtual time, before a store that does what the test says.
type election struct {
	*bubble
	*Elector
	witness
	store *scriptedStore
	ended chan error // what Run returned
	halt  context.CancelCauseFunc
	ran   bool
}

// inElection runs act in a bubble with an elector that does not run yet. Whatever is left running
// when act returns is stopped; a goroutine that does not end fails the test.
func inElection(t *testing.T, change func(*Options), act func(*election)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nonces := 0
		opts := Options{
			Namespace:       "tenure",
			InstanceID:      "me",
			ShutdownTimeout: electionDrain,
			Election:        ElectionOptions{LeaseTTL: electionTTL, RenewInterval: electionRenew, RetryInterval: electionRetry},
			random:          func() float64 { return 0.5 },
			secret:          func() string { nonces++; return fmt.Sprint("nonce-", nonces) },
		}
		if change != nil {
			change(&opts)
		}
		var c checker
		opts = opts.complete(&c)
		require.NoError(t, c.err())
		s := &election{bubble: newBubble(t), ended: make(chan error, 1)}
		s.store = &scriptedStore{election: s, healed: make(chan struct{})}
		s.Elector = newElector(opts.electionConfig(opts.electionShared(), s.store, newEventBus("me")), store.NewSubscription())
		s.standalone = true
		s.loop.bus.observe(s.witness.observe)
		defer func() {
			s.store.heal()
			if s.ran {
				_ = s.stop()
			}
			time.Sleep(time.Hour) // what the test made slow returns
		}()
		act(s)
	})
}

// run starts Run.
func (s *election) run(lead ...LeadFunc) {
	ctx, halt := context.WithCancelCause(context.Background())
	s.halt, s.ran = halt, true
	go func() {
		s.ended <- s.Elector.Run(ctx, lead...)
		close(s.ended)
	}()
	synctest.Wait()
}

// hint sends the elector a message on the channel of its lease, if on no other.
func (s *election) hint(h store.Hint) {
	if h.Channel == "" {
		h.Channel = s.loop.channel
	}
	s.Elector.hint(h)
}

// stop asks Run to stop and waits for its answer.
func (s *election) stop() error {
	s.halt(nil)
	return <-s.ended
}

// honest is leader work that takes drain to return when its context is done. It notes what it sees.
func (s *election) honest(drain time.Duration) LeadFunc {
	return func(ctx context.Context, term Term) error {
		s.note("begin leader=%v", s.IsLeader())
		<-ctx.Done()
		s.note("cancelled leader=%v valid=%v", s.IsLeader(), term.Valid())
		time.Sleep(drain)
		s.note("drained")
		return ctx.Err()
	}
}

// after is leader work that does something once, a while after the begin of each term, and then
// what an honest one does.
func (s *election) after(d time.Duration, do func() error) LeadFunc {
	return func(ctx context.Context, _ Term) error {
		select {
		case <-time.After(d):
			return do()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// fate is what becomes of a call: when it reaches Redis, if it does, and what its caller hears
// when.
type fate struct {
	there, back time.Duration
	lost        bool              // it never reaches Redis
	err         error             // what the caller hears instead of the reply
	hang        bool              // the caller hears nothing before the end: the client ignores its context
	answer      *store.LeaseReply // instead of what Redis would say
}

// storeCall is one call of the elector.
type storeCall struct {
	lease.Request
	at     time.Duration
	op     string
	number int  // of its kind, from 1
	leader bool // what IsLeader said then
}

// scriptedStore is a Redis of one role whose network does what the test says. It grants, keeps and
// takes back leases like the scripts do on a Redis that loses nothing.
type scriptedStore struct {
	election *election
	healed   chan struct{} // closed: hanging calls return

	mu     sync.Mutex
	script func(storeCall) fate // nil: a good network
	calls  []storeCall
	healer sync.Once

	// what Redis holds
	holder, nonce string
	token         int64
	until         time.Duration
	ready         string // the instance that asks for the lease
}

// on sets the script for the calls that come.
func (s *scriptedStore) on(script func(storeCall) fate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// on makes a script of a fate for one kind of calls.
func on(op string, f fate) func(storeCall) fate {
	return func(c storeCall) fate {
		if c.op == op || op == "" {
			return f
		}
		return fate{}
	}
}

// heal ends every hanging call, and all that come.
func (s *scriptedStore) heal() { s.healer.Do(func() { close(s.healed) }) }

// made returns the calls of one kind so far, "" for all.
func (s *scriptedStore) made(op string) []storeCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	var made []storeCall
	for _, c := range s.calls {
		if op == "" || c.op == op {
			made = append(made, c)
		}
	}
	return made
}

// hold gives the lease to another instance until d after the beginning.
func (s *scriptedStore) hold(id string, until time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token++
	s.holder, s.nonce, s.until = id, "theirs", until
}

func (s *scriptedStore) Acquire(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return s.call(ctx, "acquire", r)
}

func (s *scriptedStore) Renew(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return s.call(ctx, "renew", r)
}

func (s *scriptedStore) Release(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	return s.call(ctx, "release", r)
}

func (s *scriptedStore) Leader(ctx context.Context) (store.LeaseReply, error) {
	return s.call(ctx, "leader", lease.Request{})
}

func (s *scriptedStore) ForgetTerms(context.Context, int64) (store.LeaseReply, error) {
	return store.LeaseReply{}, nil
}

func (s *scriptedStore) Terms(context.Context, int) ([]store.TermEntry, error) { return nil, nil }

var errNetwork = fmt.Errorf("%w: connection reset by peer", ErrUnreachable)

func (s *scriptedStore) call(ctx context.Context, op string, r lease.Request) (store.LeaseReply, error) {
	c := storeCall{Request: r, at: s.election.now(), op: op, number: 1, leader: s.election.IsLeader()}
	s.mu.Lock()
	for _, before := range s.calls {
		if before.op == op {
			c.number++
		}
	}
	s.calls = append(s.calls, c)
	script := s.script
	s.mu.Unlock()
	var f fate
	if script != nil {
		f = script(c)
	}
	if op == "release" {
		s.election.note("release leader=%v", c.leader)
	}
	time.Sleep(f.there)
	reply := store.LeaseReply{}
	if !f.lost {
		reply = s.execute(op, r)
	}
	time.Sleep(f.back)
	if f.hang {
		<-s.healed
		return store.LeaseReply{}, errNetwork
	}
	switch {
	case f.err != nil:
		return store.LeaseReply{}, f.err
	case f.answer != nil:
		return *f.answer, nil
	case f.lost:
		return store.LeaseReply{}, errNetwork
	}
	return reply, nil
}

// execute is what Redis does at the instant at which a call reaches it.
func (s *scriptedStore) execute(op string, r lease.Request) store.LeaseReply {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.election.now()
	if now >= s.until {
		s.holder = ""
	}
	reply := store.LeaseReply{Holder: s.holder, Answer: lease.Answer{
		Now: 1_000_000_000_000 + now.Milliseconds(), Token: s.token, TTL: electionTTL, Since: 1_000_000_000, Origin: "origin",
	}}
	mine := s.holder != "" && s.nonce == r.Nonce
	switch {
	case op == "acquire" && (mine || s.holder == ""):
		if !mine {
			s.token = max(s.token, r.Floor) + 1
		}
		s.holder, s.nonce, s.until = "me", r.Nonce, now+electionTTL
		reply.Verdict, reply.Token, reply.Holder = lease.Won, s.token, "me"
	case op == "acquire":
		reply.Verdict, reply.Wait, reply.Reason = lease.Held, s.until-now, "lease"
	case op == "renew" && mine && s.token == r.Token:
		s.until = now + electionTTL
		reply.Verdict, reply.Ready = lease.Kept, r.Heir != "" && r.Heir == s.ready
	case op == "renew":
		reply.Verdict, reply.Reason = lease.Lost, "taken"
	case op == "release":
		if mine && (r.Token == 0 || r.Token == s.token) {
			s.holder = ""
		}
		reply.Verdict = lease.Done
	case s.holder == "":
		reply.Verdict, reply.Token = lease.Unknown, 0
	default:
		reply.Verdict, reply.Wait = lease.Held, s.until-now
	}
	return reply
}

// free reports whether nobody holds the lease.
func (s *scriptedStore) free() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder == "" || s.election.now() >= s.until
}

// causes names the errors of this package that err matches, for tables.
func causes(err error) string {
	var names []string
	for _, known := range []struct {
		name string
		err  error
	}{
		{"lost", ErrLost}, {"resigned", ErrResigned}, {"work failed", ErrWorkFailed}, {"stopped", ErrStopped},
		{"drain timeout", ErrDrainTimeout}, {"unreachable", ErrUnreachable}, {"misconfigured", ErrMisconfigured}, {"running", ErrRunning},
	} {
		if errors.Is(err, known.err) {
			names = append(names, known.name)
		}
	}
	return strings.Join(names, ", ")
}

// cluster is a Redis in virtual time and the coordinators on it, each on a host of its own.
type cluster struct {
	*bubble
	net     *simnet.Network
	redis   *simnet.Server
	members []*instance
	tokens  []int64 // in the order in which they were reported
}

// instance is one process.
type instance struct {
	*Coordinator
	witness
	client  *redis.Client // nil without Redis
	cluster *cluster
	name    string
	halt    context.CancelCauseFunc
	ended   chan error // what Run returned; nil: it was not called
	when    time.Duration
}

// spare opens connections.
func (m *instance) spare() {
	var pings sync.WaitGroup
	for range 10 {
		pings.Go(func() { _ = m.client.Ping(m.cluster.Context()).Err() })
	}
	pings.Wait()
}

// inCluster runs act in a bubble. Whatever still runs when it returns is stopped; a goroutine that
// does not end fails the test.
func inCluster(t *testing.T, act func(*cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{bubble: newBubble(t), net: simnet.New(simnet.Options{})}
		defer c.net.Close()
		c.redis = c.net.NewServer(simnet.Addr, simnet.ServerOptions{})
		defer func() {
			c.net.Heal("")
			for _, m := range c.members {
				if m.ended != nil {
					_, _ = m.stop()
				}
			}
		}()
		act(c)
	})
}

// member is a coordinator that does not run yet. Its lease lasts 10 s.
func (c *cluster) member(name string, change ...func(*Options)) *instance {
	c.Helper()
	return c.on(name, nil, change...)
}

// on is a member with another client.
func (c *cluster) on(name string, client func(*redis.Options), change ...func(*Options)) *instance {
	c.Helper()
	opts := Options{Namespace: "tenure", InstanceID: name, Election: ElectionOptions{LeaseTTL: 10 * time.Second}}
	for _, change := range change {
		change(&opts)
	}
	rdb := c.net.Client(name, client)
	coordinator, err := New(rdb, opts)
	require.NoError(c, err)
	m := c.join(name, coordinator)
	m.client = rdb
	return m
}

// alone is a coordinator without Redis.
func (c *cluster) alone(opts Options) *instance {
	c.Helper()
	coordinator, err := NewStandalone(opts)
	require.NoError(c, err)
	return c.join("alone", coordinator)
}

func (c *cluster) join(name string, coordinator *Coordinator) *instance {
	m := &instance{Coordinator: coordinator, cluster: c, name: name}
	m.Observe(m.observe)
	c.members = append(c.members, m)
	return m
}

// start begins Run.
func (m *instance) start(lead ...LeadFunc) *instance {
	ctx, halt := context.WithCancelCause(context.Background())
	m.halt, m.ended = halt, make(chan error, 1)
	go func() { // ends with halt
		err := m.Run(ctx, lead...)
		m.when = m.cluster.now()
		m.ended <- err
		close(m.ended)
	}()
	synctest.Wait()
	return m
}

// stop asks Run to stop and waits for its answer.
func (m *instance) stop() (took time.Duration, err error) {
	began := m.cluster.now()
	m.halt(nil)
	err = <-m.ended
	return m.when - began, err
}

// crash is the death of the process: Redis hears nothing of it any more.
func (m *instance) crash() {
	m.cluster.net.Crash(m.name)
	_, _ = m.stop()
}

// holder is who holds a lease, by Redis.
func (c *cluster) holder(key string) (id string) {
	c.redis.Do(func(m *miniredis.Miniredis) { id, _ = m.Get(key) })
	return id
}

// del removes a key behind everybody's back.
func (c *cluster) del(key string) { c.redis.Do(func(m *miniredis.Miniredis) { m.Del(key) }) }

// refuse makes Redis answer with an error whatever begins with that key.
func (c *cluster) refuse(key, refusal string) {
	c.redis.Intercept(func(_, _ string, args []string) string {
		if len(args) > 0 && args[0] == key {
			return refusal
		}
		return ""
	})
}

// forbid takes the rights to a key away.
func (c *cluster) forbid(key string) {
	c.refuse(key, "NOPERM this user has no permissions to access one of the keys used as arguments")
}

// record is the status in the record of a member, by Redis; "" if there is no record.
func (m *instance) record() (status string) {
	m.cluster.redis.Do(func(r *miniredis.Miniredis) {
		var record struct {
			Status string `json:"status"`
		}
		_ = json.Unmarshal([]byte(r.HGet("tenure:instances", m.name)), &record)
		status = record.Status
	})
	return status
}

// works is leader work that takes drain to return when its context is done. It notes what it sees.
func (m *instance) works(what string, drain time.Duration) LeadFunc {
	return func(ctx context.Context, term Term) error {
		m.cluster.note("%s %s leads %s", m.name, what, m.cluster.token(term.Token))
		<-ctx.Done()
		time.Sleep(drain)
		m.cluster.note("%s %s drained", m.name, what)
		return ctx.Err()
	}
}

// counts is a task that notes its runs.
func (m *instance) counts(name string, schedule Schedule) Task {
	return Task{Name: name, Schedule: schedule, Run: func(_ context.Context, run TaskRun) error {
		m.cluster.note("%s %s %v", m.name, run.Task, run.Slot.Sub(m.cluster.began))
		return nil
	}}
}

// token is a short name for a token: #1 is the first that was reported.
func (c *cluster) token(token int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.tokens, token) {
		c.tokens = append(c.tokens, token)
	}
	return fmt.Sprint("#", slices.Index(c.tokens, token)+1)
}

// told returns the events so far, one a line: of the given types, or all but EventElectionWaiting,
// EventElectionStarted and EventClusterChanged.
func (m *instance) told(types ...EventType) []string {
	told := []string{}
	for _, e := range m.seen(func(e Event) bool {
		return slices.Contains(types, e.Type) || len(types) == 0 && e.Type != EventElectionWaiting && e.Type != EventElectionStarted &&
			e.Type != EventClusterChanged
	}) {
		line := []string{string(e.Type)}
		if e.Role != "" {
			line = append(line, "role="+e.Role)
		}
		if e.Token != 0 {
			line = append(line, m.cluster.token(e.Token))
		}
		line = append(line, e.Subject, e.Task)
		told = append(told, strings.Join(slices.DeleteFunc(line, func(s string) bool { return s == "" }), " "))
	}
	return told
}

// list is the registry as a member sees it.
func (m *instance) list() (listed []string) {
	m.cluster.Helper()
	instances, err := m.Registry().Instances(context.Background(), InstanceQuery{})
	require.NoError(m.cluster, err)
	for _, i := range instances {
		listed = append(listed, i.ID+" "+string(i.State))
	}
	return listed
}

// taskCluster is a store of tasks in virtual time, and leaders that come and go.
type taskCluster struct {
	*bubble
	witness
	store   store.Tasks // local, unless the test has another one
	local   *memstore.Tasks
	apart   atomic.Int64 // how far the wall clock is ahead of the monotonic one
	token   int64
	members []*taskInstance
	runs    atomic.Int64 // that were claimed
	random  *rand.Rand
}

// inTaskCluster runs act in a bubble. Whatever still leads when it returns is ended; a goroutine
// that does not end fails the test.
func inTaskCluster(t *testing.T, act func(*taskCluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := &taskCluster{bubble: newBubble(t), token: 1000, random: rand.New(rand.NewPCG(1, 1))}
		g.local = memstore.NewTasks(func() lease.Reading {
			reading := readClock()
			reading.Wall += time.Duration(g.apart.Load())
			return reading
		})
		g.store = g.local
		defer func() {
			for _, m := range g.members {
				if m.ended != nil {
					m.end()
				}
			}
		}()
		act(g)
	})
}

// draw is a random number below n.
func (g *taskCluster) draw(n int) (drawn int) {
	g.lock(func() { drawn = g.random.IntN(n) })
	return drawn
}

// note keeps a line of what happens, and when.
func (g *taskCluster) note(format string, args ...any) {
	g.bubble.note("%v %s", g.now().Round(time.Millisecond), fmt.Sprintf(format, args...))
}

// taskInstance is one process. It may lead, several times.
type taskInstance struct {
	*TaskScheduler
	g     *taskCluster
	store *shakyTasks
	ended chan error
	t     *liveTerm
}

func (g *taskCluster) member(id string, tasks ...Task) *taskInstance {
	bus := newEventBus(id)
	bus.observe(g.observe)
	store := &shakyTasks{Tasks: g.store, healed: make(chan struct{})}
	m := &taskInstance{TaskScheduler: newTasks(store, bus, id), g: g, store: store}
	m.random = func() float64 { return 1 } // nothing is taken off a backoff
	m.secret = func() string { return fmt.Sprintf("%s-%d", id, g.runs.Add(1)) }
	g.members = append(g.members, m)
	for _, task := range tasks {
		require.NoError(g, m.Register(task))
	}
	return m
}

// leader is a member that leads.
func (g *taskCluster) leader(id string, tasks ...Task) *taskInstance {
	m := g.member(id, tasks...)
	m.begin()
	return m
}

// begin starts a term.
func (m *taskInstance) begin() {
	m.g.token++
	m.t = begin(context.Background(), Term{InstanceID: m.id, Token: m.g.token}, lease.Lease{Sent: readClock(), Life: 1e5 * time.Hour}, func() {})
	m.ended = make(chan error, 1)
	term, _ := TermFrom(m.t.ctx)
	go func() { m.ended <- m.runTerm(m.t.ctx, term) }() // awaited by end
	synctest.Wait()
}

// end ends the term and waits for lead to return.
func (m *taskInstance) end() {
	m.g.Helper()
	m.stop()
	select {
	case err := <-m.ended:
		m.ended = nil
		require.NoError(m.g, err)
	case <-time.After(time.Hour):
		m.g.Fatal("lead does not return")
	}
	synctest.Wait()
}

func (m *taskInstance) stop() {
	m.t.end(ErrStopped)
	synctest.Wait()
}

// crash ends the term like the death of its process: Redis hears nothing of it any more.
func (m *taskInstance) crash() {
	m.g.Helper()
	m.store.on(func(string, int) taskFate { return taskLost })
	m.stop() // its goroutines end within schedule.FinishBound
}

// run is a task that takes a while, heeds its context and notes what it does.
func (g *taskCluster) run(takes time.Duration) TaskFunc {
	return func(ctx context.Context, run TaskRun) error {
		g.note("%s %v #%d starts", run.Task, run.Slot.Sub(g.began).Round(time.Millisecond), run.Attempt)
		if takes > 0 {
			select {
			case <-ctx.Done():
				g.note("%s %v #%d is told to stop", run.Task, run.Slot.Sub(g.began).Round(time.Millisecond), run.Attempt)
				return ctx.Err()
			case <-time.After(takes):
			}
		}
		return nil
	}
}

// status is the status of the one task.
func (m *taskInstance) status() TaskStatus {
	m.g.Helper()
	list, err := m.List(context.Background())
	require.NoError(m.g, err)
	require.Len(m.g, list, 1)
	return list[0]
}

// taskFate is what becomes of a call.
type taskFate int

const (
	taskFine   taskFate = iota
	taskLost            // neither the request nor the reply gets through
	taskMute            // the request gets through, the reply does not
	taskHung            // the request gets through and the call never returns, until it is healed
	taskLate            // the request gets through when it is healed
	taskDenied          // the record is said to have changed, and has not
	taskSick            // an answer that somebody has to fix something for
)

var errShaky = errors.New("connection reset")

// shakyTasks is a way to the store that does what the test says.
type shakyTasks struct {
	store.Tasks
	calls  atomic.Int64
	healed chan struct{}

	mu     sync.Mutex
	script func(op string, number int) taskFate
	fix    string // for taskSick
	counts map[string]int
}

func (s *shakyTasks) on(script func(op string, number int) taskFate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.counts = script, make(map[string]int)
}

// lacks says what somebody has to do about a taskSick.
func (s *shakyTasks) lacks(fix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fix = fix
}

// befalls is a script: so many calls of one kind, the first ones, meet this fate, and everything
// else is fine.
func befalls(op string, times int, fate taskFate) func(string, int) taskFate {
	return func(called string, number int) taskFate {
		if called == op && number <= times {
			return fate
		}
		return taskFine
	}
}

const always = math.MaxInt

func (s *shakyTasks) through(op string, call func() (store.TaskReply, error)) (store.TaskReply, error) {
	s.calls.Add(1)
	s.mu.Lock()
	fate, fix := taskFine, s.fix
	if s.script != nil {
		s.counts[op]++
		fate = s.script(op, s.counts[op])
	}
	s.mu.Unlock()
	switch fate {
	case taskLost:
		return store.TaskReply{}, &store.Error{Kind: ErrUnreachable, Op: op, Err: errShaky}
	case taskMute:
		_, _ = call()
		return store.TaskReply{}, &store.Error{Kind: ErrUnreachable, Op: op, Err: errShaky}
	case taskHung:
		reply, err := call()
		<-s.healed
		return reply, err
	case taskLate:
		<-s.healed
	case taskDenied:
		reply, err := s.Tasks.Record(context.Background(), "t")
		reply.Verdict = store.TaskMoved
		return reply, err
	case taskSick:
		return store.TaskReply{}, &store.Error{Kind: ErrMisconfigured, Op: op, Fix: fix, Err: errShaky}
	}
	return call()
}

func (s *shakyTasks) Open(ctx context.Context, name string, o store.TaskOpen) (store.TaskReply, error) {
	return s.through("open", func() (store.TaskReply, error) { return s.Tasks.Open(ctx, name, o) })
}

func (s *shakyTasks) Plan(ctx context.Context, name string, p store.TaskPlan) (store.TaskReply, error) {
	return s.through("plan", func() (store.TaskReply, error) { return s.Tasks.Plan(ctx, name, p) })
}

func (s *shakyTasks) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	return s.through("claim", func() (store.TaskReply, error) { return s.Tasks.Claim(ctx, name, c) })
}

func (s *shakyTasks) Retry(ctx context.Context, name string, r store.TaskRetry) (store.TaskReply, error) {
	return s.through("retry", func() (store.TaskReply, error) { return s.Tasks.Retry(ctx, name, r) })
}

func (s *shakyTasks) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	return s.through("finish", func() (store.TaskReply, error) { return s.Tasks.Finish(ctx, name, f) })
}

func (s *shakyTasks) Record(ctx context.Context, name string) (store.TaskReply, error) {
	return s.through("read", func() (store.TaskReply, error) { return s.Tasks.Record(ctx, name) })
}

func (s *shakyTasks) Trigger(ctx context.Context, name string, t store.TaskTrigger) (store.TaskReply, error) {
	return s.through("trigger", func() (store.TaskReply, error) { return s.Tasks.Trigger(ctx, name, t) })
}

func (s *shakyTasks) RecordAndTriggers(ctx context.Context, name, of string) (store.TaskReply, error) {
	return s.through("read", func() (store.TaskReply, error) { return s.Tasks.RecordAndTriggers(ctx, name, of) })
}

// sortedTrace puts what was noted at one instant in order.
func sortedTrace(trace []string) []string {
	slices.SortStableFunc(trace, func(a, b string) int {
		atA, restA, _ := strings.Cut(a, " ")
		atB, restB, _ := strings.Cut(b, " ")
		if atA != atB {
			return 0
		}
		return strings.Compare(restA, restB)
	})
	return trace
}

// newTasks returns a scheduler with the defaults, of an instance before a store.
func newTasks(tasks store.Tasks, bus *eventBus, id string) *TaskScheduler {
	return newTaskScheduler(taskConfig{
		store: tasks, bus: bus, id: id, secret: nonce, random: rand.Float64, grace: schedule.DefaultGrace, patience: overrunAfter,
	})
}

// delayOf is the jitter of a slot.
func delayOf(task Task, slot int64) time.Duration {
	p := (&registered{Task: task}).policy()
	return p.Delay(slot)
}
