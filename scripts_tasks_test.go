package tenure

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure/internal/proof/redistest"
)

// onTaskStores runs fn on every store of tasks there is.
func onTaskStores(t *testing.T, fn func(t *testing.T, store taskStore)) {
	t.Run("memory", func(t *testing.T) { fn(t, newLocalTasks()) })
	onTaskRedis(t, func(t *testing.T, store *redisStore) { fn(t, store) })
}

// onTaskRedis runs fn on miniredis and on a real Redis.
func onTaskRedis(t *testing.T, fn func(t *testing.T, store *redisStore)) {
	newStore := func(t *testing.T, opts *redis.Options) *redisStore {
		client := redis.NewClient(opts)
		t.Cleanup(func() { _ = client.Close() })
		var c checker
		store := newRedisStore(client, &c, Options{Namespace: "tasks", Election: ElectionOptions{LeaseTTL: time.Second}})
		require.NoError(t, c.err())
		return store
	}
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.RunT(t)
		m.ClockTTL(true)
		fn(t, newStore(t, &redis.Options{Addr: m.Addr()}))
	})
	t.Run("redis", func(t *testing.T) {
		if testing.Short() {
			t.Skip("starts a redis-server")
		}
		fn(t, newStore(t, redistest.Start(t).Options()))
	})
}

// taskTeller asks a store and writes down what it says, with times relative to the first answer.
type taskTeller struct {
	*testing.T
	store taskStore
	base  int64
	told  []string
}

func (s *taskTeller) tell(what string, reply taskReply, err error) taskRecord {
	s.Helper()
	require.NoError(s, err, what)
	if s.base == 0 {
		s.base = reply.now
	}
	r := reply.record
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
	if r.due != "" {
		due = relative(r.next)
		require.Equal(s, strconv.FormatInt(r.next, 10), r.due)
	}
	s.told = append(s.told, fmt.Sprintf("%-27s %-7s | next %s spec %s token %d run %s done %s | %s slot %s %s..%s attempt %d by %d %s | crashes %d failures %d retry %s skipped %d paused %v/%s %s",
		what, reply.verdict, due, dash(r.spec), r.token, dash(r.run), dash(r.done), dash(string(r.status)), relative(r.scheduled),
		relative(r.started), relative(r.finished), r.attempt, r.runToken, dash(r.instance), r.crashes, r.failures, relative(r.retryAt), r.skipped, r.paused, dash(r.pauses), dash(r.text)))
	return r
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func (s *taskTeller) open(token int64) {
	reply, err := s.store.openTask(s.Context(), "t", taskOpen{token: token})
	s.tell(fmt.Sprint("open ", token), reply, err)
}

func (s *taskTeller) plan(p taskPlan) {
	reply, err := s.store.planTask(s.Context(), "t", p)
	s.tell(fmt.Sprint("plan ", p.token, " ", p.spec), reply, err)
}

func (s *taskTeller) claim(c taskClaim) {
	reply, err := s.store.claimTask(s.Context(), "t", c)
	s.tell(fmt.Sprint("claim ", c.kind, " ", c.token, " ", c.run), reply, err)
}

func (s *taskTeller) retry(r taskRetry) {
	reply, err := s.store.retryTask(s.Context(), "t", r)
	s.tell(fmt.Sprint("retry ", r.token, " ", r.run), reply, err)
}

func (s *taskTeller) finish(f taskFinish) {
	reply, err := s.store.finishTask(s.Context(), "t", f)
	s.tell(fmt.Sprint("finish ", f.status, " ", f.token, " ", f.run), reply, err)
}

// TestTaskScripts tells one long story to every store; all of them must answer the same.
func TestTaskScripts(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	onTaskStores(t, func(t *testing.T, store taskStore) {
		s := &taskTeller{T: t, store: store}
		ctx := t.Context()
		reply, err := store.readTask(ctx, "t")
		s.tell("read", reply, err)
		reply, err = store.pauseTask(ctx, "t", true, "")
		s.tell("pause", reply, err)
		s.plan(taskPlan{token: 100, next: 1, spec: "A"})
		s.finish(taskFinish{token: 100, run: "r0", status: RunSucceeded})
		s.open(100)
		s.open(100)
		finished := func() string {
			reply, err := store.readTask(ctx, "t")
			require.NoError(t, err)
			return strconv.FormatInt(reply.record.finished, 10)
		}
		at := func(hours int64) string { return strconv.FormatInt(s.base+hours*hour, 10) }
		slot := func(token int64, run string, hours, next int64) taskClaim {
			return taskClaim{token: token, run: run, kind: claimSlot, expect: at(hours), slot: s.base + hours*hour, next: s.base + next*hour,
				spec: "A", instance: "i" + run, skipped: 1, attempt: 1}
		}
		s.claim(slot(100, "r1", -1, 1))
		s.plan(taskPlan{token: 100, next: s.base + hour, spec: "A", skipped: 2})
		s.plan(taskPlan{token: 100, next: s.base + hour, spec: "A", skipped: 2})
		s.plan(taskPlan{token: 100, next: s.base + 2*hour, spec: "A"})
		s.claim(slot(100, "r1", 1, 2))
		s.plan(taskPlan{token: 100, expect: at(1), next: s.base - hour, spec: "A"})
		s.claim(taskClaim{token: 100, run: "r1", kind: claimSlot, expect: at(-1), slot: s.base - hour, next: s.base, spec: "B"})
		s.claim(slot(100, "r1", -1, 1))
		s.claim(slot(100, "r1", -1, 1))
		s.claim(slot(100, "r2", 1, 2))
		s.claim(taskClaim{token: 100, run: "r2", kind: claimExtra, expect: "0"})
		s.finish(taskFinish{token: 100, run: "r2", status: RunSucceeded})
		s.retry(taskRetry{token: 100, run: "r1", attempt: 2, failures: 1, in: 2 * time.Hour})
		s.retry(taskRetry{token: 100, run: "r1", attempt: 2, failures: 1, in: 3 * time.Hour}) // the same
		s.retry(taskRetry{token: 100, run: "r0", attempt: 3, failures: 2, in: time.Hour})
		s.retry(taskRetry{token: 99, run: "r1", attempt: 3, failures: 2, in: time.Hour})
		s.finish(taskFinish{token: 100, run: "r1", status: RunFailed, text: "too bad", attempt: 3, failures: 3})
		s.finish(taskFinish{token: 100, run: "r1", status: RunSucceeded})
		s.claim(slot(100, "r1", 1, 2))
		s.claim(slot(100, "r2", -1, 1)) // the slot that has run

		// An older leader changes nothing.
		s.open(99)
		s.plan(taskPlan{token: 99, expect: at(1), next: s.base - hour, spec: "A"})
		s.claim(taskClaim{token: 99, run: "r2", kind: claimExtra, expect: "0"})
		s.finish(taskFinish{token: 99, run: "r1", status: RunSucceeded})

		// A newer one has to open the record first. It finds a run, and another one dies of it.
		s.plan(taskPlan{token: 100, expect: at(1), next: s.base - 2*hour, spec: "A"})
		s.claim(slot(100, "r2", -2, -1))
		s.claim(taskClaim{token: 200, run: "r3", kind: claimAgain, expect: "r2"})
		s.plan(taskPlan{token: 200, expect: at(-1), next: s.base, spec: "A"})
		s.open(200)
		s.finish(taskFinish{token: 100, run: "r2", status: RunSucceeded})
		s.claim(slot(200, "r3", -1, 1))
		again := func(token int64, run, left string, attempt int) taskClaim {
			return taskClaim{token: token, run: run, kind: claimAgain, expect: left, instance: "i" + run, attempt: attempt}
		}
		s.claim(again(200, "r3", "r1", 2))
		s.claim(again(200, "r3", "r2", 2))
		s.claim(again(200, "r3", "r2", 2))
		s.open(300)
		s.claim(again(300, "r4", "r3", 3))
		s.finish(taskFinish{token: 300, run: "r4", status: RunInterrupted, text: "the end", attempt: 3, failures: 1, retryIn: time.Hour})
		s.claim(again(300, "r5", "r4", 4))
		s.finish(taskFinish{token: 300, run: "r5", status: runReturned})
		s.claim(again(300, "r5", "r4", 4)) // late
		s.claim(again(300, "r6", "r5", 4))
		s.finish(taskFinish{token: 300, run: "r9", status: runReturned}) // another one is on: it stays
		s.finish(taskFinish{token: 300, run: "r6", status: RunAbandoned})

		// A claim that was given back before it came.
		s.finish(taskFinish{token: 300, run: "r7", status: runReturned})
		s.claim(slot(300, "r7", -1, 1))

		reply, err = store.pauseTask(ctx, "t", true, "")
		s.tell("pause", reply, err)
		s.claim(slot(300, "r8", -1, 1))
		s.claim(taskClaim{token: 300, run: "r8", kind: claimExtra, expect: finished()})
		s.claim(again(300, "r8", "r7", 4))
		reply, err = store.pauseTask(ctx, "t", false, "")
		s.tell("resume", reply, err)
		reply, err = store.pauseTask(ctx, "t", false, "1")
		s.tell("resume", reply, err)
		s.claim(taskClaim{token: 300, run: "r8", kind: claimExtra, expect: "7", instance: "i8", attempt: 1})
		s.claim(taskClaim{token: 300, run: "r8", kind: claimExtra, expect: finished(), instance: "i8", attempt: 1})
		s.finish(taskFinish{token: 300, run: "r8", status: RunSucceeded, attempt: 1})
		reply, err = store.readTask(ctx, "t")
		last := s.tell("read", reply, err)

		runs, err := store.taskRuns(ctx, "t", 10)
		require.NoError(t, err)
		for _, r := range runs {
			require.WithinDuration(t, redisTime(reply.now), r.Started, time.Minute)
			require.WithinDuration(t, redisTime(reply.now), r.Finished, time.Minute)
			s.told = append(s.told, fmt.Sprintf("run %s %s %s %s attempt %d by %d %s %q", r.Task, r.Run, r.Slot.Sub(redisTime(s.base)).Round(time.Minute),
				r.Status, r.Attempt, r.Token, r.InstanceID, r.Error))
		}
		names, more, err := store.taskNames(ctx, 10)
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, []string{"t"}, names)
		records, problems, err := store.taskRecords(ctx, []string{"t", "other"})
		require.NoError(t, err)
		require.Equal(t, []error{nil, nil}, problems)
		require.Equal(t, []taskRecord{last, {}}, records)

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
	onTaskRedis(t, func(t *testing.T, store *redisStore) {
		ctx := t.Context()
		key, rdb := store.keys.task("t"), store.rdb
		later := strconv.FormatInt(time.Now().Add(200*365*24*time.Hour).UnixMilli(), 10)
		for _, bad := range [][2]string{
			{"token", "x"}, {"token", "-1"}, {"token", "0"}, {"token", "1e3"}, {"token", "99999999999999999999"}, {"token", later},
			{"next", "soon"}, {"next", "-5"}, {"next", " 1"}, {"next", "12345678901234567"}, {"next", "00"}, {"next", later},
		} {
			require.NoError(t, rdb.Del(ctx, key).Err())
			require.NoError(t, rdb.HSet(ctx, key, bad[0], bad[1], "foreign", "yes").Err())
			before := rdb.HGetAll(ctx, key).Val()
			for name, call := range map[string]func() (taskReply, error){
				"open": func() (taskReply, error) { return store.openTask(ctx, "t", taskOpen{token: 5}) },
				"plan": func() (taskReply, error) { return store.planTask(ctx, "t", taskPlan{token: 5, next: 1}) },
				"claim": func() (taskReply, error) {
					return store.claimTask(ctx, "t", taskClaim{token: 5, run: "r", kind: claimExtra, expect: "0"})
				},
				"retry":  func() (taskReply, error) { return store.retryTask(ctx, "t", taskRetry{token: 5, run: "r"}) },
				"finish": func() (taskReply, error) { return store.finishTask(ctx, "t", taskFinish{token: 5, run: "r"}) },
				"read":   func() (taskReply, error) { return store.readTask(ctx, "t") },
				"pause":  func() (taskReply, error) { return store.pauseTask(ctx, "t", true, "") },
			} {
				_, err := call()
				require.ErrorIs(t, err, ErrMisconfigured, "%s %v", name, bad)
				require.ErrorContains(t, err, key)
				require.ErrorContains(t, err, "fix: ")
			}
			require.Equal(t, before, rdb.HGetAll(ctx, key).Val())
			_, problems, err := store.taskRecords(ctx, []string{"t"})
			require.NoError(t, err)
			if bad[1] != later {
				require.ErrorIs(t, problems[0], ErrMisconfigured, "%v", bad)
			}
		}
		require.Empty(t, rdb.SMembers(ctx, store.keys.tasks()).Val())

		// The other fields count as absent.
		require.NoError(t, rdb.Del(ctx, key).Err())
		require.NoError(t, rdb.HSet(ctx, key, "attempt", "many", "skipped", "-4", "crashes", "1e9", "last_started", "never", "error", strings.Repeat("ä", 4000)).Err())
		reply, err := store.openTask(ctx, "t", taskOpen{token: 5})
		require.NoError(t, err)
		require.Zero(t, reply.record.attempt+reply.record.crashes+int(reply.record.skipped+reply.record.started))
		require.Equal(t, strings.Repeat("ä", maxTaskText/2), reply.record.text)

		// Keys of another type.
		require.NoError(t, rdb.Set(ctx, store.keys.task("s"), "mine", 0).Err())
		_, err = store.openTask(ctx, "s", taskOpen{token: 5})
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, store.keys.task("s"))
		_, problems, err := store.taskRecords(ctx, []string{"t", "s"})
		require.NoError(t, err)
		require.NoError(t, problems[0])
		require.ErrorIs(t, problems[1], ErrMisconfigured)
		require.Equal(t, "mine", rdb.Get(ctx, store.keys.task("s")).Val())
		require.NoError(t, rdb.Set(ctx, store.keys.runs("t"), "mine", 0).Err())
		_, err = store.taskRuns(ctx, "t", 5)
		require.ErrorIs(t, err, ErrMisconfigured)

		// The end of a run is recorded even so; the error is told once.
		_, err = store.claimTask(ctx, "t", taskClaim{token: 5, run: "r", kind: claimExtra, expect: "0"})
		require.NoError(t, err)
		_, err = store.finishTask(ctx, "t", taskFinish{token: 5, run: "r", status: RunSucceeded})
		require.ErrorIs(t, err, ErrMisconfigured)
		require.ErrorContains(t, err, store.keys.runs("t"))
		reply, err = store.finishTask(ctx, "t", taskFinish{token: 5, run: "r", status: RunSucceeded})
		require.NoError(t, err)
		require.Equal(t, taskDone, reply.verdict)
		require.Equal(t, RunSucceeded, reply.record.status)

		require.NoError(t, rdb.Del(ctx, store.keys.tasks()).Err())
		require.NoError(t, rdb.Set(ctx, store.keys.tasks(), "mine", 0).Err())
		_, _, err = store.taskNames(ctx, 5)
		require.ErrorIs(t, err, ErrMisconfigured)
	})
}

// TestForgedTextsOfATaskCountAsAbsent: what was read is what the next request is compared with, else the two never agree.
func TestForgedTextsOfATaskCountAsAbsent(t *testing.T) {
	onTaskRedis(t, func(t *testing.T, store *redisStore) {
		ctx := t.Context()
		key := store.keys.task("t")
		for _, forged := range []string{strings.Repeat("1", 2000), "x\xff", "s1 \x00", "ä"} {
			for _, field := range comparedFields {
				require.NoError(t, store.rdb.Del(ctx, key).Err())
				require.NoError(t, store.rdb.HSet(ctx, key, "next", "1000", "spec", "s1", "status", "running").Err())
				require.NoError(t, store.rdb.HSet(ctx, key, field, forged).Err())
				reply, err := store.openTask(ctx, "t", taskOpen{token: 5})
				require.NoError(t, err)
				r := reply.record
				require.Empty(t, r.run+r.done+r.pauses, "%s %.9q", field, forged)
				records, _, err := store.taskRecords(ctx, []string{"t"})
				require.NoError(t, err)
				require.Equal(t, r, records[0])
				reply, err = store.pauseTask(ctx, "t", false, r.pauses)
				require.NoError(t, err)
				require.Equal(t, taskOK, reply.verdict, "%s %.9q", field, forged)
				reply, err = store.claimTask(ctx, "t", taskClaim{token: 5, run: "r", kind: claimSlot, expect: r.due, slot: r.next, next: 2000, spec: r.spec})
				require.NoError(t, err)
				require.Equal(t, taskClaimed, reply.verdict, "%s %.9q", field, forged)
			}
		}
	})
}

// verdictHook puts another verdict, or the ID of another run, into the replies of the task scripts.
type verdictHook struct {
	mu           sync.Mutex
	verdict, run string
	asked        int
}

// lies sets the verdict from now on, and returns how often was asked.
func (h *verdictHook) lies(verdict string) (asked int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.verdict = verdict
	return h.asked
}

func (h *verdictHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *verdictHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *verdictHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(*redis.SliceCmd); ok && err == nil && len(reply.Val()) == 2+len(taskFields) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.asked++
			value := reply.Val()
			if h.verdict != "" {
				value[0] = h.verdict
			}
			if h.run != "" {
				value[5] = h.run
			}
			reply.SetVal(value)
		}
		return err
	}
}

// TestTaskVerdictOfAnotherScript: a verdict that a script does not give is no answer, and never a permission to run.
func TestTaskVerdictOfAnotherScript(t *testing.T) {
	ctx := t.Context()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	hook := &verdictHook{}
	client.AddHook(hook)
	store := newRedisStore(client, &checker{}, Options{Namespace: "tasks"})
	_, err := store.openTask(ctx, "t", taskOpen{token: 5})
	require.NoError(t, err)
	claim := func() (taskReply, error) {
		return store.claimTask(ctx, "t", taskClaim{token: 5, run: "r", kind: claimExtra, expect: "0"})
	}
	asks := map[string]func() (taskReply, error){
		"open_task":   func() (taskReply, error) { return store.openTask(ctx, "t", taskOpen{token: 5}) },
		"plan_task":   func() (taskReply, error) { return store.planTask(ctx, "t", taskPlan{token: 5, next: 1}) },
		"claim_task":  claim,
		"retry_task":  func() (taskReply, error) { return store.retryTask(ctx, "t", taskRetry{token: 5, run: "r"}) },
		"finish_task": func() (taskReply, error) { return store.finishTask(ctx, "t", taskFinish{token: 5, run: "x"}) },
		"read_task":   func() (taskReply, error) { return store.readTask(ctx, "t") },
		"pause_task":  func() (taskReply, error) { return store.pauseTask(ctx, "t", true, "") },
	}
	_, err = claim()
	require.NoError(t, err)
	for script, own := range taskVerdicts {
		for _, verdict := range []string{
			taskOK, taskClaimed, taskEarly, taskPaused, taskMoved, taskDone, taskGone, taskFenced, taskForeign, taskAbsent, "nonsense", " ",
		} {
			hook.verdict = verdict
			reply, err := asks[script]()
			if slices.Contains(own, verdict) {
				require.NoError(t, err, "%s %s", script, verdict)
				require.Equal(t, verdict, reply.verdict)
			} else {
				require.ErrorIs(t, err, ErrUnreachable, "%s %s", script, verdict)
				require.ErrorContains(t, err, verdict)
			}
		}
	}
	require.Len(t, asks, len(taskVerdicts))
	hook.verdict, hook.run = "", "another"
	_, err = claim()
	require.ErrorIs(t, err, ErrUnreachable)
	hook.run = ""
	_, err = claim()
	require.NoError(t, err)
}

// TestTaskVerdictsThatNobodyGives: they run nothing, are told once, and are asked for with pauses.
func TestTaskVerdictsThatNobodyGives(t *testing.T) {
	inCrew(t, func(c *crew) {
		a := c.member("a")
		hook := &verdictHook{}
		a.Tasks().store.(*redisStore).rdb.AddHook(hook)
		require.NoError(t, a.Tasks().Register(a.counts("t", Every(10*time.Second))))
		hook.lies("nonsense")
		a.start()
		c.pass(5 * time.Minute)
		require.Empty(t, c.noted())
		require.Len(t, a.told(EventTaskFailed), 1)
		require.Less(t, hook.lies(""), 5*60)
		c.pass(time.Minute)
		require.NotEmpty(t, c.noted())
	})
}

// TestTaskHistoryIsCapped: the stream does not grow for ever, and foreign entries in it do no harm.
func TestTaskHistoryIsCapped(t *testing.T) {
	onTaskStores(t, func(t *testing.T, store taskStore) {
		ctx := t.Context()
		_, err := store.openTask(ctx, "t", taskOpen{token: 5})
		require.NoError(t, err)
		ended := int64(0)
		for i := range 400 {
			run := fmt.Sprint("r", i)
			_, err = store.claimTask(ctx, "t", taskClaim{token: 5, run: run, kind: claimExtra, expect: strconv.FormatInt(ended, 10), attempt: 1})
			require.NoError(t, err)
			reply, err := store.finishTask(ctx, "t", taskFinish{token: 5, run: run, status: RunSucceeded})
			ended = reply.record.finished
			require.NoError(t, err)
		}
		runs, err := store.taskRuns(ctx, "t", 5000)
		require.NoError(t, err)
		require.Less(t, len(runs), 250)
		require.GreaterOrEqual(t, len(runs), 100)
		require.Equal(t, "r399", runs[0].Run)
		if store, ok := store.(*redisStore); ok {
			add := &redis.XAddArgs{Stream: store.keys.runs("t"), Values: []any{"slot", "x", "finished", strings.Repeat("9", 15), "error", strings.Repeat("x", 1<<20)}}
			require.NoError(t, store.rdb.XAdd(ctx, add).Err())
			runs, err = store.taskRuns(ctx, "t", 1)
			require.NoError(t, err)
			require.Equal(t, []TaskRecord{{Task: "t", Error: strings.Repeat("x", maxTaskText)}}, runs)
		}
	})
}

// TestTaskIndexIsCapped: what else somebody has put into the index costs a bounded time and shows nothing.
func TestTaskIndexIsCapped(t *testing.T) {
	onTaskStores(t, func(t *testing.T, store taskStore) {
		ctx := t.Context()
		for i := range 30 {
			_, err := store.openTask(ctx, fmt.Sprint("t", i), taskOpen{token: 5})
			require.NoError(t, err)
		}
		names, more, err := store.taskNames(ctx, 20)
		require.NoError(t, err)
		require.True(t, more)
		require.Len(t, names, 20)
		if store, ok := store.(*redisStore); ok {
			require.NoError(t, store.rdb.SAdd(ctx, store.keys.tasks(), "", "no name", "\x1b[1m", "{}", strings.Repeat("x", 129)).Err())
		}
		names, more, err = store.taskNames(ctx, 100)
		require.NoError(t, err)
		require.False(t, more)
		require.Len(t, names, 30)
	})
}

// TestTaskFinishOnFullRedis: a run that has ended can say so when Redis takes no more data, a claim cannot.
func TestTaskFinishOnFullRedis(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a redis-server")
	}
	server := redistest.Start(t)
	client := server.Client(t)
	var c checker
	store := newRedisStore(client, &c, Options{Namespace: "tasks"})
	ctx := t.Context()
	_, err := store.openTask(ctx, "t", taskOpen{token: 5})
	require.NoError(t, err)
	_, err = store.claimTask(ctx, "t", taskClaim{token: 5, run: "r", kind: claimExtra, expect: "0"})
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	reply, err := store.finishTask(ctx, "t", taskFinish{token: 5, run: "r", status: RunSucceeded})
	require.NoError(t, err)
	require.Equal(t, taskDone, reply.verdict)
	ended := strconv.FormatInt(reply.record.finished, 10)
	_, err = store.claimTask(ctx, "t", taskClaim{token: 5, run: "s", kind: claimExtra, expect: ended})
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "OOM")
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	runs, err := store.taskRuns(ctx, "t", 5)
	require.NoError(t, err)
	require.Len(t, runs, 1)
}

func FuzzParseTaskRecord(f *testing.F) {
	f.Add("1700000000000", "5", "1", "x")
	f.Add("-", "0", "", "\xff")
	f.Fuzz(func(t *testing.T, next, token, attempt, text string) {
		fields := make([]any, len(taskFields))
		fields[0], fields[2], fields[9], fields[15] = next, token, attempt, text
		r, err := parseTaskRecord(fields)
		if err != nil {
			require.ErrorIs(t, err, ErrMisconfigured)
			return
		}
		require.GreaterOrEqual(t, r.next, int64(0))
		require.GreaterOrEqual(t, r.attempt, 0)
		require.LessOrEqual(t, len(r.text), 3*maxTaskText)
		_, err = redisTime(r.next).MarshalJSON()
		require.NoError(t, err)
	})
}

func TestParseTaskReplyMalformed(t *testing.T) {
	fields := make([]any, 2+len(taskFields))
	for _, reply := range [][]any{nil, {"ok"}, fields, append([]any{"ok", "x"}, fields[2:]...), append([]any{"ok", "0"}, fields[2:]...), append([]any{int64(1), "1"}, fields[2:]...)} {
		_, err := parseTaskReply(reply)
		require.ErrorIs(t, err, ErrUnreachable)
	}
	_, err := parseTaskReply(append([]any{"ok", "1"}, fields[2:]...))
	require.NoError(t, err)
	fields[4] = "a token"
	_, err = parseTaskReply(append([]any{"ok", "1"}, fields[2:]...))
	require.ErrorIs(t, err, ErrMisconfigured)
	_, err = parseTaskRecord(nil)
	require.ErrorIs(t, err, ErrUnreachable)
}

// TestTaskStoreUnreachable: every call says that nothing is known.
func TestTaskStoreUnreachable(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	var c checker
	s := newTaskScheduler(newRedisStore(client, &c, Options{Namespace: "tasks"}), newEventBus("i"), "i")
	ctx := context.Background()
	_, err := s.Tasks(ctx)
	require.ErrorIs(t, err, ErrUnreachable)
	_, err = s.Runs(ctx, "t", 1)
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorIs(t, s.Pause(ctx, "t"), ErrUnreachable)
	_, _, err = s.store.taskRecords(ctx, []string{"t"})
	require.ErrorIs(t, err, ErrUnreachable)
}
