package tenure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// sweeper drives membership.Sweep during one term. Its fields belong to the loop.
type sweeper struct {
	r        *Registry
	term     Term
	sweep    *membership.Sweep
	now      func() time.Duration // monotonic
	faults   reportOnce
	counting reportOnce // likewise, of counts

	asked     []chan<- error // calls of Registry.Sweep; each has a buffer
	counts    *Counts        // as they were last reported
	countedAt time.Duration
}

func newSweeper(r *Registry, term Term, now func() time.Duration) *sweeper {
	return &sweeper{r: r, term: term, now: now, sweep: membership.NewSweep(now(), membership.SweepTiming{
		Interval: r.opts.SweepInterval, Heartbeat: r.opts.beat(), TTL: r.opts.HeartbeatTTL,
		Drifted: r.opts.DriftedAfter, Down: r.opts.DownAfter,
	})}
}

func monotonic() time.Duration { return readClock().Mono }

// sweepLoop sweeps until ctx is done. It is leader work.
func (r *Registry) sweepLoop(ctx context.Context, term Term) error {
	if r.opts.SweepInterval < 0 {
		<-ctx.Done()
		return nil
	}
	s := newSweeper(r, term, monotonic)
	passes := r.openPasses()
	defer func() { s.asked = append(s.asked, r.closePasses()...); s.answer(ErrNotLeader) }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-passes.wakeup:
			s.asked = append(s.asked, passes.take()...)
			s.sweep.Hurry(s.now())
		case <-timer.C:
		}
		s.pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		timer.Reset(s.sweep.Wait(s.now()))
	}
}

// pass asks what is due: a pass, unless one of its calls fails.
func (s *sweeper) pass(ctx context.Context) {
	for ctx.Err() == nil {
		q, due := s.sweep.Next(s.now())
		if !due {
			return
		}
		switch done, err := s.ask(ctx, q); {
		case err != nil && ctx.Err() == nil: // else the term is over
			s.faults.report(s.r.bus, EventSweepFailed, err)
			s.answer(err)
		case done:
			s.faults.over()
			s.answer(nil)
			s.count(ctx)
		}
	}
}

// answer answers the calls of Registry.Sweep.
func (s *sweeper) answer(err error) {
	for _, asked := range s.asked {
		asked <- err
	}
	s.asked = nil
}

// count reports the counts of the instances if they are others than before. It asks for them if
// something was heard that changes them, after each pass while some are silent whom the sweep may
// not mark yet, and each DownAfter, in case that a hint was lost.
func (s *sweeper) count(ctx context.Context) {
	r := s.r
	if r.counted.Swap(true) && s.counts != nil && s.now()-s.countedAt < r.opts.DownAfter {
		return
	}
	ctx, cancel := within(ctx, registryBound)
	defer cancel()
	counts, err := r.Counts(ctx)
	if err != nil && !errors.Is(err, ErrTruncated) {
		r.counted.Store(false)                // after the next pass
		if errors.Is(err, ErrMisconfigured) { // a pass may need less
			s.counting.report(r.bus, EventSweepFailed, fmt.Errorf("the instances cannot be counted: %w", err))
		}
		return
	}
	s.counting.over()
	if counts.Drifted+counts.Down > 0 && !s.sweep.Marks(s.now()) {
		r.counted.Store(false) // after the next pass: who was not marked comes back without a hint
	}
	s.countedAt = s.now()
	if s.counts == nil || *s.counts != counts {
		s.counts = &counts
		r.bus.publish(Event{Type: EventClusterChanged, Counts: &counts})
	}
}

// Sweep has the leader look for silent instances now, and not only after SweepInterval, and returns
// when that is done: instances that have been silent for DriftedAfter are marked, those for
// DownAfter are removed. It changes no rule: as after every election nobody is marked, or removed,
// before the leader has watched for long enough, and of a crowd that is silent at once most are
// held. Events and Registry.Log say what it has done.
//
// Sweep returns ErrNotLeader if this process does not lead the default role, ErrMisconfigured if
// SweepInterval is negative, and the error of Redis if the sweep has failed: the leader then tries
// again by itself. If ctx is done first, it returns the cause, and the sweep goes on.
func (r *Registry) Sweep(ctx context.Context) error {
	if r.opts.SweepInterval < 0 {
		return fmt.Errorf("%w: SweepInterval is negative, this process does not sweep", ErrMisconfigured)
	}
	answer := make(chan error, 1)
	r.mu.Lock()
	passes := r.passes
	if passes != nil { // under the lock: who closes them takes what is there
		passes.put(func(asked *[]chan<- error) { *asked = append(*asked, answer) })
	}
	r.mu.Unlock()
	if passes == nil {
		return ErrNotLeader
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// openPasses lets Sweep ask for passes.
func (r *Registry) openPasses() *mailbox[[]chan<- error] {
	passes := &mailbox[[]chan<- error]{wakeup: newWakeup()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passes = passes
	return passes
}

// closePasses refuses further ones, and returns those that nobody has taken.
func (r *Registry) closePasses() []chan<- error {
	r.mu.Lock()
	defer r.mu.Unlock()
	passes := r.passes
	r.passes = nil
	return passes.take()
}

var errTermOver = fmt.Errorf("%w: the term is over", ErrNotLeader)

// ask makes the call of a question and takes its answer. done says that the pass is over.
func (s *sweeper) ask(ctx context.Context, q membership.Question) (done bool, err error) {
	switch q.Kind {
	case membership.Look:
		done, err = s.look(ctx, q)
	case membership.Judge:
		done, err = s.judge(ctx, q)
	case membership.Scan:
		err = s.scan(ctx, q)
	case membership.Adopt:
		err = s.adopt(ctx, q)
	}
	if err != nil {
		s.sweep.Failed(s.now(), q)
	}
	return done, err
}

// look lists one page of the silent.
func (s *sweeper) look(ctx context.Context, q membership.Question) (done bool, err error) {
	c := store.Look{Silence: s.sweep.Silence(), From: q.From, Skip: q.Skip}
	reply, err := sweeping(ctx, s, func(ctx context.Context) (store.LookReply, error) { return s.r.store.Look(ctx, c) })
	if err != nil {
		return false, err
	}
	return s.sweep.Looked(s.now(), q, membership.Page{
		Now: reply.Now, Records: reply.Records, Beats: reply.Beats, From: reply.From, Skip: reply.Skip, IDs: reply.IDs,
	}), nil
}

// judge marks, or removes, the silent ones among the instances of a question, and reports it.
func (s *sweeper) judge(ctx context.Context, q membership.Question) (done bool, err error) {
	if !s.term.Valid() {
		return false, errTermOver
	}
	r := s.r
	c := store.Sweep{
		Drifted: r.opts.DriftedAfter, Down: r.opts.DownAfter, Window: s.sweep.Window(),
		Mark: q.Mark, Remove: q.Remove, Unwatched: q.Unwatched, Incarnation: r.incarnation, IDs: q.IDs,
	}
	reply, err := sweeping(ctx, s, func(ctx context.Context) (store.SweepReply, error) { return r.store.Sweep(ctx, c) })
	if err != nil {
		return false, err
	}
	if reply.HeldSince != 0 && r.heldSince.Swap(reply.HeldSince) != reply.HeldSince {
		r.bus.publish(Event{Type: EventSweepHeld, Count: reply.Held})
	}
	removed := 0
	for i, verdict := range reply.Verdicts {
		if kind, changed := memberEvents[verdict]; changed {
			r.bus.publish(Event{Type: kind, Subject: q.IDs[i]})
		}
		if verdict == store.SweepDown {
			removed++
		}
		if memberEvents[verdict] != "" {
			r.counted.Store(false)
		}
	}
	return s.sweep.Judged(s.now(), q, removed), nil
}

// scan reads one page of the records that may be adopted.
func (s *sweeper) scan(ctx context.Context, q membership.Question) error {
	page, err := sweeping(ctx, s, func(ctx context.Context) (store.ScanReply, error) { return s.r.store.Scan(ctx, q.Cursor, true) })
	if err != nil {
		return err
	}
	ids := make([]string, len(page.Entries))
	for i, entry := range page.Entries {
		ids[i] = entry.ID
	}
	s.sweep.Scanned(q, ids, page.Next)
	return nil
}

// adopt takes up the records that other programs wrote, and reports the new ones.
func (s *sweeper) adopt(ctx context.Context, q membership.Question) error {
	r := s.r
	foreign, err := sweeping(ctx, s, func(ctx context.Context) ([]string, error) { return r.store.Adopt(ctx, r.incarnation, q.IDs) })
	if err != nil {
		return err
	}
	for _, id := range foreign {
		r.counted.Store(false)
		r.bus.publish(Event{Type: EventInstanceJoined, Subject: id})
	}
	s.sweep.Adopted(q)
	return nil
}

// sweeping makes one call and waits for it, but not past the end of the term: it changes nothing
// that another leader's would not.
func sweeping[T any](ctx context.Context, s *sweeper, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := within(ctx, registryBound)
	defer cancel()
	return bounded(ctx, &s.r.sweeping, call)
}
