package tenure

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/redisstore"
	"github.com/tenure-go/tenure/internal/store"
)

// registryCluster is one Redis with registries on it.
type registryCluster struct {
	*testing.T
	rdb     redis.UniversalClient
	real    *redistest.Server   // nil: miniredis
	scripts *redisstore.Scripts // nil: those of the contract
}

// onRegistries runs act on miniredis and on a real Redis.
func onRegistries(t *testing.T, act func(*registryCluster)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) { act(miniRegistry(t)) })
	t.Run("redis", func(t *testing.T) { act(realRegistry(t)) })
}

func miniRegistry(t *testing.T) *registryCluster {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return &registryCluster{T: t, rdb: client}
}

func realRegistry(t *testing.T) *registryCluster {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	return &registryCluster{T: t, rdb: server.Client(t), real: server}
}

// registryInstance is one registry, and the events that its process has reported.
type registryInstance struct {
	*Registry
	w *registryCluster
	*beatLoop

	mu     sync.Mutex
	events []Event
}

// member makes a registry that beats only when it is told to. The incarnation is the ID and a
// number.
func (w *registryCluster) member(id string, change ...func(*Options)) *registryInstance {
	w.Helper()
	number := 0
	return w.start(id, func() string { number++; return fmt.Sprint(strings.ReplaceAll(id, ".", "-"), "-", number) }, change...)
}

func (w *registryCluster) start(id string, secret func() string, change ...func(*Options)) *registryInstance {
	w.Helper()
	opts, err := completed(func(o *Options) {
		o.Namespace, o.InstanceID, o.secret = "waf:cluster", id, secret
		o.random = func() float64 { return 0.5 }
		for _, change := range change {
			change(o)
		}
	})
	require.NoError(w, err)
	var c checker
	store := newRedisStore(w.rdb, &c, opts)
	require.NoError(w, c.err())
	if w.scripts != nil {
		store = redisstore.New(w.rdb, w.scripts, opts.Namespace, opts.InstanceID, opts.secret)
	}
	bus := newEventBus(id)
	m := &registryInstance{w: w, Registry: newRegistry(store, bus, opts, leadsNothing)}
	m.beatLoop = newBeatLoop(m.Registry)
	bus.observe(func(e Event) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.events = append(m.events, e)
	})
	return m
}

// leadsNothing is what a registry knows of a process without elections.
var leadsNothing = elections{
	leading:  func(roles []string) []string { return roles },
	compared: func() {},
	leader:   func(context.Context) (LeaderInfo, error) { return LeaderInfo{}, ErrNoLeader },
}

// told returns the events since it was last asked, as "type subject", but for EventClusterChanged.
func (m *registryInstance) told() []string {
	m.w.Helper()
	require.NoError(m.w, m.Registry.bus.flush(time.Now().Add(time.Minute)))
	m.mu.Lock()
	defer m.mu.Unlock()
	told := []string{}
	for _, e := range m.events {
		if e.Type == EventClusterChanged {
			continue
		}
		line := string(e.Type)
		if e.Subject != "" {
			line += " " + e.Subject
		}
		if e.Count != 0 {
			line += " " + strconv.Itoa(e.Count)
		}
		told = append(told, line)
	}
	m.events = nil
	return told
}

// beats sends one heartbeat, or two if the first came too late, and returns how long it is to the
// next.
func (m *registryInstance) beats() time.Duration {
	l := m.beatLoop
	l.beat.Nudge()
	for h, due := l.beat.Next(monotonic()); due; h, due = l.beat.Next(monotonic()) {
		l.send(context.Background(), h, nil)
	}
	return l.beat.Wait(monotonic())
}

// testSweeper is a sweeper that makes a pass when it is told to: its clock is set ahead to the next
// one.
type testSweeper struct {
	*sweeper
	ahead time.Duration
}

func (m *registryInstance) sweeper() *testSweeper {
	s := &testSweeper{}
	s.sweeper = newSweeper(m.Registry, validTerm(m.w.T), func() time.Duration { return monotonic() + s.ahead })
	return s
}

// watches lets time go by in which the sweeper sees nobody who is silent.
func (s *testSweeper) watches(t testing.TB, d time.Duration) {
	t.Helper()
	reply, err := s.r.store.Look(context.Background(), store.Look{Silence: s.sweep.Silence()})
	require.NoError(t, err)
	s.watchesAt(reply.Now, reply.Records-reply.Beats, d)
}

// watchesAt is watches without a question to Redis.
func (s *testSweeper) watchesAt(redis int64, excess int, d time.Duration) {
	for end := s.now() + d; s.now() < end; {
		s.ahead += s.sweep.Wait(s.now())
		for done := false; !done; {
			q, _ := s.sweep.Next(s.now())
			if q.Kind == membership.Scan {
				s.sweep.Scanned(q, nil, "0")
			} else {
				done = s.sweep.Looked(s.now(), q, membership.Page{Now: redis, Records: excess})
			}
		}
	}
}

func (s *testSweeper) pass(ctx context.Context) error {
	s.ahead += s.sweep.Wait(s.now())
	for {
		q, _ := s.sweep.Next(s.now())
		if done, err := s.ask(ctx, q); done || err != nil {
			return err
		}
	}
}

// watched is a sweeper that has watched for long enough to remove.
func (m *registryInstance) watched() *testSweeper {
	m.w.Helper()
	s := m.sweeper()
	m.pass(s)
	s.watches(m.w.T, m.opts.DriftedAfter)
	return s
}

// pass makes one pass, as if the sweeper had watched all the time before it.
func (m *registryInstance) pass(s *testSweeper) {
	m.w.Helper()
	require.NoError(m.w, s.pass(m.w.Context()))
}

// validTerm is a term that leads until the end of the test. Its timer is never to fire.
func validTerm(t testing.TB) Term {
	now := readClock()
	live := begin(context.Background(), Term{Token: 1}, lease.Lease{Sent: now, Life: 1000 * time.Hour}, func() {})
	live.timer.Stop()
	term, ok := TermFrom(live.ctx)
	require.True(t, ok)
	return term
}

// now is Redis's clock in ms.
func (w *registryCluster) now() int64 {
	w.Helper()
	now, err := w.rdb.Time(w.Context()).Result()
	require.NoError(w, err)
	return now.UnixMilli()
}

// silence sets back the last beats.
func (w *registryCluster) silence(d time.Duration, ids ...string) {
	w.Helper()
	at := float64(w.now() - d.Milliseconds())
	for _, id := range ids {
		require.NoError(w, w.rdb.ZAdd(w.Context(), "waf:cluster:beats", redis.Z{Score: at, Member: id}).Err())
		if score, err := w.rdb.ZScore(w.Context(), "waf:cluster:beats:words", id).Result(); err == nil {
			const band = 1e13
			require.NoError(w, w.rdb.ZAdd(w.Context(), "waf:cluster:beats:words", redis.Z{Score: math.Floor(score/band)*band + at, Member: id}).Err())
		}
	}
}

// foreign registers an instance as another program does.
func (w *registryCluster) foreign(id string, record string) {
	w.Helper()
	require.NoError(w, w.rdb.HSet(w.Context(), "waf:cluster:instances", id, record).Err())
	require.NoError(w, w.rdb.SetEx(w.Context(), "waf:cluster:instance:"+id+":heartbeat", "1734567950", 90*time.Second).Err())
}

func (w *registryCluster) record(id string) string {
	w.Helper()
	text, err := w.rdb.HGet(w.Context(), "waf:cluster:instances", id).Result()
	if err == redis.Nil { //nolint:errorlint // never wrapped
		return ""
	}
	require.NoError(w, err)
	return text
}

// ids lists the instances with their statuses.
func (m *registryInstance) list() []string {
	m.w.Helper()
	all, err := m.Instances(m.w.Context(), InstanceQuery{})
	require.NoError(m.w, err)
	list := []string{}
	for _, i := range all {
		list = append(list, i.ID+" "+string(i.State))
	}
	return list
}

const foreignRecord = `{"instance_id":"waf-0","started_at":1734567890,"last_heartbeat":1734567950,"status":"active","worker_count":4}`

// TestRegistryRulesAreTested leaves a rule out of a script and sees the difference.
func TestRegistryRulesAreTested(t *testing.T) {
	broken := func(t *testing.T, before, after string) *registryCluster {
		require.Equal(t, 1, strings.Count(scriptsLua, before), before)
		w := miniRegistry(t)
		var err error
		w.scripts, err = redisstore.Load(strings.Replace(scriptsLua, before, after, 1))
		require.NoError(t, err)
		return w
	}
	t.Run("re-check", func(t *testing.T) {
		w := broken(t, "if silence >= down and removable > 0", "if removable > 0")
		require.Equal(t, "down", w.beatBetweenLookAndSweep()[0])
	})
	t.Run("own-record", func(t *testing.T) {
		w := broken(t, "if record and incarnation_of(record) ~= ARGV[2] then return 'other' end", "")
		require.Empty(t, w.leaveOfAReplacedIncarnation())
	})
	t.Run("not-after", func(t *testing.T) {
		w := broken(t, "if not_after > 0 and now > not_after then return 'stale ' .. integer(now) .. ' 0 - 0 0' end", "")
		require.NotEqual(t, "stale", w.lateBeat())
	})
	t.Run("hold", func(t *testing.T) {
		w := broken(t, "removable = math.min(removable, hold.may) -- rule hold", "-- rule hold")
		require.NotEqual(t, heldStory, w.heldCrowd())
	})
	t.Run("cap", func(t *testing.T) {
		w := broken(t, "/ 4)) - gone -- rule cap", "/ 1)) - gone -- rule cap")
		require.NotEqual(t, heldStory, w.heldCrowd())
	})
	t.Run("crowd", func(t *testing.T) {
		w := broken(t, "integer(now - drifted)) -- rule crowd", "integer(now - down)) -- rule crowd")
		require.NotEqual(t, heldStory, w.heldCrowd())
	})
	t.Run("heartbeat of foreign", func(t *testing.T) {
		w := broken(t, "if call('EXISTS', KEYS[i + 4]) == 1 then", "if false then")
		require.NotEqual(t, foreignStory, w.foreignInstances())
	})
	t.Run("unwatched", func(t *testing.T) {
		w := broken(t, "elseif unwatched > 0 then", "elseif false then")
		require.NotEqual(t, foreignStory, w.foreignInstances())
	})
	t.Run("metadata", func(t *testing.T) {
		w := broken(t, "(string.find(record, '[{%[]', 2) or 0) - 1", "-1")
		require.NotEqual(t, foreignStory, w.foreignInstances())
	})
}

// hints subscribes and returns what yields the next hint.
func (w *registryCluster) hints() func() store.Hint {
	w.Helper()
	subscription := w.rdb.Subscribe(w.Context(), "waf:cluster:events")
	w.Cleanup(func() { _ = subscription.Close() })
	_, err := subscription.Receive(w.Context())
	require.NoError(w, err)
	return func() store.Hint {
		w.Helper()
		ctx, cancel := context.WithTimeout(w.Context(), 10*time.Second)
		defer cancel()
		message, err := subscription.ReceiveMessage(ctx)
		require.NoError(w, err)
		var h store.Hint
		require.NoError(w, json.Unmarshal([]byte(message.Payload), &h), message.Payload)
		return h
	}
}

// TestMembershipReachesEverybodyOnce: what one process does, each of them reports once.
func TestMembershipReachesEverybodyOnce(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		hints := w.hints()
		a, b, leader := w.member("a"), w.member("b"), w.member("leader")
		all := []*registryInstance{a, b, leader}
		pass := func(count int) (told [][]string) {
			for range count {
				h := hints()
				for _, m := range all {
					m.hint(h)
				}
			}
			for _, m := range all {
				told = append(told, m.told())
			}
			return told
		}
		a.beats()
		b.beats()
		require.Equal(w, [][]string{{"instance_registered", "instance_joined b"}, {"instance_registered", "instance_joined a"}, {"instance_joined a", "instance_joined b"}}, pass(2))
		s := leader.watched()
		w.silence(70*time.Second, "a")
		leader.pass(s)
		require.Equal(w, [][]string{{"instance_drifted a"}, {"instance_drifted a"}, {"instance_drifted a"}}, pass(1))
		a.beats()
		require.Equal(w, [][]string{{"instance_recovered a"}, {"instance_recovered a"}, {"instance_recovered a"}}, pass(1))
		w.silence(400*time.Second, "a")
		leader.pass(s)
		require.Equal(w, [][]string{{"instance_down a"}, {"instance_down a"}, {"instance_down a"}}, pass(1))
		require.NoError(w, b.deregister(w.Context()))
		require.Equal(w, [][]string{{"instance_left b"}, {"instance_left b"}, {"instance_left b"}}, pass(1))
		w.foreign("waf-0", foreignRecord)
		leader.pass(s)
		require.Equal(w, [][]string{{"instance_joined waf-0"}, {"instance_joined waf-0"}, {"instance_joined waf-0"}}, pass(1))
		require.NoError(w, w.rdb.HDel(w.Context(), "waf:cluster:instances", "waf-0").Err()) // as other programs leave
		w.silence(40*time.Second, "waf-0")
		leader.pass(s)
		require.Equal(w, [][]string{{"instance_left waf-0"}, {"instance_left waf-0"}, {"instance_left waf-0"}}, pass(1))
	})
}

// TestOnlyWhoDidItHasAnEventOfItsOwn: who hears of a change from another process has it as Remote.
func TestOnlyWhoDidItHasAnEventOfItsOwn(t *testing.T) {
	w := miniRegistry(t)
	hints := w.hints()
	a, other, leader := w.member("a"), w.member("other"), w.member("leader")
	a.beats()
	other.hint(hints())
	s := leader.watched()
	w.silence(400*time.Second, "a")
	leader.pass(s)
	other.hint(hints())
	remote := func(m *registryInstance) (remote []bool) {
		require.NoError(t, m.Registry.bus.flush(time.Now().Add(time.Minute)))
		for _, e := range m.events {
			remote = append(remote, e.Remote)
		}
		return remote
	}
	require.Equal(t, []bool{false}, remote(a), "instance_registered")
	require.Equal(t, []bool{false}, remote(leader), "down")
	require.Equal(t, []bool{true, true}, remote(other), "joined, down")

	a.told()
	changes := []store.Hint{
		{Type: "joined", Subjects: []string{"a", "b"}},                         // they themselves
		{Type: "down", Subjects: []string{"c"}, Source: a.incarnation},         // reported already
		{Type: "down", Subjects: []string{"a", "d"}, Source: "i-other"},        //
		{Type: "changed", Changes: []store.Hint{{Type: "left", Subject: "e"}}}, // no such thing
		{Type: "duplicate_id", Subject: "a", Source: "i-other"},                // nor that
	}
	a.hint(store.Hint{Type: "changed", Changes: changes})
	require.Equal(t, []string{"instance_joined b", "instance_down a", "instance_down d"}, a.told())
}

// TestManyListenersHearOfEachInstance: of a few messages.
func TestManyListenersHearOfEachInstance(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		for range 501 {
			conn, err := net.Dial("tcp", w.rdb.(*redis.Client).Options().Addr)
			require.NoError(w, err)
			w.Cleanup(func() { _ = conn.Close() })
			_, err = fmt.Fprint(conn, "*2\r\n$9\r\nSUBSCRIBE\r\n$18\r\nwaf:cluster:events\r\n")
			require.NoError(w, err)
			go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
		}
		for deadline := time.Now().Add(time.Minute); w.rdb.PubSubNumSub(w.Context(), "waf:cluster:events").Val()["waf:cluster:events"] < 501; time.Sleep(time.Millisecond) { // bounded poll
			require.True(w, time.Now().Before(deadline), "all listen")
		}
		hints := w.hints()
		other, last := w.member("other"), w.member("last")
		began := time.Now()
		var want []string
		for i := range 60 {
			m := w.member(fmt.Sprintf("m%02d", i))
			m.beats()
			want = append(want, "instance_joined "+m.id)
		}
		want = append([]string{"instance_joined last"}, want...)
		messages := 0
		for told := []string{}; ; messages++ {
			stop, beaten := make(chan struct{}), make(chan struct{})
			go func() { // ends with stop
				defer close(beaten)
				for {
					last.beats()
					select {
					case <-stop:
						return
					case <-time.After(10 * time.Millisecond):
					}
				}
			}()
			other.hint(hints())
			close(stop)
			<-beaten
			if told = append(told, other.told()...); len(told) >= len(want) {
				require.Equal(w, want, sorted(told))
				break
			}
		}
		require.LessOrEqual(w, messages, 3+int(time.Since(began)/(50*time.Millisecond)), "each of them keeps the next away for as long")
	})
}

func TestHostileHints(t *testing.T) {
	w := miniRegistry(t)
	m := w.member("a")
	for _, subject := range []string{"", "a b", "a\n", strings.Repeat("a", 129), "\x1b[2J", "é"} {
		m.hint(store.Hint{Type: "down", Subject: subject, Source: "x"})
	}
	m.hint(store.Hint{Type: "down", Subjects: []string{"", "a b", "a\n", strings.Repeat("a", 129)}, Source: "x"})
	m.hint(store.Hint{Type: "grown", Subject: "b", Source: "x"})
	require.Empty(t, m.told())
	for i := range 100_000 {
		m.hint(store.Hint{Type: store.HintDuplicate, Subject: "a", Source: fmt.Sprint("forged-", i)})
		m.hint(store.Hint{Type: store.HintDuplicate, Subject: "b", Source: fmt.Sprint("forged-", i)})
	}
	require.Equal(t, []string{"instance_duplicated forged-0"}, m.told())
}

func sorted(lines []string) []string {
	slices.Sort(lines)
	return lines
}

func TestListing(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx := w.Context()
		m := w.member("reader")
		require.Empty(w, m.list())
		for _, id := range []string{"c", "a", "b"} {
			other := w.member(id)
			other.setStatus(InstanceActive)
			other.beats()
		}
		d := w.member("d")
		d.setStatus(InstanceDraining)
		d.beats()
		w.silence(70*time.Second, "b")
		w.silence(10*time.Minute, "c")
		require.Equal(w, []string{"a active", "b drifted", "c down", "d draining"}, m.list())
		counts, err := m.Counts(ctx)
		require.NoError(w, err)
		require.Equal(w, Counts{Active: 1, Drifted: 1, Down: 1, Draining: 1, Total: 4}, counts)

		drifted, err := m.Instances(ctx, InstanceQuery{States: []InstanceState{InstanceDrifted}, Limit: 1})
		require.NoError(w, err)
		require.Len(w, drifted, 1)
		require.InDelta(w, 70, drifted[0].Age.Seconds(), 10)
		two, err := m.Instances(ctx, InstanceQuery{Limit: 2})
		require.ErrorIs(w, err, ErrTruncated)
		require.Len(w, two, 2)

		for _, id := range []string{"e", "", "no id", strings.Repeat("x", 10_000), "\x1b[2J"} {
			_, err := m.Instance(ctx, id)
			require.ErrorIs(w, err, ErrNotFound)
			require.NotContains(w, err.Error(), "\x1b")
			require.Less(w, len(err.Error()), 500)
		}
	})
}

// TestCountsBesideForeignRecords: the counts of the index are those of a listing, whoever wrote
// what is there, before and after the leader has adopted it.
func TestCountsBesideForeignRecords(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx := w.Context()
		leader := w.member("leader")
		same := func(indexed bool) {
			w.Helper()
			counting := &countingRegistry{Registry: leader.Registry.store}
			leader.Registry.store = counting
			counts, err := leader.Counts(ctx)
			require.NoError(w, err)
			require.Equal(w, indexed, counting.scans == 0, "without a listing")
			leader.Registry.store = counting.Registry
			listed, err := leader.listedCounts(ctx)
			require.NoError(w, err)
			require.Equal(w, listed, counts)
		}
		a := w.member("a")
		for _, status := range []InstanceState{InstanceJoining, InstanceActive, InstanceDraining} {
			a.setStatus(status)
			a.beats()
			same(true)
		}
		w.foreign("silent", strings.Replace(foreignRecord, "active", "draining", 1))
		w.foreign("wordless", `{"checks":1}`)
		w.foreign("other", strings.Replace(foreignRecord, "active", "resting", 1))
		same(false)
		s := leader.watched()
		same(true)
		w.silence(50*time.Second, "silent", "other", "wordless")
		w.foreign("other", strings.Replace(foreignRecord, "active", "joining", 1))
		leader.pass(s)
		same(true)
		w.silence(70*time.Second, "silent", "a")
		w.rdb.Del(ctx, "waf:cluster:instance:silent:heartbeat")
		same(true)
		leader.pass(s)
		same(true)
		w.silence(-70*time.Second, "silent", "a") // marked, and younger than this reader's bound
		same(true)
		a.beats()
		same(true)
		w.rdb.Del(ctx, "waf:cluster:beats:words") // lost: the next heartbeat, and look, repair them
		a.beats()
		w.silence(50*time.Second, "other")
		leader.pass(s)
		same(true)

		for record, indexed := range map[string]bool{`"x"`: false, `{}`: true, `{"status":"down"}`: false, `{"status":7}`: false, `{"status":""}`: true,
			`{"status":"active"`: false, `{"status":"active",!}`: false, `{"status":"active"} x`: false, `{"status":"active","status":"draining"}`: false,
			`{"status":"draining","status":"draining"}`: true, `{"st\u0061tus":"draining"}`: false, `{"status":"active","st\u0061tus":"draining"}`: false,
			`{"status":"active","load":NaN}`: false, `{"status":"active","load":0x1}`: false, `{"status":"active","load":01}`: false, `{"status":"active","load":+1}`: false,
			`{"status":"active","load":1.}`: false, `{"status":"active","load":.5}`: false, `{"status":"active","load":1e}`: false, "{\"status\":\"active\",\"x\":\"\x01\"}": false,
			`{"status":"active","load":-1.5e+10,"a":[1,2.0,{"status":"down"}],"b":null,"c":true,"d":0}`: true, "{\n\t\"status\": \"draining\"\n}\n": true,
			`{"instance_id":"x","started_at":1,"last_heartbeat":1,"status":"active","worker_count":1,"incarnation":"abc",!`: false,
			`{"a":{},"status":"draining"}`: false, `{"a":"{","status":"draining"}`: false, strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200): true} {
			w.foreign("x", record)
			leader.watched()
			same(indexed)
			require.NoError(w, w.rdb.ZRem(ctx, "waf:cluster:beats", "x").Err())
			require.NoError(w, w.rdb.ZRem(ctx, "waf:cluster:beats:words", "x").Err())
		}
		require.NoError(w, w.rdb.HSet(ctx, "waf:cluster:instances", "not an ID", foreignRecord).Err())
		same(false)
	})
}

// TestAll: a loop over all instances sees what a listing has, whatever records there are, reads no
// page more than it needs, and ends with the error of one that fails.
func TestAll(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx := w.Context()
		reader := w.member("reader")
		for i := range 700 {
			w.foreign(fmt.Sprintf("i-%03d", i), foreignRecord)
		}
		for record := range hostileRecords {
			w.foreign(fmt.Sprintf("hostile-%d", len(record)), record)
		}
		listed, err := reader.Instances(ctx, InstanceQuery{})
		require.NoError(w, err)
		counting := &countingRegistry{Registry: reader.Registry.store}
		reader.Registry.store = counting
		for range 2 {
			var all []Instance
			for i, err := range reader.All(ctx) {
				require.NoError(w, err)
				all = append(all, i)
			}
			slices.SortFunc(all, func(a, b Instance) int { return strings.Compare(a.ID, b.ID) })
			require.Len(w, all, len(listed))
			for i := range all {
				all[i].Age = listed[i].Age
			}
			require.Equal(w, listed, all)
		}
		counting.scans = 0
		for _, err := range reader.All(ctx) {
			require.NoError(w, err)
			break
		}
		require.Equal(w, 1, counting.scans)
		canceled, cancel := context.WithCancel(ctx)
		cancel()
		var errs []error
		for i, err := range reader.All(canceled) {
			require.Zero(w, i)
			errs = append(errs, err)
		}
		require.Len(w, errs, 1, "once, and last")
		require.ErrorIs(w, errs[0], context.Canceled)
	})
}

// hostileRecords are values that somebody may have put into the hash; whether they count as an
// instance.
var hostileRecords = map[string]bool{
	``: false, `null`: false, `x`: false, `[]`: false, `"x"`: false, `1`: false, `{`: false, strings.Repeat("[", 50_000): false,
	`{"status":"` + strings.Repeat("x", 70_000) + `"}`: false,
	`{}`: true,
	`{"instance_id":7,"started_at":"x","last_heartbeat":-1e300,"status":[],"worker_count":1e300,"incarnation":"a b","metadata":"x"}`: true,
	`{"started_at":1e999,"status":"no such","worker_count":-4,"incarnation":null,"metadata":{"a":1,"b":null,"c":"d"}}`:               true,
	`{"started_at":1734567890.75,"last_heartbeat":9007199254740993,"metadata":{"x":"` + strings.Repeat("y", 5000) + `"}}`:            true,
	"{\"status\":\"\xff\xfe\",\"metadata\":{\"\\u001b\":\"\\u202e\"}}":                                                               true,
	"{\"status\":\"\x1b\"}": false,
}

func TestHostileRecords(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		ctx, m := w.Context(), w.member("reader")
		good, bad := 0, 0
		for text, counts := range hostileRecords {
			require.NoError(w, w.rdb.HSet(ctx, "waf:cluster:instances", fmt.Sprint("i", good+bad), text).Err())
			if counts {
				good++
			} else {
				bad++
			}
		}
		for _, id := range []string{"", "a b", "a\nb", "a\x00b", "*", "{}", "\x1b[2J", "é", "\xff", strings.Repeat("x", 129), strings.Repeat("x", 1<<20)} {
			require.NoError(w, w.rdb.HSet(ctx, "waf:cluster:instances", id, foreignRecord).Err())
			require.NoError(w, w.rdb.ZAdd(ctx, "waf:cluster:beats", redis.Z{Score: 1, Member: id}).Err())
			bad++
		}
		require.NoError(w, w.rdb.HSet(ctx, "waf:cluster:instances", "big", strings.Repeat("x", 1<<20)).Err())
		bad++
		for i, score := range []float64{math.Inf(1), math.Inf(-1), 1e300, -1e300, 0.1, 1 << 60} {
			id := fmt.Sprint("score", i)
			require.NoError(w, w.rdb.HSet(ctx, "waf:cluster:instances", id, foreignRecord).Err())
			require.NoError(w, w.rdb.ZAdd(ctx, "waf:cluster:beats", redis.Z{Score: score, Member: id}).Err())
			good++
		}
		counts, err := m.Counts(ctx)
		require.NoError(w, err)
		require.Equal(w, good, counts.Total)
		require.Equal(w, bad, counts.Malformed)
		list, err := m.Instances(ctx, InstanceQuery{})
		require.NoError(w, err)
		require.Len(w, list, good)
		for _, i := range list {
			require.Regexp(w, store.IDPattern, i.ID)
			require.GreaterOrEqual(w, i.Age, time.Duration(0))
			require.Contains(w, []InstanceState{InstanceActive, InstanceDrifted, InstanceDown, InstanceUnknown}, i.State)
			_, err := m.Instance(ctx, i.ID)
			require.NoError(w, err)
		}
		_, err = m.Instance(ctx, "big")
		require.ErrorIs(w, err, ErrNotFound)

		leader := w.member("leader")
		leader.pass(leader.watched())
		require.Equal(w, int64(11), w.rdb.HLen(ctx, "waf:cluster:instances").Val()-int64(w.adoptable()), "what is no ID is left alone")
	})
}

// adoptable counts the records whose field is an instance ID.
func (w *registryCluster) adoptable() (count int) {
	for id := range w.rdb.HGetAll(w.Context(), "waf:cluster:instances").Val() {
		if store.IDPattern.MatchString(id) {
			count++
		}
	}
	return count
}

// TestOwnWords: another program's word is kept while the instance beats, and does not count as
// active.
func TestOwnWords(t *testing.T) {
	w := miniRegistry(t)
	m := w.member("reader")
	words := map[string]string{
		"a": `"active"`, "b": `"joining"`, "c": `"draining"`, "d": `"drifted"`, "e": `"down"`, "f": `"dead"`, "g": `"Active"`, "h": `7`,
		"i": `"two words"`, "j": `""`, "k": `null`, "l": `"unknown"`,
	}
	for id, word := range words {
		w.foreign(id, `{"status":`+word+`}`)
	}
	w.foreign("m", `{"Status":"draining"}`) // the scripts do not see it either
	m.watched()
	m.told()
	require.Equal(t, []string{
		"a active", "b joining", "c draining", "d active", "e down", "f dead", "g Active", "h unknown", "i unknown", "j active", "k active",
		"l unknown", "m active",
	}, m.list())
	counts, err := m.Counts(t.Context())
	require.NoError(t, err)
	require.Equal(t, Counts{Active: 5, Joining: 1, Draining: 1, Down: 1, Unknown: 5, Total: 13}, counts)
	for _, c := range []struct {
		states []InstanceState
		want   int
	}{
		{[]InstanceState{InstanceUnknown}, 5}, {[]InstanceState{InstanceActive}, 5}, {[]InstanceState{InstanceDown}, 1}, {[]InstanceState{InstanceDrifted}, 0},
		{[]InstanceState{InstanceDown, InstanceActive}, 6}, {[]InstanceState{}, 13}, {nil, 13},
	} {
		list, err := m.Instances(t.Context(), InstanceQuery{States: c.states})
		require.NoError(t, err)
		require.Len(t, list, c.want, "%s", c.states)
	}
	for _, status := range []InstanceState{"dead", "Active", "\x1b", ""} {
		_, err := m.Instances(t.Context(), InstanceQuery{States: []InstanceState{status}})
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, "tenure: invalid options:\n\tInstanceQuery.States[0] = ")
		var problem *OptionError
		require.ErrorAs(t, err, &problem)
		require.NotContains(t, err.Error(), "\x1b")
	}
}

// TestForeignIsWhoSaysSo: whether a record is tenure's is told by how it begins, in Go and in the
// scripts alike. A foreign instance whose heartbeat key is there is never removed.
func TestForeignIsWhoSaysSo(t *testing.T) {
	const own = `{"instance_id":"x","started_at":1,"last_heartbeat":2,"status":"active","worker_count":4,"incarnation":"i-1"`
	onRegistries(t, func(w *registryCluster) {
		for record, incarnation := range map[string]string{
			own + `}`: "i-1",
			own + `,"metadata":{"incarnation":"blue"}}`:            "i-1",
			strings.Replace(own, `"active"`, `"drifted"`, 1) + `}`: "i-1",
			`{"status":"active","labels":{"incarnation":"blue"}}`:  "",
			`{"labels":{"incarnation":"blue"},"status":"active"}`:  "",
			`{"status":"active","incarnation":"blue"}`:             "",
			` ` + own + `}`: "",
			strings.Replace(own, `"incarnation"`, `"Incarnation"`, 1) + `}`:                "",
			strings.Replace(own, `i-1`, ``, 1) + `}`:                                       "",
			strings.Replace(own, `i-1`, strings.Repeat("i", 65), 1) + `}`:                  "",
			strings.Replace(own, `"worker_count":4,`, ``, 1) + `}`:                         "",
			strings.Replace(own, `"status":"active"`, `"status":"two words"`, 1) + `}`:     "",
			`{"instance_id":"x","started_at":1,"more":` + own + `}}`:                       "",
			strings.Replace(own, `"started_at":1`, `"started_at":1.5`, 1) + `,"status":1}`: "",
		} {
			require.NoError(w, w.rdb.FlushAll(w.Context()).Err())
			leader := w.member("leader")
			w.foreign("x", record)
			s := leader.watched()
			i, err := leader.Instance(w.Context(), "x")
			require.NoError(w, err, record)
			require.Equal(w, incarnation, i.Incarnation, record)
			w.silence(400*time.Second, "x")
			leader.pass(s)
			require.Equal(w, incarnation == "", w.record("x") != "", "the heartbeat key counts for a foreign one: %s", record)
		}
	})
}

// FuzzInstanceEntry: whatever a record says, it is an instance within bounds or none.
func FuzzInstanceEntry(f *testing.F) {
	for text := range hostileRecords {
		f.Add(text, int64(1), "1")
	}
	f.Add(foreignRecord, int64(math.MaxInt64), "-inf")
	opts, _ := completed(func(*Options) {})
	r := newRegistry(memstore.NewRegistry(), newEventBus("x"), opts, leadsNothing)
	f.Fuzz(func(t *testing.T, text string, now int64, beat string) {
		last, err := strconv.ParseInt(beat, 10, 64)
		i, ok := r.instance(store.Entry{ID: "x", Beaten: err == nil, Last: last, Record: text}, now)
		if !ok {
			return
		}
		require.GreaterOrEqual(t, i.Age, time.Duration(0))
		require.GreaterOrEqual(t, i.WorkerCount, 0)
		require.Less(t, i.size(), 32<<10)
	})
}

// TestListingIsTruncated: 100,000 entries are looked at, and no more. That is said whatever else is
// wrong.
func TestListingIsTruncated(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	w := realRegistry(t)
	for first := 0; first < 101_000; first += 1000 {
		var pairs []string
		for i := range 1000 {
			pairs = append(pairs, fmt.Sprint("i", first+i), "{}") // what is cheap to read
		}
		require.NoError(t, w.rdb.HSet(t.Context(), "waf:cluster:instances", pairs).Err())
	}
	m := w.member("reader")
	began := time.Now()
	list, err := m.Instances(t.Context(), InstanceQuery{})
	require.ErrorIs(t, err, ErrTruncated)
	require.Len(t, list, maxInstances)
	t.Logf("%d instances listed in %v", len(list), time.Since(began).Round(time.Millisecond))
	counts, err := m.Counts(t.Context())
	require.ErrorIs(t, err, ErrTruncated)
	require.Equal(t, maxInstances, counts.Total)
	status, err := m.Status(t.Context())
	require.ErrorIs(t, err, ErrTruncated)
	require.Equal(t, maxInstances, status.Counts.Total)
	require.NoError(t, w.rdb.RPush(t.Context(), "waf:cluster:beats:lost", "mine").Err())
	_, list, err = m.Overview(t.Context())
	require.ErrorIs(t, err, ErrTruncated)
	require.ErrorIs(t, err, ErrMisconfigured, "how many are lost cannot be read")
	require.Len(t, list, maxInstances)
}

// foreignFields is a registry into whose hash somebody has put more than a listing looks at.
type foreignFields struct{ store.Registry }

func (f foreignFields) Scan(context.Context, string, bool) (store.ScanReply, error) {
	return store.ScanReply{Next: "7", Malformed: maxInstances}, nil
}

func (f foreignFields) Count(ctx context.Context, drifted, down time.Duration) (store.CountReply, error) {
	reply, err := f.Registry.Count(ctx, drifted, down)
	reply.Records += maxInstances
	return reply, err
}

// TestCountsAmongForeignFields: what somebody has put into the hash of the instances does not hide
// from a count who sends heartbeats.
func TestCountsAmongForeignFields(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		m := w.member("a")
		m.setStatus(InstanceActive)
		m.beats()
		m.Registry.store = foreignFields{m.Registry.store}
		want := Counts{Active: 1, Total: 1, Malformed: maxInstances}
		counts, err := m.Counts(w.Context())
		require.ErrorIs(w, err, ErrTruncated)
		require.Equal(w, want, counts)
		status, err := m.Status(w.Context())
		require.ErrorIs(w, err, ErrTruncated)
		require.Equal(w, want, status.Counts)
		status, list, err := m.Overview(w.Context())
		require.ErrorIs(w, err, ErrTruncated)
		require.Equal(w, want, status.Counts)
		require.Empty(w, list)
		status, _, err = m.OverviewOf(w.Context(), status, list)
		require.NoError(w, err)
		require.Equal(w, want, status.Counts)
		s := m.watched()
		s.count(w.Context())
		require.Equal(w, want, *s.counts, "the leader reports it too")
	})
}

// bulkyRegistry has this many instances, with as much metadata as may be.
type bulkyRegistry struct {
	store.Registry
	bulky int
}

func (b bulkyRegistry) Scan(context.Context, string, bool) (store.ScanReply, error) {
	reply := store.ScanReply{Next: "0", Now: 1}
	record := `{"metadata":{"m":"` + strings.Repeat("x", store.MaxMetadataBytes-1) + `"}}`
	for i := range b.bulky {
		reply.Entries = append(reply.Entries, store.Entry{ID: fmt.Sprint("i", i), Record: record})
	}
	return reply, nil
}

// TestListingOfManyBytesIsTruncated: what whoever may write to Redis has put there does not fill
// the memory of a reader. All are counted all the same.
func TestListingOfManyBytesIsTruncated(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	m := miniRegistry(t).member("reader")
	const bulky = maxInstanceBytes/store.MaxMetadataBytes + 1
	m.Registry.store = bulkyRegistry{m.Registry.store, bulky}
	fits := func(list []Instance) {
		t.Helper()
		size := 0
		for _, i := range list {
			size += i.size()
		}
		require.LessOrEqual(t, size, maxInstanceBytes)
		require.Greater(t, size, maxInstanceBytes-2*store.MaxMetadataBytes)
	}
	list, err := m.Instances(t.Context(), InstanceQuery{})
	require.ErrorIs(t, err, ErrTruncated)
	fits(list)
	status, list, err := m.Overview(t.Context())
	require.ErrorIs(t, err, ErrTruncated)
	require.Equal(t, bulky, status.Counts.Total)
	fits(list)
	kept := 0
	for _, e := range *m.overview.Load() {
		kept += e.instance.size() + len(e.text)
	}
	require.LessOrEqual(t, kept, maxInstanceBytes)
}

// TestListingAcrossARestart: whoever is there all the time is listed, once, though each start of a
// server has another order, by which a scan that goes on from the old place misses some.
func TestListingAcrossARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t, redistest.Persist())
	w := &registryCluster{T: t, rdb: server.Client(t), real: server}
	const many = 2000
	var pairs []string
	for i := range many {
		pairs = append(pairs, fmt.Sprint("i", i), "{}")
	}
	pairs = append(pairs, "no ID", "{}", "broken", "{")
	require.NoError(t, w.rdb.HSet(t.Context(), "waf:cluster:instances", pairs).Err())
	m := w.member("reader")
	listed := make(map[string]int)
	malformed, err := m.each(t.Context(), func(i Instance) bool {
		if listed[i.ID]++; len(listed) == many/2 {
			server.Restart(t)
		}
		return true
	})
	require.NoError(t, err)
	require.Len(t, listed, many)
	for id, times := range listed {
		require.Equal(t, 1, times, id)
	}
	require.Equal(t, 2, malformed)
}

// endlessScan answers each page with another cursor, as no Redis does.
type endlessScan struct {
	store.Registry
	pages int
}

func (s *endlessScan) Scan(context.Context, string, bool) (store.ScanReply, error) {
	s.pages++
	return store.ScanReply{Next: "7"}, nil
}

// TestScanWithoutAnEnd is given up.
func TestScanWithoutAnEnd(t *testing.T) {
	m := miniRegistry(t).member("reader")
	m.store = &endlessScan{Registry: m.store}
	_, err := m.listedCounts(t.Context())
	require.ErrorIs(t, err, ErrTruncated)
}

// TestRecordOfAMegabyteIsNotRead: what cannot be a record does not travel, and is left alone.
func TestRecordOfAMegabyteIsNotRead(t *testing.T) {
	onRegistries(t, func(w *registryCluster) {
		a, huge := w.member("a"), `{"instance_id":"huge","status":"`+strings.Repeat("x", 1<<20)+`"}`
		w.foreign("huge", huge)
		entry, _, err := a.store.Instance(t.Context(), "huge")
		require.NoError(t, err)
		require.Empty(t, entry.Record)
		list, err := a.Instances(t.Context(), InstanceQuery{})
		require.NoError(t, err)
		require.Empty(t, list)
		require.Equal(t, huge, w.rdb.HGet(t.Context(), "waf:cluster:instances", "huge").Val())
	})
}

// TestRegistryOnAFullRedis: beats, sweeps and removals go on though nothing can be stored.
func TestRegistryOnAFullRedis(t *testing.T) {
	w := realRegistry(t)
	a, b, leader := w.member("a"), w.member("b"), w.member("leader")
	a.beats()
	w.foreign("waf-0", foreignRecord)
	w.real.ConfigSet(t, "maxmemory", "1")
	w.real.ConfigSet(t, "maxmemory-policy", "noeviction")
	require.ErrorContains(t, w.rdb.Set(t.Context(), "x", "y", 0).Err(), "OOM")
	a.beats()
	b.beats()
	require.Equal(t, []string{"instance_registered"}, a.told())
	require.Equal(t, []string{"instance_registered"}, b.told())
	s := leader.watched()
	require.Equal(t, []string{"instance_joined waf-0"}, leader.told())
	w.silence1(70*time.Second, "a")
	leader.pass(s)
	require.Equal(t, []string{"instance_drifted a"}, leader.told())
	w.silence1(400*time.Second, "a")
	leader.pass(s)
	require.Equal(t, []string{"instance_down a"}, leader.told())
	w.real.ConfigSet(t, "maxmemory", "0")
	for _, id := range []string{"c", "d", "e"} {
		w.member(id).beats()
		w.silence(400*time.Second, id)
	}
	w.rdb.Del(t.Context(), "waf:cluster:beats:removed")
	w.real.ConfigSet(t, "maxmemory", "1")
	leader.pass(s)
	require.Contains(t, leader.told(), "sweep_held 2")
	require.NoError(t, b.deregister(t.Context()))
}

// silence1 sets back the last beat on a Redis that is full.
func (w *registryCluster) silence1(d time.Duration, id string) {
	w.Helper()
	w.real.ConfigSet(w.T, "maxmemory", "0")
	w.silence(d, id)
	w.real.ConfigSet(w.T, "maxmemory", "1")
}

// TestRegistryRights: a user without rights to channels loses the hints and nothing else; one
// without rights to a command hears which.
func TestRegistryRights(t *testing.T) {
	w := realRegistry(t)
	user := func(rules ...any) *registryCluster {
		args := append([]any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~waf:cluster*"}, rules...)
		require.NoError(t, w.rdb.Do(t.Context(), args...).Err())
		opts := w.real.Options()
		opts.Username, opts.Password = "app", "secret"
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		return &registryCluster{T: t, rdb: client}
	}
	quiet := user("+@all", "resetchannels")
	a, leader := quiet.member("a"), quiet.member("leader")
	a.beats()
	s := leader.watched()
	w.silence(400*time.Second, "a")
	leader.pass(s)
	require.Equal(t, []string{"instance_down a"}, leader.told())
	a.beats()
	require.NoError(t, a.deregister(t.Context()))
	require.Equal(t, []string{"instance_registered", "instance_registered", "instance_left a"}, a.told())

	b := user("+@all", "-zadd", "allchannels").member("b")
	b.beats()
	b.beats()
	require.NoError(t, b.Registry.bus.flush(time.Now().Add(time.Minute)))
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(t, b.events, 1, "once")
	require.ErrorIs(t, b.events[0].Err, ErrMisconfigured)
	require.ErrorContains(t, b.events[0].Err, "+zadd and access to ~waf:cluster:beats")
}

// TestRegistryKeysShareASlot: on a cluster a namespace has a hash tag, and every key has the
// namespace.
func TestRegistryKeysShareASlot(t *testing.T) {
	k := store.Keys("{waf}:cluster")
	for _, key := range []string{k.Instances(), k.Beats(), k.Words(), k.Hold(), k.Removed(), k.Lost(), k.Heartbeat("x")} {
		require.True(t, strings.HasPrefix(key, "{waf}:cluster:"), key)
	}
}

// TestRegistryCost measures the processor's time that Redis spends on a beat, and on a sweep of
// 10,000 with none and with 100 silent. It is the best of some rounds and a generous bound, which
// grows by as much as the same Redis needs longer, in these very rounds, for a script that is the
// same always: this machine may be busy.
func TestRegistryCost(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector, which sees nothing of Redis")
	}
	w := realRegistry(t)
	ctx := t.Context()
	took := func(calls int, act func()) time.Duration {
		before := redisTime(t, w.real)
		for range calls {
			act()
		}
		return (redisTime(t, w.real) - before) / time.Duration(calls)
	}
	yardstick := func() {
		require.NoError(t, w.rdb.Eval(ctx, "local n = 0 for i = 1, 20000 do n = n + #tostring(i) end return n", nil).Err())
	}
	const quick = 10 * time.Millisecond // what it takes on a machine that has nothing else to do
	cost := func(what string, bound time.Duration, calls int, prepare, act func()) {
		best, measure := time.Hour, time.Hour
		for range 10 {
			measure = min(measure, took(1, yardstick))
			prepare()
			best = min(best, took(calls, act))
		}
		slow := max(1, float64(measure)/float64(quick))
		t.Logf("%s: %v of Redis's time, on a machine %.1f times as slow", what, best, slow)
		require.Less(t, best, time.Duration(5*slow*float64(bound)), "five times what it should cost: %s", what)
	}
	nothing := func() {}
	const instances = 10_000
	old := strings.Replace(foreignRecord, `"worker_count":4`, `"worker_count":4,"incarnation":"0123456789abcdef0123456789abcdef"`, 1)
	ids := make([]string, instances)
	fill := func(ids []string, silent time.Duration) {
		now := w.now() - silent.Milliseconds()
		for page := range slices.Chunk(ids, 1000) {
			var pairs []string
			var beats []redis.Z
			for i, id := range page {
				pairs = append(pairs, id, strings.Replace(old, "waf-0", id, 1))
				beats = append(beats, redis.Z{Score: float64(now - int64(i)), Member: id})
			}
			require.NoError(t, w.rdb.HSet(ctx, "waf:cluster:instances", pairs).Err())
			require.NoError(t, w.rdb.ZAdd(ctx, "waf:cluster:beats", beats...).Err())
		}
	}
	for i := range ids {
		ids[i] = fmt.Sprintf("forms-waf-openresty-%d", i)
	}
	fill(ids, 0)
	m, leader := w.member(ids[17]), w.member("leader", func(o *Options) { o.Registry.SweepInterval = time.Second }) // records are read each DownAfter
	m.beats()
	s := leader.watched()
	sweep := func() { leader.pass(s) }
	silent := ids[1000:1100]
	cost("a beat", 30*time.Microsecond, 500, nothing, func() { m.beats() })
	cost("a sweep, none silent", 50*time.Microsecond, 100, nothing, sweep)
	cost("a sweep, 100 drift", time.Millisecond, 1, func() { fill(silent, 70*time.Second) }, sweep)
	cost("a sweep, 100 have drifted", time.Millisecond, 10, nothing, sweep)
	cost("a sweep, 100 are removed", time.Millisecond, 1, func() { fill(silent, 400*time.Second) }, sweep)
	cost("a listing of 9,900", 20*time.Millisecond, 1, nothing, func() {
		list, err := leader.Instances(ctx, InstanceQuery{})
		require.NoError(t, err)
		require.Len(t, list, instances-len(silent))
	})
}

// TestUpdateCopies: what the application does with its maps and lists later changes no record.
func TestUpdateCopies(t *testing.T) {
	m, err := NewStandalone(Options{InstanceID: "a"})
	require.NoError(t, err)
	ports, roles, capabilities, metadata := map[string]int{"http": 80}, []string{"web"}, []string{"gpu"}, map[string]string{"zone": "a"}
	require.NoError(t, m.Registry().Update(InstanceUpdate{Ports: ports, Roles: roles, Capabilities: capabilities, Metadata: metadata}))
	ports["http"], roles[0], capabilities[0], metadata["zone"] = 81, "mail", "tpu", "b"
	said := m.Registry().said()
	require.Equal(t, map[string]int{"http": 80}, said.Ports)
	require.Equal(t, []string{"web"}, said.Roles)
	require.Equal(t, []string{"gpu"}, said.Capabilities)
	require.Equal(t, map[string]string{"zone": "a"}, said.Metadata)
}
