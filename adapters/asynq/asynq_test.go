package tenureasynq_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	tenureasynq "github.com/tenure-go/tenure/adapters/asynq"
	"github.com/tenure-go/tenure/tenuretest"
)

// patience is far longer than anything here takes.
const patience = time.Minute

// TestLead: asynq's scheduler enqueues while the process leads, anew in each term, and at no other
// time.
func TestLead(t *testing.T) {
	server := miniredis.RunT(t)
	at := asynq.RedisClientOpt{Addr: server.Addr()}
	var built, stopped atomic.Int64
	coordinator, control := tenuretest.New(t, tenure.Options{InstanceID: "a"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // ends with stop
		ended <- coordinator.Run(ctx, tenureasynq.Lead(func(context.Context) (tenureasynq.Scheduler, error) {
			built.Add(1)
			s := asynq.NewScheduler(at, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
			_, err := s.Register("@every 1s", asynq.NewTask("report", nil))
			return counted{s, &stopped}, err
		}))
	}()
	queue := asynq.NewInspector(at)
	defer queue.Close()
	pending := func() int {
		info, err := queue.GetQueueInfo("default") // a list has a page, which is full after 30 s
		if err != nil {
			return 0
		}
		return info.Pending
	}
	for term := range int64(2) {
		before := pending()
		control.Lead()
		require.Eventually(t, func() bool { return pending() > before }, patience, 10*time.Millisecond)
		control.Depose()
		require.Equal(t, term+1, built.Load())
		require.Eventually(t, func() bool { return stopped.Load() == term+1 }, patience, time.Millisecond)
	}
	stop()
	require.NoError(t, <-ended)
	require.EqualValues(t, 2, stopped.Load())
}

// counted counts how often it was stopped.
type counted struct {
	*asynq.Scheduler
	stopped *atomic.Int64
}

func (c counted) Shutdown() {
	c.Scheduler.Shutdown()
	c.stopped.Add(1)
}

var errBroken = errors.New("broken")

// TestLeadThatFails: the term fails with what has gone wrong.
func TestLeadThatFails(t *testing.T) {
	for name, build := range map[string]func(context.Context) (tenureasynq.Scheduler, error){
		"build": func(context.Context) (tenureasynq.Scheduler, error) { return nil, errBroken },
		"start": func(context.Context) (tenureasynq.Scheduler, error) { return unstartable{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			err := tenureasynq.Lead(build)(t.Context(), tenure.Term{})
			require.ErrorIs(t, err, errBroken)
			require.ErrorContains(t, err, name)
		})
	}
}

type unstartable struct{}

func (unstartable) Start() error { return errBroken }
func (unstartable) Shutdown()    { panic("what was never started is stopped") }
