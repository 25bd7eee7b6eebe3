package memstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// Registry keeps the instance of a coordinator without Redis. It is safe for concurrent use.
type Registry struct {
	// Wake is called when the log has got an entry. It is set before the first call, and must not
	// block.
	Wake func()

	began time.Time

	mu    sync.Mutex
	there bool
	own   store.Entry

	head, rest string // of its record, which are all but its times
	status     string // that its record says

	metrics []store.Metric
	pushed  time.Time // when; they are kept for keep
	keep    time.Duration
	history []store.Aggregate // the latest last
	log     []store.LogEntry  // oldest first
	last    [2]int64          // the ID of the newest entry
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{Wake: func() {}, began: time.Now()} }

// Note adds an entry to the log.
func (s *Registry) Note(e store.LogEntry) {
	s.mu.Lock()
	s.note(e)
	s.mu.Unlock()
	s.Wake()
}

func (s *Registry) note(e store.LogEntry) {
	if now := s.now(); now > s.last[0] {
		s.last = [2]int64{now, 0}
	} else {
		s.last[1]++
	}
	e.ID = fmt.Sprintf("%d-%d", s.last[0], s.last[1])
	if len(s.log) == store.MaxLog {
		s.log = slices.Delete(s.log, 0, 1)
	}
	s.log = append(s.log, e)
}

func (s *Registry) Log(_ context.Context, after string, limit int) (store.LogReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := 0
	if after != "" {
		from = 1 + slices.IndexFunc(s.log, func(e store.LogEntry) bool { return e.ID == after })
		if from == 0 {
			return store.LogReply{Gone: true}, nil
		}
	}
	return store.LogReply{Entries: slices.Clone(s.log[from:min(from+limit, len(s.log))])}, nil
}

func (s *Registry) LogEnd(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.log) == 0 {
		return "", nil
	}
	return s.log[len(s.log)-1].ID, nil
}

func (s *Registry) LogTail(_ context.Context, limit int) ([]store.LogEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log[max(0, len(s.log)-limit):]), nil
}

// now goes on with the monotonic clock, so that nobody grows old if somebody sets the other one.
func (s *Registry) now() int64 { return s.began.Add(time.Since(s.began)).UnixMilli() }

func (s *Registry) Heartbeat(_ context.Context, b store.Heartbeat) (store.HeartbeatReply, error) {
	defer s.Wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.status
	reply := store.HeartbeatReply{Verdict: membership.Kept, Now: s.now(), Started: b.Started, Instances: 1}
	seconds := reply.Now / 1000
	if !s.there {
		reply.Verdict, before = membership.Joined, ""
		s.note(store.LogEntry{Event: string(membership.Joined), Instances: []string{b.ID}})
	}
	if reply.Started == 0 {
		reply.Started = seconds
	}
	record := b.Head + store.RecordTimes(reply.Started, seconds) + b.Rest
	s.there, s.own = true, store.Entry{ID: b.ID, Beaten: true, Last: reply.Now, Record: record}
	if len(b.Metrics) > 0 {
		s.metrics, s.pushed, s.keep = b.Metrics, time.Now(), b.MetricsTTL
	}
	if b.Head != s.head || b.Rest != s.rest {
		is, _ := store.ParseInstance(record)
		s.head, s.rest, s.status = b.Head, b.Rest, is.Status
	}
	if s.status != before && (s.status == "active" || s.status == "draining") {
		s.note(store.LogEntry{Event: s.status, Instances: []string{b.ID}})
	}
	return reply, nil
}

func (s *Registry) Remove(context.Context, string, string) (string, error) {
	defer s.Wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there {
		return store.RemovedAbsent, nil
	}
	s.there = false
	s.note(store.LogEntry{Event: store.RemovedLeft, Instances: []string{s.own.ID}})
	return store.RemovedLeft, nil
}

func (s *Registry) Instance(_ context.Context, id string) (store.Entry, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there || s.own.ID != id {
		return store.Entry{}, 0, store.ErrNotFound
	}
	return s.own, s.now(), nil
}

func (s *Registry) Scan(_ context.Context, _ string, onlyNew bool) (store.ScanReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := store.ScanReply{Next: "0", Now: s.now()}
	if s.there && !onlyNew {
		page.Entries = []store.Entry{s.own}
	}
	return page, nil
}

func (s *Registry) Losses(context.Context) (held, lost int, err error) { return 0, 0, nil }

// Count says that there is a record without an index: who asks lists it.
func (s *Registry) Count(context.Context, time.Duration, time.Duration) (store.CountReply, error) {
	return store.CountReply{Records: 1}, nil
}

// There is nobody to sweep: the only one who could is the one that would be silent.

func (s *Registry) Look(context.Context, store.Look) (store.LookReply, error) {
	return store.LookReply{Now: s.now()}, nil
}

func (s *Registry) Sweep(_ context.Context, c store.Sweep) (store.SweepReply, error) {
	return store.SweepReply{Verdicts: make([]string, len(c.IDs))}, nil
}

func (s *Registry) Adopt(context.Context, string, []string) ([]string, error) {
	return nil, nil
}

func (s *Registry) Metrics(_ context.Context, ids []string) ([][]store.Metric, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([][]store.Metric, len(ids))
	for i, id := range ids {
		if id == s.own.ID && time.Since(s.pushed) < s.keep {
			all[i] = s.metrics
		}
	}
	return all, nil
}

func (s *Registry) Aggregate(_ context.Context, _ string, entry []store.MetricSummary) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history = append(s.history, store.Aggregate{At: store.Time(s.now()), Metrics: entry})
	if len(s.history) > store.MetricsHistory {
		s.history = slices.Delete(s.history, 0, 1)
	}
	return nil
}

func (s *Registry) Aggregates(_ context.Context, limit int) ([]store.Aggregate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	latest := slices.Clone(s.history[max(0, len(s.history)-limit):])
	slices.Reverse(latest)
	return latest, nil
}
