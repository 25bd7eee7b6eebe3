package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// TestInfoWithoutReplication: what INFO does not say of replicas is not known. It is no answer that
// there are none.
func TestInfoWithoutReplication(t *testing.T) {
	for text, known := range map[string]bool{
		"redis_version:7.0.15\r\nused_memory:1\r\n":       false,
		"role:master\r\nconnected_slaves:0\r\n":           true,
		"role:slave\r\nconnected_slaves:2\r\n":            true,
		"role:master\r\nconnected_slaves:\r\n":            false,
		"role:master\r\nconnected_slaves:not telling\r\n": false,
	} {
		f := store.Facts{Settings: map[string]string{}}
		readInfo(&f, text)
		require.Equal(t, known, f.Replication, text)
	}
}

// TestServer: a Redis, and a Valkey, say what they are; one that refuses INFO is not known.
func TestServer(t *testing.T) {
	c := miniCluster(t, "ns")
	var answer string
	c.mini.Server().SetPreHook(func(peer *server.Peer, cmd string, _ ...string) bool {
		if cmd != "INFO" {
			return false
		}
		if answer == "" {
			peer.WriteError("NOPERM this user has no permissions to run the 'info' command")
		} else {
			peer.WriteBulk(answer)
		}
		return true
	})
	_, err := c.store.Server(t.Context())
	require.ErrorIs(t, err, store.ErrMisconfigured)
	for text, want := range map[string]store.Server{
		"# Server\r\nredis_version:7.0.15\r\nuptime_in_seconds:90\r\n":                  {Kind: "redis", Version: "7.0.15", Uptime: 90 * time.Second},
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1": {Kind: "valkey", Version: "8.1.1"},
		"# Server\r\nuptime_in_seconds:soon":                                            {},
	} {
		answer = text
		got, err := c.store.Server(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

// answering has a cluster answer some commands as it is told to; false: as always.
func answering(c *cluster, answer func(peer *server.Peer, cmd string, args []string) bool) {
	c.mini.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool { return answer(peer, cmd, args) })
}

// unbounded waits for a call as long as the client does.
func unbounded(ctx context.Context, call func(context.Context) error) error { return call(ctx) }

// examining is an examination of a cluster that has only just begun.
func examining(c *cluster) *examination {
	role := roleOf(c.rdb, string(c.store.keys))
	return &examination{lease: role, master: role.Store, bounded: unbounded, facts: store.Facts{Settings: map[string]string{}, Refused: map[string]error{}}}
}

// TestWhatInfoSays: all that matters of INFO is taken, and nothing is made of what is no number.
func TestWhatInfoSays(t *testing.T) {
	f := store.Facts{Settings: map[string]string{}}
	readInfo(&f, strings.Join([]string{
		"# Server", "redis_version:7.2.4", "valkey_version:8.1.1", "redis_mode:cluster", "uptime_in_seconds:90", "role:master", "connected_slaves:2", "min_slaves_good_slaves:1",
		"used_memory:9000", "maxmemory:8192", "maxmemory_policy:noeviction", "mem_not_counted_for_evict:4904", "aof_enabled:1", "",
	}, "\r\n"))
	require.Equal(t, store.Facts{
		Version: "7.2.4", Valkey: "8.1.1", Cluster: true, Uptime: 90 * time.Second, Role: "master", Replication: true, Replicas: 2, Counted: true, InSync: 1, Used: 4096,
		Settings: map[string]string{"maxmemory": "8192", "maxmemory-policy": "noeviction", "appendonly": "yes"},
	}, f)
	f = store.Facts{Settings: map[string]string{}}
	readInfo(&f, "redis_mode:standalone\nuptime_in_seconds:99999999999\nused_memory:much\naof_enabled:0\n")
	require.False(t, f.Cluster)
	require.Zero(t, f.Used)
	require.Positive(t, f.Uptime, "however long it has been up")
	require.Equal(t, "no", f.Settings["appendonly"])
	for _, field := range []string{"role:active-replica", "crdt_replid:1"} {
		f = store.Facts{Settings: map[string]string{}}
		readInfo(&f, "redis_version:6.3.4\r\n"+field+"\r\nconnected_slaves:1\r\n")
		require.True(t, f.Several, field)
	}
}

// TestClientFacts: the settings of the client, if they can be known.
func TestClientFacts(t *testing.T) {
	single := redis.NewClient(&redis.Options{ReadTimeout: time.Second, DialTimeout: 2 * time.Second, PoolSize: 3})
	defer single.Close()
	want := store.ClientFacts{Kind: "single", ReadTimeout: time.Second, DialTimeout: 2 * time.Second, PoolSize: 3}
	require.Equal(t, want, openStore(single, "ns").clientFacts())
	want.Kind = "cluster"
	for i, o := range []redis.ClusterOptions{{}, {ReadOnly: true}, {RouteByLatency: true}, {RouteRandomly: true}} {
		o.Addrs, o.ReadTimeout, o.DialTimeout, o.PoolSize = []string{"127.0.0.1:1"}, time.Second, 2*time.Second, 3
		cluster := redis.NewClusterClient(&o)
		want.FromReplicas = i > 0
		require.Equal(t, want, openStore(cluster, "{ns}").clientFacts())
		require.NoError(t, cluster.Close())
	}
	require.Equal(t, store.ClientFacts{Kind: "other"}, openStore(struct{ redis.UniversalClient }{single}, "ns").clientFacts())
}

// TestNeighbours: namespaces that begin with this one's name and a colon, or the other way round.
// They are looked for among a bounded number of keys.
func TestNeighbours(t *testing.T) {
	c := miniCluster(t, "a:b:c")
	for _, namespace := range []string{"a", "a:b", "a:b:c", "a:b:c:d", "a:b:c:d:e", "a:b:cd", "b", "a:x"} {
		c.mini.HSet(namespace+":instances", "x", "{}")
	}
	pages := 0
	answering(c, func(_ *server.Peer, cmd string, _ []string) bool {
		if cmd == "SCAN" {
			pages++
		}
		return false
	})
	e := examining(c)
	e.neighbours(t.Context())
	require.Equal(t, []string{"a", "a:b", "a:b:c:d", "a:b:c:d:e"}, e.facts.Neighbours)
	require.Empty(t, e.facts.Refused)
	require.Equal(t, 1, pages, "there are no more")
	of := clusterOf(t, &redis.Options{Addr: c.mini.Addr(), Protocol: 2, DisableIdentity: true}, "bb:ab:c")
	e = examining(of)
	e.neighbours(t.Context())
	require.Empty(t, e.facts.Neighbours, "b is no namespace that this name is in, and neither is bb")

	pages = 0
	answering(c, func(peer *server.Peer, cmd string, args []string) bool {
		if cmd != "SCAN" {
			return false
		}
		require.Equal(t, []string{fmt.Sprint(pages), "match", "a:b:c:*:instances", "count", "500"}, args)
		pages++
		peer.WriteLen(2)
		peer.WriteBulk(fmt.Sprint(pages))
		peer.WriteStrings([]string{"a:b:c:one:instances", fmt.Sprintf("a:b:c:%02d:instances", pages)})
		return true
	})
	e = examining(c)
	e.neighbours(t.Context())
	require.Equal(t, scanPages, pages)
	require.Len(t, e.facts.Neighbours, 2+1+scanPages, "each once")

	answering(c, func(peer *server.Peer, cmd string, _ []string) bool {
		if cmd == "SCAN" || cmd == "EXISTS" {
			peer.WriteError("NOPERM " + cmd)
		}
		return cmd == "SCAN" || cmd == "EXISTS"
	})
	e = examining(c)
	e.neighbours(t.Context())
	require.Empty(t, e.facts.Neighbours)
	require.ErrorContains(t, e.facts.Refused[store.ProbeScan], "NOPERM EXISTS", "the first refusal counts")
}

// TestReadingsOfTheClock: that of the shortest round trip counts, and the two of which one was
// taken later say how fast Redis's clock runs.
func TestReadingsOfTheClock(t *testing.T) {
	c := miniCluster(t, "ns")
	read := 0
	ahead := func() time.Duration { return time.Duration(read) * time.Hour }
	answering(c, func(peer *server.Peer, cmd string, _ []string) bool {
		if cmd != "TIME" {
			return false
		}
		read++
		at := time.Now().Add(ahead())
		peer.WriteStrings([]string{fmt.Sprint(at.Unix()), fmt.Sprint(at.Nanosecond() / 1000)})
		return true
	})
	e := examining(c)
	best, able := e.readClock(t.Context())
	require.True(t, able)
	require.Len(t, e.facts.RoundTrips, clockSamples)
	shortest := slices.Min(e.facts.RoundTrips)
	require.Equal(t, shortest, best.trip)
	require.InDelta(t, float64(1+slices.Index(e.facts.RoundTrips, shortest)), best.offset.Hours(), 0.5)
	require.WithinRange(t, best.at, time.Now().Add(-time.Hour), time.Now())

	ahead = func() time.Duration { return 3 * time.Hour }
	const passed = 1000 * time.Hour
	for trip, offset := range map[time.Duration]float64{1000 * time.Hour: 3, 0: 2} {
		e = examining(c)
		e.clock(t.Context(), reading{offset: 2 * time.Hour, trip: trip, at: time.Now().Add(-passed)})
		require.InDelta(t, offset, e.facts.Offset.Hours(), 0.5, "of the better of both")
		require.InDelta(t, 1.0/1000, e.facts.Rate, 1e-4)
		second := slices.Min(e.facts.RoundTrips)
		require.Equal(t, min(trip, second)/2, e.facts.OffsetError)
		require.InDelta(t, (trip+second).Seconds()/2/passed.Seconds(), e.facts.RateError, 1e-4)
	}
	answering(c, func(peer *server.Peer, cmd string, _ []string) bool {
		peer.WriteError("NOPERM " + cmd)
		return true
	})
	e = examining(c)
	_, able = e.readClock(t.Context())
	require.False(t, able)
	e.clock(t.Context(), best)
	require.Zero(t, e.facts.RateError, "nothing is known")
	require.Zero(t, e.facts.Offset)
}

// TestExaminationEndsWithItsContext: it waits between its two looks at the clock, but not beyond
// its context. What it knows by then is there.
func TestExaminationEndsWithItsContext(t *testing.T) {
	c := miniCluster(t, "ns")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answering(c, func(_ *server.Peer, cmd string, _ []string) bool {
		if cmd == "SCAN" { // the last question before the pause
			cancel()
		}
		return false
	})
	f := roleOf(c.rdb, "ns").Examine(ctx, unbounded)
	require.Len(t, f.RoundTrips, clockSamples)
	require.True(t, slices.IsSorted(f.RoundTrips))
	require.Zero(t, f.RateError)
}

// TestExaminesTheClientThatWasGiven: not the one whose calls end after one attempt. That one has
// another ReadTimeout, and with go-redis 9.17.3 it cannot subscribe.
func TestExaminesTheClientThatWasGiven(t *testing.T) {
	c := miniCluster(t, "ns")
	end := func() {}
	answering(c, func(_ *server.Peer, cmd string, _ []string) bool {
		if cmd == "SCAN" { // the last question before the pause
			end()
		}
		return false
	})
	for _, timeout := range []time.Duration{-1, time.Second, 20 * time.Second} {
		client := redis.NewClient(&redis.Options{Addr: c.mini.Addr(), Protocol: 2, DisableIdentity: true, ReadTimeout: timeout})
		ctx, cancel := context.WithCancel(t.Context())
		end = cancel
		f := roleOf(client, "ns").Examine(ctx, unbounded)
		require.Equal(t, client.Options().ReadTimeout, f.Client.ReadTimeout)
		require.NotContains(t, f.Refused, store.ProbeSubscribe)
		cancel()
		require.NoError(t, client.Close())
	}
}

// TestExamineWhatIsRefused: each thing that is refused is named, and all else is found out.
func TestExamineWhatIsRefused(t *testing.T) {
	c := miniCluster(t, "ns")
	asked := map[string]int{}
	refused := map[string]bool{}
	answering(c, func(peer *server.Peer, cmd string, args []string) bool {
		asked[cmd]++
		switch {
		case refused[cmd], cmd == "TIME" && asked["EVALSHA"]+asked["EVAL"] == 0: // else it waits between two readings
			peer.WriteError("NOPERM " + cmd)
		case cmd == "CONFIG":
			if args[1] == "maxmemory" { // this server has no such setting
				peer.WriteLen(0)
				return true
			}
			peer.WriteStrings([]string{args[1], "of " + args[1]})
		case cmd == "INFO":
			peer.WriteBulk("redis_version:7.0.15\r\n")
		default:
			return false
		}
		return true
	})
	for probe, cmds := range map[string][]string{
		store.ProbePing: {}, store.ProbeScripts: {"EVALSHA"}, store.ProbeInfo: {"INFO"}, store.ProbeConfig: {"CONFIG"}, store.ProbePublish: {"PUBLISH"},
		store.ProbeSubscribe: {"SUBSCRIBE"}, store.ProbeScan: {"SCAN"},
	} {
		clear(asked)
		clear(refused)
		for _, cmd := range cmds {
			refused[cmd] = true
		}
		f := roleOf(c.rdb, "ns").Examine(t.Context(), unbounded)
		want := []string{store.ProbePing}
		if probe != store.ProbePing {
			want = append(want, probe)
		}
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(f.Refused)), "%v", f.Refused)
		for _, cmd := range cmds {
			require.ErrorContains(t, f.Refused[probe], "NOPERM "+cmd, probe)
		}
		require.Equal(t, "single", f.Client.Kind)
		if probe == store.ProbeConfig {
			require.Equal(t, 1, asked["CONFIG"], "it is not tried again")
			require.Empty(t, f.Settings)
		} else {
			require.Len(t, f.Settings, len(examined)-1)
			require.Equal(t, "of save", f.Settings["save"])
		}
		require.Equal(t, probe != store.ProbeInfo, f.Version != "")
	}
	clear(asked)
	clear(refused)
	refused["PING"] = true
	f := roleOf(c.rdb, "ns").Examine(t.Context(), unbounded)
	require.ErrorContains(t, f.Refused[store.ProbePing], "NOPERM PING")
	require.Zero(t, asked["INFO"]+asked["TIME"]+asked["SCAN"], "of who gives no answer nothing is asked")
	cluster := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) { return nil, errBroken }})
	defer cluster.Close()
	f = roleOf(cluster, "{ns}").Examine(t.Context(), unbounded)
	require.ErrorIs(t, f.Refused[store.ProbePing], store.ErrUnreachable)
	require.Equal(t, "cluster", f.Client.Kind)
}

// TestExaminationOfAServerThatCannotSave: it says so to PING, and everything else can be found out.
func TestExaminationOfAServerThatCannotSave(t *testing.T) {
	c := miniCluster(t, "ns")
	answering(c, func(peer *server.Peer, cmd string, _ []string) bool {
		if cmd == "PING" {
			peer.WriteError("MISCONF Errors writing to the AOF file: No space left on device")
		}
		return cmd == "PING"
	})
	facts := roleOf(c.rdb, "ns").Examine(t.Context(), unbounded)
	require.NoError(t, facts.Refused[store.ProbePing])
	require.ErrorIs(t, facts.Refused[store.ProbeWrite], store.ErrUnreachable)
	require.Contains(t, store.FixOf(facts.Refused[store.ProbeWrite]), "why it cannot save")
	require.NotEmpty(t, facts.RoundTrips)
}
