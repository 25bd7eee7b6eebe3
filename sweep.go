package tenure

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/internal/lease"

	"github.com/tenure-go/tenure/internal/store"
)

// A sweep marks who has been silent for DriftedAfter and removes who has been for DownAfter. Redis's
// clock decides, and the script that removes looks again (P9). Three rules keep it from marking or
// removing crowds that are silent because they cannot beat:
//
//   - Grace. Whoever begins to sweep has not seen whether anybody could beat before: after an outage
//     of Redis, whose end begins a new term if it was longer than a lease, all are silent. Nobody is
//     marked before the sweeper has watched for two beats, and nobody is removed before it has watched
//     for DriftedAfter. The watch begins anew if Redis's clock jumped, or if the last look that
//     succeeded is further back than a SweepInterval and a beat.
//   - Cap. Of n instances at most max(1, n/4) are removed within two beats, longest silent first. Redis
//     keeps the count (<ns>:beats:removed), so that sweeps may be as frequent as they like, and so that
//     it holds across leaders and repeated requests.
//   - Hold. If somebody is down, and more are silent for DriftedAfter than may still be removed, the
//     rest is held: nobody else is removed for another DownAfter (<ns>:beats:hold). DriftedAfter, since
//     the last beats of a crowd that died at once lie up to a beat apart: those who are about to be
//     down are of the crowd. When the hold ends the same rules apply again, so that of a crowd that
//     stays silent at least one instance, and as a rule a quarter of all, goes each DownAfter.
//
// The last two are rules of the script sweep, which sees and decides in one step.
const sweepPages = 100 // of store.SweepBatch instances in one pass; the next one goes on from there

// sweeper sweeps during one term. Its fields belong to the loop.
type sweeper struct {
	r    *Registry
	term Term

	seen     bool
	now      int64         // Redis's clock at the last look that succeeded
	sent     time.Duration // before it was asked, by the monotonic clock
	watching time.Duration // since then without a gap
	gap      bool          // not every silent instance was looked at since

	from string // where the next pass goes on, "" at the beginning
	skip int64

	stranger int  // records more than beats, when all records that can be adopted were
	scanned  bool // stranger is known
	scanAt   time.Duration

	trouble  reportOnce
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
	return lease.Backoff(interval/10, s.failures, interval/2)
}

func (s *sweeper) pass(ctx context.Context) error {
	first, err := s.look(ctx, store.Look{})
	if err != nil {
		return err
	}
	if err := s.judge(ctx, first); err != nil {
		return err
	}
	return s.adopt(ctx, first)
}

// watch keeps account of how long this sweeper has watched without a gap. It hears of every look.
func (s *sweeper) watch(sent, received time.Duration, now int64) {
	unseen := received - s.sent
	step := store.Milliseconds(now-s.now) - unseen
	if !s.seen || unseen >= s.r.opts.SweepInterval+s.r.opts.beat() || step >= unseen/100+clockStep {
		s.watching, s.gap = received, true
		s.from = ""
	}
	s.seen, s.now, s.sent = true, now, sent
}

// clockStep is by how much Redis's clock may be ahead of what it should read before that is a step.
const clockStep = time.Second

// beat is the time within which a living instance beats. A process that does not beat itself goes by
// the least DriftedAfter that it would need.
func (o RegistryOptions) beat() time.Duration {
	if o.BeatInterval > 0 {
		return o.BeatInterval
	}
	return o.DriftedAfter / 2
}

var errTermOver = fmt.Errorf("%w: the term is over", ErrNotLeader)

// judge goes through the silent ones, page by page. The longest silent always come first: the dead are
// among them. If the last pass did not come to the end, it then goes on from there.
func (s *sweeper) judge(ctx context.Context, page store.LookReply) error {
	watching, resume := s.watching, store.Look{From: s.from, Skip: s.skip}
	for range sweepPages {
		removed, err := s.rule(ctx, page.IDs)
		if err != nil {
			return err
		}
		next := store.Look{From: page.From, Skip: page.Skip}
		if resume.From != "" && removed == 0 {
			next = resume
		}
		resume = store.Look{}
		if s.from, s.skip = next.From, next.Skip; next.From == "" {
			s.gap = false
			return nil
		}
		if page, err = s.look(ctx, next); err != nil {
			return err
		}
		if s.watching != watching { // a gap: the pages before it are to be judged again
			return nil
		}
	}
	return nil
}

// rule marks, or removes, the silent ones among the given instances, and returns how many it removed.
func (s *sweeper) rule(ctx context.Context, ids []string) (removed int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	if !s.term.Valid() {
		return 0, errTermOver
	}
	r := s.r
	watched := readClock().Mono - s.watching
	c := store.Sweep{
		Drifted: r.opts.DriftedAfter, Down: r.opts.DownAfter, Window: 2 * r.opts.beat(),
		Mark: watched >= 2*r.opts.beat(), Remove: watched >= r.opts.DriftedAfter && !s.gap,
		Incarnation: r.incarnation, IDs: ids,
	}
	if s.gap { // a heartbeat key that is gone says no more: a foreign instance is not taken for silent any longer than that
		c.Unwatched = r.opts.BeatTTL
	}
	reply, err := sweeping(ctx, s, func(ctx context.Context) (store.SweepReply, error) { return r.store.Sweep(ctx, c) })
	if err != nil {
		return 0, err
	}
	if reply.HeldSince != 0 && r.heldSince.Swap(reply.HeldSince) != reply.HeldSince {
		r.bus.publish(Event{Type: EventSweepHeld, Count: reply.Held})
	}
	return s.tell(ids, reply.Verdicts), nil
}

// tell reports what a sweep changed, and returns how many it removed.
func (s *sweeper) tell(ids, verdicts []string) (removed int) {
	for i, verdict := range verdicts {
		if kind, changed := membership[verdict]; changed {
			s.r.bus.publish(Event{Type: kind, Subject: ids[i]})
		}
		if verdict == store.SweepDown {
			removed++
		}
	}
	return removed
}

// adopt takes up the records that other programs wrote: all are read when the sweeper begins, when their number has changed
// against that of the beats, and each DownAfter.
func (s *sweeper) adopt(ctx context.Context, first store.LookReply) error {
	r := s.r
	if s.scanned && first.Records-first.Beats == s.stranger && readClock().Mono-s.scanAt < r.opts.DownAfter {
		return nil
	}
	s.scanned = false
	cursor := "0"
	for range maxInstances / store.ScanCount {
		page, err := sweeping(ctx, s, func(ctx context.Context) (store.ScanReply, error) { return r.store.Scan(ctx, cursor, true) })
		if err != nil {
			return err
		}
		for start := 0; start < len(page.Entries); start += store.ScanCount {
			var ids []string
			for _, entry := range page.Entries[start:min(start+store.ScanCount, len(page.Entries))] {
				ids = append(ids, entry.ID)
			}
			foreign, err := sweeping(ctx, s, func(ctx context.Context) ([]string, error) { return r.store.Adopt(ctx, r.incarnation, ids) })
			if err != nil {
				return err
			}
			for _, id := range foreign {
				r.bus.publish(Event{Type: EventJoined, Subject: id})
			}
		}
		if cursor = page.Next; cursor == "0" {
			break
		}
	}
	after, err := s.look(ctx, store.Look{})
	if err != nil {
		return err
	}
	s.scanned, s.scanAt, s.stranger = true, readClock().Mono, after.Records-after.Beats
	return nil
}

// look lists who has been silent for half of DriftedAfter: a foreign instance has to be looked at before it seems drifted.
func (s *sweeper) look(ctx context.Context, c store.Look) (store.LookReply, error) {
	c.Silence = s.r.opts.DriftedAfter / 2
	sent := readClock().Mono
	reply, err := sweeping(ctx, s, func(ctx context.Context) (store.LookReply, error) { return s.r.store.Look(ctx, c) })
	if err != nil {
		return store.LookReply{}, err
	}
	s.watch(sent, readClock().Mono, reply.Now)
	return reply, nil
}

// sweeping makes one call and waits for it, but not past the end of the term: it changes nothing that another leader's would
// not.
func sweeping[T any](ctx context.Context, s *sweeper, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := within(ctx, registryBound)
	defer cancel()
	return ask(ctx, &s.r.sweeping, call)
}
