package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// gate answers script calls as a server would that serves some keys only. It takes down the keys of
// all calls.
type gate struct {
	refuse func(keys []string) error
	keys   []string
}

func (*gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var refused error
		passing := slices.DeleteFunc(slices.Clone(cmds), func(cmd redis.Cmder) bool {
			err := g.pass(cmd)
			if err != nil {
				cmd.SetErr(err)
				refused = err
			}
			return err != nil
		})
		if err := next(ctx, passing); err != nil {
			return err
		}
		return refused
	}
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := g.pass(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// pass returns the error of a call of a script that is refused.
func (g *gate) pass(cmd redis.Cmder) error {
	if !strings.HasPrefix(cmd.Name(), "eval") {
		return nil
	}
	args := cmd.Args()
	count, err := strconv.Atoi(args[2].(string))
	if err != nil {
		return err
	}
	var named []string
	for _, key := range args[3 : 3+count] {
		named = append(named, key.(string))
	}
	g.keys = append(g.keys, named...)
	return g.refuse(named)
}

// crossSlot refuses keys of several slots, as each node of a Redis Cluster does.
func crossSlot(keys []string) error {
	for _, key := range keys {
		if store.HashTag(key) != store.HashTag(keys[0]) {
			return replyError("CROSSSLOT Keys in request don't hash to the same slot")
		}
	}
	return nil
}

// gatedStore is a store whose calls go through a gate. A spread one believes that it is on a Redis
// Cluster.
func gatedStore(t *testing.T, namespace string, spread bool, refuse func([]string) error) (*Store, *gate) {
	t.Helper()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	g := &gate{refuse: refuse}
	client.AddHook(g)
	db := openStore(client, namespace)
	db.spread = spread
	return db, g
}

// TestLeaseOfAnotherSlot: the lease that a record says it belongs to is named to Redis only if it
// can be one, and on a Redis Cluster only if it lies where the record lies. All that tasks ask for
// lies in one slot, whatever a LeaderKey or a record says.
func TestLeaseOfAnotherSlot(t *testing.T) {
	for lease, named := range map[string][2]bool{ // on one server, on a Cluster
		"{ns}:a:leader":     {true, true},
		"{ns}:a:leader:two": {true, true},
		"{ns}:a:leader:" + strings.Repeat("r", 128): {true, true},
		"{ns}:mine":                          {true, true},
		"x{ns}":                              {true, true},
		"{other}:mine":                       {true, false},
		"mine":                               {true, false},
		"":                                   {false, false},
		"{ns}:a:instances":                   {false, false},
		"{ns}:a:task:u":                      {false, false},
		"{ns}:{other}":                       {false, false},
		"{ns}:a:leader:two:three four":       {false, false},
		"{ns}:" + strings.Repeat("k", 1<<20): {false, false},
	} {
		for i, spread := range []bool{false, true} {
			db, g := gatedStore(t, "{ns}:a", spread, func(keys []string) error {
				if spread {
					return crossSlot(keys)
				}
				return nil
			})
			ctx := t.Context()
			// One's own lease is in another slot, too: it is text here, and no key.
			reply, err := db.Open(ctx, "t", store.TaskOpen{Token: 5, Lease: "{own}:leader"})
			require.NoError(t, err)
			require.Equal(t, store.TaskOK, reply.Verdict)
			if lease != "" {
				require.NoError(t, db.rdb.HSet(ctx, db.keys.Task("t"), "lease", lease).Err())
			}
			g.keys = nil
			reply, err = db.Open(ctx, "t", store.TaskOpen{Token: 7, Lease: "{own}:leader", Other: store.TaskText(lease)})
			require.NoError(t, err, "%.60s", lease)
			require.Equal(t, named[i], slices.Contains(g.keys, lease), "%.60s on a Cluster: %v", lease, spread)
			want := store.TaskForeign
			if named[i] || lease == "" {
				want = store.TaskOK // nobody holds it
			}
			require.Equal(t, want, reply.Verdict, "%.60s on a Cluster: %v", lease, spread)
		}
	}
}

// TestTaskScriptsAskForOneSlot: no call for a task asks for keys of two slots.
func TestTaskScriptsAskForOneSlot(t *testing.T) {
	db, g := gatedStore(t, "{ns}:a", true, crossSlot)
	ctx := t.Context()
	o := store.TaskOpen{Token: 1, Lease: "{own}:leader"}
	for name, call := range map[string]func() (store.TaskReply, error){
		"open": func() (store.TaskReply, error) { return db.Open(ctx, "t", o) },
		"plan": func() (store.TaskReply, error) {
			return db.Plan(ctx, "t", store.TaskPlan{Token: 1, Next: 1000, Spec: "s"})
		},
		"claim": func() (store.TaskReply, error) {
			return db.Claim(ctx, "t", store.TaskClaim{Token: 1, Run: "r", Kind: store.ClaimExtra, Expect: "0"})
		},
		"retry": func() (store.TaskReply, error) {
			return db.Retry(ctx, "t", store.TaskRetry{Token: 1, Run: "r", Attempt: 2})
		},
		"finish": func() (store.TaskReply, error) {
			return db.Finish(ctx, "t", store.TaskFinish{Token: 1, Run: "r", Status: store.RunSucceeded})
		},
		"pause": func() (store.TaskReply, error) { return db.Pause(ctx, "t", true, "", "") },
		"read":  func() (store.TaskReply, error) { return db.Record(ctx, "t") },
	} {
		_, err := call()
		require.NoError(t, err, name)
	}
	require.NoError(t, crossSlot(g.keys))
}

// TestUnreadableLease: a record that names a key which this client may not read is another role's
// until somebody repairs it as the error says. The rest of what it says stays.
func TestUnreadableLease(t *testing.T) {
	const lease = "somebody:else"
	db, _ := gatedStore(t, "ns", false, func(keys []string) error {
		if slices.Contains(keys, lease) {
			return replyError("NOPERM No permissions to access a key")
		}
		return nil
	})
	ctx, record := t.Context(), db.keys.Task("t")
	_, err := db.Open(ctx, "t", store.TaskOpen{Token: 9, Lease: lease})
	require.NoError(t, err)
	_, err = db.Plan(ctx, "t", store.TaskPlan{Token: 9, Next: 1000, Spec: "s"})
	require.NoError(t, err)
	reply, err := db.Open(ctx, "t", store.TaskOpen{Token: 5, Lease: "ns:leader", Other: lease})
	require.NoError(t, err)
	require.Equal(t, store.TaskForeign, reply.Verdict)
	require.NoError(t, db.rdb.HDel(ctx, record, "lease", "token").Err())
	reply, err = db.Open(ctx, "t", store.TaskOpen{Token: 5, Lease: "ns:leader"})
	require.NoError(t, err)
	require.Equal(t, store.TaskOK, reply.Verdict)
	require.EqualValues(t, 1000, reply.Record.Next)
}
