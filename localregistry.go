package tenure

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// localRegistry keeps the instance of a coordinator without Redis. It is safe for concurrent use.
type localRegistry struct {
	began time.Time

	mu    sync.Mutex
	there bool
	own   instanceEntry
}

func newLocalRegistry() *localRegistry { return &localRegistry{began: time.Now()} }

// now goes on with the monotonic clock, so that nobody grows old where somebody sets the other one.
func (s *localRegistry) now() int64 { return s.began.Add(time.Since(s.began)).UnixMilli() }

func (s *localRegistry) beatInstance(_ context.Context, b beatCall) (beatReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := beatReply{verdict: beatKept, now: s.now(), started: b.started}
	seconds := reply.now / 1000
	if !s.there {
		reply.verdict = beatJoined
	}
	if reply.started == 0 {
		reply.started = seconds
	}
	record := b.head + strconv.FormatInt(reply.started, 10) + `,"last_heartbeat":` + strconv.FormatInt(seconds, 10) + b.rest
	s.there, s.own = true, instanceEntry{id: b.id, beaten: true, last: reply.now, record: record}
	return reply, nil
}

func (s *localRegistry) removeInstance(context.Context, string, string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there {
		return removedAbsent, nil
	}
	s.there = false
	return removedLeft, nil
}

func (s *localRegistry) readInstance(_ context.Context, id string) (instanceEntry, int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there || s.own.id != id {
		return instanceEntry{}, 0, ErrNotFound
	}
	return s.own, s.now(), nil
}

func (s *localRegistry) scanInstances(_ context.Context, _ string, onlyNew bool) (scanReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page := scanReply{next: "0", now: s.now()}
	if s.there && !onlyNew {
		page.entries = []instanceEntry{s.own}
	}
	return page, nil
}

// There is nobody to sweep: who could would be the one that is silent.

func (s *localRegistry) lookAtBeats(context.Context, lookCall) (lookReply, error) {
	return lookReply{now: s.now()}, nil
}

func (s *localRegistry) sweepInstances(_ context.Context, c sweepCall) (sweepReply, error) {
	return sweepReply{verdicts: make([]string, len(c.ids))}, nil
}

func (s *localRegistry) adoptInstances(context.Context, string, []string) ([]string, error) {
	return nil, nil
}
