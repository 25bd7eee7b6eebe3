package telemetry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
)

type sink struct{}

func (sink) Record(*Metric, float64, ...string) {}

// TestUnownedNeverGoesDown: a scrape may come between the moment at which somebody leads again and
// the event that says so. What it has shown stays counted.
func TestUnownedNeverGoesDown(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{Namespace: "shop", InstanceID: "a"})
	require.NoError(t, err)
	s := Watch(c, sink{})
	defer s.Close()
	unowned := func() float64 { return s.totals()[series{Unowned, DefaultRole}] }
	now := time.Now()
	s.event(tenure.Event{Type: tenure.EventElectionStarted, Time: now.Add(-time.Hour)})
	shown := unowned()
	require.InDelta(t, time.Hour.Seconds(), shown, time.Minute.Seconds())
	s.event(tenure.Event{Type: tenure.EventLeaderChanged, Subject: "b", Time: now.Add(-time.Minute)})
	require.GreaterOrEqual(t, unowned(), shown)
}
