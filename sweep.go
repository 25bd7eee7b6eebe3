package tenure

import (
	"context"
	"fmt"
	"time"
)

// A sweep marks who has been silent for DriftedAfter and removes who has been for DownAfter. Redis's clock decides, and the script
// that removes looks again (P9). Three rules keep it from removing crowds that are silent because they cannot beat:
//
//   - Grace. Whoever begins to sweep has not seen whether anybody could beat before: after an outage of Redis, whose end always
//     begins a new term where it was longer than a lease, all are silent. Nobody is removed before the sweeper has watched for
//     DriftedAfter, two beats or more. It begins anew where Redis's clock jumped, or no sweep succeeded for DriftedAfter.
//   - Cap. One pass removes at most max(10, a quarter) of the instances, longest silent first.
//   - Hold. Where more are down, the rest is held for another DownAfter. The hold is written down in Redis before anybody is removed,
//     and expires there, so that the next leader keeps to it. It names a score: who falls silent later is not held. Where Redis
//     loses it, its loss makes a new term, and grace and cap apply again.
//
// All of it sees only instances that are silent for longer than DownAfter.
const (
	sweepPages = 100 // of sweepBatch instances in one pass; the next one goes on from there
	removeMin  = 10  // instances that one pass may remove however few there are
	removePart = 4   // of the instances one pass may remove one in so many
)

// sweeper sweeps during one term. Its fields belong to the loop.
type sweeper struct {
	r    *Registry
	term Term

	seen     bool
	now      int64         // Redis's clock at the last pass that succeeded
	sent     time.Duration // before it was asked, by the monotonic clock
	watching time.Duration // since then without a gap
	gap      bool          // not every silent instance was looked at since

	from string // where the next pass goes on, "" at the beginning
	skip int64

	stranger int  // records more than beats, when all records that can be adopted were
	scanned  bool // stranger is known
	scanAt   time.Duration

	trouble  trouble
	failures int
}

// lead sweeps until ctx is done. It is leader work.
func (r *Registry) lead(ctx context.Context, term Term) error {
	if r.opts.SweepInterval < 0 {
		<-ctx.Done()
		return nil
	}
	s := &sweeper{r: r, term: term}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return nil
		}
		timer.Reset(s.sweep(ctx))
	}
}

// sweep makes one pass and says when to make the next.
func (s *sweeper) sweep(ctx context.Context) (pause time.Duration) {
	interval := s.r.opts.SweepInterval
	err := s.pass(ctx)
	switch {
	case err == nil:
		s.trouble.over()
		s.failures = 0
		return interval
	case ctx.Err() != nil: // the term is over
		return interval
	}
	s.trouble.report(s.r.bus, EventSweepFailed, err)
	s.failures++
	return min(interval/10<<min(s.failures-1, 10), interval/2)
}

func (s *sweeper) pass(ctx context.Context) error {
	sent := readClock().Mono
	first, err := s.look(ctx, lookCall{})
	if err != nil {
		return err
	}
	s.watch(readClock().Mono, first.now)
	removable, err := s.removable(ctx, first)
	if err != nil {
		return err
	}
	if err := s.judge(ctx, first, removable); err != nil {
		return err
	}
	s.seen, s.now, s.sent = true, first.now, sent
	return s.adopt(ctx, first)
}

// watch keeps account of how long this sweeper has watched without a gap.
func (s *sweeper) watch(received time.Duration, now int64) {
	if s.seen {
		gap := received - s.sent
		step := milliseconds(now-s.now) - gap
		if gap < s.r.opts.DriftedAfter && step < gap/100+clockStep {
			return
		}
	}
	s.watching, s.gap = received, true
	s.from = ""
}

// clockStep is by how much Redis's clock may be ahead of what it should read before that is a step.
const clockStep = time.Second

// removable says how many instances this pass may remove. It holds the rest first.
func (s *sweeper) removable(ctx context.Context, first lookReply) (int, error) {
	r := s.r
	if s.gap || readClock().Mono-s.watching < r.opts.DriftedAfter || first.down == 0 {
		return 0, nil
	}
	most := max(removeMin, first.beats/removePart)
	if first.down <= most {
		return first.down, nil
	}
	if !s.term.Valid() {
		return 0, errTermOver
	}
	err := s.do(ctx, func(ctx context.Context) error {
		return r.store.holdInstances(ctx, first.now-r.opts.DownAfter.Milliseconds(), r.opts.DownAfter)
	})
	if err != nil {
		return 0, err
	}
	r.bus.publish(Event{Type: EventSweepHeld, Count: first.down - most})
	return most, nil
}

var errTermOver = fmt.Errorf("%w: the term is over", ErrNotLeader)

// judge goes through the silent ones, page by page.
func (s *sweeper) judge(ctx context.Context, first lookReply, removable int) error {
	r, page := s.r, first
	unwatched := time.Duration(0)
	if s.gap { // a heartbeat key that is gone tells no more: a foreign instance is not taken for silent any longer than that
		unwatched = r.opts.BeatTTL
	}
	if s.from != "" && removable == 0 { // the last pass did not come to the end: the longest silent were seen then
		var err error
		if page, err = s.look(ctx, lookCall{from: s.from, skip: s.skip}); err != nil {
			return err
		}
	}
	for range sweepPages {
		if len(page.ids) > 0 {
			if !s.term.Valid() {
				return errTermOver
			}
			c := sweepCall{
				drifted: r.opts.DriftedAfter, down: r.opts.DownAfter, removable: removable, held: first.held, unwatched: unwatched,
				incarnation: r.incarnation, ids: page.ids,
			}
			var verdicts []string
			err := s.do(ctx, func(ctx context.Context) (err error) {
				verdicts, err = r.store.sweepInstances(ctx, c)
				return err
			})
			if err != nil {
				return err
			}
			removable -= s.tell(page.ids, verdicts)
		}
		if s.from, s.skip = page.from, page.skip; page.from == "" {
			s.gap = false
			return nil
		}
		var err error
		if page, err = s.look(ctx, lookCall{from: page.from, skip: page.skip}); err != nil {
			return err
		}
	}
	return nil
}

// tell tells of what a sweep changed, and how many it removed.
func (s *sweeper) tell(ids, verdicts []string) (removed int) {
	for i, verdict := range verdicts {
		if kind, changed := membership[verdict]; changed {
			s.r.bus.publish(Event{Type: kind, Subject: ids[i]})
		}
		if verdict == sweepDown {
			removed++
		}
	}
	return removed
}

// adopt takes up the records that other programs wrote: all are read when the sweeper begins, when their number has changed
// against that of the beats, and each DownAfter.
func (s *sweeper) adopt(ctx context.Context, first lookReply) error {
	r := s.r
	if s.scanned && first.records-first.beats == s.stranger && readClock().Mono-s.scanAt < r.opts.DownAfter {
		return nil
	}
	s.scanned = false
	cursor := "0"
	for range maxInstances / scanCount {
		var page scanReply
		err := s.do(ctx, func(ctx context.Context) (err error) {
			page, err = r.store.scanInstances(ctx, cursor, true)
			return err
		})
		if err != nil {
			return err
		}
		for start := 0; start < len(page.entries); start += scanCount {
			var ids, foreign []string
			for _, entry := range page.entries[start:min(start+scanCount, len(page.entries))] {
				ids = append(ids, entry.id)
			}
			err := s.do(ctx, func(ctx context.Context) (err error) {
				foreign, err = r.store.adoptInstances(ctx, r.incarnation, ids)
				return err
			})
			if err != nil {
				return err
			}
			for _, id := range foreign {
				r.bus.publish(Event{Type: EventJoined, Subject: id})
			}
		}
		if cursor = page.next; cursor == "0" {
			break
		}
	}
	after, err := s.look(ctx, lookCall{})
	if err != nil {
		return err
	}
	s.scanned, s.scanAt, s.stranger = true, readClock().Mono, after.records-after.beats
	return nil
}

// look lists who has been silent for half of DriftedAfter: a foreign instance has to be looked at before it seems drifted.
func (s *sweeper) look(ctx context.Context, c lookCall) (lookReply, error) {
	c.silence, c.down = s.r.opts.DriftedAfter/2, s.r.opts.DownAfter
	var reply lookReply
	err := s.do(ctx, func(ctx context.Context) (err error) {
		reply, err = s.r.store.lookAtBeats(ctx, c)
		return err
	})
	if err != nil { // the call may still be writing to reply
		return lookReply{}, err
	}
	return reply, nil
}

// do makes one call and waits for it, but not past the end of the term: it changes nothing that another leader's would not.
func (s *sweeper) do(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, registryBound, fmt.Errorf("no answer within %v", registryBound))
	defer cancel()
	return s.r.do(ctx, &s.r.sweeping, call)
}
