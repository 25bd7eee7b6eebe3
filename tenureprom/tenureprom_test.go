package tenureprom_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tenure-go/tenure"
	"github.com/tenure-go/tenure/internal/telemetry"
	"github.com/tenure-go/tenure/tenureprom"
	"github.com/tenure-go/tenure/tenuretest"
)

// patience is far longer than anything here takes.
const patience = time.Minute

// process is one process with its metrics.
type process struct {
	*tenure.Coordinator
	t       *testing.T
	metrics *prometheus.Registry
}

func newProcess(t *testing.T, server *miniredis.Miniredis, id string) *process {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	coordinator, err := tenure.New(client, tenure.Options{
		Namespace: "shop", InstanceID: id,
		Election: tenure.ElectionOptions{
			LeaseTTL: 3 * time.Second, RenewInterval: 100 * time.Millisecond,
			Safety: tenure.SafetyOptions{RestartGuard: -1},
		},
		Registry: tenure.RegistryOptions{HeartbeatInterval: 200 * time.Millisecond, SweepInterval: 200 * time.Millisecond},
	})
	require.NoError(t, err)
	collector := tenureprom.New(coordinator)
	t.Cleanup(collector.Close)
	p := &process{Coordinator: coordinator, t: t, metrics: prometheus.NewPedanticRegistry()}
	p.metrics.MustRegister(collector)
	return p
}

// TestHistogramsBeforeTheirFirstValue: those of what there is are there from the start, so that no
// first value is taken for none.
func TestHistogramsBeforeTheirFirstValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, control := tenuretest.New(t, tenure.Options{Namespace: "shop", InstanceID: "a"})
		require.NoError(t, c.Tasks().Register(tenure.Task{Name: "rates", Schedule: tenure.OnDemand(), Run: func(context.Context, tenure.TaskRun) error { return nil }}))
		collector := tenureprom.New(c)
		p := &process{Coordinator: c, t: t, metrics: prometheus.NewPedanticRegistry()}
		p.metrics.MustRegister(collector)
		stop := p.run()
		control.Lead()
		for _, m := range []*telemetry.Metric{telemetry.RenewSafety, telemetry.Failover} {
			require.GreaterOrEqual(t, p.value(m.Name, "role=default"), 0.0, m.Name)
		}
		for _, m := range []*telemetry.Metric{telemetry.TaskDuration, telemetry.TaskLateness} {
			require.Zero(t, p.value(m.Name, "task=rates"), m.Name)
		}
		stop()
		collector.Close()
	})
}

// TestCloseEndsTheCounting: what comes after it is not counted.
func TestCloseEndsTheCounting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, closed := range []bool{false, true} {
			c, control := tenuretest.New(t, tenure.Options{Namespace: "shop", InstanceID: "a"})
			collector := tenureprom.New(c)
			p := &process{Coordinator: c, t: t, metrics: prometheus.NewPedanticRegistry()}
			p.metrics.MustRegister(collector)
			if closed {
				collector.Close()
			}
			stop := p.run()
			control.Lead()
			control.Depose()
			synctest.Wait()
			require.InDelta(t, map[bool]float64{false: 1, true: 0}[closed], p.value(telemetry.LeadershipChanges.Name, "role=default", "reason=lost"), 0)
			stop()
			collector.Close()
		}
	})
}

// run runs the process until stop is called.
func (p *process) run() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }() // ends with cancel
	return func() { cancel(); require.NoError(p.t, <-ended) }
}

// value is that of a series; of a histogram how many values it has. -1: there is no such series.
func (p *process) value(name string, labels ...string) float64 {
	families, err := p.metrics.Gather()
	require.NoError(p.t, err)
	for _, family := range families {
		for _, m := range family.Metric {
			if family.GetName() != name || !has(m, labels) {
				continue
			}
			switch family.GetType() {
			case dto.MetricType_GAUGE:
				return m.Gauge.GetValue()
			case dto.MetricType_COUNTER:
				return m.Counter.GetValue()
			default:
				return float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return -1
}

// has reports whether a series has these labels: role=default.
func has(m *dto.Metric, labels []string) bool {
	set := make(map[string]bool)
	for _, label := range m.Label {
		set[label.GetName()+"="+label.GetValue()] = true
	}
	for _, label := range labels {
		if !set[label] {
			return false
		}
	}
	return set["namespace=shop"]
}

func (p *process) eventually(least float64, name string, labels ...string) {
	p.t.Helper()
	require.Eventually(p.t, func() bool { return p.value(name, labels...) >= least }, patience, 10*time.Millisecond, "%s %v", name, labels)
}

// TestMetricsOfAProcess follows two processes through election, tasks, hand-over and an outage of
// Redis.
func TestMetricsOfAProcess(t *testing.T) {
	server := miniredis.RunT(t)
	a, b := newProcess(t, server, "a"), newProcess(t, server, "b")
	for _, p := range []*process{a, b} {
		require.NoError(t, p.Tasks().Register(tenure.Task{Name: "tidy", Schedule: tenure.Every(100 * time.Millisecond), Run: nothing}))
		require.NoError(t, p.Tasks().Register(tenure.Task{Name: "rates", Schedule: tenure.OnDemand(), Run: fails}))
	}
	require.InDelta(t, 0, a.value("tenure_leader", "role=default"), 0)
	require.InDelta(t, 0, a.value("tenure_leadership_changes_total", "role=default", "reason=expired"), 0, "there before it happens")
	require.InDelta(t, 0, a.value("tenure_renew_safety_seconds", "role=default"), 0)

	stopA := a.run()
	a.eventually(1, "tenure_leader", "role=default")
	defer b.run()()
	b.eventually(1, "tenure_waiting", "role=default", "reason=lease")
	require.InDelta(t, 0, b.value("tenure_leader", "role=default"), 0)
	require.InDelta(t, a.value("tenure_term_token", "role=default"), b.value("tenure_term_token", "role=default"), 0, "both know of one term")
	require.InDelta(t, 3, b.value("tenure_lease_ttl_seconds", "role=default"), 0)
	require.Positive(t, a.value("tenure_lease_remaining_seconds", "role=default"))
	require.Positive(t, a.value("tenure_unowned_seconds_total", "role=default"), "until the first election")
	a.eventually(2, "tenure_renew_safety_seconds", "role=default")
	a.eventually(2, "tenure_redis_call_seconds", "call=beat")
	a.eventually(2, "tenure_instances", "status=active")
	require.InDelta(t, -1, b.value("tenure_instances", "status=active"), 0, "only the leader counts")
	for name, want := range map[string]float64{
		"tenure_redis_up": 1, "tenure_hearing": 1, "tenure_sweep_held": 0, "tenure_draining": 0, "tenure_cluster_healthy": 1, "tenure_events_dropped_total": 0, "tenure_build_info": 1,
	} {
		require.InDelta(t, want, a.value(name), 0, name)
	}

	a.eventually(2, "tenure_task_runs_total", "task=tidy", "status=succeeded")
	a.eventually(2, "tenure_task_lateness_seconds", "task=tidy")
	a.eventually(2, "tenure_task_duration_seconds", "task=tidy")
	a.eventually(1, "tenure_task_last_success_timestamp_seconds", "task=tidy")
	_, err := b.Tasks().Trigger(t.Context(), "rates")
	require.NoError(t, err)
	a.eventually(1, "tenure_task_runs_total", "task=rates", "status=failed")
	a.eventually(1, "tenure_task_consecutive_failures", "task=rates")
	require.InDelta(t, 0, a.value("tenure_task_overdue", "task=rates"), 0)
	require.InDelta(t, -1, b.value("tenure_task_consecutive_failures", "task=rates"), 0, "only the leader reports its tasks")
	require.InDelta(t, 0, b.value("tenure_task_runs_total", "task=rates", "status=failed"), 0, "there before it happens")

	require.NoError(t, a.Tasks().Unregister(t.Context(), "rates"))
	for _, name := range []string{"tenure_task_runs_total", "tenure_task_duration_seconds", "tenure_task_lateness_seconds", "tenure_task_consecutive_failures"} {
		require.Eventually(t, func() bool { return a.value(name, "task=rates") == -1 }, patience, 10*time.Millisecond, name)
		require.NotEqual(t, -1.0, a.value(name, "task=tidy"), name)
	}

	stopA()
	b.eventually(1, "tenure_leader", "role=default")
	b.eventually(1, "tenure_failover_seconds", "role=default")
	require.InDelta(t, 1, a.value("tenure_leadership_changes_total", "role=default", "reason=stopped"), 0)
	require.InDelta(t, 0, a.value("tenure_leader", "role=default"), 0)

	require.InDelta(t, -1, a.value("tenure_cluster_healthy"), 0, "it does not lead any more")
	require.Less(t, b.value("tenure_heartbeat_age_seconds"), patience.Seconds())

	server.SetError("LOADING Redis is loading the dataset in memory")
	b.eventually(1, "tenure_redis_call_errors_total", "call=renew")
	require.Eventually(t, func() bool { return b.value("tenure_redis_up") == 0 }, patience, 10*time.Millisecond)
	require.InDelta(t, -1, b.value("tenure_task_overdue", "task=tidy"), 0, "Redis does not say")
	b.eventually(1, "tenure_leadership_changes_total", "role=default", "reason=expired")
	require.Greater(t, b.value("tenure_heartbeat_age_seconds"), 2.0, "it grows for as long as the term went on")
	server.SetError("")
	b.eventually(1, "tenure_leader", "role=default")
	b.eventually(1, "tenure_redis_up")
}

// TestTaskThatTheLeaderDoesNotKnow: the leader says nothing of a task that it has not registered.
// Those that have do, which is how TenureTaskOverdue sees it.
func TestTaskThatTheLeaderDoesNotKnow(t *testing.T) {
	server := miniredis.RunT(t)
	old, young := newProcess(t, server, "a"), newProcess(t, server, "b")
	require.NoError(t, young.Tasks().Register(tenure.Task{Name: "tidy", Schedule: tenure.Every(100 * time.Millisecond), Run: nothing}))
	defer old.run()()
	old.eventually(1, "tenure_leader", "role=default")
	defer young.run()()
	young.eventually(1, "tenure_waiting", "role=default", "reason=lease")
	require.InDelta(t, -1, old.value("tenure_task_overdue", "task=tidy"), 0)
	require.InDelta(t, -1, young.value("tenure_task_overdue", "task=tidy"), 0)
	require.InDelta(t, -1, old.value("tenure_task_hung_total", "task=tidy"), 0)
	require.InDelta(t, 0, young.value("tenure_task_hung_total", "task=tidy"), 0)
}

func nothing(context.Context, tenure.TaskRun) error { return nil }

func fails(context.Context, tenure.TaskRun) error { return errors.New("dial tcp: i/o timeout") }

// TestNamesAreAsPrometheusWantsThem: by the rules of promlint, and as the table of metrics has
// them.
func TestNamesAreAsPrometheusWantsThem(t *testing.T) {
	coordinator, err := tenure.NewStandalone(tenure.Options{Namespace: "shop"})
	require.NoError(t, err)
	collector := tenureprom.New(coordinator)
	defer collector.Close()
	metrics := prometheus.NewPedanticRegistry()
	metrics.MustRegister(collector)
	families, err := metrics.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	descs := make(chan *prometheus.Desc, 100)
	collector.Describe(descs)
	close(descs)
	described := make(map[string]bool)
	for desc := range descs {
		name := strings.Split(desc.String(), `"`)[1]
		described[name] = true
	}
	require.Len(t, described, len(telemetry.Metrics))
	for _, m := range telemetry.Metrics {
		require.True(t, described[m.Name], m.Name)
		for _, label := range m.Labels {
			require.NotContains(t, []string{"instance", "instance_id", "namespace"}, label, m.Name)
		}
	}
}

func Example() {
	coordinator, err := tenure.NewStandalone(tenure.Options{Namespace: "shop"})
	if err != nil {
		fmt.Println(err)
		return
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(tenureprom.New(coordinator)) // before Run
	http.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	// Output:
}
