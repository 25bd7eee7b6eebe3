package memstore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
	news    atomic.Bool   // a task was triggered, or its run is to end
	terms   *terms
	link    *Link // nil: it cannot be cut

	mu       sync.Mutex
	granting bool
	roles    map[string]bool // granted, if not every role is; nil: every one
	leader   string          // who leads what is not granted; "": nobody
	others   bool            // the memory knows who leads that
	stores   map[string]*leaseStore
}

// NewLeases returns leases that are granted, or not, until Grant says otherwise. Their tokens are
// greater than all of that memory before. link is how its coordinator reaches it; nil: always.
func NewLeases(granting bool, memory *Memory, link *Link) *Leases {
	c := &Leases{
		terms: memory.terms, link: link, Note: func(store.LogEntry) {}, granting: granting, changed: make(chan struct{}, 1), stores: make(map[string]*leaseStore),
	}
	memory.terms.share(c)
	return c
}

// Lease is the lease of a role, for the instance that is its holder to be.
func (c *Leases) Lease(r store.Role) store.Lease {
	l := &leaseStore{control: c, role: r.Name, key: r.Key, id: r.Holder}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores[r.Name] = l
	return c.reached(l)
}

// Foreign is the lease of a role that the coordinator does not have: nobody asks for it. It is not
// kept, since anybody may make up names of roles.
func (c *Leases) Foreign(r store.Role) store.Lease {
	return c.reached(&leaseStore{control: c, role: r.Name, key: r.Key, id: r.Holder})
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

// Refusing reports whether nothing is granted.
func (c *Leases) Refusing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.granting
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
	c.set(true, granted, "", false)
}

// Refuse grants nothing; what leads is deposed. leader holds every lease, nobody if it is "".
func (c *Leases) Refuse(leader string) { c.set(false, nil, leader, false) }

// Yield is Refuse, but that other coordinators of the memory hold the leases, if anybody does.
func (c *Leases) Yield() { c.set(false, nil, "", true) }

func (c *Leases) set(granting bool, roles map[string]bool, leader string, others bool) {
	c.mu.Lock()
	c.granting, c.roles, c.leader, c.others = granting, roles, leader, others
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

// grants reports whether the lease of a role is granted.
func (c *Leases) grants(role string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granting && (c.roles == nil || c.roles[role])
}

// Elsewhere is who holds the lease of a role that is not granted, "" if nobody does. The token is 0
// if Refuse has made that one up.
func (c *Leases) Elsewhere(role string) (leader string, token int64) {
	is := c.elsewhere(c.of(role))
	return is.holder, is.token
}

func (c *Leases) elsewhere(l *leaseStore) term {
	c.mu.Lock()
	leader, others := c.leader, c.others
	c.mu.Unlock()
	if !others {
		return term{holder: leader}
	}
	if is := c.terms.of(l.key); is.holder != "" && is.holder != l.id {
		return is
	}
	return term{}
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
			a.Take(store.Hint{Type: store.HintGranted, All: true}) // for those that do not campaign
			a.Take(store.Hint{Type: store.HintVacant, All: true})
			a.Take(store.Hint{Type: store.HintRollCall, All: true})
			if c.news.Swap(false) {
				a.Take(store.Hint{Type: store.HintConnected, All: true}) // of which task nobody says
			}
		}
	}
}

// leaseStore is the lease of one role that only this process campaigns for.
type leaseStore struct {
	control *Leases
	role    string
	key     string
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
	if !l.control.grants(l.role) {
		return l.refusal(), nil
	}
	if l.nonce != "" && l.nonce != r.Nonce { // of another campaign of ours, which is about to give it back
		reply := l.answer(lease.Held)
		reply.Wait, reply.Reason = 10*time.Millisecond, "lease"
		return reply, nil
	}
	now := time.Now()
	least := max(l.token+1, r.Floor+1, now.UnixMilli())
	l.nonce, l.since = r.Nonce, now.Unix()
	l.token = l.control.terms.begin(l.control, l.key, l.id, least, l.since)
	l.tell(store.TermEntry{Event: store.TermBegan, At: now.UnixMilli()})
	return l.answer(lease.Won), nil
}

func (l *leaseStore) Renew(_ context.Context, r lease.Request) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == r.Nonce {
		if l.control.grants(l.role) {
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
		l.free(time.Now().Add(-r.Ago), r.Why)
	}
	return l.answer(lease.Done), nil
}

// ended ends the term, if one is on. The mutex is held.
func (l *leaseStore) ended(why lease.Reason) {
	if l.nonce != "" {
		l.free(time.Now(), why.String())
	}
}

// free gives the lease back. The mutex is held.
func (l *leaseStore) free(at time.Time, why string) {
	l.nonce = ""
	l.control.terms.end(l.control, l.key, l.token)
	l.tell(store.TermEntry{Event: store.TermEnded, At: at.UnixMilli(), Reason: why, Since: l.since})
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

// ForgetTerms removes those of this coordinator.
func (l *leaseStore) ForgetTerms(_ context.Context, token int64) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.nonce != "", l.control.elsewhere(l).holder != "":
		return l.answer(lease.Held), nil
	case l.token > token:
		return l.answer(lease.Stale), nil
	}
	l.terms = nil
	return l.answer(lease.Done), nil
}

func (l *leaseStore) Leader(context.Context) (store.LeaseReply, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nonce == "" {
		if l.control.elsewhere(l).holder != "" {
			return l.refusal(), nil
		}
		return l.answer(lease.Unknown), nil
	}
	reply := l.answer(lease.Held)
	reply.Wait = endless
	return reply, nil
}

// refusal is the answer while the lease is not granted. Another leader has a token of its own: one
// that is made up has the next.
func (l *leaseStore) refusal() store.LeaseReply {
	reply := l.answer(lease.Held)
	reply.Wait, reply.Reason = endless, "ineligible"
	if is := l.control.elsewhere(l); is.holder != "" && l.nonce == "" {
		reply.Holder, reply.Token, reply.Since, reply.Reason = is.holder, cmp.Or(is.token, l.token+1), is.since, "lease"
	}
	return reply
}
