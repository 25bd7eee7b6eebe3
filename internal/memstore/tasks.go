package memstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Tasks keeps the records of tasks in memory, for a coordinator without Redis: what scripts.lua
// does, in Go. Its clock is this machine's.
type Tasks struct {
	clock func() lease.Reading
	terms *terms // of the leaders that may know a task; nil: one coordinator has these records

	mu      sync.Mutex
	began   lease.Reading // what the time is counted from
	names   []string      // in the order of their first opening
	records map[string]*store.TaskRecord
	history map[string][]store.Run
	given   map[string]given
}

// given is what a record says of triggers, and no reply does.
type given struct {
	args      string   // of the trigger that waits
	triggered []string // IDs of the last that were claimed, the youngest first
	forgotten int64    // when the history goes; 0: it stays
}

// NewTasks returns a store without records that lives by the given clocks.
func NewTasks(clock func() lease.Reading) *Tasks {
	return &Tasks{clock: clock, began: clock(), records: make(map[string]*store.TaskRecord), history: make(map[string][]store.Run), given: make(map[string]given)}
}

// now is the time by this machine's wall clock, ms. It goes on with the monotonic clock as long as
// the two agree. If they are more than a second apart, the machine was suspended or its clock was
// set: the wall clock is right, as Redis's own is. The mutex is held.
func (s *Tasks) now() int64 {
	reading := s.clock()
	counted := s.began.Wall + reading.Mono - s.began.Mono
	if apart := reading.Wall - counted; max(apart, -apart) > time.Second {
		s.began, counted = reading, reading.Wall
	}
	return counted.Milliseconds()
}

// Change lets somebody else write to the records, as another program does, or a failover of Redis
// that loses some. Only tests call it.
func (s *Tasks) Change(change func(records map[string]*store.TaskRecord)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.records)
	s.names = slices.DeleteFunc(s.names, func(name string) bool { return s.records[name] == nil })
}

// decide runs one decision on a record, as a script does.
func (s *Tasks) decide(name string, token int64, decide func(r *store.TaskRecord, now int64) string) (store.TaskReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	r := s.records[name]
	if r == nil {
		r = new(store.TaskRecord)
	}
	verdict := store.TaskFenced
	if token >= r.Token {
		verdict = decide(r, now)
	}
	return store.TaskReply{Verdict: verdict, Now: now, Record: *r}, nil
}

func (s *Tasks) Open(_ context.Context, name string, o store.TaskOpen) (store.TaskReply, error) {
	return s.decide(name, o.Token, func(r *store.TaskRecord, _ int64) string {
		r.Token, r.Lease, r.Schedule, r.Jitter = o.Token, o.Lease, o.Schedule, o.Jitter.Milliseconds() // nobody else's: one coordinator has these records
		if s.records[name] == nil {
			s.records[name] = r
			s.names = append(s.names, name)
		}
		return store.TaskOK
	})
}

func (s *Tasks) Plan(_ context.Context, name string, p store.TaskPlan) (store.TaskReply, error) {
	return s.decide(name, p.Token, func(r *store.TaskRecord, _ int64) string {
		due := strconv.FormatInt(p.Next, 10)
		switch {
		case p.Token > r.Token:
			return store.TaskMoved
		case r.Due == due && r.Spec == p.Spec:
			return store.TaskOK
		case r.Due != p.Expect:
			return store.TaskMoved
		}
		r.Due, r.Next, r.Spec = due, p.Next, p.Spec
		r.Skipped += p.Skipped
		if p.Paused && r.Pauses == "" {
			r.Paused, r.Pause = true, p.Pause
		}
		return store.TaskOK
	})
}

func (s *Tasks) Claim(_ context.Context, name string, c store.TaskClaim) (store.TaskReply, error) {
	return s.decide(name, c.Token, func(r *store.TaskRecord, now int64) string {
		switch {
		case r.Run == c.Run:
			return store.TaskClaimed
		case c.Token > r.Token, r.Done == c.Run, r.Run != "" && c.Kind != store.ClaimAgain:
			return store.TaskMoved
		}
		switch c.Kind {
		case store.ClaimSlot:
			switch {
			case r.Due != c.Expect, r.Spec != c.Spec:
				return store.TaskMoved
			case now < c.Slot:
				return store.TaskEarly
			}
			r.Due, r.Next = strconv.FormatInt(c.Next, 10), c.Next
			switch {
			case r.Paused:
				return store.TaskPaused
			case r.Pauses != c.Pauses:
				return store.TaskMoved
			}
			r.Scheduled, r.Failures = c.Slot, 0
			r.Skipped += int64(c.Skipped)
			r.RunTrigger, r.Args = "", ""
		case store.ClaimTrigger:
			if verdict := s.claimTrigger(name, r, c, now); verdict != store.TaskClaimed {
				return verdict
			}
		default:
			switch {
			case c.Kind == store.ClaimAgain && r.Run != c.Expect && (r.Run != "" || r.Done != c.Expect):
				return store.TaskMoved
			case c.Kind == store.ClaimAgain && r.Cancel == c.Expect:
				return store.TaskMoved
			case c.Kind == store.ClaimExtra && strconv.FormatInt(r.Finished, 10) != c.Expect:
				return store.TaskMoved
			case r.Paused:
				return store.TaskPaused
			case c.Kind == store.ClaimExtra:
				r.Scheduled, r.Failures, r.RunTrigger, r.Args = now, 0, "", ""
			case r.Run != "":
				r.Crashes++
				s.remember(name, c.Keep, c.KeepFor, r, now, r.Run, store.RunAbandoned, "")
			}
		}
		r.Run, r.RunToken, r.Status, r.Started, r.Attempt, r.Instance = c.Run, c.Token, store.RunRunning, now, c.Attempt, c.Instance
		r.RetryAt = 0
		return store.TaskClaimed
	})
}

func (s *Tasks) Retry(_ context.Context, name string, t store.TaskRetry) (store.TaskReply, error) {
	return s.decide(name, t.Token, func(r *store.TaskRecord, now int64) string {
		switch {
		case r.Run != t.Run:
			return store.TaskGone
		case r.Attempt < t.Attempt: // else it was noted before, or is late
			r.Attempt, r.Failures, r.RetryAt, r.RetryIn = t.Attempt, t.Failures, now+t.In.Milliseconds(), t.In.Milliseconds()
		}
		return store.TaskOK
	})
}

func (s *Tasks) Finish(_ context.Context, name string, f store.TaskFinish) (store.TaskReply, error) {
	return s.decide(name, f.Token, func(r *store.TaskRecord, now int64) string {
		waits := f.Status == store.RunAbandoned && r.Waiting() == f.Run
		switch {
		case r.Run == f.Run, waits:
		case r.Done == f.Run:
			return store.TaskDone
		default:
			if f.Status == store.RunReturned && f.Token == r.Token {
				r.Done = f.Run
			}
			return store.TaskGone
		}
		if r.Cancel == f.Run && (f.Status == store.RunInterrupted || f.Status == store.RunReturned) {
			f.Status = store.RunCanceled
		}
		r.Run, r.Done, r.Status, r.Finished, r.Text = "", f.Run, f.Status, now, f.Text
		if f.Attempt > 0 {
			r.Attempt, r.Failures = f.Attempt, f.Failures
		}
		if f.RetryIn > 0 {
			r.RetryAt, r.RetryIn = now+f.RetryIn.Milliseconds(), f.RetryIn.Milliseconds()
		}
		switch f.Status {
		case store.RunAbandoned:
			if !waits {
				r.Crashes++
			}
			r.FailedRuns++
		case store.RunFailed:
			r.Crashes = 0
			r.FailedRuns++
		case store.RunSucceeded:
			r.Crashes, r.FailedRuns, r.LastSuccess = 0, 0, now
		}
		if f.Status != store.RunReturned {
			s.remember(name, f.Keep, f.KeepFor, r, now, f.Run, f.Status, f.Text)
		}
		return store.TaskDone
	})
}

func (s *Tasks) remember(name string, keep store.Keep, lasts time.Duration, r *store.TaskRecord, now int64, run string, status store.RunState, text string) {
	most := keep.Runs()
	if most == 0 {
		return
	}
	s.expire(name, now)
	s.history[name] = append(s.history[name], store.Run{
		Run: run, Slot: store.Time(r.Scheduled), Started: store.Time(r.Started), Finished: store.Time(now), Status: status,
		Attempt: r.Attempt, Token: r.RunToken, InstanceID: r.Instance, Error: store.RunError(text), Trigger: r.RunTrigger,
	})
	if runs := s.history[name]; len(runs) > most {
		s.history[name] = slices.Clone(runs[len(runs)-most:])
	}
	if lasts > 0 {
		g := s.given[name]
		g.forgotten = now + lasts.Milliseconds()
		s.given[name] = g
	}
}

// expire drops a history whose time is over. The mutex is held.
func (s *Tasks) expire(name string, now int64) {
	if g := s.given[name]; g.forgotten != 0 && g.forgotten <= now {
		delete(s.history, name)
		g.forgotten = 0
		s.given[name] = g
	}
}

func (s *Tasks) Record(_ context.Context, name string) (store.TaskReply, error) {
	return s.decide(name, lease.MaxToken, func(*store.TaskRecord, int64) string { return store.TaskOK })
}

func (s *Tasks) Pause(_ context.Context, name string, paused bool, expect, why string) (store.TaskReply, error) {
	return s.decide(name, lease.MaxToken, func(r *store.TaskRecord, now int64) string {
		if s.records[name] == nil {
			return store.TaskAbsent
		}
		if r.Pauses != expect {
			return store.TaskMoved
		}
		switch {
		case paused && !r.Paused:
			r.PausedAt, r.ResumedAt = now, 0
		case !paused && r.Paused:
			r.ResumedAt = now
		}
		r.Paused, r.Pause, r.Pauses = paused, "", strconv.FormatInt(store.Natural(r.Pauses)+1, 10)
		if paused {
			r.Pause = fmt.Sprint(now, " ", why)
		}
		return store.TaskOK
	})
}

func (s *Tasks) Cancel(_ context.Context, name string, c store.TaskCancel) (store.TaskReply, error) {
	defer s.terms.hasNews()
	return s.decide(name, lease.MaxToken, func(r *store.TaskRecord, now int64) string {
		waits := r.Run == "" && r.Done == c.Run && (r.Status == store.RunInterrupted || r.Status == store.RunReturned)
		switch {
		case s.records[name] == nil:
			return store.TaskAbsent
		case r.Cancel == c.Run && (r.Run == c.Run || r.Done == c.Run):
			return store.TaskOK
		case r.Run != c.Run && !waits:
			return store.TaskMoved
		}
		r.Cancel = c.Run
		if waits {
			r.Status, r.Text = store.RunCanceled, store.CanceledText
			s.remember(name, c.Keep, c.KeepFor, r, now, c.Run, r.Status, r.Text)
		}
		return store.TaskOK
	})
}

// Forget asks no leader if one coordinator has these records: it has not registered the task.
func (s *Tasks) Forget(_ context.Context, name string, f store.TaskForget) (store.TaskReply, error) {
	return s.decide(name, lease.MaxToken, func(r *store.TaskRecord, now int64) string {
		if s.records[name] == nil {
			return store.TaskAbsent
		}
		if s.terms != nil {
			switch leads := s.terms.of(f.Lease); {
			case r.Lease != "" && r.Lease != f.Lease:
				return store.TaskKnown // of another role since it was read
			case f.Gone && leads.holder != "":
				return store.TaskKnown
			case f.Gone:
			case leads.holder == "", leads.since*1000 > now-f.Led.Milliseconds():
				return store.TaskUnled
			case leads.token <= r.Token:
				return store.TaskKnown
			}
		}
		delete(s.records, name)
		delete(s.history, name)
		delete(s.given, name)
		s.names = slices.DeleteFunc(s.names, func(other string) bool { return other == name })
		return store.TaskOK
	})
}

// claimTrigger claims the trigger that waits. The mutex is held.
func (s *Tasks) claimTrigger(name string, r *store.TaskRecord, c store.TaskClaim, now int64) string {
	g := s.given[name]
	switch {
	case r.Trigger == "" || r.Trigger != c.Expect:
		return store.TaskMoved
	case triggerEnds(r) <= now:
		r.Trigger, g.args = "", ""
		s.given[name] = g
		return store.TaskExpired
	case r.Paused:
		return store.TaskPaused
	}
	id := r.TriggerID()
	g.triggered = slices.Concat([]string{id}, g.triggered[:min(len(g.triggered), store.KeptTriggers-1)])
	r.Scheduled, r.Failures, r.RunTrigger, r.Args, r.Trigger = now, 0, id, g.args, ""
	r.TriggerRuns++
	g.args = ""
	s.given[name] = g
	return store.TaskClaimed
}

// triggerEnds is when the time of the trigger that waits is over; 0: there is none.
func triggerEnds(r *store.TaskRecord) int64 {
	if parts := strings.Fields(r.Trigger); len(parts) > 1 {
		return store.Natural(parts[1])
	}
	return 0
}

func (s *Tasks) Trigger(_ context.Context, name string, t store.TaskTrigger) (store.TaskReply, error) {
	defer s.terms.hasNews()
	return s.decide(name, lease.MaxToken, func(r *store.TaskRecord, now int64) string {
		g := s.given[name]
		switch {
		case r.TriggerID() == t.ID, slices.Contains(g.triggered, t.ID):
			return store.TaskOK
		case r.TriggerRuns-t.Runs > store.KeptTriggers:
			return store.TaskMoved
		case now > t.NotAfter:
			return store.TaskStale
		case s.records[name] == nil && !t.Create:
			return store.TaskAbsent
		case triggerEnds(r) > now:
			return store.TaskWaiting
		}
		if s.records[name] == nil {
			s.records[name] = r
			s.names = append(s.names, name)
		}
		r.Trigger = fmt.Sprint(t.ID, " ", now+t.For.Milliseconds(), " ", t.By)
		g.args = t.Args
		s.given[name] = g
		return store.TaskOK
	})
}

func (s *Tasks) RecordAndTriggers(ctx context.Context, name, of string) (store.TaskReply, error) {
	reply, err := s.Record(ctx, name)
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names
	if of != "" {
		names = strings.Fields(of)
	}
	for _, name := range names {
		r := s.records[name]
		if len(reply.Triggers) < store.MaxTriggers && r != nil && (r.Trigger != "" || r.Run != "" && r.Cancel == r.Run) {
			reply.Triggers = append(reply.Triggers, name)
		}
	}
	reply.MoreTriggers = len(reply.Triggers) == store.MaxTriggers
	return reply, err
}

func (s *Tasks) Names(_ context.Context, limit int) ([]string, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names[:min(len(s.names), limit)]), len(s.names) > limit, nil
}

func (s *Tasks) Records(_ context.Context, names []string) (int64, []store.TaskRecord, []error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	records := make([]store.TaskRecord, len(names))
	for i, name := range names {
		if r := s.records[name]; r != nil {
			records[i] = *r
		}
	}
	return s.now(), records, make([]error, len(names)), nil
}

func (s *Tasks) Runs(_ context.Context, name string, limit int) ([]store.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(name, s.now())
	runs := slices.Clone(s.history[name])
	slices.Reverse(runs)
	return runs[:min(len(runs), limit)], nil
}
