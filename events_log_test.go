package tenure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// logged renders one event as a line of text, without its time.
func logged(e Event) string {
	var out bytes.Buffer
	handler := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	logEvents(slog.New(handler))(e)
	return strings.TrimSpace(out.String())
}

func TestLogLines(t *testing.T) {
	for _, test := range []struct {
		event Event
		line  string
	}{
		{Event{Type: EventAcquired, InstanceID: "me", Role: "r", Token: 7}, `level=INFO msg="acquired leadership" instance=me role=r token=7`},
		{Event{Type: EventEnded, InstanceID: "me", Token: 7, Reason: "lost", Err: ErrLost}, `level=WARN msg="leadership ended" instance=me token=7 reason=lost error="tenure: leadership lost"`},
		{Event{Type: EventEnded, InstanceID: "me", Token: 7, Reason: "failed", Err: ErrWorkFailed}, `level=WARN msg="leadership ended" instance=me token=7 reason=failed error="tenure: leader work failed"`},
		{Event{Type: EventEnded, InstanceID: "me", Token: 7, Reason: "stopped", Err: ErrStopped}, `level=INFO msg="leadership ended" instance=me token=7 reason=stopped`},
		{Event{Type: EventEnded, InstanceID: "me", Token: 7, Reason: "resigned", Err: ErrResigned}, `level=INFO msg="leadership ended" instance=me token=7 reason=resigned`},
		{
			Event{Type: EventEnded, InstanceID: "me", Token: 7, Reason: "resigned", Err: fmt.Errorf("leader work f: %w", ErrResigned)},
			`level=INFO msg="leadership ended" instance=me token=7 reason=resigned error="leader work f: tenure: leadership resigned"`,
		},
		{Event{Type: EventReclaimed, InstanceID: "me", Token: 7}, `level=WARN msg="redis had lost the lease, taken back" instance=me token=7`},
		{
			Event{Type: EventWaiting, InstanceID: "me", Reason: "hold", Until: time.Unix(0, 0).UTC()},
			`level=INFO msg="waiting: redis has lost data or is young, no lease is granted yet" instance=me reason=hold until=1970-01-01T00:00:00.000Z`,
		},
		{Event{Type: EventWaiting, InstanceID: "me", Reason: "unhealthy"}, `level=INFO msg="standing back: the health check fails" instance=me reason=unhealthy`},
		{Event{Type: EventHistoryUnread, InstanceID: "me"}, `level=WARN msg="redis does not report its history, a failover may be missed: grant +info" instance=me`},
		{Event{Type: EventLeaderChanged, InstanceID: "me"}, `level=INFO msg="nobody leads" instance=me`},
		{Event{Type: EventReleased, InstanceID: "me", Token: 7}, `level=INFO msg="released leadership" instance=me token=7`},
		{Event{Type: EventLeaderChanged, InstanceID: "me", Subject: "x\n\x1b[31m"}, `level=INFO msg="leader changed" instance=me subject="x\n\x1b[31m"`},
		{Event{Type: EventRenewFailed, InstanceID: "me", Err: errBroken}, `level=ERROR msg="failed to renew leadership" instance=me error="the disk is full"`},
		{Event{Type: EventRedisDown, InstanceID: "me", Err: errBroken}, `level=WARN msg="redis gives no usable answer" instance=me error="the disk is full"`},
		{Event{Type: EventRedisUp, InstanceID: "me"}, `level=INFO msg="redis answers again" instance=me`},
		{Event{Type: EventMisconfigured, InstanceID: "me"}, `level=ERROR msg=misconfigured instance=me`},
		{Event{Type: EventClockStep, InstanceID: "me", Step: time.Hour}, `level=WARN msg="the clock of redis stepped" instance=me step=1h0m0s`},
		{Event{Type: EventWorkFailed, InstanceID: "me"}, `level=ERROR msg="leader work failed" instance=me`},
		{Event{Type: EventOverrun, InstanceID: "me", Task: "t"}, `level=ERROR msg="work ignores the end of its context" instance=me task=t`},
		{Event{Type: EventCallsStuck, InstanceID: "me", Count: 16}, `level=ERROR msg="calls to redis hang" instance=me count=16`},
		{Event{Type: EventRegistered, InstanceID: "me"}, `level=INFO msg="registered instance" instance=me`},
		{Event{Type: EventHeartbeatFailed, InstanceID: "me"}, `level=WARN msg="heartbeat failed" instance=me`},
		{Event{Type: EventJoined, InstanceID: "me", Subject: "x"}, `level=INFO msg="instance joined" instance=me subject=x`},
		{Event{Type: EventDrifted, InstanceID: "me", Subject: "x"}, `level=WARN msg="instance drifted" instance=me subject=x`},
		{Event{Type: EventRecovered, InstanceID: "me", Subject: "x"}, `level=INFO msg="instance recovered" instance=me subject=x`},
		{Event{Type: EventDown, InstanceID: "me", Subject: "x"}, `level=ERROR msg="removing stale instance" instance=me subject=x`},
		{Event{Type: EventLeft, InstanceID: "me", Subject: "x"}, `level=INFO msg="instance left" instance=me subject=x`},
		{Event{Type: EventDown, InstanceID: "me", Subject: "x", Remote: true}, `level=DEBUG msg="removing stale instance" instance=me subject=x`},
		{Event{Type: EventDuplicateID, InstanceID: "me"}, `level=ERROR msg="another living process uses this instance ID" instance=me`},
		{Event{Type: EventSweepFailed, InstanceID: "me"}, `level=WARN msg="sweep failed" instance=me`},
		{Event{Type: EventSweepHeld, InstanceID: "me", Count: 9}, `level=ERROR msg="too many instances are silent at once, holding the rest" instance=me count=9`},
		{Event{Type: EventTaskStarted, InstanceID: "me", Task: "t", Attempt: 2}, `level=DEBUG msg="task started" instance=me task=t attempt=2`},
		{
			Event{Type: EventTaskFinished, InstanceID: "me", Task: "t", Slot: time.Unix(0, 0).UTC(), Took: time.Second},
			`level=INFO msg="task finished" instance=me task=t slot=1970-01-01T00:00:00.000Z took=1s`,
		},
		{Event{Type: EventTaskFailed, InstanceID: "me", Err: errBroken}, `level=ERROR msg="task failed" instance=me error="the disk is full"`},
		{Event{Type: EventTaskFailed, InstanceID: "me", State: RunAbandoned}, `level=ERROR msg="task abandoned" instance=me`},
		{Event{Type: EventTaskInterrupted, InstanceID: "me", Err: errBroken}, `level=INFO msg="task interrupted" instance=me error="the disk is full"`},
		{Event{Type: EventTaskSkipped, InstanceID: "me"}, `level=WARN msg="task slots skipped" instance=me`},
		{Event{Type: EventTaskBlocked, InstanceID: "me", Missed: 3}, `level=ERROR msg="task stands still" instance=me missed=3`},
		{Event{Type: "of another version", InstanceID: "me"}, ""},
	} {
		require.Equal(t, test.line, logged(test.event))
	}
}

// TestPanicsAreLoggedWithTheirStack: where the panic was stands in the record of the failure, and
// in that alone.
func TestPanicsAreLoggedWithTheirStack(t *testing.T) {
	panicked := &PanicError{Value: "oops", Stack: []byte("goroutine 1")}
	for _, kind := range []EventType{EventTaskFailed, EventTaskBlocked, EventWorkFailed} {
		require.Contains(t, logged(Event{Type: kind, Err: panicked}), `stack="goroutine 1"`)
		require.Contains(t, logged(Event{Type: kind, Err: fmt.Errorf("cache: %w", panicked)}), `stack="goroutine 1"`)
		require.NotContains(t, logged(Event{Type: kind, Err: &PanicError{}}), "stack", "runtime.Goexit leaves none")
		require.NotContains(t, logged(Event{Type: kind, Err: errors.New("no")}), "stack")
	}
	require.NotContains(t, logged(Event{Type: EventEnded, Err: panicked}), "stack", "it was logged before")
}

// TestEveryEventIsLogged: every event there is has a line, so that none is forgotten when one is
// added, and one whose name is a fault is logged at Warn or above.
func TestEveryEventIsLogged(t *testing.T) {
	fault := regexp.MustCompile(`fail|down|lost|stuck|refused|unread|slow|tardy|skipped|blocked|held|overrun|misconfigured|duplicate|drifted|step`)
	source, err := os.ReadFile("events.go")
	require.NoError(t, err)
	declared := regexp.MustCompile(`EventType = "([a-z_]+)"`).FindAllSubmatch(source, -1)
	require.NotEmpty(t, declared)
	for _, event := range declared {
		level, message := logLine(Event{Type: EventType(event[1])})
		require.NotEmpty(t, message, "%s", event[1])
		if fault.Match(event[1]) {
			require.GreaterOrEqual(t, level, slog.LevelWarn, "%s", event[1])
		}
	}
}

// slowHandler is a slog.Handler that takes its time, and keeps the messages.
type slowHandler struct {
	slog.Handler
	election *election
	takes    time.Duration
}

func (h slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h slowHandler) Handle(_ context.Context, r slog.Record) error {
	<-time.After(h.takes)
	h.election.note("%s %s", r.Level, r.Message)
	return errors.New("the log is full")
}

func TestRepeatedErrorsAreOneRecordEach(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.loop.bus.observe(logEvents(slog.New(slowHandler{election: s})))
		s.run()
		s.store.on(on("", fate{err: errNetwork}))
		s.at(5 * time.Minute)
		s.store.on(nil)
		s.at(6 * time.Minute)
		s.store.hold("other", time.Hour)
		s.at(7 * time.Minute)
		require.NoError(s, s.stop())
		var lines []string
		for _, line := range s.noted() {
			if !strings.HasPrefix(line, "release") {
				lines = append(lines, line)
			}
		}
		require.Equal(s, []string{
			"INFO acquired leadership", "INFO leader changed",
			"WARN redis gives no usable answer", "ERROR failed to renew leadership", "WARN leadership ended",
			"INFO standing back after a term of its own",
			"INFO nobody leads", "INFO redis answers again", "INFO acquired leadership", "INFO leader changed",
			"WARN leadership ended", "INFO leader changed", "INFO standing back after a term of its own", "INFO waiting: another instance leads",
		}, lines)
	})
}

func TestSlowLoggerDelaysNothing(t *testing.T) {
	inElection(t, nil, func(s *election) {
		s.loop.bus.observe(logEvents(slog.New(slowHandler{election: s, takes: 10 * time.Minute})))
		s.run(s.honest(0))
		s.at(time.Minute)
		require.Len(s, s.store.made("renew"), 20)
		err := s.stop()
		require.ErrorIs(s, err, ErrDrainTimeout)
		require.ErrorContains(s, err, "an observer of events")
		require.Equal(s, time.Minute+electionDrain, s.now())
		require.True(s, s.store.free())
	})
}
