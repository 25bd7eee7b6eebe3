package tenure

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// keptMetrics is for how many intervals pushed metrics are kept.
const keptMetrics = 3

// pushes is how often metrics travel: with a heartbeat, and no more often than they are taken.
func (o RegistryOptions) pushes() time.Duration {
	return max(o.MetricsInterval, o.HeartbeatInterval.Truncate(time.Second)+time.Second)
}

// Aggregate is what all instances have pushed, as the leader read it.
type Aggregate struct {
	// At is when, by Redis's clock.
	At time.Time `json:"at"`
	// Metrics are summaries by the name of the metric; at most 128, the first ones by name.
	Metrics map[string]MetricSummary `json:"metrics"`
}

// MetricSummary is what the instances say of one metric together.
type MetricSummary struct {
	Instances int     `json:"instances"` // that have pushed it
	Sum       float64 `json:"sum"`
	Min       float64 `json:"min"`
	Max       float64 `json:"max"`
	Mean      float64 `json:"mean"`
}

// Metrics returns what an instance has pushed last (RegistryOptions.Metrics). It is empty if the
// instance pushes nothing, or has not for three intervals of its own. Errors: ErrNotFound for what
// can be no instance ID, ErrUnreachable, ErrMisconfigured, or the cause of ctx.
func (r *Registry) Metrics(ctx context.Context, instanceID string) (map[string]float64, error) {
	if !store.IDPattern.MatchString(instanceID) {
		return nil, fmt.Errorf("%w: %.100q is no instance ID", ErrNotFound, instanceID)
	}
	found, err := ask(ctx, &r.asked, func(ctx context.Context) ([][]store.Metric, error) { return r.store.Metrics(ctx, []string{instanceID}) })
	if err != nil {
		return nil, err
	}
	metrics := make(map[string]float64, len(found[0]))
	for _, m := range found[0] {
		metrics[m.Name] = m.Value
	}
	return metrics, nil
}

// Aggregates returns the history of what all instances have pushed, the latest entry first: at most
// limit entries, and at most the last 120, which is an hour by default. Limit 0 or less: none.
// Errors: ErrUnreachable, ErrMisconfigured, or the cause of ctx.
func (r *Registry) Aggregates(ctx context.Context, limit int) ([]Aggregate, error) {
	if limit <= 0 {
		return nil, nil
	}
	found, err := ask(ctx, &r.asked, func(ctx context.Context) ([]store.Aggregate, error) { return r.store.Aggregates(ctx, limit) })
	if err != nil {
		return nil, err
	}
	history := make([]Aggregate, len(found))
	for i, entry := range found {
		history[i] = Aggregate{At: entry.At, Metrics: make(map[string]MetricSummary, len(entry.Metrics))}
		for _, m := range entry.Metrics {
			history[i].Metrics[m.Name] = MetricSummary{Instances: m.Instances, Sum: m.Sum, Min: m.Min, Max: m.Max, Mean: m.Mean}
		}
	}
	return history, nil
}

// measure calls RegistryOptions.Metrics every MetricsInterval until ctx is done, and leaves for the
// next heartbeat what that returns. It does not wait for a call that is on when ctx is done.
func (r *Registry) measure(ctx context.Context) {
	if r.opts.Metrics == nil || r.opts.HeartbeatInterval < 0 {
		return
	}
	var faults reportOnce
	ticker := time.NewTicker(r.opts.MetricsInterval)
	defer ticker.Stop()
	for {
		var values map[string]float64
		answer := make(chan error, 1)
		r.measuring.begin()
		go catch(func() error { // ends with the call of the application; counted in measuring
			values = r.opts.Metrics()
			return nil
		}, func(err error) {
			if err != nil { // a panic, maybe with an error of the application
				_, err = worded(ctx, metricsFunc, err)
			}
			answer <- err
			r.measuring.end()
		})
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return
			case err := <-answer:
				waiting = false
				var metrics []store.Metric
				if err == nil {
					metrics, err = listed(values)
				}
				if err != nil {
					faults.report(r.bus, EventMetricsFailed, err)
					break
				}
				faults.over()
				if len(metrics) > 0 {
					r.measured.Store(&metrics)
				}
			case <-ticker.C:
				faults.report(r.bus, EventMetricsFailed, fmt.Errorf("%s has not returned within %v", metricsFunc, r.opts.MetricsInterval))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// listed is what a call of RegistryOptions.Metrics has returned, in the order of the names. Of what
// cannot be pushed nothing is.
func listed(values map[string]float64) ([]store.Metric, error) {
	if len(values) > store.MaxMetrics {
		return nil, fmt.Errorf("%s: %d metrics, at most %d are pushed", metricsFunc, len(values), store.MaxMetrics)
	}
	metrics := make([]store.Metric, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !store.MetricPattern.MatchString(name) {
			return nil, fmt.Errorf("%s: the name %.80q must match %s", metricsFunc, name, store.MetricPattern)
		}
		if value := values[name]; math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, fmt.Errorf("%s: %s is %v, which is no finite number", metricsFunc, name, value)
		}
		metrics = append(metrics, store.Metric{Name: name, Value: values[name]})
	}
	return metrics, nil
}

// leaderWork is what the leader does for the registry.
func (r *Registry) leaderWork() []LeadFunc {
	work := []LeadFunc{r.sweepLoop}
	if r.opts.Metrics != nil {
		work = append(work, r.aggregateLoop)
	}
	return work
}

// aggregateLoop adds a summary of what all instances have pushed to the history, every
// MetricsInterval until ctx is done. It is leader work.
func (r *Registry) aggregateLoop(ctx context.Context, term Term) error {
	var faults reportOnce
	ticker := time.NewTicker(r.opts.MetricsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		switch err := r.aggregate(ctx, term); {
		case err == nil:
			faults.over()
		case ctx.Err() == nil: // else the term is over
			faults.report(r.bus, EventMetricsFailed, err)
		}
	}
}

// aggregate reads what all instances have pushed, page by page, and adds the summary.
func (r *Registry) aggregate(ctx context.Context, term Term) error {
	var ids []string
	if _, err := r.each(ctx, func(i Instance) bool { ids = append(ids, i.ID); return true }); err != nil && !matches(err, ErrTruncated) {
		return err
	}
	summaries := map[string]*store.MetricSummary{}
	for page := range slices.Chunk(ids, store.SweepBatch) {
		found, err := adding(ctx, r, func(ctx context.Context) ([][]store.Metric, error) { return r.store.Metrics(ctx, page) })
		if err != nil {
			return err
		}
		for _, metrics := range found {
			summarize(summaries, metrics)
		}
	}
	entry := summary(summaries)
	if len(entry) == 0 {
		return nil
	}
	if !term.Valid() {
		return errTermOver
	}
	mark := fmt.Sprintf("%s-%d", r.incarnation, r.aggregated.Add(1))
	_, err := adding(ctx, r, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.store.Aggregate(ctx, mark, entry) })
	return err
}

// adding makes one call for an aggregate and waits for it.
func adding[T any](ctx context.Context, r *Registry, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := within(ctx, registryBound)
	defer cancel()
	return bounded(ctx, &r.adding, call)
}

// summarize adds what one instance has pushed.
func summarize(summaries map[string]*store.MetricSummary, metrics []store.Metric) {
	for _, m := range metrics {
		s := summaries[m.Name]
		if s == nil {
			s = &store.MetricSummary{Name: m.Name, Min: m.Value, Max: m.Value}
			summaries[m.Name] = s
		}
		s.Instances++
		s.Sum += m.Value
		s.Min, s.Max = min(s.Min, m.Value), max(s.Max, m.Value)
	}
}

// summary is an entry of the history: the first names, without those whose sum is no number.
func summary(summaries map[string]*store.MetricSummary) []store.MetricSummary {
	var entry []store.MetricSummary
	for _, name := range slices.Sorted(maps.Keys(summaries)) {
		s := *summaries[name]
		s.Mean = s.Sum / float64(s.Instances)
		if !math.IsInf(s.Sum, 0) && len(entry) < store.MaxMetrics {
			entry = append(entry, s)
		}
	}
	return entry
}
