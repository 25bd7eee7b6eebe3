package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/lease"

	"github.com/tenure-go/tenure/internal/store"
)

// beater is the beat loop. Its fields belong to the loop.
type beater struct {
	r      *Registry
	record store.Instance

	registered bool // a beat has had a good answer
	started    int64
	clock      lease.RedisClock
	trouble    reportOnce
	failures   int
}

// beat registers this instance at once and beats until ctx is done, in the caller's goroutine. It returns within registryBound of
// that, when no beat is in flight any more, but for one that ignores its context.
func (r *Registry) beat(ctx context.Context) {
	if r.opts.BeatInterval < 0 {
		<-ctx.Done()
		return
	}
	b := newBeater(r)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.wake:
		}
		if ctx.Err() != nil || r.left.Load() {
			return
		}
		timer.Reset(b.beat(ctx))
	}
}

func newBeater(r *Registry) *beater {
	return &beater{r: r, record: store.Instance{Incarnation: r.incarnation, WorkerCount: r.opts.WorkerCount, Metadata: r.opts.Metadata}}
}

// setStatus sets what this instance says of itself and has it beat at once.
func (r *Registry) setStatus(status InstanceStatus) {
	r.mu.Lock()
	r.status = status
	r.mu.Unlock()
	r.wake.nudge()
}

// takePart makes this instance active: it beats, whether it campaigns or not. One that is on its way out stays so.
func (r *Registry) takePart() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == StatusJoining {
		r.status = StatusActive
		r.wake.nudge()
	}
}

// beat beats once and says when to beat again. The call outlives ctx, so that what follows it at shutdown finds none in flight.
func (b *beater) beat(ctx context.Context) (pause time.Duration) {
	interval := b.r.opts.BeatInterval
	began := time.Now()
	reply, err := b.send(ctx)
	if err == nil && reply.Verdict == store.HeartbeatStale { // it was late, or Redis's clock was not known, or set: now that is known better
		if ctx.Err() != nil {
			return 0
		}
		reply, err = b.send(ctx)
	}
	if err == nil && reply.Verdict == store.HeartbeatStale {
		err = fmt.Errorf("%w: the beat came too late", ErrUnreachable)
	}
	if err != nil {
		b.trouble.report(b.r.bus, EventBeatFailed, err)
		b.failures++
		pause = lease.Backoff(interval/30, b.failures, interval/3)
		if errors.Is(err, ErrMisconfigured) {
			pause = interval / 3
		}
		return max(pause/4*3+time.Duration(b.r.random()*float64(pause/4)), time.Millisecond)
	}
	b.trouble.over()
	b.failures = 0
	b.take(reply)
	pause = interval/20*19 + time.Duration(b.r.random()*float64(interval/10)) // ± 5 %
	return max(pause-time.Since(began), 0)
}

// send makes one call. A beat that is not there by the time it is given up must not take effect any more: it could undo a younger
// one, enter a record after its process has gone, or push aside that of the next process of the same ID. So whoever does not know
// Redis's clock asks for it first: by a beat that is too late by any clock, which is answered with the time and changes nothing.
func (b *beater) send(ctx context.Context) (store.HeartbeatReply, error) {
	r := b.r
	r.mu.Lock()
	b.record.Status = string(r.status)
	r.mu.Unlock()
	head, rest := b.record.Pieces(r.id)
	c := store.Heartbeat{
		ID:          r.id,
		Incarnation: r.incarnation,
		First:       !b.registered,
		TTL:         r.opts.BeatTTL,
		TakeOver:    r.opts.DriftedAfter,
		Head:        head,
		Rest:        rest,
		Started:     b.started,
		NotAfter:    1,
	}
	sent := readClock().Mono
	bound := min(r.opts.BeatInterval, registryBound)
	if b.clock.Known() { // where it is wrong the beat is stale, and sent once more
		c.NotAfter = b.clock.Read(sent) + (bound - b.clock.Spread()).Milliseconds()
	}
	ctx, cancel := within(context.WithoutCancel(ctx), bound)
	defer cancel()
	reply, err := ask(ctx, &r.beating, func(ctx context.Context) (store.HeartbeatReply, error) { return r.store.Heartbeat(ctx, c) })
	if !store.NeverSent(err) { // also if its answer was lost
		r.entered.Store(true)
	}
	if err != nil {
		return store.HeartbeatReply{}, err
	}
	b.clock.Learn(sent, readClock().Mono, reply.Now)
	return reply, nil
}

// take takes a good answer.
func (b *beater) take(reply store.HeartbeatReply) {
	r := b.r
	switch reply.Verdict {
	case store.HeartbeatDuplicate:
		r.duplicate(reply.Other, true)
		return
	case store.HeartbeatOverwritten:
		r.duplicate("", true)
	case store.HeartbeatJoined:
		r.mu.Lock()
		r.rivalSeen = time.Time{}
		r.mu.Unlock()
	}
	if !b.registered {
		r.takePart()
	}
	if reply.Verdict == store.HeartbeatJoined || !b.registered {
		r.bus.publish(Event{Type: EventRegistered})
	}
	if reply.Verdict == store.HeartbeatRecovered {
		r.bus.publish(Event{Type: EventRecovered, Subject: r.id})
	}
	b.registered, b.started = true, reply.Started
}

// deregister removes the record of this very incarnation, and nothing of another one. No beat is sent any more. It is to be called
// when beat has returned.
func (r *Registry) deregister(ctx context.Context) error {
	if r.left.Swap(true) || !r.entered.Load() {
		return nil
	}
	ctx, cancel := within(ctx, registryBound)
	defer cancel()
	verdict, err := ask(ctx, &r.leaving, func(ctx context.Context) (string, error) { return r.store.Remove(ctx, r.id, r.incarnation) })
	if err != nil {
		return err
	}
	if verdict == store.RemovedLeft || verdict == store.RemovedAbsent { // absent: the client has asked twice
		r.bus.publish(Event{Type: EventLeft, Subject: r.id})
	}
	return nil
}
