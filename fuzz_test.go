package tenure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/store"
)

// The other fuzz targets stand beside what they fuzz; `make fuzz` runs all of them. What they have
// found lies in testdata/fuzz.

// FuzzOptions: options that are accepted keep every relation that the promises rest on; those that
// are refused say which field.
func FuzzOptions(f *testing.F) {
	f.Add("waf:cluster", "a", "role", "", int64(30*time.Second), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0))
	f.Add("", "a", "", "", int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0))
	f.Add("{x}", "h-1", "", "leader:x", int64(300*time.Millisecond), int64(100*time.Millisecond), int64(-1), int64(1), int64(1<<62), int64(-1<<63), int64(1), int64(1<<63-1), int64(7))
	f.Fuzz(func(t *testing.T, namespace, id, role, key string, ttl, renew, retry, drift, margin, hold, beat, drifted, down int64) {
		opts := Options{
			Namespace: namespace, InstanceID: id,
			Election: ElectionOptions{
				Role: role, LeaderKey: key, LeaseTTL: time.Duration(ttl), RenewInterval: time.Duration(renew), RetryInterval: time.Duration(retry),
				Safety: SafetyOptions{DriftMargin: time.Duration(drift), FailoverMargin: time.Duration(margin), HoldOff: time.Duration(hold)},
			},
			Registry: RegistryOptions{HeartbeatInterval: time.Duration(beat), DriftedAfter: time.Duration(drifted), DownAfter: time.Duration(down)},
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
		require.Less(t, e.Safety.FailoverMargin+e.RenewInterval+timing.Attempt(), e.LeaseTTL)
		require.Positive(t, timing.Life()-timing.Guard())
		require.Positive(t, e.RetryInterval)
		if r := done.Registry; r.HeartbeatInterval > 0 {
			require.True(t, r.DriftedAfter >= 2*r.HeartbeatInterval && r.DownAfter > r.DriftedAfter && r.HeartbeatTTL >= 2*r.HeartbeatInterval)
		}
		require.Regexp(t, store.IDPattern, done.InstanceID)
		require.NotContains(t, done.Namespace, "*")
	})
}

// FuzzSchedule: a cron specification is refused, or its slots increase strictly from wherever they
// are asked for.
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

// FuzzTask: a task that is accepted has a schedule that moves on and policies within bounds; one
// that is not says which field.
func FuzzTask(f *testing.F) {
	f.Add("cleanup", "@daily", int64(0), int64(0), int64(0), int64(0), int64(0), 0, 0, uint8(0))
	f.Add("a.b-c_d", "", int64(100*time.Millisecond), int64(time.Second), int64(time.Hour), int64(time.Millisecond), int64(time.Minute), 1000, 1000, uint8(4))
	f.Add("bad name", "CRON_TZ=Europe/Berlin 30 2 29 2 *", int64(1), int64(-1), int64(25*time.Hour), int64(1), int64(-1), -1, 1<<40, uint8(255))
	f.Add("x", "0 0 30 2 *", int64(1<<63-1), int64(1<<63-1), int64(-1<<63), int64(1<<63-1), int64(1<<63-1), 1001, -1, uint8(1))
	run := func(context.Context, TaskRun) error { return nil }
	f.Fuzz(func(t *testing.T, name, spec string, period, timeout, jitter, backoff, maxBackoff int64, attempts, catchUp int, policies uint8) {
		task := Task{
			Name: name, Schedule: Every(time.Duration(period)), Run: run, Timeout: time.Duration(timeout), Jitter: time.Duration(jitter), MaxCatchUp: catchUp,
			Overlap: OverlapPolicy(policies & 3), Missed: MissedPolicy(policies >> 2 & 3), Abandoned: AbandonedPolicy(policies >> 4 & 3),
			Retry: RetryPolicy{Attempts: attempts, Backoff: time.Duration(backoff), MaxBackoff: time.Duration(maxBackoff)},
		}
		if spec != "" {
			task.Schedule = Cron(spec)
		}
		s := newTasks(memstore.NewTasks(readClock), newEventBus("x"), "x")
		if err := s.Register(task); err != nil {
			require.ErrorIs(t, err, ErrMisconfigured)
			require.Empty(t, s.known())
			var problem *OptionError
			require.True(t, errors.As(err, &problem) && strings.HasPrefix(problem.Field, "Task.") && problem.Reason != "")
			return
		}
		require.ErrorIs(t, s.Register(task), ErrMisconfigured, "a name is taken once")
		r := s.known()[0]
		slot := time.UnixMilli(1_700_000_000_000).UTC()
		for range 5 {
			next := r.Schedule.Next(slot)
			if next.IsZero() {
				break
			}
			require.True(t, next.After(slot), "%v, then %v", slot, next)
			delay := delayOf(r.Task, next.UnixMilli())
			require.True(t, delay == 0 || 0 < delay && delay < r.Jitter, "%v of %v", delay, r.Jitter)
			slot = next
		}
		require.True(t, 1 <= r.Retry.Attempts && r.Retry.Attempts <= 1000)
		require.True(t, time.Millisecond <= r.Retry.Backoff && r.Retry.Backoff <= r.Retry.MaxBackoff && r.Retry.MaxBackoff <= maxPeriod)
		require.True(t, r.MaxCatchUp > 0 && r.Timeout >= 0)
	})
}

// FuzzKeys: names that are accepted lead to keys that no two things share, and on a cluster to one
// slot.
func FuzzKeys(f *testing.F) {
	f.Add("{waf}:a", "leader", "a", "b", "x:heartbeat", "x")
	f.Add("tenure", "", "runs", "x.runs", "a", "a:metrics")
	f.Add("a:{b}:c", "x", "term", "sinces", "instance", "leader:x")
	f.Fuzz(func(t *testing.T, namespace, role, task, otherTask, id, otherID string) {
		var c checker
		c.namespace("Namespace", namespace)
		ElectionOptions{Role: role}.complete(&c, "")
		accepted := store.RolePattern.MatchString(task) && store.RolePattern.MatchString(otherTask) && store.IDPattern.MatchString(id) && store.IDPattern.MatchString(otherID)
		if c.err() != nil || !accepted || task == otherTask || id == otherID {
			return
		}
		k := store.Keys(namespace)
		all := []string{
			k.Instances(), k.Beats(), k.Hold(), k.Tasks(), k.Heartbeat(id), k.Heartbeat(otherID), k.Task(task), k.Task(otherTask),
			k.Runs(task), k.Runs(otherTask), k.Lease(""), k.Lease("") + ":since", k.Lease("") + ":term",
		}
		if role != "" {
			all = append(all, k.Lease(role), k.Lease(role)+":since", k.Lease(role)+":term")
		}
		hashed, seen := map[string]bool{}, map[string]bool{}
		for _, key := range all {
			require.False(t, seen[key], key)
			seen[key] = true
			hashed[store.HashTag(key)] = true
		}
		if store.TagPattern.MatchString(namespace) {
			require.Len(t, hashed, 1)
		}
	})
}
