package redisstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/store"
)

// FuzzRegistryReplies: lists that the registry scripts may have sent give bounded numbers, and no
// entry that was not there.
func FuzzRegistryReplies(f *testing.F) {
	f.Add("0|1700000000000|0|a|1700000000000|{}")
	f.Add("1700000000000|2|2||0|a|b")
	f.Add("1700000000000|2|down|silent")
	f.Add("|||")
	f.Fuzz(func(t *testing.T, text string) {
		reply := strings.Split(text, "|")
		if page, err := parseScanReply("0", reply); err == nil {
			require.Len(t, page.Entries, len(reply)/3-1)
			for _, e := range page.Entries {
				require.True(t, e.Last >= 0 && e.Last <= 1<<53)
			}
		} else {
			require.ErrorIs(t, err, store.ErrUnreachable)
			require.Less(t, len(err.Error()), 500)
		}
		if look, err := parseLookReply(reply); err == nil {
			require.Positive(t, look.Now)
			require.Len(t, look.IDs, len(reply)-5)
			require.True(t, look.Records >= 0 && look.Beats >= 0 && look.Skip >= 0)
		} else {
			require.ErrorIs(t, err, store.ErrUnreachable)
		}
		if sweep, err := parseSweepReply(reply, 2); err == nil {
			require.Len(t, sweep.Verdicts, 2)
			require.True(t, sweep.HeldSince >= 0 && sweep.Held >= 0)
		} else {
			require.ErrorIs(t, err, store.ErrUnreachable)
		}
	})
}

// replyError is an error reply.
type replyError string

func (e replyError) Error() string { return string(e) }

func (replyError) RedisError() {}

// FuzzRedisError: an error reply means either unknown or misconfigured, never both. What may be
// over in a moment is unknown, and the arguments that Redis repeats, a nonce among them, are told
// to nobody.
func FuzzRedisError(f *testing.F) {
	for _, text := range []string{
		"NOPERM this user has no permissions to run the 'get' command [GET ns:leader]", "BUSY Redis is busy running a script",
		"WRONGTYPE Operation against a key holding the wrong kind of value [HMGET ns:leader:term]", "BADTERM the field token [HGET k]", "OOM command not allowed",
		"LOADING Redis is loading", "READONLY", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "CROSSSLOT Keys", "NOAUTH", "WRONGPASS invalid",
		"ERR ACL failure in script: User app has no permissions to run the 'get' command [GET ns:leader]", "ERR unknown command 'evalsha'", "ERR AUTH <password> called without any password", "[A ]", "NOPERM [SET \x00\xff]", "",
	} {
		f.Add(text, "'secret'")
	}
	const repeats = ", with args beginning with:"
	f.Fuzz(func(t *testing.T, text, secret string) {
		text, _, _ = strings.Cut(text, repeats)
		err := explain("acquire", replyError(text))
		require.NotEqual(t, errors.Is(err, store.ErrUnreachable), errors.Is(err, store.ErrMisconfigured))
		require.Equal(t, err.Error(), explain("acquire", replyError(text+repeats+secret)).Error())
		code, _, _ := strings.Cut(text, " ")
		if passing := "BUSY LOADING READONLY CLUSTERDOWN MASTERDOWN TRYAGAIN NOREPLICAS OOM"; code == text && code != "" && slices.Contains(strings.Fields(passing), code) {
			require.ErrorIs(t, err, store.ErrUnreachable)
		}
	})
}

// FuzzLeaseReply: whatever stands in a reply, it is read as what it is, or refused as no usable
// answer.
func FuzzLeaseReply(f *testing.F) {
	for _, line := range []string{
		"", "won", "won 1 2 3 4 5 - - - - =me", "held 1790000000000 7 30000 29000 0 abcdef lease - - =other one", "free 1 0 0 0 0 - - - - -",
		"kept 1 2 3 9223372036854775807 5 - - - - =me", "lost -1 -2 -3 -9223372036854775808 -5 - foreign heir 5:b =", "stolen 1 2 3 4 5 - - - - =me",
		"won 1 2 3 4 five - - - - =me", "won  2 3 4 5 - - - - =me", "done 99999999999999999999 2 3 4 5 - - ready 7:b -", "won 1 2 3 4 5 - - - - =\x00\n\xff",
		"held 1 2 3 4 5 - lease - - me",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		reply, err := parseLeaseReply(line)
		if err != nil {
			require.ErrorIs(t, err, store.ErrUnreachable)
			require.Equal(t, store.LeaseReply{}, reply)
			require.Less(t, len(err.Error()), 1000)
			return
		}
		require.Contains(t, verdicts, strings.Fields(line)[0])
		require.True(t, strings.HasSuffix(line, reply.Holder) || reply.Holder == "")
		const century = 100 * 366 * 24 * time.Hour
		require.True(t, -century <= reply.TTL && reply.TTL <= century)
		require.True(t, -century <= reply.Wait && reply.Wait <= century)
	})
}

// FuzzBeatReply: whatever a script answers, it is a reply or an error.
func FuzzBeatReply(f *testing.F) {
	f.Add("kept 1 2 - 0 1")
	f.Add("joined 1 2 a 1 100001")
	f.Fuzz(func(t *testing.T, line string) {
		if reply, err := parseBeatReply(line); err == nil {
			require.Positive(t, reply.Now)
			require.GreaterOrEqual(t, reply.Started, int64(0))
			require.True(t, 0 <= reply.Instances && reply.Instances <= store.MaxInstances)
		} else {
			require.ErrorIs(t, err, store.ErrUnreachable)
			require.Less(t, len(err.Error()), 500)
		}
	})
}
