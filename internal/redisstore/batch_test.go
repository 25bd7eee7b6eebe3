package redisstore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// sends hears of what a client sends, a batch at a time, and may hold it up.
type sends struct {
	mu    sync.Mutex
	sizes []int         // calls, one of renew_all being as many as it renews roles
	joint []int         // roles of each call of renew_all
	hold  func(nth int) // nil: nothing is held up
}

func (h *sends) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *sends) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.sent(cmd)
		}
		return next(ctx, cmd)
	}
}

func (h *sends) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			h.sent(cmds...)
		}
		return next(ctx, cmds)
	}
}

func (h *sends) all() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.sizes)
}

// take is all, and forgets it.
func (h *sends) take() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	sizes := h.sizes
	h.sizes = nil
	return sizes
}

func (h *sends) sent(cmds ...redis.Cmder) {
	h.mu.Lock()
	size := 0
	for _, cmd := range cmds {
		args := cmd.Args()
		if args[1] != contract.renewAll.digest && args[1] != contract.renewAll.source {
			size++
			continue
		}
		keys, _ := strconv.Atoi(args[2].(string))
		size += keys / 3
		h.joint = append(h.joint, keys/3)
	}
	h.sizes = append(h.sizes, size)
	nth, hold := len(h.sizes), h.hold
	h.mu.Unlock()
	if hold != nil {
		hold(nth)
	}
}

// batchWorld is a client on a network in virtual time that has run every script that is needed.
func batchWorld(t *testing.T, act func(t *testing.T, db *Store, sent *sends)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Options{Seed: 1})
		defer network.Close()
		network.NewServer(simnet.Addr, simnet.ServerOptions{})
		client, sent := network.Client("a", nil), new(sends)
		client.AddHook(sent)
		db := openStore(client, "ns")
		_, err := db.Open(t.Context(), "first", store.TaskOpen{Token: 7})
		require.NoError(t, err)
		sent.sizes = nil
		act(t, db, sent)
	})
}

// TestBatchWhoseGoroutineEnds: a hook that calls runtime.Goexit costs the calls that it hits. Those
// that travelled with them have an error, and nobody waits for what does not come back.
func TestBatchWhoseGoroutineEnds(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		began := time.Now()
		sent.hold = func(nth int) {
			if nth <= 2 {
				time.Sleep(batchPatience / 2) // the others wait for it, and travel together then
				runtime.Goexit()
			}
		}
		const many = 9
		errs := make([]error, many)
		var all sync.WaitGroup
		for i := range errs {
			errs[i] = store.ErrCallEnded // stands if it ends
			all.Go(func() {
				_, errs[i] = db.Open(t.Context(), fmt.Sprint("t", i), store.TaskOpen{Token: 1})
			})
			synctest.Wait() // the first is on its way, and takes none along
		}
		all.Wait()
		require.Equal(t, []int{1, many - 1}, sent.take())
		require.Equal(t, batchPatience, time.Since(began))
		for i, err := range errs {
			require.ErrorIs(t, err, store.ErrCallEnded, i)
		}
		sent.hold = nil
		_, err := db.Open(t.Context(), "next", store.TaskOpen{Token: 1})
		require.NoError(t, err)
		require.Less(t, time.Since(began), batchPatience+batchPatience/2, "it waits for nobody")

		// The server does not know the script of one of them, and it is sent once more. The other
		// has its answer already.
		sent.take()
		sent.hold = func(nth int) {
			switch nth {
			case 1:
				time.Sleep(batchPatience / 2)
			case 3:
				runtime.Goexit()
			}
		}
		all.Go(func() { _, _ = db.Open(t.Context(), "t0", store.TaskOpen{Token: 2}) })
		time.Sleep(time.Millisecond)
		all.Go(func() { _, _ = db.Record(t.Context(), "t1") }) // sends for both, and ends
		time.Sleep(time.Millisecond)
		all.Go(func() { _, err = db.Open(t.Context(), "t2", store.TaskOpen{Token: 2}) })
		all.Wait()
		require.Equal(t, []int{1, 2, 1}, sent.take())
		require.NoError(t, err)
	})
}

// TestCallsThatEndAreObserved: whoever counts the calls hears of those too that a hook has ended.
func TestCallsThatEndAreObserved(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		all := leading(t, db, 30)
		var observed []error
		db.OnCall(func(_ string, _ time.Duration, err error) { observed = append(observed, err) })
		sent.hold = func(int) { runtime.Goexit() }
		ended := make(chan struct{})
		go func() { // ends in the hook
			defer close(ended)
			store.SendAll(t.Context(), all, false, func([]int) {})
		}()
		<-ended
		require.Len(t, observed, 1)
		require.ErrorIs(t, observed[0], store.ErrCallEnded)
	})
}

// answers makes one call of each task at once, each with its own bound, and returns what came back.
func answers(db *Store, many int, bound time.Duration) func() []error {
	errs := make([]error, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), bound)
			defer cancel()
			name := fmt.Sprint("t", i)
			reply, err := db.Open(ctx, name, store.TaskOpen{Token: int64(i + 1)})
			if err == nil && reply.Record.Token != int64(i+1) {
				err = fmt.Errorf("task %d was answered %+v", i, reply)
			}
			errs[i] = err
		})
	}
	return func() []error { all.Wait(); return errs }
}

// TestAskAllAgain: the calls that are made once more, without the key that this client may not
// read, travel together too.
func TestAskAllAgain(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		ctx, other := t.Context(), db.keys.Lease("other")
		calls := make([]store.TaskCall, 40)
		calls[0] = store.TaskCall{Name: "first", Ask: store.TaskOpen{Token: 13}}
		for i := 1; i < len(calls); i++ {
			name := fmt.Sprint("t", i)
			_, err := db.Open(ctx, name, store.TaskOpen{Token: 3, Lease: other})
			require.NoError(t, err)
			calls[i] = store.TaskCall{Name: name, Ask: store.TaskOpen{Token: 13, Lease: db.keys.Lease(""), Other: other}}
		}
		db.rdb.AddHook(&gate{refuse: func(keys []string) error {
			if slices.Contains(keys, other) {
				return replyError("NOPERM No permissions to access a key")
			}
			return nil
		}})
		sent.take()
		answered := make(map[int]int)
		var mu sync.Mutex
		db.AskAll(ctx, calls, func(all []int) {
			mu.Lock()
			defer mu.Unlock()
			for _, i := range all {
				answered[i]++
			}
		})
		require.Len(t, answered, len(calls))
		for i := range calls {
			require.Equal(t, 1, answered[i])
			require.NoError(t, calls[i].Err)
			require.Equal(t, i > 0, calls[i].Reply.Verdict == store.TaskForeign)
		}
		require.LessOrEqual(t, len(sent.take()), 4)
	})
}

// What comes while a call of tasks is on its way goes with the next one, at most 200 at a time;
// each has its own answer.
func TestCallsOfTasksTravelTogether(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		first := answers(db, 1, time.Second)
		synctest.Wait()
		for i, err := range append(answers(db, 299, time.Second)(), first()...) {
			require.NoError(t, err, i)
		}
		require.Equal(t, []int{1, 200, 99}, sent.all())
	})
}

// TestAskAll: calls that are handed over together are one pipeline, and each has its own answer.
// One that is refused is refused alone; a record is opened without the key of another lease if that
// cannot be read.
func TestAskAll(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		ctx := t.Context()
		require.NoError(t, db.rdb.Set(ctx, db.keys.Task("text"), "a text", 0).Err())
		_, err := db.Open(ctx, "others", store.TaskOpen{Token: 3, Lease: db.keys.Lease("other")})
		require.NoError(t, err)
		db.rdb.AddHook(&gate{refuse: func(keys []string) error {
			if slices.Contains(keys, db.keys.Lease("other")) {
				return replyError("NOPERM No permissions to access a key")
			}
			return nil
		}})
		sent.take()
		calls := []store.TaskCall{
			{Name: "a", Ask: store.TaskOpen{Token: 11}},
			{Name: "text", Ask: store.TaskOpen{Token: 12}},
			{Name: "others", Ask: store.TaskOpen{Token: 13, Lease: db.keys.Lease(""), Other: db.keys.Lease("other")}},
			{Name: "b", Ask: store.TaskOpen{Token: 14}},
			{Name: "first", Ask: store.TaskRead{Triggers: true}},
			{Name: "first", Ask: store.TaskClaim{Token: 7, Run: "r", Kind: store.ClaimExtra, Expect: "0"}},
		}
		var order [][]int
		db.AskAll(ctx, calls, func(answered []int) { order = append(order, slices.Clone(answered)) })
		require.Equal(t, [][]int{{0, 1, 3, 4, 5}, {2}}, order)
		require.Equal(t, []int{6, 2, 1}, sent.take(), "with the scripts of the claim and of the reading")
		require.ErrorIs(t, calls[1].Err, store.ErrMisconfigured)
		for i, token := range map[int]int64{0: 11, 3: 14, 4: 7, 5: 7} {
			require.NoError(t, calls[i].Err)
			require.Equal(t, token, calls[i].Reply.Record.Token, i)
		}
		require.NoError(t, calls[2].Err)
		require.Equal(t, store.TaskForeign, calls[2].Reply.Verdict, "the record stays with the other role")
		require.Equal(t, store.TaskClaimed, calls[5].Reply.Verdict)
		require.Equal(t, "r", calls[5].Reply.Record.Run)
	})
}

// TestCallThatIsOver: a call whose context is done is not sent, with those that were begun with it
// neither.
func TestCallThatIsOver(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			others := answers(db, 3, time.Second)
			_, err := db.Open(over, "over", store.TaskOpen{Token: 1})
			require.ErrorIs(t, err, context.Canceled)
			for i, err := range others() {
				require.NoError(t, err, i)
			}
		}
		reply, err := db.Record(t.Context(), "over")
		require.NoError(t, err)
		require.Zero(t, reply.Record.Token)
	})
}

// One call that is refused is refused alone.
func TestRefusedCallOfABatchIsRefusedAlone(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		require.NoError(t, db.rdb.Set(t.Context(), db.keys.Task("t5"), "a text", 0).Err())
		first := answers(db, 1, time.Second)
		synctest.Wait()
		for i, err := range append(answers(db, 9, time.Second)(), first()...) {
			if i == 5 {
				require.ErrorIs(t, err, store.ErrMisconfigured)
			} else {
				require.NoError(t, err, i)
			}
		}
		require.Equal(t, []int{1, 9}, sent.all())
	})
}

// A server that does not know the scripts of a batch gets each of them once, in one further trip.
func TestScriptsOfABatchAreLoadedTogether(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		sent.hold = func(nth int) {
			if nth == 1 { // the batch behind it is the first that misses the scripts
				require.NoError(t, db.rdb.ScriptFlush(context.Background()).Err())
			}
		}
		first := make(chan error, 1)
		go func() { // ends with its answer
			_, err := db.Record(context.Background(), "alone")
			first <- err
		}()
		synctest.Wait()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				name := fmt.Sprint("t", i)
				_, err := db.Open(context.Background(), name, store.TaskOpen{Token: 1})
				require.NoError(t, err)
			})
			all.Go(func() {
				_, err := db.Pause(context.Background(), fmt.Sprint("t", i), true, "", "")
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.NoError(t, <-first)
		require.Equal(t, []int{1, 1, 40, 40}, sent.all())
	})
}

// A batch that hangs holds up no other for longer than batchPatience, and who gives up waiting does
// so when its own context is done, also if it was about to send.
func TestBatchThatHangs(t *testing.T) {
	batchWorld(t, func(t *testing.T, db *Store, sent *sends) {
		over := make(chan struct{})
		sent.hold = func(nth int) {
			if nth <= 2 {
				<-over
			}
		}
		began := time.Now()
		hung := answers(db, 1, time.Hour)
		synctest.Wait()
		impatient := answers(db, 3, batchPatience/2) // in the queue while the first hangs
		synctest.Wait()
		hungToo := answers(db, 2, time.Hour)
		for _, err := range impatient() {
			require.ErrorIs(t, err, store.ErrUnreachable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		require.Equal(t, batchPatience/2, time.Since(began))
		time.Sleep(batchPatience)
		require.Equal(t, []int{1, 2}, sent.all(), "nobody waits for longer than that")
		for _, err := range answers(db, 5, 3*batchPatience)() {
			require.NoError(t, err)
		}
		require.Equal(t, []int{1, 2, 5}, sent.all())
		require.Less(t, time.Since(began), 3*batchPatience)
		close(over)
		for _, err := range append(hung(), hungToo()...) {
			require.NoError(t, err)
		}
		for _, err := range answers(db, 1, time.Second)() { // as if nothing had been
			require.NoError(t, err)
		}
		require.Equal(t, []int{1, 2, 5, 1}, sent.all())
	})
}

// A batch is waited for until the last of its calls is: none is cut short by another.
func TestBatchLastsAsLongAsItsCalls(t *testing.T) {
	var none context.CancelFunc
	within := func(d time.Duration) *request {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		t.Cleanup(cancel)
		return &request{ctx: ctx}
	}
	longest := within(time.Hour)
	longest.store = new(Store)
	s, ctx, cancel := latest([]*request{within(time.Second), longest, within(time.Minute)})
	defer cancel()
	require.Same(t, longest.store, s)
	deadline, _ := ctx.Deadline()
	require.Greater(t, time.Until(deadline), 59*time.Minute)
	_, ctx, none = latest([]*request{within(time.Second), {ctx: context.Background()}})
	defer none()
	_, bounded := ctx.Deadline()
	require.False(t, bounded)
}

// Who was to send the next batch and leaves has the one behind it send; nothing is lost of what
// was in the queue, and no more travels at a time than may.
func TestSenderThatLeaves(t *testing.T) {
	b, first, second := newBatches(1), &request{store: new(Store)}, &request{store: new(Store)}
	require.True(t, b.enter(&request{store: new(Store)}))
	require.False(t, b.enter(first))
	require.False(t, b.enter(second))
	b.next()
	require.True(t, <-first.woken)
	b.leave(first)
	require.Len(t, second.woken, 1, "at once")
	require.Equal(t, []*request{second}, b.take(second))
	require.Equal(t, 1, b.sending)
	b.next()
	require.Zero(t, b.sending)
	require.Empty(t, b.queue)
}

// In a cluster a pipeline has the keys of one slot.
func TestBatchOfOneSlot(t *testing.T) {
	b := newBatches(1)
	require.True(t, b.enter(&request{store: new(Store)}))
	waits := make([]*request, 4)
	for i := range waits {
		waits[i] = &request{store: &Store{spread: true}, key: fmt.Sprintf("{ns%d}:leader", i%2)}
		require.False(t, b.enter(waits[i]))
	}
	b.next()
	require.True(t, <-waits[0].woken)
	require.Equal(t, []*request{waits[0], waits[2]}, b.take(waits[0]))
	b.next()
	require.True(t, <-waits[1].woken)
	require.Equal(t, []*request{waits[1], waits[3]}, b.take(waits[1]))
}

// hangs holds up all calls that name a key of one hash tag.
type hangs struct{ tag string }

func (h hangs) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hangs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.Contains(cmd.String(), h.tag) {
			<-ctx.Done()
			cmd.SetErr(context.Cause(ctx))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (h hangs) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if strings.Contains(cmd.String(), h.tag) {
				<-ctx.Done()
				cmd.SetErr(context.Cause(ctx))
				return cmd.Err()
			}
		}
		return next(ctx, cmds)
	}
}

// TestNodeThatHangsHoldsUpNoOther: on a cluster calls to one node, of roles of many hash tags, get
// no answer; what others are asked is answered at once, an acquire and a renewal.
func TestNodeThatHangsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := simnet.New(simnet.Options{Seed: 1})
		defer network.Close()
		network.NewServer(simnet.Addr, simnet.ServerOptions{})
		client := network.Client("a", nil)
		client.AddHook(hangs{"{hung"})
		db := openStore(client, "{ns}")
		db.spread = true
		role := func(tag string, i int) *Lease {
			return db.ForRole(store.Role{Key: fmt.Sprintf("{%s%d}:leader", tag, i), Holder: "a", TTL: 10 * time.Second, RestartGuard: -1})
		}
		var group sync.WaitGroup
		defer group.Wait()
		for i := range 60 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				_, err := store.Send(ctx, role("hung", i), lease.Request{Kind: lease.Acquire, Nonce: "n"})
				if !errors.Is(err, store.ErrUnreachable) {
					t.Errorf("an answer of a node that hangs: %v", err)
				}
			})
		}
		synctest.Wait()
		for i := range 60 {
			began := time.Now()
			won, err := store.Send(t.Context(), role("fine", i), lease.Request{Kind: lease.Acquire, Nonce: "n"})
			require.NoError(t, err)
			require.Equal(t, lease.Won, won.Verdict)
			kept, err := store.Send(t.Context(), role("fine", i), lease.Request{Kind: lease.Renew, Nonce: "n", Token: won.Token})
			require.NoError(t, err)
			require.Equal(t, lease.Kept, kept.Verdict)
			require.Less(t, time.Since(began), batchPatience/2)
		}
	})
}

// TestBatchHasItsBound: a batch renews no more roles than its bound, counts for a call what travels
// with it in any case, and takes nothing that is about to send a batch of its own.
func TestBatchHasItsBound(t *testing.T) {
	s := quietStore(t)
	call := func(roles int, with ...request) *request {
		return &request{store: s, key: "ns:leader", roles: roles, with: with}
	}
	one := request{store: s, key: "ns:leader"}
	sender, joint, company, small, leads := call(50), call(100), call(0, one, one, one, request{store: s, key: "ns:leader", roles: 60}), call(20), call(0)
	leads.leads = true
	b := newBatches(1)
	b.queue = []*request{sender, leads, joint, company, small}
	require.Equal(t, []*request{sender, joint, small}, b.take(sender), "50 + 100 + 20, and not 64")
	require.Equal(t, []*request{leads, company}, b.queue)
}

// TestBatchesAtATime: nobody is given a turn while as many batches as may be are on their way; one
// that leaves hands its turn on.
func TestBatchesAtATime(t *testing.T) {
	s := quietStore(t)
	b := newBatches(2)
	first, second, third := &request{store: s}, &request{store: s}, &request{store: s}
	require.True(t, b.begin())
	require.True(t, b.begin())
	for _, r := range []*request{first, second, third} {
		require.False(t, b.enter(r))
	}
	b.sending++ // one that hangs was followed by another
	b.next()
	require.Empty(t, first.woken, "two are on their way")
	b.next()
	require.Len(t, first.woken, 1)
	require.Empty(t, second.woken)
	b.leave(first)
	require.Len(t, second.woken, 1, "the turn of the one that left")
	require.Equal(t, 2, b.sending)
	b.leave(third)
	require.Equal(t, 2, b.sending, "it had none")
	require.Equal(t, []*request{second}, b.queue)
}
