// Package tenureotel publishes what a tenure.Coordinator says of itself through OpenTelemetry: the
// metrics of docs/metrics.md with dots for underscores and without the suffixes _total and
// _seconds (tenure.leader), a span for each term, and a span for each attempt of a task, linked to
// what triggered it.
//
//	tracing := tenureotel.Options{}
//	options.Tasks.Middleware = append(options.Tasks.Middleware, tracing.Middleware())
//	coordinator, err := tenure.New(client, options)
//	...
//	instrumentation, err := tracing.Start(coordinator) // before Run
//	defer instrumentation.Close()
package tenureotel

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/telemetry"
)

// scope is the name of the instrumentation.
const scope = "github.com/tenure-go/tenure/tenureotel"

// Options say where measurements and spans go. The zero value takes the global providers.
type Options struct {
	MeterProvider  metric.MeterProvider // nil: otel.GetMeterProvider()
	TracerProvider trace.TracerProvider // nil: otel.GetTracerProvider()
}

func (o Options) meterProvider() metric.MeterProvider {
	if o.MeterProvider == nil {
		return otel.GetMeterProvider()
	}
	return o.MeterProvider
}

func (o Options) tracer() trace.Tracer {
	if o.TracerProvider == nil {
		return otel.GetTracerProvider().Tracer(scope)
	}
	return o.TracerProvider.Tracer(scope)
}

// Instrumentation is that of one coordinator. It is safe for concurrent use.
type Instrumentation struct {
	options    Options
	source     *telemetry.Source
	namespace  attribute.KeyValue
	histograms map[*telemetry.Metric]metric.Float64Histogram
	gauges     map[*telemetry.Metric]metric.Float64ObservableGauge
	counters   map[*telemetry.Metric]metric.Float64ObservableCounter
	callback   metric.Registration
	terms      terms
}

// Start begins to count and to trace a coordinator: call it before Run. While the
// process leads, a collection makes two reads of Redis, each of which waits for at most 2 s;
// otherwise none. The error is that of the meter.
func (o Options) Start(c *tenure.Coordinator) (*Instrumentation, error) {
	i := &Instrumentation{
		options:    o,
		namespace:  attribute.String("namespace", c.Options().Namespace),
		histograms: make(map[*telemetry.Metric]metric.Float64Histogram),
		gauges:     make(map[*telemetry.Metric]metric.Float64ObservableGauge),
		counters:   make(map[*telemetry.Metric]metric.Float64ObservableCounter),
	}
	meter := o.meterProvider().Meter(scope)
	observed, err := i.instruments(meter)
	if err != nil {
		return nil, err
	}
	i.source = telemetry.Watch(c, recorder{i})
	i.callback, err = meter.RegisterCallback(i.collect, observed...)
	if err != nil {
		i.source.Close()
		return nil, err
	}
	i.terms.tracer, i.terms.on = o.tracer(), make(map[string]trace.Span)
	i.terms.stop = c.Observe(i.terms.event)
	return i, nil
}

// instruments makes an instrument for each metric, and returns those that are observed.
func (i *Instrumentation) instruments(meter metric.Meter) (observed []metric.Observable, err error) {
	for _, m := range telemetry.Metrics {
		var problem error
		name, about, of := dotted(m), metric.WithDescription(m.Help), metric.WithUnit(unit(m))
		switch m.Kind {
		case telemetry.Histogram:
			i.histograms[m], problem = meter.Float64Histogram(name, about, of, metric.WithExplicitBucketBoundaries(m.Buckets...))
		case telemetry.Counter:
			i.counters[m], problem = meter.Float64ObservableCounter(name, about, of)
			observed = append(observed, i.counters[m])
		default:
			i.gauges[m], problem = meter.Float64ObservableGauge(name, about, of)
			observed = append(observed, i.gauges[m])
		}
		err = errors.Join(err, problem)
	}
	return observed, err
}

// dotted is the name of a metric as OpenTelemetry has it: the unit and the kind are no part of it.
func dotted(m *telemetry.Metric) string {
	name := strings.TrimSuffix(m.Name, "_total")
	if m.Unit == "s" {
		name = strings.TrimSuffix(name, "_seconds")
	}
	return strings.ReplaceAll(name, "_", ".")
}

// unit is that of a metric. None is "" and not "1": in Prometheus a gauge of that would be
// tenure_leader_ratio.
func unit(m *telemetry.Metric) string {
	if m.Unit == "1" {
		return ""
	}
	return m.Unit
}

func (i *Instrumentation) attributes(m *telemetry.Metric, labels []string) metric.MeasurementOption {
	set := []attribute.KeyValue{i.namespace}
	for at, label := range m.Labels {
		set = append(set, attribute.String(label, labels[at]))
	}
	return metric.WithAttributes(set...)
}

// recorder takes the values of histograms.
type recorder struct{ *Instrumentation }

// Record implements telemetry.Sink.
func (r recorder) Record(m *telemetry.Metric, value float64, labels ...string) {
	r.histograms[m].Record(context.Background(), value, r.attributes(m, labels))
}

// Forget implements telemetry.Sink. A histogram of OpenTelemetry keeps each set of attributes for
// as long as its MeterProvider, unless that exports deltas.
func (recorder) Forget(string) {}

func (i *Instrumentation) collect(ctx context.Context, o metric.Observer) error {
	i.source.Collect(ctx, func(m *telemetry.Metric, value float64, labels ...string) {
		if m.Kind == telemetry.Counter {
			o.ObserveFloat64(i.counters[m], value, i.attributes(m, labels))
		} else {
			o.ObserveFloat64(i.gauges[m], value, i.attributes(m, labels))
		}
	})
	return nil
}

// lastExport bounds how long Close waits for what was counted to be exported.
const lastExport = 2 * time.Second

// Close ends the counting and the spans that are on: call it when Run has returned. If the
// MeterProvider pushes metrics it exports what was counted since its last export first, for which
// Close waits for at most 2 s: afterwards it has only the histograms. The error is that of the
// meter.
func (i *Instrumentation) Close() error {
	if pushes, is := i.options.meterProvider().(interface {
		ForceFlush(ctx context.Context) error
	}); is {
		ctx, cancel := context.WithTimeout(context.Background(), lastExport)
		_ = pushes.ForceFlush(ctx) // it may have been shut down
		cancel()
	}
	err := i.callback.Unregister()
	i.source.Close()
	i.terms.close()
	return err
}

// terms makes a span of each term of this process.
type terms struct {
	tracer trace.Tracer
	stop   func()

	mu     sync.Mutex
	on     map[string]trace.Span // by role
	closed bool                  // a call of event may be under way all the same: it begins no span that nobody ends
}

func (t *terms) event(e tenure.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	switch e.Type {
	case tenure.EventTermBegan:
		if missed, on := t.on[e.Role]; on { // events were dropped, and its end among them
			missed.End(trace.WithTimestamp(e.Time))
		}
		_, t.on[e.Role] = t.tracer.Start(context.Background(), "tenure.term", trace.WithTimestamp(e.Time), trace.WithNewRoot(), trace.WithAttributes(
			attribute.String("tenure.role", telemetry.RoleLabel(e.Role)), attribute.Int64("tenure.token", e.Token), attribute.String("tenure.instance", e.InstanceID)))
	case tenure.EventTermEnded:
		span, on := t.on[e.Role]
		if !on {
			return
		}
		delete(t.on, e.Role)
		span.SetAttributes(attribute.String("tenure.reason", e.Reason))
		switch e.Reason {
		case "expired", "lost", "failed":
			fail(span, e.Err)
		}
		span.End(trace.WithTimestamp(e.Time))
	}
}

func (t *terms) close() {
	t.stop()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, span := range t.on {
		span.End()
	}
	clear(t.on)
}
