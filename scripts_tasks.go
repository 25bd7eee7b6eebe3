package tenure

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
)

// taskStore keeps the records of tasks. Each method is one decision there, which may be asked for again when its answer was
// lost. They are bounded by ctx only as far as the client heeds it, and safe for concurrent use.
type taskStore interface {
	openTask(ctx context.Context, name string, o taskOpen) (taskReply, error)
	planTask(ctx context.Context, name string, p taskPlan) (taskReply, error)
	claimTask(ctx context.Context, name string, c taskClaim) (taskReply, error)
	retryTask(ctx context.Context, name string, r taskRetry) (taskReply, error)
	finishTask(ctx context.Context, name string, f taskFinish) (taskReply, error)
	readTask(ctx context.Context, name string) (taskReply, error)
	// pauseTask wants the field pauses of the record as it was read.
	pauseTask(ctx context.Context, name string, paused bool, expect string) (taskReply, error)

	// taskNames lists the index, at most limit names, and whether there are more.
	taskNames(ctx context.Context, limit int) (names []string, more bool, err error)
	// taskRecords reads many records; each has an error of its own.
	taskRecords(ctx context.Context, names []string) ([]taskRecord, []error, error)
	taskRuns(ctx context.Context, name string, limit int) ([]TaskRecord, error)
}

// taskOpen takes a record over for a term.
type taskOpen struct {
	token int64
	lease string // key of the lease; "": there is only one
	other string // that of another role, which the record was found to say it belongs to: untrusted; "": none
}

// taskPlan moves the next slot without a run.
type taskPlan struct {
	token   int64
	expect  string // the field next as it was read
	next    int64
	spec    string
	skipped int64
	paused  bool // it was, before its record was lost
}

// taskClaim claims a slot, or what else is to run, for one run.
type taskClaim struct {
	token      int64
	run        string // ID, drawn for this claim
	kind       string
	expect     string // slot: the field next as it was read; again: ID of the run left behind; extra: when a run last ended, as it was read
	slot, next int64
	spec       string
	instance   string
	skipped    int
	attempt    int
}

// What is claimed.
const (
	claimSlot  = "slot"
	claimAgain = "again" // a run that another leader left behind
	claimExtra = "extra" // outside the schedule
)

// taskRetry notes the attempt that is to follow a failed one.
type taskRetry struct {
	token    int64
	run      string
	attempt  int
	failures int
	in       time.Duration
}

// taskFinish ends a run.
type taskFinish struct {
	token    int64
	run      string
	status   RunStatus
	text     string
	attempt  int           // 0: leave it, and the failures
	failures int           // attempts that have failed
	retryIn  time.Duration // until the next attempt; 0: leave it
}

// verdicts of the task scripts.
const (
	taskOK      = "ok"
	taskClaimed = "claimed"
	taskEarly   = "early"  // not due by Redis's clock
	taskPaused  = "paused" // the slot has passed without a run
	taskMoved   = "moved"  // the record is not what it was when it was read
	taskDone    = "done"
	taskGone    = "gone" // the record knows no such run
	taskFenced  = "fenced"
	taskForeign = "foreign" // the record is another lease's
	taskAbsent  = "absent"
)

// taskVerdicts are the answers that each task script may give. Any other is the reply of something else.
var taskVerdicts = map[string][]string{
	"open_task":   {taskOK, taskFenced, taskForeign},
	"plan_task":   {taskOK, taskMoved, taskFenced},
	"claim_task":  {taskClaimed, taskEarly, taskPaused, taskMoved, taskFenced},
	"retry_task":  {taskOK, taskGone, taskFenced},
	"finish_task": {taskDone, taskGone, taskFenced},
	"read_task":   {taskOK},
	"pause_task":  {taskOK, taskAbsent, taskMoved},
}

// taskReply is the typed reply of a task script.
type taskReply struct {
	verdict string
	now     int64 // by Redis's clock, ms
	record  taskRecord
}

// taskRecord is what the record of a task holds. Texts are untrusted, times are in ms of Redis's clock, and what is no number
// there is 0 here.
type taskRecord struct {
	due                          string // the field next as it is there; "" in a new record
	next                         int64  // 0: no further slot, or none yet
	spec                         string
	token                        int64
	run, done                    string // ID of the run that is on, of the last one that ended
	status                       RunStatus
	scheduled, started, finished int64
	attempt, crashes             int
	skipped                      int64
	paused                       bool
	instance                     string
	runToken                     int64 // of the last run; token is that of the last leader
	text                         string
	failures                     int    // attempts of the last run that have failed
	retryAt                      int64  // its next attempt is due; 0: at once
	lease                        string // key of the lease whose leader runs the task
	pauses                       string // how often it was paused or resumed, as it is there
}

// taskFields are the fields of a record in the order in which scripts.lua replies with them.
var taskFields = []string{"next", "spec", "token", "run", "done", "status", "last_scheduled", "last_started", "last_finished", "attempt",
	"crashes", "skipped", "paused", "instance", "run_token", "error", "failures", "retry_at", "lease", "pauses"}

// comparedFields are texts that count as absent unless they are plain: scripts compare them with what was read.
var comparedFields = []string{"spec", "run", "done", "pauses"}

// isPlain reports whether a text may be one that tenure wrote for the scripts to compare.
func isPlain(text string) bool {
	return len(text) <= maxTaskText && strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

func (s *redisStore) openTask(ctx context.Context, name string, o taskOpen) (taskReply, error) {
	record, index := s.keys.task(name), s.keys.tasks()
	if s.askable(o.other) {
		reply, err := s.askTask(ctx, s.scripts.openTask, "3", record, index, o.other, o.token, name, o.lease)
		if !errors.Is(err, ErrMisconfigured) { // perhaps this client may not read that key: the record stays foreign then
			return reply, err
		}
	}
	return s.askTask(ctx, s.scripts.openTask, "2", record, index, o.token, name, o.lease)
}

// askable reports whether a script may be given the key of a lease that a record names: the text is untrusted, and on a Redis Cluster
// one key in another slot refuses the whole call.
func (s *redisStore) askable(lease string) bool {
	role, isRole := strings.CutPrefix(lease, s.keys.lease("")+":")
	written := isRole && rolePattern.MatchString(role) || lease == s.keys.lease("") || isKey(lease) && s.keys.taken(lease) == ""
	return written && (!s.spread || hashTag(lease) == hashTag(s.keys.tasks()))
}

func (s *redisStore) planTask(ctx context.Context, name string, p taskPlan) (taskReply, error) {
	return s.askTask(ctx, s.scripts.planTask, "1", s.keys.task(name), p.token, p.expect, p.next, p.spec, p.skipped, flag(p.paused))
}

func (s *redisStore) claimTask(ctx context.Context, name string, c taskClaim) (taskReply, error) {
	reply, err := s.askTask(ctx, s.scripts.claimTask, "3", s.keys.task(name), s.keys.runs(name), s.keys.tasks(), c.token, c.run, c.kind,
		c.expect, c.slot, c.next, c.spec, c.instance, c.skipped, c.attempt, name)
	if err == nil && reply.verdict == taskClaimed && reply.record.run != c.run {
		return taskReply{}, fmt.Errorf("%w: %s answers about run %.100q", ErrUnreachable, s.scripts.claimTask.name, reply.record.run)
	}
	return reply, err
}

func (s *redisStore) finishTask(ctx context.Context, name string, f taskFinish) (taskReply, error) {
	attempt, failures, retryIn := "", "", ""
	if f.attempt > 0 {
		attempt, failures = strconv.Itoa(f.attempt), strconv.Itoa(f.failures)
	}
	if f.retryIn > 0 {
		retryIn = strconv.FormatInt(f.retryIn.Milliseconds(), 10)
	}
	return s.askTask(ctx, s.scripts.finishTask, "2", s.keys.task(name), s.keys.runs(name), f.token, f.run, string(f.status), f.text, attempt,
		failures, retryIn)
}

func (s *redisStore) retryTask(ctx context.Context, name string, r taskRetry) (taskReply, error) {
	return s.askTask(ctx, s.scripts.retryTask, "1", s.keys.task(name), r.token, r.run, r.attempt, r.failures, r.in.Milliseconds())
}

func (s *redisStore) readTask(ctx context.Context, name string) (taskReply, error) {
	return s.askTask(ctx, s.scripts.readTask, "1", s.keys.task(name))
}

func (s *redisStore) pauseTask(ctx context.Context, name string, paused bool, expect string) (taskReply, error) {
	return s.askTask(ctx, s.scripts.pauseTask, "1", s.keys.task(name), flag(paused), expect)
}

// flag is how the scripts take a yes or a no.
func flag(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

func (s *redisStore) askTask(ctx context.Context, sc *script, keyCount string, args ...any) (taskReply, error) {
	reply, err := s.list(ctx, sc, append(sc.args(keyCount, len(args)), args...))
	if err != nil {
		return taskReply{}, err
	}
	answer, err := parseTaskReply(reply)
	if err == nil && !slices.Contains(taskVerdicts[sc.name], answer.verdict) {
		return taskReply{}, fmt.Errorf("%w: %s answers %.100q", ErrUnreachable, sc.name, answer.verdict)
	}
	return answer, err
}

// parseTaskReply reads the list that task_answer() in scripts.lua writes.
func parseTaskReply(reply []any) (taskReply, error) {
	malformed := fmt.Errorf("%w: malformed reply %.100q", ErrUnreachable, reply)
	if len(reply) != 2+len(taskFields) {
		return taskReply{}, malformed
	}
	verdict, isText := reply[0].(string)
	clock, hasTime := reply[1].(string)
	now, err := strconv.ParseInt(clock, 10, 64)
	if !isText || !hasTime || err != nil || now <= 0 {
		return taskReply{}, malformed
	}
	record, err := parseTaskRecord(reply[2:])
	if err != nil {
		return taskReply{}, err
	}
	return taskReply{verdict: verdict, now: now, record: record}, nil
}

// parseTaskRecord reads the fields of a record, where nil is an absent one. What is refused, and what only counts as absent, is
// what read_task() in scripts.lua says.
func parseTaskRecord(fields []any) (taskRecord, error) {
	var raw [20]string
	if len(fields) != len(raw) {
		return taskRecord{}, fmt.Errorf("%w: a record of %d fields", ErrUnreachable, len(fields))
	}
	for i, field := range fields {
		text, _ := field.(string)
		raw[i] = taskText(text)
		if slices.Contains(comparedFields, taskFields[i]) && !isPlain(text) {
			raw[i] = ""
		}
	}
	r := taskRecord{
		due: raw[0], next: natural(raw[0]), spec: raw[1], token: natural(raw[2]), run: raw[3], done: raw[4], status: RunStatus(raw[5]),
		scheduled: natural(raw[6]), started: natural(raw[7]), finished: natural(raw[8]), attempt: int(min(natural(raw[9]), maxCount)),
		crashes: int(min(natural(raw[10]), maxCount)), skipped: natural(raw[11]), paused: raw[12] == "1", instance: raw[13], runToken: natural(raw[14]), text: raw[15],
		failures: int(min(natural(raw[16]), maxCount)), retryAt: natural(raw[17]), lease: raw[18], pauses: raw[19],
	}
	if raw[2] != "" && (r.token <= 0 || r.token > lease.MaxToken) || r.due != "" && r.next == 0 && r.due != "0" {
		return taskRecord{}, fmt.Errorf("%w: the record of the task was written by something else", ErrMisconfigured)
	}
	return r, nil
}

const (
	maxTaskText = 1024 // bytes of a text that is kept, or read back
	maxCount    = 1 << 30
	maxRuns     = 1000 // entries of a history that are read at once
	maxPages    = 100  // of the index
)

// taskText is as much of a text as is kept, or read back.
func taskText(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxTaskText)], "\uFFFD") // may be longer than what it replaces
	return strings.ToValidUTF8(text[:min(len(text), maxTaskText)], "")
}

// natural reads a number that tenure wrote, and 0 where the text is none.
func natural(text string) int64 {
	if len(text) > 16 {
		return 0
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0
	}
	return int64(n)
}

func (s *redisStore) taskNames(ctx context.Context, limit int) (names []string, more bool, err error) {
	var cursor uint64
	seen := make(map[string]bool)
	for range maxPages { // whatever else somebody has put there
		cmd := redis.NewScanCmd(ctx, nil, "sscan", s.keys.tasks(), cursor, "count", 500)
		if err := s.process(ctx, cmd); err != nil {
			return nil, false, s.explain("SSCAN", err)
		}
		page, next := cmd.Val()
		for _, name := range page {
			if seen[name] || !rolePattern.MatchString(name) {
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

func (s *redisStore) taskRecords(ctx context.Context, names []string) ([]taskRecord, []error, error) {
	records, problems := make([]taskRecord, len(names)), make([]error, len(names))
	const batch = 100
	for start := 0; start < len(names); start += batch {
		part := names[start:min(start+batch, len(names))]
		replies := make([]redis.Cmder, len(part))
		for i, name := range part {
			args := []any{"hmget", s.keys.task(name)}
			for _, field := range taskFields {
				args = append(args, field)
			}
			replies[i] = redis.NewSliceCmd(ctx, args...)
		}
		s.pipelined(ctx, s.keys.task(part[0]), replies)
		for i, reply := range replies {
			err := reply.Err()
			if err == nil {
				records[start+i], problems[start+i] = parseTaskRecord(reply.(*redis.SliceCmd).Val())
				continue
			}
			err = s.explain("HMGET", err)
			if errors.Is(err, ErrUnreachable) {
				return nil, nil, err
			}
			problems[start+i] = err
		}
	}
	return records, problems, nil
}

func (s *redisStore) taskRuns(ctx context.Context, name string, limit int) ([]TaskRecord, error) {
	cmd := redis.NewXMessageSliceCmd(ctx, "xrevrange", s.keys.runs(name), "+", "-", "count", min(limit, maxRuns))
	if err := s.process(ctx, cmd); err != nil {
		return nil, s.explain("XREVRANGE", err)
	}
	runs := make([]TaskRecord, 0, len(cmd.Val()))
	for _, entry := range cmd.Val() {
		text := func(field string) string {
			value, _ := entry.Values[field].(string)
			return taskText(value)
		}
		runs = append(runs, TaskRecord{
			Task: name, Run: text("run"), Slot: redisTime(natural(text("slot"))), Started: redisTime(natural(text("started"))),
			Finished: redisTime(natural(text("finished"))), Status: RunStatus(text("status")), Attempt: int(min(natural(text("attempt")), maxCount)),
			Token: natural(text("token")), InstanceID: text("instance"), Error: text("error"),
		})
	}
	return runs, nil
}

// redisTime is a time of Redis's clock; 0 is none.
func redisTime(ms int64) time.Time {
	const year10000 = 253402300800000 // no date from there on can be written as JSON
	if ms == 0 || ms >= year10000 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
