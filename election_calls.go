package tenure

import (
	"context"
	"slices"
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
	switch r.Kind {
	case lease.Renew:
		l.secondAt = now.Mono + r.Bound/secondCopy
	case lease.Acquire:
		l.secondAt = 0
	}
	if l.calls < maxCalls {
		if !l.together.add(l, r, r.Bound, false) {
			l.call(storeAnswer{request: r}, r.Bound, l.ask)
		}
		return
	}
	if !l.callsStuck {
		l.callsStuck = true
		l.tell(Event{Type: EventCallsStuck, Role: l.opts.Role, Count: l.calls, Err: &callsHangError{count: l.calls}})
	}
	if r.Kind == lease.Release || !l.sendAside(now) {
		l.apply(now, l.cand.Answer(now, r, lease.Answer{}), ErrExpired)
	}
}

// ask makes the call of a request, with a heartbeat if it may travel with one.
func (l *electionLoop) ask(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	if r.Rides {
		rider := store.Rider{Lease: l.store, Request: r}
		if l.beats.carry(ctx, &rider, l.timing.Retry/2) {
			return rider.Answer()
		}
	}
	if r.Kind == lease.Release && r.Why == lease.Shutdown.String() && store.IsDone(l.run) {
		r.Why = store.TermDone
	}
	return store.Send(ctx, l.store, r)
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
	r, waited := l.cand.Awaited()
	bound := r.Bound - (now.Mono - r.Sent.Mono)
	over := r.Kind == lease.Renew && l.cand.State() != lease.Leading && !l.cand.Keeps()
	if !able || !waited || l.aside || over {
		return false
	}
	l.aside = true
	if l.together.add(l, r, bound, true) {
		return true
	}
	l.call(storeAnswer{request: r, aside: true}, bound, beside.AskAside)
	return true
}

// call makes one call, whose answer comes as an input.
func (l *electionLoop) call(a storeAnswer, bound time.Duration, ask func(context.Context, lease.Request) (store.LeaseReply, error)) {
	a = l.counted(a)
	go func() { // ends when the client returns; counted in calls, which Run waits for
		ctx, cancel := context.WithTimeout(l.parent, bound)
		defer cancel()
		began := readClock()
		a.err = store.ErrCallEnded
		defer func() {
			l.answered(began, a)
			l.inputs.nudge()
		}()
		a.answer, a.err = ask(ctx, a.request)
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
	groups []*renewalGroup
	room   int // the most of one group that were sent last
}

// renewalGroup are renewals that are about to travel together.
type renewalGroup struct {
	way   any
	aside bool
	bound time.Duration // the longest of theirs: none is cut short by another
	all   []store.Renewal
	of    []renewalCall // each of them
}

type renewalCall struct {
	loop     *electionLoop
	number   uint64
	answered bool
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
	g := t.group(to.Way(), aside)
	g.bound = max(g.bound, bound)
	g.all = append(g.all, store.Renewal{Lease: to, Request: r})
	g.of = append(g.of, renewalCall{loop: l, number: l.counted(storeAnswer{}).number})
	return true
}

// group is one of this way that has room.
func (t *togetherRenewals) group(way any, aside bool) *renewalGroup {
	for _, g := range slices.Backward(t.groups) {
		if len(g.all) < maxTogether && g.way == way && g.aside == aside {
			return g
		}
	}
	g := &renewalGroup{way: way, aside: aside, all: make([]store.Renewal, 0, t.room), of: make([]renewalCall, 0, t.room)}
	t.groups = append(t.groups, g)
	return g
}

// send sends all of them.
func (t *togetherRenewals) send() {
	if len(t.groups) == 0 {
		return
	}
	t.room = 0
	for i, g := range t.groups {
		t.room = max(t.room, len(g.all))
		go g.send() // ends when the client returns; counted in calls, which Run waits for
		t.groups[i] = nil
	}
	t.groups = t.groups[:0]
}

// send sends the renewals. Each loop stops waiting at its own bound.
func (g *renewalGroup) send() {
	ctx, cancel := context.WithTimeout(g.of[0].loop.parent, g.bound)
	defer cancel()
	began := readClock()
	done := func(answered []int) {
		seats := make([]*driver.Seat, len(answered))
		for n, i := range answered {
			c, r := &g.of[i], &g.all[i]
			c.answered = true
			c.loop.answered(began, storeAnswer{number: c.number, aside: g.aside, request: r.Request, answer: r.Reply, err: r.Err})
			seats[n] = c.loop.inputs.seat
		}
		driver.Nudge(seats...) // once for all: a pass of the driver serves them
	}
	defer func() {
		var left []int // only if the client has ended this goroutine, or one of the calls
		for i := range g.of {
			if !g.of[i].answered {
				g.all[i].Err = store.ErrCallEnded
				left = append(left, i)
			}
		}
		if len(left) > 0 {
			done(left)
		}
	}()
	if one := &g.all[0]; len(g.all) == 1 && !g.aside {
		one.Reply, one.Err = store.Send(ctx, one.Lease, one.Request)
		done([]int{0})
		return
	}
	store.SendAll(ctx, g.all, g.aside, done)
}
