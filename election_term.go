package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// apply carries a change of the term out. cause is that of an end.
func (l *electionLoop) apply(now lease.Reading, change lease.Change, cause error) {
	switch change {
	case lease.Began:
		l.begin(now)
	case lease.Renewed:
		// A reader or a timer may have been faster: once false it stays false.
		if !l.term.renew(l.cand.Lease(), now) {
			l.apply(now, l.cand.End(now, lease.Expired), ErrExpired)
		}
	case lease.Ended:
		if l.cand.Reason() == lease.Expired {
			cause = ErrExpired
		}
		var otherwise error // why no transfer ended it
		if to := l.cand.Heir(); to != "" {
			cause = fmt.Errorf("%w: the lease goes to instance %q", ErrResigned, to)
			l.transferred = lastTransfer{token: l.cand.Token(), asked: l.transfer.asked, to: to}
			l.transfer.settle(nil) // before the context is cancelled: leader work may wait for both
		} else {
			otherwise = &becauseError{kind: ErrNotLeader, words: " any more", cause: cause}
		}
		if why := l.cand.Reason(); why == lease.Transferred || why == lease.Resigned || why == lease.Shutdown {
			l.term.retire(cause)
		} else {
			l.term.end(cause)
		}
		l.current.Store(nil)
		l.balance.count(false)
		ended := time.Now()
		l.abandoned, l.drainBy, l.finishBy = false, ended.Add(l.drainTimeout), ended.Add(finishTime(l.drainTimeout))
		l.tell(Event{
			Type: EventTermEnded, Role: l.opts.Role, Token: l.cand.Token(), Reason: l.cand.Reason().String(), Err: context.Cause(l.term.ctx),
		})
		l.transfer.settle(otherwise) // last: who is answered may ask whether we lead
	}
}

// offer begins the transfer that a call asks for, or lets the call wait for the one that is on.
func (l *electionLoop) offer(now lease.Reading, call transferCall) {
	switch {
	case l.transfer.join(call):
		l.cand.Insist()
	case l.cand.Offer(now, call.token, call.to):
		l.transfer = transfer{asked: call.to, token: call.token, calls: []transferCall{call}}
		l.offered()
	case l.cand.State() == lease.Leading && l.cand.Token() == call.token:
		call.begun <- fmt.Errorf("%w: to %s", ErrTransferring, heirName(l.cand.Heir()))
	case l.transferred.serves(call):
		call.begun <- nil
	default:
		call.begun <- ErrNotLeader
	}
}

// offered reports to whom the lease is offered, once that is known.
func (l *electionLoop) offered() {
	if to := l.cand.Heir(); to != lease.Anyone && to != l.transfer.to {
		l.transfer.to = to
		l.tell(Event{Type: EventTransferOffered, Role: l.opts.Role, Token: l.transfer.token, Subject: to, Reason: l.transfer.why()})
	}
}

// offers reports an offer that the candidate has made by itself, to a better one, or to the best of
// those that ask, and an offer that was not taken up: then the term goes on.
func (l *electionLoop) offers() {
	if to := l.cand.Heir(); to != "" && l.cand.State() == lease.Leading {
		if l.transfer.token == 0 { // Preempt
			l.transfer = transfer{asked: to, token: l.cand.Token()}
		}
		l.offered()
	}
	if l.transfer.token == 0 || l.cand.Heir() != "" {
		return
	}
	why := l.transfer.why()
	err := notReady(l.transfer.to, why == transferPreempt, l.timing)
	l.tell(Event{Type: EventTransferFailed, Role: l.opts.Role, Token: l.transfer.token, Subject: l.transfer.to, Reason: why, Err: err})
	l.transfer.settle(err) // last: who is answered may ask for the status
}

func (l *electionLoop) begin(now lease.Reading) {
	term := Term{Role: l.opts.Role, InstanceID: l.id, Token: l.cand.Token(), Since: store.StartTime(l.cand.Since())}
	t := begin(l.parent, term, l.cand.Lease(), l.inputs.nudge)
	t.home, t.tasks.home = &l.current, &l.current
	t.links, t.tasks.links = l.links, l.links
	l.term = t
	l.current.Store(t)
	l.balance.count(true)
	l.tell(Event{Type: EventTermBegan, Role: term.Role, Token: term.Token})
	// The loop may have stood still since it took the answer: no work begins in a term that is
	// over, or is about to be cancelled.
	if first := l.cand.Lease(); first.CancelIn(readClock()) <= 0 || !t.leading() {
		l.apply(now, l.cand.End(now, lease.Expired), ErrExpired)
		return
	}
	if !l.report.healthy {
		l.apply(now, l.cand.End(now, lease.Failed), ErrWorkFailed)
		return
	}
	if !l.report.eligible { // the grant of what was asked before
		l.apply(now, l.cand.End(now, lease.Resigned), ErrResigned)
		return
	}
	term, _ = TermFrom(t.ctx)
	l.work.start(t.ctx, term)
}

// returned takes note that a piece of leader work has returned. Nil ends no term: work may be done
// before its term is.
func (l *electionLoop) returned(now lease.Reading, e workEnded) {
	l.work.running[e.work] = false
	cause := context.Cause(l.term.ctx)
	switch {
	case e.err == nil && cause == nil: // it is done: the term goes on, even without any work
		l.tell(Event{Type: EventWorkDone, Role: l.opts.Role, Token: l.cand.Token(), Work: l.work.name(e.work)})
	case e.err == nil:
	case cause != nil && e.heeded:
	case e.resigns: // without an effect if the term has ended
		l.apply(now, l.cand.End(now, lease.Resigned), e.err)
	case cause != nil: // it failed while it drained
		l.tell(Event{Type: EventWorkFailed, Role: l.opts.Role, Token: l.cand.Token(), Err: e.err})
	default:
		l.fail(now, e.err)
	}
}

// fail gives the term up because leader work, the tasks or the health check failed.
func (l *electionLoop) fail(now lease.Reading, err error) {
	if l.cand.State() != lease.Leading {
		return
	}
	l.tell(Event{Type: EventWorkFailed, Role: l.opts.Role, Token: l.cand.Token(), Err: err})
	l.apply(now, l.cand.End(now, lease.Failed), fmt.Errorf("%w: %w", ErrWorkFailed, err))
}

// drain cancels the context of the tasks of an ended term when their time is up, or when the lease
// is no longer kept for them. It gives the lease back when all work has returned, and leaves it to
// lapse if that takes too long.
func (l *electionLoop) drain(now lease.Reading) {
	if l.cand.State() != lease.Draining {
		return
	}
	switch tasks := l.term.tasks; {
	case tasks.ctx.Err() != nil:
	case !l.cand.Keeps():
		tasks.end(fmt.Errorf("%w while its tasks finished", ErrLost))
	case l.work.idle() || !time.Now().Before(l.finishBy):
		tasks.end(context.Cause(l.term.ctx))
	}
	if l.idle() {
		l.resignDone() // of an older one that Redis has not confirmed yet
		l.releasing, l.releasingToken = l.term, l.cand.Token()
		if l.cand.Reason() == lease.Refused { // there is nothing of ours to give back
			l.releasingToken = 0
		}
		l.term, l.work.running = nil, nil
		l.cand.Drained(now)
		l.report.backFor = WaitPenalty
	} else if !l.abandoned && !time.Now().Before(l.drainBy) {
		l.abandoned = true
		l.cand.Abandon()
		overrun := &DrainError{Running: l.workLeft()}
		l.tell(Event{Type: EventWorkOverrun, Role: l.opts.Role, Token: l.cand.Token(), Err: overrun})
		l.term.resignDone(overrun) // the work may itself be what waits for it
	}
}

// resignDone ends the wait of Resign for a term whose work has returned.
func (l *electionLoop) resignDone() {
	if l.releasing != nil {
		l.releasing.resignDone(nil)
		l.releasing = nil
	}
}

// wakeResigners ends every wait of Resign, when the loop has ended.
func (l *electionLoop) wakeResigners() {
	l.resignDone()
	if l.term != nil {
		l.term.resignDone(l.leftovers())
	}
}
