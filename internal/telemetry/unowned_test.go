package telemetry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenuretest"
)

type sink map[*Metric][]float64

func (s sink) Record(m *Metric, value float64, _ ...string) {
	if s != nil {
		s[m] = append(s[m], value)
	}
}

func (sink) Forget(string) {}

// TestUnownedNeverGoesDown: a scrape may come between the moment at which somebody leads again and
// the event that says so. What it has shown stays counted.
func TestUnownedNeverGoesDown(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	s := Watch(c, sink(nil))
	defer s.Close()
	unowned := func() float64 { return s.totals()[series{Unowned, DefaultRole}] }
	now := time.Now()
	s.event(tenure.Event{Type: tenure.EventElectionStarted, Time: now.Add(-time.Hour)})
	shown := unowned()
	require.InDelta(t, time.Hour.Seconds(), shown, time.Minute.Seconds())
	s.event(tenure.Event{Type: tenure.EventLeaderChanged, Subject: "b", Time: now.Add(-time.Minute)})
	require.GreaterOrEqual(t, unowned(), shown)
}

// TestUnownedIsCountedToTheEndOfRun: a process may be scraped for the first time long after its Run
// has returned.
func TestUnownedIsCountedToTheEndOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "a", Election: tenure.ElectionOptions{Ineligible: true}})
		require.NoError(t, err)
		s := Watch(c, sink(nil))
		defer s.Close()
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, c.Run(ctx))
		time.Sleep(time.Hour)
		for range 3 { // scrapes
			require.InDelta(t, time.Minute.Seconds(), s.totals()[series{Unowned, DefaultRole}], 1)
		}
	})
}

// TestUnownedIsCountedOnce: a second counts as one however many scrapes see it.
func TestUnownedIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(t, err)
		s := Watch(c, sink(nil))
		defer s.Close()
		s.event(tenure.Event{Type: tenure.EventElectionStarted, Time: time.Now()})
		for minutes := range 5 {
			require.InDelta(t, float64(60*minutes), s.totals()[series{Unowned, DefaultRole}], 1)
			time.Sleep(time.Minute) // in virtual time
		}
	})
}

// TestLostEvents: of thousands of roles that change at one moment some events are dropped. What an
// election knows by now counts, not the last event that was heard of it.
func TestLostEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{Namespace: "shop", InstanceID: "a"})
		s := Watch(c, sink(nil))
		defer s.Close()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		control.Lead()
		synctest.Wait()
		scrape := func(of *Metric) (found float64) {
			s.Collect(t.Context(), func(m *Metric, value float64, _ ...string) {
				if m == of {
					found = value
				}
			})
			return found
		}
		s.event(tenure.Event{Type: tenure.EventRedisDown})
		require.InDelta(t, 1, scrape(RedisUp), 0, "the event that it is up again is lost")

		before := scrape(Unowned)
		s.event(tenure.Event{Type: tenure.EventLeaderChanged, Time: time.Now()})
		time.Sleep(10 * time.Second)
		require.InDelta(t, before+10, scrape(Unowned), 0.1, "the event that somebody leads may be on its way")
		for range 3 {
			time.Sleep(time.Minute)
			require.InDelta(t, before+10, scrape(Unowned), 0.1, "it is lost")
		}
		time.Sleep(time.Minute)
		s.event(tenure.Event{Type: tenure.EventLeaderChanged, Time: time.Now()})
		time.Sleep(10 * time.Second)
		s.event(tenure.Event{Type: tenure.EventLeaderChanged, Time: time.Now(), Subject: "b"})
		require.InDelta(t, before+20, scrape(Unowned), 0.1, "the next gap")
		stop()
		require.NoError(t, <-ended)
	})
}

// TestHangingAttemptIsCountedOnce: it may take long first, and then ignore the end of its context.
func TestHangingAttemptIsCountedOnce(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	s := Watch(c, sink(nil))
	defer s.Close()
	hung := func() float64 { return s.totals()[series{TaskOverrun, "t"}] }
	for n, want := range []float64{1, 2} { // the second is another trigger in the same term
		e := tenure.Event{Task: "t", Token: 7, Attempt: 1, Trigger: string(rune('a' + n))}
		for _, e.Type = range []tenure.EventType{tenure.EventTaskStarted, tenure.EventTaskSlow, tenure.EventWorkOverrun} {
			s.event(e)
		}
		require.InDelta(t, want, hung(), 0)
	}
	s.event(tenure.Event{Type: tenure.EventWorkOverrun, Token: 7}) // leader work is no task
	require.InDelta(t, 2, hung(), 0)
	require.NotContains(t, s.totals(), series{TaskOverrun, ""})
	s.event(tenure.Event{Type: tenure.EventWorkOverrun, Task: "t", Token: 8, Attempt: 1}) // whose start was not heard of
	require.InDelta(t, 3, hung(), 0)
}

// TestLatenessIsByOneClock: the slot is by Redis's clock, and the time of an event by this
// machine's.
func TestLatenessIsByOneClock(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	values := sink{}
	s := Watch(c, values)
	defer s.Close()
	slot := time.Now()
	s.event(tenure.Event{Type: tenure.EventTaskStarted, Task: "t", Slot: slot, Attempt: 1, Time: slot.Add(time.Hour), Took: time.Second})
	require.Equal(t, []float64{1}, values[TaskLateness])
}
