package redisstore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// edgeNow is what the clock of a stillCluster shows, ms.
const edgeNow = int64(1_700_000_000_000)

// stillCluster is a miniredis whose clock stands still: the registry scripts are asked at the last
// millisecond, byte or entry at which a rule holds, and at the first at which it does not.
type stillCluster struct {
	*testing.T
	*cluster
}

func newStillCluster(t *testing.T) *stillCluster {
	c := miniCluster(t, "edge")
	c.mini.SetTime(time.UnixMilli(edgeNow))
	return &stillCluster{T: t, cluster: c}
}

// ownRecordOf is a record as tenure writes it.
func ownRecordOf(id, incarnation, status string) string {
	return fmt.Sprintf(`{"instance_id":"%s","started_at":1,"last_heartbeat":1,"status":"%s","worker_count":0,"incarnation":"%s"}`, id, status, incarnation)
}

// put writes an instance of tenure that was last heard of so many ms ago.
func (e *stillCluster) put(id string, silence int64) {
	e.Helper()
	e.record(id, ownRecordOf(id, "i-"+id, "active"))
	e.beaten(id, edgeNow-silence)
}

func (e *stillCluster) record(id, record string) {
	e.Helper()
	require.NoError(e, e.rdb.HSet(e.Context(), e.store.keys.Instances(), id, record).Err())
}

func (e *stillCluster) beaten(id string, at int64) {
	e.Helper()
	require.NoError(e, e.rdb.ZAdd(e.Context(), e.store.keys.Beats(), redis.Z{Score: float64(at), Member: id}).Err())
}

// lastBeat is the score of an instance among the beats; 0: there is none.
func (e *stillCluster) lastBeat(id string) int64 {
	return int64(e.rdb.ZScore(e.Context(), e.store.keys.Beats(), id).Val())
}

// hear gives the hints that are published while act runs.
func (e *stillCluster) hear(act func()) (hints []string) {
	e.Helper()
	ctx, channel := e.Context(), e.store.keys.Events()
	sub := e.rdb.Subscribe(ctx, channel)
	defer func() { _ = sub.Close() }()
	_, err := sub.Receive(ctx)
	require.NoError(e, err)
	act()
	require.NoError(e, e.rdb.Publish(ctx, channel, "end").Err())
	for {
		m, err := sub.ReceiveMessage(ctx)
		require.NoError(e, err)
		if m.Payload == "end" {
			return hints
		}
		hints = append(hints, m.Payload)
	}
}

// state writes down what the sweeps decide by. Times are relative to now.
func (e *stillCluster) state() string {
	e.Helper()
	ctx, keys := e.Context(), e.store.keys
	var parts []string
	scores := func(key string) {
		for _, z := range e.rdb.ZRangeWithScores(ctx, key, 0, -1).Val() {
			part := fmt.Sprintf("%v%+d", z.Member, int64(z.Score)-edgeNow)
			if record := e.rdb.HGet(ctx, keys.Instances(), fmt.Sprint(z.Member)).Val(); key == keys.Beats() && strings.Contains(record, "drifted") {
				part += " drifted"
			}
			parts = append(parts, part)
		}
	}
	scores(keys.Beats())
	if e.mini.Exists(keys.Removed()) {
		parts = append(parts, fmt.Sprintf("| removed, for %v:", e.mini.TTL(keys.Removed())))
		scores(keys.Removed())
	}
	if hold := e.rdb.Get(ctx, keys.Hold()).Val(); hold != "" {
		parts = append(parts, fmt.Sprintf("| hold, for %v: %s", e.mini.TTL(keys.Hold()), strings.Replace(hold, fmt.Sprint(edgeNow), "now", 1)))
	}
	return strings.Join(parts, " ")
}

// TestRegistryEntriesAtTheirLimits: what is as long as it may be counts, what is a byte longer does
// not.
func TestRegistryEntriesAtTheirLimits(t *testing.T) {
	e, ctx := newStillCluster(t), t.Context()
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

// TestBeatAtItsLimits: the last instant at which a beat may still be answered, and at which another
// incarnation is heard of.
func TestBeatAtItsLimits(t *testing.T) {
	e, ctx := newStillCluster(t), t.Context()
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
	for ahead, want := range map[int64]membership.Verdict{-1: membership.Stale, 0: membership.Joined, 1: membership.Joined} {
		require.NoError(e, e.rdb.FlushAll(ctx).Err())
		require.Equal(e, want, ask(func(b *store.Heartbeat) { b.NotAfter = edgeNow + ahead }).Verdict, "not after %d ms from now", ahead)
	}
	require.Equal(e, membership.Joined, func() membership.Verdict { e.mini.FlushAll(); return ask(nil).Verdict }(), "without a bound")
	for silence, want := range map[int64]membership.Verdict{4999: membership.Duplicate, 5000: membership.Joined, 5001: membership.Joined} {
		e.record("a", ownRecordOf("a", incarnation, "active"))
		e.beaten("a", edgeNow-silence)
		reply := store.HeartbeatReply{Verdict: want, Now: edgeNow, Other: incarnation}
		if want == membership.Joined {
			reply.Started, reply.Instances = edgeNow/1000, 1
		}
		require.Equal(e, reply, ask(nil), "silent for %d ms", silence)
	}
	e.record("a", ownRecordOf("a", incarnation, "active"))
	require.NoError(e, e.rdb.ZRem(ctx, e.store.keys.Beats(), "a").Err())
	require.Equal(e, membership.Joined, ask(nil).Verdict, "nobody has heard of the other one")
	e.beaten("a", edgeNow)
	e.record("a", ownRecordOf("a", incarnation, "active"))
	require.Equal(e, membership.Joined, ask(func(b *store.Heartbeat) { b.First = true }).Verdict, "one that was never registered")
	require.Equal(e, int64(77), ask(func(b *store.Heartbeat) { b.Started = 77 }).Started)
	require.Equal(e, 10*time.Second, e.mini.TTL(e.store.keys.Heartbeat("a")))
}

// TestLookAtItsLimits: who is silent, which page is the last one, and which beats lie ahead of the
// clock.
func TestLookAtItsLimits(t *testing.T) {
	e, ctx := newStillCluster(t), t.Context()
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

// TestSweepAtItsLimits: who is drifted and who is down, how many may be removed, and what begins a
// hold.
func TestSweepAtItsLimits(t *testing.T) {
	e, ctx := newStillCluster(t), t.Context()
	keys := e.store.keys
	removedAt := func(id string, at int64) {
		require.NoError(e, e.rdb.ZAdd(ctx, keys.Removed(), redis.Z{Score: float64(edgeNow + at), Member: id}).Err())
	}
	hold := func(text string, ttl time.Duration) func() {
		return func() { require.NoError(e, e.rdb.Set(ctx, keys.Hold(), text, ttl).Err()) }
	}
	heartbeat := func(id string) { require.NoError(e, e.rdb.Set(ctx, keys.Heartbeat(id), "1", 0).Err()) }
	sweep := store.Sweep{Drifted: 3 * time.Second, Down: 10 * time.Second, Window: 4 * time.Second, Mark: true, Remove: true, Incarnation: "lead"}
	for _, c := range []struct {
		name    string
		silent  []int64 // of a, b, c ...
		more    func()
		change  func(*store.Sweep)
		verdict string
		held    string
		state   string
	}{
		{name: "fresh", silent: []int64{2999, 0}, verdict: "fresh fresh", state: "a-2999 b+0"},
		{name: "drifted", silent: []int64{3000, 0}, verdict: "drifted fresh", state: "a-3000 drifted b+0"},
		{name: "not down", silent: []int64{9999, 0}, verdict: "drifted fresh", state: "a-9999 drifted b+0"},
		{name: "down", silent: []int64{10_000, 0}, verdict: "down fresh", state: "b+0 | removed, for 5s: a+0"},
		{name: "not to be marked", silent: []int64{9999, 0}, change: func(s *store.Sweep) { s.Mark = false }, verdict: "silent fresh", state: "a-9999 b+0"},
		{name: "not to be removed", silent: []int64{10_000, 0}, change: func(s *store.Sweep) { s.Remove = false }, verdict: "drifted fresh", state: "a-10000 drifted b+0"},
		{name: "without a beat", silent: []int64{0}, more: func() { e.rdb.ZRem(ctx, keys.Beats(), "a") }, verdict: "fresh"},
		{name: "without a record", silent: []int64{0, 0}, more: func() { e.rdb.HDel(ctx, keys.Instances(), "a") }, verdict: "left fresh", state: "b+0"},

		// The cap: a quarter, at least one; who was removed within the window counts.
		{name: "a quarter of eight", silent: []int64{10_000, 10_000, 0, 0, 0, 0, 0, 0}, verdict: "down down fresh fresh fresh fresh fresh fresh",
			state: "c+0 d+0 e+0 f+0 g+0 h+0 | removed, for 5s: a+0 b+0"},
		{name: "a quarter of seven", silent: []int64{10_000, 10_000, 0, 0, 0, 0, 0}, verdict: "down drifted fresh fresh fresh fresh fresh", held: "now 1",
			state: "b-10000 drifted c+0 d+0 e+0 f+0 g+0 | removed, for 5s: a+0 | hold, for 10s: now 0 1 lead"},
		{name: "one was removed in the window", silent: []int64{10_000, 0, 0}, more: func() { removedAt("x", -3999) }, verdict: "drifted fresh fresh", held: "now 1",
			state: "a-10000 drifted b+0 c+0 | removed, for 5s: x-3999 | hold, for 10s: now 0 1 lead"},
		{name: "one was removed before it", silent: []int64{10_000, 0, 0}, more: func() { removedAt("x", -4000) }, verdict: "down fresh fresh",
			state: "b+0 c+0 | removed, for 5s: a+0"},
		{name: "one of eight was removed in the window", silent: []int64{10_000, 0, 0, 0, 0, 0, 0}, more: func() { removedAt("x", -3999) },
			verdict: "down fresh fresh fresh fresh fresh fresh", state: "b+0 c+0 d+0 e+0 f+0 g+0 | removed, for 5s: x-3999 a+0"},
		{name: "more were removed than may be", silent: []int64{10_000, 0, 0}, more: func() { removedAt("x", -1); removedAt("y", -1) }, verdict: "drifted fresh fresh",
			held: "now 1", state: "a-10000 drifted b+0 c+0 | removed, for 5s: x-1 y-1 | hold, for 10s: now 0 1 lead"},
		{name: "removed a second ahead", silent: []int64{0}, more: func() { removedAt("x", 1000) }, verdict: "fresh", state: "a+0 | removed, for 5s: x+1000"},
		{name: "removed further ahead", silent: []int64{0}, more: func() { removedAt("x", 1001) }, verdict: "fresh", state: "a+0 | removed, for 5s: x+0"},
		{name: "removed, shorter", silent: []int64{0}, more: func() { removedAt("x", -1); e.mini.SetTTL(keys.Removed(), 4999*time.Millisecond) }, verdict: "fresh",
			state: "a+0 | removed, for 4.999s: x-1"},
		{name: "removed, longer", silent: []int64{0}, more: func() { removedAt("x", -1); e.mini.SetTTL(keys.Removed(), 5001*time.Millisecond) }, verdict: "fresh",
			state: "a+0 | removed, for 5s: x-1"},

		// The hold: more are silent than may be removed, and one of them is down.
		{name: "a crowd", silent: []int64{10_000, 3000, 0, 0}, verdict: "down drifted fresh fresh", held: "now 1",
			state: "b-3000 drifted c+0 d+0 | removed, for 5s: a+0 | hold, for 10s: now 0 1 lead"},
		{name: "no crowd", silent: []int64{10_000, 2999, 0, 0}, verdict: "down fresh fresh fresh", state: "b-2999 c+0 d+0 | removed, for 5s: a+0"},
		{name: "nobody is down", silent: []int64{9999, 3000, 0, 0}, verdict: "drifted drifted fresh fresh", state: "a-9999 drifted b-3000 drifted c+0 d+0"},
		{name: "a hold runs", silent: []int64{10_000, 10_000, 0, 0, 0, 0, 0, 0}, more: hold(fmt.Sprint(edgeNow, " 1 5 lead"), 10*time.Second),
			verdict: "down drifted fresh fresh fresh fresh fresh fresh", held: "now 5",
			state: "b-10000 drifted c+0 d+0 e+0 f+0 g+0 h+0 | removed, for 5s: a+0 | hold, for 10s: now 0 5 lead"},
		{name: "another's hold", silent: []int64{10_000, 0}, more: hold("7 0 5 other", 3*time.Second), verdict: "drifted fresh",
			state: "a-10000 drifted b+0 | hold, for 3s: 7 0 5 other"},
		{name: "a hold without end", silent: []int64{0}, more: hold("7 0 5 other", 0), verdict: "fresh", state: "a+0 | hold, for 10s: 7 0 5 other"},
		{name: "a hold that is too long", silent: []int64{0}, more: hold("7 0 5 other", 10_001*time.Millisecond), verdict: "fresh", state: "a+0 | hold, for 10s: 7 0 5 other"},
		{name: "a hold that nobody can read", silent: []int64{10_000, 0}, more: hold("what", 9*time.Second), verdict: "drifted fresh", state: "a-10000 drifted b+0 | hold, for 9s: what"},

		// Foreign instances.
		{name: "foreign, it beats", silent: []int64{5000}, more: func() { e.record("a", "{}"); heartbeat("a") }, verdict: "beating", state: "a+0"},
		{name: "foreign, it beats again", silent: []int64{5000}, more: func() { e.record("a", `{"status":"drifted"}`); heartbeat("a") }, verdict: "recovered", state: "a+0"},
		{name: "foreign, unwatched", silent: []int64{5000}, more: func() { e.record("a", "{}") }, change: func(s *store.Sweep) { s.Unwatched = 2 * time.Second }, verdict: "fresh", state: "a-2000"},
		{name: "foreign, heard of since", silent: []int64{1000}, more: func() { e.record("a", "{}") }, change: func(s *store.Sweep) { s.Unwatched = 2 * time.Second }, verdict: "fresh", state: "a-1000"},
		{name: "foreign, watched", silent: []int64{5000}, more: func() { e.record("a", `{"status":"ok"}`) }, verdict: "drifted", state: "a-5000 drifted"},
		{name: "foreign, without a status", silent: []int64{5000}, more: func() { e.record("a", "{}") }, verdict: "silent", state: "a-5000"},
	} {
		e.mini.FlushAll()
		s := sweep
		for i, silence := range c.silent {
			id := string(rune('a' + i))
			s.IDs = append(s.IDs, id)
			e.put(id, silence)
		}
		if c.more != nil {
			c.more()
		}
		if c.change != nil {
			c.change(&s)
		}
		reply, err := e.store.Sweep(ctx, s)
		require.NoError(e, err, c.name)
		require.Equal(e, c.verdict, strings.Join(reply.Verdicts, " "), c.name)
		held := ""
		if reply.HeldSince != 0 {
			held = strings.Replace(fmt.Sprint(reply.HeldSince, " ", reply.Held), fmt.Sprint(edgeNow), "now", 1)
		}
		require.Equal(e, c.held, held, c.name)
		require.Equal(e, c.state, e.state(), c.name)
	}
}

// TestSweepAtMostAThousandAhead: what was removed ahead of the clock is counted from now, but a
// thousand of it at most.
func TestSweepAtMostAThousandAhead(t *testing.T) {
	e, ctx := newStillCluster(t), t.Context()
	ahead := make([]redis.Z, 1001)
	for i := range ahead {
		ahead[i] = redis.Z{Score: float64(edgeNow + 2000 + int64(i)), Member: i}
	}
	require.NoError(e, e.rdb.ZAdd(ctx, e.store.keys.Removed(), ahead...).Err())
	e.put("a", 10_000)
	_, err := e.store.Sweep(ctx, store.Sweep{Drifted: 3 * time.Second, Down: 10 * time.Second, Window: 4 * time.Second, Remove: true, Incarnation: "l", IDs: []string{"a"}})
	require.NoError(e, err)
	require.EqualValues(e, 1000, e.rdb.ZCard(ctx, e.store.keys.Removed()).Val())
	require.EqualValues(e, 1000, e.rdb.ZCount(ctx, e.store.keys.Removed(), fmt.Sprint(edgeNow), fmt.Sprint(edgeNow)).Val())
}

// TestHintsAtTheirLimits: who hears of what, and how many instances one hint names.
func TestHintsAtTheirLimits(t *testing.T) {
	e, ctx := newStillCluster(t), t.Context()
	beat := store.Heartbeat{ID: "a", Incarnation: "i-a", TTL: time.Second, Head: `{"instance_id":"a","started_at":`,
		Rest: `,"status":"active","worker_count":0,"incarnation":"i-a"}`}
	beats := func() {
		_, err := e.store.Heartbeat(ctx, beat)
		require.NoError(e, err)
	}
	require.Len(e, e.hear(beats), 1, "joined")
	require.Empty(e, e.hear(beats), "kept")
	e.record("a", ownRecordOf("a", "i-a", "drifted"))
	require.Len(e, e.hear(beats), 1, "recovered")

	// IDs of 32 bytes take 35 each, and a hundred of them 3500, which is as many as fit.
	names := func(lengths ...int) (ids []string) {
		for i, length := range lengths {
			ids = append(ids, fmt.Sprintf("%0*d", length, i))
		}
		return ids
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 32
	}
	longer := append(append([]int{}, hundred[:99]...), 33)
	for name, c := range map[string]struct {
		ids  []string
		want []int
	}{
		"one":                    {names(32), []int{1}},
		"as many as fit":         {names(hundred...), []int{100}},
		"a byte more":            {names(longer...), []int{99, 1}},
		"one more":               {names(append(append([]int{}, hundred...), 32)...), []int{100, 1}},
		"twice as many as fit":   {names(append(append([]int{}, hundred...), hundred...)...), []int{100, 100}},
		"twice, and a byte more": {names(append(append([]int{}, hundred...), longer...)...), []int{100, 99, 1}},
	} {
		e.mini.FlushAll()
		var records []string
		for _, id := range c.ids {
			records = append(records, id, "{}")
		}
		require.NoError(e, e.rdb.HSet(ctx, e.store.keys.Instances(), records).Err())
		var adopted []string
		hints := e.hear(func() {
			var err error
			adopted, err = e.store.Adopt(ctx, "lead", c.ids)
			require.NoError(e, err)
		})
		require.Equal(e, c.ids, adopted, name)
		var all []string
		var counts []int
		for _, hint := range hints {
			var h struct {
				Instances []string `json:"instances"`
			}
			require.NoError(e, json.Unmarshal([]byte(hint), &h), hint)
			all, counts = append(all, h.Instances...), append(counts, len(h.Instances))
		}
		require.Equal(e, c.ids, all, name)
		require.Equal(e, c.want, counts, name)
	}
	require.Empty(e, e.hear(func() {
		adopted, err := e.store.Adopt(ctx, "lead", names(32))
		require.NoError(e, err)
		require.Empty(e, adopted, "it has a beat")
	}))
}

// TestScanAtItsLimits: each entry of a page has its own beat and record, however many there are.
func TestScanAtItsLimits(t *testing.T) {
	e, ctx := newStillCluster(t), t.Context()
	for _, count := range []int{500, 501, 1001} {
		e.mini.FlushAll()
		var records []string
		var beats []redis.Z
		for i := range count {
			id := fmt.Sprintf("n%04d", i)
			records = append(records, id, "record of "+id)
			if i%3 > 0 {
				beats = append(beats, redis.Z{Score: float64(1000 + i), Member: id})
			}
		}
		require.NoError(e, e.rdb.HSet(ctx, e.store.keys.Instances(), records).Err())
		require.NoError(e, e.rdb.ZAdd(ctx, e.store.keys.Beats(), beats...).Err())
		for _, onlyNew := range []bool{false, true} {
			page, err := e.store.Scan(ctx, "0", onlyNew)
			require.NoError(e, err)
			require.Equal(e, "0", page.Next)
			seen := map[string]store.Entry{}
			for _, entry := range page.Entries {
				seen[entry.ID] = entry
			}
			require.Len(e, seen, len(page.Entries))
			for i := range count {
				id := fmt.Sprintf("n%04d", i)
				want := store.Entry{ID: id, Record: "record of " + id}
				if want.Beaten = i%3 > 0; want.Beaten {
					want.Last = int64(1000 + i)
				}
				if onlyNew {
					want.Record = ""
				}
				if onlyNew && want.Beaten {
					want = store.Entry{}
				}
				if seen[id] != want {
					e.Fatalf("%s of %d, only new: %v: %+v, want %+v", id, count, onlyNew, seen[id], want)
				}
			}
		}
	}
}

// TestScoreIsUntrusted: anybody may have put any number there.
func TestScoreIsUntrusted(t *testing.T) {
	for text, want := range map[string]int64{"17": 17, "1.7e3": 1700, "-5": 0, "inf": 1 << 53, "-inf": 0, "1e999": 1 << 53} {
		last, beaten := score(text)
		require.True(t, beaten, text)
		require.Equal(t, want, last, text)
	}
	for _, text := range []string{"", "nan", "x"} {
		_, beaten := score(text)
		require.False(t, beaten, text)
	}
}
