//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

func TestLoadScripts(t *testing.T) {
	tests := []struct{ name, old, new, want string }{
		{"missing", "\n--@ renew\n", "\n-- renew\n", `"renew" is missing`},
		{"surplus", "\n--@ leader\n", "\n--@ follower\nreturn 1\n--@ leader\n", `"follower" has no field`},
		{"twice", "\n--@ leader\n", "\n--@ leader\nreturn 1\n--@ leader\n", `"leader" has no field, or is there twice`},
		{"shortcut", "\n--@ shortcut renew\n", "\n--@ shortcut renewal\n", `shortcut "renewal" is of no section`},
		{"statement in a prelude", "\n--@ shortcut acquire\n", "\nif true then LOG = 1 end\n--@ shortcut acquire\n", "declares locals and nothing else"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(strings.Replace(scriptsLua, tt.old, tt.new, 1))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("loadScripts: %v, want %s", err, tt.want)
			}
		})
	}
	if _, err := Load(scriptsLua); err != nil {
		t.Error(err)
	}
}

// TestScriptsCarryWhatTheyNeed: each function that a script calls, and each constant that it names,
// and nothing of the preludes that is of no use to it.
func TestScriptsCarryWhatTheyNeed(t *testing.T) {
	if simnet.Race {
		t.Skip("`make test` runs it without the race detector")
	}
	preludes := strings.Join(regexp.MustCompile(`(?s)\n--@ prelude .*?\n--@ `).FindAllString(scriptsLua, -1), "")
	declared := regexp.MustCompile(`(?m)^local (function )?(\w+)`).FindAllStringSubmatch(preludes, -1)
	if len(declared) < 70 {
		t.Fatalf("%d declarations", len(declared))
	}
	comments := regexp.MustCompile(`(?m)--.*$`)
	var code []string
	for _, sc := range contract.all() {
		code = append(code, comments.ReplaceAllString(sc.source, ""))
	}
	for _, d := range declared {
		name, isFunction := d[2], d[1] != ""
		declares, names, calls := regexp.MustCompile(`(?m)^local (function )?`+name+`\b`), regexp.MustCompile(`\b`+name+`\b`), regexp.MustCompile(`[^n] `+name+`\(`)
		for i, sc := range contract.all() {
			has := declares.MatchString(code[i])
			used := len(names.FindAllString(code[i], -1)) > 1
			called := isFunction && calls.MatchString(code[i])
			if has != used || called && !has {
				t.Errorf("%s: %s is there: %v, is named: %v, is called: %v", sc.name, name, has, used, called)
			}
		}
	}
	for _, surplus := range []string{"read_task", "read_term"} {
		if strings.Contains(contract.beat.source, surplus) {
			t.Errorf("a heartbeat carries %s", surplus)
		}
	}
}

// onBothRedis runs a test on a miniredis and on a redis-server of its own.
func onBothRedis(t *testing.T, test func(t *testing.T, w *leaseCluster)) {
	t.Run("miniredis", func(t *testing.T) {
		w := miniLease(t)
		w.set(w.now, oracle.Facts{Origin: w.here(), Uptime: 100_000}, false)
		test(t, w)
	})
	t.Run("redis", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a redis-server")
		}
		test(t, realLease(t, redistest.Start(t)))
	})
}

// candidateA never waits: on an empty history it is granted the lease at once.
func (w *leaseCluster) candidateA() leaseAsker {
	return w.asker(oracle.Asker{ID: "a", TTL: 60_000, RestartGuard: -1})
}

func (w *leaseCluster) candidateB() leaseAsker {
	return w.asker(oracle.Asker{ID: "b", TTL: 60_000, RestartGuard: -1})
}

// must asks and expects a verdict.
func (a leaseAsker) must(ctx context.Context, t *testing.T, want lease.Verdict, r lease.Request) oracle.Reply {
	t.Helper()
	reply, err := a.ask(ctx, r)
	if err != nil || reply.Verdict != want {
		t.Fatalf("%s asks %+v: %+v, %v, want verdict %d", a.ID, r, reply, err, want)
	}
	return reply
}

func TestScriptsAreLoadedAgainAfterScriptFlush(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		flush := func() {
			if err := w.rdb.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
		flush()
		token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
		flush()
		a.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token = token }))
		flush()
		a.must(ctx, t, lease.Held, lease.Request{Kind: askLeader})
		flush()
		a.must(ctx, t, lease.Done, releasing("na", token))
	})
}

// TestP6_ClientThatSendsAgain: go-redis sends a command again whose reply was lost, and tells
// nobody.
func TestP6_ClientThatSendsAgain(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		first := a.must(ctx, t, lease.Won, acquiring(nil))
		again := a.must(ctx, t, lease.Won, acquiring(nil))
		if first.Token != again.Token || first.Since != again.Since {
			t.Errorf("sent again: %+v, at first %+v", again, first)
		}
		a.must(ctx, t, lease.Done, releasing("na", first.Token))
		next := w.candidateB().must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Nonce = "nb" }))
		a.must(ctx, t, lease.Done, releasing("na", first.Token)) // again, late
		a.must(ctx, t, lease.Lost, renewing(func(r *lease.Request) { r.Token = first.Token }))
		if leader := a.must(ctx, t, lease.Held, lease.Request{Kind: askLeader}); leader.Token != next.Token || leader.Holder != "b" {
			t.Errorf("the leader is %+v, want b with token %d", leader, next.Token)
		}
	})
}

// everything asks all the scripts, in the state that makes them touch the most.
func everything(token int64) []lease.Request {
	return []lease.Request{acquiring(nil), renewing(func(r *lease.Request) { r.Token = token }), releasing("na", token), {Kind: askLeader}}
}

// misconfigured fails unless the error says what to fix.
func misconfigured(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !errors.Is(err, store.ErrMisconfigured) || errors.Is(err, store.ErrUnreachable) {
		t.Errorf("error %v, want ErrMisconfigured", err)
		return
	}
	spoilt := slices.Contains(parts, "WRONGTYPE") || slices.Contains(parts, "BADTERM")
	if e, ok := store.AsType[*store.Error](err); !ok || e.Spoilt != spoilt {
		t.Errorf("error %v: whether a key is spoilt: want %v", err, spoilt)
	}
	for _, part := range append(parts, "fix: ") {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not name %q", err, part)
		}
	}
}

// raw is everything that Redis holds, as it is.
func raw(ctx context.Context, t *testing.T, rdb *redis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range rdb.Keys(ctx, "*").Val() {
		switch kind := rdb.Type(ctx, key).Val(); kind {
		case "string":
			all[key] = rdb.Get(ctx, key).Val()
		case "list":
			all[key] = fmt.Sprint(rdb.LRange(ctx, key, 0, -1).Val())
		case "set":
			all[key] = fmt.Sprint(slices.Sorted(slices.Values(rdb.SMembers(ctx, key).Val())))
		case "hash":
			fields := rdb.HGetAll(ctx, key).Val()
			for _, name := range slices.Sorted(maps.Keys(fields)) {
				all[key] += name + "=" + fields[name] + " "
			}
		case "stream":
			for _, entry := range rdb.XRange(ctx, key, "-", "+").Val() {
				all[key] += fmt.Sprint(entry.Values, " ")
			}
		case "zset":
			all[key] = fmt.Sprint(rdb.ZRangeWithScores(ctx, key, 0, -1).Val())
		default:
			t.Fatalf("key %s is a %s", key, kind)
		}
		all[key] += fmt.Sprint(" expires: ", rdb.TTL(ctx, key).Val() > 0)
	}
	return all
}

func TestWrongTypeNamesKeyCommandAndFix(t *testing.T) {
	tests := []struct {
		key     string
		kind    lease.Kind
		command string
		data    oracle.Data
	}{
		{leaseKey, lease.Acquire, "GET", oracle.Data{}},
		{leaseKey, lease.Renew, "GET", oracle.Data{Term: aTerm}},
		{leaseKey, lease.Release, "GET", oracle.Data{Term: aTerm}},
		{leaseKey, askLeader, "GET", oracle.Data{}},
		{leaseKey + ":term", lease.Acquire, "HMGET", oracle.Data{}},
		{leaseKey + ":term", lease.Renew, "HMGET", oracle.Data{Lease: oracle.Lease{Holder: "a"}}},
		{leaseKey + ":term", lease.Release, "HMGET", oracle.Data{Lease: oracle.Lease{Holder: "a"}}},
		{leaseKey + ":term", askLeader, "HMGET", oracle.Data{Lease: oracle.Lease{Holder: "a"}}},
	}
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%s/%d", tt.key, tt.kind), func(t *testing.T) {
				data := tt.data
				if data.Term.Token != 0 {
					data.Term.Origin, data.Term.Until, data.Term.Hold = w.here(), 0, 0
				}
				if err := w.load(ctx, data); err != nil {
					t.Fatal(err)
				}
				w.rdb.Del(ctx, tt.key)
				w.rdb.RPush(ctx, tt.key, "something", "else")
				r := everything(41)[map[lease.Kind]int{lease.Acquire: 0, lease.Renew: 1, lease.Release: 2, askLeader: 3}[tt.kind]]
				_, err := w.candidateA().ask(ctx, r)
				misconfigured(t, err, "WRONGTYPE", tt.key, tt.command)
				if got, want := raw(ctx, t, w.rdb)[tt.key], "[something else] expires: false"; got != want {
					t.Errorf("the key of something else is now %q, was %q", got, want)
				}
			})
		}
	})
}

// TestReleaseLeavesAForeignSinceKey: a release gives back what is ours beside it.
func TestReleaseLeavesAForeignSinceKey(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		token := a.must(ctx, t, lease.Won, acquiring(nil)).Token
		w.rdb.Del(ctx, leaseKey+":since")
		w.rdb.RPush(ctx, leaseKey+":since", "something", "else")
		a.must(ctx, t, lease.Done, releasing("na", token))
		a.must(ctx, t, lease.Unknown, lease.Request{Kind: askLeader})
		if got, want := raw(ctx, t, w.rdb)[leaseKey+":since"], "[something else] expires: false"; got != want {
			t.Errorf("the key of something else is now %q, was %q", got, want)
		}
	})
}

func TestTokenThatTenureCannotHaveWritten(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		now, err := w.clock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tokens := []string{"", "0", "-5", "abc", "1e3", "0x29", "41.0", " 41", "9007199254740993", "99999999999999999999", fmt.Sprint(now + century + 60_000)}
		for _, token := range tokens {
			for _, holder := range []string{"", "a", "b"} {
				w.rdb.FlushDB(ctx)
				if holder != "" {
					w.rdb.Set(ctx, leaseKey, holder, 0)
				}
				w.rdb.HSet(ctx, leaseKey+":term", "token", token, "nonce", "na", "holder", "a")
				before := raw(ctx, t, w.rdb)
				for _, r := range everything(41) {
					if r.Kind == askLeader && holder == "" {
						continue
					}
					a := w.candidateA()
					call := map[lease.Kind]func(context.Context, lease.Request) (store.LeaseReply, error){
						lease.Acquire: a.store.Acquire, lease.Renew: a.store.Renew, lease.Release: a.store.Release,
						askLeader: func(ctx context.Context, _ lease.Request) (store.LeaseReply, error) { return a.store.Leader(ctx) },
					}[r.Kind]
					_, err := call(ctx, r)
					misconfigured(t, err, "BADTERM", leaseKey+":term", "HGET")
				}
				if after := raw(ctx, t, w.rdb); !maps.Equal(after, before) {
					t.Errorf("token %q: keys are now %v, were %v", token, after, before)
				}
			}
		}
	})
}

// TestP12_WhatRedisAnswersMeanwhileIsUnknown: nobody has to fix what passes by itself, and
// FailFast does not end a process over it.
func TestP12_WhatRedisAnswersMeanwhileIsUnknown(t *testing.T) {
	for _, text := range []string{
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
		"CLUSTERDOWN The cluster is down",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"NOREPLICAS Not enough good replicas to write.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"MISCONF Errors writing to the AOF file: No space left on device",
	} {
		if err := explain("renew", refusal(text)); !errors.Is(err, store.ErrUnreachable) || errors.Is(err, store.ErrMisconfigured) {
			t.Error(err)
		}
	}
}

// TestFixOfWhatPasses: what lasts may need somebody to do something, and the error says what.
func TestFixOfWhatPasses(t *testing.T) {
	for text, fix := range map[string]string{
		"TRYAGAIN Multiple keys request during rehashing of slot":                          "redis-cli --cluster check",
		"CLUSTERDOWN Hash slot not served":                                                 "redis-cli --cluster check",
		"NOREPLICAS Not enough good replicas to write.":                                    "min-replicas-to-write",
		"READONLY You can't write against a read only replica.":                            "connect to the master",
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": "connect to the master",
		"OOM command not allowed when used memory > 'maxmemory'.":                          "maxmemory",
		"MISCONF Errors writing to the AOF file: No space left on device":                  "why it cannot save",
		"LOADING Redis is loading the dataset in memory":                                   "",
	} {
		err := explain("renew", refusal(text))
		if got := store.FixOf(err); !errors.Is(err, store.ErrUnreachable) || !strings.Contains(got, fix) || fix == "" && got != "" {
			t.Error(err)
		}
	}
}

// TestUnknownCommands: a server that is too old, or has renamed a command, is named as the fault,
// also by a script, whose error is another one.
func TestUnknownCommands(t *testing.T) {
	for _, text := range []string{
		"ERR unknown command 'evalsha'",
		"ERR Unknown Redis command called from script script: 5ca1ab1e [ZMSCORE shop:beats]",
		"@user_script: 9: Unknown Redis command called from Lua script [ZMSCORE shop:beats]",
		"BADRUNS Unknown Redis command called from script [XADD shop:task:t:runs]", // of a history
	} {
		if err := explain("sweep", refusal(text)); !errors.Is(err, store.ErrMisconfigured) || !strings.Contains(err.Error(), "Redis 6.2 or later") || !strings.Contains(err.Error(), "rename-command") {
			t.Error(err)
		}
	}
}

// TestSlotsOfADeadMasterAreLookedFor: by itself go-redis does so once a minute. A node that has
// left the cluster, or is cut off from it, answers CLUSTERDOWN; what a node refuses otherwise moves
// no slots.
func TestSlotsOfADeadMasterAreLookedFor(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int64
	}{{errors.New("no route to it"), 2}, {refusal("CLUSTERDOWN Hash slot not served"), 2}, {refusal("NOPERM not for you"), 1}} {
		synctest.Test(t, func(t *testing.T) {
			var looks atomic.Int64
			client := redis.NewClusterClient(&redis.ClusterOptions{
				MaxRedirects: -1,
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					looks.Add(1)
					return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}}}, nil
				},
				Dialer: func(context.Context, string, string) (net.Conn, error) { return nil, tt.err },
			})
			defer client.Close()
			if _, err := openStore(client, leaseNamespace).ForRole(store.Role{Key: leaseKey, Holder: "a", TTL: time.Second}).Acquire(t.Context(), acquiring(nil)); !errors.Is(err, tt.err) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			if got := looks.Load(); got != tt.want {
				t.Errorf("after %q it has looked %d times, want %d", tt.err, got, tt.want)
			}
		})
	}
}

// TestWhatIsReadBackIsUntrusted: fields that tenure did not write count as absent, and a holder may
// be called anything.
func TestWhatIsReadBackIsUntrusted(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		w.rdb.HSet(ctx, leaseKey+":term", "token", "41", "until", "soon", "ttl", "99999999999", "hold", "-1", "released", "yes", "origin", w.here(),
			"floor", "9007199254740991", "heir", "b c", "reserved", "9007199254740990", "ready", "soon")
		reply := a.must(ctx, t, lease.Won, acquiring(nil))
		if reply.Token != reply.Now {
			t.Errorf("token %d, want %d", reply.Token, reply.Now)
		}
		for _, name := range []string{"a b", "x\ny", "won 1 2 3 4 5 6 7 8 9", " ", "\x00", "{}", strings.Repeat("z", 10_000), "", "-", "="} {
			w.rdb.FlushDB(ctx)
			w.rdb.Set(ctx, leaseKey, name, time.Minute)
			shown := name
			if len(name) > 128 {
				shown = name[:128] + "…"
			}
			if reply := a.must(ctx, t, lease.Held, acquiring(nil)); reply.Holder != shown || reply.Reason != "foreign" || reply.Token != 0 {
				t.Errorf("holder %q: %+v", name, reply)
			}
		}
	})
}

// TestP2_HugeTokensAreExact: Lua's numbers are floats, and its tostring loses digits.
func TestP2_HugeTokensAreExact(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		now, err := w.clock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		token := now + century - 100_001 // the largest that are believed
		w.rdb.HSet(ctx, leaseKey+":term", "token", token, "released", "1")
		a := w.candidateA()
		for range 5 {
			token++
			won := a.must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Floor = token - 1 }))
			kept := a.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token = token }))
			if won.Token != token || kept.Token != token {
				t.Fatalf("tokens %d and %d, want %d", won.Token, kept.Token, token)
			}
			a.must(ctx, t, lease.Done, releasing("na", token))
		}
	})
}

// TestForgedHeir: who is named in the term hash appears in hints. What is no ID is no heir: nothing
// is reserved for it.
func TestForgedHeir(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		for _, heir := range []string{`b","type":"vacant`, "", " ", "b\n", strings.Repeat("z", 129)} {
			w.rdb.FlushDB(ctx)
			w.rdb.HSet(ctx, leaseKey+":term", "token", "41", "released", "1", "origin", w.here(), "heir", heir, "reserved", "9007199254740990")
			a.must(ctx, t, lease.Won, acquiring(nil))
		}
		w.rdb.FlushDB(ctx)
		w.rdb.HSet(ctx, leaseKey+":term", "token", "41", "released", "1", "origin", w.here(), "heir", strings.Repeat("z", 128), "reserved", "9007199254740990")
		a.must(ctx, t, lease.Held, acquiring(nil))
	})
}
