package tenure

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEventsOfATermInOrder(t *testing.T) {
	inElection(t, func(o *Options) { o.Election.Role = "cleanup" }, func(s *election) {
		s.store.hold("other", time.Second)
		fails := s.after(midTerm, func() error { return errBroken })
		terms := 0
		s.run(func(ctx context.Context, term Term) error {
			if terms++; terms > 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			return fails(ctx, term)
		})
		s.at(5 * time.Second)
		s.store.on(on("renew", fate{err: errNetwork}))
		s.at(11 * time.Second)
		s.store.on(func(storeCall) fate { return fate{} })
		s.at(time.Minute)
		require.NoError(s, s.stop())
		var told []string
		for _, e := range s.events {
			require.Equal(s, "cleanup", e.Role)
			require.Equal(s, "me", e.InstanceID)
			require.Zero(s, e.Missed)
			if e.Type == EventWaiting {
				e.Subject = e.Reason
			}
			told = append(told, fmt.Sprintf("%s %d %s", e.Type, e.Token, e.Subject))
		}
		require.Equal(s, []string{
			"leader_changed 1 other", "waiting 0 lease", "acquired 2 ", "leader_changed 2 me",
			"work_failed 2 ", "ended 2 ", "waiting 0 penalty", "released 2 ",
			"acquired 3 ", "leader_changed 3 me", "redis_down 0 ", "renew_failed 3 ", "work_failed 3 ", "ended 3 ", "waiting 0 penalty",
			"released 3 ", "redis_up 0 ", "acquired 4 ", "leader_changed 4 me", "ended 4 ", "released 4 ",
		}, told)
	})
}

// observed collects what one observer is told, and fails when it is told two things at once.
func observed(t *testing.T, b *eventBus, call func(Event)) (told func() []Event, stop func()) {
	var mu sync.Mutex
	var events []Event
	stop = b.observe(func(e Event) {
		if !mu.TryLock() {
			t.Error("called while it was being called")
			return
		}
		defer mu.Unlock()
		events = append(events, e)
		call(e)
	})
	return func() []Event { mu.Lock(); defer mu.Unlock(); return events }, stop
}

// inBubble runs act with an event bus; what observers hold up must be released.
func inBubble(t *testing.T, act func(*testing.T, *eventBus)) {
	synctest.Test(t, func(t *testing.T) { act(t, newEventBus("me")) })
}

func TestObserverHearsInOrderOneAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		told, _ := observed(t, b, func(Event) { time.Sleep(time.Millisecond) })
		var publishing sync.WaitGroup
		for publisher := range 10 {
			publishing.Go(func() {
				for i := range 50 {
					b.publish(Event{Attempt: publisher, Count: i})
				}
			})
		}
		publishing.Wait()
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 500)
		next := make(map[int]int)
		for _, e := range told() {
			require.Equal(t, next[e.Attempt], e.Count, "of one publisher, in order")
			next[e.Attempt]++
		}
	})
}

// TestEventTimesAreInTheOrderOfDelivery: many publishers at once, and no event is older than the
// one before it.
func TestEventTimesAreInTheOrderOfDelivery(t *testing.T) {
	b := newEventBus("me")
	told, _ := observed(t, b, func(Event) {})
	events := 20_000
	if testing.Short() {
		events = 2_000
	}
	var publishing sync.WaitGroup
	for range 8 {
		publishing.Go(func() {
			for range events {
				b.publish(Event{})
			}
		})
	}
	publishing.Wait()
	require.NoError(t, b.flush(time.Now().Add(time.Minute)))
	before := time.Time{}
	for _, e := range told() {
		require.False(t, e.Time.Before(before), "%v after %v", e.Time, before)
		before = e.Time
	}
}

func TestObserverThatDoesNotKeepUpMissesTheOldest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		blocked := make(chan struct{})
		told, _ := observed(t, b, func(Event) { <-blocked })
		b.publish(Event{Count: -1})
		synctest.Wait() // it blocks
		const more = 10
		for i := range observerBacklog + more {
			b.publish(Event{Count: i})
		}
		close(blocked)
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1+observerBacklog)
		require.Equal(t, more, told()[1].Count)
		require.Equal(t, more, told()[1].Missed)
		require.Zero(t, told()[2].Missed)
	})
}

// TestFloodOfHearsayHidesNothing: anybody who may publish can send hints of changes without end.
// What this process did itself is delivered.
func TestFloodOfHearsayHidesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		blocked := make(chan struct{})
		told, _ := observed(t, b, func(Event) { <-blocked })
		b.publish(Event{Count: -1})
		synctest.Wait() // it blocks
		flood := func() {
			for range 2 * observerBacklog {
				b.publish(Event{Type: EventDown, Remote: true})
			}
		}
		for i := range observerBacklog {
			b.publish(Event{Count: i})
			if i < 10 {
				flood()
			}
		}
		flood()
		close(blocked)
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1+observerBacklog)
		for i, e := range told()[1:] {
			require.False(t, e.Remote)
			require.Equal(t, i, e.Count, "in order")
		}
		b.publish(Event{})
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Equal(t, 22*observerBacklog, told()[1].Missed+told()[1+observerBacklog].Missed)
	})
}

func TestObserverThatPanicsOrExitsHearsTheRest(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic(errBroken) }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *eventBus) {
				told, _ := observed(t, b, func(e Event) {
					if e.Count%2 == 1 {
						fail()
					}
				})
				for i := range 5 {
					b.publish(Event{Count: i})
				}
				require.NoError(t, b.flush(time.Now().Add(time.Second)))
				require.Len(t, told(), 5)
			})
		})
	}
}

func TestObserverStopsItself(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		var stop func()
		var told func() []Event
		ready := make(chan struct{})
		told, stop = observed(t, b, func(Event) { <-ready; stop(); stop() })
		for range 5 {
			b.publish(Event{})
		}
		close(ready)
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1)
		b.publish(Event{})
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 1)
		require.Empty(t, b.observers)
	})
}

func TestFlushIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		blocked := make(chan struct{})
		observed(t, b, func(Event) { <-blocked })
		b.publish(Event{})
		began := time.Now()
		require.ErrorIs(t, b.flush(began.Add(time.Second)), ErrDrainTimeout)
		require.Equal(t, time.Second, time.Since(began))
		require.ErrorIs(t, b.flush(began), ErrDrainTimeout, "a deadline that has passed")
		close(blocked)
		synctest.Wait()
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
	})
}

func TestPublishingGoesOnWhileAFlushWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *eventBus) {
		told, _ := observed(t, b, func(Event) { time.Sleep(time.Microsecond) })
		var busy sync.WaitGroup
		for range 4 {
			busy.Go(func() {
				for range 200 {
					b.publish(Event{})
					time.Sleep(time.Microsecond)
				}
			})
			busy.Go(func() {
				for range 200 {
					if err := b.flush(time.Now().Add(time.Microsecond)); err != nil {
						assert.ErrorIs(t, err, ErrDrainTimeout)
					}
				}
			})
		}
		busy.Wait()
		require.NoError(t, b.flush(time.Now().Add(time.Second)))
		require.Len(t, told(), 4*200)
	})
}

// An observer that blocks for ever, in whatever event, delays no renewal and no end of a term.
func TestBlockedObserverDelaysNothing(t *testing.T) {
	inElection(t, nil, func(s *election) {
		blocked := make(chan struct{})
		defer close(blocked)
		var calls atomic.Int32
		s.loop.bus.observe(func(Event) { calls.Add(1); <-blocked })
		s.run(s.honest(0))
		s.at(time.Minute)
		renewals := s.store.made("renew")
		require.Len(s, renewals, 20)
		for i, renewal := range renewals {
			require.Equal(s, time.Duration(i+1)*electionRenew, renewal.at)
		}
		require.NoError(s, s.Resign(context.Background()))
		require.Equal(s, time.Minute, s.now())
		require.EqualValues(s, 1, calls.Load())
	})
}

// Run returns when every observer has heard what there was to tell.
func TestRunFlushesEvents(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.loop.bus.observe(func(e Event) {
			<-time.After(100 * time.Millisecond)
			s.note("%s", e.Type)
		})
		s.run(s.honest(0))
		require.NoError(s, s.stop())
		require.Contains(s, s.noted(), "released")
	})
}
