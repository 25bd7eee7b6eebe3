package memstore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/membership"
	"github.com/tenure-go/tenure/internal/store"
)

// Registry keeps the instance of a coordinator without Redis. It is safe for concurrent use.
type Registry struct {
	began time.Time

	mu    sync.Mutex
	there bool
	own   store.Entry

	metrics []store.Metric
	pushed  time.Time // when; they are kept for keep
	keep    time.Duration
	history []store.Aggregate // the latest last
}

// NewRegistry returns an empty registry.
func NewRegistry() *Registry { return &Registry{began: time.Now()} }

// now goes on with the monotonic clock, so that nobody grows old if somebody sets the other one.
func (s *Registry) now() int64 { return s.began.Add(time.Since(s.began)).UnixMilli() }

func (s *Registry) Heartbeat(_ context.Context, b store.Heartbeat) (store.HeartbeatReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := store.HeartbeatReply{Verdict: membership.Kept, Now: s.now(), Started: b.Started}
	seconds := reply.Now / 1000
	if !s.there {
		reply.Verdict = membership.Joined
	}
	if reply.Started == 0 {
		reply.Started = seconds
	}
	record := b.Head + store.RecordTimes(reply.Started, seconds) + b.Rest
	s.there, s.own = true, store.Entry{ID: b.ID, Beaten: true, Last: reply.Now, Record: record}
	if len(b.Metrics) > 0 {
		s.metrics, s.pushed, s.keep = b.Metrics, time.Now(), b.MetricsTTL
	}
	return reply, nil
}

func (s *Registry) Remove(context.Context, string, string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there {
		return store.RemovedAbsent, nil
	}
	s.there = false
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

func (s *Registry) Aggregate(_ context.Context, entry []store.MetricSummary) error {
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
