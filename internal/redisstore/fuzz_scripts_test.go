//go:build unix

package redisstore

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/proof/oracle"
	"github.com/tenure-go/tenure/internal/store"
)

// What others have written into the keys goes through the real scripts here, on a miniredis, and
// through the client.

// fuzzCandidate is who asks for the lease.
var fuzzCandidate = oracle.Asker{ID: "me", TTL: 1000, EmptyWait: 250, RestartGuard: -1}

// settles asks for a lease until it is granted, each time after the wait that it was told, and
// returns the last answer. No wait may be longer than longest.
func (w *leaseCluster) settles(t *testing.T, a leaseAsker, q lease.Request, facts oracle.Facts, longest time.Duration) oracle.Reply {
	t.Helper()
	for range 6 {
		reply, err := a.ask(t.Context(), q)
		require.NoError(t, err)
		require.NotEqual(t, "BADTERM", reply.Reason)
		if reply.Verdict == lease.Won {
			return reply
		}
		if reply.Reason == "foreign" { // it may stay as long as it likes
			require.NoError(t, w.rdb.Del(t.Context(), leaseKey).Err())
			continue
		}
		require.True(t, 0 < reply.Wait && reply.Wait <= longest, "%+v", reply)
		w.set(w.now+reply.Wait.Milliseconds(), facts, false)
	}
	t.Fatal("the election is wedged")
	return oracle.Reply{}
}

// FuzzTermHash: whatever somebody has written into the term hash, either it is refused and left as
// it is, or the election gets on within bounds, and with a token above the one that stood there.
func FuzzTermHash(f *testing.F) {
	f.Add("41", "nb", "b", "1700000000600", "1000", "", "abc", "", "1699999999998", "b", int64(600), int64(0))
	f.Add("1699999999999", "nm", "me", "1700000000600", "1000", "", "abc", "1699999990000", "", "me", int64(600), int64(1699999999999))
	f.Add("9007199254740992", "", "", "9999999999999999", "86400000", "1", "", "9999999999999999", "9007199254740992", "", int64(0), int64(0))
	f.Add("1e3", "\x00", "a b", "-1", "86400001", "yes", "xyz", "0x10", "1e9", "cron-7", int64(-1), int64(1))
	f.Add("00041", "-", "-", " 1", "nan", "1", "abc", "inf", "-7", "-", int64(90_000_000), int64(4_000_000_000_000))
	w := miniLease(f)
	facts := oracle.Facts{Origin: "abc", Uptime: 1_000_000_000}
	start := w.now
	f.Fuzz(func(t *testing.T, token, nonce, holder, until, ttl, released, origin, hold, noted, lessee string, left, floor int64) {
		ctx := t.Context()
		w.mini.FlushAll()
		w.set(start, facts, false)
		for name, value := range map[string]string{
			"token": token, "nonce": nonce, "holder": holder, "until": until, "ttl": ttl, "released": released, "origin": origin, "hold": hold, "floor": noted,
		} {
			if value != "" {
				w.mini.HSet(leaseKey+":term", name, value)
			}
		}
		if lessee != "" {
			require.NoError(t, w.rdb.Set(ctx, leaseKey, lessee, 0).Err())
			if left > 0 {
				w.mini.SetTTL(leaseKey, time.Duration(left%(2*lease.MaxTTL.Milliseconds())+1)*time.Millisecond)
			}
		}
		if floor < 0 || floor >= lease.MaxToken || !lease.SaneToken(floor+1, start) {
			floor = 0
		}
		stored := store.Natural(token)
		before, err := w.rdb.HGetAll(ctx, leaseKey+":term").Result()
		require.NoError(t, err)

		a, q := w.asker(fuzzCandidate), lease.Request{Kind: lease.Acquire, Nonce: "nm", HoldOff: time.Second, Floor: floor}
		_, err = a.store.Acquire(ctx, q)
		if token != "" && !lease.SaneToken(stored, start) {
			require.ErrorIs(t, err, store.ErrMisconfigured)
			after, err := w.rdb.HGetAll(ctx, leaseKey+":term").Result()
			require.NoError(t, err)
			require.Equal(t, before, after, "nothing is written on top of it")
			return
		}
		require.NoError(t, err)
		longest := time.Duration(max(1000, min(store.Natural(ttl), lease.MaxTTL.Milliseconds()))+1000+250) * time.Millisecond
		won := w.settles(t, a, q, facts, longest)
		if lessee != "me" || nonce != "nm" { // not our own lost reply
			require.Greater(t, won.Token, stored)
			require.Greater(t, won.Token, floor)
			if known := store.Natural(noted); lease.SaneToken(known, start) {
				require.Greater(t, won.Token, known)
			}
		}
		kept, err := a.ask(ctx, lease.Request{Kind: lease.Renew, Nonce: "nm", Token: won.Token, HoldOff: time.Second, Origin: won.Origin, Since: won.Since})
		require.NoError(t, err)
		require.Equal(t, lease.Kept, kept.Verdict)
		gone, err := a.ask(ctx, lease.Request{Kind: lease.Release, Nonce: "nm", Token: won.Token})
		require.NoError(t, err)
		require.Equal(t, lease.Done, gone.Verdict)
		require.False(t, w.mini.Exists(leaseKey))
	})
}

// FuzzInfo: whatever INFO says, the scripts read a replication id and an age from it or none, and
// the election gets on.
func FuzzInfo(f *testing.F) {
	f.Add("# Replication\r\nmaster_replid:0123abcd\r\nsecond_repl_offset:-1\r\n", "# Server\r\nuptime_in_seconds:7\r\n")
	f.Add("# Replication\r\nmaster_replid:0123abcd\r\nsecond_repl_offset:4711\r\n", "# Server\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n")
	f.Add("master_replid:\r\nsecond_repl_offset:x", "uptime_in_seconds:-1")
	f.Add("", "uptime_in_seconds:99999999999999999999")
	f.Add("master_replid:abc def", "uptime_in_seconds:0\nuptime_in_seconds:1")
	w := miniLease(f)
	var replication, age string // of the input that is on; the server reads them only while it is asked
	w.mini.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
		if cmd != "INFO" || len(args) != 1 {
			return false
		}
		if args[0] == "server" {
			peer.WriteBulk(age)
		} else {
			peer.WriteBulk(replication)
		}
		return true
	})
	hex := regexp.MustCompile(`^[0-9a-fA-F]*$`)
	start := w.now
	f.Fuzz(func(t *testing.T, history, server string) {
		replication, age = history, server
		w.mini.FlushAll()
		w.set(start, oracle.Facts{}, false)
		asker := fuzzCandidate
		asker.RestartGuard = 5000
		q := lease.Request{Kind: lease.Acquire, Nonce: "nm", HoldOff: time.Second}
		won := w.settles(t, w.asker(asker), q, oracle.Facts{}, 6*time.Second+250*time.Millisecond)
		require.Regexp(t, hex, won.Origin)
		require.Contains(t, history, won.Origin)
		require.LessOrEqual(t, w.now-start, int64(7000))
	})
}

// FuzzTaskHash: whatever somebody has written into the record of a task, what Redis refuses is left
// as it is, what it accepts the client can read, and then the task can be claimed, run and
// remembered.
func FuzzTaskHash(f *testing.F) {
	f.Add("1700000000000", "41", "", "", "3", "1", "12", "", "")
	f.Add("0", "5", "r0", "r0", "x", "-1", "9999999999999999", "1", "\xff\xfe")
	f.Add("00", "1", "", "", "", "", "", "0", "")
	f.Add("17000000000000000", "0", "", "", "", "", "", "", "")
	f.Add("", "9007199254740993", "", "", "", "", "", "", "")
	f.Add("9999999999999999", "+1", "", "", "", "", "", "", strings.Repeat("é", 600))
	w := miniLease(f)
	db := openStore(w.rdb, "tasks")
	record := db.keys.Task("t")
	f.Fuzz(func(t *testing.T, next, token, run, done, attempt, crashes, skipped, paused, text string) {
		ctx := t.Context()
		w.mini.FlushAll()
		for name, value := range map[string]string{
			"next": next, "token": token, "run": run, "done": done, "attempt": attempt, "crashes": crashes, "skipped": skipped, "paused": paused, "error": text,
		} {
			if value != "" {
				w.mini.HSet(record, name, value)
			}
		}
		before, err := w.rdb.HGetAll(ctx, record).Result()
		require.NoError(t, err)
		_, listed, problems, err := db.Records(ctx, []string{"t"})
		require.NoError(t, err)
		read, err := db.Record(ctx, "t")
		if err == nil {
			require.NoError(t, problems[0], "what the script reads the list has")
			require.Equal(t, listed[0], read.Record)
		} else {
			require.ErrorIs(t, err, store.ErrMisconfigured)
		}

		leader := max(listed[0].Token, w.now) + 1
		opened, err := db.Open(ctx, "t", store.TaskOpen{Token: leader})
		if read.Verdict == "" {
			require.ErrorIs(t, err, store.ErrMisconfigured)
			after, err := w.rdb.HGetAll(ctx, record).Result()
			require.NoError(t, err)
			require.Equal(t, before, after, "what is refused is left as it is")
			return
		}
		require.NoError(t, err)
		require.Equal(t, leader, opened.Record.Token)
		if run != "" || paused == "1" || done == "mine" {
			return
		}
		claimed, err := db.Claim(ctx, "t", store.TaskClaim{Token: leader, Run: "mine", Kind: store.ClaimExtra, Expect: strconv.FormatInt(opened.Record.Finished, 10), Instance: "me", Attempt: 1})
		require.NoError(t, err)
		require.Equal(t, store.TaskClaimed, claimed.Verdict)
		finished, err := db.Finish(ctx, "t", store.TaskFinish{Token: leader, Run: "mine", Status: store.RunFailed, Text: text})
		require.NoError(t, err)
		require.Equal(t, store.TaskDone, finished.Verdict)
		runs, err := db.Runs(ctx, "t", 5)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		require.Equal(t, "mine", runs[0].Run)
	})
}

// FuzzTaskHistory: whatever somebody has put into the history of a task is read within bounds, and
// can be shown.
func FuzzTaskHistory(f *testing.F) {
	f.Add("r1", "1700000000000", "succeeded", "1", "41", "me", "")
	f.Add("\xff", "9999999999999999", "", "1073741825", "-1", "\x00", strings.Repeat("\xff", 2000))
	w := miniLease(f)
	store := openStore(w.rdb, "tasks")
	f.Fuzz(func(t *testing.T, run, slot, status, attempt, token, instance, text string) {
		ctx := t.Context()
		w.mini.FlushAll()
		values := []string{
			"run", run, "slot", slot, "started", slot, "finished", slot, "status", status, "attempt", attempt, "token", token, "instance", instance, "error", text,
		}
		require.NoError(t, w.rdb.XAdd(ctx, &redis.XAddArgs{Stream: store.keys.Runs("t"), Values: values}).Err())
		runs, err := store.Runs(ctx, "t", 5)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		for _, shown := range []string{runs[0].Run, string(runs[0].Status), runs[0].InstanceID, runs[0].Error} {
			require.True(t, len(shown) <= 1024 && utf8.ValidString(shown), "%q", shown)
		}
		require.GreaterOrEqual(t, runs[0].Attempt, 0)
		require.GreaterOrEqual(t, runs[0].Token, int64(0))
	})
}
