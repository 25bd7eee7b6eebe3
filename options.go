package tenure

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// Options configure a Coordinator. Only Namespace must be set: the zero value of every other field
// is a working default. Fields that can be switched off say what a negative value does. The
// constructor reports all problems at once, and corrects nothing.
type Options struct {
	// Namespace is the prefix of every key, and must be set: use the name of the service, such as
	// "shop". Services that share a Redis and a namespace elect one leader between them. In two
	// databases of one Redis they need two namespaces too, because hints know no databases. A
	// namespace is [A-Za-z0-9._:-]{1,128}, with at most one {hash tag}, which a Redis Cluster
	// needs: "{shop}". No part of it after a colon may be "leader", "task" or "instance": its keys
	// would be those of another namespace.
	Namespace string
	// InstanceID names this process: [A-Za-z0-9._:-]{1,128}, but not "." or "..". Default
	// $HOSTNAME, else <host>-<pid>, else unknown-<pid>. It is a label: ownership of a lease never
	// rests on it. Processes that share a $HOSTNAME need one each: the registry keeps one record an
	// ID (EventInstanceDuplicated).
	InstanceID string
	// Election holds the options of the default role.
	Election ElectionOptions
	// NoDefaultRole leaves this process out of the election of the default role: it takes part in
	// the registry and in the roles of AddRole. Roles has only those, Run takes no leader work,
	// tasks must name a role, and Registry.Status does not ask who leads. Election must have no
	// Role, Lead and Health then. What the leader of the default role does beside its work,
	// sweeping the registry, is left to processes that have that role: if there are none, the
	// records of the dead stay. False: there is a default role.
	NoDefaultRole bool
	// Registry holds the options of the instance registry.
	Registry RegistryOptions
	// Tasks holds the options that apply to every task.
	Tasks TaskOptions
	// ShutdownTimeout is the longest time between the end of the context of Run and its return. If
	// something still runs then, Run returns ErrDrainTimeout. The last 5 %, at most 250 ms, are for
	// observers and Logger to hear of that, and a Coordinator keeps another 10 %, at most 1 s, to
	// deregister: leader work has the rest. ShutdownTimeout also bounds the hand-over of a term
	// that ends otherwise: the lease is not renewed for longer, and lapses if work still runs.
	// Default 25 s, below the 30 s that Kubernetes waits; between 1 ms and 24 h.
	ShutdownTimeout time.Duration
	// FailFast makes Run return the first error of Redis that comes before its first good answer,
	// ErrUnreachable or ErrMisconfigured, instead of trying for ever.
	FailFast bool
	// Logger gets state changes: faults at Warn and above, what other processes report and the
	// start of tasks at Debug, all else at Info. Nil is silent. It runs apart from every loop: a
	// slow handler delays nothing.
	Logger *slog.Logger

	// random yields jitter in [0, 1), secret the nonces. Tests make them repeatable.
	random func() float64
	secret func() string
}

// ElectorOptions configure an Elector that stands alone: those of Options that it uses, with the
// same defaults and the same limits. Namespace must be set.
type ElectorOptions struct {
	Namespace       string          // see Options
	InstanceID      string          // see Options
	Election        ElectionOptions // what is elected, and how
	ShutdownTimeout time.Duration   // see Options
	FailFast        bool            // see Options
	Logger          *slog.Logger    // see Options

	random func() float64 // see Options
	secret func() string
}

// whole is the Options that the rest of the package goes by.
func (o ElectorOptions) whole() Options {
	return Options{
		Namespace: o.Namespace, InstanceID: o.InstanceID, Election: o.Election, ShutdownTimeout: o.ShutdownTimeout,
		FailFast: o.FailFast, Logger: o.Logger, random: o.random, secret: o.secret,
	}
}

// ElectionOptions configure the election of one role.
type ElectionOptions struct {
	// Role names what is led: [A-Za-z0-9._-]{1,128}, not "since", "term", "terms" or "events". ""
	// is the default role. Coordinator.AddRole takes the name beside the options.
	Role string
	// LeaderKey is the key of the lease. Set it to share a lease with another program. Default
	// <Namespace>:leader for the default role, else <Namespace>:leader:<Role>. All candidates of a
	// role must use the same key. Neither it nor the keys that are derived from it (:since, :term,
	// :terms, :events) may be another key of the namespace.
	LeaderKey string
	// LeaseTTL is how long a lease is granted for: whole milliseconds between 300 ms and 24 h.
	// Default 30 s.
	LeaseTTL time.Duration
	// RenewInterval is the mean interval between renewals, at least 10 ms. Default LeaseTTL/3. If a
	// process has more than 16 roles, renewals may come up to half of it earlier, together. Two
	// of them must fit before the point at which a term that is not renewed is cancelled: 1.1 ·
	// RenewInterval ≤ (L − g)/2, where L = LeaseTTL − DriftMargin − 2 ms and g = max(50 ms,
	// LeaseTTL/50).
	RenewInterval time.Duration
	// RetryInterval is the longest sleep of a follower, between 10 ms and LeaseTTL. Default
	// LeaseTTL/2. A follower wakes earlier if the lease that it knows of ends, or if a hint
	// arrives. Else it sleeps for at least 19/20 of RetryInterval, or for at least half of it after
	// a question that was not due by time, so that followers do not ask in step. A process that has
	// resigned stands back for the same time, and so does one whose requests Redis has not answered
	// for a LeaseTTL: by then every follower has asked for the lease, even if no hint reached it.
	// All candidates of a role should use the same value.
	RetryInterval time.Duration
	// Priority says who should lead: in a vacancy, and no sooner, the candidate of the highest
	// Priority among those that ask is preferred. Default 0; between -1000 and 1000. A vacancy is
	// left to the best candidate for min(LeaseTTL/10, 1 s), or for two round trips if that is more;
	// then anyone leads. A candidate that does not hear Redis's answers, is not healthy, or stands
	// back, is not preferred. One whose work or health check has failed comes last for
	// max(LeaseTTL, 30 s), doubled with each further failure up to twenty times that, whatever its
	// Priority: so Preempt and Spread do not have sound work give way to work that fails, again and
	// again. Among equals a candidate of a new version is preferred: see RegistryOptions.Version.
	Priority int
	// Preempt is the time after which a leader gives way to a better candidate. If a candidate of a
	// higher Priority has asked for that long without a break, and the term is that old, the leader
	// offers it the lease as Elector.Transfer does. At least 2 · LeaseTTL. Zero: a better candidate
	// waits for a vacancy, unless Spread is set. A candidate of Priority 0 is not noted beside a
	// leader of a negative one: to prefer it, give it 1.
	Preempt time.Duration
	// Spread shares roles out between processes: of candidates of one Priority, one whose process
	// leads fewer other roles is preferred. A process that leads at least two roles more than a
	// candidate of this role hands the role over to it, as with Preempt, whose default is then 2 ·
	// LeaseTTL. Within Preempt it hands over a quarter of the roles by which the two differ, one at
	// least, and none if it leads no more than one role more than each candidate: then nothing
	// moves any more. Set it for each role that is to be shared, by all its candidates. All roles
	// of a process count, and those that it is about to take over, but only those with Spread are
	// handed over. Electors of NewElector know nothing of each other, and each counts its own role
	// alone: to spread roles add them to one Coordinator. False: roles stay where they are.
	Spread bool
	// ByInstanceID decides between candidates that are equal otherwise: in a vacancy the one with
	// the lowest number at the end of its InstanceID is preferred, node-9 before node-10. Those
	// without a number, or with one above 997, come last. All candidates of a role should set it
	// alike. False: the first that asks wins; with Spread, an order that follows from the names of
	// role and instance decides.
	ByInstanceID bool
	// Safety holds the waits and margins that the promise about IsLeader rests on.
	Safety SafetyOptions
	// Ineligible makes this process a candidate that does not campaign, until Elector.SetEligible
	// says that it may. It is registered and active, and knows who leads. False: it may lead.
	Ineligible bool
	// Health is called every RenewInterval, in a goroutine of its own and with a context that ends
	// after RenewInterval. If it returns an error, or does not return in time, this candidate gives
	// its term up, and it does not campaign until a later call returns nil. After such a term this
	// process stands back as it does after failed work, see LeadFunc. Nil: no check.
	Health func(context.Context) error
	// Lead is leader work of this role, beside the work that is passed to Run.
	Lead []LeadFunc
}

// SafetyOptions are the waits and margins that the promise about IsLeader rests on. For each of
// them zero is the default. Most programs need none.
type SafetyOptions struct {
	// DriftMargin is how far Redis's clock may run ahead of ours within a LeaseTTL. Default max(1 %
	// of LeaseTTL, 10 ms), at most LeaseTTL/2. A negative value switches it off: the clocks must
	// run at the same rate.
	DriftMargin time.Duration
	// EmptyHistoryWait is how long no lease is granted on a Redis that has no history of this role.
	// Living leaders are asked to renew meanwhile: the roll-call. Each must have renewed by then,
	// which takes (3 + ⌈roles / 800⌉) round trips with the roles of its process. EventRollCallSlow
	// warns if that is more than half of the wait. Default 250 ms, at most 24 h. If it is LeaseTTL,
	// no two lead across a FLUSHALL even if the leader cannot be reached, or does not hear the
	// roll-call because its subscription is down or its user has no right to the channel. A
	// negative value switches it off: two may lead across every FLUSHALL.
	EmptyHistoryWait time.Duration
	// HoldOff is the least time for which no lease is granted after Redis has lost data. The
	// longest of HoldOff, LeaseTTL and those that other candidates of the role have named applies.
	// Default: none, so that the others apply; at most 24 h. A negative value switches it
	// off, as the default does.
	HoldOff time.Duration
	// RestartGuard is how old a Redis without history must be before a lease is granted. Default:
	// the hold-off, at most 24 h. A negative value switches it off: two may lead
	// across a restart of a Redis that kept nothing.
	RestartGuard time.Duration
	// FailoverMargin lengthens the hold-off after a failover by the time for which a second master
	// may still take writes. FailoverMargin + RenewInterval + LeaseTTL/3 must be below LeaseTTL:
	// with the default of a third, a LeaseTTL of more than three times the margin. Default: none. A
	// negative value switches it off, as the default does.
	FailoverMargin time.Duration
}

// RegistryOptions configure the instance registry.
type RegistryOptions struct {
	// HeartbeatInterval is the interval between beats, between 100 ms and 15 days. Default 15 s.
	// A negative value switches it off: this process is not registered.
	HeartbeatInterval time.Duration
	// HeartbeatTTL is the expiry of the heartbeat key, whole seconds, between 2 · HeartbeatInterval
	// and 30 days. Default 90 s.
	HeartbeatTTL time.Duration
	// SweepInterval is the interval between the leader's sweeps, between 100 ms and 30 days.
	// Default 10 s. A negative value switches it off: this process never sweeps.
	SweepInterval time.Duration
	// DriftedAfter is the silence after which an instance is drifted, between 2 · HeartbeatInterval
	// and 30 days. Default 60 s. With 2 · HeartbeatInterval one lost heartbeat marks no instance.
	// With at least 2.25 · HeartbeatInterval + SweepInterval + 3 s no outage of Redis does: a
	// heartbeat that fails is tried again after HeartbeatInterval/3 at most, in a crowd once after
	// 5/6 of it.
	DriftedAfter time.Duration
	// DownAfter is the silence after which an instance is removed, above DriftedAfter and at most
	// 30 days. Default 300 s. A leader removes nobody before it has watched for DriftedAfter.
	//
	// Mass silence is a sign of a broken network rather than of dead instances, so removals are
	// capped: of n instances at most max(1, ⌊n/4⌋) are removed within 2 · HeartbeatInterval,
	// longest silent first. If more have been silent for DriftedAfter when one of them is due,
	// nobody else is removed for another DownAfter (EventSweepHeld), and then the same applies
	// again. Redis keeps the count and the hold, so that neither SweepInterval nor a change of
	// leader matters. Of 3 instances of which 2 die at once, one is removed after DownAfter and the
	// other after two; of 10 of which 9 die, the last after 7; of 60 of which 59 die, after 15.
	DownAfter time.Duration
	// MinInstances is how many instances must be active for the cluster to be healthy, and for
	// Registry.WaitFor. Default 1, at most 100,000.
	MinInstances int
	// Metrics returns numbers of this program, such as the length of a queue: at most 128, finite,
	// by names that match [A-Za-z0-9._:-]{1,64}. It is called every MetricsInterval while Run goes
	// on, by one goroutine at a time, and should return soon. What it returns is sent with the next
	// heartbeat, and Registry.Metrics returns it. A leader that has Metrics itself sums up those of
	// all instances: see Registry.Aggregates. Nil: nothing is pushed.
	Metrics func() map[string]float64
	// MetricsInterval is the interval between calls of Metrics, whole seconds, between 1 s and
	// 30 days; what is pushed lasts for three, or for three heartbeats if that is longer. Default
	// 30 s.
	MetricsInterval time.Duration

	// The fields from here on are published in the record, for everybody who may read Redis: what
	// this process says of itself. Registry.Update changes them while Run goes on, but for
	// WorkerID, Host and Version.

	// WorkerCount is how many workers this process has, between 0 and 1,048,576. Default 0.
	WorkerCount int
	// WorkerID tells one process from the others of its host, between 0 and 1,048,576. Default 0.
	WorkerID int
	// Address is where other processes reach this one: a host with a port, or a URL. At most 256
	// characters of those that a URI may have. What one listens at, such as :8080 or 0.0.0.0:8080,
	// is refused: who goes there reaches itself. Default: none.
	Address string
	// Host is where this process runs: [A-Za-z0-9._:%-]{1,253}. Default: the name by os.Hostname.
	Host string
	// Version is that of the program: [A-Za-z0-9._~:/@+()-]{1,128}. Default: none. In a vacancy, of
	// candidates of one Priority, an instance of another version than the last leader is preferred
	// if it started later than that leader, the latest first. So a rolling deploy costs one change
	// of the leader if an instance of the new version follows when the leader stops, and else two.
	Version string
	// Ports are ports by what they serve, such as "grpc": at most 16 names of the characters of a
	// role, 1 KiB in all, and numbers between 1 and 65535.
	Ports map[string]int
	// Roles are what this process is for, such as "gateway" or "worker": at most 64 names of the
	// characters of a role, 4 KiB in all. They have nothing to do with elections.
	Roles []string
	// Capabilities are what this process can do, such as "gpu", with the limits of Roles.
	Capabilities []string
	// Load is how busy this process is, and LoadLimit is the load from which on it takes no further
	// work: see Instance.CanAcceptWork. A field of LoadLimit that is 0 is no limit.
	Load, LoadLimit Load
	// Metadata are further labels: at most 32 pairs, 4 KiB in all.
	Metadata map[string]string
}

// profile is what an instance with these options says of itself at first.
func (o RegistryOptions) profile() store.Profile {
	return store.Profile{
		WorkerCount: o.WorkerCount, WorkerID: o.WorkerID, Address: o.Address, Host: o.Host, Version: o.Version, Ports: maps.Clone(o.Ports),
		Roles: slices.Clone(o.Roles), Capabilities: slices.Clone(o.Capabilities), Load: store.Load(o.Load),
		LoadLimit: store.Load(o.LoadLimit), Metadata: maps.Clone(o.Metadata),
	}
}

// with returns the options with another profile. It has copies.
func (o RegistryOptions) with(p store.Profile) RegistryOptions {
	o.WorkerCount, o.WorkerID, o.Address, o.Host, o.Version = p.WorkerCount, p.WorkerID, p.Address, p.Host, p.Version
	o.Ports, o.Roles, o.Capabilities = maps.Clone(p.Ports), slices.Clone(p.Roles), slices.Clone(p.Capabilities)
	o.Load, o.LoadLimit, o.Metadata = Load(p.Load), Load(p.LoadLimit), maps.Clone(p.Metadata)
	return o
}

// beat is the time within which a living instance sends a heartbeat. A process that sends none
// itself goes by the least DriftedAfter that it would need.
func (o RegistryOptions) beat() time.Duration {
	if o.HeartbeatInterval > 0 {
		return o.HeartbeatInterval
	}
	return o.DriftedAfter / 2
}

// TaskOptions configure the scheduler.
type TaskOptions struct {
	// Middleware wraps the TaskFunc of each registered task. The first one is called first, and
	// calls the next. Register calls each once per task, and it must return a TaskFunc, whose
	// result is the result of the attempt. TaskRun.Task says which task it is.
	Middleware []func(next TaskFunc) TaskFunc
	// History is the number of ended runs that are kept of each task, for Runs. The setting of the
	// leader applies. At most 1000; default 12: 5 KB of Redis, as with any number up to 16. It
	// shows the first 120 bytes of an error. A negative value switches it off: no run is added.
	History int
	// MinInstances is how many instances must be active for a run to start, at most 100,000: for
	// work that a few instances cannot carry. While there are fewer, runs that are on go on, with
	// their retries, and none starts: what is triggered waits, a run that was left behind waits,
	// and slots are missed, as without a leader (Task.Missed). TaskStatus.Held shows it, and
	// EventTasksHeld reports it. Instances that drain, or are drifted, do not count: one that has
	// died does count for RegistryOptions.DriftedAfter. Runs start again when there have been
	// enough for 10 s, and at the beginning of a term at once. While Redis cannot be read, what was
	// known last holds. Every instance should have the same value.
	//
	// Default 0: tasks start however few instances there are. It is not
	// RegistryOptions.MinInstances on purpose: a cluster that is not healthy should raise an alarm,
	// and go on working.
	MinInstances int
	// HistoryExpiry is for how long the history of a task is kept after its last run has ended,
	// between 1 min and 3,650 days: that of an orphan goes by itself. It takes effect with the next
	// run that ends. Zero: for ever.
	HistoryExpiry time.Duration
	// MaxConcurrent is how many runs may be on at once in this process, at most 1,000,000. A run is
	// on from its first attempt to its last one, pauses included. What is due beyond that waits
	// for its turn, in the order in which it came, and Task.Missed decides about the slots that it
	// waits for. Zero: any number.
	MaxConcurrent int
	// Shards is how many roles the tasks with Anywhere are dealt out to, by their names: the more,
	// the more evenly they spread, and the more leases are renewed. All instances should use the
	// same value. Default 8, at most 1,000.
	Shards int
}

// leaseKey is the key of the lease.
func (o ElectionOptions) leaseKey(namespace string) string {
	return cmp.Or(o.LeaderKey, store.Keys(namespace).Lease(o.Role))
}

// role is the role of completed options, as a store needs it.
func (o ElectionOptions) role(namespace, id string) store.Role {
	return store.Role{
		Name: o.Role, Key: o.leaseKey(namespace), Holder: id, TTL: o.LeaseTTL, Attempt: o.timing().Attempt(), EmptyWait: o.Safety.EmptyHistoryWait,
		HoldOff: max(o.Safety.HoldOff, 0), Margin: max(o.Safety.FailoverMargin, 0), RestartGuard: o.Safety.RestartGuard,
	}
}

// timing is the timing of completed options, as package lease needs it.
func (o ElectionOptions) timing() lease.Timing {
	return lease.Timing{
		TTL:     o.LeaseTTL,
		Renew:   o.RenewInterval,
		Retry:   o.RetryInterval,
		Drift:   max(o.Safety.DriftMargin, 0),
		HoldOff: max(o.Safety.HoldOff, 0),
		Penalty: lease.DefaultPenalty(o.LeaseTTL),
		Preempt: o.Preempt,
		Margin:  max(o.Safety.FailoverMargin, 0),
	}
}
