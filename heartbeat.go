package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// beatLoop drives membership.Beat. Its fields belong to the loop.
type beatLoop struct {
	r      *Registry
	beat   *membership.Beat
	record store.Instance
	// head and rest are the record as it was last sent, up to started_at and after last_heartbeat.
	head, rest string
	edition    int      // of what the record says
	leads      []string // what this process leads, as it was last asked; reused
	spoilt     int      // rides in a row that have failed
	alone      int      // so many heartbeats more take nothing along
	faults     reportOnce
}

// beat registers this instance at once and sends heartbeats until ctx is done, in the caller's
// goroutine. It returns within registryBound of that, when no heartbeat is in flight any more, but
// for one that ignores its context.
func (r *Registry) beat(ctx context.Context) {
	if r.opts.HeartbeatInterval < 0 {
		<-ctx.Done()
		return
	}
	l := newBeatLoop(r)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
			l.beat.Nudge()
		case ride := <-r.rides:
			l.carry(ctx, ride)
		}
		for ctx.Err() == nil && !r.left.Load() {
			h, due := l.beat.Next(monotonic())
			if !due {
				break
			}
			l.send(ctx, h, nil)
		}
		if ctx.Err() != nil || r.left.Load() {
			return
		}
		r.expect(l.beat)
		timer.Reset(l.beat.Wait(monotonic()))
	}
}

func newBeatLoop(r *Registry) *beatLoop {
	return &beatLoop{
		r: r, beat: membership.NewBeat(monotonic(), r.opts.HeartbeatInterval, r.random),
		record: store.Instance{Incarnation: r.incarnation},
	}
}

// carry has the next heartbeat take an acquire along, if it is due within so long and may: it goes
// at once then. carry returns when the acquire has its answer, or reports at once that it must
// travel alone: the beat loop waits for an answer, say, or has ended, or a heartbeat hangs in the
// client, which may be since it was no heartbeat alone.
func (r *Registry) carry(ctx context.Context, rider *store.Rider, within time.Duration) bool {
	carrier, able := r.store.(store.Carrier)
	return able && r.beating.left.count() == 0 && carrier.Carries(rider.Lease) && offer(ctx, r.rides, rider, within)
}

// next says when the next heartbeat is due.
func (r *Registry) next() lease.Beats {
	if at := r.expected.Load(); at != nil {
		return *at
	}
	return lease.Beats{}
}

// expect lets others know when the next heartbeat is due.
func (r *Registry) expect(b *membership.Beat) {
	r.expected.Store(&lease.Beats{Due: b.Due(), Every: r.opts.HeartbeatInterval})
}

// setStatus sets what this instance says of itself and has it beat at once.
func (r *Registry) setStatus(status InstanceState) {
	r.mu.Lock()
	r.status = status
	r.mu.Unlock()
	r.wake.nudge()
}

// drain has this instance say that it drains, or that it takes part again.
func (r *Registry) drain(draining bool) {
	r.mu.Lock()
	switch {
	case draining:
		r.status = InstanceDraining
	case r.taken:
		r.status = InstanceActive
	default:
		r.status = InstanceJoining
	}
	r.mu.Unlock()
	r.wake.nudge()
}

// takePart makes this instance active: it beats, whether it campaigns or not. One that is on its
// way out stays so.
func (r *Registry) takePart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = true
	if r.status == InstanceJoining {
		r.status = InstanceActive
		r.wake.nudge()
	}
}

// takesPart reports whether this instance has been registered.
func (r *Registry) takesPart() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

// firstNames cuts a list of roles down to what a record may have.
func firstNames(roles []string) []string {
	size := 0
	for i, role := range roles {
		if size += len(role); i == store.MaxNames || size > store.MaxNameBytes {
			return roles[:i]
		}
	}
	return roles
}

// compose writes the record if it says something else than the last one.
func (l *beatLoop) compose() {
	r := l.r
	l.leads = firstNames(r.elections.leading(l.leads[:0]))
	r.mu.Lock()
	defer r.mu.Unlock()
	status := string(r.status)
	if l.record.Status == status && l.edition == r.edition && slices.Equal(l.record.Leading, l.leads) {
		return
	}
	l.record.Status, l.edition, l.record.Profile = status, r.edition, r.profile
	l.record.Leading = slices.Clone(l.leads)
	l.head, l.rest = l.record.Pieces(r.id)
}

// send makes one call and takes its answer. The call outlives ctx, so that what follows the loop at
// shutdown finds none in flight. ride travels with it; nil: nothing does.
func (l *beatLoop) send(ctx context.Context, h membership.Heartbeat, ride *ride) {
	r := l.r
	r.expect(l.beat)
	l.compose()
	c := store.Heartbeat{
		ID:          r.id,
		Incarnation: r.incarnation,
		First:       h.First,
		TTL:         r.opts.HeartbeatTTL,
		TakeOver:    r.opts.DriftedAfter,
		Head:        l.head,
		Rest:        l.rest,
		Started:     h.Started,
		NotAfter:    h.NotAfter,
	}
	measured := r.measured.Load()
	if measured != nil {
		c.Metrics, c.MetricsTTL = *measured, keptMetrics*r.opts.pushes()
	}
	ctx, cancel := within(context.WithoutCancel(ctx), h.Bound)
	defer cancel()
	reply, err := bounded(ctx, &r.beating, func(ctx context.Context) (store.HeartbeatReply, error) { return r.heartbeat(ctx, c, ride) })
	l.judge(ride != nil, err)
	if !store.NeverSent(err) { // also if its answer was lost
		r.entered.Store(true)
	}
	if err != nil {
		l.faults.report(r.bus, EventHeartbeatFailed, r.reasoned(ctx, err))
		l.beat.Failed(monotonic(), h, errors.Is(err, ErrMisconfigured))
		return
	}
	if reply.Verdict != membership.Stale {
		r.measured.CompareAndSwap(measured, nil) // else there are newer ones
	}
	l.take(reply, l.beat.Answer(monotonic(), h, membership.BeatAnswer{
		Verdict: reply.Verdict, Now: reply.Now, Started: reply.Started, Instances: reply.Instances,
	}))
}

// reasoned adds to the error of a heartbeat whose time was over why there is no connection, as
// electionReport.silence does: the client dials again and again, and says why that fails too late.
func (r *Registry) reasoned(ctx context.Context, err error) error {
	if r.elections.unconnected == nil || !errors.Is(err, context.DeadlineExceeded) && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx))) {
		return err
	}
	if why := r.elections.unconnected(); why != "" {
		return fmt.Errorf("%w; the subscription: %s", err, why)
	}
	return err
}

// judge decides whether the next heartbeats may take something along. After a ride that has failed
// four may not, twice as many after each further one up to 64: the client may refuse pipelines.
func (l *beatLoop) judge(rode bool, err error) {
	switch {
	case !rode:
		l.alone = max(l.alone-1, 0)
	case err == nil:
		l.spoilt = 0
	default:
		l.alone = 4 << min(l.spoilt, 4)
		l.spoilt++
	}
}

// carry sends a heartbeat early for the sake of a ride, or refuses that, also if no call has begun.
func (l *beatLoop) carry(ctx context.Context, ride *ride) {
	defer ride.refuse()
	now := monotonic()
	if ctx.Err() != nil || l.r.left.Load() || l.alone > 0 || !l.beat.Hasten(now, min(ride.within, l.r.opts.HeartbeatInterval/2)) {
		return
	}
	if h, due := l.beat.Next(now); due {
		l.send(ctx, h, ride)
	}
}

// heartbeat makes the call of a heartbeat, with the ride if there is one. Neither is cut short by
// the other: the call goes on for as long as one of them is waited for.
func (r *Registry) heartbeat(ctx context.Context, c store.Heartbeat, ride *ride) (store.HeartbeatReply, error) {
	carrier, able := r.store.(store.Carrier)
	if !able || !ride.begin() {
		return r.store.Heartbeat(ctx, c)
	}
	ride.Answered = func() { ride.ended <- true }
	until, _ := ctx.Deadline()
	if ride.until.After(until) {
		until = ride.until
	}
	both, cancel := context.WithDeadline(context.WithoutCancel(ctx), until)
	defer cancel()
	return carrier.HeartbeatWith(both, c, &ride.Rider)
}

// take reports what an answer has changed.
func (l *beatLoop) take(reply store.HeartbeatReply, change membership.BeatChange) {
	r := l.r
	switch {
	case change.TooLate:
		l.faults.report(r.bus, EventHeartbeatFailed, fmt.Errorf("%w: the beat came too late", ErrUnreachable))
		return
	case reply.Verdict == membership.Stale: // one more follows
		return
	}
	l.faults.over()
	if reply.Commands && r.elections.commands != nil {
		r.elections.commands()
	}
	if r.started.Swap(reply.Started) != reply.Started {
		r.elections.compared()
	}
	switch {
	case change.Duplicate:
		r.duplicate(reply.Other, true)
	case change.Replaced:
		r.duplicate("", true)
	case change.Joined:
		r.mu.Lock()
		r.duplicateSeen = time.Time{}
		r.mu.Unlock()
	}
	if change.First {
		r.takePart()
	}
	if change.First || change.Joined {
		r.bus.publish(Event{Type: EventInstanceRegistered})
	}
	if change.Recovered {
		r.bus.publish(Event{Type: EventInstanceRecovered, Subject: r.id})
	}
}

// deregister removes the record of this very incarnation, and nothing of another one. No beat is
// sent any more. It is to be called when beat has returned.
func (r *Registry) deregister(ctx context.Context) error {
	if r.left.Swap(true) || !r.entered.Load() {
		return nil
	}
	ctx, cancel := within(ctx, registryBound)
	defer cancel()
	verdict, err := bounded(ctx, &r.leaving, func(ctx context.Context) (string, error) { return r.store.Remove(ctx, r.id, r.incarnation) })
	if err != nil {
		return err
	}
	if verdict == store.RemovedLeft || verdict == store.RemovedAbsent { // absent: the client has asked twice
		r.bus.publish(Event{Type: EventInstanceLeft, Subject: r.id})
	}
	return nil
}
