package tenureotel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
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
	require.Contains(t, term.Attributes(), attribute.String("tenure.role", "default"), "as the metrics call it")
	require.Equal(t, map[string]float64{namespace + ",role=default": 0}, s.values("tenure.leader"), "not left out")
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

// TestSpanOfARun names the trigger if there was one. What carries a span is taken off, also if it
// is all there is.
func TestSpanOfARun(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	middleware := tenureotel.Options{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))}.Middleware()
	for i, run := range []tenure.TaskRun{
		{Task: "t"},
		{Task: "t", Trigger: "x", Args: []string{"traceparent:00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}},
		{Task: "t", Trigger: "y", Args: []string{"traceparent:nonsense"}},
	} {
		require.NoError(t, middleware(func(_ context.Context, got tenure.TaskRun) error {
			require.Empty(t, got.Args)
			return nil
		})(t.Context(), run))
		span := spans.Ended()[i]
		named := ""
		for _, a := range span.Attributes() {
			if a.Key == "tenure.trigger" {
				named = "it is " + a.Value.AsString()
			}
		}
		require.Equal(t, []string{"", "it is x", "it is y"}[i], named)
		require.Len(t, span.Links(), []int{0, 1, 0}[i])
	}
}

// triggered has a process lead that runs the task rates without the middleware. seen has the
// arguments of its runs.
func triggered(t *testing.T) (tasks *tenure.TaskScheduler, seen <-chan []string, stop func()) {
	t.Helper()
	c, control := tenuretest.New(t, tenure.Options{InstanceID: "a"})
	runs := make(chan []string, 1)
	require.NoError(t, c.Tasks().Register(tenure.Task{Name: "rates", Schedule: tenure.OnDemand(), Run: func(_ context.Context, run tenure.TaskRun) error {
		runs <- run.Args
		return nil
	}}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }() // ends with stop
	control.Lead()
	return c.Tasks(), runs, func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// TestTriggerWithoutASpan adds nothing, which a run without the middleware would see.
func TestTriggerWithoutASpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks, seen, stop := triggered(t)
		defer stop()
		_, err := tenureotel.Trigger(t.Context(), tasks, "rates", "EUR")
		require.NoError(t, err)
		require.Equal(t, []string{"EUR"}, <-seen)
	})
}

// TestTriggerOfManyArguments: what a task may be given without a span, it may be given in one. The
// link is left out if there is no room for it.
func TestTriggerOfManyArguments(t *testing.T) {
	tracer := sdktrace.NewTracerProvider().Tracer("test")
	synctest.Test(t, func(t *testing.T) {
		tasks, seen, stop := triggered(t)
		defer stop()
		traced, span := tracer.Start(t.Context(), "a request")
		defer span.End()
		for length, args := range map[int]int{1: 2, 950: 2, 951: 1, 1020: 1} {
			arg := strings.Repeat("x", length)
			_, err := tenureotel.Trigger(traced, tasks, "rates", arg)
			require.NoError(t, err, length)
			got := <-seen
			require.Equal(t, arg, got[0])
			require.Len(t, got, args, length)
			synctest.Wait() // the run has ended
		}
		_, err := tenureotel.Trigger(traced, tasks, "rates", strings.Repeat("x", 1021))
		require.ErrorIs(t, err, tenure.ErrMisconfigured)
	})
}

// TestGlobalProviders are taken if none is named.
func TestGlobalProviders(t *testing.T) {
	c, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
	require.NoError(t, err)
	instrumentation, err := tenureotel.Options{}.Start(c)
	require.NoError(t, err)
	require.NoError(t, instrumentation.Close())
	require.NoError(t, tenureotel.Options{}.Middleware()(func(context.Context, tenure.TaskRun) error { return nil })(t.Context(), tenure.TaskRun{}))
}

// failing is a meter that makes all but one kind of instruments, or takes no callback.
type failing struct {
	noop.Meter
	kind string
}

// failingProvider has no other meter.
type failingProvider struct {
	noop.MeterProvider
	failing
}

func (f failingProvider) Meter(string, ...metric.MeterOption) metric.Meter { return f.failing }

func (f failing) err(kind string) error {
	if f.kind == kind {
		return errors.New("no " + kind)
	}
	return nil
}

func (f failing) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return noop.Float64Histogram{}, f.err("histogram")
}

func (f failing) Float64ObservableCounter(string, ...metric.Float64ObservableCounterOption) (metric.Float64ObservableCounter, error) {
	return noop.Float64ObservableCounter{}, f.err("counter")
}

func (f failing) Float64ObservableGauge(string, ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, f.err("gauge")
}

func (f failing) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return noop.Registration{}, f.err("callback")
}

// TestMeterThatFails: Start returns its error, and leaves nothing running. Nor does Close: the
// bubble would not end.
func TestMeterThatFails(t *testing.T) {
	for _, kind := range []string{"histogram", "counter", "gauge", "callback", ""} {
		synctest.Test(t, func(t *testing.T) {
			c, err := tenure.NewStandalone(tenure.Options{InstanceID: "a"})
			require.NoError(t, err)
			i, err := tenureotel.Options{MeterProvider: failingProvider{failing: failing{kind: kind}}}.Start(c)
			if kind == "" {
				require.NoError(t, err)
				require.NoError(t, i.Close())
				return
			}
			require.ErrorContains(t, err, "no "+kind)
			require.Nil(t, i)
		})
	}
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

// TestNamesInPrometheus: what Prometheus makes of a name, a unit and a kind is the name that
// tenureprom publishes, so that the alert rules and the dashboard hold for both.
func TestNamesInPrometheus(t *testing.T) {
	s := newSetting(t)
	require.NoError(t, s.Tasks().Register(tenure.Task{
		Name: "tidy", Schedule: tenure.Every(time.Hour), RunOnElection: true, Run: func(context.Context, tenure.TaskRun) error { return nil },
	}))
	s.run()
	s.control.Lead()
	require.Eventually(t, func() bool { return len(s.values("tenure.task.duration")) > 0 }, patience, time.Millisecond)
	published := make(map[string]bool)
	for _, m := range telemetry.Metrics {
		published[m.Name] = true
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, s.metrics.Collect(t.Context(), &all))
	require.Greater(t, len(all.ScopeMetrics[0].Metrics), 25)
	for _, m := range all.ScopeMetrics[0].Metrics {
		require.True(t, published[inPrometheus(m)], "%s of the unit %q is %s in Prometheus", m.Name, m.Unit, inPrometheus(m))
	}
}

// inPrometheus is the name that exporters give a metric, by the rules of OpenTelemetry for
// Prometheus: a gauge of the unit 1 is a ratio.
func inPrometheus(m metricdata.Metrics) string {
	name := strings.ReplaceAll(m.Name, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	switch m.Data.(type) {
	case metricdata.Gauge[float64]:
		if m.Unit == "1" {
			name += "_ratio"
		}
	case metricdata.Sum[float64]:
		name += "_total"
	}
	return name
}
