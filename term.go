package tenure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// LeadFunc does a leader's work. It must return soon after ctx is done: the lease is not released
// before it has returned.
//
// It may return nil earlier. Its work is done then, and the term goes on. The next term calls it
// again. To end the term it returns ErrResigned (errors.Is), or calls Resign: the lease is released
// once all work of the term has returned, and this process stands back for RetryInterval.
//
// An error or a panic gives the term up, and this process stands back for a second. Each further
// failure doubles that, up to max(LeaseTTL, 30 s). A term that lasts that long forgets earlier
// failures. Another process takes over within milliseconds meanwhile.
//
// After ctx is done an error no longer affects the election. It is reported as EventWorkFailed
// unless it is ctx.Err() or context.Cause(ctx).
type LeadFunc func(ctx context.Context, term Term) error

// Term is one unbroken leadership of this process. The zero value is a term that is not valid.
type Term struct {
	Role       string
	InstanceID string
	// Token is the fencing token: greater than that of every leader before. Hand it to what the
	// leader writes to, and let that refuse a token below the highest it has seen.
	Token int64
	// Since is when the leadership began, in UTC by Redis's clock, in whole seconds.
	Since time.Time

	live *liveTerm
}

// Valid reports whether this very term leads now, like IsLeader. Once false it stays false. It is
// safe for concurrent use.
//
// The Term of a task (see TermFrom) outlives IsLeader on a voluntary end, which is a Resign or the
// stop of Run. The lease is kept while the running tasks finish, so their Term stays valid until
// their context is done. The token is still the highest there is.
func (t Term) Valid() bool { return t.live != nil && t.live.leading() }

// Verify asks Redis whether this very term holds the lease, in one round trip. Call it right before
// an act that cannot be undone and that no resource fences by token: Valid knows only what the last
// renewal said. It returns nil if Redis shows the lease with the token of this term, and the term
// is still valid when the answer arrives. The lease may end right after that all the same.
//
// It returns the cause of the term's context if the term is over, ErrLost if Redis shows another
// leader, or none (the next renewal then ends the term, or takes the lease back), and
// ErrUnreachable or ErrMisconfigured if Redis gives no usable answer: nothing is known then, so do
// not act. If ctx is done it returns the cause of that. It is safe for concurrent use.
func (t Term) Verify(ctx context.Context) error {
	if !t.Valid() {
		return over(t)
	}
	if ask := t.live.links.holder; ask != nil { // nil: the term of a test
		reply, err := ask(ctx)
		if err != nil {
			return err
		}
		if reply.Verdict != lease.Held || reply.Holder != t.InstanceID || reply.Token != t.Token {
			return fmt.Errorf("%w: redis shows no lease of %q with token %d", ErrLost, t.InstanceID, t.Token)
		}
	}
	if !t.Valid() {
		return over(t)
	}
	return nil
}

// over is why a term ended. Its context may be a moment behind.
func over(t Term) error {
	if cause := context.Cause(t.Context()); cause != nil {
		return cause
	}
	return ErrExpired
}

// Context is done when Valid turns false; context.Cause says why: ErrLost (also ErrExpired if no
// renewal succeeded in time), ErrResigned, ErrWorkFailed or ErrStopped. The context of the zero
// Term is done, with cause ErrNotLeader.
func (t Term) Context() context.Context {
	if t.live == nil {
		return ended
	}
	return t.live.ctx
}

var ended = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrNotLeader)
	return ctx
}()

type termKey struct{}

// termScope is the term that a context is of, and that which the context around it is of: Do of one
// role may be called by the work of another.
type termScope struct {
	Term
	outer *termScope
}

// withTerm returns a context of that term.
func withTerm(ctx context.Context, term Term) context.Context {
	outer, _ := ctx.Value(termKey{}).(*termScope)
	return context.WithValue(ctx, termKey{}, &termScope{term, outer})
}

// TermFrom returns the term that leader work, a task or a function of Elector.Do runs in. Inside of
// Do of one role, called by the work of another, that is the term of the inner one. The term of a
// task may be valid for longer, see Term.Valid.
func TermFrom(ctx context.Context) (Term, bool) {
	if scope, ok := ctx.Value(termKey{}).(*termScope); ok {
		return scope.Term, true
	}
	return Term{}, false
}

// workOf returns the term of that election which ctx is of, nil if it is of none: the caller is
// work of that election.
func workOf(ctx context.Context, home *atomic.Pointer[liveTerm]) *liveTerm {
	scope, _ := ctx.Value(termKey{}).(*termScope)
	for ; scope != nil; scope = scope.outer {
		if scope.live.home == home {
			return scope.live
		}
	}
	return nil
}

// forever is how long a lease is believed in that nobody else can take.
const forever = 100 * 365 * 24 * time.Hour

// epoch is the start of the monotonic readings.
var epoch = time.Now()

// readClock takes one look at both clocks of this machine.
func readClock() lease.Reading {
	now := time.Now()
	return lease.Reading{Mono: now.Sub(epoch), Wall: time.Duration(now.UnixNano())}
}

// liveTerm is the live side of a term: what readers ask without a lock, and the timer that ends it
// in time whatever else hangs. Its loop is the only one that renews it; readers and the timer may
// only end it.
type liveTerm struct {
	ctx    context.Context //nolint:containedctx // of the term
	cancel context.CancelCauseFunc
	lease  atomic.Pointer[lease.Lease] // nil once the term has ended: never set again
	timer  *time.Timer                 // fires at the cancel point
	wake   func()                      // wakes the loop when the term has ended; must not block

	resigning atomic.Bool               // Resign was called
	home      *atomic.Pointer[liveTerm] // where its election keeps the term that is on: tells its terms from those of another
	released  chan struct{}             // closed by the loop when the lease was given back, or is left to lapse
	overrun   error                     // set before that if the work still runs
	confirmed bool                      // set before that if Redis has answered the release

	sections atomic.Int64 // calls of Do: they are work of the term too
	forgot   atomic.Int64 // how often Redis may have forgotten what this term has written, see lease.Answer.Forgot
	links    termLinks

	// A term has a second one, which its tasks run in. It ends right after the term, but for a
	// voluntary end: then it lasts until the tasks have returned or their time is up, while the
	// lease is kept. It never lasts past the cancel point of that lease: until the term ends the
	// timer of the term sees to that, then its own.
	tasks *liveTerm // nil in that second one
	term  *liveTerm // of the second one: the first; nil in the first
}

// termLinks are what a term asks of its election. They are nil in the term of a test.
type termLinks struct {
	holder    func(context.Context) (store.LeaseReply, error)
	restarted func(work string, attempt int, err error) // work of the term failed and runs again
}

// begin starts the clock of a term.
func begin(parent context.Context, term Term, first lease.Lease, wake func()) *liveTerm {
	t := &liveTerm{wake: wake, released: make(chan struct{})}
	t.tasks = &liveTerm{wake: func() {}, term: t}
	t.tasks.start(parent, term, first, forever)
	t.start(parent, term, first, first.CancelIn(readClock()))
	return t
}

// start makes the context, and a timer that fires after d.
func (t *liveTerm) start(parent context.Context, term Term, first lease.Lease, d time.Duration) {
	ctx, cancel := context.WithCancelCause(parent)
	term.live = t
	t.ctx, t.cancel = withTerm(ctx, term), cancel
	t.lease.Store(&first)
	t.timer = time.AfterFunc(forever, t.expire) // ends at once; stopped by stop
	t.timer.Reset(d)                            // not before: expire needs the timer
}

// leading is IsLeader: no lock, no allocation, no I/O. The first reading at or past the deadline
// ends the term for good.
func (t *liveTerm) leading() bool {
	for {
		current := t.lease.Load()
		if current == nil {
			return false
		}
		if current.Leading(readClock()) {
			return true
		}
		if t.lease.CompareAndSwap(current, nil) {
			t.timer.Reset(0) // cancels from a goroutine of its own: a reader runs no callbacks of others
			t.wake()
			return false
		}
	}
}

// expire runs at the cancel point: first IsLeader becomes false, then the context is cancelled,
// then that of the tasks.
func (t *liveTerm) expire() {
	for {
		current := t.lease.Load()
		if current == nil {
			break
		}
		if left := current.CancelIn(readClock()); left > 0 { // renewed meanwhile
			t.timer.Reset(left)
			if t.lease.Load() != nil {
				return
			}
			break // a reader ended it right then, and its wake-up of this timer may be the one that was overwritten
		}
		if t.lease.CompareAndSwap(current, nil) {
			break
		}
	}
	if t.term != nil { // no task hears of the end while the term leads: a reader among the tasks may have been first
		led := t.term.lease.Swap(nil) != nil
		t.term.cancel(ErrExpired)
		if led {
			t.term.wake()
		}
	}
	t.cancel(ErrExpired)
	t.wake()
	if t.tasks != nil {
		t.tasks.expire()
	}
}

// renew puts a later lease in place. It reports false if the term has ended, by this or an earlier
// reading.
func (t *liveTerm) renew(next lease.Lease, now lease.Reading) bool {
	current := t.lease.Load()
	if current == nil || !current.Leading(now) || !t.lease.CompareAndSwap(current, &next) {
		return false
	}
	if t.tasks != nil {
		if current := t.tasks.lease.Load(); current == nil || !t.tasks.lease.CompareAndSwap(current, &next) {
			return false // a reader among the tasks was first
		}
	}
	t.timer.Reset(next.CancelIn(readClock()))
	return true
}

// end ends the term: first IsLeader becomes false, then the context is cancelled, then that of its
// tasks.
func (t *liveTerm) end(cause error) {
	t.stop(cause)
	if t.tasks != nil {
		t.tasks.stop(cause)
	}
}

// retire ends the term and lets its tasks finish while the lease lasts.
func (t *liveTerm) retire(cause error) {
	t.stop(cause)
	if current := t.tasks.lease.Load(); current != nil {
		t.tasks.timer.Reset(current.CancelIn(readClock()))
	}
}

func (t *liveTerm) stop(cause error) {
	t.lease.Store(nil)
	t.timer.Stop()
	t.cancel(cause)
}

// enter lets a section of Do begin, if the term leads. A term ends before its lease is released,
// and the release looks at sections after that: a section is either seen or does not begin.
func (t *liveTerm) enter() bool {
	t.sections.Add(1)
	if t.leading() {
		return true
	}
	t.leave()
	return false
}

// leave is the end of a section.
func (t *liveTerm) leave() {
	if t.sections.Add(-1) == 0 && t.lease.Load() == nil { // the drain may wait for it
		t.wake()
	}
}

// do runs fn under a context that ends with ctx and with the term.
func (t *liveTerm) do(ctx context.Context, fn func(context.Context, Term) error) error {
	term, _ := TermFrom(t.ctx)
	both, cancel := context.WithCancelCause(withTerm(ctx, term))
	defer cancel(nil)
	defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
	return fn(both, term)
}

// resignDone ends the wait of Resign. overrun says what work still runs, if any does. Only the loop
// calls it; the first time counts.
func (t *liveTerm) resignDone(overrun error) {
	select {
	case <-t.released:
		return
	default:
	}
	t.overrun = overrun
	close(t.released)
}
