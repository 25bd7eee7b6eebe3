package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// taskVerdicts are the answers that each task script may give. Any other is the reply of something
// else.
var taskVerdicts = map[string][]string{
	"open_task":   {store.TaskOK, store.TaskFenced, store.TaskForeign},
	"plan_task":   {store.TaskOK, store.TaskMoved, store.TaskFenced},
	"claim_task":  {store.TaskClaimed, store.TaskEarly, store.TaskPaused, store.TaskMoved, store.TaskExpired, store.TaskFenced},
	"retry_task":  {store.TaskOK, store.TaskGone, store.TaskFenced},
	"finish_task": {store.TaskDone, store.TaskGone, store.TaskFenced},
	"read_task":   {store.TaskOK},
	"pause_task":  {store.TaskOK, store.TaskAbsent, store.TaskMoved},

	"cancel_task":  {store.TaskOK, store.TaskAbsent, store.TaskMoved},
	"forget_task":  {store.TaskOK, store.TaskAbsent, store.TaskKnown, store.TaskUnled},
	"trigger_task": {store.TaskOK, store.TaskAbsent, store.TaskWaiting, store.TaskStale, store.TaskMoved},
}

// taskFields are the fields of a record in the order in which scripts.lua replies with them.
var taskFields = []string{"next", "spec", "token", "run", "done", "status", "last_scheduled", "last_started", "last_finished", "attempt",
	"crashes", "skipped", "paused", "instance", "run_token", "error", "failures", "retry_at", "lease", "pauses",
	"trigger", "run_trigger", "args", "retry_in", "last_success", "failed_runs", "pause",
	"cancel", "trigger_runs"}

// listedFields are what listings read: those, and what no script needs.
var listedFields = append(slices.Clone(taskFields), "schedule", "jitter")

// comparedFields are texts that count as absent unless they are plain: scripts compare them with
// what was read.
var comparedFields = []string{"spec", "run", "done", "pauses", "trigger", "cancel"}

// isPlain reports whether a text may be one that tenure wrote for the scripts to compare.
func isPlain(text string) bool {
	if len(text) > store.MaxTaskText {
		return false
	}
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

func (s *Store) Open(ctx context.Context, name string, o store.TaskOpen) (store.TaskReply, error) {
	record, index := s.keys.Task(name), s.keys.Tasks()
	if s.askable(o.Other) {
		reply, err := s.askTask(ctx, s.scripts.openTask, "3", record, index, o.Other, o.Token, name, o.Lease, o.Schedule, o.Jitter.Milliseconds())
		if !errors.Is(err, store.ErrMisconfigured) { // perhaps this client may not read that key: the record stays foreign then
			return reply, err
		}
	}
	return s.askTask(ctx, s.scripts.openTask, "2", record, index, o.Token, name, o.Lease, o.Schedule, o.Jitter.Milliseconds())
}

// askable reports whether a script may be given the key of a lease that a record names: the text is
// untrusted, and on a Redis Cluster one key in another slot refuses the whole call.
func (s *Store) askable(lease string) bool {
	role, isRole := strings.CutPrefix(lease, s.keys.Lease("")+":")
	written := isRole && store.RolePattern.MatchString(role) || lease == s.keys.Lease("") || store.IsKey(lease) && s.keys.Taken(lease) == ""
	return written && (!s.spread || store.HashTag(lease) == store.HashTag(s.keys.Tasks()))
}

func (s *Store) Plan(ctx context.Context, name string, p store.TaskPlan) (store.TaskReply, error) {
	return s.askTask(ctx, s.scripts.planTask, "1", s.keys.Task(name), p.Token, p.Expect, p.Next, p.Spec, p.Skipped, flag(p.Paused), p.Pause)
}

func (s *Store) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	reply, err := s.askTask(ctx, s.scripts.claimTask, "4", s.keys.Task(name), s.keys.Runs(name), s.keys.Tasks(), s.keys.Triggers(), c.Token, c.Run, c.Kind,
		c.Expect, c.Slot, c.Next, c.Spec, c.Instance, c.Skipped, c.Attempt, name, keep(c.Keep, c.KeepFor))
	if err == nil && reply.Verdict == store.TaskClaimed && reply.Record.Run != c.Run {
		return store.TaskReply{}, fmt.Errorf("%w: %s answers about run %.100q", store.ErrUnreachable, s.scripts.claimTask.name, reply.Record.Run)
	}
	return reply, err
}

func (s *Store) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	attempt, failures, retryIn := "", "", ""
	if f.Attempt > 0 {
		attempt, failures = strconv.Itoa(f.Attempt), strconv.Itoa(f.Failures)
	}
	if f.RetryIn > 0 {
		retryIn = strconv.FormatInt(f.RetryIn.Milliseconds(), 10)
	}
	return s.askTask(ctx, s.scripts.finishTask, "2", s.keys.Task(name), s.keys.Runs(name), f.Token, f.Run, string(f.Status), f.Text, attempt,
		failures, retryIn, keep(f.Keep, f.KeepFor))
}

func (s *Store) Retry(ctx context.Context, name string, r store.TaskRetry) (store.TaskReply, error) {
	return s.askTask(ctx, s.scripts.retryTask, "1", s.keys.Task(name), r.Token, r.Run, r.Attempt, r.Failures, r.In.Milliseconds())
}

func (s *Store) Record(ctx context.Context, name string) (store.TaskReply, error) {
	return s.askTask(ctx, s.scripts.readTask, "1", s.keys.Task(name))
}

func (s *Store) RecordAndTriggers(ctx context.Context, name string) (store.TaskReply, error) {
	return s.askTask(ctx, s.scripts.readTask, "2", s.keys.Task(name), s.keys.Triggers(), store.MaxTriggers)
}

func (s *Store) Pause(ctx context.Context, name string, paused bool, expect, why string) (store.TaskReply, error) {
	return s.askTask(ctx, s.scripts.pauseTask, "1", s.keys.Task(name), flag(paused), expect, why)
}

func (s *Store) Trigger(ctx context.Context, name string, t store.TaskTrigger) (store.TaskReply, error) {
	return s.askTask(ctx, s.scripts.triggerTask, "3", s.keys.Task(name), s.keys.Tasks(), s.keys.Triggers(), t.ID, t.Args, t.By, t.NotAfter,
		t.For.Milliseconds(), flag(t.Create), name, s.heardBy(t.Lease), t.Runs)
}

func (s *Store) Cancel(ctx context.Context, name string, c store.TaskCancel) (store.TaskReply, error) {
	return s.askTask(ctx, s.scripts.cancelTask, "3", s.keys.Task(name), s.keys.Runs(name), s.keys.Triggers(), c.Run, name, c.For.Milliseconds(),
		s.heardBy(c.Lease), store.CanceledText, keep(c.Keep, c.KeepFor))
}

func (s *Store) Forget(ctx context.Context, name string, f store.TaskForget) (store.TaskReply, error) {
	if !s.askable(f.Lease) {
		return store.TaskReply{}, fmt.Errorf("%w: the record of task %q names the lease %.100q, which this client may not ask for: remove %s and %s by hand",
			store.ErrMisconfigured, name, f.Lease, s.keys.Task(name), s.keys.Runs(name))
	}
	return s.askTask(ctx, s.scripts.forgetTask, "7", s.keys.Task(name), s.keys.Runs(name), s.keys.Tasks(), s.keys.Triggers(),
		f.Lease, store.LeaseSince(f.Lease), store.LeaseTerm(f.Lease), name, f.Led.Milliseconds())
}

// heardBy is the channel that the leader of a lease listens on; "": the key is none that a script
// may be given.
func (s *Store) heardBy(lease string) string {
	if !s.askable(lease) {
		return ""
	}
	return store.LeaseEvents(lease)
}

// keep is how the scripts take what the history keeps, and for how long.
func keep(runs store.Keep, lasts time.Duration) string {
	if lasts <= 0 {
		return strconv.Itoa(runs.Runs())
	}
	return fmt.Sprint(runs.Runs(), " ", lasts.Milliseconds())
}

// flag is how the scripts take a yes or a no.
func flag(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

func (s *Store) askTask(ctx context.Context, sc *script, keyCount string, args ...any) (store.TaskReply, error) {
	key, _ := args[0].(string)
	cmd, err := s.tasks.do(s, request{ctx: ctx, script: sc, key: key, args: append(sc.args(keyCount, len(args)), args...), newCmd: newList})
	if err != nil {
		return store.TaskReply{}, err
	}
	answer, err := parseTaskReply(cmd.(*redis.SliceCmd).Val())
	if err == nil && !slices.Contains(taskVerdicts[sc.name], answer.Verdict) {
		return store.TaskReply{}, fmt.Errorf("%w: %s answers %.100q", store.ErrUnreachable, sc.name, answer.Verdict)
	}
	return answer, err
}

// parseTaskReply reads the list that task_answer() in scripts.lua writes.
func parseTaskReply(reply []any) (store.TaskReply, error) {
	malformed := func() error { return fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, reply) }
	var triggers []string
	if last := 2 + len(taskFields); len(reply) == last+1 {
		names, _ := reply[last].(string)
		triggers = triggerNames(names)
		reply = reply[:last]
	}
	if len(reply) != 2+len(taskFields) {
		return store.TaskReply{}, malformed()
	}
	verdict, isText := reply[0].(string)
	clock, hasTime := reply[1].(string)
	now, err := strconv.ParseInt(clock, 10, 64)
	if !isText || !hasTime || err != nil || now <= 0 {
		return store.TaskReply{}, malformed()
	}
	record, err := parseTaskRecord(reply[2:])
	if err != nil {
		return store.TaskReply{}, err
	}
	return store.TaskReply{Verdict: verdict, Now: now, Record: record, Triggers: triggers}, nil
}

// triggerNames are those of the index that are names of tasks: anybody may write there.
func triggerNames(text string) (names []string) {
	for name := range strings.SplitSeq(text, " ") {
		if len(names) < store.MaxTriggers && store.RolePattern.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// parseTaskRecord reads the fields of a record, or those of a listing; nil is an absent one. What
// is refused, and what only counts as absent, is what read_task() in scripts.lua says.
func parseTaskRecord(fields []any) (store.TaskRecord, error) {
	var raw [31]string
	if len(fields) != len(taskFields) && len(fields) != len(listedFields) {
		return store.TaskRecord{}, fmt.Errorf("%w: a record of %d fields", store.ErrUnreachable, len(fields))
	}
	for i, field := range fields {
		text, _ := field.(string)
		switch {
		case isPlain(text):
			raw[i] = text
		case !slices.Contains(comparedFields, listedFields[i]):
			raw[i] = store.TaskText(text)
		}
	}
	r := store.TaskRecord{
		Due: raw[0], Next: store.Natural(raw[0]), Spec: raw[1], Token: store.Natural(raw[2]), Run: raw[3], Done: raw[4], Status: store.RunState(raw[5]),
		Scheduled: store.Natural(raw[6]), Started: store.Natural(raw[7]), Finished: store.Natural(raw[8]), Attempt: int(min(store.Natural(raw[9]), maxCount)),
		Crashes: int(min(store.Natural(raw[10]), maxCount)), Skipped: store.Natural(raw[11]), Paused: raw[12] == "1", Instance: raw[13], RunToken: store.Natural(raw[14]), Text: raw[15],
		Failures: int(min(store.Natural(raw[16]), maxCount)), RetryAt: store.Natural(raw[17]), Lease: raw[18], Pauses: raw[19], Trigger: raw[20], RunTrigger: raw[21], Args: raw[22],
		RetryIn: store.Natural(raw[23]), LastSuccess: store.Natural(raw[24]), FailedRuns: int(min(store.Natural(raw[25]), maxCount)), Pause: raw[26],
		Cancel: raw[27], TriggerRuns: store.Natural(raw[28]), Schedule: raw[29], Jitter: store.Natural(raw[30]),
	}
	if raw[2] != "" && (r.Token <= 0 || r.Token > lease.MaxToken) || r.Due != "" && r.Next == 0 && r.Due != "0" {
		return store.TaskRecord{}, fmt.Errorf("%w: the record of the task was written by something else", store.ErrMisconfigured)
	}
	return r, nil
}

const (
	maxCount = 1 << 30
	maxRuns  = 1000 // entries of a history that are read at once
	maxPages = 100  // of the index
)

func (s *Store) Names(ctx context.Context, limit int) (names []string, more bool, err error) {
	var cursor uint64
	seen := make(map[string]bool)
	for range maxPages { // whatever else somebody has put there
		cmd := redis.NewScanCmd(ctx, nil, "sscan", s.keys.Tasks(), cursor, "count", 500)
		if err := s.process(ctx, cmd); err != nil {
			return nil, false, s.explain("SSCAN", err)
		}
		page, next := cmd.Val()
		for _, name := range page {
			if seen[name] || !store.RolePattern.MatchString(name) {
				continue // SSCAN may repeat itself; what is no name of a task is not ours
			}
			if len(names) == limit {
				return names, true, nil
			}
			seen[name] = true
			names = append(names, name)
		}
		if cursor = next; cursor == 0 {
			return names, false, nil
		}
	}
	return names, true, nil
}

func (s *Store) Records(ctx context.Context, names []string) (int64, []store.TaskRecord, []error, error) {
	clock := redis.NewTimeCmd(ctx, "time")
	if err := s.process(ctx, clock); err != nil {
		return 0, nil, nil, s.explain("TIME", err)
	}
	records, problems := make([]store.TaskRecord, len(names)), make([]error, len(names))
	const batch = 100
	for start := 0; start < len(names); start += batch {
		part := names[start:min(start+batch, len(names))]
		replies := make([]redis.Cmder, len(part))
		for i, name := range part {
			args := []any{"hmget", s.keys.Task(name)}
			for _, field := range listedFields {
				args = append(args, field)
			}
			replies[i] = redis.NewSliceCmd(ctx, args...)
		}
		s.pipelined(ctx, s.keys.Task(part[0]), replies)
		for i, reply := range replies {
			err := reply.Err()
			if err == nil {
				records[start+i], problems[start+i] = parseTaskRecord(reply.(*redis.SliceCmd).Val())
				continue
			}
			err = s.explain("HMGET", err)
			if errors.Is(err, store.ErrUnreachable) {
				return 0, nil, nil, err
			}
			problems[start+i] = err
		}
	}
	return clock.Val().UnixMilli(), records, problems, nil
}

func (s *Store) Runs(ctx context.Context, name string, limit int) ([]store.Run, error) {
	cmd := redis.NewXMessageSliceCmd(ctx, "xrevrange", s.keys.Runs(name), "+", "-", "count", min(limit, maxRuns))
	if err := s.process(ctx, cmd); err != nil {
		return nil, s.explain("XREVRANGE", err)
	}
	runs := make([]store.Run, 0, len(cmd.Val()))
	for _, entry := range cmd.Val() {
		text := func(field string) string {
			value, _ := entry.Values[field].(string)
			return store.TaskText(value)
		}
		runs = append(runs, store.Run{
			Run: text("run"), Slot: store.Time(store.Natural(text("slot"))), Started: store.Time(store.Natural(text("started"))),
			Finished: store.Time(store.Natural(text("finished"))), Status: store.RunState(text("status")), Attempt: int(min(store.Natural(text("attempt")), maxCount)),
			Token: store.Natural(text("token")), InstanceID: text("instance"), Error: text("error"), Trigger: text("trigger"),
		})
	}
	return runs, nil
}
