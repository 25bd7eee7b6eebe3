//go:build unix

package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// releaseShort is the contract with a release that knows its shortcut and nothing else, and
// releaseLong with one that does not know it.
func releaseShort(t *testing.T) *Scripts {
	return replaced(t, "\n--@ release\n", "\n--@ leader\n", "refuse('LEFT to the script')\n")
}

func releaseLong(t *testing.T) *Scripts {
	return replaced(t, "\n--@ shortcut release\n", "\n--@ release\n", "")
}

// quietTest is one request in one situation. left: the shortcut leaves it to the script.
type quietTest struct {
	name    string
	asker   func(a *oracle.Asker)
	before  func(t *testing.T, w *leaseCluster)
	request func(r *lease.Request)
	left    bool
}

// outcome is all that such a request leads to.
type outcome struct {
	reply string
	keys  map[string]string
	hints []string
}

// run asks by other scripts in the situation that the test makes of that of w.
func (tt quietTest) run(t *testing.T, w *leaseCluster, a oracle.Asker, r lease.Request, scripts *Scripts) (was map[string]string, now outcome, err error) {
	t.Helper()
	if tt.before != nil {
		tt.before(t, w)
	}
	if tt.asker != nil {
		tt.asker(&a)
	}
	if tt.request != nil {
		tt.request(&r)
	}
	was = exact(t, w.rdb)
	hints := hintsOf(t, w)
	w.store.scripts = scripts
	reply, err := w.asker(a).ask(t.Context(), r)
	require.NoError(t, w.rdb.Publish(t.Context(), leaseKey+":events", "the last").Err())
	now = outcome{reply: fmt.Sprintf("%+v", reply), keys: exact(t, w.rdb)}
	for {
		message, err := hints.ReceiveMessage(t.Context())
		require.NoError(t, err)
		if message.Payload == "the last" {
			break
		}
		now.hints = append(now.hints, message.Payload)
	}
	return was, now, err
}

// compare has the shortcut alone, and the script without it, answer in the same situation. makes
// returns a new one, who asks in it, and what.
func (tt quietTest) compare(t *testing.T, short, long *Scripts, makes func(t *testing.T) (*leaseCluster, oracle.Asker, lease.Request)) {
	t.Helper()
	w, a, r := makes(t)
	was, got, err := tt.run(t, w, a, r, short)
	if tt.left {
		require.ErrorContains(t, err, "LEFT", "answered %+v", got)
		require.Equal(t, was, got.keys)
		require.Empty(t, got.hints)
		return
	}
	require.NoError(t, err)
	w, a, r = makes(t)
	_, want, err := tt.run(t, w, a, r, long)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Len(t, got.hints, 1)
}

// list returns a function that makes a key one of another type.
func list(key string) func(*testing.T, *leaseCluster) {
	return func(t *testing.T, w *leaseCluster) {
		require.NoError(t, w.rdb.Del(t.Context(), key).Err())
		require.NoError(t, w.rdb.RPush(t.Context(), key, "x").Err())
	}
}

var quietFacts = oracle.Facts{Origin: "00000000feedbeef", Uptime: 100_000}

// TestGrantsTakeTheShortcut: who asks for a lease that was given back is granted it by the
// shortcut alone, which answers, writes and publishes what the script does without it. Each thing
// that the script has to look at leaves it to the script, and then the shortcut has changed
// nothing.
func TestGrantsTakeTheShortcut(t *testing.T) {
	const term = leaseKey + ":term"
	at := func(ms int64) string { return fmt.Sprint(atRenewal + ms) }
	tests := []quietTest{
		{name: "given back"},
		{name: "by who gave it back", asker: func(a *oracle.Asker) { a.ID = "a" }},
		{name: "one that does not hear", request: func(r *lease.Request) { r.Mute = true }},
		{name: "one that is preferred", request: func(r *lease.Request) { r.Rank = 1 }, left: true},
		{name: "one that comes last", request: func(r *lease.Request) { r.Rank = -1 }, left: true},
		{name: "the last moment", request: func(r *lease.Request) { r.NotAfter = atRenewal }},
		{name: "a moment too late", request: func(r *lease.Request) { r.NotAfter = atRenewal - 1 }, left: true},
		{name: "its own floor", before: hash(term, "token", "9"), request: func(r *lease.Request) { r.Floor = 9 }},
		{name: "a higher floor", before: hash(term, "token", "9"), request: func(r *lease.Request) { r.Floor = 10 }, left: true},
		{name: "a token ahead of the clock", before: hash(term, "token", at(5))},
		{name: "a token of now", before: hash(term, "token", at(0))},
		{name: "the token before", before: hash(term, "token", at(-1))},
		{name: "a higher token that somebody has named", before: hash(term, "floor", at(7))},
		{name: "a lower token that somebody has named", before: hash(term, "floor", "7")},
		{name: "a token that is none, named by somebody", before: hash(term, "floor", "soon"), left: true},
		{name: "a token of a century ahead, named by somebody", before: hash(term, "floor", at(3_153_600_000_000))},
		{name: "a token of more than a century ahead, named by somebody", before: hash(term, "floor", at(3_153_600_000_001)), left: true},
		{name: "a token of a century ahead", before: hash(term, "token", at(3_153_600_000_000))},
		{name: "a token of more than a century ahead", before: hash(term, "token", at(3_153_600_000_001)), left: true},
		{name: "a token with zeros", before: hash(term, "token", "09"), left: true},
		{name: "no token", before: del(term, "token"), left: true},
		{name: "not given back", before: del(term, "released"), left: true},
		{name: "given back, they say", before: hash(term, "released", "yes"), left: true},
		{name: "given back just now", before: hash(term, "until", at(0))},
		{name: "given back in the future", before: hash(term, "until", at(1)), left: true},
		{name: "given back at no time", before: del(term, "until"), left: true},
		{name: "somebody else's key", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Set(t.Context(), leaseKey, "c", time.Minute).Err())
		}, left: true},
		{name: "a key of another type", before: list(leaseKey), left: true},
		{name: "a longer hold-off", request: func(r *lease.Request) { r.HoldOff = 2 * time.Minute }},
		{name: "a longer lease than that of before", asker: func(a *oracle.Asker) { a.TTL = 70_000 }, left: true},
		{name: "a shorter lease than that of before", asker: func(a *oracle.Asker) { a.TTL = 50_000 }, left: true},
		{name: "another margin", asker: func(a *oracle.Asker) { a.Margin = 600 }, left: true},
		{name: "no margin beside one", asker: func(a *oracle.Asker) { a.Margin = 0 }, left: true},
		{name: "no margin at all", asker: func(a *oracle.Asker) { a.Margin = 0 }, before: del(term, "margin")},
		{name: "the lease named longer ago", before: hash(term, "longest_at", at(-60_001)), left: true},
		{name: "the margin named longer ago", before: hash(term, "margin_at", at(-60_001)), left: true},
		{name: "a hold that is over", before: hash(term, "hold", at(0))},
		{name: "a hold", before: hash(term, "hold", at(1)), left: true},
		{name: "a hold-off as long as that of the asker", before: hash(term, "armed", "60500")},
		{name: "a hold-off that grows", before: hash(term, "armed", "60499"), left: true},
		{name: "an offer that was not taken up", before: hash(term, "heir", "c"), left: true},
		{name: "an offer to whoever asks", before: hash(term, "heir", "*"), left: true},
		{name: "a reservation", before: hash(term, "reserved", at(1)), left: true},
		{name: "a candidate that is preferred", before: hash(term, "best", "c"), left: true},
		{name: "another history", before: hash(term, "origin", "0123456789abcdef"), left: true},
		{name: "no history", before: hash(term, "origin", ""), left: true},
		{name: "INFO is refused", before: func(_ *testing.T, w *leaseCluster) { w.set(w.now, w.facts, true) }, left: true},
		{name: "the since key is still there", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Set(t.Context(), leaseKey+":since", "7", time.Hour).Err())
		}},
		{name: "a since key of another type", before: list(leaseKey + ":since"), left: true},
		{name: "a history of terms of another type", before: list(leaseKey + ":terms")},
		{name: "a log of another type", before: list(leaseNamespace + ":log")},
		{name: "the longest ID", asker: func(a *oracle.Asker) { a.ID = strings.Repeat("x", 128) }},
		{name: "a term of another type", before: list(term), left: true},
	}
	short, long := acquireShort(t), acquireLong(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.compare(t, short, long, func(t *testing.T) (*leaseCluster, oracle.Asker, lease.Request) {
				w, ctx := miniLease(t), t.Context()
				a := w.asker(oracle.Asker{ID: "a", TTL: 60_000, RestartGuard: -1, Margin: 500})
				w.set(atRenewal-20_123, quietFacts, false)
				won := a.must(ctx, t, lease.Won, acquiring(nil))
				w.set(atRenewal-10_123, quietFacts, false)
				a.must(ctx, t, lease.Done, releasing(acquiring(nil).Nonce, won.Token))
				w.set(atRenewal, quietFacts, false)
				return w, oracle.Asker{ID: "b", TTL: 60_000, RestartGuard: -1, Margin: 500}, acquiring(func(r *lease.Request) { r.Nonce = "other" })
			})
		})
	}
}

// TestReleasesTakeTheShortcut: who gives a lease back that is theirs is answered by the shortcut
// alone, as above.
func TestReleasesTakeTheShortcut(t *testing.T) {
	const term = leaseKey + ":term"
	key := func(key, value string) func(t *testing.T, w *leaseCluster) {
		return func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Set(t.Context(), key, value, time.Minute).Err())
		}
	}
	tests := []quietTest{
		{name: "its own"},
		{name: "whatever it was granted", request: func(r *lease.Request) { r.Token = 0 }},
		{name: "another token", request: func(r *lease.Request) { r.Token-- }, left: true},
		{name: "another nonce", request: func(r *lease.Request) { r.Nonce = "other" }, left: true},
		{name: "another instance", asker: func(a *oracle.Asker) { a.ID = "b" }, left: true},
		{name: "its own floor", request: func(r *lease.Request) { r.Floor = r.Token }},
		{name: "a higher floor", request: func(r *lease.Request) { r.Floor = r.Token + 1 }, left: true},
		{name: "a term that ended a while ago", request: func(r *lease.Request) { r.Ago = 3 * time.Second }},
		{name: "to an heir", before: hash(term, "heir", "b", "ready", fmt.Sprint(atRenewal+1000)), request: func(r *lease.Request) { r.Heir, r.Reserve = "b", time.Second }, left: true},
		{name: "to somebody that it was not offered to", request: func(r *lease.Request) { r.Heir, r.Reserve = "b", time.Second }},
		{name: "an offer that nobody took up", before: hash(term, "heir", "b", "ready", fmt.Sprint(atRenewal+1000), "reserved", "7"), left: true},
		{name: "what is left of an offer", before: hash(term, "ready", fmt.Sprint(atRenewal+1000), "reserved", "7")},
		{name: "a candidate that is preferred", before: hash(term, "best", "b", "best_rank", "7", "best_until", fmt.Sprint(atRenewal+1000))},
		{name: "given back before", before: hash(term, "released", "1"), left: true},
		{name: "somebody else's key", before: key(leaseKey, "b"), left: true},
		{name: "no key", before: func(t *testing.T, w *leaseCluster) { require.NoError(t, w.rdb.Del(t.Context(), leaseKey).Err()) }, left: true},
		{name: "somebody else's term", before: hash(term, "holder", "b"), left: true},
		{name: "no since key", before: func(t *testing.T, w *leaseCluster) {
			require.NoError(t, w.rdb.Del(t.Context(), leaseKey+":since").Err())
		}, left: true},
		{name: "a since key that says nothing", before: key(leaseKey+":since", "soon"), left: true},
		{name: "a since key of as many digits as all doubles have", before: key(leaseKey+":since", "999999999999999")},
		{name: "a since key of more than that", before: key(leaseKey+":since", "9007199254740993"), left: true},
		{name: "a since key with zeros", before: key(leaseKey+":since", "07"), left: true},
		{name: "a since key of another type", before: list(leaseKey + ":since"), left: true},
		{name: "no length", before: del(term, "ttl"), left: true},
		{name: "a length of a day", before: hash(term, "ttl", "86400000")},
		{name: "a length of more than a day", before: hash(term, "ttl", "86400001"), left: true},
		{name: "a token of a century ahead", before: hash(term, "token", fmt.Sprint(atRenewal+3_153_600_000_000)), request: func(r *lease.Request) { r.Token = 0 }},
		{name: "a token of more than a century ahead", before: hash(term, "token", fmt.Sprint(atRenewal+3_153_600_000_001)), request: func(r *lease.Request) { r.Token = 0 }, left: true},
		{name: "a token with zeros", before: hash(term, "token", "09"), request: func(r *lease.Request) { r.Token = 0 }, left: true},
		{name: "a term of another type", before: list(term), left: true},
		{name: "a history of terms of another type", before: list(leaseKey + ":terms")},
		{name: "a log of another type", before: list(leaseNamespace + ":log")},
		{name: "the longest ID", asker: func(a *oracle.Asker) { a.ID = strings.Repeat("x", 128) }, before: func(t *testing.T, w *leaseCluster) {
			key(leaseKey, strings.Repeat("x", 128))(t, w)
			hash(term, "holder", strings.Repeat("x", 128))(t, w)
		}},
	}
	short, long := releaseShort(t), releaseLong(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.compare(t, short, long, func(t *testing.T) (*leaseCluster, oracle.Asker, lease.Request) {
				w := miniLease(t)
				who := oracle.Asker{ID: "a", TTL: 60_000, RestartGuard: -1, Margin: 500}
				w.set(atRenewal-20_123, quietFacts, false)
				won := w.asker(who).must(t.Context(), t, lease.Won, acquiring(nil))
				w.set(atRenewal, quietFacts, false)
				r := releasing(acquiring(nil).Nonce, won.Token)
				r.Why = lease.Resigned.String()
				return w, who, r
			})
		})
	}
}

// TestQuietTermOnRedis: a real server takes the shortcuts of a term that begins and ends.
func TestQuietTermOnRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	w, ctx := realLease(t, redistest.Start(t)), t.Context()
	first := w.candidateA().must(ctx, t, lease.Won, acquiring(nil))
	w.store.scripts = releaseShort(t)
	w.candidateA().must(ctx, t, lease.Done, releasing(acquiring(nil).Nonce, first.Token))
	w.store.scripts = acquireShort(t)
	second := w.candidateA().must(ctx, t, lease.Won, acquiring(nil))
	require.Greater(t, second.Token, first.Token)
}
