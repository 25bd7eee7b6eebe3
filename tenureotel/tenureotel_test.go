package tenureotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/telemetry"
	"github.com/tenure-go/tenure/tenureotel"
	"github.com/tenure-go/tenure/tenuretest"
)

var attributes = attribute.DefaultEncoder()

// patience is far longer than anything here takes.
const patience = time.Minute

// setting is a coordinator whose metrics and spans stay in memory.
type setting struct {
	*tenure.Coordinator
	t       *testing.T
	control *tenuretest.Control
	tracing tenureotel.Options
	metrics *sdkmetric.ManualReader
	spans   *tracetest.SpanRecorder
}

func newSetting(t *testing.T, limits ...sdkmetric.Option) *setting {
	s := &setting{t: t, metrics: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	s.tracing = tenureotel.Options{
		MeterProvider:  sdkmetric.NewMeterProvider(append(limits, sdkmetric.WithReader(s.metrics))...),
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans)),
	}
	s.Coordinator, s.control = tenuretest.New(t, tenure.Options{
		InstanceID: "a", Tasks: tenure.TaskOptions{Middleware: []func(tenure.TaskFunc) tenure.TaskFunc{s.tracing.Middleware()}},
	})
	instrumentation, err := s.tracing.Start(s.Coordinator)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, instrumentation.Close()) })
	return s
}

func (s *setting) run() {
	ctx, stop := context.WithCancel(s.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }() // ends with stop
	s.t.Cleanup(func() { stop(); require.NoError(s.t, <-ended) })
}

// ended waits for a span of that name that has ended.
func (s *setting) ended(name string) (found sdktrace.ReadOnlySpan) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		for _, span := range s.spans.Ended() {
			if span.Name() == name {
				found = span
			}
		}
		return found != nil
	}, patience, time.Millisecond, name)
	return found
}

// values are those of a metric, by its attributes.
func (s *setting) values(name string) map[string]float64 {
	var all metricdata.ResourceMetrics
	require.NoError(s.t, s.metrics.Collect(s.t.Context(), &all))
	values := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					values[p.Attributes.Encoded(attributes)] = p.Value
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					values[p.Attributes.Encoded(attributes)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					values[p.Attributes.Encoded(attributes)] = float64(p.Count)
				}
			}
		}
	}
	return values
}

// TestSeriesOfManyRoles: by default the SDK keeps 2,000 series of a metric, and adds up the rest
// without a word. docs/metrics.md says with what option each role has its own.
func TestSeriesOfManyRoles(t *testing.T) {
	const roles = 200
	for _, c := range []struct {
		name   string
		limits []sdkmetric.Option
		want   int
	}{
		{"default", nil, 2000},
		{"no limit", []sdkmetric.Option{sdkmetric.WithCardinalityLimit(0)}, 13 * (roles + 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSetting(t, c.limits...)
			for i := range roles {
				_, err := s.AddRole(fmt.Sprint("role-", i), tenure.ElectionOptions{})
				require.NoError(t, err)
			}
			require.Len(t, s.values("tenure.waiting"), c.want)
		})
	}
}

// TestMetricsAndSpans: metrics of a leader with a task, a span of the term, and one of a run that
// links to who triggered it.
func TestMetricsAndSpans(t *testing.T) {
	s := newSetting(t)
	seen := make(chan []string, 1)
	require.NoError(t, s.Tasks().Register(tenure.Task{Name: "rates", Schedule: tenure.OnDemand(), Run: func(_ context.Context, run tenure.TaskRun) error {
		seen <- run.Args
		return errors.New("dial tcp: i/o timeout")
	}}))
	s.run()
	s.control.Lead()
	namespace := "namespace=" + s.Options().Namespace
	require.InDelta(t, 1, s.values("tenure.leader")[namespace+",role=default"], 0)

	ctx, asking := s.tracing.TracerProvider.Tracer("test").Start(t.Context(), "the request of an operator")
	_, err := tenureotel.Trigger(ctx, s.Tasks(), "rates", "EUR")
	require.NoError(t, err)
	asking.End()
	require.Equal(t, []string{"EUR"}, <-seen, "what carries the span is taken off")
	run := s.ended("tenure.task rates")
	require.Len(t, run.Links(), 1)
	require.Equal(t, asking.SpanContext().SpanID(), run.Links()[0].SpanContext.SpanID())
	require.Equal(t, codes.Error, run.Status().Code)
	require.Equal(t, "dial tcp: i/o timeout", run.Status().Description)
	require.Eventually(t, func() bool {
		return s.values("tenure.task.runs")[namespace+",status=failed,task=rates"] == 1
	}, patience, time.Millisecond)
	require.InDelta(t, 1, s.values("tenure.task.duration")[namespace+",task=rates"], 0)
	require.InDelta(t, 1, s.values("tenure.task.consecutive.failures")[namespace+",task=rates"], 0)

	s.control.Depose()
	term := s.ended("tenure.term")
	require.False(t, term.Parent().IsValid())
	require.InDelta(t, 0, s.values("tenure.leader")[namespace+",role=default"], 0)
}

// openSpans counts the spans that have begun and have not ended.
type openSpans struct{ n atomic.Int64 }

func (o *openSpans) OnStart(context.Context, sdktrace.ReadWriteSpan) { o.n.Add(1) }
func (o *openSpans) OnEnd(sdktrace.ReadOnlySpan)                     { o.n.Add(-1) }
func (*openSpans) Shutdown(context.Context) error                    { return nil }
func (*openSpans) ForceFlush(context.Context) error                  { return nil }

// TestCloseAsATermBegins: no span is left open, whichever hears of it first.
func TestCloseAsATermBegins(t *testing.T) {
	for range 500 {
		var open openSpans
		c, control := tenuretest.New(t, tenure.Options{InstanceID: "a"})
		instrumentation, err := tenureotel.Options{
			MeterProvider: sdkmetric.NewMeterProvider(), TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(&open)),
		}.Start(c)
		require.NoError(t, err)
		closed := make(chan error, 1)
		c.Observe(func(e tenure.Event) {
			if e.Type == tenure.EventTermBegan {
				closed <- instrumentation.Close()
			}
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }() // ends with stop
		control.Lead()
		require.NoError(t, <-closed)
		stop()
		require.NoError(t, <-ended)
		require.Zero(t, open.n.Load())
	}
}

// TestTaskThatPanics: its span ends, and the panic goes on to tenure.
func TestTaskThatPanics(t *testing.T) {
	s := newSetting(t)
	require.NoError(t, s.Tasks().Register(tenure.Task{Name: "rates", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error {
		panic("a bug")
	}}))
	failed := make(chan error, 1)
	s.Observe(func(e tenure.Event) {
		if e.Type == tenure.EventTaskFailed {
			failed <- e.Err
		}
	})
	s.run()
	s.control.Lead()
	_, err := s.Tasks().Trigger(t.Context(), "rates")
	require.NoError(t, err)
	require.ErrorContains(t, <-failed, "a bug")
	span := s.ended("tenure.task rates")
	require.Equal(t, codes.Error, span.Status().Code)
	require.Empty(t, span.Links())
}

// TestNames: the gauges of a process are there under their dotted names.
func TestNames(t *testing.T) {
	s := newSetting(t)
	s.run()
	s.control.Lead()
	for _, m := range telemetry.Metrics {
		if m.Kind == telemetry.Gauge && len(m.Labels) == 0 && !strings.HasPrefix(m.Name, "tenure_sweep") {
			name := strings.ReplaceAll(strings.TrimSuffix(m.Name, "_seconds"), "_", ".") // the unit is a field of its own
			require.Eventually(t, func() bool { return len(s.values(name)) > 0 }, patience, time.Millisecond, name)
		}
	}
}
