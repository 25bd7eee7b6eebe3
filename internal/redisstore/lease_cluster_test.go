//go:build unix

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/store"
)

// leaseCluster is a cluster that the lease scripts run on, and what a test may do to the keys of
// one role: on a miniredis with a clock and an INFO of the test's own, or on a redis-server, where
// time passes by moving every stored time back.
type leaseCluster struct {
	*cluster
	history string // replication id of a redis-server
	now     int64  // of a miniredis

	mu    sync.Mutex // the hook runs in the server
	facts oracle.Facts
	blind bool // INFO is refused to the one who asks
}

const (
	leaseNamespace = "{lease}"
	leaseKey       = leaseNamespace + ":leader"
)

func miniLease(t testing.TB) *leaseCluster {
	w := &leaseCluster{cluster: miniCluster(t, leaseNamespace), now: 1_700_000_000_000}
	w.mini.SetTime(time.UnixMilli(w.now))
	w.mini.Server().SetPreHook(w.info)
	return w
}

func realLease(t testing.TB, s *redistest.Server) *leaseCluster {
	return &leaseCluster{cluster: clusterOf(t, s.Options(), leaseNamespace), history: s.Info(t, "replication")["master_replid"]}
}

// info is INFO on a miniredis.
func (w *leaseCluster) info(peer *server.Peer, cmd string, args ...string) bool {
	if cmd != "INFO" || len(args) != 1 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	offset := -1
	if w.facts.Promoted {
		offset = 4711
	}
	switch {
	case w.blind || w.facts.Origin == "":
		peer.WriteError("NOPERM this user has no permissions to run the 'info' command")
	case args[0] == "server":
		peer.WriteBulk(fmt.Sprintf("# Server\r\nuptime_in_seconds:%d\r\n", w.facts.Uptime/1000))
	default:
		peer.WriteBulk(fmt.Sprintf("# Replication\r\nmaster_replid:%s\r\nsecond_repl_offset:%d\r\n", w.facts.Origin, offset))
	}
	return true
}

// set makes a miniredis report these facts at this time.
func (w *leaseCluster) set(now int64, facts oracle.Facts, blind bool) {
	w.mu.Lock()
	w.facts, w.blind = facts, blind
	w.mu.Unlock()
	if back := w.now - now; back > 0 { // miniredis counts TTLs down; in Redis they end at an instant
		w.mini.SetTime(time.UnixMilli(now))
		w.mini.FastForward(-time.Duration(back) * time.Millisecond)
	} else {
		w.mini.SetTime(time.UnixMilli(now))
	}
	w.now = now
}

// clock is Redis's time.
func (w *leaseCluster) clock(ctx context.Context) (int64, error) {
	if w.mini != nil {
		return w.now, nil
	}
	now, err := w.rdb.Time(ctx).Result()
	return now.UnixMilli(), err
}

// load replaces the keys of the role.
func (w *leaseCluster) load(ctx context.Context, d oracle.Data) error {
	_, err := w.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, leaseKey, leaseKey+":since", leaseKey+":term", leaseKey+":terms")
		set := func(key, value string, expires int64) {
			p.Set(ctx, key, value, 0)
			if w.mini == nil && expires != 0 {
				p.PExpireAt(ctx, key, time.UnixMilli(expires))
			} else if expires != 0 {
				p.PExpire(ctx, key, time.Duration(expires-w.now)*time.Millisecond)
			}
		}
		if d.Lease.Holder != "" {
			set(leaseKey, d.Lease.Holder, d.Lease.Expires)
		}
		if d.Since.There {
			set(leaseKey+":since", strconv.FormatInt(d.Since.Unix, 10), d.Since.Expires)
		}
		if fields := termFields(d.Term); len(fields) > 0 {
			p.HSet(ctx, leaseKey+":term", fields...)
		}
		return nil
	})
	return err
}

func termFields(t oracle.Term) []any {
	var fields []any
	number := func(name string, n int64) {
		if n != 0 {
			fields = append(fields, name, n)
		}
	}
	text := func(name, s string) {
		if s != "" {
			fields = append(fields, name, s)
		}
	}
	number("token", t.Token)
	text("nonce", t.Nonce)
	text("holder", t.Holder)
	number("until", t.Until)
	number("ttl", t.TTL)
	if t.Released {
		text("released", "1")
	}
	text("origin", t.Origin)
	number("hold", t.Hold)
	number("armed", t.Armed)
	number("floor", t.Floor)
	number("asked", t.Asked)
	number("longest", t.Longest.Length)
	number("longest_at", t.Longest.At)
	number("margin", t.Margin.Length)
	number("margin_at", t.Margin.At)
	text("heir", t.Heir)
	number("ready", t.Ready)
	number("reserved", t.Reserved)
	if text("best", t.Best.ID); t.Best.ID != "" {
		fields = append(fields, "best_rank", int64(t.Best.Rank))
	}
	number("best_until", t.Best.Until)
	return fields
}

// dump reads the keys of the role.
func (w *leaseCluster) dump(ctx context.Context) (oracle.Data, error) {
	var (
		d                   oracle.Data
		now                 *redis.TimeCmd
		holder, since       *redis.StringCmd
		holderEnd, sinceEnd *redis.DurationCmd
		term                *redis.MapStringStringCmd
	)
	_, err := w.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		now = p.Time(ctx)
		holder, since = p.Get(ctx, leaseKey), p.Get(ctx, leaseKey+":since")
		holderEnd, sinceEnd = p.PTTL(ctx, leaseKey), p.PTTL(ctx, leaseKey+":since")
		term = p.HGetAll(ctx, leaseKey+":term")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return d, err
	}
	ends := func(ttl *redis.DurationCmd) int64 {
		if left := ttl.Val(); left > 0 {
			return now.Val().UnixMilli() + left.Milliseconds()
		}
		return 0
	}
	if holder.Err() == nil {
		d.Lease = oracle.Lease{Holder: holder.Val(), Expires: ends(holderEnd)}
	}
	if since.Err() == nil {
		d.Since = oracle.Since{There: true, Expires: ends(sinceEnd)}
		d.Since.Unix, _ = since.Int64()
	}
	f := term.Val()
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(f[name], 10, 64)
		return n
	}
	d.Term = oracle.Term{
		Token: number("token"), Nonce: f["nonce"], Holder: f["holder"], Until: number("until"), TTL: number("ttl"),
		Released: f["released"] == "1", Origin: f["origin"], Hold: number("hold"), Armed: number("armed"), Floor: number("floor"),
		Asked: number("asked"), Longest: oracle.Named{Length: number("longest"), At: number("longest_at")},
		Margin: oracle.Named{Length: number("margin"), At: number("margin_at")},
		Heir:   f["heir"], Ready: number("ready"), Reserved: number("reserved"), Best: oracle.Best{ID: f["best"], Rank: lease.Rank(number("best_rank")), Until: number("best_until")},
	}
	return d, nil
}

// told takes what the history of terms has got, and empties it.
func (w *leaseCluster) told(ctx context.Context) (told oracle.Told, err error) {
	entries, err := w.asker(oracle.Asker{}).store.Terms(ctx, store.MaxTermEntries)
	for _, e := range entries {
		switch {
		case e.Event == store.TermBegan && told == oracle.Told{}:
			told.Began = e
		case e.Event == store.TermEnded && told.Ended == store.TermEntry{}:
			told.Ended = e
		default:
			return told, fmt.Errorf("an entry too many, want one end before one beginning: %+v", entries)
		}
	}
	if err == nil && len(entries) > 0 {
		err = w.rdb.Del(ctx, leaseKey+":terms").Err()
	}
	return told, err
}

// leaseAsker is a candidate with the store that asks for it.
type leaseAsker struct {
	oracle.Asker
	store *Lease
	joint bool // renewals are asked for by renew_all
}

func (w *leaseCluster) asker(a oracle.Asker) leaseAsker {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	role := w.store.ForRole(store.Role{ // without an Attempt: time is virtual, the network is not
		Key: w.store.keys.Lease(""), Holder: a.ID, TTL: ms(a.TTL), HoldOff: ms(a.HoldOff), EmptyWait: ms(a.EmptyWait), Margin: ms(a.Margin),
		RestartGuard: ms(a.RestartGuard),
	})
	return leaseAsker{Asker: a, store: role}
}

const askLeader lease.Kind = -1

// ask runs a script; an error that it raises itself becomes its code.
func (a leaseAsker) ask(ctx context.Context, r lease.Request) (oracle.Reply, error) {
	call := a.store.Release
	switch r.Kind {
	case lease.Acquire:
		call = a.store.Acquire
	case lease.Renew:
		call = a.store.Renew
		if *a.store.apart = (apart{}); a.joint && a.store.joins(r) {
			call = a.renewJointly
		}
	case askLeader:
		call = func(ctx context.Context, _ lease.Request) (store.LeaseReply, error) { return a.store.Leader(ctx) }
	}
	reply, err := call(ctx, r)
	if err != nil && strings.Contains(err.Error(), "BADTERM") {
		return oracle.Reply{Reason: "BADTERM"}, nil
	}
	return oracle.Reply{Answer: reply.Answer, Reason: reply.Reason, Holder: reply.Holder}, err
}

// renewJointly renews by renew_all, and by renew what that leaves.
func (a leaseAsker) renewJointly(ctx context.Context, r lease.Request) (store.LeaseReply, error) {
	one := []store.Renewal{{Lease: a.store, Request: r}}
	a.store.finish(ctx, one, []journey{a.store.joint(ctx, one, []int{0})}, func([]int) {})
	return one[0].Reply, one[0].Err
}

// predict is what the oracle says to the same question.
func predict(m *oracle.Redis, now int64, a oracle.Asker, r lease.Request) oracle.Reply {
	switch r.Kind {
	case lease.Acquire:
		return m.Acquire(now, a, r)
	case lease.Renew:
		return m.Renew(now, a, r)
	case askLeader:
		return m.Leader(now)
	default:
		return m.Release(now, a, r)
	}
}

// real time passes within a script, and Redis counts an expiry from another look at the clock than
// TIME in it: they may lie so many ms apart, either way, on a machine that has other things to do.
const realSlack = 250

// same compares what Redis answered and holds now with what the oracle says, and takes over the
// little that real time adds.
func (w *leaseCluster) same(got, want oracle.Reply, data, model oracle.Data) error {
	if w.mini == nil {
		if d := (want.Wait - got.Wait).Milliseconds(); (want.Reason == "lease" || want.Reason == "foreign") && d >= -realSlack && d <= realSlack {
			got.Wait = want.Wait
		}
		near := func(got *int64, want int64) {
			if d := *got - want; *got != 0 && want != 0 && d >= -realSlack && d <= realSlack {
				*got = want
			}
		}
		near(&data.Lease.Expires, model.Lease.Expires)
		near(&data.Since.Expires, model.Since.Expires)
	}
	if got != want {
		return fmt.Errorf("reply\n\t%+v, want\n\t%+v", got, want)
	}
	if data != model {
		return fmt.Errorf("after the reply %+v, keys\n\t%+v, want\n\t%+v", got, data, model)
	}
	return nil
}
