package memstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// endless is how long a lease lasts that nobody else can take, or waits that nobody is granted.
const endless = 100 * 365 * 24 * time.Hour

// Leases grants the leases of all roles of one process, or does not. It is safe for concurrent use.
type Leases struct {
	// Note takes what changes for the log. It is set before the first lease is asked for, and must
	// not block.
	Note func(store.LogEntry)

	changed chan struct{} // size 1
	tokens  *tokens
	link    *Link // nil: it cannot be cut

	mu       sync.Mutex
	granting bool
	roles    map[string]bool // granted, if not every role is; nil: every one
	leader   string          // who leads what is not granted; "": nobody
	stores   map[string]*leaseStore
}

// NewLeases returns leases that are granted, or not, until Grant says otherwise. Their tokens are
// greater than all of that memory before. link is how its coordinator reaches it; nil: always.
func NewLeases(granting bool, memory *Memory, link *Link) *Leases {
	return &Leases{
		tokens: memory.tokens, link: link, Note: func(store.LogEntry) {}, granting: granting, changed: make(chan struct{}, 1), stores: make(map[string]*leaseStore),
	}
}

// Lease is the lease of a role, for the instance of that ID.
func (c *Leases) Lease(role, id string) store.Lease {
	l := &leaseStore{control: c, role: role, id: id}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores[role] = l
	return c.reached(l)
}

// Foreign is the lease of a role that the coordinator does not have: nobody asks for it. It is not
// kept, since anybody may make up names of roles.
func (c *Leases) Foreign(role, id string) store.Lease {
	return c.reached(&leaseStore{control: c, role: role, id: id})
}

func (c *Leases) reached(l *leaseStore) store.Lease {
	if c.link != nil {
		return linkedLease{c.link, l}
	}
	return l
}

// Holding is a lease as it is at one moment: once it was renewed, or given back, it is another.
type Holding struct {
	nonce    string
	renewals int
}

// Held returns the lease of a role, which counts as renewed at this moment if renewed says so.
func (c *Leases) Held(role string, renewed bool) Holding {
	l := c.of(role)
	l.mu.Lock()
	defer l.mu.Unlock()
	if renewed {
		l.renewals++
	}
	return Holding{l.nonce, l.renewals}
}

// Lapse ends the lease of a role, if it is still the one that was held.
func (c *Leases) Lapse(role string, held Holding) {
	l := c.of(role)
	l.mu.Lock()
	defer l.mu.Unlock()
	if held == (Holding{l.nonce, l.renewals}) {
		l.ended(lease.Expired)
	}
}

func (c *Leases) of(role string) *leaseStore {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stores[role]
}

// Free reports whether no lease has a holder.
func (c *Leases) Free() bool {
	c.mu.Lock()
	stores := slices.Collect(maps.Values(c.stores))
	c.mu.Unlock()
	for _, l := range stores {
		l.mu.Lock()
		held := l.nonce != ""
		l.mu.Unlock()
		if held {
			return false
		}
	}
	return true
}

// Refusing reports whether nothing is granted, and who leads then.
func (c *Leases) Refusing() (so bool, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.granting, c.leader
}

// Grant grants the leases of these roles, without any those of every role, and none else.
func (c *Leases) Grant(roles ...string) {
	granted := make(map[string]bool)
	for _, role := range roles {
		granted[role] = true
	}
	if len(roles) == 0 {
		granted = nil
	}
	c.set(true, granted, "")
}

// Refuse grants nothing; what leads is deposed. leader holds every lease, nobody if it is "".
func (c *Leases) Refuse(leader string) { c.set(false, nil, leader) }

func (c *Leases) set(granting bool, roles map[string]bool, leader string) {
	c.mu.Lock()
	c.granting, c.roles, c.leader = granting, roles, leader
	c.mu.Unlock()
	c.Changed()
}

// Changed says that something is granted, or refused, or that the link is another.
func (c *Leases) Changed() {
	select {
	case c.changed <- struct{}{}:
	default: // Listen will look anyway
	}
}

// grants reports whether the lease of a role is granted, and else who holds it.
func (c *Leases) grants(role string) (granted bool, leader string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granting && (c.roles == nil || c.roles[role]), c.leader
}

// Listen wakes every elector after a change, until ctx is done.
func (c *Leases) Listen(ctx context.Context, a store.Audience) {
	heard := true
	a.State.Store(&store.Subscription{Active: true, Since: time.Now()})
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
			up := c.link == nil || c.link.Up()
			switch {
			case !up && heard:
				a.State.Store(&store.Subscription{Since: time.Now(), Err: errCut})
				a.Report(store.Notice{Kind: store.SubscriptionLost, Err: errCut})
			case up && !heard:
				a.State.Store(&store.Subscription{Active: true, Since: time.Now()})
				a.Report(store.Notice{Kind: store.SubscriptionRestored})
			}
			if heard = up; !heard {
				continue
			}
			a.Take(store.Hint{Type: store.HintVacant, All: true})
			a.Take(store.Hint{Type: store.HintRollCall, All: true})
		}
	}
}

// leaseStore is the lease of one role that only this process campaigns for.
type leaseStore struct {
	control *Leases
	role    string
	id      string

	mu    sync.Mutex
	token int64
	nonce string // of the holder; "": free
	since int64

	renewals int               // so far
	terms    []store.TermEntry // oldest first
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
	if granted, leader := l.control.grants(l.role); !granted {
		return l.refusal(leader), nil
	}
	if l.nonce != "" && l.nonce != r.Nonce { // of another campaign of ours, which is about to give it back
		reply := l.answer(lease.Held)
		reply.Wait, reply.Reason = 10*time.Millisecond, "lease"
		return reply, nil
	}
	now := time.Now()
	l.token, l.nonce, l.since = l.control.tokens.next(l.role, max(l.token+1, r.Floor+1, now.UnixMilli())), r.Nonce, now.Unix()
	l.tell(store.TermEntry{Event: store.TermBegan, At: now.UnixMilli()})
	return l.answer(lease.Won), nil
}

func (l *leaseStore) Renew(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == r.Nonce {
		if granted, _ := l.control.grants(l.role); granted {
			l.renewals++
			return l.answer(lease.Kept), nil
		}
		l.ended(lease.Refused)
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
		l.tell(store.TermEntry{Event: store.TermEnded, At: time.Now().Add(-r.Ago).UnixMilli(), Reason: r.Why, Since: l.since})
	}
	return l.answer(lease.Done), nil
}

// ended ends the term, if one is on. The mutex is held.
func (l *leaseStore) ended(why lease.Reason) {
	if l.nonce == "" {
		return
	}
	l.nonce = ""
	l.tell(store.TermEntry{Event: store.TermEnded, At: time.Now().UnixMilli(), Reason: why.String(), Since: l.since})
}

// tell adds an entry to the history, of the term with the token of now.
func (l *leaseStore) tell(e store.TermEntry) {
	e.Token, e.Holder = l.token, l.id
	if len(l.terms) == store.MaxTermEntries {
		l.terms = slices.Delete(l.terms, 0, 1)
	}
	l.terms = append(l.terms, e)
	event := e.Event
	if event == store.TermBegan {
		event = "elected"
	}
	l.control.Note(store.LogEntry{Event: event, Instances: []string{l.id}, Role: l.role, Token: l.token, Reason: e.Reason})
}

func (l *leaseStore) Terms(_ context.Context, limit int) ([]store.TermEntry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	newest := slices.Clone(l.terms)
	slices.Reverse(newest)
	return newest[:min(limit, len(newest))], nil
}

func (l *leaseStore) Leader(context.Context) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == "" {
		if _, leader := l.control.grants(l.role); leader != "" {
			return l.refusal(leader), nil
		}
		return l.answer(lease.Unknown), nil
	}
	reply := l.answer(lease.Held)
	reply.Wait = endless
	return reply, nil
}

// refusal is the answer while the lease is not granted. Another leader has a token of its own.
func (l *leaseStore) refusal(leader string) store.LeaseReply {
	reply := l.answer(lease.Held)
	reply.Wait, reply.Reason = endless, "hold"
	if leader != "" && l.nonce == "" {
		reply.Holder, reply.Token, reply.Reason = leader, l.token+1, "lease"
	}
	return reply
}
