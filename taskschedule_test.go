package tenure

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// schedule is one of the application's own.
type schedule struct {
	next func(time.Time) time.Time
	text string
}

func (s schedule) Next(after time.Time) time.Time { return s.next(after) }
func (s schedule) String() string                 { return s.text }

// TestHungSchedule: alive tells of it, without waiting, and only as long as it lasts.
func TestHungSchedule(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		release := make(chan struct{})
		var hang atomic.Bool
		a := g.member("a")
		require.NoError(g, a.alive())
		require.NoError(g, a.Register(Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time {
			if hang.Load() {
				<-release
			}
			return after.Add(time.Hour)
		}, "own"}}))
		hang.Store(true)
		a.begin()
		require.NoError(g, a.alive())
		g.pass(hungAfter - time.Millisecond)
		require.NoError(g, a.alive())
		g.pass(time.Second)
		require.ErrorContains(g, a.alive(), "no progress")
		close(release)
		synctest.Wait()
		require.NoError(g, a.alive())
		a.end()
		require.NoError(g, a.alive())
	})
}

// TestBrokenSchedule: a Next that panics, or ends its goroutine, costs its task and nothing else.
func TestBrokenSchedule(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic("broken") }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			onTaskStage(t, func(g *taskStage) {
				var broken atomic.Bool
				a := g.leader("a", Task{Name: "u", Schedule: Every(time.Hour), Run: g.run(0)},
					Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time {
						if broken.Load() {
							fail()
						}
						return after.Add(time.Hour)
					}, "own"}})
				g.pass(90 * time.Minute)
				require.Len(g, g.noted(), 2)
				broken.Store(true)
				g.pass(2 * time.Hour)
				require.Equal(g, []string{"2h0m0s u 2h0m0s #1 starts", "3h0m0s u 3h0m0s #1 starts"}, g.noted())
				failed := g.told(EventTaskFailed)
				require.Len(g, failed, 1)
				require.Equal(g, "t", failed[0].Task)
				require.ErrorIs(g, failed[0].Err, ErrMisconfigured)
				var panicked *PanicError
				require.ErrorAs(g, failed[0].Err, &panicked)
				broken.Store(false)
				a.end()
				b := g.leader("b", Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time { return after.Add(time.Hour) }, "own"}})
				g.pass(time.Second)
				require.Equal(g, []string{"3h30m0s t 3h0m0s #1 starts"}, g.noted(), "the slots were kept")
				b.end()
			})
		})
	}
}

// TestScheduleBrokenFromTheStart: it has no first slot in this term, and the record stays as it was.
func TestScheduleBrokenFromTheStart(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		var broken atomic.Bool
		a := g.member("a", Task{Name: "t", Run: g.run(0), Schedule: schedule{func(after time.Time) time.Time {
			if broken.Load() {
				panic("broken")
			}
			return after.Add(time.Hour)
		}, "own"}})
		broken.Store(true)
		a.begin()
		g.pass(24 * time.Hour)
		require.Len(g, g.told(EventTaskFailed), 1)
		require.True(g, a.status().Next.IsZero())
		a.end()
	})
}

// TestScheduleThatEnds: it has no further slot, and is asked for none.
func TestScheduleThatEnds(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		once := schedule{func(after time.Time) time.Time {
			if due := g.began.Add(time.Hour); after.Before(due) {
				return due
			}
			return time.Time{}
		}, "once"}
		task := Task{Name: "t", Schedule: once, Run: g.run(0)}
		a := g.leader("a", task)
		g.pass(24 * time.Hour)
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts"}, g.noted())
		require.True(g, a.status().Next.IsZero())
		a.end()
		b := g.leader("b", task)
		g.pass(24 * time.Hour)
		require.Empty(g, g.noted())
		b.end()
	})
}

// TestTwoTermsOfOneScheduler: the same process leads again.
func TestTwoTermsOfOneScheduler(t *testing.T) {
	onTaskStage(t, func(g *taskStage) {
		a := g.leader("a", Task{Name: "t", Schedule: Every(time.Hour), Run: g.run(0)})
		g.pass(90 * time.Minute)
		a.end()
		g.pass(time.Hour)
		a.begin()
		g.pass(time.Hour)
		a.end()
		require.Equal(g, []string{"1h0m0s t 1h0m0s #1 starts", "2h30m0s t 2h0m0s #1 starts", "3h0m0s t 3h0m0s #1 starts"}, g.noted())
	})
}
