package tenureotel_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/tenureotel"
	"github.com/tenure-go/tenure/tenuretest"
)

// collector is what a process pushes its metrics to.
type collector struct {
	temporality metricdata.Temporality

	mu     sync.Mutex
	sums   map[string]float64 // of counters, as a backend adds them up
	leader []float64          // tenure.leader, export by export
}

func (c *collector) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return c.temporality
}

func (c *collector) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}

func (c *collector) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Gauge[float64]:
				if m.Name == "tenure.leader" {
					c.leader = append(c.leader, data.DataPoints[0].Value)
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					of := m.Name + " " + p.Attributes.Encoded(attributes)
					if data.Temporality == metricdata.DeltaTemporality {
						c.sums[of] += p.Value
					} else {
						c.sums[of] = p.Value
					}
				}
			}
		}
	}
	return nil
}

func (*collector) ForceFlush(context.Context) error { return nil }
func (*collector) Shutdown(context.Context) error   { return nil }

// TestLastExport: what a process has counted since its last export gets to where it pushes its
// metrics if it stops as docs/metrics.md shows, and so does that it leads no more.
func TestLastExport(t *testing.T) {
	for name, temporality := range map[string]metricdata.Temporality{"cumulative": metricdata.CumulativeTemporality, "delta": metricdata.DeltaTemporality} {
		t.Run(name, func(t *testing.T) {
			to := &collector{temporality: temporality, sums: make(map[string]float64)}
			provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(to, sdkmetric.WithInterval(time.Hour))))
			c, control := tenuretest.New(t, tenure.Options{InstanceID: "a"})
			instrumentation, err := tenureotel.Options{MeterProvider: provider}.Start(c)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Run(ctx) }() // ends with stop
			control.Lead()
			require.NoError(t, provider.ForceFlush(t.Context()))
			stop()
			require.NoError(t, <-ended)
			require.NoError(t, instrumentation.Close())
			require.NoError(t, provider.Shutdown(t.Context()))
			require.Equal(t, []float64{1, 0}, to.leader)
			require.InDelta(t, 1, to.sums["tenure.leadership.changes namespace=local,reason=stopped,role=default"], 0, to.sums)
		})
	}
}
