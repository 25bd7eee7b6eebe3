package redisstore

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// listened is a cluster of whose registry many hear, at a clock that the test sets.
type listened struct {
	*stillCluster
	subs []*miniredis.Subscriber
}

func newListened(t *testing.T, listeners int) *listened {
	l := &listened{stillCluster: newStillCluster(t)}
	l.listen(listeners)
	return l
}

func (l *listened) listen(n int) {
	for range n {
		sub := l.mini.NewSubscriber()
		sub.Subscribe(l.store.keys.Events())
		l.subs = append(l.subs, sub)
		go func() { // ends with the subscriber
			for range sub.Messages() {
			}
		}()
		l.Cleanup(func() {
			sub.Unsubscribe(l.store.keys.Events())
			sub.Close()
		})
	}
}

func (l *listened) at(ms int64) { l.mini.SetTime(time.UnixMilli(edgeNow + ms)) }

// do makes beats ("active a": a says that it is active), leaves ("leave a"), looks ("look"), and
// sweeps ("sweep a b"), and gives what is heard of them: event, IDs and source.
func (l *listened) do(acts ...string) (heard []string) {
	l.Helper()
	for _, hint := range l.hear(func() {
		for _, act := range acts {
			status, id, _ := strings.Cut(act, " ")
			incarnation := "i-" + id[:min(len(id), 20)]
			var err error
			switch status {
			case "leave":
				_, err = l.store.Remove(l.Context(), id, incarnation)
			case "look":
				_, err = l.store.Look(l.Context(), store.Look{Silence: time.Hour})
			case "sweep":
				_, err = l.store.Sweep(l.Context(), store.Sweep{Drifted: 3 * time.Second, Down: time.Hour, Window: 4 * time.Second, Mark: true, Incarnation: "lead", IDs: strings.Fields(id)})
			default:
				_, err = l.store.Heartbeat(l.Context(), store.Heartbeat{
					ID: id, Incarnation: incarnation, TTL: time.Second, Head: fmt.Sprintf(`{"instance_id":"%s","started_at":`, id),
					Rest: fmt.Sprintf(`,"status":"%s","worker_count":0,"incarnation":"%s"}`, status, incarnation),
				})
			}
			require.NoError(l, err)
		}
	}) {
		h, ok := store.ParseHint(hint)
		require.True(l, ok, hint)
		heard = append(heard, hintText(h))
	}
	return heard
}

func hintText(h store.Hint) string {
	if h.Type == store.HintChanged {
		var changes []string
		for _, change := range h.Changes {
			changes = append(changes, hintText(change))
		}
		return "changed: " + strings.Join(changes, ", ")
	}
	subjects := h.Subjects
	if h.Subject != "" {
		subjects = append(subjects, h.Subject)
	}
	return strings.TrimSpace(strings.Join(append([]string{h.Type}, subjects...), " ") + " " + h.Source)
}

// TestManyHearTogether: what befalls instances is told at once, and, if more than 500 listen, what
// comes within an eighth of a millisecond for each of them after that waits, and keeps its order.
func TestManyHearTogether(t *testing.T) {
	l := newListened(t, 499) // and one that hears
	told := l.store.keys.Told()
	require.Equal(l, []string{"joined a i-a", "joined b i-b", "left b i-b"}, l.do("active a", "joining b", "leave b"))
	require.False(l, l.mini.Exists(told))

	l.listen(1)
	require.Equal(l, []string{"joined b i-b"}, l.do("joining b", "active b", "joining c", "leave d"))
	l.at(62)
	require.Empty(l, l.do("active a", "look"))
	l.at(63)
	require.Equal(l, []string{"changed: active b, joined c"}, l.do("active a"))
	require.Empty(l, l.do("draining a"))
	l.at(125)
	require.Empty(l, l.do("draining a"), "one message was heard")
	l.at(126)
	require.Equal(l, []string{"changed: draining a"}, l.do("leave c"), "and what comes then waits in its turn")
	l.at(189)
	require.Equal(l, []string{"changed: left c"}, l.do("look"), "who beats tells, or leaves, or looks for the silent")
	l.at(300)
	require.Equal(l, []string{"joined e i-e"}, l.do("active e"), "whoever comes first after the end")

	// Each instance has its changes in their order, and those of a kind stand together.
	require.Empty(l, l.do("joining f", "leave f", "joining f", "leave b", "joining b", "active b", "joining g", "active g", "draining g", "leave g"))
	l.at(363)
	require.Equal(l, []string{"changed: joined f, left f b, joined f b g, active b g, draining g, left g"}, l.do("draining a"))
	require.Equal(l, time.Hour, l.mini.TTL(told))
	entries, err := l.store.LogTail(l.Context(), 10)
	require.NoError(l, err)
	var log []string
	for _, entry := range entries {
		log = append(log, entry.Event)
	}
	require.Equal(l, "joined left joined left joined active joined active draining left", strings.Join(log, " "))

	// A sweep does not come before what waits. It says whose it is: that one reports nothing twice.
	l.at(1000)
	require.Equal(l, []string{"joined h i-h"}, l.do("joining h", "joining i"))
	require.NoError(l, l.rdb.ZAdd(l.Context(), l.store.keys.Beats(), redis.Z{Score: 1, Member: "h"}, redis.Z{Score: 1, Member: "i"}).Err())
	require.Empty(l, l.do("sweep h i"))
	l.at(1063)
	require.Equal(l, []string{"changed: joined i, drifted h i lead"}, l.do("joining h"))
	l.at(1126)
	require.Equal(l, []string{"changed: recovered h"}, l.do("joining h"))

	// If few are left it is as it was.
	l.at(1200)
	require.True(l, l.mini.Exists(told))
	for _, sub := range l.subs {
		sub.Unsubscribe(l.store.keys.Events())
	}
	require.Equal(l, []string{"joined j i-j", "joined k i-k"}, l.do("joining j", "joining k"))
	require.False(l, l.mini.Exists(told))
}

// TestLongListsWaitToo: no script publishes a second message if many have heard the first.
func TestLongListsWaitToo(t *testing.T) {
	l := newListened(t, 500)
	var ids []string
	for i := range 250 { // 35 bytes each in a hint: a hundred fit
		ids = append(ids, fmt.Sprintf("%032d", i))
		l.record(ids[i], "{}")
	}
	adopt := func() {
		_, err := l.store.Adopt(l.Context(), "lead", ids)
		require.NoError(l, err)
	}
	hints := l.hear(adopt)
	require.Len(l, hints, 1)
	first, ok := store.ParseHint(hints[0])
	require.True(l, ok)
	require.Equal(l, ids[:100], first.Subjects)
	heard := slices.Clone(first.Subjects)
	for i := range 2 {
		l.at(int64(63 * (i + 1)))
		hints := l.hear(func() { l.do("look") })
		require.Len(l, hints, 1)
		h, ok := store.ParseHint(hints[0])
		require.True(l, ok, hints[0])
		require.Len(l, h.Changes, 1)
		require.Equal(l, "lead", h.Changes[0].Source)
		heard = append(heard, h.Changes[0].Subjects...)
	}
	require.Equal(l, ids, heard)
	l.at(500)
	require.Empty(l, l.do("look"))

	l.mini.FlushAll()
	for _, id := range ids {
		l.record(id, "{}")
	}
	require.NoError(l, l.rdb.SAdd(l.Context(), l.store.keys.Told(), "of somebody else").Err())
	require.Len(l, l.hear(adopt), 3, "nothing can wait")
}

// TestChangesFitInAHint: however many wait, and however long their names are, each is heard of, in
// messages that can be read.
func TestChangesFitInAHint(t *testing.T) {
	l := newListened(t, 500)
	random := rand.New(rand.NewPCG(3, 4))
	var want []string
	acts := []string{"joining first"}
	for i := range 1000 {
		id := fmt.Sprintf("%0*d", 4+random.IntN(124)*random.IntN(2), i)
		acts, want = append(acts, "joining "+id), append(want, "joined "+id)
		if i%3 == 0 {
			acts, want = append(acts, "leave "+id), append(want, "left "+id)
		}
	}
	require.Len(l, l.do(acts...), 1)
	var heard []string
	for ms := int64(63); len(heard) < len(want); ms += 63 {
		l.at(ms)
		hints := l.hear(func() { l.do("look") })
		require.Len(l, hints, 1)
		require.LessOrEqual(l, len(hints[0]), store.MaxHintBytes)
		h, ok := store.ParseHint(hints[0])
		require.True(l, ok, hints[0])
		for _, change := range h.Changes {
			for _, id := range change.Subjects {
				heard = append(heard, change.Type+" "+id)
			}
		}
	}
	of := func(all []string) map[string]string { // what befell each, in its order
		by := make(map[string]string)
		for _, text := range all {
			kind, id, _ := strings.Cut(text, " ")
			by[id] += kind + " "
		}
		return by
	}
	require.Equal(l, of(want), of(heard))
}

// TestToldIsNotTrusted: whatever is under the key, or in the log, keeps nobody from telling, and no
// hint has more than names of instances.
func TestToldIsNotTrusted(t *testing.T) {
	l := newListened(t, 500)
	told := l.store.keys.Told()
	for _, text := range []string{
		"", "x", "-5 -", "99999999999999999 -", fmt.Sprint(edgeNow+60_001, " -"), fmt.Sprint(edgeNow+60_000, " x"), strings.Repeat("9", 1<<20), fmt.Sprint(edgeNow, " -"),
		fmt.Sprint(edgeNow, " 5-"), fmt.Sprint(edgeNow, " 99999999999999-0"),
	} {
		require.NoError(l, l.rdb.Set(l.Context(), told, text, 0).Err())
		require.Equal(l, []string{"joined z i-z"}, l.do("joining z"), text)
		require.NoError(l, l.rdb.HDel(l.Context(), l.store.keys.Instances(), "z").Err())
	}

	// What waits as long as may be, or behind an entry that will never come, is told nevertheless.
	for i, text := range []string{fmt.Sprint(edgeNow+60_000, " -"), fmt.Sprint(edgeNow+60_000, " 99999999999999-0"), fmt.Sprint(edgeNow+60_000, " (99999999999999999999-0")} {
		l.at(0)
		require.NoError(l, l.rdb.Set(l.Context(), told, text, 0).Err())
		id := fmt.Sprint("y", i)
		require.Empty(l, l.do("joining "+id))
		l.at(60_000)
		require.Equal(l, []string{"changed: joined " + id}, l.do("look"), text)
	}

	l.mini.Del(l.store.keys.Log())
	for _, fields := range [][]string{
		{"event", "joined", "instances", `a","b`},
		{"event", "joined", "instances", ""},
		{"event", "joined"},
		{"event", "elected", "instances", "a"},
		{"x", "y"},
		{"event", "joined", "instances", "a", "by", `"`},
		{"event", "joined", "instances", strings.Repeat("a", 129)},
		{"event", "joined", "instances", strings.Repeat("a ", 2000)},
		{"event", `joined"`, "instances", "a"},
		{"event", "joined", "instances", "a", "told", "1"},
		{"event", "left", "instances", "a  b", "by", "i"},
	} {
		require.NoError(l, l.rdb.XAdd(l.Context(), &redis.XAddArgs{Stream: l.store.keys.Log(), Values: fields}).Err())
	}
	require.NoError(l, l.rdb.Set(l.Context(), told, "0 0-0", 0).Err())
	require.Equal(l, []string{"changed: left a b i"}, l.do("look"))

	l.mini.Del(told)
	require.NoError(l, l.rdb.SAdd(l.Context(), told, "of somebody else").Err())
	require.Equal(l, []string{"joined z i-z", "left z i-z", "joined z i-z"}, l.do("joining z", "leave z", "joining z"))
	require.True(l, l.mini.Exists(told))

	l.mini.Del(told)
	l.mini.Del(l.store.keys.Log())
	require.NoError(l, l.rdb.Set(l.Context(), l.store.keys.Log(), "of somebody else", 0).Err())
	require.Equal(l, []string{"joined x i-x", "left x i-x"}, l.do("joining x", "leave x"), "without a log nothing can wait")
}

// TestWhatWaitsOutlivesItsLog: who removes the log takes what waited in it, and nothing that comes
// after that.
func TestWhatWaitsOutlivesItsLog(t *testing.T) {
	l := newListened(t, 500)
	require.Equal(l, []string{"joined a i-a"}, l.do("joining a", "joining b"))
	l.mini.Del(l.store.keys.Log())
	l.at(-20_000)
	require.Empty(l, l.do("joining c"))
	l.at(63)
	require.Equal(l, []string{"changed: joined c"}, l.do("look"))
}

// crowdOnRedis is a redis-server of whose registry more than 500 hear.
type crowdOnRedis struct {
	*testing.T
	admin *redis.Client
	heard chan string
}

func newCrowdOnRedis(t *testing.T) *crowdOnRedis {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	r := &crowdOnRedis{T: t, admin: redistest.Start(t).Client(t), heard: make(chan string, 10_000)}
	channel := store.Keys("edge").Events()
	for range 510 {
		conn, err := net.Dial("tcp", r.admin.Options().Addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", channel)
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
	}
	sub := r.admin.Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	go func() { // ends with sub
		for m := range sub.Channel(redis.WithChannelSize(10_000)) {
			r.heard <- m.Payload
		}
	}()
	r.until(func() bool { return r.admin.PubSubNumSub(t.Context(), channel).Val()[channel] == 511 })
	return r
}

func (r *crowdOnRedis) until(is func() bool) {
	r.Helper()
	require.Eventually(r, is, 20*time.Second, 10*time.Millisecond)
}

// as is a process whose user lacks a right; "": it lacks none.
func (r *crowdOnRedis) as(lacks string) *Store {
	opts := *r.admin.Options()
	if lacks != "" {
		opts.Username, opts.Password = "lesser", "secret"
		require.NoError(r, r.admin.Do(r.Context(), "acl", "setuser", "lesser", "reset", "on", ">secret", "~*", "&*", "+@all", lacks).Err())
	}
	rdb := redis.NewClient(&opts)
	r.Cleanup(func() { _ = rdb.Close() })
	return New(rdb, contract, "edge", "me", func() string { return "secret" })
}

func (r *crowdOnRedis) beat(s *Store, id string) {
	_, err := s.Heartbeat(r.Context(), store.Heartbeat{
		ID: id, Incarnation: "i-" + id, TTL: time.Minute, Head: fmt.Sprintf(`{"instance_id":"%s","started_at":`, id),
		Rest: fmt.Sprintf(`,"status":"joining","worker_count":0,"incarnation":"i-%s"}`, id),
	})
	require.NoError(r, err)
}

// told gives all that is heard until an instance is named, by changes.
func (r *crowdOnRedis) told(last string, meanwhile func()) (all []string) {
	r.until(func() bool {
		meanwhile()
		for {
			select {
			case m := <-r.heard:
				h, ok := store.ParseHint(m)
				require.True(r, ok, m)
				for _, change := range append(h.Changes, h) {
					for _, id := range append(change.Subjects, change.Subject) {
						if id != "" {
							all = append(all, change.Type+" "+id)
						}
					}
				}
			default:
				return slices.ContainsFunc(all, func(text string) bool { return strings.HasSuffix(text, " "+last) })
			}
		}
	})
	return all
}

// TestWhoMayNotTellLeavesItToOthers: what waits is not lost to a process that lacks a right.
func TestWhoMayNotTellLeavesItToOthers(t *testing.T) {
	r := newCrowdOnRedis(t)
	whole := r.as("")
	for _, lacks := range []string{"-publish", "-xrange", "resetchannels", "-getrange", "-xadd"} {
		lesser := r.as(lacks)
		r.beat(lesser, "lesser")
		want := []string{}
		for i := range 5 {
			id := fmt.Sprint(strings.Trim(lacks, "-"), i)
			r.beat(whole, id)
			want = append(want, "joined "+id)
		}
		last := strings.Trim(lacks, "-") + "4"
		<-time.After(60 * time.Millisecond) // what waits may be told by now, by whoever beats first
		r.beat(lesser, "lesser")
		all := slices.DeleteFunc(r.told(last, func() { r.beat(whole, last) }), func(text string) bool { return text == "joined lesser" })
		require.Equal(t, want, all, lacks)
	}
}

// TestFullRedisIsToldOnce: what a full Redis cannot note it is not told again and again.
func TestFullRedisIsToldOnce(t *testing.T) {
	r := newCrowdOnRedis(t)
	s := r.as("")
	for i := range 5 {
		r.beat(s, fmt.Sprint("a", i))
	}
	require.NoError(t, r.admin.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	all := r.told("a4", func() {
		_, err := s.Look(t.Context(), store.Look{Silence: time.Hour})
		require.NoError(t, err)
	})
	for range 20 {
		_, err := s.Look(t.Context(), store.Look{Silence: time.Hour})
		require.NoError(t, err)
	}
	require.NoError(t, r.admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	all = append(all, r.told("end", func() { r.beat(s, "end") })...)
	require.Equal(t, []string{"joined a0", "joined a1", "joined a2", "joined a3", "joined a4", "joined end"}, all)
}

// TestMixedRightsTellOnce: what a process that cannot read the note has told is not told again.
func TestMixedRightsTellOnce(t *testing.T) {
	r := newCrowdOnRedis(t)
	whole, lesser := r.as(""), r.as("-getrange")
	r.beat(lesser, "z")
	r.beat(whole, "a")
	r.beat(whole, "b")
	_, err := lesser.Remove(t.Context(), "z", "i-z")
	require.NoError(t, err)
	all := r.told("end", func() { r.beat(whole, "end") })
	slices.Sort(all)
	require.Equal(t, []string{"joined a", "joined b", "joined end", "joined z", "left z"}, all)
}

// TestDuplicatesAreHushed: many with one ID do not tell many all the time.
func TestDuplicatesAreHushed(t *testing.T) {
	l := newListened(t, 500)
	l.put("a", 0)
	duplicate := func() []string {
		return l.hear(func() {
			for range 10 {
				reply, err := l.store.Heartbeat(l.Context(), store.Heartbeat{ID: "a", Incarnation: "i-other", TakeOver: time.Hour, TTL: time.Second, Head: "{", Rest: "}"})
				require.NoError(l, err)
				require.EqualValues(l, "duplicate", reply.Verdict)
			}
		})
	}
	require.Len(l, duplicate(), 1)
	require.Empty(l, l.do("joining b"), "that waits for its end too")
	l.at(63)
	require.Equal(l, []string{"changed: joined b"}, l.do("look"))
	l.at(126)
	require.Len(l, duplicate(), 1)
}
