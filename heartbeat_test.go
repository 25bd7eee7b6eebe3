package tenure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// registryBubble is a Redis with instances, in virtual time.
type registryBubble struct {
	*bubble
	net     *simnet.Network
	redis   *simnet.Server
	members map[string]*livingInstance
}

// livingInstance is the registry of one process, with what a coordinator runs for it.
type livingInstance struct {
	*registryInstance
	client  *redis.Client
	stop    context.CancelFunc
	running sync.WaitGroup
}

// inRegistryBubble runs act with a Redis of its own and ends what is left of it.
func inRegistryBubble(t *testing.T, act func(*registryBubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &registryBubble{bubble: newBubble(t), net: simnet.New(simnet.Options{Seed: 1}), members: make(map[string]*livingInstance)}
		f.redis = f.net.NewServer(simnet.Addr, simnet.ServerOptions{})
		defer f.net.Close()
		defer func() {
			for _, m := range f.members {
				m.stop()
			}
			for _, m := range f.members {
				m.running.Wait()
			}
		}()
		act(f)
	})
}

// member starts an instance, active at once.
func (f *registryBubble) member(name, id string, change ...func(*Options)) *livingInstance {
	f.Helper()
	client := f.net.Client(name, nil)
	w := &registryCluster{T: f.T, rdb: client}
	m := &livingInstance{registryInstance: w.start(id, func() string { return name }, change...), client: client}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	db := m.Registry.store.(*redisstore.Store)
	m.running.Go(func() { m.listens(ctx, db) })
	synctest.Wait()
	m.setStatus(InstanceActive)
	m.running.Go(func() { m.Registry.beat(ctx) })
	f.members[name] = m
	return m
}

// listens hands the hints of the registry over until ctx is done.
func (m *livingInstance) listens(ctx context.Context, db *redisstore.Store) {
	db.Listen(ctx, store.Audience{
		Channels: func() []string { return []string{"waf:cluster:events"} },
		TTL:      func() time.Duration { return 30 * time.Second },
		Wait:     func() time.Duration { return 250 * time.Millisecond },
		Leads:    func() bool { return false },
		Take:     m.hint,
		Report:   func(store.Notice) {},
		State:    store.NewSubscription(),
	})
}

// leads has it sweep from now on, until the returned function is called.
func (m *livingInstance) leads() (resign func()) {
	ctx, cancel := context.WithCancel(context.Background())
	term := validTerm(m.w.T)
	m.running.Go(func() { _ = m.sweepLoop(ctx, term) })
	return cancel
}

// crash ends a member without a farewell.
func (f *registryBubble) crash(name string) {
	f.net.Crash(name)
	f.members[name].stop()
}

// when returns the events of the types since it was last asked, with the time since began.
func (m *livingInstance) when(began time.Time, types ...EventType) (told []string) {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events {
		for _, kind := range types {
			if e.Type == kind {
				told = append(told, fmt.Sprintf("%v %s %s", e.Time.Sub(began), e.Type, e.Subject))
			}
		}
	}
	m.events = nil
	return told
}

// TestHeartbeatSilenceSaysWhy: the time of a heartbeat is over before the client has dialed as
// often as it does. The error says all the same why there is no connection.
func TestHeartbeatSilenceSaysWhy(t *testing.T) {
	for _, every := range []time.Duration{200 * time.Millisecond, time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("dial tcp 10.0.0.1:6379: connect: connection refused")
			}})
			defer func() { require.NoError(t, client.Close()) }()
			c, err := New(client, Options{Namespace: "shop", InstanceID: "a", NoDefaultRole: true, Registry: RegistryOptions{HeartbeatInterval: every}})
			require.NoError(t, err)
			failed := make(chan error, 1)
			defer c.Observe(func(e Event) {
				if e.Type == EventHeartbeatFailed {
					failed <- e.Err
				}
			})()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }() // ends with stop
			require.ErrorContains(t, <-failed, "connection refused", every)
			stop()
			require.NoError(t, <-ended)
		})
	}
}

// TestFleet: the life of a fleet, as each of its processes reports it.
func TestFleet(t *testing.T) {
	inRegistryBubble(t, func(f *registryBubble) {
		a, b := f.member("a", "a"), f.member("b", "b")
		f.member("c", "c")
		defer a.leads()()
		f.pass(10 * time.Minute)
		for _, m := range []*livingInstance{a, b} {
			m.when(f.began)
		}
		f.crash("c")
		crashed := time.Now()
		f.pass(10 * time.Minute)
		for _, m := range []*livingInstance{a, b} {
			f.within(m.when(crashed, EventInstanceJoined, EventInstanceDrifted, EventInstanceRecovered, EventInstanceDown, EventInstanceLeft), "1m0s instance_drifted c", "5m0s instance_down c")
		}
		require.Equal(f, []string{"a active", "b active"}, a.list())

		f.net.Partition("b", simnet.Both, 100*time.Second)
		parted := time.Now()
		f.pass(10 * time.Minute)
		f.within(a.when(parted, EventInstanceDrifted, EventInstanceRecovered, EventInstanceDown), "1m0s instance_drifted b", "1m40s instance_recovered b")
		require.Equal(f, []string{"heartbeat_failed"}, named(b.when(parted, EventHeartbeatFailed, EventInstanceDown, EventInstanceRegistered)))

		b.setStatus(InstanceDraining)
		f.pass(10 * time.Millisecond)
		require.Equal(f, []string{"a active", "b draining"}, a.list(), "at once")
		b.stop()
		f.pass(time.Second)
		require.NoError(f, b.deregister(context.Background()))
		f.pass(time.Second)
		require.Equal(f, []string{"a active"}, a.list())
		require.Equal(f, []string{"instance_left b"}, a.told())
	})
}

// within drops the times, each of which must be one beat before that of want at the earliest, and
// one sweep after it at the latest.
func (f *registryBubble) within(told []string, want ...string) {
	f.Helper()
	require.Len(f, told, len(want), "%q", told)
	for i, line := range want {
		at, what, _ := strings.Cut(told[i], " ")
		wantAt, wantWhat, _ := strings.Cut(line, " ")
		require.Equal(f, wantWhat, what)
		was, err := time.ParseDuration(at)
		require.NoError(f, err)
		should, err := time.ParseDuration(wantAt)
		require.NoError(f, err)
		require.GreaterOrEqual(f, was, should-16*time.Second, told)
		require.LessOrEqual(f, was, should+11*time.Second, told)
	}
}

// named drops times and subjects.
func named(told []string) (names []string) {
	for _, line := range told {
		names = append(names, strings.Fields(line)[1])
	}
	return names
}

// TestBeatInterval: beats come every 15 s ± 5 %, and what is missing is tried sooner.
func TestBeatInterval(t *testing.T) {
	inRegistryBubble(t, func(f *registryBubble) {
		m := f.member("a", "a", func(o *Options) { o.random = nil })
		last := func() (at int64) {
			f.redis.Do(func(r *miniredis.Miniredis) {
				score, _ := r.ZScore("waf:cluster:beats", "a")
				at = int64(score)
			})
			return at
		}
		f.pass(time.Second)
		beats, before := 0, last()
		for range 12_000 { // ten minutes
			f.pass(50 * time.Millisecond)
			if at := last(); at != before {
				require.InDelta(f, 15_000, at-before, 15_000*0.05+10)
				beats, before = beats+1, at
			}
		}
		require.InDelta(f, 40, beats, 3)

		f.net.Partition("a", simnet.Both, 20*time.Second)
		f.pass(20 * time.Second)
		began := time.Now()
		for last() == before {
			f.pass(10 * time.Millisecond)
		}
		require.Less(f, time.Since(began), 9*time.Second, "sooner than the next interval")
		require.Equal(f, []string{"instance_registered", "heartbeat_failed"}, m.told())
	})
}

// TestP9_OutageOfRedis: after an outage that is longer than DownAfter all are silent, and nobody is
// removed.
func TestP9_OutageOfRedis(t *testing.T) {
	for _, grace := range []bool{true, false} {
		t.Run(fmt.Sprint("grace=", grace), func(t *testing.T) {
			inRegistryBubble(t, func(f *registryBubble) {
				for i := range 12 {
					f.member(fmt.Sprint("i", i), fmt.Sprint("i", i), func(o *Options) { o.random = nil })
				}
				leader := f.members["i0"]
				resign := leader.leads()
				f.pass(10 * time.Minute)
				leader.told()
				f.redis.Restart(true, 10*time.Minute)
				f.pass(30 * time.Second)
				resign() // without Redis its lease has lapsed
				f.pass(10*time.Minute - 30*time.Second)
				if grace {
					defer leader.leads()()
				} else { // what the grace is for
					watched := func() *testSweeper {
						s := leader.sweeper()
						s.watchesAt(f.redis.Now().UnixMilli(), 0, time.Hour)
						return s
					}
					for watched().pass(f.Context()) != nil { // it comes back now
						f.pass(time.Millisecond)
					}
				}
				f.pass(5 * time.Minute)
				down := leader.when(f.began, EventInstanceDown)
				if grace {
					require.Empty(f, down)
				} else {
					require.NotEmpty(f, down)
				}
				require.Len(f, leader.list(), 12)
			})
		})
	}
}

// TestClockStepRemovesNobody: if Redis's clock jumps all are silent, and nobody is removed.
func TestClockStepRemovesNobody(t *testing.T) {
	inRegistryBubble(t, func(f *registryBubble) {
		for i := range 12 {
			f.member(fmt.Sprint("i", i), fmt.Sprint("i", i), func(o *Options) { o.random = nil })
		}
		leader := f.members["i0"]
		defer leader.leads()()
		steps := []time.Duration{-24 * time.Hour, 10 * time.Minute, 24 * time.Hour}
		if testing.Short() {
			steps = steps[:1]
		}
		for _, step := range steps {
			f.pass(3 * time.Minute)
			f.redis.StepClock(step)
			f.pass(7 * time.Minute) // DownAfter, and two
			require.Empty(f, leader.when(f.began, EventInstanceDown))
			require.Len(f, leader.list(), 12)
		}
		f.crash("i7")
		f.pass(6 * time.Minute)
		require.Len(f, leader.list(), 11)
	})
}

// TestClockStepDoesNotKeepTheDead: Redis's clock is ahead while one is removed, and is put right
// seconds later.
func TestClockStepDoesNotKeepTheDead(t *testing.T) {
	inRegistryBubble(t, func(f *registryBubble) {
		for i := range 4 {
			f.member(fmt.Sprint("i", i), fmt.Sprint("i", i))
		}
		leader := f.members["i0"]
		defer leader.leads()()
		f.pass(time.Minute)
		f.redis.StepClock(7 * 24 * time.Hour)
		f.pass(10 * time.Minute)
		f.crash("i1")
		for len(leader.when(f.began, EventInstanceDown)) == 0 {
			f.pass(time.Second)
		}
		f.redis.StepClock(-7 * 24 * time.Hour)
		f.pass(time.Minute)
		f.crash("i2")
		f.pass(leader.opts.DownAfter + 2*time.Minute)
		require.Len(f, leader.list(), 2)
	})
}

// TestDuplicateIDIsToldByBoth: two living processes with one ID both report it, once.
func TestDuplicateIDIsToldByBoth(t *testing.T) {
	inRegistryBubble(t, func(f *registryBubble) {
		older := f.member("older", "pod")
		f.pass(time.Minute)
		younger := f.member("younger", "pod")
		for range 180 {
			f.pass(10 * time.Second)
			instance, err := younger.Instance(context.Background(), "pod")
			require.NoError(f, err)
			require.Equal(f, "younger", instance.Incarnation, "nobody overwrites its record")
		}
		require.Equal(f, []string{"instance_registered", "instance_joined pod", "instance_duplicated younger"}, older.told())
		require.Equal(f, []string{"instance_registered", "instance_duplicated older"}, younger.told())
		younger.stop()
		f.pass(time.Second)
		require.NoError(f, younger.deregister(context.Background()))
		f.pass(time.Minute)
		require.Equal(f, []string{"instance_left pod", "instance_registered"}, older.told())
		require.Equal(f, []string{"pod active"}, older.list())
	})
}

// TestLateBeatOfADeadProcess: what hung in a socket buffer when its process left enters nothing.
func TestLateBeatOfADeadProcess(t *testing.T) {
	inRegistryBubble(t, func(f *registryBubble) {
		m := f.member("a", "a")
		f.pass(time.Minute)
		f.net.SetFaults("a", simnet.Faults{Stuck: 1})
		f.net.Partition("a", simnet.Both, 0)
		m.setStatus(InstanceDraining)
		f.pass(10 * time.Second)
		m.stop()
		f.pass(10 * time.Second)
		f.redis.Do(func(r *miniredis.Miniredis) { r.FlushAll() }) // as if its removal had come another way
		f.net.Heal("a")
		f.pass(10 * time.Second)
		f.redis.Do(func(r *miniredis.Miniredis) { require.Empty(f, r.Keys()) })
	})
}

// slowRegistry is a store that one beat reaches late, after its caller gave it up.
type slowRegistry struct {
	store.Registry
	late time.Duration // of the next beat
}

func (s *slowRegistry) Heartbeat(ctx context.Context, b store.Heartbeat) (store.HeartbeatReply, error) {
	late := s.late
	s.late = 0
	time.Sleep(late)
	return s.Registry.Heartbeat(context.WithoutCancel(ctx), b)
}

// TestBeatThatWasGivenUpEntersNothing: the process leaves right after it gave up a beat, which
// comes right after that.
func TestBeatThatWasGivenUpEntersNothing(t *testing.T) {
	for _, late := range []time.Duration{10 * time.Millisecond, 900 * time.Millisecond, 2 * time.Second} {
		inRegistryBubble(t, func(f *registryBubble) {
			m := f.member("a", "a")
			f.pass(time.Minute + time.Second) // between two beats
			store := &slowRegistry{Registry: m.Registry.store, late: registryBound + late}
			m.Registry.store = store
			m.setStatus(InstanceActive)
			f.pass(time.Millisecond)
			m.stop()
			m.running.Wait()
			require.Zero(f, store.late, "the slow beat was not sent")
			require.NoError(f, m.deregister(context.Background()))
			f.pass(time.Minute)
			require.Empty(f, m.list())
		})
	}
}

// TestLateFirstBeatOfADeadProcess: neither does the first one, of a process that never heard of
// Redis's clock; nor does it push aside the process that came after it under the same ID.
func TestLateFirstBeatOfADeadProcess(t *testing.T) {
	for _, successor := range []bool{false, true} {
		inRegistryBubble(t, func(f *registryBubble) {
			a := (&registryCluster{T: f.T, rdb: f.net.Client("a", nil)}).start("pod", func() string { return "a" })
			a.Registry.store = &slowRegistry{Registry: a.Registry.store, late: 10 * time.Second}
			ctx, stop := context.WithCancel(context.Background())
			time.AfterFunc(time.Second, stop)
			a.Registry.beat(ctx)
			require.NoError(f, a.deregister(context.Background()))
			if !successor {
				f.pass(time.Minute)
				f.redis.Do(func(r *miniredis.Miniredis) { require.Empty(f, r.Keys()) })
				return
			}
			b := f.member("b", "pod")
			f.pass(time.Minute)
			require.Equal(f, []string{"instance_registered"}, b.told())
			instance, err := b.Instance(context.Background(), "pod")
			require.NoError(f, err)
			require.Equal(f, "b", instance.Incarnation)
		})
	}
}

// stuckRegistry is a store whose calls hang, whatever their context says.
type stuckRegistry struct {
	store.Registry
	mu     sync.Mutex
	healed chan struct{} // nil: a good one
	calls  int
}

func (s *stuckRegistry) wait() {
	s.mu.Lock()
	s.calls++
	healed := s.healed
	s.mu.Unlock()
	if healed != nil {
		<-healed
	}
}

func (s *stuckRegistry) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

func (s *stuckRegistry) Heartbeat(ctx context.Context, b store.Heartbeat) (store.HeartbeatReply, error) {
	s.wait()
	return s.Registry.Heartbeat(ctx, b)
}

func (s *stuckRegistry) Remove(ctx context.Context, id, incarnation string) (string, error) {
	s.wait()
	return s.Registry.Remove(ctx, id, incarnation)
}

func (s *stuckRegistry) Look(ctx context.Context, l store.Look) (store.LookReply, error) {
	s.wait()
	return s.Registry.Look(ctx, l)
}

// onStuckRegistry runs act with a registry before a store that hangs once hang was called.
func onStuckRegistry(t *testing.T, act func(m *registryInstance, store *stuckRegistry, hang, heal func())) {
	synctest.Test(t, func(t *testing.T) {
		w := &registryCluster{T: t, rdb: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})}
		defer func() { _ = w.rdb.Close() }()
		m := w.member("a")
		store := &stuckRegistry{Registry: memstore.NewRegistry()}
		m.Registry.store = store
		hang := func() {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.healed = make(chan struct{})
		}
		heal := func() {
			store.mu.Lock()
			defer store.mu.Unlock()
			if store.healed != nil {
				close(store.healed)
				store.healed = nil
			}
		}
		defer heal()
		act(m, store, hang, heal)
	})
}

// TestHungBeatsAreBounded: a client that ignores its context neither hangs the loop nor gathers
// calls.
func TestHungBeatsAreBounded(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, store *stuckRegistry, hang, heal func()) {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		ended := make(chan struct{})
		go func() { defer close(ended); m.Registry.beat(ctx) }()
		time.Sleep(time.Minute)
		require.Equal(m.w, []string{"instance_registered"}, m.told())
		before := store.made()
		hang()
		time.Sleep(10 * time.Minute)
		require.Equal(m.w, before+maxRegistryCalls, store.made())
		require.Equal(m.w, []string{"heartbeat_failed", "calls_stuck 4"}, m.told(), "once each")
		heal()
		time.Sleep(time.Minute)
		require.Greater(m.w, store.made(), before+maxRegistryCalls+2)
		require.Equal(m.w, []string{}, m.told())

		hang()
		time.Sleep(15 * time.Second)
		stop()
		began := time.Now()
		<-ended
		require.LessOrEqual(m.w, time.Since(began), registryBound)
		require.ErrorIs(m.w, m.deregister(context.Background()), ErrUnreachable)
		require.LessOrEqual(m.w, time.Since(began), 2*registryBound)
		require.ErrorIs(m.w, m.flush(time.Now().Add(time.Second)), ErrDrainTimeout)
		heal()
		require.NoError(m.w, m.flush(time.Now().Add(time.Second)))
	})
}

// TestEachRowOfFailedHeartbeatsIsNews: heartbeats that have no answer, or come too late, are
// reported once until one is taken, and again the next time.
func TestEachRowOfFailedHeartbeatsIsNews(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, hang, heal func()) {
		var late atomic.Bool
		m.Registry.store = answeringRegistry{stuck, func(_ store.Heartbeat, reply *store.HeartbeatReply) {
			if late.Load() {
				reply.Verdict = membership.Stale
			}
		}}
		ctx, stop := context.WithCancel(context.Background())
		var beating sync.WaitGroup
		beating.Go(func() { m.Registry.beat(ctx) }) // ends with stop
		defer beating.Wait()
		defer stop()
		defer heal()
		failed := func() (n int) {
			for _, told := range m.told() {
				if told == "heartbeat_failed" {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute)
		require.Equal(m.w, []string{"instance_registered"}, m.told())
		for range 2 {
			hang()
			time.Sleep(time.Minute)
			heal()
			require.Equal(m.w, 1, failed())
			time.Sleep(time.Minute)
			late.Store(true)
			time.Sleep(time.Minute)
			late.Store(false)
			require.Equal(m.w, 1, failed())
			time.Sleep(time.Minute)
			require.Zero(m.w, failed())
		}
	})
}

// answeringRegistry changes the answers to heartbeats.
type answeringRegistry struct {
	store.Registry
	change func(h store.Heartbeat, reply *store.HeartbeatReply)
}

func (r answeringRegistry) Heartbeat(ctx context.Context, h store.Heartbeat) (store.HeartbeatReply, error) {
	reply, err := r.Registry.Heartbeat(ctx, h)
	r.change(h, &reply)
	return reply, err
}

// failingRegistry has its calls fail: before they are made, or once they were.
type failingRegistry struct {
	store.Registry
	before, after error
	removed       string // the verdict on a removal; "": as it is
}

func (r *failingRegistry) Heartbeat(ctx context.Context, h store.Heartbeat) (store.HeartbeatReply, error) {
	if r.before != nil {
		return store.HeartbeatReply{}, r.before
	}
	reply, err := r.Registry.Heartbeat(ctx, h)
	return reply, cmp.Or(r.after, err)
}

func (r *failingRegistry) Remove(ctx context.Context, id, incarnation string) (string, error) {
	verdict, err := r.Registry.Remove(ctx, id, incarnation)
	return cmp.Or(r.removed, verdict), err
}

// TestFirstBeatWithoutAnAnswer: the answer to the first heartbeat is lost, and the next one finds
// the record that it has made. The instance takes part all the same. If it ends before the next one
// it takes its record along, since it may be there.
func TestFirstBeatWithoutAnAnswer(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
		failing := &failingRegistry{Registry: stuck, after: errNetwork}
		m.Registry.store = failing
		m.beats()
		require.Equal(m.w, []string{"a joining"}, m.list())
		require.False(m.w, m.takesPart())
		require.Equal(m.w, []string{"heartbeat_failed"}, m.told())
		failing.after = nil
		m.beats()
		require.True(m.w, m.takesPart())
		require.Equal(m.w, []string{"instance_registered"}, m.told())
	})
	onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
		m.Registry.store = &failingRegistry{Registry: stuck, after: errNetwork}
		m.beats()
		require.NoError(m.w, m.deregister(context.Background()))
		require.Empty(m.w, m.list())
	})
}

// TestDeregisterAsksOnlyIfItMust: an instance of which nothing can have reached Redis leaves
// without a call, which would hold up its end.
func TestDeregisterAsksOnlyIfItMust(t *testing.T) {
	for want, err := range []error{&net.OpError{Op: "dial", Err: io.EOF}, &net.OpError{Op: "read", Err: io.EOF}} {
		onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
			m.Registry.store = &failingRegistry{Registry: stuck, before: fmt.Errorf("%w: %w", ErrUnreachable, err)}
			m.beats()
			require.NoError(m.w, m.deregister(context.Background()))
			require.Equal(m.w, want, stuck.made(), err)
		})
	}
}

// TestWhatDeregisterSays: that this instance has left, also if its record has gone already; not if
// that is of another incarnation.
func TestWhatDeregisterSays(t *testing.T) {
	for verdict, want := range map[string][]string{store.RemovedLeft: {"instance_left a"}, store.RemovedAbsent: {"instance_left a"}, "other": {}} {
		onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
			m.Registry.store = &failingRegistry{Registry: stuck, removed: verdict}
			m.beats()
			m.told()
			require.NoError(m.w, m.deregister(context.Background()))
			require.Equal(m.w, want, m.told(), verdict)
		})
	}
}

// TestStaleBeatOfAProcessThatStops: a heartbeat that came too late is not sent once more when the
// process is on its way out.
func TestStaleBeatOfAProcessThatStops(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
		ctx, stop := context.WithCancel(context.Background())
		m.Registry.store = answeringRegistry{stuck, func(_ store.Heartbeat, reply *store.HeartbeatReply) {
			reply.Verdict = membership.Stale
			stop()
		}}
		m.Registry.beat(ctx)
		require.Equal(m.w, 1, stuck.made())
	})
}

// TestHeartbeatThatIsForbidden is tried again after a third of its interval, however often it is
// refused: somebody has to grant a right first.
func TestHeartbeatThatIsForbidden(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
		m.Registry.store = &failingRegistry{Registry: stuck, before: ErrMisconfigured}
		for range 3 {
			require.InDelta(m.w, m.Registry.opts.HeartbeatInterval/3, m.beats(), float64(m.Registry.opts.HeartbeatInterval/12))
		}
	})
}

// TestMetricsMeasuredDuringAHeartbeat travel with the next one: the answer is to what was sent.
func TestMetricsMeasuredDuringAHeartbeat(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
		var sent [][]store.Metric
		m.Registry.store = answeringRegistry{stuck, func(h store.Heartbeat, reply *store.HeartbeatReply) {
			if sent = append(sent, h.Metrics); reply.Verdict != membership.Stale && len(h.Metrics) > 0 && h.Metrics[0].Value == 1 {
				m.measured.Store(&[]store.Metric{{Name: "jobs", Value: 2}})
			}
		}}
		m.beats()
		m.measured.Store(&[]store.Metric{{Name: "jobs", Value: 1}})
		sent = nil
		for range 3 {
			m.beats()
		}
		require.Equal(m.w, [][]store.Metric{{{Name: "jobs", Value: 1}}, {{Name: "jobs", Value: 2}}, nil}, sent)
	})
}

// TestMetricsOfABeatThatCameTooLate travel once more: it has entered nothing.
func TestMetricsOfABeatThatCameTooLate(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, stuck *stuckRegistry, _, _ func()) {
		var sent [][]store.Metric
		m.Registry.store = answeringRegistry{stuck, func(h store.Heartbeat, reply *store.HeartbeatReply) {
			if sent = append(sent, h.Metrics); len(sent) == 1 {
				reply.Verdict = membership.Stale
			}
		}}
		m.measured.Store(&[]store.Metric{{Name: "jobs", Value: 1}})
		m.beats()
		m.beats()
		require.Equal(m.w, [][]store.Metric{{{Name: "jobs", Value: 1}}, {{Name: "jobs", Value: 1}}, nil}, sent)
	})
}

// TestRecordOfAnotherRole: a record says what its process leads now, also if that is one role as
// before, and another one.
func TestRecordOfAnotherRole(t *testing.T) {
	opts, err := completed(func(o *Options) { o.InstanceID = "me" })
	require.NoError(t, err)
	leads := leadsNothing
	role := "first"
	leads.leading = func(roles []string) []string { return append(roles, role) }
	l := newBeatLoop(newRegistry(memstore.NewRegistry(), newEventBus("me"), opts, leads))
	for _, role = range []string{"first", "other", "third"} {
		l.compose()
		require.Contains(t, l.head+l.rest, `"`+role+`"`)
	}
}

// TestStopWaitsForTheBeatInFlight: what deregisters next must not be overtaken by it.
func TestStopWaitsForTheBeatInFlight(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, _ *stuckRegistry, hang, heal func()) {
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		hang()
		go func() { defer close(ended); m.Registry.beat(ctx) }()
		time.Sleep(time.Second)
		stop()
		synctest.Wait()
		select {
		case <-ended:
			m.w.Error("a beat is in flight")
		default:
		}
		heal()
		<-ended
		require.Equal(m.w, []string{"instance_registered"}, m.told())
		require.NoError(m.w, m.deregister(context.Background()))
		require.Empty(m.w, m.list())
	})
}

// TestHungSweepsAreBounded: neither do they hold up the end of the term.
func TestHungSweepsAreBounded(t *testing.T) {
	onStuckRegistry(t, func(m *registryInstance, store *stuckRegistry, hang, heal func()) {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		ended := make(chan error, 1)
		hang()
		term := validTerm(m.w.T)
		go func() { ended <- m.sweepLoop(ctx, term) }()
		time.Sleep(10 * time.Minute)
		require.Equal(m.w, maxRegistryCalls, store.made())
		require.Equal(m.w, []string{"sweep_failed", "calls_stuck 4"}, m.told())
		heal()
		time.Sleep(time.Minute)
		require.GreaterOrEqual(m.w, store.made(), maxRegistryCalls+5)
		hang()
		time.Sleep(11 * time.Second)
		stop()
		synctest.Wait()
		select {
		case err := <-ended:
			require.NoError(m.w, err)
		default:
			m.w.Error("it waits for a call")
		}
		heal()
	})
}

// TestRegistrySwitchedOff: who is not registered does not beat, who does not sweep does not sweep;
// both read.
func TestRegistrySwitchedOff(t *testing.T) {
	inRegistryBubble(t, func(f *registryBubble) {
		reader := f.member("reader", "reader", func(o *Options) { o.Registry.HeartbeatInterval, o.Registry.SweepInterval = -1, -1 })
		defer reader.leads()()
		f.member("a", "a")
		f.pass(time.Minute)
		f.crash("a")
		f.pass(20 * time.Minute)
		require.Equal(f, []string{"a down"}, reader.list())
		require.Equal(f, []string{"instance_joined a"}, reader.told())
		require.NoError(f, reader.deregister(context.Background()))
	})
}

// TestLocalRegistry: without Redis the registry is this process.
func TestLocalRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts, err := completed(func(o *Options) {
			o.InstanceID = "me"
			o.Registry.Metadata = map[string]string{"zone": "a"}
		})
		require.NoError(t, err)
		bus := newEventBus("me")
		r := newRegistry(memstore.NewRegistry(), bus, opts, leadsNothing)
		require.Regexp(t, `^[0-9a-f]{32}$`, r.incarnation)
		list, err := r.Instances(t.Context(), InstanceQuery{})
		require.NoError(t, err)
		require.Empty(t, list)
		_, err = r.Instance(t.Context(), "me")
		require.ErrorIs(t, err, ErrNotFound)

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.beat(ctx) }()
		term := validTerm(t)
		go func() { _ = r.sweepLoop(ctx, term) }()
		r.setStatus(InstanceActive)
		time.Sleep(time.Hour + time.Second)
		list, err = r.Instances(t.Context(), InstanceQuery{})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Less(t, list[0].Age, 16*time.Second)
		list[0].Age = 0
		require.InDelta(t, time.Hour, list[0].LastHeartbeat.Sub(list[0].StartedAt), float64(16*time.Second))
		me, err := r.Instance(t.Context(), "me")
		require.NoError(t, err)
		me.Age = 0
		require.Equal(t, list[0], me)
		require.Equal(t, map[string]string{"zone": "a"}, me.Metadata)
		require.Equal(t, InstanceActive, me.State)
		stop()
		<-ended
		require.NoError(t, r.deregister(t.Context()))
		counts, err := r.Counts(t.Context())
		require.NoError(t, err)
		require.Zero(t, counts)
		require.NoError(t, r.flush(time.Now().Add(time.Second)))
		require.NoError(t, bus.flush(time.Now().Add(time.Second)))
		synctest.Wait()
	})
}

func count(n int) *int { return &n }

// TestUpdate: what an instance says of itself changes while it runs: at once, or with the next
// heartbeat if that was just done. The limits are those of the options.
func TestUpdate(t *testing.T) {
	inCluster(t, func(c *cluster) {
		a := c.member("a", func(o *Options) { o.Registry.Metadata = map[string]string{"version": "1"} })
		read := func() (int, map[string]string) {
			i, err := a.Registry().Instance(context.Background(), "a")
			require.NoError(c, err)
			return i.WorkerCount, i.Metadata
		}
		says := func(workers int, metadata map[string]string) {
			c.Helper()
			gotWorkers, gotMetadata := read()
			require.Equal(c, workers, gotWorkers)
			require.Equal(c, metadata, gotMetadata)
			require.Equal(c, workers, a.Options().Registry.WorkerCount)
			require.Equal(c, metadata, a.Options().Registry.Metadata)
		}
		require.NoError(c, a.Registry().Update(InstanceUpdate{WorkerCount: count(3)}), "before Run")
		a.start()
		c.pass(20 * time.Second)
		says(3, map[string]string{"version": "1"})

		metadata := map[string]string{"version": "2", "zone": "x"}
		require.NoError(c, a.Registry().Update(InstanceUpdate{Metadata: metadata}))
		metadata["zone"] = "y"
		c.pass(20 * time.Millisecond)
		says(3, map[string]string{"version": "2", "zone": "x"})

		heartbeats := 0
		c.redis.Watch(func(_ time.Time, _, cmd string, args []string) {
			if strings.HasPrefix(strings.ToLower(cmd), "evalsha") && slices.Contains(args, "tenure:instance:a:heartbeat") {
				heartbeats++
			}
		})
		for range 100 {
			require.NoError(c, a.Registry().Update(InstanceUpdate{WorkerCount: count(7)}))
			c.pass(time.Millisecond)
		}
		workers, _ := read()
		require.Equal(c, 3, workers, "the last one is less than a second ago")
		c.pass(20 * time.Second)
		says(7, map[string]string{"version": "2", "zone": "x"})
		require.LessOrEqual(c, heartbeats, 2, "a flood of updates is no flood of heartbeats")
		require.NoError(c, a.Registry().Update(InstanceUpdate{Metadata: map[string]string{}}))
		c.pass(20 * time.Millisecond)
		workers, left := read()
		require.Equal(c, 7, workers)
		require.Empty(c, left)
		c.pass(time.Second)
		require.NoError(c, a.Registry().Update(InstanceUpdate{WorkerCount: count(0)}))
		c.pass(20 * time.Millisecond)
		workers, _ = read()
		require.Zero(c, workers, "none, which is not as it was")
		require.NoError(c, a.Registry().Update(InstanceUpdate{WorkerCount: count(7)}))

		for field, wrong := range map[string]InstanceUpdate{
			"InstanceUpdate.WorkerCount": {WorkerCount: count(-1), Metadata: map[string]string{"a": "b"}},
			"InstanceUpdate.Metadata":    {WorkerCount: count(9), Metadata: map[string]string{"a": strings.Repeat("x", 4096)}},
		} {
			err := a.Registry().Update(wrong)
			require.ErrorIs(c, err, ErrMisconfigured)
			require.ErrorContains(c, err, field)
		}
		require.Equal(c, 7, a.Options().Registry.WorkerCount, "what is refused changes nothing")
		require.Empty(c, a.Options().Registry.Metadata)
		_, err := a.stop()
		require.NoError(c, err)
		require.ErrorIs(c, a.Registry().Update(InstanceUpdate{WorkerCount: count(0)}), ErrStopped)
	})
}

// TestBeatWritesTheContract holds what other programs read.
func TestBeatWritesTheContract(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("pod-0", func(o *Options) {
			o.Registry.WorkerCount, o.Registry.Host = 4, "node-1"
			o.Registry.Metadata = map[string]string{"status": "x", "incarnation": "y", "zone": `a"b`}
		})
		ctx, before := w.Context(), w.now()
		m.beats()
		after := w.now()
		require.Equal(w, []string{"instance_registered"}, m.told())

		record := w.record("pod-0")
		form := regexp.MustCompile(`^\{"instance_id":"pod-0","started_at":(\d+),"last_heartbeat":(\d+),"status":"joining","worker_count":4,` +
			`"incarnation":"pod-0-1","host":"node-1","metadata":\{"incarnation":"y","status":"x","zone":"a\\"b"\}\}$`)
		found := form.FindStringSubmatch(record)
		require.NotNil(w, found, record)
		require.True(w, json.Valid([]byte(record)))
		started, _ := strconv.ParseInt(found[1], 10, 64)
		require.Equal(w, found[1], found[2])
		require.True(w, before/1000 <= started && started <= after/1000)

		require.Equal(w, found[2], w.rdb.Get(ctx, "waf:cluster:instance:pod-0:heartbeat").Val())
		ttl := w.rdb.PTTL(ctx, "waf:cluster:instance:pod-0:heartbeat").Val()
		require.InDelta(w, 90, ttl.Seconds(), 10)
		score := w.rdb.ZScore(ctx, "waf:cluster:beats", "pod-0").Val()
		require.True(w, float64(before) <= score && score <= float64(after))

		m.setStatus(InstanceActive)
		m.beats()
		require.Empty(w, m.told())
		require.Equal(w, strings.Replace(record, "joining", "active", 1), regexp.MustCompile(`"last_heartbeat":\d+`).ReplaceAllString(w.record("pod-0"), `"last_heartbeat":`+found[2]))

		i, err := m.Instance(ctx, "pod-0")
		require.NoError(w, err)
		require.Equal(w, "pod-0-1", i.Incarnation)
		require.Equal(w, m.incarnation, i.Incarnation)
		require.Equal(w, InstanceActive, i.State)
		require.Equal(w, 4, i.WorkerCount)
		require.Equal(w, map[string]string{"status": "x", "incarnation": "y", "zone": `a"b`}, i.Metadata)
		require.Equal(w, started, i.StartedAt.Unix())
		require.Less(w, i.Age, 10*time.Second)
	})
}

// TestCrowdOfHeartbeatsIsCounted: an instance hears with each heartbeat how many there are, and
// after failures tries again the later the more they are.
func TestCrowdOfHeartbeatsIsCounted(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		const others = 4_000
		pipe := w.rdb.Pipeline()
		for i := range others {
			pipe.ZAdd(w.Context(), "waf:cluster:beats", redis.Z{Score: float64(w.now()), Member: fmt.Sprint("other-", i)})
		}
		_, err := pipe.Exec(w.Context())
		require.NoError(w, err)
		m := w.member("pod-0")
		for round := range 2 { // the first heartbeat runs the whole script, the next one its shortcut
			m.setStatus(InstanceActive)
			m.beats()
			now := monotonic()
			for range 2 {
				m.beatLoop.beat.Nudge()
				h, due := m.beatLoop.beat.Next(now)
				require.True(w, due)
				m.beatLoop.beat.Failed(now, h, false)
			}
			require.Equal(w, time.Second*7/8+(others+1)*time.Millisecond/2, m.beatLoop.beat.Wait(now), "round %d", round)
		}
	})
}

func TestBeatOfARemovedInstanceRegistersItAgain(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("pod-0")
		m.beats()
		started := regexp.MustCompile(`"started_at":\d+`).FindString(w.record("pod-0"))
		require.NoError(w, w.rdb.FlushAll(w.Context()).Err())
		m.told()
		m.beats()
		require.Equal(w, []string{"instance_registered"}, m.told())
		require.Contains(w, w.record("pod-0"), started, "the process did not start again")
		require.Equal(w, []string{"pod-0 active"}, m.list())
	})
}

func TestBeatOfADriftedInstanceRecovers(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m, leader := w.member("pod-0"), w.member("leader")
		m.beats()
		m.told()
		s := leader.watched()
		w.silence(70*time.Second, "pod-0")
		leader.pass(s)
		require.Equal(w, []string{"instance_drifted pod-0"}, leader.told())
		require.Contains(w, w.record("pod-0"), `"status":"drifted"`)
		require.Equal(w, []string{"pod-0 drifted"}, leader.list())
		leader.pass(s)
		require.Empty(w, leader.told(), "once")
		m.beats()
		require.Equal(w, []string{"instance_recovered pod-0"}, m.told())
		require.Equal(w, []string{"pod-0 active"}, leader.list())
	})
}

// TestLateBeatChangesNothing: a beat that comes after it was given up is refused.
func TestLateBeatChangesNothing(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		require.Equal(w, "stale", w.lateBeat())
		require.Zero(w, w.rdb.Exists(w.Context(), "waf:cluster:instances").Val())
	})
}

func (w *registryCluster) lateBeat() string {
	m := w.member("a")
	m.beats()
	require.NoError(w, m.deregister(w.Context()))
	reply, err := m.store.Heartbeat(w.Context(), store.Heartbeat{ID: "a", Incarnation: "a-1", NotAfter: w.now() - 1, TTL: 90 * time.Second, Head: "{", Rest: "}"})
	require.NoError(w, err)
	return string(reply.Verdict)
}

// TestBeatAfterAClockStep: if Redis's clock was set, a beat looks late and is sent once more.
func TestBeatAfterAClockStep(t *testing.T) {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	w := &registryCluster{T: t, rdb: client}
	a := w.member("a")
	now := time.Now()
	for _, step := range []time.Duration{0, time.Hour, -time.Hour} {
		m.SetTime(now.Add(step))
		a.beats()
		require.Equal(t, now.Add(step).UnixMilli(), int64(client.ZScore(t.Context(), "waf:cluster:beats", "a").Val()))
	}
	require.Equal(t, []string{"instance_registered"}, a.told())

	m.SetTime(now.Add(-24 * time.Hour)) // a dead one must not stay for a day longer
	leader := w.member("leader")
	leader.pass(leader.watched())
	require.Equal(t, now.Add(-24*time.Hour).UnixMilli(), int64(client.ZScore(t.Context(), "waf:cluster:beats", "a").Val()))
}

func TestDeregisterLeavesAnotherIncarnation(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		require.Contains(w, w.leaveOfAReplacedIncarnation(), `"incarnation":"new"`)
	})
}

func (w *registryCluster) leaveOfAReplacedIncarnation() string {
	older := w.start("pod", func() string { return "old" })
	younger := w.start("pod", func() string { return "new" })
	older.beats()
	younger.beats()
	require.NoError(w, older.deregister(w.Context()))
	return w.record("pod")
}

func TestDeregister(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("a")
		require.NoError(w, m.deregister(w.Context()), "nothing was registered")
		m = w.member("a")
		m.beats()
		m.told()
		require.NoError(w, m.deregister(w.Context()))
		require.Equal(w, []string{"instance_left a"}, m.told())
		require.NoError(w, m.deregister(w.Context()))
		require.Empty(w, m.told())
		require.Equal(w, []string{"waf:cluster:log"}, w.rdb.Keys(w.Context(), "*").Val())
		done := make(chan struct{})
		go func() { defer close(done); m.Registry.beat(w.Context()) }()
		<-done // it does not beat any more
		require.Equal(w, []string{"waf:cluster:log"}, w.rdb.Keys(w.Context(), "*").Val())
	})
}

func TestDuplicateID(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		older := w.start("pod", func() string { return "old" })
		younger := w.start("pod", func() string { return "new" })
		hints := w.hints()
		older.beats()
		younger.beats()
		require.Equal(w, []string{"instance_registered"}, older.told())
		require.Equal(w, []string{"instance_registered"}, younger.told())
		older.beats()
		older.beats()
		require.Equal(w, []string{"instance_duplicated new"}, older.told(), "once")
		require.Contains(w, w.record("pod"), `"incarnation":"new"`)
		for range 4 {
			h := hints()
			younger.hint(h)
			older.hint(h)
		}
		require.Equal(w, []string{"instance_joined pod", "instance_duplicated old"}, younger.told(), "the other hears of it, once")
		require.Equal(w, []string{"instance_joined pod"}, older.told())

		w.silence(61*time.Second, "pod") // the younger one is gone, or frozen
		older.beats()
		require.Equal(w, []string{"instance_registered"}, older.told())
		younger.beats()
		require.Equal(w, []string{}, younger.told(), "the same other one")
		older.beats()
		require.Empty(w, older.told())

		w.foreign("pod", `{"status":"active"}`) // a program that knows of no incarnations uses the ID too
		older.beats()
		require.Equal(w, []string{"instance_duplicated"}, older.told())
		require.Contains(w, w.record("pod"), `"incarnation":"old"`)
	})
}
