package tenureprom

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/telemetry"
)

// Collector is a prometheus.Collector of one coordinator. It is safe for concurrent use.
//
// A scrape of a process that leads a role reads the tasks from Redis, and that of the leader of the
// default role the health of the cluster: two reads, each of which waits for at most 2 s. Any other
// process answers without Redis. What has no answer is left out, and all else is there.
type Collector struct {
	source     *telemetry.Source
	descs      map[*telemetry.Metric]*prometheus.Desc
	histograms map[*telemetry.Metric]*prometheus.HistogramVec
}

// New returns a collector of a coordinator, which counts from now on: call it before Run. A
// registry may have the collectors of several coordinators if their namespaces differ.
func New(coordinator *tenure.Coordinator) *Collector {
	c := &Collector{
		descs:      make(map[*telemetry.Metric]*prometheus.Desc),
		histograms: make(map[*telemetry.Metric]*prometheus.HistogramVec),
	}
	namespace := prometheus.Labels{"namespace": coordinator.Options().Namespace}
	for _, m := range telemetry.Metrics {
		if m.Kind == telemetry.Histogram {
			c.histograms[m] = prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: m.Name, Help: m.Help, ConstLabels: namespace, Buckets: m.Buckets,
			}, m.Labels)
			continue
		}
		c.descs[m] = prometheus.NewDesc(m.Name, m.Help, m.Labels, namespace)
	}
	c.source = telemetry.Watch(coordinator, recorder{c})
	return c
}

// recorder takes the values of histograms.
type recorder struct{ *Collector }

// Record implements telemetry.Sink.
func (r recorder) Record(m *telemetry.Metric, value float64, labels ...string) {
	r.histograms[m].WithLabelValues(labels...).Observe(value)
}

// Forget implements telemetry.Sink.
func (r recorder) Forget(task string) {
	for _, m := range telemetry.TaskHistograms {
		r.histograms[m].DeleteLabelValues(task)
	}
}

// Close ends the counting. The series stay as they are.
func (c *Collector) Close() { c.source.Close() }

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range telemetry.Metrics {
		if m.Kind == telemetry.Histogram {
			c.histograms[m].Describe(descs)
		} else {
			descs <- c.descs[m]
		}
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(metrics chan<- prometheus.Metric) {
	c.source.Collect(context.Background(), func(m *telemetry.Metric, value float64, labels ...string) {
		switch m { // the histograms of what there is are there from the start
		case telemetry.Leader:
			c.histograms[telemetry.RenewSafety].WithLabelValues(labels...)
			c.histograms[telemetry.Failover].WithLabelValues(labels...)
		case telemetry.TaskRunning:
			c.histograms[telemetry.TaskDuration].WithLabelValues(labels...)
			c.histograms[telemetry.TaskLateness].WithLabelValues(labels...)
		}
		kind := prometheus.GaugeValue
		if m.Kind == telemetry.Counter {
			kind = prometheus.CounterValue
		}
		metrics <- prometheus.MustNewConstMetric(c.descs[m], kind, value, labels...)
	})
	for _, m := range telemetry.Metrics {
		if m.Kind == telemetry.Histogram {
			c.histograms[m].Collect(metrics)
		}
	}
}
