package tenure

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// The benchmarks measure tenure beside the bare command in the same run and report the ratio as
// "×floor". They assert nothing about time: machines differ and are shared. `make benchmarks` runs
// them; docs/performance.md has figures.

// beside times ours and the floor in turns, so that a machine whose speed drifts slows both down.
func beside(b *testing.B, floor, ours func()) {
	const batch = 512
	var bare, own time.Duration
	for b.Loop() {
		began := time.Now()
		for range batch {
			floor()
		}
		between := time.Now()
		for range batch {
			ours()
		}
		own += time.Since(between)
		bare += between.Sub(began)
	}
	calls := float64(b.N * batch)
	b.ReportMetric(0, "ns/op") // of a batch: says nothing
	b.ReportMetric(float64(bare.Nanoseconds())/calls, "floor-ns")
	b.ReportMetric(float64(own.Nanoseconds())/calls, "ours-ns")
	b.ReportMetric(float64(own)/float64(bare), "×floor")
}

var sink atomic.Int64

func leading(b testing.TB) *Elector {
	e := &Elector{}
	first := lease.Lease{Sent: readClock(), Life: time.Hour, Guard: time.Second}
	t := begin(b.Context(), Term{}, first, func() {})
	b.Cleanup(func() { t.end(ErrStopped) })
	e.loop.current.Store(t)
	return e
}

func BenchmarkIsLeader_Leading(b *testing.B) {
	e := leading(b)
	var until atomic.Pointer[time.Time]
	in := time.Now().Add(time.Hour)
	until.Store(&in)
	beside(b, func() {
		if time.Now().After(*until.Load()) {
			sink.Add(1)
		}
	}, func() {
		if !e.IsLeader() {
			sink.Add(1)
		}
	})
	b.ReportMetric(testing.AllocsPerRun(1000, func() { e.IsLeader() }), "ours-allocs")
}

func BenchmarkIsLeader_Following(b *testing.B) {
	e := &Elector{}
	var flag atomic.Pointer[time.Time]
	beside(b, func() {
		if flag.Load() != nil {
			sink.Add(1)
		}
	}, func() {
		if e.IsLeader() {
			sink.Add(1)
		}
	})
	b.ReportMetric(testing.AllocsPerRun(1000, func() { e.IsLeader() }), "ours-allocs")
}

func BenchmarkIsLeader_Alone(b *testing.B) {
	e := leading(b)
	for b.Loop() {
		e.IsLeader()
	}
}

func BenchmarkIsLeader_Parallel(b *testing.B) {
	e := leading(b)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			e.IsLeader()
		}
	})
}

// guarded is what any lease library has to run at least.
var guarded = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`)

// storeFor returns the lease store of one role on a server of its own.
func storeFor(b testing.TB) (*redis.Client, *redisstore.Lease) {
	rdb := redistest.Start(b).Client(b)
	var c checker
	opts := Options{Namespace: "tenure", InstanceID: "bench", Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1, EmptyHistoryWait: -1}}}.complete(&c)
	store := newRedisStore(rdb, &c, opts)
	require.NoError(b, c.err())
	return rdb, store.ForRole(opts.Election.role(opts.Namespace, opts.InstanceID))
}

// spentByRedis is what Redis spent on the calls of one command since the last reset of its
// statistics, per call.
func spentByRedis(b testing.TB, rdb *redis.Client, command string) (calls int, each time.Duration) {
	info, err := rdb.Info(b.Context(), "commandstats").Result()
	require.NoError(b, err)
	found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+),usec=(\d+)`).FindStringSubmatch(info)
	require.NotNil(b, found, "no calls of %s", command)
	calls, _ = strconv.Atoi(found[1])
	spent, _ := strconv.Atoi(found[2])
	return calls, time.Duration(spent) * time.Microsecond / time.Duration(calls)
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

func BenchmarkRenew(b *testing.B) {
	rdb, store := storeFor(b)
	ctx := b.Context()
	won, err := store.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: 30 * time.Second})
	require.NoError(b, err)
	require.Equal(b, lease.Won, won.Verdict)
	request := lease.Request{Nonce: "n", Token: won.Token, HoldOff: 30 * time.Second, NotAfter: won.Now + 1e9, Origin: won.Origin, Since: won.Since}
	rdb.Set(ctx, "bare", "bench", 0)
	floor := func() { guarded.Run(ctx, rdb, []string{"bare"}, "bench", 30000) }
	ours := func() { _, _ = store.Renew(ctx, request) }
	floor()
	beside(b, floor, ours)
	b.ReportMetric(testing.AllocsPerRun(500, floor), "floor-allocs")
	b.ReportMetric(testing.AllocsPerRun(500, ours), "ours-allocs")
	spent := func(call func()) (each time.Duration) {
		rdb.ConfigResetStat(ctx)
		for range 500 {
			call()
		}
		_, each = spentByRedis(b, rdb, "evalsha")
		return each
	}
	var bare, own time.Duration
	for range 8 { // in turns too
		bare += spent(floor)
		own += spent(ours)
	}
	b.ReportMetric(microseconds(bare/8), "floor-redis-µs")
	b.ReportMetric(microseconds(own/8), "redis-µs")
	b.ReportMetric(float64(own)/float64(bare), "×floor-redis")
}

func BenchmarkAcquireRelease(b *testing.B) {
	rdb, store := storeFor(b)
	ctx := b.Context()
	floor := func() {
		rdb.SetNX(ctx, "bare", "bench", 30*time.Second)
		guarded.Run(ctx, rdb, []string{"bare"}, "bench", 0)
	}
	var floorToken int64
	ours := func() {
		won, _ := store.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: 30 * time.Second, Floor: floorToken})
		floorToken = won.Token
		_, _ = store.Release(ctx, lease.Request{Nonce: "n", Token: won.Token})
	}
	floor()
	ours()
	beside(b, floor, ours)
	b.ReportMetric(testing.AllocsPerRun(500, floor), "floor-allocs")
	b.ReportMetric(testing.AllocsPerRun(500, ours), "ours-allocs")
	rdb.ConfigResetStat(ctx)
	for range 1000 {
		ours()
	}
	calls, each := spentByRedis(b, rdb, "evalsha")
	b.ReportMetric(float64(calls)/1000, "round-trips")
	b.ReportMetric(microseconds(each), "redis-µs")
}

// TestSizeOfARole: a process may lead thousands of roles, so what one weighs is no accident. Each
// is of a size class of the allocator; the next one costs 256 or 64 bytes more.
func TestSizeOfARole(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(Elector{}), uintptr(1536))
	require.LessOrEqual(t, unsafe.Sizeof(lease.Candidate{}), uintptr(704))
}

// TestImportCostsLittle: a program that imports tenure does not wait for it at its start. Scripts
// that are loaded, and expressions that count to a hundred, took 28,000 allocations and tens of
// milliseconds.
func TestImportCostsLittle(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", trace)
	all := regexp.MustCompile(`(?m)^init github\.com/tenure-go/tenure(?:/internal/(?:cron|lease|memstore|redisstore|store))? @.* (\d+) allocs$`).FindAllStringSubmatch(string(trace), -1)
	require.GreaterOrEqual(t, len(all), 3)
	sum := 0
	for _, found := range all {
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		sum += n
	}
	require.Less(t, sum, 2000, "%s", trace)
}

// What a renewal, and an acquire with its release, may cost the process: round trips, and
// allocations of the client included.
func TestAllocations(t *testing.T) {
	if testing.Short() {
		t.Skip("needs redis-server")
	}
	if simnet.Race {
		t.Skip("the race detector allocates")
	}
	rdb, store := storeFor(t)
	ctx := t.Context()
	var token int64
	pair := func() {
		won, _ := store.Acquire(ctx, lease.Request{Nonce: "n", HoldOff: 30 * time.Second, Floor: token})
		token = won.Token
		_, _ = store.Release(ctx, lease.Request{Nonce: "n", Token: won.Token})
	}
	pair()
	require.LessOrEqual(t, testing.AllocsPerRun(500, pair), 34.0)

	won, err := store.Acquire(ctx, lease.Request{Nonce: "m", HoldOff: 30 * time.Second, Floor: token})
	require.NoError(t, err)
	renew := func() {
		_, _ = store.Renew(ctx, lease.Request{Nonce: "m", Token: won.Token, HoldOff: 30 * time.Second, NotAfter: won.Now + 1e9,
			Origin: won.Origin, Since: won.Since})
	}
	renew()
	require.LessOrEqual(t, testing.AllocsPerRun(500, renew), 9.0)

	rdb.ConfigResetStat(ctx)
	renew()
	pair()
	calls, _ := spentByRedis(t, rdb, "evalsha")
	require.Equal(t, 3, calls, "one round trip each")
}

// populated puts instances into the registry, each with a beat of so long ago.
func populated(b *testing.B, count int, silence func(i int) time.Duration) (*redis.Client, *Registry, store.Look) {
	rdb := redistest.Start(b).Client(b)
	var c checker
	opts := Options{Namespace: "tenure", InstanceID: "bench"}.complete(&c)
	db := newRedisStore(rdb, &c, opts)
	require.NoError(b, c.err())
	now := time.Now()
	for first := 0; first < count; first += 1000 {
		pipe := rdb.Pipeline()
		for i := first; i < min(first+1000, count); i++ {
			id := fmt.Sprint("instance-", i)
			pipe.HSet(b.Context(), store.Keys(opts.Namespace).Instances(), id, `{"instance_id":"`+id+`","started_at":1,"last_heartbeat":1,"status":"active","worker_count":1,"incarnation":"x"}`)
			pipe.ZAdd(b.Context(), store.Keys(opts.Namespace).Beats(), redis.Z{Score: float64(now.Add(-silence(i)).UnixMilli()), Member: id})
		}
		_, err := pipe.Exec(b.Context())
		require.NoError(b, err)
	}
	r := newRegistry(db, newEventBus("bench"), opts, leadsNothing)
	return rdb, r, store.Look{Silence: opts.Registry.DriftedAfter / 2}
}

// foreign replaces the records of populated by what another program writes.
func foreign(b *testing.B, rdb *redis.Client, count int) {
	for first := 0; first < count; first += 1000 {
		pipe := rdb.Pipeline()
		for i := first; i < min(first+1000, count); i++ {
			id := fmt.Sprint("instance-", i)
			pipe.HSet(b.Context(), store.Keys("tenure").Instances(), id, `{"instance_id":"`+id+`","started_at":1,"last_heartbeat":1,"status":"draining","worker_count":1}`)
		}
		_, err := pipe.Exec(b.Context())
		require.NoError(b, err)
	}
}

// sizes are the namespaces that what is to cost the same at any size is measured in.
var sizes = []int{10_000, 100_000}

func BenchmarkBeat(b *testing.B) {
	for _, count := range sizes {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			rdb, r, _ := populated(b, count, func(int) time.Duration { return 0 })
			l := newBeatLoop(r)
			ctx := b.Context()
			send := func() {
				l.beat.Nudge()
				for h, due := l.beat.Next(monotonic()); due; h, due = l.beat.Next(monotonic()) {
					l.send(ctx, h, nil)
				}
			}
			for b.Loop() {
				send()
			}
			require.False(b, l.faults.reported)
			rdb.ConfigResetStat(ctx)
			for range 2000 {
				send()
			}
			_, each := spentByRedis(b, rdb, "evalsha")
			b.ReportMetric(microseconds(each), "redis-µs")
		})
	}
}

// One pass over all instances: what Redis spends on a call with none overdue, and with a hundred.
func BenchmarkSweep(b *testing.B) {
	for _, count := range sizes {
		for _, overdue := range []int{0, 100} {
			b.Run(fmt.Sprintf("%d/overdue=%d", count, overdue), func(b *testing.B) {
				rdb, r, look := populated(b, count, func(i int) time.Duration {
					if i < overdue {
						return 2 * time.Minute
					}
					return 0
				})
				ctx := b.Context()
				e := leading(b)
				term, _ := TermFrom(e.loop.current.Load().ctx)
				sweeper := &testSweeper{}
				sweeper.sweeper = newSweeper(r, term, func() time.Duration { return monotonic() + sweeper.ahead })
				rdb.ConfigResetStat(ctx)
				for range 100 { // first, while none is silent that is not meant to be
					_, err := r.store.Look(ctx, look)
					require.NoError(b, err)
				}
				_, each := spentByRedis(b, rdb, "evalsha")
				var call time.Duration
				if overdue > 0 {
					rdb.ConfigResetStat(ctx)
					for range 20 {
						require.NoError(b, sweeper.pass(ctx))
					}
					_, call = spentByRedis(b, rdb, "evalsha")
				}
				for b.Loop() {
					require.NoError(b, sweeper.pass(ctx))
				}
				b.ReportMetric(microseconds(each), "look-redis-µs")
				if overdue > 0 {
					b.ReportMetric(microseconds(call), "call-redis-µs")
				}
			})
		}
	}
}

// What a Watch costs that has listed all, once nothing has changed since.
func BenchmarkUnchanged(b *testing.B) {
	for _, count := range sizes {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			rdb, r, _ := populated(b, count, func(int) time.Duration { return 0 })
			ctx := b.Context()
			require.NoError(b, rdb.XAdd(ctx, &redis.XAddArgs{Stream: store.Keys("tenure").Log(), Values: []any{"event", "joined", "instances", "a"}}).Err())
			w := &watch{r: r, wake: newWakeup()}
			listed := 0
			look := func() {
				require.True(b, w.turn(ctx, func(c Change, err error) bool {
					listed += len(c.Instances)
					return assert.NoError(b, err)
				}))
			}
			look()
			require.Equal(b, count, listed)
			for b.Loop() {
				look()
			}
			rdb.ConfigResetStat(ctx)
			for range 2000 {
				look()
			}
			_, each := spentByRedis(b, rdb, "evalsha")
			b.ReportMetric(microseconds(each), "redis-µs")
			require.Equal(b, count, listed, "nothing was listed again")
		})
	}
}

// The counts by the index, and those by a listing: what Redis spends on one.
func BenchmarkCounts(b *testing.B) {
	for _, count := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			rdb, r, _ := populated(b, count, func(i int) time.Duration { return time.Duration(i%100) * time.Second })
			ctx := b.Context()
			var indexed, listed Counts
			var err error
			for b.Loop() {
				indexed, err = r.Counts(ctx)
				require.NoError(b, err)
			}
			rdb.ConfigResetStat(ctx)
			for range 1000 {
				_, err = r.Counts(ctx)
				require.NoError(b, err)
			}
			_, each := spentByRedis(b, rdb, "evalsha")
			b.ReportMetric(microseconds(each), "redis-µs")
			rdb.ConfigResetStat(ctx)
			listed, err = r.listedCounts(ctx)
			require.NoError(b, err)
			pages, each := spentByRedis(b, rdb, "evalsha")
			b.ReportMetric(float64(pages)*microseconds(each), "listing-redis-µs")
			require.Equal(b, listed.Total, indexed.Total)
		})
	}
}

// How long scripts of the registry hold a Redis of 100,000 instances, by its slow log: a listing,
// the counts, and passes over all of them, silent at once, and not adopted. Of each the longest
// call, the 90th percentile and the median of those above 200 µs: the slow log counts the time for
// which a busy machine ran something else.
func BenchmarkLongestScript(b *testing.B) {
	const count = 100_000
	for b.Loop() {
		rdb, r, _ := populated(b, count, func(i int) time.Duration { return 2 * time.Minute })
		ctx := b.Context()
		require.NoError(b, rdb.Do(ctx, "config", "set", "slowlog-log-slower-than", "200", "slowlog-max-len", "100000").Err())
		longest := func(what string, act func()) {
			require.NoError(b, rdb.Do(ctx, "slowlog", "reset").Err())
			act()
			entries, err := rdb.SlowLogGet(ctx, -1).Result()
			require.NoError(b, err)
			var took []time.Duration
			for _, e := range entries {
				if strings.HasPrefix(strings.ToLower(e.Args[0]), "eval") {
					took = append(took, e.Duration)
				}
			}
			slices.SortFunc(took, func(x, y time.Duration) int { return cmp.Compare(y, x) })
			if len(took) > 0 {
				b.ReportMetric(microseconds(took[0]), what+"-max-µs")
				b.ReportMetric(microseconds(took[len(took)/10]), what+"-p90-µs")
				b.ReportMetric(microseconds(took[len(took)/2]), what+"-p50-µs")
			}
		}
		longest("list", func() { _, err := r.Instances(ctx, InstanceQuery{}); require.NoError(b, err) })
		longest("count", func() { _, err := r.Counts(ctx); require.NoError(b, err) })
		e := leading(b)
		term, _ := TermFrom(e.loop.current.Load().ctx)
		sweeper := &testSweeper{}
		sweeper.sweeper = newSweeper(r, term, func() time.Duration { return monotonic() + sweeper.ahead })
		sweeper.watches(b, r.opts.DownAfter)
		longest("sweep", func() { require.NoError(b, sweeper.pass(ctx)) })
		for _, record := range []string{"adopt", "adopt-foreign"} {
			if record == "adopt-foreign" {
				foreign(b, rdb, count)
			}
			require.NoError(b, rdb.Del(ctx, store.Keys(r.namespace).Beats()).Err())
			longest(record, func() { require.NoError(b, sweeper.pass(ctx)) })
			require.EqualValues(b, count, rdb.ZCard(ctx, store.Keys(r.namespace).Beats()).Val())
		}
	}
}

// What hints cost a Redis that a thousand processes listen to: a thousand instances that drift, and
// a thousand that join. Of each the longest script and the median, all scripts together, and the
// hints sent.
func BenchmarkHints(b *testing.B) {
	const many = 1000
	for b.Loop() {
		rdb, r, _ := populated(b, many, func(int) time.Duration { return 2 * time.Minute })
		ctx := b.Context()
		listening(b, rdb.Options().Addr, store.Keys(r.namespace).Events(), many)
		require.NoError(b, rdb.Do(ctx, "config", "set", "slowlog-log-slower-than", "0", "slowlog-max-len", "100000").Err())
		measure := func(what string, act func()) {
			require.NoError(b, rdb.Do(ctx, "slowlog", "reset").Err())
			require.NoError(b, rdb.ConfigResetStat(ctx).Err())
			act()
			sent, _ := spentByRedis(b, rdb, "publish")
			entries, err := rdb.SlowLogGet(ctx, -1).Result()
			require.NoError(b, err)
			var took []time.Duration
			all := time.Duration(0)
			for _, e := range entries {
				if strings.HasPrefix(strings.ToLower(e.Args[0]), "eval") {
					took = append(took, e.Duration)
					all += e.Duration
				}
			}
			slices.Sort(took)
			b.ReportMetric(microseconds(took[len(took)-1]), what+"-max-µs")
			b.ReportMetric(microseconds(took[len(took)/2]), what+"-p50-µs")
			b.ReportMetric(microseconds(all)/1000, what+"-all-ms")
			b.ReportMetric(float64(sent), what+"-hints")
		}
		e := leading(b)
		term, _ := TermFrom(e.loop.current.Load().ctx)
		sweeper := &testSweeper{}
		sweeper.sweeper = newSweeper(r, term, func() time.Duration { return monotonic() + sweeper.ahead })
		sweeper.watches(b, r.opts.DownAfter)
		measure("drift", func() { require.NoError(b, sweeper.pass(ctx)) })
		measure("join", func() {
			for i := range many {
				id := fmt.Sprint("new-", i)
				_, err := r.store.Heartbeat(ctx, store.Heartbeat{
					ID: id, Incarnation: "x", First: true, TTL: time.Minute, Head: `{"instance_id":"` + id + `","started_at":`, Rest: `,"status":"active","worker_count":0,"incarnation":"x"}`,
				})
				require.NoError(b, err)
			}
		})
	}
}

// listening subscribes so many connections to a channel, and reads what arrives.
func listening(b *testing.B, addr, channel string, count int) {
	b.Helper()
	for range count {
		conn, err := net.Dial("tcp", addr)
		require.NoError(b, err)
		b.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", channel)
		require.NoError(b, err)
		reply := make([]byte, 4096)
		_, err = conn.Read(reply)
		require.NoError(b, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends when the connection is closed
	}
}

// electors runs electors that report on a channel when they begin to lead.
type electors struct {
	b     *testing.B
	redis *redistest.Server
	opts  ElectionOptions
	led   chan *benched
	count int
}

// benched is one elector on a client of its own.
type benched struct {
	*Elector
	rdb    *redis.Client
	cancel func()
	done   chan struct{}
	at     time.Time // it began to lead
}

func (s *electors) start() *benched {
	s.count++
	x := &benched{rdb: redis.NewClient(s.redis.Options()), done: make(chan struct{})}
	e, err := NewElector(x.rdb, ElectorOptions{Namespace: "tenure", InstanceID: fmt.Sprint("bench-", s.count), Election: s.opts, ShutdownTimeout: 2 * time.Second})
	require.NoError(s.b, err)
	x.Elector = e
	ctx, cancel := context.WithCancel(context.Background())
	x.cancel = cancel
	go func() { // ends with cancel; stop waits for it
		defer close(x.done)
		_ = e.Run(ctx, func(ctx context.Context, _ Term) error {
			x.at = time.Now()
			s.led <- x
			<-ctx.Done()
			return nil
		})
	}()
	return x
}

// crash takes Redis away from an elector, as a SIGKILL would: its lease is left behind.
func (x *benched) crash() {
	_ = x.rdb.Close()
	x.stop()
}

func (x *benched) stop() {
	x.cancel()
	<-x.done
	_ = x.rdb.Close()
}

const rounds = 50 // of one iteration: percentiles want some

// percentiles reports p50, p90 and p99 in milliseconds.
func percentiles(b *testing.B, what string, all []time.Duration) {
	slices.Sort(all)
	for _, p := range []int{50, 90, 99} {
		b.ReportMetric(microseconds(all[min(len(all)*p/100, len(all)-1)])/1000, fmt.Sprintf("%sp%d-ms", what, p))
	}
	b.ReportMetric(0, "ns/op")
}

// The time from the end of a dead leader's lease until another leads.
func BenchmarkTakeOver(b *testing.B) {
	for _, followers := range []int{1, 10} {
		for _, others := range []int{0, 100_000} {
			b.Run(fmt.Sprintf("followers=%d/keys=%d", followers, others), func(b *testing.B) { takeOver(b, followers, others) })
		}
	}
}

func takeOver(b *testing.B, followers, others int) {
	s := &electors{b: b, redis: redistest.Start(b), led: make(chan *benched, 1), opts: ElectionOptions{LeaseTTL: 300 * time.Millisecond, Safety: SafetyOptions{RestartGuard: -1}}}
	asking := s.redis.Client(b)
	ctx := context.Background()
	for i := 0; i < others; i += 1000 {
		pipe := asking.Pipeline()
		for j := range 1000 {
			pipe.Set(ctx, fmt.Sprint("other:", i+j), "x", time.Hour)
		}
		_, err := pipe.Exec(ctx)
		require.NoError(b, err)
	}
	running := map[*benched]bool{}
	for range followers + 1 {
		running[s.start()] = true
	}
	leader := <-s.led
	var all []time.Duration
	for b.Loop() {
		for range rounds {
			before := time.Now()
			left, err := asking.PTTL(ctx, "tenure:leader").Result()
			require.NoError(b, err)
			end := before.Add(left)
			delete(running, leader)
			go leader.crash() // ends within the shutdown bound; it has no server to wait for
			leader = <-s.led
			all = append(all, leader.at.Sub(end))
			running[s.start()] = true
		}
	}
	percentiles(b, "", all)
	for x := range running {
		x.stop()
	}
}

// The time from Resign until another leads, beside what a message takes, and beside what it takes
// until whoever hears it has been answered a SET over a connection that was idle.
func BenchmarkHandOver(b *testing.B) {
	s := &electors{b: b, redis: redistest.Start(b), led: make(chan *benched, 1), opts: ElectionOptions{LeaseTTL: time.Second, Safety: SafetyOptions{RestartGuard: -1}}}
	asking := s.redis.Client(b)
	ctx := context.Background()
	var running []*benched
	for range 11 {
		running = append(running, s.start())
	}
	leader := <-s.led
	sub := asking.Subscribe(ctx, "bare")
	_, err := sub.Receive(ctx)
	require.NoError(b, err)
	taking := s.redis.Client(b)
	var all, bare, taken []time.Duration
	for b.Loop() {
		for range rounds {
			began := time.Now()
			require.NoError(b, asking.Publish(ctx, "bare", "x").Err())
			_, err := sub.ReceiveMessage(ctx)
			require.NoError(b, err)
			bare = append(bare, time.Since(began))
			require.NoError(b, taking.Set(ctx, "bare", "x", time.Second).Err())
			taken = append(taken, time.Since(began))

			began = time.Now()
			go func() { _ = leader.Resign(ctx) }() // ends when the lease is released
			leader = <-s.led
			all = append(all, leader.at.Sub(began))
			<-time.After(60 * time.Millisecond) // some stand back for 500 ms, others must be there
		}
	}
	percentiles(b, "floor-", bare)
	percentiles(b, "floor-set-", taken)
	percentiles(b, "", all)
	require.NoError(b, sub.Close())
	for _, x := range running {
		x.stop()
	}
}

// The commands that an idle election costs Redis: one leader and ten followers with the default
// lease.
func BenchmarkIdle(b *testing.B) {
	s := &electors{b: b, redis: redistest.Start(b), led: make(chan *benched, 1), opts: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}}}
	asking := s.redis.Client(b)
	ctx := context.Background()
	var running []*benched
	for range 11 {
		running = append(running, s.start())
	}
	<-s.led
	const span = 30 * time.Second
	for b.Loop() {
		<-time.After(2 * time.Second) // for what the start has caused
		asking.ConfigResetStat(ctx)
		<-time.After(span)
		info, err := asking.Info(ctx, "commandstats").Result()
		require.NoError(b, err)
		total := 0
		for _, found := range regexp.MustCompile(`cmdstat_(evalsha|ping|publish|subscribe):calls=(\d+)`).FindAllStringSubmatch(info, -1) {
			calls, _ := strconv.Atoi(found[2]) // of publish: the checks of the subscriptions; no script sends a hint here
			total += calls
		}
		b.ReportMetric(float64(total)/span.Seconds(), "commands/s")
		b.ReportMetric(1.1, "floor-commands/s")
	}
	b.ReportMetric(0, "ns/op")
	for _, x := range running {
		x.stop()
	}
}

// What an idle instance holds: heap and goroutines beside those of its Redis client and of Run's
// caller. It follows: the leader is another one.
func BenchmarkFootprint(b *testing.B) {
	server := redistest.Start(b)
	const instances = 50
	clients := make([]*redis.Client, instances)
	for i := range clients {
		clients[i] = server.Client(b)
		// As many connections as a run ever has at a time: those that one run needs and the one
		// before did not are the client's too.
		var open []*redis.Conn
		for range 4 {
			conn := clients[i].Conn()
			require.NoError(b, conn.Ping(b.Context()).Err())
			open = append(open, conn)
		}
		for _, conn := range open {
			require.NoError(b, conn.Close())
		}
	}
	leads := &electors{b: b, redis: server, led: make(chan *benched, 1), opts: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}}}
	leader := leads.start()
	<-leads.led
	defer leader.stop()
	// run runs an instance on each client, and looks at them once they idle.
	run := func(look func()) {
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, instances)
		for i, rdb := range clients {
			c, err := New(rdb, Options{Namespace: "tenure", InstanceID: fmt.Sprint("idle-", i), Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}}})
			require.NoError(b, err)
			go func() { done <- c.Run(ctx) }() // Run's caller; ends with cancel
		}
		<-time.After(3 * time.Second)
		look()
		cancel()
		for range instances {
			require.NoError(b, <-done)
		}
	}
	measure := func() (heap uint64, goroutines int) {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		goroutines = runtime.NumGoroutine()
		for range 20 { // a call that is on its way has one for some milliseconds
			<-time.After(5 * time.Millisecond)
			goroutines = min(goroutines, runtime.NumGoroutine())
		}
		return m.HeapAlloc, goroutines
	}
	for b.Loop() {
		// The client's part is what a first run leaves in its pool, and one connection that
		// listens.
		run(func() {})
		listening := make([]*redis.PubSub, instances)
		for i, rdb := range clients {
			listening[i] = rdb.Subscribe(b.Context(), "bare")
			_, err := listening[i].Receive(b.Context())
			require.NoError(b, err)
		}
		heap, goroutines := measure()
		for _, subscription := range listening {
			require.NoError(b, subscription.Close())
		}
		run(func() {
			heapAfter, goroutinesAfter := measure()
			b.ReportMetric(float64(int64(heapAfter)-int64(heap))/instances/1024, "KB/instance")
			b.ReportMetric(float64(goroutinesAfter-goroutines-instances)/instances, "goroutines/instance")
		})
	}
	b.ReportMetric(0, "ns/op")
}

// How late 10,000 tasks start that are due every ten seconds each, and what that costs this process
// and Redis: shares of one core. They are due one a millisecond, or all at once (burst). The tasks
// do nothing. A slot counts from when it is due by Redis's clock, which is this machine's. In the
// burst the last of them waits for those before it, which is 10,000 times the cost of one.
func BenchmarkTasks(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		const span = 10 * time.Second
		var mu sync.Mutex
		late := make([]time.Duration, 0, 20_000)
		for b.Loop() {
			before, began := processTime(b), time.Now()
			for n := range int(span / time.Millisecond) {
				due := began.Add(time.Duration(n) * time.Millisecond)
				<-time.After(time.Until(due))
				go func() { // ends at once
					mu.Lock()
					defer mu.Unlock()
					late = append(late, time.Since(due))
				}()
			}
			b.ReportMetric(float64(processTime(b)-before)/float64(span), "cores")
		}
		b.ReportMetric(0, "ns/op")
	})
	for name, apart := range map[string]time.Duration{"": time.Millisecond, "-burst": 0} {
		b.Run("standalone"+name, func(b *testing.B) {
			c, err := NewStandalone(Options{InstanceID: "leader"})
			require.NoError(b, err)
			manyTasks(b, c, nil, apart)
		})
		b.Run("redis"+name, func(b *testing.B) {
			server := redistest.Start(b)
			c, err := New(server.Client(b), Options{
				Namespace: "tenure", InstanceID: "leader", Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}},
			})
			require.NoError(b, err)
			manyTasks(b, c, server, apart)
		})
	}
}

// manyTasks measures a coordinator. server is nil if there is none. The tasks are due so far apart
// as they are registered, but for the time that it took a leader to see them.
func manyTasks(b *testing.B, c *Coordinator, server *redistest.Server, apart time.Duration) {
	b.Helper()
	const many, every, span = 10_000, 10 * time.Second, 30 * time.Second
	var mu sync.Mutex
	var late []time.Duration
	for n := range many {
		delay := every + time.Duration(n)*apart
		require.NoError(b, c.Tasks().Register(Task{Name: fmt.Sprint("t", n), Schedule: Every(every), InitialDelay: delay, Run: func(_ context.Context, run TaskRun) error {
			behind := time.Since(run.Slot)
			mu.Lock()
			late = append(late, behind)
			mu.Unlock()
			return nil
		}}))
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }() // ends with cancel
	<-time.After(3*every + every/2)    // every task has its record, and has run once
	for b.Loop() {
		mu.Lock()
		late = late[:0]
		mu.Unlock()
		var memoryBefore, memory runtime.MemStats
		runtime.ReadMemStats(&memoryBefore)
		before, redisBefore := processTime(b), redisTime(b, server)
		<-time.After(span)
		spent, redisSpent := processTime(b)-before, redisTime(b, server)-redisBefore
		runtime.ReadMemStats(&memory)
		mu.Lock()
		slices.Sort(late)
		runs := len(late)
		require.NotEmpty(b, late)
		for name, share := range map[string]float64{"p50-ms": 0.5, "p99-ms": 0.99, "max-ms": 1} {
			b.ReportMetric(float64(late[min(int(share*float64(runs)), runs-1)])/float64(time.Millisecond), name)
		}
		mu.Unlock()
		b.ReportMetric(float64(runs)/span.Seconds(), "runs/s")
		b.ReportMetric(float64(memory.Mallocs-memoryBefore.Mallocs)/float64(runs), "allocs/run")
		b.ReportMetric(float64(memory.TotalAlloc-memoryBefore.TotalAlloc)/1024/float64(runs), "KB/run")
		b.ReportMetric(float64(spent)/float64(span), "cores")
		b.ReportMetric(float64(redisSpent)/float64(span), "redis-cores")
	}
	b.ReportMetric(0, "ns/op")
	cancel()
	require.NoError(b, <-done)
}

// What 100,000 tasks cost that are registered, and due tomorrow: shares of one core, over a minute.
// The leader looks for triggers once in it.
func BenchmarkTasksAtRest(b *testing.B) {
	const many, span = 100_000, time.Minute
	for _, standalone := range []bool{true, false} {
		var server *redistest.Server
		var c *Coordinator
		var err error
		name := "standalone"
		if standalone {
			c, err = NewStandalone(Options{InstanceID: "leader"})
		} else {
			name, server = "redis", redistest.Start(b)
			c, err = New(server.Client(b), Options{
				Namespace: "tenure", InstanceID: "leader", Election: ElectionOptions{Safety: SafetyOptions{RestartGuard: -1}},
			})
		}
		require.NoError(b, err)
		b.Run(name, func(b *testing.B) {
			for n := range many {
				require.NoError(b, c.Tasks().Register(Task{Name: fmt.Sprint("t", n), Schedule: Every(24 * time.Hour), Run: func(context.Context, TaskRun) error { return nil }}))
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }() // ends with cancel
			last := fmt.Sprint("t", many-1)
			require.Eventually(b, func() bool { // it is opened last
				slots, err := c.Tasks().Upcoming(ctx, last, 1)
				return err == nil && len(slots) == 1
			}, 5*time.Minute, 100*time.Millisecond)
			<-time.After(10 * time.Second)
			for b.Loop() {
				before, redisBefore := processTime(b), redisTime(b, server)
				<-time.After(span)
				b.ReportMetric(float64(processTime(b)-before)/float64(span), "cores")
				b.ReportMetric(float64(redisTime(b, server)-redisBefore)/float64(span), "redis-cores")
			}
			b.ReportMetric(0, "ns/op")
			cancel()
			require.NoError(b, <-done)
		})
	}
}

// processTime is the processor time that this process has used.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// redisTime is the processor time that a server has used.
func redisTime(tb testing.TB, server *redistest.Server) (spent time.Duration) {
	tb.Helper()
	if server == nil {
		return 0
	}
	info := server.Info(tb, "cpu")
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info[field], 64)
		require.NoError(tb, err)
		spent += time.Duration(seconds * float64(time.Second))
	}
	return spent
}

// BenchmarkObservedCall is what an observer of calls costs each call: if calls come one after the
// other, and if it has taken each before the next.
func BenchmarkObservedCall(b *testing.B) {
	for _, rest := range []bool{false, true} {
		b.Run(map[bool]string{false: "busy", true: "at rest"}[rest], func(b *testing.B) {
			var o callObservers
			taken := make(chan struct{}, 1)
			o.observe(func(Call) {
				if rest {
					taken <- struct{}{}
				}
			})
			b.ReportAllocs()
			for b.Loop() {
				o.ended(Call{Name: "beat", Took: time.Millisecond})
				if rest {
					<-taken
				}
			}
		})
	}
}
