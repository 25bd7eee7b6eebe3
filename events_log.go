package tenure

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/internal/lease"
	"github.com/tenure-go/tenure/internal/store"
)

// logEvents renders events as log records. Repeated errors of Redis come as one event per change of
// state, so they are one record each.
func logEvents(logger *slog.Logger) func(Event) {
	return func(e Event) {
		level, message := logLine(e)
		if message == "" {
			return
		}
		if e.Remote {
			level = slog.LevelDebug // the process that did it logs it
		}
		attrs := []slog.Attr{slog.String("instance", e.InstanceID)}
		add := func(set bool, attr slog.Attr) {
			if set {
				attrs = append(attrs, attr)
			}
		}
		add(e.Role != "", slog.String("role", e.Role))
		add(e.Token != 0, slog.Int64("token", e.Token))
		add(e.Work != "", slog.String("work", e.Work))
		add(e.Task != "", slog.String("task", e.Task))
		add(!e.Slot.IsZero(), slog.Time("slot", e.Slot))
		add(e.Attempt != 0, slog.Int("attempt", e.Attempt))
		add(e.Trigger != "", slog.String("trigger", e.Trigger))
		add(e.Subject != "", slog.String("subject", e.Subject))
		add(e.Former != "", slog.String("former", e.Former))
		add(e.Count != 0, slog.Int("count", e.Count))
		add(e.Step != 0, slog.Duration("step", e.Step))
		add(e.Took != 0, slog.Duration("took", e.Took))
		add(e.Reason != "", slog.String("reason", e.Reason))
		add(e.By != "", slog.String("by", e.By))
		add(!e.Until.IsZero(), slog.Time("until", e.Until))
		if says(e) {
			attrs = append(attrs, slog.String("error", plainText(e.Err)))
		}
		if stack := stackOf(e); stack != "" {
			attrs = append(attrs, slog.String("stack", stack))
		}
		add(e.Dropped != 0, slog.Int("dropped", e.Dropped))
		if e.more != nil {
			attrs = append(attrs, *e.more...)
		}
		logger.LogAttrs(context.Background(), level, message, attrs...)
	}
}

// stackOf is where the application's code panicked, in the event that reports the failure: the end
// of the term, which follows from it, names the error only.
func stackOf(e Event) string {
	if e.Type != EventTaskFailed && e.Type != EventTaskAttemptFailed && e.Type != EventTaskBlocked && e.Type != EventWorkFailed && e.Type != EventWorkRestarted &&
		e.Type != EventCommandEnded {
		return ""
	}
	var panicked *PanicError
	found := false
	if protect(func() error { found = errors.As(e.Err, &panicked); return nil }) != nil || !found {
		return ""
	}
	return string(panicked.Stack)
}

// asked reports whether a term ended because somebody asked for it.
func asked(e Event) bool {
	why := e.Reason
	return e.Type == EventTermEnded && (why == lease.Shutdown.String() || why == lease.Resigned.String() || why == lease.Transferred.String())
}

// says reports whether the error of an event says more than its reason does. That of a term which
// leader work has resigned names the work, that of one which was transferred the next leader.
func says(e Event) bool {
	resigned := e.Reason == lease.Resigned.String() || e.Reason == lease.Transferred.String()
	return e.Err != nil && (!asked(e) || resigned && e.Err != ErrResigned) //nolint:errorlint // exactly this
}

// waitingLine says why we wait, and for how long if that is known.
func waitingLine(e Event) string {
	left := ""
	if !e.Until.IsZero() {
		left = " in " + short(e.Until.Sub(e.Time))
	}
	switch WaitReason(e.Reason) {
	case WaitLease:
		return "waiting: another instance leads"
	case WaitForeign:
		return "waiting: another program holds the lease"
	case WaitEmpty:
		return "waiting: redis knows nothing of this role, leaders are asked to renew, first election possible" + left
	case WaitYoung:
		return "waiting: redis is " + short(e.Took) + " old, first election possible" + left
	case WaitHold:
		return "waiting: redis has restarted, failed over or lost data, next election possible" + left
	case WaitVanished:
		return "waiting: the lease vanished before its end, next election possible" + left
	case WaitReserved:
		return "waiting: the lease is reserved for another instance, next election possible" + left
	case WaitYield:
		return "waiting: a better candidate comes first, next election possible" + left
	case WaitPenalty:
		return "standing back after a term of its own"
	case WaitUnhealthy:
		return "standing back: the health check fails"
	case WaitIneligible:
		return "standing back: this instance is not eligible"
	case WaitDraining:
		return "standing back: this instance drains"
	}
	return "waiting"
}

// clusterLine is the summary of the cluster, a warning if anybody is missing.
func clusterLine(counts *Counts) (slog.Level, string) {
	if counts == nil {
		return slog.LevelInfo, "cluster status"
	}
	level := slog.LevelInfo
	if counts.Drifted+counts.Down > 0 {
		level = slog.LevelWarn
	}
	return level, "cluster status: " + countsLine(*counts)
}

// short is a duration for people.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// logLine is the level and the message of an event; "" for events that are not logged.
func logLine(e Event) (slog.Level, string) {
	switch e.Type {
	case EventElectionStarted:
		return slog.LevelInfo, "takes part in the election"
	case EventTermBegan:
		return slog.LevelInfo, "acquired leadership"
	case EventTermEnded:
		if asked(e) {
			return slog.LevelInfo, "leadership ended"
		}
		return slog.LevelWarn, "leadership ended"
	case EventTransferOffered:
		return slog.LevelInfo, "the lease is offered to another instance"
	case EventTransferFailed:
		if e.Reason == transferPreempt { // it has come to lead another role meanwhile, or is gone
			return slog.LevelInfo, "no better candidate takes the lease, this instance leads on"
		}
		return slog.LevelWarn, "transfer failed, this instance leads on"
	case EventLeaseReclaimed:
		return slog.LevelWarn, "redis had lost the lease, taken back"
	case EventElectionWaiting:
		return slog.LevelInfo, waitingLine(e)
	case EventLeaseReleased:
		return slog.LevelInfo, "released leadership"
	case EventLeaderChanged:
		if e.Subject == "" {
			return slog.LevelInfo, "nobody leads"
		}
		if e.Reason == store.TermLapsed {
			return slog.LevelWarn, "leader changed, the former one is gone and has not given its lease back"
		}
		return slog.LevelInfo, "leader changed"
	case EventRenewalFailed:
		return slog.LevelError, "failed to renew leadership"
	case EventRedisDown:
		return slog.LevelWarn, "redis gives no usable answer"
	case EventRedisUp:
		return slog.LevelInfo, "redis answers again"
	case EventElectionMisconfigured:
		return slog.LevelError, "misconfigured"
	case EventHistoryUnread:
		return slog.LevelWarn, "redis does not report its history, a failover may be missed: grant +info"
	case EventRedisClockStepped:
		return slog.LevelWarn, "the clock of redis stepped"
	case EventWorkDone:
		return slog.LevelInfo, "leader work is done, the term goes on"
	case EventWorkRestarted:
		return slog.LevelWarn, "leader work failed, it runs again"
	case EventWorkFailed:
		return slog.LevelError, "leader work failed"
	case EventWorkOverrun:
		return slog.LevelError, "work ignores the end of its context"
	case EventCallsStuck:
		return slog.LevelError, "calls to redis hang"
	case EventSubscriptionLost:
		return slog.LevelWarn, "hints do not arrive"
	case EventSubscriptionRestored:
		return slog.LevelInfo, "hints arrive again"
	case EventHintsRefused:
		return slog.LevelWarn, "redis refuses to publish hints"
	case EventRollCallSlow:
		return slog.LevelWarn, "leaders may not answer a roll-call in time"
	case EventInstanceRegistered:
		return slog.LevelInfo, "registered instance"
	case EventDrainBegan:
		return slog.LevelInfo, "draining, this instance leads nothing until it is undrained"
	case EventDrainDone:
		if e.Err != nil {
			return slog.LevelError, "drained, but not all has ended"
		}
		return slog.LevelInfo, "drained, this instance leads nothing"
	case EventDrainEnded:
		return slog.LevelInfo, "undrained, this instance takes part again"
	case EventCommandTaken:
		return slog.LevelInfo, "taking a command"
	case EventCommandEnded:
		if e.Err != nil {
			return slog.LevelWarn, "command failed"
		}
		return slog.LevelInfo, "command done"
	case EventCommandsUnread:
		return slog.LevelWarn, "commands cannot be read"
	case EventHeartbeatFailed:
		return slog.LevelWarn, "heartbeat failed"
	case EventDeregistrationFailed:
		return slog.LevelWarn, "deregistration failed, the record is left to be swept"
	case EventInstanceJoined:
		return slog.LevelInfo, "instance joined"
	case EventInstanceDrifted:
		return slog.LevelWarn, "instance drifted"
	case EventInstanceRecovered:
		return slog.LevelInfo, "instance recovered"
	case EventInstanceDown:
		return slog.LevelError, "removing stale instance"
	case EventInstanceLeft:
		return slog.LevelInfo, "instance left"
	case EventInstanceDuplicated:
		return slog.LevelError, "another living process uses this instance ID"
	case EventSweepFailed:
		return slog.LevelWarn, "sweep failed"
	case EventMetricsFailed:
		return slog.LevelWarn, "metrics failed"
	case EventSweepHeld:
		return slog.LevelError, "too many instances are silent at once, holding the rest"
	case EventClusterChanged:
		return clusterLine(e.Counts)
	case EventTaskStarted:
		return slog.LevelDebug, "task started"
	case EventTaskFinished:
		return slog.LevelInfo, "task finished"
	case EventTaskAttemptFailed:
		return slog.LevelWarn, "task attempt failed, another follows"
	case EventTaskFailed:
		if e.State == RunAbandoned {
			return slog.LevelError, "task abandoned"
		}
		return slog.LevelError, "task failed"
	case EventTaskCanceled:
		return slog.LevelInfo, "task canceled"
	case EventTaskInterrupted:
		return slog.LevelInfo, "task interrupted"
	case EventTaskSlow:
		return slog.LevelWarn, "task takes far longer than usual"
	case EventTaskSkipped:
		return slog.LevelWarn, "task slots skipped"
	case EventTaskChanged:
		return slog.LevelInfo, "task goes on by another schedule"
	case EventTaskTriggerExpired:
		return slog.LevelWarn, "trigger of a task dropped, it waited for too long"
	case EventTasksHeld:
		return slog.LevelWarn, "too few instances are active, no task starts"
	case EventTasksReleased:
		return slog.LevelInfo, "enough instances are active, tasks start again"
	case EventTaskTardy:
		return slog.LevelWarn, "tasks wait for calls to redis"
	case EventTaskBlocked:
		return slog.LevelError, "task stands still"
	}
	return 0, ""
}
