package memstore

import (
	"context"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// endless is how long a lease lasts that nobody else can take, or waits that nobody is granted.
const endless = 100 * 365 * 24 * time.Hour

// Leases grants the leases of all roles of one process, or does not. It is safe for concurrent use.
type Leases struct {
	changed chan struct{} // size 1

	mu       sync.Mutex
	granting bool
}

// NewLeases returns leases that are granted, or not, until Grant says otherwise.
func NewLeases(granting bool) *Leases {
	return &Leases{granting: granting, changed: make(chan struct{}, 1)}
}

// Lease is the lease of one role, for the instance of that ID.
func (c *Leases) Lease(id string) store.Lease { return &leaseStore{control: c, id: id} }

// Grant switches granting on or off; what leads is deposed.
func (c *Leases) Grant(granting bool) {
	c.mu.Lock()
	c.granting = granting
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default: // Listen will look anyway
	}
}

func (c *Leases) grants() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granting
}

// Listen wakes every elector after a change, until ctx is done.
func (c *Leases) Listen(ctx context.Context, a store.Audience) {
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

// leaseStore is the lease of one role that only this process campaigns for.
type leaseStore struct {
	control *Leases
	id      string

	mu    sync.Mutex
	token int64
	nonce string // of the holder; "": free
	since int64
}

func (l *leaseStore) answer(v lease.Verdict) store.LeaseReply {
	reply := store.LeaseReply{Answer: lease.Answer{Verdict: v, Now: time.Now().UnixMilli(), Token: l.token, Since: l.since, Origin: "local"}}
	if l.nonce != "" {
		reply.Holder = l.id
	}
	return reply
}

func (l *leaseStore) Acquire(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.control.grants() {
		reply := l.answer(lease.Held)
		reply.Wait, reply.Reason = endless, "hold"
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

func (l *leaseStore) Renew(_ context.Context, r lease.Request) (store.LeaseReply, error) {
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

func (l *leaseStore) Release(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == r.Nonce {
		l.nonce = ""
	}
	return l.answer(lease.Done), nil
}

func (l *leaseStore) Leader(context.Context) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == "" {
		return l.answer(lease.Unknown), nil
	}
	reply := l.answer(lease.Held)
	reply.Wait = endless
	return reply, nil
}
