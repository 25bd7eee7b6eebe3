package tenure

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// edgeNow is what the clock of a registryEdge shows, ms.
const edgeNow = int64(1_700_000_000_000)

// registryEdge is a miniredis whose clock stands still: the registry scripts are asked at the last
// millisecond, byte or entry at which a rule holds, and at the first at which it does not.
type registryEdge struct {
	*testing.T
	mini  *miniredis.Miniredis
	rdb   *redis.Client
	store *redisStore
}

func newRegistryEdge(t *testing.T) *registryEdge {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	m.SetTime(time.UnixMilli(edgeNow))
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	return &registryEdge{T: t, mini: m, rdb: rdb, store: newRedisStore(rdb, &checker{}, Options{Namespace: "edge"})}
}

// ownRecordOf is a record as tenure writes it.
func ownRecordOf(id, incarnation, status string) string {
	return fmt.Sprintf(`{"instance_id":"%s","started_at":1,"last_heartbeat":1,"status":"%s","worker_count":0,"incarnation":"%s"}`, id, status, incarnation)
}

// put writes an instance of tenure that was last heard of so many ms ago.
func (e *registryEdge) put(id string, silence int64) {
	e.Helper()
	e.record(id, ownRecordOf(id, "i-"+id, "active"))
	e.beaten(id, edgeNow-silence)
}

func (e *registryEdge) record(id, record string) {
	e.Helper()
	require.NoError(e, e.rdb.HSet(e.Context(), e.store.keys.Instances(), id, record).Err())
}

func (e *registryEdge) beaten(id string, at int64) {
	e.Helper()
	require.NoError(e, e.rdb.ZAdd(e.Context(), e.store.keys.Beats(), redis.Z{Score: float64(at), Member: id}).Err())
}

// lastBeat is the score of an instance among the beats; 0: there is none.
func (e *registryEdge) lastBeat(id string) int64 {
	return int64(e.rdb.ZScore(e.Context(), e.store.keys.Beats(), id).Val())
}

// messages subscribes to the hints of the registry, and returns what gives those that have come.
func (e *registryEdge) messages() func() []string {
	sub := e.mini.NewSubscriber()
	e.Cleanup(sub.Close)
	sub.Subscribe(e.store.keys.Events())
	return func() (got []string) {
		for {
			select {
			case m := <-sub.Messages():
				got = append(got, m.Message)
			case <-time.After(50 * time.Millisecond):
				return got
			}
		}
	}
}

// TestRegistryEntriesAtTheirLimits: what is as long as it may be counts, what is a byte longer does not.
func TestRegistryEntriesAtTheirLimits(t *testing.T) {
	e, ctx := newRegistryEdge(t), t.Context()
	for _, size := range []int{65535, 65536, 65537} {
		e.record(strconv.Itoa(size), strings.Repeat("x", size))
		entry, now, err := e.store.Instance(ctx, strconv.Itoa(size))
		require.NoError(e, err)
		require.Equal(e, edgeNow, now)
		require.Len(e, entry.Record, map[bool]int{true: size}[size <= 65536])
	}
	for _, size := range []int{127, 128, 129} {
		e.record(strings.Repeat("i", size), "{}")
		e.beaten(strings.Repeat("i", size), 1)
	}
	page, err := e.store.Scan(ctx, "0", false)
	require.NoError(e, err)
	require.Equal(e, 2, page.Malformed)
	sizes := map[int]bool{}
	for _, entry := range page.Entries {
		sizes[max(len(entry.ID), len(entry.Record))] = true
	}
	require.Equal(e, map[int]bool{65535: true, 65536: true, 127: true, 128: true}, sizes)
	look, err := e.store.Look(ctx, store.Look{})
	require.NoError(e, err)
	require.Equal(e, []string{strings.Repeat("i", 127), strings.Repeat("i", 128)}, look.IDs)
	require.Zero(e, e.lastBeat(strings.Repeat("i", 129)))

	for _, size := range []int{63, 64, 65} {
		incarnation := strings.Repeat("c", size)
		e.record("own", ownRecordOf("own", incarnation, "active"))
		verdict, err := e.store.Remove(ctx, "own", incarnation)
		require.NoError(e, err)
		require.Equal(e, map[bool]string{true: store.RemovedLeft, false: "other"}[size <= 64], verdict, "an incarnation of %d", size)
	}
}

// TestBeatAtItsLimits: the last instant at which a beat may still be answered, and at which another incarnation is heard of.
func TestBeatAtItsLimits(t *testing.T) {
	e, ctx := newRegistryEdge(t), t.Context()
	incarnation := strings.Repeat("c", 64)
	beat := store.Heartbeat{ID: "a", Incarnation: "mine", TTL: 10 * time.Second, TakeOver: 5 * time.Second, Head: `{"instance_id":"a","started_at":`,
		Rest: `,"status":"active","worker_count":0,"incarnation":"mine"}`}
	ask := func(change func(*store.Heartbeat)) store.HeartbeatReply {
		b := beat
		if change != nil {
			change(&b)
		}
		reply, err := e.store.Heartbeat(ctx, b)
		require.NoError(e, err)
		return reply
	}
	for ahead, want := range map[int64]string{-1: store.HeartbeatStale, 0: store.HeartbeatJoined, 1: store.HeartbeatJoined} {
		require.NoError(e, e.rdb.FlushAll(ctx).Err())
		require.Equal(e, want, ask(func(b *store.Heartbeat) { b.NotAfter = edgeNow + ahead }).Verdict, "not after %d ms from now", ahead)
	}
	require.Equal(e, store.HeartbeatJoined, func() string { e.mini.FlushAll(); return ask(nil).Verdict }(), "without a bound")
	for silence, want := range map[int64]string{4999: store.HeartbeatDuplicate, 5000: store.HeartbeatJoined, 5001: store.HeartbeatJoined} {
		e.record("a", ownRecordOf("a", incarnation, "active"))
		e.beaten("a", edgeNow-silence)
		require.Equal(e, store.HeartbeatReply{Verdict: want, Now: edgeNow, Other: incarnation, Started: map[bool]int64{true: edgeNow / 1000}[want == store.HeartbeatJoined]},
			ask(nil), "silent for %d ms", silence)
	}
	e.record("a", ownRecordOf("a", incarnation, "active"))
	require.NoError(e, e.rdb.ZRem(ctx, e.store.keys.Beats(), "a").Err())
	require.Equal(e, store.HeartbeatJoined, ask(nil).Verdict, "nobody has heard of the other one")
	e.beaten("a", edgeNow)
	e.record("a", ownRecordOf("a", incarnation, "active"))
	require.Equal(e, store.HeartbeatJoined, ask(func(b *store.Heartbeat) { b.First = true }).Verdict, "one that was never registered")
	require.Equal(e, int64(77), ask(func(b *store.Heartbeat) { b.Started = 77 }).Started)
	require.Equal(e, 10*time.Second, e.mini.TTL(e.store.keys.Heartbeat("a")))
}

// TestLookAtItsLimits: who is silent, which page is the last one, and which beats lie ahead of the clock.
func TestLookAtItsLimits(t *testing.T) {
	e, ctx := newRegistryEdge(t), t.Context()
	look := func(c store.Look) store.LookReply {
		reply, err := e.store.Look(ctx, c)
		require.NoError(e, err)
		return reply
	}
	e.put("a", 5001)
	e.put("b", 5000)
	e.put("c", 4999)
	require.Equal(e, store.LookReply{Now: edgeNow, Records: 3, Beats: 3, IDs: []string{"a", "b"}}, look(store.Look{Silence: 5 * time.Second}))

	for ahead, want := range map[int64]int64{999: 999, 1000: 1000, 1001: 0, 100_000: 0} {
		e.beaten("a", edgeNow+ahead)
		require.Equal(e, []string{}, append([]string{}, look(store.Look{From: "1699999999000", Silence: 20 * time.Second}).IDs...))
		require.Equal(e, edgeNow+ahead, e.lastBeat("a"), "only the first page looks ahead of the clock")
		look(store.Look{})
		require.Equal(e, edgeNow+want, e.lastBeat("a"), "%d ms ahead", ahead)
	}

	e.mini.FlushAll()
	for i := range 101 { // as many as one call takes back, and one
		e.beaten(fmt.Sprintf("n%03d", i), edgeNow+2000+int64(i))
	}
	look(store.Look{})
	for i := range 101 {
		require.Equal(e, edgeNow+map[bool]int64{true: 2100}[i == 100], e.lastBeat(fmt.Sprintf("n%03d", i)), i)
	}

	// A page is full with a hundred, and says how many of its last score it has given.
	fill := func(count int) {
		e.mini.FlushAll()
		for i := range count {
			e.beaten(fmt.Sprintf("n%03d", i), 1000+int64(i/40))
		}
	}
	for count, want := range map[int]store.LookReply{99: {}, 100: {From: "1002", Skip: 20}, 101: {From: "1002", Skip: 20}} {
		fill(count)
		first := look(store.Look{})
		require.Equal(e, want.From, first.From, "%d entries", count)
		require.Equal(e, want.Skip, first.Skip, "%d entries", count)
		require.Len(e, first.IDs, min(count, 100))
		if count == 101 {
			require.Equal(e, []string{"n100"}, look(store.Look{From: first.From, Skip: first.Skip}).IDs)
		}
	}
	fill(100)
	e.beaten("!", 1002) // none of an instance: it is dropped, and the page begins where it would without it
	e.beaten("?", 1000)
	first := look(store.Look{})
	require.Len(e, first.IDs, 98)
	require.Equal(e, store.LookReply{Now: edgeNow, Beats: 100, IDs: []string{"n098", "n099"}}, look(store.Look{From: first.From, Skip: first.Skip}))
}
