package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// Lease is what an elector asks of a store for one role. Every method is one round trip, bounded by
// ctx only as far as the client heeds it, and safe for concurrent use.
type Lease interface {
	Acquire(ctx context.Context, r lease.Request) (LeaseReply, error)
	Renew(ctx context.Context, r lease.Request) (LeaseReply, error)
	Release(ctx context.Context, r lease.Request) (LeaseReply, error)
	Leader(ctx context.Context) (LeaseReply, error)
	// Terms reads the history of the terms, newest first, at most limit entries of it.
	Terms(ctx context.Context, limit int) ([]TermEntry, error)
	// ForgetTerms removes that history, if nobody leads. token is that of the last term as it was
	// read: Stale if there is a later one.
	ForgetTerms(ctx context.Context, token int64) (LeaseReply, error)
}

// Role is what a store needs to know of one role.
type Role struct {
	Name    string
	Key     string        // of the lease
	Holder  string        // instance ID of who campaigns
	TTL     time.Duration // of the lease
	Attempt time.Duration // after that a call is given up

	EmptyWait    time.Duration // see EmptyHistoryWait
	HoldOff      time.Duration
	Margin       time.Duration // see FailoverMargin
	RestartGuard time.Duration // 0: the hold-off; negative: none
}

// LeaseReply is the typed reply of a Lease.
type LeaseReply struct {
	lease.Answer
	// Reason is "reclaimed" if a renewal took back a lease that Redis had lost. Else it is why it
	// was refused, or, of a lease that was granted, how the term before ended if its leader has not
	// said so: lapsed, forgotten. A refusal is: lease, hold, until, empty, reserved, yield, taken,
	// released, vanished; or foreign, from Acquire and Renew alike, if the holder is no tenure
	// client: then Token is not the holder's.
	Reason string
	// Holder is the value of the lease key: the instance ID of the holder, or whatever a foreign
	// client wrote, which may be "". It is "" if nobody holds the lease, too; the verdict tells
	// them apart.
	Holder string
}

// Send makes the call of a request.
func Send(ctx context.Context, to Lease, r lease.Request) (LeaseReply, error) {
	call := to.Release
	switch r.Kind {
	case lease.Acquire:
		call = to.Acquire
	case lease.Renew:
		call = to.Renew
	}
	reply, err := call(ctx, r)
	return checked(r, reply, err)
}

func checked(r lease.Request, reply LeaseReply, err error) (LeaseReply, error) {
	if err == nil && !reply.Answers(r) {
		return LeaseReply{}, fmt.Errorf("%w: a reply to something else", ErrUnreachable)
	}
	return reply, err
}

// ErrCallEnded is the error of a call whose goroutine has ended in the client: a hook of it has
// called runtime.Goexit.
var ErrCallEnded = fmt.Errorf("%w: the client has ended the goroutine of the call", ErrUnreachable)

// Together is a Lease whose renewals can travel together with those of other roles.
type Together interface {
	Lease
	// Way tells apart those that cannot travel together; nil: this one travels alone.
	Way() any
	// RenewAll makes renewals of one way in as few round trips as may be. It calls done with the
	// places of those that have an answer, from any goroutine, and returns when it has named all.
	RenewAll(ctx context.Context, all []Renewal, done func(answered []int))
	// RenewAllAside is the same over one connection that is made for them.
	RenewAllAside(ctx context.Context, all []Renewal, done func(answered []int))
}

// Renewal is one of several that travel together.
type Renewal struct {
	Lease   Together
	Request lease.Request

	// The answer.
	Reply LeaseReply
	Err   error
}

// SendAll is Send for renewals of one way, see RenewAll, or RenewAllAside.
func SendAll(ctx context.Context, all []Renewal, aside bool, done func(answered []int)) {
	renew := all[0].Lease.RenewAll
	if aside {
		renew = all[0].Lease.RenewAllAside
	}
	renew(ctx, all, func(answered []int) {
		for _, i := range answered {
			r := &all[i]
			r.Reply, r.Err = checked(r.Request, r.Reply, r.Err)
		}
		done(answered)
	})
}

// MaxTermEntries is how many entries the history of the terms of a lease keeps at least, and about
// how many at most.
const MaxTermEntries = 1000

// The events of the history of terms.
const (
	TermBegan = "began"
	TermEnded = "ended"
)

// Why a term ended whose leader has not said so: its lease lapsed, or Redis has lost its data.
const (
	TermLapsed    = "lapsed"
	TermForgotten = "forgotten"
)

// TermDone is why a term ended that did what Once, or `tenure run`, was called for. Nobody needs to
// lead the role after it.
const TermDone = "done"

type doneKey struct{}

// WithDone returns a context for Run. If the flag is set when that context ends, the term ends as
// TermDone, and not as one that was stopped.
func WithDone(ctx context.Context) (context.Context, *atomic.Bool) {
	done := new(atomic.Bool)
	return context.WithValue(ctx, doneKey{}, done), done
}

// IsDone reports whether the flag of the context of Run is set.
func IsDone(ctx context.Context) bool {
	done, is := ctx.Value(doneKey{}).(*atomic.Bool)
	return is && done.Load()
}

// TermEntry is an entry of the history of terms. All of it is untrusted.
type TermEntry struct {
	Event  string
	Token  int64
	Holder string // "": not known
	At     int64  // when it began or ended, by Redis's clock, ms; 0: not known
	Reason string // why it ended
	Since  int64  // of one that ended: Unix seconds at which it began; 0: not known
}

// Vacancy is what the history of a lease says of a time in which nobody holds it, for people: no
// decision rests on it. Times are by Redis's clock, ms. All of it is untrusted.
type Vacancy struct {
	Token    int64 // of the last term; 0: none, as far as Redis knows
	TTL      int64 // ms
	Hold     int64 // nobody is granted anything before
	Armed    int64 // how long the hold-off was that Hold is the end of; 0: a roll-call or a young server holds
	Until    int64 // the end of the last lease
	Released bool  // it was given back
	Reserved int64 // the vacancy is left to Heir until then
	Heir     string
}
