//go:build unix

package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

const termsKey = leaseKey + ":terms"

func givingBack(nonce string, token int64, why string, ago time.Duration) lease.Request {
	r := releasing(nonce, token)
	r.Why, r.Ago = why, ago
	return r
}

// TestHistoryOfTerms: each term begins and ends once in the stream, however often it is asked for,
// and in fields that people can read.
func TestHistoryOfTerms(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a, b := t.Context(), w.candidateA(), w.candidateB()
		first := a.must(ctx, t, lease.Won, acquiring(nil))
		a.must(ctx, t, lease.Won, acquiring(nil))
		a.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token = first.Token }))
		b.must(ctx, t, lease.Held, acquiring(func(r *lease.Request) { r.Nonce = "nb" }))
		given := a.must(ctx, t, lease.Done, givingBack("na", first.Token, "resigned", 200*time.Millisecond))
		a.must(ctx, t, lease.Done, givingBack("na", first.Token, "failed", 0))
		second := b.must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Nonce = "nb" }))
		require.Empty(t, second.Reason)
		w.rdb.Del(ctx, leaseKey) // b is dead, and its lease has lapsed
		w.rdb.HSet(ctx, leaseKey+":term", "until", second.Now)
		third := a.must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Nonce = "nc" }))
		require.Equal(t, store.TermLapsed, third.Reason)
		w.rdb.Del(ctx, leaseKey)
		w.rdb.HDel(ctx, leaseKey+":term", "nonce", "until") // lost
		fourth := b.must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Nonce = "nd" }))
		require.Equal(t, store.TermForgotten, fourth.Reason)

		entries, err := b.store.Terms(ctx, 100)
		require.NoError(t, err)
		require.Equal(t, []store.TermEntry{
			{Event: store.TermBegan, Token: fourth.Token, Holder: "b", At: fourth.Now},
			{Event: store.TermEnded, Token: third.Token, Reason: store.TermForgotten},
			{Event: store.TermBegan, Token: third.Token, Holder: "a", At: third.Now},
			{Event: store.TermEnded, Token: second.Token, Holder: "b", At: second.Now, Reason: store.TermLapsed},
			{Event: store.TermBegan, Token: second.Token, Holder: "b", At: second.Now},
			{Event: store.TermEnded, Token: first.Token, Holder: "a", At: given.Now - 200, Reason: "resigned", Since: first.Now / 1000},
			{Event: store.TermBegan, Token: first.Token, Holder: "a", At: first.Now},
		}, entries)
		few, err := b.store.Terms(ctx, 3)
		require.NoError(t, err)
		require.Equal(t, entries[:3], few)
		raw, err := w.rdb.Do(ctx, "xrange", termsKey, "-", "+", "count", 2).Slice()
		require.NoError(t, err)
		number := func(n int64) string { return strconv.FormatInt(n, 10) }
		require.Equal(t, []any{"event", "began", "token", number(first.Token), "holder", "a", "at", number(first.Now)}, raw[0].([]any)[1])
		require.Equal(t, []any{"event", "ended", "token", number(first.Token), "holder", "a", "at", number(given.Now - 200), "reason", "resigned",
			"since", number(first.Now / 1000)}, raw[1].([]any)[1])
	})
}

// TestHistoryOfTermsStopsNothing: no election waits for its history. Whoever reads it hears what is
// wrong with it.
func TestHistoryOfTermsStopsNothing(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx, a := t.Context(), w.candidateA()
		for i, spoil := range []func() error{
			func() error { return w.rdb.RPush(ctx, termsKey, "something", "else").Err() },
			func() error {
				w.rdb.Del(ctx, termsKey)
				return w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: termsKey, ID: "18446744073709551615-18446744073709551615", Values: []any{"at", "x"}}).Err()
			},
		} {
			require.NoError(t, spoil())
			nonce := fmt.Sprint("n", i)
			won := a.must(ctx, t, lease.Won, acquiring(func(r *lease.Request) { r.Nonce = nonce }))
			a.must(ctx, t, lease.Kept, renewing(func(r *lease.Request) { r.Token, r.Nonce = won.Token, nonce }))
			a.must(ctx, t, lease.Done, givingBack(nonce, won.Token, "resigned", 0))
			entries, err := a.store.Terms(ctx, 10)
			if i == 0 {
				require.ErrorIs(t, err, store.ErrMisconfigured)
				continue
			}
			require.NoError(t, err)
			require.NotEmpty(t, entries, "of Redis it begins anew, see TestStreamsBeginAnew")
		}
	})
}

// TestHistoryOfTermsIsCapped at about as many entries as it is read.
func TestHistoryOfTermsIsCapped(t *testing.T) {
	onBothRedis(t, func(t *testing.T, w *leaseCluster) {
		ctx := t.Context()
		_, err := w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range store.MaxTermEntries + 250 {
				p.XAdd(ctx, &redis.XAddArgs{Stream: termsKey, Values: []any{"event", "noise"}})
			}
			return nil
		})
		require.NoError(t, err)
		w.candidateA().must(ctx, t, lease.Won, acquiring(nil))
		require.GreaterOrEqual(t, w.rdb.XLen(ctx, termsKey).Val(), int64(store.MaxTermEntries))
		require.LessOrEqual(t, w.rdb.XLen(ctx, termsKey).Val(), int64(store.MaxTermEntries+100), "blocks of a hundred")
	})
}

// TestForgetTerms: the history goes, the token stays; not while somebody leads, nor if another term
// has begun since the last one was read.
func TestForgetTerms(t *testing.T) {
	onClusters(t, "tenure", func(t *testing.T, c *cluster) {
		ctx := t.Context()
		a := c.store.ForRole(store.Role{Name: "export", Key: c.store.keys.Lease("export"), Holder: "a", TTL: 30 * time.Second, RestartGuard: -1, EmptyWait: time.Millisecond})
		token := int64(0)
		lead := func(nonce string) {
			require.Eventually(t, func() bool {
				reply, err := a.Acquire(ctx, lease.Request{Kind: lease.Acquire, Nonce: nonce, NotAfter: 1 << 50})
				require.NoError(t, err)
				token = reply.Token
				return reply.Verdict == lease.Won
			}, 20*time.Second, 5*time.Millisecond)
		}
		release := func(nonce string) {
			_, err := a.Release(ctx, lease.Request{Kind: lease.Release, Nonce: nonce, Token: token, Why: "resigned"})
			require.NoError(t, err)
		}
		forget := func(token int64) (verdict lease.Verdict, left int) {
			reply, err := a.ForgetTerms(ctx, token)
			require.NoError(t, err)
			terms, err := a.Terms(ctx, 10)
			require.NoError(t, err)
			return reply.Verdict, len(terms)
		}
		lead("n1")
		first := token
		verdict, left := forget(first)
		require.Equal(t, lease.Held, verdict)
		require.Equal(t, 1, left)
		release("n1")
		lead("n2")
		release("n2")
		verdict, left = forget(first)
		require.Equal(t, lease.Stale, verdict)
		require.Equal(t, 4, left)
		for range 2 { // the client may send it again
			verdict, left = forget(token)
			require.Equal(t, lease.Done, verdict)
			require.Zero(t, left)
		}
		kept, err := c.rdb.HGet(ctx, store.LeaseTerm(c.store.keys.Lease("export")), "token").Int64()
		require.NoError(t, err)
		require.Equal(t, token, kept)
		lead("n3")
		require.Greater(t, token, kept)
	})
}
