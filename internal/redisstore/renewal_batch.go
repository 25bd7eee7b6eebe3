package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/store"
)

const (
	maxPipelined     = 200                    // renewals in one pipeline
	maxPipelines     = 4                      // calls at a time, pipelines or single renewals, as long as they do not hang
	pipelinePatience = 100 * time.Millisecond // a renewal waits no longer for one of them to come back
)

// renewals lets renewals of one process travel together. A roll-call, or a connection that stands
// again, makes every leader of the process renew at once: what comes while maxPipelines calls are
// on their way waits for one of them to return, and goes in one pipeline. A renewal that comes
// alone goes alone and at once. It is safe for concurrent use.
type renewals struct {
	slots chan struct{} // taken by calls

	mu    sync.Mutex
	queue []*renewal
}

// renewal is one that waits, or travels with others.
type renewal struct {
	ctx    context.Context //nolint:containedctx // of the call
	script *script
	cmd    *redis.StringCmd
	key    string
	taken  bool          // out of the queue; guarded by renewals.mu
	done   chan struct{} // closed when cmd has its answer
}

func newRenewals() *renewals { return &renewals{slots: make(chan struct{}, maxPipelines)} }

// text is Store.text for a script that renews the lease key. If another call sends it, it
// returns when ctx is done at the latest.
func (q *renewals) text(ctx context.Context, s *Store, sc *script, key string, args []any) (string, error) {
	if !s.pipelines() {
		return s.text(ctx, sc, args)
	}
	select {
	case q.slots <- struct{}{}:
		if q.empty() {
			defer q.free()
			return s.text(ctx, sc, args)
		}
		q.free() // those that wait go first
	default:
	}
	own := &renewal{ctx: ctx, script: sc, cmd: redis.NewStringCmd(ctx, args...), key: key, done: make(chan struct{})}
	q.mu.Lock()
	q.queue = append(q.queue, own)
	q.mu.Unlock()
	if err := q.travel(ctx, s, own); err != nil {
		return "", fmt.Errorf("%w: %s: %w", store.ErrUnreachable, sc.name, err)
	}
	_, clustered := s.rdb.(*redis.ClusterClient)
	switch err := own.cmd.Err(); {
	case err == nil:
		return own.cmd.Val(), nil
	case clustered || redis.HasErrorPrefix(err, "NOSCRIPT"): // a slot that has moved is followed one by one
		return s.text(ctx, sc, args)
	default:
		return "", s.explain(sc.name, err)
	}
}

// travel waits until own has its answer, and sends what waits, own or not, if a slot is free or
// those who have one hang.
func (q *renewals) travel(ctx context.Context, s *Store, own *renewal) error {
	patience := time.NewTimer(pipelinePatience)
	defer patience.Stop()
	slots, hang := q.slots, patience.C
	for {
		select {
		case <-own.done:
			return nil
		case <-ctx.Done():
			q.leave(own)
			return context.Cause(ctx)
		case slots <- struct{}{}:
			q.send(s, q.next())
			q.free()
		case <-hang:
			q.send(s, q.next())
			patience.Reset(pipelinePatience)
		}
		if q.isTaken(own) { // somebody sends it, or did: wait for the answer alone
			slots, hang = nil, nil
		}
	}
}

func (q *renewals) free() { <-q.slots }

func (q *renewals) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue) == 0
}

func (q *renewals) isTaken(r *renewal) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return r.taken
}

// leave takes a renewal that nobody waits for any more out of the queue.
func (q *renewals) leave(r *renewal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.queue {
		if other == r {
			q.queue = append(q.queue[:i:i], q.queue[i+1:]...)
			return
		}
	}
}

// next takes the next pipeline out of the queue. In a cluster the keys of one share a hash tag, and
// with it a slot.
func (q *renewals) next() (batch []*renewal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var kept []*renewal
	for _, r := range q.queue {
		if len(batch) < maxPipelined && (len(batch) == 0 || store.TagPattern.FindString(r.key) == store.TagPattern.FindString(batch[0].key)) {
			r.taken = true
			batch = append(batch, r)
		} else {
			kept = append(kept, r)
		}
	}
	q.queue = kept
	return batch
}

// send sends a pipeline and hands each its answer. Its bound is the latest of all: none is cut
// short by another.
func (q *renewals) send(s *Store, batch []*renewal) {
	if len(batch) == 0 {
		return
	}
	ctx, bounded := context.WithoutCancel(batch[0].ctx), true
	var latest time.Time
	cmds := make([]redis.Cmder, len(batch))
	for i, r := range batch {
		cmds[i] = r.cmd
		deadline, ok := r.ctx.Deadline()
		bounded = bounded && ok
		if deadline.After(latest) {
			latest = deadline
		}
	}
	if bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, latest)
		defer cancel()
	}
	s.pipeline(ctx, batch[0].key, cmds)
	q.load(ctx, s, batch)
	for _, r := range batch {
		close(r.done)
	}
}

// load fixes a pipeline that came to a server which does not know the script: one goes with its
// source, the rest together again.
func (q *renewals) load(ctx context.Context, s *Store, batch []*renewal) {
	loaded := false
	var again []redis.Cmder
	for _, r := range batch {
		switch args := r.cmd.Args(); {
		case !redis.HasErrorPrefix(r.cmd.Err(), "NOSCRIPT"):
		case !loaded:
			loaded = true
			r.cmd = redis.NewStringCmd(ctx, r.script.whole(args)...)
			r.cmd.SetErr(s.process(ctx, r.cmd))
		default:
			r.cmd = redis.NewStringCmd(ctx, args...)
			again = append(again, r.cmd)
		}
	}
	if len(again) > 0 {
		s.pipeline(ctx, batch[0].key, again)
	}
}
