package redisstore

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/memstore"
	"github.com/tenure-go/tenure/internal/proof/redistest"
	"github.com/tenure-go/tenure/internal/proof/simnet"
	"github.com/tenure-go/tenure/internal/store"
)

// onTaskStores runs fn on every store of tasks there is.
func onTaskStores(t *testing.T, fn func(t *testing.T, store store.Tasks)) {
	t.Run("memory", func(t *testing.T) { fn(t, memstore.NewTasks(clock)) })
	onTaskRedis(t, func(t *testing.T, store *Store) { fn(t, store) })
}

// onTaskRedis runs fn on miniredis and on a redis-server.
func onTaskRedis(t *testing.T, fn func(t *testing.T, store *Store)) {
	t.Helper()
	onClusters(t, "tasks", func(t *testing.T, c *cluster) { fn(t, c.store) })
}

// taskTeller asks a store and writes down what it says, with times relative to the first answer.
type taskTeller struct {
	*testing.T
	store store.Tasks
	base  int64
	told  []string
}

func (s *taskTeller) tell(what string, reply store.TaskReply, err error) store.TaskRecord {
	s.Helper()
	require.NoError(s, err, what)
	if s.base == 0 {
		s.base = reply.Now
	}
	r := reply.Record
	relative := func(ms int64) string {
		switch {
		case ms == 0:
			return "-"
		case max(ms-s.base, s.base-ms) < 60_000:
			return "now"
		}
		return (time.Duration(ms-s.base) * time.Millisecond).Round(time.Minute).String()
	}
	due := "-"
	if r.Due != "" {
		due = relative(r.Next)
		require.Equal(s, strconv.FormatInt(r.Next, 10), r.Due)
	}
	s.told = append(s.told, fmt.Sprintf("%-27s %-7s | next %s spec %s token %d run %s done %s | %s slot %s %s..%s attempt %d by %d %s | crashes %d failures %d retry %s skipped %d paused %v/%s %s",
		what, reply.Verdict, due, dash(r.Spec), r.Token, dash(r.Run), dash(r.Done), dash(string(r.Status)), relative(r.Scheduled),
		relative(r.Started), relative(r.Finished), r.Attempt, r.RunToken, dash(r.Instance), r.Crashes, r.Failures, relative(r.RetryAt), r.Skipped, r.Paused, dash(r.Pauses), dash(r.Text)))
	return r
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (s *taskTeller) open(token int64) {
	reply, err := s.store.Open(s.Context(), "t", store.TaskOpen{Token: token})
	s.tell(fmt.Sprint("open ", token), reply, err)
}

func (s *taskTeller) plan(p store.TaskPlan) {
	reply, err := s.store.Plan(s.Context(), "t", p)
	s.tell(fmt.Sprint("plan ", p.Token, " ", p.Spec), reply, err)
}

func (s *taskTeller) claim(c store.TaskClaim) {
	reply, err := s.store.Claim(s.Context(), "t", c)
	s.tell(fmt.Sprint("claim ", c.Kind, " ", c.Token, " ", c.Run), reply, err)
}

func (s *taskTeller) retry(r store.TaskRetry) {
	reply, err := s.store.Retry(s.Context(), "t", r)
	s.tell(fmt.Sprint("retry ", r.Token, " ", r.Run), reply, err)
}

func (s *taskTeller) finish(f store.TaskFinish) {
	reply, err := s.store.Finish(s.Context(), "t", f)
	s.tell(fmt.Sprint("finish ", f.Status, " ", f.Token, " ", f.Run), reply, err)
}

// TestTaskScripts tells one long story to every store; all of them must answer the same.
func TestTaskScripts(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		s := &taskTeller{T: t, store: db}
		ctx := t.Context()
		reply, err := db.Record(ctx, "t")
		s.tell("read", reply, err)
		reply, err = db.Pause(ctx, "t", true, "", "")
		s.tell("pause", reply, err)
		s.plan(store.TaskPlan{Token: 100, Next: 1, Spec: "A"})
		s.finish(store.TaskFinish{Token: 100, Run: "r0", Status: store.RunSucceeded})
		s.open(100)
		s.open(100)
		finished := func() string {
			reply, err := db.Record(ctx, "t")
			require.NoError(t, err)
			return strconv.FormatInt(reply.Record.Finished, 10)
		}
		at := func(hours int64) string { return strconv.FormatInt(s.base+hours*hour, 10) }
		slot := func(token int64, run string, hours, next int64) store.TaskClaim {
			return store.TaskClaim{Token: token, Run: run, Kind: store.ClaimSlot, Expect: at(hours), Slot: s.base + hours*hour, Next: s.base + next*hour,
				Spec: "A", Instance: "i" + run, Skipped: 1, Attempt: 1}
		}
		s.claim(slot(100, "r1", -1, 1))
		s.plan(store.TaskPlan{Token: 100, Next: s.base + hour, Spec: "A", Skipped: 2})
		s.plan(store.TaskPlan{Token: 100, Next: s.base + hour, Spec: "A", Skipped: 2})
		s.plan(store.TaskPlan{Token: 100, Next: s.base + 2*hour, Spec: "A"})
		s.claim(slot(100, "r1", 1, 2))
		s.plan(store.TaskPlan{Token: 100, Expect: at(1), Next: s.base - hour, Spec: "A"})
		s.claim(store.TaskClaim{Token: 100, Run: "r1", Kind: store.ClaimSlot, Expect: at(-1), Slot: s.base - hour, Next: s.base, Spec: "B"})
		s.claim(slot(100, "r1", -1, 1))
		s.claim(slot(100, "r1", -1, 1))
		s.claim(slot(100, "r2", 1, 2))
		s.claim(store.TaskClaim{Token: 100, Run: "r2", Kind: store.ClaimExtra, Expect: "0"})
		s.finish(store.TaskFinish{Token: 100, Run: "r2", Status: store.RunSucceeded})
		s.retry(store.TaskRetry{Token: 100, Run: "r1", Attempt: 2, Failures: 1, In: 2 * time.Hour})
		s.retry(store.TaskRetry{Token: 100, Run: "r1", Attempt: 2, Failures: 1, In: 3 * time.Hour}) // the same
		s.retry(store.TaskRetry{Token: 100, Run: "r1", Attempt: 3, Failures: 2, In: 2 * time.Hour})
		s.retry(store.TaskRetry{Token: 100, Run: "r1", Attempt: 2, Failures: 1, In: time.Hour}) // a late copy
		s.retry(store.TaskRetry{Token: 100, Run: "r0", Attempt: 3, Failures: 2, In: time.Hour})
		s.retry(store.TaskRetry{Token: 99, Run: "r1", Attempt: 3, Failures: 2, In: time.Hour})
		s.finish(store.TaskFinish{Token: 100, Run: "r1", Status: store.RunFailed, Text: "too bad", Attempt: 3, Failures: 3})
		s.finish(store.TaskFinish{Token: 100, Run: "r1", Status: store.RunSucceeded})
		s.claim(slot(100, "r1", 1, 2))
		s.claim(slot(100, "r2", -1, 1)) // the slot that has run

		// An older leader changes nothing.
		s.open(99)
		s.plan(store.TaskPlan{Token: 99, Expect: at(1), Next: s.base - hour, Spec: "A"})
		s.claim(store.TaskClaim{Token: 99, Run: "r2", Kind: store.ClaimExtra, Expect: "0"})
		s.finish(store.TaskFinish{Token: 99, Run: "r1", Status: store.RunSucceeded})

		// A newer one has to open the record first. It finds a run, and another one dies of it.
		s.plan(store.TaskPlan{Token: 100, Expect: at(1), Next: s.base - 2*hour, Spec: "A"})
		s.claim(slot(100, "r2", -2, -1))
		s.claim(store.TaskClaim{Token: 200, Run: "r3", Kind: store.ClaimAgain, Expect: "r2"})
		s.plan(store.TaskPlan{Token: 200, Expect: at(-1), Next: s.base, Spec: "A"})
		s.open(200)
		s.finish(store.TaskFinish{Token: 100, Run: "r2", Status: store.RunSucceeded})
		s.claim(slot(200, "r3", -1, 1))
		again := func(token int64, run, left string, attempt int) store.TaskClaim {
			return store.TaskClaim{Token: token, Run: run, Kind: store.ClaimAgain, Expect: left, Instance: "i" + run, Attempt: attempt}
		}
		s.claim(again(200, "r3", "r1", 2))
		s.claim(again(200, "r3", "r2", 2))
		s.claim(again(200, "r3", "r2", 2))
		s.open(300)
		s.claim(again(300, "r4", "r3", 3))
		s.finish(store.TaskFinish{Token: 300, Run: "r4", Status: store.RunInterrupted, Text: "the end", Attempt: 3, Failures: 1, RetryIn: time.Hour})
		s.claim(again(300, "r5", "r4", 4))
		s.finish(store.TaskFinish{Token: 300, Run: "r5", Status: store.RunReturned})
		s.claim(again(300, "r5", "r4", 4)) // late
		s.claim(again(300, "r6", "r5", 4))
		s.finish(store.TaskFinish{Token: 300, Run: "r9", Status: store.RunReturned}) // another one is on: it stays
		s.finish(store.TaskFinish{Token: 300, Run: "r6", Status: store.RunAbandoned})

		// A claim that was given back before it came.
		s.finish(store.TaskFinish{Token: 300, Run: "r7", Status: store.RunReturned})
		s.claim(slot(300, "r7", -1, 1))

		reply, err = db.Pause(ctx, "t", true, "", "")
		s.tell("pause", reply, err)
		s.claim(slot(300, "r8", -1, 1))
		s.claim(store.TaskClaim{Token: 300, Run: "r8", Kind: store.ClaimExtra, Expect: finished()})
		s.claim(again(300, "r8", "r7", 4))
		reply, err = db.Pause(ctx, "t", false, "", "")
		s.tell("resume", reply, err)
		reply, err = db.Pause(ctx, "t", false, "1", "")
		s.tell("resume", reply, err)
		s.claim(store.TaskClaim{Token: 300, Run: "r8", Kind: store.ClaimExtra, Expect: "7", Instance: "i8", Attempt: 1})
		s.claim(store.TaskClaim{Token: 300, Run: "r8", Kind: store.ClaimExtra, Expect: finished(), Instance: "i8", Attempt: 1})
		s.finish(store.TaskFinish{Token: 300, Run: "r8", Status: store.RunSucceeded, Attempt: 1})
		reply, err = db.Record(ctx, "t")
		last := s.tell("read", reply, err)

		runs, err := db.Runs(ctx, "t", 10)
		require.NoError(t, err)
		for _, r := range runs {
			require.WithinDuration(t, store.Time(reply.Now), r.Started, time.Minute)
			require.WithinDuration(t, store.Time(reply.Now), r.Finished, time.Minute)
			s.told = append(s.told, fmt.Sprintf("run %s %s %s %s attempt %d by %d %s %q", "t", r.Run, r.Slot.Sub(store.Time(s.base)).Round(time.Minute),
				r.Status, r.Attempt, r.Token, r.InstanceID, r.Error))
		}
		names, more, err := db.Names(ctx, 10)
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, []string{"t"}, names)
		_, records, problems, err := db.Records(ctx, []string{"t", "other"})
		require.NoError(t, err)
		require.Equal(t, []error{nil, nil}, problems)
		require.Equal(t, []store.TaskRecord{last, {}}, records)

		story, err := os.ReadFile("testdata/task_story.txt")
		require.NoError(t, err)
		lines := strings.Split(strings.TrimSpace(string(story)), "\n")
		for i, told := range s.told {
			require.Equal(t, lines[min(i, len(lines)-1)], told, "line %d", i+1)
		}
		require.Len(t, s.told, len(lines))
	})
}

// TestTaskScriptsRefuse: what tenure cannot have written is refused with a fix, and left as it is.
func TestTaskScriptsRefuse(t *testing.T) {
	onTaskRedis(t, func(t *testing.T, db *Store) {
		ctx := t.Context()
		key, rdb := db.keys.Task("t"), db.rdb
		later := strconv.FormatInt(time.Now().Add(200*365*24*time.Hour).UnixMilli(), 10)
		for _, bad := range [][2]string{
			{"token", "x"}, {"token", "-1"}, {"token", "0"}, {"token", "1e3"}, {"token", "99999999999999999999"}, {"token", later},
			{"next", "soon"}, {"next", "-5"}, {"next", " 1"}, {"next", "12345678901234567"}, {"next", "00"}, {"next", later},
		} {
			require.NoError(t, rdb.Del(ctx, key).Err())
			require.NoError(t, rdb.HSet(ctx, key, bad[0], bad[1], "foreign", "yes").Err())
			before := rdb.HGetAll(ctx, key).Val()
			for name, call := range map[string]func() (store.TaskReply, error){
				"open": func() (store.TaskReply, error) { return db.Open(ctx, "t", store.TaskOpen{Token: 5}) },
				"plan": func() (store.TaskReply, error) { return db.Plan(ctx, "t", store.TaskPlan{Token: 5, Next: 1}) },
				"claim": func() (store.TaskReply, error) {
					return db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r", Kind: store.ClaimExtra, Expect: "0"})
				},
				"retry":  func() (store.TaskReply, error) { return db.Retry(ctx, "t", store.TaskRetry{Token: 5, Run: "r"}) },
				"finish": func() (store.TaskReply, error) { return db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "r"}) },
				"read":   func() (store.TaskReply, error) { return db.Record(ctx, "t") },
				"pause":  func() (store.TaskReply, error) { return db.Pause(ctx, "t", true, "", "") },
			} {
				_, err := call()
				require.ErrorIs(t, err, store.ErrMisconfigured, "%s %v", name, bad)
				require.ErrorContains(t, err, key)
				require.ErrorContains(t, err, "fix: ")
			}
			require.Equal(t, before, rdb.HGetAll(ctx, key).Val())
			_, _, problems, err := db.Records(ctx, []string{"t"})
			require.NoError(t, err)
			if bad[1] != later {
				require.ErrorIs(t, problems[0], store.ErrMisconfigured, "%v", bad)
			}
		}
		require.Empty(t, rdb.SMembers(ctx, db.keys.Tasks()).Val())

		// The other fields count as absent.
		require.NoError(t, rdb.Del(ctx, key).Err())
		require.NoError(t, rdb.HSet(ctx, key, "attempt", "many", "skipped", "-4", "crashes", "1e9", "last_started", "never", "error", strings.Repeat("ä", 4000)).Err())
		reply, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
		require.NoError(t, err)
		require.Zero(t, reply.Record.Attempt+reply.Record.Crashes+int(reply.Record.Skipped+reply.Record.Started))
		require.Equal(t, strings.Repeat("ä", store.MaxTaskText/2), reply.Record.Text)

		// Keys of another type.
		require.NoError(t, rdb.Set(ctx, db.keys.Task("s"), "mine", 0).Err())
		_, err = db.Open(ctx, "s", store.TaskOpen{Token: 5})
		require.ErrorIs(t, err, store.ErrMisconfigured)
		require.ErrorContains(t, err, db.keys.Task("s"))
		_, _, problems, err := db.Records(ctx, []string{"t", "s"})
		require.NoError(t, err)
		require.NoError(t, problems[0])
		require.ErrorIs(t, problems[1], store.ErrMisconfigured)
		require.Equal(t, "mine", rdb.Get(ctx, db.keys.Task("s")).Val())
		require.NoError(t, rdb.Set(ctx, db.keys.Runs("t"), "mine", 0).Err())
		_, err = db.Runs(ctx, "t", 5)
		require.ErrorIs(t, err, store.ErrMisconfigured)

		// The end of a run is recorded even so; the error is reported once.
		_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r", Kind: store.ClaimExtra, Expect: "0"})
		require.NoError(t, err)
		_, err = db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "r", Status: store.RunSucceeded})
		require.ErrorIs(t, err, store.ErrMisconfigured)
		require.ErrorContains(t, err, db.keys.Runs("t"))
		reply, err = db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "r", Status: store.RunSucceeded})
		require.NoError(t, err)
		require.Equal(t, store.TaskDone, reply.Verdict)
		require.Equal(t, store.RunSucceeded, reply.Record.Status)

		require.NoError(t, rdb.Del(ctx, db.keys.Tasks()).Err())
		require.NoError(t, rdb.Set(ctx, db.keys.Tasks(), "mine", 0).Err())
		_, _, err = db.Names(ctx, 5)
		require.ErrorIs(t, err, store.ErrMisconfigured)
	})
}

// TestForgedTextsOfATaskCountAsAbsent: what was read is what the next request is compared with,
// else the two never agree.
func TestForgedTextsOfATaskCountAsAbsent(t *testing.T) {
	onTaskRedis(t, func(t *testing.T, db *Store) {
		ctx := t.Context()
		key := db.keys.Task("t")
		for _, forged := range []string{strings.Repeat("1", 2000), "x\xff", "s1 \x00", "ä"} {
			for _, field := range comparedFields {
				require.NoError(t, db.rdb.Del(ctx, key).Err())
				require.NoError(t, db.rdb.HSet(ctx, key, "next", "1000", "spec", "s1", "status", "running").Err())
				require.NoError(t, db.rdb.HSet(ctx, key, field, forged).Err())
				reply, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
				require.NoError(t, err)
				r := reply.Record
				require.Empty(t, r.Run+r.Done+r.Pauses, "%s %.9q", field, forged)
				_, records, _, err := db.Records(ctx, []string{"t"})
				require.NoError(t, err)
				require.Equal(t, r, records[0])
				reply, err = db.Pause(ctx, "t", false, r.Pauses, "")
				require.NoError(t, err)
				require.Equal(t, store.TaskOK, reply.Verdict, "%s %.9q", field, forged)
				reply, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r", Kind: store.ClaimSlot, Expect: r.Due, Slot: r.Next, Next: 2000, Spec: r.Spec, Pauses: reply.Record.Pauses})
				require.NoError(t, err)
				require.Equal(t, store.TaskClaimed, reply.Verdict, "%s %.9q", field, forged)
			}
		}
	})
}

// TestTaskVerdictOfAnotherScript: a verdict that a script does not give is no answer, and never a
// permission to run.
func TestTaskVerdictOfAnotherScript(t *testing.T) {
	ctx := t.Context()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	hook := &simnet.Liar{}
	client.AddHook(hook)
	db := openStore(client, "tasks")
	_, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
	require.NoError(t, err)
	claim := func() (store.TaskReply, error) {
		return db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r", Kind: store.ClaimExtra, Expect: "0"})
	}
	asks := map[string]func() (store.TaskReply, error){
		"open_task":   func() (store.TaskReply, error) { return db.Open(ctx, "t", store.TaskOpen{Token: 5}) },
		"plan_task":   func() (store.TaskReply, error) { return db.Plan(ctx, "t", store.TaskPlan{Token: 5, Next: 1}) },
		"claim_task":  claim,
		"retry_task":  func() (store.TaskReply, error) { return db.Retry(ctx, "t", store.TaskRetry{Token: 5, Run: "r"}) },
		"finish_task": func() (store.TaskReply, error) { return db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "x"}) },
		"read_task":   func() (store.TaskReply, error) { return db.Record(ctx, "t") },
		"pause_task":  func() (store.TaskReply, error) { return db.Pause(ctx, "t", true, "", "") },
		"forget_task": func() (store.TaskReply, error) { return db.Forget(ctx, "t", store.TaskForget{Lease: "tasks:leader"}) },
		"cancel_task": func() (store.TaskReply, error) { return db.Cancel(ctx, "t", store.TaskCancel{Run: "r"}) },
		"trigger_task": func() (store.TaskReply, error) {
			return db.Trigger(ctx, "t", store.TaskTrigger{ID: "t1", NotAfter: 1 << 50, For: time.Hour})
		},
	}
	_, err = claim()
	require.NoError(t, err)
	for script, own := range taskVerdicts {
		for _, verdict := range []string{
			store.TaskOK, store.TaskClaimed, store.TaskEarly, store.TaskPaused, store.TaskMoved, store.TaskDone, store.TaskGone, store.TaskFenced, store.TaskForeign, store.TaskAbsent, store.TaskExpired, store.TaskWaiting, store.TaskStale, "nonsense", " ",
		} {
			hook.Lie(verdict, "")
			reply, err := asks[script]()
			if script == "finish_task" && verdict == store.TaskDone {
				require.ErrorIs(t, err, store.ErrUnreachable, "the record says nothing of this run")
			} else if slices.Contains(own, verdict) {
				require.NoError(t, err, "%s %s", script, verdict)
				require.Equal(t, verdict, reply.Verdict)
			} else {
				require.ErrorIs(t, err, store.ErrUnreachable, "%s %s", script, verdict)
				require.ErrorContains(t, err, verdict)
			}
		}
	}
	require.Len(t, asks, len(taskVerdicts))
	hook.Lie("", "another")
	_, err = claim()
	require.ErrorIs(t, err, store.ErrUnreachable)
	hook.Lie(store.TaskOK, "")
	_, err = db.Open(ctx, "t", store.TaskOpen{Token: 4})
	require.ErrorIs(t, err, store.ErrUnreachable, "the record has another token")
	hook.Lie("", "")
	_, err = claim()
	require.NoError(t, err)
}

// TestShortHistoryTakesOneBlock: whatever the runs end with, the history of a task takes some
// kilobytes, and has the last runs as they were.
func TestShortHistoryTakesOneBlock(t *testing.T) {
	for name, text := range map[string]string{"no error": "", "errors": "dial tcp 10.0.0.1:5432: connect: connection refused", "long errors": strings.Repeat("x€", 50_000)} {
		t.Run(name, func(t *testing.T) {
			onTaskStores(t, func(t *testing.T, db store.Tasks) {
				ctx := t.Context()
				reply, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
				require.NoError(t, err)
				const most = 150
				for i := range most {
					run := fmt.Sprintf("run-of-a-task-%012d", i)
					_, err = db.Claim(ctx, "t", store.TaskClaim{
						Token: 5, Run: run, Kind: store.ClaimExtra, Expect: strconv.FormatInt(reply.Record.Finished, 10), Attempt: 1, Instance: "shop-7d4f9c6b5d-x2v8q",
					})
					require.NoError(t, err)
					reply, err = db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: run, Status: store.RunFailed, Text: store.TaskText(text)})
					require.NoError(t, err)
					require.Equal(t, store.TaskDone, reply.Verdict)
					runs, err := db.Runs(ctx, "t", 1000)
					require.NoError(t, err)
					require.Len(t, runs, min(i+1, store.DefaultHistory))
					for j, r := range runs {
						require.Equal(t, fmt.Sprintf("run-of-a-task-%012d", i-j), r.Run)
						require.Equal(t, store.RunFailed, r.Status)
						require.LessOrEqual(t, len(r.Error), store.MaxRunError)
						require.Equal(t, len(text) > store.MaxRunError, strings.HasSuffix(r.Error, "…"))
						require.True(t, strings.HasPrefix(text, strings.TrimSuffix(r.Error, "…")))
					}
					if db, ok := db.(*Store); ok {
						if usage, err := db.rdb.MemoryUsage(ctx, db.keys.Runs("t"), 0).Result(); err == nil { // miniredis has none
							require.LessOrEqual(t, usage, int64(8<<10))
						}
					}
				}
			})
		})
	}
}

// TestTaskHistoryIsCapped: the stream does not grow for ever, and foreign entries in it do no harm.
func TestTaskHistoryIsCapped(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		_, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
		require.NoError(t, err)
		ended := int64(0)
		for i := range 400 {
			run := fmt.Sprint("r", i)
			_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: run, Kind: store.ClaimExtra, Expect: strconv.FormatInt(ended, 10), Attempt: 1})
			require.NoError(t, err)
			reply, err := db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: run, Status: store.RunSucceeded})
			ended = reply.Record.Finished
			require.NoError(t, err)
		}
		runs, err := db.Runs(ctx, "t", 5000)
		require.NoError(t, err)
		require.Len(t, runs, store.DefaultHistory)
		require.Equal(t, "r399", runs[0].Run)
		if db, ok := db.(*Store); ok {
			if usage, err := db.rdb.MemoryUsage(ctx, db.keys.Runs("t"), 0).Result(); err == nil { // miniredis has none
				require.LessOrEqual(t, usage, int64(8<<10))
			}
		}
		for i, c := range []struct {
			keep   store.Keep
			want   int
			newest string
		}{{102, store.DefaultHistory + 1, "k0"}, {3, 3, "k1"}, {-1, 3, "k1"}, {1, 1, "k3"}} {
			run := fmt.Sprint("k", i)
			_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: run, Kind: store.ClaimExtra, Expect: strconv.FormatInt(ended, 10), Attempt: 1, Keep: c.keep})
			require.NoError(t, err)
			reply, err := db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: run, Status: store.RunSucceeded, Keep: c.keep})
			require.NoError(t, err)
			ended = reply.Record.Finished
			runs, err = db.Runs(ctx, "t", 5000)
			require.NoError(t, err)
			require.Len(t, runs, c.want, "%d", c.keep)
			require.Equal(t, c.newest, runs[0].Run)
		}
		if db, ok := db.(*Store); ok {
			add := &redis.XAddArgs{Stream: db.keys.Runs("t"), Values: []any{"slot", "x", "finished", strings.Repeat("9", 15), "error", strings.Repeat("x", 1<<20)}}
			require.NoError(t, db.rdb.XAdd(ctx, add).Err())
			runs, err = db.Runs(ctx, "t", 1)
			require.NoError(t, err)
			require.Equal(t, []store.Run{{Error: strings.Repeat("x", store.MaxTaskText)}}, runs)
		}
	})
}

// TestTaskIndexIsCapped: what else somebody has put into the index costs a bounded time and shows
// nothing.
func TestTaskIndexIsCapped(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		for i := range 30 {
			_, err := db.Open(ctx, fmt.Sprint("t", i), store.TaskOpen{Token: 5})
			require.NoError(t, err)
		}
		names, more, err := db.Names(ctx, 20)
		require.NoError(t, err)
		require.True(t, more)
		require.Len(t, names, 20)
		if store, ok := db.(*Store); ok {
			require.NoError(t, store.rdb.SAdd(ctx, store.keys.Tasks(), "", "no name", "\x1b[1m", "{}", strings.Repeat("x", 129)).Err())
		}
		names, more, err = db.Names(ctx, 100)
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, names, 30)
	})
}

// TestTaskFinishOnFullRedis: a run that has ended can say so when Redis takes no more data, a claim
// cannot.
func TestTaskFinishOnFullRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	client := server.Client(t)
	db := openStore(client, "tasks")
	ctx := t.Context()
	_, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
	require.NoError(t, err)
	_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r", Kind: store.ClaimExtra, Expect: "0"})
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	reply, err := db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "r", Status: store.RunSucceeded})
	require.NoError(t, err)
	require.Equal(t, store.TaskDone, reply.Verdict)
	ended := strconv.FormatInt(reply.Record.Finished, 10)
	_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "s", Kind: store.ClaimExtra, Expect: ended})
	require.ErrorIs(t, err, store.ErrUnreachable)
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	runs, err := db.Runs(ctx, "t", 5)
	require.NoError(t, err)
	require.Len(t, runs, 1)
}

func FuzzParseTaskRecord(f *testing.F) {
	f.Add("1700000000000", "5", "1", "x")
	f.Add("-", "0", "", "\xff")
	f.Fuzz(func(t *testing.T, next, token, attempt, text string) {
		fields := make([]string, len(taskFields))
		fields[0], fields[2], fields[9], fields[15] = next, token, attempt, text
		r, err := parseTaskRecord(fields)
		if err != nil {
			require.ErrorIs(t, err, store.ErrMisconfigured)
			return
		}
		require.GreaterOrEqual(t, r.Next, int64(0))
		require.GreaterOrEqual(t, r.Attempt, 0)
		require.LessOrEqual(t, len(r.Text), 3*store.MaxTaskText)
		_, err = store.Time(r.Next).MarshalJSON()
		require.NoError(t, err)
	})
}

func TestParseTaskReplyMalformed(t *testing.T) {
	fields := make([]any, 2+len(taskFields))
	lines := strings.Repeat("\n", len(taskFields))
	for _, reply := range []any{
		nil, int64(1), []any{"ok"}, fields, append([]any{"ok", "x"}, fields[2:]...), append([]any{"ok", "0"}, fields[2:]...), append([]any{int64(1), "1"}, fields[2:]...),
		make([]any, 99), "", "ok\n1", "ok\nx" + lines, "\n1" + lines, "ok\n1\n\n" + lines, "ok\n1" + strings.Repeat(lines, 99),
	} {
		_, err := parseTaskReply(reply)
		require.ErrorIs(t, err, store.ErrUnreachable)
	}
	_, err := parseTaskReply(append([]any{"ok", "1"}, fields[2:]...))
	require.NoError(t, err)
	reply, err := parseTaskReply("ok\n1" + lines)
	require.NoError(t, err)
	require.Equal(t, store.TaskReply{Verdict: "ok", Now: 1}, reply)
	fields[4] = "a token"
	_, err = parseTaskReply(append([]any{"ok", "1"}, fields[2:]...))
	require.ErrorIs(t, err, store.ErrMisconfigured)
	_, err = parseTaskRecord(nil)
	require.ErrorIs(t, err, store.ErrUnreachable)
}

// TestResumeOfALostRecord: a task stays paused when its record was lost, but the leader's memory
// does not overrule a resume since then.
func TestResumeOfALostRecord(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		for name, resumed := range map[string]bool{"kept": false, "resumed": true} {
			_, err := db.Open(ctx, name, store.TaskOpen{Token: 5})
			require.NoError(t, err)
			if resumed {
				_, err = db.Pause(ctx, name, false, "", "")
				require.NoError(t, err)
			}
			reply, err := db.Plan(ctx, name, store.TaskPlan{Token: 5, Next: 1, Spec: "s", Paused: true})
			require.NoError(t, err)
			require.Equal(t, !resumed, reply.Record.Paused, name)
		}
	})
}

// TestHistoryThatTakesNoEntry: a stream whose last ID is the last that there can be is a
// misconfiguration, and the run has ended all the same.
func TestHistoryThatTakesNoEntry(t *testing.T) {
	onTaskRedis(t, func(t *testing.T, db *Store) {
		ctx := t.Context()
		_, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
		require.NoError(t, err)
		require.NoError(t, db.rdb.Do(ctx, "XADD", db.keys.Runs("t"), "18446744073709551615-18446744073709551615", "a", "b").Err())
		_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r", Kind: store.ClaimExtra, Expect: "0"})
		require.NoError(t, err)
		_, err = db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "r", Status: store.RunSucceeded})
		require.ErrorIs(t, err, store.ErrMisconfigured)
		require.ErrorContains(t, err, db.keys.Runs("t"))
		reply, err := db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "r", Status: store.RunSucceeded})
		require.NoError(t, err)
		require.Equal(t, store.RunSucceeded, reply.Record.Status)
	})
}

// TestListingsHaveTheScheduleAndTheTime: for people, written when a leader takes the record over or
// says something else than before.
func TestListingsHaveTheScheduleAndTheTime(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		for _, said := range []store.TaskOpen{
			{Token: 5, Schedule: "every 1h0m0s", Jitter: time.Minute}, {Token: 5, Schedule: "cron 0 3 * * *", Jitter: time.Minute},
			{Token: 5, Schedule: "cron 0 3 * * *", Jitter: 0}, {Token: 6, Schedule: "cron 0 3 * * *", Jitter: 0},
		} {
			reply, err := db.Open(ctx, "t", said)
			require.NoError(t, err)
			now, records, problems, err := db.Records(ctx, []string{"t", "none"})
			require.NoError(t, err)
			require.Equal(t, make([]error, 2), problems)
			require.Equal(t, said.Schedule, records[0].Schedule)
			require.Equal(t, said.Jitter.Milliseconds(), records[0].Jitter)
			require.Equal(t, said.Token, records[0].Token)
			require.Empty(t, records[1].Schedule)
			require.InDelta(t, reply.Now, now, 60_000)
		}
		reply, err := db.Open(ctx, "t", store.TaskOpen{Token: 5, Schedule: "of an older leader"})
		require.NoError(t, err)
		require.Equal(t, store.TaskFenced, reply.Verdict)
		_, records, _, err := db.Records(ctx, []string{"t"})
		require.NoError(t, err)
		require.Equal(t, "cron 0 3 * * *", records[0].Schedule)
	})
}

// TestFailedRunsAreCounted: from the last success on, by every store.
func TestFailedRunsAreCounted(t *testing.T) {
	onTaskStores(t, func(t *testing.T, db store.Tasks) {
		ctx := t.Context()
		_, err := db.Open(ctx, "t", store.TaskOpen{Token: 5})
		require.NoError(t, err)
		finished := "0"
		for i, run := range []struct {
			ends   store.RunState
			failed int
		}{
			{store.RunFailed, 1}, {store.RunAbandoned, 2}, {store.RunInterrupted, 2}, {store.RunSucceeded, 0}, {store.RunReturned, 0}, {store.RunFailed, 1},
		} {
			id := fmt.Sprint("r", i)
			_, err := db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: id, Kind: store.ClaimExtra, Expect: finished, Instance: "a", Attempt: 1})
			require.NoError(t, err)
			reply, err := db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: id, Status: run.ends})
			require.NoError(t, err)
			require.Equal(t, store.TaskDone, reply.Verdict)
			require.Equal(t, run.failed, reply.Record.FailedRuns, "%d", i)
			require.Equal(t, i >= 3, reply.Record.LastSuccess != 0)
			finished = strconv.FormatInt(reply.Record.Finished, 10)
		}
	})
}

// TestRunIsGivenUp: one that waits to be run again is abandoned once, and its leader did not die of
// it. One that has ended stays as it is.
func TestRunIsGivenUp(t *testing.T) {
	for _, ends := range []store.RunState{store.RunInterrupted, store.RunReturned, store.RunSucceeded, store.RunFailed} {
		t.Run(string(ends), func(t *testing.T) {
			onTaskStores(t, func(t *testing.T, db store.Tasks) {
				ctx := t.Context()
				_, err := db.Open(ctx, "t", store.TaskOpen{Token: 1})
				require.NoError(t, err)
				_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 1, Run: "r", Kind: store.ClaimExtra, Expect: "0", Attempt: 1})
				require.NoError(t, err)
				ended, err := db.Finish(ctx, "t", store.TaskFinish{Token: 1, Run: "r", Status: ends})
				require.NoError(t, err)
				given, err := db.Finish(ctx, "t", store.TaskFinish{Token: 1, Run: "r", Status: store.RunAbandoned, Text: "late"})
				require.NoError(t, err)
				require.Equal(t, store.TaskDone, given.Verdict)
				again, err := db.Finish(ctx, "t", store.TaskFinish{Token: 1, Run: "r", Status: store.RunAbandoned, Text: "later"})
				require.NoError(t, err)
				require.Equal(t, given.Record, again.Record, "once")
				if ends == store.RunSucceeded || ends == store.RunFailed {
					require.Equal(t, ended.Record, given.Record)
					return
				}
				require.Equal(t, store.RunAbandoned, given.Record.Status)
				require.Equal(t, "late", given.Record.Text)
				require.Equal(t, 1, given.Record.FailedRuns)
				require.Zero(t, given.Record.Crashes)
				runs, err := db.Runs(ctx, "t", 5)
				require.NoError(t, err)
				require.Equal(t, store.RunAbandoned, runs[0].Status)
			})
		})
	}
}

// TestForgetTask: only what the leader has not opened although it has led for long enough.
func TestForgetTask(t *testing.T) {
	onClusters(t, "tasks", func(t *testing.T, c *cluster) {
		ctx, db := t.Context(), c.store
		forget := func(name, lease string) string {
			reply, err := db.Forget(ctx, name, store.TaskForget{Lease: lease, Led: time.Minute})
			require.NoError(t, err)
			return reply.Verdict
		}
		for _, role := range []string{"", "other"} {
			lease := db.keys.Lease(role)
			require.Equal(t, store.TaskAbsent, forget("t", lease))
			opened, err := db.Open(ctx, "t", store.TaskOpen{Token: 5, Lease: lease})
			require.NoError(t, err)
			_, err = db.Claim(ctx, "t", store.TaskClaim{Token: 5, Run: "r", Kind: store.ClaimExtra, Expect: "0", Instance: "a", Attempt: 1})
			require.NoError(t, err)
			_, err = db.Finish(ctx, "t", store.TaskFinish{Token: 5, Run: "r", Status: store.RunSucceeded})
			require.NoError(t, err)
			_, err = db.Trigger(ctx, "t", store.TaskTrigger{ID: "t1", NotAfter: 1 << 50, For: time.Hour})
			require.NoError(t, err)
			seconds := opened.Now / 1000
			leads := func(since int64, token int) {
				require.NoError(t, c.rdb.Set(ctx, lease, "b", 0).Err())
				require.NoError(t, c.rdb.Set(ctx, store.LeaseSince(lease), since, 0).Err())
				require.NoError(t, c.rdb.HSet(ctx, store.LeaseTerm(lease), "token", token).Err())
			}
			require.Equal(t, store.TaskUnled, forget("t", lease), "nobody leads")
			leads(seconds-30, 6)
			require.Equal(t, store.TaskUnled, forget("t", lease), "it may be about to open it")
			leads(seconds-90, 5)
			require.Equal(t, store.TaskKnown, forget("t", lease))
			require.NoError(t, c.rdb.Del(ctx, lease).Err())
			require.Equal(t, store.TaskUnled, forget("t", lease))
			leads(seconds-90, 6)
			require.Equal(t, store.TaskOK, forget("t", lease))
			require.Equal(t, store.TaskAbsent, forget("t", lease))
			names, _, err := db.Names(ctx, 10)
			require.NoError(t, err)
			require.Empty(t, names)
			left, err := c.rdb.Exists(ctx, db.keys.Task("t"), db.keys.Runs("t"), db.keys.Triggers()).Result()
			require.NoError(t, err)
			require.Zero(t, left)
		}
		lease, other := db.keys.Lease(""), db.keys.Lease("other") // of which tokens say nothing of each other
		moved, err := db.Open(ctx, "t", store.TaskOpen{Token: 3, Lease: other})
		require.NoError(t, err)
		require.NoError(t, c.rdb.Set(ctx, lease, "b", 0).Err())
		require.NoError(t, c.rdb.Set(ctx, store.LeaseSince(lease), moved.Now/1000-90, 0).Err())
		require.NoError(t, c.rdb.HSet(ctx, store.LeaseTerm(lease), "token", 6).Err())
		require.Equal(t, store.TaskKnown, forget("t", lease), "it has moved since it was read")
		_, err = db.Forget(ctx, "t", store.TaskForget{Lease: "no lease"})
		require.ErrorIs(t, err, store.ErrMisconfigured)
		require.ErrorContains(t, err, "by hand")
	})
}

// TestForgetTaskOfARoleThatIsGone: it needs no leader that would know, and there must be none.
func TestForgetTaskOfARoleThatIsGone(t *testing.T) {
	onClusters(t, "tasks", func(t *testing.T, c *cluster) {
		ctx, db := t.Context(), c.store
		gone, other := db.keys.Lease("gone"), db.keys.Lease("other")
		forget := func(lease string) string {
			reply, err := db.Forget(ctx, "t", store.TaskForget{Lease: lease, Gone: true})
			require.NoError(t, err)
			return reply.Verdict
		}
		_, err := db.Open(ctx, "t", store.TaskOpen{Token: 5, Lease: gone})
		require.NoError(t, err)
		require.NoError(t, c.rdb.Set(ctx, gone, "b", 0).Err())
		require.Equal(t, store.TaskKnown, forget(gone), "somebody leads")
		require.Equal(t, store.TaskKnown, forget(other), "it has moved since it was read")
		require.NoError(t, c.rdb.Del(ctx, gone).Err())
		require.Equal(t, store.TaskOK, forget(gone))
		require.Equal(t, store.TaskAbsent, forget(gone))
	})
}

// TestNamesAcrossARestart: tasks that are there all the time are listed, though the server that
// comes back orders them in another way.
func TestNamesAcrossARestart(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t, redistest.Persist())
	client := server.Client(t)
	const many = 4000
	var names []any
	for i := range many {
		names = append(names, fmt.Sprint("t", i))
	}
	require.NoError(t, client.SAdd(t.Context(), "ns:tasks", names...).Err())
	pages := 0
	client.AddHook(namedHook{func(name string) error {
		if name == "sscan" {
			if pages++; pages == 4 {
				server.Restart(t)
			}
		}
		return nil
	}})
	listed, more, err := openStore(client, "ns").Names(t.Context(), 2*many)
	require.NoError(t, err)
	require.False(t, more)
	require.Len(t, listed, many)
}
