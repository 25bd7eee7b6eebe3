package tenure

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/internal/driver"
	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// This file has the calls of an election to Redis. The loop makes none itself: each has a goroutine
// of its own, and renewals of several roles may share one.

// storeAnswer is the answer to a request, or its error.
type storeAnswer struct {
	number  uint64 // of the call, in the order in which they were sent
	look    bool   // it asked who leads; there is no request
	aside   bool   // it went over a connection of its own
	request lease.Request
	answer  store.LeaseReply
	err     error
}

// send hands a request to the client in a goroutine of its own: the loop goes on even if the client
// ignores its context.
func (l *electionLoop) send(now lease.Reading, r lease.Request) {
	if r.Kind != lease.Release {
		l.second, l.secondAt = r, 0
	}
	if r.Kind == lease.Renew {
		l.secondAt = now.Mono + r.Bound/secondCopy
	}
	if l.calls < maxCalls {
		if !l.together.add(l, r, r.Bound, false) {
			l.call(storeAnswer{request: r}, r.Bound, func(ctx context.Context) (store.LeaseReply, error) { return store.Send(ctx, l.store, r) })
		}
		return
	}
	if !l.callsStuck {
		l.callsStuck = true
		l.bus.publish(Event{Type: EventCallsStuck, Role: l.opts.Role, Count: l.calls, Err: &callsHangError{count: l.calls}})
	}
	if r.Kind == lease.Release || !l.sendAside(now) {
		l.apply(now, l.cand.Answer(now, r, lease.Answer{}), ErrExpired)
	}
}

// secondCopy: a renewal that has no answer after that part of its bound is sent once more.
const secondCopy = 4

// sendAside sends the same request again, over a connection of its own, so that one way to Redis is
// left if the pool of the client fails. The first answer counts, Redis grants nothing for the other
// copy, and the lease runs from before the first. sendAside reports whether it did so: at most one
// such copy is in flight, and not every client has a connection beside its pool.
func (l *electionLoop) sendAside(now lease.Reading) bool {
	l.secondAt = 0
	beside, able := l.store.(interface {
		AskAside(ctx context.Context, r lease.Request) (store.LeaseReply, error)
	})
	r := l.second
	bound := r.Bound - (now.Mono - r.Sent.Mono)
	over := r.Kind == lease.Renew && l.cand.State() != lease.Leading && !l.cand.Keeps()
	if !able || l.aside || over || bound <= 0 {
		return false
	}
	l.aside = true
	if l.together.add(l, r, bound, true) {
		return true
	}
	l.call(storeAnswer{request: r, aside: true}, bound, func(ctx context.Context) (store.LeaseReply, error) { return beside.AskAside(ctx, r) })
	return true
}

// call makes one call, whose answer comes as an input.
func (l *electionLoop) call(a storeAnswer, bound time.Duration, ask func(context.Context) (store.LeaseReply, error)) {
	a = l.counted(a)
	go func() { // ends when the client returns; counted in calls, which Run waits for
		ctx, cancel := context.WithTimeout(l.parent, bound)
		defer cancel()
		began := readClock()
		a.answer, a.err = ask(ctx)
		l.answered(began, a)
		l.inputs.nudge()
	}()
}

// counted gives a call its number.
func (l *electionLoop) counted(a storeAnswer) storeAnswer {
	l.calls++
	l.sent++
	a.number = l.sent
	return a
}

// answered leaves an answer for the loop, from any goroutine. It gives it no turn.
func (l *electionLoop) answered(began lease.Reading, a storeAnswer) {
	if a.request.Kind == lease.Renew {
		l.observed.renewal(l.opts.Role, l.current.Load(), began, a.answer.Verdict, a.err)
	}
	l.inputs.mailbox.put(func(in *loopInputs) { in.answers = append(in.answers, a) })
}

// maxTogether is how many renewals travel in one pipeline. One that is late holds no more of them
// up.
const maxTogether = 200

// togetherRenewals are the renewals that are due in one pass of the driver, whose goroutine alone
// has them. Those that may travel together do, and so do second copies, over one connection of
// their own.
type togetherRenewals struct {
	due []dueRenewal
}

// dueRenewal is a renewal that is about to be sent.
type dueRenewal struct {
	store.Renewal
	loop   *electionLoop
	number uint64
	bound  time.Duration
	aside  bool
}

// add takes a renewal, or the second copy of one, that may travel with others. It reports whether
// it has.
func (t *togetherRenewals) add(l *electionLoop, r lease.Request, bound time.Duration, aside bool) bool {
	if t == nil || r.Kind != lease.Renew {
		return false
	}
	to, able := l.store.(store.Together)
	if !able || to.Way() == nil {
		return false
	}
	t.due = append(t.due, dueRenewal{store.Renewal{Lease: to, Request: r}, l, l.counted(storeAnswer{}).number, bound, aside})
	return true
}

// send sends all of them.
func (t *togetherRenewals) send() {
	due := t.due
	t.due = nil
	for len(due) > 0 {
		way, aside := due[0].Lease.Way(), due[0].aside
		var group, others []dueRenewal
		for _, d := range due {
			if len(group) < maxTogether && d.Lease.Way() == way && d.aside == aside {
				group = append(group, d)
			} else {
				others = append(others, d)
			}
		}
		due = others
		go sendTogether(group) // ends when the client returns; counted in calls, which Run waits for
	}
}

// sendTogether sends the renewals of one group. The bound is the longest of theirs: none is cut
// short by another, and each loop stops waiting at its own.
func sendTogether(group []dueRenewal) {
	var bound time.Duration
	for _, d := range group {
		bound = max(bound, d.bound)
	}
	ctx, cancel := context.WithTimeout(group[0].loop.parent, bound)
	defer cancel()
	began := readClock()
	all := make([]store.Renewal, len(group))
	for i, d := range group {
		all[i] = d.Renewal
	}
	done := func(answered []int) {
		seats := make([]*driver.Seat, len(answered))
		for n, i := range answered {
			d, r := group[i], all[i]
			d.loop.answered(began, storeAnswer{number: d.number, aside: d.aside, request: r.Request, answer: r.Reply, err: r.Err})
			seats[n] = d.loop.inputs.seat
		}
		driver.Nudge(seats...) // once for all: a pass of the driver serves them
	}
	if aside := group[0].aside; aside || len(all) > 1 {
		store.SendAll(ctx, all, aside, done)
		return
	}
	all[0].Reply, all[0].Err = store.Send(ctx, all[0].Lease, all[0].Request)
	done([]int{0})
}
