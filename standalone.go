package tenure

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/lease"

	"github.com/tenure-go/tenure/internal/store"
)

// NewStandalone returns a coordinator without Redis, for a service that runs as one instance: while Run goes on it leads every
// role, but for the stand-back after a resignation or failed work. The registry lists this process only, tasks keep their
// records in memory. Tokens start from the wall clock, so that they go on increasing through restarts.
func NewStandalone(opts Options) (*Coordinator, error) {
	coordinator, _, err := newLocal(opts, true, neverExpires)
	return coordinator, err
}

// neverExpires makes a lease one that is believed in for ever.
func neverExpires(t *lease.Timing) { t.Drift = -forever }

// forTests is neverExpires, and quick to lead again after it was deposed.
func forTests(t *lease.Timing) {
	neverExpires(t)
	t.TTL, t.Retry = minLeaseTTL, time.Second
}

func newLocal(opts Options, granting bool, timing func(*lease.Timing)) (*Coordinator, *localControl, error) {
	var c checker
	opts = opts.complete(&c)
	if err := c.err(); err != nil {
		return nil, nil, err
	}
	control := &localControl{granting: granting, changed: newWakeup()}
	coordinator := newCoordinator(opts, backend{
		leases:   func(o ElectionOptions, id string) store.Lease { return &localLease{control: control, id: id} },
		check:    func(*checker, string, ElectionOptions) {},
		timing:   timing,
		registry: newLocalRegistry(),
		tasks:    newLocalTasks(),
		listen:   control.listen,
	})
	return coordinator, control, nil
}

// localControl grants the leases of all roles of one process, or does not.
type localControl struct {
	changed wakeup

	mu       sync.Mutex
	granting bool
}

// Grant switches granting on or off; what leads is deposed.
func (c *localControl) Grant(granting bool) {
	c.mu.Lock()
	c.granting = granting
	c.mu.Unlock()
	c.changed.nudge()
}

func (c *localControl) grants() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granting
}

// listen wakes every elector after a change.
func (c *localControl) listen(ctx context.Context, a store.Audience) {
	a.State.Store(&store.Subscription{Active: true, Since: time.Now()})
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			a.Take(store.Hint{Type: store.HintVacant, All: true})
			a.Take(store.Hint{Type: store.HintRollCall, All: true})
		}
	}
}

// localLease is the lease of one role that only this process campaigns for.
type localLease struct {
	control *localControl
	id      string

	mu    sync.Mutex
	token int64
	nonce string // of the holder; "": free
	since int64
}

func (l *localLease) answer(v lease.Verdict) store.LeaseReply {
	reply := store.LeaseReply{Answer: lease.Answer{Verdict: v, Now: time.Now().UnixMilli(), Token: l.token, Since: l.since, Origin: "local"}}
	if l.nonce != "" {
		reply.Holder = l.id
	}
	return reply
}

func (l *localLease) Acquire(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.control.grants() {
		reply := l.answer(lease.Held)
		reply.Wait, reply.Reason = forever, "hold"
		return reply, nil
	}
	if l.nonce != "" && l.nonce != r.Nonce { // of another campaign of ours, which is about to give it back
		reply := l.answer(lease.Held)
		reply.Wait, reply.Reason = 10*time.Millisecond, "lease"
		return reply, nil
	}
	now := time.Now()
	l.token, l.nonce, l.since = max(l.token+1, r.Floor+1, now.UnixMilli()), r.Nonce, now.Unix()
	return l.answer(lease.Won), nil
}

func (l *localLease) Renew(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == r.Nonce {
		if l.control.grants() {
			return l.answer(lease.Kept), nil
		}
		l.nonce = ""
	}
	reply := l.answer(lease.Lost)
	reply.Reason = "taken"
	return reply, nil
}

func (l *localLease) Release(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == r.Nonce {
		l.nonce = ""
	}
	return l.answer(lease.Done), nil
}

func (l *localLease) Leader(context.Context) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == "" {
		return l.answer(lease.Unknown), nil
	}
	reply := l.answer(lease.Held)
	reply.Wait = forever
	return reply, nil
}

func init() { //nolint:gochecknoinits // the only way in for tenuretest without a public name; it does nothing else
	hook.NewControlled = func(opts any) (any, hook.Control, error) {
		coordinator, control, err := newLocal(opts.(Options), false, forTests)
		return coordinator, controlled{control, coordinator}, err
	}
}

// controlled is what tenuretest holds of a coordinator.
type controlled struct {
	*localControl
	coordinator *Coordinator
}

// Leading reports whether some role leads, and whether all do.
func (c controlled) Leading() (some, all bool) {
	c.coordinator.mu.Lock()
	roles := c.coordinator.roles
	c.coordinator.mu.Unlock()
	all = true
	for _, e := range roles {
		leads := e.IsLeader()
		some, all = some || leads, all && leads
	}
	return some, all
}
