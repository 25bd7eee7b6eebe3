package tenure

import (
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/internal/store"
)

// EventType says what happened.
type EventType string

// The events are named by what happened to what: the subject first. The comment of each names the
// fields it sets beside Type, Time, InstanceID and Dropped.
const (
	// EventElectionStarted: Run began to take part in an election, with the bounds of Guarantees,
	// which its log line has. Role.
	EventElectionStarted EventType = "election_started"
	// EventTermBegan: a term of ours began. Role, Token.
	EventTermBegan EventType = "term_began"
	// EventTermEnded: a term of ours ended. Role, Token, Reason (expired, lost, resigned, failed,
	// stopped, transferred), Err (the cause of its context).
	EventTermEnded EventType = "term_ended"
	// EventLeaseReleased: our lease was given back. It does not come if another term had begun
	// before. Role, Token.
	EventLeaseReleased EventType = "lease_released"
	// EventLeaseReclaimed: Redis had lost the lease of our term, which has taken it back. Role,
	// Token.
	EventLeaseReclaimed EventType = "lease_reclaimed"
	// EventTransferOffered: our lease is offered to another instance. Role, Token, Subject (its
	// ID), Reason (preempt: to a better candidate, by Preempt or Spread; "": somebody has asked for
	// it).
	EventTransferOffered EventType = "transfer_offered"
	// EventTransferFailed: that instance has not asked for the lease in time, and our term goes on.
	// Role, Token, Subject (its ID, "" if it was to be the best candidate and nobody has asked),
	// Reason (as above; with preempt it is mostly that the candidate is no better any more, and
	// nothing is wrong), Err.
	EventTransferFailed EventType = "transfer_failed"
	// EventElectionWaiting: why we do not lead has changed. Role, Reason (a WaitReason; never
	// WaitSilence), Until (zero: not known), Took (how old Redis is, with WaitYoung).
	EventElectionWaiting EventType = "election_waiting"
	// EventElectionMisconfigured: somebody has to fix something. Role, Err.
	EventElectionMisconfigured EventType = "election_misconfigured"
	// EventLeaderChanged: there is another leader than before, or our term follows one of a process
	// with our ID. Role, Token (0: foreign), Subject (its ID, ours too; "": none), Former (the ID
	// of the leader before; "": not known), and, if we lead now, Reason (lapsed or forgotten, see
	// TermRecord.Reason; "": the former has given the lease back).
	EventLeaderChanged EventType = "leader_changed"
	// EventRenewalFailed: a renewal had no usable answer, the first in a row. It comes beside
	// EventRedisDown. Role, Token, Err.
	EventRenewalFailed EventType = "renewal_failed"
	// EventRedisDown: Redis gives no usable answer, for the first time in a row. Role, Err.
	EventRedisDown EventType = "redis_down"
	// EventRedisUp: Redis answers again, after each EventRedisDown unless Run ends first. Role.
	EventRedisUp EventType = "redis_up"
	// EventRedisClockStepped: Redis's clock was set. Role, Step; seen by the tasks also Token.
	EventRedisClockStepped EventType = "redis_clock_stepped"
	// EventHistoryUnread: Redis does not report its history (no right to INFO), so that a failover
	// may be missed. Role.
	EventHistoryUnread EventType = "history_unread"
	// EventWorkDone: a LeadFunc returned nil while its term is on: its work is done, and the term
	// goes on. Role, Token, Work.
	EventWorkDone EventType = "work_done"
	// EventWorkRestarted: leader work under Supervise failed and runs again. Role, Token, Work (its
	// name), Attempt (that failed, from 1 on), Err.
	EventWorkRestarted EventType = "work_restarted"
	// EventWorkFailed: leader work or the health check failed. Role, Token, Err.
	EventWorkFailed EventType = "work_failed"
	// EventWorkOverrun: work, or a task, ignores the end of its context. Role, Token, Err; of a
	// task also Task, Slot, Attempt.
	EventWorkOverrun EventType = "work_overrun"
	// EventCallsStuck: so many calls to Redis hang that no more are made. Count, Err; of an
	// election also Role.
	EventCallsStuck EventType = "calls_stuck"

	// EventSubscriptionLost: no hints arrive, for the first time in a row. Err.
	EventSubscriptionLost EventType = "subscription_lost"
	// EventSubscriptionRestored: hints arrive again.
	EventSubscriptionRestored EventType = "subscription_restored"
	// EventHintsRefused: Redis does not publish the hints of this process. Err.
	EventHintsRefused EventType = "hints_refused"
	// EventRollCallSlow: the leaders of this process may not answer a roll-call in time. Count
	// (roles), Took (what they need), Err.
	EventRollCallSlow EventType = "roll_call_slow"

	// EventInstanceRegistered: this instance entered the registry, or entered it again.
	EventInstanceRegistered EventType = "instance_registered"
	// EventDrainBegan: this process drains, see Coordinator.Drain.
	EventDrainBegan EventType = "drain_began"
	// EventDrainDone: a call of Coordinator.Drain has waited to the end of the drain, the first
	// one. This process leads nothing any more, and the work of its terms has returned; if Err is
	// set, some has not.
	EventDrainDone EventType = "drain_done"
	// EventDrainEnded: Coordinator.Undrain ended the drain.
	EventDrainEnded EventType = "drain_ended"
	// EventCommandTaken: this process begins what was asked of it by a Control. Role, Token (of the
	// term that it is meant for), Subject (the heir of a transfer), Reason (resign, transfer, drain
	// or undrain), By.
	EventCommandTaken EventType = "command_taken"
	// EventCommandEnded: that is over. As before, and Err.
	EventCommandEnded EventType = "command_ended"
	// EventCommandsUnread: there may be commands for this process, and it cannot read them, for the
	// first time in a row. Err.
	EventCommandsUnread EventType = "commands_unread"
	// EventInstanceJoined: another instance entered the registry. Subject. This and the next ones
	// may be missed, and if more than 500 processes listen they come late and together:
	// Registry.Watch misses nothing.
	EventInstanceJoined EventType = "instance_joined"
	// EventInstanceDrifted: an instance was silent for DriftedAfter. Subject.
	EventInstanceDrifted EventType = "instance_drifted"
	// EventInstanceRecovered: a drifted instance beat again. Subject.
	EventInstanceRecovered EventType = "instance_recovered"
	// EventInstanceDown: an instance was silent for DownAfter and was removed. Subject.
	EventInstanceDown EventType = "instance_down"
	// EventInstanceLeft: an instance deregistered. Subject.
	EventInstanceLeft EventType = "instance_left"
	// EventInstanceDuplicated: two living processes use our instance ID. Subject (the other
	// incarnation).
	EventInstanceDuplicated EventType = "instance_duplicated"
	// EventHeartbeatFailed: a heartbeat had no usable answer, the first in a row. Err.
	EventHeartbeatFailed EventType = "heartbeat_failed"
	// EventDeregistrationFailed: this process stops and could not remove its record, which is left
	// to be swept. Err.
	EventDeregistrationFailed EventType = "deregistration_failed"
	// EventSweepFailed: a sweep had no usable answer, the first in a row, or Redis refuses to count
	// the instances after one. Err.
	EventSweepFailed EventType = "sweep_failed"
	// EventMetricsFailed: what RegistryOptions.Metrics returns cannot be pushed, or it has panicked
	// or hangs; or the leader could not add a summary to the history. It comes once for several in
	// a row. Err.
	EventMetricsFailed EventType = "metrics_failed"
	// EventSweepHeld: too many instances are silent at once. Count of them are held for another
	// DownAfter.
	EventSweepHeld EventType = "sweep_held"

	// EventClusterChanged: the leader of the default role has counted the instances, and their
	// numbers by state differ from its last count. It looks after each sweep, and counts if
	// anything may have changed. Counts.
	EventClusterChanged EventType = "cluster_changed"

	// EventTaskStarted: an attempt began. Task, Slot, Attempt, Token, Took (of the first attempt
	// for a slot: how long after that, by Redis's clock).
	EventTaskStarted EventType = "task_started"
	// EventTaskFinished: an attempt succeeded. Task, Slot, Attempt, Token, Took, State.
	EventTaskFinished EventType = "task_finished"
	// EventTaskAttemptFailed: an attempt failed, and another one of the same run follows, by this
	// leader or the next. Task, Slot, Attempt, Token, Took, State, Err, Until (the next attempt is
	// due).
	EventTaskAttemptFailed EventType = "task_attempt_failed"
	// EventTaskFailed: a run failed for good, or was given up as abandoned: once a run. Task, Slot,
	// Attempt (the last), Token, Took (that attempt), State (failed or abandoned), Err (of that
	// attempt).
	EventTaskFailed EventType = "task_failed"
	// EventTaskCanceled: a run was ended by TaskScheduler.Cancel. Task, Slot, Attempt, Token, Took,
	// State, Err.
	EventTaskCanceled EventType = "task_canceled"
	// EventTaskInterrupted: the end of the term cut an attempt short; the run is repeated. Task,
	// Slot, Attempt, Token, Took, State, Err.
	EventTaskInterrupted EventType = "task_interrupted"
	// EventTaskSlow: an attempt takes ten times as long as usual, or, if none has succeeded in this
	// process, is still on when the next slot is due, or after an hour if there is no next slot; at
	// least a minute, once a run. Task, Slot, Attempt, Token, Took (so far).
	EventTaskSlow EventType = "task_slow"
	// EventTaskSkipped: slots were skipped by policy. Task, Slot (the first), Count, Token. Of the
	// slots that pass during one run the first comes at once, the others when it ends.
	EventTaskSkipped EventType = "task_skipped"
	// EventTaskChanged: the schedule of a task is another one than its record had. Task, Slot (the
	// next), Token.
	EventTaskChanged EventType = "task_changed"
	// EventTaskTriggerExpired: a trigger was not run within an hour, and was dropped. Task,
	// Trigger, Token.
	EventTaskTriggerExpired EventType = "task_trigger_expired"
	// EventTasksHeld: no run starts until more instances are active (TaskOptions.MinInstances).
	// Count (how many are), Err.
	EventTasksHeld EventType = "tasks_held"
	// EventTasksReleased: runs start again after EventTasksHeld. Count.
	EventTasksReleased EventType = "tasks_released"
	// EventTaskTardy: a task waits for a call to Redis for more than a second, because all are in
	// use. It comes again only after ten seconds in which none has waited for so long. Task, Token,
	// Took (so far).
	EventTaskTardy EventType = "task_tardy"
	// EventTaskBlocked: a task stands still: its record cannot be read or written, or its Schedule
	// fails. It comes once, and once more for each further key or right that has to be fixed; for
	// the same one again only after three calls that were not refused, or an hour. Task, Token,
	// Err.
	EventTaskBlocked EventType = "task_blocked"
)

// Event is one change of state. Unset fields are zero.
type Event struct {
	Type       EventType     `json:"type"`
	Time       time.Time     `json:"time,omitzero"` // this machine's clock; an observer never gets an earlier one after a later one
	InstanceID string        `json:"instance_id"`   // of this process
	Role       string        `json:"role,omitempty"`
	Token      int64         `json:"token,omitempty"`
	Subject    string        `json:"subject,omitempty"` // the instance that it is about
	Former     string        `json:"former,omitempty"`  // the instance that led before, with EventLeaderChanged
	Work       string        `json:"work,omitempty"`    // the name of a LeadFunc, for people
	Task       string        `json:"task,omitempty"`
	Slot       time.Time     `json:"slot,omitzero"`
	Attempt    int           `json:"attempt,omitempty"`
	Trigger    string        `json:"trigger,omitempty"` // ID of what triggered the run of an attempt, or of a trigger that expired
	Count      int           `json:"count,omitempty"`
	Counts     *Counts       `json:"counts,omitempty"` // with EventClusterChanged
	Step       time.Duration `json:"-"`                // of Redis's clock, with EventRedisClockStepped
	Took       time.Duration `json:"-"`
	State      RunState      `json:"state,omitempty"`  // with EventTaskFinished, EventTaskAttemptFailed, EventTaskFailed and EventTaskInterrupted: how the attempt ended
	Reason     string        `json:"reason,omitempty"` // one word; with EventElectionWaiting a WaitReason
	By         string        `json:"by,omitempty"`     // who asked for a command; untrusted
	Until      time.Time     `json:"until,omitzero"`   // this machine's clock
	Err        error         `json:"-"`
	// Remote is set if another process did it and this one has only heard of it. It comes with
	// EventInstanceJoined, EventInstanceDrifted, EventInstanceRecovered, EventInstanceDown and
	// EventInstanceLeft, which are logged at Debug then. The leader that swept, or the instance
	// that it is about, has the event without Remote.
	Remote bool `json:"remote,omitempty"`
	// Dropped is how many events were dropped since the one before this, because the observer did
	// not keep up. Those with Remote are dropped first.
	Dropped int `json:"dropped,omitempty"`

	more *logAttrs // for the log alone
}

// logAttrs are attributes of a log record.
type logAttrs []slog.Attr

// observerBacklog is how many events an observer may lag behind before the oldest are dropped.
const observerBacklog = 1024

// eventBus hands events to observers. It is safe for concurrent use.
type eventBus struct {
	instance string
	observing[Event]

	observers observers[Event]            // of everything
	ofRole    map[string]observers[Event] // of the elections of roles, which may be thousands
}

func newEventBus(instance string) *eventBus {
	return &eventBus{instance: instance, observers: make(observers[Event]), ofRole: make(map[string]observers[Event])}
}

// observe adds an observer; the returned function removes it and does not wait for a call that is
// under way.
func (b *eventBus) observe(call func(Event)) (stop func()) { return b.join(call, b.observers) }

// join does that. If the observer lags behind, events that this process has only heard of are
// dropped first: anybody who may publish can send those without end.
func (b *eventBus) join(call func(Event), to observers[Event]) (stop func()) {
	return b.add(to, observer[Event]{most: observerBacklog, hearsay: func(e Event) bool { return e.Remote }, call: func(e Event, dropped int) {
		e.Dropped = dropped
		call(e)
	}})
}

// notices are the events of what a subscription reports.
var notices = map[store.NoticeKind]EventType{
	store.SubscriptionLost: EventSubscriptionLost, store.SubscriptionRestored: EventSubscriptionRestored, store.HintsRefused: EventHintsRefused, store.RollCallSlow: EventRollCallSlow,
}

// notice publishes what a subscription reports. It concerns all elections of the process.
func (b *eventBus) notice(n store.Notice) {
	b.deliver(Event{Type: notices[n.Kind], Count: n.Roles, Took: n.Need, Err: n.Err}, b.observed()...)
}

// publish is for the events of the registry and of tasks.
func (b *eventBus) publish(e Event) { b.deliver(e) }

// electionBus is the bus of one election: its observers hear of no other, but of what all elections
// share.
type electionBus struct {
	*eventBus
	role string
}

func (b electionBus) publish(e Event) { b.deliver(e, b.role) }

func (b electionBus) observe(call func(Event)) (stop func()) {
	return b.join(call, b.observersOf(b.role))
}

// observersOf are those of the election of a role.
func (b *eventBus) observersOf(role string) observers[Event] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ofRole[role] == nil {
		b.ofRole[role] = make(observers[Event])
	}
	return b.ofRole[role]
}

// observed returns the roles whose elections have, or had, observers.
func (b *eventBus) observed() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.ofRole))
}

// concerned are the observers of everything, and those of the elections of some roles: an event of
// one of thousands of roles looks at no observer of another. The lock is held.
func (b *eventBus) concerned(roles []string) iter.Seq[*observer[Event]] {
	return func(yield func(*observer[Event]) bool) {
		for o := range b.observers {
			if !yield(o) {
				return
			}
		}
		for _, role := range roles {
			for o := range b.ofRole[role] {
				if !yield(o) {
					return
				}
			}
		}
	}
}

// deliver hands an event to the observers of everything, and to those of the elections of some
// roles.
func (b *eventBus) deliver(e Event, roles ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Time, e.InstanceID = time.Now(), b.instance // under the lock: the order of times is that of delivery
	for o := range b.concerned(roles) {
		o.tell(e)
	}
}

// flush waits until no observer has anything left to work off, at the latest until the deadline.
// Others may go on publishing.
func (b *eventBus) flush(deadline time.Time) error {
	return b.working.flush(deadline, "an observer of events")
}

// reportOnce says which faults of a row are news: the first, and each thing that somebody has to
// fix. A row ends with over.
type reportOnce struct {
	reported bool
	stuck    bool // that calls hang was reported
	fixes    []reportedFix
}

// reportedFix is what somebody was asked for, and by which call.
type reportedFix struct {
	op, fix string
	spoilt  bool // see store.Error.Spoilt
}

func (f reportedFix) same(other reportedFix) bool { return f.fix == other.fix }

// first notes a fault and reports whether it is the first of a row.
func (o *reportOnce) first() bool {
	first := !o.reported
	o.reported = true
	return first
}

// newFix reports whether an error asks for a fix that none of this row asked for.
func (o *reportOnce) newFix(err error) bool {
	if !errors.Is(err, ErrMisconfigured) {
		return false
	}
	asked := reportedFix{fix: store.FixOf(err)}
	if e, ok := store.AsType[*store.Error](err); ok {
		asked.op, asked.spoilt = e.Op, e.Spoilt
	}
	known := slices.ContainsFunc(o.fixes, asked.same)
	if !slices.Contains(o.fixes, asked) {
		o.fixes = append(o.fixes, asked)
	}
	return !known
}

// worked ends the row of one who makes several calls: this one has had a usable answer. A fix that
// another call has asked for stays reported until that works: a user may lack a right that only
// one of them needs.
func (o *reportOnce) worked(op string) {
	o.reported, o.stuck = false, false
	o.made(op)
	o.made("") // of which it is not known which call it was
}

// made notes that what a call has asked for was fixed, whatever else has asked for it too. The row
// may go on.
func (o *reportOnce) made(op string) {
	asked := slices.DeleteFunc(slices.Clone(o.fixes), func(f reportedFix) bool { return f.op != op })
	o.fixes = slices.DeleteFunc(o.fixes, func(f reportedFix) bool { return slices.ContainsFunc(asked, f.same) })
}

// repaired notes that no key is spoilt, whatever call has asked for its repair.
func (o *reportOnce) repaired() {
	o.fixes = slices.DeleteFunc(o.fixes, func(f reportedFix) bool { return f.spoilt })
}

// report publishes a fault if it is news.
func (o *reportOnce) report(bus *eventBus, kind EventType, err error) {
	if hang, ok := store.AsType[*callsHangError](err); ok && !o.stuck {
		o.stuck = true
		bus.publish(Event{Type: EventCallsStuck, Count: hang.count, Err: err})
	}
	newFix := o.newFix(err)
	if o.first() || newFix {
		bus.publish(Event{Type: kind, Err: err})
	}
}

// over ends the row, and reports whether there was one.
func (o *reportOnce) over() bool {
	was := o.reported
	*o = reportOnce{}
	return was
}
