package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// sweeper drives membership.Sweep during one term. Its fields belong to the loop.
type sweeper struct {
	r      *Registry
	term   Term
	sweep  *membership.Sweep
	now    func() time.Duration // monotonic
	faults reportOnce
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
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		for ctx.Err() == nil {
			q, due := s.sweep.Next(s.now())
			if !due {
				break
			}
			switch done, err := s.ask(ctx, q); {
			case err != nil && ctx.Err() == nil: // else the term is over
				s.faults.report(r.bus, EventSweepFailed, err)
			case done:
				s.faults.over()
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		timer.Reset(s.sweep.Wait(s.now()))
	}
}

// beat is the time within which a living instance sends a heartbeat. A process that sends none
// itself goes by the least DriftedAfter that it would need.
func (o RegistryOptions) beat() time.Duration {
	if o.HeartbeatInterval > 0 {
		return o.HeartbeatInterval
	}
	return o.DriftedAfter / 2
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
