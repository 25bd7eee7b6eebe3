package store

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// The bounds of metrics.
const (
	MaxMetrics     = 128 // that an instance pushes, and that an aggregate has
	MetricsHistory = 120 // aggregates that are kept
)

// MetricPattern is what the name of a metric looks like.
var MetricPattern = pattern(`A-Za-z0-9._:-`, 64)

// Metric is one number of a program.
type Metric struct {
	Name  string
	Value float64 // finite
}

// ParseMetric reads what an instance has pushed, which is untrusted.
func ParseMetric(name, value string) (Metric, bool) {
	if !MetricPattern.MatchString(name) || len(value) > 32 {
		return Metric{}, false
	}
	v, err := strconv.ParseFloat(value, 64)
	return Metric{name, v}, err == nil && finite(v)
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// MetricSummary is what the instances say of one metric together.
type MetricSummary struct {
	Name      string  `json:"-"`
	Instances int     `json:"instances"`
	Sum       float64 `json:"sum"`
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	Mean      float64 `json:"mean"`
}

// Text is the summary as the history has it. All numbers are finite.
func (m MetricSummary) Text() string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	return fmt.Sprintf(`{"instances":%d,"sum":%s,"min":%s,"max":%s,"mean":%s}`, m.Instances, number(m.Sum), number(m.Min), number(m.Max), number(m.Mean))
}

// ParseMetricSummary reads a text of the history, which is untrusted.
func ParseMetricSummary(name, text string) (MetricSummary, bool) {
	m := MetricSummary{}
	if !MetricPattern.MatchString(name) || len(text) > 256 || json.Unmarshal([]byte(text), &m) != nil || m.Instances < 1 {
		return MetricSummary{}, false
	}
	m.Name = name
	return m, true
}

// Aggregate is one entry of the history.
type Aggregate struct {
	At      time.Time // by Redis's clock
	Metrics []MetricSummary
}
