package tenure

import (
	"context"
	"log/slog"
)

// logEvents renders events as log records. Repeated errors of Redis come as one event per change of state, so they are one
// record each.
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
		add(e.Task != "", slog.String("task", e.Task))
		add(!e.Slot.IsZero(), slog.Time("slot", e.Slot))
		add(e.Attempt != 0, slog.Int("attempt", e.Attempt))
		add(e.Subject != "", slog.String("subject", e.Subject))
		add(e.Count != 0, slog.Int("count", e.Count))
		add(e.Step != 0, slog.Duration("step", e.Step))
		add(e.Took != 0, slog.Duration("took", e.Took))
		if e.Err != nil {
			attrs = append(attrs, slog.String("error", e.Err.Error()))
		}
		add(e.Missed != 0, slog.Int("missed", e.Missed))
		logger.LogAttrs(context.Background(), level, message, attrs...)
	}
}

// logLine is the level and the message of an event; "" for events that are not logged.
func logLine(e Event) (slog.Level, string) {
	switch e.Type {
	case EventAcquired:
		return slog.LevelInfo, "acquired leadership"
	case EventEnded:
		return slog.LevelInfo, "leadership ended"
	case EventReleased:
		return slog.LevelInfo, "released leadership"
	case EventLeaderChanged:
		return slog.LevelInfo, "leader changed"
	case EventRenewFailed:
		return slog.LevelError, "failed to renew leadership"
	case EventRedisDown:
		return slog.LevelWarn, "redis gives no usable answer"
	case EventRedisUp:
		return slog.LevelInfo, "redis answers again"
	case EventMisconfigured:
		return slog.LevelError, "misconfigured"
	case EventClockStep:
		return slog.LevelWarn, "the clock of redis stepped"
	case EventWorkFailed:
		return slog.LevelError, "leader work failed"
	case EventOverrun:
		return slog.LevelError, "work ignores the end of its context"
	case EventCallsStuck:
		return slog.LevelError, "calls to redis hang"
	case EventRegistered:
		return slog.LevelInfo, "registered instance"
	case EventBeatFailed:
		return slog.LevelWarn, "heartbeat failed"
	case EventJoined:
		return slog.LevelInfo, "instance joined"
	case EventDrifted:
		return slog.LevelWarn, "instance drifted"
	case EventRecovered:
		return slog.LevelInfo, "instance recovered"
	case EventDown:
		return slog.LevelError, "removing stale instance"
	case EventLeft:
		return slog.LevelInfo, "instance left"
	case EventDuplicateID:
		return slog.LevelError, "another living process uses this instance ID"
	case EventSweepFailed:
		return slog.LevelWarn, "sweep failed"
	case EventSweepHeld:
		return slog.LevelError, "too many instances are silent at once, holding the rest"
	case EventTaskStarted:
		return slog.LevelDebug, "task started"
	case EventTaskFinished:
		switch {
		case e.Status == RunInterrupted:
			return slog.LevelInfo, "task interrupted"
		case e.Status == RunAbandoned:
			return slog.LevelError, "task abandoned"
		case e.Err != nil:
			return slog.LevelError, "task failed"
		}
		return slog.LevelInfo, "task finished"
	case EventTaskSkipped:
		return slog.LevelWarn, "task slots skipped"
	case EventTaskTardy:
		return slog.LevelWarn, "tasks wait for calls to redis"
	case EventTaskFailed:
		return slog.LevelError, "task record unusable"
	}
	return 0, ""
}
