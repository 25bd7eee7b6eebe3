package tenure

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/lease"

	"github.com/tenure-go/tenure/internal/store"
)

// campaigner is the one loop of an elector: it drives the pure lease.Candidate with real clocks, calls to Redis and leader
// work. All its fields belong to the loop. The loop itself never calls anything that may block.
type campaigner struct {
	e      *Elector
	parent context.Context //nolint:containedctx // values of Run's context, never its end, for all that the loop starts
	work   []LeadFunc
	cand   *lease.Candidate

	tenancy   *tenancy // the term that is on, or whose work drains
	running   []bool   // by work: it has not returned
	abandoned bool     // the drain bound of the term has passed
	drainBy   time.Time
	finishBy  time.Time // by then the context of the tasks is cancelled, if the end of the term was voluntary
	handed    *tenancy  // the term whose lease is being given back
	handedTok int64

	calls    int    // to Redis in flight
	sent     uint64 // calls so far: each has a number
	stuck    bool
	healthy  bool
	sick     error // of the last health check
	watching bool  // the health check goroutine runs
	stopping bool
	unheard  bool // no request can have reached Redis: there is nothing to give back

	askAt time.Duration // monotonic: when to ask for a vacancy that may have been missed; 0: not

	second   lease.Request // a renewal without an answer: at askSecond it is sent once more
	secondAt time.Duration // monotonic; 0: not
	aside    bool          // a second copy is in flight: one at a time

	report report
}

// mail is what others leave for the loop of an elector. Flags coalesce. The replies are bounded by maxCalls, the results by the
// number of works.
type mail struct {
	replies   []reply
	results   []result
	vacant    bool   // hint: the lease may be free
	granted   bool   // hint: somebody leads now
	rollCall  bool   // hint: leaders should renew now
	connected bool   // hints may have been missed
	health    *error // the last answer of the health check, if there is a new one
	unwatched bool   // the health check has returned for the last time
}

// reply is the answer to a request, or its error.
type reply struct {
	number  uint64 // of the call, in the order in which they were sent
	look    bool   // it asked who leads; there is no request
	aside   bool   // it went over a connection of its own
	request lease.Request
	answer  store.LeaseReply
	err     error
}

// result is what one piece of leader work returned.
type result struct {
	work   int
	err    error // names the work
	heeded bool  // it only tells that the term is over
}

// run is the loop. It returns when nothing of ours runs, or at the deadline with what still does.
func (e *Elector) run(ctx context.Context, lead []LeadFunc) (deadline time.Time, err error) {
	c := &campaigner{
		e:       e,
		parent:  context.WithoutCancel(ctx),
		work:    slices.Concat(e.opts.Lead, lead),
		cand:    lease.NewCandidate(e.timing, e.random, e.secret),
		healthy: true,
	}
	c.report.knownAt = readClock().Mono
	c.report.lookedAt = c.report.knownAt - lookSpacing
	defer c.dismiss()
	defer e.phase.Store(phaseStopped)
	defer c.publishStatus(StateStopped)
	if ctx.Err() != nil {
		return time.Now().Add(e.drain), nil
	}
	watched, unwatch := context.WithCancel(c.parent)
	defer unwatch()
	if e.opts.Health != nil {
		c.healthy, c.watching = false, true
		c.cand.Ready(readClock(), false)
		go c.watch(watched) // ends with watched; its last word is awaited below
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	stop := ctx.Done()
	var late <-chan time.Time
	for {
		c.turn()
		if e.fast && !c.stopping && c.report.answered.IsZero() && c.report.down {
			err = c.report.lastErr
			c.unheard = store.NeverSent(err)
			stop = closed
		}
		if c.stopping && c.finished() {
			return deadline, err
		}
		timer.Reset(c.wait())
		select {
		case <-e.inbox.wakeup:
		case <-timer.C:
		case <-stop:
			stop = nil
			cause := ErrStopped
			if ctx.Err() != nil {
				cause = fmt.Errorf("%w: %w", ErrStopped, context.Cause(ctx))
			}
			now := readClock()
			c.stopping = true
			c.apply(now, c.cand.Stop(now), cause)
			unwatch()
			deadline = time.Now().Add(e.drain)
			bound := time.NewTimer(e.drain - lastWords(e.drain))
			defer bound.Stop()
			late = bound.C
		case <-late:
			c.drainBy = time.Now()
			c.turn()
			return deadline, errors.Join(err, c.leftovers())
		}
	}
}

// finished reports whether nothing of ours runs in a loop that is stopping. A Redis that never answered is not asked for ever to
// take back what it may have granted: once is enough.
func (c *campaigner) finished() bool {
	done := c.cand.Finished() || c.cand.State() == lease.Stopped && c.report.answered.IsZero()
	return done && c.works() == 0 && c.calls == 0 && !c.watching
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// nonce is the secret of a campaign: 128 random bits.
func nonce() string {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // never fails
	return fmt.Sprintf("%x", bits)
}

// turn takes what has come in, lets time pass and sends what is due.
func (c *campaigner) turn() {
	mail := c.e.inbox.take()
	now := readClock()
	if t := c.tenancy; t != nil && t.lease.Load() == nil { // a reader or the timer noticed first
		c.apply(now, c.cand.End(now, lease.Expired), errExpired)
	}
	for _, r := range mail.replies {
		c.reply(now, r)
	}
	for _, r := range mail.results {
		c.returned(now, r)
	}
	if mail.health != nil {
		c.checked(now, *mail.health)
	}
	if mail.unwatched {
		c.watching = false
	}
	if t := c.tenancy; t != nil && t.resigning.Load() {
		c.apply(now, c.cand.End(now, lease.Resigned), ErrResigned)
	}
	if mail.connected { // to many processes at one moment: they do not ask at one moment too
		c.askAt = now.Mono + time.Duration(c.e.random()*float64(c.e.timing.Retry/askSpread))
	}
	if mail.vacant || c.askAt != 0 && now.Mono >= c.askAt {
		c.askAt = 0
		c.cand.Vacant(now)
	}
	if mail.rollCall {
		c.cand.RollCall(now)
	}
	if mail.granted {
		c.report.granted = true
	}
	c.apply(now, c.cand.Tick(now), errExpired)
	if c.e.alive != nil && c.cand.State() == lease.Leading {
		if err := c.e.alive(); err != nil {
			c.fail(now, err)
		}
	}
	c.drain(now)
	for !c.unheard {
		request, due := c.cand.Next(now)
		if !due {
			break
		}
		c.send(now, request)
	}
	if c.secondAt != 0 && now.Mono >= c.secondAt {
		c.sendAside(now)
	}
	c.look(now)
	c.tell(now)
	c.publishStatus(states[c.cand.State()])
	if !c.cand.Releasing() { // after the status: who has resigned may ask for it
		c.handOver()
	}
}

// askSpread: followers whose subscription stands again ask within that part of RetryInterval.
const askSpread = 15

// wait is how long the loop may sleep.
func (c *campaigner) wait() time.Duration {
	now := readClock()
	wait := c.untilLook(now)
	if !c.unheard { // else nothing is asked any more, whatever is due
		wait = min(wait, c.cand.Wait(now))
	}
	if c.askAt != 0 {
		wait = min(wait, max(c.askAt-now.Mono, 0))
	}
	if c.secondAt != 0 {
		wait = min(wait, max(c.secondAt-now.Mono, 0))
	}
	if c.cand.State() == lease.Draining && !c.abandoned {
		wait = min(wait, max(time.Until(c.drainBy), 0))
		if c.tenancy.tasks.ctx.Err() == nil {
			wait = min(wait, max(time.Until(c.finishBy), 0))
		}
	}
	return wait
}

// apply carries a change of the term out. cause is that of an end.
func (c *campaigner) apply(now lease.Reading, change lease.Change, cause error) {
	switch change {
	case lease.Began:
		c.begin(now)
	case lease.Renewed:
		// A reader or a timer may have been faster: once false it stays false.
		if !c.tenancy.renew(c.cand.Lease(), now) {
			c.apply(now, c.cand.End(now, lease.Expired), errExpired)
		}
	case lease.Ended:
		if c.cand.Reason() == lease.Expired {
			cause = errExpired
		}
		if why := c.cand.Reason(); why == lease.Resigned || why == lease.Shutdown {
			c.tenancy.retire(cause)
		} else {
			c.tenancy.end(cause)
		}
		c.e.current.Store(nil)
		ended := time.Now()
		c.abandoned, c.drainBy, c.finishBy = false, ended.Add(c.e.drain), ended.Add(finishTime(c.e.drain))
		c.e.bus.publish(Event{Type: EventEnded, Role: c.e.opts.Role, Token: c.cand.Token(), Reason: c.cand.Reason().String(), Err: context.Cause(c.tenancy.ctx)})
	}
}

func (c *campaigner) begin(now lease.Reading) {
	term := Term{Role: c.e.opts.Role, InstanceID: c.e.id, Token: c.cand.Token(), Since: store.StartTime(c.cand.Since())}
	t := begin(c.parent, term, c.cand.Lease(), c.e.inbox.nudge)
	t.of, t.tasks.of = c.e, c.e
	c.tenancy = t
	c.e.current.Store(t)
	c.e.bus.publish(Event{Type: EventAcquired, Role: term.Role, Token: term.Token})
	// The loop may have stood still since it took the reply: no work begins in a term that is over, or is about to be cancelled.
	if first := c.cand.Lease(); first.CancelIn(readClock()) <= 0 || !t.leading() {
		c.apply(now, c.cand.End(now, lease.Expired), errExpired)
		return
	}
	if !c.healthy {
		c.apply(now, c.cand.End(now, lease.Failed), ErrWorkFailed)
		return
	}
	term, _ = TermFrom(t.ctx)
	c.running = make([]bool, len(c.work))
	for i, work := range c.work {
		c.running[i] = true
		go c.lead(t.ctx, i, work, term) // ends with the work; drain waits for it, or says that it still runs
	}
}

// lead runs one piece of leader work and reports how it ended, whatever way that is.
func (c *campaigner) lead(ctx context.Context, i int, work LeadFunc, term Term) {
	catch(func() error { return work(ctx, term) }, func(err error) {
		r := result{work: i}
		if err != nil {
			r.heeded, r.err = worded(ctx, "leader work "+c.name(i), err)
		}
		c.e.inbox.put(func(m *mail) { m.results = append(m.results, r) })
	})
}

// returned takes note that a piece of leader work has returned.
func (c *campaigner) returned(now lease.Reading, r result) {
	c.running[r.work] = false
	cause := context.Cause(c.tenancy.ctx)
	switch {
	case cause != nil && (r.err == nil || r.heeded):
	case r.err == nil:
		c.apply(now, c.cand.End(now, lease.Resigned), fmt.Errorf("%w: leader work %s returned", ErrResigned, c.name(r.work)))
	case cause != nil: // it failed while it drained
		c.e.bus.publish(Event{Type: EventWorkFailed, Role: c.e.opts.Role, Token: c.cand.Token(), Err: r.err})
	default:
		c.fail(now, r.err)
	}
}

// fail gives the term up because what it is for does not work.
func (c *campaigner) fail(now lease.Reading, err error) {
	if c.cand.State() != lease.Leading {
		return
	}
	c.e.bus.publish(Event{Type: EventWorkFailed, Role: c.e.opts.Role, Token: c.cand.Token(), Err: err})
	c.apply(now, c.cand.End(now, lease.Failed), fmt.Errorf("%w: %w", ErrWorkFailed, err))
}

// works counts the leader work that has not returned.
func (c *campaigner) works() int {
	count := 0
	for _, running := range c.running {
		if running {
			count++
		}
	}
	return count
}

// drain ends what the tasks of an ended term run in when their time is up, or when the lease is no longer kept for them. It gives
// the lease back when all work has returned, and leaves it to lapse if that takes too long.
func (c *campaigner) drain(now lease.Reading) {
	if c.cand.State() == lease.Draining {
		switch tasks := c.tenancy.tasks; {
		case tasks.ctx.Err() != nil:
		case !c.cand.Keeps():
			tasks.end(fmt.Errorf("%w while its tasks finished", ErrLost))
		case c.works() == 0 || !time.Now().Before(c.finishBy):
			tasks.end(context.Cause(c.tenancy.ctx))
		}
		if c.works() == 0 {
			c.handOver() // an older one that Redis has not confirmed yet
			c.handed, c.handedTok = c.tenancy, c.cand.Token()
			if c.cand.Reason() == lease.Refused { // there is nothing of ours to give back
				c.handedTok = 0
			}
			c.tenancy, c.running = nil, nil
			c.cand.Drained(now)
			c.report.backFor = "penalty"
		} else if !c.abandoned && !time.Now().Before(c.drainBy) {
			c.abandoned = true
			c.cand.Abandon()
			overrun := fmt.Errorf("%w: %s", ErrDrainTimeout, c.runningWork())
			c.e.bus.publish(Event{Type: EventOverrun, Role: c.e.opts.Role, Token: c.cand.Token(), Err: overrun})
			c.tenancy.handOver(overrun) // the work may itself be what waits for it
		}
	}
}

// handOver ends the wait of Resign for a term whose work has returned.
func (c *campaigner) handOver() {
	if c.handed != nil {
		c.handed.handOver(nil)
		c.handed = nil
	}
}

// dismiss ends every wait of Resign: the loop does.
func (c *campaigner) dismiss() {
	c.handOver()
	if c.tenancy != nil {
		c.tenancy.handOver(c.leftovers())
	}
}

// send hands a request to the client in a goroutine of its own: whatever the client does with its context, the loop goes on.
func (c *campaigner) send(now lease.Reading, r lease.Request) {
	if r.Kind != lease.Release {
		c.second, c.secondAt = r, 0
	}
	if r.Kind == lease.Renew {
		c.secondAt = now.Mono + r.Bound/secondCopy
	}
	if c.calls < maxCalls {
		c.call(reply{request: r}, r.Bound, func(ctx context.Context) (store.LeaseReply, error) { return store.Send(ctx, c.e.store, r) })
		return
	}
	if !c.stuck {
		c.stuck = true
		c.e.bus.publish(Event{Type: EventCallsStuck, Role: c.e.opts.Role, Count: c.calls, Err: &callsHangError{count: c.calls}})
	}
	if r.Kind == lease.Release || !c.sendAside(now) {
		c.apply(now, c.cand.Answer(now, r, lease.Answer{}), errExpired)
	}
}

// secondCopy: a renewal that has no answer after that part of its bound is sent once more.
const secondCopy = 4

// sendAside sends the same request again, over a connection of its own: whatever ails the pool of the client, one way to Redis is left.
// It is the same request: whichever copy is answered first counts, Redis grants nothing for the other, and the lease runs from before
// the first. It reports whether it did: one such copy is in flight at most, and not every client has a connection beside its pool.
func (c *campaigner) sendAside(now lease.Reading) bool {
	c.secondAt = 0
	beside, able := c.e.store.(interface {
		AskAside(ctx context.Context, r lease.Request) (store.LeaseReply, error)
	})
	r := c.second
	bound := r.Bound - (now.Mono - r.Sent.Mono)
	over := r.Kind == lease.Renew && c.cand.State() != lease.Leading && !c.cand.Keeps()
	if !able || c.aside || over || bound <= 0 {
		return false
	}
	c.aside = true
	c.call(reply{request: r, aside: true}, bound, func(ctx context.Context) (store.LeaseReply, error) { return beside.AskAside(ctx, r) })
	return true
}

// call makes one call, whose answer comes as mail.
func (c *campaigner) call(r reply, bound time.Duration, ask func(context.Context) (store.LeaseReply, error)) {
	c.calls++
	c.sent++
	r.number = c.sent
	go func() { // ends when the client returns; counted in calls, which Run waits for
		ctx, cancel := context.WithTimeout(c.parent, bound)
		defer cancel()
		r.answer, r.err = ask(ctx)
		c.e.inbox.put(func(m *mail) { m.replies = append(m.replies, r) })
	}()
}

// reply takes an answer of Redis, or an error, which means that nothing is known.
func (c *campaigner) reply(now lease.Reading, r reply) {
	c.calls--
	if c.calls <= maxCalls/2 { // not below the cap already: calls that return one by one would report it each time
		c.stuck = false
	}
	if r.look {
		c.looked(now, r)
		return
	}
	if r.aside {
		c.aside = false
		if r.err != nil { // the other copy, or its silence, says what is wrong
			return
		}
	}
	if r.request.Seq == c.second.Seq { // answered: no second copy
		c.secondAt = 0
	}
	cause := fmt.Errorf("%w: Redis answers %q", ErrLost, r.answer.Reason)
	c.apply(now, c.cand.Answer(now, r.request, r.answer.Answer), cause)
	if c.cand.Keeps() {
		c.tenancy.tasks.renew(c.cand.Lease(), now)
	}
	if r.err != nil {
		c.refused(r)
		return
	}
	c.report.answered = time.Now()
	if r.request.Kind == lease.Release { // it says nothing of what else is refused
		if r.request.Token != 0 && r.request.Token == c.handedTok {
			c.handedTok = 0
			c.e.bus.publish(Event{Type: EventReleased, Role: c.e.opts.Role, Token: r.request.Token})
		}
		if r.request.Token != 0 && r.request.Token == c.report.leadTok {
			c.report.leader, c.report.leadTok = "", 0
		}
		return
	}
	c.usable(now, r)
}

// checked takes an answer of the health check.
func (c *campaigner) checked(now lease.Reading, err error) {
	c.healthy, c.sick = err == nil, err
	c.cand.Ready(now, c.healthy)
	if err != nil {
		c.fail(now, err)
	}
}

// watch calls the health check every RenewInterval until ctx is done. A check that does not return in time has failed; no other
// one is started beside it.
func (c *campaigner) watch(ctx context.Context) {
	defer c.e.inbox.put(func(m *mail) { m.unwatched = true })
	interval := c.e.opts.RenewInterval
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		if ctx.Err() != nil { // also where both were ready: a check that hung until now is the last
			return
		}
		pause.Reset(interval)
		bounded, cancel := context.WithTimeout(ctx, interval)
		answer := make(chan error, 1)
		go catch(func() error { return c.e.opts.Health(bounded) }, func(err error) { // ends with the check; watch waits for it
			if err != nil {
				_, err = worded(bounded, "health check", err)
			}
			answer <- err
		})
		var err error
		select {
		case err = <-answer:
		case <-bounded.Done():
			if ctx.Err() == nil {
				hung := errHealth
				c.e.inbox.put(func(m *mail) { m.health = &hung })
			}
			err = <-answer
			if err == nil {
				err = errHealth
			}
		}
		cancel()
		if ctx.Err() == nil {
			c.e.inbox.put(func(m *mail) { m.health = &err })
		}
	}
}

// name is how a piece of leader work is called in errors.
func (c *campaigner) name(i int) string {
	if f := runtime.FuncForPC(reflect.ValueOf(c.work[i]).Pointer()); f != nil {
		return f.Name()
	}
	return fmt.Sprint(i)
}

func (c *campaigner) runningWork() string {
	var names []string
	for i, running := range c.running {
		if running {
			names = append(names, "leader work "+c.name(i))
		}
	}
	return strings.Join(names, ", ")
}

// leftovers says what still runs.
func (c *campaigner) leftovers() error {
	var left []string
	if c.works() > 0 {
		left = append(left, c.runningWork())
	}
	if c.calls > 0 {
		left = append(left, fmt.Sprintf("%d calls to Redis", c.calls))
	}
	if c.watching {
		left = append(left, "the health check")
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%w: role %q: %s", ErrDrainTimeout, c.e.opts.Role, strings.Join(left, ", "))
}
