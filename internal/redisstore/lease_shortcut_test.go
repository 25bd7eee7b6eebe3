//go:build unix

package redisstore

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// shortcutOnly is the contract with a renewal that knows its shortcut and nothing else, and
// withoutShortcut with one that does not know it; acquireShort and acquireLong likewise.
func shortcutOnly(t *testing.T) *Scripts {
	return replaced(t, "\n--@ renew\n", "\n--@ renew_all\n", "refuse('LEFT to the script')\n")
}

func withoutShortcut(t *testing.T) *Scripts {
	return replaced(t, "\n--@ shortcut renew\n", "\n--@ renew\n", "")
}

func acquireShort(t *testing.T) *Scripts {
	return replaced(t, "\n--@ acquire\n", "\n--@ shortcut renew, renew_all\n", "refuse('LEFT to the script')\n")
}

func acquireLong(t *testing.T) *Scripts {
	return replaced(t, "\n--@ shortcut acquire\n", "\n--@ acquire\n", "")
}

// replaced is the contract with another section between two lines.
func replaced(t *testing.T, from, to, body string) *Scripts {
	t.Helper()
	return cutScripts(t, []section{{from, to, body}})
}

// section is what stands between two texts of the contract, and what is to stand there instead.
type section struct{ from, to, body string }

// cutScripts is the contract with other sections.
func cutScripts(t *testing.T, sections []section) *Scripts {
	t.Helper()
	source := contractSource
	for _, s := range sections {
		before, rest, found := strings.Cut(source, s.from)
		require.True(t, found)
		_, after, found := strings.Cut(rest, s.to)
		require.True(t, found)
		source = before + s.from + s.body + s.to + after
	}
	loaded, err := Load(source)
	require.NoError(t, err)
	return loaded
}

// TestRenewalsTakeTheShortcut: the renewal of a quiet term is answered by the shortcut alone, which
// answers and writes what the script does without it. Each thing that the script has to look at
// leaves it to the script, and then the shortcut has changed nothing. The script for many roles
// renews the same ones.
func TestRenewalsTakeTheShortcut(t *testing.T) {
	const term = leaseKey + ":term"
	tests := []struct {
		name    string
		margin  int64 // ms that the asker names
		ttl     int64 // ms; 0: a minute
		before  func(t *testing.T, w *leaseCluster)
		request func(r *lease.Request)
		left    bool
	}{
		{name: "a quiet term"},
		{name: "a quiet term with a margin", margin: 500},
		{name: "the longest lease", ttl: 86_400_000},
		{name: "a longer hold-off than a day", ttl: 86_400_001, left: true},
		{name: "the last moment", request: func(r *lease.Request) { r.NotAfter = atRenewal }},
		{name: "a moment too late", request: func(r *lease.Request) { r.NotAfter = atRenewal - 1 }, left: true},
		{name: "its own lease, named a period ago", before: hash(term, "longest_at", atRenewal-60_000)},
		{name: "its own lease, named longer ago", before: hash(term, "longest_at", atRenewal-60_001)},
		{name: "its own lease, named in the future", before: hash(term, "longest_at", atRenewal+60_001)},
		{name: "its own floor", request: func(r *lease.Request) { r.Floor = r.Token }},
		{name: "a higher floor", request: func(r *lease.Request) { r.Floor = r.Token + 1 }, left: true},
		{name: "another nonce", request: func(r *lease.Request) { r.Nonce = "other" }, left: true},
		{name: "another token", request: func(r *lease.Request) { r.Token++ }, left: true},
		{name: "no bound", request: func(r *lease.Request) { r.NotAfter = 0 }, left: true},
		{name: "too late", request: func(r *lease.Request) { r.NotAfter = 1 }, left: true},
		{name: "an offer that begins", request: func(r *lease.Request) { r.Heir = "b" }, left: true},
		{name: "an offer that ends", before: hash(term, "heir", "b"), left: true},
		{name: "a candidate that is preferred", before: hash(term, "best", "b"), left: true},
		{name: "a longer lease of another", before: hash(term, "longest", "90000"), left: true},
		{name: "its own lease, named long ago", before: hash(term, "longest_at", "1")},
		{name: "its own lease, named at no time", before: hash(term, "longest_at", "soon")},
		{name: "its own lease, named for the first time", before: del(term, "longest_at")},
		{name: "its own lease, named just now, in as many digits as there may be", before: hash(term, "longest_at", fmt.Sprintf("%016d", int64(atRenewal-1)))},
		{name: "its own lease, named at no time, in more digits than there are", before: hash(term, "longest_at", fmt.Sprintf("%017d", int64(atRenewal)))},
		{name: "its own margin, named at no time, in more digits than there are", margin: 500, before: hash(term, "margin_at", fmt.Sprintf("%017d", int64(atRenewal)))},
		{name: "a token of a century ahead", before: hash(term, "token", atRenewal+3_153_600_000_000), request: func(r *lease.Request) { r.Token, r.Floor = atRenewal+3_153_600_000_000, 0 }},
		{name: "a token of more than a century ahead", before: hash(term, "token", atRenewal+3_153_600_000_001), request: func(r *lease.Request) { r.Token, r.Floor = atRenewal+3_153_600_000_001, 0 }, left: true},
		{name: "a margin of another", before: hash(term, "margin", "700", "margin_at", "1")},
		{name: "a longer margin of another", margin: 500, before: hash(term, "margin", "700"), left: true},
		{name: "its own margin, named long ago", margin: 500, before: hash(term, "margin_at", "1")},
		{name: "no end and no length", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.HDel(t.Context(), term, "until", "ttl").Err())
		}},
		{name: "another history", before: hash(term, "origin", "0123456789abcdef"), left: true},
		{name: "the beginning of its history", before: func(t *testing.T, w *leaseCluster) {
			origin := w.rdb.HGet(t.Context(), term, "origin").Val()
			require.NoError(t, w.rdb.HSet(t.Context(), term, "origin", origin[:2]).Err())
		}, left: true},
		{name: "no history", before: hash(term, "origin", ""), left: true},
		{name: "INFO is refused", before: func(_ *testing.T, w *leaseCluster) { w.set(w.now, w.facts, true) }, left: true},
		{name: "no lease", before: func(t *testing.T, w *leaseCluster) { require.NoError(t, w.rdb.Del(t.Context(), leaseKey).Err()) }, left: true},
		{name: "another holder", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Set(t.Context(), leaseKey, "b", time.Minute).Err())
		}, left: true},
		{name: "no since key", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Del(t.Context(), leaseKey+":since").Err())
		}, left: true},
		{name: "a since key of another type", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Del(t.Context(), leaseKey+":since").Err())
			require.NoError(t, w.rdb.RPush(t.Context(), leaseKey+":since", "x").Err())
		}, left: true},
		{name: "a term of another type", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Del(t.Context(), term).Err())
			require.NoError(t, w.rdb.RPush(t.Context(), term, "x").Err())
		}, left: true},
	}
	only, without := shortcutOnly(t), withoutShortcut(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			// renew asks by these scripts in the situation, and returns all that there is
			// afterwards too.
			renew := func(scripts *Scripts, joint bool) (string, map[string]string, error) {
				w := miniLease(t)
				w.set(atRenewal-20_123, oracle.Facts{Origin: "00000000feedbeef", Uptime: 100_000}, false)
				a := w.asker(oracle.Asker{ID: "a", TTL: cmp.Or(tt.ttl, 60_000), RestartGuard: -1, Margin: tt.margin})
				won := a.must(ctx, t, lease.Won, acquiring(nil))
				renewal := renewing(func(r *lease.Request) { r.Token, r.NotAfter, r.Origin = won.Token, won.Now+1_000_000, won.Origin })
				w.set(atRenewal-10_123, oracle.Facts{Origin: "00000000feedbeef", Uptime: 100_000}, false)
				a.must(ctx, t, lease.Kept, renewal) // notes what has not been noted
				w.set(atRenewal, oracle.Facts{Origin: "00000000feedbeef", Uptime: 100_000}, false)
				if tt.before != nil {
					tt.before(t, w)
				}
				if tt.request != nil {
					tt.request(&renewal)
				}
				before := exact(t, w.rdb)
				w.store.scripts = scripts
				asker := w.asker(a.Asker)
				asker.joint = joint
				reply, err := asker.ask(ctx, renewal)
				after := exact(t, w.rdb)
				if err != nil && tt.left {
					require.Equal(t, before, after)
				}
				return fmt.Sprintf("%+v", reply), after, err
			}
			for _, joint := range []bool{false, true} {
				reply, left, err := renew(only, joint)
				if tt.left {
					require.ErrorContains(t, err, "LEFT", "answered %+v", reply)
					continue
				}
				require.NoError(t, err)
				whole, want, err := renew(without, false)
				require.NoError(t, err)
				require.Equal(t, whole, reply)
				require.Equal(t, want, left)
			}
		})
	}
}

// TestFollowersTakeTheShortcut: whoever asks while another leads is answered by the shortcut alone,
// which answers what the script does without it, and writes nothing, as that. Each thing that the
// script has to look at leaves it to the script.
func TestFollowersTakeTheShortcut(t *testing.T) {
	const term = leaseKey + ":term"
	redisTime := func(ms int64) string { return fmt.Sprint(atRenewal + ms) }
	tests := []struct {
		name    string
		asker   func(a *oracle.Asker)
		before  func(t *testing.T, w *leaseCluster)
		request func(r *lease.Request)
		left    bool
	}{
		{name: "another leads"},
		{name: "one that does not hear", request: func(r *lease.Request) { r.Mute = true }},
		{name: "one that is preferred", request: func(r *lease.Request) { r.Rank = 1 }, left: true},
		{name: "one that comes last", request: func(r *lease.Request) { r.Rank = -1 }, left: true},
		{name: "the last moment", request: func(r *lease.Request) { r.NotAfter = atRenewal }},
		{name: "a moment too late", request: func(r *lease.Request) { r.NotAfter = atRenewal - 1 }, left: true},
		{name: "its own floor", before: hash(term, "token", "9"), request: func(r *lease.Request) { r.Floor = 9 }},
		{name: "a higher floor", before: hash(term, "token", "9"), request: func(r *lease.Request) { r.Floor = 10 }, left: true},
		{name: "a longer hold-off", request: func(r *lease.Request) { r.HoldOff = 2 * time.Minute }},
		{name: "a longer lease than that of the leader", asker: func(a *oracle.Asker) { a.TTL = 70_000 }, left: true},
		{name: "a shorter lease than that of the leader", asker: func(a *oracle.Asker) { a.TTL = 50_000 }, left: true},
		{name: "another margin", asker: func(a *oracle.Asker) { a.Margin = 600 }, left: true},
		{name: "no margin beside one", asker: func(a *oracle.Asker) { a.Margin = 0 }, left: true},
		{name: "no margin at all", asker: func(a *oracle.Asker) { a.Margin = 0 }, before: del(term, "margin")},
		{name: "the lease of the leader itself", asker: func(a *oracle.Asker) { a.ID = "a" }, left: true},
		{name: "named a period ago", before: hash(term, "longest_at", redisTime(-60_000), "margin_at", redisTime(-60_000))},
		{name: "the lease named longer ago", before: hash(term, "longest_at", redisTime(-60_001)), left: true},
		{name: "the margin named longer ago", before: hash(term, "margin_at", redisTime(-60_001)), left: true},
		{name: "named in the future", before: hash(term, "longest_at", redisTime(60_000), "margin_at", redisTime(60_000))},
		{name: "the lease named in the far future", before: hash(term, "longest_at", redisTime(60_001)), left: true},
		{name: "the margin named in the far future", before: hash(term, "margin_at", redisTime(60_001)), left: true},
		{name: "the lease named at no time", before: del(term, "longest_at"), left: true},
		{name: "a lease of less in the term", before: hash(term, "ttl", "1")},
		{name: "a lease of no length", before: hash(term, "ttl", "0"), left: true},
		{name: "a lease of more than a day", before: hash(term, "ttl", "86400001"), left: true},
		{name: "a lease of a day", before: hash(term, "ttl", "86400000")},
		{name: "an end as late as may be", before: hash(term, "until", redisTime(60_000))},
		{name: "an end that is too late", before: hash(term, "until", redisTime(60_001)), left: true},
		{name: "no end", before: del(term, "until"), left: true},
		{name: "a hold that is over", before: hash(term, "hold", redisTime(0))},
		{name: "a hold", before: hash(term, "hold", redisTime(1)), left: true},
		{name: "a hold that is none", before: hash(term, "hold", "soon"), left: true},
		{name: "a hold-off that was armed by no guard", before: hash(term, "armed", "0")},
		{name: "a hold-off as long as that of the asker", before: hash(term, "armed", "60500")},
		{name: "a hold-off that grows", before: hash(term, "armed", "60499"), left: true},
		{name: "an offer", before: hash(term, "heir", "c"), left: true},
		{name: "an offer to whoever asks", before: hash(term, "heir", "*"), left: true},
		{name: "a reservation", before: hash(term, "reserved", redisTime(-1)), left: true},
		{name: "a candidate that is preferred", before: hash(term, "best", "c"), left: true},
		{name: "a term that was released", before: hash(term, "released", "1"), left: true},
		{name: "a foreign lease", before: hash(term, "holder", "c"), left: true},
		{name: "a token of a century ahead", before: hash(term, "token", redisTime(3_153_600_000_000))},
		{name: "a token of more than a century ahead", before: hash(term, "token", redisTime(3_153_600_000_001)), left: true},
		{name: "a token with zeros", before: hash(term, "token", "09"), left: true},
		{name: "no token", before: del(term, "token"), left: true},
		{name: "another history", before: hash(term, "origin", "0123456789abcdef"), left: true},
		{name: "the beginning of its history", before: hash(term, "origin", "00"), left: true},
		{name: "no history", before: hash(term, "origin", ""), left: true},
		{name: "no history at all", before: del(term, "origin"), left: true},
		{name: "INFO is refused", before: func(_ *testing.T, w *leaseCluster) { w.set(w.now, w.facts, true) }, left: true},
		{name: "no lease", before: func(t *testing.T, w *leaseCluster) { require.NoError(t, w.rdb.Del(t.Context(), leaseKey).Err()) }, left: true},
		{name: "a lease without an end", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Persist(t.Context(), leaseKey).Err())
		}, left: true},
		{name: "a lease as long as may be", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.PExpire(t.Context(), leaseKey, time.Minute).Err())
		}},
		{name: "a lease that is too long", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.PExpire(t.Context(), leaseKey, time.Minute+time.Millisecond).Err())
		}, left: true},
		{name: "the last of a lease", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.PExpire(t.Context(), leaseKey, time.Millisecond).Err())
		}},
		{name: "a lease of the length of the hold-off", request: func(r *lease.Request) { r.HoldOff = 2 * time.Minute }, before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.PExpire(t.Context(), leaseKey, 2*time.Minute).Err())
		}},
		{name: "a hold-off longer than the lease", asker: func(a *oracle.Asker) { a.HoldOff = 70_000 }, before: hash(term, "longest", "70000")},
		{name: "the longest lease", asker: func(a *oracle.Asker) { a.TTL = 86_400_000 }, before: hash(term, "longest", "86400000")},
		{name: "no hold", before: del(term, "hold")},
		{name: "nothing armed", before: del(term, "armed")},
		{name: "a term of another type", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Del(t.Context(), term).Err())
			require.NoError(t, w.rdb.RPush(t.Context(), term, "x").Err())
		}, left: true},
		{name: "the longest holder", before: func(t *testing.T, w *leaseCluster) {
			long := strings.Repeat("x", 128)
			require.NoError(t, w.rdb.Set(t.Context(), leaseKey, long, time.Minute).Err())
			require.NoError(t, w.rdb.HSet(t.Context(), term, "holder", long).Err())
		}},
		{name: "a holder that is no instance", before: func(t *testing.T, w *leaseCluster) {
			long := strings.Repeat("x", 129)
			require.NoError(t, w.rdb.Set(t.Context(), leaseKey, long, time.Minute).Err())
			require.NoError(t, w.rdb.HSet(t.Context(), term, "holder", long).Err())
		}, left: true},
	}
	only, without := acquireShort(t), acquireLong(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := t.Context()
			acquire := func(scripts *Scripts) (string, map[string]string, error) {
				w := miniLease(t)
				facts := oracle.Facts{Origin: "00000000feedbeef", Uptime: 100_000}
				w.set(atRenewal-20_123, facts, false)
				w.asker(oracle.Asker{ID: "a", TTL: 60_000, RestartGuard: -1, Margin: 500}).must(ctx, t, lease.Won, acquiring(nil))
				w.set(atRenewal, facts, false)
				if tt.before != nil {
					tt.before(t, w)
				}
				b := oracle.Asker{ID: "b", TTL: 60_000, RestartGuard: -1, Margin: 500}
				if tt.asker != nil {
					tt.asker(&b)
				}
				before := exact(t, w.rdb)
				w.store.scripts = scripts
				reply, err := w.asker(b).ask(ctx, acquiring(func(r *lease.Request) {
					r.Nonce = "other"
					if tt.request != nil {
						tt.request(r)
					}
				}))
				after := exact(t, w.rdb)
				if !tt.left || err != nil {
					require.Equal(t, before, after)
				}
				return fmt.Sprintf("%+v", reply), after, err
			}
			reply, _, err := acquire(only)
			if tt.left {
				require.ErrorContains(t, err, "LEFT", "answered %+v", reply)
				return
			}
			require.NoError(t, err)
			whole, _, err := acquire(without)
			require.NoError(t, err)
			require.Equal(t, whole, reply)
		})
	}
}

// TestShortcutOnRedis: a real server takes the shortcuts too.
func TestShortcutOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	w, ctx := realLease(t, redistest.Start(t)), t.Context()
	a := w.candidateA()
	won := a.must(ctx, t, lease.Won, acquiring(nil))
	renewal := renewing(func(r *lease.Request) { r.Token, r.NotAfter, r.Origin = won.Token, won.Now+1_000_000, won.Origin })
	a.must(ctx, t, lease.Kept, renewal)
	w.store.scripts = shortcutOnly(t)
	w.candidateA().must(ctx, t, lease.Kept, renewal)
	w.store.scripts = acquireShort(t)
	w.candidateB().must(ctx, t, lease.Held, acquiring(func(r *lease.Request) { r.Nonce = "other" }))
}

// atRenewal is Redis's time of a renewal, with all digits set.
const atRenewal = 1_712_345_678_999

// exact is what the keys hold, and for how many milliseconds.
func exact(t *testing.T, rdb *redis.Client) map[string]string {
	t.Helper()
	all := raw(t.Context(), t, rdb)
	for key := range all {
		all[key] += fmt.Sprint(" for ", rdb.PTTL(t.Context(), key).Val())
	}
	return all
}

// hash returns a function that writes fields of a hash.
func hash(key string, fields ...any) func(*testing.T, *leaseCluster) {
	return func(t *testing.T, w *leaseCluster) { require.NoError(t, w.rdb.HSet(t.Context(), key, fields...).Err()) }
}

// del returns a function that removes a field of a hash.
func del(key, field string) func(*testing.T, *leaseCluster) {
	return func(t *testing.T, w *leaseCluster) { require.NoError(t, w.rdb.HDel(t.Context(), key, field).Err()) }
}
