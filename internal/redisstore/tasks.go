package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	"cancel", "trigger_runs", "last_pause"}

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
	reply, err := s.ask(ctx, name, o)
	if s.askedForOther(o, err) {
		o.Other = ""
		return s.ask(ctx, name, o)
	}
	return reply, err
}

// askedForOther reports whether Redis may have refused a record to be opened since this client may
// not read the key of the other lease. Without that the record stays foreign.
func (s *Store) askedForOther(ask any, err error) bool {
	o, opens := ask.(store.TaskOpen)
	return opens && errors.Is(err, store.ErrMisconfigured) && s.askable(o.Other)
}

func (s *Store) Plan(ctx context.Context, name string, p store.TaskPlan) (store.TaskReply, error) {
	return s.ask(ctx, name, p)
}

func (s *Store) Claim(ctx context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	return s.ask(ctx, name, c)
}

func (s *Store) Finish(ctx context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	return s.ask(ctx, name, f)
}

func (s *Store) Retry(ctx context.Context, name string, r store.TaskRetry) (store.TaskReply, error) {
	return s.ask(ctx, name, r)
}

func (s *Store) Record(ctx context.Context, name string) (store.TaskReply, error) {
	return s.ask(ctx, name, store.TaskRead{})
}

func (s *Store) RecordAndTriggers(ctx context.Context, name, of string) (store.TaskReply, error) {
	return s.ask(ctx, name, store.TaskRead{Triggers: true, Of: of})
}

// ask makes one call for what store.AskTask asks for.
func (s *Store) ask(ctx context.Context, name string, ask any) (store.TaskReply, error) {
	call := s.taskRequest(name, ask)
	call.ask = ask
	return s.askTask(ctx, call)
}

// AskAll makes calls in one pipeline.
func (s *Store) AskAll(ctx context.Context, calls []store.TaskCall, done func(answered []int)) {
	requests := make([]request, len(calls))
	for i, c := range calls {
		requests[i] = s.taskRequest(c.Name, c.Ask)
		requests[i].store, requests[i].ctx, requests[i].ask = s, ctx, c.Ask
	}
	again := make([]bool, len(calls))
	s.tasks.doAll(requests, func(i int, cmd redis.Cmder, err error) {
		c := &calls[i]
		if c.Err = err; err == nil {
			c.Reply, c.Err = requests[i].taskReply(cmd)
		}
		again[i] = s.askedForOther(c.Ask, c.Err)
	}, func(taken []int) {
		if answered := slices.DeleteFunc(taken, func(i int) bool { return again[i] }); len(answered) > 0 {
			done(answered)
		}
	})
	var others sync.WaitGroup
	for i := range calls {
		if c := &calls[i]; again[i] {
			others.Go(func() { // ends with its call; awaited below
				o, _ := c.Ask.(store.TaskOpen)
				o.Other, c.Err = "", store.ErrCallEnded // stands if the client ends this goroutine
				defer func() { done([]int{i}) }()
				c.Reply, c.Err = s.ask(ctx, c.Name, o)
			})
		}
	}
	others.Wait()
}

// taskRequest is the call of a script for what store.AskTask asks for.
func (s *Store) taskRequest(name string, ask any) request {
	record := s.keys.Task(name)
	switch ask := ask.(type) {
	case store.TaskOpen:
		if s.askable(ask.Other) {
			return taskCall(s.scripts.openTask, "5", record, s.keys.Tasks(), ask.Other, store.LeaseSince(ask.Other), store.LeaseTerm(ask.Other),
				ask.Token, name, ask.Lease, ask.Schedule, ask.Jitter.Milliseconds(), store.KnownWithin.Milliseconds())
		}
		return taskCall(s.scripts.openTask, "2", record, s.keys.Tasks(), ask.Token, name, ask.Lease, ask.Schedule, ask.Jitter.Milliseconds())
	case store.TaskPlan:
		return taskCall(s.scripts.planTask, "1", record, ask.Token, ask.Expect, ask.Next, ask.Spec, ask.Skipped, flag(ask.Paused), ask.Pause)
	case store.TaskClaim:
		return taskCall(s.scripts.claimTask, "4", record, s.keys.Runs(name), s.keys.Tasks(), s.keys.Triggers(), ask.Token, ask.Run, ask.Kind,
			ask.Expect, ask.Slot, ask.Next, ask.Spec, ask.Instance, ask.Skipped, ask.Attempt, name, keep(ask.Keep, ask.KeepFor), ask.Pauses)
	case store.TaskRetry:
		return taskCall(s.scripts.retryTask, "1", record, ask.Token, ask.Run, ask.Attempt, ask.Failures, ask.In.Milliseconds())
	case store.TaskFinish:
		attempt, failures, retryIn := "", "", ""
		if ask.Attempt > 0 {
			attempt, failures = strconv.Itoa(ask.Attempt), strconv.Itoa(ask.Failures)
		}
		if ask.RetryIn > 0 {
			retryIn = strconv.FormatInt(ask.RetryIn.Milliseconds(), 10)
		}
		return taskCall(s.scripts.finishTask, "2", record, s.keys.Runs(name), ask.Token, ask.Run, string(ask.Status), ask.Text, attempt,
			failures, retryIn, keep(ask.Keep, ask.KeepFor))
	case store.TaskRead:
		if ask.Triggers {
			return taskCall(s.scripts.readTask, "2", record, s.keys.Triggers(), store.MaxTriggers, ask.Of)
		}
	}
	return taskCall(s.scripts.readTask, "1", record)
}

// askable reports whether a script may be given the key of a lease that a record names: the text is
// untrusted, and on a Redis Cluster one key in another slot refuses the whole call.
func (s *Store) askable(lease string) bool {
	role, isRole := strings.CutPrefix(lease, s.keys.Lease("")+":")
	written := isRole && store.RolePattern.MatchString(role) || lease == s.keys.Lease("") || store.IsKey(lease) && s.keys.Taken(lease) == ""
	return written && (!s.spread || store.HashTag(lease) == store.HashTag(s.keys.Tasks()))
}

func (s *Store) Pause(ctx context.Context, name string, paused bool, expect, why string) (store.TaskReply, error) {
	return s.askTask(ctx, taskCall(s.scripts.pauseTask, "1", s.keys.Task(name), flag(paused), expect, why))
}

func (s *Store) Trigger(ctx context.Context, name string, t store.TaskTrigger) (store.TaskReply, error) {
	return s.askTask(ctx, taskCall(s.scripts.triggerTask, "3", s.keys.Task(name), s.keys.Tasks(), s.keys.Triggers(), t.ID, t.Args, t.By, t.NotAfter,
		t.For.Milliseconds(), flag(t.Create), name, s.heardBy(t.Lease), t.Runs))
}

func (s *Store) Cancel(ctx context.Context, name string, c store.TaskCancel) (store.TaskReply, error) {
	return s.askTask(ctx, taskCall(s.scripts.cancelTask, "3", s.keys.Task(name), s.keys.Runs(name), s.keys.Triggers(), c.Run, name, c.For.Milliseconds(),
		s.heardBy(c.Lease), store.CanceledText, keep(c.Keep, c.KeepFor)))
}

func (s *Store) Forget(ctx context.Context, name string, f store.TaskForget) (store.TaskReply, error) {
	if !s.askable(f.Lease) {
		return store.TaskReply{}, fmt.Errorf("%w: the record of task %q names the lease %.100q, which this client may not ask for: remove %s and %s by hand",
			store.ErrMisconfigured, name, f.Lease, s.keys.Task(name), s.keys.Runs(name))
	}
	led := f.Led.Milliseconds()
	if f.Gone {
		led = -1
	}
	return s.askTask(ctx, taskCall(s.scripts.forgetTask, "7", s.keys.Task(name), s.keys.Runs(name), s.keys.Tasks(), s.keys.Triggers(),
		f.Lease, store.LeaseSince(f.Lease), store.LeaseTerm(f.Lease), name, led))
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

// taskCall is a call of a script of tasks: keys, then ARGV.
func taskCall(sc *script, keyCount string, args ...any) request {
	key, _ := args[0].(string)
	return request{script: sc, key: key, args: append(sc.args(keyCount, len(args)), args...), newCmd: newAny}
}

func (s *Store) askTask(ctx context.Context, call request) (store.TaskReply, error) {
	call.ctx = ctx
	cmd, err := s.tasks.do(s, call)
	if err != nil {
		return store.TaskReply{}, err
	}
	return call.taskReply(cmd)
}

// taskReply reads the reply to a call of a script of tasks.
func (r *request) taskReply(cmd redis.Cmder) (store.TaskReply, error) {
	reply, err := parseTaskReply(cmd.(*redis.Cmd).Val())
	if err != nil {
		return store.TaskReply{}, err
	}
	if !slices.Contains(taskVerdicts[r.script.name], reply.Verdict) {
		return store.TaskReply{}, fmt.Errorf("%w: %s answers %.100q", store.ErrUnreachable, r.script.name, reply.Verdict)
	}
	if !reply.Answers(r.ask) {
		return store.TaskReply{}, fmt.Errorf("%w: %s answers another call", store.ErrUnreachable, r.script.name)
	}
	return reply, nil
}

// mostReplied is how many texts a reply of a script of tasks has: verdict, time, the fields of the
// record, and the names of tasks of which a trigger waits.
const mostReplied = 33

// texts are the elements of a reply, or the lines of one that is a text; nil is "". It returns how
// many there are; more than it may return are none.
func texts(reply any, into *[mostReplied]string) (n int) {
	switch reply := reply.(type) {
	case string:
		for more := true; more; n++ {
			if n == len(into) {
				return 0
			}
			into[n], reply, more = strings.Cut(reply, "\n")
		}
	case []any:
		if n = len(reply); n > len(into) {
			return 0
		}
		for i, element := range reply {
			into[i], _ = element.(string)
		}
	}
	return n
}

// parseTaskReply reads what task_answer() in scripts.lua replies with, or a shortcut.
func parseTaskReply(reply any) (store.TaskReply, error) {
	malformed := func() error { return fmt.Errorf("%w: malformed reply %.100q", store.ErrUnreachable, reply) }
	var all [mostReplied]string
	n, last := texts(reply, &all), 2+len(taskFields)
	var triggers []string
	more := false
	if n == last+1 {
		triggers = triggerNames(all[last])
		more = strings.Count(all[last], " ") >= store.MaxTriggers-1
	} else if n != last {
		return store.TaskReply{}, malformed()
	}
	now, err := strconv.ParseInt(all[1], 10, 64)
	if all[0] == "" || err != nil || now <= 0 {
		return store.TaskReply{}, malformed()
	}
	record, err := parseTaskRecord(all[2:last])
	if err != nil {
		return store.TaskReply{}, err
	}
	return store.TaskReply{Verdict: all[0], Now: now, Record: record, Triggers: triggers, MoreTriggers: more}, nil
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

// parseTaskRecord reads the fields of a record, or those of a listing; "" is an absent one. What is
// refused, and what only counts as absent, is what read_task() in scripts.lua says.
func parseTaskRecord(fields []string) (store.TaskRecord, error) {
	var raw [32]string
	if len(fields) != len(taskFields) && len(fields) != len(listedFields) {
		return store.TaskRecord{}, fmt.Errorf("%w: a record of %d fields", store.ErrUnreachable, len(fields))
	}
	for i, text := range fields {
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
		Cancel: raw[27], TriggerRuns: store.Natural(raw[28]), Schedule: raw[30], Jitter: store.Natural(raw[31]),
	}
	since, until, _ := strings.Cut(raw[29], " ")
	r.PausedAt, r.ResumedAt = store.Natural(since), store.Natural(until)
	if raw[2] != "" && (r.Token <= 0 || r.Token > lease.MaxToken) || r.Due != "" && r.Next == 0 && r.Due != "0" {
		return store.TaskRecord{}, fmt.Errorf("%w: the record of the task was written by something else", store.ErrMisconfigured)
	}
	return r, nil
}

const (
	maxCount = 1 << 30
	maxRuns  = 1000 // entries of a history that are read at once
	pageSize = 500  // names of the index that are asked for at once
	maxPages = 100  // of the index, beside those that the wanted names fill
)

// Names takes one page if that is all. Else it begins anew, and asks with each page which server it
// is of: each start of a server orders a set in its own way, as does each replica, so that a cursor
// of another one would pass some names over. What was found stands.
func (s *Store) Names(ctx context.Context, limit int) (names []string, more bool, err error) {
	key := s.keys.Tasks()
	var cursor uint64
	server, paged := "", false
	seen := make(map[string]bool)
	for range 1 + maxPages + limit/pageSize { // whatever else somebody has put there
		cmd := redis.NewScanCmd(ctx, nil, "sscan", key, cursor, "count", pageSize)
		info := redis.NewStringCmd(ctx, "info", "server")
		if paged {
			s.pipelined(ctx, key, []redis.Cmder{cmd, info})
			err = cmd.Err()
		} else {
			err = s.read(ctx, key, cmd)
		}
		if err != nil {
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
		is := runID(info.Val()) // "" without the right to INFO
		switch {
		case !paged && next != 0, server != "" && is != server:
			cursor = 0
		case next == 0:
			return names, false, nil
		default:
			cursor = next
		}
		server, paged = is, true
	}
	return names, true, nil
}

// runID is that of the server which an INFO is of: each start of it has another one.
func runID(info string) string {
	_, rest, _ := strings.Cut(info, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}

func (s *Store) Records(ctx context.Context, names []string) (int64, []store.TaskRecord, []error, error) {
	clock := redis.NewTimeCmd(ctx, "time")
	s.pipelined(ctx, s.keys.Tasks(), []redis.Cmder{clock}) // TIME has no key: it is asked of the master that has the records
	if err := clock.Err(); err != nil {
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
				var fields [mostReplied]string
				n := texts(reply.(*redis.SliceCmd).Val(), &fields)
				records[start+i], problems[start+i] = parseTaskRecord(fields[:n])
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
	if err := s.read(ctx, s.keys.Runs(name), cmd); err != nil {
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
