//go:build unix

package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/store"
)

// What the lease scripts do at their very edges. `make mutate TARGETS=lua-lease` moves each of
// these by one.

// What is a limit in the scripts is the same limit in the decisions: a token or a TTL that one of
// them believes the other believes too.
func TestLimitsOfTheScriptsAreThoseOfTheDecisions(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour
	for _, s := range []*script{contract.acquire, contract.renew, contract.release, contract.leader} {
		for name, limit := range map[string]int64{
			"MAX_TOKEN": lease.MaxToken, "MAX_TTL": lease.MaxTTL.Milliseconds(), "CENTURY": century.Milliseconds(),
		} {
			require.Regexp(t, fmt.Sprintf(`(?m)^local %s = %d\s*(--.*)?$`, name, limit), s.source, s.name)
		}
	}
	const now = 1_700_000_000_000
	require.True(t, lease.SaneToken(now+century.Milliseconds(), now))
	require.False(t, lease.SaneToken(now+century.Milliseconds()+1, now))
}

func TestLeaseScriptsAtTheirEdges(t *testing.T) {
	blank := with(lapsed, func(t *oracle.Term) { t.Origin = "" })
	for _, tt := range []leaseCase{
		{name: "hold of sixteen digits", data: oracle.Data{Term: with(released, func(t *oracle.Term) { t.Hold = 1_000_000_000_000_000 })},
			ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 2000},
		{name: "restart guard of a millisecond", data: oracle.Data{Term: blank}, facts: oracle.Facts{Origin: "be", Uptime: 2000}, asker: oracle.Asker{RestartGuard: 1, HoldOff: 3000},
			ask: acquiring(nil), want: lease.Won, reason: "lapsed", token: askNow},
		{name: "restart guard between two seconds", data: oracle.Data{Term: blank}, facts: oracle.Facts{Origin: "be", Uptime: 2000}, asker: oracle.Asker{RestartGuard: 1001},
			ask: acquiring(nil), want: lease.Held, reason: "hold", token: 41, wait: 1},
		{name: "server exactly as old as the guard", data: oracle.Data{Term: blank}, facts: oracle.Facts{Origin: "be", Uptime: 2000}, asker: oracle.Asker{RestartGuard: 1000},
			ask: acquiring(nil), want: lease.Won, reason: "lapsed", token: askNow},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.check(t.Context(), t, miniLease(t)) })
	}
}

// onMini runs fn on a miniredis with an old server of a known history.
func onMini(t *testing.T, name string, fn func(t *testing.T, w *leaseCluster)) {
	t.Run(name, func(t *testing.T) {
		w := miniLease(t)
		w.set(w.now, oracle.Facts{Origin: "aa", Uptime: 3_600_000}, false)
		fn(t, w)
	})
}

func TestLeaseScriptsAtTheEdgeOfWhatTheyRead(t *testing.T) {
	const century, day = 3_153_600_000_000, 86_400_000
	term := leaseKey + ":term"
	onMini(t, "number of seventeen digits", func(t *testing.T, w *leaseCluster) {
		w.rdb.HSet(t.Context(), term, "token", 41, "released", 1, "origin", "aa", "hold", "10000000000000000")
		w.candidateA().must(t.Context(), t, lease.Won, acquiring(nil))
	})
	onMini(t, "token a century ahead", func(t *testing.T, w *leaseCluster) {
		w.rdb.HSet(t.Context(), term, "token", w.now+century, "holder", "b", "nonce", "nb", "origin", "aa")
		w.rdb.Set(t.Context(), leaseKey, "b", time.Second)
		require.Equal(t, w.now+century, w.candidateA().must(t.Context(), t, lease.Held, acquiring(nil)).Token)
	})
	onMini(t, "remembered token a century ahead", func(t *testing.T, w *leaseCluster) {
		w.rdb.HSet(t.Context(), term, "token", 41, "released", 1, "origin", "aa", "floor", w.now+century)
		require.Equal(t, w.now+century+1, w.candidateA().must(t.Context(), t, lease.Won, acquiring(nil)).Token)
	})
	onMini(t, "TTL of a day", func(t *testing.T, w *leaseCluster) {
		w.rdb.Set(t.Context(), leaseKey, "b", time.Second)
		for stored, want := range map[int64]int64{day: day, day + 1: 60_000} { // our own TTL
			w.rdb.HSet(t.Context(), term, "token", 41, "holder", "b", "nonce", "nb", "origin", "aa", "ttl", stored)
			require.Equal(t, want, w.candidateA().must(t.Context(), t, lease.Held, acquiring(nil)).TTL.Milliseconds())
		}
	})
	onMini(t, "microseconds", func(t *testing.T, w *leaseCluster) {
		w.mini.SetTime(time.UnixMicro(1_700_000_000_999_999))
		require.EqualValues(t, 1_700_000_000_999, w.candidateA().must(t.Context(), t, lease.Won, acquiring(nil)).Now)
	})
	onMini(t, "roll-call of a millisecond", func(t *testing.T, w *leaseCluster) {
		brief := w.asker(oracle.Asker{ID: "a", TTL: 1000, EmptyWait: 1, RestartGuard: -1})
		require.Equal(t, time.Millisecond, brief.must(t.Context(), t, lease.RollCall, acquiring(nil)).Wait)
	})
	onMini(t, "lease with less than a millisecond left", func(t *testing.T, w *leaseCluster) {
		for _, holder := range []string{"b", "cron-7"} {
			w.rdb.HSet(t.Context(), term, "token", 41, "holder", "b", "nonce", "nb", "origin", "aa", "ttl", 1000)
			w.rdb.Set(t.Context(), leaseKey, holder, time.Second)
			w.mini.SetTTL(leaseKey, 400*time.Microsecond)
			require.Equal(t, time.Millisecond, w.candidateA().must(t.Context(), t, lease.Held, acquiring(nil)).Wait)
		}
	})
	onMini(t, "own lease at the end of a hold", func(t *testing.T, w *leaseCluster) {
		w.rdb.Set(t.Context(), leaseKey, "a", time.Second)
		w.rdb.HSet(t.Context(), term, "token", 41, "holder", "a", "nonce", "na", "origin", "aa", "hold", w.now)
		require.EqualValues(t, 41, w.candidateA().must(t.Context(), t, lease.Won, acquiring(nil)).Token)
	})
}

// refusing makes a command of the scripts fail, on a key if one is given.
func (w *leaseCluster) refusing(command, key, with string) {
	w.mini.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
		if cmd == command && (key == "" || strings.HasPrefix(strings.Join(args, " "), key)) {
			peer.WriteError(with)
			return true
		}
		return w.info(peer, cmd, args...)
	})
}

func TestLeaseScriptsAtTheEdgeOfWhatIsRefused(t *testing.T) {
	term := leaseKey + ":term"
	clamped := func(t *testing.T, w *leaseCluster) {
		w.rdb.HSet(t.Context(), term, "token", 41, "released", 1, "origin", "aa", "hold", w.now+500_000)
	}
	onMini(t, "bookkeeping on a full Redis", func(t *testing.T, w *leaseCluster) {
		clamped(t, w)
		w.refusing("HSET", "", "OOM command not allowed when used memory > 'maxmemory'.")
		w.candidateA().must(t.Context(), t, lease.Held, acquiring(nil))
	})
	for command, key := range map[string]string{"HSET": term, "TIME": leaseKey, "GET": leaseKey + ":since"} {
		onMini(t, command, func(t *testing.T, w *leaseCluster) {
			clamped(t, w)
			if command == "GET" {
				w.rdb.HSet(t.Context(), term, "hold", 0)
			}
			prefix := key
			if command == "TIME" {
				prefix = ""
			}
			w.refusing(command, prefix, "NOPERM this user has no permissions to run the command")
			_, err := w.candidateA().ask(t.Context(), acquiring(nil))
			require.ErrorIs(t, err, store.ErrMisconfigured)
			require.ErrorContains(t, err, command+" "+key+"]")
		})
	}
	onMini(t, "uptime", func(t *testing.T, w *leaseCluster) { // as young as it gets
		w.rdb.HSet(t.Context(), term, "token", 41, "released", 1)
		w.refusing("INFO", "server", "NOPERM this user has no permissions to run the command")
		careful := w.asker(oracle.Asker{ID: "a", TTL: 1000})
		require.Equal(t, 2*time.Second, careful.must(t.Context(), t, lease.Held, acquiring(nil)).Wait)
	})
}

// TestAnswersAreCut: whatever others write into the keys, an answer is short, and it is cut again
// if the server has not cut it.
func TestAnswersAreCut(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		w.rdb.Set(ctx, leaseKey, strings.Repeat("y", 1<<20), 0)
		w.rdb.HSet(ctx, leaseKey+":term", "origin", strings.Repeat("z", 1<<20))
		s := w.asker(oracle.Asker{ID: "raw", TTL: 10_000}).store
		line, err := s.text(ctx, s.scripts.leader, s.args(s.scripts.leader, 0))
		require.NoError(t, err)
		require.Less(t, len(line), 500, "what Redis sends")
	})
	reply, err := parseLeaseReply("held 1 0 0 1 0 " + strings.Repeat("o", 1<<20) + " foreign - - =" + strings.Repeat("h", 1<<20))
	require.NoError(t, err)
	require.Less(t, len(reply.Holder)+len(reply.Origin), 300, "though the server does not cut it")
}

// TestWaitsBelowAMillisecond: Redis counts whole milliseconds, and a wait of less is not none.
func TestWaitsBelowAMillisecond(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-time.Second: 0, -1: 0, 0: 0, 1: 1, time.Millisecond - 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 24 * time.Hour: 86_400_000,
	} {
		require.Equal(t, want, upMilliseconds(d), d)
	}
	s := openStore(redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}), "ns").ForRole(store.Role{EmptyWait: 1, Margin: 1})
	require.Equal(t, []any{int64(1), int64(1)}, []any{s.emptyWait, s.margin})
}

// TestRenewalsSayWhatIsAskedFor: a renewal says what its request asks for now, also if it was asked
// for something else a moment ago.
func TestRenewalsSayWhatIsAskedFor(t *testing.T) {
	l := quietStore(t).ForRole(store.Role{Key: "ns:leader", Holder: "a", TTL: time.Second})
	was := lease.Request{Kind: lease.Renew, Nonce: "n", Token: 7, HoldOff: time.Second, Origin: "o", Since: 3, Floor: 5}
	l.common(was)
	for name, change := range map[string]func(r *lease.Request){
		"nothing":  func(*lease.Request) {},
		"nonce":    func(r *lease.Request) { r.Nonce = "m" },
		"token":    func(r *lease.Request) { r.Token++ },
		"hold-off": func(r *lease.Request) { r.HoldOff *= 2 },
		"origin":   func(r *lease.Request) { r.Origin = "p" },
		"since":    func(r *lease.Request) { r.Since++ },
		"floor":    func(r *lease.Request) { r.Floor++ },
	} {
		r := was
		change(&r)
		require.Equal(t, [6]any{r.Nonce, r.Token, r.HoldOff.Milliseconds(), r.Origin, r.Since, r.Floor}, l.common(r), name)
		l.common(was)
	}
}

// TestRestartGuardIsNeverNone: a guard of less than a millisecond is not that of the default, 0.
func TestRestartGuardIsNeverNone(t *testing.T) {
	for d, want := range map[time.Duration]int64{-time.Second: -1, 0: 0, time.Microsecond: 1, 1500 * time.Microsecond: 1, time.Second: 1000} {
		require.Equal(t, want, restartGuardArg(d), d)
	}
}

// TestBestIsUntrusted: the best candidate is an instance ID, or the reply is none.
func TestBestIsUntrusted(t *testing.T) {
	id, rank, ok := parseBest("-12:a:b")
	require.True(t, ok)
	require.Equal(t, "a:b", id)
	require.Equal(t, lease.Rank(-12), rank)
	id, _, ok = parseBest("-")
	require.True(t, ok)
	require.Empty(t, id)
	for _, text := range []string{"", "12", "x:a", "12:", "12:a b", "12:*", "12:a\nb"} {
		_, _, ok := parseBest(text)
		require.False(t, ok, text)
	}
}
