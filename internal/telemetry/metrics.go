// Package telemetry makes metrics of what a coordinator says of itself. The table of metrics is
// here once; tenureprom and tenureotel publish it.
package telemetry

// Kind is how the values of a metric add up.
type Kind int

// The kinds of metrics.
const (
	Gauge     Kind = iota // as it is when it is asked for
	Counter               // a sum that only grows, as it is when it is asked for
	Histogram             // values that are recorded one by one
)

// Metric is one row of the table. Every series carries the namespace besides the labels here.
type Metric struct {
	Name    string // as Prometheus has it; tenure_leader is tenure.leader in OpenTelemetry
	Help    string
	Unit    string // as OpenTelemetry has it; "1": none
	Kind    Kind
	Labels  []string
	Buckets []float64 // of a histogram: upper bounds
}

// ofTask reports whether the first label of the metric is the task.
func (m *Metric) ofTask() bool { return len(m.Labels) > 0 && m.Labels[0] == "task" }

// TaskHistograms are the histograms of a task.
var TaskHistograms = []*Metric{TaskDuration, TaskLateness}

var (
	callBuckets     = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	marginBuckets   = []float64{.1, .25, .5, 1, 2, 3, 4, 5, 7.5, 10, 12.5, 15, 17.5, 20, 25, 30, 60, 120}
	failoverBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45, 60, 120}
	durationBuckets = []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600}
	lateBuckets     = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 10, 30, 60, 300, 3600}
)

// The metrics. A process says of the cluster only what it knows: who leads, from every process;
// the instances, from the leader of the default role; a task, from the leader of its role.
var (
	Leader = &Metric{
		Name: "tenure_leader", Unit: "1", Labels: []string{"role"},
		Help: "1 while this process leads the role, else 0. The sum over all processes is 1, or 0 while nobody leads.",
	}
	Draining = &Metric{
		Name: "tenure_draining", Unit: "1",
		Help: "1 while this process drains: it leads nothing until it is undrained.",
	}
	LeaseTTL = &Metric{
		Name: "tenure_lease_ttl_seconds", Unit: "s", Labels: []string{"role"},
		Help: "LeaseTTL of this candidate: for how long a lease lasts that is not renewed.",
	}
	LeaseRemaining = &Metric{
		Name: "tenure_lease_remaining_seconds", Unit: "s", Labels: []string{"role"},
		Help: "For how long the term of this process goes on if it is not renewed any more; 0 if it does not lead.",
	}
	TermToken = &Metric{
		Name: "tenure_term_token", Unit: "1", Labels: []string{"role"},
		Help: "Fencing token of the leader that this process knows of; 0 if it knows of none.",
	}
	RenewSafety = &Metric{
		Name: "tenure_renew_safety_seconds", Unit: "s", Kind: Histogram, Labels: []string{"role"}, Buckets: marginBuckets,
		Help: "What was left of the term when the answer to a renewal came. Close to 0: terms are about to be lost.",
	}
	LeadershipChanges = &Metric{
		Name: "tenure_leadership_changes_total", Unit: "1", Kind: Counter, Labels: []string{"role", "reason"},
		Help: "Terms of this process that have ended, by why: expired, lost, failed, resigned, transferred, stopped.",
	}
	Unowned = &Metric{
		Name: "tenure_unowned_seconds_total", Unit: "s", Kind: Counter, Labels: []string{"role"},
		Help: "For how long this process has known of no leader while it ran. It knows of a leader that has died until the lease ends.",
	}
	Failover = &Metric{
		Name: "tenure_failover_seconds", Unit: "s", Kind: Histogram, Labels: []string{"role"}, Buckets: failoverBuckets,
		Help: "For how long nobody had led when a term of this process began. A leader that has died counts until its lease ends.",
	}
	Waiting = &Metric{
		Name: "tenure_waiting", Unit: "1", Labels: []string{"role", "reason"},
		Help: "1 for the reason why this process does not lead, else 0.",
	}
	RedisUp = &Metric{
		Name: "tenure_redis_up", Unit: "1",
		Help: "1 while Redis gives usable answers to the elections of this process, or, if it has none, to its heartbeats, else 0. A key that holds something else is an answer.",
	}
	RedisCall = &Metric{
		Name: "tenure_redis_call_seconds", Unit: "s", Kind: Histogram, Labels: []string{"call"}, Buckets: callBuckets,
		Help: "How long calls of scripts in Redis took, those without a usable answer too.",
	}
	RedisCallErrors = &Metric{
		Name: "tenure_redis_call_errors_total", Unit: "1", Kind: Counter, Labels: []string{"call"},
		Help: "Calls of scripts in Redis without a usable answer.",
	}
	CallsInFlight = &Metric{
		Name: "tenure_calls_in_flight", Unit: "1",
		Help: "Calls of the elections of this process to Redis that have not returned, abandoned ones included.",
	}
	Hearing = &Metric{
		Name: "tenure_hearing", Unit: "1",
		Help: "1 while the subscription to hints stands. Without it a hand-over waits for the next look.",
	}
	RightsMissing = &Metric{
		Name: "tenure_rights_missing", Unit: "1", Labels: []string{"right"},
		Help: "1 if Redis refuses this process a right that it needs: info, publish, subscribe, or scripts, which is 1 for 8 minutes after any script, or the list of the tasks, was refused.",
	}
	ClockSteps = &Metric{
		Name: "tenure_redis_clock_steps_total", Unit: "1", Kind: Counter,
		Help: "How often this process has seen Redis's clock being set.",
	}
	HeartbeatAge = &Metric{
		Name: "tenure_heartbeat_age_seconds", Unit: "s",
		Help: "How long ago Redis took the last heartbeat of this process; since the start of the counting if it took none.",
	}
	ClusterHealthy = &Metric{
		Name: "tenure_cluster_healthy", Unit: "1",
		Help: "1 if the cluster is healthy (ClusterStatus.Healthy), else 0. Only the leader of the default role reports it.",
	}
	Instances = &Metric{
		Name: "tenure_instances", Unit: "1", Labels: []string{"status"},
		Help: "Instances by state. Only the leader of the default role reports it.",
	}
	InstancesRemoved = &Metric{
		Name: "tenure_instances_removed_total", Unit: "1", Kind: Counter,
		Help: "Instances that this process has removed, as leader, since they were silent for DownAfter.",
	}
	SweepHeld = &Metric{
		Name: "tenure_sweep_held", Unit: "1",
		Help: "Silent instances that are not removed yet, since too many are silent at once. Only the leader of the default role reports it.",
	}
	TaskRuns = &Metric{
		Name: "tenure_task_runs_total", Unit: "1", Kind: Counter, Labels: []string{"task", "status"},
		Help: "Runs that ended in this process, by how: succeeded, failed, abandoned, canceled, interrupted.",
	}
	TaskRetries = &Metric{
		Name: "tenure_task_retries_total", Unit: "1", Kind: Counter, Labels: []string{"task"},
		Help: "Attempts that failed in this process and were followed by another.",
	}
	TaskSkipped = &Metric{
		Name: "tenure_task_skipped_total", Unit: "1", Kind: Counter, Labels: []string{"task"},
		Help: "Slots that this process has passed over by policy.",
	}
	TaskDuration = &Metric{
		Name: "tenure_task_duration_seconds", Unit: "s", Kind: Histogram, Labels: []string{"task"}, Buckets: durationBuckets,
		Help: "How long attempts took that ended in this process.",
	}
	TaskLateness = &Metric{
		Name: "tenure_task_lateness_seconds", Unit: "s", Kind: Histogram, Labels: []string{"task"}, Buckets: lateBuckets,
		Help: "How long after its slot the first attempt of a run began, by Redis's clock, jitter included.",
	}
	TaskRunning = &Metric{
		Name: "tenure_task_running", Unit: "1", Labels: []string{"task"},
		Help: "1 while a run is on. Only the leader of the task's role reports it.",
	}
	TaskOverrun = &Metric{
		Name: "tenure_task_hung_total", Unit: "1", Kind: Counter, Labels: []string{"task"},
		Help: "Attempts that took ten times as long as usual, or ignored the end of their context.",
	}
	TaskHanging = &Metric{
		Name: "tenure_task_hanging", Unit: "1", Labels: []string{"task"},
		Help: "1 while an attempt is on that tenure_task_hung_total has counted. Only the leader of the task's role reports it.",
	}
	TaskOverdue = &Metric{
		Name: "tenure_task_overdue", Unit: "1", Labels: []string{"task"},
		Help: "1 if a slot has been due for more than a minute, or the task stands still: its record cannot be read, or its schedule fails. Only the leader of the task's role reports it.",
	}
	TaskPaused = &Metric{
		Name: "tenure_task_paused", Unit: "1", Labels: []string{"task"},
		Help: "1 while the task is paused. Only the leader of its role reports it.",
	}
	TaskFailures = &Metric{
		Name: "tenure_task_consecutive_failures", Unit: "1", Labels: []string{"task"},
		Help: "Runs that have failed for good since the last success. Only the leader of the task's role reports it.",
	}
	TaskLastSuccess = &Metric{
		Name: "tenure_task_last_success_timestamp_seconds", Unit: "s", Labels: []string{"task"},
		Help: "When a run last succeeded, as a Unix time; 0: never. Only the leader of the task's role reports it.",
	}
	EventsDropped = &Metric{
		Name: "tenure_events_dropped_total", Unit: "1", Kind: Counter,
		Help: "Events, and calls to Redis, that these metrics have missed, since more came than could be counted.",
	}
	BuildInfo = &Metric{
		Name: "tenure_build_info", Unit: "1", Labels: []string{"version", "goversion"},
		Help: "Always 1; the versions of tenure and of Go.",
	}
)

// Metrics are all metrics, in the order of a page about them.
var Metrics = []*Metric{
	Leader, LeaseTTL, LeaseRemaining, TermToken, RenewSafety, LeadershipChanges, Unowned, Failover, Waiting, Draining,
	RedisUp, RedisCall, RedisCallErrors, CallsInFlight, Hearing, RightsMissing, ClockSteps,
	HeartbeatAge, ClusterHealthy, Instances, InstancesRemoved, SweepHeld,
	TaskRuns, TaskRetries, TaskSkipped, TaskDuration, TaskLateness, TaskRunning, TaskOverrun, TaskHanging, TaskOverdue, TaskPaused, TaskFailures, TaskLastSuccess,
	EventsDropped, BuildInfo,
}
