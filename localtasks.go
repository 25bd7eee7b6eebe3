package tenure

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
)

// localTasks keeps the records of tasks in memory, for a coordinator without Redis: what scripts.lua does, in Go. Its clock is
// this machine's.
type localTasks struct {
	clock func() lease.Reading

	mu      sync.Mutex
	began   lease.Reading // what the time is counted from
	names   []string      // in the order of their first opening
	records map[string]*taskRecord
	history map[string][]TaskRecord
}

// maxHistory is how many runs of a task are kept.
const maxHistory = 100

func newLocalTasks() *localTasks {
	return &localTasks{clock: readClock, began: readClock(), records: make(map[string]*taskRecord), history: make(map[string][]TaskRecord)}
}

// now is the time by this machine's wall clock, ms. It goes on with the monotonic clock as long as the two agree. If they are more than
// a second apart, the machine was suspended or its clock was set: the wall clock is right, as Redis's own is. The mutex is held.
func (s *localTasks) now() int64 {
	reading := s.clock()
	counted := s.began.Wall + reading.Mono - s.began.Mono
	if apart := reading.Wall - counted; max(apart, -apart) > time.Second {
		s.began, counted = reading, reading.Wall
	}
	return counted.Milliseconds()
}

// decide runs one decision on a record, as a script does.
func (s *localTasks) decide(name string, token int64, decide func(r *taskRecord, now int64) string) (taskReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	r := s.records[name]
	if r == nil {
		r = new(taskRecord)
	}
	verdict := taskFenced
	if token >= r.token {
		verdict = decide(r, now)
	}
	return taskReply{verdict: verdict, now: now, record: *r}, nil
}

func (s *localTasks) openTask(_ context.Context, name string, o taskOpen) (taskReply, error) {
	return s.decide(name, o.token, func(r *taskRecord, _ int64) string {
		r.token, r.lease = o.token, o.lease // nobody else's: one coordinator has these records
		if s.records[name] == nil {
			s.records[name] = r
			s.names = append(s.names, name)
		}
		return taskOK
	})
}

func (s *localTasks) planTask(_ context.Context, name string, p taskPlan) (taskReply, error) {
	return s.decide(name, p.token, func(r *taskRecord, _ int64) string {
		due := strconv.FormatInt(p.next, 10)
		switch {
		case p.token > r.token:
			return taskMoved
		case r.due == due && r.spec == p.spec:
			return taskOK
		case r.due != p.expect:
			return taskMoved
		}
		r.due, r.next, r.spec = due, p.next, p.spec
		r.skipped += p.skipped
		r.paused = r.paused || p.paused && r.pauses == ""
		return taskOK
	})
}

func (s *localTasks) claimTask(_ context.Context, name string, c taskClaim) (taskReply, error) {
	return s.decide(name, c.token, func(r *taskRecord, now int64) string {
		switch {
		case r.run == c.run:
			return taskClaimed
		case c.token > r.token, r.done == c.run, r.run != "" && c.kind != claimAgain:
			return taskMoved
		}
		switch c.kind {
		case claimSlot:
			switch {
			case r.due != c.expect, r.spec != c.spec:
				return taskMoved
			case now < c.slot:
				return taskEarly
			}
			r.due, r.next = strconv.FormatInt(c.next, 10), c.next
			if r.paused {
				return taskPaused
			}
			r.scheduled, r.failures = c.slot, 0
			r.skipped += int64(c.skipped)
		default:
			switch {
			case c.kind == claimAgain && r.run != c.expect && (r.run != "" || r.done != c.expect):
				return taskMoved
			case c.kind == claimExtra && strconv.FormatInt(r.finished, 10) != c.expect:
				return taskMoved
			case r.paused:
				return taskPaused
			case c.kind == claimExtra:
				r.scheduled, r.failures = now, 0
			case r.run != "":
				r.crashes++
				s.remember(name, r, now, r.run, RunAbandoned, "")
			}
		}
		r.run, r.runToken, r.status, r.started, r.attempt, r.instance = c.run, c.token, RunRunning, now, c.attempt, c.instance
		r.retryAt = 0
		return taskClaimed
	})
}

func (s *localTasks) retryTask(_ context.Context, name string, t taskRetry) (taskReply, error) {
	return s.decide(name, t.token, func(r *taskRecord, now int64) string {
		switch {
		case r.run != t.run:
			return taskGone
		case r.attempt != t.attempt || r.failures != t.failures:
			r.attempt, r.failures, r.retryAt = t.attempt, t.failures, now+t.in.Milliseconds()
		}
		return taskOK
	})
}

func (s *localTasks) finishTask(_ context.Context, name string, f taskFinish) (taskReply, error) {
	return s.decide(name, f.token, func(r *taskRecord, now int64) string {
		switch {
		case r.run == f.run:
		case r.done == f.run:
			return taskDone
		default:
			if f.status == runReturned && f.token == r.token {
				r.done = f.run
			}
			return taskGone
		}
		r.run, r.done, r.status, r.finished, r.text = "", f.run, f.status, now, f.text
		if f.attempt > 0 {
			r.attempt, r.failures = f.attempt, f.failures
		}
		if f.retryIn > 0 {
			r.retryAt = now + f.retryIn.Milliseconds()
		}
		switch f.status {
		case RunAbandoned:
			r.crashes++
		case RunSucceeded, RunFailed:
			r.crashes = 0
		}
		if f.status != runReturned {
			s.remember(name, r, now, f.run, f.status, f.text)
		}
		return taskDone
	})
}

func (s *localTasks) remember(name string, r *taskRecord, now int64, run string, status RunStatus, text string) {
	s.history[name] = append(s.history[name], TaskRecord{
		Task: name, Run: run, Slot: redisTime(r.scheduled), Started: redisTime(r.started), Finished: redisTime(now), Status: status,
		Attempt: r.attempt, Token: r.runToken, InstanceID: r.instance, Error: text,
	})
	if runs := s.history[name]; len(runs) > maxHistory {
		s.history[name] = slices.Clone(runs[len(runs)-maxHistory:])
	}
}

func (s *localTasks) readTask(_ context.Context, name string) (taskReply, error) {
	return s.decide(name, lease.MaxToken, func(*taskRecord, int64) string { return taskOK })
}

func (s *localTasks) pauseTask(_ context.Context, name string, paused bool, expect string) (taskReply, error) {
	return s.decide(name, lease.MaxToken, func(r *taskRecord, _ int64) string {
		if s.records[name] == nil {
			return taskAbsent
		}
		if r.pauses != expect {
			return taskMoved
		}
		r.paused, r.pauses = paused, strconv.FormatInt(natural(r.pauses)+1, 10)
		return taskOK
	})
}

func (s *localTasks) taskNames(_ context.Context, limit int) ([]string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names[:min(len(s.names), limit)]), len(s.names) > limit, nil
}

func (s *localTasks) taskRecords(_ context.Context, names []string) ([]taskRecord, []error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]taskRecord, len(names))
	for i, name := range names {
		if r := s.records[name]; r != nil {
			records[i] = *r
		}
	}
	return records, make([]error, len(names)), nil
}

func (s *localTasks) taskRuns(_ context.Context, name string, limit int) ([]TaskRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := slices.Clone(s.history[name])
	slices.Reverse(runs)
	return runs[:min(len(runs), limit)], nil
}
