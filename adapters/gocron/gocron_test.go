package tenuregocron_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	tenuregocron "github.com/tenure-go/tenure/adapters/gocron"
	"github.com/tenure-go/tenure/tenuretest"
)

// patience is far longer than anything here takes.
const patience = time.Minute

// running is a coordinator that runs, and follows until it is led.
func running(t *testing.T) (*tenure.Coordinator, *tenuretest.Control) {
	coordinator, control := tenuretest.New(t, tenure.Options{InstanceID: "a"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- coordinator.Run(ctx) }() // ends with stop
	t.Cleanup(func() { stop(); require.NoError(t, <-ended) })
	return coordinator, control
}

// ticking is a scheduler with one job, which counts its runs.
func ticking(t *testing.T, job func(), options ...gocron.SchedulerOption) *atomic.Int64 {
	var runs atomic.Int64
	s, err := gocron.NewScheduler(options...)
	require.NoError(t, err)
	_, err = s.NewJob(gocron.DurationJob(time.Millisecond), gocron.NewTask(func() { runs.Add(1); job() }), gocron.WithName("tick"))
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() { require.NoError(t, s.Shutdown()) })
	return &runs
}

// TestElector: gocron's jobs run while the process leads, and at no other time.
func TestElector(t *testing.T) {
	coordinator, control := running(t)
	elector := tenuregocron.Elector(coordinator.Elector())
	require.ErrorIs(t, elector.IsLeader(t.Context()), tenure.ErrNotLeader)
	var beside atomic.Int64 // runs that began while this process did not lead
	asked := make(chan struct{}, 1)
	runs := ticking(t, func() {
		if !coordinator.IsLeader() {
			beside.Add(1)
		}
	}, gocron.WithDistributedElector(watched{elector, asked}))
	for range 5 { // it is asked, and heeds the answer
		<-asked
	}
	require.Zero(t, runs.Load())
	control.Lead()
	require.NoError(t, elector.IsLeader(t.Context()))
	require.Eventually(t, func() bool { return runs.Load() >= 3 }, patience, time.Millisecond)
	require.Zero(t, beside.Load())
	control.Depose()
	require.ErrorIs(t, elector.IsLeader(t.Context()), tenure.ErrNotLeader)
}

// watched says when it was asked.
type watched struct {
	gocron.Elector
	asked chan struct{}
}

func (w watched) IsLeader(ctx context.Context) error {
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return w.Elector.IsLeader(ctx)
}

// TestLocker: the lease is not released before the job has returned.
func TestLocker(t *testing.T) {
	coordinator, control := running(t)
	locker := tenuregocron.Locker(coordinator.Elector())
	_, err := locker.Lock(t.Context(), "tick")
	require.ErrorIs(t, err, tenure.ErrNotLeader)

	began, done := make(chan struct{}, 1000), make(chan struct{})
	ticking(t, func() { began <- struct{}{}; <-done }, gocron.WithDistributedLocker(locker))
	control.Lead()
	<-began
	_, err = locker.Lock(t.Context(), "tick")
	require.ErrorIs(t, err, tenuregocron.ErrLocked)
	require.ErrorContains(t, err, `"tick"`)
	other, err := locker.Lock(t.Context(), "tock")
	require.NoError(t, err, "another name")
	require.NoError(t, other.Unlock(t.Context()))
	require.NoError(t, other.Unlock(t.Context()), "again")

	var released atomic.Bool
	stop := coordinator.Observe(func(e tenure.Event) {
		if e.Type == tenure.EventLeaseReleased {
			released.Store(true)
		}
	})
	defer stop()
	resigned := make(chan error, 1)
	go func() { resigned <- coordinator.Elector().Resign(context.Background()) }() // ends with the job
	require.Eventually(t, func() bool { return !coordinator.IsLeader() }, patience, time.Millisecond)
	require.False(t, released.Load())
	_, err = locker.Lock(t.Context(), "late")
	require.ErrorIs(t, err, tenure.ErrNotLeader, "a term that drains begins no job")
	close(done)
	require.NoError(t, <-resigned)
	require.Eventually(t, released.Load, patience, time.Millisecond)
}

// TestLocksLeaveNothingBehind, whether this process leads or not: the bubble would not end.
func TestLocksLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		coordinator, control := running(t)
		locker := tenuregocron.Locker(coordinator.Elector())
		_, err := locker.Lock(t.Context(), "tick")
		require.ErrorIs(t, err, tenure.ErrNotLeader)
		control.Lead()
		lock, err := locker.Lock(t.Context(), "tick")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestUnlockSaysThatTheTermIsOver: a job that outlives its lease hears of it.
func TestUnlockSaysThatTheTermIsOver(t *testing.T) {
	coordinator, control := running(t)
	control.Lead()
	lock, err := tenuregocron.Locker(coordinator.Elector()).Lock(t.Context(), "tick")
	require.NoError(t, err)
	deposed := make(chan struct{})
	go func() { control.Depose(); close(deposed) }() // ends with the lock
	require.Eventually(t, func() bool { return !coordinator.IsLeader() }, patience, time.Millisecond)
	err = lock.Unlock(t.Context())
	require.ErrorIs(t, err, tenure.ErrLost)
	require.Equal(t, err, lock.Unlock(t.Context()), "again")
	<-deposed
}
