package redisstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/store"
)

const (
	maxPipelined = 200 // calls in one pipeline

	// Batches of one kind of call that are on their way at a time, as long as they do not hang.
	maxPipelines = 4 // renewals
	maxTaskSends = 1 // calls of tasks

	batchPatience = 100 * time.Millisecond // a call waits no longer for a batch to come back
)

// batches lets calls of one kind travel together. A call that comes alone goes alone and at once.
// What comes while as many batches as may be are on their way waits for one of them to return, and
// goes in one pipeline then. The first of those that wait sends it, so that nothing is on its way
// of which no caller knows. It is safe for concurrent use.
type batches struct {
	atATime int

	mu        sync.Mutex
	sending   int        // batches on their way, or about to be sent
	queue     []*request // the longest first
	appointed time.Time  // when one of them was last told to send
	watched   bool       // a timer looks whether they wait for too long
}

// request is a call of a script that waits, or travels with others.
type request struct {
	store  *Store
	ctx    context.Context //nolint:containedctx // of the call
	script *script
	key    string // one of its keys: see Store.pipelined
	args   []any
	newCmd newCmd
	roles  int       // a call of renew_all: how many it renews
	ask    any       // a call of a task: what its answer must be about, see taskReply
	with   []request // travel with it in any case: the same context, and keys of one hash tag

	cmd   redis.Cmder // the one that was sent last
	since time.Time   // in the queue
	leads bool        // it is to send the next batch; guarded by batches.mu
	woken chan bool   // has one value: whether it is to send, else cmd has its answer
}

func newBatches(atATime int) *batches { return &batches{atATime: atATime} }

// do makes a call and returns the command that has its answer. If another call sends it, it returns
// when the context of the call is done at the latest.
func (b *batches) do(s *Store, call request) (_ redis.Cmder, err error) {
	call.store = s
	ended := s.calls.begin(call.script)
	err = store.ErrCallEnded
	defer func() { ended(err) }()
	if !s.Pipelines() {
		return call.alone()
	}
	if !b.begin() {
		return b.wait(call)
	}
	defer b.next()
	return call.alone()
}

// doAll makes calls that travel together. It hands each its command or its error to take, and the
// places of all that were taken to done, and returns when that was done with all. Both are called
// from any goroutine.
func (b *batches) doAll(calls []request, take func(i int, cmd redis.Cmder, err error), done func(taken []int)) {
	ended := make([]func(error), len(calls))
	for i := range calls {
		ended[i] = calls[i].store.calls.begin(calls[i].script)
	}
	came := false
	defer func() {
		for i := 0; i < len(ended) && !came; i++ { // the client has ended this goroutine
			ended[i](store.ErrCallEnded)
		}
	}()
	first := &calls[0]
	first.with = calls[1:]
	var failed error
	if b.enter(first) {
		b.send([]*request{first})
	} else {
		failed = b.await(first)
	}
	came = true
	answer := func(i int) {
		cmd, err := redis.Cmder(nil), failed
		defer func() { ended[i](err) }()
		if err == nil {
			err = store.ErrCallEnded // stands if the client ends this goroutine
			cmd, err = calls[i].answer()
		}
		take(i, cmd, err)
	}
	taken := make([]int, 0, len(calls))
	var again sync.WaitGroup
	for i := range calls {
		if failed == nil && calls[i].again() {
			again.Go(func() { // ends with its call; awaited below
				answer(i)
				done([]int{i})
			})
		} else {
			answer(i)
			taken = append(taken, i)
		}
	}
	done(taken)
	again.Wait()
}

// wait is do for a call that may have to wait. Only such a one is allocated.
func (b *batches) wait(call request) (redis.Cmder, error) {
	r := &call
	if b.enter(r) {
		defer b.next()
		return r.alone()
	}
	if err := b.await(r); err != nil {
		return nil, err
	}
	return r.answer()
}

// await waits until a request of the queue was sent, or sends it.
func (b *batches) await(r *request) error {
	select {
	case sends := <-r.woken:
		if sends {
			b.send(b.take(r))
		}
		return nil
	case <-r.ctx.Done():
		b.leave(r)
		return fmt.Errorf("%w: %s: %w", store.ErrUnreachable, r.script.name, context.Cause(r.ctx))
	}
}

// again reports whether a call that was sent in a pipeline has to be made once more, by itself.
func (r *request) again() bool {
	_, clustered := r.store.rdb.(*redis.ClusterClient)
	err := r.cmd.Err()
	return err != nil && (clustered || unknownScript(err)) // a slot that has moved is followed one by one
}

// answer is what a call has got that was sent in a pipeline.
func (r *request) answer() (redis.Cmder, error) {
	if r.again() {
		return r.alone()
	}
	if err := r.cmd.Err(); err != nil {
		return nil, r.store.explain(r.script.name, err)
	}
	return r.cmd, nil
}

// alone makes the call by itself.
func (r *request) alone() (redis.Cmder, error) {
	return r.store.alone(r.ctx, r.script, r.args, r.newCmd)
}

// begin reports whether a call may go at once, as a batch of its own.
func (b *batches) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.goes()
}

// goes is begin. It wants the lock.
func (b *batches) goes() bool {
	goes := b.sending < b.atATime && len(b.queue) == 0
	if goes {
		b.sending++
	}
	return goes
}

// enter is begin for a call that is in the queue if it may not.
func (b *batches) enter(r *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.goes() {
		return true
	}
	r.since, r.woken = time.Now(), make(chan bool, 1)
	b.queue = append(b.queue, r)
	b.watch()
	return false
}

// next lets the first that waits send the next batch, now that one has returned.
func (b *batches) next() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sending--
	if b.sending < b.atATime {
		b.appoint()
	}
}

// appoint has the first that waits send the next batch, if any does. It wants the lock.
func (b *batches) appoint() {
	if first := b.first(); first != nil {
		b.sending++
		b.appointed, first.leads = time.Now(), true
		first.woken <- true
	}
}

// first is the first that waits and is not about to send. It wants the lock.
func (b *batches) first() *request {
	if i := slices.IndexFunc(b.queue, func(r *request) bool { return !r.leads }); i >= 0 {
		return b.queue[i]
	}
	return nil
}

// watch sends a further batch when the first has waited for batchPatience and no batch was sent
// meanwhile: those on their way hang. It wants the lock.
func (b *batches) watch() {
	first := b.first()
	if first == nil || b.watched {
		return
	}
	b.watched = true
	time.AfterFunc(b.patience(first), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.watched = false
		if first := b.first(); first != nil && b.patience(first) <= 0 {
			b.appoint()
		}
		b.watch()
	})
}

// patience is for how long yet the first that waits may wait for a batch to come back. It wants the
// lock.
func (b *batches) patience(first *request) time.Duration {
	since := first.since
	if b.appointed.After(since) {
		since = b.appointed
	}
	return time.Until(since.Add(batchPatience))
}

// leave takes a call that nobody waits for any more out of the queue. If it was to send a batch the
// next one does.
func (b *batches) leave(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, r)
	if i < 0 {
		return // it is on its way
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	if r.leads {
		b.sending--
		b.appoint()
	}
}

// take takes the next batch out of the queue: the call that sends it, and what waits with it. In a
// cluster the keys of one share a hash tag, and with it a slot.
func (b *batches) take(sender *request) []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	batch, size, tag := []*request{sender}, sender.size(), sender.tag()
	b.queue = slices.DeleteFunc(b.queue, func(r *request) bool {
		if r == sender {
			return true
		}
		if r.leads || size+r.size() > maxPipelined || r.tag() != tag {
			return false
		}
		size += r.size()
		batch = append(batch, r)
		return true
	})
	return batch
}

// size is how many calls a request is. One of renew_all is as many as it renews roles.
func (r *request) size() int {
	n := max(r.roles, 1)
	for i := range r.with {
		n += r.with[i].size()
	}
	return n
}

// tag is what the keys of one pipeline must have in common.
func (r *request) tag() string { return r.store.tag(r.key) }

// tag is what the keys of one pipeline must have in common.
func (s *Store) tag(key string) string {
	if !s.spread {
		return ""
	}
	return store.TagPattern.FindString(key)
}

// send sends a batch, the sender first, hands each its answer, and lets the next batch go. Its
// bound is the latest of all, and its client that of who has the latest: none is cut short by
// another.
func (b *batches) send(batch []*request) {
	var calls []*request
	for _, r := range batch {
		calls = append(calls, r)
		for i := range r.with {
			calls = append(calls, &r.with[i])
		}
	}
	s, ctx, cancel := latest(batch)
	defer cancel()
	cmds := make([]redis.Cmder, len(calls))
	flying := cmds
	defer func() {
		for _, cmd := range flying { // the client has ended this goroutine
			cmd.SetErr(store.ErrCallEnded)
		}
		for _, r := range batch[1:] {
			r.woken <- false
		}
		b.next()
	}()
	for i, r := range calls {
		r.cmd = r.newCmd(ctx, r.args)
		cmds[i] = r.cmd
	}
	s.pipeline(ctx, calls[0].key, cmds)
	flying = unloaded(ctx, calls)
	if len(flying) > 0 {
		s.pipeline(ctx, calls[0].key, flying)
	}
	flying = nil
}

// latest is the context of a batch, which ends when that of each call has, and the store of the
// call that has the most time.
func latest(batch []*request) (*Store, context.Context, context.CancelFunc) {
	ctx := context.WithoutCancel(batch[0].ctx)
	var last time.Time
	var s *Store
	for _, r := range batch {
		deadline, bounded := r.ctx.Deadline()
		if !bounded {
			return r.store, ctx, func() {}
		}
		if deadline.After(last) {
			last, s = deadline, r.store
		}
	}
	ctx, cancel := context.WithDeadline(ctx, last)
	return s, ctx, cancel
}

// unloaded are the commands that a batch has to be sent with once more, since it came to a server
// which does not know the scripts: of each script one call goes with its source.
func unloaded(ctx context.Context, batch []*request) (cmds []redis.Cmder) {
	var loaded []*script
	for _, r := range batch {
		if !unknownScript(r.cmd.Err()) {
			continue
		}
		args := r.args
		if !slices.Contains(loaded, r.script) {
			loaded = append(loaded, r.script)
			args = r.script.whole(args)
		}
		r.cmd = r.newCmd(ctx, args)
		cmds = append(cmds, r.cmd)
	}
	return cmds
}
