package tenure

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
)

// The other fuzz targets stand beside what they fuzz; `make fuzz` runs all of them. What they have found lies in testdata/fuzz.

// FuzzOptions: options that are accepted keep every relation that the promises rest on; those that are refused say which field.
func FuzzOptions(f *testing.F) {
	f.Add("waf:cluster", "a", "role", "", int64(30*time.Second), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0))
	f.Add("{x}", "h-1", "", "leader:x", int64(300*time.Millisecond), int64(100*time.Millisecond), int64(-1), int64(1), int64(1<<62), int64(-1<<63), int64(1), int64(1<<63-1), int64(7))
	f.Fuzz(func(t *testing.T, namespace, id, role, key string, ttl, renew, retry, drift, margin, hold, beat, drifted, down int64) {
		opts := Options{
			Namespace: namespace, InstanceID: id,
			Election: ElectionOptions{
				Role: role, LeaderKey: key, LeaseTTL: time.Duration(ttl), RenewInterval: time.Duration(renew), RetryInterval: time.Duration(retry),
				DriftMargin: time.Duration(drift), FailoverMargin: time.Duration(margin), HoldOff: time.Duration(hold),
			},
			Registry: RegistryOptions{BeatInterval: time.Duration(beat), DriftedAfter: time.Duration(drifted), DownAfter: time.Duration(down)},
		}
		var c checker
		done := opts.complete(&c)
		if err := c.err(); err != nil {
			var problem *OptionError
			require.True(t, errors.As(err, &problem) && problem.Field != "" && problem.Reason != "")
			require.ErrorIs(t, err, ErrMisconfigured)
			require.NotContains(t, err.Error(), "\x1b")
			return
		}
		e, timing := done.Election, done.Election.timing()
		require.True(t, e.LeaseTTL >= minLeaseTTL && e.LeaseTTL <= lease.MaxTTL && e.LeaseTTL%time.Millisecond == 0)
		require.LessOrEqual(t, e.RenewInterval/10*11, (timing.Life()-timing.Guard())/2)
		require.Less(t, e.FailoverMargin+e.RenewInterval+timing.Attempt(), e.LeaseTTL)
		require.Positive(t, timing.Life()-timing.Guard())
		require.Positive(t, e.RetryInterval)
		if r := done.Registry; r.BeatInterval > 0 {
			require.True(t, r.DriftedAfter >= 2*r.BeatInterval && r.DownAfter > r.DriftedAfter && r.BeatTTL >= 2*r.BeatInterval)
		}
		require.Regexp(t, idPattern, done.InstanceID)
		require.NotContains(t, done.Namespace, "*")
	})
}

// FuzzHint: whatever is published, it is a hint of a few bytes or nothing, and never the one that only the client may give.
func FuzzHint(f *testing.F) {
	for _, payload := range []string{
		`{"type":"vacant","role":""}`, `{"type":"roll-call","role":"x"}`, `{"type":"connected"}`, `{"type":1}`, `[]`, `null`, "\x00", `{"type":"vacant","role":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		f.Add(payload)
	}
	f.Fuzz(func(t *testing.T, payload string) {
		h, ok := parseHint(payload)
		if ok && (len(payload) > maxHintBytes || h.Type == hintConnected || h.all) {
			t.Errorf("%q goes for the hint %+v", payload, h)
		}
	})
}

// FuzzRegistryReplies: lists that the registry scripts may have sent give bounded numbers, and no entry that was not there.
func FuzzRegistryReplies(f *testing.F) {
	f.Add("0|1700000000000|0|a|1700000000000|{}")
	f.Add("1700000000000|2|2||0|||a|b")
	f.Add("|||")
	f.Fuzz(func(t *testing.T, text string) {
		reply := strings.Split(text, "|")
		if page, err := parseScanReply(reply); err == nil {
			require.Len(t, page.entries, len(reply)/3-1)
			for _, e := range page.entries {
				require.True(t, e.last >= 0 && e.last <= 1<<53)
			}
		} else {
			require.ErrorIs(t, err, ErrUnreachable)
			require.Less(t, len(err.Error()), 500)
		}
		if look, err := parseLookReply(reply); err == nil {
			require.Positive(t, look.now)
			require.Len(t, look.ids, len(reply)-7)
			require.True(t, look.down >= 0 && look.beats >= 0 && look.skip >= 0)
		} else {
			require.ErrorIs(t, err, ErrUnreachable)
		}
	})
}

// FuzzSchedule: a cron specification is refused, or its slots increase strictly from wherever they are asked for.
func FuzzSchedule(f *testing.F) {
	for _, spec := range []string{"0 0 * * *", "*/5 * * * *", "@hourly", "CRON_TZ=Europe/Berlin 30 2 * * *", "0 0 30 2 *", "", "* * * * * *", "TZ= * * * * *"} {
		f.Add(spec, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, spec string, from int64) {
		at := time.Unix(from%4_000_000_000, 0)
		schedule := Cron(spec)
		for range 3 {
			next := schedule.Next(at)
			if next.IsZero() {
				return // refused, or it has ended
			}
			require.True(t, next.After(at), "%q after %v gives %v", spec, at, next)
			at = next
		}
	})
}
