package tenure

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/hook"
	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/store"
)

// crowdHook has its client believe that 2,000 processes listen, and notes when heartbeats and
// acquires are sent, and how many travel together.
type crowdHook struct {
	mu          sync.Mutex
	beats, asks []time.Duration
	together    int
	fail        func() error // of what travels together; nil: it does not
	now         func() time.Duration
}

// take returns what was noted, and forgets it.
func (h *crowdHook) take() (beats, asks []time.Duration, together int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	beats, asks, together = h.beats, h.asks, h.together
	h.beats, h.asks, h.together = nil, nil, 0
	return beats, asks, together
}

// lastAsk is when the last acquire was sent of which take has not told; 0: there is none.
func (h *crowdHook) lastAsk() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asks) == 0 {
		return 0
	}
	return h.asks[len(h.asks)-1]
}

func (h *crowdHook) failing(fail func() error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fail = fail
}

func (h *crowdHook) note(cmds ...redis.Cmder) error {
	digests := (*hook.Scripts)().Digests()
	h.mu.Lock()
	beats, asks := len(h.beats), len(h.asks)
	for _, cmd := range cmds {
		switch digest, _ := cmd.Args()[1].(string); digest {
		case digests["beat"]:
			h.beats = append(h.beats, h.now())
		case digests["acquire"]:
			h.asks = append(h.asks, h.now())
		}
	}
	both := len(h.beats) > beats && len(h.asks) > asks
	if both {
		h.together++
	}
	fail := h.fail
	h.mu.Unlock()
	if both && fail != nil {
		return fail()
	}
	return nil
}

func (*crowdHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *crowdHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.note(cmd); err != nil {
			return err
		}
		err := next(ctx, cmd)
		if count, is := cmd.(*redis.MapStringIntCmd); is { // of PUBSUB NUMSUB
			for channel := range count.Val() {
				count.Val()[channel] = 2_000
			}
		}
		return err
	}
}

func (h *crowdHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.note(cmds...); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// ofACrowd has b follow a, as one of 2,000.
func ofACrowd(t *testing.T, act func(c *cluster, a, b *instance, h *crowdHook), change ...func(*Options)) {
	t.Helper()
	inCluster(t, func(c *cluster) {
		lease := func(o *Options) { o.Election.LeaseTTL = 30 * time.Second }
		change = append(change, lease)
		a := c.member("a", change...).start()
		c.until(time.Minute, a.IsLeader)
		h := &crowdHook{now: c.now}
		b := c.on("b", func(o *redis.Options) { o.ReadTimeout = 3 * time.Second }, change...)
		b.client.AddHook(h)
		b.start()
		c.pass(8 * time.Minute) // it has counted, and its questions meet its heartbeats
		h.take()
		act(c, a, b, h)
	})
}

// longestGap is the longest time between two.
func longestGap(at []time.Duration) (most time.Duration) {
	for i := range at[1:] {
		most = max(most, at[i+1]-at[i])
	}
	return most
}

// TestQuestionsOfACrowdRide: nearly all questions of one of a crowd travel with its heartbeats.
// Neither of them comes later for that, nor much more often, and what is urgent waits for nothing.
func TestQuestionsOfACrowdRide(t *testing.T) {
	ofACrowd(t, func(c *cluster, a, b *instance, h *crowdHook) {
		c.pass(20 * time.Minute)
		beats, asks, together := h.take()
		require.GreaterOrEqual(c, together, len(asks)*9/10, "%d questions", len(asks))
		require.InDelta(c, 20*60/14.6, len(asks), 5)
		require.InDelta(c, 20*60/14.6, len(beats), 5)
		require.LessOrEqual(c, longestGap(asks), 15*time.Second+10*time.Millisecond)
		require.LessOrEqual(c, longestGap(beats), 15750*time.Millisecond+10*time.Millisecond)
		require.Equal(c, "active", b.record())
		c.until(time.Minute, func() bool { // at another time than when a regular question is due as the lease ends: that would ride
			var left time.Duration
			c.redis.Do(func(m *miniredis.Miniredis) { left = m.TTL(store.Keys("tenure").Lease("")) })
			last := h.lastAsk()
			behind := (c.now() + left - last) % (14600 * time.Millisecond)
			return last > 0 && 4*time.Second < behind && behind < 10*time.Second
		})
		a.crash()
		c.until(31*time.Second, b.IsLeader)
		c.pass(time.Minute)
		_, asks, together = h.take()
		require.Less(c, together, len(asks), "the one that was granted the lease travels alone")
	})
}

// TestQuestionsBetweenHeartbeats: those that find no heartbeat that is about due go alone, and at
// once.
func TestQuestionsBetweenHeartbeats(t *testing.T) {
	ofACrowd(t, func(c *cluster, _, _ *instance, h *crowdHook) {
		c.pass(10 * time.Minute)
		beats, asks, together := h.take()
		require.InDelta(c, 10*60/14.6, len(asks), 4)
		require.LessOrEqual(c, longestGap(asks), 15*time.Second+10*time.Millisecond)
		require.LessOrEqual(c, together, len(beats))
		require.LessOrEqual(c, len(beats), 6)
	}, func(o *Options) {
		r := &o.Registry
		r.HeartbeatInterval, r.HeartbeatTTL, r.DriftedAfter, r.DownAfter = 2*time.Minute, 10*time.Minute, 10*time.Minute, time.Hour
	})
}

// TestRidesThatFail: whatever happens to the two that travel together, each is answered, and is
// sent again as if it had been alone.
func TestRidesThatFail(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":       func() error { return errors.New("no connection") },
		"panic":       func() error { panic("a hook") },
		"Goexit":      func() error { runtime.Goexit(); return nil },
		"nil pointer": func() error { return (*wrongHookError)(nil) },
		"hangs":       func() error { time.Sleep(time.Minute); return errors.New("no answer") }, // in virtual time
	} {
		t.Run(name, func(t *testing.T) {
			ofACrowd(t, func(c *cluster, a, b *instance, h *crowdHook) {
				h.failing(fail)
				c.pass(5 * time.Minute)
				beats, asks, _ := h.take()
				require.LessOrEqual(c, longestGap(asks), 30*time.Second)
				require.LessOrEqual(c, longestGap(beats), 30*time.Second)
				h.failing(nil)
				c.pass(3 * time.Minute)
				h.take()
				c.pass(10 * time.Minute)
				_, asks, together := h.take()
				require.GreaterOrEqual(c, together, len(asks)*9/10)
				a.crash()
				c.until(31*time.Second, b.IsLeader)
				took, err := b.stop()
				require.NoError(c, err)
				require.Less(c, took, time.Second)
			})
		})
	}
}

// TestClientThatRefusesPipelines: of a client that refuses them, or hangs in them for ever, an
// instance stays active, and hardly a heartbeat fails.
func TestClientThatRefusesPipelines(t *testing.T) {
	for name, fail := range map[string]func() error{
		"refuses": func() error { return errors.New("no pipelines") },
		"hangs":   func() error { time.Sleep(time.Hour); return errors.New("no answer") }, // in virtual time
	} {
		t.Run(name, func(t *testing.T) {
			ofACrowd(t, func(c *cluster, _, b *instance, h *crowdHook) {
				h.failing(fail)
				for range 30 {
					c.pass(time.Minute)
					require.Equal(c, "active", b.record())
				}
				beats, asks, together := h.take()
				require.LessOrEqual(c, longestGap(beats), 30*time.Second)
				require.LessOrEqual(c, longestGap(asks), 30*time.Second)
				require.LessOrEqual(c, together, 8)
				h.failing(nil)
				c.pass(80 * time.Minute)
				h.take()
				c.pass(10 * time.Minute)
				_, asks, together = h.take()
				require.GreaterOrEqual(c, together, len(asks)*9/10, "it is sound again")
			})
		})
	}
}

// TestRideOnTheWayOut: a process that is told to stop while its question travels with a heartbeat
// ends at once, and leaves nothing in the registry.
func TestRideOnTheWayOut(t *testing.T) {
	for name, pause := range map[string]time.Duration{"before it is sent": 0, "while it is on its way": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			ofACrowd(t, func(c *cluster, _, b *instance, h *crowdHook) {
				told := false
				h.failing(func() error {
					told = true
					b.halt(nil)
					time.Sleep(pause)
					return nil
				})
				c.pass(16 * time.Second)
				took, err := b.stop()
				require.True(c, told)
				require.NoError(c, err)
				require.Negative(c, took, "it has ended before")
				require.Empty(c, b.record())
			})
		})
	}
}

// TestRidesPauseAfterAFailure: the next four heartbeats take nothing along, twice as many after
// each further failure in a row, and never more than 64. One that succeeds ends the row.
func TestRidesPauseAfterAFailure(t *testing.T) {
	l, failure := new(beatLoop), errors.New("no connection")
	pause := func() (heartbeats int) {
		l.judge(true, failure)
		for ; l.alone > 0; heartbeats++ {
			require.Less(t, heartbeats, 1000)
			l.judge(false, nil)
		}
		return heartbeats
	}
	for _, want := range []int{4, 8, 16, 32, 64} {
		require.Equal(t, want, pause())
	}
	for range 100 {
		require.Equal(t, 64, pause())
	}
	l.judge(true, nil)
	require.Equal(t, 4, pause(), "after one that succeeded")
	l.judge(true, failure)
	for range 3 {
		l.judge(false, failure)
	}
	require.Equal(t, 8-3, l.alone, "heartbeats alone count, whether they fail or not")
}

// passengers are heartbeats that take every acquire along, and note how early they may go for it.
type passengers struct{ within time.Duration }

func (*passengers) next() lease.Beats { return lease.Beats{} }

func (p *passengers) carry(_ context.Context, _ *store.Rider, within time.Duration) bool {
	p.within = within
	return true
}

// TestHeartbeatsGoEarlyByHalfARetry: no more, for the sake of a question.
func TestHeartbeatsGoEarlyByHalfARetry(t *testing.T) {
	beats := new(passengers)
	l := &electionLoop{electionConfig: electionConfig{
		electionShared: &electionShared{beats: beats}, store: &scriptedStore{}, timing: lease.Timing{Retry: 10 * time.Second},
	}}
	_, _ = l.ask(t.Context(), lease.Request{Kind: lease.Acquire, Rides: true})
	require.Equal(t, 5*time.Second, beats.within)
}

// boundOfCarrier notes for how long what travels together is waited for.
type boundOfCarrier struct {
	store.Carrier
	bound time.Duration
}

func (c *boundOfCarrier) HeartbeatWith(ctx context.Context, _ store.Heartbeat, rider *store.Rider) (store.HeartbeatReply, error) {
	until, _ := ctx.Deadline()
	c.bound = time.Until(until)
	rider.Answered()
	return store.HeartbeatReply{}, nil
}

// Carries lets only leases travel that there are.
func (c *boundOfCarrier) Carries(l store.Lease) bool { return l != nil }

// TestWhatDoesNotRide: an acquire that the heartbeats cannot carry is not offered to them, and one
// that was taken goes alone if the process is on its way out.
func TestWhatDoesNotRide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := completed(func(*Options) {})
		require.NoError(t, err)
		r := newRegistry(&boundOfCarrier{}, newEventBus("me"), opts, leadsNothing)
		require.False(t, r.carry(t.Context(), &store.Rider{Lease: &scriptedStore{}}, time.Hour), "nobody waits for one")
		go func() { // ends with the ride
			taken := <-r.rides
			taken.begin()
			taken.ended <- true
		}()
		synctest.Wait()
		require.False(t, r.carry(t.Context(), new(store.Rider), time.Hour), "of another slot")
		require.True(t, r.carry(t.Context(), &store.Rider{Lease: &scriptedStore{}}, time.Hour))

		local := memstore.NewRegistry()
		r = newRegistry(local, newEventBus("me"), opts, leadsNothing)
		l := newBeatLoop(r)
		h, _ := l.beat.Next(monotonic())
		l.send(t.Context(), h, nil)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		due := l.beat.Due()
		rides := func(ctx context.Context) bool {
			ride := &ride{Rider: store.Rider{Lease: &scriptedStore{}}, within: time.Hour, ended: make(chan bool, 1)}
			l.carry(ctx, ride)
			require.False(t, <-ride.ended, "no carrier")
			return l.beat.Due() != due
		}
		time.Sleep(opts.Registry.HeartbeatInterval / 4)
		require.False(t, rides(t.Context()), "it would go early by more than half of an interval")
		time.Sleep(opts.Registry.HeartbeatInterval / 2)
		require.False(t, rides(over))
		r.left.Store(true)
		require.False(t, rides(t.Context()))
		r.left.Store(false)
		require.True(t, rides(t.Context()), "the heartbeat goes early, and the acquire alone")
	})
}

// TestNeitherOfTwoThatTravelTogetherIsCutShort: they go on for as long as one of them is waited
// for. An instance whose heartbeats are short would else never hear of a slow Redis who leads.
func TestNeitherOfTwoThatTravelTogetherIsCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := completed(func(*Options) {})
		require.NoError(t, err)
		r := newRegistry(memstore.NewRegistry(), newEventBus("me"), opts, leadsNothing)
		for _, x := range []struct{ heartbeat, acquire time.Duration }{{time.Second, 3 * time.Second}, {3 * time.Second, time.Second}} {
			carrier := &boundOfCarrier{}
			r.store = carrier
			rides := make(chan *ride)
			go func() { // ends with the ride
				taken := <-rides
				ctx, cancel := context.WithTimeout(context.Background(), x.heartbeat)
				defer cancel()
				_, _ = r.heartbeat(ctx, store.Heartbeat{}, taken)
			}()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), x.acquire)
			require.True(t, offer(ctx, rides, new(store.Rider), 0))
			cancel()
			synctest.Wait()
			require.Equal(t, 3*time.Second, carrier.bound, "%+v", x)
		}
	})
}
