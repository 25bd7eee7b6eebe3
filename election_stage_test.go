package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// The times of an elector on a stage. Without jitter it renews 3 s after it was granted, and is
// cancelled at 9.698 s.
const (
	stageTTL    = 10 * time.Second
	stageRenew  = 3 * time.Second
	stageRetry  = 5 * time.Second
	stageLife   = stageTTL - 100*time.Millisecond - lease.Rounding
	stageGuard  = 200 * time.Millisecond
	stageCancel = stageLife - stageGuard
	stageDrain  = 4 * time.Second
)

// stage is one elector in virtual time, before a store that does what the test says. It keeps what
// happens in order.
type stage struct {
	*testing.T
	*Elector
	store *scriptedStore
	began time.Time
	ended chan error // what Run returned
	halt  context.CancelCauseFunc
	ran   bool

	mu     sync.Mutex
	trace  []string
	events []Event
}

// onStage runs act in a bubble with an elector that does not run yet. Whatever is left running when
// act returns is stopped; a goroutine that does not end fails the test.
func onStage(t *testing.T, change func(*Options), act func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nonces := 0
		opts := Options{
			Namespace:       "tenure",
			InstanceID:      "me",
			ShutdownTimeout: stageDrain,
			Election:        ElectionOptions{LeaseTTL: stageTTL, RenewInterval: stageRenew, RetryInterval: stageRetry},
			random:          func() float64 { return 0.5 },
			secret:          func() string { nonces++; return fmt.Sprint("nonce-", nonces) },
		}
		if change != nil {
			change(&opts)
		}
		var c checker
		opts = opts.complete(&c)
		require.NoError(t, c.err())
		s := &stage{T: t, began: time.Now(), ended: make(chan error, 1)}
		s.store = &scriptedStore{stage: s, healed: make(chan struct{})}
		s.Elector = newElector(opts.electionConfig(s.store, newEventBus("me")), store.NewSubscription())
		s.standalone = true
		s.loop.bus.observe(func(e Event) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.events = append(s.events, e)
		})
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
func (s *stage) run(lead ...LeadFunc) {
	ctx, halt := context.WithCancelCause(context.Background())
	s.halt, s.ran = halt, true
	go func() {
		s.ended <- s.Elector.Run(ctx, lead...)
		close(s.ended)
	}()
	synctest.Wait()
}

// hint tells the elector something on the channel of its lease, if on no other.
func (s *stage) hint(h store.Hint) {
	if h.Channel == "" {
		h.Channel = s.loop.channel
	}
	s.Elector.hint(h)
}

// stop asks Run to stop and waits for its answer.
func (s *stage) stop() error {
	s.halt(nil)
	return <-s.ended
}

// now is the virtual time since the stage was set.
func (s *stage) now() time.Duration { return time.Since(s.began) }

// at lets virtual time pass until d after the beginning, and everything happen that is due then.
func (s *stage) at(d time.Duration) {
	s.Helper()
	require.GreaterOrEqual(s, d, s.now(), "it is later already")
	time.Sleep(d - s.now())
	synctest.Wait()
}

// pass lets virtual time pass.
func (s *stage) pass(d time.Duration) { s.at(s.now() + d) }

// note keeps a line of what happens.
func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf(format, args...))
}

func (s *stage) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.trace)
}

// told returns the events of the given types so far.
func (s *stage) told(types ...EventType) []Event {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var told []Event
	for _, e := range s.events {
		if slices.Contains(types, e.Type) {
			told = append(told, e)
		}
	}
	return told
}

// honest is leader work that takes drain to return when its context is done. It notes what it sees.
func (s *stage) honest(drain time.Duration) LeadFunc {
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
func (s *stage) after(d time.Duration, do func() error) LeadFunc {
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
	stage  *stage
	healed chan struct{} // closed: hanging calls return

	mu     sync.Mutex
	script func(storeCall) fate // nil: a good network
	calls  []storeCall
	healer sync.Once

	// what Redis holds
	holder, nonce string
	token         int64
	until         time.Duration
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

var errNetwork = fmt.Errorf("%w: connection reset by peer", ErrUnreachable)

func (s *scriptedStore) call(ctx context.Context, op string, r lease.Request) (store.LeaseReply, error) {
	c := storeCall{Request: r, at: s.stage.now(), op: op, number: 1, leader: s.stage.IsLeader()}
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
		s.stage.note("release leader=%v", c.leader)
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
	now := s.stage.now()
	if now >= s.until {
		s.holder = ""
	}
	reply := store.LeaseReply{Holder: s.holder, Answer: lease.Answer{
		Now: 1_000_000_000_000 + now.Milliseconds(), Token: s.token, TTL: stageTTL, Since: 1_000_000_000, Origin: "origin",
	}}
	mine := s.holder != "" && s.nonce == r.Nonce
	switch {
	case op == "acquire" && (mine || s.holder == ""):
		if !mine {
			s.token = max(s.token, r.Floor) + 1
		}
		s.holder, s.nonce, s.until = "me", r.Nonce, now+stageTTL
		reply.Verdict, reply.Token, reply.Holder = lease.Won, s.token, "me"
	case op == "acquire":
		reply.Verdict, reply.Wait, reply.Reason = lease.Held, s.until-now, "lease"
	case op == "renew" && mine && s.token == r.Token:
		s.until = now + stageTTL
		reply.Verdict = lease.Kept
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
	return s.holder == "" || s.stage.now() >= s.until
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
