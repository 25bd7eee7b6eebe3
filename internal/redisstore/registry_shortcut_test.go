//go:build unix

package redisstore

import (
	"cmp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// beatShort is the contract with a heartbeat that knows its shortcut and nothing else, and beatLong
// with one that does not know it.
func beatShort(t *testing.T) *Scripts {
	return replaced(t, "\n--@ beat\n", "\n--@ deregister\n", "refuse('LEFT to the script')\n")
}

func beatLong(t *testing.T) *Scripts {
	return replaced(t, "\n--@ shortcut beat\n", "\n--@ beat\n", "")
}

// quietBeat is the heartbeat of an instance that is active, and was.
var quietBeat = store.Heartbeat{
	ID: "a", Incarnation: "mine", Started: 77, TTL: 10 * time.Second, TakeOver: 5 * time.Second, Head: `{"instance_id":"a","started_at":`,
	Rest: `,"status":"active","worker_count":3,"incarnation":"mine","host":"node-1"}`,
}

// TestBeatsTakeTheShortcut: the heartbeat of an instance of which nothing is to be told is answered
// by the shortcut alone, which answers and writes what the script does without it. Each thing that
// the script has to look at leaves it to the script, and then the shortcut has changed nothing.
func TestBeatsTakeTheShortcut(t *testing.T) {
	record := func(text string) func(*testing.T, *stillCluster) {
		return func(_ *testing.T, e *stillCluster) { e.record("a", text) }
	}
	was := func(from, to string) func(*testing.T, *stillCluster) {
		before := strings.Replace(quietBeat.Head+"77"+`,"last_heartbeat":1712345678`+quietBeat.Rest, from, to, 1)
		return record(before)
	}
	said := func(from, to string) func(b *store.Heartbeat) {
		return func(b *store.Heartbeat) { b.Rest = strings.Replace(b.Rest, from, to, 1) }
	}
	told := func(text string) func(*testing.T, *stillCluster) {
		return func(t *testing.T, e *stillCluster) {
			require.NoError(t, e.rdb.Set(t.Context(), e.store.keys.Told(), text, time.Hour).Err())
		}
	}
	list := func(key func(store.Keys) string) func(*testing.T, *stillCluster) {
		return func(t *testing.T, e *stillCluster) {
			require.NoError(t, e.rdb.Del(t.Context(), key(e.store.keys)).Err())
			require.NoError(t, e.rdb.RPush(t.Context(), key(e.store.keys), "x").Err())
		}
	}
	at := func(ms int64) string { return strconv.FormatInt(atRenewal+ms, 10) }
	long := strings.Repeat("c", 64)
	tests := []struct {
		name   string
		before func(t *testing.T, e *stillCluster)
		beat   func(b *store.Heartbeat)
		left   bool
		writes bool // something before it is left to the script, which writes the same again
	}{
		{name: "nothing new"},
		{name: "the last moment", beat: func(b *store.Heartbeat) { b.NotAfter = atRenewal }},
		{name: "a moment too late", beat: func(b *store.Heartbeat) { b.NotAfter = atRenewal - 1 }, left: true},
		{name: "never registered", beat: func(b *store.Heartbeat) { b.First = true }, left: true},
		{name: "it does not know since when", beat: func(b *store.Heartbeat) { b.Started = 0 }, left: true},
		{name: "another start", beat: func(b *store.Heartbeat) { b.Started = 1712345678 }},
		{name: "metrics", beat: func(b *store.Heartbeat) { b.MetricsTTL, b.Metrics = time.Minute, []store.Metric{{Name: "m", Value: 1}} }, left: true},
		{name: "more workers", beat: said(`count":3`, `count":4`)},
		{name: "another host", beat: said("node-1", "node-2")},
		{name: "its key has expired", before: func(t *testing.T, e *stillCluster) {
			require.NoError(t, e.rdb.Del(t.Context(), e.store.keys.Heartbeat("a")).Err())
		}},
		{name: "its key is a list", before: list(func(k store.Keys) string { return k.Heartbeat("a") })},
		{name: "its beat is forgotten", before: func(t *testing.T, e *stillCluster) {
			require.NoError(t, e.rdb.ZRem(t.Context(), e.store.keys.Beats(), "a").Err())
		}},
		{name: "a command waits", before: list(func(k store.Keys) string { return k.Inbox("a") })},
		{name: "words of others", before: func(t *testing.T, e *stillCluster) {
			require.NoError(t, e.rdb.ZAdd(t.Context(), e.store.keys.Words(), redis.Z{Score: 1e13, Member: "b"}).Err())
		}},
		{name: "no record", before: func(t *testing.T, e *stillCluster) {
			require.NoError(t, e.rdb.HDel(t.Context(), e.store.keys.Instances(), "a").Err())
		}, left: true},
		{name: "a foreign record", before: was(`,"incarnation":"mine"`, ""), left: true},
		{name: "a record with blanks", before: was(`,"status"`, `, "status"`), left: true},
		{name: "another incarnation", before: was(`"mine"`, `"other"`), left: true},
		{name: "an incarnation that goes on", before: was(`"mine"`, `"mine2"`), left: true},
		{name: "the longest incarnation", before: was(`"mine"`, `"`+long+`"`), beat: func(b *store.Heartbeat) {
			b.Incarnation, b.Rest = long, strings.Replace(b.Rest, "mine", long, 1)
		}},
		{name: "one that is too long", before: was(`"mine"`, `"c`+long+`"`), beat: func(b *store.Heartbeat) {
			b.Incarnation, b.Rest = "c"+long, strings.Replace(b.Rest, "mine", "c"+long, 1)
		}, left: true},
		{name: "the end of a record", before: was(`,"host":"node-1"`, "")},
		{name: "something else behind the incarnation", before: was(`,"host":"node-1"`, " "), left: true},
		{name: "joining before", before: was("active", "joining"), left: true},
		{name: "marked as drifted", before: was("active", "drifted"), left: true},
		{name: "no status before", before: was("active", ""), left: true},
		{name: "joining now", beat: said("active", "joining"), left: true},
		{name: "active in its metadata", beat: said(`,"status":"active"`, `,"metadata":{"status":"active"}`), left: true},
		{name: "draining before and now", before: was("active", "draining"), beat: said("active", "draining"), left: true},
		{name: "the active is another word now", beat: said(`"active"`, `"active "`), left: true},
		{name: "nothing waits", before: told(at(0) + " -")},
		{name: "nothing waits, nobody publishes", before: told(at(50) + " -")},
		{name: "a change waits", before: told(at(0) + " 5-1"), left: true},
		{name: "a change behind one waits", before: told(at(0) + " (5-1"), left: true},
		{name: "a change waits for a moment more", before: told(at(1) + " 5-1")},
		{name: "a change waits for as long as may be", before: told(at(60_000) + " 5-1")},
		{name: "a change waits for longer", before: told(at(60_001) + " 5-1"), left: true},
		{name: "a note that tenure cannot have written", before: told("soon"), left: true},
		{name: "an empty note", before: told("")},
		{name: "a time with zeros before it", before: told("0000" + at(50) + " 5-1"), left: true},
		{name: "a note of another type", before: list(store.Keys.Told), left: true},
		{name: "instances of another type", before: list(store.Keys.Instances), left: true},
		{name: "beats of another type", before: list(store.Keys.Beats), left: true, writes: true},
		{name: "an inbox of any type", before: func(t *testing.T, e *stillCluster) {
			require.NoError(t, e.rdb.HSet(t.Context(), e.store.keys.Inbox("a"), "x", "y").Err())
		}},
	}
	only, without := beatShort(t), beatLong(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			// beat beats by these scripts in the situation, and returns all that there is
			// afterwards too.
			beat := func(scripts *Scripts) (store.HeartbeatReply, map[string]string, error) {
				e := newStillCluster(t)
				e.mini.SetTime(time.UnixMilli(atRenewal - 9_000))
				first := quietBeat
				first.First = true
				_, err := e.store.Heartbeat(ctx, first)
				require.NoError(t, err)
				e.mini.SetTime(time.UnixMilli(atRenewal))
				if tt.before != nil {
					tt.before(t, e)
				}
				b := quietBeat
				if tt.beat != nil {
					tt.beat(&b)
				}
				before := exact(t, e.rdb)
				e.store.scripts = scripts
				reply, err := e.store.Heartbeat(ctx, b)
				after := exact(t, e.rdb)
				if err != nil && tt.left && !tt.writes {
					require.Equal(t, before, after)
				}
				return reply, after, err
			}
			reply, left, err := beat(only)
			if tt.left {
				require.ErrorContains(t, err, "LEFT", "answered %+v", reply)
				return
			}
			require.NoError(t, err)
			whole, want, err := beat(without)
			require.NoError(t, err)
			require.Equal(t, whole, reply)
			require.Equal(t, want, left)
		})
	}
}

// TestBeatShortcutOnRedis: a real server takes the shortcut too, and leaves to the script what it
// refuses: a user without a right hears which, and a full Redis keeps the instance.
func TestBeatShortcutOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server, ctx := redistest.Start(t), t.Context()
	c := clusterOf(t, server.Options(), "edge")
	whole, short := c.store.scripts, beatShort(t)
	ask := func(scripts *Scripts, first bool) (store.HeartbeatReply, error) {
		b := quietBeat
		b.First, c.store.scripts = first, scripts
		return c.store.Heartbeat(ctx, b)
	}
	_, err := ask(whole, true)
	require.NoError(t, err)
	reply, err := ask(short, false)
	require.NoError(t, err)
	require.Equal(t, membership.Kept, reply.Verdict)
	require.Equal(t, int64(77), reply.Started)

	server.ConfigSet(t, "maxmemory", "1")
	server.ConfigSet(t, "maxmemory-policy", "noeviction")
	_, err = ask(short, false)
	require.ErrorContains(t, err, "LEFT")
	reply, err = ask(whole, false)
	require.NoError(t, err)
	require.Equal(t, membership.Kept, reply.Verdict)
	server.ConfigSet(t, "maxmemory", "0")

	for _, command := range []string{"time", "hget", "getrange", "set", "hset", "zadd", "exists", "zcard"} {
		t.Run(command, func(t *testing.T) {
			require.NoError(t, c.rdb.Do(ctx, "ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "&*", "+@all", "-"+command).Err())
			opts := server.Options()
			opts.Username, opts.Password = "app", "secret"
			app := clusterOf(t, opts, "edge")
			app.store.scripts = short
			_, err := app.store.Heartbeat(ctx, quietBeat)
			require.ErrorContains(t, err, "LEFT")
			app.store.scripts = whole
			_, err = app.store.Heartbeat(ctx, quietBeat)
			require.Equal(t, command == "getrange", err == nil, "%v", cmp.Or(err, store.ErrNotFound))
			if err != nil {
				require.ErrorContains(t, err, "+"+command)
			}
		})
	}
}
