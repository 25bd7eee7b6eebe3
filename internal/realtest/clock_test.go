//go:build unix

package realtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/redistest"
)

func clockStage(t *testing.T) (*stage, *redistest.Server, *redistest.Clock) {
	t.Helper()
	s := newParallelStage(t, 3*time.Second)
	if !redistest.HasClocks() {
		t.Skip("libfaketime is not installed: `make install-redis` installs it on Debian")
	}
	clock, option := redistest.NewClock(t)
	return s, redistest.Start(t, option), clock
}

// Redis's clock jumps ahead by more than a lease: the lease is gone and another may be granted it, which is the stated exception to P1.
// Tokens go up all the same, and the step is told.
func TestP2_ClockOfRedisJumpsAhead(t *testing.T) {
	s, server, clock := clockStage(t)
	s.beliefs = new(chronicle) // P1 is not held here
	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader)
	var told atomic.Int64
	stop := leader.Observe(func(e tenure.Event) {
		if e.Type == tenure.EventClockStep {
			told.Store(int64(e.Step))
		}
	})
	defer stop()
	clock.Step(t, time.Minute)
	s.eventually("the step to be told", func() bool { return told.Load() > int64(50*time.Second) })
	other := s.join("other", server.Client(t), young)
	leader.stop()
	if next := s.leads(other); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
}

// Redis's clock is set back by an hour: the election goes on within a hold-off, and tokens go up.
func TestP2_ClockOfRedisIsSetBack(t *testing.T) {
	s, server, clock := clockStage(t)
	leader := s.join("leader", server.Client(t), young)
	token := s.leads(leader)
	clock.Step(t, -time.Hour)
	other := s.join("other", server.Client(t), young)
	if err := leader.Resign(context.Background()); err != nil {
		t.Logf("resign: %v", err)
	}
	if err := leader.quit(s); err != nil {
		t.Error(err)
	}
	if next := s.leads(other); next <= token {
		t.Errorf("token %d after %d", next, token)
	}
}
